//! The types that pass between a core and a front.

use weft_core::{Ino, Tag, TagFlags};

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

    /// The kind with these `S_IFMT` bits.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        use FileKind::*;
        [File, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice]
            .into_iter()
            .find(|kind| kind.mode_bits() == mode & libc::S_IFMT)
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

bitflags::bitflags! {
    /// What programs set with `chattr`; the bits are Linux's (`FS_IMMUTABLE_FL` and its kin).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct InodeFlags: u32 {
        /// `s`: what is deleted of it leaves nothing on the medium; of a directory, also the names that are removed.
        const SECURE_DELETE = 0x1;
        /// `S`: each write is durable when it returns; of a directory, each change of its names.
        const SYNC = 0x8;
        /// `i`: nobody changes it.
        const IMMUTABLE = 0x10;
        /// `a`: it is only appended to; of a directory, names are only added.
        const APPEND = 0x20;
        /// `d`: backups by `dump` leave it out.
        const NO_DUMP = 0x40;
        /// `A`: reading leaves its access time.
        const NO_ATIME = 0x80;
        /// `D`: each change of a directory's names is durable when it returns.
        const DIR_SYNC = 0x1_0000;
    }
}

impl InodeFlags {
    /// The inode keeps its owner, its mode and its names.
    pub fn are_fixed(self) -> bool {
        self.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
    }

    /// Changes of a directory's names are durable when they return.
    pub fn sync_names(self) -> bool {
        self.intersects(InodeFlags::SYNC | InodeFlags::DIR_SYNC)
    }

    /// What an inode that is made in a directory with these flags gets of them.
    pub fn inherited(self, kind: FileKind) -> InodeFlags {
        let others = InodeFlags::SECURE_DELETE | InodeFlags::NO_DUMP | InodeFlags::NO_ATIME;
        let all = others | InodeFlags::SYNC;
        self & match kind {
            FileKind::Directory => all | InodeFlags::DIR_SYNC,
            FileKind::File => all,
            // Unlike ext4, with secure deletion: the target of a symlink is content.
            _ => others,
        }
    }

    /// The flags that the tag of its data has for these.
    pub fn of_tag(self) -> TagFlags {
        if self.contains(InodeFlags::SECURE_DELETE) { TagFlags::SECURE_DELETE } else { TagFlags::empty() }
    }

    /// The flags in a value of [`FLAGS_XATTR`].
    pub fn from_value(value: &[u8]) -> InodeFlags {
        InodeFlags::from_bits_truncate(value.first_chunk().copied().map_or(0, u32::from_le_bytes))
    }

    /// Those that `statx` tells (`STATX_ATTR_IMMUTABLE` and its kin).
    pub fn statx_attributes(self) -> u64 {
        // The bits are the same.
        (self & (InodeFlags::IMMUTABLE | InodeFlags::APPEND | InodeFlags::NO_DUMP)).bits().into()
    }

    /// The value of [`FLAGS_XATTR`].
    pub fn to_value(self) -> [u8; 4] {
        self.bits().to_le_bytes()
    }
}

/// Requests of `ioctl` for [`InodeFlags`] and [`XFlags`].
pub mod flag_request {
    /// `FS_IOC_GETFLAGS`: an int, whatever size the number names.
    pub const GET: u32 = 0x8008_6601;
    /// `FS_IOC_SETFLAGS`, likewise.
    pub const SET: u32 = 0x4008_6602;
    /// `FS_IOC_FSGETXATTR`.
    pub const GET_X: u32 = 0x801c_581f;
    /// `FS_IOC_FSSETXATTR`. It has no bit for secure deletion, which stays as it is.
    pub const SET_X: u32 = 0x401c_5820;
}

/// `struct fsxattr` of Linux: some of the flags by other bits (`FS_XFLAG_`), extent size, extents, project and copy-on-write extent size,
/// of which a volume has none, and two unused words.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XFlags(pub [u32; 7]);

