//! The flash below the page map: reclaim units over LUNs, program units that fill in a buffer, spare blocks.

use super::error::SsdError;
use super::fdp::{Events, FdpEvent};
use super::protected::{Life, NO_BLOCK, Protected, Tag, life_of, slots_per_program};
use super::setup::SsdSetup;
use crate::gc::{Media, Outcome, div_rem};
use crate::nand::{
    BlockAddr, Done, FlashError, FlashShape, Keep, LunAddr, OpenChannel, PageAddr, PageProgram,
};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use weft_core::{BLOCK_BYTES, Nanos};

/// A program unit that is being filled.
#[derive(Default, Debug)]
struct Buffer {
    /// Its first slot.
    first: u32,
    filled: u32,
    data: Vec<u8>,
    /// When everything in it is in the drive.
    ready: u64,
    /// Of a drive in an image: what each block was written as, and its cell.
    cells: Vec<(Tag, u32)>,
}

/// A block whose program failed.
#[derive(Debug)]
struct Rescued {
    data: Vec<u8>,
    cell: Option<u32>,
}

/// A block that is in protected memory and has no slot in flash.
#[derive(Debug)]
struct Alone {
    data: Vec<u8>,
    cell: u32,
    front: usize,
}

/// Tries of a read before the page counts as lost.
const READ_TRIES: u32 = 4;

/// A page that was sensed to be moved.
#[derive(Debug)]
struct Sensed {
    /// Its slots divided by those of a page.
    number: u32,
    data: Vec<u8>,
    ready: u64,
    lost: bool,
}

/// Where a slot lies.
pub(super) struct SlotAddr {
    pub page: PageAddr,
    /// The 4 KiB block of the page.
    pub block_in_page: u32,
}

/// Reclaim units made of flash.
#[derive(Debug)]
pub(super) struct FlashMedia {
    pub flash: OpenChannel,
    shape: FlashShape,
    pub keeps_data: bool,
    /// LUNs of a reclaim unit.
    pub width: u32,
    /// 4 KiB blocks of a page and of a program unit.
    pub slots_per_page: u32,
    pub slots_per_program: u32,
    pub slots_per_unit: u32,
    /// Reclaim units that lie side by side.
    rows: u32,
    /// By number: the address of a LUN.
    luns: Vec<LunAddr>,
    /// By reclaim unit, LUN and plane: the erase block in its plane.
    blocks: Vec<u32>,
    /// By LUN and plane: erased blocks that can replace bad ones.
    spares: Vec<Vec<u32>>,
    /// Reclaim units with a block that a program failed in.
    pub failing: HashSet<u32>,
    buffers: Vec<Buffer>,
    sensed: Option<Sensed>,
    /// Pages that were sensed to be moved next.
    ahead: VecDeque<Sensed>,
    /// Logical blocks whose flash was lost.
    pub lost: HashSet<u32>,
    /// Blocks of program units that failed, by slot, until the drive has moved them.
    rescued: HashMap<u32, Rescued>,
    /// By logical block: those that have no slot, until there is room for them.
    alone: BTreeMap<u32, Alone>,
    /// What the drive keeps in its image when power goes.
    pub protected: Option<Box<Protected>>,
    /// What is written was there before the drive was opened.
    pub rewriting: bool,
    handles: usize,
    /// The block that is being written. Cleaning may come before it, so what is moved has a place of its own.
    pub incoming: Vec<u8>,
    moved: Vec<u8>,
    /// When the flash work of the command under way is issued, in nanoseconds.
    pub now: u64,
    /// When the flash had taken the program units that the command under way filled.
    pub taken: u64,
    /// Slots filled, and slots that were padded.
    pub slots_filled: u64,
    pub slots_padded: u64,
    pub media_bytes: u64,
    pub erased_bytes: u64,
    pub moved_slots: Vec<u64>,
    pub events: Events,
}

