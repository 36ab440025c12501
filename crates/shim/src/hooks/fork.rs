//! New processes: a child gets a connection of its own, which begins with its parent's open files.

use crate::{fork, process};
use libc::{c_int, pid_t};

/// Forks by a system call of the program's.
pub fn child_by(make: impl FnOnce() -> libc::c_long) -> libc::c_long {
    if process::is_on() { fork::fork(|| make() as pid_t).into() } else { make() }
}

hooks! {
    fn fork() -> pid_t {
        if process::is_on() { fork::fork(|| real::fork()) } else { real::fork() }
    }

    fn _Fork() -> pid_t {
        if process::is_on() { fork::fork(|| real::_Fork()) } else { real::_Fork() }
    }

    /// libc forks by an inner function; the steps are those of its manual.
    fn daemon(keep_directory: c_int, keep_streams: c_int) -> c_int {
        if !process::is_on() {
            return real::daemon(keep_directory, keep_streams);
        }
        match body::fork() {
            -1 => return -1,
            0 => {}
            _ => crate::hooks::exit::body::_exit(0),
        }
        if libc::setsid() == -1 {
            return -1;
        }
        if keep_directory == 0 {
            crate::hooks::cwd::body::chdir(c"/".as_ptr());
        }
        if keep_streams == 0 {
            let null = crate::hooks::open::body::open(c"/dev/null".as_ptr(), libc::O_RDWR, 0);
            if null < 0 {
                return -1;
            }
            for fd in 0..=2 {
                crate::hooks::open::body::dup2(null, fd);
            }
            if null > 2 {
                crate::hooks::open::body::close(null);
            }
        }
        0
    }
}

/// `vfork`. A child of the real one runs in its parent's memory and must not return from the function that called it,
/// so it can neither be wrapped nor given a connection: while weft is on, it is `fork`. While it is off, the real one is
/// jumped to, so that its return address is the program's.
#[cfg(target_arch = "x86_64")]
pub mod vfork {
    use crate::process;
    use crate::real::Symbol;
    use libc::{c_void, pid_t};

    /// libc's own.
    pub static REAL: Symbol = Symbol::new(c"vfork");

    extern "C" fn choose() -> *const c_void {
        if process::is_on() { fork_instead as *const c_void } else { REAL.address() }
    }

    extern "C" fn fork_instead() -> pid_t {
        // SAFETY: `fork` asks nothing of its caller.
        unsafe { super::body::fork() }
    }

    macro_rules! entries {
        ($($name:ident),*) => {
            $(
                /// # Safety
                /// As `vfork(2)`.
                #[cfg_attr(not(test), unsafe(no_mangle))]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() -> pid_t {
                    // `choose` gets an aligned stack; what it returns is entered as if the program had called it.
                    std::arch::naked_asm!("sub rsp, 8", "call {choose}", "add rsp, 8", "jmp rax", choose = sym choose)
                }
            )*
        };
    }
    entries!(vfork, __vfork);
}
#[cfg(target_arch = "x86_64")]
pub use vfork::REAL as REAL_VFORK;
