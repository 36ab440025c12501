//! Operations: a [`Session`] has one method for each thing that a process does with a volume, and every front calls
//! these methods.
//!
//! Paths, names and payloads are slices. A front passes paths and names that nobody changes during the call; data of
//! reads and writes may be memory that the caller shares. Flags and modes are those of the system calls. The session
//! carries the credentials, and each operation checks them.
//!
//! Nothing here knows how a request arrived. From the client's crate, operations use what state and clients share:
//! references to open files ([`FileRef`]), ranges of locks, and the predicates on `open` flags.

mod ahead;
mod attributes;
mod data;
mod directory;
mod files;
mod flags;
mod lists;
mod locks;
mod names;
mod open;
mod paths;
mod programs;

pub use attributes::Change;
pub use data::{LongPiece, Position, Read, ReadDone};
pub use locks::LockOwner;
pub use names::Canonical;
pub use open::{Opened, intent};
pub use programs::{Beginning, Changed, Keeper};

use crate::state::inodes::{LongGuard, OpenInode, WriteGuard};
use crate::state::locks::Refused;
pub use crate::state::open_files::{OpenFile, Opener};
use crate::state::processes::Process;
use crate::state::volume::Volume;
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_client::FileRef;
use weft_client::proto::ITSELF;
use weft_client::shared::lock;
use weft_core::{Credentials, Ino, refuse};
use weft_vfs::path::{Last, LastComponent, Options, ParentAndName, Resolved, resolve};
use weft_vfs::{Attr, FileKind, FileSystem, FsError, FsStats, NAME_MAX};

/// Walks of one path before a file that loses its name each time counts as not there.
const WALKS_MAX: u32 = 100;

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// As a system call fails.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Errno(i32),
    /// The path leaves the volume by a symlink; [`Session::resolve`] says where to.
    #[error("the path leaves the volume")]
    Outside,
    /// Others hold the lock: the process's [`Peer`](crate::Peer) learns when to try again.
    #[error("others hold the lock")]
    Waits,
    /// The process ended before its operation began, and the operation did nothing.
    #[error("the process has ended")]
    Ended,
}

use Error::Errno;

/// What an operation gives.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<FsError> for Error {
    fn from(error: FsError) -> Error {
        if matches!(error, FsError::Checksum(_) | FsError::Device(_)) {
            tracing::error!(%error, "a program gets EIO");
        }
        Errno(error.errno())
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        match refused {
            Refused::Held => Errno(libc::EAGAIN),
            Refused::Waits => Error::Waits,
            Refused::Deadlock => Errno(libc::EDEADLK),
            Refused::Full => Errno(libc::ENOLCK),
        }
    }
}

/// By whose rights a thread acts: what the kernel calls effective and real.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Whoever it acts as.
    pub effective: Credentials,
    /// Its real user and groups, for which `access` answers.
    pub real: Credentials,
}

impl From<Credentials> for Caller {
    fn from(credentials: Credentials) -> Caller {
        Caller { real: credentials.clone(), effective: credentials }
    }
}

/// What a path starts from.
#[derive(Clone, Copy, Debug)]
pub enum Base<'a> {
    /// An open file; [`FileRef::ROOT`] is the root directory.
    Open(FileRef),
    /// An inode, for a front that knows inodes by their numbers, with the path by which it has met it (for placement and reports). It
    /// may be gone.
    Inode(Ino, &'a [u8]),
}

/// Where a file is: a path, from a directory unless it begins with `/`.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The directory.
    pub dir: Base<'a>,
    /// The path; [`ITSELF`] is what it starts from.
    pub path: &'a [u8],
}

impl<'a> At<'a> {
    /// A path from the volume's root.
    pub fn root(path: &'a [u8]) -> At<'a> {
        At { dir: Base::Open(FileRef::ROOT), path }
    }
}

/// A process that acts on a volume with some credentials.
#[derive(Clone, Copy)]
pub struct Session<'a> {
    volume: &'a Volume,
    process: &'a Process,
    caller: &'a Caller,
}

impl<'a> Session<'a> {
    /// What `process` does with these credentials, which are not checked.
    pub fn new(volume: &'a Volume, process: &'a Process, caller: &'a Caller) -> Session<'a> {
        Session { volume, process, caller }
    }

    /// Volume that the session is on.
    pub fn volume(&self) -> &'a Volume {
        self.volume
    }

