//! `fsync`, `sync`, write-back, and the periodic work of [`Lfs::tick`].

use crate::Lfs;
use crate::alloc::reserve::CLEANER_ZONES;
use crate::core::State;
use crate::layout::BLOCK;
use crate::layout::record::Record;
use std::sync::atomic::Ordering::Acquire;
use weft_core::Ino;
use weft_vfs::{FsError, FsResult};

/// Most bytes that an `fsync` puts into the journal itself, records' heads included: with the frame's header they fit
/// one block.
const INLINE_BYTES_MAX: usize = 3584;
/// Bytes of an inline record without its data.
pub(super) const INLINE_HEAD_BYTES: usize = 37;
/// Buffered blocks of a file from which an `fsync` writes the full ones to their zone.
const INLINE_BLOCKS_MAX: usize = 64;

impl State {
    /// Whether what only memory has of a file fits the journal entry of its `fsync`, and the next checkpoint.
    fn fits_inline(&self, ino: Ino) -> bool {
        let Some(inode) = self.tree.get(ino) else { return true };
        if self.buffer.journaled_blocks() + inode.dirty.fresh as u64 > self.reserve.inlined_max {
            return inode.dirty.fresh == 0;
        }
        let mut left = INLINE_BYTES_MAX;
        inode.dirty.fresh_blocks().all(|(_, dirty)| {
            let cost = (dirty.fresh.1 - dirty.fresh.0) as usize + INLINE_HEAD_BYTES;
            left.checked_sub(cost).map(|rest| left = rest).is_some()
        })
    }

    /// Puts what only memory has of a file into the journal or its data zone.
    pub(crate) fn journal_or_write_back(&mut self, ino: Ino) -> FsResult<()> {
        let Some(inode) = self.tree.get(ino) else { return Ok(()) };
        if inode.dirty.is_empty() {
            return Ok(());
        }
        let many = inode.dirty.blocks.len() > INLINE_BLOCKS_MAX;
        if many || !self.fits_inline(ino) {
            self.write_back_full(ino)?;
            if !self.fits_inline(ino) {
                return self.write_back_pieces(&[ino]);
            }
        }
        self.inline(ino)
    }

    fn inline(&mut self, ino: Ino) -> FsResult<()> {
        self.begin_transaction()?;
        // In the order of the file, so that its size in the journal grows with its bytes.
        let mut blocks: Vec<u64> = match self.tree.get(ino) {
            Some(inode) => inode.dirty.fresh_blocks().map(|(block, _)| block).collect(),
            None => return Ok(()),
        };
        blocks.reverse();
        for block in blocks {
            let Some(inode) = self.tree.get_mut(ino) else { return Ok(()) };
            let Some(dirty) = inode.dirty.block_mut(block) else { continue };
            let (start, end) = std::mem::take(&mut dirty.fresh);
            self.buffer.journal_block(dirty);
            inode.dirty.fresh -= 1;
            let (size, mtime) = (inode.settled_size(), inode.mtime);
            let offset = block * BLOCK + u64::from(start);
            let bytes =
                inode.dirty.blocks.get(&block).map_or(&[][..], |d| &d.data[start as usize..end as usize]);
            self.journal.push(&Record::Inline { ino, offset, size, mtime, bytes });
            // The tree takes nothing of the bytes, and they are its own.
            self.apply(&Record::Inline { ino, offset, size, mtime, bytes: &[] })?;
        }
        self.buffer.journaled.insert(ino.0);
        Ok(())
    }
}

impl Lfs {
    pub(crate) fn op_fsync(&self, ino: Ino) -> FsResult<()> {
        if self.read_only {
            return Ok(());
        }
        self.write_back_most(ino)?;
        let (seq, is_told) = {
            let mut state = self.locked()?;
            let is_directory = state.inode(ino)?.directory().is_some();
            state.journal_or_write_back(ino)?;
            state.note_stored(ino);
            state.commit()?;
            (self.shared.written_seq.load(Acquire), is_directory || state.is_secure(ino))
        };
        self.wait_durable(seq)?;
        match self.erase() {
            // The file is durable, and has nothing to do with what others have deleted.
            Err(FsError::NoSpace) if !is_told => Ok(()),
            done => done,
        }
    }

