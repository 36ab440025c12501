//! The block maps of open inodes in shared memory, updated as the core moves blocks.
//!
//! A map is a tree of two levels of 4 KiB pages (directory, chunk). The server fills a chunk when a reader first
//! misses it. The core reports every change through [`MapObserver`]; a change to a missing chunk is ignored, because
//! filling asks the core. Filling races with changes: the server first publishes the chunk with every entry "ask the
//! core", and stores the core's answer only if no change hit the chunk meanwhile. The entries of a file's first blocks are with
//! its inode, too, like a chunk that is filled when the file is opened.
//!
//! Lock order: the core's lock, then `Maps::state`. Nothing here calls the core while it holds `state`.

use super::shared::{ControlMemory, MapMemory};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use weft_client::shared::listing::LISTING_BYTES;
use weft_client::shared::volume::{
    CHUNK_ENTRIES, DIRECTORIES, DIRECTORY_ENTRIES, FIRST_BLOCKS, Inode, MAP_PAGES_MAX, UNKNOWN, copied_entry,
};
use weft_core::{BLOCK_BYTES, Ino};
use weft_vfs::{BlockMap, FileSystem, FsResult, MapEntry, MapObserver};

/// Blocks that the core still buffers and readers have asked for, whose copies are kept at once, at most.
const COPIES_MAX: usize = 1 << 14;
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
    /// Changes of entries so far.
    changes: u64,
    /// Pages that may be used.
    pages_max: usize,
    /// Of these, for copies of blocks and for listings.
    copies_max: usize,
    /// Copies of blocks that there are.
    copied: usize,
    /// Blocks that were copied, the oldest first; of some, the copy is gone.
    copies: VecDeque<(Ino, u64)>,
}

struct InodeMap {
    slot: u32,
    /// The entries that are with the inode; `None` until somebody wants them.
    first: Option<Progress>,
    chunks: FxHashMap<u64, Chunk>,
    directories: [u32; DIRECTORIES],
    /// Pages with copies of blocks that the core still buffers.
    copies: FxHashMap<u64, u32>,
}

struct Chunk {
    page: u32,
    progress: Progress,
}

/// How far entries are.
#[derive(Clone, Copy)]
struct Progress {
    /// Which of all changes was their last one, for a fill to notice it.
    version: u64,
    /// Whether the core's answer is there. It tells of changes only from then on.
    filled: bool,
}

impl Maps {
    /// Empty maps, of so many pages at most.
    pub fn new(control: Arc<ControlMemory>, pages_max: usize) -> io::Result<Maps> {
        let pages_max = pages_max.min(MAP_PAGES_MAX);
        let copies_max = COPIES_MAX.min(pages_max / 2);
        let state = Mutex::new(State { next: 1, pages_max, copies_max, ..State::default() });
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
        let inode = self.shared_inode(slot);
        for directory in &inode.directories {
            directory.store(0, Relaxed);
        }
        store_all(&inode.first, UNKNOWN);
        let map = InodeMap {
            slot,
            first: None,
            chunks: FxHashMap::default(),
            directories: [0; DIRECTORIES],
            copies: FxHashMap::default(),
        };
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
        store_all(&inode.first, UNKNOWN);
        state.free.extend(map.chunks.values().map(|chunk| chunk.page));
        state.free.extend(map.directories.into_iter().filter(|&page| page != 0));
        state.copied -= map.copies.len();
        state.free.extend(map.copies.into_values());
        inode.seq.fetch_add(1, Release);
    }

