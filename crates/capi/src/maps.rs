//! Key-value stores and B+trees in a tag store.

use crate::error::{Failure, bad, exports, null};
use crate::handle::{bytes, bytes_mut, give, handle, put, put_unless_null, take, text};
use crate::store::{WeftTags, WeftTx, copy_out, forever};
use std::ffi::c_char;
use std::ops::Bound;
use std::sync::Arc;
use weft_tags::{BTree, BTreeForm, Direction, Kv, KvChange, KvScan, Snapshot, SnodeId, Store};

/// Keys and values of any size.
pub const WEFT_BTREE_BYTES: i32 = 0;
/// Keys of 4 bytes, in the order of big-endian numbers, and values of 8 bytes.
pub const WEFT_BTREE_FIXED: i32 = 1;

/// A key-value store in a tag store.
pub struct WeftKv {
    // Dropped before the store it borrows from.
    pub(crate) kv: Kv<'static>,
    pub(crate) store: Arc<Store>,
}

/// A B+tree in a tag store.
pub struct WeftBtree {
    // Dropped before the store it borrows from.
    pub(crate) tree: BTree<'static>,
    pub(crate) store: Arc<Store>,
}

/// A scan over the pairs of a key-value store.
pub struct WeftKvScan {
    // Dropped in this order: each borrows from the one behind.
    scan: KvScan<'static>,
    _snapshot: Box<Snapshot<'static>>,
    _store: Arc<Store>,
}

/// A change of a pair: the key has this value, or, where `value` is null, goes.
#[repr(C)]
pub struct WeftKvChange {
    /// The key.
    pub key: *const u8,
    /// Its bytes.
    pub key_bytes: usize,
    /// The value, or null.
    pub value: *const u8,
    /// Its bytes.
    pub value_bytes: usize,
}

