//! Which positions a page of a table answers for.
//!
//! Positions that agree in their upper bits are a group's, which has one to five pages: each answers for an equal part of them, in
//! order. A group grows page by page. Five pages become two groups of three, so pages of a table with more are three quarters to five sixths as full
//! after a step as before it, where halving them would leave them half as full.

use crate::error::{Error, Result};

/// Pages of a group, at most.
pub(crate) const PARTS_MAX: u8 = 5;
/// Pages of each of the two groups that a group with one page more becomes.
pub(crate) const PARTS_HALF: u8 = PARTS_MAX.div_ceil(2);
/// A directory has at most two to this many entries: a group for each.
pub(crate) const DEPTH_MAX: u8 = 25;

/// The positions of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// The upper `depth` bits of the positions of the group.
    pub prefix: u64,
    pub depth: u8,
    /// Which of its parts, from 0 on.
    pub part: u8,
    /// How many parts, and pages, the group has.
    pub parts: u8,
}

impl Share {
    /// All positions.
    pub(crate) const ALL: Share = Share { prefix: 0, depth: 0, part: 0, parts: 1 };

    /// The share as descriptors and pages have it: the prefix; the depth, plus 2^16 times the part, plus 2^24 times the parts.
    pub(crate) fn words(self) -> [u64; 2] {
        [self.prefix, u64::from(self.depth) | u64::from(self.part) << 16 | u64::from(self.parts) << 24]
    }

    /// Reads a share.
    ///
    /// # Errors
    /// [`Error::Damaged`] for one that cannot be.
    pub(crate) fn from_words([prefix, word]: [u64; 2]) -> Result<Share> {
        let [depth, _, part, parts, ..] = word.to_le_bytes();
        let share = Share { prefix, depth, part, parts };
        let is_one = depth <= DEPTH_MAX
            && prefix >> depth == 0
            && (1..=PARTS_MAX).contains(&parts)
            && part < parts
            && share.words()[1] == word;
        if is_one {
            Ok(share)
        } else {
            Err(Error::damaged(format!("a page with share {prefix:#x}, {word:#x}")))
        }
    }

    /// The part of a group that a position is in: all of its bits are looked at but those above `depth`.
    #[inline]
    pub(crate) fn part_of(position: u64, depth: u8, parts: u8) -> usize {
        ((((position << depth) >> 32) * u64::from(parts)) >> 32) as usize
    }

    /// The first position.
    pub(crate) fn first(self) -> u64 {
        self.begin_of(self.part)
    }

    /// The first position behind these; `None` behind the last of all.
    pub(crate) fn end(self) -> Option<u64> {
        if self.part + 1 < self.parts {
            return Some(self.begin_of(self.part + 1));
        }
        let next = self.prefix + 1;
        (next >> self.depth == 0).then(|| next << (64 - self.depth))
    }

    fn begin_of(self, part: u8) -> u64 {
        let begin = (u64::from(part) << 32).div_ceil(u64::from(self.parts)) << 32;
        self.prefix.unbounded_shl(64 - u32::from(self.depth)) | begin >> self.depth
    }

    /// Whether a position is one of these.
    pub(crate) fn covers(self, position: u64) -> bool {
        position >= self.first() && self.end().is_none_or(|end| position < end)
    }
}

/// The pages of a group. An entry of a directory lies in one line of the processor's cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(32))]
pub(crate) struct Group {
    pub pages: [u32; PARTS_MAX as usize],
    pub depth: u8,
    pub parts: u8,
}

impl Group {
    /// One that no page was put into.
    pub(crate) const EMPTY: Group = Group { pages: [u32::MAX; PARTS_MAX as usize], depth: 0, parts: 0 };

    /// The pages, in the order of their positions.
    #[inline]
    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages[..usize::from(self.parts)]
    }

    /// The page that answers for a position of the group.
    #[inline]
    pub(crate) fn page_of(&self, position: u64) -> u32 {
        self.pages[Share::part_of(position, self.depth, self.parts)]
    }

    /// Puts a page in as its share says; whether it goes with the pages that are there.
    pub(crate) fn put(&mut self, page: u32, share: Share) -> bool {
        if self.parts == 0 {
            (self.depth, self.parts) = (share.depth, share.parts);
        }
        let slot = &mut self.pages[usize::from(share.part)];
        let goes = (self.depth, self.parts) == (share.depth, share.parts) && *slot == u32::MAX;
        *slot = page;
        goes
    }

    /// Whether all of its pages are there.
    pub(crate) fn is_whole(&self) -> bool {
        self.parts > 0 && !self.pages().contains(&u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_a_group_follow_each_other_and_cover_each_position_once() {
        for parts in 1..=PARTS_MAX {
            for (prefix, depth) in [(0, 0), (0, 1), (1, 1), (5, 3), (7, 3), ((1 << DEPTH_MAX) - 1, DEPTH_MAX)]
            {
                let shares: Vec<_> = (0..parts).map(|part| Share { prefix, depth, part, parts }).collect();
                for (at, share) in shares.iter().enumerate() {
                    assert_eq!(Share::from_words(share.words()).unwrap(), *share);
                    let edges = [Some(share.first()), share.end().map(|end| end - 1)];
                    for position in edges.into_iter().flatten().chain([share.first() + 12_345]) {
                        assert_eq!(Share::part_of(position, depth, parts), at, "{share:?} {position:#x}");
                        let covering = shares.iter().filter(|share| share.covers(position)).count();
                        assert_eq!((covering, share.covers(position)), (1, true), "{share:?}");
                    }
                    let next = shares.get(at + 1).map(|next| next.first());
                    assert!(next.is_none_or(|next| share.end() == Some(next)));
                }
                let end = shares.last().unwrap().end();
                assert_eq!(end.is_none(), prefix + 1 == 1 << depth);
                assert!(!end.is_some_and(|end| shares.iter().any(|share| share.covers(end))));
            }
        }
    }

    #[test]
    fn a_share_that_cannot_be_is_damage() {
        let [_, word] = Share { prefix: 1, depth: 1, part: 2, parts: 3 }.words();
        assert!(Share::from_words([1, word]).is_ok());
        for words in [
            [2, word],
            [1, word | 1 << 8],
            [1, word | 1 << 32],
            [1, 1 | (u64::from(PARTS_MAX) + 1) << 24],
            [1, 1 | 3 << 16 | 3 << 24],
            [1, 1],
            [0, (u64::from(DEPTH_MAX) + 1) | (1 << 24)],
        ] {
            assert!(Share::from_words(words).is_err(), "{words:x?}");
        }
    }
}
