//! `splice` between a weft file and a pipe, by reading and writing. What comes out of a pipe and cannot be written, as the
//! volume is full, is gone, unlike with the kernel's own.

use crate::descriptors::table;
use crate::{file as weft_file, process, sys};
use libc::{c_int, c_uint};
use weft_client::proto::{is_readable, is_writable};
use weft_client::scratch::Scratch;
use weft_client::{Errno, FileRef};

/// Bytes that a pipe which is ready for writing takes without blocking.
const PIPE_STEP_BYTES: usize = 4096;
/// Most bytes taken from a pipe at once: what one holds by default.
const CHUNK_BYTES: usize = 64 * 1024;

fn is_pipe(fd: c_int) -> Result<bool, Errno> {
    Ok(sys::fstat(fd)?.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Whether waiting for the pipe is not wanted.
fn is_impatient(pipe: c_int, flags: c_uint) -> bool {
    let nonblocking =
        || sys::fcntl(pipe, libc::F_GETFL, 0).is_ok_and(|flags| flags as c_int & libc::O_NONBLOCK != 0);
    flags & libc::SPLICE_F_NONBLOCK != 0 || nonblocking()
}

/// The place to read or write at: the one given, or the file's own.
fn place(file: FileRef, at: Option<&i64>) -> Result<u64, Errno> {
    match at {
        Some(at) => u64::try_from(*at).map_err(|_| libc::EINVAL),
        None => process::client()?.seek(file, 0, libc::SEEK_CUR),
    }
}

/// Moves the place on.
fn advance(file: FileRef, at: Option<&mut i64>, by: usize) -> Result<(), Errno> {
    match at {
        Some(at) => *at += by as i64,
        None => drop(process::client()?.seek(file, by as i64, libc::SEEK_CUR)?),
    }
    Ok(())
}

fn to_pipe(
    file: FileRef,
    at: Option<&mut i64>,
    pipe: c_int,
    len: usize,
    impatient: bool,
) -> Result<usize, Errno> {
    if !is_readable(process::client()?.flags(file)?) {
        return Err(libc::EBADF);
    }
    let start = place(file, at.as_deref())?;
    let mut buffer = Scratch::<[u8; PIPE_STEP_BYTES]>::any()?;
    let (mut done, mut result) = (0, Ok(()));
    while done < len {
        if !sys::is_ready(pipe, libc::POLLOUT, done == 0 && !impatient)? {
            result = Err(libc::EAGAIN);
            break;
        }
        let step = buffer.len().min(len - done);
        let read =
            weft_file::read(file, buffer.get_mut(..step).unwrap_or(&mut []), Some(start + done as u64));
        let written =
            read.and_then(|n| if n == 0 { Ok(0) } else { sys::write(pipe, buffer.get(..n).unwrap_or(&[])) });
        match written {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    if done == 0 {
        return result.map(|()| 0);
    }
    advance(file, at, done)?;
    Ok(done)
}

fn from_pipe(
    pipe: c_int,
    file: FileRef,
    at: Option<&mut i64>,
    len: usize,
    impatient: bool,
) -> Result<usize, Errno> {
    let flags = process::client()?.flags(file)?;
    if !is_writable(flags) {
        return Err(libc::EBADF);
    }
    if flags & libc::O_APPEND != 0 {
        return Err(libc::EINVAL);
    }
    let start = place(file, at.as_deref())?;
    if impatient && !sys::is_ready(pipe, libc::POLLIN, false)? {
        return Err(libc::EAGAIN);
    }
    let mut buffer = Scratch::<[u8; CHUNK_BYTES]>::any()?;
    let got = sys::read(pipe, buffer.get_mut(..len.min(CHUNK_BYTES)).unwrap_or(&mut []))?;
    let mut done = 0;
    while done < got {
        match weft_file::write(file, buffer.get(done..got).unwrap_or(&[]), Some(start + done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    advance(file, at, done)?;
    Ok(done)
}

/// Moves bytes from one descriptor to the other, of which one leads to a weft file.
pub fn splice(
    from: c_int,
    from_at: Option<&mut i64>,
    to: c_int,
    to_at: Option<&mut i64>,
    len: usize,
    flags: c_uint,
) -> Result<usize, Errno> {
    const FLAGS: c_uint =
        libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
    if flags & !FLAGS != 0 {
        return Err(libc::EINVAL);
    }
    match (table::get(from), table::get(to)) {
        _ if len == 0 => Ok(0),
        (Some(file), None) if is_pipe(to)? => match to_at {
            Some(_) => Err(libc::ESPIPE),
            None => to_pipe(file, from_at, to, len, is_impatient(to, flags)),
        },
        (None, Some(file)) if is_pipe(from)? => match from_at {
            Some(_) => Err(libc::ESPIPE),
            None => from_pipe(from, file, to_at, len, is_impatient(from, flags)),
        },
        _ => Err(libc::EINVAL),
    }
}
