//! Descends a tree to a key or to its neighbours. A descent reads one state of the store.

use super::Direction;
use super::node::{BTreeForm, Key, KeyPart, LONG, NODE, Node, ValuePart};
use crate::error::{Error, Step};
use crate::ids::{NodeId, PAGE_BYTES};
use crate::layout::node::{NODE_HEADER, read_header};
use crate::pages::access::StatePages;
use crate::partition::{NodeScope, data_in, find_node, node_header};
use crate::tx::write_set::Update;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Bound;
use std::rc::Rc;

/// The most levels that are gone down: a tree of pages is never that high.
const LEVELS_MAX: usize = 40;
/// Bytes of pairs after which no more are taken at once.
const CHUNK_BYTES: usize = 256 << 10;
/// How often a look may lose what it has read to changes.
const LOST_MAX: u32 = 3;

/// A pair.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The nodes of a tree: the committed ones, with the changes of a transaction on top.
pub(super) struct TreeView<'a, P> {
    pub pages: &'a P,
    /// The nodes that a transaction has changed.
    pub changed: Option<&'a FxHashMap<NodeId, Update>>,
    pub form: BTreeForm,
    pub longs: &'a Longs,
}

/// What a look has read of long keys and values. A step that has to wait for a page begins anew, and reads on here: all pages of a key or
/// a value need not be in the cache together.
#[derive(Default)]
pub(super) struct Longs(RefCell<LongParts>);

#[derive(Default)]
struct LongParts {
    /// The [turns](StatePages::turns) of the pages that it was read of.
    turns: u64,
    parts: FxHashMap<NodeId, Rc<Vec<u8>>>,
    /// How often what was read was of no use since somebody had changed something.
    lost: u32,
}

impl Longs {
    /// Whether others change the state so often that it is better read as it is now.
    pub(super) fn is_hopeless(&self) -> bool {
        self.0.borrow().lost > LOST_MAX
    }

    /// The data of a node of this length, with `read` for parts of it.
    fn read(
        &self,
        turns: u64,
        id: NodeId,
        len: usize,
        read: impl Fn(usize) -> Step<Vec<u8>>,
    ) -> Step<Rc<Vec<u8>>> {
        let longs = &mut *self.0.borrow_mut();
        if longs.turns != turns {
            longs.lost += u32::from(!longs.parts.is_empty());
            longs.parts.clear();
            longs.turns = turns;
        }
        let data = longs.parts.entry(id).or_default();
        while data.len() < len {
            let part = read(data.len())?;
            // Nobody else has it before it is whole.
            Rc::make_mut(data).extend_from_slice(&part);
        }
        Ok(data.clone())
    }

    /// Forgets the data of a node.
    fn forget(&self, id: NodeId) {
        self.0.borrow_mut().parts.remove(&id);
    }
}

/// An inner node on the way to a leaf, and which of its children the way goes to.
pub(super) type Turn = (NodeId, usize);

/// The path from the root to a leaf: inner nodes, each with the child that is taken.
pub(super) struct TreePath {
    pub inner: Vec<Turn>,
    pub leaf: NodeId,
    /// Where the key is in the leaf, or would be.
    pub at: Result<usize, usize>,
}

fn endless(root: NodeId) -> Error {
    Error::damaged(format!("the B+tree at node {root} has no end"))
}

