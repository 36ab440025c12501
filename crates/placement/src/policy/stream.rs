//! A stream as a policy defines it: class, expected lifetime, how its files form lifetime groups, whether it splits.

use super::error::Problem;
use super::file::{GroupBy, GroupFile, SplitBy};
use std::fmt;
use std::time::Duration;
use weft_core::DataClass;
use weft_core::units::{format_size, parse_size};

/// Groups that threads, files or directories of one stream may have at once, unless the policy says so.
pub const SLOTS_DEFAULT: u16 = 4;
/// Most groups that threads, files or directories of one stream may have at once.
pub const SLOTS_MAX: u16 = 64;
/// Streams that one stream may split into, unless the policy says so.
pub const SPLIT_DEFAULT: u16 = 16;
/// Most streams that one stream may split into.
pub const SPLIT_MAX: u16 = 256;

/// A stream of a policy.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamSpec {
    /// Its name, unique in the policy.
    pub name: String,
    /// What kind of data it holds.
    pub class: DataClass,
    /// Bytes that the volume takes from programs between the data's creation and its death, as the policy expects it;
    /// `None` = unknown. Observed deaths replace it.
    pub lifetime_bytes: Option<u64>,
    /// How its files form lifetime groups.
    pub group: GroupSpec,
    /// Whether it stands for several streams.
    pub split: Option<Split>,
}

/// A stream that stands for several, one for each value of a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// Property that decides on the stream.
    pub by: SplitBy,
    /// Streams at most; files with further values stay in the undivided stream.
    pub max: u16,
}

/// What tells the concurrent groups of a stream apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupKey {
    /// Nothing: one group at a time.
    Stream,
    /// The thread that creates the file: a compaction writes its outputs from one thread.
    Thread,
    /// Each file by itself.
    File,
    /// The file's directory.
    Directory,
}

/// When a new generation of groups begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// Never.
    Endless,
    /// Every so many bytes that the volume takes from programs.
    Bytes(u64),
    /// Every so long.
    Time(Duration),
}

/// How the files of a stream form lifetime groups: files that were created within one window and have the same key
/// share a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSpec {
    /// What tells concurrent groups apart.
    pub key: GroupKey,
    /// Keys at most at once; the one not used for longest gives its group to a new one.
    pub slots: u16,
    /// When a new generation begins.
    pub window: Window,
}

impl GroupSpec {
    /// One group for the whole stream, for good.
    pub const ONE: GroupSpec = GroupSpec { key: GroupKey::Stream, slots: 1, window: Window::Endless };

    /// Reads the `group` table; the error says what is wrong and, if a single value is to blame, where that one stands.
    pub(super) fn read(file: &GroupFile) -> Result<GroupSpec, (Problem, Option<usize>)> {
        let by = file.by.name();
        let bad = |remedy| Err((Problem::BadGroup { by, remedy }, None));
        let key = match file.by {
            GroupBy::None | GroupBy::Bytes | GroupBy::Time => GroupKey::Stream,
            GroupBy::Thread => GroupKey::Thread,
            GroupBy::File => GroupKey::File,
            GroupBy::Directory => GroupKey::Directory,
        };
        let slots = match (&file.slots, key) {
            (None, GroupKey::Stream) => 1,
            (None, _) => SLOTS_DEFAULT,
            (Some(_), GroupKey::Stream) => {
                return bad("slots goes with by = \"thread\", \"file\" or \"directory\" only; remove it");
            }
            (Some(slots), _) => {
                let (value, max) = (*slots.get_ref(), u64::from(SLOTS_MAX));
                if !(1..=max).contains(&value) {
                    let problem = Problem::OutOfRange { key: "slots", value, min: 1, max };
                    return Err((problem, Some(slots.span().start)));
                }
                value as u16
            }
        };
        let window = match (&file.window, file.by) {
            (None, GroupBy::Bytes) => return bad("add window = \"16M\" or another size"),
            (None, GroupBy::Time) => return bad("add window = \"10s\" or another time"),
            (Some(_), GroupBy::None) => return bad("remove the window, or use by = \"bytes\""),
            (None, _) => Window::Endless,
            (Some(text), by) => read_window(text.get_ref(), by).map_err(|p| (p, Some(text.span().start)))?,
        };
        Ok(GroupSpec { key, slots, window })
    }
}

fn read_window(text: &str, by: GroupBy) -> Result<Window, Problem> {
    let bytes = parse_size(text).ok().filter(|b| *b > 0).map(Window::Bytes);
    let time = parse_seconds(text).map(Window::Time);
    let (window, remedy) = match by {
        GroupBy::Bytes => (bytes, "a size above 0 such as \"16M\""),
        GroupBy::Time => (time, "a time such as \"10s\" or \"500ms\""),
        _ => (time.or(bytes), "a size such as \"16M\" or a time such as \"10s\""),
    };
    window.ok_or_else(|| Problem::BadWindow { value: text.to_string(), by: by.name(), remedy })
}

/// Reads `10s`, `1.5s`, `500ms`, `5min`; not `5m`, which is a size.
fn parse_seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, scale) = if let Some(n) = text.strip_suffix("ms") {
        (n, 0.001)
    } else if let Some(n) = text.strip_suffix("min") {
        (n, 60.0)
    } else {
        (text.strip_suffix('s')?, 1.0)
    };
    let seconds = number.trim().parse::<f64>().ok()? * scale;
    (0.001..=1e9).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// Reads a stream's `lifetime`. The words are the kernel's; what they are worth in bytes only has to put streams in
/// order until deaths have been observed.
pub(super) fn read_lifetime(text: &str) -> Option<Option<u64>> {
    Some(match text {
        "unknown" => None,
        "short" => Some(64 << 20),
        "medium" => Some(512 << 20),
        "long" => Some(4 << 30),
        "extreme" => Some(64 << 30),
        size => Some(parse_size(size).ok().filter(|b| *b > 0)?),
    })
}

impl fmt::Display for GroupSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            GroupKey::Stream => f.write_str("one group")?,
            GroupKey::Thread => write!(f, "a group per thread (at most {})", self.slots)?,
            GroupKey::File => write!(f, "a group per file (at most {})", self.slots)?,
            GroupKey::Directory => write!(f, "a group per directory (at most {})", self.slots)?,
        }
        match self.window {
            Window::Endless => Ok(()),
            Window::Bytes(bytes) => write!(f, ", anew every {} written", format_size(bytes)),
            Window::Time(time) => write!(f, ", anew every {} s", time.as_secs_f64()),
        }
    }
}
