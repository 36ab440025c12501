//! Appends frames to the chain.

use crate::core::State;
use crate::error::device_failed;
use crate::layout::frame::{FrameHeader, FrameKind, HEADER_BYTES, TRANSACTION_MAX, frame_blocks};
use crate::layout::zone_header::{HEADER_BLOCKS, ZoneKind};
use std::sync::atomic::Ordering::{Acquire, Release};
use weft_core::{BLOCK_BYTES, Tag, ZoneId, checksum::crc32c};
use weft_vfs::{FsError, FsResult};

/// Blocks of a frame that holds one transaction of the largest size.
const TRANSACTION_BLOCKS: u32 = frame_blocks(TRANSACTION_MAX);

impl State {
    /// Makes room for one more transaction; called before its first record, and before anything that the journal has
    /// is dropped from memory: when the chain has no room left, a checkpoint of what memory has is written here.
    pub(crate) fn begin_transaction(&mut self) -> FsResult<()> {
        self.check_writable()?;
        if self.journal.pending() + TRANSACTION_MAX > self.payload_limit() {
            self.commit()?;
        }
        let blocks = frame_blocks(self.journal.pending() + TRANSACTION_MAX);
        if blocks > self.journal_zone_rest() && self.chain_zones_left() == 0 {
            self.write_checkpoint(false)?;
        }
        Ok(())
    }

    /// Blocks left in the journal's zone.
    pub(crate) fn journal_zone_rest(&self) -> u32 {
        self.journal.zone.map_or(0, |zone| self.reserve.capacity - self.zones.get(zone).write_pointer)
    }

    /// Zones that the chain may take before a checkpoint has to replace it.
    pub(crate) fn chain_zones_left(&self) -> u32 {
        let held = self.journal.zones.len() as u32 + u32::from(self.journal.zone.is_some());
        self.reserve.chain_zones(self.saved()).saturating_sub(held)
    }

    /// Largest payload of the next frame: one that fits what is left of the zone, unless that is too little for a
    /// transaction.
    pub(crate) fn payload_limit(&self) -> usize {
        let rest = self.journal_zone_rest();
        if rest < TRANSACTION_BLOCKS {
            return self.journal.frame_max;
        }
        self.journal.frame_max.min(rest as usize * BLOCK_BYTES - HEADER_BYTES)
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
        self.check_writable()?;
        let payload_len = buffer.len() - HEADER_BYTES;
        let blocks = frame_blocks(payload_len);
        let header = FrameHeader {
            kind,
            clean,
            epoch: self.journal.epoch,
            seq: self.journal.next_seq,
            flushed_upto: self.shared.durable_seq.load(Acquire),
            volume_bytes: self.volume_bytes,
            payload_len: payload_len as u32,
            payload_crc: crc32c(&buffer[HEADER_BYTES..]),
            volume: self.journal.volume,
            parts,
        };
        assert!(blocks <= self.reserve.capacity - HEADER_BLOCKS, "no zone takes a frame of {blocks} blocks");
        assert_eq!(self.shared.written_seq.load(Acquire) + 1, header.seq, "frames are numbered in order");
        buffer[..HEADER_BYTES].copy_from_slice(&header.encode());
        debug_assert_eq!(FrameHeader::decode(&buffer[..HEADER_BYTES]), Some(header));
        buffer.resize(blocks as usize * BLOCK_BYTES, 0);
        // A zone that fails under the write is given up; the frame goes to the next.
        let mut attempts = 0;
        loop {
            let zone = self.journal_zone(blocks)?;
            let at = self.zones.get(zone).write_pointer;
            match self.shared.dev.write(zone, at, buffer, &Tag::METADATA) {
                Ok(()) => {
                    self.zones.wrote(zone, blocks);
                    break;
                }
                Err(error) => {
                    attempts += 1;
                    if attempts > 3 || !self.abandon_zone(zone, &error) {
                        return Err(self.fail(device_failed(error)));
                    }
                    self.journal.zone = None;
                    self.journal.zones.push(zone);
                }
            }
        }
        self.shared.written_seq.store(self.journal.next_seq, Release);
        self.journal.next_seq += 1;
        self.journal.closed = clean;
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
        let written = self.zones.get(zone).write_pointer;
        self.zones.end(zone, written, false, self.journal.next_seq);
        if written < self.reserve.capacity {
            self.shared.finish(zone).map_err(|e| self.fail(device_failed(e)))?;
        }
        Ok(())
    }

