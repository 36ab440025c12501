//! Sets of numbers, many of which are near each other: a bit each.
//!
//! A tree of single numbers waits for memory at each of its levels: to put in one of 300,000 page numbers that came in no order took 600 ns, a
//! twentieth of what it takes to delete the pairs in such a page, and takes 100 here.

use std::collections::BTreeMap;

const WORDS: usize = 64;
/// Numbers of a chunk.
const NUMBERS: u32 = WORDS as u32 * 64;

/// Numbers that share all but their lower twelve bits.
struct Chunk {
    /// The words that are not 0: a bit each.
    used: u64,
    words: [u64; WORDS],
}

impl Default for Chunk {
    fn default() -> Chunk {
        Chunk { used: 0, words: [0; WORDS] }
    }
}

/// A set of numbers.
#[derive(Default)]
pub(crate) struct NumberSet {
    /// By the numbers in them, divided by [`NUMBERS`]. None is empty.
    chunks: BTreeMap<u32, Box<Chunk>>,
    /// One that has become empty, for the next that is needed: a set may have a number and none in turns.
    spare: Option<Box<Chunk>>,
    len: usize,
}

/// The chunk of a number, its word there, and its bit.
#[inline]
fn place(number: u32) -> (u32, usize, u64) {
    (number / NUMBERS, (number % NUMBERS / 64) as usize, 1 << (number % 64))
}

impl Chunk {
    fn first(&self) -> u32 {
        let word = self.used.trailing_zeros();
        word * 64 + self.words[word as usize % WORDS].trailing_zeros()
    }

    /// Takes a bit out; whether it was the last.
    fn clear(&mut self, word: usize, bit: u64) -> bool {
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            self.used &= !(1 << word);
        }
        self.used == 0
    }
}

impl NumberSet {
    /// How many numbers are in the set.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts a number in; whether it was not there.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        let (chunk, word, bit) = place(number);
        let chunk = self.chunks.entry(chunk).or_insert_with(|| self.spare.take().unwrap_or_default());
        let is_new = chunk.words[word] & bit == 0;
        chunk.words[word] |= bit;
        chunk.used |= 1 << word;
        self.len += usize::from(is_new);
        is_new
    }

    /// Takes a number out; whether it was there.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let (at, word, bit) = place(number);
        let Some(chunk) = self.chunks.get_mut(&at).filter(|chunk| chunk.words[word] & bit != 0) else {
            return false;
        };
        if chunk.clear(word, bit) {
            self.spare = self.chunks.remove(&at);
        }
        self.len -= 1;
        true
    }

    /// Takes the lowest number out.
    pub(crate) fn pop_first(&mut self) -> Option<u32> {
        let mut entry = self.chunks.first_entry()?;
        let number = entry.key() * NUMBERS + entry.get().first();
        let (_, word, bit) = place(number);
        if entry.get_mut().clear(word, bit) {
            self.spare = Some(entry.remove());
        }
        self.len -= 1;
        Some(number)
    }

    /// Takes all numbers out, in their order.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(std::mem::take(&mut self.len));
        let chunks = std::mem::take(&mut self.chunks).into_iter();
        for (chunk, words) in chunks.map(|(at, chunk)| (at, chunk.words)) {
            for (at, mut word) in (0..).zip(words) {
                while word != 0 {
                    numbers.push(chunk * NUMBERS + at * 64 + word.trailing_zeros());
                    word &= word - 1;
                }
            }
        }
        numbers
    }
}

impl Extend<u32> for NumberSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, numbers: T) {
        numbers.into_iter().for_each(|number| {
            self.insert(number);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Numbers of which some are near each other, at the ends of words and chunks, or at the end of all.
    fn number() -> impl Strategy<Value = u32> {
        let edges = prop::sample::select(vec![0, 63, 64, 4_095, 4_096, 8_191, u32::MAX - 64, u32::MAX]);
        prop_oneof![4 => 0u32..200, 2 => edges, 1 => any::<u32>()]
    }

    proptest! {
        #[test]
        fn it_holds_what_a_tree_of_numbers_holds(steps in prop::collection::vec((0..7, number()), 0..300)) {
            let (mut set, mut tree) = (NumberSet::default(), BTreeSet::new());
            for (step, number) in steps {
                match step {
                    0..4 => prop_assert_eq!(set.insert(number), tree.insert(number)),
                    4..6 => prop_assert_eq!(set.remove(number), tree.remove(&number)),
                    _ => prop_assert_eq!(set.pop_first(), tree.pop_first()),
                }
                prop_assert_eq!(set.len(), tree.len());
            }
            set.extend([7, u32::MAX, 7]);
            tree.extend([7, u32::MAX]);
            prop_assert_eq!(set.take(), tree.into_iter().collect::<Vec<_>>());
            prop_assert_eq!((set.len(), set.take(), set.chunks.len()), (0, Vec::new(), 0));
        }
    }
}
