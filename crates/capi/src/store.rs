//! Tag stores: nodes, edges and transactions, under the papers' names.

use crate::error::{Failure, bad, exports, null};
use crate::handle::{bytes, bytes_mut, give, handle, put, put_unless_null, take, text};
use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;
use weft_tags::{
    Direction, Durability, EdgePlace, EdgeType, Error, FileStore, Info, InfoForm, NodeId, NodeType, Options,
    ReadPath, Savepoint, SnodeId, Store, Transaction,
};

/// The s-node that every store is made with.
pub const WEFT_SNODE_FIRST: i32 = 1;
/// Read the store through the kernel's cache, as weft_tags_open does.
pub const WEFT_READ_KERNEL: i32 = 0;
/// Read past the kernel's cache: memory is bounded by the store's own.
pub const WEFT_READ_DIRECT: i32 = 1;
/// Read where the kernel's cache is mapped, without a copy. The medium must not fail meanwhile, nor the file be shortened: SIGBUS.
pub const WEFT_READ_MAPPED: i32 = 2;

/// An open tag store.
pub struct WeftTags(pub(crate) Arc<Store>);

/// A transaction on a tag store, of one thread at a time.
pub struct WeftTx {
    // Dropped before the store it borrows from.
    tx: Transaction<'static>,
    savepoints: Vec<Savepoint>,
    _store: Arc<Store>,
}

/// The store, for as long as somebody keeps `store`.
///
/// # Safety
/// What borrows from the result is dropped before the last copy of `store` is.
pub(crate) unsafe fn forever(store: &Arc<Store>) -> &'static Store {
    // SAFETY: the store stays where it is while there is a copy of the counter; the rest is the caller's promise.
    unsafe { &*Arc::as_ptr(store) }
}

fn options(cache_bytes: u64) -> Options {
    let journal_bytes = 64 << 20;
    match cache_bytes {
        0 => Options { journal_bytes, ..Options::default() },
        cache_bytes => Options { cache_bytes, journal_bytes, ..Options::default() },
    }
}

fn read_path(reads: i32) -> Result<ReadPath, Failure> {
    match reads {
        WEFT_READ_KERNEL => Ok(ReadPath::Kernel),
        WEFT_READ_DIRECT => Ok(ReadPath::Direct),
        WEFT_READ_MAPPED => Ok(ReadPath::Mapped),
        _ => Err(bad(format!("read path {reads}; pass WEFT_READ_KERNEL, _DIRECT or _MAPPED"))),
    }
}

/// A place in the order of a list of edges. It can be kept: it holds as long as the store.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeftPlace {
    /// Its upper half.
    pub upper: u64,
    /// Its lower half.
    pub lower: u64,
}

/// An edge and its place in the order of its list.
#[repr(C)]
pub struct WeftPlacedEdge {
    /// The place before the edge.
    pub place: WeftPlace,
    /// The place behind it: where to go on.
    pub behind: WeftPlace,
    /// Its number; 0 for edges by key.
    pub info: u64,
    /// Where it leads.
    pub to: u64,
}

