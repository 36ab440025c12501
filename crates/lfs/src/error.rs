//! Why a volume cannot be formatted, mounted or checked.

use crate::layout::record::RecordError;
use weft_core::{Ino, ZoneId};
use weft_device::DeviceError;
use weft_vfs::FsError;

/// Why a volume cannot be formatted, mounted, checked or closed. Each names the place on the device where there is one.
#[derive(Debug, thiserror::Error)]
pub enum LfsError {
    /// The device failed or refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No zone is written.
    #[error("not a weft volume: none of the {zones} zones is written; 'weft format' makes a volume")]
    NotAVolume {
        /// Zones looked at.
        zones: u32,
    },
    /// Zones are written, and none holds a complete checkpoint.
    #[error(
        "{written} of the {zones} zones are written, and none holds a checkpoint that can be read: cut short, damaged, or \
         no weft volume"
    )]
    NoCheckpoint {
        /// Zones looked at.
        zones: u32,
        /// Zones that are written.
        written: u32,
    },
    /// The volume was written by a version that this one cannot read.
    #[error(
        "zone {zone}, block 0: format version {major} is not supported, this version reads {supported}; use the weft that wrote it"
    )]
    UnsupportedVersion {
        /// Zone of the header.
        zone: ZoneId,
        /// Its major version.
        major: u16,
        /// The version that this code reads.
        supported: u16,
    },
    /// A zone belongs to another volume.
    #[error(
        "zone {zone}, block 0: the zone belongs to volume {found}, not to {expected}; these zones were never one volume"
    )]
    WrongVolume {
        /// The zone.
        zone: ZoneId,
        /// Volume that the zone names.
        found: String,
        /// Volume that is being mounted.
        expected: String,
    },
    /// The volume was formatted on a device of another shape.
    #[error("zone {zone}, block 0: the volume was formatted with {found}, the device has {expected}")]
    WrongShape {
        /// The zone.
        zone: ZoneId,
        /// Shape in the header.
        found: String,
        /// Shape of the device.
        expected: String,
    },
    /// Something durable is damaged.
    #[error("zone {zone}, block {block}: {what}")]
    Corrupt {
        /// The zone.
        zone: ZoneId,
        /// Block within the zone.
        block: u32,
        /// What is wrong there.
        what: String,
    },
    /// Names and inodes do not fit together, although every checksum is right.
    #[error("inode {ino}: {what}; 'weft fsck' lists all that does not fit ({more} more)")]
    Unfitting {
        /// The inode.
        ino: Ino,
        /// What does not fit.
        what: String,
        /// Further inodes and names that do not.
        more: usize,
    },
    /// The device is too small or allows too few open zones.
    #[error("the device cannot hold a volume: {0}")]
    Unfit(String),
    /// An option is out of its range.
    #[error("option {name}: {what}")]
    BadOption {
        /// The option.
        name: &'static str,
        /// Its range.
        what: String,
    },
    /// The file system failed while it was being brought up or closed.
    #[error("{0}")]
    Fs(#[from] FsError),
}

impl LfsError {
    /// Whether the volume is damaged, so that it may be mounted to be salvaged.
    pub fn is_damage(&self) -> bool {
        match self {
            LfsError::Fs(FsError::HostFull(_)) => false,
            LfsError::Corrupt { .. } | LfsError::Unfitting { .. } | LfsError::Fs(_) => true,
            _ => false,
        }
    }
}

/// Why a record cannot be applied: it contradicts the state before it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    /// It does not parse.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// It names an inode that does not exist.
    #[error("record of inode {0}, which does not exist")]
    NoInode(u64),
    /// It makes something that exists already.
    #[error("inode {0} or its name exists already")]
    Exists(u64),
    /// It treats an inode as a kind that it is not.
    #[error("inode {0} is not {1}")]
    WrongKind(u64, &'static str),
    /// It removes a name that does not exist.
    #[error("directory {0} has no such name")]
    NoName(u64),
    /// It maps blocks outside the device or the largest file.
    #[error("inode {0}: extent outside the device or the largest file")]
    BadExtent(u64),
}

/// A device error as the file-system interface reports it.
pub(crate) fn device_failed(error: DeviceError) -> FsError {
    match error {
        DeviceError::HostFull { .. } => FsError::HostFull(error.to_string()),
        error => FsError::Device(error.to_string()),
    }
}
