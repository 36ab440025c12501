//! The write buffer: blocks of files that are newer than the device.
//!
//! Readers see a buffered block instead of the mapped one. Only memory has the bytes in its `fresh` range. A block
//! without such a range is durable in the journal (as inline bytes), and waits to be written to its data zone, whole or
//! packed with others.

use super::rarely::{Nothing, Rarely};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, VecDeque};
use weft_core::{BLOCK_BYTES, Ino};

/// The content of a block.
pub type Block = Box<[u8; BLOCK_BYTES]>;

/// A buffered block.
#[derive(Debug)]
pub struct DirtyBlock {
    /// Its content; zeros beyond the end of the file.
    pub data: Block,
    /// First and end byte of what only memory has; empty when equal.
    pub fresh: (u32, u32),
    /// Whether the journal has bytes of it that no data zone has.
    pub journaled: bool,
    /// Space charged for it over what its mapped piece is charged, in bytes.
    pub extra: u32,
}

impl DirtyBlock {
    /// Whether memory alone has some of it.
    pub fn is_fresh(&self) -> bool {
        self.fresh.0 < self.fresh.1
    }

    /// Notes that bytes were written.
    pub fn touch(&mut self, from: u32, to: u32) {
        self.fresh =
            if self.is_fresh() { (self.fresh.0.min(from), self.fresh.1.max(to)) } else { (from, to) };
    }

    /// Zeros what lies at or beyond `len`.
    pub fn cut(&mut self, len: usize) {
        self.data[len..].fill(0);
        self.fresh.1 = self.fresh.1.min(len as u32);
        self.fresh.0 = self.fresh.0.min(self.fresh.1);
    }
}

/// The buffered blocks of a file.
#[derive(Default, Debug)]
pub struct DirtyMap {
    /// By block of the file.
    pub blocks: BTreeMap<u64, DirtyBlock>,
    /// Since when there are any, in nanoseconds of the volume's clock.
    pub since: i64,
    /// Whether the file stands in the write-back queue.
    pub queued: bool,
    /// Blocks of which only memory has some.
    pub fresh: usize,
}

impl Nothing for DirtyMap {
    fn nothing() -> &'static DirtyMap {
        static NOTHING: DirtyMap = DirtyMap { blocks: BTreeMap::new(), since: 0, queued: false, fresh: 0 };
        &NOTHING
    }

    fn is_nothing(&self) -> bool {
        self.is_empty() && !self.queued
    }
}

impl Rarely<DirtyMap> {
    /// Takes a block out.
    pub fn remove(&mut self, block: u64) -> Option<DirtyBlock> {
        let dirty = self.get_mut()?.remove(block);
        self.tidy();
        dirty
    }

    /// Zeros what a block has at or beyond `len`.
    pub fn cut(&mut self, block: u64, len: usize) {
        if let Some(map) = self.get_mut() {
            map.cut(block, len);
        }
    }

    /// A buffered block, to be changed.
    pub fn block_mut(&mut self, block: u64) -> Option<&mut DirtyBlock> {
        self.get_mut()?.blocks.get_mut(&block)
    }

    /// The file is not in the write-back queue any more.
    pub fn leave_queue(&mut self) {
        if let Some(map) = self.get_mut() {
            map.queued = false;
        }
        self.tidy();
    }
}

impl DirtyMap {
    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a block.
    pub fn insert(&mut self, block: u64, dirty: DirtyBlock) {
        self.fresh += usize::from(dirty.is_fresh());
        self.blocks.insert(block, dirty);
    }

    /// Takes a block out.
    pub fn remove(&mut self, block: u64) -> Option<DirtyBlock> {
        let dirty = self.blocks.remove(&block)?;
        self.fresh -= usize::from(dirty.is_fresh());
        Some(dirty)
    }

    /// Zeros what a block has at or beyond `len`.
    pub fn cut(&mut self, block: u64, len: usize) {
        if let Some(dirty) = self.blocks.get_mut(&block) {
            let before = dirty.is_fresh();
            dirty.cut(len);
            self.fresh -= usize::from(before && !dirty.is_fresh());
        }
    }

    /// The blocks of which only memory has some, the last one first. What is appended is at the end, so that finding
    /// it does not depend on how much waits before it.
    pub fn fresh_blocks(&self) -> impl Iterator<Item = (u64, &DirtyBlock)> {
        self.blocks
            .iter()
            .rev()
            .filter(|(_, dirty)| dirty.is_fresh())
            .map(|(block, dirty)| (*block, dirty))
            .take(self.fresh)
    }

    /// Offset of the first byte at or beyond `from` that only memory has.
    pub fn first_fresh(&self, from: u64) -> Option<u64> {
        if self.fresh == 0 {
            return None;
        }
        let block_bytes = BLOCK_BYTES as u64;
        self.blocks.range(from / block_bytes..).find_map(|(block, dirty)| {
            let (start, end) = (
                block * block_bytes + u64::from(dirty.fresh.0),
                block * block_bytes + u64::from(dirty.fresh.1),
            );
            (dirty.is_fresh() && end > from).then(|| start.max(from))
        })
    }
}

/// Blocks kept for reuse, so that a write does not allocate.
#[derive(Default, Debug)]
pub struct BlockPool {
    spare: Vec<Block>,
}

