//! The integrity check: every page against its checksum, every edge against its ends, every count against the edges.

use crate::committed::Committed;
use crate::edges::RawEdge;
use crate::error::{Error, Result, Step};
use crate::ids::{EdgeType, HomeId, InfoForm, NodeId, PAGE_BYTES};
use crate::inspect::{Bundles, held_in};
use crate::layout::node::{MOVED, NODE_HEADER, split_key};
use crate::pages::access::Pages;
use crate::partition::{NodeScope, data_in, find_any, find_body, find_node, header_at, node_header};
use crate::problems::{note, tolerate};
use crate::reads;
use crate::snodes::tags::Root;
use crate::space::Run;
use crate::store::Store;
use rustc_hash::FxHashMap;

/// Bytes of a node's data that its key is in, with its length.
const KEY_PREFIX_MAX: usize = 2 + u16::MAX as usize;

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Nodes there are, roots included.
    pub nodes: u64,
    /// Of these, nodes that have outgrown their room and have their data elsewhere.
    pub moved: u64,
    /// Edges there are, permissions included.
    pub edges: u64,
    /// What was damaged and is whole again since the store was opened: a power cut can leave that, and so can a medium that fails.
    pub mended: Option<String>,
    /// What does not hold, the first hundred.
    pub problems: Vec<String>,
}

impl CheckReport {
    fn problem(&mut self, text: String) {
        note(&mut self.problems, text);
    }
}

/// Edges of a node or body, as counted.
#[derive(Default)]
struct Degree {
    ins: u64,
    /// S-nodes of a shared home that it belongs to, and nodes whose body it is.
    owners: u32,
    has_outs: bool,
}

type Degrees = FxHashMap<NodeId, Degree>;

