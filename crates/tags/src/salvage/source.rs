//! Reads a damaged medium: reports unreadable blocks and skips them.

use crate::ids::PAGE_BYTES;
use crate::page_store::PageStore;
use crate::reads;
use crate::space::{Run, Space};
use weft_core::checksum::crc32c;
use weft_sys::AlignedBuf;

/// Blocks read by one call.
const READ_BLOCKS: usize = 64;

/// A medium that is only read.
pub(super) struct Source<'m> {
    pub medium: &'m dyn PageStore,
    /// Blocks that something refers to.
    claimed: Space,
}

impl<'m> Source<'m> {
    pub(super) fn new(medium: &'m dyn PageStore) -> Source<'m> {
        Source { medium, claimed: Space::new(medium.blocks(), 0) }
    }

    /// Takes a block for the one who refers to it; `false` where it is beyond the end or another's.
    pub(super) fn claim(&mut self, block: u64) -> bool {
        block != 0 && self.claimed.claim(Run { block, blocks: 1 }, "block").is_ok()
    }

    /// The first place on the medium that may begin it where `bytes` bytes with this checksum lie.
    pub(super) fn find(
        &self,
        bytes: u64,
        crc: u32,
        may_begin: impl Fn(&[u8]) -> bool,
    ) -> Option<(u64, Vec<u8>)> {
        let blocks = bytes.div_ceil(PAGE_BYTES as u64).max(1);
        let end = self.medium.blocks().checked_sub(blocks)? + 1;
        let mut piece = AlignedBuf::zeroed(READ_BLOCKS * PAGE_BYTES);
        for first in (0..end).step_by(READ_BLOCKS) {
            let count = (end - first).min(READ_BLOCKS as u64) as usize;
            let is_read = self.medium.read(first, &mut piece[..count * PAGE_BYTES]).is_ok();
            for (block, raw) in (first..).zip(piece[..count * PAGE_BYTES].chunks_exact_mut(PAGE_BYTES)) {
                if !is_read && self.medium.read(block, raw).is_err() {
                    continue;
                }
                if may_begin(&raw[..bytes.min(PAGE_BYTES as u64) as usize])
                    && let Some(found) = reads::bytes(self.medium, block, bytes)
                    && let Some(found) = found.get(..bytes as usize).filter(|found| crc32c(found) == crc)
                {
                    return Some((block, found.to_vec()));
                }
            }
        }
        None
    }
}
