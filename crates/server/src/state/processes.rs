//! The processes that use a volume: what each holds, and what they measure of their own calls.
//!
//! A front begins a process ([`Volume::begin_process`]) when a program connects, and ends it when the program is gone
//! for whatever reason. In between, the state reaches the program by the process's [`Peer`], which the front
//! provides.
//!
//! A running process keeps its figures in memory that it shares with the server; the server adds those of a process
//! that ends to a sum. This happens under the table's lock, so that each process counts once at any moment.

use super::grants::Granted;
use super::inodes::Unfinished;
use super::kept_programs::KeptPrograms;
use super::locks::Waiter;
use super::open_files::OpenFiles;
use super::volume::Volume;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};
use weft_client::FileRef;
use weft_client::shared::channel::{ClientCounters, Grants};
use weft_core::{BLOCK_BYTES, Ino};
use weft_sys::clock::boot_ns;
use weft_volume::{ProgramView, SharedUse};

/// How the state reaches a process by way of the front that serves it.
pub trait Peer: Send + Sync {
    /// Whether the process has ended, although the front may not have noticed yet.
    fn has_ended(&self) -> bool {
        false
    }

    /// The process's number in the system, where it is known.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// Calls `each` with the files that the process has closed and not told of. It may name any file, and more than once.
    fn take_closed(&self, _each: &mut dyn FnMut(FileRef)) {}

    /// Where the process opens files by itself, if it can.
    fn grants(&self) -> Option<&Grants> {
        None
    }

    /// Whether a thread of the process may be writing to the append log.
    fn writes_to_log(&self) -> bool {
        false
    }

    /// Lets the process write to the append log.
    fn let_into_log(&self) {}

    /// Ends that; whether a thread of it may be writing still.
    fn shut_out_of_log(&self) -> bool {
        false
    }

    /// This thread of the process, which waits for a lock, asks again.
    fn locks_changed(&self, _thread: u64) {}

    /// When the process is stopped, it goes on until it has ended a write that others wait for, and is stopped again then: in the
    /// kernel a stop takes effect when the call returns.
    fn finish(&self, _write: Unfinished<'_>) {}

    /// The server stops: the front ends the process.
    fn disconnect(&self) {}

    /// What the process measures of its own calls.
    fn measured(&self) -> Option<&ClientCounters> {
        None
    }
}

/// A process that uses the volume.
pub struct Process {
    /// Its number; its locks in shared memory carry it plus 1.
    pub id: u32,
    /// Where the volume appears to it.
    pub mount_point: Vec<u8>,
    name: Mutex<String>,
    leased: AtomicBool,
    ending: AtomicBool,
    /// Slot plus 1 of the inode that the server last kept for a long write of the process; 0 = none.
    pub(crate) long_write: AtomicU32,
    /// References to open files that it holds.
    files: Mutex<FxHashMap<u64, u32>>,
    pub(super) granted: Mutex<Granted>,
    /// Programs that it runs again and again.
    pub(crate) programs: Mutex<KeptPrograms>,
    pub(crate) peer: Arc<dyn Peer>,
}

impl Process {
    /// Its name.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// It has become another program.
    pub fn set_name(&self, name: String) {
        *self.name.lock() = name;
    }

    /// Whether it has the memory of leases: it may have been given, and has not been given up.
    pub fn is_leased(&self) -> bool {
        self.leased.load(Relaxed)
    }

    /// It has been given the memory of leases, or has given it up.
    pub fn set_leased(&self, leased: bool) {
        self.leased.store(leased, Relaxed);
    }

    /// A thread of the process that waits for locks.
    pub fn waiter(&self, thread: u64) -> Waiter {
        Waiter { process: self.id, thread, peer: self.peer.clone() }
    }

    /// Whether it is gone, or about to be.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Relaxed)
    }

    /// No request of it is answered any more.
    pub fn set_ending(&self) {
        self.ending.store(true, SeqCst);
    }

    /// Counts a reference that the process holds from now on.
    pub(crate) fn hold(&self, file: FileRef) {
        *self.files.lock().entry(file.0).or_insert(0) += 1;
    }

    /// Takes one reference away from the process; false when it holds none.
    pub(crate) fn give_up(&self, file: FileRef) -> bool {
        let mut files = self.files.lock();
        let Some(count) = files.get_mut(&file.0) else { return false };
        *count -= 1;
        if *count == 0 {
            files.remove(&file.0);
        }
        true
    }

