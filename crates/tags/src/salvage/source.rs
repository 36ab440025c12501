//! Reads of a damaged medium: what cannot be read is told of and passed over.

use crate::ids::PAGE_BYTES;
use crate::page_store::PageStore;
use crate::space::in_runs;
use crate::sys::aligned::AlignedBuf;
use weft_core::checksum::crc32c;

/// Blocks read by one call.
const READ_BLOCKS: usize = 64;

/// A medium that is only read.
pub(super) struct Source<'m> {
    medium: &'m dyn PageStore,
    /// Blocks that something refers to.
    claimed: Vec<u64>,
}

impl<'m> Source<'m> {
    pub(super) fn new(medium: &'m dyn PageStore) -> Source<'m> {
        Source { medium, claimed: vec![0; medium.blocks().div_ceil(64) as usize] }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.medium.blocks()
    }

    /// Takes a block for the one who refers to it; `false` where it is beyond the end or another's.
    pub(super) fn claim(&mut self, block: u64) -> bool {
        if block == 0 || block >= self.medium.blocks() {
            return false;
        }
        let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
        let is_free = self.claimed[word] & bit == 0;
        self.claimed[word] |= bit;
        is_free
    }

    /// Calls `each` for these blocks, in their order, with the block's bytes, or `None` where they cannot be read.
    pub(super) fn read_each<E>(
        &self,
        blocks: &[u64],
        mut each: impl FnMut(usize, Option<&[u8; PAGE_BYTES]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut raw = AlignedBuf::zeroed(READ_BLOCKS * PAGE_BYTES);
        let mut at = 0;
        for run in in_runs(blocks, READ_BLOCKS, |block| *block) {
            let is_read = self.medium.read(run[0], &mut raw[..run.len() * PAGE_BYTES]).is_ok();
            for (block, bytes) in run.iter().zip(raw.chunks_exact_mut(PAGE_BYTES)) {
                let is_there = is_read || self.medium.read(*block, bytes).is_ok();
                each(at, bytes.first_chunk().filter(|_| is_there))?;
                at += 1;
            }
        }
        Ok(())
    }

    /// The block's bytes, if its checksum holds.
    pub(super) fn page(&self, block: u64, crc: u32) -> Option<AlignedBuf> {
        let mut raw = AlignedBuf::zeroed(PAGE_BYTES);
        (block < self.blocks()).then_some(())?;
        self.medium.read(block, &mut raw).ok()?;
        (crc32c(&raw) == crc).then_some(raw)
    }

    /// Bytes from a block on, if they lie on the medium; what cannot be read of them is zero.
    pub(super) fn bytes(&self, block: u64, bytes: u64) -> Option<AlignedBuf> {
        let blocks = bytes.div_ceil(PAGE_BYTES as u64).max(1);
        (block.checked_add(blocks)? <= self.blocks()).then(|| self.area(block, blocks).0)
    }

    /// Blocks of the medium, and how many of them cannot be read and are zero here.
    pub(super) fn area(&self, block: u64, blocks: u64) -> (AlignedBuf, u64) {
        let mut out = AlignedBuf::zeroed(blocks as usize * PAGE_BYTES);
        let mut unread = 0;
        let wanted: Vec<u64> = (block..block + blocks).collect();
        let Ok(()) = self.read_each(&wanted, |at, raw| -> Result<(), std::convert::Infallible> {
            match raw {
                Some(raw) => out[at * PAGE_BYTES..(at + 1) * PAGE_BYTES].copy_from_slice(raw),
                None => unread += 1,
            }
            Ok(())
        });
        (out, unread)
    }

    /// The first place on the medium that may begin it where `bytes` bytes with this checksum lie.
    pub(super) fn find(
        &self,
        bytes: u64,
        crc: u32,
        may_begin: impl Fn(&[u8]) -> bool,
    ) -> Option<(u64, Vec<u8>)> {
        let blocks = bytes.div_ceil(PAGE_BYTES as u64).max(1);
        let end = self.blocks().checked_sub(blocks)? + 1;
        let mut piece = AlignedBuf::zeroed(READ_BLOCKS * PAGE_BYTES);
        for first in (0..end).step_by(READ_BLOCKS) {
            let count = (end - first).min(READ_BLOCKS as u64) as usize;
            let is_read = self.medium.read(first, &mut piece[..count * PAGE_BYTES]).is_ok();
            for (block, raw) in (first..).zip(piece[..count * PAGE_BYTES].chunks_exact_mut(PAGE_BYTES)) {
                if !is_read && self.medium.read(block, raw).is_err() {
                    continue;
                }
                if may_begin(&raw[..bytes.min(PAGE_BYTES as u64) as usize])
                    && let Some(found) = self.bytes(block, bytes)
                    && let Some(found) = found.get(..bytes as usize).filter(|found| crc32c(found) == crc)
                {
                    return Some((block, found.to_vec()));
                }
            }
        }
        None
    }
}
