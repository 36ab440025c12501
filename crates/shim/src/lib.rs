//! LD_PRELOAD front: libc calls of an unmodified program to a weft volume.
//!
//! ```text
//!  program --- open, read, ... ---> hooks/ --- not weft's ---> real (libc, found behind this library)
//!                                     |
//!                  routing/ (paths), descriptors/ (the table)
//!                                     |
//!                                     +------- weft's -------> weft_client (leases, server)
//! ```
//!
//! A path is weft's when it lies below the mount prefix, a descriptor when the table says so; everything else goes to libc
//! after one atomic load or a look at the path's bytes. What weft does not support on its files fails with a clear errno
//! and one line in the report. See `docs/shim.md` for what is supported.
//!
//! Rules inside: no allocation (but what a libc function allocates for the program, such as a stream, and the commit of a batch), no thread-local
//! with a destructor, no panic (one that happens ends the process with one line), own work by raw system calls only.
//!
//! Ideas: placeholder descriptors and a bypass for exec from DAOS's interception library, streams by `fopencookie` from
//! the practice of several preload file systems, the C probes of the tests from the same.

// First: the hooks are exported by its macro.
#[macro_use]
pub mod surface;

pub mod advice;
pub mod descriptors;
pub mod file;
pub mod hooks;
pub mod interception;
pub mod ipc;
pub mod libraries;
pub mod lock;
pub mod mapping;
pub mod owned;
pub mod process;
pub mod real;
pub mod report;
pub mod routing;
pub mod streams;
pub mod sys;
pub mod text;
pub mod variadic;

use weft_client::busy::Front;

/// The names of all hooks, each ended by NUL, the list by an empty one: for tests that ask whether the loader binds them.
///
/// Writes what fits into `out` and returns the length of the whole list.
///
/// # Safety
/// `out` has room for `room` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn weft_shim_names(out: *mut u8, room: usize) -> usize {
    let mut len = 0;
    for byte in surface::hooked().flat_map(|name| name.bytes().chain([0])).chain([0]) {
        if len < room {
            // SAFETY: within `room`.
            unsafe { out.add(len).write(byte) };
        }
        len += 1;
    }
    len
}

/// For libraries of the program that work on the volume too: handlers wait for them as for this one.
#[allow(non_upper_case_globals)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub static weft_shim_busy: Front = Front::THIS;

#[cfg(not(test))]
mod start {
    use libc::{c_char, c_int};

    /// Runs when the library is loaded, before other constructors and the program.
    extern "C" fn start(_argc: c_int, _argv: *const *const c_char, environment: *mut *const c_char) {
        crate::real::look_up_all(crate::hooks::SYMBOLS.iter().copied().flatten().copied());
        crate::report::install_panic_hook();
        weft_client::busy::stand_in_front();
        // SAFETY: the loader passes the environment, and no other thread runs yet.
        unsafe { crate::process::start(environment) };
        if crate::process::is_on() {
            crate::process::file_limit::look();
        }
    }

    /// Runs when the program ends by `exit`, after its own destructors.
    extern "C" fn end() {
        crate::mapping::pages::release_all();
    }

    #[used]
    // SAFETY: as below.
    #[unsafe(link_section = ".fini_array")]
    static END: extern "C" fn() = end;

    #[used]
    // SAFETY: a function of the type that the loader calls from this section.
    #[unsafe(link_section = ".init_array")]
    static START: extern "C" fn(c_int, *const *const c_char, *mut *const c_char) = start;
}
