//! Reading and writing bytes.

use crate::Lfs;
use crate::core::{Shared, State, WRITE_BLOCKS_MAX};
use crate::layout::BLOCK;
use crate::layout::record::{FileRun, Run};
use crate::state::dirty::DirtyBlock;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering::{Relaxed, Release};
use weft_core::{BLOCK_BYTES, Ino, Tag, ZoneId};
use weft_vfs::{FsError, FsResult, SeekTarget, TimeSpec};

/// A part of a read that the device has to give.
struct Fetch {
    /// First device block.
    device_block: u64,
    /// Byte within it at which the piece begins.
    offset: usize,
    /// Bytes wanted, from there on; across blocks only when they are whole and consecutive.
    len: usize,
    /// Where they go in the reader's buffer.
    at: usize,
    zone: ZoneId,
}

/// Parts of a read, their zones pinned.
struct Pinned<'a> {
    shared: &'a Shared,
    fetches: Vec<Fetch>,
}

impl<'a> Pinned<'a> {
    /// Pins; with the lock held under which the places were found.
    fn new(shared: &'a Shared, fetches: Vec<Fetch>) -> Pinned<'a> {
        for f in &fetches {
            shared.pins[f.zone.index()].fetch_add(1, Relaxed);
        }
        Pinned { shared, fetches }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        for f in &self.fetches {
            let pins = self.shared.pins[f.zone.index()].fetch_sub(1, Release);
            debug_assert!(pins > 0, "zone {} is not pinned", f.zone);
        }
    }
}

impl State {
    /// Space that writing the blocks `first..end` may take more than there is charged for them now.
    pub(crate) fn charge_to_write(&self, ino: Ino, first: u64, end: u64) -> u64 {
        let Some(inode) = self.tree.get(ino) else { return 0 };
        let mapped: u64 = inode.map().map_or(0, |map| {
            map.range(first, end).map(|run| crate::alloc::space::charge_run(&run.run)).sum()
        });
        let mapped = mapped + inode.reserved.count(first, end) * BLOCK;
        let buffered: u64 =
            inode.dirty.blocks.range(first..end).map(|(_, dirty)| u64::from(dirty.extra)).sum();
        ((end - first) * BLOCK).saturating_sub(mapped + buffered)
    }

