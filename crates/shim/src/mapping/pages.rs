//! Pages that processes share: writable shared maps.
//!
//! ```text
//!  /dev/shm/weft-<volume>-<user>/<inode>-<birth>        pages: what every map of the inode maps
//!                               /<inode>-<birth>.base   one page of header, then what the volume holds of them
//! ```
//!
//! The first process that maps an inode loads its bytes into both files; a page that differs from its base was changed
//! through a map and is written to the volume by `msync`, `fsync`, `munmap` and at the end of the process. A process that
//! maps holds a shared `flock` on the pages as long as it does; the last one takes the files away. When a process was
//! killed, its changes are still in the pages, and whoever maps the inode next writes them to the volume first.
//!
//! A process that maps an inode also keeps its own `write`s, `read`s and truncations of it in step with the pages. What
//! other processes `write` without mapping the file is not seen through the maps: see `docs/shim.md`.
//!
//! Locks: [`STATE`] excludes the threads of this process, a record lock of the open file on the base excludes other processes
//! while bytes are loaded or written back.

use super::{PAGE_BYTES, Request, keep, let_go, page_up};
use crate::lock::Locked;
use crate::report::{Refusal, refuse};
use crate::shadow::{Path, path_of};
use crate::{process, program, shadow, sys};
use libc::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering::*};
use weft_client::{Client, Errno, FileRef, WireAttr};

/// Inodes mapped at once.
const OBJECTS_MAX: usize = 64;
/// Maps at once.
const MAPS_MAX: usize = 1024;
/// Bytes compared and moved at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// An inode whose pages this process maps.
#[derive(Clone, Copy)]
struct Object {
    ino: u64,
    birth_ns: i64,
    /// A reference of this object's own, able to write.
    file: FileRef,
    pages: c_int,
    base: c_int,
    /// Maps of it; 0 = the entry is free.
    maps: u32,
    /// Whether any map could ever write.
    writable: bool,
}

#[derive(Clone, Copy)]
struct Map {
    at: usize,
    /// 0: the entry is free.
    len: usize,
    offset: u64,
    object: usize,
}

struct State {
    objects: [Object; OBJECTS_MAX],
    maps: [Map; MAPS_MAX],
}

const NO_OBJECT: Object =
    Object { ino: 0, birth_ns: 0, file: FileRef(0), pages: -1, base: -1, maps: 0, writable: false };
const NO_MAP: Map = Map { at: 0, len: 0, offset: 0, object: 0 };
static STATE: Locked<State> =
    Locked::new(State { objects: [NO_OBJECT; OBJECTS_MAX], maps: [NO_MAP; MAPS_MAX] });
/// Maps in all, so that a call that concerns none costs one load.
static MAPS: AtomicU32 = AtomicU32::new(0);

/// Whether this process has any such map.
#[inline(always)]
pub fn any() -> bool {
    MAPS.load(Relaxed) != 0
}

// ---- the files ------------------------------------------------------------------------------------------------------

/// What the name of the base has behind that of the pages.
const BASE: &[u8] = b".base";

fn open_file(path: &Path) -> Result<c_int, Errno> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    sys::open(path.c_str(), flags, 0o600).map(keep)
}

impl Object {
    /// Opens the pages of an inode and holds them.
    fn open(client: &Client, attr: &WireAttr, file: FileRef) -> Result<Object, Errno> {
        shadow::make_directory(client)?;
        let paths = [&b""[..], BASE].map(|suffix| path_of(client, attr.ino, attr.btime_ns, suffix));
        let [pages_path, base_path] = &paths;
        loop {
            let pages = open_file(pages_path)?;
            let base = match open_file(base_path) {
                Ok(base) => base,
                Err(error) => {
                    let_go(pages);
                    return Err(error);
                }
            };
            let mut object =
                Object { ino: attr.ino, birth_ns: attr.btime_ns, file, pages, base, ..NO_OBJECT };
            match object.hold(client) {
                Ok(true) => return Ok(object),
                // Taken away between opening and holding.
                Ok(false) => object.close(),
                Err(error) => {
                    object.close();
                    return Err(error);
                }
            }
        }
    }

