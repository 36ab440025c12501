//! A log of records in a few erase blocks, which a power cut at any moment leaves with its last complete record.
//!
//! ```text
//!  page:  magic 8 | kind 1 | version 1 | zero 2 | length 4 | record number 8 | part 4 | parts 4 | crc 4 | payload
//! ```
//!
//! A **snapshot** is the whole state, a **delta** a change since the last snapshot. Blocks are used round and round;
//! one that holds a part of the last snapshot or of a delta after it is *live* and is not erased before a newer snapshot
//! is complete. When a program fails the record is written again, from its first part, in another block.
//!
//! The CRC32C covers the page's header, with the field itself zero, and its payload.
//!
//! A page that cannot be read is one of three things. **Torn**: its program was interrupted, and its record was never
//! promised. **Stale**: a page after it in its block is not newer than the last complete snapshot, so it is older. Any other
//! may have held the newest record; a log with such a page is refused, because an older state would look like the last.

use crate::error::LevelError;
use std::collections::BTreeMap;
use weft_core::checksum::{crc32c, crc32c_append};
use weft_core::codec::{Encode, Reader, Truncated, put};
use weft_device::gc::Outcome;

/// First bytes of a page of a log.
pub(crate) const MAGIC: &[u8; 8] = b"WEFTFLOG";
const VERSION: u8 = 1;
/// No record has as large a number: what has a larger one is damage, and would not bear being counted on.
const NUMBER_MAX: u64 = 1 << 62;
/// Blocks of a log that may become bad at one time.
const BAD_BLOCKS_STOOD: u32 = 2;
/// Bytes of a page's header.
pub(crate) const HEADER_BYTES: usize = 36;
const CRC_AT: usize = 32;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Snapshot = 1,
    Delta = 2,
}

/// A block of a log as found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogBlock {
    /// Pages that can be tried to be read.
    pub programmed: u32,
    /// Whether it takes programs without an erase.
    pub clean: bool,
    /// Whether it takes programs and erases.
    pub good: bool,
}

/// How a page of a log was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogRead {
    Whole,
    /// Its program was interrupted.
    Torn,
    /// It held something, and cannot be read.
    Failed,
}

/// What recovery does when a page that may hold the newest record of the log cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnUnreadable {
    /// Refuses the log.
    Refuse,
    /// Begins the log anew.
    Ignore,
}

/// The blocks of a log, numbered from 0.
pub(crate) trait LogMedia {
    fn look(&mut self, block: u32) -> Result<LogBlock, LevelError>;
    fn read(&mut self, block: u32, page: u32, into: &mut [u8]) -> Result<LogRead, LevelError>;
    /// The address of a page, for errors.
    fn name(&self, block: u32, page: u32) -> String;
    fn program(&mut self, block: u32, page: u32, data: &[u8]) -> Result<Outcome, LevelError>;
    fn erase(&mut self, block: u32) -> Result<Outcome, LevelError>;
}

/// The shape of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogShape {
    pub blocks: u32,
    pub pages_per_block: u32,
    pub page_bytes: usize,
    /// Whose log it is, for errors.
    pub of: &'static str,
}

impl LogShape {
    fn pages_of(&self, bytes: usize) -> u64 {
        (bytes.div_ceil(self.page_bytes - HEADER_BYTES) as u64).max(1)
    }

    /// Blocks that a log needs for snapshots of so many bytes: two of them and some to go on.
    pub fn blocks_for(pages_per_block: u32, page_bytes: usize, snapshot_bytes: usize) -> u32 {
        let pages = snapshot_bytes.div_ceil(page_bytes - HEADER_BYTES) as u64;
        2 * pages.div_ceil(u64::from(pages_per_block)) as u32 + BAD_BLOCKS_STOOD + 1
    }
}

/// What a log held.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// Number of the snapshot.
    pub number: u64,
    pub snapshot: Vec<u8>,
    pub deltas: Vec<Vec<u8>>,
}

/// Where a log stands.
#[derive(Clone, Debug)]
pub(crate) struct RecordLog {
    shape: LogShape,
    /// Number of the last record.
    number: u64,
    /// The block that was written last.
    current: u32,
    /// Its next page; `None` when another block has to be taken.
    next_page: Option<u32>,
    live: Vec<u32>,
    bad: Vec<bool>,
}

