//! Look-ups of many edges of one node, in batches.
//!
//! A look-up waits for memory up to five times: for the directory's entry, for the word that says where the cell's page is, for the cell, for the
//! word that says where the node is, for the node. A group of look-ups makes a pass for each of these, in which no wait depends on another, so
//! that the processor has many under way. Passes are short on purpose: what counts is how many of their rounds it has in sight, for it goes
//! on behind a line that it was asked for only when it knows where that line is, which in a virtual machine is a wait of its own.

use super::table::{Table, upper};
use super::{Bundle, EdgeChange, EdgeTable};
use crate::error::{Step, StepError};
use crate::ids::{EdgeType, NodeId, PAGE_BYTES};
use crate::pages::access::{PageWriter, Pages};
use crate::pages::{Words, as_words};

/// Edges of a group. Whoever looks for one alone has a group of one, and does not pay for the room of more.
pub(crate) const GROUP: usize = 64;

/// What a look-up has found.
#[derive(Clone, Copy)]
pub(crate) enum Candidate<'p> {
    /// There is no such edge.
    Absent,
    /// The first edge whose key has this hash, and the page that its node begins in.
    Node(NodeId, &'p [u8; PAGE_BYTES]),
    /// To be looked for by itself.
    Unknown,
}

impl EdgeTable {
    /// Looks for the edges of up to `N` keys and one type out of one node. The beginning of the node of each is asked for from memory, and
    /// the entries of the directory for the `next` keys.
    ///
    /// # Errors
    /// Pages that have to be read first: those of cells, or, once these are there, those of nodes. They are an error only for a caller that can read them
    /// together; without them their edges are unknown.
    pub(crate) fn find_group<'p, const N: usize>(
        &self,
        pages: &'p impl Pages,
        of: (NodeId, EdgeType),
        (keys, next): (&[u64], &[u64]),
        found: &mut [Candidate<'p>; N],
    ) -> Result<(), Vec<u32>> {
        found.fill(Candidate::Unknown);
        let bundle = self.bundle(pages, of.0, of.1).ok().flatten();
        bundle
            .and_then(|id| self.bundles.get(&id))
            .map_or(Ok(()), |table| table.find_group(pages, (keys, next), found))
    }

    /// Makes changes of up to [`GROUP`] edges of one type out of one node, in their order, up to one behind which their bundle may be
    /// another, and counts them in `made`, which is 0 before, also before an error. Calls `each` with them. Pages of a bundle that goes
    /// are appended to `freed`.
    #[inline]
    pub(crate) fn change(
        &mut self,
        pages: &mut PageWriter<'_>,
        changes: &[&EdgeChange],
        made: &mut usize,
        freed: &mut Vec<u32>,
        mut each: impl FnMut(&EdgeChange),
    ) -> Step<()> {
        let Some(first) = changes.first() else { return Ok(()) };
        let id = self.bundle(pages, first.source, first.etype)?;
        if let Some(bundle) = id.and_then(|id| self.bundles.get(&id)) {
            let mut cells = Cells::<GROUP>::default();
            // Lines behind full ones are not asked for again: who made the change has looked for its edge.
            bundle.ask_for(pages, changes.iter().map(|change| change.key), &mut cells);
            // Changes within pages leave it as it is which page answers for a position.
            for (change, at) in changes.iter().zip(cells.pages.into_iter().zip(cells.positions)) {
                if at.0 == 0 || !bundle.change_within(pages, change, at)? {
                    break;
                }
                each(change);
                *made += 1;
            }
        }
        if let Some(change) = changes.get(*made) {
            self.change_one(pages, change, freed)?;
            each(change);
            *made += 1;
        }
        Ok(())
    }
}

/// Where the cells of a group of keys are.
pub(crate) struct Cells<'p, const N: usize> {
    positions: [u64; N],
    pages: [u32; N],
    frames: [Option<&'p [u8; PAGE_BYTES]>; N],
}

impl<const N: usize> Default for Cells<'_, N> {
    fn default() -> Self {
        Cells { positions: [0; N], pages: [0; N], frames: [None; N] }
    }
}

impl<'p, const N: usize> Cells<'p, N> {
    /// Position, page and, where it is in memory, the page's words, of the first `count` keys.
    #[inline]
    fn of(&self, count: usize) -> impl Iterator<Item = (u64, u32, Option<&'p Words>)> {
        let each = self.positions.iter().zip(&self.pages).zip(&self.frames).take(count);
        each.map(|((position, page), frame)| (*position, *page, frame.map(as_words)))
    }
}

