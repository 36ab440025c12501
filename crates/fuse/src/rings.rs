//! Requests by io_uring (Linux 6.14), beside `/dev/fuse`.
//!
//! ```text
//!  program on processor 0 --> queue 0 --+--> thread: memory for one request <--> front
//!                                       +--> thread: ...
//!  program on processor 1 --> queue 1 --+--> ...
//! ```
//!
//! The kernel has a queue for each processor, and gives a request to a thread of the queue of the processor on which the program
//! runs. The thread runs there, too: to wake it takes no other processor. Answer and next request are one system call, by the thread's
//! own ring ([`Exchange`]). The kernel chooses the thread that was free last.
//!
//! A thread has memory for one request, and answers it before it takes the next one. So one that takes long holds up nobody: the queue has
//! other threads. A program that waits for a lock, or for a compound program, keeps its thread waiting; a queue gets more threads, so that some never wait, up to
//! [`WAITING_MAX`].
//!
//! A new thread gets new requests. Those that came when all threads of the queue had one the kernel gives to a thread only when it has
//! given back an answer. So the new thread gets a request of the server's own first ([`Rings::stir`]). At the beginning, too, requests come
//! while a queue has some of its threads only.
//!
//! What the kernel does not send this way goes on to come from `/dev/fuse`: `FORGET`, `INTERRUPT`, and all before the queues are
//! ready. Notices go there. If the kernel takes back what it has agreed to, all comes from there.

use crate::abi::{InHeader, OutHeader, RetrieveOut, RingCommand, RingHead, notice, op, ring};
use crate::channel::{Answer, Channel, DATA_BYTES_MAX, Errno, Late, Outcome, Request};
use crate::front::{Front, may_be_answered_later};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weft_server::acts_for_watcher;
use weft_sys::exchange::{ARGUMENT_BYTES, Exchange};
use weft_sys::thread::{Affinity, possible_processors};
use zerocopy::{FromBytes, IntoBytes};

/// Threads of a queue from the beginning on, and of a queue among many.
const THREADS: u32 = 4;
const THREADS_OF_MANY: u32 = 2;
/// From so many queues on they are many.
const MANY_QUEUES: u32 = 16;
/// Threads of a queue that do not wait for locks, for programs or for room, whatever the others do.
const SERVING_MIN: u32 = 2;
/// Programs that can wait at the same time, by the queue of one processor. Others get `ENOLCK`, or `EAGAIN` for a compound program.
const WAITING_MAX: u32 = 512;
/// What follows the structure of a request is copied when it is so short; the answer then goes where it was.
const COPIED_BYTES: usize = 1024;
/// Numbers of the server's own requests, from here on: the kernel's are lower, and its lowest bit is that of an interrupt.
const OWN_UNIQUE: u64 = 1 << 62;
const OWN_UNIQUE_STEP: u64 = 2;
/// Pause before a command is given again that the kernel did not take.
const PAUSE: Duration = Duration::from_millis(1);
/// Pauses between the server's own requests at the beginning: the first one, and the longest; and how many there are at most.
const SETTLING: Duration = Duration::from_millis(1);
const SETTLING_MAX: Duration = Duration::from_millis(64);
const SETTLING_ROUNDS_MAX: u32 = 64;

/// Says whether the kernel offers rings to new mounts: "Y" or "N".
const OFFER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the kernel offers rings, as far as it can be known before a mount.
pub fn are_offered() -> bool {
    match std::fs::read_to_string(OFFER) {
        Ok(offer) => offer.trim() == "Y",
        // Older than Linux 6.14, unless nothing is to be seen there of the module.
        Err(_) => !Path::new("/sys/module/fuse").exists(),
    }
}

/// The queues of a mount, and who serves them.
pub struct Rings {
    front: Arc<Front>,
    channel: Arc<Channel>,
    queues: Vec<Queue>,
    gate: Gate,
    /// Threads from the beginning that have not given the kernel their memory yet.
    not_begun: Mutex<usize>,
    /// There is none any more.
    all_begun: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    own_unique: AtomicU64,
    /// Requests so far that kept a thread waiting.
    waits: AtomicU64,
    stirs: Mutex<Stirs>,
    /// Something of them has changed.
    stirs_changed: Condvar,
}

