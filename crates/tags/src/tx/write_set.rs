//! The write set: the changes of a transaction before its commit.
//!
//! Edges are kept here until the commit; the data of new nodes is in its pages already, where no edge leads to it. An
//! undo log, kept while there are savepoints, takes the set back to any of them.

use super::runs::{Extent, NewPage, RunWrite};
use crate::edges::order::EdgePlace;
use crate::edges::{EdgeChange, EdgeKey};
use crate::hash::Secret;
use crate::ids::{EdgeType, HomeId, Info, InfoForm, NodeId};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Nodes that may be known to have other changes where those of many pairs are kept as lists.
const KNOWN_MAX: usize = 4;

/// No destination.
pub(crate) const NONE: NodeId = NodeId(0);

/// An edge that differs from the committed state, or did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    edge: EdgeChange,
    info_at: u32,
    info_len: u32,
}

impl std::ops::Deref for Change {
    type Target = EdgeChange;
    fn deref(&self) -> &EdgeChange {
        &self.edge
    }
}

/// What a transaction did to a node's edges.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Touched {
    pub created: bool,
    /// In-edges more than committed.
    pub ins: i64,
    /// Out-edges more than committed.
    pub outs: i64,
}

impl Touched {
    /// Whether it is a node that was made and has no edge: it was never visible.
    pub(crate) fn is_garbage(&self) -> bool {
        self.created && self.ins == 0 && self.outs == 0
    }
}

/// New data of a node.
#[derive(Clone)]
pub(crate) struct Update {
    /// All of it, header included.
    pub bytes: Box<[u8]>,
    /// How it came about, where the node was changed only in part and that takes less room.
    pub patches: Option<Vec<u8>>,
}

impl Update {
    /// Notes a patch of the bytes.
    #[inline]
    pub(crate) fn log(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let Some(patches) = &mut self.patches else { return };
        encode(patches);
        if patches.len() > self.bytes.len() {
            // The whole node is shorter.
            self.patches = None;
        }
    }

    /// What the journal gets of it.
    pub(crate) fn journal_bytes(&self) -> usize {
        self.patches.as_ref().map_or(self.bytes.len(), Vec::len)
    }
}

/// The changes that were there when one asked for those of a node, in order.
#[derive(Default)]
struct Ordered {
    /// Source, type and the word of the place, with where the change is.
    by_place: BTreeSet<(NodeId, EdgeType, u64, u32)>,
    /// The words of the first changes.
    words: Vec<u64>,
}

/// Nodes in shared homes with changed edges, by their owners: whoever deletes s-nodes looks at those of each only.
#[derive(Default)]
pub(crate) struct Owned {
    /// Those since the last call, which nobody has asked for the owner of.
    pub fresh: Vec<NodeId>,
    /// A node may have been taken back, or have edges again.
    pub of: FxHashMap<NodeId, BTreeSet<NodeId>>,
}

enum Undo {
    Added,
    Redirected(u32, NodeId),
    Created(NodeId),
    Touched(NodeId, Touched),
    Updated(NodeId, Option<Update>),
    Moved(NodeId, Option<Option<NodeId>>),
    Page(NodeId, u32, Option<NewPage>),
    Extent(NodeId, Extent),
    Torn,
    HomeMade,
    HomeDropped,
    Deleted(NodeId),
}

/// What going back to a savepoint has to take back outside of the set.
#[derive(Default)]
pub(crate) struct Undone {
    /// Nodes that were made since.
    pub nodes: Vec<NodeId>,
    /// Homes that were made since, to be taken back after their nodes.
    pub homes: Vec<HomeId>,
}

