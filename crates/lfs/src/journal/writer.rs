//! Appends frames to the chain.

use crate::core::State;
use crate::error::device_failed;
use crate::layout::frame::{FrameHeader, FrameKind, HEADER_BYTES, frame_blocks};
use crate::layout::record::Record;
use crate::layout::zone_header::ZoneKind;
use std::sync::atomic::Ordering::{Acquire, Release};
use weft_core::{BLOCK_BYTES, Tag, ZoneId, checksum::crc32c};
use weft_vfs::{FsError, FsResult};

/// Largest transaction, in bytes of records: an attribute of the largest size, and then some.
pub const TRANSACTION_MAX: usize = 72 * 1024;

/// The journal's end and what is to be written there.
pub struct Journal {
    /// The zone being written, if any.
    pub zone: Option<ZoneId>,
    /// The mount's number.
    pub epoch: u64,
    /// Number of the next frame.
    pub next_seq: u64,
    /// Room for the header, then the records of whole transactions.
    buffer: Vec<u8>,
    /// Blocks of frames since the last checkpoint.
    pub blocks_since_checkpoint: u64,
    /// Whether anything changed since the last checkpoint.
    pub changed: bool,
    /// Whether the last frame is the end of a clean checkpoint.
    pub closed: bool,
    /// Zones of the chain before `zone`, oldest first.
    pub zones: Vec<ZoneId>,
    /// Largest payload of a frame.
    pub frame_max: usize,
    /// First 8 bytes of the volume's UUID.
    pub volume: u64,
}

impl Journal {
    /// A journal that begins with frame `next_seq`, in a zone yet to be opened.
    pub fn new(epoch: u64, next_seq: u64, volume: u64, frame_max: usize) -> Journal {
        Journal {
            zone: None,
            epoch,
            next_seq,
            buffer: vec![0; HEADER_BYTES],
            blocks_since_checkpoint: 0,
            changed: false,
            closed: false,
            zones: Vec::new(),
            frame_max,
            volume,
        }
    }

    /// Adds a record to the transaction at hand.
    pub fn push(&mut self, record: &Record<'_>) {
        record.encode(&mut self.buffer);
        self.changed = true;
    }

    /// Bytes of records that are not written yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - HEADER_BYTES
    }
}

impl State {
    /// Makes room for one more transaction; called before its first record.
    pub(crate) fn begin(&mut self) -> FsResult<()> {
        self.alive()?;
        if self.journal.pending() + TRANSACTION_MAX > self.journal.frame_max {
            self.commit()?;
        }
        Ok(())
    }

    /// Writes the buffered transactions as one frame.
    pub(crate) fn commit(&mut self) -> FsResult<()> {
        if self.journal.pending() == 0 {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.journal.buffer);
        let written = self.write_frame(&mut buffer, FrameKind::Entry, 0, false);
        buffer.truncate(HEADER_BYTES);
        self.journal.buffer = buffer;
        written
    }

    /// Writes a frame whose payload stands behind [`HEADER_BYTES`] of room in `buffer`.
    pub(crate) fn write_frame(
        &mut self,
        buffer: &mut Vec<u8>,
        kind: FrameKind,
        parts: u32,
        clean: bool,
    ) -> FsResult<()> {
        self.alive()?;
        let payload_len = buffer.len() - HEADER_BYTES;
        let blocks = frame_blocks(payload_len);
        let header = FrameHeader {
            kind,
            clean,
            epoch: self.journal.epoch,
            seq: self.journal.next_seq,
            flushed_upto: self.ground.durable_seq.load(Acquire),
            volume_bytes: self.volume_bytes,
            payload_len: payload_len as u32,
            payload_crc: crc32c(&buffer[HEADER_BYTES..]),
            volume: self.journal.volume,
            parts,
        };
        buffer[..HEADER_BYTES].copy_from_slice(&header.encode());
        buffer.resize(blocks as usize * BLOCK_BYTES, 0);
        // A zone that fails under the write is given up; the frame goes to the next.
        let mut attempts = 0;
        loop {
            let zone = self.journal_zone(blocks)?;
            let at = self.zones.get(zone).write_pointer;
            match self.ground.dev.write(zone, at, buffer, &Tag::METADATA) {
                Ok(()) => {
                    self.zones.get_mut(zone).write_pointer += blocks;
                    break;
                }
                Err(error) => {
                    attempts += 1;
                    if attempts > 3 || !self.give_up(zone, &error) {
                        return Err(self.fail(device_failed(error)));
                    }
                    self.journal.zone = None;
                    self.journal.zones.push(zone);
                }
            }
        }
        self.ground.written_seq.store(self.journal.next_seq, Release);
        self.journal.next_seq += 1;
        self.journal.closed = clean;
        self.journal.blocks_since_checkpoint += u64::from(blocks);
        let bytes = u64::from(blocks) * BLOCK_BYTES as u64;
        match kind {
            FrameKind::Entry => self.stats.journal_bytes += bytes,
            FrameKind::Part | FrameKind::End => self.stats.checkpoint_bytes += bytes,
        }
        Ok(())
    }

    /// The journal's zone, with room for this many blocks.
    fn journal_zone(&mut self, blocks: u32) -> FsResult<ZoneId> {
        if let Some(zone) = self.journal.zone {
            if self.zones.get(zone).write_pointer + blocks <= self.reserve.capacity {
                return Ok(zone);
            }
            self.finish_meta(zone)?;
        }
        let zone = self.open_zone(ZoneKind::Meta, Tag::METADATA)?;
        self.journal.zone = Some(zone);
        Ok(zone)
    }

    /// Ends a metadata zone.
    pub(crate) fn finish_meta(&mut self, zone: ZoneId) -> FsResult<()> {
        self.journal.zone = None;
        self.journal.zones.push(zone);
        self.zones.get_mut(zone).state = crate::alloc::zone::ZoneUse::Full;
        if self.zones.get(zone).write_pointer < self.reserve.capacity {
            self.ground.dev.finish(zone).map_err(|e| self.fail(device_failed(e)))?;
        }
        Ok(())
    }

    /// Writes what is buffered and makes it durable, with the lock held: only before resets and checkpoints.
    pub(crate) fn commit_durably(&mut self) -> FsResult<()> {
        self.commit()?;
        let written = self.ground.written_seq.load(Acquire);
        if self.ground.durable_seq.load(Acquire) < written {
            self.ground.dev.flush().map_err(|e| self.fail(device_failed(e)))?;
            self.ground.durable_seq.fetch_max(written, Release);
        }
        Ok(())
    }

    /// Fails when the volume has failed before.
    pub(crate) fn alive(&self) -> FsResult<()> {
        match &self.failed {
            Some(why) => Err(FsError::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }

    /// Notes an error after which memory and device may differ: nothing is changed any more.
    pub(crate) fn fail(&mut self, error: FsError) -> FsError {
        if self.failed.is_none() {
            tracing::error!(%error, "the volume is read-only from now on");
            self.failed = Some(error.to_string());
        }
        error
    }
}
