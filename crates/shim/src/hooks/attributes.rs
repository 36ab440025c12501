//! Attributes: reading them, access, space and limits.

use crate::file::atomic::{ATTR_WRITE_ATOMIC, STATX_WRITE_ATOMIC, UNIT_MAX, UNIT_MIN};
use crate::file::batch;
use crate::hooks::change::{NOFOLLOW, SELF, checked};
use crate::process;
use crate::routing::{Last, Place, on_file, on_name, on_path, on_target};
use libc::{c_char, c_int, c_uint};
use weft_client::{Errno, FileRef, InodeFlags, WireAttr, WireStatfs};

/// `f_type` of a weft volume: "weft".
const STATFS_TYPE: i64 = 0x7765_6674;
/// Says that the flags of a `statfs` are filled in; libc has no name for it.
const ST_VALID: u64 = 0x20;
const BLOCK_BYTES: u64 = 4096;
const SECOND_NS: i64 = 1_000_000_000;

/// Puts a value where the program wants it.
unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Errno> {
    if out.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the program promises a place for it.
    unsafe { out.write(value) };
    Ok(())
}

unsafe fn put_stat(attr: &WireAttr, out: *mut libc::stat) -> Result<(), Errno> {
    // SAFETY: an all-zero stat is valid; the program promises a place for it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        stat.st_dev = attr.dev;
        stat.st_ino = attr.ino;
        stat.st_mode = attr.mode;
        stat.st_nlink = attr.links as _;
        stat.st_uid = attr.uid;
        stat.st_gid = attr.gid;
        stat.st_rdev = attr.rdev;
        stat.st_size = attr.size as i64;
        stat.st_blksize = BLOCK_BYTES as _;
        stat.st_blocks = attr.blocks as i64;
        (stat.st_atime, stat.st_atime_nsec) = split(attr.atime_ns);
        (stat.st_mtime, stat.st_mtime_nsec) = split(attr.mtime_ns);
        (stat.st_ctime, stat.st_ctime_nsec) = split(attr.ctime_ns);
        put(out, stat)
    }
}

fn split(ns: i64) -> (i64, i64) {
    (ns.div_euclid(SECOND_NS), ns.rem_euclid(SECOND_NS))
}

unsafe fn put_statx(
    (attr, flags): (WireAttr, InodeFlags),
    atomic: bool,
    out: *mut libc::statx,
) -> Result<(), Errno> {
    let time = |ns| {
        let (seconds, ns) = split(ns);
        // SAFETY: an all-zero timestamp is valid.
        let mut time: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        time.tv_sec = seconds;
        time.tv_nsec = ns as u32;
        time
    };
    // SAFETY: an all-zero statx is valid; the program promises a place for it.
    unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        stat.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        stat.stx_blksize = BLOCK_BYTES as u32;
        stat.stx_attributes = flags.statx_attributes();
        stat.stx_attributes_mask = InodeFlags::all().statx_attributes();
        stat.stx_nlink = attr.links;
        stat.stx_uid = attr.uid;
        stat.stx_gid = attr.gid;
        stat.stx_mode = attr.mode as u16;
        stat.stx_ino = attr.ino;
        stat.stx_size = attr.size;
        stat.stx_blocks = attr.blocks;
        stat.stx_atime = time(attr.atime_ns);
        stat.stx_btime = time(attr.btime_ns);
        stat.stx_ctime = time(attr.ctime_ns);
        stat.stx_mtime = time(attr.mtime_ns);
        stat.stx_rdev_major = libc::major(attr.rdev);
        stat.stx_rdev_minor = libc::minor(attr.rdev);
        stat.stx_dev_major = libc::major(attr.dev);
        stat.stx_dev_minor = libc::minor(attr.dev);
        if atomic {
            stat.stx_mask |= STATX_WRITE_ATOMIC;
            stat.stx_attributes |= ATTR_WRITE_ATOMIC;
            stat.stx_attributes_mask |= ATTR_WRITE_ATOMIC;
            (stat.stx_atomic_write_unit_min, stat.stx_atomic_write_unit_max) = (UNIT_MIN, UNIT_MAX);
            stat.stx_atomic_write_segments_max = 1;
        }
        put(out, stat)
    }
}

