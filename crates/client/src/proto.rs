//! The protocol between clients and server.
//!
//! A connection begins with [`Hello`] and [`HelloReply`] on a Unix socket (the reply carries the shared memory's
//! descriptors); after it, the only bytes on the socket are slot numbers that the client uses for the first time, and
//! further hellos, each with a socket of its own for the answer. The socket's end tells each side that the other is gone.
//! Everything else are requests in channel slots.

use bytemuck::{Pod, Zeroable};
use weft_vfs::compound::Access;
use weft_vfs::{Attr, DirEntry};

/// "weftconn" as a number.
pub const HELLO_MAGIC: u64 = u64::from_le_bytes(*b"weftconn");
/// Longest mount point.
pub const MOUNT_POINT_MAX: usize = 256;

/// [`Hello::flags`]: the socket belongs to a process that has become another program by `exec`, which [keeps](Hello::kept) some
/// files.
pub const HELLO_RESUME: u32 = 1;
/// [`Hello::flags`], on a connection's socket: the socket that comes with the hello is a new connection, which begins with
/// this one's open files and identity.
pub const HELLO_CLONE: u32 = 2;
/// [`Hello::flags`], beside [`HELLO_CLONE`]: the new connection is for the program that this process is about to become, which
/// keeps its record locks.
pub const HELLO_HEIR: u32 = 4;
/// [`Hello::flags`], on a connection's socket: the process has another identity, which the kernel vouches for
/// (`SCM_CREDENTIALS`). The answer comes on the socket that comes with the hello.
pub const HELLO_IDENTITY: u32 = 8;
/// [`Hello::flags`], beside [`HELLO_IDENTITY`]: only [`Hello::thread`] has it, and names itself in its requests from then on.
pub const HELLO_THREAD: u32 = 16;

/// [`Hello::flags`], beside [`HELLO_CLONE`]: nothing is answered. Whoever has the new connection asks for its memory, as the
/// process that it is ([`HELLO_MEMORY`]), or as a program that was executed ([`HELLO_RESUME`]).
pub const HELLO_QUIET: u32 = 32;
/// [`Hello::flags`], on a connection's socket that was made [quietly](HELLO_QUIET): the child wants its memory.
pub const HELLO_MEMORY: u32 = 64;
/// [`Hello::flags`], on a connection's socket: the process gives the memory of its leases up.
pub const HELLO_UNLEASED: u32 = 128;
/// [`Hello::flags`], beside others, on a connection's socket: the client has no descriptors for a socket of the answer's own, so the
/// answer comes here. The descriptor that comes with the hello is proof of intent only; the server drops it. With [`HELLO_CLONE`], the
/// answer brings the socket of the new connection.
pub const HELLO_HERE: u32 = 256;

/// An argument of [`Op::Write`]: the first piece of a long write, which ends with [`LONG_ENDS`], an error or a piece that is
/// taken in part.
pub const LONG_BEGINS: u64 = 1;
/// Another piece of it.
pub const LONG_GOES_ON: u64 = 2;
/// The last one.
pub const LONG_ENDS: u64 = 3;
/// A piece of a long write that the client [holds](crate::shared::volume::Inode::long_write) by itself.
pub const LONG_HELD: u64 = 4;

/// A client's first message.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct Hello {
    /// [`HELLO_MAGIC`].
    pub magic: u64,
    /// [`crate::shared::VERSION`].
    pub version: u32,
    /// [`HELLO_RESUME`] and its kin; 0 in the first hello on a new socket. All others come with a socket for the answer.
    pub flags: u32,
    /// Bytes of `mount_point` in use. A larger number than its size has a meaning with [`HELLO_RESUME`]: see [`Hello::kept`].
    pub mount_point_len: u32,
    /// The thread whose identity counts; 0 for the process's first one, and with [`HELLO_CLONE`] for those that have not said
    /// that theirs is another than the process's.
    pub thread: u32,
    /// Process name.
    pub comm: [u8; 16],
    /// Where the volume appears to the client. With [`HELLO_RESUME`]: the files that the program keeps.
    pub mount_point: [u8; MOUNT_POINT_MAX],
}

impl Hello {
    /// With [`HELLO_RESUME`]: a reference to each of `files` is kept, and all others are given back. `false` when so many do not
    /// fit; then nothing is given back before [`Op::Retain`].
    pub fn keep(&mut self, files: &[FileRef]) -> bool {
        let (places, _) = self.mount_point.as_chunks_mut::<8>();
        let fits = files.len() <= places.len();
        if fits {
            places.iter_mut().zip(files).for_each(|(place, file)| *place = file.0.to_le_bytes());
        }
        self.mount_point_len = if fits { size_of_val(files) as u32 } else { u32::MAX };
        fits
    }

