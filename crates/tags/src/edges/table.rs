//! A table of cells: extendible hashing over pages, linear probing by lines of the processor's cache within a page.
//!
//! A cell is `W` words; its first word decides its position, its last word is never 0 in a cell that is in use. The
//! upper bits of the position choose the page through a directory of [groups](super::share) in memory; the lower bits choose the line
//! of the processor's cache within the page where probing begins. So a lookup touches one line, seldom two, beside the directory
//! (16 bytes for two or three pages). A page that is nearly full makes its group [grow](super::grow). How full it is is not in the page,
//! which would be one more line to fetch and to change for each edge, but beside the word that says where the page is.
//!
//! ```text
//! page:  | 0, table, its share (16), 0.. (64 bytes) | 63 lines of cells |
//! ```
//!
//! The directory is not stored: each page's descriptor says which share it answers for.

use super::share::{Group, Share};
use crate::error::{Error, Result, Step};
use crate::hash::Secret;
use crate::pages::access::{PageWriter, Pages, Words, as_words};
use crate::pages::desc::{Desc, TABLE_HASHED};
use crate::pages::table::CellCount;

/// What is full when a page of so great a depth is.
pub(crate) const EDGE_TABLE: &str = "edge table";
/// Words of a page.
pub(super) const PAGE_WORDS: usize = crate::ids::PAGE_BYTES / 8;
/// Words before the first cell.
pub(super) const HEADER_WORDS: usize = 8;
/// Words of a line of the processor's cache.
const LINE_WORDS: usize = 8;
/// Lines of cells in a page.
pub(super) const LINES: u64 = 63;
/// How a cell's first word becomes a position.
#[derive(Clone, Copy)]
pub(crate) enum Position {
    /// The word is a keyed hash already.
    Hash,
    /// The word is a number or an id, to be hashed with the store's secret.
    Number(Secret),
}

impl Position {
    #[inline]
    pub(crate) fn of(self, word: u64) -> u64 {
        match self {
            Position::Hash => word,
            Position::Number(secret) => secret.number(word),
        }
    }
}

/// A table of cells of `W` words.
#[derive(Clone)]
pub(crate) struct Table<const W: usize> {
    pub(crate) id: u64,
    pub(crate) position: Position,
    pub(super) depth: u8,
    pub(super) directory: Vec<Group>,
}

/// Where a cell is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub page: u32,
    index: usize,
}

/// What the line where probing begins says of a first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line<const W: usize> {
    /// No cell of the table has it.
    Absent,
    /// The first cell that has it.
    Cell([u64; W]),
    /// Further lines have to be looked at.
    Further,
}

/// Why a cell did not go in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// The table has no page yet.
    NoPage,
    /// This page is to be split first.
    Page(u32),
}

/// Where new pages of a table come from.
pub(crate) trait NewPages {
    /// A page number for a table, and the s-node it is for.
    fn take_number(&mut self) -> Result<u32>;
    /// Gives a number back that was not used.
    fn give_back(&mut self, page: u32);
}

/// Refuses a page of a table, just read, whose checksum holds and whose contents cannot be.
///
/// # Errors
/// [`Error::Damaged`].
pub(crate) fn check_page(words: &Words, desc: &Desc, page: u32) -> Result<()> {
    if [words[1], words[2], words[3]] == [desc.body[0], desc.body[1], desc.body[2] & !TABLE_HASHED] {
        Ok(())
    } else {
        Err(Error::damaged(format!("page {page}: no edge table wrote this")))
    }
}

impl<const W: usize> Table<W> {
    /// Cells of a page.
    pub(crate) const CELLS: usize = LINES as usize * LINE_WORDS / W;
    /// Cells of a line.
    pub(super) const PER_LINE: usize = LINE_WORDS / W;
    /// Cells of a page that is full.
    pub(super) const FULL: usize = (Self::CELLS * 15) / 16;

    /// A table without pages.
    pub(crate) fn new(id: u64, position: Position) -> Table<W> {
        Table { id, position, depth: 0, directory: Vec::new() }
    }

