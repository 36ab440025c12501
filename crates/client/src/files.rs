//! Operations on open files.

use crate::busy::{self, Busy};
use crate::client::{Client, OpenFile};
use crate::lease::{LeaseRead, Written};
use crate::names::{self, LockRange};
use crate::proto::{ASK_AGAIN, AT_FILE_OFFSET, FileRef, LONG_BEGINS, Op, WireAttr, is_readable, is_writable};
use crate::shared::channel::PAYLOAD_BYTES;
use crate::shared::volume::{MAPPED, RING_BYTES};
use crate::stepping::{Point, step};
use crate::sys::{self, Errno};
use std::sync::atomic::{AtomicU64, Ordering::*, fence};
use weft_core::refuse;

/// Most bytes of one read or write call, as in Linux.
const TRANSFER_MAX: usize = 0x7fff_f000;
/// A thread that waits for a lock looks this often whether the server still lives.
const LOCK_WAIT_NS: u64 = 100_000_000;
/// Sleeps after which a thread asks for its lock though nobody has told it to: one of its process whose turn it was may have been killed
/// or stopped alone.
const LOCK_SLEEPS: u32 = 20;
/// Where no file has a byte.
const BEYOND_ANY: u64 = i64::MAX as u64 - 1;
/// Parts of a vectored write that are one write, as in Linux.
const PARTS_MAX: usize = 1024;

/// Whether a transfer goes beyond what an offset can say: as in Linux, that is refused whatever the file holds.
pub(crate) fn ends_nowhere(offset: u64, len: usize) -> bool {
    offset.checked_add(len as u64).is_none_or(|end| end > i64::MAX as u64)
}

/// Waits for a lock by `act`. As in Linux a signal takes the thread out of the queue, then its handler runs (and may not come
/// back), then the wait begins anew if the handler wants that.
fn waiting<T>(act: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        let busy = Busy::new();
        let result = act();
        let restarts = busy::put_off() == Some(true);
        drop(busy);
        match result {
            Err(libc::EINTR) if restarts => {}
            result => return result,
        }
    }
}

impl Client {
    /// Opens (and with `O_CREAT` creates) a file. `mode` may hold a [umask](crate::proto::with_umask).
    pub fn open(&self, at: FileRef, path: &[u8], flags: i32, mode: u32) -> Result<OpenFile, Errno> {
        if let Some(done) = self.open_here(at, path, flags) {
            return done;
        }
        let mut name = [0; 16];
        let answer = self
            .call(Op::Open, &[at.0, flags as u32 as u64, u64::from(mode), u64::from(sys::gettid())])?
            .part1(path)?
            .part2(sys::thread_name(&mut name))?
            .run()?;
        Ok(OpenFile { file: FileRef(answer.response.values[0]), mode: answer.response.values[2] as u32 })
    }

    /// Gives back the reference of a descriptor that is closed, which the caller does not use any more. The server may hear of it
    /// later: unless something is to be stored, there is no call, and nothing is said of a reference that was not held.
    pub fn close(&self, file: FileRef) -> Result<(), Errno> {
        if let Some(closed) = self.close_duplicate(file) {
            return closed;
        }
        if self.close_here(file) || self.close_later(file) {
            return Ok(());
        }
        self.call(Op::Close, &[file.0])?.run().map(drop)
    }

    /// Leaves a reference in the channel, where the server finds it when there is more to do; false where somebody could miss it
    /// meanwhile.
    fn close_later(&self, file: FileRef) -> bool {
        let Some(leases) = self.leases() else { return false };
        let Ok((open, inode, _)) = leases.open_file(file) else { return false };
        // The server may fail to store what it has not taken yet, and then says so to whoever closes the file.
        let has_taken_all =
            || inode.overwrites.load(Relaxed) == 0 && inode.size.load(Acquire) == inode.head.load(Acquire);
        if is_writable(open.flags.load(Relaxed) as i32) && !has_taken_all() {
            return false;
        }
        if inode.attended.load(SeqCst) != 0 || !leases.control().volume.is_alive() {
            return false;
        }
        self.await_children();
        let (closed, word) = (&self.channel().closed, file.0 + 1);
        let enter = |place: &&AtomicU64| {
            place.load(Relaxed) == 0 && place.compare_exchange(0, word, SeqCst, Relaxed).is_ok()
        };
        let Some(place) = closed.files.iter().find(enter) else { return false };
        closed.added.fetch_add(1, SeqCst);
        // The server may have looked just before, because of what happens to the inode now.
        inode.attended.load(SeqCst) == 0 || place.compare_exchange(word, 0, SeqCst, Relaxed).is_err()
    }

