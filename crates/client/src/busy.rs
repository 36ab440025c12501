//! Defers signal handlers while their thread is inside a call that must complete.
//!
//! A handler may leave the call that it interrupted for good (`siglongjmp`), or make calls of its own. For the kernel a call on a
//! file is one step: the handler runs before or after it. Here the call is made of many, and a handler in the middle of them
//! would find a slot claimed or a lock held that nobody gives back.
//!
//! So a thread counts how deep it is in such a call, and whoever handles a signal of a busy thread puts it off ([`defer`]): the
//! signal is sent to the thread once more, blocked until the thread is done ([`end`]). The kernel keeps it meanwhile. When no
//! signal comes this costs two additions in the thread's own memory. The preloaded library stands in front of the program's
//! handlers; in programs that link this crate nobody puts off anything.
//!
//! A thread that may be cancelled at any instruction (`PTHREAD_CANCEL_ASYNCHRONOUS`) cannot be while it is busy.

use crate::sys;
use libc::{c_int, siginfo_t};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::*, compiler_fence};

/// Signals, one bit each, as the kernel has them.
pub type Mask = u64;

/// `pthread_setcanceltype` of libc.
pub type SetCancelType = unsafe fn(c_int, *mut c_int) -> c_int;

struct Thread {
    /// How deep the thread is in calls that must not be left.
    depth: Cell<u32>,
    /// Whether a signal was put off.
    due: Cell<bool>,
    /// Whether all that were put off want interrupted calls to go on.
    restarts: Cell<bool>,
    /// The signal mask to go back to then.
    mask: Cell<Mask>,
    /// Whether the program wants the thread to be cancelled at once.
    cancelled_at_once: Cell<bool>,
}

thread_local! {
    // Constant and without a destructor: touching it allocates nothing, and a handler may.
    static THREAD: Thread = const {
        Thread {
            depth: Cell::new(0),
            due: Cell::new(false),
            restarts: Cell::new(true),
            mask: Cell::new(0),
            cancelled_at_once: Cell::new(false),
        }
    };
}

/// Whether two of the kernel's threads use one [`THREAD`]: see [`share_thread_memory`].
static SHARED: AtomicBool = AtomicBool::new(false);

static SET_CANCEL_TYPE: OnceLock<SetCancelType> = OnceLock::new();
// Of glibc.
const CANCEL_DEFERRED: c_int = 0;
const CANCEL_ASYNCHRONOUS: c_int = 1;

fn set_cancel_type(kind: c_int) {
    if let Some(set) = SET_CANCEL_TYPE.get() {
        // SAFETY: libc's function, which takes no address for "do not tell".
        unsafe { set(kind, std::ptr::null_mut()) };
    }
}

/// Notes whether the program wants the calling thread to be cancelled at once, which `set` then does.
pub fn note_cancel_type(at_once: bool, set: SetCancelType) {
    let _ = SET_CANCEL_TYPE.set(set);
    THREAD.with(|thread| thread.cancelled_at_once.set(at_once));
}

/// The calling thread begins what must be ended. May be nested.
#[inline]
pub fn begin() {
    THREAD.with(|thread| {
        let depth = thread.depth.get();
        // A handler that comes in between leaves the depth as it was.
        thread.depth.set(depth + 1);
        compiler_fence(SeqCst);
        if depth == 0 && thread.cancelled_at_once.get() {
            set_cancel_type(CANCEL_DEFERRED);
        }
    });
}

/// Ends what [`begin`] began. The last one lets handlers run that were put off.
#[inline]
pub fn end() {
    THREAD.with(|thread| {
        compiler_fence(SeqCst);
        let depth = thread.depth.get().saturating_sub(1);
        thread.depth.set(depth);
        compiler_fence(SeqCst);
        if depth == 0 && (thread.due.get() || thread.cancelled_at_once.get()) {
            settle(thread);
        }
    });
}

#[cold]
#[inline(never)]
fn settle(thread: &Thread) {
    if thread.due.replace(false) {
        thread.restarts.set(true);
        // SAFETY: libc gives each thread a valid pointer. The errno of the call must survive the handlers.
        let errno = unsafe { *libc::__errno_location() };
        // Handlers run here, and may not come back.
        sys::set_signal_mask(thread.mask.get());
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    if thread.cancelled_at_once.get() {
        // Does not come back when the thread was cancelled meanwhile.
        set_cancel_type(CANCEL_ASYNCHRONOUS);
    }
}

/// [`begin`] and, when it is dropped, [`end`].
pub struct Busy(());

impl Busy {
    /// See [`begin`].
    #[inline]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Busy {
        begin();
        Busy(())
    }
}

impl Drop for Busy {
    #[inline]
    fn drop(&mut self) {
        end();
    }
}

