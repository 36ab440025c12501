//! Attributes, permissions, times, space, extended attributes.

use crate::route::{Last, fail, finish, on_path};
use crate::{process, sys, table};
use libc::{
    c_char, c_int, c_uint, c_void, dev_t, gid_t, mode_t, size_t, ssize_t, timespec, timeval, uid_t, utimbuf,
};
use weft_client::{AttrChange, Client, Errno, FileRef, WireAttr, WireStatfs};

/// `f_type` of a weft volume: "weft".
const STATFS_TYPE: i64 = 0x7765_6674;
/// Says that the flags of a `statfs` are filled in; libc has no name for it.
const ST_VALID: u64 = 0x20;
const BLOCK_BYTES: u64 = 4096;
const SECOND_NS: i64 = 1_000_000_000;

unsafe fn put_stat(attr: &WireAttr, out: *mut libc::stat) -> Result<c_int, Errno> {
    if out.is_null() {
        return Err(libc::EFAULT);
    }
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
        out.write(stat);
    }
    Ok(0)
}

fn split(ns: i64) -> (i64, i64) {
    (ns.div_euclid(SECOND_NS), ns.rem_euclid(SECOND_NS))
}

unsafe fn put_statx(attr: &WireAttr, out: *mut libc::statx) -> Result<c_int, Errno> {
    let time = |ns| {
        let (seconds, ns) = split(ns);
        // SAFETY: an all-zero timestamp is valid.
        let mut time: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        time.tv_sec = seconds;
        time.tv_nsec = ns as u32;
        time
    };
    if out.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: an all-zero statx is valid; the program promises a place for it.
    unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        stat.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        stat.stx_blksize = BLOCK_BYTES as u32;
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
        out.write(stat);
    }
    Ok(0)
}

unsafe fn put_statfs(space: &WireStatfs, out: *mut libc::statfs) -> Result<c_int, Errno> {
    if out.is_null() {
        return Err(libc::EFAULT);
    }
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
        out.cast::<libc::statfs64>().write(stat);
    }
    Ok(0)
}

unsafe fn put_statvfs(space: &WireStatfs, out: *mut libc::statvfs) -> Result<c_int, Errno> {
    if out.is_null() {
        return Err(libc::EFAULT);
    }
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
        out.write(stat);
    }
    Ok(0)
}

unsafe fn fstat_weft(file: FileRef, out: *mut libc::stat) -> Result<c_int, Errno> {
    let attr = process::client()?.fstat(file)?;
    // SAFETY: the caller's promise.
    unsafe { put_stat(&attr, out) }
}

/// Space of the volume, asked by a path: the path must exist.
fn space(client: &Client, at: FileRef, path: &[u8]) -> Result<WireStatfs, Errno> {
    client.stat(at, path, 0)?;
    client.statfs()
}

fn space_of(file: FileRef) -> Result<WireStatfs, Errno> {
    let client = process::client()?;
    client.flags(file)?;
    client.statfs()
}

fn owner(uid: uid_t, gid: gid_t) -> AttrChange {
    AttrChange { uid: Some(uid), gid: Some(gid), ..Default::default() }
}

fn permissions(mode: mode_t) -> AttrChange {
    AttrChange { mode: Some(mode & 0o7777), ..Default::default() }
}

fn change(
    client: &Client,
    at: FileRef,
    path: &[u8],
    flags: c_int,
    change: &AttrChange,
) -> Result<c_int, Errno> {
    client.set_attr(at, path, flags, change).map(|()| 0)
}

/// The client, for what needs more than the name that `O_PATH` opens.
fn client_for_data(file: FileRef) -> Result<&'static Client, Errno> {
    let client = process::client()?;
    if client.flags(file)? & libc::O_PATH != 0 { Err(libc::EBADF) } else { Ok(client) }
}

fn change_mode(
    client: &Client,
    at: FileRef,
    path: &[u8],
    flags: c_int,
    mode: mode_t,
) -> Result<c_int, Errno> {
    let flags = checked(flags, NOFOLLOW)?;
    // As in Linux, symlinks have no permissions of their own.
    if flags & NOFOLLOW != 0 && client.stat(at, path, NOFOLLOW)?.mode & libc::S_IFMT == libc::S_IFLNK {
        return Err(libc::EOPNOTSUPP);
    }
    change(client, at, path, flags, &permissions(mode))
}

