//! Opens a grant: reads the last checkpoint, and the out-of-band records of pages written after it.
//!
//! A unit that has not been begun anew since the checkpoint is read from where the checkpoint left it; any other from its
//! first slot. A page counts from the checkpoint unless a note with a larger sequence number names it, or a trim that was
//! recorded later does.

use super::block::{self, BlockRange, EMPTY, Pair};
use super::checkpoint::{self, SavedRange};
use super::page::{self, PageRange};
use super::units::{END, Flash, IoBatch, OobRead, OobRecord, SEQUENCE_MAX, UnitLog, UnitLook};
use super::{Control, Kind, PolicyLevel, PolicySetup, RANGES_MAX, Range, RangeMapping, RangePolicy, Trim};
use crate::error::LevelError;
use crate::grant::Grant;
use crate::level::LevelName;
use crate::log::{OnUnreadable, RecordLog};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weft_core::Nanos;
use weft_device::gc::{Outcome, RestoredBlock};

/// The log of a stripe, with its last checkpoint.
struct FoundLog {
    log: RecordLog,
    saved: checkpoint::Saved,
    trims: Vec<Trim>,
    /// Number of the checkpoint in the log.
    number: u64,
}

pub(super) fn open(grant: Grant, setup: PolicySetup) -> Result<PolicyLevel, LevelError> {
    // The log lies in the first units, and which blocks those are depends on the stripe, which is the grant's and not the caller's: it
    // is found by trying. All are tried: a grant that was begun anew with another stripe may still have records of its first use, and
    // those of the last use have the largest numbers.
    let mut newest: Option<FoundLog> = None;
    // By the number of the last checkpoint that can be read: a log that may have a newer one.
    let mut doubtful: Option<(Option<u64>, LevelError)> = None;
    let mut grant = grant;
    for stripe in stripes_of(&grant) {
        let (_, flash) = super::prepare(grant, PolicySetup { stripe, ..setup })?;
        match find_log(&flash, stripe, OnUnreadable::Refuse) {
            Ok(found) => {
                let number = |found: &Option<FoundLog>| found.as_ref().map(|found| found.number);
                newest = if number(&newest) < number(&found) { found } else { newest };
            }
            // With another stripe than the grant's these blocks hold something else.
            Err(error @ LevelError::CannotTell { .. }) => {
                LevelName::Policy.refuse_others(&flash.grant)?;
                let number = find_log(&flash, stripe, OnUnreadable::Ignore)?.map(|found| found.number);
                if doubtful.as_ref().is_none_or(|(other, _)| *other < number) {
                    doubtful = Some((number, error));
                }
            }
            Err(other) => return Err(other),
        }
        grant = flash.grant;
    }
    match (newest, doubtful) {
        (Some(found), Some((number, error))) if Some(found.number) < number => Err(error),
        (Some(found), _) => {
            let (setup, flash) = super::prepare(grant, PolicySetup { stripe: found.saved.stripe, ..setup })?;
            restore(flash, found.log, found.saved, &found.trims, setup)
        }
        (None, Some((_, error))) => Err(error),
        (None, None) => {
            LevelName::Policy.refuse_others(&grant)?;
            Err(LevelError::NotUsed { grant: grant.name().to_string(), wanted: LevelName::Policy })
        }
    }
}

/// The stripes that the grant can have been begun with.
fn stripes_of(grant: &Grant) -> Vec<u32> {
    let luns = grant.geometry().luns();
    let fits = |stripe: &u32| {
        let (units, log_units) = Flash::layout(grant.geometry(), *stripe);
        luns.is_multiple_of(*stripe) && log_units < units
    };
    (1..=luns).rev().filter(fits).collect()
}

