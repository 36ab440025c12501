//! Where the blocks of one file lie: runs, by first block.
//!
//! Runs never overlap; neighbours that continue each other on the device are one run, so that a file written in one go
//! is a handful of runs. Every change hands the places that it frees to the caller, who keeps the zones' live counts.

use super::runs::Runs;
use crate::layout::record::{FileRun, Run};
use weft_core::BLOCK_BYTES;

/// The map of one file.
#[derive(Clone, Default, Debug)]
pub struct ExtentMap {
    runs: Runs,
}

const BLOCK: u64 = BLOCK_BYTES as u64;

impl ExtentMap {
    /// Runs.
    pub fn len(&self) -> usize {
        self.runs.count()
    }

    /// Whether a file of `size` bytes ends before what is mapped does.
    pub fn reaches_beyond(&self, size: u64) -> bool {
        self.runs.before(u64::MAX).is_some_and(|(first, run)| {
            let blocks = first + u64::from(run.count);
            let end = (blocks - 1) * BLOCK + u64::from(run.len);
            end > size
        })
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.runs.count() == 0
    }

    /// The place of one block: a run of one.
    pub fn get(&self, block: u64) -> Option<Run> {
        let (first, run) = self.runs.before(block + 1)?;
        slice_of(first, &run, block, block + 1).map(|r| r.run)
    }

    /// The runs within `first..end`, cut to it.
    pub fn range(&self, first: u64, end: u64) -> impl Iterator<Item = FileRun> {
        let start = self.runs.before(first.saturating_add(1)).map_or(first, |(at, _)| at);
        self.runs.range(start..end.max(start)).filter_map(move |(at, run)| slice_of(at, run, first, end))
    }

    /// All runs.
    pub fn iter(&self) -> impl Iterator<Item = FileRun> {
        self.runs.range(0..u64::MAX).map(|(block, run)| FileRun { block, run: *run })
    }

    /// Maps blocks; what they were mapped to is freed.
    pub fn insert(&mut self, new: FileRun, freed: &mut impl FnMut(FileRun)) {
        let end = new.block + u64::from(new.run.count);
        // An append, or a hole that is filled, frees nothing: one look tells.
        let overlaps =
            self.runs.before(end).is_some_and(|(first, run)| first + u64::from(run.count) > new.block);
        if overlaps {
            self.remove(new.block, end, freed);
        }
        let mut first = new.block;
        let mut run = new.run;
        if run.is_whole() {
            if let Some((at, before)) = self.runs.before(first)
                && continues(at, &before, first, &run)
                && let Some(count) = before.count.checked_add(run.count)
            {
                (first, run) = (at, Run { count, ..before });
            }
            if let Some((at, after)) = self.runs.from(end)
                && continues(first, &run, at, &after)
                && let Some(count) = run.count.checked_add(after.count)
            {
                run.count = count;
                self.runs.remove(at);
            }
        }
        self.runs.insert(first, run);
    }

    /// Unmaps the blocks `first..end`.
    pub fn remove(&mut self, first: u64, end: u64, freed: &mut impl FnMut(FileRun)) {
        if first >= end {
            return;
        }
        if let Some((at, run)) = self.runs.before(first) {
            let run_end = at + u64::from(run.count);
            if run_end > first {
                if let Some(kept) = slice_of(at, &run, at, first) {
                    self.runs.insert(at, kept.run);
                }
                if let Some(cut) = slice_of(at, &run, first, end) {
                    freed(cut);
                }
                if let Some(rest) = slice_of(at, &run, end, run_end) {
                    self.runs.insert(rest.block, rest.run);
                    return;
                }
            }
        }
        while let Some((at, run)) = self.runs.from(first).filter(|(at, _)| *at < end) {
            self.runs.remove(at);
            if let Some(cut) = slice_of(at, &run, first, end) {
                freed(cut);
            }
            if let Some(rest) = slice_of(at, &run, end, at + u64::from(run.count)) {
                self.runs.insert(rest.block, rest.run);
            }
        }
    }

    /// Shortens the piece of one block to `len` bytes (more than 0) when it is longer. `trimmed` gets the piece before
    /// and after.
    pub fn trim(&mut self, block: u64, len: u32, trimmed: &mut impl FnMut(FileRun, FileRun)) {
        let Some(old) = self.get(block) else { return };
        if old.len <= len {
            return;
        }
        self.remove(block, block + 1, &mut |_| {});
        let new = FileRun { block, run: Run { len, ..old } };
        self.runs.insert(block, new.run);
        trimmed(FileRun { block, run: old }, new);
    }

    /// Moves every block from `block` on by `count`, up or down. The caller has unmapped what would be run over.
    pub fn shift(&mut self, block: u64, count: u64, up: bool) {
        // A run across the border is cut there first.
        if let Some((at, run)) = self.runs.before(block)
            && let Some(behind) = slice_of(at, &run, block, at + u64::from(run.count))
            && let Some(before) = slice_of(at, &run, at, block)
        {
            self.runs.insert(at, before.run);
            self.runs.insert(behind.block, behind.run);
        }
        let moved = self.runs.split_off(block);
        for (at, run) in moved {
            let to = if up { at + count } else { at - count };
            self.insert(FileRun { block: to, run }, &mut |_| {});
        }
    }
}

