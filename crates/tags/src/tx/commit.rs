//! The commit.
//!
//! 1. Pages that the transaction's nodes have filled go to their place, whole; nothing leads to them yet.
//! 2. The changes are applied in memory, under the locks of the partitions of all its homes, and written down.
//! 3. The record goes to the journal. It names the pages of step 1 with their checksums, so one sync is enough for both:
//!    a record that survives a power cut without its pages does not count.

use super::Transaction;
use super::apply::{change_edges, free_nodes, overwrite, release};
use super::patch::apply_to_node;
use super::runs::{NewPage, apply_run};
use super::write_set::{Change, NONE, Summed};
use crate::edges::EdgeChange;
use crate::error::{Error, Result, StepError};
use crate::ids::{EdgeType, HomeId, InfoForm, NodeId, PAGE_BYTES};
use crate::journal::log::HEADER_BYTES;
use crate::journal::record::{NEXT_PAGE_BYTES, PAGE_ENTRY_BYTES, RecordWriter};
use crate::journal::writes::PageWrite;
use crate::layout::node::{slot_at, slot_bytes, slots_of};
use crate::page_store::PageAddresses;
use crate::pages::access::Pages;
use crate::pages::desc::{Desc, PageKind, Slots, count_slots, set_slot, slot_is_set};
use crate::partition::{NodeScope, Partition, RemainingEdges};
use crate::reserve::{Blocks, Room};
use crate::space::Run;
use crate::store::Store;
use rustc_hash::FxHashSet;
use weft_core::checksum::crc32c;

/// Nodes that may go, at most, for which it is looked which pages they are in; of more, all writes are waited for.
const GOING_MAX: usize = 1024;
/// Nodes that lose their edge for which it is worth a look at all sources of edges.
const LEAVES_MIN: usize = 16;
/// Pages written by one call.
const WRITE_PAGES: usize = 512;
/// Filled pages that go to the journal where a sync follows, at most: more are written once.
const JOURNAL_PAGES_MAX: usize = 32;
/// The most bytes that an edge takes in a record, with the count and the end of its destination.
const EDGE_ENTRY_BYTES: usize = 64;
/// The most bytes of an entry for an s-node.
const SNODE_ENTRY_BYTES: usize = 16;

/// A page of a slab, with the slots of this transaction.
struct SlabPage {
    home: HomeId,
    page: u32,
    slots: Slots,
}

/// What of a transaction's new nodes goes where, in the order of their homes.
#[derive(Default)]
struct NewNodes {
    filled: Vec<SlabPage>,
    open: Vec<SlabPage>,
    runs: Vec<NodeId>,
    /// Pages of nodes with pages of their own that the record names: the node, the place of the page in it, and its block.
    run_pages: Vec<(NodeId, u32, u64)>,
    edges: Summed,
}

impl<'s> Transaction<'s> {
    pub(super) fn commit_changes(&mut self) -> Result<u64> {
        let store = self.store;
        store.check_writable()?;
        if self.set.is_torn {
            return Err(Error::Torn);
        }
        self.give_up_bodies_of_garbage()?;
        self.disown_garbage()?;
        self.spill()?;
        let nodes = self.sort_nodes();
        let room = self.keep_room(&nodes)?;
        self.check_ending_types()?;
        if self.held.iter().any(|snode| store.pool.erasure.is_of(snode.0)) {
            store.pool.erasure.note_record();
        }
        let writes = self.write_filled(&nodes)?;
        self.settle_changed(&nodes)?;
        // From here on a failure leaves memory between two states.
        let mut record = RecordWriter::default();
        // The homes that are new come before anything of them.
        self.set.new_homes.iter().for_each(|(_, root)| record.snode(*root));
        let applied = self.apply(&nodes, &mut record);
        let lsn = applied.and_then(|()| {
            // Before the record is there: a sync that makes it durable waits for them.
            begin_writes(store, writes)?;
            store.journal.append(&record.bytes, &*store.medium)
        });
        match &lsn {
            Ok(lsn) => {
                self.publish_homes(*lsn);
                self.give_up_blocks_but(&nodes.edges.garbage);
            }
            Err(error) => {
                store.journal.stop(error);
                // Its nodes are not taken back: they may be committed in memory, and their frames are read by writes under way.
                self.ended = true;
            }
        }
        drop(room);
        lsn
    }

