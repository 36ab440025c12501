//! Space accounting: it decides whether the volume accepts a write.
//!
//! The volume refuses a write when it could not hold the data in the worst case, so it can always flush accepted data.
//!
//! - A mapped piece is charged the space that packing needs in the worst case. A piece longer than half a block may get
//!   a block of its own; shorter pieces fill at least two thirds of the blocks in which they are packed.
//! - A buffered block is charged a whole block, instead of the charge of its mapped piece.
//! - A block that `fallocate` reserved is charged a whole block until something is mapped to it.

use crate::layout::piece_space;
use crate::layout::record::Run;
use weft_core::BLOCK_BYTES;
use weft_vfs::FsError;

/// Bytes that a piece of `len` bytes is charged; at most a block.
pub fn charge(len: u32) -> u32 {
    let block = BLOCK_BYTES as u32;
    if len > block / 2 { block } else { piece_space(len) * 3 / 2 }
}

/// Bytes that a run is charged.
pub fn charge_run(run: &Run) -> u64 {
    u64::from(run.count) * u64::from(charge(run.len))
}

/// What is charged now.
#[derive(Clone, Copy, Default, Debug)]
pub struct Space {
    /// For mapped pieces, in bytes.
    mapped: u64,
    /// For blocks that were promised room and are not mapped, in bytes.
    reserved: u64,
    /// For buffered blocks, over what is mapped below them, in bytes.
    buffered: u64,
    /// For blocks that are being written and mapped afterwards, over what is mapped below them, in bytes.
    held: u64,
}

impl Space {
    /// What the pieces and promises on a device are charged, in bytes.
    pub fn new(mapped: u64, reserved: u64) -> Space {
        Space { mapped, reserved, buffered: 0, held: 0 }
    }

    /// Bytes charged for mapped pieces.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Bytes charged for promised blocks.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Bytes charged for buffered blocks, over what is mapped below them.
    pub fn buffered(&self) -> u64 {
        self.buffered
    }

    /// Charges a mapped run.
    pub fn map(&mut self, run: &Run) {
        self.mapped += charge_run(run);
    }

    /// Takes the charge of a run back.
    pub fn unmap(&mut self, run: &Run) {
        self.mapped = self.mapped.saturating_sub(charge_run(run));
    }

    /// Charges promised blocks.
    pub fn reserve(&mut self, blocks: u64) {
        self.reserved += blocks * BLOCK_BYTES as u64;
    }

    /// Takes the charge of promised blocks back.
    pub fn release(&mut self, blocks: u64) {
        self.reserved = self.reserved.saturating_sub(blocks * BLOCK_BYTES as u64);
    }

    /// Charges a buffered block, over what is mapped below it, `now` bytes instead of `before`.
    pub fn recharge(&mut self, before: u32, now: u32) {
        self.buffered = (self.buffered + u64::from(now)).saturating_sub(u64::from(before));
    }

    /// Charges what is being written.
    pub fn hold(&mut self, bytes: u64) {
        self.held += bytes;
    }

    /// Takes the charge of what was being written back: it is about to be mapped.
    pub fn let_go(&mut self, bytes: u64) {
        debug_assert!(self.held >= bytes, "{} bytes are held, not {bytes}", self.held);
        self.held = self.held.saturating_sub(bytes);
    }

    /// Charged bytes in all.
    pub fn used(&self) -> u64 {
        self.mapped.saturating_add(self.reserved).saturating_add(self.buffered).saturating_add(self.held)
    }

    /// Fails unless `more` bytes fit into `usable`.
    pub fn check(&self, more: u64, usable: u64) -> Result<(), FsError> {
        // What takes nothing more is allowed even on a volume whose usable space has shrunk below what it holds.
        if more > 0 && self.used().saturating_add(more) > usable { Err(FsError::NoSpace) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_charged_at_least_its_space_and_at_most_a_block() {
        for len in 1..=4096 {
            assert!(charge(len) >= piece_space(len) && charge(len) <= 4096, "{len}");
        }
    }

    #[test]
    fn what_takes_nothing_more_is_accepted_on_a_full_volume() {
        let space = Space { mapped: 80, reserved: 10, buffered: 20, held: 0 };
        assert!(space.check(0, 100).is_ok());
        assert!(matches!(space.check(1, 100), Err(FsError::NoSpace)));
        assert!(space.check(10, 120).is_ok());
    }
}
