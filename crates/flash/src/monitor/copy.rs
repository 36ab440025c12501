//! Copying a block page by page, with its out-of-band bytes and its unreadable pages.

use super::Monitor;
use super::layout::PhysBlock;
use crate::backend::read_again;
use crate::error::LevelError;
use weft_core::Nanos;
use weft_device::gc::Outcome;
use weft_device::nand::{BlockInfo, BlockState, FlashError, PageRead, Unreadable};

/// First out-of-band byte of a page that stands for one that could not be read when its block was moved.
const LOST: u8 = 1;
/// The same, of a page whose program had been interrupted: nobody was told that it is done.
const TORN: u8 = 2;

/// Why a page with this first out-of-band byte cannot be read; `None` when it can.
pub(super) fn why_marked(mark: u8) -> Option<Unreadable> {
    match mark {
        LOST => Some(Unreadable::Moved),
        TORN => Some(Unreadable::Torn),
        _ => None,
    }
}

/// Pages that a block holds. When a program fails the block takes no further one: its last page is the one that failed. That
/// page was never promised and can be written again, at its number, once a spare has taken the block's place.
pub(super) fn pages_held(info: &BlockInfo) -> u32 {
    match info.state {
        BlockState::Dead | BlockState::FactoryBad | BlockState::EraseIncomplete => 0,
        // What is stored of the block may be forged.
        BlockState::ReadOnly => info.programmed.saturating_sub(1),
        BlockState::Free | BlockState::Open | BlockState::Full => info.programmed,
    }
}

/// What moving blocks cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Moved {
    pub pages: u64,
    pub blocks: u64,
}

impl Monitor {
    /// Copies the first pages of a block to an erased one. [`Outcome::Bad`] when a program failed.
    pub(super) fn copy_pages(
        &self,
        from: PhysBlock,
        to: PhysBlock,
        pages: u32,
        now: &mut Nanos,
    ) -> Result<Outcome, LevelError> {
        if pages == 0 {
            // What has nothing may be nowhere.
            return Ok(Outcome::Done);
        }
        let shape = self.layout.shape;
        let (from, to) = (self.layout.address(from), self.layout.address(to));
        let mut data = vec![0; shape.page_bytes as usize];
        let mut oob = vec![0; shape.oob_bytes as usize];
        for page in 0..pages {
            let read = PageRead { page: from.page(page), offset: 0, data: &mut data, oob: &mut oob };
            match read_again(&*self.backend, *now, read) {
                Ok(done) => *now = done.done,
                Err(FlashError::Uncorrectable { why, done, .. }) => {
                    *now = done;
                    data.fill(0);
                    oob.fill(0);
                    oob[0] = if why.is_interrupted() { TORN } else { LOST };
                }
                Err(other) => return Err(other.into()),
            }
            match self.backend.program(*now, to.page(page), &data, &oob) {
                Ok(done) => *now = done.done,
                Err(FlashError::ProgramFailed { done, .. }) => {
                    *now = done;
                    return Ok(Outcome::Bad);
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(Outcome::Done)
    }

    /// Copies a block to a free one of the given LUN and returns that one, which is marked as used.
    pub(super) fn copy_to_lun(
        &self,
        control: &mut super::control::Control,
        from: PhysBlock,
        pages: Option<u32>,
        lun: u32,
        now: &mut Nanos,
    ) -> Result<Option<(PhysBlock, u32)>, LevelError> {
        let held = if from.is_missing() {
            0
        } else {
            pages_held(&self.backend.block_info(self.layout.address(from))?)
        };
        let pages = pages.map_or(held, |most| most.min(held));
        loop {
            let to = control.take(&*self.backend, &self.layout, lun, self.layout.plane(from), now)?;
            let Some(to) = to else { return Ok(None) };
            match self.copy_pages(from, to, pages, now) {
                Ok(Outcome::Done) => return Ok(Some((to, pages))),
                Ok(Outcome::Bad) => control.give_back(to),
                Err(error) => {
                    control.give_back(to);
                    return Err(error);
                }
            }
        }
    }
}
