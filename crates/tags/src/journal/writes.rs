//! Writes of pages that commits did not wait for.
//!
//! The record of a commit speaks of pages that may still be under way when it goes to the journal: it counts only with
//! them, so all that has to wait for their arrival is a sync, and who changes the pages again. So a sync waits for all
//! writes first, a commit for those of pages that it changes or gives up, and a checkpoint for all. A page is dirty, and so keeps its frame, until then.
//!
//! A commit that nobody waits for need not even begin its write: its blocks mostly follow those of the commit before, and one write of
//! many pages costs the kernel, and a virtual machine's host, little more than one of few. So such writes are gathered
//! until they are large, or somebody waits for them. Threads that commit to different s-nodes are given blocks in turns, and come here in
//! any order, so writes that lie apart wait for what lies between them, and what follows another at once is joined to it whose ever it is.
//!
//! Pages that nodes have of their own are in no frame: their writes have the bytes, and a reader who meets such a page gets it from there.

use crate::error::{Error, Result};
use crate::ids::{HomeId, PAGE_BYTES};
use crate::page_store::{PageAddresses, PageStore, PendingWrite, Reads};
use crate::sync::Mutex;
use std::io;
use std::sync::Arc;
use weft_core::Tag;
use weft_sys::AlignedBuf;

/// Writes that nobody has waited for, at most: each of them has a ring of its own, and frames that cannot be evicted.
const UNDER_WAY_MAX: usize = 8;

/// Pages that are gathered before their write begins.
const GATHERED_MAX: usize = 128;

/// Writes that are gathered and lie apart.
const APART_MAX: usize = 4;

/// A write of pages.
pub(crate) struct PageWrite {
    /// The s-nodes whose pages are written.
    owners: Vec<HomeId>,
    tag: Tag,
    block: u64,
    pages: Vec<u32>,
    state: Mutex<State>,
    /// What it writes, where that is not in frames. Behind the state, which ends with a write that is under way.
    copies: Vec<AlignedBuf>,
}

/// How far a write has come.
enum State {
    /// Nobody has begun it yet.
    Due(PageAddresses),
    UnderWay(PendingWrite),
    /// On the medium, or in its cache.
    Arrived,
    /// The pages are known to be clean.
    Over,
    /// It stays so: who comes later, for a sync, must not take it for one that arrived.
    Failed(Arc<str>),
}

impl PageWrite {
    /// A write of `pages`, all of one s-node, to the blocks from `block` on, which has not begun.
    ///
    /// # Safety
    /// The pages' bytes, `from`, can be read until the write was dropped, and, where it begins, has been waited for.
    pub(crate) unsafe fn new(
        snode: HomeId,
        tag: Tag,
        block: u64,
        pages: Vec<u32>,
        from: PageAddresses,
    ) -> PageWrite {
        let state = Mutex::new(State::Due(from));
        PageWrite { owners: vec![snode], tag, block, pages, state, copies: Vec::new() }
    }

    /// A write of pages of one s-node that are in no frame: as long as it is under way, they are [read](Writes::read) from it.
    pub(crate) fn of_copy(
        snode: HomeId,
        tag: Tag,
        block: u64,
        pages: Vec<u32>,
        copy: AlignedBuf,
    ) -> PageWrite {
        let from = copy.as_chunks().0.iter().take(pages.len()).map(std::ptr::from_ref).collect();
        // SAFETY: the copy goes with the write, after its state, and nobody changes it.
        let write = unsafe { PageWrite::new(snode, tag, block, pages, PageAddresses(from)) };
        PageWrite { copies: vec![copy], ..write }
    }

    /// Whether the pages are in frames, which stay with them until the write has arrived.
    pub(crate) fn is_of_frames(&self) -> bool {
        self.copies.is_empty()
    }

