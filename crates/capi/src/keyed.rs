//! Edges by key.

use crate::error::{Failure, exports};
use crate::handle::{bytes, handle, put, put_unless_null, text};
use crate::store::{WeftTags, WeftTx, tx_of};
use std::ffi::c_char;
use weft_tags::{EdgeType, Error, Info, InfoForm, NodeId};

/// Added to the type of a node: its data begins with a key, the key's length in two bytes, little-endian, before it. Edges by
/// key lead to such nodes.
pub const WEFT_KEYED: u32 = 0x80000000;

exports! {
    /// The edge type of this name, whose edges carry a key of any bytes; registered if it is new.
    ///
    /// # Safety
    /// The handle is open; `name` is a string; `out` can be written.
    fn weft_key_edge_type(tags: *const WeftTags, name: *const c_char, out: *mut u32) {
        let (tags, name) = (handle(tags, "tags")?, text(name, "name")?);
        put(tags.0.edge_type(name, InfoForm::Key)?.0, out)
    }

    /// Makes an edge by key. `to` is a node in the same s-node of a type with WEFT_KEYED, whose data begins with this key; there is
    /// no such edge yet.
    ///
    /// # Safety
    /// The transaction is open; `key` has so many bytes.
    fn weft_create_key_edge(
        tx: *mut WeftTx,
        source: u64,
        edge_type: u32,
        key: *const u8,
        key_bytes: usize,
        to: u64,
    ) {
        let (tx, key) = (tx_of(tx)?, bytes(key, key_bytes)?);
        Ok(tx.create_edge(NodeId(source), EdgeType(edge_type), Info::Key(key), NodeId(to))?)
    }

    /// Leads an edge by key to another node, or makes it. `before`, unless null, gets the node it led to, or 0.
    ///
    /// # Safety
    /// The transaction is open; `key` has so many bytes; `before` is null or can be written.
    fn weft_set_key_edge(
        tx: *mut WeftTx,
        source: u64,
        edge_type: u32,
        key: *const u8,
        key_bytes: usize,
        to: u64,
        before: *mut u64,
    ) {
        let (tx, key) = (tx_of(tx)?, bytes(key, key_bytes)?);
        let found = tx.set_edge(NodeId(source), EdgeType(edge_type), Info::Key(key), NodeId(to))?;
        put_unless_null(found.map_or(0, |node| node.0), before);
        Ok(())
    }

    /// Deletes an edge by key. `to`, unless null, gets the node it led to.
    ///
    /// # Safety
    /// The transaction is open; `key` has so many bytes; `to` is null or can be written.
    fn weft_delete_key_edge(
        tx: *mut WeftTx,
        source: u64,
        edge_type: u32,
        key: *const u8,
        key_bytes: usize,
        to: *mut u64,
    ) {
        let (tx, key) = (tx_of(tx)?, bytes(key, key_bytes)?);
        let found = tx.delete_edge(NodeId(source), EdgeType(edge_type), Info::Key(key))?;
        put_unless_null(found.0, to);
        Ok(())
    }

    /// Where an edge by key leads; WEFT_ENOENT when there is none. Without a transaction, that is null, the last committed state.
    ///
    /// # Safety
    /// The handles are open; `key` has so many bytes; `out` can be written.
    fn weft_get_key_destination(
        tags: *const WeftTags,
        tx: *mut WeftTx,
        source: u64,
        edge_type: u32,
        key: *const u8,
        key_bytes: usize,
        out: *mut u64,
    ) {
        let key = bytes(key, key_bytes)?;
        let (node, etype, info) = (NodeId(source), EdgeType(edge_type), Info::Key(key));
        let found = if tx.is_null() {
            handle(tags, "tags")?.0.edge(node, etype, info)?
        } else {
            tx_of(tx)?.edge(node, etype, info)?
        };
        let found = found.ok_or(Failure::from(Error::NoSuchEdge(node)))?;
        put(found.0, out)
    }
}
