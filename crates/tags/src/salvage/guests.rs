//! S-nodes that share homes: their roots say who they are, edges to the roots say whose a node is.

use super::copy::Copy;
use super::known::{KnownNode, Nodes};
use crate::committed::Committed;
use crate::edges::RawEdge;
use crate::error::Result;
use crate::ids::{EdgeType, HomeId, NodeId, NodeType};
use crate::snodes::tags::{Root, SnodeTags};
use crate::tx::apply::{make_root, overwrite};
use weft_core::TagFlags;

/// The highest number that an s-node may have had of which nothing is left.
const UNKNOWN_NUMBERS: u32 = 1 << 31;
/// Times that all edges are gone through to find out whose nodes are.
const PASSES_MAX: usize = 16;

impl Copy<'_> {
    /// Sees to it that each s-node that shares a home can be found, and that each node there has its s-node.
    pub(super) fn mend_guests(&mut self, nodes: &mut Nodes) -> Result<()> {
        for home in self.store.snodes.ids().into_iter().filter(|home| home.is_shared()) {
            let home_root = self.store.root_of_home(home)?;
            let mut here: Vec<NodeId> = nodes.keys().filter(|node| node.home() == home).copied().collect();
            here.sort_unstable();
            let (mut guests, mut alone) = (Vec::new(), Vec::new());
            for node in here {
                let Some(seen) = nodes.get(&node) else { continue };
                if seen.is_guest(node, home_root) {
                    guests.push((node, seen.is_joined));
                } else if node != home_root && !seen.is_body && seen.owner.is_none() {
                    alone.push(node);
                }
            }
            // Without a catalog nothing says which numbers lost s-nodes had, which are not given out again.
            let mut last = if self.has_catalog { 0 } else { UNKNOWN_NUMBERS };
            for (root, _) in &guests {
                last = last.max(self.store.read_root(*root)?.number);
            }
            self.store.snodes.with_guests(home, |known| {
                (known.last, known.count) = (known.last.max(last), guests.len() as u32);
            });
            for (root, _) in guests.into_iter().filter(|(_, is_joined)| !is_joined) {
                self.lead_to_guest(root, nodes)?;
            }
            self.find_owners(home, alone, nodes)?;
        }
        Ok(())
    }

    /// Leads an edge to the root of an s-node, by a new number where its own is another's.
    fn lead_to_guest(&mut self, at: NodeId, nodes: &mut Nodes) -> Result<()> {
        let home_root = self.store.root_of_home(at.home())?;
        let mut root = self.store.read_root(at)?;
        loop {
            let edge = RawEdge { etype: EdgeType::GUEST, key: u64::from(root.number), to: at };
            if self.lead(nodes, home_root, edge)? {
                return Ok(());
            }
            let Some(number) = self.store.snodes.next_number(at.home()) else { return Ok(()) };
            self.report.remark(format!("{at}: an s-node's number is another's; it gets {number}"));
            root.number = number;
            self.change(at.home(), |store, partition| overwrite(store, partition, at, &root.node()))?;
        }
    }

    /// Gives nodes the s-node of what leads to them; the others one that is made up.
    fn find_owners(&mut self, home: HomeId, mut alone: Vec<NodeId>, nodes: &mut Nodes) -> Result<()> {
        for _ in 0..PASSES_MAX {
            if alone.is_empty() {
                return Ok(());
            }
            let mut found = Vec::new();
            self.store.each_edge(home, |source, _, edge| {
                let owner = nodes.get(&source).and_then(|seen| {
                    if seen.is_guest(source, self.store.root_of_home(home).ok()?) {
                        Some(source)
                    } else {
                        seen.owner
                    }
                });
                if let Some(owner) = owner
                    && nodes.get(&edge.to).is_some_and(|seen| seen.owner.is_none())
                    && alone.binary_search(&edge.to).is_ok()
                {
                    found.push((edge.to, owner));
                }
            })?;
            if found.is_empty() {
                break;
            }
            for (node, owner) in found {
                self.lead_to_owner(node, owner, nodes)?;
            }
            alone.retain(|node| nodes.get(node).is_some_and(|seen| seen.owner.is_none()));
        }
        for node in alone {
            let owner = self.root_for(node, nodes)?;
            self.lead_to_owner(node, owner, nodes)?;
        }
        Ok(())
    }

    /// Notes whose a node of a shared home is.
    pub(super) fn lead_to_owner(&self, node: NodeId, owner: NodeId, nodes: &mut Nodes) -> Result<()> {
        let edge = RawEdge { etype: EdgeType::OWNER, key: 0, to: owner };
        self.lead(nodes, node, edge).map(drop)
    }

    /// The root of a node's s-node; in a shared home that of one that is made up, if nothing says whose the node was.
    pub(super) fn root_for(&mut self, node: NodeId, nodes: &mut Nodes) -> Result<NodeId> {
        let home = node.home();
        if !home.is_shared() {
            return self.store.root_of_home(home);
        }
        if let Some(root) = nodes.get(&node).and_then(|seen| seen.owner).or(self.made_up.get(&home).copied())
        {
            return Ok(root);
        }
        let flags = if self.may_erase { TagFlags::SECURE_DELETE } else { TagFlags::default() };
        let number = self.store.snodes.next_number(home).unwrap_or(u32::MAX);
        let root = Root { tags: SnodeTags { flags, ..SnodeTags::default() }, number, is_controlled: false };
        let at = self.change(home, |store, partition| make_root(store, partition, &root, None))?;
        nodes.insert(at, KnownNode { kind: NodeType::ROOT.0, ..KnownNode::default() });
        self.lead_to_guest(at, nodes)?;
        self.store.snodes.note_guest(home, u64::from(number), true);
        self.made_up.insert(home, at);
        self.report.made_up_snodes += 1;
        self.report
            .remark(format!("{home}: an s-node is made up for nodes of which nothing says whose they were"));
        Ok(at)
    }
}
