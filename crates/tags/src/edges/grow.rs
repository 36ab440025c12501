//! How a table gets pages, and gives them up again.
//!
//! A group whose page is full gets one page more, and its cells are shared out anew; five pages become two groups of three. Where
//! cells lie so unevenly that this would overfill a page, it gets more of them, up to twice as many: then each part is halved (its
//! ends are the same but for 2^-32 of the group). The other way round, pages whose cells fit fewer pages by three quarters are merged.

use super::FIRST_BUNDLE;
use super::form::Form;
use super::share::{DEPTH_MAX, Group, PARTS_HALF, PARTS_MAX, Share};
use super::table::{EDGE_TABLE, HEADER_WORDS, LINES, NewPages, PAGE_WORDS, Table, share_of};
use crate::error::{Error, Halt, Result, Step};
use crate::pages::access::{PageWriter, Pages, Words};
use crate::pages::desc::Desc;
use std::marker::PhantomData;

/// How the positions of a group are shared out: among the parts of one group, or of two that follow each other.
#[derive(Clone, Copy)]
struct Shape {
    /// Of the first group.
    prefix: u64,
    depth: u8,
    parts: u8,
    groups: u8,
}

impl Shape {
    /// That of a group's positions in so many pages, in their order: more than a group has are two groups'.
    fn of(share: Share, pages: u8) -> Option<Shape> {
        let Share { prefix, depth, .. } = share;
        if pages <= PARTS_MAX {
            Some(Shape { prefix, depth, parts: pages, groups: 1 })
        } else {
            let halved = Shape { prefix: prefix << 1, depth: depth + 1, parts: pages / 2, groups: 2 };
            pages.is_multiple_of(2).then_some(halved)
        }
    }

    /// Those with more pages, of which the last has each part halved.
    fn grown(share: Share) -> impl Iterator<Item = Shape> {
        (share.parts + 1..=2 * share.parts).filter_map(move |pages| Shape::of(share, pages))
    }

    fn pages(self) -> usize {
        usize::from(self.parts) * usize::from(self.groups)
    }

    fn shares(self) -> impl Iterator<Item = Share> {
        let Shape { prefix, depth, parts, groups } = self;
        (0..u64::from(groups)).flat_map(move |group| {
            (0..parts).map(move |part| Share { prefix: prefix + group, depth, part, parts })
        })
    }

    /// The place of a position's share among them.
    #[inline]
    fn place_of(self, position: u64) -> usize {
        let group = if self.groups > 1 { (position >> (64 - self.depth) & 1) as usize } else { 0 };
        group * usize::from(self.parts) + Share::part_of(position, self.depth, self.parts)
    }
}

impl<F: Form> Table<F> {
    /// The most cells of a page that others were merged into.
    const MERGED: usize = (Self::CELLS * 3) / 4;

    /// The first page of a table without any.
    pub(super) fn begin(&mut self, pages: &mut PageWriter<'_>, new: &mut impl NewPages) -> Step<u32> {
        let Share { prefix, depth, parts, .. } = Share::ALL;
        let shape = Shape { prefix, depth, parts, groups: 1 };
        let page = self.place_new(pages, new, shape.shares())?[0];
        (self.directory, self.depth) = (vec![Group::EMPTY], 0);
        self.settle(pages, &[page], shape, &[Filled::EMPTY])?;
        Ok(page)
    }

    /// Places empty pages, all of them or none.
    fn place_new(
        &self,
        pages: &mut PageWriter<'_>,
        new: &mut impl NewPages,
        shares: impl Iterator<Item = Share>,
    ) -> Step<Vec<u32>> {
        let (mut numbers, mut placed) = (Vec::new(), Vec::new());
        let done = shares.map(|share| {
            let page = new.take_number()?;
            numbers.push(page);
            placed.push((page, Desc::table(pages.snode(), self.id, share, F::IS_HASHED)));
            Ok(())
        });
        let done =
            done.collect::<Result<()>>().map_err(Halt::from).and_then(|()| pages.place_all_new(placed));
        match done {
            Ok(()) => Ok(numbers),
            Err(halt) => {
                numbers.into_iter().for_each(|page| new.give_back(page));
                Err(halt)
            }
        }
    }

