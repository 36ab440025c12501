//! Reserves blocks for commits: a full medium refuses new data, and deletions still have room.
//!
//! A checkpoint writes what has changed to new blocks before those that held it are free. So a commit is refused, before anything of it is
//! applied, unless the blocks of the next checkpoint are there with its changes; recovery, which replays these changes and ends with
//! a checkpoint, finds the same blocks. Some more are kept for what makes room: commits that only take away.
//!
//! ```text
//! free blocks:  | for new things ...... | reserve: deletions | the next checkpoint: pages, leaves, lists |
//! ```

use crate::error::{Error, Result};
use crate::ids::{DATA_PAGES_MAX, PAGE_BYTES};
use crate::layout::leaves::{LEAF_ENTRY_BYTES, LEAF_PAGES};
use crate::layout::superblock::Superblock;
use crate::store::Store;

/// The part of the blocks in use that deletions can have, and how many more, of a store that may be large enough.
const RESERVE_PART: u64 = 64;
const RESERVE_BLOCKS_MAX: u64 = 256;
/// The part of the largest size of the store that is enough for these more.
const LIMIT_PART: u64 = 32;

/// Why a commit needs blocks: one that only deletes may use the reserve.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It puts something new on the medium.
    Insert,
    /// It only takes something away.
    Delete,
}

/// Blocks that a commit is going to take; given back when it is dropped, when they are counted as they are.
pub(crate) struct BlockReservation<'s> {
    store: &'s Store,
    blocks: u64,
}

impl Drop for BlockReservation<'_> {
    fn drop(&mut self) {
        self.store.space.lock().end_reservation(self.blocks);
    }
}

impl Store {
    /// Keeps `blocks` for a commit, whose changes of pages the pool has room for, and which changes the descriptors of up to `freed` pages
    /// beside. `None` where there are not enough: a checkpoint may make room.
    ///
    /// # Errors
    /// [`Error::Io`] when the medium cannot grow for another reason than that it is full.
    pub(crate) fn reserve_blocks(
        &self,
        blocks: u64,
        freed: u64,
        purpose: Purpose,
    ) -> Result<Option<BlockReservation<'_>>> {
        self.reserve_written(blocks, blocks, freed, purpose)
    }

    /// Refuses what takes so many blocks, which are written before the commit, where they are not there.
    ///
    /// # Errors
    /// [`Error::Full`], and those of a checkpoint.
    pub(crate) fn check_room(&self, blocks: u64) -> Result<()> {
        let is_there = || {
            let _gate = self.gate.read();
            Ok::<_, Error>(self.reserve_written(blocks, 0, blocks, Purpose::Insert)?.is_some())
        };
        if is_there()? {
            return Ok(());
        }
        self.checkpoint()?;
        if is_there()? { Ok(()) } else { Err(self.full()) }
    }

    /// As [`Store::reserve_blocks`], where the next checkpoint writes `rewritten` pages anew of those in the blocks.
    fn reserve_written(
        &self,
        blocks: u64,
        rewritten: u64,
        freed: u64,
        purpose: Purpose,
    ) -> Result<Option<BlockReservation<'_>>> {
        self.expect_erasures()?;
        let changed = (self.pool.dirty() + self.pool.reserved()) as u64 + rewritten;
        let stale = self.leaves.lock().stale.len() as u64;
        let tables = u64::from(self.numbers.tables.lock().end() - DATA_PAGES_MAX);
        let pages = u64::from(self.numbers.data.lock().end()) + tables + changed.max(blocks);
        // No more than the pages could fill, and a few that they begin.
        let leaves = (stale + freed + changed).min(pages / u64::from(LEAF_PAGES) + 4);
        // All but pages is written twice.
        let checkpoint = changed + 2 * (leaves + lists_blocks(&self.superblock.lock(), leaves));
        let mut space = self.space.lock();
        let reserve = match purpose {
            Purpose::Insert => {
                // What takes away changes no more pages than there are.
                let used = space.used_behind_journal();
                used / RESERVE_PART + RESERVE_BLOCKS_MAX.min(space.limit() / LIMIT_PART).min(used)
            }
            Purpose::Delete => 0,
        };
        let is_reserved = space.reserve(blocks, checkpoint + reserve, &*self.medium)?;
        drop(space);
        Ok(is_reserved.then(|| BlockReservation { store: self, blocks }))
    }

    /// The error of a store whose medium has no room left.
    pub(crate) fn full(&self) -> Error {
        Error::Full { what: self.space.lock().why_full() }
    }
}

/// Blocks of the list of leaves and of the catalog, at most, if there are so many more leaves.
pub(crate) fn lists_blocks(superblock: &Superblock, more: u64) -> u64 {
    let more = (more * LEAF_ENTRY_BYTES as u64).div_ceil(PAGE_BYTES as u64);
    // Of the catalog, what a few edge types and s-nodes add.
    superblock.list_blocks() + more + 2
}