    /// The pages that are written.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages
    }

    fn is_of(&self, snodes: &[HomeId], page: impl Fn(u32) -> bool) -> bool {
        self.owners.iter().any(|owner| snodes.contains(owner)) && self.pages.iter().any(|at| page(*at))
    }

    /// Where they are written.
    fn blocks(&self) -> std::ops::Range<u64> {
        self.block..self.block + self.pages.len() as u64
    }

    /// What it writes to a block, where that is in no frame.
    fn copy_of(&self, block: u64) -> Option<&[u8; PAGE_BYTES]> {
        let at = block.checked_sub(self.block)? as usize;
        self.copies.iter().flat_map(|copy| copy.as_chunks().0).nth(at)
    }

    /// Waits until the write has arrived, and calls `clean` with each of its pages, once and before anybody else is told
    /// that it has.
    ///
    /// # Errors
    /// [`Error::Io`] for the first who waits, [`Error::Stopped`] for the others.
    pub(crate) fn settle(&self, medium: &dyn PageStore, clean: impl FnMut(u32)) -> Result<()> {
        let mut state = self.state.lock();
        self.advance(&mut state, medium, true)?;
        if let State::Arrived = std::mem::replace(&mut *state, State::Over)
            && self.is_of_frames()
        {
            self.pages.iter().copied().for_each(clean);
        }
        Ok(())
    }

    /// Whether `next` follows at once, with the same tag.
    fn joins(&self, next: &PageWrite) -> bool {
        let is_alike = self.tag == next.tag && self.is_of_frames() == next.is_of_frames();
        self.blocks().end == next.block && is_alike
    }

    /// Takes `next` on, which [joins](PageWrite::joins) it; neither has begun.
    fn join(&mut self, next: PageWrite) {
        debug_assert!(self.joins(&next));
        for snode in next.owners {
            if !self.owners.contains(&snode) {
                self.owners.push(snode);
            }
        }
        self.pages.extend(next.pages);
        self.copies.extend(next.copies);
        if let State::Due(from) = &mut *self.state.lock()
            && let State::Due(more) = std::mem::replace(&mut *next.state.lock(), State::Over)
        {
            from.0.extend(more.0);
        }
    }

    /// Begins the write, if nobody has, and waits for its end where `waits` says so. To begin one takes long enough for others to be
    /// in want of any lock but its own.
    fn advance(&self, state: &mut State, medium: &dyn PageStore, waits: bool) -> Result<()> {
        loop {
            let next = match std::mem::replace(state, State::Over) {
                State::Due(from) => {
                    // SAFETY: the promise of `PageWrite::new`.
                    let write = unsafe { medium.begin_write(self.block, &self.tag, &from.0) };
                    write.map(State::UnderWay)
                }
                State::UnderWay(write) if waits => write.wait().map(|()| State::Arrived),
                State::Failed(reason) => {
                    *state = State::Failed(reason.clone());
                    return if waits { Err(Error::Stopped { reason }) } else { Ok(()) };
                }
                other => {
                    *state = other;
                    return Ok(());
                }
            };
            match next {
                Ok(next) => *state = next,
                Err(source) => {
                    let error = Error::Io { what: "write nodes", block: self.block, source };
                    *state = State::Failed(error.reason());
                    return Err(error);
                }
            }
        }
    }
}

/// The writes of a store.
#[derive(Default)]
pub(crate) struct Writes {
    /// What is not due. Its lock is taken before that of the list, and held until what becomes due is there.
    gathered: Mutex<Vec<PageWrite>>,
    /// In the order in which they became due.
    list: Mutex<Vec<Arc<PageWrite>>>,
}

