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
        let mut last = self
            .look(|look| look.near(self.root, &Bound::Unbounded, Direction::Down, 1))?
            .pop()
            .map(|(key, _)| key);
        let mut pairs = pairs.into_iter();
        let (mut loaded, mut held) = (0, None);
        loop {
            let mut tx = self.store.begin();
            tx.durability(self.durability);
            tx.hold(self.anchor.home())?;
            let mut more = 0;
            for _ in 0..LEAVES {
                let (mut leaf, mut used) = (Vec::new(), 0);
                while let Some((key, value)) = held.take().or_else(|| pairs.next()) {
                    self.key(&key)?;
                    self.check_value(&value)?;
                    if leaf.is_empty() && last.as_ref().is_some_and(|last| *last >= key) {
                        return Err(Error::Unordered);
                    }
                    let weight = self.pair_weight(&key, &value);
                    if !leaf.is_empty() && used + weight > most {
                        held = Some((key, value));
                        break;
                    }
                    used += weight;
                    if leaf.last().is_some_and(|(last, _): &Pair| *last >= key) {
                        return Err(Error::Unordered);
                    }
                    leaf.push((key, value));
                }
                if leaf.is_empty() {
                    break;
                }
                self.append(&mut tx, &leaf)?;
                more += leaf.len() as u64;
                last = leaf.pop().map(|(key, _)| key);
            }
            if more > 0 {
                self.add_to_count(&mut tx, more as i64)?;
                tx.commit()?;
            }
            loaded += more;
            if held.is_none() && more == 0 {
                return Ok(loaded);
            }
        }
    }
}
