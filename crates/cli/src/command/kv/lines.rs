//! Pairs as lines of text: a key, a tab and a value. A value may be longer than memory, so it is written and read by pieces.

use crate::byte_text::{escape, hex, parse_hex, unescape, unescape_part, whole_characters};
use crate::error::CliError;
use crate::say::{Out, unwritten};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use weft_tags::KvSnapshot;

/// Size of the pieces in which a value is streamed.
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a line that is read at once: beyond, its value comes by pieces.
const LINE_BYTES: usize = 8 << 20;
/// Bytes of the longest key.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// How keys and values are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Bytes that are not printable text are escaped.
    Text,
    Hex,
}

impl Form {
    /// The form that `--hex` chooses.
    pub(super) fn of(is_hex: bool) -> Form {
        if is_hex { Form::Hex } else { Form::Text }
    }

    pub(super) fn write(self, bytes: &[u8]) -> String {
        match self {
            Form::Text => escape(bytes),
            Form::Hex => hex(bytes),
        }
    }

    fn parse(self, text: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Form::Text => unescape(text),
            Form::Hex => parse_hex(text),
        }
    }

    /// Appends the bytes that a part of a field stands for; how much of the part that was.
    fn parse_part(self, text: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
        match self {
            Form::Text => unescape_part(text, out),
            Form::Hex => {
                let whole = text.len() & !1;
                out.extend(parse_hex(&text[..whole])?);
                Ok(whole)
            }
        }
    }
}

/// Calls `each` with the pieces of a key's value, of which the caller has `first`: all of it where that is shorter than a piece. No character
/// of UTF-8 is in two pieces.
pub(super) fn each_piece(
    (then, key, first): (&KvSnapshot<'_, '_>, &[u8], &[u8]),
    fail: impl Fn(weft_tags::Error) -> CliError,
    mut each: impl FnMut(&[u8]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    if first.len() < PIECE_BYTES {
        return each(first);
    }
    let mut piece = vec![0; PIECE_BYTES];
    let mut now = whole_characters(first);
    let mut at = 0;
    while !now.is_empty() {
        each(now)?;
        at += now.len() as u64;
        let len = then.get_at(key, at, &mut piece).map_err(&fail)?;
        now = whole_characters(&piece[..len.unwrap_or(0)]);
    }
    Ok(())
}

/// A pair for programs: text where it is text, hex digits where not.
pub fn pair_json(key: &[u8], value: Option<&[u8]>) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => fields.insert(name.to_string(), text.into()),
        Err(_) => fields.insert(format!("{name}_hex"), hex(bytes).into()),
    };
    put("key", key);
    if let Some(value) = value {
        put("value", value);
    }
    Value::Object(fields)
}

/// Writes what [`pair_json`] gives for a pair of which only the beginning of the value is in memory, in several lines or in one.
pub(super) fn write_pair_json(
    out: &mut Out,
    (then, key, first): (&KvSnapshot<'_, '_>, &[u8], &[u8]),
    is_pretty: bool,
    fail: impl Fn(weft_tags::Error) -> CliError + Copy,
) -> Result<(), CliError> {
    let mut is_text = true;
    each_piece((then, key, first), fail, |piece| {
        is_text &= std::str::from_utf8(piece).is_ok();
        Ok(())
    })?;
    // The end of the value is the end of the object.
    let empty = pair_json(key, Some(if is_text { b"" } else { b"\xff" }));
    let json = if is_pretty { serde_json::to_string_pretty(&empty) } else { serde_json::to_string(&empty) };
    let json = json.map_err(|e| unwritten(e.into()))?;
    let end_at = json.rfind('"').unwrap_or(json.len());
    let (head, end) = json.split_at(end_at);
    out.write_all(head.strip_suffix(if is_text { "" } else { "ff" }).unwrap_or(head).as_bytes())
        .map_err(unwritten)?;
    each_piece((then, key, first), fail, |piece| {
        let text = match std::str::from_utf8(piece) {
            Ok(text) if is_text => {
                let quoted = serde_json::to_string(text).map_err(|e| unwritten(e.into()))?;
                quoted[1..quoted.len() - 1].to_string()
            }
            _ => hex(piece),
        };
        out.write_all(text.as_bytes()).map_err(unwritten)
    })?;
    writeln!(out, "{end}").map_err(unwritten)
}

