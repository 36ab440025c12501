//! The block maps of open inodes in shared memory, updated as the core moves blocks.
//!
//! A map is a tree of two levels of 4 KiB pages (directory, chunk). The server fills a chunk when a reader first
//! misses it. The core reports every change through [`MapObserver`]; a change to a missing chunk is ignored, because
//! filling asks the core. Filling races with changes: the server first publishes the chunk with every entry "ask the
//! core", and stores the core's answer only if no change hit the chunk meanwhile.
//!
//! Lock order: the core's lock, then `Maps::state`. Nothing here calls the core while it holds `state`.

use super::shared::{ControlMemory, MapMemory};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use weft_client::shared::volume::{CHUNK_ENTRIES, DIRECTORIES, DIRECTORY_ENTRIES, Inode, MAP_PAGES_MAX};
use weft_core::Ino;
use weft_vfs::{BlockMap, FsResult, MapEntry, MapObserver};

/// Chunks are refilled this often when changes keep hitting them; then the reader goes through the server.
const FILL_TRIES: usize = 4;

/// Block maps of all open inodes.
pub struct Maps {
    pages: MapMemory,
    control: Arc<ControlMemory>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    inodes: FxHashMap<Ino, InodeMap>,
    free: Vec<u32>,
    /// Pages from this number on were never used. Page 0 means "none".
    next: u32,
}

struct InodeMap {
    slot: u32,
    chunks: FxHashMap<u64, Chunk>,
    directories: [u32; DIRECTORIES],
}

struct Chunk {
    page: u32,
    /// Counts changes, for a fill to notice them.
    version: u32,
}

impl Maps {
    /// Empty maps.
    pub fn new(control: Arc<ControlMemory>) -> io::Result<Maps> {
        let state = Mutex::new(State { next: 1, ..State::default() });
        Ok(Maps { pages: MapMemory::create()?, control, state })
    }

    /// The memory that holds the pages.
    pub(crate) fn memory(&self) -> &weft_sys::SharedMemory {
        self.pages.memory()
    }

    fn shared_inode(&self, slot: u32) -> &Inode {
        &self.control.inodes[slot as usize]
    }

    /// Begins the map of an inode that has just been opened.
    pub fn add(&self, ino: Ino, slot: u32) {
        for directory in &self.shared_inode(slot).directories {
            directory.store(0, Relaxed);
        }
        let map = InodeMap { slot, chunks: FxHashMap::default(), directories: [0; DIRECTORIES] };
        self.state.lock().inodes.insert(ino, map);
    }

    /// Ends the map of an inode that nobody has open any more.
    pub fn remove(&self, ino: Ino) {
        let mut state = self.state.lock();
        let Some(map) = state.inodes.remove(&ino) else { return };
        let inode = self.shared_inode(map.slot);
        inode.seq.fetch_add(1, AcqRel);
        for directory in &inode.directories {
            directory.store(0, Relaxed);
        }
        state.free.extend(map.chunks.values().map(|chunk| chunk.page));
        state.free.extend(map.directories.into_iter().filter(|&page| page != 0));
        inode.seq.fetch_add(1, Release);
    }

    /// Fills the chunk that holds a block; false when it cannot be (no memory, a file too large, or endless change).
    pub fn fill(&self, core: &dyn BlockMap, ino: Ino, block: u64) -> FsResult<bool> {
        let chunk_number = block / CHUNK_ENTRIES as u64;
        if chunk_number >= (DIRECTORIES * DIRECTORY_ENTRIES) as u64 {
            return Ok(false);
        }
        let mut entries = [MapEntry::HOLE; CHUNK_ENTRIES];
        for _ in 0..FILL_TRIES {
            let Some(version) = self.publish_chunk(ino, chunk_number) else { return Ok(false) };
            core.watch(ino, chunk_number * CHUNK_ENTRIES as u64, &mut entries)?;
            let mut state = self.state.lock();
            let Some(map) = state.inodes.get_mut(&ino) else { return Ok(false) };
            let slot = map.slot;
            let Some(chunk) = map.chunks.get(&chunk_number) else { return Ok(false) };
            if chunk.version == version {
                let page = chunk.page;
                self.store(slot, page, 0, &entries);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes sure that a chunk is there, all "ask the core" when new; returns its version.
    fn publish_chunk(&self, ino: Ino, chunk_number: u64) -> Option<u32> {
        let mut state = self.state.lock();
        let map = state.inodes.get(&ino)?;
        if let Some(chunk) = map.chunks.get(&chunk_number) {
            return Some(chunk.version);
        }
        let directory = chunk_number as usize / DIRECTORY_ENTRIES;
        let inode = self.shared_inode(map.slot);
        let mut directory_page = map.directories[directory];
        if directory_page == 0 {
            directory_page = state.allocate()?;
            for number in self.pages.directory(directory_page) {
                number.store(0, Relaxed);
            }
        }
        let page = state.allocate();
        let map = state.inodes.get_mut(&ino)?;
        map.directories[directory] = directory_page;
        inode.directories[directory].store(directory_page, Release);
        let page = page?;
        for entry in self.pages.chunk(page) {
            entry.store(MapEntry::ASK_CORE.0, Relaxed);
        }
        self.pages.directory(directory_page)[chunk_number as usize % DIRECTORY_ENTRIES].store(page, Release);
        map.chunks.insert(chunk_number, Chunk { page, version: 0 });
        Some(0)
    }

    /// Stores entries of one chunk under the inode's sequence lock.
    fn store(&self, slot: u32, page: u32, first: usize, entries: &[MapEntry]) {
        debug_assert!(page != 0 && first + entries.len() <= CHUNK_ENTRIES, "entries of one chunk");
        let inode = self.shared_inode(slot);
        // Odd before the first store: a reader that sees a new entry sees the change. AcqRel keeps the stores after it.
        inode.seq.fetch_add(1, AcqRel);
        for (to, entry) in self.pages.chunk(page)[first..].iter().zip(entries) {
            to.store(entry.0, Relaxed);
        }
        inode.seq.fetch_add(1, Release);
    }
}

impl State {
    fn allocate(&mut self) -> Option<u32> {
        if let Some(page) = self.free.pop() {
            debug_assert!((1..self.next).contains(&page), "page 0 means none");
            return Some(page);
        }
        if self.next as usize >= MAP_PAGES_MAX {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

impl MapObserver for Maps {
    fn remapped(&self, ino: Ino, first_block: u64, entries: &[MapEntry]) {
        let mut state = self.state.lock();
        let Some(map) = state.inodes.get_mut(&ino) else { return };
        if map.chunks.is_empty() {
            return;
        }
        let slot = map.slot;
        let mut block = first_block;
        let mut rest = entries;
        while !rest.is_empty() {
            let within = (block % CHUNK_ENTRIES as u64) as usize;
            let take = rest.len().min(CHUNK_ENTRIES - within);
            if let Some(chunk) = map.chunks.get_mut(&(block / CHUNK_ENTRIES as u64)) {
                chunk.version = chunk.version.wrapping_add(1);
                self.store(slot, chunk.page, within, &rest[..take]);
            }
            rest = &rest[take..];
            block += take as u64;
        }
    }
}
