//! Sends buffered blocks to their data zones.

use crate::core::pack::{PackedPiece, Packer};
use crate::core::{State, WRITE_BLOCKS_MAX};
use rustc_hash::FxHashMap;
use weft_core::{BLOCK_BYTES, Ino, Tag};
use weft_vfs::FsResult;

/// What a writer writes back at most before it goes on, in bytes: bounds how long one write takes.
const SHARE_BYTES: u64 = 1 << 20;

impl State {
    /// Takes a block out of the dirty buffer, if it is there.
    pub(crate) fn forget_dirty(&mut self, ino: Ino, block: u64) {
        let Some(inode) = self.tree.get_mut(ino) else { return };
        if let Some(dirty) = inode.dirty.remove(block) {
            self.space.recharge(dirty.extra, 0);
            self.buffer.removed(dirty);
        }
    }

    /// Drops the buffered blocks of a file from `first` on.
    pub(crate) fn drop_dirty(&mut self, ino: Ino, first: u64, end: u64) {
        let Some(inode) = self.tree.get(ino) else { return };
        if inode.dirty.is_empty() {
            return;
        }
        let gone: Vec<u64> = inode.dirty.blocks.range(first..end).map(|(block, _)| *block).collect();
        for block in gone {
            self.forget_dirty(ino, block);
        }
    }

    /// Puts a file with buffered blocks in the write-back queue.
    pub(crate) fn enqueue(&mut self, ino: Ino) {
        let Some(inode) = self.tree.get_mut(ino) else { return };
        if !inode.dirty.queued && !inode.dirty.is_empty() {
            inode.dirty.queued = true;
            inode.dirty.since = (self.shared.clock)().0;
            self.buffer.queue.push_back(ino);
        }
    }

    /// Writes back the full blocks of a file, in order.
    pub(crate) fn write_back_full(&mut self, ino: Ino) -> FsResult<()> {
        self.write_back_full_upto(ino, u64::MAX)
    }

    /// As [`write_back_full`](Self::write_back_full), about so many bytes.
    pub(crate) fn write_back_full_upto(&mut self, ino: Ino, bytes_max: u64) -> FsResult<()> {
        let mut left = bytes_max.div_ceil(BLOCK_BYTES as u64);
        while left > 0 {
            let Some(inode) = self.tree.get(ino) else { return Ok(()) };
            let tag = inode.tag;
            let full_end = inode.size / BLOCK_BYTES as u64;
            let most = (WRITE_BLOCKS_MAX as usize).min(left as usize);
            let waiting = inode.dirty.blocks.range(..full_end).take(most).count() as u32;
            if waiting == 0 {
                return Ok(());
            }
            left -= u64::from(waiting);
            self.clean_for_write(&tag, waiting)?;
            let mut data = std::mem::take(&mut self.bounce);
            data.clear();
            let mut packed = Vec::with_capacity(waiting as usize);
            if let Some(inode) = self.tree.get(ino) {
                for (index, (block, dirty)) in
                    inode.dirty.blocks.range(..full_end).take(waiting as usize).enumerate()
                {
                    data.extend_from_slice(&dirty.data[..]);
                    packed.push(PackedPiece::whole(ino, *block, index as u32));
                }
            }
            let placed = self.write_packed(&tag, &packed, &data, false);
            self.bounce = data;
            placed?;
        }
        Ok(())
    }

    /// Writes back everything buffered of these files: full blocks file by file, then what is left of all of them,
    /// packed.
    pub(crate) fn write_back_all(&mut self, inos: &[Ino]) -> FsResult<()> {
        for ino in inos {
            self.write_back_full(*ino)?;
            self.maintain()?;
        }
        self.write_back_pieces(inos)
    }