/// A page that could not be read, and the smallest number after it in its block.
struct FailedPage {
    block: u32,
    page: u32,
    older_than: u64,
}

struct Part {
    kind: Kind,
    part: u32,
    parts: u32,
    block: u32,
    payload: Vec<u8>,
}

impl RecordLog {
    /// An empty log. What its blocks hold is erased as they are taken.
    pub fn new(shape: LogShape) -> RecordLog {
        let bad = vec![false; shape.blocks as usize];
        RecordLog { shape, number: 0, current: shape.blocks - 1, next_page: None, live: Vec::new(), bad }
    }

    /// Reads a log. Without a complete snapshot nothing is returned, and the log is an empty one whose numbers go on.
    pub fn recover<M: LogMedia>(
        media: &mut M,
        shape: LogShape,
        unread: OnUnreadable,
    ) -> Result<(RecordLog, Option<Recovered>), LevelError> {
        let mut log = RecordLog::new(shape);
        let mut records: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        let mut failed: Vec<FailedPage> = Vec::new();
        let mut programmed = vec![0; shape.blocks as usize];
        let mut page_buffer = vec![0; shape.page_bytes];
        for block in 0..shape.blocks {
            let found = media.look(block)?;
            log.bad[block as usize] = !found.good;
            programmed[block as usize] = found.programmed;
            for page in 0..found.programmed {
                match media.read(block, page, &mut page_buffer)? {
                    LogRead::Whole => {}
                    LogRead::Torn => continue,
                    LogRead::Failed => {
                        failed.push(FailedPage { block, page, older_than: u64::MAX });
                        continue;
                    }
                }
                let part = decode(&page_buffer, block);
                if part.is_none() && page == 0 {
                    // A log writes the pages of a block from the first on: this is not one of its blocks.
                    break;
                }
                if let Some((number, part)) = part {
                    records.entry(number).or_default().push(part);
                    let before = failed.iter_mut().rev().take_while(|failed| failed.block == block);
                    before.for_each(|failed| failed.older_than = failed.older_than.min(number));
                }
            }
        }
        if let Some((number, parts)) = records.last_key_value() {
            log.number = *number;
            log.current = parts.last().map_or(log.current, |part| part.block);
        }
        // Only complete records count; their parts lie in the order of writing, which is that of their blocks' use.
        records.retain(|_, parts| {
            parts.sort_by_key(|part| part.part);
            let wanted = parts[0].parts;
            parts.len() == wanted as usize && parts.iter().enumerate().all(|(at, p)| p.part == at as u32)
        });
        let newest = records.iter().rev().find(|(_, parts)| parts[0].kind == Kind::Snapshot);
        let first = newest.map(|(number, _)| *number);
        let doubtful = failed.iter().find(|failed| first.is_none_or(|first| failed.older_than > first));
        if let Some(failed) = doubtful.filter(|_| unread == OnUnreadable::Refuse) {
            let page = media.name(failed.block, failed.page);
            return Err(LevelError::CannotTell { page, of: shape.of });
        }
        let Some(first) = first else { return Ok((log, None)) };
        let kept = records.split_off(&first);
        for part in kept.values().flatten() {
            if !log.live.contains(&part.block) {
                log.live.push(part.block);
            }
        }
        // A block with the beginning of a record that was interrupted is erased: going on in it, cut after cut, would leave
        // too few pages for a snapshot.
        let next = programmed[log.current as usize];
        if next < shape.pages_per_block && !log.bad[log.current as usize] && log.live.contains(&log.current) {
            log.next_page = Some(next);
        }
        let mut blobs =
            kept.into_values().map(|parts| parts.into_iter().flat_map(|part| part.payload).collect());
        let snapshot = blobs.next().unwrap_or_default();
        Ok((log, Some(Recovered { number: first, snapshot, deltas: blobs.collect() })))
    }

