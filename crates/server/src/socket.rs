//! Messages on the sockets of connections: bytes, and with them descriptors and the kernel's word for who sent them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use weft_client::proto::HelloReply;

/// Bytes for what comes with a message. Descriptors that do not fit are dropped by the kernel.
const CONTROL_BYTES: usize = 256;

/// Control messages start at such addresses.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Who sent a message, as the kernel saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// Its process.
    pub pid: u32,
    /// A user that it is or may become: the real one if it named none.
    pub uid: u32,
    /// A group likewise.
    pub gid: u32,
}

/// What was received.
pub struct Received {
    /// Bytes; 0 at the end.
    pub len: usize,
    /// The descriptor that came with them. Of several all others are closed.
    pub fd: Option<OwnedFd>,
    /// Who sent them.
    pub sender: Option<Sender>,
}

/// An option of a socket; the bytes of `out` that it has.
fn option<T>(socket: &impl AsRawFd, name: libc::c_int, out: &mut [T]) -> io::Result<usize> {
    let mut len = size_of_val(out) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: `out` has `len` writable bytes; the options that are asked for are made of integers.
    let ret = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, out.as_mut_ptr().cast(), &raw mut len) };
    if ret == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}

/// Who connected: process, user, group.
pub fn peer(socket: &UnixStream) -> io::Result<Sender> {
    let mut raw = [0u32; 3];
    option(socket, libc::SO_PEERCRED, &mut raw)?;
    Ok(Sender { pid: raw[0], uid: raw[1], gid: raw[2] })
}

/// The further groups of who connected; none when there are more than anybody has.
pub fn peer_groups(socket: &UnixStream) -> Vec<u32> {
    let mut groups = [0u32; 1024];
    let len = option(socket, libc::SO_PEERGROUPS, &mut groups).unwrap_or(0);
    groups[..len / size_of::<u32>()].to_vec()
}

/// The descriptor as a Unix stream socket; it came from a client and may be anything.
pub fn as_stream(fd: OwnedFd) -> io::Result<UnixStream> {
    let value = |name| {
        let mut value = [0i32];
        option(&fd, name, &mut value).map(|_| value[0])
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
    // SAFETY: the option is an integer.
    let ret = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if ret == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
                    let who = std::ptr::read_unaligned(data.cast::<libc::ucred>());
                    sender = Some(Sender { pid: who.pid as u32, uid: who.uid, gid: who.gid });
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        len as usize
    };
    Ok(Received { len, fd, sender })
}

/// Answers a hello. Does not wait: who leaves no room for an answer gets none.
pub fn send_reply(socket: &UnixStream, reply: &HelloReply, fds: &[RawFd]) -> io::Result<()> {
    let bytes = bytemuck::bytes_of(reply);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: an all-zero msghdr is valid; everything it is pointed at outlives the call; the control buffer holds one
    // SCM_RIGHTS message with up to 6 descriptors.
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
