//! Reading, writing, seeking, syncing, sizes.

use crate::descriptors::table;
use crate::file::atomic::{self, RWF_ATOMIC};
use crate::file::pump::{End, pump};
use crate::file::splicing;
use crate::hooks::change::place_for_data;
use crate::mapping::pages;
use crate::process::{self, file_limit};
use crate::routing::{Failed, Given, fail, finish, on_file, on_target};
use crate::{file as weft_file, sys};
use libc::{c_char, c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};
use std::mem::MaybeUninit;
use weft_client::busy::whole;
use weft_client::proto::{is_readable, is_writable};
use weft_client::scratch::{AnyBytes, Scratch};
use weft_client::{AttrChange, Errno, FileRef};
use weft_core::refuse;

/// Most parts of a vectored call, as in Linux.
const PARTS_MAX: usize = 1024;
/// Parts that are handled in a small array.
const PARTS_FEW: usize = 16;
/// Most bytes of one call, as in Linux.
const TRANSFER_MAX: usize = 0x7fff_f000;

/// Behind the last address that a program can have.
const ADDRESSES_END: usize = if cfg!(target_arch = "x86_64") { 1 << 47 } else { 1 << 52 };

/// Whether a range can be a program's memory, which Linux looks at before it touches any.
fn is_memory(start: usize, len: usize) -> bool {
    start.checked_add(len).is_some_and(|end| end <= ADDRESSES_END)
}

/// The program's buffer for reading into it.
pub fn room<'a>(buffer: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    if len == 0 {
        Ok(&mut [])
    } else if buffer.is_null() || !is_memory(buffer as usize, len) {
        Err(libc::EFAULT)
    } else {
        // SAFETY: the program promises `len` writable bytes. They may be uninitialised; the client only writes them.
        Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len.min(TRANSFER_MAX)) })
    }
}

/// The program's buffer for writing from it.
pub fn given<'a>(buffer: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    if len == 0 {
        Ok(&[])
    } else if buffer.is_null() || !is_memory(buffer as usize, len) {
        Err(libc::EFAULT)
    } else {
        // SAFETY: the program promises `len` readable bytes.
        Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), len.min(TRANSFER_MAX)) })
    }
}

fn offset_of(offset: off_t) -> Result<u64, Errno> {
    u64::try_from(offset).map_err(|_| libc::EINVAL)
}

/// Does one thing with the data behind a descriptor, which a signal handler cannot come into the middle of.
#[inline(always)]
fn on_data<T: Failed, V: Given<T>>(
    fd: c_int,
    real: impl FnOnce() -> T,
    weft: impl FnOnce(FileRef) -> Result<V, Errno>,
) -> T {
    match table::get(fd) {
        None => real(),
        Some(file) => whole(|| finish(weft(file))),
    }
}

/// An error of the file comes before one of the memory, as in Linux.
fn memory<T>(result: Result<T, Errno>, file: FileRef, allowed: fn(c_int) -> bool) -> Result<T, Errno> {
    match result {
        Err(_) if !allowed(process::client()?.flags(file)?) => Err(libc::EBADF),
        result => result,
    }
}

fn read_weft(file: FileRef, buffer: *mut c_void, len: usize) -> Result<usize, Errno> {
    weft_file::read(file, memory(room(buffer, len), file, is_readable)?, None)
}

fn write_weft(file: FileRef, buffer: *const c_void, len: usize) -> Result<usize, Errno> {
    weft_file::write(file, memory(given(buffer, len), file, is_writable)?, None)
}

fn pread_weft(file: FileRef, buffer: *mut c_void, len: usize, offset: off_t) -> Result<usize, Errno> {
    let offset = offset_of(offset)?;
    weft_file::read(file, memory(room(buffer, len), file, is_readable)?, Some(offset))
}

fn pwrite_weft(file: FileRef, buffer: *const c_void, len: usize, offset: off_t) -> Result<usize, Errno> {
    let offset = offset_of(offset)?;
    weft_file::write(file, memory(given(buffer, len), file, is_writable)?, Some(offset))
}

