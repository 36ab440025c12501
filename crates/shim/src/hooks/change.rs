//! Changes of attributes: permissions, owner, times.

use crate::descriptors::table;
use crate::process;
use crate::routing::{Last, Place, on_file, on_name, on_path, on_target};
use libc::{c_char, c_int, gid_t, mode_t, timespec, timeval, uid_t, utimbuf};
use weft_client::{AttrChange, Errno, FileRef};

const SECOND_NS: i64 = 1_000_000_000;
pub(super) const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
pub(super) const SELF: c_int = libc::AT_EMPTY_PATH;

fn owner(uid: uid_t, gid: gid_t) -> AttrChange {
    AttrChange { uid: Some(uid), gid: Some(gid), ..Default::default() }
}

fn permissions(mode: mode_t) -> AttrChange {
    AttrChange { mode: Some(mode & 0o7777), ..Default::default() }
}

/// An open file as a place, for what needs more than the name that `O_PATH` opens; the flags of its calls have [`SELF`].
pub(super) fn place_for_data(file: FileRef) -> Result<Place<'static>, Errno> {
    let client = process::client()?;
    let is_name = client.flags(file)? & libc::O_PATH != 0;
    if is_name { Err(libc::EBADF) } else { Ok(Place { client, at: file, path: b"" }) }
}

fn change_mode(place: Place, flags: c_int, mode: mode_t) -> Result<(), Errno> {
    let flags = checked(flags, NOFOLLOW)?;
    // As in Linux, symlinks have no permissions of their own.
    if flags & NOFOLLOW != 0 && place.stat(NOFOLLOW)?.mode & libc::S_IFMT == libc::S_IFLNK {
        return Err(libc::EOPNOTSUPP);
    }
    place.set_attr(flags, &permissions(mode))
}

/// An error of the path comes before one of the time, as in Linux.
fn change_times(place: Place, flags: c_int, times: Result<AttrChange, Errno>) -> Result<(), Errno> {
    match times {
        Ok(times) => place.set_attr(flags, &times),
        Err(error) => place.stat(flags).and(Err(error)),
    }
}

/// Flags of a call, when it knows all of them.
pub(super) fn checked(flags: c_int, known: c_int) -> Result<c_int, Errno> {
    if flags & !known == 0 { Ok(flags) } else { Err(libc::EINVAL) }
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
        on_target(path, |path| real::chmod(path, mode), |place| place.set_attr(0, &permissions(mode)))
    }

    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        on_file(fd, || real::fchmod(fd, mode), |file| place_for_data(file)?.set_attr(SELF, &permissions(mode)))
    }

    fn fchmodat(dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        on_path(dirfd, path, Last::of(flags), |dirfd, path| real::fchmodat(dirfd, path, mode, flags), |place| {
            change_mode(place, flags, mode)
        })
    }

    fn lchmod(path: *const c_char, mode: mode_t) -> c_int {
        on_name(path, |path| real::lchmod(path, mode), |place| change_mode(place, NOFOLLOW, mode))
    }

    fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        on_target(path, |path| real::chown(path, uid, gid), |place| place.set_attr(0, &owner(uid, gid)))
    }

    fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        on_name(path, |path| real::lchown(path, uid, gid), |place| place.set_attr(NOFOLLOW, &owner(uid, gid)))
    }

    fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
        on_file(fd, || real::fchown(fd, uid, gid), |file| place_for_data(file)?.set_attr(SELF, &owner(uid, gid)))
    }

    fn fchownat(dirfd: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
        on_path(dirfd, path, Last::of(flags), |dirfd, path| real::fchownat(dirfd, path, uid, gid, flags), |place| {
            place.set_attr(checked(flags, NOFOLLOW | SELF)?, &owner(uid, gid))
        })
    }

    fn utimensat(dirfd: c_int, path: *const c_char, when: *const timespec, flags: c_int) -> c_int {
        if path.is_null() {
            // For libc this is an error; `futimens` is the function for descriptors.
            return real::utimensat(dirfd, path, when, flags);
        }
        on_path(dirfd, path, Last::of(flags), |dirfd, path| real::utimensat(dirfd, path, when, flags), |place| {
            if omits_both(when) {
                return Ok(());
            }
            change_times(place, checked(flags, NOFOLLOW | SELF)?, times(when))
        })
    }

    fn futimens(fd: c_int, when: *const timespec) -> c_int {
        on_file(fd, || real::futimens(fd, when), |file| {
            if omits_both(when) { Ok(()) } else { place_for_data(file)?.set_attr(SELF, &times(when)?) }
        })
    }

    fn utimes(path: *const c_char, when: *const timeval) -> c_int {
        on_target(path, |path| real::utimes(path, when), |place| change_times(place, 0, times_of_timeval(when)))
    }

    fn lutimes(path: *const c_char, when: *const timeval) -> c_int {
        on_name(path, |path| real::lutimes(path, when), |place| change_times(place, NOFOLLOW, times_of_timeval(when)))
    }

    fn futimes(fd: c_int, when: *const timeval) -> c_int {
        on_file(fd, || real::futimes(fd, when), |file| {
            place_for_data(file)?.set_attr(SELF, &times_of_timeval(when)?)
        })
    }

    fn futimesat(dirfd: c_int, path: *const c_char, when: *const timeval) -> c_int {
        if path.is_null() && table::is_weft(dirfd) {
            return body::futimes(dirfd, when);
        }
        on_path(dirfd, path, Last::Follow, |dirfd, path| real::futimesat(dirfd, path, when), |place| {
            change_times(place, 0, times_of_timeval(when))
        })
    }

    fn utime(path: *const c_char, when: *const utimbuf) -> c_int {
        on_target(path, |path| real::utime(path, when), |place| {
            let times = match when.as_ref() {
                None => times(std::ptr::null())?,
                Some(when) => {
                    let spec = |tv_sec| timespec { tv_sec, tv_nsec: 0 };
                    times([spec(when.actime), spec(when.modtime)].as_ptr())?
                }
            };
            place.set_attr(0, &times)
        })
    }

    /// The mask is applied to what is created on the volume, so its changes have to be known.
    fn umask(mask: mode_t) -> mode_t {
        process::set_umask(mask);
        real::umask(mask)
    }
}
