//! A page map that writes out of place and cleans.
//!
//! ```text
//!  logical page --map--> slot = block x slots_per_block + place        owner: slot --> logical page, while it is valid
//!
//!  block:  free --(a front opens it)--> open --(full)--> closed --(victim: valid slots copied, erased)--> free
//! ```
//!
//! Each write front has at most one open block. New data goes to the front that its writer names; what the cleaner
//! moves goes to the front that [`MapperSetup::relocation`] gives for the block's front. The free block with the fewest
//! erases is opened first.

use super::media::{COPY_BATCH, GcError, MapperSetup, Media, Outcome, RestoredBlock};
use super::victim::Victims;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;

/// Quotient and remainder. Most geometries have powers of two, for which a processor needs no division.
#[inline]
pub(crate) fn div_rem(value: u32, by: u32) -> (u32, u32) {
    if by.is_power_of_two() {
        return (value >> by.trailing_zeros(), value & (by - 1));
    }
    (value / by, value % by)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Open,
    Closed,
    /// A program failed: to be cleaned and then left alone.
    Failing,
    Bad,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    state: State,
    front: u16,
    valid: u32,
    filled: u32,
    erases: u32,
}

/// What a page map counted, in slots and blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MapperCounts {
    /// Slots filled with new data.
    pub written: u64,
    /// Slots filled with copies.
    pub relocated: u64,
    /// Slots whose program failed.
    pub failed: u64,
    /// Pages unmapped.
    pub trimmed: u64,
    /// Blocks cleaned.
    pub collections: u64,
    /// Erases.
    pub erases: u64,
    /// Slots that erases took away.
    pub erased: u64,
}

impl MapperCounts {
    /// Write amplification: slots filled over slots filled with new data. 1 when nothing was written.
    pub fn waf(&self) -> f64 {
        if self.written == 0 {
            return 1.0;
        }
        (self.written + self.relocated + self.failed) as f64 / self.written as f64
    }
}

/// A page map.
#[derive(Clone, Debug)]
pub struct PageMapper {
    setup: MapperSetup,
    /// By logical page: its slot.
    map: Vec<u32>,
    /// By slot: its logical page.
    owner: Vec<u32>,
    blocks: Vec<Block>,
    /// By front: its open block.
    open: Vec<u32>,
    /// Free blocks, fewest erases first.
    free: BinaryHeap<Reverse<(u32, u32)>>,
    /// Blocks a program of which failed.
    failing: Vec<u32>,
    victims: Victims,
    bad: u32,
    counts: MapperCounts,
    /// Slots that were filled when the map was restored.
    restored: u64,
}

impl PageMapper {
    /// An empty map on erased flash.
    pub fn new<E>(setup: MapperSetup) -> Result<PageMapper, GcError<E>> {
        let blocks = vec![RestoredBlock::default(); setup.blocks as usize];
        PageMapper::restore(setup, &blocks, [])
    }

