//! The front of the medium: the blocks behind the journal, for what leads to pages.
//!
//! Leaves of descriptors, their list and the catalog are written twice at each checkpoint. One copy goes to the front, before all pages;
//! the other goes anywhere, as pages do. So a store whose file was cut still has, in the front, what leads to the pages before the cut, and
//! a damaged block costs nothing.
//!
//! ```text
//!  | superblocks, journal | lists . | leaves ... leaves . | pages, second copies ...      '.' is free
//!                         '--------- the front ----------'
//! ```
//!
//! The front has room for two versions of each leaf, since the one before stays until a checkpoint is durable. When that is too little, the front
//! becomes longer, and the checkpoint moves the pages that lie there to other blocks. What found no room in the front goes anywhere, until the checkpoint after. Where
//! the front ends is not stored: no page lies before it.

use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use crate::layout::leaves::{LEAF_ENTRY_BYTES, Leaves};
use crate::pages::desc::PageKind;
use crate::space::{Run, in_runs};
use crate::store::Store;
use weft_core::checksum::crc32c;
use weft_sys::AlignedBuf;

/// Blocks of lists that the front has room for, for each block of the list of leaves and the catalog: two versions, and what lies
/// between them.
const LISTS: u64 = 4;
/// Blocks of the shortest front beside.
const SPARE_BLOCKS: u64 = 8;
/// Pages that one checkpoint moves out of the front, at most.
const MOVE_PAGES: u64 = 8192;
/// Pages that are read and written together.
const MOVE_AT_ONCE: usize = 256;

/// Blocks of a front for so many leaves and blocks of lists, and how many of them are for the lists.
fn front_blocks(leaves: u64, lists: u64) -> (u64, u64) {
    (leaves * 2 + lists * LISTS + SPARE_BLOCKS, lists * LISTS)
}

/// Blocks of the front of a new store.
pub(crate) fn first_front() -> u64 {
    front_blocks(1, 2).0
}

/// Blocks of a list of so many leaves.
pub(crate) fn list_blocks(leaves: u64) -> u64 {
    (leaves * LEAF_ENTRY_BYTES as u64).div_ceil(PAGE_BYTES as u64).max(1)
}

impl Store {
    /// The front of a store with so many leaves: it ends before the first page, and is not longer than it has to be.
    pub(crate) fn settle_front(&self, leaves: u64) {
        let superblock = *self.superblock.lock();
        let (blocks, lists) = front_blocks(leaves, superblock.list_blocks());
        let first = superblock.journal_block + superblock.journal_blocks;
        let end = self.pages_in(first, first + blocks).into_iter().map(|(block, _)| block).min();
        self.space.lock().set_front(first, first + lists, end.unwrap_or(first + blocks));
    }

