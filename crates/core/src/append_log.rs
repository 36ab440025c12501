//! The append log of an image: appended bytes and overwritten blocks that whoever wrote them has made durable.
//!
//! A program that appends to a file, or overwrites it, and flushes it writes an entry to this log, instead of asking the server
//! for a flush. The server takes the bytes in its own time. When it has made them durable where they belong, it begins the log
//! anew, in another *turn*. What a server leaves in the log when it ends is stored by the next one.
//!
//! ```text
//!  block 0   1                                     last
//!  | head |  entry, entry, ...                    | head |     both heads say which turn counts; the newer one holds
//! ```
//!
//! An entry is a whole number of blocks: a head of [`ENTRY_HEAD_BYTES`] and the bytes. It names its turn and its place, so a
//! reader recognises those that are left of other turns, and goes on behind a place that somebody took and did not fill.

use crate::checksum::{crc32c, crc32c_append};
use crate::codec::{Reader, put};
use crate::{BLOCK_BYTES, Ino};

const HEAD_MAGIC: [u8; 8] = *b"WEFTAPLG";
const ENTRY_MAGIC: [u8; 8] = *b"WEFTAPND";
/// Bytes of the head of an entry; what was written follows.
pub const ENTRY_HEAD_BYTES: usize = 128;
/// Bytes of an entry, at most.
pub const ENTRY_BYTES_MAX: usize = 64 * 1024;
/// Bytes that one entry can hold.
pub const DATA_MAX: usize = ENTRY_BYTES_MAX - ENTRY_HEAD_BYTES;
/// The first block that an entry can begin at.
pub const FIRST_BLOCK: u32 = 1;
/// Checksum and what it covers of a head.
const SUM_AT: usize = 72;

/// Which entries count: those of one server, since it began the log last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The image's id.
    pub image: [u8; 16],
    /// A random number of the server.
    pub session: u64,
    /// How often this server has begun the log.
    pub number: u32,
}

/// What an entry says of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Append {
    /// The file.
    pub ino: Ino,
    /// Where they are in the file.
    pub offset: u64,
    /// When they were written, in nanoseconds since 1970; 0 = unknown.
    pub mtime_ns: i64,
}

/// Head of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHead {
    /// The turn that counts.
    pub turn: Turn,
    /// How often a head has been written to this image.
    pub count: u64,
    /// Whether there may be entries: a server uses the log, or did not end well.
    pub is_live: bool,
}

/// Blocks of an entry with so many bytes.
pub fn entry_blocks(bytes: usize) -> u32 {
    (ENTRY_HEAD_BYTES + bytes).div_ceil(BLOCK_BYTES) as u32
}

/// Makes an entry of the bytes that stand in `buffer` behind the room for its head; returns its length.
///
/// `buffer` has room for whole blocks, and `block` is where the entry begins in the log.
pub fn seal(buffer: &mut [u8], turn: &Turn, block: u32, append: &Append, bytes: usize) -> usize {
    let len = entry_blocks(bytes) as usize * BLOCK_BYTES;
    debug_assert!(bytes <= DATA_MAX && len <= buffer.len(), "no room for an entry of {bytes} bytes");
    buffer[ENTRY_HEAD_BYTES + bytes..len].fill(0);
    let (head, data) = buffer.split_at_mut(ENTRY_HEAD_BYTES);
    head.fill(0);
    let fields: [(usize, &[u8]); 9] = [
        (0, &ENTRY_MAGIC),
        (8, &turn.image),
        (24, &turn.session.to_le_bytes()),
        (32, &turn.number.to_le_bytes()),
        (36, &block.to_le_bytes()),
        (40, &(bytes as u32).to_le_bytes()),
        (48, &append.ino.0.to_le_bytes()),
        (56, &append.offset.to_le_bytes()),
        (64, &append.mtime_ns.to_le_bytes()),
    ];
    for (at, field) in fields {
        head[at..at + field.len()].copy_from_slice(field);
    }
    let sum = crc32c_append(crc32c(&head[..SUM_AT]), &data[..bytes]);
    head[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    len
}

/// The entry at the start of `log`, which is a log from `block` on; `None` when no whole one of this turn is there.
fn read<'l>(log: &'l [u8], turn: &Turn, block: u32) -> Option<(Append, &'l [u8])> {
    let (head, rest) = log.split_at_checked(ENTRY_HEAD_BYTES)?;
    let mut r = Reader::new(head);
    let is_ours = r.array::<8>().ok()? == ENTRY_MAGIC
        && r.array::<16>().ok()? == turn.image
        && r.u64().ok()? == turn.session
        && r.u32().ok()? == turn.number
        && r.u32().ok()? == block;
    let (len, _zero) = (r.u32().ok()?, r.u32().ok()?);
    let append = Append { ino: Ino(r.u64().ok()?), offset: r.u64().ok()?, mtime_ns: r.u64().ok()? as i64 };
    let sum = r.u32().ok()?;
    let data = rest.get(..len as usize).filter(|data| is_ours && data.len() <= DATA_MAX)?;
    (crc32c_append(crc32c(&head[..SUM_AT]), data) == sum).then_some((append, data))
}

