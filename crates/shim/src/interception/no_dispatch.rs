//! Architectures on which the kernel cannot hand system calls over, or this library not take them: nothing is intercepted.

/// As on x86-64.
pub const ENV_INTERCEPT: &[u8] = b"WEFT_INTERCEPT";
/// As on x86-64.
pub const WANTED: &[u8] = b"sud";

/// Never.
pub fn is_on() -> bool {
    false
}

/// Says that it cannot.
pub fn start() {
    crate::report::complain(&[
        b"system calls that the program makes past libc are not seen on this architecture",
    ]);
}

/// Nothing.
pub fn arm() {}

/// Nothing.
pub fn begin_thread() {}

/// Nobody asks: nothing is intercepted.
///
/// # Safety
/// None is needed.
pub unsafe fn change_alternate(
    _: *const libc::stack_t,
    _: *mut libc::stack_t,
) -> Result<libc::c_int, weft_client::Errno> {
    Err(libc::ENOSYS)
}
