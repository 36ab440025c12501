//! Blocks of the medium: which are free, and runs of them that follow each other.
//!
//! A block is written once between two checkpoints. What a checkpoint or the journal may refer to is not given out
//! again until the next checkpoint is durable; so "free" has two steps: [`Space::release`] and [`Space::settle`].
//! Nothing is stored: the blocks in use follow from the descriptors.
//!
//! The blocks behind the journal are the *front*: they are for what leads to pages, and pages come there only where no other block is
//! free ([`crate::front`]).

use crate::error::{Error, Result};
use crate::ids::{HomeId, SnodeId};
use crate::page_store::PageStore;
use rustc_hash::FxHashSet;

/// The file grows by so many blocks at least, one that has few by half of them.
const GROW_BLOCKS: u64 = 4096;
const GROW_BLOCKS_MIN: u64 = 16;
/// Words of the bitmap that one search looks at before it takes the best it has seen.
const SEARCH_WORDS: usize = 16 * 1024;
/// Pages of a commit that are written together, at least, while the store is made smaller.
const RUN_BLOCKS_MIN: u64 = 16;

/// What a block of the medium is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockUse {
    /// Superblocks, journal, descriptors, lists, or what a transaction under way has written.
    Store,
    /// A page of this number: [`Owners::page`](crate::Owners::page) says whose it is.
    Page(u32),
    /// Given up, and free after the next checkpoint; with what it held of an s-node, where that is [erased](crate::TagFlags::SECURE_DELETE)
    /// before.
    GivenUp(Option<SnodeId>),
    /// Free. It has what was there before, or zeros where that was erased.
    Free,
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub block: u64,
    pub blocks: u64,
}

impl Run {
    /// Adds a block to runs, the last of which it may follow.
    pub(crate) fn add(runs: &mut Vec<Run>, block: u64) {
        match runs.last_mut() {
            Some(last) if last.block + last.blocks == block => last.blocks += 1,
            _ => runs.push(Run { block, blocks: 1 }),
        }
    }

    /// The run in parts of up to `blocks` blocks.
    pub(crate) fn parts(self, blocks: u64) -> impl Iterator<Item = Run> {
        let end = self.block + self.blocks;
        (self.block..end)
            .step_by(blocks as usize)
            .map(move |block| Run { block, blocks: blocks.min(end - block) })
    }
}

/// What lies in blocks that follow each other, up to `most` of them at a time; `items` are in the order of their blocks.
pub(crate) fn in_runs<T>(items: &[T], most: usize, block: impl Fn(&T) -> u64) -> impl Iterator<Item = &[T]> {
    items
        .chunk_by(move |a, b| block(a).checked_add(1) == Some(block(b)))
        .flat_map(move |run| run.chunks(most))
}

/// A bit for each block; those behind the end are not set.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, block: u64) -> bool {
        self.0.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Sets a bit or takes it away.
    fn set(&mut self, block: u64, is_set: bool) {
        let at = (block / 64) as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        let bit = 1 << (block % 64);
        self.0[at] = if is_set { self.0[at] | bit } else { self.0[at] & !bit };
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        (0..self.0.len() as u64 * 64).filter(|block| self.has(*block))
    }
}

/// Which blocks are free.
#[derive(Default)]
pub(crate) struct Space {
    used: Vec<u64>,
    end: u64,
    limit: u64,
    cursor: u64,
    free: u64,
    /// Blocks that are free after the next checkpoint, and whose they were where they are to be overwritten before.
    given_up: Vec<(Run, Option<HomeId>)>,
    /// Blocks that nothing on the medium refers to, not even after a power cut now.
    scratch: FxHashSet<u64>,
    /// Blocks of `scratch` that were given up and are to be erased, unless they are in use again.
    scratch_to_erase: Vec<(u64, HomeId)>,
    /// Backups under way: what they copy is released and not yet free.
    copies: usize,
    /// What each named snapshot refers to, which is in use as long as the snapshot is there.
    held: Vec<Bits>,
    /// Of the held blocks, those that the store itself does not refer to.
    left: Bits,
    front: Front,
    /// While the store is made smaller: blocks from here on are given out only where none before is free.
    bound: u64,
    /// Of the free blocks, those that commits under way are going to take.
    reserved: u64,
    /// What the medium said when it could not grow last.
    refused: Option<&'static str>,
}