    /// Erases the blocks that hold nothing that counts: nobody takes what another use has left for records of this one.
    pub fn erase_others<M: LogMedia>(&mut self, media: &mut M) -> Result<(), LevelError> {
        for block in 0..self.shape.blocks {
            if self.bad[block as usize] || self.live.contains(&block) || media.look(block)?.clean {
                continue;
            }
            debug_assert!(self.next_page.is_none() || block != self.current, "the log erases its last block");
            self.bad[block as usize] = media.erase(block)? == Outcome::Bad;
        }
        Ok(())
    }

    /// Whether states whose snapshots have so many bytes can be recorded one after the other, also when blocks become bad; if not,
    /// the blocks that this takes and those that there are.
    pub fn check_room(&self, snapshot_bytes: usize) -> Result<(), (u32, u32)> {
        let LogShape { blocks, pages_per_block, page_bytes, .. } = self.shape;
        let wanted = LogShape::blocks_for(pages_per_block, page_bytes, snapshot_bytes);
        let good = self.bad.iter().filter(|bad| !**bad).count() as u32;
        let stood = wanted - BAD_BLOCKS_STOOD;
        if wanted <= blocks && stood <= good {
            Ok(())
        } else {
            Err((wanted, blocks.min(good + BAD_BLOCKS_STOOD)))
        }
    }

    /// Whether a snapshot of so many bytes can be written now.
    pub fn takes(&self, snapshot_bytes: usize) -> bool {
        let (blocks, tail) = self.room();
        let pages = self.shape.pages_of(snapshot_bytes);
        pages <= tail || pages <= blocks * u64::from(self.shape.pages_per_block)
    }

    /// Records a change: as a delta, or as a snapshot of the state after it when there is no room for more deltas. `snapshot_bytes`: a
    /// snapshot of the state after the change has as many, or fewer.
    pub fn commit<M: LogMedia>(
        &mut self,
        media: &mut M,
        delta: &[u8],
        snapshot: impl FnOnce() -> Result<Vec<u8>, LevelError>,
        snapshot_bytes: usize,
    ) -> Result<(), LevelError> {
        let ppb = u64::from(self.shape.pages_per_block);
        // In blocks without anything live, because what is left in the last block may go in a cut; and some that may fail.
        let kept = self.shape.pages_of(snapshot_bytes) + u64::from(BAD_BLOCKS_STOOD) * ppb;
        let (blocks, tail) = self.room();
        let taken = self.shape.pages_of(delta.len()).saturating_sub(tail).div_ceil(ppb);
        if self.live.is_empty() || blocks.saturating_sub(taken) * ppb < kept {
            return self.snapshot(media, &snapshot()?);
        }
        self.write(media, Kind::Delta, delta)
    }

    /// Records the whole state; what was recorded before does not count any more.
    pub fn snapshot<M: LogMedia>(&mut self, media: &mut M, state: &[u8]) -> Result<(), LevelError> {
        // In as few blocks as it needs, so that the others are free: into what is left of the last one only if it fits.
        let (_, tail) = self.room();
        if self.shape.pages_of(state.len()) > tail {
            self.next_page = None;
        }
        self.write(media, Kind::Snapshot, state)
    }

    /// Good blocks that hold nothing live, and pages left in the last block.
    fn room(&self) -> (u64, u64) {
        let spare = |b: &u32| !self.bad[*b as usize] && !self.live.contains(b);
        let blocks = (0..self.shape.blocks).filter(spare).count() as u64;
        let tail = self.next_page.filter(|_| self.live.contains(&self.current));
        (blocks, tail.map_or(0, |next| u64::from(self.shape.pages_per_block - next)))
    }

    fn write<M: LogMedia>(&mut self, media: &mut M, kind: Kind, blob: &[u8]) -> Result<(), LevelError> {
        for _ in 0..=self.shape.blocks {
            self.number += 1;
            let written = self.write_parts(media, kind, blob);
            if written.is_err() {
                self.next_page = None;
            }
            if let Some(used) = written? {
                match kind {
                    Kind::Snapshot => self.live = used,
                    Kind::Delta => self.live.extend(used),
                }
                self.live.dedup();
                debug_assert!(self.live.contains(&self.current), "a record lies where it was not written");
                debug_assert!(
                    self.live.iter().enumerate().all(|(at, block)| !self.live[..at].contains(block)),
                    "a block of the log counts twice"
                );
                return Ok(());
            }
        }
        Err(LevelError::LogFull(self.shape.of))
    }

