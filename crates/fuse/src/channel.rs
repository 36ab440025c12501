//! Requests from `/dev/fuse`, and the answers. What comes by io_uring instead, `rings.rs` serves.

use crate::EXTRA_MAX;
use crate::abi::{InHeader, OutHeader, op};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags, poll};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use weft_server::ops::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most bytes of a read or a write.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Room for a request or an answer with so much data.
const BUFFER_BYTES: usize = DATA_BYTES_MAX + 4096;

/// Number of an error (`errno`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::Errno(errno) => Errno(errno),
            // One component, which nobody follows.
            Error::Outside => Errno(libc::EXDEV),
            Error::Waits => Errno(libc::EAGAIN),
            Error::Ended => Errno(libc::EIO),
        }
    }
}

/// A request of the kernel.
pub struct Request<'a> {
    /// What it has in common with all.
    pub head: InHeader,
    /// Which time it was, when it came, that the mount alone used the volume; see [`weft_server::Volume::watcher_alone`].
    pub alone: Cell<u64>,
    /// The structure of its kind and, from `/dev/fuse`, all that follows.
    body: &'a [u8],
    /// What follows, when it lies elsewhere.
    rest: &'a [u8],
}

impl<'a> Request<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (head, body) = InHeader::read_from_prefix(bytes).ok()?;
        (head.len as usize == bytes.len()).then(|| Request::of_parts(head, body, &[]))
    }

    /// Of what lies in two places: the structure of its kind, and what follows.
    pub fn of_parts(head: InHeader, body: &'a [u8], rest: &'a [u8]) -> Request<'a> {
        Request { head, alone: Cell::new(0), body, rest }
    }

    /// The structure that its body begins with, and what follows.
    pub fn argument<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<(T, &'a [u8]), Errno> {
        let (argument, more) = T::read_from_prefix(self.body).map_err(|_| Errno(libc::EIO))?;
        Ok((argument, if more.is_empty() { self.rest } else { more }))
    }

    /// The body of a request without a structure.
    pub fn body(&self) -> &'a [u8] {
        if self.body.is_empty() { self.rest } else { self.body }
    }
}

/// Splits a name from what follows.
pub fn name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(Errno(libc::EIO))?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// Memory of a thread that answers requests: one for what it reads, one for what it writes.
pub struct Buffers {
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers { request: vec![0; BUFFER_BYTES], answer: vec![0; BUFFER_BYTES] }
    }
}

/// An answer that is being written, behind its head.
pub struct Answer<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Answer<'a> {
    /// Nothing, in memory that begins with so many bytes of a head.
    pub fn new(bytes: &'a mut [u8], head_bytes: usize) -> Answer<'a> {
        Answer { bytes, len: head_bytes }
    }

    /// Its bytes so far, and those of its head.
    pub fn len(&self) -> usize {
        self.len
    }

    /// As it was when it had so many bytes.
    pub fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Adds a structure.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.put_bytes(value.as_bytes());
    }

    /// Adds bytes. What has no room is left out; no answer that the kernel asks for is so long.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    /// Room for so many bytes of data, of which `fill` says how many it has written.
    pub fn fill(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let end = (self.len + bytes).min(self.bytes.len());
        self.len += fill(&mut self.bytes[self.len..end])?;
        Ok(())
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is answered.
    Answered,
    /// The kernel expects no answer.
    Unanswered,
    /// Somebody answers it later.
    Pending,
}

/// An answer that comes later: what follows its head.
pub type Late = Result<Vec<u8>, Errno>;

/// How long a thread waits awake for a request that is likely to come soon: to wake it would take longer than most answers.
const AWAKE: Duration = Duration::from_micros(50);
/// After a request that came so soon after an answer, the next one is likely to.
const SOON: Duration = Duration::from_micros(100);
/// While others answer most requests, inodes that are forgotten gather for so long: the kernel then tells of them at once.
const GATHER: Duration = Duration::from_millis(1);

/// As many threads wait for what others ask for at most: others stay that answer.
const WAITING_MAX: usize = EXTRA_MAX;

/// When requests come.
struct Rhythm {
    answered: Instant,
    is_quick: bool,
    /// The last one was that inodes are forgotten, and more of that is likely.
    forgets: bool,
}

/// The right to wait for requests.
struct Turn<'a> {
    channel: &'a Channel,
    rhythm: Option<MutexGuard<'a, Rhythm>>,
    /// Called when nobody is left that waits for requests.
    none_is_left: &'a dyn Fn(),
}

impl<'a> Turn<'a> {
    fn of(channel: &'a Channel, none_is_left: &'a dyn Fn()) -> Turn<'a> {
        channel.ready.fetch_add(1, SeqCst);
        Turn { channel, rhythm: Some(channel.turn.lock()), none_is_left }
    }

    /// Another thread may wait for requests.
    fn give_up(&mut self) {
        if self.rhythm.take().is_some() && self.channel.ready.fetch_sub(1, SeqCst) == 1 {
            (self.none_is_left)();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.rhythm.take().is_some() {
            self.channel.ready.fetch_sub(1, SeqCst);
        }
    }
}

