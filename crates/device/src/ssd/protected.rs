//! What a drive in an image keeps when power goes: the memory behind its capacitors. It lies in the annex of the image.
//!
//! ```text
//!  unit table, twice | state, twice | events | trims: 8 bytes a block | slots: 16 bytes a slot | cells
//! ```
//!
//! - The **unit table** says which erase blocks make each reclaim unit.
//! - The **state** is what the drive has counted.
//! - A **slot** entry says which logical block was programmed there, and its number. Every write, move and trim takes the
//!   next number; the largest one of a logical block counts.
//! - A **trim** entry has the number of the last trim of a logical block.
//! - **Cells** hold what waits in the write buffer. A block is in a cell before the drive acknowledges it, and its slot entry
//!   is written after its page is programmed, so it is in one of the two at any moment.
//!
//! Whatever is updated in place is a few bytes with a checksum, or there twice. Writes go to the file in the order in which
//! the drive makes them, so they survive the end of the process. A crash of the host keeps any of those that were not
//! synced. So a cell is used again only after a sync that came after its page was programmed; the flash itself syncs
//! before each erase.

use super::fdp::{EVENTS_MAX, FdpEvent};
use super::setup::SsdSetup;
use crate::nand::{Annex, FlashImage, FlashShape};
use crate::{DeviceError, nand::BlockAddr};
use std::sync::Arc;
use weft_core::BLOCK_BYTES;
use weft_core::checksum::{crc32c, crc32c_append};
use weft_core::codec::{Decode, Reader, WriteFields, put};

/// Largest number of a write, move or trim.
const SEQUENCE_MAX: u64 = (1 << 48) - 1;
/// The erase block of a unit that was given up.
pub(super) const NO_BLOCK: u32 = u32::MAX;
const AREA_ALIGN: u64 = 4096;
const EVENT_BYTES: u64 = 40;
const TRIM_BYTES: u64 = 8;
const SLOT_BYTES: u64 = 16;
const CELL_HEAD_BYTES: u64 = 64;
/// Cells beside those that the open program units of all fronts can take.
const CELLS_MIN: u64 = 64;
const CELLS_MAX: u64 = 4096;

/// What a block was written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag {
    pub logical: u32,
    pub sequence: u64,
    pub front: usize,
    /// The data could not be read when it was moved.
    pub lost: bool,
}

impl Tag {
    fn word(&self) -> u64 {
        self.sequence << 16 | (self.front as u64) << 1 | u64::from(self.lost)
    }

    fn of(word: u64, logical: u32) -> Tag {
        Tag { logical, sequence: word >> 16, front: (word >> 1 & 0x7fff) as usize, lost: word & 1 == 1 }
    }
}

/// A life of a place in flash: an entry counts while its block has not been erased since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Life {
    pub block: u64,
    pub erases: u32,
}

/// A block in the write buffer, as it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub cell: u32,
    pub tag: Tag,
    pub slot: u32,
    pub life: Life,
    data_crc: u32,
}

/// Where everything lies in the annex.
#[derive(Clone, Copy, Debug)]
struct Areas {
    units: [u64; 2],
    state: [u64; 2],
    events: u64,
    trims: u64,
    slots: u64,
    heads: u64,
    data: u64,
    bytes: u64,
    units_bytes: u64,
    state_words: usize,
    cells: u32,
}

impl Areas {
    /// For the most reclaim units that flash without bad blocks has.
    fn new(setup: &SsdSetup) -> Areas {
        let shape = setup.flash.shape();
        let fronts = setup.fronts().len() as u64;
        let per_program = u64::from(slots_per_program(&shape));
        let slots = shape.pages() * u64::from(shape.page_bytes) / BLOCK_BYTES as u64;
        let cells = (slots / 8).clamp(CELLS_MIN, CELLS_MAX) + 4 * fronts * per_program;
        let units_bytes = 16 + shape.blocks() * 4;
        let state_words = STATE_WORDS + setup.handles.len().max(1) + 2 * fronts as usize;
        let mut end = 0u64;
        let mut area = |bytes: u64| {
            let begin = end;
            end = (end + bytes).next_multiple_of(AREA_ALIGN);
            begin
        };
        let state_bytes = state_words as u64 * 8 + 16;
        Areas {
            units: [area(units_bytes), area(units_bytes)],
            state: [area(state_bytes), area(state_bytes)],
            events: area(EVENTS_MAX as u64 * EVENT_BYTES),
            trims: area(slots * TRIM_BYTES),
            slots: area(slots * SLOT_BYTES),
            heads: area(cells * CELL_HEAD_BYTES),
            data: area(cells * BLOCK_BYTES as u64),
            bytes: end,
            units_bytes,
            state_words,
            cells: cells as u32,
        }
    }
}

