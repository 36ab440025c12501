//! Checkpoints: all that differs from the medium goes there in one sequential pass, then the superblocks.
//!
//! ```text
//! pages | leaves of descriptors | list of leaves | catalog   -> sync -> superblock 0 -> sync -> superblock 1 -> sync
//! ```
//!
//! Leaves, list and catalog are written twice, once to the [front](crate::front) of the medium.
//!
//! Nothing is overwritten but the superblocks, so a power cut at any point leaves the checkpoint before or this one.

use crate::error::{Error, Result};
use crate::front::list_blocks;
use crate::ids::{HomeId, PAGE_BYTES};
use crate::layout::catalog::Guests;
use crate::layout::leaves::{LEAF_ENTRY_BYTES, LEAF_PAGES, Leaf, Leaves};
use crate::layout::superblock::{Blob, COPIES, ERASES, LEAVES_BYTES, Superblock};
use crate::pages::access::{PageReader, Pages};
use crate::pages::desc::PageKind;
use crate::partition::Partition;
use crate::space::{Run, Space};
use crate::store::Store;
use crate::sync::RwLockWriteGuard;
use rustc_hash::FxHashMap;
use std::io::IoSlice;
use weft_core::Tag;
use weft_core::checksum::crc32c;
use weft_core::codec::put;
use weft_sys::AlignedBuf;

/// Pages written by one call.
const WRITE_PAGES: usize = 512;

/// Blocks for both copies of the list of leaves, and of the catalog.
type Lists = [[Run; 2]; 2];

impl Store {
    /// Writes a checkpoint: the journal is empty afterwards, and what was released can be used again. Commits wait for it.
    ///
    /// # Errors
    /// [`Error::Full`] where the medium has no room for it: nothing has changed. [`Error::Io`]; the store stops then, since the medium may have any
    /// part of it.
    pub fn checkpoint(&self) -> Result<()> {
        let _alone = self.gate.write();
        self.checkpoint_alone()
    }

    /// As [`Store::checkpoint`], by who has the gate alone.
    pub(crate) fn checkpoint_alone(&self) -> Result<()> {
        self.journal.check().map_err(|error| self.periodic.reason(error))?;
        self.settle(&self.journal.writes.all())?;
        self.expect_erasures()?;
        let partitions = self.snodes.all();
        let guards: Vec<_> = partitions.iter().map(|partition| partition.write()).collect();
        let dirty = self.pool.dirty_pages();
        let (lists, moved) = self.take_lists(&dirty)?;
        self.write_checkpoint(guards, &dirty, &moved, lists).inspect_err(|error| self.journal.stop(error))
    }

    /// Whether the last checkpoint has all that there is: every commit, every page, and what leads to them in the copy that is read first.
    fn is_at_checkpoint(&self) -> bool {
        let lsn = self.superblock.lock().lsn;
        let is_written = lsn == self.journal.last() && self.pool.dirty() == 0;
        is_written && self.leaves.lock().stale.is_empty() && self.space.lock().is_erased()
    }

