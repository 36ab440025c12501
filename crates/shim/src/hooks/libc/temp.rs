//! Temporary files and directories: libc makes them by its inner functions, so their names are found here.

use crate::routing::{fail, needs_routing};
use crate::sys;
use libc::{c_char, c_int};

/// Letters of a temporary name.
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
/// The `XXXXXX` of a template.
const MARK: &[u8] = b"XXXXXX";
/// Names tried before giving up.
const TRIES: u32 = 1000;

fn is_on(template: *const c_char) -> bool {
    needs_routing(libc::AT_FDCWD, template)
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

/// Puts together `directory/prefixXXXXXX` in memory that the program frees.
unsafe fn compose_name(directory: &[u8], prefix: &[u8]) -> *mut c_char {
    // As libc: at most five letters.
    let prefix = prefix.get(..5).unwrap_or(prefix);
    let parts = [directory, b"/", prefix, MARK, b"\0"];
    // SAFETY: room for all parts; what malloc gives is the program's to free.
    unsafe {
        let name: *mut u8 = libc::malloc(parts.iter().map(|part| part.len()).sum()).cast();
        if name.is_null() {
            return fail(libc::ENOMEM);
        }
        let mut place = name;
        for part in parts {
            std::ptr::copy_nonoverlapping(part.as_ptr(), place, part.len());
            place = place.add(part.len());
        }
        name.cast()
    }
}

/// Makes a template a name that nothing has.
unsafe fn make_name(template: *mut c_char) -> c_int {
    // SAFETY: the caller's template.
    unsafe {
        with_name(template, 0, |name| {
            let mut attr = std::mem::zeroed();
            match crate::hooks::attributes::body::lstat(name, &raw mut attr) {
                0 => fail(libc::EEXIST),
                _ if sys::errno() == libc::ENOENT => 0,
                _ => -1,
            }
        })
    }
}

unsafe fn is_directory(path: *const c_char) -> bool {
    // SAFETY: a C string.
    unsafe {
        let mut attr: libc::stat = std::mem::zeroed();
        !path.is_null()
            && crate::hooks::attributes::body::stat(path, &raw mut attr) == 0
            && attr.st_mode & libc::S_IFMT == libc::S_IFDIR
    }
}

hooks! {
    /// In `TMPDIR`, else in `directory`, else where libc wants it; the first two may be of the volume.
    fn tempnam(directory: *const c_char, prefix: *const c_char) -> *mut c_char {
        let candidates = [libc::getenv(c"TMPDIR".as_ptr()).cast_const(), directory];
        let chosen = candidates.into_iter().find(|path| is_directory(*path));
        let Some(chosen) = chosen.filter(|path| is_on(*path)) else { return real::tempnam(directory, prefix) };
        let prefix: &[u8] = if prefix.is_null() { b"file" } else { sys::bytes(prefix) };
        let name = compose_name(sys::bytes(chosen), prefix);
        if !name.is_null() && make_name(name) < 0 {
            libc::free(name.cast());
            return std::ptr::null_mut();
        }
        name
    }

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
        if make_name(template) != 0 {
            *template = 0;
        }
        template
    }
}
