//! Syncs of an image that threads share, and what becomes of one that fails.
//!
//! Threads that work on LUNs of their own have one file, and an erase or a program that is to be durable syncs it. The first that
//! wants a sync makes it; who comes while it is under way waits for its end and for the next one. Threads that shared a sync mostly
//! want the next one together, too, so whoever makes it waits a little for as many as there were. Waiting costs at most half of a sync,
//! and not again for some syncs when it was in vain.
//!
//! **A sync that fails.** The kernel then takes what it could not write for written, and a later sync that succeeds says nothing about
//! it. So what was written since the last good sync is written again, at once, while the kernel still has it; until that has been
//! done, no sync counts.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// For how much of the time of the last sync the maker of the next one waits for others, and for how long at most.
const GATHER_PART: u32 = 2;
const GATHER_MAX: Duration = Duration::from_millis(1);
/// How many syncs after one that waited in vain do not wait.
const ALONE: u32 = 2;

/// Which writes have been synced.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// How many there were.
    done: AtomicU64,
    /// Of these, as many as were there when a sync began that has ended well.
    synced: AtomicU64,
    rounds: Mutex<Rounds>,
    /// Threads that wait since the last end of a sync. Changed under the lock.
    waiting: AtomicU32,
    ended: Condvar,
}

/// The sync that is under way, if one is, and what the last one was like.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    under_way: bool,
    /// A sync failed, and what was written before it has not been written again.
    failed: bool,
    took: Duration,
    /// Threads that waited when it ended.
    shared_by: u32,
    /// Syncs that are to wait for nobody, since nobody came to one that did.
    alone: u32,
}

impl Writes {
    /// Something has been written. Returns its number.
    pub(crate) fn add(&self) -> u64 {
        // Pairs with the load below: who has seen the write done syncs it.
        self.done.fetch_add(1, Release) + 1
    }

