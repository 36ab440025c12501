//! `flock` and record locks, across processes.
//!
//! A record lock belongs to a process or, for the OFD kind, to an open file; `flock` locks belong to an open file.
//! Locks of a dead process go with it. When a process becomes another program, its record locks pass to that
//! program's process.
//!
//! No thread of the server waits for a lock. The table notes who is refused and wants to wait, notifies the waiter when
//! it can have the lock, and the waiter asks again. So its client can give up when a signal comes. From
//! these notes the table also detects deadlocks (`EDEADLK`; of record locks of processes only, as in Linux).
//!
//! The record locks of an inode that belong to processes only, and that nobody waits for, are *lent*: processes that share memory
//! with the server set them by themselves ([`weft_client::shared::records`]). Whatever else is done with the inode's record locks
//! takes them back first.

use super::processes::Peer;
use super::shared::ControlMemory;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weft_client::LockRange;
use weft_client::shared::lock::SERVER;
use weft_client::shared::records::{ENTRIES, Record, Records};
use weft_core::Ino;

/// Threads that wait for locks of a volume at once.
const WAITING_MAX: usize = 16_384;
/// A client that has a shared table of record locks locked for longer loses it.
const PATIENCE: Duration = Duration::from_millis(100);
/// Locks of an inode whose table is lent: room for more is left in it.
const LENT_MAX: usize = ENTRIES / 2;

/// Who holds a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner {
    /// A process, by its number.
    Process(u32),
    /// An open file, by its number.
    File(u64),
    /// Whom the kernel names by this number, through a mount.
    Kernel(u64),
}

/// A thread that waits when it does not get a lock.
#[derive(Clone)]
pub struct Waiter {
    /// Its process.
    pub process: u32,
    /// Its number among the threads of the process.
    pub thread: u64,
    /// Learns when to ask again.
    pub peer: Arc<dyn Peer>,
}

/// Why a lock is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Others hold it.
    Held,
    /// Others hold it, and the waiter is noted.
    Waits,
    /// Processes would wait for one another for ever.
    Deadlock,
    /// Too many threads wait.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    owner: Owner,
    exclusive: bool,
    /// First byte.
    start: u64,
    /// Last byte.
    last: u64,
    pid: u32,
}

impl Held {
    /// What an owner holds of a range once the lock is granted.
    fn of_range(owner: Owner, range: &LockRange) -> Held {
        let last = if range.len == 0 { u64::MAX } else { range.start.saturating_add(range.len - 1) };
        let exclusive = range.kind == libc::F_WRLCK;
        Held { owner, exclusive, start: range.start, last, pid: range.pid }
    }

    fn whole(owner: Owner, exclusive: bool) -> Held {
        Held { owner, exclusive, start: 0, last: u64::MAX, pid: 0 }
    }

    /// Whether both are the same lock of the same owner.
    fn is_like(&self, other: &Held) -> bool {
        let of = |held: &Held| (held.owner, held.exclusive, held.start, held.last);
        of(self) == of(other)
    }

    fn overlaps(&self, start: u64, last: u64) -> bool {
        self.start <= last && start <= self.last
    }

    /// As a process sets it by itself; `None` of an open file's.
    fn record(&self) -> Option<Record> {
        let Held { owner, exclusive, start, last, pid } = *self;
        let Owner::Process(process) = owner else { return None };
        Some(Record { holder: process + 1, exclusive, pid, start, last })
    }

    /// What a process has set; `None` of what makes no sense.
    fn of_record(record: Record) -> Option<Held> {
        let Record { holder, exclusive, pid, start, last } = record;
        let owner = Owner::Process(holder.checked_sub(1)?);
        (start <= last).then_some(Held { owner, exclusive, start, last, pid })
    }
}

/// The locks of a file that exclude each other: record locks, or those of the whole file (`flock`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Records(Ino),
    /// Never part of a deadlock.
    Whole(Ino),
}

impl Place {
    fn ino(self) -> Ino {
        let (Place::Records(ino) | Place::Whole(ino)) = self;
        ino
    }
}

/// What a waiter asked for.
struct Waiting {
    waiter: Waiter,
    place: Place,
    wanted: Held,
    /// It was told to ask again, and has not yet.
    is_told: bool,
}

/// Where the record locks of an inode can be lent.
#[derive(Clone)]
pub struct Lending {
    /// The inode's slot.
    pub slot: u32,
    /// Set when a client had the table locked for too long: it may still write to it, and the table is not lent any more.
    pub is_haunted: Arc<AtomicBool>,
}

