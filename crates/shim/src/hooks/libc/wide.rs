//! Wide characters on streams of weft files.
//!
//! A stream that `fopencookie` made is for bytes alone: libc never gives it the tables that turn wide characters into bytes
//! and back. So the hooks do that, by the locale's own conversion, on top of the stream's bytes. Streams that are not of a
//! weft file are libc's.

use crate::owned::Fd;
use crate::routing::fail;
use crate::{process, streams, sys};
use libc::{FILE, c_char, c_int, c_void, size_t, wchar_t};
use std::ptr;
use weft_client::scratch::Scratch;

/// `wint_t`, and its end of file.
type Wint = u32;
const WEOF: Wint = u32::MAX;
/// Bytes of a character at most, in any of glibc's locales.
const CHARACTER_BYTES: usize = 16;
/// `mbstate_t`: a count and a character.
type State = [u32; 2];
const INITIAL: State = [0; 2];
/// Bytes of a stream that are scanned at first; twice as many whenever they do not do.
const SCAN_BYTES: usize = 64 * 1024;
/// `va_list` of x86-64 and AArch64: a structure of at most this many bytes, passed by its address.
type Arguments = [u64; 4];

unsafe extern "C" {
    fn mbrtowc(out: *mut wchar_t, bytes: *const c_char, len: size_t, state: *mut State) -> size_t;
    fn wcrtomb(out: *mut c_char, character: wchar_t, state: *mut State) -> size_t;
    fn open_wmemstream(out: *mut *mut wchar_t, len: *mut size_t) -> *mut FILE;
    fn getc_unlocked(stream: *mut FILE) -> c_int;
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
}

/// Whether a stream is of a weft file.
#[inline]
fn is_ours(stream: *mut FILE) -> bool {
    process::is_on() && streams::is_ours(stream)
}

/// Holds a stream against the program's other threads.
struct Held(*mut FILE);

impl Held {
    /// `None` for a stream that is one for bytes.
    fn new(stream: *mut FILE) -> Option<Held> {
        if streams::orient(stream, 1) < 0 {
            return None;
        }
        // SAFETY: a stream of the program's, which stays open during the call.
        unsafe { flockfile(stream) };
        Some(Held(stream))
    }

    /// The next character; `WEOF` at the end and, with errno and the stream's mark, after an error.
    unsafe fn get(&self) -> Wint {
        let mut state = INITIAL;
        let mut character: wchar_t = 0;
        loop {
            // SAFETY: the stream is held; the conversion reads one byte.
            let converted = unsafe {
                let byte = getc_unlocked(self.0);
                if byte < 0 {
                    return WEOF;
                }
                let byte = byte as c_char;
                mbrtowc(&raw mut character, &raw const byte, 1, &raw mut state)
            };
            match converted as isize {
                -1 => {
                    streams::mark_error(self.0);
                    return WEOF;
                }
                -2 => {}
                _ => return character as Wint,
            }
        }
    }

    unsafe fn put(&self, character: wchar_t) -> bool {
        let mut bytes = [0u8; CHARACTER_BYTES];
        let mut state = INITIAL;
        // SAFETY: room for any character.
        let len = unsafe { wcrtomb(bytes.as_mut_ptr().cast(), character, &raw mut state) };
        if len > CHARACTER_BYTES {
            streams::mark_error(self.0);
            return false;
        }
        // SAFETY: `len` bytes.
        unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, len, self.0) == len }
    }

    unsafe fn unget(&self, character: Wint) -> bool {
        let mut bytes = [0u8; CHARACTER_BYTES];
        let mut state = INITIAL;
        // SAFETY: as above.
        let len = unsafe { wcrtomb(bytes.as_mut_ptr().cast(), character as wchar_t, &raw mut state) };
        // The last byte first, so that they come in order.
        let bytes = bytes.get(..len).unwrap_or(&[]);
        // SAFETY: the stream is held.
        !bytes.is_empty()
            && bytes.iter().rev().all(|byte| unsafe { libc::ungetc(c_int::from(*byte), self.0) } >= 0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: held since `new`.
        unsafe { funlockfile(self.0) };
    }
}

