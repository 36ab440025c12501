//! The page table: for each page number one hot word, which every access reads, and its descriptor.
//!
//! The hot word holds the frame and the owner. It alone is on the way of a read that hits, 8 bytes for 4 KiB, so that the table of a
//! store of some gigabytes stays in the processor's cache.

use super::desc::{Desc, PageKind};
use crate::sync::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use weft_sys::huge::{HugeArena, HugeSlice};

/// Pages of a group, whose hot words lie together: 8 MiB of addresses, of which the kernel gives what is used.
const GROUP_PAGES: usize = 1 << 20;
const GROUPS: usize = 1 << 12;
/// Pages of a chunk, whose descriptors are made together.
const CHUNK_PAGES: usize = 1024;
/// Chunks that are made before those that lie on huge pages.
const SMALL_CHUNKS: usize = 16;
/// The page in memory differs from the medium.
pub(crate) const DIRTY: u64 = 1 << 48;
/// One use since the clock's hand last passed; two bits.
pub(crate) const USE_ONE: u64 = 1 << 49;
/// Both bits of the use counter.
pub(crate) const USE_MASK: u64 = 3 << 49;
/// The page is one of a node with pages of its own.
const LARGE: u64 = 1 << 51;
const OWNER_SHIFT: u32 = 32;

/// A hot word.
#[derive(Clone, Copy)]
pub(crate) struct Hot(pub u64);

impl Hot {
    /// The frame that the page is in.
    #[inline]
    pub(crate) fn frame(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }

    /// The s-node that owns the page; 0 for a page that is free.
    #[inline]
    pub(crate) fn owner(self) -> u16 {
        (self.0 >> OWNER_SHIFT) as u16
    }

    #[inline]
    pub(crate) fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether it is a page of a node with pages of its own.
    #[inline(always)]
    pub(crate) fn is_large(self) -> bool {
        self.0 & LARGE != 0
    }

    /// The word of a page that is not in memory.
    fn of(desc: &Desc) -> Hot {
        let is_large = matches!(desc.kind, PageKind::RunHead | PageKind::RunTail);
        Hot(u64::from(desc.snode) << OWNER_SHIFT | if is_large { LARGE } else { 0 })
    }
}

/// The descriptors of pages that follow each other.
type Chunk = HugeSlice<Line<Mutex<Desc>>>;

struct Group {
    hot: Box<[AtomicU64]>,
    /// Of pages of edge tables: one more than the cells in use, or 0 where nobody has counted. They belong to who holds the partition alone.
    /// In the hot word, which others change meanwhile, a count would wait for all writes before it.
    cells: Box<[AtomicU16]>,
    desc: Box<[OnceLock<Chunk>]>,
}

impl Group {
    fn new() -> Group {
        Group {
            // The kernel gives memory for them as they are used.
            hot: weft_sys::zeroed(GROUP_PAGES),
            cells: weft_sys::zeroed(GROUP_PAGES),
            desc: (0..GROUP_PAGES / CHUNK_PAGES).map(|_| OnceLock::new()).collect(),
        }
    }
}

/// What begins a line of the processor's cache.
#[repr(align(64))]
struct Line<T>(T);

/// Where descriptors are looked up: as they are now, or as they were for a snapshot.
pub(crate) trait Descriptors {
    /// Looks at a page's descriptor; `None` for a page that never was.
    fn look_up<T>(&self, page: u32, look: impl FnOnce(&Desc) -> T) -> Option<T>;
}

impl Descriptors for PageTable {
    #[inline]
    fn look_up<T>(&self, page: u32, look: impl FnOnce(&Desc) -> T) -> Option<T> {
        self.desc(page).map(|desc| look(&desc.lock()))
    }
}

/// What is known of every page.
pub(crate) struct PageTable {
    groups: Box<[OnceLock<Group>]>,
    arena: HugeArena,
}

impl PageTable {
    pub(crate) fn new(huge_pages: bool) -> PageTable {
        let arena = HugeArena::new(huge_pages, SMALL_CHUNKS);
        PageTable { groups: (0..GROUPS).map(|_| OnceLock::new()).collect(), arena }
    }

    #[inline]
    fn group(&self, page: u32) -> Option<&Group> {
        self.groups[page as usize / GROUP_PAGES].get()
    }

    fn make(&self, page: u32) -> (&AtomicU64, &Mutex<Desc>) {
        let group = self.groups[page as usize / GROUP_PAGES].get_or_init(Group::new);
        let at = page as usize % GROUP_PAGES;
        let descs = || (0..CHUNK_PAGES).map(|_| Line(Mutex::new(Desc::default())));
        let chunk = group.desc[at / CHUNK_PAGES].get_or_init(|| self.arena.slice(descs()));
        (&group.hot[at], &chunk[at % CHUNK_PAGES].0)
    }

