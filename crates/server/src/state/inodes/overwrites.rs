//! The server's side of overwrite areas ([`weft_client::shared::overwrites`]): who gets one, and how the core gets what is in it.

use super::{Inodes, OpenInode, Ring};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use weft_client::shared::overwrites::{Area, Moving, Word};
use weft_client::shared::volume::{Durable, Inode, STUCK};
use weft_core::BLOCK_BYTES;
use weft_core::append_log::ENTRY_BYTES_MAX;
use weft_vfs::{FsError, FsResult};

/// An inode that the server has overwritten so often gets an area.
const OVERWRITES_MIN: u32 = 2;
/// Blocks that are left for a client to make durable: as many as it can at once when no two of them are in a row.
const UNLOGGED_MAX: usize = ENTRY_BYTES_MAX / BLOCK_BYTES / 2;
/// Consecutive blocks that the core gets at once.
const RUN_BYTES: usize = super::THROUGH_BYTES;
/// Copies that may be of no meaning while an area is drained: a client needs longer to overwrite a block than this thread to copy
/// it, but one that is broken could keep it copying.
const COPY_TRIES: u32 = 2000;

/// Consecutive blocks on their way from an area to the core.
struct Run {
    first: u32,
    pages: Vec<(usize, Word)>,
    bytes: Vec<u8>,
}

impl Run {
    fn is_full(&self) -> bool {
        self.bytes.len() >= RUN_BYTES
    }

    fn continues_at(&self, block: u32) -> bool {
        self.pages.is_empty() || self.first.checked_add(self.pages.len() as u32) == Some(block)
    }

    /// Takes in a block, which was in a page when that had a word.
    fn copy(
        &mut self,
        area: Area<'_>,
        block: u32,
        mut found: (usize, Word),
        tries: &mut u32,
    ) -> Result<(), Moving> {
        let begin = self.bytes.len();
        if self.pages.is_empty() {
            self.first = block;
        }
        self.bytes.resize(begin + BLOCK_BYTES, 0);
        loop {
            area.read(found.0, 0, &mut self.bytes[begin..]);
            if area.is_still(found.0, found.1) {
                self.pages.push(found);
                return Ok(());
            }
            *tries = tries.checked_sub(1).ok_or(Moving)?;
            found = area.find(block)?.ok_or(Moving)?;
        }
    }
}

impl Inodes {
    /// A client that might do it by itself has overwritten bytes that end at `end`: the inode gets an area when there were
    /// more, and room for what one can hold.
    pub fn overwritten(&self, open: &Arc<OpenInode>, end: u64) {
        let shared = self.shared(open.slot);
        let is_inside = end.next_multiple_of(BLOCK_BYTES as u64) <= shared.head.load(Relaxed);
        if !is_inside || open.overwritten.fetch_add(1, Relaxed) + 1 < OVERWRITES_MIN {
            return;
        }
        open.overwritten.store(0, Relaxed);
        if self.before_rewrite(open).is_err() {
            return;
        }
        let mut table = self.table.lock();
        // As for a ring: what is in the slot may not be the caller's any more.
        if !table.by_ino.get(&open.ino).is_some_and(|current| Arc::ptr_eq(current, open))
            || open.is_written_by_call()
            || open.is_haunted.load(Relaxed)
            || !self.has_headroom_for(open)
        {
            return;
        }
        let mut ring = open.ring.lock();
        if ring.area.is_none()
            && self.log.as_ref().is_none_or(|log| log.is_free_of(shared))
            && let Some(number) = self.take_ring(&mut table, open)
        {
            ring.area = Some(number);
            open.is_rewritten.store(true, SeqCst);
            shared.overwrites.store(number + 1, Release);
        }
    }

    /// Whether clients overwrite it by themselves.
    pub fn has_area(&self, open: &OpenInode) -> bool {
        open.ring.lock().area.is_some()
    }

    /// Moves what the area holds to the core. A client may write to it meanwhile: of a block that it overwrites, the core gets the
    /// content of before or the new one.
    pub(super) fn drain_area(&self, open: &OpenInode, ring: &Ring, is_ahead: bool) -> FsResult<()> {
        let Some(number) = ring.area else { return Ok(()) };
        let drained = self.drain_blocks(open, ring, self.rings.area(number), is_ahead);
        let by_call = &self.shared(open.slot).by_call;
        if drained.is_err() {
            by_call.fetch_or(STUCK, SeqCst);
        } else if by_call.load(Relaxed) & STUCK != 0 {
            by_call.fetch_and(!STUCK, SeqCst);
        }
        drained
    }