    /// Adds pages to the group of a page that is full. Nothing has changed when it halts.
    ///
    /// # Errors
    /// [`Error::Full`] when the directory has its largest size; [`Error::Damaged`] where the positions are alike.
    pub(crate) fn grow(
        &mut self,
        pages: &mut PageWriter<'_>,
        new: &mut impl NewPages,
        page: u32,
    ) -> Step<()> {
        let words = pages.words(page)?;
        let share = share_of(words)?;
        let group = self.directory[self.entries_of(share).start];
        let old = group.pages();
        // To be changed: where the medium is mapped this may halt for want of a frame, which it must not do further on.
        old.iter().try_for_each(|page| pages.words_mut(*page).map(drop))?;
        let mut laid_out = None;
        for shape in Shape::grown(share) {
            let filled = self.lay_out(pages, old, shape)?;
            let fits = filled.iter().all(|part| part.count <= Self::FULL);
            laid_out = Some((shape, filled));
            if fits {
                break;
            }
        }
        let strange =
            |(_, filled): &(Shape, Vec<Filled<F>>)| filled.iter().any(|part| part.count > Self::CELLS);
        let Some((shape, filled)) = laid_out.filter(|laid_out| !strange(laid_out)) else {
            let strange = format!(
                "edge table {}: cells are not in the pages that they belong to, near page {page}",
                self.id
            );
            return Err(Error::damaged(strange).into());
        };
        if shape.depth > DEPTH_MAX {
            return Err(Error::Full { what: EDGE_TABLE }.into());
        }
        if filled.iter().any(|part| part.count >= Self::FULL) && !self.splits(pages, page)? {
            let alike = format!("edge table {}: the hashes of page {page} are all alike", self.id);
            return Err(Error::damaged(alike).into());
        }
        let added = self.place_new(pages, new, shape.shares().skip(old.len()))?;
        let numbers: Vec<u32> = old.iter().copied().chain(added).collect();
        self.settle(pages, &numbers, shape, &filled)
    }

    /// The cells of a group's pages, or of two groups', as they lie in pages of another shape. Of those for which a page has no room none
    /// lies anywhere: they are only counted.
    fn lay_out(&self, pages: &PageWriter<'_>, old: &[u32], shape: Shape) -> Step<Vec<Filled<F>>> {
        let mut filled = vec![Filled::EMPTY; shape.pages()];
        for page in old {
            Self::each_cell(pages.words(*page)?, |cell| {
                let position = self.position(&cell);
                filled[shape.place_of(position)].put(position, &cell);
            });
        }
        Ok(filled)
    }

    /// Makes pages those of a shape. All of them are in memory and to be changed already.
    fn settle(
        &mut self,
        pages: &mut PageWriter<'_>,
        numbers: &[u32],
        shape: Shape,
        filled: &[Filled<F>],
    ) -> Step<()> {
        while self.depth < shape.depth {
            self.directory = self.directory.iter().flat_map(|group| [*group, *group]).collect();
            self.depth += 1;
        }
        let (mut groups, snode) = ([Group::EMPTY; 2], pages.snode());
        for ((share, page), filled) in shape.shares().zip(numbers).zip(filled) {
            let words = pages.words_mut(*page)?;
            words[HEADER_WORDS..].copy_from_slice(&filled.words[HEADER_WORDS..]);
            words[1..4].copy_from_slice(&Desc::table(snode, self.id, share, F::IS_HASHED).body[..3]);
            pages.note_cells(*page, filled.count);
            if let Some(desc) = pages.pool().table.desc(*page) {
                desc.lock().set_share(share);
            }
            groups[(share.prefix - shape.prefix) as usize].put(*page, share);
        }
        for (at, group) in groups.iter().enumerate().take(usize::from(shape.groups)) {
            let share =
                Share { prefix: shape.prefix + at as u64, depth: shape.depth, part: 0, parts: shape.parts };
            let entries = self.entries_of(share);
            self.directory[entries].fill(*group);
        }
        Ok(())
    }