    /// Gives back a reference that no descriptor stood for: unlike [`close`](Self::close), which drops the process's record
    /// locks on the file, as POSIX wants it.
    pub fn give_back(&self, file: FileRef) -> Result<(), Errno> {
        if self.drop_duplicate(file) {
            return Ok(());
        }
        self.call(Op::Close, &[file.0, 1])?.run().map(drop)
    }

    /// Leaves a reference with the server for another process, which [`take`](Self::take)s it by the secret that is returned.
    pub fn pass(&self, file: FileRef) -> Result<u64, Errno> {
        Ok(self.call(Op::Pass, &[file.0])?.run()?.response.values[0])
    }

    /// Takes a reference that another process has [`pass`](Self::pass)ed; with `leaves`, one more of it, and the one that was
    /// passed can still be taken. `EBADF` when there is none by this secret.
    pub fn take(&self, file: FileRef, secret: u64, leaves: bool) -> Result<(), Errno> {
        self.call(Op::Take, &[file.0, secret, u64::from(leaves)])?.run().map(drop)
    }

    /// Takes one more reference.
    pub fn add_ref(&self, file: FileRef) -> Result<(), Errno> {
        self.call(Op::Ref, &[file.0])?.run().map(drop)
    }

    /// Reads at an offset.
    pub fn pread(&self, file: FileRef, out: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let clock = sys::ticks();
        let result = self.read_at(file, out, offset, true);
        self.measured().reads.record(sys::ticks_to_ns(sys::ticks().wrapping_sub(clock)));
        result
    }

    /// As [`pread`](Client::pread), but nobody has accessed the file: its access time stays.
    pub fn peek(&self, file: FileRef, out: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.read_at(file, out, offset, false)
    }

    /// Notes an access that moves no bytes.
    pub fn note_access(&self, file: FileRef) -> Result<(), Errno> {
        let Some(leases) = self.leases() else {
            return self.read_by_server(file, &mut [0], BEYOND_ANY, false, true).map(drop);
        };
        let (open, inode, _) = leases.open_file(file)?;
        self.note_read(open, inode);
        Ok(())
    }

    /// Reads at the file offset and advances it.
    pub fn read(&self, file: FileRef, out: &mut [u8]) -> Result<usize, Errno> {
        let Some(leases) = self.leases() else {
            return self.read_at_offset_by_server(file, out);
        };
        let clock = sys::ticks();
        let (open, _, _) = leases.open_file(file)?;
        refuse(!open.lock.lock(self.holder(), || !self.is_alive()), libc::EIO)?;
        let offset = open.offset.load(Relaxed);
        let result = self.read_at(file, out, offset, true);
        if let Ok(n) = result
            && n > 0
        {
            // A write may have moved the offset meanwhile; then its word stands.
            let _ = open.offset.compare_exchange(offset, offset + n as u64, Relaxed, Relaxed);
        }
        open.lock.unlock(self.holder());
        self.measured().reads.record(sys::ticks_to_ns(sys::ticks().wrapping_sub(clock)));
        result
    }

