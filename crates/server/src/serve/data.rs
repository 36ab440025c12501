//! Reading, writing and sizing, for what leases do not cover.

use super::{Ask, Failure, Outcome, done, is_file, open_flags};
use crate::state::inodes::{OpenInode, THROUGH_BYTES};
use crate::state::open_files::OpenFile;
use crate::state::volume::Volume;
use std::sync::atomic::Ordering::*;
use weft_client::proto::{AT_FILE_OFFSET, is_readable, is_writable};
use weft_client::shared::channel::Response;
use weft_core::{BLOCK_BYTES, Ino};
use weft_vfs::{FallocateMode, FileKind, SeekTarget, SetAttr};

/// Largest file, as `off_t` allows.
const SIZE_MAX: u64 = i64::MAX as u64;
/// A mode of `fallocate` that the libc crate does not name.
const FALLOC_FL_WRITE_ZEROES: i32 = 0x80;

fn kind(ask: &Ask<'_>, open: &OpenFile) -> u32 {
    ask.volume.inodes.shared(open.inode.slot).kind.load(Relaxed)
}

fn regular(ask: &Ask<'_>, open: &OpenFile) -> Result<(), Failure> {
    match kind(ask, open) {
        libc::S_IFREG => Ok(()),
        libc::S_IFDIR => Err(Failure(libc::EISDIR)),
        _ => Err(Failure(libc::EINVAL)),
    }
}

pub fn read(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_data(0)?;
    if !is_readable(open_flags(ask, &open)) {
        return Err(Failure(libc::EBADF));
    }
    regular(ask, &open)?;
    let volume = ask.volume;
    let shared = volume.files.shared(open.file);
    let own_offset = ask.arg(1) == AT_FILE_OFFSET;
    let size = volume.inodes.size(&open.inode);
    // The file offset moves first, over all that the caller wants in this and further calls: who shares it reads behind.
    let whole = ask.arg(2).max(ask.arg(5));
    let taken = |offset: u64| whole.min(size.saturating_sub(offset));
    let offset = if own_offset {
        let move_on = |offset: u64| offset.checked_add(taken(offset));
        shared.offset.fetch_update(Relaxed, Relaxed, move_on).unwrap_or_else(|offset| offset)
    } else {
        ask.arg(1)
    };
    let put_back = |n: u64| {
        // A write or a seek may have moved the offset meanwhile; then its word stands.
        if own_offset {
            let _ = shared.offset.compare_exchange(offset + taken(offset), offset + n, Relaxed, Relaxed);
        }
    };
    let read = read_from(ask, &open, offset, size).inspect_err(|_| put_back(0))?;
    if read < ask.arg(2).min(taken(offset)) {
        put_back(read);
    }
    if ask.arg(2) != 0 && ask.arg(4) == 0 && open_flags(ask, &open) & libc::O_NOATIME == 0 {
        volume.inodes.note_read(&open.inode);
    }
    Ok(Response { ret: read as i64, len: read, values: [offset, taken(offset), 0, 0, 0, 0] })
}

fn read_from(ask: &Ask<'_>, open: &OpenFile, offset: u64, size: u64) -> Result<u64, Failure> {
    let volume = ask.volume;
    if ask.arg(3) != 0
        && let Some(core) = volume.block_map()
    {
        volume.maps.fill(core, open.inode.ino, offset / BLOCK_BYTES as u64)?;
    }
    let wanted = ask.arg(2).min(size.saturating_sub(offset)) as usize;
    let out = ask.out(wanted);
    // What the ring holds has to be with the core first. Only then: draining for each read would break up appends.
    if offset + out.len() as u64 > volume.inodes.shared(open.inode.slot).head.load(Acquire) {
        volume.inodes.drain(&open.inode, true)?;
    }
    Ok(volume.fs.read(open.inode.ino, offset, out)? as u64)
}

