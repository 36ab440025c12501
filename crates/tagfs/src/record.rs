//! Where the record of an i-node lies: whole in one node, or each field in a node of its own, as in figure 5.3.2 of "ADAPT".
//!
//! The volume says which. With fields apart, a change of one field writes that field alone, and a look at an i-node follows an
//! edge for each: what that costs is what the layout is for.

use crate::error::failed;
use crate::layout::{ATTRIBUTE, RECORD, fields};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_tags::{Direction, EdgePlace, EdgeType, Info, NodeId, SnodeId, Store, Transaction};
use weft_vfs::{FsError, FsResult};

/// Where the stored record of an i-node lies.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    /// In this node, which has room for so many bytes.
    Whole(NodeId, usize),
    /// Each field in a node: by its number, the node and what it holds.
    Apart(Arc<BTreeMap<u64, (NodeId, Vec<u8>)>>),
}

/// The edges by which records are found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edges {
    /// To whole records.
    pub whole: EdgeType,
    /// To fields, on a volume that has them apart.
    pub apart: Option<EdgeType>,
}

/// Edges that are listed at once: more than a record has fields.
const FIELDS_MAX: usize = 64;

/// The bytes of the record of the i-node with this root, and where they lie; `Stale` where there is none.
pub(crate) fn load(store: &Store, edges: Edges, root: NodeId) -> FsResult<(Vec<u8>, Stored)> {
    let Some(etype) = edges.apart else {
        let node = store.edge(root, edges.whole, Info::Number(0)).map_err(failed)?;
        let node = node.ok_or(FsError::Stale)?;
        let raw = store.read_node(node, RECORD).map_err(failed)?;
        let stored = Stored::Whole(node, raw.len());
        return Ok((raw, stored));
    };
    let (mut raw, mut apart) = (Vec::new(), BTreeMap::new());
    let found = store.edges_from(root, etype, EdgePlace::FIRST, Direction::Up, FIELDS_MAX).map_err(failed)?;
    for placed in found {
        let Some(number) = placed.edge.number else { continue };
        let bytes = store.read_node(placed.edge.to, ATTRIBUTE).map_err(failed)?;
        apart.insert(number, (placed.edge.to, bytes));
    }
    if apart.is_empty() {
        return Err(FsError::Stale);
    }
    apart.values().for_each(|(_, bytes)| raw.extend_from_slice(bytes));
    Ok((raw, Stored::Apart(Arc::new(apart))))
}

/// Stores the record of an i-node as it is now, and says where.
pub(crate) fn store(
    tx: &mut Transaction<'_>,
    edges: Edges,
    snode: SnodeId,
    root: NodeId,
    raw: &[u8],
    before: Option<Stored>,
) -> weft_tags::Result<Stored> {
    if let Some(etype) = edges.apart {
        let known = match before {
            Some(Stored::Apart(known)) => known,
            Some(Stored::Whole(..)) | None => Arc::default(),
        };
        return store_apart(tx, etype, snode, root, raw, known);
    }
    match before {
        Some(Stored::Whole(node, len)) if raw.len() <= len => {
            tx.update_node(node, RECORD, raw)?;
            Ok(Stored::Whole(node, len))
        }
        // In a node that it has outgrown it would be one look-up further away for ever.
        _ => {
            let node = tx.create_node(snode, RECORD, raw)?;
            tx.set_edge(root, edges.whole, Info::Number(0), node)?;
            Ok(Stored::Whole(node, raw.len()))
        }
    }
}

/// Stores the fields that are others than `known`.
fn store_apart(
    tx: &mut Transaction<'_>,
    etype: EdgeType,
    snode: SnodeId,
    root: NodeId,
    raw: &[u8],
    mut known: Arc<BTreeMap<u64, (NodeId, Vec<u8>)>>,
) -> weft_tags::Result<Stored> {
    let now: BTreeMap<u64, &[u8]> = fields(raw).collect();
    let at = Arc::make_mut(&mut known);
    for (number, bytes) in &now {
        let node = match at.get(number) {
            Some((_, before)) if before == bytes => continue,
            Some((node, _)) => {
                tx.update_node(*node, ATTRIBUTE, bytes)?;
                *node
            }
            None => {
                let node = tx.create_node(snode, ATTRIBUTE, bytes)?;
                tx.create_edge(root, etype, Info::Number(*number), node)?;
                node
            }
        };
        at.insert(*number, (node, bytes.to_vec()));
    }
    let gone: Vec<u64> = at.keys().filter(|number| !now.contains_key(*number)).copied().collect();
    for number in gone {
        tx.delete_edge(root, etype, Info::Number(number))?;
        at.remove(&number);
    }
    Ok(Stored::Apart(known))
}

/// Takes the record of an i-node away.
pub(crate) fn remove(
    tx: &mut Transaction<'_>,
    edges: Edges,
    root: NodeId,
    stored: &Stored,
) -> weft_tags::Result<()> {
    match (stored, edges.apart) {
        (Stored::Apart(fields), Some(etype)) => {
            fields.keys().try_for_each(|number| tx.delete_edge(root, etype, Info::Number(*number)).map(drop))
        }
        _ => tx.delete_edge(root, edges.whole, Info::Number(0)).map(drop),
    }
}
