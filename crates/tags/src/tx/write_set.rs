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

    /// Whether its in-edges are as many as where nothing is kept of them, and it cannot have lost its last edge.
    fn is_plain(&self) -> bool {
        if self.created { self.ins == 1 } else { self.ins == 0 && self.outs >= 0 }
    }
}

/// What a transaction did to edges of nodes, as its commit needs it.
#[derive(Default)]
pub(crate) struct Summed {
    /// Nodes whose in-edges are to be counted, and that may go, in the order of their ids.
    pub counted: Vec<(NodeId, Touched)>,
    /// Nodes that were made and have no edge, likewise.
    pub garbage: Vec<NodeId>,
    /// How many nodes' edges were touched, at most.
    pub touched: usize,
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

/// Takes a step of the transaction back.
type Undo = Box<dyn FnOnce(&mut WriteSet, &mut Undone) + Send + Sync>;

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
    infos: Vec<u8>,
    /// What was done to edges of nodes, but for what the three lists say that follow: many pairs at once need no map of their nodes.
    nodes: FxHashMap<NodeId, Touched>,
    /// Nodes in shared homes, in the order in which they came to `nodes`; who deletes an s-node sorts them into `owned`.
    fresh: Vec<NodeId>,
    /// Nodes by the roots of their s-nodes: whoever deletes s-nodes looks at those of each only. One may have been taken back since, or
    /// have edges again.
    pub(crate) owned: FxHashMap<NodeId, BTreeSet<NodeId>>,
    pub(crate) created: Vec<NodeId>,
    /// Of the created nodes, those that `nodes` knows.
    created_known: usize,
    /// Nodes with an edge to them more or less, of which `nodes` does not know. A node may be there more than once.
    gained: Vec<NodeId>,
    lost: Vec<NodeId>,
    /// New data of nodes and bodies in slabs; for a node that moves, its header.
    pub(crate) updates: FxHashMap<NodeId, Update>,
    /// Where the data of nodes is whose body this transaction has changed: in a body, or in their place.
    pub(crate) moved: FxHashMap<NodeId, Option<NodeId>>,
    /// What is written in pages that nodes and bodies have of their own.
    pub(crate) runs: BTreeMap<NodeId, RunWrite>,
    /// Blocks that such pages were written to, those included that were written again since.
    pub(crate) blocks: Vec<(u64, HomeId)>,
    /// Pages of `runs` that wait in memory to be written.
    pub(crate) pages_in_memory: usize,
    /// A write of a part of a node has failed half-way.
    pub(crate) is_torn: bool,
    /// Homes that are new, with their roots.
    pub(crate) new_homes: Vec<(HomeId, NodeId)>,
    /// Homes that go with the commit. Nothing of them is touched any more.
    pub(crate) gone_homes: Vec<HomeId>,
    /// Nodes without edges that this transaction sees no more.
    pub(crate) deleted: FxHashSet<NodeId>,
    undo: Vec<Undo>,
    /// How long the undo log was at each of them.
    savepoints: Vec<usize>,
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

    /// Makes room for so many edges at once, whose infos have so many bytes.
    pub(crate) fn reserve(&mut self, edges: usize, info_bytes: usize) {
        self.changes.reserve(edges);
        self.infos.reserve(info_bytes);
        [&mut self.created, &mut self.gained, &mut self.lost]
            .into_iter()
            .for_each(|nodes| nodes.reserve(edges));
        let (changes, infos) = (&self.changes, &self.infos);
        self.index.reserve(edges, |at| rehash(&changes[*at as usize], infos));
    }

