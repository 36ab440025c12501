//! An ordered map on nodes and edges of the store.
//!
//! A tree is an anchor, found by its name, and from there nodes of a page each. An inner node has the ids of its children
//! in its data, so the way down costs no look at an edge; an edge from parent to child, and from a leaf to each
//! long key or value, keeps what is there alive, and the store's check sees the whole tree. The root's id never changes: when the
//! root is full, what it holds moves one level down.
//!
//! A pair that goes in or out is a patch of a few bytes in the journal. Whoever reads outside of a transaction sees the
//! last commit, from the root to the leaf.

mod change;
mod check;
mod load;
mod look;
mod many;
mod node;
mod range;
mod snapshot;

pub use check::BTreeReport;
pub use look::Pair;
pub use node::BTreeForm;
pub use range::Range;
pub use snapshot::BTreeSnapshot;

use crate::committed::Committed;
use crate::edges::order::Direction;
use crate::error::{Error, Result, Step};
use crate::ids::{EdgeType, Info, InfoForm, NodeId, NodeType, Permission, SnodeId};
use crate::options::Durability;
use crate::pages::access::PageReader;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::tx::Transaction;
use look::{Longs, TreeView};
use node::{FIXED_KEY, FIXED_VALUE, Key, NODE};

/// The edge type from a root to the anchors, by name.
const NAMES: &str = "weft.btree.name";
/// The edge type from an anchor to the root, and from a node to its children, by their ids.
const CHILDREN: &str = "weft.btree.child";
/// The edge type from a node to long keys and values, by their ids.
const LONGS: &str = "weft.btree.long";
/// The type of anchors: their data is the name, the form, and how many pairs there are.
const ANCHOR: NodeType = NodeType(NodeType::KEYED | 0x6274_0003);
/// The most bytes of a key.
pub(crate) const KEY_BYTES_MAX: usize = 16 << 20;

/// The edge type by which nodes of these types are joined in a tree, and the form of its infos.
pub(crate) fn edge_type_between(kinds: (NodeType, NodeType)) -> Option<(&'static str, InfoForm)> {
    match kinds {
        (NodeType::ROOT, ANCHOR) => Some((NAMES, InfoForm::Key)),
        (ANCHOR | NODE, NODE) => Some((CHILDREN, InfoForm::Number)),
        (NODE, node::LONG) => Some((LONGS, InfoForm::Number)),
        _ => None,
    }
}

/// A B+tree in a tag store.
///
/// ```
/// use weft_tags::{BTree, BTreeForm, Direction, MemoryStore, Options, SnodeId, Store};
///
/// let store = Store::create(Box::new(MemoryStore::new()), &Options::default())?;
/// let tree = BTree::open(&store, SnodeId::FIRST, "cities", BTreeForm::Bytes)?;
/// tree.insert(b"Bern", b"134000")?;
/// tree.insert(b"Basel", b"178000")?;
/// assert_eq!(tree.get(b"Bern")?.as_deref(), Some(&b"134000"[..]));
/// let first = tree.range::<&[u8]>(.., Direction::Up)?.next().transpose()?;
/// assert_eq!(first.map(|(key, _)| key).as_deref(), Some(&b"Basel"[..]));
/// # Ok::<(), weft_tags::Error>(())
/// ```
pub struct BTree<'s> {
    store: &'s Store,
    snode: SnodeId,
    anchor: NodeId,
    root: NodeId,
    /// Where in the anchor's data the number of pairs is.
    count_at: usize,
    form: BTreeForm,
    children: EdgeType,
    longs: EdgeType,
    durability: Durability,
}

/// Where a tree is: what to keep of it beside the store, to have it again without a look-up of its name.
#[derive(Clone, Copy, Debug)]
pub struct BTreePlace {
    snode: SnodeId,
    anchor: NodeId,
    root: NodeId,
    count_at: usize,
    form: BTreeForm,
    children: EdgeType,
    longs: EdgeType,
}

