//! The last error of each thread.

use crate::code;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char};
use weft_device::nand::FlashError;
use weft_flash::LevelError;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static LAST_ERRNO: Cell<i32> = const { Cell::new(0) };
}

/// The text of the calling thread's last error; empty when there was none. Valid until the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn weft_error_message() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// The errno of the calling thread's last error when it is one of files: of the operation that failed, or of the call. 0 when the last
/// error was another one, and when there was none.
#[unsafe(no_mangle)]
pub extern "C" fn weft_error_errno() -> i32 {
    LAST_ERRNO.get()
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
    /// The server of a volume refused a call, or is not there.
    #[error("{what}: {}", std::io::Error::from_raw_os_error(*.errno))]
    Files {
        /// What was tried.
        what: String,
        /// Why it failed.
        errno: i32,
    },
    /// An operation of a chain failed.
    #[error("operation {number} ({name}) failed: {}", std::io::Error::from_raw_os_error(*.errno))]
    Operation {
        /// Its place, from 1.
        number: usize,
        /// What it is.
        name: &'static str,
        /// Why it failed.
        errno: i32,
    },
    /// An operation has no value to show.
    #[error("operation {number} has no such value: {why}")]
    NoValue {
        /// Its place, from 1.
        number: u32,
        /// Why.
        why: &'static str,
    },
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
    LAST_ERRNO.set(match error {
        Failure::Files { errno, .. } | Failure::Operation { errno, .. } => errno,
        _ => 0,
    });
    match error {
        Failure::Files { errno, .. } => code::of_errno(errno),
        Failure::Operation { .. } => code::WEFT_EFAILED,
        Failure::NoValue { .. } => code::WEFT_ENOENT,
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