unsafe fn get(stream: *mut FILE) -> Wint {
    // SAFETY: the program's own stream.
    Held::new(stream).map_or(WEOF, |held| unsafe { held.get() })
}

unsafe fn read_line(out: *mut wchar_t, room: c_int, stream: *mut FILE) -> *mut wchar_t {
    if room <= 0 {
        return ptr::null_mut();
    }
    let Some(held) = Held::new(stream) else { return ptr::null_mut() };
    let mut count = 0;
    // SAFETY: the program's buffer has `room` places.
    unsafe {
        while count + 1 < room as usize {
            let character = held.get();
            if character == WEOF {
                if count == 0 || libc::ferror(stream) != 0 {
                    return ptr::null_mut();
                }
                break;
            }
            *out.add(count) = character as wchar_t;
            count += 1;
            if character == u32::from(b'\n') {
                break;
            }
        }
        *out.add(count) = 0;
    }
    out
}

/// Formats to a stream; to one of ours by way of memory, into which libc formats.
unsafe fn print(stream: *mut FILE, format: impl FnOnce(*mut FILE) -> c_int) -> c_int {
    if !is_ours(stream) {
        return format(stream);
    }
    let (mut text, mut len) = (ptr::null_mut(), 0);
    // SAFETY: libc fills both when the memory stream is closed.
    unsafe {
        let memory = open_wmemstream(&raw mut text, &raw mut len);
        if memory.is_null() {
            return -1;
        }
        let printed = format(memory);
        let error = sys::errno();
        libc::fclose(memory);
        let put = |held: Held| (0..len).all(|at| held.put(*text.add(at)));
        let written = printed >= 0 && Held::new(stream).is_some_and(put);
        libc::free(text.cast());
        if printed < 0 {
            sys::set_errno(error);
        }
        if written { printed } else { -1 }
    }
}

/// Scans a stream; of one of ours, a copy of what comes next, and moves the stream behind what was taken.
unsafe fn scan(
    stream: *mut FILE,
    arguments: *mut c_void,
    act: impl Fn(*mut FILE, *mut c_void) -> c_int,
) -> c_int {
    if !is_ours(stream) {
        return act(stream, arguments);
    }
    let Some(held) = Held::new(stream) else { return -1 };
    // SAFETY: streams and memory of this function; the arguments are copied for each attempt.
    unsafe {
        let start = libc::ftello(stream);
        if start < 0 {
            return -1;
        }
        let given = arguments.cast::<Arguments>().read_unaligned();
        let mut wanted = SCAN_BYTES;
        loop {
            if libc::fseeko(stream, start, libc::SEEK_SET) != 0 {
                return -1;
            }
            let Ok(copied) = MemoryStream::new(stream, wanted) else { return fail(libc::ENOMEM) };
            let mut list = given;
            let result = act(copied.stream, (&raw mut list).cast());
            let (ended, error) = (libc::feof(copied.stream) != 0, sys::errno());
            if ended && copied.bytes == wanted {
                // What follows might have belonged to it.
                wanted *= 2;
                continue;
            }
            let taken = libc::ftello(copied.stream);
            libc::fseeko(stream, start + taken.max(0), libc::SEEK_SET);
            if ended {
                // Nothing is left: the stream notes its end as it would have.
                getc_unlocked(stream);
            }
            drop(held);
            sys::set_errno(error);
            return result;
        }
    }
}

/// A stream of libc on a memory file, which holds the next bytes of another stream.
struct MemoryStream {
    stream: *mut FILE,
    bytes: usize,
}