    pub(crate) fn op_sync(&self) -> FsResult<()> {
        if self.read_only {
            return Ok(());
        }
        self.sync_all()?;
        self.erase()
    }

    /// As [`op_sync`](Self::op_sync), beside requests: what has no room to be erased waits until there is some, and concerns no other file.
    pub(crate) fn sync_and_erase_if_room(&self) -> FsResult<()> {
        self.sync_all()?;
        match self.erase() {
            Err(FsError::NoSpace) => {
                tracing::warn!("the volume is too full to erase what was deleted securely; delete something");
                Ok(())
            }
            done => done,
        }
    }

    fn sync_all(&self) -> FsResult<()> {
        // Most of it in steps, so that others get in between; what they buffer meanwhile is not waited for.
        let began = (self.shared.clock)().0;
        while self.locked()?.write_back_old(began, WRITE_BACK_BYTES)? {}
        let seq = {
            let mut state = self.locked()?;
            state.write_back_old(i64::MAX, u64::MAX)?;
            state.settle_journaled()?;
            state.note_all_stored();
            state.commit()?;
            self.shared.written_seq.load(Acquire)
        };
        self.wait_durable(seq)
    }

    pub(crate) fn op_write_back(&self, ino: Ino) -> FsResult<()> {
        if self.read_only {
            return Ok(());
        }
        self.write_back_most(ino)?;
        let mut state = self.locked()?;
        state.inode(ino)?;
        state.write_back_full(ino)
    }

    /// Writes back what a file has buffered but for the last of it, in steps, so that others get in between.
    fn write_back_most(&self, ino: Ino) -> FsResult<()> {
        let buffered = self.locked()?.inode(ino)?.dirty.blocks.len() as u64 * BLOCK;
        (0..buffered / WRITE_BACK_BYTES)
            .try_for_each(|_| self.locked()?.write_back_full_upto(ino, WRITE_BACK_BYTES))
    }

    pub(crate) fn op_write_in_order(&self, ino: Ino) -> FsResult<()> {
        if self.read_only {
            return Ok(());
        }
        self.write_back_most(ino)?;
        let mut state = self.locked()?;
        state.inode(ino)?;
        state.journal_or_write_back(ino)?;
        let emptied_in = state.tree.get_mut(ino).map_or(0, |inode| std::mem::take(&mut inode.emptied_in));
        // A frame that has the truncation alone is written already: a kill of this process would leave the file empty.
        let is_told = (1..=self.shared.written_seq.load(Acquire)).contains(&emptied_in);
        if is_told { state.commit() } else { Ok(()) }
    }

    /// Waits for a frame to be durable; then zones whose death it made durable can be reset.
    pub(super) fn wait_durable(&self, seq: u64) -> FsResult<()> {
        if self.shared.durable_seq.load(Acquire) >= seq {
            return Ok(());
        }
        self.group_commit.wait_durable(&self.shared, seq).map_err(|error| self.state.lock().fail(error))?;
        let mut state = self.state.lock();
        if state.zones.dying().is_empty() { Ok(()) } else { state.reset_dead() }
    }

    /// What a thread of the server calls about every 100 ms: writes back old data, commits the journal when the commit
    /// interval has passed, cleans when free zones are few.
    pub fn tick(&self) -> FsResult<()> {
        if self.read_only {
            return Ok(());
        }
        let interval = self.commit_interval.as_nanos() as i64;
        let old = (self.shared.clock)().0.saturating_sub(interval);
        while self.locked()?.write_back_old(old, WRITE_BACK_BYTES)? {}
        let (seq, erases) = {
            let mut state = self.locked()?;
            let now = state.now();
            let mut commit = state.journal.pending() > 0 || !state.zones.dying().is_empty();
            commit |= state.has_secrets();
            commit &= now.saturating_sub(state.journal.last_commit) >= interval;
            if commit {
                state.journal.last_commit = now;
                state.commit()?;
            }
            state.refill_cleaner_zones(CLEANER_ZONES)?;
            let seq = if commit { self.shared.written_seq.load(Acquire) } else { 0 };
            (seq, commit && state.has_secrets())
        };
        if erases { self.sync_and_erase_if_room() } else { self.wait_durable(seq) }
    }
}

/// What is written back without letting others have the lock, in bytes.
const WRITE_BACK_BYTES: u64 = 4 << 20;
