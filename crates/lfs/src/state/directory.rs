//! A directory: names, and the order in which `readdir` gives them.
//!
//! The entries lie one after the other in one piece of memory, in the order of their cookies; an index has their places by the hashes of
//! their names. An entry takes its name and 17 bytes, rounded up to 8, and about 8 bytes of the index: directories of millions are
//! usual.

use hashbrown::HashTable;
use rustc_hash::FxHasher;
use std::hash::Hasher;
use weft_core::Ino;

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The inode named.
    pub ino: Ino,
    /// Its place in `readdir`.
    pub cookie: u64,
}

/// Entries begin at multiples of it, so that the index has places of 4 bytes.
const UNIT: usize = 8;
/// What stands before a name: cookie, inode, length.
const HEAD_BYTES: usize = 17;
/// In a stored cookie: the entry has been removed.
const REMOVED: u64 = 1 << 63;
/// Cookies are below.
const COOKIE_END: u64 = 1 << 62;
/// A mark stands before each stretch of so many bytes.
const STRETCH_BYTES: usize = 4096;

/// The entries of a directory. A cookie is never used twice, so that a listing that goes on after entries came and
/// went skips and repeats nothing that stayed.
#[derive(Debug)]
pub struct Directory {
    /// The directory that holds this one.
    pub parent: Ino,
    /// Cookie of the next entry.
    pub next_cookie: u64,
    /// Directories among the entries.
    pub subdirectories: u32,
    /// The entries; each begins at a multiple of [`UNIT`].
    entries: Vec<u8>,
    /// The place of each entry, in units.
    index: HashTable<u32>,
    /// Cookie and place of the first entry of each stretch.
    marks: Vec<(u64, u32)>,
    /// Cookie of the last entry that was added.
    last: u64,
    /// Bytes of entries that have been removed.
    removed: usize,
}

fn hash_of(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}

/// An entry where it lies.
struct Stored<'a> {
    cookie: u64,
    ino: Ino,
    name: &'a [u8],
}

impl Stored<'_> {
    fn bytes(&self) -> usize {
        (HEAD_BYTES + self.name.len()).next_multiple_of(UNIT)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The entry at a place.
fn stored(entries: &[u8], place: u32) -> Stored<'_> {
    let bytes = &entries[place as usize * UNIT..];
    let name = &bytes[HEAD_BYTES..HEAD_BYTES + usize::from(bytes[16])];
    Stored { cookie: number(&bytes[..8]), ino: Ino(number(&bytes[8..16])), name }
}

impl Directory {
    /// An empty directory.
    pub fn new(parent: Ino) -> Directory {
        Directory {
            parent,
            next_cookie: 1,
            subdirectories: 0,
            entries: Vec::new(),
            index: HashTable::new(),
            marks: Vec::new(),
            last: 0,
            removed: 0,
        }
    }

    fn place(&self, name: &[u8]) -> Option<u32> {
        self.index.find(hash_of(name), |place| stored(&self.entries, *place).name == name).copied()
    }