fn access_weft(client: &Client, at: FileRef, path: &[u8], mode: c_int, flags: c_int) -> Result<c_int, Errno> {
    let mode = checked(mode, libc::R_OK | libc::W_OK | libc::X_OK)?;
    let flags = checked(flags, libc::AT_EACCESS | NOFOLLOW | SELF)?;
    client.access(at, path, mode, flags).map(|()| 0)
}

/// A time that is none is told after what is wrong with the path, as in Linux.
fn change_times(
    client: &Client,
    at: FileRef,
    path: &[u8],
    flags: c_int,
    times: Result<AttrChange, Errno>,
) -> Result<c_int, Errno> {
    match times {
        Ok(times) => change(client, at, path, flags, &times),
        Err(error) => client.stat(at, path, flags).and(Err(error)),
    }
}

/// Flags of a call, when it knows all of them.
fn checked(flags: c_int, known: c_int) -> Result<c_int, Errno> {
    if flags & !known == 0 { Ok(flags) } else { Err(libc::EINVAL) }
}

fn change_open(file: FileRef, change: &AttrChange) -> Result<c_int, Errno> {
    client_for_data(file)?.set_attr(file, b"", libc::AT_EMPTY_PATH, change).map(|()| 0)
}

/// Access and modification time as `utimensat` takes them; null means now.
unsafe fn times(times: *const timespec) -> Result<AttrChange, Errno> {
    // Both to the present is another right than that to set times, so the server must see it as such.
    let present = AttrChange { touch: true, ..Default::default() };
    if times.is_null() {
        return Ok(present);
    }
    let now = weft_client::sys::coarse_now_ns();
    let one = |time: timespec| match time.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(Some(now)),
        ns if (0..SECOND_NS).contains(&ns) => {
            Ok(Some(time.tv_sec.saturating_mul(SECOND_NS).saturating_add(ns)))
        }
        _ => Err(libc::EINVAL),
    };
    // SAFETY: the program promises two timespecs.
    let (access, modified) = unsafe { (*times, *times.add(1)) };
    if access.tv_nsec == libc::UTIME_NOW && modified.tv_nsec == libc::UTIME_NOW {
        return Ok(present);
    }
    Ok(AttrChange { atime_ns: one(access)?, mtime_ns: one(modified)?, ..Default::default() })
}

/// Whether neither time is to change: then, as in Linux, nothing else is looked at.
unsafe fn omits_both(times: *const timespec) -> bool {
    // SAFETY: null, or two timespecs by the program's promise.
    !times.is_null() && unsafe { [*times, *times.add(1)] }.iter().all(|time| time.tv_nsec == libc::UTIME_OMIT)
}

/// The same, of `utimes`.
unsafe fn times_of_timeval(values: *const timeval) -> Result<AttrChange, Errno> {
    if values.is_null() {
        // SAFETY: null means now.
        return unsafe { times(std::ptr::null()) };
    }
    let spec = |value: timeval| match value.tv_usec {
        us if (0..1_000_000).contains(&us) => Ok(timespec { tv_sec: value.tv_sec, tv_nsec: us * 1000 }),
        _ => Err(libc::EINVAL),
    };
    // SAFETY: the program promises two timevals.
    let specs = unsafe { [spec(*values)?, spec(*values.add(1))?] };
    // SAFETY: two timespecs.
    unsafe { times(specs.as_ptr()) }
}

/// Longest name of an extended attribute, in bytes.
const ATTRIBUTE_NAME_MAX: usize = 255;

unsafe fn attribute_name<'a>(name: *const c_char) -> Result<&'a [u8], Errno> {
    // SAFETY: a C string, when it is not null.
    let name = if name.is_null() { return Err(libc::EFAULT) } else { unsafe { sys::bytes(name) } };
    if name.is_empty() || name.len() > ATTRIBUTE_NAME_MAX { Err(libc::ERANGE) } else { Ok(name) }
}

