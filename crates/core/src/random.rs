//! Randomness that is a function of its inputs: faults and power cuts come out the same for the same seed, whatever
//! the order in which threads ask.

/// Steele, Lea and Flood's SplitMix64 (OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

/// Spreads the bits of a number over all of them: the finaliser of SplitMix64.
pub fn spread(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl SplitMix {
    /// The stream of this seed and these further distinctions.
    pub fn new(seed: u64, of: &[u64]) -> SplitMix {
        let mut stream = SplitMix(seed);
        for part in of {
            stream.0 = stream.next() ^ part;
        }
        stream.next();
        stream
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends, and an Option would say that it may")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        spread(self.0)
    }

    /// A number below `bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