impl MemoryStream {
    unsafe fn new(from: *mut FILE, wanted: usize) -> Result<MemoryStream, weft_client::Errno> {
        let fd = Fd(sys::memfd_create(c"weft-scan", libc::MFD_CLOEXEC)?);
        let mut chunk = Scratch::<[u8; 4096]>::any()?;
        let mut bytes = 0;
        // SAFETY: own descriptor and buffer.
        unsafe {
            while bytes < wanted {
                let room = chunk.len().min(wanted - bytes);
                let got = libc::fread(chunk.as_mut_ptr().cast(), 1, room, from);
                let filled = chunk.get(..got).unwrap_or(&[]);
                if got == 0 || sys::pwrite_all(*fd, filled, bytes as u64).is_err() {
                    break;
                }
                bytes += got;
            }
            let stream = crate::hooks::stdio::real::fdopen(*fd, c"r".as_ptr());
            if stream.is_null() {
                return Err(libc::ENOMEM);
            }
            fd.keep();
            Ok(MemoryStream { stream, bytes })
        }
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        // SAFETY: opened by `new`.
        unsafe { crate::hooks::stdio::real::fclose(self.stream) };
    }
}

hooks! {
    fn fwide(stream: *mut FILE, mode: c_int) -> c_int {
        if is_ours(stream) { streams::orient(stream, mode) } else { real::fwide(stream, mode) }
    }

    fn fgetwc(stream: *mut FILE) -> Wint {
        if is_ours(stream) { get(stream) } else { real::fgetwc(stream) }
    }

    fn getwchar() -> Wint {
        if is_ours(stdin) { get(stdin) } else { real::getwchar() }
    }

    fn fgetwc_unlocked(stream: *mut FILE) -> Wint {
        if is_ours(stream) { get(stream) } else { real::fgetwc_unlocked(stream) }
    }

    fn getwchar_unlocked() -> Wint {
        if is_ours(stdin) { get(stdin) } else { real::getwchar_unlocked() }
    }

    fn ungetwc(character: Wint, stream: *mut FILE) -> Wint {
        if !is_ours(stream) {
            return real::ungetwc(character, stream);
        }
        if character != WEOF && Held::new(stream).is_some_and(|held| held.unget(character)) { character } else { WEOF }
    }

    fn fputwc(character: wchar_t, stream: *mut FILE) -> Wint {
        if !is_ours(stream) {
            return real::fputwc(character, stream);
        }
        if Held::new(stream).is_some_and(|held| held.put(character)) { character as Wint } else { WEOF }
    }

    fn fputwc_unlocked(character: wchar_t, stream: *mut FILE) -> Wint {
        if is_ours(stream) { body::fputwc(character, stream) } else { real::fputwc_unlocked(character, stream) }
    }

    fn putwchar(character: wchar_t) -> Wint {
        if is_ours(stdout) { body::fputwc(character, stdout) } else { real::putwchar(character) }
    }

    fn putwchar_unlocked(character: wchar_t) -> Wint {
        if is_ours(stdout) { body::fputwc(character, stdout) } else { real::putwchar_unlocked(character) }
    }

    fn fgetws(out: *mut wchar_t, room: c_int, stream: *mut FILE) -> *mut wchar_t {
        if is_ours(stream) { read_line(out, room, stream) } else { real::fgetws(out, room, stream) }
    }

    fn fgetws_unlocked(out: *mut wchar_t, room: c_int, stream: *mut FILE) -> *mut wchar_t {
        if is_ours(stream) { read_line(out, room, stream) } else { real::fgetws_unlocked(out, room, stream) }
    }

    fn __fgetws_chk(out: *mut wchar_t, size: size_t, room: c_int, stream: *mut FILE) -> *mut wchar_t {
        // libc ends the program when the buffer is too small.
        if is_ours(stream) && room >= 0 && room as usize <= size {
            read_line(out, room, stream)
        } else {
            real::__fgetws_chk(out, size, room, stream)
        }
    }

    fn __fgetws_unlocked_chk(out: *mut wchar_t, size: size_t, room: c_int, stream: *mut FILE) -> *mut wchar_t {
        if is_ours(stream) && room >= 0 && room as usize <= size {
            read_line(out, room, stream)
        } else {
            real::__fgetws_unlocked_chk(out, size, room, stream)
        }
    }

    fn fputws(text: *const wchar_t, stream: *mut FILE) -> c_int {
        if !is_ours(stream) {
            return real::fputws(text, stream);
        }
        let Some(held) = Held::new(stream) else { return -1 };
        let mut at = text;
        while *at != 0 {
            if !held.put(*at) {
                return -1;
            }
            at = at.add(1);
        }
        1
    }

    fn fputws_unlocked(text: *const wchar_t, stream: *mut FILE) -> c_int {
        if is_ours(stream) { body::fputws(text, stream) } else { real::fputws_unlocked(text, stream) }
    }

    fn vfwprintf(stream: *mut FILE, format: *const wchar_t, arguments: *mut c_void) -> c_int {
        print(stream, |stream| real::vfwprintf(stream, format, arguments))
    }

    fn __vfwprintf_chk(stream: *mut FILE, flag: c_int, format: *const wchar_t, arguments: *mut c_void) -> c_int {
        print(stream, |stream| real::__vfwprintf_chk(stream, flag, format, arguments))
    }

    fn vwprintf(format: *const wchar_t, arguments: *mut c_void) -> c_int {
        body::vfwprintf(stdout, format, arguments)
    }

    fn __vwprintf_chk(flag: c_int, format: *const wchar_t, arguments: *mut c_void) -> c_int {
        body::__vfwprintf_chk(stdout, flag, format, arguments)
    }

    fn vfwscanf(stream: *mut FILE, format: *const wchar_t, arguments: *mut c_void) -> c_int {
        scan(stream, arguments, |stream, arguments| real::vfwscanf(stream, format, arguments))
    }

    fn __isoc99_vfwscanf(stream: *mut FILE, format: *const wchar_t, arguments: *mut c_void) -> c_int {
        scan(stream, arguments, |stream, arguments| real::__isoc99_vfwscanf(stream, format, arguments))
    }

    fn vwscanf(format: *const wchar_t, arguments: *mut c_void) -> c_int {
        body::vfwscanf(stdin, format, arguments)
    }

    fn __isoc99_vwscanf(format: *const wchar_t, arguments: *mut c_void) -> c_int {
        body::__isoc99_vfwscanf(stdin, format, arguments)
    }
}

