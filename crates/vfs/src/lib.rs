//! The file-system trait that cores implement and fronts use.
//!
//! A core (lfs, tagfs) knows inodes, names and bytes; it knows nothing of processes, descriptors, rings or FUSE. A front
//! knows those and nothing of how a core stores. [`FileSystem`] is all that passes between them of files, and [`Core`] what a
//! front needs besides to serve one; [`map`] is the one optional extension, for fronts that read a file's bytes straight off
//! the device.
//!
//! Permission checks are the front's (it knows the caller); [`access`] holds the one implementation they share.

pub mod access;
pub mod acl;
pub mod change;
pub mod compound;
pub mod core;
pub mod error;
mod forward;
pub mod map;
pub mod memfs;
pub mod names;
pub mod path;
pub mod quota;
mod subject;
pub mod types;

pub use crate::core::{Core, CoreStats, Death, DeathObserver, GroupStats};
pub use access::{Access, Protections};
pub use change::{Change, Node, Refused};
pub use error::FsError;
pub use map::{BlockMap, MapEntry, MapObserver};
pub use memfs::MemFs;
pub use quota::{QUOTA_XATTR, QuotaRoom, USAGE_XATTR};
pub use types::{
    ACCESS_XATTR, Attr, CreateArgs, DEFAULT_XATTR, DirEntry, FLAGS_XATTR, FallocateMode, FileKind, FsStats,
    InodeFlags, Marks, NewNode, RenameFlags, SeekTarget, SetAttr, TimeSpec, XFlags, XattrChange, XattrMode,
    atime_after_read, flag_request,
};

/// For the macros.
#[doc(hidden)]
pub use weft_core::{Ino, Tag};

/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest path and symlink target, in bytes.
pub const PATH_MAX: usize = 4096;
/// Most hard links of a file.
pub const LINK_MAX: u32 = 65_000;
/// Longest extended-attribute value, in bytes.
pub const XATTR_VALUE_MAX: usize = 65_536;

/// The result of a file-system operation.
pub type FsResult<T> = Result<T, FsError>;

/// A file core.
///
/// Every operation is atomic with respect to every other and to a power cut: after recovery it has happened whole or
/// not at all. An operation that returned survives a crash of the program; it survives a power cut once a later
/// [`fsync`](FileSystem::fsync) of the file (for data and its size) or of the directory (for names), or a
/// [`sync`](FileSystem::sync), has returned. Metadata operations become durable in the order in which they happened.
///
/// Names are bytes without `/` and NUL, at most [`NAME_MAX`] long; `.` and `..` are resolved by the caller ([`path`]).
pub trait FileSystem: Send + Sync {
    /// The inode with this name in a directory.
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr>;

    /// Attributes of an inode.
    fn getattr(&self, ino: Ino) -> FsResult<Attr>;

    /// Changes attributes; a smaller `size` truncates, a larger one extends with a hole. Returns the new attributes.
    fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr>;

