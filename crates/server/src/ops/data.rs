//! Reading, writing, syncing and sizing, as far as leases do not cover them.

use super::Error::Errno;
use super::{Error, Result, Session, is_file};
use crate::state::inodes::{Arrival, CAPABILITIES, LongGuard, OpenInode, THROUGH_BYTES};
use crate::state::open_files::OpenFile;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use weft_client::FileRef;
use weft_client::proto::{is_readable, is_writable};
use weft_client::shared::volume::{Durable, FIRST_BLOCKS};
use weft_core::{BLOCK_BYTES, Ino, refuse};
use weft_vfs::{Access, FallocateMode, FileKind, FsResult, InodeFlags, SeekTarget, SetAttr};

/// Largest file, as `off_t` allows.
const SIZE_MAX: u64 = i64::MAX as u64;
/// A mode of `fallocate` that the libc crate does not name.
const FALLOC_FL_WRITE_ZEROES: i32 = 0x80;

/// What is read, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    /// Where; `None` at the open file's own offset, which advances.
    pub offset: Option<u64>,
    /// Bytes that the caller wants by this and further calls: so far the open file's offset moves. Not less than this call's.
    pub whole: u64,
    /// The block map of what is read is filled in, and what the core still buffers is copied to where the map leads, for a client
    /// that reads by itself.
    pub fills_map: bool,
    /// The read is no access: the time of the last one stays.
    pub quiet: bool,
}

/// What has been read.
#[derive(Clone, Copy, Debug)]
pub struct ReadDone {
    /// Bytes in the caller's buffer.
    pub len: usize,
    /// Where they begin in the file.
    pub offset: u64,
    /// How far the open file's offset moves.
    pub taken: u64,
}

/// What of an inode has been made durable.
#[derive(Clone, Copy)]
pub(super) struct Synced {
    /// The word of its shared inode before.
    word: Durable,
    /// Bytes from the beginning of the file.
    stored: u64,
}

/// Where bytes are written.
#[derive(Clone, Copy, Debug)]
pub enum Position<'a> {
    /// At the open file's own offset, which advances.
    FileOffset,
    /// At an offset; with `O_APPEND` at the end, as in Linux.
    At(u64),
    /// What the kernel of a mount has kept: at an offset. The kernel has seen to times, set-id bits and capabilities when a program
    /// wrote it, and asks for the flush of a file that is open with `O_SYNC`.
    Kept(u64),
    /// To a shared map: at an offset even with `O_APPEND`, and only what lies below the file's end.
    InPlace {
        /// First byte of the file.
        offset: u64,
        /// Given: what the map held before. Only bytes that differ from it are written.
        old: Option<&'a [u8]>,
    },
}

/// Tries of a read between steps that change the file.
const STEPS_MAX: u32 = 16;

/// Bytes of a piece of a long write, but for its last one.
const LONG_PIECE_MIN: usize = 4096;

/// A piece of a write in several pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LongPiece {
    /// It begins: nobody else writes to the file until the last piece, an error, or a piece that is taken in part.
    First {
        /// Its thread, as the process numbers it.
        thread: u32,
    },
    /// It goes on.
    Next,
    /// It ends.
    Last,
    /// The process keeps others out by itself.
    Held,
}

