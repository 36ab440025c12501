//! The state of an erase block.

use serde::{Deserialize, Serialize};

/// Whether a block can be used.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Health {
    #[default]
    Good = 0,
    /// Bad when the device was made.
    FactoryBad = 1,
    /// A program failed: it can be read.
    ProgramFailed = 2,
    /// An erase failed: it cannot be read.
    EraseFailed = 3,
}

/// The state of an erase block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// Erased; no page is programmed.
    Free,
    /// Some pages are programmed.
    Open,
    /// All pages are programmed.
    Full,
    /// Its last erase was interrupted: it has to be erased, and its pages cannot be read.
    EraseIncomplete,
    /// Bad since a program failed: it can be read, but neither programmed nor erased.
    ReadOnly,
    /// Bad since an erase failed: it takes no command.
    Dead,
    /// Bad from the factory: it takes no command.
    FactoryBad,
}

impl BlockState {
    /// Whether the block is bad, from the factory or grown.
    pub fn is_bad(self) -> bool {
        matches!(self, BlockState::ReadOnly | BlockState::Dead | BlockState::FactoryBad)
    }
}

/// What the device reports of an erase block, as the chunk report of an open-channel drive does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockInfo {
    /// Whether it is erased, written or bad.
    pub state: BlockState,
    /// Pages programmed since the last erase, torn ones included; the next program goes to the page of this number.
    pub programmed: u32,
    /// Erases of the block so far.
    pub erases: u32,
    /// Reads of the block since its last erase.
    pub reads: u32,
}

/// An erase block.
#[derive(Clone, Default, Debug)]
pub(crate) struct Block {
    /// The page that is programmed next.
    pub next: u32,
    pub erases: u32,
    /// Reads since the last erase.
    pub reads: u32,
    pub health: Health,
    pub half_erased: bool,
    /// Pages programmed since the device was made.
    pub programmed: u64,
    /// When the first page since the last erase was programmed, in nanoseconds.
    pub written_at: u64,
    /// Pages that cannot be read. Few blocks have any.
    pub torn: Vec<u32>,
}

/// What of a block in an image may not be on the host's disk yet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Unsynced {
    /// The number of the last write to it in this use of the image; 0 when there was none.
    pub write: u64,
    /// Pages from this one on were written since the last sync that was known at that write.
    pub from: u32,
    /// The number of the write that said that it is about to be erased; 0 when it is not. Once that is durable, and what was
    /// written before, the host may have something else in place of its pages.
    pub erase: u64,
}

impl Unsynced {
    /// The next page, or one before it, is about to be written, when the host is known to have all writes up to `synced`.
    pub fn begin(&mut self, next: u32, synced: u64) {
        if self.write <= synced {
            self.from = next;
        }
    }

    /// The first page that a crash of the host can have taken.
    pub fn first(&self) -> u32 {
        if self.erase > 0 { 0 } else { self.from }
    }

    /// Whether a crash of the host can have taken a part of the block.
    pub fn is_doubtful(&self) -> bool {
        self.erase > 0 || self.write > 0
    }
}

impl Block {
    pub fn info(&self, pages_per_block: u32) -> BlockInfo {
        let state = match self.health {
            Health::FactoryBad => BlockState::FactoryBad,
            Health::ProgramFailed => BlockState::ReadOnly,
            Health::EraseFailed => BlockState::Dead,
            Health::Good if self.half_erased => BlockState::EraseIncomplete,
            Health::Good if self.next == 0 => BlockState::Free,
            Health::Good if self.next < pages_per_block => BlockState::Open,
            Health::Good => BlockState::Full,
        };
        BlockInfo { state, programmed: self.next, erases: self.erases, reads: self.reads }
    }

    pub fn is_torn(&self, page: u32) -> bool {
        self.torn.contains(&page)
    }

    pub fn tear(&mut self, page: u32) {
        if !self.torn.contains(&page) {
            self.torn.push(page);
        }
    }

    /// Makes the block empty.
    pub fn clear(&mut self) {
        self.next = 0;
        self.reads = 0;
        self.half_erased = false;
        self.torn = Vec::new();
    }
}
