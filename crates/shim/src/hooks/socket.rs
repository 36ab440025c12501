//! Sockets: messages that carry descriptors, and Unix sockets in the file system.

use crate::descriptors::passing;
use crate::ipc::sockets;
use crate::ipc::sockets::{Address, ReturnedAddress, SocketPath};
use crate::routing::{Failed, fail, finish, on_name, on_target};
use crate::{process, sys};
use libc::{c_char, c_int, c_uint, c_void, size_t, sockaddr, socklen_t, ssize_t, timespec};
use std::ffi::CStr;
use weft_client::busy;
use weft_client::proto::with_umask;

/// Does something with an address: `real` with the one that the kernel is to see.
unsafe fn with_address<T: Failed + PartialEq>(
    address: *const sockaddr,
    len: socklen_t,
    real: impl Fn(*const sockaddr, socklen_t) -> T,
) -> T {
    // SAFETY: the program's own address.
    let path = if process::is_on() { unsafe { SocketPath::of(address, len) } } else { None };
    let Some(path) = path else { return real(address, len) };
    // It may wait for the other end.
    let real = |address, len| busy::apart(|| real(address, len));
    let elsewhere = |other: *const c_char| {
        if std::ptr::eq(other, path.c_str().as_ptr()) {
            return real(address, len);
        }
        // SAFETY: a path that ends with NUL.
        match Address::of(unsafe { CStr::from_ptr(other) }) {
            Ok(address) => real(address.parts().0, address.parts().1),
            Err(error) => fail(error),
        }
    };
    on_target(path.c_str().as_ptr(), elsewhere, |place| {
        let address = sockets::find(place)?;
        let result = real(address.parts().0, address.parts().1);
        // A name without a socket behind it: of a process that ended, of another user, from before a restart.
        if result == T::FAILED && sys::errno() == libc::ENOENT {
            return Err(libc::ECONNREFUSED);
        }
        Ok(result)
    })
}

/// Has the kernel tell an address, and hands it on as the program knows it.
unsafe fn told<T: Failed + PartialEq>(
    address: *mut sockaddr,
    len: *mut socklen_t,
    real: impl Fn(*mut sockaddr, *mut socklen_t) -> T,
) -> T {
    if !process::is_on() || address.is_null() || len.is_null() {
        return real(address, len);
    }
    let mut told = ReturnedAddress::new();
    let (storage, filled) = told.parts();
    let result = real(storage, filled);
    if result != T::FAILED {
        // SAFETY: the program's own address and room.
        unsafe { told.hand_on(address, len) };
    }
    result
}

unsafe fn send(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own message.
    unsafe {
        let Some(head) = message.as_ref().copied() else { return real::sendmsg(socket, message, flags) };
        with_address(head.msg_name.cast(), head.msg_namelen, |address, len| {
            let mut head = head;
            (head.msg_name, head.msg_namelen) = (address.cast_mut().cast(), len);
            match passing::Outgoing::new(socket, &raw const head) {
                Ok(None) => real::sendmsg(socket, &raw const head, flags),
                Ok(Some(mut outgoing)) => {
                    let sent = real::sendmsg(socket, outgoing.message(), flags);
                    outgoing.finish(sent >= 0);
                    sent
                }
                Err(error) => fail(error),
            }
        })
    }
}

/// A message that has come: its descriptors, and the address of who sent it. `room` is what the program had for that.
unsafe fn received(message: *mut libc::msghdr, room: socklen_t, flags: c_int) {
    // SAFETY: the kernel has filled in the program's message.
    unsafe {
        passing::received(message, flags);
        let Some(head) = message.as_mut() else { return };
        if head.msg_name.is_null() || head.msg_namelen > room {
            return;
        }
        let mut told = ReturnedAddress::new();
        let (storage, len) = told.parts();
        let filled = (head.msg_namelen).min(*len);
        std::ptr::copy_nonoverlapping(head.msg_name.cast::<u8>(), storage.cast::<u8>(), filled as usize);
        *len = filled;
        head.msg_namelen = room;
        told.hand_on(head.msg_name.cast(), &raw mut head.msg_namelen);
    }
}

hooks! {
    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
        if process::is_on() { send(socket, message, flags) } else { real::sendmsg(socket, message, flags) }
    }

    fn sendmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let head = |number: usize| &raw mut (*messages.add(number)).msg_hdr;
        let concerns_weft = process::is_on()
            && !messages.is_null()
            && (0..count as usize).any(|number| {
                let head = head(number);
                passing::carries_weft(head) || SocketPath::of((*head).msg_name.cast(), (*head).msg_namelen).is_some()
            });
        if !concerns_weft {
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
        let room = message.as_ref().map_or(0, |head| head.msg_namelen);
        let got = real::recvmsg(socket, message, flags);
        if got >= 0 && process::is_on() {
            received(message, room, flags);
        }
        got
    }

    fn recvmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        let got = real::recvmmsg(socket, messages, count, flags, timeout);
        if process::is_on() {
            for number in 0..got.max(0) as usize {
                // Addresses stay as they are: how much room each had is not known any more.
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
        let path = if process::is_on() { SocketPath::of(address, len) } else { None };
        let Some(path) = path else { return real::bind(socket, address, len) };
        let to = |address: &Address| match real::bind(socket, address.parts().0, address.parts().1) {
            0 => Ok(()),
            _ => Err(sys::errno()),
        };
        let elsewhere = |other: *const c_char| {
            if std::ptr::eq(other, path.c_str().as_ptr()) {
                return real::bind(socket, address, len);
            }
            finish(Address::of(CStr::from_ptr(other)).and_then(|address| to(&address)))
        };
        on_name(path.c_str().as_ptr(), elsewhere, |place| {
            sockets::bind(place, with_umask(0o777, process::umask()), path.c_str(), to)
        })
    }

    fn connect(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        with_address(address, len, |address, len| real::connect(socket, address, len))
    }

    fn sendto(socket: c_int, data: *const c_void, bytes: size_t, flags: c_int, address: *const sockaddr, len: socklen_t) -> ssize_t {
        with_address(address, len, |address, len| real::sendto(socket, data, bytes, flags, address, len))
    }

    fn recvfrom(socket: c_int, data: *mut c_void, bytes: size_t, flags: c_int, address: *mut sockaddr, len: *mut socklen_t) -> ssize_t {
        told(address, len, |address, len| real::recvfrom(socket, data, bytes, flags, address, len))
    }

    fn __recvfrom_chk(socket: c_int, data: *mut c_void, bytes: size_t, room: size_t, flags: c_int, address: *mut sockaddr, len: *mut socklen_t) -> ssize_t {
        told(address, len, |address, len| real::__recvfrom_chk(socket, data, bytes, room, flags, address, len))
    }

    fn accept(socket: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        told(address, len, |address, len| real::accept(socket, address, len))
    }

    fn accept4(socket: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        told(address, len, |address, len| real::accept4(socket, address, len, flags))
    }

    fn getsockname(socket: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        told(address, len, |address, len| real::getsockname(socket, address, len))
    }

    fn getpeername(socket: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        told(address, len, |address, len| real::getpeername(socket, address, len))
    }
}
