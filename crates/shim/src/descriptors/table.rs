//! The descriptor table: which descriptors lead to weft files.
//!
//! One atomic word per descriptor number, so that a call on any other file costs one load. A word holds the file's
//! [`FileRef`] plus one; the reference carries the generation of the server's open-file slot, so that a word read just
//! before another thread closed the descriptor leads to `EBADF` and never to another file.
//!
//! Ordering: an entry is stored (release) after the placeholder descriptor exists and removed (acquire-release) before
//! the placeholder is closed, so that nobody can be given the number by the kernel while an entry stands.

use libc::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use weft_client::FileRef;

/// Descriptor numbers that can lead to weft files.
pub const DESCRIPTORS_MAX: usize = 1 << 16;

const NONE: u64 = 0;
/// Entry of the connection's own descriptors, which the program must neither use nor close. Whoever asks the server
/// about it gets `EBADF`, as no slot has this number.
pub const OWN: FileRef = FileRef(u64::MAX - 1);
/// Entry of a placeholder whose file is lost to this process: closing it works, all else is `EBADF`.
pub const LOST: FileRef = FileRef(u64::MAX - 2);

static ENTRIES: [AtomicU64; DESCRIPTORS_MAX] = [const { AtomicU64::new(NONE) }; DESCRIPTORS_MAX];

/// Entries from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn decode(word: u64) -> Option<FileRef> {
    if word == NONE { None } else { Some(FileRef(word - 1)) }
}

/// The weft file behind a descriptor.
#[inline(always)]
pub fn get(fd: c_int) -> Option<FileRef> {
    let word = ENTRIES.get(fd as u32 as usize)?.load(Acquire);
    decode(word)
}

/// Whether a descriptor leads to a weft file (or is not the program's to use).
#[inline(always)]
pub fn is_weft(fd: c_int) -> bool {
    get(fd).is_some()
}

/// Enters a file; returns the one that was there. `None` as the new file empties the entry.
pub fn swap(fd: c_int, file: Option<FileRef>) -> Option<FileRef> {
    let word = file.map_or(NONE, |file| file.0.wrapping_add(1));
    debug_assert_eq!(decode(word), file, "no file is entered as none");
    if file.is_some() && fd >= 0 {
        USED.fetch_max(fd as usize + 1, AcqRel);
    }
    // Before a look at who holds the number ([`super::blank`]).
    decode(ENTRIES.get(fd as u32 as usize)?.swap(word, SeqCst))
}

/// The connection's own descriptor is about to be closed: the program's next file may get its number.
pub fn let_go(fd: c_int) {
    if let Some(entry) = ENTRIES.get(fd as u32 as usize) {
        let _ = entry.compare_exchange(OWN.0.wrapping_add(1), NONE, SeqCst, Relaxed);
    }
}

/// Whether the table has a place for this number.
pub fn holds(fd: c_int) -> bool {
    (fd as u32 as usize) < DESCRIPTORS_MAX
}

/// Calls `each` with the entries from `first` to `last`.
pub fn each(first: u32, last: u32, mut each: impl FnMut(c_int, FileRef)) {
    let end = (last as usize).saturating_add(1).min(USED.load(Acquire)).min(DESCRIPTORS_MAX);
    for fd in first as usize..end {
        if let Some(file) = get(fd as c_int) {
            each(fd as c_int, file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_out_of_range_is_never_a_weft_file() {
        assert_eq!(get(-1), None);
        assert_eq!(get(-100), None);
        assert_eq!(get(DESCRIPTORS_MAX as c_int), None);
        assert_eq!(swap(-1, Some(FileRef(3))), None);
        assert_eq!(get(-1), None);
    }

    #[test]
    fn an_entry_comes_back_as_it_was_entered() {
        let file = FileRef::new(0, 0);
        assert_eq!(swap(60_000, Some(file)), None);
        assert_eq!(get(60_000), Some(file));
        assert_eq!(swap(60_000, None), Some(file));
        assert_eq!(get(60_000), None);
        swap(60_001, Some(OWN));
        assert_eq!(get(60_001), Some(OWN));
        swap(60_001, None);
    }
}
