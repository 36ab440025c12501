//! Formatted output to descriptors. libc formats and writes by inner functions; here the text is made by libc and written by
//! the hooks.

use crate::descriptors::table;
use crate::file::pump::End;
use crate::routing::finish;
use crate::sys;
use libc::{c_char, c_int, c_void};
use weft_client::Errno;

unsafe extern "C" {
    fn vasprintf(out: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vasprintf_chk(
        out: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        arguments: *mut c_void,
    ) -> c_int;
    fn backtrace_symbols(addresses: *const *mut c_void, count: c_int) -> *mut *mut c_char;
}

fn write_all(fd: c_int, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match End::of(fd).write(bytes, None)? {
            0 => return Err(libc::EIO),
            n => bytes = bytes.get(n..).unwrap_or(&[]),
        }
    }
    Ok(())
}

unsafe fn print(fd: c_int, format: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = std::ptr::null_mut();
    let len = format(&raw mut text);
    if len < 0 {
        return -1;
    }
    // SAFETY: `vasprintf` gave `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len as usize) };
    let result = write_all(fd, bytes);
    // SAFETY: from `vasprintf`.
    unsafe { libc::free(text.cast()) };
    finish(result.map(|()| len))
}

hooks! {
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if !table::is_weft(fd) {
            return real::vdprintf(fd, format, arguments);
        }
        print(fd, |out| vasprintf(out, format, arguments))
    }

    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if !table::is_weft(fd) {
            return real::__vdprintf_chk(fd, flag, format, arguments);
        }
        print(fd, |out| __vasprintf_chk(out, flag, format, arguments))
    }

    fn backtrace_symbols_fd(addresses: *const *mut c_void, count: c_int, fd: c_int) -> () {
        if !table::is_weft(fd) {
            return real::backtrace_symbols_fd(addresses, count, fd);
        }
        let names = backtrace_symbols(addresses, count);
        if names.is_null() {
            return;
        }
        for number in 0..count.max(0) as usize {
            let name = sys::bytes(*names.add(number));
            if write_all(fd, name).and_then(|()| write_all(fd, b"\n")).is_err() {
                break;
            }
        }
        libc::free(names.cast());
    }
}

#[cfg(target_arch = "x86_64")]
/// The variadic functions themselves.
pub mod variadic {
    use super::*;

    unsafe extern "C" fn print(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        // SAFETY: the caller's own arguments.
        unsafe { body::vdprintf(fd, format, arguments) }
    }

    unsafe extern "C" fn print_checked(
        fd: c_int,
        flag: c_int,
        format: *const c_char,
        arguments: *mut c_void,
    ) -> c_int {
        // SAFETY: as above.
        unsafe { body::__vdprintf_chk(fd, flag, format, arguments) }
    }

    crate::variadic::entries! {
        dprintf: 2 => print;
        __dprintf_chk: 3 => print_checked;
    }
}
