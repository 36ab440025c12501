//! The text form of a workload (`docs/formats/recording.md`): what [`Workload::parse`] reads and an [`Event`] prints.
//!
//! A recording that weft makes names files by their numbers. One that another tool makes of system calls knows paths
//! only; it may name the end of a file, and its move, by path. The first line tells them apart.

use super::events::{Event, FileAction, Opener, Workload};
use crate::context::{OpenIntent, WriteHint};
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;
use std::io::{self, BufRead, Read};

/// The version that is written and read.
pub const RECORDING_VERSION: u32 = 1;
/// Characters of a bad line that are shown.
const SHOWN_MAX: usize = 80;
/// Bytes of a line, more than any event takes: two paths with every byte escaped, and numbers. What has no lines (a device, a
/// pipe of zeros) is not read to its end.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Largest offset and size, in bytes: a file's largest.
const OFFSET_MAX: u64 = 1 << 62;

/// A recording that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadRecording {
    /// The file cannot be.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It holds something else.
    #[error(transparent)]
    Bad(#[from] BadRecording),
}

/// A line of a recording that is not an event, or cannot be one there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: '{text}' {why}")]
pub struct BadRecording {
    /// The line, from 1.
    pub line: usize,
    /// Its text, cut when it is long.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

const NOT_AN_EVENT: &str = "is not an event (the form of each: docs/formats/recording.md)";
const CUT_SHORT: &str =
    "is the last line, and a recording ends with a line E: it was cut short; record it again";

/// A name without the characters that separate fields and lines: these, `%` and what is no ASCII as `%XX`; nothing as
/// `-`.
struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b"" => return f.write_str("-"),
            b"-" => return f.write_str("%2D"),
            _ => {}
        }
        for &byte in self.0 {
            match byte {
                b'%' | 0..=b' ' | 0x7f.. => write!(f, "%{byte:02X}")?,
                _ => write!(f, "{}", byte as char)?,
            }
        }
        Ok(())
    }
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    Some(out)
}

fn text_of(field: &str) -> Option<String> {
    unescaped(field).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The first line of a recording of a program.
pub fn first_line(program: &str) -> String {
    format!("V {RECORDING_VERSION} {}", Escaped(program.as_bytes()))
}

/// The last line.
pub const LAST_LINE: &str = "E";

impl fmt::Display for Event {
    /// The event's line, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file;
        match &self.action {
            FileAction::Create { path, opener } | FileAction::Reopen { path, opener } => {
                let (thread, process) =
                    (Escaped(opener.thread.as_bytes()), Escaped(opener.process.as_bytes()));
                let flags = flags_to_open(opener.flags);
                write!(f, "O {file} {} {thread} {flags:x} {} {process}", opener.thread_id, Escaped(path))
            }
            FileAction::Hint(hint) => write!(f, "H {file} {}", *hint as u8),
            FileAction::Write { bytes } => write!(f, "W {file} {bytes}"),
            FileAction::Overwrite { offset, bytes } => write!(f, "P {file} {offset} {bytes}"),
            FileAction::Resize { size } => write!(f, "T {file} {size}"),
            FileAction::Punch { offset, bytes } => write!(f, "Z {file} {offset} {bytes}"),
            FileAction::Sync => write!(f, "S {file}"),
            FileAction::Rename { path } => write!(f, "M {file} {}", Escaped(path)),
            FileAction::Close => write!(f, "C {file}"),
            FileAction::Delete => write!(f, "D {file}"),
        }
    }
}

impl Workload {
    /// Reads a recording (`docs/formats/recording.md`). `process` is the name of the program when the recording does
    /// not tell it.
    ///
    /// # Errors
    /// The first line that is no event, or names a file that was never opened; a recording without its last line.
    pub fn parse(text: &str, process: &str) -> Result<Workload, BadRecording> {
        match Workload::read(text.as_bytes(), process) {
            Ok(workload) => Ok(workload),
            Err(UnreadRecording::Bad(bad)) => Err(bad),
            Err(UnreadRecording::Io(_)) => unreachable!("memory is read"),
        }
    }

    /// As [`parse`](Self::parse), from a file, which is read no further than to its first line that is no event.
    ///
    /// # Errors
    /// Those of `parse`, and of the file.
    pub fn read(mut from: impl BufRead, process: &str) -> Result<Workload, UnreadRecording> {
        let mut reader = Reader { process, ..Reader::default() };
        let bad = |index: usize, line: &str, why| {
            let text = if line.chars().count() > SHOWN_MAX {
                line.chars().take(SHOWN_MAX).chain("...".chars()).collect()
            } else {
                line.to_string()
            };
            BadRecording { line: index + 1, text, why }
        };
        let (mut lines, mut last, mut bytes) = (0, String::new(), Vec::new());
        while from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? > 0 {
            // Bytes that are no text fail in their line, which is what helps to find them.
            let text = String::from_utf8_lossy(&bytes);
            let line = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
            reader.line(lines, line).map_err(|why| bad(lines, line, why))?;
            lines += 1;
            last.replace_range(.., line);
            bytes.clear();
        }
        if reader.by_number && !reader.ended {
            return Err(bad(lines - 1, &last, CUT_SHORT).into());
        }
        Ok(Workload { events: reader.events })
    }
}

