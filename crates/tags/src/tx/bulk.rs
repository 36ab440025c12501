//! Many pairs at once: their nodes under one hold of the s-node's pages, their edges with one look at the write set each.

use super::write_set::NONE;
use super::{Transaction, fill};
use crate::edges::EdgeKey;
use crate::error::Result;
use crate::ids::{EdgeType, HomeId, Info, NodeId, NodeType, Permission, SnodeId};
use crate::layout::node::{class_of, slot_bytes, slots_of};

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

/// The class of slabs that the node of a put goes to; `None` for one with pages of its own, or no put.
fn class_of_put(change: &KvChange<'_>) -> Option<u8> {
    change.put().and_then(|(key, value)| class_of(2 + key.len() + value.len()))
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
        nodes.clear();
        let mut next = next_put(changes, 0);
        if next == changes.len() {
            return Ok(());
        }
        let home = self.enter(snode, Permission::Write)?;
        while let Some(change) = changes.get(next) {
            let start = nodes.len();
            if let (None, Some((key, value))) = (class_of_put(change), change.put()) {
                let len = (key.len() as u16).to_le_bytes();
                nodes.push(self.make_node(home, kind, &[&len, key, value])?);
                next = next_put(changes, next + 1);
                continue;
            }
            let made = self.create_small_pairs(home, kind, changes, &mut next, nodes);
            // Also after a failure: the abort takes them back.
            self.set.create_many(&nodes[start..]);
            made?;
        }
        self.own(snode, nodes)
    }

    /// Makes the nodes of the puts from `next` on, up to the first that is too large for a slab.
    fn create_small_pairs(
        &self,
        snode: HomeId,
        kind: NodeType,
        changes: &[KvChange<'_>],
        next: &mut usize,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        let store = self.store;
        let partition = store.partition(snode)?;
        self.with_room(|| {
            store.write(&mut partition.write(), |pages, contents| {
                while let Some(class) = changes.get(*next).and_then(class_of_put) {
                    let bytes = slot_bytes(class).unwrap_or(crate::PAGE_BYTES);
                    let puts = changes[*next..].iter().filter(|change| change.put().is_some());
                    let alike = puts.take(slots_of(bytes)).take_while(|put| class_of_put(put) == Some(class));
                    let slab = &mut contents.slabs[usize::from(class)];
                    let (page, slots) = slab.reserve(pages, &store.numbers.data, class, alike.count())?;
                    let raw = pages.bytes_mut(page)?;
                    for slot in slots {
                        let Some((key, value)) = changes.get(*next).and_then(KvChange::put) else { break };
                        let len = (key.len() as u16).to_le_bytes();
                        let out = &mut raw[slot * bytes..(slot + 1) * bytes];
                        fill(out, kind, 2 + key.len() + value.len(), &[&len, key, value]);
                        nodes.push(NodeId::at(snode, page, slot * bytes));
                        *next = next_put(changes, *next + 1);
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
        self.set.reserve(changes.len());
        let mut nodes = pairs.nodes.iter();
        let (mut found, mut outs) = (0, 0);
        for ((change, key), old) in changes.iter().zip(&pairs.hashes).zip(&pairs.before) {
            let edge = EdgeKey { source, etype, key: *key, info: Info::Key(change.key()) };
            let new = match change {
                KvChange::Put(..) => nodes.next().copied().unwrap_or(NONE),
                KvChange::Delete(_) => NONE,
            };
            let now = self.set.lead(&edge, *old, new);
            found += u64::from(now != NONE);
            outs += i64::from(new != NONE) - i64::from(now != NONE);
        }
        self.set.touch_source(source, outs);
        found
    }
}

/// The place of the first put from `from` on; behind the last change when there is none.
fn next_put(changes: &[KvChange<'_>], from: usize) -> usize {
    let rest = changes.get(from..).unwrap_or(&[]);
    rest.iter().position(|change| change.put().is_some()).map_or(changes.len(), |ahead| from + ahead)
}