pub fn write(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_data(0)?;
    if !is_writable(open_flags(ask, &open)) {
        return Err(Failure(libc::EBADF));
    }
    regular(ask, &open)?;
    let mut data = ask.data()?;
    if data.is_empty() {
        return done(0);
    }
    let volume = ask.volume;
    let inode = &open.inode;
    let shared = volume.files.shared(open.file);
    let flags = shared.flags.load(Relaxed) as i32;
    let in_place = ask.arg(2) != 0;
    let own_offset = ask.arg(1) == AT_FILE_OFFSET && !in_place;
    if !in_place && volume.inodes.may_have_set_id(inode) {
        drop_set_id(ask, inode.ino)?;
    }
    let _aside = volume.inodes.set_aside(data.len() as u64);
    // The program stored such bytes to memory long ago and goes on without an answer.
    let remembered = |failure: Failure| {
        if in_place {
            volume.inodes.failed(inode, failure.0);
            volume.leftovers.expect_stores();
        }
        failure
    };
    let Some(guard) = volume.inodes.exclude_writers(inode) else {
        return Err(remembered(Failure(libc::EIO)));
    };
    volume.inodes.drain(inode, true).map_err(|error| remembered(error.into()))?;
    // What came before this write has its times first.
    volume.inodes.pass_times(inode);
    let size = volume.inodes.size(inode);
    let offset = match own_offset {
        _ if in_place => {
            let below = size.saturating_sub(ask.arg(1)).min(data.len() as u64);
            data = &data[..below as usize];
            if data.is_empty() {
                return done(0);
            }
            ask.arg(1)
        }
        // As in Linux, an offset does not keep O_APPEND from appending.
        _ if flags & libc::O_APPEND != 0 => size,
        true => shared.offset.load(Relaxed),
        false => ask.arg(1),
    };
    let merged;
    if in_place && ask.has_part2() {
        merged = over_what_is_there(ask, inode, offset, data).map_err(remembered)?;
        data = &merged;
    }
    let end =
        offset.checked_add(data.len() as u64).filter(|&end| end <= SIZE_MAX).ok_or(Failure(libc::EFBIG))?;
    let written = if data.len() >= THROUGH_BYTES {
        volume.fs.write_through(inode.ino, offset, data)
    } else {
        volume.fs.write(inode.ino, offset, data)
    };
    written.map_err(|error| remembered(error.into()))?;
    if end > size {
        volume.inodes.size_changed(inode, end);
    }
    drop(guard);
    if !in_place {
        volume.leftovers.forget(volume, inode.ino, offset, data.len() as u64);
    }
    if own_offset {
        shared.offset.store(end, Relaxed);
    }
    if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 {
        volume.fs.fsync(inode.ino).map_err(|error| remembered(error.into()))?;
    }
    done(data.len() as i64)
}

/// What the file has, with the bytes of `new` that differ from the second part: whoever stored these has not seen the others.
fn over_what_is_there(ask: &Ask<'_>, inode: &OpenInode, offset: u64, new: &[u8]) -> Result<Vec<u8>, Failure> {
    let old = ask.part2()?;
    let mut there = vec![0; new.len()];
    if old.len() < new.len() {
        return Err(Failure(libc::EINVAL));
    }
    ask.volume.fs.read(inode.ino, offset, &mut there)?;
    for ((there, new), old) in there.iter_mut().zip(new).zip(&old) {
        if new != old {
            *there = *new;
        }
    }
    Ok(there)
}

pub fn lease(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_data(0)?;
    let writable = is_writable(open_flags(ask, &open));
    if ask.volume.direct.is_none() || !ask.connection.process.is_leased() || !writable {
        return done(0);
    }
    done(i64::from(ask.volume.inodes.lease(&open.inode)))
}

pub fn drain(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_file(0)?;
    ask.volume.inodes.drain(&open.inode, false)?;
    ask.volume.inodes.keep_headroom();
    done(0)
}

