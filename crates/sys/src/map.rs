//! Mappings. A mapping lives as long as its value, which nothing that is borrowed from it outlives.
//!
//! Bytes of a mapping that other processes may change are reached as atomics ([`Map::atomics`]) or by address, for those who
//! state how accesses are ordered. A file must not be truncated below a mapping of it: a touch beyond its end kills the process.

use crate::checked;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Hints about a range of a mapping. None of them changes its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Read without read-ahead.
    Random,
    /// Begin to read it.
    WillNeed,
    /// Back it by huge pages.
    HugePages,
    /// Make it readable now and report what cannot be read (Linux 5.14).
    PopulateRead,
    /// Give it memory now (Linux 5.14).
    PopulateWrite,
}

impl Advice {
    fn number(self) -> libc::c_int {
        match self {
            Advice::Random => libc::MADV_RANDOM,
            Advice::WillNeed => libc::MADV_WILLNEED,
            Advice::HugePages => libc::MADV_HUGEPAGE,
            Advice::PopulateRead => libc::MADV_POPULATE_READ,
            Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
        }
    }
}

/// An atomic that any bytes are a value of.
///
/// # Safety
/// The implementor is one, and a power of two of bytes no larger than a page.
pub unsafe trait AtomicWord {}
// SAFETY: it is a `u32`.
unsafe impl AtomicWord for AtomicU32 {}
// SAFETY: it is a `u64`.
unsafe impl AtomicWord for AtomicU64 {}

/// A mapping that can be read and written.
#[derive(Debug)]
pub struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address is as good in one thread as in another; what is at it is reached as atomics or by promise of the user.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// The first `len` bytes of a file; what is stored stands in the file at once.
    pub fn shared(file: &impl AsFd, len: usize) -> io::Result<Map> {
        Map::make(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, Some(file.as_fd()))
    }

    /// The first `len` bytes of a file; what is stored stays in this process.
    pub fn private(file: &impl AsFd, len: usize) -> io::Result<Map> {
        Map::make(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE, Some(file.as_fd()))
    }

    /// Zeroed memory of this process, taken as it is first written.
    pub fn anonymous(len: usize) -> io::Result<Map> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Map::make(len, libc::PROT_READ | libc::PROT_WRITE, flags, None)
    }

    fn make(len: usize, prot: libc::c_int, flags: libc::c_int, file: Option<BorrowedFd>) -> io::Result<Map> {
        let fd = file.map_or(-1, |file| file.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of this process; the result is
        // checked before use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Map { start, len })
    }

    /// Its start, aligned to a page.
    #[inline]
    pub fn as_ptr<T>(&self) -> *mut T {
        self.start.as_ptr().cast()
    }

    /// Its bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes; the kernel makes no such mapping.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The mapping as atomics, in the byte order of the machine.
    #[inline]
    pub fn atomics<T: AtomicWord>(&self) -> &[T] {
        // SAFETY: the mapping is writable, aligned to a page, has `len` bytes and lives as long as `self`; any bytes are a `T`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len / size_of::<T>()) }
    }

    /// Gives the kernel a hint about a range, which must lie in the mapping and begin at a page.
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range lies in the mapping, and no advice changes what is there.
        checked(unsafe {
            libc::madvise(self.as_ptr::<u8>().add(range.start).cast(), range.len(), advice.number())
        })
    }

    /// Writes the changed pages to stable storage, and nothing else of the file.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is exactly the mapping.
        checked(unsafe { libc::msync(self.as_ptr(), self.len, libc::MS_SYNC) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.as_ptr(), self.len) };
    }
}

/// A file's bytes, mapped for reading, and the addresses that it may grow into.
#[derive(Debug)]
pub struct ReadMap(Map);

impl ReadMap {
    /// Maps a file; `len` may lie beyond its end.
    pub fn new(file: &File, len: usize) -> io::Result<ReadMap> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        Map::make(len, libc::PROT_READ, flags, Some(file.as_fd())).map(ReadMap)
    }

    /// Its start, aligned to a page.
    #[inline]
    pub fn as_ptr<T>(&self) -> *const T {
        self.0.as_ptr::<T>()
    }

    /// Its bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no bytes; the kernel makes no such mapping.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// As [`Map::advise`].
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> io::Result<()> {
        self.0.advise(range, advice)
    }

    /// Which pages from the byte `from` on, a multiple of a page, the kernel has in its cache: the lowest bit of each of
    /// `pages` says it.
    pub fn cached(&self, from: usize, pages: &mut [u8]) -> io::Result<()> {
        let bytes = pages.len() * crate::aligned::PAGE_BYTES;
        assert!(from.checked_add(bytes).is_some_and(|end| end <= self.0.len));
        // SAFETY: the range lies in the mapping, and there is a byte for each of its pages.
        checked(unsafe { libc::mincore(self.0.as_ptr::<u8>().add(from).cast(), bytes, pages.as_mut_ptr()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_shared_mapping_changes_the_file_and_a_private_one_does_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let word = || {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 4096).unwrap();
            u64::from_ne_bytes(bytes)
        };
        let shared = Map::shared(&file, 8192).unwrap();
        shared.atomics::<AtomicU64>()[512].store(7, Relaxed);
        shared.sync().unwrap();
        assert_eq!(word(), 7);
        let private = Map::private(&file, 8192).unwrap();
        private.atomics::<AtomicU64>()[512].store(9, Relaxed);
        assert_eq!((word(), private.atomics::<AtomicU32>()[1024].load(Relaxed)), (7, 9));
        let read = ReadMap::new(&file, 1 << 20).unwrap();
        // SAFETY: the first two pages are the file's, and nobody writes them meanwhile.
        assert_eq!(unsafe { *read.as_ptr::<u64>().add(512) }, 7);
        let mut pages = [0; 2];
        read.cached(0, &mut pages).unwrap();
        assert_eq!(pages.map(|page| page & 1), [1, 1]);
        assert!(read.advise(8192..12288, Advice::PopulateRead).is_err(), "beyond the end");
    }

    #[test]
    #[should_panic]
    fn advice_beyond_a_mapping_is_refused() {
        let map = Map::anonymous(4096).unwrap();
        let _ = map.advise(0..8192, Advice::PopulateWrite);
    }
}
