//! What a volume counts.

use rustc_hash::FxHashMap;
use weft_core::hist::Summary;
use weft_core::{Tag, ZoneId};

/// Counts of one stream and lifetime group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// Files created, or that got this tag, since the mount.
    pub files: u64,
    /// Bytes of theirs written to data zones since the mount, cleaning left out.
    pub bytes_written: u64,
    /// Bytes of theirs that the cleaner copied since the mount.
    pub gc_bytes: u64,
    /// Zones now whose first data was theirs.
    pub zones_held: u32,
    /// Live bytes now in those zones.
    pub live_bytes: u64,
}

/// Counts of a volume; since the mount unless stated otherwise.
#[derive(Clone, Debug, Default)]
pub struct LfsStats {
    /// By stream and lifetime group, in order.
    pub groups: Vec<((u16, u16), GroupStats)>,
    /// Bytes that programs wrote since the format: the byte clock.
    pub volume_bytes: u64,
    /// Bytes written to data zones for programs.
    pub data_bytes: u64,
    /// Bytes that the cleaner copied.
    pub gc_bytes: u64,
    /// Zones that the cleaner emptied.
    pub gc_zones: u64,
    /// Bytes of journal entries.
    pub journal_bytes: u64,
    /// Bytes of checkpoints.
    pub checkpoint_bytes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Zone headers and footers, in bytes.
    pub header_bytes: u64,
    /// Zone resets.
    pub resets: u64,
    /// Zones that were reset without anything having been copied out of them.
    pub whole_zone_deaths: u64,
    /// Free zones now.
    pub zones_free: u32,
    /// Open data zones now.
    pub zones_open: u32,
    /// Zones in all.
    pub zones_total: u32,
    /// Zones of metadata now.
    pub zones_meta: u32,
    /// Blocks read whose checksum did not match.
    pub checksum_errors: u64,
    /// Device time that program writes spent on cleaning and write-back, in nanoseconds.
    pub stalls: Summary,
    /// Bytes buffered now.
    pub dirty_bytes: u64,
    /// Journal entries that the mount replayed.
    pub entries_replayed: u64,
    /// Journal entries that the mount left out because the data that they map is not whole: written after the last
    /// flush that the journal knows of, and taken by a power cut (or damaged since).
    pub entries_dropped: u64,
    /// fsyncs that were satisfied by a flush that another began.
    pub shared_flushes: u64,
}

/// A zone as `weft zones` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneView {
    /// The zone.
    pub zone: ZoneId,
    /// What it is to the core: `free`, `open`, `parked`, `full`, `dying`, `bad`.
    pub state: &'static str,
    /// What it holds: `meta`, `data` or `-`.
    pub kind: &'static str,
    /// The tag of its first data.
    pub tag: Tag,
    /// Blocks written.
    pub write_pointer: u32,
    /// Bytes of live pieces.
    pub live_bytes: u64,
}

/// Running counts.
#[derive(Default)]
pub(crate) struct Counts {
    pub groups: FxHashMap<(u16, u16), GroupStats>,
    pub data_bytes: u64,
    pub gc_bytes: u64,
    pub gc_zones: u64,
    pub journal_bytes: u64,
    pub checkpoint_bytes: u64,
    pub checkpoints: u64,
    pub header_bytes: u64,
    pub resets: u64,
    pub whole_zone_deaths: u64,
    pub entries_replayed: u64,
    pub entries_dropped: u64,
}

impl Counts {
    pub(crate) fn group(&mut self, tag: &Tag) -> &mut GroupStats {
        self.groups.entry((tag.stream.0, tag.group.0)).or_default()
    }
}
