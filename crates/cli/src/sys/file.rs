//! Files: nodes, times, who may do what.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn checked(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this process runs as the superuser.
pub fn is_superuser() -> bool {
    weft_sys::effective_user().0 == 0
}

/// Makes a node of the kind and with the permission bits in `mode`.
pub fn mknod(path: &Path, mode: u32, rdev: u64) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string that outlives the call.
    checked(unsafe { libc::mknod(path.as_ptr(), mode, rdev) })
}

/// Sets access and modification time, in nanoseconds since 1970; follows symlinks.
pub fn set_times(path: &Path, atime_ns: i64, mtime_ns: i64) -> io::Result<()> {
    utimens(path, atime_ns, mtime_ns, 0)
}

/// The same of a symlink itself.
pub fn set_link_times(path: &Path, atime_ns: i64, mtime_ns: i64) -> io::Result<()> {
    utimens(path, atime_ns, mtime_ns, libc::AT_SYMLINK_NOFOLLOW)
}

fn utimens(path: &Path, atime_ns: i64, mtime_ns: i64, flags: libc::c_int) -> io::Result<()> {
    let path = c_path(path)?;
    let spec = |ns: i64| libc::timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    };
    let times = [spec(atime_ns), spec(mtime_ns)];
    // SAFETY: the path is a C string and `times` two timespecs, all of which outlive the call.
    checked(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) })
}

/// The mask of permission bits that new files do not get.
pub fn umask() -> u32 {
    // SAFETY: two system calls on a number; no other thread makes files while a command starts.
    unsafe {
        let mask = libc::umask(0o022);
        libc::umask(mask);
        mask
    }
}