    /// The entry with this name.
    pub fn get(&self, name: &[u8]) -> Option<Entry> {
        let found = stored(&self.entries, self.place(name)?);
        Some(Entry { ino: found.ino, cookie: found.cookie })
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Adds an entry at the end. False when the name is taken.
    pub fn insert(&mut self, name: &[u8], ino: Ino) -> bool {
        let cookie = self.next_cookie.max(self.last + 1);
        self.insert_at(name, ino, cookie)
    }

    /// Adds an entry with a given cookie, higher than those before. False when the name is taken, and for a cookie or a name that
    /// no writer makes.
    pub fn insert_at(&mut self, name: &[u8], ino: Ino, cookie: u64) -> bool {
        let Ok(len) = u8::try_from(name.len()) else { return false };
        let Ok(place) = u32::try_from(self.entries.len() / UNIT) else { return false };
        if cookie <= self.last || cookie >= COOKIE_END || self.place(name).is_some() {
            return false;
        }
        let is_marked =
            self.marks.last().is_some_and(|(_, mark)| ((place - mark) as usize) * UNIT < STRETCH_BYTES);
        if !is_marked {
            self.marks.push((cookie, place));
        }
        self.entries.extend_from_slice(&cookie.to_le_bytes());
        self.entries.extend_from_slice(&ino.0.to_le_bytes());
        self.entries.push(len);
        self.entries.extend_from_slice(name);
        self.entries.resize(self.entries.len().next_multiple_of(UNIT), 0);
        let entries = &self.entries;
        self.index.insert_unique(hash_of(name), place, |place| hash_of(stored(entries, *place).name));
        self.last = cookie;
        self.next_cookie = self.next_cookie.max(cookie + 1);
        true
    }

    /// Takes over the entries of another directory, with cookies higher than those here. False when one of them does not fit.
    pub fn adopt(&mut self, other: Directory) -> bool {
        if self.last > 0 {
            return other.after(0).all(|(cookie, name, ino)| self.insert_at(name, ino, cookie));
        }
        let Directory { parent, next_cookie, subdirectories, .. } = *self;
        *self =
            Directory { parent, next_cookie: next_cookie.max(other.next_cookie), subdirectories, ..other };
        true
    }

    /// Removes an entry.
    pub fn remove(&mut self, name: &[u8]) -> Option<Entry> {
        let Directory { index, entries, .. } = self;
        let found = index.find_entry(hash_of(name), |place| stored(entries, *place).name == name).ok()?;
        let (place, _) = found.remove();
        let gone = stored(&self.entries, place);
        let entry = Entry { ino: gone.ino, cookie: gone.cookie };
        self.removed += gone.bytes();
        let at = place as usize * UNIT;
        self.entries[at..at + 8].copy_from_slice(&(entry.cookie | REMOVED).to_le_bytes());
        // Each entry that is left is moved once for each that went, at most.
        if self.removed > STRETCH_BYTES && self.removed > self.entries.len() / 2 {
            self.tidy();
        }
        Some(entry)
    }

    /// Moves the entries together.
    fn tidy(&mut self) {
        let mut left = Directory { next_cookie: self.next_cookie, ..Directory::new(self.parent) };
        left.subdirectories = self.subdirectories;
        left.entries.reserve_exact(self.entries.len() - self.removed);
        left.index.reserve(self.len(), |_| 0);
        for (cookie, name, ino) in self.after(0) {
            let kept = left.insert_at(name, ino, cookie);
            debug_assert!(kept, "an entry that was there");
        }
        debug_assert_eq!(left.len(), self.len(), "nothing is lost");
        *self = Directory { last: self.last, ..left };
    }

    /// Makes an existing name another inode's; its cookie stays.
    pub fn replace(&mut self, name: &[u8], ino: Ino) -> Option<Ino> {
        let place = self.place(name)?;
        let before = stored(&self.entries, place).ino;
        let at = place as usize * UNIT + 8;
        self.entries[at..at + 8].copy_from_slice(&ino.0.to_le_bytes());
        Some(before)
    }

    /// The entries after a cookie, in order: cookie, name, inode.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], Ino)> {
        let mark = self.marks.partition_point(|(first, _)| *first <= cookie).saturating_sub(1);
        let mut at = self.marks.get(mark).map_or(self.entries.len(), |(_, place)| *place as usize * UNIT);
        let all = std::iter::from_fn(move || {
            let next = (at < self.entries.len()).then(|| stored(&self.entries, (at / UNIT) as u32))?;
            at += next.bytes();
            Some(next)
        });
        let stays = move |entry: &Stored<'_>| entry.cookie & REMOVED == 0 && entry.cookie > cookie;
        all.filter(stays).map(|entry| (entry.cookie, entry.name, entry.ino))
    }
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_listing_goes_on_after_the_entry_it_stopped_at_was_removed() {
        let mut d = Directory::new(Ino(1));
        for (i, name) in [b"a", b"b", b"c"].iter().enumerate() {
            assert!(d.insert(*name, Ino(10 + i as u64)));
        }
        assert!(!d.insert(b"a", Ino(99)));
        let stop = d.get(b"b").unwrap().cookie;
        d.remove(b"b");
        d.insert(b"d", Ino(20));
        let rest: Vec<_> = d.after(stop).map(|(_, name, ino)| (name.to_vec(), ino)).collect();
        assert_eq!(rest, [(b"c".to_vec(), Ino(12)), (b"d".to_vec(), Ino(20))]);
    }