impl Store {
    /// Checks the last committed state. Commits wait meanwhile. Takes some 40 bytes of memory a node. It looks at one page after
    /// the other, so it ends with the smallest cache, however much of that differs from the medium.
    ///
    /// # Errors
    /// [`Error::Io`]. What does not hold is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        let _alone = self.gate.write();
        let mut report = CheckReport { mended: self.mended.clone(), ..CheckReport::default() };
        self.check_copies(&mut report)?;
        let mut degrees = Degrees::default();
        for page in self.data_pages() {
            for node in held_in(page, &self.pool.table.describe(page)).0 {
                degrees.insert(node, Degree::default());
                tolerate(&mut report.problems, || self.check_data(node))?;
            }
        }
        for home in self.snodes.ids() {
            self.check_edges(home, &mut report, &mut degrees)?;
            let root = self.root_of_home(home)?;
            match degrees.get_mut(&root) {
                Some(degree) => (degree.ins, degree.owners) = (degree.ins + 1, degree.owners + 1),
                None => report.problem(format!("the root {root} of {home} is not there")),
            }
        }
        for (node, degree) in &degrees {
            let home = node.home();
            if degree.ins == 0 && !degree.has_outs {
                report.problem(format!("node {node} has no edges"));
            }
            if home.is_shared() && degree.owners != 1 {
                let owners = degree.owners;
                report.problem(format!("node {node} belongs to {owners} of the s-nodes that share {home}"));
            }
            let kept = tolerate(&mut report.problems, || {
                self.read(home, |pages, contents| contents.count_of(pages, *node))
            })?;
            if let Some(kept) = kept.filter(|kept| *kept != degree.ins) {
                report.problem(format!("node {node}: {kept} in-edges are kept, {} are there", degree.ins));
            }
        }
        // A body is no node, nor is the root of a shared home.
        let shared = self.snodes.guests().len() as u64;
        report.nodes = (degrees.len() as u64).saturating_sub(report.moved + shared);
        Ok(report)
    }

    /// Reads what the last checkpoint has twice: the store is open with one copy, and the other may be needed next.
    fn check_copies(&self, report: &mut CheckReport) -> Result<()> {
        let medium = &*self.medium;
        let mut see = |what: &str, whole: [bool; 2]| {
            for (copy, _) in whole.iter().enumerate().filter(|(_, is_whole)| !**is_whole) {
                report.problem(format!("copy {copy} of {what} is damaged; a backup writes both anew"));
            }
        };
        let superblock = *self.superblock.lock();
        // One that was not written is as bad as one that cannot be read.
        see("the superblock", reads::superblocks(medium)?.map(|copy| copy.is_ok_and(|sb| sb == superblock)));
        let lists = [
            (superblock.leaves, "the list of leaves"),
            (superblock.catalog, "the catalog"),
            (superblock.snapshots, "the list of snapshots"),
        ];
        for (blob, what) in lists {
            let is_whole = |run: Run| run.blocks == 0 || reads::blob_at(medium, blob, run).is_some();
            see(what, blob.copies().map(is_whole));
        }
        for (number, leaf) in &self.leaves.lock().at {
            let is_whole = |block| reads::page(medium, block, leaf.crc).is_some();
            see(&format!("leaf {number} of descriptors"), leaf.blocks.map(is_whole));
        }
        Ok(())
    }

    /// Reads all pages that the data of a node or body are in. Nothing changes meanwhile.
    fn check_data(&self, node: NodeId) -> Result<()> {
        let (len, place) = self.read(node.home(), |pages, contents| {
            let (place, is_body) = find_any(&self.pool.table, node, NodeScope::Committed)?;
            if is_body {
                return Ok((node_header(pages, node, place)?.1, place));
            }
            let (_, len, place) = contents.open_node(pages, node)?;
            Ok((len, place))
        })?;
        let more = (place.offset + NODE_HEADER + len).div_ceil(PAGE_BYTES) as u32;
        for page in (place.page..place.page + more).skip(1) {
            self.read(node.home(), |pages, _| pages.bytes(page).map(drop))?;
        }
        Ok(())
    }

    /// Checks the edges in the pages of a home's tables.
    fn check_edges(&self, home: HomeId, report: &mut CheckReport, degrees: &mut Degrees) -> Result<()> {
        let mut bundles = Bundles::default();
        let pages = self.partition(home)?.read().contents.edge_pages();
        for page in pages {
            let lost = || Error::damaged(format!("page {page} of an edge table: no node leads to its edges"));
            let edges = tolerate(&mut report.problems, || {
                self.edges_of_page(home, page, &mut bundles)?.ok_or_else(lost)
            })?;
            for (source, _, edge) in edges.unwrap_or_default() {
                self.check_edge(source, &edge, report)?;
                // These are no edges of programs; each says whose a node or body is.
                let owned = match edge.etype {
                    EdgeType::BODY => self.check_body(source, edge.to, report).map(|()| Some(edge.to)),
                    EdgeType::GUEST => self.check_guest(&edge, report).map(|()| Some(edge.to)),
                    EdgeType::OWNER => self.check_guest(&edge, report).map(|()| Some(source)),
                    _ => Ok(None),
                }?;
                report.edges += u64::from(owned.is_none());
                if let Some(degree) = owned.and_then(|node| degrees.get_mut(&node)) {
                    degree.owners += 1;
                }
                match degrees.get_mut(&source) {
                    Some(degree) => degree.has_outs |= edge.etype != EdgeType::OWNER,
                    None => report.problem(format!("an edge goes out from {source}, which is not there")),
                }
                match degrees.get_mut(&edge.to) {
                    Some(degree) => degree.ins += 1,
                    None => report.problem(format!(
                        "an edge of node {source} leads to {}, which is not there",
                        edge.to
                    )),
                }
            }
        }
        Ok(())
    }

    /// Whether what leads from a home to an s-node that shares it, or from a node to its s-node, leads to the root of one.
    fn check_guest(&self, edge: &RawEdge, report: &mut CheckReport) -> Result<()> {
        let root = tolerate(&mut report.problems, || match self.read_root(edge.to) {
            Err(Error::WrongType { .. }) => {
                Err(Error::damaged(format!("{} is not the root of an s-node", edge.to)))
            }
            root => root,
        })?;
        let is_of_number = |root: &Root| edge.etype == EdgeType::OWNER || u64::from(root.number) == edge.key;
        if let Some(root) = root.filter(|root| root.number == 0 || !is_of_number(root)) {
            report.problem(format!("the root {} is not that of s-node number {}", edge.to, root.number));
        }
        Ok(())
    }

    /// Whether what a node leads to as its body is one, and the node says that it has one.
    fn check_body(&self, node: NodeId, body: NodeId, report: &mut CheckReport) -> Result<()> {
        report.moved += 1;
        let has_moved = tolerate(&mut report.problems, || {
            find_body(&self.pool.table, body, NodeScope::Committed)?;
            let place = find_node(&self.pool.table, node, NodeScope::Committed)?;
            self.read(node.home(), |pages, _| Ok(header_at(pages, place)?.1 == MOVED))
        })?;
        if has_moved == Some(false) {
            report.problem(format!("node {node} has a body and data in its place too"));
        }
        Ok(())
    }

    /// Whether an edge is found by what identifies it.
    fn check_edge(&self, source: NodeId, edge: &RawEdge, report: &mut CheckReport) -> Result<()> {
        let keyed = self.form_of(edge.etype).is_ok_and(|form| form == InfoForm::Key);
        let found = tolerate(&mut report.problems, || {
            self.read(source.home(), |pages, contents| -> Step<bool> {
                let found =
                    contents.edges.find(pages, source, edge.etype, edge.key, |to| Ok(to == edge.to))?;
                if !keyed || found.is_none() {
                    return Ok(found.is_some());
                }
                if edge.to.home() != source.home() {
                    return Ok(false);
                }
                let (_, len, place) = contents.open_node(pages, edge.to)?;
                let data = data_in(pages, place, 0..len.min(KEY_PREFIX_MAX))?;
                Ok(split_key(&data).is_some_and(|(key, _)| self.secret.bytes(key) == edge.key))
            })
        })?;
        if found == Some(false) {
            report.problem(format!("the edge of node {source} to {} is not found by its info", edge.to));
        }
        Ok(())
    }
}

