//! The last error of each thread.

use crate::code;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use weft_device::nand::FlashError;
use weft_flash::LevelError;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the calling thread's last error; empty when there was none. Valid until the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn weft_error_message() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Why a function fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A level refused, or what was passed cannot be.
    #[error(transparent)]
    Level(#[from] LevelError),
    /// A tag store refused.
    #[error(transparent)]
    Store(#[from] weft_tags::Error),
    /// A session refused.
    #[error(transparent)]
    Session(#[from] weft_tags::SessionError),
    /// There is no pair, or none behind.
    #[error("there is no such key")]
    NoSuchKey,
}

impl From<FlashError> for Failure {
    fn from(error: FlashError) -> Failure {
        LevelError::from(error).into()
    }
}

/// 0, or the code of the error, whose text is remembered.
pub(crate) fn call(run: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let Err(error) = run() else { return 0 };
    let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    match error {
        Failure::Level(error) => code::of(&error),
        Failure::Store(error) => code::of_store(&error),
        Failure::Session(error) => code::of_session(&error),
        Failure::NoSuchKey => code::WEFT_ENOENT,
    }
}

/// Functions of the C interface, in the order in which the header has them. Each is exported under its name. It returns what
/// [`call`] makes of its body, which is unsafe, or, with `-> ()` or `-> i32`, what the body does.
macro_rules! exports {
    (@one [$($attribute:tt)*] $name:ident ($($arguments:tt)*) () $body:block) => {
        $($attribute)*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arguments)*) -> i32 {
            // SAFETY: the caller's promise, which the function's documentation names.
            $crate::error::call(|| unsafe { $body })
        }
    };
    (@one [$($attribute:tt)*] $name:ident ($($arguments:tt)*) ($returns:ty) $body:block) => {
        $($attribute)*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arguments)*) -> $returns {
            // SAFETY: the caller's promise, which the function's documentation names.
            unsafe { $body }
        }
    };
    ($($(#[$attribute:meta])* fn $name:ident ($($arguments:tt)*) $(-> $returns:ty)? $body:block)*) => {
        $($crate::error::exports! {
            @one [$(#[$attribute])*] $name ($($arguments)*) ($($returns)?) $body
        })*
    };
}
pub(crate) use exports;

pub(crate) fn null(what: &str) -> Failure {
    bad(format!("{what} is a null pointer; pass a valid one"))
}

/// What was passed cannot be.
pub(crate) fn bad(what: String) -> Failure {
    LevelError::BadRequest(what).into()
}