impl BTreePlace {
    /// The tree, in the store that it is of. The operations of one that was deleted meanwhile fail.
    pub fn of(self, store: &Store) -> BTree<'_> {
        let BTreePlace { snode, anchor, root, count_at, form, children, longs } = self;
        BTree { store, snode, anchor, root, count_at, form, children, longs, durability: Durability::Sync }
    }
}

impl<'s> BTree<'s> {
    /// The tree of this name in an s-node, made if there is none.
    ///
    /// # Errors
    /// [`Error::OtherForm`] where the tree has another form; [`Error::NoSuchSnode`], [`Error::TooLarge`] for the name, and
    /// those of a commit.
    pub fn open(store: &'s Store, snode: SnodeId, name: &str, form: BTreeForm) -> Result<BTree<'s>> {
        if let Some(tree) = BTree::find(store, snode, name)? {
            return tree.expect_form(form, name);
        }
        let names = store.own_edge_type(NAMES, InfoForm::Key)?;
        let children = store.own_edge_type(CHILDREN, InfoForm::Number)?;
        store.own_edge_type(LONGS, InfoForm::Number)?;
        let at = store.root(snode)?;
        let mut tx = store.begin();
        if tx.edge(at, names, Info::Key(name.as_bytes()))?.is_none() {
            let len = (name.len() as u16).to_le_bytes();
            let anchor =
                tx.create_node_of(snode, ANCHOR, &[&len, name.as_bytes(), &[form as u8], &[0; 8]])?;
            tx.create_edge(at, names, Info::Key(name.as_bytes()), anchor)?;
            let root = tx.create_node(snode, NODE, &node::build(form, 0, NodeId(0), &[]))?;
            tx.create_edge(anchor, children, Info::Number(root.0), root)?;
        }
        tx.commit()?;
        let tree = BTree::find(store, snode, name)?;
        tree.ok_or_else(|| Error::damaged(format!("the B+tree '{name}' is not where it was made")))?
            .expect_form(form, name)
    }

    fn expect_form(self, form: BTreeForm, name: &str) -> Result<BTree<'s>> {
        if self.form == form { Ok(self) } else { Err(Error::OtherForm(name.to_owned())) }
    }

    /// The tree of this name, if there is one.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`], and what reading the medium gives.
    pub fn find(store: &'s Store, snode: SnodeId, name: &str) -> Result<Option<BTree<'s>>> {
        let names = store.find_edge_type(NAMES, InfoForm::Key)?;
        let known = |name| store.find_edge_type(name, InfoForm::Number);
        let (Some(names), Some(children), Some(longs)) = (names, known(CHILDREN)?, known(LONGS)?) else {
            return Ok(None);
        };
        let Some(anchor) = store.edge(store.root(snode)?, names, Info::Key(name.as_bytes()))? else {
            return Ok(None);
        };
        let damaged = || Error::damaged(format!("the anchor {anchor} of the B+tree '{name}'"));
        let data = store.read_node(anchor, ANCHOR)?;
        let form = data.get(2 + name.len()).and_then(|form| BTreeForm::from_u8(*form)).ok_or_else(damaged)?;
        let count_at = 3 + name.len();
        if data.len() != count_at + 8 {
            return Err(damaged());
        }
        let edges = store.edges(anchor)?;
        let root = edges.iter().find(|edge| edge.etype == children).ok_or_else(damaged)?.to;
        let durability = Durability::Sync;
        Ok(Some(BTree { store, snode, anchor, root, count_at, form, children, longs, durability }))
    }

    /// The names of an s-node's trees, sorted.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`], and what reading the medium gives.
    pub fn names(store: &Store, snode: SnodeId) -> Result<Vec<String>> {
        store.anchor_names(snode, NAMES, ANCHOR)
    }

    /// Says when changes are durable; [`Durability::Sync`] unless said.
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = durability;
        self
    }

    /// Where it is. None of its nodes that this names ever moves.
    pub fn place(&self) -> BTreePlace {
        let BTree { snode, anchor, root, count_at, form, children, longs, .. } = *self;
        BTreePlace { snode, anchor, root, count_at, form, children, longs }
    }