/// 4 KiB blocks of one page in every plane.
pub(super) fn slots_per_program(shape: &FlashShape) -> u32 {
    shape.page_bytes / BLOCK_BYTES as u32 * shape.planes
}

/// Words of the state before those of handles and fronts.
const STATE_WORDS: usize = 16;

/// Of these words, that of the [check of the map](map_check) plus one, with which the drive was closed; 0 when it was not.
pub(super) const MAP_CHECK: usize = 8;

/// What the drive has counted, as the image keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct KeptState {
    /// See [`KeptState::words`] for their order.
    pub counts: [u64; STATE_WORDS],
    pub host_bytes: Vec<u64>,
    pub moved_slots: Vec<u64>,
    /// By front: units that hold nothing later than this number are not filled further.
    pub closed: Vec<u64>,
}

impl KeptState {
    fn words(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().chain(&self.host_bytes).chain(&self.moved_slots).chain(&self.closed).copied()
    }

    fn of(words: &[u64], handles: usize, fronts: usize) -> KeptState {
        let (counts, rest) = words.split_at(STATE_WORDS);
        let (host_bytes, rest) = rest.split_at(handles.max(1));
        let (moved_slots, closed) = rest.split_at(fronts);
        let mut state = KeptState {
            host_bytes: host_bytes.to_vec(),
            moved_slots: moved_slots.to_vec(),
            closed: closed.to_vec(),
            ..KeptState::default()
        };
        state.counts.copy_from_slice(counts);
        state
    }
}

/// The protected memory of a drive that runs.
#[derive(Debug)]
pub(super) struct Protected {
    pub image: Arc<FlashImage>,
    areas: Areas,
    /// The next write, move or trim gets the number after this one.
    pub sequence: u64,
    units_generation: u64,
    state_generation: u64,
    /// Events so far.
    pub events: u64,
    /// By front: see [`KeptState::closed`].
    pub closed: Vec<u64>,
    live: Vec<bool>,
    /// By cell: the syncs before it was given up.
    given_up: Vec<u64>,
    syncs: u64,
    next_cell: u32,
    /// The last words of the state, so that what has not changed is not written again.
    written: Vec<u64>,
}

impl Protected {
    /// That of a new drive with this setup, in this image.
    pub fn new(setup: &SsdSetup, image: Arc<FlashImage>) -> Protected {
        let areas = Areas::new(setup);
        let cells = areas.cells as usize;
        Protected {
            image,
            areas,
            sequence: 0,
            units_generation: 0,
            state_generation: 0,
            events: 0,
            closed: vec![0; setup.fronts().len()],
            live: vec![false; cells],
            given_up: vec![0; cells],
            syncs: 0,
            next_cell: 0,
            written: Vec::new(),
        }
    }

    /// What the image's header has to say of a drive.
    pub fn annex(setup: &SsdSetup) -> Annex {
        Annex { made_from: setup.encode(), bytes: Areas::new(setup).bytes }
    }

    /// The number of the next write, move or trim.
    pub fn next_sequence(&mut self) -> u64 {
        self.sequence = (self.sequence + 1).min(SEQUENCE_MAX);
        self.sequence
    }

    /// Puts a block into a cell.
    pub fn put(&mut self, tag: Tag, slot: u32, life: Life, data: &[u8]) -> Result<u32, DeviceError> {
        let cell = self.free_cell()?;
        self.image.write_annex(self.areas.data + u64::from(cell) * BLOCK_BYTES as u64, data)?;
        let mut head = Vec::with_capacity(CELL_HEAD_BYTES as usize);
        put(&mut head, &[&tag.word(), &tag.logical, &slot, &life.block, &life.erases, &crc32c(data)]);
        head.put_u32(crc32c_append(crc32c(&head), &cell.to_le_bytes()));
        self.image.write_annex(self.areas.heads + u64::from(cell) * CELL_HEAD_BYTES, &head)?;
        self.live[cell as usize] = true;
        Ok(cell)
    }

    /// A cell that nothing needs, not even after a crash of the host.
    fn free_cell(&mut self) -> Result<u32, DeviceError> {
        for _ in 0..self.areas.cells {
            let cell = self.next_cell;
            self.next_cell = (cell + 1) % self.areas.cells;
            if self.live[cell as usize] {
                continue;
            }
            if self.given_up[cell as usize] == self.syncs {
                self.image.prepare_erase()?;
                self.synced();
            }
            return Ok(cell);
        }
        let source = std::io::Error::other("the write buffer is full of blocks whose flash failed");
        Err(DeviceError::Io { path: self.image.path().to_path_buf(), source })
    }

