//! Alternate signal stacks, for programs whose system calls are intercepted.
//!
//! The kernel hands a call over by a signal, and a program makes calls on stacks that have no room for one (Go's
//! goroutines, coroutines). So the handler runs on the thread's alternate stack, and a thread without one gets one of ours.
//! To the program it looks as if it were not there: a query returns that none is set, and one that the program sets takes
//! its place until the program disables it. The program's own may be just large enough for its own handlers; when too
//! little is left there, a call is done on ours, which lies idle then.
//!
//! ```text
//!  program has none       kernel: ours           frame of the signal and the hook on ours
//!  program has a large    kernel: the program's  both on the program's
//!  program has a small    kernel: the program's  frame there, hook on ours; what is left of the program's is in force
//!                                                meanwhile, as a signal would begin at its top again, where the frame is
//! ```
//!
//! A thread's stack is unmapped by the destructor of a thread-specific value, which every way to end a thread runs but the
//! system call.

use crate::sys;
use libc::{c_int, c_long, c_void, stack_t};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::*};
use weft_client::Errno;

/// Bytes of a stack; pages that are not touched cost no memory. The program's handlers run there too.
const STACK_BYTES: usize = 256 * 1024;
/// Bytes of the stack on which the shim sets another one: the kernel refuses while the caller runs on the current one.
const ASIDE_BYTES: usize = 64 * 1024;
/// Bytes below a stack that cannot be touched.
const GUARD_BYTES: usize = 4096;
/// Of each thread: the stack aside below the other, a guard below both.
const MAPPED_BYTES: usize = GUARD_BYTES + ASIDE_BYTES + GUARD_BYTES + STACK_BYTES;
/// Room that a hook and a signal that interrupts it need.
const HOOK_BYTES: usize = 16 * 1024;
/// The kernel's least size.
const LEAST_BYTES: usize = 2048;
const AUTODISARM: c_int = 1 << 31;
/// From where [`with_room`] looks to where the frames above it end.
const FRAMES_BYTES: usize = 512;

thread_local! {
    // Constant and without a destructor: touching it allocates nothing.
    static OURS: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// The thread-specific value that frees a stack, plus 1; 0 before [`start`].
static KEY: AtomicU32 = AtomicU32::new(0);

/// Once, before threads are started.
pub fn start() -> Result<(), Errno> {
    let mut key = 0;
    // SAFETY: room for a key, and a function of the destructor's type.
    match unsafe { libc::pthread_key_create(&raw mut key, Some(free)) } {
        0 => KEY.store(key + 1, Relaxed),
        error => return Err(error),
    }
    give();
    Ok(())
}

/// On a thread that begins: it gets a stack when it has none. Without memory for one, calls are handed over on the
/// thread's own.
pub fn give() {
    let Some(key) = KEY.load(Relaxed).checked_sub(1) else { return };
    if !OURS.get().is_null() {
        return;
    }
    let Ok(memory) = sys::anonymous(MAPPED_BYTES) else { return };
    // SAFETY: just mapped, with room for both guards.
    let stack = unsafe {
        let guard = memory.add(GUARD_BYTES + ASIDE_BYTES);
        let _ = sys::mprotect(memory, GUARD_BYTES, libc::PROT_NONE);
        let _ = sys::mprotect(guard, GUARD_BYTES, libc::PROT_NONE);
        libc::pthread_setspecific(key, memory.cast());
        guard.add(GUARD_BYTES)
    };
    OURS.set(stack);
    if in_force().ss_flags & libc::SS_DISABLE != 0 {
        set(&ours());
    }
}

/// When a thread ends.
unsafe extern "C" fn free(memory: *mut c_void) {
    if is_ours(&in_force()) {
        set(&none());
    }
    OURS.set(ptr::null_mut());
    // Not the one that this runs on: a destructor runs where the thread ended.
    let here = &raw const memory as usize;
    if here.wrapping_sub(memory as usize) >= MAPPED_BYTES {
        // SAFETY: mapped by `give`, and the kernel does not use it any more.
        let _ = unsafe { sys::munmap(memory.cast(), MAPPED_BYTES) };
    }
}

fn none() -> stack_t {
    stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 }
}

/// What the kernel gets when the program has none.
fn ours() -> stack_t {
    match OURS.get() {
        stack if stack.is_null() => none(),
        stack => stack_t { ss_sp: stack.cast(), ss_flags: 0, ss_size: STACK_BYTES },
    }
}

fn is_ours(stack: &stack_t) -> bool {
    !stack.ss_sp.is_null() && stack.ss_sp == OURS.get().cast()
}

fn in_force() -> stack_t {
    let mut now = none();
    let _ = kernel(ptr::null(), &mut now);
    now
}

fn set(stack: &stack_t) {
    let _ = kernel(stack, ptr::null_mut());
}