#[derive(Default)]
struct Table {
    held: FxHashMap<Place, Vec<Held>>,
    waiting: Vec<Waiting>,
    lent: FxHashMap<Ino, Lending>,
    /// Slots whose tables have been lent, and are not as they were at first.
    touched: FxHashSet<u32>,
}

/// All locks of a volume.
pub struct Locks {
    table: Mutex<Table>,
    control: Arc<ControlMemory>,
}

impl Locks {
    /// Nothing is locked.
    pub fn new(control: Arc<ControlMemory>) -> Locks {
        Locks { table: Mutex::default(), control }
    }

    fn records(&self, lending: &Lending) -> &Records {
        &self.control.records[lending.slot as usize]
    }

    /// Takes the record locks of an inode back, if they are lent.
    fn take_back(&self, table: &mut Table, ino: Ino) {
        let Some(lending) = table.lent.remove(&ino) else { return };
        let records = self.records(&lending);
        records.close();
        let is_alone = lock_patiently(records);
        if !is_alone {
            lending.is_haunted.store(true, Relaxed);
        }
        // What a client that is broken has written there must not harm others.
        let mut all: Vec<Held> = Vec::new();
        for held in records.all().filter_map(Held::of_record) {
            if conflicts(&all, held).next().is_none() {
                all.push(held);
            }
        }
        if is_alone {
            records.lock.unlock(SERVER);
        }
        if !all.is_empty() {
            table.held.insert(Place::Records(ino), all);
        }
    }

    /// Lends the record locks of an inode, if they can be.
    fn lend(&self, table: &mut Table, ino: Ino, lending: &Lending) {
        let place = Place::Records(ino);
        let held = table.held.get(&place).map_or(&[][..], Vec::as_slice);
        let waits = table.waiting.iter().any(|waiting| waiting.place == place);
        if waits || held.len() > LENT_MAX || lending.is_haunted.load(Relaxed) {
            return;
        }
        let all: Option<Vec<Record>> = held.iter().map(Held::record).collect();
        let Some(all) = all else { return };
        table.touched.insert(lending.slot);
        let records = self.records(lending);
        if !records.lock.lock(SERVER, || true) {
            return;
        }
        let is_open = records.open(all.into_iter());
        records.lock.unlock(SERVER);
        if is_open {
            table.held.remove(&place);
            table.lent.insert(ino, lending.clone());
        }
    }

    /// Takes back those of the lent locks that a process has some of, or may be changing.
    fn take_back_of(&self, table: &mut Table, process: u32) {
        let holder = process + 1;
        let is_its = |lending: &Lending| {
            let records = self.records(lending);
            records.lock.holder() == holder || records.all().any(|record| record.holder == holder)
        };
        let its: Vec<Ino> =
            table.lent.iter().filter(|(_, lending)| is_its(lending)).map(|(ino, _)| *ino).collect();
        its.into_iter().for_each(|ino| self.take_back(table, ino));
    }

    /// An inode gets a slot: nothing is locked in it.
    pub fn begin(&self, slot: u32) {
        if self.table.lock().touched.remove(&slot) {
            self.control.records[slot as usize].reset();
        }
    }

    /// Nobody has an inode open any more, and no record lock of it is held.
    pub fn forget(&self, ino: Ino) {
        let mut table = self.table.lock();
        self.take_back(&mut table, ino);
        table.held.remove(&Place::Records(ino));
    }

    /// The first record lock of somebody else that is in the way of `range`.
    pub fn in_the_way(&self, ino: Ino, owner: Owner, range: &LockRange) -> Option<LockRange> {
        let mut table = self.table.lock();
        self.take_back(&mut table, ino);
        let first =
            table.conflicts(Place::Records(ino), &Held::of_range(owner, range)).min_by_key(|held| held.start);
        first.map(|held| LockRange {
            kind: if held.exclusive { libc::F_WRLCK } else { libc::F_RDLCK },
            start: held.start,
            len: if held.last == u64::MAX { 0 } else { held.last - held.start + 1 },
            pid: held.pid,
        })
    }

    /// Sets or clears a record lock. With `lending`, the inode's locks are lent afterwards if they can be.
    pub fn set_record(
        &self,
        ino: Ino,
        owner: Owner,
        range: &LockRange,
        waiter: Option<&Waiter>,
        lending: Option<&Lending>,
    ) -> Result<(), Refused> {
        let sets = range.kind != libc::F_UNLCK;
        let mut table = self.table.lock();
        self.take_back(&mut table, ino);
        table.set(Place::Records(ino), Held::of_range(owner, range), sets, waiter)?;
        if let Some(lending) = lending {
            self.lend(&mut table, ino, lending);
        }
        Ok(())
    }

