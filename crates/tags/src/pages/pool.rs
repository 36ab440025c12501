//! The cache: which pages are in memory, and which of them it evicts.
//!
//! Frames lie on huge pages and are recycled. Measured against virtual memory of the store's size with `madvise` for
//! eviction, the page table costs 1 ns of a batched read and 9 ns of a dependent one, while taking a page from the
//! kernel and giving it back costs 3.5 us, four times the read of the page itself.
//!
//! Who may touch a frame: see [`super::access`]. Locks: `residency` is held shared by whoever may hold a reference into a
//! frame, and alone by whoever takes frames away from others; it is never held across I/O. Who gives up a page of its own
//! holds the page's s-node alone, so nobody has a reference into that frame, and readers of other s-nodes go on. `extent` is
//! held shared by whoever looks at a mapped block that may be another page's by now, and alone by whoever cuts the medium.

use super::as_words;
use super::classes::{ClassCounter, Classes, PageClass, PagePart};
use super::desc::Desc;
use super::erasure::Erasure;
use super::eviction::{CacheFrames, EvictionPolicy, Evictor};
use super::frames::Frames;
use super::numbers::Numbers;
use super::table::{DIRTY, Hot, PageTable, USE_MASK, USE_ONE};
use super::versions::Versions;
use crate::error::{Error, Result};
use crate::ids::{DATA_PAGES_MAX, PAGE_BYTES};
use crate::layout::leaves::{LEAF_PAGES, LEAVES_MAX};
use crate::page_store::{Mapping, Reads};
use crate::sync::{Condvar, Mutex, RwLock, RwLockWriteGuard};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use weft_core::checksum::crc32c;
use weft_core::padded::CachePadded;
use weft_core::{Tag, TagFlags};

/// Pages that are read at the same time, at most.
const FAULT_PAGES: usize = 128;
/// No page is in this frame.
const NOBODY: u64 = u64::MAX;

/// Pages in memory.
pub(crate) struct Pool {
    pub(crate) table: PageTable,
    /// Which numbers of pages are free.
    pub(crate) numbers: Numbers,
    pub(super) frames: Frames,
    /// The page in each frame, and from bit 32 on the class that it is counted in.
    holds: Box<[AtomicU64]>,
    free: CachePadded<Mutex<FreeFrames>>,
    /// Told when reads end while somebody waits for frames.
    reads_ended: Condvar,
    pub(super) residency: CachePadded<RwLock<()>>,
    extent: CachePadded<RwLock<()>>,
    dirty: CachePadded<AtomicUsize>,
    /// Pages that commits under way may still change.
    reserved: CachePadded<Mutex<usize>>,
    /// What pages held, for snapshots.
    pub(crate) versions: Versions,
    /// Whose bytes are erased.
    pub(crate) erasure: Erasure,
    /// What classes the pages are of.
    pub(crate) classes: Classes,
}

/// A page that is being read.
struct Fault {
    page: u32,
    frame: u32,
    /// What its descriptor said when the read began.
    wanted: MediumPage,
}

/// Where a page is on the medium, and its checksum there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MediumPage {
    block: u64,
    crc: u32,
}

impl MediumPage {
    fn by(desc: &Desc) -> MediumPage {
        MediumPage { block: desc.block, crc: desc.crc }
    }
}

/// What has become of the read of a page.
enum ReadEnd {
    /// The page is in memory.
    There,
    /// It lies elsewhere by now, and is in memory or not.
    Moved { is_there: bool },
    /// What was read is not the page.
    Unread,
}

struct FreeFrames {
    recycled: Vec<u32>,
    /// Frames from here on were never used, so that memory is taken from the kernel only when it is needed.
    unused: u32,
    /// Which pages leave their frames.
    evictor: Evictor,
    /// Frames that pages are being read into.
    reading: usize,
}

/// What came of the search for frames that can be taken from their pages.
enum Search {
    Found,
    /// Nothing now; frames that pages are being read into can be taken soon.
    Later,
    Nothing,
}

/// Frames that pages are being read into.
struct Reading<'p> {
    pool: &'p Pool,
    frames: usize,
}

/// A frame that nobody uses.
#[derive(Clone, Copy)]
struct FreeFrame {
    frame: u32,
    /// Nobody ever did: it is as the kernel gave it, all zeros.
    is_new: bool,
}

