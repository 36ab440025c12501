//! New processes: a child gets a connection of its own, which begins with its parent's open files.

use crate::process::{self, fork};
use libc::{c_char, c_int, c_void, pid_t, termios, winsize};

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

    /// A child with memory of its own gets a connection. One that shares its parent's memory until it executes a program
    /// cannot, as with `vfork`, and gets memory of its own. Threads are left as they are.
    fn clone(
        function: fork::Entry,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        parent_tid: *mut pid_t,
        tls: *mut c_void,
        child_tid: *mut pid_t
    ) -> c_int {
        if !process::is_on() {
            return real::clone(function, stack, flags, argument, parent_tid, tls, child_tid);
        }
        if let Err(error) = fork::check_sharing(flags) {
            return crate::routing::fail(error);
        }
        if flags & libc::CLONE_FILES != 0 {
            fork::before_thread(flags);
            return real::clone(function, stack, flags, argument, parent_tid, tls, child_tid);
        }
        fork::clone_by(function, argument, |function, argument| {
            let flags = flags & !libc::CLONE_VM;
            real::clone(function, stack, flags, argument, parent_tid, tls, child_tid)
        })
    }

    /// libc duplicates by an inner function; the steps are those of its manual.
    fn login_tty(fd: c_int) -> c_int {
        if !process::is_on() {
            return real::login_tty(fd);
        }
        libc::setsid();
        if crate::hooks::control::real::ioctl(fd, libc::TIOCSCTTY, 0) == -1 {
            return -1;
        }
        for number in 0..=2 {
            if crate::hooks::open::body::dup2(fd, number) == -1 {
                return -1;
            }
        }
        if fd > 2 {
            crate::hooks::open::body::close(fd);
        }
        0
    }

    /// libc forks by an inner function; the steps are those of its manual.
    fn forkpty(master: *mut c_int, name: *mut c_char, settings: *const termios, size: *const winsize) -> pid_t {
        if !process::is_on() {
            return real::forkpty(master, name, settings, size);
        }
        let (mut ours, mut theirs) = (-1, -1);
        if libc::openpty(&raw mut ours, &raw mut theirs, name, settings, size) == -1 {
            return -1;
        }
        let pid = body::fork();
        match pid {
            -1 => {
                crate::hooks::open::body::close(ours);
                crate::hooks::open::body::close(theirs);
            }
            0 => {
                crate::hooks::open::body::close(ours);
                if body::login_tty(theirs) == -1 {
                    crate::hooks::exit::body::_exit(1);
                }
            }
            _ => {
                *master = ours;
                crate::hooks::open::body::close(theirs);
            }
        }
        pid
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
