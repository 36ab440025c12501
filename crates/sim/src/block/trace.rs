//! Block traces: fio iologs (versions 2 and 3) and the CSV of the MSR-Cambridge traces.
//!
//! ```text
//!  fio version 2 iolog            fio version 3 iolog                 128166372003061629,hm,0,Read,383496192,32768,113736
//!  /dev/sdb add                   12 /dev/sdb add                      |                 |  | |    |         |     |
//!  /dev/sdb open                  12 /dev/sdb open                     time in 100 ns  host | type offset   bytes response
//!  /dev/sdb write 4096 8192       15 /dev/sdb write 4096 8192                              disk
//!  wait 100 (microseconds)        (milliseconds first)
//! ```
//!
//! Traces come from devices of other sizes, and touch little of them. So what a trace touches is laid close together, in
//! extents of 1 MiB, in the order in which the trace first comes to them: neighbours stay neighbours within an extent.

use super::{Action, Request};
use std::collections::HashMap;
use std::io::{BufRead, Read};
use weft_core::BLOCK_BYTES;

/// Blocks of the extents in which a trace is laid out.
pub const EXTENT_BLOCKS: u64 = 256;
/// Most bytes of a request in a trace; what is larger is taken for damage.
const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a line: a path and some numbers.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Most requests of a trace.
const REQUESTS_MAX: usize = 1 << 28;

/// The form of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// fio's iolog; its first line says the version.
    Fio,
    /// MSR-Cambridge CSV.
    Msr,
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line that does not have the form.
    #[error("line {line}: {what}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it, and what was expected.
        what: String,
    },
    /// The trace cannot be read.
    #[error("line {line}: {source}")]
    Io {
        /// The line, from 1.
        line: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The requests of a trace, laid close together.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    requests: Vec<Request>,
    extents: HashMap<(u16, u64), u64>,
    streams: HashMap<String, u16>,
    /// When the trace begins, in its own time.
    begins_ns: Option<u64>,
    /// Lines that are no requests, such as `open` and `sync`.
    skipped: u64,
}