    /// Makes a node (file, directory, symlink, fifo, socket, device) with a new name. Fails with `Exists` when the name is taken.
    fn create(&self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr>;

    /// Makes a file that has no name and goes when its last open reference does (`O_TMPFILE`). It is returned open. It can get
    /// a name when it is `linkable` (no `O_EXCL`). It counts to the [quota] of `dir`.
    fn create_unnamed(&self, dir: Ino, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr>;

    /// Gives an inode one more name. Fails for directories, with `NotFound` for what has lost its last name, and with `CrossQuota` when
    /// it counts to another [quota] than what is made in the directory.
    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr>;

    /// Removes a name that is not a directory's. The inode lives on while it has names or open references.
    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()>;

    /// Removes an empty directory.
    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()>;

    /// Moves a name, replacing what has the new name unless the flags say otherwise. An inode stays with its [quota]: a move to a
    /// directory of another one fails with `CrossQuota`.
    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()>;

    /// Target of a symlink.
    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// Parent of a directory (the root is its own).
    fn parent(&self, dir: Ino) -> FsResult<Ino>;

    /// Calls `each` with the entries after `cookie` (0 = from the start; `.` and `..` are not among them) until it
    /// returns false. Cookies grow from entry to entry. An entry's
    /// cookie stays valid while other entries come and go, and is that of the name: it stays the same when a rename, an exchange or a
    /// whiteout gives the name to another inode.
    fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()>;

    /// The cookie behind which entries of a directory come whose names are added from now on: no cookie of an entry that it has is larger.
    fn newest_cookie(&self, dir: Ino) -> FsResult<u64>;

    /// Takes an open reference: the inode lives until as many [`release`](FileSystem::release)s, even without a name.
    fn open(&self, ino: Ino) -> FsResult<()>;

    /// Gives back an open reference.
    fn release(&self, ino: Ino);

    /// Reads up to `out.len()` bytes at `offset`; fewer only at the end of the file. Holes read as zeros. The
    /// access time is the caller's to [note](FileSystem::note_read).
    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize>;

    /// Notes that a file's data was read at `when`, which its access time tells as `relatime` has it
    /// ([`Attr::atime_after_read`]). A hint: it may be lost in a crash. An inode that is gone is left alone.
    fn note_read(&self, ino: Ino, when: TimeSpec);

    /// Writes all of `data` at `offset`, extending the file when needed. The core may buffer.
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()>;

    /// Like [`write`](FileSystem::write), for data that comes in large pieces and in order: whole blocks go to the device at once
    /// instead of being buffered again (not durably: that is what `fsync` is for).
    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()>;

    /// Like the one or the other of them, for data that a program has written `when`, and that comes only now: the times of the
    /// file's last change are of then.
    fn write_late(&self, ino: Ino, offset: u64, data: &[u8], through: bool, when: TimeSpec) -> FsResult<()>;

    /// Like [`write_late`](FileSystem::write_late), for data that the front has accepted in the core's place: no [quota] refuses
    /// it. So that this does not exceed one, the front accepts only what fits the [room](FileSystem::quota_room).
    fn write_accepted(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        through: bool,
        when: TimeSpec,
    ) -> FsResult<()> {
        self.write_late(ino, offset, data, through, when)
    }

    /// Sends what is buffered of a file to the device, without waiting for durability; what the owner of a closed
    /// file's buffers calls. Small pieces may stay buffered to be packed with others.
    fn write_back(&self, ino: Ino) -> FsResult<()>;

    /// Orders what is buffered of a file before all later changes, without waiting for durability: after a crash that one of these
    /// survives, the file has it. For a file whose content was replaced.
    fn write_in_order(&self, ino: Ino) -> FsResult<()>;

    /// Allocates, punches, zeroes, collapses or inserts a range.
    ///
    /// What is allocated or zeroed has its space from then on, durably when the file is synced: it counts as used in
    /// [`statfs`](FileSystem::statfs) and in the file's blocks, and a write to it never fails with `NoSpace`. It reads as
    /// zeros and [`seek`](FileSystem::seek) takes it for a hole until it is written. A truncate to the present size or a
    /// smaller one, a hole or a collapse gives back what lies there, and so does the end of the file. `NoSpace` when
    /// there is no room for all of it; then nothing has changed.
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()>;

    /// Next data or hole at or after `offset`; `NoData` (ENXIO) past the end.
    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64>;

    /// Makes a file's data, and every metadata operation so far, survive a power cut.
    fn fsync(&self, ino: Ino) -> FsResult<()>;

    /// Makes everything survive a power cut.
    fn sync(&self) -> FsResult<()>;

    /// An extended attribute.
    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;

    /// Sets an extended attribute.
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()>;

    /// Names of the extended attributes, in no order.
    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>>;

    /// Removes an extended attribute.
    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()>;

    /// Changes attributes, but not the size, and extended attributes in one step.
    fn set_with_xattrs(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> FsResult<Attr>;

    /// Space and inode counts.
    fn statfs(&self) -> FsResult<FsStats>;

    /// Sets the tag that the file's data carries from now on. Whatever the tag says, an inode with [`InodeFlags::SECURE_DELETE`] keeps that
    /// class; to set or remove that flag sets or removes it in the tag.
    fn set_tag(&self, ino: Ino, tag: Tag) -> FsResult<()>;

    /// The tag that the file's data carries.
    fn tag(&self, ino: Ino) -> FsResult<Tag>;

    /// Does all changes in one step, or none: other operations, and who looks after a power cut, see what was before the first or what is
    /// after the last. An inode that loses its last name and is not open is gone behind the last change. With `durable`, the step
    /// survives a power cut when this returns, and so does what the files that it writes held before.
    ///
    /// # Errors
    /// The change that cannot be done, and why ([`change::check`]'s refusals included); nothing has changed then. A core that cannot do
    /// several changes in one step refuses all with `Unsupported`.
    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<change::Made, Refused> {
        let _ = durable;
        Err(Refused { at: changes.len(), error: FsError::Unsupported("several changes in one step") })
    }

    /// Whether the core refuses every change, so that opening a file for writing can fail at once.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Whether what is deleted of inodes with [`InodeFlags::SECURE_DELETE`] leaves nothing on the medium: of a file that has the flag when it
    /// is written, the content; of a directory, the names. It holds from the next `fsync` of the changed file or directory on, and from
    /// the next `sync`. A core that cannot is not given the flag.
    fn erases(&self) -> bool {
        false
    }

    /// Whether the core keeps [quotas](quota). One that does not is not given any.
    fn keeps_quotas(&self) -> bool {
        false
    }

    /// The [quota] that an inode counts to, and what it leaves; `None` without one. An inode counts to the same quota all its
    /// life; only a directory may get one of its own.
    fn quota_room(&self, ino: Ino) -> FsResult<Option<QuotaRoom>> {
        let _ = ino;
        Ok(None)
    }

    /// The extension for fronts that read straight off the device; `None` when the core cannot.
    fn block_map(&self) -> Option<&dyn BlockMap> {
        None
    }
}
