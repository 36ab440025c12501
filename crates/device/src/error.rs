//! What a device refuses and why. Refusals carry the status that the NVMe ZNS specification names.

use crate::zoned::ZoneState;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use weft_core::ZoneId;

/// A command that the device did not carry out.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Status "Zone Boundary Error".
    #[error(
        "zone {zone}: {blocks} blocks at block {at} cross the writable end of the zone (capacity {capacity} blocks)"
    )]
    ZoneBoundary {
        /// Zone that the command addresses.
        zone: ZoneId,
        /// First block of the command within the zone.
        at: u32,
        /// Blocks of the command.
        blocks: u32,
        /// Writable blocks of the zone.
        capacity: u32,
    },
    /// Status "Zone Is Full".
    #[error("zone {0} is full")]
    ZoneFull(ZoneId),
    /// Status "Zone Is Read Only".
    #[error("zone {0} is read-only")]
    ZoneReadOnly(ZoneId),
    /// Status "Zone Is Offline".
    #[error("zone {0} is offline")]
    ZoneOffline(ZoneId),
    /// Status "Zone Invalid Write": not at the write pointer.
    #[error("zone {zone}: write at block {at}, but the write pointer is at block {write_pointer}")]
    ZoneInvalidWrite {
        /// Zone that the command addresses.
        zone: ZoneId,
        /// Where the write was to begin.
        at: u32,
        /// Where it has to begin.
        write_pointer: u32,
    },
    /// Status "Too Many Active Zones".
    #[error("zone {zone}: the device allows {limit} active zones")]
    TooManyActiveZones {
        /// The zone that was to become active.
        zone: ZoneId,
        /// Most zones in that state.
        limit: u32,
    },
    /// Status "Too Many Open Zones".
    #[error("zone {zone}: the device allows {limit} open zones and all are explicitly open")]
    TooManyOpenZones {
        /// The zone that was to be opened.
        zone: ZoneId,
        /// Most zones in that state.
        limit: u32,
    },
    /// Status "Invalid Zone State Transition".
    #[error("zone {zone} is {state}: {action} is not allowed")]
    InvalidTransition {
        /// Zone that the command addresses.
        zone: ZoneId,
        /// Its state.
        state: ZoneState,
        /// What was asked for.
        action: &'static str,
    },
    /// Status "LBA Out of Range".
    #[error("zone {zone}, block {at}: the device has {zones} zones of {zone_blocks} blocks")]
    OutOfRange {
        /// The zone of the command.
        zone: ZoneId,
        /// The block of the command within the zone.
        at: u32,
        /// Zones of the device.
        zones: u32,
        /// Blocks of a zone.
        zone_blocks: u32,
    },
    /// A read of blocks at or beyond the write pointer.
    #[error("zone {zone}: read of block {at}, but only {write_pointer} blocks are written")]
    ReadBeyondWritePointer {
        /// Zone that the command addresses.
        zone: ZoneId,
        /// First block that is not written.
        at: u32,
        /// Blocks written.
        write_pointer: u32,
    },
    /// A length that is not a multiple of the block size.
    #[error("{0} bytes are not a multiple of the block size")]
    Unaligned(usize),
    /// The flash under the command failed: program, erase or uncorrectable read.
    #[error("zone {zone}, block {at}: {what} failed")]
    Media {
        /// Zone that the command addresses.
        zone: ZoneId,
        /// The block within the zone.
        at: u32,
        /// The flash operation.
        what: &'static str,
    },
    /// Power is gone (injected); nothing works until the device is opened again.
    #[error("the device has lost power")]
    PowerLost,
    /// The image file's content is not a device that this version can read.
    #[error("{path}: {what}")]
    BadImage {
        /// Path of the image.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Another process has the device.
    #[error("{0}: in use by another process")]
    Busy(PathBuf),
    /// A geometry or timing that cannot be.
    #[error("bad geometry: {0}")]
    BadGeometry(String),
    /// The erase identity does not hold: the model has a defect.
    #[error(
        "erase identity violated: {erased_bytes} bytes erased, {written_bytes} bytes written since, {open_bytes} bytes in open blocks"
    )]
    EraseIdentity {
        /// Erases times the bytes of a block.
        erased_bytes: u64,
        /// Media bytes written.
        written_bytes: u64,
        /// Bytes by which they may differ.
        open_bytes: u64,
    },
    /// A drive that is no zoned one, or not one that can be used.
    #[error("{path}: {what}")]
    BadDrive {
        /// The drive, or where its zonefs is mounted.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Somebody else has written to the drive meanwhile.
    #[error(
        "zone {zone}: the drive's write pointer is at block {found}, but was left at {expected}: another program has used the drive"
    )]
    WritePointerMoved {
        /// Zone that the command addresses.
        zone: ZoneId,
        /// Where it was left, in blocks.
        expected: u32,
        /// Where it is.
        found: u32,
    },
    /// The file system of the image has no room for what the device is to keep. The image is as after a power cut.
    #[error(
        "{path}: no space is left on the file system of the image ({source}); free some there, then give the command again"
    )]
    HostFull {
        /// The image.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A sync of the image has failed in this use of it. What the system then says of what was written since the sync before is not to be
    /// believed, so nothing is written any more.
    #[error(
        "{path}: a sync has failed ({why}), and what was written since the one before it may be lost; nothing is written until the \
         image has been closed and opened again"
    )]
    SyncFailed {
        /// The image.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The image or device.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl DeviceError {
    /// What the system said about an image.
    pub(crate) fn of_image(path: &Path, source: std::io::Error) -> DeviceError {
        let path = path.to_path_buf();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => DeviceError::HostFull { path, source },
            _ => DeviceError::Io { path, source },
        }
    }

    /// The same error, if it is one of the host.
    pub(crate) fn of_host(&self) -> Option<DeviceError> {
        let again = |source: &std::io::Error| match source.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::Error::new(source.kind(), source.to_string()),
        };
        match self {
            DeviceError::HostFull { path, source } => {
                Some(DeviceError::HostFull { path: path.clone(), source: again(source) })
            }
            DeviceError::Io { path, source } => {
                Some(DeviceError::Io { path: path.clone(), source: again(source) })
            }
            DeviceError::SyncFailed { path, why } => {
                Some(DeviceError::SyncFailed { path: path.clone(), why: why.clone() })
            }
            _ => None,
        }
    }

    /// Whether the device refused the command for what it is, so that its sender has a defect; not when flash, power
    /// or the host failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            DeviceError::ZoneBoundary { .. }
            | DeviceError::ZoneFull(_)
            | DeviceError::ZoneReadOnly(_)
            | DeviceError::ZoneOffline(_)
            | DeviceError::ZoneInvalidWrite { .. }
            | DeviceError::TooManyActiveZones { .. }
            | DeviceError::TooManyOpenZones { .. }
            | DeviceError::InvalidTransition { .. }
            | DeviceError::OutOfRange { .. }
            | DeviceError::ReadBeyondWritePointer { .. }
            | DeviceError::Unaligned(_) => true,
            DeviceError::Media { .. }
            | DeviceError::PowerLost
            | DeviceError::BadImage { .. }
            | DeviceError::Busy(_)
            | DeviceError::BadGeometry(_)
            | DeviceError::EraseIdentity { .. }
            | DeviceError::BadDrive { .. }
            | DeviceError::WritePointerMoved { .. }
            | DeviceError::HostFull { .. }
            | DeviceError::SyncFailed { .. }
            | DeviceError::Io { .. } => false,
        }
    }
}
