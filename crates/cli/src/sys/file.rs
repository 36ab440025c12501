//! Files: nodes, times, who may do what.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file that goes with this value, unless it has another name by then.
pub struct Removed(pub PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The same path with more behind its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Whether this process runs as the superuser.
pub fn is_superuser() -> bool {
    weft_sys::effective_user().0 == 0
}

/// Makes a node of the kind and with the permission bits in `mode`.
pub fn mknod(path: &Path, mode: u32, rdev: u64) -> io::Result<()> {
    let (kind, perm) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode));
    Ok(mknodat(CWD, path, kind, perm, rdev)?)
}

/// Sets access and modification time, in nanoseconds since 1970; of a symlink itself when that is asked.
pub fn set_times(path: &Path, atime_ns: i64, mtime_ns: i64, of_link: bool) -> io::Result<()> {
    let spec =
        |ns: i64| Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) };
    let times = Timestamps { last_access: spec(atime_ns), last_modification: spec(mtime_ns) };
    let flags = if of_link { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
    Ok(utimensat(CWD, path, &times, flags)?)
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
