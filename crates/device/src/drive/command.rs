//! The commands on zones.

use super::ZonedDrive;
use super::access::Opening;
use super::cache::CHUNK_BLOCKS;
use super::end_mark::EndMark;
use super::zone::Zone;
use crate::DeviceError;
use crate::in_use::Limits;
use crate::state::{self, Action};
use crate::zoned::ZoneState;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_sys::aligned::is_aligned;

impl ZonedDrive {
    /// Moves a zone to another state and keeps the counts. Raising a count takes `limits`.
    fn set_state(&self, zone: &mut Zone, state: ZoneState) {
        let before = std::mem::replace(&mut zone.state, state);
        self.counts.totals.in_use(self.in_use.moved(before, state));
    }

    fn make_room(&self, limits: &mut Limits, id: ZoneId, state: ZoneState) -> Result<(), DeviceError> {
        limits.make_room(&self.in_use, &self.info, id, state, |oldest| {
            let mut zone = self.zones[oldest.index()].lock();
            if zone.state == ZoneState::ImplicitlyOpen { self.close_open(oldest, &mut zone) } else { Ok(()) }
        })
    }

    fn close_open(&self, id: ZoneId, zone: &mut Zone) -> Result<(), DeviceError> {
        self.access.close(id.0).map_err(|e| self.failed(id, zone.write_pointer, "close", e))?;
        if zone.write_pointer > 0 {
            self.set_state(zone, ZoneState::Closed);
            return Ok(());
        }
        // What is closed and empty would stay active for nothing, and some interfaces do not tell it from empty.
        self.access.reset(id.0).map_err(|e| self.failed(id, 0, "reset", e))?;
        self.set_state(zone, ZoneState::Empty);
        Ok(())
    }

    pub(super) fn write_blocks(
        &self,
        id: ZoneId,
        at: Option<u32>,
        data: &[u8],
        tag: &Tag,
    ) -> Result<u32, DeviceError> {
        let blocks = state::whole_blocks(data.len())?;
        let cell = self.cell(id, at.unwrap_or(0), if at.is_some() { blocks } else { 0 })?;
        let mut zone = cell.lock();
        if blocks == 0 {
            return Ok(zone.write_pointer);
        }
        let judge = |zone: &Zone| state::judge_write(id, zone.report(), self.info.zone_capacity, at, blocks);
        let mut action = judge(&zone)?;
        if !zone.state.is_open() {
            // `limits` comes before the zone in the order of locks, so the zone has to be judged again.
            drop(zone);
            let mut limits = self.limits.lock();
            zone = cell.lock();
            action = judge(&zone)?;
            if !zone.state.is_open() {
                self.open_for_write(&mut limits, id, &mut zone)?;
            }
        }
        let at = zone.write_pointer;
        self.write_open(id, &mut zone, data, tag)?;
        if action == Action::WriteToEnd {
            self.became_full(id, &mut zone);
        }
        Ok(at)
    }

    fn open_for_write(&self, limits: &mut Limits, id: ZoneId, zone: &mut Zone) -> Result<(), DeviceError> {
        self.make_room(limits, id, zone.state)?;
        self.access
            .open(id.0, Opening::ForWrite)
            .map_err(|e| self.failed(id, zone.write_pointer, "open", e))?;
        self.set_state(zone, ZoneState::ImplicitlyOpen);
        limits.opened(id, |_| true);
        Ok(())
    }

    /// Writes to a zone that is open and was judged, one command after the other. Data that direct I/O would not take
    /// where it lies is copied.
    fn write_open(&self, id: ZoneId, zone: &mut Zone, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let first = zone.write_pointer;
        let command = self.command_blocks as usize * BLOCK_BYTES;
        for piece in data.chunks(command) {
            let written = if is_aligned(piece) {
                self.write_fully(id, zone, piece)
            } else {
                self.buffers.with(|buffer| {
                    buffer[..piece.len()].copy_from_slice(piece);
                    self.write_fully(id, zone, &buffer[..piece.len()])
                })
            };
            if let Err(error) = written {
                // Blocks that are on the drive are of no use to anybody, but they are there.
                self.counts.padded(u64::from(zone.write_pointer - first) * BLOCK_BYTES as u64);
                return Err(error);
            }
        }
        if first == 0 {
            zone.first_block_crc = Some(crc32c(&data[..BLOCK_BYTES]));
        }
        self.counts.wrote(data.len() as u64, tag.origin, begun);
        Ok(())
    }