    /// What keys and values are.
    pub fn form(&self) -> BTreeForm {
        self.form
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`Error::TooLarge`], or [`Error::WrongSize`] in a tree of fixed pairs; what reading the medium gives.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.get_on(self.store, key)?;
        value.map_or_else(|| self.get_at(&self.store.snapshot(), key), Ok)
    }

    fn get_at(&self, snapshot: &Snapshot<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_on(snapshot, key)?.flatten())
    }

    /// The value of a key; `None` where the state changes too often.
    fn get_on(&self, state: &impl Committed, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        let wanted = self.key(key)?;
        self.look_on(state, |look| look.value(self.root, wanted))
    }

    /// The value of a key, as a transaction sees it.
    ///
    /// # Errors
    /// As [`BTree::get`]; [`Error::Deadlock`].
    pub fn get_in(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let wanted = self.key(key)?;
        tx.enter(self.snode, Permission::Read)?;
        self.look_in(tx, |look| look.value(self.root, wanted))
    }

    /// How many pairs there are.
    ///
    /// # Errors
    /// What reading the medium gives.
    pub fn count(&self) -> Result<u64> {
        self.count_on(self.store)
    }

    fn count_on(&self, state: &impl Committed) -> Result<u64> {
        Ok(self.count_of(&state.data_of(self.anchor, ANCHOR)?))
    }

    fn count_of(&self, anchor: &[u8]) -> u64 {
        let bytes = anchor.get(self.count_at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn must_be_fixed(&self) -> Result<()> {
        match self.form {
            BTreeForm::Fixed => Ok(()),
            BTreeForm::Bytes => Err(Error::OtherForm("of byte strings".to_owned())),
        }
    }

    /// The key that is meant, after a check of its size.
    fn key<'k>(&self, key: &'k [u8]) -> Result<Key<'k>> {
        match self.form {
            BTreeForm::Fixed => match key.try_into() {
                Ok(key) => Ok(Key::Fixed(u32::from_be_bytes(key))),
                Err(_) => {
                    let (bytes, wanted) = (key.len() as u64, FIXED_KEY as u64);
                    Err(Error::WrongSize { what: "the key", bytes, wanted })
                }
            },
            BTreeForm::Bytes if key.len() > KEY_BYTES_MAX => {
                Err(Error::too_large("a key", key.len(), KEY_BYTES_MAX))
            }
            BTreeForm::Bytes => Ok(Key::Bytes(key)),
        }
    }

    fn check_value(&self, value: &[u8]) -> Result<()> {
        if self.form == BTreeForm::Fixed && value.len() != FIXED_VALUE {
            let (bytes, wanted) = (value.len() as u64, FIXED_VALUE as u64);
            return Err(Error::WrongSize { what: "the value", bytes, wanted });
        }
        Ok(())
    }

    /// Runs `step` on a committed state; `None` where that changes too often for what it reads, which a snapshot does not.
    fn look_on<S: Committed, T>(
        &self,
        state: &S,
        mut step: impl FnMut(&TreeView<'_, S::View<'_>>) -> Step<T>,
    ) -> Result<Option<T>> {
        let (form, longs) = (self.form, Longs::default());
        state.step(self.anchor.home(), |pages, _| {
            if longs.is_hopeless() {
                return Ok(None);
            }
            step(&TreeView { pages, changed: None, form, longs: &longs }).map(Some)
        })
    }

    /// Runs `step` on the last commit, again where that changes too often.
    fn look<T>(&self, mut step: impl FnMut(&TreeView<'_, PageReader<'_>>) -> Step<T>) -> Result<T> {
        loop {
            if let Some(seen) = self.look_on(self.store, &mut step)? {
                return Ok(seen);
            }
        }
    }

    /// Runs `step` on what a transaction sees. It holds the s-node.
    fn look_in<T>(
        &self,
        tx: &Transaction<'_>,
        mut step: impl FnMut(&TreeView<'_, PageReader<'_>>) -> Step<T>,
    ) -> Result<T> {
        let (form, longs) = (self.form, Longs::default());
        self.store.read(self.anchor.home(), |pages, _| {
            step(&TreeView { pages, changed: Some(tx.changed_nodes()), form, longs: &longs })
        })
    }
}