/// The variadic functions themselves.
#[cfg(target_arch = "x86_64")]
pub mod variadic {
    use super::*;

    macro_rules! inner {
        ($($name:ident => $body:ident($($arg:ident: $ty:ty),*);)*) => {
            $(unsafe extern "C" fn $name($($arg: $ty,)* list: *mut c_void) -> c_int {
                // SAFETY: the caller's own arguments.
                unsafe { body::$body($($arg,)* list) }
            })*
        };
    }
    inner! {
        print => vfwprintf(stream: *mut FILE, format: *const wchar_t);
        print_checked => __vfwprintf_chk(stream: *mut FILE, flag: c_int, format: *const wchar_t);
        print_out => vwprintf(format: *const wchar_t);
        print_out_checked => __vwprintf_chk(flag: c_int, format: *const wchar_t);
        scan => vfwscanf(stream: *mut FILE, format: *const wchar_t);
        scan_c99 => __isoc99_vfwscanf(stream: *mut FILE, format: *const wchar_t);
        scan_in => vwscanf(format: *const wchar_t);
        scan_in_c99 => __isoc99_vwscanf(format: *const wchar_t);
    }

    crate::variadic::entries! {
        fwprintf: 2 => print;
        __fwprintf_chk: 3 => print_checked;
        wprintf: 1 => print_out;
        __wprintf_chk: 2 => print_out_checked;
        fwscanf: 2 => scan;
        __isoc99_fwscanf: 2 => scan_c99;
        wscanf: 1 => scan_in;
        __isoc99_wscanf: 1 => scan_in_c99;
    }
}
