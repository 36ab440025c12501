//! Finds bytes that must not be on a medium: whether a secure deletion has left something.
//!
//! A marker is a sequence of bytes, such as a file that is deleted or its name. Its pieces of 16 bytes are looked for at every byte of the
//! medium, since a record may lie anywhere. Pieces of few different bytes, such as zeros, say nothing and are not looked for.

use std::collections::HashMap;

/// Bytes of a piece.
pub const PIECE_BYTES: usize = 16;
/// Different bytes that a piece has at least.
const DIFFERENT_MIN: usize = 4;
/// A longer marker is looked for by pieces that do not overlap: any 31 bytes of it hold one.
const DENSE_BYTES_MAX: usize = 4096;
/// Bits of the filter that most places of a medium do not pass.
const FILTER_BITS: u32 = 22;

/// What is looked for.
#[derive(Debug)]
pub struct Markers {
    /// The marker of each piece.
    pieces: HashMap<[u8; PIECE_BYTES], u32>,
    /// A bit for each hash of the first half of a piece.
    filter: Vec<u64>,
    count: u32,
}

impl Default for Markers {
    fn default() -> Markers {
        Markers { pieces: HashMap::new(), filter: vec![0; 1 << (FILTER_BITS - 6)], count: 0 }
    }
}

fn hash(piece: &[u8; PIECE_BYTES]) -> usize {
    let half = piece.first_chunk().copied().map_or(0, u64::from_le_bytes);
    (half.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS)) as usize
}

fn says_something(piece: &[u8]) -> bool {
    let mut seen = [0u64; 4];
    piece.iter().for_each(|byte| seen[usize::from(byte >> 6)] |= 1 << (byte & 63));
    seen.iter().map(|word| word.count_ones()).sum::<u32>() as usize >= DIFFERENT_MIN
}

impl Markers {
    /// Adds a marker, and returns how many of its pieces are looked for. Markers are numbered from 0 in the order in which they are added. A
    /// piece of several markers is found as one of the first.
    pub fn add(&mut self, marker: &[u8]) -> usize {
        let step = if marker.len() <= DENSE_BYTES_MAX { 1 } else { PIECE_BYTES };
        let mut added = 0;
        for piece in marker.windows(PIECE_BYTES).step_by(step).filter(|piece| says_something(piece)) {
            let Some(piece) = piece.first_chunk() else { continue };
            let at = hash(piece);
            self.filter[at / 64] |= 1 << (at % 64);
            self.pieces.entry(*piece).or_insert(self.count);
            added += 1;
        }
        self.count += 1;
        added
    }

    /// Pieces that are looked for.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Shows the offset and the number of the marker of each piece in `bytes`. Who looks through a medium in parts lets them overlap by
    /// [`PIECE_BYTES`] - 1.
    pub fn find(&self, bytes: &[u8], mut found: impl FnMut(usize, u32)) {
        for (offset, window) in bytes.windows(PIECE_BYTES).enumerate() {
            let Some(piece) = window.first_chunk() else { continue };
            let at = hash(piece);
            if self.filter[at / 64] >> (at % 64) & 1 == 1
                && let Some(marker) = self.pieces.get(piece)
            {
                found(offset, *marker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    fn random(seed: u64, len: usize) -> Vec<u8> {
        let mut random = SplitMix::new(seed, &[]);
        (0..len).map(|_| random.next() as u8).collect()
    }

    fn found(markers: &Markers, bytes: &[u8]) -> Vec<(usize, u32)> {
        let mut all = Vec::new();
        markers.find(bytes, |offset, marker| all.push((offset, marker)));
        all
    }

    #[test]
    fn any_sixteen_bytes_of_a_short_marker_are_found_wherever_they_are() {
        let (mut markers, marker) = (Markers::default(), random(1, 40));
        assert_eq!(markers.add(&random(2, 20)), 5);
        assert_eq!(markers.add(&marker), 25);
        for (from, at) in [(0, 0), (7, 3), (24, 1000), (11, 4080)] {
            let mut medium = random(3, 5000);
            medium[at..at + 16].copy_from_slice(&marker[from..from + 16]);
            assert_eq!(found(&markers, &medium), [(at, 1)]);
            medium[at + 9] ^= 1;
            assert_eq!(found(&markers, &medium), []);
        }
    }

    #[test]
    fn any_thirty_one_bytes_of_a_long_marker_are_found() {
        let (mut markers, marker) = (Markers::default(), random(1, 10_000));
        markers.add(&marker);
        for from in (0..10_000 - 31).step_by(13) {
            let mut medium = random(3, 100);
            medium[5..36].copy_from_slice(&marker[from..from + 31]);
            assert_eq!(found(&markers, &medium).len(), 1, "{from}");
        }
    }

    #[test]
    fn pieces_of_few_different_bytes_are_not_looked_for() {
        let mut markers = Markers::default();
        assert_eq!(markers.add(&[0; 100]), 0);
        assert_eq!(markers.add(b"abababababababab"), 0);
        assert_eq!(markers.add(b"short"), 0);
        assert_eq!(found(&markers, &[0; 1000]), []);
    }
}