/// The client, for a call on an open file with an attribute's name, which Linux looks at first.
unsafe fn data_after_name(file: FileRef, name: *const c_char) -> Result<&'static Client, Errno> {
    // SAFETY: a C string, when it is not null.
    unsafe { attribute_name(name)? };
    client_for_data(file)
}

/// Most bytes of an attribute's value and of a list of names, as in Linux.
const XATTR_BYTES_MAX: usize = 65536;

unsafe fn value_room<'a>(value: *mut c_void, len: size_t) -> &'a mut [u8] {
    if value.is_null() || len == 0 {
        // Length 0 asks for the length only.
        &mut []
    } else {
        // SAFETY: the program promises `len` writable bytes; no value and no list has more than this.
        unsafe { std::slice::from_raw_parts_mut(value.cast(), len.min(XATTR_BYTES_MAX)) }
    }
}

unsafe fn value_given<'a>(value: *const c_void, len: size_t) -> &'a [u8] {
    // SAFETY: the program promises `len` readable bytes.
    if value.is_null() || len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(value.cast(), len) } }
}

unsafe fn get_xattr(
    client: &Client,
    at: FileRef,
    path: &[u8],
    flags: c_int,
    name: *const c_char,
    value: *mut c_void,
    len: size_t,
) -> Result<ssize_t, Errno> {
    // SAFETY: the caller's promises.
    let (name, out) = unsafe { (attribute_name(name)?, value_room(value, len)) };
    client.get_xattr(at, path, flags, name, out).map(|n| n as ssize_t)
}

#[allow(clippy::too_many_arguments)]
unsafe fn set_xattr(
    client: &Client,
    at: FileRef,
    path: &[u8],
    flags: c_int,
    name: *const c_char,
    value: *const c_void,
    len: size_t,
    how: c_int,
) -> Result<c_int, Errno> {
    let how = checked(how, libc::XATTR_CREATE | libc::XATTR_REPLACE)?;
    // SAFETY: the caller's promises.
    let name = unsafe { attribute_name(name)? };
    if len > XATTR_BYTES_MAX {
        return Err(libc::E2BIG);
    }
    // SAFETY: as above.
    let value = unsafe { value_given(value, len) };
    client.set_xattr(at, path, flags, name, value, how).map(|()| 0)
}

unsafe fn list_xattr(
    client: &Client,
    at: FileRef,
    path: &[u8],
    flags: c_int,
    list: *mut c_char,
    len: size_t,
) -> Result<ssize_t, Errno> {
    // SAFETY: the caller's promise.
    let out = unsafe { value_room(list.cast(), len) };
    client.list_xattr(at, path, flags, out).map(|n| n as ssize_t)
}

/// The path of a call that takes none for an empty one, as Linux does since 6.11.
fn or_empty(path: *const c_char, flags: c_int) -> *const c_char {
    if path.is_null() && flags & SELF != 0 { c"".as_ptr() } else { path }
}

/// What `fstatat` and `statx` know: `AT_STATX_FORCE_SYNC` and `AT_STATX_DONT_SYNC` make no difference here.
const STAT_FLAGS: c_int = NOFOLLOW | SELF | libc::AT_NO_AUTOMOUNT | 0x6000;
const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
const CWD: c_int = libc::AT_FDCWD;
const SELF: c_int = libc::AT_EMPTY_PATH;