impl Writes {
    /// Adds a write of a commit whose pages are where they will be, before its record is appended. What is gathered is never more than an
    /// eighth of `pages_max`.
    ///
    /// # Errors
    /// [`Error::Io`] for this write or one before.
    pub(crate) fn gather(&self, write: PageWrite, pages_max: usize, medium: &dyn PageStore) -> Result<()> {
        let mut gathered = self.gathered.lock();
        let mut write = write;
        if let Some(before) = gathered.iter().position(|before| before.joins(&write)) {
            let mut joined = gathered.remove(before);
            joined.join(write);
            write = joined;
        }
        if let Some(behind) = gathered.iter().position(|behind| write.joins(behind)) {
            write.join(gathered.remove(behind));
        }
        let is_large = write.pages.len() >= GATHERED_MAX;
        gathered.push(write);
        let mut due = Vec::new();
        if is_large {
            due.extend(gathered.pop().map(|write| self.due(write)));
        }
        // Those that have waited longest first.
        let pages = |gathered: &[PageWrite]| gathered.iter().map(|write| write.pages.len()).sum::<usize>();
        while gathered.len() > APART_MAX || pages(&gathered) > pages_max / 8 {
            due.push(self.due(gathered.remove(0)));
        }
        drop(gathered);
        begin_all(&due, medium)
    }

    /// Lets what was gathered be due.
    fn due(&self, write: PageWrite) -> Arc<PageWrite> {
        let due = Arc::new(write);
        self.list.lock().push(due.clone());
        due
    }

    /// Waits until all writes have arrived, or failed: after this none of them reads a frame. Those that failed stay, so that no sync
    /// says that they were durable.
    ///
    /// # Errors
    /// As [`PageWrite::settle`].
    pub(crate) fn arrive(&self, medium: &dyn PageStore) -> Result<()> {
        let writes = self.all();
        let mut done = begin_all(&writes, medium);
        for write in writes {
            done = done.and(write.advance(&mut write.state.lock(), medium, true));
        }
        done
    }

    /// Reads blocks: those of pages in no frame that are still being written from there, all others from the medium.
    ///
    /// # Errors
    /// What the medium reports.
    pub(crate) fn read(&self, reads: &mut Reads<'_>, medium: &dyn PageStore) -> io::Result<()> {
        reads.retain_mut(|(block, out)| !self.is_copied(*block, out));
        if reads.is_empty() { Ok(()) } else { medium.read_many(reads) }
    }

    /// Whether a block is still being written, and its bytes were copied.
    fn is_copied(&self, block: u64, out: &mut [u8]) -> bool {
        let mut copy = |write: &PageWrite| {
            let bytes = write.copy_of(block);
            bytes.is_some_and(|bytes| {
                out.copy_from_slice(bytes);
                true
            })
        };
        // In this order: what becomes due is in the list before it has left what is gathered.
        self.gathered.lock().iter().any(&mut copy) || self.list.lock().iter().rev().any(|write| copy(write))
    }

    /// Whether there are any.
    pub(crate) fn has_any(&self) -> bool {
        !self.gathered.lock().is_empty() || !self.list.lock().is_empty()
    }

    /// The writes of those `pages` of these s-nodes, whose locks the caller holds.
    pub(crate) fn of(&self, snodes: &[HomeId], pages: impl Fn(u32) -> bool) -> Vec<Arc<PageWrite>> {
        let mut gathered = self.gathered.lock();
        while let Some(mine) = gathered.iter().position(|write| write.is_of(snodes, &pages)) {
            self.due(gathered.remove(mine));
        }
        drop(gathered);
        let mine = |write: &&Arc<PageWrite>| write.is_of(snodes, &pages);
        self.list.lock().iter().filter(mine).cloned().collect()
    }

    /// Begins all writes, without waiting for them. One that fails says so to who waits for it.
    pub(crate) fn begin(&self, medium: &dyn PageStore) {
        let _ = begin_all(&self.all(), medium);
    }

    /// The oldest writes, without which few are left, of at most so many pages. What is gathered does not count.
    pub(crate) fn oldest(&self, pages_max: usize) -> Vec<Arc<PageWrite>> {
        let list = self.list.lock();
        let mut pages = 0;
        let newest = list.iter().rev().take(UNDER_WAY_MAX).take_while(|write| {
            pages += write.pages.len();
            pages <= pages_max
        });
        list[..list.len() - newest.count()].to_vec()
    }

