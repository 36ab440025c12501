//! Access to the bytes of pages, under the lock of their s-node.
//!
//! Each s-node has a partition: its slabs and edge tables, under one reader-writer lock. The partition's [`Token`]
//! exists once and lies under that lock. A shared borrow of it proves that nobody writes the s-node's pages, and gives
//! a [`PageReader`]; an exclusive borrow proves that nobody reads them, and gives a [`PageWriter`]. Both hold the
//! pool's residency lock shared, so that no frame is taken away under a reference.

use super::classes::{ClassCounter, PagePart};
use super::desc::Desc;
use super::pool::Pool;
use super::table::{Descriptors, Hot};
use crate::error::{Error, Step, StepError};
use crate::ids::{HomeId, PAGE_BYTES};
use crate::pages::{Words, as_words};
use crate::sync::RwLockReadGuard;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// Proof of a hold on an s-node's pages. There is one for each s-node of an open store.
pub(crate) struct Token {
    snode: HomeId,
    /// Times that somebody had the s-node's pages alone, to change them.
    turns: u64,
}

impl Token {
    /// The token of `snode`. The caller makes one for each s-node of a pool.
    pub(crate) fn of(snode: HomeId) -> Token {
        // Another s-node of the same number counts from elsewhere.
        static TOKENS: AtomicU64 = AtomicU64::new(0);
        Token { snode, turns: TOKENS.fetch_add(1, Ordering::Relaxed) << 40 }
    }
}

/// Access to pages.
pub(crate) trait Pages {
    /// The bytes of a page of this s-node.
    fn bytes(&self, page: u32) -> Step<&[u8; PAGE_BYTES]>;

    /// The page as words.
    #[inline]
    fn words(&self, page: u32) -> Step<&Words> {
        self.bytes(page).map(as_words)
    }

    /// The bytes of a page that is in memory; `None` also where [`Pages::bytes`] has something to say.
    #[inline]
    fn peek(&self, page: u32) -> Option<&[u8; PAGE_BYTES]> {
        self.bytes(page).ok()
    }

    /// [`Pages::peek`] for up to as many pages as there is room for in `found`, whose rest stays as it is. Number 0 is none.
    #[inline]
    fn peek_all<'p>(&'p self, pages: &[u32], found: &mut [Option<&'p [u8; PAGE_BYTES]>]) {
        for (found, page) in found.iter_mut().zip(pages) {
            *found = if *page > 0 { self.peek(*page) } else { None };
        }
    }

    /// Halts for those of these pages that are not in memory: a step that asks for one after the other begins anew with each.
    fn ask_for_all(&self, pages: impl Iterator<Item = u32>) -> Step<()> {
        let mut missing = Vec::new();
        for page in pages {
            match self.bytes(page) {
                Err(StepError::Miss(page)) => missing.push(page),
                other => drop(other?),
            }
        }
        StepError::unless_empty(missing)
    }

    /// Asks the processor for the line of `offset` of the page, if the page is in memory; whether it is.
    fn prefetch(&self, page: u32, offset: usize) -> bool;

    /// Pages that may be asked for in one step: all of them have to be in memory at once.
    fn step_pages(&self) -> usize;
}

/// The pages of an s-node in a committed state, and what is known of them.
pub(crate) trait StatePages: Pages + Descriptors {
    /// A number that is another as soon as anything of them has changed.
    fn turns(&self) -> u64;
}

/// What every access to pages has: the pool, whose frames stay, and the s-node whose token is borrowed for as long.
struct Hold<'g> {
    pool: &'g Pool,
    snode: HomeId,
    /// Accesses to pages that were in memory, by what they hold.
    hits: [Cell<u32>; 3],
    _residency: RwLockReadGuard<'g, ()>,
}

