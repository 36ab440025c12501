//! A shared mapping of the start of a file, seen as atomic 64-bit words.
//!
//! What is stored here stands in the page cache at once: it survives the death of the process without a system call,
//! and an `fdatasync` of the file makes it durable.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Largest page that the kernel caches a file in. Only whole pages can be dropped.
const CACHED_PAGE_MAX: u64 = 4 << 20;

/// The mapping; unmapped when dropped.
#[derive(Debug)]
pub struct SharedMap {
    words: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: the mapping is plain shared memory that is only reached as atomics, and the pointer is never handed out.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps the first `bytes` bytes of the file, a multiple of the page size. The file must be at least that long and
    /// must not be truncated below it while the mapping lives; the image's exclusive lock is what keeps others from it.
    ///
    /// The kernel caches a file that was written in large pieces in pages of up to megabytes, and one store into such
    /// a page makes the next `fdatasync` write all of it. So what is cached of the range is dropped first, and read
    /// back without read-ahead, in small pages.
    pub fn new(file: &File, bytes: usize) -> io::Result<SharedMap> {
        file.sync_data()?;
        super::file::drop_cached(file, 0, (bytes as u64).next_multiple_of(CACHED_PAGE_MAX));
        SharedMap::map(file, bytes, libc::MAP_SHARED)
    }

    /// The same of a file that is not to be changed: what is stored here stays in this process.
    pub fn private(file: &File, bytes: usize) -> io::Result<SharedMap> {
        SharedMap::map(file, bytes, libc::MAP_PRIVATE)
    }

    fn map(file: &File, bytes: usize, sharing: libc::c_int) -> io::Result<SharedMap> {
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of this process; the result
        // is checked before use.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                sharing,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range is the mapping that was just made.
        unsafe { libc::madvise(address, bytes, libc::MADV_RANDOM) };
        let words =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("the kernel mapped page zero"))?;
        Ok(SharedMap { words, bytes })
    }

    /// The mapping as words, in the byte order of the machine.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, lives as long as `self`, has `bytes` bytes, and every bit pattern is a
        // valid `AtomicU64`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.bytes / 8) }
    }

    /// Writes the changed pages of the mapping to stable storage, and nothing else of the file.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is exactly the mapping.
        let result = unsafe { libc::msync(self.words.as_ptr().cast(), self.bytes, libc::MS_SYNC) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.bytes) };
    }
}
