//! Ids as a session knows them: random numbers that mean something in that session only.

use super::Outcome;
use super::error::{Refusal, changed};
use crate::ids::NodeId;
use crate::snapshot::Snapshot;
use crate::sync::Mutex;
use crate::watchers::NodeWatcher;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;

/// Most ids that a session holds at once.
pub const SESSION_IDS_MAX: usize = 1 << 20;

/// A node as a session knows it. The same node has another id in another session, and none after the session's end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNode(pub u64);

impl fmt::Debug for SessionNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// The ids that a session has handed out.
///
/// A node that is freed costs nothing here unless the session has an id of it: a snapshot tells which of its nodes were freed since.
#[derive(Default)]
pub(crate) struct SessionIds {
    /// Nodes that are there.
    now: KnownNodes,
    /// While a snapshot is read, nodes of it that were freed since. Their ids stay valid until it ends, and their places may be
    /// those of others now.
    gone: Option<KnownNodes>,
    /// Ids that were given meanwhile for nodes that are there now. The snapshot may have another node in such a place.
    newer: FxHashSet<SessionNode>,
}

/// Nodes, each with its id.
#[derive(Default)]
struct KnownNodes {
    nodes: FxHashMap<SessionNode, NodeId>,
    ids: FxHashMap<NodeId, SessionNode>,
}

impl SessionIds {
    /// Begins to read a snapshot, which has just begun: all nodes that are known are in it.
    pub(super) fn begin_then(&mut self) {
        self.end_then();
        self.gone = Some(KnownNodes::default());
    }

    pub(super) fn end_then(&mut self) {
        self.gone = None;
        self.newer.clear();
    }

    fn gone(&self, id: SessionNode) -> Option<NodeId> {
        self.gone.as_ref()?.nodes.get(&id).copied()
    }

    /// The node of an id in the snapshot that is read, in which it may be there though it has gone since.
    pub(super) fn node_then(&self, id: SessionNode, snapshot: &Snapshot<'_>) -> Outcome<NodeId> {
        let node = self.gone(id).map_or_else(|| self.node(id), Ok)?;
        let is_newer = self.newer.contains(&id) && snapshot.has_freed(node)?;
        if is_newer { Err(changed()) } else { Ok(node) }
    }

    /// The node of an id, which is there now.
    pub(super) fn node(&self, id: SessionNode) -> Outcome<NodeId> {
        let absent = || self.gone(id).map_or_else(|| Refusal::NoSuchId.into(), |_| changed());
        self.now.nodes.get(&id).copied().ok_or_else(absent)
    }

    /// The id of a node that is there now, which is the same each time.
    pub(super) fn give(&mut self, node: NodeId) -> Outcome<SessionNode> {
        let is_known = self.now.ids.contains_key(&node);
        let id = self.give_in(node, false)?;
        if !is_known && self.gone.is_some() {
            self.newer.insert(id);
        }
        Ok(id)
    }

    /// The id of a node of the snapshot that is read. It ends with that where the node was freed since.
    pub(super) fn give_then(&mut self, node: NodeId, snapshot: &Snapshot<'_>) -> Outcome<SessionNode> {
        // What frees a node notes that first, and then waits for the lock of these to have it forgotten.
        self.give_in(node, snapshot.has_freed(node)?)
    }

    fn give_in(&mut self, node: NodeId, has_gone: bool) -> Outcome<SessionNode> {
        let all = self.now.ids.len() + self.gone.as_ref().map_or(0, |gone| gone.ids.len());
        let known = self.gone.as_mut().filter(|_| has_gone).unwrap_or(&mut self.now);
        if let Some(id) = known.ids.get(&node) {
            return Ok(*id);
        }
        if all >= SESSION_IDS_MAX {
            return Err(Refusal::TooManyIds.into());
        }
        let id = loop {
            // From the system's generator: no id says anything of another.
            let id = SessionNode(rand::random());
            if !known.nodes.contains_key(&id) {
                break id;
            }
        };
        known.nodes.insert(id, node);
        known.ids.insert(node, id);
        Ok(id)
    }

    pub(super) fn forget(&mut self, id: SessionNode) {
        self.newer.remove(&id);
        if let Some(node) = self.now.nodes.remove(&id) {
            self.now.ids.remove(&node);
        }
    }

    fn forget_node(&mut self, node: NodeId) {
        let Some(id) = self.now.ids.remove(&node) else { return };
        self.now.nodes.remove(&id);
        if !self.newer.remove(&id)
            && let Some(gone) = &mut self.gone
        {
            gone.nodes.insert(id, node);
            gone.ids.insert(node, id);
        }
    }
}

impl NodeWatcher for Mutex<SessionIds> {
    fn forget(&self, node: NodeId) {
        self.lock().forget_node(node);
    }
}
