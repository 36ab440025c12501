//! Pages that processes share: writable shared maps.
//!
//! The first process that maps an inode loads its bytes ([`super::object`] tells where); what is stored to them through a map
//! is written to the volume by `msync`, `fsync`, `munmap` and at the end of the process. When a process was killed, its stores
//! are still in the pages, and whoever maps the inode next writes them to the volume first.
//!
//! A process that maps an inode also keeps its own `read`s of it in step with the pages. Whoever writes to a mapped inode, or
//! truncates it, changes the pages as well, when it knows that there are any: see `docs/shim.md`.
//!
//! Locks: `STATE` excludes the threads of this process, [`Object::exclusively`] other processes.

use super::object::{NO_OBJECT, Object, close_pair};
use super::stores::Stores;
use super::{PAGE_BYTES, Request, page_up};
use crate::descriptors::limit;
use crate::lock::Locked;
use crate::report::{Refusal, refuse};
use crate::{process, sys};
use libc::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering::*};
use weft_client::scratch::{AnyBytes, Scratch};
use weft_client::{Client, Errno, FileRef, WireAttr};

/// Inodes mapped at once.
const OBJECTS_MAX: usize = 64;
/// Maps at once.
const MAPS_MAX: usize = 1024;

/// A map, or a part of one.
#[derive(Clone, Copy)]
pub struct Map {
    /// Where it is.
    pub at: usize,
    /// 0: the entry is free.
    pub len: usize,
    /// Offset in the file.
    pub offset: u64,
    object: usize,
}

/// The maps of one object.
pub struct Maps<'a> {
    all: &'a [Map],
    object: usize,
    stores: &'a mut Stores,
}

impl Maps<'_> {
    /// Calls `each` with those that show bytes `from..to` of the file, and with the part of each that does, in whole pages.
    pub fn each(&mut self, from: u64, to: u64, mut each: impl FnMut(&Map, Map, &mut Stores)) {
        for map in self.all.iter().filter(|map| map.len > 0 && map.object == self.object) {
            let offset = map.offset.max(from & !(PAGE_BYTES - 1));
            let end = page_up((map.offset + map.len as u64).min(to));
            if offset < end {
                let at = map.at + (offset - map.offset) as usize;
                each(map, Map { at, offset, len: (end - offset) as usize, ..*map }, self.stores);
            }
        }
    }
}

struct State {
    objects: [Object; OBJECTS_MAX],
    maps: [Map; MAPS_MAX],
    stores: Stores,
}

const NO_MAP: Map = Map { at: 0, len: 0, offset: 0, object: 0 };
static STATE: Locked<State> =
    Locked::new(State { objects: [NO_OBJECT; OBJECTS_MAX], maps: [NO_MAP; MAPS_MAX], stores: Stores::NONE });
/// Maps in all, so that a call that concerns none costs one load.
static MAPS: AtomicU32 = AtomicU32::new(0);

/// Whether this process has any such map.
#[inline(always)]
pub fn any() -> bool {
    MAPS.load(Relaxed) != 0
}

/// Whether this process maps the file so.
pub fn shows(client: &Client, file: FileRef) -> Result<bool, Errno> {
    let ino = ino_of(client, file)?;
    Ok(STATE.with(|state| state.object_of(ino).is_some()))
}