    /// The change of an edge, if this transaction has touched it.
    #[inline]
    pub(crate) fn change(&self, edge: &EdgeKey<'_>) -> Option<&EdgeChange> {
        let is_it = |at: &u32| is_change_of(&self.changes[*at as usize], &self.infos, edge);
        self.index.find(edge.hash(), is_it).map(|at| &self.changes[*at as usize].edge)
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
    pub(crate) fn set_edge(&mut self, edge: &EdgeKey<'_>, old: NodeId, new: NodeId) {
        let before = self.lead(edge, old, new);
        // Also where it has as many as before: what it has is not what is committed.
        if before != new && !edge.etype.keeps_nothing() {
            self.touch(edge.source, 0, i64::from(new != NONE) - i64::from(before != NONE));
        }
    }

    /// Adds a change of an edge that had none, which the caller enters in the index.
    #[inline]
    fn add(&mut self, edge: &EdgeKey<'_>, old: NodeId, new: NodeId) {
        let (form, info): (_, &[u8]) = match edge.info {
            Info::Number(_) => (InfoForm::Number, &[]),
            Info::Key(key) => (InfoForm::Key, key),
        };
        let (info_at, info_len) = (self.infos.len() as u32, info.len() as u32);
        self.infos.extend_from_slice(info);
        let EdgeKey { source, etype, key, .. } = *edge;
        let edge = EdgeChange { source, etype, form, key, old, new };
        self.changes.push(Change { edge, info_at, info_len });
        self.note(WriteSet::take_back_change);
    }

    /// As [`WriteSet::set_edge`]; where it led. The count of the source's edges is left to [`WriteSet::touch`], once for many edges.
    #[inline]
    pub(crate) fn lead(&mut self, edge: &EdgeKey<'_>, old: NodeId, new: NodeId) -> NodeId {
        let (changes, infos) = (&self.changes, &self.infos);
        let is_it = |at: &u32| is_change_of(&changes[*at as usize], infos, edge);
        let entry = self.index.entry(edge.hash(), is_it, |at| rehash(&changes[*at as usize], infos));
        let before = match entry {
            Entry::Occupied(found) => {
                let at = *found.get() as usize;
                let before = std::mem::replace(&mut self.changes[at].edge.new, new);
                self.note(move |set, _| {
                    let edge = set.changes[at].edge;
                    set.changes[at].edge.new = before;
                    set.touch_ends(&edge, edge.new, before);
                });
                before
            }
            // What is as it was changes nothing.
            Entry::Vacant(_) if old == new => old,
            Entry::Vacant(place) => {
                place.insert(self.changes.len() as u32);
                self.add(edge, old, new);
                old
            }
        };
        if before != new {
            self.lost.extend((before != NONE).then_some(before));
            self.gained.extend((new != NONE).then_some(new));
        }
        before
    }

    /// Takes back the last change, of an edge that had none before.
    fn take_back_change(&mut self, _: &mut Undone) {
        let Some(change) = self.changes.pop() else { return };
        let at = self.changes.len() as u32;
        if let Ok(entry) = self.index.find_entry(rehash(&change, &self.infos), |found| *found == at) {
            entry.remove();
        }
        self.infos.truncate(change.info_at as usize);
        if self.changes.len() < self.ordered.words.len()
            && let Some(word) = self.ordered.words.pop()
        {
            self.ordered.by_place.remove(&(change.source, change.etype, word, at));
        }
        self.touch_ends(&change.edge, change.new, change.old);
    }

    /// Notes that an edge leads from `before` to `now` again.
    fn touch_ends(&mut self, edge: &EdgeChange, before: NodeId, now: NodeId) {
        for (node, ins) in [(before, -1), (now, 1)] {
            if before != now && node != NONE {
                self.touch(node, ins, 0);
            }
        }
        if !edge.etype.keeps_nothing() {
            self.touch(edge.source, 0, i64::from(now != NONE) - i64::from(before != NONE));
        }
    }

    /// Tells `nodes` of what it does not know yet.
    fn settle(&mut self) {
        if self.created_known == self.created.len() && self.gained.is_empty() && self.lost.is_empty() {
            return;
        }
        let WriteSet { nodes, fresh, created, created_known, gained, lost, .. } = self;
        for node in &created[*created_known..] {
            known(nodes, fresh, *node).created = true;
        }
        *created_known = created.len();
        gained.drain(..).for_each(|node| known(nodes, fresh, node).ins += 1);
        lost.drain(..).for_each(|node| known(nodes, fresh, node).ins -= 1);
    }

    /// Sums up what was done to edges of nodes.
    pub(crate) fn sum_up(&mut self) -> Summed {
        let listed = self.gained.len() + self.lost.len();
        let touched = self.nodes.len() + listed;
        if self.nodes.len() > listed {
            self.settle();
        }
        for nodes in [&mut self.created[self.created_known..], &mut self.gained, &mut self.lost] {
            nodes.sort_unstable();
        }
        let mut created = &self.created[self.created_known..];
        let (mut gained, mut lost) = (&self.gained[..], &self.lost[..]);
        let is_listed =
            |node: &NodeId| [created, gained, lost].iter().any(|of| of.binary_search(node).is_ok());
        let wanted = self.nodes.iter().filter(|(node, touched)| !touched.is_plain() || is_listed(node));
        let mut known: Vec<_> = wanted.map(|(node, touched)| (*node, *touched)).collect();
        known.sort_unstable_by_key(|(node, _)| *node);
        let mut known = &known[..];
        let counted = Vec::with_capacity(known.len() + lost.len());
        let mut summed = Summed { counted, garbage: Vec::new(), touched };
        let first = |nodes: &[NodeId]| nodes.first().map_or(u64::MAX, |node| node.0);
        loop {
            let next_known = known.first().map_or(u64::MAX, |(node, _)| node.0);
            // Of many pairs at once most nodes were made and got one edge, or have lost one.
            while let ([made, rest @ ..], [led, next @ ..]) = (created, gained)
                && made == led
                && made.0 < next_known.min(first(lost))
                && next.first() != Some(led)
            {
                (created, gained) = (rest, next);
            }
            let others = next_known.min(first(created)).min(first(gained));
            while let [node, rest @ ..] = lost
                && node.0 < others
                && rest.first() != Some(node)
            {
                summed.counted.push((*node, Touched { ins: -1, ..Touched::default() }));
                lost = rest;
            }
            let node = NodeId(others.min(first(lost)));
            if node.0 == u64::MAX {
                return summed;
            }
            let mut touched = Touched::default();
            if let [(first, before), rest @ ..] = known
                && *first == node
            {
                (touched, known) = (*before, rest);
            }
            touched.created |= take_all(&mut created, node) > 0;
            touched.ins += take_all(&mut gained, node) - take_all(&mut lost, node);
            if touched.is_garbage() {
                summed.garbage.push(node);
            } else if !touched.is_plain() {
                summed.counted.push((node, touched));
            }
        }
    }

    /// Whether nothing that was there before is changed or goes.
    pub(crate) fn only_adds(&self) -> bool {
        self.updates.is_empty()
            && self.runs.is_empty()
            && self.gone_homes.is_empty()
            && self.changes.iter().all(|change| change.old == NONE)
    }

    /// Keeps how to undo a step, where there is a savepoint.
    #[inline]
    fn note(&mut self, undo: impl FnOnce(&mut WriteSet, &mut Undone) + Send + Sync + 'static) {
        if !self.savepoints.is_empty() {
            self.undo.push(Box::new(undo));
        }
    }

    /// The nodes with changed edges that came since the last call.
    pub(crate) fn take_fresh(&mut self) -> Vec<NodeId> {
        self.settle();
        std::mem::take(&mut self.fresh)
    }

    /// Notes that a node has so many in-edges and out-edges more.
    pub(crate) fn touch(&mut self, node: NodeId, ins: i64, outs: i64) {
        let touched = known(&mut self.nodes, &mut self.fresh, node);
        touched.ins += ins;
        touched.outs += outs;
    }

    /// Notes a node that this transaction has made.
    pub(crate) fn create(&mut self, node: NodeId) {
        self.created.push(node);
        self.note(move |set, gone| {
            set.created.pop();
            set.created_known = set.created_known.min(set.created.len());
            set.nodes.remove(&node);
            set.runs.remove(&node);
            gone.nodes.push(node);
        });
    }

    /// Notes a home that this transaction has made. Its root, which is noted as created, is held by it.
    pub(crate) fn make_home(&mut self, home: HomeId, root: NodeId) {
        self.touch(root, 1, 0);
        self.new_homes.push((home, root));
        self.note(|set, gone| gone.homes.extend(set.new_homes.pop().map(|(home, _)| home)));
    }

    /// Notes that a home goes with the commit.
    pub(crate) fn drop_home(&mut self, home: HomeId) {
        self.gone_homes.push(home);
        self.note(|set, _| _ = set.gone_homes.pop());
    }

    /// Notes that this transaction sees a node no more, which has no edges.
    pub(crate) fn delete(&mut self, node: NodeId) {
        if self.deleted.insert(node) {
            self.note(move |set, _| _ = set.deleted.remove(&node));
        }
    }

    /// What this transaction did to edges of nodes, those included that it has made.
    pub(crate) fn nodes(&mut self) -> &FxHashMap<NodeId, Touched> {
        self.settle();
        &self.nodes
    }

    /// What this transaction did to a node's edges.
    pub(crate) fn touched(&mut self, node: NodeId) -> Touched {
        self.nodes().get(&node).copied().unwrap_or_default()
    }

    /// Notes where a node's data is.
    pub(crate) fn move_to(&mut self, node: NodeId, body: Option<NodeId>) {
        let before = self.moved.insert(node, body);
        self.note(move |set, _| restore(&mut set.moved, node, before));
    }

    /// Keeps new data of a node or body, or a copy of a committed node that is going to be changed in part, with no patches yet.
    pub(crate) fn update(&mut self, node: NodeId, bytes: Box<[u8]>, patches: Option<Vec<u8>>) {
        let before = self.updates.insert(node, Update { bytes, patches });
        self.note(move |set, _| restore(&mut set.updates, node, before));
    }

    /// The new data of a node, to be changed in part.
    #[inline]
    pub(crate) fn edit(&mut self, node: NodeId) -> Option<&mut Update> {
        let update = self.updates.get_mut(&node)?;
        if !self.savepoints.is_empty() {
            let before = update.clone();
            self.undo.push(Box::new(move |set, _| _ = set.updates.insert(node, before)));
        }
        Some(update)
    }

    /// Keeps a page of a node with pages of its own, which has this extent.
    pub(crate) fn put_page(&mut self, node: NodeId, extent: Extent, at: u32, page: NewPage) {
        self.set_extent(node, extent, extent);
        let before = self.swap_page(node, at, Some(page));
        self.note(move |set, _| drop(set.swap_page(node, at, before)));
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
            self.note(|set, _| set.is_torn = false);
        }
    }

