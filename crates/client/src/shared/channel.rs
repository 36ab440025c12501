//! The channel of one client process: call slots and counters.
//!
//! A thread claims a free slot, writes a request and its payload, sets `SUBMITTED`, and sleeps until `DONE`. Each slot
//! that was ever used has a server thread of its own, so calls of one process do not queue behind one another.

use super::queue::Queue;
use crate::proto::FileRef;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use weft_core::hist::Histogram;

/// Call slots of a channel.
pub const SLOTS: usize = 64;
/// Payload bytes of a slot.
pub const PAYLOAD_BYTES: usize = 256 * 1024;

/// Nobody uses the slot.
pub const FREE: u32 = 0;
/// A client thread fills it.
pub const CLAIMED: u32 = 1;
/// It holds a request.
pub const SUBMITTED: u32 = 2;
/// It holds the response.
pub const DONE: u32 = 3;

/// A request. What the arguments mean is said at each [`crate::proto::Op`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Request {
    /// [`crate::proto::Op`] as a number.
    pub op: u32,
    /// Bytes of the first payload part (a path, or data).
    pub len1: u32,
    /// Bytes of the second payload part, right after the first.
    pub len2: u32,
    /// CPU on which the caller runs.
    pub cpu: u32,
    /// The calling thread when it has an identity of its own; else 0.
    pub thread: u32,
    /// 0.
    pub reserved: u32,
    /// Arguments.
    pub args: [u64; 8],
}

/// A response.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Response {
    /// Result, or a negative errno.
    pub ret: i64,
    /// Bytes of the payload.
    pub len: u64,
    /// Further results.
    pub values: [u64; 6],
}

/// A call slot.
#[repr(C, align(4096))]
pub struct Slot {
    /// [`FREE`], [`CLAIMED`], [`SUBMITTED`] or [`DONE`]; both sides sleep on it.
    pub state: AtomicU32,
    /// Non-zero while the client sleeps on `state`.
    pub client_sleeps: AtomicU32,
    /// Non-zero while the server sleeps on `state`.
    pub server_sleeps: AtomicU32,
    /// Non-zero once the slot has a server thread.
    pub served: AtomicU32,
    /// The request; the client's until `SUBMITTED`.
    pub request: std::cell::UnsafeCell<Request>,
    /// The response; the server's until `DONE`.
    pub response: std::cell::UnsafeCell<Response>,
}

/// Latencies and counts of a process: its calls, and the reads and writes that it does without the server.
#[repr(C, align(4096))]
#[derive(Default)]
pub struct ClientCounters {
    /// Latency of reads.
    pub reads: Histogram,
    /// Latency of writes.
    pub writes: Histogram,
    /// Latency of fsync and its kin.
    pub syncs: Histogram,
    /// Device blocks read under a lease.
    pub direct_blocks: AtomicU64,
    /// Reads served under a lease.
    pub direct_reads: AtomicU64,
    /// Bytes accepted into rings.
    pub ring_bytes: AtomicU64,
    /// Calls that went through a slot.
    pub calls: AtomicU64,
}

/// Closed files of a process that it has not told the server of yet, at most.
pub const CLOSED_MAX: usize = 63;

/// Open files that the process has closed, and tells the server of with its next request.
///
/// A process adds one that nobody can miss: what was written is with the core, and the inode has [all its
/// names](super::volume::Inode::attended) and no locks. The server takes them before it answers a request of the process,
/// makes it a child, or takes a name from an inode that is open.
#[repr(C, align(4096))]
pub struct Closed {
    /// Counts those that were added since the server took them.
    pub added: AtomicU32,
    /// References plus 1; 0 in a free place.
    pub files: [AtomicU64; CLOSED_MAX],
}

/// Open files that a process has been granted at once, at most.
pub const GRANTS_MAX: usize = 64;
/// Bytes of the path of a file that a process opens by itself, at most; a multiple of 8.
pub const GRANT_PATH_MAX: usize = 1024;

/// What a place of [`Grants`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantWord(pub u64);

impl GrantWord {
    /// No open file is granted in this place.
    pub const NONE: GrantWord = GrantWord(0);
    /// The process may use the open file.
    pub const FREE: u64 = 1 << 24;
    /// A thread of the process is about to use it, or to give it back.
    pub const TAKEN: u64 = 2 << 24;
    /// The process has opened an inode with it, which the server does not know yet.
    pub const USED: u64 = 3 << 24;

    /// The word of an open file in one of the states.
    pub fn new(file: FileRef, state: u64) -> GrantWord {
        GrantWord(file.0 | state)
    }

    /// Its state; 0 where there is none.
    pub fn state(self) -> u64 {
        self.0 & GrantWord::USED
    }

    /// The open file.
    pub fn file(self) -> FileRef {
        FileRef(self.0 & !GrantWord::USED)
    }
}

/// What a process says of an inode that it has opened by itself.
#[repr(C)]
pub struct OpenedHere {
    /// The directory that the path begins in, unless it begins with `/`.
    pub at: AtomicU64,
    /// Inode number of the directory that has the name.
    pub dir: AtomicU64,
    /// The inode's slot.
    pub inode: AtomicU32,
    /// Bytes of the path.
    pub path_len: AtomicU32,
    /// The path, little-endian.
    pub path: [AtomicU64; GRANT_PATH_MAX / 8],
}