    /// Fails when there is no room for bytes `offset..end` of a file. Those that overwrite what is mapped always have it: a
    /// piece that is buffered is charged a block, but takes what it took when it is written back.
    pub(crate) fn check_to_write(&self, ino: Ino, offset: u64, end: u64) -> FsResult<()> {
        let more = self.charge_to_write(ino, offset / BLOCK, end.div_ceil(BLOCK));
        let usable = self.usable();
        match self.space.check(more, usable) {
            Err(_) => {
                self.space.check(more.saturating_sub(self.charge_of_overwrite(ino, offset, end)), usable)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Fails when the blocks `first..end` now take more space than when it was checked, and there is no room for it.
    fn check_again(&self, ino: Ino, (first, end): (u64, u64), checked: u64) -> FsResult<()> {
        let now = self.charge_to_write(ino, first, end);
        if now > checked { self.space.check(now, self.usable()) } else { Ok(()) }
    }

    /// What of [`charge_to_write`](Self::charge_to_write) is for pieces that only change their bytes.
    pub(crate) fn charge_of_overwrite(&self, ino: Ino, offset: u64, end: u64) -> u64 {
        let Some(inode) = self.tree.get(ino).filter(|inode| end <= inode.size) else { return 0 };
        let Some(map) = inode.map() else { return 0 };
        let pieces = map.range(offset / BLOCK, end.div_ceil(BLOCK)).filter(|run| !run.run.is_whole());
        let unbuffered = pieces.filter(|run| !inode.dirty.blocks.contains_key(&run.block));
        let in_place = unbuffered.filter(|run| run.run.len as usize >= inode.len_in_block(run.block));
        in_place.map(|run| BLOCK - crate::alloc::space::charge_run(&run.run)).sum()
    }

    /// Reads a block of a file as it is on the device into `out`; zeros where nothing is mapped.
    pub(crate) fn read_mapped(&self, ino: Ino, block: u64, out: &mut [u8; BLOCK_BYTES]) -> FsResult<()> {
        let Some(run) = self.tree.get(ino).and_then(|inode| inode.map()).and_then(|map| map.get(block))
        else {
            out.fill(0);
            return Ok(());
        };
        if run.is_whole() {
            return self
                .shared
                .read_blocks(run.device_block(), out)
                .inspect_err(|e| self.shared.report_checksum(e));
        }
        let mut raw = [0; BLOCK_BYTES];
        let read = self.shared.read_blocks(run.device_block(), &mut raw);
        let from = (run.address % BLOCK) as usize;
        let len = run.len as usize;
        out[..len].copy_from_slice(&raw[from..from + len]);
        out[len..].fill(0);
        read.inspect_err(|e| self.shared.report_checksum(e))
    }

    /// Puts a block in the dirty buffer with its present content (zeros when it is to be `replaced` whole), if it is
    /// not there. Returns whether it was not.
    pub(crate) fn make_dirty(&mut self, ino: Ino, block: u64, replaced: bool) -> FsResult<bool> {
        let inode = self.inode(ino)?;
        if inode.dirty.blocks.contains_key(&block) {
            return Ok(false);
        }
        let (below, mapped) = (inode.charge_of(block), inode.is_mapped(block));
        let mut data = if replaced || mapped { self.buffer.pool.any() } else { self.buffer.pool.zeroed() };
        if mapped
            && !replaced
            && let Err(error) = self.read_mapped(ino, block, &mut data)
        {
            self.buffer.pool.give(data);
            return Err(error);
        }
        let extra = BLOCK as u32 - below;
        if let Some(inode) = self.tree.get_mut(ino) {
            inode.dirty.insert(block, DirtyBlock { data, fresh: (0, 0), journaled: false, extra });
        }
        self.space.recharge(0, extra);
        self.buffer.added();
        self.enqueue(ino);
        Ok(true)
    }

    /// Writes into the dirty buffer. Space is checked by the caller.
    pub(crate) fn write_buffered(&mut self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        let end = offset + data.len() as u64;
        let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
        let covers = |block: u64| offset <= block * BLOCK && end >= (block + 1) * BLOCK;
        // Only the first and the last block can need what the device has. They come first: if that cannot be read, no block that is
        // to be replaced has lost its content.
        for block in [first, last] {
            if !covers(block) {
                self.make_dirty(ino, block, false)?;
            }
        }
        for block in (first..=last).filter(|block| covers(*block)) {
            self.make_dirty(ino, block, true)?;
        }
        let Some(inode) = self.tree.get_mut(ino) else { return Ok(()) };
        let mut rest = data;
        let mut at = offset;
        let mut fresh = 0;
        for (block, dirty) in inode.dirty.blocks.range_mut(first..=last) {
            let from = (at - block * BLOCK) as usize;
            let count = (BLOCK_BYTES - from).min(rest.len());
            let (now, later) = rest.split_at(count);
            dirty.data[from..from + count].copy_from_slice(now);
            fresh += usize::from(!dirty.is_fresh());
            dirty.touch(from as u32, (from + count) as u32);
            rest = later;
            at += count as u64;
        }
        inode.dirty.fresh += fresh;
        inode.size = inode.size.max(end);
        self.notify_remapped(ino, first, last + 1);
        Ok(())
    }

    /// Notes that a program writes to a file.
    fn note_write(&mut self, ino: Ino, bytes: usize, when: Option<TimeSpec>) {
        let now = self.now();
        let time = when.map_or(now, |when| when.0.min(now));
        let born = self.volume_bytes;
        self.volume_bytes += bytes as u64;
        if let Some(inode) = self.tree.get_mut(ino) {
            // Its attributes may have changed since.
            (inode.mtime, inode.ctime) = (time, time.max(if when.is_some() { inode.ctime } else { time }));
            if inode.size == 0 {
                inode.born_at = born;
            }
        }
    }
}

impl Lfs {
    pub(crate) fn op_write(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        through: bool,
        when: Option<TimeSpec>,
    ) -> FsResult<()> {
        let mut guard = self.locked()?;
        let state = &mut *guard;
        state.file(ino)?;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= crate::FILE_BYTES_MAX);
        let end = end.ok_or(FsError::TooLarge)?;
        state.check_to_write(ino, offset, end)?;
        let began = self.stall_begins(state);
        state.limit_dirty(if through { 0 } else { data.len() as u64 })?;
        state.note_overwrite(ino, offset);
        state.note_write(ino, data.len(), when);
        let whole_first = offset.div_ceil(BLOCK);
        let whole_end = end / BLOCK;
        let written = if !through || whole_first >= whole_end {
            state.write_buffered(ino, offset, data)
        } else {
            let head = (whole_first * BLOCK - offset) as usize;
            let tail = (end - whole_end * BLOCK) as usize;
            self.write_ends(&mut guard, ino, offset, data, head, tail)
        };
        self.stall_ends(began);
        written
    }

    /// Writes whole blocks through, and what is before and after them into the buffer.
    fn write_ends(
        &self,
        guard: &mut MutexGuard<'_, State>,
        ino: Ino,
        offset: u64,
        data: &[u8],
        head: usize,
        tail: usize,
    ) -> FsResult<()> {
        let (first, rest) = data.split_at(head);
        let (whole, last) = rest.split_at(rest.len() - tail);
        if !first.is_empty() {
            guard.write_buffered(ino, offset, first)?;
        }
        // What is buffered before goes first, so that a file written in order lies in order.
        guard.write_back_full(ino)?;
        self.write_whole(guard, ino, (offset + head as u64) / BLOCK, (whole, !last.is_empty()))?;
        if !last.is_empty() {
            guard.write_buffered(ino, offset + (data.len() - tail) as u64, last)?;
        }
        Ok(())
    }

    /// Writes whole blocks to the device without buffering them; whether part of a block is to follow them, is said for the
    /// space that is held meanwhile. Others change the volume while the device writes, maybe this file.
    fn write_whole(
        &self,
        guard: &mut MutexGuard<'_, State>,
        ino: Ino,
        mut block: u64,
        (mut data, has_tail): (&[u8], bool),
    ) -> FsResult<()> {
        let end = block + (data.len() / BLOCK_BYTES) as u64 + u64::from(has_tail);
        while !data.is_empty() {
            let state = &mut **guard;
            let tag = state.file(ino)?.tag;
            let most = WRITE_BLOCKS_MAX.min((data.len() / BLOCK_BYTES) as u32);
            state.clean_for_write(&tag, most)?;
            let bytes = &data[..most as usize * BLOCK_BYTES];
            let more = state.charge_to_write(ino, block, end);
            let (first, count) = if state.free_for_data() < state.start_mark() {
                // The cleaner counts on what it gains: no zone may stay alive for a writer then.
                state.write_data(&tag, bytes)?
            } else {
                state.space.hold(more);
                let written = self.write_aside(guard, &tag, bytes);
                guard.space.let_go(more);
                written?
            };
            let state = &mut **guard;
            let (zone, _) = self.shared.zone_block(first);
            // Others may have removed the file, or what it had there, and filled the space.
            if let Err(error) = state.file(ino).and_then(|_| state.check_again(ino, (block, end), more)) {
                state.give_up_written(zone, &tag);
                state.end_write(zone)?;
                return Err(error);
            }
            if state.is_secure(ino) {
                // It may have got the class meanwhile.
                state.zones.set_secure(zone);
            }
            state.begin_transaction()?;
            state.drop_dirty(ino, block, block + u64::from(count));
            if let Some(inode) = state.tree.get_mut(ino) {
                inode.size = inode.size.max((block + u64::from(count)) * BLOCK);
            }
            let run = FileRun { block, run: Run { address: first * BLOCK, count, len: BLOCK as u32 } };
            let crcs: Vec<u32> = state.crcs(first, count).collect();
            state.map_runs(ino, &[run], &crcs, false)?;
            state.end_write(zone)?;
            block += u64::from(count);
            data = &data[count as usize * BLOCK_BYTES..];
        }
        Ok(())
    }

    /// As [`State::write_data`], without the lock while the device writes.
    fn write_aside(&self, guard: &mut MutexGuard<'_, State>, tag: &Tag, data: &[u8]) -> FsResult<(u64, u32)> {
        let mut attempts = 0;
        loop {
            let taken = guard.take_blocks(tag, data.len() / BLOCK_BYTES)?;
            let bytes = &data[..taken.count as usize * BLOCK_BYTES];
            let write = || self.shared.write_taken(&taken, bytes, tag);
            let written = if taken.are_last { write() } else { MutexGuard::unlocked(guard, write) };
            if guard.note_written(&taken, tag, written, &mut attempts)? {
                return Ok((self.shared.device_block(taken.zone, taken.at), taken.count));
            }
        }
    }

    pub(crate) fn op_read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.refuse_doubtful_hole(ino, offset, out.len() as u64)?;
        self.read_known(ino, offset, out)
    }

    /// Of a damaged volume, what a file does not map may have been data.
    fn refuse_doubtful_hole(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        if !self.lost.is_doubtful(ino) {
            return Ok(());
        }
        let end = self.op_getattr(ino)?.size.min(offset.saturating_add(len));
        if offset < end && self.op_seek(ino, offset, SeekTarget::Hole)? < end {
            return Err(FsError::Device(format!("inode {ino}: what it holds here is lost, or a hole")));
        }
        Ok(())
    }

    /// As [`Lfs::op_read`], whatever is known of what is not mapped.
    pub(crate) fn read_known(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let (len, pinned) = self.plan_read(ino, offset, out)?;
        self.fetch(&pinned.fetches, out).inspect_err(|error| self.shared.report_checksum(error))?;
        Ok(len)
    }

    /// Kept in memory, saved with the next checkpoint.
    pub(crate) fn op_note_read(&self, ino: Ino, when: TimeSpec) {
        if self.read_only {
            return;
        }
        let mut guard = self.state.lock();
        let Ok(inode) = guard.inode(ino) else { return };
        let atime = inode.attr(ino).atime_after_read(when);
        if let (Some(atime), Some(inode)) = (atime, guard.tree.get_mut(ino)) {
            inode.atime = atime.0;
            // A volume that is closed has it.
            guard.journal.changed = true;
        }
    }

    /// With the lock: copies what is buffered, zeros holes, and notes what the device has to give.
    fn plan_read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<(usize, Pinned<'_>)> {
        let mut fetches = Vec::new();
        let guard = self.state.lock();
        let inode = guard.file(ino)?;
        let len = inode.size.saturating_sub(offset).min(out.len() as u64) as usize;
        if len == 0 {
            return Ok((0, Pinned::new(&self.shared, fetches)));
        }
        let out = &mut out[..len];
        let end = offset + len as u64;
        let (first, end_block) = (offset / BLOCK, end.div_ceil(BLOCK));
        // Holes, and what pieces leave of their blocks, are zeros.
        let mut known = offset;
        let map = inode.map().ok_or(FsError::Stale)?;
        let zero_to = |out: &mut [u8], to: u64, known: &mut u64| {
            if to > *known {
                out[(*known - offset) as usize..(to - offset) as usize].fill(0);
            }
        };
        for run in map.range(first, end_block) {
            let start = run.block * BLOCK;
            let stop = start + u64::from(run.run.count - 1) * BLOCK + u64::from(run.run.len);
            let (from, to) = (start.max(offset), stop.min(end));
            if from >= to {
                continue;
            }
            zero_to(out, from, &mut known);
            let address = run.run.address + (from - start);
            let zone = guard.zones.zone_of(address);
            fetches.push(Fetch {
                device_block: address / BLOCK,
                offset: (address % BLOCK) as usize,
                len: (to - from) as usize,
                at: (from - offset) as usize,
                zone,
            });
            known = to;
        }
        zero_to(out, end, &mut known);
        if !inode.dirty.is_empty() && inode.dirty.blocks.range(first..end_block).next().is_some() {
            overlay(inode, offset, end, out, &mut fetches);
        }
        Ok((len, Pinned::new(&self.shared, fetches)))
    }

    /// Without the lock: reads off the device and verifies.
    fn fetch(&self, fetches: &[Fetch], out: &mut [u8]) -> FsResult<()> {
        if fetches.len() > 1 {
            let places = fetches.iter().map(|f| {
                let (zone, at) = self.shared.zone_block(f.device_block);
                (zone, at, (f.offset + f.len).div_ceil(BLOCK_BYTES) as u32)
            });
            self.shared.dev.will_read(&places.collect::<Vec<_>>());
        }
        let mut bounce = Vec::new();
        for f in fetches {
            let target = &mut out[f.at..f.at + f.len];
            let direct = f.offset == 0 && f.len % BLOCK_BYTES == 0;
            if direct {
                self.shared.read_blocks(f.device_block, target)?;
            } else {
                let blocks = (f.offset + f.len).div_ceil(BLOCK_BYTES);
                bounce.resize(blocks * BLOCK_BYTES, 0);
                self.shared.read_blocks(f.device_block, &mut bounce)?;
                target.copy_from_slice(&bounce[f.offset..f.offset + f.len]);
            }
        }
        Ok(())
    }

    /// Device time before a write that has to clean or write back first.
    pub(super) fn stall_begins(&self, state: &State) -> Option<u64> {
        let busy =
            state.buffer.bytes() >= state.buffer.bytes_max || state.free_for_data() < state.start_mark();
        busy.then(|| self.shared.dev.counters().now.0)
    }

    pub(super) fn stall_ends(&self, began: Option<u64>) {
        if let Some(began) = began {
            self.stalls.record(self.shared.dev.counters().now.0.saturating_sub(began));
        }
    }
}

/// Copies buffered blocks over a read and takes what they cover out of the fetches.
fn overlay(
    inode: &crate::state::inode::Inode,
    offset: u64,
    end: u64,
    out: &mut [u8],
    fetches: &mut Vec<Fetch>,
) {
    let base = offset;
    for (block, dirty) in inode.dirty.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
        let (from, to) = ((block * BLOCK).max(offset), ((block + 1) * BLOCK).min(end));
        let (from_at, to_at) = ((from - base) as usize, (to - base) as usize);
        let in_block = (from - block * BLOCK) as usize;
        out[from_at..to_at].copy_from_slice(&dirty.data[in_block..in_block + (to_at - from_at)]);
        let mut i = 0;
        while i < fetches.len() {
            let f = &mut fetches[i];
            let (start, stop) = (f.at, f.at + f.len);
            if stop <= from_at || start >= to_at {
                i += 1;
                continue;
            }
            let rest_len = stop.saturating_sub(to_at);
            let keep_len = from_at.saturating_sub(start);
            let skip = f.offset + (to_at.saturating_sub(start));
            let rest = (rest_len > 0).then(|| Fetch {
                device_block: f.device_block + (skip / BLOCK_BYTES) as u64,
                offset: skip % BLOCK_BYTES,
                len: rest_len,
                at: to_at,
                zone: f.zone,
            });
            if keep_len > 0 {
                f.len = keep_len;
                i += 1;
            } else {
                fetches.swap_remove(i);
            }
            if let Some(rest) = rest {
                fetches.push(rest);
            }
        }
    }
}
