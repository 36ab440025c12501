//! The file system as the store has it: reads of the last commit, as inodes, entries, heads of chunks and bytes.

use crate::error::{damaged, failed};
use crate::inode::{Block, Inode};
use crate::layout::{
    APART, ATTRIBUTE_EDGES, CHUNK, CHUNK_BLOCKS, CHUNKS_MAX, ENTRY, EdgeTypes, Entry, FileForm, Form,
    HEAD_BYTES, LISTING, PIECE, PIECE_BYTES, PROMISED, QUOTA_EDGE, Record, SLOTS_AT, XATTRS, Xattrs,
    decode_xattrs, listing_key, slot_at,
};
use crate::record;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::{Arc, OnceLock};
use weft_core::{BLOCK_BYTES, Ino};
use weft_tags::{
    BTree, BTreeForm, BTreePlace, Direction, EdgePlace, EdgeType, Error, Info, InfoForm, NodeId, SnodeId,
    Store,
};
use weft_vfs::{FsError, FsResult};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Heads of chunks that are kept in memory.
const HEADS_MAX: usize = 1 << 15;
/// Edges that are listed at once.
const EDGES_AT_ONCE: usize = 1024;

/// Where the blocks of a chunk lie in its node: a slot for each, 0 for a hole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// The chunk's node, once there is one.
    pub node: Option<NodeId>,
    /// Slots that the node has room for.
    pub used: u16,
    pub slots: [u16; CHUNK_BLOCKS as usize],
}

impl Default for Head {
    fn default() -> Head {
        Head { node: None, used: 0, slots: [0; CHUNK_BLOCKS as usize] }
    }
}

impl Head {
    /// Whether a slot holds data.
    pub(crate) fn holds(slot: u16) -> bool {
        slot != 0 && slot != PROMISED
    }

    /// Blocks with data.
    pub(crate) fn blocks(&self) -> u64 {
        self.slots.iter().filter(|slot| Head::holds(**slot)).count() as u64
    }

    /// Blocks with a promise and no data.
    pub(crate) fn promised(&self) -> u64 {
        self.slots.iter().filter(|slot| **slot == PROMISED).count() as u64
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.slots.iter().flat_map(|slot| slot.to_le_bytes()).collect()
    }

    fn decode(node: NodeId, raw: &[u8; HEAD_BYTES], len: u64) -> Option<Head> {
        let used = len.saturating_sub(SLOTS_AT as u64) / BLOCK;
        let mut head = Head { node: Some(node), used: u16::try_from(used).ok()?, ..Head::default() };
        for (slot, raw) in head.slots.iter_mut().zip(raw.as_chunks().0) {
            *slot = u16::from_le_bytes(*raw);
        }
        head.slots.iter().all(|slot| *slot == PROMISED || *slot <= head.used).then_some(head)
    }
}

/// The store, and how to find one's way in it.
pub(crate) struct Graph {
    pub store: Store,
    pub types: EdgeTypes,
    /// The edges to records.
    pub records: record::Edges,
    /// The root of the first s-node.
    pub first: NodeId,
    listing: BTreePlace,
    /// The type of edges to what is counted of quotas, once there was one.
    quotas: OnceLock<EdgeType>,
    heads: Mutex<FxHashMap<(Ino, u64), Arc<Head>>>,
}

impl Graph {
    pub(crate) fn new(store: Store) -> weft_tags::Result<Graph> {
        let (types, first) = (EdgeTypes::of(&store)?, store.root(SnodeId::FIRST)?);
        let listing = BTree::open(&store, SnodeId::FIRST, LISTING, BTreeForm::Bytes)?.place();
        let known = store.edge_types().iter().any(|etype| etype.name == QUOTA_EDGE);
        let graph = Graph {
            store,
            types,
            records: record::Edges { whole: types.record, apart: None },
            first,
            listing,
            quotas: OnceLock::new(),
            heads: Mutex::default(),
        };
        if known {
            graph.make_quota_type()?;
        }
        Ok(graph)
    }

    /// The type of edges to what is counted of quotas; none on a volume that never had one.
    pub(crate) fn quota_type(&self) -> Option<EdgeType> {
        self.quotas.get().copied()
    }

    /// Sees to it that there is such a type. No transaction of the caller's may be open.
    pub(crate) fn make_quota_type(&self) -> weft_tags::Result<()> {
        if self.quotas.get().is_none() {
            let etype = self.store.edge_type(QUOTA_EDGE, InfoForm::Number)?;
            self.quotas.get_or_init(|| etype);
        }
        Ok(())
    }