    /// The hot word's cell; `None` for a page far from all that ever were.
    #[inline]
    pub(crate) fn hot(&self, page: u32) -> Option<&AtomicU64> {
        self.group(page).map(|group| &group.hot[page as usize % GROUP_PAGES])
    }

    /// What counts the cells of a page of an edge table; `None` as for [`PageTable::hot`].
    #[inline]
    pub(crate) fn cells(&self, page: u32) -> Option<&AtomicU16> {
        self.group(page).map(|group| &group.cells[page as usize % GROUP_PAGES])
    }

    /// The hot word. Acquire: what was put in the frame before it was published is seen.
    #[inline]
    pub(crate) fn load(&self, page: u32) -> Hot {
        Hot(self.hot(page).map_or(0, |hot| hot.load(Ordering::Acquire)))
    }

    /// The descriptor; `None` for a page that never was.
    #[inline]
    pub(crate) fn desc(&self, page: u32) -> Option<&Mutex<Desc>> {
        let at = page as usize % GROUP_PAGES;
        self.group(page)?.desc[at / CHUNK_PAGES].get().map(|chunk| &chunk[at % CHUNK_PAGES].0)
    }

    /// The pages below `end` whose descriptors were ever made, and some near them, in their order. Number 0 is none, and numbers may be
    /// far apart.
    pub(crate) fn known(&self, end: u32) -> impl Iterator<Item = u32> + '_ {
        let groups = (0..GROUPS).filter_map(|at| self.groups[at].get().map(|group| (at, group)));
        let chunks = groups.flat_map(|(at, group)| {
            let made = (0..GROUP_PAGES / CHUNK_PAGES).filter(|chunk| group.desc[*chunk].get().is_some());
            made.map(move |chunk| (at * GROUP_PAGES + chunk * CHUNK_PAGES) as u32)
        });
        let pages = chunks.flat_map(|first| first.max(1)..=first + (CHUNK_PAGES as u32 - 1));
        pages.take_while(move |page| *page < end)
    }

    /// Asks the processor for the descriptor.
    #[inline]
    pub(crate) fn prefetch_desc(&self, page: u32) {
        if let Some(desc) = self.desc(page) {
            weft_sys::prefetch(desc);
        }
    }

    /// A copy of the descriptor; that of a free page for one that never was.
    pub(crate) fn describe(&self, page: u32) -> Desc {
        self.desc(page).map_or_else(Desc::default, |desc| desc.lock().clone())
    }

    /// Whether the pages of a run, which `head` begins, are all there.
    pub(crate) fn has_run(&self, page: u32, head: &Desc) -> bool {
        (1..head.body[0]).all(|at| {
            let tail = self.describe(page + at as u32);
            (tail.kind, tail.snode, tail.body[0]) == (PageKind::RunTail, head.snode, at)
        })
    }

    /// Makes the page one of `desc`, not in memory. The caller has made sure that it is in no frame.
    pub(crate) fn set(&self, page: u32, desc: Desc) {
        let (hot, slot) = self.make(page);
        let mut slot = slot.lock();
        let word = Hot::of(&desc);
        *slot = desc;
        self.cells(page).into_iter().for_each(|cells| cells.store(0, Ordering::Relaxed));
        hot.store(word.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_far_from_others_takes_no_more_than_a_chunk() {
        let table = PageTable::new(true);
        for n in 0..8 {
            table.set(n * 100_000, Desc::default());
        }
        let group = table.group(0).unwrap();
        let bytes: usize = group.desc.iter().filter_map(OnceLock::get).map(|chunk| chunk.len()).sum();
        assert_eq!(bytes, 8 * CHUNK_PAGES);
    }

    #[test]
    fn pages_that_are_far_apart_are_found_without_a_look_at_all_between() {
        let table = PageTable::new(true);
        assert_eq!(table.known(u32::MAX).next(), None);
        for page in [7, 1_030, 2_000_000_000, u32::MAX - 1] {
            table.set(page, Desc { snode: 1, ..Desc::default() });
        }
        let found: Vec<_> = table.known(u32::MAX).filter(|page| table.describe(*page).snode == 1).collect();
        assert_eq!(found, [7, 1_030, 2_000_000_000, u32::MAX - 1]);
        assert_eq!(
            table.known(u32::MAX).count(),
            4 * CHUNK_PAGES - 2,
            "without the first and the last number"
        );
        assert_eq!(table.known(1_031).last(), Some(1_030));
        let first_from = |from| table.known(u32::MAX).find(|page| *page >= from);
        assert_eq!(first_from(5_000), Some(2_000_000_000 / CHUNK_PAGES as u32 * CHUNK_PAGES as u32));
        assert_eq!(first_from(1_500), Some(1_500));
    }
}
