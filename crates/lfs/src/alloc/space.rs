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
    pub mapped: u64,
    /// For blocks that were promised room and are not mapped, in bytes.
    pub reserved: u64,
    /// For buffered blocks, over what is mapped below them, in bytes.
    pub buffered: u64,
}

impl Space {
    /// Charged bytes in all.
    pub fn used(&self) -> u64 {
        self.mapped.saturating_add(self.reserved).saturating_add(self.buffered)
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
        let space = Space { mapped: 80, reserved: 10, buffered: 20 };
        assert!(space.check(0, 100).is_ok());
        assert!(matches!(space.check(1, 100), Err(FsError::NoSpace)));
        assert!(space.check(10, 120).is_ok());
    }
}
