//! Memory of transactions that have ended, for those that begin.
//!
//! A batch of a thousand pairs takes a fifth of a megabyte of lists. Asked for anew each time, they come from the allocator's arenas and
//! go back to them, which threads wait for each other at: in two threads that insert it was most of what they waited for. Each thread keeps
//! its own, which are in its processor's cache.

use super::write_set::WriteSet;
use crate::ids::NodeId;
use std::cell::RefCell;

/// Sets of buffers that a thread keeps: more transactions at once find none.
const KEPT_MAX: usize = 2;
/// What one large transaction has made of a buffer is not kept.
const KEPT_BYTES_MAX: usize = 1 << 18;

/// Lists of a transaction that are empty between its steps.
#[derive(Default)]
pub(crate) struct Buffers {
    /// The entries of its record.
    pub(super) record: Vec<u8>,
    /// Nodes that go with it.
    pub(super) gone: Vec<NodeId>,
    /// For changes of many pairs.
    pub(super) pairs: Pairs,
}

/// What is known of many pairs that are changed.
#[derive(Default)]
pub(crate) struct Pairs {
    /// The hashes of their keys.
    pub hashes: Vec<u64>,
    /// The nodes that the keys lead to, or none.
    pub before: Vec<NodeId>,
    /// The new nodes of those that are put.
    pub nodes: Vec<NodeId>,
}

impl Buffers {
    fn bytes(&self) -> usize {
        let nodes = self.gone.capacity() + self.pairs.before.capacity() + self.pairs.nodes.capacity();
        self.record.capacity() + (nodes + self.pairs.hashes.capacity()) * size_of::<u64>()
    }
}

thread_local! {
    static KEPT: RefCell<Vec<(WriteSet, Buffers)>> = const { RefCell::new(Vec::new()) };
}

/// An empty write set and buffers, used before by this thread or new.
pub(super) fn take() -> (WriteSet, Buffers) {
    let kept = KEPT.try_with(|kept| kept.try_borrow_mut().ok()?.pop());
    kept.ok().flatten().unwrap_or_default()
}

/// Keeps them for the next transaction of this thread.
pub(super) fn keep(set: WriteSet, buffers: Buffers) {
    if set.capacity_bytes() > KEPT_BYTES_MAX || buffers.bytes() > KEPT_BYTES_MAX {
        return;
    }
    let set = set.emptied();
    // A thread that ends keeps nothing.
    let _ = KEPT.try_with(|kept| {
        let Ok(mut kept) = kept.try_borrow_mut() else { return };
        if kept.len() < KEPT_MAX {
            kept.push((set, buffers));
        }
    });
}
