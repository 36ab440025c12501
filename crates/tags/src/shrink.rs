//! Making a store smaller that has held more than it does now.
//!
//! A page's id says nothing of the block that it is in, so pages can go to other blocks. What lies near the end of the medium
//! is marked as changed, some pages at a time, and the next checkpoint writes it to free blocks near the beginning, as it
//! writes all that is changed: crash-safe for the same reasons, with commits going on in between. Then the end of the medium,
//! where nothing is in use any more, is given back.
//!
//! ```text
//!  | superblocks, journal | pages .. pages ..... pages . pages |          before
//!                                 ^------<---------'
//!  | superblocks, journal | pages pages pages .|                          after; '.' is free
//! ```
//!
//! Before that, pages of edge tables that deletions have emptied are merged with others. How cells lie in pages is not
//! in the journal, so a replay needs nothing of it. Nodes stay where they are in their pages, since that is their id: a slab page
//! with one node left stays.

use crate::edges::grow::MERGED_PAGES;
use crate::edges::table::Table;
use crate::edges::{COUNTS, MAIN};
use crate::error::{Error, Result, Step, StepError};
use crate::ids::{HomeId, PAGE_BYTES};
use crate::layout::node::{slot_bytes, slots_of};
use crate::pages::access::{PageReader, PageWriter};
use crate::pages::desc::{PageKind, count_slots};
use crate::partition::Contents;
use crate::store::Store;
use crate::tx::Transaction;
use crate::tx::apply::{drop_empty_slabs, drop_table_pages};
use std::time::{Duration, Instant};

/// Pages that are moved from one checkpoint to the next, at most.
const MOVE_PAGES: usize = 2048;
/// Pages that are read together, and marked under one hold of their s-node.
const MARK_PAGES: usize = 64;
/// Groups of pages of edge tables that are looked at under one hold of their s-node.
const MERGE_GROUPS: usize = 8;
/// How long the lock of an s-node is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// Times that the store is gone through: what commits put near the end meanwhile is moved by the next.
const PASSES_MAX: usize = 8;
/// Blocks that are left free for the next checkpoints beside those of its lists: at least so many, and this part of what is in use.
const SPARE_BLOCKS_MIN: u64 = 64;
/// Blocks that a checkpoint that moves pages leaves free at least, beside those of its lists and of what commits have changed: fewer than
/// [`SPARE_BLOCKS_MIN`], which a store that was made smaller has left.
const MARGIN_BLOCKS: u64 = SPARE_BLOCKS_MIN / 4;
/// Blocks that moving a page may take until the checkpoint after: for itself, for both copies of its leaf, and as much again for commits.
const BLOCKS_PER_PAGE: u64 = 6;
/// Pages from which a checkpoint is worth it.
const MOVE_PAGES_MIN: usize = 8;
const SPARE_PART: u64 = 128;

/// What [`Store::shrink`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShrinkReport {
    /// Bytes of the medium before.
    pub bytes_before: u64,
    /// Bytes of the medium now; those of a block device stay.
    pub bytes_after: u64,
    /// Of these, bytes that are free or will be after the next checkpoint.
    pub free_bytes: u64,
    /// Pages that were moved towards the beginning.
    pub pages_moved: u64,
    /// Pages of edge tables that were merged into others, or had no cell.
    pub tables_merged: u64,
    /// S-nodes whose edge tables were left as they are, or a part of them, since a transaction held the s-node for longer than a second, a
    /// snapshot was open, or the medium had no room for what merging them writes anew.
    pub snodes_skipped: u64,
    /// Whether a backup was under way. It keeps the blocks that pages would leave, so they were not moved, or not all of them.
    pub backup_under_way: bool,
    /// Bytes of pages of small nodes in which no node is. They cannot be given back, since nodes do not move within pages, and
    /// are filled with new nodes where a page is half empty.
    pub slab_free_bytes: u64,
}

/// The end of the filling from the beginning, however it comes.
struct Filling<'s>(&'s Store);

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.0.space.lock().fill_below(None);
    }
}

/// A page that is to move, and the block that it is in.
type Victim = (u64, u32);