impl<P: StatePages> TreeView<'_, P> {
    /// A node of the tree.
    #[inline]
    pub(super) fn node(&self, id: NodeId) -> Step<Node<'_>> {
        let raw: &[u8] = match self.changed.and_then(|changed| changed.get(&id)) {
            Some(update) => &update.bytes,
            None => self.pages.bytes(id.page().unwrap_or(0))?,
        };
        let (kind, len) = raw.split_at_checked(NODE_HEADER).map_or((0, 0), |(head, _)| read_header(head));
        if kind != NODE.0 || id.offset() != 0 {
            return Err(Error::damaged(format!("node {id} is not one of a B+tree")).into());
        }
        Ok(Node::of(raw.get(NODE_HEADER..NODE_HEADER + len).unwrap_or(&[]), id, self.form)?)
    }

    /// The data of a long key or value.
    fn long(&self, id: NodeId) -> Step<Rc<Vec<u8>>> {
        let place = find_node(self.pages, id, NodeScope::Reserved)
            .map_err(|_| Error::damaged(format!("a B+tree leads to node {id}, which is not there")))?;
        let (kind, len) = node_header(self.pages, id, place)?;
        if kind != LONG.0 {
            return Err(Error::damaged(format!("a B+tree leads to node {id} of another type")).into());
        }
        // With the nodes on the way to it.
        let most = (self.pages.step_pages() / 2).max(1) * PAGE_BYTES;
        self.longs.read(self.pages.turns(), id, len, |at| data_in(self.pages, place, at..len.min(at + most)))
    }

    /// The data of a long key or value, of which no more is read.
    pub(super) fn take_long(&self, id: NodeId) -> Step<Vec<u8>> {
        let data = self.long(id)?;
        self.longs.forget(id);
        Ok(Rc::unwrap_or_clone(data))
    }

    /// The whole key of a cell.
    pub(super) fn whole_key(&self, part: KeyPart<'_>) -> Step<Vec<u8>> {
        match part {
            KeyPart::Here(bytes) => Ok(bytes.to_vec()),
            KeyPart::Fixed(key) => Ok(key.to_be_bytes().to_vec()),
            KeyPart::Far { node, .. } => Ok(self.long(node)?.to_vec()),
        }
    }

    /// How a key compares with one in a cell.
    fn compare(&self, key: &[u8], part: KeyPart<'_>) -> Step<Ordering> {
        Ok(match part {
            KeyPart::Here(other) => key.cmp(other),
            KeyPart::Fixed(other) => key.cmp(&other.to_be_bytes()[..]),
            KeyPart::Far { prefix, node, .. } => {
                let head = key.get(..prefix.len()).unwrap_or(key);
                match head.cmp(prefix) {
                    Ordering::Equal => key.cmp(&self.long(node)?[..]),
                    unequal => unequal,
                }
            }
        })
    }

    /// Where a key is in a node (`Ok`), or would be.
    #[inline]
    fn search(&self, node: &Node<'_>, key: Key<'_>) -> Step<Result<usize, usize>> {
        let key = match key {
            Key::Fixed(key) => return Ok(node.search_fixed(key)),
            Key::Bytes(key) => key,
        };
        let (mut from, mut to) = (0, node.count());
        while from < to {
            let middle = (from + to) / 2;
            match self.compare(key, node.key(middle))? {
                Ordering::Equal => return Ok(Ok(middle)),
                Ordering::Less => to = middle,
                Ordering::Greater => from = middle + 1,
            }
        }
        Ok(Err(from))
    }

    /// The child whose keys may include this one.
    #[inline]
    fn child_for(&self, node: &Node<'_>, key: Key<'_>) -> Step<usize> {
        Ok(self.search(node, key)?.map_or_else(|at| at, |separator| separator + 1))
    }

    /// Goes down to a leaf, with `turn` to say for each node on the way which child is taken.
    #[inline]
    fn descend<'v>(
        &'v self,
        root: NodeId,
        mut turn: impl FnMut(NodeId, Node<'v>) -> Step<usize>,
    ) -> Step<(NodeId, Node<'v>)> {
        let (mut id, mut node) = (root, self.node(root)?);
        for _ in 0..LEVELS_MAX {
            if node.level() == 0 {
                return Ok((id, node));
            }
            id = node.child(turn(id, node)?);
            node = self.node(id)?;
        }
        Err(endless(root).into())
    }

    /// The leaf that a key belongs to.
    #[inline]
    pub(super) fn leaf(&self, root: NodeId, key: Key<'_>) -> Step<(NodeId, Node<'_>)> {
        self.descend(root, |_, node| self.child_for(&node, key))
    }

    /// The way to a key, or to the last leaf's end.
    pub(super) fn way(&self, root: NodeId, key: Option<Key<'_>>) -> Step<TreePath> {
        let mut inner = Vec::with_capacity(4);
        let (leaf, node) = self.descend(root, |id, node| {
            let child = key.map_or(Ok(node.count()), |key| self.child_for(&node, key))?;
            inner.push((id, child));
            Ok(child)
        })?;
        let at = key.map_or(Ok(Err(node.count())), |key| self.search(&node, key))?;
        Ok(TreePath { inner, leaf, at })
    }

    /// The value of a key.
    pub(super) fn value(&self, root: NodeId, key: Key<'_>) -> Step<Option<Vec<u8>>> {
        let (_, leaf) = self.leaf(root, key)?;
        let Ok(at) = self.search(&leaf, key)? else { return Ok(None) };
        Ok(Some(match leaf.value(at) {
            ValuePart::Here(bytes) => bytes.to_vec(),
            ValuePart::Far { node, .. } => self.take_long(node)?,
        }))
    }

    fn pair(&self, leaf: &Node<'_>, at: usize) -> Step<Pair> {
        let value = match leaf.value(at) {
            ValuePart::Here(bytes) => bytes.to_vec(),
            ValuePart::Far { node, .. } => self.long(node)?.to_vec(),
        };
        Ok((self.whole_key(leaf.key(at))?, value))
    }

    /// Pairs from a bound on, up or down, those that lie together; none when there are no more.
    pub(super) fn near(
        &self,
        root: NodeId,
        from: &Bound<Vec<u8>>,
        direction: Direction,
        most: usize,
    ) -> Step<Vec<Pair>> {
        let (is_up, mut from) = (direction == Direction::Up, from.clone());
        for _ in 0..LEVELS_MAX {
            // Where a node's keys are parted: behind the bound's key, or before it.
            let part = |node: &Node<'_>, is_behind: bool| -> Step<usize> {
                let (Bound::Included(key) | Bound::Excluded(key)) = &from else {
                    return Ok(if is_up { 0 } else { node.count() });
                };
                let found = self.search(node, self.key(key))?;
                Ok(found.map_or_else(|at| at, |at| at + usize::from(is_behind)))
            };
            let is_included = matches!(from, Bound::Included(_));
            // The key between the leaf and what is next to it.
            let mut fence = None;
            let (_, node) = self.descend(root, |_, node| {
                let child = part(&node, is_up || is_included)?;
                if is_up && child < node.count() {
                    fence = Some((node, child));
                } else if !is_up && child > 0 {
                    fence = Some((node, child - 1));
                }
                Ok(child)
            })?;
            let at = part(&node, is_up != is_included)?;
            if is_up && at < node.count() {
                return self.take(&node, at..node.count(), most);
            } else if !is_up && at > 0 {
                return self.take(&node, (0..at).rev(), most);
            }
            let Some((node, at)) = fence else { return Ok(Vec::new()) };
            let key = self.whole_key(node.key(at))?;
            from = if is_up { Bound::Included(key) } else { Bound::Excluded(key) };
        }
        Err(endless(root).into())
    }

    fn take(&self, leaf: &Node<'_>, range: impl Iterator<Item = usize>, most: usize) -> Step<Vec<Pair>> {
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        for at in range.take(most) {
            let pair = self.pair(leaf, at)?;
            bytes += pair.0.len() + pair.1.len();
            pairs.push(pair);
            if bytes >= CHUNK_BYTES {
                break;
            }
        }
        Ok(pairs)
    }

    fn key<'k>(&self, key: &'k [u8]) -> Key<'k> {
        match self.form {
            BTreeForm::Bytes => Key::Bytes(key),
            // Bounds that are no whole key were refused or are separators.
            BTreeForm::Fixed => Key::Fixed(key.first_chunk().map_or(0, |key| u32::from_be_bytes(*key))),
        }
    }
}
