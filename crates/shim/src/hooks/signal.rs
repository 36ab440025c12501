//! Signals and threads, for programs whose system calls are intercepted (see [`crate::dispatch`]): `SIGSYS` stays ours and
//! unblocked, and new threads are intercepted, too. For all other programs these are libc's own after one load.

use crate::dispatch;
use libc::{
    c_int, c_void, epoll_event, fd_set, nfds_t, pollfd, pthread_attr_t, pthread_t, sighandler_t, sigset_t,
    timespec,
};
use std::ptr;

/// What a thread runs.
type Main = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

struct Start {
    main: Main,
    argument: *mut c_void,
}

unsafe extern "C" fn run_thread(start: *mut c_void) -> *mut c_void {
    // SAFETY: allocated by the hook for this thread alone.
    unsafe {
        let Start { main, argument } = start.cast::<Start>().read();
        libc::free(start);
        dispatch::begin_thread();
        main(argument)
    }
}

/// A signal set without `SIGSYS`; none stays none.
unsafe fn without_ours(set: *const sigset_t) -> Option<sigset_t> {
    // SAFETY: the program's own set, when it is not null.
    unsafe {
        let mut set = set.as_ref().copied()?;
        libc::sigdelset(&raw mut set, libc::SIGSYS);
        Some(set)
    }
}

/// Bit of `SIGSYS` in the masks of BSD.
const OURS: c_int = 1 << (libc::SIGSYS - 1);

/// Whether a call is about the signal that is ours.
fn is_ours(signal: c_int) -> bool {
    signal == libc::SIGSYS && dispatch::is_on()
}

/// Waits with a mask for the time being: a handler that runs meanwhile has it, too.
unsafe fn wait_with<T>(set: *const sigset_t, real: impl FnOnce(*const sigset_t) -> T) -> T {
    if !dispatch::is_on() {
        return real(set);
    }
    // SAFETY: the caller's own set.
    match unsafe { without_ours(set) } {
        Some(set) => real(&raw const set),
        None => real(set),
    }
}

unsafe fn change_mask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
    real: impl FnOnce(c_int, *const sigset_t, *mut sigset_t) -> c_int,
) -> c_int {
    if !dispatch::is_on() || how == libc::SIG_UNBLOCK {
        return real(how, set, old);
    }
    // SAFETY: the caller's own set.
    match unsafe { without_ours(set) } {
        Some(set) => real(how, &raw const set, old),
        None => real(how, ptr::null(), old),
    }
}

hooks! {
    fn sigaction(signal: c_int, action: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        if !dispatch::is_on() || action.is_null() {
            return real::sigaction(signal, action, old);
        }
        if signal == libc::SIGSYS {
            // Taken; the program's own handler would never be called.
            return real::sigaction(signal, ptr::null(), old);
        }
        let mut changed = *action;
        libc::sigdelset(&raw mut changed.sa_mask, libc::SIGSYS);
        real::sigaction(signal, &raw const changed, old)
    }

    /// Where calls are intercepted, a thread without an alternate stack has one of ours.
    fn sigaltstack(stack: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
        if !dispatch::is_on() {
            return real::sigaltstack(stack, old);
        }
        crate::route::finish(dispatch::change_alternate(stack, old))
    }

    fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        change_mask(how, set, old, |how, set, old| real::sigprocmask(how, set, old))
    }

    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        change_mask(how, set, old, |how, set, old| real::pthread_sigmask(how, set, old))
    }

    // The older forms. That `SIGSYS` is taken looks like a handler that was never set.
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        if is_ours(signal) { libc::SIG_DFL } else { real::signal(signal, handler) }
    }

    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        if is_ours(signal) { libc::SIG_DFL } else { real::sysv_signal(signal, handler) }
    }

    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
        if is_ours(signal) { libc::SIG_DFL } else { real::sigset(signal, handler) }
    }

    fn sigignore(signal: c_int) -> c_int {
        if is_ours(signal) { 0 } else { real::sigignore(signal) }
    }

    fn sighold(signal: c_int) -> c_int {
        if is_ours(signal) { 0 } else { real::sighold(signal) }
    }

    fn sigblock(mask: c_int) -> c_int {
        real::sigblock(if dispatch::is_on() { mask & !OURS } else { mask })
    }

    fn sigsetmask(mask: c_int) -> c_int {
        real::sigsetmask(if dispatch::is_on() { mask & !OURS } else { mask })
    }

    fn sigsuspend(set: *const sigset_t) -> c_int {
        wait_with(set, |set| real::sigsuspend(set))
    }

    fn ppoll(fds: *mut pollfd, count: nfds_t, time: *const timespec, set: *const sigset_t) -> c_int {
        wait_with(set, |set| real::ppoll(fds, count, time, set))
    }

    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, time: *const timespec, set: *const sigset_t, room: usize) -> c_int {
        wait_with(set, |set| real::__ppoll_chk(fds, count, time, set, room))
    }

    fn pselect(count: c_int, r: *mut fd_set, w: *mut fd_set, x: *mut fd_set, time: *const timespec, set: *const sigset_t) -> c_int {
        wait_with(set, |set| real::pselect(count, r, w, x, time, set))
    }

    fn epoll_pwait(fd: c_int, events: *mut epoll_event, room: c_int, time: c_int, set: *const sigset_t) -> c_int {
        wait_with(set, |set| real::epoll_pwait(fd, events, room, time, set))
    }

    fn epoll_pwait2(fd: c_int, events: *mut epoll_event, room: c_int, time: *const timespec, set: *const sigset_t) -> c_int {
        wait_with(set, |set| real::epoll_pwait2(fd, events, room, time, set))
    }

    fn pthread_create(thread: *mut pthread_t, attributes: *const pthread_attr_t, main: Main, argument: *mut c_void) -> c_int {
        if !dispatch::is_on() {
            return real::pthread_create(thread, attributes, main, argument);
        }
        let start: *mut Start = libc::malloc(size_of::<Start>()).cast();
        if start.is_null() {
            return libc::EAGAIN;
        }
        start.write(Start { main, argument });
        let result = real::pthread_create(thread, attributes, run_thread, start.cast());
        if result != 0 {
            libc::free(start.cast());
        }
        result
    }
}
