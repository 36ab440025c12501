//! Changes within a node's data, of which the journal gets only what changed.
//!
//! A patch takes bytes out of a stretch of the data, puts others in their place, and moves what follows within the
//! stretch. So an entry goes into a sorted array of 4 KiB for the bytes of the entry, and the commit and the replay do
//! the same to the same bytes.

use super::Transaction;
use super::write_set::Update;
use crate::error::{Error, Result};
use crate::ids::{NodeId, NodeType, Permission};
use crate::layout::node::{NODE_HEADER, read_header};
use crate::pages::access::Pages;
use crate::partition::{NodeScope, find_node, header_at, node_header};
use crate::store::Store;
use rustc_hash::FxHashMap;

/// Bytes of a patch beside what it puts in.
const HEADER: usize = 8;

/// A patch: bytes `at..at + removed` of a node's data become `inserted`; what follows up to `end` moves. Where more
/// comes in than goes out, the last bytes before `end` are lost; where less does, they stay as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patch<B> {
    pub at: usize,
    pub end: usize,
    pub removed: usize,
    pub inserted: B,
}

impl<B: AsRef<[u8]>> Patch<B> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        let inserted = self.inserted.as_ref();
        let head =
            [self.at, self.end, self.removed, inserted.len()].map(|number| (number as u16).to_le_bytes());
        out.extend_from_slice(head.as_flattened());
        out.extend_from_slice(inserted);
    }

    /// Changes a node's data; `false` when the patch does not fit it.
    fn apply(&self, data: &mut [u8]) -> bool {
        let inserted = self.inserted.as_ref();
        let (from, to) = (self.at + self.removed, self.at + inserted.len());
        if from > self.end || to > self.end || self.end > data.len() {
            return false;
        }
        let moved = self.end - from.max(to);
        data.copy_within(from..from + moved, to);
        data[self.at..to].copy_from_slice(inserted);
        true
    }
}

/// Applies patches one after the other; `false` when one of them does not fit.
pub(crate) fn apply_all(mut patches: &[u8], data: &mut [u8]) -> bool {
    while !patches.is_empty() {
        let Some((head, rest)) = patches.split_at_checked(HEADER) else { return false };
        let number = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let Some((inserted, rest)) = rest.split_at_checked(number(6)) else { return false };
        let patch = Patch { at: number(0), end: number(2), removed: number(4), inserted };
        if !patch.apply(data) {
            return false;
        }
        patches = rest;
    }
    true
}