    /// Keeps room for all that the commit does, and checkpoints away.
    fn keep_room(&self, nodes: &NewNodes) -> Result<Room<'s>> {
        let store = self.store;
        let bytes = self.record_bound(nodes);
        if bytes > store.journal.capacity() {
            return Err(Error::too_large("a transaction", bytes, store.journal.capacity()));
        }
        // With the pages that it writes itself, and those that lose nodes.
        let own = (nodes.filled.len() + nodes.runs.len()) as u64;
        let runs = self.set.runs.iter().map(|(node, run)| run.pages.len() + self.run_pages(*node));
        let freed = (nodes.edges.touched + nodes.edges.garbage.len() + runs.sum::<usize>()) as u64;
        let blocks = Blocks { taken: own, rewritten: own, freed, only_takes: self.set.only_takes() };
        store.admit(bytes, || self.pages_touched(nodes), Some(blocks))
    }

    /// A type that is being deleted must not get an edge behind the look at all there are.
    fn check_ending_types(&self) -> Result<()> {
        let ending = self.store.ending_types.read();
        let is_late = |change: &&Change| change.new != NONE && ending.contains(&change.etype);
        let late = self.set.changes.iter().filter(|_| !ending.is_empty()).find(is_late);
        late.map_or(Ok(()), |late| Err(Error::NoSuchEdgeType(late.etype)))
    }

    /// Writes the pages that the new nodes have filled, or plans to. Where this fails, they still differ from what their blocks hold, so the
    /// next checkpoint writes them.
    fn write_filled(&self, nodes: &NewNodes) -> Result<Vec<PageWrite>> {
        let (store, mut writes) = (self.store, Vec::new());
        // Of these pages, which are full, only updates of nodes that were there before can change something, and what clears the slots of
        // those that go where their bytes are erased.
        let (erases, updated) = (self.erases(), pages_of(self.set.updates.keys()));
        for of_home in nodes.filled.chunk_by(|one, next| one.home == next.home) {
            let is_now = erases || of_home.iter().any(|filled| updated.contains(&filled.page));
            write_pages(store, of_home, is_now, &mut writes)?;
        }
        Ok(writes)
    }

    /// Whether it changes an s-node whose bytes are erased.
    fn erases(&self) -> bool {
        self.held.iter().any(|home| self.store.pool.erasure.is_of(home.0))
    }

    /// Waits for writes of pages that earlier commits have filled and of which this one changes or gives up slots. New nodes and edges are
    /// none of that: no slot of these pages is free.
    fn settle_changed(&mut self, nodes: &NewNodes) -> Result<()> {
        let (store, Summed { counted, garbage, .. }) = (self.store, &nodes.edges);
        if self.set.only_adds() || !store.journal.writes.has_any() {
            return Ok(());
        }
        if self.erases() || !self.set.gone_homes.is_empty() || counted.len() > GOING_MAX {
            return store.settle(&store.journal.writes.of(&self.held, |_| true));
        }
        let mut bodies = Vec::new();
        for (node, _) in counted {
            bodies.extend(self.body_of(*node)?);
        }
        // Pages that nodes have of their own are in no frame, and are never written again where they are.
        let going = counted.iter().map(|(node, _)| node).chain(garbage).chain(&bodies);
        let mut changed = pages_of(self.set.updates.keys());
        for first in going.filter_map(|node| node.page()) {
            if store.pool.table.describe(first).kind == PageKind::Slab {
                changed.insert(first);
            }
        }
        store.settle(&store.journal.writes.of(&self.held, |page| changed.contains(&page)))
    }

    /// Which pages the new nodes have filled.
    fn sort_nodes(&mut self) -> NewNodes {
        let mut nodes = NewNodes { edges: self.set.sum_up(), ..NewNodes::default() };
        self.set.created.sort_unstable();
        let mut next_garbage = nodes.edges.garbage.iter().peekable();
        for of_page in self.set.created.chunk_by(|a, b| a.page() == b.page()) {
            let page = of_page[0].page().unwrap_or(0);
            let desc = self.store.pool.table.describe(page);
            let mut slots = Slots::default();
            for node in of_page {
                if next_garbage.next_if_eq(&node).is_some() {
                    continue;
                }
                if desc.kind != PageKind::Slab {
                    nodes.runs.push(*node);
                } else if let Some(slot) = slot_at(desc.class, node.offset()) {
                    set_slot(&mut slots, slot);
                }
            }
            if slots == Slots::default() {
                continue;
            }
            // Full of committed nodes and of this transaction's: nobody will write it again until one is freed.
            let kept = count_slots(&std::array::from_fn(|word| desc.body[word] | slots[word]));
            let is_full = kept == slot_bytes(desc.class).map_or(0, slots_of);
            let pages = if is_full { &mut nodes.filled } else { &mut nodes.open };
            pages.push(SlabPage { home: HomeId(desc.snode), page, slots });
        }
        // Flash wears by what is written twice, and has no blocks whose first write costs more.
        if self.by_journal && nodes.filled.len() <= JOURNAL_PAGES_MAX && self.store.medium.overwrites() {
            nodes.open.append(&mut nodes.filled);
        }
        nodes.run_pages = self.recorded_pages(&nodes.runs, &nodes.edges.garbage);
        nodes
    }

    /// The pages of nodes with pages of their own that the record names: all of new nodes, of others those that were written.
    fn recorded_pages(&self, new: &[NodeId], garbage: &[NodeId]) -> Vec<(NodeId, u32, u64)> {
        let table = &self.store.pool.table;
        let recorded = |node: NodeId, at: u32| {
            let written = self.set.runs.get(&node).and_then(|run| run.pages.get(&at));
            let before = || table.describe(node.page().unwrap_or(0) + at).block;
            (node, at, written.map_or_else(before, NewPage::block))
        };
        let pages_of = |node: &NodeId| match self.set.runs.get(node) {
            Some(run) => run.extent.pages(),
            None => self.run_pages(*node) as u32,
        };
        let made = new.iter().flat_map(|node| (0..pages_of(node)).map(|at| recorded(*node, at)));
        let is_known = |node: &NodeId| [new, garbage].iter().all(|nodes| nodes.binary_search(node).is_err());
        let changed = self.set.runs.iter().filter(|(node, _)| is_known(node));
        let written = changed.flat_map(|(node, run)| run.pages.keys().map(|at| recorded(*node, *at)));
        made.chain(written).collect()
    }

    /// The most bytes that the record can have.
    fn record_bound(&self, nodes: &NewNodes) -> usize {
        let mut last = None;
        let pages = nodes.run_pages.iter().map(|(node, at, block)| {
            let follows = last.replace((*node, at + 1, block + 1)) == Some((*node, *at, *block));
            if follows { NEXT_PAGE_BYTES } else { PAGE_ENTRY_BYTES }
        });
        let updates: usize = self.set.updates.values().map(|update| update.journal_bytes() + 32).sum();
        HEADER_BYTES
            + nodes.filled.len() * PAGE_ENTRY_BYTES
            + pages.sum::<usize>()
            + nodes.open.iter().map(|open| PAGE_BYTES + 16 * count_slots(&open.slots)).sum::<usize>()
            + updates
            + (self.set.changes.len() + nodes.edges.touched) * EDGE_ENTRY_BYTES
            + (self.set.new_homes.len() + self.set.gone_homes.len()) * SNODE_ENTRY_BYTES
    }

    fn run_pages(&self, node: NodeId) -> usize {
        node.page().map_or(0, |page| self.store.pool.table.describe(page).body[0] as usize)
    }

    /// The most pages that the changes touch: applying them must not fail half-way for want of room in the cache.
    fn pages_touched(&self, new: &NewNodes) -> usize {
        let store = self.store;
        // A new s-node's first edges and counts make their tables.
        let tables = store.pool.numbers.tables.lock().used() + 2 * self.set.new_homes.len() as u64;
        let changes = (self.set.changes.len() + new.edges.touched) as u64;
        // Each change may touch a page of its own, but no more pages than there are. Now and then one makes a group of pages grow, which
        // changes those beside its own and adds some; what is counted of nodes, which mostly have no page there, makes up for more.
        let updated = self.set.updates.len() as u64;
        // Pages that a checkpoint has written since they were filled keep their frames while they are written, some at a time.
        let is_clean = |filled: &&SlabPage| !store.pool.table.load(filled.page).is_dirty();
        let clean = new.filled.iter().filter(is_clean).count().min(pages_at_once(store));
        (changes.min(tables) + self.set.changes.len() as u64 / 16 + updated + 16) as usize
            + clean
            + self.pages_cleared(new)
    }

    /// The most pages in which slots are cleared, or what an update leaves of longer data, for s-nodes whose bytes are erased.
    fn pages_cleared(&self, new: &NewNodes) -> usize {
        let erases = |node: &&NodeId| self.store.pool.erasure.is_of(node.home().0);
        let pages = self.store.pool.numbers.data.lock().used();
        let Summed { counted, garbage, .. } = &new.edges;
        let freed = counted.iter().map(|(node, _)| node).chain(garbage).filter(erases).count();
        freed.min(pages as usize) + self.set.updates.keys().filter(erases).count()
    }

    fn apply(&mut self, nodes: &NewNodes, record: &mut RecordWriter) -> Result<()> {
        let store = self.store;
        let partitions = self.held.iter().map(|home| store.partition(*home)).collect::<Result<Vec<_>>>()?;
        // Readers see all of it at once.
        let mut alone: Vec<_> = partitions.iter().map(|partition| partition.write()).collect();
        for partition in &mut alone {
            self.apply_nodes(partition, nodes, record)?;
            let changes = self.set.changes.iter().map(|change| &**change);
            change_edges(store, partition, changes, |change| record.edge(change))?;
        }
        for partition in &mut alone {
            self.apply_counts(partition, nodes, record)?;
        }
        drop(alone);
        self.apply_gone_homes(record)
    }

    fn apply_nodes(
        &mut self,
        partition: &mut Partition,
        nodes: &NewNodes,
        record: &mut RecordWriter,
    ) -> Result<()> {
        let store = self.store;
        let snode = partition.snode;
        let is_mine = |page: &&SlabPage| page.home == snode;
        for garbage in nodes.edges.garbage.iter().filter(|node| node.home() == snode) {
            release(store, partition, *garbage, NodeScope::Reserved)?;
        }
        let mut touched = Vec::new();
        for SlabPage { page, slots, .. } in nodes.filled.iter().filter(is_mine) {
            record.page(*page, &commit_slots(store, partition, *page, slots));
            touched.push(*page);
        }
        let is_kept = |node: &NodeId| node.home() == snode && !nodes.edges.garbage.contains(node);
        for (node, run) in self.set.runs.iter().filter(|(node, _)| is_kept(node)) {
            apply_run(store, *node, run)?;
        }
        for head in nodes.runs.iter().filter(|node| node.home() == snode).filter_map(|node| node.page()) {
            let Some(slot) = store.pool.table.desc(head) else { continue };
            store.pool.versions.note_desc(head, slot);
            slot.lock().body[1] = 1;
            partition.contents.nodes += 1;
        }
        for (node, at, _) in nodes.run_pages.iter().filter(|(node, ..)| node.home() == snode) {
            let page = node.page().unwrap_or(0) + at;
            record.page(page, &store.pool.table.describe(page));
            touched.push(page);
        }
        for SlabPage { page, slots, .. } in nodes.open.iter().filter(is_mine) {
            let desc = store.pool.table.describe(*page);
            let start = record.bytes.len();
            store.write(partition, |pages, _| {
                record.bytes.truncate(start);
                record_slots(record, *page, &desc, slots, pages.bytes(*page)?);
                Ok(())
            })?;
            commit_slots(store, partition, *page, slots);
            touched.push(*page);
        }
        let mut leaves = store.leaves.lock();
        touched.into_iter().for_each(|page| leaves.touch(page));
        drop(leaves);
        let mut updates: Vec<_> = self.set.updates.iter().filter(|(node, _)| is_kept(node)).collect();
        updates.sort_unstable_by_key(|(node, _)| **node);
        for (node, update) in updates {
            if let Some(patches) = &update.patches {
                apply_to_node(store, partition, *node, patches)?;
                record.patches(*node, patches);
            } else {
                overwrite(store, partition, *node, &update.bytes)?;
                record.bytes(*node, &update.bytes);
            }
        }
        Ok(())
    }

    /// Keeps the counts of in-edges, and frees the nodes that have lost their last edge.
    fn apply_counts(
        &mut self,
        partition: &mut Partition,
        nodes: &NewNodes,
        record: &mut RecordWriter,
    ) -> Result<()> {
        let store = self.store;
        let snode = partition.snode;
        let counted = &nodes.edges.counted;
        let behind = &counted[counted.partition_point(|(node, _)| node.home() < snode)..];
        let mine = &behind[..behind.partition_point(|(node, _)| node.home() == snode)];
        if mine.is_empty() {
            // An s-node of which nothing changes is not taken for one that has.
            return Ok(());
        }
        let mut gone = Vec::with_capacity(mine.len());
        let mut bodies = Vec::new();
        let mut next = 0;
        store.write(partition, |pages, contents| {
            let few = if mine.len() < LEAVES_MIN { None } else { contents.few_sources(pages)? };
            while let Some((node, touched)) = mine.get(next).copied() {
                if (touched.created, touched.ins) == (false, -1)
                    && few.as_ref().is_some_and(|few| !few.contains(&node.0))
                {
                    gone.push(node);
                    next += 1;
                    continue;
                }
                let before = if touched.created { 0 } else { contents.count_of(pages, node)? };
                let count = before.checked_add_signed(touched.ins).ok_or_else(|| {
                    Error::damaged(format!("node {node}: {} in-edges and {before} known", -touched.ins))
                })?;
                let left = if count == 0 { contents.left_of(pages, node)? } else { RemainingEdges::Edges };
                let ends = left != RemainingEdges::Edges;
                // What is kept of a count goes with the node: an id that is given out again begins with one in-edge.
                let kept = if ends { 1 } else { count };
                let stored = if touched.created { 1 } else { before };
                if kept != stored {
                    contents.set_count(pages, node, kept)?;
                    record.count(node, kept);
                }
                if let RemainingEdges::Body(body) = left {
                    bodies.push((node, body));
                }
                if ends {
                    gone.push(node);
                }
                next += 1;
            }
            Ok(())
        })?;
        for (node, body) in bodies {
            let (etype, form) = (EdgeType::BODY, InfoForm::Number);
            let change = EdgeChange { source: node, etype, form, key: 0, old: body, new: NONE };
            change_edges(store, partition, std::iter::once(&change), |change| record.edge(change))?;
            gone.push(body);
        }
        // In the order of their places: pages and leaves are touched one after the other, and differences are short.
        gone.sort_unstable();
        gone.iter().for_each(|node| record.free(*node));
        free_nodes(store, partition, &gone)
    }
}

