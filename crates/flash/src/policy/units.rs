//! Units of flash: an erase block in each plane of several LUNs, slots going round them; and what is written beside each
//! page.
//!
//! ```text
//!  unit 7, stripe 2, planes 2:   LUN 2 block 4   LUN 2 block 5   LUN 3 block 4   LUN 3 block 5
//!                                slot 0          slot 1          slot 2          slot 3
//!                                slot 4          slot 5          ...
//!
//!  out-of-band:  magic 4 | range 2 | front 1 | flags 1 | page 8 | sequence 8 | unit 8 | crc 4
//! ```

use super::RangeMapping;
use crate::address::{GrantBlock, GrantGeometry, GrantPage};
use crate::error::LevelError;
use crate::grant::{Grant, RawWrite};
use crate::level::POLICY_MAGIC;
use crate::log::{LogBlock, LogMedia, LogRead, LogShape};
use crate::monitor::BlockLook;
use crate::oob;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::codec::{Reader, Truncated, put, seal, unseal};
use weft_core::{Nanos, Tag};
use weft_device::gc::Outcome;
use weft_device::nand::{Done, Unreadable};

/// The out-of-band record of a page: the logical page that it holds, and when it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct OobRecord {
    pub range: u16,
    /// The write front that filled the unit; in a block-mapped range 1 for what was written as a whole in place of others.
    pub front: u8,
    pub flags: u8,
    /// The logical page, counted from the range's start.
    pub page: u64,
    /// Grows from page to page. A copy in a block-mapped range has that of its original.
    pub sequence: u64,
    /// The sequence number when the unit was begun: tells one filling of a unit from another.
    pub unit: u64,
    /// The data's tag. The grant stores it, apart from the note.
    pub tag: Tag,
}

/// What a read of the out-of-band record of a programmed page finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OobRead {
    Record(OobRecord),
    /// Its program was interrupted, or somebody else wrote it: no promise was made.
    Nothing,
    /// It held something, and cannot be read.
    Unreadable,
}

/// The data of the page was lost; reads of it fail.
pub(super) const LOST: u8 = 1;
/// Nothing was written to the page; it reads as zeros.
pub(super) const HOLE: u8 = 2;
/// The last page of a unit that was written as a whole in place of others: without it they count.
pub(super) const END: u8 = 4;

/// No sequence number is as large: what has a larger one is damage, and would not bear being counted on.
pub(super) const SEQUENCE_MAX: u64 = 1 << 62;

impl OobRecord {
    pub const BYTES: usize = 36;

    pub fn encode(&self) -> [u8; OobRecord::BYTES] {
        let mut raw = Vec::with_capacity(OobRecord::BYTES);
        raw.extend_from_slice(&POLICY_MAGIC);
        let OobRecord { range, front, flags, page, sequence, unit, .. } = self;
        put(&mut raw, &[range, front, flags, page, sequence, unit]);
        seal(&mut raw);
        let mut out = [0; OobRecord::BYTES];
        out.copy_from_slice(&raw);
        out
    }

    pub fn decode(raw: &[u8; OobRecord::BYTES]) -> Option<OobRecord> {
        let fields = || -> Result<_, Truncated> {
            let mut reader = Reader::new(raw);
            let magic: [u8; 4] = reader.array()?;
            let (range, front, flags) = (reader.u16()?, reader.u8()?, reader.u8()?);
            let (page, sequence, unit) = (reader.u64()?, reader.u64()?, reader.u64()?);
            Ok((magic, OobRecord { range, front, flags, page, sequence, unit, tag: Tag::default() }))
        };
        let (magic, note) = fields().ok()?;
        let sound = magic == POLICY_MAGIC && unseal(raw).is_some();
        (sound && note.sequence < SEQUENCE_MAX && note.unit < SEQUENCE_MAX).then_some(note)
    }
}

