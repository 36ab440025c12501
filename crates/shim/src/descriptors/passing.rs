//! Descriptors of weft files in messages (`SCM_RIGHTS`).
//!
//! ```text
//!  sender                     server                        receiver
//!  Pass(file) --------------> a reference under a secret
//!  sends a memory file named
//!  weft:<server>:<file>:<secret>  ----------------------->  sees the name
//!                             the reference is its own <--- Take(file, secret)
//!                                                           puts a placeholder in its place
//! ```
//!
//! So the open file itself, with its offset, is shared, as the kernel does it. The memory file is open for writing only and sealed:
//! a process that is not inside and gets one can neither read nor write it (`EBADF`, `EPERM`). When the process at the
//! other end of the socket is known not to be inside, the message is refused.

use crate::descriptors::table::{self, LOST};
use crate::descriptors::{self, placeholder};
use crate::owned::Fd;
use crate::report::{Refusal, refuse};
use crate::text::{Text, decimal};
use crate::{process, sys};
use libc::c_int;
use std::ptr;
use weft_client::scratch::{AnyBytes, Scratch};
use weft_client::{Client, Errno, FileRef};

/// Bytes of control data that can hold weft descriptors; Linux takes 253 descriptors in a message.
const CONTROL_BYTES: usize = 2048;
/// Descriptors of one message.
const PASSED_MAX: usize = 253;
/// Name of this library among the files that a process maps.
const LIBRARY: &[u8] = b"libweft_shim";

