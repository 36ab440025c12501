//! Append rings: who gets one, and how the core gets what is in it.

use super::{Inodes, OpenInode, THROUGH_BYTES, Table};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use weft_client::shared::lock;
use weft_client::shared::volume::RING_BYTES;
use weft_core::{BLOCK_BYTES, DataClass, Ino};
use weft_vfs::{Change, FsError, FsResult, Node, Refused, SetAttr, TimeSpec};

/// Logs and temporary files up to this size wait in the core's buffer. A longer one would be written before it is removed, and
/// what waits costs a copy more.
const WAIT_BYTES: u64 = 8 << 20;

/// The server's side of a ring.
pub(super) struct Ring {
    /// Number, when there is one.
    pub number: Option<u32>,
    /// Bytes of the file below this are with the core, but for what is in the area.
    pub head: u64,
    /// Number of its overwrite area, when there is one.
    pub area: Option<u32>,
}

impl Ring {
    pub fn has_none(&self) -> bool {
        self.number.is_none() && self.area.is_none()
    }

    pub fn take(&mut self) -> [Option<u32>; 2] {
        [self.number.take(), self.area.take()]
    }
}

/// How bytes come to the core.
#[derive(Clone, Copy, Debug)]
pub enum Arrival {
    /// From a program that waits.
    Now,
    /// From a kernel that has kept what a program wrote then.
    Late(TimeSpec),
    /// From memory into which a client wrote them then.
    Accepted(TimeSpec),
}

impl Inodes {
    /// Gives the inode a ring, when there is one and room for what it may hold.
    pub fn lease(&self, open: &Arc<OpenInode>) -> bool {
        let shared = self.shared(open.slot);
        if shared.kind.load(Relaxed) != libc::S_IFREG {
            return false;
        }
        let mut table = self.table.lock();
        // A last close may have come first; what is in the slot now is not the caller's.
        if !table.by_ino.get(&open.ino).is_some_and(|current| Arc::ptr_eq(current, open))
            || open.is_written_by_call()
            || open.is_haunted.load(Relaxed)
            || self.log.as_ref().is_some_and(|log| log.log().holds_the_only_copy())
            || !self.has_headroom_for(open)
        {
            return false;
        }
        let mut ring = open.ring.lock();
        if let Some(number) = ring.number {
            // It was taken from clients while there was no room for what it held.
            shared.ring.store(number + 1, Release);
            return true;
        }
        let Some(number) = self.take_ring(&mut table, open) else { return false };
        ring.number = Some(number);
        ring.head = shared.size.load(Acquire);
        shared.head.store(ring.head, Release);
        shared.ring.store(number + 1, Release);
        true
    }

    /// The same of a file that was just made, which is likely to be written next: as long as most rings are free.
    pub fn lease_ahead(&self, open: &Arc<OpenInode>) {
        if (self.rings_used.load(Relaxed) as usize) < self.rings_max / 2 {
            self.lease(open);
        }
    }

    /// A ring that nobody uses.
    pub(super) fn take_ring(&self, table: &mut Table, open: &OpenInode) -> Option<u32> {
        let number = table.free_rings.pop().or_else(|| {
            let fresh = ((table.next_ring as usize) < self.rings_max).then_some(table.next_ring)?;
            table.next_ring += 1;
            Some(fresh)
        })?;
        self.rings_used.fetch_add(1, Relaxed);
        if let Some(dir) = open.quota {
            *self.quota_rings.lock().entry(dir).or_default() += 1;
        }
        Some(number)
    }

    /// Takes ring and area from an inode that is closed by its last user, who cannot wait.
    pub(super) fn take_memory(&self, table: &mut Table, open: &OpenInode) {
        if open.ring.lock().has_none() {
            return;
        }
        let shared = self.shared(open.slot);
        // A thread that writes to a file that another one closes may be at it.
        let is_alone = shared.write_lock.lock(lock::SERVER, || true);
        if !is_alone {
            open.is_haunted.store(true, Relaxed);
            // It sees that what it wrote did not count.
            shared.must_ask_for_sync();
            shared.write_lock.free_if_held_by(shared.write_lock.holder());
        }
        let taken = self.drain_and_take(open).unwrap_or_else(|error| {
            self.lost(open, &error);
            shared.overwrites.store(0, Release);
            open.ring.lock().take()
        });
        if is_alone {
            shared.write_lock.unlock(lock::SERVER);
        }
        self.give_back_rings(table, open, taken);
    }

