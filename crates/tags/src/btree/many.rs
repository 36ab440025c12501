//! Batches of fixed pairs: look-ups, insertions and deletions.
//!
//! One key after the other waits for memory a dozen times each: for the nodes on the way, for the lines of each that a
//! search comes by, for the leaf. Here the keys of a group go down together, and of each search a step is taken before the
//! next step of any; so the group waits about as often as a single key. What is not in memory is read together.

use super::BTree;
use super::look::TreeView;
use super::node::Node;
use crate::committed::Committed;
use crate::error::{Error, Result, Step, StepError};
use crate::ids::{NodeId, Permission};
use crate::pages::access::StatePages;
use crate::tx::Transaction;

/// Keys that are looked for together.
const GROUP: usize = 64;

impl BTree<'_> {
    /// Calls `each` with the place of each key in `keys` and its value, in order, in a tree of fixed pairs. Misses of
    /// the processor's cache overlap, so that many keys at once cost much less than one by one.
    ///
    /// # Errors
    /// [`Error::OtherForm`]; what reading the medium gives.
    pub fn get_fixed(&self, keys: &[u32], each: impl FnMut(usize, Option<u64>)) -> Result<()> {
        self.get_fixed_on(self.store, keys, each)
    }

    pub(super) fn get_fixed_on(
        &self,
        state: &impl Committed,
        keys: &[u32],
        mut each: impl FnMut(usize, Option<u64>),
    ) -> Result<()> {
        self.must_be_fixed()?;
        let mut leaves = [NodeId(0); GROUP];
        for (group_at, group) in keys.chunks(GROUP).enumerate() {
            let (mut next, mut asked, mut found_at) = (0, false, None);
            self.look_on(state, |look| {
                // After pages were read the leaves are still those, unless somebody has changed something.
                if found_at != Some(look.pages.turns()) {
                    leaves_of(look, self.root, &group[next..], &mut leaves[next..])?;
                    found_at = Some(look.pages.turns());
                }
                let leaves = &leaves[next..group.len()];
                if !asked {
                    // All at once, and only once: with a small cache they may drive each other out.
                    asked = true;
                    all_there(look, leaves)?;
                }
                // With so little room that not all are there, those before the first that is not.
                let there = leaves.iter().take_while(|leaf| is_there(look, **leaf)).count().max(1);
                let nodes = leaves[..there].iter().map(|leaf| look.node(*leaf)).collect::<Step<Vec<_>>>()?;
                for (node, found) in nodes.iter().zip(search_all(&nodes, &group[next..])) {
                    each(group_at * GROUP + next, found.ok().map(|at| node.fixed_value(at)));
                    next += 1;
                }
                if next < group.len() {
                    Err(StepError::Miss(leaves[there].page().unwrap_or(0)))
                } else {
                    Ok(())
                }
            })?;
        }
        Ok(())
    }

    /// Gives keys values as part of a transaction, in their order, in a tree of fixed pairs; calls `each` with the place of each
    /// pair and whether its key had a value. As [`BTree::insert_in`] for each, but faster by far where the tree is large.
    ///
    /// # Errors
    /// [`Error::OtherForm`]; as [`BTree::insert_in`].
    pub fn insert_fixed_in(
        &self,
        tx: &mut Transaction<'_>,
        pairs: &[(u32, u64)],
        each: impl FnMut(usize, bool),
    ) -> Result<()> {
        self.change_many(tx, pairs.len(), |at| (pairs[at].0, Some(pairs[at].1)), each)
    }

    /// Takes keys away as part of a transaction, in their order, in a tree of fixed pairs; calls `each` with the place of each
    /// key and whether it was there. As [`BTree::delete_in`] for each, but faster by far where the tree is large.
    ///
    /// # Errors
    /// [`Error::OtherForm`]; as [`BTree::delete_in`].
    pub fn delete_fixed_in(
        &self,
        tx: &mut Transaction<'_>,
        keys: &[u32],
        each: impl FnMut(usize, bool),
    ) -> Result<()> {
        self.change_many(tx, keys.len(), |at| (keys[at], None), each)
    }

    /// Makes `count` changes: `change` says which key gets which value, or is taken away.
    fn change_many(
        &self,
        tx: &mut Transaction<'_>,
        count: usize,
        change: impl Fn(usize) -> (u32, Option<u64>),
        mut each: impl FnMut(usize, bool),
    ) -> Result<()> {
        self.must_be_fixed()?;
        tx.enter(self.snode, Permission::Write)?;
        let (mut keys, mut leaves) = (Vec::with_capacity(GROUP), [NodeId(0); GROUP]);
        let mut more = 0;
        for start in (0..count).step_by(GROUP) {
            keys.clear();
            keys.extend((start..count.min(start + GROUP)).map(|at| change(at).0));
            let mut found = false;
            self.look_in(tx, |look| {
                // The transaction holds the s-node: when the leaves have been read, they still are the leaves.
                if found {
                    return Ok(());
                }
                leaves_of(look, self.root, &keys, &mut leaves)?;
                found = true;
                all_there(look, &leaves[..keys.len()])
            })?;
            tx.begin_edits(&leaves[..keys.len()])?;
            let mut moved = false;
            for (at, leaf) in (start..).zip(&leaves[..keys.len()]) {
                let (key, value) = change(at);
                let leaf = if moved { self.leaf_of(tx, key)? } else { *leaf };
                let was_there = match self.change_in_leaf(tx, leaf, key, value.map(u64::to_le_bytes))? {
                    Some(was_there) => {
                        more += i64::from(value.is_some()) - i64::from(was_there);
                        was_there
                    }
                    // Nodes are parted or joined.
                    None => {
                        moved = true;
                        match value {
                            Some(value) => self.insert_in(tx, &key.to_be_bytes(), &value.to_le_bytes())?,
                            None => self.delete_in(tx, &key.to_be_bytes())?,
                        }
                    }
                };
                each(at, was_there);
            }
        }
        self.add_to_count(tx, more)
    }
}