    /// Merges the group of `position`, or it and its buddy before it, into fewer pages where the cells fill three quarters of what stays
    /// at most: the first pages stay, the others are appended to `freed`. Returns the first position of what has to be
    /// looked at next: of the group that it has become, or behind it. Halts before anything has changed.
    ///
    /// Called for each group in the order of positions, it leaves nothing that could be merged so.
    pub(crate) fn merge_at(
        &mut self,
        pages: &mut PageWriter<'_>,
        position: u64,
        freed: &mut Vec<u32>,
    ) -> Step<Option<u64>> {
        let Some(Group { depth, parts, pages: own }) = self.group_of(position).copied() else {
            return Ok(None);
        };
        let prefix = if depth == 0 { 0 } else { position >> (64 - depth) };
        let alone = Share { prefix, depth, part: 0, parts };
        let next = Share { part: parts - 1, ..alone }.end();
        let mut old = own[..usize::from(parts)].to_vec();
        if let Some(merged) = self.merge_into(pages, alone, &old, freed)? {
            return Ok(Some(merged.first()));
        }
        let Some(before) = prefix.checked_sub(1).filter(|_| prefix & 1 == 1) else { return Ok(next) };
        let entries = self.entries_of(Share { prefix: before, ..alone });
        let buddy = self.directory[entries.start];
        if buddy.depth != depth {
            return Ok(next);
        }
        old.splice(0..0, buddy.pages().iter().copied());
        let joined = Share { prefix: prefix >> 1, depth: depth - 1, ..alone };
        let merged = self.merge_into(pages, joined, &old, freed)?;
        Ok(merged.map(Share::first).or(next))
    }

    /// Merges pages, all that there are for the positions of a group, into fewer that are one group's; the first share of it, if they fit.
    fn merge_into(
        &mut self,
        pages: &mut PageWriter<'_>,
        of: Share,
        old: &[u32],
        freed: &mut Vec<u32>,
    ) -> Step<Option<Share>> {
        // One that has fewer is its buddy's to be merged with.
        let fewest = if of.depth == 0 { 1 } else { PARTS_HALF };
        let most = usize::from(PARTS_MAX).min(old.len() - 1) as u8;
        for parts in (fewest..=most).rev() {
            let Some(shape) = Shape::of(of, parts) else { continue };
            if !self.fits(pages, old, shape)? {
                break;
            }
            let filled = self.lay_out(pages, old, shape)?;
            if filled.iter().any(|part| part.count > Self::FULL) {
                continue;
            }
            let (stay, go) = old.split_at(shape.pages());
            // To be changed: what halts does so here.
            stay.iter().try_for_each(|page| pages.words_mut(*page).map(drop))?;
            self.settle(pages, stay, shape, &filled)?;
            freed.extend_from_slice(go);
            return Ok(Some(Share { part: 0, parts, ..of }));
        }
        Ok(None)
    }

    /// Whether the cells of pages fit those of a shape.
    fn fits(&self, pages: &mut PageWriter<'_>, old: &[u32], shape: Shape) -> Step<bool> {
        let mut cells = 0;
        for page in old {
            cells += Self::counted(pages, *page)?;
        }
        Ok(cells <= shape.pages() * Self::MERGED)
    }

    /// Halves the directory while no group needs all of it.
    pub(crate) fn halve(&mut self) {
        while self.depth > 0 && self.directory.iter().all(|group| group.depth < self.depth) {
            self.directory = self.directory.iter().step_by(2).copied().collect();
            self.depth -= 1;
        }
    }

    /// Gives up the last page of a table without cells. A bundle, of which a cell says that it is there, keeps it.
    pub(crate) fn clear_empty(&mut self, pages: &mut PageWriter<'_>, freed: &mut Vec<u32>) -> Step<()> {
        if let Some(page) = self.only_page()
            && self.id < FIRST_BUNDLE
            && Self::counted(pages, page)? == 0
        {
            freed.push(page);
            (self.directory, self.depth) = (Vec::new(), 0);
        }
        Ok(())
    }

