//! The data of nodes in a transaction: read and written, whole or in parts, made longer or shorter.
//!
//! Data that fits a node's room is changed in its place. A node that outgrows it gets a *body* elsewhere in its s-node,
//! and keeps its place and id: an edge of the store's own leads to the body, so bodies are journaled, recovered, counted
//! and freed as any node is. Data that fits the node's own room again comes back there. A body that grows by parts has
//! numbers for twice its pages, so that what is appended is written once and moved seldom.

use super::Transaction;
use super::runs::{Fill, Placed, copy_of};
use super::write_set::NONE;
use crate::edges::EdgeKey;
use crate::error::{Error, Result};
use crate::ids::{EdgeType, Info, NodeId, NodeType, PAGE_BYTES, Permission};
use crate::layout::node::{
    MOVED, NODE_BYTES_MAX, NODE_HEADER, body_class_of, read_header, run_pages, write_header,
};
use crate::partition::{NodePlace, NodeScope, find_body, find_node, header_at, node_header};
use crate::reserve::Blocks;
use std::ops::Range;

/// A body with so many times the room that is needed is given up for a smaller one.
const SPARE_MAX: usize = 4;

fn edge_to_body(node: NodeId) -> EdgeKey<'static> {
    EdgeKey { source: node, etype: EdgeType::BODY, key: 0, info: Info::Number(0) }
}

fn header(kind: NodeType, len: usize) -> [u8; NODE_HEADER] {
    let mut header = [0; NODE_HEADER];
    write_header(&mut header, kind.0, len);
    header
}

fn zeros(_: usize, out: &mut [u8]) -> Result<()> {
    out.fill(0);
    Ok(())
}

fn too_large(bytes: usize) -> Error {
    Error::too_large("a node", bytes, NODE_BYTES_MAX)
}

/// The data of a node, as a transaction sees it.
#[derive(Clone, Copy)]
struct Data {
    kind: NodeType,
    /// The node.
    home: Placed,
    body: Option<NodeId>,
    /// The node, or its body.
    holder: Placed,
    len: usize,
}

