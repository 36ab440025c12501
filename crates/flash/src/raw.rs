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

/// Most addresses of a vectored command.
pub use weft_device::nand::VECTOR_MAX;

/// One page to write.
#[derive(Clone, Copy, Debug)]
pub struct RawWrite<'a> {
    /// Where.
    pub page: GrantPage,
    /// A whole page of data.
    pub data: &'a [u8],
    /// Out-of-band bytes, as many as a page has for the application or fewer; zeros follow them.
    pub oob: &'a [u8],
}

/// One page to read, or a part of it.
#[derive(Debug)]
pub struct RawRead<'a> {
    /// Where.
    pub page: GrantPage,
    /// First byte of the page's data to read.
    pub offset: u32,
    /// Gets the data; empty to read out-of-band bytes alone.
    pub data: &'a mut [u8],
    /// Gets the first out-of-band bytes.
    pub oob: &'a mut [u8],
}

/// What became of each address of a vectored command, in their order.
type Results = Vec<Result<Done, LevelError>>;

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

    /// Reads pages that are all issued at once: those on different LUNs are read at the same time. Each address has its own
    /// result, which is that of [`page_read`](RawLevel::page_read).
    ///
    /// [`LevelError::BadRequest`] with no or more than [`VECTOR_MAX`] addresses.
    pub fn page_read_vector(&self, issued: Nanos, pages: &mut [RawRead]) -> Result<Results, LevelError> {
        check_vector(pages.len())?;
        let one = |read: &mut RawRead| self.page_read(issued, read.page, read.offset, read.data, read.oob);
        Ok(pages.iter_mut().map(one).collect())
    }

    /// Programs pages that are all issued at once, those of one LUN in the order given. Each address has its own result,
    /// which is that of [`page_write`](RawLevel::page_write).
    ///
    /// [`LevelError::BadRequest`] with no or more than [`VECTOR_MAX`] addresses.
    pub fn page_write_vector(&self, issued: Nanos, pages: &[RawWrite]) -> Result<Results, LevelError> {
        check_vector(pages.len())?;
        Ok(pages.iter().map(|write| self.page_write(issued, write.page, write.data, write.oob)).collect())
    }

    /// Erases blocks, all issued at once. Each has its own result, which is that of
    /// [`block_erase`](RawLevel::block_erase).
    ///
    /// [`LevelError::BadRequest`] with no or more than [`VECTOR_MAX`] addresses.
    pub fn block_erase_vector(&self, issued: Nanos, blocks: &[GrantBlock]) -> Result<Results, LevelError> {
        check_vector(blocks.len())?;
        Ok(blocks.iter().map(|block| self.block_erase(issued, *block)).collect())
    }

    /// How far a block is programmed: what an application needs to go on after a restart.
    pub fn look(&self, block: GrantBlock) -> Result<BlockLook, LevelError> {
        self.grant.look(block)
    }

    /// When the LUN of a block is free: everything that was issued to it is over then.
    pub fn free_at(&self, block: GrantBlock) -> Result<Nanos, LevelError> {
        self.grant.free_at(block)
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

fn check_vector(given: usize) -> Result<(), LevelError> {
    if (1..=VECTOR_MAX).contains(&given) {
        return Ok(());
    }
    Err(LevelError::BadRequest(format!("a command with {given} addresses; give 1 to {VECTOR_MAX}")))
}
