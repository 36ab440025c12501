//! Many pairs at once: their nodes under one hold of the s-node's pages, their edges with one look at the write set each.

use super::Transaction;
use super::runs::copy_of_all;
use super::write_set::NONE;
use crate::edges::EdgeKey;
use crate::error::Result;
use crate::ids::{EdgeType, HomeId, Info, NodeId, NodeType, Permission, SnodeId};
use crate::layout::node::{NODE_HEADER, class_of, slot_bytes, slots_of, write_header};
use std::iter::Peekable;

/// A change of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvChange<'a> {
    /// The key has this value.
    Put(&'a [u8], &'a [u8]),
    /// The key is gone, if it was there.
    Delete(&'a [u8]),
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

impl<'c> KvChange<'c> {
    pub(crate) fn key(&self) -> &'c [u8] {
        match self {
            KvChange::Put(key, _) | KvChange::Delete(key) => key,
        }
    }

    fn put(&self) -> Option<(&'c [u8], &'c [u8])> {
        match *self {
            KvChange::Put(key, value) => Some((key, value)),
            KvChange::Delete(_) => None,
        }
    }
}

/// The class of slabs that the node of a pair goes to; `None` for one with pages of its own.
fn class_of_pair((key, value): &(&[u8], &[u8])) -> Option<u8> {
    class_of(2 + key.len() + value.len())
}

impl Transaction<'_> {
    /// Makes a node for each put of `changes`, in their order: the key's length, the key, the value.
    pub(crate) fn create_pairs(
        &mut self,
        snode: SnodeId,
        kind: NodeType,
        changes: &[KvChange<'_>],
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        *nodes = Vec::with_capacity(changes.len());
        let mut puts = changes.iter().filter_map(KvChange::put).peekable();
        if puts.peek().is_none() {
            return Ok(());
        }
        let home = self.enter(snode, Permission::Write)?;
        while let Some(put) = puts.peek() {
            let start = nodes.len();
            if let (None, (key, value)) = (class_of_pair(put), *put) {
                puts.next();
                let len = (key.len() as u16).to_le_bytes();
                nodes.push(self.make_node(home, kind, &[&len, key, value])?);
                continue;
            }
            let made = self.create_small_pairs(home, kind, &mut puts, nodes);
            // Also after a failure: the abort takes them back.
            nodes[start..].iter().for_each(|node| self.set.create(*node));
            made?;
        }
        self.own(snode, nodes)
    }

    /// Makes the nodes of the next pairs, up to the first that is too large for a slab.
    fn create_small_pairs<'c>(
        &self,
        snode: HomeId,
        kind: NodeType,
        pairs: &mut Peekable<impl Iterator<Item = (&'c [u8], &'c [u8])> + Clone>,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        let store = self.store;
        let partition = store.partition(snode)?;
        self.with_room(|| {
            store.write(&mut partition.write(), |pages, contents| {
                while let Some(class) = pairs.peek().and_then(class_of_pair) {
                    let bytes = slot_bytes(class).unwrap_or(crate::PAGE_BYTES);
                    let next = pairs.clone().take(slots_of(bytes));
                    let alike = next.take_while(|pair| class_of_pair(pair) == Some(class)).count();
                    let slab = &mut contents.slabs[usize::from(class)];
                    let (page, slots) = slab.reserve(pages, class, alike)?;
                    let raw = pages.bytes_mut(page)?;
                    for (slot, (key, value)) in slots.zip(&mut *pairs) {
                        let len = (key.len() as u16).to_le_bytes();
                        let out = &mut raw[slot * bytes..(slot + 1) * bytes];
                        write_header(out, kind.0, 2 + key.len() + value.len());
                        copy_of_all(&[&len, key, value])(0, &mut out[NODE_HEADER..])?;
                        nodes.push(NodeId::at(snode, page, slot * bytes));
                    }
                }
                Ok(())
            })
        })
    }

    /// Leads the edges of `changes` to their new nodes or nowhere. How many keys had a node before.
    pub(crate) fn lead_pairs(
        &mut self,
        source: NodeId,
        etype: EdgeType,
        changes: &[KvChange<'_>],
        pairs: &Pairs,
    ) -> u64 {
        let mut nodes = pairs.nodes.iter();
        let (mut found, mut outs) = (0, 0);
        for ((change, key), old) in changes.iter().zip(&pairs.hashes).zip(&pairs.before) {
            let edge = EdgeKey { source, etype, key: *key, info: Info::Key(change.key()) };
            let new = change.put().and_then(|_| nodes.next()).copied().unwrap_or(NONE);
            let now = self.set.lead(&edge, *old, new);
            found += u64::from(now != NONE);
            outs += i64::from(new != NONE) - i64::from(now != NONE);
        }
        self.set.touch(source, 0, outs);
        found
    }
}
