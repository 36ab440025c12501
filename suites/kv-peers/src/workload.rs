//! The workload: N pairs of 16-byte keys and 100-byte values that do not compress, in random order.
//!
//! A pair follows from its number, so nothing is kept. Numbers are visited in the order of a permutation, another one
//! in each phase.

/// Bytes of a key.
pub const KEY: usize = 16;
/// Bytes of a value.
pub const VALUE: usize = 100;

/// A key.
pub type Key = [u8; KEY];
/// A key and its value.
pub type Pair = (Key, [u8; VALUE]);

fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of pair `number`.
pub fn key(number: u64) -> Key {
    let mut key = [0; KEY];
    key[..8].copy_from_slice(&mix(number * 2 + 1).to_be_bytes());
    key[8..].copy_from_slice(&mix(number * 2 + 2).to_be_bytes());
    key
}

/// The value of pair `number`.
pub fn value(number: u64) -> [u8; VALUE] {
    let mut value = [0; VALUE];
    let mut state = mix(!number);
    for word in value.chunks_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let bits = state ^ (state >> 29);
        word.copy_from_slice(&bits.to_le_bytes()[..word.len()]);
    }
    value
}

/// A permutation of the numbers below `count`: a Feistel network over the next power of four, walked until the result is below.
#[derive(Clone, Copy)]
pub struct Order {
    count: u64,
    half: u32,
    seed: u64,
}

impl Order {
    pub fn new(count: u64, seed: u64) -> Order {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Order { count, half: bits.div_ceil(2).max(1), seed }
    }

    /// The number at a place.
    pub fn at(&self, place: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let mut number = place;
        loop {
            let (mut left, mut right) = (number >> self.half, number & mask);
            for round in 0..4 {
                let mixed = (right ^ self.seed ^ (round << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (left, right) = (right, left ^ (mixed >> 37 & mask));
            }
            number = left << self.half | right;
            if number < self.count {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_visits_each_number_once() {
        for count in [1, 2, 1000, 4097] {
            let order = Order::new(count, 7);
            let mut seen: Vec<_> = (0..count).map(|place| order.at(place)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count));
        }
    }
}
