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

use super::units::{Flash, HOLE, LOST, Note, Turn};
use super::{RangeCounts, RangePolicy};
use crate::error::LevelError;
use std::collections::VecDeque;
use weft_device::gc::{GcError, Outcome, Victims};

const NONE: u32 = u32::MAX;
/// Fewest units beyond those that the pages fill: one for a log, one for a unit whose flash fails.
const SPARE_UNITS_MIN: u64 = 2;

/// A logical unit's flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    pub base: u32,
    pub base_filled: u32,
    pub log: u32,
    pub log_filled: u32,
}

pub(super) const EMPTY: Pair = Pair { base: NONE, base_filled: 0, log: NONE, log_filled: 0 };

#[derive(Debug)]
pub(super) struct BlockRange {
    slots: u32,
    pairs: Vec<Pair>,
    free: VecDeque<u32>,
    bad: Vec<u32>,
    units: u32,
    unit_sequences: Vec<u64>,
    /// Logical units with a log.
    logs: Victims,
    counts: RangeCounts,
}

/// What goes into a slot.
enum Source<'a> {
    New(&'a [u8]),
    Copy(u32),
    Hole,
}

/// Units that a range takes.
pub(super) fn units_for(policy: &RangePolicy, flash: &Flash) -> u64 {
    let logical = policy.pages.div_ceil(u64::from(flash.slots_per_unit));
    let more = (u128::from(logical) * u128::from(policy.over_provisioning_permille)).div_ceil(1000) as u64;
    logical.saturating_add(more.max(SPARE_UNITS_MIN))
}

impl BlockRange {
    pub fn new(policy: &RangePolicy, units: usize, flash: &Flash) -> BlockRange {
        let logical = policy.pages.div_ceil(u64::from(flash.slots_per_unit)) as u32;
        BlockRange {
            slots: flash.slots_per_unit,
            pairs: vec![EMPTY; logical as usize],
            free: (0..units as u32).collect(),
            bad: Vec::new(),
            units: units as u32,
            unit_sequences: vec![0; units],
            logs: Victims::new(policy.gc, logical, flash.slots_per_unit, 0),
            counts: RangeCounts::default(),
        }
    }

    pub fn write(&mut self, turn: &mut Turn, page: u64, data: &[u8]) -> Result<(), GcError<LevelError>> {
        let (at, offset) = self.split(page);
        if self.pairs[at].log == NONE {
            if self.pairs[at].base == NONE {
                self.pairs[at].base = self.take(turn)?;
                self.pairs[at].base_filled = 0;
            }
            if offset >= self.pairs[at].base_filled {
                for hole in self.pairs[at].base_filled..offset {
                    self.append(turn, at, hole, Source::Hole)?;
                }
                self.append(turn, at, offset, Source::New(data))?;
                self.counts.written += 1;
                return Ok(());
            }
        } else if offset < self.pairs[at].log_filled {
            // Once more from a page that the log has already: complete it, and begin another.
            self.complete(turn, at)?;
        }
        if self.pairs[at].log == NONE {
            let log = self.take(turn)?;
            let pair = &mut self.pairs[at];
            (pair.log, pair.log_filled) = (log, 0);
            self.logs.close(at as u32, pair.base_filled);
        }
        for between in self.pairs[at].log_filled..offset {
            self.copy_up(turn, at, between)?;
        }
        self.append(turn, at, offset, Source::New(data))?;
        self.counts.written += 1;
        if self.pairs[at].log_filled >= self.pairs[at].base_filled {
            self.promote(turn, at)?;
        }
        Ok(())
    }

    /// Forgets the logical units that are named as a whole.
    pub fn trim(&mut self, turn: &mut Turn, first: u64, pages: u64) -> Result<(), LevelError> {
        let slots = u64::from(self.slots);
        for at in first.div_ceil(slots)..(first + pages) / slots {
            let at = at as usize;
            self.logs.remove(at as u32);
            let Pair { base, base_filled, log, .. } = self.pairs[at];
            // The base first: a base that comes back without its log would be old data.
            for unit in [base, log].into_iter().filter(|unit| *unit != NONE) {
                self.give(turn, unit)?;
                self.counts.trimmed += u64::from(if unit == base { base_filled } else { 0 });
                let pair = &mut self.pairs[at];
                if unit == base {
                    (pair.base, pair.base_filled) = (NONE, 0);
                }
            }
            self.pairs[at] = EMPTY;
        }
        Ok(())
    }