impl Store {
    /// Makes the medium as small as what the store holds allows, while others read and commit: merges pages of edge tables
    /// that deletions have emptied, moves pages from the end of the medium to free blocks before, and gives the end back. Ids
    /// do not change. (Called "shrink" since it is for what the medium gets back; nodes are not packed closer in their pages,
    /// which "compact" would promise.) `progress` gets the bytes that were moved and those to be, after each checkpoint.
    ///
    /// Commits wait for one checkpoint for each 8 MiB that are moved, at most. A power cut or an error at any point leaves the last
    /// commit's state, and what was moved stays moved. What a snapshot or a backup keeps is not given back; while a
    /// snapshot is open no tables are merged, and while a backup is under way no pages are moved: shrink again after its end. The calling thread has no transaction open: that one's
    /// s-nodes would be passed over.
    ///
    /// Deletions do none of this by themselves, so that they stay fast.
    ///
    /// ```
    /// # use weft_tags::{Kv, MemoryStore, Options, SnodeId, Store};
    /// # let options = Options { cache_bytes: 4 << 20, journal_bytes: 1 << 20, ..Options::default() };
    /// # let store = Store::create(Box::new(MemoryStore::new()), &options)?;
    /// let kv = Kv::open(&store, SnodeId::FIRST, "pages")?;
    /// (0..5000u32).try_for_each(|key| kv.put(&key.to_le_bytes(), &[7; 4000]))?;
    /// (0..4900u32).try_for_each(|key| kv.delete(&key.to_le_bytes()).map(drop))?;
    /// let report = store.shrink(|_moved, _all| ())?;
    /// assert!(report.bytes_after < report.bytes_before / 4);
    /// # Ok::<(), weft_tags::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`] for a page that cannot be read, [`Error::CacheFull`], [`Error::Stopped`]; [`Error::ReadOnly`];
    /// [`Error::HasSnapshots`].
    pub fn shrink(&self, mut progress: impl FnMut(u64, u64)) -> Result<ShrinkReport> {
        self.check_writable()?;
        self.check_no_snapshot()?;
        let _one = self.shrinking.lock();
        let page_bytes = PAGE_BYTES as u64;
        let (before, _) = self.space.lock().totals();
        let mut report = ShrinkReport { bytes_before: before * page_bytes, ..ShrinkReport::default() };
        for snode in self.snodes.ids() {
            if !self.merge_tables(snode, &mut report.tables_merged)? {
                report.snodes_skipped += 1;
            }
        }
        let filling = Filling(self);
        for pass in 0..=PASSES_MAX {
            self.shorten_front();
            let bound = self.bound();
            self.space.lock().fill_below(Some(bound));
            if pass == 0 {
                self.checkpoint()?;
                continue;
            }
            let checkpoints = self.move_behind(bound, &mut report, &mut progress)?;
            self.cut(bound)?;
            if checkpoints == 0 || report.backup_under_way {
                break;
            }
        }
        drop(filling);
        let (after, free) = self.space.lock().totals();
        report.bytes_after = after * page_bytes;
        report.free_bytes = free * page_bytes;
        report.slab_free_bytes = self.slab_free_bytes();
        Ok(report)
    }

    /// Where the medium can end: behind so many blocks as are in use, and some for the next checkpoint.
    fn bound(&self) -> u64 {
        let space = self.space.lock();
        // What is free in the front is not for pages.
        let used = space.used() + space.front_free();
        drop(space);
        used + self.lists_blocks() + SPARE_BLOCKS_MIN.max(used / SPARE_PART)
    }

    /// Blocks of the list of leaves and the catalog, which each checkpoint writes anew.
    fn lists_blocks(&self) -> u64 {
        2 * self.superblock.lock().list_blocks()
    }

    /// Moves what lies at block `bound` or behind it, a checkpoint after the other, the last blocks first; how many checkpoints there were.
    fn move_behind(
        &self,
        bound: u64,
        report: &mut ShrinkReport,
        progress: &mut impl FnMut(u64, u64),
    ) -> Result<usize> {
        let mut victims = self.pages_in(bound, u64::MAX);
        let total = victims.len() as u64 * PAGE_BYTES as u64;
        let (mut checkpoints, mut leaves_before) = (0, usize::MAX);
        loop {
            if !self.space.lock().settles() {
                // No checkpoint would free what it has moved.
                report.backup_under_way = true;
                return Ok(checkpoints);
            }
            let room = self.move_room();
            if room < MOVE_PAGES_MIN {
                return Ok(checkpoints);
            }
            let count = MOVE_PAGES.min(self.pool.capacity() / 8).min(room).min(victims.len());
            let step = victims.split_off(victims.len() - count);
            for group in step.chunks(MARK_PAGES) {
                report.pages_moved += self.mark(group, bound)?;
            }
            let leaves = self.leaves_behind(bound);
            // Commits may have filled all before the bound by now: then leaves come to lie behind it again, whoever writes them.
            let are_stuck = count == 0 && leaves.len() >= leaves_before;
            leaves_before = leaves.len();
            let lists = checkpoints == 0 && self.lists_end() > bound;
            if are_stuck || count + leaves.len() == 0 && !lists {
                return Ok(checkpoints);
            }
            // The next checkpoint writes these.
            self.leaves.lock().stale.extend(leaves.iter().copied().take(MOVE_PAGES.min(room)));
            self.checkpoint()?;
            checkpoints += 1;
            progress(total - victims.len() as u64 * PAGE_BYTES as u64, total);
        }
    }