/// The blocks behind the journal, which are kept for what leads to pages.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    pub first: u64,
    /// Leaves begin here; before, the lists find blocks that follow each other.
    pub leaves: u64,
    pub end: u64,
    /// Where the next leaf is looked for.
    cursor: u64,
}

/// What is full when the medium cannot grow.
pub(crate) fn reason(error: &std::io::Error) -> Option<&'static str> {
    match error.kind() {
        std::io::ErrorKind::StorageFull => Some("no space left on the medium, ENOSPC"),
        std::io::ErrorKind::QuotaExceeded => Some("the disk quota is used up, EDQUOT"),
        std::io::ErrorKind::FileTooLarge => Some("the file may not grow, EFBIG"),
        _ => None,
    }
}

/// Whether the medium had no room for what was to be done.
pub(crate) fn is_full(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => reason(source).is_some(),
        error => matches!(error, Error::Full { .. }),
    }
}

impl Space {
    /// A medium of `end` blocks, all free, that may grow to `limit`.
    pub(crate) fn new(end: u64, limit: u64) -> Space {
        let mut space = Space { limit: limit.max(end), bound: u64::MAX, ..Space::default() };
        space.extend(end);
        space
    }

    fn extend(&mut self, end: u64) {
        self.used.resize(end.div_ceil(64) as usize, 0);
        self.free += end - self.end;
        self.end = end;
    }

