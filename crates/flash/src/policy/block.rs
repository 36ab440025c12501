//! A block-mapped range: each unit's worth of logical pages is in one unit, in order.
//!
//! ```text
//!  logical unit:   base  [0 1 2 3 4 5 6 7]       written once, in order
//!                  log   [0 1 2]                 a page below is rewritten: a second unit begins from page 0
//!                         ^^^^^ newer            page 3 is rewritten: appended.  page 6: 3 4 5 are copied, 6 appended
//! ```
//!
//! When the log has caught up with the base it takes its place and the base is erased; a unit that is rewritten in order
//! costs one erase and no copy. When units run out, the log that the range's policy chooses is completed with copies.
//!
//! **Cuts.** A slot whose program was interrupted was promised to nobody. In a base it stays a hole, and the base goes on
//! after it. A log *stops* there: it counts up to that slot, and takes no more. What stops a log, and a unit whose flash
//! fails, is put right by writing the logical unit **as a whole** to a free unit, newest copies with the page that is being
//! written; the last slot says that it is the end, and until then the others count. An unfinished one is erased when the range
//! is opened, and nothing else has to be done then: opening needs no free unit.
//!
//! One unit is kept free for that. Only a base takes it, when bad units have left no other; and a range of which one unit is left
//! writes every change as a whole.
//!
//! **Trims.** A logical unit that is trimmed as a whole is erased. Of any other one the pages are written as holes, which is durable at
//! once: no note of an older copy can count again.
//!
//! **Errors of the host.** The host can fail an erase, because it cannot sync or has no room, after a part of the unit is erased.
//! The range therefore puts a unit into the list of units to be erased before it tries the erase, and takes it out when the erase
//! has succeeded. No logical unit names a unit of that list. A call that takes a unit, or trims, erases the list first: the flash
//! never holds more than a power cut before the erase would leave. A unit in which the host failed a program stays where it is,
//! and the next program goes to the same slot.

use super::units::{END, Flash, HOLE, IoBatch, LOST, OobRecord};
use super::{RangeCounts, RangePolicy};
use crate::error::LevelError;
use std::collections::VecDeque;
use weft_core::Tag;
use weft_device::gc::{GcError, Outcome, Victims};

const NONE: u32 = u32::MAX;
/// Fewest units beyond those that the pages fill: one for a log, one that is kept free, and one that may become bad in place of the
/// free one when a cut has stopped the log.
const SPARE_UNITS_MIN: u64 = 3;
/// Units that are kept free, to write a logical unit as a whole.
const KEPT_FREE: usize = 1;
/// Write fronts, as notes have them: slots filled as they were written, and units written as a whole.
pub(super) const IN_ORDER: u8 = 0;
pub(super) const AS_A_WHOLE: u8 = 1;

/// A logical unit's flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    pub base: u32,
    pub base_filled: u32,
    pub log: u32,
    pub log_filled: u32,
    /// The log takes no more.
    pub stopped: bool,
}

pub(super) const EMPTY: Pair = Pair { base: NONE, base_filled: 0, log: NONE, log_filled: 0, stopped: false };

#[derive(Clone, Debug)]
pub(super) struct BlockRange {
    slots: u32,
    pairs: Vec<Pair>,
    free: VecDeque<u32>,
    /// Units that hold nothing that counts, in the order in which they have to be erased: of one logical unit, older ones first.
    /// Empty except after an error.
    to_erase: VecDeque<u32>,
    bad: Vec<u32>,
    units: u32,
    unit_sequences: Vec<u64>,
    /// Logical units with a log that takes more.
    logs: Victims,
    /// Logical units whose log a cut or failing flash has stopped, and some that are whole again.
    stopped: Vec<u32>,
    counts: RangeCounts,
}

impl Pair {
    /// Its units. The base first, as they have to be erased: a base that comes back without its log would be old data.
    fn units(&self) -> impl Iterator<Item = u32> + use<> {
        [self.base, self.log].into_iter().filter(|unit| *unit != NONE)
    }
}

/// A page that is written.
#[derive(Clone, Copy)]
struct New<'a> {
    data: &'a [u8],
    tag: Tag,
}

