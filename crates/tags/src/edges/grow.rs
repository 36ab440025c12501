//! Splits and merges the pages of a table.
//!
//! The cells of a page that is full are shared out anew among it and a neighbour, and one page more unless these have room for them. So two
//! pages of cells become three, where halving a page would leave two half full. With more neighbours pages would be fuller, by a tenth with
//! three, and each insertion would move twice as many cells. The other way round, neighbours whose cells fit fewer pages by three quarters are merged.
//!
//! Each of the pages gets an equal part of the positions if that leaves room in all of them, as it does where hashes are spread evenly; else an
//! equal part of the cells.

use super::FIRST_BUNDLE;
use super::directory::{Directory, PageEnd};
use super::table::{HEADER_WORDS, PAGE_WORDS, Table, share_of, upper};
use crate::error::{Error, Step, StepError};
use crate::pages::Words;
use crate::pages::access::{PageWriter, Pages};
use crate::pages::desc::{Desc, Share};
use crate::pages::numbers::take_numbers;

/// Pages that share out their cells, at most, before one is added: the full one, and the one before or behind it.
const NEIGHBOURS: usize = 2;
/// Pages that are merged together, at most.
pub(crate) const MERGED_PAGES: usize = 5;

/// Pages that follow each other, without links.
struct Neighbours {
    first: u32,
    pages: Vec<PageEnd>,
}

impl Neighbours {
    fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.pages.iter().map(|(_, page)| *page)
    }

    fn last(&self) -> u32 {
        self.pages.last().map_or(self.first, |(last, _)| *last)
    }

    /// The ends of `count` parts with as many positions each.
    fn halved(&self, count: usize) -> Vec<u32> {
        let (first, positions) = (u64::from(self.first), u64::from(self.last() - self.first) + 1);
        let ends = (1..=count as u64).map(|part| first + positions * part / count as u64);
        // Of few positions, some parts would have none.
        let mut lasts: Vec<u32> = ends.filter(|end| *end > first).map(|end| (end - 1) as u32).collect();
        lasts.dedup();
        lasts
    }
}

impl<const W: usize> Table<W> {
    /// The most cells of a page that others were merged into.
    const MERGED: usize = (Self::CELLS * 3) / 4;
    /// Cells of each of the pages, up to which none is added.
    const SPREAD: usize = (Self::FULL * 4) / 5;

    /// The first page of a table without any.
    pub(super) fn begin(&mut self, pages: &mut PageWriter<'_>) -> Step<()> {
        let page = self.place_new(pages, &[Share::ALL])?;
        self.settle(pages, 0, &[(Share::ALL.last, page[0])], &[Filled::EMPTY])
    }

    /// Links one more page to that of a single position, and to those that are linked to it.
    pub(super) fn add_link(&mut self, pages: &mut PageWriter<'_>, head: u32) -> Step<u32> {
        let share = share_of(pages.words(head)?)?;
        let share = Share { link: self.directory.links(head).len() as u32 + 1, ..share };
        let page = self.place_new(pages, &[share])?[0];
        self.write_header(pages, page, share)?;
        self.directory.link(head, std::iter::once(page));
        Ok(page)
    }

    /// Places empty pages, all of them or none.
    fn place_new(&self, pages: &mut PageWriter<'_>, shares: &[Share]) -> Step<Vec<u32>> {
        let mut numbers = Vec::new();
        let placed = shares.iter().map(|share| {
            let page = take_numbers(&pages.pool().numbers.tables, 1)?;
            numbers.push(page);
            Ok((page, Desc::table(pages.snode(), self.id, *share, self.is_hashed)))
        });
        let placed = placed.collect::<Step<Vec<_>>>();
        if let Err(halt) = placed.and_then(|placed| pages.place_all_new(placed)) {
            numbers.into_iter().for_each(|page| pages.pool().numbers.tables.lock().give_back(page, 1));
            return Err(halt);
        }
        Ok(numbers)
    }

