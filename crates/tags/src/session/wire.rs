//! Requests and answers on a socket.

use super::error::{Refusal, SessionError};
use super::{SessionEdge, SessionNode};
use crate::ids::{EdgeType, Info, InfoForm, NodeType};
use crate::snodes::access::{Permission, Principal};
use crate::snodes::tags::SnodeTags;
use weft_core::codec::{Reader, Truncated, WriteFields};
use weft_core::{DataClass, TagFlags};

/// Which edge of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EdgeName<'r> {
    pub source: SessionNode,
    pub etype: EdgeType,
    pub info: Info<'r>,
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request<'r> {
    Root,
    Begin,
    Commit,
    Abort,
    Savepoint,
    UndoTo(u32),
    CreateNode { near: SessionNode, kind: NodeType, data: &'r [u8] },
    ReadNode { node: SessionNode, kind: NodeType },
    UpdateNode { node: SessionNode, kind: NodeType, data: &'r [u8] },
    DeleteNode { node: SessionNode, kind: NodeType },
    CreateEdge { edge: EdgeName<'r>, to: SessionNode },
    SetEdge { edge: EdgeName<'r>, to: SessionNode },
    DeleteEdge(EdgeName<'r>),
    Edge(EdgeName<'r>),
    Edges(SessionNode),
    EdgeType { name: &'r str, form: InfoForm },
    CreateSnode(SnodeTags),
    DeleteSnode(SessionNode),
    SnodeTags(SessionNode),
    SetSnodeTags { node: SessionNode, tags: SnodeTags },
    Grant { node: SessionNode, principal: Principal, permission: Permission },
    Revoke { node: SessionNode, principal: Principal, permission: Permission },
    Forget(SessionNode),
    Close,
    DeleteEdgeType(EdgeType),
    ReadAt { node: SessionNode, kind: NodeType, at: u64, bytes: u32 },
    WriteAt { node: SessionNode, kind: NodeType, at: u64, data: &'r [u8] },
    Append { node: SessionNode, kind: NodeType, data: &'r [u8] },
}

impl<'r> Request<'r> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut raw = Vec::new();
        let node_and = |raw: &mut Vec<u8>, op: u8, node: SessionNode, kind: NodeType| {
            raw.put_u8(op);
            raw.put_u64(node.0);
            raw.put_u32(kind.0);
        };
        let plain = |raw: &mut Vec<u8>, op: u8, node: SessionNode| {
            raw.put_u8(op);
            raw.put_u64(node.0);
        };
        match *self {
            Request::Root => raw.put_u8(1),
            Request::Begin => raw.put_u8(2),
            Request::Commit => raw.put_u8(3),
            Request::Abort => raw.put_u8(4),
            Request::Savepoint => raw.put_u8(5),
            Request::UndoTo(savepoint) => {
                raw.put_u8(6);
                raw.put_u32(savepoint);
            }
            Request::CreateNode { near, kind, data } => {
                node_and(&mut raw, 7, near, kind);
                raw.put_string(data);
            }
            Request::ReadNode { node, kind } => node_and(&mut raw, 8, node, kind),
            Request::UpdateNode { node, kind, data } => {
                node_and(&mut raw, 9, node, kind);
                raw.put_string(data);
            }
            Request::DeleteNode { node, kind } => node_and(&mut raw, 10, node, kind),
            Request::CreateEdge { edge, to } => {
                put_edge(&mut raw, 11, edge);
                raw.put_u64(to.0);
            }
            Request::SetEdge { edge, to } => {
                put_edge(&mut raw, 12, edge);
                raw.put_u64(to.0);
            }
            Request::DeleteEdge(edge) => put_edge(&mut raw, 13, edge),
            Request::Edge(edge) => put_edge(&mut raw, 14, edge),
            Request::Edges(node) => plain(&mut raw, 15, node),
            Request::EdgeType { name, form } => {
                raw.put_u8(16);
                raw.put_u8(form as u8);
                raw.put_string(name.as_bytes());
            }
            Request::CreateSnode(tags) => {
                raw.put_u8(17);
                put_tags(&mut raw, &tags);
            }
            Request::DeleteSnode(node) => plain(&mut raw, 18, node),
            Request::SnodeTags(node) => plain(&mut raw, 19, node),
            Request::SetSnodeTags { node, tags } => {
                plain(&mut raw, 20, node);
                put_tags(&mut raw, &tags);
            }
            Request::Grant { node, principal, permission } => {
                plain(&mut raw, 21, node);
                put_permission(&mut raw, principal, permission);
            }
            Request::Revoke { node, principal, permission } => {
                plain(&mut raw, 22, node);
                put_permission(&mut raw, principal, permission);
            }
            Request::Forget(node) => plain(&mut raw, 23, node),
            Request::Close => raw.put_u8(24),
            Request::DeleteEdgeType(etype) => {
                raw.put_u8(25);
                raw.put_u32(etype.0);
            }
            Request::ReadAt { node, kind, at, bytes } => {
                node_and(&mut raw, 26, node, kind);
                raw.put_u64(at);
                raw.put_u32(bytes);
            }
            Request::WriteAt { node, kind, at, data } => {
                node_and(&mut raw, 27, node, kind);
                raw.put_u64(at);
                raw.put_string(data);
            }
            Request::Append { node, kind, data } => {
                node_and(&mut raw, 28, node, kind);
                raw.put_string(data);
            }
        }
        raw
    }

    /// A request; `None` when it is of no known kind, or has a value that cannot be.
    pub(super) fn decode(raw: &'r [u8]) -> Result<Option<Request<'r>>, Truncated> {
        let mut reader = Reader::new(raw);
        let r = &mut reader;
        let node = |r: &mut Reader| Ok(SessionNode(r.u64()?));
        let kind = |r: &mut Reader| Ok(NodeType(r.u32()?));
        Ok(Some(match r.u8()? {
            1 => Request::Root,
            2 => Request::Begin,
            3 => Request::Commit,
            4 => Request::Abort,
            5 => Request::Savepoint,
            6 => Request::UndoTo(r.u32()?),
            7 => Request::CreateNode { near: node(r)?, kind: kind(r)?, data: r.string()? },
            8 => Request::ReadNode { node: node(r)?, kind: kind(r)? },
            9 => Request::UpdateNode { node: node(r)?, kind: kind(r)?, data: r.string()? },
            10 => Request::DeleteNode { node: node(r)?, kind: kind(r)? },
            op @ 11..=14 => {
                let Some(edge) = read_edge(r)? else { return Ok(None) };
                match op {
                    11 => Request::CreateEdge { edge, to: node(r)? },
                    12 => Request::SetEdge { edge, to: node(r)? },
                    13 => Request::DeleteEdge(edge),
                    _ => Request::Edge(edge),
                }
            }
            15 => Request::Edges(node(r)?),
            16 => {
                let form = InfoForm::from_u8(r.u8()?);
                let name = std::str::from_utf8(r.string()?).ok();
                let (Some(form), Some(name)) = (form, name) else { return Ok(None) };
                Request::EdgeType { name, form }
            }
            17 => match read_tags(r)? {
                Some(tags) => Request::CreateSnode(tags),
                None => return Ok(None),
            },
            18 => Request::DeleteSnode(node(r)?),
            19 => Request::SnodeTags(node(r)?),
            20 => {
                let node = node(r)?;
                let Some(tags) = read_tags(r)? else { return Ok(None) };
                Request::SetSnodeTags { node, tags }
            }
            op @ 21..=22 => {
                let node = node(r)?;
                let Some((principal, permission)) = read_permission(r)? else { return Ok(None) };
                match op {
                    21 => Request::Grant { node, principal, permission },
                    _ => Request::Revoke { node, principal, permission },
                }
            }
            23 => Request::Forget(node(r)?),
            24 => Request::Close,
            25 => Request::DeleteEdgeType(EdgeType(r.u32()?)),
            26 => Request::ReadAt { node: node(r)?, kind: kind(r)?, at: r.u64()?, bytes: r.u32()? },
            27 => Request::WriteAt { node: node(r)?, kind: kind(r)?, at: r.u64()?, data: r.string()? },
            28 => Request::Append { node: node(r)?, kind: kind(r)?, data: r.string()? },
            _ => return Ok(None),
        }))
    }
}

fn put_edge(raw: &mut Vec<u8>, op: u8, edge: EdgeName<'_>) {
    raw.put_u8(op);
    raw.put_u64(edge.source.0);
    raw.put_u32(edge.etype.0);
    match edge.info {
        Info::Number(number) => {
            raw.put_u8(InfoForm::Number as u8);
            raw.put_u64(number);
        }
        Info::Key(key) => {
            raw.put_u8(InfoForm::Key as u8);
            raw.put_string(key);
        }
    }
}

fn read_edge<'r>(r: &mut Reader<'r>) -> Result<Option<EdgeName<'r>>, Truncated> {
    let (source, etype) = (SessionNode(r.u64()?), EdgeType(r.u32()?));
    let info = match InfoForm::from_u8(r.u8()?) {
        Some(InfoForm::Number) => Info::Number(r.u64()?),
        Some(InfoForm::Key) => Info::Key(r.string()?),
        None => return Ok(None),
    };
    Ok(Some(EdgeName { source, etype, info }))
}

pub(super) fn put_tags(raw: &mut Vec<u8>, tags: &SnodeTags) {
    raw.put_u32(tags.owner);
    raw.put_u32(tags.group);
    raw.put_u16(tags.mode);
    raw.put_u8(tags.class as u8);
    raw.put_u8(tags.flags.bits());
}

pub(super) fn read_tags(r: &mut Reader) -> Result<Option<SnodeTags>, Truncated> {
    let (owner, group, mode) = (r.u32()?, r.u32()?, r.u16()?);
    let (class, flags) = (DataClass::from_u8(r.u8()?), TagFlags::from_bits(r.u8()?));
    let (Some(class), Some(flags)) = (class, flags) else { return Ok(None) };
    Ok(Some(SnodeTags { owner, group, mode, class, flags }))
}

fn put_permission(raw: &mut Vec<u8>, principal: Principal, permission: Permission) {
    let (kind, id) = match principal {
        Principal::User(id) => (1, id),
        Principal::Group(id) => (2, id),
        Principal::Everyone => (3, 0),
    };
    raw.put_u8(kind);
    raw.put_u32(id);
    raw.put_u8(permission as u8);
}

fn read_permission(r: &mut Reader) -> Result<Option<(Principal, Permission)>, Truncated> {
    let (kind, id, permission) = (r.u8()?, r.u32()?, r.u8()?);
    let principal = match kind {
        1 => Principal::User(id),
        2 => Principal::Group(id),
        3 => Principal::Everyone,
        _ => return Ok(None),
    };
    let permission = Permission::ALL.into_iter().find(|known| *known as u8 == permission);
    Ok(permission.map(|permission| (principal, permission)))
}

/// An id that may be missing: 0 stands for none, which is no session's id but by a chance of 2^-64.
pub(super) fn put_option(raw: &mut Vec<u8>, node: Option<SessionNode>) {
    raw.put_u8(u8::from(node.is_some()));
    raw.put_u64(node.map_or(0, |node| node.0));
}

pub(super) fn read_option(r: &mut Reader) -> Result<Option<SessionNode>, Truncated> {
    let (is_there, node) = (r.u8()? == 1, SessionNode(r.u64()?));
    Ok(is_there.then_some(node))
}

pub(super) fn put_edges(raw: &mut Vec<u8>, edges: &[SessionEdge]) {
    raw.put_u32(edges.len() as u32);
    for edge in edges {
        raw.put_u32(edge.etype.0);
        raw.put_u8(u8::from(edge.number.is_some()));
        raw.put_u64(edge.number.unwrap_or(0));
        raw.put_u64(edge.to.0);
    }
}

pub(super) fn read_edges(r: &mut Reader) -> Result<Vec<SessionEdge>, Truncated> {
    let count = r.u32()?;
    let edge = |_| {
        let (etype, is_number, number) = (EdgeType(r.u32()?), r.u8()? == 1, r.u64()?);
        Ok(SessionEdge { etype, number: is_number.then_some(number), to: SessionNode(r.u64()?) })
    };
    (0..count).map(edge).collect()
}

pub(super) fn put_error(raw: &mut Vec<u8>, error: &SessionError) {
    raw.put_u8(error.refusal as u8);
    raw.put_string(error.text.as_bytes());
}

pub(super) fn read_error(r: &mut Reader) -> Result<SessionError, Truncated> {
    let refusal = Refusal::from_u8(r.u8()?).unwrap_or(Refusal::Fault);
    Ok(SessionError::new(refusal, String::from_utf8_lossy(r.string()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_and_no_cut_of_them_panics() {
        let (node, kind) = (SessionNode(1 << 60), NodeType(9));
        let edge = EdgeName { source: node, etype: EdgeType(3), info: Info::Key(b"key") };
        let number = EdgeName { info: Info::Number(7), ..edge };
        let tags = SnodeTags { owner: 1, group: 2, mode: 0o640, ..SnodeTags::default() };
        let (principal, permission) = (Principal::Group(5), Permission::Write);
        for request in [
            Request::Root,
            Request::Begin,
            Request::Commit,
            Request::Abort,
            Request::Savepoint,
            Request::UndoTo(4),
            Request::CreateNode { near: node, kind, data: b"data" },
            Request::ReadNode { node, kind },
            Request::UpdateNode { node, kind, data: b"" },
            Request::DeleteNode { node, kind },
            Request::CreateEdge { edge, to: node },
            Request::SetEdge { edge: number, to: node },
            Request::DeleteEdge(edge),
            Request::Edge(number),
            Request::Edges(node),
            Request::EdgeType { name: "next", form: InfoForm::Key },
            Request::CreateSnode(tags),
            Request::DeleteSnode(node),
            Request::SnodeTags(node),
            Request::SetSnodeTags { node, tags },
            Request::Grant { node, principal, permission },
            Request::Revoke { node, principal: Principal::Everyone, permission },
            Request::Forget(node),
            Request::Close,
            Request::DeleteEdgeType(EdgeType(4)),
            Request::ReadAt { node, kind, at: 1 << 40, bytes: 7 },
            Request::WriteAt { node, kind, at: 5, data: b"part" },
            Request::Append { node, kind, data: b"more" },
        ] {
            let raw = request.encode();
            assert_eq!(Request::decode(&raw), Ok(Some(request)));
            (0..raw.len()).for_each(|at| assert!(Request::decode(&raw[..at]).is_err(), "{request:?}"));
        }
        assert_eq!(Request::decode(&[0]), Ok(None));
        assert_eq!(Request::decode(&[29]), Ok(None));
    }

    #[test]
    fn answers_come_back() {
        let node = SessionNode(7);
        let edges = [
            SessionEdge { etype: EdgeType(1), number: Some(0), to: node },
            SessionEdge { etype: EdgeType(2), number: None, to: node },
        ];
        let error = SessionError::from(Refusal::Forbidden);
        let mut raw = Vec::new();
        put_option(&mut raw, Some(node));
        put_option(&mut raw, None);
        put_edges(&mut raw, &edges);
        put_error(&mut raw, &error);
        let r = &mut Reader::new(&raw);
        assert_eq!((read_option(r).unwrap(), read_option(r).unwrap()), (Some(node), None));
        assert_eq!(read_edges(r).unwrap(), edges);
        assert_eq!(read_error(r).unwrap(), error);
    }
}
