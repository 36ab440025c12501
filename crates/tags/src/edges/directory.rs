//! Finds the page of a table that covers a position.
//!
//! A table is a run of pages in the order of positions: each answers for those from the last of the page before it on up to a last of its
//! own, which may be any. So a page can be split wherever its cells lie, whatever keys somebody chooses.
//!
//! A map from last positions to pages is the truth. Before it stands an index: an entry for each equal part of all positions, in one line
//! of the processor's cache, with the pages of that part. Hashes are spread evenly, so nearly every look-up ends there; where
//! more pages crowd a part than an entry names, the map is asked.
//!
//! ```text
//! index:  |   part 0   |   part 1   |   part 2   |   part 3   |
//! pages:  |  17  | 4 |   9   |    21    | 8 | 3 |     12      |
//! ```
//!
//! Cells of one position cannot be parted. When they fill a page that answers for nothing else, further pages are linked to it, its *links*.

use crate::error::{Error, Result};
use crate::pages::desc::Share;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Pages that an entry of the index names.
const NAMED: usize = 8;
/// In an entry: ask the map. No page has this number.
const CROWDED: u32 = u32::MAX;

/// A page, and the last of its positions.
pub(super) type PageEnd = (u32, u32);

/// Pages of one part of all positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
struct Entry {
    /// The last positions of all but the last page; what is behind them has the highest there is.
    lasts: [u32; NAMED],
    pages: [u32; NAMED],
}

impl Entry {
    const CROWDED: Entry = Entry { lasts: [u32::MAX; NAMED], pages: [CROWDED; NAMED] };
}

/// The pages of a table. A copy, as snapshots see it, shares all with this one until pages come or go.
#[derive(Clone, Default)]
pub(crate) struct Directory {
    /// By their last positions.
    pages: Arc<BTreeMap<u32, u32>>,
    /// Of pages of a single position.
    links: Arc<FxHashMap<u32, Vec<u32>>>,
    /// Empty while there is no page.
    index: Arc<[Entry]>,
    /// A position without so many of its lower bits is that of its entry.
    shift: u32,
}

impl Directory {
    /// Puts pages in order.
    ///
    /// # Errors
    /// [`Error::Damaged`] when they do not cover every position exactly once.
    pub(crate) fn restore(id: u64, pages: &[(u32, Share)]) -> Result<Directory> {
        let mut directory = Directory::default();
        let mut pages = pages.to_vec();
        pages.sort_unstable_by_key(|(page, share)| (share.first, share.link, *page));
        let damaged = |what: &str| Error::damaged(format!("edge table {id}: {what}"));
        let mut next = Some(0);
        let mut heads = Vec::with_capacity(pages.len());
        for run in pages.chunk_by(|a, b| a.1.first == b.1.first) {
            let (head, Share { first, last, .. }) = run[0];
            if next != Some(first)
                || (0..).zip(run).any(|(link, (_, share))| *share != Share { first, last, link })
            {
                return Err(damaged(&format!("page {head} does not follow the one before it")));
            }
            heads.push((last, head));
            directory.link(head, run[1..].iter().map(|(page, _)| *page));
            next = last.checked_add(1);
        }
        if next.is_some() && !pages.is_empty() {
            return Err(damaged("its last page is missing"));
        }
        directory.pages = Arc::new(heads.into_iter().collect());
        directory.make_index();
        Ok(directory)
    }

    /// The page that answers for a position; `None` while there is none.
    #[inline]
    pub(crate) fn page_of(&self, position: u32) -> Option<u32> {
        let entry = self.index.get((u64::from(position) >> self.shift) as usize)?;
        let at: u32 = entry.lasts.iter().map(|last| u32::from(*last < position)).sum();
        match entry.pages[at as usize % NAMED] {
            CROWDED => self.until(position).map(|(_, page)| page),
            page => Some(page),
        }
    }

    /// Asks the processor for what [`Directory::page_of`] looks at.
    pub(super) fn prefetch(&self, position: u32) {
        let at = (u64::from(position) >> self.shift) as usize;
        weft_sys::prefetch(self.index.as_ptr().wrapping_add(at).cast::<u8>());
    }

    /// As [`Directory::page_of`], with the page's last position.
    #[cold]
    pub(super) fn until(&self, position: u32) -> Option<PageEnd> {
        self.pages.range(position..).next().map(|(last, page)| (*last, *page))
    }