    /// Marks the pages as in use by this process; false when they have been taken away meanwhile.
    fn hold(&mut self, client: &Client) -> Result<bool, Errno> {
        if sys::flock(self.pages, libc::LOCK_EX | libc::LOCK_NB).is_ok() && self.is_linked()? {
            // Nobody maps them: fresh, or left behind by a process that was killed.
            self.write_back(client, 0, u64::MAX)?;
            self.set_valid(0)?;
            sys::ftruncate(self.pages, 0)?;
            sys::ftruncate(self.base, PAGE_BYTES)?;
        }
        sys::flock(self.pages, libc::LOCK_SH)?;
        self.is_linked()
    }

    fn is_linked(&self) -> Result<bool, Errno> {
        Ok(sys::fstat(self.pages)?.st_nlink > 0 && sys::fstat(self.base)?.st_nlink > 0)
    }

    fn close(&mut self) {
        let_go(std::mem::replace(&mut self.pages, -1));
        let_go(std::mem::replace(&mut self.base, -1));
    }

    /// Excludes other processes while `act` runs.
    fn exclusively<R>(&self, act: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
        // SAFETY: an all-zero flock is valid: from the start to the end.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as _;
        while let Err(error) = sys::fcntl(self.base, libc::F_OFD_SETLKW, &raw mut lock as usize) {
            if error != libc::EINTR {
                return Err(error);
            }
        }
        let result = act();
        lock.l_type = libc::F_UNLCK as _;
        let _ = sys::fcntl(self.base, libc::F_OFD_SETLK, &raw mut lock as usize);
        result
    }

    /// How many bytes of the file are loaded.
    fn valid(&self) -> Result<u64, Errno> {
        let mut word = [0; 8];
        let n = weft_client::sys::pread(self.base, &mut word, 0)?;
        Ok(if n == 8 { u64::from_le_bytes(word) } else { 0 })
    }

    fn set_valid(&self, valid: u64) -> Result<(), Errno> {
        sys::pwrite_all(self.base, &valid.to_le_bytes(), 0)
    }

    /// Puts bytes that the volume holds into pages and base.
    fn put(&self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        sys::pwrite_all(self.pages, bytes, offset)?;
        sys::pwrite_all(self.base, bytes, PAGE_BYTES + offset)
    }

    /// Loads bytes `from..to` of the volume. Nobody has written pages and base from `fresh` on: zeros need not be put there
    /// and take no memory.
    fn load(&self, client: &Client, from: u64, to: u64, fresh: u64) -> Result<(), Errno> {
        let mut chunk = [0; CHUNK_BYTES];
        let mut at = from;
        while at < to {
            let wanted = (to - at).min(CHUNK_BYTES as u64) as usize;
            let n = client.pread(self.file, chunk.get_mut(..wanted).unwrap_or(&mut []), at)?;
            if n == 0 {
                break;
            }
            let bytes = chunk.get(..n).unwrap_or(&[]);
            if at < fresh || !program::is_zero(bytes) {
                self.put(bytes, at)?;
            }
            at += n as u64;
        }
        Ok(())
    }

    /// Makes the pages as long as the file is now.
    fn fit(&self, client: &Client) -> Result<(), Errno> {
        self.exclusively(|| {
            let size = client.fstat(self.file)?.size;
            let valid = self.valid()?;
            if size > valid {
                sys::ftruncate(self.pages, page_up(size).max(sys::fstat(self.pages)?.st_size as u64))?;
                // Behind the file's end the last page may hold what was stored there through a map.
                self.load(client, valid, size, page_up(valid))?;
            } else if size < valid {
                // By way of the exact size, so that the rest of the last page is zero again.
                sys::ftruncate(self.pages, size)?;
                sys::ftruncate(self.base, PAGE_BYTES + size)?;
                sys::ftruncate(self.pages, page_up(size))?;
            }
            self.set_valid(size)
        })
    }