impl Table<2> {
    /// Makes a change in the page that answers for the position of its cell; `false` where it takes more: a new page, the end of the
    /// table, or that the cell is there.
    #[inline]
    fn change_within(&self, pages: &mut PageWriter<'_>, change: &EdgeChange, at: (u32, u64)) -> Step<bool> {
        let EdgeChange { key, old, new, .. } = *change;
        if old.0 == 0 {
            return Ok(self.insert_at(pages, at, [key, new.0])?.is_none());
        }
        if new.0 == 0 {
            return self.take(pages, at, [key, old.0]);
        }
        let place = self.find(pages, key, |place, cell| Ok((cell[1] == old.0).then_some(place)))?;
        let Some(place) = place else { return Ok(false) };
        self.replace(pages, place, [key, new.0])?;
        Ok(true)
    }

    /// What [`EdgeTable::find_group`] says, in a bundle's table.
    fn find_group<'p, const N: usize>(
        &self,
        pages: &'p impl Pages,
        (keys, next): (&[u64], &[u64]),
        found: &mut [Candidate<'p>; N],
    ) -> Result<(), Vec<u32>> {
        let keys = &keys[..keys.len().min(N)];
        let (mut missing, mut cells) = (Vec::new(), Cells::<N>::default());
        self.ask_for(pages, keys.iter().copied(), &mut cells);
        next.iter().for_each(|key| self.directory.prefetch(upper(self.position_of(*key))));
        // Waits for the lines where probing begins, and asks for those where it goes on.
        for (position, _, words) in cells.of(keys.len()) {
            words.into_iter().for_each(|words| Bundle::prefetch_behind(words, position));
        }
        let mut nodes = [NodeId(0); N];
        for (at, (position, page, words)) in cells.of(keys.len()).enumerate() {
            match words.map(|words| Self::probe(words, position, keys[at], |_, cell| Ok(Some(cell)))) {
                Some(Ok(Some([_, to]))) => nodes[at] = NodeId(to),
                Some(Ok(None)) if !self.directory.has_links() => found[at] = Candidate::Absent,
                Some(_) => {}
                None if page > 0 => note_missing(pages, page, &mut missing),
                None => {}
            }
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        if nodes == [NodeId(0); N] {
            return Ok(());
        }
        let begins = nodes.map(|node| node.page().unwrap_or(0));
        let mut frames = [None; N];
        pages.peek_all(&begins[..keys.len()], &mut frames);
        for (frame, to) in frames.iter().zip(nodes).take(keys.len()) {
            let Some(bytes) = frame else { continue };
            let start = bytes.as_ptr().wrapping_add(to.offset());
            weft_sys::prefetch(start);
            // Small nodes lie in two lines as often as not.
            weft_sys::prefetch(start.wrapping_add(64));
        }
        for (at, (frame, to)) in frames.into_iter().zip(nodes).take(keys.len()).enumerate() {
            match frame {
                Some(bytes) => found[at] = Candidate::Node(to, bytes),
                None if begins[at] > 0 => note_missing(pages, begins[at], &mut missing),
                None => {}
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// Asks the processor for the lines where the cells of up to `N` keys are, or would be.
    #[inline(always)]
    pub(crate) fn ask_for<'p, const N: usize>(
        &self,
        pages: &'p impl Pages,
        keys: impl Iterator<Item = u64>,
        cells: &mut Cells<'p, N>,
    ) {
        let mut count = 0;
        for (position, key) in cells.positions.iter_mut().zip(keys) {
            *position = self.position_of(key);
            self.directory.prefetch(upper(*position));
            count += 1;
        }
        for (page, position) in cells.pages.iter_mut().zip(&cells.positions[..count]) {
            *page = self.page_of(*position).unwrap_or(0);
        }
        pages.peek_all(&cells.pages[..count], &mut cells.frames);
        for (frame, position) in cells.frames[..count].iter().zip(&cells.positions) {
            if let Some(bytes) = frame {
                Self::prefetch_cell(as_words(bytes), *position);
            }
        }
    }
}

#[cold]
fn note_missing(pages: &impl Pages, page: u32, missing: &mut Vec<u32>) {
    if let Err(StepError::Miss(page)) = pages.bytes(page) {
        missing.push(page);
    }
}