/// What the flash says of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitLook {
    /// Slots up to the last one that is programmed; `None` when nothing in the unit counts, because the erase of a block was
    /// interrupted.
    pub filled: Option<u32>,
    /// Of these, slots before the first one that is not programmed. Where some are not, power went or the flash failed while slots
    /// were programmed together, only some blocks were erased, or a crash of the host has taken pages. What is there was written
    /// before what is missing, or need not be there any more; and nothing can be written behind it.
    pub in_order: u32,
    /// A block of it is bad.
    pub bad: bool,
    /// Erases of its most worn block.
    pub erases: u32,
}

/// The grant, seen as units.
#[derive(Debug)]
pub(super) struct Flash {
    pub grant: Grant,
    pub geometry: GrantGeometry,
    luns: Vec<(u32, u32)>,
    /// Blocks of a unit.
    parts: u32,
    pub units: u32,
    pub slots_per_unit: u32,
    /// The first units belong to the log.
    pub log_units: u32,
    /// Number of the page that was written last. Grows from write to write of each range; between ranges nothing depends on the
    /// order.
    sequence: AtomicU64,
    /// Pages programmed.
    programmed: AtomicU64,
}

impl Flash {
    pub fn new(grant: Grant, stripe: u32) -> Result<Flash, LevelError> {
        let geometry = grant.geometry().clone();
        let (units, log_units) = Flash::layout(&geometry, stripe);
        let parts = stripe * geometry.planes;
        if log_units >= units {
            return Err(LevelError::BadRequest(format!(
                "the grant has {units} units of {parts} blocks, and checkpoints alone take {log_units}; ask for more flash"
            )));
        }
        let slots_per_unit = geometry.pages_per_block * parts;
        let luns = geometry.lun_list();
        let (sequence, programmed) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Flash { grant, geometry, luns, parts, units, slots_per_unit, log_units, sequence, programmed })
    }

    /// A number for the next page.
    pub fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Relaxed) + 1
    }

    /// Number of the page that was written last.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Relaxed)
    }

    /// Such a number has been given.
    pub fn seen(&self, sequence: u64) {
        self.sequence.fetch_max(sequence, Relaxed);
    }

    /// Pages programmed since the level was opened.
    pub fn programmed(&self) -> u64 {
        self.programmed.load(Relaxed)
    }

    /// Units of a grant with this stripe, and how many of them the log takes.
    pub fn layout(geometry: &GrantGeometry, stripe: u32) -> (u32, u32) {
        let parts = stripe * geometry.planes;
        let units = geometry.blocks() / parts;
        let snapshot = snapshot_bytes_max(geometry, units);
        let blocks = LogShape::blocks_for(geometry.pages_per_block, geometry.page_bytes as usize, snapshot);
        (units, blocks.div_ceil(parts))
    }

    /// The largest a checkpoint can be.
    pub fn snapshot_bytes_max(&self) -> usize {
        snapshot_bytes_max(&self.geometry, self.units)
    }

    pub fn log_shape(&self) -> LogShape {
        LogShape {
            blocks: self.log_units * self.parts,
            pages_per_block: self.geometry.pages_per_block,
            page_bytes: self.geometry.page_bytes as usize,
            of: "the checkpoints of the policy level",
        }
    }

    /// A block of a unit.
    pub fn block(&self, unit: u32, part: u32) -> GrantBlock {
        let planes = self.geometry.planes;
        let per_lun = self.geometry.blocks_per_lun / planes;
        let (group, block) = (unit / per_lun, unit % per_lun);
        let (channel, lun) = self.luns[((group * self.parts + part) / planes) as usize];
        GrantBlock { channel, lun, block: block * planes + part % planes }
    }

    /// Blocks of a unit.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// Blocks of a unit that are bad. One whose state is not told counts as good.
    pub fn bad_blocks(&self, unit: u32) -> u32 {
        let is_bad = |part: &u32| self.grant.look(self.block(unit, *part)).is_ok_and(|look| look.retired);
        (0..self.parts).filter(is_bad).count() as u32
    }

    /// Slots that are programmed together: one in each plane of a LUN.
    pub fn together(&self) -> u32 {
        self.geometry.planes
    }

    pub fn slot_page(&self, unit: u32, slot: u32) -> GrantPage {
        self.block(unit, slot % self.parts).page(slot / self.parts)
    }

    /// How far a unit is programmed.
    pub fn look(&self, unit: u32) -> Result<UnitLook, LevelError> {
        let looks: Vec<BlockLook> =
            (0..self.parts).map(|part| self.grant.look(self.block(unit, part))).collect::<Result<_, _>>()?;
        let end = |(part, look): (usize, &BlockLook)| match look.programmed {
            0 => 0,
            count => (count - 1) * self.parts + part as u32 + 1,
        };
        let filled = looks.iter().enumerate().map(end).max().unwrap_or(0);
        let mut in_order = filled;
        for (part, look) in (0..).zip(&looks) {
            if look.programmed < (filled + self.parts - 1 - part) / self.parts {
                in_order = in_order.min(look.programmed * self.parts + part);
            }
        }
        let whole = !looks.iter().any(|look| look.erase_incomplete);
        let bad = looks.iter().any(|look| look.retired);
        let erases = looks.iter().map(|look| look.erases).max().unwrap_or(0);
        Ok(UnitLook { filled: whole.then_some(filled), in_order, bad, erases })
    }

    /// What is beside a page that is programmed.
    pub fn note(&self, unit: u32, slot: u32) -> Result<OobRead, LevelError> {
        let mut raw = [0; OobRecord::BYTES];
        match self.grant.read(Nanos(0), self.slot_page(unit, slot), 0, &mut [], &mut raw) {
            Ok(_) => Ok(OobRecord::decode(&raw).map_or(OobRead::Nothing, OobRead::Record)),
            Err(LevelError::Unreadable { why, .. }) if why.is_interrupted() => Ok(OobRead::Nothing),
            Err(LevelError::Unreadable { .. }) => Ok(OobRead::Unreadable),
            // A slot that was programmed together with others, and was not when power went or the flash failed.
            Err(LevelError::NotProgrammed { .. } | LevelError::BlockRetired { .. }) => Ok(OobRead::Nothing),
            Err(other) => Err(other),
        }
    }

    /// The first note of a unit that can be read. [`OobRead::Unreadable`] when none can and one of them held something.
    pub fn first_note(&self, unit: u32, filled: u32) -> Result<OobRead, LevelError> {
        let mut found = OobRead::Nothing;
        for slot in 0..filled {
            match self.note(unit, slot)? {
                OobRead::Nothing => {}
                OobRead::Unreadable => found = OobRead::Unreadable,
                note => return Ok(note),
            }
        }
        Ok(found)
    }

    /// Refuses the opening for a slot that cannot be read.
    pub fn cannot_tell(&self, unit: u32, slot: u32) -> LevelError {
        LevelError::CannotTell { page: self.slot_page(unit, slot).to_string(), of: "the pages of a range" }
    }

    /// Erases a unit that belongs to nobody, if it is not clean.
    pub fn clean(&self, unit: u32) -> Result<Outcome, LevelError> {
        match self.look(unit)? {
            UnitLook { filled: Some(0), bad, .. } => Ok(if bad { Outcome::Bad } else { Outcome::Done }),
            _ => self.erase(unit, &mut Nanos(0)),
        }
    }

    /// Erases a unit, its first block first.
    pub fn erase(&self, unit: u32, now: &mut Nanos) -> Result<Outcome, LevelError> {
        let mut outcome = Outcome::Done;
        let blocks: Vec<GrantBlock> = (0..self.parts).map(|part| self.block(unit, part)).collect();
        let mut end = *now;
        for result in self.grant.erase_many(*now, &blocks) {
            match result {
                Ok(done) => end = end.max(done.done),
                Err(LevelError::BlockRetired { .. }) => outcome = Outcome::Bad,
                Err(other) => return Err(other),
            }
        }
        *now = end;
        Ok(outcome)
    }
}

