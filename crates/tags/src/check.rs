//! The integrity check: every page against its checksum, every edge against its ends, every count against the edges.

use crate::committed::Committed;
use crate::edges::{Bundle, EdgeTable, Heads, RawEdge};
use crate::error::{Error, Result, Step};
use crate::ids::{EdgeType, HomeId, InfoForm, NodeId, PAGE_BYTES};
use crate::inspect::held_in;
use crate::layout::node::{MOVED, NODE_HEADER, split_key};
use crate::pages::access::Pages;
use crate::partition::{NodeScope, data_in, find_any, find_body, find_node, header_at, node_header};
use crate::snodes::tags::Root;
use crate::store::Store;
use rustc_hash::FxHashMap;

/// Problems that are listed one by one.
const PROBLEMS_MAX: usize = 100;
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
    /// What does not hold, the first hundred.
    pub problems: Vec<String>,
    /// Roots of s-nodes that share homes, and nodes of such.
    guests: u64,
}

impl CheckReport {
    fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }
}

/// Edges of a node, as counted.
#[derive(Default)]
struct Degree {
    ins: u64,
    outs: u64,
}

impl Store {
    /// Checks the last committed state. Commits wait meanwhile. Takes some 40 bytes of memory a node. It looks at one page after
    /// the other, so it ends with the smallest cache, however much of that differs from the medium.
    ///
    /// # Errors
    /// [`Error::Io`]. What does not hold is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        let _alone = self.gate.write();
        let mut report = CheckReport::default();
        let mut degrees = FxHashMap::default();
        self.check_nodes(&mut report, &mut degrees)?;
        // An id begins with its home.
        let mut nodes: Vec<NodeId> = degrees.keys().copied().collect();
        nodes.sort_unstable();
        for nodes in nodes.chunk_by(|a, b| a.home() == b.home()) {
            self.check_edges(nodes, &mut report, &mut degrees)?;
        }
        for home in self.snodes.ids() {
            let root = self.root_of_home(home)?;
            match degrees.get_mut(&root) {
                Some(degree) => degree.ins += 1,
                None => report.problem(format!("the root {root} of {home} is not there")),
            }
        }
        for (node, degree) in &degrees {
            if degree.ins + degree.outs == 0 {
                report.problem(format!("node {node} has no edges"));
            }
            let kept = self.tolerate(&mut report, || {
                self.read(node.home(), |pages, contents| contents.count_of(pages, *node))
            })?;
            if let Some(kept) = kept.filter(|kept| *kept != degree.ins) {
                report.problem(format!("node {node}: {kept} in-edges are kept, {} are there", degree.ins));
            }
        }
        // A body is no node, and the edge to it no edge; nor are the root of a shared home and what leads to and from its s-nodes.
        let shared = self.snodes.guests().len() as u64;
        report.nodes = (degrees.len() as u64).saturating_sub(report.moved + shared);
        report.edges = report.edges.saturating_sub(report.moved + report.guests);
        Ok(report)
    }

    /// Notes damage as a problem; other errors end the check.
    fn tolerate<T>(&self, report: &mut CheckReport, step: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        match step() {
            Ok(value) => Ok(Some(value)),
            Err(error @ (Error::Damaged { .. } | Error::NoSuchNode(_))) => {
                report.problem(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn check_nodes(&self, report: &mut CheckReport, degrees: &mut FxHashMap<NodeId, Degree>) -> Result<()> {
        for page in self.data_pages() {
            let (nodes, _) = held_in(page, &self.pool.table.describe(page));
            for node in nodes {
                degrees.insert(node, Degree::default());
                self.tolerate(report, || self.check_data(node))?;
            }
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
            let (_, len, place) = contents.open_node(pages, &self.pool.table, node, NodeScope::Committed)?;
            Ok((len, place))
        })?;
        let more = (place.offset + NODE_HEADER + len).div_ceil(PAGE_BYTES) as u32;
        for page in (place.page..place.page + more).skip(1) {
            self.read(node.home(), |pages, _| pages.bytes(page).map(drop))?;
        }
        Ok(())
    }

    fn check_edges(
        &self,
        nodes: &[NodeId],
        report: &mut CheckReport,
        degrees: &mut FxHashMap<NodeId, Degree>,
    ) -> Result<()> {
        let Some(snode) = nodes.first().map(|node| node.home()) else { return Ok(()) };
        let mut reached = 0;
        // What a shared home has of nodes are its root, those of its s-nodes, theirs and bodies.
        let (guests, moved) = (report.guests, report.moved);
        for source in nodes.iter().copied() {
            let heads = self.tolerate(report, || {
                self.read(snode, |pages, contents| contents.edges.heads_of(pages, source))
            })?;
            let Some(Heads { edges, bundles }) = heads else { continue };
            reached += self.check_edges_of(source, &edges, report, degrees)?;
            for (etype, id) in bundles {
                for page in self.bundle_pages(snode, id)? {
                    let edges = self.tolerate(report, || {
                        self.read(snode, |pages, _| EdgeTable::edges_in(pages, etype, page))
                    })?;
                    reached += self.check_edges_of(source, &edges.unwrap_or_default(), report, degrees)?;
                }
            }
        }
        if let Some(cells) = self.count_cells(snode, report)?.filter(|cells| *cells != reached) {
            report.problem(format!(
                "{snode}: its edge table has {cells} edges, {reached} are reached from nodes"
            ));
        }
        report.edges += reached;
        let known = 1 + report.guests - guests + report.moved - moved;
        if snode.is_shared() && known != nodes.len() as u64 {
            let others = nodes.len() as u64 - known.min(nodes.len() as u64);
            report.problem(format!("{snode}: {others} nodes belong to none of the s-nodes that share it"));
        }
        Ok(())
    }

    /// Checks some of the edges out of a node; how many they are.
    fn check_edges_of(
        &self,
        source: NodeId,
        edges: &[RawEdge],
        report: &mut CheckReport,
        degrees: &mut FxHashMap<NodeId, Degree>,
    ) -> Result<u64> {
        for edge in edges {
            self.check_edge(source, edge, report)?;
            match edge.etype {
                EdgeType::BODY => self.check_body(source, edge.to, report)?,
                EdgeType::GUEST | EdgeType::OWNER => self.check_guest(edge, report)?,
                _ => {}
            }
            if let Some(degree) = degrees.get_mut(&source) {
                degree.outs += u64::from(edge.etype != EdgeType::OWNER);
            }
            match degrees.get_mut(&edge.to) {
                Some(degree) => degree.ins += 1,
                None => report
                    .problem(format!("an edge of node {source} leads to {}, which is not there", edge.to)),
            }
        }
        Ok(edges.len() as u64)
    }

    /// Whether what leads from a home to an s-node that shares it, or from a node to its s-node, leads to the root of one.
    fn check_guest(&self, edge: &RawEdge, report: &mut CheckReport) -> Result<()> {
        let root = self.tolerate(report, || match self.read_root(edge.to) {
            Err(Error::WrongType { .. }) => {
                Err(Error::damaged(format!("{} is not the root of an s-node", edge.to)))
            }
            root => root,
        })?;
        report.guests += 1;
        let is_of_number = |root: &Root| edge.etype == EdgeType::OWNER || u64::from(root.number) == edge.key;
        if let Some(root) = root.filter(|root| root.number == 0 || !is_of_number(root)) {
            report.problem(format!("the root {} is not that of s-node number {}", edge.to, root.number));
        }
        Ok(())
    }

    fn bundle_pages(&self, snode: HomeId, id: u64) -> Result<Vec<u32>> {
        self.read(snode, |_, contents| {
            Ok(contents.edges.bundles.get(&id).map(Bundle::pages).unwrap_or_default())
        })
    }

    /// Edges in all tables of an s-node; `None` where a page of them is damaged.
    fn count_cells(&self, snode: HomeId, report: &mut CheckReport) -> Result<Option<u64>> {
        let (main, bundles) = self.read(snode, |_, contents| {
            let bundles: Vec<u32> = contents.edges.bundles.values().flat_map(Bundle::pages).collect();
            Ok((contents.edges.main.pages(), bundles))
        })?;
        let mut cells = Some(0);
        for (page, is_main) in
            main.iter().map(|page| (*page, true)).chain(bundles.iter().map(|page| (*page, false)))
        {
            let count = self.tolerate(report, || {
                self.read(snode, |pages, _| EdgeTable::count_in(pages, page, is_main))
            })?;
            cells = cells.zip(count).map(|(cells, count)| cells + count);
        }
        Ok(cells)
    }

    /// Whether what a node leads to as its body is one, and the node says that it has one.
    fn check_body(&self, node: NodeId, body: NodeId, report: &mut CheckReport) -> Result<()> {
        report.moved += 1;
        let has_moved = self.tolerate(report, || {
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
        let found = self.tolerate(report, || {
            self.read(source.home(), |pages, contents| -> Step<bool> {
                let found =
                    contents.edges.find(pages, source, edge.etype, edge.key, |to| Ok(to == edge.to))?;
                if !keyed || found.is_none() {
                    return Ok(found.is_some());
                }
                let table = &self.pool.table;
                if edge.to.home() != source.home() {
                    return Ok(false);
                }
                let (_, len, place) = contents.open_node(pages, table, edge.to, NodeScope::Committed)?;
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