/// The entries of a turn, in the order in which they took their places. `log` is the whole log, heads included.
pub fn entries<'l>(log: &'l [u8], turn: &Turn) -> impl Iterator<Item = (Append, &'l [u8])> {
    let blocks = (log.len() / BLOCK_BYTES) as u32;
    let mut block = FIRST_BLOCK;
    std::iter::from_fn(move || {
        while block + 1 < blocks {
            let found =
                read(&log[block as usize * BLOCK_BYTES..(blocks as usize - 1) * BLOCK_BYTES], turn, block);
            block += found.map_or(1, |(_, data)| entry_blocks(data.len()));
            if found.is_some() {
                return found;
            }
        }
        None
    })
}

impl LogHead {
    /// The block of the head.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let Turn { image, session, number } = self.turn;
        put(&mut block, &[&HEAD_MAGIC, &image, &session, &number, &u32::from(self.is_live), &self.count]);
        let sum = crc32c(&block);
        put(&mut block, &[&sum]);
        block.resize(BLOCK_BYTES, 0);
        block
    }

    /// What a head says; `None` when it is none of this image.
    pub fn decode(block: &[u8], image: [u8; 16]) -> Option<LogHead> {
        let mut r = Reader::new(block);
        let is_ours = r.array::<8>().ok()? == HEAD_MAGIC && r.array::<16>().ok()? == image;
        let (session, number, live, count) = (r.u64().ok()?, r.u32().ok()?, r.u32().ok()?, r.u64().ok()?);
        let sum = r.u32().ok()?;
        (is_ours && live <= 1 && crc32c(block.get(..48)?) == sum).then_some(LogHead {
            turn: Turn { image, session, number },
            count,
            is_live: live == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TURN: Turn = Turn { image: [3; 16], session: 9, number: 4 };

    fn put_entry(log: &mut [u8], turn: &Turn, block: u32, append: &Append, data: &[u8]) {
        let mut buffer = vec![0xaa; ENTRY_BYTES_MAX];
        buffer[ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + data.len()].copy_from_slice(data);
        let len = seal(&mut buffer, turn, block, append, data.len());
        log[block as usize * BLOCK_BYTES..][..len].copy_from_slice(&buffer[..len]);
    }

    #[test]
    fn entries_of_the_turn_are_found_behind_holes_and_no_others() {
        let mut log = vec![0; 40 * BLOCK_BYTES];
        let append = |offset| Append { ino: Ino(7), offset, mtime_ns: 5 };
        put_entry(&mut log, &TURN, 1, &append(0), b"first");
        put_entry(&mut log, &Turn { number: 3, ..TURN }, 2, &append(5), b"of another turn");
        put_entry(&mut log, &Turn { session: 8, ..TURN }, 3, &append(5), b"of another server");
        put_entry(&mut log, &TURN, 5, &append(5), &[1; 10_000]);
        let long = [2; DATA_MAX];
        put_entry(&mut log, &TURN, 8, &append(10_005), &long);
        // Torn: one byte of it is not what was written.
        put_entry(&mut log, &TURN, 24, &append(80_000), &[3; 5000]);
        log[25 * BLOCK_BYTES + 17] ^= 1;
        let found: Vec<_> = entries(&log, &TURN).map(|(a, data)| (a.offset, data.to_vec())).collect();
        assert_eq!(found, [(0, b"first".to_vec()), (5, vec![1; 10_000]), (10_005, long.to_vec())]);
        assert_eq!(entries(&log[..100], &TURN).count(), 0);
        assert_eq!(entries(&[], &TURN).count(), 0);
    }

    #[test]
    fn each_flipped_bit_of_a_head_is_noticed() {
        let head = LogHead { turn: TURN, count: 77, is_live: true };
        let block = head.encode();
        assert_eq!(LogHead::decode(&block, TURN.image), Some(head));
        assert_eq!(LogHead::decode(&block, [4; 16]), None);
        assert_eq!(LogHead::decode(&vec![0; BLOCK_BYTES], TURN.image), None);
        for bit in 0..52 * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(LogHead::decode(&bad, TURN.image), None, "bit {bit}");
        }
    }
}