impl Session<'_> {
    pub(super) fn regular(&self, open: &OpenFile) -> Result<()> {
        match self.volume.inodes.shared(open.inode.slot).kind.load(Relaxed) {
            libc::S_IFREG => Ok(()),
            libc::S_IFDIR => Err(Errno(libc::EISDIR)),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// Reads to `out`.
    pub fn read(&self, file: FileRef, read: Read, out: &mut [u8]) -> Result<ReadDone> {
        let open = self.open_data(file)?;
        let flags = self.open_flags(&open);
        refuse(!is_readable(flags), Errno(libc::EBADF))?;
        self.regular(&open)?;
        for _ in 0..STEPS_MAX {
            if let Some(done) = self.read_between_steps(&open, read, out)? {
                return Ok(done);
            }
        }
        // Step comes after step: this read comes between two.
        let _alone = self.alone_with(&open.inode)?;
        self.read_between_steps(&open, read, out)?.ok_or(Errno(libc::EIO))
    }

    /// The same; `None` when a step has come meanwhile, of which half may have been read.
    fn read_between_steps(&self, open: &OpenFile, read: Read, out: &mut [u8]) -> Result<Option<ReadDone>> {
        let volume = self.volume;
        let step = volume.inodes.await_step(&open.inode);
        let shared = volume.files.shared(open.file);
        let size = volume.inodes.size(&open.inode);
        // The file offset moves first, over all that the caller wants in this and further calls: who shares it reads behind.
        let whole = read.whole.max(out.len() as u64);
        let taken = |offset: u64| whole.min(size.saturating_sub(offset));
        let offset = read.offset.unwrap_or_else(|| {
            let move_on = |offset: u64| offset.checked_add(taken(offset));
            shared.offset.fetch_update(Relaxed, Relaxed, move_on).unwrap_or_else(|offset| offset)
        });
        let put_back = |n: u64| {
            // A write or a seek may have moved the offset meanwhile; then its word stands.
            if read.offset.is_none() {
                let _ = shared.offset.compare_exchange(offset + taken(offset), offset + n, Relaxed, Relaxed);
            }
        };
        let is_access = !out.is_empty() && !read.quiet;
        let wanted = (out.len() as u64).min(size.saturating_sub(offset));
        let out = &mut out[..wanted as usize];
        let len = self.read_from(open, read, offset, out).inspect_err(|_| put_back(0))?;
        if volume.inodes.has_stepped(&open.inode, step) {
            put_back(0);
            return Ok(None);
        }
        if (len as u64) < wanted {
            put_back(len as u64);
        }
        let is_quiet = open.inode.flags().contains(InodeFlags::NO_ATIME);
        if is_access && !is_quiet && self.open_flags(open) & libc::O_NOATIME == 0 {
            volume.inodes.note_read(&open.inode);
        }
        Ok(Some(ReadDone { len, offset, taken: taken(offset) }))
    }

    fn read_from(&self, open: &OpenFile, read: Read, offset: u64, out: &mut [u8]) -> Result<usize> {
        let volume = self.volume;
        if read.fills_map {
            self.fill_map(&open.inode, offset / BLOCK_BYTES as u64)?;
        }
        // What the ring holds has to be with the core first. Only then: draining for each read would break up appends.
        let end = offset + out.len() as u64;
        let is_in_ring = end > volume.inodes.shared(open.inode.slot).head.load(Acquire);
        let blocks = offset / BLOCK_BYTES as u64..=end / BLOCK_BYTES as u64;
        if is_in_ring || volume.inodes.has_overwritten(&open.inode, blocks) {
            volume.inodes.drain(&open.inode, true)?;
        }
        let len = volume.fs.read(open.inode.ino, offset, out)?;
        if read.fills_map && len > 0 {
            for block in offset / BLOCK_BYTES as u64..=(offset + len as u64 - 1) / BLOCK_BYTES as u64 {
                volume.maps.copy(&*volume.fs, open.inode.ino, block)?;
            }
        }
        Ok(len)
    }

    /// Publishes where the blocks around this one of a file are.
    fn fill_map(&self, inode: &OpenInode, block: u64) -> Result<()> {
        let volume = self.volume;
        let Some(core) = volume.block_map() else { return Ok(()) };
        // The chunk of a small file would be empty but for what is with the inode.
        if volume.inodes.size(inode) <= (FIRST_BLOCKS * BLOCK_BYTES) as u64 {
            volume.maps.fill_first(core, inode.ino)?;
        } else {
            volume.maps.fill(core, inode.ino, block)?;
        }
        Ok(())
    }

    /// Publishes what is in the blocks that a range begins and ends in: whoever overwrites parts of them by itself needs the rest.
    fn publish_ends(&self, inode: &OpenInode, range: Range<u64>) {
        let ends = [range.start, range.end].map(|at| (!at.is_multiple_of(BLOCK_BYTES as u64)).then_some(at));
        ends.into_iter().flatten().for_each(|at| self.publish_block(inode, at / BLOCK_BYTES as u64));
    }

    fn publish_block(&self, inode: &OpenInode, block: u64) {
        let published = self
            .fill_map(inode, block)
            .and_then(|()| Ok(self.volume.maps.copy(&*self.volume.fs, inode.ino, block)?));
        if let Err(error) = published {
            tracing::debug!(ino = inode.ino.0, block, %error, "the block is not published");
        }
    }

    /// A program has written a range. If its client might have done so by itself, it can the next time.
    pub(super) fn written_by_program(&self, inode: &Arc<OpenInode>, range: &Range<u64>) {
        let block = range.start / BLOCK_BYTES as u64;
        if range.is_empty() || !self.may_lease() {
            return;
        }
        if range.end == self.volume.inodes.size(inode) {
            self.volume.inodes.lease(inode);
        }
        if (range.end - 1) / BLOCK_BYTES as u64 != block {
            return;
        }
        self.volume.inodes.overwritten(inode, range.end);
        if self.volume.inodes.has_area(inode) {
            self.publish_block(inode, block);
        }
    }

    /// Writes `data`; returns how much of it.
    pub fn write(&self, file: FileRef, position: Position<'_>, data: &[u8]) -> Result<usize> {
        self.write_part(&*self.open_data(file)?, position, data, false)
    }

    /// Writes a piece of a long write, which others do not get between.
    pub fn write_long(
        &self,
        file: FileRef,
        position: Position<'_>,
        data: &[u8],
        piece: LongPiece,
    ) -> Result<usize> {
        let (process, holder) = (self.process, self.process.id + 1);
        // Whatever comes of this piece: the write ends with it, unless more is to come.
        let open = self.open_data(file);
        let slot = match (&open, piece) {
            (Ok(open), _) => open.inode.slot,
            // Another thread has closed the file.
            (Err(_), LongPiece::Next | LongPiece::Last) => match process.long_write.swap(0, Relaxed) {
                0 => return Err(Errno(libc::EBADF)),
                slot => slot - 1,
            },
            (Err(_), _) => return Err(Errno(libc::EBADF)),
        };
        let inode = self.volume.inodes.shared(slot);
        if let LongPiece::First { thread } = piece {
            while !self.volume.inodes.exclude_long(slot, holder, || process.is_ending()) {
                self.check_lives()?;
            }
            inode.long_thread.store(thread, SeqCst);
        }
        let guard = (piece != LongPiece::Held).then(|| LongGuard { inode, holder });
        let open = open?;
        inode.long_pieces.fetch_add(1, Relaxed);
        let written = self.write_part(&open, position, data, true)?;
        let goes_on = matches!(piece, LongPiece::First { .. } | LongPiece::Next);
        // Nobody keeps others out by pieces of next to nothing.
        if goes_on && written == data.len() && written >= LONG_PIECE_MIN {
            process.long_write.store(open.inode.slot + 1, Relaxed);
            std::mem::forget(guard);
        }
        Ok(written)
    }

    fn write_part(
        &self,
        open: &OpenFile,
        position: Position<'_>,
        data: &[u8],
        is_long: bool,
    ) -> Result<usize> {
        let flags = self.open_flags(open);
        refuse(!is_writable(flags), Errno(libc::EBADF))?;
        self.regular(open)?;
        if data.is_empty() {
            return Ok(0);
        }
        let (volume, inode) = (self.volume, &open.inode);
        let in_place = matches!(position, Position::InPlace { .. });
        let is_kept = matches!(position, Position::Kept(_));
        if !in_place && !is_kept {
            self.check_not_immutable(inode)?;
            self.drop_set_id(inode)?;
        }
        // A map of a file that is for appends by now overwrites nothing.
        let is_refused = in_place && inode.flags().contains(InodeFlags::APPEND);
        // A program stored to its map long ago, and goes on without an answer.
        let remember = |error: &Error| {
            if let (true, Errno(errno)) = (in_place, *error) {
                volume.inodes.failed(inode, errno);
                volume.orphans.expect_stores();
            }
        };
        refuse(is_refused, Errno(libc::EPERM)).inspect_err(remember)?;
        let begins = match position {
            Position::InPlace { offset, .. } | Position::Kept(offset) => offset,
            _ if flags & libc::O_APPEND != 0 => u64::MAX,
            Position::FileOffset => volume.files.shared(open.file).offset.load(Relaxed),
            Position::At(offset) => offset,
        };
        if begins < volume.inodes.size(inode) {
            volume.inodes.before_rewrite(inode).map_err(Error::from).inspect_err(remember)?;
        }
        let (offset, len) = self.write_alone(open, (flags, is_long), position, data).inspect_err(remember)?;
        if !in_place {
            volume.orphans.forget(volume, inode.ino, offset, len as u64);
        }
        if let Position::FileOffset = position {
            volume.files.shared(open.file).offset.store(offset + len as u64, Relaxed);
        }
        if !in_place && len < THROUGH_BYTES && flags & libc::O_APPEND == 0 && self.may_lease() {
            let end = offset + len as u64;
            volume.inodes.overwritten(inode, end);
            if volume.inodes.has_area(inode) {
                self.publish_ends(inode, offset..end);
            }
        }
        let is_sync = flags & (libc::O_SYNC | libc::O_DSYNC) != 0 || inode.flags().contains(InodeFlags::SYNC);
        if is_sync && len != 0 && !is_kept {
            // What fails is remembered there.
            self.make_durable(open)?;
        }
        Ok(len)
    }

    /// Writes while no client appends. Returns where the bytes are, and how many.
    fn write_alone(
        &self,
        open: &OpenFile,
        (flags, is_long): (i32, bool),
        position: Position<'_>,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        let (volume, inode) = (self.volume, &open.inode);
        let _reserved = volume.inodes.reserve(data.len() as u64);
        // What came before this write has its times first.
        let _guard = self.alone_in(inode, is_long)?;
        let size = volume.inodes.size(inode);
        let merged;
        let mut data = data;
        let offset = match position {
            Position::InPlace { offset, old } => {
                data = &data[..size.saturating_sub(offset).min(data.len() as u64) as usize];
                if data.is_empty() {
                    return Ok((offset, 0));
                }
                if let Some(old) = old {
                    merged = self.over_what_is_there(inode, offset, data, old)?;
                    data = &merged;
                }
                offset
            }
            Position::Kept(offset) => offset,
            // As in Linux, an offset does not keep O_APPEND from appending.
            _ if flags & libc::O_APPEND != 0 => size,
            Position::FileOffset => volume.files.shared(open.file).offset.load(Relaxed),
            Position::At(offset) => offset,
        };
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= SIZE_MAX);
        let end = end.ok_or(Errno(libc::EFBIG))?;
        if offset < size || volume.inodes.appends_rewrite() {
            volume.inodes.before_rewrite(inode)?;
        }
        let arrival = match position {
            // The kernel keeps the times, and says what they are when it has changed them.
            Position::Kept(_) => Arrival::Late(volume.fs.getattr(inode.ino)?.mtime),
            _ => Arrival::Now,
        };
        volume.inodes.write_to_core(inode.ino, offset, data, arrival)?;
        if end > size {
            volume.inodes.size_changed(inode, end);
        }
        Ok((offset, data.len()))
    }

    /// What the file has, with the bytes of `new` that differ from `old`: whoever stored these has not seen the others.
    fn over_what_is_there(&self, inode: &OpenInode, offset: u64, new: &[u8], old: &[u8]) -> Result<Vec<u8>> {
        let mut there = vec![0; new.len()];
        refuse(old.len() < new.len(), Errno(libc::EINVAL))?;
        self.volume.fs.read(inode.ino, offset, &mut there)?;
        for ((there, new), old) in there.iter_mut().zip(new).zip(old) {
            if new != old {
                *there = *new;
            }
        }
        Ok(there)
    }

    /// Publishes where the first blocks of a file are.
    pub(super) fn fill_first(&self, inode: &OpenInode) {
        let Some(core) = self.volume.block_map() else { return };
        if let Err(error) = self.volume.maps.fill_first(core, inode.ino) {
            tracing::debug!(ino = inode.ino.0, %error, "its blocks are not published");
        }
    }

    /// Whether the process may have memory to write to.
    pub(super) fn may_lease(&self) -> bool {
        self.volume.direct.is_some() && self.process.is_leased()
    }

    /// Gives the file an append ring, when the process may have one: then it appends without the server.
    pub fn lease(&self, file: FileRef) -> Result<bool> {
        let open = self.open_data(file)?;
        Ok(self.may_lease() && is_writable(self.open_flags(&open)) && self.volume.inodes.lease(&open.inode))
    }

    /// Hands whole blocks of the file's ring to the core, so that it has room.
    pub fn drain(&self, file: FileRef) -> Result<()> {
        let open = self.open_file(file)?;
        self.volume.inodes.drain(&open.inode, false)?;
        self.volume.inodes.keep_headroom();
        Ok(())
    }

    /// Makes a file durable. Fails, once for each open file, when bytes that were accepted before could not be stored.
    pub fn fsync(&self, file: FileRef) -> Result<()> {
        self.make_durable(&*self.open_data(file)?)
    }

    fn make_durable(&self, open: &OpenFile) -> Result<()> {
        let synced = self.sync_inode(&open.inode);
        // This error or one before it: each open file reports it.
        match open.inode.errors.check_and_advance(&open.errors_seen) {
            Some(errno) => Err(Errno(errno)),
            None => {
                self.grant_sync(&open.inode, synced?);
                Ok(())
            }
        }
    }

    /// Makes an open inode durable, with all that clients have written before; what [`grant_sync`](Self::grant_sync) is to be told.
    pub(super) fn sync_inode(&self, inode: &OpenInode) -> FsResult<Synced> {
        let inodes = &self.volume.inodes;
        let drained = inodes.drain(inode, true);
        // What changes from here on changes the word as well.
        let (word, stored) = inodes.durable_and_stored(inode);
        inodes.pass_times(inode);
        drained?;
        inodes.fsync(inode).inspect_err(|error| inodes.failed(inode, error.errno()))?;
        Ok(Synced { word, stored })
    }

    /// From here on, the clients of an inode that has been made durable go on by themselves.
    pub(super) fn grant_sync(&self, inode: &OpenInode, synced: Synced) {
        if let (Some(log), true) = (self.volume.inodes.log(), self.may_lease()) {
            log.grant(self.volume, inode, synced.word, synced.stored);
        }
    }

    /// Publishes the blocks of a range of a file, so that whoever reads them next makes no call.
    pub(super) fn publish(&self, inode: &OpenInode, range: Range<u64>) {
        let volume = self.volume;
        let mut blocks = range.start / BLOCK_BYTES as u64..range.end.div_ceil(BLOCK_BYTES as u64);
        if let Err(error) = blocks.try_for_each(|block| volume.maps.copy(&*volume.fs, inode.ino, block)) {
            tracing::debug!(ino = inode.ino.0, %error, "blocks are not published");
        }
    }

    /// Makes everything durable: `sync`; and `syncfs`, which names a file and reports write-back errors of the volume.
    pub fn sync(&self, file: Option<FileRef>) -> Result<()> {
        let volume = self.volume;
        let open = file.map(|file| self.open_data(file)).transpose()?;
        volume.drain_all();
        let synced = volume.inodes.sync();
        if let Err(error) = &synced {
            volume.inodes.all_failed(error.errno());
        }
        match open.and_then(|open| volume.inodes.errors.check_and_advance(&open.volume_errors_seen)) {
            Some(errno) => Err(Errno(errno)),
            None => Ok(synced?),
        }
    }

    /// Before the caller changes a file's content: what ran as its owner must not run what others wrote.
    fn drop_set_id(&self, open: &OpenInode) -> Result<()> {
        let (volume, ino) = (self.volume, open.ino);
        if !volume.inodes.may_have_set_id(open) {
            return Ok(());
        }
        let lock_pages = self.alone()?;
        let attr = volume.fs.getattr(ino)?;
        // As in Linux, capabilities go whoever writes.
        let dropped = self.drop_capabilities(ino)?;
        let perm = self.cred().perm_after_write(&attr);
        if perm.is_none() && !dropped {
            return Ok(());
        }
        if perm.is_some() {
            volume.fs.setattr(ino, &SetAttr { perm, ..SetAttr::default() })?;
        }
        volume.inodes.must_ask_for_sync(ino);
        let to_revoke = volume.inodes.perm_changed(ino, perm.unwrap_or(attr.perm));
        drop(lock_pages);
        if let Some(open) = to_revoke {
            volume.inodes.revoke_rings(&open);
        }
        Ok(())
    }

    /// Bytes of an open file were changed by a caller who does not know the pages that maps of it show.
    pub fn show_in_maps(&self, file: FileRef, changed: Range<u64>) -> Result<()> {
        let open = self.open_data(file)?;
        self.volume.orphans.show(self.volume, &open.inode, changed);
        Ok(())
    }

    /// Takes away what a program may do beside what its user may; whether it had anything.
    pub(super) fn drop_capabilities(&self, ino: Ino) -> Result<bool> {
        let had = self.volume.fs.getxattr(ino, CAPABILITIES).is_ok();
        if had {
            self.volume.fs.removexattr(ino, CAPABILITIES)?;
        }
        Ok(had)
    }

    /// Sets a file's size, open or not. `knows_pages`: the caller changes those that maps show by itself.
    pub(super) fn set_size(&self, ino: Ino, size: u64, knows_pages: bool) -> Result<()> {
        let volume = self.volume;
        refuse(size > SIZE_MAX, Errno(libc::EFBIG))?;
        // Open while it happens, so that neither an open nor a last close comes between the core's size and the shared one.
        let open = volume.inodes.open(ino)?;
        let result = self.drop_set_id(&open).and_then(|()| self.set_open_size(&open, size));
        if result.is_ok() {
            volume.orphans.forget(volume, ino, size, u64::MAX);
            if !knows_pages {
                volume.orphans.show(volume, &open, size..size);
            }
        }
        volume.inodes.release(&open, None);
        result
    }

    fn set_open_size(&self, open: &OpenInode, size: u64) -> Result<()> {
        let inodes = &self.volume.inodes;
        if size < inodes.size(open) {
            inodes.before_rewrite(open)?;
        }
        let _guard = self.alone_with(open)?;
        if size < inodes.size(open) {
            inodes.before_rewrite(open)?;
        }
        let replaces = size == 0 && inodes.size(open) > 0;
        self.volume.fs.setattr(open.ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        inodes.size_changed(open, size);
        if replaces {
            inodes.content_replaced(open);
        }
        Ok(())
    }

    /// Allocates, frees, zeroes, takes out or puts in a range; `mode` is that of the system call.
    pub fn fallocate(&self, file: FileRef, mode: i32, offset: u64, len: u64) -> Result<()> {
        let open = self.open_data(file)?;
        let bits = mode;
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let mode = match bits {
            0 => Some(FallocateMode::Allocate),
            _ if bits == keep => Some(FallocateMode::KeepSize),
            _ if bits == libc::FALLOC_FL_PUNCH_HOLE | keep => Some(FallocateMode::PunchHole),
            libc::FALLOC_FL_ZERO_RANGE => Some(FallocateMode::ZeroRange { keep_size: false }),
            _ if bits == libc::FALLOC_FL_ZERO_RANGE | keep => {
                Some(FallocateMode::ZeroRange { keep_size: true })
            }
            libc::FALLOC_FL_COLLAPSE_RANGE => Some(FallocateMode::CollapseRange),
            libc::FALLOC_FL_INSERT_RANGE => Some(FallocateMode::InsertRange),
            // Linux knows them, but not of each file system.
            libc::FALLOC_FL_UNSHARE_RANGE | FALLOC_FL_WRITE_ZEROES => None,
            _ if bits == libc::FALLOC_FL_UNSHARE_RANGE | keep => None,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        refuse(!is_writable(self.open_flags(&open)), Errno(libc::EBADF))?;
        self.regular(&open)?;
        let mode = mode.ok_or(Errno(libc::EOPNOTSUPP))?;
        let volume = self.volume;
        let inode = &open.inode;
        let is_for_appends = inode.flags().contains(InodeFlags::APPEND);
        refuse(is_for_appends && bits & !keep != 0, Errno(libc::EPERM))?;
        self.check_not_immutable(inode)?;
        self.drop_set_id(inode)?;
        let takes = !matches!(mode, FallocateMode::PunchHole | FallocateMode::CollapseRange);
        // More than there is would be refused; rings need not go for that.
        let _reserved = takes.then(|| {
            volume.inodes.reserve(if len <= volume.fs.statfs().map_or(0, |s| s.free_bytes) { len } else { 0 })
        });
        let rewrites = !matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize);
        if rewrites {
            volume.inodes.before_rewrite(inode)?;
        }
        let guard = self.alone_with(inode)?;
        if rewrites {
            volume.inodes.before_rewrite(inode)?;
        }
        volume.fs.fallocate(inode.ino, mode, offset, len)?;
        let size = volume.fs.getattr(inode.ino)?.size;
        volume.inodes.size_changed(inode, size);
        drop(guard);
        match mode {
            FallocateMode::Allocate | FallocateMode::KeepSize => {}
            FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => {
                volume.orphans.forget(volume, inode.ino, offset, len);
            }
            FallocateMode::CollapseRange | FallocateMode::InsertRange => {
                volume.orphans.forget(volume, inode.ino, offset, u64::MAX);
            }
        }
        Ok(())
    }

    /// Where `offset` and `whence` lead; the open file's own offset moves there, unless `looks` only.
    pub fn seek(&self, file: FileRef, offset: i64, whence: i32, looks: bool) -> Result<u64> {
        let open = self.open_data(file)?;
        let volume = self.volume;
        let shared = volume.files.shared(open.file);
        volume.inodes.await_step(&open.inode);
        let size = volume.inodes.size(&open.inode);
        let from = |base: u64| (base as i64).checked_add(offset).ok_or(Errno(libc::EOVERFLOW));
        let target = match whence {
            libc::SEEK_SET => offset,
            libc::SEEK_CUR => from(shared.offset.load(Relaxed))?,
            libc::SEEK_END => from(size)?,
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                self.regular(&open)?;
                refuse(offset < 0 || offset as u64 >= size, Errno(libc::ENXIO))?;
                volume.inodes.drain(&open.inode, true)?;
                let target = if whence == libc::SEEK_DATA { SeekTarget::Data } else { SeekTarget::Hole };
                volume.fs.seek(open.inode.ino, offset as u64, target)? as i64
            }
            _ => return Err(Errno(libc::EINVAL)),
        };
        let target = u64::try_from(target).map_err(|_| Errno(libc::EINVAL))?;
        if !looks {
            shared.offset.store(target, Relaxed);
        }
        Ok(target)
    }

    /// Hands what an inode's ring holds to the core when somebody is about to look at it by name.
    pub(super) fn settle(&self, ino: Ino, kind: FileKind) -> Result<()> {
        if is_file(kind)
            && let Some(open) = self.volume.inodes.find(ino)
        {
            self.volume.inodes.drain(&open, true)?;
            self.volume.inodes.pass_times(&open);
        }
        Ok(())
    }
}