    fn drain_blocks(&self, open: &OpenInode, ring: &Ring, area: Area<'_>, is_ahead: bool) -> FsResult<()> {
        area.looked();
        let unreadable = |Moving| {
            self.failed(open, libc::EIO);
            FsError::Device(format!("inode {}: a client makes its overwrites unreadable", open.ino.0))
        };
        let mut blocks = area.taken().map_err(unreadable)?;
        blocks.sort_unstable_by_key(|&(block, page, _)| (block, page));
        // A client was killed before it freed the older page. That goes before the newer one can be given to another block: readers
        // would find the older one then.
        blocks.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same && next.2.is_newer(kept.2) {
                std::mem::swap(next, kept);
            }
            if same {
                area.discard(next.1, next.2);
            }
            same
        });
        blocks.retain(|&(block, page, word)| {
            let is_there = (u64::from(block) + 1) * BLOCK_BYTES as u64 <= ring.head;
            if word.is_dirty() && !is_there {
                tracing::error!(
                    ino = open.ino.0,
                    block,
                    "a client overwrote a block that its file does not have"
                );
                area.discard(page, word);
                self.failed(open, libc::EIO);
            }
            word.is_dirty() && is_there
        });
        let unlogged = blocks.iter().filter(|(_, _, word)| word.is_unlogged()).count();
        let shared = self.shared(open.slot);
        if is_ahead && unlogged <= UNLOGGED_MAX && Durable(shared.durable.load(SeqCst)).size().is_some() {
            blocks.retain(|(_, _, word)| !word.is_unlogged());
        }
        if blocks.is_empty() {
            return Ok(());
        }
        // Reads before it come first, as for appends.
        self.pass_reads(open, &shared.atime_ns);
        let mut tries = COPY_TRIES;
        let mut run = Run { first: 0, pages: Vec::new(), bytes: Vec::new() };
        for (block, page, word) in blocks {
            if run.is_full() || !run.continues_at(block) {
                self.store_run(open, area, &mut run)?;
            }
            run.copy(area, block, (page, word), &mut tries).map_err(unreadable)?;
        }
        self.store_run(open, area, &mut run)
    }

    fn store_run(&self, open: &OpenInode, area: Area<'_>, run: &mut Run) -> FsResult<()> {
        if run.pages.is_empty() {
            return Ok(());
        }
        self.store(open, u64::from(run.first) * BLOCK_BYTES as u64, &run.bytes)?;
        if run.pages.iter().any(|(_, word)| word.is_unlogged()) {
            // What becomes clean here is durable nowhere.
            self.shared(open.slot).must_ask_for_sync();
        }
        for (page, word) in run.pages.drain(..) {
            // Clean pages are still read from. A block that has been overwritten meanwhile is in another, dirty one.
            area.clean(page, word);
        }
        run.bytes.clear();
        Ok(())
    }

    /// Whether the area has blocks of a range that the core does not have.
    pub fn has_overwritten(&self, open: &OpenInode, mut blocks: RangeInclusive<u64>) -> bool {
        let ring = open.ring.lock();
        let Some(area) = ring.area.map(|number| self.rings.area(number)) else { return false };
        let is_dirty = |block: u32| match area.find(block) {
            Ok(found) => found.is_some_and(|(_, word)| word.is_dirty()),
            Err(Moving) => true,
        };
        blocks.any(|block| u32::try_from(block).is_ok_and(is_dirty))
    }

    /// Before the core's content changes: the area has nothing that differs from it. The caller excludes writers, and has
    /// drained the area.
    pub(super) fn forget_overwrites(&self, open: &OpenInode) {
        if let Some(number) = open.ring.lock().area {
            self.rings.area(number).clear();
        }
    }

    /// Changes with each write of a client to the inode's area.
    pub(super) fn version_of_area(&self, inode: &Inode) -> u32 {
        let number = inode.overwrites.load(Relaxed);
        // The number is what a client may have written there.
        let is_one = (1..=weft_client::shared::volume::RINGS_MAX as u32).contains(&number);
        if is_one { self.rings.area(number - 1).version() } else { 0 }
    }
}