pub fn fsync(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_data(0)?;
    let volume = ask.volume;
    let drained = volume.inodes.drain(&open.inode, true);
    volume.inodes.pass_times(&open.inode);
    let synced = drained.and_then(|()| {
        let synced = volume.fs.fsync(open.inode.ino);
        synced.inspect_err(|error| volume.inodes.failed(&open.inode, error.errno()))
    });
    // This failure or one before it: each open file hears of it.
    match open.inode.failures.tell(&open.heard) {
        Some(errno) => Err(Failure(errno)),
        None => Ok(synced.map(|()| Response::default())?),
    }
}

/// `sync`; and `syncfs`, which names a file and hears of what failed on the volume.
pub fn sync(ask: &Ask<'_>) -> Outcome {
    let volume = ask.volume;
    let open = if ask.arg(0) == 0 { None } else { Some(ask.open_data(1)?) };
    volume.drain_all();
    let synced = volume.fs.sync();
    if let Err(error) = &synced {
        volume.inodes.all_failed(error.errno());
    }
    match open.and_then(|open| volume.inodes.failures.tell(&open.heard_of_volume)) {
        Some(errno) => Err(Failure(errno)),
        None => Ok(synced.map(|()| Response::default())?),
    }
}

/// Before the caller changes a file's content: what ran as its owner must not run what others wrote.
fn drop_set_id(ask: &Ask<'_>, ino: Ino) -> Result<(), Failure> {
    let volume = ask.volume;
    let alone = volume.permissions.write();
    let Some(perm) = ask.identity.cred.perm_after_write(&volume.fs.getattr(ino)?) else { return Ok(()) };
    volume.fs.setattr(ino, &SetAttr { perm: Some(perm), ..SetAttr::default() })?;
    let to_rob = volume.inodes.perm_changed(ino, perm);
    drop(alone);
    if let Some(open) = to_rob {
        volume.inodes.take_ring_back(&open);
    }
    Ok(())
}

/// Sets a file's size, open or not.
pub(crate) fn set_size(ask: &Ask<'_>, ino: Ino, size: u64) -> Result<(), Failure> {
    let volume = ask.volume;
    if size > SIZE_MAX {
        return Err(Failure(libc::EFBIG));
    }
    // Open while it happens, so that neither an open nor a last close comes between the core's size and the shared one.
    volume.fs.open(ino)?;
    let attr = match volume.fs.getattr(ino) {
        Ok(attr) => attr,
        Err(error) => {
            volume.fs.release(ino);
            return Err(error.into());
        }
    };
    let open = volume.inodes.acquire(&attr)?;
    let dropped = if volume.inodes.may_have_set_id(&open) { drop_set_id(ask, ino) } else { Ok(()) };
    let result = dropped.and_then(|()| set_open_size(volume, &open, size));
    if result.is_ok() {
        volume.leftovers.forget(volume, ino, size, u64::MAX);
    }
    volume.inodes.release(&open, None);
    result
}

fn set_open_size(volume: &Volume, open: &OpenInode, size: u64) -> Result<(), Failure> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    let Some(_guard) = volume.inodes.exclude_writers(open) else { return Err(Failure(libc::EIO)) };
    volume.inodes.drain(open, true)?;
    volume.inodes.pass_times(open);
    volume.fs.setattr(open.ino, &set)?;
    volume.inodes.size_changed(open, size);
    Ok(())
}