unsafe fn put_statfs(space: &WireStatfs, out: *mut libc::statfs) -> Result<(), Errno> {
    // SAFETY: an all-zero statfs is valid; the program promises a place for it. `fsid_t` is two 32-bit words. With 64-bit words
    // the two structures are one; only this one has a name for the flags.
    unsafe {
        let mut stat: libc::statfs64 = std::mem::zeroed();
        stat.f_type = STATFS_TYPE as _;
        stat.f_bsize = BLOCK_BYTES as _;
        stat.f_frsize = BLOCK_BYTES as _;
        stat.f_blocks = space.total_bytes / BLOCK_BYTES;
        stat.f_bfree = space.free_bytes / BLOCK_BYTES;
        stat.f_bavail = stat.f_bfree;
        stat.f_files = space.inodes + space.free_inodes;
        stat.f_ffree = space.free_inodes;
        stat.f_fsid = std::mem::transmute::<u64, libc::fsid_t>(space.fsid);
        stat.f_namelen = 255;
        stat.f_flags = (ST_VALID | space.flags) as _;
        put(out.cast(), stat)
    }
}

unsafe fn put_statvfs(space: &WireStatfs, out: *mut libc::statvfs) -> Result<(), Errno> {
    // SAFETY: an all-zero statvfs is valid; the program promises a place for it.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        stat.f_bsize = BLOCK_BYTES;
        stat.f_frsize = BLOCK_BYTES;
        stat.f_blocks = space.total_bytes / BLOCK_BYTES;
        stat.f_bfree = space.free_bytes / BLOCK_BYTES;
        stat.f_bavail = stat.f_bfree;
        stat.f_files = space.inodes + space.free_inodes;
        stat.f_ffree = space.free_inodes;
        stat.f_favail = space.free_inodes;
        stat.f_fsid = space.fsid;
        stat.f_namemax = 255;
        stat.f_flag = space.flags;
        put(out, stat)
    }
}

unsafe fn fstat_weft(file: FileRef, out: *mut libc::stat) -> Result<(), Errno> {
    let attr = crate::file::attributes(file)?;
    // SAFETY: the caller's promise.
    unsafe { put_stat(&attr, out) }
}

/// Space of the volume, asked by a path: the path must exist.
fn space(place: Place) -> Result<WireStatfs, Errno> {
    place.stat(0)?;
    place.client.statfs()
}

fn space_of(file: FileRef) -> Result<WireStatfs, Errno> {
    let client = process::client()?;
    client.flags(file)?;
    client.statfs()
}

fn access_weft(place: Place, mode: c_int, flags: c_int) -> Result<(), Errno> {
    let mode = checked(mode, libc::R_OK | libc::W_OK | libc::X_OK)?;
    place.access(mode, checked(flags, libc::AT_EACCESS | NOFOLLOW | SELF)?)
}

/// The path of a call that takes none for an empty one, as Linux does since 6.11.
fn or_empty(path: *const c_char, flags: c_int) -> *const c_char {
    if path.is_null() && flags & SELF != 0 { c"".as_ptr() } else { path }
}

/// What `fstatat` and `statx` know: `AT_STATX_FORCE_SYNC` and `AT_STATX_DONT_SYNC` make no difference here.
const STAT_FLAGS: c_int = NOFOLLOW | SELF | libc::AT_NO_AUTOMOUNT | 0x6000;