    fn read_at(&self, file: FileRef, out: &mut [u8], offset: u64, noted: bool) -> Result<usize, Errno> {
        if ends_nowhere(offset, out.len()) {
            let readable = is_readable(self.flags(file)?);
            return Err(if readable { libc::EINVAL } else { libc::EBADF });
        }
        let len = out.len().min(TRANSFER_MAX);
        let out = &mut out[..len];
        if out.is_empty() {
            // Nothing to read, but the file has to be one that could be read.
            return self.read_by_server(file, out, offset, false, noted);
        }
        let mut done = 0;
        while done < out.len() {
            let part = &mut out[done..];
            let at = offset + done as u64;
            let here = match &self.leases() {
                None => LeaseRead::NotHere { want_map: false },
                Some(leases) => {
                    let (open, inode, _) = leases.open_file(file)?;
                    refuse(!is_readable(open.flags.load(Relaxed) as i32), libc::EBADF)?;
                    let here = self.read_here(leases, inode, at, part)?;
                    // Another thread may have closed the file: what was read is another one's then.
                    fence(Acquire);
                    refuse(open.generation.load(Relaxed) != file.generation(), libc::EBADF)?;
                    if noted && matches!(here, LeaseRead::Done(_)) {
                        self.note_read(open, inode);
                    }
                    here
                }
            };
            match here {
                LeaseRead::Done(n) => {
                    self.measured().direct_reads.fetch_add(1, Relaxed);
                    return Ok(done + n);
                }
                LeaseRead::NotHere { want_map } => {
                    let wanted = part.len().min(PAYLOAD_BYTES);
                    let n = self.read_by_server(file, &mut part[..wanted], at, want_map, noted)?;
                    done += n;
                    if n < wanted {
                        break;
                    }
                }
            }
        }
        Ok(done)
    }

    fn read_by_server(
        &self,
        file: FileRef,
        out: &mut [u8],
        offset: u64,
        want_map: bool,
        noted: bool,
    ) -> Result<usize, Errno> {
        let len = out.len().min(PAYLOAD_BYTES);
        let args = [file.0, offset, len as u64, u64::from(want_map), u64::from(!noted)];
        let answer = self.call(Op::Read, &args)?.run()?;
        let payload = answer.payload();
        let n = payload.len().min(out.len());
        out[..n].copy_from_slice(&payload[..n]);
        Ok(n)
    }

    /// The first call moves the file offset over all that is wanted: what is read by further ones is this reader's alone.
    fn read_at_offset_by_server(&self, file: FileRef, out: &mut [u8]) -> Result<usize, Errno> {
        let wanted = out.len().min(TRANSFER_MAX);
        let first = wanted.min(PAYLOAD_BYTES);
        let args = [file.0, AT_FILE_OFFSET, first as u64, 0, 0, wanted as u64];
        let answer = self.call(Op::Read, &args)?.run()?;
        let [offset, moved, ..] = answer.response.values;
        let payload = answer.payload();
        let mut done = payload.len().min(first);
        out[..done].copy_from_slice(&payload[..done]);
        drop(answer);
        // The file may have grown since. The offset has not moved over what came later: another read returns that.
        let wanted = wanted.min(moved as usize);
        if done < first || first >= wanted {
            return Ok(done);
        }
        done += self.read_at(file, &mut out[done..wanted], offset + done as u64, false).unwrap_or(0);
        let missing = moved.saturating_sub(done as u64) as i64;
        if missing > 0 {
            // The file has become shorter, or cannot be read there.
            self.seek(file, -missing, libc::SEEK_CUR)?;
        }
        Ok(done)
    }

    /// Writes at the file offset (at the end with `O_APPEND`) and advances it.
    pub fn write(&self, file: FileRef, data: &[u8]) -> Result<usize, Errno> {
        self.write_parts(file, &[data], None)
    }

    /// Writes at an offset.
    pub fn pwrite(&self, file: FileRef, data: &[u8], offset: u64) -> Result<usize, Errno> {
        self.write_parts(file, &[data], Some(offset))
    }

    /// Writes what was stored to memory that stands for the file: at `offset` even with `O_APPEND`, and only what lies below the
    /// file's end.
    pub fn store(&self, file: FileRef, data: &[u8], offset: u64) -> Result<(), Errno> {
        for (number, piece) in data.chunks(PAYLOAD_BYTES).enumerate() {
            let at = offset + (number * PAYLOAD_BYTES) as u64;
            self.call(Op::Write, &[file.0, at, 1])?.part1(piece)?.run()?;
        }
        Ok(())
    }

