//! Where data ends in a zone that was finished early.
//!
//! A drive forgets the write pointer of a zone when it is finished, and the rest of the zone reads as zeros. So the
//! last block written before is a mark that tells where data ends: at itself. When a zone is found full, its blocks
//! are read from the end; the first that is not all zeros is either the mark, or a block of data of a zone that was
//! written to its end. That the mark knows the checksum of the zone's first block, in which every life of the zone
//! differs, keeps data from being taken for one.
//!
//! ```text
//!  | data ....... | mark | zeros (nothing was written) ...................... |
//!  0              end    end + 1                                    capacity
//! ```

use weft_core::BLOCK_BYTES;
use weft_core::codec::{put, seal_page, unseal};

const MAGIC: [u8; 8] = *b"WEFTZEND";
const VERSION: u16 = 1;

/// A mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndMark {
    pub zone: u32,
    /// Blocks of data before the mark: the mark's own place.
    pub end: u32,
    /// CRC32C of the zone's first block; of the empty string when the mark is the first block itself.
    pub first_block_crc: u32,
}

impl EndMark {
    /// The block that stands for it.
    pub fn encode(&self, out: &mut [u8]) {
        let mut mark = Vec::with_capacity(BLOCK_BYTES);
        let EndMark { zone, end, first_block_crc } = self;
        put(&mut mark, &[&MAGIC, &VERSION, &0u16, zone, end, first_block_crc]);
        out.copy_from_slice(&seal_page(mark, BLOCK_BYTES));
    }

    /// Reads what [`encode`](EndMark::encode) wrote; `None` when the block is no mark.
    pub fn decode(block: &[u8]) -> Option<EndMark> {
        let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let ours = block.len() == BLOCK_BYTES
            && block[..8] == MAGIC
            && block[8..10] == VERSION.to_le_bytes()
            && unseal(block).is_some();
        ours.then(|| EndMark { zone: word(12), end: word(16), first_block_crc: word(20) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_its_encoding_and_no_flipped_byte() {
        let mark = EndMark { zone: 7, end: 300, first_block_crc: 0xdead_beef };
        let mut block = vec![1; BLOCK_BYTES];
        mark.encode(&mut block);
        assert_eq!(EndMark::decode(&block), Some(mark));
        for at in 0..BLOCK_BYTES {
            block[at] ^= 1;
            assert_eq!(EndMark::decode(&block), None, "byte {at}");
            block[at] ^= 1;
        }
    }
}