/// What the thread that stirs is to do.
#[derive(Default)]
struct Stirs {
    /// Queues that a request is to go to.
    queues: Vec<usize>,
    has_ended: bool,
}

/// A queue of the kernel's, by the number of its processor.
struct Queue {
    processor: u16,
    /// All its threads that have begun to serve it, or will when the gate opens.
    threads: AtomicU32,
    /// Those that wait for locks, for programs or for room, or are about to know whether they have to.
    waiting: AtomicU32,
}

/// Where threads wait until the kernel has agreed.
#[derive(Default)]
struct Gate {
    is_open: Mutex<Option<bool>>,
    moved: Condvar,
}

impl Gate {
    /// Once; what is said first counts.
    fn set(&self, is_open: bool) {
        self.is_open.lock().get_or_insert(is_open);
        self.moved.notify_all();
    }

    fn is_open(&self) -> bool {
        *self.is_open.lock() == Some(true)
    }

    fn wait(&self) -> bool {
        let mut is_open = self.is_open.lock();
        loop {
            match *is_open {
                Some(is_open) => return is_open,
                None => self.moved.wait(&mut is_open),
            }
        }
    }
}

impl Rings {
    /// Makes all that the queues need: once the kernel has agreed to use them, it waits for them.
    ///
    /// # Errors
    /// The kernel refuses rings, or the system has no memory or no threads for them.
    pub fn new(front: Arc<Front>, channel: Arc<Channel>) -> io::Result<Arc<Rings>> {
        let count = possible_processors()?;
        let queue = |processor| Queue { processor, threads: AtomicU32::new(0), waiting: AtomicU32::new(0) };
        let queues = (0..u16::try_from(count).unwrap_or(u16::MAX)).map(queue).collect();
        let each = if count < MANY_QUEUES { THREADS } else { THREADS_OF_MANY };
        let rings = Arc::new(Rings {
            front,
            channel,
            queues,
            gate: Gate::default(),
            not_begun: Mutex::new(count as usize * each as usize),
            all_begun: Condvar::new(),
            threads: Mutex::default(),
            own_unique: AtomicU64::new(OWN_UNIQUE),
            waits: AtomicU64::new(0),
            stirs: Mutex::default(),
            stirs_changed: Condvar::new(),
        });
        let begun = (|| {
            for queue in 0..rings.queues.len() {
                for _ in 0..each {
                    rings.add_thread(queue)?;
                }
            }
            Ok(())
        })();
        match begun {
            Ok(()) => Ok(rings),
            Err(error) => {
                rings.begin(false);
                rings.join();
                Err(error)
            }
        }
    }

    /// The kernel has agreed, or not: then there is nothing to be served.
    pub fn begin(&self, has_agreed: bool) {
        self.gate.set(has_agreed);
    }

    /// The mount is about to end.
    pub fn end(&self) {
        self.begin(false);
        self.stirs.lock().has_ended = true;
        self.stirs_changed.notify_all();
    }

    /// Waits until the threads have ended, as they do when the mount has.
    pub fn join(&self) {
        // A thread may add another one meanwhile.
        while let Some(thread) = { self.threads.lock().pop() } {
            // One that has panicked is at its end, too.
            let _ = thread.join();
        }
    }

    /// Adds a thread to a queue. If the gate is open, the kernel has its memory when this returns.
    fn add_thread(self: &Arc<Rings>, queue: usize) -> io::Result<()> {
        let (rings, processor) = (self.clone(), self.queues[queue].processor);
        let (made, is_made) = mpsc::channel();
        let run = move || rings.run(queue, &made);
        let thread = thread::Builder::new().name(format!("weft-ring-{processor}")).spawn(run)?;
        self.threads.lock().push(thread);
        is_made.recv().map_err(|_| io::Error::other("a thread has ended"))??;
        self.queues[queue].threads.fetch_add(1, SeqCst);
        Ok(())
    }