    /// Writes a checkpoint, so that the next opening has nothing to replay. A store of which nothing has changed stays as it is, to the byte.
    ///
    /// # Errors
    /// As [`Store::checkpoint`]. What was durable before stays so.
    pub fn close(self) -> Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        self.journal.check().map_err(|error| self.periodic.reason(error))?;
        // Once more for leaves that found no room in the front.
        for _ in 0..2 {
            if !self.is_at_checkpoint() {
                self.checkpoint()?;
            }
        }
        self.end_erasing()
    }

    /// Takes blocks for the list of leaves and the catalog, if there are enough for all else that a checkpoint writes: so it does not
    /// end half-way for want of them. Returns the pages that have to leave the front, too.
    fn take_lists(&self, dirty: &[u32]) -> Result<(Lists, Vec<(u64, u32)>)> {
        let (changed, leaves) = {
            let mut leaves = self.leaves.lock();
            dirty.iter().for_each(|page| leaves.touch(*page));
            let changed = (dirty.len() + 2 * leaves.stale.len()) as u64;
            (changed, leaves.count_with_stale())
        };
        self.note_guests();
        let catalog = self.catalog.read().encode().len();
        let lists = [list_blocks(leaves), (catalog.div_ceil(PAGE_BYTES) as u64).max(1)];
        let wanted = changed + 2 * (lists[0] + lists[1]);
        let mut space = self.space.lock();
        if !space.reserve(0, wanted, &*self.medium)? {
            return Err(space.full());
        }
        drop(space);
        let moved = self.widen_front(leaves, lists[0] + lists[1], wanted)?;
        moved.iter().for_each(|(_, page)| self.leaves.lock().touch(*page));
        let list = self.take_list(lists[0])?;
        let catalog = self.take_list(lists[1]).inspect_err(|_| {
            let mut space = self.space.lock();
            list.into_iter().for_each(|run| space.put_back(run));
        })?;
        Ok(([list, catalog], moved))
    }

    /// Brings the catalog up to date with what is known of s-nodes that share homes.
    fn note_guests(&self) {
        let known: FxHashMap<HomeId, Guests> = self.snodes.guests().into_iter().collect();
        for entry in &mut self.catalog.write().homes {
            entry.guests = known.get(&entry.id).copied().unwrap_or_default();
        }
    }

    fn write_checkpoint(
        &self,
        guards: Vec<RwLockWriteGuard<'_, Partition>>,
        dirty: &[u32],
        moved: &[(u64, u32)],
        lists: Lists,
    ) -> Result<()> {
        let mut leaves = self.leaves.lock();
        self.write_dirty(&guards, dirty, &mut leaves, |_, _| ())?;
        self.move_pages(moved)?;
        drop(guards);
        let list = self.write_leaves(&mut leaves, lists[0])?;
        let catalog = self.write_blob(&self.catalog.read().encode(), lists[1])?;
        let pending = self.named.lock().take_pending();
        let snapshots = match pending {
            Some((raw, _)) if raw.is_empty() => Some(Blob::default()),
            Some((raw, runs)) => Some(self.write_blob(&raw, runs)?),
            None => None,
        };
        self.medium.flush("sync a checkpoint")?;
        let mut superblock = self.superblock.lock();
        let erases = self.pool.erasure.has_snodes();
        // Snapshots may keep what s-nodes of the class have given up, when none is left.
        let stays = if self.named.lock().is_empty() { LEAVES_BYTES } else { LEAVES_BYTES | ERASES };
        let next = Superblock {
            epoch: superblock.epoch + 1,
            lsn: self.journal.last(),
            leaves: list,
            catalog,
            // Until what is given up now is overwritten as well.
            flags: if erases { ERASES | LEAVES_BYTES } else { superblock.flags & stays },
            snapshots: snapshots.unwrap_or(superblock.snapshots),
            ..*superblock
        };
        debug_assert!(next.lsn >= superblock.lsn, "a checkpoint goes back to an earlier commit");
        self.write_superblocks(&next)?;
        let mut space = self.space.lock();
        let before = snapshots.map(|_| superblock.snapshots);
        for blob in [superblock.leaves, superblock.catalog].into_iter().chain(before) {
            blob.copies().into_iter().for_each(|run| space.release(run.block, run.blocks, None));
        }
        let to_erase = space.settle(&*self.medium);
        space.check_counts();
        drop(space);
        *superblock = next;
        drop(superblock);
        let used = self.journal.restart(next.epoch);
        tracing::debug!(epoch = next.epoch, pages = dirty.len(), "checkpoint");
        self.call_in_leaves(&mut leaves);
        drop(leaves);
        self.erase(to_erase, used)?;
        self.free_journal(used);
        Ok(())
    }

    /// Tells the medium that the first blocks of the journal's area hold nothing any more. The caller has the gate alone, and a checkpoint with
    /// all records is durable.
    pub(crate) fn free_journal(&self, blocks: u64) {
        if blocks > 0 && self.medium.uses_free() {
            let area = self.journal.area_at_rest();
            self.medium.free(&[(area.block, blocks)]);
        }
    }

    /// Writes the changed pages to blocks that only memory refers to, so that their frames can be taken away.
    ///
    /// For a replay: the checkpoint before and the journal stay what recovery begins with until the replay is done. The
    /// caller has claimed the blocks that the rest of the journal speaks of.
    pub(crate) fn write_back(&self) -> Result<()> {
        let partitions = self.snodes.all();
        let guards: Vec<RwLockWriteGuard<'_, Partition>> =
            partitions.iter().map(|partition| partition.write()).collect();
        let dirty = self.pool.dirty_pages();
        self.write_dirty(&guards, &dirty, &mut self.leaves.lock(), Space::mark_scratch)?;
        tracing::debug!(pages = dirty.len(), "pages written back during a replay");
        Ok(())
    }

    /// Writes the changed pages to new blocks, and calls `note` with each run of these.
    fn write_dirty(
        &self,
        guards: &[RwLockWriteGuard<'_, Partition>],
        dirty: &[u32],
        leaves: &mut Leaves,
        note: impl Fn(&mut Space, Run),
    ) -> Result<()> {
        let mut by_owner: FxHashMap<u16, Vec<u32>> = FxHashMap::default();
        for page in dirty {
            leaves.touch(*page);
            by_owner.entry(self.pool.table.load(*page).owner()).or_default().push(*page);
        }
        for guard in guards {
            if let Some(pages) = by_owner.remove(&guard.snode.0) {
                let (reader, tag) =
                    (PageReader::new(&self.pool, &guard.token), self.pool.tag_of(guard.snode.0));
                let mut rest = &pages[..];
                while !rest.is_empty() {
                    let wanted = rest.len().min(WRITE_PAGES) as u64;
                    let run = self.space.lock().take_scattered(wanted, &*self.medium)?;
                    let (now, later) = rest.split_at(run.blocks as usize);
                    self.write_run(&reader, &tag, now, run)?;
                    note(&mut self.space.lock(), run);
                    rest = later;
                }
            }
        }
        debug_assert!(by_owner.is_empty(), "changed pages of an s-node that is not there");
        debug_assert!(dirty.iter().all(|page| !self.pool.table.load(*page).is_dirty()));
        Ok(())
    }

    pub(crate) fn write_superblocks(&self, superblock: &Superblock) -> Result<()> {
        for copy in [self.first_copy, COPIES - 1 - self.first_copy] {
            self.write_superblock(copy, superblock)?;
        }
        Ok(())
    }

    /// Writes one copy, which is durable afterwards.
    pub(crate) fn write_superblock(&self, copy: u64, superblock: &Superblock) -> Result<()> {
        self.medium.put("write the superblock", copy, &Tag::METADATA, &superblock.encode())?;
        self.medium.flush("sync a checkpoint")
    }

    /// Writes dirty pages of one s-node to a run of blocks.
    fn write_run(&self, reader: &PageReader<'_>, tag: &Tag, pages: &[u32], run: Run) -> Result<()> {
        assert_eq!(run.blocks, pages.len() as u64, "each page gets a block");
        let mut crcs = Vec::with_capacity(pages.len());
        let mut parts = Vec::with_capacity(pages.len());
        for page in pages {
            let Ok(bytes) = reader.bytes(*page) else {
                return Err(Error::damaged(format!("page {page} left memory while it was dirty")));
            };
            crcs.push(crc32c(bytes));
            parts.push(IoSlice::new(bytes));
        }
        self.medium.write(run.block, tag, &parts).map_err(Error::io("write pages", run.block))?;
        let mut space = self.space.lock();
        for ((page, crc), block) in pages.iter().zip(crcs).zip(run.block..) {
            let before = self.pool.table.describe(*page);
            space.release(before.block, 1, self.pool.erasure.owner(before.snode));
            self.pool.place(*page, block, crc);
            self.pool.clean(*page);
        }
        Ok(())
    }

    /// Writes the leaves that are stale, and the list of all.
    fn write_leaves(&self, leaves: &mut Leaves, runs: [Run; 2]) -> Result<Blob> {
        let mut stale: Vec<u32> = std::mem::take(&mut leaves.stale).into_iter().collect();
        stale.sort_unstable();
        for group in stale.chunks(WRITE_PAGES) {
            self.write_leaf_group(leaves, group)?;
        }
        let mut list = Vec::with_capacity(leaves.at.len() * LEAF_ENTRY_BYTES);
        for (number, leaf) in &leaves.at {
            put(&mut list, &[number, &leaf.crc, &leaf.blocks]);
        }
        self.write_blob(&list, runs)
    }

    /// Writes some leaves; a leaf of free pages alone is left out.
    fn write_leaf_group(&self, leaves: &mut Leaves, group: &[u32]) -> Result<()> {
        let mut raw = Vec::with_capacity(group.len() * PAGE_BYTES);
        let mut written = Vec::with_capacity(group.len());
        for leaf in group {
            if let Some(before) = leaves.at.remove(leaf) {
                let mut space = self.space.lock();
                before.blocks.into_iter().for_each(|block| space.release(block, 1, None));
            }
            let start = raw.len();
            let mut any = false;
            for page in leaf * LEAF_PAGES..(leaf + 1) * LEAF_PAGES {
                let desc = self.pool.table.describe(page);
                any |= desc.kind != PageKind::Free;
                debug_assert!(
                    desc.kind == PageKind::Free || desc.is_possible(page),
                    "{desc:?} of page {page}"
                );
                desc.encode(&mut raw);
            }
            assert_eq!(raw.len(), start + PAGE_BYTES, "a leaf is a block");
            if any {
                written.push((*leaf, Leaf { blocks: [0; 2], crc: crc32c(&raw[start..]) }));
            } else {
                raw.truncate(start);
            }
        }
        for copy in 0..2 {
            let mut at = 0;
            while at < written.len() {
                let run = self.take_leaves(copy, (written.len() - at) as u64)?;
                let end = at + run.blocks as usize;
                self.write_raw(run.block, &raw[at * PAGE_BYTES..end * PAGE_BYTES])?;
                for ((_, leaf), block) in written[at..end].iter_mut().zip(run.block..) {
                    leaf.blocks[copy] = block;
                }
                at = end;
            }
        }
        leaves.at.extend(written);
        Ok(())
    }

    /// Writes bytes to two runs that have room for them; what they do not take of these is free again.
    fn write_blob(&self, raw: &[u8], runs: [Run; 2]) -> Result<Blob> {
        let blocks = (raw.len().div_ceil(PAGE_BYTES) as u64).max(1);
        for run in runs {
            debug_assert!(blocks <= run.blocks);
            self.space.lock().put_back(Run { block: run.block + blocks, blocks: run.blocks - blocks });
            self.write_raw(run.block, raw)?;
        }
        Ok(Blob::of(raw, runs.map(|run| run.block)))
    }

    fn write_raw(&self, block: u64, raw: &[u8]) -> Result<()> {
        let mut out = AlignedBuf::zeroed(raw.len());
        out[..raw.len()].copy_from_slice(raw);
        self.medium.put("write a checkpoint", block, &Tag::METADATA, &out)
    }
}
