//! Requests of the kernel as calls of a session.

use crate::nodes::Nodes;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weft_client::FileRef;
use weft_client::proto::ITSELF;
use weft_core::{BLOCK_BYTES, Capabilities, Capability, Credentials, Ino};
use weft_server::ops::{At, Base, Caller, Change, Error, Opener, Position, Read, Session};
use weft_server::{Peer, Process, Volume};
use weft_vfs::{Attr, FileKind, NAME_MAX, TimeSpec};

/// How long the kernel keeps names and attributes: others may change them at any time.
const KEPT: Duration = Duration::ZERO;
/// An inode's number is never given out again.
const GENERATION: Generation = Generation(0);
/// The kernel keeps no data, and the server orders writes.
const OPENED: FopenFlags = FopenFlags::FOPEN_DIRECT_IO;
const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

/// The kernel shares no memory and waits for no locks of the server: those of its programs are among themselves.
struct Kernel;

impl Peer for Kernel {}

/// A mounted volume, as the kernel asks for it.
pub struct Front {
    volume: Arc<Volume>,
    process: Arc<Process>,
    nodes: Nodes,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.volume.end_process(&self.process, None);
    }
}

fn errno(error: Error) -> Errno {
    Errno::from_i32(match error {
        Error::Errno(errno) => errno,
        // One component, which nobody follows.
        Error::Outside => libc::EXDEV,
        Error::Waits => libc::EAGAIN,
        Error::Ended => libc::EIO,
    })
}

fn system_time(time: TimeSpec) -> SystemTime {
    let since = Duration::from_nanos(time.0.unsigned_abs());
    let moment = if time.0 < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(since)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(since)
    };
    moment.unwrap_or(SystemTime::UNIX_EPOCH)
}

fn time_spec(time: TimeOrNow) -> TimeSpec {
    let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    match time {
        TimeOrNow::Now => TimeSpec::now(),
        TimeOrNow::SpecificTime(time) => TimeSpec(match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => nanos(since),
            Err(before) => -nanos(before.duration()),
        }),
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind),
        perm: attr.perm as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev as u32,
        blksize: BLOCK_BYTES as u32,
        flags: 0,
    }
}

fn file(handle: FileHandle) -> FileRef {
    FileRef(handle.0)
}

impl Front {
    /// `None` when the server stops.
    pub fn new(volume: Arc<Volume>, dir: &Path) -> Option<Front> {
        let mount_point = dir.as_os_str().as_bytes().to_vec();
        let process = volume.begin_process("mount".into(), mount_point, None, Arc::new(Kernel))?;
        Some(Front { volume, process, nodes: Nodes::default() })
    }