/// The part of a run within `first..end`.
fn slice_of(at: u64, run: &Run, first: u64, end: u64) -> Option<FileRun> {
    let from = first.max(at);
    let to = end.min(at + u64::from(run.count));
    (from < to).then(|| FileRun {
        block: from,
        run: Run { address: run.address + (from - at) * BLOCK, count: (to - from) as u32, len: run.len },
    })
}

/// Whether the second run goes on where the first ends, in the file and on the device.
fn continues(at: u64, run: &Run, next_at: u64, next: &Run) -> bool {
    run.is_whole()
        && next.is_whole()
        && at + u64::from(run.count) == next_at
        && run.address + u64::from(run.count) * BLOCK == next.address
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn whole(block: u64, device: u64, count: u32) -> FileRun {
        FileRun { block, run: Run { address: device * BLOCK, count, len: BLOCK as u32 } }
    }

    #[test]
    fn a_file_written_in_order_is_one_run() {
        let mut map = ExtentMap::default();
        for i in 0..100 {
            map.insert(whole(i * 4, 50 + i * 4, 4), &mut |_| panic!("nothing is freed"));
        }
        assert_eq!(map.len(), 1);
        assert_eq!(map.get(399).unwrap().address, 449 * BLOCK);
        assert_eq!(map.get(400), None);
    }

    #[test]
    fn filling_the_gap_between_two_runs_joins_all_three() {
        let mut map = ExtentMap::default();
        map.insert(whole(0, 10, 2), &mut |_| {});
        map.insert(whole(4, 14, 2), &mut |_| {});
        map.insert(whole(2, 12, 2), &mut |_| {});
        assert_eq!(map.iter().collect::<Vec<_>>(), [whole(0, 10, 6)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u32),
        Remove(u64, u64),
        Trim(u64, u32),
        Collapse(u64, u64),
        Open(u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0u64..64, 1u32..16).prop_map(|(a, n)| Step::Insert(a, n)),
            2 => (0u64..64, 1u64..16).prop_map(|(a, n)| Step::Remove(a, n)),
            1 => (0u64..64, 1u32..4096).prop_map(|(a, n)| Step::Trim(a, n)),
            1 => (0u64..64, 1u64..8).prop_map(|(a, n)| Step::Collapse(a, n)),
            1 => (0u64..64, 1u64..8).prop_map(|(a, n)| Step::Open(a, n)),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn the_map_equals_a_table_of_blocks_and_frees_exactly_what_it_drops(steps in steps()) {
            let mut map = ExtentMap::default();
            let mut table: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
            let mut live = 0i64;
            let mut next = 1000;
            for step in steps {
                let mut freed = 0i64;
                match step {
                    Step::Insert(at, n) => {
                        map.insert(whole(at, next, n), &mut |r| freed += r.run.space() as i64);
                        live += i64::from(n) * BLOCK as i64;
                        for i in 0..u64::from(n) {
                            table.insert(at + i, ((next + i) * BLOCK, BLOCK as u32));
                        }
                        // Sometimes the next insert goes on where this one ended.
                        next += u64::from(n) + at % 2;
                    }
                    Step::Remove(at, n) => {
                        map.remove(at, at + n, &mut |r| freed += r.run.space() as i64);
                        (at..at + n).for_each(|b| { table.remove(&b); });
                    }
                    Step::Trim(at, len) => {
                        map.trim(at, len, &mut |old, new| {
                            freed += old.run.space() as i64 - new.run.space() as i64;
                        });
                        if let Some(e) = table.get_mut(&at) { e.1 = e.1.min(len); }
                    }
                    Step::Collapse(at, n) => {
                        map.remove(at, at + n, &mut |r| freed += r.run.space() as i64);
                        map.shift(at + n, n, false);
                        (at..at + n).for_each(|b| { table.remove(&b); });
                        table = table.into_iter().map(|(b, e)| (if b >= at + n { b - n } else { b }, e)).collect();
                    }
                    Step::Open(at, n) => {
                        map.shift(at, n, true);
                        table = table.into_iter().map(|(b, e)| (if b >= at { b + n } else { b }, e)).collect();
                    }
                }
                live -= freed;
                let flat: BTreeMap<u64, (u64, u32)> = map.iter().flat_map(|r| {
                    (0..u64::from(r.run.count)).map(move |i| (r.block + i, (r.run.address + i * BLOCK, r.run.len)))
                }).collect();
                prop_assert_eq!(&flat, &table);
                prop_assert_eq!(live, map.iter().map(|r| r.run.space() as i64).sum::<i64>());
                for b in 0..80 {
                    prop_assert_eq!(map.get(b).map(|r| (r.address, r.len)), table.get(&b).copied());
                }
                let some: Vec<_> = map.range(10, 30).flat_map(|r| (0..u64::from(r.run.count)).map(move |i| r.block + i)).collect();
                prop_assert_eq!(some, table.range(10..30).map(|(b, _)| *b).collect::<Vec<_>>());
            }
        }
    }
}
