//! Edges in a transaction: what is committed, with the transaction's own changes over it.

use super::Transaction;
use super::bulk::{KvChange, Pairs};
use super::write_set::NONE;
use crate::committed::{Committed, each_part_out, node_of_snode};
use crate::edges::many::GROUP;
use crate::edges::order::{Direction, EdgePlace, Part, PlacedEdge, list};
use crate::edges::{EachPart, Edge, EdgeChange, EdgeKey, RawEdge, TYPES_PER_NODE_MAX};
use crate::error::{Error, Result};
use crate::ids::{EdgeType, Info, InfoForm, NodeId, Permission};
use crate::options::EdgeRule;
use crate::partition::{FAULT_ROUNDS, begins_with_key, header_at};
use crate::store::Store;
use rustc_hash::{FxHashMap, FxHashSet};

impl Store {
    /// What tells the edge from others, after a check that the info has the type's form.
    pub(crate) fn edge_key<'i>(
        &self,
        source: NodeId,
        etype: EdgeType,
        info: Info<'i>,
    ) -> Result<EdgeKey<'i>> {
        let key = match (self.live_form_of(etype)?, info) {
            (InfoForm::Number, Info::Number(number)) => number,
            (InfoForm::Key, Info::Key(key)) => {
                check_key(key)?;
                self.secret.bytes(key)
            }
            (InfoForm::Number, _) => return Err(Error::WrongInfo { etype, wanted: "a number" }),
            (InfoForm::Key, _) => return Err(Error::WrongInfo { etype, wanted: "a key" }),
        };
        Ok(EdgeKey { source, etype, key, info })
    }

    /// The place of an edge with this info, whether there is one or not: going up from there begins with it, or with the next.
    ///
    /// # Errors
    /// [`Error::WrongInfo`], [`Error::NoSuchEdgeType`].
    pub fn edge_place(&self, etype: EdgeType, info: Info<'_>) -> Result<EdgePlace> {
        let key = self.edge_key(NodeId(0), etype, info)?.key;
        Ok(EdgePlace::of(self.form_of(etype)?, self.secret, key, NodeId(0)))
    }

    /// Appends edges to `seen`, but those of the store's own.
    pub(crate) fn add_edges(&self, edges: Vec<RawEdge>, seen: &mut Vec<Edge>) -> Result<()> {
        for RawEdge { etype, key, to } in edges.into_iter().filter(|edge| !edge.etype.is_reserved()) {
            let number = (self.form_of(etype)? == InfoForm::Number).then_some(key);
            seen.push(Edge { etype, number, to });
        }
        Ok(())
    }

    /// How many edges lead to a node; the root of an s-node is held once more.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`].
    pub fn in_edges(&self, node: NodeId) -> Result<u64> {
        self.look_for(node)?;
        self.read(node.home(), |pages, contents| {
            // Only roots have edges of the store's own that lead to themselves.
            let is_own = |etype| etype == EdgeType::PERMISSION;
            let own = contents.edges.count_out(pages, node, is_own, u64::MAX)?;
            Ok(contents.count_of(pages, node)? - own)
        })
    }
}

