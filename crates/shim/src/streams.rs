//! stdio streams on weft files.
//!
//! libc's own streams read and write by libc's inner functions, past the hooks. So a stream on a weft file is made with
//! `fopencookie`, whose callbacks come back here. Standard streams that lead to a weft file (inherited, or after `dup2`)
//! are replaced: the variables `stdin`, `stdout` and `stderr` get a stream that works on descriptor 0, 1 or 2, whatever
//! that leads to from then on.
//!
//! A table tells which stream works on which descriptor, for `fileno`. libc answers `fileno` of a cookie stream with an
//! error, so streams of its own never reach the table.

use crate::descriptors::{self, table};
use crate::file::pump::End;
use crate::report::{Refusal, refuse};
use crate::routing::finish;
use crate::sys;
use libc::{FILE, c_char, c_int, c_void, size_t, ssize_t};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering::*};
use weft_client::Errno;

/// Streams on weft files at once.
const STREAMS_MAX: usize = 4096;

#[repr(C)]
struct CookieFunctions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

/// The public head of glibc's `FILE` (`<bits/types/struct_FILE.h>`), which its inline functions fix for all versions.
#[repr(C)]
struct FileHead {
    flags: c_int,
    read_ptr: *mut c_char,
    read_end: *mut c_char,
    read_base: *mut c_char,
    write_base: *mut c_char,
    write_ptr: *mut c_char,
    write_end: *mut c_char,
    buffer: *mut c_char,
    others: [*mut c_void; 6],
    number: c_int,
    more_flags: c_int,
    old_offset: libc::c_long,
    column: u16,
    vtable_offset: i8,
    short_buffer: [c_char; 1],
    lock: *mut c_void,
    /// Where libc believes the file offset to be.
    offset: i64,
}

/// An offset that libc does not know.
const UNKNOWN: i64 = -1;
const _: () = assert!(std::mem::offset_of!(FileHead, offset) == 144);

const UNBUFFERED: c_int = 0x2;
const ERROR_SEEN: c_int = 0x20;
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const END_SEEN: c_int = 0x10;
const LINE_BUFFERED: c_int = 0x200;
const PUTTING: c_int = 0x800;
const APPENDING: c_int = 0x1000;

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
    fn __fpurge(stream: *mut FILE);
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// A stream on a weft file; its address is the stream's cookie.
struct Entry {
    /// Null: free. Being made: dangling.
    stream: AtomicPtr<FILE>,
    fd: AtomicI32,
    /// 1 for wide characters, -1 for bytes, 0 not yet known.
    orientation: AtomicI32,
}

impl Entry {
    fn end(&self) -> End {
        End::of(self.fd.load(Acquire))
    }
}

static ENTRIES: [Entry; STREAMS_MAX] = [const {
    Entry { stream: AtomicPtr::new(ptr::null_mut()), fd: AtomicI32::new(-1), orientation: AtomicI32::new(0) }
}; STREAMS_MAX];
/// Entries from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn claim() -> Result<&'static Entry, Errno> {
    let making = ptr::dangling_mut();
    for (number, entry) in ENTRIES.iter().enumerate() {
        if entry.stream.load(Relaxed).is_null()
            && entry.stream.compare_exchange(ptr::null_mut(), making, AcqRel, Relaxed).is_ok()
        {
            USED.fetch_max(number + 1, AcqRel);
            entry.orientation.store(0, Relaxed);
            return Ok(entry);
        }
    }
    Err(refuse(Refusal::StreamTable))
}

fn find(stream: *mut FILE) -> Option<&'static Entry> {
    if stream.is_null() {
        return None;
    }
    let used = USED.load(Acquire);
    ENTRIES.get(..used)?.iter().find(|entry| entry.stream.load(Acquire) == stream)
}

/// The descriptor of a stream of ours.
pub fn descriptor_of(stream: *mut FILE) -> Option<c_int> {
    find(stream).map(|entry| entry.fd.load(Acquire))
}

/// Decides what a stream of ours is for (more than 0: wide characters, less: bytes) if that is open, as `fwide` does; what it
/// is for.
pub fn orient(stream: *mut FILE, mode: c_int) -> c_int {
    let Some(entry) = find(stream) else { return 0 };
    match entry.orientation.compare_exchange(0, mode.signum(), AcqRel, Acquire) {
        Ok(_) => mode.signum(),
        Err(decided) => decided,
    }
}

/// Sets a stream's mark that an error has happened, which `ferror` tells.
pub fn mark_error(stream: *mut FILE) {
    // SAFETY: a live stream of glibc's begins with this head; the caller holds the stream.
    unsafe { (*stream.cast::<FileHead>()).flags |= ERROR_SEEN };
}

/// Whether a stream is ours.
pub fn is_ours(stream: *mut FILE) -> bool {
    find(stream).is_some()
}

