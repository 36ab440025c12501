//! The last error of each thread.

use crate::code;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use weft_flash::LevelError;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the calling thread's last error; empty when there was none. Valid until the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn weft_error_message() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

pub(crate) fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
}

/// 0, or the code of the error, whose text is remembered.
pub(crate) fn call(run: impl FnOnce() -> Result<(), LevelError>) -> i32 {
    match run() {
        Ok(()) => 0,
        Err(error) => {
            remember(&error.to_string());
            code::of(&error)
        }
    }
}

/// What fails in a function of tag stores.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TagsFailure {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] weft_tags::Error),
    /// What was passed cannot be.
    #[error(transparent)]
    Argument(#[from] LevelError),
    /// A session refused.
    #[error(transparent)]
    Session(#[from] weft_tags::SessionError),
    /// There is no pair, or none behind.
    #[error("there is no such key")]
    NoSuchKey,
}

/// As [`call`], for tag stores.
pub(crate) fn tags_call(run: impl FnOnce() -> Result<(), TagsFailure>) -> i32 {
    let Err(error) = run() else { return 0 };
    remember(&error.to_string());
    match error {
        TagsFailure::Store(error) => code::of_store(&error),
        TagsFailure::Argument(error) => code::of(&error),
        TagsFailure::Session(error) => code::of_session(&error),
        TagsFailure::NoSuchKey => code::WEFT_ENOENT,
    }
}

pub(crate) fn null(what: &str) -> LevelError {
    LevelError::BadRequest(format!("{what} is a null pointer; pass a valid one"))
}
