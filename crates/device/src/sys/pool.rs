//! Memory that this process writes and others map: words, then slots.

use super::file::memory_file;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The memory; unmapped when dropped.
#[derive(Debug)]
pub struct Pool {
    file: File,
    start: NonNull<u8>,
    word_bytes: usize,
    slot_bytes: usize,
    slots: usize,
}

// SAFETY: words are only reached as atomics; a slot's bytes only by whoever its owner lets (see `write`).
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// So many bytes of words, a multiple of the page size, and so many slots; all zero. Memory is used as it is
    /// touched.
    pub fn new(word_bytes: usize, slot_bytes: usize, slots: usize) -> io::Result<Pool> {
        let bytes = slots
            .checked_mul(slot_bytes)
            .and_then(|bytes| bytes.checked_add(word_bytes))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let file = memory_file(bytes as u64)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice; the result is checked before use.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("the kernel mapped page zero"))?;
        Ok(Pool { file, start, word_bytes, slot_bytes, slots })
    }

    /// The memory file.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Bytes of the memory file.
    pub fn bytes(&self) -> usize {
        self.word_bytes + self.slot_bytes * self.slots
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, begins with that many bytes, and lives as long as `self`; every bit
        // pattern is a valid `AtomicU64`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.word_bytes / 8) }
    }

    /// The address of bytes of a slot; `None` when there are no such.
    fn at(&self, slot: usize, from: usize, bytes: usize) -> Option<*mut u8> {
        let within = slot < self.slots && from.checked_add(bytes)? <= self.slot_bytes;
        // SAFETY: within the mapping, as just checked.
        within.then(|| unsafe { self.start.as_ptr().add(self.word_bytes + slot * self.slot_bytes + from) })
    }

    /// Copies bytes into a slot. Of this process's threads only one at a time may use the slot, which the caller's lock
    /// sees to; other processes find out by the words whether what they copied at the same time is of use.
    pub fn write(&self, slot: usize, from: usize, data: &[u8]) {
        if let Some(to) = self.at(slot, from, data.len()) {
            // SAFETY: the range is within the mapping, which `data` cannot overlap, since nobody gets references to it.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        }
    }

    /// Copies bytes out of a slot, under the same lock; returns whether there are such bytes.
    pub fn read(&self, slot: usize, from: usize, out: &mut [u8]) -> bool {
        let Some(at) = self.at(slot, from, out.len()) else { return false };
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(at, out.as_mut_ptr(), out.len()) };
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}