    /// Puts the directory together from the shares of the table's pages.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the pages do not cover every position exactly once.
    pub(crate) fn restore(id: u64, position: Position, pages: &[(u32, Share)]) -> Result<Table<W>> {
        let mut table = Table::new(id, position);
        if pages.is_empty() {
            return Ok(table);
        }
        table.depth = pages.iter().map(|(_, share)| share.depth).max().unwrap_or(0);
        if pages.len() < usize::from(table.depth) {
            return Err(Error::damaged(format!("edge table {id}: depth {}", table.depth)));
        }
        table.directory = vec![Group::EMPTY; 1 << table.depth];
        for (page, share) in pages {
            let entries = table.entries_of(*share);
            if !table.directory[entries].iter_mut().all(|group| group.put(*page, *share)) {
                return Err(Error::damaged(format!("edge table {id}: page {page} overlaps another")));
            }
        }
        if !table.directory.iter().all(Group::is_whole) {
            return Err(Error::damaged(format!("edge table {id}: a page is missing")));
        }
        Ok(table)
    }

    /// The entries of the directory that are the group's of this share.
    pub(super) fn entries_of(&self, share: Share) -> std::ops::Range<usize> {
        let entries = 1usize << (self.depth - share.depth);
        let first = share.prefix as usize * entries;
        first..first + entries
    }

    /// The group that a position is in; `None` while the table is empty.
    #[inline]
    pub(super) fn group_of(&self, position: u64) -> Option<&Group> {
        self.directory.get(if self.depth == 0 { 0 } else { (position >> (64 - self.depth)) as usize })
    }

    /// The page that answers for a position; `None` while the table is empty.
    #[inline]
    pub(crate) fn page_of(&self, position: u64) -> Option<u32> {
        self.group_of(position).map(|group| group.page_of(position))
    }

