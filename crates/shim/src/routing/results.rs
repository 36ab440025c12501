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

/// What a call on the volume gives, as a libc function that returns a `T` tells it.
pub trait Given<T> {
    /// The value for success.
    fn told(self) -> T;
}

impl<T: Failed> Given<T> for T {
    #[inline(always)]
    fn told(self) -> T {
        self
    }
}

impl Given<i32> for () {
    #[inline(always)]
    fn told(self) -> i32 {
        0
    }
}

impl Given<isize> for usize {
    #[inline(always)]
    fn told(self) -> isize {
        self as isize
    }
}

impl Given<i64> for u64 {
    #[inline(always)]
    fn told(self) -> i64 {
        self as i64
    }
}

/// Sets errno; the value to return.
#[cold]
pub fn fail<T: Failed>(error: Errno) -> T {
    sys::set_errno(if error == OUTSIDE { libc::EXDEV } else { error });
    T::FAILED
}

/// A result as libc gives it.
pub fn finish<T: Failed>(result: Result<impl Given<T>, Errno>) -> T {
    match result {
        Ok(value) => value.told(),
        Err(error) => fail(error),
    }
}

/// What a libc function returned, as a result.
pub fn result_of(returned: i32) -> Result<i32, Errno> {
    if returned < 0 { Err(sys::errno()) } else { Ok(returned) }
}