    #[test]
    fn a_directory_that_names_come_to_and_leave_for_long_does_not_grow() {
        let mut d = Directory::new(Ino(1));
        for i in 0..100_000u64 {
            assert!(d.insert(format!("name-{i}").as_bytes(), Ino(i)));
            if i >= 10 {
                assert!(d.remove(format!("name-{}", i - 10).as_bytes()).is_some());
            }
        }
        assert_eq!((d.len(), d.next_cookie), (10, 100_001));
        assert!(d.entries.capacity() < 64 << 10 && d.marks.len() < 20);
    }

    #[test]
    fn cookies_that_no_writer_makes_are_refused() {
        let mut d = Directory::new(Ino(1));
        assert!(d.insert_at(b"a", Ino(2), 7));
        for cookie in [0, 6, 7, COOKIE_END, u64::MAX] {
            assert!(!d.insert_at(b"b", Ino(2), cookie), "{cookie}");
        }
        assert!(!d.insert_at(&[b'n'; 256], Ino(2), 8));
        assert!(d.insert_at(&[b'n'; 255], Ino(2), 8));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16, u64),
        Remove(u16),
        Replace(u16, u64),
        List(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0u16..400, 1u64..99).prop_map(|(n, i)| Step::Insert(n, i)),
            3 => (0u16..400).prop_map(Step::Remove),
            1 => (0u16..400, 1u64..99).prop_map(|(n, i)| Step::Replace(n, i)),
            1 => (0u64..3000).prop_map(Step::List),
        ];
        proptest::collection::vec(step, 1..3000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_directory_is_a_map_of_names_and_a_list_by_cookies(steps in steps()) {
            let mut d = Directory::new(Ino(1));
            let mut model: BTreeMap<u64, (Vec<u8>, Ino)> = BTreeMap::new();
            let mut next = 1;
            let name = |n: u16| format!("{n}").repeat(1 + n as usize % 50).into_bytes();
            for step in steps {
                match step {
                    Step::Insert(n, ino) => {
                        let free = model.values().all(|(other, _)| *other != name(n));
                        prop_assert_eq!(d.insert(&name(n), Ino(ino)), free);
                        if free {
                            model.insert(next, (name(n), Ino(ino)));
                            next += 1;
                        }
                    }
                    Step::Remove(n) => {
                        let there = model.iter().find(|(_, (other, _))| *other == name(n));
                        let there = there.map(|(cookie, (_, ino))| Entry { ino: *ino, cookie: *cookie });
                        prop_assert_eq!(d.remove(&name(n)), there);
                        there.map(|entry| model.remove(&entry.cookie));
                    }
                    Step::Replace(n, ino) => {
                        let there = model.values_mut().find(|(other, _)| *other == name(n));
                        let before = there.map(|(_, there)| std::mem::replace(there, Ino(ino)));
                        prop_assert_eq!(d.replace(&name(n), Ino(ino)), before);
                    }
                    Step::List(cookie) => {
                        let listed: Vec<_> = d.after(cookie).map(|(at, name, ino)| (at, (name.to_vec(), ino))).collect();
                        let wanted: Vec<_> = model.range(cookie + 1..).map(|(at, entry)| (*at, entry.clone())).collect();
                        prop_assert_eq!(listed, wanted);
                    }
                }
                prop_assert_eq!((d.len(), d.next_cookie), (model.len(), next));
            }
        }
    }
}