impl XFlags {
    const BITS: [(InodeFlags, u32); 5] = [
        (InodeFlags::IMMUTABLE, 0x08),
        (InodeFlags::APPEND, 0x10),
        (InodeFlags::SYNC, 0x20),
        (InodeFlags::NO_ATIME, 0x40),
        (InodeFlags::NO_DUMP, 0x80),
    ];

    /// Those of an inode.
    pub fn of(flags: InodeFlags) -> XFlags {
        let told = Self::BITS.into_iter().filter(|(flag, _)| flags.contains(*flag));
        XFlags([told.fold(0, |bits, (_, bit)| bits | bit), 0, 0, 0, 0, 0, 0])
    }

    /// The flags that they stand for, and all that they can; `None` when they ask for what a volume does not have.
    pub fn flags(&self) -> Option<(InodeFlags, InodeFlags)> {
        // The number of extents is told and not set.
        let XFlags([bits, extent_bytes, _, project, copy_bytes, ..]) = *self;
        let all = Self::BITS.into_iter().fold(InodeFlags::empty(), |all, (flag, _)| all | flag);
        let set = Self::BITS.into_iter().filter(|(_, bit)| bits & bit != 0);
        let flags = set.fold(InodeFlags::empty(), |flags, (flag, _)| flags | flag);
        let is_known = XFlags::of(flags).0[0] == bits && extent_bytes | project | copy_bytes == 0;
        is_known.then_some((flags, all))
    }
}

/// The extended attribute in which cores keep an inode's [`InodeFlags`], as 4 bytes, little-endian. Programs cannot name it: it is in no
/// namespace of Linux.
pub const FLAGS_XATTR: &[u8] = b"weft.flags";

/// The extended attribute with an inode's [access list](crate::acl).
pub const ACCESS_XATTR: &[u8] = b"system.posix_acl_access";
/// The extended attribute with the list that a directory gives to what is made in it.
pub const DEFAULT_XATTR: &[u8] = b"system.posix_acl_default";

/// What the extended attributes of an inode say that everybody asks for who does something with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// Its flags.
    pub flags: InodeFlags,
    /// It has an access list.
    pub has_acl: bool,
    /// It has a default list.
    pub has_default_acl: bool,
}

impl Marks {
    /// Those of an inode whose extended attributes `get` gives.
    pub fn of<'a>(get: impl Fn(&[u8]) -> Option<&'a [u8]>) -> Marks {
        Marks {
            flags: get(FLAGS_XATTR).map(InodeFlags::from_value).unwrap_or_default(),
            has_acl: get(ACCESS_XATTR).is_some(),
            has_default_acl: get(DEFAULT_XATTR).is_some(),
        }
    }
}

/// An extended attribute and its new value; `None` removes it, if it is there.
pub type XattrChange<'a> = (&'a [u8], Option<&'a [u8]>);

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
    /// What its extended attributes say.
    pub marks: Marks,
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
    /// Extended attributes that it has from its beginning.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
}

impl<'a> CreateArgs<'a> {
    /// A node of the superuser, without a tag and attributes, that is not opened.
    pub fn new(node: NewNode<'a>, perm: u32) -> CreateArgs<'a> {
        CreateArgs { node, perm, uid: 0, gid: 0, tag: Tag::default(), open: false, xattrs: &[] }
    }

    /// The tag that the node's data carries, with what the [flags](FLAGS_XATTR) that it begins with ask for.
    pub fn tag_with_flags(&self) -> Tag {
        let value = self.xattrs.iter().find(|(name, _)| *name == FLAGS_XATTR).map(|(_, value)| *value);
        let asked = value.map(InodeFlags::from_value).unwrap_or_default().of_tag();
        Tag { flags: self.tag.flags | asked, ..self.tag }
    }
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
        /// Leave a whiteout at the old name, in the same step: a character device 0:0 of root without a permission, by which overlay
        /// file systems hide a name of the layer below. Not with `EXCHANGE`.
        const WHITEOUT = 4;
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