    /// Shares out the cells of a page that is full, and answers for more than one position, among more pages. Nothing has changed when it
    /// halts.
    pub(super) fn split(&mut self, pages: &mut PageWriter<'_>, page: u32) -> Step<()> {
        let share = share_of(pages.words(page)?)?;
        let mut old = self.neighbours_of(share);
        // To be changed: where the medium is mapped this may halt for want of a frame, which it must not do further on.
        old.numbers().try_for_each(|page| pages.words_mut(page).map(drop))?;
        let cells = old.numbers().map(|page| Self::counted(pages, page)).sum::<Step<usize>>()?;
        let count = old.pages.len() + usize::from(cells > old.pages.len() * Self::SPREAD);
        let (mut lasts, mut filled) = self.share_out(pages, &old, count)?;
        if lasts.len() < old.pages.len() {
            // Many cells of few positions fit fewer pages by chance: none is given up here.
            old = Neighbours { first: share.first, pages: vec![(share.last, page)] };
            (lasts, filled) = self.share_out(pages, &old, 2)?;
        }
        let more = lasts.len().saturating_sub(old.pages.len());
        let added = self.place_new(pages, &vec![Share::ALL; more])?;
        let numbers: Vec<PageEnd> = lasts.into_iter().zip(old.numbers().chain(added)).collect();
        self.settle(pages, old.first, &numbers, &filled)
    }

    /// A page and some beside it.
    fn neighbours_of(&self, share: Share) -> Neighbours {
        let is_plain = |(_, page): &PageEnd| self.directory.links(*page).is_empty();
        let mut pages: Vec<PageEnd> =
            self.directory.before(share.first).take(NEIGHBOURS - 1).take_while(is_plain).collect();
        pages.reverse();
        let room = NEIGHBOURS - pages.len();
        pages.extend(self.directory.from(share.first).take(room).take_while(is_plain));
        let first = pages.first().map_or(0, |(last, _)| self.directory.first_of(*last));
        Neighbours { first, pages }
    }

    /// Where the shares of so many pages, or some more, end, and the cells in them.
    fn share_out(
        &self,
        pages: &PageWriter<'_>,
        old: &Neighbours,
        count: usize,
    ) -> Step<(Vec<u32>, Vec<Filled>)> {
        let lasts = old.halved(count);
        let filled = self.lay_out(pages, old, &lasts)?;
        if filled.iter().all(|part| part.count < Self::FULL) {
            return Ok((lasts, filled));
        }
        let mut positions = Vec::new();
        for page in old.numbers() {
            positions.extend(Self::cells(pages.words(page)?).map(|cell| upper(self.position(&cell))));
        }
        positions.sort_unstable();
        let lasts = Self::part(&positions, old, count);
        let filled = self.lay_out(pages, old, &lasts)?;
        if filled.iter().any(|part| part.count > Self::CELLS) {
            return Err(self.strange(old));
        }
        Ok((lasts, filled))
    }

    /// Where the shares of pages end that have as many cells each. Positions are in order; cells of one stay together, and so many of them that
    /// they fill a page have it alone.
    fn part(positions: &[u32], old: &Neighbours, count: usize) -> Vec<u32> {
        let most = positions.len().div_ceil(count);
        let (mut lasts, mut first, mut cells) = (Vec::new(), old.first, 0);
        for alike in positions.chunk_by(|a, b| a == b) {
            let (position, fills) = (alike[0], alike.len() >= Self::FULL);
            if position > first && (fills || cells > 0 && cells + alike.len() > most) {
                lasts.push(position - 1);
                (first, cells) = (position, 0);
            }
            cells += alike.len();
            if fills && position < old.last() {
                lasts.push(position);
                (first, cells) = (position + 1, 0);
            }
        }
        lasts.push(old.last());
        lasts
    }

    /// The cells of pages, as they lie in pages with other shares. Of those for which a page has no room none
    /// lies anywhere: they are only counted.
    fn lay_out(&self, pages: &PageWriter<'_>, old: &Neighbours, lasts: &[u32]) -> Step<Vec<Filled>> {
        let mut filled = vec![Filled::EMPTY; lasts.len()];
        let (inner, all) = (&lasts[..lasts.len() - 1], old.first..=old.last());
        let mut are_theirs = true;
        for page in old.numbers() {
            Self::cells(pages.words(page)?).for_each(|cell| {
                let position = self.position(&cell);
                are_theirs &= all.contains(&upper(position));
                let part: usize = inner.iter().map(|last| usize::from(*last < upper(position))).sum();
                let Filled { words, count } = &mut filled[part];
                *count += 1;
                if *count <= Self::CELLS {
                    Self::put(words, position, cell);
                }
            });
        }
        if are_theirs { Ok(filled) } else { Err(self.strange(old)) }
    }

    fn strange(&self, old: &Neighbours) -> StepError {
        let page = old.pages.first().map_or(0, |(_, page)| *page);
        let strange = format!("edge table {}: cells near page {page} are not in their pages", self.id);
        Error::damaged(strange).into()
    }

