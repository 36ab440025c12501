//! Copies of files for maps that do not change the file.
//!
//! A map of most of a file is a private map of a memory file that holds all of it; memory files of unchanged files are
//! kept for the next map of the same. A map of a small part has a memory file of its own. Behind the file's end, as in the
//! kernel's own maps, the rest of the last page is zero and what follows is a `SIGBUS`.
//!
//! A private map of one page that is only read is memory of the process's own, which takes a third of the time that a memory file
//! takes: git maps each of its loose objects. A page must not be taken out of such a map (`MADV_DONTNEED`), as the kernel would not
//! find it again.
//!
//! A table tells how much of the copy lies behind each map, so that a map that is to grow beyond it is refused instead.

use super::{PAGE_BYTES, Request, page_up};
use crate::descriptors::keep::{keep, let_go};
use crate::lock::Locked;
use crate::owned::Fd;
use crate::process::program;
use crate::report::{Refusal, refuse};
use crate::sys;
use libc::c_int;
use std::sync::atomic::{AtomicU32, Ordering::*};
use weft_client::scratch::Scratch;
use weft_client::{Client, Errno, FileRef, WireAttr};

/// Copies kept at once.
const COPIES_MAX: usize = 64;
/// Bytes of copies kept at once.
const BYTES_MAX: u64 = 256 << 20;
/// Bytes copied at once.
const CHUNK_BYTES: usize = 64 * 1024;
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
    MAPS.force_open();
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
    // The whole of the last page belongs to the map, as far as the file goes.
    let len = page_up(request.len as u64).min(rest);
    if len < rest && len < attr.size / 2 {
        return map_part(client, file, len, request);
    }
    let is_private = request.flags & super::KINDS == libc::MAP_PRIVATE && request.prot == libc::PROT_READ;
    let is_page = len == rest && len > 0 && page_up(request.len as u64) == PAGE_BYTES;
    if is_private && is_page && request.placing() == 0 {
        // Where the process may have no memory of its own (`ulimit -d`), a memory file may still do.
        if let Ok(place) = map_page(client, file, len as usize, request) {
            return Ok(place);
        }
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
        let found = COPIES.with(|copies| copies.find(&version).map(|fd| map_copy(fd, attr.size, request)));
        if let Some(result) = found {
            return result;
        }
    }
    let fd = program::copy(client, file, attr.size, c"weft-copy")?;
    let place = map_copy(*fd, attr.size, request)?;
    if settled {
        let fd = keep(fd);
        COPIES.with(|copies| copies.insert(version, fd));
    }
    Ok(place)
}

/// Maps the last page of a file.
fn map_page(client: &Client, file: FileRef, len: usize, request: &Request) -> Result<*mut u8, Errno> {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let place = sys::mmap(request.at as usize, request.len, prot, flags, -1, 0)?;
    // SAFETY: just mapped, at least as long.
    let bytes = unsafe { std::slice::from_raw_parts_mut(place, len) };
    let mut done = 0;
    let filled = loop {
        match bytes.get_mut(done..) {
            Some(rest @ [_, ..]) => match client.pread(file, rest, request.offset + done as u64) {
                // It has become shorter.
                Ok(0) => break Err(libc::EAGAIN),
                Ok(n) => done += n,
                Err(error) => break Err(error),
            },
            // SAFETY: as above.
            _ => break unsafe { sys::mprotect(place, request.len, libc::PROT_READ) },
        }
    };
    let len = PAGE_BYTES as usize;
    // One that nobody knows of as such could lose its page.
    let noted = filled.is_ok() && note(Map { at: place as usize, len, behind: len, is_own: true });
    if noted {
        return Ok(place);
    }
    // SAFETY: as above; nobody got to know of it.
    let _ = unsafe { sys::munmap(place, request.len) };
    Err(filled.err().unwrap_or(libc::ENOMEM))
}

/// Nothing the program does to the map reaches the copy: it is private, or of a descriptor that cannot write, so that the
/// kernel refuses to make it writable as it does with the file's own.
fn map_copy(fd: c_int, size: u64, request: &Request) -> Result<*mut u8, Errno> {
    let shared = request.flags & libc::MAP_SHARED != 0;
    // Fails where there is no `/proc`.
    let again = || sys::open_again(fd, libc::O_RDONLY | libc::O_CLOEXEC).ok().map(Fd);
    let reader = if shared { again() } else { None };
    let (kind, fd) = reader.as_deref().map_or((libc::MAP_PRIVATE, fd), |reader| (libc::MAP_SHARED, *reader));
    let flags = kind | request.placing();
    let place = sys::mmap(request.at as usize, request.len, request.prot, flags, fd, request.offset)?;
    let len = page_up(request.len as u64) as usize;
    let behind = page_up(size).saturating_sub(request.offset) as usize;
    note(Map { at: place as usize, len, behind, is_own: false });
    Ok(place)
}

