//! How a node of a B+tree lies in its data, which with the store's header fills a page.
//!
//! ```text
//! all:           | level u8 | form u8 | count u16 | heap u16 | garbage u16 |
//! bytes:         | header | slots u16.. ->    ...    <- cells | first child u64 (inner) |
//! fixed leaf:    | header | 340 keys u32 | 340 values of 8 bytes |
//! fixed inner:   | header | 341 keys u32 | 342 children of 6 bytes |
//! cell, leaf:    | key length u16 | value length u16 | key | value |
//! cell, inner:   | child u64 | key length u16 | key |
//! ```
//!
//! Bit 15 of a length: the key or value has a node of its own. The cell has that node's id then: of a value `id u64 |
//! length u64`, of a key `its first 64 bytes | id u64 | length u32`. In a tree of fixed pairs a cell is `key u32 | value u64`
//! or `key u32 | child u64`, put together from the arrays.

use crate::error::Error;
use crate::ids::{ADDRESS_BITS, HomeId, NodeId, NodeType, PAGE_BYTES};
use crate::layout::node::NODE_HEADER;
use crate::tx::patch::Patch;
use std::borrow::Cow;

/// Bytes of a node's data.
pub(super) const DATA: usize = PAGE_BYTES - NODE_HEADER;
/// The type of tree nodes.
pub(super) const NODE: NodeType = NodeType(0x6274_0001);
/// The type of long keys and values.
pub(super) const LONG: NodeType = NodeType(0x6274_0002);

/// Bytes before slots or arrays.
const HEADER: usize = 8;
/// The most bytes of a key that lies in its cell.
pub(super) const KEY_INLINE: usize = 400;
/// The most bytes of a value that lies in its cell.
pub(super) const VALUE_INLINE: usize = 500;
/// Bytes of a long key that lie in its cell.
const PREFIX: usize = 64;
/// Marks lengths of keys and values that have nodes of their own.
const FAR: u16 = 1 << 15;
/// Bytes of the key of a fixed pair.
pub(super) const FIXED_KEY: usize = 4;
/// Bytes of the value of a fixed pair.
pub(super) const FIXED_VALUE: usize = 8;
/// Pairs of a leaf of fixed pairs.
pub(super) const LEAF_PAIRS: usize = 340;
/// Separators of an inner node of fixed pairs: it has one more child.
pub(super) const INNER_KEYS: usize = 341;
const VALUES_AT: usize = HEADER + FIXED_KEY * LEAF_PAIRS;
const CHILDREN_AT: usize = HEADER + FIXED_KEY * INNER_KEYS;
const CHILD_BYTES: usize = 6;
const _: () = assert!(VALUES_AT + FIXED_VALUE * LEAF_PAIRS <= DATA);
const _: () = assert!(CHILDREN_AT + CHILD_BYTES * (INNER_KEYS + 1) <= DATA);

/// What a tree's keys and values are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum BTreeForm {
    /// Keys and values of any size.
    Bytes = 0,
    /// Keys of 4 bytes, in the order of big-endian numbers, and values of 8 bytes. A node has up to 342 children.
    Fixed = 1,
}

impl BTreeForm {
    pub(super) fn from_u8(value: u8) -> Option<BTreeForm> {
        [BTreeForm::Bytes, BTreeForm::Fixed].into_iter().find(|form| *form as u8 == value)
    }
}

/// A key that is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<'k> {
    Bytes(&'k [u8]),
    Fixed(u32),
}

/// A key as a cell has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyPart<'c> {
    Here(&'c [u8]),
    Fixed(u32),
    Far { prefix: &'c [u8], node: NodeId, len: u64 },
}

/// A value as a cell has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ValuePart<'c> {
    Here(&'c [u8]),
    Far { node: NodeId, len: u64 },
}

/// A node, looked at. Numbers that make no sense give empty cells, never a panic; the tree's check finds them.
#[derive(Clone, Copy)]
pub(super) struct Node<'d> {
    data: &'d [u8],
    form: BTreeForm,
    snode: HomeId,
}

/// A cell by itself.
pub(super) type Cell = Box<[u8]>;

/// A change within a node's data.
pub(super) type Change<'c> = Patch<Cow<'c, [u8]>>;

fn change<'c>(at: usize, end: usize, removed: usize, inserted: impl Into<Cow<'c, [u8]>>) -> Change<'c> {
    Patch { at, end, removed, inserted: inserted.into() }
}