    /// As [`store`](Self::store), but only the bytes in which `new` differs from `old`: between them others may have written.
    pub fn store_changes(&self, file: FileRef, new: &[u8], old: &[u8], offset: u64) -> Result<(), Errno> {
        let pieces = new.chunks(PAYLOAD_BYTES / 2).zip(old.chunks(PAYLOAD_BYTES / 2));
        for (at, (new, old)) in (offset..).step_by(PAYLOAD_BYTES / 2).zip(pieces) {
            self.call(Op::Write, &[file.0, at, 1])?.part1(new)?.part2(old)?.run()?;
        }
        Ok(())
    }

    /// Writes several pieces as one, at `offset` or at the file offset.
    pub fn writev(&self, file: FileRef, parts: &[&[u8]], offset: Option<u64>) -> Result<usize, Errno> {
        if parts.is_empty() {
            return self.write_parts(file, &[], offset);
        }
        let mut done = 0;
        for group in parts.chunks(PARTS_MAX) {
            let wanted: usize = group.iter().map(|part| part.len()).sum();
            let n = match self.write_parts(file, group, offset.map(|at| at + done as u64)) {
                Ok(n) => n,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            };
            done += n;
            if n < wanted {
                break;
            }
        }
        Ok(done)
    }

    fn write_parts(&self, file: FileRef, parts: &[&[u8]], offset: Option<u64>) -> Result<usize, Errno> {
        let clock = sys::ticks();
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let result = self.write_at(file, parts, len, offset);
        self.measured().writes.record(sys::ticks_to_ns(sys::ticks().wrapping_sub(clock)));
        result
    }

    fn write_at(
        &self,
        file: FileRef,
        parts: &[&[u8]],
        len: usize,
        offset: Option<u64>,
    ) -> Result<usize, Errno> {
        if offset.is_some_and(|offset| ends_nowhere(offset, len)) {
            let writable = is_writable(self.flags(file)?);
            return Err(if writable { libc::EINVAL } else { libc::EBADF });
        }
        if len == 0 {
            // Nothing to write, but the file has to be one that could be written.
            if let Some(leases) = self.leases() {
                let (open, inode, _) = leases.open_file(file)?;
                if inode.kind.load(Relaxed) == libc::S_IFREG && is_writable(open.flags.load(Relaxed) as i32) {
                    return Ok(0);
                }
            }
            let args = [file.0, offset.unwrap_or(AT_FILE_OFFSET)];
            return self.call(Op::Write, &args)?.run().map(|_| 0);
        }
        if self.write_here(file, parts, len, offset)? {
            return Ok(len);
        }
        if len <= PAYLOAD_BYTES {
            // One call, so that nobody writes between the parts.
            let mut call = self.call(Op::Write, &[file.0, offset.unwrap_or(AT_FILE_OFFSET)])?;
            for part in parts {
                call = call.part1(part)?;
            }
            return Ok(call.run()?.ret() as usize);
        }
        // Piece by piece: a long append still goes through the ring, anything else through the server.
        let mut long = self.begin_long_write(file)?;
        let mut done = 0;
        for part in parts {
            for piece in part.chunks(PAYLOAD_BYTES.min(RING_BYTES / 2)) {
                let at = offset.map(|at| at + done as u64);
                let of_long = long.next(done + piece.len() == len);
                let n = match self.write_piece(file, piece, at, of_long) {
                    Ok(n) => n,
                    Err(_) if done > 0 => return Ok(done),
                    Err(error) => return Err(error),
                };
                done += n;
                if n < piece.len() {
                    return Ok(done);
                }
                step(Point::PieceWritten);
            }
        }
        Ok(done)
    }

    fn write_piece(
        &self,
        file: FileRef,
        piece: &[u8],
        offset: Option<u64>,
        of_long: u64,
    ) -> Result<usize, Errno> {
        if self.write_here(file, &[piece], piece.len(), offset)? {
            return Ok(piece.len());
        }
        let thread = if of_long == LONG_BEGINS { sys::gettid() } else { 0 };
        let args = [file.0, offset.unwrap_or(AT_FILE_OFFSET), 0, of_long, thread.into()];
        Ok(self.call(Op::Write, &args)?.part1(piece)?.run()?.ret() as usize)
    }

