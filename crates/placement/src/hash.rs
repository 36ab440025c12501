//! A hash that is the same in every run and version, because stream numbers that are recorded on a volume depend on it.

/// FNV-1a, 64 bits, over the parts with a mark between them.
pub fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut take = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    for part in parts {
        part.iter().copied().for_each(&mut take);
        // NUL stands in no path, so ("a", "b") and ("ab", "") differ.
        take(0);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::random::spread;

    #[test]
    fn the_hash_never_changes() {
        assert_eq!(stable_hash(&[]), 0xcbf2_9ce4_8422_2325);
        assert_ne!(stable_hash(&[b"a", b"b"]), stable_hash(&[b"ab", b""]));
        assert_eq!(stable_hash(&[b"suffix", b"sst"]), stable_hash(&[b"suffix", b"sst"]));
    }

    #[test]
    fn spreading_is_even_in_the_low_bits() {
        let mut counts = [0u32; 6];
        for n in 0..6000u32 {
            counts[(spread(stable_hash(&[&n.to_le_bytes()])) % 6) as usize] += 1;
        }
        assert!(counts.iter().all(|c| (850..1150).contains(c)), "{counts:?}");
    }
}
