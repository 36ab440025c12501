//! What a program answered: a table for people, JSON for programs, and the error of the operation that failed.

use super::errno;
use super::form::{Form, Names};
use crate::byte_text::{escape, hex};
use crate::command::list::kind_text;
use crate::error::CliError;
use crate::table::Table;
use serde_json::{Value as Json, json};
use std::path::Path;
use weft_vfs::Attr;
use weft_vfs::compound::{Answer, Bytes, Kind, Op, Outcome, Policy, Value};

/// Characters of a value or a path that the table shows, at most.
const CELL_CHARS_MAX: usize = 64;
/// Bytes of a value that the table shows in hex, at most.
const CELL_HEX_BYTES_MAX: usize = 16;

/// A program on a volume, and its answer once it has run.
pub struct Report<'a> {
    /// The volume.
    pub volume: &'a Path,
    /// The program.
    pub form: &'a Form,
    /// What it answered.
    pub answer: Option<&'a Answer>,
}

impl Report<'_> {
    /// What `--check` says of a program that is right.
    pub fn checked(&self) -> String {
        let program = &self.form.program;
        let (ops, policy) = (program.ops.len(), program.policy.name());
        let (plural, durable) =
            (if ops == 1 { "" } else { "s" }, if program.durable { ", durable" } else { "" });
        format!("the program is correct: {ops} operation{plural}, policy {policy}{durable}\n")
    }

    /// A line for each operation.
    pub fn table(&self) -> String {
        let mut table = Table::new("op> name< operation< result< value<");
        for (at, op) in self.form.program.ops.iter().enumerate() {
            let (result, value) = match self.answer.and_then(|answer| answer.outcomes.get(at)) {
                Some(Outcome::Done(value)) => ("done".to_string(), value.as_ref().map(value_text)),
                Some(Outcome::Failed(errno)) => {
                    (format!("{}: {}", errno::name(*errno), errno::meaning(*errno, &op.kind)), None)
                }
                Some(Outcome::Skipped) | None => ("skipped".to_string(), None),
            };
            let name = self.form.names.get(at).unwrap_or_default().to_string();
            table.row([
                (at + 1).to_string(),
                name,
                op_text(&op.kind, &self.form.names),
                result,
                value.unwrap_or_default(),
            ]);
        }
        table.to_string()
    }

    /// All of it. Bytes are hex digits; without an answer, nothing of the run.
    pub fn as_json(&self) -> Json {
        let program = &self.form.program;
        let ops = program.ops.iter().enumerate().map(|(at, op)| self.op_json(at, op));
        json!({
            "volume": self.volume.display().to_string(),
            "policy": program.policy.name(),
            "durable": program.durable,
            "checked_only": self.answer.is_none(),
            "failed": self.answer.and_then(Answer::failed).map(|(at, _)| at + 1),
            "operations": ops.collect::<Vec<_>>(),
        })
    }

    fn op_json(&self, at: usize, op: &Op) -> Json {
        let outcome = self.answer.and_then(|answer| answer.outcomes.get(at));
        let (result, value) = match outcome {
            Some(Outcome::Done(value)) => (Some("done"), value.as_ref()),
            Some(Outcome::Skipped) => (Some("skipped"), None),
            Some(Outcome::Failed(_)) => (Some("failed"), None),
            None => (None, None),
        };
        let errno = match outcome {
            Some(Outcome::Failed(errno)) => Some(*errno),
            _ => None,
        };
        json!({
            "number": at + 1,
            "name": self.form.names.get(at),
            "do": op.kind.name(),
            "result": result,
            "error": errno.map(|errno| json!({
                "name": errno::name(errno),
                "number": errno,
                "message": errno::meaning(errno, &op.kind),
            })),
            "value": value.map(value_json),
        })
    }

    /// The error of the operation that failed.
    pub fn failure(&self) -> Option<CliError> {
        let (at, errno) = self.answer?.failed()?;
        let kind = &self.form.program.ops[at].kind;
        let op = self.form.names.told(at, Some(kind));
        let (volume, name) = (self.volume.display(), errno::name(errno));
        let what = format!("{volume}: {op} failed: {name}: {}", errno::meaning(errno, kind));
        let is_durable = self.form.program.durable
            || self.form.program.ops.iter().any(|op| matches!(op.kind, Kind::Sync { .. }));
        let left = match self.form.program.policy {
            _ if errno == libc::EIO && is_durable => {
                "the device may have failed after the changes were made: look at the files, and run weft fsck"
            }
            Policy::All => "policy all: the program has changed nothing",
            Policy::Prefix => "policy prefix: the changes of the operations before it were made, in one step",
            Policy::Each => "policy each: the changes of the operations before it were made, one at a time",
        };
        Some(CliError::said(what, left))
    }
}

