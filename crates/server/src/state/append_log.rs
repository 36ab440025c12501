//! Turns of the append log: when clients may write to it, and what is done before an entry must not count any more.
//!
//! After an `fsync` that the server has made, an inode with a ring or an overwrite area is *granted*: its client makes further
//! appends and overwrites there durable by itself ([`weft_client::shared::volume::Inode::durable`]). A turn of the log ends when
//! the log is full, and before something else changes the content of a file that has an entry: stored again, that entry would
//! bring old bytes back. It ends, too, when the server makes a file durable of which overwritten blocks are in the log. (When it
//! only stores what has been overwritten since, an entry may bring back what was durable before: nobody was promised more.)
//!
//! To end a turn, the server takes back the grants of all inodes with entries, makes everything durable where it belongs, and
//! writes to the log's heads that only entries of the next turn count. The next turn begins when no client writes to the log any
//! more.

use super::inodes::{Inodes, OpenInode};
use super::processes::{Process, Processes};
use super::shared::ControlMemory;
use super::volume::Volume;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*, fence};
use weft_client::shared::volume::{Durable, Inode, log_place};
use weft_core::Ino;
use weft_core::append_log::{ENTRY_BYTES_MAX, FIRST_BLOCK, Turn};
use weft_vfs::{FsError, FsResult};
use weft_volume::AppendLog;

/// Grants that programs would have got before the first turn begins: most programs flush a few times, and need no log.
const WANTED_MIN: u32 = 4;
/// A turn ends early when there is no room for an entry of the largest size.
const ROOM_BLOCKS: u32 = (ENTRY_BYTES_MAX / weft_core::BLOCK_BYTES) as u32;

/// The log of a served volume.
pub(crate) struct LogTurns {
    log: Arc<AppendLog>,
    control: Arc<ControlMemory>,
    session: u64,
    /// Grants that were wanted before the first turn.
    wanted: AtomicU32,
    /// The turn whose entries count; 0 before the first one.
    turn: AtomicU32,
    /// Guards steps from turn to turn.
    state: Mutex<State>,
    /// Inodes with entries of this turn that were closed since; whether entries may be of overwritten blocks.
    closed: Mutex<FxHashMap<Ino, bool>>,
}

#[derive(Default)]
struct State {
    /// Clients may take places.
    is_open: bool,
    /// Only entries of the turn count, and there are none yet.
    is_fresh: bool,
    /// Clients never get places again: one may write to the log at any time.
    is_closed: bool,
}

