//! SipHash-1-3 with the store's secret: where an edge lies in a table cannot be steered by whoever chooses keys.
//!
//! The function is that of Aumasson and Bernstein (INDOCRYPT 2012) with one compression round and three at the end.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The secret that a store is made with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Secret(pub u64, pub u64);

struct State([u64; 4]);

impl State {
    #[inline(always)]
    fn new(secret: Secret) -> State {
        State([
            secret.0 ^ 0x736f_6d65_7073_6575,
            secret.1 ^ 0x646f_7261_6e64_6f6d,
            secret.0 ^ 0x6c79_6765_6e65_7261,
            secret.1 ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline(always)]
    fn round(&mut self) {
        let v = &mut self.0;
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    }

    #[inline(always)]
    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    #[inline(always)]
    fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.0[0] ^ self.0[1] ^ self.0[2] ^ self.0[3]
    }
}

impl Secret {
    /// The hash of `bytes`.
    #[inline]
    pub(crate) fn bytes(self, bytes: &[u8]) -> u64 {
        let mut state = State::new(self);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            state.word(u64::from_le_bytes(*word));
        }
        // Seven bytes at most, often none: no call for a copy.
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        state.word(last | ((bytes.len() as u64) << 56));
        state.finish()
    }

    /// The hash of one number.
    #[inline]
    pub(crate) fn number(self, number: u64) -> u64 {
        let mut state = State::new(self);
        state.word(number);
        state.word(8 << 56);
        state.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_hashes_as_its_bytes_and_the_secret_decides() {
        let secret = Secret(1, 2);
        assert_eq!(secret.number(77), secret.bytes(&77u64.to_le_bytes()));
        assert_ne!(secret.number(77), Secret(1, 3).number(77));
        assert_ne!(secret.bytes(b"a"), secret.bytes(b"a\0"));
    }

    #[test]
    fn what_is_behind_the_last_word_counts_as_a_word_filled_with_zeros() {
        let (secret, bytes): (_, Vec<u8>) = (Secret(3, 4), (1..=40).collect());
        for len in 0..bytes.len() {
            let mut padded = bytes[..len].to_vec();
            padded.resize(len / 8 * 8 + 8, 0);
            let mut state = State::new(secret);
            let words = padded.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let last = len / 8;
            words.enumerate().for_each(|(at, word)| {
                state.word(if at == last { word | (len as u64) << 56 } else { word });
            });
            assert_eq!(secret.bytes(&bytes[..len]), state.finish(), "{len}");
        }
    }

    #[test]
    fn the_hash_is_the_published_function() {
        // With the key 00 01 .. 0f and the message 00 01 .. 0e, as the reference implementation gives for 1-3.
        let secret = Secret(
            u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7]),
            u64::from_le_bytes([8, 9, 10, 11, 12, 13, 14, 15]),
        );
        assert_eq!(secret.bytes(&[]), 0xabac_0158_050f_c4dc);
    }
}
