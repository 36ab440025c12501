//! An s-node's share of the store: its slabs, its edge table, its in-edge counts.
//!
//! Everything of it is under one lock, and its pages are touched by nobody else, so transactions on different s-nodes
//! have nothing in common but the allocators of blocks and numbers and the journal.

use crate::edges::many::Candidate;
use crate::edges::table::{CellAddr, Table};
use crate::edges::{Bundle, COUNTS, Counts, EdgeTable, Main};
use crate::error::{Error, Result, Step, StepError};
use crate::hash::Secret;
use crate::ids::{EdgeType, HomeId, NodeId, PAGE_BYTES};
use crate::layout::node::{
    CLASSES, MOVED, NODE_HEADER, is_body_class, read_header, slot_at, slot_bytes, split_key,
};
use crate::pages::access::{PageWriter, Pages, StatePages, Token};
use crate::pages::desc::{Desc, PageKind, slot_is_set};
use crate::pages::table::Descriptors;
use crate::pages::versions::Versions;
use crate::slab::Slab;
use std::collections::BTreeMap;
use std::ops::Range;

/// The share of one s-node.
pub(crate) struct Partition {
    pub(crate) snode: HomeId,
    pub(crate) root: NodeId,
    pub(crate) token: Token,
    pub(crate) contents: Contents,
    /// The contents that snapshots up to a stamp see, and behind that of those before.
    frozen: BTreeMap<u64, Contents>,
    /// The newest snapshot for which they were kept.
    frozen_at: u64,
    /// [`Versions::missed`] when all of them were looked at.
    missed: u64,
}

/// What of it is in memory beside pages.
pub(crate) struct Contents {
    pub(crate) edges: EdgeTable,
    pub(crate) counts: Counts,
    pub(crate) slabs: [Slab; CLASSES],
    /// Committed nodes, the root included.
    pub(crate) nodes: u64,
}

/// Times that the pages of a group are read together, those of cells and then those of nodes. In a cache that cannot hold
/// all of them the rest comes one by one.
pub(crate) const FAULT_ROUNDS: usize = 2;
/// Sources of edges that each node of many is compared with.
const SOURCES_MAX: usize = 4;

impl Partition {
    pub(crate) fn new(snode: HomeId, root: NodeId, secret: Secret) -> Partition {
        Partition {
            snode,
            root,
            token: Token::of(snode),
            contents: Contents::new(secret),
            frozen: BTreeMap::new(),
            frozen_at: 0,
            missed: 0,
        }
    }

    /// Keeps the contents as they are for the snapshots that are open; to be called before they change.
    #[inline]
    pub(crate) fn freeze(&mut self, versions: &Versions) {
        let newest = versions.newest();
        if self.frozen_at < newest {
            self.forget_missed(versions);
            // They read edges alone.
            let edges = self.contents.edges.clone();
            let contents = Contents { edges, ..Contents::new(self.contents.edges.main.secret) };
            self.frozen.insert(newest, contents);
            self.frozen_at = newest;
        }
    }

    /// Forgets the contents that only this snapshot has seen, which has ended.
    pub(crate) fn forget_frozen(&mut self, versions: &Versions, ended: u64) {
        self.forget_missed(versions);
        let Some((stamp, _)) = self.frozen.range(ended..).next() else { return };
        let (stamp, behind) = (*stamp, self.frozen.range(..ended).next_back().map_or(0, |(stamp, _)| *stamp));
        if !versions.is_open_in(behind + 1, stamp) {
            self.frozen.remove(&stamp);
        }
    }

    /// Forgets all contents that no open snapshot sees, if it was not told of some that ended.
    fn forget_missed(&mut self, versions: &Versions) {
        let missed = versions.missed();
        if self.missed == missed {
            return;
        }
        self.missed = missed;
        let mut behind = 0;
        self.frozen.retain(|stamp, _| {
            let is_needed = versions.is_open_in(behind + 1, *stamp);
            behind = *stamp;
            is_needed
        });
    }

    /// Whether something was going to change since a snapshot that is open began.
    pub(crate) fn is_frozen_for(&self, stamp: u64) -> bool {
        self.frozen_at >= stamp
    }

    /// The contents that a snapshot sees.
    pub(crate) fn contents_at(&self, stamp: u64) -> &Contents {
        let frozen = self.frozen.range(stamp..).next();
        frozen.map_or(&self.contents, |(_, contents)| contents)
    }
}

/// The outgoing edges that a node still has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemainingEdges {
    Nothing,
    /// Only the one to its body, which goes with it.
    Body(NodeId),
    Edges,
}

