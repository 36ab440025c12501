//! A store's blocks on the function level.
//!
//! ```text
//!  block of the store --map--> slot = block of the map x pages of a block + place
//!  block of the map   --held-> log block of the function level, labelled with its front
//!  out-of-band bytes  number: the store's block | order of the write | tag
//! ```
//!
//! The map is the one of [`weft_device::gc`], over log blocks of the level: a write goes to the open block of its front, and the cleaner moves
//! what is valid in the emptiest block. [Fronts](crate::stream) are kinds of pages: checkpoints, the journal, pages by class, pages to be
//! erased. Nothing is stored beside the pages: an opening reads the out-of-band bytes of all blocks, and of the pages with one number the
//! one that was written last counts.
//!
//! A trim is not stored. After a power cut what was freed is there again, or what was there before it; a store that is opened frees all that is free.
//!
//! **Locks.** One lock guards the map. Reads share it, over the command of the flash, so that the cleaner does not take a block away under
//! them; writes, frees and erasures have it alone.

mod media;
mod recover;

use crate::clock::Clock;
use crate::error::{FlashPagesError, beyond_end, to_io};
use crate::stream::{FRONTS, StreamChoice, front_of, relocation_of};
use media::LogMedia;
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use weft_core::{Nanos, Tag};
use weft_device::gc::{GcError, MapperCounts, MapperSetup, PageMapper, VictimPolicy};
use weft_flash::{FunctionLevel, Grant, GrantBlock, GrantGeometry, LevelError};
use weft_tags::{PAGE_BYTES, PageStore};

/// Free blocks below which the cleaner works.
const RESERVE_BLOCKS: u32 = 2;
/// What the label of each block begins with; the front is in its lowest byte.
const LABEL: u64 = u64::from_le_bytes(*b"\0WFPAGE1");
/// In a page's number: the data could not be read when the page was moved.
const LOST: u32 = 1 << 31;
/// A slot that has no page, or one that nobody can tell.
const NO_PAGE: u32 = u32::MAX;

/// How a store lies on the function level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionPagesSetup {
    /// Which block is cleaned next.
    pub gc: VictimPolicy,
    /// Which front a page goes to.
    pub streams: StreamChoice,
}

impl Default for FunctionPagesSetup {
    fn default() -> FunctionPagesSetup {
        FunctionPagesSetup { gc: VictimPolicy::Greedy, streams: StreamChoice::ByTag }
    }
}

/// A store's blocks on a grant at the function level.
#[derive(Debug)]
pub struct FunctionPages {
    level: FunctionLevel,
    blocks: u64,
    streams: StreamChoice,
    clock: Clock,
    state: RwLock<State>,
}

/// What the lock guards.
#[derive(Debug)]
struct State {
    mapper: PageMapper,
    slots: Slots,
}

/// What is in the flash that the map numbers.
#[derive(Debug)]
struct Slots {
    /// By block of the map: the block that it has, if it has one.
    held: Vec<Option<GrantBlock>>,
    /// By slot: the page that was written there last, stale or not.
    pages: Vec<u32>,
    /// Pages whose data was lost.
    lost: BTreeSet<u32>,
    /// The channel that the next block is asked of.
    channel: u32,
}

impl FunctionPages {
    /// Begins anew on a grant: all blocks that an earlier use at this level left on it are erased. Over-provisioning is that of the grant.
    ///
    /// # Errors
    /// [`FlashPagesError::PageSize`], [`FlashPagesError::TooSmall`]; [`FlashPagesError::Level`], also when the grant holds data of
    /// the policy level.
    pub fn create(grant: Grant, setup: FunctionPagesSetup) -> Result<FunctionPages, FlashPagesError> {
        crate::policy::check_pages(&grant)?;
        let name = grant.name().to_string();
        let (mapper, blocks) = mapper_setup(&name, grant.geometry(), setup)?;
        let level = FunctionLevel::open(grant)?;
        for found in level.mapped_blocks() {
            level.flash_trim(found.block)?;
        }
        level.flush(Nanos(0))?;
        recover::recover(level, &name, mapper, blocks, setup)
    }