    /// Writes all of an aligned piece. A short write is gone on with; an error ends the zone.
    fn write_fully(&self, id: ZoneId, zone: &mut Zone, mut piece: &[u8]) -> Result<(), DeviceError> {
        while !piece.is_empty() {
            let at = zone.write_pointer;
            let error = match self.access.write(id.0, at, piece) {
                Ok(written)
                    if written > 0 && written.is_multiple_of(BLOCK_BYTES) && written <= piece.len() =>
                {
                    self.cache.wrote(id.0, at, &piece[..written]);
                    zone.write_pointer += (written / BLOCK_BYTES) as u32;
                    piece = &piece[written..];
                    continue;
                }
                Ok(written) => io::Error::other(format!("{written} of {} bytes were written", piece.len())),
                Err(error) => error,
            };
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            let moved = self.after_failed_write(id, zone)?;
            if interrupted && zone.state.is_open() && moved <= piece.len() {
                piece = &piece[moved..];
                continue;
            }
            return Err(self.give_up_write(id, zone, at, error));
        }
        Ok(())
    }

    /// Asks the drive where the zone's write pointer is now; returns by how many bytes it has moved.
    fn after_failed_write(&self, id: ZoneId, zone: &mut Zone) -> Result<usize, DeviceError> {
        let before = zone.write_pointer;
        let raw = self.access.report(id.0).map_err(|e| self.io(e))?;
        let capacity = self.info.zone_capacity;
        if let Some(now) = raw.write_pointer.filter(|now| (before..=capacity).contains(now)) {
            zone.write_pointer = now;
        }
        match raw.state {
            ZoneState::ReadOnly | ZoneState::Offline => self.set_state(zone, raw.state),
            ZoneState::Full => {
                zone.write_pointer = capacity;
                self.set_state(zone, ZoneState::Full);
            }
            _ => {}
        }
        Ok((zone.write_pointer - before) as usize * BLOCK_BYTES)
    }