    /// Whether the process holds a reference.
    pub fn holds(&self, file: FileRef) -> bool {
        self.files.lock().contains_key(&file.0)
    }

    /// All references with their counts.
    fn held(&self) -> Vec<(FileRef, u32)> {
        self.files.lock().iter().map(|(file, count)| (FileRef(*file), *count)).collect()
    }

    /// Holds as many references to each file as `wanted` says, of those that it holds at all. Returns what is to be given
    /// back. In one step: other threads may close files.
    pub(crate) fn retain(&self, wanted: &FxHashMap<u64, u32>, files: &OpenFiles) -> Vec<(FileRef, u32)> {
        let mut given_back = Vec::new();
        self.files.lock().retain(|file, held| {
            let (file, wanted) = (FileRef(*file), wanted.get(file).copied().unwrap_or(0));
            if *held > wanted {
                given_back.push((file, *held - wanted));
                *held = wanted;
            }
            while *held < wanted && files.reference(file) {
                *held += 1;
            }
            *held > 0
        });
        given_back
    }
}

impl Volume {
    /// A process uses the volume from now on. With a parent, it begins with references to the same open files, and has
    /// the parent's memory. `None` when the server is about to stop.
    pub fn begin_process(
        &self,
        name: String,
        mount_point: Vec<u8>,
        parent: Option<&Process>,
        peer: Arc<dyn Peer>,
    ) -> Option<Arc<Process>> {
        let process = Arc::new(Process {
            id: self.processes.made.fetch_add(1, Relaxed),
            mount_point,
            name: Mutex::new(name),
            leased: AtomicBool::new(parent.is_some_and(Process::is_leased)),
            ending: AtomicBool::new(false),
            long_write: AtomicU32::new(0),
            files: Mutex::default(),
            granted: Mutex::default(),
            programs: Mutex::default(),
            peer,
        });
        if let Some(parent) = parent {
            self.take_closed(parent);
            self.bind_all(parent);
        }
        for (file, count) in parent.map(Process::held).unwrap_or_default() {
            for _ in 0..count {
                if self.files.reference(file) {
                    process.hold(file);
                }
            }
        }
        self.watch.process_begins();
        if !self.processes.admit(&process) {
            self.give_back(&process, None);
            self.watch.process_ended(process.id);
            return None;
        }
        // Not before turns of the log wait for it.
        process.peer.let_into_log();
        Some(process)
    }

    /// Gives back what a process has closed and not told of.
    pub(crate) fn take_closed(&self, process: &Process) {
        process.peer.take_closed(&mut |file| {
            if !process.holds(file) {
                // A directory that it has opened by itself, and from which it has opened more.
                self.bind(process, file);
            }
            if let Some(open) = self.files.get(file) {
                self.before_close(process, &open);
            }
            if process.give_up(file)
                && let Some(last) = self.files.release(file, 1)
            {
                self.close(&last, false);
            }
        });
    }

    /// Gives back what all processes have closed and not told of.
    pub(crate) fn take_all_closed(&self) {
        self.processes.all().iter().for_each(|process| self.take_closed(process));
    }

    /// An inode is about to lose its last name. Where nobody has it open any more, it goes with the name, in one change of the core.
    pub(crate) fn last_name_goes(&self, ino: Ino) {
        let Some(open) = self.inodes.find(ino) else { return };
        self.take_all_closed();
        self.inodes.give_up_closed(open.slot);
    }

    /// An inode has lost a name, perhaps its last one: what of it is closed is given back now and from now on.
    pub(crate) fn name_lost(&self, ino: Ino) {
        self.inodes.must_ask_for_sync(ino);
        let Some(open) = self.inodes.find(ino) else { return };
        self.inodes.attend(&open);
        self.take_all_closed();
        self.inodes.settle(open.slot);
    }

    /// Has stopped processes end the writes to the inode in a slot that others wait for.
    pub(crate) fn finish_stalled(&self, slot: u32) {
        for write in self.inodes.stalled_writers(slot) {
            if let Some(process) = self.processes.find(write.holder - 1) {
                process.peer.finish(write);
            }
        }
    }

    /// A process is gone. Everything that it held is given back, but for its record locks when it has become the program
    /// `heir`.
    pub fn end_process(&self, process: &Process, heir: Option<&Process>) {
        self.give_back(process, heir);
        if let Some(log) = self.inodes.log() {
            log.process_ends(&self.processes, process);
        }
        self.processes.remove(process, &|reads, bytes| self.mounted.count_direct_reads(reads, bytes));
        self.watch.process_ended(process.id);
    }

