//! The report of a salvage: what it found, copied and lost.

use crate::problems::note;

/// What a salvage has copied and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Nodes in the copy, roots included.
    pub nodes: u64,
    /// Edges in the copy, permissions included.
    pub edges: u64,
    /// Bytes of pages that were read and whose checksum holds.
    pub bytes: u64,
    /// Pages of nodes that cannot be read, and were neither written anew nor freed by a later commit.
    pub lost_pages: u64,
    /// Pages of edge tables that cannot be read.
    pub lost_table_pages: u64,
    /// Leaves of descriptors that cannot be read: what was in the 64 pages of each is not known.
    pub lost_leaves: u64,
    /// Nodes that are known to be lost. Those of lost leaves are not counted.
    pub lost_nodes: u64,
    /// Edges that were read and lead from or to a node that is lost. Those of lost pages of edge tables are not counted.
    pub dropped_edges: u64,
    /// Edges by key that were in pages that cannot be read, and were made again by the keys of the nodes that they led to.
    pub found_edges: u64,
    /// Nodes that had lost all edges that led to them, and have an edge `weft.salvage.found` from the root of their s-node now.
    pub found_nodes: u64,
    /// Places of lost nodes, and pages of lost leaves, in which a node without data stands, of type 0x6c6f7374 and with an edge
    /// `weft.salvage.lost` from the root: so that nothing else takes an id that data may hold. They are not counted as nodes.
    pub held_places: u64,
    /// S-nodes that have a new root, with user 0 as owner, and with secure deletion if some s-node may have had that. Permissions
    /// of which the edges can be read are kept where the new root is in the old one's place.
    pub made_up_snodes: u64,
    /// Edge types whose names are lost; they are called `weft.salvage.type.` and their number.
    pub made_up_types: u64,
    /// Commits of the journal that are in the copy.
    pub commits_applied: u64,
    /// Commits that are known to have been in the journal and are not in the copy.
    pub commits_lost: u64,
    /// The last commit that is in the copy.
    pub last_commit: u64,
    /// Whether nothing of the above was lost, dropped or made up.
    pub complete: bool,
    /// What does not hold, the first hundred.
    pub remarks: Vec<String>,
}

impl SalvageReport {
    pub(super) fn remark(&mut self, text: impl Into<String>) {
        note(&mut self.remarks, text);
    }

    /// Remarks on something for which the copy is not complete.
    pub(super) fn fault(&mut self, text: impl Into<String>) {
        self.complete = false;
        self.remark(text);
    }

    /// Whether something is missing or made up.
    pub(super) fn has_losses(&self) -> bool {
        let counts = [
            self.lost_pages,
            self.lost_table_pages,
            self.lost_leaves,
            self.lost_nodes,
            self.dropped_edges,
            self.found_nodes,
            self.made_up_snodes,
            self.made_up_types,
            self.commits_lost,
        ];
        counts.iter().any(|count| *count > 0)
    }
}
