//! A LUN: its blocks, and what a command on them needs to hold.

use super::address::{BlockAddr, FlashShape, PageAddr};
use super::block::{Block, Health};
use super::contents::Contents;
use super::counters::FlashCounters;
use super::error::FlashError;
use super::setup::FlashSetup;

/// A failure that is asked for. It meets the next operation of its kind at that place, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The next program of this page fails.
    Program(PageAddr),
    /// The next erase of this block fails.
    Erase(BlockAddr),
    /// The next read of this page cannot be corrected.
    Read(PageAddr),
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
