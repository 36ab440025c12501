//! The out-of-band record of a page at the function level.

use super::Mapping;
use crate::level::FUNCTION_MAGIC;
use weft_core::codec::{Reader, Truncated, put, seal, unseal};

pub(super) const BYTES: usize = 32;
/// No block has as large an id: what has a larger one is damage, and would not bear being counted on.
const ID_MAX: u64 = 1 << 62;
/// The page could not be read when its block was moved.
pub(super) const LOST: u8 = 1;
/// With [`LOST`]: nothing that counts was lost. The program of the page had been interrupted, or its number was written again.
pub(super) const EMPTY: u8 = 2;

/// A page's out-of-band bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageNote {
    pub flags: u8,
    pub mapping: Mapping,
    pub id: u64,
    pub label: u64,
    /// The page's number, as the application addresses it.
    pub page: u32,
    /// How often wear leveling has moved the block.
    pub moves: u16,
}

impl PageNote {
    pub fn of(id: u64, label: u64, mapping: Mapping, page: u32) -> PageNote {
        PageNote { flags: 0, mapping, id, label, page, moves: 0 }
    }

    pub fn encode(&self) -> [u8; BYTES] {
        let mut raw = Vec::with_capacity(BYTES);
        raw.extend_from_slice(&FUNCTION_MAGIC);
        let PageNote { flags, mapping, moves, id, label, page } = self;
        let mapping = match mapping {
            Mapping::Block => 0u8,
            Mapping::Page => 1,
        };
        put(&mut raw, &[flags, &mapping, moves, id, label, page]);
        seal(&mut raw);
        let mut out = [0; BYTES];
        out.copy_from_slice(&raw);
        out
    }

    pub fn decode(raw: &[u8; BYTES]) -> Option<PageNote> {
        let fields = |raw: &[u8; BYTES]| -> Result<_, Truncated> {
            let mut reader = Reader::new(raw);
            let magic: [u8; 4] = reader.array()?;
            let (flags, mapping) = (reader.u8()?, reader.u8()?);
            let moves = reader.u16()?;
            Ok((magic, flags, mapping, moves, reader.u64()?, reader.u64()?, reader.u32()?))
        };
        let (magic, flags, mapping, moves, id, label, page) = fields(raw).ok()?;
        let mapping = match mapping {
            0 => Mapping::Block,
            1 => Mapping::Page,
            _ => return None,
        };
        let sound = magic == FUNCTION_MAGIC && unseal(raw).is_some() && id < ID_MAX;
        sound.then_some(PageNote { flags, mapping, id, label, page, moves })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_a_changed_one_is_not() {
        let note = PageNote { flags: LOST, moves: 9, ..PageNote::of(1 << 40, 7, Mapping::Page, 300) };
        let raw = note.encode();
        assert_eq!(PageNote::decode(&raw), Some(note));
        for at in 0..BYTES {
            let mut changed = raw;
            changed[at] ^= 4;
            assert_eq!(PageNote::decode(&changed), None);
        }
    }
}