/// Keeps the terminal (`SIGTSTP`) from stopping the process in the middle of what the calling thread does, until this is dropped. In a
/// process with several threads, the kernel may give the signal to another one, and stops all of them. `SIGSTOP` cannot be put off.
pub(crate) struct StopLater {
    /// What was not blocked before.
    blocked: Mask,
}

impl StopLater {
    const STOP: Mask = 1 << (libc::SIGTSTP - 1);

    pub fn new() -> StopLater {
        StopLater { blocked: Self::STOP & !sys::block_signals(Self::STOP) }
    }
}

impl Drop for StopLater {
    fn drop(&mut self) {
        if self.blocked != 0 {
            // A handler that was put off meanwhile has taken down the mask as it was then.
            THREAD.with(|thread| thread.mask.set(thread.mask.get() & !self.blocked));
            sys::unblock_signals(self.blocked);
        }
    }
}

/// Does something as a whole. Unlike [`Busy`] this leaves nothing in the caller's frame that a cancelled thread would have to
/// clean up.
#[inline(always)]
pub fn whole<R>(act: impl FnOnce() -> R) -> R {
    begin();
    let result = act();
    end();
    result
}

/// The program starts a thread that uses its maker's thread-local memory (`clone` with `CLONE_VM` but without `CLONE_SETTLS`).
/// The depth of one is the other's from then on: a handler that waited for the one to be done would be let go by the other, in the
/// wrong thread, and never run. So no handler waits in this process any more.
pub fn share_thread_memory() {
    SHARED.store(true, SeqCst);
}

/// Whether handlers have to wait for the calling thread.
#[inline]
pub fn is_busy() -> bool {
    THREAD.with(|thread| thread.depth.get() != 0) && !SHARED.load(Relaxed)
}

/// Whether a signal was put off and waits for the thread to be done; whether it wants the call to go on behind its handler.
pub(crate) fn put_off() -> Option<bool> {
    THREAD.with(|thread| thread.due.get().then(|| thread.restarts.get()))
}

/// Does what may wait for long, or may not come back, in the middle of something: handlers run meanwhile.
pub fn apart<R>(act: impl FnOnce() -> R) -> R {
    let depth = THREAD.with(|thread| {
        let depth = thread.depth.replace(0);
        compiler_fence(SeqCst);
        if depth > 0 && (thread.due.get() || thread.cancelled_at_once.get()) {
            settle(thread);
        }
        depth
    });
    let result = act();
    THREAD.with(|thread| {
        thread.depth.set(depth);
        compiler_fence(SeqCst);
        if depth > 0 && thread.cancelled_at_once.get() {
            set_cancel_type(CANCEL_DEFERRED);
        }
    });
    result
}

/// In a handler that interrupted a busy thread: the signal comes once more when the thread is done.
///
/// `mask` is the mask that the kernel sets when the handler returns, `handled` are the signals that handlers may want, and
/// `restarts` is whether this signal's handler wants interrupted calls to go on.
pub fn defer(signal: c_int, info: &siginfo_t, mask: &mut Mask, handled: Mask, restarts: bool) {
    sys::block_signals(handled);
    sys::send_to_self(signal, info);
    THREAD.with(|thread| {
        // The kernel may call several handlers at once, each interrupted at its first instruction by the next: the mask to go back
        // to is that of the thread, which has no more than what the handlers add.
        let before = if thread.due.replace(true) { thread.mask.get() } else { Mask::MAX };
        thread.mask.set(*mask & before);
        thread.restarts.set(thread.restarts.get() && restarts);
    });
    *mask |= handled;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes both.
        let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
        if is_busy() {
            // SAFETY: the kernel's mask is the first 8 bytes.
            let mask = unsafe { &mut *(&raw mut context.uc_sigmask).cast::<Mask>() };
            return defer(signal, info, mask, 1 << (signal - 1), true);
        }
        assert_eq!(info.si_code, libc::SI_TKILL);
        HANDLED.fetch_add(1, Relaxed);
    }

    #[test]
    fn a_signal_is_handled_when_the_outermost_call_ends() {
        // SAFETY: an all-zero action is valid; the handler has the type that `SA_SIGINFO` wants.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
        }
        // SAFETY: this thread.
        let raise = || unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
        let outer = Busy::new();
        let inner = Busy::new();
        raise();
        assert_eq!((HANDLED.load(Relaxed), put_off()), (0, Some(true)));
        drop(inner);
        assert_eq!(HANDLED.load(Relaxed), 0);
        apart(|| assert_eq!(HANDLED.load(Relaxed), 1, "it runs where waiting is"));
        raise();
        drop(outer);
        assert_eq!((HANDLED.load(Relaxed), put_off()), (2, None));
        raise();
        assert_eq!(HANDLED.load(Relaxed), 3, "nothing is blocked any more");
    }
}