/// Open files that a process may use by itself, to open for reading what is open already or was not long ago.
///
/// The process takes a free one, writes down what it opens, and makes it a used one; then it looks whether the server still
/// has the inode. The server looks for used ones before it gives an inode up, and makes one an open file like others, with
/// another one granted in its place, when it has to know of it: for a request that names it, and for whoever shares the
/// process's open files.
#[repr(C, align(4096))]
pub struct Grants {
    /// [`GrantWord`]s.
    pub words: [AtomicU64; GRANTS_MAX],
    /// What has been opened.
    pub opened: [OpenedHere; GRANTS_MAX],
}

impl Grants {
    /// The word in a place.
    pub fn word(&self, place: usize) -> GrantWord {
        GrantWord(self.words[place].load(SeqCst))
    }

    /// Replaces a word, if it is still what it was.
    pub fn replace(&self, place: usize, was: GrantWord, now: GrantWord) -> bool {
        self.words[place].compare_exchange(was.0, now.0, SeqCst, Relaxed).is_ok()
    }

    /// The places whose words are in a state.
    pub fn in_state(&self, state: u64) -> impl Iterator<Item = (usize, GrantWord)> + '_ {
        let all = (0..GRANTS_MAX).map(|place| (place, self.word(place)));
        all.filter(move |(_, word)| word.state() == state)
    }
}

impl OpenedHere {
    /// Writes down what is opened; the path is at most [`GRANT_PATH_MAX`] bytes long.
    pub fn set(&self, at: FileRef, dir: u64, inode: u32, path: &[u8]) {
        self.at.store(at.0, Relaxed);
        self.dir.store(dir, Relaxed);
        self.inode.store(inode, Relaxed);
        self.path_len.store(path.len() as u32, Relaxed);
        for (word, piece) in self.path.iter().zip(path.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            word.store(u64::from_le_bytes(bytes), Relaxed);
        }
    }

    /// Copies the path into `out`; as much as there can be of it.
    pub fn path<'o>(&self, out: &'o mut [u8; GRANT_PATH_MAX]) -> &'o [u8] {
        for (piece, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(&self.path) {
            *piece = word.load(Relaxed).to_le_bytes();
        }
        &out[..(self.path_len.load(Relaxed) as usize).min(GRANT_PATH_MAX)]
    }
}

/// What the server tells without being asked.
#[repr(C, align(4096))]
pub struct Events {
    /// Each counts how often threads that wait for locks were told to ask again: see [`Events::turn`].
    turns: [AtomicU32; TURNS],
    /// Non-zero while more threads want the processors than there are (`patience::Crowd`).
    pub oversubscribed: AtomicU32,
    /// Counts connections of children that the process has not waited for, and that have begun or were refused.
    pub children: AtomicU32,
    /// The thread that is to stop when its long write has ended, in the low half, and [`STOP_COMES`] or [`STOP_CAME`]; 0 = none.
    pub stop_at_end: AtomicU64,
}

/// Threads that wait for locks share so many counters: when one is told, few others wake with it.
const TURNS: usize = 512;

impl Events {
    /// What counts how often this thread, by its number, was told to ask again for the lock that it waits for; it sleeps on it.
    pub fn turn(&self, thread: u64) -> &AtomicU32 {
        &self.turns[thread as usize % TURNS]
    }
}

/// In [`Events::stop_at_end`]: the server is about to send the thread a `SIGTSTP`, which it has blocked.
pub const STOP_COMES: u64 = 1 << 32;
/// It has sent it. When it is not pending any more at the end, the process was told to go on since.
pub const STOP_CAME: u64 = 2 << 32;

/// Groups of an [`Identity`].
pub const GROUPS_MAX: usize = 64;

/// Who the process is to the server, for what the process may judge itself. The server writes it.
#[repr(C, align(4096))]
pub struct Identity {
    /// Odd while it changes.
    pub seq: AtomicU32,
    /// 0: ask the server. Else effective and real user are the same, with at most [`GROUPS_MAX`] groups.
    pub known: AtomicU32,
    /// User.
    pub uid: AtomicU32,
    /// Groups, the primary one first.
    pub group_count: AtomicU32,
    /// Capability bits.
    pub capabilities: AtomicU64,
    /// The groups.
    pub groups: [AtomicU32; GROUPS_MAX],
}

/// Threads of a process that write to the append log at once, at most.
pub const LOG_WRITERS: usize = 16;

/// Who of the process is writing to the append log. The server begins no turn of the log while anybody does who may have a place
/// of the turn before.
#[repr(C, align(4096))]
pub struct LogWriters {
    /// The turn that a thread found before it took its place; 0 in a free cell.
    pub turns: [AtomicU32; LOG_WRITERS],
    /// Whether the server looks at these cells; 0 = the process writes nothing to the log.
    pub is_served: AtomicU32,
}

/// A whole channel.
#[repr(C)]
pub struct Channel {
    /// Measurements.
    pub measured: ClientCounters,
    /// Events.
    pub events: Events,
    /// Who the process is.
    pub identity: Identity,
    /// What it has closed.
    pub closed: Closed,
    /// What it may open by itself.
    pub grants: Grants,
    /// Who writes to the append log.
    pub log_writers: LogWriters,
    /// Who waits for a slot.
    pub slot_queue: Queue,
    /// Slots.
    pub slots: [Slot; SLOTS],
    /// Payloads, one per slot.
    pub payloads: [[u8; PAYLOAD_BYTES]; SLOTS],
}
