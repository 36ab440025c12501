//! Locks that programs hold by way of a mount, in memory that outlives the server: the next one takes them again before it answers
//! anybody.
//!
//! ```text
//!  6 words for each lock: open file as the kernel numbers it, or 0; owner; first byte; last byte; kind, flags and process;
//!                         number of the entry
//! ```
//!
//! An entry is a request that was granted. Taken in the order of their numbers, the entries of an owner lead to what it holds: a later
//! one counts for its range, and replaces those that lie within.

use crate::abi::{LK_FLOCK, LockIn};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::*};
use weft_core::Ino;

/// Locks that are kept.
const LOCKS_MAX: usize = 1 << 16;
const LOCK_WORDS: usize = 6;
/// Words of memory, which are taken as locks are.
pub const WORDS: usize = LOCKS_MAX * LOCK_WORDS;

const KIND_BITS: u32 = 8;
const FLAG_BITS: u32 = 8;

/// Which entries there are.
#[derive(Default)]
pub struct Index {
    of_inode: FxHashMap<Ino, Vec<u32>>,
    free: Vec<u32>,
    /// All from here on were never used.
    next: u32,
    /// The number of the next entry.
    number: u64,
}

/// The entries.
pub struct KeptLocks<'a> {
    words: &'a [AtomicU64],
    /// `None`: nothing is kept.
    index: Option<&'a mut Index>,
}

/// Whose a lock is: whether it is one of the whole file, which is the open file's, and whose.
fn owner_of(lock: &LockIn) -> (bool, u64) {
    let is_whole = lock.flags & LK_FLOCK != 0;
    (is_whole, if is_whole { lock.handle } else { lock.owner })
}

fn is_unlock(lock: &LockIn) -> bool {
    lock.kind as i32 == libc::F_UNLCK
}

