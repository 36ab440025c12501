//! Names in `/dev/shm` that stand for inodes of the volume where the kernel itself has to work: pages that processes share
//! by maps, named pipes, and sockets.
//!
//! ```text
//!  /dev/shm/weft-<volume>-<user>/<inode>-<birth><suffix>
//! ```
//!
//! The directory is the user's alone, so only processes of one user meet there; which user that is, the kernel decides by who makes files (`setfsuid`).

use crate::owned::Fd;
use crate::sys;
use crate::text::{Text, decimal};
use weft_client::{Client, Errno};

/// How the directories' paths begin.
pub const ROOT: &[u8] = weft_client::shared::pages::ROOT.as_bytes();

/// A path there.
pub type Path = Text<128>;

/// The user's directory for a volume.
pub fn directory(client: &Client) -> Path {
    Path::of(&[ROOT, &decimal(client.volume_id()), b"-", &decimal(sys::fsuid().into())])
}

/// The name for an inode. Numbers of inodes may be given anew, so its birth is part of it.
pub fn path_of(client: &Client, ino: u64, birth_ns: i64, suffix: &[u8]) -> Path {
    Path::of(&[&directory(client), b"/", &decimal(ino), b"-", &decimal(birth_ns as u64), suffix])
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
            Ok(fd) => Fd(fd),
            // The last process that had files there has just taken it away.
            Err(libc::ENOENT) => continue,
            Err(error) => return Err(error),
        };
        return if sys::fstat(*fd)?.st_uid == sys::fsuid() { Ok(()) } else { Err(libc::EACCES) };
    }
}
