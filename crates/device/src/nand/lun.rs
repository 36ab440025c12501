//! A LUN: its blocks, and what a command on them needs to hold.

use super::address::{BlockAddr, FlashShape, PageAddr};
use super::block::{Block, Health, Unsynced};
use super::contents::Contents;
use super::counters::FlashCounters;
use super::error::{FlashError, Unreadable};
use super::image::{FlashImage, LivePage};
use super::setup::FlashSetup;
use crate::DeviceError;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use weft_core::Nanos;

/// Latest moment at which an operation can be issued, in nanoseconds (18 years); a later one counts as this. An image holds
/// moments up to twice as late, which leaves 18 years to operations that wait for each other.
pub(crate) const ISSUED_MAX_NS: u64 = 1 << 59;

/// A failure that is asked for. It meets the next operation of its kind at that place, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The next program of this page fails.
    Program(PageAddr),
    /// The next erase of this block fails.
    Erase(BlockAddr),
    /// The next read of this page cannot be corrected.
    Read(PageAddr),
    /// The host meets this error when it is to keep the next program of this page.
    Host(PageAddr, ErrorKind),
}

/// What a LUN's lock guards.
#[derive(Clone, Debug)]
pub(crate) struct Lun {
    /// Its number.
    pub index: u32,
    pub blocks: Vec<Block>,
    pub contents: Contents,
    /// When it is free.
    pub busy: u64,
    pub counters: FlashCounters,
    /// Erases, of these without any page programmed: pages that were not written.
    pub pages_erased_unwritten: u64,
    pub faults: Vec<Fault>,
    /// Where the pages are kept if not in memory.
    image: Option<ImageRange>,
}

/// The image of a LUN's blocks.
#[derive(Clone, Debug)]
struct ImageRange {
    image: Arc<FlashImage>,
    /// The number of the LUN's first block in the device.
    first: u64,
    kept: Vec<Kept>,
}

/// What the image needs to know of a block beside its state.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Which slot of its record counts.
    slot: u32,
    unsynced: Unsynced,
}

impl ImageRange {
    fn page(&self, at: u32, page: u32, blocks: &[Block]) -> LivePage {
        LivePage { block: self.first + u64::from(at), page, erases: blocks[at as usize].erases }
    }
}

impl Lun {
    pub fn new(index: u32, setup: &FlashSetup, shape: &FlashShape) -> Lun {
        let blocks = shape.blocks_per_lun();
        Lun {
            index,
            blocks: vec![Block::default(); blocks as usize],
            contents: Contents::new(
                setup.keep,
                blocks,
                shape.pages_per_block,
                shape.page_bytes,
                shape.oob_bytes,
            ),
            busy: 0,
            counters: FlashCounters::default(),
            pages_erased_unwritten: 0,
            faults: Vec::new(),
            image: None,
        }
    }

    /// The LUN as the image says it is, at this moment of device time. What its blocks do not tell is counted from 0.
    pub fn restore(
        &mut self,
        image: Arc<FlashImage>,
        blocks: &[(Block, u32)],
        now: u64,
        pages_per_block: u32,
    ) {
        self.blocks = blocks.iter().map(|(block, _)| block.clone()).collect();
        self.contents = Contents::nothing();
        let kept = |(_, slot): &(Block, u32)| Kept { slot: *slot, unsynced: Unsynced::default() };
        let kept = blocks.iter().map(kept).collect();
        self.image = Some(ImageRange { image, first: u64::from(self.index) * blocks.len() as u64, kept });
        self.busy = now;
        let sum = |of: fn(&Block) -> u64| self.blocks.iter().map(of).sum::<u64>();
        self.counters.blocks_erased = sum(|block| u64::from(block.erases));
        self.counters.pages_programmed = sum(|block| block.programmed);
        self.counters.pages_erased = sum(|block| block.programmed - u64::from(block.next));
        let erased = self.counters.blocks_erased * u64::from(pages_per_block);
        self.pages_erased_unwritten = erased.saturating_sub(self.counters.pages_erased);
    }

