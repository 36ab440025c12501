//! Pointers that cross the boundary. Each function here says what its caller has to guarantee; the callers are the C
//! functions, which pass the duty on in the header.

use crate::code;
use crate::error::{Failure, bad, null};
use std::ffi::{CStr, c_char};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::Nanos;
use weft_flash::LevelError;
use weft_flash::raw::Results;

/// A level with its clock.
pub(crate) struct Clocked<L> {
    pub level: L,
    now: AtomicU64,
}

impl<L> Clocked<L> {
    pub fn new(level: L) -> Clocked<L> {
        Clocked { level, now: AtomicU64::new(0) }
    }

    pub fn now(&self) -> Nanos {
        Nanos(self.now.load(Relaxed))
    }

    /// Does one operation, which says when it ends, and moves the clock there.
    pub fn run(&self, operate: impl FnOnce(&L, Nanos) -> Result<Nanos, LevelError>) -> Result<(), Failure> {
        self.advance(operate(&self.level, self.now())?);
        Ok(())
    }

    pub fn advance(&self, to: Nanos) {
        self.now.fetch_max(to.0, Relaxed);
    }
}

/// Moves a level's clock to the end of several operations, and notes the status of each. The first failure is that of all.
pub(crate) fn settle<'s, L>(
    level: &Clocked<L>,
    results: Result<Results, LevelError>,
    statuses: impl Iterator<Item = &'s mut i32>,
) -> Result<(), Failure> {
    let results = match results {
        Ok(results) => results,
        Err(error) => {
            statuses.for_each(|status| *status = code::of(&error));
            return Err(error.into());
        }
    };
    let mut first = Ok(());
    for (result, status) in results.into_iter().zip(statuses) {
        match result {
            Ok(done) => {
                level.advance(done.done);
                *status = 0;
            }
            Err(error) => {
                *status = code::of(&error);
                first = first.and(Err(error));
            }
        }
    }
    Ok(first?)
}

/// A handle that this library made.
///
/// # Safety
/// The pointer is null or came from this library and has not been closed.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// Takes a handle back.
///
/// # Safety
/// The pointer is null or came from [`give`] and is used by nobody any more.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's promise; `give` made it from a box.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// Hands a new handle out.
///
/// # Safety
/// `out` is null or can be written.
pub(crate) unsafe fn give<T>(value: T, out: *mut *mut T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(null("out"));
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { out.write(Box::into_raw(Box::new(value))) };
    Ok(())
}

/// Writes a result.
///
/// # Safety
/// `out` is null or can be written.
pub(crate) unsafe fn put<T>(value: T, out: *mut T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(null("a result"));
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a result that may not be wanted.
///
/// # Safety
/// `out` is null or can be written.
pub(crate) unsafe fn put_unless_null<T>(value: T, out: *mut T) {
    if !out.is_null() {
        // SAFETY: not null, and the caller's promise.
        unsafe { out.write(value) };
    }
}

/// A string.
///
/// # Safety
/// The pointer is null or points to bytes that end with a zero byte.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and the caller's promise.
    let raw = unsafe { CStr::from_ptr(pointer) };
    raw.to_str().map_err(|_| bad(format!("{what} is not UTF-8; pass a name that is")))
}

/// A string of any bytes.
///
/// # Safety
/// As of [`text`].
pub(crate) unsafe fn c_string<'a>(pointer: *const c_char, what: &str) -> Result<&'a [u8], Failure> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Bytes to be read; none when there are 0.
///
/// # Safety
/// As of [`list`].
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { list(pointer, len) }
}

/// Bytes to be written; none when there are 0.
///
/// # Safety
/// As of [`list_mut`].
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { list_mut(pointer, len) }
}

/// Values to be read; none when there are 0.
///
/// # Safety
/// The pointer points to so many values, or there are 0.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, len: usize) -> Result<&'a [T], Failure> {
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null("data")),
        // SAFETY: not null, and the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, len) }),
    }
}

/// Values to be written; none when there are 0.
///
/// # Safety
/// The pointer points to so many values, which nobody else uses, or there are 0.
pub(crate) unsafe fn list_mut<'a, T>(pointer: *mut T, len: usize) -> Result<&'a mut [T], Failure> {
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(null("data")),
        // SAFETY: not null, and the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) }),
    }
}
