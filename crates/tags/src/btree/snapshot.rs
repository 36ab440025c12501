//! A tree as it was when a snapshot began.

use super::BTree;
use super::Direction;
use super::range::Range;
use crate::committed::Committed;
use crate::error::Result;
use crate::snapshot::Snapshot;
use std::ops::RangeBounds;

/// A B+tree as it was when a snapshot began: see [`BTree::at`].
pub struct BTreeSnapshot<'t, 's> {
    tree: &'t BTree<'s>,
    snapshot: &'t Snapshot<'s>,
}

impl<'s> BTree<'s> {
    /// This tree as it was when a snapshot of its store began, to be read while others commit.
    ///
    /// ```
    /// # use weft_tags::{BTree, BTreeForm, Direction, MemoryStore, Options, SnodeId, Store};
    /// # let store = Store::create(Box::new(MemoryStore::new()), &Options::default())?;
    /// let tree = BTree::open(&store, SnodeId::FIRST, "fruit", BTreeForm::Bytes)?;
    /// tree.insert(b"apple", b"red")?;
    /// let snapshot = store.snapshot();
    /// tree.delete(b"apple")?;
    /// let then = tree.at(&snapshot)?;
    /// assert_eq!(then.get(b"apple")?.as_deref(), Some(&b"red"[..]));
    /// assert_eq!(then.range::<&[u8]>(.., Direction::Up)?.count(), 1);
    /// # Ok::<(), weft_tags::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchNode`](crate::Error::NoSuchNode) when it was made later;
    /// [`Error::SnapshotLost`](crate::Error::SnapshotLost).
    pub fn at<'t>(&'t self, snapshot: &'t Snapshot<'s>) -> Result<BTreeSnapshot<'t, 's>> {
        snapshot.look_for(self.anchor)?;
        Ok(BTreeSnapshot { tree: self, snapshot })
    }
}

impl<'t, 's> BTreeSnapshot<'t, 's> {
    /// The value of a key.
    ///
    /// # Errors
    /// As [`BTree::get`]; [`Error::SnapshotLost`](crate::Error::SnapshotLost).
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.tree.get_at(self.snapshot, key)
    }

    /// Calls `each` with the place of each key in `keys` and its value, in order, in a tree of fixed pairs.
    ///
    /// # Errors
    /// As [`BTree::get_fixed`]; [`Error::SnapshotLost`](crate::Error::SnapshotLost).
    pub fn get_fixed(&self, keys: &[u32], each: impl FnMut(usize, Option<u64>)) -> Result<()> {
        self.tree.get_fixed_on(self.snapshot, keys, each)
    }

    /// How many pairs there are.
    ///
    /// # Errors
    /// What reading the medium gives; [`Error::SnapshotLost`](crate::Error::SnapshotLost).
    pub fn count(&self) -> Result<u64> {
        self.tree.count_on(self.snapshot)
    }

    /// The pairs whose keys are in `range`, in the order of their keys, up or down.
    ///
    /// # Errors
    /// As [`BTree::range`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        direction: Direction,
    ) -> Result<Range<'t, 's>> {
        self.tree.range_on(Some(self.snapshot), range, direction)
    }
}