fn u16_at(data: &[u8], at: usize) -> u16 {
    data.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    data.get(at..at + 4).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    data.get(at..at + 8).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn child_at(data: &[u8], at: usize, snode: HomeId) -> NodeId {
    let mut raw = [0; 8];
    if let Some(bytes) = data.get(at..at + CHILD_BYTES) {
        raw[..CHILD_BYTES].copy_from_slice(bytes);
    }
    NodeId(u64::from(snode.0) << ADDRESS_BITS | u64::from_le_bytes(raw))
}

impl<'d> Node<'d> {
    /// A node in `data`.
    ///
    /// # Errors
    /// [`Error::Damaged`] where that is no node of a tree of this form.
    #[inline]
    pub(super) fn of(data: &'d [u8], id: NodeId, form: BTreeForm) -> Result<Node<'d>, Error> {
        if data.len() != DATA || data[1] != form as u8 {
            return Err(Error::damaged(format!("node {id} is not one of its B+tree")));
        }
        let node = Node { data, form, snode: id.home() };
        // A cell has a slot at least.
        if node.count() > capacity(form, node.level()).min((DATA - HEADER) / 2) {
            return Err(Error::damaged(format!("node {id} of a B+tree: {} entries", node.count())));
        }
        Ok(node)
    }

    /// Levels below this one.
    #[inline]
    pub(super) fn level(&self) -> u8 {
        self.data[0]
    }

    /// Pairs of a leaf, separators of an inner node.
    #[inline]
    pub(super) fn count(&self) -> usize {
        usize::from(u16_at(self.data, 2))
    }

    fn heap(&self) -> usize {
        usize::from(u16_at(self.data, 4))
    }

    fn garbage(&self) -> usize {
        usize::from(u16_at(self.data, 6))
    }

    /// The bytes of a cell in a tree of byte strings, and more behind it.
    #[inline]
    fn raw(&self, index: usize) -> &'d [u8] {
        let at = usize::from(u16_at(self.data, HEADER + 2 * index));
        self.data.get(at..).unwrap_or(&[])
    }

    /// The keys of a node of fixed pairs.
    #[inline]
    pub(super) fn fixed_keys(&self) -> &'d [[u8; FIXED_KEY]] {
        let (keys, _) = self.data[HEADER..].as_chunks::<FIXED_KEY>();
        keys.get(..self.count()).unwrap_or(&[])
    }

    /// The key of a cell.
    pub(super) fn key(&self, index: usize) -> KeyPart<'d> {
        match self.form {
            BTreeForm::Fixed => {
                KeyPart::Fixed(self.fixed_keys().get(index).map_or(0, |key| u32::from_le_bytes(*key)))
            }
            BTreeForm::Bytes => key_of(self.raw(index), self.level()),
        }
    }

    /// The value of a leaf's cell.
    pub(super) fn value(&self, index: usize) -> ValuePart<'d> {
        match self.form {
            BTreeForm::Fixed => {
                let at = VALUES_AT + FIXED_VALUE * index;
                ValuePart::Here(self.data.get(at..at + FIXED_VALUE).unwrap_or(&[]))
            }
            BTreeForm::Bytes => value_of(self.raw(index)),
        }
    }

    /// The value of a fixed pair.
    #[inline]
    pub(super) fn fixed_value(&self, index: usize) -> u64 {
        u64_at(self.data, VALUES_AT + FIXED_VALUE * index)
    }

    /// Asks for the line of what belongs to a fixed key: its value, or the child for what is not below it.
    #[inline]
    pub(super) fn prefetch_fixed(&self, index: usize) {
        let at = if self.level() == 0 {
            VALUES_AT + FIXED_VALUE * index
        } else {
            CHILDREN_AT + CHILD_BYTES * index
        };
        weft_sys::prefetch(self.data.as_ptr().wrapping_add(at));
    }

    /// Child `index` of an inner node, of `count() + 1`.
    #[inline]
    pub(super) fn child(&self, index: usize) -> NodeId {
        match self.form {
            BTreeForm::Fixed => child_at(self.data, CHILDREN_AT + CHILD_BYTES * index, self.snode),
            BTreeForm::Bytes if index == 0 => NodeId(u64_at(self.data, DATA - 8)),
            BTreeForm::Bytes => NodeId(u64_at(self.raw(index - 1), 0)),
        }
    }

    /// Where a fixed key is (`Ok`), or would be.
    #[inline]
    pub(super) fn search_fixed(&self, key: u32) -> Result<usize, usize> {
        let keys = self.fixed_keys();
        let at = keys.partition_point(|other| u32::from_le_bytes(*other) < key);
        if keys.get(at).is_some_and(|other| u32::from_le_bytes(*other) == key) { Ok(at) } else { Err(at) }
    }

    /// Every cell, by itself.
    pub(super) fn cells(&self) -> Vec<Cell> {
        (0..self.count()).map(|index| self.cell(index)).collect()
    }

    /// A cell, by itself.
    pub(super) fn cell(&self, index: usize) -> Cell {
        match self.form {
            BTreeForm::Fixed => {
                let key = self.fixed_keys().get(index).copied().unwrap_or_default();
                let payload =
                    if self.level() == 0 { self.fixed_value(index) } else { self.child(index + 1).0 };
                [&key[..], &payload.to_le_bytes()].concat().into()
            }
            BTreeForm::Bytes => {
                let raw = self.raw(index);
                raw.get(..cell_bytes(raw, self.level())).unwrap_or(&[]).into()
            }
        }
    }

    /// Bytes in use, or what stands for them, of [`capacity`].
    pub(super) fn used(&self) -> usize {
        match self.form {
            BTreeForm::Fixed => self.count(),
            BTreeForm::Bytes => {
                let end = heap_end(self.level());
                2 * self.count() + (end - self.heap().min(end)).saturating_sub(self.garbage())
            }
        }
    }

    /// The changes that put a cell in, where it has room as the node is.
    pub(super) fn insertion<'c>(&self, index: usize, cell: &'c [u8]) -> Option<Vec<Change<'c>>> {
        let count = self.count() + 1;
        match self.form {
            BTreeForm::Fixed => {
                if count > capacity(self.form, self.level()) {
                    return None;
                }
                let (keys_at, keys_end) = (HEADER + FIXED_KEY * index, HEADER + FIXED_KEY * count);
                let ((at, bytes), (end, _)) = (payload(self.level(), index), payload(self.level(), count));
                Some(vec![
                    change(2, 4, 2, (count as u16).to_le_bytes().to_vec()),
                    change(keys_at, keys_end, 0, &cell[..FIXED_KEY]),
                    change(at, end, 0, &cell[FIXED_KEY..FIXED_KEY + bytes]),
                ])
            }
            BTreeForm::Bytes => {
                let slots_end = HEADER + 2 * count;
                let heap = self.heap().checked_sub(cell.len()).filter(|heap| *heap >= slots_end)?;
                let head = header(self.level(), self.form, count, heap, self.garbage());
                Some(vec![
                    change(2, 6, 4, head[2..6].to_vec()),
                    change(heap, heap + cell.len(), cell.len(), cell),
                    change(HEADER + 2 * index, slots_end, 0, (heap as u16).to_le_bytes().to_vec()),
                ])
            }
        }
    }

    /// The change that gives a leaf's cell the value of `cell`, which has the same key and a value of the same length.
    pub(super) fn value_change<'c>(&self, index: usize, cell: &'c [u8]) -> Change<'c> {
        let (skip, at) = match self.form {
            BTreeForm::Fixed => (FIXED_KEY, payload(0, index).0),
            BTreeForm::Bytes => {
                let skip = 4 + usize::from(u16_at(cell, 0) & !FAR);
                (skip, usize::from(u16_at(self.data, HEADER + 2 * index)) + skip)
            }
        };
        let value = &cell[skip..];
        change(at, at + value.len(), value.len(), value)
    }

    /// The changes that take a cell out. Its child, for an inner node, goes with it. With `erase`, nothing of its bytes is left.
    pub(super) fn removal(&self, index: usize, erase: bool) -> Vec<Change<'static>> {
        let count = self.count();
        // The second are where bytes are that no cell has any more.
        let (mut changes, left) = match self.form {
            BTreeForm::Fixed => {
                let (key, keys_end) = (HEADER + FIXED_KEY * index, HEADER + FIXED_KEY * count);
                let ((at, bytes), (end, _)) = (payload(self.level(), index), payload(self.level(), count));
                let changes = vec![
                    change(2, 4, 2, (count as u16 - 1).to_le_bytes().to_vec()),
                    change(key, keys_end, FIXED_KEY, b""),
                    change(at, end, bytes, b""),
                ];
                (changes, [(keys_end - FIXED_KEY, FIXED_KEY), (end - bytes, bytes)])
            }
            BTreeForm::Bytes => {
                let (at, bytes) =
                    (usize::from(u16_at(self.data, HEADER + 2 * index)), self.cell(index).len());
                let head = header(self.level(), self.form, count - 1, self.heap(), self.garbage() + bytes);
                let changes = vec![
                    change(2, 8, 6, head[2..].to_vec()),
                    change(HEADER + 2 * index, HEADER + 2 * count, 2, b""),
                ];
                (changes, [(at, bytes), (at, 0)])
            }
        };
        let left = left.into_iter().filter(|(_, len)| erase && *len > 0);
        changes.extend(left.map(|(at, len)| change(at, at + len, len, vec![0; len])));
        changes
    }
}