/// What goes into a slot.
#[derive(Clone, Copy)]
enum SlotData<'a> {
    New(New<'a>),
    Copy(u32),
    Hole,
}

/// A change of a page of a logical unit: its slot, and the data, or none when it is trimmed.
type Change<'a> = Option<(u32, Option<New<'a>>)>;

/// Units that a range takes.
pub(super) fn units_for(policy: &RangePolicy, flash: &Flash) -> u64 {
    let logical = policy.pages.div_ceil(u64::from(flash.slots_per_unit));
    let more = (u128::from(logical) * u128::from(policy.over_provisioning_permille)).div_ceil(1000);
    logical.saturating_add(u64::try_from(more).unwrap_or(u64::MAX).max(SPARE_UNITS_MIN))
}

impl BlockRange {
    pub fn new(policy: &RangePolicy, units: usize, flash: &Flash) -> BlockRange {
        BlockRange::restore(policy, units, (0..units as u32).collect(), Vec::new(), flash)
    }

    /// A range that was found on the flash, before its logical units are [adopted](BlockRange::adopt): it has so many units, of
    /// which these are clean and these are bad and hold nothing.
    pub fn restore(
        policy: &RangePolicy,
        units: usize,
        free: VecDeque<u32>,
        bad: Vec<u32>,
        flash: &Flash,
    ) -> BlockRange {
        let logical = policy.pages.div_ceil(u64::from(flash.slots_per_unit)) as u32;
        BlockRange {
            slots: flash.slots_per_unit,
            pairs: vec![EMPTY; logical as usize],
            free,
            to_erase: VecDeque::new(),
            bad,
            units: units as u32,
            unit_sequences: vec![0; units],
            logs: Victims::new(policy.gc, logical, flash.slots_per_unit, 0),
            stopped: Vec::new(),
            counts: RangeCounts::default(),
        }
    }

    pub fn write(
        &mut self,
        batch: &mut IoBatch,
        page: u64,
        data: &[u8],
        tag: Tag,
    ) -> Result<(), GcError<LevelError>> {
        let (at, offset) = self.split(page);
        self.finish_stopped(batch, at)?;
        self.counts.written += 1;
        self.put(batch, at, offset, Some(New { data, tag }))
    }

    /// Writes a page, or a hole in its place.
    fn put(
        &mut self,
        batch: &mut IoBatch,
        at: usize,
        offset: u32,
        data: Option<New>,
    ) -> Result<(), GcError<LevelError>> {
        let new = Some((offset, data));
        if self.pairs[at].log == NONE && self.pairs[at].base == NONE {
            self.pairs[at].base = match self.take(batch, KEPT_FREE)? {
                Some(unit) => unit,
                None => self.take(batch, 0)?.ok_or_else(|| self.full())?,
            };
            self.pairs[at].base_filled = 0;
        }
        let pair = self.pairs[at];
        if pair.log == NONE && offset >= pair.base_filled {
            return self.append(batch, at, offset, new);
        }
        if pair.stopped {
            return self.write_whole(batch, at, new);
        }
        if pair.log != NONE && offset < pair.log_filled {
            // Once more from a page that the log has already: complete it, and begin another.
            self.complete(batch, at)?;
        }
        if self.pairs[at].log == NONE {
            let Some(log) = self.take(batch, KEPT_FREE)? else { return self.write_whole(batch, at, new) };
            let pair = &mut self.pairs[at];
            (pair.log, pair.log_filled) = (log, 0);
            self.logs.close(at as u32, pair.base_filled);
        }
        self.append(batch, at, offset, new)?;
        let pair = self.pairs[at];
        if pair.log != NONE && pair.log_filled >= pair.base_filled {
            self.promote(batch, at)?;
        }
        Ok(())
    }