    /// Packs and writes the last, partial blocks of these files.
    pub(crate) fn write_back_pieces(&mut self, inos: &[Ino]) -> FsResult<()> {
        let mut groups: FxHashMap<(u16, u16), (Tag, Vec<Ino>)> = FxHashMap::default();
        for ino in inos {
            if let Some(inode) = self.tree.get(*ino).filter(|inode| !inode.dirty.is_empty()) {
                let tag = inode.tag;
                let (of_all, inos) =
                    groups.entry((tag.stream.0, tag.group.0)).or_insert_with(|| (tag, Vec::new()));
                *of_all = of_all.beside(tag);
                inos.push(*ino);
            }
        }
        for (tag, inos) in groups.into_values() {
            for some in inos.chunks(WRITE_BLOCKS_MAX as usize) {
                self.clean_for_write(&tag, some.len() as u32)?;
                let mut data = Vec::new();
                let mut packer = Packer::new(0);
                let mut packed = Vec::with_capacity(some.len());
                for ino in some {
                    let Some(inode) = self.tree.get(*ino) else { continue };
                    for (block, dirty) in &inode.dirty.blocks {
                        let len = inode.len_to_store(*block);
                        if len > 0 {
                            packed.push(packer.add(*ino, *block, &dirty.data[..len], &mut data));
                        }
                    }
                }
                packed.sort_by_key(|piece| piece.index);
                self.write_packed(&tag, &packed, &data, false)?;
                self.maintain()?;
            }
        }
        Ok(())
    }

    /// Writes back what only the journal and memory have, so that a checkpoint need not hold it. The files stay noted
    /// until it is done: a checkpoint in between still has to hold the rest.
    pub(crate) fn settle_journaled(&mut self) -> FsResult<()> {
        let inos: Vec<Ino> = self.buffer.journaled.iter().copied().map(Ino).collect();
        self.write_back_all(&inos)?;
        debug_assert_eq!(self.buffer.journaled_blocks(), 0);
        self.buffer.journaled.clear();
        Ok(())
    }

    /// Keeps the dirty buffer within its bound, before `bytes` more come: writes back the oldest, as much as comes but
    /// no less than a share.
    pub(crate) fn limit_dirty(&mut self, bytes: u64) -> FsResult<()> {
        if self.buffer.bytes() + bytes <= self.buffer.bytes_max {
            return Ok(());
        }
        let share = bytes.max(SHARE_BYTES);
        let goal = self.buffer.bytes().saturating_sub(share);
        let mut small = Vec::new();
        let mut small_bytes = 0;
        while self.buffer.bytes().saturating_sub(small_bytes) > goal {
            let Some(ino) = self.buffer.queue.pop_front() else { break };
            let Some(inode) = self.tree.get_mut(ino) else { continue };
            inode.dirty.leave_queue();
            if inode.dirty.is_empty() {
                continue;
            }
            self.write_back_full_upto(ino, share)?;
            let Some(inode) = self.tree.get(ino) else { continue };
            let left = inode.dirty.blocks.len();
            if left > 1 {
                self.buffer.queue.push_front(ino);
                if let Some(inode) = self.tree.get_mut(ino) {
                    inode.dirty.queued = true;
                }
            } else if left == 1 {
                small.push(ino);
                small_bytes += BLOCK_BYTES as u64;
            }
        }
        self.write_back_pieces(&small)
    }

    /// Writes back files whose oldest buffered byte is from `until` or before, oldest first, until about `bytes_max`
    /// are written. False when there are no more.
    pub(crate) fn write_back_old(&mut self, until: i64, bytes_max: u64) -> FsResult<bool> {
        let mut old = Vec::new();
        let mut bytes = 0;
        while let Some(ino) = self.buffer.queue.front().copied() {
            if bytes >= bytes_max {
                break;
            }
            match self.tree.get_mut(ino) {
                Some(inode) if !inode.dirty.is_empty() && inode.dirty.since > until => break,
                Some(inode) => {
                    inode.dirty.leave_queue();
                    bytes += inode.dirty.blocks.len() as u64 * BLOCK_BYTES as u64;
                    old.push(ino);
                }
                None => {}
            }
            self.buffer.queue.pop_front();
        }
        self.write_back_all(&old)?;
        Ok(bytes >= bytes_max)
    }

    /// Writes a checkpoint when one is due. Writes journaled blocks to data zones when the journal holds many of them.
    pub(crate) fn maintain(&mut self) -> FsResult<()> {
        if self.settling {
            return Ok(());
        }
        if self.checkpoint_due() {
            return self.checkpoint(false);
        }
        if self.buffer.journaled_blocks() * 4 > self.reserve.inlined_max * 3 {
            self.settling = true;
            let settled = self.settle_journaled();
            self.settling = false;
            return settled;
        }
        Ok(())
    }
}
