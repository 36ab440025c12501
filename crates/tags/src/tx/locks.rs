//! Who may change which s-node: one transaction at a time, held until it ends (strict two-phase locking), so that
//! transactions are serialisable. A wait that would close a circle is refused instead.

use crate::error::{Error, Result};
use crate::ids::SnodeId;
use crate::sync::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::time::Instant;

/// A running transaction.
pub(crate) type TxId = u64;

/// The locks on s-nodes.
#[derive(Default)]
pub(crate) struct SnodeLocks {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    held: FxHashMap<SnodeId, TxId>,
    waits: FxHashMap<TxId, SnodeId>,
}

impl State {
    /// Whether `tx`, waiting for `snode`, would wait for itself.
    fn closes_circle(&self, tx: TxId, snode: SnodeId) -> bool {
        let mut wanted = snode;
        loop {
            match self.held.get(&wanted) {
                Some(owner) if *owner == tx => return true,
                Some(owner) => match self.waits.get(owner) {
                    Some(next) => wanted = *next,
                    None => return false,
                },
                None => return false,
            }
        }
    }
}

impl SnodeLocks {
    /// Takes the lock of `snode` for `tx`, which does not hold it; waits for the holder to end.
    ///
    /// # Errors
    /// [`Error::Deadlock`] when the holder waits for `tx`.
    pub(crate) fn take(&self, tx: TxId, snode: SnodeId) -> Result<()> {
        let mut state = self.state.lock();
        while state.held.contains_key(&snode) {
            if state.closes_circle(tx, snode) {
                return Err(Error::Deadlock(snode));
            }
            state.waits.insert(tx, snode);
            self.released.wait(&mut state);
            state.waits.remove(&tx);
        }
        state.held.insert(snode, tx);
        Ok(())
    }

    /// As [`SnodeLocks::take`], but waits until `until` at most. Whether the lock was taken.
    pub(crate) fn take_until(&self, tx: TxId, snode: SnodeId, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.held.contains_key(&snode) {
            // Who holds nothing closes no circle.
            if self.released.wait_until(&mut state, until).timed_out() && state.held.contains_key(&snode) {
                return false;
            }
        }
        state.held.insert(snode, tx);
        true
    }

    /// Gives locks back.
    pub(crate) fn release(&self, snodes: &[SnodeId]) {
        let mut state = self.state.lock();
        for snode in snodes {
            state.held.remove(snode);
        }
        self.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_closes_a_circle_is_refused() {
        let locks = std::sync::Arc::new(SnodeLocks::default());
        let (a, b) = (SnodeId(1), SnodeId(2));
        locks.take(1, a).unwrap();
        locks.take(2, b).unwrap();
        let other = std::thread::spawn({
            let locks = locks.clone();
            move || {
                locks.take(1, b).unwrap();
                locks.release(&[a, b]);
            }
        });
        while locks.state.lock().waits.is_empty() {
            std::thread::yield_now();
        }
        assert!(matches!(locks.take(2, a), Err(Error::Deadlock(snode)) if snode == a));
        locks.release(&[b]);
        other.join().unwrap();
        locks.take(2, a).unwrap();
    }
}