exports! {
    /// Makes an empty tag store in a new file. `cache_bytes` is the memory for pages; 0 stands for 256 MiB.
    ///
    /// # Safety
    /// `path` is a string; `out` can be written.
    fn weft_tags_create(path: *const c_char, cache_bytes: u64, out: *mut *mut WeftTags) -> i32 {
        weft_tags_create_with(path, cache_bytes, WEFT_READ_KERNEL, out)
    }

    /// As weft_tags_create, with a choice of how the store is read: WEFT_READ_KERNEL, WEFT_READ_DIRECT or WEFT_READ_MAPPED.
    ///
    /// # Safety
    /// `path` is a string; `out` can be written.
    fn weft_tags_create_with(path: *const c_char, cache_bytes: u64, reads: i32, out: *mut *mut WeftTags) {
        let path = Path::new(text(path, "path")?);
        let medium = FileStore::create(path, read_path(reads)?)?;
        let store = Store::create(Box::new(medium), &options(cache_bytes))?;
        give(WeftTags(Arc::new(store)), out)
    }

    /// Opens a tag store in a file. It is open in one process at a time: WEFT_EBUSY while another has it. A forked child does not use what
    /// its parent has open: calls that change or close it fail there (WEFT_EIO), and the file stays in use until the child has ended, too.
    ///
    /// # Safety
    /// `path` is a string; `out` can be written.
    fn weft_tags_open(path: *const c_char, cache_bytes: u64, out: *mut *mut WeftTags) -> i32 {
        weft_tags_open_with(path, cache_bytes, WEFT_READ_KERNEL, out)
    }

    /// As weft_tags_open, with a choice of how the store is read: WEFT_READ_KERNEL, WEFT_READ_DIRECT or WEFT_READ_MAPPED.
    ///
    /// # Safety
    /// `path` is a string; `out` can be written.
    fn weft_tags_open_with(path: *const c_char, cache_bytes: u64, reads: i32, out: *mut *mut WeftTags) {
        let path = Path::new(text(path, "path")?);
        let medium = FileStore::open(path, read_path(reads)?)?;
        let store = Store::open(Box::new(medium), &options(cache_bytes))?;
        give(WeftTags(Arc::new(store)), out)
    }

    /// Closes a tag store: writes a checkpoint, so that the next opening has nothing to replay. The handle is used up, also on
    /// failure; what was committed durably stays in any case.
    ///
    /// # Safety
    /// The handle is null or open, and all transactions, snapshots and maps on it are closed.
    fn weft_tags_close(tags: *mut WeftTags) {
        match take(tags).map(|tags| Arc::try_unwrap(tags.0)) {
            Some(Ok(store)) => Ok(store.close()?),
            // Somebody still has a transaction, a snapshot or a map.
            Some(Err(shared)) => Ok(shared.checkpoint()?),
            None => Ok(()),
        }
    }

    /// Checks every page, edge and count. WEFT_EIO when something does not hold; the message has the first of it.
    ///
    /// # Safety
    /// The handle is open; `nodes` and `edges` can be written.
    fn weft_tags_check(tags: *const WeftTags, nodes: *mut u64, edges: *mut u64) {
        let report = handle(tags, "tags")?.0.check()?;
        put(report.nodes, nodes)?;
        put(report.edges, edges)?;
        match report.problems.into_iter().next() {
            None => Ok(()),
            Some(what) => Err(Failure::from(Error::Damaged { what })),
        }
    }

    /// The root of an s-node: a node that is always there, to hang others on.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_tags_root(tags: *const WeftTags, snode: u64, out: *mut u64) {
        put(handle(tags, "tags")?.0.root(SnodeId(snode))?.0, out)
    }

    /// The edge type of this name, whose edges carry a number; registered if it is new.
    ///
    /// # Safety
    /// The handle is open; `name` is a string; `out` can be written.
    fn weft_edge_type(tags: *const WeftTags, name: *const c_char, out: *mut u32) {
        let (tags, name) = (handle(tags, "tags")?, text(name, "name")?);
        put(tags.0.edge_type(name, InfoForm::Number)?.0, out)
    }

    /// Deletes an edge type, which has no edges any more: WEFT_ERULE while it has. Its number is not given out again.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_delete_edge_type(tags: *const WeftTags, etype: u32) {
        Ok(handle(tags, "tags")?.0.delete_edge_type(EdgeType(etype))?)
    }

    /// Begins a transaction. It ends with weft_commit_tx or weft_abort_tx.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_begin_tx(tags: *const WeftTags, out: *mut *mut WeftTx) {
        let store = handle(tags, "tags")?.0.clone();
        // SAFETY: the transaction is dropped before the copy beside it.
        let tx = forever(&store).begin();
        give(WeftTx { tx, savepoints: Vec::new(), _store: store }, out)
    }

    /// Whether the commit waits until it is durable: 1, as it does unless said, or 0: a power cut, or the end of the process by a signal, may take the last commits.
    ///
    /// # Safety
    /// The transaction is open.
    fn weft_tx_sync(tx: *mut WeftTx, sync: u32) {
        let durability = if sync == 0 { Durability::None } else { Durability::Sync };
        tx_of(tx)?.durability(durability);
        Ok(())
    }

    /// Lets the commit return at once and be durable soon: at most so many milliseconds later the store begins a sync, one for all
    /// that wait. When that fails, the next commit or the close says so. A power cut, or the end of the process by a signal, may take the commits since the last sync.
    ///
    /// # Safety
    /// The transaction is open.
    fn weft_tx_sync_within(tx: *mut WeftTx, milliseconds: u32) {
        tx_of(tx)?.durability(Durability::Periodic(milliseconds));
        Ok(())
    }

    /// Makes all changes of a transaction visible and, unless said otherwise, durable. The handle is used up, also on failure.
    /// WEFT_EAGAIN: nothing has changed, run the transaction again.
    ///
    /// # Safety
    /// The transaction is open.
    fn weft_commit_tx(tx: *mut WeftTx) {
        let tx = *take(tx).ok_or_else(|| null("tx"))?;
        // The store outlives the commit: the copy beside it is dropped after it.
        let WeftTx { tx, savepoints: _, _store } = tx;
        tx.commit()?;
        Ok(())
    }

    /// Forgets all changes of a transaction. The handle is used up.
    ///
    /// # Safety
    /// The handle is null or open.
    fn weft_abort_tx(tx: *mut WeftTx) -> () {
        drop(take(tx))
    }

    /// Begins a transaction within a transaction: a place to come back to with weft_undo_tx. `out` is its number.
    ///
    /// # Safety
    /// The transaction is open; `out` can be written.
    fn weft_savepoint(tx: *mut WeftTx, out: *mut u32) {
        let tx = tx.as_mut().ok_or_else(|| null("tx"))?;
        let savepoint = tx.tx.savepoint();
        tx.savepoints.push(savepoint);
        put(tx.savepoints.len() as u32 - 1, out)
    }

    /// Undoes everything since a savepoint, which stays. Later savepoints are gone.
    ///
    /// # Safety
    /// The transaction is open.
    fn weft_undo_tx(tx: *mut WeftTx, savepoint: u32) {
        let tx = tx.as_mut().ok_or_else(|| null("tx"))?;
        let at = *tx.savepoints.get(savepoint as usize).ok_or(Error::NoSuchSavepoint)?;
        tx.tx.undo_to(at)?;
        tx.savepoints.truncate(savepoint as usize + 1);
        Ok(())
    }

    /// Makes a node. It becomes visible with the commit, if an edge leads to it or out of it then.
    ///
    /// # Safety
    /// The transaction is open; `data` has so many bytes; `out` can be written.
    fn weft_create_node(
        tx: *mut WeftTx,
        snode: u64,
        kind: u32,
        data: *const u8,
        data_bytes: usize,
        out: *mut u64,
    ) {
        let (tx, data) = (tx_of(tx)?, bytes(data, data_bytes)?);
        let node = tx.create_node(SnodeId(snode), NodeType(kind), data)?;
        put(node.0, out)
    }

    /// Gives a node new data, of any size.
    ///
    /// # Safety
    /// The transaction is open; `data` has so many bytes.
    fn weft_update_node(tx: *mut WeftTx, node: u64, kind: u32, data: *const u8, data_bytes: usize) {
        let (tx, data) = (tx_of(tx)?, bytes(data, data_bytes)?);
        Ok(tx.update_node(NodeId(node), NodeType(kind), data)?)
    }

    /// Deletes a node, which has no edges any more. A node that loses its last edge goes with the commit anyway.
    ///
    /// # Safety
    /// The transaction is open.
    fn weft_delete_node(tx: *mut WeftTx, node: u64, kind: u32) {
        Ok(tx_of(tx)?.delete_node(NodeId(node), NodeType(kind))?)
    }

    /// Copies a node's data, as much as there is room for, and tells how many bytes it has. Without a transaction, that is
    /// null, the last committed state.
    ///
    /// # Safety
    /// The handles are open; `data` has room for `capacity` bytes; `data_bytes` can be written.
    fn weft_node_data(
        tags: *const WeftTags,
        tx: *mut WeftTx,
        node: u64,
        kind: u32,
        data: *mut u8,
        capacity: usize,
        data_bytes: *mut usize,
    ) {
        let (node, kind) = (NodeId(node), NodeType(kind));
        let room = bytes_mut(data, capacity)?;
        let len = match tx.as_mut() {
            Some(tx) => {
                tx.tx.read_at(node, kind, 0, room)?;
                tx.tx.node_len(node, kind)?
            }
            None => {
                let found = handle(tags, "tags")?.0.read_node(node, kind)?;
                let fits = found.len().min(room.len());
                room[..fits].copy_from_slice(&found[..fits]);
                found.len() as u64
            }
        };
        put(len as usize, data_bytes)
    }

    /// Copies a part of a node's data, from byte `at` on: as much as there is room for, and less at the end. `part_bytes` tells how much. Only the
    /// pages are read that it is in. Without a transaction, that is null, the last committed state.
    ///
    /// # Safety
    /// The handles are open; `part` has room for `capacity` bytes; `part_bytes` can be written.
    fn weft_read_node_part(
        tags: *const WeftTags,
        tx: *mut WeftTx,
        node: u64,
        kind: u32,
        at: u64,
        part: *mut u8,
        capacity: usize,
        part_bytes: *mut usize,
    ) {
        let (node, kind) = (NodeId(node), NodeType(kind));
        let room = bytes_mut(part, capacity)?;
        let len = match tx.as_mut() {
            Some(tx) => tx.tx.read_at(node, kind, at, room)?,
            None => handle(tags, "tags")?.0.read_at(node, kind, at, room)?,
        };
        put(len, part_bytes)
    }

    /// Writes into a node's data, from byte `at` on. Data that ends before is made as long, by zeros. The cost is that of the bytes, not
    /// of the node, which may have 2 GiB.
    ///
    /// # Safety
    /// The transaction is open; `part` has so many bytes.
    fn weft_write_node_part(
        tx: *mut WeftTx,
        node: u64,
        kind: u32,
        at: u64,
        part: *const u8,
        part_bytes: usize,
    ) {
        let (tx, part) = (tx_of(tx)?, bytes(part, part_bytes)?);
        Ok(tx.write_at(NodeId(node), NodeType(kind), at, part)?)
    }

    /// Writes behind the end of a node's data. Many pieces cost about as much as all of it at once. `at`, unless null, gets where the end was.
    ///
    /// # Safety
    /// The transaction is open; `part` has so many bytes; `at` is null or can be written.
    fn weft_append_to_node(
        tx: *mut WeftTx,
        node: u64,
        kind: u32,
        part: *const u8,
        part_bytes: usize,
        at: *mut u64,
    ) {
        let (tx, part) = (tx_of(tx)?, bytes(part, part_bytes)?);
        let end = tx.append(NodeId(node), NodeType(kind), part)?;
        put_unless_null(end, at);
        Ok(())
    }

    /// Makes an edge. Both nodes are there; there is no such edge yet.
    ///
    /// # Safety
    /// The transaction is open.
    fn weft_create_edge(tx: *mut WeftTx, source: u64, edge_type: u32, info: u64, to: u64) {
        let tx = tx_of(tx)?;
        Ok(tx.create_edge(NodeId(source), EdgeType(edge_type), Info::Number(info), NodeId(to))?)
    }

    /// Leads an edge to another node, or makes it. `before`, unless null, gets the node it led to, or 0.
    ///
    /// # Safety
    /// The transaction is open; `before` is null or can be written.
    fn weft_set_edge(tx: *mut WeftTx, source: u64, edge_type: u32, info: u64, to: u64, before: *mut u64) {
        let tx = tx_of(tx)?;
        let found = tx.set_edge(NodeId(source), EdgeType(edge_type), Info::Number(info), NodeId(to))?;
        put_unless_null(found.map_or(0, |node| node.0), before);
        Ok(())
    }

    /// Deletes an edge. `to`, unless null, gets the node it led to.
    ///
    /// # Safety
    /// The transaction is open; `to` is null or can be written.
    fn weft_delete_edge(tx: *mut WeftTx, source: u64, edge_type: u32, info: u64, to: *mut u64) {
        let tx = tx_of(tx)?;
        let found = tx.delete_edge(NodeId(source), EdgeType(edge_type), Info::Number(info))?;
        put_unless_null(found.0, to);
        Ok(())
    }

    /// Edges of one type out of a node, by parts, in an order that stays as it is whatever comes and goes: each edge that is there all the time is
    /// seen once. `from` is a place; null stands for the beginning, or, where `down` is not 0, for the end. Going down goes on from
    /// the place before the last edge. `count` tells how many edges there are, fewer than `capacity` at the end. Without a transaction, that is null, the
    /// last committed state.
    ///
    /// # Safety
    /// The handles are open; `from` is null or can be read; `edges` has room for `capacity`; `count` can be written.
    fn weft_edges_from(
        tags: *const WeftTags,
        tx: *mut WeftTx,
        source: u64,
        edge_type: u32,
        from: *const WeftPlace,
        down: u32,
        edges: *mut WeftPlacedEdge,
        capacity: usize,
        count: *mut usize,
    ) {
        let direction = if down == 0 { Direction::Up } else { Direction::Down };
        let from = match (from.as_ref(), direction) {
            (Some(from), _) => EdgePlace::from_words([from.upper, from.lower]),
            (None, Direction::Up) => EdgePlace::FIRST,
            (None, Direction::Down) => EdgePlace::LAST,
        };
        let (node, etype) = (NodeId(source), EdgeType(edge_type));
        let found = match tx.as_mut() {
            Some(tx) => tx.tx.edges_from(node, etype, from, direction, capacity)?,
            None => handle(tags, "tags")?.0.edges_from(node, etype, from, direction, capacity)?,
        };
        if edges.is_null() && !found.is_empty() {
            return Err(null("edges"));
        }
        for (at, edge) in found.iter().enumerate() {
            let [place, behind] = [edge.place, edge.behind()].map(|place| {
                let [upper, lower] = place.to_words();
                WeftPlace { upper, lower }
            });
            let (info, to) = (edge.edge.number.unwrap_or(0), edge.edge.to.0);
            // SAFETY: there is room for as many as were asked for, by the caller's promise.
            edges.add(at).write(WeftPlacedEdge { place, behind, info, to });
        }
        put(found.len(), count)
    }

    /// Where an edge leads; WEFT_ENOENT when there is none. Without a transaction, that is null, the last committed state.
    ///
    /// # Safety
    /// The handles are open; `out` can be written.
    fn weft_get_destination(
        tags: *const WeftTags,
        tx: *mut WeftTx,
        source: u64,
        edge_type: u32,
        info: u64,
        out: *mut u64,
    ) {
        let (node, etype, info) = (NodeId(source), EdgeType(edge_type), Info::Number(info));
        let found = match tx.as_mut() {
            Some(tx) => tx.tx.edge(node, etype, info)?,
            None => handle(tags, "tags")?.0.edge(node, etype, info)?,
        };
        let found = found.ok_or(Error::NoSuchEdge(node))?;
        put(found.0, out)
    }
}

/// A transaction, to be changed.
///
/// # Safety
/// The pointer is null or open, and no other thread uses it.
pub(crate) unsafe fn tx_of<'a>(tx: *mut WeftTx) -> Result<&'a mut Transaction<'static>, Failure> {
    // SAFETY: the caller's promise.
    Ok(&mut unsafe { tx.as_mut() }.ok_or_else(|| null("tx"))?.tx)
}

/// Copies what there is room for, and tells how much there is.
///
/// # Safety
/// `data` has room for `capacity` bytes; `len` can be written.
pub(crate) unsafe fn copy_out(
    found: &[u8],
    data: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let room = unsafe { bytes_mut(data, capacity) }?;
    let fits = found.len().min(room.len());
    room[..fits].copy_from_slice(&found[..fits]);
    // SAFETY: the caller's promise.
    unsafe { put(found.len(), len) }
}
