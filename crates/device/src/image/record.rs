//! The record of a zone, and the accounting of its bytes.

use super::slot::{CONTENT_WORDS, Content};
use crate::zoned::{ZoneReport, ZoneState};
use weft_core::{BLOCK_BYTES, Origin};

/// One zone (the default is one that was never written): its state, what of it is durable, its wear, and the bytes that went through it since the format.
///
/// Two sums always hold, by construction of every method here, and `verify` checks them from the outside:
/// `written + padding == programmed + buffered + dropped` and `programmed == erased with content + standing`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ZoneRecord {
    pub state: ZoneState,
    /// Blocks written.
    pub write_pointer: u32,
    /// Blocks known to be durable when the record was last written.
    pub durable: u32,
    /// Where the second checked segment begins: blocks of `durable..middle` have `crc_first`, the rest `crc_second`.
    pub middle: u32,
    /// CRC32C of the blocks `durable..middle`.
    pub crc_first: u32,
    /// CRC32C of the blocks `middle..write_pointer`.
    pub crc_second: u32,
    /// Erases of each of the zone's blocks.
    pub erases: u32,
    /// Blocks of the zone that failed and were replaced by spares.
    pub replaced: u32,
    /// Bytes written, by [`Origin`].
    pub written: [u64; 3],
    /// Bytes programmed into flash, padding included.
    pub programmed: u64,
    /// Bytes of padding in units that were programmed before they were full.
    pub padding: u64,
    /// Bytes that were written but never programmed: a reset or a power cut took them out of the buffer.
    pub dropped: u64,
    /// Bytes of erased blocks that held nothing when they were erased.
    pub erased_unwritten: u64,
    /// Resets.
    pub resets: u64,
    /// Write and append commands.
    pub writes: u64,
    /// Bytes programmed since the last erase.
    pub standing: u64,
}

/// Sizes that the accounting of a zone needs, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct ZoneShape {
    /// Writable bytes of a zone.
    pub capacity: u64,
    /// Bytes of a program unit.
    pub unit: u64,
}

/// Most that the counts of all zones of a device come to in sum: far beyond what any flash stands, and low enough that no
/// sum of them overflows.
pub const COUNTS_MAX: u64 = 1 << 60;
/// Most erases, and most replaced blocks, of a zone.
const ERASES_MAX: u32 = 1 << 30;