    /// Whether data has to be given with a program.
    pub fn keeps_data(&self) -> bool {
        self.image.is_some() || self.contents.keeps_data()
    }

    /// Stores what is known of a block.
    pub fn publish(&mut self, at: u32) {
        if let Some(ImageRange { image, first, kept }) = &mut self.image {
            let Kept { slot, unsynced } = &mut kept[at as usize];
            *slot = image.publish(*first + u64::from(at), *slot, &self.blocks[at as usize], *unsynced);
        }
    }

    /// Meets an error of the host that was asked for at a page; it is then used up.
    #[inline]
    pub fn meet_host(&mut self, page: PageAddr) -> Result<(), DeviceError> {
        if self.faults.is_empty() { Ok(()) } else { self.meet_host_of(page) }
    }

    fn meet_host_of(&mut self, page: PageAddr) -> Result<(), DeviceError> {
        let asked = self.faults.iter().enumerate().find_map(|(number, fault)| match fault {
            Fault::Host(at, kind) if *at == page => Some((number, *kind)),
            _ => None,
        });
        let Some((number, kind)) = asked else { return Ok(()) };
        self.faults.swap_remove(number);
        let image = self.image.as_ref().map(|range| range.image.path());
        Err(DeviceError::of_image(image.unwrap_or(Path::new("flash in memory")), kind.into()))
    }

    /// Stores the content of a page.
    #[inline]
    pub fn store(&mut self, at: u32, page: u32, data: &[u8], oob: &[u8]) -> Result<(), DeviceError> {
        if self.image.is_none() {
            self.contents.program(at, page, data, oob);
            return Ok(());
        }
        self.write_to_image(at, page, |image, place| image.program(place, data, oob))
    }

    /// Stores that a page cannot be read. Its block is told by [`Block::tear`].
    pub fn store_torn(&mut self, at: u32, page: u32) -> Result<(), DeviceError> {
        self.write_to_image(at, page, FlashImage::tear)
    }

    /// Writes a page to the image, if there is one, and notes that a sync has to make it durable. `write` returns its number.
    fn write_to_image(
        &mut self,
        at: u32,
        page: u32,
        write: impl FnOnce(&FlashImage, LivePage) -> Result<u64, DeviceError>,
    ) -> Result<(), DeviceError> {
        let Some(range) = &mut self.image else { return Ok(()) };
        let place = range.page(at, page, &self.blocks);
        let unsynced = &mut range.kept[at as usize].unsynced;
        unsynced.begin(self.blocks[at as usize].next, range.image.synced());
        unsynced.write = write(&range.image, place)?;
        Ok(())
    }

    /// Writes down that a block is about to be erased, if it holds anything and nobody has said so before. Whether a sync has to
    /// follow, before it is erased.
    pub fn announce_erase(&mut self, at: u32) -> bool {
        let Some(range) = &mut self.image else { return false };
        let block = &self.blocks[at as usize];
        if block.next == 0 || block.health != Health::Good {
            return false;
        }
        let unsynced = &mut range.kept[at as usize].unsynced;
        if unsynced.erase > 0 {
            return unsynced.erase > range.image.synced();
        }
        unsynced.erase = range.image.number_a_write();
        self.publish(at);
        true
    }

    /// Writes down that a block is not erased after all.
    pub fn withdraw_erase(&mut self, at: u32) {
        let Some(range) = &mut self.image else { return };
        if std::mem::take(&mut range.kept[at as usize].unsynced.erase) > 0 {
            self.publish(at);
        }
    }

    /// An erase of a block has ended; what it is now has not been published.
    pub fn end_erase(&mut self, at: u32) {
        if let Some(range) = &mut self.image {
            let unsynced = &mut range.kept[at as usize].unsynced;
            (unsynced.from, unsynced.erase) = (0, 0);
        }
    }

