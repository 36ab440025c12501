//! A medium's blocks where the kernel's cache has them, mapped for reading.
//!
//! To read a page into memory of one's own costs a copy and, the first time, a fresh page of memory, which a virtual machine's
//! host may have to find first: 3 to 5 us. The same page in the kernel's cache is there at the cost of an entry in a page
//! table, and the kernel makes many of them at once.
//!
//! The mapping is cut into windows. A window that the kernel has in its cache is mapped as a whole; one that it does not have
//! is read block by block, until so many of its blocks were wanted that to read the rest at once costs less than to go on.

use crate::ids::PAGE_BYTES;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use weft_sys::{Advice, ReadMap};

/// The least of addresses that are reserved; a medium may grow into them. What lies beyond is read.
const BYTES_MIN: usize = 64 << 30;
/// Blocks of a window.
const WINDOW: usize = 64;
/// Blocks of a window that are read one by one before the rest is read: a read of a window takes about as long as that of
/// two or three blocks.
const READS: u8 = 4;
/// A window that is mapped as a whole.
const WHOLE: u8 = u8::MAX;
/// So many windows in the kernel's cache, one after the other, and the next is taken to be there when the block that is wanted is.
const WARM: u32 = 16;

/// A medium's blocks, mapped for reading.
#[derive(Debug)]
pub struct Mapping {
    map: ReadMap,
    /// Of each window how many blocks were read, or [`WHOLE`].
    windows: Box<[AtomicU8]>,
    /// Windows that were in the kernel's cache since one was not.
    warm: AtomicU32,
}

impl Mapping {
    /// Maps a file or block device of so many bytes, and what it may grow by.
    ///
    /// # Errors
    /// When the system has no room for it, or the file system does not map files.
    pub(crate) fn of(file: &File, bytes: u64) -> io::Result<Mapping> {
        let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = usize::try_from(bytes).map_err(too_large)?.saturating_mul(2).max(BYTES_MIN);
        let bytes = bytes.next_multiple_of(WINDOW * PAGE_BYTES);
        let map = ReadMap::new(file, bytes)?;
        let windows = (0..bytes / (WINDOW * PAGE_BYTES)).map(|_| AtomicU8::new(0)).collect();
        let mapping = Mapping { map, windows, warm: AtomicU32::new(0) };
        // An old kernel does not know the call, without which a medium that fails would end the process at the first look.
        // A file that is empty yet is another matter.
        match mapping.populate(0, 0) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(error),
            _ => Ok(mapping),
        }
    }

    /// Blocks that can be reached, as far as the medium has them.
    pub(crate) fn blocks(&self) -> u64 {
        (self.map.len() / PAGE_BYTES) as u64
    }

    /// The address of a block below [`Mapping::blocks`]. It can be read once [`Mapping::finish`] has found it there.
    #[inline]
    pub(crate) fn block(&self, block: u64) -> *const [u8; PAGE_BYTES] {
        assert!(block < self.blocks());
        // SAFETY: the block lies in the mapping.
        unsafe { self.map.as_ptr::<[u8; PAGE_BYTES]>().add(block as usize) }
    }

    fn window(&self, block: u64) -> &AtomicU8 {
        &self.windows[block as usize / WINDOW]
    }

    /// Begins to make a block below [`Mapping::blocks`] readable, to be [finished](Self::finish); whether all of its window is worth it.
    pub(crate) fn begin(&self, block: u64) -> bool {
        let state = self.window(block);
        let reads = state.load(Ordering::Acquire);
        if reads == WHOLE {
            return true;
        }
        let first = block - block % WINDOW as u64;
        if self.warm.load(Ordering::Relaxed) >= WARM && self.cached(block, &mut [0]) == 1 {
            return true;
        }
        let mut cached = [0; WINDOW];
        if self.cached(first, &mut cached) == WINDOW {
            self.warm.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        self.warm.store(0, Ordering::Relaxed);
        let window = reads >= READS;
        let (from, count) = if window { (first, WINDOW) } else { (block, 1) };
        if window || cached[(block - first) as usize] & 1 == 0 {
            // Two at once count one too few at most.
            state.store(reads.saturating_add(1).min(READS), Ordering::Relaxed);
            // A refusal costs speed only.
            let _ = self.map.advise(bytes_of(from, count), Advice::WillNeed);
        }
        window
    }

    /// How many of the blocks from `first` on the kernel has in its cache; of each the lowest bit says it.
    fn cached(&self, first: u64, blocks: &mut [u8]) -> usize {
        if self.map.cached(first as usize * PAGE_BYTES, blocks).is_err() {
            blocks.fill(0);
        }
        blocks.iter().filter(|block| **block & 1 == 1).count()
    }

    /// Makes a block readable at its address, and, where that `is_worth_it`, all of its window.
    ///
    /// # Errors
    /// When the medium does not have it or fails.
    pub(crate) fn finish(&self, block: u64, is_worth_it: bool) -> io::Result<()> {
        let state = self.window(block);
        if state.load(Ordering::Acquire) == WHOLE {
            return Ok(());
        }
        let first = block - block % WINDOW as u64;
        if is_worth_it && self.populate(first, first + WINDOW as u64 - 1).is_ok() {
            state.store(WHOLE, Ordering::Release);
            return Ok(());
        }
        // At the medium's end, or where one of the others cannot be read.
        self.populate(block, block)
    }

    fn populate(&self, first: u64, last: u64) -> io::Result<()> {
        let range = bytes_of(first, (last - first + 1) as usize);
        loop {
            match self.map.advise(range.clone(), Advice::PopulateRead) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                done => return done,
            }
        }
    }

    /// Notes that blocks were written past the kernel's cache, which does not have them any more.
    pub(crate) fn forget(&self, block: u64, blocks: u64) {
        let range = block as usize / WINDOW..(block + blocks).div_ceil(WINDOW as u64) as usize;
        let windows = self.windows.get(range.start..range.end.min(self.windows.len())).unwrap_or(&[]);
        windows.iter().for_each(|window| window.store(0, Ordering::Release));
    }
}

