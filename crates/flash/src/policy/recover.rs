//! Opening: the last checkpoint, and what the notes beside the pages say that was written after it.
//!
//! A unit that has not been begun anew since the checkpoint is read from where the checkpoint left it; any other from its
//! first slot. A page counts from the checkpoint unless a note with a larger sequence number names it, or a trim that was
//! recorded later does.

use super::block::{BlockRange, EMPTY, Pair};
use super::checkpoint::{self, SavedRange};
use super::page::{PageRange, level_error};
use super::units::{Flash, Note, SEQUENCE_MAX, Turn, UnitLog};
use super::{Kind, PolicyLevel, PolicySetup, RANGES_MAX, Range, RangeMapping, RangePolicy, State, Trim};
use crate::error::LevelError;
use crate::grant::Grant;
use crate::log::{RecordLog, Unread};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_core::Nanos;
use weft_device::gc::RestoredBlock;

pub(super) fn open(grant: Grant, setup: PolicySetup) -> Result<PolicyLevel, LevelError> {
    // The log lies in the first units, and how many those are depends on the stripe: it is found by trying.
    let luns = grant.geometry().luns();
    let fits = |stripe: &u32| {
        let (units, log_units) = Flash::layout(grant.geometry(), *stripe);
        luns.is_multiple_of(*stripe) && log_units < units
    };
    let mut stripes: Vec<u32> = (1..=luns).rev().filter(fits).collect();
    if setup.stripe != 0 {
        stripes = vec![setup.stripe];
    }
    let mut grant = grant;
    for stripe in stripes {
        let (found_setup, flash) = super::prepare(grant, PolicySetup { stripe, ..setup })?;
        let (log, found) =
            RecordLog::recover(&mut UnitLog::new(&flash, Nanos(0)), flash.log_shape(), Unread::Refused)?;
        let Some(found) = found else {
            grant = flash.grant;
            continue;
        };
        let saved = checkpoint::decode(&found.snapshot)?;
        if saved.stripe != stripe {
            grant = flash.grant;
            continue;
        }
        let mut trims = Vec::new();
        for delta in &found.deltas {
            trims.extend(checkpoint::decode_trims(delta)?);
        }
        let state = restore(flash, log, saved, &trims, &found_setup)?;
        return Ok(PolicyLevel { setup: found_setup, state: Mutex::new(state) });
    }
    Err(LevelError::NotFormatted("the grant has no checkpoint of the policy level".into()))
}

fn restore(
    mut flash: Flash,
    log: RecordLog,
    saved: checkpoint::Saved,
    trims: &[Trim],
    setup: &PolicySetup,
) -> Result<State, LevelError> {
    check(&flash, &saved, trims)?;
    flash.sequence = trims.iter().map(|trim| trim.sequence).max().unwrap_or(0).max(saved.sequence);
    let mut owned = vec![false; flash.units as usize];
    let mut ranges = Vec::new();
    for (number, range) in saved.ranges.into_iter().enumerate() {
        for unit in &range.units {
            let within = *unit >= flash.log_units && *unit < flash.units;
            if !within || std::mem::replace(&mut owned[*unit as usize], true) {
                return Err(LevelError::Damaged(format!(
                    "unit {unit} of a checkpoint is not there, or twice"
                )));
            }
        }
        let kind = match range.policy.mapping {
            RangeMapping::Page => {
                let trims: Vec<Trim> =
                    trims.iter().filter(|trim| trim.range == number as u32).copied().collect();
                Kind::Page(page_range(&mut flash, number as u16, &range, saved.sequence, &trims, setup)?)
            }
            RangeMapping::Block => Kind::Block(block_range(&mut flash, number as u16, &range)?),
        };
        ranges.push(Range { policy: range.policy, units: range.units, kind });
    }
    let free = (flash.log_units..flash.units).rev().filter(|unit| !owned[*unit as usize]).collect();
    let mut state = State { ranges, free, trims: Vec::new(), log, flash, since_checkpoint: 0 };
    state.checkpoint(setup, Nanos(0))?;
    Ok(state)
}

/// Refuses a checkpoint that the level does not write: what follows relies on it.
fn check(flash: &Flash, saved: &checkpoint::Saved, trims: &[Trim]) -> Result<(), LevelError> {
    let damaged = |what: &str| Err(LevelError::Damaged(format!("a checkpoint has {what}")));
    let mut ends = BTreeMap::new();
    for range in &saved.ranges {
        let RangePolicy { start, pages, .. } = range.policy;
        let room = range.units.len() as u64 * u64::from(flash.slots_per_unit);
        let Some(end) = start.checked_add(pages).filter(|_| (1..=room).contains(&pages)) else {
            return damaged("a range without pages, or with more than its units hold");
        };
        let before = ends.range(..end).next_back();
        if before.is_some_and(|(_, other)| *other > start) || ends.insert(start, end).is_some() {
            return damaged("ranges that overlap");
        }
    }
    let ranges = &saved.ranges;
    let known = |trim: &Trim| {
        let end = trim.first.checked_add(trim.pages);
        let range = ranges.get(trim.range as usize);
        trim.sequence < SEQUENCE_MAX && range.is_some_and(|r| end.is_some_and(|end| end <= r.policy.pages))
    };
    if ranges.len() > RANGES_MAX || saved.sequence >= SEQUENCE_MAX || !trims.iter().all(known) {
        return damaged(
            "too many ranges, a sequence number beyond all bounds, or a trim of pages that are not there",
        );
    }
    Ok(())
}

