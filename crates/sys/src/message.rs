//! Messages on Unix sockets: bytes, and with them descriptors and the kernel's word for who sent them.

use crate::peer::{Peer, option};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Bytes for what comes with a message. Descriptors that do not fit are dropped by the kernel.
const CONTROL_BYTES: usize = 256;
/// Most descriptors that are sent with a message.
pub const FDS_MAX: usize = 32;

/// Control messages start at such addresses.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// What was received.
#[derive(Debug)]
pub struct Received {
    /// Bytes; 0 at the end.
    pub len: usize,
    /// The descriptor that came with them. Of several all others are closed.
    pub fd: Option<OwnedFd>,
    /// Who sent them; it names its user and group itself, and the kernel has let it.
    pub sender: Option<Peer>,
}

/// The descriptor as a Unix stream socket that blocks; it came from somebody else and may be anything.
pub fn as_stream(fd: OwnedFd) -> io::Result<UnixStream> {
    let value = |name| {
        let mut value = [0];
        option(&fd, name, &mut value).0.map(|()| value[0] as i32)
    };
    if value(libc::SO_DOMAIN)? != libc::AF_UNIX || value(libc::SO_TYPE)? != libc::SOCK_STREAM {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// From now on each message that is received tells who sent it, and messages of several senders come one by one.
pub fn tell_senders(socket: &UnixStream) -> io::Result<()> {
    let on = 1i32;
    let bytes = size_of::<i32>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PASSCRED);
    // SAFETY: the option is an integer.
    crate::checked(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), bytes)
    })
}

/// Receives what has come, up to `out.len()` bytes; waits until something has.
pub fn receive(socket: &UnixStream, out: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let (mut fd, mut sender) = (None, None);
    // SAFETY: an all-zero msghdr is valid, and what it is pointed at outlives the call. The macros stay within what the
    // kernel filled; each descriptor in it is new and nobody else's.
    let len = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES;
        let len = libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if len < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            let data_len = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for i in 0..data_len / size_of::<RawFd>() {
                        let raw = std::ptr::read_unaligned(data.cast::<RawFd>().add(i));
                        fd = Some(OwnedFd::from_raw_fd(raw));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if data_len >= size_of::<libc::ucred>() => {
                    sender = Some(std::ptr::read_unaligned(data.cast::<libc::ucred>()).into());
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        len as usize
    };
    Ok(Received { len, fd, sender })
}

/// Sends bytes in one message with up to [`FDS_MAX`] descriptors. Does not wait: where there is no room for all of it,
/// nothing or a part is sent, and that is an error.
pub fn send(socket: &UnixStream, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    if fds.len() > FDS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: an all-zero msghdr is valid; everything it is pointed at outlives the call; the control buffer holds one
    // SCM_RIGHTS message with up to FDS_MAX descriptors.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if !fds.is_empty() {
            let data_len = size_of_val(fds) as u32;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(data_len) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(data_len) as usize;
            std::ptr::copy_nonoverlapping(fds.as_ptr(), libc::CMSG_DATA(header).cast(), fds.len());
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    match sent {
        sent if sent == bytes.len() as isize => Ok(()),
        sent if sent >= 0 => Err(io::ErrorKind::WriteZero.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn bytes_arrive_with_a_descriptor_and_the_word_of_the_kernel() {
        let (one, other) = UnixStream::pair().unwrap();
        tell_senders(&other).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"content", 0).unwrap();
        send(&one, b"hello", &[file.as_raw_fd()]).unwrap();
        let mut out = [0; 16];
        let received = receive(&other, &mut out).unwrap();
        assert_eq!(&out[..received.len], b"hello");
        assert_eq!(received.sender.unwrap().pid, std::process::id());
        let theirs = std::fs::File::from(received.fd.unwrap());
        theirs.read_exact_at(&mut out[..7], 0).unwrap();
        assert_eq!(&out[..7], b"content");
        assert!(as_stream(theirs.into()).is_err(), "a file is no socket");
        assert!(send(&one, b"hello", &[0; FDS_MAX + 1]).is_err());
    }
}
