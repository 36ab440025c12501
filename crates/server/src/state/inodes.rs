//! Open inodes, their append rings and [overwrite areas](overwrites).
//!
//! The server owns `head` of a ring: the true value is in `Ring`, and the shared copy is for clients to read. The
//! holder of the inode's shared write lock moves `size`: a client, or the server.
//!
//! Lock order: an inode's shared write lock, the table of open inodes, `OpenInode::ring`, the core, the maps.

mod exclusion;
mod overwrites;
mod rings;
mod steps;
mod times;

use super::append_log::LogTurns;
use super::grants::GrantBook;
use super::locks::{Lending, Locks};
use super::maps::Maps;
use super::names::Published;
use super::open_files::OpenFiles;
use super::processes::Processes;
use super::shared::{ControlMemory, RingMemory};
use super::writeback_errors::{ErrorCursor, WritebackErrors};
pub use exclusion::{LongGuard, Unfinished, WriteGuard};
use parking_lot::Mutex;
pub use rings::Arrival;
use rings::Ring;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, fence};
use weft_client::shared::lock;
use weft_client::shared::volume::{
    APPEND_ONLY, Durable, FIRST_BLOCKS, GOING, INODES_MAX, Inode, RING_BYTES, RINGS_MAX,
};
use weft_core::{BLOCK_BYTES, Ino};
use weft_vfs::{Attr, FileKind, FileSystem, FsError, FsResult, InodeFlags};

/// Space kept free beside what rings hold, at most.
const MARGIN_BYTES_MAX: u64 = 64 << 20;
/// Pieces at least this large go straight to the device.
pub const THROUGH_BYTES: usize = 64 * 1024;

/// Inodes that nobody has open, kept for whoever opens them next.
const KEPT_MAX: usize = INODES_MAX / 8;
/// Of these, those that are looked at to give one up: processes may have some open by themselves.
const LOOKS: usize = 64;

/// An inode that some process has open.
pub struct OpenInode {
    /// Its number.
    pub ino: Ino,
    /// Its slot in shared memory.
    pub slot: u32,
    ring: Mutex<Ring>,
    /// Overwrites that the server made since it was opened: an inode with many gets an area.
    overwritten: AtomicU32,
    /// It has had an area: what it has in the append log may be overwritten blocks.
    is_rewritten: AtomicBool,
    /// A client was in the middle of a write when its lock was taken from it: it may still write to the memory that it found.
    is_haunted: AtomicBool,
    /// The same of its table of record locks.
    haunted_records: Arc<AtomicBool>,
    /// It was truncated to be written anew, without an `fsync` perhaps: a crash must not find it empty once it is closed.
    is_replaced: AtomicBool,
    /// Whether it may have set-id bits or capabilities, which a write can clear: it gets no ring then. Changed under the table's lock.
    set_id: AtomicBool,
    /// Which step comes next, twice; odd while one changes it. Clients see a copy ([`Inode::step`]).
    step: AtomicU32,
    /// Its [`InodeFlags`]. Changed under the table's lock.
    flags: AtomicU32,
    /// The directory whose quota it counts to: the same all its life.
    quota: Option<Ino>,
    /// Write-backs of it that failed.
    pub errors: WritebackErrors,
    /// Open files that refer to it; guarded by the table's lock for the step to 0.
    users: AtomicU32,
    /// Which of the closes of all inodes its last one was while it is kept, else 0; guarded by the table's lock.
    kept: AtomicU64,
    slots: Arc<SlotPool>,
}

