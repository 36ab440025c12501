//! Clocks. The vDSO answers both calls: no system call, no allocation, nothing that the preloaded library hooks.

#[inline]
fn now(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable, and the call touches nothing else.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now
}

/// The present moment in nanoseconds since 1970, at the kernel's tick resolution (about 4 ms); what file times are made of.
#[inline]
pub fn coarse_now_ns() -> i64 {
    let now = now(libc::CLOCK_REALTIME_COARSE);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Monotonic nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = now(libc::CLOCK_MONOTONIC);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds since the system has started, with those in which it slept; what the kernel's times of processes are of.
#[inline]
pub fn boot_ns() -> u64 {
    let now = now(libc::CLOCK_BOOTTIME);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