impl<'g> Hold<'g> {
    fn new(pool: &'g Pool, snode: HomeId) -> Hold<'g> {
        Hold { pool, snode, hits: Default::default(), _residency: pool.residency.read() }
    }

    #[inline(always)]
    fn note_hit(&self, page: u32, word: Hot) {
        let hits = &self.hits[PagePart::of(page, word) as usize];
        hits.set(hits.get() + 1);
    }

    #[inline]
    fn locate(&self, page: u32) -> Step<(*mut [u8; PAGE_BYTES], &'g AtomicU64)> {
        let Some(hot) = self.pool.table.hot(page) else { return Err(stranger(page, self.snode)) };
        let word = Hot(hot.load(Ordering::Acquire));
        if word.owner() != self.snode.0 {
            return Err(stranger(page, self.snode));
        }
        let Some(frame) = word.frame() else { return Err(StepError::Miss(page)) };
        self.pool.touch(page, hot, word.0);
        self.note_hit(page, word);
        Ok((self.pool.frames.frame(frame), hot))
    }

    /// As [`Hold::locate`], for a page that differs from the medium from now on, in a frame of its own; whether it did not before.
    #[inline]
    fn locate_own(&self, page: u32) -> Step<(*mut [u8; PAGE_BYTES], &'g AtomicU64, bool)> {
        let (mut frame, hot) = self.locate(page)?;
        if self.pool.is_mapped(hot) {
            frame = self.pool.bring_in(page, hot, frame).ok_or(StepError::NoFrames(1))?;
        }
        Ok((frame, hot, self.pool.mark_dirty(hot)))
    }

    /// As [`Hold::locate`], for a page that is in memory.
    #[inline(always)]
    fn peek(&self, page: u32) -> Option<*const [u8; PAGE_BYTES]> {
        let hot = self.pool.table.hot(page)?;
        let word = Hot(hot.load(Ordering::Acquire));
        let frame = word.frame().filter(|_| word.owner() == self.snode.0)?;
        self.pool.touch(page, hot, word.0);
        self.note_hit(page, word);
        Some(self.pool.frames.frame(frame))
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        for (part, hits) in PagePart::ALL.into_iter().zip(&self.hits) {
            if hits.get() > 0 {
                let class = self.pool.classes.number(self.snode.0, part);
                self.pool.classes.count(ClassCounter::Hits, class, u64::from(hits.get()));
            }
        }
    }
}

/// Shared access to the pages of one s-node.
pub(crate) type PageReader<'g> = Access<'g, &'g Token>;
/// Exclusive access to the pages of one s-node.
pub(crate) type PageWriter<'g> = Access<'g, &'g mut Token>;

/// Access to the pages of one s-node by a borrow of its token: nobody else writes them meanwhile.
pub(crate) struct Access<'g, T> {
    hold: Hold<'g>,
    turns: u64,
    _token: PhantomData<T>,
}

impl<'g> PageReader<'g> {
    /// Access by a shared hold. One at a time in a thread: the residency lock is not taken twice.
    pub(crate) fn new(pool: &'g Pool, token: &'g Token) -> PageReader<'g> {
        Access { hold: Hold::new(pool, token.snode), turns: token.turns, _token: PhantomData }
    }

    /// The bytes of a page that is about to be written, in a frame of its own that stays until the page is [clean](Pool::clean), and
    /// whether it was clean until now. The caller has the s-node's lock, or its partition alone, so nobody else changes where its pages are.
    pub(crate) fn keep(&self, page: u32) -> Step<(&[u8; PAGE_BYTES], bool)> {
        let (frame, _, was_clean) = self.hold.locate_own(page)?;
        // SAFETY: as in `bytes`.
        Ok((unsafe { &*frame }, was_clean))
    }
}

