//! `fallocate` and `seek`.

use crate::Lfs;
use crate::core::State;
use crate::core::pack::PackedPiece;
use crate::layout::BLOCK;
use crate::layout::record::{FileRun, Record};
use weft_core::{Ino, refuse};
use weft_vfs::{FallocateMode, FsError, FsResult, SeekTarget};

impl State {
    /// Makes a range zeros; whole blocks become a hole.
    fn punch(&mut self, ino: Ino, offset: u64, end: u64) -> FsResult<()> {
        self.release_behind(ino, offset, end)?;
        let end = end.min(self.file(ino)?.size);
        if offset >= end {
            return Ok(());
        }
        // The ends of the range are zeroed in the buffer.
        self.note_overwrite(ino, offset);
        let first = offset.div_ceil(BLOCK);
        // The last block of the file is whole when the range covers all that the file has of it.
        let past = if end == self.file(ino)?.size { end.div_ceil(BLOCK) } else { end / BLOCK };
        // Within its first and its last block.
        let (head, tail) = (offset..(first * BLOCK).min(end), (past * BLOCK).max(offset)..end);
        let edges = if first > past { [offset..end, end..end] } else { [head, tail] };
        let edges = || edges.iter().filter(|edge| !edge.is_empty());
        // Both find room, or nothing is changed.
        let more = edges().map(|edge| self.charge_to_zero(ino, edge.start, edge.end)).sum();
        self.space.check(more, self.usable())?;
        for edge in edges() {
            self.zero_within(ino, edge.start, edge.end)?;
        }
        if first < past {
            let time = self.now();
            let changed = self.file(ino)?.filled_ranges(first, past);
            self.begin_transaction()?;
            self.drop_dirty(ino, first, past);
            self.log(&Record::Punch { ino, block: first, count: past - first, time })?;
            self.settle_size(ino)?;
            self.notify_ranges(ino, &changed);
        }
        Ok(())
    }

    /// Takes back the promise for the blocks of a range that lie behind the end of the file.
    pub(crate) fn release_behind(&mut self, ino: Ino, offset: u64, end: u64) -> FsResult<()> {
        let inode = self.file(ino)?;
        let (first, past) = (offset.max(inode.size).div_ceil(BLOCK), end / BLOCK);
        if first >= past || inode.reserved.count(first, past) == 0 {
            return Ok(());
        }
        let time = self.now();
        self.begin_transaction()?;
        self.log(&Record::Punch { ino, block: first, count: past - first, time })
    }

    /// Promises room for the blocks of a range: what comes there is never refused for want of space.
    fn promise(&mut self, ino: Ino, offset: u64, end: u64) -> FsResult<()> {
        let (first, past) = (offset / BLOCK, end.div_ceil(BLOCK));
        let more = self.charge_to_write(ino, first, past);
        self.space.check(more, self.usable())?;
        self.widen(ino, first, past)?;
        let inode = self.file(ino)?;
        let mapped: u64 =
            inode.map().map_or(0, |map| map.range(first, past).map(|run| u64::from(run.run.count)).sum());
        if mapped + inode.reserved.count(first, past) == past - first {
            return Ok(());
        }
        self.begin_transaction()?;
        self.log(&Record::Reserve { ino, block: first, count: past - first })?;
        let buffered: Vec<u64> =
            self.file(ino)?.dirty.blocks.range(first..past).map(|(block, _)| *block).collect();
        for block in buffered {
            self.recharge(ino, block);
        }
        Ok(())
    }

    /// Writes the pieces among the blocks `first..end` anew, a whole block each.
    fn widen(&mut self, ino: Ino, first: u64, end: u64) -> FsResult<()> {
        let is_piece = |run: &FileRun| !run.run.is_whole();
        let pieces: Vec<u64> = match self.file(ino)?.map() {
            Some(map) => map.range(first, end).filter(is_piece).map(|run| run.block).collect(),
            None => return Ok(()),
        };
        for block in pieces {
            self.make_dirty(ino, block, false)?;
            let tag = self.file(ino)?.tag;
            self.clean_for_write(&tag, 1)?;
            let Some(dirty) = self.file(ino)?.dirty.blocks.get(&block) else { continue };
            let data = dirty.data.to_vec();
            let piece = PackedPiece::whole(ino, block, 0);
            self.write_packed(&tag, &[piece], &data, false)?;
        }
        Ok(())
    }

    /// Space that it may take to zero bytes within one block.
    fn charge_to_zero(&self, ino: Ino, offset: u64, end: u64) -> u64 {
        let block = offset / BLOCK;
        if !self.tree.get(ino).is_some_and(|inode| inode.holds(block)) {
            return 0;
        }
        let more = self.charge_to_write(ino, block, block + 1);
        more.saturating_sub(self.charge_of_overwrite(ino, offset, end))
    }

