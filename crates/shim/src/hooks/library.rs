//! `dlopen` of libraries that lie on the volume: the loader reads by inner functions, so it gets a copy in memory.
//!
//! The loader looks at who called it (for the caller's search path), so a call that is not weft's is passed on by a jump that
//! leaves the program's return address where it is.

/// The hook itself.
#[cfg(target_arch = "x86_64")]
pub mod entry {
    use crate::process::{self, program};
    use crate::real::Symbol;
    use crate::report::{Refusal, refuse};
    use crate::routing::on_target;
    use crate::sys;
    use crate::text::path_of_descriptor;
    use libc::{c_char, c_int, c_void};

    /// libc's own.
    pub static REAL: Symbol = Symbol::new(c"dlopen");

    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

    /// What the library would find before the hooks, by `RTLD_DEEPBIND`: its own dependencies, libc among them.
    unsafe extern "C" fn choose(path: *const c_char, flags: &mut usize) -> *const c_void {
        if process::is_on() {
            *flags &= !(libc::RTLD_DEEPBIND as usize);
        }
        // The loader searches a bare name in the system's directories.
        // SAFETY: the program promises a C string, when it is not null.
        let has_directory =
            process::is_on() && !path.is_null() && unsafe { sys::bytes(path) }.contains(&b'/');
        if has_directory && crate::routing::needs_routing(libc::AT_FDCWD, path) {
            open_copy as *const c_void
        } else {
            REAL.address()
        }
    }

    unsafe extern "C" fn open_copy(path: *const c_char, flags: c_int) -> *mut c_void {
        // SAFETY: `dlopen`'s own type.
        let real = unsafe { std::mem::transmute::<*mut c_void, Open>(REAL.address()) };
        // SAFETY: C strings.
        let elsewhere = |path| unsafe { real(path, flags) };
        on_target(path, elsewhere, |place| {
            let client = place.client;
            let open = place.open(libc::O_RDONLY)?;
            let size = client.fstat(open.file)?.size;
            let copy = program::copy(client, open.file, size, c"weft-library");
            let _ = client.give_back(open.file);
            let fd = copy.map_err(|_| refuse(Refusal::Library))?;
            let path = path_of_descriptor(*fd);
            // It runs code of the library.
            // SAFETY: a C string.
            Ok(weft_client::busy::apart(|| unsafe { real(path.c_str().as_ptr(), flags) }))
        })
    }

    /// # Safety
    /// As `dlopen(3)`.
    #[cfg_attr(not(test), unsafe(no_mangle))]
    #[unsafe(naked)]
    pub unsafe extern "C" fn dlopen(_path: *const c_char, _flags: c_int) -> *mut c_void {
        // Two pushes and 8 bytes more: the callee's stack is aligned. It may change the flags where they are kept.
        std::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "mov rsi, rsp",
            "sub rsp, 8",
            "call {choose}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            choose = sym choose,
        )
    }
}
#[cfg(target_arch = "x86_64")]
pub use entry::REAL;