/// Runs a change as part of a transaction, or, when that is null, as one of its own.
///
/// # Safety
/// The pointer is null or open, and no other thread uses it.
unsafe fn in_tx<T>(
    store: &Store,
    tx: *mut WeftTx,
    change: impl FnOnce(&mut weft_tags::Transaction<'_>) -> weft_tags::Result<T>,
) -> Result<T, Failure> {
    if !tx.is_null() {
        // SAFETY: the caller's promise.
        return Ok(change(unsafe { crate::store::tx_of(tx) }?)?);
    }
    let mut tx = store.begin();
    let done = change(&mut tx)?;
    tx.commit()?;
    Ok(done)
}

exports! {
    /// Opens the key-value store of this name in the first s-node; makes it if there is none.
    ///
    /// # Safety
    /// The handle is open; `name` is a string; `out` can be written.
    fn weft_kv_open(tags: *const WeftTags, name: *const c_char, out: *mut *mut WeftKv) -> i32 {
        weft_kv_open_in(tags, SnodeId::FIRST.0, name, out)
    }

    /// As weft_kv_open, in an s-node.
    ///
    /// # Safety
    /// The handle is open; `name` is a string; `out` can be written.
    fn weft_kv_open_in(tags: *const WeftTags, snode: u64, name: *const c_char, out: *mut *mut WeftKv) {
        let (store, name) = (handle(tags, "tags")?.0.clone(), text(name, "name")?);
        // SAFETY: what borrows is dropped before the copy beside it.
        let kv = Kv::open(forever(&store), SnodeId(snode), name)?;
        give(WeftKv { kv, store }, out)
    }

    /// Closes a key-value store.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_kv_close(kv: *mut WeftKv) -> () {
        drop(take(kv))
    }

    /// Gives a key a value, as part of a transaction, or, when that is null, durably by itself.
    ///
    /// # Safety
    /// The handles are open; `key` and `value` have so many bytes.
    fn weft_kv_put(
        kv: *const WeftKv,
        tx: *mut WeftTx,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    ) {
        let (kv, key, value) = (handle(kv, "kv")?, bytes(key, key_bytes)?, bytes(value, value_bytes)?);
        let put = |tx: &mut weft_tags::Transaction<'_>| kv.kv.change_in(tx, &[KvChange::Put(key, value)]);
        in_tx(&kv.store, tx, put).map(drop)
    }

    /// Copies the value of a key, as much as there is room for, and tells how many bytes it has; WEFT_ENOENT when the key is
    /// not there. It sees the last committed state.
    ///
    /// # Safety
    /// The handle is open; `key` has so many bytes, `value` room for `capacity`; `value_bytes` can be written.
    fn weft_kv_get(
        kv: *const WeftKv,
        key: *const u8,
        key_bytes: usize,
        value: *mut u8,
        capacity: usize,
        value_bytes: *mut usize,
    ) {
        let (kv, key) = (handle(kv, "kv")?, bytes(key, key_bytes)?);
        let found = kv.kv.get(key)?.ok_or(Failure::NoSuchKey)?;
        copy_out(&found, value, capacity, value_bytes)
    }

    /// As weft_kv_get, as a transaction sees it.
    ///
    /// # Safety
    /// The handles are open; `key` has so many bytes, `value` room for `capacity`; `value_bytes` can be written.
    fn weft_kv_get_in(
        kv: *const WeftKv,
        tx: *mut WeftTx,
        key: *const u8,
        key_bytes: usize,
        value: *mut u8,
        capacity: usize,
        value_bytes: *mut usize,
    ) {
        let (kv, key, tx) = (handle(kv, "kv")?, bytes(key, key_bytes)?, crate::store::tx_of(tx)?);
        let found = kv.kv.get_in(tx, key)?.ok_or(Failure::NoSuchKey)?;
        copy_out(&found, value, capacity, value_bytes)
    }

    /// Copies a part of a key's value, from byte `at` on, and tells how many bytes it is: fewer than there is room for at the end, none behind it.
    /// A value of any size is read so by parts. It sees the last committed state.
    ///
    /// # Safety
    /// The handle is open; `key` has so many bytes, `part` room for `capacity`; `part_bytes` can be written.
    fn weft_kv_get_part(
        kv: *const WeftKv,
        key: *const u8,
        key_bytes: usize,
        at: u64,
        part: *mut u8,
        capacity: usize,
        part_bytes: *mut usize,
    ) {
        let (kv, key, room) = (handle(kv, "kv")?, bytes(key, key_bytes)?, bytes_mut(part, capacity)?);
        let len = kv.kv.get_at(key, at, room)?.ok_or(Failure::NoSuchKey)?;
        put(len, part_bytes)
    }

    /// Writes behind the end of a key's value, which is made if there is none, as part of a transaction, or, when that is null, durably by
    /// itself. A value of any size is put in so by pieces.
    ///
    /// # Safety
    /// The handles are open; `key` and `part` have so many bytes.
    fn weft_kv_append(
        kv: *const WeftKv,
        tx: *mut WeftTx,
        key: *const u8,
        key_bytes: usize,
        part: *const u8,
        part_bytes: usize,
    ) {
        let (kv, key, part) = (handle(kv, "kv")?, bytes(key, key_bytes)?, bytes(part, part_bytes)?);
        in_tx(&kv.store, tx, |tx| kv.kv.append_in(tx, key, part)).map(drop)
    }

    /// Makes many changes together, as part of a transaction, or, when that is null, durably by themselves: all or none. `found`, unless null,
    /// gets how many of the keys had a value before.
    ///
    /// # Safety
    /// The handles are open; there are so many changes, whose keys and values have their bytes; `found` is null or can be written.
    fn weft_kv_change_many(
        kv: *const WeftKv,
        tx: *mut WeftTx,
        changes: *const WeftKvChange,
        count: usize,
        found: *mut u64,
    ) {
        let kv = handle(kv, "kv")?;
        let raw: &[WeftKvChange] = if count == 0 {
            &[]
        } else {
            // SAFETY: not null, and the caller's promise.
            std::slice::from_raw_parts(handle(changes, "changes")?, count)
        };
        let change = |change: &WeftKvChange| {
            let key = bytes(change.key, change.key_bytes)?;
            if change.value.is_null() {
                return Ok(KvChange::Delete(key));
            }
            Ok(KvChange::Put(key, bytes(change.value, change.value_bytes)?))
        };
        let changes = raw.iter().map(change).collect::<Result<Vec<_>, Failure>>()?;
        let before = in_tx(&kv.store, tx, |tx| kv.kv.change_in(tx, &changes))?;
        put_unless_null(before, found);
        Ok(())
    }

    /// Gives a key the value `value`, or takes it away where that is null, if its value is `expected`, where null stands for none. Durable by itself.
    /// `swapped` is 1, or 0 where the value is another.
    ///
    /// # Safety
    /// The handle is open; `key`, `expected` and `value` have so many bytes; `swapped` can be written.
    fn weft_kv_compare_and_swap(
        kv: *const WeftKv,
        key: *const u8,
        key_bytes: usize,
        expected: *const u8,
        expected_bytes: usize,
        value: *const u8,
        value_bytes: usize,
        swapped: *mut u32,
    ) {
        let (kv, key) = (handle(kv, "kv")?, bytes(key, key_bytes)?);
        let expected = (!expected.is_null()).then(|| bytes(expected, expected_bytes)).transpose()?;
        let value = (!value.is_null()).then(|| bytes(value, value_bytes)).transpose()?;
        let is_done = kv.kv.compare_and_swap(key, expected, value)?;
        put(u32::from(is_done), swapped)
    }

    /// Begins to go through all pairs of a key-value store, as they are now. Others go on meanwhile. It ends with weft_kv_scan_end.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_kv_scan_begin(kv: *const WeftKv, out: *mut *mut WeftKvScan) {
        let kv = handle(kv, "kv")?;
        let store = kv.store.clone();
        // SAFETY: the snapshot is dropped before the copy of the store beside it.
        let snapshot = Box::new(forever(&store).snapshot());
        // SAFETY: the snapshot stays in its box until the scan is dropped.
        let then: &'static Snapshot<'static> = &*std::ptr::from_ref(&*snapshot);
        // SAFETY: the scan keeps nothing of the handle.
        let of: &'static Kv<'static> = &*std::ptr::from_ref(&kv.kv);
        let scan = of.at(then)?.scan();
        give(WeftKvScan { scan, _snapshot: snapshot, _store: store }, out)
    }

    /// The next pair of a scan; WEFT_ENOENT at the end. Copies as much of key and value as there is room for, and stores their sizes; a size
    /// that is not wanted is null.
    ///
    /// # Safety
    /// The scan is open, and no other thread uses it; the outs have room as said.
    fn weft_kv_scan_next(
        scan: *mut WeftKvScan,
        key: *mut u8,
        key_capacity: usize,
        key_bytes: *mut usize,
        value: *mut u8,
        value_capacity: usize,
        value_bytes: *mut usize,
    ) {
        let scan = scan.as_mut().ok_or_else(|| null("scan"))?;
        let pair = scan.scan.next().transpose()?.ok_or(Failure::NoSuchKey)?;
        put_pair(&pair, key, key_capacity, key_bytes, value, value_capacity, value_bytes)
    }

    /// Ends a scan.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_kv_scan_end(scan: *mut WeftKvScan) -> () {
        drop(take(scan))
    }

    /// Takes a key away, as part of a transaction, or, when that is null, durably by itself; WEFT_ENOENT when it is not there.
    ///
    /// # Safety
    /// The handles are open; `key` has so many bytes.
    fn weft_kv_delete(kv: *const WeftKv, tx: *mut WeftTx, key: *const u8, key_bytes: usize) {
        let (kv, key) = (handle(kv, "kv")?, bytes(key, key_bytes)?);
        let delete = |tx: &mut weft_tags::Transaction<'_>| kv.kv.change_in(tx, &[KvChange::Delete(key)]);
        let found = in_tx(&kv.store, tx, delete)?;
        if found == 0 { Err(Failure::NoSuchKey) } else { Ok(()) }
    }

    /// How many keys there are.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_kv_count(kv: *const WeftKv, out: *mut u64) {
        put(handle(kv, "kv")?.kv.count()?, out)
    }

    /// Opens the B+tree of this name in the first s-node, WEFT_BTREE_BYTES or WEFT_BTREE_FIXED; makes it if there is none.
    ///
    /// # Safety
    /// The handle is open; `name` is a string; `out` can be written.
    fn weft_btree_open(tags: *const WeftTags, name: *const c_char, form: i32, out: *mut *mut WeftBtree) {
        let form = match form {
            WEFT_BTREE_BYTES => BTreeForm::Bytes,
            WEFT_BTREE_FIXED => BTreeForm::Fixed,
            _ => return Err(bad(format!("form {form}; pass WEFT_BTREE_BYTES or _FIXED"))),
        };
        let (store, name) = (handle(tags, "tags")?.0.clone(), text(name, "name")?);
        // SAFETY: what borrows is dropped before the copy beside it.
        let tree = BTree::open(forever(&store), SnodeId::FIRST, name, form)?;
        give(WeftBtree { tree, store }, out)
    }

    /// Closes a B+tree.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_btree_close(tree: *mut WeftBtree) -> () {
        drop(take(tree))
    }

    /// Gives a key a value, as part of a transaction, or, when that is null, durably by itself.
    ///
    /// # Safety
    /// The handles are open; `key` and `value` have so many bytes.
    fn weft_btree_put(
        tree: *const WeftBtree,
        tx: *mut WeftTx,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    ) {
        let tree = handle(tree, "tree")?;
        let (key, value) = (bytes(key, key_bytes)?, bytes(value, value_bytes)?);
        in_tx(&tree.store, tx, |tx| tree.tree.insert_in(tx, key, value)).map(drop)
    }

    /// Copies the value of a key, as much as there is room for, and tells how many bytes it has; WEFT_ENOENT when the key is
    /// not there. It sees the last committed state.
    ///
    /// # Safety
    /// The handle is open; `key` has so many bytes, `value` room for `capacity`; `value_bytes` can be written.
    fn weft_btree_get(
        tree: *const WeftBtree,
        key: *const u8,
        key_bytes: usize,
        value: *mut u8,
        capacity: usize,
        value_bytes: *mut usize,
    ) {
        let (tree, key) = (handle(tree, "tree")?, bytes(key, key_bytes)?);
        let found = tree.tree.get(key)?.ok_or(Failure::NoSuchKey)?;
        copy_out(&found, value, capacity, value_bytes)
    }

    /// Takes a key away, as part of a transaction, or, when that is null, durably by itself; WEFT_ENOENT when it is not there.
    ///
    /// # Safety
    /// The handles are open; `key` has so many bytes.
    fn weft_btree_delete(tree: *const WeftBtree, tx: *mut WeftTx, key: *const u8, key_bytes: usize) {
        let (tree, key) = (handle(tree, "tree")?, bytes(key, key_bytes)?);
        let found = in_tx(&tree.store, tx, |tx| tree.tree.delete_in(tx, key))?;
        if found { Ok(()) } else { Err(Failure::NoSuchKey) }
    }

    /// The pair with the next greater key, or, when `down` is not 0, the next smaller one; WEFT_ENOENT at the end. A null key
    /// stands for the beginning, or the end. Copies as much of key and value as there is room for, and stores their sizes; a
    /// size that is not wanted is null. It sees the last committed state, so a loop stays valid while others change the tree.
    ///
    /// # Safety
    /// The handle is open; `key` is null or has so many bytes; the outs have room as said.
    fn weft_btree_next(
        tree: *const WeftBtree,
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
        let tree = handle(tree, "tree")?;
        let from = if key.is_null() { Bound::Unbounded } else { Bound::Excluded(bytes(key, key_bytes)?) };
        let pair = match down {
            0 => tree.tree.range::<&[u8]>((from, Bound::Unbounded), Direction::Up)?.next(),
            _ => tree.tree.range::<&[u8]>((Bound::Unbounded, from), Direction::Down)?.next(),
        };
        let pair = pair.transpose()?.ok_or(Failure::NoSuchKey)?;
        put_pair(&pair, next, next_capacity, next_bytes, value, value_capacity, value_bytes)
    }

    /// How many pairs there are.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_btree_count(tree: *const WeftBtree, out: *mut u64) {
        put(handle(tree, "tree")?.tree.count()?, out)
    }
}

/// Copies a pair as far as there is room, and tells the sizes that are wanted.
///
/// # Safety
/// `next` and `value` have room for their capacities; the sizes are null or can be written.
pub(crate) unsafe fn put_pair(
    (key, found): &(Vec<u8>, Vec<u8>),
    next: *mut u8,
    next_capacity: usize,
    next_bytes: *mut usize,
    value: *mut u8,
    value_capacity: usize,
    value_bytes: *mut usize,
) -> Result<(), Failure> {
    let (mut len, mut found_len) = (0, 0);
    // SAFETY: the caller's promise.
    unsafe {
        copy_out(key, next, next_capacity, &mut len)?;
        copy_out(found, value, value_capacity, &mut found_len)?;
        put_unless_null(len, next_bytes);
        put_unless_null(found_len, value_bytes);
    }
    Ok(())
}
