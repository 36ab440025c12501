//! Who is at the other end of a socket, as the kernel says.

use crate::snodes::access::Credentials;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Groups that are asked for at first.
const GROUPS_FIRST: usize = 32;

/// The user and groups that the other end had when it connected.
pub(crate) fn credentials(stream: &UnixStream, owner_is_superuser: bool) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the size of `peer`.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if got != 0 || len as usize != size_of::<libc::ucred>() {
        return Err(io::Error::last_os_error());
    }
    let mut groups = groups(stream)?;
    groups.push(peer.gid);
    // SAFETY: asks for a number, and cannot fail.
    let own = unsafe { libc::geteuid() };
    let superuser = owner_is_superuser && (peer.uid == 0 || peer.uid == own);
    Ok(Credentials { user: peer.uid, groups, superuser })
}

fn groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; GROUPS_FIRST];
    loop {
        let mut len = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, which is the size of `groups`.
        let got = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let count = len as usize / size_of::<u32>();
        if got == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // It says how many there are when there are more.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}