/// The last checkpoint in the blocks where a grant of this stripe has its log; `None` when there is none of this stripe.
fn find_log(flash: &Flash, stripe: u32, unread: OnUnreadable) -> Result<Option<FoundLog>, LevelError> {
    let (log, found) = RecordLog::recover(&mut UnitLog::new(flash, Nanos(0)), flash.log_shape(), unread)?;
    let Some(found) = found else { return Ok(None) };
    let saved = checkpoint::decode(&found.snapshot)?;
    if saved.stripe != stripe {
        return Ok(None);
    }
    let mut trims = Vec::new();
    for delta in &found.deltas {
        trims.extend(checkpoint::decode_trims(delta)?);
    }
    Ok(Some(FoundLog { log, saved, trims, number: found.number }))
}

fn restore(
    flash: Flash,
    log: RecordLog,
    saved: checkpoint::Saved,
    trims: &[Trim],
    setup: PolicySetup,
) -> Result<PolicyLevel, LevelError> {
    check(&flash, &saved, trims)?;
    flash.seen(trims.iter().map(|trim| trim.sequence).max().unwrap_or(0).max(saved.sequence));
    let mut owned = vec![false; flash.units as usize];
    let mut ranges = Vec::new();
    for range in saved.ranges {
        let number = range.number;
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
                    trims.iter().filter(|trim| trim.range == u32::from(number)).copied().collect();
                Kind::Page(Box::new(page_range(&flash, number, &range, &trims, &setup)?))
            }
            RangeMapping::Block => Kind::Block(Box::new(block_range(&flash, number, &range)?)),
        };
        ranges.push((number, Range::new(range.policy, range.units, kind)));
    }
    let free = (flash.log_units..flash.units).rev().filter(|unit| !owned[*unit as usize]).collect();
    let level = PolicyLevel::assemble(setup, flash, ranges, Control { free, bad: Vec::new(), log });
    match level.checkpoint(Nanos(0)) {
        // It only spares the next opening work.
        Err(error) if error.leaves_reads() => {
            tracing::warn!("no checkpoint was written after an opening: {error}");
        }
        other => drop(other?),
    }
    Ok(level)
}