    /// Cells that hold nothing.
    pub fn free_cells(&self) -> u32 {
        self.live.iter().filter(|live| !**live).count() as u32
    }

    /// Everything written so far has been synced.
    pub fn synced(&mut self) {
        self.syncs += 1;
    }

    /// What was in a cell is in flash now, or not wanted any more.
    pub fn give_up(&mut self, cell: u32) {
        self.live[cell as usize] = false;
        self.given_up[cell as usize] = self.syncs;
    }

    /// The cell has what is in the write buffer.
    pub fn keep_cell(&mut self, cell: u32) {
        self.live[cell as usize] = true;
    }

    /// Every cell that holds a block, whether it still counts or not.
    pub fn cells(&self) -> Result<Vec<Cell>, DeviceError> {
        let heads = self.image.read_annex(self.areas.heads, u64::from(self.areas.cells) * CELL_HEAD_BYTES)?;
        let heads = (0..).zip(heads.chunks_exact(CELL_HEAD_BYTES as usize));
        Ok(heads.filter_map(|(cell, head)| decode_head(cell, head)).collect())
    }

    /// The block in a cell; `None` when the cell is not whole.
    pub fn data_of(&self, cell: &Cell) -> Result<Option<Vec<u8>>, DeviceError> {
        let at = self.areas.data + u64::from(cell.cell) * BLOCK_BYTES as u64;
        let data = self.image.read_annex(at, BLOCK_BYTES as u64)?;
        Ok((crc32c(&data) == cell.data_crc).then_some(data))
    }

    /// Notes what was programmed into neighbouring slots, each with the life of its place.
    pub fn programmed(&self, first: u32, tags: &[(Tag, Life)]) -> Result<(), DeviceError> {
        let mut bytes = Vec::with_capacity(tags.len() * SLOT_BYTES as usize);
        for (slot, (tag, life)) in (first..).zip(tags) {
            bytes.put_u64(tag.word());
            bytes.put_u32(tag.logical);
            bytes.put_u32(slot_crc(tag, slot, *life));
        }
        self.image.write_annex(self.areas.slots + u64::from(first) * SLOT_BYTES, &bytes)
    }

    /// Forgets what was noted of neighbouring slots.
    pub fn forget(&self, first: u32, count: u32) -> Result<(), DeviceError> {
        let at = self.areas.slots + u64::from(first) * SLOT_BYTES;
        let mut noted = self.image.read_annex(at, u64::from(count) * SLOT_BYTES)?;
        // Most have never been written, and take no room.
        if noted.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        noted.fill(0);
        self.image.write_annex(at, &noted)
    }

    /// What the slots of a unit hold, by slot from `first` on; entries of a former life are left out.
    pub fn slots(
        &self,
        first: u32,
        count: u32,
        life: impl Fn(u32) -> Life,
    ) -> Result<Vec<Option<Tag>>, DeviceError> {
        let at = self.areas.slots + u64::from(first) * SLOT_BYTES;
        let bytes = self.image.read_annex(at, u64::from(count) * SLOT_BYTES)?;
        let entry = |(slot, bytes): (u32, &[u8])| {
            let mut r = Reader::new(bytes);
            let (word, logical, crc) = (r.u64().ok()?, r.u32().ok()?, r.u32().ok()?);
            let tag = Tag::of(word, logical);
            (tag.sequence > 0 && crc == slot_crc(&tag, slot, life(slot))).then_some(tag)
        };
        Ok((first..).zip(bytes.chunks_exact(SLOT_BYTES as usize)).map(entry).collect())
    }

    /// Notes that neighbouring logical blocks were trimmed.
    pub fn trimmed(&mut self, first: u32, count: u32) -> Result<(), DeviceError> {
        let sequence = self.next_sequence();
        let mut bytes = Vec::with_capacity(count as usize * TRIM_BYTES as usize);
        for logical in first..first + count {
            bytes.put_u64(sequence << 16 | u64::from(trim_check(logical, sequence)));
        }
        self.image.write_annex(self.areas.trims + u64::from(first) * TRIM_BYTES, &bytes)
    }

