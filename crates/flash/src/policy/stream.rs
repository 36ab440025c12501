//! Chooses the open unit for the data of a tag.

use weft_core::Tag;

/// What tells tags apart: stream, lifetime group, and how far away the expected death is, in powers of two of what was
/// written until now.
type Key = (u16, u16, u8);

/// The streams that are open. A tag that is new takes the place of the one not seen for longest: its unit is shared then
/// until it is full.
#[derive(Clone, Debug)]
pub(super) struct StreamTable {
    entries: Vec<(Option<Key>, u64)>,
    clock: u64,
}

impl StreamTable {
    pub fn new(streams: u32) -> StreamTable {
        StreamTable { entries: vec![(None, 0); streams as usize], clock: 0 }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The open unit for this tag; `written` are the bytes that were written so far.
    pub fn front_of(&mut self, tag: Tag, written: u64) -> usize {
        let distance = match tag.death {
            0 => 0,
            death => (65 - death.saturating_sub(written).leading_zeros()) as u8,
        };
        let key = (tag.stream.0, tag.group.0, distance);
        self.clock += 1;
        let known = self.entries.iter().position(|(other, _)| *other == Some(key));
        let oldest = || (0..self.entries.len()).min_by_key(|at| self.entries[*at].1);
        let at = known.or_else(oldest).unwrap_or(0);
        self.entries[at] = (Some(key), self.clock);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::StreamId;

    #[test]
    fn tags_keep_their_unit_and_a_new_one_takes_that_of_the_tag_not_seen_for_longest() {
        let mut table = StreamTable::new(3);
        let tag = |stream, death| Tag { stream: StreamId(stream), death, ..Tag::default() };
        let fronts: Vec<usize> = (0..3).map(|s| table.front_of(tag(s, 0), 0)).collect();
        assert_eq!(fronts, [0, 1, 2]);
        assert_eq!(table.front_of(tag(0, 0), 0), 0);
        assert_eq!(table.front_of(tag(9, 0), 0), 1);
        assert_eq!(table.front_of(tag(2, 0), 0), 2);
        // Near and far deaths of one stream are kept apart.
        assert_eq!(table.front_of(tag(2, 1 << 20), 0), 0);
        assert_eq!(table.front_of(tag(2, (1 << 20) + 50), 10), 0);
        assert_eq!(table.front_of(tag(2, 1 << 30), 0), 1);
    }
}
