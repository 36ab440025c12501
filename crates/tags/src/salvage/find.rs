//! Recovers edges by key from lost pages: the destination nodes contain the keys.
//!
//! That is no guess: a node that had an edge and has none has lost it with one of the pages that are lost. If all of these are of
//! tables of edges by key, each with one source and type, the hash of the node's key says which of them it was.

use super::copy::Copy;
use super::known::{LostTable, Nodes, count};
use crate::edges::RawEdge;
use crate::error::Result;
use crate::ids::{InfoForm, NodeId, NodeType};
use crate::inspect::NodeView;
use crate::layout::node::split_key;

/// The length of a key, and the longest key.
const KEY_READ_BYTES: usize = 2 + u16::MAX as usize;

impl Copy<'_> {
    /// Makes the edges again to nodes that have lost the only one they had.
    pub(super) fn find_edges(&mut self, nodes: &mut Nodes) -> Result<()> {
        let is_by_key = |table: &LostTable| table.of.is_some_and(|of| of.form == InfoForm::Key);
        if self.lost_tables.is_empty()
            || !self.lost_leaves.is_empty()
            || !self.lost_tables.iter().all(is_by_key)
        {
            return Ok(());
        }
        let mut alone: Vec<NodeId> = Vec::new();
        for (node, seen) in nodes.iter() {
            let has_edges = seen.ins > 0 || seen.outs > u32::from(seen.is_moved);
            if !has_edges && NodeType(seen.kind).is_keyed() && !seen.is_body && !self.cut_off.contains(node) {
                alone.push(*node);
            }
        }
        alone.sort_unstable();
        for node in alone {
            // No more than a key may have: a node may be larger than the cache.
            let Ok(NodeView { data, .. }) = self.store.view(node, KEY_READ_BYTES) else { continue };
            let Some((key, _)) = split_key(&data) else { continue };
            let hash = self.store.secret.bytes(key);
            let mut found =
                self.lost_tables.iter().filter(|table| table.snode == node.home() && table.covers(hash));
            let (Some(LostTable { of: Some(of), .. }), None) = (found.next(), found.next()) else { continue };
            let edge = RawEdge { etype: of.etype, key: hash, to: node };
            if nodes.contains_key(&of.source) && self.put_edge(of.source, InfoForm::Key, edge)? {
                count(nodes, of.source, &edge);
                self.report.found_edges += 1;
            }
        }
        Ok(())
    }
}
