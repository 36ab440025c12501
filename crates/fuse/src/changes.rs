//! Which inodes were changed since everything was durable the last time, in memory that outlives the server.
//!
//! ```text
//!  4 words: entries so far; everything before this time is durable; when entries were lost; unused
//!  2 words for each of the last entries: inode, or 0; time, and what happened
//! ```
//!
//! A loss stays known to each thread for a while ([`TOLD_TO_EACH`]), as there may be several that changed an inode by its name, and open
//! it only to make it durable.
//!
//! An entry is made after what it tells of, and before the kernel gets the answer: what a server does not come to answer, the
//! next one is asked for again.

use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering::*};
use weft_core::Ino;
use weft_sys::clock::monotonic_ns;

const HEAD_WORDS: usize = 4;
const ENTRY_WORDS: usize = 2;
/// Entries that are kept: more than a mount makes between two times that everything is made durable.
pub const ENTRIES: usize = 1 << 20;
/// Words of memory, which are taken as entries are made.
pub const WORDS: usize = HEAD_WORDS + ENTRIES * ENTRY_WORDS;

/// Bits of an entry below the time, in nanoseconds of the system's monotonic clock.
const KIND_BITS: u32 = 2;
const CHANGED: u64 = 0;
/// Durable with all that was changed before this time; or what was lost has been told.
const SETTLED: u64 = 1;
/// A server has ended before the change was durable, and nobody has been told.
const LOST: u64 = 2;
/// A change of names or attributes: whatever inode is made durable, the core makes these durable, too.
const NAMED: u64 = 3;

/// For so long after it was found, a loss is told to each thread that makes the inode durable, in nanoseconds.
pub const TOLD_TO_EACH: u64 = 60_000_000_000;

/// The entries.
#[derive(Clone, Copy)]
pub struct Changes<'a>(&'a [AtomicU64]);

/// What the entries say.
#[derive(Default, Debug)]
pub struct Recent {
    /// Inodes with changes that may be lost.
    pub unsure: Vec<Ino>,
    /// Inodes with a loss that each thread is told of, and when it was found.
    pub lately: FxHashMap<Ino, u64>,
    settled: FxHashMap<u64, u64>,
    all_durable_before: u64,
    /// There were more changes than entries.
    pub is_incomplete: bool,
}

impl Recent {
    /// Whether what was changed at this time may be lost, as far as this inode goes.
    pub fn may_lack(&self, ino: Ino, changed: u64) -> bool {
        let durable = self.settled.get(&ino.0).copied().unwrap_or(0).max(self.all_durable_before);
        changed != 0 && changed >= durable
    }
}

impl<'a> Changes<'a> {
    /// In this memory, of [`WORDS`].
    pub fn new(words: &'a [AtomicU64]) -> Changes<'a> {
        assert_eq!(words.len(), WORDS);
        Changes(words)
    }

    fn entry(&self, number: u64) -> Option<&'a [AtomicU64]> {
        let first = HEAD_WORDS + number as usize % ENTRIES * ENTRY_WORDS;
        self.0.get(first..first + ENTRY_WORDS)
    }

    fn note(&self, ino: Ino, time: u64, kind: u64) {
        let Some([ino_there, time_there]) = self.entry(self.0[0].fetch_add(1, AcqRel)) else { return };
        let old = time_there.load(Relaxed);
        if ino_there.swap(0, AcqRel) != 0
            && matches!(old & 3, CHANGED | NAMED)
            && old >> KIND_BITS >= self.0[1].load(Relaxed)
        {
            self.0[2].store(monotonic_ns(), Relaxed);
        }
        time_there.store(time << KIND_BITS | kind, Relaxed);
        ino_there.store(ino.0, Release);
    }

    /// Names or attributes of an inode have been changed, at this time or later.
    pub fn named(&self, ino: Ino, time: u64) {
        self.note(ino, time, NAMED);
    }

    /// Data of an inode have been changed, at this time or later.
    pub fn changed(&self, ino: Ino, time: u64) {
        self.note(ino, time, CHANGED);
    }

    /// What was changed of an inode before this time is durable, or has been told to be lost.
    pub fn settled(&self, ino: Ino, time: u64) {
        self.note(ino, time, SETTLED);
    }

    /// Changes of an inode may be lost, whatever becomes durable from now on; that was found at this time.
    pub fn lost(&self, ino: Ino, found: u64) {
        self.note(ino, found, LOST);
    }

    /// How many entries there were.
    pub fn count(&self) -> u64 {
        self.0[0].load(Acquire)
    }

    /// Everything that was changed before this time is durable.
    pub fn all_settled(&self, time: u64) {
        self.0[1].fetch_max(time, AcqRel);
    }