impl Trace {
    /// Reads a trace; `progress` gets the bytes of each line.
    pub fn read(
        mut from: impl BufRead,
        format: Option<TraceFormat>,
        mut progress: impl FnMut(u64),
    ) -> Result<Trace, TraceError> {
        let mut trace = Trace::default();
        let mut form = (format == Some(TraceFormat::Msr)).then_some(Form::Msr);
        let mut clock_ns = 0;
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            let read = from.by_ref().take(LINE_BYTES_MAX + 1).read_line(&mut text);
            let bytes = read.map_err(|source| TraceError::Io { line, source })? as u64;
            if bytes == 0 {
                break;
            }
            if bytes > LINE_BYTES_MAX {
                let what =
                    format!("more than {LINE_BYTES_MAX} bytes without an end of line; this is no trace");
                return Err(TraceError::Line { line, what });
            }
            progress(bytes);
            let words = text.trim();
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            let result = match form {
                None => Form::of_first_line(words, format).and_then(|found| {
                    form = Some(found);
                    if found == Form::Msr { trace.msr(words) } else { Ok(()) }
                }),
                Some(Form::Msr) => trace.msr(words),
                Some(Form::Fio2) => trace.fio(words, &mut clock_ns),
                Some(Form::Fio3) => match words.split_once(char::is_whitespace) {
                    Some((time, rest)) => number(time, "milliseconds").and_then(|ms| {
                        clock_ns = ms.saturating_mul(1_000_000);
                        trace.fio(rest.trim_start(), &mut clock_ns)
                    }),
                    None => Err(format!("'{words}' has a time and nothing else")),
                },
            };
            result.map_err(|what| TraceError::Line { line, what })?;
            if trace.requests.len() > REQUESTS_MAX {
                let what = format!("more than {REQUESTS_MAX} requests; split the trace");
                return Err(TraceError::Line { line, what });
            }
        }
        Ok(trace)
    }

    /// The requests, in their order.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Blocks of 4 KiB that the device needs for it, and that the extents it touches have.
    pub fn blocks(&self) -> u64 {
        self.extents.len() as u64 * EXTENT_BLOCKS
    }

    /// Disks or files of the trace.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Lines that were no requests.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn msr(&mut self, line: &str) -> Result<(), String> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, host, disk, kind, offset, bytes, ..] = fields[..] else {
            return Err(format!(
                "{} fields; expected Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
                fields.len()
            ));
        };
        let action = match kind {
            kind if kind.eq_ignore_ascii_case("read") => Action::Read,
            kind if kind.eq_ignore_ascii_case("write") => Action::Write,
            _ => return Err(format!("type '{kind}'; expected Read or Write")),
        };
        // Ticks of 100 ns.
        let at_ns = number(time, "the timestamp")?.saturating_mul(100);
        let begins = *self.begins_ns.get_or_insert(at_ns);
        let (offset, bytes) = (number(offset, "the offset")?, number(bytes, "the size")?);
        self.add(action, &format!("{host}.{disk}"), offset, bytes, at_ns.saturating_sub(begins))
    }

    fn fio(&mut self, line: &str, clock_ns: &mut u64) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["wait", microseconds] | [_, "wait", microseconds] | [_, "wait", microseconds, ..] = words[..]
        {
            *clock_ns = clock_ns.saturating_add(number(microseconds, "the wait")?.saturating_mul(1_000));
            return Ok(());
        }
        let (file, action) = match words[..] {
            [_, "add" | "open" | "close" | "sync" | "datasync", ..] => {
                self.skipped += 1;
                return Ok(());
            }
            [file, "read", ..] => (file, Action::Read),
            [file, "write", ..] => (file, Action::Write),
            [file, "trim", ..] => (file, Action::Deallocate),
            _ => {
                return Err(format!(
                    "'{line}'; expected FILE read|write|trim OFFSET LENGTH, FILE add|open|close|sync|datasync, or wait \
                     MICROSECONDS"
                ));
            }
        };
        let [_, _, offset, bytes] = words[..] else {
            return Err(format!("'{line}' has no offset and length"));
        };
        self.add(action, file, number(offset, "the offset")?, number(bytes, "the length")?, *clock_ns)
    }

    /// Adds a request of bytes of a disk or file, in pieces that lie together.
    fn add(&mut self, action: Action, of: &str, offset: u64, bytes: u64, at_ns: u64) -> Result<(), String> {
        if bytes > REQUEST_BYTES_MAX {
            return Err(format!("a request of {bytes} bytes; {REQUEST_BYTES_MAX} is the most"));
        }
        let end = offset.checked_add(bytes).ok_or_else(|| format!("offset {offset} is too large"))?;
        if bytes == 0 {
            self.skipped += 1;
            return Ok(());
        }
        let streams = self.streams.len() as u16;
        let stream = match self.streams.get(of) {
            Some(stream) => *stream,
            None if streams < u16::MAX => *self.streams.entry(of.to_string()).or_insert(streams),
            None => return Err(format!("more than {} disks or files", u16::MAX)),
        };
        let (mut block, last) = (offset / BLOCK_BYTES as u64, end.div_ceil(BLOCK_BYTES as u64));
        while block < last {
            let (extent, within) = (block / EXTENT_BLOCKS, block % EXTENT_BLOCKS);
            let blocks = (last - block).min(EXTENT_BLOCKS - within);
            let next = self.extents.len() as u64;
            let place = *self.extents.entry((stream, extent)).or_insert(next);
            let begins = place * EXTENT_BLOCKS + within;
            self.requests.push(Request { action, block: begins, blocks: blocks as u32, stream, at_ns });
            block += blocks;
        }
        Ok(())
    }
}

/// How the lines of a trace are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Fio2,
    Fio3,
    Msr,
}

impl Form {
    fn of_first_line(line: &str, wanted: Option<TraceFormat>) -> Result<Form, String> {
        match line {
            "fio version 2 iolog" => Ok(Form::Fio2),
            "fio version 3 iolog" => Ok(Form::Fio3),
            _ if line.starts_with("fio version") => {
                Err(format!("'{line}'; versions 2 and 3 of fio's iolog can be read"))
            }
            _ if wanted == Some(TraceFormat::Fio) => {
                Err(format!("'{line}'; an iolog begins with 'fio version 2 iolog' or 'fio version 3 iolog'"))
            }
            _ if line.split(',').count() >= 6 => Ok(Form::Msr),
            _ => Err(format!("'{line}' begins neither an fio iolog nor an MSR-Cambridge CSV")),
        }
    }
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{what} is '{text}'; expected a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, String> {
        Trace::read(text.as_bytes(), None, |_| ()).map_err(|error| error.to_string())
    }