    /// Sets or clears the lock of the whole file, as `flock` does; `exclusive` is `None` to clear it. Never a deadlock.
    pub fn set_whole(
        &self,
        ino: Ino,
        owner: Owner,
        exclusive: Option<bool>,
        waiter: Option<&Waiter>,
    ) -> Result<(), Refused> {
        let (place, whole) = (Place::Whole(ino), Held::whole(owner, exclusive == Some(true)));
        let mut table = self.table.lock();
        let mut held = table.held.get(&place).into_iter().flatten();
        if exclusive.is_some() && held.any(|held| held.owner == owner && held.exclusive != whole.exclusive) {
            // As in Linux, another kind of lock is given back before the new one is asked for, and does not come back when that
            // is refused: of two owners who want to upgrade, one gets on.
            table.set(place, whole, false, None)?;
        }
        table.set(place, whole, exclusive.is_some(), waiter)
    }

    /// A thread does not wait any more: a signal came.
    pub fn withdraw(&self, process: u32, thread: u64) {
        let mut table = self.table.lock();
        if let Some((_, was)) = table.forget(process, thread) {
            table.gives_turn_up(&was);
        }
    }

    /// Drops the record locks of an owner on one inode, as closing any descriptor of a process does.
    pub fn drop_records(&self, ino: Ino, owner: Owner) {
        let (place, all) = (Place::Records(ino), Held::whole(owner, false));
        let mut table = self.table.lock();
        self.take_back(&mut table, ino);
        // Nothing is asked for that could be refused.
        let _ = table.set(place, all, false, None);
        // One that waits with a descriptor that is closed now has to return.
        table.notify_where(|waiting| waiting.place == place && waiting.wanted.owner == owner);
    }

    /// Drops everything that an owner holds.
    pub fn drop_owner(&self, owner: Owner) {
        let mut table = self.table.lock();
        // Its own threads that still wait ask again, and find that it is gone.
        table.notify_where(|waiting| waiting.wanted.owner == owner);
        let mut changed = table.drop_waiting(|waiting| waiting.wanted.owner == owner);
        changed.extend(table.drop_locks_of(owner));
        table.notify_all(changed);
    }

    /// A process is gone: nothing is held or waited for by it. When it has become another program, its record locks go to
    /// the process of that program, unless `heir_is_gone` says that this one has ended, too.
    pub fn end_process(&self, process: u32, heir: Option<u32>, heir_is_gone: impl Fn() -> bool) {
        let mut table = self.table.lock();
        let mut changed = table.drop_waiting(|waiting| waiting.waiter.process == process);
        for lending in table.lent.values() {
            self.records(lending).lock.free_if_held_by(process + 1);
        }
        self.take_back_of(&mut table, process);
        // Under the lock: an heir that ends later drops what it has been given.
        if let Some(heir) = heir.filter(|_| !heir_is_gone()) {
            changed.extend(table.hand_over(process, heir));
        }
        changed.extend(table.drop_locks_of(Owner::Process(process)));
        table.notify_all(changed);
    }

    /// A process has become another program, which is the process `heir`: its record locks stay its own.
    pub fn hand_over(&self, process: u32, heir: u32) {
        let mut table = self.table.lock();
        self.take_back_of(&mut table, process);
        let changed = table.hand_over(process, heir);
        table.notify_all(changed);
    }
}

impl Table {
    /// Gives an owner this lock in place of what it holds there, or only takes that.
    fn set(
        &mut self,
        place: Place,
        wanted: Held,
        sets: bool,
        waiter: Option<&Waiter>,
    ) -> Result<(), Refused> {
        if sets {
            self.grant(place, wanted, waiter)?;
        }
        let held = self.held.entry(place).or_default();
        let gives_up = |h: &&Held| h.owner == wanted.owner && h.overlaps(wanted.start, wanted.last);
        let is_for_others = |h: &Held| !sets || h.exclusive && !wanted.exclusive;
        let frees = held.iter().filter(gives_up).any(is_for_others);
        let wanted = if sets { joined(held, wanted) } else { wanted };
        cut(held, &wanted);
        held.extend(sets.then_some(wanted));
        debug_assert!(are_compatible(held), "a lock was granted beside one that excludes it");
        if held.is_empty() {
            self.held.remove(&place);
        }
        if frees {
            self.notify(place.ino(), &wanted);
        }
        if sets && matches!(place, Place::Records(_)) {
            self.notify_rings(place, wanted);
        }
        Ok(())
    }

