//! The kernel's side of FUSE: numbers and structures of `<linux/fuse.h>`, version 7.45, as far as a mount uses them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version that the front speaks; the lower of this and the kernel's minor version counts.
pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 45;
/// Linux 5.13: the oldest that says when set-id bits have to go.
pub const MINOR_MIN: u32 = 33;

/// What the kernel asks for.
pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// What both sides can do (`INIT`).
pub mod can {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const HAS_RESEND: u64 = 1 << 39;
    pub const OVER_IO_URING: u64 = 1 << 41;
    /// No flag of the kernel's: it can be told that no name counts that it has kept ([`super::notice::INC_EPOCH`]).
    pub const INC_EPOCH: u64 = 1 << 63;
}

/// In the number of a request: a server that has ended had read it before.
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// From this minor version on the kernel knows [`notice::INC_EPOCH`].
pub const MINOR_INC_EPOCH: u32 = 44;

/// Fields of [`SetAttrIn`] that count.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// How the kernel treats an open file.
pub mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// A write of the kernel's own, of what it has kept.
pub const WRITE_CACHE: u32 = 1 << 0;
/// The sender of a write may not keep set-id bits.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// The same for a file that is opened and cut.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// The sender of an access list may not keep the set-group-id bit.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// A lock of a whole file, by `flock`.
pub const LK_FLOCK: u32 = 1 << 0;
/// What the kernel is told without being asked.
pub mod notice {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    /// What the kernel keeps of a file is to come as a request ([`super::op::NOTIFY_REPLY`]).
    pub const RETRIEVE: i32 = 5;
    /// Requests that were read and not answered are to be read once more (Linux 6.9).
    pub const RESEND: i32 = 7;
    /// No name that the kernel has kept so far counts (Linux 6.16).
    pub const INC_EPOCH: i32 = 8;
    /// A name is looked up again, and not dropped (Linux 6.2).
    pub const EXPIRE_ONLY: u32 = 1 << 0;
}

/// What a queue of the kernel's is told by io_uring (Linux 6.14).
pub mod ring {
    /// Here is memory for requests.
    pub const REGISTER: u32 = 1;
    /// There lies an answer, and it is free for the next request.
    pub const COMMIT_AND_FETCH: u32 = 2;
}

/// Blocks of an entry of a directory are multiples of this.
pub const DIRENT_ALIGN: usize = 8;

macro_rules! wire {
    ($($name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $(pub $field: $type,)* }
        )*
    };
}

wire! {
    InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        node: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        extensions: u16,
        pad: u16,
    }
    OutHeader {
        len: u32,
        error: i32,
        unique: u64,
    }
    InitIn {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    }
    InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        pad: [u16; 11],
    }
    WireAttr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atime_nsec: u32,
        mtime_nsec: u32,
        ctime_nsec: u32,
        mode: u32,
        links: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        block_bytes: u32,
        flags: u32,
    }
    EntryOut {
        node: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: WireAttr,
    }
    AttrOut {
        valid: u64,
        valid_nsec: u32,
        pad: u32,
        attr: WireAttr,
    }
    StatxTime {
        seconds: i64,
        nanos: u32,
        pad: u32,
    }
    StatxOut {
        valid: u64,
        valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        mask: u32,
        block_bytes: u32,
        attributes: u64,
        links: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        pad: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    ForgetIn {
        lookups: u64,
    }
    ForgetOne {
        node: u64,
        lookups: u64,
    }
    BatchForgetIn {
        count: u32,
        pad: u32,
    }
    SetAttrIn {
        valid: u32,
        pad: u32,
        handle: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atime_nsec: u32,
        mtime_nsec: u32,
        ctime_nsec: u32,
        mode: u32,
        unused: u32,
        uid: u32,
        gid: u32,
        unused2: u32,
    }
    MknodIn {
        mode: u32,
        rdev: u32,
        umask: u32,
        pad: u32,
    }
    MkdirIn {
        mode: u32,
        umask: u32,
    }
    RenameIn {
        new_dir: u64,
    }
    Rename2In {
        new_dir: u64,
        flags: u32,
        pad: u32,
    }
    LinkIn {
        node: u64,
    }
    OpenIn {
        flags: u32,
        open_flags: u32,
    }
    CreateIn {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }
    OpenOut {
        handle: u64,
        how: u32,
        backing: u32,
    }
    ReadIn {
        handle: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        pad: u32,
    }
    WriteIn {
        handle: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        pad: u32,
    }
    WriteOut {
        size: u32,
        pad: u32,
    }
    ReleaseIn {
        handle: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }
    FlushIn {
        handle: u64,
        unused: u32,
        pad: u32,
        lock_owner: u64,
    }
    FsyncIn {
        handle: u64,
        flags: u32,
        pad: u32,
    }
    StatfsOut {
        blocks: u64,
        free: u64,
        available: u64,
        files: u64,
        free_files: u64,
        block_bytes: u32,
        name_max: u32,
        fragment_bytes: u32,
        pad: u32,
        spare: [u32; 6],
    }
    SetxattrIn {
        size: u32,
        flags: u32,
        setxattr_flags: u32,
        pad: u32,
    }
    IoctlIn {
        handle: u64,
        flags: u32,
        command: u32,
        argument: u64,
        in_size: u32,
        out_size: u32,
    }
    IoctlOut {
        result: i32,
        flags: u32,
        in_iovs: u32,
        out_iovs: u32,
    }
    GetxattrIn {
        size: u32,
        pad: u32,
    }
    GetxattrOut {
        size: u32,
        pad: u32,
    }
    LockIn {
        handle: u64,
        owner: u64,
        start: u64,
        end: u64,
        kind: u32,
        pid: u32,
        flags: u32,
        pad: u32,
    }
    LockOut {
        start: u64,
        end: u64,
        kind: u32,
        pid: u32,
    }
    InvalInodeOut {
        ino: u64,
        offset: i64,
        len: i64,
    }
    InvalEntryOut {
        parent: u64,
        name_len: u32,
        flags: u32,
    }
    RetrieveOut {
        unique: u64,
        node: u64,
        offset: u64,
        size: u32,
        pad: u32,
    }
    InterruptIn {
        unique: u64,
    }
    FallocateIn {
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
        pad: u32,
    }
    LseekIn {
        handle: u64,
        offset: u64,
        whence: u32,
        pad: u32,
    }
    LseekOut {
        offset: u64,
    }
    RingHead {
        in_out: [u64; 16],
        op_in: [u64; 16],
        flags: u64,
        commit_id: u64,
        payload_bytes: u32,
        pad: u32,
        reserved: u64,
    }
    RingCommand {
        flags: u64,
        commit_id: u64,
        queue: u16,
        pad: [u16; 3],
    }
    Dirent {
        ino: u64,
        cookie: u64,
        name_len: u32,
        kind: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_kernel() {
        let sizes = [
            size_of::<InHeader>(),
            size_of::<OutHeader>(),
            size_of::<InitOut>(),
            size_of::<EntryOut>(),
            size_of::<AttrOut>(),
            size_of::<StatxOut>(),
            size_of::<SetAttrIn>(),
            size_of::<ReadIn>(),
            size_of::<WriteIn>(),
            size_of::<StatfsOut>(),
            size_of::<LockIn>(),
            size_of::<RingHead>(),
            size_of::<RingCommand>(),
            size_of::<Dirent>(),
        ];
        assert_eq!(sizes, [40, 16, 64, 128, 104, 288, 88, 40, 40, 80, 48, 288, 24, 24]);
    }
}