impl FlashMedia {
    /// The flash of a new drive, and its reclaim units.
    pub fn new(setup: &SsdSetup, flash: OpenChannel) -> Result<(FlashMedia, u32), SsdError> {
        let mut media = FlashMedia::on(setup, flash)?;
        let shape = media.shape;
        media.find_spares()?;
        let least = media.spares.iter().map(Vec::len).min().unwrap_or(0) as u32;
        let Some(per_row) = least.checked_sub(setup.spare_blocks_per_plane).filter(|units| *units > 0) else {
            return Err(SsdError::BadSetup(format!(
                "a plane has {least} good blocks, and {} are kept as spares; keep fewer",
                setup.spare_blocks_per_plane
            )));
        };
        let units = per_row * media.rows;
        for unit in 0..units {
            for lun in 0..media.width {
                for plane in 0..shape.planes {
                    let pool = media.pool(unit, lun, plane);
                    // Each pool has at least `per_row` blocks, one for each of its units.
                    media.blocks.extend(media.spares[pool].pop());
                }
            }
        }
        Ok((media, units))
    }

    /// The flash of a drive with these erase blocks in its units; what `protected` has of its blocks comes later.
    pub fn restore(
        setup: &SsdSetup,
        flash: OpenChannel,
        blocks: Vec<u32>,
        protected: Protected,
    ) -> Result<FlashMedia, SsdError> {
        let mut media = FlashMedia::on(setup, flash)?;
        media.blocks = blocks;
        media.protected = Some(Box::new(protected));
        media.find_spares()?;
        Ok(media)
    }

    fn on(setup: &SsdSetup, flash: OpenChannel) -> Result<FlashMedia, SsdError> {
        let shape = flash.shape();
        let bad = |what: String| Err(SsdError::BadSetup(what));
        if !(shape.page_bytes as usize).is_multiple_of(BLOCK_BYTES) {
            return bad(format!("a page of {} bytes has no whole number of blocks", shape.page_bytes));
        }
        let width = setup.unit_luns();
        if width == 0 || !shape.luns().is_multiple_of(width) {
            return bad(format!(
                "luns_per_unit is {width}, and the drive has {} LUNs; choose a divisor",
                shape.luns()
            ));
        }
        let slots_per_program = slots_per_program(&shape);
        let fronts = setup.fronts().len();
        Ok(FlashMedia {
            keeps_data: flash.setup().keep == Keep::All,
            flash,
            shape,
            width,
            slots_per_page: shape.page_bytes / BLOCK_BYTES as u32,
            slots_per_program,
            slots_per_unit: slots_per_program * shape.pages_per_block * width,
            rows: shape.luns() / width,
            luns: (0..shape.luns()).map(|lun| shape.lun_at(lun)).collect(),
            blocks: Vec::new(),
            spares: Vec::new(),
            failing: HashSet::new(),
            buffers: (0..fronts).map(|_| Buffer::default()).collect(),
            sensed: None,
            ahead: VecDeque::new(),
            lost: HashSet::new(),
            rescued: HashMap::new(),
            alone: BTreeMap::new(),
            protected: None,
            rewriting: false,
            handles: setup.handles.len(),
            incoming: Vec::new(),
            moved: Vec::new(),
            now: 0,
            taken: 0,
            slots_filled: 0,
            slots_padded: 0,
            media_bytes: 0,
            erased_bytes: 0,
            moved_slots: vec![0; fronts],
            events: Events::default(),
        })
    }

    /// Finds the good blocks that are in no unit. The last of a pool is taken first, so the lists go down.
    fn find_spares(&mut self) -> Result<(), FlashError> {
        let per_unit = (self.width * self.shape.planes) as usize;
        let mut used: HashSet<(usize, u32)> = HashSet::new();
        for (at, block) in self.blocks.iter().enumerate() {
            let (unit, within) = ((at / per_unit) as u32, (at % per_unit) as u32);
            used.insert((self.pool(unit, within / self.shape.planes, within % self.shape.planes), *block));
        }
        for lun in 0..self.shape.luns() {
            let blocks = self.flash.lun_info(self.shape.lun_at(lun))?;
            for plane in blocks.chunks(self.shape.blocks_per_plane as usize) {
                let pool = self.spares.len();
                let is_spare =
                    |block: &u32| !plane[*block as usize].state.is_bad() && !used.contains(&(pool, *block));
                self.spares.push((0..self.shape.blocks_per_plane).rev().filter(is_spare).collect());
            }
        }
        Ok(())
    }