/// The connection with the kernel.
pub struct Channel {
    device: File,
    /// Requests come by another way, too: the next one here is not likely to come soon.
    has_rings: AtomicBool,
    /// Those who wait for answers to requests that others answer here, by the numbers of these; none any more when the mount has ended.
    expected: Mutex<Option<FxHashMap<u64, Sender<Late>>>>,
    /// Threads that wait for what others ask for.
    waiting: AtomicUsize,
    /// Threads that wait for requests, or for their turn to do so.
    ready: AtomicUsize,
    /// Held by the one thread that waits for requests: the kernel would wake several in turn, each asleep on some processor.
    turn: Mutex<Rhythm>,
}

impl Channel {
    /// On an open `/dev/fuse`.
    pub fn new(device: File) -> io::Result<Channel> {
        rustix::io::ioctl_fionbio(&device, true)?;
        let rhythm = Rhythm { answered: Instant::now(), is_quick: false, forgets: false };
        let (has_rings, expected) = (AtomicBool::new(false), Mutex::new(Some(FxHashMap::default())));
        Ok(Channel {
            device,
            has_rings,
            expected,
            waiting: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            turn: Mutex::new(rhythm),
        })
    }

    /// How many threads wait for requests, or for their turn to do so.
    pub fn ready(&self) -> usize {
        self.ready.load(SeqCst)
    }

    /// Most requests come by rings from now on.
    pub fn set_has_rings(&self) {
        self.has_rings.store(true, Relaxed);
    }

    /// The answer to a request that did not come from `/dev/fuse`, and that somebody may answer later
    /// ([`Channel::answer_later`]). It ends without one when the mount ends.
    pub fn expect(&self, unique: u64) -> Receiver<Late> {
        let (sender, receiver) = channel();
        if let Some(expected) = &mut *self.expected.lock() {
            expected.insert(unique, sender);
        }
        receiver
    }

    /// Nobody waits for this answer any more.
    pub fn expect_no_more(&self, unique: u64) {
        if let Some(expected) = &mut *self.expected.lock() {
            expected.remove(&unique);
        }
    }

    /// There will be no answers: the mount has ended.
    pub fn end(&self) {
        *self.expected.lock() = None;
    }

    /// The open `/dev/fuse`.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Answers requests, one after the other, as long as they are short; one that may take long is the last, and another thread
    /// answers those that follow: `none_is_left` is called when there is none. `handle` is also given what it asks before it waits for
    /// what others ask for. False when the mount has ended.
    pub fn serve(
        &self,
        buffers: &mut Buffers,
        is_short: impl Fn(&Request<'_>) -> bool,
        handle: impl Fn(&Request<'_>, &mut Answer<'_>, &mut dyn FnMut() -> bool) -> Result<Outcome, Errno>,
        none_is_left: &dyn Fn(),
    ) -> io::Result<bool> {
        let mut turn = Turn::of(self, none_is_left);
        while let Some(rhythm) = turn.rhythm.as_deref_mut() {
            let received = self.receive(&mut buffers.request, rhythm);
            let mut forgets = false;
            let handle = |request: &Request<'_>, answer: &mut Answer<'_>| {
                if !is_short(request) {
                    turn.give_up();
                }
                forgets = matches!(request.head.opcode, op::FORGET | op::BATCH_FORGET);
                let mut waits = false;
                let outcome = handle(request, answer, &mut || {
                    waits = self.waiting.fetch_add(1, Relaxed) < WAITING_MAX;
                    if waits {
                        turn.give_up();
                    } else {
                        self.waiting.fetch_sub(1, Relaxed);
                    }
                    waits
                });
                if waits {
                    self.waiting.fetch_sub(1, Relaxed);
                }
                outcome
            };
            if !self.answer(received, buffers, handle)? {
                return Ok(false);
            }
            if let Some(rhythm) = &mut turn.rhythm {
                rhythm.answered = Instant::now();
                rhythm.forgets = forgets;
            }
        }
        Ok(true)
    }

    /// Waits for a request; its length.
    fn receive(&self, request: &mut [u8], rhythm: &mut Rhythm) -> io::Result<usize> {
        loop {
            match (&self.device).read(request) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => {
                    rhythm.is_quick = rhythm.answered.elapsed() < SOON && !self.has_rings.load(Relaxed);
                    return received;
                }
            }
            if std::mem::take(&mut rhythm.forgets) && self.has_rings.load(Relaxed) {
                std::thread::sleep(GATHER);
            } else if rhythm.is_quick && rhythm.answered.elapsed() < AWAKE {
                // Whoever else wants to run here goes first.
                std::thread::yield_now();
            } else {
                poll(&mut [PollFd::new(&self.device, PollFlags::IN)], None)?;
            }
        }
    }