/// Standard streams that the program has closed; their variables lead nowhere any more.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Takes a stream out of the table; to be called before libc frees it.
pub fn forget(stream: *mut FILE) {
    if let Some(closed) = number_of_standard(stream).and_then(|number| CLOSED.get(number as usize)) {
        closed.store(true, Release);
    }
    if let Some(entry) = find(stream) {
        // The cookie stays in use until libc has closed the stream; `close_cookie` frees the entry.
        entry.stream.store(ptr::dangling_mut(), Release);
    }
}

fn entry_of<'a>(cookie: *mut c_void) -> &'a Entry {
    // SAFETY: every cookie is the address of an element of ENTRIES.
    unsafe { &*cookie.cast::<Entry>() }
}

unsafe extern "C" fn read_cookie(cookie: *mut c_void, out: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc passes its own buffer.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast(), len) };
    finish(entry_of(cookie).end().read(out, None))
}

/// Returns how much was written; less than all is an error, as `fopencookie(3)` wants it.
unsafe extern "C" fn write_cookie(cookie: *mut c_void, bytes: *const c_char, len: size_t) -> ssize_t {
    let entry = entry_of(cookie);
    let stream = entry.stream.load(Acquire);
    if !stream.is_null() && stream != ptr::dangling_mut() {
        // libc counts the bytes on in its own streams, but not in these: a later `fseek` would go to where writing began.
        // SAFETY: a live stream of glibc's begins with this head; libc holds the stream's lock during the call.
        unsafe { (*stream.cast::<FileHead>()).offset = UNKNOWN };
    }
    // SAFETY: libc passes its own buffer.
    let mut rest: &[u8] = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
    while !rest.is_empty() {
        match entry.end().write(rest, None) {
            Ok(0) => break,
            Ok(n) => rest = rest.get(n..).unwrap_or(&[]),
            Err(error) => {
                sys::set_errno(error);
                break;
            }
        }
    }
    (len - rest.len()) as ssize_t
}

unsafe extern "C" fn seek_cookie(cookie: *mut c_void, offset: *mut i64, whence: c_int) -> c_int {
    // SAFETY: libc passes its own variable.
    let offset = unsafe { &mut *offset };
    finish(entry_of(cookie).end().seek(*offset, whence).map(|at| *offset = at as i64))
}

unsafe extern "C" fn close_cookie(cookie: *mut c_void) -> c_int {
    let entry = entry_of(cookie);
    let fd = entry.fd.swap(-1, AcqRel);
    entry.stream.store(ptr::null_mut(), Release);
    finish(descriptors::close_any(fd))
}

/// The `open` flags that a stream's mode means.
pub fn flags_of(mode: &[u8]) -> Result<c_int, Errno> {
    let mut flags = match mode.first() {
        Some(b'r') => libc::O_RDONLY,
        Some(b'w') => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        _ => return Err(libc::EINVAL),
    };
    for letter in mode.iter().skip(1).take_while(|&&letter| letter != b',') {
        match letter {
            b'+' => flags = flags & !libc::O_ACCMODE | libc::O_RDWR,
            b'x' => flags |= libc::O_EXCL,
            b'e' => flags |= libc::O_CLOEXEC,
            _ => {}
        }
    }
    Ok(flags)
}

/// The mode for `fopencookie`, which knows only these.
fn cookie_mode(flags: c_int) -> *const c_char {
    let mode = match (flags & libc::O_ACCMODE, flags & libc::O_APPEND != 0) {
        (libc::O_RDONLY, _) => c"r",
        (libc::O_WRONLY, false) => c"w",
        (libc::O_WRONLY, true) => c"a",
        (_, false) => c"r+",
        (_, true) => c"a+",
    };
    mode.as_ptr()
}

/// Makes a stream on a descriptor, which the stream's `fclose` closes. Fails without closing it.
pub fn open(fd: c_int, flags: c_int) -> Result<*mut FILE, Errno> {
    let entry = claim()?;
    entry.fd.store(fd, Release);
    let functions = CookieFunctions {
        read: Some(read_cookie),
        write: Some(write_cookie),
        seek: Some(seek_cookie),
        close: Some(close_cookie),
    };
    // SAFETY: the entry lives forever, the callbacks have the types that libc wants.
    let stream =
        unsafe { fopencookie(ptr::from_ref(entry).cast_mut().cast(), cookie_mode(flags), functions) };
    entry.stream.store(stream, Release);
    if stream.is_null() {
        return Err(libc::ENOMEM);
    }
    go_to_end(fd, flags);
    Ok(stream)
}

/// As libc: a stream that only appends begins at the end.
fn go_to_end(fd: c_int, flags: c_int) {
    if flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE == libc::O_WRONLY {
        // What has no end, as a pipe, is at it.
        let _ = End::of(fd).seek(0, libc::SEEK_END);
    }
}

