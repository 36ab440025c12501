//! Where a file's blocks lie on the device: the extension that read leases are built on.
//!
//! A front that holds a file's map may read its blocks off the device without the core. The core tells a
//! [`MapObserver`] of every change of a watched inode's map *before* it lets the old place be erased; a reader that
//! took the old entry, read, and then finds the map changed, reads again.

use crate::FsResult;
use weft_core::{BLOCK_BYTES, Ino};

/// Where one block of a file lies: hole, with the core, or a piece of one device block.
///
/// A piece never straddles two device blocks. Bytes of the file's block beyond the piece are zeros.
/// Encoded in 64 bits so that it can live in shared memory as one atomic:
/// 0 = hole, 1 = ask the core, otherwise `(address / 8 + 1) << 12 | (length - 1)`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MapEntry(pub u64);

impl MapEntry {
    /// Nothing is stored: zeros.
    pub const HOLE: MapEntry = MapEntry(0);
    /// The core buffers the block: ask it.
    pub const ASK_CORE: MapEntry = MapEntry(1);
    /// Pieces begin at a multiple of this many bytes.
    pub const ALIGN: u64 = 8;

    /// A piece of `len` bytes (1 to [`BLOCK_BYTES`]) at the device's byte address `address`, a multiple of [`Self::ALIGN`].
    pub fn piece(address: u64, len: usize) -> MapEntry {
        debug_assert!((1..=BLOCK_BYTES).contains(&len));
        debug_assert!(address.is_multiple_of(Self::ALIGN));
        debug_assert!(address as usize % BLOCK_BYTES + len <= BLOCK_BYTES);
        MapEntry((address / Self::ALIGN + 1) << 12 | (len as u64 - 1))
    }

    /// Address and length of the piece; `None` for a hole or a block that the core buffers.
    pub fn location(self) -> Option<(u64, usize)> {
        if self.0 < 1 << 12 {
            return None;
        }
        Some((((self.0 >> 12) - 1) * Self::ALIGN, (self.0 & 0xfff) as usize + 1))
    }
}

/// Told of every change of a watched inode's map.
pub trait MapObserver: Send + Sync {
    /// Blocks `first_block ..` of `ino` now lie at `entries`, or have other content in the core's buffer. Called with the core's locks held: it must be quick and
    /// must not call the core.
    fn remapped(&self, ino: Ino, first_block: u64, entries: &[MapEntry]);
}

/// A core whose files can be read straight off the device.
pub trait BlockMap: Send + Sync {
    /// Fills `out` with the entries of the blocks from `first_block` on (holes past the end), and from now on tells
    /// the observer of changes to this inode.
    fn watch(&self, ino: Ino, first_block: u64, out: &mut [MapEntry]) -> FsResult<()>;

    /// Ends the watch of an inode.
    fn unwatch(&self, ino: Ino);

    /// Sets the observer. At most once, before the first [`watch`](BlockMap::watch).
    fn set_observer(&self, observer: std::sync::Arc<dyn MapObserver>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_gives_back_its_piece() {
        for (address, len) in [(0, 4096), (0, 1), (4096 + 8, 4088), ((1 << 50) + 4088, 8)] {
            assert_eq!(MapEntry::piece(address, len).location(), Some((address, len)));
        }
        assert_eq!(MapEntry::HOLE.location(), None);
        assert_eq!(MapEntry::ASK_CORE.location(), None);
    }
}
