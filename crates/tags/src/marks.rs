//! Numbers that are marked, many near each other: a bit each.

use std::collections::BTreeMap;

/// Words of a chunk.
const WORDS: usize = 512;
/// Numbers of a chunk.
const NUMBERS: u32 = WORDS as u32 * 64;

/// A set of numbers, to be filled one by one and taken all at once.
#[derive(Default)]
pub(crate) struct Marks {
    /// By the numbers in them, divided by [`NUMBERS`].
    chunks: BTreeMap<u32, Box<[u64; WORDS]>>,
}

impl Marks {
    /// Marks a number.
    #[inline]
    pub(crate) fn mark(&mut self, number: u32) {
        let chunk = self.chunks.entry(number / NUMBERS).or_insert_with(|| Box::new([0; WORDS]));
        let at = number % NUMBERS;
        chunk[at as usize / 64] |= 1 << (at % 64);
    }

    /// The marked numbers, in order; none is marked afterwards.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        let mut numbers = Vec::new();
        for (chunk, words) in std::mem::take(&mut self.chunks) {
            for (at, mut word) in (0..).zip(*words) {
                while word != 0 {
                    numbers.push(chunk * NUMBERS + at * 64 + word.trailing_zeros());
                    word &= word - 1;
                }
            }
        }
        numbers
    }
}

impl Extend<u32> for Marks {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, numbers: T) {
        numbers.into_iter().for_each(|number| self.mark(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_was_marked_comes_back_once_and_in_order(
            near in proptest::collection::vec(0u32..200, 0..60),
            far in proptest::collection::vec(any::<u32>(), 0..20),
        ) {
            let mut marks = Marks::default();
            let numbers = || near.iter().chain(&far).copied().chain([u32::MAX, 32_767, 32_768]);
            marks.extend(numbers());
            let wanted: Vec<u32> = numbers().collect::<BTreeSet<_>>().into_iter().collect();
            prop_assert_eq!(marks.take(), wanted);
            prop_assert_eq!(marks.take(), Vec::new());
        }
    }
}