    /// Keeps which erase blocks make the units.
    pub fn keep_units(&mut self) -> Result<(), FlashError> {
        if let Some(protected) = &mut self.protected {
            protected.keep_units(&self.blocks)?;
        }
        Ok(())
    }

    /// Keeps that logical blocks were trimmed.
    pub fn keep_trim(&mut self, first: u32, count: u32) -> Result<(), FlashError> {
        if let Some(protected) = &mut self.protected {
            protected.trimmed(first, count)?;
        }
        Ok(())
    }

    /// Reclaim units, given up ones too.
    pub fn units(&self) -> u32 {
        self.blocks.len() as u32 / (self.width * self.shape.planes)
    }

    /// The blocks of a unit, LUN by LUN and plane by plane; `None` of one that was given up.
    pub fn blocks_of(&self, unit: u32) -> Option<Vec<BlockAddr>> {
        let planes = self.shape.planes;
        let block = |at: u32| {
            let (lun, plane) = (at / planes, at % planes);
            (self.blocks[self.entry(unit, lun, plane)] != NO_BLOCK).then(|| self.block(unit, lun, plane))
        };
        (0..self.width * planes).map(block).collect()
    }

    /// The life that a slot's place has now.
    pub fn life_at(&self, slot: u32) -> Result<Life, FlashError> {
        let block = self.place(slot).page.block;
        Ok(life_of(&self.shape, block, self.flash.block_info(block)?.erases))
    }

    /// Puts blocks back into the write buffer of their front: their first slot, what they were written as, and their data.
    pub fn refill(&mut self, front: usize, first: u32, blocks: Vec<(Tag, u32, Vec<u8>)>) {
        let filled = blocks.len() as u32;
        let mut buffer = Buffer { first, filled, ..Buffer::default() };
        for (tag, cell, data) in blocks {
            self.keep_cell(cell);
            buffer.data.extend_from_slice(&data);
            buffer.cells.push((tag, cell));
        }
        self.buffers[front] = buffer;
    }

    /// A block whose program did not succeed before the drive was opened is read from its cell until it is moved.
    pub fn rescue(&mut self, slot: u32, cell: u32, data: Vec<u8>) -> bool {
        if self.rescued.contains_key(&slot) {
            return false;
        }
        self.keep_cell(cell);
        self.rescued.insert(slot, Rescued { data, cell: Some(cell) });
        true
    }

    /// Nothing refers to the rescued block of this slot any more.
    pub fn forget_rescued(&mut self, slot: u32) {
        let cell = self.rescued.remove(&slot).and_then(|rescued| rescued.cell);
        if let (Some(cell), Some(protected)) = (cell, &mut self.protected) {
            protected.give_up(cell);
        }
    }

    /// The cell has a block that nothing else has.
    fn keep_cell(&mut self, cell: u32) {
        if let Some(protected) = &mut self.protected {
            protected.keep_cell(cell);
        }
    }

    /// A block is in its cell alone until there is room for it.
    pub fn keep_alone(&mut self, logical: u32, front: usize, cell: u32, data: Vec<u8>) {
        self.keep_cell(cell);
        self.alone.insert(logical, Alone { data, cell, front });
    }