    /// Answers a request. False when the mount has ended.
    fn answer(
        &self,
        received: io::Result<usize>,
        Buffers { request, answer }: &mut Buffers,
        handle: impl FnOnce(&Request<'_>, &mut Answer<'_>) -> Result<Outcome, Errno>,
    ) -> io::Result<bool> {
        let len = match received {
            // Of a connection that is a socket: its other end is closed.
            Ok(0) => return Ok(false),
            Ok(len) => len,
            // Nothing is lost: the kernel has taken the request back, or wants to be asked again.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR | libc::EAGAIN)) => {
                return Ok(true);
            }
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(request) = Request::parse(&request[..len]) else {
            return Err(io::Error::other("a request that is shorter than it says"));
        };
        let mut answer = Answer::new(answer, size_of::<OutHeader>());
        let unique = request.head.unique;
        match handle(&request, &mut answer) {
            Ok(Outcome::Answered) => {
                let head = OutHeader { len: answer.len as u32, error: 0, unique };
                answer.bytes[..size_of::<OutHeader>()].copy_from_slice(head.as_bytes());
                self.send(&answer.bytes[..answer.len])?;
            }
            Ok(Outcome::Unanswered | Outcome::Pending) => {}
            Err(errno) => self.say(unique, errno)?,
        }
        Ok(true)
    }

    /// Answers a request with nothing but success.
    pub fn accept(&self, unique: u64) -> io::Result<()> {
        self.answer_later(unique, Ok(Vec::new()))
    }

    /// Answers a request with an error.
    pub fn refuse(&self, unique: u64, errno: Errno) -> io::Result<()> {
        self.answer_later(unique, Err(errno))
    }

    /// Answers a request, from any thread.
    pub fn answer_later(&self, unique: u64, answer: Late) -> io::Result<()> {
        let expected = self.expected.lock().as_mut().and_then(|expected| expected.remove(&unique));
        if let Some(sender) = expected {
            // Whoever waits for it has ended with the mount otherwise.
            let _ = sender.send(answer);
            return Ok(());
        }
        match answer {
            Ok(bytes) => {
                let len = (size_of::<OutHeader>() + bytes.len()) as u32;
                let head = OutHeader { len, error: 0, unique };
                self.send(&[head.as_bytes(), &bytes].concat())
            }
            Err(errno) => self.say(unique, errno),
        }
    }

    fn say(&self, unique: u64, Errno(errno): Errno) -> io::Result<()> {
        let head = OutHeader { len: size_of::<OutHeader>() as u32, error: -errno, unique };
        self.send(head.as_bytes())
    }

    /// Tells the kernel something that is said by its number.
    pub fn tell(&self, code: i32) -> io::Result<()> {
        let head = OutHeader { len: size_of::<OutHeader>() as u32, error: code, unique: 0 };
        (&self.device).write(head.as_bytes()).map(drop)
    }

    /// Tells the kernel something without being asked; `NotFound` when it does not know what this is about.
    pub fn notify<T: IntoBytes + Immutable>(&self, code: i32, notice: &T) -> io::Result<()> {
        self.notify_with(code, notice, &[])
    }

    /// The same, with bytes behind the structure.
    pub fn notify_with<T: IntoBytes + Immutable>(
        &self,
        code: i32,
        notice: &T,
        more: &[u8],
    ) -> io::Result<()> {
        let len = size_of::<OutHeader>() + size_of::<T>() + more.len();
        let head = OutHeader { len: len as u32, error: code, unique: 0 };
        (&self.device).write(&[head.as_bytes(), notice.as_bytes(), more].concat()).map(drop)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match (&self.device).write(bytes) {
            Ok(_) => Ok(()),
            // Nobody waits for the answer any more, or the mount has ended, which the next read says.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EINTR)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_long_as_it_says() {
        let head = InHeader { len: 45, opcode: 1, node: 7, ..InHeader::default() };
        let bytes = [head.as_bytes(), b"name\0"].concat();
        let request = Request::parse(&bytes).unwrap();
        assert_eq!((request.head.node, name(request.body()).unwrap()), (7, (&b"name"[..], &b""[..])));
        assert_eq!(request.argument::<u64>().err(), Some(Errno(libc::EIO)));
        let (argument, rest) = (head.as_bytes(), &b"name\0"[..]);
        let request = Request::of_parts(head, argument, rest);
        assert_eq!(request.argument::<InHeader>().unwrap().1, rest);
        assert_eq!(request.argument::<u64>().unwrap().1.len(), 32, "a part of the structure");
        assert_eq!(Request::of_parts(head, b"", rest).body(), rest);
        assert!(Request::parse(&bytes[..44]).is_none() && Request::parse(&bytes[..30]).is_none());
        assert_eq!(name(b"no end"), Err(Errno(libc::EIO)));
    }
}
