//! Blocks of a file that clients have overwritten and the core does not have yet: an *overwrite area*, of the size of a ring.
//!
//! ```text
//!  page 0        table: 256 words (32 sets of 8), written, version, moves
//!  page n        the content of the block that word n names, n = 1 .. 255
//!  word          | block, 32 bits | version, 29 bits | 1 = logged | 1 = taken | 1 = dirty |     0 = the page is free
//! ```
//!
//! The holder of the inode's write lock overwrites a block by filling a page of the block's set that is free or clean, and
//! naming the block in its word; then it frees the page with the block's content of before. So a block changes at once or not
//! at all, even when the client is killed in between; of two pages with one block the newer version counts. The server makes
//! dirty pages clean after it has given them to the core. A client that has made a dirty page durable in the append log calls
//! it logged. Whoever copies a page without the lock looks at the word again afterwards: as long as block and version are the
//! same, nobody has written to the page.

use super::volume::RING_BYTES;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use weft_core::BLOCK_BYTES;

/// Words of the table, and pages of an area.
pub const PAGES: usize = RING_BYTES / BLOCK_BYTES;
/// Pages that a block can be in.
const WAYS: usize = 8;
/// Consecutive blocks are in different sets.
const SETS: usize = PAGES / WAYS;
/// Blocks in a row whose sets all differ, wherever they begin.
pub const RUN_MAX: usize = SETS / 2;
const VERSION_BITS: u32 = 29;
const DIRTY: u64 = 0b001;
const TAKEN: u64 = 0b010;
const LOGGED: u64 = 0b100;
/// The lowest bit of the version.
const VERSION_AT: u32 = 3;
const VERSION_MAX: u32 = (1 << VERSION_BITS) - 1;

/// A client that is broken could keep others looking for ever.
const FIND_TRIES: u32 = 1000;

/// Blocks are written so often that their pages cannot be told.
#[derive(Clone, Copy, Debug)]
pub struct Moving;

/// A page whose content is only there.
#[derive(Clone, Copy, Debug)]
pub struct Unlogged {
    /// The block that it is of.
    pub block: u32,
    /// Its number.
    pub page: u32,
    /// Its word.
    pub word: Word,
}

impl Unlogged {
    /// No page.
    pub const NONE: Unlogged = Unlogged { block: 0, page: 0, word: Word::FREE };
}

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(pub u64);

impl Word {
    /// A page that nobody uses.
    pub const FREE: Word = Word(0);

    /// Of a page with new content of a block.
    pub fn dirty(block: u32, version: u32) -> Word {
        Word(u64::from(block) << 32 | u64::from(version & VERSION_MAX) << VERSION_AT | TAKEN | DIRTY)
    }

    /// The block whose content the page has; `None` when it is free.
    pub fn block(self) -> Option<u32> {
        (self.0 & TAKEN != 0).then_some((self.0 >> 32) as u32)
    }

    /// Whether the core does not have the content yet.
    pub fn is_dirty(self) -> bool {
        self.0 & (TAKEN | DIRTY) == TAKEN | DIRTY
    }

    /// Whether neither the core has the content yet, nor the append log.
    pub fn is_unlogged(self) -> bool {
        self.is_dirty() && self.0 & LOGGED == 0
    }

    /// Whether both are of the same write.
    fn is_same_content(self, other: Word) -> bool {
        self.0 & !(DIRTY | LOGGED) == other.0 & !(DIRTY | LOGGED)
    }

    /// Whether this is a later content of a block than `other`.
    pub fn is_newer(self, other: Word) -> bool {
        let ahead =
            ((self.0 >> VERSION_AT) as u32).wrapping_sub((other.0 >> VERSION_AT) as u32) & VERSION_MAX;
        ahead != 0 && ahead < VERSION_MAX / 2
    }
}

#[repr(C, align(4096))]
struct Table {
    words: [AtomicU64; PAGES],
    /// Blocks written since the server looked last; a hint.
    written: AtomicU32,
    /// Version of the last write.
    version: AtomicU32,
    /// Changes after a block has got another page and before it loses the one of before.
    moves: AtomicU32,
}

