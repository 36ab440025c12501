//! The zoned interface: what the file core asks of a device (NVMe ZNS command set specification 1.1, sections 2 to 3).

use crate::DeviceError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::RawFd;
use weft_core::{Nanos, Tag, ZoneId};

/// The state of a zone (ZNS specification, figure "Zone State Machine").
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneState {
    /// Nothing is written.
    #[default]
    Empty = 1,
    /// Opened by a write.
    ImplicitlyOpen = 2,
    /// Opened by a command.
    ExplicitlyOpen = 3,
    /// Partly written, holding an active but no open resource.
    Closed = 4,
    /// Only readable, for good.
    ReadOnly = 13,
    /// Written to the end, or finished.
    Full = 14,
    /// Dead.
    Offline = 15,
}

impl ZoneState {
    /// The state with a number of the specification (which the kernel uses, too).
    pub fn from_number(number: u8) -> Option<ZoneState> {
        Some(match number {
            1 => ZoneState::Empty,
            2 => ZoneState::ImplicitlyOpen,
            3 => ZoneState::ExplicitlyOpen,
            4 => ZoneState::Closed,
            13 => ZoneState::ReadOnly,
            14 => ZoneState::Full,
            15 => ZoneState::Offline,
            _ => return None,
        })
    }

    /// Whether the zone counts against the open limit.
    pub fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen)
    }

    /// Whether the zone counts against the active limit.
    pub fn is_active(self) -> bool {
        self.is_open() || self == ZoneState::Closed
    }
}

impl fmt::Display for ZoneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ZoneState::Empty => "empty",
            ZoneState::ImplicitlyOpen => "implicitly open",
            ZoneState::ExplicitlyOpen => "explicitly open",
            ZoneState::Closed => "closed",
            ZoneState::ReadOnly => "read-only",
            ZoneState::Full => "full",
            ZoneState::Offline => "offline",
        })
    }
}

/// The shape and limits of a zoned device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonedInfo {
    /// Zones.
    pub zones: u32,
    /// Blocks (of [`weft_core::BLOCK_BYTES`]) from the start of one zone to the start of the next.
    pub zone_blocks: u32,
    /// Writable blocks of a zone; at most `zone_blocks`.
    pub zone_capacity: u32,
    /// Zones that may be open at once.
    pub open_max: u32,
    /// Zones that may be active (open or closed) at once.
    pub active_max: u32,
}

impl ZonedInfo {
    /// Bytes from the start of one zone to the start of the next.
    pub fn zone_bytes(&self) -> u64 {
        u64::from(self.zone_blocks) * weft_core::BLOCK_BYTES as u64
    }

    /// Refuses blocks that the device does not have.
    pub(crate) fn check(&self, zone: ZoneId, at: u32, blocks: u32) -> Result<(), DeviceError> {
        let ZonedInfo { zones, zone_blocks, .. } = *self;
        if zone.0 < zones && u64::from(at) + u64::from(blocks) <= u64::from(zone_blocks) {
            return Ok(());
        }
        Err(DeviceError::OutOfRange { zone, at, zones, zone_blocks })
    }

    /// Bytes that the device can hold.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.zone_capacity) * weft_core::BLOCK_BYTES as u64
    }

    /// Blocks from the start of the first zone to the end of the last, with those that no zone can hold.
    pub fn blocks(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.zone_blocks)
    }

    /// The zone of a block that is counted from the start of the first zone, and the block within the zone.
    pub fn place(&self, block: u64) -> (ZoneId, u32) {
        let zone_blocks = u64::from(self.zone_blocks);
        (ZoneId((block / zone_blocks) as u32), (block % zone_blocks) as u32)
    }
}

/// One zone as the device reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneReport {
    /// Its state.
    pub state: ZoneState,
    /// Blocks written, from the start of the zone. For a full zone that was finished early: where data ends.
    pub write_pointer: u32,
}

impl ZoneReport {
    /// State and write pointer in one word, for readers without a lock.
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.write_pointer) << 8 | self.state as u64
    }

    /// Reads what [`pack`](ZoneReport::pack) wrote.
    pub(crate) fn unpack(word: u64) -> ZoneReport {
        let state = ZoneState::from_number(word as u8).unwrap_or(ZoneState::Offline);
        ZoneReport { state, write_pointer: (word >> 8) as u32 }
    }

    /// Refuses a read of so many blocks from `at` on that a zone like this does not have.
    pub(crate) fn judge_read(self, zone: ZoneId, at: u32, blocks: u32) -> Result<(), DeviceError> {
        let write_pointer = self.write_pointer;
        if self.state == ZoneState::Offline {
            return Err(DeviceError::ZoneOffline(zone));
        }
        if at + blocks > write_pointer {
            let at = at.max(write_pointer);
            return Err(DeviceError::ReadBeyondWritePointer { zone, at, write_pointer });
        }
        Ok(())
    }
}