    /// Writes the pages in `from..to` that were changed through maps to the volume.
    fn write_back(&self, client: &Client, from: u64, to: u64) -> Result<(), Errno> {
        self.exclusively(|| {
            let to = to.min(self.valid()?);
            let (mut pages, mut base) = ([0; CHUNK_BYTES], [0; CHUNK_BYTES]);
            let mut at = self.data_from(from);
            while at < to {
                let wanted = (to - at).min(CHUNK_BYTES as u64) as usize;
                let n = weft_client::sys::pread(self.pages, pages.get_mut(..wanted).unwrap_or(&mut []), at)?;
                base.fill(0);
                weft_client::sys::pread(self.base, base.get_mut(..n).unwrap_or(&mut []), PAGE_BYTES + at)?;
                let page = PAGE_BYTES as usize;
                for (number, (new, old)) in pages.chunks(page).zip(base.chunks(page)).enumerate() {
                    let start = number * page;
                    let len = n.saturating_sub(start).min(page);
                    let (Some(new), Some(old)) = (new.get(..len), old.get(..len)) else { continue };
                    if new != old {
                        let offset = at + start as u64;
                        client.pwrite(self.file, new, offset)?;
                        sys::pwrite_all(self.base, new, PAGE_BYTES + offset)?;
                    }
                }
                if n == 0 {
                    break;
                }
                at = self.data_from(at + n as u64);
            }
            Ok(())
        })
    }

    /// The beginning of the page, but not before `at`, of the next byte from `at` on that pages or base hold; where neither
    /// does, nothing was changed.
    fn data_from(&self, at: u64) -> u64 {
        let next = |fd, offset| sys::lseek(fd, offset as i64, libc::SEEK_DATA);
        let pages = next(self.pages, at).unwrap_or(u64::MAX);
        let base = next(self.base, PAGE_BYTES + at).map_or(u64::MAX, |found| found - PAGE_BYTES);
        (pages.min(base) & !(PAGE_BYTES - 1)).max(at)
    }

    /// The last map of this process is gone.
    fn release(&mut self, client: &Client) {
        if self.writable {
            let _ = self.write_back(client, 0, u64::MAX);
        }
        // Only the last process gets this.
        if sys::flock(self.pages, libc::LOCK_EX | libc::LOCK_NB).is_ok() {
            let _ = sys::unlink(path_of(client, self.ino, self.birth_ns, BASE).c_str());
            let _ = sys::unlink(path_of(client, self.ino, self.birth_ns, b"").c_str());
            // Fails while others have files there.
            let _ = sys::rmdir(shadow::directory(client).c_str());
        }
        self.close();
        let _ = client.give_back(self.file);
        *self = NO_OBJECT;
    }
}

// ---- maps -----------------------------------------------------------------------------------------------------------

impl State {
    fn object_of(&mut self, ino: u64) -> Option<(usize, &mut Object)> {
        self.objects.iter_mut().enumerate().find(|(_, object)| object.maps > 0 && object.ino == ino)
    }

    /// The object of an inode, made when there is none.
    fn object(&mut self, client: &Client, file: FileRef, attr: &WireAttr) -> Result<usize, Errno> {
        if let Some((number, _)) = self.object_of(attr.ino) {
            return Ok(number);
        }
        let free = self.objects.iter().position(|object| object.maps == 0);
        let Some(free) = free else { return Err(refuse(Refusal::MapTable)) };
        client.add_ref(file)?;
        match Object::open(client, attr, file) {
            Ok(object) => {
                if let Some(place) = self.objects.get_mut(free) {
                    *place = object;
                }
                Ok(free)
            }
            Err(error) => {
                let _ = client.give_back(file);
                Err(error)
            }
        }
    }

    fn add(&mut self, map: Map) -> bool {
        let Some(place) = self.maps.iter_mut().find(|place| place.len == 0) else { return false };
        *place = map;
        if let Some(object) = self.objects.get_mut(map.object) {
            object.maps += 1;
        }
        MAPS.fetch_add(1, AcqRel);
        true
    }