fn page_range(
    flash: &mut Flash,
    number: u16,
    saved: &SavedRange,
    known: u64,
    trims: &[Trim],
    setup: &PolicySetup,
) -> Result<PageRange, LevelError> {
    let slots = flash.slots_per_unit;
    let relocation = setup.streams as usize;
    // By page: its slot and the number it was written with; what the checkpoint knows counts as written with `known`.
    let mut newest: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let mapped: BTreeMap<u32, u32> = saved.map.iter().map(|(page, slot)| (*slot, *page)).collect();
    let mut blocks = Vec::new();
    let mut unit_sequences = Vec::new();
    let mut open: Vec<Option<(u64, usize)>> = vec![None; relocation + 1];
    for (at, unit) in saved.units.iter().enumerate() {
        let (filled, bad, erases) = flash.look(*unit)?;
        let mut block = RestoredBlock {
            filled: filled.unwrap_or(0),
            erases,
            front: relocation,
            bad,
            ..RestoredBlock::default()
        };
        if filled.is_none() && !bad {
            // Its erase was interrupted: nothing in it counts.
            block.bad = flash.erase(*unit, &mut Nanos(0))? == weft_device::gc::Outcome::Bad;
        }
        let (begun, filled_then) = saved.begun[at];
        let mut sequence = 0;
        let first = if block.filled > 0 { flash.note(*unit, 0)? } else { None };
        let same = first.is_some_and(|note| note.unit == begun) && block.filled >= filled_then && begun > 0;
        let from = if same { filled_then } else { 0 };
        if let Some(note) = first {
            (block.front, sequence) = (usize::from(note.front).min(relocation), note.unit);
        }
        let base = at as u32 * slots;
        if same {
            for (slot, page) in mapped.range(base..base + from) {
                keep_newer(&mut newest, *page, *slot, known);
            }
        }
        for place in from..block.filled {
            let slot = base + place;
            let Some(note) = flash.note(*unit, place)?.filter(|note| note.range == number) else { continue };
            flash.sequence = flash.sequence.max(note.sequence);
            (block.front, sequence) = (usize::from(note.front).min(relocation), note.unit);
            let page = note.page as u32;
            if note.page >= saved.policy.pages {
                return Err(LevelError::Damaged(format!("a note names page {} beyond its range", note.page)));
            }
            if note.sequence > known {
                keep_newer(&mut newest, page, slot, note.sequence);
            } else if mapped.get(&slot) == Some(&page) {
                keep_newer(&mut newest, page, slot, known);
            }
        }
        if !block.bad && block.filled > 0 && block.filled < slots {
            let last = &mut open[block.front];
            if last.is_none_or(|(other, _)| other < sequence) {
                *last = Some((sequence, at));
            }
        }
        flash.sequence = flash.sequence.max(sequence);
        unit_sequences.push(sequence);
        blocks.push(block);
    }
    open.iter().flatten().for_each(|(_, at)| blocks[*at].open = true);
    for trim in trims {
        let (first, end) = (trim.first as u32, (trim.first + trim.pages) as u32);
        let gone: Vec<u32> = newest
            .range(first..end)
            .filter(|(_, (_, sequence))| *sequence <= trim.sequence)
            .map(|(page, _)| *page)
            .collect();
        for page in gone {
            newest.remove(&page);
        }
    }
    let valid: Vec<(u32, u32)> = newest.into_iter().map(|(page, (slot, _))| (slot, page)).collect();
    PageRange::restore(&saved.policy, &blocks, &valid, unit_sequences, flash, setup)
}

fn keep_newer(newest: &mut BTreeMap<u32, (u32, u64)>, page: u32, slot: u32, sequence: u64) {
    let entry = newest.entry(page).or_insert((slot, sequence));
    if entry.1 < sequence {
        *entry = (slot, sequence);
    }
}

/// A unit of a block-mapped range as it was found.
#[derive(Clone, Debug)]
struct FoundUnit {
    unit: u32,
    begun: u64,
    filled: u32,
    /// The last slot can be read and the unit can be written on.
    sound: bool,
    bad: bool,
}

