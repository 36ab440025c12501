//! System calls that programs make by themselves, past libc: the kernel hands them over (syscall user dispatch, Linux 5.11).
//!
//! Only for programs that ask for it (`WEFT_INTERCEPT=sud`). The kernel then turns every system call that does not come from
//! libc's code into a `SIGSYS` on its thread; the handler does what the hooked function of that name does, or makes the
//! call, and puts the result where the program expects it. This library's own calls come by the same way and are made as they
//! are.
//!
//! ```text
//!  program: syscall --> kernel: not libc's code, selector says "block" --> SIGSYS --> handler: selector "allow"
//!                                                                            hook, or the call itself
//!                                                                            selector "block", return
//! ```
//!
//! A thread has a selector of its own, and neither threads nor forked children inherit the arrangement: [`arm`] makes it
//! for each. The handler runs on an alternate stack ([`crate::interception::alternate`]): the stack on which a program makes a call may have
//! no room for it.
//!
//! What changes the thread under the handler is made so that it lasts when the handler returns: the signal mask and the
//! alternate stack in the context that the kernel then restores, `rt_sigreturn` by libc's own code for it, with the
//! program's frame. A `clone` that shares memory, by number, is let through by itself; that thread's calls are the
//! kernel's from then on.

use crate::hooks::raw;
use crate::interception::alternate;
pub use crate::interception::alternate::change as change_alternate;
use crate::owned::Fd;
use crate::text::decimal;
use crate::{process, report, sys};
use libc::{c_int, c_long, c_void, siginfo_t, stack_t, ucontext_t};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use weft_client::scratch::Scratch;

/// Asks for it; the only value is [`WANTED`].
pub const ENV_INTERCEPT: &[u8] = b"WEFT_INTERCEPT";
/// Value of `WEFT_INTERCEPT` that asks for the interception.
pub const WANTED: &[u8] = b"sud";

const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const DISPATCH_ON: usize = 1;
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;
/// `si_code` of a signal by dispatch; others are a sandbox's.
const SYS_USER_DISPATCH: c_int = 2;
/// Bytes of the instruction that makes a system call.
const INSTRUCTION_BYTES: i64 = 2;

thread_local! {
    // Constant and without a destructor: touching it allocates nothing. The kernel reads it at each system call.
    static SELECTOR: Cell<u8> = const { Cell::new(ALLOW) };
}

static ON: AtomicBool = AtomicBool::new(false);

/// libc's code that returns from a handler.
static RETURN: AtomicUsize = AtomicUsize::new(0);

/// Addresses of a library's code.
struct Code {
    start: AtomicUsize,
    len: AtomicUsize,
}

static LIBC: Code = Code { start: AtomicUsize::new(0), len: AtomicUsize::new(0) };
static OWN: Code = Code { start: AtomicUsize::new(0), len: AtomicUsize::new(0) };

impl Code {
    fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start.load(Relaxed)) < self.len.load(Relaxed)
    }

    /// Finds the code that `inside` lies in, by the kernel's list of what is mapped.
    fn find(&self, inside: usize) -> bool {
        each_mapping(|start, end, executable| {
            if executable && (start..end).contains(&inside) {
                self.start.store(start, Relaxed);
                self.len.store(end - start, Relaxed);
            }
        });
        self.len.load(Relaxed) > 0
    }
}

/// Calls `each` with start, end and whether it is code, for everything that is mapped.
fn each_mapping(mut each: impl FnMut(usize, usize, bool)) {
    let Ok(fd) = sys::open(c"/proc/self/maps", libc::O_RDONLY | libc::O_CLOEXEC, 0) else { return };
    let fd = Fd(fd);
    let Ok(mut buffer) = Scratch::<[u8; 8192]>::any() else { return };
    let mut kept = 0;
    while let Ok(n @ 1..) = sys::read(*fd, buffer.get_mut(kept..).unwrap_or(&mut [])) {
        let filled = kept + n;
        let text = buffer.get(..filled).unwrap_or(&[]);
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        for line in text.get(..whole).unwrap_or(&[]).split(|&byte| byte == b'\n') {
            // start-end perms ...
            let mut words = line.split(|&byte| byte == b' ');
            let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
            let mut ends = range.split(|&byte| byte == b'-').filter_map(hexadecimal);
            if let (Some(start), Some(end)) = (ends.next(), ends.next()) {
                each(start, end, rights.get(2) == Some(&b'x'));
            }
        }
        buffer.copy_within(whole..filled, 0);
        kept = filled - whole;
    }
}