    /// By logical block: the number of its last trim, 0 without one.
    pub fn trims(&self, count: u32) -> Result<Vec<u64>, DeviceError> {
        let bytes = self.image.read_annex(self.areas.trims, u64::from(count) * TRIM_BYTES)?;
        let trim = |(logical, bytes): (u32, &[u8])| {
            let word = Reader::new(bytes).u64().unwrap_or(0);
            let sequence = word >> 16;
            if word as u16 == trim_check(logical, sequence) { sequence } else { 0 }
        };
        Ok((0..).zip(bytes.chunks_exact(TRIM_BYTES as usize)).map(trim).collect())
    }

    /// Keeps the unit table. It is durable before anything is programmed by it.
    pub fn keep_units(&mut self, blocks: &[u32]) -> Result<(), DeviceError> {
        self.units_generation += 1;
        let mut bytes = Vec::with_capacity(self.areas.units_bytes as usize);
        put(&mut bytes, &[&self.units_generation, &(blocks.len() as u32), &0u32]);
        blocks.iter().for_each(|block| bytes.put_u32(*block));
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        self.image.write_annex(self.areas.units[(self.units_generation % 2) as usize], &bytes)?;
        self.image.prepare_erase()
    }

    /// The unit table that was kept last; `None` when neither copy is whole.
    pub fn units(&mut self) -> Result<Option<Vec<u32>>, DeviceError> {
        let mut newest = None;
        for copy in self.areas.units {
            newest = newest.max(decode_units(self.image.read_annex(copy, self.areas.units_bytes)?));
        }
        let Some((generation, blocks)) = newest else { return Ok(None) };
        self.units_generation = generation;
        Ok(Some(blocks))
    }

    /// Keeps what was counted, if it has changed.
    pub fn keep_state(&mut self, state: &KeptState) -> Result<(), DeviceError> {
        if state.words().eq(self.written.iter().copied()) {
            return Ok(());
        }
        self.written.clear();
        self.written.extend(state.words());
        debug_assert_eq!(self.written.len(), self.areas.state_words);
        self.state_generation += 1;
        let mut bytes = Vec::with_capacity(self.areas.state_words * 8 + 16);
        bytes.put_u64(self.state_generation);
        self.written.iter().for_each(|word| bytes.put_u64(*word));
        let crc = u64::from(crc32c(&bytes));
        bytes.put_u64(crc);
        self.image.write_annex(self.areas.state[(self.state_generation % 2) as usize], &bytes)
    }

    /// What was counted; zeros before the first command.
    pub fn state(&mut self, setup: &SsdSetup) -> Result<KeptState, DeviceError> {
        let mut newest = None;
        for copy in self.areas.state {
            let bytes = self.image.read_annex(copy, self.areas.state_words as u64 * 8 + 16)?;
            newest = newest.max(decode_state(&bytes));
        }
        let (generation, words) = newest.unwrap_or_else(|| (0, vec![0; self.areas.state_words]));
        self.state_generation = generation;
        let state = KeptState::of(&words, setup.handles.len(), self.closed.len());
        self.closed.clone_from(&state.closed);
        Ok(state)
    }

    /// Keeps an event, and how many of its kind there were with it.
    pub fn keep_event(&mut self, event: &FdpEvent, reallocated: u64) -> Result<(), DeviceError> {
        self.events += 1;
        let mut bytes = Vec::with_capacity(EVENT_BYTES as usize);
        let (kind, handle, count, at) = match *event {
            FdpEvent::MediaReallocated { handle: Some(handle), blocks, at_ns } => (1, handle, blocks, at_ns),
            FdpEvent::MediaReallocated { handle: None, blocks, at_ns } => (2, 0, blocks, at_ns),
            FdpEvent::UnitNotFull { handle, left_bytes } => (3, handle, 0, left_bytes),
            FdpEvent::InvalidPlacement { handle } => (4, handle, 0, 0),
        };
        let kind = kind << 16 | u32::from(handle);
        put(&mut bytes, &[&self.events, &reallocated, &kind, &count, &at]);
        let crc = u64::from(crc32c(&bytes));
        bytes.put_u64(crc);
        let place = (self.events - 1) % EVENTS_MAX as u64;
        self.image.write_annex(self.areas.events + place * EVENT_BYTES, &bytes)
    }

    /// The events that are kept, in their order, and how many were of media reallocated with the last one.
    pub fn events(&mut self) -> Result<(Vec<FdpEvent>, u64), DeviceError> {
        let bytes = self.image.read_annex(self.areas.events, EVENTS_MAX as u64 * EVENT_BYTES)?;
        let mut found: Vec<(u64, u64, FdpEvent)> =
            bytes.chunks_exact(EVENT_BYTES as usize).filter_map(decode_event).collect();
        found.sort_by_key(|(number, ..)| *number);
        let (number, reallocated) = found.last().map_or((0, 0), |(number, count, _)| (*number, *count));
        self.events = number;
        Ok((found.into_iter().map(|(.., event)| event).collect(), reallocated))
    }
}

