//! What programs do to files, as a list of events.

use crate::context::{OpenIntent, WriteHint};
use rustc_hash::{FxHashMap, FxHashSet};
use weft_core::BLOCK_BYTES;

/// Something that a program does to a file. Files are numbered by the workload; a number is used once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A file is created.
    Create {
        /// Number of the file.
        file: u32,
        /// Its path within the volume.
        path: Vec<u8>,
        /// Who opens it, and how.
        opener: Opener,
    },
    /// A file that exists is opened for writing.
    Reopen {
        /// Number of the file.
        file: u32,
        /// Its path within the volume.
        path: Vec<u8>,
        /// Who opens it, and how.
        opener: Opener,
    },
    /// The program tells the file's lifetime.
    Hint {
        /// Number of the file.
        file: u32,
        /// The lifetime.
        hint: WriteHint,
    },
    /// Bytes are appended.
    Write {
        /// Number of the file.
        file: u32,
        /// How many.
        bytes: u64,
    },
    /// Bytes are written at an offset that is not the file's end; they may go beyond the end.
    Overwrite {
        /// Number of the file.
        file: u32,
        /// Where, in bytes.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// The size is set: what lies beyond is gone, what is added is a hole.
    Resize {
        /// Number of the file.
        file: u32,
        /// The new size, in bytes.
        size: u64,
    },
    /// A range becomes a hole; the size stays.
    Punch {
        /// Number of the file.
        file: u32,
        /// Where, in bytes.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// The file is made durable.
    Sync {
        /// Number of the file.
        file: u32,
    },
    /// The file has another path.
    Rename {
        /// Number of the file.
        file: u32,
        /// The new path.
        path: Vec<u8>,
    },
    /// The file is closed.
    Close {
        /// Number of the file.
        file: u32,
    },
    /// The file is gone.
    Delete {
        /// Number of the file.
        file: u32,
    },
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
    /// Number of the file that it is about.
    pub fn file(&self) -> u32 {
        match self {
            Event::Create { file, .. }
            | Event::Reopen { file, .. }
            | Event::Hint { file, .. }
            | Event::Write { file, .. }
            | Event::Overwrite { file, .. }
            | Event::Resize { file, .. }
            | Event::Punch { file, .. }
            | Event::Sync { file }
            | Event::Rename { file, .. }
            | Event::Close { file }
            | Event::Delete { file } => *file,
        }
    }

    /// Bytes that it writes.
    pub fn bytes(&self) -> u64 {
        match self {
            Event::Write { bytes, .. } | Event::Overwrite { bytes, .. } => *bytes,
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
    blocks: FxHashSet<u64>,
}

impl Workload {
    /// Most bytes that are live at once, in whole blocks; holes do not count.
    pub fn live_peak_bytes(&self) -> u64 {
        let block = BLOCK_BYTES as u64;
        let mut files: FxHashMap<u32, Counted> = FxHashMap::default();
        let (mut live, mut peak) = (0u64, 0u64);
        for event in &self.events {
            match *event {
                Event::Write { file, bytes } | Event::Overwrite { file, bytes, .. } if bytes > 0 => {
                    let counted = files.entry(file).or_default();
                    let offset =
                        if let Event::Overwrite { offset, .. } = event { *offset } else { counted.size };
                    let end = offset + bytes;
                    counted.size = counted.size.max(end);
                    let added = (offset / block..end.div_ceil(block)).filter(|b| counted.blocks.insert(*b));
                    live += added.count() as u64;
                    peak = peak.max(live);
                }
                Event::Resize { file, size } => {
                    let counted = files.entry(file).or_default();
                    let before = counted.blocks.len();
                    if size < counted.size {
                        counted.blocks.retain(|b| *b < size.div_ceil(block));
                    }
                    counted.size = size;
                    live -= (before - counted.blocks.len()) as u64;
                }
                Event::Punch { file, offset, bytes } => {
                    let counted = files.entry(file).or_default();
                    let before = counted.blocks.len();
                    let (first, end) = (offset.div_ceil(block), (offset + bytes) / block);
                    counted.blocks.retain(|b| *b < first || *b >= end);
                    live -= (before - counted.blocks.len()) as u64;
                }
                Event::Delete { file } => {
                    live -= files.remove(&file).map_or(0, |counted| counted.blocks.len() as u64);
                }
                _ => {}
            }
        }
        peak * block
    }

    /// Bytes that are written in all.
    pub fn written_bytes(&self) -> u64 {
        self.events.iter().map(Event::bytes).sum()
    }
}
