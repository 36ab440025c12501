//! Classes of pages: what kind of data they hold, and what is counted of each class.
//!
//! A page has the data class of its s-node. S-nodes that share a home were made with the same class, which is that of the home's root, so
//! a page of several s-nodes has one class too. What is counted is kept by stripes: threads that read have a line of
//! the processor's cache each, and a read that hits counts once at its end.

use super::table::Hot;
use crate::ids::{DATA_PAGES_MAX, HomeId};
use crate::sync::ThreadId;
use std::fmt;
use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use weft_core::DataClass;
use weft_core::padded::CachePadded;

/// What a page in the cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageClass {
    /// The data class of its s-node.
    pub data: DataClass,
    /// What of the s-node it holds.
    pub part: PagePart,
}

/// What of an s-node a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PagePart {
    /// Nodes that fit one page.
    Nodes,
    /// A piece of a larger node.
    Large,
    /// Edges.
    Edges,
}

impl PagePart {
    /// Each of them, in the order of their numbers.
    pub(super) const ALL: [PagePart; 3] = [PagePart::Nodes, PagePart::Large, PagePart::Edges];

    /// What the page with this number and this word in the page table holds.
    #[inline(always)]
    pub(super) fn of(page: u32, word: Hot) -> PagePart {
        match word.is_large() {
            _ if page >= DATA_PAGES_MAX => PagePart::Edges,
            true => PagePart::Large,
            false => PagePart::Nodes,
        }
    }
}

impl PageClass {
    /// How many there are.
    pub const COUNT: usize = 21;

    /// The class with this number, by which frames name it.
    pub(super) fn numbered(number: u8) -> PageClass {
        PageClass {
            data: DataClass::from_u8(number / 3).unwrap_or_default(),
            part: PagePart::ALL[usize::from(number % 3)],
        }
    }

    /// Every class.
    pub fn all() -> impl Iterator<Item = PageClass> {
        DataClass::all().flat_map(|data| PagePart::ALL.map(|part| PageClass { data, part }))
    }
}

/// `small`, `small-large` or `small-edges`.
impl fmt::Display for PageClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            PagePart::Nodes => "",
            PagePart::Large => "-large",
            PagePart::Edges => "-edges",
        };
        write!(f, "{}{part}", self.data.name())
    }
}

/// A number for each class of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerClass([u64; PageClass::COUNT]);

impl PerClass {
    /// The same number for each class.
    pub fn all(value: u64) -> PerClass {
        PerClass([value; PageClass::COUNT])
    }

    /// Sum over all classes.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, value| sum.saturating_add(*value))
    }
}

impl Index<PageClass> for PerClass {
    type Output = u64;

    fn index(&self, class: PageClass) -> &u64 {
        &self.0[class.data as usize * 3 + class.part as usize]
    }
}

impl IndexMut<PageClass> for PerClass {
    fn index_mut(&mut self, class: PageClass) -> &mut u64 {
        &mut self.0[class.data as usize * 3 + class.part as usize]
    }
}

/// What the cache did with the pages of a class since the store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassReport {
    /// Class that the figures are of.
    pub class: PageClass,
    /// Pages that are in the cache now; pages that are read where a medium is mapped are not.
    pub resident: u64,
    /// Accesses to pages that were in memory. A step that has to wait for a page is counted again when it begins anew.
    pub hits: u64,
    /// Pages that were read from the medium.
    pub misses: u64,
    /// Pages that left the cache for others.
    pub evictions: u64,
}

impl ClassReport {
    /// The part of accesses that found their page in memory; `None` where there were none.
    pub fn hit_ratio(&self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| self.hits as f64 / all as f64)
    }
}

/// The counters of each class.
#[derive(Clone, Copy)]
pub(super) enum ClassCounter {
    /// Pages that came into frames, less those that left them.
    Resident,
    Hits,
    Misses,
    Evictions,
}

type Stripe = CachePadded<[[AtomicU64; PageClass::COUNT]; 4]>;

/// The classes of homes, and the counts.
pub(crate) struct Classes {
    homes: Box<[AtomicU8]>,
    /// The users who own the homes; of one that is shared that is not known.
    owners: Box<[AtomicU32]>,
    stripes: [Stripe; 8],
}

impl Classes {
    pub(super) fn new() -> Classes {
        Classes {
            homes: (0..=u16::MAX).map(|_| AtomicU8::new(0)).collect(),
            owners: (0..=u16::MAX).map(|_| AtomicU32::new(0)).collect(),
            stripes: Default::default(),
        }
    }

    /// Notes the owner and the class of a home. Pages of it that are in memory have the one before until they are [counted anew](super::pool::Pool::reclass).
    pub(crate) fn set(&self, home: HomeId, owner: u32, class: DataClass) {
        self.homes[usize::from(home.0)].store(class as u8, Ordering::Relaxed);
        let owner = if home.is_shared() { 0 } else { owner };
        self.owners[usize::from(home.0)].store(owner, Ordering::Relaxed);
    }

    /// The owner and the class of a home.
    pub(super) fn of(&self, home: u16) -> (u32, DataClass) {
        let (owner, class) = (&self.owners[usize::from(home)], &self.homes[usize::from(home)]);
        let class = DataClass::from_u8(class.load(Ordering::Relaxed)).unwrap_or_default();
        (owner.load(Ordering::Relaxed), class)
    }

    /// Whether a home is of a class.
    pub(crate) fn is_of(&self, home: HomeId, class: DataClass) -> bool {
        self.homes[usize::from(home.0)].load(Ordering::Relaxed) == class as u8
    }

    /// The number of the class of what a page holds of a home.
    #[inline]
    pub(super) fn number(&self, home: u16, part: PagePart) -> u8 {
        self.homes[usize::from(home)].load(Ordering::Relaxed) * 3 + part as u8
    }

    /// Adds to a count of a class.
    #[inline]
    pub(super) fn count(&self, what: ClassCounter, class: u8, by: u64) {
        let stripe = &self.stripes[ThreadId::here().stripe() % self.stripes.len()];
        stripe[what as usize][usize::from(class)].fetch_add(by, Ordering::Relaxed);
    }

    /// A count of all classes.
    pub(super) fn counted(&self, what: ClassCounter) -> PerClass {
        let sum = |class: usize| {
            let of = self.stripes.iter().map(|stripe| stripe[what as usize][class].load(Ordering::Relaxed));
            // What comes in one thread may leave in another.
            of.fold(0, u64::wrapping_add)
        };
        PerClass(std::array::from_fn(sum))
    }

    /// What there is to tell of the classes of which there were any pages.
    pub(crate) fn report(&self) -> Vec<ClassReport> {
        use ClassCounter::{Evictions, Hits, Misses, Resident};
        let [resident, hits, misses, evictions] =
            [Resident, Hits, Misses, Evictions].map(|what| self.counted(what));
        let of = |class| ClassReport {
            class,
            resident: resident[class],
            hits: hits[class],
            misses: misses[class],
            evictions: evictions[class],
        };
        PageClass::all().map(of).filter(|of| of.resident + of.hits + of.misses + of.evictions > 0).collect()
    }
}