    /// The map of flash that was in use: its blocks, and which slot holds which logical page. Partly filled blocks are
    /// closed, and the next write opens another one, unless [`RestoredBlock::open`] says to go on in them: a map that is
    /// restored again and again must, or partly filled blocks use up the reserve. Counts begin at 0.
    pub fn restore<E>(
        setup: MapperSetup,
        blocks: &[RestoredBlock],
        valid: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<PageMapper, GcError<E>> {
        setup.validate()?;
        if blocks.len() != setup.blocks as usize {
            let what = format!("{} blocks to restore, and the map has {}", blocks.len(), setup.blocks);
            return Err(GcError::BadSetup(what));
        }
        let slots = (setup.blocks * setup.slots_per_block) as usize;
        let mut mapper = PageMapper {
            map: vec![NONE; setup.pages as usize],
            owner: vec![NONE; slots],
            blocks: Vec::with_capacity(blocks.len()),
            open: vec![NONE; setup.relocation.len()],
            free: BinaryHeap::with_capacity(blocks.len()),
            failing: Vec::new(),
            victims: Victims::new(setup.victim, setup.blocks, setup.slots_per_block, setup.seed),
            bad: 0,
            counts: MapperCounts::default(),
            restored: blocks.iter().map(|block| u64::from(block.filled.min(setup.slots_per_block))).sum(),
            setup,
        };
        for found in blocks {
            let front = found.front.min(mapper.open.len() - 1) as u16;
            let filled = found.filled.min(mapper.setup.slots_per_block);
            let open = &mut mapper.open[usize::from(front)];
            let goes_on = found.open && *open == NONE && filled < mapper.setup.slots_per_block;
            let state = match (found.bad, found.filled) {
                (true, 0) => State::Bad,
                (true, _) => State::Failing,
                (false, 0) => State::Free,
                (false, _) if goes_on => State::Open,
                (false, _) => State::Closed,
            };
            if state == State::Open {
                *open = mapper.blocks.len() as u32;
            }
            mapper.blocks.push(Block { state, front, valid: 0, filled, erases: found.erases });
        }
        for (slot, page) in valid {
            let block = mapper.blocks.get_mut((slot / mapper.setup.slots_per_block) as usize);
            let (Some(block), Some(mapped)) = (block, mapper.map.get_mut(page as usize)) else {
                return Err(GcError::BadSetup(format!("slot {slot} with page {page} is out of range")));
            };
            if slot % mapper.setup.slots_per_block >= block.filled || *mapped != NONE {
                let what = format!("slot {slot} with page {page} is not filled, or the page has two slots");
                return Err(GcError::BadSetup(what));
            }
            *mapped = slot;
            mapper.owner[slot as usize] = page;
            block.valid += 1;
        }
        for (number, block) in mapper.blocks.iter().enumerate() {
            let number = number as u32;
            match block.state {
                State::Free => mapper.free.push(Reverse((block.erases, number))),
                State::Closed => mapper.victims.close(number, block.valid),
                State::Failing => mapper.failing.push(number),
                State::Bad | State::Open => {}
            }
            mapper.bad += u32::from(matches!(block.state, State::Bad | State::Failing));
        }
        debug_assert_eq!(mapper.verify(), Ok(()));
        Ok(mapper)
    }

    /// How it was set up.
    pub fn setup(&self) -> &MapperSetup {
        &self.setup
    }

    /// What was counted.
    pub fn counts(&self) -> MapperCounts {
        self.counts
    }

    /// Where a logical page is; `None` when it is not mapped.
    pub fn slot_of(&self, page: u32) -> Option<u32> {
        self.map.get(page as usize).copied().filter(|slot| *slot != NONE)
    }

    /// The logical page in a slot; `None` when the slot is not valid.
    pub fn page_in(&self, slot: u32) -> Option<u32> {
        self.owner.get(slot as usize).copied().filter(|page| *page != NONE)
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u32 {
        self.free.len() as u32
    }

    /// Bad blocks.
    pub fn bad_blocks(&self) -> u32 {
        self.bad
    }

    /// Valid slots of a block and slots filled in it.
    pub fn block_use(&self, block: u32) -> Option<(u32, u32)> {
        self.blocks.get(block as usize).map(|block| (block.valid, block.filled))
    }

    /// The blocks as [`restore`](PageMapper::restore) takes them.
    pub fn blocks_to_restore(&self) -> Vec<RestoredBlock> {
        let found = |block: &Block| RestoredBlock {
            filled: block.filled,
            erases: block.erases,
            front: usize::from(block.front),
            bad: matches!(block.state, State::Bad | State::Failing),
            open: block.state == State::Open,
        };
        self.blocks.iter().map(found).collect()
    }

    /// Erases of each block by this map.
    pub fn erases_by_block(&self) -> impl Iterator<Item = u32> {
        self.blocks.iter().map(|block| block.erases)
    }

    /// The slots left in the open block of a front; 0 when it has none open.
    pub fn room(&self, front: usize) -> u32 {
        match self.open.get(front).and_then(|block| self.blocks.get(*block as usize)) {
            Some(block) => self.setup.slots_per_block - block.filled,
            None => 0,
        }
    }

    /// Closes the open block of a front before it is full: the next write to the front opens another one.
    pub fn close(&mut self, front: usize) {
        if let Some(block) = self.open.get_mut(front).filter(|block| **block != NONE) {
            let number = std::mem::replace(block, NONE);
            let block = &mut self.blocks[number as usize];
            block.state = State::Closed;
            self.victims.close(number, block.valid);
        }
    }

    /// Closes a block, if it is the open one of a front.
    pub fn close_block(&mut self, block: u32) {
        if let Some(front) = self.open.iter().position(|open| *open == block) {
            self.close(front);
        }
    }

    /// Writes a logical page through a front; returns its slot. May clean first.
    pub fn write<M: Media>(
        &mut self,
        media: &mut M,
        page: u32,
        front: usize,
    ) -> Result<u32, GcError<M::Error>> {
        self.write_some(media, page, 1, front)?;
        Ok(self.map[page as usize])
    }

    /// Writes the first of so many logical pages through a front: those that are programmed [together](Media::together) from
    /// where the front stands. Returns how many. May clean first.
    pub fn write_some<M: Media>(
        &mut self,
        media: &mut M,
        first: u32,
        pages: u32,
        front: usize,
    ) -> Result<u32, GcError<M::Error>> {
        self.check_page(first.saturating_add(pages.saturating_sub(1)))?;
        self.check_front(front)?;
        loop {
            self.make_room(media, front)?;
            let count = pages.min(self.together(media, front));
            let filled = match count {
                1 => self.fill(media, &[(first, None)], front)?,
                _ => {
                    let together: Vec<_> = (first..first + count).map(|page| (page, None)).collect();
                    self.fill(media, &together, front)?
                }
            };
            if filled.is_some() {
                self.counts.written += u64::from(count);
                return Ok(count);
            }
        }
    }

    /// Slots that are programmed together from where a front stands, which has an open block.
    fn together<M: Media>(&self, media: &M, front: usize) -> u32 {
        let together = media.together();
        debug_assert!(self.setup.slots_per_block.is_multiple_of(together));
        together - self.blocks[self.open[front] as usize].filled % together
    }

    /// Unmaps a logical page; whether it was mapped.
    pub fn trim<E>(&mut self, page: u32) -> Result<bool, GcError<E>> {
        self.check_page(page)?;
        let was_mapped = self.take_out(page);
        self.counts.trimmed += u64::from(was_mapped);
        Ok(was_mapped)
    }

    /// Unmaps a logical page whose data the caller keeps elsewhere; whether it was mapped.
    pub fn take_out(&mut self, page: u32) -> bool {
        let Some(slot) = self.slot_of(page) else { return false };
        self.map[page as usize] = NONE;
        self.invalidate(slot);
        true
    }

    /// The block with the fewest valid slots of those that can be cleaned, and how many these are.
    pub fn emptiest(&self) -> Option<(u32, u32)> {
        self.cleanable().min().map(|(valid, block)| (block, valid))
    }

    /// Of the blocks that can be cleaned, each that a program failed in and the closed one with the fewest valid slots: how
    /// many are valid, and the block.
    fn cleanable(&self) -> impl Iterator<Item = (u32, u32)> {
        let failing = self.failing.iter().map(|block| (self.blocks[*block as usize].valid, *block));
        failing.chain(self.victims.fewest().map(|(block, valid)| (valid, block)))
    }

    /// The front that filled a block.
    pub fn front_of(&self, block: u32) -> usize {
        self.blocks.get(block as usize).map_or(0, |block| usize::from(block.front))
    }

    /// Cleans one block: copies what is valid in the next victim and erases it. [`GcError::OutOfSpace`] when no block is
    /// closed.
    pub fn collect<M: Media>(&mut self, media: &mut M) -> Result<(), GcError<M::Error>> {
        let victim = self.next_victim().ok_or_else(|| self.full())?;
        self.collect_this(media, victim)
    }

    /// Cleans until so many blocks are free, first the blocks that a program failed in and then those with the fewest valid
    /// slots. Ends earlier when that gains nothing any more; whether so many are free.
    pub fn free_up<M: Media>(&mut self, media: &mut M, wanted: u32) -> Result<bool, GcError<M::Error>> {
        // One look at all blocks is enough: copies make nothing invalid in other closed blocks, and a block that is filled with
        // copies alone gains nothing. Only the blocks that are open now may be closed with invalid slots.
        let mut open: Vec<u32> = self.open.iter().copied().filter(|block| *block != NONE).collect();
        let closed = (0..).zip(&self.blocks).filter(|(_, block)| block.state == State::Closed);
        let mut closed: BinaryHeap<_> =
            closed.map(|(number, block)| Reverse((block.valid, number))).collect();
        while self.free_blocks() < wanted {
            open.retain(|number| {
                let Block { state, valid, .. } = self.blocks[*number as usize];
                if state == State::Closed {
                    closed.push(Reverse((valid, *number)));
                }
                state == State::Open
            });
            let victim = self.failing.last().copied().or_else(|| {
                let Reverse((valid, number)) = closed.pop()?;
                (valid < self.setup.slots_per_block).then_some(number)
            });
            let Some(victim) = victim else { return Ok(false) };
            self.collect_this(media, victim)?;
        }
        Ok(true)
    }

    /// Cleans the full block that has been erased least, if another one has been erased more often by more than `gap`: its data
    /// stays, and keeps it young. Whether it did.
    pub fn level_wear<M: Media>(&mut self, media: &mut M, gap: u32) -> Result<bool, GcError<M::Error>> {
        // Copies take a free block, and cleaning for new data has its reserve.
        if !self.failing.is_empty() || self.free.len() < self.setup.reserve_blocks as usize {
            return Ok(false);
        }
        let good = self.blocks.iter().filter(|block| block.state != State::Bad);
        let most = good.map(|block| block.erases).max().unwrap_or(0);
        let closed = (0..self.blocks.len()).filter(|at| self.blocks[*at].state == State::Closed);
        let Some(young) = closed.min_by_key(|at| self.blocks[*at].erases) else { return Ok(false) };
        if most - self.blocks[young].erases <= gap {
            return Ok(false);
        }
        self.collect_this(media, young as u32)?;
        Ok(true)
    }

    /// Cleans a block that can be cleaned.
    pub fn collect_this<M: Media>(&mut self, media: &mut M, victim: u32) -> Result<(), GcError<M::Error>> {
        let block = self.blocks[victim as usize];
        let failing = block.state == State::Failing;
        let front = self.setup.relocation[usize::from(block.front)];
        media.collecting(victim, usize::from(block.front), block.valid);
        self.counts.collections += 1;
        // Out of the candidates, so that what the copies make invalid does not move it about.
        self.victims.remove(victim);
        if let Err(error) = self.copy_out(media, victim, front) {
            if !failing {
                self.victims.close(victim, self.blocks[victim as usize].valid);
            }
            return Err(error);
        }
        assert_eq!(
            self.blocks[victim as usize].valid, 0,
            "block {victim} is erased while slots of it are valid"
        );
        debug_assert!(self.owned(victim) == 0 && !self.open.contains(&victim));
        let outcome = media.erase(victim).map_err(GcError::Media);
        if outcome.is_err() && !failing {
            // Nothing in it is valid; it is cleaned again when there is power.
            self.victims.close(victim, 0);
        }
        let outcome = outcome?;
        if failing {
            self.failing.retain(|block| *block != victim);
            self.bad -= 1;
        }
        let block = &mut self.blocks[victim as usize];
        match outcome {
            Outcome::Done => {
                self.counts.erases += 1;
                self.counts.erased += u64::from(block.filled);
                block.erases += 1;
                debug_assert_ne!(block.state, State::Free);
                block.filled = 0;
                block.state = State::Free;
                self.free.push(Reverse((block.erases, victim)));
            }
            Outcome::Bad => {
                block.state = State::Bad;
                self.bad += 1;
            }
        }
        Ok(())
    }

    /// The block to clean next: those that a program failed in come first.
    ///
    /// Copies that were interrupted, by a loss of power or a program that failed, leave free blocks below the reserve. Until
    /// they are back the block with the fewest valid slots is cleaned, whatever the policy: one that is valid throughout would
    /// take the last free block and give nothing.
    fn next_victim(&mut self) -> Option<u32> {
        if self.free.len() >= self.setup.reserve_blocks as usize {
            return self.failing.last().copied().or_else(|| self.victims.pick());
        }
        self.cleanable().min_by_key(|(valid, _)| *valid).map(|(_, block)| block)
    }

    /// Copies what is valid in a block to a front.
    fn copy_out<M: Media>(
        &mut self,
        media: &mut M,
        victim: u32,
        front: usize,
    ) -> Result<(), GcError<M::Error>> {
        let first = victim * self.setup.slots_per_block;
        let end = first + self.blocks[victim as usize].filled;
        let mut batch = Vec::with_capacity(COPY_BATCH);
        let mut together = Vec::new();
        let mut slot = first;
        while self.blocks[victim as usize].valid > 0 && slot < end {
            batch.clear();
            while slot < end && batch.len() < COPY_BATCH {
                if self.owner[slot as usize] != NONE {
                    batch.push(slot);
                }
                slot += 1;
            }
            media.copying(&batch).map_err(GcError::Media)?;
            let mut left = &batch[..];
            while !left.is_empty() {
                let front = self.front_for_copies(front)?;
                let count = left.len().min(self.together(media, front) as usize);
                // Of a part whose program failed some may have been copied.
                let to_copy = |slot: &u32| {
                    let page = self.owner[*slot as usize];
                    (page != NONE).then_some((page, Some(*slot)))
                };
                let single;
                let part = if count == 1 {
                    single = to_copy(&left[0]);
                    single.as_slice()
                } else {
                    together.clear();
                    together.extend(left[..count].iter().filter_map(to_copy));
                    &together[..]
                };
                if part.is_empty() || self.fill(media, part, front)?.is_some() {
                    self.counts.relocated += part.len() as u64;
                    left = &left[count..];
                }
            }
        }
        Ok(())
    }

    /// Slots of a block that the map leads to.
    fn owned(&self, block: u32) -> u32 {
        let first = (block * self.setup.slots_per_block) as usize;
        let owners = &self.owner[first..first + self.setup.slots_per_block as usize];
        owners.iter().filter(|page| **page != NONE).count() as u32
    }

    /// Checks the erase identity and that the map, the owners and the blocks agree. Takes time in proportion to the
    /// device.
    pub fn verify(&self) -> Result<(), String> {
        let filled: u64 = self.blocks.iter().map(|block| u64::from(block.filled)).sum();
        let counts = self.counts;
        let programmed = self.restored + counts.written + counts.relocated + counts.failed;
        if programmed != counts.erased + filled {
            return Err(format!("{programmed} slots filled, {} erased, {filled} standing", counts.erased));
        }
        let mut valid = vec![0u32; self.blocks.len()];
        for (page, slot) in self.map.iter().enumerate().filter(|(_, slot)| **slot != NONE) {
            if self.owner[*slot as usize] != page as u32 {
                return Err(format!("page {page} is in slot {slot}, which says otherwise"));
            }
            valid[(slot / self.setup.slots_per_block) as usize] += 1;
        }
        let owned = self.owner.iter().filter(|page| **page != NONE).count();
        let mapped: u32 = valid.iter().sum();
        if owned != mapped as usize {
            return Err(format!("{owned} slots are valid, {mapped} pages are mapped"));
        }
        for (number, (block, valid)) in self.blocks.iter().zip(&valid).enumerate() {
            if block.valid != *valid || block.valid > block.filled {
                return Err(format!("block {number} has {valid} valid slots and says {}", block.valid));
            }
            if (block.state == State::Closed) != self.victims.contains(number as u32) {
                return Err(format!("block {number} is {:?} and a candidate, or not", block.state));
            }
        }
        Ok(())
    }

    /// Puts pages into the next slots of the front's open block, which has as many; returns the first. `None` when the program
    /// of any failed: the block is given up.
    fn fill<M: Media>(
        &mut self,
        media: &mut M,
        pages: &[(u32, Option<u32>)],
        front: usize,
    ) -> Result<Option<u32>, GcError<M::Error>> {
        let number = self.open[front];
        let block = &self.blocks[number as usize];
        debug_assert!(block.state == State::Open && usize::from(block.front) == front);
        debug_assert!(block.filled + pages.len() as u32 <= self.setup.slots_per_block);
        debug_assert!(
            pages.iter().all(|(page, from)| from.is_none_or(|slot| self.map[*page as usize] == slot)),
            "a slot is copied that is not its page's newest"
        );
        let first = number * self.setup.slots_per_block + block.filled;
        let outcome = match pages {
            [(page, from)] => media.program(first, *page, *from, front),
            pages => media.program_together(first, pages, front),
        };
        if outcome.is_err() {
            self.keep_taken(media, first, pages, front);
        }
        let outcome = outcome.map_err(GcError::Media)?;
        self.blocks[number as usize].filled += pages.len() as u32;
        if outcome == Outcome::Bad {
            let taken = self.put_taken(media, first, pages);
            // New data is written again.
            let copied = if is_copy(pages) { taken } else { 0 };
            self.counts.relocated += copied;
            self.counts.failed += pages.len() as u64 - copied;
            self.blocks[number as usize].state = State::Failing;
            self.bad += 1;
            self.failing.push(number);
            self.open[front] = NONE;
            return Ok(None);
        }
        (first..).zip(pages).for_each(|(slot, (page, _))| self.put(slot, *page));
        if self.blocks[number as usize].filled == self.setup.slots_per_block {
            self.close(front);
        }
        Ok(Some(first))
    }

    /// After an error of the flash: what it has taken counts, because a map that is restored later would find it. A block with a slot
    /// among these that it has not taken is closed, as it is by [`restore`](PageMapper::restore).
    fn keep_taken<M: Media>(&mut self, media: &M, first: u32, pages: &[(u32, Option<u32>)], front: usize) {
        let end = (first..).zip(pages).filter(|(slot, _)| media.has_taken(*slot)).map(|(slot, _)| slot + 1);
        let Some(end) = end.last() else { return };
        let reached = (end - first) as usize;
        let number = first / self.setup.slots_per_block;
        self.blocks[number as usize].filled += reached as u32;
        let taken = self.put_taken(media, first, &pages[..reached]);
        self.counts.failed += reached as u64 - taken;
        if is_copy(pages) {
            self.counts.relocated += taken;
        } else {
            self.counts.written += taken;
        }
        if taken < reached as u64 || self.blocks[number as usize].filled == self.setup.slots_per_block {
            self.close(front);
        }
    }

    /// Puts pages into the slots that the flash has taken; returns how many.
    fn put_taken<M: Media>(&mut self, media: &M, first: u32, pages: &[(u32, Option<u32>)]) -> u64 {
        let mut taken = 0;
        for (slot, (page, _)) in (first..).zip(pages) {
            if media.has_taken(slot) {
                self.put(slot, *page);
                taken += 1;
            }
        }
        taken
    }

    /// A page is in a slot from now on.
    fn put(&mut self, slot: u32, page: u32) {
        let (number, _) = div_rem(slot, self.setup.slots_per_block);
        let block = &mut self.blocks[number as usize];
        debug_assert!(slot % self.setup.slots_per_block < block.filled, "slot {slot} is not filled");
        block.valid += 1;
        self.owner[slot as usize] = page;
        let before = std::mem::replace(&mut self.map[page as usize], slot);
        if before != NONE {
            self.invalidate(before);
        }
    }

    /// Makes sure that a front for new data has an open block, cleaning first if free blocks are short.
    fn make_room<M: Media>(&mut self, media: &mut M, front: usize) -> Result<(), GcError<M::Error>> {
        // Random and first-in policies may meet blocks that are valid throughout, but not forever.
        let most = 4 * self.blocks.len();
        for _ in 0..most {
            if self.open[front] != NONE {
                return Ok(());
            }
            if self.free.len() > self.setup.reserve_blocks as usize && self.failing.is_empty() {
                return self.room_for_copies(front);
            }
            self.collect(media)?;
        }
        Err(self.full())
    }

    /// Makes sure that a front has an open block, without cleaning.
    fn room_for_copies<E>(&mut self, front: usize) -> Result<(), GcError<E>> {
        if self.open[front] != NONE {
            return Ok(());
        }
        let Some(Reverse((_, number))) = self.free.pop() else { return Err(self.full()) };
        let block = &mut self.blocks[number as usize];
        debug_assert!(block.state == State::Free && block.filled == 0 && block.valid == 0);
        block.state = State::Open;
        block.front = front as u16;
        self.open[front] = number;
        Ok(())
    }

    /// The front that takes a copy meant for this one. Interruptions may have used up the free blocks: then the open block of a
    /// front whose data is moved to the same place takes it, and cleaning goes on.
    fn front_for_copies<E>(&mut self, front: usize) -> Result<usize, GcError<E>> {
        if self.open[front] == NONE && self.free.is_empty() {
            let shares = |other: &usize| self.setup.relocation[*other] == front && self.open[*other] != NONE;
            let roomiest = (0..self.open.len()).filter(shares).max_by_key(|other| self.room(*other));
            return roomiest.ok_or_else(|| self.full());
        }
        self.room_for_copies(front)?;
        Ok(front)
    }

    fn invalidate(&mut self, slot: u32) {
        debug_assert_ne!(self.owner[slot as usize], NONE, "slot {slot} is invalidated twice");
        self.owner[slot as usize] = NONE;
        let (number, _) = div_rem(slot, self.setup.slots_per_block);
        self.blocks[number as usize].valid -= 1;
        self.victims.invalidate(number);
    }

    fn check_page<E>(&self, page: u32) -> Result<(), GcError<E>> {
        if page < self.setup.pages {
            return Ok(());
        }
        Err(GcError::NoSuchPage { page, pages: self.setup.pages })
    }

    fn check_front<E>(&self, front: usize) -> Result<(), GcError<E>> {
        if front < self.open.len() {
            return Ok(());
        }
        Err(GcError::NoSuchFront { front, fronts: self.open.len() })
    }

    fn full<E>(&self) -> GcError<E> {
        GcError::OutOfSpace { bad: self.bad, blocks: self.setup.blocks }
    }
}

/// Whether these pages are copied: all of them are, or none.
fn is_copy(pages: &[(u32, Option<u32>)]) -> bool {
    pages.iter().any(|(_, from)| from.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use weft_core::random::SplitMix;

    const SLOTS: u32 = 8;
    const PAGES: u32 = 300;

    /// Flash some of whose programs and erases fail.
    #[derive(Clone)]
    struct Failing(SplitMix);

    impl Failing {
        fn outcome(&mut self) -> Outcome {
            if self.0.below(400) == 0 { Outcome::Bad } else { Outcome::Done }
        }
    }

    impl Media for Failing {
        type Error = Infallible;

        fn program(&mut self, _: u32, _: u32, _: Option<u32>, _: usize) -> Result<Outcome, Infallible> {
            Ok(self.outcome())
        }

        fn erase(&mut self, _: u32) -> Result<Outcome, Infallible> {
            Ok(self.outcome())
        }
    }

    /// What [`PageMapper::free_up`] does, with a look at all blocks for each victim.
    fn free_up_by_search(mapper: &mut PageMapper, media: &mut Failing, wanted: u32) -> Option<bool> {
        while mapper.free_blocks() < wanted {
            let closed = mapper.victims.fewest().filter(|(_, valid)| *valid < SLOTS).map(|(block, _)| block);
            let Some(victim) = mapper.failing.last().copied().or(closed) else { return Some(false) };
            mapper.collect_this(media, victim).ok()?;
        }
        Some(true)
    }

    #[test]
    fn freeing_up_cleans_the_blocks_that_a_search_before_each_one_finds() {
        let (mut met, mut with_bad) = (0, 0);
        for seed in 0..200 {
            let setup = MapperSetup {
                blocks: 60,
                slots_per_block: SLOTS,
                pages: PAGES,
                reserve_blocks: 2,
                victim: crate::gc::VictimPolicy::ALL[seed as usize % 5],
                relocation: vec![2, 2, 2],
                seed,
            };
            let mut mapper = PageMapper::new::<Infallible>(setup).unwrap();
            let mut random = SplitMix::new(seed, &[]);
            let mut media = Failing(SplitMix::new(seed, &[1]));
            for _ in 0..random.below(2000) {
                let page = random.below(u64::from(PAGES)) as u32;
                if random.below(4) == 0 {
                    mapper.trim::<Infallible>(page).unwrap();
                } else if mapper.write(&mut media, page, random.below(2) as usize).is_err() {
                    break;
                }
            }
            let wanted = random.below(60) as u32;
            let (mut other, mut other_media) = (mapper.clone(), media.clone());
            let found = mapper.free_up(&mut media, wanted).ok();
            assert_eq!(found, free_up_by_search(&mut other, &mut other_media, wanted), "seed {seed}");
            mapper.verify().unwrap();
            assert_eq!(mapper.map, other.map, "seed {seed}");
            assert_eq!(mapper.counts, other.counts, "seed {seed}");
            met += u32::from(found == Some(false));
            with_bad += u32::from(mapper.bad > 0);
        }
        assert!(
            (20..180).contains(&met) && with_bad > 20,
            "{met} found too few blocks, {with_bad} had bad ones"
        );
    }
}
