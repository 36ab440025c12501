//! Copies live data out of a zone.

use crate::core::State;
use crate::layout::BLOCK;
use crate::layout::record::FileRun;
use crate::place::{Packer, Spot};
use weft_core::{BLOCK_BYTES, Ino, Tag, ZoneId};
use weft_vfs::FsResult;

/// Blocks gathered for one copy.
const BATCH_BLOCKS: u32 = 128;

impl State {
    /// Copies a batch out of `zone`, from a place in its summary on. Returns the place to go on at (`None` when the
    /// zone is through) and the blocks copied.
    pub(crate) fn relocate_some(
        &mut self,
        zone: ZoneId,
        mut index: usize,
        mut offset: u32,
    ) -> FsResult<(Option<(usize, u32)>, u32)> {
        // What lives, in the order in which it was written: files that were written together stay together.
        let mut live: Vec<(Ino, FileRun)> = Vec::new();
        let mut blocks = 0;
        while blocks < BATCH_BLOCKS {
            let Some(entry) = self.zones.get(zone).summary.get(index).copied() else { break };
            let first = entry.block + u64::from(offset);
            let end = entry.block + u64::from(entry.count);
            let cut = end.min(first + u64::from(BATCH_BLOCKS));
            if let Some(map) = self.tree.get(entry.ino).and_then(|inode| inode.map()) {
                for run in map.range(first, cut).filter(|run| self.zones.zone_of(run.run.address) == zone) {
                    blocks += run.run.count;
                    live.push((entry.ino, run));
                }
            }
            (index, offset) =
                if cut == end { (index + 1, 0) } else { (index, offset + (cut - first) as u32) };
        }
        // An entry may be named twice when its blocks were written twice to the zone.
        live.sort_by_key(|(ino, run)| (run.run.address, *ino));
        live.dedup();
        self.zones.get_mut(zone).cleaned |= !live.is_empty();
        let mut at = 0;
        while at < live.len() {
            let tag = self.tree.get(live[at].0).map(|inode| inode.tag).unwrap_or_default();
            let same =
                live[at..].iter().take_while(|(ino, _)| self.tree.get(*ino).is_some_and(|i| i.tag == tag));
            let end = at + same.count().max(1);
            if !self.copy(&tag.relocated(), &live[at..end])? {
                // What cannot be read cannot be moved; the rest of the zone stays with it.
                self.zones.get_mut(zone).damaged = true;
                return Ok((None, blocks));
            }
            at = end;
        }
        let through = index >= self.zones.get(zone).summary.len();
        Ok(((!through).then_some((index, offset)), blocks))
    }

    /// Reads runs and writes them to the zone for `tag`: whole blocks first, then pieces, packed. False when one of
    /// them cannot be read.
    fn copy(&mut self, tag: &Tag, live: &[(Ino, FileRun)]) -> FsResult<bool> {
        let mut data = std::mem::take(&mut self.bounce);
        data.clear();
        let copied = match self.gather(live, &mut data) {
            Ok(spots) => self.place(tag, &spots, &data, true).map(|()| true),
            Err(error) => {
                self.ground.note_checksum(&error);
                tracing::warn!(%error, "live data cannot be read and stays where it is");
                Ok(false)
            }
        };
        self.bounce = data;
        copied
    }

    fn gather(&self, live: &[(Ino, FileRun)], data: &mut Vec<u8>) -> FsResult<Vec<Spot>> {
        let mut spots = Vec::new();
        for (ino, run) in live.iter().filter(|(_, run)| run.run.is_whole()) {
            let start = data.len();
            data.resize(start + run.run.count as usize * BLOCK_BYTES, 0);
            self.ground.read_blocks(run.run.device_block(), &mut data[start..])?;
            for i in 0..run.run.count {
                let index = (start / BLOCK_BYTES) as u32 + i;
                spots.push(Spot {
                    ino: *ino,
                    block: run.block + u64::from(i),
                    len: BLOCK as u32,
                    index,
                    offset: 0,
                });
            }
        }
        let mut packer = Packer::new((data.len() / BLOCK_BYTES) as u32);
        let mut block = vec![0; BLOCK_BYTES];
        let mut read = u64::MAX;
        let mut pieces: Vec<Spot> = Vec::new();
        for (ino, run) in live.iter().filter(|(_, run)| !run.run.is_whole()) {
            if read != run.run.device_block() {
                read = run.run.device_block();
                self.ground.read_blocks(read, &mut block)?;
            }
            let from = (run.run.address % BLOCK) as usize;
            let bytes = &block[from..from + run.run.len as usize];
            pieces.push(packer.add(*ino, run.block, bytes, data));
        }
        pieces.sort_by_key(|spot| spot.index);
        spots.extend(pieces);
        Ok(spots)
    }
}
