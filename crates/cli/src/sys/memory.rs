//! The memory that is available.

/// Bytes that programs can use without pushing others out; `None` when the system does not tell.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_system_tells_at_least_the_memory_that_this_test_runs_in() {
        assert!(super::available_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