fn parts_of<'a>(parts: *const iovec, count: c_int) -> Result<&'a [iovec], Errno> {
    let parts = match usize::try_from(count) {
        Ok(0) => &[],
        Ok(_) if parts.is_null() => return Err(libc::EFAULT),
        // SAFETY: the program promises `count` parts.
        Ok(count) if count <= PARTS_MAX => unsafe { std::slice::from_raw_parts(parts, count) },
        _ => return Err(libc::EINVAL),
    };
    // Of all parts, before any byte moves.
    if parts.iter().any(|part| part.iov_len > isize::MAX as usize) {
        return Err(libc::EINVAL);
    }
    if parts.iter().any(|part| !is_memory(part.iov_base as usize, part.iov_len)) {
        return Err(libc::EFAULT);
    }
    Ok(parts)
}

fn readv_weft(file: FileRef, parts: *const iovec, count: c_int, offset: Option<u64>) -> Result<usize, Errno> {
    let parts = memory(parts_of(parts, count), file, is_readable)?;
    if parts.iter().all(|part| part.iov_len == 0) {
        // Nothing is asked of the file but that it can be read: unlike with `read`, it may be a directory.
        return if is_readable(process::client()?.flags(file)?) { Ok(0) } else { Err(libc::EBADF) };
    }
    let mut done = 0;
    for part in parts {
        let wanted = part.iov_len.min(TRANSFER_MAX);
        let out = memory(room(part.iov_base, part.iov_len), file, is_readable);
        match out.and_then(|out| weft_file::read(file, out, offset.map(|offset| offset + done as u64))) {
            Ok(n) => {
                done += n;
                if n < wanted {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn writev_weft(
    file: FileRef,
    parts: *const iovec,
    count: c_int,
    offset: Option<u64>,
) -> Result<usize, Errno> {
    let parts = memory(parts_of(parts, count), file, is_writable)?;
    if parts.len() <= PARTS_FEW {
        let mut few: [&[u8]; PARTS_FEW] = [&[]; PARTS_FEW];
        return writev_by(file, parts, offset, &mut few);
    }
    let mut many = Scratch::<ManyParts>::any()?;
    for place in &mut many.0 {
        place.write(&[]);
    }
    // SAFETY: as many slices, each just written.
    let slices = unsafe { &mut *(&raw mut many.0).cast::<[&[u8]; PARTS_MAX]>() };
    writev_by(file, parts, offset, slices)
}

/// The parts of a long call, which are too many for the stack.
struct ManyParts([MaybeUninit<&'static [u8]>; PARTS_MAX]);
// SAFETY: uninitialised ones are any bytes.
unsafe impl AnyBytes for ManyParts {}

/// Writes the parts by way of as many slices, which are empty.
fn writev_by<'a>(
    file: FileRef,
    parts: &'a [iovec],
    offset: Option<u64>,
    slices: &mut [&'a [u8]],
) -> Result<usize, Errno> {
    let mut whole = 0;
    for (slice, part) in slices.iter_mut().zip(parts) {
        match given(part.iov_base, part.iov_len) {
            Ok(bytes) => *slice = bytes,
            // As in Linux, what comes before is written.
            Err(_) if slices.iter().take(whole).any(|slice| !slice.is_empty()) => break,
            error => return memory(error, file, is_writable).map(|_| 0),
        }
        whole += 1;
    }
    weft_file::write_parts(file, slices.get(..whole).unwrap_or(&[]), offset)
}

/// What `preadv2` and `pwritev2` know.
pub const V2_FLAGS: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | RWF_ATOMIC;

/// The offset and the sync flag of `preadv2` and `pwritev2`.
fn v2(offset: off_t, flags: c_int, writes: bool) -> Result<(Option<u64>, bool), Errno> {
    refuse(flags & !V2_FLAGS != 0 || flags & RWF_ATOMIC != 0 && !writes, libc::EOPNOTSUPP)?;
    let offset = if offset == -1 { None } else { Some(offset_of(offset)?) };
    Ok((offset, flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0))
}

/// A write that a power cut leaves whole or not at all.
fn write_atomically(
    file: FileRef,
    parts: *const iovec,
    count: c_int,
    offset: Option<u64>,
    sync: bool,
) -> Result<usize, Errno> {
    let parts = memory(parts_of(parts, count), file, is_writable)?;
    match parts {
        [part] if part.iov_len > 0 => {
            let bytes = memory(given(part.iov_base, part.iov_len), file, is_writable)?;
            atomic::write(file, bytes, offset, sync)
        }
        _ if parts.iter().all(|part| part.iov_len == 0) => weft_file::write_parts(file, &[], offset),
        // As in Linux.
        _ => Err(libc::EINVAL),
    }
}

/// Reads or writes pieces at an offset, with the flags of `preadv2`.
///
/// # Safety
/// The pieces are the program's, for reading or writing.
pub unsafe fn transfer(
    file: FileRef,
    writes: bool,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> Result<usize, Errno> {
    let (offset, sync) = v2(offset, flags, writes)?;
    if flags & RWF_ATOMIC != 0 {
        return write_atomically(file, parts, count, offset, sync);
    }
    if !writes {
        return readv_weft(file, parts, count, offset);
    }
    let n = writev_weft(file, parts, count, offset)?;
    if sync {
        weft_file::sync(file)?;
    }
    Ok(n)
}

fn fallocate_weft(file: FileRef, mode: c_int, offset: off_t, len: off_t) -> Result<(), Errno> {
    place_for_data(file)?;
    if offset < 0 || len <= 0 {
        return Err(libc::EINVAL);
    }
    weft_file::allocate(file, mode, offset as u64, len as u64)
}

fn syncfs_weft(file: FileRef) -> Result<(), Errno> {
    let client = place_for_data(file)?.client;
    pages::write_back_all();
    client.sync_volume(file)
}

hooks! {
    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
        on_data(fd, || real::read(fd, buffer, len), |file| read_weft(file, buffer, len))
    }

    fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        match table::get(fd) {
            Some(file) if len <= room => whole(|| finish(read_weft(file, buffer, len))),
            // libc ends the program when the buffer is too small.
            _ => real::__read_chk(fd, buffer, len, room),
        }
    }

    fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
        on_data(fd, || real::write(fd, buffer, len), |file| write_weft(file, buffer, len))
    }

    fn pread(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
        on_data(fd, || real::pread(fd, buffer, len, offset), |file| pread_weft(file, buffer, len, offset))
    }

    fn __pread_chk(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t {
        match table::get(fd) {
            Some(file) if len <= room => whole(|| finish(pread_weft(file, buffer, len, offset))),
            _ => real::__pread_chk(fd, buffer, len, offset, room),
        }
    }

    fn pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
        on_data(fd, || real::pwrite(fd, buffer, len, offset), |file| pwrite_weft(file, buffer, len, offset))
    }

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        on_data(fd, || real::readv(fd, parts, count), |file| readv_weft(file, parts, count, None))
    }

    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        on_data(fd, || real::writev(fd, parts, count), |file| writev_weft(file, parts, count, None))
    }

    fn preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        on_data(fd, || real::preadv(fd, parts, count, offset), |file| {
            readv_weft(file, parts, count, Some(offset_of(offset)?))
        })
    }

    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        on_data(fd, || real::pwritev(fd, parts, count, offset), |file| {
            writev_weft(file, parts, count, Some(offset_of(offset)?))
        })
    }

    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        on_data(fd, || real::preadv2(fd, parts, count, offset, flags), |file| {
            transfer(file, false, parts, count, offset, flags)
        })
    }

    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        on_data(fd, || real::pwritev2(fd, parts, count, offset, flags), |file| {
            transfer(file, true, parts, count, offset, flags)
        })
    }

    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
        on_data(fd, || real::lseek(fd, offset, whence), |file| weft_file::seek(file, offset, whence))
    }

    fn fsync(fd: c_int) -> c_int {
        on_data(fd, || real::fsync(fd), weft_file::sync)
    }

    fn fdatasync(fd: c_int) -> c_int {
        on_data(fd, || real::fdatasync(fd), weft_file::sync)
    }

    fn sync() -> () {
        // Even in a process that has not used the volume: what others wrote is meant, too.
        if process::is_on()
            && let Ok(client) = process::client()
        {
            // It has nobody to tell: the files' own `fsync` tells.
            pages::write_back_all();
            let _ = client.sync();
        }
        real::sync()
    }

    fn syncfs(fd: c_int) -> c_int {
        on_file(fd, || real::syncfs(fd), syncfs_weft)
    }

    /// Starts write-back of a range and promises nothing: the flusher does that by itself.
    fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int {
        on_file(fd, || real::sync_file_range(fd, offset, len, flags), |file| {
            place_for_data(file)?;
            if offset < 0 || len < 0 || flags & !7 != 0 { Err(libc::EINVAL) } else { Ok(()) }
        })
    }

    fn ftruncate(fd: c_int, size: off_t) -> c_int {
        on_data(fd, || real::ftruncate(fd, size), |file| weft_file::resize(file, offset_of(size)?))
    }

    fn truncate(path: *const c_char, size: off_t) -> c_int {
        on_target(path, |path| real::truncate(path, size), |place| {
            let size = offset_of(size)?;
            if file_limit::is_set() {
                file_limit::check_size(size, || Ok(place.stat(0)?.size))?;
            }
            place.set_attr(0, &AttrChange { size: Some(size), ..Default::default() })
        })
    }

    fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
        on_file(fd, || real::fallocate(fd, mode, offset, len), |file| fallocate_weft(file, mode, offset, len))
    }

    /// Returns the error instead of setting errno.
    fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
        match table::get(fd) {
            None => real::posix_fallocate(fd, offset, len),
            Some(file) => fallocate_weft(file, 0, offset, len).err().unwrap_or(0),
        }
    }

    /// Advice only; returns the error instead of setting errno.
    fn posix_fadvise(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int {
        match table::get(fd) {
            None => real::posix_fadvise(fd, offset, len, advice),
            Some(file) => match place_for_data(file) {
                Err(error) => error,
                Ok(_) if !(0..=5).contains(&advice) || len < 0 => libc::EINVAL,
                Ok(_) => 0,
            },
        }
    }

    fn readahead(fd: c_int, offset: off_t, len: size_t) -> ssize_t {
        on_file(fd, || real::readahead(fd, offset, len), |file| {
            let client = place_for_data(file)?.client;
            if !is_readable(client.flags(file)?) {
                return Err(libc::EBADF);
            }
            let regular = client.fstat(file)?.mode & libc::S_IFMT == libc::S_IFREG;
            if regular { Ok(0isize) } else { Err(libc::EINVAL) }
        })
    }

    fn copy_file_range(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: size_t, flags: c_uint) -> ssize_t {
        if !table::is_weft(from) && !table::is_weft(to) {
            return real::copy_file_range(from, from_at, to, to_at, len, flags);
        }
        finish(
            check_copy(from, from_at.as_ref(), to, to_at.as_ref(), len, flags)
                .and_then(|len| pump(End::of(from), from_at.as_mut(), End::of(to), to_at.as_mut(), len)),
        )
    }

    fn sendfile(to: c_int, from: c_int, from_at: *mut off_t, len: size_t) -> ssize_t {
        if !table::is_weft(from) && !table::is_weft(to) {
            return real::sendfile(to, from, from_at, len);
        }
        if let Err(error) = check_send(from, from_at.as_ref(), to, len) {
            return fail(error);
        }
        if let Some(file) = table::get(from).filter(|_| len == 0) {
            // Unlike a read of nothing this is an access, and no error whatever it leads to.
            let _ = process::client().and_then(|client| client.note_access(file));
            return 0;
        }
        finish(pump(End::of(from), from_at.as_mut(), End::of(to), None, len))
    }

    fn splice(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: size_t, flags: c_uint) -> ssize_t {
        if !table::is_weft(from) && !table::is_weft(to) {
            return real::splice(from, from_at, to, to_at, len, flags);
        }
        finish(splicing::splice(from, from_at.as_mut(), to, to_at.as_mut(), len, flags))
    }
}

