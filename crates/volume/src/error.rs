//! Why a volume cannot be opened, mounted or closed.

use std::io;
use std::path::PathBuf;
use weft_device::DeviceError;
use weft_device::nand::FlashError;
use weft_flash_pages::FlashPagesError;
use weft_lfs::LfsError;
use weft_placement::PolicyError;
use weft_tagfs::TagFsError;
use weft_vfs::FsError;

/// Why a volume cannot be opened, mounted or closed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The device refused or its image is not one.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An image that can only be read.
    #[error("{}: cannot be opened for writing: {source}", path.display())]
    NotWritable {
        /// Path that the volume's name gives.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A real drive that is to delay as a modelled one does.
    #[error("{}: --real-time applies to modelled devices only; leave it out, a real drive has its own timing", .0.display())]
    KeepsItsTime(PathBuf),
    /// Priorities of pages for a volume that has no cache with classes.
    #[error("{}: --cache-class and --cache-policy apply to volumes of the core tagfs only", .0.display())]
    NoPageClasses(PathBuf),
    /// A drive to be formatted holds data.
    #[error("{}: {zones} of the drive's zones hold data", path.display())]
    Written {
        /// Path that the volume's name gives.
        path: PathBuf,
        /// How many zones.
        zones: u32,
    },
    /// The log-structured core cannot mount, make or close the volume.
    #[error("{volume}: {source}")]
    Lfs {
        /// Name of the volume.
        volume: String,
        /// Why.
        source: LfsError,
    },
    /// The core on a tag store cannot mount, make or close the volume.
    #[error("{volume}: {source}")]
    TagFs {
        /// Name of the volume.
        volume: String,
        /// Why.
        source: TagFsError,
    },
    /// Only volumes of the core on a tag store have snapshots.
    #[error("{}: a volume of the core lfs has no snapshots", .0.display())]
    NoSnapshots(PathBuf),
    /// The image of a flash device cannot be opened.
    #[error(transparent)]
    Flash(FlashError),
    /// The medium of a volume on flash was not made or not opened.
    #[error("{volume}: {source}")]
    FlashPages {
        /// Name of the volume.
        volume: String,
        /// Why.
        source: FlashPagesError,
    },
    /// The file system of the image has no room for what the core has to write. It names the image, and what to do.
    #[error("{0}")]
    HostFull(String),
    /// What programs had made durable in the append log of an image cannot be stored.
    #[error(
        "{volume}: what is left in the image's append log cannot be stored: {source}; it stays there for the next mount"
    )]
    AppendLog {
        /// Name of the volume.
        volume: String,
        /// Why.
        source: FsError,
    },
    /// A core cannot be closed.
    #[error("{volume}: {source}")]
    Close {
        /// Name of the volume.
        volume: String,
        /// Why.
        source: FsError,
    },
    /// Files in memory without a device are always new and writable.
    #[error("{0}: files in memory are made for one run, and cannot be mounted read-only")]
    AlwaysNew(String),
    /// A policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A policy's text is wrong.
    #[error("{source}{excerpt}")]
    PolicyText {
        /// What is wrong.
        source: Box<PolicyError>,
        /// The line in question, with a mark below the place; begins with a new line, or is empty.
        excerpt: String,
    },
    /// What is on the volume cannot be recorded.
    #[error("files on the volume cannot be recorded: {0}")]
    Unrecordable(FsError),
    /// The operating system refused.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl VolumeError {
    /// The error of a log-structured core; a device's own names its place itself.
    pub fn lfs(volume: &str, source: LfsError) -> VolumeError {
        match source {
            LfsError::Device(error) => VolumeError::Device(error),
            LfsError::Fs(FsError::HostFull(what)) => VolumeError::HostFull(what),
            source => VolumeError::Lfs { volume: volume.to_string(), source },
        }
    }

    /// The error of a medium on flash; where the image cannot be opened, that of the image.
    pub fn flash(volume: &str, source: FlashPagesError) -> VolumeError {
        match source {
            FlashPagesError::Image(FlashError::Device(error @ DeviceError::Busy(_))) => {
                VolumeError::Device(error)
            }
            FlashPagesError::Image(error) => VolumeError::Flash(error),
            source => VolumeError::FlashPages { volume: volume.to_string(), source },
        }
    }

    /// The error of a core on a tag store; where the image cannot be opened, that of the image.
    pub fn tagfs(volume: &str, source: TagFsError) -> VolumeError {
        match source {
            TagFsError::Store(weft_tags::Error::InUse { path, .. }) => {
                VolumeError::Device(DeviceError::Busy(path))
            }
            TagFsError::Store(weft_tags::Error::Open { path, source }) => match source.raw_os_error() {
                Some(libc::EACCES | libc::EROFS | libc::EPERM) => VolumeError::NotWritable { path, source },
                _ => VolumeError::Device(DeviceError::Io { path, source }),
            },
            source => VolumeError::TagFs { volume: volume.to_string(), source },
        }
    }
}