impl Transaction<'_> {
    /// The nodes that the transaction has changed, as it sees them: header and data.
    pub(crate) fn changed_nodes(&self) -> &FxHashMap<NodeId, Update> {
        &self.set.updates
    }

    /// Changes a node's data, which lies in one page, by patches.
    ///
    /// # Errors
    /// As [`Transaction::read_node`].
    pub(crate) fn patch_node(
        &mut self,
        node: NodeId,
        kind: NodeType,
        patches: &[Patch<impl AsRef<[u8]>>],
    ) -> Result<()> {
        if self.private_copy(node)? {
            let mut edit = self.edit_node(node, kind)?;
            return patches.iter().try_for_each(|patch| edit.patch(patch));
        }
        let mut data = self.read_node(node, kind)?;
        if !patches.iter().all(|patch| patch.apply(&mut data)) {
            return Err(strange(node));
        }
        self.update_node(node, kind, &data)
    }

    /// The transaction's own copy of a node, whose data lies in the page that its id says, to be changed.
    ///
    /// # Errors
    /// As [`Transaction::read_node`]; [`Error::Damaged`] for a node that has moved or is larger than a page.
    #[inline]
    pub(crate) fn edit_node(&mut self, node: NodeId, kind: NodeType) -> Result<Edit<'_>> {
        if !self.private_copy(node)? {
            return Err(strange(node));
        }
        let Some(update) = self.set.edit(node) else { return Err(Error::NoSuchNode(node)) };
        let found = read_header(&update.bytes).0;
        if found != kind.0 {
            return Err(Error::wrong_type(node, found, kind));
        }
        Ok(Edit { node, update })
    }

    /// Gives the transaction copies of nodes whose data is going to be changed, as far as they can be had together; the others
    /// get theirs when they are [edited](Self::edit_node). The caller has entered their s-node, which is one.
    ///
    /// # Errors
    /// What reading the medium gives.
    pub(crate) fn begin_edits(&mut self, nodes: &[NodeId]) -> Result<()> {
        let Some(snode) = nodes.first().map(|node| node.home()) else { return Ok(()) };
        let store = self.store;
        let is_new = |node: &&NodeId| {
            let is_plain = !self.set.updates.contains_key(node) && !self.set.moved.contains_key(node);
            is_plain && node.page().inspect(|page| store.pool.table.prefetch_desc(*page)).is_some()
        };
        let new: Vec<NodeId> = nodes.iter().filter(is_new).copied().collect();
        let find = |node: &NodeId| Ok((*node, find_node(&store.pool.table, *node, self.which(*node))?));
        let places = new.iter().map(find).collect::<Result<Vec<_>>>()?;
        let mut copies: Vec<(NodeId, Box<[u8]>)> = Vec::with_capacity(places.len());
        store.read(snode, |pages, _| {
            for (node, place) in &places[copies.len()..] {
                let end = NODE_HEADER + header_at(pages, *place)?.1;
                let bytes = pages.bytes(place.page)?.get(place.offset..place.offset + end);
                copies.push((*node, bytes.filter(|_| end <= place.room).unwrap_or(&[]).into()));
            }
            Ok(())
        })?;
        for (node, bytes) in copies {
            // One that has moved, or is larger than a page, or comes twice.
            if !bytes.is_empty() && !self.set.updates.contains_key(&node) {
                self.set.update(node, bytes, Some(Vec::new()));
            }
        }
        Ok(())
    }

    /// Gives the transaction a copy of a node that it may change; `false` for one that has moved, or is
    /// larger than a page.
    #[inline]
    fn private_copy(&mut self, node: NodeId) -> Result<bool> {
        if !self.set.moved.is_empty() && self.set.moved.get(&node).is_some_and(Option::is_some) {
            return Ok(false);
        }
        if self.set.updates.contains_key(&node) {
            return Ok(true);
        }
        self.place(node, Permission::Write)?;
        self.begin_edits(&[node])?;
        Ok(self.set.updates.contains_key(&node))
    }
}

fn strange(node: NodeId) -> Error {
    Error::damaged(format!("node {node}: a change does not fit its data"))
}

/// A node's data, to be changed by patches.
pub(crate) struct Edit<'t> {
    node: NodeId,
    update: &'t mut Update,
}

impl Edit<'_> {
    #[inline]
    pub(crate) fn data(&self) -> &[u8] {
        &self.update.bytes[NODE_HEADER..]
    }

    /// Changes it.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the patch does not fit the data.
    #[inline]
    pub(crate) fn patch(&mut self, patch: &Patch<impl AsRef<[u8]>>) -> Result<()> {
        if !patch.apply(&mut self.update.bytes[NODE_HEADER..]) {
            return Err(strange(self.node));
        }
        self.update.log(|log| patch.encode(log));
        Ok(())
    }
}