fn snapshot_bytes_max(geometry: &GrantGeometry, units: u32) -> usize {
    geometry.pages() as usize * 4 + units as usize * 24 + super::RANGES_MAX * 56 + 1024
}

/// A slot that was read to be copied.
struct CopyRead {
    slot: u32,
    /// [`OobRead::Unreadable`] also when there is no note where one should be.
    oob: OobRead,
    data: Vec<u8>,
    done: Nanos,
}

/// The flash commands of one call on the units of a range. They are issued when the call is, and one that needs another is issued
/// when that completes: a copy when its page has been read, an erase when all before it has been programmed. LUNs so work
/// side by side, and a write waits for the cleaner only where it has its LUN.
pub(super) struct IoBatch<'a> {
    pub flash: &'a Flash,
    pub units: &'a [u32],
    pub range: u16,
    issued: Nanos,
    /// When the page that is being copied was there.
    copy_read: Nanos,
    /// Slots that were read to be copied.
    ahead: VecDeque<CopyRead>,
    /// When what the caller gave is programmed.
    pub written: Nanos,
    /// When everything is over.
    pub settled: Nanos,
}

impl<'a> IoBatch<'a> {
    pub fn new(flash: &'a Flash, units: &'a [u32], range: u16, issued: Nanos) -> IoBatch<'a> {
        let (copy_read, written, settled) = (issued, issued, issued);
        IoBatch { flash, units, range, issued, copy_read, ahead: VecDeque::new(), written, settled }
    }

    fn page(&self, slot: u32) -> GrantPage {
        let per_unit = self.flash.slots_per_unit;
        self.flash.slot_page(self.units[(slot / per_unit) as usize], slot % per_unit)
    }

    /// Programs a slot of the range, with the caller's data or with a copy of what was read last.
    pub fn program(
        &mut self,
        slot: u32,
        data: &[u8],
        note: OobRecord,
        copy: bool,
    ) -> Result<Outcome, LevelError> {
        let issued = self.issue(1, copy);
        let write = RawWrite { page: self.page(slot), data, oob: &note.encode(), tag: note.tag };
        let result = self.flash.grant.program_tagged(issued, &write);
        self.programmed(result, copy)
    }

    /// Programs slots of the range as one: the data of each and what is written beside it.
    pub fn program_together(
        &mut self,
        slot: u32,
        pages: &[(&[u8], OobRecord)],
        copy: bool,
    ) -> Result<Outcome, LevelError> {
        let issued = self.issue(pages.len() as u64, copy);
        let notes: Vec<[u8; OobRecord::BYTES]> = pages.iter().map(|(_, note)| note.encode()).collect();
        let parts = (slot..).zip(pages).zip(&notes);
        let writes: Vec<RawWrite> = parts
            .map(|((slot, (data, note)), oob)| RawWrite { page: self.page(slot), data, oob, tag: note.tag })
            .collect();
        let mut outcome = Outcome::Done;
        for result in self.flash.grant.program_many(issued, &writes) {
            if self.programmed(result, copy)? == Outcome::Bad {
                outcome = Outcome::Bad;
            }
        }
        Ok(outcome)
    }

    /// When so many pages are programmed that are given now: when those that are copied have been read.
    fn issue(&mut self, pages: u64, copy: bool) -> Nanos {
        self.flash.programmed.fetch_add(pages, Relaxed);
        let read = std::mem::replace(&mut self.copy_read, self.issued);
        if copy { read } else { self.issued }
    }

    fn programmed(&mut self, result: Result<Done, LevelError>, copy: bool) -> Result<Outcome, LevelError> {
        match result {
            Ok(done) => {
                self.settled = self.settled.max(done.done);
                if !copy {
                    self.written = self.written.max(done.done);
                }
                Ok(Outcome::Done)
            }
            Err(LevelError::BlockRetired { .. }) => Ok(Outcome::Bad),
            Err(other) => Err(other),
        }
    }

    /// Whether nothing was written to a slot of the range.
    pub fn is_hole(&self, slot: u32) -> Result<bool, LevelError> {
        let per_unit = self.flash.slots_per_unit;
        Ok(match self.flash.note(self.units[(slot / per_unit) as usize], slot % per_unit)? {
            OobRead::Record(note) => note.flags & (HOLE | LOST) == HOLE,
            OobRead::Nothing => true,
            OobRead::Unreadable => false,
        })
    }

    /// Reads a slot to be copied.
    fn read_copy(&self, slot: u32, mut data: Vec<u8>) -> Result<CopyRead, LevelError> {
        let mut raw = [0; OobRecord::BYTES];
        data.resize(self.flash.geometry.page_bytes as usize, 0);
        let page = self.page(slot);
        match self.flash.grant.read_tagged(self.issued, page, 0, &mut data, &mut raw) {
            Ok((done, tag)) => {
                let beside = match OobRecord::decode(&raw) {
                    Some(note) => OobRead::Record(OobRecord { tag: oob::tag_for_copy(page, tag), ..note }),
                    None => OobRead::Unreadable,
                };
                Ok(CopyRead { slot, oob: beside, data, done: done.done })
            }
            Err(LevelError::Unreadable { why, done, .. }) => {
                data.fill(0);
                let oob = if why.is_interrupted() { OobRead::Nothing } else { OobRead::Unreadable };
                Ok(CopyRead { slot, oob, data, done })
            }
            Err(LevelError::NotProgrammed { .. }) => {
                data.fill(0);
                Ok(CopyRead { slot, oob: OobRead::Nothing, data, done: self.issued })
            }
            Err(other) => Err(other),
        }
    }

    /// Reads slots that will be copied in this order.
    pub fn read_ahead(&mut self, slots: &[u32]) -> Result<(), LevelError> {
        self.ahead.clear();
        for slot in slots {
            let read = self.read_copy(*slot, Vec::new())?;
            self.ahead.push_back(read);
        }
        Ok(())
    }

    /// The content of a slot to be copied, which may have been read ahead; a page that cannot be read is [`LOST`] from then
    /// on, and one whose program was interrupted a [`HOLE`].
    pub fn read_for_copy(
        &mut self,
        slot: u32,
        page: u64,
        data: &mut Vec<u8>,
    ) -> Result<OobRecord, LevelError> {
        let known = self.ahead.front().is_some_and(|read| read.slot == slot);
        let ahead = if known { self.ahead.pop_front() } else { None };
        let read = match ahead {
            Some(read) => read,
            None => self.read_copy(slot, std::mem::take(data))?,
        };
        self.copy_read = self.copy_read.max(read.done);
        *data = read.data;
        let instead = |flags| OobRecord { range: self.range, page, flags, ..OobRecord::default() };
        Ok(match read.oob {
            OobRead::Record(note) if note.page == page => note,
            OobRead::Nothing => instead(HOLE),
            OobRead::Record(_) | OobRead::Unreadable => instead(LOST),
        })
    }

    /// Reads a slot for the application and checks that it is the page that was meant. In a block-mapped range a slot whose
    /// program was interrupted, or that the host has lost, has had nothing before: zeros.
    pub fn read_checked(
        &self,
        slot: u32,
        page: u64,
        mapping: RangeMapping,
        data: &mut [u8],
    ) -> Result<Nanos, LevelError> {
        let mut raw = [0; OobRecord::BYTES];
        let address = self.page(slot);
        let done = match self.flash.grant.read(self.issued, address, 0, data, &mut raw) {
            Ok(done) => done.done,
            Err(LevelError::Unreadable { why, done, .. })
                if why.is_interrupted() && mapping == RangeMapping::Block =>
            {
                data.fill(0);
                return Ok(done);
            }
            Err(LevelError::NotProgrammed { .. }) if mapping == RangeMapping::Block => {
                data.fill(0);
                return Ok(self.issued);
            }
            Err(other) => return Err(other),
        };
        match OobRecord::decode(&raw) {
            Some(note) if note.range != self.range || note.page != page => Err(LevelError::Damaged(format!(
                "{address} was to hold logical page {page} of range {} and holds page {} of range {}",
                self.range, note.page, note.range
            ))),
            Some(note) if note.flags & LOST != 0 => {
                let why = Unreadable::Moved;
                Err(LevelError::Unreadable { address, why, done })
            }
            Some(note) if note.flags & HOLE != 0 => {
                data.fill(0);
                Ok(done)
            }
            Some(_) => Ok(done),
            None => Err(LevelError::Damaged(format!("{address} has no readable note oob its data"))),
        }
    }

    /// The tag of the page in a slot.
    pub fn tag_of(&self, slot: u32) -> Result<Tag, LevelError> {
        self.flash.grant.tag_of(self.issued, self.page(slot))
    }

    pub fn erase(&mut self, block: u32) -> Result<Outcome, LevelError> {
        let mut now = self.settled;
        let outcome = self.flash.erase(self.units[block as usize], &mut now);
        self.settled = now;
        outcome
    }
}