/// The changes of a transaction.
#[derive(Default)]
pub(crate) struct WriteSet {
    pub(crate) changes: Vec<Change>,
    index: HashTable<u32>,
    ordered: Ordered,
    /// Kept from the first deletion of an s-node with nodes on.
    owned: Option<Box<Owned>>,
    infos: Vec<u8>,
    nodes: FxHashMap<NodeId, Touched>,
    pub(crate) created: Vec<NodeId>,
    /// Created nodes with one edge to them, in the order of `created`, of which `nodes` does not know: many pairs at once need no
    /// map of their nodes.
    led: Vec<NodeId>,
    /// Committed nodes with an edge less, of which `nodes` does not know. A node may be in both, and more than once.
    lost: Vec<NodeId>,
    /// New data of nodes and bodies in slabs; for a node that moves, its header.
    pub(crate) updates: FxHashMap<NodeId, Update>,
    /// Where the data of nodes is whose body this transaction has changed: in a body, or in their place.
    pub(crate) moved: FxHashMap<NodeId, Option<NodeId>>,
    /// What is written in pages that nodes and bodies have of their own.
    pub(crate) runs: BTreeMap<NodeId, RunWrite>,
    /// Blocks that such pages were written to, those included that were written again since.
    pub(crate) blocks: Vec<(u64, HomeId)>,
    in_memory: usize,
    /// A write of a part of a node has failed half-way.
    pub(crate) is_torn: bool,
    /// Homes that are new, with their roots.
    pub(crate) new_homes: Vec<(HomeId, NodeId)>,
    /// Homes that go with the commit. Nothing of them is touched any more.
    pub(crate) gone_homes: Vec<HomeId>,
    /// Nodes without edges that this transaction sees no more.
    pub(crate) deleted: FxHashSet<NodeId>,
    undo: Vec<Undo>,
    savepoints: usize,
}

