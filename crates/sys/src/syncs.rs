//! Syncs of one file by several threads, none of which misses an error.
//!
//! The kernel tells of a write that failed in the background once for each opening of the file, to the sync that asks
//! first. Of two syncs of one opening at the same time the other one succeeds, whatever has become of the data that it was to make durable. So
//! each has an opening of its own, and none succeeds any more once one has failed: what was lost is not written again.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Syncs at the same time, at most.
const AT_ONCE: usize = 4;

/// What syncs a file.
#[derive(Debug)]
pub struct Syncs {
    free: Mutex<Vec<File>>,
    freed: Condvar,
    has_failed: AtomicBool,
}

impl Syncs {
    /// For a file that is open. Where it cannot be opened again (without `/proc`), syncs wait for each other.
    ///
    /// # Errors
    /// Those of a copy of the descriptor.
    pub fn of(file: &File) -> io::Result<Syncs> {
        let again = || File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Before anything is written by this user: an opening knows of no error before it.
        let openings: io::Result<Vec<File>> = (0..AT_ONCE).map(|_| again()).collect();
        let openings = openings.or_else(|_| Ok::<_, io::Error>(vec![file.try_clone()?]))?;
        Ok(Syncs { free: Mutex::new(openings), freed: Condvar::new(), has_failed: AtomicBool::new(false) })
    }

    /// Makes durable what was written before.
    ///
    /// # Errors
    /// What the kernel reports; after the first error, each sync fails.
    pub fn sync_data(&self) -> io::Result<()> {
        self.sync_by(File::sync_data)
    }

    fn sync_by(&self, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let opening = loop {
            match free.pop() {
                Some(opening) => break opening,
                None => free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(free);
        let done = sync(&opening);
        if done.is_err() {
            // Before somebody else has the opening, of which the kernel has told.
            self.has_failed.store(true, Ordering::SeqCst);
        }
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(opening);
        self.freed.notify_one();
        match done {
            Ok(()) if self.has_failed.load(Ordering::SeqCst) => {
                Err(io::Error::other("a sync before has failed, and what it was to make durable may be lost"))
            }
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::thread;

    /// What the kernel does: a failed write is told of once to each opening.
    #[derive(Default)]
    struct Kernel {
        openings: BTreeSet<i32>,
        untold: Mutex<BTreeSet<i32>>,
    }

    impl Kernel {
        fn of(syncs: &Syncs) -> Kernel {
            let openings = syncs.free.lock().unwrap().iter().map(File::as_raw_fd).collect();
            Kernel { openings, untold: Mutex::default() }
        }

        fn lose_a_write(&self) {
            *self.untold.lock().unwrap() = self.openings.clone();
        }

        fn sync(&self, opening: &File) -> io::Result<()> {
            match self.untold.lock().unwrap().remove(&opening.as_raw_fd()) {
                true => Err(io::Error::from_raw_os_error(libc::EIO)),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn no_sync_that_ends_after_a_write_was_lost_succeeds() {
        let file = tempfile::tempfile().unwrap();
        let syncs = Syncs::of(&file).unwrap();
        syncs.sync_data().unwrap();
        let kernel = Kernel::of(&syncs);
        assert_eq!(kernel.openings.len(), AT_ONCE);
        syncs.sync_by(|opening| kernel.sync(opening)).unwrap();
        thread::scope(|scope| {
            let (go, begun) = (mpsc::channel::<()>(), mpsc::channel());
            let (syncs, kernel) = (&syncs, &kernel);
            let older = scope.spawn(move || {
                syncs.sync_by(|opening| {
                    begun.0.send(()).unwrap();
                    go.1.recv().unwrap();
                    kernel.sync(opening)
                })
            });
            begun.1.recv().unwrap();
            kernel.lose_a_write();
            // The newer one is told first, and nobody knows of that yet.
            let newer = syncs.sync_by(|opening| {
                let told = kernel.sync(opening);
                go.0.send(()).unwrap();
                assert!(older.join().unwrap().is_err(), "the older one has lost something, too");
                told
            });
            assert_eq!(newer.unwrap_err().raw_os_error(), Some(libc::EIO));
        });
        for _ in 0..2 * AT_ONCE {
            let later = syncs.sync_by(|opening| kernel.sync(opening));
            assert!(later.is_err(), "what was lost is lost for later ones, too");
        }
    }

    #[test]
    fn more_syncs_than_openings_wait_for_each_other() {
        let file = tempfile::tempfile().unwrap();
        let syncs = Syncs::of(&file).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 * AT_ONCE {
                scope.spawn(|| (0..100).for_each(|_| syncs.sync_data().unwrap()));
            }
        });
        assert_eq!(syncs.free.lock().unwrap().len(), AT_ONCE);
    }
}
