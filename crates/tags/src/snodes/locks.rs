//! Who may change which s-node: one transaction at a time, held until it ends (strict two-phase locking), so that
//! transactions are serialisable.
//!
//! A wait has a limit. One that would close a circle is refused at once: a thread waits for one s-node at most, so circles
//! are looked for from thread to thread, and a thread that waits for a transaction of its own is the shortest of them.
//! Who comes to a lock that is free takes it, unless somebody has waited for it for long.

use crate::error::{Error, Result};
use crate::ids::HomeId;
use crate::sync::{Condvar, Mutex, ThreadId};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so long nobody takes a lock before who waits for it. To hand it on each time would cost a change of threads each time.
const PASSED_OVER_MAX: Duration = Duration::from_millis(10);

/// The locks on s-nodes.
#[derive(Default)]
pub(crate) struct SnodeLocks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The thread that used the holder last.
    held: FxHashMap<HomeId, ThreadId>,
    /// Who waits, in the order in which they came. A thread waits once.
    waiting: Vec<Arc<Waiter>>,
}

struct Waiter {
    thread: ThreadId,
    snode: HomeId,
    since: Instant,
    called: Condvar,
}

impl State {
    /// Who has waited for a lock for longest.
    fn first(&self, snode: HomeId) -> Option<&Waiter> {
        self.waiting.iter().map(AsRef::as_ref).find(|waiter| waiter.snode == snode)
    }

    /// Whether `thread` may take a lock now.
    fn is_free(&self, snode: HomeId, thread: ThreadId) -> bool {
        let may_pass = |first: &Waiter| first.thread == thread || first.since.elapsed() < PASSED_OVER_MAX;
        !self.held.contains_key(&snode) && self.first(snode).is_none_or(may_pass)
    }

    /// Refuses a wait of `thread` that would be for itself.
    fn check_circle(&self, thread: ThreadId, snode: HomeId) -> Result<()> {
        let mut wanted = snode;
        while let Some(owner) = self.held.get(&wanted) {
            if *owner == thread && wanted == snode {
                return Err(Error::WaitsForItself(snode.into()));
            }
            if *owner == thread {
                return Err(Error::Deadlock(snode.into()));
            }
            let Some(next) = self.waiting.iter().find(|waiter| waiter.thread == *owner) else { break };
            wanted = next.snode;
        }
        Ok(())
    }

    /// Lets who has waited for a lock for longest look whether it is free.
    fn call_next(&self, snode: HomeId) {
        if let Some(first) = self.first(snode) {
            first.called.notify_all();
        }
    }
}

impl SnodeLocks {
    /// Takes the lock of `snode` for a transaction that `thread` uses and that does not hold it; waits for at most `limit`.
    ///
    /// # Errors
    /// [`Error::WaitsForItself`], [`Error::Deadlock`], [`Error::LockTimeout`].
    pub(crate) fn take(&self, thread: ThreadId, snode: HomeId, limit: Duration) -> Result<()> {
        let mut state = self.state.lock();
        if !state.is_free(snode, thread) {
            state.check_circle(thread, snode)?;
            let (since, called) = (Instant::now(), Condvar::new());
            let waiter = Arc::new(Waiter { thread, snode, since, called });
            state.waiting.push(waiter.clone());
            let until = waiter.since.checked_add(limit);
            let is_taken = loop {
                let is_over = match until {
                    Some(until) => waiter.called.wait_until(&mut state, until).timed_out(),
                    None => {
                        waiter.called.wait(&mut state);
                        false
                    }
                };
                if state.is_free(snode, thread) {
                    break true;
                }
                if is_over {
                    break false;
                }
            };
            state.waiting.retain(|other| other.thread != thread);
            if !is_taken {
                // It may have been called, and be the only one.
                state.call_next(snode);
                return Err(Error::LockTimeout { snode: snode.into(), waited: waiter.since.elapsed() });
            }
        }
        state.held.insert(snode, thread);
        Ok(())
    }

    /// Notes that another thread uses the transaction that holds these locks.
    pub(crate) fn hand_over(&self, snodes: &[HomeId], thread: ThreadId) {
        let mut state = self.state.lock();
        snodes.iter().for_each(|snode| _ = state.held.insert(*snode, thread));
    }

    /// Gives locks back.
    pub(crate) fn release(&self, snodes: &[HomeId]) {
        let mut state = self.state.lock();
        for snode in snodes {
            state.held.remove(snode);
            state.call_next(*snode);
        }
    }
}
