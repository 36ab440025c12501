//! Entries of a directory: by name for lookups, by cookie for listing.
//!
//! A cookie is given out once and never again, so one that a reader holds stays valid while entries come and go.

use std::collections::BTreeMap;
use std::ops::Bound;
use weft_core::Ino;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Directory {
    /// The directory above; the root is its own.
    pub(super) parent: Ino,
    by_name: BTreeMap<Vec<u8>, (u64, Ino)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    pub(super) next_cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: Ino) -> Directory {
        Directory { parent, by_name: BTreeMap::new(), by_cookie: BTreeMap::new(), next_cookie: 1 }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Ino> {
        self.by_name.get(name).map(|(_, ino)| *ino)
    }

    pub(super) fn len(&self) -> u64 {
        self.by_name.len() as u64
    }

    /// Lets `name` lead to `ino`. A name that is replaced keeps its cookie: a reader sees it once.
    pub(super) fn set(&mut self, name: &[u8], ino: Ino) {
        if let Some((_, old)) = self.by_name.get_mut(name) {
            *old = ino;
            return;
        }
        self.by_name.insert(name.to_vec(), (self.next_cookie, ino));
        self.by_cookie.insert(self.next_cookie, name.to_vec());
        self.next_cookie += 1;
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some((cookie, _)) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }

    /// Entries after a cookie: cookie, name, inode.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], Ino)> {
        let listed = self.by_cookie.range((Bound::Excluded(cookie), Bound::Unbounded));
        listed.filter_map(|(cookie, name)| Some((*cookie, name.as_slice(), self.get(name)?)))
    }
}
