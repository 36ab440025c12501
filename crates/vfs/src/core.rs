//! The trait of what a front needs of a core beside its files: background work, byte clock, shutdown, statistics.

use crate::{FileSystem, FsResult};
use weft_core::hist::Summary;
use weft_core::{Ino, Tag};

/// A file core that can be served.
pub trait Core: FileSystem {
    /// Does what is due beside requests: cleaning, write-back, commits by time; to be called about every 100 ms. When it
    /// fails, what programs wrote may be lost.
    fn tick(&self) -> FsResult<()>;

    /// Bytes that programs wrote since the volume was made: the clock of lifetimes.
    fn volume_bytes(&self) -> u64;

    /// Makes everything durable and marks the volume as closed. No operation may follow.
    fn close(&self) -> FsResult<()>;

    /// Sets the observer of the deaths of file content. A core that does not know when content was born calls nobody.
    fn set_death_observer(&self, observer: DeathObserver);

    /// What it has counted.
    fn core_stats(&self) -> CoreStats;
}

/// A file's content that went: removed, replaced or truncated to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// File that died.
    pub ino: Ino,
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

/// What a core counts; since the mount unless stated otherwise. A segment is what a core that moves data frees at once.
#[derive(Clone, Debug, Default)]
pub struct CoreStats {
    /// By stream and lifetime group, in order.
    pub groups: Vec<((u16, u16), GroupStats)>,
    /// As [`Core::volume_bytes`].
    pub volume_bytes: u64,
    /// Segments that the cleaner emptied.
    pub cleaned_segments: u64,
    /// Segments that were freed without anything having been copied out of them.
    pub whole_segment_deaths: u64,
    /// Blocks read whose checksum did not match.
    pub checksum_errors: u64,
    /// Device time that program writes spent on cleaning and write-back, in nanoseconds.
    pub stalls: Summary,
}

/// Counts of one stream and lifetime group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// Files created, or that got this tag, since the mount.
    pub files: u64,
    /// Bytes of theirs written since the mount, cleaning left out.
    pub bytes_written: u64,
    /// Bytes of theirs that the cleaner copied since the mount.
    pub gc_bytes: u64,
    /// Segments now whose first data was theirs.
    pub segments_held: u32,
    /// Live bytes now in those segments.
    pub live_bytes: u64,
}