/// A recording while it is read.
#[derive(Default)]
struct Reader<'a> {
    process: &'a str,
    /// Whether weft made it.
    by_number: bool,
    ended: bool,
    /// Files that were opened.
    known: FxHashSet<u32>,
    /// Files by path, when another tool made it.
    by_path: FxHashMap<Vec<u8>, u32>,
    events: Vec<Event>,
    /// Bytes that the events write.
    written: u64,
}

impl Reader<'_> {
    fn line(&mut self, index: usize, line: &str) -> Result<(), &'static str> {
        if self.ended {
            return Err("stands behind the end of the recording");
        }
        let fields: Vec<&str> = line.split(' ').collect();
        match *fields.as_slice() {
            ["V", version, _] => {
                if index > 0 {
                    return Err("is a first line in the middle of a recording");
                }
                if version.parse() != Ok(RECORDING_VERSION) {
                    return Err("is of another version of the format than 1; use the weft that recorded it");
                }
                self.by_number = true;
                return Ok(());
            }
            [LAST_LINE] => {
                self.ended = true;
                return Ok(());
            }
            ["U", path] if !self.by_number => {
                let path = unescaped(path).ok_or(NOT_AN_EVENT)?;
                self.delete_path(&path);
                return Ok(());
            }
            ["R", from, to] if !self.by_number => {
                let (from, to) = (unescaped(from).ok_or(NOT_AN_EVENT)?, unescaped(to).ok_or(NOT_AN_EVENT)?);
                self.delete_path(&to);
                if let Some(file) = self.by_path.remove(&from) {
                    self.by_path.insert(to.clone(), file);
                    self.events.push(Event::new(file, FileAction::Rename { path: to }));
                }
                return Ok(());
            }
            _ => {}
        }
        let event = self.event(&fields).ok_or(NOT_AN_EVENT)?;
        let file = event.file;
        if let FileAction::Create { path, .. } = &event.action {
            // A path that is created again is overwritten, as O_TRUNC does.
            if !self.by_number
                && let Some(old) = self.by_path.insert(path.clone(), file)
            {
                self.events.push(Event::new(old, FileAction::Delete));
            }
            self.known.insert(file);
        } else if !self.known.contains(&file) {
            return Err("is about a file that was never opened");
        }
        self.written += event.bytes();
        if self.written > OFFSET_MAX {
            return Err("writes, with what was written before, more than 2^62 bytes");
        }
        self.events.push(event);
        Ok(())
    }

    fn delete_path(&mut self, path: &[u8]) {
        self.events.extend(self.by_path.remove(path).map(|file| Event::new(file, FileAction::Delete)));
    }

    fn event(&self, fields: &[&str]) -> Option<Event> {
        let bytes = |text: &str| text.parse::<u64>().ok().filter(|&n| n <= OFFSET_MAX);
        let [kind, file, rest @ ..] = fields else { return None };
        let file = file.parse().ok()?;
        let action = match (*kind, rest) {
            ("O", [thread_id, thread, flags, path, process @ ..]) if process.len() <= 1 => {
                let process = match process.first() {
                    Some(process) => text_of(process)?,
                    None => self.process.to_string(),
                };
                let path = unescaped(path)?;
                let flags = open_to_flags(u32::from_str_radix(flags, 16).ok()?);
                let (thread, thread_id) = (text_of(thread)?, thread_id.parse().ok()?);
                let opener = Opener { process, thread, thread_id, flags };
                if self.known.contains(&file) {
                    FileAction::Reopen { path, opener }
                } else {
                    FileAction::Create { path, opener }
                }
            }
            ("H", [hint]) => FileAction::Hint(WriteHint::from_fcntl(hint.parse().ok()?)?),
            ("W", [count]) => FileAction::Write { bytes: bytes(count)? },
            ("P", [offset, count]) => FileAction::Overwrite { offset: bytes(offset)?, bytes: bytes(count)? },
            ("T", [size]) => FileAction::Resize { size: bytes(size)? },
            ("Z", [offset, count]) => FileAction::Punch { offset: bytes(offset)?, bytes: bytes(count)? },
            ("S", []) => FileAction::Sync,
            ("M", [path]) => FileAction::Rename { path: unescaped(path)? },
            ("C", []) => FileAction::Close,
            ("D", []) => FileAction::Delete,
            _ => return None,
        };
        Some(Event { file, action })
    }
}

/// The flags of Linux on x86-64 and most others; `O_TMPFILE` without the bit of `O_DIRECTORY`.
const OPEN_FLAGS: [(u32, OpenIntent); 7] = [
    (0o100, OpenIntent::CREATE),
    (0o200, OpenIntent::EXCL),
    (0o1000, OpenIntent::TRUNC),
    (0o2000, OpenIntent::APPEND),
    (0o10000, OpenIntent::SYNC),
    (0o40000, OpenIntent::DIRECT),
    (0o20000000, OpenIntent::TMPFILE),
];