/// Maps a copy of a part of a file.
fn map_part(client: &Client, file: FileRef, len: u64, request: &Request) -> Result<*mut u8, Errno> {
    let fd = Fd(sys::memfd_create(c"weft-part", libc::MFD_CLOEXEC)?);
    fill(client, file, request.offset, len, *fd)?;
    map_copy(*fd, len, &Request { offset: 0, ..*request })
}

fn fill(client: &Client, file: FileRef, offset: u64, len: u64, fd: c_int) -> Result<(), Errno> {
    let mut chunk = Scratch::<[u8; CHUNK_BYTES]>::any()?;
    let mut done = 0;
    while done < len {
        let wanted = (len - done).min(CHUNK_BYTES as u64) as usize;
        match client.pread(file, chunk.get_mut(..wanted).unwrap_or(&mut []), offset + done)? {
            0 => break,
            n => {
                let bytes = chunk.get(..n).unwrap_or(&[]);
                done =
                    program::put_fresh(client, file, bytes, offset + done, fd, done)?.saturating_sub(offset);
            }
        }
    }
    // As long as what was read, so that what lies behind the file's end is a `SIGBUS`.
    sys::ftruncate(fd, done.min(len))
}

// ---- what is mapped -------------------------------------------------------------------------------------------------

/// Maps that are remembered at once; one that finds no place can grow as far as the kernel lets it.
const MAPS_MAX: usize = 4096;

#[derive(Clone, Copy)]
struct Map {
    at: usize,
    /// 0: the entry is free.
    len: usize,
    /// Bytes from the map's start to the end of the copy.
    behind: usize,
    /// Whether the copy is memory of the process's own.
    is_own: bool,
}

struct Maps {
    maps: [Map; MAPS_MAX],
    /// From here on all entries are free.
    used: usize,
}

impl Maps {
    fn used(&mut self) -> impl Iterator<Item = &mut Map> {
        self.maps.iter_mut().take(self.used).filter(|map| map.len > 0)
    }
}

static MAPS: Locked<Maps> =
    Locked::new(Maps { maps: [Map { at: 0, len: 0, behind: 0, is_own: false }; MAPS_MAX], used: 0 });
static MAPS_COUNT: AtomicU32 = AtomicU32::new(0);

/// Whether this process maps any copy, so that a call that concerns none costs one load.
#[inline(always)]
pub fn any_maps() -> bool {
    MAPS_COUNT.load(Relaxed) != 0
}

/// Whether there was a place for it.
fn note(map: Map) -> bool {
    MAPS.with(|maps| {
        let free = maps.maps.iter().position(|map| map.len == 0);
        if let Some(free) = free {
            maps.maps[free] = map;
            maps.used = maps.used.max(free + 1);
            MAPS_COUNT.fetch_add(1, Relaxed);
        }
        free.is_some()
    })
}

/// A range is about to be unmapped, or mapped over. What is left of a map in front of it stays remembered.
pub fn unmapping(at: usize, len: usize) {
    let end = at.saturating_add(page_up(len as u64) as usize);
    MAPS.with(|maps| {
        for map in maps.used().filter(|map| map.at < end && map.at + map.len > at) {
            map.len = at.saturating_sub(map.at);
            if map.len == 0 {
                let maps = MAPS_COUNT.fetch_sub(1, Relaxed);
                debug_assert!(maps > 0, "every map was counted");
            }
        }
        while maps.used.checked_sub(1).is_some_and(|last| maps.maps[last].len == 0) {
            maps.used -= 1;
        }
    });
}

/// The first page of the process's own memory in a range that stands for a file's and cannot be read again.
pub fn own_page(at: usize, end: usize) -> Option<usize> {
    MAPS.with(|maps| {
        maps.used().filter(|map| map.is_own && map.at < end && map.at + map.len > at).map(|map| map.at).min()
    })
}

/// `mremap` of a map of a copy: `None` when it is none. One that is to grow beyond the copy is refused: what the file has
/// there is not in it.
///
/// # Safety
/// As `mremap(2)`.
pub unsafe fn remap(
    at: *mut u8,
    old: usize,
    new: usize,
    flags: c_int,
    to: usize,
) -> Option<Result<*mut u8, Errno>> {
    let map = MAPS.with(|maps| {
        maps.used().find(|map| (map.at..map.at + map.len).contains(&(at as usize))).map(|map| *map)
    })?;
    let behind = map.behind.saturating_sub(at as usize - map.at);
    let len = page_up(new as u64) as usize;
    if len > page_up(old as u64) as usize && len > behind {
        return Some(Err(refuse(Refusal::MapGrow)));
    }
    // SAFETY: the caller's promise.
    let moved = unsafe { sys::mremap(at, old, new, flags, to) };
    if let Ok(place) = moved {
        unmapping(at as usize, old);
        unmapping(place as usize, new);
        note(Map { at: place as usize, len, behind, is_own: map.is_own });
    }
    Some(moved)
}

const _: () = assert!(PAGE_BYTES.is_power_of_two());
