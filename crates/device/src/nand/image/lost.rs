//! What the host may have lost: after a crash of it, after the death of a process, and after a sync that failed.

use super::{FlashImage, LivePage};
use crate::DeviceError;
use crate::nand::block::{Block, Health, Unsynced};
use crate::nand::error::Unreadable;
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use weft_sys::file::{drop_cached, punch_hole};

impl FlashImage {
    /// Before anything is read of an image that was not closed: what the host can still write is written, and what it has cached goes,
    /// since it takes for written what it could not write.
    pub(super) fn forget_cached(file: &File, bytes: u64) {
        if let Err(error) = file.sync_data() {
            tracing::warn!(%error, "the host has lost a part of an image that was not closed");
        }
        drop_cached(file, 0, bytes);
    }

    /// After a use that was not closed, before the session page says that there is another one: what the host has lost is not counted, and
    /// pages that were not counted are gone. Records are stored after that, since whoever opens the image next believes them. To look at the
    /// image, nothing is written.
    pub(super) fn make_certain(
        &self,
        blocks: &mut [(Block, u32)],
        doubtful: &[(u32, Unsynced)],
        synced: u64,
    ) -> Result<(), DeviceError> {
        let changed = self.settle(blocks, doubtful, synced)?;
        if self.look {
            return Ok(());
        }
        self.forget_uncounted(blocks)?;
        self.frame.sync_data().map_err(|e| self.io(e))?;
        for number in changed {
            let (block, slot) = &mut blocks[number as usize];
            *slot = self.publish(u64::from(number), *slot, block, Unsynced::default());
        }
        Ok(())
    }

    /// A block ends before the first of its pages that is not there and that no sync has covered, as if power had gone before that page
    /// was programmed. One that was about to be erased is half erased when what was written before that is known to be durable, or when
    /// pages are missing that were. Returns the blocks that have changed. A page that the host cannot read now may be one that was flushed:
    /// then nothing is changed.
    fn settle(
        &self,
        blocks: &mut [(Block, u32)],
        doubtful: &[(u32, Unsynced)],
        synced: u64,
    ) -> Result<BTreeSet<u32>, DeviceError> {
        let mut changed = BTreeSet::new();
        for (number, unsynced) in doubtful {
            let block = &mut blocks[*number as usize].0;
            let is_erased = (1..=synced).contains(&unsynced.erase);
            let mut end = unsynced.first();
            while end < block.next && !is_erased {
                let place = LivePage { block: u64::from(*number), page: end, erases: block.erases };
                if self.read(place, 0, &mut [], &mut [])? == Some(Unreadable::Image) {
                    break;
                }
                end += 1;
            }
            if end >= block.next && !is_erased {
                continue;
            }
            // A page that was durable is missing of none but a block that was erased.
            let durable = if unsynced.write > synced { unsynced.from } else { block.next };
            if is_erased || unsynced.erase > 0 && end < durable {
                tracing::warn!(image = %self.path.display(), block = number, "the host has interrupted an erase");
                block.clear();
                (block.half_erased, block.erases) = (true, block.erases + 1);
            } else {
                let lost = block.next - end;
                tracing::warn!(image = %self.path.display(), block = number, end, lost, "the host has lost pages");
                (block.next, block.programmed) = (end, block.programmed - u64::from(lost));
            }
            changed.insert(*number);
        }
        Ok(changed)
    }

    /// Pages that were programmed and whose records the host has lost: where the next program of such a page is lost, too, what lies there
    /// would be taken for it.
    fn forget_uncounted(&self, blocks: &[(Block, u32)]) -> Result<(), DeviceError> {
        let pages_per_block = self.layout.pages_per_block;
        let can_be_programmed = |block: &Block| block.health == Health::Good && block.next < pages_per_block;
        let open = (0..).zip(blocks).map(|(number, (block, _))| (number, block));
        let open: Vec<(u64, &Block)> = open.filter(|(_, block)| can_be_programmed(block)).collect();
        // Neighbours together.
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (number, block) in &open {
            let (from, end) = (self.layout.page(*number, block.next), self.layout.page(number + 1, 0));
            match ranges.last_mut() {
                Some(last) if last.end == from => last.end = end,
                _ => ranges.push(from..end),
            }
        }
        let file = &self.frame.file;
        if ranges.iter().all(|range| punch_hole(file, range.start, range.end - range.start).is_ok()) {
            return Ok(());
        }
        // Without holes: what is there of a life that the host has lost is not to be seen in a later one with its number.
        let mut bytes = vec![0; self.layout.page_stride as usize];
        for (number, block) in open {
            for page in block.next..pages_per_block {
                let unused = file.read_exact_at(&mut bytes, self.layout.page(number, page)).is_ok()
                    && bytes.iter().all(|byte| *byte == 0);
                if !unused {
                    self.forget_page(LivePage { block: number, page, erases: block.erases })?;
                }
            }
        }
        Ok(())
    }

    /// Makes a page one that was never programmed.
    pub fn forget_page(&self, at: LivePage) -> Result<(), DeviceError> {
        let (offset, bytes) = (self.layout.page(at.block, at.page), self.layout.page_stride);
        if punch_hole(&self.frame.file, offset, bytes).is_err() {
            let zeros = vec![0; bytes as usize];
            self.frame.file.write_all_at(&zeros, offset).map_err(|e| self.io(e))?;
        }
        self.writes.add();
        Ok(())
    }
}
