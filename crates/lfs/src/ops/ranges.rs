//! `fallocate` and `seek`.

use crate::Lfs;
use crate::core::State;
use crate::layout::BLOCK;
use crate::layout::record::Record;
use weft_core::Ino;
use weft_vfs::{FallocateMode, FsError, FsResult, SeekTarget};

impl State {
    /// Makes a range zeros; whole blocks become a hole.
    fn punch(&mut self, ino: Ino, offset: u64, end: u64) -> FsResult<()> {
        let end = end.min(self.file(ino)?.size);
        if offset >= end {
            return Ok(());
        }
        let first = offset.div_ceil(BLOCK);
        // The last block of the file is whole when the range covers all that the file has of it.
        let past = if end == self.file(ino)?.size { end.div_ceil(BLOCK) } else { end / BLOCK };
        if first > past {
            return self.zero_within(ino, offset, end);
        }
        if !offset.is_multiple_of(BLOCK) {
            self.zero_within(ino, offset, (first * BLOCK).min(end))?;
        }
        if past * BLOCK < end {
            self.zero_within(ino, past * BLOCK, end)?;
        }
        if first < past {
            let time = self.now();
            let changed = self.file(ino)?.filled_ranges(first, past);
            self.begin()?;
            self.drop_dirty(ino, first, past);
            self.log(&Record::Punch { ino, block: first, count: past - first, time })?;
            self.settle_size(ino)?;
            self.tell_ranges(ino, &changed);
        }
        Ok(())
    }

    /// Zeros bytes within one block, if anything is there.
    fn zero_within(&mut self, ino: Ino, offset: u64, end: u64) -> FsResult<()> {
        let block = offset / BLOCK;
        let inode = self.file(ino)?;
        if inode.charge_of(block) == 0 && !inode.dirty.blocks.contains_key(&block) {
            return Ok(());
        }
        let more = self.charge_to_write(ino, block, block + 1);
        self.space.check(more, self.usable())?;
        let zeros = vec![0; (end - offset) as usize];
        self.write_buffered(ino, offset, &zeros)
    }
}

impl Lfs {
    pub(crate) fn op_fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        let mut guard = self.locked()?;
        let state = &mut *guard;
        let size = state.file(ino)?.size;
        if len == 0 {
            return Err(FsError::Invalid("an empty range"));
        }
        let end =
            offset.checked_add(len).filter(|end| *end <= crate::FILE_BYTES_MAX).ok_or(FsError::TooLarge)?;
        let now = state.now();
        match mode {
            FallocateMode::Allocate | FallocateMode::KeepSize => {
                let more = state.charge_to_write(ino, offset / BLOCK, end.div_ceil(BLOCK));
                state.space.check(more, state.usable())?;
                if mode == FallocateMode::Allocate && end > size {
                    state.set_size(ino, end)?;
                }
            }
            FallocateMode::PunchHole => state.punch(ino, offset, end)?,
            FallocateMode::ZeroRange { keep_size } => {
                state.punch(ino, offset, end)?;
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
                state.begin()?;
                let (block, count) = (offset / BLOCK, len / BLOCK);
                let mut changed = state.file(ino)?.filled_ranges(block, u64::MAX);
                state.log(&Record::Shift { ino, block, count, insert, size: new_size, time: now })?;
                state.renote(ino, block)?;
                if let Some(inode) = state.tree.get_mut(ino) {
                    inode.size = new_size;
                }
                changed.extend(state.file(ino)?.filled_ranges(block, u64::MAX));
                state.tell_ranges(ino, &changed);
            }
        }
        let inode = state.inode(ino)?;
        let (perm, uid, gid, atime) = (inode.perm, inode.uid, inode.gid, inode.atime);
        state.begin()?;
        state.log(&Record::Attributes { ino, perm, uid, gid, times: [atime, now, now] })
    }

    pub(crate) fn op_seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64> {
        let state = self.state.lock();
        let inode = state.file(ino)?;
        if offset >= inode.size {
            return Err(FsError::NoData);
        }
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
            self.zones.note(ino, &run);
        }
        Ok(())
    }
}