/// A line, as it was read.
pub(super) enum Line {
    Pair(Vec<u8>, Vec<u8>),
    /// A key, of which [`Lines::value_part`] reads the value.
    Long(Vec<u8>),
}

/// A file or, as -, standard input; its name; and its bytes, 0 when nobody knows.
pub fn open(file: &Path) -> Result<(Box<dyn BufRead>, String, u64), CliError> {
    if file.as_os_str() == "-" {
        return Ok((Box::new(BufReader::new(io::stdin())), "standard input".to_string(), 0));
    }
    let opened = File::open(file).and_then(|f| Ok((f.metadata()?.len(), f)));
    let (bytes, opened) = opened.map_err(|e| CliError::io("read", file, e))?;
    Ok((Box::new(BufReader::with_capacity(1 << 20, opened)), file.display().to_string(), bytes))
}

/// The lines of a file with pairs.
pub(super) struct Lines {
    from: Box<dyn BufRead>,
    form: Form,
    /// Its name, for messages.
    name: String,
    /// Bytes of it, where they are known.
    pub total: u64,
    /// Bytes that were read.
    pub read: u64,
    /// The number of the line that was read last.
    pub number: u64,
    /// Of the line, what was not taken yet.
    text: Vec<u8>,
}

impl Lines {
    /// The lines of a file, or of standard input.
    pub(super) fn open(file: &Path, form: Form) -> Result<Lines, CliError> {
        let (from, name, total) = open(file)?;
        Ok(Lines { from, form, name, total, read: 0, number: 0, text: Vec::new() })
    }

    /// Reads on in the line, up to its end or so many bytes; whether that is the end of the line.
    fn fill(&mut self, bytes: usize) -> Result<bool, CliError> {
        let read = self.from.by_ref().take(bytes as u64).read_until(b'\n', &mut self.text);
        let read = read.map_err(|e| CliError::io("read", Path::new(&self.name), e))?;
        self.read += read as u64;
        Ok(self.text.pop_if(|byte| *byte == b'\n').is_some() || read < bytes)
    }

    /// The next line.
    pub(super) fn next(&mut self) -> Result<Option<Line>, CliError> {
        self.text.clear();
        let before = self.read;
        let is_whole = self.fill(LINE_BYTES)?;
        if self.read == before {
            return Ok(None);
        }
        self.number += 1;
        self.parse(is_whole).map(Some).map_err(|why| self.wrong(&why))
    }

    fn parse(&mut self, is_whole: bool) -> Result<Line, String> {
        let at = memchr::memchr(b'\t', &self.text);
        let at = at.ok_or("no tab in the line; expected a key, a tab and a value")?;
        let key = self.form.parse(&self.text[..at])?;
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("a key of {} bytes; the most is {KEY_BYTES_MAX}", key.len()));
        }
        if is_whole {
            return Ok(Line::Pair(key, self.form.parse(&self.text[at + 1..])?));
        }
        self.text.drain(..=at);
        Ok(Line::Long(key))
    }

    /// The next part of the value of a [`Line::Long`], and whether it is the last one.
    pub(super) fn value_part(&mut self) -> Result<(Vec<u8>, bool), CliError> {
        let is_end = self.fill(PIECE_BYTES)?;
        let mut part = Vec::new();
        let used = self.form.parse_part(&self.text, &mut part).map_err(|why| self.wrong(&why))?;
        self.text.drain(..used);
        if is_end {
            // Where something is left, this says what is wrong with it.
            part.extend(self.form.parse(&self.text).map_err(|why| self.wrong(&why))?);
        }
        Ok((part, is_end))
    }

    fn wrong(&self, why: &str) -> CliError {
        CliError::said(
            format!("{}: line {}: {why}", self.name, self.number),
            "the batches before this line have been loaded; correct the line and load the file again",
        )
    }
}