    /// How many pages may move with the next checkpoint, which would stop the store if it found no block.
    fn move_room(&self) -> usize {
        let kept = self.lists_blocks() + self.pool.dirty() as u64 + MARGIN_BLOCKS;
        let space = self.space.lock();
        let free = space.free().saturating_sub(space.front_free());
        (free.saturating_sub(kept) / BLOCKS_PER_PAGE) as usize
    }

    /// The first block behind the list of leaves and the catalog, which each checkpoint writes.
    fn lists_end(&self) -> u64 {
        let superblock = self.superblock.lock();
        let copies = [superblock.leaves, superblock.catalog].map(|blob| blob.copies());
        copies.iter().flatten().map(|run| run.block + run.blocks).max().unwrap_or(0)
    }

    /// Marks pages that are still there as changed, so that the next checkpoint writes them elsewhere; how many.
    fn mark(&self, victims: &[Victim], bound: u64) -> Result<u64> {
        let _room = self.admit(0, || victims.len(), None)?;
        let pages: Vec<u32> = victims.iter().map(|(_, page)| *page).collect();
        self.fault(&pages)?;
        let (table, mut marked) = (&self.pool.table, 0);
        for page in pages {
            // One that is gone is nobody's.
            let Ok(share) = self.partition(HomeId(table.load(page).owner())) else { continue };
            let alone = share.write();
            let desc = table.describe(page);
            if desc.snode != alone.snode.0 || desc.block < bound {
                continue;
            }
            loop {
                let kept = PageReader::new(&self.pool, &alone.token).keep(page).map(drop);
                let Err(halt) = kept else { break };
                self.overcome(halt)?;
            }
            marked += 1;
        }
        Ok(marked)
    }

    /// The leaves of descriptors that lie at block `bound` or behind it.
    fn leaves_behind(&self, bound: u64) -> Vec<u32> {
        let leaves = self.leaves.lock();
        let behind = leaves.at.iter().filter(|(_, leaf)| leaf.blocks.iter().any(|block| *block >= bound));
        behind.map(|(leaf, _)| *leaf).collect()
    }

    /// Gives the end of the medium back, as far as nothing in it is in use, but not below `bound`.
    fn cut(&self, bound: u64) -> Result<()> {
        let _still = self.pool.hold_extent();
        let mut space = self.space.lock();
        let (now, _) = space.totals();
        let end = space.used_end().max(bound);
        if end < now {
            let left = self.medium.cut(end);
            let left = left.map_err(Error::io("cut the store", end))?;
            space.cut(left);
            tracing::debug!(before = now, after = left, "the medium is shorter");
        }
        Ok(())
    }

    /// Merges pages of an s-node's tables, and gives up pages of slabs without nodes; whether all of it was gone through. It is not where
    /// another held the s-node, or a snapshot is open, which would keep a copy of each page.
    fn merge_tables(&self, snode: HomeId, merged: &mut u64) -> Result<bool> {
        let mut tables = vec![MAIN, COUNTS];
        while let Some(which) = tables.pop() {
            let mut position = Some(0);
            while let Some(from) = position {
                let mut tx = self.begin();
                tx.wait_until(Some(Instant::now() + LOCK_WAIT));
                match tx.hold(snode) {
                    // One that was deleted meanwhile has no tables.
                    Err(Error::NoSuchSnode(_)) => return Ok(true),
                    Err(_) => return Ok(false),
                    Ok(_) => {}
                }
                if (which, from) == (COUNTS, 0) {
                    // The first step.
                    let share = self.partition(snode)?;
                    tables.extend(share.read().contents.edges.bundles.keys());
                }
                let (count, next) = match self.merge_step(&tx, snode, which, from) {
                    Ok(Some(step)) => step,
                    // Without room for another state of its pages a table stays as it is.
                    Ok(None) | Err(Error::Full { .. }) => return Ok(false),
                    Err(error) => return Err(error),
                };
                *merged += count;
                position = next;
            }
        }
        Ok(true)
    }

