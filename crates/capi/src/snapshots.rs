//! Committed states that are read while others commit.

use crate::error::{Failure, bad, exports};
use crate::handle::{bytes, give, handle, put, take};
use crate::maps::{WeftBtree, WeftKv, put_pair};
use crate::store::{WeftTags, copy_out, forever};
use std::ops::Bound;
use std::sync::Arc;
use weft_tags::{Direction, NodeId, NodeType, Snapshot, Store};

/// The state of a tag store between two commits.
pub struct WeftSnapshot {
    // Dropped before the store it borrows from.
    snapshot: Snapshot<'static>,
    store: Arc<Store>,
}

impl WeftSnapshot {
    /// The snapshot, for what is in the same store.
    fn of(&self, store: &Arc<Store>) -> Result<&Snapshot<'static>, Failure> {
        if !Arc::ptr_eq(&self.store, store) {
            let text = "the snapshot is of another store; pass one of the store that is read";
            return Err(bad(text.into()));
        }
        Ok(&self.snapshot)
    }
}

exports! {
    /// Begins a snapshot: the last committed state, to be read while others commit, until weft_snapshot_end. What is changed
    /// meanwhile is copied; when that takes more than half of the cache the oldest snapshot is lost, and its reads say so.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_snapshot_begin(tags: *const WeftTags, out: *mut *mut WeftSnapshot) {
        let store = handle(tags, "tags")?.0.clone();
        // SAFETY: what borrows is dropped before the copy beside it.
        let snapshot = forever(&store).snapshot();
        give(WeftSnapshot { snapshot, store }, out)
    }

    /// Ends a snapshot.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_snapshot_end(snapshot: *mut WeftSnapshot) -> () {
        drop(take(snapshot))
    }

    /// As weft_node_data, in a snapshot.
    ///
    /// # Safety
    /// The handle is open; `data` has room for `capacity` bytes; `data_bytes` can be written.
    fn weft_node_data_at(
        snapshot: *const WeftSnapshot,
        node: u64,
        kind: u32,
        data: *mut u8,
        capacity: usize,
        data_bytes: *mut usize,
    ) {
        let snapshot = &handle(snapshot, "snapshot")?.snapshot;
        let found = snapshot.read_node(NodeId(node), NodeType(kind))?;
        copy_out(&found, data, capacity, data_bytes)
    }

    /// As weft_kv_get, in a snapshot.
    ///
    /// # Safety
    /// The handles are open; `key` has so many bytes, `value` room for `capacity`; `value_bytes` can be written.
    fn weft_kv_get_at(
        kv: *const WeftKv,
        snapshot: *const WeftSnapshot,
        key: *const u8,
        key_bytes: usize,
        value: *mut u8,
        capacity: usize,
        value_bytes: *mut usize,
    ) {
        let (kv, snapshot) = (handle(kv, "kv")?, handle(snapshot, "snapshot")?);
        let key = bytes(key, key_bytes)?;
        let found = kv.kv.at(snapshot.of(&kv.store)?)?.get(key)?.ok_or(Failure::NoSuchKey)?;
        copy_out(&found, value, capacity, value_bytes)
    }

    /// As weft_kv_count, in a snapshot.
    ///
    /// # Safety
    /// The handles are open; `out` can be written.
    fn weft_kv_count_at(kv: *const WeftKv, snapshot: *const WeftSnapshot, out: *mut u64) {
        let (kv, snapshot) = (handle(kv, "kv")?, handle(snapshot, "snapshot")?);
        let keys = kv.kv.at(snapshot.of(&kv.store)?)?.count()?;
        put(keys, out)
    }

    /// As weft_btree_get, in a snapshot.
    ///
    /// # Safety
    /// The handles are open; `key` has so many bytes, `value` room for `capacity`; `value_bytes` can be written.
    fn weft_btree_get_at(
        tree: *const WeftBtree,
        snapshot: *const WeftSnapshot,
        key: *const u8,
        key_bytes: usize,
        value: *mut u8,
        capacity: usize,
        value_bytes: *mut usize,
    ) {
        let (tree, snapshot) = (handle(tree, "tree")?, handle(snapshot, "snapshot")?);
        let key = bytes(key, key_bytes)?;
        let found = tree.tree.at(snapshot.of(&tree.store)?)?.get(key)?.ok_or(Failure::NoSuchKey)?;
        copy_out(&found, value, capacity, value_bytes)
    }

    /// As weft_btree_next, in a snapshot.
    ///
    /// # Safety
    /// The handles are open; `key` is null or has so many bytes; the outs have room as said.
    fn weft_btree_next_at(
        tree: *const WeftBtree,
        snapshot: *const WeftSnapshot,
        key: *const u8,
        key_bytes: usize,
        down: u32,
        next: *mut u8,
        next_capacity: usize,
        next_bytes: *mut usize,
        value: *mut u8,
        value_capacity: usize,
        value_bytes: *mut usize,
    ) {
        let (tree, snapshot) = (handle(tree, "tree")?, handle(snapshot, "snapshot")?);
        let from = if key.is_null() { Bound::Unbounded } else { Bound::Excluded(bytes(key, key_bytes)?) };
        let then = tree.tree.at(snapshot.of(&tree.store)?)?;
        let pair = match down {
            0 => then.range::<&[u8]>((from, Bound::Unbounded), Direction::Up)?.next(),
            _ => then.range::<&[u8]>((Bound::Unbounded, from), Direction::Down)?.next(),
        };
        let pair = pair.transpose()?.ok_or(Failure::NoSuchKey)?;
        put_pair(&pair, next, next_capacity, next_bytes, value, value_capacity, value_bytes)
    }

    /// As weft_btree_count, in a snapshot.
    ///
    /// # Safety
    /// The handles are open; `out` can be written.
    fn weft_btree_count_at(tree: *const WeftBtree, snapshot: *const WeftSnapshot, out: *mut u64) {
        let (tree, snapshot) = (handle(tree, "tree")?, handle(snapshot, "snapshot")?);
        let pairs = tree.tree.at(snapshot.of(&tree.store)?)?.count()?;
        put(pairs, out)
    }
}