    fn request(action: Action, block: u64, blocks: u32, stream: u16, at_ns: u64) -> Request {
        Request { action, block, blocks, stream, at_ns }
    }

    #[test]
    fn an_iolog_of_version_2_is_read_with_its_waits() {
        let trace = read(
            "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 1073741824 8192\nwait 25\n\
             /dev/sdb read 1073745920 1\n/dev/sdc trim 0 4096\n/dev/sdb sync 0 0\n/dev/sdb close\n",
        )
        .unwrap();
        assert_eq!(
            trace.requests(),
            [
                request(Action::Write, 0, 2, 0, 0),
                request(Action::Read, 1, 1, 0, 25_000),
                request(Action::Deallocate, 256, 1, 1, 25_000),
            ]
        );
        assert_eq!((trace.blocks(), trace.streams(), trace.skipped()), (512, 2, 4));
    }

    #[test]
    fn an_iolog_of_version_3_is_read_with_its_times() {
        let trace = read("fio version 3 iolog\n0 f add\n7 f write 4096 4096\n9 f read 4095 2\n").unwrap();
        assert_eq!(
            trace.requests(),
            [request(Action::Write, 1, 1, 0, 7_000_000), request(Action::Read, 0, 2, 0, 9_000_000)]
        );
    }

    #[test]
    fn an_msr_trace_is_read_from_its_first_request_on() {
        let trace = read(
            "128166372003061629,hm,0,Read,383496192,32768,113736\n128166372016382155,hm,1,Write,0,1050000,1\n",
        )
        .unwrap();
        let later = (128_166_372_016_382_155u64 - 128_166_372_003_061_629) * 100;
        assert_eq!(
            trace.requests(),
            [
                // Offset 383496192 is block 93627, the 187th of its extent.
                request(Action::Read, 187, 8, 0, 0),
                request(Action::Write, 256, 256, 1, later),
                request(Action::Write, 512, 1, 1, later),
            ]
        );
    }

    #[test]
    fn a_file_without_ends_of_lines_is_refused_before_it_is_in_memory() {
        let mut read = 0;
        let zeros = std::io::BufReader::new(std::io::repeat(0).take(1 << 24));
        let error = Trace::read(zeros, None, |bytes| read += bytes).unwrap_err().to_string();
        assert!(error.contains("line 1: more than 65536 bytes") && read <= 1 << 17, "{error}: {read}");
    }

    #[test]
    fn a_line_that_has_not_the_form_is_refused_with_its_number() {
        for (text, says) in [
            ("fio version 9 iolog\n", "line 1: 'fio version 9 iolog'; versions 2 and 3"),
            ("hello\n", "begins neither"),
            ("fio version 2 iolog\n\nf write 1\n", "line 3: 'f write 1' has no offset"),
            ("fio version 2 iolog\nf jump 1 2\n", "line 2: 'f jump 1 2'; expected FILE read|write|trim"),
            ("fio version 2 iolog\nf write 0 99999999999\n", "is the most"),
            ("fio version 2 iolog\nf write 18446744073709551615 4096\n", "too large"),
            ("fio version 3 iolog\nx f write 0 1\n", "milliseconds is 'x'"),
            ("1,h,0,Read,0,4096,1\n1,h,0,Flush,0,4096,1\n", "line 2: type 'Flush'"),
            ("1,h,0,Read,0,4096,1\n1,h,0\n", "line 2: 3 fields"),
            ("1,h,0,Read,-5,4096,1\n", "the offset is '-5'"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "'{error}' does not say '{says}'");
        }
        let wrong = Trace::read(&b"1,h,0,Read,0,1,1\n"[..], Some(TraceFormat::Fio), |_| ());
        assert!(wrong.unwrap_err().to_string().contains("an iolog begins with"));
        assert!(read("").unwrap().requests().is_empty());
    }
}