    /// Goes through some groups of a table, from a position on: how many were merged, and where to go on. The transaction holds
    /// the s-node, so nobody else is on the way through its tables.
    fn merge_step(
        &self,
        _holder: &Transaction<'_>,
        snode: HomeId,
        which: u64,
        from: u32,
    ) -> Result<Option<(u64, Option<u32>)>> {
        let most = MERGE_GROUPS.min(self.pool.capacity() / 64).max(1);
        // Each look changes the pages of one group at most.
        let blocks = crate::reserve::Blocks { taken: 0, rewritten: 0, freed: 0, only_takes: true };
        let _room = self.admit(0, || most * MERGED_PAGES, Some(blocks))?;
        if self.pool.versions.newest() > 0 {
            return Ok(None);
        }
        let share = self.partition(snode)?;
        let mut partition = share.write();
        let mut at = Merge { left: most, position: Some(from), freed: Vec::new() };
        let done = self.write(&mut partition, |pages, contents: &mut Contents| match which {
            MAIN => at.go_on(&mut contents.edges.main, pages),
            COUNTS => at.go_on(&mut contents.counts, pages),
            bundle => match contents.edges.bundles_mut().get_mut(&bundle) {
                Some(bundle) => at.go_on(bundle, pages),
                None => {
                    at.position = None;
                    Ok(())
                }
            },
        });
        let count = at.freed.len() as u64;
        // Also after a failure: nothing leads to them any more.
        drop_table_pages(self, at.freed);
        done?;
        drop_empty_slabs(self, &mut partition);
        Ok(Some((count, at.position)))
    }

    /// Bytes of slots that no node is in.
    fn slab_free_bytes(&self) -> u64 {
        let table = &self.pool.table;
        let free = |page| {
            let desc = table.describe(page);
            let bytes = slot_bytes(desc.class).filter(|_| desc.kind == PageKind::Slab)?;
            Some((bytes * (slots_of(bytes) - count_slots(&desc.taken()))) as u64)
        };
        self.data_pages().filter_map(free).sum()
    }
}

/// How far a table has been gone through.
struct Merge {
    /// Groups that are still to be looked at, at most.
    left: usize,
    position: Option<u32>,
    freed: Vec<u32>,
}

impl Merge {
    /// Merges groups of a table from the position on.
    fn go_on<const W: usize>(&mut self, table: &mut Table<W>, pages: &mut PageWriter<'_>) -> Step<()> {
        while let Some(at) = self.position.filter(|_| self.left > 0) {
            StepError::unless_empty(table.uncounted(pages, at, self.left * MERGED_PAGES))?;
            self.position = table.merge_at(pages, at, &mut self.freed)?;
            self.left -= 1;
        }
        if self.position.is_none() { table.end_merge(pages, &mut self.freed) } else { Ok(()) }
    }
}

#[cfg(all(test, not(weft_shuttle)))]
mod tests {
    use super::*;
    use crate::{FileStore, Info, InfoForm, NodeType, Options, ReadPath, SnodeId};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_looks_at_a_mapped_page_for_the_first_time_waits_for_a_cut_and_a_cut_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = Options { cache_bytes: 1 << 20, journal_bytes: 1 << 20, ..Options::default() };
        let file = FileStore::create(&path, ReadPath::Mapped).unwrap();
        let store = Store::create(Box::new(file), &options).unwrap();
        let edge = store.edge_type("of", InfoForm::Number).unwrap();
        let mut tx = store.begin();
        let node = tx.create_node(SnodeId::FIRST, NodeType(1), &[7; 4000]).unwrap();
        tx.create_edge(store.root(SnodeId::FIRST).unwrap(), edge, Info::Number(0), node).unwrap();
        tx.commit().unwrap();
        store.close().unwrap();
        let file = FileStore::open(&path, ReadPath::Mapped).unwrap();
        let store = Store::open(Box::new(file), &options).unwrap();
        if !store.pool.maps() {
            return;
        }
        let has_looked = AtomicBool::new(false);
        let held = store.pool.hold_extent();
        std::thread::scope(|scope| {
            let (has_looked, store) = (&has_looked, &store);
            scope.spawn(move || {
                assert_eq!(store.read_node(node, NodeType(1)).unwrap(), [7; 4000]);
                has_looked.store(true, Ordering::SeqCst);
            });
            // Long enough for a look that does not wait; one that waits does so however long this is.
            std::thread::sleep(Duration::from_millis(200));
            let too_early = has_looked.load(Ordering::SeqCst);
            drop(held);
            assert!(!too_early, "a page was looked at while the medium was being cut");
        });
        assert!(has_looked.into_inner());
    }
}