    /// The pages from `position` on whose cells were not counted yet, of the next `max` pages: each of them has to be read.
    pub(crate) fn uncounted(&self, pages: &PageWriter<'_>, position: u64, max: usize) -> Vec<u32> {
        let from = if self.depth == 0 { 0 } else { (position >> (64 - self.depth)) as usize };
        let mut last = None;
        let groups = self.directory.get(from..).unwrap_or(&[]).iter();
        let groups = groups.filter(|group| last.replace(**group) != Some(**group));
        let next = groups.flat_map(Group::pages).copied().take(max);
        next.filter(|page| pages.cells(*page).is_none() && pages.peek(*page).is_none()).collect()
    }

    /// Whether the cells of a page can be parted, by more steps than one if need be.
    pub(crate) fn splits(&self, pages: &impl Pages, page: u32) -> Step<bool> {
        let words = pages.words(page)?;
        let depth = share_of(words)?.depth;
        let left = u32::from(DEPTH_MAX.saturating_sub(depth)).min(F::ALIKE_BITS_MAX + 1);
        let mut cells = Self::cells(words).map(|cell| self.position(&cell));
        let Some(first) = cells.next() else { return Ok(false) };
        let differ = cells.fold(0, |differ, position| differ | (position ^ first));
        Ok((differ << depth).leading_zeros() < left)
    }
}

/// Cells of a page that is put together from nothing.
#[derive(Clone)]
struct Filled<F> {
    words: Words,
    count: usize,
    /// Cells of each line.
    lines: [u8; LINES as usize],
    form: PhantomData<F>,
}

impl<F: Form> Filled<F> {
    const EMPTY: Filled<F> =
        Filled { words: [0; PAGE_WORDS], count: 0, lines: [0; LINES as usize], form: PhantomData };

    /// Puts a cell where [`Table::put`] would.
    #[inline]
    fn put(&mut self, position: u64, cell: &F::Cell) {
        self.count += 1;
        if self.count > Table::<F>::CELLS {
            return;
        }
        let mut number = Table::<F>::home_line_of(position);
        while usize::from(self.lines[number]) == F::PER_LINE {
            number = Table::<F>::line_behind(number);
        }
        F::set(Table::<F>::line_mut(&mut self.words, number), usize::from(self.lines[number]), cell);
        self.lines[number] += 1;
    }
}

