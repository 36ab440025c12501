//! `RWF_ATOMIC`: a write that a power cut leaves whole or not at all. As in Linux, the file is open with `O_DIRECT`, and the write has a power of
//! two of bytes at a multiple of that. It is one program of one step, and not durable by that.

use crate::file::{Inside, batch};
use crate::mapping::pages;
use crate::process;
use crate::process::file_limit;
use weft_client::proto::is_writable;
use weft_client::{Client, Errno, FileRef};
use weft_core::{BLOCK_BYTES, refuse};
use weft_vfs::compound::{Chain, Compare, Field};

/// The flag of `pwritev2`, which the libc crate does not name.
pub const RWF_ATOMIC: i32 = 0x40;
/// What `statx` is asked for, and tells.
pub const STATX_WRITE_ATOMIC: u32 = 0x1_0000;
/// Such writes can be made of a file, as `statx` says.
pub const ATTR_WRITE_ATOMIC: u64 = 0x40_0000;
/// The shortest such write, in bytes.
pub const UNIT_MIN: u32 = BLOCK_BYTES as u32;
/// The longest: a fourth of what a program may write.
pub const UNIT_MAX: u32 = 1 << 20;
/// An append is tried so often while others append, too.
const TRIES_MAX: usize = 100;

/// Whether such writes can be made of an open file.
///
/// # Errors
/// `EBADF` when it is not open for writing, `EOPNOTSUPP` when it is not open with `O_DIRECT` or the volume cannot do it.
fn check(client: &Client, file: FileRef) -> Result<i32, Errno> {
    let flags = client.flags(file)?;
    refuse(flags & libc::O_PATH != 0 || !is_writable(flags), libc::EBADF)?;
    let can = flags & libc::O_DIRECT != 0 && batch::is_possible(client, file)?;
    refuse(!can, libc::EOPNOTSUPP)?;
    Ok(flags)
}

/// Writes at the file offset, or at `offset`; `durable` makes it durable, too.
///
/// # Errors
/// `EBADF` when it is not open for writing, `EOPNOTSUPP` when it is not open with `O_DIRECT` or the volume cannot do it; `EINVAL` for a length
/// that is no power of two from [`UNIT_MIN`] to [`UNIT_MAX`] or no divisor of the offset; those of a write, which has written nothing then.
pub fn write(file: FileRef, bytes: &[u8], offset: Option<u64>, durable: bool) -> Result<usize, Errno> {
    let (client, len) = (process::client()?, bytes.len() as u64);
    let flags = check(client, file)?;
    let is_unit = len.is_power_of_two() && (u64::from(UNIT_MIN)..=u64::from(UNIT_MAX)).contains(&len);
    refuse(!is_unit, libc::EINVAL)?;
    refuse(
        file_limit::is_set() && file_limit::writable(file, offset, bytes.len())? < bytes.len(),
        libc::EFBIG,
    )?;
    let _inside = Inside::enter()?;
    let place = |client: &Client| match offset {
        _ if flags & libc::O_APPEND != 0 => Ok(client.fstat(file)?.size),
        Some(offset) => Ok(offset),
        None => client.seek(file, 0, libc::SEEK_CUR),
    };
    let durable = durable || flags & libc::O_DSYNC != 0;
    for _ in 0..TRIES_MAX {
        let at = place(client)?;
        refuse(!at.is_multiple_of(len), libc::EINVAL)?;
        let end = at.checked_add(len).filter(|end| *end <= i64::MAX as u64).ok_or(libc::EFBIG)?;
        if batch::any()
            && let Some(written) = batch::write(client, file, &[bytes], offset)
        {
            return written;
        }
        let act = |client: &Client| step(client, file, (at, bytes), flags & libc::O_APPEND != 0, durable);
        let done = if pages::concern(client, file) { pages::change(file, at, end, act) } else { act(client) };
        match done {
            // The file ends elsewhere now.
            Err(libc::ECANCELED) => continue,
            done => done?,
        }
        if offset.is_none() {
            client.seek(file, end as i64, libc::SEEK_SET)?;
        }
        return Ok(bytes.len());
    }
    Err(libc::EAGAIN)
}

/// Writes in one step. `at_end`: only if the file ends there; fails with `ECANCELED` otherwise.
fn step(
    client: &Client,
    file: FileRef,
    (at, bytes): (u64, &[u8]),
    at_end: bool,
    durable: bool,
) -> Result<(), Errno> {
    let mut chain = if durable { Chain::all().durable() } else { Chain::all() };
    let target = chain.given(0);
    if at_end {
        let attr = chain.stat(target);
        let size = chain.field(attr, Field::Size);
        chain.expect(size, Compare::Equal, at);
    }
    chain.write(target, at, bytes);
    let program = chain.check().map_err(|_| libc::EINVAL)?;
    let answer = client.run_program(FileRef::ROOT, 0, &[file], &program)?;
    answer.failed().map_or(Ok(()), |(_, error)| Err(error))
}