    /// What the sender of a request asks for. The kernel has checked that it may.
    fn ask<T>(
        &self,
        request: &Request,
        act: impl FnOnce(&Session<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        self.ask_with(request, Capabilities::ALL, act)
    }

    fn ask_with<T>(
        &self,
        request: &Request,
        capabilities: Capabilities,
        act: impl FnOnce(&Session<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        let (uid, gid) = (request.uid(), request.gid());
        let caller = Caller::from(Credentials { uid, gid, groups: Vec::new(), capabilities });
        act(&Session::new(&self.volume, &self.process, &caller)).map_err(errno)
    }

    /// The same for a name in a directory.
    fn at_name<T>(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        act: impl FnOnce(&Session<'_>, At<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        let path = self.nodes.path(Ino(parent.0));
        let at = At { dir: Base::Inode(Ino(parent.0), &path), path: name.as_bytes() };
        self.ask(request, |session| act(session, at))
    }

    /// The same for an inode.
    fn at_inode<T>(
        &self,
        request: &Request,
        ino: INodeNo,
        act: impl FnOnce(&Session<'_>, At<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        let at = At { dir: Base::Inode(Ino(ino.0), b""), path: b"" };
        self.ask(request, |session| act(session, at))
    }

    /// An inode that the kernel will know by this name.
    fn met(&self, attr: &Attr, (parent, name): (INodeNo, &OsStr)) -> FileAttr {
        self.nodes.meet(attr.ino, Ino(parent.0), name.as_bytes());
        file_attr(attr)
    }

    /// Answers with what a name leads to after `act`.
    fn entry(
        &self,
        request: &Request,
        place: (INodeNo, &OsStr),
        reply: ReplyEntry,
        act: impl FnOnce(&Session<'_>, At<'_>) -> Result<(), Error>,
    ) {
        let attr = self.at_name(request, place, |session, at| {
            act(session, at)?;
            session.stat(at, NOFOLLOW)
        });
        match attr {
            Ok(attr) => reply.entry(&KEPT, &self.met(&attr, place), GENERATION),
            Err(errno) => reply.error(errno),
        }
    }

    fn open_inode(&self, request: &Request, ino: INodeNo, flags: i32, reply: ReplyOpen, how: FopenFlags) {
        let path = self.nodes.path(Ino(ino.0));
        let at = At { dir: Base::Inode(Ino(ino.0), &path), path: ITSELF };
        let opened = self.ask(request, |session| session.open(at, flags, 0, opener(request)));
        match opened {
            Ok((open, _)) => reply.opened(FileHandle(open.file.0), how),
            Err(errno) => reply.error(errno),
        }
    }

    fn close(&self, request: &Request, handle: FileHandle, reply: ReplyEmpty) {
        done(reply, self.ask(request, |session| session.close(file(handle), false)));
    }
}

/// Of the thread that opens a file: placement tells files apart by the thread that makes them.
fn opener(request: &Request) -> Opener {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", request.pid())).unwrap_or_default();
    Opener { thread: name.trim_end().into(), thread_id: request.pid() }
}

fn done(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// The answer to a question for extended attributes: with a size of 0, how long it would be.
fn xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            // Otherwise programs could not share maps of files that the kernel does not keep.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        for flag in wanted {
            if config.add_capabilities(flag).is_err() {
                tracing::warn!(?flag, "the kernel does not know what a mount wants");
            }
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(request, (parent, name), reply, |_, _| Ok(()));
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.nodes.forget(Ino(ino.0), lookups);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.at_inode(request, ino, |session, at| session.stat(at, libc::AT_EMPTY_PATH)) {
            Ok(attr) => reply.attr(&KEPT, &file_attr(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(time_spec), mtime.map(time_spec));
        let change =
            Change { size, perm: mode.map(|mode| mode & 0o7777), uid, gid, atime, mtime, touch: false };
        let changed = self.at_inode(request, ino, |session, at| {
            session.set_attr(at, libc::AT_EMPTY_PATH, &change)?;
            session.stat(at, libc::AT_EMPTY_PATH)
        });
        match changed {
            Ok(attr) => reply.attr(&KEPT, &file_attr(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.at_inode(request, ino, |session, at| session.readlink(at)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.entry(request, (parent, name), reply, |session, at| session.mknod(at, mode, rdev.into()));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.entry(request, (parent, name), reply, |session, at| session.mkdir(at, mode));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.at_name(request, (parent, name), |session, at| session.unlink(at, 0)));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = |session: &Session<'_>, at: At<'_>| session.unlink(at, libc::AT_REMOVEDIR);
        done(reply, self.at_name(request, (parent, name), removed));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        self.entry(request, (parent, name), reply, |session, at| session.symlink(target, at));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from_dir, to_dir) = (Ino(parent.0), Ino(new_parent.0));
        let to_path = self.nodes.path(to_dir);
        let to = At { dir: Base::Inode(to_dir, &to_path), path: new_name.as_bytes() };
        let renamed = self.at_name(request, (parent, name), |session, from| {
            session.rename(from, to, flags.bits())?;
            // For the paths that are told; somebody may have renamed them again.
            if let Ok(moved) = session.stat(to, NOFOLLOW) {
                self.nodes.rename(moved.ino, to_dir, new_name.as_bytes());
            }
            if flags.contains(RenameFlags::RENAME_EXCHANGE)
                && let Ok(moved) = session.stat(from, NOFOLLOW)
            {
                self.nodes.rename(moved.ino, from_dir, name.as_bytes());
            }
            Ok(())
        });
        done(reply, renamed);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let from = At { dir: Base::Inode(Ino(ino.0), b""), path: ITSELF };
        self.entry(request, (new_parent, new_name), reply, |session, to| session.link(from, to, 0));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_inode(request, ino, flags.0, reply, OPENED);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let place = (parent, name);
        let created = self.at_name(request, place, |session, at| {
            let flags = flags | libc::O_CREAT | libc::O_NOFOLLOW;
            let (open, _) = session.open(at, flags, mode, opener(request))?;
            let itself = At { dir: Base::Open(open.file), path: b"" };
            let attr = session.stat(itself, libc::AT_EMPTY_PATH);
            if attr.is_err() {
                session.close(open.file, false)?;
            }
            Ok((open.file, attr?))
        });
        match created {
            Ok((file, attr)) => {
                reply.created(&KEPT, &self.met(&attr, place), GENERATION, FileHandle(file.0), OPENED)
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size as usize];
        let read = Read { offset: Some(offset), ..Read::default() };
        match self.ask(request, |session| session.read(file(handle), read, &mut data)) {
            Ok(read) => reply.data(&data[..read.len]),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // With direct I/O, the kernel leaves it to the server to clear set-id bits, and does not say who may keep them.
        let keeps_set_id = 1 << Capability::Fsetid as u32;
        let capabilities = match request.uid() {
            0 => Capabilities::ALL,
            _ => Capabilities::from_bits(Capabilities::ALL.bits() & !keeps_set_id),
        };
        let write = |session: &Session<'_>| session.write(file(handle), Position::At(offset), data);
        match self.ask_with(request, capabilities, write) {
            Ok(len) => reply.written(len as u32),
            Err(errno) => reply.error(errno),
        }
    }

    /// A descriptor is closed: others of the same open file may follow.
    fn flush(&self, _: &Request, _ino: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close(request, handle, reply);
    }

    fn fsync(&self, request: &Request, _ino: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        done(reply, self.ask(request, |session| session.fsync(file(handle))));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_inode(request, ino, flags.0 | libc::O_DIRECTORY, reply, FopenFlags::empty());
    }

    fn readdir(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.ask(request, |session| {
            session.read_dir(file(handle), offset, &mut |entry| {
                let (ino, kind) = (INodeNo(entry.ino.0), file_type(entry.kind));
                !reply.add(ino, entry.cookie, kind, OsStr::from_bytes(entry.name))
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.close(request, handle, reply);
    }

    fn fsyncdir(&self, request: &Request, _ino: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        done(reply, self.ask(request, |session| session.fsync(file(handle))));
    }

    fn statfs(&self, request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.ask(request, |session| session.statfs()) {
            Ok(stats) => {
                let blocks = |bytes: u64| bytes / BLOCK_BYTES as u64;
                let (free, files) = (blocks(stats.free_bytes), stats.inodes + stats.free_inodes);
                let (block, name) = (BLOCK_BYTES as u32, NAME_MAX as u32);
                reply.statfs(
                    blocks(stats.total_bytes),
                    free,
                    free,
                    files,
                    stats.free_inodes,
                    block,
                    name,
                    block,
                );
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let set = |session: &Session<'_>, at: At<'_>| {
            session.set_xattr(at, libc::AT_EMPTY_PATH, name.as_bytes(), value, flags)
        };
        done(reply, self.at_inode(request, ino, set));
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let get =
            |session: &Session<'_>, at: At<'_>| session.get_xattr(at, libc::AT_EMPTY_PATH, name.as_bytes());
        xattr(reply, size, self.at_inode(request, ino, get));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let list = |session: &Session<'_>, at: At<'_>| session.list_xattr(at, libc::AT_EMPTY_PATH);
        xattr(reply, size, self.at_inode(request, ino, list));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |session: &Session<'_>, at: At<'_>| {
            session.remove_xattr(at, libc::AT_EMPTY_PATH, name.as_bytes())
        };
        done(reply, self.at_inode(request, ino, remove));
    }

    fn fallocate(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate = |session: &Session<'_>| session.fallocate(file(handle), mode, offset, length);
        done(reply, self.ask(request, allocate));
    }

    fn lseek(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.ask(request, |session| session.seek(file(handle), offset, whence, true)) {
            Ok(offset) => reply.offset(offset as i64),
            Err(errno) => reply.error(errno),
        }
    }
}