/// By libc, whose calls are not handed over: this is about the kernel's own state.
fn kernel(new: *const stack_t, old: *mut stack_t) -> Result<(), Errno> {
    let before = sys::errno();
    // SAFETY: both are null or of this module's callers.
    match unsafe { crate::hooks::signal::real::sigaltstack(new, old) } {
        0 => Ok(()),
        _ => {
            let error = sys::errno();
            sys::set_errno(before);
            Err(error)
        }
    }
}

/// What the program sees as the stack in force.
fn told(now: &stack_t) -> stack_t {
    if is_ours(now) { none() } else { *now }
}

/// What takes the place of `now` when the program asks for `wanted`, or what the kernel would say.
fn replaced(now: &stack_t, wanted: &stack_t) -> Result<stack_t, Errno> {
    if now.ss_flags & libc::SS_ONSTACK != 0 && !is_ours(now) {
        return Err(libc::EPERM);
    }
    match wanted.ss_flags & !AUTODISARM {
        libc::SS_DISABLE => Ok(ours()),
        0 | libc::SS_ONSTACK if wanted.ss_size < LEAST_BYTES => Err(libc::ENOMEM),
        0 | libc::SS_ONSTACK => Ok(*wanted),
        _ => Err(libc::EINVAL),
    }
}

/// `sigaltstack` as a function.
///
/// # Safety
/// As `sigaltstack(2)`.
pub unsafe fn change(wanted: *const stack_t, old: *mut stack_t) -> Result<c_int, Errno> {
    let now = in_force();
    // SAFETY: the caller's promise: both are null or stacks.
    unsafe {
        if let Some(wanted) = wanted.as_ref() {
            kernel(&replaced(&now, wanted)?, ptr::null_mut())?;
        }
        if let Some(old) = old.as_mut() {
            *old = told(&now);
        }
    }
    Ok(0)
}

/// Runs `act` on the stack aside.
fn aside<F: FnMut()>(mut act: F) {
    match OURS.get() {
        ours if ours.is_null() => act(),
        // SAFETY: the stack aside ends below the guard of ours; nobody is on it, as nothing in `act` comes back here.
        ours => unsafe { call_on(ours.sub(GUARD_BYTES), trampoline(&act), (&raw mut act).cast()) },
    }
}

/// `sigaltstack` as a call that was handed over, from its handler. The kernel restores what the context says when that
/// returns.
///
/// # Safety
/// As `sigaltstack(2)`.
pub unsafe fn change_in(
    context: &mut stack_t,
    interrupted: usize,
    wanted: *const stack_t,
    old: *mut stack_t,
) -> c_long {
    let mut now = *context;
    // The context says what is in force, not whether the caller is on it.
    if interrupted.wrapping_sub(now.ss_sp as usize) < now.ss_size {
        now.ss_flags |= libc::SS_ONSTACK;
    }
    // SAFETY: the caller's promise: both are null or stacks.
    unsafe {
        if let Some(wanted) = wanted.as_ref() {
            match replaced(&now, wanted) {
                Ok(stack) => {
                    aside(|| set(&stack));
                    *context = stack;
                }
                Err(error) => return -c_long::from(error),
            }
        }
        if let Some(old) = old.as_mut() {
            *old = told(&now);
        }
    }
    0
}

/// Runs `act` with room for a hook: here, or on our stack when this is a small one of the program's. `context` and
/// `interrupted` are the alternate stack and the stack pointer of the code that made the call.
pub fn with_room<F: FnMut()>(context: &stack_t, interrupted: usize, mut act: F) {
    let here = &raw const context as usize;
    let left = here.wrapping_sub(context.ss_sp as usize);
    let on_programs = context.ss_flags & libc::SS_DISABLE == 0 && !is_ours(context) && left < context.ss_size;
    let ours = OURS.get();
    // A hook that a signal has interrupted may be there already.
    let busy = interrupted.wrapping_sub(ours as usize) < STACK_BYTES;
    if !on_programs || left >= HOOK_BYTES || ours.is_null() || busy {
        return act();
    }
    // Signals find what is left of the program's stack: programs look whether their handlers are on it.
    let rest = stack_t { ss_size: left.saturating_sub(FRAMES_BYTES) & !15, ss_flags: 0, ..*context };
    let mut run = || {
        if kernel(&rest, ptr::null_mut()).is_err() {
            set(&none());
        }
        act();
    };
    // SAFETY: the stack is this thread's, and nobody is on it.
    unsafe { call_on(ours.add(STACK_BYTES), trampoline(&run), (&raw mut run).cast()) };
}

/// The function that calls a closure of `run`'s type.
fn trampoline<F: FnMut()>(_run: &F) -> unsafe extern "C" fn(*mut c_void) {
    unsafe extern "C" fn call<F: FnMut()>(run: *mut c_void) {
        // SAFETY: the closure that `with_room` passes, alive until it returns.
        unsafe { (*run.cast::<F>())() }
    }
    call::<F>
}

/// Calls `run(argument)` on another stack, whose end is `top`, a multiple of 16.
///
/// # Safety
/// The stack has room and nobody else is on it.
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: *mut u8, run: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) {
    // rbp is the callee's to keep, so it brings the old stack back.
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret"
    )
}