    /// Takes what ring and area hold, and then them. The caller excludes writers.
    pub(super) fn drain_and_take(&self, open: &OpenInode) -> FsResult<[Option<u32>; 2]> {
        let shared = self.shared(open.slot);
        shared.ring.store(0, Release);
        shared.must_ask_for_sync();
        self.drain(open, true)?;
        // Only now: readers find in the area what the core does not have.
        shared.overwrites.store(0, Release);
        Ok(open.ring.lock().take())
    }

    /// Rings are nobody's. Those that somebody may still write to are never used again.
    pub(super) fn give_back_rings(&self, table: &mut Table, open: &OpenInode, rings: [Option<u32>; 2]) {
        for number in rings.into_iter().flatten() {
            self.rings_used.fetch_sub(1, Relaxed);
            if let Some(dir) = open.quota {
                let mut rings = self.quota_rings.lock();
                let of_dir = rings.entry(dir).or_default();
                *of_dir = of_dir.saturating_sub(1);
                if *of_dir == 0 {
                    rings.remove(&dir);
                }
            }
            if !open.is_haunted.load(Relaxed) {
                self.rings.area(number).clear();
                table.free_rings.push(number);
            }
        }
    }

    /// Writes go through the server from now on. May wait for a client in the middle of one.
    pub fn revoke_rings(&self, open: &OpenInode) {
        if open.ring.lock().has_none() {
            return;
        }
        let guard = self.exclude_writers(open);
        self.revoke_excluded(open);
        drop(guard);
    }

    /// The same when writers are excluded.
    pub(super) fn revoke_excluded(&self, open: &OpenInode) {
        match self.drain_and_take(open) {
            Ok(taken) => self.give_back_rings(&mut self.table.lock(), open, taken),
            // The bytes stay there for a later try; readers and fsync get the error.
            Err(error) => {
                tracing::error!(ino = open.ino.0, %error, "accepted data cannot be stored yet");
            }
        }
    }

    /// Moves what ring and area hold to the core: of the ring whole blocks only, or everything.
    pub fn drain(&self, open: &OpenInode, everything: bool) -> FsResult<()> {
        let mut ring = open.ring.lock();
        let appended = self.drain_ring(open, &mut ring, everything);
        appended.and(self.drain_area(open, &ring, false))
    }

    /// The same in time, for more to come: what a client is about to make durable by itself stays where it is, if that is little.
    /// Overwritten blocks go on to the device, where readers find them without a call.
    pub fn drain_ahead(&self, open: &OpenInode) -> FsResult<()> {
        let mut ring = open.ring.lock();
        let appended = self.drain_ring(open, &mut ring, false);
        appended.and(self.drain_area(open, &ring, true))?;
        let goes_on = ring.area.is_some() && !(ring.head <= WAIT_BYTES && self.may_be_gone_soon(open.ino));
        drop(ring);
        if goes_on { self.fs.write_back(open.ino) } else { Ok(()) }
    }

    /// Before clients fill the ring of an inode again: not when its quota could not hold what they write. The ring stays until it is
    /// [revoked](Self::keep_headroom).
    pub(super) fn stop_when_short(&self, open: &OpenInode) {
        if open.quota.is_some_and(|dir| !self.has_headroom_in(dir, 0)) {
            self.shared(open.slot).ring.store(0, Release);
        }
    }

    pub(super) fn drain_ring(
        &self,
        open: &OpenInode,
        ring: &mut MutexGuard<'_, Ring>,
        everything: bool,
    ) -> FsResult<()> {
        let shared = self.shared(open.slot);
        let size = self.validated_size(open, ring);
        // Of an append that a power cut must not divide the core gets the last bytes with the others. The size came after this.
        let is_unit = ring.head < shared.unit_end.load(Relaxed);
        let end = if everything || is_unit { size } else { size & !(BLOCK_BYTES as u64 - 1) };
        let Some(number) = ring.number else { return Ok(()) };
        if ring.head < end {
            // They came before the first append, and the core's time of change is about to follow it.
            self.pass_reads(open, &shared.atime_ns);
        }
        if is_unit && ring.head < end {
            let (start, len) = (ring.head as usize & (RING_BYTES - 1), (end - ring.head) as usize);
            let first = self.rings.bytes(number, start..RING_BYTES.min(start + len));
            let rest = self.rings.bytes(number, 0..len - first.len());
            if rest.is_empty() {
                self.store_in_one_step(open, ring.head, first)?;
            } else {
                self.store_in_one_step(open, ring.head, &[first, rest].concat())?;
            }
            self.stop_when_short(open);
            ring.head = end;
            shared.head.store(end, Release);
        }
        while ring.head < end {
            let start = ring.head as usize & (RING_BYTES - 1);
            let len = ((end - ring.head) as usize).min(RING_BYTES - start);
            let piece = self.rings.bytes(number, start..start + len);
            self.store(open, ring.head, piece)?;
            self.stop_when_short(open);
            ring.head += len as u64;
            debug_assert!(ring.head <= end, "more has been taken from a ring than was in it");
            shared.head.store(ring.head, Release);
        }
        Ok(())
    }

