//! A step that writes few blocks keeps them in the journal, with its records, and in the dirty buffer.
//!
//! So it writes nothing to a zone of data: it is made durable by one write and one flush, and one that need not be durable writes nothing.
//! The blocks go to their zones like those that an `fsync` has put into the journal: when there are many, or when they are old. Of a block that
//! the journal has already, only the bytes that change are logged.

use super::file::{FilePlan, NewBlock};
use super::plan::Outcome;
use crate::core::State;
use crate::layout::BLOCK;
use crate::layout::frame::TRANSACTION_MAX;
use crate::layout::record::Record;
use crate::ops::durability::INLINE_HEAD_BYTES;
use weft_core::{BLOCK_BYTES, Ino};
use weft_vfs::FsResult;

/// Blocks that a step keeps in the journal, at most. More of them would cost the device more than they save: they are written twice.
const BLOCKS_MAX: usize = 8;

impl State {
    /// Whether the blocks that a step writes are to be kept in the journal.
    pub(super) fn fits_journal(&self, outcome: &Outcome) -> bool {
        let blocks: usize = outcome.files.values().map(|file| file.written.len()).sum();
        let bytes = blocks as u64 * BLOCK;
        blocks <= BLOCKS_MAX
            && outcome.record_bytes + blocks * (BLOCK_BYTES + INLINE_HEAD_BYTES) <= TRANSACTION_MAX
            && self.buffer.journaled_blocks() + blocks as u64 <= self.reserve.inlined_max
            && self.buffer.bytes() + bytes <= self.buffer.bytes_max
            // A buffered block is charged whole.
            && self.space.used() + bytes <= self.usable()
    }

    /// Logs the blocks that a step writes to a file with their content.
    pub(super) fn log_inline(&mut self, ino: Ino, file: &FilePlan, time: i64) -> FsResult<()> {
        for (block, new) in &file.written {
            match file.len_to_store(*block) {
                0 => self.forget_dirty(ino, *block),
                len => self.log_inline_block((ino, *block), new, len, (file.size, time))?,
            }
        }
        self.buffer.journaled.insert(ino.0);
        Ok(())
    }

    fn log_inline_block(
        &mut self,
        (ino, block): (Ino, u64),
        new: &NewBlock,
        len: usize,
        (size, mtime): (u64, i64),
    ) -> FsResult<()> {
        let is_new = self.make_dirty(ino, block, true)?;
        // The step may have taken away what lay below it.
        self.recharge(ino, block);
        let dirty = self.tree.get_mut(ino).and_then(|inode| inode.dirty.block_mut(block));
        let Some(dirty) = dirty else { return Ok(()) };
        debug_assert!(!dirty.is_fresh(), "what was before the step is secured");
        let is_known = dirty.journaled && !is_new;
        let (from, end) = if is_known { difference(&dirty.data[..len], &new.data[..len]) } else { (0, len) };
        dirty.data.copy_from_slice(&new.data[..]);
        self.buffer.journal_block(dirty);
        if from < end {
            let offset = block * BLOCK + from as u64;
            self.log(&Record::Inline { ino, offset, size, mtime, bytes: &new.data[from..end] })?;
        }
        Ok(())
    }
}

/// Bytes that are compared at once.
const CHUNK_BYTES: usize = 64;

/// A range outside of which two blocks are the same, as whole chunks.
fn difference(old: &[u8], new: &[u8]) -> (usize, usize) {
    let mut chunks = old.chunks(CHUNK_BYTES).zip(new.chunks(CHUNK_BYTES));
    let differ = |(old, new): (&[u8], &[u8])| old != new;
    let Some(first) = chunks.position(differ) else { return (0, 0) };
    let last = chunks.rposition(differ).map_or(first, |last| first + 1 + last);
    (first * CHUNK_BYTES, ((last + 1) * CHUNK_BYTES).min(new.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_within_the_range_and_the_range_within_the_block() {
        let old = [7; 1000];
        assert_eq!(difference(&old, &old), (0, 0));
        for (from, end) in
            [(0, 1), (5, 9), (63, 65), (64, 128), (500, 501), (960, 1000), (999, 1000), (0, 1000)]
        {
            let mut new = old;
            new[from..end].fill(8);
            let (first, last) = difference(&old, &new);
            assert!(first <= from && end <= last && last <= 1000, "{from}..{end}: {first}..{last}");
            assert!(from - first < CHUNK_BYTES && last - end < CHUNK_BYTES, "{from}..{end}: {first}..{last}");
        }
        let mut new = old;
        (new[70], new[900]) = (1, 1);
        assert_eq!(difference(&old, &new), (64, 960));
    }
}