/// Whether a change of a file may have to be shown in maps, of this process or of others.
#[inline(always)]
pub fn concern(client: &Client, file: FileRef) -> bool {
    any() || client.is_mapped(file)
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
        match limit::with_descriptors(|| Object::open(client, attr, file)) {
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

    /// Calls `act` with an object and its maps.
    fn with_maps<R>(&mut self, number: usize, act: impl FnOnce(&mut Object, &mut Maps) -> R) -> Option<R> {
        let mut maps = Maps { all: &self.maps, object: number, stores: &mut self.stores };
        self.objects.get_mut(number).map(|object| act(object, &mut maps))
    }

    /// Writes to the volume what was stored to these bytes of an object.
    fn write_back(&mut self, client: &Client, number: usize, from: u64, to: u64) -> Result<(), Errno> {
        let written = self.with_maps(number, |object, maps| {
            if object.writable { object.write_back(client, from, to, maps) } else { Ok(()) }
        });
        written.unwrap_or(Ok(()))
    }

    fn is_mapped(&self, number: usize) -> bool {
        self.objects.get(number).is_some_and(|object| object.maps > 0)
    }

    fn release(&mut self, client: &Client, number: usize) {
        self.with_maps(number, |object, maps| object.release(client, maps));
    }

    fn add(&mut self, map: Map) -> bool {
        let Some(place) = self.maps.iter_mut().find(|place| place.len == 0) else { return false };
        *place = map;
        if let Some(object) = self.objects.get_mut(map.object) {
            object.maps += 1;
        }
        MAPS.fetch_add(1, AcqRel);
        debug_assert!(self.is_mapped(map.object), "a map is one of an object");
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
            // The server remembers what it does not take, for the next `fsync` or close; the pages keep it.
            let _ = self.write_back(client, map.object, map.offset, map.offset + map.len as u64);
            if let Some(place) = self.maps.get_mut(number) {
                *place = NO_MAP;
            }
            let maps = MAPS.fetch_sub(1, AcqRel);
            debug_assert!(maps > 0, "every map was counted");
            let parts = [(map.at, at.max(map.at)), (end.min(map_end), map_end)];
            for (start, stop) in parts {
                if stop > start {
                    let offset = map.offset + (start - map.at) as u64;
                    self.add(Map { at: start, len: stop - start, offset, object: map.object });
                }
            }
            let last = self.objects.get_mut(map.object).is_some_and(|object| {
                debug_assert!(object.maps > 0, "an object is there as long as a map of it");
                object.maps -= 1;
                object.maps == 0
            });
            if last {
                self.release(client, map.object);
            }
        }
    }

    /// The parts of maps that lie in a range, one for each number of a map at most.
    fn part(&self, number: usize, at: usize, len: usize) -> Option<Map> {
        let map = self.maps.get(number)?;
        let start = map.at.max(at);
        let len = (map.at + map.len).min(at.saturating_add(len)).checked_sub(start).filter(|len| *len > 0)?;
        Some(Map { at: start, len, offset: map.offset + (start - map.at) as u64, object: map.object })
    }
}

/// Maps pages of a file.
pub fn map(client: &Client, file: FileRef, attr: &WireAttr, request: &Request) -> Result<*mut u8, Errno> {
    STATE.with(|state| {
        let number = state.object(client, file, attr)?;
        let Some(object) = state.objects.get_mut(number) else { return Err(libc::ENOMEM) };
        let writes = request.prot & libc::PROT_WRITE != 0;
        let flags = libc::MAP_SHARED | request.placing();
        let joined = if writes { object.become_writable() } else { Ok(()) };
        let mapped = joined.and_then(|()| object.fit(client)).and_then(|()| {
            sys::mmap(request.at as usize, request.len, request.prot, flags, object.pages, request.offset)
        });
        let result = mapped.and_then(|place| {
            let len = page_up(request.len as u64) as usize;
            // What was mapped there is gone: by MAP_FIXED, or before by a system call that no hook saw.
            state.remove(client, place as usize, len);
            let map = Map { at: place as usize, len, offset: request.offset, object: number };
            if state.add(map) {
                let mut maps = Maps { all: &[map], object: number, stores: &mut state.stores };
                if writes && let Some(object) = state.objects.get(number) {
                    object.watch(&mut maps);
                }
                return Ok(place);
            }
            // SAFETY: just mapped, not known to the program.
            let _ = unsafe { sys::munmap(place, len) };
            Err(refuse(Refusal::MapTable))
        });
        if result.is_err() && !state.is_mapped(number) {
            state.release(client, number);
        }
        result
    })
}

