//! Pairs in their order, up or down.
//!
//! A range keeps the key it has come to, not a place: it goes down the tree anew for each leaf, and whenever a commit came
//! between. So it stays valid whatever others change meanwhile, and sees of each key what is there when it comes to it.

use super::BTree;
use super::look::Pair;
use crate::committed::Committed;
use crate::edges::order::Direction;
use crate::error::Result;
use crate::ids::Permission;
use crate::snapshot::Snapshot;
use crate::tx::Transaction;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

/// Pairs in their order: see [`BTree::range`] and [`BTreeSnapshot::range`](super::BTreeSnapshot::range).
pub struct Range<'t, 's> {
    tree: &'t BTree<'s>,
    snapshot: Option<&'t Snapshot<'s>>,
    direction: Direction,
    /// Where the next pair is looked for.
    from: Bound<Vec<u8>>,
    /// Where the range ends.
    to: Bound<Vec<u8>>,
    ready: VecDeque<Pair>,
    ended: bool,
    /// The last commit when pairs were read.
    commit: u64,
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
        self.range_on(None, range, direction)
    }

    pub(super) fn range_on<'t, K: AsRef<[u8]>>(
        &'t self,
        snapshot: Option<&'t Snapshot<'s>>,
        range: impl RangeBounds<K>,
        direction: Direction,
    ) -> Result<Range<'t, 's>> {
        let bound = |bound: Bound<&K>| -> Result<Bound<Vec<u8>>> {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                self.key(key.as_ref())?;
            }
            Ok(bound.map(|key| key.as_ref().to_vec()))
        };
        let (low, high) = (bound(range.start_bound())?, bound(range.end_bound())?);
        let (from, to) = if direction == Direction::Up { (low, high) } else { (high, low) };
        let ready = VecDeque::new();
        Ok(Range { tree: self, snapshot, direction, from, to, ready, ended: false, commit: 0 })
    }
}

impl Range<'_, '_> {
    /// The next pair, as a transaction sees it, also of a range of a snapshot: its own changes may come between.
    ///
    /// # Errors
    /// As [`BTree::get_in`].
    pub fn next_in(&mut self, tx: &mut Transaction<'_>) -> Result<Option<Pair>> {
        tx.enter(self.tree.snode, Permission::Read)?;
        self.advance(true, |range| {
            let (root, from, direction) = (range.tree.root, &range.from, range.direction);
            range.tree.look_in(tx, |look| look.near(root, from, direction, 1))
        })
    }

    /// The pairs of a state from where the next one is looked for on; `None` where it changes too often.
    fn near_on(&self, state: &impl Committed) -> Result<Option<Vec<Pair>>> {
        let (root, from, direction) = (self.tree.root, &self.from, self.direction);
        self.tree.look_on(state, |look| look.near(root, from, direction, usize::MAX))
    }

    fn near_at(&self, snapshot: &Snapshot<'_>) -> Result<Vec<Pair>> {
        Ok(self.near_on(snapshot)?.unwrap_or_default())
    }

    /// The next pair, with `look` to look for more. `is_stale`: what is ready is of another state.
    fn advance(
        &mut self,
        is_stale: bool,
        look: impl FnOnce(&Self) -> Result<Vec<Pair>>,
    ) -> Result<Option<Pair>> {
        if self.ended {
            return Ok(None);
        }
        if is_stale || self.ready.is_empty() {
            self.ready = look(self)?.into();
        }
        let inside = |key: &[u8]| match (&self.to, self.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(end), Direction::Up) => key <= &end[..],
            (Bound::Excluded(end), Direction::Up) => key < &end[..],
            (Bound::Included(end), Direction::Down) => key >= &end[..],
            (Bound::Excluded(end), Direction::Down) => key > &end[..],
        };
        let next = self.ready.pop_front().filter(|(key, _)| inside(key));
        match &next {
            Some((key, _)) => self.from = Bound::Excluded(key.clone()),
            None => self.ended = true,
        }
        Ok(next)
    }
}

impl Iterator for Range<'_, '_> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        let found = match self.snapshot {
            Some(snapshot) => self.advance(false, |range| range.near_at(snapshot)),
            None => {
                // Looked at before pairs are read: a commit that comes between makes them be read again.
                let commit = self.tree.store.last_commit();
                let is_stale = std::mem::replace(&mut self.commit, commit) != commit;
                self.advance(is_stale, |range| {
                    let store = range.tree.store;
                    range.near_on(store)?.map_or_else(|| range.near_at(&store.snapshot()), Ok)
                })
            }
        };
        self.ended |= found.is_err();
        found.transpose()
    }
}