/// Where the value of a fixed pair is, or the child behind a separator, and its bytes.
fn payload(level: u8, index: usize) -> (usize, usize) {
    match level {
        0 => (VALUES_AT + FIXED_VALUE * index, FIXED_VALUE),
        _ => (CHILDREN_AT + CHILD_BYTES * (index + 1), CHILD_BYTES),
    }
}

fn heap_end(level: u8) -> usize {
    if level == 0 { DATA } else { DATA - 8 }
}

fn header(level: u8, form: BTreeForm, count: usize, heap: usize, garbage: usize) -> [u8; HEADER] {
    let mut out = [level, form as u8, 0, 0, 0, 0, 0, 0];
    for (at, number) in [(2, count), (4, heap), (6, garbage)] {
        out[at..at + 2].copy_from_slice(&(number as u16).to_le_bytes());
    }
    out
}

/// What a node of this level can hold, in the unit of [`Node::used`] and [`weight`].
pub(super) fn capacity(form: BTreeForm, level: u8) -> usize {
    match (form, level) {
        (BTreeForm::Bytes, _) => heap_end(level) - HEADER,
        (BTreeForm::Fixed, 0) => LEAF_PAIRS,
        (BTreeForm::Fixed, _) => INNER_KEYS,
    }
}

/// What a cell takes of a node.
pub(super) fn weight(form: BTreeForm, cell: &[u8]) -> usize {
    match form {
        BTreeForm::Fixed => 1,
        BTreeForm::Bytes => 2 + cell.len(),
    }
}

