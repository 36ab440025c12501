//! The protocol of sessions: one table of calls, from which both sides are generated.

use super::client::{RemoteSession, unreadable};
use super::error::{Refusal, SessionError};
use super::field::Field;
use super::{Outcome, Session, SessionEdge, SessionNode};
use crate::ids::{EdgeType, Info, InfoForm, NodeType, Permission};
use crate::snodes::access::Principal;
use crate::snodes::tags::SnodeTags;
use weft_core::codec::Reader;

/// Makes the client's calls, and what the server does for each: it reads the fields, and calls what has the same name.
macro_rules! calls {
    ($($op:literal $vis:vis fn $name:ident($($field:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl RemoteSession {$(
            #[doc = concat!("As [`Session::", stringify!($name), "`].")]
            $vis fn $name(&mut self, $($field: $type),*) -> Outcome<$answer> {
                let mut raw = Vec::new();
                ($op as u8, $($field,)*).put(&mut raw);
                let answer = self.ask(&raw)?;
                Field::get(&mut Reader::new(&answer[1..])).ok_or_else(unreadable)
            }
        )*}

        impl Session<'_> {
            /// Does what a request asks for.
            pub(super) fn carry_out(&mut self, request: &[u8], answer: &mut Vec<u8>) -> Outcome<()> {
                let r = &mut Reader::new(request);
                let field = || SessionError::from(Refusal::BadRequest);
                match r.u8() {
                    $(Ok($op) => {
                        $(let $field: $type = Field::get(r).ok_or_else(field)?;)*
                        self.$name($($field),*)?.put(answer);
                    })*
                    _ => return Err(field()),
                }
                Ok(())
            }
        }
    };
}

// A number stays what it is, also of a call that is no more.
calls! {
    1 pub(super) fn first() -> SessionNode;
    2 pub fn begin() -> ();
    3 pub fn commit() -> u64;
    4 pub fn abort() -> ();
    5 pub fn savepoint() -> u32;
    6 pub fn undo_to(savepoint: u32) -> ();
    7 pub fn create_node(near: SessionNode, kind: NodeType, data: &[u8]) -> SessionNode;
    8 pub fn read_node(node: SessionNode, kind: NodeType) -> Vec<u8>;
    9 pub fn update_node(node: SessionNode, kind: NodeType, data: &[u8]) -> ();
    10 pub fn delete_node(node: SessionNode, kind: NodeType) -> ();
    11 pub fn create_edge(source: SessionNode, etype: EdgeType, info: Info<'_>, to: SessionNode) -> ();
    12 pub fn set_edge(source: SessionNode, etype: EdgeType, info: Info<'_>, to: SessionNode) -> Option<SessionNode>;
    13 pub fn delete_edge(source: SessionNode, etype: EdgeType, info: Info<'_>) -> SessionNode;
    14 pub fn edge(source: SessionNode, etype: EdgeType, info: Info<'_>) -> Option<SessionNode>;
    15 pub fn edges(source: SessionNode) -> Vec<SessionEdge>;
    16 pub(super) fn type_of(form: InfoForm, name: &str) -> EdgeType;
    17 pub fn create_snode(tags: SnodeTags) -> SessionNode;
    18 pub fn delete_snode(node: SessionNode) -> ();
    19 pub fn snode_tags(node: SessionNode) -> SnodeTags;
    20 pub fn set_snode_tags(node: SessionNode, tags: SnodeTags) -> ();
    21 pub fn grant(node: SessionNode, principal: Principal, permission: Permission) -> ();
    22 pub fn revoke(node: SessionNode, principal: Principal, permission: Permission) -> bool;
    23 pub fn forget(id: SessionNode) -> ();
    24 pub(super) fn end() -> ();
    25 pub fn delete_edge_type(etype: EdgeType) -> ();
    26 pub fn read_at(node: SessionNode, kind: NodeType, at: u64, bytes: usize) -> Vec<u8>;
    27 pub fn write_at(node: SessionNode, kind: NodeType, at: u64, data: &[u8]) -> ();
    28 pub fn append(node: SessionNode, kind: NodeType, data: &[u8]) -> u64;
}