impl OpenInode {
    /// What programs have set with `chattr`.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_truncate(self.flags.load(Relaxed))
    }

    /// Whether each write is the server's: it may have to clear set-id bits, to refuse it, to make it durable, or to keep it out of the
    /// append log, which nobody erases.
    fn is_written_by_call(&self) -> bool {
        let by_call = InodeFlags::IMMUTABLE | InodeFlags::SYNC | InodeFlags::SECURE_DELETE;
        self.set_id.load(Relaxed) || self.flags().intersects(by_call)
    }

    /// Whether overwritten blocks of it may be in the append log, if anything is.
    pub(super) fn is_rewritten(&self) -> bool {
        self.is_rewritten.load(SeqCst)
    }

    /// Where its record locks can be lent.
    pub fn lending(&self) -> Lending {
        Lending { slot: self.slot, is_haunted: self.haunted_records.clone() }
    }
}

impl Drop for OpenInode {
    /// Only now nobody works on the slot any more: whoever found the inode before its last close held it alive.
    fn drop(&mut self) {
        // A thread that lost its table of record locks may still write to it: nobody else gets that.
        if !self.haunted_records.load(Relaxed) {
            self.slots.give_back(self.slot);
        }
    }
}

/// Inode slots that are free.
#[derive(Default)]
struct SlotPool(Mutex<(Vec<u32>, u32)>);

impl SlotPool {
    fn take(&self) -> Option<u32> {
        let (free, next) = &mut *self.0.lock();
        free.pop().or_else(|| {
            let fresh = ((*next as usize) < INODES_MAX).then_some(*next)?;
            *next += 1;
            Some(fresh)
        })
    }

    fn give_back(&self, slot: u32) {
        let (free, next) = &mut *self.0.lock();
        debug_assert!(slot < *next && !free.contains(&slot), "a slot is given back twice");
        free.push(slot);
    }
}

/// All open inodes.
pub struct Inodes {
    control: Arc<ControlMemory>,
    rings: RingMemory,
    /// Rings that may be used.
    rings_max: usize,
    maps: Arc<Maps>,
    fs: Arc<dyn FileSystem>,
    names: Option<Arc<Published>>,
    grants: Arc<GrantBook>,
    locks: Arc<Locks>,
    table: Mutex<Table>,
    slots: Arc<SlotPool>,
    /// Rings in use, for keeping space free for what they may hold.
    rings_used: AtomicU32,
    /// Of these, those of inodes that count to a quota, by its directory.
    quota_rings: Mutex<FxHashMap<Ino, u32>>,
    /// Bytes that calls under way are about to take, which rings may not count on.
    reserved: AtomicU64,
    /// Write-backs that failed, of any inode.
    pub errors: WritebackErrors,
    /// By which clients make appends durable, where there is one.
    log: Option<Arc<LogTurns>>,
    /// Processes and what they have open, to name them.
    users: Option<(Arc<Processes>, Arc<OpenFiles>)>,
}

/// Space that a call is about to take; see [`Inodes::reserve`].
pub struct Reservation<'a> {
    inodes: &'a Inodes,
    bytes: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let before = self.inodes.reserved.fetch_sub(self.bytes, Relaxed);
        debug_assert!(before >= self.bytes, "more space is given back than was reserved");
    }
}

#[derive(Default)]
struct Table {
    by_ino: FxHashMap<Ino, Arc<OpenInode>>,
    by_slot: FxHashMap<u32, Arc<OpenInode>>,
    free_rings: Vec<u32>,
    next_ring: u32,
    /// Inodes that nobody has open, with the number of their last close; the oldest first. One that was opened again since has
    /// another number.
    kept: VecDeque<(Ino, u64)>,
    kept_now: usize,
    closes: u64,
    /// Errors of inodes that were closed before any open file reported them.
    unseen: FxHashMap<Ino, i32>,
}

impl Table {
    /// Counts one more user of an inode.
    fn use_once_more(&mut self, open: &OpenInode) {
        if open.users.fetch_add(1, Relaxed) == 0 {
            self.keep_no_more(open);
        }
    }