/// The units of the log.
pub(super) struct UnitLog<'a> {
    flash: &'a Flash,
    pub now: Nanos,
}

impl<'a> UnitLog<'a> {
    pub fn new(flash: &'a Flash, now: Nanos) -> UnitLog<'a> {
        UnitLog { flash, now }
    }

    fn block(&self, number: u32) -> GrantBlock {
        self.flash.block(number / self.flash.parts, number % self.flash.parts)
    }
}

impl LogMedia for UnitLog<'_> {
    fn look(&mut self, block: u32) -> Result<LogBlock, LevelError> {
        let look = self.flash.grant.look(self.block(block))?;
        Ok(LogBlock {
            programmed: look.programmed,
            clean: look.programmed == 0 && !look.erase_incomplete,
            good: !look.retired,
        })
    }

    fn read(&mut self, block: u32, page: u32, into: &mut [u8]) -> Result<LogRead, LevelError> {
        match self.flash.grant.read(self.now, self.block(block).page(page), 0, into, &mut []) {
            Ok(done) => self.now = done.done,
            Err(LevelError::Unreadable { why, done, .. }) => {
                self.now = done;
                return Ok(if why.is_interrupted() { LogRead::Torn } else { LogRead::Failed });
            }
            Err(other) => return Err(other),
        }
        Ok(LogRead::Whole)
    }

