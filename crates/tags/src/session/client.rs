//! A session in another process.

use super::error::{Refusal, SessionError};
use super::server::FRAME_BYTES_MAX;
use super::wire::{self, EdgeName, Request};
use super::{Outcome, PIECE_BYTES_MAX, SessionEdge, SessionNode};
use crate::ids::{EdgeType, Info, InfoForm, NodeType};
use crate::snodes::access::{Permission, Principal};
use crate::snodes::tags::SnodeTags;
use std::os::unix::net::UnixStream;
use std::path::Path;
use weft_core::codec::{Reader, Truncated};
use weft_core::frame;

/// A session whose store another process serves. Its calls are those of [`Session`](super::Session), and refused likewise; a
/// connection that breaks is [`Refusal::Connection`]. Dropping it ends the session.
#[derive(Debug)]
pub struct RemoteSession {
    stream: UnixStream,
    root: SessionNode,
}

fn broken(error: impl std::fmt::Display) -> SessionError {
    SessionError::new(
        Refusal::Connection,
        format!("the tag store's server: {error}; see that it runs, and connect again"),
    )
}

fn nothing(_: &mut Reader) -> Result<(), Truncated> {
    Ok(())
}

fn node(r: &mut Reader) -> Result<SessionNode, Truncated> {
    Ok(SessionNode(r.u64()?))
}

impl RemoteSession {
    /// Opens a session of the store that is served at this path.
    ///
    /// # Errors
    /// [`Refusal::Connection`]; [`Refusal::NoSuchNode`] when the caller has no permission at the root.
    pub fn connect(path: &Path) -> Outcome<RemoteSession> {
        let connected = UnixStream::connect(path);
        let stream = connected.map_err(|error| broken(format!("{}: {error}", path.display())))?;
        let mut session = RemoteSession { stream, root: SessionNode(0) };
        session.root = session.ask(Request::Root, node)?;
        Ok(session)
    }