    /// Nobody has it open from now on; it is kept.
    fn keep(&mut self, open: &OpenInode) {
        self.closes += 1;
        self.kept_now += 1;
        open.kept.store(self.closes, Relaxed);
        if self.kept.len() > 2 * KEPT_MAX {
            let Table { by_ino, kept, .. } = self;
            kept.retain(|(ino, close)| by_ino.get(ino).is_some_and(|open| open.kept.load(Relaxed) == *close));
        }
        self.kept.push_back((open.ino, self.closes));
    }

    fn keep_no_more(&mut self, open: &OpenInode) {
        if open.kept.swap(0, Relaxed) != 0 {
            self.kept_now -= 1;
        }
    }
}

/// WritebackErrors that are kept for inodes that nobody has open, at most.
const UNSEEN_MAX: usize = 4096;

fn has_set_id(perm: u32) -> bool {
    perm & (libc::S_ISUID | libc::S_ISGID) != 0
}

/// The extended attribute with what a program may do beside what its user may.
pub const CAPABILITIES: &[u8] = b"security.capability";

impl Inodes {
    /// No inode is open.
    pub fn new(
        (control, maps): (Arc<ControlMemory>, Arc<Maps>),
        fs: Arc<dyn FileSystem>,
        names: Option<Arc<Published>>,
        grants: Arc<GrantBook>,
        locks: Arc<Locks>,
    ) -> std::io::Result<Inodes> {
        Ok(Inodes {
            control,
            rings: RingMemory::create()?,
            rings_max: RINGS_MAX,
            maps,
            fs,
            names,
            grants,
            locks,
            table: Mutex::default(),
            slots: Arc::default(),
            rings_used: AtomicU32::new(0),
            quota_rings: Mutex::default(),
            reserved: AtomicU64::new(0),
            errors: WritebackErrors::default(),
            log: None,
            users: None,
        })
    }

    /// The same with those who use them.
    pub(crate) fn with_users(self, processes: Arc<Processes>, files: Arc<OpenFiles>) -> Inodes {
        Inodes { users: Some((processes, files)), ..self }
    }

    /// The same with an append log.
    pub(crate) fn with_log(self, log: Option<Arc<LogTurns>>) -> Inodes {
        Inodes { log, ..self }
    }

    /// The append log, where there is one.
    pub(crate) fn log(&self) -> Option<&Arc<LogTurns>> {
        self.log.as_ref()
    }

    /// Makes everything durable that the core has.
    pub(super) fn sync_core(&self) -> FsResult<()> {
        self.fs.sync()
    }

    /// Makes an inode durable as far as the core has it.
    pub(super) fn fsync_core(&self, ino: Ino) -> FsResult<()> {
        self.fs.fsync(ino)
    }

    /// Makes an inode durable that has been drained.
    pub fn fsync(&self, open: &OpenInode) -> FsResult<()> {
        self.log.as_ref().map_or_else(|| self.fsync_core(open.ino), |log| log.fsync(self, open))
    }

    /// Makes everything durable that has been drained.
    pub fn sync(&self) -> FsResult<()> {
        self.log.as_ref().map_or_else(|| self.sync_core(), |log| log.sync(self))
    }

    /// Whoever wants the inode durable asks the server from now on: something changed that clients do not make durable.
    pub fn must_ask_for_sync(&self, ino: Ino) {
        if self.log.is_some()
            && let Some(open) = self.find(ino)
        {
            self.shared(open.slot).must_ask_for_sync();
        }
    }

    /// Before something but a client in ring or area changes the content of an inode: without its write lock, and again under it.
    pub fn before_rewrite(&self, open: &OpenInode) -> FsResult<()> {
        self.log.as_ref().map_or(Ok(()), |log| log.before_rewrite(self, open))
    }