    /// Takes the block in a slot, which is valid and in no write buffer, into protected memory: it counts there from now on.
    pub fn take_into_memory(&mut self, slot: u32, logical: u32, front: usize) -> Result<(), FlashError> {
        let mut data = Vec::new();
        match self.in_memory(slot) {
            Some(known) => data = known.to_vec(),
            None => drop(self.sense(slot, logical, &mut data)?),
        }
        data.resize(BLOCK_BYTES, 0);
        let (life, lost) = (self.life_at(slot)?, self.lost.contains(&logical));
        let Some(protected) = &mut self.protected else { return Ok(()) };
        let tag = Tag { logical, sequence: protected.next_sequence(), front, lost };
        let cell = protected.put(tag, slot, life, &data)?;
        self.forget_rescued(slot);
        self.keep_alone(logical, front, cell, data);
        Ok(())
    }

    /// Cells beside those that the write buffers of all fronts can take; none of a drive in memory.
    pub fn cells_to_spare(&self) -> u32 {
        let kept = 4 * self.buffers.len() as u32 * self.slots_per_program;
        self.protected.as_ref().map_or(0, |protected| protected.free_cells().saturating_sub(kept))
    }

    /// A block that is in memory alone.
    pub fn alone(&self, logical: u32) -> Option<&[u8]> {
        self.alone.get(&logical).map(|alone| &alone.data[..])
    }

    /// The first block that is in memory alone, with its front.
    pub fn first_alone(&self) -> Option<(u32, usize, Vec<u8>)> {
        self.alone.first_key_value().map(|(logical, alone)| (*logical, alone.front, alone.data.clone()))
    }

    /// A logical block has a slot, or was given up.
    pub fn forget_alone(&mut self, logical: u32) {
        if let (Some(alone), Some(protected)) = (self.alone.remove(&logical), &mut self.protected) {
            protected.give_up(alone.cell);
        }
    }

    /// Reads a part of a page, again if that may help.
    pub fn read(
        &self,
        issued: Nanos,
        page: PageAddr,
        offset: u32,
        data: &mut [u8],
    ) -> Result<Done, FlashError> {
        let mut now = issued;
        for _ in 1..READ_TRIES {
            match self.flash.read(now, page, offset, data, &mut []) {
                Err(FlashError::Uncorrectable { why, done, .. }) if !why.is_interrupted() => now = done,
                other => return other,
            }
        }
        self.flash.read(now, page, offset, data, &mut [])
    }

    /// Slots that wait in the write buffer.
    pub fn slots_buffered(&self) -> u64 {
        self.buffers.iter().map(|buffer| u64::from(buffer.filled)).sum()
    }

    /// A logical block is written anew.
    pub fn forget_loss(&mut self, page: u32) {
        if !self.lost.is_empty() {
            self.lost.remove(&page);
        }
    }

    /// What a slot holds, when that is in the drive's memory; empty when data is not kept.
    pub fn in_memory(&self, slot: u32) -> Option<&[u8]> {
        for buffer in &self.buffers {
            if buffer.filled > 0 && (buffer.first..buffer.first + buffer.filled).contains(&slot) {
                let at = (slot - buffer.first) as usize * BLOCK_BYTES;
                return Some(buffer.data.get(at..at + BLOCK_BYTES).unwrap_or_default());
            }
        }
        if self.rescued.is_empty() { None } else { self.rescued.get(&slot).map(|rescued| &rescued.data[..]) }
    }

    pub fn place(&self, slot: u32) -> SlotAddr {
        let (unit, within) = div_rem(slot, self.slots_per_unit);
        let (program, in_program) = div_rem(within, self.slots_per_program);
        let (page, lun) = div_rem(program, self.width);
        let (plane, block_in_page) = div_rem(in_program, self.slots_per_page);
        SlotAddr { page: self.block(unit, lun, plane).page(page), block_in_page }
    }

    fn entry(&self, unit: u32, lun: u32, plane: u32) -> usize {
        ((unit * self.width + lun) * self.shape.planes + plane) as usize
    }

    fn pool(&self, unit: u32, lun: u32, plane: u32) -> usize {
        (self.lun_of(unit, lun) * self.shape.planes + plane) as usize
    }

    /// The number of a unit's LUN in the device.
    fn lun_of(&self, unit: u32, lun: u32) -> u32 {
        let (_, row) = div_rem(unit, self.rows);
        row * self.width + lun
    }

