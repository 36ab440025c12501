//! How a node lies in its page.
//!
//! ```text
//! slab page:  | header data | header data | ...      slots of one size
//! run:        | header data ........ | data ... |     pages of its own
//! header:     | type u32 | length u32 |
//! ```
//!
//! A node that has outgrown its room keeps its place, which is its id, and only the header counts there: its length is
//! [`MOVED`], and an edge of the store's own leads to its *body*, which has the data. Bodies lie in slabs and runs of
//! their own, so that no id of a body passes for that of a node.

use crate::ids::PAGE_BYTES;

/// Bytes of a node's header.
pub(crate) const NODE_HEADER: usize = 8;

/// The length in the header of a node whose data is in a body.
pub(crate) const MOVED: usize = 1 << 31;
/// The most bytes of a node's data.
pub const NODE_BYTES_MAX: usize = (2 << 30) - (1 << 20);

/// Bytes of the slots of each class. The spare of the fullest packing is below a slot everywhere, and a step is at
/// most a third, below 128 bytes an eighth. The last is a page, so that nodes of its size are written many at a time.
const SLOT_BYTES: [u16; 28] = [
    16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224, 256, 288, 336, 408, 512, 584, 680,
    816, 1024, 1360, 2048, 4096,
];

/// The smallest slot: nodes of one page lie at least so far apart.
pub(crate) const SLOT_BYTES_MIN: usize = SLOT_BYTES[0] as usize;

/// Number of classes: those of nodes, then those of bodies, of the same sizes.
pub(crate) const CLASSES: usize = 2 * SLOT_BYTES.len();
const FIRST_BODY: u8 = SLOT_BYTES.len() as u8;

/// The class of nodes with `len` bytes of data; `None` for those that have pages of their own.
#[inline]
pub(crate) fn class_of(len: usize) -> Option<u8> {
    let class = SLOT_BYTES.partition_point(|bytes| usize::from(*bytes) < len + NODE_HEADER);
    (class < SLOT_BYTES.len()).then_some(class as u8)
}

/// The class of bodies with `len` bytes of data, likewise.
pub(crate) fn body_class_of(len: usize) -> Option<u8> {
    class_of(len).map(|class| class + FIRST_BODY)
}

/// Whether a class is one of bodies.
pub(crate) fn is_body_class(class: u8) -> bool {
    class >= FIRST_BODY
}

/// Bytes of a slot of `class`; `None` for a class that is not one.
#[inline]
pub(crate) fn slot_bytes(class: u8) -> Option<usize> {
    let class = if is_body_class(class) { class - FIRST_BODY } else { class };
    SLOT_BYTES.get(usize::from(class)).map(|bytes| usize::from(*bytes))
}

/// Slots of a page of slots of `bytes`.
#[inline]
pub(crate) fn slots_of(bytes: usize) -> usize {
    PAGE_BYTES / bytes
}

/// The slot that begins at byte `offset` of a page of slots of `class`; `None` where none begins.
#[inline]
pub(crate) fn slot_at(class: u8, offset: usize) -> Option<usize> {
    let bytes = slot_bytes(class)?;
    (offset.is_multiple_of(bytes) && offset + bytes <= PAGE_BYTES).then_some(offset / bytes)
}

/// Pages of a node with `len` bytes of data in pages of its own.
pub(crate) fn run_pages(len: usize) -> u32 {
    (len + NODE_HEADER).div_ceil(PAGE_BYTES) as u32
}

/// The key, and what follows it, in the data of a node of a type with keys; `None` where that has no whole key.
#[inline]
pub(crate) fn split_key(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))
}

/// Writes a node's header.
#[inline]
pub(crate) fn write_header(out: &mut [u8], kind: u32, len: usize) {
    out[..4].copy_from_slice(&kind.to_le_bytes());
    out[4..8].copy_from_slice(&(len as u32).to_le_bytes());
}

/// Reads a node's header: its type and the length of its data.
#[inline]
pub(crate) fn read_header(raw: &[u8]) -> (u32, usize) {
    let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    (word(0), word(4) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_found_where_it_begins_and_nowhere_else() {
        for class in 0..CLASSES as u8 {
            let bytes = slot_bytes(class).unwrap();
            for offset in 0..PAGE_BYTES {
                let is_there = offset.is_multiple_of(bytes) && offset / bytes < slots_of(bytes);
                let wanted = is_there.then(|| offset / bytes);
                assert_eq!(slot_at(class, offset), wanted, "class {class}, byte {offset}");
            }
        }
        assert_eq!(slot_at(CLASSES as u8, 0), None);
    }

    #[test]
    fn every_length_has_the_smallest_slot_that_holds_it() {
        for len in 0..PAGE_BYTES {
            match class_of(len) {
                Some(class) => {
                    let body = body_class_of(len).unwrap();
                    assert!(is_body_class(body) && !is_body_class(class));
                    assert_eq!(slot_bytes(body), slot_bytes(class));
                    assert!(slot_bytes(class).unwrap() >= len + NODE_HEADER);
                    assert!(class == 0 || slot_bytes(class - 1).unwrap() < len + NODE_HEADER);
                }
                None => assert!(len + NODE_HEADER > PAGE_BYTES),
            }
        }
        assert_eq!(slot_bytes(CLASSES as u8), None);
        const { assert!(NODE_BYTES_MAX < MOVED) };
        assert!(
            SLOT_BYTES
                .iter()
                .all(|bytes| usize::from(*bytes).is_multiple_of(8) && slots_of(usize::from(*bytes)) <= 256)
        );
        assert_eq!((run_pages(4088), run_pages(4089)), (1, 2));
    }
}