/// An operation with what it works on.
fn op_text(kind: &Kind, names: &Names) -> String {
    let bytes = |bytes: &Bytes| match bytes {
        Bytes::Lit(bytes) => cut(&escape(bytes)),
        Bytes::Of(of) => names.reference(*of),
    };
    let of = match kind {
        Kind::Open { path, .. }
        | Kind::Create { path, .. }
        | Kind::Mkdir { path, .. }
        | Kind::Unlink { path, .. }
        | Kind::Rmdir { path, .. } => bytes(path),
        Kind::Link { path, new_path, .. } | Kind::Rename { path, new_path, .. } => {
            format!("{} to {}", bytes(path), bytes(new_path))
        }
        Kind::Symlink { target, path, .. } => format!("{} to {}", bytes(path), bytes(target)),
        Kind::Close { file }
        | Kind::Stat { file }
        | Kind::Read { file, .. }
        | Kind::Write { file, .. }
        | Kind::Truncate { file, .. }
        | Kind::Fallocate { file, .. }
        | Kind::Sync { file } => names.reference(file.0),
        Kind::GetXattr { file, name }
        | Kind::SetXattr { file, name, .. }
        | Kind::RemoveXattr { file, name } => {
            format!("{} {}", cut(&escape(name)), names.reference(file.0))
        }
        Kind::Field { attr, .. } => names.reference(*attr),
        Kind::Slice { .. }
        | Kind::Concat { .. }
        | Kind::Len { .. }
        | Kind::Pack { .. }
        | Kind::Unpack { .. }
        | Kind::Arith { .. }
        | Kind::Find { .. }
        | Kind::Patch { .. }
        | Kind::Crc32c { .. }
        | Kind::Verify { .. }
        | Kind::Expect { .. }
        | Kind::Given { .. }
        | Kind::InputBytes { .. }
        | Kind::InputNum { .. }
        | Kind::Compress { .. }
        | Kind::Decompress { .. }
        | Kind::Call { .. } => return kind.name().to_string(),
    };
    format!("{} {of}", kind.name())
}

/// Text that fits a cell.
fn cut(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

/// An exported value in the table.
fn value_text(value: &Value) -> String {
    match value {
        Value::Num(num) => num.to_string(),
        Value::Bytes(bytes) => bytes_text(bytes),
        Value::Attr(attr) => attr_text(attr),
    }
}

/// Short printable text as text; other bytes in hex, with their number.
fn bytes_text(bytes: &[u8]) -> String {
    let is_printable = |c: char| c == '\n' || c == '\t' || !weft_core::text::is_hidden(c);
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().count() <= CELL_CHARS_MAX && text.chars().all(is_printable) => {
            format!("\"{}\"", escape(bytes).replace('"', "\\\""))
        }
        _ => {
            let first = &bytes[..bytes.len().min(CELL_HEX_BYTES_MAX)];
            let more = if first.len() < bytes.len() { "..." } else { "" };
            format!("{}{more} ({} bytes)", hex(first), bytes.len())
        }
    }
}

fn attr_text(attr: &Attr) -> String {
    let Attr { perm, size, links, uid, gid, .. } = attr;
    let kind = kind_text(attr.kind).1;
    format!("{kind}, mode {perm:04o}, {size} bytes, links {links}, owner {uid}:{gid}")
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Num(num) => json!({ "number": num }),
        Value::Bytes(bytes) => json!({ "bytes": bytes.len(), "hex": hex(bytes) }),
        Value::Attr(attr) => json!({ "attributes": {
            "inode": attr.ino.0,
            "kind": kind_text(attr.kind).1,
            "perm": format!("{:04o}", attr.perm),
            "links": attr.links,
            "uid": attr.uid,
            "gid": attr.gid,
            "size": attr.size,
            "blocks": attr.blocks,
            "atime_ns": attr.atime.0,
            "mtime_ns": attr.mtime.0,
            "ctime_ns": attr.ctime.0,
        }}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_is_shown_as_text_and_other_bytes_in_hex_with_their_number() {
        assert_eq!(bytes_text(b""), "\"\"");
        assert_eq!(bytes_text(b"verbose = \"yes\"\n"), "\"verbose = \\\"yes\\\"\\n\"");
        assert_eq!(bytes_text(b"\x00\x01"), "0001 (2 bytes)");
        assert_eq!(bytes_text(b"a\x1b[2J"), "611b5b324a (5 bytes)");
        assert_eq!(bytes_text(&[0xff; 100]), format!("{}... (100 bytes)", "ff".repeat(16)));
        assert_eq!(bytes_text(&[b'a'; 65]), format!("{}... (65 bytes)", "61".repeat(16)));
    }
}
