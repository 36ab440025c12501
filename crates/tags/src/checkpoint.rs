//! Checkpoints: all that differs from the medium goes there in one sequential pass, then the superblocks.
//!
//! ```text
//! pages | leaves of descriptors | list of leaves | catalog   -> sync -> superblock 0 -> sync -> superblock 1 -> sync
//! ```
//!
//! Nothing is overwritten but the superblocks, so a power cut at any point leaves the checkpoint before or this one.

use crate::error::{Error, Result};
use crate::ids::{HomeId, PAGE_BYTES};
use crate::layout::catalog::Guests;
use crate::layout::superblock::{Blob, COPIES, Superblock};
use crate::number_set::NumberSet;
use crate::pages::access::{PageReader, Pages};
use crate::pages::desc::{DESC_BYTES, PageKind};
use crate::partition::Partition;
use crate::space::Run;
use crate::store::Store;
use crate::sync::RwLockWriteGuard;
use crate::sys::aligned::AlignedBuf;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io::IoSlice;
use weft_core::checksum::crc32c;
use weft_core::codec::WriteFields;

/// Descriptors of a leaf.
pub(crate) const LEAF_PAGES: u32 = (PAGE_BYTES / DESC_BYTES) as u32;
/// Leaves that there can be. The last pages whose numbers have 32 bits are not used.
pub(crate) const LEAVES_MAX: u32 = u32::MAX / LEAF_PAGES;
/// Bytes of an entry of the list of leaves.
pub(crate) const LEAF_ENTRY_BYTES: usize = 16;
/// Pages written by one call.
const WRITE_PAGES: usize = 512;

/// Where the leaves are, and which of them no longer say the truth.
#[derive(Default)]
pub(crate) struct Leaves {
    pub at: BTreeMap<u32, (u64, u32)>,
    pub stale: NumberSet,
}

/// How long blocks are needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    /// A superblock will lead to them.
    Durable,
    /// Only memory leads to them until the next checkpoint.
    Scratch,
}

