//! The memory that is available.

/// Bytes that programs can use without pushing others out; `None` when the system does not tell.
pub fn available_bytes() -> Option<u64> {
    bytes_of("MemAvailable:")
}

/// Bytes of memory that the machine has; `None` when the system does not tell.
pub fn total_bytes() -> Option<u64> {
    bytes_of("MemTotal:")
}

fn bytes_of(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_system_tells_at_least_the_memory_that_this_test_runs_in() {
        assert!(super::available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(super::total_bytes() >= super::available_bytes());
    }
}