    fn block(&self, unit: u32, lun: u32, plane: u32) -> BlockAddr {
        let block = self.blocks[self.entry(unit, lun, plane)];
        self.luns[self.lun_of(unit, lun) as usize].block(plane, block)
    }

    /// Takes a block of data into a front's buffer.
    fn take(&mut self, front: usize, to: u32, page: u32, from: Option<u32>) -> Result<(), FlashError> {
        let mut ready = self.now;
        let mut moved = std::mem::take(&mut self.moved);
        if let Some(slot) = from {
            match self.in_memory(slot) {
                Some(known) => moved = known.to_vec(),
                None => ready = self.sense(slot, page, &mut moved)?,
            }
        }
        let life = if self.protected.is_some() { Some(self.life_at(to)?) } else { None };
        let data = if from.is_some() { &moved } else { &self.incoming };
        let buffer = &mut self.buffers[front];
        if buffer.filled == 0 {
            buffer.first = to;
            buffer.ready = 0;
        }
        assert_eq!(
            to,
            buffer.first + buffer.filled,
            "front {front} fills a slot that does not follow its buffer"
        );
        if let (Some(protected), Some(life)) = (&mut self.protected, life) {
            let lost = (from.is_some() || self.rewriting) && self.lost.contains(&page);
            let tag = Tag { logical: page, sequence: protected.next_sequence(), front, lost };
            buffer.cells.push((tag, protected.put(tag, to, life, data)?));
        }
        buffer.filled += 1;
        buffer.ready = buffer.ready.max(ready);
        if self.keeps_data {
            buffer.data.extend_from_slice(data);
            let whole = buffer.filled as usize * BLOCK_BYTES;
            buffer.data.resize(whole, 0);
        }
        self.moved = moved;
        self.slots_filled += 1;
        Ok(())
    }

    /// Reads a block that is to be moved, unless it was read ahead; returns when it is in the drive. One that cannot be
    /// read is lost.
    fn sense(&mut self, slot: u32, logical: u32, data: &mut Vec<u8>) -> Result<u64, FlashError> {
        let (number, block_in_page) = div_rem(slot, self.slots_per_page);
        if self.sensed.as_ref().is_none_or(|sensed| sensed.number != number) {
            let spent = self.sensed.take().map(|sensed| sensed.data).unwrap_or_default();
            let known = self.ahead.front().is_some_and(|ahead| ahead.number == number);
            let ahead = if known { self.ahead.pop_front() } else { None };
            self.sensed = Some(match ahead {
                Some(ahead) => ahead,
                None => self.sense_page(number, spent)?,
            });
        }
        let Some(sensed) = &self.sensed else { return Ok(self.now) };
        if sensed.lost {
            self.lost.insert(logical);
        }
        data.clear();
        let at = block_in_page as usize * BLOCK_BYTES;
        data.extend_from_slice(sensed.data.get(at..at + BLOCK_BYTES).unwrap_or_default());
        Ok(sensed.ready)
    }

    fn sense_page(&mut self, number: u32, mut data: Vec<u8>) -> Result<Sensed, FlashError> {
        let now = Nanos(self.now);
        let page = self.place(number * self.slots_per_page).page;
        let read = if self.keeps_data {
            data.resize(self.shape.page_bytes as usize, 0);
            self.read(now, page, 0, &mut data)
        } else {
            self.flash.touch(now, page, self.shape.page_bytes)
        };
        match read {
            Ok(done) => Ok(Sensed { number, data, ready: done.done.0, lost: false }),
            Err(FlashError::Uncorrectable { done, .. }) => {
                Ok(Sensed { number, data, ready: done.0, lost: true })
            }
            Err(error) => Err(error),
        }
    }

