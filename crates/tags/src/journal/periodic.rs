//! Periodic durability: a thread of the store syncs the commits that did not wait for it.
//!
//! A commit says how long it may wait. The thread sleeps to the earliest of these times and syncs once for all that
//! wait; commits that are durable by then, by another's sync or a checkpoint, cost nothing. It is started by the first
//! such commit and ends with the store, after a last sync if somebody still waits.
//!
//! Locks: [`Shared::state`] is taken after all others and never held during a sync; the thread itself for [`Periodic::thread`].

use super::log::Journal;
use crate::error::{Error, Result};
use crate::page_store::PageStore;
use crate::sync::{Condvar, JoinHandle, Mutex, spawn};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_sys::fork::Process;

/// Makes commits durable some time after they have returned.
#[derive(Default)]
pub(crate) struct Periodic {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: Process,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Waiting,
    ends: bool,
    syncing: bool,
    /// Why a sync failed, until somebody was told.
    failure: Option<Error>,
}

/// The commits that wait for a sync.
#[derive(Default)]
struct Waiting {
    /// When the first of them has waited long enough; `None` when there are none.
    due: Option<Instant>,
    /// The last of them.
    lsn: u64,
}

impl Waiting {
    /// Whether the time of the next sync has come nearer.
    fn add(&mut self, lsn: u64, until: Instant) -> bool {
        self.lsn = self.lsn.max(lsn);
        let is_first = self.due.is_none_or(|due| until < due);
        if is_first {
            self.due = Some(until);
        }
        is_first
    }
}

impl Periodic {
    /// Sees to it that the journal up to `lsn` is durable `after` from now, plus the time that the sync takes.
    ///
    /// # Errors
    /// None but where no thread can be made: then the sync is done at once, with its errors.
    pub(crate) fn sync_after(
        &self,
        after: Duration,
        lsn: u64,
        journal: &Arc<Journal>,
        medium: &Arc<dyn PageStore>,
    ) -> Result<()> {
        let until = Instant::now() + after;
        if self.shared.state.lock().waiting.add(lsn, until) {
            self.shared.changed.notify_all();
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (shared, log, blocks) = (self.shared.clone(), journal.clone(), medium.clone());
            match spawn("weft-tags-sync", move || sync_when_due(&shared, &log, &*blocks)) {
                Ok(started) => *thread = Some(started),
                Err(error) => {
                    tracing::warn!(%error, "no thread for commits that are durable later; this one waits");
                    drop(thread);
                    return journal.sync_to(lsn, &**medium);
                }
            }
        }
        Ok(())
    }

    /// The error to report: for the first who finds the store stopped by a sync of the thread, why that failed.
    pub(crate) fn reason(&self, error: Error) -> Error {
        match error {
            Error::Stopped { reason } => {
                let mut state = self.shared.state.lock();
                while state.syncing {
                    self.shared.changed.wait(&mut state);
                }
                state.failure.take().unwrap_or(Error::Stopped { reason })
            }
            error => error,
        }
    }
}

fn sync_when_due(shared: &Shared, journal: &Journal, medium: &dyn PageStore) {
    let mut state = shared.state.lock();
    loop {
        let Some(due) = state.waiting.due else {
            if state.ends {
                return;
            }
            shared.changed.wait(&mut state);
            continue;
        };
        if !state.ends && !shared.changed.wait_until(&mut state, due).timed_out() {
            continue;
        }
        // Who comes from here on waits for the next sync.
        state.waiting.due = None;
        state.syncing = true;
        let lsn = state.waiting.lsn;
        drop(state);
        let done = journal.sync_to(lsn, medium);
        state = shared.state.lock();
        state.syncing = false;
        // Others who failed to write have reported that themselves.
        if let Err(error @ Error::Io { .. }) = done {
            tracing::error!(%error, "the sync for commits that are durable later failed");
            state.failure = Some(error);
        }
        // Somebody may wait for the news.
        shared.changed.notify_all();
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        // A forked child has no such thread.
        if !self.process.is_current() {
            return;
        }
        self.shared.state.lock().ends = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // It does not panic, and what it could not sync it has logged.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_those_who_wait_decides_and_the_last_of_them_is_synced() {
        let now = Instant::now();
        let ms = |ms| now + Duration::from_millis(ms);
        let mut waiting = Waiting::default();
        assert!(waiting.add(5, ms(50)));
        assert!(!waiting.add(6, ms(70)), "later than the first: nobody has to be woken");
        assert!(waiting.add(7, ms(20)));
        assert!(!waiting.add(4, ms(60)), "commits may come in another order than their numbers");
        assert_eq!((waiting.due, waiting.lsn), (Some(ms(20)), 7));
    }
}
