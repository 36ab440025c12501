//! Results as libc gives them: a value, or the value for failure and errno.

use crate::sys;
use weft_client::{Errno, OUTSIDE};

/// What a libc function returns when it fails.
pub trait Failed {
    /// Value that the function returns on failure.
    const FAILED: Self;
}

impl Failed for i32 {
    const FAILED: i32 = -1;
}

impl Failed for isize {
    const FAILED: isize = -1;
}

impl Failed for i64 {
    const FAILED: i64 = -1;
}

impl<T> Failed for *mut T {
    const FAILED: *mut T = std::ptr::null_mut();
}

/// Sets errno; the value to return.
#[cold]
pub fn fail<T: Failed>(error: Errno) -> T {
    sys::set_errno(if error == OUTSIDE { libc::EXDEV } else { error });
    T::FAILED
}

/// A result as libc gives it.
pub fn finish<T: Failed>(result: Result<T, Errno>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(error),
    }
}