/// The data of a node with these cells, which fit; `first` is the first child of an inner node.
pub(super) fn build(form: BTreeForm, level: u8, first: NodeId, cells: &[Cell]) -> Vec<u8> {
    let (mut data, mut heap) = (vec![0; DATA], heap_end(level));
    let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
    match form {
        BTreeForm::Fixed if level > 0 => put(CHILDREN_AT, &first.0.to_le_bytes()[..CHILD_BYTES]),
        BTreeForm::Bytes if level > 0 => put(heap, &first.0.to_le_bytes()),
        _ => {}
    }
    for (index, cell) in cells.iter().enumerate() {
        match form {
            BTreeForm::Fixed => {
                let (at, bytes) = payload(level, index);
                put(HEADER + FIXED_KEY * index, &cell[..FIXED_KEY]);
                put(at, &cell[FIXED_KEY..FIXED_KEY + bytes]);
            }
            BTreeForm::Bytes => {
                heap -= cell.len();
                put(heap, cell);
                put(HEADER + 2 * index, &(heap as u16).to_le_bytes());
            }
        }
    }
    let heap = if form == BTreeForm::Fixed { 0 } else { heap };
    put(0, &header(level, form, cells.len(), heap, 0));
    data
}

/// The bytes of the cell that `raw` begins with, in a tree of byte strings.
fn cell_bytes(raw: &[u8], level: u8) -> usize {
    let len = |at| usize::from(u16_at(raw, at) & !FAR);
    if level == 0 { 4 + len(0) + len(2) } else { 10 + len(8) }
}

/// The key of a cell in a tree of byte strings.
#[inline]
fn key_of(cell: &[u8], level: u8) -> KeyPart<'_> {
    let (field, start) = if level == 0 { (u16_at(cell, 0), 4) } else { (u16_at(cell, 8), 10) };
    let part = cell.get(start..start + usize::from(field & !FAR)).unwrap_or(&[]);
    match part.split_at_checked(PREFIX) {
        Some((prefix, rest)) if field & FAR != 0 => {
            KeyPart::Far { prefix, node: NodeId(u64_at(rest, 0)), len: u64::from(u32_at(rest, 8)) }
        }
        _ => KeyPart::Here(part),
    }
}