/// The pages in which nodes are.
fn pages_of<'n>(nodes: impl Iterator<Item = &'n NodeId>) -> FxHashSet<u32> {
    nodes.filter_map(|node| node.page()).collect()
}

/// Begins writes of pages that a commit has filled, or lets them be gathered.
fn begin_writes(store: &Store, writes: Vec<PageWrite>) -> Result<()> {
    for write in writes {
        if write.pages().iter().all(|page| is_full(store, *page)) {
            store.journal.writes.gather(write, store.pool.capacity(), &*store.medium)?;
        } else {
            // Slots that were freed may be given out as soon as this commit has ended.
            write.settle(&*store.medium, |page| store.pool.clean(page))?;
        }
    }
    store.settle(&store.journal.writes.oldest(store.pool.capacity() / 8))
}

/// Whether no slot of a page can be given out.
fn is_full(store: &Store, page: u32) -> bool {
    let desc = store.pool.table.describe(page);
    slot_bytes(desc.class).is_some_and(|bytes| count_slots(&desc.taken()) == slots_of(bytes))
}

/// Makes slots committed, and returns the descriptor.
fn commit_slots(store: &Store, partition: &mut Partition, page: u32, slots: &Slots) -> Desc {
    partition.contents.nodes += count_slots(slots) as u64;
    let Some(slot) = store.pool.table.desc(page) else { return Desc::default() };
    store.pool.versions.note_desc(page, slot);
    let mut desc = slot.lock();
    desc.commit(slots);
    desc.clone()
}