    /// Which inodes have changes that may be lost, when the server that made the entries has ended.
    pub fn recent(&self) -> Recent {
        let all_durable_before = self.0[1].load(Acquire);
        let mut recent = Recent {
            all_durable_before,
            is_incomplete: self.0[2].load(Acquire) >= all_durable_before.max(1),
            ..Recent::default()
        };
        let (mut changed, mut named) = (FxHashMap::default(), FxHashMap::default());
        let (count, now) = (self.count(), monotonic_ns());
        for number in count.saturating_sub(ENTRIES as u64)..count {
            let Some([ino, time]) = self.entry(number) else { continue };
            let (ino, time) = (ino.load(Acquire), time.load(Relaxed));
            let (time, kind) = (time >> KIND_BITS, time & 3);
            match kind {
                _ if ino == 0 => {}
                CHANGED | NAMED if time < all_durable_before => {}
                _ => {
                    if kind == LOST && now < time.saturating_add(TOLD_TO_EACH) {
                        recent.lately.insert(Ino(ino), time);
                    }
                    let of_kind = match kind {
                        SETTLED => &mut recent.settled,
                        NAMED => &mut named,
                        _ => &mut changed,
                    };
                    let last = of_kind.entry(ino).or_insert(0);
                    *last = time.max(*last);
                }
            }
        }
        // Entries are made after what they tell of, so that the times alone say what an fsync has covered.
        changed.retain(|ino, time| recent.settled.get(ino).is_none_or(|settled| *time >= *settled));
        let names_durable_before = recent.settled.values().copied().max().unwrap_or(0);
        named.retain(|_, time| *time >= names_durable_before);
        recent.unsure = changed.into_keys().chain(named.into_keys()).map(Ino).collect();
        recent.unsure.sort_unstable();
        recent.unsure.dedup();
        recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_was_changed_is_unsure_until_it_is_settled_or_everything_is() {
        let memory = memory();
        let changes = Changes::new(&memory);
        let unsure = || changes.recent().unsure.iter().map(|ino| ino.0).collect::<Vec<_>>();
        for ino in 1..6 {
            changes.changed(Ino(ino), 10 * ino);
        }
        assert_eq!(unsure(), [1, 2, 3, 4, 5]);
        changes.settled(Ino(2), 21);
        changes.settled(Ino(3), 30);
        assert_eq!(unsure(), [1, 3, 4, 5], "an fsync that began before the change does not count");
        assert!(!changes.recent().may_lack(Ino(2), 20) && changes.recent().may_lack(Ino(2), 21));
        changes.changed(Ino(2), 20);
        assert_eq!(unsure(), [1, 3, 4, 5], "what was written before an fsync, and closed after it");
        changes.all_settled(40);
        assert_eq!(unsure(), [4, 5]);
        assert!(!changes.recent().may_lack(Ino(1), 39) && !changes.recent().may_lack(Ino(1), 0));
        changes.lost(Ino(7), monotonic_ns());
        changes.all_settled(u64::MAX >> 8);
        assert_eq!(unsure(), [7], "what is lost does not become durable");
        let found = monotonic_ns();
        changes.lost(Ino(7), found);
        changes.lost(Ino(8), found.saturating_sub(TOLD_TO_EACH));
        for ino in [7, 8] {
            changes.settled(Ino(ino), found + 1);
        }
        assert!(unsure().is_empty());
        assert_eq!(changes.recent().lately.into_iter().collect::<Vec<_>>(), [(Ino(7), found)]);
    }

    #[test]
    fn names_are_durable_with_any_inode() {
        let memory = memory();
        let changes = Changes::new(&memory);
        changes.named(Ino(1), 10);
        changes.named(Ino(2), 30);
        changes.changed(Ino(3), 10);
        changes.settled(Ino(4), 20);
        assert_eq!(changes.recent().unsure, [Ino(2), Ino(3)]);
        changes.all_settled(30);
        assert_eq!(changes.recent().unsure, [Ino(2)]);
    }

    #[test]
    fn more_changes_than_there_are_entries_are_told() {
        let memory = memory();
        let changes = Changes::new(&memory);
        for number in 0..ENTRIES as u64 + 5 {
            changes.changed(Ino(number + 1), number + 100);
            if number == 50 {
                changes.all_settled(200);
            }
        }
        assert!(!changes.recent().is_incomplete, "those that were durable make room");
        for number in 0..200 {
            changes.changed(Ino(7), 10_000_000 + number);
        }
        assert!(changes.recent().is_incomplete);
        changes.all_settled(u64::MAX >> 8);
        assert!(!changes.recent().is_incomplete);
    }
}
