//! Scans all pairs of a key-value store.
//!
//! The pairs come in the order of their keys' hashes, which is that of the edge table: a page of it at a time is in
//! memory, so a scan of any length takes a few kilobytes. All pairs are those of a snapshot: a scan keeps nobody waiting, and may
//! be lost with its snapshot.

use super::{ANCHOR, Kv, PAIR};
use crate::committed::Committed;
use crate::edges::order::{Direction, EdgePlace};
use crate::error::Result;
use crate::ids::{EdgeType, Info, InfoForm, NodeId, SnodeId};
use crate::layout::node::split_key;
use crate::options::Durability;
use crate::pages::access::Pages;
use crate::snapshot::Snapshot;
use crate::store::Store;
use std::vec;

/// Pairs whose pages are asked for together.
const GROUP: usize = 64;

/// A scan over all pairs: see [`Kv::scan`] and [`KvSnapshot::scan`](super::KvSnapshot::scan).
pub struct KvScan<'k> {
    snapshot: ScanSource<'k>,
    anchor: NodeId,
    etype: EdgeType,
    /// The place from which on pairs are still to come.
    next: Option<EdgePlace>,
    nodes: vec::IntoIter<NodeId>,
    /// Nodes of which the pages were asked for.
    ready: usize,
    /// Bytes that are read of a value, at most.
    value_bytes_max: u64,
}

/// The snapshot that is scanned.
pub(super) enum ScanSource<'k> {
    Scan(Snapshot<'k>),
    Caller(&'k Snapshot<'k>),
}

impl<'k> ScanSource<'k> {
    fn state(&self) -> &Snapshot<'k> {
        match self {
            ScanSource::Scan(snapshot) => snapshot,
            ScanSource::Caller(snapshot) => snapshot,
        }
    }
}

impl<'s> Kv<'s> {
    /// The key-value store of this name, if there is one.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`](crate::Error::NoSuchSnode), and what reading the medium gives.
    pub fn find(store: &'s Store, snode: SnodeId, name: &str) -> Result<Option<Kv<'s>>> {
        let known = |name| store.find_edge_type(name, InfoForm::Key);
        let (Some(names), Some(etype)) = (known(super::NAMES)?, known(super::PAIRS)?) else {
            return Ok(None);
        };
        let anchor = store.edge(store.root(snode)?, names, Info::Key(name.as_bytes()))?;
        Ok(anchor.map(|anchor| Kv { store, snode, anchor, etype, durability: Durability::Sync }))
    }

    /// The names of an s-node's key-value stores, sorted.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`](crate::Error::NoSuchSnode), and what reading the medium gives.
    pub fn names(store: &Store, snode: SnodeId) -> Result<Vec<String>> {
        store.anchor_names(snode, super::NAMES, ANCHOR)
    }

    /// All pairs as they are now, in the order of their hashes, in a snapshot of its own: changes go on meanwhile, in this
    /// thread too.
    ///
    /// ```
    /// # use weft_tags::{Kv, MemoryStore, Options, SnodeId, Store};
    /// # let store = Store::create(Box::new(MemoryStore::new()), &Options::default())?;
    /// let kv = Kv::open(&store, SnodeId::FIRST, "fruit")?;
    /// kv.put(b"apple", b"red")?;
    /// kv.put(b"plum", b"blue")?;
    /// let mut pairs = kv.scan()?.collect::<Result<Vec<_>, _>>()?;
    /// pairs.sort();
    /// assert_eq!(pairs[1], (b"plum".to_vec(), b"blue".to_vec()));
    /// # Ok::<(), weft_tags::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchNode`](crate::Error::NoSuchNode) when it is gone. The pairs:
    /// [`Error::SnapshotLost`](crate::Error::SnapshotLost), and what reading the medium gives.
    pub fn scan(&self) -> Result<KvScan<'s>> {
        let snapshot = self.store.snapshot();
        self.at(&snapshot)?;
        Ok(KvScan::new(self, ScanSource::Scan(snapshot)))
    }
}

impl<'k> KvScan<'k> {
    /// A scan that has not begun.
    pub(super) fn new(kv: &Kv<'_>, snapshot: ScanSource<'k>) -> KvScan<'k> {
        KvScan {
            snapshot,
            anchor: kv.anchor,
            etype: kv.etype,
            next: Some(EdgePlace::FIRST),
            nodes: Vec::new().into_iter(),
            ready: 0,
            value_bytes_max: u64::MAX,
        }
    }

    /// Reads no more than the first `bytes` of each value, so that values of any length need no memory: [`KvSnapshot::get_at`] reads the
    /// rest of those that are longer.
    ///
    /// [`KvSnapshot::get_at`]: super::KvSnapshot::get_at
    #[must_use]
    pub fn values_up_to(mut self, bytes: u64) -> KvScan<'k> {
        self.value_bytes_max = bytes;
        self
    }

    /// How many pairs are still to come.
    pub(super) fn count_pairs(mut self) -> Result<u64> {
        let mut pairs = 0;
        while let Some(from) = self.next {
            self.fill(from)?;
            pairs += self.nodes.len() as u64;
        }
        Ok(pairs)
    }

    /// The nodes of the next page of the edge table, in the order of their hashes.
    fn fill(&mut self, from: EdgePlace) -> Result<()> {
        let of = (self.anchor, self.etype);
        let part = self.snapshot.state().step(self.anchor.home(), |pages, contents| {
            contents.edges.part(pages, of, InfoForm::Key, from, Direction::Up)
        })?;
        self.nodes = part.edges.into_iter().map(|(_, edge)| edge.to).collect::<Vec<_>>().into_iter();
        (self.next, self.ready) = (part.rest, 0);
        Ok(())
    }

    fn pair(&mut self, node: NodeId) -> Result<(Vec<u8>, Vec<u8>)> {
        let state = self.snapshot.state();
        if self.ready == 0 {
            // The lines of a group's nodes are asked for together, so that misses overlap.
            let group = &self.nodes.as_slice()[..self.nodes.len().min(GROUP)];
            state.step(self.anchor.home(), |pages, _| {
                for node in group {
                    pages.prefetch(node.page().unwrap_or(0), node.offset());
                }
                Ok(())
            })?;
            self.ready = group.len() + 1;
        }
        self.ready -= 1;
        let mut key = Vec::new();
        // The longest key, with its length before it.
        let bytes_max = self.value_bytes_max.saturating_add(2 + u64::from(u16::MAX));
        state.read_part(node, PAIR, 0..bytes_max, &mut key)?;
        let Some((_, value)) = split_key(&key) else {
            return Err(crate::Error::damaged(format!("node {node}: a pair without its key")));
        };
        let mut value = key.split_off(key.len() - value.len());
        value.truncate(self.value_bytes_max.min(usize::MAX as u64) as usize);
        key.drain(..2);
        Ok((key, value))
    }
}

impl Iterator for KvScan<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(node) = self.nodes.next() {
                return Some(self.pair(node));
            }
            // What cannot be read now is not tried for ever.
            let from = self.next.take()?;
            if let Err(error) = self.fill(from) {
                return Some(Err(error));
            }
        }
    }
}