impl LogTurns {
    /// That of a server with this number.
    pub fn new(log: Arc<AppendLog>, control: Arc<ControlMemory>, session: u64) -> LogTurns {
        let shared = &control.volume.append_log;
        for (word, part) in shared.image.iter().zip(log.image().as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*part), Relaxed);
        }
        shared.offset.store(log.offset(), Relaxed);
        shared.end.store(log.blocks() - 1, Relaxed);
        shared.session.store(session, Relaxed);
        LogTurns {
            log,
            control,
            session,
            wanted: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            state: Mutex::default(),
            closed: Mutex::default(),
        }
    }

    /// The descriptor by which clients write to the log.
    pub fn log(&self) -> &AppendLog {
        &self.log
    }

    fn number(&self, number: u32) -> Turn {
        Turn { image: self.log.image(), session: self.session, number }
    }

    /// Whether an inode may have entries that count.
    pub fn has_entries(&self, inode: &Inode) -> bool {
        let turn = self.turn.load(SeqCst);
        turn != 0 && inode.logged.load(SeqCst) == turn
    }

    /// An inode takes its slot: what it has in the log goes with it. Whether overwritten blocks of it may be there.
    pub fn opened(&self, ino: Ino, inode: &Inode) -> bool {
        let closed = self.closed.lock().remove(&ino);
        inode.logged.store(closed.map_or(0, |_| self.turn.load(SeqCst)), SeqCst);
        closed.unwrap_or(false)
    }

    /// An inode leaves its slot; whether overwritten blocks of it may be in the log.
    pub fn given_up(&self, ino: Ino, inode: &Inode, is_rewritten: bool) {
        inode.must_ask_for_sync();
        if self.has_entries(inode) {
            self.closed.lock().insert(ino, is_rewritten);
        }
    }

    /// Whether an inode may get an area for overwrites: nothing of it can come to the log, and nothing of it is there.
    pub fn is_free_of(&self, inode: &Inode) -> bool {
        Durable(inode.durable.load(SeqCst)).size().is_none() && !self.has_entries(inode)
    }

    /// Before something but an append changes the inode's content. To be called without its write lock, so that nobody waits for a
    /// sync of the volume, and again under it, after a drain.
    pub fn before_rewrite(&self, inodes: &Inodes, open: &OpenInode) -> FsResult<()> {
        let inode = inodes.shared(open.slot);
        inode.must_ask_for_sync();
        let turn = self.turn.load(SeqCst);
        if self.has_entries(inode) { self.end_turn(inodes, turn).map(drop) } else { Ok(()) }
    }

    /// Makes an inode durable of which the core has everything; no entry brings older content back.
    pub fn fsync(&self, inodes: &Inodes, open: &OpenInode) -> FsResult<()> {
        let turn = self.turn.load(SeqCst);
        // Clients note the turn before they take a place: what they copied before the core got everything is seen here.
        if self.has_entries(inodes.shared(open.slot)) && open.is_rewritten() && self.end_turn(inodes, turn)? {
            return Ok(());
        }
        inodes.fsync_core(open.ino)
    }

    /// Makes everything durable that the core has; no entry brings older content back.
    pub fn sync(&self, inodes: &Inodes) -> FsResult<()> {
        let turn = self.turn.load(SeqCst);
        let is_rewritten =
            |open: &Arc<OpenInode>| open.is_rewritten() && self.has_entries(inodes.shared(open.slot));
        let is_closed = || self.closed.lock().values().any(|rewritten| *rewritten);
        // Under one lock: an inode is among those that are open or those that were closed.
        let is_any = turn != 0 && inodes.is_so_or_any_is(is_closed, is_rewritten);
        if is_any && self.end_turn(inodes, turn)? { Ok(()) } else { inodes.sync_core() }
    }

    /// Makes everything durable where it belongs, so that no entry of this turn or one before counts. What cannot be stored where it
    /// belongs keeps the entries, unless it cannot be stored at all. False when the turn had been ended before.
    fn end_turn(&self, inodes: &Inodes, turn: u32) -> FsResult<bool> {
        let mut state = self.state.lock();
        if self.turn.load(SeqCst) != turn {
            return Ok(false);
        }
        self.control.volume.append_log.next.store(0, SeqCst);
        fence(SeqCst);
        (state.is_open, state.is_fresh) = (false, false);
        let mut failed = None;
        for open in inodes.all() {
            let inode = inodes.shared(open.slot);
            if inode.logged.load(SeqCst) != turn {
                continue;
            }
            inode.must_ask_for_sync();
            match inodes.drain(&open, true) {
                Ok(()) => {}
                // The next mount could not append to it, either. Each open file of it has been told.
                Err(FsError::Checksum(why)) => {
                    tracing::error!(
                        ino = open.ino.0,
                        why,
                        "a damaged file loses bytes that were written to it"
                    )
                }
                Err(error) => failed = Some(error),
            }
        }
        inodes.sync_core().inspect_err(|error| inodes.all_failed(error.errno()))?;
        if let Some(error) = failed {
            return Err(error);
        }
        if self.log.holds_the_only_copy() {
            return Err(FsError::Device("accepted bytes are only in the append log".into()));
        }
        let begun = self.log.begin(self.number(turn + 1));
        if begun.is_err() {
            // One of the heads may have been written: which turn counts is not known, so no client writes any more.
            state.is_closed = true;
        }
        begun.map_err(|error| FsError::Device(error.to_string()))?;
        self.closed.lock().clear();
        self.turn.store(turn + 1, SeqCst);
        state.is_fresh = true;
        Ok(true)
    }

    /// The server gives up accepted bytes of an inode, which it cannot store: the entries that hold them, if any do, are for the
    /// next mount.
    pub fn bytes_lost(&self, inode: &Inode) {
        if self.has_entries(inode) {
            self.log.keep();
        }
    }

    /// Lets clients take places in the turn, unless one may still write to a place of a turn before.
    fn open_turn(&self, volume: &Volume) {
        // Whoever has it is ending a turn.
        let Some(mut state) = self.state.try_lock() else { return };
        let turn = self.turn.load(SeqCst);
        if state.is_open || !state.is_fresh || state.is_closed || volume.processes.any_writes_to_log() {
            return;
        }
        self.control.volume.append_log.next.store(log_place(turn, FIRST_BLOCK), SeqCst);
        (state.is_open, state.is_fresh) = (true, false);
    }

    /// Begins the first turn once enough grants were wanted; whether there is a turn.
    fn begin(&self) -> bool {
        if self.turn.load(SeqCst) != 0 {
            return true;
        }
        if self.wanted.fetch_add(1, Relaxed) + 1 < WANTED_MIN {
            return false;
        }
        let mut state = self.state.lock();
        if self.turn.load(SeqCst) == 0 && !state.is_closed {
            match self.log.begin(self.number(1)) {
                Ok(()) => {
                    self.turn.store(1, SeqCst);
                    state.is_fresh = true;
                }
                Err(error) => {
                    tracing::warn!(%error, "the append log cannot be used");
                    state.is_closed = true;
                }
            }
        }
        self.turn.load(SeqCst) != 0
    }

    /// After an `fsync` of the inode, whose first `durable` bytes are durable: its clients go on by themselves, if the word is what
    /// it was before.
    pub fn grant(&self, volume: &Volume, open: &OpenInode, before: Durable, durable: u64) {
        if !self.begin() {
            return;
        }
        volume.inodes.grant_sync(open, before, durable);
        self.go_on(volume);
    }

    /// Ends a turn that is nearly full, and opens one that was not open yet.
    pub fn go_on(&self, volume: &Volume) {
        let shared = &self.control.volume.append_log;
        let (next, turn) = (shared.next.load(SeqCst), self.turn.load(SeqCst));
        if turn == 0 || next != 0 && (next as u32).saturating_add(ROOM_BLOCKS) < self.log.blocks() {
            return;
        }
        if next != 0
            && let Err(error) = self.end_turn(&volume.inodes, turn)
        {
            tracing::error!(%error, "a turn of the append log cannot be ended");
        }
        self.open_turn(volume);
    }

    /// A process is about to be removed: no turn begins while it may still be writing to the log.
    pub fn process_ends(&self, processes: &Processes, process: &Process) {
        if process.peer.shut_out_of_log() {
            processes.leaves_with_log(process);
        }
    }

    /// Tries again to end a turn that could not be ended. To be called now and then.
    pub fn try_again(&self, volume: &Volume) {
        let is_stuck = {
            let Some(state) = self.state.try_lock() else { return };
            self.turn.load(SeqCst) != 0 && !state.is_open && !state.is_fresh && !state.is_closed
        };
        let turn = self.turn.load(SeqCst);
        if is_stuck && !self.log.holds_the_only_copy() && self.end_turn(&volume.inodes, turn).is_ok() {
            self.open_turn(volume);
        }
    }
}
