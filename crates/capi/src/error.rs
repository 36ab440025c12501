//! The last error of each thread, and that a thread is in one function at a time.
//!
//! A signal handler may come in the middle of a function, whose locks its own thread holds. A function that it calls then fails at
//! once instead of waiting for them, and without a look at what the other one is changing: it allocates nothing either.

use crate::code;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use weft_client::busy;
use weft_device::nand::FlashError;
use weft_flash::LevelError;

/// What the calling thread is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    Function,
    /// One that puts handlers off ([`busy`]) until it returns.
    PutsOff,
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static LAST_ERRNO: Cell<i32> = const { Cell::new(0) };
    /// The last error is that of a handler.
    static LAST_IS_NESTED: Cell<bool> = const { Cell::new(false) };
    static INSIDE: Cell<Inside> = const { Cell::new(Inside::Nothing) };
}

const NESTED: &CStr =
    c"a signal handler has interrupted a function of this library in this thread; call it when that has returned";

/// The text of the calling thread's last error; empty when there was none. Valid until the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn weft_error_message() -> *const c_char {
    if LAST_IS_NESTED.get() {
        return NESTED.as_ptr();
    }
    // A handler may ask while the text is changed.
    LAST.with(|last| last.try_borrow().map_or(c"".as_ptr(), |text| text.as_ptr()))
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
    if INSIDE.get() != Inside::Nothing {
        LAST_IS_NESTED.set(true);
        LAST_ERRNO.set(libc::EDEADLK);
        return code::of_errno(libc::EDEADLK);
    }
    INSIDE.set(Inside::Function);
    compiler_fence(SeqCst);
    let code = run().map_or_else(remember, |()| 0);
    compiler_fence(SeqCst);
    if INSIDE.replace(Inside::Nothing) == Inside::PutsOff {
        // Handlers run here. They may call functions, and may not come back.
        busy::end();
    }
    code
}

/// In a function: handlers that can be put off, as those of a program under 'weft run' can, wait until it returns.
pub(crate) fn put_handlers_off() {
    if INSIDE.get() == Inside::Function {
        busy::begin();
        INSIDE.set(Inside::PutsOff);
    }
}

/// The code of an error, which becomes the thread's last one.
fn remember(error: Failure) -> i32 {
    let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    LAST_IS_NESTED.set(false);
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