    /// The pages that answer for positions from one on, in their order.
    pub(super) fn from(&self, position: u32) -> impl Iterator<Item = PageEnd> + '_ {
        self.pages.range(position..).map(|(last, page)| (*last, *page))
    }

    /// The pages before a position, the nearest first.
    pub(super) fn before(&self, position: u32) -> impl Iterator<Item = PageEnd> + '_ {
        self.pages.range(..position).rev().map(|(last, page)| (*last, *page))
    }

    /// The first position of the page whose positions come before a given one's.
    pub(super) fn first_of(&self, last: u32) -> u32 {
        self.before(last).next().map_or(0, |(before, _)| before + 1)
    }

    /// The pages that are linked to one.
    pub(super) fn links(&self, page: u32) -> &[u32] {
        self.links.get(&page).map_or(&[], Vec::as_slice)
    }

    /// A page and those that are linked to it.
    pub(super) fn chain(&self, page: u32) -> impl Iterator<Item = u32> + Clone + '_ {
        std::iter::once(page).chain(self.links(page).iter().copied())
    }

    /// Whether any page has links.
    #[inline]
    pub(crate) fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// Links pages to one.
    pub(super) fn link(&mut self, page: u32, links: impl Iterator<Item = u32>) {
        let mut links = links.peekable();
        if links.peek().is_some() {
            Arc::make_mut(&mut self.links).entry(page).or_default().extend(links);
        }
    }

    /// Takes away the last page that is linked to one.
    pub(super) fn unlink(&mut self, page: u32) {
        let all = Arc::make_mut(&mut self.links);
        if let Some(links) = all.get_mut(&page) {
            links.pop();
            if links.is_empty() {
                all.remove(&page);
            }
        }
    }

    /// All pages, each once, in the order of their positions.
    pub(crate) fn walk(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.pages.values().flat_map(|page| self.chain(*page))
    }

    /// The only page, where there is one.
    pub(crate) fn only_page(&self) -> Option<u32> {
        let (_, page) = self.pages.first_key_value()?;
        (self.pages.len() == 1).then_some(*page)
    }

    /// Puts pages in the place of those from position `first` on up to that where the last of them ends.
    pub(super) fn replace(&mut self, first: u32, new: &[PageEnd]) {
        let Some((end, _)) = new.last().copied() else { return };
        let pages = Arc::make_mut(&mut self.pages);
        let old: Vec<u32> = pages.range(first..end).map(|(last, _)| *last).collect();
        for last in &old {
            pages.remove(last);
        }
        pages.extend(new.iter().copied());
        if self.pages.len() > self.index.len() * NAMED / 2 {
            return self.make_index();
        }
        self.fill(self.entry_of(first)..self.entry_of(end) + 1);
    }

    fn entry_of(&self, position: u32) -> usize {
        (u64::from(position) >> self.shift) as usize
    }

    /// Makes the index: with two to four pages an entry where positions are spread evenly.
    pub(super) fn make_index(&mut self) {
        if self.pages.is_empty() {
            self.index = Arc::default();
            return;
        }
        let depth = self.pages.len().div_ceil(NAMED / 2).next_power_of_two().ilog2();
        self.shift = u32::BITS - depth;
        self.index = vec![Entry::CROWDED; 1 << depth].into();
        self.fill(0..1 << depth);
    }

    /// Fills entries of the index.
    fn fill(&mut self, entries: Range<usize>) {
        let Directory { pages, index, shift, .. } = self;
        let index = Arc::make_mut(index);
        for at in entries {
            let (first, behind) = ((at as u64) << *shift, (at as u64 + 1) << *shift);
            let (mut entry, mut is_whole) = (Entry::CROWDED, false);
            for ((last, page), named) in pages.range(first as u32..).zip(0..NAMED) {
                entry.pages[named] = *page;
                is_whole = u64::from(*last) + 1 >= behind;
                if is_whole {
                    break;
                }
                entry.lasts.get_mut(named).into_iter().for_each(|named| *named = *last);
            }
            // Of more than it can name it names none.
            index[at] = if is_whole { entry } else { Entry::CROWDED };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn check(directory: &Directory, rng: &mut StdRng) {
        let mut first = 0;
        for (last, page) in directory.pages.iter() {
            for position in [first, *last, rng.random_range(first..=*last)] {
                assert_eq!(directory.page_of(position), Some(*page), "{position:#x}");
            }
            assert_eq!(directory.first_of(*last), first);
            first = last.wrapping_add(1);
        }
    }

    /// Splits at positions that `of` chooses.
    fn split_at(seed: u64, splits: u32, of: impl Fn(&mut StdRng, u32) -> u32) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut directory = Directory::default();
        directory.replace(0, &[(u32::MAX, 1)]);
        for number in 2..2 + splits {
            let at = of(&mut rng, number);
            let Some((last, page)) = directory.until(at).filter(|(last, _)| *last > at) else { continue };
            let first = directory.first_of(last);
            let pages =
                if rng.random() { [(at, number), (last, page)] } else { [(at, page), (last, number)] };
            directory.replace(first, &pages);
            if number.is_multiple_of(64) {
                check(&directory, &mut rng);
            }
        }
        check(&directory, &mut rng);
        let mut next = 0;
        let shares = directory.from(0).map(|(last, page)| {
            let share = Share { first: next, last, link: 0 };
            next = last.wrapping_add(1);
            (page, share)
        });
        let shares: Vec<_> = shares.collect();
        let again = Directory::restore(2, &shares).unwrap();
        assert_eq!(again.pages, directory.pages);
        check(&again, &mut rng);
        for missing in [0, shares.len() / 2, shares.len() - 1] {
            let mut fewer = shares.clone();
            fewer.remove(missing);
            assert!(fewer.is_empty() || Directory::restore(2, &fewer).is_err());
        }
        // Merged again: neighbours of one page each.
        while directory.pages.len() > 1 {
            let at = rng.random_range(0..directory.pages.len() - 1);
            let (_, page) = directory.from(0).nth(at).unwrap();
            let first = directory.first_of(directory.from(0).nth(at).unwrap().0);
            let (last, _) = directory.from(0).nth(at + 1).unwrap();
            directory.replace(first, &[(last, page)]);
            if directory.pages.len().is_multiple_of(64) {
                directory.make_index();
                check(&directory, &mut rng);
            }
        }
        assert_eq!(directory.page_of(77), directory.only_page());
    }

    #[test]
    fn every_position_has_its_page_wherever_pages_are_split() {
        for seed in 0..4 {
            split_at(seed, 1500, |rng, _| rng.random());
            split_at(seed, 700, |_, number| number << 8);
            split_at(seed, 700, |_, number| u32::MAX - (number << 3));
            split_at(seed, 700, |rng, _| 0x7fff_0000 + rng.random_range(0..1u32 << 16));
            split_at(seed, 700, |rng, number| if number.is_multiple_of(2) { rng.random() } else { number });
        }
    }

    #[test]
    fn a_share_that_cannot_be_is_damage() {
        for share in [Share::ALL, Share { first: 7, last: 7, link: 3 }, Share { first: 0, last: 0, link: 0 }]
        {
            assert_eq!(Share::from_words(share.words()).unwrap(), share);
        }
        for words in [[7, 0], [u64::from(u32::MAX) << 32, 1], [0, 1 << 32]] {
            assert!(Share::from_words(words).is_err(), "{words:x?}");
        }
    }

    #[test]
    fn pages_that_overlap_or_links_that_are_missing_are_damage() {
        let single = |link| Share { first: 9, last: 9, link };
        let (low, high) =
            (Share { first: 0, last: 8, link: 0 }, Share { first: 10, last: u32::MAX, link: 0 });
        let sound = vec![(1, low), (2, single(0)), (3, single(1)), (4, single(2)), (5, high)];
        let directory = Directory::restore(2, &sound).unwrap();
        assert_eq!((directory.links(2), directory.walk().count()), (&[3, 4][..], 5));
        for missing in 0..sound.len() {
            let mut fewer = sound.clone();
            fewer.remove(missing);
            assert_eq!(Directory::restore(2, &fewer).is_ok(), missing == 3, "{missing}");
        }
        for more in [(6, high), (6, single(2)), (6, Share { first: 3, last: 4, link: 0 })] {
            let mut pages = sound.clone();
            pages.push(more);
            assert!(Directory::restore(2, &pages).is_err(), "{more:?}");
        }
    }
}
