//! Bytes of a file: blocks by number, a missing block is a hole.
//!
//! Invariant: no block lies wholly beyond the size, and the bytes of the last block beyond the size are zeros; so a
//! larger size needs no work, and shows zeros.

use crate::SeekTarget;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_core::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Content {
    size: u64,
    blocks: BTreeMap<u64, Arc<[u8; BLOCK_BYTES]>>,
    /// Blocks that were promised space and are not stored; they may lie beyond the size.
    promised: BTreeSet<u64>,
}

/// The pieces of a byte range, one per block: the block, and the range's first and last + 1 byte within it.
fn pieces(start: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let blocks = if start < end { start / BLOCK..end.div_ceil(BLOCK) } else { 0..0 };
    blocks.map(move |block| {
        let base = block * BLOCK;
        (block, (start.max(base) - base) as usize, (end.min(base + BLOCK) - base) as usize)
    })
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Blocks that take space.
    pub(super) fn blocks(&self) -> u64 {
        (self.blocks.len() + self.promised.len()) as u64
    }

    /// Blocks of a range that take no space yet.
    pub(super) fn missing_blocks(&self, start: u64, end: u64) -> u64 {
        let range = start / BLOCK..end.div_ceil(BLOCK);
        let taken = self.blocks.range(range.clone()).count() + self.promised.range(range.clone()).count();
        range.end - range.start - taken as u64
    }

    /// Takes space for the blocks of a range.
    pub(super) fn promise(&mut self, start: u64, end: u64) {
        for block in start / BLOCK..end.div_ceil(BLOCK) {
            if !self.blocks.contains_key(&block) {
                self.promised.insert(block);
            }
        }
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let end = offset.saturating_add(out.len() as u64).min(self.size);
        if offset >= end {
            return 0;
        }
        for (block, from, to) in pieces(offset, end) {
            let at = (block * BLOCK + from as u64 - offset) as usize;
            let piece = &mut out[at..at + to - from];
            match self.blocks.get(&block) {
                Some(bytes) => piece.copy_from_slice(&bytes[from..to]),
                None => piece.fill(0),
            }
        }
        (end - offset) as usize
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        for (block, from, to) in pieces(offset, end) {
            let at = (block * BLOCK + from as u64 - offset) as usize;
            let bytes = self.blocks.entry(block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            Arc::make_mut(bytes)[from..to].copy_from_slice(&data[at..at + to - from]);
            self.promised.remove(&block);
        }
        self.size = self.size.max(end);
    }

    pub(super) fn resize(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size);
            self.blocks.split_off(&size.div_ceil(BLOCK));
        }
        if size <= self.size {
            self.promised.split_off(&size.div_ceil(BLOCK));
        }
        self.size = size;
    }

    /// Makes a range zeros: whole blocks become holes, which take no space.
    pub(super) fn punch(&mut self, start: u64, end: u64) {
        self.promised.retain(|block| block * BLOCK < start || (block + 1) * BLOCK > end);
        let touched: Vec<u64> =
            self.blocks.range(start / BLOCK..end.div_ceil(BLOCK)).map(|(block, _)| *block).collect();
        for block in touched {
            let base = block * BLOCK;
            let (from, to) = (start.max(base) - base, end.min(base + BLOCK) - base);
            if to - from == BLOCK {
                self.blocks.remove(&block);
            } else if let Some(bytes) = self.blocks.get_mut(&block) {
                Arc::make_mut(bytes)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Cuts out whole blocks; what follows moves down.
    pub(super) fn collapse(&mut self, start: u64, end: u64) {
        self.punch(start, end);
        for (block, bytes) in self.blocks.split_off(&(end / BLOCK)) {
            self.blocks.insert(block - (end - start) / BLOCK, bytes);
        }
        let moved = self.promised.split_off(&(end / BLOCK));
        self.promised.extend(moved.into_iter().map(|block| block - (end - start) / BLOCK));
        self.size -= end - start;
    }

    /// Inserts whole blocks of hole; what follows moves up.
    pub(super) fn insert(&mut self, start: u64, len: u64) {
        for (block, bytes) in self.blocks.split_off(&(start / BLOCK)) {
            self.blocks.insert(block + len / BLOCK, bytes);
        }
        let moved = self.promised.split_off(&(start / BLOCK));
        self.promised.extend(moved.into_iter().map(|block| block + len / BLOCK));
        self.size += len;
    }

    /// Next data or hole, with the granularity of blocks; `None` past the end.
    pub(super) fn seek(&self, offset: u64, target: SeekTarget) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let first = offset / BLOCK;
        match target {
            SeekTarget::Data => self.blocks.range(first..).next().map(|(block, _)| offset.max(block * BLOCK)),
            SeekTarget::Hole => {
                let mut hole = first;
                for (block, _) in self.blocks.range(first..) {
                    if *block != hole {
                        break;
                    }
                    hole += 1;
                }
                Some(offset.max(hole * BLOCK).min(self.size))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(content: &Content) -> Vec<u8> {
        let mut out = vec![0xee; content.size() as usize];
        assert_eq!(content.read(0, &mut out), out.len());
        out
    }

    #[test]
    fn it_is_what_a_plain_vector_would_be() {
        let mut content = Content::default();
        let mut plain: Vec<u8> = Vec::new();
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..2_000 {
            let offset = next(20_000) as usize;
            let len = next(9_000) as usize + 1;
            match next(5) {
                0 | 1 => {
                    let data = vec![step as u8 | 1; len];
                    plain.resize(plain.len().max(offset + len), 0);
                    plain[offset..offset + len].copy_from_slice(&data);
                    content.write(offset as u64, &data);
                }
                2 => {
                    plain.resize(offset, 0);
                    content.resize(offset as u64);
                }
                3 => {
                    let end = (offset + len).min(plain.len());
                    plain[offset.min(end)..end].fill(0);
                    content.punch(offset as u64, (offset + len) as u64);
                }
                _ => {
                    let (start, len) = (offset / 4096 * 4096, len.div_ceil(4096) * 4096);
                    if start + len < plain.len() {
                        plain.drain(start..start + len);
                        content.collapse(start as u64, (start + len) as u64);
                    } else if start < plain.len() && plain.len() < 60_000 {
                        plain.splice(start..start, vec![0; len]);
                        content.insert(start as u64, len as u64);
                    }
                }
            }
            assert!(all(&content) == plain, "step {step}");
            assert!(content.blocks.keys().all(|block| block * BLOCK < content.size), "step {step}");
        }
    }

    #[test]
    fn seek_walks_the_stored_blocks() {
        let mut content = Content::default();
        content.write(4096, &[1; 8192]);
        content.resize(20_000);
        assert_eq!(content.seek(0, SeekTarget::Data), Some(4096));
        assert_eq!(content.seek(5000, SeekTarget::Data), Some(5000));
        assert_eq!(content.seek(5000, SeekTarget::Hole), Some(12_288));
        assert_eq!(content.seek(12_288, SeekTarget::Data), None);
        content.write(12_288, &[1; 7712]);
        assert_eq!(content.seek(5000, SeekTarget::Hole), Some(20_000));
        assert_eq!(content.seek(20_000, SeekTarget::Hole), None);
    }
}