    /// Writes a record and returns the blocks it lies in; `None` when a program failed.
    fn write_parts<M: LogMedia>(
        &mut self,
        media: &mut M,
        kind: Kind,
        blob: &[u8],
    ) -> Result<Option<Vec<u32>>, LevelError> {
        let payload_bytes = self.shape.page_bytes - HEADER_BYTES;
        let parts = self.shape.pages_of(blob.len()) as u32;
        let mut used: Vec<u32> = Vec::new();
        for part in 0..parts {
            let page = match self.next_page.filter(|page| *page < self.shape.pages_per_block) {
                Some(page) => page,
                None => {
                    self.advance(media, &used)?;
                    0
                }
            };
            let from = part as usize * payload_bytes;
            let payload = &blob[from.min(blob.len())..(from + payload_bytes).min(blob.len())];
            let raw = encode(kind, self.number, part, parts, payload, self.shape.page_bytes);
            debug_assert!(part > 0 || page == 0 || self.live.contains(&self.current));
            if media.program(self.current, page, &raw)? == Outcome::Bad {
                self.bad[self.current as usize] = true;
                self.next_page = None;
                return Ok(None);
            }
            self.next_page = Some(page + 1);
            if used.last() != Some(&self.current) {
                used.push(self.current);
            }
        }
        Ok(Some(used))
    }

    /// Takes the next block that holds nothing live.
    fn advance<M: LogMedia>(&mut self, media: &mut M, used: &[u32]) -> Result<(), LevelError> {
        for step in 1..=self.shape.blocks {
            let block = (self.current + step) % self.shape.blocks;
            if self.bad[block as usize] || self.live.contains(&block) || used.contains(&block) {
                continue;
            }
            let found = media.look(block)?;
            if !found.good || (!found.clean && media.erase(block)? == Outcome::Bad) {
                self.bad[block as usize] = true;
                continue;
            }
            // After an error it may be the one that was being written, with a part of a record that nobody was promised.
            debug_assert!(!self.live.contains(&block), "the log erases a block that counts");
            self.current = block;
            self.next_page = Some(0);
            return Ok(());
        }
        Err(LevelError::LogFull(self.shape.of))
    }
}

fn encode(kind: Kind, number: u64, part: u32, parts: u32, payload: &[u8], page_bytes: usize) -> Vec<u8> {
    let mut raw = Vec::with_capacity(page_bytes);
    raw.extend_from_slice(MAGIC);
    let length = payload.len() as u32;
    put(&mut raw, &[&(kind as u8), &VERSION, &0u16, &length, &number, &part, &parts]);
    crc32c_append(crc32c_append(crc32c(&raw), &[0; 4]), payload).put(&mut raw);
    assert_eq!(raw.len(), HEADER_BYTES);
    raw.extend_from_slice(payload);
    assert!(raw.len() <= page_bytes && part < parts, "a part of a record fits its page");
    raw.resize(page_bytes, 0);
    raw
}