    /// The table's pages, one after the other without a list of them; those of a group may come again behind them.
    pub(crate) fn walk(&self) -> impl Iterator<Item = u32> + '_ {
        self.directory.iter().flat_map(Group::pages).copied()
    }

    /// The table's pages, each once.
    pub(crate) fn pages(&self) -> Vec<u32> {
        let mut groups = self.directory.clone();
        groups.dedup();
        groups.iter().flat_map(Group::pages).copied().collect()
    }

    #[inline]
    fn home(position: u64) -> usize {
        (((position & 0xffff_ffff) * LINES) >> 32) as usize * Self::PER_LINE
    }

    #[inline]
    fn cell(words: &Words, index: usize) -> [u64; W] {
        let at = HEADER_WORDS + index * W;
        std::array::from_fn(|word| words[at + word])
    }

    #[inline]
    pub(super) fn set_cell(words: &mut Words, index: usize, cell: [u64; W]) {
        let at = HEADER_WORDS + index * W;
        words[at..at + W].copy_from_slice(&cell);
    }

    /// Calls `visit` with each cell whose first word is `first` until it returns `Some`.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        pages: &impl Pages,
        first: u64,
        mut visit: impl FnMut(Place, [u64; W]) -> Step<Option<T>>,
    ) -> Step<Option<T>> {
        if self.directory.is_empty() {
            return Ok(None);
        }
        let position = self.position.of(first);
        let Some(page) = self.page_of(position) else { return Ok(None) };
        let words = pages.words(page)?;
        Self::probe(words, position, first, |index, cell| visit(Place { page, index }, cell))
    }

    /// Calls `visit` with each cell of a page whose first word is `first`, and where it is, until it returns `Some`. `position` is that of the
    /// word, and the page the one that answers for it.
    #[inline(always)]
    fn probe<T>(
        words: &Words,
        position: u64,
        first: u64,
        mut visit: impl FnMut(usize, [u64; W]) -> Step<Option<T>>,
    ) -> Step<Option<T>> {
        let mut number = Self::home_line_of(position);
        for _ in 0..LINES {
            let line = Self::line(words, number);
            let free = Self::free_in(line);
            let mut alike = Self::alike_in(line, first) & !free;
            while alike != 0 {
                let index = number * Self::PER_LINE + alike.trailing_zeros() as usize;
                let found = visit(index, Self::cell(words, index))?;
                if found.is_some() {
                    return Ok(found);
                }
                alike &= alike - 1;
            }
            if free != 0 {
                break;
            }
            number = Self::line_behind(number);
        }
        Ok(None)
    }

    /// The first of the cells of a page whose first word is `first`. `position` is that of the word, and the page the one that
    /// answers for it.
    #[inline]
    pub(crate) fn first_in(words: &Words, position: u64, first: u64) -> Option<[u64; W]> {
        let mut number = Self::home_line_of(position);
        for _ in 0..LINES {
            let line = Self::line(words, number);
            let free = Self::free_in(line);
            let alike = Self::alike_in(line, first) & !free;
            if alike != 0 {
                let index = number * Self::PER_LINE + alike.trailing_zeros() as usize;
                return Some(Self::cell(words, index));
            }
            if free != 0 {
                break;
            }
            number = Self::line_behind(number);
        }
        None
    }

    /// Whether it is seen at once, without reading a page, that no cell's first word is `first`.
    #[inline]
    pub(crate) fn is_absent(&self, pages: &impl Pages, first: u64) -> bool {
        let position = self.position.of(first);
        let Some(page) = self.page_of(position) else { return true };
        let words = pages.peek(page).map(as_words);
        words.is_some_and(|words| Self::home_line(words, position, first) == Line::Absent)
    }

    /// The first words of the cells of a table that has no more than `most`, in one page that is in memory.
    pub(crate) fn few(&self, pages: &impl Pages, most: usize) -> Option<Vec<u64>> {
        let Some(page) = self.only_page() else { return self.is_empty().then(Vec::new) };
        let words = pages.peek(page).map(as_words)?;
        let firsts: Vec<_> = Self::cells(words).map(|cell| cell[0]).take(most + 1).collect();
        (firsts.len() <= most).then_some(firsts)
    }

    /// The table's page where it has one.
    pub(super) fn only_page(&self) -> Option<u32> {
        match self.directory[..] {
            [Group { pages: [page, ..], parts: 1, .. }] => Some(page),
            _ => None,
        }
    }

    /// Whether the table has no page.
    pub(crate) fn is_empty(&self) -> bool {
        self.directory.is_empty()
    }

    /// As [`Table::first_in`], in the line alone where probing begins.
    #[inline]
    pub(crate) fn home_line(words: &Words, position: u64, first: u64) -> Line<W> {
        let number = Self::home_line_of(position);
        let line = Self::line(words, number);
        let free = Self::free_in(line);
        let alike = Self::alike_in(line, first) & !free;
        if alike != 0 {
            let index = number * Self::PER_LINE + alike.trailing_zeros() as usize;
            Line::Cell(Self::cell(words, index))
        } else if free != 0 {
            Line::Absent
        } else {
            Line::Further
        }
    }

    /// The line where probing for a position begins.
    #[inline]
    pub(super) fn home_line_of(position: u64) -> usize {
        Self::home(position) / Self::PER_LINE
    }

    /// The line where probing goes on.
    #[inline]
    pub(super) fn line_behind(number: usize) -> usize {
        if number + 1 == LINES as usize { 0 } else { number + 1 }
    }

    #[inline]
    fn line(words: &Words, number: usize) -> &[u64; LINE_WORDS] {
        &words.as_chunks().0[HEADER_WORDS / LINE_WORDS + number]
    }

    /// A bit for each cell of a line that is free. All cells of a line are looked at together: which of them it is cannot be
    /// guessed, and a branch on it would be wrong every other time.
    #[inline]
    fn free_in(line: &[u64; LINE_WORDS]) -> u32 {
        (0..Self::PER_LINE).fold(0, |bits, at| bits | u32::from(line[at * W + W - 1] == 0) << at)
    }

    /// A bit for each cell of a line whose first word is `first`.
    #[inline]
    fn alike_in(line: &[u64; LINE_WORDS], first: u64) -> u32 {
        (0..Self::PER_LINE).fold(0, |bits, at| bits | u32::from(line[at * W] == first) << at)
    }

    /// The cell at `place`, in its page's words.
    pub(crate) fn cell_at(&self, words: &Words, place: Place) -> [u64; W] {
        Self::cell(words, place.index)
    }

    /// All cells of a page.
    pub(crate) fn cells(words: &Words) -> impl Iterator<Item = [u64; W]> + '_ {
        (0..Self::CELLS).map(|index| Self::cell(words, index)).filter(|cell| cell[W - 1] != 0)
    }

    /// Cells in a page.
    pub(crate) fn count(words: &Words) -> usize {
        Self::cells(words).count()
    }

    /// The cells of a page, counted now if they were not before.
    #[inline]
    pub(crate) fn counted(pages: &mut PageWriter<'_>, page: u32) -> Step<usize> {
        match pages.cells(page) {
            Some(cells) => {
                debug_assert!(pages.words(page).map_or(true, |words| Self::count(words) == cells));
                Ok(cells)
            }
            None => {
                let cells = Self::count(pages.words(page)?);
                pages.note_cells(page, cells);
                Ok(cells)
            }
        }
    }

    /// As [`Table::counted`], of a page at hand. The caller sets the count.
    #[inline]
    fn count_or(words: &Words, count: CellCount<'_>) -> usize {
        let cells = count.get();
        debug_assert!(cells.is_none_or(|cells| Self::count(words) == cells));
        cells.unwrap_or_else(|| Self::count(words))
    }

    /// Whether the cell at `place` is the only one of its page.
    pub(crate) fn is_last(pages: &mut PageWriter<'_>, place: Place) -> Step<bool> {
        Ok(Self::counted(pages, place.page)? <= 1 && Self::count(pages.words(place.page)?) <= 1)
    }

    /// Replaces the cell at `place`.
    pub(crate) fn replace(&self, pages: &mut PageWriter<'_>, place: Place, cell: [u64; W]) -> Step<()> {
        Self::set_cell(pages.words_mut(place.page)?, place.index, cell);
        Ok(())
    }

    /// Whether the page for `first` is to be split before a cell goes in. Cells then keep short ways.
    pub(crate) fn is_full(&self, pages: &mut PageWriter<'_>, first: u64) -> Step<Option<u32>> {
        let Some(page) = self.page_of(self.position.of(first)) else { return Ok(None) };
        Ok((Self::counted(pages, page)? >= Self::FULL).then_some(page))
    }

    /// Puts a cell in if its page has room, else returns the page, to be split first.
    #[inline]
    pub(crate) fn try_insert(&self, pages: &mut PageWriter<'_>, cell: [u64; W]) -> Step<Option<Full>> {
        let position = self.position.of(cell[0]);
        let Some(page) = self.page_of(position) else { return Ok(Some(Full::NoPage)) };
        let (words, count) = pages.words_counted(page)?;
        let cells = Self::count_or(words, count);
        if cells >= Self::FULL {
            return Ok(Some(Full::Page(page)));
        }
        Self::put(words, position, cell);
        count.set(cells + 1);
        Ok(None)
    }

    /// Asks the processor for the line where probing for a position begins.
    #[inline]
    pub(crate) fn prefetch_cell(words: &Words, position: u64) {
        let home = &words[HEADER_WORDS + Self::home(position) * W];
        crate::sys::prefetch(std::ptr::from_ref(home).cast());
    }

    /// Asks the processor for the line behind it, which one probe in four goes on to.
    #[inline]
    pub(crate) fn prefetch_behind(words: &Words, position: u64) {
        let behind = Self::line_behind(Self::home_line_of(position));
        crate::sys::prefetch(Self::line(words, behind).as_ptr().cast());
    }

    /// Asks the processor for the line behind that one, which half of these probes go on to.
    #[inline]
    pub(crate) fn prefetch_further(words: &Words, position: u64) {
        let behind = Self::line_behind(Self::line_behind(Self::home_line_of(position)));
        crate::sys::prefetch(Self::line(words, behind).as_ptr().cast());
    }

    /// Whether the line where probing for a position begins has no cell that is free.
    #[inline]
    pub(crate) fn home_is_full(words: &Words, position: u64) -> bool {
        Self::free_in(Self::line(words, Self::home_line_of(position))) == 0
    }

    /// Puts a cell in. The page has room: [`Table::is_full`] said so.
    pub(crate) fn insert(
        &mut self,
        pages: &mut PageWriter<'_>,
        new: &mut impl NewPages,
        cell: [u64; W],
    ) -> Step<()> {
        let position = self.position.of(cell[0]);
        let page = match self.page_of(position) {
            Some(page) => page,
            None => self.begin(pages, new)?,
        };
        let cells = Self::counted(pages, page)?;
        Self::put(pages.words_mut(page)?, position, cell);
        pages.note_cells(page, cells + 1);
        Ok(())
    }

    #[inline]
    fn put(words: &mut Words, position: u64, cell: [u64; W]) {
        debug_assert!(cell[W - 1] != 0);
        let mut number = Self::home_line_of(position);
        for _ in 0..LINES {
            let free = Self::free_in(Self::line(words, number));
            if free != 0 {
                let index = number * Self::PER_LINE + free.trailing_zeros() as usize;
                return Self::set_cell(words, index, cell);
            }
            number = Self::line_behind(number);
        }
        debug_assert!(false, "a page without room");
    }

    /// Takes the cell at `place` out and closes the gap.
    pub(crate) fn remove(&self, pages: &mut PageWriter<'_>, place: Place) -> Step<()> {
        let cells = pages.cells(place.page);
        self.close_gap(pages.words_mut(place.page)?, place.index);
        if let Some(cells) = cells {
            pages.note_cells(place.page, cells.saturating_sub(1));
        }
        Ok(())
    }

    /// Takes out the cell at `place`. What had passed its line because that was full is looked for behind it, up to the first line that
    /// is not.
    #[inline]
    fn close_gap(&self, words: &mut Words, place: usize) {
        let (mut hole, mut hole_line) = (place, place / Self::PER_LINE);
        let mut number = hole_line;
        for _ in 1..LINES {
            if Self::free_in(Self::line(words, number)) != 0 {
                break;
            }
            number = Self::line_behind(number);
            let way = Self::way(hole_line, number);
            let first = number * Self::PER_LINE;
            let passed = (first..first + Self::PER_LINE).find(|index| {
                let cell = Self::cell(words, *index);
                cell[W - 1] != 0 && Self::way(Self::home_line_of(self.position.of(cell[0])), number) >= way
            });
            if let Some(index) = passed {
                Self::set_cell(words, hole, Self::cell(words, index));
                (hole, hole_line) = (index, number);
            }
        }
        Self::set_cell(words, hole, [0; W]);
    }

    /// Lines from one to another that lies behind it, round the page.
    #[inline]
    fn way(from: usize, to: usize) -> usize {
        if from <= to { to - from } else { to + LINES as usize - from }
    }

    /// Puts a cell in the place of one whose words are all known; whether that was there. Their first words are the same.
    #[inline]
    pub(crate) fn exchange(
        &self,
        pages: &mut PageWriter<'_>,
        before: [u64; W],
        cell: [u64; W],
    ) -> Step<bool> {
        debug_assert_eq!(before[0], cell[0]);
        let position = self.position.of(cell[0]);
        let Some(page) = self.page_of(position) else { return Ok(false) };
        let words = pages.words_mut(page)?;
        let place =
            Self::probe(words, position, cell[0], |index, found| Ok((found == before).then_some(index)))?;
        let Some(place) = place else { return Ok(false) };
        Self::set_cell(words, place, cell);
        Ok(true)
    }

    /// Takes out a cell whose words are all known, unless it may be the last of its page; whether it did.
    #[inline]
    pub(crate) fn take(&self, pages: &mut PageWriter<'_>, cell: [u64; W]) -> Step<bool> {
        let position = self.position.of(cell[0]);
        let Some(page) = self.page_of(position) else { return Ok(false) };
        let (words, count) = pages.words_counted(page)?;
        let cells = Self::count_or(words, count);
        if cells <= 1 {
            return Ok(false);
        }
        let place =
            Self::probe(words, position, cell[0], |index, found| Ok((found == cell).then_some(index)))?;
        let Some(place) = place else { return Ok(false) };
        self.close_gap(words, place);
        count.set(cells - 1);
        Ok(true)
    }
}