    fn swap_page(&mut self, node: NodeId, at: u32, page: Option<NewPage>) -> Option<NewPage> {
        let is_in_memory = |page: &Option<NewPage>| usize::from(matches!(page, Some(NewPage::Memory(_))));
        let pages = &mut self.runs.entry(node).or_default().pages;
        self.pages_in_memory += is_in_memory(&page);
        let before = match page {
            Some(page) => pages.insert(at, page),
            None => pages.remove(&at),
        };
        self.pages_in_memory -= is_in_memory(&before);
        before
    }

    /// Gives a node other pages; what was written behind them is forgotten.
    pub(crate) fn set_extent(&mut self, node: NodeId, before: Extent, extent: Extent) {
        let run = self.runs.entry(node).or_default();
        run.extent = extent;
        let behind: Vec<u32> = run.pages.range(extent.pages()..).map(|(at, _)| *at).collect();
        if before != extent {
            self.note(move |set, _| set.runs.entry(node).or_default().extent = before);
        }
        for at in behind {
            let page = self.swap_page(node, at, None);
            self.note(move |set, _| drop(set.swap_page(node, at, page)));
        }
    }

    /// Begins to keep the undo log; how many savepoints there are now, and how long the log is.
    pub(crate) fn savepoint(&mut self) -> (usize, usize) {
        self.savepoints.push(self.undo.len());
        (self.savepoints.len(), self.undo.len())
    }

