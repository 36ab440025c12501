//! The limit on the size of files (`RLIMIT_FSIZE`), which the kernel cannot keep for files that it does not store.
//!
//! It is read when the library is loaded and after each call that changes it, so that a write costs one load. A limit that
//! another process sets by `prlimit` is not seen.

use crate::{process, sys};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_client::proto::is_writable;
use weft_client::{Errno, FileRef};

/// Bytes; `u64::MAX`: none.
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Reads the limit.
pub fn look() {
    // What cannot be asked for is no limit.
    LIMIT.store(sys::file_limit().unwrap_or(u64::MAX), Relaxed);
}

/// Whether there is one.
#[inline(always)]
pub fn is_set() -> bool {
    LIMIT.load(Relaxed) != u64::MAX
}

/// What a file that would get too large earns: a signal, and an error for whoever lives on.
fn exceeded<T>() -> Result<T, Errno> {
    sys::signal_self(libc::SIGXFSZ);
    Err(libc::EFBIG)
}

/// How many of `len` bytes may be written at `offset` or at the file offset. None of them is `EFBIG`, and a signal.
#[cold]
pub fn writable(file: FileRef, offset: Option<u64>, len: usize) -> Result<usize, Errno> {
    let limit = LIMIT.load(Relaxed);
    let client = process::client()?;
    let flags = client.flags(file)?;
    if len == 0 || !is_writable(flags) {
        return Ok(len);
    }
    let at = match offset {
        // As in Linux, an offset does not keep O_APPEND from appending.
        _ if flags & libc::O_APPEND != 0 => crate::file::attributes(file)?.size,
        Some(offset) => offset,
        None => client.seek(file, 0, libc::SEEK_CUR)?,
    };
    match limit.checked_sub(at) {
        None | Some(0) => exceeded(),
        Some(left) => Ok(usize::try_from(left).unwrap_or(usize::MAX).min(len)),
    }
}

/// Fails when a file that now has `size()` bytes may not get `wanted`.
pub fn check_size(wanted: u64, size: impl FnOnce() -> Result<u64, Errno>) -> Result<(), Errno> {
    if wanted > LIMIT.load(Relaxed) && wanted > size()? { exceeded() } else { Ok(()) }
}
