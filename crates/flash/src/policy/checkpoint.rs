//! The checkpoint: the ranges, their units, and the maps of page-mapped ranges.

use super::units::Flash;
use super::{Kind, PolicySetup, Range, RangeMapping, RangePolicy, Trim};
use crate::error::LevelError;
use weft_core::codec::{Decode, Encode, Reader, Truncated, put};
use weft_core::coded;
use weft_device::gc::VictimPolicy;

const VERSION: u32 = 3;
/// The first version in which ranges have numbers of their own and each the number of the last page that is known of it.
const VERSION_NUMBERED: u32 = 3;
/// The oldest version that is read: it has no units that were written as a whole.
const VERSION_MIN: u32 = 1;
const NOT_MAPPED: u32 = u32::MAX;

/// A range as a checkpoint has it.
#[derive(Debug)]
pub(super) struct SavedRange {
    /// What its notes name it by.
    pub number: u16,
    /// Number of the last page that the checkpoint knows of it.
    pub sequence: u64,
    pub policy: RangePolicy,
    pub units: Vec<u32>,
    /// Of a page-mapped range, by unit: when it was begun, and slots filled.
    pub begun: Vec<(u64, u32)>,
    /// Of a page-mapped range: pages and their slots.
    pub map: Vec<(u32, u32)>,
}

#[derive(Debug)]
pub(super) struct Saved {
    pub stripe: u32,
    /// Number of the last page that the checkpoint knows.
    pub sequence: u64,
    pub ranges: Vec<SavedRange>,
}

/// The beginning of a checkpoint of so many ranges.
pub(super) fn begin(flash: &Flash, setup: &PolicySetup, ranges: usize) -> Vec<u8> {
    let mut raw = Vec::new();
    put(&mut raw, &[&VERSION, &setup.stripe, &flash.sequence(), &(ranges as u32)]);
    raw
}

/// Adds a range, whose lock is held: all that has been written to it is known.
pub(super) fn put_range(raw: &mut Vec<u8>, flash: &Flash, number: u16, range: &Range) {
    let Range { policy, units, kind, .. } = range;
    let RangePolicy { start, pages, mapping, gc, over_provisioning_permille } = policy;
    let mapping = match mapping {
        RangeMapping::Page => 0u8,
        RangeMapping::Block => 1,
    };
    let gc = VictimPolicy::ALL.iter().position(|known| known == gc).unwrap_or(0) as u8;
    put(raw, &[&number, &flash.sequence(), start, pages, &mapping, &gc, over_provisioning_permille, units]);
    let Kind::Page(range) = kind else { return };
    for (unit, sequence) in range.unit_sequences.iter().enumerate() {
        put(raw, &[sequence, &range.filled(unit as u32)]);
    }
    for page in 0..policy.pages as u32 {
        range.slot_of(page).unwrap_or(NOT_MAPPED).put(raw);
    }
}

pub(super) fn decode(raw: &[u8]) -> Result<Saved, LevelError> {
    let mut reader = Reader::new(raw);
    let version = reader.u32().map_err(truncated)?;
    if !(VERSION_MIN..=VERSION).contains(&version) {
        let of = "the policy level's checkpoint";
        return Err(LevelError::UnknownVersion { of, found: version, oldest: VERSION_MIN, newest: VERSION });
    }
    let saved = fields(&mut reader, version).map_err(truncated)?;
    saved.ok_or_else(|| LevelError::Damaged("a checkpoint names an unknown mapping or policy".into()))
}

fn fields(reader: &mut Reader, version: u32) -> Result<Option<Saved>, Truncated> {
    let (stripe, sequence, count) = (reader.u32()?, reader.u64()?, reader.u32()?);
    let mut saved = Saved { stripe, sequence, ranges: Vec::new() };
    for at in 0..count {
        let numbered = version >= VERSION_NUMBERED;
        let (number, sequence) =
            if numbered { (reader.u16()?, reader.u64()?) } else { (at as u16, sequence) };
        let (start, pages) = (reader.u64()?, reader.u64()?);
        let (mapping, gc) = (reader.u8()?, reader.u8()?);
        let over_provisioning_permille = reader.u32()?;
        let (mapping, gc) = match (mapping, VictimPolicy::ALL.get(gc as usize)) {
            (0, Some(gc)) => (RangeMapping::Page, *gc),
            (1, Some(gc)) => (RangeMapping::Block, *gc),
            _ => return Ok(None),
        };
        let units = Vec::get(reader)?;
        let policy = RangePolicy { start, pages, mapping, gc, over_provisioning_permille };
        let mut range = SavedRange { number, sequence, policy, units, begun: Vec::new(), map: Vec::new() };
        if mapping == RangeMapping::Page {
            for _ in 0..range.units.len() {
                range.begun.push((reader.u64()?, reader.u32()?));
            }
            for page in 0..pages {
                let slot = reader.u32()?;
                if slot != NOT_MAPPED {
                    range.map.push((page as u32, slot));
                }
            }
        }
        saved.ranges.push(range);
    }
    Ok(Some(saved))
}

coded! { Trim { range, first, pages, sequence } }

pub(super) fn encode_trims(trims: &[Trim]) -> Vec<u8> {
    let mut raw = Vec::new();
    trims.put(&mut raw);
    raw
}

pub(super) fn decode_trims(raw: &[u8]) -> Result<Vec<Trim>, LevelError> {
    Vec::get(&mut Reader::new(raw)).map_err(truncated)
}

fn truncated(error: Truncated) -> LevelError {
    LevelError::Damaged(format!("a checkpoint of the policy level: {error}"))
}