impl FreeFrames {
    fn take(&mut self, frames: &Frames) -> Option<FreeFrame> {
        let recycled = self.recycled.pop().map(|frame| FreeFrame { frame, is_new: false });
        let taken = recycled.or_else(|| {
            let frame = self.unused;
            ((frame as usize) < frames.count()).then(|| {
                self.unused += 1;
                frames.first_use(frame);
                FreeFrame { frame, is_new: true }
            })
        })?;
        self.evictor.entered(taken.frame);
        Some(taken)
    }
}

impl Reading<'_> {
    /// A frame that nobody uses, to read a page into.
    fn take(&mut self) -> Option<u32> {
        let mut free = self.pool.free.lock();
        let frame = free.take(&self.pool.frames)?.frame;
        free.reading += 1;
        self.frames += 1;
        Some(frame)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if self.frames > 0 {
            self.pool.free.lock().reading -= self.frames;
            self.pool.reads_ended.notify_all();
        }
    }
}

/// Room in the cache for the changes of a commit; given back when it is dropped, when they are counted as they are.
pub(crate) struct CacheReservation<'p> {
    pool: &'p Pool,
    pages: usize,
}

impl Drop for CacheReservation<'_> {
    fn drop(&mut self) {
        let mut reserved = self.pool.reserved.lock();
        assert!(self.pages <= *reserved, "the cache's reservations add up");
        *reserved -= self.pages;
    }
}

/// Why the cache has no room for a commit.
pub(crate) enum CacheFull {
    /// Too much is changed, or kept for commits under way: a checkpoint, which waits for these, makes room.
    Now,
    /// The cache is too small.
    Ever,
}

impl Pool {
    pub(crate) fn new(
        cache_pages: usize,
        huge_pages: bool,
        eviction: Arc<dyn EvictionPolicy>,
        mapped: Option<Arc<Mapping>>,
    ) -> Result<Pool> {
        let no_memory = || Error::io("reserve memory for the cache", 0);
        let mut holds = Vec::new();
        holds.try_reserve_exact(cache_pages).map_err(|_| no_memory()(io::ErrorKind::OutOfMemory.into()))?;
        holds.resize_with(cache_pages, || AtomicU64::new(NOBODY));
        let frames = Frames::reserve(cache_pages, huge_pages, mapped).map_err(no_memory())?;
        let evictor = Evictor::new(eviction, frames.count() as u32);
        let free = FreeFrames { recycled: Vec::new(), unused: 0, evictor, reading: 0 };
        Ok(Pool {
            table: PageTable::new(huge_pages),
            numbers: Numbers::new(LEAVES_MAX * LEAF_PAGES),
            holds: holds.into_boxed_slice(),
            free: CachePadded(Mutex::new(free)),
            reads_ended: Condvar::new(),
            residency: CachePadded::default(),
            extent: CachePadded::default(),
            dirty: CachePadded::default(),
            reserved: CachePadded::default(),
            versions: Versions::new(cache_pages / 2 * PAGE_BYTES),
            erasure: Erasure::new(),
            classes: Classes::new(),
            frames,
        })
    }

    /// Frames of the pool.
    pub(crate) fn capacity(&self) -> usize {
        self.frames.count()
    }