    /// What [`keep`](Self::keep) has stored, if it has.
    pub fn kept(&self) -> Option<impl Iterator<Item = FileRef>> {
        let files = self.mount_point.get(..self.mount_point_len as usize)?;
        Some(files.as_chunks::<8>().0.iter().map(|file| FileRef(u64::from_le_bytes(*file))))
    }
}

/// The image may be mapped.
pub const IMAGE_MAPPABLE: u32 = 1;
/// In place of the image comes what the server caches of it ([`weft_core::cached`]).
pub const IMAGE_IS_CACHE: u32 = 2;

/// The server's answer. With it come the channel's descriptor and, when `leases` is set, those of control, map, CRC
/// table, rings and image, in this order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct HelloReply {
    /// 0, or an errno.
    pub status: i32,
    /// Number of the connection.
    pub connection: u32,
    /// Whether the client may read and append without the server.
    pub leases: u32,
    /// 0: the image is read by `pread`; [`IMAGE_MAPPABLE`]; [`IMAGE_IS_CACHE`].
    pub image_mappable: u32,
    /// Bytes of the image up to the end of its data area, or of the cache.
    pub image_bytes: u64,
    /// Tells the volume from others in names outside it, whoever serves it.
    pub volume_id: u64,
    /// Tells this server from others, of other volumes and of this one before and later: open files are its own.
    pub session: u64,
}

/// A reference to an open file: slot number in the low half, generation in the high half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRef(pub u64);

impl FileRef {
    /// The volume's root as the base of a path.
    pub const ROOT: FileRef = FileRef(u64::MAX);

    /// From slot and generation.
    pub fn new(slot: u32, generation: u32) -> FileRef {
        FileRef(u64::from(generation) << 32 | u64::from(slot))
    }

    /// Number of the slot in the table.
    pub fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Generation of the slot when the reference was made.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Of [`Op::Close`]: nothing is given back, but an inode may be open no more.
pub const CLOSE_SETTLE: u64 = 2;
/// As an offset: at the open file's own offset, which advances.
pub const AT_FILE_OFFSET: u64 = u64::MAX;

/// Whether a file that was opened with these flags can be read. Access mode 3 allows neither reading nor writing, and
/// `O_PATH` nothing at all.
pub fn is_readable(flags: i32) -> bool {
    flags & libc::O_PATH == 0 && matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR)
}

/// Whether a file that was opened with these flags can be written.
pub fn is_writable(flags: i32) -> bool {
    flags & libc::O_PATH == 0 && matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
}

/// What a program may do with a file that is given with it and was opened with these flags.
pub fn access_of(flags: i32) -> Access {
    match (is_readable(flags), is_writable(flags)) {
        (true, true) => Access::ReadWrite,
        (true, false) => Access::Read,
        (false, true) => Access::Write,
        (false, false) => Access::Path,
    }
}

/// The negated `ret` of a path that leaves the volume through a symlink; [`Op::Resolve`] tells where to.
pub const OUTSIDE: i32 = 0x1_0000;
/// The negated `ret` of a lock that others hold: the client sleeps on [`crate::shared::channel::Events::turn`], as it was
/// before it asked, and asks again.
pub const ASK_AGAIN: i32 = 0x1_0001;
/// The negated `ret` of a request by a thread whose identity the server does not know (any more): the client tells it
/// ([`HELLO_THREAD`]) and asks again.
pub const IDENTITY_UNKNOWN: i32 = 0x1_0002;

/// The negated `ret` of runs of programs one of which the server does not keep.
pub const PROGRAM_UNKNOWN: i32 = 0x1_0003;

/// Where a mode that somebody asks for holds the umask, which a directory may replace by its default list.
const UMASK_SHIFT: u32 = 16;

/// A mode of what is to be made, with the umask of who makes it.
pub fn with_umask(mode: u32, umask: u32) -> u32 {
    mode & 0xffff | (umask & 0o777) << UMASK_SHIFT
}

/// The permission bits of such a mode, and the umask.
pub fn split_mode(mode: u32) -> (u32, u32) {
    (mode & 0o7777, mode >> UMASK_SHIFT & 0o777)
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a request asks for. `at` is a [`FileRef`] of a directory or [`FileRef::ROOT`]; "path" is payload part 1, "path2"
        /// part 2. A path that begins with `/` starts at the volume's root.
        #[repr(u32)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Op { $($(#[$doc])* $name = $number,)* }

        impl Op {
            /// The operation with this number.
            pub fn from_u32(number: u32) -> Option<Op> {
                match number { $($number => Some(Op::$name),)* _ => None }
            }
        }
    };
}