    /// The last write that is known to be durable, with all before it.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Acquire)
    }

    /// Sees to it that what has been written by now is durable. `sync` gets the number of the last write that it covers. After a sync that failed, `write_again` writes again what is newer than
    /// [`synced`](Self::synced).
    ///
    /// # Errors
    /// Those of `sync` and `write_again`, for the thread that made the sync; others try again themselves.
    pub(crate) fn sync<E>(
        &self,
        sync: impl FnOnce(u64) -> Result<(), E>,
        write_again: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let wanted = self.done.load(Acquire);
        let mut rounds = self.rounds.lock();
        loop {
            if self.synced() >= wanted {
                return Ok(());
            }
            if !rounds.under_way {
                break;
            }
            self.waiting.fetch_add(1, Relaxed);
            self.ended.wait(&mut rounds);
        }
        rounds.under_way = true;
        let last = *rounds;
        drop(rounds);
        let came = self.gather(last);
        let mut result = if last.failed { write_again() } else { Ok(()) };
        let (covered, begun) = (self.done.load(Acquire), Instant::now());
        let mut failed = result.is_err();
        if !failed {
            result = sync(covered);
            failed = result.is_err() && write_again().is_err();
        }
        if result.is_ok() {
            self.synced.fetch_max(covered, Release);
        }
        let mut rounds = self.rounds.lock();
        assert!(rounds.under_way, "a sync ends that is not under way");
        *rounds = Rounds {
            under_way: false,
            failed,
            took: begun.elapsed(),
            // Who waited and is not covered counts itself anew.
            shared_by: self.waiting.swap(0, Relaxed),
            alone: if came { last.alone.saturating_sub(1) } else { ALONE },
        };
        self.ended.notify_all();
        result
    }

    /// Waits for as many threads as shared the last sync, for a part of the time that it took. Whether it was not in vain.
    fn gather(&self, last: Rounds) -> bool {
        if last.alone > 0 {
            return true;
        }
        let (begun, longest) = (Instant::now(), GATHER_MAX.min(last.took / GATHER_PART));
        while self.waiting.load(Relaxed) < last.shared_by {
            if begun.elapsed() >= longest {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_what_was_written_before_it_began_and_no_more() {
        let writes = Writes::default();
        let again = || Ok(());
        let refused = || writes.sync(|_| Err("no"), again);
        assert_eq!(refused(), Ok(()), "nothing was written");
        writes.add();
        assert_eq!(refused(), Err("no"));
        assert_eq!(refused(), Err("no"), "a sync that failed does not count");
        let beside = |_| {
            // Written while the file is synced: that sync may have missed it.
            writes.add();
            Ok::<(), &str>(())
        };
        writes.sync(beside, again).unwrap();
        assert_eq!(refused(), Err("no"), "an old sync does not do");
    }

    /// A thread of its own for each of `count` writers, which write once and sync. What they have done so far.
    fn writers<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        writes: &'s Writes,
        count: usize,
        sync: &'s (impl Fn() -> Result<(), &'static str> + Sync),
    ) -> Vec<std::thread::ScopedJoinHandle<'s, Result<(), &'static str>>> {
        let write = move || {
            writes.add();
            writes.sync(|_| sync(), || Ok(()))
        };
        (0..count).map(|_| scope.spawn(write)).collect()
    }

    #[test]
    fn threads_share_a_sync_and_one_whose_sync_failed_leaves_it_to_the_next() {
        let (writes, syncs) = (Writes::default(), AtomicU64::new(0));
        let (begun, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        // The first fails, after the others have come.
        let sync = || match syncs.fetch_add(1, Release) {
            0 => {
                begun.wait();
                go_on.wait();
                Err("no")
            }
            _ => Ok(()),
        };
        std::thread::scope(|scope| {
            let first = writers(scope, &writes, 1, &sync);
            begun.wait();
            let others = writers(scope, &writes, 8, &sync);
            while writes.done.load(Acquire) < 9 {
                std::thread::yield_now();
            }
            go_on.wait();
            let failed = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().unwrap() == Err("no");
            assert_eq!(first.into_iter().filter_map(|thread| failed(thread).then_some(())).count(), 1);
            assert!(others.into_iter().all(|thread| !failed(thread)));
        });
        // All had written before the second began.
        assert_eq!((syncs.load(Acquire), writes.synced.load(Acquire)), (2, 9));
    }

    #[test]
    fn a_sync_waits_for_those_that_shared_the_last_one_and_not_again_at_once_when_nobody_came() {
        let writes = Writes::default();
        let alone_after = |shared_by, waiting| {
            writes.rounds.lock().shared_by = shared_by;
            writes.waiting.store(waiting, Relaxed);
            writes.add();
            writes.sync(|_| Ok::<(), ()>(()), || Ok(())).unwrap();
            let rounds = *writes.rounds.lock();
            assert_eq!((rounds.under_way, rounds.shared_by), (false, waiting));
            rounds.alone
        };
        assert_eq!(alone_after(0, 0), 0);
        assert_eq!(alone_after(3, 3), 0, "all came");
        assert_eq!(alone_after(3, 2), ALONE, "one did not");
        assert_eq!(alone_after(3, 2), ALONE - 1, "nobody is waited for");
        assert_eq!(alone_after(3, 2), ALONE - 2);
        assert_eq!(alone_after(3, 2), ALONE, "the next one waits again");
    }

    #[test]
    fn after_a_sync_that_failed_none_counts_until_everything_has_been_written_again() {
        let (writes, again, can) = (Writes::default(), AtomicU64::new(0), AtomicU64::new(0));
        let write_again = || {
            again.fetch_add(1, Relaxed);
            if can.load(Relaxed) == 0 { Err("cannot") } else { Ok(()) }
        };
        assert_eq!(writes.add(), 1);
        assert_eq!(writes.sync(|_| Err("no"), write_again), Err("no"));
        assert_eq!(again.load(Relaxed), 1, "at once");
        assert_eq!(writes.sync(|_| panic!("it would say nothing"), write_again), Err("cannot"));
        assert_eq!((again.load(Relaxed), writes.synced()), (2, 0));
        can.store(1, Relaxed);
        assert_eq!(writes.sync(|_| Ok(()), write_again), Ok(()));
        assert_eq!((again.load(Relaxed), writes.synced()), (3, 1));
        // One that failed and whose data was written again at once is over.
        writes.add();
        assert_eq!(writes.sync(|_| Err("no"), write_again), Err("no"));
        assert_eq!(writes.sync(|_| Ok(()), write_again), Ok(()));
        assert_eq!((again.load(Relaxed), writes.synced()), (4, 2));
    }
}