    /// Appends or overwrites under the lease, making room when there is none, durably where the file is open with `O_SYNC` or
    /// `O_DSYNC`; false when it is the server's to do.
    fn write_here(
        &self,
        file: FileRef,
        parts: &[&[u8]],
        len: usize,
        offset: Option<u64>,
    ) -> Result<bool, Errno> {
        let Some(leases) = self.leases() else { return Ok(false) };
        let mut asked = false;
        loop {
            let written = match self.append_here(&leases, file, offset, parts, len)? {
                Written::NotHere => self.overwrite_here(&leases, file, offset, parts, len)?,
                written => written,
            };
            match written {
                Written::Done => {
                    let flags =
                        leases.open_file(file).map_or(0, |(open, ..)| open.flags.load(Relaxed) as i32);
                    if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 {
                        // As in Linux, the file offset stays where it was when the bytes may not be durable.
                        let back = |_: &Errno| {
                            if let (None, Ok((open, ..))) = (offset, leases.open_file(file)) {
                                open.offset.fetch_sub(len as u64, Relaxed);
                            }
                        };
                        self.make_durable(file).inspect_err(back)?;
                    }
                    return Ok(true);
                }
                Written::NotHere => return Ok(false),
                Written::Full => drop(self.call(Op::Drain, &[file.0])?.run()?),
                Written::NoRing => {
                    if asked || self.call(Op::Lease, &[file.0])?.run()?.ret() == 0 {
                        return Ok(false);
                    }
                    asked = true;
                }
            }
        }
    }

    /// Moves the file offset; returns the new one. `whence` as in `lseek`, `SEEK_DATA` and `SEEK_HOLE` included.
    pub fn seek(&self, file: FileRef, offset: i64, whence: i32) -> Result<u64, Errno> {
        if let Some(leases) = self.leases()
            && matches!(whence, libc::SEEK_SET | libc::SEEK_CUR | libc::SEEK_END)
        {
            let (open, inode, _) = leases.open_file(file)?;
            refuse(open.flags.load(Relaxed) as i32 & libc::O_PATH != 0, libc::EBADF)?;
            let kind = inode.kind.load(Relaxed);
            let base = match whence {
                _ if kind != libc::S_IFREG && (kind != libc::S_IFDIR || whence == libc::SEEK_END) => None,
                libc::SEEK_SET => Some(0),
                libc::SEEK_CUR => Some(open.offset.load(Relaxed) as i64),
                _ => inode.between_steps(|| inode.size.load(Acquire) as i64),
            };
            if let Some(base) = base {
                let target = base.checked_add(offset).ok_or(libc::EOVERFLOW)?;
                refuse(target < 0, libc::EINVAL)?;
                open.offset.store(target as u64, Relaxed);
                return Ok(target as u64);
            }
        }
        let answer = self.call(Op::Seek, &[file.0, offset as u64, whence as u64])?.run()?;
        Ok(answer.ret() as u64)
    }