fn block_range(flash: &mut Flash, number: u16, saved: &SavedRange) -> Result<BlockRange, LevelError> {
    let slots = u64::from(flash.slots_per_unit);
    let mut range = BlockRange::new(&saved.policy, saved.units.len(), flash);
    let mut groups: BTreeMap<u64, Vec<FoundUnit>> = BTreeMap::new();
    let mut dead = Vec::new();
    for (at, unit) in saved.units.iter().enumerate() {
        let (filled, bad, _) = flash.look(*unit)?;
        let at = at as u32;
        let note = match filled {
            Some(0) if !bad => continue,
            Some(filled) => first_note(flash, *unit, filled, number)?,
            None => None,
        };
        range.withhold(at, bad);
        match (note, filled) {
            (Some(note), Some(filled)) if note.page < saved.policy.pages => {
                let last = flash.note(*unit, filled - 1)?;
                flash.sequence = flash.sequence.max(note.unit).max(last.map_or(0, |note| note.sequence));
                let sound = last.is_some() && !bad;
                let found = FoundUnit { unit: at, begun: note.unit, filled, sound, bad };
                groups.entry(note.page / slots).or_default().push(found);
            }
            _ if bad => {}
            _ => dead.push(at),
        }
    }
    let mut turn = Turn::new(flash, &saved.units, number, Nanos(0));
    for unit in dead {
        range.give(&mut turn, unit)?;
    }
    let mut broken = Vec::new();
    for (logical, mut units) in groups {
        units.sort_by_key(|found| found.begun);
        if !adopt(&mut range, &mut turn, logical as usize, &units)? {
            broken.push((logical as usize, units));
        }
    }
    for (logical, units) in broken {
        rebuild(&mut range, &mut turn, logical, units)
            .map_err(|error| level_error(error, saved.policy.start))?;
    }
    Ok(range)
}

/// Any note of a unit.
fn first_note(flash: &Flash, unit: u32, filled: u32, range: u16) -> Result<Option<Note>, LevelError> {
    for slot in 0..filled {
        if let Some(note) = flash.note(unit, slot)? {
            return Ok(Some(note).filter(|note| note.range == range));
        }
    }
    Ok(None)
}

/// Takes over units that are as a running range leaves them; false when they are not.
fn adopt(
    range: &mut BlockRange,
    turn: &mut Turn,
    logical: usize,
    units: &[FoundUnit],
) -> Result<bool, LevelError> {
    if units.iter().any(|found| !found.sound) {
        return Ok(false);
    }
    match units {
        [base] => {
            let pair = Pair { base: base.unit, base_filled: base.filled, ..EMPTY };
            range.adopt(logical, pair, [base.begun, 0]);
        }
        [base, log] if log.filled >= base.filled => {
            range.give(turn, base.unit)?;
            let pair = Pair { base: log.unit, base_filled: log.filled, ..EMPTY };
            range.adopt(logical, pair, [log.begun, 0]);
        }
        [base, log] => {
            let pair =
                Pair { base: base.unit, base_filled: base.filled, log: log.unit, log_filled: log.filled };
            range.adopt(logical, pair, [base.begun, log.begun]);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// By offset: the newest copy in these units, with its number.
fn newest_of(turn: &mut Turn, units: &[FoundUnit]) -> Result<Vec<Option<(u32, u64)>>, LevelError> {
    let slots = turn.flash.slots_per_unit;
    let mut newest: Vec<Option<(u32, u64)>> = Vec::new();
    for found in units {
        for place in 0..found.filled {
            let note = turn.flash.note(turn.units[found.unit as usize], place)?;
            newest.resize(newest.len().max(place as usize + 1), None);
            let Some(note) = note else { continue };
            turn.flash.sequence = turn.flash.sequence.max(note.sequence);
            let best = &mut newest[place as usize];
            if best.is_none_or(|(_, sequence)| sequence < note.sequence) {
                *best = Some((found.unit * slots + place, note.sequence));
            }
        }
    }
    Ok(newest)
}

/// Puts a logical unit in order whose units are not: a slot was torn, a unit is bad, or a copy of one was under way.
fn rebuild(
    range: &mut BlockRange,
    turn: &mut Turn,
    logical: usize,
    mut units: Vec<FoundUnit>,
) -> Result<(), weft_device::gc::GcError<LevelError>> {
    let media = weft_device::gc::GcError::Media;
    // A copy that was under way holds nothing that its original does not.
    while units.len() > 1 {
        let Some((last, others)) = units.split_last() else { break };
        let older = newest_of(turn, others).map_err(media)?;
        let own = newest_of(turn, std::slice::from_ref(last)).map_err(media)?;
        let adds = own.iter().enumerate().any(|(place, copy)| {
            let before = older.get(place).copied().flatten();
            copy.is_some_and(|(_, sequence)| before.is_none_or(|(_, other)| other < sequence))
        });
        if adds {
            break;
        }
        if !last.bad {
            range.give(turn, last.unit).map_err(media)?;
        }
        units.pop();
    }
    if adopt(range, turn, logical, &units).map_err(media)? {
        return Ok(());
    }
    let mut newest: Vec<Option<u32>> =
        newest_of(turn, &units).map_err(media)?.into_iter().map(|best| best.map(|(slot, _)| slot)).collect();
    // What was torn at the end was never promised.
    while newest.last() == Some(&None) {
        newest.pop();
    }
    if !newest.is_empty() {
        range.rebuild(turn, logical, &newest)?;
    }
    for found in units.iter().filter(|found| !found.bad) {
        range.give(turn, found.unit).map_err(media)?;
    }
    Ok(())
}
