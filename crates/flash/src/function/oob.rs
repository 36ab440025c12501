//! The out-of-band record of a page at the function level.

use super::Mapping;
use crate::level::FUNCTION_MAGIC;
use weft_core::codec::{Reader, Truncated, put, seal, unseal};

pub(super) const BYTES: usize = 32;
/// Bytes of the note of a page of a log block, which says when it was written, too.
pub(super) const LOG_BYTES: usize = 36;
/// No block has as large an id: what has a larger one is damage, and would not bear being counted on.
const ID_MAX: u64 = 1 << 62;
const MAPPING_AT: usize = 5;
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
    /// For [`Mapping::Log`]: the number of the write, counted from the block's id.
    pub order: u32,
}

impl PageNote {
    pub fn of(id: u64, label: u64, mapping: Mapping, page: u32) -> PageNote {
        PageNote { flags: 0, mapping, id, label, page, moves: 0, order: 0 }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Vec::with_capacity(LOG_BYTES);
        raw.extend_from_slice(&FUNCTION_MAGIC);
        let PageNote { flags, mapping, moves, id, label, page, order } = self;
        put(&mut raw, &[flags, &(*mapping as u8), moves, id, label, page]);
        if *mapping == Mapping::Log {
            put(&mut raw, &[order]);
        }
        seal(&mut raw);
        raw
    }

    /// Reads a note from the first bytes of `raw`.
    pub fn decode(raw: &[u8]) -> Option<PageNote> {
        let mapping = match raw.get(MAPPING_AT)? {
            0 => Mapping::Block,
            1 => Mapping::Page,
            2 => Mapping::Log,
            _ => return None,
        };
        let raw = raw.get(..if mapping == Mapping::Log { LOG_BYTES } else { BYTES })?;
        let fields = || -> Result<_, Truncated> {
            let mut reader = Reader::new(raw);
            let magic: [u8; 4] = reader.array()?;
            let (flags, _, moves) = (reader.u8()?, reader.u8()?, reader.u16()?);
            let (id, label, page) = (reader.u64()?, reader.u64()?, reader.u32()?);
            let order = if mapping == Mapping::Log { reader.u32()? } else { 0 };
            Ok((magic, PageNote { flags, mapping, id, label, page, moves, order }))
        };
        let (magic, note) = fields().ok()?;
        let sound = magic == FUNCTION_MAGIC && unseal(raw).is_some() && note.id < ID_MAX;
        sound.then_some(note)
    }

    /// The number of the write of a page of a log block.
    pub fn sequence(&self) -> u64 {
        self.id + u64::from(self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_a_changed_one_is_not() {
        for (mapping, order) in [(Mapping::Block, 0), (Mapping::Page, 0), (Mapping::Log, 70_000)] {
            let note = PageNote { flags: LOST, moves: 9, order, ..PageNote::of(1 << 40, 7, mapping, 300) };
            let mut raw = note.encode();
            let bytes = raw.len();
            raw.resize(LOG_BYTES, 0);
            assert_eq!(PageNote::decode(&raw), Some(note));
            for at in 0..bytes {
                let mut changed = raw.clone();
                changed[at] ^= 4;
                assert_eq!(PageNote::decode(&changed), None, "{mapping:?}, byte {at}");
            }
        }
        assert_eq!(PageNote::of(5, 0, Mapping::Log, 1).encode().len(), LOG_BYTES);
        assert_eq!(PageNote::of(5, 0, Mapping::Page, 1).encode().len(), BYTES);
    }
}