impl Transaction<'_> {
    /// The data of a node.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`], [`Error::WrongType`], [`Error::Forbidden`], [`Error::Deadlock`], and what reading the
    /// medium gives.
    pub fn read_node(&mut self, node: NodeId, kind: NodeType) -> Result<Vec<u8>> {
        self.place(node, Permission::Read)?;
        self.data_of(node, kind)
    }

    /// The data of a node whose s-node is held.
    pub(super) fn data_of(&mut self, node: NodeId, kind: NodeType) -> Result<Vec<u8>> {
        let place = find_node(&self.store.pool.table, node, self.which(node))?;
        let data = self.open_at(Placed { node, place }, kind)?;
        let mut out = vec![0; data.len];
        self.read_data(&data, 0, &mut out)?;
        Ok(out)
    }

    /// Fills `out` with a node's data from byte `at` on, and returns how many bytes it has there: fewer than `out` at the
    /// end. Reads no pages but those that the bytes are in.
    ///
    /// # Errors
    /// As [`Transaction::read_node`].
    pub fn read_at(&mut self, node: NodeId, kind: NodeType, at: u64, out: &mut [u8]) -> Result<usize> {
        let data = self.open(node, kind, Permission::Read)?;
        let at = at.min(data.len as u64) as usize;
        let len = out.len().min(data.len - at);
        self.read_data(&data, at, &mut out[..len])?;
        Ok(len)
    }

    /// Bytes of a node's data.
    ///
    /// # Errors
    /// As [`Transaction::read_node`].
    pub fn node_len(&mut self, node: NodeId, kind: NodeType) -> Result<u64> {
        Ok(self.open(node, kind, Permission::Read)?.len as u64)
    }

    /// Gives a node new data, of any length. A node of a type with keys keeps its key.
    ///
    /// # Errors
    /// As [`Transaction::read_node`]; [`Error::TooLarge`], [`Error::KeyNotInNode`], [`Error::RootType`],
    /// [`Error::Full`], [`Error::CacheFull`].
    pub fn update_node(&mut self, node: NodeId, kind: NodeType, data: &[u8]) -> Result<()> {
        let before = self.open_to_write(node, kind, data.len())?;
        let key = self.key_of(&before)?;
        if data.get(..key.len()) != Some(&key) {
            return Err(Error::KeyNotInNode(node));
        }
        self.rewrite(&before, data.len(), &mut copy_of(data))
    }

    /// Writes into a node's data, from byte `at` on. Data that ends before is made as long, by zeros, unless there are no bytes. The
    /// cost is that of the bytes, not of the node. A node of a type with keys keeps its key.
    ///
    /// # Errors
    /// As [`Transaction::update_node`].
    pub fn write_at(&mut self, node: NodeId, kind: NodeType, at: u64, bytes: &[u8]) -> Result<()> {
        let (end, overflows) = (at as usize).overflowing_add(bytes.len());
        let data = self.open_to_write(node, kind, if overflows { usize::MAX } else { end })?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.write_data(&data, at as usize, bytes)
    }

    /// Writes behind the end of a node's data; where that was. Many small pieces cost as much as their bytes at once.
    ///
    /// # Errors
    /// As [`Transaction::update_node`].
    pub fn append(&mut self, node: NodeId, kind: NodeType, bytes: &[u8]) -> Result<u64> {
        let data = self.open_to_write(node, kind, bytes.len())?;
        if bytes.len() > NODE_BYTES_MAX - data.len {
            return Err(too_large(data.len.saturating_add(bytes.len())));
        }
        self.write_data(&data, data.len, bytes)?;
        Ok(data.len as u64)
    }

    /// Keeps room for a node's data to grow to `len` bytes, so that what is appended is written once. Data that the medium has no room for is
    /// refused here, before it is written; others may take the room meanwhile.
    ///
    /// # Errors
    /// As [`Transaction::update_node`].
    pub fn reserve_node(&mut self, node: NodeId, kind: NodeType, len: u64) -> Result<()> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let data = self.open_to_write(node, kind, len)?;
        if NODE_HEADER + len > self.capacity_of(data.holder.place) {
            let taken = run_pages(len).into();
            let blocks = Blocks { taken, rewritten: 0, freed: taken, only_takes: false };
            drop(self.store.admit(0, || 0, Some(blocks))?);
            self.move_out(&data, data.len, (data.len, len), &mut zeros)?;
        }
        Ok(())
    }

    /// Makes a node's data longer, by zeros, or shorter.
    ///
    /// # Errors
    /// As [`Transaction::update_node`].
    pub fn resize_node(&mut self, node: NodeId, kind: NodeType, len: usize) -> Result<()> {
        let data = self.open_to_write(node, kind, len)?;
        if len < self.key_of(&data)?.len() {
            return Err(Error::KeyNotInNode(node));
        }
        let comes_home = data.body.is_some() && len + NODE_HEADER <= self.capacity_of(data.home.place);
        if len >= data.len {
            self.lengthen(&data, data.len..len, &mut zeros)
        } else if data.holder.place.slot.is_some() || comes_home {
            let mut kept = vec![0; len];
            self.read_data(&data, 0, &mut kept)?;
            self.rewrite(&data, len, &mut copy_of(&kept))
        } else {
            let end = NODE_HEADER + len;
            self.set_extent(data.holder, (end, end), header(kind, len))?;
            // What follows in the last page is nobody's to find, and zeros where the data becomes longer again.
            self.write_bytes(data.holder, end..end.next_multiple_of(PAGE_BYTES), &mut zeros)
        }
    }

    /// A node's data, to be given `len` bytes or more.
    fn open_to_write(&mut self, node: NodeId, kind: NodeType, len: usize) -> Result<Data> {
        if kind == NodeType::ROOT {
            return Err(Error::RootType);
        }
        let data = self.open(node, kind, Permission::Write)?;
        if len > NODE_BYTES_MAX { Err(too_large(len)) } else { Ok(data) }
    }

    /// Finds the data of a node, in an s-node in which the caller has a permission.
    fn open(&mut self, node: NodeId, kind: NodeType, needed: Permission) -> Result<Data> {
        let place = self.place(node, needed)?;
        self.open_at(Placed { node, place }, kind)
    }

    fn open_at(&mut self, home: Placed, kind: NodeType) -> Result<Data> {
        let body = self.body_of(home.node)?;
        let holder = match body {
            Some(node) => Placed { node, place: find_body(&self.store.pool.table, node, self.which(node))? },
            None => home,
        };
        let Placed { node, place } = holder;
        let (found, len) = match self.own_header(holder)? {
            Some(own) => own,
            None => self.store.read(node.home(), |pages, _| node_header(pages, node, place))?,
        };
        if found != kind.0 {
            return Err(Error::wrong_type(home.node, found, kind));
        }
        Ok(Data { kind, home, body, holder, len })
    }

    /// The header that the transaction has given a node or body.
    fn own_header(&self, holder: Placed) -> Result<Option<(u32, usize)>> {
        if let Some(update) = self.set.updates.get(&holder.node) {
            return Ok(Some(read_header(&update.bytes)));
        }
        if !self.set.runs.get(&holder.node).is_some_and(|run| run.pages.contains_key(&0)) {
            return Ok(None);
        }
        let mut header = [0; NODE_HEADER];
        self.read_bytes(holder, 0, &mut header)?;
        Ok(Some(read_header(&header)))
    }

    fn read_data(&self, data: &Data, at: usize, out: &mut [u8]) -> Result<()> {
        let start = NODE_HEADER + at;
        match self.set.updates.get(&data.holder.node) {
            // It may lie behind the end.
            _ if out.is_empty() => {}
            Some(update) => out.copy_from_slice(&update.bytes[start..start + out.len()]),
            None => self.read_bytes(data.holder, start, out)?,
        }
        Ok(())
    }

    /// The key that a node's data begins with, and its length before it; nothing for a type without keys.
    fn key_of(&self, data: &Data) -> Result<Vec<u8>> {
        if !data.kind.is_keyed() || data.len < 2 {
            return Ok(Vec::new());
        }
        let mut len = [0; 2];
        self.read_data(data, 0, &mut len)?;
        let mut key = vec![0; data.len.min(2 + usize::from(u16::from_le_bytes(len)))];
        self.read_data(data, 0, &mut key)?;
        Ok(key)
    }

    fn write_data(&mut self, data: &Data, at: usize, bytes: &[u8]) -> Result<()> {
        if at < self.key_of(data)?.len() {
            return Err(Error::KeyNotInNode(data.home.node));
        }
        let end = at + bytes.len();
        if end <= data.len {
            return self.fill_in(data.holder, data, at..end, data.len, &mut copy_of(bytes));
        }
        let from = data.len.min(at);
        self.lengthen(data, from..end, &mut |done, out| {
            let done = from + done;
            let (gap, written) = out.split_at_mut(at.saturating_sub(done).min(out.len()));
            gap.fill(0);
            let from = (done + gap.len()).saturating_sub(at);
            written.copy_from_slice(&bytes[from..from + written.len()]);
            Ok(())
        })
    }

    /// Gives a node's data a new end, that of the part that is filled, which may begin before the end that it had.
    fn lengthen(&mut self, data: &Data, part: Range<usize>, fill: Fill<'_>) -> Result<()> {
        let len = part.end;
        if NODE_HEADER + len > self.capacity_of(data.holder.place) {
            let capacity = len.max(data.len.saturating_mul(2));
            return self.move_out(data, part.start, (len, capacity), fill);
        }
        self.fill_in(data.holder, data, part, len, fill)
    }

    /// Fills a part of a node's data, which becomes `len` bytes long, where that has room. What lies before the part and behind it is as
    /// before; another place than the one before is filled whole.
    fn fill_in(
        &mut self,
        holder: Placed,
        before: &Data,
        part: Range<usize>,
        len: usize,
        fill: Fill<'_>,
    ) -> Result<()> {
        if holder.place.slot.is_some() {
            let mut whole = vec![0; NODE_HEADER + len];
            write_header(&mut whole, before.kind.0, len);
            let data = &mut whole[NODE_HEADER..];
            self.read_data(before, 0, &mut data[..part.start])?;
            self.read_data(before, part.end, &mut data[part.end..])?;
            fill(0, &mut data[part])?;
            self.set.update(holder.node, whole.into(), None);
            return Ok(());
        }
        if (holder.node, len) != (before.holder.node, before.len) {
            let kept = if part.start > 0 { NODE_HEADER + before.len } else { 0 };
            self.set_extent(holder, (NODE_HEADER + len, kept), header(before.kind, len))?;
        }
        self.write_bytes(holder, NODE_HEADER + part.start..NODE_HEADER + part.end, fill)
    }

    /// Gives a node other data: in its place, in the place of its body, or in a new body.
    fn rewrite(&mut self, before: &Data, len: usize, fill: Fill<'_>) -> Result<()> {
        let (bytes, home, place) = (NODE_HEADER + len, before.home, before.holder.place);
        let fits = |place: NodePlace| bytes <= self.capacity_of(place);
        if fits(home.place) {
            if before.body.is_some() {
                self.lead(&edge_to_body(home.node), NONE)?;
                self.set.move_to(home.node, None);
            }
            return self.fill_in(home, before, 0..len, len, fill);
        }
        if fits(place)
            && (place.slot.is_none() && body_class_of(len).is_none()
                || place.slot.is_some() && place.room <= SPARE_MAX * bytes)
        {
            return self.fill_in(before.holder, before, 0..len, len, fill);
        }
        self.move_out(before, 0, (len, len), fill)
    }

    /// Gives a node's data a new body, of which the first `kept` bytes are those that there are before. In its own place there is a header
    /// that says so, and the key.
    fn move_out(
        &mut self,
        before: &Data,
        kept: usize,
        (len, capacity): (usize, usize),
        fill: Fill<'_>,
    ) -> Result<()> {
        let (this, Data { kind, home: Placed { node, place }, body, .. }) = (&*self, *before);
        let fill: Fill<'_> = &mut |at, out| {
            let (old, new) = out.split_at_mut(kept.saturating_sub(at).min(out.len()));
            this.read_data(before, at, old)?;
            if new.is_empty() { Ok(()) } else { fill(at + old.len() - kept, new) }
        };
        let new = match body_class_of(capacity) {
            Some(class) => {
                let mut data = vec![0; len];
                fill(0, &mut data)?;
                this.create_small(node.home(), kind, class, len, &mut copy_of(&data))
            }
            None => this.create_large(node.home(), kind, (len, capacity), true, fill),
        }?;
        self.set.create(new);
        if body.is_none() && place.slot.is_none() {
            let kept = NODE_HEADER + self.key_of(before)?.len();
            self.set_extent(before.home, (kept, kept), header(kind, MOVED))?;
            self.write_bytes(before.home, kept..kept.next_multiple_of(PAGE_BYTES), &mut zeros)?;
        } else if body.is_none() {
            self.set.update(node, header(kind, MOVED).into(), None);
        }
        self.lead(&edge_to_body(node), new)?;
        self.set.move_to(node, Some(new));
        Ok(())
    }

    /// The body of a node whose s-node is held, if it has moved.
    pub(super) fn body_of(&mut self, node: NodeId) -> Result<Option<NodeId>> {
        if let Some(body) = self.set.moved.get(&node) {
            return Ok(*body);
        }
        if self.which(node) == NodeScope::Reserved {
            return Ok(None);
        }
        let store = self.store;
        store.read(node.home(), |pages, contents| {
            // A body has none itself.
            let Ok(place) = find_node(&store.pool.table, node, NodeScope::Committed) else { return Ok(None) };
            let has_moved = header_at(pages, place)?.1 == MOVED;
            has_moved.then(|| contents.body_of(pages, node)).transpose()
        })
    }

    /// Takes the bodies from nodes that were made and have no edges: they go together.
    pub(super) fn give_up_bodies_of_garbage(&mut self) -> Result<()> {
        let moved = self.set.moved.iter().filter(|(_, body)| body.is_some()).map(|(node, _)| *node);
        for node in moved.collect::<Vec<_>>() {
            if self.set.touched(node).is_garbage() {
                self.lead(&edge_to_body(node), NONE)?;
            }
        }
        Ok(())
    }
}
