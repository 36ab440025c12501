//! Record locks of processes on an inode, where the processes themselves set and clear them.
//!
//! ```text
//!  lock | open |            the table's lock; 1 = clients use the table, 0 = the server keeps the inode's locks
//!  16 entries               owner (process + 1, bit 31: it excludes all others; 0 = free), pid, first byte, last byte
//! ```
//!
//! The server opens the table of an inode when all its record locks belong to processes and nobody waits for one, and takes them
//! back when there is anything else to do: a lock that is in another one's way, one of an open file, one of a process that shares
//! no memory. A process changes entries of its own only, so a process that is killed anywhere leaves nothing that counts: its entries
//! go with it.

use super::lock::Lock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Locks that a table holds.
pub const ENTRIES: usize = 16;
const EXCLUSIVE: u32 = 1 << 31;

/// A lock of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Number of the process plus 1: what it marks its locks in shared memory with.
    pub holder: u32,
    /// Whether it excludes all others, or only those that do.
    pub exclusive: bool,
    /// Process id, for whoever asks.
    pub pid: u32,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
}

impl Record {
    fn overlaps(&self, other: &Record) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// Whether the two cannot be held at once.
    pub fn excludes(&self, other: &Record) -> bool {
        self.holder != other.holder && (self.exclusive || other.exclusive) && self.overlaps(other)
    }
}

#[repr(C)]
struct Entry {
    owner: AtomicU32,
    pid: AtomicU32,
    start: AtomicU64,
    last: AtomicU64,
}

impl Entry {
    fn record(&self) -> Option<Record> {
        let owner = self.owner.load(Acquire);
        (owner & !EXCLUSIVE != 0).then(|| Record {
            holder: owner & !EXCLUSIVE,
            exclusive: owner & EXCLUSIVE != 0,
            pid: self.pid.load(Relaxed),
            start: self.start.load(Relaxed),
            last: self.last.load(Relaxed),
        })
    }

    fn set(&self, record: &Record) {
        self.pid.store(record.pid, Relaxed);
        self.start.store(record.start, Relaxed);
        self.last.store(record.last, Relaxed);
        self.owner.store(record.holder | if record.exclusive { EXCLUSIVE } else { 0 }, Release);
    }

    fn clear(&self) {
        self.owner.store(0, Release);
    }
}

/// The record locks of an inode. But for [`is_open`](Self::is_open), everything is done under the table's lock.
#[repr(C, align(64))]
pub struct Records {
    /// Excludes all others who use the table.
    pub lock: Lock,
    open: AtomicU32,
    entries: [Entry; ENTRIES],
}

impl Records {
    /// Whether clients set locks here.
    pub fn is_open(&self) -> bool {
        self.open.load(Acquire) != 0
    }

    /// The locks that are held.
    pub fn all(&self) -> impl Iterator<Item = Record> {
        self.entries.iter().filter_map(Entry::record)
    }

    /// Opens the table with these locks; false when they are too many.
    pub fn open(&self, records: impl Iterator<Item = Record>) -> bool {
        let mut entries = self.entries.iter();
        self.entries.iter().for_each(Entry::clear);
        for record in records {
            let Some(entry) = entries.next() else { return false };
            entry.set(&record);
        }
        self.open.store(1, Release);
        true
    }

    /// Clients ask the server from now on.
    pub fn close(&self) {
        self.open.store(0, Release);
    }

    /// Whether a lock of somebody else is in the way of one.
    pub fn is_refused(&self, wanted: &Record) -> bool {
        self.all().any(|held| held.excludes(wanted))
    }

    /// Gives a process this lock in place of what it holds there, or only takes that. False when there is no room, and nothing has
    /// changed.
    pub fn set(&self, wanted: &Record, sets: bool) -> bool {
        let wanted = &if sets { self.joined(*wanted) } else { *wanted };
        let own = || {
            let of_wanted = |held: &Record| held.holder == wanted.holder && held.overlaps(wanted);
            self.entries
                .iter()
                .filter_map(move |entry| entry.record().filter(of_wanted).map(|held| (entry, held)))
        };
        // What reaches beyond the wanted range at both ends becomes two.
        let (mut free, mut needed) =
            (self.entries.iter().filter(|entry| entry.record().is_none()).count(), 0);
        for (_, held) in own() {
            let parts = usize::from(held.start < wanted.start) + usize::from(held.last > wanted.last);
            (free, needed) = (free + usize::from(parts == 0), needed + usize::from(parts == 2));
        }
        if needed + usize::from(sets) > free {
            return false;
        }
        for (entry, held) in own() {
            let before = Record { last: wanted.start.wrapping_sub(1), ..held };
            let behind = Record { start: wanted.last.wrapping_add(1), ..held };
            match (held.start < wanted.start, held.last > wanted.last) {
                (false, false) => entry.clear(),
                (true, false) => entry.last.store(before.last, Release),
                (false, true) => entry.start.store(behind.start, Release),
                (true, true) => {
                    entry.last.store(before.last, Release);
                    self.add(&behind);
                }
            }
        }
        if sets {
            self.add(wanted);
        }
        true
    }