/// Topic of [`Op::Inspect`]: what the volume has counted.
pub const INSPECT_SNAPSHOT: u64 = 0;
/// Topic of [`Op::Inspect`]: its zones, in parts.
pub const INSPECT_ZONES: u64 = 1;

pub use weft_vfs::compound::PROGRAM_BYTES_MAX;

/// A path that means the open file that it would start from, whatever its name is by now: no name contains NUL.
pub const ITSELF: &[u8] = b"\0";

ops! {
    /// at, flags, mode ([with umask](with_umask)), thread id; path, thread name -> slot; values: file, inode slot, `st_mode`.
    Open = 1,
    /// file, 0 or 1 when no descriptor is closed (record locks stay): gives back one reference. With [`CLOSE_SETTLE`], inode slot:
    /// the process has closed a file of the inode by itself.
    Close = 2,
    /// file: one more reference (a duplicated descriptor).
    Ref = 3,
    /// file, offset or [`AT_FILE_OFFSET`], length, want map, not an access, length of this and further calls -> bytes in the
    /// payload, where they begin, how far the file offset moves (over what all of these calls read).
    Read = 4,
    /// file, offset or [`AT_FILE_OFFSET`], in place, part of a long write ([`LONG_BEGINS`] and its kin; 0 = no part of one); data ->
    /// bytes taken. In place: at the offset even with `O_APPEND`, and
    /// only what lies below the file's end; with a second part, of the same length, only the bytes in which they differ.
    Write = 5,
    /// file -> 1 when the inode has a ring now.
    Lease = 6,
    /// file: flushes the ring so that it has room.
    Drain = 7,
    /// file.
    Fsync = 8,
    /// at, `AT_` flags; path (empty with `AT_EMPTY_PATH`: `at` itself) -> [`WireAttr`] in the payload; value: [`weft_vfs::InodeFlags`].
    Stat = 9,
    /// at, `AT_` flags, mask (1 mode, 2 uid, 4 gid, 8 atime, 16 mtime, 32 size, 64 both times to the present), mode,
    /// uid << 32 | gid (the highest numbers: as they are), atime, mtime, size; path.
    SetAttr = 10,
    /// at, mode ([with umask](with_umask)); path.
    Mkdir = 11,
    /// at, `AT_REMOVEDIR` or 0; path.
    Unlink = 12,
    /// at, at2, `RENAME_` flags; path, path2.
    Rename = 13,
    /// at, at2, `AT_` flags; path, path2.
    Link = 14,
    /// at; target, path2.
    Symlink = 15,
    /// at; path -> target in the payload.
    Readlink = 16,
    /// at, mode with type ([and umask](with_umask)), device number; path.
    Mknod = 17,
    /// file, cookie -> [`WireDirent`]s in the payload; 0 bytes at the end.
    ReadDir = 18,
    /// file, mode, offset, length.
    Fallocate = 19,
    /// file, offset, whence -> new offset.
    Seek = 20,
    /// at, `AT_` flags; path, attribute name -> value in the payload.
    GetXattr = 21,
    /// at, `AT_` flags, `XATTR_` flags, bytes of the name; path, name followed by value.
    SetXattr = 22,
    /// at, `AT_` flags; path -> NUL-terminated names in the payload.
    ListXattr = 23,
    /// at, `AT_` flags; path, attribute name.
    RemoveXattr = 24,
    /// -> [`WireStatfs`] in the payload.
    Statfs = 25,
    /// file, `LOCK_` operation, the thread that waits (without `LOCK_NB`).
    Flock = 26,
    /// file, command (`F_GETLK`, `F_SETLK`, `F_SETLKW` and the `OFD` ones), type, start, length (0 = to the end), pid, the
    /// thread that waits (with `F_SETLKW` and its kin) -> values: type, start, length, pid of the lock in the way.
    PosixLock = 27,
    /// at, mode, `AT_` flags; path.
    Access = 28,
    /// at, `AT_` flags, dots by text; path -> ret 0: canonical path in the volume; ret 1: path outside.
    Resolve = 29,
    /// file -> its path in the volume now; ret 1, with ` (deleted)` behind the path it had, when its name is gone.
    PathOf = 30,
    /// 0, or 1 and a file (`syncfs`): makes everything durable; reports failed write-backs to the file.
    Sync = 31,
    /// `FileRef`s (8 bytes each) that the process holds after `exec`, with multiplicity; all others are given back.
    Retain = 32,
    /// A line for the report: something that was asked for and refused.
    Note = 33,
    /// file, flags: `fcntl(F_SETFL)`.
    SetFlags = 34,
    /// file -> value: `open` flags.
    GetFlags = 35,
    /// at, `AT_` flags: a file without a name gets one (`linkat` of a descriptor); path2.
    LinkFile = 36,
    /// file, lifetime hint (`RWH_` values): what the program told with `fcntl(F_SET_RW_HINT)`.
    SetHint = 37,
    /// topic, from: what the volume's owner tells of it -> where to go on (0 = that was all), text in the payload. The
    /// topics are the owner's.
    Inspect = 38,
    /// thread: it does not wait for a lock any more.
    Withdraw = 39,
    /// file -> value: a secret. The server keeps a reference to the file for whoever tells it the secret.
    Pass = 40,
    /// file, secret, 1 to leave it for another one who takes: the reference is the process's from now on.
    Take = 41,
    /// at, `AT_` flags, [`weft_vfs::InodeFlags`], those that change; path.
    SetInodeFlags = 42,
    /// at, umask, thread id, bytes of the program in all, where this piece of it begins, number of files that are given with it, 0 or a
    /// number; a piece of a [`Program`](weft_vfs::compound::Program), those files (8 bytes each) and the thread's name -> with the last
    /// piece: the first piece of the [`Answer`](weft_vfs::compound::Answer); value: its bytes in all. With a number, the program is not run
    /// but kept under it. All by one slot.
    Do = 43,
    /// where: the next piece of the answer, by the same slot.
    DoRest = 44,
    /// at, umask, thread id; [`Run`](weft_vfs::compound::Run)s of programs that are kept, and the thread's name -> the first piece of their
    /// answers, each behind its length (32 bits); values: their bytes in all, and how many were run: the rest would make the answers too
    /// long. Fails with [`PROGRAM_UNKNOWN`] when one of the programs is not kept (any more); none is run then.
    DoKept = 45,
}

