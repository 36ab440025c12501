//! What the host may have lost: after a crash of it, after the death of a process, and after a sync that failed.

use super::{FlashImage, LivePage};
use crate::DeviceError;
use crate::image::header::PAGE_BYTES;
use crate::nand::block::{Block, Health, Unsynced};
use crate::nand::error::Unreadable;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Weak;
use weft_sys::file::{punch_hole, zero_range};

/// Bytes of the annex that are written again at once.
const ANNEX_PIECE: u64 = 1 << 20;

impl FlashImage {
    /// After a crash of the host: a block ends before the first of its pages that is not there and that no sync has covered, as if
    /// power had gone before that page was programmed. One that was about to be erased is half erased when what was written before
    /// that is known to be durable, or when pages are missing.
    pub(super) fn settle(
        &self,
        blocks: &mut [(Block, u32)],
        doubtful: &[(u32, Unsynced)],
        synced: u64,
    ) -> Result<(), DeviceError> {
        for (number, unsynced) in doubtful {
            let (block, slot) = &mut blocks[*number as usize];
            let from = match unsynced {
                Unsynced { erase: 1.., .. } => 0,
                Unsynced { from, .. } => *from,
            };
            let is_erased = (1..=synced).contains(&unsynced.erase);
            let mut end = from;
            while end < block.next && !is_erased {
                let place = LivePage { block: u64::from(*number), page: end, erases: block.erases };
                // What the disk cannot read is not there.
                if !matches!(self.read(place, 0, &mut [], &mut []), Ok(None | Some(Unreadable::Torn))) {
                    break;
                }
                end += 1;
            }
            if end >= block.next && !is_erased {
                continue;
            }
            let lost = block.next.saturating_sub(end);
            tracing::warn!(image = %self.path.display(), block = number, end, lost, "pages lost in a crash of the host");
            if unsynced.erase > 0 {
                block.clear();
                (block.half_erased, block.erases) = (true, block.erases + 1);
            } else {
                (block.next, block.programmed) = (end, block.programmed - u64::from(lost));
            }
            *slot = self.publish(u64::from(*number), *slot, block, Unsynced::default());
        }
        Ok(())
    }

    /// After a use that was not closed, before the session page says that there is another one: what that use left is durable, and pages
    /// that it did not count are gone.
    pub(super) fn make_certain(
        &self,
        blocks: &[(Block, u32)],
        doubtful: &[(u32, Unsynced)],
        host_crashed: bool,
    ) -> Result<(), DeviceError> {
        for (number, unsynced) in doubtful {
            let block = &blocks[*number as usize].0;
            // A sync of that use may have failed when nobody was there any more to write it again.
            if unsynced.write > 0 && unsynced.from < block.next {
                let from = LivePage { block: u64::from(*number), page: unsynced.from, erases: block.erases };
                self.write_again(from, block.next)?;
            }
        }
        self.forget_uncounted(blocks, host_crashed)?;
        self.frame.file.sync_data().map_err(|e| self.io(e))
    }

    /// Pages that were programmed and whose records the host has lost: where the next program of such a page is lost, too, what lies
    /// there would be taken for it.
    fn forget_uncounted(&self, blocks: &[(Block, u32)], host_crashed: bool) -> Result<(), DeviceError> {
        let pages_per_block = self.layout.pages_per_block;
        for (number, (block, _)) in (0..).zip(blocks) {
            if block.next == pages_per_block || block.health != Health::Good {
                continue;
            }
            let from = self.layout.page(number, block.next);
            let bytes = self.layout.page(number, pages_per_block) - from;
            // After the death of a process it is one page at most, and the record was to be stored next.
            let end = if host_crashed { pages_per_block } else { block.next + 1 };
            if host_crashed && punch_hole(&self.frame.file, from, bytes).is_ok() {
                continue;
            }
            for page in block.next..end {
                let place = LivePage { block: number, page, erases: block.erases };
                if self.read(place, 0, &mut [], &mut [])? != Some(Unreadable::Image) {
                    let zeros = vec![0; self.layout.page_stride as usize];
                    let offset = self.layout.page(number, page);
                    self.frame.file.write_all_at(&zeros, offset).map_err(|e| self.io(e))?;
                }
            }
        }
        Ok(())
    }

    /// Writes pages of a block again as the host has them, from this one up to `end`. Those that it has neither whole nor as torn ones
    /// are returned.
    pub fn write_again(&self, from: LivePage, end: u32) -> Result<Vec<u32>, DeviceError> {
        // Whole blocks of the file; those of two erase blocks are never one.
        let (first, last) = (self.layout.page(from.block, from.page), self.layout.page(from.block, end));
        let offset = first / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let mut bytes = vec![0; (last.next_multiple_of(PAGE_BYTES as u64) - offset) as usize];
        self.frame.file.read_exact_at(&mut bytes, offset).map_err(|e| self.io(e))?;
        let pages = bytes[(first - offset) as usize..].chunks_exact(self.layout.page_stride as usize);
        let missing = (from.page..end)
            .zip(pages)
            .filter(|(page, bytes)| {
                self.look_at(bytes, LivePage { page: *page, ..from }) == Some(Unreadable::Image)
            })
            .map(|(page, _)| page)
            .collect();
        // A block of the file with the end of a page that is durable is written and never zeroed.
        let durable = (first.next_multiple_of(PAGE_BYTES as u64) - offset) as usize;
        let (durable, unsynced) = bytes.split_at(durable.min(bytes.len()));
        let written = self.frame.file.write_all_at(durable, offset);
        self.write_anew(unsynced, offset + durable.len() as u64).and(written).map_err(|e| self.io(e))?;
        Ok(missing)
    }

    /// Writes what the file had before a sync failed, into blocks of the file in which nothing was durable. ext4 (Linux 6.18) takes pages
    /// that it could not write for pages in blocks that are written: to write them again leads nowhere as long as it has them
    /// cached.
    fn write_anew(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        // Zeroed or not, this process is the only one that still has the bytes.
        let zeroed = zero_range(&self.frame.file, offset, bytes.len() as u64);
        self.frame.file.write_all_at(bytes, offset)?;
        match zeroed {
            Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
            _ => Ok(()),
        }
    }

    /// After a sync that failed: writes again what it may have missed. The kernel takes for written what it could not write, and lets
    /// go of it some time; until then it still has it.
    pub(super) fn write_all_again(&self) -> Result<(), DeviceError> {
        let Some(luns) = self.luns.get().and_then(Weak::upgrade) else { return Ok(()) };
        let mut lost = 0;
        for lun in luns.iter() {
            lost += lun.lock().write_again()?;
        }
        let alone = self.annex.write();
        let mut bytes = vec![0; self.layout.annex_bytes.min(ANNEX_PIECE) as usize];
        let mut at = 0;
        while at < self.layout.annex_bytes {
            let piece = &mut bytes[..ANNEX_PIECE.min(self.layout.annex_bytes - at) as usize];
            let place = self.layout.annex() + at;
            self.frame.file.read_exact_at(piece, place).map_err(|e| self.io(e))?;
            // Most of it has never been written, and takes no room.
            if piece.iter().any(|byte| *byte != 0) {
                self.frame.file.write_all_at(piece, place).map_err(|e| self.io(e))?;
            }
            at += ANNEX_PIECE;
        }
        drop(alone);
        if lost > 0 {
            let what = format!(
                "the host has lost {lost} pages that were programmed since the last sync; reads of them fail"
            );
            return Err(self.bad(what));
        }
        Ok(())
    }
}
