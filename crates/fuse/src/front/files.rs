//! Files: opened, read and written.

use super::{DIRECT, Front, Place, QUICK_READ, SET_ID, capabilities, inode, is_resent};
use crate::abi::{
    self, CreateIn, InvalInodeOut, OpenIn, OpenOut, ReadIn, WriteIn, WriteOut, fopen, notice, op,
};
use crate::channel::{Answer, Errno, Request, name};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::*;
use std::time::Instant;
use weft_client::FileRef;
use weft_client::proto::{ITSELF, with_umask};
use weft_core::{Ino, refuse};
use weft_server::Watcher;
use weft_server::ops::{At, Base, Error, Position, Read, Session};
use weft_vfs::{Attr, InodeFlags};
impl Front {
    /// Flags by which the server opens what the kernel opens by these: of what it keeps, the kernel reads the rest of blocks that are
    /// written, and knows itself where a file ends.
    fn flags(&self, flags: u32) -> i32 {
        let flags = flags as i32 | if self.keeps_atime { libc::O_NOATIME } else { 0 };
        match (self.writes_back.load(Relaxed), flags & libc::O_ACCMODE) {
            (true, libc::O_WRONLY) => flags & !(libc::O_ACCMODE | libc::O_APPEND) | libc::O_RDWR,
            (true, _) => flags & !libc::O_APPEND,
            (false, _) => flags,
        }
    }

    /// How the kernel treats files that it opens.
    fn how(&self) -> u32 {
        if self.writes_back.load(Relaxed) { fopen::KEEP_CACHE } else { DIRECT }
    }

    pub(super) fn open(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let (open, _) = request.argument::<OpenIn>()?;
        let ino = Ino(request.head.node);
        let is_dir = request.head.opcode == op::OPENDIR;
        let mut flags = self.flags(open.flags) | if is_dir { libc::O_DIRECTORY } else { 0 };
        if (flags ^ open.flags as i32) & libc::O_APPEND != 0 && self.is_for_appends(request) {
            flags |= libc::O_APPEND;
        }
        let path = self.nodes.path(ino);
        let at = At { dir: Base::Inode(ino, &path), path: ITSELF };
        let kills = open.open_flags & abi::OPEN_KILL_SUIDGID != 0;
        let (rights, had_set_id) = (capabilities(kills), kills && self.keeps_set_id(request));
        let opener = self.openers.of(request.head.pid);
        let (open, _) = self.ask_with(request, rights, |session| session.open(at, flags, 0, opener))?;
        if flags & libc::O_TRUNC != 0 {
            self.handles.note_changed(ino);
        }
        if had_set_id {
            self.attr_changed(ino);
        }
        let how = if is_dir { 0 } else { self.how() };
        let handle = self.add_handle(request, open.file, ino, flags)?;
        answer.put(&OpenOut { handle, how, backing: 0 });
        Ok(())
    }

    fn is_for_appends(&self, request: &Request<'_>) -> bool {
        let itself = inode(Ino(request.head.node));
        self.ask(request, |session| session.stat(itself, libc::AT_EMPTY_PATH))
            .is_ok_and(|attr| attr.marks.flags.contains(InodeFlags::APPEND))
    }

    pub(super) fn create(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let (create, rest) = request.argument::<CreateIn>()?;
        let dir = Ino(request.head.node);
        let (name, _) = name(rest)?;
        let path = self.nodes.path(dir);
        let is_unnamed = request.head.opcode == op::TMPFILE;
        let (name, flags) = match is_unnamed {
            true => (ITSELF, self.flags(create.flags) | libc::O_TMPFILE),
            // What somebody else has made meanwhile is opened by another request, for which the kernel asks who may.
            false => (name, self.flags(create.flags) | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW),
        };
        let at = At { dir: Base::Inode(dir, &path), path: name };
        let rights = capabilities(create.open_flags & abi::OPEN_KILL_SUIDGID != 0);
        let opener = self.openers.of(request.head.pid);
        let created = self.ask_with(request, rights, |session| {
            let (open, _) = session.open(at, flags, with_umask(create.mode, create.umask), opener)?;
            let itself = At { dir: Base::Open(open.file), path: b"" };
            let attr = session.stat(itself, libc::AT_EMPTY_PATH);
            if attr.is_err() {
                session.close(open.file, false)?;
            }
            Ok((open.file, attr?))
        });
        let (file, attr) = created.map_err(|errno| match errno {
            Errno(libc::EEXIST) if create.flags as i32 & libc::O_EXCL == 0 => Errno(libc::ESTALE),
            errno => errno,
        })?;
        self.handles.note_changed(dir);
        let place = Place { dir, name: if is_unnamed { b"" } else { name } };
        let handle = self.add_handle(request, file, attr.ino, flags)?;
        if let Err(errno) = self.meet(request, attr, place, answer) {
            self.handles.remove(handle)?;
            self.ask(request, |session| session.close(file, false))?;
            return Err(errno);
        }
        answer.put(&OpenOut { handle, how: self.how(), backing: 0 });
        Ok(())
    }