/// Attributes of a file.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
pub struct WireAttr {
    /// Inode number.
    pub ino: u64,
    /// `st_mode`.
    pub mode: u32,
    /// Links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// 512-byte units.
    pub blocks: u64,
    /// Last access, nanoseconds since 1970.
    pub atime_ns: i64,
    /// Last change of the data.
    pub mtime_ns: i64,
    /// Last change of the inode.
    pub ctime_ns: i64,
    /// Creation.
    pub btime_ns: i64,
    /// `st_dev`: the same for all files of a volume.
    pub dev: u64,
}

impl WireAttr {
    /// These attributes of a file of a volume whose `st_dev` is `dev`.
    pub fn of(attr: &Attr, dev: u64) -> WireAttr {
        WireAttr {
            ino: attr.ino.0,
            mode: attr.mode(),
            links: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: attr.size,
            blocks: attr.blocks,
            atime_ns: attr.atime.0,
            mtime_ns: attr.mtime.0,
            ctime_ns: attr.ctime.0,
            btime_ns: attr.btime.0,
            dev,
        }
    }
}

/// Head of a directory entry in a [`Op::ReadDir`] payload; the name follows, padded to 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct WireDirent {
    /// Inode number.
    pub ino: u64,
    /// Continue after this entry with it.
    pub cookie: u64,
    /// `DT_` type.
    pub kind: u32,
    /// Bytes of the name.
    pub name_len: u32,
}

impl WireDirent {
    /// Bytes of an entry with a name of this length.
    pub fn len_with(name_len: usize) -> usize {
        (size_of::<WireDirent>() + name_len).next_multiple_of(8)
    }

    /// Writes an entry and its name to the beginning of `out`. Returns the bytes; `None` when there is no room.
    pub fn write(entry: &DirEntry<'_>, out: &mut [u8]) -> Option<usize> {
        let DirEntry { name, ino, kind, cookie } = *entry;
        let kind = kind.dirent_type().into();
        let wire = WireDirent { ino: ino.0, cookie, kind, name_len: name.len() as u32 };
        let len = Self::len_with(name.len());
        let (head, rest) = out.get_mut(..len)?.split_at_mut(size_of::<WireDirent>());
        let (text, padding) = rest.split_at_mut(name.len());
        head.copy_from_slice(bytemuck::bytes_of(&wire));
        text.copy_from_slice(name);
        padding.fill(0);
        Some(len)
    }

    /// The first of some entries, its name, and the others.
    pub fn split_first(entries: &[u8]) -> Option<(WireDirent, &[u8], &[u8])> {
        let (head, after) = entries.split_at_checked(size_of::<WireDirent>())?;
        let head: WireDirent = bytemuck::pod_read_unaligned(head);
        let name = after.get(..head.name_len as usize)?;
        Some((head, name, entries.get(Self::len_with(name.len())..)?))
    }
}

/// Space and inodes of the volume.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct WireStatfs {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes free.
    pub free_inodes: u64,
    /// Identity of the volume.
    pub fsid: u64,
    /// `ST_RDONLY` when nothing can be changed, or 0.
    pub flags: u64,
}
