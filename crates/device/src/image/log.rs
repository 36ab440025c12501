//! The flush log: small flushes as single writes.
//!
//! A flush that has little to make durable writes it here, in one piece: the records of the zones that changed and the
//! blocks that are new in them. One sequential write and one flush of the disk, where a sync of the whole image would
//! have to write table and blocks where they belong. They get there in their own time; a sync of the image makes all
//! entries so far superfluous, and the log begins anew. After a crash of the host the entries are played back.

use super::slot::{CONTENT_WORDS, Content};
use crate::geometry::Geometry;
use weft_core::BLOCK_BYTES;
use weft_core::checksum::crc32c;
use weft_core::codec::{Decode, Reader, SEAL_BYTES, Truncated, put, seal_for, unseal_for};

const MAGIC: [u8; 8] = *b"WEFTFLSH";
/// Bytes of the entry's fixed part.
const FIXED_BYTES: usize = 48;
/// Bytes of a zone in an entry.
const ITEM_BYTES: usize = 16 + CONTENT_WORDS * 8;
/// Zones that an entry has room for.
pub const ITEMS_MAX: usize = (BLOCK_BYTES - FIXED_BYTES - 4) / ITEM_BYTES;
/// Most blocks of data in an entry. Above it, writing the data twice costs more than it saves.
pub const DATA_BLOCKS_MAX: usize = 16;

/// Bytes of the log of a device, a multiple of the block.
pub fn log_bytes(geometry: &Geometry) -> u64 {
    const { assert!(BLOCK_BYTES == 4096) };
    (geometry.total_bytes / 64).clamp(256 << 10, 8 << 20).next_multiple_of(BLOCK_BYTES as u64)
}

/// One zone in an entry: its record, and where the entry's blocks of it belong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    pub zone: u32,
    /// First block.
    pub from: u32,
    /// Behind the last block.
    pub to: u32,
    /// The zone's record.
    pub record: Content,
}

/// Image, session and offset of an entry: a reader recognises by them an entry that an earlier session has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPosition {
    /// The image's id.
    pub image: [u8; 16],
    /// Number of the session: how often the image had been opened.
    pub session: u64,
    /// Byte offset in the log.
    pub at: u64,
}

/// An entry that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number in the session.
    pub seq: u64,
    pub items: Vec<Item>,
    /// The blocks of all items, one after the other.
    pub data: Vec<u8>,
}

/// Fills the head block of an entry whose data stands behind it.
pub fn seal(head: &mut [u8], data: &[u8], items: &[Item], place: LogPosition, seq: u64) {
    let mut page = Vec::with_capacity(BLOCK_BYTES);
    let (count, blocks) = (items.len() as u32, (data.len() / BLOCK_BYTES) as u32);
    put(&mut page, &[&MAGIC, &place.session, &place.at, &seq, &count, &blocks, &crc32c(data), &0u32]);
    for Item { zone, from, to, record } in items {
        put(&mut page, &[zone, from, to, &0u32, record]);
    }
    page.resize(BLOCK_BYTES - SEAL_BYTES, 0);
    seal_for(&mut page, &place.image);
    head.copy_from_slice(&page);
}

/// Reads the entry at the start of `log`, which is the log from `place.at` on; `None` when there is no whole one.
pub fn read(log: &[u8], place: LogPosition) -> Option<Entry> {
    let (head, rest) = log.split_at_checked(BLOCK_BYTES)?;
    if head[..8] != MAGIC {
        return None;
    }
    let content = unseal_for(head, &place.image)?;
    let (entry, data_blocks, data_crc) = fields(content, place).ok()??;
    let data = rest.get(..data_blocks as usize * BLOCK_BYTES)?;
    let wanted: u64 = entry.items.iter().map(|item| u64::from(item.to.saturating_sub(item.from))).sum();
    let ordered = entry.items.iter().all(|item| item.from <= item.to);
    let whole = ordered && wanted == u64::from(data_blocks) && crc32c(data) == data_crc;
    whole.then(|| Entry { data: data.to_vec(), ..entry })
}

/// The fields of a head block whose checksum is right; `None` when it belongs elsewhere.
fn fields(content: &[u8], place: LogPosition) -> Result<Option<(Entry, u32, u32)>, Truncated> {
    let mut r = Reader::new(&content[8..]);
    if r.u64()? != place.session || r.u64()? != place.at {
        return Ok(None);
    }
    let seq = r.u64()?;
    let (count, data_blocks, data_crc) = (r.u32()?, r.u32()?, r.u32()?);
    r.u32()?;
    let mut items = Vec::new();
    for _ in 0..count {
        let (zone, from, to) = (r.u32()?, r.u32()?, r.u32()?);
        r.u32()?;
        items.push(Item { zone, from, to, record: Decode::get(&mut r)? });
    }
    Ok(Some((Entry { seq, items, data: Vec::new() }, data_blocks, data_crc)))
}

