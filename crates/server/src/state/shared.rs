//! The memory that the server shares with clients of its own user, behind safe functions.
//! [`weft_client::shared::volume`] defines the layout. Numbers of slots, pages and rings come from the server's
//! tables, never from a client.

use std::io;
use std::ops::{Deref, Range};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use weft_client::shared::overwrites::Area;
use weft_client::shared::volume::{
    CHUNK_ENTRIES, Control, DIRECTORY_ENTRIES, MAP_PAGES_MAX, MapPage, RING_BYTES, RINGS_MAX,
};
use weft_client::sys::futex_wake;
use weft_sys::SharedMemory;
use weft_sys::robust::lock_robust;

/// The control memory: volume page, open files, inodes.
pub struct ControlMemory(SharedMemory);

impl ControlMemory {
    /// Of a volume with nothing open.
    pub fn create() -> io::Result<ControlMemory> {
        Ok(ControlMemory(SharedMemory::create("weft-control", size_of::<Control>())?))
    }

    /// The memory file.
    pub fn memory(&self) -> &SharedMemory {
        &self.0
    }

    /// Clients get EIO from now on; the flusher wakes.
    pub fn stop_clients(&self) {
        self.volume.stopped.store(1, SeqCst);
        self.volume.kicks.fetch_add(1, SeqCst);
        futex_wake(&self.volume.kicks, u32::MAX >> 1);
    }

    /// Clients see the death of the calling thread from now on. Called once.
    pub fn show_death(&self) -> io::Result<()> {
        // SAFETY: the words are reserved for the mutex, which nobody uses yet.
        unsafe { lock_robust(self.volume.alive.as_ptr().cast_mut().cast()) }
    }
}

impl Deref for ControlMemory {
    type Target = Control;

    fn deref(&self) -> &Control {
        // SAFETY: the memory is as long as a `Control`, which is made of atomics.
        unsafe { self.0.view() }
    }
}

/// The pages of block maps.
pub struct MapMemory(SharedMemory);

impl MapMemory {
    /// Pages that nobody uses.
    pub fn create() -> io::Result<MapMemory> {
        Ok(MapMemory(SharedMemory::create("weft-map", MAP_PAGES_MAX * size_of::<MapPage>())?))
    }

    /// The memory file.
    pub fn memory(&self) -> &SharedMemory {
        &self.0
    }

    fn page(&self, number: u32) -> &MapPage {
        assert!((number as usize) < MAP_PAGES_MAX, "no page of the map memory");
        // SAFETY: within the memory; the page is made of atomics.
        unsafe { &*self.0.as_ptr::<MapPage>().add(number as usize) }
    }

    /// A page as the numbers of chunk pages.
    pub fn directory(&self, number: u32) -> &[AtomicU32; DIRECTORY_ENTRIES] {
        // SAFETY: atomics, whichever of the two the page was before.
        unsafe { &self.page(number).directory }
    }

    /// A page as map entries.
    pub fn chunk(&self, number: u32) -> &[AtomicU64; CHUNK_ENTRIES] {
        // SAFETY: as in `directory`.
        unsafe { &self.page(number).chunk }
    }

    /// Copies bytes, a multiple of 8 of them, to a page that nobody uses.
    pub fn fill(&self, number: u32, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        debug_assert!(rest.is_empty() && words.len() <= CHUNK_ENTRIES, "no content of a page");
        for (to, word) in self.chunk(number).iter().zip(words) {
            to.store(u64::from_ne_bytes(*word), Relaxed);
        }
    }
}

/// The append rings and overwrite areas.
pub struct RingMemory(SharedMemory);

impl RingMemory {
    /// Rings that nobody uses.
    pub fn create() -> io::Result<RingMemory> {
        Ok(RingMemory(SharedMemory::create("weft-rings", RINGS_MAX * RING_BYTES)?))
    }

    /// The memory file.
    pub fn memory(&self) -> &SharedMemory {
        &self.0
    }

    /// Bytes of a ring, which clients have accepted. A client that changes them meanwhile breaks its own file.
    pub fn bytes(&self, ring: u32, range: Range<usize>) -> &[u8] {
        assert!((ring as usize) < RINGS_MAX && range.end <= RING_BYTES, "no bytes of a ring");
        // SAFETY: within the memory (asserted above), which is mapped as long as `self`.
        unsafe {
            let base = self.0.as_ptr::<u8>().add(ring as usize * RING_BYTES + range.start);
            std::slice::from_raw_parts(base, range.len())
        }
    }

    /// A ring's memory as an overwrite area.
    pub fn area(&self, ring: u32) -> Area<'_> {
        assert!((ring as usize) < RINGS_MAX, "no area among the rings");
        // SAFETY: within the memory, which is mapped as long as `self`; a ring begins at a page.
        unsafe { Area::at(self.0.as_ptr::<u8>().add(ring as usize * RING_BYTES)) }
    }
}
