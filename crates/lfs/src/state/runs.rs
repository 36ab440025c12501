//! Runs by first block. Nearly all files are one run, which then needs no memory of its own.

use crate::layout::record::Run;
use std::collections::BTreeMap;
use std::ops::Range;

/// Runs that do not overlap, in the order of their first blocks.
#[derive(Clone, Default, Debug)]
pub enum Runs {
    /// None.
    #[default]
    None,
    /// One, from this block on.
    One(u64, Run),
    /// More, or it was more than one before.
    Many(Box<BTreeMap<u64, Run>>),
}

impl Runs {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Runs::None => 0,
            Runs::One(..) => 1,
            Runs::Many(runs) => runs.len(),
        }
    }

    /// Those that begin in a range of blocks.
    pub fn range(&self, blocks: Range<u64>) -> impl DoubleEndedIterator<Item = (u64, &Run)> {
        let (one, many) = match self {
            Runs::None => (None, None),
            Runs::One(at, run) => (blocks.contains(at).then_some((*at, run)), None),
            Runs::Many(runs) => (None, Some(runs.range(blocks).map(|(at, run)| (*at, run)))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The last one that begins before a block.
    pub fn before(&self, end: u64) -> Option<(u64, Run)> {
        self.range(0..end).next_back().map(|(at, run)| (at, *run))
    }

    /// The first one that begins at a block or behind it.
    pub fn from(&self, first: u64) -> Option<(u64, Run)> {
        self.range(first..u64::MAX).next().map(|(at, run)| (at, *run))
    }

    /// Adds a run, in the place of one that begins at the same block.
    pub fn insert(&mut self, first: u64, run: Run) {
        match self {
            Runs::None => *self = Runs::One(first, run),
            Runs::One(at, there) if *at == first => *there = run,
            Runs::One(at, there) => *self = Runs::Many(Box::new([(*at, *there), (first, run)].into())),
            Runs::Many(runs) => drop(runs.insert(first, run)),
        }
    }

    /// Takes out the run that begins at a block.
    pub fn remove(&mut self, first: u64) {
        match self {
            Runs::One(at, _) if *at == first => *self = Runs::None,
            Runs::Many(runs) => {
                runs.remove(&first);
                if runs.is_empty() {
                    *self = Runs::None;
                }
            }
            _ => {}
        }
    }

    /// Takes out those that begin at a block or behind it.
    pub fn split_off(&mut self, first: u64) -> Vec<(u64, Run)> {
        let moved: Vec<_> = self.range(first..u64::MAX).map(|(at, run)| (at, *run)).collect();
        moved.iter().for_each(|(at, _)| self.remove(*at));
        moved
    }
}
