//! What a volume counts.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_core::{Tag, ZoneId};
use weft_vfs::{CoreStats, GroupStats};

/// Counts of a volume; since the mount unless stated otherwise.
#[derive(Clone, Debug, Default)]
pub struct LfsStats {
    /// What every core counts; a segment is a zone.
    pub core: CoreStats,
    /// Bytes that the cleaner copied.
    pub gc_bytes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Zone resets.
    pub resets: u64,
    /// Journal entries that the mount replayed.
    pub entries_replayed: u64,
    /// Journal entries that the mount left out because the data that they map is not whole: written after the last
    /// flush that the journal knows of, and taken by a power cut (or damaged since).
    pub entries_dropped: u64,
}

/// What a zone is to the core. Its name in reports is the variant's, in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZoneCondition {
    /// Erased.
    Free,
    /// Being written.
    Open,
    /// Partly written with data, and not open.
    Parked,
    /// Written to its end.
    Full,
    /// Without anything that lives, waiting for its reset.
    Dying,
    /// Such that the device can no longer write it.
    Bad,
}

impl fmt::Display for ZoneCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["free", "open", "parked", "full", "dying", "bad"][*self as usize])
    }
}

/// What a zone holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ZoneContent {
    /// The journal and checkpoints.
    #[serde(rename = "meta")]
    Metadata,
    /// Data of files.
    #[serde(rename = "data")]
    Data,
    /// Nothing.
    #[serde(rename = "-")]
    Nothing,
}

impl fmt::Display for ZoneContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["meta", "data", "-"][*self as usize])
    }
}

/// A zone as `weft zones` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneView {
    /// The zone.
    pub zone: ZoneId,
    /// What it is to the core.
    pub state: ZoneCondition,
    /// What it holds.
    pub kind: ZoneContent,
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
    pub gc_bytes: u64,
    pub gc_zones: u64,
    pub checkpoints: u64,
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
