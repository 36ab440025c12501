//! How the cells of a table lie in a line of the processor's cache.

use crate::hash::{KEY_HASH_BITS, Secret};
use crate::ids::{ADDRESS_BITS, NodeId};
use std::fmt::Debug;

/// Words of a line.
pub(crate) const LINE_WORDS: usize = 8;

/// A line of cells.
pub(crate) type LineWords = [u64; LINE_WORDS];

/// The form of a table's cells. A cell is free while what its last word is taken from is 0.
pub(crate) trait Form: Copy + 'static {
    /// The words of a cell. The first of them decides its position.
    type Cell: Copy + PartialEq + Debug + AsRef<[u64]>;
    /// Cells of a line.
    const PER_LINE: usize;
    /// Whether first words are hashes of keys already.
    const IS_HASHED: bool;
    /// Cells of a full page that agree in more bits than these behind the group's prefix are not parted: each bit doubles the directory.
    const ALIKE_BITS_MAX: u32;

    fn cell(line: &LineWords, at: usize) -> Self::Cell;
    fn set(line: &mut LineWords, at: usize, cell: &Self::Cell);
    fn clear(line: &mut LineWords, at: usize);

    /// A bit for each cell of a line that is free. All cells of a line are looked at together: which of them it is cannot be
    /// guessed, and a branch on it would be wrong every other time.
    fn free_in(line: &LineWords) -> u32;

    /// A bit for each cell of a line whose first word is `first`, if it is in use.
    fn alike_in(line: &LineWords, first: u64) -> u32;

    /// Whether a cell can be written in this form, and is none that is free. Those that a store makes can.
    fn has_room(cell: &Self::Cell) -> bool;

    /// The position of a first word.
    #[inline]
    fn position(secret: Secret, first: u64) -> u64 {
        if Self::IS_HASHED { first } else { secret.number(first) }
    }
}

/// Cells of `W` words, by a number or an id.
#[derive(Clone, Copy)]
pub(crate) struct Whole<const W: usize>;

/// Cells of 12 bytes: the hash of a key, of 40 bits, and the node that its edge leads to.
///
/// ```text
/// 5 times 8 bytes:  | low bits of the position 24 | hash 40 |
/// 5 times 4 bytes:  | its upper bits 16 | s-node 16 |            then 4 bytes that are not used
/// ```
///
/// The position is that of the node, in units of 8 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Packed;

impl<const W: usize> Form for Whole<W>
where
    [u64; W]: AsRef<[u64]>,
{
    type Cell = [u64; W];
    const PER_LINE: usize = LINE_WORDS / W;
    const IS_HASHED: bool = false;
    // In tables of two words, whose first words differ, a page of these is damage. In the main table it takes three nodes or more with
    // dozens of edge types each; the edges of fewer become bundles.
    const ALIKE_BITS_MAX: u32 = if W == 4 { 16 } else { 4 };

    #[inline]
    fn has_room(cell: &[u64; W]) -> bool {
        cell[W - 1] != 0
    }

    #[inline]
    fn cell(line: &LineWords, at: usize) -> [u64; W] {
        std::array::from_fn(|word| line[at * W + word])
    }

    #[inline]
    fn set(line: &mut LineWords, at: usize, cell: &[u64; W]) {
        line[at * W..][..W].copy_from_slice(cell);
    }

    #[inline]
    fn clear(line: &mut LineWords, at: usize) {
        line[at * W..][..W].fill(0);
    }

    #[inline]
    fn free_in(line: &LineWords) -> u32 {
        (0..Self::PER_LINE).fold(0, |bits, at| bits | u32::from(line[at * W + W - 1] == 0) << at)
    }

    #[inline]
    fn alike_in(line: &LineWords, first: u64) -> u32 {
        (0..Self::PER_LINE).fold(0, |bits, at| bits | u32::from(line[at * W] == first) << at)
    }
}

impl Packed {
    const CELLS: usize = 5;
    const LOW_BITS: u32 = 24;
    const LOW: u64 = (1 << Packed::LOW_BITS) - 1;
    /// Bits of a position in units of 8 bytes.
    const AT_BITS: u32 = 40;

    /// Where a node is, in 56 bits: its s-node, its position.
    #[inline]
    fn lead(to: NodeId) -> u64 {
        let at = to.0 >> 3 & ((1 << Packed::AT_BITS) - 1);
        at | to.0 >> ADDRESS_BITS << Packed::AT_BITS
    }

