//! How a volume is made and mounted.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use weft_core::Tag;
use weft_placement::{Resolver, ZoneResolver};
use weft_vfs::TimeSpec;

/// How a volume is made.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// A name for people; at most [`crate::layout::checkpoint::LABEL_MAX`] bytes.
    pub label: String,
    /// The volume's identity; made from the clock and the process when it is all zero.
    pub uuid: [u8; 16],
    /// User and group that own the root directory, mode 0755.
    pub owner: (u32, u32),
}

/// Where the CRC32C of each device block is kept: memory that others may read, too.
pub trait CrcTable: Send + Sync {
    /// One place for each block of the device (zones x blocks from zone to zone).
    fn slots(&self) -> &[AtomicU32];
}

/// A table in this process's own memory.
#[derive(Debug)]
pub struct HeapCrcTable(Box<[AtomicU32]>);

impl HeapCrcTable {
    /// A table for a device of this many blocks.
    pub fn new(blocks: u64) -> HeapCrcTable {
        HeapCrcTable((0..blocks).map(|_| AtomicU32::new(0)).collect())
    }
}

impl CrcTable for HeapCrcTable {
    fn slots(&self) -> &[AtomicU32] {
        &self.0
    }
}

/// A file's content that went: removed, replaced or truncated to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// The file.
    pub ino: weft_core::Ino,
    /// The tag that its data carried.
    pub tag: Tag,
    /// Its size, in bytes.
    pub size: u64,
    /// The volume's byte clock when its content began.
    pub born_at_bytes: u64,
    /// The volume's byte clock now.
    pub died_at_bytes: u64,
}

/// Told of deaths. Called with the core's lock held: quick, and no call back into the core.
pub type DeathObserver = Box<dyn Fn(&Death) + Send + Sync>;

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
    /// Where CRCs are kept; in this process's own memory when `None`.
    pub crc_table: Option<Arc<dyn CrcTable>>,
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
            crc_table: None,
        }
    }
}