    fn run(self: &Arc<Rings>, queue: usize, made: &Sender<io::Result<()>>) {
        acts_for_watcher();
        let mut affinity = Affinity::of_this_thread();
        affinity.restrict_to(self.queues[queue].processor.into());
        // SAFETY: the device is the kernel's FUSE, which touches what it was given only while a command is under way.
        let exchange = unsafe { Exchange::new(&self.channel.as_fd(), size_of::<RingHead>(), DATA_BYTES_MAX) };
        let mut exchange = match exchange {
            Ok(exchange) => exchange,
            Err(error) => {
                let _ = made.send(Err(error));
                return;
            }
        };
        let is_late = self.gate.is_open();
        let begun = if is_late { self.register(queue, &mut exchange) } else { Ok(()) };
        let fails = begun.is_err();
        // Nobody hears it when the others have ended already.
        let _ = made.send(begun);
        if fails || !self.gate.wait() {
            return;
        }
        let begun = if is_late { Ok(()) } else { self.register(queue, &mut exchange) };
        if !is_late {
            let mut not_begun = self.not_begun.lock();
            *not_begun -= 1;
            if *not_begun == 0 {
                self.all_begun.notify_all();
            }
        }
        if let Err(error) = begun.and_then(|()| self.serve(queue, &mut exchange)) {
            tracing::error!(%error, "a thread of a mount does not answer requests of the kernel any more");
        }
    }

    /// Gives the kernel the memory of a thread.
    fn register(&self, queue: usize, exchange: &mut Exchange) -> io::Result<()> {
        exchange.begin(ring::REGISTER, &self.argument(queue, 0))
    }

