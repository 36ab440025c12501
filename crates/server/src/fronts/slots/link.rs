//! What a connected process shares with the server: its socket, and the channel with its call slots. The process may
//! change any byte of the channel at any time.

use super::stopped::Stopped;
use crate::ops::Caller;
use crate::state::inodes::Unfinished;
use crate::state::processes::Peer;
use parking_lot::Mutex;
use std::io;
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{Ordering::*, fence};
use weft_client::FileRef;
use weft_client::shared::channel::{
    Channel, ClientCounters, GROUPS_MAX, Grants, PAYLOAD_BYTES, Request, Response,
};
use weft_client::sys;
use weft_sys::SharedMemory;
use weft_sys::peer::has_hung_up;

/// The socket and the channel of a process.
pub struct Link {
    channel: SharedMemory,
    socket: UnixStream,
    program: Mutex<Option<Program>>,
}

/// The process of a client.
#[derive(Clone, Copy)]
struct Program {
    pid: u32,
    real_user: u32,
}

impl Link {
    /// A new channel for the process behind a socket.
    pub fn new(socket: UnixStream) -> io::Result<Link> {
        let channel = SharedMemory::create("weft-channel", size_of::<Channel>())?;
        Ok(Link { channel, socket, program: Mutex::default() })
    }

    /// Notes the process of the client, as the kernel has reported it, and its real user.
    pub fn set_process(&self, pid: u32, real_user: u32) {
        *self.program.lock() = Some(Program { pid, real_user });
    }

    /// The descriptor of the channel's memory.
    pub fn channel_fd(&self) -> RawFd {
        self.channel.fd()
    }

    pub fn channel(&self) -> &Channel {
        // SAFETY: the memory holds a `Channel`, made of atomics and of cells that only the methods below access.
        unsafe { self.channel.view() }
    }

    /// Tells the process who it is to the server.
    pub fn tell_identity(&self, caller: &Caller) {
        let (who, told) = (&caller.effective, &self.channel().identity);
        let groups = || std::iter::once(&who.gid).chain(&who.groups);
        let known = caller.real == *who && groups().count() <= GROUPS_MAX;
        let seq = told.seq.load(Relaxed) | 1;
        told.seq.store(seq, Relaxed);
        fence(SeqCst);
        for (place, group) in told.groups.iter().zip(groups()) {
            place.store(*group, Relaxed);
        }
        told.group_count.store(groups().count() as u32, Relaxed);
        told.uid.store(who.uid, Relaxed);
        told.capabilities.store(who.capabilities.bits(), Relaxed);
        told.known.store(known.into(), Relaxed);
        told.seq.store(seq.wrapping_add(1), Release);
    }

    /// A connection that the process has asked for without waiting has begun, or was refused.
    pub fn count_child(&self) {
        let children = &self.channel().events.children;
        children.fetch_add(1, SeqCst);
        sys::futex_wake(children, u32::MAX >> 1);
    }

    /// The request in a slot that is the server's turn. It is copied once; what is checked is the copy.
    pub fn request(&self, slot: usize) -> Request {
        // SAFETY: the cell is the server's from SUBMITTED to DONE, and any bytes are a request.
        unsafe { *self.channel().slots[slot].request.get() }
    }

    /// Stores the response in a slot that is the server's turn.
    pub fn respond(&self, slot: usize, response: Response) {
        // SAFETY: the cell is the server's until DONE.
        unsafe { *self.channel().slots[slot].response.get() = response };
    }

    /// The payload of a slot.
    pub fn payload(&self, slot: usize) -> Payload<'_> {
        Payload { link: self, slot }
    }
}

/// The payload of a slot that is the server's turn.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    link: &'a Link,
    slot: usize,
}

impl<'a> Payload<'a> {
    fn base(self) -> *mut u8 {
        (&raw const self.link.channel().payloads[self.slot]).cast::<u8>().cast_mut()
    }

    /// A part in place, unless it reaches beyond the payload. For data that is copied anyway: a client that changes it
    /// meanwhile changes what it writes, no more.
    pub fn part(self, from: u32, len: u32) -> Option<&'a [u8]> {
        let (from, len) = (from as usize, len as usize);
        let fits = from.checked_add(len).is_some_and(|end| end <= PAYLOAD_BYTES);
        // SAFETY: within the payload (checked), which is mapped as long as the link.
        fits.then(|| unsafe { std::slice::from_raw_parts(self.base().add(from), len) })
    }

    /// The place for an answer of up to `len` bytes.
    pub fn out(self, len: usize) -> &'a mut [u8] {
        // SAFETY: within the payload; the slot's thread is the only one that answers in it.
        unsafe { std::slice::from_raw_parts_mut(self.base(), len.min(PAYLOAD_BYTES)) }
    }
}

impl Peer for Link {
    fn has_ended(&self) -> bool {
        has_hung_up(&self.socket)
    }

    fn pid(&self) -> Option<u32> {
        self.program.lock().map(|program| program.pid)
    }

    fn take_closed(&self, each: &mut dyn FnMut(FileRef)) {
        let closed = &self.channel().closed;
        if closed.added.load(SeqCst) == 0 {
            return;
        }
        closed.added.store(0, SeqCst);
        let taken = closed.files.iter().map(|place| place.swap(0, SeqCst)).filter(|word| *word != 0);
        taken.for_each(|word| each(FileRef(word - 1)));
    }

    fn grants(&self) -> Option<&Grants> {
        Some(&self.channel().grants)
    }

    fn writes_to_log(&self) -> bool {
        self.channel().log_writers.turns.iter().any(|turn| turn.load(SeqCst) != 0)
    }

    fn let_into_log(&self) {
        self.channel().log_writers.is_served.store(1, SeqCst);
    }

    fn shut_out_of_log(&self) -> bool {
        self.channel().log_writers.is_served.store(0, SeqCst);
        fence(SeqCst);
        self.writes_to_log()
    }

    fn locks_changed(&self, thread: u64) {
        let changes = self.channel().events.turn(thread);
        changes.fetch_add(1, SeqCst);
        sys::futex_wake(changes, u32::MAX >> 1);
    }

    fn finish(&self, write: Unfinished<'_>) {
        let program = *self.program.lock();
        // The connection may live on in another process, and the number be somebody else's by now.
        if let Some(Program { pid, real_user }) = program
            && !self.has_ended()
            && let Some(program) = Stopped::find(pid, real_user)
        {
            tracing::debug!(pid, "a stopped process ends a write that others wait for");
            program.finish(write, &self.channel().events.stop_at_end);
        }
    }

    fn disconnect(&self) {
        // It may have ended by itself.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn measured(&self) -> Option<&ClientCounters> {
        Some(&self.channel().measured)
    }
}
