//! Temporary files and directories: libc makes them by its inner functions, so their names are found here.

use crate::route::{fail, is_on_volume};
use crate::sys;
use libc::{c_char, c_int};
use weft_client::Errno;

/// Letters of a temporary name.
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
/// The `XXXXXX` of a template.
const MARK: &[u8] = b"XXXXXX";
/// Names tried before giving up.
const TRIES: u32 = 1000;

fn is_on(template: *const c_char) -> bool {
    is_on_volume(libc::AT_FDCWD, template)
}

/// Tries names until `make` does not find its name taken.
unsafe fn with_name(
    template: *mut c_char,
    suffix: c_int,
    mut make: impl FnMut(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: the program promises a writable C string.
    let len = unsafe { sys::bytes(template) }.len();
    let suffix = suffix.max(0) as usize;
    let Some(start) = len.checked_sub(suffix + MARK.len()) else { return fail(libc::EINVAL) };
    // SAFETY: within the string; nobody else refers to it during the call.
    let mark = unsafe { std::slice::from_raw_parts_mut(template.add(start).cast::<u8>(), MARK.len()) };
    if mark != MARK {
        return fail(libc::EINVAL);
    }
    for _ in 0..TRIES {
        sys::random(mark);
        for letter in mark.iter_mut() {
            *letter = LETTERS[usize::from(*letter) % LETTERS.len()];
        }
        let result = make(template);
        if result >= 0 || sys::errno() != libc::EEXIST {
            return result;
        }
    }
    fail(libc::EEXIST)
}

unsafe fn make_file(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    // SAFETY: the program's own template.
    unsafe { with_name(template, suffix, |name| crate::hooks::open::body::open(name, flags, 0o600)) }
}

hooks! {
    fn mkstemp(template: *mut c_char) -> c_int {
        if is_on(template) { make_file(template, 0, 0) } else { real::mkstemp(template) }
    }

    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
        if is_on(template) { make_file(template, 0, flags) } else { real::mkostemp(template, flags) }
    }

    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
        if is_on(template) { make_file(template, suffix, 0) } else { real::mkstemps(template, suffix) }
    }

    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        if is_on(template) { make_file(template, suffix, flags) } else { real::mkostemps(template, suffix, flags) }
    }

    fn mkdtemp(template: *mut c_char) -> *mut c_char {
        if !is_on(template) {
            return real::mkdtemp(template);
        }
        let made = with_name(template, 0, |name| crate::hooks::names::body::mkdir(name, 0o700));
        if made == 0 { template } else { std::ptr::null_mut() }
    }

    /// Returns the template, empty when there is no free name.
    fn mktemp(template: *mut c_char) -> *mut c_char {
        if !is_on(template) {
            return real::mktemp(template);
        }
        let found = with_name(template, 0, |name| {
            let mut stat: libc::stat = std::mem::zeroed();
            if crate::hooks::meta::body::lstat(name, &raw mut stat) == 0 {
                return fail(libc::EEXIST);
            }
            if sys::errno() == libc::ENOENT { 0 } else { -1 }
        });
        if found != 0 {
            *template = 0;
        }
        template
    }
}

/// The result of a libc function as a result.
pub fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(sys::errno()) } else { Ok(result) }
}