fn low_high(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl ZoneRecord {
    /// State and write pointer.
    pub fn report(&self) -> ZoneReport {
        ZoneReport { state: self.state, write_pointer: self.write_pointer }
    }

    /// The record as it stands in a slot.
    pub fn encode(&self) -> Content {
        [
            low_high(self.state as u32, self.write_pointer),
            low_high(self.durable, self.middle),
            low_high(self.crc_first, self.crc_second),
            low_high(self.erases, self.replaced),
            self.written[Origin::Host as usize],
            self.written[Origin::Gc as usize],
            self.written[Origin::Metadata as usize],
            self.programmed,
            self.padding,
            self.dropped,
            self.erased_unwritten,
            self.resets,
            self.writes,
            self.standing,
        ]
    }

    /// Reads what [`encode`](ZoneRecord::encode) wrote; `None` when the fields contradict each other.
    pub fn decode(content: &Content, shape: ZoneShape) -> Option<ZoneRecord> {
        let low = |at: usize| content[at] as u32;
        let high = |at: usize| (content[at] >> 32) as u32;
        const { assert!(CONTENT_WORDS == 14) };
        let record = ZoneRecord {
            state: ZoneState::from_number(u8::try_from(low(0)).ok()?)?,
            write_pointer: high(0),
            durable: low(1),
            middle: high(1),
            crc_first: low(2),
            crc_second: high(2),
            erases: low(3),
            replaced: high(3),
            written: [content[4], content[5], content[6]],
            programmed: content[7],
            padding: content[8],
            dropped: content[9],
            erased_unwritten: content[10],
            resets: content[11],
            writes: content[12],
            standing: content[13],
        };
        let ordered = record.durable <= record.middle && record.middle <= record.write_pointer;
        let within = record.bytes() <= shape.capacity && record.standing <= shape.capacity;
        let empty = record.state != ZoneState::Empty || record.write_pointer == 0;
        (ordered && within && empty && record.adds_up(shape)).then_some(record)
    }

    /// Whether the two sums hold, and what stands in flash fits the write pointer. A checksum that is right does not prove it:
    /// somebody may have made it, and whatever is counted on would overflow.
    fn adds_up(&self, shape: ZoneShape) -> bool {
        let (bytes, erases) = (self.bytes(), u128::from(self.erases));
        let [whole, padded] = [bytes / shape.unit * shape.unit, bytes.next_multiple_of(shape.unit)];
        let stands = match self.state {
            ZoneState::Full => self.standing == padded,
            ZoneState::ReadOnly | ZoneState::Offline => self.standing == whole || self.standing == padded,
            _ => self.standing == whole,
        };
        let sum = |counts: &[u64]| counts.iter().map(|count| u128::from(*count)).sum::<u128>();
        let [host, gc, metadata] = self.written;
        let written = sum(&[host, gc, metadata, self.padding]);
        let erased = erases * u128::from(shape.capacity);
        stands
            && self.padding >= self.standing.saturating_sub(bytes)
            && written == sum(&[self.programmed, self.buffered(), self.dropped])
            && sum(&[self.programmed, self.erased_unwritten]) == erased + u128::from(self.standing)
            && u128::from(self.erased_unwritten) <= erased
            && self.erases <= ERASES_MAX
            && self.replaced <= ERASES_MAX
            && self.counts() <= u128::from(COUNTS_MAX)
    }

    /// All counts in sum.
    pub fn counts(&self) -> u128 {
        // Those stand between the halved words and what is in flash now.
        self.encode()[4..CONTENT_WORDS - 1].iter().map(|count| u128::from(*count)).sum()
    }

    /// Orders the records that a zone had: a reset begins a new life, in which the write pointer only moves on, and at
    /// the same write pointer states follow each other only in this direction.
    pub fn age(&self) -> (u64, u32, u8) {
        let state = match self.state {
            ZoneState::Empty => 0,
            ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen | ZoneState::Closed => 1,
            ZoneState::Full => 2,
            ZoneState::ReadOnly => 3,
            ZoneState::Offline => 4,
        };
        (self.resets, self.write_pointer, state)
    }

    /// The resets in an encoded record.
    pub fn resets_in(content: &Content) -> u64 {
        content[11]
    }

    /// Bytes written since the last reset.
    fn bytes(&self) -> u64 {
        u64::from(self.write_pointer) * BLOCK_BYTES as u64
    }

    /// Bytes that stand in the write buffer, not programmed yet.
    pub fn buffered(&self) -> u64 {
        self.bytes().saturating_sub(self.standing)
    }

    /// Accounts for `blocks` more blocks at the write pointer: whole program units go to flash, the rest is buffered.
    /// Returns the bytes programmed.
    pub fn advance(&mut self, blocks: u32, origin: Origin, shape: ZoneShape) -> u64 {
        self.write_pointer += blocks;
        self.written[origin as usize] += u64::from(blocks) * BLOCK_BYTES as u64;
        self.writes += 1;
        let programmed = self.bytes() / shape.unit * shape.unit - self.standing;
        self.standing += programmed;
        self.programmed += programmed;
        programmed
    }

    /// Programs what is buffered, padded to a whole unit. Returns the bytes programmed.
    pub fn pad(&mut self, shape: ZoneShape) -> u64 {
        let buffered = self.buffered();
        if buffered == 0 {
            return 0;
        }
        self.padding += shape.unit - buffered;
        self.standing += shape.unit;
        self.programmed += shape.unit;
        shape.unit
    }

    /// Drops what is buffered and erases the blocks if they hold anything. Returns whether they were erased.
    pub fn erase(&mut self, shape: ZoneShape) -> bool {
        self.dropped += self.buffered();
        let erased = self.standing > 0;
        if erased {
            self.erases += 1;
            self.erased_unwritten += shape.capacity - self.standing;
        }
        self.standing = 0;
        self.write_pointer = 0;
        self.resets += 1;
        self.forget_checks();
        erased
    }

    /// Nothing is left to check: everything up to the write pointer is durable.
    pub fn forget_checks(&mut self) {
        self.durable = self.write_pointer;
        self.middle = self.write_pointer;
        self.crc_first = 0;
        self.crc_second = 0;
    }

    /// Power was lost: of the blocks only the first `blocks` are left. What is cut off counts as dropped from the
    /// buffer, since nobody will ever read it; the flash under it counts as not programmed.
    pub fn cut(&mut self, blocks: u32, shape: ZoneShape) {
        if blocks < self.write_pointer {
            let before = self.bytes();
            let padded = self.standing.saturating_sub(before);
            self.write_pointer = blocks;
            let standing = self.bytes() / shape.unit * shape.unit;
            // Padding that the cut takes away was programmed with it.
            self.padding -= padded;
            self.programmed -= self.standing - standing;
            self.standing = standing;
            self.dropped += before - self.bytes();
            if matches!(self.state, ZoneState::Full) {
                self.state = ZoneState::Closed;
            }
        }
        self.power_cycle();
    }

    /// What a power cycle does to the state: nothing stays open.
    pub fn power_cycle(&mut self) {
        if self.state.is_open() {
            self.state = ZoneState::Closed;
        }
        if self.state == ZoneState::Closed && self.write_pointer == 0 {
            self.state = ZoneState::Empty;
        }
        self.forget_checks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHAPE: ZoneShape = ZoneShape { capacity: 16 * 16384, unit: 16384 };

    /// A zone that has been through something.
    fn used_zone() -> ZoneRecord {
        let mut zone = ZoneRecord::default();
        zone.advance(30, Origin::Host, SHAPE);
        zone.erase(SHAPE);
        zone.advance(7, Origin::Metadata, SHAPE);
        zone.state = ZoneState::Closed;
        zone
    }

    #[test]
    fn a_record_that_does_not_add_up_is_refused() {
        let zone = used_zone();
        assert_eq!(ZoneRecord::decode(&zone.encode(), SHAPE), Some(zone.clone()));
        let lies: [fn(&mut ZoneRecord); 9] = [
            |r| r.standing += SHAPE.unit,
            |r| r.state = ZoneState::Full,
            |r| r.written[0] = u64::MAX,
            |r| r.programmed += 4096,
            |r| r.padding += 4096,
            |r| r.dropped -= 4096,
            |r| r.erases = u32::MAX,
            |r| r.resets = u64::MAX,
            |r| r.replaced = u32::MAX,
        ];
        for (n, lie) in lies.iter().enumerate() {
            let mut lying = zone.clone();
            lie(&mut lying);
            assert_eq!(ZoneRecord::decode(&lying.encode(), SHAPE), None, "lie {n}");
        }
    }

    proptest! {
        #[test]
        fn whatever_record_is_read_can_be_worked_with(
            changes in prop::collection::vec(
                (0..CONTENT_WORDS, prop_oneof![Just(u64::MAX), Just(1 << 63), 0..1u64 << 20, any::<u64>()]),
                0..4,
            ),
            state in prop_oneof![Just(0u64), 1..16u64],
            blocks in 1..8u32,
        ) {
            let mut content = used_zone().encode();
            for (at, value) in changes {
                content[at] = value;
            }
            if state != 0 {
                content[0] = content[0] >> 32 << 32 | state;
            }
            if let Some(record) = ZoneRecord::decode(&content, SHAPE) {
                let writable = !matches!(record.state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline);
                let room = (SHAPE.capacity / 4096) as u32 - record.write_pointer;
                let mut zone = record.clone();
                zone.cut(blocks, SHAPE);
                zone.erase(SHAPE);
                if writable {
                    let mut zone = record;
                    zone.advance(blocks.min(room), Origin::Host, SHAPE);
                    zone.pad(SHAPE);
                    zone.erase(SHAPE);
                }
            }
        }

        #[test]
        fn every_byte_is_programmed_buffered_or_dropped_whatever_happens_to_the_zone(
            steps in prop::collection::vec((0u8..4, 1u32..9), 1..60)
        ) {
            let mut zone = ZoneRecord::default();
            let mut erased_bytes = 0;
            for (kind, n) in steps {
                match kind {
                    0 | 1 => {
                        let room = (SHAPE.capacity / 4096) as u32 - zone.write_pointer;
                        if zone.state != ZoneState::Full && room > 0 {
                            zone.advance(n.min(room), Origin::ALL[n as usize % 3], SHAPE);
                            zone.state = ZoneState::ImplicitlyOpen;
                        }
                    }
                    2 if zone.state != ZoneState::Full => {
                        zone.pad(SHAPE);
                        zone.state = ZoneState::Full;
                    }
                    2 => {
                        if zone.erase(SHAPE) { erased_bytes += SHAPE.capacity; }
                        zone.state = ZoneState::Empty;
                    }
                    _ => zone.cut(zone.write_pointer.saturating_sub(n), SHAPE),
                }
                let written: u64 = zone.written.iter().sum();
                prop_assert_eq!(written + zone.padding, zone.programmed + zone.buffered() + zone.dropped);
                prop_assert_eq!(zone.programmed, erased_bytes - zone.erased_unwritten + zone.standing);
                prop_assert_eq!(ZoneRecord::decode(&zone.encode(), SHAPE), Some(zone.clone()));
            }
        }
    }
}
