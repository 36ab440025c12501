//! Log blocks of the function level as the page map wants them.

use super::{LABEL, LOST, NO_PAGE, Slots};
use weft_core::{Nanos, Tag};
use weft_device::gc::{Media, Outcome};
use weft_flash::function::{BlockWrite, Mapping};
use weft_flash::{FunctionLevel, GrantBlock, LevelError};
use weft_tags::PAGE_BYTES;

pub(super) struct LogMedia<'a> {
    level: &'a FunctionLevel,
    slots: &'a mut Slots,
    /// New data, and its tag.
    given: Option<(&'a [u8], Tag)>,
    issued: Nanos,
    /// When all that was done is over.
    pub end: Nanos,
}

impl<'a> LogMedia<'a> {
    pub fn new(
        level: &'a FunctionLevel,
        slots: &'a mut Slots,
        issued: Nanos,
        given: Option<(&'a [u8], Tag)>,
    ) -> LogMedia<'a> {
        LogMedia { level, slots, given, issued, end: issued }
    }

    fn pages_per_block(&self) -> u32 {
        self.level.geometry().pages_per_block
    }

    /// The flash of a block of the map, which gets some now if it has none; `None` when there is none left: more blocks have become bad
    /// than the map knows.
    fn block(&mut self, number: u32, front: usize) -> Result<Option<GrantBlock>, LevelError> {
        if let Some(held) = self.slots.held[number as usize] {
            return Ok(Some(held));
        }
        let channels = self.level.geometry().channels();
        for _ in 0..channels {
            let channel = self.slots.channel % channels;
            self.slots.channel = (channel + 1) % channels;
            match self.level.address_mapper(self.issued, channel, Mapping::Log, LABEL | front as u64) {
                Ok(taken) => {
                    self.slots.held[number as usize] = Some(taken.block);
                    return Ok(Some(taken.block));
                }
                Err(LevelError::NoFreeBlock { .. }) => {}
                Err(LevelError::TooManyMapped { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        Ok(None)
    }

    /// Reads what is to be copied, with its tag; what the number of its copy says of it.
    fn read(&mut self, page: u32, from: u32, data: &mut [u8]) -> Result<(u32, Tag), LevelError> {
        let (number, place) = (from / self.pages_per_block(), from % self.pages_per_block());
        let held = self.slots.held[number as usize];
        let block =
            held.ok_or_else(|| LevelError::Damaged(format!("slot {from} is valid and has no flash")))?;
        match self.level.flash_read_tagged(self.issued, block, place, data) {
            Ok((done, tag)) => {
                self.end = self.end.max(done.done);
                let lost = if self.slots.lost.contains(&page) { LOST } else { 0 };
                Ok((page | lost, tag))
            }
            // Whoever reads the page is told; the others in its block go on living.
            Err(LevelError::Unreadable { .. }) => {
                tracing::warn!(page, "a page cannot be read when it is moved; its data is lost");
                self.slots.lost.insert(page);
                Ok((page | LOST, Tag::default()))
            }
            // Its tag is damaged: the data is worth keeping without.
            Err(LevelError::Damaged(_)) => Ok((page, Tag::default())),
            Err(other) => Err(other),
        }
    }
}

impl Media for LogMedia<'_> {
    type Error = LevelError;

    fn program(
        &mut self,
        to: u32,
        page: u32,
        from: Option<u32>,
        front: usize,
    ) -> Result<Outcome, LevelError> {
        let mut copy = [0; PAGE_BYTES];
        let (page, tag) = match (from, self.given) {
            (Some(from), _) => self.read(page, from, &mut copy)?,
            (None, Some((_, tag))) => (page, tag),
            (None, None) => return Err(LevelError::Damaged("a page is written without data".into())),
        };
        let data = match (from, self.given) {
            (None, Some((data, _))) => data,
            _ => &copy[..],
        };
        let Some(block) = self.block(to / self.pages_per_block(), front)? else { return Ok(Outcome::Bad) };
        match self.level.flash_write_tagged(self.issued, &BlockWrite { block, page, data, tag }) {
            Ok(done) => {
                self.end = self.end.max(done.done);
                self.slots.pages[to as usize] = page;
                Ok(Outcome::Done)
            }
            Err(LevelError::BlockRetired { .. }) => Ok(Outcome::Bad),
            Err(other) => Err(other),
        }
    }

    fn erase(&mut self, block: u32) -> Result<Outcome, LevelError> {
        let first = (block * self.pages_per_block()) as usize;
        // The level erases it when a block is wanted. One whose flash is bad is not given out again.
        let outcome = match self.slots.held[block as usize] {
            Some(held) => {
                let is_bad = self.level.is_retired(held)?;
                self.level.flash_trim(held)?;
                if is_bad { Outcome::Bad } else { Outcome::Done }
            }
            None => Outcome::Bad,
        };
        self.slots.held[block as usize] = None;
        self.slots.pages[first..first + self.level.geometry().pages_per_block as usize].fill(NO_PAGE);
        Ok(outcome)
    }
}
