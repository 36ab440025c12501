//! The raw level: a grant's flash as it is. Blocks, pages in order, erase before reuse; no bad blocks.
//!
//! The application does all of it itself, mapping, cleaning, and finding its data again after a power cut; in return it
//! decides about every operation. The calls are those of Prism-SSD's raw-flash level (ICDCS 2019, section IV).

use crate::address::{GrantBlock, GrantGeometry, GrantPage};
use crate::error::LevelError;
use crate::grant::Grant;
use crate::monitor::BlockLook;
use weft_core::Nanos;
use weft_device::nand::Done;

/// A grant at the raw level. Threads share it by reference.
#[derive(Debug)]
pub struct RawLevel {
    grant: Grant,
}

impl RawLevel {
    /// Takes a grant.
    pub fn new(grant: Grant) -> RawLevel {
        RawLevel { grant }
    }

    /// What there is to address.
    pub fn geometry(&self) -> &GrantGeometry {
        self.grant.geometry()
    }

    /// Reads a part of a page's data, which may be empty, and its first out-of-band bytes.
    ///
    /// Refused: [`LevelError::OutsideGrant`], [`LevelError::WrongLength`], [`LevelError::NotProgrammed`]. Failed:
    /// [`LevelError::Unreadable`].
    pub fn page_read(
        &self,
        issued: Nanos,
        page: GrantPage,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Done, LevelError> {
        self.grant.read(issued, page, offset, data, oob)
    }

    /// Programs the next page of a block, whole; zeros follow the out-of-band bytes that are given. It is durable when
    /// this returns.
    ///
    /// Refused: [`LevelError::OutsideGrant`], [`LevelError::WrongLength`], [`LevelError::OutOfOrder`],
    /// [`LevelError::AlreadyProgrammed`], [`LevelError::EraseIncomplete`]. Failed: [`LevelError::BlockRetired`].
    pub fn page_write(
        &self,
        issued: Nanos,
        page: GrantPage,
        data: &[u8],
        oob: &[u8],
    ) -> Result<Done, LevelError> {
        self.grant.program(issued, page, data, oob)
    }

    /// Erases a block.
    ///
    /// Refused: [`LevelError::OutsideGrant`]. Failed: [`LevelError::BlockRetired`].
    pub fn block_erase(&self, issued: Nanos, block: GrantBlock) -> Result<Done, LevelError> {
        self.grant.erase(issued, block)
    }

    /// How far a block is programmed: what an application needs to go on after a restart.
    pub fn look(&self, block: GrantBlock) -> Result<BlockLook, LevelError> {
        self.grant.look(block)
    }

    /// Makes what was programmed survive a crash of the host.
    pub fn sync(&self) -> Result<(), LevelError> {
        self.grant.sync()
    }

    /// Gives the grant back to be used otherwise.
    pub fn into_grant(self) -> Grant {
        self.grant
    }
}
