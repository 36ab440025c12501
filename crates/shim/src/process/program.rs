//! Programs that lie on the volume: the kernel cannot read them there.
//!
//! A binary is copied to a memory file and executed from it. A script is what it says in its first line: its interpreter
//! gets the script's path and reads it through the hooks.

use crate::owned::{Fd, Memory};
use crate::report::{Refusal, refuse};
use crate::routing::Place;
use crate::sys;
use libc::{c_char, c_int};
use std::ffi::CStr;
use weft_client::{Client, Errno, FileRef};

/// Bytes of a script's first line that count, as in Linux.
const LINE_BYTES: usize = 256;
/// Bytes copied at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// What a file on the volume is.
// The line cannot be boxed: nothing here allocates.
#[allow(clippy::large_enum_variant)]
pub enum Program {
    /// A binary, copied to this memory file.
    Binary(Fd),
    /// A script.
    Script(Line),
}

/// A script's first line: interpreter and its argument, each ended by NUL.
pub struct Line {
    bytes: [u8; LINE_BYTES + 2],
    interpreter: usize,
    argument: Option<usize>,
}

impl Line {
    fn parse(head: &[u8]) -> Option<Line> {
        let text = head.strip_prefix(b"#!")?;
        let text = text.split(|&byte| byte == b'\n').next()?;
        let is_space = |byte: &u8| *byte == b' ' || *byte == b'\t';
        let start = text.iter().position(|byte| !is_space(byte))?;
        let text = text.get(start..)?;
        let end = text.iter().position(is_space).unwrap_or(text.len());
        let interpreter = text.get(..end)?;
        let rest = text.get(end..)?;
        let argument = rest.iter().position(|byte| !is_space(byte)).and_then(|at| rest.get(at..));
        let argument = argument.map(|text| {
            let end = text.iter().rposition(|byte| !is_space(byte)).map_or(0, |at| at + 1);
            text.get(..end).unwrap_or(text)
        });
        if interpreter.is_empty() {
            return None;
        }
        let mut line = Line { bytes: [0; LINE_BYTES + 2], interpreter: 0, argument: None };
        let mut at = 0;
        for (part, place) in [(Some(interpreter), 0), (argument, 1)] {
            let Some(part) = part else { continue };
            line.bytes.get_mut(at..at + part.len())?.copy_from_slice(part);
            if place == 1 {
                line.argument = Some(at);
            }
            at += part.len() + 1;
        }
        Some(line)
    }

    /// The interpreter's path.
    pub fn interpreter(&self) -> *const c_char {
        self.text(self.interpreter)
    }

    /// What the line says after it.
    pub fn argument(&self) -> Option<*const c_char> {
        self.argument.map(|at| self.text(at))
    }

    fn text(&self, at: usize) -> *const c_char {
        self.bytes.get(at..).unwrap_or(&[0]).as_ptr().cast()
    }
}

/// Looks at a file that is to be executed. The caller must be allowed to.
pub fn load(place: Place) -> Result<Program, Errno> {
    let client = place.client;
    let attr = place.stat(0)?;
    if attr.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(libc::EACCES);
    }
    place.access(libc::X_OK, libc::AT_EACCESS)?;
    let open = place.open(libc::O_RDONLY)?;
    let program = read(client, open.file, attr.size);
    let _ = client.give_back(open.file);
    program
}

/// The same for a file that is open.
pub fn load_open(client: &Client, file: FileRef) -> Result<Program, Errno> {
    let attr = client.fstat(file)?;
    if attr.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(libc::EACCES);
    }
    client.access(file, b"", libc::X_OK, libc::AT_EACCESS | libc::AT_EMPTY_PATH)?;
    read(client, file, attr.size)
}

fn read(client: &Client, file: FileRef, size: u64) -> Result<Program, Errno> {
    let mut head = [0; LINE_BYTES];
    let filled = client.pread(file, &mut head, 0)?;
    let head = head.get(..filled).unwrap_or(&[]);
    if head.starts_with(b"#!") {
        return Line::parse(head).map(Program::Script).ok_or(libc::ENOEXEC);
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(libc::ENOEXEC);
    }
    copy(client, file, size, c"weft-program").map(Program::Binary).map_err(|_| refuse(Refusal::Execute))
}

/// Copies a file to a memory file, which has holes where the file is zero.
pub fn copy(client: &Client, file: FileRef, size: u64, name: &CStr) -> Result<Fd, Errno> {
    let fd = Fd(sys::memfd_create(name, libc::MFD_CLOEXEC)?);
    fill(client, file, size, *fd)?;
    sys::ftruncate(*fd, size)?;
    Ok(fd)
}

/// Puts bytes that were read from a file into a part of a memory file that nobody has written yet. Zeros are there already, and
/// take no memory: a map of a sparse file may be larger than the machine. Returns where to read on: behind zeros, where the
/// file's next data is, or at the end of all.
pub fn put_fresh(
    client: &Client,
    file: FileRef,
    bytes: &[u8],
    from: u64,
    fd: c_int,
    at: u64,
) -> Result<u64, Errno> {
    let next = from + bytes.len() as u64;
    if is_zero(bytes) {
        Ok(client.next_data(file, next)?.unwrap_or(u64::MAX))
    } else {
        sys::pwrite_all(fd, bytes, at).map(|()| next)
    }
}

/// Whether all bytes are zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    const PART_BYTES: usize = 4096;
    // Without a branch for each byte.
    bytes.chunks(PART_BYTES).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

fn fill(client: &Client, file: FileRef, size: u64, fd: c_int) -> Result<(), Errno> {
    let mut room = Memory::new(CHUNK_BYTES)?;
    let chunk = room.bytes();
    let mut done = 0;
    while done < size {
        match client.pread(file, chunk, done)? {
            0 => break,
            n => done = put_fresh(client, file, chunk.get(..n).unwrap_or(&[]), done, fd, done)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Option<(String, Option<String>)> {
        let line = Line::parse(head.as_bytes())?;
        // SAFETY: both texts of a line end with NUL.
        let text = |text| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
        Some((text(line.interpreter()), line.argument().map(text)))
    }

    #[test]
    fn a_scripts_first_line_names_interpreter_and_one_argument() {
        assert_eq!(parsed("#!/bin/sh\necho"), Some(("/bin/sh".into(), None)));
        assert_eq!(
            parsed("#! /usr/bin/env  python3 -u \n"),
            Some(("/usr/bin/env".into(), Some("python3 -u".into())))
        );
        assert_eq!(parsed("#!\n"), None);
        assert_eq!(parsed("echo"), None);
        let long = format!("#!{}", "x".repeat(LINE_BYTES - 2));
        assert_eq!(parsed(&long), Some(("x".repeat(LINE_BYTES - 2), None)));
    }
}