    /// Keeps room for a commit that changes so many pages at most, of the part of the cache that may be changed.
    ///
    /// # Errors
    /// [`CacheFull`].
    pub(crate) fn reserve(&self, pages: usize) -> std::result::Result<CacheReservation<'_>, CacheFull> {
        let most = self.dirty_max();
        if pages > most {
            return Err(CacheFull::Ever);
        }
        let mut reserved = self.reserved.lock();
        if self.dirty() + *reserved + pages > most {
            return Err(CacheFull::Now);
        }
        *reserved += pages;
        Ok(CacheReservation { pool: self, pages })
    }

    /// Pages that are kept for commits under way.
    pub(crate) fn reserved(&self) -> usize {
        *self.reserved.lock()
    }

    /// The most pages that may differ from the medium. The frames of the others stay for reads, which so never wait for a
    /// commit or a checkpoint.
    fn dirty_max(&self) -> usize {
        self.capacity() * 7 / 8
    }

    /// Whether a transaction may change one more page before its commit. Threads that ask at the same time may change a page each
    /// beyond the bound; the reserve has room for that.
    pub(crate) fn may_change(&self) -> bool {
        self.dirty() + *self.reserved.lock() < self.dirty_max()
    }

    /// Pages in memory that differ from the medium.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Notes that a page differs from the medium now; whether it did not before.
    #[inline]
    pub(super) fn mark_dirty(&self, hot: &AtomicU64) -> bool {
        let was_clean =
            hot.load(Ordering::Relaxed) & DIRTY == 0 && hot.fetch_or(DIRTY, Ordering::Relaxed) & DIRTY == 0;
        if was_clean {
            self.dirty.fetch_add(1, Ordering::Relaxed);
        }
        was_clean
    }

    /// Notes where a page was or is being written, with which checksum. Its frame stays until it is [clean](Self::clean). The caller holds
    /// the page's partition alone.
    pub(crate) fn place(&self, page: u32, block: u64, crc: u32) {
        let (Some(hot), Some(desc)) = (self.table.hot(page), self.table.desc(page)) else { return };
        // Under the descriptor's lock, under which a read that ends publishes where it has found the page.
        let mut desc = desc.lock();
        desc.block = block;
        desc.crc = crc;
        if self.is_mapped(hot) {
            // That is the block before this one, which will be another page's.
            hot.fetch_and(!0xffff_ffff, Ordering::AcqRel);
        }
    }

    /// Notes that a page is on the medium as it is in memory.
    pub(crate) fn clean(&self, page: u32) {
        let Some(hot) = self.table.hot(page) else { return };
        if hot.fetch_and(!DIRTY, Ordering::Relaxed) & DIRTY != 0 {
            let dirty = self.dirty.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(dirty > 0, "more pages become clean than were dirty");
        }
    }

    /// The pages in memory that differ from the medium, in the order of their numbers.
    pub(crate) fn dirty_pages(&self) -> Vec<u32> {
        let held = self.holds.iter().map(|page| page.load(Ordering::Acquire)).filter(|held| *held != NOBODY);
        let mut pages: Vec<u32> =
            held.map(|held| held as u32).filter(|page| self.table.load(*page).is_dirty()).collect();
        pages.sort_unstable();
        pages
    }

    /// Keeps everybody from blocks of a mapped medium that no page is in, so that it can be cut there.
    pub(crate) fn hold_extent(&self) -> RwLockWriteGuard<'_, ()> {
        self.extent.write()
    }

    /// Whether pages are read where the medium is mapped.
    #[cfg(all(test, not(weft_shuttle)))]
    pub(crate) fn maps(&self) -> bool {
        self.frames.maps()
    }

    /// Puts new pages of zeros, dirty, into frames, all of them or none.
    pub(super) fn place_all_new(&self, new: Vec<(u32, Desc)>) -> bool {
        let mut frames: Vec<FreeFrame> = Vec::with_capacity(new.len());
        let mut free = self.free.lock();
        frames.extend((0..new.len()).map_while(|_| free.take(&self.frames)));
        if frames.len() < new.len() {
            free.recycled.extend(frames.into_iter().map(|free| free.frame));
            return false;
        }
        drop(free);
        frames.into_iter().zip(new).for_each(|(frame, (page, desc))| self.place_in(frame, page, desc));
        true
    }

    /// Puts a new page of zeros, dirty, into a frame that was free.
    fn place_in(&self, FreeFrame { frame, is_new }: FreeFrame, page: u32, desc: Desc) {
        if !is_new {
            // SAFETY: the frame was free, so nobody else has a reference into it.
            unsafe { self.frames.frame(frame).write([0; PAGE_BYTES]) };
        }
        self.versions.note_new(page);
        self.table.set(page, desc);
        self.publish(page, frame);
        if let Some(hot) = self.table.hot(page) {
            self.mark_dirty(hot);
        }
    }

    fn publish(&self, page: u32, frame: u32) {
        if (frame as usize) < self.holds.len() {
            self.take_in(page, frame);
        }
        if let Some(hot) = self.table.hot(page) {
            // The frame's bits are zero, so adding sets them and keeps what others set.
            hot.fetch_or((u64::from(frame) + 1) | USE_ONE, Ordering::AcqRel);
        }
    }

    /// The number of a page's class.
    fn class_of(&self, page: u32) -> u8 {
        let word = self.table.load(page);
        self.classes.number(word.owner(), PagePart::of(page, word))
    }

    /// Notes that a page is in a frame.
    fn take_in(&self, page: u32, frame: u32) {
        let class = self.class_of(page);
        self.classes.count(ClassCounter::Resident, class, 1);
        self.holds[frame as usize].store(u64::from(page) | u64::from(class) << 32, Ordering::Release);
    }

    /// Notes that no page is in a frame any more; the class of the one that was.
    fn let_go(&self, frame: u32) -> u8 {
        let class = (self.holds[frame as usize].swap(NOBODY, Ordering::AcqRel) >> 32) as u8;
        self.classes.count(ClassCounter::Resident, class, 1u64.wrapping_neg());
        class
    }

    /// The tag of the pages of a home.
    pub(crate) fn tag_of(&self, home: u16) -> Tag {
        let (owner, class) = self.classes.of(home);
        let flags = if self.erasure.is_of(home) { TagFlags::SECURE_DELETE } else { TagFlags::empty() };
        Tag { owner, class, flags, ..Tag::default() }
    }

    /// Counts the pages in memory in the classes that their homes have now.
    pub(crate) fn reclass(&self) {
        let _stays = self.residency.read();
        for frame in &self.holds {
            let was = frame.load(Ordering::Acquire);
            let class = self.class_of(was as u32);
            let now = u64::from(was as u32) | u64::from(class) << 32;
            if was == NOBODY || was == now {
                continue;
            }
            // The page may go meanwhile; a count is never below the truth.
            self.classes.count(ClassCounter::Resident, class, 1);
            let is_done = frame.compare_exchange(was, now, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            let given_up = if is_done { (was >> 32) as u8 } else { class };
            self.classes.count(ClassCounter::Resident, given_up, 1u64.wrapping_neg());
        }
    }

    /// Pages read from the medium.
    pub(crate) fn faults(&self) -> u64 {
        self.classes.counted(ClassCounter::Misses).sum()
    }

    /// Forgets a page: its number is free afterwards. The caller holds its partition alone and no access to pages. Whether
    /// a snapshot needs its block, which is not to be released then.
    pub(crate) fn drop_page(&self, page: u32) -> bool {
        let (Some(hot), Some(slot)) = (self.table.hot(page), self.table.desc(page)) else { return false };
        // Shared: nobody takes the frame away meanwhile. To wait for the readers of all s-nodes took a fifth of their rate.
        let _stays = self.residency.read();
        let now = Hot(hot.load(Ordering::Acquire));
        // Frames of a mapped medium have no such word: the address is not used.
        let word = |frame: u32| self.holds.as_ptr().wrapping_add(frame as usize);
        now.frame().into_iter().for_each(|frame| weft_sys::prefetch(word(frame)));
        let before = slot.lock().clone();
        let dirty = now.frame().filter(|_| now.is_dirty());
        // SAFETY: the partition is held alone, so nobody has a reference into the frame.
        let dirty = dirty.map(|frame| unsafe { &*self.frames.frame(frame) });
        let is_kept = self.versions.note_gone(page, &before, dirty);
        // Both under the descriptor's lock, under which a read that ends publishes its frame, or finds another descriptor.
        let mut desc = slot.lock();
        let was = Hot(hot.swap(0, Ordering::AcqRel));
        *desc = Desc::default();
        if was.is_dirty() {
            self.dirty.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(frame) = was.frame().filter(|frame| !self.frames.is_mapped(*frame)) {
            self.let_go(frame);
            self.clear_frame(frame, before.snode);
            self.free.lock().recycled.push(frame);
        }
        is_kept
    }

    /// Reads pages that are not in memory with `read`, many at the same time. No reference into a frame may be held by the caller.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] for a page whose checksum does not hold; [`Error::CacheFull`].
    pub(crate) fn fault(&self, pages: &[u32], read: impl Fn(&mut Reads<'_>) -> io::Result<()>) -> Result<()> {
        for group in pages.chunks(FAULT_PAGES.min(self.capacity() / 4).max(1)) {
            let mut wanted = self.map_group(group)?;
            while !wanted.is_empty() {
                wanted = self.fault_group(&wanted, &read)?;
            }
        }
        Ok(())
    }

    /// Asks the processor for a part of a page that is in memory; whether it is.
    #[inline]
    pub(crate) fn prefetch(&self, page: u32, offset: usize) -> bool {
        let Some(frame) = self.table.load(page).frame() else { return false };
        debug_assert!(offset < PAGE_BYTES);
        weft_sys::prefetch(self.frames.frame(frame).cast::<u8>().wrapping_add(offset));
        true
    }

    /// Where a page is read from that is not in memory; `None` for one that is, or is nowhere else.
    fn wanted(&self, page: u32) -> Option<MediumPage> {
        let wanted = MediumPage::by(&self.table.desc(page)?.lock());
        (self.table.load(page).frame().is_none() && wanted.block != 0).then_some(wanted)
    }

    /// Makes pages readable where the medium is mapped; those that have to be read are returned.
    fn map_group(&self, pages: &[u32]) -> Result<Vec<u32>> {
        if !self.frames.maps() {
            return Ok(pages.to_vec());
        }
        let mut unmapped = Vec::new();
        let mut faults = Vec::with_capacity(pages.len());
        pages.iter().for_each(|page| self.table.prefetch_desc(*page));
        // A page may move meanwhile. Its block must not go before it was looked at: that would be the end of the process.
        let _stays = self.extent.read();
        for page in pages {
            let Some(wanted) = self.wanted(*page) else { continue };
            match self.frames.frame_of(wanted.block) {
                Some((frame, mapped)) => faults.push((Fault { page: *page, frame, wanted }, mapped)),
                None => unmapped.push(*page),
            }
        }
        // All are begun before the first is waited for.
        let begun: Vec<_> = faults.iter().map(|(fault, mapped)| mapped.begin(fault.wanted.block)).collect();
        let mut begun = begun.into_iter();
        // What fails, or does not hold, is read once more: that says why, or finds that the page has moved.
        faults.retain(|(fault, mapped)| {
            let block = fault.wanted.block;
            let is_there = begun.next().is_some_and(|begun| mapped.finish(block, begun).is_ok());
            if !is_there {
                unmapped.push(fault.page);
            }
            is_there
        });
        for (at, (fault, _)) in faults.iter().enumerate() {
            // A checksum waits for memory line by line, unless the page was asked for before: while that of another is taken.
            if let Some((next, _)) = faults.get(at + 1) {
                prefetch_page(self.frames.frame(next.frame));
            }
            // What is seen of a block from which the page moves meanwhile does not count.
            if !matches!(self.end_fault(fault, true)?, ReadEnd::There) {
                unmapped.push(fault.page);
            }
        }
        Ok(unmapped)
    }

    /// Whether a page is read where the medium is mapped.
    #[inline]
    pub(super) fn is_mapped(&self, hot: &AtomicU64) -> bool {
        Hot(hot.load(Ordering::Relaxed)).frame().is_some_and(|frame| self.frames.is_mapped(frame))
    }

    /// Copies a page that is read where the medium is mapped into a frame of its own, to be changed or written; the frame, if one is
    /// free. The caller has access to pages, and nobody else does this with the page meanwhile.
    #[cold]
    pub(super) fn bring_in(
        &self,
        page: u32,
        hot: &AtomicU64,
        from: *const [u8; PAGE_BYTES],
    ) -> Option<*mut [u8; PAGE_BYTES]> {
        let frame = self.free.lock().take(&self.frames)?.frame;
        let to = self.frames.frame(frame);
        // SAFETY: the frame was free, so nobody else has a reference into it; the mapped block is not written while the page is
        // in it.
        unsafe { to.copy_from_nonoverlapping(from, 1) };
        self.take_in(page, frame);
        let moved = |word| Some(word & !0xffff_ffff | u64::from(frame + 1));
        // Others may note uses meanwhile.
        let _ = hot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, moved);
        Some(to)
    }

    /// Reads pages; those that were moved meanwhile, or that there was no room for, are returned, to be tried again.
    fn fault_group(
        &self,
        pages: &[u32],
        read: impl Fn(&mut Reads<'_>) -> io::Result<()>,
    ) -> Result<Vec<u32>> {
        let mut faults = Vec::with_capacity(pages.len());
        let mut reads = Vec::with_capacity(pages.len());
        let mut reading = Reading { pool: self, frames: 0 };
        let mut again = Vec::new();
        for (at, page) in pages.iter().enumerate() {
            let Some(wanted) = self.wanted(*page) else { continue };
            let frame = loop {
                match (reading.take(), faults.is_empty()) {
                    (Some(frame), _) => break Some(frame),
                    (None, true) => self.make_room(1)?,
                    // Who has frames already does not wait for those of others, who may wait for these.
                    (None, false) => match self.search(1) {
                        Search::Found => {}
                        Search::Later | Search::Nothing => break None,
                    },
                }
            };
            let Some(frame) = frame else {
                again.extend_from_slice(&pages[at..]);
                break;
            };
            // SAFETY: the frame was free and is not published yet, so this is the only reference into it.
            let bytes = unsafe { &mut *self.frames.frame(frame) };
            faults.push(Fault { page: *page, frame, wanted });
            reads.push((wanted.block, bytes.as_mut_slice()));
        }
        let read = read(&mut reads);
        drop(reads);
        let (mut unread, mut has_moved) = (None, false);
        for (at, fault) in faults.iter().enumerate() {
            let done = self.end_fault(fault, read.is_err());
            match done {
                Ok(ReadEnd::There) => {}
                Ok(ReadEnd::Moved { is_there }) => {
                    has_moved = true;
                    again.extend((!is_there).then_some(fault.page));
                }
                Ok(ReadEnd::Unread) => {
                    unread = unread.or(Some(fault.wanted.block));
                    again.push(fault.page);
                }
                Err(_) => self.give_back(faults[at + 1..].iter().map(|fault| fault.frame)),
            }
            done?;
        }
        match (read, unread) {
            // Where a page has moved meanwhile, there may be nothing to be read where it was.
            (Err(source), Some(block)) if !has_moved => Err(Error::Io { what: "read a page", block, source }),
            _ => Ok(again),
        }
    }

    /// Publishes a page that was read, or is mapped, if it is still where it was. Whether another page may be in its frame: one of the reads
    /// failed, or nothing was read yet.
    fn end_fault(&self, fault: &Fault, may_be_unread: bool) -> Result<ReadEnd> {
        let Fault { page, frame, wanted } = *fault;
        let Some(slot) = self.table.desc(page) else { return Ok(ReadEnd::There) };
        // SAFETY: the frame is not published yet, and the reads have ended; a mapped block is there, and is not written as long as the
        // page is said to be in it.
        let bytes = unsafe { &*self.frames.frame(frame) };
        let crc = crc32c(bytes);
        let now = slot.lock();
        let is_there = self.table.load(page).frame().is_some();
        let ended = if MediumPage::by(&now) != wanted {
            Ok(ReadEnd::Moved { is_there })
        } else if is_there {
            Ok(ReadEnd::There)
        } else if crc != wanted.crc && may_be_unread {
            Ok(ReadEnd::Unread)
        } else if crc != wanted.crc {
            let block = wanted.block;
            Err(Error::damaged(format!("page {page} at block {block}: its checksum does not hold")))
        } else if let Err(error) = now.check_table(as_words(bytes), page) {
            Err(error)
        } else {
            let class = self.class_of(page);
            self.classes.count(ClassCounter::Misses, class, 1);
            self.publish(page, frame);
            return Ok(ReadEnd::There);
        };
        drop(now);
        self.give_back(std::iter::once(frame));
        ended
    }

    /// Gives frames back that pages were to be read into.
    fn give_back(&self, frames: impl Iterator<Item = u32>) {
        self.free.lock().recycled.extend(frames.filter(|frame| !self.frames.is_mapped(*frame)));
    }

    /// Takes frames from clean pages until so many are free, and waits for those that pages are being read into where there are no
    /// others. The caller has no such frame.
    ///
    /// # Errors
    /// [`Error::CacheFull`] when the pages are dirty.
    pub(crate) fn make_room(&self, frames: usize) -> Result<()> {
        loop {
            match self.search(frames) {
                Search::Found => return Ok(()),
                Search::Nothing => return Err(Error::CacheFull { pages: self.capacity() }),
                Search::Later => {
                    let mut free = self.free.lock();
                    if free.reading > 0 {
                        self.reads_ended.wait(&mut free);
                    }
                }
            }
        }
    }

    /// Takes frames from clean pages, as the policy and its order say. Pages of edge tables, which answer for hundreds of edges each, have two
    /// uses where pages of nodes have one.
    fn search(&self, frames: usize) -> Search {
        let _alone = self.residency.write();
        let mut free = self.free.lock();
        let count = self.frames.count() as u32;
        let is_found = |free: &FreeFrames| free.recycled.len() + (count - free.unused) as usize >= frames;
        if is_found(&free) {
            return Search::Found;
        }
        let wanted = (count as usize / 64).clamp(frames, frames.max(1024));
        let goal = wanted.saturating_sub(free.recycled.len()) as u64;
        let resident = self.classes.counted(ClassCounter::Resident);
        let FreeFrames { recycled, evictor, .. } = &mut *free;
        evictor.evict(resident, goal, &mut Evicting { pool: self, recycled });
        match (is_found(&free), free.reading) {
            (true, _) => Search::Found,
            (false, 0) => Search::Nothing,
            (false, _) => Search::Later,
        }
    }

    /// Clears a frame that a page of `snode` has left and nobody can find any more, where that is erased.
    fn clear_frame(&self, frame: u32, snode: u16) {
        if self.erasure.is_of(snode) {
            // SAFETY: no page is in the frame any more and it is not free yet, so this is the only reference into it.
            unsafe { self.frames.frame(frame).write([0; PAGE_BYTES]) };
        }
    }

    /// Notes a use. Pages of tables, which have the numbers above those of nodes, count twice.
    #[inline]
    pub(super) fn touch(&self, page: u32, hot: &AtomicU64, word: u64) {
        let uses = if page >= DATA_PAGES_MAX { 2 * USE_ONE } else { USE_ONE };
        if word & USE_MASK < uses {
            // Two threads at once can add one too many bits at most, never carry: or sets, it does not add.
            hot.fetch_or(uses, Ordering::Relaxed);
        }
    }
}

/// Pages that leave their frames. Its maker has all residency.
struct Evicting<'p> {
    pool: &'p Pool,
    recycled: &'p mut Vec<u32>,
}

impl Evicting<'_> {
    /// The page that could leave a frame: its word in the page table, and the number of its class.
    fn page_in(&self, frame: u32) -> Option<(&AtomicU64, u8)> {
        let held = self.pool.holds[frame as usize].load(Ordering::Relaxed);
        let hot = self.pool.table.hot(held as u32).filter(|_| held != NOBODY)?;
        let word = hot.load(Ordering::Relaxed);
        // A page that is just being published may not know of its frame yet.
        (word & DIRTY == 0 && Hot(word).frame() == Some(frame)).then_some((hot, (held >> 32) as u8))
    }
}

impl CacheFrames for Evicting<'_> {
    fn class(&self, frame: u32) -> Option<PageClass> {
        self.page_in(frame).map(|(_, class)| PageClass::numbered(class))
    }

    fn take_use(&mut self, frame: u32) -> bool {
        let Some((hot, _)) = self.page_in(frame) else { return false };
        let is_used = hot.load(Ordering::Relaxed) & USE_MASK != 0;
        if is_used {
            // Nobody else takes uses away meanwhile.
            hot.fetch_sub(USE_ONE, Ordering::Relaxed);
        }
        is_used
    }

    fn evict(&mut self, frame: u32) {
        let Some((hot, _)) = self.page_in(frame) else { return };
        let was = hot.fetch_and(!0xffff_ffff, Ordering::Relaxed);
        let class = self.pool.let_go(frame);
        self.pool.classes.count(ClassCounter::Evictions, class, 1);
        self.pool.clear_frame(frame, Hot(was).owner());
        self.recycled.push(frame);
    }
}

fn prefetch_page(page: *const [u8; PAGE_BYTES]) {
    for line in (0..PAGE_BYTES).step_by(64) {
        weft_sys::prefetch(page.cast::<u8>().wrapping_add(line));
    }
}
