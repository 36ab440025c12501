//! Secure deletion: overwrites the blocks that an s-node with the flag has freed.
//!
//! Bytes of such an s-node lie in pages of nodes and tables, in blocks that pages have left, and in the journal. A slot that
//! is freed, and what an update leaves of longer data, is filled with zeros in its page, which the next checkpoint writes
//! to another block. Blocks that are released go on a list of their own ([`Space`](crate::space::Space)); when
//! the checkpoint that releases them is durable, they are overwritten, in as many passes as the store's options say and with zeros
//! at last, and so is what was used of the journal. Between two passes there is a sync. Only then are they free.
//!
//! A crash may leave copies where nothing knows of them: in blocks that were written and never referred to, in the journal,
//! in the slots of transactions that never committed. So the superblock says, before the first such byte is written, that
//! there may be some, and says so until the store is closed. An opening that finds it looks through all that is free.

use crate::TagFlags;
use crate::committed::Committed;
use crate::error::{Error, Result};
use crate::ids::{HomeId, PAGE_BYTES};
use crate::inspect::free_slots;
use crate::layout::superblock::{ERASES, LEAVES_BYTES, Superblock};
use crate::options::ErasePass;
use crate::pages::access::Pages;
use crate::replay::keep_room;
use crate::space::Run;
use crate::store::Store;
use rand::RngCore;
use std::sync::atomic::Ordering;
use weft_core::Tag;
use weft_sys::AlignedBuf;

/// Blocks that are overwritten by one call.
const ERASE_BLOCKS: u64 = 256;

/// Least blocks that a discard covers: fewer are not worth a call.
const DISCARD_BLOCKS_MIN: u64 = 16;

impl Store {
    /// Whether the medium can keep what secure deletion promises. A file on a copy-on-write file system cannot.
    pub fn erases(&self) -> bool {
        self.medium.erases()
    }

    /// Sees to it that an opening after a crash looks for what is to be erased. Before the first such byte is written.
    ///
    /// # Errors
    /// [`Error::Io`]; the store stops then. [`Error::Stopped`].
    pub(crate) fn begin_erasing(&self) -> Result<()> {
        let _alone = self.gate.write();
        self.say_erasing(true)
    }

    /// As [`Store::begin_erasing`], by who has the gate, before anything is written: a store that is only read stays as it is.
    pub(crate) fn expect_erasures(&self) -> Result<()> {
        let erasure = &self.pool.erasure;
        let is_said = || self.superblock.lock().has(LEAVES_BYTES);
        if erasure.any.load(Ordering::Relaxed) && !is_said() && erasure.has_snodes() {
            return self.say_erasing(true);
        }
        Ok(())
    }

    /// A store that is closed has nothing left to be erased.
    pub(crate) fn end_erasing(&self) -> Result<()> {
        let _alone = self.gate.write();
        let is_left = self.pool.erasure.left_over.load(Ordering::Relaxed) || !self.space.lock().is_erased();
        if is_left { Ok(()) } else { self.say_erasing(false) }
    }

    pub(crate) fn say_erasing(&self, leaves_bytes: bool) -> Result<()> {
        let mut superblock = self.superblock.lock();
        if superblock.has(LEAVES_BYTES) == leaves_bytes {
            return Ok(());
        }
        self.journal.check()?;
        let kept = superblock.flags & ERASES;
        let flags = if leaves_bytes { ERASES | LEAVES_BYTES } else { kept };
        let next = Superblock { flags, ..*superblock };
        let done = self.write_superblocks(&next);
        match &done {
            Ok(()) => *superblock = next,
            Err(error) => self.journal.stop(error),
        }
        done
    }

    /// Overwrites the blocks that a checkpoint, which is durable now, has given up, and what was used of the journal, of
    /// which that is `journal_blocks`. The caller has the gate alone.
    pub(crate) fn erase(&self, mut runs: Vec<Run>, journal_blocks: u64) -> Result<()> {
        let erasure = &self.pool.erasure;
        runs.sort_unstable_by_key(|run| run.block);
        let mut all = runs.clone();
        if erasure.in_journal.swap(false, Ordering::Relaxed) {
            let area = self.journal.area_at_rest();
            if erasure.all.load(Ordering::Relaxed) {
                self.find_bytes(area, &mut all);
            } else {
                all.push(Run { blocks: journal_blocks, ..area });
            }
        }
        self.overwrite(&all)?;
        let long = runs.iter().filter(|run| run.blocks >= DISCARD_BLOCKS_MIN);
        long.for_each(|run| self.medium.discard(run.block, run.blocks));
        tracing::debug!(runs = runs.len(), "erased");
        let mut space = self.space.lock();
        runs.into_iter().for_each(|run| space.put_back(run));
        Ok(())
    }