impl Contents {
    pub(crate) fn new(secret: Secret) -> Contents {
        Contents {
            edges: EdgeTable::new(secret),
            counts: Table::new(COUNTS, false, secret),
            slabs: std::array::from_fn(|_| Slab::default()),
            nodes: 0,
        }
    }

    /// All pages of edge tables.
    pub(crate) fn table_pages(&self) -> Vec<u32> {
        self.edge_pages().into_iter().chain(self.counts.walk()).collect()
    }

    /// The pages of edge tables without those of counts, first those of the main table.
    pub(crate) fn edge_pages(&self) -> Vec<u32> {
        let bundles = self.edges.bundles.values().flat_map(Bundle::walk);
        self.edges.main.walk().chain(bundles).collect()
    }

    /// The in-edges of a committed node; the root of an s-node counts as held once by the s-node.
    ///
    /// Nearly every node has one in-edge, so only other counts are kept, plus one so that none is a count too.
    pub(crate) fn count_of(&self, pages: &impl Pages, node: NodeId) -> Step<u64> {
        Ok(self.counts.find(pages, node.0, |_, cell| Ok(Some(cell[1] - 1)))?.unwrap_or(1))
    }

    /// Keeps a count.
    pub(crate) fn set_count(&mut self, pages: &mut PageWriter<'_>, node: NodeId, count: u64) -> Step<()> {
        let place: Option<CellAddr> = self.counts.find(pages, node.0, |place, _| Ok(Some(place)))?;
        match (place, count) {
            (None, 1) => Ok(()),
            (Some(place), 1) => self.counts.remove(pages, place),
            (Some(place), _) => self.counts.replace(pages, place, [node.0, count + 1]),
            (None, _) => self.counts.insert(pages, [node.0, count + 1]),
        }
    }

    /// The edges out of a node, in short. A bundle goes with its last edge, so its cell is an edge too; the edge to a
    /// body is never in one, since only the type with the most edges becomes one.
    pub(crate) fn left_of(&self, pages: &impl Pages, node: NodeId) -> Step<RemainingEdges> {
        let mut left = RemainingEdges::Nothing;
        self.edges.main.find(pages, node.0, |_, cell| {
            let is_body = cell[1] == u64::from(EdgeType::BODY.0);
            left = if is_body { RemainingEdges::Body(NodeId(cell[3])) } else { RemainingEdges::Edges };
            Ok((!is_body).then_some(()))
        })?;
        Ok(left)
    }

    /// The sources of all edges that are in no bundle, where it is seen at once that they are few and that each node has one in-edge: any
    /// other node has no more than that edge. The s-node of a key-value store is such a one.
    pub(crate) fn few_sources(&self, pages: &impl Pages) -> Step<Option<Vec<u64>>> {
        let mut main = self.edges.main.walk();
        let pages_of_all = (main.next(), main.next(), self.counts.walk().next());
        let (Some(page), None, None) = pages_of_all else { return Ok(None) };
        let sources: Vec<_> =
            Main::cells(pages.words(page)?).map(|cell| cell[0]).take(SOURCES_MAX + 1).collect();
        Ok((sources.len() <= SOURCES_MAX).then_some(sources))
    }

    /// Whether more than `few` of the edges that go out from a node keep it. Looks no further than it has to.
    pub(crate) fn has_more_out_edges(&self, pages: &impl Pages, node: NodeId, few: i64) -> Step<bool> {
        let Ok(few) = u64::try_from(few) else { return Ok(true) };
        Ok(self.edges.count_out(pages, node, |etype| !etype.keeps_nothing(), few)? > few)
    }