hooks! {
    fn stat(path: *const c_char, out: *mut libc::stat) -> c_int {
        on_target(path, |path| real::stat(path, out), |place| put_stat(&place.stat(0)?, out))
    }

    fn lstat(path: *const c_char, out: *mut libc::stat) -> c_int {
        on_name(path, |path| real::lstat(path, out), |place| put_stat(&place.stat(NOFOLLOW)?, out))
    }

    fn fstat(fd: c_int, out: *mut libc::stat) -> c_int {
        on_file(fd, || real::fstat(fd, out), |file| fstat_weft(file, out))
    }

    fn fstatat(dirfd: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int {
        let path = or_empty(path, flags);
        on_path(dirfd, path, Last::of(flags), |dirfd, path| real::fstatat(dirfd, path, out, flags), |place| {
            put_stat(&place.stat(checked(flags, STAT_FLAGS)?)?, out)
        })
    }

    fn __xstat(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
        on_target(path, |path| real::__xstat(version, path, out), |place| put_stat(&place.stat(0)?, out))
    }

    fn __lxstat(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
        on_name(path, |path| real::__lxstat(version, path, out), |place| put_stat(&place.stat(NOFOLLOW)?, out))
    }

    fn __fxstat(version: c_int, fd: c_int, out: *mut libc::stat) -> c_int {
        on_file(fd, || real::__fxstat(version, fd, out), |file| fstat_weft(file, out))
    }

    fn __fxstatat(version: c_int, dirfd: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int {
        let real = |dirfd, path| real::__fxstatat(version, dirfd, path, out, flags);
        on_path(dirfd, path, Last::of(flags), real, |place| {
            put_stat(&place.stat(checked(flags, STAT_FLAGS)?)?, out)
        })
    }

    fn statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int {
        let path = or_empty(path, flags);
        on_path(dirfd, path, Last::of(flags), |dirfd, path| real::statx(dirfd, path, flags, mask, out), |place| {
            let known = place.stat_with_flags(checked(flags, STAT_FLAGS)?)?;
            let is_file = known.0.mode & libc::S_IFMT == libc::S_IFREG;
            let atomic = mask & STATX_WRITE_ATOMIC != 0 && is_file && batch::volume_can(process::client()?)?;
            put_statx(known, atomic, out)
        })
    }

    fn access(path: *const c_char, mode: c_int) -> c_int {
        on_target(path, |path| real::access(path, mode), |place| access_weft(place, mode, 0))
    }

    fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        on_path(dirfd, path, Last::of(flags), |dirfd, path| real::faccessat(dirfd, path, mode, flags), |place| {
            access_weft(place, mode, flags)
        })
    }

    fn eaccess(path: *const c_char, mode: c_int) -> c_int {
        on_target(path, |path| real::eaccess(path, mode), |place| access_weft(place, mode, libc::AT_EACCESS))
    }

    fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
        on_target(path, |path| real::euidaccess(path, mode), |place| access_weft(place, mode, libc::AT_EACCESS))
    }

    fn statfs(path: *const c_char, out: *mut libc::statfs) -> c_int {
        on_target(path, |path| real::statfs(path, out), |place| put_statfs(&space(place)?, out))
    }

    fn fstatfs(fd: c_int, out: *mut libc::statfs) -> c_int {
        on_file(fd, || real::fstatfs(fd, out), |file| space_of(file).and_then(|space| put_statfs(&space, out)))
    }

    fn statvfs(path: *const c_char, out: *mut libc::statvfs) -> c_int {
        on_target(path, |path| real::statvfs(path, out), |place| put_statvfs(&space(place)?, out))
    }

    fn fstatvfs(fd: c_int, out: *mut libc::statvfs) -> c_int {
        on_file(fd, || real::fstatvfs(fd, out), |file| space_of(file).and_then(|space| put_statvfs(&space, out)))
    }

    fn fpathconf(fd: c_int, name: c_int) -> libc::c_long {
        on_file(fd, || real::fpathconf(fd, name), |_| path_limit(name).ok_or(libc::EINVAL))
    }

    fn pathconf(path: *const c_char, name: c_int) -> libc::c_long {
        on_target(path, |path| real::pathconf(path, name), |place| {
            place.stat(0)?;
            path_limit(name).ok_or(libc::EINVAL)
        })
    }
}

/// What `pathconf` says of a volume; -1 without an error is "no limit".
fn path_limit(name: c_int) -> Option<libc::c_long> {
    Some(match name {
        libc::_PC_NAME_MAX => 255,
        libc::_PC_PATH_MAX => 4096,
        libc::_PC_LINK_MAX => 65_000,
        libc::_PC_PIPE_BUF => 4096,
        libc::_PC_CHOWN_RESTRICTED | libc::_PC_NO_TRUNC | libc::_PC_2_SYMLINKS => 1,
        libc::_PC_FILESIZEBITS => 64,
        libc::_PC_SYMLINK_MAX => 4095,
        libc::_PC_REC_XFER_ALIGN
        | libc::_PC_REC_MIN_XFER_SIZE
        | libc::_PC_REC_INCR_XFER_SIZE
        | libc::_PC_ALLOC_SIZE_MIN => 4096,
        libc::_PC_MAX_CANON | libc::_PC_MAX_INPUT => 255,
        libc::_PC_VDISABLE => 0,
        libc::_PC_SYNC_IO
        | libc::_PC_ASYNC_IO
        | libc::_PC_PRIO_IO
        | libc::_PC_SOCK_MAXBUF
        | libc::_PC_REC_MAX_XFER_SIZE => -1,
        _ => return None,
    })
}