    fn name(&self, block: u32, page: u32) -> String {
        self.block(block).page(page).to_string()
    }

    fn program(&mut self, block: u32, page: u32, data: &[u8]) -> Result<Outcome, LevelError> {
        match self.flash.grant.program(self.now, self.block(block).page(page), data, &[]) {
            Ok(done) => self.now = done.done,
            Err(LevelError::BlockRetired { .. }) => return Ok(Outcome::Bad),
            Err(other) => return Err(other),
        }
        Ok(Outcome::Done)
    }

    fn erase(&mut self, block: u32) -> Result<Outcome, LevelError> {
        match self.flash.grant.erase(self.now, self.block(block)) {
            Ok(done) => self.now = done.done,
            Err(LevelError::BlockRetired { .. }) => return Ok(Outcome::Bad),
            Err(other) => return Err(other),
        }
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_a_changed_one_is_not() {
        let note = OobRecord {
            range: 3,
            front: 2,
            flags: HOLE,
            page: 1 << 33,
            sequence: 9,
            unit: 8,
            ..OobRecord::default()
        };
        let raw = note.encode();
        assert_eq!(OobRecord::decode(&raw), Some(note));
        for at in 0..OobRecord::BYTES {
            let mut changed = raw;
            changed[at] ^= 16;
            assert_eq!(OobRecord::decode(&changed), None);
        }
    }
}