    /// Makes the front so long as `leaves` leaves and `lists` blocks of lists want it, if so many blocks are free as the checkpoint writes
    /// anyway, and as the pages take that have to move. Returns these pages, by their blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn widen_front(&self, leaves: u64, lists: u64, written: u64) -> Result<Vec<(u64, u32)>> {
        let (least, for_lists) = front_blocks(leaves, lists);
        let mut space = self.space.lock();
        let front = space.front();
        space.set_front(front.first, front.first + for_lists, front.end);
        // What a backup keeps is not free after the checkpoint, either.
        if front.end - front.first >= least || !space.settles() {
            return Ok(Vec::new());
        }
        // By more than is wanted now, so that a store that grows does it seldom.
        let end = (front.first + least + leaves / 4).min(front.end + MOVE_PAGES).min(space.totals().0);
        drop(space);
        let pages = self.pages_in(front.first, end);
        let mut space = self.space.lock();
        // A moved page has its leaf written, twice.
        let wanted = written + 3 * pages.len() as u64 + (end - front.end);
        if space.reserve(0, wanted, &*self.medium)? {
            space.set_front(front.first, front.first + for_lists, end);
            return Ok(pages);
        }
        Ok(Vec::new())
    }

    /// Makes the front as short as the leaves that there are want it: the next checkpoint writes those in it anew that lie behind.
    pub(crate) fn shorten_front(&self) {
        let mut leaves = self.leaves.lock();
        let superblock = *self.superblock.lock();
        let (blocks, lists) = front_blocks(leaves.at.len() as u64, superblock.list_blocks());
        let mut space = self.space.lock();
        let front = space.front();
        let end = front.end.min(front.first + blocks);
        space.set_front(front.first, front.first + lists, end);
        let Leaves { at, stale } = &mut *leaves;
        let behind = at.iter().filter(|(_, leaf)| (end..front.end).contains(&leaf.blocks[0]));
        stale.extend(behind.map(|(number, _)| *number));
    }

    /// The pages in these blocks, in their order.
    pub(crate) fn pages_in(&self, first: u64, end: u64) -> Vec<(u64, u32)> {
        let table = &self.pool.table;
        let known = table.known(u32::MAX);
        let mut pages: Vec<(u64, u32)> = known
            .filter_map(|page| {
                let desc = table.desc(page)?.lock();
                let is_there = desc.kind != PageKind::Free && (first..end).contains(&desc.block);
                is_there.then_some((desc.block, page))
            })
            .collect();
        pages.sort_unstable();
        pages
    }

    /// Copies pages to blocks behind the front, as they are on the medium. Those that are written anew meanwhile are behind it already. The caller has all
    /// partitions alone.
    pub(crate) fn move_pages(&self, pages: &[(u64, u32)]) -> Result<()> {
        let mut raw = AlignedBuf::zeroed(MOVE_AT_ONCE.min(pages.len()) * PAGE_BYTES);
        let is_there = |(block, page): &(u64, u32)| self.pool.table.describe(*page).block == *block;
        let rest: Vec<(u64, u32)> = pages.iter().copied().filter(is_there).collect();
        for group in rest.chunks(MOVE_AT_ONCE) {
            let mut into = &mut raw[..];
            for run in in_runs(group, MOVE_AT_ONCE, |(block, _)| *block) {
                let (bytes, rest) = into.split_at_mut(run.len() * PAGE_BYTES);
                self.medium.read(run[0].0, bytes).map_err(Error::io("move pages", run[0].0))?;
                into = rest;
            }
            self.put_pages(group, &mut raw)?;
        }
        Ok(())
    }

    /// Writes pages to other blocks. One that is damaged stays where it is.
    fn put_pages(&self, group: &[(u64, u32)], raw: &mut [u8]) -> Result<()> {
        let mut whole = Vec::with_capacity(group.len());
        for ((block, page), at) in group.iter().zip((0..).step_by(PAGE_BYTES)) {
            let desc = self.pool.table.describe(*page);
            if crc32c(&raw[at..at + PAGE_BYTES]) == desc.crc {
                raw.copy_within(at..at + PAGE_BYTES, whole.len() * PAGE_BYTES);
                whole.push((*block, *page, desc));
            }
        }
        let mut done = 0;
        while done < whole.len() {
            let run = self.space.lock().take_scattered((whole.len() - done) as u64, &*self.medium)?;
            let now = done..done + run.blocks as usize;
            let (mut block, mut bytes) = (run.block, &raw[now.start * PAGE_BYTES..now.end * PAGE_BYTES]);
            for of_home in whole[now.clone()].chunk_by(|(_, _, a), (_, _, b)| a.snode == b.snode) {
                let (part, rest) = bytes.split_at(of_home.len() * PAGE_BYTES);
                let tag = self.pool.tag_of(of_home[0].2.snode).relocated();
                self.medium.put("move pages", block, &tag, part)?;
                (block, bytes) = (block + of_home.len() as u64, rest);
            }
            for ((before, page, desc), block) in whole[now.clone()].iter().zip(run.block..) {
                self.space.lock().release(*before, 1, self.pool.erasure.owner(desc.snode));
                self.pool.place(*page, block, desc.crc);
            }
            done = now.end;
        }
        Ok(())
    }

    /// Takes blocks for both copies of a list, the first in the front if there is room.
    pub(crate) fn take_list(&self, blocks: u64) -> Result<[Run; 2]> {
        let mut space = self.space.lock();
        let in_front = space.take_for_list(blocks);
        let first = in_front.map_or_else(|| space.take_whole(blocks, &*self.medium), Ok)?;
        let second = space.take_whole(blocks, &*self.medium).inspect_err(|_| space.put_back(first))?;
        Ok([first, second])
    }

    /// Takes up to so many blocks for leaves: for first copies in the front, if there is room.
    pub(crate) fn take_leaves(&self, copy: usize, wanted: u64) -> Result<Run> {
        let mut space = self.space.lock();
        let in_front = if copy == 0 { space.take_for_leaves(wanted) } else { None };
        in_front.map_or_else(|| space.take_scattered(wanted, &*self.medium), Ok)
    }

    /// Has the next checkpoint write leaves that found no room in the front, as far as there is some now.
    pub(crate) fn call_in_leaves(&self, leaves: &mut Leaves) {
        let space = self.space.lock();
        let (end, room) = (space.front().end, space.front_free() as usize);
        drop(space);
        let outside = leaves.at.iter().filter(|(_, leaf)| leaf.blocks[0] >= end);
        leaves.stale.extend(outside.take(room).map(|(number, _)| *number));
    }
}