    /// Forgets all savepoints but the first `kept`; `false` where there is none at this depth. Without any the undo log is not needed.
    pub(crate) fn keep_savepoints(&mut self, (depth, mark): (usize, usize), kept: usize) -> bool {
        let is_known = self.savepoints.get(depth - 1) == Some(&mark);
        if is_known {
            self.savepoints.truncate(kept);
            self.undo.truncate(if kept == 0 { 0 } else { self.undo.len() });
        }
        is_known
    }

    /// Goes back to a place, and returns what was made since.
    pub(crate) fn undo_to(&mut self, mark: usize) -> Undone {
        self.settle();
        let mut gone = Undone::default();
        for undo in self.undo.split_off(mark).into_iter().rev() {
            undo(self, &mut gone);
        }
        // Nobody can be asked for owners in a home that is gone.
        self.fresh.retain(|node| !gone.homes.contains(&node.home()));
        gone
    }
}

/// Takes a node from the beginning of a list; how often it was there.
#[inline]
fn take_all(nodes: &mut &[NodeId], node: NodeId) -> i64 {
    let count = nodes.iter().take_while(|first| **first == node).count();
    *nodes = &nodes[count..];
    count as i64
}

/// What is known of a node's edges.
fn known<'n>(
    nodes: &'n mut FxHashMap<NodeId, Touched>,
    fresh: &mut Vec<NodeId>,
    node: NodeId,
) -> &'n mut Touched {
    nodes.entry(node).or_insert_with(|| {
        fresh.extend(node.home().is_shared().then_some(node));
        Touched::default()
    })
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