    /// A write failed and the zone is as the drive says now: it is not written again, and what it holds stays readable.
    fn give_up_write(&self, id: ZoneId, zone: &mut Zone, at: u32, error: io::Error) -> DeviceError {
        let pointer = zone.write_pointer;
        tracing::warn!(zone = %id, at, pointer, state = %zone.state, %error, "write failed");
        let dead = matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline);
        let answer = self.failed(id, at, "write", error);
        let media = DeviceError::Media { zone: id, at, what: "write" };
        if dead {
            // The drive says it of the zone, whatever the number was.
            return media;
        }
        if answer.is_refusal() {
            // It was not opened.
            self.set_state(zone, if pointer == 0 { ZoneState::Empty } else { ZoneState::Closed });
        }
        if !matches!(answer, DeviceError::Media { .. }) {
            return answer;
        }
        // The zone must not hold a place among the active ones for good.
        if zone.state != ZoneState::Full
            && let Err(error) = self.mark_and_finish(id, zone)
        {
            tracing::warn!(zone = %id, %error, "a zone that cannot be written cannot be finished either");
            self.access.release(id.0);
            self.set_state(zone, ZoneState::ReadOnly);
        }
        media
    }

    /// A zone that was written to its end: the drive holds nothing for it any more.
    fn became_full(&self, id: ZoneId, zone: &mut Zone) {
        self.access.release(id.0);
        self.set_state(zone, ZoneState::Full);
    }

    pub(super) fn read_blocks(&self, id: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        let blocks = state::whole_blocks(out.len())?;
        let cell = self.cell(id, at, blocks)?;
        // What is written stays as it is until the reset, which nobody asks for while somebody reads.
        let found = cell.report();
        found.judge_read(id, at, blocks)?;
        let read = if self.cache.is_on() {
            self.read_cached(id.0, at, found.write_pointer, out)
        } else {
            self.read_anywhere(id.0, at, out)
        };
        read.map_err(|e| self.failed(id, at, "read", e))
    }

    /// Reads chunk by chunk; one that is not held is read as far as it is written, for those who come next.
    fn read_cached(&self, id: u32, mut at: u32, written: u32, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            let within = at % CHUNK_BLOCKS;
            let bytes = out.len().min((CHUNK_BLOCKS - within) as usize * BLOCK_BYTES);
            let (piece, rest) = out.split_at_mut(bytes);
            if !self.cache.read(id, at, piece) {
                let life = self.cache.life(id);
                let first = at - within;
                let held = (written - first).min(CHUNK_BLOCKS) as usize * BLOCK_BYTES;
                self.buffers.with(|buffer| -> io::Result<()> {
                    let chunk = &mut buffer[..held];
                    self.read_fully(id, first, chunk)?;
                    let from = within as usize * BLOCK_BYTES;
                    piece.copy_from_slice(&chunk[from..from + bytes]);
                    self.cache.fill(id, first, chunk, life);
                    Ok(())
                })?;
            }
            at += CHUNK_BLOCKS - within;
            out = rest;
        }
        Ok(())
    }

    /// Reads into a buffer that direct I/O may not take.
    fn read_anywhere(&self, id: u32, mut at: u32, out: &mut [u8]) -> io::Result<()> {
        for piece in out.chunks_mut(self.command_blocks as usize * BLOCK_BYTES) {
            if is_aligned(piece) {
                self.read_fully(id, at, piece)?;
            } else {
                self.buffers.with(|buffer| {
                    let buffer = &mut buffer[..piece.len()];
                    self.read_fully(id, at, buffer).map(|()| piece.copy_from_slice(buffer))
                })?;
            }
            at += (piece.len() / BLOCK_BYTES) as u32;
        }
        Ok(())
    }

    /// Reads all of an aligned piece, in commands that nobody splits.
    pub(super) fn read_fully(&self, id: u32, mut at: u32, mut out: &mut [u8]) -> io::Result<()> {
        let command = self.command_blocks as usize * BLOCK_BYTES;
        while !out.is_empty() {
            let now = out.len().min(command);
            let begun = Instant::now();
            match self.access.read(id, at, &mut out[..now]) {
                Ok(read) if read > 0 && read.is_multiple_of(BLOCK_BYTES) && read <= out.len() => {
                    self.counts.read(read as u64, begun);
                    at += (read / BLOCK_BYTES) as u32;
                    out = &mut out[read..];
                }
                // A drive that ends within a block that is written has lost it.
                Ok(_) => return Err(io::Error::from_raw_os_error(libc::EIO)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn open_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut limits = self.limits.lock();
        let mut zone = cell.lock();
        let state = state::next(id, zone.state, Action::Open)?;
        if !zone.state.is_open() {
            self.make_room(&mut limits, id, zone.state)?;
        }
        if zone.state != ZoneState::ExplicitlyOpen {
            let opened = self.access.open(id.0, Opening::Explicit);
            opened.map_err(|e| self.failed(id, zone.write_pointer, "open", e))?;
        }
        self.set_state(&mut zone, state);
        Ok(())
    }

    pub(super) fn close_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let mut zone = self.cell(id, 0, 0)?.lock();
        state::next(id, zone.state, Action::Close)?;
        if zone.state.is_open() { self.close_open(id, &mut zone) } else { Ok(()) }
    }

    pub(super) fn finish_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut limits = self.limits.lock();
        let mut zone = cell.lock();
        state::next(id, zone.state, Action::Finish)?;
        if zone.state == ZoneState::Full {
            return Ok(());
        }
        if !zone.state.is_open() {
            self.open_for_write(&mut limits, id, &mut zone)?;
        }
        drop(limits);
        self.mark_and_finish(id, &mut zone)
    }

    /// Writes down where data ends, and ends the zone. The zone is open and not full.
    fn mark_and_finish(&self, id: ZoneId, zone: &mut Zone) -> Result<(), DeviceError> {
        let end = zone.write_pointer;
        let first_block_crc = match zone.first_block_crc {
            _ if end == 0 => crc32c(&[]),
            Some(crc) => crc,
            None => self.first_block_crc(id.0)?,
        };
        let mark = EndMark { zone: id.0, end, first_block_crc };
        let written = self.buffers.with(|buffer| {
            let block = &mut buffer[..BLOCK_BYTES];
            mark.encode(block);
            self.access.write(id.0, end, block)
        });
        match written {
            Ok(BLOCK_BYTES) => self.counts.padded(BLOCK_BYTES as u64),
            Ok(_) => return Err(DeviceError::Media { zone: id, at: end, what: "write" }),
            Err(error) => {
                self.after_failed_write(id, zone)?;
                return Err(self.failed(id, end, "write", error));
            }
        }
        // The mark may have filled the zone.
        if end + 1 < self.info.zone_capacity {
            self.access.finish(id.0).map_err(|e| self.failed(id, end, "finish", e))?;
        }
        self.became_full(id, zone);
        Ok(())
    }

    pub(super) fn reset_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut zone = cell.lock();
        let state = state::next(id, zone.state, Action::Reset)?;
        let begun = Instant::now();
        self.cache.drop_zone(id.0);
        if let Err(error) = self.access.reset(id.0) {
            let failed = self.failed(id, zone.write_pointer, "reset", error);
            self.after_failed_reset(id, &mut zone);
            return Err(failed);
        }
        (zone.write_pointer, zone.first_block_crc) = (0, None);
        self.set_state(&mut zone, state);
        self.counts.reset(begun);
        Ok(())
    }

    fn after_failed_reset(&self, id: ZoneId, zone: &mut Zone) {
        match self.access.report(id.0) {
            Ok(raw) if matches!(raw.state, ZoneState::ReadOnly | ZoneState::Offline) => {
                self.set_state(zone, raw.state);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(zone = %id, %error, "a zone that was not reset does not report"),
        }
    }

    /// Makes everything written before the call durable.
    pub(super) fn flush_all(&self) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let flushed = if self.flush_failed.load(Acquire) {
            Err(io::Error::other(
                "an earlier flush failed; what was written since the one before may be lost",
            ))
        } else {
            self.access.flush()
        };
        self.counts.flushed(begun);
        flushed.map_err(|error| {
            self.flush_failed.store(true, Release);
            self.io(error)
        })
    }
}
