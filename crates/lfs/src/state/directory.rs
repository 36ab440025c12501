//! A directory: names, and the order in which `readdir` gives them.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::Ino;

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The inode named.
    pub ino: Ino,
    /// Its place in `readdir`.
    pub cookie: u64,
}

/// The entries of a directory. A cookie is never used twice, so that a listing that goes on after entries came and
/// went skips and repeats nothing that stayed.
#[derive(Debug)]
pub struct Directory {
    /// The directory that holds this one.
    pub parent: Ino,
    /// Cookie of the next entry.
    pub next_cookie: u64,
    by_name: FxHashMap<Arc<[u8]>, Entry>,
    by_cookie: BTreeMap<u64, Arc<[u8]>>,
    /// Directories among the entries.
    pub subdirectories: u32,
}

impl Directory {
    /// An empty directory.
    pub fn new(parent: Ino) -> Directory {
        Directory {
            parent,
            next_cookie: 1,
            by_name: FxHashMap::default(),
            by_cookie: BTreeMap::new(),
            subdirectories: 0,
        }
    }

    /// The entry with this name.
    pub fn get(&self, name: &[u8]) -> Option<Entry> {
        self.by_name.get(name).copied()
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds an entry at the end. False when the name is taken.
    pub fn insert(&mut self, name: &[u8], ino: Ino) -> bool {
        let cookie = self.next_cookie;
        self.insert_at(name, ino, cookie)
    }

    /// Adds an entry with a given cookie. False when the name or the cookie is taken.
    pub fn insert_at(&mut self, name: &[u8], ino: Ino, cookie: u64) -> bool {
        if self.by_name.contains_key(name)
            || self.by_cookie.contains_key(&cookie)
            || cookie == 0
            || cookie >= 1 << 62
        {
            return false;
        }
        let name: Arc<[u8]> = name.into();
        self.by_cookie.insert(cookie, name.clone());
        self.by_name.insert(name, Entry { ino, cookie });
        self.next_cookie = self.next_cookie.max(cookie + 1);
        true
    }

    /// Removes an entry.
    pub fn remove(&mut self, name: &[u8]) -> Option<Entry> {
        let entry = self.by_name.remove(name)?;
        self.by_cookie.remove(&entry.cookie);
        Some(entry)
    }

    /// Makes an existing name another inode's.
    pub fn replace(&mut self, name: &[u8], ino: Ino) -> Option<Ino> {
        let entry = self.by_name.get_mut(name)?;
        Some(std::mem::replace(&mut entry.ino, ino))
    }

    /// The entries after a cookie, in order: cookie, name, inode.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], Ino)> {
        self.by_cookie.range(cookie.saturating_add(1)..).filter_map(|(cookie, name)| {
            let entry = self.by_name.get(name)?;
            Some((*cookie, &name[..], entry.ino))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