    /// Overwrites blocks, in all passes, or has the medium erase them; durable afterwards.
    fn overwrite(&self, runs: &[Run]) -> Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        let all: Vec<_> = runs.iter().map(|run| (run.block, run.blocks)).collect();
        if self.medium.overwrites() {
            self.overwrite_in_passes(runs)?;
        } else {
            self.medium.free(&all);
        }
        self.medium.erase(&all).map_err(Error::io("have the medium erase", runs[0].block))
    }

    fn overwrite_in_passes(&self, runs: &[Run]) -> Result<()> {
        let longest = runs.iter().map(|run| run.blocks).max().unwrap_or(0).min(ERASE_BLOCKS);
        let mut bytes = AlignedBuf::zeroed(longest as usize * PAGE_BYTES);
        // Zeros are what an opening after a crash knows to be erased.
        for pass in self.options.erase_passes.iter().chain([&ErasePass::Byte(0)]) {
            for part in runs.iter().flat_map(|run| run.parts(ERASE_BLOCKS)) {
                let bytes = &mut bytes[..part.blocks as usize * PAGE_BYTES];
                match pass {
                    ErasePass::Byte(byte) => bytes.fill(*byte),
                    ErasePass::Random => rand::rng().fill_bytes(bytes),
                }
                self.medium.put("erase", part.block, &Tag::METADATA, bytes)?;
            }
            // Else a cache on the way may keep all passes but the last to itself.
            self.medium.flush("sync what is erased")?;
        }
        Ok(())
    }

    /// Finds the blocks of a run that are not zero. The others are not written: those that never were may have no room on the medium.
    fn find_bytes(&self, run: Run, found: &mut Vec<Run>) {
        if !self.medium.overwrites() {
            // What a read gets says nothing of older copies.
            found.push(run);
            return;
        }
        let mut raw = AlignedBuf::zeroed(run.blocks.min(ERASE_BLOCKS) as usize * PAGE_BYTES);
        for part in run.parts(ERASE_BLOCKS) {
            let raw = &mut raw[..part.blocks as usize * PAGE_BYTES];
            let is_read = self.medium.read(part.block, raw).is_ok();
            for (block, page) in (part.block..).zip(raw.chunks_exact_mut(PAGE_BYTES)) {
                // What cannot be read is overwritten as well.
                let is_read = is_read || self.medium.read(block, page).is_ok();
                if !is_read || page.iter().any(|byte| *byte != 0) {
                    Run::add(found, block);
                }
            }
        }
    }

    /// For a store that is being opened and was not closed: erases what is free. The caller has claimed all blocks that the checkpoint
    /// and the journal refer to, and nothing was given out yet.
    pub(crate) fn erase_free(&self) -> Result<()> {
        self.pool.erasure.suspect_all();
        let free = self.space.lock().free_runs();
        let mut found = Vec::new();
        free.into_iter().for_each(|run| self.find_bytes(run, &mut found));
        self.overwrite(&found)
    }

    /// Learns which homes have s-nodes of the class, of a store that is being opened. The catalog says it of homes that are shared, but
    /// not what has come since it was written.
    pub(crate) fn learn_classes(&self, is_catalog_new: bool) -> Result<()> {
        for home in self.snodes.ids() {
            let mut flags = self.read_root(self.root_of_home(home)?)?.tags.flags;
            if home.is_shared() && !is_catalog_new {
                self.each_guest(home, |_, root| {
                    flags |= self.read_root(root)?.tags.flags;
                    Ok(())
                })?;
            }
            if self.snodes.erases(home) {
                flags |= TagFlags::SECURE_DELETE;
            }
            self.set_erasure(home, flags);
        }
        Ok(())
    }

    /// Notes the class of a home. One that is shared stays one that is erased.
    pub(crate) fn set_erasure(&self, home: HomeId, flags: TagFlags) {
        self.pool.erasure.set(home.0, flags);
        if flags.contains(TagFlags::SECURE_DELETE) {
            self.snodes.with_guests(home, |guests| guests.erases = true);
        }
    }

    /// For a store that is being opened and was not closed: clears slots that no committed node is in. They may have the bytes of
    /// transactions that did not commit.
    pub(crate) fn clear_free_slots(&self) -> Result<()> {
        let table = &self.pool.table;
        for page in self.data_pages() {
            let desc = table.describe(page);
            if !self.pool.erasure.is_of(desc.snode) || free_slots(&desc).next().is_none() {
                continue;
            }
            keep_room(self)?;
            let partition = self.partition(HomeId(desc.snode))?;
            self.write(&mut partition.write(), |pages, _| {
                for slot in free_slots(&desc) {
                    if pages.bytes(page)?[slot.clone()].iter().any(|byte| *byte != 0) {
                        pages.bytes_mut(page)?[slot].fill(0);
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The store is open: what is given up from now on is of the s-nodes that are known.
    pub(crate) fn end_opening(&self) -> Result<()> {
        let erasure = &self.pool.erasure;
        erasure.all.store(false, Ordering::Relaxed);
        erasure.any.store(erasure.has_snodes(), Ordering::Relaxed);
        if erasure.has_snodes() { Ok(()) } else { self.end_erasing() }
    }
}