/// What the kernel looks at before `copy_file_range` copies. Returns how much there is to copy: in the same file, what is
/// written does not count.
fn check_copy(
    from: c_int,
    from_at: Option<&i64>,
    to: c_int,
    to_at: Option<&i64>,
    len: size_t,
    flags: c_uint,
) -> Result<size_t, Errno> {
    let client = process::client()?;
    let flags_of = |fd| match table::get(fd) {
        Some(file) => client.flags(file),
        None => sys::fcntl(fd, libc::F_GETFL, 0).map(|flags| flags as i32),
    };
    let modes = (flags_of(from)?, flags_of(to)?);
    if modes.0 & libc::O_PATH != 0 || modes.1 & libc::O_PATH != 0 {
        return Err(libc::EBADF);
    }
    if flags != 0 {
        return Err(libc::EINVAL);
    }
    let kind_of = |fd| {
        let mode = match table::get(fd) {
            Some(file) => client.fstat(file)?.mode,
            None => sys::fstat(fd)?.st_mode,
        };
        Ok::<_, Errno>(mode & libc::S_IFMT)
    };
    let kinds = [kind_of(from)?, kind_of(to)?];
    if kinds.contains(&libc::S_IFDIR) {
        return Err(libc::EISDIR);
    }
    if kinds != [libc::S_IFREG; 2] {
        return Err(libc::EINVAL);
    }
    if !is_readable(modes.0) || !is_writable(modes.1) || modes.1 & libc::O_APPEND != 0 {
        return Err(libc::EBADF);
    }
    // Two file systems; programs then read and write.
    let (Some(from), Some(to)) = (table::get(from), table::get(to)) else { return Err(libc::EXDEV) };
    let attrs = (weft_file::attributes(from)?, weft_file::attributes(to)?);
    let start = |file, at: Option<&i64>| match at {
        Some(at) => Ok(*at),
        None => client.seek(file, 0, libc::SEEK_CUR).map(|at| at as i64),
    };
    let (at, to_at) = (start(from, from_at)?, start(to, to_at)?);
    let wanted = i64::try_from(len).unwrap_or(i64::MAX);
    // The kernel adds without signs, so that what begins in front of the file and reaches into it overflows.
    if [at, to_at].iter().any(|at| (*at as u64).checked_add(len as u64).is_none()) {
        return Err(libc::EOVERFLOW);
    }
    if to_at == i64::MAX {
        return Err(libc::EFBIG);
    }
    // What lies beyond the end is not copied, so it overlaps with nothing.
    let left = (attrs.0.size as i64).saturating_sub(at).clamp(0, wanted);
    if attrs.0.ino == attrs.1.ino && to_at.saturating_add(left) > at && to_at < at.saturating_add(left) {
        return Err(libc::EINVAL);
    }
    if at < 0 || to_at < 0 {
        return Err(libc::EINVAL);
    }
    // As much as fits below the limit is copied, without a signal; when nothing fits, the caller gets SIGXFSZ and EFBIG.
    if file_limit::is_set() {
        file_limit::writable(to, Some(to_at as u64), left as size_t)
    } else {
        Ok(left as size_t)
    }
}

