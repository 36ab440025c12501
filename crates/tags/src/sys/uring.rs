//! Many reads and writes in flight, by io_uring.
//!
//! A ring is used by one caller at a time: it is taken from a list, and goes back when nothing of the caller is under way
//! any more. So callers never wait for each other, and a completion is always the caller's own.

use crate::ids::PAGE_BYTES;
use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Entries of a ring: what one caller has under way.
const RING_ENTRIES: u32 = 128;

/// Rings that nobody uses.
pub(crate) struct Rings {
    idle: Mutex<Vec<IoUring>>,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}

impl Rings {
    /// `None` where the kernel refuses rings: all goes by plain calls then.
    pub(crate) fn new() -> Option<Rings> {
        let first = IoUring::new(RING_ENTRIES).ok()?;
        Some(Rings { idle: Mutex::new(vec![first]) })
    }

    fn take(&self) -> io::Result<IoUring> {
        match self.idle.lock().pop() {
            Some(ring) => Ok(ring),
            None => IoUring::new(RING_ENTRIES),
        }
    }

    /// Reads from blocks, and returns how many bytes each read gave, or the error of each.
    pub(crate) fn read_all(&self, file: RawFd, reads: &mut [(u64, &mut [u8])]) -> io::Result<Vec<i32>> {
        let mut ring = self.take()?;
        let mut results = vec![0; reads.len()];
        let mut start = 0;
        while start < reads.len() {
            let count = (reads.len() - start).min(RING_ENTRIES as usize);
            for (at, (block, into)) in reads[start..start + count].iter_mut().enumerate() {
                let entry = opcode::Read::new(types::Fd(file), into.as_mut_ptr(), into.len() as u32)
                    .offset(*block * PAGE_BYTES as u64)
                    .build()
                    .user_data((start + at) as u64);
                // SAFETY: the buffer is borrowed until this function returns, which is after its completion. The ring is
                // empty and has room for all.
                if unsafe { ring.submission().push(&entry) }.is_err() {
                    return Err(io::Error::other("the ring is full"));
                }
            }
            wait(&mut ring, count, |entry, result| results[entry as usize] = result);
            start += count;
        }
        self.idle.lock().push(ring);
        Ok(results)
    }

    /// Begins a write of parts, one after the other.
    ///
    /// # Safety
    /// The parts stay mapped until the write was waited for or dropped.
    pub(crate) unsafe fn begin_write(
        self: &Arc<Rings>,
        file: RawFd,
        at: u64,
        parts: Vec<libc::iovec>,
    ) -> io::Result<Write> {
        let mut ring = self.take()?;
        let entry =
            opcode::Writev::new(types::Fd(file), parts.as_ptr(), parts.len() as u32).offset(at).build();
        // SAFETY: the parts' list lives in what is returned, the parts by the caller's promise; both outlive the write,
        // since dropping it waits.
        if unsafe { ring.submission().push(&entry) }.is_err() {
            return Err(io::Error::other("the ring is full"));
        }
        let write = Write { rings: self.clone(), ring: Some(ring), _parts: parts };
        if let Some(ring) = &write.ring {
            // Interrupted calls have submitted nothing; the wait submits what is left.
            let _ = ring.submit();
        }
        Ok(write)
    }
}

/// A write under way.
pub(crate) struct Write {
    rings: Arc<Rings>,
    ring: Option<IoUring>,
    _parts: Vec<libc::iovec>,
}

// SAFETY: the addresses are read by the kernel alone, and stay mapped by the promise of `begin_write`.
unsafe impl Send for Write {}

impl Write {
    /// Waits for the end of the write: the bytes written, or the error's number below 0.
    pub(crate) fn wait(mut self) -> i32 {
        self.finish()
    }

    fn finish(&mut self) -> i32 {
        let Some(mut ring) = self.ring.take() else { return 0 };
        let mut written = 0;
        wait(&mut ring, 1, |_, result| written = result);
        self.rings.idle.lock().push(ring);
        written
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Waits for `count` completions. It returns only with all of them: what is under way uses memory of the caller.
fn wait(ring: &mut IoUring, count: usize, mut each: impl FnMut(u64, i32)) {
    let mut seen = 0;
    while seen < count {
        // An error is one of the call, such as an interruption, and never of what is under way.
        let _ = ring.submit_and_wait(count - seen);
        for entry in ring.completion() {
            each(entry.user_data(), entry.result());
            seen += 1;
        }
    }
}