    /// Puts cells into pages, and the pages in the place of those that answered for the same positions. All of them are in memory and to be changed
    /// already.
    fn settle(
        &mut self,
        pages: &mut PageWriter<'_>,
        first: u32,
        new: &[PageEnd],
        filled: &[Filled],
    ) -> Step<()> {
        let mut next = first;
        for ((last, page), filled) in new.iter().zip(filled) {
            let words = pages.words_mut(*page)?;
            words[HEADER_WORDS..].copy_from_slice(&filled.words[HEADER_WORDS..]);
            pages.note_cells(*page, filled.count);
            self.write_header(pages, *page, Share { first: next, last: *last, link: 0 })?;
            next = last.wrapping_add(1);
        }
        self.directory.replace(first, new);
        Ok(())
    }

    /// Notes a page's share in it and in its descriptor.
    fn write_header(&self, pages: &mut PageWriter<'_>, page: u32, share: Share) -> Step<()> {
        let desc = Desc::table(pages.snode(), self.id, share, self.is_hashed);
        pages.words_mut(page)?[1..4].copy_from_slice(&desc.body[..3]);
        if let Some(desc) = pages.pool().table.desc(page) {
            desc.lock().set_share(share);
        }
        Ok(())
    }

    /// Merges the page of a position and those behind it into fewer pages where the cells fill three quarters of what stays
    /// at most: the others are appended to `freed`. Returns the position of what has to be
    /// looked at next: before the pages that were merged, or behind the first. Halts before anything has changed.
    ///
    /// Called for each page in the order of positions, it leaves nothing that could be merged so.
    pub(crate) fn merge_at(
        &mut self,
        pages: &mut PageWriter<'_>,
        position: u32,
        freed: &mut Vec<u32>,
    ) -> Step<Option<u32>> {
        let Some((last, _)) = self.directory.until(position) else { return Ok(None) };
        let first = self.directory.first_of(last);
        let near: Vec<PageEnd> = self.directory.from(first).take(MERGED_PAGES).collect();
        let mut old = Neighbours { first, pages: Vec::new() };
        for (last, page) in near {
            if self.drop_empty_links(pages, page, freed)? {
                break;
            }
            old.pages.push((last, page));
        }
        let counts = old.numbers().map(|page| Self::counted(pages, page)).collect::<Step<Vec<_>>>()?;
        for most in (2..=old.pages.len()).rev() {
            let cells: usize = counts[..most].iter().sum();
            let count = cells.div_ceil(Self::MERGED).max(1);
            if count >= most {
                continue;
            }
            old.pages.truncate(most);
            let (lasts, filled) = self.share_out(pages, &old, count)?;
            if lasts.len() >= most {
                continue;
            }
            let numbers: Vec<PageEnd> = lasts.into_iter().zip(old.numbers()).collect();
            // To be changed: what halts does so here.
            numbers.iter().try_for_each(|(_, page)| pages.words_mut(*page).map(drop))?;
            self.settle(pages, first, &numbers, &filled)?;
            freed.extend(old.numbers().skip(numbers.len()));
            // Those before it may be merged with what it has become.
            let before = self.directory.before(first).take(MERGED_PAGES - 1).last();
            return Ok(Some(before.map_or(first, |(last, _)| last)));
        }
        Ok(last.checked_add(1))
    }

    /// Gives up links of a page that have no cell; whether it has others.
    fn drop_empty_links(&mut self, pages: &mut PageWriter<'_>, page: u32, gone: &mut Vec<u32>) -> Step<bool> {
        while let Some(link) = self.directory.links(page).last().copied() {
            if Self::counted(pages, link)? > 0 {
                return Ok(true);
            }
            self.directory.unlink(page);
            gone.push(link);
        }
        Ok(false)
    }

    /// Makes the index as small as the pages that are left allow, and gives up the last page of a table without cells. A bundle, of which a
    /// cell says that it is there, keeps it.
    pub(crate) fn end_merge(&mut self, pages: &mut PageWriter<'_>, freed: &mut Vec<u32>) -> Step<()> {
        self.directory.make_index();
        if let Some(page) = self.directory.only_page().filter(|_| !self.directory.has_links())
            && self.id < FIRST_BUNDLE
            && Self::counted(pages, page)? == 0
        {
            freed.push(page);
            self.directory = Directory::default();
        }
        Ok(())
    }