impl<'g> PageWriter<'g> {
    /// Access by an exclusive hold.
    pub(crate) fn new(pool: &'g Pool, token: &'g mut Token) -> PageWriter<'g> {
        token.turns += 1;
        Access { hold: Hold::new(pool, token.snode), turns: token.turns, _token: PhantomData }
    }

    /// The bytes of a page, to be changed.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, page: u32) -> Step<&mut [u8; PAGE_BYTES]> {
        let (frame, ..) = self.hold.locate_own(page)?;
        if self.hold.pool.versions.newest() > 0 {
            // SAFETY: as below; the reference ends before another begins.
            self.hold.pool.versions.note_bytes(page, unsafe { &*frame });
        }
        // SAFETY: the page belongs to this s-node, whose token is borrowed alone for 'g, and `self` is borrowed alone;
        // the residency lock keeps the frame.
        Ok(unsafe { &mut *frame })
    }

    /// The page as words, to be changed.
    #[inline]
    pub(crate) fn words_mut(&mut self, page: u32) -> Step<&mut Words> {
        // SAFETY: as in `as_words`.
        Ok(unsafe { &mut *std::ptr::from_mut(self.bytes_mut(page)?).cast::<Words>() })
    }

    /// How many cells of an edge table are in use in a page, where that was noted.
    #[inline]
    pub(crate) fn cells(&self, page: u32) -> Option<usize> {
        usize::from(self.hold.pool.table.cells(page)?.load(Ordering::Relaxed)).checked_sub(1)
    }

    /// Notes how many cells of an edge table are in use in a page.
    #[inline]
    pub(crate) fn note_cells(&mut self, page: u32, cells: usize) {
        let count = self.hold.pool.table.cells(page);
        count.into_iter().for_each(|count| count.store(cells as u16 + 1, Ordering::Relaxed));
    }

    /// Puts new pages of zeros in memory, all of them or none.
    pub(crate) fn place_all_new(&mut self, new: Vec<(u32, Desc)>) -> Step<()> {
        debug_assert!(new.iter().all(|(_, desc)| desc.snode == self.hold.snode.0));
        let frames = new.len();
        if self.hold.pool.place_all_new(new) { Ok(()) } else { Err(StepError::NoFrames(frames)) }
    }

    /// As [`PageWriter::place_all_new`], of one page, before the commit: one that leaves enough frames to reads.
    ///
    /// # Errors
    /// [`Error::CacheFull`]: a checkpoint makes room.
    pub(crate) fn place_uncommitted(&mut self, page: u32, desc: Desc) -> Step<()> {
        self.may_change()?;
        self.place_all_new(vec![(page, desc)])
    }

    /// As [`PageWriter::bytes_mut`], before the commit: a page that leaves enough frames to reads.
    ///
    /// # Errors
    /// [`Error::CacheFull`]: a checkpoint makes room.
    pub(crate) fn uncommitted_mut(&mut self, page: u32) -> Step<&mut [u8; PAGE_BYTES]> {
        if !self.hold.pool.table.load(page).is_dirty() {
            self.may_change()?;
        }
        self.bytes_mut(page)
    }

    fn may_change(&self) -> Step<()> {
        if self.hold.pool.may_change() {
            return Ok(());
        }
        Err(Error::CacheFull { pages: self.hold.pool.capacity() }.into())
    }

    /// The s-node whose pages these are.
    pub(crate) fn snode(&self) -> HomeId {
        self.hold.snode
    }

    pub(crate) fn pool(&self) -> &'g Pool {
        self.hold.pool
    }
}

#[cold]
fn stranger(page: u32, snode: HomeId) -> StepError {
    StepError::Failed(Error::damaged(format!("page {page} is not of s-node {snode}")))
}

impl Descriptors for PageReader<'_> {
    #[inline]
    fn look_up<T>(&self, page: u32, look: impl FnOnce(&Desc) -> T) -> Option<T> {
        self.hold.pool.table.look_up(page, look)
    }
}

impl StatePages for PageReader<'_> {
    #[inline]
    fn turns(&self) -> u64 {
        self.turns
    }
}

impl<T> Pages for Access<'_, T> {
    #[inline]
    fn bytes(&self, page: u32) -> Step<&[u8; PAGE_BYTES]> {
        // SAFETY: the page belongs to this s-node, whose token is borrowed by `self`, which is borrowed shared here, so nobody
        // writes it; the residency lock keeps the frame.
        Ok(unsafe { &*self.hold.locate(page)?.0 })
    }

    #[inline]
    fn peek(&self, page: u32) -> Option<&[u8; PAGE_BYTES]> {
        // SAFETY: as in `bytes`.
        self.hold.peek(page).map(|frame| unsafe { &*frame })
    }

    #[inline]
    fn peek_all<'p>(&'p self, pages: &[u32], found: &mut [Option<&'p [u8; PAGE_BYTES]>]) {
        let hots = pages.iter().filter_map(|page| self.hold.pool.table.hot(*page));
        hots.for_each(|hot| weft_sys::prefetch(hot));
        for (found, page) in found.iter_mut().zip(pages) {
            *found = self.peek(*page);
        }
    }

    #[inline]
    fn prefetch(&self, page: u32, offset: usize) -> bool {
        self.hold.pool.prefetch(page, offset)
    }

    fn step_pages(&self) -> usize {
        self.hold.pool.capacity() / 2
    }
}
