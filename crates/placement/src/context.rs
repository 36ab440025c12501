//! The properties of a file that placement uses.

use std::time::Duration;

bitflags::bitflags! {
    /// How a file is opened, in the terms of `open(2)`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct OpenIntent: u16 {
        /// `O_CREAT`, and the file did not exist.
        const CREATE = 1;
        /// `O_WRONLY` or `O_RDWR`.
        const WRITE = 1 << 1;
        /// `O_APPEND`.
        const APPEND = 1 << 2;
        /// `O_DIRECT`.
        const DIRECT = 1 << 3;
        /// `O_SYNC` or `O_DSYNC`.
        const SYNC = 1 << 4;
        /// `O_TMPFILE`: no name, gone with its last descriptor.
        const TMPFILE = 1 << 5;
        /// `O_EXCL`.
        const EXCL = 1 << 6;
        /// `O_TRUNC`.
        const TRUNC = 1 << 7;
    }
}

impl OpenIntent {
    /// The flags by the names that policies use, in the order of their bits.
    pub const NAMES: [(&'static str, OpenIntent); 8] = [
        ("create", OpenIntent::CREATE),
        ("write", OpenIntent::WRITE),
        ("append", OpenIntent::APPEND),
        ("direct", OpenIntent::DIRECT),
        ("sync", OpenIntent::SYNC),
        ("tmpfile", OpenIntent::TMPFILE),
        ("excl", OpenIntent::EXCL),
        ("trunc", OpenIntent::TRUNC),
    ];
}

/// The lifetime that the program itself told the kernel (`F_SET_RW_HINT`, values of `fcntl(2)`).
///
/// RocksDB sets it right after it creates a table, before the first write, and it tells the level: the one fact about
/// a table that neither its name nor its thread gives away.
#[repr(u8)]
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum WriteHint {
    /// The program said nothing (`RWH_WRITE_LIFE_NOT_SET`).
    #[default]
    NotSet = 0,
    /// The program said that it does not know (`RWH_WRITE_LIFE_NONE`).
    None = 1,
    /// `RWH_WRITE_LIFE_SHORT`.
    Short = 2,
    /// `RWH_WRITE_LIFE_MEDIUM`.
    Medium = 3,
    /// `RWH_WRITE_LIFE_LONG`.
    Long = 4,
    /// `RWH_WRITE_LIFE_EXTREME`.
    Extreme = 5,
}

impl WriteHint {
    /// Every hint, in the order of its number.
    pub const ALL: [WriteHint; 6] = [
        WriteHint::NotSet,
        WriteHint::None,
        WriteHint::Short,
        WriteHint::Medium,
        WriteHint::Long,
        WriteHint::Extreme,
    ];

    /// The hint with this number in `fcntl`.
    ///
    /// Programs that pass a 4-byte enum to the 8-byte call leave rubbish in the upper half, which the caller
    /// should cut off before it asks.
    pub fn from_fcntl(value: u32) -> Option<WriteHint> {
        WriteHint::ALL.get(value as usize).copied()
    }
}

impl std::fmt::Display for WriteHint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            WriteHint::NotSet => "not-set",
            WriteHint::None => "none",
            WriteHint::Short => "short",
            WriteHint::Medium => "medium",
            WriteHint::Long => "long",
            WriteHint::Extreme => "extreme",
        })
    }
}

/// What is known of a file when it is created or opened for writing.
///
/// [`FileContext::new`] gives one with neutral values for all but the path, so that a caller names what it knows.
#[derive(Clone, Copy, Debug)]
pub struct FileContext<'a> {
    /// The path within the volume, beginning with `/`.
    pub path: &'a [u8],
    /// Name of the process (`/proc/PID/comm`).
    pub process: &'a str,
    /// Name of the thread; the process's name when it has none of its own.
    pub thread: &'a str,
    /// The thread's kernel id, to tell threads of one name apart; 0 = unknown.
    pub thread_id: u32,
    /// How it is opened.
    pub flags: OpenIntent,
    /// What the program told about the file's lifetime.
    pub hint: WriteHint,
    /// Size in bytes.
    pub size: u64,
    /// User id of the owner.
    pub uid: u32,
    /// Bytes that the volume has taken from programs since it was formatted: the clock of lifetimes.
    pub volume_bytes: u64,
    /// Time since the volume was opened.
    pub now: Duration,
}

impl<'a> FileContext<'a> {
    /// A file that is being created at `path`, of which nothing else is known.
    pub fn new(path: &'a [u8]) -> FileContext<'a> {
        FileContext {
            path,
            process: "",
            thread: "",
            thread_id: 0,
            flags: OpenIntent::CREATE.union(OpenIntent::WRITE),
            hint: WriteHint::NotSet,
            size: 0,
            uid: 0,
            volume_bytes: 0,
            now: Duration::ZERO,
        }
    }
}
