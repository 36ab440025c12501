//! Opening a drive: what its zones are, and where data ends in those that are full.

use super::ZonedDrive;
use super::access::{DriveInfo, RawZone, ZoneAccess};
use super::buffers::Buffers;
use super::cache::{CHUNK_BLOCKS, Cache};
use super::counts::Counts;
use super::end_mark::EndMark;
use super::zone::{Zone, ZoneCell};
use crate::DeviceError;
use crate::in_use::{InUse, Limits};
use crate::zoned::ZoneState;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, ZoneId};

/// Most blocks of one command.
const COMMAND_BLOCKS_MAX: u32 = 256;

impl ZonedDrive {
    /// Takes a drive over as it is.
    pub(super) fn start(access: Box<dyn ZoneAccess>, cache_bytes: u64) -> Result<ZonedDrive, DeviceError> {
        let DriveInfo { path, zoned: info, command_blocks_max } = access.drive().clone();
        let cache = Cache::new(cache_bytes, info.zones, info.zone_blocks)
            .map_err(|source| DeviceError::Io { path, source })?;
        let command_blocks = command_blocks_max.clamp(1, COMMAND_BLOCKS_MAX);
        let drive = ZonedDrive {
            info,
            zones: Box::new([]),
            limits: Mutex::new(Limits::default()),
            in_use: InUse::default(),
            command_blocks,
            buffers: Buffers::new(command_blocks.max(CHUNK_BLOCKS)),
            cache,
            counts: Counts::default(),
            begun: Instant::now(),
            flush_failed: AtomicBool::new(false),
            access,
        };
        let raw = drive.access.report_all().map_err(|e| drive.io(e))?;
        let mut zones = Vec::with_capacity(raw.len());
        for (id, raw) in raw.into_iter().enumerate() {
            zones.push(drive.take_over(id as u32, raw)?);
        }
        let active = zones.iter().filter(|zone| zone.state.is_active()).count() as u32;
        let zones = zones.into_iter().map(ZoneCell::new).collect();
        drive.in_use.set_active(active);
        Ok(ZonedDrive { zones, ..drive })
    }

    /// A zone as it was left.
    fn take_over(&self, id: u32, raw: RawZone) -> Result<Zone, DeviceError> {
        let capacity = self.info.zone_capacity;
        let known = raw.write_pointer.unwrap_or(capacity).min(capacity);
        let mut zone = Zone { state: raw.state, write_pointer: known, first_block_crc: None };
        match raw.state {
            ZoneState::Full => {
                zone.write_pointer = capacity;
                if let Some(end) = self.marked_end(id)? {
                    zone.write_pointer = end;
                }
            }
            // Nobody holds it open any more. What is closed is opened again by the next write.
            ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen | ZoneState::Closed => {
                if raw.state != ZoneState::Closed {
                    self.access.close(id).map_err(|e| self.failed(ZoneId(id), known, "close", e))?;
                }
                zone.state = ZoneState::Closed;
                if known == 0 {
                    self.access.reset(id).map_err(|e| self.failed(ZoneId(id), 0, "reset", e))?;
                    zone.state = ZoneState::Empty;
                }
                if let Some(last) = known.checked_sub(1)
                    && self.mark_at(id, last)?.is_some()
                {
                    // The process ended between the mark and the command.
                    self.access.finish(id).map_err(|e| self.failed(ZoneId(id), known, "finish", e))?;
                    (zone.state, zone.write_pointer) = (ZoneState::Full, last);
                }
            }
            ZoneState::Empty => zone.write_pointer = 0,
            ZoneState::ReadOnly => {}
            ZoneState::Offline => zone.write_pointer = 0,
        }
        Ok(zone)
    }

    /// Where a mark says that data ends in a full zone; `None` when data fills it.
    fn marked_end(&self, id: u32) -> Result<Option<u32>, DeviceError> {
        let step = CHUNK_BLOCKS;
        let mut end = self.info.zone_capacity;
        // Most full zones were written to their end: their last block tells.
        let mut wanted = 1;
        while end > 0 {
            let count = wanted.min(end).min(step);
            let at = end - count;
            let found = self.buffers.with(|buffer| -> io::Result<_> {
                let raw = &mut buffer[..count as usize * BLOCK_BYTES];
                self.read_fully(id, at, raw)?;
                let written = raw.chunks_exact(BLOCK_BYTES).rposition(|block| block.iter().any(|b| *b != 0));
                Ok(written.map(|i| (at + i as u32, EndMark::decode(&raw[i * BLOCK_BYTES..][..BLOCK_BYTES]))))
            });
            match found {
                Ok(Some((at, Some(mark)))) => return self.is_own(id, at, &mark).map(|own| own.then_some(at)),
                Ok(Some((_, None))) => return Ok(None),
                Ok(None) => {}
                Err(error) => {
                    // What cannot be read says nothing; the blocks before it may be read all the same.
                    tracing::warn!(zone = id, at, %error, "the end of a full zone cannot be read");
                    return Ok(None);
                }
            }
            end = at;
            wanted = step;
        }
        Ok(None)
    }

    /// The mark that stands at a block, if one does.
    fn mark_at(&self, id: u32, at: u32) -> Result<Option<EndMark>, DeviceError> {
        let mark = self.buffers.with(|buffer| {
            let block = &mut buffer[..BLOCK_BYTES];
            self.read_fully(id, at, block).map(|()| EndMark::decode(block))
        });
        match mark {
            Ok(Some(mark)) => self.is_own(id, at, &mark).map(|own| own.then_some(mark)),
            Ok(None) => Ok(None),
            Err(error) => {
                tracing::warn!(zone = id, at, %error, "the last block of a zone cannot be read");
                Ok(None)
            }
        }
    }

    /// Whether a mark at this place is this zone's, in its present life.
    fn is_own(&self, id: u32, at: u32, mark: &EndMark) -> Result<bool, DeviceError> {
        let crc = if at == 0 { crc32c(&[]) } else { self.first_block_crc(id)? };
        Ok(*mark == EndMark { zone: id, end: at, first_block_crc: crc })
    }

    /// The checksum of the first block of a zone that has one.
    pub(super) fn first_block_crc(&self, id: u32) -> Result<u32, DeviceError> {
        self.buffers.with(|buffer| {
            let block = &mut buffer[..BLOCK_BYTES];
            let read = self.read_fully(id, 0, block);
            read.map(|()| crc32c(block)).map_err(|e| self.failed(ZoneId(id), 0, "read", e))
        })
    }

    /// Compares what the drive says of its zones with what this process knows of them.
    pub(super) fn compare_zones(&self) -> Result<(), DeviceError> {
        let now = self.access.report_all().map_err(|e| self.io(e))?;
        for (id, (cell, raw)) in self.zones.iter().zip(now).enumerate() {
            let zone = *cell.lock();
            let known = !matches!(zone.state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline);
            let found = match raw.state {
                ZoneState::Full => Some(self.info.zone_capacity),
                ZoneState::ReadOnly | ZoneState::Offline => None,
                _ => raw.write_pointer,
            };
            if let Some(found) = found.filter(|found| known && *found != zone.write_pointer) {
                let expected = zone.write_pointer;
                return Err(DeviceError::WritePointerMoved { zone: ZoneId(id as u32), expected, found });
            }
        }
        Ok(())
    }
}
