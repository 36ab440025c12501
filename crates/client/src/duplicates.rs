//! Descriptors that lead to an open file beside the first one, of which the server does not know: as long as one is there, a
//! `dup` and a `close` change a count of the process's own.
//!
//! ```text
//!  word   | generation, 32 bits | slot, 24 bits | further descriptors, 8 bits |      0: the place is free
//! ```
//!
//! A forked child begins with the same counts, as it does with the same references at the server; an executed program begins
//! without any, and tells the server how many it has.

use crate::client::Client;
use crate::proto::{FileRef, Op};
use crate::sys::{self, Errno};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Places, each of which counts the descriptors of a file; one page.
const PLACES: usize = 512;
/// A file is counted in one of so many places behind each other.
const PROBES: usize = 8;
const COUNT_MAX: u64 = 0xff;

pub(crate) type Duplicates = [AtomicU64; PLACES];

fn word_of(file: FileRef, count: u64) -> u64 {
    debug_assert!(file.slot() < 1 << 24 && count <= COUNT_MAX, "no word of a duplicate");
    u64::from(file.generation()) << 32 | u64::from(file.slot()) << 8 | count
}

impl Client {
    /// One more descriptor leads to an open file. It is given back by [`close`](Self::close).
    pub fn duplicate(&self, file: FileRef) -> Result<(), Errno> {
        let is_open = self.leases().is_some_and(|leases| leases.open_file(file).is_ok());
        if is_open && self.count_here(file) { Ok(()) } else { self.add_ref(file) }
    }

    fn count_here(&self, file: FileRef) -> bool {
        let Some(all) = self.duplicates() else { return false };
        let counted = |place: &AtomicU64| {
            let seen = place.load(Relaxed);
            let count = if seen == 0 { 0 } else { seen & COUNT_MAX };
            let is_its = seen == 0 || seen & !COUNT_MAX == word_of(file, 0);
            is_its
                && count < COUNT_MAX
                && place.compare_exchange(seen, word_of(file, count + 1), AcqRel, Relaxed).is_ok()
        };
        places(all, file).any(counted)
    }

    /// Gives back a descriptor that the server does not know of; false when there is none.
    pub(crate) fn drop_duplicate(&self, file: FileRef) -> bool {
        let all = self.duplicates.load(Acquire);
        if all.is_null() {
            return false;
        }
        let fewer = |seen: u64| {
            let left = (seen & COUNT_MAX).saturating_sub(1);
            (seen & !COUNT_MAX == word_of(file, 0) && seen & COUNT_MAX != 0)
                .then(|| if left == 0 { 0 } else { word_of(file, left) })
        };
        // SAFETY: mapped as long as the client, see `duplicates`.
        places(unsafe { &*all }, file).any(|place| place.fetch_update(AcqRel, Relaxed, fewer).is_ok())
    }

    /// Closes a descriptor that the server does not know of, if there is one: the result is that of the close.
    pub(crate) fn close_duplicate(&self, file: FileRef) -> Option<Result<(), Errno>> {
        if !self.drop_duplicate(file) {
            return None;
        }
        let attended =
            self.leases().and_then(|leases| Some(leases.open_file(file).ok()?.1.attended.load(SeqCst)));
        if attended == Some(0) {
            return Some(Ok(()));
        }
        // Whatever descriptor is closed, the process's locks on the file go.
        Some(self.add_ref(file).and_then(|()| self.call(Op::Close, &[file.0])?.run().map(drop)))
    }

    /// Whether there are descriptors that the server does not know of.
    pub fn has_duplicates(&self) -> bool {
        let all = self.duplicates.load(Acquire);
        // SAFETY: mapped as long as the client, see `duplicates`.
        !all.is_null() && unsafe { &*all }.iter().any(|place| place.load(Relaxed) != 0)
    }

    /// Before the process becomes another program: the server counts all descriptors, of which the execution closes some.
    pub fn tell_duplicates(&self) -> Result<(), Errno> {
        let all = self.duplicates.load(Acquire);
        if all.is_null() {
            return Ok(());
        }
        // SAFETY: mapped as long as the client, see `duplicates`.
        for place in unsafe { &*all } {
            let word = place.swap(0, AcqRel);
            let file = FileRef::new((word >> 8) as u32 & 0xff_ffff, (word >> 32) as u32);
            for _ in 0..word & COUNT_MAX {
                self.add_ref(file)?;
            }
        }
        Ok(())
    }

    fn duplicates(&self) -> Option<&Duplicates> {
        let mut all = self.duplicates.load(Acquire);
        if all.is_null() {
            let fresh = sys::map_anonymous(size_of::<Duplicates>()).ok()?.cast();
            match self.duplicates.compare_exchange(all, fresh, AcqRel, Acquire) {
                Ok(_) => all = fresh,
                Err(theirs) => {
                    // SAFETY: just mapped, and nobody else's.
                    unsafe { sys::unmap(fresh.cast(), size_of::<Duplicates>()) };
                    all = theirs;
                }
            }
        }
        // SAFETY: mapped as long as the client; all-zero memory is valid.
        Some(unsafe { &*all })
    }
}

fn places(all: &Duplicates, file: FileRef) -> impl Iterator<Item = &AtomicU64> {
    (0..PROBES).filter_map(move |probe| all.get((file.slot() as usize + probe) % PLACES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::Rig;

    #[test]
    fn descriptors_of_a_file_are_counted_up_and_down() {
        let rig = Rig::new();
        let client = rig.client;
        let file = |slot, generation| FileRef::new(slot, generation);
        assert!(!client.drop_duplicate(file(3, 7)));
        assert!((0..300).all(|_| client.count_here(file(3, 7))), "more than a word counts");
        assert!(client.count_here(file(3, 8)) && client.count_here(file(3 + PLACES as u32, 7)));
        assert!((0..300).all(|_| client.drop_duplicate(file(3, 7))));
        assert!(!client.drop_duplicate(file(3, 7)) && !client.drop_duplicate(file(4, 7)));
        assert!(client.drop_duplicate(file(3, 8)) && client.drop_duplicate(file(3 + PLACES as u32, 7)));
        // The places of a slot are taken by others: the server counts.
        assert!((0..PROBES as u32).all(|generation| client.count_here(file(9, generation))));
        assert!(!client.count_here(file(9, 99)) && !client.drop_duplicate(file(9, 99)));
    }
}
