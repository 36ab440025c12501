//! Named pipes on the volume. The volume holds the name, its owner and its mode; the pipe behind it is one of the kernel, which
//! processes of the same user find by the inode ([`crate::ipc::shadow`]). The descriptor is the kernel's own, so that blocking,
//! `poll`, signals and inheritance are as everywhere.
//!
//! The kernel's name of a pipe stays in `/dev/shm` when the one on the volume is removed: nobody can tell who is about to open
//! it. The server removes it when it looks for what programs have left, at the latest when it ends.

use crate::ipc::shadow;
use crate::routing::Place;
use crate::sys;
use libc::c_int;
use weft_client::Errno;
use weft_client::busy;
use weft_client::shared::pages::FIFO;

/// Flags that the volume has seen to already.
const DONE: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY;

/// Opens the named pipe at a path, whose owner and mode the server has checked; `None` when there is something else.
pub fn open(place: Place, flags: c_int) -> Result<Option<c_int>, Errno> {
    let client = place.client;
    let attr = place.stat(0)?;
    if attr.mode & libc::S_IFMT != libc::S_IFIFO {
        return Ok(None);
    }
    let name = shadow::path_of(client, attr.ino, attr.btime_ns, FIFO.as_bytes());
    loop {
        // It may wait for the other end.
        match busy::apart(|| sys::open(name.c_str(), flags & !DONE | libc::O_NOFOLLOW, 0)) {
            Err(libc::ENOENT) => {}
            result => return result.map(Some),
        }
        shadow::make_directory(client)?;
        match sys::mkfifo(name.c_str(), 0o600) {
            // Whatever the process's mask is.
            Ok(()) => sys::chmod(name.c_str(), 0o600)?,
            // Another process made it, or has just taken the directory away.
            Err(libc::EEXIST | libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
}