/// What a map is known by: each slot that is mapped, with its logical block, in the order of these.
pub(super) fn map_check(mapped: impl Iterator<Item = (u32, u32)>) -> u64 {
    let add = |crc, (slot, logical): (u32, u32)| {
        crc32c_append(crc, &(u64::from(logical) | u64::from(slot) << 32).to_le_bytes())
    };
    u64::from(mapped.fold(crc32c(&[]), add))
}

fn trim_check(logical: u32, sequence: u64) -> u16 {
    (crc32c_append(crc32c(&sequence.to_le_bytes()), &logical.to_le_bytes()) as u16).wrapping_add(1)
}

fn slot_crc(tag: &Tag, slot: u32, life: Life) -> u32 {
    let mut bytes = [0; 28];
    bytes[..8].copy_from_slice(&tag.word().to_le_bytes());
    bytes[8..12].copy_from_slice(&tag.logical.to_le_bytes());
    bytes[12..16].copy_from_slice(&slot.to_le_bytes());
    bytes[16..24].copy_from_slice(&life.block.to_le_bytes());
    bytes[24..].copy_from_slice(&life.erases.to_le_bytes());
    crc32c(&bytes)
}

fn decode_head(cell: u32, head: &[u8]) -> Option<Cell> {
    let mut r = Reader::new(head);
    let (word, logical, slot) = (r.u64().ok()?, r.u32().ok()?, r.u32().ok()?);
    let life = Life { block: r.u64().ok()?, erases: r.u32().ok()? };
    let data_crc = r.u32().ok()?;
    let covered = crc32c_append(crc32c(&head[..r.position()]), &cell.to_le_bytes());
    let tag = Tag::of(word, logical);
    let whole = r.u32().ok()? == covered && tag.sequence > 0;
    whole.then_some(Cell { cell, tag, slot, life, data_crc })
}

fn decode_units(mut bytes: Vec<u8>) -> Option<(u64, Vec<u32>)> {
    let crc = bytes[12..16].to_vec();
    bytes[12..16].fill(0);
    let mut r = Reader::new(&bytes);
    let (generation, count) = (r.u64().ok()?, r.u32().ok()?);
    r.u32().ok()?;
    let end = (count as usize).checked_mul(4)?.checked_add(16).filter(|end| *end <= bytes.len())?;
    if generation == 0 || crc32c(&bytes[..end]).to_le_bytes() != crc[..] {
        return None;
    }
    Some((generation, u32::get_all(&mut r, count).ok()?))
}

fn decode_state(bytes: &[u8]) -> Option<(u64, Vec<u64>)> {
    let (covered, crc) = bytes.split_at(bytes.len() - 8);
    let mut r = Reader::new(covered);
    let generation = r.u64().ok()?;
    if generation == 0 || u64::from(crc32c(covered)).to_le_bytes() != crc {
        return None;
    }
    let count = covered.len() as u32 / 8 - 1;
    Some((generation, u64::get_all(&mut r, count).ok()?))
}

fn decode_event(bytes: &[u8]) -> Option<(u64, u64, FdpEvent)> {
    let (covered, crc) = bytes.split_at(bytes.len() - 8);
    let mut r = Reader::new(covered);
    let (number, reallocated) = (r.u64().ok()?, r.u64().ok()?);
    let (kind, blocks, at) = (r.u32().ok()?, r.u32().ok()?, r.u64().ok()?);
    if number == 0 || u64::from(crc32c(covered)).to_le_bytes() != crc {
        return None;
    }
    let handle = kind as u16;
    let event = match kind >> 16 {
        1 => FdpEvent::MediaReallocated { handle: Some(handle), blocks, at_ns: at },
        2 => FdpEvent::MediaReallocated { handle: None, blocks, at_ns: at },
        3 => FdpEvent::UnitNotFull { handle, left_bytes: at },
        4 => FdpEvent::InvalidPlacement { handle },
        _ => return None,
    };
    Some((number, reallocated, event))
}

/// The life of a place, given the erases of its block.
pub(super) fn life_of(shape: &FlashShape, block: BlockAddr, erases: u32) -> Life {
    Life { block: shape.block_index(block), erases }
}
