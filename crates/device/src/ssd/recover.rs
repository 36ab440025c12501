//! Opening a drive in an image: the map that its slot entries, trims and cells make.
//!
//! For each logical block the write, move or trim with the largest number counts. What was in the write buffer goes back there if
//! its place in flash is still to be programmed. If power went in that program, the block is read from its cell until the
//! drive has moved it, which it tries at once. Each front goes on in the unit that it filled, so that openings, however many,
//! use up no free units. A unit without anything valid that no front fills is erased, and so is one whose erase was
//! interrupted.
//!
//! A crash of the host may take programs back. Cells then remain for places that are erased, and others fill the unit up to
//! them later. The slots of a unit are filled in order, so a cell waits for its place only if its number is larger than all
//! numbers before it in the unit.
//!
//! Power may go at any step. Nothing that counts is given up before its copy is kept, so the next opening finds the same.

use super::commands::{Ssd, State};
use super::error::SsdError;
use super::fdp::Events;
use super::media::FlashMedia;
use super::protected::{Cell, Life, MAP_CHECK, NO_BLOCK, Protected, Tag, life_of, map_check};
use super::setup::SsdSetup;
use crate::DeviceError;
use crate::gc::{GcError, Media, Outcome, PageMapper, RestoredBlock};
use crate::nand::{BlockState, FlashError, OpenChannel};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use weft_core::BLOCK_BYTES;

/// How a unit was found.
#[derive(Clone, Default, Debug)]
struct Unit {
    /// Program units programmed, torn and failed ones included.
    programs: u32,
    /// It was given up before.
    given_up: bool,
    /// Its blocks do not agree on that: an erase was interrupted, or the process or the host ended in the middle of a
    /// program. It is filled no further.
    ragged: bool,
    /// A program failed in it, or an erase.
    failed: bool,
    erases: u32,
    /// The largest number in it, and the front that filled it.
    last: Option<(u64, usize)>,
    valid: u32,
    buffered: u32,
}

/// Where the last version of a logical block is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Nowhere,
    Slot(u32),
    /// By position in the list of cells.
    Cell(usize),
}

struct Recovery {
    media: FlashMedia,
    units: Vec<Unit>,
    cells: Vec<Cell>,
    sequence: u64,
    look: bool,
    host_crashed: bool,
    rewrites: Vec<Rewrite>,
    /// Erases that opening took, and the slots that they took away.
    erases: u64,
    slots_erased: u64,
}

/// What is to go back into the write buffer of a front.
struct Refill {
    sequence: u64,
    unit: u32,
    blocks: Vec<(Cell, Vec<u8>)>,
}

/// A block whose slot has to be written anew, because its program did not succeed.
struct Rewrite {
    logical: u32,
    front: usize,
    data: Vec<u8>,
    slot: u32,
}

pub(super) fn open(
    path: &Path,
    look: bool,
    prepare: impl FnOnce(OpenChannel) -> OpenChannel,
) -> Result<Ssd, SsdError> {
    let bad = |what: String| SsdError::from(DeviceError::BadImage { path: path.to_path_buf(), what });
    let (flash, annex, last) = OpenChannel::open_with(path, look)?;
    let host_crashed = last.host_crashed;
    if annex.bytes == 0 {
        let what = "an open-channel device, not a conventional or FDP drive; 'weft flash create --presentation \
                    conventional' makes a drive";
        return Err(bad(what.into()));
    }
    let setup = SsdSetup::decode(&annex.made_from, flash.setup().clone())
        .map_err(|what| bad(format!("{what}; restore the image, or use the program that wrote it")))?;
    let image = flash.image().ok_or_else(|| bad("no image".into()))?.clone();
    let mut protected = Protected::new(&setup, image.clone());
    if annex != Protected::annex(&setup) {
        return Err(bad(
            "the parts of the drive do not have the size that it needs; restore the image".into()
        ));
    }
    let kept = protected.state(&setup)?;
    let (events, reallocated) = protected.events()?;
    let table = protected.units()?;
    let shape = flash.shape();
    let per_unit = (setup.unit_luns() * shape.planes) as usize;
    let fits = |block: &u32| *block == NO_BLOCK || *block < shape.blocks_per_plane;
    let Some(table) = table.filter(|t| t.len().is_multiple_of(per_unit.max(1)) && t.iter().all(fits)) else {
        let what = "no copy of the table of reclaim units is whole, or the making of the drive was interrupted; restore \
                    the image, or make a new one";
        return Err(bad(what.into()));
    };
    image.begin_session()?;
    let media = FlashMedia::restore(&setup, prepare(flash), table, protected)?;
    let sequence = kept.counts[0];
    let reallocated = reallocated.max(kept.counts[1]);
    let (units, cells, rewrites) = Default::default();
    let mut recovery =
        Recovery { media, units, cells, sequence, look, host_crashed, rewrites, erases: 0, slots_erased: 0 };
    recovery.media.events = Events::restore(events, reallocated);
    let closed_with = kept.counts[MAP_CHECK].checked_sub(1).filter(|_| last.closed);
    let mapper = recovery.map(&setup, |found| {
        let is_right = closed_with.is_none_or(|check| check == map_check(found.iter().copied()));
        let what = "the entries of slots, cells or trims make another map than the one that the drive was closed with: they are \
                    damaged; restore the image from a copy";
        if is_right { Ok(()) } else { Err(bad(what.into())) }
    })?;
    let mut state = State::new(&setup, mapper, recovery.media);
    state.count_on(kept);
    state.before.counts.erases += recovery.erases;
    state.before.counts.erased += recovery.slots_erased;
    let counters = state.media.flash.counters();
    let slots = counters.pages_programmed * u64::from(state.media.slots_per_page);
    state.media.media_bytes = slots * BLOCK_BYTES as u64;
    state.media.erased_bytes = counters.blocks_erased * shape.block_bytes();
    state.before.slots = slots + state.media.slots_buffered();
    if look {
        state.media.protected = None;
        state.look = true;
    } else {
        state.media.now = state.media.flash.now().0;
        restore_reserve(&mut state)?;
        rewrite(&mut state, recovery.rewrites)?;
        state.keep()?;
        image.has_opened();
    }
    Ok(Ssd::assemble(&setup, state))
}