/// An area in the memory of the rings.
#[derive(Clone, Copy)]
pub struct Area<'a> {
    table: &'a Table,
    base: *mut u8,
}

impl<'a> Area<'a> {
    /// The area that begins at `base`.
    ///
    /// # Safety
    /// From there on, [`RING_BYTES`] bytes are mapped for `'a`, at the beginning of a page, shared or initialised.
    pub unsafe fn at(base: *mut u8) -> Area<'a> {
        // SAFETY: the caller's promise; the table is made of atomics and shorter than a page.
        Area { table: unsafe { &*base.cast::<Table>() }, base }
    }

    /// Whether both are in the same place.
    pub fn is_same(&self, other: &Area<'_>) -> bool {
        self.base == other.base
    }

    fn ways(block: u32) -> std::ops::Range<usize> {
        // By 5 more from one row to the next, so that a stride of a row does not stay in one set.
        let set = (block as usize + block as usize / SETS * 5) % SETS;
        set * WAYS..(set + 1) * WAYS
    }

    /// What a page holds now.
    pub fn word(&self, page: usize) -> Word {
        Word(self.table.words[page].load(Acquire))
    }

    /// The page with the newest content of a block, if any.
    pub fn find(&self, block: u32) -> Result<Option<(usize, Word)>, Moving> {
        self.unmoved(|| {
            let mut found: Option<(usize, Word)> = None;
            for page in Self::ways(block) {
                let word = self.word(page);
                if word.block() == Some(block) && found.is_none_or(|(_, best)| word.is_newer(best)) {
                    found = Some((page, word));
                }
            }
            (found, found.is_some())
        })
    }

    /// Every block that has a page, with that page; a client that was killed may have left some in two pages.
    pub fn taken(&self) -> Result<Vec<(u32, usize, Word)>, Moving> {
        let mut all = Vec::new();
        for set in 0..SETS {
            let pages = set * WAYS..(set + 1) * WAYS;
            let words = self.unmoved(|| {
                let words: [Word; WAYS] = std::array::from_fn(|way| self.word(set * WAYS + way));
                (words, false)
            })?;
            let taken = pages.zip(words).filter(|(page, _)| *page != 0);
            all.extend(taken.filter_map(|(page, word)| Some((word.block()?, page, word))));
        }
        Ok(all)
    }

    /// What `look` finds in a set, when no block got a page that had been looked at and lost the one that had not. Looks again
    /// when that may be, unless `look` says that it does not matter. Fails when blocks go from page to page all the time.
    fn unmoved<T>(&self, look: impl Fn() -> (T, bool)) -> Result<T, Moving> {
        for _ in 0..FIND_TRIES {
            let moves = self.table.moves.load(Acquire);
            let (found, is_enough) = look();
            if is_enough || self.table.moves.load(Relaxed) == moves {
                return Ok(found);
            }
        }
        Err(Moving)
    }

    /// A page that a block may be written to. `None` when all that it could have are dirty.
    pub fn writable(&self, block: u32) -> Option<usize> {
        // Page 0 is the table. A page with the block itself is what readers read until the new one is named.
        let may = |page: &usize| {
            let word = self.word(*page);
            *page != 0 && !word.is_dirty() && word.block() != Some(block)
        };
        let free = Self::ways(block).find(|&page| page != 0 && self.word(page) == Word::FREE);
        free.or_else(|| Self::ways(block).find(may))
    }

    /// Makes a page that is [`writable`](Self::writable) nobody's, before it is written to: readers that copy it see that they
    /// must not believe it.
    pub fn take(&self, page: usize) {
        self.table.words[page].store(0, Release);
        fence(Release);
    }

    /// Names the content of a page, which becomes the block's; `before` is where the block was.
    pub fn publish(&self, page: usize, block: u32, before: Option<usize>) {
        debug_assert!(page != 0 && Self::ways(block).contains(&page), "a page of another set");
        let version = self.table.version.load(Relaxed).wrapping_add(1);
        self.table.version.store(version, Release);
        self.table.words[page].store(Word::dirty(block, version).0, Release);
        if let Some(before) = before {
            self.table.moves.store(self.table.moves.load(Relaxed).wrapping_add(1), Release);
            self.table.words[before].store(0, Release);
        }
    }

    /// Gives a page another word, if it is dirty and its content still that of `word`; whether it was.
    fn change(&self, page: usize, word: Word, next: impl Fn(u64) -> u64) -> bool {
        let change = |now: u64| {
            let is_as_it_was = Word(now).is_dirty() && Word(now).is_same_content(word);
            is_as_it_was.then(|| next(now))
        };
        self.table.words[page].fetch_update(AcqRel, Relaxed, change).is_ok()
    }

    /// Makes a page clean that had a dirty word; false when it has other content since.
    pub fn clean(&self, page: usize, word: Word) -> bool {
        self.change(page, word, |now| now & !(DIRTY | LOGGED))
    }

    /// The append log has the content that a page had with a dirty word, durably. For the holder of the inode's write lock.
    pub fn log(&self, page: usize, word: Word) -> bool {
        self.change(page, word, |now| now | LOGGED)
    }

    /// Frees a page whose word was `word`, unless it has other content since.
    pub fn discard(&self, page: usize, word: Word) {
        let free = |now: u64| Word(now).is_same_content(word).then_some(0);
        let _ = self.table.words[page].fetch_update(AcqRel, Relaxed, free);
    }

    /// The pages that neither the core has yet, nor the append log, in the order of their blocks; `None` when they are more than
    /// `pages` takes. For the holder of the inode's write lock.
    pub fn unlogged<'p>(&self, pages: &'p mut [Unlogged]) -> Option<&'p mut [Unlogged]> {
        let mut found = 0;
        for page in 1..PAGES {
            let word = self.word(page);
            let Some(block) = word.block().filter(|_| word.is_unlogged()) else { continue };
            // A client that was killed may have left an older content of the block.
            if self.find(block).ok().flatten().is_none_or(|(newest, _)| newest != page) {
                continue;
            }
            *pages.get_mut(found)? = Unlogged { block, page: page as u32, word };
            found += 1;
        }
        let found = &mut pages[..found];
        found.sort_unstable_by_key(|page| page.block);
        debug_assert!(found.windows(2).all(|two| two[0].block < two[1].block), "a block has one newest page");
        Some(found)
    }

    /// Whether there are none, as far as a thread without the lock can tell: all that was written before it looked counts.
    pub fn is_all_logged(&self) -> Result<bool, Moving> {
        for set in 0..SETS {
            let any = self.unmoved(|| {
                let any =
                    (set * WAYS..(set + 1) * WAYS).any(|page| page != 0 && self.word(page).is_unlogged());
                (any, any)
            })?;
            if any {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Frees all pages. For the holder of the inode's write lock: what was in the blocks may change now.
    pub fn clear(&self) {
        self.table.version.store(self.version().wrapping_add(1), Release);
        for word in &self.table.words {
            if word.load(Relaxed) != 0 {
                word.store(0, Release);
            }
        }
        self.table.written.store(0, Relaxed);
    }

    /// Counts blocks that have been written; returns how many they are since the server looked last.
    pub fn count(&self, blocks: usize) -> u32 {
        let written = self.table.written.load(Relaxed).saturating_add(blocks as u32);
        self.table.written.store(written, Relaxed);
        written
    }

    /// The server has looked.
    pub fn looked(&self) {
        self.table.written.store(0, Relaxed);
    }

    /// Changes with each write.
    pub fn version(&self) -> u32 {
        self.table.version.load(Acquire)
    }

    fn page(&self, page: usize, within: usize, len: usize) -> *mut u8 {
        assert!(page < PAGES && within + len <= BLOCK_BYTES, "no bytes of a page");
        // SAFETY: within the area (asserted above).
        unsafe { self.base.add(page * BLOCK_BYTES + within) }
    }

    /// Copies bytes of a page. Bytes that are written at the same time are of no meaning: see [`is_still`](Self::is_still).
    pub fn read(&self, page: usize, within: usize, out: &mut [u8]) {
        // SAFETY: `page` gives as many bytes; nobody else has `out`.
        unsafe { ptr::copy_nonoverlapping(self.page(page, within, out.len()), out.as_mut_ptr(), out.len()) };
    }

    /// Copies bytes to a page that was [taken](Self::take); the caller holds the inode's write lock.
    pub fn write(&self, page: usize, within: usize, bytes: &[u8]) {
        // SAFETY: `page` gives as many bytes, which no reader believes while the page is nobody's.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.page(page, within, bytes.len()), bytes.len())
        };
    }

    /// Whether what was copied from a page since it had `word` is what that named.
    pub fn is_still(&self, page: usize, word: Word) -> bool {
        fence(Acquire);
        Word(self.table.words[page].load(Relaxed)).is_same_content(word)
    }
}

const _: () = {
    assert!(size_of::<Table>() == BLOCK_BYTES);
    assert!(WAYS * size_of::<AtomicU64>() == 64, "a set is one line of the cache");
    assert!(VERSION_BITS + VERSION_AT == 32);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> Area<'static> {
        let layout = std::alloc::Layout::from_size_align(RING_BYTES, 4096).unwrap();
        // SAFETY: the layout is not empty; leaked on purpose.
        unsafe { Area::at(std::alloc::alloc_zeroed(layout)) }
    }

    fn write(area: Area<'_>, block: u32, byte: u8) -> bool {
        let before = area.find(block).unwrap().map(|(page, _)| page);
        let Some(page) = area.writable(block) else { return false };
        area.take(page);
        area.write(page, 0, &[byte; BLOCK_BYTES]);
        area.publish(page, block, before);
        true
    }

    fn read(area: Area<'_>, block: u32) -> Option<u8> {
        let (page, word) = area.find(block).unwrap()?;
        let mut byte = [0];
        area.read(page, 7, &mut byte);
        area.is_still(page, word).then_some(byte[0])
    }

    #[test]
    fn consecutive_blocks_fill_the_area_and_runs_meet_no_set_twice() {
        let area = area();
        let written = (1_000_000..).take_while(|&block| write(area, block, block as u8)).count();
        assert!(written > PAGES - 2 * SETS, "{written}");
        assert!((1_000_000..).take(written).all(|block| read(area, block) == Some(block as u8)));
        for first in 0..10 * SETS as u32 {
            let mut sets: Vec<_> = (first..).take(RUN_MAX).map(|block| Area::ways(block).start).collect();
            sets.sort_unstable();
            sets.dedup();
            assert_eq!(sets.len(), RUN_MAX, "from block {first}");
        }
    }

    #[test]
    fn a_block_changes_at_once_and_of_two_pages_the_newer_counts() {
        let area = area();
        assert!(write(area, 9, 1));
        let (old, word) = area.find(9).unwrap().unwrap();
        let new = area.writable(9).unwrap();
        area.take(new);
        area.write(new, 0, &[2; BLOCK_BYTES]);
        assert_eq!(read(area, 9), Some(1));
        // The client is killed before it frees the page of before.
        area.publish(new, 9, None);
        assert_eq!(read(area, 9), Some(2));
        assert!(area.find(9).unwrap().unwrap().1.is_newer(word) && area.is_still(old, word));
        assert!(Word::dirty(9, 3).is_newer(Word::dirty(9, VERSION_MAX)), "the version wraps");
    }

    #[test]
    fn clean_pages_make_room_and_whoever_copies_one_sees_it() {
        let area = area();
        // One set: from one row to the next, five sets on.
        let same_set: Vec<u32> = (0..).filter(|&block| Area::ways(block).start == 8).take(WAYS + 1).collect();
        assert!(same_set[..WAYS].iter().all(|&block| write(area, block, 1)));
        assert!(!write(area, same_set[WAYS], 2), "all are dirty");
        let (page, word) = area.find(same_set[3]).unwrap().unwrap();
        assert!(area.clean(page, word) && !area.clean(page, word));
        assert!(area.is_still(page, word), "the content is the same");
        assert!(write(area, same_set[WAYS], 2));
        assert!(!area.is_still(page, word));
        assert_eq!((read(area, same_set[3]), read(area, same_set[WAYS])), (None, Some(2)));
        area.clear();
        assert_eq!(read(area, same_set[0]), None);
    }
}