    /// Opens what [`FunctionPages::create`] made.
    ///
    /// # Errors
    /// [`FlashPagesError::NotAStore`], [`FlashPagesError::PageSize`], [`FlashPagesError::Unreadable`]; [`FlashPagesError::Level`].
    pub fn open(grant: Grant, setup: FunctionPagesSetup) -> Result<FunctionPages, FlashPagesError> {
        crate::policy::check_pages(&grant)?;
        let name = grant.name().to_string();
        let (mapper, blocks) = mapper_setup(&name, grant.geometry(), setup)?;
        let level = FunctionLevel::open(grant)?;
        if level.mapped_blocks().is_empty() {
            let what = "nothing is written on it at the function level".into();
            return Err(FlashPagesError::NotAStore { grant: name, what });
        }
        recover::recover(level, &name, mapper, blocks, setup)
    }

    /// What the map has counted since the medium was opened, in pages and blocks.
    pub fn counts(&self) -> MapperCounts {
        self.state.read().mapper.counts()
    }

    /// The tag that a block was written with; one that says nothing when it was not, or is free.
    ///
    /// # Errors
    /// Those of [`FunctionLevel::tag_of`].
    pub fn tag_of(&self, block: u64) -> Result<Tag, LevelError> {
        let state = self.state.read();
        match state.place_of(block as u32, self.pages_per_block()) {
            Some((held, place)) => self.level.tag_of(self.clock.now(), held, place),
            None => Ok(Tag::default()),
        }
    }

    /// The level below.
    pub fn level(&self) -> &FunctionLevel {
        &self.level
    }

    /// The moment up to which the store has waited, in the device's virtual time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Checks that the map, its owners and its blocks agree. Takes time in proportion to the grant.
    ///
    /// # Errors
    /// What does not agree.
    pub fn verify(&self) -> Result<(), String> {
        let state = self.state.read();
        state.mapper.verify()?;
        for (number, held) in state.slots.held.iter().enumerate() {
            let (valid, _) = state.mapper.block_use(number as u32).unwrap_or_default();
            if valid > 0 && held.is_none() {
                return Err(format!("block {number} has {valid} pages and no flash"));
            }
        }
        Ok(())
    }

    fn pages_per_block(&self) -> u32 {
        self.level.geometry().pages_per_block
    }

    fn check(&self, block: u64, blocks: u64) -> io::Result<()> {
        let end = block.checked_add(blocks).filter(|end| *end <= self.blocks);
        end.map(drop).ok_or_else(|| beyond_end(block))
    }

    fn read_page(&self, state: &State, issued: Nanos, page: u32, out: &mut [u8]) -> io::Result<()> {
        if state.slots.lost.contains(&page) {
            let what = format!("block {page} could not be read when the flash's cleaner moved it");
            return Err(io::Error::other(what));
        }
        match state.place_of(page, self.pages_per_block()) {
            Some((block, place)) => {
                let done = self.level.flash_read(issued, block, place, 0, out).map_err(to_io)?;
                self.clock.waited(done.done);
            }
            None => out.fill(0),
        }
        Ok(())
    }

    fn write_part(&self, state: &mut State, first: u32, tag: Tag, data: &[u8]) -> Result<(), LevelError> {
        let (front, issued) = (front_of(&tag), self.clock.now());
        let State { mapper, slots } = state;
        for (page, data) in (first..).zip(data.chunks_exact(PAGE_BYTES)) {
            let mut media = LogMedia::new(&self.level, slots, issued, Some((data, tag)));
            mapper.write(&mut media, page, front).map_err(level_error)?;
            self.clock.will_have_written(media.end);
            slots.lost.remove(&page);
        }
        Ok(())
    }

    /// Erases every block of the flash that has stale copies of these pages, once what is valid in it has moved.
    fn erase_stale(&self, wanted: &BTreeSet<u32>) -> Result<(), LevelError> {
        let mut state = self.state.write();
        let State { mapper, slots } = &mut *state;
        let per_block = self.pages_per_block();
        let is_stale = |mapper: &PageMapper, slots: &Slots, number: u32| {
            let (first, (_, filled)) = (number * per_block, mapper.block_use(number).unwrap_or_default());
            (first..first + filled).any(|slot| {
                let page = slots.pages[slot as usize];
                // What power or an error interrupted may be of any page.
                mapper.page_in(slot).is_none() && (page == NO_PAGE || wanted.contains(&(page & !LOST)))
            })
        };
        let blocks: Vec<u32> =
            (0..slots.held.len() as u32).filter(|number| is_stale(mapper, slots, *number)).collect();
        // What is open is closed first: the cleaner takes closed blocks.
        for number in &blocks {
            mapper.close_block(*number);
        }
        for number in blocks {
            let mut media = LogMedia::new(&self.level, slots, self.clock.now(), None);
            mapper.collect_this(&mut media, number).map_err(level_error)?;
            self.clock.will_have_written(media.end);
        }
        let end = self.level.flush(self.clock.written())?;
        self.clock.waited(end);
        self.level.forget_erased()
    }
}

