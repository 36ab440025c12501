//! Names in `/dev/shm` that stand for inodes of the volume where the kernel itself has to work: pages that processes share
//! by maps, named pipes, and sockets.
//!
//! ```text
//!  /dev/shm/weft-<volume>-<user>/<inode>-<birth><suffix>
//! ```
//!
//! The directory is the user's alone, so only processes of one user meet there; which user that is, the kernel decides by who makes files (`setfsuid`).

use crate::{report, sys};
use std::ffi::CStr;
use weft_client::{Client, Errno};

/// How the directories' paths begin.
pub const ROOT: &[u8] = weft_client::shared::pages::ROOT.as_bytes();

/// A path, ended by NUL.
pub struct Path {
    bytes: [u8; 128],
    len: usize,
}

impl Path {
    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            // The last byte stays NUL.
            if let Some(place) = self.bytes.get_mut(self.len).filter(|_| self.len < 127) {
                *place = *byte;
                self.len += 1;
            }
        }
    }

    fn put_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        self.put(report::decimal(number, &mut digits));
    }

    /// For system calls.
    pub fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// The user's directory for a volume.
pub fn directory(client: &Client) -> Path {
    let mut path = Path { bytes: [0; 128], len: 0 };
    path.put(ROOT);
    path.put_number(client.volume_id());
    path.put(b"-");
    path.put_number(sys::fsuid().into());
    path
}

/// The name for an inode. Numbers of inodes may be given anew, so its birth is part of it.
pub fn path_of(client: &Client, ino: u64, birth_ns: i64, suffix: &[u8]) -> Path {
    let mut path = directory(client);
    path.put(b"/");
    path.put_number(ino);
    path.put(b"-");
    path.put_number(birth_ns as u64);
    path.put(suffix);
    path
}

/// Makes the user's directory, and refuses one that somebody else made.
pub fn make_directory(client: &Client) -> Result<(), Errno> {
    let path = directory(client);
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    loop {
        match sys::mkdir(path.c_str(), 0o700) {
            // Whatever the process's mask is.
            Ok(()) => match sys::chmod(path.c_str(), 0o700) {
                Ok(()) | Err(libc::ENOENT) => {}
                Err(error) => return Err(error),
            },
            Err(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
        let fd = match sys::open(path.c_str(), flags, 0) {
            Ok(fd) => fd,
            // The last process that had files there has just taken it away.
            Err(libc::ENOENT) => continue,
            Err(error) => return Err(error),
        };
        let stat = sys::fstat(fd);
        let _ = weft_client::sys::close(fd);
        return if stat?.st_uid == sys::fsuid() { Ok(()) } else { Err(libc::EACCES) };
    }
}
