//! Moments as people read them.

/// `2026-01-31 23:59:59` in the host's time zone, from nanoseconds since 1970.
pub fn local(ns: i64) -> String {
    let seconds: libc::time_t = ns.div_euclid(1_000_000_000);
    // SAFETY: an all-zero tm is valid, and both pointers are valid for the call.
    let parts = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&raw const seconds, &raw mut parts).is_null() {
            return seconds.to_string();
        }
        parts
    };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_moment_has_a_date_and_a_time() {
        let text = super::local(1_000_000_000 * 86_400 * 365);
        assert!(text.starts_with("1970-12-31") || text.starts_with("1971-01-01"), "{text}");
        assert_eq!(text.len(), 19);
    }
}
