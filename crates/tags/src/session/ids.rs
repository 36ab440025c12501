//! Ids as a session knows them: random numbers that mean something in that session only.

use super::error::{LOST, Refusal, SessionError};
use crate::ids::NodeId;
use crate::sync::Mutex;
use crate::watchers::NodeWatcher;
use rustc_hash::FxHashMap;
use std::fmt;

/// Most ids that a session holds at once.
pub const SESSION_IDS_MAX: usize = 1 << 20;
/// Most nodes that may go while a session looks at a state in which they were.
const GONE_MAX: usize = 1 << 14;

/// A node as a session knows it. The same node has another id in another session, and none after the session's end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNode(pub u64);

impl fmt::Debug for SessionNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// The ids that a session has handed out.
#[derive(Default)]
pub(crate) struct SessionIds {
    nodes: FxHashMap<SessionNode, NodeId>,
    ids: FxHashMap<NodeId, SessionNode>,
    watch: Option<GoneIds>,
}

/// Nodes deleted since the session began to read a state. Their ids stay valid until it ends that read.
#[derive(Default)]
struct GoneIds {
    /// Nodes, with their ids where they have any.
    gone: FxHashMap<NodeId, Option<SessionNode>>,
    ids: FxHashMap<SessionNode, NodeId>,
}

impl SessionIds {
    /// Begins to look at a state, of the last commit or an earlier one, unless that has begun.
    pub(super) fn watch(&mut self) {
        self.watch.get_or_insert_default();
    }

    pub(super) fn end_watch(&mut self) {
        self.watch = None;
    }

    /// The node of an id in the state that is looked at, in which it may be there though it has gone since.
    pub(super) fn node_then(&self, id: SessionNode) -> Result<NodeId, SessionError> {
        let then = self.watch.as_ref().and_then(|watch| watch.ids.get(&id)).copied();
        then.map_or_else(|| self.node(id), Ok)
    }

    pub(super) fn node(&self, id: SessionNode) -> Result<NodeId, SessionError> {
        self.nodes.get(&id).copied().ok_or_else(|| Refusal::NoSuchId.into())
    }

    /// The id of a node, which is the same each time.
    pub(super) fn give(&mut self, node: NodeId) -> Result<SessionNode, SessionError> {
        let gone = self.watch.as_ref().and_then(|watch| watch.gone.get(&node)).copied().flatten();
        if let Some(id) = gone.or_else(|| self.ids.get(&node).copied()) {
            return Ok(id);
        }
        let passing = self.watch.as_ref().map_or(0, |watch| watch.ids.len());
        if self.ids.len() + passing >= SESSION_IDS_MAX {
            return Err(Refusal::TooManyIds.into());
        }
        let id = loop {
            // From the system's generator: no id says anything of another.
            let id = SessionNode(rand::random());
            if !self.nodes.contains_key(&id) {
                break id;
            }
        };
        if let Some(watch) = &mut self.watch {
            if watch.gone.len() >= GONE_MAX {
                return Err(SessionError::new(Refusal::Deadlock, LOST));
            }
            if let Some(gone) = watch.gone.get_mut(&node) {
                *gone = Some(id);
                watch.ids.insert(id, node);
                return Ok(id);
            }
        }
        self.nodes.insert(id, node);
        self.ids.insert(node, id);
        Ok(id)
    }

    pub(super) fn forget(&mut self, id: SessionNode) {
        if let Some(node) = self.nodes.remove(&id) {
            self.ids.remove(&node);
        }
    }

    fn forget_node(&mut self, node: NodeId) {
        let id = self.ids.remove(&node);
        if let Some(id) = &id {
            self.nodes.remove(id);
        }
        if let Some(watch) = self.watch.as_mut().filter(|watch| watch.gone.len() < GONE_MAX) {
            watch.gone.insert(node, id);
            watch.ids.extend(id.map(|id| (id, node)));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = SessionIds::default();
    }
}

impl NodeWatcher for Mutex<SessionIds> {
    fn forget(&self, node: NodeId) {
        self.lock().forget_node(node);
    }
}
