//! Signals and threads. While weft is on, handlers wait for the end of a call on a weft file ([`crate::interception::handlers`]). For programs
//! whose system calls are intercepted (see [`crate::interception::dispatch`]) `SIGSYS` stays ours and unblocked, and new threads are
//! intercepted, too. For all other programs these are libc's own after one load.

use crate::interception::{dispatch, handlers};
use crate::process;
use libc::{
    c_int, c_void, epoll_event, fd_set, nfds_t, pollfd, pthread_attr_t, pthread_t, sighandler_t, sigset_t,
    timespec,
};
use std::ptr;
use weft_client::busy;

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

/// One of the older functions that set a handler.
fn set_handler(signal: c_int, set: impl FnOnce() -> sighandler_t) -> sighandler_t {
    if is_ours(signal) {
        libc::SIG_DFL
    } else if process::is_on() {
        handlers::set_by(signal, set)
    } else {
        set()
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
        if !process::is_on() {
            return real::sigaction(signal, action, old);
        }
        // Taken; the program's own handler would never be called.
        let action = if is_ours(signal) { ptr::null() } else { action };
        handlers::change(signal, action, old)
    }

    /// Where calls are intercepted, a thread without an alternate stack has one of ours.
    fn sigaltstack(stack: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
        if !dispatch::is_on() {
            return real::sigaltstack(stack, old);
        }
        crate::routing::finish(dispatch::change_alternate(stack, old))
    }

    fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        change_mask(how, set, old, |how, set, old| real::sigprocmask(how, set, old))
    }

    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        change_mask(how, set, old, |how, set, old| real::pthread_sigmask(how, set, old))
    }

    // The older forms. That `SIGSYS` is taken looks like a handler that was never set.
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        set_handler(signal, || real::signal(signal, handler))
    }

    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        set_handler(signal, || real::sysv_signal(signal, handler))
    }

    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
        set_handler(signal, || real::sigset(signal, handler))
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

    /// A thread that wants to be cancelled at once still ends its call on a weft file.
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
        let result = real::pthread_setcanceltype(kind, old);
        if result == 0 && process::is_on() {
            busy::note_cancel_type(kind != 0, real::pthread_setcanceltype);
        }
        result
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
