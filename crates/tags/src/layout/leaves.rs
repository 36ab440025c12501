//! Leaves: pages of descriptors, and the list that says where they are.

use crate::ids::PAGE_BYTES;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Bytes of a descriptor.
pub(crate) const DESC_BYTES: usize = 64;
/// Descriptors of a leaf.
pub(crate) const LEAF_PAGES: u32 = (PAGE_BYTES / DESC_BYTES) as u32;
/// Leaves that there can be. The last pages whose numbers have 32 bits are not used.
pub(crate) const LEAVES_MAX: u32 = u32::MAX / LEAF_PAGES;
/// Bytes of an entry of the list of leaves.
pub(crate) const LEAF_ENTRY_BYTES: usize = 24;
/// Where both copies of a leaf are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub blocks: [u64; 2],
    pub crc: u32,
}

/// Where the leaves are, and which of them no longer say the truth.
#[derive(Default)]
pub(crate) struct Leaves {
    pub at: BTreeMap<u32, Leaf>,
    /// In no order: a commit may touch as many as it frees nodes.
    pub stale: FxHashSet<u32>,
}

impl Leaves {
    /// Notes that the descriptor of `page` has changed.
    pub(crate) fn touch(&mut self, page: u32) {
        self.stale.insert(page / LEAF_PAGES);
    }

    /// How many leaves there may be after the next checkpoint.
    pub(crate) fn count_with_stale(&self) -> u64 {
        let new = self.stale.iter().filter(|leaf| !self.at.contains_key(leaf)).count();
        (self.at.len() + new) as u64
    }
}
