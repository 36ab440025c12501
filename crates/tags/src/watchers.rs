//! Who is told of nodes that go: a node's place may be given to another node, and nobody's knowledge of it may lead there.

use crate::ids::NodeId;
use crate::sync::RwLock;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What knows nodes.
pub(crate) trait Knows: Send + Sync {
    /// Forgets a node.
    fn forget(&self, node: NodeId);
}

/// All that know nodes of a store.
#[derive(Default)]
pub(crate) struct Watchers {
    open: AtomicUsize,
    all: RwLock<Vec<Weak<dyn Knows>>>,
}

impl Watchers {
    /// Adds one, for as long as it is there.
    pub(crate) fn add(&self, knows: Weak<dyn Knows>) {
        let mut all = self.all.write();
        all.retain(|known| known.strong_count() > 0);
        all.push(knows);
        self.open.store(all.len(), Ordering::Release);
    }

    /// Lets nobody know a node any more. Called by who holds the lock of its s-node, before its place is free.
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
