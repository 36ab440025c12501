//! The interface to a drive's zones: commands only, no state.

use crate::DeviceError;
use crate::zoned::{ZoneState, ZonedInfo};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A zone as the interface reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawZone {
    /// Its state.
    pub state: ZoneState,
    /// Blocks from its start to the write pointer. Of a full zone it says nothing. Of a zone that is read-only or
    /// offline, `None` when the drive does not know any more.
    pub write_pointer: Option<u32>,
}

impl RawZone {
    /// Whether it holds something that a reset would destroy.
    pub fn is_written(&self) -> bool {
        match self.state {
            ZoneState::Empty | ZoneState::Offline => false,
            ZoneState::Full | ZoneState::ReadOnly => true,
            _ => self.write_pointer != Some(0),
        }
    }
}

/// What does not change of a drive as long as it is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveInfo {
    /// What to call it in messages: the device, or where its zonefs is mounted.
    pub path: PathBuf,
    /// Shape and limits.
    pub zoned: ZonedInfo,
    /// Most blocks of one command that nobody splits on its way to the drive.
    pub command_blocks_max: u32,
}

/// Commands to the zones of a drive. A zone is written by one thread at a time; what is read was written. Buffers are
/// aligned for direct I/O and hold whole blocks.
pub trait ZoneAccess: Send + Sync + fmt::Debug {
    /// The drive.
    fn drive(&self) -> &DriveInfo;

    /// All zones.
    fn report_all(&self) -> io::Result<Vec<RawZone>>;

    /// One zone.
    fn report(&self, zone: u32) -> io::Result<RawZone>;

    /// Writes at the write pointer; returns the bytes written, which may be fewer. After an error some may have been
    /// written all the same: the zone's report tells.
    fn write(&self, zone: u32, at: u32, data: &[u8]) -> io::Result<usize>;

    /// Reads; returns the bytes read, which may be fewer.
    fn read(&self, zone: u32, at: u32, out: &mut [u8]) -> io::Result<usize>;

    /// Makes a zone open, so that it can be written.
    fn open(&self, zone: u32, how: Opening) -> io::Result<()>;

    /// Closes an open zone that is not full.
    fn close(&self, zone: u32) -> io::Result<()>;

    /// A zone that was opened has become full: what was held for it is let go.
    fn release(&self, zone: u32);

    /// Makes an open zone full.
    fn finish(&self, zone: u32) -> io::Result<()>;

    /// Empties a zone.
    fn reset(&self, zone: u32) -> io::Result<()>;

    /// Makes everything written survive a loss of power.
    fn flush(&self) -> io::Result<()>;
}

/// Why a zone is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// It is about to be written, which opens it anyway.
    ForWrite,
    /// A command asks for it.
    Explicit,
}

/// What a failed command means for the zone. Kernels pass on the drive's limits by numbers that mean something else
/// elsewhere.
pub fn refusal(zone: u32, error: &io::Error, info: &ZonedInfo) -> Option<DeviceError> {
    let zone = weft_core::ZoneId(zone);
    match error.raw_os_error()? {
        libc::ETOOMANYREFS | libc::EBUSY => {
            Some(DeviceError::TooManyOpenZones { zone, limit: info.open_max })
        }
        libc::EOVERFLOW => Some(DeviceError::TooManyActiveZones { zone, limit: info.active_max }),
        _ => None,
    }
}

/// Whether a failed command speaks of the flash, rather than of the host or the whole drive.
pub fn is_media(error: &io::Error) -> bool {
    let media = [libc::EIO, libc::ENODATA, libc::EILSEQ, libc::EREMOTEIO];
    error.raw_os_error().is_some_and(|code| media.contains(&code))
}
