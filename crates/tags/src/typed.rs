//! Nodes as values of Rust types, without serialisation: the bytes of a node are those of the value.
//!
//! Which types can be so is what the traits of `zerocopy` say: every pattern of bits is a value, and no byte is padding.
//! A type's layout is then a format; numbers that are to be read on machines of another byte order too are those of
//! `zerocopy::little_endian`.

use crate::error::{Error, Result, StepError};
use crate::ids::{NodeId, NodeType, PAGE_BYTES, SnodeId};
use crate::layout::node::NODE_HEADER;
use crate::pages::access::Pages;
use crate::store::Store;
use crate::tx::Transaction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

fn value<T: FromBytes>(node: NodeId, data: &[u8]) -> Result<T> {
    T::read_from_bytes(data).map_err(|_| wrong_size::<T>(node, data.len()))
}

fn wrong_size<T>(node: NodeId, found: usize) -> Error {
    Error::WrongLength { node, found: found as u64, wanted: size_of::<T>() as u64 }
}

impl Store {
    /// The value of a node: the last committed state.
    ///
    /// # Errors
    /// As [`Store::read_node`]; [`Error::WrongLength`].
    pub fn read_as<T: FromBytes>(&self, node: NodeId, kind: NodeType) -> Result<T> {
        value(node, &self.read_node(node, kind)?)
    }

    /// Looks at a node's value where it lies in the cache; a value that no page holds whole, or that the type wants at
    /// another alignment than 8, is copied first. The last committed state.
    ///
    /// Commits in the node's s-node wait for `look`, which must not use the store.
    ///
    /// ```
    /// use weft_tags::{Info, InfoForm, MemoryStore, NodeType, Options, SnodeId, Store};
    /// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    ///
    /// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    /// #[repr(C)]
    /// struct Point { x: f64, y: f64 }
    /// const POINT: NodeType = NodeType(1);
    ///
    /// let store = Store::create(Box::new(MemoryStore::new()), &Options::default())?;
    /// let etype = store.edge_type("point", InfoForm::Number)?;
    /// let mut tx = store.begin();
    /// let node = tx.create_as(SnodeId::FIRST, POINT, &Point { x: 1.0, y: 2.0 })?;
    /// tx.create_edge(store.root(SnodeId::FIRST)?, etype, Info::Number(0), node)?;
    /// tx.commit()?;
    /// assert_eq!(store.view_as(node, POINT, |point: &Point| point.x + point.y)?, 3.0);
    /// # Ok::<(), weft_tags::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::read_as`].
    pub fn view_as<T, R>(&self, node: NodeId, kind: NodeType, look: impl FnOnce(&T) -> R) -> Result<R>
    where
        T: FromBytes + Immutable + KnownLayout,
    {
        let mut look = Some(look);
        let seen = self.read(node.home(), |pages, contents| {
            let (found, len, place) = contents.open_node(pages, node)?;
            if found != kind.0 {
                return Err(StepError::Failed(Error::wrong_type(node, found, kind)));
            }
            if len != size_of::<T>() {
                return Err(StepError::Failed(wrong_size::<T>(node, len)));
            }
            let start = place.offset + NODE_HEADER;
            if start + len > PAGE_BYTES {
                return Ok(None);
            }
            let Ok(value) = T::ref_from_bytes(&pages.bytes(place.page)?[start..start + len]) else {
                return Ok(None);
            };
            Ok(look.take().map(|look| look(value)))
        });
        match (seen, look) {
            (Ok(Some(seen)), _) => Ok(seen),
            (Ok(None), Some(look)) => Ok(look(&self.read_as(node, kind)?)),
            (Err(Error::NoSuchSnode(_)), _) | (Ok(None), None) => Err(Error::NoSuchNode(node)),
            (Err(error), _) => Err(error),
        }
    }
}

impl Transaction<'_> {
    /// Makes a node of a value.
    ///
    /// # Errors
    /// As [`Transaction::create_node`].
    pub fn create_as<T>(&mut self, snode: SnodeId, kind: NodeType, value: &T) -> Result<NodeId>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        self.create_node(snode, kind, value.as_bytes())
    }

    /// The value of a node.
    ///
    /// # Errors
    /// As [`Transaction::read_node`]; [`Error::WrongLength`].
    pub fn read_as<T: FromBytes>(&mut self, node: NodeId, kind: NodeType) -> Result<T> {
        value(node, &self.read_node(node, kind)?)
    }

    /// Gives a node a new value, of any type.
    ///
    /// # Errors
    /// As [`Transaction::update_node`].
    pub fn update_as<T>(&mut self, node: NodeId, kind: NodeType, value: &T) -> Result<()>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        self.update_node(node, kind, value.as_bytes())
    }
}