#[cfg(all(test, not(weft_shuttle)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{MemoryStore, NodeType, Options, SnodeId};

    #[test]
    fn an_edge_without_a_source_and_a_bundle_that_no_node_leads_to_are_problems() {
        let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
        let etype = store.edge_type("next", InfoForm::Number).unwrap();
        let root = store.root(SnodeId::FIRST).unwrap();
        let mut tx = store.begin();
        for number in 0..500 {
            let node = tx.create_node(SnodeId::FIRST, NodeType(1), b"node").unwrap();
            tx.create_edge(root, etype, crate::Info::Number(number), node).unwrap();
        }
        tx.commit().unwrap();
        let report = store.check().unwrap();
        assert_eq!((report.nodes, report.edges, report.problems.len()), (501, 500, 0));
        let put = |source, to| {
            let partition = store.partition(HomeId::FIRST).unwrap();
            let edge = RawEdge { etype, key: 7, to };
            store
                .write(&mut partition.write(), |pages, contents| {
                    contents.edges.insert(pages, source, InfoForm::Number, edge)
                })
                .unwrap();
        };
        let nowhere = NodeId::at(HomeId::FIRST, 77_777, 0);
        put(nowhere, root);
        let problems = store.check().unwrap().problems;
        assert!(problems.contains(&format!("an edge goes out from {nowhere}, which is not there")));
        put(root, nowhere);
        let problems = store.check().unwrap().problems;
        assert!(problems.contains(&format!("an edge of node {root} leads to {nowhere}, which is not there")));
        // The cell that leads to the bundle of the root goes.
        let partition = store.partition(HomeId::FIRST).unwrap();
        let word = u64::from(etype.0) | 1 << 32;
        store
            .write(&mut partition.write(), |pages, contents| {
                let main = &contents.edges.main;
                let place = main.find(pages, root.0, |at, cell| Ok((cell[1] == word).then_some(at)))?;
                main.remove(pages, place.unwrap())
            })
            .unwrap();
        let problems = store.check().unwrap().problems;
        assert!(
            problems.iter().any(|problem| problem.contains("no node leads to its edges")),
            "{problems:?}"
        );
    }
}
