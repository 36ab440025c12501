//! Who the process is. libc's functions change all threads alike, those of the file-system user and group and `capset` the
//! calling one.

use crate::process;
use crate::process::identity::{Changed, change};
use libc::{c_char, c_int, c_long, c_void, gid_t, size_t, uid_t};

/// A change of all threads.
fn of_all(make: impl FnOnce() -> c_int) -> c_int {
    change(Changed::Process, make, |result| *result == 0)
}

/// A change of the calling thread.
fn of_thread(make: impl FnOnce() -> c_int) -> c_int {
    change(Changed::Thread, make, |result| *result == 0)
}

/// The same by a system call of the program's.
pub fn by_number(make: impl FnOnce() -> c_long) -> c_long {
    change(Changed::Thread, make, |result| *result == 0)
}

/// `setfsuid` and `setfsgid`, which tell what there was before, whether it was changed or not.
pub fn of_files<T: PartialEq + Copy>(wanted: T, make: impl FnOnce() -> T) -> T {
    change(Changed::Thread, make, |before| *before != wanted)
}

hooks! {
    fn setuid(uid: uid_t) -> c_int { of_all(|| real::setuid(uid)) }
    fn seteuid(uid: uid_t) -> c_int { of_all(|| real::seteuid(uid)) }
    fn setreuid(real: uid_t, effective: uid_t) -> c_int { of_all(|| real::setreuid(real, effective)) }
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        of_all(|| real::setresuid(real, effective, saved))
    }
    fn setgid(gid: gid_t) -> c_int { of_all(|| real::setgid(gid)) }
    fn setegid(gid: gid_t) -> c_int { of_all(|| real::setegid(gid)) }
    fn setregid(real: gid_t, effective: gid_t) -> c_int { of_all(|| real::setregid(real, effective)) }
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int {
        of_all(|| real::setresgid(real, effective, saved))
    }
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int { of_all(|| real::setgroups(count, groups)) }
    fn initgroups(user: *const c_char, group: gid_t) -> c_int { of_all(|| real::initgroups(user, group)) }
    fn setfsuid(uid: uid_t) -> c_int { of_files(uid as c_int, || real::setfsuid(uid)) }
    fn setfsgid(gid: gid_t) -> c_int { of_files(gid as c_int, || real::setfsgid(gid)) }
    fn capset(header: *mut c_void, data: *const c_void) -> c_int { of_thread(|| real::capset(header, data)) }

    /// In a user namespace of its own a process has none of the capabilities that count on the volume.
    fn unshare(flags: c_int) -> c_int {
        if process::is_on()
            && let Err(error) = crate::process::fork::check_unshare(flags)
        {
            return crate::routing::fail(error);
        }
        change(Changed::Thread, || real::unshare(flags), |result| *result == 0 && flags & libc::CLONE_NEWUSER != 0)
    }
    fn setns(fd: c_int, kind: c_int) -> c_int { of_thread(|| real::setns(fd, kind)) }
}
