//! What a session's caller sees: of the last commit, of a snapshot, or of a transaction, which checks permissions itself.

use super::{Outcome, SessionError};
use crate::committed::Committed;
use crate::edges::EachPart;
use crate::error::Result;
use crate::ids::{EdgeType, Info, NodeId, NodeType, Permission, SnodeId};
use crate::snodes::access::{decide, edge_of, principals};
use crate::snodes::tags::SnodeTags;
use crate::tx::Transaction;
use weft_core::Credentials;

/// The reads that a session serves, each checked against the permissions of its caller.
pub(super) trait SessionRead {
    /// Refuses a caller that has none of these permissions in a node's s-node.
    fn check(&mut self, node: NodeId, needed: &[Permission]) -> Result<()>;
    /// Up to `bytes` of a node's data from byte `at` on, and where all of it ends.
    fn read_part(&mut self, node: NodeId, kind: NodeType, at: u64, bytes: usize) -> Result<(Vec<u8>, u64)>;
    fn edge(&mut self, source: NodeId, etype: EdgeType, info: Info<'_>) -> Result<Option<NodeId>>;
    /// Calls `each` with all edges out of a node, in parts, those of the store's own included.
    fn each_out(&mut self, source: NodeId, each: &mut EachPart<'_, SessionError>) -> Outcome<()>;
    fn snode_tags(&mut self, node: NodeId) -> Result<SnodeTags>;
}

impl SessionRead for Transaction<'_> {
    fn check(&mut self, node: NodeId, needed: &[Permission]) -> Result<()> {
        self.enter_node(node, needed)
    }

    fn read_part(&mut self, node: NodeId, kind: NodeType, at: u64, bytes: usize) -> Result<(Vec<u8>, u64)> {
        let len = self.node_len(node, kind)?;
        let mut part = vec![0; bytes.min(len.saturating_sub(at) as usize)];
        self.read_at(node, kind, at, &mut part)?;
        Ok((part, len))
    }

    fn edge(&mut self, source: NodeId, etype: EdgeType, info: Info<'_>) -> Result<Option<NodeId>> {
        Transaction::edge(self, source, etype, info)
    }

    fn each_out(&mut self, source: NodeId, each: &mut EachPart<'_, SessionError>) -> Outcome<()> {
        self.check(source, &[Permission::Read])?;
        Transaction::each_out(self, source, each)
    }

    fn snode_tags(&mut self, node: NodeId) -> Result<SnodeTags> {
        let snode = self.snode_of(node)?;
        Transaction::snode_tags(self, snode)
    }
}

/// A committed state and the caller whose permissions limit what it reads.
pub(super) struct CheckedState<'a, C> {
    pub(super) state: &'a C,
    pub(super) caller: &'a Credentials,
}

impl<C: Committed> CheckedState<'_, C> {
    fn check_any(&self, snode: SnodeId, needed: &[Permission]) -> Result<()> {
        let root = self.state.root_of(snode)?;
        if self.caller.is_superuser() {
            return Ok(());
        }
        let says = self.state.read_root(root)?;
        decide(snode, needed, |permission| {
            let mut found = says.gives(self.caller, permission);
            for principal in principals(self.caller) {
                found |= self.state.find_edge(&edge_of(root, principal, permission))?.is_some();
            }
            Ok(found)
        })
    }
}

impl<C: Committed> SessionRead for CheckedState<'_, C> {
    fn check(&mut self, node: NodeId, needed: &[Permission]) -> Result<()> {
        self.check_any(self.state.owner_of(node)?, needed)
    }

    fn read_part(&mut self, node: NodeId, kind: NodeType, at: u64, bytes: usize) -> Result<(Vec<u8>, u64)> {
        self.check(node, &[Permission::Read])?;
        let mut part = Vec::new();
        let len = self.state.read_part(node, kind, at..at.saturating_add(bytes as u64), &mut part)?;
        Ok((part, len))
    }

    fn edge(&mut self, source: NodeId, etype: EdgeType, info: Info<'_>) -> Result<Option<NodeId>> {
        self.check(source, &[Permission::Read])?;
        self.state.edge_of(source, etype, info)
    }

    fn each_out(&mut self, source: NodeId, each: &mut EachPart<'_, SessionError>) -> Outcome<()> {
        self.check(source, &[Permission::Read])?;
        self.state.look_for(source)?;
        self.state.each_out(source, each)
    }

    fn snode_tags(&mut self, node: NodeId) -> Result<SnodeTags> {
        let snode = self.state.owner_of(node)?;
        self.check_any(snode, &[Permission::Read, Permission::Control])?;
        self.state.tags_of(snode)
    }
}
