//! Reading and writing open weft files, in step with this process's shared maps of them and with what it holds back of them.

pub mod atomic;
pub mod batch;
pub mod pump;
pub mod requests;
pub mod splicing;

use crate::mapping::pages;
use crate::process;
use crate::process::file_limit;
use std::cell::Cell;
use weft_client::{Client, Errno, FileRef, WireAttr};

thread_local! {
    // Constant and without a destructor: touching it allocates nothing.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// This thread reads or writes: it may hold a lock of the file. Handlers wait for that to end ([`crate::interception::handlers`]). One that the
/// program set by a system call of its own does not; when it wants to read or write, too, it is refused (`EDEADLK`), as it
/// would wait for a lock that its own thread holds.
struct Inside;

impl Inside {
    #[inline]
    fn enter() -> Result<Inside, Errno> {
        if INSIDE.replace(true) { Err(libc::EDEADLK) } else { Ok(Inside) }
    }
}

/// In a handler that cannot wait for the end of the call: what it does is not inside. Whether the thread was.
pub fn step_out() -> bool {
    INSIDE.replace(false)
}

/// The opposite of [`step_out`].
pub fn step_in(inside: bool) {
    INSIDE.set(inside);
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Reads at the file offset, or at `offset`.
#[inline]
pub fn read(file: FileRef, out: &mut [u8], offset: Option<u64>) -> Result<usize, Errno> {
    let _inside = Inside::enter()?;
    if pages::any() {
        pages::before_read(file)?;
    }
    let client = process::client()?;
    if batch::any()
        && let Some(read) = batch::read(client, file, out, offset)
    {
        return read;
    }
    match offset {
        None => client.read(file, out),
        Some(offset) => client.pread(file, out, offset),
    }
}

/// Moves the file offset; returns the new one. What maps have stored is data.
pub fn seek(file: FileRef, offset: i64, whence: i32) -> Result<u64, Errno> {
    let _inside = Inside::enter()?;
    if matches!(whence, libc::SEEK_DATA | libc::SEEK_HOLE) && pages::any() {
        pages::before_read(file)?;
    }
    let client = process::client()?;
    if batch::any()
        && let Some(moved) = batch::seek(client, file, offset, whence)
    {
        return moved;
    }
    client.seek(file, offset, whence)
}

/// Attributes, with the size that this open file sees.
pub fn attributes(file: FileRef) -> Result<WireAttr, Errno> {
    let mut attr = process::client()?.fstat(file)?;
    if batch::any() {
        attr.size = batch::size(file, attr.size);
    }
    Ok(attr)
}

/// Writes at the file offset, or at `offset`.
#[inline]
pub fn write(file: FileRef, mut bytes: &[u8], offset: Option<u64>) -> Result<usize, Errno> {
    if file_limit::is_set() {
        bytes = bytes.get(..file_limit::writable(file, offset, bytes.len())?).unwrap_or(bytes);
    }
    let _inside = Inside::enter()?;
    let act = |client: &Client| match offset {
        None => client.write(file, bytes),
        Some(offset) => client.pwrite(file, bytes, offset),
    };
    let client = process::client()?;
    if batch::any()
        && let Some(written) = batch::write(client, file, &[bytes], offset)
    {
        return written;
    }
    if pages::concern(client, file) { pages::write(file, offset, act) } else { act(client) }
}

/// Writes several pieces as one.
#[inline]
pub fn write_parts(file: FileRef, parts: &[&[u8]], offset: Option<u64>) -> Result<usize, Errno> {
    if file_limit::is_set() {
        let len = parts.iter().map(|part| part.len()).sum();
        let room = file_limit::writable(file, offset, len)?;
        if room < len {
            return write_some_parts(file, parts, offset, room);
        }
    }
    let _inside = Inside::enter()?;
    let act = |client: &Client| client.writev(file, parts, offset);
    let client = process::client()?;
    if batch::any()
        && let Some(written) = batch::write(client, file, parts, offset)
    {
        return written;
    }
    if pages::concern(client, file) { pages::write(file, offset, act) } else { act(client) }
}

/// Writes the first `room` bytes of several pieces, one after the other.
#[cold]
fn write_some_parts(
    file: FileRef,
    parts: &[&[u8]],
    offset: Option<u64>,
    room: usize,
) -> Result<usize, Errno> {
    let mut done = 0;
    for part in parts {
        let part = part.get(..room - done).unwrap_or(part);
        match write(file, part, offset.map(|offset| offset + done as u64)) {
            Ok(n) => done += n,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        if done == room {
            break;
        }
    }
    Ok(done)
}

/// Makes a file durable.
pub fn sync(file: FileRef) -> Result<(), Errno> {
    let stored = if pages::any() { pages::before_read(file) } else { Ok(()) };
    // Also when something could not be stored: with that the open file has heard of it.
    let synced = process::client()?.fsync(file);
    stored.and(synced)
}

/// Sets the size.
pub fn resize(file: FileRef, size: u64) -> Result<(), Errno> {
    if file_limit::is_set() {
        file_limit::check_size(size, || Ok(attributes(file)?.size))?;
    }
    let act = |client: &Client| client.ftruncate(file, size);
    let client = process::client()?;
    if batch::any()
        && let Some(resized) = batch::resize(client, file, size)
    {
        return resized;
    }
    if pages::concern(client, file) { pages::change(file, size, u64::MAX, act) } else { act(client) }
}

/// `fallocate` with the system call's mode bits.
pub fn allocate(file: FileRef, mode: i32, offset: u64, len: u64) -> Result<(), Errno> {
    if batch::any() {
        batch::check_none(file)?;
    }
    if file_limit::is_set() && matches!(mode, 0 | libc::FALLOC_FL_ZERO_RANGE) {
        file_limit::check_size(offset.saturating_add(len), || Ok(attributes(file)?.size))?;
    }
    let act = |client: &Client| client.fallocate(file, mode, offset, len);
    let moves = mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0;
    let end = match mode & !libc::FALLOC_FL_KEEP_SIZE {
        _ if moves => u64::MAX,
        // No byte changes: what was stored to a map and not yet written back stays.
        0 => offset,
        _ => offset.saturating_add(len),
    };
    if moves && pages::any() {
        // What was stored to a page moves with it.
        pages::before_read(file)?;
    }
    let client = process::client()?;
    if pages::concern(client, file) { pages::change(file, offset, end, act) } else { act(client) }
}

#[cfg(test)]
mod tests {
    use super::Inside;

    #[test]
    fn a_thread_is_inside_once() {
        let inside = Inside::enter();
        assert!(inside.is_ok());
        assert_eq!(Inside::enter().err(), Some(libc::EDEADLK));
        drop(inside);
        assert!(Inside::enter().is_ok());
    }
}