    fn argument(&self, queue: usize, commit_id: u64) -> [u8; ARGUMENT_BYTES] {
        let command =
            RingCommand { commit_id, queue: self.queues[queue].processor, ..RingCommand::default() };
        let mut argument = [0; ARGUMENT_BYTES];
        argument[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        argument
    }

    /// Has the kernel give the requests that wait in the queue of this processor to threads: a request of the server's own, for nothing
    /// of a file that the kernel knows, has one of them give back an answer. Of a directory the kernel has nothing to be asked for:
    /// then the thread that stirs asks for something of the mount.
    fn stir(&self, queue: usize, file: u64) {
        let unique = self.own_unique.fetch_add(OWN_UNIQUE_STEP, Relaxed);
        let nothing = RetrieveOut { unique, node: file, offset: 0, size: 0, pad: 0 };
        if self.channel.notify(notice::RETRIEVE, &nothing).is_err() {
            self.stirs.lock().queues.push(queue);
            self.stirs_changed.notify_all();
        }
    }

    /// Stirs queues until the mount ends, by requests for nothing of the directory that it is mounted on.
    pub fn stir_all(&self, dir: &Path) {
        let mut affinity = Affinity::of_this_thread();
        if !self.gate.wait() {
            return;
        }
        self.settle(dir, &mut affinity);
        loop {
            let mut stirs = self.stirs.lock();
            while stirs.queues.is_empty() && !stirs.has_ended {
                self.stirs_changed.wait(&mut stirs);
            }
            if stirs.has_ended {
                return;
            }
            let queues = std::mem::take(&mut stirs.queues);
            drop(stirs);
            queues.into_iter().for_each(|queue| self.ask(queue, dir, &mut affinity));
        }
    }

    /// Has the kernel give out the requests that came while queues had only some of their threads: it uses the queues as soon as each
    /// has one, and gives out what found no thread free with the next answer of its queue. That may be the answer of a program which
    /// waits for just this request. So queues are stirred until no more is found that waits.
    fn settle(&self, dir: &Path, affinity: &mut Affinity) {
        {
            let mut not_begun = self.not_begun.lock();
            while *not_begun > 0 {
                self.all_begun.wait(&mut not_begun);
            }
        }
        let mut pause = SETTLING;
        for _ in 0..SETTLING_ROUNDS_MAX {
            let before = self.waits.load(SeqCst);
            (0..self.queues.len()).for_each(|queue| self.ask(queue, dir, affinity));
            let mut stirs = self.stirs.lock();
            if stirs.has_ended || pause >= SETTLING_MAX && before == self.waits.load(SeqCst) {
                return;
            }
            self.stirs_changed.wait_for(&mut stirs, pause);
            pause = (2 * pause).min(SETTLING_MAX);
        }
    }

    /// Sends a request through a queue.
    fn ask(&self, queue: usize, dir: &Path, affinity: &mut Affinity) {
        affinity.restrict_to(self.queues[queue].processor.into());
        // It fails when the mount has ended, and the queues with it.
        let _ = rustix::fs::statvfs(dir);
    }

    /// Answers requests until the mount ends.
    fn serve(self: &Arc<Rings>, queue: usize, exchange: &mut Exchange) -> io::Result<()> {
        let mut buffers = Buffers { names: vec![0; COPIED_BYTES], answer: vec![0; DATA_BYTES_MAX] };
        let (mut number, mut commit_id) = (ring::REGISTER, 0);
        let mut ended = exchange.end()?;
        loop {
            match -ended {
                0 => {
                    let Some(answered) = self.answer(queue, exchange, &mut buffers) else { return Ok(()) };
                    (number, commit_id) = (ring::COMMIT_AND_FETCH, answered);
                }
                // The kernel did not take the command.
                libc::EAGAIN | libc::EINTR => thread::sleep(PAUSE),
                // The mount has ended, or the kernel stays with `/dev/fuse`.
                libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV => return Ok(()),
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
            ended = exchange.command(number, &self.argument(queue, commit_id))?;
        }
    }

    /// Writes the answer to the request that has come; by what number to give it, none when the mount has ended.
    fn answer(
        self: &Arc<Rings>,
        queue: usize,
        exchange: &mut Exchange,
        buffers: &mut Buffers,
    ) -> Option<u64> {
        let (head_bytes, payload) = exchange.parts();
        let mut head = RingHead::read_from_bytes(head_bytes).ok()?;
        let (request, _) = InHeader::read_from_prefix(head.in_out.as_bytes()).ok()?;
        let answered = self.handle(queue, &request, &head, payload, buffers)?;
        let (errno, len) = match answered {
            Ok(len) => (0, len),
            Err(Errno(errno)) => (errno, 0),
        };
        let out =
            OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: -errno, unique: request.unique };
        head.in_out.as_mut_bytes()[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        head.payload_bytes = len as u32;
        head_bytes.copy_from_slice(head.as_bytes());
        Some(head.commit_id)
    }

    /// Answers a request with so many bytes of the payload; none when the mount has ended meanwhile.
    fn handle(
        self: &Arc<Rings>,
        queue: usize,
        request: &InHeader,
        head: &RingHead,
        payload: &mut [u8],
        Buffers { names, answer }: &mut Buffers,
    ) -> Option<Result<usize, Errno>> {
        let bytes = head.payload_bytes as usize;
        let argument_bytes = (request.len as usize).checked_sub(size_of::<InHeader>() + bytes);
        let argument = argument_bytes.and_then(|bytes| head.op_in.as_bytes().get(..bytes));
        let (Some(argument), true) = (argument, bytes <= payload.len()) else {
            tracing::error!(opcode = request.opcode, "a request that is longer than it says");
            return Some(Err(Errno(libc::EIO)));
        };
        let waits = may_be_answered_later(request.opcode, argument);
        if request.opcode == op::NOTIFY_REPLY {
            return Some(Ok(0));
        }
        if waits && !self.may_wait(queue, request.node) {
            return Some(Err(Errno(if request.opcode == op::SETLKW { libc::ENOLCK } else { libc::EAGAIN })));
        }
        let expected = waits.then(|| self.channel.expect(request.unique));
        let mut waited = waits;
        let mut may_wait = || {
            waited = self.may_wait(queue, request.node);
            waited
        };
        let (outcome, len) = if bytes <= COPIED_BYTES {
            names[..bytes].copy_from_slice(&payload[..bytes]);
            let request = Request::of_parts(*request, argument, &names[..bytes]);
            let mut answer = Answer::new(payload, 0);
            (self.front.handle(&request, &mut answer, &self.channel, &mut may_wait), answer.len())
        } else {
            let request = Request::of_parts(*request, argument, &payload[..bytes]);
            let mut written = Answer::new(answer, 0);
            let outcome = self.front.handle(&request, &mut written, &self.channel, &mut may_wait);
            let len = written.len();
            payload[..len].copy_from_slice(&answer[..len]);
            (outcome, len)
        };
        let answered = match (outcome, &expected) {
            (Ok(Outcome::Pending), Some(expected)) => self.wait(request, expected, payload),
            (Ok(Outcome::Answered), _) => Some(Ok(len)),
            // The kernel waits for an answer to all that comes this way.
            (Ok(Outcome::Unanswered | Outcome::Pending), _) => Some(Ok(0)),
            (Err(errno), _) => Some(Err(errno)),
        };
        if waits {
            self.channel.expect_no_more(request.unique);
        }
        if waited {
            self.queues[queue].waiting.fetch_sub(1, SeqCst);
        }
        answered
    }

    /// Whether one more thread of a queue may wait, for a lock of a file, for a program or for room: others stay that do not.
    fn may_wait(self: &Arc<Rings>, queue: usize, file: u64) -> bool {
        let Queue { threads, waiting, .. } = &self.queues[queue];
        self.waits.fetch_add(1, SeqCst);
        let waiting_now = waiting.fetch_add(1, SeqCst) + 1;
        let may = waiting_now <= WAITING_MAX && {
            let serving = threads.load(SeqCst).saturating_sub(waiting_now);
            let is_enough = serving >= SERVING_MIN;
            let is_added = !is_enough && self.add_thread(queue).is_ok();
            if is_added {
                self.stir(queue, file);
            }
            is_enough || is_added
        };
        if !may {
            waiting.fetch_sub(1, SeqCst);
        }
        may
    }

    /// Waits for an answer that another thread gives: that a lock is had, or that a program has run; none when the mount has ended.
    fn wait(
        &self,
        request: &InHeader,
        expected: &Receiver<Late>,
        payload: &mut [u8],
    ) -> Option<Result<usize, Errno>> {
        // The kernel does not tell of a signal that came before this thread had the request.
        if has_signal(request.pid) {
            self.front.interrupt(request, request.unique, &self.channel);
        }
        let answer = expected.recv().ok()?;
        Some(answer.map(|bytes| {
            let len = bytes.len().min(payload.len());
            payload[..len].copy_from_slice(&bytes[..len]);
            len
        }))
    }
}

/// Memory of a thread.
struct Buffers {
    /// What follows the structure of a request, when it is short.
    names: Vec<u8>,
    /// The answer to a request that takes the place of the answer. It takes memory as it is used.
    answer: Vec<u8>,
}

/// Whether a thread of a program is about to handle a signal.
fn has_signal(thread: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| shows_signal(&status))
}

fn shows_signal(status: &str) -> bool {
    let set = |name: &str| {
        let text = status.lines().find_map(|line| line.strip_prefix(name));
        text.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_counts_when_it_is_not_blocked() {
        let status = |thread, process, blocked| {
            format!("Name:\tx\nSigPnd:\t{thread:016x}\nShdPnd:\t{process:016x}\nSigBlk:\t{blocked:016x}\n")
        };
        let shown = [(0, 0, 0), (4, 0, 4), (4, 0, 0), (0, 4, 2), (0, 4, 4)]
            .map(|(thread, process, blocked)| shows_signal(&status(thread, process, blocked)));
        assert_eq!(shown, [false, false, true, true, false]);
        assert!(!shows_signal("") && !has_signal(0));
    }
}