    /// Zeros bytes within one block, if anything is there. Space is checked by the caller.
    fn zero_within(&mut self, ino: Ino, offset: u64, end: u64) -> FsResult<()> {
        if !self.file(ino)?.holds(offset / BLOCK) {
            return Ok(());
        }
        let zeros = vec![0; (end - offset) as usize];
        self.write_buffered(ino, offset, &zeros)
    }
}

impl Lfs {
    pub(crate) fn op_fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        let state = &mut *self.locked()?;
        let size = state.file(ino)?.size;
        refuse(len == 0, FsError::Invalid("an empty range"))?;
        let end =
            offset.checked_add(len).filter(|end| *end <= crate::FILE_BYTES_MAX).ok_or(FsError::TooLarge)?;
        let now = state.now();
        match mode {
            FallocateMode::Allocate | FallocateMode::KeepSize => {
                state.promise(ino, offset, end)?;
                if mode == FallocateMode::Allocate && end > size {
                    state.set_size(ino, end)?;
                }
            }
            FallocateMode::PunchHole => state.punch(ino, offset, end)?,
            FallocateMode::ZeroRange { keep_size } => {
                let more = state.charge_to_write(ino, offset / BLOCK, end.div_ceil(BLOCK));
                state.space.check(more, state.usable())?;
                state.punch(ino, offset, end)?;
                state.promise(ino, offset, end)?;
                if !keep_size && end > size {
                    state.set_size(ino, end)?;
                }
            }
            FallocateMode::CollapseRange | FallocateMode::InsertRange => {
                let insert = mode == FallocateMode::InsertRange;
                if !offset.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
                    return Err(FsError::Invalid("the range is not in whole blocks"));
                }
                if insert && offset >= size || !insert && end >= size {
                    return Err(FsError::Invalid("the range reaches the end of the file"));
                }
                let new_size = if insert { size.checked_add(len) } else { Some(size - len) };
                let new_size = new_size.filter(|s| *s <= crate::FILE_BYTES_MAX).ok_or(FsError::TooLarge)?;
                state.write_back_all(&[ino])?;
                state.begin_transaction()?;
                let (block, count) = (offset / BLOCK, len / BLOCK);
                let mut changed = state.file(ino)?.filled_ranges(block, u64::MAX);
                state.log(&Record::Shift { ino, block, count, insert, size: new_size, time: now })?;
                state.renote(ino, block)?;
                if let Some(inode) = state.tree.get_mut(ino) {
                    inode.size = new_size;
                }
                changed.extend(state.file(ino)?.filled_ranges(block, u64::MAX));
                state.notify_ranges(ino, &changed);
            }
        }
        let inode = state.inode(ino)?;
        let (perm, uid, gid, atime) = (inode.perm, inode.uid, inode.gid, inode.atime);
        state.begin_transaction()?;
        state.log(&Record::Attributes { ino, perm, uid, gid, times: [atime, now, now] })
    }

    pub(crate) fn op_seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64> {
        let state = self.state.lock();
        let inode = state.file(ino)?;
        refuse(offset >= inode.size, FsError::NoData)?;
        let map = inode.map().ok_or(FsError::Stale)?;
        let first = offset / BLOCK;
        let end = inode.size.div_ceil(BLOCK);
        match target {
            SeekTarget::Data => {
                let mapped = map.range(first, end).next().map(|run| run.block);
                let buffered = inode.dirty.blocks.range(first..end).next().map(|(block, _)| *block);
                let block = mapped.into_iter().chain(buffered).min().ok_or(FsError::NoData)?;
                Ok((block * BLOCK).max(offset))
            }
            SeekTarget::Hole => {
                let mut block = first;
                loop {
                    if let Some(run) = map.range(block, end).next()
                        && run.block == block
                    {
                        block += u64::from(run.run.count);
                    } else if inode.dirty.blocks.contains_key(&block) {
                        block += 1;
                    } else {
                        break;
                    }
                }
                Ok((block * BLOCK).clamp(offset, inode.size))
            }
        }
    }
}

impl State {
    /// Names blocks that moved within their file anew in their zones' summaries.
    fn renote(&mut self, ino: Ino, from: u64) -> FsResult<()> {
        let runs: Vec<_> = match self.file(ino)?.map() {
            Some(map) => map.range(from, u64::MAX).collect(),
            None => Vec::new(),
        };
        for run in runs {
            self.zones.add_to_summary(ino, &run);
        }
        Ok(())
    }
}