/// Most spare blocks kept: 8 MiB.
const SPARE_MAX: usize = 2048;

impl BlockPool {
    /// A block of zeros.
    pub fn zeroed(&mut self) -> Block {
        match self.spare.pop() {
            Some(mut block) => {
                block.fill(0);
                block
            }
            None => Box::new([0; BLOCK_BYTES]),
        }
    }

    /// A block whose content the caller overwrites whole.
    pub fn any(&mut self) -> Block {
        self.spare.pop().unwrap_or_else(|| Box::new([0; BLOCK_BYTES]))
    }

    /// Takes a block back.
    pub fn give(&mut self, block: Block) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(block);
        }
    }
}

/// The buffered blocks of all files together: their sums, the order in which they are written back, and which of them
/// the journal holds too. The blocks themselves are in the [`DirtyMap`] of each inode.
#[derive(Default, Debug)]
pub struct WriteBuffer {
    /// Memory for blocks.
    pub pool: BlockPool,
    /// Bytes above which writers write back.
    pub bytes_max: u64,
    bytes: u64,
    /// Files with buffered blocks, oldest first; may name files that have none any more.
    pub queue: VecDeque<Ino>,
    /// Files with blocks that only memory and the journal have.
    pub journaled: FxHashSet<u64>,
    /// Blocks of those files that the journal has bytes of: what a checkpoint would have to hold.
    journaled_blocks: u64,
}

impl WriteBuffer {
    /// An empty buffer.
    pub fn new(bytes_max: u64) -> WriteBuffer {
        WriteBuffer { bytes_max, ..WriteBuffer::default() }
    }

    /// Bytes of all buffered blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Blocks that the journal has bytes of and no data zone has.
    pub fn journaled_blocks(&self) -> u64 {
        self.journaled_blocks
    }

    /// Counts a block that a file's map has got.
    pub fn added(&mut self) {
        self.bytes += BLOCK_BYTES as u64;
    }

    /// Takes the memory of a block that a file's map no longer has.
    pub fn removed(&mut self, dirty: DirtyBlock) {
        debug_assert!(
            self.bytes >= BLOCK_BYTES as u64 && self.journaled_blocks >= u64::from(dirty.journaled)
        );
        self.bytes -= BLOCK_BYTES as u64;
        self.journaled_blocks -= u64::from(dirty.journaled);
        self.pool.give(dirty.data);
    }

    /// Notes that the journal has bytes of a block.
    pub fn journal_block(&mut self, dirty: &mut DirtyBlock) {
        self.journaled_blocks += u64::from(!std::mem::replace(&mut dirty.journaled, true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fresh_byte_skips_what_the_journal_has() {
        let mut map = DirtyMap::default();
        let block = |from, to| DirtyBlock {
            data: Box::new([0; BLOCK_BYTES]),
            fresh: (from, to),
            journaled: false,
            extra: 0,
        };
        map.insert(0, block(0, 0));
        map.insert(1, block(10, 20));
        map.insert(5, block(0, 4096));
        assert_eq!(map.first_fresh(0), Some(4106));
        assert_eq!(map.first_fresh(4110), Some(4110));
        assert_eq!(map.first_fresh(4116), Some(5 * 4096));
        assert_eq!(map.first_fresh(6 * 4096), None);
        assert_eq!(map.fresh_blocks().map(|(block, _)| block).collect::<Vec<_>>(), [5, 1]);
        map.cut(5, 0);
        map.remove(1);
        assert_eq!((map.fresh, map.first_fresh(0)), (0, None));
    }

    #[test]
    fn a_cut_zeros_what_lies_beyond_and_takes_it_from_what_only_memory_has() {
        let cut = |from, to, len| {
            let mut block =
                DirtyBlock { data: Box::new([7; BLOCK_BYTES]), fresh: (from, to), journaled: true, extra: 0 };
            block.cut(len);
            assert!(block.data[..len].iter().all(|byte| *byte == 7));
            assert!(block.data[len..].iter().all(|byte| *byte == 0));
            assert_eq!(block.is_fresh(), block.fresh.0 < block.fresh.1);
            block.fresh
        };
        assert_eq!(cut(10, 20, 4096), (10, 20));
        assert_eq!(cut(10, 20, 20), (10, 20));
        assert_eq!(cut(10, 20, 15), (10, 15));
        assert_eq!(cut(10, 20, 10), (10, 10));
        assert_eq!(cut(10, 20, 4), (4, 4));
        assert_eq!(cut(0, 4096, 0), (0, 0));
    }

    #[test]
    fn a_block_that_was_cut_down_to_what_the_journal_has_counts_as_fresh_no_more() {
        let mut map = DirtyMap::default();
        let dirty =
            DirtyBlock { data: Box::new([7; BLOCK_BYTES]), fresh: (10, 20), journaled: true, extra: 0 };
        map.insert(3, dirty);
        map.cut(3, 15);
        assert_eq!((map.fresh, map.first_fresh(0)), (1, Some(3 * 4096 + 10)));
        map.cut(3, 10);
        assert_eq!((map.fresh, map.first_fresh(0)), (0, None));
        map.cut(3, 5);
        assert_eq!(map.fresh, 0);
    }
}