/// The value of a leaf's cell in a tree of byte strings.
fn value_of(cell: &[u8]) -> ValuePart<'_> {
    let (key, field) = (usize::from(u16_at(cell, 0) & !FAR), u16_at(cell, 2));
    let part = cell.get(4 + key..4 + key + usize::from(field & !FAR)).unwrap_or(&[]);
    if field & FAR == 0 {
        return ValuePart::Here(part);
    }
    ValuePart::Far { node: NodeId(u64_at(part, 0)), len: u64_at(part, 8) }
}

/// The key of a cell that stands by itself.
pub(super) fn cell_key(form: BTreeForm, level: u8, cell: &[u8]) -> KeyPart<'_> {
    match form {
        BTreeForm::Fixed => KeyPart::Fixed(u32_at(cell, 0)),
        BTreeForm::Bytes => key_of(cell, level),
    }
}

/// The child of an inner cell that stands by itself.
pub(super) fn cell_child(form: BTreeForm, cell: &[u8]) -> NodeId {
    NodeId(u64_at(cell, if form == BTreeForm::Fixed { FIXED_KEY } else { 0 }))
}

/// The nodes of its own that a cell leads to for its key and value, not its child, and how long these are.
pub(super) fn cell_longs(form: BTreeForm, level: u8, cell: &[u8]) -> impl Iterator<Item = (NodeId, u64)> {
    let key = match cell_key(form, level, cell) {
        KeyPart::Far { node, len, .. } => Some((node, len)),
        _ => None,
    };
    let value = match value_of(cell) {
        ValuePart::Far { node, len } if form == BTreeForm::Bytes && level == 0 => Some((node, len)),
        _ => None,
    };
    key.into_iter().chain(value)
}

/// A part of a cell, with its length and mark.
fn key_field(key: KeyPart<'_>) -> (u16, Vec<u8>) {
    match key {
        KeyPart::Here(bytes) => (bytes.len() as u16, bytes.to_vec()),
        KeyPart::Fixed(key) => (FIXED_KEY as u16, key.to_le_bytes().to_vec()),
        KeyPart::Far { prefix, node, len } => {
            let mut part = prefix.to_vec();
            part.resize(PREFIX, 0);
            part.extend_from_slice(&node.0.to_le_bytes());
            part.extend_from_slice(&(len as u32).to_le_bytes());
            (part.len() as u16 | FAR, part)
        }
    }
}

/// A leaf's cell.
pub(super) fn leaf_cell(form: BTreeForm, key: KeyPart<'_>, value: ValuePart<'_>) -> Cell {
    let (key_len, mut key) = key_field(key);
    let (value_len, value) = match value {
        ValuePart::Here(bytes) => (bytes.len() as u16, bytes.to_vec()),
        ValuePart::Far { node, len } => (16 | FAR, [node.0.to_le_bytes(), len.to_le_bytes()].concat()),
    };
    if form == BTreeForm::Fixed {
        key.extend_from_slice(&value);
        return key.into();
    }
    [&key_len.to_le_bytes()[..], &value_len.to_le_bytes(), &key, &value].concat().into()
}

/// An inner node's cell.
pub(super) fn inner_cell(form: BTreeForm, key: KeyPart<'_>, child: NodeId) -> Cell {
    let (key_len, key) = key_field(key);
    if form == BTreeForm::Fixed {
        return [&key[..], &child.0.to_le_bytes()].concat().into();
    }
    [&child.0.to_le_bytes()[..], &key_len.to_le_bytes(), &key].concat().into()
}

/// A key to put in a cell, whose node of its own, for a long one, is `node`.
pub(super) fn far_key(key: &[u8], node: NodeId) -> KeyPart<'_> {
    KeyPart::Far { prefix: key.get(..PREFIX).unwrap_or(key), node, len: key.len() as u64 }
}

impl<'c> KeyPart<'c> {
    /// As much of a byte string as lies in its cell.
    fn visible(self) -> &'c [u8] {
        match self {
            KeyPart::Here(bytes) => bytes,
            KeyPart::Far { prefix, .. } => prefix,
            KeyPart::Fixed(_) => &[],
        }
    }
}

/// The shortest key that tells `left` from the greater `right`: above the one, not above the other.
pub(super) fn separator<'c>(left: KeyPart<'_>, right: KeyPart<'c>) -> KeyPart<'c> {
    let (before, after) = (left.visible(), right.visible());
    let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let left_ends = matches!(left, KeyPart::Here(_)) || same < before.len();
    // Where both begin with the same bytes as far as they can be seen, the greater key itself is taken.
    match after.get(..same + 1) {
        Some(short) if left_ends => KeyPart::Here(short),
        _ => right,
    }
}