/// A range is about to be unmapped, or mapped over.
pub fn unmapping(at: *mut c_void, len: usize) {
    with_all(|state, client| state.remove(client, at as usize, page_up(len as u64) as usize));
}

/// `msync` of a range: `None` when it touches no such map. Without `MS_SYNC` the volume has the bytes, not yet durable.
pub fn sync(at: *mut c_void, len: usize, flags: c_int) -> Option<Result<(), Errno>> {
    let client = process::client().ok()?;
    STATE.with(|state| {
        let mut outcome = None;
        for number in 0..MAPS_MAX {
            let Some(part) = state.part(number, at as usize, len.max(1)) else { continue };
            let mut result =
                state.write_back(client, part.object, part.offset, part.offset + part.len as u64);
            if flags & libc::MS_SYNC != 0
                && let Some(object) = state.objects.get(part.object)
            {
                // Also when something could not be stored: with that the open file has heard of it.
                result = result.and(client.fsync(object.file));
            }
            outcome = Some(outcome.unwrap_or(Ok(())).and(result));
        }
        outcome
    })
}

/// `madvise(MADV_REMOVE)` of a range: `None` when it touches no such map. The file has a hole there from now on.
pub fn remove(at: *mut c_void, len: usize) -> Option<Result<(), Errno>> {
    let client = process::client().ok()?;
    STATE.with(|state| {
        let mut outcome = None;
        for number in 0..MAPS_MAX {
            let Some(part) = state.part(number, at as usize, len) else { continue };
            if !(at as u64).is_multiple_of(PAGE_BYTES) {
                return Some(Err(libc::EINVAL));
            }
            let Some(object) = state.objects.get(part.object) else { continue };
            let (from, to) = (part.offset, part.offset + page_up(part.len as u64));
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let result = object.change(client, || {
                client.fallocate(object.file, mode, from, to - from).map(|()| ((), from, to))
            });
            outcome = Some(outcome.unwrap_or(Ok(())).and(result));
        }
        outcome
    })
}

