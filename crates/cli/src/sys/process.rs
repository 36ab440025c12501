//! Processes of this command's own.

use std::io;
use std::time::{Duration, Instant};

/// How long a thread may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A copy of this process; `None` in the copy, its number in the one that goes on.
///
/// # Errors
/// What the system says. A process with several threads is refused: a copy would have but one, and whatever locks the others held.
pub fn fork() -> io::Result<Option<u32>> {
    // A thread that has given its answer takes a moment to end.
    let begun = Instant::now();
    loop {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("{threads} threads run")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: there is no other thread, so that the copy is a whole process.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid as u32)),
    }
}

/// This process gets `signal` when its parent ends.
pub fn end_with_parent(signal: i32) {
    // SAFETY: a system call on numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// With this status.
    Status(u8),
    /// By this signal.
    Signal(i32),
}

/// How a child has ended, if it has.
///
/// # Errors
/// `ECHILD` when it is no child of this process.
pub fn ended(pid: u32) -> io::Result<Option<Ended>> {
    let mut status = 0;
    // SAFETY: the status is a local that outlives the call.
    match unsafe { libc::waitpid(pid as i32, &raw mut status, libc::WNOHANG) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ if libc::WIFSIGNALED(status) => Ok(Some(Ended::Signal(libc::WTERMSIG(status)))),
        _ => Ok(Some(Ended::Status(libc::WEXITSTATUS(status) as u8))),
    }
}
