//! Inserts and deletes pairs; splits nodes that are full and merges nodes that are nearly empty.
//!
//! Where a pair fits a leaf, the leaf is patched. Everything else is rare and goes one way: the cells of the nodes
//! concerned are taken apart and put together anew, and the edges follow from the difference.

use super::look::{Pair, TreePath, Turn};
use super::node::{
    BTreeForm, Cell, FIXED_KEY, FIXED_VALUE, KEY_INLINE, Key, KeyPart, LEAF_PAIRS, LONG, NODE, Node,
    VALUE_INLINE, ValuePart, build, capacity, cell_child, cell_key, cell_longs, far_key, inner_cell,
    leaf_cell, separator, weight,
};
use super::{ANCHOR, BTree};
use crate::error::Result;
use crate::ids::{EdgeType, Info, NodeId, Permission};
use crate::tx::Transaction;
use crate::tx::patch::Patch;
use std::collections::BTreeSet;

/// A node taken apart.
struct NodeCells {
    level: u8,
    /// The first child of an inner node.
    first: NodeId,
    cells: Vec<Cell>,
}

/// Where the cells of a full node are parted, and what stands between them one level up.
struct Split {
    left: NodeCells,
    key: Cell,
    right: NodeCells,
}

impl BTree<'_> {
    /// Gives a key a value; whether it had one.
    ///
    /// # Errors
    /// Those of [`BTree::get`] for the key, [`Error::WrongSize`](crate::Error::WrongSize) and [`Error::TooLarge`](crate::Error::TooLarge) for the value, and those of a commit.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.store.change(self.durability, |tx| self.insert_in(tx, key, value))
    }

    /// Takes a key away; whether it was there.
    ///
    /// # Errors
    /// Those of [`BTree::get`], and those of a commit.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.store.change(self.durability, |tx| self.delete_in(tx, key))
    }

    /// Gives a key a value as part of a transaction; whether it had one. After an error the transaction may have a part of the
    /// change: undo it to a savepoint or abort it.
    ///
    /// # Errors
    /// As [`BTree::insert`]; [`Error::Deadlock`](crate::Error::Deadlock).
    pub fn insert_in(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let wanted = self.key(key)?;
        self.check_value(value)?;
        tx.enter(self.snode, Permission::Write)?;
        if let (Key::Fixed(key), Ok(value)) = (wanted, value.try_into())
            && let Some(found) = self.change_fixed(tx, key, Some(value))?
        {
            return Ok(found);
        }
        let way = self.look_in(tx, |look| look.way(self.root, Some(wanted)))?;
        let value = self.value_part(tx, value)?;
        let at = match way.at {
            Ok(at) => {
                let before = self.cell(tx, way.leaf, at)?;
                let cell = leaf_cell(self.form, cell_key(self.form, 0, &before), value);
                self.replace(tx, &way, &before, cell)?;
                return Ok(true);
            }
            Err(at) => at,
        };
        let key = self.key_part(tx, wanted)?;
        self.put(tx, &way.inner, way.leaf, at, leaf_cell(self.form, key, value))?;
        self.add_to_count(tx, 1)?;
        Ok(false)
    }

    /// Takes a key away as part of a transaction; whether it was there. After an error see [`BTree::insert_in`].
    ///
    /// # Errors
    /// As [`BTree::delete`]; [`Error::Deadlock`](crate::Error::Deadlock).
    pub fn delete_in(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<bool> {
        let wanted = self.key(key)?;
        tx.enter(self.snode, Permission::Write)?;
        if let Key::Fixed(key) = wanted
            && let Some(found) = self.change_fixed(tx, key, None)?
        {
            return Ok(found);
        }
        let way = self.look_in(tx, |look| look.way(self.root, Some(wanted)))?;
        let Ok(at) = way.at else { return Ok(false) };
        self.remove(tx, way.leaf, 0, at)?;
        self.relieve(tx, &way.inner, way.leaf)?;
        self.add_to_count(tx, -1)?;
        Ok(true)
    }

    /// A key as cells have it; a long one gets a node of its own.
    fn key_part<'k>(&self, tx: &mut Transaction<'_>, key: Key<'k>) -> Result<KeyPart<'k>> {
        Ok(match key {
            Key::Fixed(key) => KeyPart::Fixed(key),
            Key::Bytes(key) if key.len() > KEY_INLINE => far_key(key, tx.create_node(self.snode, LONG, key)?),
            Key::Bytes(key) => KeyPart::Here(key),
        })
    }

    /// A value as cells have it; a long one gets a node of its own.
    fn value_part<'v>(&self, tx: &mut Transaction<'_>, value: &'v [u8]) -> Result<ValuePart<'v>> {
        if value.len() <= VALUE_INLINE {
            return Ok(ValuePart::Here(value));
        }
        Ok(ValuePart::Far { node: tx.create_node(self.snode, LONG, value)?, len: value.len() as u64 })
    }

    /// Gives a fixed key a value, or takes it away, as [`BTree::change_in_leaf`].
    fn change_fixed(
        &self,
        tx: &mut Transaction<'_>,
        key: u32,
        value: Option<[u8; FIXED_VALUE]>,
    ) -> Result<Option<bool>> {
        let leaf = self.leaf_of(tx, key)?;
        let found = self.change_in_leaf(tx, leaf, key, value)?;
        self.add_to_count(tx, found.map_or(0, |found| i64::from(value.is_some()) - i64::from(found)))?;
        Ok(found)
    }

    /// Gives a fixed key a value in its leaf, or takes it away; whether it was there. `None` where the leaf has no room, or would be less
    /// than a third full. The number of pairs is left to the caller.
    pub(super) fn change_in_leaf(
        &self,
        tx: &mut Transaction<'_>,
        leaf: NodeId,
        key: u32,
        value: Option<[u8; FIXED_VALUE]>,
    ) -> Result<Option<bool>> {
        let mut edit = tx.edit_node(leaf, NODE)?;
        let node = Node::of(edit.data(), leaf, self.form)?;
        let (found, mut cell) = (node.search_fixed(key), [0; FIXED_KEY + FIXED_VALUE]);
        cell[..FIXED_KEY].copy_from_slice(&key.to_le_bytes());
        cell[FIXED_KEY..].copy_from_slice(&value.unwrap_or_default());
        let changes = match found {
            Ok(at) if value.is_some() => Some(vec![node.value_change(at, &cell)]),
            Ok(at) if (node.count() - 1) * 3 >= LEAF_PAIRS => Some(node.removal(at, self.erases())),
            Ok(_) => None,
            Err(at) if value.is_some() => node.insertion(at, &cell),
            Err(_) => Some(Vec::new()),
        };
        let Some(changes) = changes else { return Ok(None) };
        changes.iter().try_for_each(|change| edit.patch(change))?;
        Ok(Some(found.is_ok()))
    }

    /// The leaf that a fixed key belongs to.
    pub(super) fn leaf_of(&self, tx: &Transaction<'_>, key: u32) -> Result<NodeId> {
        self.look_in(tx, |look| Ok(look.leaf(self.root, Key::Fixed(key))?.0))
    }

    pub(super) fn add_to_count(&self, tx: &mut Transaction<'_>, more: i64) -> Result<()> {
        if more == 0 {
            return Ok(());
        }
        let mut edit = tx.edit_node(self.anchor, ANCHOR)?;
        let count = self.count_of(edit.data()).wrapping_add_signed(more);
        let (at, end) = (self.count_at, self.count_at + 8);
        edit.patch(&Patch { at, end, removed: 8, inserted: count.to_le_bytes() })
    }

    fn cell(&self, tx: &Transaction<'_>, id: NodeId, at: usize) -> Result<Cell> {
        self.look_in(tx, |look| Ok(look.node(id)?.cell(at)))
    }

    fn parts(&self, tx: &Transaction<'_>, id: NodeId) -> Result<NodeCells> {
        self.look_in(tx, |look| {
            let node = look.node(id)?;
            let first = if node.level() == 0 { NodeId(0) } else { node.child(0) };
            Ok(NodeCells { level: node.level(), first, cells: node.cells() })
        })
    }

    /// The edges that a cell stands for.
    fn edges_of(&self, level: u8, cell: &[u8]) -> Vec<(EdgeType, NodeId)> {
        let longs = cell_longs(self.form, level, cell).map(|(node, _)| (self.longs, node));
        let child = (level > 0).then(|| (self.children, cell_child(self.form, cell)));
        longs.chain(child).collect()
    }

    fn edges_of_parts(&self, parts: &NodeCells) -> BTreeSet<(EdgeType, NodeId)> {
        let first = (parts.level > 0).then_some((self.children, parts.first));
        let of_cells = parts.cells.iter().flat_map(|cell| self.edges_of(parts.level, cell));
        first.into_iter().chain(of_cells).collect()
    }

    /// Makes edges out of a node, or deletes them.
    fn lead(
        &self,
        tx: &mut Transaction<'_>,
        from: NodeId,
        edges: impl IntoIterator<Item = (EdgeType, NodeId)>,
        are_new: bool,
    ) -> Result<()> {
        edges.into_iter().try_for_each(|(etype, to)| match are_new {
            true => tx.create_edge(from, etype, Info::Number(to.0), to),
            false => tx.delete_edge(from, etype, Info::Number(to.0)).map(drop),
        })
    }

    /// Makes a node with these parts, which fit.
    fn make(&self, tx: &mut Transaction<'_>, parts: &NodeCells) -> Result<NodeId> {
        let id =
            tx.create_node(self.snode, NODE, &build(self.form, parts.level, parts.first, &parts.cells))?;
        self.lead(tx, id, self.edges_of_parts(parts), true)?;
        Ok(id)
    }

    /// Gives a node these parts, which fit, and the edges that they stand for.
    fn set(&self, tx: &mut Transaction<'_>, id: NodeId, parts: &NodeCells) -> Result<()> {
        let before = self.edges_of_parts(&self.parts(tx, id)?);
        let now = self.edges_of_parts(parts);
        tx.update_node(id, NODE, &build(self.form, parts.level, parts.first, &parts.cells))?;
        self.lead(tx, id, now.difference(&before).copied(), true)?;
        self.lead(tx, id, before.difference(&now).copied(), false)
    }

    /// Takes a node out of the tree: no edge leads from it any more, and its parent's is the caller's to delete.
    fn empty(&self, tx: &mut Transaction<'_>, id: NodeId) -> Result<()> {
        let edges = self.edges_of_parts(&self.parts(tx, id)?);
        self.lead(tx, id, edges, false)
    }

    /// Puts a cell in a node, in place or by parting it.
    fn put(&self, tx: &mut Transaction<'_>, inner: &[Turn], id: NodeId, at: usize, cell: Cell) -> Result<()> {
        let (level, changes) = self.look_in(tx, |look| {
            let node = look.node(id)?;
            Ok((node.level(), node.insertion(at, &cell)))
        })?;
        if let Some(changes) = changes {
            tx.patch_node(id, NODE, &changes)?;
            return self.lead(tx, id, self.edges_of(level, &cell), true);
        }
        let mut parts = self.parts(tx, id)?;
        parts.cells.insert(at, cell);
        let appended = at + 1 == parts.cells.len();
        self.set_or_split(tx, inner, id, parts, appended)
    }

    /// Puts another cell in the place of one.
    fn replace(&self, tx: &mut Transaction<'_>, way: &TreePath, was: &[u8], cell: Cell) -> Result<()> {
        let (Ok(at) | Err(at)) = way.at;
        let (old, new) = (self.edges_of(0, was), self.edges_of(0, &cell));
        if old == new && was.len() == cell.len() {
            // Only a value of the same length differs: no cell moves.
            let removal = self.look_in(tx, |look| Ok(look.node(way.leaf)?.value_change(at, &cell)))?;
            return tx.patch_node(way.leaf, NODE, &[removal]);
        }
        let mut parts = self.parts(tx, way.leaf)?;
        parts.cells[at] = cell;
        self.set_or_split(tx, &way.inner, way.leaf, parts, false)
    }

    /// Whether what is taken out of nodes is erased.
    fn erases(&self) -> bool {
        self.store.pool.erasure.is_of(self.anchor.home().0)
    }

    /// Takes a cell out of a node.
    fn remove(&self, tx: &mut Transaction<'_>, id: NodeId, level: u8, at: usize) -> Result<()> {
        let cell = self.cell(tx, id, at)?;
        let erase = self.erases();
        let changes = self.look_in(tx, |look| Ok(look.node(id)?.removal(at, erase)))?;
        tx.patch_node(id, NODE, &changes)?;
        self.lead(tx, id, self.edges_of(level, &cell), false)
    }

    fn weight_of(&self, cells: &[Cell]) -> usize {
        cells.iter().map(|cell| weight(self.form, cell)).sum()
    }

    fn fits(&self, parts: &NodeCells) -> bool {
        self.weight_of(&parts.cells) <= capacity(self.form, parts.level)
    }

    fn set_or_split(
        &self,
        tx: &mut Transaction<'_>,
        inner: &[Turn],
        id: NodeId,
        parts: NodeCells,
        appended: bool,
    ) -> Result<()> {
        if self.fits(&parts) {
            return self.set(tx, id, &parts);
        }
        let Split { left, key, right } = self.split(parts, appended);
        let new = self.make(tx, &right)?;
        if !inner.is_empty() {
            self.set(tx, id, &left)?;
        }
        self.hang(tx, inner, id, &left, cell_key(self.form, 1, &key), new)
    }

    /// Puts a node beside one that has these parts now, with a key between them. The root stays where it is: what it holds goes one
    /// level down.
    fn hang(
        &self,
        tx: &mut Transaction<'_>,
        inner: &[Turn],
        id: NodeId,
        left: &NodeCells,
        key: KeyPart<'_>,
        new: NodeId,
    ) -> Result<()> {
        if let Some(((parent, at), above)) = inner.split_last() {
            return self.put(tx, above, *parent, *at, inner_cell(self.form, key, new));
        }
        let (first, cells) = (self.make(tx, left)?, vec![inner_cell(self.form, key, new)]);
        self.set(tx, id, &NodeCells { level: left.level + 1, first, cells })
    }

    /// Parts cells that do not fit one node, in the middle; where the last of them made them too many, before that, so that
    /// keys that come in their order fill the nodes.
    fn split(&self, parts: NodeCells, appended: bool) -> Split {
        let NodeCells { level, first, mut cells } = parts;
        let at = if appended { cells.len() - 1 - usize::from(level > 0) } else { self.middle(&cells) };
        // An inner node of two separators at least keeps one on either side.
        let at = if level > 0 { at.clamp(1, cells.len() - 2) } else { at.clamp(1, cells.len() - 1) };
        let mut behind = cells.split_off(at);
        let (key, second) = if level == 0 {
            let (before, after) = (&cells[at - 1], &behind[0]);
            let key = separator(cell_key(self.form, 0, before), cell_key(self.form, 0, after));
            (inner_cell(self.form, key, NodeId(0)), NodeId(0))
        } else {
            let middle = behind.remove(0);
            let child = cell_child(self.form, &middle);
            (middle, child)
        };
        let left = NodeCells { level, first, cells };
        Split { left, key, right: NodeCells { level, first: second, cells: behind } }
    }

    /// Where both sides hold about the same.
    fn middle(&self, cells: &[Cell]) -> usize {
        let (all, mut before) = (self.weight_of(cells), 0);
        let is_behind = |cell: &Cell| {
            before += weight(self.form, cell);
            before * 2 > all
        };
        cells.iter().position(is_behind).unwrap_or(cells.len() / 2)
    }

    /// Joins a node that is less than a third full with one beside it, or evens the two out.
    fn relieve(&self, tx: &mut Transaction<'_>, inner: &[Turn], id: NodeId) -> Result<()> {
        let (level, count, used) = self.look_in(tx, |look| {
            let node = look.node(id)?;
            Ok((node.level(), node.count(), node.used()))
        })?;
        let most = capacity(self.form, level);
        let Some(((parent, at), above)) = inner.split_last() else {
            return if level > 0 && count == 0 { self.lower(tx) } else { Ok(()) };
        };
        if used * 3 >= most {
            return Ok(());
        }
        let around = self.parts(tx, *parent)?;
        if around.cells.is_empty() {
            // Nothing is beside it: the parent goes first.
            return self.relieve(tx, above, *parent);
        }
        let between = (*at).min(around.cells.len() - 1);
        let child = |index: usize| match index.checked_sub(1) {
            None => around.first,
            Some(cell) => cell_child(self.form, &around.cells[cell]),
        };
        let (left_id, right_id) = (child(between), child(between + 1));
        let (mut joined, right) = (self.parts(tx, left_id)?, self.parts(tx, right_id)?);
        if level > 0 {
            let key = cell_key(self.form, level + 1, &around.cells[between]);
            joined.cells.push(inner_cell(self.form, key, right.first));
        }
        joined.cells.extend(right.cells);
        if self.weight_of(&joined.cells) * 5 <= most * 4 {
            self.set(tx, left_id, &joined)?;
            self.empty(tx, right_id)?;
            self.remove(tx, *parent, level + 1, between)?;
            return self.relieve(tx, above, *parent);
        }
        let Split { left, key, right } = self.split(joined, false);
        self.set(tx, left_id, &left)?;
        self.set(tx, right_id, &right)?;
        let mut around = around;
        around.cells[between] = inner_cell(self.form, cell_key(self.form, 1, &key), right_id);
        self.set_or_split(tx, above, *parent, around, false)
    }

    /// The root has one child: it takes what that holds.
    fn lower(&self, tx: &mut Transaction<'_>) -> Result<()> {
        let child = self.parts(tx, self.root)?.first;
        let parts = self.parts(tx, child)?;
        let again = parts.level > 0 && parts.cells.is_empty();
        self.set(tx, self.root, &parts)?;
        self.empty(tx, child)?;
        if again { self.lower(tx) } else { Ok(()) }
    }

    /// Puts pairs, all behind those that are there, in a leaf of their own, the last.
    pub(super) fn append(&self, tx: &mut Transaction<'_>, pairs: &[Pair]) -> Result<()> {
        let mut cells = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let (key, value) = (self.key_part(tx, self.key(key)?)?, self.value_part(tx, value)?);
            cells.push(leaf_cell(self.form, key, value));
        }
        let new = NodeCells { level: 0, first: NodeId(0), cells };
        let way = self.look_in(tx, |look| look.way(self.root, None))?;
        let last = self.parts(tx, way.leaf)?;
        let Some((before, after)) = last.cells.last().zip(new.cells.first()) else {
            return self.set(tx, way.leaf, &new);
        };
        let key = separator(cell_key(self.form, 0, before), cell_key(self.form, 0, after));
        let leaf = self.make(tx, &new)?;
        self.hang(tx, &way.inner, way.leaf, &last, key, leaf)
    }

    /// What a pair takes of a leaf.
    pub(super) fn pair_weight(&self, (key, value): &Pair) -> usize {
        let key = if key.len() > KEY_INLINE { 76 } else { key.len() };
        let value = if value.len() > VALUE_INLINE { 16 } else { value.len() };
        if self.form == BTreeForm::Fixed { 1 } else { 2 + 4 + key + value }
    }
}
