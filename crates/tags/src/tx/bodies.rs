//! The data of nodes in a transaction: read, changed, made longer or shorter.
//!
//! Data that fits a node's room is changed in its place. A node that outgrows it gets a *body* elsewhere in its s-node,
//! and keeps its place and id: an edge of the store's own leads to the body, so bodies are journaled, recovered, counted
//! and freed as any node is. Data that fits the node's own room again comes back there.

use super::write_set::{EdgeKey, NONE};
use super::{Transaction, Use};
use crate::committed::Committed;
use crate::error::{Error, Result};
use crate::ids::{EdgeType, Info, NodeId, NodeType};
use crate::layout::node::{MOVED, NODE_BYTES_MAX, NODE_HEADER, read_header, write_header};
use crate::partition::{Which, find_body, find_node, header_at, node_header, visit_data};
use crate::snodes::access::Permission;

/// A body with so many times the room that is needed is given up for a smaller one.
const SPARE_MAX: usize = 4;

fn edge_to_body(node: NodeId) -> EdgeKey<'static> {
    EdgeKey { source: node, etype: EdgeType::BODY, key: 0, info: Info::Number(0) }
}

/// The key that data begins with, and its length before it.
fn key_of(data: &[u8]) -> Option<&[u8]> {
    let len = data.first_chunk::<2>()?;
    data.get(..2 + usize::from(u16::from_le_bytes(*len)))
}

fn with_header(kind: NodeType, data: &[u8]) -> Box<[u8]> {
    let mut bytes = vec![0; NODE_HEADER + data.len()];
    write_header(&mut bytes, kind.0, data.len());
    bytes[NODE_HEADER..].copy_from_slice(data);
    bytes.into_boxed_slice()
}

impl Transaction<'_> {
    /// Gives a node new data, of any length. A node of a type with keys keeps its key.
    ///
    /// # Errors
    /// As [`Transaction::read_node`]; [`Error::TooLarge`], [`Error::KeyNotInNode`], [`Error::RootType`],
    /// [`Error::Full`], [`Error::CacheFull`].
    pub fn update_node(&mut self, node: NodeId, kind: NodeType, data: &[u8]) -> Result<()> {
        if kind == NodeType::ROOT {
            return Err(Error::RootType);
        }
        let place = self.place(node, Permission::Write)?;
        let before = self.data_of(node, kind)?;
        if kind.is_keyed() && key_of(&before) != key_of(data) {
            return Err(Error::KeyNotInNode(node));
        }
        if data.len() > NODE_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "a node",
                bytes: data.len() as u64,
                max: NODE_BYTES_MAX as u64,
            });
        }
        let bytes = data.len() + NODE_HEADER;
        // What is changed in place goes through the journal; what is too much for that is written to a new place.
        let is_short = bytes <= self.store.journal.capacity() / 4;
        let body = self.body_of(node)?;
        if is_short && bytes <= place.room {
            if body.is_some() {
                self.lead_to_body(node, NONE)?;
                self.set.move_to(node, None);
            }
            self.set.update(node, with_header(kind, data));
            return Ok(());
        }
        if let Some(body) = body.filter(|_| is_short) {
            let which = self.which(body);
            let room = find_body(&self.store.pool.table, body, which)?.room;
            if bytes <= room && room <= SPARE_MAX * bytes {
                self.set.update(body, with_header(kind, data));
                self.set.move_to(node, Some(body));
                return Ok(());
            }
        }
        let body = self.make_node(node.snode(), kind, &[data], Use::Body)?;
        self.lead_to_body(node, body)?;
        self.set.move_to(node, Some(body));
        let mut stub = vec![0; NODE_HEADER];
        write_header(&mut stub, kind.0, MOVED);
        self.set.update(node, stub.into_boxed_slice());
        Ok(())
    }

    /// Makes a node's data longer, by zeros, or shorter.
    ///
    /// # Errors
    /// As [`Transaction::update_node`].
    pub fn resize_node(&mut self, node: NodeId, kind: NodeType, len: usize) -> Result<()> {
        if len > NODE_BYTES_MAX {
            return Err(Error::TooLarge { what: "a node", bytes: len as u64, max: NODE_BYTES_MAX as u64 });
        }
        self.place(node, Permission::Write)?;
        let mut data = self.data_of(node, kind)?;
        data.resize(len, 0);
        self.update_node(node, kind, &data)
    }

    /// The data of a node whose s-node is held.
    pub(super) fn data_of(&mut self, node: NodeId, kind: NodeType) -> Result<Vec<u8>> {
        let body = self.set.moved.get(&node).copied().flatten();
        if let Some(update) = self.set.updates.get(&body.unwrap_or(node)) {
            let bytes = &update.bytes;
            let found = read_header(bytes).0;
            if found != kind.0 {
                return Err(Error::wrong_type(node, found, kind));
            }
            return Ok(bytes[NODE_HEADER..].to_vec());
        }
        let Some(body) = body else {
            let which = self.which(node);
            return self.store.data_of(node, kind, which);
        };
        let (store, which) = (self.store, self.which(body));
        store.read(node.snode(), |pages, _| {
            let place = find_body(&store.pool.table, body, which)?;
            let (found, len) = node_header(pages, body, place)?;
            if found != kind.0 {
                return Err(Error::wrong_type(node, found, kind).into());
            }
            let mut data = Vec::with_capacity(len);
            visit_data(pages, place, len, |piece| data.extend_from_slice(piece))?;
            Ok(data)
        })
    }

    /// The body of a node whose s-node is held, if it has moved.
    pub(super) fn body_of(&mut self, node: NodeId) -> Result<Option<NodeId>> {
        if let Some(body) = self.set.moved.get(&node) {
            return Ok(*body);
        }
        if self.which(node) == Which::Reserved {
            return Ok(None);
        }
        let store = self.store;
        store.read(node.snode(), |pages, contents| {
            // A body has none itself.
            let Ok(place) = find_node(&store.pool.table, node, Which::Committed) else { return Ok(None) };
            let has_moved = header_at(pages, place)?.1 == MOVED;
            has_moved.then(|| contents.body_of(pages, node)).transpose()
        })
    }

    fn lead_to_body(&mut self, node: NodeId, body: NodeId) -> Result<()> {
        let edge = edge_to_body(node);
        let (touched, old, _) = self.look_up(&edge)?;
        self.set.set_edge(&edge, touched, old, body);
        Ok(())
    }

    /// Takes the bodies from nodes that were made and have no edges: they go together.
    pub(super) fn give_up_bodies_of_garbage(&mut self) -> Result<()> {
        let moved = self.set.moved.iter().filter(|(_, body)| body.is_some()).map(|(node, _)| *node);
        for node in moved.collect::<Vec<_>>() {
            let touched = self.set.touched(node);
            if touched.created && touched.ins == 0 && touched.outs == 0 {
                self.lead_to_body(node, NONE)?;
            }
        }
        Ok(())
    }
}