    /// All writes.
    pub(crate) fn all(&self) -> Vec<Arc<PageWrite>> {
        self.gathered.lock().drain(..).for_each(|write| drop(self.due(write)));
        self.list.lock().clone()
    }

    /// Waits for writes and calls `clean` with each page.
    ///
    /// # Errors
    /// As [`PageWrite::settle`].
    pub(crate) fn settle(
        &self,
        writes: &[Arc<PageWrite>],
        medium: &dyn PageStore,
        mut clean: impl FnMut(u32),
    ) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        begin_all(writes, medium)?;
        writes.iter().try_for_each(|write| write.settle(medium, &mut clean))?;
        let is_settled = |kept: &Arc<PageWrite>| writes.iter().any(|write| Arc::ptr_eq(kept, write));
        self.list.lock().retain(|kept| !is_settled(kept));
        Ok(())
    }
}

/// Begins writes that are due, also those behind one that fails: nobody plans them again.
fn begin_all(writes: &[Arc<PageWrite>], medium: &dyn PageStore) -> Result<()> {
    let mut done = Ok(());
    for write in writes {
        done = done.and(write.advance(&mut write.state.lock(), medium, false));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn writes_that_come_in_any_order_are_joined_and_known_by_each_of_their_s_nodes() {
        let medium = MemoryStore::new();
        medium.grow(1000).unwrap();
        let page = Box::new([7; PAGE_BYTES]);
        let plan = |snode, block, count: u32| {
            let from = PageAddresses(vec![std::ptr::from_ref(&*page); count as usize]);
            // SAFETY: the page outlives all writes.
            unsafe { PageWrite::new(HomeId(snode), Tag::default(), block, (0..count).collect(), from) }
        };
        let apart = |writes: &Writes| {
            writes.gathered.lock().iter().map(|write| (write.block, write.blocks().end)).collect::<Vec<_>>()
        };
        let writes = Writes::default();
        for (snode, block) in [(1, 100), (3, 160), (2, 130)] {
            writes.gather(plan(snode, block, 30), 10_000, &medium).unwrap();
        }
        assert_eq!((apart(&writes), writes.list.lock().len()), (vec![(100, 190)], 0));
        // Large: it begins.
        writes.gather(plan(1, 60, 40), 10_000, &medium).unwrap();
        assert_eq!((apart(&writes), writes.list.lock().len()), (vec![], 1));
        // Too many apart, or too many pages for the cache: the oldest begin.
        for block in [300, 320, 340, 360, 380] {
            writes.gather(plan(4, block, 10), 10_000, &medium).unwrap();
        }
        assert_eq!((apart(&writes).len(), writes.list.lock().len()), (APART_MAX, 2));
        writes.gather(plan(4, 400, 10), 200, &medium).unwrap();
        assert_eq!((apart(&writes), writes.list.lock().len()), (vec![(380, 390), (400, 410)], 5));
        // Each s-node waits for what has pages of it, joined or not, and for no other; of its pages, for those that are asked for.
        let mut cleaned = 0;
        let any = |_| true;
        writes.settle(&writes.of(&[HomeId(9)], any), &medium, |_| cleaned += 1).unwrap();
        writes.settle(&writes.of(&[HomeId(2)], |page| page > 1000), &medium, |_| cleaned += 1).unwrap();
        assert_eq!((cleaned, writes.list.lock().len()), (0, 5));
        writes.settle(&writes.of(&[HomeId(2)], |page| page == 7), &medium, |_| cleaned += 1).unwrap();
        assert_eq!((cleaned, writes.list.lock().len()), (130, 4));
        writes.settle(&writes.of(&[HomeId(4)], any), &medium, |_| cleaned += 1).unwrap();
        assert_eq!((cleaned, writes.list.lock().len(), apart(&writes).len()), (190, 0, 0));
    }
}
