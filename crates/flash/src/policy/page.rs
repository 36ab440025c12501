//! A page-mapped range: a [`PageMapper`] over the range's units.

use super::stream::StreamTable;
use super::units::{Flash, IoBatch, LOST, OobRead, OobRecord};
use super::{PolicySetup, RangeCounts, RangePolicy};
use crate::error::LevelError;
use weft_core::Tag;
use weft_device::gc::{GcError, MapperSetup, Media, Outcome, PageMapper, RestoredBlock};

/// Free units below which the cleaner works.
const RESERVE_UNITS: u32 = 2;

#[derive(Clone, Debug)]
pub(super) struct PageRange {
    mapper: PageMapper,
    streams: StreamTable,
    /// By unit of the range: the sequence number when it was begun.
    pub unit_sequences: Vec<u64>,
    /// By slot: the page that was programmed there since its erase, valid or not; [`UNKNOWN`] where only the flash knows.
    slot_pages: Vec<u32>,
    page_bytes: u64,
    /// What was counted before the range was changed.
    before: RangeCounts,
    /// Erases when wear was looked at last.
    looked_at: u64,
}

/// No page has this number.
const UNKNOWN: u32 = u32::MAX;

/// Erases by which units may differ before the data of the least worn one is moved.
const WEAR_GAP: u32 = 32;

/// Units that a range needs beside its data and its streams: one front more for relocation, and one unit more without which
/// cleaning would gain nothing.
const KEPT_UNITS: u64 = RESERVE_UNITS as u64 + 2;

/// Units that a range with so many streams takes: its pages, its over-provisioning, and what is open or kept free.
pub(super) fn units_for(policy: &RangePolicy, flash: &Flash, streams: u32) -> u64 {
    data_units(policy, flash).saturating_add(KEPT_UNITS + u64::from(streams))
}

/// Streams of a range that has so many units: those that are wished for, as far as the range was made with units for them.
pub(super) fn streams_for(policy: &RangePolicy, units: usize, flash: &Flash, setup: &PolicySetup) -> u32 {
    let left = (units as u64).saturating_sub(data_units(policy, flash).saturating_add(KEPT_UNITS));
    u64::from(setup.streams).min(left).max(1) as u32
}

/// Units that the pages and the over-provisioning take.
fn data_units(policy: &RangePolicy, flash: &Flash) -> u64 {
    let pages = u128::from(policy.pages) * u128::from(1000 + u64::from(policy.over_provisioning_permille));
    let units = (pages / 1000).div_ceil(u128::from(flash.slots_per_unit));
    u64::try_from(units).unwrap_or(u64::MAX)
}

fn mapper_setup(policy: &RangePolicy, units: usize, flash: &Flash, streams: u32) -> MapperSetup {
    let relocation = streams as usize;
    MapperSetup {
        blocks: units as u32,
        slots_per_block: flash.slots_per_unit,
        pages: u32::try_from(policy.pages).unwrap_or(u32::MAX),
        reserve_blocks: RESERVE_UNITS,
        victim: policy.gc,
        relocation: vec![relocation; relocation + 1],
        seed: 0,
    }
}

/// A failure of a range, with where the range begins.
pub(super) fn level_error(error: GcError<LevelError>, start: u64) -> LevelError {
    match error {
        GcError::Media(error) => error,
        other => refused(&other, start),
    }
}

/// What the page map refused by itself.
pub(super) fn refused<E: std::fmt::Display>(error: &GcError<E>, start: u64) -> LevelError {
    match error {
        GcError::OutOfSpace { bad, blocks } => {
            let why = format!("{bad} of {blocks} units are bad and the rest is full");
            LevelError::NoRoom { start, why }
        }
        other => LevelError::BadRequest(other.to_string()),
    }
}

impl PageRange {
    pub fn new(
        policy: &RangePolicy,
        units: usize,
        flash: &Flash,
        setup: &PolicySetup,
    ) -> Result<PageRange, LevelError> {
        let blocks = vec![RestoredBlock::default(); units];
        PageRange::restore(policy, &blocks, &[], vec![0; units], flash, setup.streams)
    }

