//! The program's signal handlers: while weft is on, `on_signal` stands in front of each and puts a signal off that comes in
//! the middle of a call on a weft file ([`weft_client::busy`]).
//!
//! The kernel knows only ours. A table has the handlers of the program, and answers when the program asks. Mask, stack and
//! `SA_RESTART` are the kernel's business as always. A signal that the thread's own instruction raises (`SIGSEGV` of a
//! bad buffer) cannot wait; its handler runs at once. Handlers that a program sets by a system call of its own are not known.

use crate::file;
use crate::interception::dispatch;
use libc::{c_int, c_void, sighandler_t, siginfo_t, ucontext_t};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::*};
use weft_client::busy::{self, Mask};

/// Signals of the kernel.
const SIGNALS: usize = 64;

/// What the program set for a signal.
struct Action {
    handler: AtomicUsize,
    flags: AtomicI32,
}

static ACTIONS: [Action; SIGNALS] =
    [const { Action { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) } }; SIGNALS];
/// Signals that handlers were set for, but those that cannot wait.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Flags that the kernel is not told as the program set them.
const OURS: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;

fn action_of(signal: c_int) -> Option<&'static Action> {
    ACTIONS.get(usize::try_from(signal).ok()?.checked_sub(1)?)
}

fn bit(signal: c_int) -> Mask {
    1 << (signal - 1)
}

/// Signals that an instruction raises.
fn can_be_fault(signal: c_int) -> bool {
    use libc::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    matches!(signal, SIGSEGV | SIGBUS | SIGFPE | SIGILL | SIGTRAP | SIGSYS)
}

fn on_signal_address() -> usize {
    on_signal as *const () as usize
}

/// Whether a handler is one, not "ignore" or the like.
fn is_function(handler: sighandler_t) -> bool {
    const SIG_HOLD: sighandler_t = 2;
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN | libc::SIG_ERR | SIG_HOLD)
}

unsafe extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(action) = action_of(signal) else { return };
    let handler = action.handler.load(Acquire);
    let flags = action.flags.load(Relaxed);
    if !is_function(handler) {
        return;
    }
    if !busy::is_busy() {
        if flags & libc::SA_RESETHAND != 0 {
            reset(signal);
        }
        // SAFETY: the program's handler, with what the kernel passed.
        return unsafe { call(handler, signal, info, context) };
    }
    // SAFETY: the kernel passes both; its mask is the first 8 bytes.
    let (info, mask) = unsafe {
        let context = context.cast::<ucontext_t>();
        (&mut *info, &mut *(&raw mut (*context).uc_sigmask).cast::<Mask>())
    };
    if can_be_fault(signal) && info.si_code > 0 {
        // It may not come back, and may make calls on files.
        let inside = file::step_out();
        // SAFETY: as above.
        busy::apart(|| unsafe { call(handler, signal, info, context) });
        file::step_in(inside);
        return;
    }
    // `siginterrupt` changes the kernel's alone.
    // SAFETY: an all-zero action is valid, and a place for one.
    let restarts = unsafe {
        let mut kernels: libc::sigaction = std::mem::zeroed();
        real_action(signal, ptr::null(), &raw mut kernels) == 0 && kernels.sa_flags & libc::SA_RESTART != 0
    };
    busy::defer(signal, info, mask, HANDLED.load(Relaxed), restarts);
}

unsafe fn call(handler: usize, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
    // SAFETY: a handler of the program's; one that takes the signal alone does not look at the other two.
    unsafe { std::mem::transmute::<usize, Handler>(handler)(signal, info, context) }
}

unsafe fn real_action(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: as the function's manual says.
    unsafe { crate::hooks::signal::real::sigaction(signal, new, old) }
}

/// A handler that is called once.
fn reset(signal: c_int) {
    // SAFETY: an all-zero action is the default one.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        real_action(signal, &raw const default, ptr::null_mut());
    }
}

/// `sigaction` while weft is on.
///
/// # Safety
/// As `sigaction(2)`.
pub unsafe fn change(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(action) = action_of(signal) else {
        // SAFETY: as the function's manual says.
        return unsafe { real_action(signal, new, old) };
    };
    // SAFETY: the program's own structures, when they are not null; an all-zero action is valid.
    unsafe {
        let before = (action.handler.load(Acquire), action.flags.load(Relaxed));
        let mut changed = new.as_ref().copied();
        if let Some(new) = &mut changed {
            if dispatch::is_on() {
                libc::sigdelset(&raw mut new.sa_mask, libc::SIGSYS);
            }
            if is_function(new.sa_sigaction) {
                action.flags.store(new.sa_flags, Relaxed);
                action.handler.store(new.sa_sigaction, Release);
                new.sa_sigaction = on_signal_address();
                new.sa_flags = new.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
                if !can_be_fault(signal) {
                    HANDLED.fetch_or(bit(signal), Relaxed);
                }
            }
        }
        let mut kernels: libc::sigaction = std::mem::zeroed();
        let result =
            real_action(signal, changed.as_ref().map_or(ptr::null(), ptr::from_ref), &raw mut kernels);
        if result != 0 {
            action.flags.store(before.1, Relaxed);
            action.handler.store(before.0, Release);
            return result;
        }
        if !old.is_null() {
            if kernels.sa_sigaction == on_signal_address() {
                kernels.sa_sigaction = before.0;
                kernels.sa_flags = kernels.sa_flags & !OURS | before.1 & OURS;
            }
            *old = kernels;
        }
        result
    }
}

/// One of the older functions that set a handler: `set` has libc do it, and ours goes in front. What the program had set.
pub fn set_by(signal: c_int, set: impl FnOnce() -> sighandler_t) -> sighandler_t {
    let before = action_of(signal).map_or(libc::SIG_DFL, |action| action.handler.load(Acquire));
    let old = set();
    if old == libc::SIG_ERR {
        return old;
    }
    // SAFETY: an all-zero action is valid, and a place for one.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        if real_action(signal, ptr::null(), &raw mut now) == 0
            && is_function(now.sa_sigaction)
            && now.sa_sigaction != on_signal_address()
        {
            change(signal, &raw const now, ptr::null_mut());
        }
    }
    if old == on_signal_address() { before } else { old }
}