/// All whole entries of a session, oldest first.
pub fn entries(log: &[u8], image: [u8; 16], session: u64) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < log.len() {
        let place = LogPosition { image, session, at: at as u64 };
        let blocks = match read(&log[at..], place) {
            Some(entry) => {
                let blocks = 1 + entry.data.len() / BLOCK_BYTES;
                found.push(entry);
                blocks
            }
            None => 1,
        };
        at += blocks * BLOCK_BYTES;
    }
    found.sort_by_key(|entry| entry.seq);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: LogPosition = LogPosition { image: [3; 16], session: 9, at: 8192 };

    fn item(zone: u32, from: u32, to: u32) -> Item {
        Item { zone, from, to, record: std::array::from_fn(|at| u64::from(zone) << 32 | at as u64) }
    }

    fn sealed(items: &[Item], seq: u64, place: LogPosition) -> Vec<u8> {
        let blocks: u32 = items.iter().map(|i| i.to - i.from).sum();
        let mut log = vec![seq as u8; (1 + blocks as usize) * BLOCK_BYTES];
        let (head, data) = log.split_at_mut(BLOCK_BYTES);
        seal(head, data, items, place, seq);
        log
    }

    #[test]
    fn an_entry_survives_encoding_and_is_read_only_where_and_when_it_was_written() {
        let items = [item(3, 5, 7), item(9, 0, 0), item(1, 16, 17)];
        let log = sealed(&items, 4, PLACE);
        let entry = read(&log, PLACE).unwrap();
        assert_eq!((entry.seq, entry.items, entry.data), (4, items.to_vec(), vec![4; 3 * BLOCK_BYTES]));
        assert_eq!(read(&log, LogPosition { session: 8, ..PLACE }), None);
        assert_eq!(read(&log, LogPosition { at: 4096, ..PLACE }), None);
        assert_eq!(read(&log, LogPosition { image: [4; 16], ..PLACE }), None);
        assert_eq!(read(&log[..log.len() - 1], PLACE), None, "cut short");
        assert_eq!(
            sealed(&vec![item(1, 0, 0); ITEMS_MAX], 1, PLACE).len(),
            BLOCK_BYTES,
            "the most there may be"
        );
    }

    #[test]
    fn no_bit_of_an_entry_may_flip() {
        let log = sealed(&[item(3, 5, 6)], 4, PLACE);
        for at in 0..log.len() {
            let mut bad = log.clone();
            bad[at] ^= 1 << (at % 8);
            assert_eq!(read(&bad, PLACE), None, "byte {at}");
        }
    }

    #[test]
    fn entries_are_found_in_the_order_of_their_numbers_between_remains_of_others() {
        let at = |at: u64| LogPosition { at, ..PLACE };
        let mut log = sealed(&[item(1, 0, 2)], 7, at(0));
        log.extend(sealed(&[item(2, 0, 1)], 8, at(12288)));
        let old = sealed(&[item(4, 0, 0)], 3, at(log.len() as u64));
        log.extend(old);
        let other = sealed(&[item(4, 0, 1)], 9, LogPosition { session: 1, ..at(log.len() as u64) });
        log.extend(other);
        let found: Vec<u64> = entries(&log, PLACE.image, PLACE.session).iter().map(|e| e.seq).collect();
        assert_eq!(found, [3, 7, 8]);
    }

    proptest! {
        #[test]
        fn reading_anything_at_all_neither_panics_nor_finds_more_than_there_is(
            bytes in prop::collection::vec(any::<u8>(), 0..3 * BLOCK_BYTES),
            count in any::<u32>(),
            blocks in any::<u32>(),
        ) {
            read(&bytes, PLACE);
            // A head with a right checksum and wrong fields.
            let mut log = sealed(&[item(1, 0, 1)], 1, PLACE);
            log[32..36].copy_from_slice(&count.to_le_bytes());
            log[36..40].copy_from_slice(&blocks.to_le_bytes());
            let crc = weft_core::checksum::crc32c_append(crc32c(&log[..BLOCK_BYTES - 4]), &PLACE.image);
            log[BLOCK_BYTES - 4..BLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
            prop_assert_eq!(read(&log, PLACE).is_some(), count == 1 && blocks == 1);
        }
    }
}
