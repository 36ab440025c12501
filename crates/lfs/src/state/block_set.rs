//! A set of blocks of one file, as ranges: those that `fallocate` promised room for and that nothing is mapped to yet.

use super::rarely::{Nothing, Rarely};
use std::collections::BTreeMap;

/// The set: first block of each range, and the block behind its last. Ranges neither overlap nor touch.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct BlockSet {
    ranges: BTreeMap<u64, u64>,
    blocks: u64,
}

impl Nothing for BlockSet {
    fn nothing() -> &'static BlockSet {
        static NOTHING: BlockSet = BlockSet { ranges: BTreeMap::new(), blocks: 0 };
        &NOTHING
    }

    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl Rarely<BlockSet> {
    /// Takes out `first..end`; returns how many blocks were in it.
    pub fn remove(&mut self, first: u64, end: u64) -> u64 {
        let gone = self.get_mut().map_or(0, |set| set.remove(first, end));
        self.tidy();
        gone
    }

    /// Moves what is at `block` and behind it by `count`.
    pub fn shift(&mut self, block: u64, count: u64, up: bool) {
        if let Some(set) = self.get_mut() {
            set.shift(block, count, up);
        }
    }
}

impl BlockSet {
    /// Blocks in it.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Ranges in it.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether a block is in it.
    pub fn contains(&self, block: u64) -> bool {
        self.ranges.range(..=block).next_back().is_some_and(|(_, end)| *end > block)
    }

    /// The ranges within `first..end`, cut to it.
    pub fn range(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let start = self.ranges.range(..=first).next_back().map_or(first, |(at, _)| *at);
        let cut = move |(from, to): (&u64, &u64)| {
            let (from, to) = ((*from).max(first), (*to).min(end));
            (from < to).then_some((from, to))
        };
        self.ranges.range(start..end.max(start)).filter_map(cut)
    }

    /// Blocks of `first..end` that are in it.
    pub fn count(&self, first: u64, end: u64) -> u64 {
        if self.is_empty() { 0 } else { self.range(first, end).map(|(from, to)| to - from).sum() }
    }

    /// Puts in `first..end`; returns how many blocks are new.
    pub fn insert(&mut self, mut first: u64, mut end: u64) -> u64 {
        if first >= end {
            return 0;
        }
        let new = end - first - self.count(first, end);
        if let Some((from, to)) = self.ranges.range(..=first).next_back().map(|(from, to)| (*from, *to))
            && to >= first
        {
            (first, end) = (from, end.max(to));
        }
        while let Some((from, to)) = self.ranges.range(first..=end).next().map(|(from, to)| (*from, *to)) {
            self.ranges.remove(&from);
            end = end.max(to);
        }
        self.ranges.insert(first, end);
        self.blocks += new;
        new
    }

    /// Takes out `first..end`; returns how many blocks were in it.
    pub fn remove(&mut self, first: u64, end: u64) -> u64 {
        if self.is_empty() || first >= end {
            return 0;
        }
        let mut gone = 0;
        let before = self.ranges.range(..first).next_back().map(|(from, to)| (*from, *to));
        if let Some((from, to)) = before.filter(|(_, to)| *to > first) {
            self.ranges.insert(from, first);
            if to > end {
                self.ranges.insert(end, to);
            }
            gone += to.min(end) - first;
        }
        while let Some((from, to)) = self.ranges.range(first..end).next().map(|(from, to)| (*from, *to)) {
            self.ranges.remove(&from);
            if to > end {
                self.ranges.insert(end, to);
            }
            gone += to.min(end) - from;
        }
        self.blocks -= gone;
        gone
    }

    /// Moves every block from `block` on by `count`, up or down. The caller has taken out what would be run over.
    pub fn shift(&mut self, block: u64, count: u64, up: bool) {
        let moved: Vec<(u64, u64)> = self.range(block, u64::MAX).collect();
        self.remove(block, u64::MAX);
        for (from, to) in moved {
            let by = |at: u64| if up { at + count } else { at - count };
            self.insert(by(from), by(to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_equals_a_plain_set_and_keeps_ranges_apart(steps in proptest::collection::vec((0u8..4, 0u64..64, 1u64..16), 1..60)) {
            let mut set = BlockSet::default();
            let mut plain: BTreeSet<u64> = BTreeSet::new();
            for (kind, at, n) in steps {
                match kind {
                    0 => {
                        let new = (at..at + n).filter(|block| plain.insert(*block)).count() as u64;
                        prop_assert_eq!(set.insert(at, at + n), new);
                    }
                    1 => {
                        let gone = (at..at + n).filter(|block| plain.remove(block)).count() as u64;
                        prop_assert_eq!(set.remove(at, at + n), gone);
                    }
                    2 => {
                        set.shift(at, n, true);
                        plain = plain.into_iter().map(|b| if b >= at { b + n } else { b }).collect();
                    }
                    _ => {
                        set.remove(at, at + n);
                        set.shift(at + n, n, false);
                        plain.retain(|b| !(at..at + n).contains(b));
                        plain = plain.into_iter().map(|b| if b >= at + n { b - n } else { b }).collect();
                    }
                }
                let flat: BTreeSet<u64> = set.range(0, u64::MAX).flat_map(|(from, to)| from..to).collect();
                prop_assert_eq!(&flat, &plain);
                prop_assert_eq!(set.blocks(), plain.len() as u64);
                prop_assert_eq!(set.count(10, 30), plain.range(10..30).count() as u64);
                prop_assert!((0..200).all(|b| set.contains(b) == plain.contains(&b)));
                let ranges: Vec<_> = set.range(0, u64::MAX).collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
                prop_assert_eq!(set.len(), ranges.len());
            }
        }
    }
}