    /// Where the next data of a file is, from `offset` on: `None` when only a hole follows. The file offset stays.
    pub fn next_data(&self, file: FileRef, offset: u64) -> Result<Option<u64>, Errno> {
        let stays = 1;
        match self.call(Op::Seek, &[file.0, offset, libc::SEEK_DATA as u64, stays])?.run() {
            Ok(answer) => Ok(Some(answer.ret() as u64)),
            Err(libc::ENXIO) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a file's data durable.
    pub fn fsync(&self, file: FileRef) -> Result<(), Errno> {
        let clock = sys::ticks();
        let result = self.make_durable(file);
        self.measured().syncs.record(sys::ticks_to_ns(sys::ticks().wrapping_sub(clock)));
        result
    }

    fn make_durable(&self, file: FileRef) -> Result<(), Errno> {
        match self.leases().map_or(Ok(false), |leases| self.sync_here(&leases, file)) {
            Ok(false) => self.fsync_by_server(file),
            here => here.map(drop),
        }
    }

    /// Has the server make a file durable, and with it all names of the volume.
    pub(crate) fn fsync_by_server(&self, file: FileRef) -> Result<(), Errno> {
        self.call(Op::Fsync, &[file.0])?.that_flushes(true).run().map(drop)
    }

    /// Makes everything on the volume durable.
    pub fn sync(&self) -> Result<(), Errno> {
        self.call(Op::Sync, &[])?.that_flushes(true).run().map(drop)
    }

    /// As [`sync`](Client::sync), and tells of what could not be stored since this file was last told.
    pub fn sync_volume(&self, file: FileRef) -> Result<(), Errno> {
        self.call(Op::Sync, &[1, file.0])?.that_flushes(true).run().map(drop)
    }

    /// Attributes of an open file.
    pub fn fstat(&self, file: FileRef) -> Result<WireAttr, Errno> {
        self.stat(file, b"", libc::AT_EMPTY_PATH)
    }

    /// Sets the size.
    pub fn ftruncate(&self, file: FileRef, size: u64) -> Result<(), Errno> {
        let change = names::AttrChange { size: Some(size), ..Default::default() };
        self.set_attr(file, b"", libc::AT_EMPTY_PATH, &change)
    }

    /// `fallocate`, with the system call's mode bits.
    pub fn fallocate(&self, file: FileRef, mode: i32, offset: u64, len: u64) -> Result<(), Errno> {
        self.call(Op::Fallocate, &[file.0, mode as u64, offset, len])?.run().map(drop)
    }

    /// Fills `out` with [`crate::WireDirent`]s and names after `cookie`; returns the bytes, 0 at the end.
    pub fn read_dir(&self, file: FileRef, cookie: u64, out: &mut [u8]) -> Result<usize, Errno> {
        if let Some(filled) = self.read_dir_here(file, cookie, out) {
            return Ok(filled);
        }
        let answer = self.call(Op::ReadDir, &[file.0, cookie, out.len() as u64])?.run()?;
        let payload = answer.payload();
        let n = payload.len().min(out.len());
        out[..n].copy_from_slice(&payload[..n]);
        Ok(n)
    }

    /// `flock`, with the system call's operation bits. `EINTR` when a signal ends the wait for others.
    pub fn flock(&self, file: FileRef, operation: i32) -> Result<(), Errno> {
        let thread = u64::from(sys::gettid());
        let ask = || self.call(Op::Flock, &[file.0, operation as u64, thread])?.run().map(drop);
        waiting(|| {
            let seen = self.channel().events.turn(thread).load(SeqCst);
            match ask() {
                Err(ASK_AGAIN) => {}
                result => return result,
            }
            // The wait goes on when another thread closes the last descriptor meanwhile; the lock then ends with it.
            let result = self.add_ref(file).and_then(|()| {
                let result = self.wait_for_lock(thread, seen, ask);
                let _ = self.give_back(file);
                result
            });
            result.inspect_err(|_| self.withdraw(thread))
        })
    }

    /// A record lock: `command` is one of `F_GETLK`, `F_SETLK`, `F_SETLKW` or their `OFD` kin. For the `GET` commands the result
    /// is the lock in the way, or one of type `F_UNLCK`. `EINTR` when a signal ends the wait for others.
    pub fn record_lock(&self, file: FileRef, command: i32, range: &LockRange) -> Result<LockRange, Errno> {
        let pid = sys::getpid();
        if let Some(done) = self.record_lock_here(file, command, range, pid) {
            return Ok(done);
        }
        let (pid, thread) = (u64::from(pid), u64::from(sys::gettid()));
        let args = [file.0, command as u64, range.kind as u64, range.start, range.len, pid, thread];
        let ask = || Ok(self.call(Op::PosixLock, &args)?.run()?.response.values);
        let v = waiting(|| {
            let seen = self.channel().events.turn(thread).load(SeqCst);
            match ask() {
                Err(ASK_AGAIN) => {
                    self.wait_for_lock(thread, seen, ask).inspect_err(|_| self.withdraw(thread))
                }
                result => result,
            }
        })?;
        Ok(LockRange { kind: v[0] as i32, start: v[1], len: v[2], pid: v[3] as u32 })
    }

    fn withdraw(&self, thread: u64) {
        // Fails only with the connection, and then nothing is waited for.
        let _ = self.call(Op::Withdraw, &[thread]).and_then(|call| call.run().map(drop));
    }

    /// Asks again whenever it may be the thread's turn, since the counter of that was `seen`.
    fn wait_for_lock<T>(
        &self,
        thread: u64,
        mut seen: u32,
        ask: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let changes = self.channel().events.turn(thread);
        let mut slept = 0;
        loop {
            while changes.load(SeqCst) == seen && slept < LOCK_SLEEPS {
                // A signal that came just before the sleep does not end the sleep; this check finds it afterwards.
                refuse(busy::put_off().is_some(), libc::EINTR)?;
                match sys::futex_wait_interruptible(changes, seen, LOCK_WAIT_NS) {
                    Err(libc::EINTR) => return Err(libc::EINTR),
                    Err(libc::ETIMEDOUT) if !self.is_alive() || self.socket_ended() => return Err(libc::EIO),
                    Err(libc::ETIMEDOUT) => slept += 1,
                    _ => {}
                }
            }
            slept = 0;
            // Before asking: what changes from here on is seen by the next wait.
            seen = changes.load(SeqCst);
            match ask() {
                Err(ASK_AGAIN) => {}
                result => return result,
            }
        }
    }

    /// The `open` flags of an open file.
    pub fn flags(&self, file: FileRef) -> Result<i32, Errno> {
        if let Some(leases) = self.leases() {
            return Ok(leases.open_file(file)?.0.flags.load(Relaxed) as i32);
        }
        Ok(self.call(Op::GetFlags, &[file.0])?.run()?.response.values[0] as i32)
    }

    /// `fcntl(F_SETFL)`: only `O_APPEND`, `O_NONBLOCK`, `O_DIRECT` and `O_NOATIME` change.
    pub fn set_flags(&self, file: FileRef, flags: i32) -> Result<(), Errno> {
        self.call(Op::SetFlags, &[file.0, flags as u32 as u64])?.run().map(drop)
    }

    /// Tells how long the file's data is expected to live (`RWH_` values of `fcntl(F_SET_RW_HINT)`).
    pub fn set_hint(&self, file: FileRef, hint: u32) -> Result<(), Errno> {
        self.call(Op::SetHint, &[file.0, u64::from(hint)])?.run().map(drop)
    }

    /// Size of an open regular file without asking the server, when a lease allows.
    pub fn size_here(&self, file: FileRef) -> Option<u64> {
        let leases = self.leases()?;
        let (_, inode, _) = leases.open_file(file).ok()?;
        let is_file = inode.kind.load(Relaxed) == libc::S_IFREG;
        is_file.then(|| inode.between_steps(|| inode.size.load(Acquire))).flatten()
    }

    /// Memory that stands for the file is about to be stored to, which may leave something for the server to merge when the process is
    /// killed: whoever opens the file asks the server from now on.
    pub fn note_mapped(&self, file: FileRef) {
        if let Some(leases) = self.leases()
            && let Ok((_, inode, _)) = leases.open_file(file)
        {
            inode.by_call.fetch_or(MAPPED, SeqCst);
        }
    }

    /// Whether some process may store to the file by a map, as far as that is known here.
    #[inline]
    pub fn is_mapped(&self, file: FileRef) -> bool {
        let Some(leases) = self.leases() else { return false };
        leases.open_file(file).is_ok_and(|(_, inode, _)| inode.by_call.load(Relaxed) & MAPPED != 0)
    }

    /// Inode number of an open file without asking the server, when a lease allows.
    pub fn ino_here(&self, file: FileRef) -> Option<u64> {
        let leases = self.leases()?;
        let (_, inode, _) = leases.open_file(file).ok()?;
        Some(inode.ino.load(Relaxed))
    }
}
