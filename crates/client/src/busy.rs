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
use std::ffi::CStr;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*, compiler_fence};

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

/// What the preloaded library exports, by the name [`FRONT_NAME`], for other copies of this crate in its process.
///
/// Handlers run in `end`, and may unwind the thread that they end.
#[repr(C)]
pub struct Front {
    begin: extern "C-unwind" fn(),
    end: extern "C-unwind" fn(),
    /// 0: no signal was put off; 1: one was; 2: and wants the call to go on.
    put_off: extern "C-unwind" fn() -> c_int,
    unblocked: extern "C-unwind" fn(Mask),
}

/// The name of the preloaded library's [`Front`]. Another layout gets another name.
pub const FRONT_NAME: &CStr = c"weft_shim_busy";

impl Front {
    /// That of this copy.
    pub const THIS: Front =
        Front { begin: front_begin, end: front_end, put_off: front_put_off, unblocked: front_unblocked };
}

extern "C-unwind" fn front_begin() {
    begin();
}

extern "C-unwind" fn front_end() {
    end();
}

extern "C-unwind" fn front_put_off() -> c_int {
    put_off().map_or(0, |restarts| 1 + c_int::from(restarts))
}

extern "C-unwind" fn front_unblocked(signals: Mask) {
    note_unblocked(signals);
}

/// The preloaded library's, in another copy; null when there is none, and in the preloaded library itself.
static FRONT: AtomicPtr<Front> = AtomicPtr::new(ptr::null_mut());
/// Whether it was looked for, or need not be.
static FRONT_IS_KNOWN: AtomicBool = AtomicBool::new(false);

#[inline]
fn front() -> Option<&'static Front> {
    // SAFETY: null, or the static of a library that is never unloaded.
    unsafe { FRONT.load(Acquire).as_ref() }
}

/// This copy is the preloaded library's: there is none in front of it.
pub fn stand_in_front() {
    FRONT_IS_KNOWN.store(true, Release);
}

/// Looks for the preloaded library, once. No thread is busy before the first connection, so that begins and ends stay pairs.
pub(crate) fn find_front() {
    if FRONT_IS_KNOWN.load(Acquire) {
        return;
    }
    // SAFETY: the name ends with NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, FRONT_NAME.as_ptr()) };
    FRONT.store(found.cast(), Release);
    FRONT_IS_KNOWN.store(true, Release);
}

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
        if depth == 0
            && let Some(front) = front()
        {
            (front.begin)();
        }
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
        let before = thread.depth.get();
        let depth = before.saturating_sub(1);
        thread.depth.set(depth);
        compiler_fence(SeqCst);
        if depth == 0 && (thread.due.get() || thread.cancelled_at_once.get()) {
            settle(thread);
        }
        if before == 1
            && let Some(front) = front()
        {
            (front.end)();
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
            note_unblocked(self.blocked);
            if let Some(front) = front() {
                (front.unblocked)(self.blocked);
            }
            sys::unblock_signals(self.blocked);
        }
    }
}

/// Takes signals out of the mask to go back to: a handler that was put off has taken down the mask as it was then.
fn note_unblocked(signals: Mask) {
    THREAD.with(|thread| thread.mask.set(thread.mask.get() & !signals));
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
    let ours = THREAD.with(|thread| thread.due.get().then(|| thread.restarts.get()));
    ours.or_else(|| match (front()?.put_off)() {
        0 => None,
        due => Some(due > 1),
    })
}

/// Does what may wait for long, or may not come back, in the middle of something: handlers run meanwhile.
pub fn apart<R>(act: impl FnOnce() -> R) -> R {
    let depth = THREAD.with(|thread| {
        let depth = thread.depth.replace(0);
        compiler_fence(SeqCst);
        if depth > 0 && (thread.due.get() || thread.cancelled_at_once.get()) {
            settle(thread);
        }
        if depth > 0
            && let Some(front) = front()
        {
            (front.end)();
        }
        depth
    });
    let result = act();
    THREAD.with(|thread| {
        if depth > 0
            && let Some(front) = front()
        {
            (front.begin)();
        }
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

    thread_local! {
        /// How deep the front is told to be, how often it was told to begin, and what it was told of.
        static TOLD: Cell<(i32, u32, Mask)> = const { Cell::new((0, 0, 0)) };
    }

    extern "C-unwind" fn told_begin() {
        let (depth, begun, mask) = TOLD.get();
        TOLD.set((depth + 1, begun + 1, mask));
    }

    extern "C-unwind" fn told_end() {
        let (depth, begun, mask) = TOLD.get();
        TOLD.set((depth - 1, begun, mask));
    }

    extern "C-unwind" fn told_put_off() -> c_int {
        // Other tests have none in front of them.
        if TOLD.get().0 > 0 { 2 } else { 0 }
    }

    extern "C-unwind" fn told_unblocked(signals: Mask) {
        let (depth, begun, mask) = TOLD.get();
        TOLD.set((depth, begun, mask | signals));
    }

    static TOLD_FRONT: Front =
        Front { begin: told_begin, end: told_end, put_off: told_put_off, unblocked: told_unblocked };

    #[test]
    fn the_preloaded_library_is_told_of_the_outermost_call_alone() {
        FRONT.store((&raw const TOLD_FRONT).cast_mut(), Release);
        let outer = Busy::new();
        let inner = Busy::new();
        assert_eq!((TOLD.get(), put_off()), ((1, 1, 0), Some(true)));
        apart(|| {
            assert_eq!(TOLD.get(), (0, 1, 0), "handlers run where waiting is");
            whole(|| assert_eq!(TOLD.get(), (1, 2, 0)));
            assert_eq!(TOLD.get(), (0, 2, 0));
        });
        assert_eq!(TOLD.get(), (1, 3, 0));
        drop(inner);
        assert_eq!(TOLD.get(), (1, 3, 0));
        drop(StopLater::new());
        assert_eq!(
            TOLD.get(),
            (1, 3, StopLater::STOP),
            "its mask has no signal that is not blocked any more"
        );
        drop(outer);
        assert_eq!((TOLD.get(), put_off()), ((0, 3, StopLater::STOP), None));
        FRONT.store(ptr::null_mut(), Release);
    }
}