    pub(super) fn read(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let (read, _) = request.argument::<ReadIn>()?;
        let file = self.handles.file(read.handle)?;
        let wanted = Read { offset: Some(read.offset), ..Read::default() };
        // As the open file's flags are now, of which the kernel tells only so.
        let now = self.flags(read.flags);
        let begun = Instant::now();
        let filled = answer.fill(read.size as usize, |out| {
            self.ask(request, |session| {
                let flags = session.flags(file)?;
                if (flags ^ now) & libc::O_NOATIME != 0 {
                    session.set_flags(file, flags ^ libc::O_NOATIME)?;
                }
                Ok(session.read(file, wanted, out)?.len)
            })
        });
        self.reads_wait.store(begun.elapsed() > QUICK_READ, Relaxed);
        filled
    }

    pub(super) fn write(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let (write, data) = request.argument::<WriteIn>()?;
        let data = data.get(..write.size as usize).ok_or(Errno(libc::EIO))?;
        let (file, offset) = (self.handles.file(write.handle)?, write.offset);
        // The server that has ended may have appended it.
        let appends = write.flags as i32 & libc::O_APPEND != 0 && write.write_flags & abi::WRITE_CACHE == 0;
        refuse(appends && is_resent(request), Errno(libc::EIO))?;
        let writes_back = self.writes_back.load(Relaxed);
        if write.write_flags & abi::WRITE_CACHE != 0 {
            // By any open file that is at hand, which may append. What lies behind the end is nobody's, unless it is the kernel's.
            let in_place = Position::InPlace { offset, old: None };
            let position = if writes_back { Position::Kept(offset) } else { in_place };
            self.kept_writes.fetch_add(1, SeqCst);
            self.ask(request, |session| session.write(file, position, data))?;
            self.handles.note_written(write.handle);
            answer.put(&WriteOut { size: write.size, pad: 0 });
            return Ok(());
        }
        let kills = write.write_flags & abi::WRITE_KILL_SUIDGID != 0;
        let had_set_id = kills && self.keeps_set_id(request);
        // As the open file's flags are now, of which the kernel tells only so.
        let now = write.flags as i32;
        let is_sync = now & (libc::O_SYNC | libc::O_DSYNC) != 0;
        let size = self.ask_with(request, capabilities(kills), |session| {
            let flags = session.flags(file)?;
            if (flags ^ now) & libc::O_APPEND != 0 && !writes_back {
                session.set_flags(file, flags ^ libc::O_APPEND)?;
            }
            let size = session.write(file, Position::At(offset), data)?;
            // What is appended lies where the file ended, and is new to every map.
            let end = if now & libc::O_APPEND != 0 { offset } else { offset + size as u64 };
            self.show(request, session, file, offset..end)?;
            if is_sync && flags & (libc::O_SYNC | libc::O_DSYNC) == 0 {
                session.fsync(file)?;
            }
            Ok(size)
        })?;
        if !is_sync {
            self.handles.note_written(write.handle);
        }
        if had_set_id {
            self.attr_changed(Ino(request.head.node));
        }
        answer.put(&WriteOut { size: size as u32, pad: 0 });
        Ok(())
    }

    /// Has the kernel write what programs have stored to maps of a file. Whether it has.
    pub(super) fn stores_maps(&self, ino: Ino) -> bool {
        let Some(channel) = self.channel.get() else { return false };
        let told = channel.notify(notice::INVAL_INODE, &InvalInodeOut { ino: ino.0, offset: 0, len: 0 });
        told.err().is_none_or(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Programs of the library that have mapped the file see these bytes.
    pub(super) fn show(
        &self,
        request: &Request<'_>,
        session: &Session<'_>,
        file: FileRef,
        bytes: Range<u64>,
    ) -> Result<(), Error> {
        if self.is_alone(request) { Ok(()) } else { session.show_in_maps(file, bytes) }
    }

    /// Whether nobody else uses the volume. Others may have come since the request did.
    fn is_alone(&self, request: &Request<'_>) -> bool {
        request.alone.get() != 0 && request.alone.get() == self.volume.watcher_alone()
    }

    /// Whether the kernel may keep set-id bits of an inode, which it would not ask for again after the server has cleared them.
    pub(super) fn keeps_set_id(&self, request: &Request<'_>) -> bool {
        let itself = inode(Ino(request.head.node));
        let is_set = |attr: Attr| attr.perm & SET_ID != 0;
        request.alone.get() != 0
            && self.ask(request, |session| session.stat(itself, libc::AT_EMPTY_PATH)).is_ok_and(is_set)
    }
}
