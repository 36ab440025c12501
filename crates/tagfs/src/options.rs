//! How a volume is made and mounted.

use std::sync::Arc;
use std::time::Duration;
use weft_tags::EvictionPolicy;

/// How a volume is made.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// A name for people; at most 255 bytes.
    pub label: String,
    /// The volume's identity; random when it is all zero.
    pub uuid: [u8; 16],
    /// User and group that own the root directory, mode 0755.
    pub owner: (u32, u32),
    /// Bytes that the medium grows to at once; what it has is never given up.
    pub capacity_bytes: u64,
    /// Where attributes lie.
    pub layout: Layout,
}

/// Where the attributes of files lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// All those of a file in one node.
    #[default]
    Whole,
    /// Each in a node of its own, as in "ADAPT", figure 5.3.2: for study, since it is slower.
    Fine,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions {
            label: String::new(),
            uuid: [0; 16],
            owner: (0, 0),
            capacity_bytes: 1 << 30,
            layout: Layout::Whole,
        }
    }
}

/// How a volume is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Memory for pages of the store, in bytes. At least [`MountOptions::CACHE_BYTES_MIN`].
    pub cache_bytes: u64,
    /// Which pages of the store leave that memory first; none: as the store has it.
    pub eviction: Option<Arc<dyn EvictionPolicy>>,
    /// Buffered file data beyond which writers store it, in bytes.
    pub dirty_bytes_max: u64,
    /// Buffered data and commits older than this are stored and made durable by a tick.
    pub commit_interval: Duration,
    /// Passes of random bytes over what is deleted securely, before the one of zeros.
    pub erase_passes: u32,
    /// Refuse every change of the volume. What a recovery would write stays in memory.
    pub read_only: bool,
}

impl MountOptions {
    /// The least memory for pages, in bytes.
    pub const CACHE_BYTES_MIN: u64 = 16 << 20;
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            cache_bytes: 256 << 20,
            eviction: None,
            dirty_bytes_max: 64 << 20,
            commit_interval: Duration::from_secs(5),
            erase_passes: 0,
            read_only: false,
        }
    }
}
