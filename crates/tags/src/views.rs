//! The read operations of a store: on its last commit, or on a snapshot.

use crate::committed::Committed;
use crate::edges::Edge;
use crate::edges::order::{Direction, EdgePlace, PlacedEdge};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::ids::{EdgeType, Info, NodeId, NodeType, Permission, SnodeId};
use crate::snapshot::Snapshot;
use crate::snodes::access::Principal;
use crate::snodes::tags::SnodeTags;
use crate::store::Store;

/// What is read of a committed state, the same of the last one and of a snapshot's. All of it gives what reading the medium gives, and
/// [`Error::SnapshotLost`] of a snapshot that is.
macro_rules! reads {
    ($state:ty) => {
        impl $state {
            /// The root of an s-node: a node that is always there, to hang others on.
            ///
            /// # Errors
            /// [`Error::NoSuchSnode`].
            pub fn root(&self, snode: SnodeId) -> Result<NodeId> {
                self.root_of(snode)
            }

            /// The s-nodes, in the order of their ids.
            ///
            /// # Errors
            /// What reading the medium gives.
            pub fn snodes(&self) -> Result<Vec<SnodeId>> {
                self.list_snodes()
            }

            /// The s-node that a node belongs to.
            ///
            /// # Errors
            /// [`Error::NoSuchNode`].
            pub fn snode_of(&self, node: NodeId) -> Result<SnodeId> {
                self.owner_of(node)
            }

            /// The tags of an s-node.
            ///
            /// # Errors
            /// [`Error::NoSuchSnode`].
            pub fn snode_tags(&self, snode: SnodeId) -> Result<SnodeTags> {
                self.tags_of(snode)
            }

            /// The permissions on an s-node, those of its mode included.
            ///
            /// # Errors
            /// [`Error::NoSuchSnode`].
            pub fn grants(&self, snode: SnodeId) -> Result<Vec<(Principal, Permission)>> {
                self.grants_of(snode)
            }

            /// The type of a node and its data.
            ///
            /// # Errors
            /// [`Error::NoSuchNode`], [`Error::WrongType`].
            pub fn read_node(&self, node: NodeId, kind: NodeType) -> Result<Vec<u8>> {
                self.data_of(node, kind)
            }

            /// Fills `out` with a node's data from byte `at` on, and returns how many bytes it has there: fewer than `out` at the
            /// end. Reads no pages but those that the bytes are in.
            ///
            /// # Errors
            /// [`Error::NoSuchNode`], [`Error::WrongType`].
            pub fn read_at(&self, node: NodeId, kind: NodeType, at: u64, out: &mut [u8]) -> Result<usize> {
                let mut part = Vec::with_capacity(out.len());
                self.read_part(node, kind, at..at.saturating_add(out.len() as u64), &mut part)?;
                out[..part.len()].copy_from_slice(&part);
                Ok(part.len())
            }

            /// Bytes of a node's data.
            ///
            /// # Errors
            /// [`Error::NoSuchNode`], [`Error::WrongType`].
            pub fn node_len(&self, node: NodeId, kind: NodeType) -> Result<u64> {
                self.read_part(node, kind, 0..0, &mut Vec::new())
            }

            /// Where an edge leads.
            ///
            /// # Errors
            /// [`Error::NoSuchNode`] for the source; [`Error::WrongInfo`], [`Error::NoSuchEdgeType`].
            pub fn edge(&self, source: NodeId, etype: EdgeType, info: Info<'_>) -> Result<Option<NodeId>> {
                self.edge_of(source, etype, info)
            }

            /// All edges out of a node, in no order.
            ///
            /// # Errors
            /// [`Error::NoSuchNode`].
            pub fn edges(&self, source: NodeId) -> Result<Vec<Edge>> {
                self.edges_of(source)
            }

            /// Up to `max` edges of one type out of a node, from a place on. They come in an order
            /// that stays as it is (that of a hash), so each edge that is there all the time is seen once by whoever goes on
            /// [behind](PlacedEdge::behind) the last one, or [before](PlacedEdge::place) it, downwards. Fewer than `max`: there are no more.
            ///
            /// ```
            /// use weft_tags::{Direction, EdgePlace, Info, InfoForm, MemoryStore, NodeType, Options, SnodeId, Store};
            ///
            /// let store = Store::create(Box::new(MemoryStore::new()), &Options::default())?;
            /// let (root, item) = (store.root(SnodeId::FIRST)?, store.edge_type("item", InfoForm::Number)?);
            /// let mut tx = store.begin();
            /// for number in 0..100 {
            ///     let node = tx.create_node(SnodeId::FIRST, NodeType(1), b"")?;
            ///     tx.create_edge(root, item, Info::Number(number), node)?;
            /// }
            /// tx.commit()?;
            /// let (mut place, mut seen) = (EdgePlace::FIRST, 0);
            /// loop {
            ///     let edges = store.edges_from(root, item, place, Direction::Up, 8)?;
            ///     seen += edges.len();
            ///     let Some(last) = edges.last() else { break };
            ///     place = last.behind();
            /// }
            /// assert_eq!(seen, 100);
            /// # Ok::<(), weft_tags::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`Error::NoSuchNode`], [`Error::NoSuchEdgeType`].
            pub fn edges_from(
                &self,
                source: NodeId,
                etype: EdgeType,
                from: EdgePlace,
                direction: Direction,
                max: usize,
            ) -> Result<Vec<PlacedEdge>> {
                self.edges_behind((source, etype), from, direction, max)
            }
        }
    };
}

reads!(Store);
reads!(Snapshot<'_>);