    /// Fills the entries that are with an inode, unless they are.
    pub fn fill_first(&self, core: &dyn BlockMap, ino: Ino) -> FsResult<()> {
        let mut entries = [MapEntry::HOLE; FIRST_BLOCKS];
        for _ in 0..FILL_TRIES {
            let version = {
                let State { inodes, changes, .. } = &mut *self.state.lock();
                let Some(map) = inodes.get_mut(&ino) else { return Ok(()) };
                let first = map.first.get_or_insert_with(|| {
                    store_all(&self.shared_inode(map.slot).first, MapEntry::ASK_CORE.0);
                    *changes += 1;
                    Progress { version: *changes, filled: false }
                });
                if first.filled {
                    return Ok(());
                }
                first.version
            };
            core.watch(ino, 0, &mut entries)?;
            let mut state = self.state.lock();
            let Some(map) = state.inodes.get_mut(&ino) else { return Ok(()) };
            if let Some(first) = map.first.as_mut().filter(|first| first.version == version) {
                if !first.filled {
                    first.filled = true;
                    let inode = self.shared_inode(map.slot);
                    store(inode, &inode.first, &entries);
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Fills the chunk that holds a block; false when it cannot be (no memory, a file too large, or endless change).
    pub fn fill(&self, core: &dyn BlockMap, ino: Ino, block: u64) -> FsResult<bool> {
        let chunk_number = block / CHUNK_ENTRIES as u64;
        if chunk_number >= (DIRECTORIES * DIRECTORY_ENTRIES) as u64 {
            return Ok(false);
        }
        let mut entries = [MapEntry::HOLE; CHUNK_ENTRIES];
        for _ in 0..FILL_TRIES {
            let Some(Progress { version, filled }) = self.publish_chunk(ino, chunk_number) else {
                return Ok(false);
            };
            if filled {
                return Ok(true);
            }
            core.watch(ino, chunk_number * CHUNK_ENTRIES as u64, &mut entries)?;
            let mut state = self.state.lock();
            let Some(map) = state.inodes.get_mut(&ino) else { return Ok(false) };
            let slot = map.slot;
            let Some(chunk) = map.chunks.get_mut(&chunk_number) else { return Ok(false) };
            if chunk.progress.version == version {
                if !chunk.progress.filled {
                    debug_assert_ne!(chunk.page, 0, "a chunk has a page");
                    chunk.progress.filled = true;
                    store(self.shared_inode(slot), self.pages.chunk(chunk.page), &entries);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes sure that a chunk is there, all "ask the core" when new; returns how far it is.
    fn publish_chunk(&self, ino: Ino, chunk_number: u64) -> Option<Progress> {
        let mut state = self.state.lock();
        let map = state.inodes.get(&ino)?;
        if let Some(chunk) = map.chunks.get(&chunk_number) {
            return Some(chunk.progress);
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
        state.changes += 1;
        let progress = Progress { version: state.changes, filled: false };
        let map = state.inodes.get_mut(&ino)?;
        map.directories[directory] = directory_page;
        inode.directories[directory].store(directory_page, Release);
        let page = page?;
        for entry in self.pages.chunk(page) {
            entry.store(MapEntry::ASK_CORE.0, Relaxed);
        }
        self.pages.directory(directory_page)[chunk_number as usize % DIRECTORY_ENTRIES].store(page, Release);
        map.chunks.insert(chunk_number, Chunk { page, progress });
        Some(progress)
    }

    /// Copies a block that the core buffers to where readers find it, if they would have to ask for it.
    pub fn copy(&self, fs: &dyn FileSystem, ino: Ino, block: u64) -> FsResult<()> {
        let version = self.state.lock().inodes.get(&ino).and_then(|map| self.to_copy(map, block));
        let Some(version) = version else { return Ok(()) };
        let mut bytes = [0; BLOCK_BYTES];
        let len = fs.read(ino, block * BLOCK_BYTES as u64, &mut bytes)?;
        if len == 0 {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.limit_copies(self);
        let Some(page) = state.allocate() else { return Ok(()) };
        let is_current = state.inodes.get(&ino).is_some_and(|map| self.to_copy(map, block) == Some(version));
        let State { inodes, free, copied, copies, .. } = &mut *state;
        let Some(map) = inodes.get_mut(&ino).filter(|_| is_current) else {
            free.push(page);
            return Ok(());
        };
        self.pages.fill(page, &bytes);
        let before = map.copies.insert(block, page);
        self.set_entry(map, block, copied_entry(page, len));
        match before {
            // The chunk led to a copy when the entries that are with the inode were filled.
            Some(before) => free.push(before),
            None => *copied += 1,
        }
        copies.push_back((ino, block));
        Ok(())
    }

    /// Publishes what a directory holds.
    pub fn put_listing(&self, dir: Ino, listing: &[u8]) {
        debug_assert!(listing.len() <= LISTING_BYTES && listing.len().is_multiple_of(8), "no listing");
        let mut state = self.state.lock();
        state.limit_copies(self);
        let mut copies = Vec::with_capacity(FIRST_BLOCKS);
        for piece in listing.chunks(BLOCK_BYTES) {
            let Some(page) = state.allocate() else { break };
            self.pages.fill(page, piece);
            copies.push((page, copied_entry(page, piece.len())));
        }
        let is_whole = copies.len() == listing.len().div_ceil(BLOCK_BYTES);
        let State { inodes, free, copied, copies: order, .. } = &mut *state;
        let Some(map) = inodes.get_mut(&dir).filter(|_| is_whole) else {
            free.extend(copies.iter().map(|(page, _)| page));
            return;
        };
        // The core tells of no changes of what is no file's content.
        map.first = Some(Progress { version: 0, filled: true });
        for (block, (page, entry)) in (0..).zip(copies) {
            self.set_entry(map, block, entry);
            match map.copies.insert(block, page) {
                Some(before) => free.push(before),
                None => *copied += 1,
            }
            order.push_back((dir, block));
        }
    }

    /// What a directory holds is about to change.
    pub fn forget_listing(&self, dir: Ino) {
        let state = &mut *self.state.lock();
        let Some(map) = state.inodes.get_mut(&dir).filter(|map| !map.copies.is_empty()) else { return };
        let inode = self.shared_inode(map.slot);
        inode.seq.fetch_add(1, AcqRel);
        store_all(&inode.first, MapEntry::ASK_CORE.0);
        inode.seq.fetch_add(1, Release);
        state.copied -= map.copies.len();
        state.free.extend(map.copies.drain().map(|(_, page)| page));
    }

    /// What changes when a block does, if readers are to ask for it now.
    fn to_copy(&self, map: &InodeMap, block: u64) -> Option<(u64, u64)> {
        let (first, chunk) = self.cells(map, block);
        let asks = |cell: &AtomicU64| cell.load(Relaxed) == MapEntry::ASK_CORE.0;
        let progress = [
            first.and(map.first),
            map.chunks.get(&(block / CHUNK_ENTRIES as u64)).map(|chunk| chunk.progress),
        ];
        // Before the core has answered it need not tell of changes.
        let all_filled = progress.iter().flatten().all(|progress| progress.filled);
        let told = all_filled && first.or(chunk).is_some_and(asks);
        let [first, chunk] = progress.map(|progress| progress.map_or(0, |progress| progress.version));
        told.then_some((first, chunk))
    }

    /// Where the entry of a block is: with the inode, in its chunk.
    fn cells(&self, map: &InodeMap, block: u64) -> (Option<&AtomicU64>, Option<&AtomicU64>) {
        let first = map.first.and_then(|_| self.shared_inode(map.slot).first.get(block as usize));
        let chunk = map.chunks.get(&(block / CHUNK_ENTRIES as u64));
        let chunk = chunk.map(|chunk| &self.pages.chunk(chunk.page)[block as usize % CHUNK_ENTRIES]);
        (first, chunk)
    }

    fn set_entry(&self, map: &InodeMap, block: u64, entry: u64) {
        let (first, chunk) = self.cells(map, block);
        let inode = self.shared_inode(map.slot);
        inode.seq.fetch_add(1, AcqRel);
        for cell in first.into_iter().chain(chunk) {
            cell.store(entry, Relaxed);
        }
        inode.seq.fetch_add(1, Release);
    }
}

fn store_all(cells: &[AtomicU64], value: u64) {
    for cell in cells {
        cell.store(value, Relaxed);
    }
}

/// Stores entries under the inode's sequence lock.
fn store(inode: &Inode, cells: &[AtomicU64], entries: &[MapEntry]) {
    debug_assert!(cells.len() >= entries.len(), "entries of one chunk");
    // Odd before the first store: a reader that sees a new entry sees the change. AcqRel keeps the stores after it.
    inode.seq.fetch_add(1, AcqRel);
    for (to, entry) in cells.iter().zip(entries) {
        to.store(entry.0, Relaxed);
    }
    inode.seq.fetch_add(1, Release);
}

impl State {
    /// Gives up the oldest copies when there are too many.
    fn limit_copies(&mut self, maps: &Maps) {
        while self.copied >= self.copies_max || self.copies.len() >= 2 * self.copies_max {
            let Some((ino, block)) = self.copies.pop_front() else { return };
            let Some(map) = self.inodes.get_mut(&ino) else { continue };
            if let Some(page) = map.copies.remove(&block) {
                maps.set_entry(map, block, MapEntry::ASK_CORE.0);
                self.copied -= 1;
                self.free.push(page);
            }
        }
    }

    fn allocate(&mut self) -> Option<u32> {
        if let Some(page) = self.free.pop() {
            debug_assert!((1..self.next).contains(&page), "page 0 means none");
            return Some(page);
        }
        if self.next as usize >= self.pages_max {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

impl MapObserver for Maps {
    fn remapped(&self, ino: Ino, first_block: u64, entries: &[MapEntry]) {
        let state = &mut *self.state.lock();
        state.changes += 1;
        let Some(map) = state.inodes.get_mut(&ino) else { return };
        let inode = self.shared_inode(map.slot);
        if let (Some(first), Some(cells @ [_, ..])) =
            (&mut map.first, inode.first.get(first_block as usize..))
        {
            first.version = state.changes;
            store(inode, cells, &entries[..entries.len().min(cells.len())]);
        }
        let mut block = first_block;
        let mut rest = entries;
        while !rest.is_empty() {
            let within = (block % CHUNK_ENTRIES as u64) as usize;
            let take = rest.len().min(CHUNK_ENTRIES - within);
            if let Some(chunk) = map.chunks.get_mut(&(block / CHUNK_ENTRIES as u64)) {
                chunk.progress.version = state.changes;
                store(inode, &self.pages.chunk(chunk.page)[within..], &rest[..take]);
            }
            rest = &rest[take..];
            block += take as u64;
        }
        // After the entries: whoever still copies from the pages sees another sequence number.
        let changed = first_block..first_block + entries.len() as u64;
        let gone: Vec<u32> = if entries.len() < map.copies.len() {
            changed.filter_map(|block| map.copies.remove(&block)).collect()
        } else {
            map.copies.extract_if(|block, _| changed.contains(block)).map(|(_, page)| page).collect()
        };
        state.copied -= gone.len();
        state.free.extend(gone);
    }
}
