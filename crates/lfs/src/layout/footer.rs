//! The end of a data zone: the CRC32C of each of its blocks, twice.
//!
//! ```text
//!  crc of block 0 | crc of block 1 | ... | zeros | count u32 | magic u32 | crc of all before u32 |
//! ```
//! Each copy fills whole blocks. The first begins where the zone's data ends, the second ends where the zone ends.

use weft_core::BLOCK_BYTES;
use weft_core::codec::{WriteFields, seal, unseal};

const MAGIC: u32 = u32::from_le_bytes(*b"WFOO");
const TRAILER_BYTES: usize = 12;
/// Copies of the footer.
pub const COPIES: u32 = 2;

/// Blocks that one copy of the footer of a zone with `blocks` blocks before it takes.
pub fn footer_blocks(blocks: u32) -> u32 {
    (blocks as usize * 4 + TRAILER_BYTES).div_ceil(BLOCK_BYTES) as u32
}

/// Blocks of a zone before its footer when it is written to the end.
pub fn data_end(capacity: u32) -> u32 {
    let mut end = capacity.saturating_sub(1);
    while end + COPIES * footer_blocks(end) > capacity {
        end -= 1;
    }
    end
}

/// The footer for these CRCs, `blocks` blocks long: a copy at its start and one at its end.
pub fn encode(crcs: impl ExactSizeIterator<Item = u32>, blocks: u32) -> Vec<u8> {
    let count = crcs.len() as u32;
    let bytes = footer_blocks(count) as usize * BLOCK_BYTES;
    let mut out = Vec::with_capacity(blocks as usize * BLOCK_BYTES);
    for crc in crcs {
        out.put_u32(crc);
    }
    out.resize(bytes - TRAILER_BYTES, 0);
    out.put_u32(count);
    out.put_u32(MAGIC);
    seal(&mut out);
    let total = (blocks as usize * BLOCK_BYTES).max(2 * bytes);
    out.resize(total, 0);
    out.copy_within(..bytes, total - bytes);
    out
}

/// Where the copies of the footer of a zone that is written to its end begin, and the blocks of each.
pub fn places(capacity: u32) -> ([u32; COPIES as usize], u32) {
    let end = data_end(capacity);
    let blocks = footer_blocks(end);
    ([end, capacity - blocks], blocks)
}

/// The CRCs of one copy of a footer; `None` when it is damaged, or none.
pub fn decode(raw: &[u8]) -> Option<Vec<u32>> {
    let at = raw.len().checked_sub(TRAILER_BYTES)?;
    let field = |from: usize| raw.get(from..from + 4)?.try_into().ok().map(u32::from_le_bytes);
    let count = field(at)? as usize;
    let whole = field(at + 4)? == MAGIC && unseal(raw).is_some();
    if !whole || count.checked_mul(4)? > at {
        return None;
    }
    Some(raw.chunks_exact(4).take(count).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn two_copies_of_a_footer_fit_behind_the_data_of_any_zone_and_each_comes_back() {
        for capacity in [32, 64, 1000, 1024, 1025, 1026, 4096, 275_712] {
            let end = data_end(capacity);
            assert!(end + 2 * footer_blocks(end) <= capacity, "{capacity}");
            assert!(end + 1 + 2 * footer_blocks(end + 1) > capacity, "{capacity}");
            let crcs: Vec<u32> = (0..end).map(|b| b.wrapping_mul(2_654_435_761)).collect();
            let raw = encode(crcs.iter().copied(), capacity - end);
            assert_eq!(raw.len(), (capacity - end) as usize * BLOCK_BYTES);
            let (places, blocks) = places(capacity);
            for place in places {
                let from = (place - end) as usize * BLOCK_BYTES;
                let copy = &raw[from..from + blocks as usize * BLOCK_BYTES];
                assert_eq!(decode(copy), Some(crcs.clone()), "{capacity}, {place}");
            }
        }
    }

    #[test]
    fn a_flipped_byte_in_a_footer_is_seen() {
        let mut raw = encode([1, 2, 3].into_iter(), 2);
        raw.truncate(BLOCK_BYTES);
        raw[5] ^= 1;
        assert_eq!(decode(&raw), None);
        assert_eq!(decode(&raw[..7]), None);
    }
}
