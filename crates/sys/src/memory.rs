//! Memory that processes share: a file without a name, mapped for its whole length.

use crate::file::{memory_file, open_again};
use crate::map::Map;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

/// A memory file and its mapping.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    map: Map,
}

impl SharedMemory {
    /// A new, zeroed memory file of `len` bytes. Memory is used as pages are touched.
    pub fn create(name: &str, len: usize) -> io::Result<SharedMemory> {
        let file = memory_file(name, len as u64)?;
        let map = Map::shared(&file, len)?;
        Ok(SharedMemory { file, map })
    }

    /// The memory file.
    #[inline]
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Bytes of pages that have been touched.
    pub fn used_bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.blocks() * 512)
    }

    /// A descriptor of the same memory that cannot be written through.
    pub fn read_only_fd(&self) -> io::Result<OwnedFd> {
        Ok(open_again(&self.file, OpenOptions::new().read(true))?.into())
    }

    /// The memory as a `T`.
    ///
    /// # Safety
    /// All-zero bytes must be a valid `T` made of atomics (or of cells whose access the caller orders), and the mapping
    /// must be at least as long as `T`.
    #[inline]
    pub unsafe fn view<T>(&self) -> &T {
        debug_assert!(size_of::<T>() <= self.map.len());
        // SAFETY: page-aligned and mapped for the life of `self`; the rest is the caller's promise.
        unsafe { &*self.map.as_ptr::<T>() }
    }
}

impl Deref for SharedMemory {
    type Target = Map;

    #[inline]
    fn deref(&self) -> &Map {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn who_gets_the_read_only_descriptor_reads_and_cannot_write() {
        let memory = SharedMemory::create("weft-test", 4096).unwrap();
        let theirs = memory.read_only_fd().unwrap();
        memory.atomics::<AtomicU32>()[3].store(5, Relaxed);
        let read = crate::ReadMap::new(&File::from(theirs.try_clone().unwrap()), 4096).unwrap();
        // SAFETY: within the mapping, and nobody writes it meanwhile.
        assert_eq!(unsafe { *read.as_ptr::<u32>().add(3) }, 5);
        assert!(Map::shared(&theirs, 4096).is_err());
    }
}