impl WriteSet {
    /// Whether nothing was changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.created.is_empty()
            && self.updates.is_empty()
            && self.runs.is_empty()
            && self.gone_homes.is_empty()
    }

    /// Whether nothing is added: no node, no edge, no s-node.
    pub(crate) fn only_takes(&self) -> bool {
        self.created.is_empty()
            && self.new_homes.is_empty()
            && self.changes.iter().all(|change| change.old != NONE || change.new == NONE)
    }

    /// Makes room for so many edges at once.
    pub(crate) fn reserve(&mut self, edges: usize) {
        self.changes.reserve(edges);
        self.created.reserve(edges);
        let (changes, infos) = (&self.changes, &self.infos);
        self.index.reserve(edges, |at| rehash(&changes[*at as usize], infos));
    }

    /// The change of an edge, if this transaction has touched it.
    #[inline]
    pub(crate) fn change(&self, edge: &EdgeKey<'_>) -> Option<usize> {
        let found =
            self.index.find(edge.hash(), |at| is_change_of(&self.changes[*at as usize], &self.infos, edge));
        found.map(|at| *at as usize)
    }

    /// Enters the changes since the last call in their order, before [`WriteSet::changes_of`] and [`WriteSet::changes_at`]: who does
    /// not ask for those of a node needs none.
    pub(crate) fn put_in_order(&mut self, secret: Secret) {
        let Ordered { by_place, words } = &mut self.ordered;
        for (at, change) in self.changes.iter().enumerate().skip(words.len()) {
            let word = EdgePlace::of(change.form, secret, change.key, NONE).word();
            by_place.insert((change.source, change.etype, word, at as u32));
            words.push(word);
        }
    }

    /// The changes of edges out of a node.
    pub(crate) fn changes_of(&self, source: NodeId) -> impl Iterator<Item = &EdgeChange> {
        let of = (source, EdgeType(0), 0, 0)..=(source, EdgeType(u32::MAX), u64::MAX, u32::MAX);
        self.ordered.by_place.range(of).map(|(.., at)| &self.changes[*at as usize].edge)
    }

    /// The changes of edges of one type out of a node whose places begin with one of the words, in the order of these.
    pub(crate) fn changes_at(
        &self,
        source: NodeId,
        etype: EdgeType,
        words: RangeInclusive<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, &EdgeChange)> {
        let of = (source, etype, *words.start(), 0)..=(source, etype, *words.end(), u32::MAX);
        let places = self.ordered.by_place.range(of);
        places.map(|(.., word, at)| (*word, &self.changes[*at as usize].edge))
    }

    /// Leads an edge to `new`, from `old` in the committed state when it was not touched before.
    #[inline]
    pub(crate) fn set_edge(&mut self, edge: &EdgeKey<'_>, touched: Option<usize>, old: NodeId, new: NodeId) {
        let before = match touched {
            Some(at) => {
                let before = std::mem::replace(&mut self.changes[at].edge.new, new);
                self.note(|| Undo::Redirected(at as u32, before));
                before
            }
            None => {
                let at = self.add(edge, old, new);
                let (changes, infos) = (&self.changes, &self.infos);
                self.index.insert_unique(edge.hash(), at, |at| rehash(&changes[*at as usize], infos));
                old
            }
        };
        if before == new {
            return;
        }
        let outs = i64::from(new != NONE) - i64::from(before != NONE);
        // Also where it has as many as before: what it has is not what is committed.
        if !edge.etype.keeps_nothing() {
            self.touch(edge.source, 0, outs);
        }
        if before != NONE {
            self.touch(before, -1, 0);
        }
        if new != NONE {
            self.touch(new, 1, 0);
        }
    }

    /// Adds a change of an edge that had none, which the caller enters in the index; where it is.
    #[inline]
    fn add(&mut self, edge: &EdgeKey<'_>, old: NodeId, new: NodeId) -> u32 {
        let (form, info): (_, &[u8]) = match edge.info {
            Info::Number(_) => (InfoForm::Number, &[]),
            Info::Key(key) => (InfoForm::Key, key),
        };
        let (info_at, info_len) = (self.infos.len() as u32, info.len() as u32);
        self.infos.extend_from_slice(info);
        let EdgeKey { source, etype, key, .. } = *edge;
        let edge = EdgeChange { source, etype, form, key, old, new };
        self.changes.push(Change { edge, info_at, info_len });
        self.note(|| Undo::Added);
        self.changes.len() as u32 - 1
    }

    /// Leads an edge by key to a node that was made for it with [`WriteSet::create_many`], or nowhere; where it led. The
    /// count of the source's edges is left to [`WriteSet::touch_source`], once for many edges.
    #[inline]
    pub(crate) fn lead(&mut self, edge: &EdgeKey<'_>, old: NodeId, new: NodeId) -> NodeId {
        let (changes, infos) = (&self.changes, &self.infos);
        let is_it = |at: &u32| is_change_of(&changes[*at as usize], infos, edge);
        let entry = self.index.entry(edge.hash(), is_it, |at| rehash(&changes[*at as usize], infos));
        let before = match entry {
            Entry::Occupied(found) => {
                let at = *found.get();
                let before = std::mem::replace(&mut self.changes[at as usize].edge.new, new);
                if self.savepoints > 0 && before != new {
                    self.undo.push(Undo::Redirected(at, before));
                }
                // The node before may be one of those that were just made.
                self.settle();
                before
            }
            // A deletion of what is not there changes nothing.
            Entry::Vacant(_) if old == new => old,
            Entry::Vacant(place) => {
                place.insert(self.changes.len() as u32);
                self.add(edge, old, new);
                old
            }
        };
        let lost = (before != NONE && before != new).then_some(before);
        if self.savepoints == 0 {
            self.lost.extend(lost);
            self.led.extend((new != NONE).then_some(new));
        } else {
            lost.into_iter().for_each(|node| self.touch(node, -1, 0));
            if new != NONE {
                self.touch(new, 1, 0);
            }
        }
        before
    }

    /// Tells `nodes` of what it does not know yet.
    fn settle(&mut self) {
        let WriteSet { nodes, led, lost, owned, .. } = self;
        if let Some(owned) = owned {
            owned.fresh.extend(led.iter().chain(lost.iter()));
        }
        for node in led.drain(..) {
            let touched = nodes.entry(node).or_default();
            (touched.created, touched.ins) = (true, touched.ins + 1);
        }
        for node in lost.drain(..) {
            nodes.entry(node).or_default().ins -= 1;
        }
    }

    /// Lets each node be known in one place only: in `led`, in `lost`, once, or in `nodes`. To be called before these are asked for.
    pub(crate) fn tell_apart(&mut self) {
        self.lost.sort_unstable();
        self.led.sort_unstable();
        let twice = self.lost.windows(2).any(|pair| pair[0] == pair[1]);
        let known =
            |node: &NodeId| self.lost.binary_search(node).is_ok() || self.led.binary_search(node).is_ok();
        // More nodes are known elsewhere only where a transaction does more than changing pairs.
        if twice || self.nodes.len() > KNOWN_MAX || self.nodes.keys().any(known) {
            self.settle();
        }
    }

    /// Created nodes with one edge to them and nothing else, in the order of their ids; others than [`WriteSet::nodes`].
    pub(crate) fn led(&self) -> &[NodeId] {
        &self.led
    }

    /// Whether nothing that was there before is changed or goes.
    pub(crate) fn only_adds(&self) -> bool {
        self.updates.is_empty()
            && self.runs.is_empty()
            && self.gone_homes.is_empty()
            && self.changes.iter().all(|change| change.old == NONE)
    }

    /// Committed nodes with an edge less and no other change, in the order of their places; others than [`WriteSet::nodes`].
    pub(crate) fn lost(&self) -> &[NodeId] {
        &self.lost
    }

    /// What was done to edges of nodes, after [`WriteSet::tell_apart`].
    pub(crate) fn nodes(&self) -> &FxHashMap<NodeId, Touched> {
        &self.nodes
    }

    /// How many nodes' edges were touched, at most.
    pub(crate) fn nodes_touched(&self) -> usize {
        self.nodes.len() + self.led.len() + self.lost.len()
    }

    /// Notes that out-edges of a node have changed, and how many more they are.
    pub(crate) fn touch_source(&mut self, node: NodeId, outs: i64) {
        self.touch(node, 0, outs);
    }

    /// Keeps how to undo a step, where there is a savepoint.
    #[inline]
    fn note(&mut self, undo: impl FnOnce() -> Undo) {
        if self.savepoints > 0 {
            self.undo.push(undo());
        }
    }

    /// The nodes with changed edges by their owners, as far as they are known; to be [kept](WriteSet::keep_owned).
    pub(crate) fn take_owned(&mut self) -> Box<Owned> {
        self.settle();
        self.owned.take().unwrap_or_else(|| {
            let nodes = self.created.iter().chain(self.nodes.keys()).copied();
            Box::new(Owned { fresh: nodes.collect(), ..Owned::default() })
        })
    }

    /// Goes on with noting nodes with changed edges.
    pub(crate) fn keep_owned(&mut self, owned: Box<Owned>) {
        self.owned = Some(owned);
    }

    fn touch(&mut self, node: NodeId, ins: i64, outs: i64) {
        debug_assert!(self.savepoints == 0 || self.led.is_empty() && self.lost.is_empty());
        let touched = self.nodes.entry(node).or_default();
        let before = *touched;
        touched.ins += ins;
        touched.outs += outs;
        self.note_owned(node);
        self.note(|| Undo::Touched(node, before));
    }

    /// Notes a node that this transaction has made.
    pub(crate) fn create(&mut self, node: NodeId) {
        self.created.push(node);
        self.nodes.insert(node, Touched { created: true, ins: 0, outs: 0 });
        self.note_owned(node);
        self.note(|| Undo::Created(node));
    }

    /// Notes nodes that this transaction has made, each of which [`WriteSet::lead`] is about to lead an edge to.
    pub(crate) fn create_many(&mut self, nodes: &[NodeId]) {
        if self.savepoints > 0 {
            nodes.iter().for_each(|node| self.create(*node));
        } else {
            // What is known of a node that has no edge yet is the default.
            self.created.extend_from_slice(nodes);
        }
    }

    /// Notes a home that this transaction has made. Its root, which is noted as created, is held by it.
    pub(crate) fn make_home(&mut self, home: HomeId, root: NodeId) {
        self.touch(root, 1, 0);
        self.new_homes.push((home, root));
        self.note(|| Undo::HomeMade);
    }

    /// Notes that a home goes with the commit.
    pub(crate) fn drop_home(&mut self, home: HomeId) {
        self.gone_homes.push(home);
        self.note(|| Undo::HomeDropped);
    }

    /// Notes that this transaction sees a node no more, which has no edges.
    pub(crate) fn delete(&mut self, node: NodeId) {
        if self.deleted.insert(node) {
            self.note(|| Undo::Deleted(node));
        }
    }

    /// What this transaction did to a node's edges.
    pub(crate) fn touched(&mut self, node: NodeId) -> Touched {
        self.settle();
        self.nodes.get(&node).copied().unwrap_or_default()
    }

    /// Whether this transaction has changed an edge out of a node, but those that do not keep it, or an edge to it.
    pub(crate) fn is_touched(&mut self, node: NodeId) -> bool {
        self.settle();
        self.nodes.contains_key(&node)
    }

    /// Notes where a node's data is.
    pub(crate) fn move_to(&mut self, node: NodeId, body: Option<NodeId>) {
        let before = self.moved.insert(node, body);
        self.note(|| Undo::Moved(node, before));
    }

    /// Keeps new data of a node or body.
    pub(crate) fn update(&mut self, node: NodeId, bytes: Box<[u8]>) {
        let before = self.updates.insert(node, Update { bytes, patches: None });
        self.note(|| Undo::Updated(node, before));
    }

    /// Keeps a copy of a committed node that is going to be changed in part.
    pub(crate) fn begin_patches(&mut self, node: NodeId, bytes: Box<[u8]>) {
        self.updates.insert(node, Update { bytes, patches: Some(Vec::new()) });
        self.note(|| Undo::Updated(node, None));
    }

    /// The new data of a node, to be changed in part.
    #[inline]
    pub(crate) fn edit(&mut self, node: NodeId) -> Option<&mut Update> {
        let update = self.updates.get_mut(&node)?;
        if self.savepoints > 0 {
            self.undo.push(Undo::Updated(node, Some(update.clone())));
        }
        Some(update)
    }

    /// Pages of nodes with pages of their own that wait in memory to be written.
    pub(crate) fn pages_in_memory(&self) -> usize {
        self.in_memory
    }

    /// Keeps a page of a node with pages of its own, which has this extent.
    pub(crate) fn put_page(&mut self, node: NodeId, extent: Extent, at: u32, page: NewPage) {
        self.set_extent(node, extent, extent);
        let before = self.swap_page(node, at, Some(page));
        self.note(|| Undo::Page(node, at, before));
    }

    /// Notes that a page was written, to a block of this s-node.
    pub(crate) fn spilled(&mut self, node: NodeId, at: u32, page: NewPage, block: (u64, HomeId)) {
        self.blocks.push(block);
        // What it holds is the same, so there is nothing to be undone.
        self.swap_page(node, at, Some(page));
    }

    /// Notes that a write has failed half-way, so that only what was before can be committed.
    pub(crate) fn note_torn(&mut self) {
        if !std::mem::replace(&mut self.is_torn, true) {
            self.note(|| Undo::Torn);
        }
    }

    fn swap_page(&mut self, node: NodeId, at: u32, page: Option<NewPage>) -> Option<NewPage> {
        let is_in_memory = |page: &Option<NewPage>| usize::from(matches!(page, Some(NewPage::Memory(_))));
        let pages = &mut self.runs.entry(node).or_default().pages;
        self.in_memory += is_in_memory(&page);
        let before = match page {
            Some(page) => pages.insert(at, page),
            None => pages.remove(&at),
        };
        self.in_memory -= is_in_memory(&before);
        before
    }

    /// Gives a node other pages; what was written behind them is forgotten.
    pub(crate) fn set_extent(&mut self, node: NodeId, before: Extent, extent: Extent) {
        let run = self.runs.entry(node).or_default();
        run.extent = extent;
        let behind: Vec<u32> = run.pages.range(extent.pages..).map(|(at, _)| *at).collect();
        if self.savepoints > 0 && before != extent {
            self.undo.push(Undo::Extent(node, before));
        }
        for at in behind {
            let page = self.swap_page(node, at, None);
            self.note(|| Undo::Page(node, at, page));
        }
    }

    /// Begins to keep the undo log, and returns the place to come back to.
    pub(crate) fn savepoint(&mut self) -> usize {
        self.settle();
        self.savepoints += 1;
        self.undo.len()
    }

    /// Goes back to a place, and returns what was made since.
    pub(crate) fn undo_to(&mut self, mark: usize) -> Undone {
        let mut gone = Undone::default();
        while self.undo.len() > mark {
            match self.undo.pop() {
                Some(Undo::Added) => {
                    let Some(change) = self.changes.pop() else { continue };
                    let hash = rehash(&change, &self.infos);
                    let at = self.changes.len() as u32;
                    if let Ok(entry) = self.index.find_entry(hash, |found| *found == at) {
                        entry.remove();
                    }
                    self.infos.truncate(change.info_at as usize);
                    self.note_owned(change.source);
                    if self.changes.len() < self.ordered.words.len()
                        && let Some(word) = self.ordered.words.pop()
                    {
                        self.ordered.by_place.remove(&(change.source, change.etype, word, at));
                    }
                }
                Some(Undo::Redirected(at, before)) => {
                    self.changes[at as usize].edge.new = before;
                    self.note_owned(self.changes[at as usize].source);
                }
                Some(Undo::Created(node)) => {
                    self.created.pop();
                    self.nodes.remove(&node);
                    self.runs.remove(&node);
                    gone.nodes.push(node);
                }
                Some(Undo::Touched(node, before)) => {
                    self.nodes.insert(node, before);
                    self.note_owned(node);
                }
                Some(Undo::Updated(node, before)) => restore(&mut self.updates, node, before),
                Some(Undo::Moved(node, before)) => restore(&mut self.moved, node, before),
                Some(Undo::Page(node, at, before)) => drop(self.swap_page(node, at, before)),
                Some(Undo::Extent(node, before)) => {
                    self.runs.entry(node).or_default().extent = before;
                }
                Some(Undo::Torn) => self.is_torn = false,
                Some(Undo::HomeMade) => gone.homes.extend(self.new_homes.pop().map(|(home, _)| home)),
                Some(Undo::HomeDropped) => {
                    self.gone_homes.pop();
                }
                Some(Undo::Deleted(node)) => {
                    self.deleted.remove(&node);
                }
                None => break,
            }
        }
        if !gone.homes.is_empty() {
            // Nobody can be asked for owners in a home that is gone.
            self.owned = None;
        }
        gone
    }

    /// Notes that a node's owner is to be asked for, again.
    fn note_owned(&mut self, node: NodeId) {
        if let Some(owned) = &mut self.owned {
            owned.fresh.push(node);
        }
    }

    /// Forgets the innermost savepoint. Without any the undo log is not needed.
    pub(crate) fn forget_savepoint(&mut self) {
        self.savepoints -= 1;
        if self.savepoints == 0 {
            self.undo.clear();
        }
    }
}

/// What is known of a node becomes what it was before.
fn restore<T>(known: &mut FxHashMap<NodeId, T>, node: NodeId, before: Option<T>) {
    match before {
        Some(before) => _ = known.insert(node, before),
        None => _ = known.remove(&node),
    }
}

fn info_of<'i>(change: &Change, infos: &'i [u8]) -> &'i [u8] {
    &infos[change.info_at as usize..(change.info_at + change.info_len) as usize]
}

fn is_change_of(change: &Change, infos: &[u8], edge: &EdgeKey<'_>) -> bool {
    (change.source, change.etype, change.key) == (edge.source, edge.etype, edge.key)
        && match edge.info {
            Info::Number(_) => true,
            Info::Key(key) => info_of(change, infos) == key,
        }
}

fn rehash(change: &Change, infos: &[u8]) -> u64 {
    let info = match change.form {
        InfoForm::Key => Info::Key(info_of(change, infos)),
        InfoForm::Number => Info::Number(change.key),
    };
    EdgeKey { source: change.source, etype: change.etype, key: change.key, info }.hash()
}