/// Writes the slots that are set into the record, those that follow each other together.
fn record_slots(record: &mut RecordWriter, page: u32, desc: &Desc, slots: &Slots, bytes: &[u8; PAGE_BYTES]) {
    let size = slot_bytes(desc.class).unwrap_or(PAGE_BYTES);
    let count = slots_of(size);
    let mut first = 0;
    while first < count {
        if !slot_is_set(slots, first) {
            first += 1;
            continue;
        }
        let end = (first..count).find(|slot| !slot_is_set(slots, *slot)).unwrap_or(count);
        record.slots(page, HomeId(desc.snode), desc.class, first as u8, &bytes[first * size..end * size]);
        first = end;
    }
}

/// The most pages of one write of filled pages.
fn pages_at_once(store: &Store) -> usize {
    WRITE_PAGES.min(store.pool.capacity() / 16).max(1)
}

/// Writes the filled pages of one home to new blocks that follow each other, or plans to, unless it is to be done now.
fn write_pages(store: &Store, filled: &[SlabPage], is_now: bool, writes: &mut Vec<PageWrite>) -> Result<()> {
    // All pages of a write are in the cache at once.
    let most = pages_at_once(store);
    let mut rest = filled;
    while !rest.is_empty() {
        let run = store.space.lock().take(rest.len().min(most) as u64, &*store.medium)?;
        let (now, later) = rest.split_at(run.blocks as usize);
        writes.extend(write_run(store, now, run, is_now)?);
        rest = later;
    }
    Ok(())
}