/// `O_WRONLY`.
const WRONLY: u32 = 1;

fn open_to_flags(raw: u32) -> OpenIntent {
    let mut flags = OpenIntent::WRITE;
    for (bit, flag) in OPEN_FLAGS {
        flags.set(flag, raw & bit != 0);
    }
    flags
}

fn flags_to_open(flags: OpenIntent) -> u32 {
    let bits = OPEN_FLAGS.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(bit, _)| bit);
    bits.sum::<u32>() | WRONLY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(events: &[Event]) -> String {
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        format!("{}\n{lines}{LAST_LINE}\n", first_line("prog"))
    }

    fn all_kinds() -> Vec<Event> {
        let opener = |process: &str, flags| Opener {
            process: process.into(),
            thread: "low 0%".into(),
            thread_id: 7,
            flags: flags | OpenIntent::WRITE,
        };
        let path = b"/a b\xff\n%-".to_vec();
        let created = FileAction::Create {
            path: path.clone(),
            opener: opener("p", OpenIntent::CREATE | OpenIntent::SYNC),
        };
        let temporary = FileAction::Create { path: b"/t".to_vec(), opener: opener("", OpenIntent::TMPFILE) };
        vec![
            Event::new(1, created),
            Event::new(2, temporary),
            Event::new(1, FileAction::Hint(WriteHint::Medium)),
            Event::new(1, FileAction::Write { bytes: 10_000 }),
            Event::new(1, FileAction::Reopen { path, opener: opener("-", OpenIntent::TRUNC) }),
            Event::new(1, FileAction::Overwrite { offset: 4096, bytes: 8192 }),
            Event::new(1, FileAction::Sync),
            Event::new(1, FileAction::Rename { path: b"/c".to_vec() }),
            Event::new(1, FileAction::Punch { offset: 0, bytes: 4096 }),
            Event::new(1, FileAction::Resize { size: 5000 }),
            Event::new(1, FileAction::Close),
            Event::new(1, FileAction::Delete),
        ]
    }

    #[test]
    fn every_event_is_read_as_it_was_written_whatever_bytes_names_have() {
        let events = all_kinds();
        assert_eq!(Workload::parse(&recording(&events), "other").unwrap().events, events);
    }

    #[test]
    fn live_bytes_follow_overwrites_holes_and_truncation() {
        let workload = Workload::parse(&recording(&all_kinds()), "").unwrap();
        // Blocks 0 to 2, of which 1 and 2 are written again.
        assert_eq!(workload.live_peak_bytes(), 3 * 4096);
        assert_eq!(workload.written_bytes(), 18_192);
        let grown = "O 1 1 t 241 /a\nT 1 409600\nP 1 40960 4096\nZ 1 0 409600\nW 1 8192\n";
        assert_eq!(Workload::parse(grown, "p").unwrap().live_peak_bytes(), 8192);
    }

    #[test]
    fn a_mangled_recording_is_refused_with_the_line_and_what_is_wrong_there() {
        let whole = recording(&all_kinds());
        let cut = &whole[..whole.len() - 2];
        let cases = [
            (cut.to_string(), "line 13: 'D 1' is the last line"),
            (whole.replace("W 1 10000", "W 1 1e4"), "line 5: 'W 1 1e4' is not an event"),
            (whole.replace("S 1", "S 9"), "line 8: 'S 9' is about a file that was never opened"),
            (whole.replace("V 1 ", "V 2 "), "line 1: 'V 2 prog' is of another version"),
            (whole.replace("D 1", "U /c"), "line 13: 'U /c' is not an event"),
            (whole.clone() + "C 2\n", "line 15: 'C 2' stands behind the end"),
            (whole.replace("H 1 3", "H 1 6"), "line 4: 'H 1 6' is not an event"),
            (whole.replace("P 1 4096", &format!("P 1 {}", u64::MAX)), "line 7: 'P 1 18446744073709551615"),
            (format!("{}\n", "x".repeat(1000)), "line 1: 'xxxx"),
        ];
        for (text, says) in cases {
            let error = Workload::parse(&text, "").unwrap_err().to_string();
            assert!(error.starts_with(says) && error.len() < 250, "{error}\nwanted {says}");
        }
    }

    #[test]
    fn a_recording_of_system_calls_names_files_by_path() {
        let text = "O 1 7 main 241 /a\nW 1 5\nR /a /b\nO 2 7 main 241 /a\nO 3 7 main 241 /b\nU /a\nU /none\n";
        let events = Workload::parse(text, "p").unwrap().events;
        let gone: Vec<u32> =
            events.iter().filter(|e| e.action == FileAction::Delete).map(|e| e.file).collect();
        assert_eq!(gone, [1, 2]);
        assert!(events.contains(&Event::new(1, FileAction::Rename { path: b"/b".to_vec() })));
    }
}