impl Leaves {
    /// Notes that the descriptor of `page` has changed.
    pub(crate) fn touch(&mut self, page: u32) {
        self.stale.insert(page / LEAF_PAGES);
    }
}

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
        self.settle_writes()?;
        let partitions = self.snodes.all();
        let guards: Vec<_> = partitions.iter().map(|partition| partition.write()).collect();
        let dirty = self.pool.dirty_pages();
        let lists = self.take_lists(&dirty)?;
        self.write_checkpoint(guards, &dirty, lists).inspect_err(|error| self.journal.stop(error))
    }

    /// Takes blocks for the list of leaves and the catalog, if there are enough for all else that a checkpoint writes: so it does not
    /// end half-way for want of them.
    fn take_lists(&self, dirty: &[u32]) -> Result<[Run; 2]> {
        let (changed, leaves) = {
            let mut leaves = self.leaves.lock();
            dirty.iter().for_each(|page| leaves.touch(*page));
            let changed = (dirty.len() + leaves.stale.len()) as u64;
            (changed, leaves.at.len() + leaves.stale.len())
        };
        self.note_guests();
        let lists = [leaves * LEAF_ENTRY_BYTES, self.catalog.read().encode().len()];
        let lists = lists.map(|bytes| (bytes.div_ceil(PAGE_BYTES) as u64).max(1));
        let mut space = self.space.lock();
        if !space.has(changed + lists[0] + lists[1], &*self.medium)? {
            return Err(Error::Full { what: space.why_full() });
        }
        let list = space.take_whole(lists[0], &*self.medium)?;
        let catalog = space.take_whole(lists[1], &*self.medium).inspect_err(|_| space.put_back(list))?;
        Ok([list, catalog])
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
        lists: [Run; 2],
    ) -> Result<()> {
        let mut leaves = self.leaves.lock();
        self.write_dirty(&guards, dirty, &mut leaves, Lifetime::Durable)?;
        drop(guards);
        let list = self.write_leaves(&mut leaves, lists[0])?;
        let catalog = self.write_blob(&self.catalog.read().encode(), lists[1])?;
        self.sync_medium()?;
        let mut superblock = self.superblock.lock();
        let next = Superblock {
            epoch: superblock.epoch + 1,
            lsn: self.journal.last(),
            leaves: list,
            catalog,
            erases: self.pool.erasure.has_snodes(),
            // Until what is given up now is overwritten as well.
            leaves_bytes: superblock.leaves_bytes || self.pool.erasure.has_snodes(),
            ..*superblock
        };
        self.write_superblocks(&next)?;
        let mut space = self.space.lock();
        for blob in [superblock.leaves, superblock.catalog] {
            space.release(blob.block, blob.blocks(), None);
        }
        let to_erase = space.settle();
        drop(space);
        *superblock = next;
        drop(superblock);
        let used = self.journal.restart(next.epoch);
        tracing::debug!(epoch = next.epoch, pages = dirty.len(), "checkpoint");
        self.erase(to_erase, used)
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
        self.write_dirty(&guards, &dirty, &mut self.leaves.lock(), Lifetime::Scratch)?;
        tracing::debug!(pages = dirty.len(), "pages written back during a replay");
        Ok(())
    }

    /// Writes the changed pages to new blocks.
    fn write_dirty(
        &self,
        guards: &[RwLockWriteGuard<'_, Partition>],
        dirty: &[u32],
        leaves: &mut Leaves,
        lifetime: Lifetime,
    ) -> Result<()> {
        let mut by_owner: FxHashMap<u16, Vec<u32>> = FxHashMap::default();
        for page in dirty {
            leaves.touch(*page);
            by_owner.entry(self.pool.table.load(*page).owner()).or_default().push(*page);
        }
        for guard in guards {
            if let Some(pages) = by_owner.remove(&guard.snode.0) {
                self.write_pages(guard, &pages, lifetime)?;
            }
        }
        Ok(())
    }

    fn sync_medium(&self) -> Result<()> {
        self.medium.sync().map_err(|source| Error::Io { what: "sync a checkpoint", block: 0, source })
    }

    pub(crate) fn write_superblocks(&self, superblock: &Superblock) -> Result<()> {
        for copy in [self.first_copy, COPIES - 1 - self.first_copy] {
            self.write_superblock(copy, superblock)?;
        }
        Ok(())
    }

    /// Writes one copy, which is durable afterwards.
    pub(crate) fn write_superblock(&self, copy: u64, superblock: &Superblock) -> Result<()> {
        let raw = superblock.encode();
        let mut out = AlignedBuf::zeroed(PAGE_BYTES);
        out[..raw.len()].copy_from_slice(&raw);
        self.medium.write(copy, &[IoSlice::new(&out)]).map_err(|source| Error::Io {
            what: "write the superblock",
            block: copy,
            source,
        })?;
        self.sync_medium()
    }

    /// Writes dirty pages of one s-node to new blocks.
    fn write_pages(&self, partition: &Partition, pages: &[u32], lifetime: Lifetime) -> Result<()> {
        let mut rest = pages;
        while !rest.is_empty() {
            let wanted = rest.len().min(WRITE_PAGES) as u64;
            let run = self.space.lock().take_scattered(wanted, &*self.medium)?;
            let (now, later) = rest.split_at(run.blocks as usize);
            self.write_run(partition, now, run)?;
            if lifetime == Lifetime::Scratch {
                self.space.lock().mark_scratch(run);
            }
            rest = later;
        }
        Ok(())
    }

    fn write_run(&self, partition: &Partition, pages: &[u32], run: Run) -> Result<()> {
        let reader = PageReader::new(&self.pool, &partition.token);
        let mut crcs = Vec::with_capacity(pages.len());
        {
            let mut parts = Vec::with_capacity(pages.len());
            for page in pages {
                let Ok(bytes) = reader.bytes(*page) else {
                    return Err(Error::damaged(format!("page {page} left memory while it was dirty")));
                };
                crcs.push(crc32c(bytes));
                parts.push(IoSlice::new(bytes));
            }
            self.medium.write(run.block, &parts).map_err(|source| Error::Io {
                what: "write pages",
                block: run.block,
                source,
            })?;
        }
        drop(reader);
        let mut space = self.space.lock();
        for (at, (page, crc)) in pages.iter().zip(crcs).enumerate() {
            let before = self.pool.table.describe(*page);
            space.release(before.block, 1, self.pool.erasure.owner(before.snode));
            self.pool.written(*page, run.block + at as u64, crc);
        }
        Ok(())
    }

    /// Writes the leaves that are stale, and the list of all.
    fn write_leaves(&self, leaves: &mut Leaves, run: Run) -> Result<Blob> {
        let stale = leaves.stale.take();
        for group in stale.chunks(WRITE_PAGES) {
            self.write_leaf_group(leaves, group)?;
        }
        let mut list = Vec::with_capacity(leaves.at.len() * LEAF_ENTRY_BYTES);
        for (leaf, (block, crc)) in &leaves.at {
            list.put_u32(*leaf);
            list.put_u32(*crc);
            list.put_u64(*block);
        }
        self.write_blob(&list, run)
    }

    /// Writes some leaves; a leaf of free pages alone is left out.
    fn write_leaf_group(&self, leaves: &mut Leaves, group: &[u32]) -> Result<()> {
        let mut raw = Vec::with_capacity(group.len() * PAGE_BYTES);
        let mut written = Vec::with_capacity(group.len());
        for leaf in group {
            if let Some((block, _)) = leaves.at.remove(leaf) {
                self.space.lock().release(block, 1, None);
            }
            let start = raw.len();
            let mut any = false;
            for page in leaf * LEAF_PAGES..(leaf + 1) * LEAF_PAGES {
                let desc = self.pool.table.describe(page);
                any |= desc.kind != PageKind::Free;
                desc.encode(&mut raw);
            }
            if any {
                written.push((*leaf, crc32c(&raw[start..])));
            } else {
                raw.truncate(start);
            }
        }
        let mut at = 0;
        while at < written.len() {
            let wanted = (written.len() - at) as u64;
            let run = self.space.lock().take_scattered(wanted, &*self.medium)?;
            let blocks = run.blocks as usize;
            self.write_raw(run.block, &raw[at * PAGE_BYTES..(at + blocks) * PAGE_BYTES])?;
            for (offset, (leaf, crc)) in written[at..at + blocks].iter().enumerate() {
                leaves.at.insert(*leaf, (run.block + offset as u64, *crc));
            }
            at += blocks;
        }
        Ok(())
    }

    /// Writes bytes to a run that has room for them; what they do not take of it is free again.
    fn write_blob(&self, raw: &[u8], run: Run) -> Result<Blob> {
        let blocks = (raw.len().div_ceil(PAGE_BYTES) as u64).max(1);
        debug_assert!(blocks <= run.blocks);
        self.space.lock().put_back(Run { block: run.block + blocks, blocks: run.blocks - blocks });
        self.write_raw(run.block, raw)?;
        Ok(Blob { block: run.block, bytes: raw.len() as u64, crc: crc32c(raw) })
    }

    fn write_raw(&self, block: u64, raw: &[u8]) -> Result<()> {
        let mut out = AlignedBuf::zeroed(raw.len());
        out[..raw.len()].copy_from_slice(raw);
        let parts = [IoSlice::new(&out)];
        self.medium.write(block, &parts).map_err(|source| Error::Io {
            what: "write a checkpoint",
            block,
            source,
        })
    }
}
