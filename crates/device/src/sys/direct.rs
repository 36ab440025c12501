//! Writes past the page cache that are durable when they return.

use super::file::LockedFile;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// A second descriptor of a file, for direct writes.
#[derive(Debug)]
pub struct DirectFile(File);

impl DirectFile {
    /// Opens the same file once more; fails where the file system has no direct writes.
    pub fn of(file: &LockedFile) -> io::Result<DirectFile> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).map(DirectFile)
    }

    /// Writes `bytes`, which begin at a page's address, at `offset`. They are durable when this returns; of
    /// the rest of the file it says nothing. An error leaves open what was written.
    pub fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: one vector, which describes a live slice that the kernel only reads from.
        let wrote =
            unsafe { libc::pwritev2(self.0.as_raw_fd(), &part, 1, offset as libc::off_t, libc::RWF_DSYNC) };
        match usize::try_from(wrote) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(n) => Err(io::Error::other(format!("wrote {n} of {} bytes", bytes.len()))),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}