    fn give_back(&self, process: &Process, heir: Option<&Process>) {
        process.set_ending();
        self.revoke(process);
        let heir_is_gone = || heir.is_none_or(Process::is_ending);
        self.locks.end_process(process.id, heir.map(|heir| heir.id), heir_is_gone);
        let holder = process.id + 1;
        if let Some(slot) = process.long_write.swap(0, Relaxed).checked_sub(1) {
            self.inodes.shared(slot).long_write.free_if_held_by(holder);
        }
        for (file, count) in process.retain(&FxHashMap::default(), &self.files) {
            if let Some(open) = self.files.get(file) {
                self.files.shared(file).lock.free_if_held_by(holder);
                let inode = self.inodes.shared(open.inode.slot);
                inode.write_lock.free_if_held_by(holder);
                inode.long_write.free_if_held_by(holder);
            }
            if let Some(last) = self.files.release(file, count) {
                self.close(&last, false);
            }
        }
    }
}

/// How long after its socket has closed a process may be in a write to the append log.
const WRITE_AFTER_END: Duration = Duration::from_secs(10);

/// All processes that use a volume.
#[derive(Default)]
pub(crate) struct Processes {
    made: AtomicU32,
    table: Mutex<Table>,
    /// Summed over those that have ended.
    ended: ClientCounters,
}

#[derive(Default)]
struct Table {
    live: FxHashMap<u32, Live>,
    /// Processes that were removed in the middle of a write to the append log, perhaps, and since when.
    leaving: Vec<(Instant, Arc<Process>)>,
    /// Programs that have disconnected, and may be there: one that has become another program connects when it first uses the
    /// volume.
    departed: Vec<Departed>,
    /// No process may come any more.
    stopped: bool,
}

/// A program that has disconnected.
struct Departed {
    pid: u32,
    /// When, in nanoseconds since the system has started.
    when: u64,
}

impl Departed {
    /// Whether its process is there still: not a dead one, nor a later one of the same number.
    fn is_there(&self) -> bool {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        // "42 (name) S 1 ...": the name may hold blanks and parentheses.
        let Some((_, rest)) = text.rsplit_once(')') else { return false };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let is_dead = matches!(fields.first(), None | Some(&("Z" | "X")));
        let begun = fields.get(19).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(u64::MAX);
        !is_dead && begun.saturating_mul(TICK_NS) <= self.when
    }
}

/// Of the kernel's clock of processes (`USER_HZ`).
const TICK_NS: u64 = 10_000_000;
/// Programs that are looked at when there are more: most of them have ended.
const DEPARTED_MAX: usize = 1024;

struct Live {
    process: Arc<Process>,
    counted: DirectReads,
}

/// Reads without the server, and the blocks they read.
#[derive(Clone, Copy, Default)]
struct DirectReads {
    reads: u64,
    blocks: u64,
}

impl DirectReads {
    /// Passes on to `count` what came since the last time.
    fn count(&mut self, measured: &ClientCounters, count: &dyn Fn(u64, u64)) {
        let (reads, blocks) = (measured.direct_reads.load(Relaxed), measured.direct_blocks.load(Relaxed));
        // The figures are the program's own word, which may go backwards.
        let (new_reads, new_blocks) = (reads.saturating_sub(self.reads), blocks.saturating_sub(self.blocks));
        if new_reads > 0 || new_blocks > 0 {
            count(new_reads, new_blocks.saturating_mul(BLOCK_BYTES as u64));
        }
        *self = DirectReads { reads, blocks };
    }
}

/// Adds what a process measured to a sum.
fn add(sum: &ClientCounters, more: &ClientCounters) {
    sum.reads.add(&more.reads);
    sum.writes.add(&more.writes);
    sum.syncs.add(&more.syncs);
    for (sum, more) in [
        (&sum.direct_reads, &more.direct_reads),
        (&sum.direct_blocks, &more.direct_blocks),
        (&sum.ring_bytes, &more.ring_bytes),
        (&sum.calls, &more.calls),
    ] {
        sum.fetch_add(more.load(Relaxed), Relaxed);
    }
}

impl Processes {
    fn admit(&self, process: &Arc<Process>) -> bool {
        let mut table = self.table.lock();
        if !table.stopped {
            let live = Live { process: process.clone(), counted: DirectReads::default() };
            table.live.insert(process.id, live);
        }
        if let Some(pid) = process.peer.pid() {
            table.departed.retain(|departed| departed.pid != pid);
        }
        !table.stopped
    }

