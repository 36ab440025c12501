//! Memory maps of weft files.
//!
//! The kernel cannot map what it does not store, so a map is a map of a copy:
//!
//! - private maps, and shared ones that can only be read (the descriptor is read-only), map a copy made when they are
//!   made ([`copies`]);
//! - shared maps of a descriptor that can write map *pages*: a file in `/dev/shm` that all processes of the user which
//!   map the inode have in common, and whose changes go back to the volume ([`pages`]).
//!
//! What a copy costs is memory: as much as is mapped, not reclaimable as a kernel's page cache is.

pub mod copies;
pub mod object;
pub mod pages;
pub mod stores;

use crate::file::batch;
use crate::process;
use crate::report::{Refusal, refuse};
use libc::{c_int, c_void};
use weft_client::InodeFlags;
use weft_client::proto::{is_readable, is_writable};
use weft_client::{Errno, FileRef};

/// Bytes of a page; offsets of maps are multiples of it.
pub const PAGE_BYTES: u64 = 4096;

const KINDS: c_int = libc::MAP_SHARED | libc::MAP_PRIVATE;
/// Flags that say where and how to map, which a copy's map takes over.
const PLACING: c_int = libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_32BIT
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_LOCKED
    | libc::MAP_STACK;

/// What the program asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Wanted address.
    pub at: *mut c_void,
    /// Bytes.
    pub len: usize,
    /// `PROT_` bits.
    pub prot: c_int,
    /// `MAP_` bits.
    pub flags: c_int,
    /// Offset in the file.
    pub offset: u64,
}

impl Request {
    /// The flags that place the map.
    fn placing(&self) -> c_int {
        self.flags & PLACING
    }
}

/// Maps a weft file.
pub fn map(file: FileRef, request: Request) -> Result<*mut c_void, Errno> {
    // In the order in which Linux looks.
    if !request.offset.is_multiple_of(PAGE_BYTES) {
        return Err(libc::EINVAL);
    }
    let client = process::client()?;
    let flags = client.flags(file)?;
    if flags & libc::O_PATH != 0 {
        return Err(libc::EBADF);
    }
    if request.len == 0 {
        return Err(libc::EINVAL);
    }
    if batch::any() {
        batch::check_none(file)?;
    }
    if pages::any() {
        pages::before_read(file)?;
    }
    if request.offset.checked_add(page_up(request.len as u64)).is_none_or(|end| end > i64::MAX as u64) {
        return Err(libc::EOVERFLOW);
    }
    let kind = request.flags & KINDS;
    if kind == 0 {
        return Err(libc::EINVAL);
    }
    if kind == libc::MAP_SHARED_VALIDATE && request.flags & libc::MAP_SYNC != 0 {
        // Stores are not durable when they have reached the memory.
        return Err(libc::EOPNOTSUPP);
    }
    let shared = kind != libc::MAP_PRIVATE;
    let denied = shared && request.prot & libc::PROT_WRITE != 0 && !is_writable(flags);
    if denied || !is_readable(flags) {
        return Err(libc::EACCES);
    }
    let (attr, inode_flags) = client.stat_with_flags(file, b"", libc::AT_EMPTY_PATH)?;
    if shared && is_writable(flags) && inode_flags.contains(InodeFlags::APPEND) {
        return Err(libc::EACCES);
    }
    if attr.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(libc::ENODEV);
    }
    let there = if shared && is_writable(flags) {
        let mapped = pages::map(client, file, &attr, &request);
        mapped.map_err(|error| if error == libc::ENOSPC { refuse(Refusal::SharedMemory) } else { error })?
    } else {
        copies::map(client, file, &attr, &request)?
    };
    // Mapping is an access; what the program reads there afterwards goes unseen.
    client.note_access(file)?;
    Ok(there.cast())
}

/// Rounds up to whole pages.
pub fn page_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}
