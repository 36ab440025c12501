//! Packs blocks and pieces of files into device blocks, writes these to data zones, and maps the files to them.

use crate::core::State;
use crate::layout::BLOCK;
use crate::layout::piece_space;
use crate::layout::record::{FileRun, Record, Run};
use crate::layout::zone_header::HEADER_BLOCKS;
use std::borrow::Cow;
use weft_core::{BLOCK_BYTES, Ino, Tag};
use weft_vfs::FsResult;

/// A piece of a file's block, and its position in a buffer of device blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PackedPiece {
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

impl PackedPiece {
    /// A whole block.
    pub fn whole(ino: Ino, block: u64, index: u32) -> PackedPiece {
        PackedPiece { ino, block, len: BLOCK as u32, index, offset: 0 }
    }
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
    pub fn add(&mut self, ino: Ino, block: u64, bytes: &[u8], data: &mut Vec<u8>) -> PackedPiece {
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
        let piece = PackedPiece { ino, block, len, index: *index, offset: *used };
        let start = *index as usize * BLOCK_BYTES + *used as usize;
        data[start..start + bytes.len()].copy_from_slice(bytes);
        *used += space;
        piece
    }
}

impl State {
    /// Writes a buffer of device blocks to the zone for `tag` and maps its pieces, which are in the order of their
    /// blocks. Unless they are `relocated`, the pieces' blocks leave the dirty buffer.
    pub(crate) fn write_packed(
        &mut self,
        tag: &Tag,
        packed: &[PackedPiece],
        data: &[u8],
        relocated: bool,
    ) -> FsResult<()> {
        let mut packed = packed;
        let mut written = 0u32;
        let blocks = (data.len() / BLOCK_BYTES) as u32;
        while written < blocks {
            let (first, count) = self.write_data(tag, &data[written as usize * BLOCK_BYTES..])?;
            let end = packed.partition_point(|piece| piece.index < written + count);
            let (now, later) = packed.split_at(end);
            let mut rest = now;
            while let Some(piece) = rest.first() {
                let same = rest.iter().take_while(|s| s.ino == piece.ino).count();
                let (group, others) = rest.split_at(same);
                self.map_group(group, first, written, relocated)?;
                rest = others;
            }
            packed = later;
            written += count;
            let (zone, _) = self.shared.zone_block(first);
            self.end_write(zone)?;
        }
        Ok(())
    }

    /// Logs where the pieces of one file lie; block `base` of the buffer is the device's block `first`.
    fn map_group(&mut self, group: &[PackedPiece], first: u64, base: u32, relocated: bool) -> FsResult<()> {
        let ino = group[0].ino;
        self.begin_transaction()?;
        if !relocated {
            for piece in group {
                self.forget_dirty(ino, piece.block);
            }
        }
        let mut runs: Vec<FileRun> = Vec::new();
        let mut crcs: Vec<u32> = Vec::with_capacity(group.len());
        for piece in group {
            let device_block = first + u64::from(piece.index - base);
            let address = device_block * BLOCK + u64::from(piece.offset);
            crcs.extend(self.crcs(device_block, 1));
            if let Some(last) = runs.last_mut()
                && u64::from(piece.len) == BLOCK
                && last.run.is_whole()
                && last.block + u64::from(last.run.count) == piece.block
                && last.run.address + u64::from(last.run.count) * BLOCK == address
            {
                last.run.count += 1;
            } else {
                runs.push(FileRun { block: piece.block, run: Run { address, count: 1, len: piece.len } });
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
        self.log_runs(ino, runs, crcs, relocated)?;
        for run in runs {
            self.notify_remapped(ino, run.block, run.block + u64::from(run.run.count));
        }
        Ok(())
    }

    /// As [`map_runs`](Self::map_runs), and leaves the map observer to be told.
    pub(crate) fn log_runs(
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
        debug_assert_eq!(crcs.len() as u64, runs.iter().map(|run| u64::from(run.run.count)).sum::<u64>());
        for run in runs {
            let (zone, block) = self.shared.zone_block(run.run.device_block());
            let written = self.zones.get(zone).write_pointer;
            debug_assert!(
                block >= HEADER_BLOCKS && block + run.run.count <= written,
                "inode {ino} would map {run:?}, of which zone {zone} has {written} blocks"
            );
            self.zones.add_to_summary(ino, run);
        }
        let record = Record::Extents {
            ino,
            relocated,
            size,
            mtime,
            runs: Cow::Borrowed(runs),
            crcs: Cow::Borrowed(crcs),
        };
        self.log(&record)
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
            let mut packed = Vec::new();
            for (i, len) in lens.iter().enumerate() {
                let bytes: Vec<u8> = (0..*len).map(|j| (i * 31 + j) as u8).collect();
                packed.push((packer.add(Ino(1), i as u64, &bytes, &mut data), bytes));
            }
            let mut used = vec![false; data.len()];
            for (piece, bytes) in packed {
                prop_assert_eq!(piece.offset % 8, 0);
                prop_assert!(piece.offset + piece.len <= 4096);
                let at = piece.index as usize * BLOCK_BYTES + piece.offset as usize;
                prop_assert_eq!(&data[at..at + bytes.len()], &bytes[..]);
                for byte in &mut used[at..at + bytes.len()] {
                    prop_assert!(!std::mem::replace(byte, true));
                }
            }
        }
    }
}