/// Memory of a range becomes writable by `mprotect`: from now on it may differ from the volume.
pub fn become_writable(at: *mut c_void, len: usize) -> Result<(), Errno> {
    STATE.with(|state| {
        (0..MAPS_MAX).try_for_each(|number| {
            let Some(part) = state.part(number, at as usize, len) else { return Ok(()) };
            state.objects.get_mut(part.object).map_or(Ok(()), Object::become_writable)
        })
    })
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
        let number = (0..MAPS_MAX).rfind(|number| state.part(*number, at as usize, old.max(1)).is_some())?;
        let map = *state.maps.get(number)?;
        // As long as it is where the kernel tells what was stored there.
        let _ = state.write_back(client, map.object, map.offset, map.offset + map.len as u64);
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

/// The inode of an open file.
fn ino_of(client: &Client, file: FileRef) -> Result<u64, Errno> {
    match client.ino_here(file) {
        Some(ino) => Ok(ino),
        None => Ok(client.fstat(file)?.ino),
    }
}

/// Before bytes of a file are read, or made durable: what maps changed has to be in the volume.
#[cold]
pub fn before_read(file: FileRef) -> Result<(), Errno> {
    let client = process::client()?;
    let ino = ino_of(client, file)?;
    STATE.with(|state| match state.object_of(ino) {
        Some((number, _)) => state.write_back(client, number, 0, u64::MAX),
        None => Ok(()),
    })
}

/// Writes by `act`, at `offset` or up to the file offset; `act` returns the bytes it wrote.
#[cold]
pub fn write(
    file: FileRef,
    offset: Option<u64>,
    act: impl Fn(&Client) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    changing(file, |client| {
        let written = act(client)?;
        let end = match offset {
            // As in Linux, an offset does not keep O_APPEND from appending.
            Some(_) if client.flags(file)? & libc::O_APPEND != 0 => client.fstat(file)?.size,
            Some(offset) => offset.saturating_add(written as u64),
            None => client.seek(file, 0, libc::SEEK_CUR)?,
        };
        Ok((written, end.saturating_sub(written as u64), end))
    })
}

/// Changes bytes `from..to` of a file at most by `act`.
#[cold]
pub fn change(
    file: FileRef,
    from: u64,
    to: u64,
    act: impl Fn(&Client) -> Result<(), Errno>,
) -> Result<(), Errno> {
    changing(file, |client| act(client).map(|()| ((), from, to)))
}

fn changing<R>(file: FileRef, act: impl Fn(&Client) -> Result<(R, u64, u64), Errno>) -> Result<R, Errno> {
    let client = process::client()?;
    let ino = ino_of(client, file)?;
    let here = STATE.with(|state| {
        let (_, object) = state.object_of(ino)?;
        Some(object.change(client, || act(client)))
    });
    if let Some(result) = here {
        return result;
    }
    if client.is_mapped(file)
        // Where the pages cannot be reached, the write goes on without them.
        && let Ok(Some(object)) = limit::with_descriptors(|| Object::of_others(client, file))
    {
        let result = object.change(client, || act(client));
        object.leave(client);
        return result;
    }
    act(client).map(|(result, _, _)| result)
}

// ---- the process ----------------------------------------------------------------------------------------------------

/// Does something with all maps, when there are any.
fn with_all(act: impl FnOnce(&mut State, &Client)) {
    if any()
        && let Ok(client) = process::client()
    {
        STATE.with(|state| act(state, client));
    }
}

/// Writes back what maps changed: at the end of the process, and before another program takes its place.
pub fn write_back_all() {
    with_all(|state, client| {
        for number in 0..OBJECTS_MAX {
            if state.is_mapped(number) {
                // As above.
                let _ = state.write_back(client, number, 0, u64::MAX);
            }
        }
    });
}

/// At the end of the process.
pub fn release_all() {
    with_all(|state, client| {
        for number in 0..OBJECTS_MAX {
            if state.is_mapped(number) {
                state.release(client, number);
            }
        }
        state.maps.fill(NO_MAP);
        MAPS.store(0, Release);
    });
}

/// What a child that is about to be forked holds its pages by: of each inode, two descriptors.
pub struct Held {
    of: Scratch<HeldPages>,
    count: usize,
}

/// An inode and its two descriptors each.
struct HeldPages([(u64, (c_int, c_int)); OBJECTS_MAX]);
// SAFETY: numbers.
unsafe impl AnyBytes for HeldPages {}

/// Before a fork: the child will count as a process of its own, and does so from before its parent can let go. `None` when
/// nothing is mapped. `EMFILE` and the like when there are no descriptors for it.
pub fn before_fork() -> Result<Option<Held>, Errno> {
    if !any() {
        return Ok(None);
    }
    STATE.with(|state| {
        let mut held = Held { of: Scratch::any()?, count: 0 };
        for (object, place) in state.objects.iter().filter(|object| object.maps > 0).zip(&mut held.of.0) {
            match object.held_anew() {
                Ok(pair) => *place = (object.ino, pair),
                Err(error) => {
                    held.let_go();
                    return Err(error);
                }
            }
            held.count += 1;
        }
        Ok(Some(held))
    })
}

impl Held {
    /// In the parent, or when there is no child.
    pub fn let_go(&self) {
        self.of.0.iter().take(self.count).for_each(|(_, pair)| close_pair(*pair));
    }
}

/// In a forked child.
pub fn after_fork(held: Option<Held>) {
    STATE.force_open();
    let Some(held) = held else { return };
    STATE.with(|state| {
        state.stores.forget();
        for (ino, pair) in held.of.0.iter().take(held.count) {
            match state.object_of(*ino) {
                Some((_, object)) => object.adopt(*pair),
                // Another thread unmapped it before the fork.
                None => close_pair(*pair),
            }
        }
    });
}