/// Cleans until as many units are free as the drive keeps in reserve: when power goes in the middle of cleaning again and
/// again, each time may leave one less.
fn restore_reserve(state: &mut State) -> Result<(), SsdError> {
    let wanted = state.mapper.setup().reserve_blocks;
    loop {
        match state.mapper.free_up(&mut state.media, wanted) {
            Err(GcError::OutOfSpace { .. }) if state.evacuate()? => {}
            Ok(_) | Err(GcError::OutOfSpace { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes blocks anew whose program did not succeed. As long as there is no room for them they stay in the drive's memory.
fn rewrite(state: &mut State, rewrites: Vec<Rewrite>) -> Result<(), SsdError> {
    state.media.rewriting = true;
    for Rewrite { logical, front, data, slot } in rewrites {
        // Cleaning for one of the others may have moved it.
        if state.mapper.slot_of(logical) != Some(slot) {
            continue;
        }
        state.media.incoming = data;
        match state.mapper.write(&mut state.media, logical, front) {
            Ok(_) => state.before.rewritten += 1,
            Err(GcError::OutOfSpace { .. }) => continue,
            Err(error) => return Err(error.into()),
        }
        state.media.forget_rescued(slot);
    }
    state.write_back()
}

impl Recovery {
    /// The page map. `check` sees each slot that is mapped with its logical block, in the order of these, before anything is erased.
    fn map(
        &mut self,
        setup: &SsdSetup,
        check: impl FnOnce(&[(u32, u32)]) -> Result<(), SsdError>,
    ) -> Result<PageMapper, SsdError> {
        self.cells = self.protected()?.cells()?;
        self.sequence = self.cells.iter().map(|cell| cell.tag.sequence).fold(self.sequence, u64::max);
        for unit in 0..self.media.units() {
            let found = self.look_at(unit)?;
            self.units.push(found);
        }
        let mapper_setup = setup.mapper(self.media.units())?;
        let newest = self.newest(mapper_setup.pages)?;
        check(&newest)?;
        let open = self.open_units();
        self.clean(&open)?;
        let blocks: Vec<RestoredBlock> = self
            .units
            .iter()
            .enumerate()
            .map(|(number, unit)| RestoredBlock {
                filled: unit.programs * self.media.slots_per_program + unit.buffered,
                erases: unit.erases,
                front: unit.last.map_or(0, |(_, front)| front),
                bad: unit.given_up || unit.failed,
                open: open.contains(&(number as u32)),
            })
            .collect();
        let mapper = PageMapper::restore::<FlashError>(mapper_setup, &blocks, newest)?;
        let sequence = self.sequence;
        if let Some(protected) = &mut self.media.protected {
            protected.sequence = sequence;
        }
        Ok(mapper)
    }

    fn protected(&self) -> Result<&Protected, SsdError> {
        let none = || SsdError::BadSetup("the drive is not in an image".into());
        self.media.protected.as_deref().ok_or_else(none)
    }

    /// How far the blocks of a unit are programmed, and whether they agree.
    fn look_at(&self, number: u32) -> Result<Unit, FlashError> {
        let Some(blocks) = self.media.blocks_of(number) else {
            return Ok(Unit { given_up: true, ..Unit::default() });
        };
        let planes = blocks.len() as u32 / self.media.width;
        let mut unit = Unit::default();
        let mut counts = Vec::new();
        for (at, block) in (0..).zip(blocks) {
            let info = self.media.flash.block_info(block)?;
            unit.ragged |= info.state == BlockState::EraseIncomplete;
            unit.failed |= info.state.is_bad();
            unit.erases = unit.erases.max(info.erases);
            let lun = at / planes;
            counts.push((lun, info.programmed));
            if info.programmed > 0 {
                unit.programs = unit.programs.max((info.programmed - 1) * self.media.width + lun + 1);
            }
        }
        let width = self.media.width;
        unit.ragged |= counts.iter().any(|(lun, count)| *count != (unit.programs + width - 1 - lun) / width);
        Ok(unit)
    }

    fn unit_of(&self, slot: u32) -> Option<&Unit> {
        self.units.get((slot / self.media.slots_per_unit) as usize)
    }

    /// Whether a slot is among those that are programmed, torn and failed ones included.
    fn is_programmed(&self, slot: u32) -> bool {
        self.unit_of(slot).is_some_and(|unit| {
            slot % self.media.slots_per_unit < unit.programs * self.media.slots_per_program
        })
    }

    /// Whether the place that a cell was meant for is as it was then.
    fn is_in_place(&self, cell: &Cell) -> Result<bool, FlashError> {
        let alive = self.unit_of(cell.slot).is_some_and(|unit| !unit.given_up);
        Ok(alive && self.media.life_at(cell.slot)? == cell.life)
    }

    /// By unit: the largest number of what is programmed in it, or was about to be.
    fn last_numbers(&self) -> Result<Vec<u64>, FlashError> {
        let mut last: Vec<u64> =
            self.units.iter().map(|unit| unit.last.map_or(0, |(sequence, _)| sequence)).collect();
        for cell in &self.cells {
            if self.is_programmed(cell.slot) && self.is_in_place(cell)? {
                let number = &mut last[(cell.slot / self.media.slots_per_unit) as usize];
                *number = cell.tag.sequence.max(*number);
            }
        }
        Ok(last)
    }

    /// Puts back into the write buffer what has its place right behind what is programmed in a unit. Returns what was put
    /// back, by slot.
    fn refill_buffers(&mut self) -> Result<Vec<(u32, Tag)>, SsdError> {
        let (per_program, per_unit) = (self.media.slots_per_program, self.media.slots_per_unit);
        let last = self.last_numbers()?;
        // By unit and place in the program unit.
        let mut groups: BTreeMap<u32, BTreeMap<u32, Cell>> = BTreeMap::new();
        for cell in &self.cells {
            let Some(unit) = self.unit_of(cell.slot) else { continue };
            let program = cell.slot % per_unit / per_program;
            let is_next =
                program == unit.programs && cell.tag.sequence > last[(cell.slot / per_unit) as usize];
            if !is_next || unit.ragged || unit.failed || !self.is_in_place(cell)? {
                continue;
            }
            let group = groups.entry(cell.slot / per_unit).or_default();
            let known = group.entry(cell.slot % per_program).or_insert(*cell);
            if known.tag.sequence < cell.tag.sequence {
                *known = *cell;
            }
        }
        let mut buffers: BTreeMap<usize, Refill> = BTreeMap::new();
        for (unit, group) in groups {
            let mut blocks: Vec<(Cell, Vec<u8>)> = Vec::new();
            for (wanted, (place, cell)) in (0..).zip(group) {
                let follows = blocks.last().is_none_or(|(last, _)| {
                    last.tag.front == cell.tag.front && last.tag.sequence < cell.tag.sequence
                });
                let data = self.protected()?.data_of(&cell)?;
                let Some(data) = data.filter(|_| follows && place == wanted) else { break };
                blocks.push((cell, data));
            }
            let Some((last, _)) = blocks.last() else { continue };
            let (front, sequence) = (last.tag.front, last.tag.sequence);
            if buffers.get(&front).is_none_or(|other| other.sequence < sequence) {
                buffers.insert(front, Refill { sequence, unit, blocks });
            }
        }
        let mut buffered = Vec::new();
        let fronts = self.media.moved_slots.len();
        for (front, Refill { sequence, unit, blocks }) in
            buffers.into_iter().filter(|(front, _)| *front < fronts)
        {
            let (first, count) = (blocks[0].0.slot, blocks.len() as u32);
            buffered.extend(blocks.iter().map(|(cell, _)| (cell.slot, cell.tag)));
            let blocks = blocks.into_iter().map(|(cell, data)| (cell.tag, cell.cell, data)).collect();
            self.media.refill(front, first, blocks);
            let found = &mut self.units[unit as usize];
            found.last = Some((sequence, front));
            if count == per_program && !self.look {
                // Power went before the program began.
                let outcome = self.media.program_buffer(front)?.0;
                let found = &mut self.units[unit as usize];
                found.programs += 1;
                found.failed |= outcome == Outcome::Bad;
                continue;
            }
            found.buffered = count;
        }
        Ok(buffered)
    }

    /// The slots that hold the last version of a logical block.
    fn newest(&mut self, pages: u32) -> Result<Vec<(u32, u32)>, SsdError> {
        let nothing = Tag { logical: 0, sequence: 0, front: 0, lost: false };
        let mut newest = vec![(nothing, Place::Nowhere); pages as usize];
        for unit in 0..self.units.len() as u32 {
            self.read_unit(unit, &mut newest)?;
        }
        if self.host_crashed && !self.look {
            // What is programmed from here on must not be found under an entry that was dropped.
            self.media.flash.sync()?;
        }
        for (slot, tag) in self.refill_buffers()? {
            keep_newer(&mut newest, tag, Place::Slot(slot));
        }
        self.cells.sort_by_key(|cell| cell.tag.sequence);
        for at in 0..self.cells.len() {
            let cell = self.cells[at];
            let known = newest.get(cell.tag.logical as usize).map(|(tag, _)| tag.sequence);
            if known.is_some_and(|sequence| sequence < cell.tag.sequence)
                && self.protected()?.data_of(&cell)?.is_some()
            {
                keep_newer(&mut newest, cell.tag, Place::Cell(at));
            }
        }
        let trims = self.protected()?.trims(pages)?;
        // The host may have lost the last copy of what was in a cell, after other data was programmed in its slot.
        let (mut in_cells, mut taken) = (HashSet::new(), HashSet::new());
        for (_, place) in &newest {
            if let Place::Cell(at) = place {
                in_cells.insert(self.cells[*at].slot);
            }
        }
        for (_, place) in newest.iter().filter(|_| !in_cells.is_empty()) {
            if let Place::Slot(slot) = place
                && in_cells.contains(slot)
            {
                taken.insert(*slot);
            }
        }
        let mut valid = Vec::new();
        for (trim, (tag, place)) in trims.into_iter().zip(newest) {
            self.sequence = self.sequence.max(trim).max(tag.sequence);
            let slot = match place {
                Place::Nowhere => continue,
                _ if tag.sequence <= trim => continue,
                Place::Slot(slot) => Some(slot),
                Place::Cell(at) => self.rescue(self.cells[at], &taken)?,
            };
            if tag.lost {
                self.media.lost.insert(tag.logical);
            }
            if let Some(slot) = slot {
                self.units[(slot / self.media.slots_per_unit) as usize].valid += 1;
                valid.push((slot, tag.logical));
            }
        }
        Ok(valid)
    }

    /// Reads the slot entries of a unit.
    fn read_unit(&mut self, number: u32, newest: &mut [(Tag, Place)]) -> Result<(), SsdError> {
        let unit = &self.units[number as usize];
        let filled = unit.programs * self.media.slots_per_program;
        if unit.given_up {
            return Ok(());
        }
        let first = number * self.media.slots_per_unit;
        let shape = self.media.flash.shape();
        // By block: its life, and its programmed pages.
        let mut lives: HashMap<u64, (Life, u32)> = HashMap::new();
        for block in self.media.blocks_of(number).unwrap_or_default() {
            let info = self.media.flash.block_info(block)?;
            lives.insert(shape.block_index(block), (life_of(&shape, block, info.erases), info.programmed));
        }
        let known = |slot: u32| lives[&shape.block_index(self.media.place(slot).page.block)];
        let mut tags = self.protected()?.slots(first, filled, |slot| known(slot).0)?;
        if self.host_crashed {
            // The host may have lost the page and kept its entry.
            for (slot, tag) in (first..).zip(&mut tags) {
                *tag = tag.filter(|_| self.media.place(slot).page.page < known(slot).1);
            }
            if !self.look {
                self.forget_lost(first, &tags)?;
            }
        }
        let mut last = None;
        for (slot, tag) in (first..).zip(tags) {
            let Some(tag) = tag else { continue };
            last = last.max(Some((tag.sequence, tag.front)));
            self.sequence = self.sequence.max(tag.sequence);
            keep_newer(newest, tag, Place::Slot(slot));
        }
        let unit = &mut self.units[number as usize];
        unit.last = unit.last.max(last);
        Ok(())
    }

    /// Entries of programs that the host has lost, or of lives of their blocks: a program that is interrupted there later, in a life that
    /// has the same number, would leave these in its place. All of a unit but those that are `kept`.
    fn forget_lost(&self, first: u32, kept: &[Option<Tag>]) -> Result<(), SsdError> {
        let protected = self.protected()?;
        let count = self.media.slots_per_unit;
        let is_kept = |at: u32| kept.get(at as usize).is_some_and(Option::is_some);
        let mut at = 0;
        while at < count {
            let end = (at..count).find(|at| is_kept(*at)).unwrap_or(count);
            if end > at {
                protected.forget(first + at, end - at)?;
            }
            at = end + 1;
        }
        Ok(())
    }

    /// Keeps a block that was to be programmed when power went, and has it written anew. Returns the slot that it is read from.
    fn rescue(&mut self, cell: Cell, taken: &HashSet<u32>) -> Result<Option<u32>, SsdError> {
        let data = self.protected()?.data_of(&cell)?.unwrap_or_default();
        let Tag { logical, front, sequence, .. } = cell.tag;
        let front = front.min(self.media.moved_slots.len() - 1);
        let in_place =
            self.is_programmed(cell.slot) && !taken.contains(&cell.slot) && self.is_in_place(&cell)?;
        if !(in_place && self.media.rescue(cell.slot, cell.cell, data.clone())) {
            self.media.keep_alone(logical, front, cell.cell, data);
            return Ok(None);
        }
        let unit = &mut self.units[(cell.slot / self.media.slots_per_unit) as usize];
        unit.last = unit.last.max(Some((sequence, front)));
        self.rewrites.push(Rewrite { logical, front, data, slot: cell.slot });
        Ok(Some(cell.slot))
    }

    /// The units that fronts go on in: those of the write buffer, otherwise the last one that is not full.
    fn open_units(&self) -> HashSet<u32> {
        let per_unit = self.media.slots_per_unit;
        let closed = self.media.protected.as_ref().map(|protected| &protected.closed);
        let mut open: BTreeMap<usize, (bool, u64, u32)> = BTreeMap::new();
        for (number, unit) in (0..).zip(&self.units) {
            let Some((sequence, front)) = unit.last else { continue };
            let full = unit.programs * self.media.slots_per_program + unit.buffered >= per_unit;
            let is_closed = closed.and_then(|closed| closed.get(front)).is_some_and(|last| sequence <= *last);
            let goes_on = !(unit.ragged || unit.failed || unit.given_up || is_closed);
            // A crash of the host may keep that a unit is closed and lose the program that it was closed with.
            if full || !(goes_on || unit.buffered > 0) {
                continue;
            }
            let this = (unit.buffered > 0, sequence, number);
            let known = open.entry(front).or_insert(this);
            *known = (*known).max(this);
        }
        open.into_values().map(|(.., unit)| unit).collect()
    }

    /// Erases units without anything valid, and so those whose erase was interrupted.
    fn clean(&mut self, open: &HashSet<u32>) -> Result<(), SsdError> {
        for number in 0..self.units.len() as u32 {
            let unit = &self.units[number as usize];
            if unit.failed {
                self.media.failing.insert(number);
            }
            let used = unit.programs > 0 || unit.ragged || unit.failed;
            if self.look || unit.given_up || !used || unit.valid > 0 || open.contains(&number) {
                continue;
            }
            let filled = u64::from(unit.programs * self.media.slots_per_program);
            let outcome = self.media.erase(number)?;
            let unit = &mut self.units[number as usize];
            let erases = unit.erases + 1;
            *unit = Unit { given_up: outcome == Outcome::Bad, erases, ..Unit::default() };
            self.erases += 1;
            self.slots_erased += filled;
        }
        Ok(())
    }
}

fn keep_newer(newest: &mut [(Tag, Place)], tag: Tag, place: Place) {
    if let Some(known) = newest.get_mut(tag.logical as usize)
        && known.0.sequence < tag.sequence
    {
        *known = (tag, place);
    }
}
