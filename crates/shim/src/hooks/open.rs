//! Opening, closing and duplicating descriptors.

use crate::advice::opened;
use crate::descriptors::{self, table};
use crate::routing::{Last, fail, finish, on_file, on_path, on_target};
use crate::sys;
use libc::{c_char, c_int, c_uint};

fn last_of(flags: c_int) -> Last {
    if flags & libc::O_NOFOLLOW != 0 || flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL
    {
        Last::NoFollow
    } else {
        Last::Follow
    }
}

hooks! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        let real = |_, path| opened(real::open(path, flags, mode), flags);
        on_path(libc::AT_FDCWD, path, last_of(flags), real, |place| descriptors::open(place, flags, mode))
    }

    fn openat(dirfd: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        let real = |dirfd, path| opened(real::openat(dirfd, path, flags, mode), flags);
        on_path(dirfd, path, last_of(flags), real, |place| descriptors::open(place, flags, mode))
    }

    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        let real = |_, path| opened(real::__open_2(path, flags), flags);
        on_path(libc::AT_FDCWD, path, last_of(flags), real, |place| descriptors::open(place, flags, 0))
    }

    fn __openat_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        let real = |dirfd, path| opened(real::__openat_2(dirfd, path, flags), flags);
        on_path(dirfd, path, last_of(flags), real, |place| descriptors::open(place, flags, 0))
    }

    fn creat(path: *const c_char, mode: c_uint) -> c_int {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        on_target(path, |path| opened(real::creat(path, mode), flags), |place| descriptors::open(place, flags, mode))
    }

    fn close(fd: c_int) -> c_int {
        if table::is_weft(fd) { finish(descriptors::close(fd)) } else { real::close(fd) }
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if crate::process::is_on() {
            finish(descriptors::close_range(first, last, flags))
        } else {
            real::close_range(first, last, flags)
        }
    }

    fn closefrom(first: c_int) -> () {
        if crate::process::is_on() {
            let _ = descriptors::close_range(first.max(0) as u32, u32::MAX, 0);
        } else {
            real::closefrom(first)
        }
    }

    fn dup(fd: c_int) -> c_int {
        on_file(fd, || real::dup(fd), |file| {
            descriptors::duplicate(file, || sys::fcntl(fd, libc::F_DUPFD, 0).map(|fd| fd as c_int))
        })
    }

    fn dup2(old: c_int, new: c_int) -> c_int {
        if !table::is_weft(old) && !table::is_weft(new) {
            return real::dup2(old, new);
        }
        if old == new {
            return if table::get(old) == Some(table::OWN) { fail(libc::EBADF) } else { new };
        }
        finish(descriptors::duplicate_to(old, new, 0))
    }

    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        if !table::is_weft(old) && !table::is_weft(new) {
            return real::dup3(old, new, flags);
        }
        if old == new || flags & !libc::O_CLOEXEC != 0 {
            return fail(libc::EINVAL);
        }
        finish(descriptors::duplicate_to(old, new, flags))
    }
}
