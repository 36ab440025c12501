//! Descriptors that may lead to a weft file or to one of the kernel's, and what moves bytes between two of which one at
//! least does: what `sendfile` and `copy_file_range` do inside the kernel.

use crate::descriptors::table;
use crate::owned::Memory;
use crate::{process, sys};
use libc::c_int;
use weft_client::{Errno, FileRef};

/// Bytes moved at once.
const CHUNK_BYTES: usize = 128 * 1024;
/// Most bytes of one call, as in Linux.
const TRANSFER_MAX: usize = 0x7fff_f000;

/// What a descriptor leads to.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// A weft file.
    Weft(FileRef),
    /// Anything else.
    Kernel(c_int),
}

impl End {
    /// Of a descriptor.
    pub fn of(fd: c_int) -> End {
        table::get(fd).map_or(End::Kernel(fd), End::Weft)
    }

    /// Reads at its offset, or at `offset`.
    pub fn read(self, out: &mut [u8], offset: Option<u64>) -> Result<usize, Errno> {
        match (self, offset) {
            (End::Weft(file), offset) => crate::file::read(file, out, offset),
            (End::Kernel(fd), None) => sys::read(fd, out),
            (End::Kernel(fd), Some(offset)) => weft_client::sys::pread(fd, out, offset),
        }
    }

    /// Writes at its offset, or at `offset`.
    pub fn write(self, bytes: &[u8], offset: Option<u64>) -> Result<usize, Errno> {
        match (self, offset) {
            (End::Weft(file), offset) => crate::file::write(file, bytes, offset),
            (End::Kernel(fd), None) => sys::write(fd, bytes),
            (End::Kernel(fd), Some(offset)) => sys::pwrite_all(fd, bytes, offset).map(|()| bytes.len()),
        }
    }

    /// Moves its offset; the new one.
    pub fn seek(self, offset: i64, whence: c_int) -> Result<u64, Errno> {
        match self {
            End::Weft(file) => process::client()?.seek(file, offset, whence),
            End::Kernel(fd) => sys::lseek(fd, offset, whence),
        }
    }
}

/// Moves up to `len` bytes; an offset given is used instead of the file's own, and advanced.
pub fn pump(
    from: End,
    from_at: Option<&mut i64>,
    to: End,
    to_at: Option<&mut i64>,
    len: usize,
) -> Result<usize, Errno> {
    let wanted = len.min(TRANSFER_MAX);
    let start = |at: Option<&i64>| at.map(|at| u64::try_from(*at).map_err(|_| libc::EINVAL)).transpose();
    let (from_start, to_start) = (start(from_at.as_deref())?, start(to_at.as_deref())?);
    let mut room = Memory::new(CHUNK_BYTES)?;
    let mut done = 0;
    let mut result = Ok(());
    while done < wanted {
        let want = CHUNK_BYTES.min(wanted - done);
        let part = room.bytes().get_mut(..want).unwrap_or(&mut []);
        let got = match from.read(part, from_start.map(|at| at + done as u64)) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) => {
                result = Err(error);
                break;
            }
        };
        let mut written = 0;
        while written < got && result.is_ok() {
            let rest = part.get(written..got).unwrap_or(&[]);
            match to.write(rest, to_start.map(|at| at + (done + written) as u64)) {
                Ok(0) => result = Err(libc::EIO),
                Ok(n) => written += n,
                Err(error) => result = Err(error),
            }
        }
        done += written;
        if written < got {
            if from_start.is_none() {
                let _ = from.seek(-((got - written) as i64), libc::SEEK_CUR);
            }
            break;
        }
    }
    if done == 0 {
        result?;
    }
    for at in [from_at, to_at].into_iter().flatten() {
        *at += done as i64;
    }
    Ok(done)
}