    /// Takes `at..at + len` out of the maps; what is left of a map on either side stays.
    fn remove(&mut self, client: &Client, at: usize, len: usize) {
        let end = at.saturating_add(len);
        for number in 0..MAPS_MAX {
            let Some(map) = self.maps.get(number).copied() else { break };
            let map_end = map.at + map.len;
            if map.len == 0 || map.at >= end || map_end <= at {
                continue;
            }
            if let Some(object) = self.objects.get(map.object)
                && object.writable
            {
                let _ = object.write_back(client, map.offset, map.offset + map.len as u64);
            }
            if let Some(place) = self.maps.get_mut(number) {
                *place = NO_MAP;
            }
            MAPS.fetch_sub(1, AcqRel);
            let parts = [(map.at, at.max(map.at)), (end.min(map_end), map_end)];
            for (start, stop) in parts {
                if stop > start {
                    let offset = map.offset + (start - map.at) as u64;
                    self.add(Map { at: start, len: stop - start, offset, object: map.object });
                }
            }
            if let Some(object) = self.objects.get_mut(map.object) {
                object.maps -= 1;
                if object.maps == 0 {
                    object.release(client);
                }
            }
        }
    }

    fn each_map(&self, at: usize, len: usize, mut each: impl FnMut(&Object, &Map)) {
        let end = at.saturating_add(len);
        for map in self.maps.iter().filter(|map| map.len > 0 && map.at < end && map.at + map.len > at) {
            if let Some(object) = self.objects.get(map.object) {
                each(object, map);
            }
        }
    }
}

/// Maps pages of a file.
pub fn map(client: &Client, file: FileRef, attr: &WireAttr, request: &Request) -> Result<*mut u8, Errno> {
    STATE.with(|state| {
        let number = state.object(client, file, attr)?;
        let Some(object) = state.objects.get_mut(number) else { return Err(libc::ENOMEM) };
        object.writable |= request.prot & libc::PROT_WRITE != 0;
        let flags = libc::MAP_SHARED | request.placing();
        let mapped = object.fit(client).and_then(|()| {
            sys::mmap(request.at as usize, request.len, request.prot, flags, object.pages, request.offset)
        });
        let result = mapped.and_then(|place| {
            let len = page_up(request.len as u64) as usize;
            if request.flags & libc::MAP_FIXED != 0 {
                // What was mapped there is gone.
                state.remove(client, place as usize, len);
            }
            if state.add(Map { at: place as usize, len, offset: request.offset, object: number }) {
                return Ok(place);
            }
            // SAFETY: just mapped, not known to the program.
            let _ = unsafe { sys::munmap(place, len) };
            Err(refuse(Refusal::MapTable))
        });
        if let Some(object) = state.objects.get_mut(number)
            && result.is_err()
            && object.maps == 0
        {
            object.release(client);
        }
        result
    })
}

/// A range is about to be unmapped, or mapped over.
pub fn unmapping(at: *mut c_void, len: usize) {
    if let Ok(client) = process::client() {
        STATE.with(|state| state.remove(client, at as usize, page_up(len as u64) as usize));
    }
}

/// `msync` of a range: `None` when it touches no such map. Without `MS_SYNC` the volume has the bytes, not yet durable.
pub fn sync(at: *mut c_void, len: usize, flags: c_int) -> Option<Result<(), Errno>> {
    let client = process::client().ok()?;
    STATE.with(|state| {
        let mut outcome = None;
        state.each_map(at as usize, len.max(1), |object, map| {
            let result = object.write_back(client, map.offset, map.offset + map.len as u64);
            let result = match result {
                Ok(()) if flags & libc::MS_SYNC != 0 => client.fsync(object.file),
                result => result,
            };
            outcome = Some(match outcome {
                Some(Err(error)) => Err(error),
                _ => result,
            });
        });
        outcome
    })
}

/// Memory of a range becomes writable by `mprotect`: from now on it may differ from the volume.
pub fn become_writable(at: *mut c_void, len: usize) {
    STATE.with(|state| {
        let end = (at as usize).saturating_add(len);
        for map in
            state.maps.iter().filter(|map| map.len > 0 && map.at < end && map.at + map.len > at as usize)
        {
            if let Some(object) = state.objects.get_mut(map.object) {
                object.writable = true;
            }
        }
    });
}