#[cfg(test)]
#[cfg(not(weft_shuttle))]
mod tests {
    use super::*;
    use crate::edges::form::{Packed, Whole};
    use crate::edges::table::Full;
    use crate::hash::KEY_HASH_BITS;
    use crate::ids::NodeId;
    use crate::partition::TableNumbers;
    use crate::tx::apply::drop_table_pages;
    use crate::{MemoryStore, Options, SnodeId, Store};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// A table, and the cells that it has to have.
    struct Beside<'s, F: Form> {
        store: &'s Store,
        table: Table<F>,
        cells: Vec<F::Cell>,
    }

    impl<F: Form> Beside<'_, F> {
        fn step<T>(
            &mut self,
            mut step: impl FnMut(&mut Table<F>, &mut PageWriter<'_>, &mut TableNumbers<'_>) -> Step<T>,
        ) -> T {
            let partition = self.store.partition(SnodeId::FIRST).unwrap();
            let table = &mut self.table;
            let done = self.store.write(&mut partition.write(), |pages, _| {
                step(table, pages, &mut TableNumbers(&self.store.table_numbers))
            });
            done.unwrap()
        }

        fn insert(&mut self, cell: F::Cell) {
            self.cells.push(cell);
            self.step(|table, pages, new| {
                loop {
                    match table.try_insert(pages, cell)? {
                        None => return Ok(()),
                        Some(Full::NoPage) => return table.insert(pages, new, cell),
                        Some(Full::Page(page)) => table.grow(pages, new, page)?,
                    }
                }
            });
        }

        fn remove(&mut self, at: usize) {
            let cell = self.cells.swap_remove(at);
            self.step(|table, pages, _| {
                if table.take(pages, cell)? {
                    return Ok(());
                }
                let first = cell.as_ref()[0];
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
                position = self.step(|table, pages, _| table.merge_at(pages, at, &mut freed));
                gone += freed.len();
                drop_table_pages(self.store, freed);
            }
            self.table.halve();
            gone
        }

        /// Whether each cell is found, nothing else is there, and every page says rightly what it answers for.
        fn check(&mut self) {
            let cells = self.cells.clone();
            let all = self.step(|table, pages, _| {
                for cell in &cells {
                    let mut times = 0;
                    table.find(pages, cell.as_ref()[0], |_, found| {
                        times += usize::from(found == *cell);
                        Ok(None::<()>)
                    })?;
                    assert_eq!(times, 1, "{cell:x?}");
                }
                let mut all = 0;
                for page in table.pages() {
                    let words = pages.words(page)?;
                    let share = share_of(words)?;
                    all += Table::<F>::count(words);
                    Table::<F>::each_cell(words, |cell| assert!(share.covers(table.position(&cell))));
                    assert_eq!(pages.cells(page), Some(Table::<F>::count(words)));
                    assert_eq!(pages.pool().table.describe(page).share()?, share);
                }
                Ok(all)
            });
            assert_eq!(all, self.cells.len());
            let shares = self.table.pages().into_iter().map(|page| {
                let desc = self.store.pool.table.describe(page);
                (page, desc.share().unwrap())
            });
            let again =
                Table::<F>::restore(self.table.id, self.table.secret, &shares.collect::<Vec<_>>()).unwrap();
            assert_eq!((again.depth, again.directory), (self.table.depth, self.table.directory.clone()));
        }
    }

    /// Tables that grow and shrink, of cells that `of` makes of numbers that are all different.
    fn grow_and_shrink<F: Form>(seed: u64, id: u64, of: impl Fn(&mut StdRng, u64) -> F::Cell) {
        let options = Options { cache_bytes: 16 << 20, ..Options::default() };
        let store = Store::create(Box::new(MemoryStore::new()), &options).unwrap();
        let mut beside =
            Beside::<F> { store: &store, table: Table::new(id, store.secret), cells: Vec::new() };
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
            let (before, cells) = (beside.table.pages().len(), beside.cells.len());
            let gone = beside.merge();
            beside.check();
            let left = beside.table.pages().len();
            assert_eq!(before - gone, left);
            // What is left is full enough, but for the last two of a group.
            assert!(left <= 2 + cells * 5 / Table::<F>::CELLS, "{left} pages for {cells} cells");
            assert_eq!(beside.merge(), 0);
        }
    }

    #[test]
    fn tables_that_grow_and_shrink_have_what_was_put_into_them() {
        let to =
            |number: u64| NodeId::at(SnodeId::FIRST, 1 + (number >> 9) as u32, (number % 512 * 8) as usize).0;
        for seed in 0..4 {
            // With hashes that are alike in a few bits more often than hashes are.
            let key = |rng: &mut StdRng| {
                let key = rng.random::<u64>() & KEY_HASH_BITS;
                if rng.random_ratio(1, 3) { key >> seed & KEY_HASH_BITS } else { key }
            };
            grow_and_shrink::<Packed>(seed, 2, |rng, number| [key(rng), to(number)]);
            grow_and_shrink::<Whole<2>>(seed, 2, |_, number| [number, number]);
            grow_and_shrink::<Whole<4>>(seed, 0, |rng, number| {
                [rng.random_range(0..number), 1, number, number]
            });
        }
    }

    #[test]
    fn cells_that_lie_near_each_other_take_few_pages_and_merge_again() {
        let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
        let mut beside =
            Beside::<Packed> { store: &store, table: Table::new(2, store.secret), cells: Vec::new() };
        let mut rng = StdRng::seed_from_u64(5);
        // Nine in ten are in a twentieth of all positions.
        for number in 1..6_000 {
            let key = rng.random::<u64>();
            let near = u64::MAX / 3 + key / 20;
            let key = if rng.random_ratio(9, 10) { near } else { key };
            beside.insert([key & KEY_HASH_BITS, NodeId::at(SnodeId::FIRST, number as u32, 8).0]);
        }
        beside.check();
        let left = beside.table.pages().len();
        assert!(left <= 60, "{left} pages");
        assert!(beside.table.directory.iter().all(|group| group.parts >= PARTS_HALF));
        while beside.cells.len() > 50 {
            let at = rng.random_range(0..beside.cells.len());
            beside.remove(at);
        }
        beside.merge();
        beside.check();
        assert_eq!(beside.table.pages().len(), 1);
    }
}
