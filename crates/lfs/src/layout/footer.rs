//! The end of a data zone: the CRC32C of each of its blocks.
//!
//! ```text
//!  crc of block 0 | crc of block 1 | ... | zeros | count u32 | magic u32 | crc of all before u32 |
//! ```
//! It fills whole blocks, the last of them ending where the zone's data ends.

use weft_core::codec::WriteFields;
use weft_core::{BLOCK_BYTES, checksum::crc32c};

const MAGIC: u32 = u32::from_le_bytes(*b"WFOO");
const TRAILER_BYTES: usize = 12;

/// Blocks that the footer of a zone with `blocks` blocks before it takes.
pub fn footer_blocks(blocks: u32) -> u32 {
    (blocks as usize * 4 + TRAILER_BYTES).div_ceil(BLOCK_BYTES) as u32
}

/// Blocks of a zone before its footer when it is written to the end.
pub fn data_end(capacity: u32) -> u32 {
    let mut end = capacity.saturating_sub(1);
    while end + footer_blocks(end) > capacity {
        end -= 1;
    }
    end
}

/// The footer for these CRCs, `blocks` blocks long.
pub fn encode(crcs: impl ExactSizeIterator<Item = u32>, blocks: u32) -> Vec<u8> {
    let total = blocks as usize * BLOCK_BYTES;
    let count = crcs.len() as u32;
    let mut out = Vec::with_capacity(total);
    for crc in crcs {
        out.put_u32(crc);
    }
    out.resize(total - TRAILER_BYTES, 0);
    out.put_u32(count);
    out.put_u32(MAGIC);
    let crc = crc32c(&out);
    out.put_u32(crc);
    out
}

/// The number of CRCs that the footer ending in this block holds; `None` when it is not the end of one.
pub fn count(last_block: &[u8]) -> Option<u32> {
    let at = last_block.len().checked_sub(TRAILER_BYTES)?;
    let field = |from: usize| last_block[from..from + 4].try_into().ok().map(u32::from_le_bytes);
    (field(at + 4)? == MAGIC).then_some(field(at)?)
}

/// The CRCs of a whole footer; `None` when it is damaged.
pub fn decode(raw: &[u8]) -> Option<Vec<u32>> {
    let count = count(raw)? as usize;
    let (body, crc) = raw.split_at(raw.len() - 4);
    if crc32c(body).to_le_bytes() != crc || count * 4 > raw.len() - TRAILER_BYTES {
        return None;
    }
    Some(raw.chunks_exact(4).take(count).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_fits_behind_the_data_of_any_zone_and_comes_back() {
        for capacity in [32, 64, 1000, 1024, 1025, 1026, 4096, 275_712] {
            let end = data_end(capacity);
            assert!(end + footer_blocks(end) <= capacity, "{capacity}");
            assert!(end + 1 + footer_blocks(end + 1) > capacity, "{capacity}");
            let crcs: Vec<u32> = (0..end).map(|b| b.wrapping_mul(2_654_435_761)).collect();
            let raw = encode(crcs.iter().copied(), capacity - end);
            assert_eq!(count(&raw[raw.len() - BLOCK_BYTES..]), Some(end));
            assert_eq!(decode(&raw), Some(crcs));
        }
    }

    #[test]
    fn a_flipped_byte_in_a_footer_is_seen() {
        let mut raw = encode([1, 2, 3].into_iter(), 1);
        raw[5] ^= 1;
        assert_eq!(decode(&raw), None);
    }
}