impl Transaction<'_> {
    /// Where an edge leads.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`] for the source; [`Error::WrongInfo`], [`Error::NoSuchEdgeType`],
    /// [`Error::Forbidden`], [`Error::Deadlock`].
    pub fn edge(&mut self, source: NodeId, etype: EdgeType, info: Info<'_>) -> Result<Option<NodeId>> {
        let edge = self.store.edge_key(source, etype, info)?;
        self.place(source, Permission::Read)?;
        let (_, now) = self.look_up(&edge)?;
        Ok((now != NONE).then_some(now))
    }

    /// The edge's committed destination, and the one in this transaction.
    pub(super) fn look_up(&mut self, edge: &EdgeKey<'_>) -> Result<(NodeId, NodeId)> {
        if let Some(change) = self.set.change(edge) {
            return Ok((change.old, change.new));
        }
        let old = if self.set.touched(edge.source).created {
            NONE
        } else {
            self.store.find_edge(edge)?.unwrap_or(NONE)
        };
        Ok((old, old))
    }

    /// Leads an edge of the store's own to a node, or nowhere.
    pub(super) fn lead(&mut self, edge: &EdgeKey<'_>, to: NodeId) -> Result<()> {
        let (old, _) = self.look_up(edge)?;
        self.set.set_edge(edge, old, to);
        Ok(())
    }

    /// Makes an edge.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`] for either end, [`Error::EdgeExists`], [`Error::TooManyTypes`]; for edges by key
    /// [`Error::KeyNotInNode`], [`Error::OtherSnode`]; [`Error::WrongInfo`], [`Error::NoSuchEdgeType`],
    /// [`Error::Forbidden`], [`Error::Deadlock`].
    pub fn create_edge(&mut self, source: NodeId, etype: EdgeType, info: Info<'_>, to: NodeId) -> Result<()> {
        let edge = self.store.edge_key(source, etype, info)?;
        self.place(source, Permission::Write)?;
        let (old, now) = self.look_up(&edge)?;
        if now != NONE {
            return Err(Error::EdgeExists(source));
        }
        self.check_destination(&edge, to)?;
        self.check_types(&edge)?;
        self.set.set_edge(&edge, old, to);
        Ok(())
    }

    /// Leads an edge to another node, or makes it; returns where it led.
    ///
    /// # Errors
    /// As [`Transaction::create_edge`] without [`Error::EdgeExists`].
    pub fn set_edge(
        &mut self,
        source: NodeId,
        etype: EdgeType,
        info: Info<'_>,
        to: NodeId,
    ) -> Result<Option<NodeId>> {
        let edge = self.store.edge_key(source, etype, info)?;
        self.place(source, Permission::Write)?;
        let (old, now) = self.look_up(&edge)?;
        self.check_destination(&edge, to)?;
        if now == NONE {
            self.check_types(&edge)?;
        } else {
            // Its count of in-edges changes; to take the edge away is up to who writes the source.
            self.hold(now.home())?;
        }
        self.set.set_edge(&edge, old, to);
        Ok((now != NONE).then_some(now))
    }

    /// Deletes an edge; returns where it led. A node that has no edge any more goes with the commit.
    ///
    /// # Errors
    /// [`Error::NoSuchEdge`], [`Error::NoSuchNode`] for the source, [`Error::WrongInfo`], [`Error::NoSuchEdgeType`],
    /// [`Error::Deadlock`].
    pub fn delete_edge(&mut self, source: NodeId, etype: EdgeType, info: Info<'_>) -> Result<NodeId> {
        let edge = self.store.edge_key(source, etype, info)?;
        self.place(source, Permission::Write)?;
        let (old, now) = self.look_up(&edge)?;
        if now == NONE {
            return Err(Error::NoSuchEdge(source));
        }
        self.hold(now.home())?;
        self.set.set_edge(&edge, old, NONE);
        Ok(now)
    }

    /// All edges out of a node, in no order.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`], [`Error::Deadlock`].
    pub fn edges(&mut self, source: NodeId) -> Result<Vec<Edge>> {
        let (store, mut seen) = (self.store, Vec::new());
        self.enter_node(source, &[Permission::Read])?;
        self.each_out(source, &mut |edges| store.add_edges(edges, &mut seen))?;
        Ok(seen)
    }

    /// As [`Committed::each_out`], with the changes of the transaction, which holds the node's s-node.
    pub(crate) fn each_out<E: From<Error>>(
        &mut self,
        source: NodeId,
        each: &mut EachPart<'_, E>,
    ) -> Result<(), E> {
        self.place_held(source)?;
        let (store, is_new) = (self.store, self.set.touched(source).created);
        let mut changes: Vec<&EdgeChange> = Vec::new();
        if self.set.nodes().contains_key(&source) {
            self.set.put_in_order(store.secret);
            changes.extend(self.set.changes_of(source));
        }
        if !is_new {
            // A changed edge is known by its committed destination: two edges with one hash differ in that.
            let gone: FxHashSet<_> =
                changes.iter().map(|change| (change.etype, change.key, change.old)).collect();
            each_part_out(store, source, &mut |mut edges| {
                edges.retain(|edge| !gone.contains(&(edge.etype, edge.key, edge.to)));
                each(edges)
            })?;
        }
        let new = changes.iter().filter(|change| change.new != NONE);
        each(new.map(|change| RawEdge { etype: change.etype, key: change.key, to: change.new }).collect())
    }

    /// As [`Store::edges_from`], with the changes of the transaction.
    ///
    /// # Errors
    /// As [`Store::edges_from`]; [`Error::Forbidden`], [`Error::Deadlock`].
    pub fn edges_from(
        &mut self,
        source: NodeId,
        etype: EdgeType,
        from: EdgePlace,
        direction: Direction,
        max: usize,
    ) -> Result<Vec<PlacedEdge>> {
        self.place(source, Permission::Read)?;
        let (store, is_new) = (self.store, self.set.touched(source).created);
        self.set.put_in_order(store.secret);
        let set = &self.set;
        let form = store.form_of(etype)?;
        list(
            (etype, form, store.secret),
            from,
            direction,
            max,
            |words| set.changes_at(source, etype, words),
            |from| {
                if is_new {
                    return Ok(Part { edges: Vec::new(), rest: None });
                }
                store.read(source.home(), |pages, contents| {
                    contents.edges.part(pages, (source, etype), form, from, direction)
                })
            },
        )
    }

    /// Refuses an edge that leads where none of this caller may.
    pub(crate) fn may_lead(&mut self, source: NodeId, to: NodeId) -> Result<()> {
        if self.rule != Some(EdgeRule::Adapt) {
            return Ok(());
        }
        let is_allowed = if to.home().is_shared() {
            match self.snode_of(to) {
                Ok(snode) => self.root_of(snode)? == to || self.snode_of(source)? == snode,
                Err(Error::NoSuchNode(_) | Error::NoSuchSnode(_)) => false,
                Err(error) => return Err(error),
            }
        } else {
            to.home() == source.home() || self.root_of(to.home().into()).is_ok_and(|root| root == to)
        };
        if is_allowed {
            return Ok(());
        }
        // Whether there is such a node is not said.
        Err(Error::NotARoot(to))
    }

    fn check_destination(&mut self, edge: &EdgeKey<'_>, to: NodeId) -> Result<()> {
        self.may_lead(edge.source, to)?;
        let place = if self.rule == Some(EdgeRule::Adapt) {
            // The caller needs no permission at a root, and has the one it needs in the source's s-node.
            self.hold(to.home()).map_err(|error| node_of_snode(error, to))?;
            self.place_held(to)?
        } else {
            self.place(to, Permission::Write)?
        };
        let Info::Key(key) = edge.info else { return Ok(()) };
        if to.home() != edge.source.home() {
            return Err(Error::OtherSnode(to));
        }
        let holds = self.store.read(to.home(), |pages, _| {
            let (kind, _) = header_at(pages, place)?;
            Ok(crate::NodeType(kind).is_keyed() && begins_with_key(pages, to, key)?)
        })?;
        if holds { Ok(()) } else { Err(Error::KeyNotInNode(to)) }
    }

    /// Bounds the edge types out of a node.
    fn check_types(&mut self, edge: &EdgeKey<'_>) -> Result<()> {
        let EdgeKey { source, etype, .. } = *edge;
        if self.known_types.get(&source).is_some_and(|types| types.contains(&etype)) {
            return Ok(());
        }
        let store = self.store;
        let committed =
            store.read(source.home(), |pages, contents| contents.edges.types_of(pages, source))?;
        let types = self.known_types.entry(source).or_insert_with(|| committed.into_iter().collect());
        // Types that this transaction has used and undone still count; the limit is far from any use.
        if types.len() >= TYPES_PER_NODE_MAX && !types.contains(&etype) {
            return Err(Error::TooManyTypes { node: source, max: TYPES_PER_NODE_MAX });
        }
        types.insert(etype);
        Ok(())
    }

    /// Fills `pairs` with the hashes of keys and the committed destinations of their edges out of one node, to be changed: [`NONE`] where there
    /// is none.
    pub(crate) fn look_up_keys(
        &mut self,
        source: NodeId,
        etype: EdgeType,
        changes: &[KvChange<'_>],
        pairs: &mut Pairs,
    ) -> Result<()> {
        self.place(source, Permission::Write)?;
        let (store, Pairs { hashes, before: found, .. }) = (self.store, pairs);
        hashes.clear();
        hashes.extend(changes.iter().map(|change| store.secret.bytes(change.key())));
        *found = Vec::with_capacity(changes.len());
        self.set.reserve(changes.len(), changes.iter().map(|change| change.key().len()).sum());
        for (group, changes) in hashes.chunks(GROUP).zip(changes.chunks(GROUP)) {
            let (start, mut rounds) = (found.len(), FAULT_ROUNDS);
            let next = hashes.chunks(GROUP).nth(start / GROUP + 1).unwrap_or_default();
            store.read(source.home(), |pages, contents| {
                found.truncate(start);
                let (of, group) = ((source, etype), (group, next, &mut rounds));
                let key = |at: usize| changes[at].key();
                contents.find_pairs::<GROUP>(pages, of, group, key, |_, node, _| {
                    found.push(node.unwrap_or(NONE));
                    Ok(true)
                })
            })?;
        }
        Ok(())
    }
}

/// Refuses a key that is longer than keys can be.
///
/// # Errors
/// [`Error::TooLarge`].
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > usize::from(u16::MAX) {
        return Err(Error::too_large("a key", key.len(), u16::MAX.into()));
    }
    Ok(())
}

/// Edge types that a transaction knows to go out from a node.
pub(super) type KnownTypes = FxHashMap<NodeId, FxHashSet<EdgeType>>;
