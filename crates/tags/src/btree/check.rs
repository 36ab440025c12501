//! The check of a tree: order, depths, how full nodes are, edges against what nodes say.

use super::node::{capacity, cell_child, cell_longs};
use super::{ANCHOR, BTree};
use crate::error::{Error, Result, Step};
use crate::ids::NodeId;
use crate::problems::{note, tolerate};
use std::collections::BTreeSet;

/// What a tree is made of, and what does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BTreeReport {
    /// Levels, the leaves' included.
    pub levels: u32,
    /// Nodes above the leaves.
    pub inner_nodes: u64,
    /// Leaves.
    pub leaves: u64,
    /// Pairs.
    pub pairs: u64,
    /// Keys and values that have nodes of their own.
    pub long: u64,
    /// How full the leaves are, in percent.
    pub fill_percent: u64,
    /// What does not hold, the first hundred.
    pub problems: Vec<String>,
}

/// What is known of a tree on the way through it.
struct Walk {
    report: BTreeReport,
    used: u64,
    /// The greatest key so far.
    last: Option<Vec<u8>>,
}

impl Walk {
    fn problem(&mut self, text: String) {
        note(&mut self.report.problems, text);
    }
}

/// A node, as the walk needs it.
struct NodeSummary {
    level: u8,
    used: usize,
    keys: Vec<Vec<u8>>,
    children: Vec<NodeId>,
    longs: u64,
    /// The nodes that it says it leads to.
    leads: BTreeSet<NodeId>,
}

impl BTree<'_> {
    /// Goes through the whole tree. Changes of its s-node wait meanwhile.
    ///
    /// # Errors
    /// What reading the medium gives. What does not hold is in the report.
    pub fn check(&self) -> Result<BTreeReport> {
        let mut tx = self.store.begin();
        tx.hold(self.anchor.home())?;
        let mut walk = Walk { report: BTreeReport::default(), used: 0, last: None };
        self.walk(&mut walk, self.root, None, None)?;
        let counted = self.count_of(&tx.read_node(self.anchor, ANCHOR)?);
        if counted != walk.report.pairs {
            let pairs = walk.report.pairs;
            walk.problem(format!("{counted} pairs are counted, {pairs} are there"));
        }
        let room = walk.report.leaves * capacity(self.form, 0) as u64;
        walk.report.fill_percent = (walk.used * 100).checked_div(room).unwrap_or(0);
        Ok(walk.report)
    }

    fn see(&self, id: NodeId) -> Result<NodeSummary> {
        let (summary, far_nodes) = self.look(|look| {
            let node = look.node(id)?;
            let (level, count) = (node.level(), node.count());
            let keys = (0..count).map(|at| look.whole_key(node.key(at))).collect::<Step<Vec<_>>>()?;
            let inner = if level == 0 { 0..0 } else { 0..count + 1 };
            let children: Vec<NodeId> = inner.map(|at| node.child(at)).collect();
            let mut leads: BTreeSet<NodeId> = children.iter().copied().collect();
            let (mut longs, mut far_nodes) = (0, Vec::new());
            for cell in node.cells() {
                debug_assert!(level == 0 || leads.contains(&cell_child(self.form, &cell)));
                for (far, len) in cell_longs(self.form, level, &cell) {
                    far_nodes.push((far, len));
                    leads.insert(far);
                    longs += u64::from(level == 0);
                }
            }
            Ok((NodeSummary { level, used: node.used(), keys, children, longs, leads }, far_nodes))
        })?;
        for (far, len) in far_nodes {
            if self.look(|look| look.take_long(far))?.len() as u64 != len {
                return Err(Error::damaged(format!("node {far} is not as long as node {id} says")));
            }
        }
        Ok(summary)
    }

    /// Checks a node of `level`, unless it is the root, and what is below it, whose keys are not below `low`.
    fn walk(&self, walk: &mut Walk, id: NodeId, level: Option<u8>, low: Option<&Vec<u8>>) -> Result<()> {
        let Some(seen) = tolerate(&mut walk.report.problems, || self.see(id))? else { return Ok(()) };
        if let Some(level) = level.filter(|level| *level != seen.level) {
            walk.problem(format!("node {id} is {} levels above the leaves, not {level}", seen.level));
            return Ok(());
        }
        let edges: BTreeSet<NodeId> = self.store.edges(id)?.into_iter().map(|edge| edge.to).collect();
        if edges != seen.leads {
            walk.problem(format!("the edges of node {id} are not those that it speaks of"));
        }
        if level.is_some() && seen.keys.is_empty() {
            walk.problem(format!("node {id} is empty"));
        }
        walk.report.levels = walk.report.levels.max(u32::from(seen.level) + 1);
        if seen.level == 0 {
            walk.report.leaves += 1;
            walk.report.pairs += seen.keys.len() as u64;
            walk.report.long += seen.longs;
            walk.used += seen.used as u64;
            for key in seen.keys {
                let after = walk.last.as_ref().is_none_or(|last| *last < key);
                if !after || low.is_some_and(|low| key < *low) {
                    walk.problem(format!("leaf {id}: its keys are not in order"));
                }
                walk.last = Some(key);
            }
            return Ok(());
        }
        walk.report.inner_nodes += 1;
        for (at, child) in seen.children.iter().enumerate() {
            let separator = at.checked_sub(1).and_then(|at| seen.keys.get(at));
            if separator.is_some_and(|key| walk.last.as_ref().is_some_and(|last| last >= key)) {
                walk.problem(format!("node {id}: separator {at} is not above the keys before it"));
            }
            self.walk(walk, *child, Some(seen.level - 1), separator.or(low))?;
        }
        Ok(())
    }
}
