//! Finds the map of a grant in the out-of-band bytes of its pages.

use super::{FunctionPages, FunctionPagesSetup, LABEL, LOST, NO_PAGE, Slots, State};
use crate::clock::Clock;
use crate::error::FlashPagesError;
use crate::stream::FRONTS;
use parking_lot::RwLock;
use std::collections::BTreeSet;
use weft_core::Nanos;
use weft_device::gc::{MapperSetup, PageMapper, RestoredBlock};
use weft_flash::function::{FoundBlock, Mapping};
use weft_flash::{FunctionLevel, LevelError};

/// What is known of a page so far: the number of its last write, and its slot.
type Newest = Option<(u64, u32, bool)>;

/// Puts the map together from what is on the blocks.
pub(super) fn recover(
    level: FunctionLevel,
    name: &str,
    mapper: MapperSetup,
    blocks: u64,
    setup: FunctionPagesSetup,
) -> Result<FunctionPages, FlashPagesError> {
    let clock = Clock::at(level.now()?);
    // How much stays free is the map's business.
    level.set_ops(0)?;
    let per_block = mapper.slots_per_block;
    let mut slots = Slots {
        held: vec![None; mapper.blocks as usize],
        pages: vec![NO_PAGE; (mapper.blocks * per_block) as usize],
        lost: BTreeSet::new(),
        channel: 0,
    };
    let mut restored = vec![RestoredBlock::default(); mapper.blocks as usize];
    let mut newest: Vec<Newest> = vec![None; mapper.pages as usize];
    for (number, found) in level.mapped_blocks().into_iter().enumerate() {
        let front = front_in(name, &found)?;
        slots.held[number] = Some(found.block);
        restored[number] =
            RestoredBlock { filled: found.written, front, open: true, ..RestoredBlock::default() };
        for page in level.log_pages(Nanos(0), found.block)? {
            let Some(written) = page.number else {
                let page = found.block.page(page.place).to_string();
                return Err(FlashPagesError::Unreadable { grant: name.to_string(), page });
            };
            let slot = number as u32 * per_block + page.place;
            slots.pages[slot as usize] = written;
            let known = newest.get_mut((written & !LOST) as usize).ok_or_else(|| {
                let what =
                    format!("a page of it has the number {written}, and the store has {blocks} blocks");
                FlashPagesError::NotAStore { grant: name.to_string(), what }
            })?;
            *known = (*known).max(Some((page.sequence, slot, written & LOST != 0)));
        }
    }
    // Flash that is bad takes the place of blocks that could be free.
    let (_, _, retired) = level.census();
    restored.iter_mut().rev().take(retired as usize).for_each(|block| block.bad = true);
    let valid =
        (0..).zip(&newest).filter_map(|(page, known): (u32, _)| known.map(|(_, slot, _)| (slot, page)));
    let mapper = PageMapper::restore::<LevelError>(mapper, &restored, valid)
        .map_err(|error| LevelError::Damaged(format!("the map of the grant '{name}': {error}")))?;
    let lost = (0..).zip(&newest).filter(|(_, known): &(u32, _)| known.is_some_and(|(.., lost)| lost));
    slots.lost = lost.map(|(page, _)| page).collect();
    let state = RwLock::new(State { mapper, slots });
    Ok(FunctionPages { level, blocks, streams: setup.streams, clock, state })
}

/// The front that filled a block.
fn front_in(name: &str, found: &FoundBlock) -> Result<usize, FlashPagesError> {
    let front = (found.label ^ LABEL) as usize;
    if found.mapping == Mapping::Log && front < FRONTS {
        return Ok(front);
    }
    let what =
        format!("block {} has the label {:#x}, which is another application's", found.block, found.label);
    Err(FlashPagesError::NotAStore { grant: name.to_string(), what })
}
