//! Syncs of an image that threads share, and what becomes of one that fails.
//!
//! Threads that work on LUNs of their own have one file, and an erase or a program that is to be durable syncs it. The first that
//! wants a sync makes it; who comes while it is under way waits for its end and for the next one. Threads that shared a sync mostly
//! want the next one together, too, so whoever makes it waits a little for as many as there were. Waiting costs at most half of a sync,
//! and not again for some syncs when it was in vain.
//!
//! **A sync that fails** is the last one. The kernel then takes what it could not write for written, and a later sync that succeeds says
//! nothing about it.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
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
    failed: AtomicBool,
    rounds: Mutex<Rounds>,
    /// Threads that wait since the last end of a sync. Changed under the lock.
    waiting: AtomicU32,
    ended: Condvar,
}

/// The sync that is under way, if one is, and what the last one was like.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    under_way: bool,
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

    /// Whether a sync has failed. None is made any more.
    pub(crate) fn have_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// What was written is not to be believed: as after a sync that failed.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Release);
    }

    /// Sees to it that what has been written by now is durable. `sync` gets the number of the last write that it covers.
    ///
    /// # Errors
    /// That of `sync`, for the thread that made it; `refused` for all others from then on.
    pub(crate) fn sync<E>(
        &self,
        sync: impl FnOnce(u64) -> Result<(), E>,
        refused: impl FnOnce() -> E,
    ) -> Result<(), E> {
        let wanted = self.done.load(Acquire);
        let mut rounds = self.rounds.lock();
        loop {
            if self.synced() >= wanted {
                return Ok(());
            }
            if self.have_failed() {
                return Err(refused());
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
        let (covered, begun) = (self.done.load(Acquire), Instant::now());
        let result = sync(covered);
        match &result {
            Ok(()) => {
                self.synced.fetch_max(covered, Release);
            }
            Err(_) => self.fail(),
        }
        let mut rounds = self.rounds.lock();
        assert!(rounds.under_way, "a sync ends that is not under way");
        *rounds = Rounds {
            under_way: false,
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
        let never = |_| Err("a sync");
        let refused = || "refused";
        assert_eq!(writes.sync(never, refused), Ok(()), "nothing was written");
        writes.add();
        let beside = |_| {
            // Written while the file is synced: that sync may have missed it.
            writes.add();
            Ok(())
        };
        writes.sync(beside, refused).unwrap();
        assert_eq!(writes.synced(), 1);
        assert_eq!(writes.sync(never, refused), Err("a sync"), "an old sync does not do");
    }

    #[test]
    fn a_sync_that_failed_is_the_last_one() {
        let writes = Writes::default();
        let refused = || "refused";
        writes.add();
        writes.sync(|_| Ok(()), refused).unwrap();
        assert!(!writes.have_failed());
        writes.add();
        assert_eq!(writes.sync(|_| Err("no"), refused), Err("no"));
        assert!(writes.have_failed());
        let late = |_| panic!("it would say nothing");
        assert_eq!(writes.sync(late, refused), Err("refused"));
        writes.add();
        assert_eq!((writes.sync(late, refused), writes.synced()), (Err("refused"), 1));
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
            writes.sync(|_| sync(), || "refused")
        };
        (0..count).map(|_| scope.spawn(write)).collect()
    }

    /// Eight threads that come while the first one's sync is under way. How it ended for each of them, the first one's first; and how
    /// many syncs there were.
    fn share(first: Result<(), &'static str>) -> (Vec<Result<(), &'static str>>, u64) {
        let (writes, syncs) = (Writes::default(), AtomicU64::new(0));
        let (begun, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        let sync = || match syncs.fetch_add(1, Release) {
            0 => {
                begun.wait();
                go_on.wait();
                first
            }
            _ => Ok(()),
        };
        let ended = std::thread::scope(|scope| {
            let first = writers(scope, &writes, 1, &sync);
            begun.wait();
            let others = writers(scope, &writes, 8, &sync);
            while writes.done.load(Acquire) < 9 {
                std::thread::yield_now();
            }
            go_on.wait();
            first.into_iter().chain(others).map(|thread| thread.join().unwrap()).collect()
        });
        (ended, syncs.load(Acquire))
    }

    #[test]
    fn threads_share_a_sync_and_the_failure_of_one() {
        // All had written before the second began.
        assert_eq!(share(Ok(())), (vec![Ok(()); 9], 2));
        let (ended, syncs) = share(Err("no"));
        assert_eq!((ended[0], syncs), (Err("no"), 1));
        assert!(ended[1..].iter().all(|ended| *ended == Err("refused")));
    }

    #[test]
    fn a_sync_waits_for_those_that_shared_the_last_one_and_not_again_at_once_when_nobody_came() {
        let writes = Writes::default();
        let alone_after = |shared_by, waiting| {
            writes.rounds.lock().shared_by = shared_by;
            writes.waiting.store(waiting, Relaxed);
            writes.add();
            writes.sync(|_| Ok(()), || ()).unwrap();
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
}