    /// It has ended. `count_direct` is called with the reads that it made without the server.
    fn remove(&self, process: &Process, count_direct: &dyn Fn(u64, u64)) {
        let mut table = self.table.lock();
        debug_assert!(process.files.lock().is_empty(), "a process ends with open files");
        let live = table.live.remove(&process.id);
        // The server's own process uses it from within, and becomes nothing else.
        if let Some(pid) = process.peer.pid().filter(|pid| *pid != std::process::id()) {
            if table.departed.len() >= DEPARTED_MAX {
                table.departed.retain(Departed::is_there);
            }
            let is_here = table.live.values().any(|live| live.process.peer.pid() == Some(pid));
            if !is_here {
                table.departed.push(Departed { pid, when: boot_ns() });
            }
        }
        if let (Some(measured), Some(mut live)) = (process.peer.measured(), live) {
            live.counted.count(measured, count_direct);
            add(&self.ended, measured);
        }
    }

    /// Processes now.
    pub fn count(&self) -> usize {
        self.table.lock().live.len()
    }

    pub(super) fn all(&self) -> Vec<Arc<Process>> {
        self.table.lock().live.values().map(|live| live.process.clone()).collect()
    }

    pub(super) fn find(&self, id: u32) -> Option<Arc<Process>> {
        self.table.lock().live.get(&id).map(|live| live.process.clone())
    }

    /// Whether a thread of some process may be writing to the append log.
    pub(super) fn any_writes_to_log(&self) -> bool {
        let mut table = self.table.lock();
        table.leaving.retain(|(left, process)| {
            // A process that has been killed leaves its cells as they were. One that has closed the socket in another way
            // began what it writes before it was shut out.
            let is_gone = process.peer.has_ended() && left.elapsed() > WRITE_AFTER_END;
            process.peer.writes_to_log() && !is_gone
        });
        !table.leaving.is_empty() || table.live.values().any(|live| live.process.peer.writes_to_log())
    }

    /// A process that is about to be removed may still be writing to the append log.
    pub(super) fn leaves_with_log(&self, process: &Process) {
        let mut table = self.table.lock();
        if let Some(process) = table.live.get(&process.id).map(|live| live.process.clone()) {
            table.leaving.push((Instant::now(), process));
        }
    }

    /// Whether some process has ended and not yet given back everything.
    pub fn any_is_ending(&self) -> bool {
        self.all().iter().any(|process| process.is_ending() || process.peer.has_ended())
    }

    /// Processes that are connected, or have been and may come again.
    pub fn users(&self) -> usize {
        let mut table = self.table.lock();
        table.departed.retain(Departed::is_there);
        table.live.len() + table.departed.len()
    }

    /// No process comes any more, if none is there.
    pub fn stop_if_idle(&self) -> bool {
        let mut table = self.table.lock();
        if table.live.is_empty() {
            table.departed.retain(Departed::is_there);
            table.stopped |= table.departed.is_empty();
        }
        table.stopped
    }

    /// No process comes any more, and the fronts end those that are there.
    pub fn stop(&self) {
        let mut table = self.table.lock();
        table.stopped = true;
        table.live.values().for_each(|live| live.process.peer.disconnect());
    }

    /// What all programs saw so far. `count_direct` is called with reads without the server that it has not counted yet.
    pub fn view(
        &self,
        notes: Vec<(String, u64)>,
        shared: SharedUse,
        count_direct: &dyn Fn(u64, u64),
    ) -> ProgramView {
        let mut table = self.table.lock();
        let sum = ClientCounters::default();
        add(&sum, &self.ended);
        let mut running = Vec::with_capacity(table.live.len());
        for live in table.live.values_mut() {
            if let Some(measured) = live.process.peer.measured() {
                live.counted.count(measured, count_direct);
                add(&sum, measured);
            }
            running.push(live.process.name());
        }
        running.sort_unstable();
        ProgramView {
            reads: sum.reads.summary(),
            writes: sum.writes.summary(),
            syncs: sum.syncs.summary(),
            direct_reads: sum.direct_reads.load(Relaxed),
            direct_bytes: sum.direct_blocks.load(Relaxed).saturating_mul(BLOCK_BYTES as u64),
            ring_bytes: sum.ring_bytes.load(Relaxed),
            calls: sum.calls.load(Relaxed),
            shared,
            notes,
            running,
        }
    }
}