/// Calls `each` with the place of every descriptor that a message carries.
unsafe fn each_descriptor(message: *const libc::msghdr, mut each: impl FnMut(*mut c_int)) {
    // SAFETY: the program promises a message; the macros stay within its control data.
    unsafe {
        let Some(head) = message.as_ref() else { return };
        if head.msg_control.is_null() || head.msg_controllen == 0 {
            return;
        }
        let end = head.msg_control.cast::<u8>().add(head.msg_controllen);
        let mut control = libc::CMSG_FIRSTHDR(message);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(control);
                let told = ((*control).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let room = (end as usize).saturating_sub(data as usize);
                for number in 0..told.min(room) / size_of::<c_int>() {
                    each(data.cast::<c_int>().add(number));
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
}

/// Whether a message carries a weft descriptor.
///
/// # Safety
/// `message` is null or as for `sendmsg(2)`.
pub unsafe fn carries_weft(message: *const libc::msghdr) -> bool {
    let mut found = false;
    // SAFETY: the caller's promise.
    unsafe { each_descriptor(message, |place| found |= table::is_weft(place.read_unaligned())) };
    found
}

#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// A descriptor that is sent for a weft file, the file, and the secret.
#[derive(Clone, Copy)]
#[repr(C)]
struct PassedFile {
    secret: u64,
    file: FileRef,
    fd: c_int,
}

/// What is too large for the stack.
struct Parts {
    control: Control,
    passed: [PassedFile; PASSED_MAX],
}
// SAFETY: bytes and numbers.
unsafe impl AnyBytes for Parts {}

/// A message whose weft descriptors have been replaced by what is sent for them.
pub struct Outgoing {
    message: libc::msghdr,
    parts: Scratch<Parts>,
    client: &'static Client,
    count: usize,
}

impl Outgoing {
    /// `None` when the message can be sent as it is.
    ///
    /// # Safety
    /// As `sendmsg(2)`.
    #[inline]
    pub unsafe fn new(socket: c_int, message: *const libc::msghdr) -> Result<Option<Outgoing>, Errno> {
        // SAFETY: the caller's promise.
        unsafe { if carries_weft(message) { Self::replace(socket, message).map(Some) } else { Ok(None) } }
    }

    unsafe fn replace(socket: c_int, message: *const libc::msghdr) -> Result<Outgoing, Errno> {
        if is_peer_outside(socket) {
            return Err(refuse(Refusal::PassDescriptor));
        }
        // SAFETY: it carries descriptors, so it is not null.
        let message = unsafe { message.read() };
        if message.msg_controllen > CONTROL_BYTES {
            return Err(libc::ETOOMANYREFS);
        }
        let mut outgoing =
            Outgoing { message, parts: Scratch::zeroed()?, client: process::client()?, count: 0 };
        // SAFETY: the program's control data, which fits.
        unsafe {
            let from = message.msg_control.cast::<u8>();
            ptr::copy_nonoverlapping(from, outgoing.parts.control.0.as_mut_ptr(), message.msg_controllen);
        }
        let mut copy = message;
        copy.msg_control = outgoing.parts.control.0.as_mut_ptr().cast();
        let mut result = Ok(());
        // SAFETY: the control data just copied.
        unsafe {
            each_descriptor(&raw const copy, |place| {
                if let (Some(file), Ok(())) = (table::get(place.read_unaligned()), result) {
                    match outgoing.pass(file) {
                        Ok(fd) => place.write_unaligned(fd),
                        Err(error) => result = Err(error),
                    }
                }
            });
        }
        match result {
            Ok(()) => Ok(outgoing),
            Err(error) => {
                outgoing.finish(false);
                Err(error)
            }
        }
    }

    fn pass(&mut self, file: FileRef) -> Result<c_int, Errno> {
        let Some(place) = self.parts.passed.get_mut(self.count) else { return Err(libc::ETOOMANYREFS) };
        let secret = self.client.pass(file)?;
        let fd = placeholder::create_to_pass(self.client.session(), file, secret)
            .inspect_err(|_| take_back(self.client, file, secret))?;
        *place = PassedFile { secret, file, fd };
        self.count += 1;
        Ok(fd)
    }

    /// The message to send.
    pub fn message(&mut self) -> *const libc::msghdr {
        self.message.msg_control = self.parts.control.0.as_mut_ptr().cast();
        &raw const self.message
    }

    /// After sending: the message holds what it needs, or nothing was sent.
    pub fn finish(self, sent: bool) {
        let error = sys::errno();
        for PassedFile { secret, file, fd } in self.parts.passed.iter().take(self.count).copied() {
            let _ = weft_client::sys::close(fd);
            if !sent {
                take_back(self.client, file, secret);
            }
        }
        sys::set_errno(error);
    }
}

fn take_back(client: &Client, file: FileRef, secret: u64) {
    if client.take(file, secret, false).is_ok() {
        let _ = client.give_back(file);
    }
}

/// Enters the weft descriptors that a message brought.
///
/// # Safety
/// `message` as `recvmsg(2)` has left it.
pub unsafe fn received(message: *const libc::msghdr, flags: c_int) {
    // SAFETY: the caller's promise.
    unsafe {
        each_descriptor(message, |place| {
            let fd = place.read_unaligned();
            if let Some((server, file, secret)) = placeholder::identify(fd) {
                let entered =
                    secret.ok_or(libc::EBADF).and_then(|secret| enter(fd, server, file, secret, flags));
                if entered.is_err() {
                    // Whatever is done with it fails, instead of reading an empty file.
                    table::swap(fd, Some(LOST));
                }
            }
        });
    }
}

fn enter(fd: c_int, server: u64, file: FileRef, secret: u64, flags: c_int) -> Result<(), Errno> {
    let client = process::client()?;
    if client.session() != server || !table::holds(fd) {
        return Err(libc::EXDEV);
    }
    // A message that is only looked at will be received once more.
    client.take(file, secret, flags & libc::MSG_PEEK != 0)?;
    let cloexec = flags & libc::MSG_CMSG_CLOEXEC != 0;
    let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
    let moved = placeholder::create(server, file, true).and_then(|made| {
        sys::dup3(*made, fd, flags)?;
        let is_path = client.flags(file)? & libc::O_PATH != 0;
        if is_path { placeholder::become_path(fd, cloexec) } else { Ok(fd) }
    });
    moved.inspect_err(|_| {
        let _ = client.give_back(file);
    })?;
    table::swap(fd, Some(file));
    crate::streams::adopt_standard(fd);
    Ok(())
}

/// A descriptor that was taken from another process (`pidfd_getfd`): one of a weft file would be empty, so it is refused.
pub fn taken(fd: c_int) -> Result<c_int, Errno> {
    if placeholder::identify(fd).is_none() {
        return Ok(fd);
    }
    let _ = descriptors::close_any(fd);
    Err(refuse(Refusal::TakeDescriptor))
}

/// Whether the process at the other end of a socket is known not to be inside: it has not mapped this library. A socket
/// whose other end may be anybody (a datagram's receiver) is not known.
fn is_peer_outside(socket: c_int) -> bool {
    let pid = match sys::peer_process(socket) {
        Ok(pid @ 1..) => pid as u32,
        _ => return false,
    };
    pid != weft_client::sys::getpid() && !maps_this_library(pid).unwrap_or(true)
}

/// `None` when that cannot be told.
fn maps_this_library(pid: u32) -> Option<bool> {
    let path = Text::<32>::of(&[b"/proc/", &decimal(pid.into()), b"/maps"]);
    let fd = Fd(sys::open(path.c_str(), libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?);
    let mut buffer = Scratch::<[u8; 4096]>::any().ok()?;
    let (mut kept, mut found) = (0, None);
    while found.is_none() {
        let n = match sys::read(*fd, buffer.get_mut(kept..).unwrap_or(&mut [])) {
            Ok(n) => n,
            Err(_) => break,
        };
        let text = buffer.get(..kept + n).unwrap_or(&[]);
        if text.windows(LIBRARY.len()).any(|window| window == LIBRARY) {
            found = Some(true);
        } else if n == 0 {
            found = Some(false);
        }
        // The name may lie across two pieces.
        let len = text.len();
        kept = len.min(LIBRARY.len());
        buffer.copy_within(len - kept..len, 0);
    }
    found
}