    /// Programs what a front's buffer has, padded to a whole program unit; returns when the flash had taken it.
    pub fn program_buffer(&mut self, front: usize) -> Result<(Outcome, u64), FlashError> {
        let mut buffer = std::mem::take(&mut self.buffers[front]);
        let issued = Nanos(buffer.ready);
        let unit = buffer.first / self.slots_per_unit;
        let page_bytes = if self.keeps_data { self.shape.page_bytes as usize } else { 0 };
        let mut data = std::mem::take(&mut buffer.data);
        data.resize(page_bytes * self.shape.planes as usize, 0);
        let program = |plane: u32| {
            let at = plane as usize * page_bytes;
            let first = self.place(buffer.first + plane * self.slots_per_page);
            PageProgram { page: first.page, data: &data[at..at + page_bytes], oob: &[] }
        };
        let result = match self.shape.planes {
            1 => self.flash.program_planes(issued, &[program(0)]),
            planes => self.flash.program_planes(issued, &(0..planes).map(program).collect::<Vec<_>>()),
        };
        let outcome = match result {
            Ok(done) => {
                self.note_programmed(&buffer)?;
                Ok((Outcome::Done, done.moved.0))
            }
            Err(FlashError::ProgramFailed { done, .. }) => {
                self.failing.insert(unit);
                let kept = |at: u32| {
                    let cell = buffer.cells.get(at as usize).map(|(_, cell)| *cell);
                    let at = at as usize * BLOCK_BYTES;
                    Rescued { data: data.get(at..at + BLOCK_BYTES).unwrap_or_default().to_vec(), cell }
                };
                self.rescued.extend((0..buffer.filled).map(|at| (buffer.first + at, kept(at))));
                Ok((Outcome::Bad, done.0))
            }
            Err(error) => Err(error),
        };
        if outcome.is_ok() {
            let bytes = u64::from(self.shape.page_bytes) * u64::from(self.shape.planes);
            self.media_bytes += bytes;
        }
        data.clear();
        self.buffers[front].data = data;
        outcome
    }

    /// What was in a buffer is in flash: its cells are free.
    fn note_programmed(&mut self, buffer: &Buffer) -> Result<(), FlashError> {
        if buffer.cells.is_empty() {
            return Ok(());
        }
        let lives = (buffer.first..).take(buffer.cells.len()).map(|slot| self.life_at(slot));
        let lives = lives.collect::<Result<Vec<Life>, FlashError>>()?;
        let Some(protected) = &mut self.protected else { return Ok(()) };
        let tags: Vec<(Tag, Life)> =
            buffer.cells.iter().zip(lives).map(|((tag, _), life)| (*tag, life)).collect();
        protected.programmed(buffer.first, &tags)?;
        buffer.cells.iter().for_each(|(_, cell)| protected.give_up(*cell));
        Ok(())
    }

    /// Pads and programs what is in a front's buffer, before the front's unit is closed.
    pub fn pad(&mut self, front: usize) -> Result<(), FlashError> {
        let filled = self.buffers[front].filled;
        if filled > 0 {
            self.slots_padded += u64::from(self.slots_per_program - filled);
            self.program_buffer(front)?;
        }
        Ok(())
    }

    /// Erases the blocks of a unit on one of its LUNs; whether all places have an erased block.
    fn erase_on_lun(&mut self, unit: u32, lun: u32, failing: bool) -> Result<bool, FlashError> {
        let planes = 0..self.shape.planes;
        let is_good = |media: &FlashMedia, plane: u32| {
            let info = media.flash.block_info(media.block(unit, lun, plane));
            info.is_ok_and(|info| !info.state.is_bad())
        };
        let good: Vec<u32> = planes.clone().filter(|plane| !failing || is_good(self, *plane)).collect();
        let blocks: Vec<BlockAddr> = good.iter().map(|plane| self.block(unit, lun, *plane)).collect();
        let mut all = good.len() == self.shape.planes as usize;
        let mut erased = blocks.len() as u64;
        if !blocks.is_empty() {
            match self.flash.erase_planes(Nanos(self.now), &blocks) {
                Ok(_) => {}
                Err(FlashError::EraseFailed { .. }) => {
                    all = false;
                    erased = good.iter().filter(|plane| is_good(self, **plane)).count() as u64;
                }
                Err(error) => return Err(error),
            }
        }
        self.erased_bytes += erased * self.shape.block_bytes();
        if all {
            return Ok(true);
        }
        let mut whole = true;
        for plane in planes {
            if !is_good(self, plane) {
                let (entry, pool) = (self.entry(unit, lun, plane), self.pool(unit, lun, plane));
                match self.spares[pool].pop() {
                    Some(spare) => self.blocks[entry] = spare,
                    None => whole = false,
                }
            }
        }
        Ok(whole)
    }

