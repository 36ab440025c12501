//! Pairs in their order, up or down.
//!
//! A range keeps the key it has come to, not a place: it goes down the tree anew for each leaf, and whenever a commit came
//! between. So it stays valid whatever others change meanwhile, and sees of each key what is there when it comes to it.

use super::BTree;
use super::look::Pair;
use crate::error::Result;
use crate::snodes::access::Permission;
use crate::tx::Transaction;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

/// Which way a range goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the least key on.
    Up,
    /// From the greatest key on.
    Down,
}

/// Pairs in their order: see [`BTree::range`].
pub struct Range<'t, 's> {
    tree: &'t BTree<'s>,
    direction: Direction,
    /// Where the next pair is looked for.
    from: Bound<Vec<u8>>,
    /// Where the range ends.
    to: Bound<Vec<u8>>,
    ready: VecDeque<Pair>,
    /// The last commit when `ready` was read.
    commit: u64,
    ended: bool,
}

impl<'s> BTree<'s> {
    /// The pairs whose keys are in `range`, in the order of their keys, up or down. See the last committed state at each
    /// step; with [`Range::next_in`], what a transaction sees.
    ///
    /// # Errors
    /// Those of [`BTree::get`] for the bounds.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        direction: Direction,
    ) -> Result<Range<'_, 's>> {
        let bound = |bound: Bound<&K>| -> Result<Bound<Vec<u8>>> {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                self.key(key.as_ref())?;
            }
            Ok(bound.map(|key| key.as_ref().to_vec()))
        };
        let (low, high) = (bound(range.start_bound())?, bound(range.end_bound())?);
        let (from, to) = if direction == Direction::Up { (low, high) } else { (high, low) };
        Ok(Range { tree: self, direction, from, to, ready: VecDeque::new(), commit: 0, ended: false })
    }
}

impl Range<'_, '_> {
    /// The next pair, as a transaction sees it: its own changes may come between.
    ///
    /// # Errors
    /// As [`BTree::get_in`].
    pub fn next_in(&mut self, tx: &mut Transaction<'_>) -> Result<Option<Pair>> {
        self.ready.clear();
        if self.ended {
            return Ok(None);
        }
        let tree = self.tree;
        tx.enter(tree.snode, Permission::Read)?;
        let found = tree.look_in(tx, |look| match self.direction {
            Direction::Up => look.after(tree.root, &self.from, 1),
            Direction::Down => look.before(tree.root, &self.from, 1),
        })?;
        Ok(self.accept(found.into_iter().next()))
    }

    fn fill(&mut self) -> Result<()> {
        let tree = self.tree;
        // Read before the pairs are: a commit that comes between makes them be read again.
        self.commit = tree.store.last_commit();
        let found = tree.look(|look| match self.direction {
            Direction::Up => look.after(tree.root, &self.from, usize::MAX),
            Direction::Down => look.before(tree.root, &self.from, usize::MAX),
        })?;
        self.ready = found.into();
        Ok(())
    }

    /// Ends the range where it ends, and notes where it has come to.
    fn accept(&mut self, pair: Option<Pair>) -> Option<Pair> {
        let inside = |key: &[u8]| match (&self.to, self.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(end), Direction::Up) => key <= &end[..],
            (Bound::Excluded(end), Direction::Up) => key < &end[..],
            (Bound::Included(end), Direction::Down) => key >= &end[..],
            (Bound::Excluded(end), Direction::Down) => key > &end[..],
        };
        match pair.filter(|(key, _)| inside(key)) {
            Some(pair) => {
                self.from = Bound::Excluded(pair.0.clone());
                Some(pair)
            }
            None => {
                self.ended = true;
                None
            }
        }
    }
}

impl Iterator for Range<'_, '_> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        if self.ended {
            return None;
        }
        if (self.ready.is_empty() || self.commit != self.tree.store.last_commit())
            && let Err(error) = self.fill()
        {
            self.ended = true;
            return Some(Err(error));
        }
        let next = self.ready.pop_front();
        self.accept(next).map(Ok)
    }
}
