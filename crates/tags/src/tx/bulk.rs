//! Many pairs at once: their nodes under one hold of the s-node's pages, their edges with one look at the write set each.

use super::write_set::{EdgeKey, NONE};
use super::{Transaction, Use, fill};
use crate::error::Result;
use crate::ids::{EdgeType, Info, NodeId, NodeType, SnodeId};
use crate::kv::KvChange;
use crate::layout::node::{class_of, slot_bytes, slots_of};
use crate::snodes::access::Permission;

impl Transaction<'_> {
    /// Makes a node for each put of `changes`, in their order: the key's length, the key, the value.
    pub(crate) fn create_pairs(
        &mut self,
        snode: SnodeId,
        kind: NodeType,
        changes: &[KvChange<'_>],
    ) -> Result<Vec<NodeId>> {
        let puts: Vec<_> = changes
            .iter()
            .filter_map(|change| match change {
                KvChange::Put(key, value) => Some((*key, *value)),
                KvChange::Delete(_) => None,
            })
            .collect();
        let mut nodes = Vec::with_capacity(puts.len());
        if puts.is_empty() {
            return Ok(nodes);
        }
        self.enter(snode, Permission::Write)?;
        while nodes.len() < puts.len() {
            let start = nodes.len();
            let made = self.create_small_pairs(snode, kind, &puts[start..], &mut nodes);
            // Also after a failure: the abort takes them back.
            self.set.create_many(&nodes[start..]);
            made?;
            if let Some((key, value)) = puts.get(nodes.len()) {
                let len = (key.len() as u16).to_le_bytes();
                nodes.push(self.make_node(snode, kind, &[&len, key, value], Use::Node)?);
            }
        }
        Ok(nodes)
    }

    /// Makes the nodes of the pairs up to the first that is too large for a slab.
    fn create_small_pairs(
        &self,
        snode: SnodeId,
        kind: NodeType,
        pairs: &[(&[u8], &[u8])],
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        let store = self.store;
        let partition = store.partition(snode)?;
        let class_at =
            |at: usize| pairs.get(at).and_then(|(key, value)| class_of(2 + key.len() + value.len()));
        let mut next = 0;
        self.with_room(|| {
            store.write(&mut partition.write(), |pages, contents| {
                while let Some(class) = class_at(next) {
                    let bytes = slot_bytes(class).unwrap_or(crate::PAGE_BYTES);
                    let alike = (next..).take(slots_of(bytes)).take_while(|at| class_at(*at) == Some(class));
                    let slab = &mut contents.slabs[usize::from(class)];
                    let (page, slots) =
                        slab.reserve_many(pages, &store.data_numbers, class, alike.count())?;
                    let raw = pages.bytes_mut(page)?;
                    for slot in slots {
                        let (key, value) = pairs[next];
                        let len = (key.len() as u16).to_le_bytes();
                        let out = &mut raw[slot * bytes..(slot + 1) * bytes];
                        fill(out, kind, 2 + key.len() + value.len(), &[&len, key, value]);
                        nodes.push(NodeId::at(snode, page, slot * bytes));
                        next += 1;
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
        keys: &[(u64, &[u8])],
        before: &[NodeId],
        changes: &[KvChange<'_>],
        nodes: &[NodeId],
    ) -> u64 {
        self.set.reserve(changes.len());
        let mut nodes = nodes.iter();
        let (mut found, mut outs) = (0, 0);
        for ((change, (key, bytes)), old) in changes.iter().zip(keys).zip(before) {
            let edge = EdgeKey { source, etype, key: *key, info: Info::Key(bytes) };
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
