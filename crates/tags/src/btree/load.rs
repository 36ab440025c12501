//! Many pairs at once, in their order: leaves are filled one after the other, and each is written once.

use super::look::Pair;
use super::node::capacity;
use super::{BTree, Direction};
use crate::error::{Error, Result};
use std::ops::Bound;

/// Leaves that are committed together.
const LEAVES: u32 = 512;

impl BTree<'_> {
    /// Puts pairs in, in ascending order of their keys and all behind those that are there, with leaves `fill` percent full;
    /// how many there were. Some megabytes are committed at a time: after an error the pairs before are in the tree.
    ///
    /// # Errors
    /// [`Error::BadOption`] for `fill` below 10 or above 100, [`Error::Unordered`], those of [`BTree::insert`].
    pub fn load(&self, pairs: impl IntoIterator<Item = Pair>, fill: u8) -> Result<u64> {
        if !(10..=100).contains(&fill) {
            return Err(Error::BadOption { what: "fill", value: fill.into(), range: "10 to 100 percent" });
        }
        let most = capacity(self.form, 0) * usize::from(fill) / 100;
        let near = self.look(|look| look.near(self.root, &Bound::Unbounded, Direction::Down, 1))?;
        let mut last = near.into_iter().next().map(|(key, _)| key);
        let (mut pairs, mut loaded) = (pairs.into_iter().peekable(), 0);
        while pairs.peek().is_some() {
            let mut tx = self.store.begin();
            tx.durability(self.durability);
            tx.hold(self.anchor.home())?;
            let mut more = 0;
            for _ in 0..LEAVES {
                let (mut leaf, mut used) = (Vec::new(), 0);
                while let Some((key, value)) =
                    pairs.next_if(|pair| leaf.is_empty() || used + self.pair_weight(pair) <= most)
                {
                    self.key(&key)?;
                    self.check_value(&value)?;
                    let before = leaf.last().map(|(key, _): &Pair| key).or(last.as_ref());
                    if before.is_some_and(|before| *before >= key) {
                        return Err(Error::Unordered);
                    }
                    let pair = (key, value);
                    used += self.pair_weight(&pair);
                    leaf.push(pair);
                }
                if leaf.is_empty() {
                    break;
                }
                self.append(&mut tx, &leaf)?;
                more += leaf.len() as u64;
                last = leaf.pop().map(|(key, _)| key);
            }
            self.add_to_count(&mut tx, more as i64)?;
            tx.commit()?;
            loaded += more;
        }
        Ok(loaded)
    }
}