/// Points a stream of ours at another descriptor; the one before is closed.
pub fn reopen(stream: *mut FILE, fd: c_int, flags: c_int) -> Result<(), Errno> {
    let entry = find(stream).ok_or(libc::EBADF)?;
    let old = entry.fd.load(Acquire);
    if (0..=2).contains(&old) {
        // A standard stream keeps its number.
        descriptors::duplicate_any(fd, old, flags & libc::O_CLOEXEC)?;
        let _ = descriptors::close_any(fd);
    } else {
        entry.fd.store(fd, Release);
        let _ = descriptors::close_any(old);
    }
    set_mode(stream, flags);
    go_to_end(entry.fd.load(Acquire), flags);
    Ok(())
}

/// Makes the stream readable and writable as `flags` say; its buffer, which has been flushed, is for neither yet.
pub fn set_mode(stream: *mut FILE, flags: c_int) {
    let mode = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => NO_WRITES,
        libc::O_WRONLY => NO_READS,
        _ => 0,
    };
    let append = if flags & libc::O_APPEND != 0 { APPENDING } else { 0 };
    // SAFETY: a live stream of glibc's begins with this head; the caller of `freopen` owns the stream.
    unsafe {
        let head = stream.cast::<FileHead>();
        let kept = !(NO_READS | NO_WRITES | APPENDING | PUTTING | END_SEEN);
        (*head).flags = (*head).flags & kept | mode | append;
        let start = (*head).buffer;
        ((*head).read_base, (*head).read_ptr, (*head).read_end) = (start, start, start);
        ((*head).write_base, (*head).write_ptr, (*head).write_end) = (start, start, start);
        (*head).offset = UNKNOWN;
    }
}

/// The variable of a standard stream.
fn standard(fd: c_int) -> Option<*mut *mut FILE> {
    match fd {
        0 => Some(&raw mut stdin),
        1 => Some(&raw mut stdout),
        2 => Some(&raw mut stderr),
        _ => None,
    }
}

/// The number of a standard stream that is still libc's.
pub fn number_of_standard(stream: *mut FILE) -> Option<c_int> {
    // SAFETY: the variables are pointers that libc has initialised.
    (0..=2).find(|&fd| standard(fd).is_some_and(|place| unsafe { *place } == stream))
}

/// The standard stream with this number, as the program sees it now.
pub fn standard_stream(fd: c_int) -> Option<*mut FILE> {
    // SAFETY: as above.
    standard(fd).map(|place| unsafe { *place })
}

/// Called when descriptor `fd` has come to lead to a weft file: the standard stream on it, if there is one, goes past
/// libc's inner functions from now on. What it has buffered moves along.
pub fn adopt_standard(fd: c_int) {
    let Some(place) = standard(fd) else { return };
    if CLOSED.get(fd as usize).is_none_or(|closed| closed.load(Acquire)) {
        return;
    }
    // SAFETY: the variables are libc's, and public to be assigned to. The old stream is not freed, so whoever still has
    // its address can go on using it; its head is read as described at `FileHead`.
    unsafe {
        let old = *place;
        if old.is_null() || is_ours(old) {
            return;
        }
        let Ok(new) = open(fd, if fd == 0 { libc::O_RDONLY } else { libc::O_WRONLY }) else { return };
        let head = old.cast::<FileHead>();
        let flags = (*head).flags;
        if fd == 2 || flags & UNBUFFERED != 0 {
            libc::setvbuf(new, ptr::null_mut(), libc::_IONBF, 0);
        } else if flags & LINE_BUFFERED != 0 {
            libc::setvbuf(new, ptr::null_mut(), libc::_IOLBF, 0);
        }
        let pending = ((*head).write_ptr as usize).saturating_sub((*head).write_base as usize);
        if fd != 0 && pending > 0 {
            libc::fwrite((*head).write_base.cast(), 1, pending, new);
            __fpurge(old);
        }
        *place = new;
    }
}

/// At start: the standard streams that were inherited on weft files.
pub fn adopt_inherited() {
    for fd in 0..=2 {
        if table::is_weft(fd) {
            adopt_standard(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_mode_means_these_flags() {
        assert_eq!(flags_of(b"r"), Ok(libc::O_RDONLY));
        assert_eq!(flags_of(b"rb+"), Ok(libc::O_RDWR));
        assert_eq!(flags_of(b"w+x"), Ok(libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL));
        assert_eq!(flags_of(b"ae"), Ok(libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC));
        assert_eq!(flags_of(b"r,ccs=x+"), Ok(libc::O_RDONLY));
        assert_eq!(flags_of(b""), Err(libc::EINVAL));
    }
}
