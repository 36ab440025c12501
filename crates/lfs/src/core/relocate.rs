//! Copies live data out of a zone.

use crate::alloc::space::charge_run;
use crate::alloc::zone::Zone;
use crate::core::State;
use crate::core::pack::{PackedPiece, Packer};
use crate::gc::SummaryPlace;
use crate::layout::BLOCK;
use crate::layout::record::FileRun;
use weft_core::{BLOCK_BYTES, Ino, Tag, ZoneId};
use weft_vfs::FsResult;

/// Most blocks gathered for one copy, by what they are charged.
const BATCH_BLOCKS_MAX: u32 = 128;
/// Copies into which a zone's data is divided at least: a power cut makes no more than one void.
const BATCHES_PER_ZONE: u32 = 8;
/// Runs gathered for one copy.
const BATCH_RUNS: usize = 4096;
/// Blocks by which the packed pieces of a batch may exceed what they are charged.
const PACKING_BLOCKS: u64 = 2;

/// Blocks gathered for one copy out of a zone that takes so many.
fn batch_blocks(zone_blocks: u32) -> u32 {
    (zone_blocks / BATCHES_PER_ZONE).clamp(1, BATCH_BLOCKS_MAX)
}

/// Bytes that the live data of a zone takes elsewhere, at most, where a zone takes `zone_blocks` blocks.
pub(crate) fn needed_bytes(zone: &Zone, zone_blocks: u32) -> u64 {
    if zone.live_pieces == 0 {
        return zone.live;
    }
    let batches = zone.live / (u64::from(batch_blocks(zone_blocks)) * BLOCK) + 1;
    zone.live + batches * PACKING_BLOCKS * BLOCK
}

impl State {
    /// Copies a batch out of `zone`, from a place in its summary on. Returns the place to go on at (`None` when the
    /// zone is through) and the blocks copied.
    pub(crate) fn relocate_some(
        &mut self,
        zone: ZoneId,
        (mut index, mut offset): SummaryPlace,
    ) -> FsResult<(Option<SummaryPlace>, u32)> {
        // What lives, in the order in which it was written: files that were written together stay together.
        let mut live: Vec<(Ino, FileRun)> = Vec::new();
        let mut charged = 0;
        let batch = u64::from(batch_blocks(self.reserve.data_blocks()));
        while charged < batch * BLOCK && live.len() < BATCH_RUNS {
            let Some(entry) = self.zones.get(zone).summary.get(index).copied() else { break };
            let first = entry.block + u64::from(offset);
            let end = entry.block + u64::from(entry.count);
            let cut = end.min(first + batch);
            if let Some(map) = self.tree.get(entry.ino).and_then(|inode| inode.map()) {
                for run in map.range(first, cut).filter(|run| self.zones.zone_of(run.run.address) == zone) {
                    charged += charge_run(&run.run);
                    live.push((entry.ino, run));
                }
            }
            (index, offset) =
                if cut == end { (index + 1, 0) } else { (index, offset + (cut - first) as u32) };
        }
        // An entry may be named twice when its blocks were written twice to the zone.
        live.sort_by_key(|(ino, run)| (run.run.address, *ino));
        live.dedup();
        if !live.is_empty() {
            self.zones.set_cleaned(zone);
        }
        let blocks = charged.div_ceil(BLOCK) as u32;
        let (whole, pieces): (Vec<_>, Vec<_>) = live.into_iter().partition(|(_, run)| run.run.is_whole());
        let tag_of = |state: &State, ino| state.tree.get(ino).map(|inode| inode.tag).unwrap_or_default();
        let mut copied = true;
        let mut rest = &whole[..];
        while let Some((ino, _)) = rest.first().filter(|_| copied) {
            let tag = tag_of(self, *ino);
            let same = rest.iter().take_while(|(ino, _)| tag_of(self, *ino) == tag).count();
            let (now, later) = rest.split_at(same);
            copied = self.copy(&tag.relocated(), now)?;
            rest = later;
        }
        // Pieces of all files are packed together: each file's own would leave its blocks mostly empty.
        let packed = pieces.iter().map(|(ino, _)| tag_of(self, *ino)).reduce(Tag::beside);
        if let Some(tag) = packed.filter(|_| copied) {
            copied = self.copy(&tag.relocated(), &pieces)?;
        }
        if !copied {
            // What cannot be read cannot be moved; the rest of the zone stays with it.
            self.zones.set_damaged(zone);
            return Ok((None, blocks));
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
            Ok(packed) => self.write_packed(tag, &packed, &data, true).map(|()| true),
            Err(error) => {
                self.shared.report_checksum(&error);
                tracing::warn!(%error, "live data cannot be read and stays where it is");
                Ok(false)
            }
        };
        self.bounce = data;
        copied
    }

    fn gather(&self, live: &[(Ino, FileRun)], data: &mut Vec<u8>) -> FsResult<Vec<PackedPiece>> {
        let mut packed = Vec::new();
        for (ino, run) in live.iter().filter(|(_, run)| run.run.is_whole()) {
            let start = data.len();
            data.resize(start + run.run.count as usize * BLOCK_BYTES, 0);
            self.shared.read_blocks(run.run.device_block(), &mut data[start..])?;
            let first = (start / BLOCK_BYTES) as u32;
            let whole = |i| PackedPiece::whole(*ino, run.block + u64::from(i), first + i);
            packed.extend((0..run.run.count).map(whole));
        }
        let mut packer = Packer::new((data.len() / BLOCK_BYTES) as u32);
        let mut block = vec![0; BLOCK_BYTES];
        let mut read = u64::MAX;
        let mut pieces: Vec<PackedPiece> = Vec::new();
        for (ino, run) in live.iter().filter(|(_, run)| !run.run.is_whole()) {
            if read != run.run.device_block() {
                read = run.run.device_block();
                self.shared.read_blocks(read, &mut block)?;
            }
            let from = (run.run.address % BLOCK) as usize;
            let bytes = &block[from..from + run.run.len as usize];
            pieces.push(packer.add(*ino, run.block, bytes, data));
        }
        pieces.sort_by_key(|piece| piece.index);
        packed.extend(pieces);
        Ok(packed)
    }
}
