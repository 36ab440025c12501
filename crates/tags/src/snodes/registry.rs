//! Which s-nodes there are.
//!
//! An s-node that a transaction has made is here from then on, so that its nodes have a place, but is visible only with
//! the commit. The id of one that is gone is given out again when the commit that deleted it is durable, no
//! transaction is open that began before it, and no reader has a hold of it: until then nobody can take an
//! old id for a new one.

use super::eras::Eras;
use crate::error::{Error, Result};
use crate::hash::Secret;
use crate::ids::{NodeId, SnodeId};
use crate::partition::Partition;
use crate::sync::{Mutex, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// An s-node's share, as it is handed out.
pub(crate) type Share = Arc<RwLock<Partition>>;

/// The s-nodes of an open store.
pub(crate) struct Registry {
    map: RwLock<FxHashMap<SnodeId, Entry>>,
    ids: Mutex<Ids>,
    eras: Eras,
}

struct Entry {
    share: Share,
    visible: bool,
}

#[derive(Default)]
struct Ids {
    /// The id that was given out last; the search goes on behind it, so that an id rests as long as can be.
    last: u16,
    retired: Vec<Retired>,
}

struct Retired {
    id: SnodeId,
    /// The commit that deleted it.
    lsn: u64,
    era: u64,
    share: Share,
}

impl Registry {
    pub(crate) fn new() -> Registry {
        Registry { map: RwLock::default(), ids: Mutex::default(), eras: Eras::default() }
    }

    /// Adds an s-node that is committed.
    pub(crate) fn insert(&self, id: SnodeId, root: NodeId, secret: Secret) {
        let share = Arc::new(RwLock::new(Partition::new(id, root, secret)));
        self.map.write().insert(id, Entry { share, visible: true });
        let mut ids = self.ids.lock();
        ids.last = ids.last.max(id.0);
    }

    /// Takes an s-node out of a store that is being opened.
    pub(crate) fn remove(&self, id: SnodeId) {
        self.map.write().remove(&id);
    }

    /// The share of an s-node, visible or not.
    #[inline]
    pub(crate) fn find(&self, id: SnodeId) -> Option<Share> {
        self.map.read().get(&id).map(|entry| entry.share.clone())
    }

    /// The share of an s-node that is committed.
    pub(crate) fn find_visible(&self, id: SnodeId) -> Option<Share> {
        self.map.read().get(&id).filter(|entry| entry.visible).map(|entry| entry.share.clone())
    }

    /// Whether the s-node is committed.
    #[inline]
    pub(crate) fn is_visible(&self, id: SnodeId) -> bool {
        self.map.read().get(&id).is_some_and(|entry| entry.visible)
    }

    /// The shares of all s-nodes, visible or not.
    pub(crate) fn all(&self) -> Vec<Share> {
        self.map.read().values().map(|entry| entry.share.clone()).collect()
    }

    /// The shares of all s-nodes that are committed.
    pub(crate) fn visible(&self) -> FxHashMap<SnodeId, Share> {
        let map = self.map.read();
        map.iter().filter(|(_, entry)| entry.visible).map(|(id, entry)| (*id, entry.share.clone())).collect()
    }

    /// The s-nodes that are committed, in the order of their ids.
    pub(crate) fn ids(&self) -> Vec<SnodeId> {
        let map = self.map.read();
        let mut ids: Vec<_> = map.iter().filter(|(_, entry)| entry.visible).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Makes an s-node that is not visible yet and has no root; `durable` is the last commit that is.
    ///
    /// # Errors
    /// [`Error::Full`] when all ids are taken.
    pub(crate) fn reserve(&self, secret: Secret, durable: u64) -> Result<SnodeId> {
        let mut ids = self.ids.lock();
        (0..2).for_each(|_| self.eras.advance());
        // Nobody can find a retired share any more, so one that has no other owner now never will.
        ids.retired.retain_mut(|old| {
            let is_free =
                old.lsn <= durable && self.eras.is_past(old.era) && Arc::get_mut(&mut old.share).is_some();
            !is_free
        });
        let resting: FxHashSet<SnodeId> = ids.retired.iter().map(|old| old.id).collect();
        let mut map = self.map.write();
        let first = ids.last.wrapping_add(1);
        let free = (0..=u16::MAX)
            .map(|step| SnodeId(first.wrapping_add(step)))
            .find(|id| id.0 != 0 && !map.contains_key(id) && !resting.contains(id));
        let Some(id) = free else { return Err(Error::Full { what: "ids of s-nodes" }) };
        ids.last = id.0;
        let share = Arc::new(RwLock::new(Partition::new(id, NodeId(0), secret)));
        map.insert(id, Entry { share, visible: false });
        Ok(id)
    }

    /// Makes an s-node visible: it is committed.
    pub(crate) fn publish(&self, id: SnodeId) {
        if let Some(entry) = self.map.write().get_mut(&id) {
            entry.visible = true;
        }
    }

    /// Takes an s-node away whose pages are gone, by the commit `lsn`, or 0 for one that was never committed.
    pub(crate) fn retire(&self, id: SnodeId, lsn: u64) {
        let mut ids = self.ids.lock();
        let Some(entry) = self.map.write().remove(&id) else { return };
        // The era is read after the removal: who cannot find the s-node any more does not matter.
        ids.retired.push(Retired { id, lsn, era: self.eras.now(), share: entry.share });
    }

    /// Counts a transaction; returns the era to leave.
    #[inline]
    pub(crate) fn enter(&self) -> u64 {
        self.eras.enter()
    }

    /// A transaction has ended.
    #[inline]
    pub(crate) fn leave(&self, era: u64) {
        self.eras.leave(era);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_rests_until_its_deletion_is_durable_and_nobody_is_left_from_before() {
        let registry = Registry::new();
        let secret = Secret(1, 2);
        // All ids but one are in use.
        for id in 1..u16::MAX {
            registry.insert(SnodeId(id), NodeId(0), secret);
        }
        let only = registry.reserve(secret, 0).unwrap();
        assert_eq!((only, registry.is_visible(only)), (SnodeId(u16::MAX), false));
        assert!(matches!(registry.reserve(secret, 0), Err(Error::Full { .. })));
        registry.publish(only);
        assert!(registry.is_visible(only));
        let open = registry.enter();
        let reader = registry.find(only).unwrap();
        registry.retire(only, 10);
        assert!(registry.find(only).is_none());
        assert!(
            registry.reserve(secret, 9).is_err(),
            "a transaction is open, a reader has it, it is not durable"
        );
        registry.leave(open);
        assert!(registry.reserve(secret, 9).is_err(), "a reader has it, it is not durable");
        drop(reader);
        assert!(registry.reserve(secret, 9).is_err(), "it is not durable");
        assert_eq!(registry.reserve(secret, 10).unwrap(), only);
    }
}
