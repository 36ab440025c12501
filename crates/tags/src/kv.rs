//! A key-value store on nodes and edges.
//!
//! A store of pairs is a node, its anchor; a pair is a node with the key and the value, and an edge by key from the anchor to
//! it. A value that is replaced is a new node, so that batches of any size are written in sequence.

mod read;
mod scan;

pub use read::KvSnapshot;
pub use scan::KvScan;

use crate::error::Result;
use crate::ids::{EdgeType, Info, InfoForm, NodeId, NodeType, SnodeId};
use crate::options::Durability;
use crate::store::Store;
use crate::tx::Transaction;
use crate::tx::bulk::{KvChange, Pairs};
use crate::tx::edges::check_key;

/// The edge type from a root to the anchors, by name.
const NAMES: &str = "weft.kv.name";
/// The edge type from an anchor to its pairs, by key.
const PAIRS: &str = "weft.kv";
/// The type of anchors: their data is the name.
const ANCHOR: NodeType = NodeType(NodeType::KEYED | 0x6b76_0001);
/// The type of pairs.
const PAIR: NodeType = NodeType(NodeType::KEYED | 0x6b76_0002);

/// The edge type by which nodes of these types are joined in a key-value store, and the form of its infos.
pub(crate) fn edge_type_between(kinds: (NodeType, NodeType)) -> Option<(&'static str, InfoForm)> {
    match kinds {
        (NodeType::ROOT, ANCHOR) => Some((NAMES, InfoForm::Key)),
        (ANCHOR, PAIR) => Some((PAIRS, InfoForm::Key)),
        _ => None,
    }
}

/// A key-value store in a tag store.
///
/// ```
/// use weft_tags::{Kv, MemoryStore, Options, SnodeId, Store};
///
/// let store = Store::create(Box::new(MemoryStore::new()), &Options::default())?;
/// let kv = Kv::open(&store, SnodeId::FIRST, "fruit")?;
/// kv.put(b"apple", b"red")?;
/// assert_eq!(kv.get(b"apple")?.as_deref(), Some(&b"red"[..]));
/// assert!(kv.delete(b"apple")?);
/// assert_eq!(kv.get(b"apple")?, None);
/// # Ok::<(), weft_tags::Error>(())
/// ```
pub struct Kv<'s> {
    store: &'s Store,
    snode: SnodeId,
    anchor: NodeId,
    etype: EdgeType,
    durability: Durability,
}

impl<'s> Kv<'s> {
    /// The key-value store of this name in an s-node, made if there is none.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`](crate::Error::NoSuchSnode), [`Error::TooLarge`](crate::Error::TooLarge) for the name, and those of a commit.
    pub fn open(store: &'s Store, snode: SnodeId, name: &str) -> Result<Kv<'s>> {
        if let Some(kv) = Kv::find(store, snode, name)? {
            return Ok(kv);
        }
        let names = store.own_edge_type(NAMES, InfoForm::Key)?;
        let etype = store.own_edge_type(PAIRS, InfoForm::Key)?;
        let root = store.root(snode)?;
        let mut tx = store.begin();
        let anchor = match tx.edge(root, names, Info::Key(name.as_bytes()))? {
            Some(anchor) => anchor,
            None => {
                let len = (name.len() as u16).to_le_bytes();
                let anchor = tx.create_node_of(snode, ANCHOR, &[&len, name.as_bytes()])?;
                tx.create_edge(root, names, Info::Key(name.as_bytes()), anchor)?;
                anchor
            }
        };
        tx.commit()?;
        Ok(Kv { store, snode, anchor, etype, durability: Durability::Sync })
    }

    /// Says when changes are durable; [`Durability::Sync`] unless said.
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = durability;
        self
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// Those of [`Kv::change`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.change(&[KvChange::Put(key, value)]).map(drop)
    }

    /// Takes a key away; whether it was there.
    ///
    /// # Errors
    /// Those of [`Kv::change`].
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        Ok(self.change(&[KvChange::Delete(key)])? == 1)
    }

    /// Makes changes, in their order, all or none. How many keys had a value before.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge) for a key, a value or the batch, and those of a commit.
    pub fn change(&self, changes: &[KvChange<'_>]) -> Result<u64> {
        self.store.change(self.durability, |tx| self.change_in(tx, changes))
    }

    /// Makes changes as part of a transaction. How many keys had a value before.
    ///
    /// # Errors
    /// As [`Kv::change`]; [`Error::Deadlock`](crate::Error::Deadlock).
    pub fn change_in(&self, tx: &mut Transaction<'_>, changes: &[KvChange<'_>]) -> Result<u64> {
        changes.iter().try_for_each(|change| check_key(change.key()))?;
        let mut pairs = Pairs::default();
        tx.look_up_keys(self.anchor, self.etype, changes, &mut pairs)?;
        tx.create_pairs(self.snode, PAIR, changes, &mut pairs.nodes)?;
        Ok(tx.lead_pairs(self.anchor, self.etype, changes, &pairs))
    }

    /// The value of a key as a transaction sees it.
    ///
    /// # Errors
    /// As [`Transaction::edge`].
    pub fn get_in(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let node = tx.edge(self.anchor, self.etype, Info::Key(key))?;
        node.map(|node| Ok(tx.read_node(node, PAIR)?.split_off(2 + key.len()))).transpose()
    }

    /// Writes behind the end of a key's value, which is made if there is none: a value of any length is put in by pieces, of which none
    /// has to be in memory with the others. Where the end was.
    ///
    /// # Errors
    /// As [`Transaction::append`].
    pub fn append_in(&self, tx: &mut Transaction<'_>, key: &[u8], bytes: &[u8]) -> Result<u64> {
        let node = self.pair_in(tx, key)?;
        Ok(tx.append(node, PAIR, bytes)? - 2 - key.len() as u64)
    }

    /// Keeps room for a key's value to grow to `bytes` by [`Kv::append_in`], which then writes each byte once. A value that the medium has
    /// no room for is refused here, before it is written.
    ///
    /// # Errors
    /// As [`Transaction::reserve_node`].
    pub fn reserve_in(&self, tx: &mut Transaction<'_>, key: &[u8], bytes: u64) -> Result<()> {
        let node = self.pair_in(tx, key)?;
        tx.reserve_node(node, PAIR, bytes.saturating_add(2 + key.len() as u64))
    }

    /// The pair of a key, with an empty value if there was none.
    fn pair_in(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<NodeId> {
        if let Some(node) = tx.edge(self.anchor, self.etype, Info::Key(key))? {
            return Ok(node);
        }
        self.change_in(tx, &[KvChange::Put(key, &[])])?;
        let made = tx.edge(self.anchor, self.etype, Info::Key(key))?;
        made.ok_or(crate::Error::NoSuchEdge(self.anchor))
    }

    /// Gives a key the value `new`, or takes it away, if its value is `expected` (`None`: it has none); whether it did.
    ///
    /// # Errors
    /// Those of [`Kv::change`].
    pub fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
        self.store.change(self.durability, |tx| {
            let is_expected = self.get_in(tx, key)?.as_deref() == expected;
            if is_expected {
                let change = new.map_or(KvChange::Delete(key), |value| KvChange::Put(key, value));
                self.change_in(tx, &[change])?;
            }
            Ok(is_expected)
        })
    }

    fn hash(&self, key: &[u8]) -> Result<u64> {
        check_key(key)?;
        Ok(self.store.secret.bytes(key))
    }
}