/// How another process may read written blocks without this one: the file, and where block 0 of zone 0 begins in it.
/// The block `b` of zone `z` lies at `base + (z * zone_blocks + b) * BLOCK_BYTES`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectRead {
    /// A descriptor of the file; readable, owned by the device.
    pub fd: RawFd,
    /// Byte offset of the data area in the file. A multiple of the page size.
    pub base: u64,
    /// Whether the file may be mapped (an ordinary file or memory) or must be read by `pread`.
    pub mappable: bool,
}

/// What the device counted since it was formatted, in bytes and events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Bytes written for programs ([`weft_core::Origin::Host`]).
    pub host_bytes: u64,
    /// Bytes written by the cleaner.
    pub gc_bytes: u64,
    /// Bytes of the file core's own metadata.
    pub metadata_bytes: u64,
    /// Bytes programmed into flash, padding included.
    pub media_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Read commands.
    pub reads: u64,
    /// Write and append commands.
    pub writes: u64,
    /// Flush commands.
    pub flushes: u64,
    /// Zone resets.
    pub resets: u64,
    /// Erase-block erases.
    pub erases: u64,
    /// Commands refused with a status.
    pub refused: u64,
    /// Most zones open at once.
    pub open_high_water: u32,
    /// Most zones active at once.
    pub active_high_water: u32,
    /// The device's clock.
    pub now: Nanos,
}

impl DeviceCounters {
    /// Write amplification: everything that reached the flash over what programs wrote. 1.0 when nothing was written.
    pub fn waf(&self) -> f64 {
        if self.host_bytes == 0 { 1.0 } else { self.media_bytes as f64 / self.host_bytes as f64 }
    }
}

/// A zoned device.
///
/// A write that returned is in the device's buffer and readable; it survives a power cut only once a later
/// [`flush`](ZonedDevice::flush) has returned. A power cut leaves of each zone's unflushed blocks a prefix, of any
/// length and cut within a command, and the write pointer at that prefix's end.
pub trait ZonedDevice: Send + Sync {
    /// Shape and limits.
    fn info(&self) -> ZonedInfo;

    /// State and write pointer of a zone.
    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError>;

    /// Writes whole blocks at `at`, which must be the zone's write pointer.
    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError>;

    /// Writes whole blocks at the write pointer, wherever it is; returns the first block written.
    fn append(&self, zone: ZoneId, data: &[u8], tag: &Tag) -> Result<u32, DeviceError>;

    /// Reads whole written blocks.
    fn read(&self, zone: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError>;

    /// Says which blocks are read next, one place after the other: first block and how many. A device that has to wait for
    /// its medium can begin with all of them.
    fn will_read(&self, _places: &[(ZoneId, u32, u32)]) {}

    /// Opens a zone explicitly.
    fn open(&self, zone: ZoneId) -> Result<(), DeviceError>;

    /// Closes an open zone.
    fn close(&self, zone: ZoneId) -> Result<(), DeviceError>;

    /// Makes a zone full.
    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError>;

    /// Empties a zone: erases its blocks, sets the write pointer to its start.
    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError>;

    /// Makes everything written so far survive a power cut.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Whether [`erase`](ZonedDevice::erase) leaves nothing on the medium. No drive promises that of what it keeps behind its interface.
    fn erases(&self) -> bool {
        false
    }

    /// Leaves nothing on the medium of what these zones, which are empty, have held, nor what logs of the device have kept of any zone.
    /// Everything written so far survives a power cut afterwards.
    fn erase(&self, _zones: &[ZoneId]) -> Result<(), DeviceError> {
        self.flush()
    }

    /// What was counted.
    fn counters(&self) -> DeviceCounters;

    /// How others may read without this process; `None` when they cannot.
    fn direct_read(&self) -> Option<DirectRead> {
        None
    }

    /// Counts reads that others made through [`direct_read`](ZonedDevice::direct_read).
    fn count_direct_reads(&self, _reads: u64, _bytes: u64) {}

    /// Checks what must hold of the counters at the end of a run.
    fn verify_identity(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