    /// The range as it was found on the flash, with so many streams.
    pub fn restore(
        policy: &RangePolicy,
        blocks: &[RestoredBlock],
        valid: &[(u32, u32)],
        unit_sequences: Vec<u64>,
        flash: &Flash,
        streams: u32,
    ) -> Result<PageRange, LevelError> {
        let mapper_setup = mapper_setup(policy, blocks.len(), flash, streams);
        let mapper = PageMapper::restore(mapper_setup, blocks, valid.iter().copied())
            .map_err(|error| level_error(error, policy.start))?;
        let streams = StreamTable::new(streams);
        let page_bytes = u64::from(flash.geometry.page_bytes);
        let slot_pages = vec![UNKNOWN; blocks.len() * flash.slots_per_unit as usize];
        Ok(PageRange {
            mapper,
            streams,
            unit_sequences,
            slot_pages,
            page_bytes,
            before: RangeCounts::default(),
            looked_at: 0,
        })
    }

    /// Writes the first of these pages, those that the flash programs together; returns how many. `trims`: trims of the range
    /// have not been recorded.
    pub fn write(
        &mut self,
        batch: &mut IoBatch,
        page: u32,
        data: &[u8],
        tag: Tag,
        trims: bool,
    ) -> Result<u32, GcError<MapError>> {
        let front = self.streams.front_of(tag, self.mapper.counts().written * self.page_bytes);
        let slots_per_unit = batch.flash.slots_per_unit;
        let (unit_sequences, slot_pages) = (&mut self.unit_sequences, &mut self.slot_pages);
        let pages = (data.len() as u64 / self.page_bytes) as u32;
        let mut media = RangeMedia {
            batch,
            first: page,
            data,
            tag,
            unit_sequences,
            slot_pages,
            slots_per_unit,
            copy: Vec::new(),
            trims,
            taken: Vec::new(),
        };
        let written = self.mapper.write_some(&mut media, page, pages, front)?;
        // Once in as many erases as there are units: data that stays keeps its unit young.
        let erases = self.mapper.counts().erases;
        if !trims && erases - self.looked_at >= u64::from(self.mapper.setup().blocks) {
            self.looked_at = erases;
            match self.mapper.level_wear(&mut media, WEAR_GAP) {
                // The page is written. What was moved half way is moved when its unit is cleaned.
                Ok(_) | Err(GcError::OutOfSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// The range with other pages, another victim policy, and other units: of those it had, these, in this order, and new
    /// ones. It keeps its streams.
    pub fn changed(
        &self,
        policy: &RangePolicy,
        kept: &[u32],
        new: usize,
        flash: &Flash,
    ) -> Result<PageRange, LevelError> {
        let slots = flash.slots_per_unit;
        let found = self.mapper.blocks_to_restore();
        let mut blocks: Vec<RestoredBlock> = kept.iter().map(|unit| found[*unit as usize]).collect();
        blocks.resize(kept.len() + new, RestoredBlock::default());
        let mut sequences: Vec<u64> = kept.iter().map(|unit| self.unit_sequences[*unit as usize]).collect();
        sequences.resize(kept.len() + new, 0);
        let mut valid = Vec::new();
        for (at, unit) in kept.iter().enumerate() {
            for place in 0..slots {
                let page = self.mapper.page_in(unit * slots + place);
                if let Some(page) = page.filter(|page| u64::from(*page) < policy.pages) {
                    valid.push((at as u32 * slots + place, page));
                }
            }
        }
        let changed = PageRange::restore(policy, &blocks, &valid, sequences, flash, self.streams())?;
        Ok(PageRange { streams: self.streams.clone(), before: self.counts(), ..changed })
    }

    /// Open units for new data.
    pub fn streams(&self) -> u32 {
        self.streams.len() as u32
    }

    /// Cleans until the range can do without so many units, or nothing is gained any more. Its trims have been recorded.
    pub fn free_up(&mut self, batch: &mut IoBatch, units: u64) -> Result<(), GcError<LevelError>> {
        let mut media = RangeMedia::that_moves(batch, &mut self.unit_sequences, &mut self.slot_pages);
        let wanted = units + u64::from(RESERVE_UNITS) + 1;
        let freed = self.mapper.free_up(&mut media, u32::try_from(wanted).unwrap_or(u32::MAX));
        match freed.map_err(|error| error.map_media(MapError::into_level)) {
            Ok(_) | Err(GcError::OutOfSpace { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Erases the units in which something of these pages is that does not count any more, once what counts in them has moved. Its trims
    /// have been recorded. What power or an error interrupted may be of any page.
    pub fn erase_stale(
        &mut self,
        batch: &mut IoBatch,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<(), GcError<LevelError>> {
        let mut found = Vec::new();
        for unit in 0..batch.units.len() as u32 {
            if self.has_stale(batch, unit, &is_wanted).map_err(GcError::Media)? {
                self.mapper.close_block(unit);
                found.push(unit);
            }
        }
        let mut media = RangeMedia::that_moves(batch, &mut self.unit_sequences, &mut self.slot_pages);
        for unit in found {
            let collected = self.mapper.collect_this(&mut media, unit);
            collected.map_err(|error| error.map_media(MapError::into_level))?;
        }
        Ok(())
    }

    /// Whether a unit has something stale of these pages.
    fn has_stale(
        &mut self,
        batch: &IoBatch,
        unit: u32,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<bool, LevelError> {
        let slots = batch.flash.slots_per_unit;
        for place in 0..self.filled(unit) {
            let slot = unit * slots + place;
            if self.mapper.page_in(slot).is_some() {
                continue;
            }
            let known = &mut self.slot_pages[slot as usize];
            if *known == UNKNOWN {
                match batch.flash.note(batch.units[unit as usize], place)? {
                    OobRead::Record(note) => *known = note.page as u32,
                    OobRead::Nothing | OobRead::Unreadable => return Ok(true),
                }
            }
            if is_wanted(*known) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Units that the range can do without now, so many at most.
    pub fn dispensable(&self, most: u64) -> Vec<u32> {
        let free = u64::from(self.mapper.free_blocks().saturating_sub(RESERVE_UNITS + 1));
        let blocks = self.mapper.blocks_to_restore();
        let clean = (0..blocks.len()).filter(|unit| blocks[*unit].filled == 0 && !blocks[*unit].bad);
        clean.map(|unit| unit as u32).take(free.min(most) as usize).collect()
    }

    pub fn trim(&mut self, first: u32, pages: u32) -> Result<(), GcError<LevelError>> {
        (first..first + pages).try_for_each(|page| self.mapper.trim(page).map(|_| ()))
    }

    pub fn slot_of(&self, page: u32) -> Option<u32> {
        self.mapper.slot_of(page)
    }

    /// Slots filled in a unit.
    pub fn filled(&self, unit: u32) -> u32 {
        self.mapper.block_use(unit).map_or(0, |(_, filled)| filled)
    }

    /// Units whose flash is bad.
    pub fn bad_units(&self) -> u32 {
        self.mapper.bad_blocks()
    }

    /// What write amplification depends on.
    pub fn alpha(&self) -> f64 {
        self.mapper.setup().alpha()
    }

    pub fn counts(&self) -> RangeCounts {
        let counts = self.mapper.counts();
        RangeCounts {
            written: self.before.written + counts.written,
            copied: self.before.copied + counts.relocated,
            holes: 0,
            trimmed: self.before.trimmed + counts.trimmed,
            units_erased: self.before.units_erased + counts.erases,
        }
    }

    pub fn verify(&self) -> Result<(), String> {
        self.mapper.verify()
    }
}

/// Why the flash stopped the page map.
#[derive(Debug, thiserror::Error)]
pub(super) enum MapError {
    /// A unit is to be erased while trims are not recorded. It may hold the last write of a page that was trimmed: were it
    /// gone and the trim forgotten in a cut, an older write would be the newest. The write is to be asked for again.
    #[error("trims have to be recorded first")]
    TrimsFirst,
    #[error(transparent)]
    Level(#[from] LevelError),
}

impl MapError {
    fn into_level(self) -> LevelError {
        match self {
            MapError::Level(error) => error,
            // Only of a range whose trims have not been recorded.
            MapError::TrimsFirst => {
                LevelError::Damaged("trims are to be recorded, and there are none".into())
            }
        }
    }
}

/// The units of the range as the page map wants them.
struct RangeMedia<'a, 'b> {
    batch: &'a mut IoBatch<'b>,
    /// The page that the data begins with.
    first: u32,
    data: &'a [u8],
    /// What the caller says of the data.
    tag: Tag,
    unit_sequences: &'a mut [u64],
    slot_pages: &'a mut [u32],
    slots_per_unit: u32,
    /// What is copied.
    copy: Vec<u8>,
    /// Trims of the range are not recorded.
    trims: bool,
    /// Of the slots whose program failed last, those that the flash has taken.
    taken: Vec<u32>,
}

impl<'a, 'b> RangeMedia<'a, 'b> {
    /// Nobody has given data: pages only move.
    fn that_moves(
        batch: &'a mut IoBatch<'b>,
        unit_sequences: &'a mut [u64],
        slot_pages: &'a mut [u32],
    ) -> RangeMedia<'a, 'b> {
        let slots_per_unit = batch.flash.slots_per_unit;
        RangeMedia {
            batch,
            first: 0,
            data: &[],
            tag: Tag::default(),
            unit_sequences,
            slot_pages,
            slots_per_unit,
            copy: Vec::new(),
            trims: false,
            taken: Vec::new(),
        }
    }

    /// What the caller gave for a page.
    fn given(&self, page: u32) -> &'a [u8] {
        let page_bytes = self.batch.flash.geometry.page_bytes as usize;
        &self.data[(page - self.first) as usize * page_bytes..][..page_bytes]
    }

    /// Of so many slots from this one on, those that are programmed. One whose state is not told counts as not programmed.
    fn programmed(&self, first: u32, slots: u32) -> Vec<u32> {
        let flash = self.batch.flash;
        let is_programmed = |slot: &u32| {
            let unit = self.batch.units[(slot / self.slots_per_unit) as usize];
            let page = flash.slot_page(unit, slot % self.slots_per_unit);
            flash.grant.look(page.block).is_ok_and(|look| look.programmed > page.page)
        };
        (first..first + slots).filter(is_programmed).collect()
    }

    /// Reads a page that is to be copied; what its copy's flags say of it, and its tag.
    fn read(&mut self, page: u32, from: u32, copy: &mut Vec<u8>) -> Result<(u8, Tag), MapError> {
        let found = self.batch.read_for_copy(from, u64::from(page), copy)?;
        Ok((found.flags & LOST, found.tag))
    }

    /// What is written beside a page in a slot.
    fn note(&mut self, slot: u32, page: u32, front: usize, (flags, tag): (u8, Tag)) -> OobRecord {
        let sequence = self.batch.flash.next_sequence();
        let unit = &mut self.unit_sequences[(slot / self.slots_per_unit) as usize];
        if slot.is_multiple_of(self.slots_per_unit) {
            *unit = sequence;
        }
        // However the program ends: a part of it may be there.
        self.slot_pages[slot as usize] = page;
        let (range, page) = (self.batch.range, u64::from(page));
        OobRecord { range, front: front as u8, flags, page, sequence, unit: *unit, tag }
    }
}

impl Media for RangeMedia<'_, '_> {
    type Error = MapError;

    fn program(&mut self, to: u32, page: u32, from: Option<u32>, front: usize) -> Result<Outcome, MapError> {
        let mut copy = std::mem::take(&mut self.copy);
        let given = Ok((0, self.tag));
        let said = from.map_or(given, |from| self.read(page, from, &mut copy))?;
        let note = self.note(to, page, front, said);
        let outcome = match from {
            Some(_) => self.batch.program(to, &copy, note, true),
            None => {
                let data = self.given(page);
                self.batch.program(to, data, note, false)
            }
        };
        self.copy = copy;
        Ok(outcome?)
    }

    fn together(&self) -> u32 {
        self.batch.flash.together()
    }

    fn program_together(
        &mut self,
        to: u32,
        pages: &[(u32, Option<u32>)],
        front: usize,
    ) -> Result<Outcome, MapError> {
        let mut copies = Vec::new();
        let mut notes = Vec::with_capacity(pages.len());
        for (slot, (page, from)) in (to..).zip(pages) {
            let mut said = (0, self.tag);
            if let Some(from) = from {
                let mut copy = Vec::new();
                said = self.read(*page, *from, &mut copy)?;
                copies.push(copy);
            }
            notes.push(self.note(slot, *page, front, said));
        }
        let data: Vec<&[u8]> = if copies.is_empty() {
            pages.iter().map(|(page, _)| self.given(*page)).collect()
        } else {
            copies.iter().map(Vec::as_slice).collect()
        };
        let written: Vec<(&[u8], OobRecord)> = data.into_iter().zip(notes).collect();
        let result = self.batch.program_together(to, &written, !copies.is_empty());
        self.taken = match &result {
            // Whatever the flash has of them is found when the level is opened.
            Ok(Outcome::Done) | Err(LevelError::PowerLost) => Vec::new(),
            Ok(Outcome::Bad) | Err(_) => self.programmed(to, pages.len() as u32),
        };
        Ok(result?)
    }

    fn has_taken(&self, slot: u32) -> bool {
        self.taken.contains(&slot)
    }

    fn copying(&mut self, slots: &[u32]) -> Result<(), MapError> {
        Ok(self.batch.read_ahead(slots)?)
    }

    fn erase(&mut self, block: u32) -> Result<Outcome, MapError> {
        if self.trims {
            return Err(MapError::TrimsFirst);
        }
        let outcome = self.batch.erase(block)?;
        let first = (block * self.slots_per_unit) as usize;
        self.slot_pages[first..first + self.slots_per_unit as usize].fill(UNKNOWN);
        Ok(outcome)
    }
}