    /// Looks together for the edges by key out of one node that have these `hashes`, up to `N` of them, and calls `each` with the place of
    /// a key, its node and, where that is at hand, what follows the key in the node's data, until it returns `false`. Pages are read
    /// together as often as `rounds` says.
    #[inline(always)]
    pub(crate) fn find_pairs<'k, const N: usize>(
        &self,
        pages: &impl StatePages,
        of: (NodeId, EdgeType),
        (hashes, next, rounds): (&[u64], &[u64], &mut usize),
        key: impl Fn(usize) -> &'k [u8],
        mut each: impl FnMut(usize, Option<NodeId>, Option<&[u8]>) -> Step<bool>,
    ) -> Step<()> {
        let mut candidates = [Candidate::Unknown; N];
        let asked = self.edges.find_group(pages, of, (hashes, next), &mut candidates);
        if let Err(missing) = asked
            && let Some(left) = rounds.checked_sub(1)
        {
            *rounds = left;
            return Err(StepError::MissMany(missing));
        }
        for ((at, hash), candidate) in hashes.iter().enumerate().zip(candidates) {
            let key = key(at);
            let seen = match candidate {
                Candidate::Absent => Some((None, None)),
                Candidate::Node(node, raw) => value_in(raw, node, key).map(|value| (Some(node), Some(value))),
                Candidate::Unknown => None,
            };
            let (node, value) = match seen {
                Some(seen) => seen,
                None => {
                    let is_it = |to| begins_with_key(pages, to, key);
                    let found = self.edges.find(pages, of.0, of.1, *hash, is_it)?;
                    (found.map(|(_, node)| node), None)
                }
            };
            if !each(at, node, value)? {
                break;
            }
        }
        Ok(())
    }

    /// The committed body of a node that has moved.
    pub(crate) fn body_of(&self, pages: &impl Pages, node: NodeId) -> Step<NodeId> {
        let found = self.edges.find(pages, node, EdgeType::BODY, 0, |_| Ok(true))?;
        let lost =
            || StepError::Failed(Error::damaged(format!("node {node} has moved, and nothing says where to")));
        found.map(|(_, body)| body).ok_or_else(lost)
    }

    /// A committed node's type, the length of its data, and where they are.
    pub(crate) fn open_node(&self, pages: &impl StatePages, node: NodeId) -> Step<(u32, usize, NodePlace)> {
        let place = find_node(pages, node, NodeScope::Committed)?;
        let (kind, len) = header_at(pages, place)?;
        if len != MOVED {
            let (kind, len) = node_header(pages, node, place)?;
            return Ok((kind, len, place));
        }
        let body = self.body_of(pages, node)?;
        let place = find_body(pages, body, NodeScope::Committed)?;
        let (found, len) = node_header(pages, body, place)?;
        if found != kind {
            let strange = format!("node {node} has type {kind:#x} and a body of {found:#x}");
            return Err(Error::damaged(strange).into());
        }
        Ok((kind, len, place))
    }
}

/// Where a node is and how much room it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePlace {
    pub page: u32,
    pub offset: usize,
    /// Bytes from the header on.
    pub room: usize,
    /// The slot, for a node in a slab.
    pub slot: Option<usize>,
}

/// Which nodes a look-up finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeScope {
    Committed,
    /// Also those that a transaction has made and not committed: for that transaction.
    Reserved,
}

/// Finds a node by its id; a number that is no node's is refused.
pub(crate) fn find_node(table: &impl Descriptors, node: NodeId, which: NodeScope) -> Result<NodePlace> {
    match find_any(table, node, which)? {
        (place, false) => Ok(place),
        (_, true) => Err(Error::NoSuchNode(node)),
    }
}

/// Finds a body.
pub(crate) fn find_body(table: &impl Descriptors, body: NodeId, which: NodeScope) -> Result<NodePlace> {
    match find_any(table, body, which)? {
        (place, true) => Ok(place),
        (_, false) => Err(Error::damaged(format!("a node has moved to {body}, which is not a body"))),
    }
}

/// Finds a node or a body; whether it is a body.
pub(crate) fn find_any(of: &impl Descriptors, node: NodeId, scope: NodeScope) -> Result<(NodePlace, bool)> {
    let absent = || Error::NoSuchNode(node);
    let page = node.page().ok_or_else(absent)?;
    of.look_up(page, |desc| place_in(desc, page, node, scope)).ok_or_else(absent)?
}

/// Where a node or a body is in the page of this descriptor; whether it is a body.
#[inline(always)]
pub(crate) fn place_in(desc: &Desc, page: u32, node: NodeId, which: NodeScope) -> Result<(NodePlace, bool)> {
    let absent = || Error::NoSuchNode(node);
    let offset = node.offset();
    if desc.snode != node.home().0 {
        return Err(absent());
    }
    match desc.kind {
        PageKind::Slab => {
            let bytes = slot_bytes(desc.class).ok_or_else(absent)?;
            let slot = slot_at(desc.class, offset).ok_or_else(absent)?;
            let slots = if which == NodeScope::Committed { desc.body } else { desc.taken() };
            if !slot_is_set(&slots, slot) {
                return Err(absent());
            }
            Ok((NodePlace { page, offset, room: bytes, slot: Some(slot) }, is_body_class(desc.class)))
        }
        PageKind::RunHead if offset == 0 && (which == NodeScope::Reserved || desc.body[1] == 1) => {
            let place = NodePlace { page, offset, room: desc.body[0] as usize * PAGE_BYTES, slot: None };
            Ok((place, desc.body[2] == 1))
        }
        _ => Err(absent()),
    }
}

