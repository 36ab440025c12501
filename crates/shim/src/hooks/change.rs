//! Changes of attributes: permissions, owner, times.

use crate::descriptors::table;
use crate::process;
use crate::routing::{Last, finish, on_path};
use libc::{c_char, c_int, gid_t, mode_t, timespec, timeval, uid_t, utimbuf};
use weft_client::{AttrChange, Client, Errno, FileRef};

const SECOND_NS: i64 = 1_000_000_000;
pub(super) const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
pub(super) const CWD: c_int = libc::AT_FDCWD;
pub(super) const SELF: c_int = libc::AT_EMPTY_PATH;

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
pub(super) fn client_for_data(file: FileRef) -> Result<&'static Client, Errno> {
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

/// An error of the path comes before one of the time, as in Linux.
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
pub(super) fn checked(flags: c_int, known: c_int) -> Result<c_int, Errno> {
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

/// Whether neither time is to change: then the call checks nothing else, as in Linux.
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

hooks! {
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

    /// The mask is applied to what is created on the volume, so its changes have to be known.
    fn umask(mask: mode_t) -> mode_t {
        process::set_umask(mask);
        real::umask(mask)
    }
}