fn hexadecimal(text: &[u8]) -> Option<usize> {
    usize::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// Whether system calls are intercepted.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Begins to intercept, on the thread that starts the program.
pub fn start() {
    // A function of libc's, and one of this library's.
    let found = LIBC.find(libc_code()) && OWN.find(start as *const () as usize);
    let result = if found {
        alternate::start().and_then(|()| install()).and_then(|()| arm_thread())
    } else {
        Err(libc::ENOENT)
    };
    match result {
        Ok(()) => SELECTOR.set(BLOCK),
        Err(error) => {
            ON.store(false, Relaxed);
            report::complain(&[
                b"this system cannot hand system calls over (errno ",
                &decimal(error.unsigned_abs().into()),
                b"): those that the program makes past libc are not seen",
            ]);
        }
    }
}

/// An address within libc's code: that of a function which this library does not hook.
fn libc_code() -> usize {
    libc::getpid as *const () as usize
}

fn install() -> Result<(), weft_client::Errno> {
    // SAFETY: an all-zero action is valid; the handler has the type that `SA_SIGINFO` wants.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_system_call as *const () as usize;
        // Not deferred: a program's handler may jump out of ours.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        if crate::hooks::signal::real::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(sys::errno());
        }
        let mut kernels = [0usize; 4];
        let into = kernels.as_mut_ptr() as c_long;
        if sys::raw(libc::SYS_rt_sigaction, [libc::SIGSYS.into(), 0, into, 8, 0, 0]) != 0 {
            return Err(libc::ENOSYS);
        }
        // Handler, flags, restorer, mask.
        RETURN.store(kernels[2], Relaxed);
        let mut unblocked: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut unblocked, libc::SIGSYS);
        crate::hooks::signal::real::pthread_sigmask(
            libc::SIG_UNBLOCK,
            &raw const unblocked,
            std::ptr::null_mut(),
        );
    }
    ON.store(true, Relaxed);
    Ok(())
}

/// Tells the kernel of the calling thread's selector, which stays as it is.
fn arm_thread() -> Result<(), weft_client::Errno> {
    let selector = SELECTOR.with(Cell::as_ptr);
    sys::prctl(
        PR_SET_SYSCALL_USER_DISPATCH,
        [DISPATCH_ON, LIBC.start.load(Relaxed), LIBC.len.load(Relaxed), selector as usize],
    )
}

/// On a thread or in a forked child that has just begun.
pub fn arm() {
    if is_on() && arm_thread().is_err() {
        report::complain(&[b"system calls that a thread makes past libc are not seen"]);
    }
}

/// On a new thread: from here on its calls are intercepted.
pub fn begin_thread() {
    alternate::give();
    arm();
    SELECTOR.set(BLOCK);
}

/// Calls that change the stack on which the handler runs.
fn has_to_be_made_in_place(number: c_long, arguments: &[c_long; 6]) -> bool {
    match number {
        // What waits for its child to execute is a fork to us.
        libc::SYS_clone if arguments[0] & libc::CLONE_VFORK as c_long != 0 && arguments[1] == 0 => {
            arguments[0] & libc::CLONE_THREAD as c_long != 0
        }
        libc::SYS_clone => arguments[0] & libc::CLONE_VM as c_long != 0 || arguments[1] != 0,
        libc::SYS_clone3 => true,
        _ => false,
    }
}

unsafe extern "C" fn on_system_call(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    SELECTOR.set(ALLOW);
    let error = sys::errno();
    // SAFETY: the kernel passes both; the context is that of the interrupted thread, to be changed by its handler.
    let (code, context) = unsafe { ((*info).si_code, &mut *context.cast::<ucontext_t>()) };
    let registers = &mut context.uc_mcontext.gregs;
    if code != SYS_USER_DISPATCH {
        // A sandbox's: what it does without a handler.
        sys::abort();
    }
    let register = |at: c_int| registers.get(at as usize).copied().unwrap_or(0);
    let number = register(libc::REG_RAX);
    let places = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
    let arguments = places.map(register);
    let (address, stack) = (register(libc::REG_RIP), register(libc::REG_RSP));
    let mut set = |at: c_int, value: i64| {
        if let Some(place) = registers.get_mut(at as usize) {
            *place = value;
        }
    };
    if has_to_be_made_in_place(number, &arguments) {
        // Once more, and this time by the kernel.
        set(libc::REG_RIP, address - INSTRUCTION_BYTES);
        sys::set_errno(error);
        return;
    }
    if number == libc::SYS_rt_sigreturn {
        // On the program's frame, from code whose calls are not handed over.
        set(libc::REG_RIP, RETURN.load(Relaxed) as i64);
        sys::set_errno(error);
        SELECTOR.set(BLOCK);
        return;
    }
    let mut result = 0;
    if number == libc::SYS_sigaltstack {
        let [new, old, ..] = arguments;
        // SAFETY: the program's own arguments for this call.
        result = unsafe {
            alternate::change_in(
                &mut context.uc_stack,
                stack as usize,
                new as *const stack_t,
                old as *mut stack_t,
            )
        };
    } else {
        alternate::with_room(&context.uc_stack, stack as usize, || {
            // SAFETY: the program's own arguments for this call.
            result = unsafe {
                if OWN.contains(address as usize) || !process::is_on() {
                    sys::raw(number, arguments)
                } else {
                    // A handler of the program's that interrupts this has its calls handed over, too.
                    SELECTOR.set(BLOCK);
                    raw::by_number(number, arguments).unwrap_or_else(|| raw::by_kernel(number, arguments))
                }
            };
        });
    }
    if number == libc::SYS_rt_sigprocmask {
        // The handler's return sets the mask of the context.
        let mask = &raw mut context.uc_sigmask as c_long;
        // SAFETY: room for a mask of the kernel's, of 8 bytes.
        unsafe { sys::raw(number, [libc::SIG_BLOCK.into(), 0, mask, 8, 0, 0]) };
    }
    if let Some(place) = context.uc_mcontext.gregs.get_mut(libc::REG_RAX as usize) {
        *place = result;
    }
    sys::set_errno(error);
    SELECTOR.set(BLOCK);
}
