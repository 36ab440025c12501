//! Shared memory that this process writes and others map: words, then slots.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use weft_sys::SharedMemory;

/// The memory. A slot's bytes are reached only by whoever its owner lets (see [`Pool::write`]).
#[derive(Debug)]
pub struct Pool {
    memory: SharedMemory,
    word_bytes: usize,
    slot_bytes: usize,
    slots: usize,
}

impl Pool {
    /// So many bytes of words, a multiple of the page size, and so many slots; all zero. Memory is used as it is
    /// touched.
    pub fn new(word_bytes: usize, slot_bytes: usize, slots: usize) -> io::Result<Pool> {
        let bytes = slots
            .checked_mul(slot_bytes)
            .and_then(|bytes| bytes.checked_add(word_bytes))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Pool { memory: SharedMemory::create("weft-device", bytes)?, word_bytes, slot_bytes, slots })
    }

    /// The memory file.
    pub fn fd(&self) -> RawFd {
        self.memory.fd()
    }

    /// Bytes of the memory file.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    pub fn words(&self) -> &[AtomicU64] {
        &self.memory.atomics()[..self.word_bytes / size_of::<u64>()]
    }

    /// The address of bytes of a slot; `None` when there are no such.
    fn at(&self, slot: usize, from: usize, bytes: usize) -> Option<*mut u8> {
        let within = slot < self.slots && from.checked_add(bytes)? <= self.slot_bytes;
        // SAFETY: within the mapping, as just checked.
        within.then(|| unsafe {
            self.memory.as_ptr::<u8>().add(self.word_bytes + slot * self.slot_bytes + from)
        })
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