pub fn fallocate(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_data(0)?;
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    let bits = ask.arg(1) as i32;
    let mode = match bits {
        0 => Some(FallocateMode::Allocate),
        _ if bits == keep => Some(FallocateMode::KeepSize),
        _ if bits == libc::FALLOC_FL_PUNCH_HOLE | keep => Some(FallocateMode::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Some(FallocateMode::ZeroRange { keep_size: false }),
        _ if bits == libc::FALLOC_FL_ZERO_RANGE | keep => Some(FallocateMode::ZeroRange { keep_size: true }),
        libc::FALLOC_FL_COLLAPSE_RANGE => Some(FallocateMode::CollapseRange),
        libc::FALLOC_FL_INSERT_RANGE => Some(FallocateMode::InsertRange),
        // Linux knows them, but not of each file system.
        libc::FALLOC_FL_UNSHARE_RANGE | FALLOC_FL_WRITE_ZEROES => None,
        _ if bits == libc::FALLOC_FL_UNSHARE_RANGE | keep => None,
        _ => return Err(Failure(libc::EOPNOTSUPP)),
    };
    if !is_writable(open_flags(ask, &open)) {
        return Err(Failure(libc::EBADF));
    }
    regular(ask, &open)?;
    let mode = mode.ok_or(Failure(libc::EOPNOTSUPP))?;
    let (offset, len) = (ask.arg(2), ask.arg(3));
    let volume = ask.volume;
    let inode = &open.inode;
    if volume.inodes.may_have_set_id(inode) {
        drop_set_id(ask, inode.ino)?;
    }
    let takes = !matches!(mode, FallocateMode::PunchHole | FallocateMode::CollapseRange);
    // More than there is would be refused; rings need not go for that.
    let _aside = takes.then(|| {
        volume.inodes.set_aside(if len <= volume.fs.statfs().map_or(0, |s| s.free_bytes) { len } else { 0 })
    });
    let Some(guard) = volume.inodes.exclude_writers(inode) else { return Err(Failure(libc::EIO)) };
    volume.inodes.drain(inode, true)?;
    volume.inodes.pass_times(inode);
    volume.fs.fallocate(inode.ino, mode, offset, len)?;
    let size = volume.fs.getattr(inode.ino)?.size;
    volume.inodes.size_changed(inode, size);
    drop(guard);
    match mode {
        FallocateMode::Allocate | FallocateMode::KeepSize => {}
        FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => {
            volume.leftovers.forget(volume, inode.ino, offset, len);
        }
        FallocateMode::CollapseRange | FallocateMode::InsertRange => {
            volume.leftovers.forget(volume, inode.ino, offset, u64::MAX);
        }
    }
    done(0)
}

pub fn seek(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_data(0)?;
    let volume = ask.volume;
    let shared = volume.files.shared(open.file);
    let offset = ask.arg(1) as i64;
    let size = volume.inodes.size(&open.inode);
    let target = match ask.arg(2) as i32 {
        libc::SEEK_SET => offset,
        libc::SEEK_CUR => {
            (shared.offset.load(Relaxed) as i64).checked_add(offset).ok_or(Failure(libc::EOVERFLOW))?
        }
        libc::SEEK_END => (size as i64).checked_add(offset).ok_or(Failure(libc::EOVERFLOW))?,
        whence @ (libc::SEEK_DATA | libc::SEEK_HOLE) => {
            regular(ask, &open)?;
            if offset < 0 || offset as u64 >= size {
                return Err(Failure(libc::ENXIO));
            }
            volume.inodes.drain(&open.inode, true)?;
            let target = if whence == libc::SEEK_DATA { SeekTarget::Data } else { SeekTarget::Hole };
            volume.fs.seek(open.inode.ino, offset as u64, target)? as i64
        }
        _ => return Err(Failure(libc::EINVAL)),
    };
    if target < 0 {
        return Err(Failure(libc::EINVAL));
    }
    if ask.arg(3) == 0 {
        shared.offset.store(target as u64, Relaxed);
    }
    done(target)
}

/// Hands what an inode's ring holds to the core when somebody is about to look at it by name.
pub(crate) fn settle(volume: &Volume, ino: Ino, kind: FileKind) -> Result<(), Failure> {
    if is_file(kind)
        && let Some(open) = volume.inodes.find(ino)
    {
        volume.inodes.drain(&open, true)?;
        volume.inodes.pass_times(&open);
    }
    Ok(())
}
