//! What programs do to files, as a list of events, and the text form in which it can be recorded.

use crate::context::{OpenIntent, WriteHint};

/// Something that a program does to a file. Files are numbered by the workload; a number is used once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A file is created, or opened for writing anew.
    Create {
        /// Number of the file.
        file: u32,
        /// Its path within the volume.
        path: Vec<u8>,
        /// Name of the process.
        process: String,
        /// Name of the thread.
        thread: String,
        /// The thread's number.
        thread_id: u32,
        /// How it is opened.
        flags: OpenIntent,
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

/// Events, and what they amount to.
#[derive(Clone, Default, Debug)]
pub struct Workload {
    /// The events, in order.
    pub events: Vec<Event>,
}

/// A line of a recording that is not an event.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "line {line}: '{text}' is not an event; see the documentation of Workload::parse for the form of each"
)]
pub struct BadRecording {
    /// The line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

impl Workload {
    /// Most bytes that are live at once, with files rounded up to blocks.
    pub fn live_peak_bytes(&self) -> u64 {
        let block = weft_core::BLOCK_BYTES as u64;
        let mut sizes: Vec<u64> = Vec::new();
        let (mut live, mut peak) = (0u64, 0u64);
        for event in &self.events {
            match *event {
                Event::Write { file, bytes } => {
                    let at = file as usize;
                    if sizes.len() <= at {
                        sizes.resize(at + 1, 0);
                    }
                    let before = sizes[at].div_ceil(block);
                    sizes[at] += bytes;
                    live += (sizes[at].div_ceil(block) - before) * block;
                    peak = peak.max(live);
                }
                Event::Delete { file } => {
                    if let Some(size) = sizes.get_mut(file as usize) {
                        live -= size.div_ceil(block) * block;
                        *size = 0;
                    }
                }
                Event::Create { .. } | Event::Hint { .. } | Event::Close { .. } => {}
            }
        }
        peak
    }

    /// Bytes that are written in all.
    pub fn written_bytes(&self) -> u64 {
        self.events.iter().map(|e| if let Event::Write { bytes, .. } = e { *bytes } else { 0 }).sum()
    }

    /// Reads a recording: one event a line, fields separated by spaces, which therefore must not be in paths.
    ///
    /// ```text
    /// O FILE THREAD_ID THREAD FLAGS PATH    opened for writing; FLAGS as open(2) takes them, in hexadecimal
    /// H FILE HINT                           fcntl(F_SET_RW_HINT), 0 to 5
    /// W FILE BYTES                          appended
    /// C FILE                                closed
    /// U PATH                                unlinked
    /// R PATH PATH                           renamed
    /// ```
    ///
    /// `process` is the name of the program that was recorded.
    ///
    /// # Errors
    /// The first line that is none of these.
    pub fn parse(text: &str, process: &str) -> Result<Workload, BadRecording> {
        let mut events = Vec::new();
        let mut by_path = rustc_hash::FxHashMap::<&str, u32>::default();
        for (index, line) in text.lines().enumerate() {
            let fields: Vec<&str> = line.split(' ').collect();
            let read = || -> Option<Option<Event>> {
                Some(match *fields.as_slice() {
                    ["O", file, thread_id, thread, flags, path] => {
                        let file = file.parse().ok()?;
                        // A file that is opened again is overwritten, as O_TRUNC does, which all recorded programs use.
                        if let Some(old) = by_path.insert(path, file) {
                            events.push(Event::Delete { file: old });
                        }
                        Some(Event::Create {
                            file,
                            path: path.as_bytes().to_vec(),
                            process: process.to_string(),
                            thread: thread.to_string(),
                            thread_id: thread_id.parse().ok()?,
                            flags: open_flags(u32::from_str_radix(flags, 16).ok()?),
                        })
                    }
                    ["H", file, hint] => Some(Event::Hint {
                        file: file.parse().ok()?,
                        hint: WriteHint::from_fcntl(hint.parse().ok()?)?,
                    }),
                    ["W", file, bytes] => {
                        Some(Event::Write { file: file.parse().ok()?, bytes: bytes.parse().ok()? })
                    }
                    ["C", file] => Some(Event::Close { file: file.parse().ok()? }),
                    ["U", path] => by_path.remove(path).map(|file| Event::Delete { file }),
                    ["R", from, to] => {
                        let replaced = by_path.remove(to);
                        if let Some(file) = by_path.remove(from) {
                            by_path.insert(to, file);
                        }
                        replaced.map(|file| Event::Delete { file })
                    }
                    _ => return None,
                })
            };
            let mut read = read;
            match read() {
                Some(event) => events.extend(event),
                None => return Err(BadRecording { line: index + 1, text: line.to_string() }),
            }
        }
        Ok(Workload { events })
    }
}

/// The flags of Linux on x86-64 and most others.
fn open_flags(raw: u32) -> OpenIntent {
    let mut flags = OpenIntent::WRITE;
    for (bits, flag) in [
        (0o100, OpenIntent::CREATE),
        (0o200, OpenIntent::EXCL),
        (0o1000, OpenIntent::TRUNC),
        (0o2000, OpenIntent::APPEND),
        (0o10000, OpenIntent::SYNC),
        (0o40000, OpenIntent::DIRECT),
    ] {
        flags.set(flag, raw & bits != 0);
    }
    flags
}