    /// Writes what is buffered and makes it durable, with the lock held: only before resets and checkpoints.
    pub(crate) fn commit_durably(&mut self) -> FsResult<()> {
        self.commit()?;
        let written = self.shared.written_seq.load(Acquire);
        assert!(self.shared.durable_seq.load(Acquire) <= written, "a frame is durable before it is written");
        if self.shared.durable_seq.load(Acquire) < written {
            self.shared.dev.flush().map_err(|e| self.fail(device_failed(e)))?;
            self.shared.durable_seq.fetch_max(written, Release);
        }
        Ok(())
    }

    /// Fails when the volume has failed before.
    pub(crate) fn check_writable(&self) -> FsResult<()> {
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

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::layout::record::Record;
    use crate::{FormatOptions, Lfs, MountOptions};
    use std::sync::Arc;
    use weft_core::Ino;
    use weft_device::{Geometry, PowerCut};
    use weft_vfs::{CreateArgs, FileSystem, NewNode};

    fn volume(zone_bytes: u64) -> (Arc<PowerCut>, Lfs) {
        let geometry = Geometry::zn540().with_size(32 * zone_bytes).with_zone_bytes(zone_bytes);
        let device = Arc::new(PowerCut::new(&geometry).unwrap());
        Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
        let fs = Lfs::mount(device.clone(), MountOptions::default()).unwrap();
        (device, fs)
    }

    fn create(fs: &Lfs, name: &[u8]) -> Ino {
        let args = CreateArgs::new(NewNode::File, 0o644);
        fs.create(Ino::ROOT, name, &args).unwrap().ino
    }

    #[test]
    fn a_zone_of_the_journal_is_written_to_its_last_block() {
        let (_, fs) = volume(192 << 10);
        let file = create(&fs, b"f");
        let mut state = fs.state.lock();
        let first = state.journal.zone.unwrap();
        while state.journal.zone == Some(first) {
            state.begin_transaction().unwrap();
            state.log(&Record::SetTag { ino: file, tag: Tag::default() }).unwrap();
            state.commit().unwrap();
        }
        assert_eq!(state.journal.zones, [first]);
        assert_eq!(state.zones.get(first).write_pointer, state.reserve.capacity);
    }

    #[test]
    fn an_operation_of_any_length_stays_within_the_zones_of_metadata_and_loses_nothing_that_was_synced() {
        for zone_bytes in [192 << 10, 512 << 10, 4 << 20] {
            let (device, fs) = volume(zone_bytes);
            let file = create(&fs, b"f");
            fs.write(file, 0, b"synced").unwrap();
            fs.fsync(file).unwrap();
            // The same block has more that nobody has synced.
            fs.write(file, 6, b" and not").unwrap();
            let mut state = fs.state.lock();
            let before = state.stats.checkpoints;
            let record = Record::Xattr { ino: file, name: b"user.x", value: Some(&[1; 60_000]), time: 5 };
            while state.stats.checkpoints < before + 3 {
                state.begin_transaction().unwrap();
                state.log(&record).unwrap();
                let meta = state.reserve.meta_zones(state.saved());
                assert!(state.zones.meta_count() <= meta, "{} of {meta}", state.zones.meta_count());
            }
            drop(state);
            assert_eq!(fs.recount(), [""; 0]);
            for look in 0..8 {
                let after = Arc::new(device.reopen(look).unwrap());
                let fs = Lfs::mount(after.clone(), MountOptions::default()).unwrap();
                let ino = fs.lookup(Ino::ROOT, b"f").unwrap().ino;
                let mut out = [0; 64];
                let len = fs.read(ino, 0, &mut out).unwrap();
                assert!(len >= 6 && out[..len] == b"synced and not"[..len], "{:?}", &out[..len]);
                fs.unmount().unwrap();
                assert!(crate::fsck::check(after).unwrap().is_clean());
            }
        }
    }
}