/// Gives pages a run of blocks, and writes them there, or says what is to be written. Until that has arrived they differ from the medium.
fn write_run(store: &Store, filled: &[SlabPage], run: Run, is_now: bool) -> Result<Option<PageWrite>> {
    let home = filled[0].home;
    // Those that a checkpoint has written since they were filled: nothing would keep their frames.
    let mut were_clean = false;
    // Readers go on meanwhile, and no other transaction writes this s-node.
    let read = store.read(home, |reader, _| {
        let (mut crcs, mut addresses) = (Vec::with_capacity(filled.len()), Vec::with_capacity(filled.len()));
        let mut missing = Vec::new();
        for filled in filled {
            match reader.keep(filled.page) {
                Ok((bytes, was_clean)) => {
                    were_clean |= was_clean;
                    addresses.push(std::ptr::from_ref(bytes));
                    crcs.push(crc32c(bytes));
                }
                Err(StepError::Miss(page)) => missing.push(page),
                Err(halt) => return Err(halt),
            }
        }
        StepError::unless_empty(missing)?;
        Ok((crcs, PageAddresses(addresses)))
    });
    let (crcs, from) = read.inspect_err(|_| store.space.lock().put_back(run))?;
    for ((filled, crc), block) in filled.iter().zip(crcs).zip(run.block..) {
        store.release_block(store.pool.table.describe(filled.page).block, home.0);
        store.pool.place(filled.page, block, crc);
        store.leaves.lock().touch(filled.page);
    }
    let pages = filled.iter().map(|filled| filled.page).collect();
    // SAFETY: the frames stay with the pages until these are clean, and mapped as long as the store, which waits for its writes when it
    // is dropped.
    let write = unsafe { PageWrite::new(home, store.pool.tag_of(home.0), run.block, pages, from) };
    // There may be more that were clean than the cache has room for, so it cannot keep them until the commit is over.
    if !is_now && !were_clean {
        return Ok(Some(write));
    }
    write.settle(&*store.medium, |page| store.pool.clean(page))?;
    Ok(None)
}