    /// What others hold that excludes the wanted lock.
    fn conflicts(&self, place: Place, wanted: &Held) -> impl Iterator<Item = &Held> {
        conflicts(self.held.get(&place).map_or(&[], Vec::as_slice), *wanted)
    }

    /// Says whether a lock can be had now, and notes who waits for it.
    fn grant(&mut self, place: Place, wanted: Held, waiter: Option<&Waiter>) -> Result<(), Refused> {
        let before = waiter.and_then(|waiter| self.forget(waiter.process, waiter.thread));
        let blockers: Vec<Owner> = self.conflicts(place, &wanted).map(|held| held.owner).collect();
        let is_record = matches!(place, Place::Records(_));
        let refused = match waiter {
            _ if blockers.is_empty() => None,
            None => Some(Refused::Held),
            Some(_) if is_record && self.is_deadlock(wanted.owner, blockers) => Some(Refused::Deadlock),
            Some(_) if self.waiting.len() >= WAITING_MAX => Some(Refused::Full),
            Some(waiter) => {
                let its_turn = before.as_ref().filter(|(_, was)| was.place == place).map(|(at, _)| *at);
                let waiting = Waiting { waiter: waiter.clone(), place, wanted, is_told: false };
                self.waiting.insert(its_turn.unwrap_or(self.waiting.len()), waiting);
                Some(Refused::Waits)
            }
        };
        if let Some((_, was)) = before {
            let is_granted = refused.is_none() && was.place == place && was.wanted.is_like(&wanted);
            if !is_granted {
                self.gives_turn_up(&was);
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Whether one of the processes that `owner` would wait for waits, by way of others perhaps, for `owner`.
    fn is_deadlock(&self, owner: Owner, mut blockers: Vec<Owner>) -> bool {
        if let Owner::File(_) = owner {
            return false;
        }
        let mut seen = Vec::new();
        while let Some(blocker) = blockers.pop() {
            if blocker == owner {
                return true;
            }
            if seen.contains(&blocker) {
                continue;
            }
            seen.push(blocker);
            let waits = |waiting: &&Waiting| {
                matches!(waiting.place, Place::Records(_)) && waiting.wanted.owner == blocker
            };
            for waiting in self.waiting.iter().filter(waits) {
                blockers.extend(self.conflicts(waiting.place, &waiting.wanted).map(|held| held.owner));
            }
        }
        false
    }

    /// The thread does not wait; where it stood, and how it has waited.
    fn forget(&mut self, process: u32, thread: u64) -> Option<(usize, Waiting)> {
        let is_its = |waiting: &Waiting| (waiting.waiter.process, waiting.waiter.thread) == (process, thread);
        let at = self.waiting.iter().position(is_its)?;
        Some((at, self.waiting.remove(at)))
    }

    /// What a waiter could have had, and does not take, others can have.
    fn gives_turn_up(&mut self, was: &Waiting) {
        if was.is_told {
            self.notify(was.place.ino(), &was.wanted);
        }
    }

    /// Nobody waits for these any more; of which inodes they were.
    fn drop_waiting(&mut self, are: impl Fn(&Waiting) -> bool) -> FxHashSet<Ino> {
        let mut changed = FxHashSet::default();
        self.waiting.retain(|waiting| {
            let stays = !are(waiting);
            if !stays {
                changed.insert(waiting.place.ino());
            }
            stays
        });
        changed
    }

    /// Anything of these inodes may have been given up.
    fn notify_all(&mut self, inos: impl IntoIterator<Item = Ino>) {
        // Whoever owns it, and whatever it was.
        let everything = Held::whole(Owner::File(0), true);
        inos.into_iter().for_each(|ino| self.notify(ino, &everything));
    }

    /// After a record lock was granted: who waits for it closes a ring if its owner waits, by another thread, for them.
    fn notify_rings(&self, place: Place, granted: Held) {
        if !self.waiting.iter().any(|waiting| waiting.wanted.owner == granted.owner) {
            return;
        }
        let mut known: FxHashMap<Owner, bool> = FxHashMap::default();
        for Waiting { waiter, wanted, .. } in self.waiting.iter().filter(|waiting| waiting.place == place) {
            if conflicts(&[granted], *wanted).next().is_some()
                && *known
                    .entry(wanted.owner)
                    .or_insert_with(|| self.is_deadlock(wanted.owner, vec![granted.owner]))
            {
                waiter.peer.locks_changed(waiter.thread);
            }
        }
    }

    /// Those who wait for locks of the file, and can have them now, try again; `freed` is what somebody has given up. Of one process (the
    /// kernel of a mount is one) only who comes first is told, with those who can have theirs beside it: a thread that is told asks again
    /// or withdraws, and each change would wake all others in vain.
    fn notify(&mut self, ino: Ino, freed: &Held) {
        for place in [Place::Records(ino), Place::Whole(ino)] {
            let mut turns: FxHashMap<u32, Turns> = FxHashMap::default();
            let held = self.held.get(&place).map_or(&[][..], Vec::as_slice);
            for waiting in self.waiting.iter_mut().filter(|waiting| waiting.place == place) {
                let Waiting { waiter, wanted, is_told, .. } = waiting;
                // What was given up changes nothing for it.
                let is_apart = !wanted.overlaps(freed.start, freed.last);
                if is_apart && !*is_told {
                    continue;
                }
                let turns = turns.entry(waiter.process).or_default();
                if !is_apart && (!turns.allow(*wanted) || conflicts(held, *wanted).next().is_some()) {
                    continue;
                }
                turns.add(*wanted);
                if !*is_told {
                    *is_told = true;
                    waiter.peer.locks_changed(waiter.thread);
                }
            }
        }
    }

    /// These try again.
    fn notify_where(&self, are: impl Fn(&Waiting) -> bool) {
        for waiting in self.waiting.iter().filter(|waiting| are(waiting)) {
            waiting.waiter.peer.locks_changed(waiting.waiter.thread);
        }
    }

    /// The inodes on which the owner held something.
    fn drop_locks_of(&mut self, owner: Owner) -> Vec<Ino> {
        let mut changed = Vec::new();
        self.held.retain(|place, locks| {
            let before = locks.len();
            locks.retain(|h| h.owner != owner);
            if locks.len() != before {
                changed.push(place.ino());
            }
            !locks.is_empty()
        });
        changed
    }

    /// The inodes of which the heir has locks now, which do not keep it from others there.
    fn hand_over(&mut self, process: u32, heir: u32) -> Vec<Ino> {
        let mut changed = Vec::new();
        // Only record locks belong to processes.
        for (place, locks) in &mut self.held {
            for held in locks.iter_mut().filter(|held| held.owner == Owner::Process(process)) {
                held.owner = Owner::Process(heir);
                changed.push(place.ino());
            }
        }
        changed
    }
}

/// What threads of a process are told that they can have.
#[derive(Default)]
struct Turns {
    shared: Vec<Held>,
    exclusive: Vec<Held>,
}

impl Turns {
    fn allow(&self, wanted: Held) -> bool {
        let excludes = |held: &[Held]| conflicts(held, wanted).next().is_some();
        !(excludes(&self.exclusive) || wanted.exclusive && excludes(&self.shared))
    }

    fn add(&mut self, told: Held) {
        if told.exclusive { &mut self.exclusive } else { &mut self.shared }.push(told);
    }
}

/// Locks the table of an inode; false when a client has had it for too long, from which it is taken then.
fn lock_patiently(records: &Records) -> bool {
    let mut seen = (records.lock.holder(), Instant::now());
    let is_long = || {
        let holder = records.lock.holder();
        if holder != seen.0 {
            seen = (holder, Instant::now());
        }
        holder != 0 && seen.1.elapsed() > PATIENCE
    };
    records.lock.lock(SERVER, is_long)
}

/// What others hold that excludes the wanted lock.
fn conflicts(held: &[Held], wanted: Held) -> impl Iterator<Item = &Held> {
    let excludes = move |h: &&Held| h.exclusive || wanted.exclusive;
    let others =
        held.iter().filter(move |h| h.owner != wanted.owner && h.overlaps(wanted.start, wanted.last));
    others.filter(excludes)
}

/// Whether nobody holds what another one's lock excludes.
fn are_compatible(held: &[Held]) -> bool {
    held.iter().all(|h| conflicts(held, *h).next().is_none())
}

/// A lock with all that its owner holds of the same kind and that touches it: as in Linux, these are one.
fn joined(held: &[Held], mut wanted: Held) -> Held {
    let touches = |h: &Held, wanted: &Held| {
        let is_like = h.owner == wanted.owner && h.exclusive == wanted.exclusive;
        let is_near = h.start <= wanted.last.saturating_add(1) && wanted.start <= h.last.saturating_add(1);
        is_like && is_near && (h.start < wanted.start || h.last > wanted.last)
    };
    while let Some(near) = held.iter().find(|h| touches(h, &wanted)) {
        (wanted.start, wanted.last) = (wanted.start.min(near.start), wanted.last.max(near.last));
    }
    wanted
}

/// Takes a range out of what its owner holds, splitting locks that reach beyond it.
fn cut(held: &mut Vec<Held>, &Held { owner, start, last, .. }: &Held) {
    let mut rest = Vec::new();
    held.retain(|h| {
        if h.owner != owner || !h.overlaps(start, last) {
            return true;
        }
        if h.start < start {
            rest.push(Held { last: start - 1, ..*h });
        }
        if h.last > last {
            rest.push(Held { start: last + 1, ..*h });
        }
        false
    });
    held.extend(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    const INO: Ino = Ino(5);

    fn locks() -> Locks {
        Locks::new(Arc::new(ControlMemory::create().unwrap()))
    }

    fn range(kind: i32, start: u64, len: u64) -> LockRange {
        LockRange { kind, start, len, pid: 1 }
    }

    fn set(locks: &Locks, owner: Owner, range: LockRange) -> Result<(), Refused> {
        locks.set_record(INO, owner, &range, None, None)
    }

    #[test]
    fn readers_share_and_a_writer_excludes() {
        let locks = locks();
        let (a, b) = (Owner::Process(1), Owner::Process(2));
        assert_eq!(set(&locks, a, range(libc::F_RDLCK, 0, 10)), Ok(()));
        assert_eq!(set(&locks, b, range(libc::F_RDLCK, 5, 10)), Ok(()));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 9, 1)), Err(Refused::Held));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 10, 1)), Ok(()));
        assert_eq!(locks.in_the_way(INO, a, &range(libc::F_WRLCK, 10, 0)).map(|l| l.start), Some(10));
    }

    #[test]
    fn unlocking_the_middle_splits_a_lock() {
        let locks = locks();
        let (a, b) = (Owner::Process(1), Owner::Process(2));
        assert_eq!(set(&locks, a, range(libc::F_WRLCK, 0, 0)), Ok(()));
        assert_eq!(set(&locks, a, range(libc::F_UNLCK, 10, 10)), Ok(()));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 10, 10)), Ok(()));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 9, 1)), Err(Refused::Held));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 20, 1)), Err(Refused::Held));
    }

    #[test]
    fn locks_of_one_kind_that_touch_are_one() {
        let locks = locks();
        let (a, b) = (Owner::Process(1), Owner::Process(2));
        for (start, len) in [(0, 5), (10, 5), (5, 5), (3, 2), (20, 1)] {
            assert_eq!(set(&locks, a, range(libc::F_WRLCK, start, len)), Ok(()));
        }
        assert_eq!(set(&locks, a, range(libc::F_RDLCK, 15, 5)), Ok(()));
        let found =
            |start| locks.in_the_way(INO, b, &range(libc::F_WRLCK, start, 1)).map(|l| (l.start, l.len));
        assert_eq!(
            [found(4), found(16), found(20), found(21)],
            [Some((0, 15)), Some((15, 5)), Some((20, 1)), None]
        );
    }

    #[test]
    fn a_dead_process_holds_nothing() {
        let locks = locks();
        assert_eq!(set(&locks, Owner::Process(1), range(libc::F_WRLCK, 0, 0)), Ok(()));
        locks.drop_owner(Owner::Process(1));
        assert_eq!(set(&locks, Owner::Process(2), range(libc::F_WRLCK, 0, 0)), Ok(()));
    }

    #[test]
    fn flock_upgrades_in_place() {
        let locks = locks();
        let (a, b) = (Owner::File(1), Owner::File(2));
        let set = |owner, op| {
            let exclusive = (op != libc::LOCK_UN).then_some(op == libc::LOCK_EX);
            locks.set_whole(INO, owner, exclusive, None)
        };
        assert_eq!(set(a, libc::LOCK_SH), Ok(()));
        assert_eq!(set(a, libc::LOCK_EX), Ok(()));
        assert_eq!(set(b, libc::LOCK_SH), Err(Refused::Held));
        assert_eq!(set(a, libc::LOCK_UN), Ok(()));
        assert_eq!(set(b, libc::LOCK_SH), Ok(()));
        // An upgrade that is refused gives the lock back.
        assert_eq!(set(a, libc::LOCK_SH), Ok(()));
        assert_eq!(set(b, libc::LOCK_EX), Err(Refused::Held));
        assert_eq!(set(a, libc::LOCK_EX), Ok(()));
        assert_eq!(set(b, libc::LOCK_EX), Err(Refused::Held));
    }

    /// Counts how often it has heard of changes.
    #[derive(Default)]
    struct Bell(AtomicU32);

    impl Peer for Bell {
        fn locks_changed(&self, _thread: u64) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A waiter, and how often its bell has rung.
    fn waiter(process: u32, thread: u64) -> (Waiter, Arc<Bell>) {
        let bell = Arc::new(Bell::default());
        (Waiter { process, thread, peer: bell.clone() }, bell)
    }

    fn wait(locks: &Locks, waiter: &Waiter, start: u64) -> Result<(), Refused> {
        let owner = Owner::Process(waiter.process);
        locks.set_record(INO, owner, &range(libc::F_WRLCK, start, 1), Some(waiter), None)
    }

    #[test]
    fn a_waiter_hears_when_it_can_have_the_lock() {
        let locks = locks();
        let (waiter, rung) = waiter(2, 7);
        assert_eq!(set(&locks, Owner::Process(1), range(libc::F_WRLCK, 0, 2)), Ok(()));
        assert_eq!(wait(&locks, &waiter, 0), Err(Refused::Waits));
        assert_eq!(set(&locks, Owner::Process(1), range(libc::F_UNLCK, 1, 1)), Ok(()));
        assert_eq!((rung.0.load(Relaxed), wait(&locks, &waiter, 0)), (0, Err(Refused::Waits)));
        locks.drop_records(INO, Owner::Process(1));
        assert_eq!((rung.0.load(Relaxed), wait(&locks, &waiter, 0)), (1, Ok(())));
        locks.drop_owner(Owner::Process(2));
        assert_eq!(rung.0.load(Relaxed), 1);
    }

    #[test]
    fn a_waiter_that_withdraws_hears_no_more() {
        let locks = locks();
        let (waiter, rung) = waiter(2, 7);
        assert_eq!(set(&locks, Owner::Process(1), range(libc::F_WRLCK, 0, 0)), Ok(()));
        assert_eq!(wait(&locks, &waiter, 0), Err(Refused::Waits));
        locks.withdraw(2, 7);
        locks.drop_owner(Owner::Process(1));
        assert_eq!(rung.0.load(Relaxed), 0);
    }

    #[test]
    fn of_the_threads_of_a_process_only_those_hear_whose_turn_it_is() {
        let locks = locks();
        let waiters: Vec<_> =
            [(2, 1), (2, 2), (2, 3), (2, 4), (3, 1)].map(|(process, thread)| waiter(process, thread)).into();
        let rung = || waiters.iter().map(|(_, bell)| bell.0.load(Relaxed)).collect::<Vec<u32>>();
        let wait = |at: usize, start| {
            let owner = Owner::File(at as u64);
            locks.set_record(INO, owner, &range(libc::F_WRLCK, start, 1), Some(&waiters[at].0), None)
        };
        assert_eq!(set(&locks, Owner::Process(1), range(libc::F_WRLCK, 0, 2)), Ok(()));
        for (at, start) in [0, 0, 1, 0, 0].into_iter().enumerate() {
            assert_eq!(wait(at, start), Err(Refused::Waits));
        }
        locks.drop_records(INO, Owner::Process(1));
        assert_eq!(rung(), [1, 0, 1, 0, 1]);
        // Somebody else is faster: the turn stays, and nobody hears in vain.
        assert_eq!(set(&locks, Owner::Process(9), range(libc::F_WRLCK, 0, 1)), Ok(()));
        assert_eq!((wait(0, 0), wait(2, 1)), (Err(Refused::Waits), Ok(())));
        locks.drop_records(INO, Owner::Process(9));
        assert_eq!(rung(), [2, 0, 1, 0, 1]);
        // Whoever does not take its turn leaves it to the next.
        locks.withdraw(2, 1);
        assert_eq!(rung(), [2, 1, 1, 0, 1]);
        assert_eq!(wait(1, 0), Ok(()));
        locks.drop_owner(Owner::File(1));
        assert_eq!(rung(), [2, 1, 1, 1, 1]);
        assert_eq!(wait(3, 0), Ok(()));
    }

    #[test]
    fn a_turn_that_nobody_takes_any_more_goes_to_the_next() {
        let (first, second) = (Owner::File(1), Owner::File(2));
        type Goes<'a> = &'a dyn Fn(&Locks, &Waiter);
        let gone: [Goes<'_>; 3] = [
            // Its open file is closed by another thread.
            &|locks, _| locks.drop_owner(first),
            &|locks, _| locks.withdraw(2, 1),
            // A handler of it takes another lock, and does not come back.
            &|locks, waiter| {
                let other = range(libc::F_WRLCK, 50, 1);
                assert_eq!(locks.set_record(INO, first, &other, Some(waiter), None), Ok(()));
            },
        ];
        for (case, goes) in gone.into_iter().enumerate() {
            for is_told in [false, true] {
                let locks = locks();
                let (one, two) = (waiter(2, 1), waiter(2, 2));
                assert_eq!(set(&locks, Owner::Process(1), range(libc::F_WRLCK, 0, 1)), Ok(()));
                for (owner, (waiter, _)) in [(first, &one), (second, &two)] {
                    let set = locks.set_record(INO, owner, &range(libc::F_WRLCK, 0, 1), Some(waiter), None);
                    assert_eq!(set, Err(Refused::Waits));
                }
                let free = || locks.drop_records(INO, Owner::Process(1));
                if is_told {
                    free();
                }
                goes(&locks, &one.0);
                if !is_told {
                    free();
                }
                assert_eq!(two.1.0.load(Relaxed), 1, "case {case}, told: {is_told}");
            }
        }
    }

    #[test]
    fn a_ring_that_a_granted_lock_closes_is_found_by_who_waits_for_it() {
        let locks = locks();
        let (one, bell) = waiter(1, 1);
        let two = waiter(2, 1).0;
        for (process, start) in [(1, 1), (2, 2), (3, 3)] {
            assert_eq!(set(&locks, Owner::Process(process), range(libc::F_WRLCK, start, 1)), Ok(()));
        }
        assert_eq!(wait(&locks, &one, 3), Err(Refused::Waits));
        assert_eq!(wait(&locks, &two, 1), Err(Refused::Waits));
        // What the first waits for passes to the second, by another thread of it.
        locks.hand_over(3, 4);
        locks.drop_owner(Owner::Process(4));
        assert_eq!(set(&locks, Owner::Process(2), range(libc::F_WRLCK, 3, 1)), Ok(()));
        assert_eq!(bell.0.load(Relaxed), 2);
        assert_eq!(wait(&locks, &one, 3), Err(Refused::Deadlock));
    }

    #[test]
    fn a_ring_of_processes_is_a_deadlock_and_a_chain_is_not() {
        let locks = locks();
        let (one, two, three) = (waiter(1, 1).0, waiter(2, 1).0, waiter(3, 1).0);
        for process in 1..=3 {
            assert_eq!(set(&locks, Owner::Process(process), range(libc::F_WRLCK, process.into(), 1)), Ok(()));
        }
        assert_eq!(wait(&locks, &one, 2), Err(Refused::Waits));
        assert_eq!(wait(&locks, &two, 3), Err(Refused::Waits));
        assert_eq!(wait(&locks, &three, 1), Err(Refused::Deadlock));
        // Whoever has given up its wait closes no ring.
        locks.withdraw(2, 1);
        assert_eq!(wait(&locks, &three, 1), Err(Refused::Waits));
        assert_eq!(wait(&locks, &two, 3), Err(Refused::Deadlock));
    }

    #[test]
    fn locks_of_open_files_are_never_a_deadlock() {
        let locks = locks();
        let (one, two) = (waiter(1, 1).0, waiter(1, 2).0);
        let (a, b) = (Owner::File(1), Owner::File(2));
        assert_eq!(set(&locks, a, range(libc::F_WRLCK, 0, 1)), Ok(()));
        assert_eq!(set(&locks, b, range(libc::F_WRLCK, 1, 1)), Ok(()));
        assert_eq!(
            locks.set_record(INO, a, &range(libc::F_WRLCK, 1, 1), Some(&one), None),
            Err(Refused::Waits)
        );
        assert_eq!(
            locks.set_record(INO, b, &range(libc::F_WRLCK, 0, 1), Some(&two), None),
            Err(Refused::Waits)
        );
    }

    #[test]
    fn a_program_keeps_the_locks_of_the_one_it_replaced() {
        let locks = locks();
        assert_eq!(set(&locks, Owner::Process(1), range(libc::F_WRLCK, 0, 0)), Ok(()));
        locks.end_process(1, Some(2), || false);
        assert_eq!(set(&locks, Owner::Process(3), range(libc::F_WRLCK, 0, 0)), Err(Refused::Held));
        assert_eq!(set(&locks, Owner::Process(2), range(libc::F_RDLCK, 0, 0)), Ok(()));
        // The exec failed, and the process ended as it was.
        locks.end_process(2, Some(4), || true);
        assert_eq!(set(&locks, Owner::Process(3), range(libc::F_WRLCK, 0, 0)), Ok(()));
    }
}
