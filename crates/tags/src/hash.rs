//! SipHash-1-3 with the store's secret: where an edge lies in a table cannot be steered by whoever chooses keys.

use siphasher::sip::SipHasher13;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The secret that a store is made with.
#[derive(Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Secret(pub u64, pub u64);

impl Secret {
    /// The hash of `bytes`.
    #[inline]
    pub(crate) fn bytes(self, bytes: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.0, self.1).hash(bytes)
    }

    /// The hash of one number.
    #[inline]
    pub(crate) fn number(self, number: u64) -> u64 {
        self.bytes(&number.to_le_bytes())
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
    fn the_hash_is_the_published_function() {
        // With the key 00 01 .. 0f and the message 00 01 .. 0e, as the reference implementation gives for 1-3.
        let secret = Secret(
            u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7]),
            u64::from_le_bytes([8, 9, 10, 11, 12, 13, 14, 15]),
        );
        assert_eq!(secret.bytes(&[]), 0xabac_0158_050f_c4dc);
    }
}
