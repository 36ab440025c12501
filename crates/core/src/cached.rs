//! The words in shared memory by which readers find blocks in the cache of a device.
//!
//! A cache lies in memory that both map: a table of words, one for each chunk of the device, then slots of the size of
//! a chunk. The owner changes a slot only while no word leads to it, and a word that is taken back never comes again
//! (it has another generation), so a reader who finds the same place in the word before and after it copied has
//! copied what the word said.
//!
//! ```text
//!  word:  | generation, 24 bits | slot, 32 bits | 1 = as written | 0, 2 bits | blocks held from the chunk's first, 5 bits |
//! ```
//!
//! A chunk is as written when its owner has put in it what it also wrote to the device, and nothing that it read there:
//! checksums are for what a device gives back, so there is nothing to be checked.

use crate::BLOCK_BYTES;

/// Device blocks of a chunk.
pub const CHUNK_BLOCKS: usize = 16;
/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = CHUNK_BLOCKS * BLOCK_BYTES;

const AS_WRITTEN: u64 = 1 << 7;
const HELD: u32 = 0x1f;

/// What the table says of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheWord(pub u64);

impl CacheWord {
    /// A chunk whose first blocks are in a slot.
    pub fn new(generation: u32, slot: u32, held: u32) -> CacheWord {
        CacheWord(u64::from(generation & 0xff_ffff) << 40 | u64::from(slot) << 8 | u64::from(held & HELD))
    }

    /// The same, all as it was written.
    pub fn as_written(self) -> CacheWord {
        CacheWord(self.0 | AS_WRITTEN)
    }

    /// Whether all that is held is as it was written.
    pub fn is_as_written(self) -> bool {
        self.0 & AS_WRITTEN != 0
    }

    /// The same chunk, held nowhere, and never again as this word says.
    pub fn taken_back(self) -> CacheWord {
        CacheWord::new((self.0 >> 40) as u32 + 1, 0, 0)
    }

    /// How often the chunk was taken back.
    pub fn generation(self) -> u32 {
        (self.0 >> 40) as u32
    }

    /// Slot of the cache that holds the chunk.
    pub fn slot(self) -> u32 {
        (self.0 >> 8) as u32
    }

    /// Blocks held, from the chunk's first; 0 when the chunk is in no slot.
    pub fn held(self) -> u32 {
        self.0 as u32 & HELD
    }

    /// Whether both speak of the same content in the same slot; one may hold more of it.
    pub fn is_same_place(self, other: CacheWord) -> bool {
        self.0 >> 8 == other.0 >> 8
    }
}

/// Bytes of the table of a device of so many blocks; the slots begin behind it.
pub fn table_bytes(device_blocks: u64) -> u64 {
    (device_blocks.div_ceil(CHUNK_BLOCKS as u64) * size_of::<CacheWord>() as u64)
        .next_multiple_of(BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_its_parts_and_changes_its_place_when_taken_back() {
        let word = CacheWord::new(0xff_ffff, u32::MAX, 16);
        assert_eq!((word.generation(), word.slot(), word.held()), (0xff_ffff, u32::MAX, 16));
        assert!(word.is_same_place(CacheWord::new(0xff_ffff, u32::MAX, 1)));
        assert!(!word.is_as_written() && word.as_written().is_as_written());
        assert!(word.is_same_place(word.as_written()) && word.as_written().held() == 16);
        assert!(!word.as_written().taken_back().is_as_written());
        let back = CacheWord::new(6, 3, 16).taken_back();
        assert_eq!((back.generation(), back.held()), (7, 0));
        assert!(!back.is_same_place(CacheWord::new(6, 3, 16)));
        assert_eq!(word.taken_back().generation(), 0, "it wraps");
    }

    #[test]
    fn the_table_has_a_word_for_a_part_of_a_chunk_too() {
        assert_eq!(table_bytes(1), 4096);
        assert_eq!(table_bytes(512 * 16), 4096);
        assert_eq!(table_bytes(512 * 16 + 1), 8192);
    }
}
