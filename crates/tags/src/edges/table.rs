//! A table of cells of `W` words: an ordered run of pages, linear probing by lines of the processor's cache within a page.
//!
//! The first word of a cell decides its position. The
//! upper bits of the position choose the page through a [directory](super::directory) in memory; the lower bits choose the line
//! of the processor's cache within the page where probing begins. So a lookup touches one line, seldom two, beside the directory.
//! A page that is nearly full is [split](super::grow). How full it is is not in the page,
//! which would be one more line to fetch and to change for each edge, but beside the word that says where the page is.
//!
//! ```text
//! page:  | 0, table, its share (16), 0.. (64 bytes) | 63 lines of cells |
//! ```
//!
//! A cell is free while its last word is 0. The directory is not stored: each page's descriptor says which share it answers for.

use super::directory::Directory;
use crate::error::{Error, Result, Step};
use crate::hash::Secret;
use crate::pages::Words;
use crate::pages::access::{PageWriter, Pages};
use crate::pages::desc::{Share, TABLE_HASHED};

/// Words of a page.
pub(super) const PAGE_WORDS: usize = crate::ids::PAGE_BYTES / 8;
/// Words before the first cell.
pub(super) const HEADER_WORDS: usize = 8;
/// Lines of cells in a page.
const LINES: u64 = 63;
/// Words of a line.
const LINE_WORDS: usize = 8;
/// A line of cells.
type LineWords = [u64; LINE_WORDS];

/// A table of cells of `W` words.
#[derive(Clone)]
pub(crate) struct Table<const W: usize> {
    pub(crate) id: u64,
    pub(crate) secret: Secret,
    /// First words are hashes already.
    pub(super) is_hashed: bool,
    pub(super) directory: Directory,
}

/// Where a cell is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellAddr {
    pub page: u32,
    at: LineCell,
}

/// The line of a cell, and which of its cells it is.
type LineCell = (usize, usize);

/// Why a cell did not go in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// The table has no page yet.
    NoPage,
    /// This page is to be split first.
    Page(u32),
}

/// What a page of a table answers for.
///
/// # Errors
/// [`Error::Damaged`] for a share that cannot be.
pub(super) fn share_of(words: &Words) -> Result<Share> {
    Share::from_words([words[2], words[3] & !TABLE_HASHED])
}

/// Whether the first words of the cells of a page are hashes of keys.
pub(crate) fn is_hashed(words: &Words) -> bool {
    words[3] & TABLE_HASHED != 0
}

/// What the directory knows a position by.
#[inline]
pub(super) fn upper(position: u64) -> u32 {
    (position >> 32) as u32
}

impl<const W: usize> Table<W> {
    /// Cells of a line.
    const PER_LINE: usize = LINE_WORDS / W;
    /// Cells of a page.
    pub(crate) const CELLS: usize = LINES as usize * Self::PER_LINE;
    /// Cells of a page that is full.
    pub(super) const FULL: usize = (Self::CELLS * 13) / 16;

    /// A table without pages.
    pub(crate) fn new(id: u64, is_hashed: bool, secret: Secret) -> Table<W> {
        Table { id, secret, is_hashed, directory: Directory::default() }
    }

    /// Puts the directory together from the shares of the table's pages.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the pages do not cover every position exactly once.
    pub(crate) fn restore(self, pages: &[(u32, Share)]) -> Result<Table<W>> {
        Ok(Table { directory: Directory::restore(self.id, pages)?, ..self })
    }

    /// The page that answers for a position, before its links; `None` while the table is empty.
    #[inline]
    pub(super) fn page_of(&self, position: u64) -> Option<u32> {
        self.directory.page_of(upper(position))
    }

    /// The table's pages, each once, in the order of their positions.
    pub(crate) fn walk(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.directory.walk()
    }

    /// The position of a cell.
    #[inline]
    pub(super) fn position(&self, cell: &[u64; W]) -> u64 {
        self.position_of(cell[0])
    }

    /// The position of a first word.
    #[inline]
    pub(crate) fn position_of(&self, first: u64) -> u64 {
        if self.is_hashed { first } else { self.secret.number(first) }
    }

