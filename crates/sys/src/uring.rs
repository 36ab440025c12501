//! Many reads and writes of a file in flight, by io_uring.
//!
//! A ring is used by one caller at a time: it is taken from a list, and goes back when nothing of the caller is under way
//! any more. So callers never wait for each other, and a completion is always the caller's own.

use crate::aligned::PAGE_BYTES;
use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Entries of a ring: what one caller has under way.
const RING_ENTRIES: u32 = 128;

/// Rings that nobody uses.
pub struct Rings {
    idle: Mutex<Vec<IoUring>>,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}

impl Rings {
    /// `None` where the kernel refuses rings: all goes by plain calls then.
    pub fn new() -> Option<Rings> {
        let first = IoUring::new(RING_ENTRIES).ok()?;
        Some(Rings { idle: Mutex::new(vec![first]) })
    }

    fn take(&self) -> io::Result<IoUring> {
        match self.idle.lock().pop() {
            Some(ring) => Ok(ring),
            None => IoUring::new(RING_ENTRIES),
        }
    }

    /// Reads from pages of a file, by their numbers, and returns how many bytes each read gave, or below 0 the number of its error.
    pub fn read_all(&self, file: &File, reads: &mut [(u64, &mut [u8])]) -> io::Result<Vec<i32>> {
        let mut ring = self.take()?;
        let mut results = vec![0; reads.len()];
        let mut start = 0;
        while start < reads.len() {
            let count = (reads.len() - start).min(RING_ENTRIES as usize);
            for (at, (page, into)) in reads[start..start + count].iter_mut().enumerate() {
                let fd = types::Fd(file.as_raw_fd());
                let entry = opcode::Read::new(fd, into.as_mut_ptr(), into.len() as u32)
                    .offset(*page * PAGE_BYTES as u64)
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

    /// Writes bytes at an offset, durable when this returns. Unlike in a plain call, whoever writes elsewhere in the file does not wait
    /// for the medium: ext4 holds the inode's lock only until a direct write is under way.
    pub fn write_durably(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut ring = self.take()?;
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32)
            .offset(offset)
            .rw_flags(libc::RWF_DSYNC)
            .build();
        // SAFETY: the bytes are borrowed until this function returns, which is after the completion.
        if unsafe { ring.submission().push(&entry) }.is_err() {
            return Err(io::Error::other("the ring is full"));
        }
        loop {
            match ring.submit_and_wait(1) {
                Err(error) if !ring.submission().is_empty() => {
                    let again = [libc::EINTR, libc::EAGAIN, libc::EBUSY];
                    if !error.raw_os_error().is_some_and(|errno| again.contains(&errno)) {
                        // The kernel has not taken it: the ring goes with it.
                        return Err(error);
                    }
                }
                _ => break,
            }
        }
        let mut written = 0;
        wait(&mut ring, 1, |_, result| written = result);
        self.idle.lock().push(ring);
        match usize::try_from(written) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(n) => Err(io::Error::other(format!("wrote {n} of {} bytes", bytes.len()))),
            Err(_) => Err(io::Error::from_raw_os_error(-written)),
        }
    }

    /// Begins a write of whole pages at these addresses, one after the other, from page `first` of a file on. No more than 1024 pages.
    ///
    /// # Safety
    /// The pages can be read at their addresses, and the file stays open, until the write was waited for or dropped.
    pub unsafe fn begin_write(
        self: &Arc<Rings>,
        file: &File,
        first: u64,
        pages: &[*const [u8; PAGE_BYTES]],
    ) -> io::Result<RingWrite> {
        let mut ring = self.take()?;
        let part = |page: &*const [u8; PAGE_BYTES]| libc::iovec {
            iov_base: page.cast_mut().cast(),
            iov_len: PAGE_BYTES,
        };
        let parts: Vec<libc::iovec> = pages.iter().map(part).collect();
        let fd = types::Fd(file.as_raw_fd());
        let entry = opcode::Writev::new(fd, parts.as_ptr(), parts.len() as u32)
            .offset(first * PAGE_BYTES as u64)
            .build();
        // SAFETY: the parts' list lives in what is returned, the parts by the caller's promise; both outlive the write,
        // since dropping it waits.
        if unsafe { ring.submission().push(&entry) }.is_err() {
            return Err(io::Error::other("the ring is full"));
        }
        // Interrupted calls have submitted nothing; the wait submits what is left.
        let _ = ring.submit();
        Ok(RingWrite { rings: self.clone(), ring: Some(ring), parts })
    }
}

/// A write under way. Dropping it waits, too.
pub struct RingWrite {
    rings: Arc<Rings>,
    ring: Option<IoUring>,
    parts: Vec<libc::iovec>,
}

// SAFETY: the addresses are read by the kernel alone, and stay readable by the promise of `begin_write`.
unsafe impl Send for RingWrite {}

impl RingWrite {
    /// Waits for the end of the write.
    pub fn wait(mut self) -> io::Result<()> {
        let wanted = self.parts.len() * PAGE_BYTES;
        match self.finish() {
            written if written == wanted as i32 => Ok(()),
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            _ => Err(io::Error::new(io::ErrorKind::WriteZero, "a write came to the medium in part")),
        }
    }

