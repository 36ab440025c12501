//! Whether this process is a child of the one that something was made in.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many forks lie between this process and the one that has loaded this code.
static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
}

/// The process that this was made in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u64);

impl Default for Process {
    fn default() -> Process {
        Process::current()
    }
}

impl Process {
    /// This process. Forks are counted from now on.
    pub fn current() -> Process {
        static COUNTED: Once = Once::new();
        COUNTED.call_once(|| {
            // SAFETY: the function does nothing that a child may not do. Without memory for it the child is not told apart.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        Process(FORKS.load(Relaxed))
    }

    /// Whether this is the process, and not a forked child of it.
    #[inline]
    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Relaxed)
    }

    /// Refuses a forked child.
    ///
    /// # Errors
    /// One that says so.
    pub fn check(self) -> io::Result<()> {
        match self.is_current() {
            true => Ok(()),
            false => Err(io::Error::other("it was opened before this process was forked")),
        }
    }
}
