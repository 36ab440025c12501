//! What a salvage has learned of nodes and tables so far.

use crate::edges::RawEdge;
use crate::ids::{EdgeType, HomeId, NodeId, NodeType, PAGE_BYTES};
use crate::inspect::Bundled;
use crate::layout::node::{NODE_HEADER, class_of};
use crate::pages::desc::{Desc, PageKind, Share};
use rustc_hash::FxHashMap;

/// What is known of a node or body.
#[derive(Clone, Copy, Default)]
pub(super) struct KnownNode {
    pub kind: u32,
    pub ins: u32,
    pub outs: u32,
    pub is_body: bool,
    /// It has no data of its own and needs a body.
    pub is_moved: bool,
    /// It has a body, or is one, or is the root of an s-node that is led to from its home.
    pub is_joined: bool,
    /// The root of its s-node, in a home that is shared.
    pub owner: Option<NodeId>,
}

pub(super) type Nodes = FxHashMap<NodeId, KnownNode>;

impl KnownNode {
    /// Whether a node is the root of an s-node that shares its home. Those of homes are held without an edge.
    pub(super) fn is_guest(&self, node: NodeId, home_root: NodeId) -> bool {
        self.kind == NodeType::ROOT.0 && node != home_root
    }
}

/// Counts an edge at both its ends.
pub(super) fn count(nodes: &mut Nodes, source: NodeId, edge: &RawEdge) {
    let is_body = edge.etype == EdgeType::BODY;
    if let Some(from) = nodes.get_mut(&source) {
        from.is_joined |= is_body;
        if edge.etype == EdgeType::OWNER {
            from.owner = Some(edge.to);
        } else {
            from.outs += 1;
        }
    }
    if let Some(to) = nodes.get_mut(&edge.to) {
        to.ins += 1;
        to.is_joined |= is_body || edge.etype == EdgeType::GUEST;
    }
}

/// A page of an edge table that cannot be read.
#[derive(Clone, Copy)]
pub(super) struct LostTable {
    pub page: u32,
    pub block: u64,
    pub snode: HomeId,
    /// What its edges go out from; `None` where that is not one node and one type.
    pub of: Option<Bundled>,
    /// `None` where its descriptor makes no sense: it may be any.
    pub share: Option<Share>,
}

impl LostTable {
    /// Whether a hash belongs to this page.
    pub(super) fn covers(&self, hash: u64) -> bool {
        self.share.is_none_or(|share| share.covers((hash >> 32) as u32))
    }
}

/// The class of slots of the size that the nodes of a page have.
pub(super) fn class_in(desc: &Desc) -> u8 {
    if desc.kind == PageKind::Slab { desc.class } else { whole_page() }
}

/// The class of slots of a page each.
pub(super) fn whole_page() -> u8 {
    class_of(PAGE_BYTES - NODE_HEADER).unwrap_or(0)
}