impl<'a> KeptLocks<'a> {
    /// In this memory, of [`WORDS`].
    pub fn new(words: &'a [AtomicU64], index: Option<&'a mut Index>) -> KeptLocks<'a> {
        assert_eq!(words.len(), WORDS);
        KeptLocks { words, index }
    }

    fn entry(&self, place: u32) -> Option<&'a [AtomicU64; LOCK_WORDS]> {
        self.words.get(place as usize * LOCK_WORDS..)?.first_chunk()
    }

    fn known(&self, ino: Ino) -> Vec<u32> {
        self.index.as_ref().and_then(|index| index.of_inode.get(&ino)).cloned().unwrap_or_default()
    }

    fn read(&self, place: u32) -> Option<(u64, LockIn)> {
        let [handle, owner, start, end, rest, number] = self.entry(place)?;
        let (handle, rest) = (handle.load(Acquire), rest.load(Relaxed));
        let lock = LockIn {
            handle,
            owner: owner.load(Relaxed),
            start: start.load(Relaxed),
            end: end.load(Relaxed),
            kind: rest as u32 & ((1 << KIND_BITS) - 1),
            pid: (rest >> 32) as u32,
            flags: rest as u32 >> KIND_BITS & ((1 << FLAG_BITS) - 1),
            pad: 0,
        };
        (handle != 0).then(|| (number.load(Relaxed), lock))
    }

    /// A request was granted; `lock` has the number that the kernel knows the open file by. False when there is no room.
    pub fn granted(&mut self, ino: Ino, lock: &LockIn) -> bool {
        let (mut replaced, mut cuts) = (Vec::new(), false);
        let mut of_owner = Vec::new();
        for place in self.known(ino) {
            let Some((number, old)) = self.read(place).filter(|(_, old)| owner_of(old) == owner_of(lock))
            else {
                continue;
            };
            of_owner.push((number, old, place));
            if lock.start <= old.start && old.end <= lock.end {
                replaced.push(place);
            } else {
                cuts |= lock.start <= old.end && old.start <= lock.end;
            }
        }
        if is_unlock(lock) && cuts {
            of_owner.sort_unstable_by_key(|(number, ..)| *number);
            let requests = of_owner.iter().map(|(_, old, _)| old).chain([lock]);
            if held(requests).is_empty() {
                replaced = of_owner.iter().map(|(.., place)| *place).collect();
                cuts = false;
            }
        }
        // First: with the old ones, it says the same.
        let is_kept = is_unlock(lock) && !cuts || self.add(ino, lock);
        if is_kept {
            self.remove(ino, &replaced);
        }
        is_kept
    }

    fn add(&mut self, ino: Ino, lock: &LockIn) -> bool {
        let Some(index) = &mut self.index else { return true };
        let place = match index.free.pop() {
            Some(place) => place,
            None if (index.next as usize) < LOCKS_MAX => {
                index.next += 1;
                index.next - 1
            }
            None => return false,
        };
        index.of_inode.entry(ino).or_default().push(place);
        index.number += 1;
        let number_now = index.number;
        let Some([handle, owner, start, end, rest, number]) = self.entry(place) else { return false };
        owner.store(lock.owner, Relaxed);
        start.store(lock.start, Relaxed);
        end.store(lock.end, Relaxed);
        let low = lock.kind | lock.flags << KIND_BITS;
        rest.store(u64::from(lock.pid) << 32 | u64::from(low), Relaxed);
        number.store(number_now, Relaxed);
        handle.store(lock.handle, Release);
        true
    }

    fn remove(&mut self, ino: Ino, places: &[u32]) {
        for place in places {
            if let Some([handle, ..]) = self.entry(*place) {
                handle.store(0, Release);
            }
        }
        let Some(index) = &mut self.index else { return };
        index.free.extend(places);
        if let Some(known) = index.of_inode.get_mut(&ino) {
            known.retain(|place| !places.contains(place));
            if known.is_empty() {
                index.of_inode.remove(&ino);
            }
        }
    }

    fn remove_where(&mut self, ino: Ino, is: impl Fn(&LockIn) -> bool) {
        let is_gone = |place: &u32| self.read(*place).is_none_or(|(_, lock)| is(&lock));
        let gone: Vec<u32> = self.known(ino).into_iter().filter(is_gone).collect();
        self.remove(ino, &gone);
    }

    /// The open file has no lock of the whole file any more.
    pub fn unlocked(&mut self, ino: Ino, handle: u64) {
        self.remove_where(ino, |lock| lock.flags & LK_FLOCK != 0 && lock.handle == handle);
    }

    /// An owner of record locks has none on this inode any more.
    pub fn closed(&mut self, ino: Ino, owner: u64) {
        self.remove_where(ino, |lock| lock.flags & LK_FLOCK == 0 && lock.owner == owner);
    }

    /// An open file is gone, with what it had taken.
    pub fn released(&mut self, ino: Ino, handle: u64) {
        self.remove_where(ino, |lock| lock.handle == handle);
    }

    /// After a server has ended: what was held. `ino_of` says of which inode an open file is; locks of others are given up.
    pub fn restore(&mut self, ino_of: impl Fn(u64) -> Option<Ino>) -> Vec<LockIn> {
        let mut index = Index::default();
        let mut all: Vec<(u64, Ino, LockIn)> = Vec::new();
        for place in 0..LOCKS_MAX as u32 {
            let number = self.entry(place).map_or(0, |entry| entry[LOCK_WORDS - 1].load(Acquire));
            // Places are used from the first on.
            if number == 0 {
                break;
            }
            (index.next, index.number) = (place + 1, index.number.max(number));
            match self.read(place).and_then(|(number, lock)| Some((ino_of(lock.handle)?, number, lock))) {
                Some((ino, number, lock)) => {
                    index.of_inode.entry(ino).or_default().push(place);
                    all.push((number, ino, lock));
                }
                None => {
                    if let Some([handle, ..]) = self.entry(place) {
                        handle.store(0, Release);
                    }
                    index.free.push(place);
                }
            }
        }
        if let Some(there) = &mut self.index {
            **there = index;
        }
        all.sort_unstable_by_key(|(number, ..)| *number);
        let mut owners: BTreeMap<(Ino, (bool, u64)), Vec<LockIn>> = BTreeMap::new();
        for (_, ino, lock) in all {
            owners.entry((ino, owner_of(&lock))).or_default().push(lock);
        }
        // What each holds in the end: on the way, the requests of two may have been in each other's way.
        owners.values().flat_map(held).collect()
    }
}