    /// Whether files of its kind do not live long.
    pub(super) fn may_be_gone_soon(&self, ino: Ino) -> bool {
        self.fs.tag(ino).is_ok_and(|tag| matches!(tag.class, DataClass::Log | DataClass::Temporary))
    }

    /// Passes accepted bytes to the core so that a power cut leaves all of them or none.
    pub(super) fn store_in_one_step(&self, open: &OpenInode, offset: u64, data: &[u8]) -> FsResult<()> {
        let node = Node::Ino(open.ino);
        let when = self.shared(open.slot).mtime_ns.load(Relaxed);
        let mut set = SetAttr::default();
        if when != 0 {
            let changed = self.fs.getattr(open.ino)?.ctime;
            (set.mtime, set.ctime) = (Some(TimeSpec(when)), Some(TimeSpec(when).max(changed)));
        }
        let changes = [Change::Write { node, offset, data }, Change::SetAttr { node, set }];
        match self.fs.commit(&changes, false) {
            Ok(_) => Ok(()),
            // It has less than when the bytes were accepted. One write is stored as a whole, too.
            Err(Refused { error: FsError::QuotaExceeded, .. }) => self.store(open, offset, data),
            Err(Refused { error, .. }) => {
                self.failed(open, error.errno());
                Err(error)
            }
        }
    }

    /// Passes accepted bytes to the core.
    pub(super) fn store(&self, open: &OpenInode, offset: u64, bytes: &[u8]) -> FsResult<()> {
        let when = self.shared(open.slot).mtime_ns.load(Relaxed);
        let when = if when == 0 { TimeSpec::now() } else { TimeSpec(when) };
        let stored = self.write_to_core(open.ino, offset, bytes, Arrival::Accepted(when));
        stored.inspect_err(|error| self.failed(open, error.errno()))
    }

    /// Writes to the core: a large piece straight to the device, unless it is of a short file that may be gone before it has to be
    /// there.
    pub fn write_to_core(&self, ino: Ino, offset: u64, bytes: &[u8], arrival: Arrival) -> FsResult<()> {
        let end = offset + bytes.len() as u64;
        let through = bytes.len() >= THROUGH_BYTES && !(end <= WAIT_BYTES && self.may_be_gone_soon(ino));
        if through && offset < WAIT_BYTES && self.may_be_gone_soon(ino) {
            // What has waited goes first, in steps.
            self.fs.write_back(ino)?;
        }
        match arrival {
            Arrival::Now if through => self.fs.write_through(ino, offset, bytes),
            Arrival::Now => self.fs.write(ino, offset, bytes),
            Arrival::Late(when) => self.fs.write_late(ino, offset, bytes, through, when),
            Arrival::Accepted(when) => self.fs.write_accepted(ino, offset, bytes, through, when),
        }
    }

    /// The size that clients published, if it can be one; a client that wrote nonsense loses what it appended.
    pub(super) fn validated_size(&self, open: &OpenInode, ring: &MutexGuard<'_, Ring>) -> u64 {
        let shared = self.shared(open.slot);
        let size = shared.size.load(Acquire);
        if ring.number.is_none() {
            return size;
        }
        if size < ring.head || size - ring.head > RING_BYTES as u64 {
            tracing::error!(ino = open.ino.0, size, head = ring.head, "a client corrupted its file's size");
            shared.size.store(ring.head, Release);
            self.failed(open, libc::EIO);
            return ring.head;
        }
        size
    }

    /// After the core's size changed: the ring is empty and begins there. The caller excludes writers.
    pub fn size_changed(&self, open: &OpenInode, size: u64) {
        let mut ring = open.ring.lock();
        let shared = self.shared(open.slot);
        shared.must_ask_for_sync();
        ring.head = size;
        // Shrinking: readers must not look into the ring below the new head; growing: not beyond what is there.
        shared.seq.fetch_add(1, AcqRel);
        shared.head.store(size, Release);
        shared.size.store(size, Release);
        shared.seq.fetch_add(1, Release);
    }
}