    fn ask<T>(
        &mut self,
        request: Request<'_>,
        read: impl FnOnce(&mut Reader) -> Result<T, Truncated>,
    ) -> Outcome<T> {
        let raw = request.encode();
        if raw.len() > FRAME_BYTES_MAX {
            let text = format!("a request of {} bytes; a socket takes {FRAME_BYTES_MAX}", raw.len());
            return Err(SessionError::new(Refusal::BadRequest, text));
        }
        // A server that has ended the session says so before it goes, and can no longer be sent to.
        let sent = frame::send(&mut self.stream, &raw);
        let answer = match frame::receive(&mut self.stream, FRAME_BYTES_MAX + 4) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(Refusal::Ended.into()),
            Err(error) => return Err(broken(sent.err().unwrap_or(error))),
        };
        let mut reader = Reader::new(&answer);
        match answer.first() {
            Some(0) => {
                reader.u8().map_err(broken)?;
                read(&mut reader).map_err(broken)
            }
            _ => Err(wire::read_error(&mut reader).map_err(broken)?),
        }
    }

    /// The node that the session began at.
    pub fn root(&self) -> SessionNode {
        self.root
    }

    /// As [`Session::begin`](super::Session::begin).
    pub fn begin(&mut self) -> Outcome<()> {
        self.ask(Request::Begin, nothing)
    }

    /// As [`Session::commit`](super::Session::commit).
    pub fn commit(&mut self) -> Outcome<u64> {
        self.ask(Request::Commit, |r| r.u64())
    }

    /// As [`Session::abort`](super::Session::abort).
    pub fn abort(&mut self) -> Outcome<()> {
        self.ask(Request::Abort, nothing)
    }

    /// As [`Session::savepoint`](super::Session::savepoint).
    pub fn savepoint(&mut self) -> Outcome<u32> {
        self.ask(Request::Savepoint, |r| r.u32())
    }

    /// As [`Session::undo_to`](super::Session::undo_to).
    pub fn undo_to(&mut self, savepoint: u32) -> Outcome<()> {
        self.ask(Request::UndoTo(savepoint), nothing)
    }

    /// As [`Session::create_node`](super::Session::create_node).
    pub fn create_node(&mut self, near: SessionNode, kind: NodeType, data: &[u8]) -> Outcome<SessionNode> {
        self.ask(Request::CreateNode { near, kind, data }, node)
    }

    /// As [`Session::read_node`](super::Session::read_node).
    pub fn read_node(&mut self, node: SessionNode, kind: NodeType) -> Outcome<Vec<u8>> {
        self.ask(Request::ReadNode { node, kind }, |r| Ok(r.string()?.to_vec()))
    }

    /// As [`Session::update_node`](super::Session::update_node).
    pub fn update_node(&mut self, node: SessionNode, kind: NodeType, data: &[u8]) -> Outcome<()> {
        self.ask(Request::UpdateNode { node, kind, data }, nothing)
    }

    /// As [`Session::read_at`](super::Session::read_at).
    pub fn read_at(&mut self, node: SessionNode, kind: NodeType, at: u64, bytes: usize) -> Outcome<Vec<u8>> {
        let bytes = bytes.min(PIECE_BYTES_MAX) as u32;
        self.ask(Request::ReadAt { node, kind, at, bytes }, |r| Ok(r.string()?.to_vec()))
    }

    /// As [`Session::write_at`](super::Session::write_at).
    pub fn write_at(&mut self, node: SessionNode, kind: NodeType, at: u64, data: &[u8]) -> Outcome<()> {
        self.ask(Request::WriteAt { node, kind, at, data }, nothing)
    }

    /// As [`Session::append`](super::Session::append).
    pub fn append(&mut self, node: SessionNode, kind: NodeType, data: &[u8]) -> Outcome<u64> {
        self.ask(Request::Append { node, kind, data }, |r| r.u64())
    }

    /// As [`Session::delete_node`](super::Session::delete_node).
    pub fn delete_node(&mut self, node: SessionNode, kind: NodeType) -> Outcome<()> {
        self.ask(Request::DeleteNode { node, kind }, nothing)
    }

    /// As [`Session::create_edge`](super::Session::create_edge).
    pub fn create_edge(
        &mut self,
        source: SessionNode,
        etype: EdgeType,
        info: Info<'_>,
        to: SessionNode,
    ) -> Outcome<()> {
        self.ask(Request::CreateEdge { edge: EdgeName { source, etype, info }, to }, nothing)
    }

    /// As [`Session::set_edge`](super::Session::set_edge).
    pub fn set_edge(
        &mut self,
        source: SessionNode,
        etype: EdgeType,
        info: Info<'_>,
        to: SessionNode,
    ) -> Outcome<Option<SessionNode>> {
        self.ask(Request::SetEdge { edge: EdgeName { source, etype, info }, to }, wire::read_option)
    }

    /// As [`Session::delete_edge`](super::Session::delete_edge).
    pub fn delete_edge(
        &mut self,
        source: SessionNode,
        etype: EdgeType,
        info: Info<'_>,
    ) -> Outcome<SessionNode> {
        self.ask(Request::DeleteEdge(EdgeName { source, etype, info }), node)
    }

    /// As [`Session::edge`](super::Session::edge).
    pub fn edge(
        &mut self,
        source: SessionNode,
        etype: EdgeType,
        info: Info<'_>,
    ) -> Outcome<Option<SessionNode>> {
        self.ask(Request::Edge(EdgeName { source, etype, info }), wire::read_option)
    }

    /// As [`Session::edges`](super::Session::edges).
    pub fn edges(&mut self, source: SessionNode) -> Outcome<Vec<SessionEdge>> {
        self.ask(Request::Edges(source), wire::read_edges)
    }

    /// As [`Session::edge_type`](super::Session::edge_type).
    pub fn edge_type(&mut self, name: &str, form: InfoForm) -> Outcome<EdgeType> {
        self.ask(Request::EdgeType { name, form }, |r| Ok(EdgeType(r.u32()?)))
    }

    /// As [`Session::delete_edge_type`](super::Session::delete_edge_type).
    pub fn delete_edge_type(&mut self, etype: EdgeType) -> Outcome<()> {
        self.ask(Request::DeleteEdgeType(etype), nothing)
    }

    /// As [`Session::create_snode`](super::Session::create_snode).
    pub fn create_snode(&mut self, tags: &SnodeTags) -> Outcome<SessionNode> {
        self.ask(Request::CreateSnode(*tags), node)
    }

    /// As [`Session::delete_snode`](super::Session::delete_snode).
    pub fn delete_snode(&mut self, node: SessionNode) -> Outcome<()> {
        self.ask(Request::DeleteSnode(node), nothing)
    }

    /// As [`Session::snode_tags`](super::Session::snode_tags).
    pub fn snode_tags(&mut self, node: SessionNode) -> Outcome<SnodeTags> {
        let tags = self.ask(Request::SnodeTags(node), wire::read_tags)?;
        tags.ok_or_else(|| broken("it sent tags that cannot be"))
    }

    /// As [`Session::set_snode_tags`](super::Session::set_snode_tags).
    pub fn set_snode_tags(&mut self, node: SessionNode, tags: &SnodeTags) -> Outcome<()> {
        self.ask(Request::SetSnodeTags { node, tags: *tags }, nothing)
    }

    /// As [`Session::grant`](super::Session::grant).
    pub fn grant(&mut self, node: SessionNode, principal: Principal, permission: Permission) -> Outcome<()> {
        self.ask(Request::Grant { node, principal, permission }, nothing)
    }

    /// As [`Session::revoke`](super::Session::revoke).
    pub fn revoke(
        &mut self,
        node: SessionNode,
        principal: Principal,
        permission: Permission,
    ) -> Outcome<bool> {
        self.ask(Request::Revoke { node, principal, permission }, |r| Ok(r.u8()? == 1))
    }

    /// As [`Session::forget`](super::Session::forget).
    pub fn forget(&mut self, id: SessionNode) -> Outcome<()> {
        self.ask(Request::Forget(id), nothing)
    }

    /// Ends the session.
    pub fn close(mut self) -> Outcome<()> {
        self.ask(Request::Close, nothing)
    }
}
