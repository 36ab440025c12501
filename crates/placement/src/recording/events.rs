//! What programs do to files, as a list of events.

use crate::context::{OpenIntent, WriteHint};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use weft_core::BLOCK_BYTES;

/// Something that a program does to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Number of the file. Files are numbered by the workload; a number is used once.
    pub file: u32,
    /// What is done to it.
    pub action: FileAction,
}

/// What is done to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileAction {
    /// A file is created.
    Create {
        /// Its path within the volume.
        path: Vec<u8>,
        /// Who opens it, and how.
        opener: Opener,
    },
    /// A file that exists is opened for writing.
    Reopen {
        /// Its path within the volume.
        path: Vec<u8>,
        /// Who opens it, and how.
        opener: Opener,
    },
    /// The program tells the lifetime that it expects of the file.
    Hint(WriteHint),
    /// Bytes are appended.
    Write {
        /// How many.
        bytes: u64,
    },
    /// Bytes are written at an offset that is not the file's end; they may go beyond the end.
    Overwrite {
        /// Where, in bytes.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// The size is set: what lies beyond is gone, what is added is a hole.
    Resize {
        /// The new size, in bytes.
        size: u64,
    },
    /// A range becomes a hole; the size stays.
    Punch {
        /// Where, in bytes.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// The file is made durable.
    Sync,
    /// The file has another path.
    Rename {
        /// The new path.
        path: Vec<u8>,
    },
    /// The file is closed.
    Close,
    /// The file is gone.
    Delete,
}

/// Who opens a file, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Opener {
    /// Name of the process.
    pub process: String,
    /// Name of the thread.
    pub thread: String,
    /// The thread's number; 0 when not known.
    pub thread_id: u32,
    /// How it is opened.
    pub flags: OpenIntent,
}

impl Event {
    /// An action on a file.
    pub fn new(file: u32, action: FileAction) -> Event {
        Event { file, action }
    }

    /// Bytes that it writes.
    pub fn bytes(&self) -> u64 {
        match self.action {
            FileAction::Write { bytes } | FileAction::Overwrite { bytes, .. } => bytes,
            _ => 0,
        }
    }
}

/// Events, and what they amount to.
#[derive(Clone, Default, Debug)]
pub struct Workload {
    /// The events, in order.
    pub events: Vec<Event>,
}

/// A file while its blocks are counted.
#[derive(Default)]
struct Counted {
    size: u64,
    blocks: Blocks,
}

/// Blocks of a file, as ranges: a recording that tells of huge writes costs no more than one of small ones.
#[derive(Default)]
struct Blocks {
    /// End of each range, by its beginning. Ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl Blocks {
    fn remove(&mut self, from: u64, to: u64) {
        while let Some((&begin, &end)) = self.ranges.range(..to).next_back().filter(|(_, end)| **end > from) {
            self.ranges.remove(&begin);
            self.count -= end.min(to) - begin.max(from);
            if begin < from {
                self.ranges.insert(begin, from);
            }
            if end > to {
                self.ranges.insert(to, end);
            }
        }
    }

    fn insert(&mut self, mut from: u64, mut to: u64) {
        self.remove(from, to);
        self.count += to - from;
        if let Some((&begin, _)) = self.ranges.range(..from).next_back().filter(|(_, end)| **end == from) {
            from = begin;
        }
        if let Some(end) = self.ranges.remove(&to) {
            to = end;
        }
        let before = self.ranges.insert(from, to);
        debug_assert!(
            from < to && before.is_none_or(|end| end < to),
            "a range is longer than the one it joins"
        );
    }
}

impl Workload {
    /// Most bytes that are live at once, in whole blocks; holes do not count.
    pub fn live_peak_bytes(&self) -> u64 {
        let block = BLOCK_BYTES as u64;
        let mut files: FxHashMap<u32, Counted> = FxHashMap::default();
        let (mut live, mut peak) = (0u64, 0u64);
        for event in &self.events {
            if event.action == FileAction::Delete {
                live -= files.remove(&event.file).map_or(0, |counted| counted.blocks.count);
                continue;
            }
            let counted = files.entry(event.file).or_default();
            let before = counted.blocks.count;
            match event.action {
                FileAction::Write { bytes } | FileAction::Overwrite { bytes, .. } if bytes > 0 => {
                    let offset = match event.action {
                        FileAction::Overwrite { offset, .. } => offset,
                        _ => counted.size,
                    };
                    let end = offset + bytes;
                    counted.size = counted.size.max(end);
                    counted.blocks.insert(offset / block, end.div_ceil(block));
                }
                FileAction::Resize { size } => {
                    counted.blocks.remove(size.div_ceil(block), u64::MAX);
                    counted.size = size;
                }
                FileAction::Punch { offset, bytes } => {
                    let (first, end) = (offset.div_ceil(block), (offset + bytes) / block);
                    if first < end {
                        counted.blocks.remove(first, end);
                    }
                }
                _ => {}
            }
            debug_assert!(before <= live, "a file has more live blocks than all together");
            live = live - before + counted.blocks.count;
            peak = peak.max(live);
        }
        peak * block
    }

    /// Bytes that are written in all.
    pub fn written_bytes(&self) -> u64 {
        self.events.iter().map(Event::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_of_blocks_are_the_set_of_them(
            steps in prop::collection::vec((any::<bool>(), 0..40u64, 1..12u64), 0..40)
        ) {
            let (mut blocks, mut set) = (Blocks::default(), BTreeSet::new());
            for (add, from, len) in steps {
                if add {
                    blocks.insert(from, from + len);
                    set.extend(from..from + len);
                } else {
                    blocks.remove(from, from + len);
                    set.retain(|block| !(from..from + len).contains(block));
                }
                let listed: Vec<u64> = blocks.ranges.iter().flat_map(|(from, to)| *from..*to).collect();
                prop_assert_eq!(&listed, &set.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(blocks.count, set.len() as u64);
                let parts = blocks.ranges.iter().zip(blocks.ranges.iter().skip(1));
                prop_assert!(parts.clone().all(|((_, end), (begin, _))| end < begin), "joined where they touch");
            }
        }
    }

    #[test]
    fn a_recording_of_a_huge_write_is_counted_without_its_blocks() {
        let text = format!("O 1 1 t 241 /a\nP 1 5 {}\nT 1 4096\nW 1 5\n", 1u64 << 61);
        let workload = Workload::parse(&text, "p").unwrap();
        assert_eq!(workload.live_peak_bytes(), (1 << 61) + 4096);
    }

    #[test]
    fn a_recording_that_writes_more_than_can_be_counted_is_refused() {
        let line = format!("W 1 {}\n", 1u64 << 62);
        let text = format!("O 1 1 t 241 /a\n{line}{line}");
        let error = Workload::parse(&text, "p").unwrap_err().to_string();
        assert!(error.starts_with("line 3: 'W 1 4611686018427387904' ") && error.contains("2^62"), "{error}");
    }
}