/// What an owner holds after these requests.
fn held<'a>(requests: impl IntoIterator<Item = &'a LockIn>) -> Vec<LockIn> {
    let mut held: Vec<LockIn> = Vec::new();
    for request in requests {
        let mut left = Vec::new();
        for old in held {
            if request.end < old.start || old.end < request.start {
                left.push(old);
                continue;
            }
            if old.start < request.start {
                left.push(LockIn { end: request.start - 1, ..old });
            }
            if request.end < old.end {
                left.push(LockIn { start: request.end + 1, ..old });
            }
        }
        if !is_unlock(request) {
            left.push(*request);
        }
        held = left;
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    const LOCK: LockIn = LockIn {
        handle: 1 << 32 | 7,
        owner: 10,
        start: 0,
        end: 99,
        kind: libc::F_WRLCK as u32,
        pid: 4711,
        flags: 0,
        pad: 0,
    };

    /// Open files have the numbers of their inodes.
    fn ino_of(handle: u64) -> Option<Ino> {
        Some(Ino(handle & 0xff))
    }

    /// What a server finds that comes after another one: start, end and kind of each lock.
    fn found(words: &[AtomicU64]) -> Vec<(u64, u64, i32)> {
        let mut index = Index::default();
        let locks = KeptLocks::new(words, Some(&mut index)).restore(ino_of);
        locks.iter().map(|lock| (lock.start, lock.end, lock.kind as i32)).collect()
    }

    #[test]
    fn requests_lead_to_what_is_held_and_those_that_are_replaced_go() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut index = Index::default();
        let mut locks = KeptLocks::new(&words, Some(&mut index));
        let (read, write, none) = (libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK);
        let of = |start, end, kind: i32| LockIn { start, end, kind: kind as u32, ..LOCK };
        let on = |ino: u64, lock: LockIn| LockIn { handle: 1 << 32 | ino, ..lock };
        let (one, two) = (Ino(1), Ino(2));
        assert!(locks.granted(one, &on(1, LOCK)));
        assert!(locks.granted(one, &on(1, of(10, 19, none))));
        assert!(locks.granted(one, &LockIn { owner: 11, ..on(1, of(10, 19, read)) }));
        assert!(locks.granted(two, &on(2, of(0, 5, read))));
        assert_eq!(found(&words), [(0, 9, write), (20, 99, write), (10, 19, read), (0, 5, read)]);
        let whole = KeptLocks::new(&words, Some(&mut Index::default())).restore(ino_of)[3];
        assert_eq!(whole.as_bytes(), on(2, of(0, 5, read)).as_bytes());
        // What an unlock leaves nothing of needs no entry.
        assert!(locks.granted(one, &on(1, of(0, 200, none))));
        assert_eq!(found(&words), [(10, 19, read), (0, 5, read)]);
        locks.closed(one, 10);
        locks.closed(one, 11);
        assert_eq!(found(&words), [(0, 5, read)]);
        // Nor does one of parts.
        assert!(locks.granted(one, &on(1, of(0, 9, write))));
        assert!(locks.granted(one, &on(1, of(0, 4, none))) && locks.granted(one, &on(1, of(5, 9, none))));
        assert_eq!(index_len(&locks), 1);
        let whole = LockIn { flags: LK_FLOCK, owner: 77, end: i64::MAX as u64, ..on(2, LOCK) };
        assert!(locks.granted(two, &whole));
        assert!(locks.granted(two, &LockIn { kind: read as u32, ..whole }));
        locks.closed(two, 77);
        assert_eq!(found(&words), [(0, 5, read), (0, i64::MAX as u64, read)]);
        locks.unlocked(two, whole.handle);
        assert_eq!(
            found(&words),
            [(0, 5, read)],
            "another lock of the whole file was asked for, and refused"
        );
        locks.released(two, whole.handle);
        assert!(found(&words).is_empty() && index.of_inode.is_empty());
    }

    fn index_len(locks: &KeptLocks<'_>) -> usize {
        locks.index.as_ref().unwrap().of_inode.values().map(Vec::len).sum()
    }

    #[test]
    fn what_two_owners_hold_in_the_end_is_found_though_their_requests_were_in_each_others_way() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut index = Index::default();
        let mut locks = KeptLocks::new(&words, Some(&mut index));
        let (write, none) = (libc::F_WRLCK, libc::F_UNLCK);
        for (owner, start, end, kind) in [
            (10, 0, 99, write),
            (10, 50, 99, none),
            (11, 60, 200, write),
            (11, 60, 99, none),
            (10, 50, 99, write),
        ] {
            let lock = LockIn { owner, start, end, kind: kind as u32, handle: 1 << 32 | 1, ..LOCK };
            assert!(locks.granted(Ino(1), &lock));
        }
        assert_eq!(found(&words), [(0, 49, write), (50, 99, write), (100, 200, write)]);
    }

    #[test]
    fn a_server_after_the_next_finds_the_same_and_there_is_an_end_to_what_is_kept() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut index = Index::default();
        let mut locks = KeptLocks::new(&words, Some(&mut index));
        for number in 0..LOCKS_MAX as u64 {
            assert!(locks.granted(Ino(number), &LockIn { owner: number, ..LOCK }));
        }
        assert!(!locks.granted(Ino(0), &LockIn { owner: u64::MAX, ..LOCK }));
        locks.closed(Ino(5), 5);
        assert!(locks.granted(Ino(0), &LockIn { owner: u64::MAX, ..LOCK }));
        let mut next = Index::default();
        let mut locks = KeptLocks::new(&words, Some(&mut next));
        let restored = locks.restore(|_| Some(Ino(3)));
        assert_eq!((restored.len(), restored.last().unwrap().owner), (LOCKS_MAX, u64::MAX));
        assert!(!locks.granted(Ino(0), &LockIn { owner: 1 << 40, ..LOCK }));
        assert!(locks.restore(|_| None).is_empty(), "of files that are not open");
        assert!(locks.granted(Ino(0), &LOCK));
        assert_eq!(found(&words).len(), 1);
    }
}
