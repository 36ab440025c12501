//! A record that is updated in place and is whole at any moment.
//!
//! ```text
//!  word 0       which slot counts: its number in the low half, the complement of it in the high half
//!  words 1..16  slot 0: 14 words of content, 1 word of CRC32C
//!  words 16..31 slot 1
//!  word 31      zero
//! ```
//!
//! An update fills the slot that does not count, then stores word 0. A process that dies in between leaves word 0
//! pointing at the slot that is whole. The 256 bytes lie within one sector, so a disk writes them whole as well; and
//! should a host crash catch the disk while it reads a page that is being stored to, the CRC tells.

use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::checksum::{crc32c, crc32c_append};

/// Words of content in a slot.
pub const CONTENT_WORDS: usize = 14;
/// Words of the whole record.
pub const RECORD_WORDS: usize = 32;
/// Bytes of the whole record.
pub const RECORD_BYTES: usize = RECORD_WORDS * 8;

/// What a record says.
pub type Content = [u64; CONTENT_WORDS];

/// What tells a record from the same record of another image or another place: it goes into the checksum.
#[derive(Clone, Copy, Debug)]
pub struct Salt {
    /// The image's id.
    pub image: [u8; 16],
    /// The place of the record.
    pub place: u64,
}

/// What a reader does when the slot that counts is torn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TornSlots {
    /// Refuses the record: only damage can have torn the slot.
    Refuse,
    /// Takes the other slot: the host crashed, perhaps during the write.
    TakeOther,
}

fn checksum(content: &Content, salt: Salt) -> u32 {
    let mut bytes = [0u8; CONTENT_WORDS * 8];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(content) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    let crc = crc32c(&bytes);
    let crc = crc32c_append(crc, &salt.image);
    crc32c_append(crc, &salt.place.to_le_bytes())
}

fn selector(slot: u32) -> u64 {
    u64::from(slot) | u64::from(!slot) << 32
}

/// Reads the slot that counts; `None` when there is none that is whole. Also says which slot it was.
pub fn read(words: &[AtomicU64], salt: Salt, torn: TornSlots) -> Option<(Content, u32)> {
    let slot_at = |slot: u32| {
        let start = 1 + slot as usize * (CONTENT_WORDS + 1);
        let mut content = [0; CONTENT_WORDS];
        for (out, word) in content.iter_mut().zip(&words[start..]) {
            *out = u64::from_le(word.load(Ordering::Relaxed));
        }
        let stored = u64::from_le(words[start + CONTENT_WORDS].load(Ordering::Relaxed));
        (stored == u64::from(checksum(&content, salt))).then_some((content, slot))
    };
    let chosen = u64::from_le(words[0].load(Ordering::Acquire));
    let counts = [0, 1].into_iter().find(|slot| selector(*slot) == chosen);
    match (counts, torn) {
        (Some(slot), TornSlots::Refuse) => slot_at(slot),
        (Some(slot), TornSlots::TakeOther) => slot_at(slot).or_else(|| slot_at(slot ^ 1)),
        (None, _) => None,
    }
}

/// Writes `content` into the slot that does not count and makes it count. `current` is the slot that counts now; the
/// caller owns the record, so nobody else updates it meanwhile. Returns the slot that counts from now on.
pub fn update(words: &[AtomicU64], salt: Salt, current: u32, content: &Content) -> u32 {
    let slot = current ^ 1;
    let start = 1 + slot as usize * (CONTENT_WORDS + 1);
    for (word, value) in words[start..].iter().zip(content) {
        word.store(value.to_le(), Ordering::Relaxed);
    }
    words[start + CONTENT_WORDS].store(u64::from(checksum(content, salt)).to_le(), Ordering::Relaxed);
    // Release: whoever sees the selector sees the slot. The kernel, which survives this process, sees stores in order.
    words[0].store(selector(slot).to_le(), Ordering::Release);
    slot
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salt(place: u64) -> Salt {
        Salt { image: [7; 16], place }
    }

    fn record() -> Vec<AtomicU64> {
        (0..RECORD_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn an_update_that_stops_anywhere_leaves_the_record_before_or_after_it() {
        let (old, new) = ([1; CONTENT_WORDS], [2; CONTENT_WORDS]);
        let full = record();
        let slot = update(&full, salt(0), 1, &old);
        let before: Vec<u64> = full.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        update(&full, salt(0), slot, &new);
        // The order of the stores: the 15 words of slot 1, then the selector.
        let order: Vec<usize> = (16..31).chain([0]).collect();
        for stop in 0..=order.len() {
            let torn = record();
            for (word, value) in torn.iter().zip(&before) {
                word.store(*value, Ordering::Relaxed);
            }
            for at in &order[..stop] {
                torn[*at].store(full[*at].load(Ordering::Relaxed), Ordering::Relaxed);
            }
            let (content, _) = read(&torn, salt(0), TornSlots::Refuse).expect("the record is whole");
            assert_eq!(content, if stop == order.len() { new } else { old }, "after {stop} stores");
        }
    }

    #[test]
    fn a_torn_slot_is_refused_and_after_a_host_crash_replaced_by_the_other() {
        let words = record();
        let slot = update(&words, salt(3), 1, &[1; CONTENT_WORDS]);
        update(&words, salt(3), slot, &[2; CONTENT_WORDS]);
        words[20].fetch_xor(1 << 17, Ordering::Relaxed);
        assert_eq!(read(&words, salt(3), TornSlots::Refuse), None);
        assert_eq!(read(&words, salt(3), TornSlots::TakeOther), Some(([1; CONTENT_WORDS], 0)));
        words[0].store(5, Ordering::Relaxed);
        assert_eq!(read(&words, salt(3), TornSlots::TakeOther), None);
    }

    #[test]
    fn a_record_of_another_place_or_image_is_refused() {
        let words = record();
        update(&words, salt(3), 1, &[1; CONTENT_WORDS]);
        assert!(read(&words, salt(3), TornSlots::Refuse).is_some());
        assert!(read(&words, salt(4), TornSlots::Refuse).is_none());
        assert!(read(&words, Salt { image: [8; 16], place: 3 }, TornSlots::Refuse).is_none());
    }
}