    /// The pages from `position` on whose cells were not counted yet, of the next `max` pages: each of them has to be read.
    pub(crate) fn uncounted(&self, pages: &PageWriter<'_>, position: u32, max: usize) -> Vec<u32> {
        let next = self.directory.from(position).take(max).flat_map(|(_, page)| self.directory.chain(page));
        next.filter(|page| pages.cells(*page).is_none() && pages.peek(*page).is_none()).collect()
    }
}

/// Cells of a page that is put together from nothing.
#[derive(Clone)]
struct Filled {
    words: Words,
    count: usize,
}

impl Filled {
    const EMPTY: Filled = Filled { words: [0; PAGE_WORDS], count: 0 };
}
#[cfg(test)]
#[cfg(not(weft_shuttle))]
mod tests {
    use super::*;
    use crate::ids::HomeId;
    use crate::ids::NodeId;
    use crate::tx::apply::drop_table_pages;
    use crate::{MemoryStore, Options, Store};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// A table, and the cells that it has to have.
    struct TableAndCells<'s, const W: usize> {
        store: &'s Store,
        table: Table<W>,
        cells: Vec<[u64; W]>,
    }

    impl<const W: usize> TableAndCells<'_, W> {
        fn step<T>(&mut self, mut step: impl FnMut(&mut Table<W>, &mut PageWriter<'_>) -> Step<T>) -> T {
            let partition = self.store.partition(HomeId::FIRST).unwrap();
            let table = &mut self.table;
            let done = self.store.write(&mut partition.write(), |pages, _| step(table, pages));
            done.unwrap()
        }

        fn insert(&mut self, cell: [u64; W]) {
            self.cells.push(cell);
            self.step(|table, pages| table.insert(pages, cell));
        }

        fn remove(&mut self, at: usize) {
            let cell = self.cells.swap_remove(at);
            self.step(|table, pages| {
                let first = cell[0];
                let place = table.find(pages, first, |place, found| Ok((found == cell).then_some(place)))?;
                table.remove(pages, place.expect("the cell is there"))
            });
        }

        /// As `shrink` does: how many pages went.
        fn merge(&mut self) -> usize {
            let mut gone = 0;
            let mut position = Some(0);
            while let Some(at) = position {
                let mut freed = Vec::new();
                position = self.step(|table, pages| table.merge_at(pages, at, &mut freed));
                gone += freed.len();
                drop_table_pages(self.store, freed);
            }
            let mut freed = Vec::new();
            self.step(|table, pages| table.end_merge(pages, &mut freed));
            gone += freed.len();
            drop_table_pages(self.store, freed);
            gone
        }

        /// Whether each cell is found, nothing else is there, and every page says rightly what it answers for.
        fn check(&mut self) {
            let cells = self.cells.clone();
            let all = self.step(|table, pages| {
                for cell in &cells {
                    let mut times = 0;
                    table.find(pages, cell[0], |_, found| {
                        times += usize::from(found == *cell);
                        Ok(None::<()>)
                    })?;
                    assert_eq!(times, 1, "{cell:x?}");
                }
                let mut all = 0;
                for page in table.walk() {
                    let words = pages.words(page)?;
                    let share = share_of(words)?;
                    all += Table::<W>::count(words);
                    Table::<W>::cells(words)
                        .for_each(|cell| assert!(share.covers(upper(table.position(&cell)))));
                    assert_eq!(pages.cells(page), Some(Table::<W>::count(words)));
                    assert_eq!(pages.pool().table.describe(page).share()?, share);
                }
                Ok(all)
            });
            assert_eq!(all, self.cells.len());
            let shares = self.table.walk().map(|page| {
                let desc = self.store.pool.table.describe(page);
                (page, desc.share().unwrap())
            });
            let shares: Vec<_> = shares.collect();
            let again = Directory::restore(self.table.id, &shares).unwrap();
            assert!(again.walk().eq(self.table.walk()));
        }
    }

    fn store() -> Store {
        let options = Options { cache_bytes: 16 << 20, ..Options::default() };
        Store::create(Box::new(MemoryStore::new()), &options).unwrap()
    }

    /// Tables that grow and shrink, of cells that `of` makes of numbers that are all different.
    fn grow_and_shrink<const W: usize>(
        seed: u64,
        id: u64,
        is_hashed: bool,
        of: impl Fn(&mut StdRng, u64) -> [u64; W],
    ) {
        let store = store();
        let mut beside = TableAndCells {
            store: &store,
            table: Table::new(id, is_hashed, store.secret),
            cells: Vec::new(),
        };
        let mut rng = StdRng::seed_from_u64(seed);
        let mut next = 0;
        for most in [8_000, 300, 3_000, 0, 2_000] {
            while beside.cells.len() != most {
                if beside.cells.len() < most || rng.random_ratio(1, 4) {
                    next += 1;
                    let cell = of(&mut rng, next);
                    beside.insert(cell);
                } else if !beside.cells.is_empty() {
                    let at = rng.random_range(0..beside.cells.len());
                    beside.remove(at);
                }
            }
            beside.check();
            let (before, cells) = (beside.table.walk().count(), beside.cells.len());
            let gone = beside.merge();
            beside.check();
            let left = beside.table.walk().count();
            assert_eq!(before - gone, left);
            // What is left is full enough.
            assert!(left <= 2 + cells * 5 / 3 / Table::<W>::CELLS, "{left} pages for {cells} cells");
            assert_eq!(beside.merge(), 0);
        }
    }

    fn to(number: u64) -> u64 {
        NodeId::at(HomeId::FIRST, 1 + (number >> 9) as u32, (number % 512 * 8) as usize).0
    }

    #[test]
    fn tables_that_grow_and_shrink_have_what_was_put_into_them() {
        for seed in 0..3 {
            grow_and_shrink(seed, 2, true, |rng, number| [rng.random::<u64>() >> (number % 3), to(number)]);
            grow_and_shrink(seed, 2, false, |_, number| [number, number]);
            grow_and_shrink(seed, 0, false, |rng, number| [rng.random_range(0..number), 1, number, number]);
        }
    }

    /// Puts cells with these hashes in, takes them out in another order, and puts them in again.
    fn in_order(hashes: &[u64], fewest_cells: usize) {
        let store = store();
        let table = Table::<2>::new(2, true, store.secret);
        let mut beside = TableAndCells { store: &store, table, cells: Vec::new() };
        for _ in 0..2 {
            for (hash, number) in hashes.iter().zip(1..) {
                beside.insert([*hash, to(number)]);
            }
            beside.check();
            let pages = beside.table.walk().count();
            assert!(pages <= 2 + hashes.len() / fewest_cells, "{pages} pages for {} cells", hashes.len());
            while beside.cells.len() > 10 {
                // The first, the last, one in the middle.
                let at = [0, beside.cells.len() - 1, beside.cells.len() / 2][beside.cells.len() % 3];
                beside.remove(at);
                if beside.cells.len().is_multiple_of(997) {
                    beside.check();
                }
            }
            beside.check();
            beside.merge();
            beside.check();
            assert_eq!(beside.table.walk().count(), 1);
            while !beside.cells.is_empty() {
                beside.remove(0);
            }
        }
    }

    #[test]
    fn cells_go_in_whatever_order_their_hashes_have() {
        let mut rng = StdRng::seed_from_u64(7);
        let mut hashes: Vec<u64> = (0..12_000).map(|_| rng.random()).collect();
        in_order(&hashes, 120);
        hashes.sort_unstable();
        in_order(&hashes, 100);
        hashes.reverse();
        in_order(&hashes, 100);
        // From both ends, and from the middle.
        let (low, high) = hashes.split_at(6_000);
        in_order(&low.iter().zip(high).flat_map(|(a, b)| [*a, *b]).collect::<Vec<_>>(), 90);
        in_order(&low.iter().rev().zip(high).flat_map(|(a, b)| [*a, *b]).collect::<Vec<_>>(), 90);
    }

    #[test]
    fn cells_go_in_however_near_each_other_their_hashes_are() {
        let mut rng = StdRng::seed_from_u64(8);
        for bits in [44, 40, 36, 33] {
            let near: Vec<u64> =
                (0..6_000).map(|_| 0x7fff << 48 | rng.random::<u64>() >> (64 - bits)).collect();
            in_order(&near, 80);
            let mixed: Vec<u64> =
                near.iter().map(|hash| if rng.random_ratio(1, 10) { rng.random() } else { *hash }).collect();
            in_order(&mixed, 80);
        }
    }

    #[test]
    fn cells_with_the_same_hash_go_into_linked_pages() {
        let mut rng = StdRng::seed_from_u64(9);
        for hash in [0, 77 << 32, u64::MAX, 5 << 60] {
            in_order(&vec![hash; 1_500], 80);
            let mixed: Vec<u64> = (0..4_000)
                .map(|_| match rng.random_range(0..4) {
                    0 => rng.random(),
                    1 => hash ^ rng.random::<u64>() >> 32,
                    2 => hash ^ 1 << 32,
                    _ => hash,
                })
                .collect();
            in_order(&mixed, 60);
        }
    }
}