/// Refuses a checkpoint that the level does not write: what follows relies on it.
fn check(flash: &Flash, saved: &checkpoint::Saved, trims: &[Trim]) -> Result<(), LevelError> {
    let damaged = |what: &str| Err(LevelError::Damaged(format!("a checkpoint has {what}")));
    let mut ends = BTreeMap::new();
    let mut numbers = BTreeSet::new();
    for range in &saved.ranges {
        if !numbers.insert(range.number) || range.sequence >= SEQUENCE_MAX {
            return damaged("two ranges of one number, or a sequence number beyond all bounds");
        }
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
        let range = ranges.iter().find(|range| u32::from(range.number) == trim.range);
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
    flash: &Flash,
    number: u16,
    saved: &SavedRange,
    trims: &[Trim],
    setup: &PolicySetup,
) -> Result<PageRange, LevelError> {
    let (slots, known) = (flash.slots_per_unit, saved.sequence);
    let streams = page::streams_for(&saved.policy, saved.units.len(), flash, setup);
    // What fronts of a larger number have filled stays where it is.
    let relocation = streams as usize;
    // By page: its slot and the number it was written with; what the checkpoint knows counts as written with `known`.
    let mut newest: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let mapped: BTreeMap<u32, u32> = saved.map.iter().map(|(page, slot)| (*slot, *page)).collect();
    let mut blocks = Vec::new();
    let mut unit_sequences = Vec::new();
    let mut open: Vec<Option<(u64, usize)>> = vec![None; relocation + 1];
    // Their erase was interrupted: nothing in them counts.
    let mut half_erased = Vec::new();
    for (at, unit) in saved.units.iter().enumerate() {
        let UnitLook { filled, in_order, bad, erases } = flash.look(*unit)?;
        let mut block = RestoredBlock {
            filled: filled.unwrap_or(0),
            erases,
            front: relocation,
            bad,
            ..RestoredBlock::default()
        };
        if filled.is_none() {
            half_erased.push(at);
        }
        let (begun, filled_then) = saved.begun[at];
        let mut sequence = 0;
        let first = flash.first_note(*unit, block.filled)?;
        let same = matches!(first, OobRead::Record(note) if note.unit == begun)
            && block.filled >= filled_then
            && begun > 0;
        let from = if same { filled_then } else { 0 };
        if let OobRead::Record(note) = first {
            (block.front, sequence) = (usize::from(note.front).min(relocation), note.unit);
        }
        let base = at as u32 * slots;
        if same {
            for (slot, page) in mapped.range(base..base + from) {
                let place = slot - base;
                // Of a unit that is partly erased.
                let is_gone = place >= in_order && flash.note(*unit, place)? == OobRead::Nothing;
                if !is_gone {
                    keep_newer(&mut newest, *page, *slot, known);
                }
            }
        }
        for place in from..block.filled {
            let slot = base + place;
            let note = match flash.note(*unit, place)? {
                OobRead::Record(note) if note.range == number => note,
                OobRead::Record(_) | OobRead::Nothing => continue,
                // It may be the newest copy of any page.
                OobRead::Unreadable => return Err(flash.cannot_tell(*unit, place)),
            };
            flash.seen(note.sequence);
            (block.front, sequence) = (usize::from(note.front).min(relocation), note.unit);
            let page = note.page as u32;
            if note.page >= saved.policy.pages {
                // Written before the range lost its last pages.
                if note.sequence <= known {
                    continue;
                }
                return Err(LevelError::Damaged(format!("a note names page {} beyond its range", note.page)));
            }
            if note.sequence > known {
                keep_newer(&mut newest, page, slot, note.sequence);
            } else if mapped.get(&slot) == Some(&page) {
                keep_newer(&mut newest, page, slot, known);
            }
        }
        if !block.bad && in_order == block.filled && block.filled > 0 && block.filled < slots {
            let last = &mut open[block.front];
            if last.is_none_or(|(other, _)| other < sequence) {
                *last = Some((sequence, at));
            }
        }
        flash.seen(sequence);
        unit_sequences.push(sequence);
        blocks.push(block);
    }
    open.iter().flatten().for_each(|(_, at)| blocks[*at].open = true);
    check_pages(flash, saved, trims, &newest)?;
    for at in half_erased {
        blocks[at].bad = match flash.erase(saved.units[at], &mut Nanos(0)) {
            Ok(outcome) => outcome == Outcome::Bad,
            // Nobody can use it; the next opening tries again.
            Err(error) if error.leaves_reads() => true,
            Err(other) => return Err(other),
        };
    }
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
    PageRange::restore(&saved.policy, &blocks, &valid, unit_sequences, flash, streams)
}

/// Refuses a range that has lost a page of its checkpoint. A unit is erased when its pages have newer copies or were trimmed and the
/// trim is recorded: a page without any of these was there, and would read as zeros.
fn check_pages(
    flash: &Flash,
    saved: &SavedRange,
    trims: &[Trim],
    newest: &BTreeMap<u32, (u32, u64)>,
) -> Result<(), LevelError> {
    // Joined and in order: there may be as many trims as pages.
    let mut trimmed: Vec<(u64, u64)> =
        trims.iter().map(|trim| (trim.first, trim.first + trim.pages)).collect();
    trimmed.sort_unstable();
    trimmed.dedup_by(|next, before| {
        let joins = next.0 <= before.1;
        if joins {
            before.1 = before.1.max(next.1);
        }
        joins
    });
    let is_trimmed = |page: u64| {
        let at = trimmed.partition_point(|(first, _)| *first <= page);
        trimmed[..at].last().is_some_and(|(_, end)| page < *end)
    };
    let lost = |(page, _): &&(u32, u32)| !newest.contains_key(page) && !is_trimmed(u64::from(*page));
    let Some((page, slot)) = saved.map.iter().find(lost) else { return Ok(()) };
    let unit = saved.units.get((slot / flash.slots_per_unit) as usize);
    let address = unit.map(|unit| flash.slot_page(*unit, slot % flash.slots_per_unit).to_string());
    Err(LevelError::Damaged(format!(
        "the checkpoint has logical page {} on {}, and the flash does not have it, there or elsewhere",
        saved.policy.start + u64::from(*page),
        address.unwrap_or_else(|| "a page that is not there".into())
    )))
}

fn keep_newer(newest: &mut BTreeMap<u32, (u32, u64)>, page: u32, slot: u32, sequence: u64) {
    let entry = newest.entry(page).or_insert((slot, sequence));
    if entry.1 < sequence {
        *entry = (slot, sequence);
    }
}

/// A unit of a block-mapped range as it was found.
#[derive(Clone, Copy, Debug)]
struct FoundUnit {
    unit: u32,
    begun: u64,
    /// Slots that were programmed in order, and the one whose program was interrupted.
    filled: u32,
    /// The program of that slot was interrupted.
    torn: bool,
    /// Slots up to the last one that is programmed. It is `filled`, but where slots before are missing.
    end: u32,
    whole: WholeWrite,
}

/// Whether a unit was written as a whole in place of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WholeWrite {
    No,
    Finished,
    Unfinished,
    /// The slot that may have had the end cannot be read.
    Unknown {
        slot: u32,
    },
}