impl State {
    /// Where a page is.
    fn place_of(&self, page: u32, pages_per_block: u32) -> Option<(GrantBlock, u32)> {
        let slot = self.mapper.slot_of(page)?;
        Some((self.slots.held[(slot / pages_per_block) as usize]?, slot % pages_per_block))
    }
}

/// The map of a grant, and the blocks of the store that it has room for. They do not depend on what may be chosen anew at each opening.
fn mapper_setup(
    name: &str,
    geometry: &GrantGeometry,
    setup: FunctionPagesSetup,
) -> Result<(MapperSetup, u64), FlashPagesError> {
    let (blocks, per_block) = (geometry.blocks(), geometry.pages_per_block);
    // One more than is open or free: else cleaning would gain nothing.
    let kept = RESERVE_BLOCKS + FRONTS as u32 + 1;
    let slots = u64::from(blocks.saturating_sub(kept)) * u64::from(per_block);
    let pages = slots * 1000 / (1000 + u64::from(geometry.over_provisioning_permille));
    let too_small = |what| FlashPagesError::TooSmall { grant: name.to_string(), what };
    if pages == 0 {
        let what = format!("{blocks} erase blocks, of which {kept} are open or kept free");
        return Err(too_small(what));
    }
    let pages = u32::try_from(pages).ok().filter(|pages| *pages < LOST);
    let pages = pages.ok_or_else(|| too_small(format!("more pages than a map has numbers for: {slots}")))?;
    let relocation = (0..FRONTS).map(relocation_of).collect();
    let mapper = MapperSetup {
        blocks,
        slots_per_block: per_block,
        pages,
        reserve_blocks: RESERVE_BLOCKS,
        victim: setup.gc,
        relocation,
        seed: 0,
    };
    Ok((mapper, u64::from(pages)))
}

/// A failure of the map, as the level would have said it.
fn level_error(error: GcError<LevelError>) -> LevelError {
    match error {
        GcError::Media(error) => error,
        error @ GcError::OutOfSpace { .. } => LevelError::NoRoom { start: 0, why: error.to_string() },
        other => LevelError::BadRequest(other.to_string()),
    }
}

impl PageStore for FunctionPages {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_many(&mut [(block, out)])
    }

    /// All are issued at once.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        let issued = self.clock.now();
        let state = self.state.read();
        for (block, out) in reads {
            self.check(*block, (out.len() / PAGE_BYTES) as u64)?;
            for (page, out) in (*block as u32..).zip(out.chunks_exact_mut(PAGE_BYTES)) {
                self.read_page(&state, issued, page, out)?;
            }
        }
        Ok(())
    }

    fn write(&self, block: u64, tag: &Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.check(block, (bytes / PAGE_BYTES) as u64)?;
        let tag = self.streams.place(tag);
        let mut page = block as u32;
        for part in parts {
            self.write_part(&mut self.state.write(), page, tag, part).map_err(to_io)?;
            page += (part.len() / PAGE_BYTES) as u32;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.level.sync().map_err(to_io)?;
        self.clock.waited(self.clock.written());
        Ok(())
    }

    fn discard(&self, block: u64, blocks: u64) {
        self.free(&[(block, blocks)]);
    }

    fn uses_free(&self) -> bool {
        true
    }

    fn free(&self, runs: &[(u64, u64)]) {
        let mut state = self.state.write();
        let end = |block: u64, blocks: u64| block.saturating_add(blocks).min(self.blocks);
        for page in runs.iter().flat_map(|(block, blocks)| *block..end(*block, *blocks)) {
            state.slots.lost.remove(&(page as u32));
            // The map has the page.
            let _ = state.mapper.trim::<LevelError>(page as u32);
        }
    }

    fn overwrites(&self) -> bool {
        false
    }

    fn erase(&self, runs: &[(u64, u64)]) -> io::Result<()> {
        let pages = runs.iter().flat_map(|(block, blocks)| *block..*block + *blocks);
        self.erase_stale(&pages.map(|page| page as u32).collect()).map_err(to_io)
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        if blocks <= self.blocks {
            return Ok(());
        }
        let what =
            format!("the grant on the flash has room for {} blocks, and {blocks} are wanted", self.blocks);
        Err(io::Error::new(io::ErrorKind::StorageFull, what))
    }
}
