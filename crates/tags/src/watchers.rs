//! Caches of node ids and the nodes that are deleted: another node may reuse the place of a deleted one, so every cache must forget it first.

use crate::ids::NodeId;
use crate::sync::RwLock;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A cache that holds the ids of nodes.
pub(crate) trait NodeWatcher: Send + Sync {
    /// Forgets a node.
    fn forget(&self, node: NodeId);
}

/// The caches of a store.
#[derive(Default)]
pub(crate) struct Watchers {
    open: AtomicUsize,
    all: RwLock<Vec<Weak<dyn NodeWatcher>>>,
}

impl Watchers {
    /// Adds a cache; it leaves when it is dropped.
    pub(crate) fn add(&self, watcher: Weak<dyn NodeWatcher>) {
        let mut all = self.all.write();
        all.retain(|known| known.strong_count() > 0);
        all.push(watcher);
        self.open.store(all.len(), Ordering::Release);
    }

    /// Makes all caches forget a node. The caller holds the lock of its s-node, and has not freed the place yet.
    #[inline]
    pub(crate) fn forget(&self, node: NodeId) {
        if self.open.load(Ordering::Acquire) > 0 {
            self.forget_in_all(node);
        }
    }

    #[cold]
    fn forget_in_all(&self, node: NodeId) {
        self.all.read().iter().filter_map(Weak::upgrade).for_each(|known| known.forget(node));
    }
}