/// What the kernel looks at before `sendfile` sends.
fn check_send(from: c_int, from_at: Option<&off_t>, to: c_int, len: size_t) -> Result<(), Errno> {
    let client = process::client()?;
    let from = match table::get(from) {
        None => {
            sys::fcntl(from, libc::F_GETFD, 0)?;
            None
        }
        file => file,
    };
    if let Some(file) = from
        && !is_readable(client.flags(file)?)
    {
        return Err(libc::EBADF);
    }
    let at = match (from_at, from) {
        (Some(at), _) => *at,
        (None, Some(file)) => client.seek(file, 0, libc::SEEK_CUR).unwrap_or(0) as off_t,
        (None, None) => 0,
    };
    if at < 0 || (at as u64).saturating_add(len as u64) > i64::MAX as u64 {
        return Err(libc::EINVAL);
    }
    match table::get(to) {
        None => drop(sys::fcntl(to, libc::F_GETFD, 0)?),
        Some(file) => {
            let flags = client.flags(file)?;
            if !is_writable(flags) {
                return Err(libc::EBADF);
            }
            if flags & libc::O_APPEND != 0 {
                return Err(libc::EINVAL);
            }
        }
    }
    // Where nothing is sent it does not matter what from.
    if let Some(file) = from
        && len != 0
        && client.fstat(file)?.mode & libc::S_IFMT != libc::S_IFREG
    {
        return Err(libc::EINVAL);
    }
    Ok(())
}