/// `mremap` of a range: `None` when it touches no such map.
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
    let client = process::client().ok()?;
    STATE.with(|state| {
        let mut found = None;
        state.each_map(at as usize, old.max(1), |_, map| found = Some(*map));
        let map = found?;
        if new > old
            && let Some(object) = state.objects.get(map.object)
            && let Err(error) = object.fit(client)
        {
            return Some(Err(error));
        }
        if flags & libc::MREMAP_FIXED != 0 {
            // What was mapped there is gone.
            state.remove(client, to, page_up(new as u64) as usize);
        }
        // SAFETY: the caller's promise.
        let moved = unsafe { sys::mremap(at, old, new, flags, to) };
        if let Ok(place) = moved {
            let offset = map.offset + (at as usize - map.at.min(at as usize)) as u64;
            // The new entry first, so that the object does not lose its last map in between.
            let len = page_up(new as u64) as usize;
            let added = state.add(Map { at: usize::MAX - len, len, offset, object: map.object });
            state.remove(client, at as usize, page_up(old as u64) as usize);
            if added && let Some(entry) = state.maps.iter_mut().find(|entry| entry.at == usize::MAX - len) {
                entry.at = place as usize;
            }
        }
        Some(moved)
    })
}

// ---- keeping this process's own reads and writes in step ------------------------------------------------------------

/// Does `act` with the object of an open file's inode, when this process maps it.
fn with_object(file: FileRef, act: impl FnOnce(&Client, &Object) -> Result<(), Errno>) -> Result<(), Errno> {
    let client = process::client()?;
    let ino = match client.ino_here(file) {
        Some(ino) => ino,
        None => client.fstat(file)?.ino,
    };
    STATE.with(|state| match state.object_of(ino) {
        Some((_, object)) => act(client, object),
        None => Ok(()),
    })
}

/// Before bytes of a file are read, or made durable: what maps changed has to be in the volume.
#[cold]
pub fn before_read(file: FileRef) -> Result<(), Errno> {
    with_object(
        file,
        |client, object| if object.writable { object.write_back(client, 0, u64::MAX) } else { Ok(()) },
    )
}

/// After `len` bytes were written, at `offset` or up to the file offset.
#[cold]
pub fn after_write(file: FileRef, offset: Option<u64>, len: usize) -> Result<(), Errno> {
    with_object(file, |client, object| {
        let end = match offset {
            Some(offset) => offset + len as u64,
            None => client.seek(file, 0, libc::SEEK_CUR)?,
        };
        let start = end.saturating_sub(len as u64);
        let valid = object.valid()?;
        if start < valid {
            object.exclusively(|| object.load(client, start, end.min(valid), u64::MAX))?;
        }
        object.fit(client)
    })
}

/// After a file was truncated or extended.
#[cold]
pub fn after_resize(file: FileRef) -> Result<(), Errno> {
    with_object(file, |client, object| object.fit(client))
}

// ---- the process ----------------------------------------------------------------------------------------------------

/// Writes back what maps changed: at the end of the process, and before another program takes its place.
pub fn write_back_all() {
    if !any() {
        return;
    }
    if let Ok(client) = process::client() {
        STATE.with(|state| {
            for object in state.objects.iter().filter(|object| object.maps > 0 && object.writable) {
                let _ = object.write_back(client, 0, u64::MAX);
            }
        });
    }
}

/// At the end of the process.
pub fn release_all() {
    if !any() {
        return;
    }
    if let Ok(client) = process::client() {
        STATE.with(|state| {
            for object in state.objects.iter_mut().filter(|object| object.maps > 0) {
                object.release(client);
            }
            state.maps = [NO_MAP; MAPS_MAX];
            MAPS.store(0, Release);
        });
    }
}

/// In a forked child: the pages are held by an open file of the child's own, so that parent and child count as two.
pub fn after_fork() {
    STATE.force_open();
    if !any() {
        return;
    }
    let Ok(client) = process::client() else { return };
    STATE.with(|state| {
        for object in state.objects.iter_mut().filter(|object| object.maps > 0) {
            let paths = [&b""[..], BASE].map(|suffix| path_of(client, object.ino, object.birth_ns, suffix));
            let [pages, base] = paths.each_ref().map(open_file);
            if let (Ok(pages), Ok(base)) = (pages, base) {
                let _ = sys::flock(pages, libc::LOCK_SH);
                object.close();
                (object.pages, object.base) = (pages, base);
            }
        }
    });
}