    /// Takes records for where the features of the volume have them.
    pub(crate) fn lay_out(&mut self, features: u32) -> weft_tags::Result<()> {
        let is_apart = features & APART != 0;
        let etype = is_apart.then(|| self.store.edge_type(ATTRIBUTE_EDGES, InfoForm::Number));
        self.records.apart = etype.transpose()?;
        Ok(())
    }

    /// The entries of all directories, in the order of their cookies.
    pub(crate) fn listing(&self) -> BTree<'_> {
        self.listing.of(&self.store)
    }

    /// An i-node as it is stored; `Stale` where there is none.
    pub(crate) fn load(&self, ino: Ino) -> FsResult<Inode> {
        let (store, snode) = (&self.store, SnodeId(ino.0));
        let root = match store.root(snode) {
            Err(Error::NoSuchSnode(_)) => return Err(FsError::Stale),
            root => root.map_err(failed)?,
        };
        let (raw, stored) = record::load(store, self.records, root)?;
        let record = Record::decode(&raw).ok_or_else(|| damaged(format!("the record of inode {ino}")))?;
        let tags = store.snode_tags(snode).map_err(failed)?;
        let xattrs = if record.has_xattrs { self.xattrs(ino, root)? } else { Xattrs::new() };
        let stored_form = match &record.form {
            Form::File(file) => file.clone(),
            _ => FileForm::default(),
        };
        Ok(Inode {
            root,
            stored: Some(stored),
            tags,
            stored_form,
            is_orphan: record.links == 0,
            record,
            xattrs: Arc::new(xattrs),
            buffer: Arc::default(),
            reserved: 0,
            chunks: None,
            gives_up: false,
            opens: 0,
        })
    }

    fn xattrs(&self, ino: Ino, root: NodeId) -> FsResult<Xattrs> {
        let strange = || damaged(format!("the extended attributes of inode {ino}"));
        let node = self.store.edge(root, self.types.xattrs, Info::Number(0)).map_err(failed)?;
        let raw = self.store.read_node(node.ok_or_else(strange)?, XATTRS).map_err(failed)?;
        decode_xattrs(&raw).ok_or_else(strange)
    }

    /// The entry with this name in the directory with this root.
    pub(crate) fn entry(&self, dir: NodeId, name: &[u8]) -> FsResult<Option<Entry>> {
        let Some(node) = self.store.edge(dir, self.types.entry, Info::Key(name)).map_err(failed)? else {
            return Ok(None);
        };
        let (is_it, entry) = self.entry_at(node, |found, entry| (found == name, entry))?;
        if is_it { Ok(Some(entry)) } else { Err(damaged(format!("the entry {node} has another name"))) }
    }

    /// Shows an entry with its name.
    pub(crate) fn entry_at<T>(&self, node: NodeId, show: impl FnOnce(&[u8], Entry) -> T) -> FsResult<T> {
        let raw = self.store.read_node(node, ENTRY).map_err(failed)?;
        let (name, entry) = Entry::decode(&raw).ok_or_else(|| damaged(format!("the entry {node}")))?;
        Ok(show(name, entry))
    }

    /// Shows up to `max` entries of a directory behind a cookie, in the order of their cookies; whether there may be more.
    pub(crate) fn list(
        &self,
        dir: Ino,
        cookie: u64,
        max: usize,
        mut show: impl FnMut(&[u8], Entry),
    ) -> FsResult<bool> {
        let from = listing_key(dir, cookie.saturating_add(1));
        let to = listing_key(dir, u64::MAX);
        let tree = self.listing();
        let mut range = tree.range(from..=to, Direction::Up).map_err(failed)?;
        for _ in 0..max {
            let Some(pair) = range.next().transpose().map_err(failed)? else { return Ok(false) };
            let node = node_of(&pair.1)?;
            self.entry_at(node, |name, entry| {
                // A reader goes on behind the cookie that it was shown: with another than the key's it might never end.
                let is_it = pair.0 == listing_key(dir, entry.cookie);
                if is_it {
                    show(name, entry);
                }
                is_it
            })?
            .then_some(())
            .ok_or_else(|| damaged(format!("the entry {node} is listed with another cookie")))?;
        }
        Ok(true)
    }

    /// The destinations of all edges of a type by numbers out of a node, with their numbers.
    pub(crate) fn numbered(&self, source: NodeId, etype: EdgeType) -> FsResult<Vec<(u64, NodeId)>> {
        let (mut place, mut found) = (EdgePlace::FIRST, Vec::new());
        loop {
            let part = self.store.edges_from(source, etype, place, Direction::Up, EDGES_AT_ONCE);
            let part = part.map_err(failed)?;
            found.extend(part.iter().filter_map(|placed| Some((placed.edge.number?, placed.edge.to))));
            match part.last() {
                Some(last) if part.len() == EDGES_AT_ONCE => place = last.behind(),
                _ => return Ok(found),
            }
        }
    }

    /// The numbers of a file's chunks, sorted.
    pub(crate) fn chunks(&self, inode: &Inode) -> FsResult<Arc<Vec<u64>>> {
        if let Some(chunks) = &inode.chunks {
            return Ok(chunks.clone());
        }
        if inode.stored_form.chunks == 0 {
            return Ok(Arc::default());
        }
        let found = self.numbered(inode.root, self.types.data)?;
        let mut chunks: Vec<u64> = found.into_iter().map(|(chunk, _)| chunk).collect();
        chunks.sort_unstable();
        match chunks.last() {
            Some(last) if *last >= CHUNKS_MAX => Err(damaged(format!("chunk {last} of a file"))),
            _ => Ok(Arc::new(chunks)),
        }
    }

    /// The head of a chunk, if there is such a chunk.
    pub(crate) fn head(&self, ino: Ino, inode: &Inode, chunk: u64) -> FsResult<Option<Arc<Head>>> {
        if inode.stored_form.chunks == 0 {
            return Ok(None);
        }
        if let Some(head) = self.heads.lock().get(&(ino, chunk)) {
            return Ok(Some(head.clone()));
        }
        let node = self.store.edge(inode.root, self.types.data, Info::Number(chunk)).map_err(failed)?;
        let Some(node) = node else { return Ok(None) };
        let head = Arc::new(self.read_head(ino, chunk, node)?);
        self.keep_head(ino, chunk, Some(head.clone()));
        Ok(Some(head))
    }

    /// Reads the head of a chunk from its node.
    pub(crate) fn read_head(&self, ino: Ino, chunk: u64, node: NodeId) -> FsResult<Head> {
        let mut raw = [0; HEAD_BYTES];
        let read = self.store.read_at(node, CHUNK, 0, &mut raw).map_err(failed)?;
        let len = self.store.node_len(node, CHUNK).map_err(failed)?;
        let head = if read == raw.len() { Head::decode(node, &raw, len) } else { None };
        head.ok_or_else(|| damaged(format!("the head of chunk {chunk} of inode {ino}")))
    }

    /// Keeps the head of a chunk in memory, as it is committed now; `None` where there is none any more.
    pub(crate) fn keep_head(&self, ino: Ino, chunk: u64, head: Option<Arc<Head>>) {
        let mut heads = self.heads.lock();
        let Some(head) = head else {
            heads.remove(&(ino, chunk));
            return;
        };
        if heads.len() >= HEADS_MAX {
            heads.clear();
        }
        heads.insert((ino, chunk), head);
    }

    /// Reads whole blocks of a chunk's node from a slot on.
    pub(crate) fn read_slots(&self, node: NodeId, slot: u16, from: u64, out: &mut [u8]) -> FsResult<()> {
        let read = self.store.read_at(node, CHUNK, slot_at(slot) + from, out).map_err(failed)?;
        if read == out.len() {
            Ok(())
        } else {
            Err(damaged(format!("node {node} ends before slot {slot} does")))
        }
    }

    /// Reads bytes that lie in pieces.
    pub(crate) fn read_pieces(&self, inode: &Inode, mut at: u64, mut out: &mut [u8]) -> FsResult<()> {
        while !out.is_empty() {
            let (piece, from) = (at / PIECE_BYTES as u64, at % PIECE_BYTES as u64);
            let (now, rest) = out.split_at_mut(out.len().min(PIECE_BYTES - from as usize));
            let strange = || damaged(format!("piece {piece} of the file with root {}", inode.root));
            let node = self.store.edge(inode.root, self.types.data, Info::Number(piece)).map_err(failed)?;
            let read = self.store.read_at(node.ok_or_else(strange)?, PIECE, from, now).map_err(failed)?;
            if read < now.len() {
                return Err(strange());
            }
            (at, out) = (at + read as u64, rest);
        }
        Ok(())
    }

    /// A block as it is stored, if it has data there.
    pub(crate) fn stored_block(
        &self,
        inode: &Inode,
        head: Option<&Head>,
        block: u64,
    ) -> FsResult<Option<Box<Block>>> {
        let mut out = Box::new([0; BLOCK_BYTES]);
        if let (0, Some(inline)) = (block, &inode.file()?.inline) {
            out[..inline.len()].copy_from_slice(inline);
            return Ok(Some(out));
        }
        let packed = inode.file()?.packed;
        if block * BLOCK < packed {
            let len = BLOCK.min(packed - block * BLOCK) as usize;
            self.read_pieces(inode, block * BLOCK, &mut out[..len])?;
            return Ok(Some(out));
        }
        let slot = head.map_or(0, |head| head.slots[(block % CHUNK_BLOCKS) as usize]);
        let Some(node) = head.and_then(|head| head.node).filter(|_| Head::holds(slot)) else {
            return Ok(None);
        };
        self.read_slots(node, slot, 0, &mut out[..])?;
        Ok(Some(out))
    }

    /// Fills `out` with a file's bytes from `offset` on, and returns how many it has there.
    pub(crate) fn read(&self, ino: Ino, inode: &Inode, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let size = inode.file()?.size;
        let end = offset.saturating_add(out.len() as u64).min(size);
        if offset >= end {
            return Ok(0);
        }
        let len = (end - offset) as usize;
        let mut at = offset;
        let mut known: Option<(u64, Option<Arc<Head>>)> = None;
        while at < end {
            let (block, from) = (at / BLOCK, at % BLOCK);
            let piece = (BLOCK - from).min(end - at) as usize;
            let place = (at - offset) as usize;
            at += piece as u64;
            if let Some(bytes) = inode.buffer.get(&block) {
                out[place..place + piece].copy_from_slice(&bytes[from as usize..from as usize + piece]);
                continue;
            }
            if let (0, Some(inline)) = (block, &inode.file()?.inline) {
                let rest = inline.get(from as usize..).unwrap_or_default();
                let held = rest.len().min(piece);
                out[place..place + held].copy_from_slice(&rest[..held]);
                out[place + held..place + piece].fill(0);
                continue;
            }
            let packed = inode.file()?.packed;
            if block * BLOCK < packed {
                let mut run_end = at;
                while run_end < end.min(packed) && !inode.buffer.contains_key(&(run_end / BLOCK)) {
                    run_end = (run_end / BLOCK * BLOCK + BLOCK).min(end);
                }
                let begun = at - piece as u64;
                // The file may have become longer than what is packed.
                let held = run_end.min(packed).max(begun);
                let (read, zeros) =
                    out[place..(run_end.max(at) - offset) as usize].split_at_mut((held - begun) as usize);
                self.read_pieces(inode, begun, read)?;
                zeros.fill(0);
                at = run_end.max(at);
                continue;
            }
            let chunk = block / CHUNK_BLOCKS;
            if known.as_ref().is_none_or(|(of, _)| *of != chunk) {
                known = Some((chunk, self.head(ino, inode, chunk)?));
            }
            let head = known.as_ref().and_then(|(_, head)| head.as_deref());
            let slot = head.map_or(0, |head| head.slots[(block % CHUNK_BLOCKS) as usize]);
            let (Some(head), true) = (head, Head::holds(slot)) else {
                out[place..place + piece].fill(0);
                continue;
            };
            // Blocks whose slots follow each other are read at once.
            let mut run = piece;
            let mut next = block + 1;
            while at < end
                && next % CHUNK_BLOCKS != 0
                && u64::from(head.slots[(next % CHUNK_BLOCKS) as usize]) == u64::from(slot) + next - block
                && !inode.buffer.contains_key(&next)
            {
                let more = BLOCK.min(end - at);
                (at, run, next) = (at + more, run + more as usize, next + 1);
            }
            if let Some(node) = head.node {
                self.read_slots(node, slot, from, &mut out[place..place + run])?;
            }
        }
        Ok(len)
    }
}

/// The node that a pair of the listing leads to.
pub(crate) fn node_of(value: &[u8]) -> FsResult<NodeId> {
    let raw = value.try_into().map_err(|_| damaged("the listing of directories"))?;
    Ok(NodeId(u64::from_le_bytes(raw)))
}