    /// After an error of the host in another plane: a page that was stored and does not count is gone, also after a crash of the host.
    pub fn forget(&self, at: u32, page: u32) -> Result<(), DeviceError> {
        let Some(range) = &self.image else { return Ok(()) };
        range.image.forget_page(range.page(at, page, &self.blocks))
    }

    /// Loads the content of a page; what is the matter with it when what is stored is not whole.
    pub fn load(
        &self,
        at: u32,
        page: u32,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Option<Unreadable>, DeviceError> {
        match &self.image {
            Some(range) => range.image.read(range.page(at, page, &self.blocks), offset, data, oob),
            None => {
                self.contents.read(at, page, offset, data, oob);
                Ok(None)
            }
        }
    }

    /// Lets go of the content of an erased block.
    pub fn discard(&mut self, at: u32) {
        match &self.image {
            Some(range) => range.image.discard(range.first + u64::from(at)),
            None => self.contents.erase(at),
        }
    }

    /// Refuses commands on a bad block.
    pub fn check_good(&self, block: BlockAddr, at: u32, command: &'static str) -> Result<(), FlashError> {
        let state = match self.blocks[at as usize].health {
            Health::Good => return Ok(()),
            Health::FactoryBad => "from the factory",
            Health::ProgramFailed => "a program failed",
            Health::EraseFailed => "an erase failed",
        };
        Err(FlashError::BadBlock { block, state, command })
    }

    pub fn check_program(&self, page: PageAddr, at: u32) -> Result<(), FlashError> {
        self.check_good(page.block, at, "program")?;
        let block = &self.blocks[at as usize];
        if block.half_erased {
            return Err(FlashError::EraseIncomplete { block: page.block });
        }
        if page.page < block.next {
            return Err(FlashError::AlreadyProgrammed { address: page });
        }
        if page.page > block.next {
            return Err(FlashError::OutOfOrder { address: page, next: block.next });
        }
        Ok(())
    }

    pub fn check_read(&self, page: PageAddr, at: u32) -> Result<(), FlashError> {
        let block = &self.blocks[at as usize];
        if block.health != Health::ProgramFailed {
            self.check_good(page.block, at, "read")?;
        }
        if !block.half_erased && page.page >= block.next {
            return Err(FlashError::NotProgrammed { address: page, programmed: block.next });
        }
        Ok(())
    }

    /// Whether this failure was asked for; it is then used up.
    pub fn meets(&mut self, fault: Fault) -> bool {
        let at = self.faults.iter().position(|asked| *asked == fault);
        at.map(|at| self.faults.swap_remove(at)).is_some()
    }

    /// When the LUN begins with an operation that is issued now.
    pub fn begins(&self, issued: Nanos) -> u64 {
        self.busy.max(issued.0.min(ISSUED_MAX_NS))
    }

    /// The LUN was at work from `began` to `done`.
    pub fn finish(&mut self, began: u64, done: u64) {
        self.counters.lun_busy_ns += done - began;
        self.busy = done;
    }

    pub fn verify(&self, pages_per_block: u64) -> Result<(), FlashError> {
        let sum = |of: fn(&Block) -> u64| self.blocks.iter().map(of).sum::<u64>();
        let now = &self.counters;
        let checks = [
            ("erases", now.blocks_erased, sum(|block| u64::from(block.erases))),
            ("pages programmed", now.pages_programmed, sum(|block| u64::from(block.next)) + now.pages_erased),
            (
                "pages of erased blocks",
                now.blocks_erased * pages_per_block,
                now.pages_erased + self.pages_erased_unwritten,
            ),
            ("pages programmed by block", now.pages_programmed, sum(|block| block.programmed)),
        ];
        for (what, left, right) in checks {
            if left != right {
                return Err(FlashError::EraseIdentity { lun: self.index, what, left, right });
            }
        }
        Ok(())
    }
}