fn block_range(flash: &Flash, number: u16, saved: &SavedRange) -> Result<BlockRange, LevelError> {
    let slots = u64::from(flash.slots_per_unit);
    let mut groups: BTreeMap<u64, Vec<FoundUnit>> = BTreeMap::new();
    let (mut free, mut bad_units) = (VecDeque::new(), Vec::new());
    // Units that hold nothing that counts.
    let mut dead = Vec::new();
    for (at, unit) in saved.units.iter().enumerate() {
        let UnitLook { filled, in_order, bad, .. } = flash.look(*unit)?;
        let at = at as u32;
        // Its slots are programmed one by one: where one is missing, a crash of the host has taken it, and nobody was promised what
        // comes after it. The first that is missing is one that was interrupted.
        let Some(end) = filled else {
            dead.push(at);
            continue;
        };
        let filled = end.min(in_order + 1);
        if filled == 0 {
            if bad {
                bad_units.push(at);
            } else {
                free.push_back(at);
            }
            continue;
        }
        match flash.first_note(*unit, filled)? {
            // Of a logical unit that the range has lost.
            OobRead::Record(note)
                if note.range == number && note.page >= saved.policy.pages && note.unit <= saved.sequence =>
            {
                dead.push(at);
            }
            OobRead::Record(note) if note.range != number || note.page >= saved.policy.pages => {
                return Err(LevelError::Damaged(format!(
                    "a note of range {number} names another, or a page beyond it"
                )));
            }
            OobRead::Record(note) => {
                flash.seen(note.unit);
                let torn = flash.note(*unit, filled - 1)? == OobRead::Nothing;
                let whole = whole_of(flash, *unit, filled, note)?;
                let found = FoundUnit { unit: at, begun: note.unit, filled, end, torn, whole };
                groups.entry(note.page / slots).or_default().push(found);
            }
            OobRead::Nothing => dead.push(at),
            OobRead::Unreadable => return Err(flash.cannot_tell(*unit, 0)),
        }
    }
    let mut range = BlockRange::restore(&saved.policy, saved.units.len(), free, bad_units, flash);
    for (logical, mut units) in groups {
        units.sort_by_key(|found| found.begun);
        dead.extend(settle(flash, &saved.units, &mut range, logical as usize, units)?);
    }
    let mut batch = IoBatch::new(flash, &saved.units, number, Nanos(0));
    match range.give(&mut batch, dead) {
        // They wait for the next flush.
        Err(error) if error.leaves_reads() => tracing::warn!("units of a range were not erased: {error}"),
        other => other?,
    }
    Ok(range)
}

