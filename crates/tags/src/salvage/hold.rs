//! The places of lost nodes are held: a program, or a B+tree, may have their ids in its data, and would take whatever
//! came there next for what was there.

use super::LOST;
use super::copy::Copy;
use super::known::{KnownNode, Nodes, whole_page};
use crate::edges::RawEdge;
use crate::error::Result;
use crate::ids::{HomeId, NodeId};
use crate::layout::node::slot_at;
use crate::pages::desc::{PageKind, slot_is_set};
use crate::partition::Partition;
use crate::store::Store;
use crate::tx::apply::put_in_slot;

impl Copy<'_> {
    /// Puts a node without data where each lost one was, and one in each page of which nothing is known; each under the root of its
    /// s-node.
    pub(super) fn hold_places(&mut self, nodes: &mut Nodes) -> Result<()> {
        let mut places: Vec<(NodeId, u8)> = self.lost.iter().map(|(node, class)| (*node, *class)).collect();
        let max = self.source.medium.blocks() as usize;
        let of_leaves =
            self.pages_of_lost_leaves().map(|page| (NodeId::at(HomeId::FIRST, page, 0), whole_page()));
        places.extend(of_leaves.take(max));
        let left = self.pages_of_lost_leaves().skip(max).count();
        if left > 0 {
            self.report.remark(format!("{left} pages of lost leaves may be given to new nodes"));
        }
        places.sort_unstable();
        let mut etype = None;
        for (node, class) in places {
            let is_there = self.store.snodes.find(node.home()).is_some();
            if !is_there || !self.change(node.home(), |store, home| hold(store, home, node, class))? {
                continue;
            }
            let etype = *etype.get_or_insert_with(|| self.etype(super::HELD));
            nodes.insert(node, KnownNode { kind: LOST.0, ..KnownNode::default() });
            let root = self.root_for(node, nodes)?;
            if node.home().is_shared() {
                self.lead_to_owner(node, root, nodes)?;
            }
            let edge = RawEdge { etype, key: node.0, to: node };
            self.lead(nodes, root, edge)?;
            self.report.held_places += 1;
        }
        Ok(())
    }
}

/// Puts a node without data in a slot; `false` where there is something else.
fn hold(store: &Store, partition: &mut Partition, node: NodeId, class: u8) -> Result<bool> {
    let Some(page) = node.page().filter(|page| *page > 0) else { return Ok(false) };
    let Some(slot) = slot_at(class, node.offset()) else { return Ok(false) };
    let snode = partition.snode;
    let before = store.pool.table.describe(page);
    let is_free = before.kind == PageKind::Free
        || (before.kind, before.snode, before.class) == (PageKind::Slab, snode.0, class)
            && !slot_is_set(&before.body, slot);
    if !is_free {
        return Ok(false);
    }
    put_in_slot(store, partition, (page, slot), class, LOST, &[]).map(|_| true)
}