    /// A unit that is given up: its good blocks replace bad ones elsewhere.
    fn give_up(&mut self, unit: u32) {
        for lun in 0..self.width {
            for plane in 0..self.shape.planes {
                let (block, entry) = (self.block(unit, lun, plane), self.entry(unit, lun, plane));
                self.blocks[entry] = NO_BLOCK;
                if self.flash.block_info(block).is_ok_and(|info| !info.state.is_bad()) {
                    let pool = self.pool(unit, lun, plane);
                    self.spares[pool].push(block.block);
                }
            }
        }
    }
}

impl Media for FlashMedia {
    type Error = FlashError;

    fn program(
        &mut self,
        to: u32,
        page: u32,
        from: Option<u32>,
        front: usize,
    ) -> Result<Outcome, FlashError> {
        self.take(front, to, page, from)?;
        if self.buffers[front].filled < self.slots_per_program {
            return Ok(Outcome::Done);
        }
        let (outcome, taken) = self.program_buffer(front)?;
        if from.is_none() {
            self.taken = self.taken.max(taken);
        }
        Ok(outcome)
    }

    /// A block whose program failed is in protected memory, under a larger number than where it was before.
    fn has_taken(&self, slot: u32) -> bool {
        self.rescued.contains_key(&slot)
    }

    fn copying(&mut self, slots: &[u32]) -> Result<(), FlashError> {
        self.ahead.clear();
        self.sensed = None;
        for slot in slots {
            let (number, _) = div_rem(*slot, self.slots_per_page);
            if self.ahead.back().is_none_or(|last| last.number != number) && self.in_memory(*slot).is_none() {
                let sensed = self.sense_page(number, Vec::new())?;
                self.ahead.push_back(sensed);
            }
        }
        Ok(())
    }

    fn erase(&mut self, unit: u32) -> Result<Outcome, FlashError> {
        self.ahead.clear();
        self.sensed = None;
        let failing = self.failing.remove(&unit);
        if !self.rescued.is_empty() {
            let slots = unit * self.slots_per_unit..(unit + 1) * self.slots_per_unit;
            let gone: Vec<u32> = self.rescued.keys().filter(|slot| slots.contains(slot)).copied().collect();
            gone.into_iter().for_each(|slot| self.forget_rescued(slot));
        }
        let before = if self.protected.is_some() { self.blocks_of(unit) } else { None };
        self.flash.announce_erases(before.as_deref().unwrap_or_default());
        let erased = (0..self.width).try_fold(true, |whole, lun| {
            Ok::<bool, FlashError>(self.erase_on_lun(unit, lun, failing)? & whole)
        });
        self.flash.withdraw_erases(before.as_deref().unwrap_or_default());
        let whole = erased?;
        if !whole {
            self.give_up(unit);
        }
        if before.is_some() && self.blocks_of(unit) != before {
            self.keep_units()?;
        }
        Ok(if whole { Outcome::Done } else { Outcome::Bad })
    }

    fn collecting(&mut self, _unit: u32, front: usize, valid: u32) {
        if valid == 0 {
            return;
        }
        self.moved_slots[front] += u64::from(valid);
        if self.handles > 0 {
            let handle = (front < self.handles).then_some(front as u16);
            self.events.add(FdpEvent::MediaReallocated { handle, blocks: valid, at_ns: self.now });
        }
    }
}
