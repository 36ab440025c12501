//! Moves bytes from one descriptor to another when at least one leads to a weft file: what `sendfile` and
//! `copy_file_range` do inside the kernel.

use crate::descriptors::table;
use crate::{process, sys};
use libc::c_int;
use weft_client::{Errno, FileRef};

/// Bytes moved at once.
const CHUNK_BYTES: usize = 128 * 1024;
/// Most bytes of one call, as in Linux.
const TRANSFER_MAX: usize = 0x7fff_f000;

/// One side.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// A weft file.
    Weft(FileRef),
    /// Anything else.
    Kernel(c_int),
}

impl End {
    /// What a descriptor leads to.
    pub fn of(fd: c_int) -> End {
        table::get(fd).map_or(End::Kernel(fd), End::Weft)
    }

    fn read(self, out: &mut [u8], offset: Option<u64>) -> Result<usize, Errno> {
        match (self, offset) {
            (End::Weft(file), offset) => crate::file::read(file, out, offset),
            (End::Kernel(fd), None) => sys::read(fd, out),
            (End::Kernel(fd), Some(offset)) => weft_client::sys::pread(fd, out, offset),
        }
    }

    fn write(self, bytes: &[u8], offset: Option<u64>) -> Result<usize, Errno> {
        match (self, offset) {
            (End::Weft(file), offset) => crate::file::write(file, bytes, offset),
            (End::Kernel(fd), None) => sys::write(fd, bytes),
            (End::Kernel(fd), Some(offset)) => sys::pwrite_all(fd, bytes, offset).map(|()| bytes.len()),
        }
    }

    /// Takes back what was read and could not be written.
    fn step_back(self, bytes: usize) {
        let by = -(bytes as i64);
        match self {
            End::Weft(file) => {
                if let Ok(client) = process::client() {
                    let _ = client.seek(file, by, libc::SEEK_CUR);
                }
            }
            End::Kernel(fd) => {
                let _ = sys::lseek(fd, by, libc::SEEK_CUR);
            }
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
    let room = sys::anonymous(CHUNK_BYTES)?;
    // SAFETY: just mapped, of this length, and known to nobody else.
    let room = unsafe { std::slice::from_raw_parts_mut(room, CHUNK_BYTES) };
    let mut done = 0;
    let mut result = Ok(());
    while done < wanted {
        let want = CHUNK_BYTES.min(wanted - done);
        let part = room.get_mut(..want).unwrap_or(&mut []);
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
            match to
                .write(part.get(written..got).unwrap_or(&[]), to_start.map(|at| at + (done + written) as u64))
            {
                Ok(0) => result = Err(libc::EIO),
                Ok(n) => written += n,
                Err(error) => result = Err(error),
            }
        }
        done += written;
        if written < got {
            if from_start.is_none() {
                from.step_back(got - written);
            }
            break;
        }
    }
    // SAFETY: the slice is not used any more.
    let _ = unsafe { sys::munmap(room.as_mut_ptr(), CHUNK_BYTES) };
    if done == 0 {
        result?;
    }
    for at in [from_at, to_at].into_iter().flatten() {
        *at += done as i64;
    }
    Ok(done)
}