/// A page as [`encode`] made it; `None` for any other.
fn decode(raw: &[u8], block: u32) -> Option<(u64, Part)> {
    let fields = |raw| -> Result<_, Truncated> {
        let mut reader = Reader::new(raw);
        let magic: [u8; 8] = reader.array()?;
        let (kind, version) = (reader.u8()?, reader.u8()?);
        reader.u16()?;
        let (length, number) = (reader.u32()?, reader.u64()?);
        let (part, parts) = (reader.u32()?, reader.u32()?);
        let crc = reader.u32()?;
        let payload = reader.bytes(length as usize)?.to_vec();
        Ok((magic, kind, version, number, part, parts, crc, payload))
    };
    let (magic, kind, version, number, part, parts, crc, payload) = fields(raw).ok()?;
    let computed = crc32c_append(crc32c_append(crc32c(&raw[..CRC_AT]), &[0; 4]), &payload);
    let kind = match kind {
        1 => Kind::Snapshot,
        2 => Kind::Delta,
        _ => return None,
    };
    let sound =
        &magic == MAGIC && version == VERSION && crc == computed && part < parts && number < NUMBER_MAX;
    sound.then_some((number, Part { kind, part, parts, block, payload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks in memory, with power that goes after so many operations and programs that fail.
    #[derive(Clone, Default)]
    struct Blocks {
        blocks: Vec<Vec<Option<Vec<u8>>>>,
        bad: Vec<bool>,
        power: Option<u32>,
        fail_every: u32,
        operations: u32,
        unreadable: Option<(u32, u32)>,
    }

    impl Blocks {
        fn new(blocks: usize) -> Blocks {
            Blocks { blocks: vec![Vec::new(); blocks], bad: vec![false; blocks], ..Blocks::default() }
        }

        fn step(&mut self) -> Result<(), LevelError> {
            self.operations += 1;
            match &mut self.power {
                Some(0) => Err(LevelError::PowerLost),
                Some(left) => {
                    *left -= 1;
                    Ok(())
                }
                None => Ok(()),
            }
        }
    }

    impl LogMedia for Blocks {
        fn look(&mut self, block: u32) -> Result<LogBlock, LevelError> {
            let programmed = self.blocks[block as usize].len() as u32;
            Ok(LogBlock { programmed, clean: programmed == 0, good: !self.bad[block as usize] })
        }

        fn read(&mut self, block: u32, page: u32, into: &mut [u8]) -> Result<LogRead, LevelError> {
            if self.unreadable == Some((block, page)) {
                return Ok(LogRead::Failed);
            }
            let page = &self.blocks[block as usize][page as usize];
            page.iter().for_each(|page| into.copy_from_slice(page));
            Ok(if page.is_some() { LogRead::Whole } else { LogRead::Torn })
        }

        fn name(&self, block: u32, page: u32) -> String {
            format!("block {block} page {page}")
        }

        fn program(&mut self, block: u32, page: u32, data: &[u8]) -> Result<Outcome, LevelError> {
            assert!(!self.bad[block as usize]);
            assert_eq!(self.blocks[block as usize].len(), page as usize);
            let cut = self.step();
            let fails = self.fail_every > 0 && self.operations.is_multiple_of(self.fail_every);
            let torn = cut.is_err() || fails;
            self.blocks[block as usize].push((!torn).then(|| data.to_vec()));
            cut?;
            self.bad[block as usize] = fails;
            Ok(if fails { Outcome::Bad } else { Outcome::Done })
        }

        fn erase(&mut self, block: u32) -> Result<Outcome, LevelError> {
            self.step()?;
            self.blocks[block as usize].clear();
            Ok(Outcome::Done)
        }
    }

    const SHAPE: LogShape = LogShape { blocks: 5, pages_per_block: 4, page_bytes: 64, of: "a test" };

    /// A state that is a counter, long enough for two pages; deltas say what it becomes.
    fn state(value: u32) -> Vec<u8> {
        value.to_le_bytes().repeat(10)
    }

    fn value(found: &Recovered) -> u32 {
        let last = found.deltas.last().unwrap_or(&found.snapshot);
        u32::from_le_bytes(last[..4].try_into().unwrap())
    }

    fn write(log: &mut RecordLog, media: &mut Blocks, value: u32) -> Result<(), LevelError> {
        log.commit(media, &value.to_le_bytes(), || Ok(state(value)), 40)
    }

    #[test]
    fn after_a_cut_at_every_operation_the_last_record_that_returned_is_there_and_the_log_goes_on() {
        for cut in 0..150 {
            let mut media = Blocks::new(5);
            media.power = Some(cut);
            let mut log = RecordLog::new(SHAPE);
            let done = (1..).take_while(|value| write(&mut log, &mut media, *value).is_ok()).count() as u32;
            media.power = None;
            let (mut log, found) = RecordLog::recover(&mut media, SHAPE, OnUnreadable::Refuse).unwrap();
            let found = found.as_ref().map_or(0, value);
            assert!(found == done || found == done + 1, "cut {cut}: {found} found, {done} returned");
            for more in 1..50 {
                write(&mut log, &mut media, found + more).unwrap();
                let (_, again) = RecordLog::recover(&mut media, SHAPE, OnUnreadable::Refuse).unwrap();
                assert_eq!(value(&again.unwrap()), found + more);
            }
        }
    }

    #[test]
    fn after_an_error_at_every_operation_the_same_log_goes_on_also_when_it_has_to_take_the_block_that_met_it()
    {
        for (bad, error) in (0..=3).flat_map(|bad| (0..60).map(move |error| (bad, error))) {
            let mut media = Blocks::new(5);
            media.bad[..bad].fill(true);
            media.power = Some(error);
            let (mut log, _) = RecordLog::recover(&mut media, SHAPE, OnUnreadable::Refuse).unwrap();
            let done = (1..).take_while(|value| write(&mut log, &mut media, *value).is_ok()).count() as u32;
            media.power = None;
            for next in done + 1..done + 30 {
                write(&mut log, &mut media, next).unwrap();
                let (_, found) = RecordLog::recover(&mut media, SHAPE, OnUnreadable::Refuse).unwrap();
                assert_eq!(value(&found.unwrap()), next, "{bad} bad, error at {error}");
            }
        }
    }

    #[test]
    fn cuts_in_a_row_while_snapshots_are_written_never_use_the_log_up() {
        for first in 0..40 {
            let mut media = Blocks::new(5);
            let mut log = RecordLog::new(SHAPE);
            (0..first).for_each(|value| write(&mut log, &mut media, value).unwrap());
            for round in 0..60 {
                media.power = Some(round % 4);
                let (mut log, _) = RecordLog::recover(&mut media, SHAPE, OnUnreadable::Refuse).unwrap();
                let cut = log.snapshot(&mut media, &state(round));
                assert!(matches!(cut, Ok(()) | Err(LevelError::PowerLost)), "{first} {round}: {cut:?}");
            }
        }
    }

    #[test]
    fn a_page_that_cannot_be_read_is_stale_or_the_log_is_refused_and_never_an_older_state_is_returned() {
        let mut refused = 0;
        for last in 1..60 {
            let mut media = Blocks::new(5);
            let mut log = RecordLog::new(SHAPE);
            (1..=last).for_each(|value| write(&mut log, &mut media, value).unwrap());
            let pages: Vec<(u32, u32)> = (0..5)
                .flat_map(|block| (0..media.blocks[block].len()).map(move |page| (block as u32, page as u32)))
                .collect();
            for page in pages {
                media.unreadable = Some(page);
                match RecordLog::recover(&mut media, SHAPE, OnUnreadable::Refuse) {
                    Ok((_, found)) => assert_eq!(value(&found.unwrap()), last),
                    Err(LevelError::CannotTell { page: named, .. }) => {
                        assert_eq!(named, format!("block {} page {}", page.0, page.1));
                        refused += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!(refused > 0);
    }

    #[test]
    fn programs_that_fail_cost_blocks_and_no_record_until_no_block_is_left() {
        let mut media = Blocks { fail_every: 13, ..Blocks::new(6) };
        let shape = LogShape { blocks: 6, ..SHAPE };
        let mut log = RecordLog::new(shape);
        let mut last = 0;
        let refused = loop {
            if let Err(error) = write(&mut log, &mut media, last + 1) {
                break error;
            }
            last += 1;
            let (_, found) = RecordLog::recover(&mut media, shape, OnUnreadable::Refuse).unwrap();
            assert_eq!(value(&found.unwrap()), last);
        };
        assert!(matches!(refused, LevelError::LogFull(_)) && last > 10, "{refused} after {last}");
        let (_, found) = RecordLog::recover(&mut media, shape, OnUnreadable::Refuse).unwrap();
        assert_eq!(value(&found.unwrap()), last);
    }

    #[test]
    fn a_changed_byte_makes_a_page_count_for_nothing() {
        let raw = encode(Kind::Delta, 7, 0, 1, b"abc", 64);
        assert!(decode(&raw, 0).is_some());
        for at in 0..39 {
            let mut changed = raw.clone();
            changed[at] ^= 1;
            assert!(decode(&changed, 0).is_none(), "byte {at}");
        }
    }
}
