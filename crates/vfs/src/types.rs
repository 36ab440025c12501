//! The types that pass between a core and a front.

use weft_core::{Ino, Tag};

/// Kind of an inode.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A socket's name.
    Socket = 5,
    /// A character device's name.
    CharDevice = 6,
    /// A block device's name.
    BlockDevice = 7,
}

impl FileKind {
    /// The kind with this number in a record.
    pub fn from_u8(value: u8) -> Option<FileKind> {
        use FileKind::*;
        [File, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice]
            .into_iter()
            .find(|k| *k as u8 == value)
    }

    /// The `S_IFMT` bits.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileKind::File => libc::S_IFREG,
            FileKind::Directory => libc::S_IFDIR,
            FileKind::Symlink => libc::S_IFLNK,
            FileKind::Fifo => libc::S_IFIFO,
            FileKind::Socket => libc::S_IFSOCK,
            FileKind::CharDevice => libc::S_IFCHR,
            FileKind::BlockDevice => libc::S_IFBLK,
        }
    }

    /// The `DT_` number of a directory entry.
    pub fn dirent_type(self) -> u8 {
        (self.mode_bits() >> 12) as u8
    }
}

/// A moment: nanoseconds since 1970, UTC. (The year 2262 is its end.)
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TimeSpec(pub i64);

impl TimeSpec {
    /// The present moment at the kernel's tick resolution (about 4 ms). Everybody who stamps a file has to use this clock:
    /// beside a finer one a later stamp could be the earlier.
    pub fn now() -> TimeSpec {
        TimeSpec(weft_sys::clock::coarse_now_ns())
    }

    /// Whole seconds, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Nanoseconds within the second.
    pub fn subsec_nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }
}

/// Attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub perm: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device nodes.
    pub rdev: u64,
    /// Bytes; for a directory an arbitrary size, for a symlink the length of its target.
    pub size: u64,
    /// 512-byte units that its data occupies.
    pub blocks: u64,
    /// Last access.
    pub atime: TimeSpec,
    /// Last change of the data.
    pub mtime: TimeSpec,
    /// Last change of the inode.
    pub ctime: TimeSpec,
    /// Creation.
    pub btime: TimeSpec,
}

impl Attr {
    /// The access time after a read at `when`, if another than before: as `relatime` has it, once after each change and
    /// once a day.
    pub fn atime_after_read(&self, when: TimeSpec) -> Option<TimeSpec> {
        atime_after_read(self.atime, self.mtime, self.ctime, when)
    }

    /// Kind and permission bits as in `st_mode`.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.perm
    }
}

/// The same, of a file with these times.
pub fn atime_after_read(
    atime: TimeSpec,
    mtime: TimeSpec,
    ctime: TimeSpec,
    when: TimeSpec,
) -> Option<TimeSpec> {
    const DAY_NS: i64 = 86_400_000_000_000;
    let stale = atime <= mtime.max(ctime) || when.0.saturating_sub(atime.0) > DAY_NS;
    stale.then_some(when)
}

/// Attributes to change; `None` leaves one as it is. The change time is always set to the present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub perm: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<TimeSpec>,
    /// Last change of the data.
    pub mtime: Option<TimeSpec>,
    /// Last change of data or attributes, for who keeps that time by itself [default: now].
    pub ctime: Option<TimeSpec>,
}

/// What kind of node to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewNode<'a> {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symlink with this target.
    Symlink(&'a [u8]),
    /// A fifo, socket or device node with this device number.
    Special(FileKind, u64),
}

/// How to create a node.
#[derive(Clone, Copy, Debug)]
pub struct CreateArgs<'a> {
    /// What to create.
    pub node: NewNode<'a>,
    /// Permission bits, umask already applied.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The tag that the node's data carries.
    pub tag: Tag,
    /// Take an open reference as [`crate::FileSystem::open`] does, in the same step.
    pub open: bool,
}

/// An entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its inode.
    pub ino: Ino,
    /// The kind of its inode.
    pub kind: FileKind,
    /// Pass it to [`crate::FileSystem::readdir`] to continue after this entry. Never 0; below 2^62.
    pub cookie: u64,
}

bitflags::bitflags! {
    /// How to rename.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RenameFlags: u32 {
        /// Fail with `Exists` when the new name is taken.
        const NO_REPLACE = 1;
        /// Swap the two.
        const EXCHANGE = 2;
    }
}

/// What `fallocate` does with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FallocateMode {
    /// Promise space for the range, and extend the size to its end when that is larger; content is unchanged, new bytes
    /// read as zeros.
    Allocate,
    /// Promise space for the range, also beyond the end, without changing the size.
    KeepSize,
    /// Make the range a hole that takes no space; the size stays.
    PunchHole,
    /// Make the range zeros and promise space for it; the size grows unless `keep_size`.
    ZeroRange {
        /// Whether the size stays.
        keep_size: bool,
    },
    /// Cut the range out; what follows moves down.
    CollapseRange,
    /// Insert a hole; what follows moves up.
    InsertRange,
}

/// What `seek` looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTarget {
    /// SEEK_DATA
    Data,
    /// SEEK_HOLE; the end of the file is a hole.
    Hole,
}

/// When `setxattr` may set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// Whether or not it exists.
    Any,
    /// Fail with `Exists` when it exists.
    Create,
    /// Fail with `NoAttribute` when it does not.
    Replace,
}

/// Space and inodes of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsStats {
    /// Bytes that programs can store in all.
    pub total_bytes: u64,
    /// Bytes that programs can still store.
    pub free_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that can still be made.
    pub free_inodes: u64,
}