    fn finish(&mut self) -> i32 {
        let Some(mut ring) = self.ring.take() else { return 0 };
        let mut written = 0;
        wait(&mut ring, 1, |_, result| written = result);
        self.rings.idle.lock().push(ring);
        written
    }
}

impl Drop for RingWrite {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Waits for `count` completions. It returns only with all of them: what is under way uses memory of the caller.
fn wait(ring: &mut IoUring, count: usize, mut each: impl FnMut(u64, i32)) {
    let mut seen = 0;
    loop {
        for entry in ring.completion() {
            each(entry.user_data(), entry.result());
            seen += 1;
        }
        if seen >= count {
            break;
        }
        // An error is one of the call, such as an interruption, and never of what is under way.
        let _ = ring.submit_and_wait(count - seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    #[test]
    fn what_a_ring_has_written_it_reads_and_an_end_in_between_shows() {
        // Where the kernel refuses rings there is nothing to be tested.
        let Some(rings) = Rings::new().map(Arc::new) else { return };
        let file = tempfile::tempfile().unwrap();
        let mut raw = AlignedBuf::zeroed(3 * PAGE_BYTES);
        raw.chunks_mut(PAGE_BYTES).zip(1..).for_each(|(page, value)| page.fill(value));
        let pages: Vec<*const [u8; PAGE_BYTES]> =
            raw.chunks(PAGE_BYTES).map(|page| page.as_ptr().cast()).collect();
        // SAFETY: the pages and the file outlive the writes, which are waited for and dropped here.
        unsafe {
            rings.begin_write(&file, 2, &pages).unwrap().wait().unwrap();
            drop(rings.begin_write(&file, 0, &pages[2..]).unwrap());
        }
        let mut out = AlignedBuf::zeroed(200 * PAGE_BYTES);
        let wanted = |read: usize| [0, 2, 4, 1][read % 4];
        let mut reads: Vec<_> =
            out.chunks_mut(PAGE_BYTES).enumerate().map(|(read, page)| (wanted(read), page)).collect();
        assert!(rings.read_all(&file, &mut reads).unwrap().iter().all(|bytes| *bytes == PAGE_BYTES as i32));
        for (read, page) in out.chunks(PAGE_BYTES).enumerate() {
            assert!(page.iter().all(|byte| *byte == [3, 1, 3, 0][read % 4]), "read {read}");
        }
        rings.write_durably(&file, &raw[PAGE_BYTES..2 * PAGE_BYTES], 0).unwrap();
        let mut first = [(0, &mut out[..PAGE_BYTES])];
        assert_eq!(rings.read_all(&file, &mut first).unwrap(), [PAGE_BYTES as i32]);
        assert!(out[..PAGE_BYTES].iter().all(|byte| *byte == 2));
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let refused = rings.write_durably(&full, &raw[..PAGE_BYTES], 0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let mut last = [(5, &mut out[..PAGE_BYTES])];
        assert_eq!(rings.read_all(&file, &mut last).unwrap(), [0], "beyond the end");
    }
}