    /// Whether bytes behind the end of an inode come in the way of what the append log has: then an append is no mere append.
    pub fn appends_rewrite(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.log().holds_the_only_copy())
    }

    /// The first `durable` bytes of an inode are durable, and all that an `fsync` is about: clients go on by themselves, unless it
    /// has changed since its word was `before`.
    pub(super) fn grant_sync(&self, open: &OpenInode, before: Durable, durable: u64) {
        let shared = self.shared(open.slot);
        // Who holds the lock may be about to change more than its end.
        if !shared.write_lock.try_lock(lock::SERVER) {
            return;
        }
        {
            let Some(ring) = open.ring.try_lock() else {
                shared.write_lock.unlock(lock::SERVER);
                return;
            };
            let is_there = |number: Option<u32>, shared: &AtomicU32| {
                number.is_none_or(|number| shared.load(Relaxed) == number + 1)
            };
            // Of other kinds, names change, of which the word does not tell.
            let is_fit = shared.kind.load(Relaxed) == libc::S_IFREG
                && is_there(ring.number, &shared.ring)
                && is_there(ring.area, &shared.overwrites)
                && shared.by_call.load(SeqCst) == 0
                && !open.is_haunted.load(Relaxed)
                && !open.errors.has_any();
            if is_fit {
                let next = before.then(Some(durable));
                let _ = shared.durable.compare_exchange(before.0, next.0, SeqCst, Relaxed);
            }
        }
        shared.write_lock.unlock(lock::SERVER);
    }

    /// The word that says what of an inode is durable, and the bytes that the core has of it.
    pub fn durable_and_stored(&self, open: &OpenInode) -> (Durable, u64) {
        let word = Durable(self.shared(open.slot).durable.load(SeqCst));
        (word, open.ring.lock().head)
    }

    /// The memory that holds the rings.
    pub(crate) fn ring_memory(&self) -> &RingMemory {
        &self.rings
    }

    /// The same with so many rings at most.
    pub fn with_rings(self, rings_max: usize) -> Inodes {
        Inodes { rings_max: rings_max.min(RINGS_MAX), ..self }
    }

    /// The shared side of an open inode.
    pub fn shared(&self, slot: u32) -> &Inode {
        &self.control.inodes[slot as usize]
    }

    /// The open inode with this number, if some process has it open.
    pub fn find(&self, ino: Ino) -> Option<Arc<OpenInode>> {
        self.table.lock().by_ino.get(&ino).cloned()
    }

    /// The open inode in a slot.
    pub fn in_slot(&self, slot: u32) -> Option<Arc<OpenInode>> {
        self.table.lock().by_slot.get(&slot).cloned()
    }

    /// Whether something is so, or some open inode is like this; looked at while none is opened or given up.
    pub(super) fn is_so_or_any_is(
        &self,
        is_so: impl FnOnce() -> bool,
        is_like: impl Fn(&Arc<OpenInode>) -> bool,
    ) -> bool {
        let table = self.table.lock();
        is_so() || table.by_ino.values().any(is_like)
    }

    /// Every open inode.
    pub fn all(&self) -> Vec<Arc<OpenInode>> {
        self.table.lock().by_ino.values().cloned().collect()
    }

    /// Opens an inode by its number, for a while or for a process.
    pub fn open(&self, ino: Ino) -> FsResult<Arc<OpenInode>> {
        self.fs.open(ino)?;
        let attr = self.fs.getattr(ino).inspect_err(|_| self.fs.release(ino))?;
        self.acquire(&attr)
    }

    /// Counts one more user of an inode. The caller holds an open reference of the core, which becomes the table's
    /// when the inode is new here and is given back otherwise.
    pub fn acquire(&self, attr: &Attr) -> FsResult<Arc<OpenInode>> {
        let mut table = self.table.lock();
        if let Some(open) = table.by_ino.get(&attr.ino).cloned() {
            table.use_once_more(&open);
            drop(table);
            self.fs.release(attr.ino);
            return Ok(open);
        }
        let slot = self.slots.take().or_else(|| {
            self.give_up_oldest(&mut table);
            self.slots.take()
        });
        let Some(slot) = slot else {
            drop(table);
            self.fs.release(attr.ino);
            return Err(FsError::TooManyFiles("more than 65,536 on one volume"));
        };
        // The attributes were read before this lock; nobody else had the inode open, but a truncate by path may have
        // come between.
        let Attr { size, perm, links, marks, .. } = self.fs.getattr(attr.ino).unwrap_or(*attr);
        let shared = self.shared(slot);
        shared.ino.store(attr.ino.0, Relaxed);
        shared.size.store(size, Relaxed);
        shared.head.store(size, Relaxed);
        shared.mtime_ns.store(0, Relaxed);
        shared.atime_ns.store(0, Relaxed);
        shared.atime_after_ns.store(0, Relaxed);
        shared.ring.store(0, Relaxed);
        shared.overwrites.store(0, Relaxed);
        shared.write_lock.clear();
        shared.long_write.clear();
        shared.long_thread.store(0, Relaxed);
        let is_rewritten = self.log.as_ref().is_some_and(|log| log.opened(attr.ino, shared));
        shared.must_ask_for_sync();
        self.locks.begin(slot);
        // It may have lost its last name on the way here, or never had one.
        shared.attended.store(u32::from(links == 0), Relaxed);
        shared.kind.store(attr.kind.mode_bits(), Release);
        shared.step.store(0, Relaxed);
        shared.unit_end.store(0, Relaxed);
        let only_grows = attr.kind == FileKind::File && marks.flags.contains(InodeFlags::APPEND);
        shared.by_call.store(if only_grows { APPEND_ONLY } else { 0 }, Release);
        self.maps.add(attr.ino, slot);
        self.publish_slot(attr.ino, Some(slot));
        let open = Arc::new(OpenInode {
            ino: attr.ino,
            slot,
            ring: Mutex::new(Ring { number: None, head: size, area: None }),
            overwritten: AtomicU32::new(0),
            is_rewritten: AtomicBool::new(is_rewritten),
            is_haunted: AtomicBool::new(false),
            haunted_records: Arc::default(),
            is_replaced: AtomicBool::new(false),
            set_id: AtomicBool::new(self.gives_rights(attr.ino, perm)),
            step: AtomicU32::new(0),
            flags: AtomicU32::new(marks.flags.bits()),
            quota: self.fs.quota_room(attr.ino).ok().flatten().map(|room| room.dir),
            errors: WritebackErrors::after(table.unseen.remove(&attr.ino)),
            users: AtomicU32::new(1),
            kept: AtomicU64::new(0),
            slots: self.slots.clone(),
        });
        table.by_ino.insert(attr.ino, open.clone());
        table.by_slot.insert(slot, open.clone());
        Ok(open)
    }

    /// Counts one more user of the inode in a slot, if one is there.
    pub fn open_in_slot(&self, slot: u32) -> Option<Arc<OpenInode>> {
        let mut table = self.table.lock();
        let open = table.by_slot.get(&slot).cloned()?;
        table.use_once_more(&open);
        Some(open)
    }

    /// Gives up one user; the last one hands what the ring holds to the core and closes the inode, or keeps it for a while. Returns
    /// the failure behind the cursor of the user, if it was an open file.
    pub fn release(&self, open: &Arc<OpenInode>, cursor: Option<&ErrorCursor>) -> Option<i32> {
        let mut table = self.table.lock();
        if open.users.load(Relaxed) > 1 {
            open.users.fetch_sub(1, Relaxed);
            return cursor.and_then(|cursor| open.errors.check_and_advance(cursor));
        }
        // Hand over while nobody can open the inode anew and miss what ring and area hold.
        self.take_memory(&mut table, open);
        self.hand_over(open);
        debug_assert_eq!(open.users.load(Relaxed), 1, "the last user of an inode");
        let failure = cursor.and_then(|cursor| open.errors.check_and_advance(cursor));
        open.users.store(0, Relaxed);
        let shared = self.shared(open.slot);
        let keeps = self.names.is_some() && !self.fs.is_read_only();
        let kind = shared.kind.load(Relaxed);
        if keeps && matches!(kind, libc::S_IFREG | libc::S_IFDIR) && shared.attended.load(SeqCst) == 0 {
            // Told again: the times that were just passed on have taken it back. Whoever opens the file next finds it.
            let _ = self.fs.getattr(open.ino);
            table.keep(open);
            if table.kept_now > KEPT_MAX {
                self.give_up_oldest(&mut table);
            }
            drop(table);
            if kind == libc::S_IFREG {
                self.publish_small(open);
            }
        } else {
            self.give_up(&mut table, open);
        }
        failure
    }

    /// Publishes the content of a small file that has just been written, so that whoever reads it next makes no call.
    fn publish_small(&self, open: &OpenInode) {
        let size = self.size(open);
        let Some(core) = self.fs.block_map().filter(|_| size <= (FIRST_BLOCKS * BLOCK_BYTES) as u64) else {
            return;
        };
        let published = self.maps.fill_first(core, open.ino).and_then(|()| {
            let mut blocks = 0..size.div_ceil(BLOCK_BYTES as u64);
            blocks.try_for_each(|block| self.maps.copy(&*self.fs, open.ino, block))
        });
        if let Err(error) = published {
            tracing::debug!(ino = open.ino.0, %error, "its content is not published");
        }
    }

    /// An inode that processes had open by themselves may be open no more: it goes if it has lost a name, or has locks.
    pub fn settle(&self, slot: u32) {
        let mut table = self.table.lock();
        let Some(open) = table.by_slot.get(&slot).cloned() else { return };
        if open.users.load(Relaxed) == 0 && self.shared(slot).attended.load(SeqCst) != 0 {
            self.give_up(&mut table, &open);
        }
    }

    /// Gives up an inode, unless somebody has it open.
    pub fn give_up_closed(&self, slot: u32) {
        let mut table = self.table.lock();
        let Some(open) = table.by_slot.get(&slot).cloned() else { return };
        if open.users.load(Relaxed) == 0 {
            self.give_up(&mut table, &open);
        }
    }

    /// Gives up every inode that nobody has open.
    pub fn give_up_kept(&self) {
        let mut table = self.table.lock();
        let kept: Vec<_> =
            table.by_ino.values().filter(|open| open.users.load(Relaxed) == 0).cloned().collect();
        for open in kept {
            self.give_up(&mut table, &open);
        }
    }

    /// Gives up one of those that were closed longest ago.
    fn give_up_oldest(&self, table: &mut Table) {
        for _ in 0..LOOKS {
            let Some((ino, close)) = table.kept.pop_front() else { return };
            let open = table.by_ino.get(&ino).filter(|open| open.kept.load(Relaxed) == close).cloned();
            if let Some(open) = open {
                if self.give_up(table, &open) {
                    return;
                }
                table.kept.push_back((ino, close));
            }
        }
    }

    /// Closes an inode without users; false when processes have it open by themselves.
    fn give_up(&self, table: &mut Table, open: &Arc<OpenInode>) -> bool {
        debug_assert_eq!(open.users.load(Relaxed), 0, "an inode that is open is given up");
        let shared = self.shared(open.slot);
        let before = shared.by_call.fetch_or(GOING, SeqCst);
        // Either a process that is about to open it sees that it goes, or it is seen here.
        fence(SeqCst);
        if self.grants.holds(open.slot) {
            shared.by_call.store(before & !GOING, SeqCst);
            return false;
        }
        table.keep_no_more(open);
        self.pass_times(open);
        if let Some(errno) = open.errors.unseen()
            && table.unseen.len() < UNSEEN_MAX
        {
            table.unseen.insert(open.ino, errno);
        }
        let by_both = (table.by_ino.remove(&open.ino), table.by_slot.remove(&open.slot));
        assert!(by_both.0.is_some() && by_both.1.is_some(), "an inode that is not open is closed");
        if let Some(log) = &self.log {
            log.given_up(open.ino, shared, open.is_rewritten());
        }
        self.locks.forget(open.ino);
        self.maps.remove(open.ino);
        self.publish_slot(open.ino, None);
        // Under the lock: an open that comes next watches anew.
        if let Some(core) = self.fs.block_map() {
            core.unwatch(open.ino);
        }
        self.fs.release(open.ino);
        true
    }

    /// Clients find size and times of an open inode in its slot. (Nobody changes what is read-only.)
    fn publish_slot(&self, ino: Ino, slot: Option<u32>) {
        if let Some(names) = self.names.as_ref().filter(|_| !self.fs.is_read_only()) {
            names.slot_changed(ino, slot);
        }
    }

    /// From now on the server hears at once of whoever closes an open file of the inode.
    pub fn attend(&self, open: &OpenInode) {
        self.shared(open.slot).attended.store(1, SeqCst);
    }

    /// The content of a file goes, to be written anew: whoever closes it then tells the server at once, which [stores the new
    /// content](Inodes::store_replaced).
    pub fn content_replaced(&self, open: &OpenInode) {
        open.is_replaced.store(true, Relaxed);
        self.attend(open);
    }

    /// An open file that may have written is closed: content that came after a truncation to nothing is stored with it, as ext4
    /// does, whoever else has the file open.
    pub fn store_replaced(&self, open: &OpenInode) {
        if !open.is_replaced.swap(false, Relaxed) {
            return;
        }
        let drained = self.drain(open, true);
        self.pass_times(open);
        if let Err(error) = drained.and_then(|()| self.fs.write_in_order(open.ino)) {
            tracing::debug!(ino = open.ino.0, %error, "its new content may come later than its truncation");
            open.is_replaced.store(true, Relaxed);
        }
    }

    /// Bytes that were accepted for an inode could not be stored.
    pub fn failed(&self, open: &OpenInode, errno: i32) {
        // Whoever closes it may be the first to hear.
        self.attend(open);
        open.errors.record(errno);
        self.errors.record(errno);
        self.shared(open.slot).must_ask_for_sync();
    }

    /// Accepted bytes of an inode cannot be stored, and are given up.
    fn lost(&self, open: &OpenInode, error: &FsError) {
        tracing::error!(ino = open.ino.0, %error, "accepted data could not be stored");
        // Of a damaged file, the next mount could not store them, either.
        if let (Some(log), false) = (&self.log, matches!(error, FsError::Checksum(_))) {
            log.bytes_lost(self.shared(open.slot));
        }
    }

    /// The core may not be able to store what it has accepted: every open file that may have written reports it.
    pub fn all_failed(&self, errno: i32) {
        for open in self.all().iter().filter(|open| open.users.load(Relaxed) > 0) {
            self.attend(open);
            open.errors.record(errno);
            self.shared(open.slot).must_ask_for_sync();
        }
        self.errors.record(errno);
    }

    fn hand_over(&self, open: &OpenInode) {
        if let Err(error) = self.drain(open, true) {
            self.lost(open, &error);
        }
        self.pass_times(open);
    }

    /// Whether the volume has room for what all rings (and `more` further ones) may hold.
    fn has_headroom(&self, more: u32) -> bool {
        let rings = u64::from(self.rings_used.load(Relaxed) + more);
        // An eighth for what maps and partial blocks take, and a little for names and attributes.
        let held = rings * RING_BYTES as u64 * 9 / 8 + self.reserved.load(Relaxed);
        self.fs
            .statfs()
            .is_ok_and(|stats| stats.free_bytes > held + (stats.total_bytes / 64).min(MARGIN_BYTES_MAX))
    }

    /// The same of the quota of this directory. A ring may be filled again while what it held is taken, until
    /// [`stop_when_short`](Self::stop_when_short) has looked: so it counts twice.
    fn has_headroom_in(&self, dir: Ino, more: u32) -> bool {
        let rings = u64::from(self.quota_rings.lock().get(&dir).copied().unwrap_or(0) + more);
        let held = rings * RING_BYTES as u64 * 9 / 4 + self.reserved.load(Relaxed);
        self.fs.quota_room(dir).is_ok_and(|room| room.is_none_or(|room| room.free_bytes > held))
    }

    /// Whether there is room for what one more ring, of this inode, may hold.
    fn has_headroom_for(&self, open: &OpenInode) -> bool {
        self.has_headroom(1) && open.quota.is_none_or(|dir| self.has_headroom_in(dir, 1))
    }

    /// Before `bytes` of the volume's space are taken: what they would leave too little for is taken from the rings first, so
    /// that the core always has room for what rings have accepted. Holds until the guard goes, when they are taken.
    /// Called without any write lock.
    pub fn reserve(&self, bytes: u64) -> Reservation<'_> {
        self.reserved.fetch_add(bytes, Relaxed);
        let guard = Reservation { inodes: self, bytes };
        self.keep_headroom();
        guard
    }

    /// Takes rings away when the volume, or a quota, could not hold what they may accept: from then on each write is asked of the
    /// core, which says "no space" to the writer that it concerns.
    pub fn keep_headroom(&self) {
        if self.rings_used.load(Relaxed) == 0 {
            return;
        }
        let is_full = !self.has_headroom(0);
        let mut full: Vec<Ino> = self.quota_rings.lock().keys().copied().collect();
        full.retain(|dir| !self.has_headroom_in(*dir, 0));
        if !is_full && full.is_empty() {
            return;
        }
        for open in self.all() {
            if is_full || open.quota.is_some_and(|dir| full.contains(&dir)) {
                self.revoke_rings(&open);
            }
        }
    }

    /// Whether a program that is executed from the inode may do more than its user.
    fn gives_rights(&self, ino: Ino, perm: u32) -> bool {
        has_set_id(perm) || self.fs.getxattr(ino, CAPABILITIES).is_ok()
    }

    /// Whether a write to the inode may have to clear set-id bits or capabilities.
    pub fn may_have_set_id(&self, open: &OpenInode) -> bool {
        open.set_id.load(Relaxed)
    }

    /// An inode's permission bits or capabilities have changed. With set-id bits or capabilities all writes go through the server,
    /// which clears them: the inode that is returned then is to be [`robbed`](Self::revoke_rings) of its ring.
    #[must_use]
    pub fn perm_changed(&self, ino: Ino, perm: u32) -> Option<Arc<OpenInode>> {
        let table = self.table.lock();
        let open = table.by_ino.get(&ino)?;
        let gives_rights = self.gives_rights(ino, perm);
        open.set_id.store(gives_rights, Relaxed);
        gives_rights.then(|| open.clone())
    }

    /// An inode's flags have changed. When all writes go through the server from now on, the inode that is returned is to be
    /// [`robbed`](Self::revoke_rings) of its ring.
    #[must_use]
    pub fn flags_changed(&self, ino: Ino, flags: InodeFlags) -> Option<Arc<OpenInode>> {
        let table = self.table.lock();
        let open = table.by_ino.get(&ino)?;
        open.flags.store(flags.bits(), Relaxed);
        let shared = self.shared(open.slot);
        if shared.kind.load(Relaxed) == libc::S_IFREG {
            if flags.contains(InodeFlags::APPEND) {
                shared.by_call.fetch_or(APPEND_ONLY, SeqCst);
            } else {
                shared.by_call.fetch_and(!APPEND_ONLY, SeqCst);
            }
        }
        open.is_written_by_call().then(|| open.clone())
    }

    /// Current size of an open inode.
    pub fn size(&self, open: &OpenInode) -> u64 {
        self.shared(open.slot).size.load(Acquire)
    }
}

#[cfg(test)]
mod tests;