/// Whether a unit with this first note was written as a whole.
fn whole_of(flash: &Flash, unit: u32, filled: u32, first: OobRecord) -> Result<WholeWrite, LevelError> {
    if first.front != block::AS_A_WHOLE {
        return Ok(WholeWrite::No);
    }
    let mut unread = None;
    for slot in 0..filled {
        match flash.note(unit, slot)? {
            // What was written on after the end is in order.
            OobRead::Record(note) if note.flags & END != 0 || note.front != block::AS_A_WHOLE => {
                return Ok(WholeWrite::Finished);
            }
            OobRead::Record(_) => unread = None,
            OobRead::Nothing => {}
            OobRead::Unreadable => unread = unread.or(Some(slot)),
        }
    }
    Ok(unread.map_or(WholeWrite::Unfinished, |slot| WholeWrite::Unknown { slot }))
}

/// Takes over the units of a logical unit, in the order in which they were begun; returns those that do not count.
fn settle(
    flash: &Flash,
    units: &[u32],
    range: &mut BlockRange,
    logical: usize,
    mut found: Vec<FoundUnit>,
) -> Result<Vec<u32>, LevelError> {
    let mut dead = Vec::new();
    if found.len() > 1 {
        for found in &found {
            if let WholeWrite::Unknown { slot } = found.whole {
                return Err(flash.cannot_tell(units[found.unit as usize], slot));
            }
        }
        let unfinished = |found: &FoundUnit| found.whole == WholeWrite::Unfinished;
        dead.extend(found.iter().filter(|found| unfinished(found)).map(|found| found.unit));
        found.retain(|found| !unfinished(found));
    }
    // One that was written as a whole has all that older ones have, and so has a log that has caught up.
    let supersedes = |pair: &[FoundUnit]| pair[1].filled - u32::from(pair[1].torn) >= pair[0].end;
    let whole = found.iter().rposition(|found| found.whole == WholeWrite::Finished).unwrap_or(0);
    let caught_up = found[whole..].windows(2).take_while(|pair| supersedes(pair)).count();
    let older = found.drain(..whole + caught_up).map(|found| found.unit).collect::<Vec<u32>>();
    if let (false, Some(newer)) = (older.is_empty(), found.first()) {
        // An older one may have a copy of what cannot be read.
        if let Some(slot) = unread_of(flash, units[newer.unit as usize], newer.filled)? {
            return Err(flash.cannot_tell(units[newer.unit as usize], slot));
        }
    }
    dead.extend(older);
    // Nothing can be written behind the last slot of a base that is ragged: what is missing in it counts as zeros.
    let base_filled =
        |base: FoundUnit| if base.end > base.filled { flash.slots_per_unit } else { base.filled };
    match found[..] {
        [] => {}
        [base] => {
            let pair = Pair { base: base.unit, base_filled: base_filled(base), ..EMPTY };
            range.adopt(logical, pair, [base.begun, 0]);
        }
        [base, log] => {
            let log_filled = log.filled - u32::from(log.torn);
            let stopped = log.torn;
            let base_filled = base_filled(base);
            let pair = Pair { base: base.unit, base_filled, log: log.unit, log_filled, stopped };
            range.adopt(logical, pair, [base.begun, log.begun]);
        }
        _ => {
            return Err(LevelError::Damaged(format!(
                "logical unit {logical} has more than a base and a log"
            )));
        }
    }
    Ok(dead)
}

/// The first slot of a unit that held something and cannot be read.
fn unread_of(flash: &Flash, unit: u32, filled: u32) -> Result<Option<u32>, LevelError> {
    for slot in 0..filled {
        if flash.note(unit, slot)? == OobRead::Unreadable {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}