    pub fn slot_of(&self, page: u64) -> Option<u32> {
        let (at, offset) = self.split(page);
        let pair = &self.pairs[at];
        if pair.log != NONE && offset < pair.log_filled {
            return Some(pair.log * self.slots + offset);
        }
        (pair.base != NONE && offset < pair.base_filled).then(|| pair.base * self.slots + offset)
    }

    pub fn counts(&self) -> RangeCounts {
        self.counts
    }

    pub fn verify(&self) -> Result<(), String> {
        let mut seen = vec![0; self.units as usize];
        let pairs = self.pairs.iter().flat_map(|pair| [pair.base, pair.log]).filter(|unit| *unit != NONE);
        pairs
            .chain(self.free.iter().copied())
            .chain(self.bad.iter().copied())
            .for_each(|u| seen[u as usize] += 1);
        match seen.iter().position(|n| *n != 1) {
            Some(unit) => Err(format!("unit {unit} of a block-mapped range is used {} times", seen[unit])),
            None => Ok(()),
        }
    }

    /// Restores a logical unit whose flash is in order.
    pub fn adopt(&mut self, at: usize, pair: Pair, sequences: [u64; 2]) {
        for (unit, sequence) in [pair.base, pair.log].into_iter().zip(sequences) {
            if unit != NONE {
                self.free.retain(|free| *free != unit);
                self.unit_sequences[unit as usize] = sequence;
            }
        }
        self.pairs[at] = pair;
        if pair.log != NONE {
            self.logs.close(at as u32, pair.base_filled - pair.log_filled);
        }
    }

    /// Takes a unit out of the free ones: it holds something, or is bad.
    pub fn withhold(&mut self, unit: u32, bad: bool) {
        self.free.retain(|free| *free != unit);
        if bad {
            self.bad.push(unit);
        }
    }

    /// Writes a logical unit anew from the newest copy of each of its pages, in slots of units that are withheld.
    pub fn rebuild(
        &mut self,
        turn: &mut Turn,
        at: usize,
        newest: &[Option<u32>],
    ) -> Result<(), GcError<LevelError>> {
        self.pairs[at] = Pair { base: self.take(turn)?, ..EMPTY };
        for (offset, slot) in newest.iter().enumerate() {
            let source = slot.map_or(Source::Hole, Source::Copy);
            self.append(turn, at, offset as u32, source)?;
        }
        Ok(())
    }

    /// Erases a unit and makes it free, or bad.
    pub fn give(&mut self, turn: &mut Turn, unit: u32) -> Result<(), LevelError> {
        match turn.erase(unit)? {
            Outcome::Done => {
                self.counts.units_erased += 1;
                self.free.push_back(unit);
            }
            Outcome::Bad => self.bad.push(unit),
        }
        Ok(())
    }

    fn split(&self, page: u64) -> (usize, u32) {
        let slots = u64::from(self.slots);
        ((page / slots) as usize, (page % slots) as u32)
    }

    /// A free unit; completes a log when there is none.
    fn take(&mut self, turn: &mut Turn) -> Result<u32, GcError<LevelError>> {
        loop {
            if let Some(unit) = self.free.pop_front() {
                turn.flash.sequence += 1;
                self.unit_sequences[unit as usize] = turn.flash.sequence;
                return Ok(unit);
            }
            let Some(victim) = self.logs.pick() else {
                return Err(GcError::OutOfSpace { bad: self.bad.len() as u32, blocks: self.units });
            };
            self.complete(turn, victim as usize)?;
        }
    }