    #[inline]
    fn to(lead: u64) -> NodeId {
        let at = lead & ((1 << Packed::AT_BITS) - 1);
        NodeId(at << 3 | lead >> Packed::AT_BITS << ADDRESS_BITS)
    }

    #[inline]
    fn upper(line: &LineWords, at: usize) -> u32 {
        (line[Packed::CELLS + at / 2] >> (at % 2 * 32)) as u32
    }

    #[inline]
    fn set_upper(line: &mut LineWords, at: usize, upper: u32) {
        let (word, shift) = (&mut line[Packed::CELLS + at / 2], at % 2 * 32);
        *word = *word & !(0xffff_ffff << shift) | u64::from(upper) << shift;
    }
}

impl Form for Packed {
    /// The hash, the node.
    type Cell = [u64; 2];
    const PER_LINE: usize = Packed::CELLS;
    const IS_HASHED: bool = true;
    const ALIKE_BITS_MAX: u32 = 4;

    #[inline]
    fn has_room([hash, to]: &[u64; 2]) -> bool {
        let lead = Packed::lead(NodeId(*to));
        hash & !KEY_HASH_BITS == 0 && Packed::to(lead).0 == *to && lead >> Packed::LOW_BITS != 0
    }

    #[inline]
    fn cell(line: &LineWords, at: usize) -> [u64; 2] {
        let lead = line[at] & Packed::LOW | u64::from(Packed::upper(line, at)) << Packed::LOW_BITS;
        [line[at] & !Packed::LOW, Packed::to(lead).0]
    }

    #[inline]
    fn set(line: &mut LineWords, at: usize, cell: &[u64; 2]) {
        let lead = Packed::lead(NodeId(cell[1]));
        debug_assert!(Packed::has_room(cell));
        line[at] = cell[0] & !Packed::LOW | lead & Packed::LOW;
        Packed::set_upper(line, at, (lead >> Packed::LOW_BITS) as u32);
    }

    #[inline]
    fn clear(line: &mut LineWords, at: usize) {
        line[at] = 0;
        Packed::set_upper(line, at, 0);
    }

    #[inline]
    fn free_in(line: &LineWords) -> u32 {
        (0..Packed::CELLS).fold(0, |bits, at| bits | u32::from(Packed::upper(line, at) == 0) << at)
    }

    #[inline]
    fn alike_in(line: &LineWords, first: u64) -> u32 {
        (0..Packed::CELLS)
            .fold(0, |bits, at| bits | u32::from((line[at] ^ first) >> Packed::LOW_BITS == 0) << at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{DATA_PAGES_MAX, SnodeId};

    #[test]
    fn a_packed_cell_comes_back_and_its_neighbours_stay() {
        let far = NodeId::at(SnodeId(u16::MAX), DATA_PAGES_MAX - 1, 4088);
        let near = NodeId::at(SnodeId::FIRST, 1, 0);
        let cells = [[KEY_HASH_BITS, far.0], [1 << 24, near.0], [0, far.0], [0, near.0], [7 << 60, far.0]];
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
            let mut line = [0; LINE_WORDS];
            for (set, at) in order.into_iter().enumerate() {
                assert_eq!(Packed::free_in(&line).count_ones() as usize, 5 - set);
                Packed::set(&mut line, at, &cells[at]);
                order[..=set].iter().for_each(|at| assert_eq!(Packed::cell(&line, *at), cells[*at]));
            }
            assert_eq!((Packed::free_in(&line), line[7] >> 32), (0, 0));
            assert_eq!(Packed::alike_in(&line, 0), 0b01100);
            assert_eq!(Packed::alike_in(&line, 7 << 60), 0b10000);
            for (gone, at) in order.into_iter().enumerate() {
                Packed::clear(&mut line, at);
                assert_eq!(Packed::free_in(&line) >> at & 1, 1);
                let left = &order[gone + 1..];
                left.iter().for_each(|at| assert_eq!(Packed::cell(&line, *at), cells[*at]));
            }
            assert_eq!(line, [0; LINE_WORDS]);
        }
    }

    #[test]
    fn what_no_store_makes_has_no_room_in_a_packed_cell() {
        let node = NodeId::at(SnodeId::FIRST, 7, 64).0;
        assert!(Packed::has_room(&[KEY_HASH_BITS, node]));
        for cell in
            [[1 << 23, node], [0, node + 1], [0, node | 1 << 43], [0, node | 1 << 47], [0, 0], [0, 4096]]
        {
            assert!(!Packed::has_room(&cell), "{cell:x?}");
        }
    }
}
