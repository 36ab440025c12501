//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::RawFd;

/// The process that connected the socket.
pub fn pid(socket: RawFd) -> io::Result<i32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer is a `ucred` and `len` its size, which the kernel does not exceed.
    let result = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len)
    };
    if result == 0 { Ok(who.pid) } else { Err(io::Error::last_os_error()) }
}
