//! Reads of a committed state: one code for the last commit and for snapshots.

use crate::edges::order::{Direction, EdgePlace, PlacedEdge, list};
use crate::edges::{EachPart, Edge, EdgeKey};
use crate::error::{Error, Result, Step};
use crate::ids::{EdgeType, HomeId, Info, InfoForm, NodeId, NodeType, PAGE_BYTES, Permission, SnodeId};
use crate::pages::access::{PageReader, Pages, StatePages};
use crate::partition::{Contents, NodeScope, begins_with_key, find_node, visit_data};
use crate::snodes::access::{Principal, grant_of};
use crate::snodes::tags::{Root, SnodeTags};
use crate::store::Store;
use std::ops::Range;

/// A committed state of a store.
pub(crate) trait Committed {
    type View<'g>: StatePages;

    /// Runs `step` with shared access to an s-node, again whenever a page had to be read first.
    fn step<T>(&self, snode: HomeId, step: impl FnMut(&Self::View<'_>, &Contents) -> Step<T>) -> Result<T>;

    /// The root of a home.
    fn root_of_home(&self, home: HomeId) -> Result<NodeId>;

    /// The homes, in the order of their ids.
    fn homes(&self) -> Vec<HomeId>;

    /// The root of an s-node.
    fn root_of(&self, snode: SnodeId) -> Result<NodeId> {
        let absent = || Error::NoSuchSnode(snode);
        let home = snode.home().ok_or_else(absent)?;
        let root = self.root_of_home(home).map_err(|_| absent())?;
        if !home.is_shared() {
            return Ok(root);
        }
        let key = u64::from(snode.number());
        let found = self.step(home, |pages, contents| {
            contents.edges.find(pages, root, EdgeType::GUEST, key, |_| Ok(true))
        })?;
        found.map(|(_, root)| root).ok_or_else(absent)
    }

    /// What the root of an s-node says.
    fn read_root(&self, root: NodeId) -> Result<Root> {
        Root::decode(&self.data_of(root, NodeType::ROOT)?)
    }

    /// The s-node that a node belongs to.
    fn owner_of(&self, node: NodeId) -> Result<SnodeId> {
        let (home, absent) = (node.home(), |_| Error::NoSuchNode(node));
        self.look_for(node)?;
        if !home.is_shared() {
            return Ok(home.into());
        }
        let own = self.step(home, |pages, contents| {
            contents.edges.find(pages, node, EdgeType::OWNER, 0, |_| Ok(true))
        })?;
        let root = own.map_or(node, |(_, root)| root);
        match self.read_root(root).map_err(absent)?.number {
            0 => Err(Error::NoSuchNode(node)),
            number => Ok(SnodeId::guest(home, number)),
        }
    }

    /// The s-nodes, those that share pages one after the other. One that comes or goes meanwhile may be among them or not.
    fn list_snodes(&self) -> Result<Vec<SnodeId>> {
        let mut snodes = Vec::new();
        for home in self.homes() {
            if home.is_shared() {
                self.each_guest(home, |number, _| {
                    snodes.push(SnodeId::guest(home, number));
                    Ok(())
                })?;
            } else {
                snodes.push(home.into());
            }
        }
        snodes.sort_unstable_by_key(|snode| (snode.0 as u16, snode.number()));
        snodes.dedup();
        Ok(snodes)
    }

    /// Calls `each` with the numbers and roots of the s-nodes that share a home.
    fn each_guest(&self, home: HomeId, mut each: impl FnMut(u32, NodeId) -> Result<()>) -> Result<()> {
        let root = self.root_of_home(home)?;
        let mut next = Some(EdgePlace::FIRST);
        while let Some(from) = next {
            let part = self.step(home, |pages, contents| {
                let of = (root, EdgeType::GUEST);
                contents.edges.part(pages, of, InfoForm::Number, from, Direction::Up)
            })?;
            part.edges.into_iter().try_for_each(|(_, edge)| each(edge.key as u32, edge.to))?;
            next = part.rest;
        }
        Ok(())
    }

    /// The tags of an s-node.
    fn tags_of(&self, snode: SnodeId) -> Result<SnodeTags> {
        Ok(self.read_root(self.root_of(snode)?)?.tags)
    }

    /// The permissions on an s-node, those of its mode included.
    fn grants_of(&self, snode: SnodeId) -> Result<Vec<(Principal, Permission)>> {
        let root = self.root_of(snode)?;
        let mut grants: Vec<_> = self.read_root(root)?.grants().collect();
        let granted = self.each_out(root, &mut |edges| {
            let numbers = edges.iter().filter(|edge| edge.etype == EdgeType::PERMISSION);
            grants.extend(numbers.filter_map(|edge| grant_of(edge.key)));
            Ok(())
        });
        grants.sort_unstable();
        grants.dedup();
        granted.map(|()| grants)
    }

    /// The store whose state it is.
    fn store(&self) -> &Store;

    /// The destination of an edge.
    fn find_edge(&self, edge: &EdgeKey<'_>) -> Result<Option<NodeId>> {
        self.step(edge.source.home(), |pages, contents| {
            let found =
                contents.edges.find(pages, edge.source, edge.etype, edge.key, |to| match edge.info {
                    Info::Number(_) => Ok(true),
                    Info::Key(key) => begins_with_key(pages, to, key),
                })?;
            Ok(found.map(|(_, to)| to))
        })
    }

    /// Where an edge out of a node leads.
    fn edge_of(&self, source: NodeId, etype: EdgeType, info: Info<'_>) -> Result<Option<NodeId>> {
        let edge = self.store().edge_key(source, etype, info)?;
        self.look_for(source)?;
        self.find_edge(&edge)
    }

    /// All edges of programs out of a node, in no order.
    fn edges_of(&self, source: NodeId) -> Result<Vec<Edge>> {
        self.look_for(source)?;
        let mut seen = Vec::new();
        self.each_out(source, &mut |edges| self.store().add_edges(edges, &mut seen))?;
        Ok(seen)
    }

    /// Calls `each` with all edges out of a node, in parts, those of the store's own included. The state stays as it is meanwhile.
    fn each_out<E: From<Error>>(&self, source: NodeId, each: &mut EachPart<'_, E>) -> Result<(), E> {
        each_part_out(self, source, each)
    }

    /// Up to `max` edges of one type out of a node, from a place on.
    fn edges_behind(
        &self,
        of: (NodeId, EdgeType),
        from: EdgePlace,
        direction: Direction,
        max: usize,
    ) -> Result<Vec<PlacedEdge>> {
        let (secret, form) = (self.store().secret, self.store().form_of(of.1)?);
        list(
            (of.1, form, secret),
            from,
            direction,
            max,
            |_| std::iter::empty(),
            |from| {
                self.step(of.0.home(), |pages, contents| {
                    find_node(pages, of.0, NodeScope::Committed)?;
                    contents.edges.part(pages, of, form, from, direction)
                })
            },
        )
    }

    /// Refuses a node that is not there.
    fn look_for(&self, node: NodeId) -> Result<()> {
        let found = self.step(node.home(), |pages, _| Ok(find_node(pages, node, NodeScope::Committed)?));
        found.map(drop).map_err(|error| node_of_snode(error, node))
    }

    /// Appends a part of a node's data to `out`; where all of it ends. The state stays as it is meanwhile, so a part may be larger than the
    /// cache.
    fn read_part(&self, node: NodeId, kind: NodeType, part: Range<u64>, out: &mut Vec<u8>) -> Result<u64> {
        let mut at = part.start;
        loop {
            let read = read_some(self, node, kind, at..part.end, out)?;
            if read.next >= part.end.min(read.len) {
                return Ok(read.len);
            }
            at = read.next;
        }
    }

    /// The data of a node.
    fn data_of(&self, node: NodeId, kind: NodeType) -> Result<Vec<u8>> {
        let mut data = Vec::new();
        self.read_part(node, kind, 0..u64::MAX, &mut data)?;
        Ok(data)
    }
}

/// As [`Committed::each_out`], where nobody changes the s-node meanwhile.
pub(crate) fn each_part_out<E: From<Error>>(
    state: &(impl Committed + ?Sized),
    source: NodeId,
    each: &mut EachPart<'_, E>,
) -> Result<(), E> {
    let mut from = Some(None);
    while let Some(place) = from {
        let (part, rest) =
            state.step(source.home(), |pages, contents| contents.edges.part_of_all(pages, source, place))?;
        each(part)?;
        from = rest.map(Some);
    }
    Ok(())
}

/// How far a read of a part has come.
struct Read {
    len: u64,
    next: u64,
}

/// Appends as much of a part of a node's data to `out` as can be read by one step.
fn read_some(
    state: &(impl Committed + ?Sized),
    node: NodeId,
    kind: NodeType,
    part: Range<u64>,
    out: &mut Vec<u8>,
) -> Result<Read> {
    let before = out.len();
    let read = state.step(node.home(), |pages, contents| {
        let (found, len, place) = contents.open_node(pages, node)?;
        if found != kind.0 {
            return Err(Error::wrong_type(node, found, kind).into());
        }
        // No more pages than stay in the cache together, with the one that the part begins in.
        let most = (pages.step_pages().max(2) - 1) * PAGE_BYTES;
        let at = part.start.min(len as u64) as usize;
        let next = (part.end.min(len as u64) as usize).min(at.saturating_add(most)).max(at);
        out.truncate(before);
        out.reserve(next - at);
        visit_data(pages, place, at..next, |piece| out.extend_from_slice(piece))?;
        Ok(Read { len: len as u64, next: next as u64 })
    });
    read.map_err(|error| node_of_snode(error, node))
}

/// Of a node in an s-node that is not there it is said that it is not there.
pub(crate) fn node_of_snode(error: Error, node: NodeId) -> Error {
    if matches!(error, Error::NoSuchSnode(_)) { Error::NoSuchNode(node) } else { error }
}

/// The last committed state.
impl Committed for Store {
    type View<'g> = PageReader<'g>;

    fn store(&self) -> &Store {
        self
    }

    #[inline]
    fn look_for(&self, node: NodeId) -> Result<()> {
        find_node(&self.pool.table, node, NodeScope::Committed).map(drop)
    }

    fn root_of_home(&self, home: HomeId) -> Result<NodeId> {
        let share = self.snodes.find_visible(home).ok_or(Error::NoSuchSnode(home.into()))?;
        let root = share.read().root;
        Ok(root)
    }

    fn homes(&self) -> Vec<HomeId> {
        self.snodes.ids()
    }

    #[inline]
    fn step<T>(&self, snode: HomeId, step: impl FnMut(&PageReader<'_>, &Contents) -> Step<T>) -> Result<T> {
        self.read(snode, step)
    }

    fn each_out<E: From<Error>>(&self, source: NodeId, each: &mut EachPart<'_, E>) -> Result<(), E> {
        match self.read(source.home(), |pages, contents| contents.edges.part_of_all(pages, source, None))? {
            (all, None) => each(all),
            // Between two steps others commit.
            _ => each_part_out(&self.snapshot(), source, each),
        }
    }

    fn read_part(&self, node: NodeId, kind: NodeType, part: Range<u64>, out: &mut Vec<u8>) -> Result<u64> {
        let before = out.len();
        let read = read_some(self, node, kind, part.clone(), out)?;
        if read.next >= part.end.min(read.len) {
            return Ok(read.len);
        }
        // Between two steps others commit.
        out.truncate(before);
        self.snapshot().read_part(node, kind, part, out)
    }
}
