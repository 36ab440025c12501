//! Puts blocks and pieces of files into data zones: packs them, writes them, maps them.

use crate::core::State;
use crate::layout::BLOCK;
use crate::layout::piece_space;
use crate::layout::record::{FileRun, Record, Run};
use std::borrow::Cow;
use weft_core::{BLOCK_BYTES, Ino, Tag};
use weft_vfs::FsResult;

/// A piece of a file's block and where it stands in a buffer of device blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub ino: Ino,
    /// Block of the file.
    pub block: u64,
    /// Bytes.
    pub len: u32,
    /// Device block within the buffer.
    pub index: u32,
    /// Byte within that block.
    pub offset: u32,
}

/// Blocks that are open to further pieces at once.
const OPEN_BLOCKS_MAX: usize = 32;

/// Packs pieces into device blocks: each into the fullest block that takes it.
pub(crate) struct Packer {
    /// Open blocks: index in the buffer and bytes used.
    open: Vec<(u32, u32)>,
    next: u32,
}

impl Packer {
    /// A packer that adds blocks behind the `blocks` that the buffer has.
    pub fn new(blocks: u32) -> Packer {
        Packer { open: Vec::new(), next: blocks }
    }

    /// Copies a piece into the buffer.
    pub fn add(&mut self, ino: Ino, block: u64, bytes: &[u8], data: &mut Vec<u8>) -> Spot {
        let len = bytes.len() as u32;
        let space = piece_space(len);
        let fits = |used: u32| used + space <= BLOCK as u32;
        let best = self
            .open
            .iter()
            .enumerate()
            .filter(|(_, (_, used))| fits(*used))
            .max_by_key(|(_, (_, used))| *used);
        let at = match best {
            Some((at, _)) => at,
            None => {
                if self.open.len() == OPEN_BLOCKS_MAX {
                    // The fullest is the least likely to take another.
                    if let Some((at, _)) = self.open.iter().enumerate().max_by_key(|(_, (_, used))| *used) {
                        self.open.swap_remove(at);
                    }
                }
                self.open.push((self.next, 0));
                self.next += 1;
                data.resize(self.next as usize * BLOCK_BYTES, 0);
                self.open.len() - 1
            }
        };
        let (index, used) = &mut self.open[at];
        let spot = Spot { ino, block, len, index: *index, offset: *used };
        let start = *index as usize * BLOCK_BYTES + *used as usize;
        data[start..start + bytes.len()].copy_from_slice(bytes);
        *used += space;
        spot
    }
}

impl State {
    /// Writes a buffer of device blocks to the zone for `tag` and maps its spots, which are in the order of their
    /// blocks. Unless they are `relocated`, the spots' blocks leave the dirty buffer.
    pub(crate) fn place(&mut self, tag: &Tag, spots: &[Spot], data: &[u8], relocated: bool) -> FsResult<()> {
        let mut spots = spots;
        let mut written = 0u32;
        let blocks = (data.len() / BLOCK_BYTES) as u32;
        while written < blocks {
            let (first, count) = self.write_data(tag, &data[written as usize * BLOCK_BYTES..])?;
            let end = spots.partition_point(|spot| spot.index < written + count);
            let (now, later) = spots.split_at(end);
            let mut rest = now;
            while let Some(spot) = rest.first() {
                let same = rest.iter().take_while(|s| s.ino == spot.ino).count();
                let (group, others) = rest.split_at(same);
                self.map_group(group, first, written, relocated)?;
                rest = others;
            }
            spots = later;
            written += count;
            let (zone, _) = self.ground.place_of(first);
            self.close_if_full(zone)?;
        }
        Ok(())
    }

    /// Logs where the spots of one file lie; block `base` of the buffer is the device's block `first`.
    fn map_group(&mut self, group: &[Spot], first: u64, base: u32, relocated: bool) -> FsResult<()> {
        let ino = group[0].ino;
        self.begin()?;
        if !relocated {
            for spot in group {
                self.forget_dirty(ino, spot.block);
            }
        }
        let mut runs: Vec<FileRun> = Vec::new();
        let mut crcs: Vec<u32> = Vec::with_capacity(group.len());
        for spot in group {
            let device_block = first + u64::from(spot.index - base);
            let address = device_block * BLOCK + u64::from(spot.offset);
            crcs.extend(self.crcs(device_block, 1));
            if let Some(last) = runs.last_mut()
                && u64::from(spot.len) == BLOCK
                && last.run.is_whole()
                && last.block + u64::from(last.run.count) == spot.block
                && last.run.address + u64::from(last.run.count) * BLOCK == address
            {
                last.run.count += 1;
            } else {
                runs.push(FileRun { block: spot.block, run: Run { address, count: 1, len: spot.len } });
            }
        }
        self.map_runs(ino, &runs, &crcs, relocated)
    }

    /// Logs where blocks of a file lie now; in a transaction that has begun.
    pub(crate) fn map_runs(
        &mut self,
        ino: Ino,
        runs: &[FileRun],
        crcs: &[u32],
        relocated: bool,
    ) -> FsResult<()> {
        let (size, mtime) = match self.tree.get(ino) {
            Some(inode) => (inode.settled_size(), inode.mtime),
            None => (0, 0),
        };
        for run in runs {
            self.zones.note(ino, run);
        }
        let record = Record::Extents {
            ino,
            relocated,
            size,
            mtime,
            runs: Cow::Borrowed(runs),
            crcs: Cow::Borrowed(crcs),
        };
        self.log(&record)?;
        for run in runs {
            self.tell(ino, run.block, run.block + u64::from(run.run.count));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_pieces_keep_their_bytes_and_never_overlap_or_straddle(lens in proptest::collection::vec(1usize..4096, 1..80)) {
            let mut packer = Packer::new(0);
            let mut data = Vec::new();
            let mut spots = Vec::new();
            for (i, len) in lens.iter().enumerate() {
                let bytes: Vec<u8> = (0..*len).map(|j| (i * 31 + j) as u8).collect();
                spots.push((packer.add(Ino(1), i as u64, &bytes, &mut data), bytes));
            }
            let mut used = vec![false; data.len()];
            for (spot, bytes) in spots {
                prop_assert_eq!(spot.offset % 8, 0);
                prop_assert!(spot.offset + spot.len <= 4096);
                let at = spot.index as usize * BLOCK_BYTES + spot.offset as usize;
                prop_assert_eq!(&data[at..at + bytes.len()], &bytes[..]);
                for byte in &mut used[at..at + bytes.len()] {
                    prop_assert!(!std::mem::replace(byte, true));
                }
            }
        }
    }
}