    /// Calls `visit` with each cell whose first word is `first` until it returns `Some`.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        pages: &impl Pages,
        first: u64,
        mut visit: impl FnMut(CellAddr, [u64; W]) -> Step<Option<T>>,
    ) -> Step<Option<T>> {
        let position = self.position_of(first);
        let Some(page) = self.page_of(position) else { return Ok(None) };
        let mut look = |page| {
            Self::probe(pages.words(page)?, position, first, |at, cell| visit(CellAddr { page, at }, cell))
        };
        let found = look(page)?;
        if found.is_some() || !self.directory.has_links() {
            return Ok(found);
        }
        let found = self.directory.links(page).iter().map(|page| look(*page));
        found.filter_map(Step::transpose).next().transpose()
    }

    /// Calls `visit` with each cell of a page whose first word is `first`, and where it is, until it returns `Some`. `position` is that of the
    /// word, and the page the one that answers for it.
    #[inline(always)]
    pub(super) fn probe<T>(
        words: &Words,
        position: u64,
        first: u64,
        mut visit: impl FnMut(LineCell, [u64; W]) -> Step<Option<T>>,
    ) -> Step<Option<T>> {
        let mut number = Self::home_line_of(position);
        for _ in 0..LINES {
            let line = Self::line(words, number);
            let free = Self::free_in(line);
            let mut alike = Self::alike_in(line, first) & !free;
            while alike != 0 {
                let at = alike.trailing_zeros() as usize;
                let found = visit((number, at), Self::cell(line, at))?;
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

    /// The line where probing for a position begins.
    #[inline]
    fn home_line_of(position: u64) -> usize {
        ((u64::from(position as u32) * LINES) >> 32) as usize
    }

    /// The line where probing goes on.
    #[inline]
    fn line_behind(number: usize) -> usize {
        if number + 1 == LINES as usize { 0 } else { number + 1 }
    }

    #[inline]
    fn cell(line: &LineWords, at: usize) -> [u64; W] {
        std::array::from_fn(|word| line[at * W + word])
    }

    #[inline]
    fn set(line: &mut LineWords, at: usize, cell: &[u64; W]) {
        line[at * W..][..W].copy_from_slice(cell);
    }

    /// A bit for each cell of a line that is free. All cells of a line are looked at together: which of them it is cannot be
    /// guessed, and a branch on it would be wrong every other time.
    #[inline]
    fn free_in(line: &LineWords) -> u32 {
        (0..Self::PER_LINE).fold(0, |bits, at| bits | u32::from(line[at * W + W - 1] == 0) << at)
    }

    /// A bit for each cell of a line whose first word is `first`, if it is in use.
    #[inline]
    fn alike_in(line: &LineWords, first: u64) -> u32 {
        (0..Self::PER_LINE).fold(0, |bits, at| bits | u32::from(line[at * W] == first) << at)
    }

    #[inline]
    fn line(words: &Words, number: usize) -> &LineWords {
        &words.as_chunks().0[HEADER_WORDS / LINE_WORDS + number]
    }

    #[inline]
    fn line_mut(words: &mut Words, number: usize) -> &mut LineWords {
        &mut words.as_chunks_mut().0[HEADER_WORDS / LINE_WORDS + number]
    }

    /// The cell at `place`, in its page's words.
    pub(crate) fn cell_at(&self, words: &Words, place: CellAddr) -> [u64; W] {
        Self::cell(Self::line(words, place.at.0), place.at.1)
    }

    /// A bit for each cell of a line that is in use.
    #[inline]
    fn used_in(line: &LineWords) -> u32 {
        !Self::free_in(line) & ((1 << Self::PER_LINE) - 1)
    }

    fn lines(words: &Words) -> impl Iterator<Item = &LineWords> {
        words.as_chunks().0[HEADER_WORDS / LINE_WORDS..].iter()
    }

    /// All cells of a page.
    pub(crate) fn cells(words: &Words) -> impl Iterator<Item = [u64; W]> + '_ {
        Self::lines(words).flat_map(|line| {
            let used = Self::used_in(line);
            (0..Self::PER_LINE).filter(move |at| used >> at & 1 == 1).map(|at| Self::cell(line, at))
        })
    }

    /// Cells in a page.
    pub(crate) fn count(words: &Words) -> usize {
        Self::lines(words).map(|line| Self::used_in(line).count_ones() as usize).sum()
    }

    /// The cells of a page, counted now if they were not before.
    #[inline(always)]
    pub(crate) fn counted(pages: &mut PageWriter<'_>, page: u32) -> Step<usize> {
        if let Some(cells) = pages.cells(page) {
            debug_assert!(pages.words(page).map_or(true, |words| Self::count(words) == cells));
            return Ok(cells);
        }
        let cells = Self::count(pages.words(page)?);
        pages.note_cells(page, cells);
        Ok(cells)
    }

    /// Whether the cell at `place` is the only one. Other pages are looked at only when it is that of its page, the nearest first: up to one
    /// that has a cell. So who empties a table, in whatever order, looks at few.
    pub(crate) fn is_last(&self, pages: &mut PageWriter<'_>, place: CellAddr) -> Step<bool> {
        if Self::counted(pages, place.page)? > 1 {
            return Ok(false);
        }
        let position = upper(self.position(&self.cell_at(pages.words(place.page)?, place)));
        let (mut behind, mut before) = (self.directory.from(position), self.directory.before(position));
        loop {
            // Links have cells only where the page that they are linked to has.
            let next = [behind.next(), before.next()];
            if next == [None; 2] {
                // What is noted may be wrong where a page was damaged, and all others would go with it.
                return Ok(Self::count(pages.words(place.page)?) <= 1);
            }
            for (_, page) in next.into_iter().flatten() {
                if page != place.page && Self::counted(pages, page)? > 0 {
                    return Ok(false);
                }
            }
        }
    }

    /// Replaces the cell at `place`.
    pub(crate) fn replace(&self, pages: &mut PageWriter<'_>, place: CellAddr, cell: [u64; W]) -> Step<()> {
        self.check_room(&cell)?;
        Self::set(Self::line_mut(pages.words_mut(place.page)?, place.at.0), place.at.1, &cell);
        Ok(())
    }

    /// Refuses a cell that would be free. Those that a store makes are not.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    #[inline]
    pub(super) fn check_room(&self, cell: &[u64; W]) -> Result<()> {
        match cell[W - 1] {
            0 => Err(Error::damaged(format!("edge table {}: cell {cell:x?}", self.id))),
            _ => Ok(()),
        }
    }

    /// Puts a cell in if its page has room, else says what it lacks.
    #[inline]
    pub(crate) fn try_insert(&self, pages: &mut PageWriter<'_>, cell: [u64; W]) -> Step<Option<Full>> {
        let position = self.position(&cell);
        let Some(page) = self.page_of(position) else { return Ok(Some(Full::NoPage)) };
        self.insert_at(pages, (page, position), cell)
    }

    /// As [`Table::try_insert`], of a position and the page that answers for it.
    #[inline]
    pub(super) fn insert_at(
        &self,
        pages: &mut PageWriter<'_>,
        (page, position): (u32, u64),
        cell: [u64; W],
    ) -> Step<Option<Full>> {
        self.check_room(&cell)?;
        let cells = Self::counted(pages, page)?;
        if cells >= Self::FULL {
            return Ok(Some(Full::Page(page)));
        }
        Self::put(pages.words_mut(page)?, position, cell);
        pages.note_cells(page, cells + 1);
        Ok(None)
    }

    /// Asks the processor for the line where probing for a position begins.
    #[inline]
    pub(crate) fn prefetch_cell(words: &Words, position: u64) {
        weft_sys::prefetch(Self::line(words, Self::home_line_of(position)).as_ptr());
    }

    /// Asks the processor for the two lines behind the one where probing for a position begins, if that is full.
    #[inline]
    pub(crate) fn prefetch_behind(words: &Words, position: u64) {
        let mut number = Self::home_line_of(position);
        if Self::free_in(Self::line(words, number)) == 0 {
            for _ in 0..2 {
                number = Self::line_behind(number);
                weft_sys::prefetch(Self::line(words, number).as_ptr());
            }
        }
    }

    /// Puts a cell in, with the pages that this takes. What halts has put nothing in.
    pub(crate) fn insert(&mut self, pages: &mut PageWriter<'_>, cell: [u64; W]) -> Step<()> {
        loop {
            match self.try_insert(pages, cell)? {
                None => return Ok(()),
                Some(Full::NoPage) => self.begin(pages)?,
                Some(Full::Page(page)) if share_of(pages.words(page)?)?.is_single() => {
                    return self.insert_linked(pages, page, cell);
                }
                Some(Full::Page(page)) => self.split(pages, page)?,
            }
        }
    }

    /// Puts a cell into a page of a single position, or one that is linked to it. All of them are full but the last that has cells, and
    /// those behind it.
    fn insert_linked(&mut self, pages: &mut PageWriter<'_>, head: u32, cell: [u64; W]) -> Step<()> {
        let mut room = None;
        for page in self.directory.chain(head) {
            let cells = Self::counted(pages, page)?;
            if cells < Self::CELLS {
                room = Some((page, cells));
                break;
            }
        }
        let (page, cells) = match room {
            Some(room) => room,
            None => (self.add_link(pages, head)?, 0),
        };
        Self::put(pages.words_mut(page)?, self.position(&cell), cell);
        pages.note_cells(page, cells + 1);
        Ok(())
    }

    #[inline]
    pub(super) fn put(words: &mut Words, position: u64, cell: [u64; W]) {
        let mut number = Self::home_line_of(position);
        for _ in 0..LINES {
            let line = Self::line_mut(words, number);
            let free = Self::free_in(line);
            if free != 0 {
                return Self::set(line, free.trailing_zeros() as usize, &cell);
            }
            number = Self::line_behind(number);
        }
        debug_assert!(false, "a page without room");
    }

    /// Takes the cell at `place` out and closes the gap.
    pub(crate) fn remove(&self, pages: &mut PageWriter<'_>, place: CellAddr) -> Step<()> {
        let mut place = place;
        if self.directory.has_links()
            && let Some(tail) = self.last_linked(pages, place)?.filter(|tail| *tail != place.page)
        {
            // Those before the last stay full: a cell of the last comes into its place.
            pages.words_mut(place.page)?;
            let words = pages.words_mut(tail)?;
            let used = (0..LINES as usize).find_map(|number| {
                let used = Self::used_in(Self::line(words, number));
                (used != 0).then_some((number, used.trailing_zeros() as usize))
            });
            if let Some(at) = used {
                let cell = Self::cell(Self::line(words, at.0), at.1);
                let position = self.position(&cell);
                let words = pages.words_mut(place.page)?;
                self.close_gap(words, place.at);
                Self::put(words, position, cell);
                place = CellAddr { page: tail, at };
            }
        }
        let cells = Self::counted(pages, place.page)?;
        self.close_gap(pages.words_mut(place.page)?, place.at);
        pages.note_cells(place.page, cells.saturating_sub(1));
        Ok(())
    }

    /// Takes a cell out of the page of its position with few looks at what is known of it; `false` where it is not there, where it may be the
    /// last one, or where pages are linked.
    #[inline]
    pub(super) fn take(&self, pages: &mut PageWriter<'_>, at: (u32, u64), cell: [u64; W]) -> Step<bool> {
        let (page, position) = at;
        let cells = Self::counted(pages, page)?;
        if cells <= 1 || self.directory.has_links() {
            return Ok(false);
        }
        let words = pages.words_mut(page)?;
        let place = Self::probe(words, position, cell[0], |at, found| Ok((found == cell).then_some(at)))?;
        let Some(place) = place else { return Ok(false) };
        self.close_gap(words, place);
        pages.note_cells(page, cells - 1);
        Ok(true)
    }

    /// The last page with cells of those linked to the one of a cell's position, where there are links.
    fn last_linked(&self, pages: &mut PageWriter<'_>, place: CellAddr) -> Step<Option<u32>> {
        let cell = self.cell_at(pages.words(place.page)?, place);
        let Some(head) = self.page_of(self.position(&cell)) else { return Ok(None) };
        for page in self.directory.links(head).iter().rev().copied() {
            if Self::counted(pages, page)? > 0 {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    /// Takes out the cell at `place`. What had passed its line because that was full is looked for behind it, up to the first line that
    /// is not.
    #[inline]
    fn close_gap(&self, words: &mut Words, place: LineCell) {
        let mut hole = place;
        let mut number = hole.0;
        for _ in 1..LINES {
            if Self::free_in(Self::line(words, number)) != 0 {
                break;
            }
            number = Self::line_behind(number);
            let way = Self::way(hole.0, number);
            let line = Self::line(words, number);
            let mut used = Self::used_in(line);
            while used != 0 {
                let at = used.trailing_zeros() as usize;
                let cell = Self::cell(line, at);
                if Self::way(Self::home_line_of(self.position(&cell)), number) >= way {
                    Self::set(Self::line_mut(words, hole.0), hole.1, &cell);
                    hole = (number, at);
                    break;
                }
                used &= used - 1;
            }
        }
        Self::set(Self::line_mut(words, hole.0), hole.1, &[0; W]);
    }

    /// Lines from one to another that lies behind it, round the page.
    #[inline]
    fn way(from: usize, to: usize) -> usize {
        if from <= to { to - from } else { to + LINES as usize - from }
    }
}
