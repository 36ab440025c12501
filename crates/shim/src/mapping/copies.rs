//! Copies of files for maps that do not change the file.
//!
//! A map of most of a file is a private map of a memory file that holds all of it; memory files of unchanged files are
//! kept for the next map of the same. A map of a small part is filled by itself.

use super::{PAGE_BYTES, Request, keep, let_go};
use crate::lock::Locked;
use crate::{program, sys};
use libc::c_int;
use weft_client::{Client, Errno, FileRef, WireAttr};

/// Copies kept at once.
const COPIES_MAX: usize = 64;
/// Bytes of copies kept at once.
const BYTES_MAX: u64 = 256 << 20;
/// A file that changed less than this before it was copied may change again without its times telling: they tick in
/// 4 ms on some kernels. Its copy is not kept.
const SETTLED_NS: i64 = 50_000_000;

/// The state of a file that a copy holds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    ino: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    btime_ns: i64,
}

#[derive(Clone, Copy)]
struct Copy {
    version: Version,
    /// -1: no copy.
    fd: c_int,
    used: u64,
}

struct Copies {
    copies: [Copy; COPIES_MAX],
    clock: u64,
}

const NO_VERSION: Version = Version { ino: 0, size: 0, mtime_ns: 0, ctime_ns: 0, btime_ns: 0 };
static COPIES: Locked<Copies> =
    Locked::new(Copies { copies: [Copy { version: NO_VERSION, fd: -1, used: 0 }; COPIES_MAX], clock: 0 });

/// In a forked child.
pub fn open_locks() {
    COPIES.force_open();
}

impl Copies {
    fn find(&mut self, version: &Version) -> Option<c_int> {
        self.clock += 1;
        let clock = self.clock;
        let copy = self.copies.iter_mut().find(|copy| copy.fd >= 0 && copy.version == *version)?;
        copy.used = clock;
        Some(copy.fd)
    }

    /// Takes in a copy; others that have been used longest ago make room.
    fn insert(&mut self, version: Version, fd: c_int) {
        self.clock += 1;
        loop {
            let held: u64 =
                self.copies.iter().filter(|copy| copy.fd >= 0).map(|copy| copy.version.size).sum();
            let free = self.copies.iter_mut().find(|copy| copy.fd < 0);
            if let Some(free) = free
                && held + version.size <= BYTES_MAX
            {
                *free = Copy { version, fd, used: self.clock };
                return;
            }
            match self.copies.iter_mut().filter(|copy| copy.fd >= 0).min_by_key(|copy| copy.used) {
                Some(oldest) => let_go(std::mem::replace(&mut oldest.fd, -1)),
                None => return let_go(fd),
            }
        }
    }
}

/// Maps a copy of (part of) a file.
pub fn map(client: &Client, file: FileRef, attr: &WireAttr, request: &Request) -> Result<*mut u8, Errno> {
    let rest = attr.size.saturating_sub(request.offset);
    if (request.len as u64) < rest && (request.len as u64) < attr.size / 2 {
        return map_part(client, file, request);
    }
    let version = Version {
        ino: attr.ino,
        size: attr.size,
        mtime_ns: attr.mtime_ns,
        ctime_ns: attr.ctime_ns,
        btime_ns: attr.btime_ns,
    };
    let settled = weft_client::sys::coarse_now_ns() - attr.mtime_ns.max(attr.ctime_ns) > SETTLED_NS;
    if settled {
        // Mapped under the lock: another thread's insertion may close the copy.
        let found = COPIES.with(|copies| copies.find(&version).map(|fd| map_copy(fd, request)));
        if let Some(result) = found {
            return result;
        }
    }
    let fd = program::copy(client, file, attr.size, c"weft-copy", libc::MFD_CLOEXEC)?;
    let result = sys::ftruncate(fd, attr.size).and_then(|()| map_copy(fd, request));
    if settled && result.is_ok() {
        let fd = keep(fd);
        COPIES.with(|copies| copies.insert(version, fd));
    } else {
        let _ = weft_client::sys::close(fd);
    }
    result
}

/// Private, so that nothing the program does to the map reaches the copy.
fn map_copy(fd: c_int, request: &Request) -> Result<*mut u8, Errno> {
    let flags = libc::MAP_PRIVATE | request.placing();
    sys::mmap(request.at as usize, request.len, request.prot, flags, fd, request.offset)
}

/// Fills memory with a part of a file. Unlike the kernel's map it has zeros instead of a signal behind the file's end.
fn map_part(client: &Client, file: FileRef, request: &Request) -> Result<*mut u8, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | request.placing();
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let place = sys::mmap(request.at as usize, request.len, writable, flags, -1, 0)?;
    // SAFETY: just mapped, of this length, not known to the program yet.
    let memory = unsafe { std::slice::from_raw_parts_mut(place, request.len) };
    let filled = fill(client, file, request.offset, memory);
    let mapped = super::page_up(request.len as u64) as usize;
    let result = match filled {
        // SAFETY: the map that was just made.
        Ok(()) if request.prot != writable => unsafe { sys::mprotect(place, mapped, request.prot) },
        result => result,
    };
    if let Err(error) = result {
        // SAFETY: as above.
        let _ = unsafe { sys::munmap(place, mapped) };
        return Err(error);
    }
    Ok(place)
}

fn fill(client: &Client, file: FileRef, offset: u64, memory: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while let Some(rest) = memory.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match client.pread(file, rest, offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(())
}

const _: () = assert!(PAGE_BYTES.is_power_of_two());
