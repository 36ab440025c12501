//! The raw level: the flash of a grant without translation. Pages in order, erase before reuse, no bad blocks.
//!
//! The application does all of it itself, mapping, cleaning, and finding its data again after a power cut; in return it
//! decides about every operation. The calls are those of Prism-SSD's raw-flash level (ICDCS 2019, section IV).

use crate::address::{GrantBlock, GrantGeometry, GrantPage};
use crate::error::LevelError;
use crate::grant::Grant;
use crate::monitor::BlockLook;
use weft_core::{Nanos, Tag};
use weft_device::nand::Done;

pub use crate::grant::{RawRead, RawWrite, Results};
/// Most addresses of a vectored command.
pub use weft_device::nand::VECTOR_MAX;

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

    /// The same, with the tag of the data, which takes the last [`TAG_OOB_BYTES`](crate::TAG_OOB_BYTES) of the page's
    /// out-of-band bytes: the application has so many fewer, of this page.
    pub fn page_write_tagged(&self, issued: Nanos, write: &RawWrite) -> Result<Done, LevelError> {
        self.grant.program_tagged(issued, write)
    }

    /// The tag that a page was written with; one that says nothing when it was written without.
    ///
    /// Refused and failed as [`page_read`](RawLevel::page_read); [`LevelError::Damaged`] when what is stored is no tag.
    pub fn tag_of(&self, issued: Nanos, page: GrantPage) -> Result<Tag, LevelError> {
        self.grant.tag_of(issued, page)
    }

    /// Erases a block.
    ///
    /// Refused: [`LevelError::OutsideGrant`]. Failed: [`LevelError::BlockRetired`].
    pub fn block_erase(&self, issued: Nanos, block: GrantBlock) -> Result<Done, LevelError> {
        self.grant.erase(issued, block)
    }

    /// Reads pages that are all issued at once: those on different LUNs are read at the same time, and those in different
    /// planes of a LUN too when they are named one after the other and have one page number. Each address has its own
    /// result, which is that of [`page_read`](RawLevel::page_read).
    ///
    /// [`LevelError::BadRequest`] with no or more than [`VECTOR_MAX`] addresses.
    pub fn page_read_vector(&self, issued: Nanos, pages: &mut [RawRead]) -> Result<Results, LevelError> {
        check_vector(pages.len())?;
        Ok(self.grant.read_many(issued, pages))
    }

    /// Programs pages that are all issued at once, those of one LUN in the order given, those of its planes together as in
    /// [`page_read_vector`](RawLevel::page_read_vector). Each address has its own result,
    /// which is that of [`page_write`](RawLevel::page_write).
    ///
    /// An error of the host, such as a full disk, ends the command on its LUN: pages after it, and those that were to be
    /// programmed together with it, are not programmed and have the same error. They can be written again.
    ///
    /// [`LevelError::BadRequest`] with no or more than [`VECTOR_MAX`] addresses.
    pub fn page_write_vector(&self, issued: Nanos, pages: &[RawWrite]) -> Result<Results, LevelError> {
        check_vector(pages.len())?;
        Ok(self.grant.program_many(issued, pages))
    }

    /// Erases blocks, all issued at once. Each has its own result, which is that of
    /// [`block_erase`](RawLevel::block_erase).
    ///
    /// [`LevelError::BadRequest`] with no or more than [`VECTOR_MAX`] addresses.
    pub fn block_erase_vector(&self, issued: Nanos, blocks: &[GrantBlock]) -> Result<Results, LevelError> {
        check_vector(blocks.len())?;
        Ok(self.grant.erase_many(issued, blocks))
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