    /// Writes logical units whose log was stopped as a whole, but for one that is to be written anyway. At once: were a second log
    /// stopped, and the unit that is kept free bad, there would be no room for either.
    fn finish_stopped(&mut self, batch: &mut IoBatch, but: usize) -> Result<(), GcError<LevelError>> {
        while let Some(at) = self.stopped.last().map(|at| *at as usize) {
            if self.pairs[at].stopped {
                if at == but {
                    break;
                }
                match self.write_whole(batch, at, None) {
                    Ok(()) => {}
                    // What can be written all the same is.
                    Err(GcError::OutOfSpace { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
            self.stopped.retain(|other| *other as usize != at);
        }
        Ok(())
    }

    /// Forgets pages. Of a logical unit of which others are left they are written as holes; it is erased when nothing is left.
    pub fn trim(&mut self, batch: &mut IoBatch, first: u64, pages: u64) -> Result<(), GcError<LevelError>> {
        // An earlier trim of the same pages may have failed: their units would count when the range is opened.
        self.erase_given(batch).map_err(GcError::Media)?;
        let (slots, mut page, end) = (u64::from(self.slots), first, first + pages);
        while page < end {
            let (at, offset) = self.split(page);
            let next = end.min((at as u64 + 1) * slots);
            let named = offset..offset + (next - page) as u32;
            page = next;
            let Pair { base_filled, log_filled, .. } = self.pairs[at];
            let filled = base_filled.max(log_filled);
            if named.start >= filled {
                continue;
            }
            if !self.has_data(batch, at, (0..named.start).chain(named.end..filled))? {
                self.counts.trimmed += u64::from(filled - named.start);
                self.erase_all(batch, at).map_err(GcError::Media)?;
                continue;
            }
            self.finish_stopped(batch, at)?;
            for offset in named.start..named.end.min(filled) {
                if self.has_data(batch, at, std::iter::once(offset))? {
                    self.put(batch, at, offset, None)?;
                    self.counts.trimmed += 1;
                }
            }
        }
        Ok(())
    }

    /// Whether one of these slots of a logical unit holds more than a hole.
    fn has_data(
        &self,
        batch: &IoBatch,
        at: usize,
        mut offsets: impl DoubleEndedIterator<Item = u32>,
    ) -> Result<bool, GcError<LevelError>> {
        // From both ends: what is trimmed in order leaves data at one of them.
        while let Some(offset) = offsets.next() {
            for offset in [Some(offset), offsets.next_back()].into_iter().flatten() {
                if let SlotData::Copy(slot) = self.source(at, offset)
                    && !batch.is_hole(slot).map_err(GcError::Media)?
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Erases what a logical unit has.
    fn erase_all(&mut self, batch: &mut IoBatch, at: usize) -> Result<(), LevelError> {
        self.logs.remove(at as u32);
        let old = std::mem::replace(&mut self.pairs[at], EMPTY);
        self.give(batch, old.units())
    }

    pub fn slot_of(&self, page: u64) -> Option<u32> {
        let (at, offset) = self.split(page);
        let pair = &self.pairs[at];
        if pair.log != NONE && offset < pair.log_filled {
            return Some(pair.log * self.slots + offset);
        }
        (pair.base != NONE && offset < pair.base_filled).then(|| pair.base * self.slots + offset)
    }

    /// Units whose flash is bad.
    pub fn bad_units(&self) -> u32 {
        self.bad.len() as u32
    }

    pub fn counts(&self) -> RangeCounts {
        self.counts
    }

    pub fn verify(&self) -> Result<(), String> {
        let mut seen = vec![0; self.units as usize];
        let others = self.free.iter().chain(&self.to_erase).chain(&self.bad).copied();
        self.pairs.iter().flat_map(Pair::units).chain(others).for_each(|u| seen[u as usize] += 1);
        if let Some(unit) = seen.iter().position(|n| *n != 1) {
            return Err(format!("unit {unit} of a block-mapped range is used {} times", seen[unit]));
        }
        for (at, pair) in self.pairs.iter().enumerate() {
            let (has_base, has_log) = (pair.base != NONE, pair.log != NONE);
            let filled = pair.base_filled.max(pair.log_filled) <= self.slots
                && (has_base || pair.base_filled == 0)
                && (has_log || pair.log_filled == 0);
            if !filled || has_log && !has_base || pair.stopped && !has_log {
                return Err(format!("logical unit {at} of a block-mapped range has {pair:?}"));
            }
            if self.logs.contains(at as u32) != (has_log && !pair.stopped) {
                return Err(format!(
                    "logical unit {at} of a block-mapped range is a candidate, or not: {pair:?}"
                ));
            }
        }
        Ok(())
    }

    /// The range with other pages, another victim policy, and other units: of those it had, these, in this order, and new
    /// ones. The units of logical units that are gone [are to be erased](BlockRange::erase_given).
    pub fn changed(&self, policy: &RangePolicy, kept: &[u32], new: usize) -> BlockRange {
        let logical = policy.pages.div_ceil(u64::from(self.slots)) as usize;
        let mut numbers = vec![NONE; self.units as usize + 1];
        kept.iter().enumerate().for_each(|(at, unit)| numbers[*unit as usize] = at as u32);
        let renumbered = |unit: u32| if unit == NONE { NONE } else { numbers[unit as usize] };
        let units = kept.len() + new;
        let gone = self.pairs.iter().skip(logical).flat_map(Pair::units);
        let to_erase = self.to_erase.iter().copied().chain(gone).map(renumbered).collect();
        let mut pairs: Vec<Pair> = self.pairs.iter().take(logical).copied().collect();
        for pair in &mut pairs {
            (pair.base, pair.log) = (renumbered(pair.base), renumbered(pair.log));
        }
        pairs.resize(logical, EMPTY);
        let mut free: VecDeque<u32> =
            self.free.iter().map(|unit| renumbered(*unit)).filter(|unit| *unit != NONE).collect();
        free.extend(kept.len() as u32..units as u32);
        let mut unit_sequences: Vec<u64> =
            kept.iter().map(|unit| self.unit_sequences[*unit as usize]).collect();
        unit_sequences.resize(units, 0);
        let mut logs = Victims::new(policy.gc, logical as u32, self.slots, 0);
        for (at, pair) in pairs.iter().enumerate() {
            if pair.log != NONE && !pair.stopped {
                logs.close(at as u32, pair.base_filled.saturating_sub(pair.log_filled));
            }
        }
        let bad = self.bad.iter().map(|unit| renumbered(*unit)).collect();
        let (slots, counts, units) = (self.slots, self.counts, units as u32);
        let stopped = (0..pairs.len()).filter(|at| pairs[*at].stopped).map(|at| at as u32).collect();
        BlockRange { slots, pairs, free, to_erase, bad, units, unit_sequences, logs, stopped, counts }
    }

    /// Units that the range can do without now, so many at most.
    pub fn dispensable(&self, most: u64) -> Vec<u32> {
        let free = self.free.len().saturating_sub(KEPT_FREE + 1) as u64;
        self.free.iter().copied().take(free.min(most) as usize).collect()
    }

    /// Restores a logical unit, with the moments at which its units were begun.
    pub fn adopt(&mut self, at: usize, pair: Pair, sequences: [u64; 2]) {
        for (unit, sequence) in [pair.base, pair.log].into_iter().zip(sequences) {
            if unit != NONE {
                self.unit_sequences[unit as usize] = sequence;
            }
        }
        self.pairs[at] = pair;
        if pair.stopped {
            self.stopped.push(at as u32);
        }
        if pair.log != NONE && !pair.stopped {
            self.logs.close(at as u32, pair.base_filled - pair.log_filled);
        }
    }

    /// Takes back units that hold nothing that counts, older ones first, and erases them.
    pub fn give(
        &mut self,
        batch: &mut IoBatch,
        units: impl IntoIterator<Item = u32>,
    ) -> Result<(), LevelError> {
        self.to_erase.extend(units);
        self.erase_given(batch)
    }

    /// Whether an error has left units that are to be erased.
    pub fn has_to_erase(&self) -> bool {
        !self.to_erase.is_empty()
    }

    /// Erases the units that were given; each is free or bad then. After an error the others are still to be erased.
    pub fn erase_given(&mut self, batch: &mut IoBatch) -> Result<(), LevelError> {
        while let Some(unit) = self.to_erase.front().copied() {
            debug_assert!(self.pairs.iter().flat_map(Pair::units).all(|named| named != unit));
            let outcome = batch.erase(unit)?;
            self.to_erase.pop_front();
            match outcome {
                Outcome::Done => {
                    self.counts.units_erased += 1;
                    self.free.push_back(unit);
                }
                Outcome::Bad => self.bad.push(unit),
            }
        }
        Ok(())
    }

    fn split(&self, page: u64) -> (usize, u32) {
        let slots = u64::from(self.slots);
        ((page / slots) as usize, (page % slots) as u32)
    }

    fn full<E>(&self) -> GcError<E> {
        GcError::OutOfSpace { bad: self.bad.len() as u32, blocks: self.units }
    }

    /// A free unit, of more than `kept`; puts logs away when there are not as many. `None` when that leaves too few.
    fn take(&mut self, batch: &mut IoBatch, kept: usize) -> Result<Option<u32>, GcError<LevelError>> {
        self.erase_given(batch).map_err(GcError::Media)?;
        loop {
            debug_assert!(self.to_erase.is_empty(), "a unit is begun while an older one is to be erased");
            if self.free.len() > kept
                && let Some(unit) = self.free.pop_front()
            {
                self.unit_sequences[unit as usize] = batch.flash.next_sequence();
                return Ok(Some(unit));
            }
            let stopped = || self.pairs.iter().position(|pair| pair.stopped);
            match self.logs.pick() {
                Some(victim) => self.complete(batch, victim as usize)?,
                None => match stopped().filter(|_| !self.free.is_empty()) {
                    Some(at) => self.write_whole(batch, at, None)?,
                    None => return Ok(None),
                },
            }
        }
    }

    /// Copies to the log what only the base has, and lets it take the base's place.
    fn complete(&mut self, batch: &mut IoBatch, at: usize) -> Result<(), GcError<LevelError>> {
        let base_filled = self.pairs[at].base_filled;
        self.append(batch, at, base_filled, None)?;
        // A log whose flash failed has been replaced as a whole.
        if self.pairs[at].log != NONE { self.promote(batch, at) } else { Ok(()) }
    }

    /// The log has all that the base has.
    fn promote(&mut self, batch: &mut IoBatch, at: usize) -> Result<(), GcError<LevelError>> {
        self.logs.remove(at as u32);
        let Pair { base, log, log_filled, .. } = self.pairs[at];
        debug_assert!(base != NONE && log != NONE, "a log takes the place of a base");
        self.pairs[at] = Pair { base: log, base_filled: log_filled, ..EMPTY };
        self.give(batch, [base]).map_err(GcError::Media)
    }

    /// What a slot of a logical unit holds now.
    fn source(&self, at: usize, offset: u32) -> SlotData<'static> {
        let pair = &self.pairs[at];
        if pair.log != NONE && offset < pair.log_filled {
            SlotData::Copy(pair.log * self.slots + offset)
        } else if pair.base != NONE && offset < pair.base_filled {
            SlotData::Copy(pair.base * self.slots + offset)
        } else {
            SlotData::Hole
        }
    }

    /// Fills the log, or the base when there is no log, up to `end`, with what is there; then with the new page, which is
    /// that of slot `end`. When the flash fails, the logical unit is written as a whole.
    fn append(
        &mut self,
        batch: &mut IoBatch,
        at: usize,
        end: u32,
        new: Change,
    ) -> Result<(), GcError<LevelError>> {
        let Pair { base, base_filled, log, log_filled, .. } = self.pairs[at];
        let (unit, filled) = if log == NONE { (base, base_filled) } else { (log, log_filled) };
        for offset in filled..end + u32::from(new.is_some()) {
            let source = match new {
                Some((page, data)) if page == offset => data.map_or(SlotData::Hole, SlotData::New),
                _ => self.source(at, offset),
            };
            let filled = self.fill(batch, at, unit, offset, source, (IN_ORDER, 0)).map_err(GcError::Media)?;
            if filled == Outcome::Bad {
                return self.write_whole(batch, at, new);
            }
            let pair = &mut self.pairs[at];
            if log == NONE {
                pair.base_filled = offset + 1;
            } else {
                pair.log_filled = offset + 1;
                if offset < pair.base_filled {
                    self.logs.invalidate(at as u32);
                }
            }
        }
        Ok(())
    }

    /// Writes a logical unit as a whole to a free unit: what it holds, and the new page.
    fn write_whole(
        &mut self,
        batch: &mut IoBatch,
        at: usize,
        new: Change,
    ) -> Result<(), GcError<LevelError>> {
        // Nobody completes it meanwhile.
        let pair = &mut self.pairs[at];
        if pair.log != NONE && !pair.stopped {
            pair.stopped = true;
            self.stopped.push(at as u32);
        }
        let pair = &self.pairs[at];
        let filled = pair.base_filled.max(pair.log_filled).max(new.map_or(0, |(offset, _)| offset + 1));
        self.logs.remove(at as u32);
        let unit = loop {
            let unit = self.take_for_whole(batch, at)?;
            match self.fill_whole(batch, at, unit, filled, new) {
                Ok(Outcome::Done) => break unit,
                Ok(Outcome::Bad) => self.give(batch, [unit]).map_err(GcError::Media)?,
                Err(error) => {
                    self.to_erase.push_back(unit);
                    return Err(GcError::Media(error));
                }
            }
        };
        let whole = Pair { base: unit, base_filled: filled, ..EMPTY };
        let old = std::mem::replace(&mut self.pairs[at], whole);
        self.give(batch, old.units()).map_err(GcError::Media)
    }

    /// Fills a unit with what a logical unit holds, and the new page.
    fn fill_whole(
        &mut self,
        batch: &mut IoBatch,
        at: usize,
        unit: u32,
        filled: u32,
        new: Change,
    ) -> Result<Outcome, LevelError> {
        for offset in 0..filled {
            let source = match new {
                Some((page, data)) if page == offset => data.map_or(SlotData::Hole, SlotData::New),
                _ => self.source(at, offset),
            };
            let end = if offset + 1 == filled { END } else { 0 };
            if self.fill(batch, at, unit, offset, source, (AS_A_WHOLE, end))? == Outcome::Bad {
                return Ok(Outcome::Bad);
            }
        }
        Ok(Outcome::Done)
    }

    /// The free unit that is kept, or one that another log leaves.
    fn take_for_whole(&mut self, batch: &mut IoBatch, at: usize) -> Result<u32, GcError<LevelError>> {
        // While this one is written it is no candidate itself.
        let stopped = std::mem::replace(&mut self.pairs[at].stopped, false);
        let unit = self.take(batch, 0);
        self.pairs[at].stopped = stopped;
        unit?.ok_or_else(|| self.full())
    }

    fn fill(
        &mut self,
        batch: &mut IoBatch,
        at: usize,
        unit: u32,
        offset: u32,
        source: SlotData,
        (front, end): (u8, u8),
    ) -> Result<Outcome, LevelError> {
        let page = at as u64 * u64::from(self.slots) + u64::from(offset);
        let mut copy = Vec::new();
        let mut note = OobRecord {
            range: batch.range,
            front,
            page,
            unit: self.unit_sequences[unit as usize],
            ..OobRecord::default()
        };
        if let SlotData::Copy(slot) = source {
            let found = batch.read_for_copy(slot, page, &mut copy)?;
            note.flags = found.flags & (LOST | HOLE);
            note.sequence = found.sequence;
            note.tag = found.tag;
            self.counts.copied += 1;
        } else {
            note.sequence = batch.flash.next_sequence();
        }
        if matches!(source, SlotData::Hole) {
            copy.resize(batch.flash.geometry.page_bytes as usize, 0);
            note.flags = HOLE;
            self.counts.holes += 1;
        }
        note.flags |= end;
        let data = match source {
            SlotData::New(new) => {
                note.tag = new.tag;
                new.data
            }
            SlotData::Copy(_) | SlotData::Hole => copy.as_slice(),
        };
        batch.program(unit * self.slots + offset, data, note, matches!(source, SlotData::Copy(_)))
    }
}
