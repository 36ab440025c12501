//! Sockets: messages that carry descriptors, and Unix sockets in the file system.

use crate::report::{Refusal, refuse};
use crate::route::{fail, finish};
use crate::{passing, process};
use libc::{c_int, c_uint, sockaddr, socklen_t, ssize_t, timespec};
use std::mem::offset_of;

/// Whether an address is a path on the volume.
unsafe fn is_socket_on_volume(address: *const sockaddr, len: socklen_t) -> bool {
    const PATH_AT: usize = offset_of!(libc::sockaddr_un, sun_path);
    let len = len as usize;
    // SAFETY: the program promises `len` bytes.
    unsafe {
        if !process::is_on()
            || address.is_null()
            || len <= PATH_AT
            || i32::from((*address).sa_family) != libc::AF_UNIX
        {
            return false;
        }
        let bytes = std::slice::from_raw_parts(address.cast::<u8>().add(PATH_AT), (len - PATH_AT).min(108));
        let mut path = [0u8; 109];
        for (to, from) in path.iter_mut().zip(bytes) {
            *to = *from;
        }
        // A name that begins with NUL is in no file system.
        path.first() != Some(&0) && crate::route::is_on_volume(libc::AT_FDCWD, path.as_ptr().cast())
    }
}

unsafe fn send(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own message.
    unsafe {
        match passing::Outgoing::new(socket, message) {
            Ok(None) => real::sendmsg(socket, message, flags),
            Ok(Some(mut outgoing)) => {
                let sent = real::sendmsg(socket, outgoing.message(), flags);
                outgoing.finish(sent >= 0);
                sent
            }
            Err(error) => fail(error),
        }
    }
}

hooks! {
    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
        if process::is_on() { send(socket, message, flags) } else { real::sendmsg(socket, message, flags) }
    }

    fn sendmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let head = |number: usize| &raw mut (*messages.add(number)).msg_hdr;
        let carries_weft = process::is_on()
            && !messages.is_null()
            && (0..count as usize).any(|number| passing::carries_weft(head(number)));
        if !carries_weft {
            return real::sendmmsg(socket, messages, count, flags);
        }
        for number in 0..count as usize {
            let sent = send(socket, head(number), flags);
            if sent < 0 {
                return if number == 0 { -1 } else { number as c_int };
            }
            (*messages.add(number)).msg_len = sent as c_uint;
        }
        count as c_int
    }

    fn recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t {
        let got = real::recvmsg(socket, message, flags);
        if got >= 0 && process::is_on() {
            passing::received(message, flags);
        }
        got
    }

    fn recvmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        let got = real::recvmmsg(socket, messages, count, flags, timeout);
        if process::is_on() {
            for number in 0..got.max(0) as usize {
                passing::received(&raw mut (*messages.add(number)).msg_hdr, flags);
            }
        }
        got
    }

    fn pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int {
        let got = real::pidfd_getfd(process, fd, flags);
        if got >= 0 && process::is_on() { finish(passing::taken(got)) } else { got }
    }

    fn bind(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        if is_socket_on_volume(address, len) {
            return fail(refuse(Refusal::Socket));
        }
        real::bind(socket, address, len)
    }

    fn connect(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        if is_socket_on_volume(address, len) {
            return fail(refuse(Refusal::Socket));
        }
        real::connect(socket, address, len)
    }
}
