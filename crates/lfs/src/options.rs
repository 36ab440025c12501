//! How a volume is made and mounted.

use std::sync::Arc;
use std::time::Duration;
use weft_placement::{Resolver, ZoneResolver};
use weft_vfs::TimeSpec;

/// How a volume is made.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// A name for people; at most [`crate::layout::checkpoint::LABEL_MAX`] bytes.
    pub label: String,
    /// The volume's identity; random when it is all zero.
    pub uuid: [u8; 16],
    /// User and group that own the root directory, mode 0755.
    pub owner: (u32, u32),
}

/// The time of day.
pub type Clock = Arc<dyn Fn() -> TimeSpec + Send + Sync>;

/// How a volume is mounted.
pub struct MountOptions {
    /// Most zones to hold open, journal included; the device's own limits hold besides.
    pub open_zones_max: u32,
    /// Chooses the open zone for each tag.
    pub resolver: Box<dyn Resolver + Send>,
    /// Time stamps, and the age of buffered data.
    pub clock: Clock,
    /// Buffered file data beyond which writers write back, in bytes. At least 1 MiB.
    pub dirty_bytes_max: u64,
    /// Buffered data and journal records older than this are written by [`crate::Lfs::tick`].
    pub commit_interval: Duration,
    /// Change nothing on the device, and refuse every change of the volume.
    pub read_only: bool,
    /// Mount what can be read of a damaged volume, read-only; [`crate::Lfs::lost`] tells what is missing.
    pub salvage: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            open_zones_max: u32::MAX,
            resolver: Box::new(ZoneResolver::new()),
            clock: Arc::new(TimeSpec::now),
            dirty_bytes_max: 64 << 20,
            commit_interval: Duration::from_secs(5),
            read_only: false,
            salvage: false,
        }
    }
}
