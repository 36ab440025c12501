//! A real zoned drive, reached through an interface that only passes commands on ([`access`]): a zoned block device
//! ([`crate::zbd`]) or a zonefs directory ([`crate::zonefs`]).
//!
//! The drive is this process's alone as long as it is open, so states and write pointers are kept in memory and the
//! drive is asked only at the start and after an error. Limits are kept as the model keeps them: when as many zones
//! are open as may be, the one that a write opened longest ago is closed; so the drive itself never has to refuse.
//!
//! Four things that the model has and drives lack are made good here:
//! - **Where data ends in a zone that was finished early**: the last block written is a mark ([`end_mark`]).
//! - **Writes that fail in part**: the zone is asked where its write pointer is, the zone is ended, and the error names
//!   the flash, so that the file core goes on elsewhere.
//! - **Alignment**: bytes that direct I/O would not take go through aligned buffers ([`buffers`]).
//! - **A cache**, which direct I/O goes past ([`cache`]).
//!
//! # Locks
//! [`ZonedDrive::limits`] before a zone's own, and a zone's own before the other zones' (by [`Limits`] only, and never
//! the zone at hand). A zone's lock is held during its writes, so that they reach the drive one at a time and in order.

pub(crate) mod access;
mod buffers;
mod cache;
mod command;
mod counts;
mod end_mark;
#[cfg(test)]
mod fake;
mod start;
#[cfg(test)]
mod tests;
mod zone;

use crate::DeviceError;
use crate::clock::Latencies;
use crate::in_use::{InUse, Limits};
use crate::zoned::{DeviceCounters, ZoneReport, ZonedDevice, ZonedInfo};
use access::{ZoneAccess, is_media, refusal};
use buffers::Buffers;
use cache::Cache;
pub use cache::SharedCache;
use counts::Counts;
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use weft_core::{Tag, ZoneId};
use zone::ZoneCell;

/// A real zoned drive.
#[derive(Debug)]
pub struct ZonedDrive {
    access: Box<dyn ZoneAccess>,
    info: ZonedInfo,
    zones: Box<[ZoneCell]>,
    limits: Mutex<Limits>,
    in_use: InUse,
    /// Most blocks of one command.
    command_blocks: u32,
    buffers: Buffers,
    cache: Cache,
    counts: Counts,
    begun: Instant,
    /// Set for good when a flush failed: what was written before it may be lost.
    flush_failed: AtomicBool,
}

impl ZonedDrive {
    /// Opens the zoned block device, or the directory on which a zonefs is mounted. Up to `cache_bytes` of what it
    /// holds are kept in memory.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] when another process has it; a drive whose zones are not alike.
    pub fn open(path: &Path, cache_bytes: u64) -> Result<ZonedDrive, DeviceError> {
        let io = |source| DeviceError::Io { path: path.to_path_buf(), source };
        if std::fs::metadata(path).map_err(io)?.is_dir() {
            ZonedDrive::start(Box::new(crate::zonefs::Directory::open(path)?), cache_bytes)
        } else {
            ZonedDrive::start(Box::new(crate::zbd::BlockDevice::open(path)?), cache_bytes)
        }
    }

    /// What commands took on this host, in nanoseconds.
    pub fn latencies(&self) -> Latencies {
        self.counts.latencies()
    }

    /// Memory from which clients may read what is held of the drive; `None` when nothing is.
    pub fn shared_cache(&self) -> Option<SharedCache> {
        self.cache.shared()
    }

    fn cell(&self, zone: ZoneId, at: u32, blocks: u32) -> Result<&ZoneCell, DeviceError> {
        self.info.check(zone, at, blocks)?;
        Ok(&self.zones[zone.index()])
    }

    /// A failed command as the trait's users know it.
    fn failed(&self, zone: ZoneId, at: u32, what: &'static str, error: io::Error) -> DeviceError {
        if let Some(refused) = refusal(zone.0, &error, &self.info) {
            return refused;
        }
        if is_media(&error) {
            return DeviceError::Media { zone, at, what };
        }
        self.io(error)
    }

    fn io(&self, source: io::Error) -> DeviceError {
        DeviceError::Io { path: self.access.drive().path.clone(), source }
    }
}

impl ZonedDevice for ZonedDrive {
    fn info(&self) -> ZonedInfo {
        self.info
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        Ok(self.cell(zone, 0, 0)?.report())
    }

    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        self.counts.totals.counted(self.write_blocks(zone, Some(at), data, tag)).map(drop)
    }

    fn append(&self, zone: ZoneId, data: &[u8], tag: &Tag) -> Result<u32, DeviceError> {
        self.counts.totals.counted(self.write_blocks(zone, None, data, tag))
    }

    fn read(&self, zone: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        self.counts.totals.counted(self.read_blocks(zone, at, out))
    }

    fn open(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.counts.totals.counted(self.open_zone(zone))
    }

    fn close(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.counts.totals.counted(self.close_zone(zone))
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.counts.totals.counted(self.finish_zone(zone))
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.counts.totals.counted(self.reset_zone(zone))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flush_all()
    }

    /// Counted since the drive was opened: a drive keeps no counts of ours. `media_bytes` is what was sent to it, for
    /// flash that is written in zones moves nothing on its own; `now` is the time since it was opened.
    fn counters(&self) -> DeviceCounters {
        self.counts.counters(self.begun.elapsed())
    }

    /// Asks the drive for all zones: each write pointer has to be where this process left it.
    fn verify_identity(&self) -> Result<(), DeviceError> {
        self.compare_zones()
    }
}