    /// Copies to the log what only the base has, and lets it take the base's place.
    fn complete(&mut self, turn: &mut Turn, at: usize) -> Result<(), GcError<LevelError>> {
        for offset in self.pairs[at].log_filled..self.pairs[at].base_filled {
            self.copy_up(turn, at, offset)?;
        }
        self.promote(turn, at)
    }

    fn copy_up(&mut self, turn: &mut Turn, at: usize, offset: u32) -> Result<(), GcError<LevelError>> {
        let pair = &self.pairs[at];
        let source = if offset < pair.base_filled {
            Source::Copy(pair.base * self.slots + offset)
        } else {
            Source::Hole
        };
        self.append(turn, at, offset, source)
    }

    /// The log has all that the base has.
    fn promote(&mut self, turn: &mut Turn, at: usize) -> Result<(), GcError<LevelError>> {
        self.logs.remove(at as u32);
        let Pair { base, log, log_filled, .. } = self.pairs[at];
        self.pairs[at] = Pair { base: log, base_filled: log_filled, ..EMPTY };
        self.give(turn, base).map_err(GcError::Media)
    }

    /// Fills the next slot of the log, or of the base when there is no log.
    fn append(
        &mut self,
        turn: &mut Turn,
        at: usize,
        offset: u32,
        source: Source,
    ) -> Result<(), GcError<LevelError>> {
        loop {
            let Pair { base, log, .. } = self.pairs[at];
            let unit = if log == NONE { base } else { log };
            let outcome = self.fill(turn, at, unit, offset, &source).map_err(GcError::Media)?;
            let pair = &mut self.pairs[at];
            if outcome == Outcome::Done {
                if log == NONE {
                    pair.base_filled = offset + 1;
                } else {
                    pair.log_filled = offset + 1;
                    if offset < pair.base_filled {
                        self.logs.invalidate(at as u32);
                    }
                }
                return Ok(());
            }
            self.evacuate(turn, at, unit, offset)?;
        }
    }

    /// A unit has become bad: what it holds goes to another one.
    fn evacuate(
        &mut self,
        turn: &mut Turn,
        at: usize,
        bad: u32,
        filled: u32,
    ) -> Result<(), GcError<LevelError>> {
        // Not to be completed while it is in two places.
        let was_log = self.logs.contains(at as u32);
        self.logs.remove(at as u32);
        'another: loop {
            let unit = self.take(turn)?;
            for offset in 0..filled {
                let copy = Source::Copy(bad * self.slots + offset);
                if self.fill(turn, at, unit, offset, &copy).map_err(GcError::Media)? == Outcome::Bad {
                    self.bad.push(unit);
                    continue 'another;
                }
            }
            self.bad.push(bad);
            let pair = &mut self.pairs[at];
            if pair.log == bad {
                pair.log = unit;
            } else {
                pair.base = unit;
            }
            if was_log {
                self.logs.close(at as u32, pair.base_filled.saturating_sub(filled));
            }
            return Ok(());
        }
    }

    fn fill(
        &mut self,
        turn: &mut Turn,
        at: usize,
        unit: u32,
        offset: u32,
        source: &Source,
    ) -> Result<Outcome, LevelError> {
        let page = at as u64 * u64::from(self.slots) + u64::from(offset);
        let mut copy = Vec::new();
        let mut note =
            Note { range: turn.range, page, unit: self.unit_sequences[unit as usize], ..Note::default() };
        if let Source::Copy(slot) = source {
            let found = turn.read_for_copy(*slot, page, &mut copy)?;
            note.flags = found.flags & (LOST | HOLE);
            note.sequence = found.sequence;
            self.counts.copied += 1;
        } else {
            turn.flash.sequence += 1;
            note.sequence = turn.flash.sequence;
        }
        if matches!(source, Source::Hole) {
            copy.resize(turn.flash.geometry.page_bytes as usize, 0);
            note.flags = HOLE;
        }
        let data = if let Source::New(data) = source { data } else { copy.as_slice() };
        turn.program(unit * self.slots + offset, data, note, matches!(source, Source::Copy(_)))
    }
}
