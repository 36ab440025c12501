//! `io_uring` by liburing, which makes its system calls past libc. The kernel's rings cannot reach weft files: a program
//! is refused the ring, as with the call by number, and falls back to other calls.

use crate::process;
use crate::report::{Refusal, refuse};
use libc::{c_int, c_uint, c_void};
use std::ptr;

/// liburing's functions return negated errnos.
fn refused() -> c_int {
    -refuse(Refusal::IoUring)
}

hooks! {
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        if process::is_on() { refused() } else { real::io_uring_queue_init(entries, ring, flags) }
    }

    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int {
        if process::is_on() { refused() } else { real::io_uring_queue_init_params(entries, ring, parameters) }
    }

    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, len: usize) -> c_int {
        if process::is_on() { refused() } else { real::io_uring_queue_init_mem(entries, ring, parameters, memory, len) }
    }

    fn io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int {
        if process::is_on() { refused() } else { real::io_uring_queue_init_try_nosqarr(entries, ring, parameters) }
    }

    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
        if process::is_on() { refused() } else { real::io_uring_setup(entries, parameters) }
    }

    /// Asks what a ring could do, by a ring of its own.
    fn io_uring_get_probe() -> *mut c_void {
        if process::is_on() {
            refuse(Refusal::IoUring);
            return ptr::null_mut();
        }
        real::io_uring_get_probe()
    }
}