    /// A lock with all that its process holds of the same kind and that touches it: as in Linux, these are one.
    fn joined(&self, mut wanted: Record) -> Record {
        let touches = |held: &Record, wanted: &Record| {
            let is_like = held.holder == wanted.holder && held.exclusive == wanted.exclusive;
            let is_near =
                held.start <= wanted.last.saturating_add(1) && wanted.start <= held.last.saturating_add(1);
            is_like && is_near && (held.start < wanted.start || held.last > wanted.last)
        };
        while let Some(near) = self.all().find(|held| touches(held, &wanted)) {
            (wanted.start, wanted.last) = (wanted.start.min(near.start), wanted.last.max(near.last));
        }
        wanted
    }

    fn add(&self, record: &Record) {
        let free = self.entries.iter().find(|entry| entry.record().is_none());
        debug_assert!(free.is_some(), "there is room for the parts of a lock");
        if let Some(entry) = free {
            entry.set(record);
        }
    }

    /// Makes the table one that nobody uses; for the server, when it gives the slot to an inode.
    pub fn reset(&self) {
        self.close();
        self.entries.iter().for_each(Entry::clear);
        self.lock.clear();
    }
}

const _: () = assert!(size_of::<Records>() == 448);

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> &'static Records {
        let layout = std::alloc::Layout::new::<Records>();
        // SAFETY: the layout is not empty, and zeros are valid; leaked on purpose.
        unsafe { &*std::alloc::alloc_zeroed(layout).cast::<Records>() }
    }

    fn record(holder: u32, exclusive: bool, start: u64, last: u64) -> Record {
        Record { holder, exclusive, pid: holder * 10, start, last }
    }

    fn held(table: &Records, holder: u32) -> Vec<(u64, u64)> {
        let mut all: Vec<_> =
            table.all().filter(|held| held.holder == holder).map(|held| (held.start, held.last)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_lock_replaces_what_its_process_holds_there_and_nothing_else() {
        let table = table();
        assert!(table.open([record(1, true, 0, u64::MAX)].into_iter()));
        assert!(table.set(&record(1, true, 10, 19), false));
        assert_eq!(held(table, 1), [(0, 9), (20, u64::MAX)]);
        assert!(table.set(&record(2, true, 12, 15), true) && table.set(&record(1, false, 5, 11), true));
        assert_eq!((held(table, 1), held(table, 2)), (vec![(0, 4), (5, 11), (20, u64::MAX)], vec![(12, 15)]));
        assert!(table.is_refused(&record(3, false, 0, 4)) && !table.is_refused(&record(3, false, 5, 11)));
        assert!(table.is_refused(&record(3, true, 5, 5)) && !table.is_refused(&record(1, true, 0, 11)));
        assert!(table.set(&record(1, true, 0, u64::MAX), false));
        assert_eq!((held(table, 1), held(table, 2)), (vec![], vec![(12, 15)]));
        // What touches is one.
        for (start, last) in [(20, 24), (30, 34), (25, 29), (28, 29)] {
            assert!(table.set(&record(1, true, start, last), true));
        }
        assert!(table.set(&record(1, false, 35, 39), true));
        assert_eq!(held(table, 1), [(20, 34), (35, 39)]);
    }

    #[test]
    fn a_full_table_is_left_as_it_is() {
        let table = table();
        assert!(!table.open((0..=ENTRIES as u64).map(|n| record(1, true, 10 * n, 10 * n + 8))));
        assert!(!table.is_open());
        assert!(table.open((0..ENTRIES as u64).map(|n| record(1, true, 10 * n, 10 * n + 8))));
        let before = held(table, 1);
        assert!(!table.set(&record(1, true, 3, 4), false) && !table.set(&record(2, true, 9, 9), true));
        assert_eq!(held(table, 1), before);
        // A part at the end needs no room, and what is replaced makes some.
        assert!(table.set(&record(1, true, 0, 4), false) && table.set(&record(1, false, 0, 8), true));
        assert_eq!(held(table, 1).len(), ENTRIES);
    }
}