/// Applies patches to a committed node.
pub(crate) fn apply_to_node(
    store: &Store,
    partition: &mut crate::partition::Partition,
    node: NodeId,
    patches: &[u8],
) -> Result<()> {
    let strange = |what: &str| Error::damaged(format!("node {node} is to be changed and {what}"));
    let place =
        find_node(&store.pool.table, node, NodeScope::Committed).map_err(|_| strange("is not there"))?;
    store.write(partition, |pages, _| {
        let (_, len) = node_header(pages, node, place)?;
        let start = place.offset + NODE_HEADER;
        let data = pages.bytes_mut(place.page)?.get_mut(start..start + len);
        if !data.is_some_and(|data| apply_all(patches, data)) {
            return Err(strange("the change does not fit").into());
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Info, InfoForm, MemoryStore, Options, SnodeId};
    use std::sync::Arc;

    const KIND: NodeType = NodeType(3);

    #[test]
    fn a_patch_moves_what_follows_within_its_stretch_and_nothing_else() {
        let patch = |at, end, removed, inserted| Patch { at, end, removed, inserted };
        let cases = [
            (patch(2, 8, 0, &b"XY"[..]), "01XY234589"),
            (patch(2, 8, 2, &b""[..]), "0145676789"),
            (patch(2, 8, 2, &b"XY"[..]), "01XY456789"),
            (patch(2, 10, 1, &b"XYZ"[..]), "01XYZ34567"),
            (patch(10, 10, 0, &b""[..]), "0123456789"),
        ];
        for (patch, wanted) in cases {
            let mut data = *b"0123456789";
            assert!(patch.apply(&mut data));
            assert_eq!(data, wanted.as_bytes(), "{patch:?}");
            let (mut log, mut again) = (Vec::new(), *b"0123456789");
            patch.encode(&mut log);
            assert!(apply_all(&log, &mut again));
            assert_eq!(again, data);
            assert!(!apply_all(&log[..log.len() - 1], &mut again));
        }
        for wrong in [patch(5, 4, 0, b""), patch(0, 11, 0, b""), patch(0, 2, 0, b"abc"), patch(1, 4, 4, b"")]
        {
            assert!(!wrong.apply(&mut b"0123456789".to_owned()), "{wrong:?}");
        }
    }

    #[test]
    fn patches_are_seen_undone_committed_and_replayed() {
        let medium = Arc::new(MemoryStore::new());
        let store = Store::create(Box::new(medium.clone()), &Options::default()).unwrap();
        let (root, next) =
            (store.root(SnodeId::FIRST).unwrap(), store.edge_type("n", InfoForm::Number).unwrap());
        let mut tx = store.begin();
        let node = tx.create_node(SnodeId::FIRST, KIND, &[b'.'; 4088]).unwrap();
        tx.create_edge(root, next, Info::Number(0), node).unwrap();
        tx.commit().unwrap();
        store.checkpoint().unwrap();
        let put = |at, inserted: &'static [u8]| Patch { at, end: 4088, removed: 0, inserted };
        let mut tx = store.begin();
        tx.patch_node(node, KIND, &[put(0, b"one"), put(3, b"two")]).unwrap();
        let savepoint = tx.savepoint();
        tx.patch_node(node, KIND, &[put(0, b"gone")]).unwrap();
        assert!(tx.read_node(node, KIND).unwrap().starts_with(b"goneonetwo.."));
        tx.undo_to(savepoint).unwrap();
        tx.patch_node(node, KIND, &[put(6, b"three")]).unwrap();
        assert!(matches!(tx.patch_node(node, NodeType(4), &[put(0, b"")]), Err(Error::WrongType { .. })));
        assert!(tx.read_node(node, KIND).unwrap().starts_with(b"onetwothree.."));
        assert!(store.read_node(node, KIND).unwrap().starts_with(b"..."), "nobody else sees it yet");
        let before = store.report().journal_bytes;
        tx.commit().unwrap();
        // Each sync takes a block at least.
        assert!(store.report().journal_bytes - before <= 4096, "the journal gets what changed");
        let mut tx = store.begin();
        tx.update_node(node, KIND, &[b'-'; 100]).unwrap();
        tx.patch_node(node, KIND, &[Patch { at: 0, end: 100, removed: 0, inserted: b"four" }]).unwrap();
        tx.commit().unwrap();
        drop(store);
        let store = Store::open(Box::new(medium), &Options::default()).unwrap();
        assert!(store.report().recovered_commits >= 2);
        let data = store.read_node(node, KIND).unwrap();
        assert!(data.starts_with(b"four---") && data.len() == 100);
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}