    /// The core, behind what is published of it.
    fn fs(&self) -> &'a dyn FileSystem {
        self.volume.fs.as_ref()
    }

    fn cred(&self) -> &'a Credentials {
        &self.caller.effective
    }

    /// Space and inodes of the volume.
    pub fn statfs(&self) -> Result<FsStats> {
        Ok(self.volume.fs.statfs()?)
    }

    /// Keeps a line for the report: something that the program asked for and was refused.
    pub fn note(&self, line: &[u8]) {
        self.volume.note(&format!("{}: {}", self.process.name(), String::from_utf8_lossy(line)));
    }

    /// `EROFS` when nothing of the volume can be changed. Linux looks at it before permissions.
    fn check_writable(&self) -> Result<()> {
        if self.volume.fs.is_read_only() { Err(Errno(libc::EROFS)) } else { Ok(()) }
    }

    /// What a process had asked for when it ended, and what has not begun then, does not happen: a kernel lets nobody see the end
    /// of a process before its last change. To be asked under the lock that orders the change with those of others.
    fn check_lives(&self) -> Result<()> {
        refuse(self.process.is_ending() || self.process.peer.has_ended(), Error::Ended)
    }

    /// What permission checks rest on stays as it is; others add names, too.
    fn among_others(&self) -> Result<RwLockReadGuard<'a, ()>> {
        let guard = self.volume.permissions.read();
        self.check_lives().map(|()| guard)
    }

    /// Nobody else adds or removes names, or changes modes and owners.
    fn alone(&self) -> Result<RwLockWriteGuard<'a, ()>> {
        let guard = self.volume.permissions.write();
        self.check_lives().map(|()| guard)
    }

    /// Nobody else writes to an open inode, and the core has what was written to it.
    fn alone_with(&self, open: &OpenInode) -> Result<WriteGuard<'a>> {
        self.alone_in(open, false)
    }

    /// The same, perhaps in a long write of the process.
    fn alone_in(&self, open: &OpenInode, is_long: bool) -> Result<WriteGuard<'a>> {
        let inode = self.volume.inodes.shared(open.slot);
        let mut excludes_long = None;
        loop {
            let mut guard = self.volume.inodes.exclude_and_drain(open)?;
            self.check_lives()?;
            let writer = inode.long_write.holder();
            if excludes_long.is_some() || writer == 0 || is_long && writer == self.process.id + 1 {
                guard.excludes_long = excludes_long;
                return Ok(guard);
            }
            drop(guard);
            let inodes = &self.volume.inodes;
            let excluded = inodes.exclude_long(open.slot, lock::SERVER, || self.process.is_ending());
            excludes_long = excluded.then(|| LongGuard { inode, holder: lock::SERVER });
        }
    }

    /// An open file that the process holds.
    fn open_file(&self, file: FileRef) -> Result<Arc<OpenFile>> {
        if !self.process.holds(file) {
            self.volume.bind(self.process, file);
            refuse(!self.process.holds(file), Errno(libc::EBADF))?;
        }
        self.volume.files.get(file).ok_or(Errno(libc::EBADF))
    }

    /// An open file whose data is meant: not one that was opened with `O_PATH`, which stands for a name only.
    fn open_data(&self, file: FileRef) -> Result<Arc<OpenFile>> {
        let open = self.open_file(file)?;
        if self.open_flags(&open) & libc::O_PATH != 0 { Err(Errno(libc::EBADF)) } else { Ok(open) }
    }

    /// The flags that a file was opened with, as they are now.
    fn open_flags(&self, open: &OpenFile) -> i32 {
        self.volume.files.shared(open.file).flags.load(Relaxed) as i32
    }

    /// The inode of what a path starts from.
    fn base(&self, base: Base<'_>) -> Result<Ino> {
        match base {
            Base::Open(FileRef::ROOT) => Ok(Ino::ROOT),
            base => self.itself(base),
        }
    }

    /// The same; the root has to be open.
    fn itself(&self, base: Base<'_>) -> Result<Ino> {
        match base {
            Base::Open(file) => Ok(self.open_file(file)?.inode.ino),
            Base::Inode(ino, _) => Ok(ino),
        }
    }

    fn walk(&self, at: At<'_>, last: Last) -> Result<Resolved> {
        self.walk_with(self.cred(), at, self.walking(last))
    }

    /// How a path is walked usually.
    fn walking(&self, last: Last) -> Options<'a> {
        let mount_point = &self.process.mount_point;
        Options {
            last,
            creates: false,
            dots_by_text: false,
            protections: self.volume.protections,
            mount_point,
            within: None,
        }
    }

    /// Walks a path by the rights of `who`.
    fn walk_with(&self, who: &Credentials, at: At<'_>, options: Options<'_>) -> Result<Resolved> {
        if at.path == ITSELF {
            let ino = self.itself(at.dir)?;
            let place =
                ParentAndName { dir: ino, name: Vec::new(), must_be_dir: false, ending: LastComponent::Dot };
            return Ok(Resolved::Found(place, self.volume.fs.getattr(ino)?));
        }
        // As in Linux, a path that starts at the root does not need what it could have started from.
        let start = if at.path.first() == Some(&b'/') { Ino::ROOT } else { self.base(at.dir)? };
        Ok(resolve(self.volume.fs.as_ref(), who, start, at.path, options)?)
    }

    /// Does what walks a path and changes nothing before its end. A file may lose its name, to another file or to none,
    /// between the walk and what is done at its end. As in Linux the path is walked again then: the operation is one before or
    /// after that change.
    #[inline]
    fn retry_stale<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..WALKS_MAX {
            match act() {
                Err(Errno(libc::ESTALE)) => {}
                outcome => return outcome,
            }
        }
        Err(Errno(libc::ENOENT))
    }
}

/// What a path leads to that has to lead to something in the volume.
fn found(resolved: Resolved) -> Result<Attr> {
    match resolved {
        Resolved::Found(_, attr) => Ok(attr),
        Resolved::Missing(place) => Err(missing(&place)),
        Resolved::Outside(_) => Err(Error::Outside),
    }
}

/// Why a name is not there.
fn missing(place: &ParentAndName) -> Error {
    Errno(if place.name.len() > NAME_MAX { libc::ENAMETOOLONG } else { libc::ENOENT })
}

fn is_file(kind: FileKind) -> bool {
    kind == FileKind::File
}

/// The last component of a path is followed, unless `AT_SYMLINK_NOFOLLOW` is among the flags.
fn last_of(flags: i32) -> Last {
    if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { Last::Follow } else { Last::Stop }
}