/// The header at a place: a type and a length, or [`MOVED`].
pub(crate) fn header_at(pages: &impl Pages, place: NodePlace) -> Step<(u32, usize)> {
    Ok(read_header(&pages.bytes(place.page)?[place.offset..]))
}

/// The type of a node that has not moved, or of a body, and the length of its data.
pub(crate) fn node_header(pages: &impl Pages, node: NodeId, place: NodePlace) -> Step<(u32, usize)> {
    let (kind, len) = header_at(pages, place)?;
    if len + NODE_HEADER > place.room {
        let strange = format!("node {node}: a length of {len} bytes in {}", place.room);
        return Err(Error::damaged(strange).into());
    }
    Ok((kind, len))
}

/// Calls `visit` with the pieces of a part of a node's data. All of its pages are to be in memory at once, so the part is no
/// larger than [`Pages::step_pages`].
pub(crate) fn visit_data<'p>(
    pages: &'p impl Pages,
    place: NodePlace,
    part: Range<usize>,
    visit: impl FnMut(&'p [u8]),
) -> Step<()> {
    let start = place.offset + NODE_HEADER;
    visit_bytes(pages, place.page, start + part.start..start + part.end, visit)
}

/// A part of a node's data, likewise.
pub(crate) fn data_in(pages: &impl Pages, place: NodePlace, part: Range<usize>) -> Step<Vec<u8>> {
    let mut data = Vec::with_capacity(part.len());
    visit_data(pages, place, part, |piece| data.extend_from_slice(piece))?;
    Ok(data)
}

/// Calls `visit` with the pieces of a range of bytes, which are counted from the beginning of page `first`.
pub(crate) fn visit_bytes<'p>(
    pages: &'p impl Pages,
    first: u32,
    range: Range<usize>,
    mut visit: impl FnMut(&'p [u8]),
) -> Step<()> {
    let page_of = |at: usize| first + (at / PAGE_BYTES) as u32;
    let mut at = range.start;
    if at < range.end {
        pages.ask_for_all(page_of(at)..page_of(range.end - 1) + 1)?;
    }
    while at < range.end {
        let inner = at % PAGE_BYTES;
        let len = (range.end - at).min(PAGE_BYTES - inner);
        visit(&pages.bytes(page_of(at))?[inner..inner + len]);
        at += len;
    }
    Ok(())
}

/// Whether a node's data begins with the length of `key` and `key`. The node is the destination of an edge, so it
/// exists. One that has moved keeps the bytes that it was made with in its place, and a key never changes.
#[inline]
pub(crate) fn begins_with_key(pages: &impl StatePages, node: NodeId, key: &[u8]) -> Step<bool> {
    let Some(page) = node.page() else { return Ok(false) };
    if value_in(pages.bytes(page)?, node, key).is_some() {
        return Ok(true);
    }
    // It is another, or not to be seen from this page.
    let wanted = key.len() + 2;
    let place = find_node(pages, node, NodeScope::Reserved)?;
    let len = match header_at(pages, place)? {
        (_, MOVED) => place.room - NODE_HEADER,
        _ => node_header(pages, node, place)?.1,
    };
    if len < wanted {
        return Ok(false);
    }
    let data = data_in(pages, place, 0..wanted)?;
    Ok(split_key(&data).is_some_and(|(stored, _)| stored == key))
}

/// The rest of a node's data behind `key` and its length, where it begins with these and lies whole in `raw`, the page that the node begins in;
/// `None` where that is not so, or not to be seen from this page.
#[inline]
pub(crate) fn value_in<'p>(raw: &'p [u8; PAGE_BYTES], node: NodeId, key: &[u8]) -> Option<&'p [u8]> {
    let node = raw.get(node.offset()..)?;
    let (head, data) = node.split_at_checked(NODE_HEADER)?;
    let (stored, value) = split_key(data.get(..read_header(head).1)?)?;
    (stored == key).then_some(value)
}

/// The pages of a run, from its head's descriptor.
pub(crate) fn run_of(desc: &Desc) -> u32 {
    desc.body[0] as u32
}

/// The numbers of pages that are kept for a run, from its head's descriptor.
pub(crate) fn run_numbers(desc: &Desc) -> u32 {
    desc.body[0].max(desc.body[3]) as u32
}
