//! Signals: noticed between two steps of a command, or read one by one while a program runs.

use crate::error::CliError;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering::*};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The signal that interrupted.
static FIRST: AtomicI32 = AtomicI32::new(libc::SIGTERM);
/// Seconds from it to the end of the process; 0: as many as the command takes.
static PATIENCE_S: AtomicU32 = AtomicU32::new(0);

/// Signals by which people and supervisors end a command.
pub const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

extern "C" fn note(signal: i32) {
    FIRST.store(signal, Relaxed);
    INTERRUPTED.store(true, Relaxed);
    let patience_s = PATIENCE_S.load(Relaxed);
    if patience_s > 0 {
        // SAFETY: may be called in a handler.
        unsafe { libc::alarm(patience_s) };
    }
}

extern "C" fn give_up(_: i32) {
    // SAFETY: may be called in a handler. The signal's own is reset, so that it ends the process.
    unsafe { libc::raise(FIRST.load(Relaxed)) };
}

fn handle(signal: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: an all-zero sigaction is valid; the handlers do nothing that a handler must not.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = flags;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Whether the process was started to ignore the signal, as `nohup` and a shell's background jobs are.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is valid, and the call only writes to it.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// From now on the first of SIGINT, SIGTERM and SIGHUP sets a flag for [`was_interrupted`]; the next of its kind ends
/// the process as usual. A signal that is ignored stays ignored.
pub fn notice_interrupts() {
    for signal in ENDING.into_iter().filter(|signal| !is_ignored(*signal)) {
        handle(signal, note, libc::SA_RESETHAND | libc::SA_RESTART);
    }
}

/// From now on a command that has not ended so long after [`notice_interrupts`] noticed a signal is ended by that signal: it
/// waits for somebody who may never answer.
pub fn end_after(patience_s: u32) {
    handle(libc::SIGALRM, give_up, libc::SA_RESTART);
    PATIENCE_S.store(patience_s, Relaxed);
    if was_interrupted() {
        // SAFETY: a system call without memory.
        unsafe { libc::alarm(patience_s) };
    }
}

/// The file of [`RemovedWhenEnded`], a C string that lasts as long as the process.
static UNFINISHED: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn remove_and_end(signal: i32) {
    let path = UNFINISHED.load(Acquire);
    if !path.is_null() {
        // SAFETY: may be called in a handler; the string lasts.
        unsafe { libc::unlink(path) };
    }
    // SAFETY: may be called in a handler. The signal's own is reset, so that it ends the process when this one returns.
    unsafe { libc::raise(signal) };
}

/// A file that goes with this value, or when SIGINT, SIGTERM or SIGHUP ends the process, unless it has another name by then.
/// There is one at a time.
pub struct RemovedWhenEnded(PathBuf);

impl RemovedWhenEnded {
    /// From now on.
    pub fn new(path: &Path) -> RemovedWhenEnded {
        // A path with a zero byte is none of a file.
        if let Ok(path) = CString::new(path.as_os_str().as_bytes()) {
            // Given up: a handler may have it at any time.
            UNFINISHED.store(path.into_raw(), Release);
            for signal in ENDING.into_iter().filter(|signal| !is_ignored(*signal)) {
                handle(signal, remove_and_end, libc::SA_RESETHAND | libc::SA_RESTART);
            }
        }
        RemovedWhenEnded(path.to_path_buf())
    }
}

impl Drop for RemovedWhenEnded {
    fn drop(&mut self) {
        UNFINISHED.store(std::ptr::null_mut(), Release);
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Exit status of a command that the signal ended, as shells have it.
pub fn status_of_interrupt() -> u8 {
    128 + FIRST.load(Relaxed) as u8
}

/// Whether the user wants the command to end.
pub fn was_interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}

/// A signal that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedSignal {
    /// Which.
    pub signal: i32,
    /// Whether a process sent it to this one alone, rather than the terminal to the whole group.
    pub sent: bool,
}

/// Signals that are blocked and read from a queue instead. To be made before any thread is, so that no thread takes
/// one of them.
pub struct Queue {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Queue {
    /// Blocks the ending signals, SIGQUIT, SIGUSR1, SIGUSR2 and SIGCHLD. Those that are ignored stay ignored: the queue would
    /// get them when they are blocked.
    pub fn block() -> Result<Queue, CliError> {
        Queue::made().map_err(of_this_process)
    }

    fn made() -> io::Result<Queue> {
        // SAFETY: all-zero sigsets are valid, every pointer is to a local that outlives the calls, and the new
        // descriptor has no other owner.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            let others = [libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
            for signal in ENDING.into_iter().chain(others).filter(|signal| !is_ignored(*signal)) {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            let code = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Queue { fd: OwnedFd::from_raw_fd(fd), before })
        }
    }

    /// What a child must call between fork and exec to get the signals that this process had not blocked before.
    pub fn unblock_in_child(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let before = self.before;
        move || {
            // SAFETY: the set is a valid copy; the call is safe after fork.
            match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) }
            {
                0 => Ok(()),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
    }

    /// Does something during which signals have their usual effect. Threads that begin in it take signals for good, so none may.
    pub fn unblocked<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut blocked = self.before;
        // SAFETY: both sets are valid and outlive the calls, which do not fail with them.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, &raw mut blocked) };
        let done = work();
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut()) };
        done
    }

    /// Whether a signal to end comes in time.
    pub fn ends_within(&self, patience: Duration) -> Result<bool, CliError> {
        let came = self.next(patience).map_err(of_this_process)?;
        Ok(came.is_some_and(|came| ENDING.contains(&came.signal)))
    }

    /// The next signal; `None` when none comes in time.
    pub fn next(&self, patience: Duration) -> io::Result<Option<ReceivedSignal>> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let millis = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one pollfd, valid for the call.
        if unsafe { libc::poll(&raw mut poll, 1, millis) } < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(None) } else { Err(error) };
        }
        // SAFETY: an all-zero signalfd_siginfo is valid, and the read is of its size.
        let (n, info) = unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            (libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size), info)
        };
        if n != size_of::<libc::signalfd_siginfo>() as isize {
            return Ok(None);
        }
        let by_process = matches!(info.ssi_code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL);
        Ok(Some(ReceivedSignal { signal: info.ssi_signo as i32, sent: by_process }))
    }
}

/// Sends a signal to a child.
pub fn send(pid: u32, signal: i32) {
    // SAFETY: a system call on numbers; the child is not yet waited for, so the number is still its own.
    unsafe { libc::kill(pid as i32, signal) };
}

fn of_this_process(error: io::Error) -> CliError {
    CliError::io("signals of", Path::new("this process"), error)
}