/// Whether a node can be looked at without reading the medium; its first line is asked for.
fn is_there(look: &TreeView<'_, impl StatePages>, node: NodeId) -> bool {
    look.changed.is_some_and(|changed| changed.contains_key(&node))
        || look.pages.prefetch(node.page().unwrap_or(0), 0)
}

/// Halts for all of the nodes that are not in memory.
fn all_there(look: &TreeView<'_, impl StatePages>, nodes: &[NodeId]) -> Step<()> {
    let missing = nodes.iter().filter(|node| !is_there(look, **node));
    StepError::unless_empty(missing.filter_map(|node| node.page()).collect())
}

/// The leaves that fixed keys belong to, without a look at the leaves.
fn leaves_of(
    look: &TreeView<'_, impl StatePages>,
    root: NodeId,
    keys: &[u32],
    leaves: &mut [NodeId],
) -> Step<()> {
    let leaves = &mut leaves[..keys.len()];
    leaves.fill(root);
    let mut level = look.node(root)?.level();
    while level > 0 {
        let nodes = leaves.iter().map(|id| look.node(*id)).collect::<Step<Vec<_>>>()?;
        for ((node, id), found) in nodes.iter().zip(leaves.iter_mut()).zip(search_all(&nodes, keys)) {
            if node.level() != level {
                return Err(Error::damaged(format!("node {id} of a B+tree is on the wrong level")).into());
            }
            *id = node.child(found.map_or_else(|at| at, |at| at + 1));
            look.pages.prefetch(id.page().unwrap_or(0), 0);
        }
        level -= 1;
    }
    Ok(())
}

/// A search among a node's keys: all of them, where those begin among which the wanted one is, and how many these are.
type Search<'d> = (&'d [[u8; 4]], usize, usize);

/// Where each key is in the node beside it, or would be.
fn search_all(nodes: &[Node<'_>], keys: &[u32]) -> Vec<std::result::Result<usize, usize>> {
    let is_below = |all: &[[u8; 4]], at: usize, key: u32| {
        all.get(at).is_some_and(|other| u32::from_le_bytes(*other) < key)
    };
    let mut searches: Vec<Search<'_>> =
        nodes.iter().map(|node| (node.fixed_keys(), 0, node.count())).collect();
    let most = nodes.iter().map(Node::count).max().unwrap_or(0);
    for _ in 0..most.next_power_of_two().trailing_zeros() {
        for ((all, from, left), key) in searches.iter_mut().zip(keys) {
            let half = *left / 2;
            // Without a branch, which would be guessed wrong every other time.
            *from += half * usize::from(is_below(all, *from + half, *key));
            *left -= half;
        }
    }
    let end = |(node, ((all, from, _), key)): (&Node<'_>, (&Search<'_>, &u32))| {
        let at = from + usize::from(is_below(all, *from, *key));
        node.prefetch_fixed(at);
        let is_it = all.get(at).is_some_and(|other| u32::from_le_bytes(*other) == *key);
        if is_it { Ok(at) } else { Err(at) }
    };
    nodes.iter().zip(searches.iter().zip(keys)).map(end).collect()
}
