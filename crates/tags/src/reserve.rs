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
use crate::journal::log::JournalReservation;
use crate::layout::leaves::{LEAF_ENTRY_BYTES, LEAF_PAGES};
use crate::layout::superblock::Superblock;
use crate::pages::pool::{CacheFull, CacheReservation};
use crate::space::Space;
use crate::store::Store;
use crate::sync::RwLockReadGuard;

/// The part of the blocks in use that deletions can have, and how many more, of a store that may be large enough.
const RESERVE_PART: u64 = 64;
const RESERVE_BLOCKS_MAX: u64 = 256;
/// The part of the largest size of the store that is enough for these more.
const LIMIT_PART: u64 = 32;

/// Blocks that a change of the store takes.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    pub taken: u64,
    /// Pages in these blocks that the next checkpoint writes anew.
    pub rewritten: u64,
    /// Pages beside whose descriptors change.
    pub freed: u64,
    /// It only takes something away, so it may use the reserve.
    pub only_takes: bool,
}

/// Blocks that a commit is going to take; given back when it is dropped, when they are counted as they are.
struct BlockReservation<'s> {
    store: &'s Store,
    blocks: u64,
}

impl Drop for BlockReservation<'_> {
    fn drop(&mut self) {
        self.store.space.lock().end_reservation(self.blocks);
    }
}

/// Room for a change of the store, which keeps checkpoints away. It is held until the change's record is in the journal.
pub(crate) struct Room<'s> {
    _journal: JournalReservation<'s>,
    _cache: CacheReservation<'s>,
    _blocks: Option<BlockReservation<'s>>,
    _gate: RwLockReadGuard<'s, ()>,
}

impl Store {
    /// Keeps room for a record of `bytes` in the journal, for changes of `pages` in the cache, and for `blocks` on the medium. A checkpoint
    /// makes room where others have taken it.
    ///
    /// # Errors
    /// [`Error::CacheFull`], [`Error::Full`]; [`Error::Stopped`], [`Error::Io`].
    pub(crate) fn admit(
        &self,
        bytes: usize,
        pages: impl Fn() -> usize,
        blocks: Option<Blocks>,
    ) -> Result<Room<'_>> {
        let mut has_room = false;
        loop {
            if self.pool.dirty() > self.pool.capacity() / 2 {
                self.checkpoint()?;
            }
            let gate = self.gate.read();
            // Others may have taken the room meanwhile, or have kept it for what they are about to append.
            if let Some(journal) = self.journal.reserve(bytes, &*self.medium)? {
                // A store that has stopped changes nothing any more: it would be read, and never be durable.
                self.journal.check().map_err(|error| self.periodic.reason(error))?;
                match self.pool.reserve(pages()) {
                    Ok(cache) => {
                        let kept = blocks.map(|blocks| self.reserve_blocks(blocks)).transpose()?;
                        if !matches!(kept, Some(None)) {
                            let (_journal, _cache, _blocks, _gate) = (journal, cache, kept.flatten(), gate);
                            return Ok(Room { _journal, _cache, _blocks, _gate });
                        }
                        if std::mem::replace(&mut has_room, true) {
                            return Err(self.space.lock().full());
                        }
                    }
                    Err(CacheFull::Ever) => return Err(Error::CacheFull { pages: self.pool.capacity() }),
                    Err(CacheFull::Now) => {}
                }
            }
            drop(gate);
            self.checkpoint()?;
        }
    }

    /// Bytes of the medium that new data can take: what the next checkpoint writes, and what is kept for deletions, is not among them. A
    /// commit of new data needs a little more than its data, for what leads to it.
    pub fn room_bytes(&self) -> u64 {
        let checkpoint =
            self.checkpoint_blocks(Blocks { taken: 0, rewritten: 0, freed: 0, only_takes: false });
        let space = self.space.lock();
        let (end, free) = space.totals();
        let free = free + (space.limit() - end);
        free.saturating_sub(checkpoint + deletions_blocks(&space)) * PAGE_BYTES as u64
    }

    /// Blocks that the next checkpoint writes after a change.
    fn checkpoint_blocks(&self, Blocks { taken, rewritten, freed, .. }: Blocks) -> u64 {
        let changed = (self.pool.dirty() + self.pool.reserved()) as u64 + rewritten;
        let stale = self.leaves.lock().stale.len() as u64;
        let tables = u64::from(self.pool.numbers.tables.lock().end() - DATA_PAGES_MAX);
        let pages = u64::from(self.pool.numbers.data.lock().end()) + tables + changed.max(taken);
        // No more than the pages could fill, and a few that they begin.
        let leaves = (stale + freed + changed).min(pages / u64::from(LEAF_PAGES) + 4);
        // All but pages is written twice.
        changed + 2 * (leaves + lists_blocks(&self.superblock.lock(), leaves))
    }

    /// Keeps blocks for a change of pages that the pool has room for. `None` where there are not enough: a checkpoint may make room.
    ///
    /// # Errors
    /// [`Error::Io`] when the medium cannot grow for another reason than that it is full.
    fn reserve_blocks(&self, blocks: Blocks) -> Result<Option<BlockReservation<'_>>> {
        let Blocks { taken, only_takes, .. } = blocks;
        self.expect_erasures()?;
        let checkpoint = self.checkpoint_blocks(blocks);
        let mut space = self.space.lock();
        let reserve = if only_takes { 0 } else { deletions_blocks(&space) };
        let is_reserved = space.reserve(taken, checkpoint + reserve, &*self.medium)?;
        drop(space);
        Ok(is_reserved.then(|| BlockReservation { store: self, blocks: taken }))
    }
}

/// Blocks that are kept for commits that only take away.
fn deletions_blocks(space: &Space) -> u64 {
    // What takes away changes no more pages than there are. The superblocks and the journal do not count.
    let used = space.used().saturating_sub(space.front().first);
    used / RESERVE_PART + RESERVE_BLOCKS_MAX.min(space.limit() / LIMIT_PART).min(used)
}

/// Blocks of the list of leaves and of the catalog, at most, if there are so many more leaves.
pub(crate) fn lists_blocks(superblock: &Superblock, more: u64) -> u64 {
    let more = (more * LEAF_ENTRY_BYTES as u64).div_ceil(PAGE_BYTES as u64);
    // Of the catalog, what a few edge types and s-nodes add.
    superblock.list_blocks() + more + 2
}
