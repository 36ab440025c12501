//! A client that a signal has stopped in the middle of a write, and that ends it because others wait.
//!
//! In the kernel a stop takes effect when the call returns. Here the server sends `SIGCONT`, and the process stops again behind the
//! write. The parent of the process sees that. A `SIGCONT` of somebody else between the server's last look at the process and its
//! second signal cannot be told from the server's own, and is lost.

use crate::state::inodes::Unfinished;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};
use weft_client::shared::channel::{STOP_CAME, STOP_COMES};

/// How long a stopped process may take for a write under a lock of its own.
const SHORT_WRITE: Duration = Duration::from_millis(10);
/// Threads that are looked at for one whose number the process knows otherwise, being in a process namespace of its own.
const TASKS_MAX: usize = 32;

/// A stopped process.
pub struct Stopped {
    pid: u32,
    /// Stands for the process, not for its number.
    handle: OwnedFd,
}

impl Stopped {
    /// The process with this number, when it is stopped, is this user's, and takes the server's signals.
    pub fn find(pid: u32, real_user: u32) -> Option<Stopped> {
        // SAFETY: opens a descriptor; no memory is passed.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return None;
        }
        // SAFETY: just opened, and nobody else's.
        let handle = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let stopped = Stopped { pid, handle };
        // The kernel lets everybody of a session send SIGCONT, but not what has to follow.
        let is_theirs = real_user_of(pid) == Some(real_user) && stopped.send(0);
        (is_theirs && stopped.states().iter().any(State::is_stopped)).then_some(stopped)
    }

    /// It ends the write, and is stopped again then: by itself after a long one, of which `stop_at_end` tells its thread.
    pub fn finish(&self, write: Unfinished<'_>, stop_at_end: &AtomicU64) {
        let thread = write.thread.unwrap_or(0);
        match (thread != 0).then(|| self.task_of(thread)).flatten() {
            Some(task) => self.finish_long(write, u64::from(thread), task, stop_at_end),
            // Between the lock and what tells of the thread, perhaps: then a further look comes soon.
            None => self.finish_short(write),
        }
    }

    fn finish_long(&self, write: Unfinished<'_>, thread: u64, task: u32, stop_at_end: &AtomicU64) {
        let Some(state) = State::of(Path::new(&format!("/proc/{}/task/{task}", self.pid))) else { return };
        stop_at_end.store(STOP_COMES | thread, SeqCst);
        let is_sent = write.goes_on() && state.is_stopped() && self.send(libc::SIGCONT) && {
            // The thread has it blocked. A further SIGCONT, of somebody else, takes it away.
            // SAFETY: sends a signal; no memory is passed.
            unsafe { libc::syscall(libc::SYS_tgkill, self.pid, task, libc::SIGTSTP) == 0 }
        };
        stop_at_end.store(if is_sent { STOP_CAME | thread } else { 0 }, SeqCst);
    }

    fn finish_short(&self, write: Unfinished<'_>) {
        let states = self.states();
        if !write.goes_on() || !states.iter().any(State::is_stopped) || !self.send(libc::SIGCONT) {
            return;
        }
        let begun = Instant::now();
        while write.goes_on() && begun.elapsed() < SHORT_WRITE {
            std::thread::sleep(Duration::from_micros(50));
        }
        self.send(libc::SIGSTOP);
    }

    /// Sends a signal, or with 0 none; whether the process takes it.
    fn send(&self, signal: i32) -> bool {
        let (fd, no_info) = (self.handle.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: a null pointer stands for what the kernel itself would tell.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, no_info, 0) == 0 }
    }

    /// The states of some threads. The first one may have ended long before the others.
    fn states(&self) -> Vec<State> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        tasks
            .into_iter()
            .flatten()
            .flatten()
            .take(TASKS_MAX)
            .filter_map(|task| State::of(&task.path()))
            .collect()
    }

    /// The number by which the server knows a thread, which the process numbers itself.
    fn task_of(&self, thread: u32) -> Option<u32> {
        let all = format!("/proc/{}/task", self.pid);
        let knows_as = |task: u32| -> Option<u32> {
            let status = read(&Path::new(&all).join(task.to_string()).join("status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            line.split_whitespace().last()?.parse().ok()
        };
        if knows_as(thread) == Some(thread) {
            return Some(thread);
        }
        let tasks = std::fs::read_dir(&all).ok()?.flatten().take(TASKS_MAX);
        let numbers = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
        numbers.into_iter().find(|task| knows_as(*task) == Some(thread))
    }
}

/// What the kernel tells of the state of a thread, now and later.
struct State(File);

impl State {
    fn of(task: &Path) -> Option<State> {
        File::open(task.join("stat")).ok().map(State)
    }

    /// Whether a signal has stopped it. A debugger does that in another way, and decides by itself when it goes on.
    fn is_stopped(&self) -> bool {
        let mut stat = [0; 128];
        let len = self.0.read_at(&mut stat, 0).unwrap_or(0);
        let behind_name = stat[..len].rsplit(|byte| *byte == b')').next();
        behind_name.is_some_and(|rest| rest.starts_with(b" T"))
    }
}

/// A file of `/proc`; names in it may be of any bytes.
fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn real_user_of(pid: u32) -> Option<u32> {
    let status = read(Path::new(&format!("/proc/{pid}/status")))?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}