    /// Blocks of the medium, and how many of them are free or will be after the next checkpoint.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.end, self.free + self.given_up.iter().map(|(run, _)| run.blocks).sum::<u64>())
    }

    /// Blocks that are in use, with those that will be free after the next checkpoint.
    pub(crate) fn used(&self) -> u64 {
        self.end - self.free
    }

    /// Blocks that can be given out now.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// The most blocks that the medium may have.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Changes the most blocks that the medium may have; those that it has stay.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit.max(self.end);
    }

    /// The error of a medium that has no room left.
    pub(crate) fn full(&self) -> Error {
        Error::Full { what: self.refused.unwrap_or("all blocks of its largest size are in use") }
    }

    /// Keeps `blocks` for who is going to take them, if so many `more` are free beside; the medium grows where it has to. Whether it is so.
    ///
    /// # Errors
    /// [`Error::Io`] when the medium cannot grow for another reason than that it is full.
    pub(crate) fn reserve(&mut self, blocks: u64, more: u64, store: &dyn PageStore) -> Result<bool> {
        let wanted = self.reserved + blocks + more;
        // By a mebibyte, or by a sixteenth of a small store: each growth is two calls of the file system. By less than for what is
        // written: a store that was made smaller stays small.
        let step = 256.min((self.end - self.front.first.min(self.end)) / 16);
        let fits = self.free >= wanted || self.grow(wanted - self.free, step, store)?;
        self.reserved += if fits { blocks } else { 0 };
        Ok(fits)
    }

    /// Ends a reservation.
    pub(crate) fn end_reservation(&mut self, blocks: u64) {
        assert!(blocks <= self.reserved, "a commit gives back blocks that it did not reserve");
        self.reserved -= blocks;
    }

    /// Makes the medium longer by `most` blocks, or by `least`; whether it could grow.
    fn grow(&mut self, least: u64, most: u64, store: &dyn PageStore) -> Result<bool> {
        for step in [least.max(most), least] {
            let end = self.end.saturating_add(step).min(self.limit);
            if end < self.end.saturating_add(least) {
                return Ok(false);
            }
            match store.reserve(self.end, end - self.end).and_then(|()| store.grow(end)) {
                Ok(()) => {
                    self.extend(end);
                    self.refused = None;
                    return Ok(true);
                }
                Err(source) => match reason(&source) {
                    Some(reason) => self.refused = Some(reason),
                    None => return Err(Error::Io { what: "grow the store", block: self.end, source }),
                },
            }
        }
        Ok(false)
    }

    /// Fills the medium from its beginning: blocks from `bound` on are given out only where none before is free. `None` ends that.
    pub(crate) fn fill_below(&mut self, bound: Option<u64>) {
        self.bound = bound.unwrap_or(u64::MAX);
        self.cursor = 0;
    }

    /// The first block behind all that are in use.
    pub(crate) fn used_end(&self) -> u64 {
        let last = self.used.iter().rposition(|word| *word != 0);
        last.map_or(0, |at| (at as u64 + 1) * 64 - u64::from(self.used[at].leading_zeros()))
    }

    /// Notes that the medium has `end` blocks only. None behind it is in use.
    pub(crate) fn cut(&mut self, end: u64) {
        debug_assert!(self.used_end() <= end && end <= self.end);
        self.free -= self.end - end;
        self.end = end;
        self.used.truncate(end.div_ceil(64) as usize);
        self.cursor = self.cursor.min(end);
        self.front.end = self.front.end.min(end);
        self.front.leaves = self.front.leaves.min(end);
    }

    /// Keeps these blocks for what leads to pages. Those that are in use stay so.
    pub(crate) fn set_front(&mut self, first: u64, leaves: u64, end: u64) {
        let end = end.min(self.end).max(first);
        self.front = Front { first, leaves: leaves.min(end), end, cursor: self.front.cursor };
    }

    pub(crate) fn front(&self) -> Front {
        self.front
    }

    /// Blocks of the front that are free.
    pub(crate) fn front_free(&self) -> u64 {
        (self.front.first..self.front.end).filter(|block| !self.is_used(*block)).count() as u64
    }

    /// Takes up to `wanted` blocks of the front for leaves, if some are free there.
    pub(crate) fn take_for_leaves(&mut self, wanted: u64) -> Option<Run> {
        let Front { leaves, end, .. } = self.front;
        let cursor = self.front.cursor.clamp(leaves, end);
        let run = self.search_in(wanted, &[(cursor, end), (leaves, cursor)])?;
        self.mark_used(run);
        self.front.cursor = run.block + run.blocks;
        Some(run)
    }

    /// Takes so many blocks of the front that follow each other, if they are free.
    pub(crate) fn take_for_list(&mut self, wanted: u64) -> Option<Run> {
        let Front { first, leaves, end, .. } = self.front;
        let run = self.search_in(wanted, &[(first, leaves), (leaves, end)]);
        let run = run.filter(|run| run.blocks == wanted)?;
        self.mark_used(run);
        Some(run)
    }

    fn is_used(&self, block: u64) -> bool {
        self.used[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    /// Takes particular blocks, while a store is opened.
    ///
    /// # Errors
    /// [`Error::Damaged`] when one lies beyond the end or is in use already.
    pub(crate) fn claim(&mut self, run: Run, what: &str) -> Result<()> {
        let Some(end) = run.block.checked_add(run.blocks).filter(|end| *end <= self.end) else {
            return Err(Error::damaged(format!("{what} at block {} lies beyond the end", run.block)));
        };
        for block in run.block..end {
            if self.is_used(block) {
                return Err(Error::damaged(format!("{what}: block {block} is in use twice")));
            }
            self.mark_used(Run { block, blocks: 1 });
        }
        Ok(())
    }

    /// Blocks that will be free once the next checkpoint is durable, and, if they are to be erased, were overwritten after it:
    /// those of an s-node of that class, `erase`.
    pub(crate) fn release(&mut self, block: u64, blocks: u64, erase: Option<HomeId>) {
        if block == 0 || blocks == 0 {
            return;
        }
        if blocks == 1 && self.scratch.remove(&block) {
            self.put_back(Run { block, blocks });
            self.scratch_to_erase.extend(erase.map(|owner| (block, owner)));
            return;
        }
        if self.held.is_empty() {
            return self.give_up(block, blocks, erase);
        }
        for block in block..block + blocks {
            match self.held.iter().any(|held| held.has(block)) {
                true => self.left.set(block, true),
                false => self.give_up(block, 1, erase),
            }
        }
    }

    fn give_up(&mut self, block: u64, blocks: u64, erase: Option<HomeId>) {
        let follows = |(last, owner): &&mut (Run, _)| *owner == erase && last.block + last.blocks == block;
        match self.given_up.last_mut().filter(follows) {
            Some((last, _)) => last.blocks += blocks,
            None => self.given_up.push((Run { block, blocks }, erase)),
        }
    }

    /// Holds the blocks of one more named snapshot: those that the store gives up are not given out again.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a block beyond the end.
    pub(crate) fn hold(&mut self, blocks: &[u64]) -> Result<()> {
        if let Some(block) = blocks.iter().find(|block| **block >= self.end) {
            return Err(Error::damaged(format!("a snapshot has block {block}, which lies beyond the end")));
        }
        let mut held = Bits::default();
        for block in blocks.iter().copied().filter(|block| *block > 0) {
            held.set(block, true);
            if !self.is_used(block) {
                self.mark_used(Run { block, blocks: 1 });
                self.left.set(block, true);
            }
        }
        self.held.push(held);
        Ok(())
    }

    /// Ends the hold of the snapshot at this place: what nobody else refers to is given up.
    pub(crate) fn end_hold(&mut self, at: usize, erase: Option<HomeId>) {
        let gone = self.held.remove(at);
        for block in gone.all() {
            if self.left.has(block) && !self.held.iter().any(|held| held.has(block)) {
                self.left.set(block, false);
                self.give_up(block, 1, erase);
            }
        }
    }

    /// Notes that only memory refers to these blocks until the next checkpoint. They are free as soon as they are
    /// released, so that a replay that writes the same pages again and again needs room for them once.
    pub(crate) fn mark_scratch(&mut self, run: Run) {
        self.scratch.extend(run.block..run.block + run.blocks);
    }

    /// Keeps what is in use now from being given out again, until as many [`Space::end_copy`].
    pub(crate) fn begin_copy(&mut self) {
        self.copies += 1;
    }

    /// Ends a copy. What it has kept is free after the next checkpoint.
    pub(crate) fn end_copy(&mut self) {
        assert!(self.copies > 0, "a copy ends that did not begin");
        self.copies -= 1;
    }

    /// Whether no copy keeps blocks.
    pub(crate) fn settles(&self) -> bool {
        self.copies == 0
    }

    /// A checkpoint is durable: what was released until then is free, unless a copy is under way. The medium is told so before anybody can
    /// write there again. What is to be erased before is returned, and not free yet.
    #[must_use]
    pub(crate) fn settle(&mut self, store: &dyn PageStore) -> Vec<Run> {
        self.scratch.clear();
        if !self.settles() {
            return Vec::new();
        }
        let (to_erase, free): (Vec<_>, Vec<_>) =
            self.given_up.drain(..).partition(|(_, erase)| erase.is_some());
        if store.uses_free() {
            let runs: Vec<_> = free.iter().map(|(run, _)| (run.block, run.blocks)).collect();
            store.free(&runs);
        }
        free.into_iter().for_each(|(run, _)| self.put_back(run));
        let mut to_erase: Vec<Run> = to_erase.into_iter().map(|(run, _)| run).collect();
        for (block, _) in std::mem::take(&mut self.scratch_to_erase) {
            // It may be in use again, or have been given up twice.
            if !self.is_used(block) {
                to_erase.push(Run { block, blocks: 1 });
                self.mark_used(Run { block, blocks: 1 });
            }
        }
        to_erase
    }

    /// The count of free blocks is that of the map.
    pub(crate) fn check_counts(&self) {
        let used: u64 = self.used.iter().map(|word| u64::from(word.count_ones())).sum();
        debug_assert_eq!(used + self.free, self.end, "{used} blocks are in use, {} free", self.free);
        debug_assert!(self.end <= self.limit && self.front.first <= self.front.end);
    }

    /// Whether nothing is still to be erased.
    pub(crate) fn is_erased(&self) -> bool {
        self.given_up.iter().all(|(_, erase)| erase.is_none())
    }

    /// What each block is for, as far as it is known here.
    pub(crate) fn uses(&self) -> Vec<BlockUse> {
        let of = |block| if self.is_used(block) { BlockUse::Store } else { BlockUse::Free };
        let mut uses: Vec<BlockUse> = (0..self.end).map(of).collect();
        for (run, owner) in &self.given_up {
            let run = run.block as usize..(run.block + run.blocks) as usize;
            uses[run].fill(BlockUse::GivenUp(owner.map(SnodeId::from)));
        }
        uses
    }

    /// All runs of free blocks.
    pub(crate) fn free_runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        (0..self.end).filter(|block| !self.is_used(*block)).for_each(|block| Run::add(&mut runs, block));
        runs
    }

    /// Takes up to `wanted` blocks that follow each other, at least one.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Io`] when the medium cannot grow.
    pub(crate) fn take(&mut self, wanted: u64, store: &dyn PageStore) -> Result<Run> {
        // A commit does not scatter its pages over single blocks for the sake of a store that becomes smaller.
        self.take_at_least(wanted.min(RUN_BLOCKS_MIN), wanted, store)
    }

    /// As [`Space::take`], for a checkpoint: while the store is made smaller, it fills single blocks too.
    ///
    /// # Errors
    /// As [`Space::take`].
    pub(crate) fn take_scattered(&mut self, wanted: u64, store: &dyn PageStore) -> Result<Run> {
        self.take_at_least(1, wanted, store)
    }

    fn take_at_least(&mut self, least: u64, wanted: u64, store: &dyn PageStore) -> Result<Run> {
        let is_bound = self.bound != u64::MAX;
        let mut best = self.search(wanted);
        if is_bound && best.is_none_or(|run| run.blocks < least) {
            let behind = self.search_in(wanted, &[(self.bound.max(self.front.end), self.end)]);
            best = behind.filter(|run| best.is_none_or(|best| best.blocks < run.blocks)).or(best);
        }
        if best.is_none_or(|run| run.blocks < wanted) && self.end < self.limit {
            // Growing beats scattering unless a good part of the medium is free already.
            if best.is_none() || !is_bound && self.free < self.end / 4 {
                let before = self.end;
                // What is made smaller grows by what is wanted alone.
                let here = self.end - self.front.first.min(self.end);
                let step = GROW_BLOCKS.min(here / 2).max(GROW_BLOCKS_MIN).max(here / 16);
                let most = if is_bound { wanted } else { wanted.max(step) };
                if self.grow(1, most, store)? {
                    self.cursor = before;
                    let from = self.front.end;
                    best = self.search_in(wanted, &[(before.max(from), self.end), (from, before)]);
                }
            }
        }
        // The front is better than to be full.
        let best = best.or_else(|| self.search_in(wanted, &[(self.front.first, self.front.end)]));
        let run = best.ok_or_else(|| self.full())?;
        self.mark_used(run);
        self.cursor = run.block + run.blocks;
        Ok(run)
    }

    fn mark_used(&mut self, run: Run) {
        debug_assert!(run.block + run.blocks <= self.end && run.blocks <= self.free);
        for block in run.block..run.block + run.blocks {
            debug_assert!(!self.is_used(block), "block {block} is given out twice");
            self.used[(block / 64) as usize] |= 1 << (block % 64);
        }
        self.free -= run.blocks;
    }

    /// Takes exactly `wanted` blocks that follow each other.
    ///
    /// # Errors
    /// As [`Space::take`].
    pub(crate) fn take_whole(&mut self, wanted: u64, store: &dyn PageStore) -> Result<Run> {
        let run = self.take_at_least(wanted, wanted, store)?;
        if run.blocks == wanted {
            return Ok(run);
        }
        // Put back, and grow the medium by what is wanted.
        self.put_back(run);
        let run = Run { block: self.end, blocks: wanted };
        if !self.grow(wanted, 0, store)? {
            return self.take_for_list(wanted).ok_or_else(|| self.full());
        }
        self.mark_used(run);
        self.cursor = run.block + run.blocks;
        Ok(run)
    }

    /// Gives blocks back that were taken and not written to anything durable.
    pub(crate) fn put_back(&mut self, run: Run) {
        for block in run.block..run.block + run.blocks {
            debug_assert!(self.is_used(block), "block {block} is freed twice");
            self.used[(block / 64) as usize] &= !(1 << (block % 64));
        }
        self.free += run.blocks;
    }

    /// The first run of `wanted` free blocks from the cursor on, or the longest that was seen.
    fn search(&self, wanted: u64) -> Option<Run> {
        let end = self.end.min(self.bound);
        let first = self.front.end.min(end);
        let cursor = if self.cursor < end { self.cursor.max(first) } else { first };
        self.search_in(wanted, &[(cursor, end), (first, cursor)])
    }

    fn search_in(&self, wanted: u64, ranges: &[(u64, u64)]) -> Option<Run> {
        if self.free == 0 {
            return None;
        }
        let mut best: Option<Run> = None;
        let mut looked = 0;
        for (from, to) in ranges.iter().copied() {
            let mut block = from;
            while block < to {
                looked += 1;
                if looked > SEARCH_WORDS && best.is_some() {
                    return best;
                }
                let word = self.used[(block / 64) as usize] >> (block % 64);
                if word & 1 == 1 {
                    block += u64::from(word.trailing_ones());
                    continue;
                }
                let mut end = block;
                while end < to && end - block < wanted {
                    let word = self.used[(end / 64) as usize] >> (end % 64);
                    let free = if word == 0 { 64 - end % 64 } else { u64::from(word.trailing_zeros()) };
                    if free == 0 {
                        break;
                    }
                    end += free;
                }
                let run = Run { block, blocks: (end.min(to) - block).min(wanted) };
                if run.blocks == wanted {
                    return Some(run);
                }
                if best.is_none_or(|best| best.blocks < run.blocks) {
                    best = Some(run);
                }
                block = end + 1;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_store::MemoryStore;

    #[test]
    fn a_block_is_given_out_once_and_again_only_after_a_checkpoint() {
        let store = MemoryStore::new();
        store.grow(64).unwrap();
        let mut space = Space::new(64, 64);
        space.claim(Run { block: 0, blocks: 10 }, "head").unwrap();
        assert!(space.claim(Run { block: 9, blocks: 1 }, "other").is_err());
        assert_eq!(space.take(30, &store).unwrap(), Run { block: 10, blocks: 30 });
        assert_eq!(space.take(30, &store).unwrap(), Run { block: 40, blocks: 24 });
        assert!(matches!(space.take(1, &store), Err(Error::Full { .. })));
        space.release(12, 3, None);
        assert!(space.take(1, &store).is_err());
        assert!(space.settle(&store).is_empty());
        assert_eq!(space.take(30, &store).unwrap(), Run { block: 12, blocks: 3 });
    }

    #[test]
    fn a_block_that_only_memory_refers_to_is_free_at_once_and_only_until_a_checkpoint() {
        let store = MemoryStore::new();
        store.grow(64).unwrap();
        let mut space = Space::new(64, 64);
        let run = space.take(64, &store).unwrap();
        space.mark_scratch(run);
        space.release(7, 1, None);
        assert_eq!(space.take(1, &store).unwrap(), Run { block: 7, blocks: 1 });
        space.release(7, 1, None);
        assert!(space.take(1, &store).is_err(), "what was taken again is not known to be scratch");
        assert!(space.settle(&store).is_empty());
        assert_eq!(space.take(1, &store).unwrap(), Run { block: 7, blocks: 1 });
        space.release(8, 1, None);
        assert!(space.take(1, &store).is_err(), "the checkpoint refers to it");
    }

    #[test]
    fn a_block_to_be_erased_is_free_when_it_was() {
        let store = MemoryStore::new();
        store.grow(64).unwrap();
        let mut space = Space::new(64, 64);
        let run = space.take(64, &store).unwrap();
        space.release(7, 1, Some(HomeId::FIRST));
        space.release(8, 1, Some(HomeId::FIRST));
        let runs = space.settle(&store);
        assert_eq!((run.blocks, &runs[..]), (64, &[Run { block: 7, blocks: 2 }][..]));
        assert!(space.take(1, &store).is_err() && space.free_runs().is_empty());
        space.put_back(runs[0]);
        assert_eq!(space.free_runs(), runs);
        assert_eq!(space.take(9, &store).unwrap(), runs[0]);
        // What only memory refers to can be used again before, and is erased unless it was.
        space.mark_scratch(run);
        space.release(9, 1, Some(HomeId::FIRST));
        space.release(20, 1, Some(HomeId::FIRST));
        assert_eq!(space.take(1, &store).unwrap(), Run { block: 9, blocks: 1 });
        assert_eq!(space.settle(&store), [Run { block: 20, blocks: 1 }]);
        assert!(space.take(1, &store).is_err());
    }

    #[test]
    fn what_a_snapshot_holds_is_free_when_neither_it_nor_another_nor_the_store_has_it() {
        let store = MemoryStore::new();
        store.grow(64).unwrap();
        let mut space = Space::new(64, 64);
        assert_eq!(space.take(64, &store).unwrap().blocks, 64);
        space.hold(&[7, 8, 9]).unwrap();
        space.hold(&[8, 20]).unwrap();
        space.release(7, 3, None);
        space.release(30, 1, None);
        let settle = |space: &mut Space| {
            assert!(space.settle(&store).is_empty());
            space.free_runs().iter().flat_map(|run| run.block..run.block + run.blocks).collect::<Vec<_>>()
        };
        assert_eq!(settle(&mut space), [30]);
        // Block 20 is the store's, too; 8 is the other's.
        space.end_hold(0, None);
        assert_eq!(settle(&mut space), [7, 9, 30]);
        space.end_hold(0, None);
        assert_eq!(settle(&mut space), [7, 8, 9, 30]);
        space.release(20, 1, None);
        assert_eq!(settle(&mut space), [7, 8, 9, 20, 30]);
        // As at an opening: what the store does not refer to is in use again.
        space.hold(&[9, 10]).unwrap();
        assert_eq!(settle(&mut space), [7, 8, 20, 30]);
        assert!(matches!(space.hold(&[64]), Err(Error::Damaged { .. })));
    }

    #[test]
    fn the_front_is_for_what_leads_to_pages_and_for_pages_when_all_else_is_full() {
        let store = MemoryStore::new();
        store.grow(40).unwrap();
        let mut space = Space::new(40, 40);
        space.claim(Run { block: 0, blocks: 4 }, "head").unwrap();
        space.set_front(4, 8, 20);
        assert_eq!(space.take(8, &store).unwrap(), Run { block: 20, blocks: 8 });
        assert_eq!(space.take_for_leaves(3), Some(Run { block: 8, blocks: 3 }));
        assert_eq!(space.take_for_list(3), Some(Run { block: 4, blocks: 3 }));
        assert_eq!(space.take_for_list(2), Some(Run { block: 11, blocks: 2 }), "those for leaves, too");
        assert_eq!(space.take_whole(20, &store).unwrap_err().to_string(), space.full().to_string());
        assert_eq!(space.take(12, &store).unwrap(), Run { block: 28, blocks: 12 });
        assert_eq!(space.front_free(), 8);
        assert_eq!(space.take(4, &store).unwrap(), Run { block: 13, blocks: 4 });
        assert_eq!(space.take_for_leaves(9), Some(Run { block: 17, blocks: 3 }));
        assert_eq!((space.take_for_leaves(1), space.front_free()), (None, 1));
        assert_eq!(space.take(4, &store).unwrap(), Run { block: 7, blocks: 1 });
    }

    #[test]
    fn the_medium_grows_rather_than_that_writes_scatter() {
        let store = MemoryStore::new();
        store.grow(64).unwrap();
        let mut space = Space::new(64, 1 << 20);
        space.claim(Run { block: 0, blocks: 60 }, "head").unwrap();
        let run = space.take(100, &store).unwrap();
        assert_eq!(run.blocks, 100);
        assert!(store.blocks() >= 160);
    }

    #[test]
    fn a_store_that_becomes_smaller_is_filled_from_its_beginning_and_cut_behind_its_last_block() {
        let store = MemoryStore::new();
        store.grow(200).unwrap();
        let mut space = Space::new(200, 1 << 20);
        for block in 0..100 {
            space.claim(Run { block: block * 2, blocks: 1 }, "every other").unwrap();
        }
        assert_eq!((space.used(), space.free(), space.used_end()), (100, 100, 199));
        space.fill_below(Some(110));
        for block in 0..55 {
            assert_eq!(space.take_scattered(40, &store).unwrap(), Run { block: block * 2 + 1, blocks: 1 });
        }
        assert_eq!(
            space.take_scattered(40, &store).unwrap(),
            Run { block: 111, blocks: 1 },
            "none before is free"
        );
        (112..=198).step_by(2).for_each(|block| space.release(block, 1, None));
        assert!(space.settle(&store).is_empty());
        assert_eq!(space.used_end(), 112);
        space.release(9, 1, None);
        assert!(space.settle(&store).is_empty());
        assert_eq!(
            space.take(40, &store).unwrap(),
            Run { block: 112, blocks: 40 },
            "rather than single blocks"
        );
        space.put_back(Run { block: 112, blocks: 40 });
        assert_eq!(space.take_whole(2, &store).unwrap(), Run { block: 112, blocks: 2 });
        space.put_back(Run { block: 112, blocks: 2 });
        space.cut(112);
        assert_eq!((space.totals(), store.blocks()), ((112, 1), 200));
        space.fill_below(None);
        assert_eq!(space.take(1, &store).unwrap(), Run { block: 9, blocks: 1 });
        assert_eq!(space.take(1, &store).unwrap().block, 112, "it grows again");
    }
}