/// Where blocks lie in the mapping.
fn bytes_of(first: u64, blocks: usize) -> Range<usize> {
    let from = first as usize * PAGE_BYTES;
    from..from + blocks * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_store::{FileStore, PageStore, ReadPath};
    use std::io::IoSlice;
    use weft_sys::AlignedBuf;

    fn look(mapping: &Mapping, block: u64) -> io::Result<u8> {
        mapping.finish(block, mapping.begin(block))?;
        // SAFETY: the block is there, and nobody writes it meanwhile.
        Ok(unsafe { (*mapping.block(block))[77] })
    }

    #[test]
    fn what_is_mapped_is_what_was_written_last_and_what_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::create(&dir.path().join("store"), ReadPath::Mapped).unwrap();
        let mapping = store.mapping().unwrap();
        let write = |first, pages: &[u8]| {
            let mut raw = AlignedBuf::zeroed(pages.len() * PAGE_BYTES);
            raw.chunks_mut(PAGE_BYTES).zip(pages).for_each(|(page, value)| page.fill(*value));
            store.write(first, &weft_core::Tag::default(), &[IoSlice::new(&raw)]).unwrap();
        };
        assert!(look(&mapping, 3).is_err(), "beyond the end");
        store.grow(1000).unwrap();
        for round in 1..5u8 {
            let value = |block: u64| round.wrapping_add(block as u8);
            write(0, &(0..1000).map(value).collect::<Vec<_>>());
            // Some alone, some with their windows, and one at the end, where the window is cut off.
            for block in [5, 700, 6, 7, 999, 8, 9, 10, 11, 12, 64, 127, 128] {
                assert_eq!(look(&mapping, block).unwrap(), value(block), "block {block}");
                write(block, &[!value(block)]);
                assert_eq!(look(&mapping, block).unwrap(), !value(block), "block {block}");
            }
        }
        assert!(look(&mapping, 1000).is_err(), "beyond the end");
        store.grow(2000).unwrap();
        assert_eq!(look(&mapping, 1999).unwrap(), 0, "it has grown");
    }

    #[test]
    fn a_write_that_is_dropped_is_forgotten_as_one_that_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::create(&dir.path().join("store"), ReadPath::Mapped).unwrap();
        let mapping = store.mapping().unwrap();
        store.grow(4 * WINDOW as u64).unwrap();
        let mut raw = AlignedBuf::zeroed(PAGE_BYTES);
        for (value, waits) in [(1, true), (2, false)] {
            // What is read before lets the window be mapped as a whole.
            for block in 0..WINDOW as u64 {
                look(&mapping, block).unwrap();
            }
            assert_eq!(mapping.windows[0].load(Ordering::Acquire), WHOLE);
            raw.fill(value);
            // SAFETY: the page outlives the write, which is waited for or dropped here.
            let write =
                unsafe { store.begin_write(5, &weft_core::Tag::default(), &[raw.as_ptr().cast()]) }.unwrap();
            if waits {
                write.wait().unwrap()
            } else {
                drop(write)
            }
            assert_eq!(mapping.windows[0].load(Ordering::Acquire), 0, "waits: {waits}");
            assert_eq!(look(&mapping, 5).unwrap(), value);
        }
    }
}
