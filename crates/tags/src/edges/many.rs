//! Many edges out of one node, looked for together.
//!
//! A look-up waits for memory up to four times: for the word that says where the cell's page is, for the cell, for the word that says where the
//! node is, for the node. A group of look-ups makes a pass for each of these, in which no wait depends on another, so that the processor has many
//! under way. Passes are short on purpose: what counts is how many of their rounds it has in sight.

use super::EdgeTable;
use super::table::{Line, Table};
use crate::error::Halt;
use crate::ids::{EdgeType, NodeId, PAGE_BYTES};
use crate::pages::access::{Pages, Words};

/// Edges of a group.
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
    /// Looks for the edges of up to [`GROUP`] keys out of one node. What is found is asked for from memory.
    ///
    /// # Errors
    /// Pages that have to be read first: those of cells, or, once these are there, those of nodes. They are an error only for a caller that can read them
    /// together; without them their edges are unknown.
    pub(crate) fn find_group<'p>(
        &self,
        pages: &'p impl Pages,
        source: NodeId,
        etype: EdgeType,
        keys: &[u64],
        found: &mut [Candidate<'p>; GROUP],
    ) -> Result<(), Vec<u32>> {
        found.fill(Candidate::Unknown);
        let Ok(Some(id)) = self.bundle(pages, source, etype) else { return Ok(()) };
        let Some(table) = self.bundles.get(&id) else { return Ok(()) };
        let mut missing = Vec::new();
        let mut cells: [Option<(&Words, u64)>; GROUP] = [None; GROUP];
        for (cell, key) in cells.iter_mut().zip(keys) {
            let position = table.position.of(*key);
            let Some(page) = table.page_of(position) else { continue };
            match pages.peek_words(page) {
                Some(words) => {
                    Table::<2>::prefetch_cell(words, position);
                    *cell = Some((words, position));
                }
                None => note_missing(pages, page, &mut missing),
            }
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        let mut nodes = [NodeId(0); GROUP];
        let mut further = [0; GROUP];
        let mut furthers = 0;
        for (at, key) in keys.iter().enumerate() {
            let Some((words, position)) = cells[at] else { continue };
            match Table::<2>::home_line(words, position, *key) {
                Line::Absent => found[at] = Candidate::Absent,
                Line::Cell([_, to]) => {
                    nodes[at] = NodeId(to);
                    pages.announce(NodeId(to).page().unwrap_or(0));
                }
                Line::Further => {
                    Table::<2>::prefetch_behind(words, position);
                    further[furthers] = at;
                    furthers += 1;
                }
            }
        }
        for at in &further[..furthers] {
            let Some((words, position)) = cells[*at] else { continue };
            match Table::<2>::first_in(words, position, keys[*at]) {
                None => found[*at] = Candidate::Absent,
                Some([_, to]) => {
                    nodes[*at] = NodeId(to);
                    pages.announce(NodeId(to).page().unwrap_or(0));
                }
            }
        }
        for (found, to) in found.iter_mut().zip(nodes) {
            let Some(page) = to.page().filter(|page| *page > 0) else { continue };
            match pages.peek(page) {
                Some(bytes) => {
                    let start = bytes.as_ptr().wrapping_add(to.offset()).cast();
                    crate::sys::prefetch(start);
                    // Small nodes lie in two lines as often as not.
                    crate::sys::prefetch(start.wrapping_add(64));
                    *found = Candidate::Node(to, bytes);
                }
                None => note_missing(pages, page, &mut missing),
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}

#[cold]
fn note_missing(pages: &impl Pages, page: u32, missing: &mut Vec<u32>) {
    if let Err(Halt::Miss(page)) = pages.bytes(page) {
        missing.push(page);
    }
}