hooks! {
    fn stat(path: *const c_char, out: *mut libc::stat) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::stat(path, out), |client, at, path| {
            put_stat(&client.stat(at, path, 0)?, out)
        })
    }

    fn lstat(path: *const c_char, out: *mut libc::stat) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lstat(path, out), |client, at, path| {
            put_stat(&client.stat(at, path, NOFOLLOW)?, out)
        })
    }

    fn fstat(fd: c_int, out: *mut libc::stat) -> c_int {
        match table::get(fd) {
            None => real::fstat(fd, out),
            Some(file) => finish(fstat_weft(file, out)),
        }
    }

    fn fstatat(dirfd: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int {
        let path = or_empty(path, flags);
        let last = Last::from_at_flags(flags);
        on_path(dirfd, path, last, |dirfd, path| real::fstatat(dirfd, path, out, flags), |client, at, path| {
            put_stat(&client.stat(at, path, checked(flags, STAT_FLAGS)?)?, out)
        })
    }

    fn __xstat(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::__xstat(version, path, out), |client, at, path| {
            put_stat(&client.stat(at, path, 0)?, out)
        })
    }

    fn __lxstat(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::__lxstat(version, path, out), |client, at, path| {
            put_stat(&client.stat(at, path, NOFOLLOW)?, out)
        })
    }

    fn __fxstat(version: c_int, fd: c_int, out: *mut libc::stat) -> c_int {
        match table::get(fd) {
            None => real::__fxstat(version, fd, out),
            Some(file) => finish(fstat_weft(file, out)),
        }
    }

    fn __fxstatat(version: c_int, dirfd: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int {
        let last = Last::from_at_flags(flags);
        on_path(
            dirfd,
            path,
            last,
            |dirfd, path| real::__fxstatat(version, dirfd, path, out, flags),
            |client, at, path| put_stat(&client.stat(at, path, checked(flags, STAT_FLAGS)?)?, out),
        )
    }

    fn statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int {
        let path = or_empty(path, flags);
        let last = Last::from_at_flags(flags);
        on_path(dirfd, path, last, |dirfd, path| real::statx(dirfd, path, flags, mask, out), |client, at, path| {
            put_statx(&client.stat(at, path, checked(flags, STAT_FLAGS)?)?, out)
        })
    }

    fn access(path: *const c_char, mode: c_int) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::access(path, mode), |client, at, path| {
            access_weft(client, at, path, mode, 0)
        })
    }

    fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        let last = Last::from_at_flags(flags);
        on_path(dirfd, path, last, |dirfd, path| real::faccessat(dirfd, path, mode, flags), |client, at, path| {
            access_weft(client, at, path, mode, flags)
        })
    }

    fn eaccess(path: *const c_char, mode: c_int) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::eaccess(path, mode), |client, at, path| {
            access_weft(client, at, path, mode, libc::AT_EACCESS)
        })
    }

    fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::euidaccess(path, mode), |client, at, path| {
            access_weft(client, at, path, mode, libc::AT_EACCESS)
        })
    }

    fn statfs(path: *const c_char, out: *mut libc::statfs) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::statfs(path, out), |client, at, path| {
            put_statfs(&space(client, at, path)?, out)
        })
    }

    fn fstatfs(fd: c_int, out: *mut libc::statfs) -> c_int {
        match table::get(fd) {
            None => real::fstatfs(fd, out),
            Some(file) => finish(space_of(file).and_then(|space| put_statfs(&space, out))),
        }
    }

    fn statvfs(path: *const c_char, out: *mut libc::statvfs) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::statvfs(path, out), |client, at, path| {
            put_statvfs(&space(client, at, path)?, out)
        })
    }

    fn fstatvfs(fd: c_int, out: *mut libc::statvfs) -> c_int {
        match table::get(fd) {
            None => real::fstatvfs(fd, out),
            Some(file) => finish(space_of(file).and_then(|space| put_statvfs(&space, out))),
        }
    }

    fn chmod(path: *const c_char, mode: mode_t) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::chmod(path, mode), |client, at, path| {
            change(client, at, path, 0, &permissions(mode))
        })
    }

    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        match table::get(fd) {
            None => real::fchmod(fd, mode),
            Some(file) => finish(change_open(file, &permissions(mode))),
        }
    }

    fn fchmodat(dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        let last = Last::from_at_flags(flags);
        on_path(dirfd, path, last, |dirfd, path| real::fchmodat(dirfd, path, mode, flags), |client, at, path| {
            change_mode(client, at, path, flags, mode)
        })
    }

    fn lchmod(path: *const c_char, mode: mode_t) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lchmod(path, mode), |client, at, path| {
            change_mode(client, at, path, NOFOLLOW, mode)
        })
    }

    fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::chown(path, uid, gid), |client, at, path| {
            change(client, at, path, 0, &owner(uid, gid))
        })
    }

    fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lchown(path, uid, gid), |client, at, path| {
            change(client, at, path, NOFOLLOW, &owner(uid, gid))
        })
    }

    fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
        match table::get(fd) {
            None => real::fchown(fd, uid, gid),
            Some(file) => finish(change_open(file, &owner(uid, gid))),
        }
    }

    fn fchownat(dirfd: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
        let last = Last::from_at_flags(flags);
        on_path(dirfd, path, last, |dirfd, path| real::fchownat(dirfd, path, uid, gid, flags), |client, at, path| {
            change(client, at, path, checked(flags, NOFOLLOW | SELF)?, &owner(uid, gid))
        })
    }

    fn utimensat(dirfd: c_int, path: *const c_char, when: *const timespec, flags: c_int) -> c_int {
        if path.is_null() {
            // For libc this is an error; `futimens` is the function for descriptors.
            return real::utimensat(dirfd, path, when, flags);
        }
        let last = Last::from_at_flags(flags);
        on_path(dirfd, path, last, |dirfd, path| real::utimensat(dirfd, path, when, flags), |client, at, path| {
            if omits_both(when) {
                return Ok(0);
            }
            change_times(client, at, path, checked(flags, NOFOLLOW | SELF)?, times(when))
        })
    }

    fn futimens(fd: c_int, when: *const timespec) -> c_int {
        match table::get(fd) {
            None => real::futimens(fd, when),
            Some(_) if omits_both(when) => 0,
            Some(file) => finish(
                client_for_data(file).and_then(|_| times(when)).and_then(|times| change_open(file, &times)),
            ),
        }
    }

    fn utimes(path: *const c_char, when: *const timeval) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::utimes(path, when), |client, at, path| {
            change_times(client, at, path, 0, times_of_timeval(when))
        })
    }

    fn lutimes(path: *const c_char, when: *const timeval) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lutimes(path, when), |client, at, path| {
            change_times(client, at, path, NOFOLLOW, times_of_timeval(when))
        })
    }

    fn futimes(fd: c_int, when: *const timeval) -> c_int {
        match table::get(fd) {
            None => real::futimes(fd, when),
            Some(file) => finish(
                client_for_data(file).and_then(|_| times_of_timeval(when)).and_then(|times| change_open(file, &times)),
            ),
        }
    }

    fn futimesat(dirfd: c_int, path: *const c_char, when: *const timeval) -> c_int {
        if path.is_null() && table::is_weft(dirfd) {
            return body::futimes(dirfd, when);
        }
        on_path(dirfd, path, Last::Follow, |dirfd, path| real::futimesat(dirfd, path, when), |client, at, path| {
            change_times(client, at, path, 0, times_of_timeval(when))
        })
    }

    fn utime(path: *const c_char, when: *const utimbuf) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::utime(path, when), |client, at, path| {
            let times = match when.as_ref() {
                None => times(std::ptr::null())?,
                Some(when) => {
                    let spec = |tv_sec| timespec { tv_sec, tv_nsec: 0 };
                    times([spec(when.actime), spec(when.modtime)].as_ptr())?
                }
            };
            change(client, at, path, 0, &times)
        })
    }

    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        on_path(CWD, path, Last::Follow, |_, path| real::getxattr(path, name, value, len), |client, at, path| {
            get_xattr(client, at, path, 0, name, value, len)
        })
    }

    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lgetxattr(path, name, value, len), |client, at, path| {
            get_xattr(client, at, path, NOFOLLOW, name, value, len)
        })
    }

    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        match table::get(fd) {
            None => real::fgetxattr(fd, name, value, len),
            Some(file) => finish(
                data_after_name(file, name).and_then(|client| get_xattr(client, file, b"", SELF, name, value, len)),
            ),
        }
    }

    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::setxattr(path, name, value, len, how), |client, at, path| {
            set_xattr(client, at, path, 0, name, value, len, how)
        })
    }

    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lsetxattr(path, name, value, len, how), |client, at, path| {
            set_xattr(client, at, path, NOFOLLOW, name, value, len, how)
        })
    }

    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int {
        match table::get(fd) {
            None => real::fsetxattr(fd, name, value, len, how),
            Some(file) => finish(
                checked(how, libc::XATTR_CREATE | libc::XATTR_REPLACE)
                    .and_then(|how| Ok((how, data_after_name(file, name)?)))
                    .and_then(|(how, client)| set_xattr(client, file, b"", SELF, name, value, len, how)),
            ),
        }
    }

    fn listxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t {
        on_path(CWD, path, Last::Follow, |_, path| real::listxattr(path, list, len), |client, at, path| {
            list_xattr(client, at, path, 0, list, len)
        })
    }

    fn llistxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t {
        on_path(CWD, path, Last::NoFollow, |_, path| real::llistxattr(path, list, len), |client, at, path| {
            list_xattr(client, at, path, NOFOLLOW, list, len)
        })
    }

    fn flistxattr(fd: c_int, list: *mut c_char, len: size_t) -> ssize_t {
        match table::get(fd) {
            None => real::flistxattr(fd, list, len),
            Some(file) => finish(client_for_data(file).and_then(|client| list_xattr(client, file, b"", SELF, list, len))),
        }
    }

    fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::removexattr(path, name), |client, at, path| {
            client.remove_xattr(at, path, 0, attribute_name(name)?).map(|()| 0)
        })
    }

    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lremovexattr(path, name), |client, at, path| {
            client.remove_xattr(at, path, NOFOLLOW, attribute_name(name)?).map(|()| 0)
        })
    }

    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        match table::get(fd) {
            None => real::fremovexattr(fd, name),
            Some(file) => finish(data_after_name(file, name).and_then(|client| {
                client.remove_xattr(file, b"", SELF, attribute_name(name)?).map(|()| 0)
            })),
        }
    }

    /// The mask is applied to what is created on the volume, so its changes have to be known.
    fn umask(mask: mode_t) -> mode_t {
        process::set_umask(mask);
        real::umask(mask)
    }

    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::mknod(path, mode, device), |client, at, path| {
            client.mknod(at, path, mode & !process::umask(), device).map(|()| 0)
        })
    }

    fn mknodat(dirfd: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        on_path(dirfd, path, Last::NoFollow, |dirfd, path| real::mknodat(dirfd, path, mode, device), |client, at, path| {
            client.mknod(at, path, mode & !process::umask(), device).map(|()| 0)
        })
    }

    fn __xmknod(version: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::__xmknod(version, path, mode, device), |client, at, path| {
            let device = device.as_ref().copied().unwrap_or(0);
            client.mknod(at, path, mode & !process::umask(), device).map(|()| 0)
        })
    }

    fn __xmknodat(version: c_int, dirfd: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int {
        on_path(
            dirfd,
            path,
            Last::NoFollow,
            |dirfd, path| real::__xmknodat(version, dirfd, path, mode, device),
            |client, at, path| {
                let device = device.as_ref().copied().unwrap_or(0);
                client.mknod(at, path, mode & !process::umask(), device).map(|()| 0)
            },
        )
    }

    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::mkfifo(path, mode), |client, at, path| {
            client.mknod(at, path, (mode & 0o7777 & !process::umask()) | libc::S_IFIFO, 0).map(|()| 0)
        })
    }

    fn mkfifoat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
        on_path(dirfd, path, Last::NoFollow, |dirfd, path| real::mkfifoat(dirfd, path, mode), |client, at, path| {
            client.mknod(at, path, (mode & 0o7777 & !process::umask()) | libc::S_IFIFO, 0).map(|()| 0)
        })
    }

    fn name_to_handle_at(dirfd: c_int, path: *const c_char, handle: *mut c_void, mount_id: *mut c_int, flags: c_int) -> c_int {
        let last = if flags & libc::AT_SYMLINK_FOLLOW != 0 { Last::Follow } else { Last::NoFollow };
        on_path(
            dirfd,
            path,
            last,
            |dirfd, path| real::name_to_handle_at(dirfd, path, handle, mount_id, flags),
            |_, _, _| Err(crate::report::refuse(crate::report::Refusal::Handles)),
        )
    }

    fn fpathconf(fd: c_int, name: c_int) -> libc::c_long {
        match table::get(fd) {
            None => real::fpathconf(fd, name),
            Some(_) => path_limit(name).unwrap_or_else(|| fail(libc::EINVAL)),
        }
    }

    fn pathconf(path: *const c_char, name: c_int) -> libc::c_long {
        on_path(CWD, path, Last::Follow, |_, path| real::pathconf(path, name), |client, at, path| {
            client.stat(at, path, 0)?;
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
