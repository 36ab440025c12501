//! The credentials of the peer of a Unix socket, as the kernel reports them.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Groups that are asked for at first.
const GROUPS_FIRST: usize = 32;

/// A process and by whose rights it acts: of a connection when it was made, of a message when it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its process.
    pub pid: u32,
    /// Its effective user; in a message, one that it is or may become.
    pub uid: u32,
    /// Its effective group; in a message likewise.
    pub gid: u32,
}

impl From<libc::ucred> for Peer {
    fn from(who: libc::ucred) -> Peer {
        Peer { pid: who.pid as u32, uid: who.uid, gid: who.gid }
    }
}

/// An option of a socket, made of integers; how many of `out` it has.
pub(crate) fn option(socket: &impl AsFd, name: libc::c_int, out: &mut [u32]) -> (io::Result<()>, usize) {
    let mut len = size_of_val(out) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes, which is the size of `out`.
    let got = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, out.as_mut_ptr().cast(), &raw mut len) };
    (crate::checked(got), len as usize / size_of::<u32>())
}

/// Who connected.
pub fn credentials(socket: &impl AsFd) -> io::Result<Peer> {
    let mut raw = [0; 3];
    option(socket, libc::SO_PEERCRED, &mut raw).0?;
    Ok(Peer { pid: raw[0], uid: raw[1], gid: raw[2] })
}

/// The further groups of who connected.
pub fn groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; GROUPS_FIRST];
    loop {
        match option(socket, libc::SO_PEERGROUPS, &mut groups) {
            (Ok(()), count) => {
                groups.truncate(count);
                return Ok(groups);
            }
            // It says how many there are when there are more.
            (Err(error), count) if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0);
            }
            (Err(error), _) => return Err(error),
        }
    }
}

/// Whether the other end is closed, whatever is left to be read from it.
pub fn has_hung_up(socket: &impl AsFd) -> bool {
    let fd = socket.as_fd().as_raw_fd();
    let mut polled = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one descriptor, which the caller keeps open; does not wait.
    let ready = unsafe { libc::poll(&raw mut polled, 1, 0) };
    ready > 0 && polled.revents & (libc::POLLRDHUP | libc::POLLHUP) != 0
}

/// Ends what waits for connections at a socket.
pub fn stop_listening(listener: &impl AsFd) {
    // SAFETY: plain system call on a descriptor that the caller keeps open.
    unsafe { libc::shutdown(listener.as_fd().as_raw_fd(), libc::SHUT_RDWR) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_pair_is_connected_by_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let (uid, gid) = crate::effective_user();
        assert_eq!(credentials(&one).unwrap(), Peer { pid: std::process::id(), uid, gid });
        groups(&one).unwrap();
        assert!(credentials(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
