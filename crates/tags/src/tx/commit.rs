//! The commit.
//!
//! 1. Pages that the transaction's nodes have filled go to their place, whole; nothing leads to them yet.
//! 2. The changes are applied in memory, s-node by s-node, each under its partition's lock, and written down.
//! 3. The record goes to the journal. It names the pages of step 1 with their checksums, so one sync is enough for both:
//!    a record that survives a power cut without its pages does not count.

use super::Transaction;
use super::apply::{change_edges, free_nodes, overwrite, take_back};
use super::patch::apply_to_node;
use super::write_set::{Change, NONE, Touched};
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
use crate::partition::{Partition, RemainingEdges};
use crate::reserve::{Blocks, Room};
use crate::space::Run;
use crate::store::Store;
use weft_core::checksum::crc32c;

/// Pages written by one call.
const WRITE_PAGES: usize = 512;
/// The most bytes that an edge takes in a record, with the count and the end of its destination.
const EDGE_ENTRY_BYTES: usize = 64;
/// The most bytes of an entry for an s-node.
const SNODE_ENTRY_BYTES: usize = 16;

/// What of a transaction's new nodes goes where.
#[derive(Default)]
struct NewNodes {
    /// Pages of slabs, with the slots of this transaction.
    filled: Vec<(u32, Slots)>,
    open: Vec<(u32, Slots)>,
    runs: Vec<NodeId>,
    garbage: Vec<NodeId>,
}

/// Where a page was written.
struct Written {
    page: u32,
    block: u64,
    crc: u32,
    slots: Slots,
    /// It is on the medium, or in its cache, already.
    has_arrived: bool,
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
        self.set.tell_apart();
        let nodes = self.sort_nodes();
        let room = self.keep_room(&nodes)?;
        self.check_ending_types()?;
        if self.held.iter().any(|snode| store.pool.erasure.is_of(snode.0)) {
            store.pool.erasure.note_record();
        }
        let (written, writes) = self.write_filled(&nodes)?;
        // From here on a failure leaves memory between two states.
        let mut record = RecordWriter::default();
        self.record_new_homes(&mut record);
        let applied = self.apply(&nodes, &written, &mut record);
        let lsn = applied.and_then(|()| {
            // Before the record is there: a sync that makes it durable waits for them.
            begin_writes(store, writes)?;
            store.journal.append(&record.bytes, &*store.medium)
        });
        match &lsn {
            Ok(lsn) => {
                self.publish_homes(*lsn);
                self.give_up_blocks_but(&nodes.garbage);
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
        let freed = (self.set.nodes_touched() + nodes.garbage.len() + runs.sum::<usize>()) as u64;
        let blocks = Blocks { taken: own, rewritten: own, freed, only_takes: self.set.only_takes() };
        store.admit(bytes, || self.pages_touched(nodes), Some(blocks))
    }

    /// A type that is being deleted must not get an edge behind the look at all there are.
    fn check_ending_types(&self) -> Result<()> {
        let ending = self.store.ending_types.read();
        let is_late = |change: &&Change| change.new != NONE && ending.contains(&change.etype);
        match self.set.changes.iter().filter(|_| !ending.is_empty()).find(is_late) {
            Some(late) => Err(Error::NoSuchEdgeType(late.etype)),
            None => Ok(()),
        }
    }

    /// Writes the pages that the new nodes have filled, or plans to.
    fn write_filled(&self, nodes: &NewNodes) -> Result<(Vec<Vec<Written>>, Vec<PageWrite>)> {
        let store = self.store;
        let (mut written, mut writes) = (Vec::with_capacity(self.held.len()), Vec::new());
        // Of these pages, which are full, only updates of nodes that were there before can change something, and what clears the slots of
        // those that go.
        let is_now = self.changes_pages();
        let mut done = self.held.iter().try_for_each(|snode| {
            let mut of_snode = Vec::new();
            let done = write_pages(store, *snode, &nodes.filled, is_now, &mut of_snode, &mut writes);
            written.push(of_snode);
            done
        });
        // What follows may change, or give up, pages that earlier commits have filled, which new nodes and edges do not: no slot
        // of these pages is free.
        if done.is_ok() && !self.set.only_adds() {
            done = store.settle(&store.journal.writes.of(&self.held));
        }
        match done {
            Ok(()) => Ok((written, writes)),
            Err(error) => {
                self.give_up_written(&written);
                Err(error)
            }
        }
    }

    /// Gives up blocks that were written, or were going to be, and that nothing will lead to.
    fn give_up_written(&self, written: &[Vec<Written>]) {
        // What was written before goes with the next opening.
        self.store.pool.erasure.note_left_over();
        for (snode, written) in self.held.iter().zip(written) {
            written.iter().for_each(|at| self.store.release_block(at.block, snode.0));
        }
    }

    /// Which pages the new nodes have filled. A node without edges is garbage: it was never visible.
    fn sort_nodes(&mut self) -> NewNodes {
        self.set.created.sort_unstable();
        let mut nodes = NewNodes::default();
        let mut led = self.set.led().iter().peekable();
        for of_page in self.set.created.chunk_by(|a, b| a.page() == b.page()) {
            let page = of_page[0].page().unwrap_or(0);
            let desc = self.store.pool.table.describe(page);
            let mut slots = Slots::default();
            for node in of_page {
                let is_garbage = || {
                    let touched = self.set.nodes().get(node).copied().unwrap_or_default();
                    touched.ins == 0 && touched.outs == 0
                };
                if led.next_if_eq(&node).is_none() && is_garbage() {
                    nodes.garbage.push(*node);
                } else if desc.kind != PageKind::Slab {
                    nodes.runs.push(*node);
                } else if let Some(slot) = slot_at(desc.class, node.offset()) {
                    set_slot(&mut slots, slot);
                }
            }
            // Full of committed nodes and of this transaction's: nobody will write it again until one is freed.
            let kept = count_slots(&std::array::from_fn(|word| desc.body[word] | slots[word]));
            if kept == slot_bytes(desc.class).map_or(0, slots_of) && slots != Slots::default() {
                nodes.filled.push((page, slots));
            } else if slots != Slots::default() {
                nodes.open.push((page, slots));
            }
        }
        nodes
    }

    /// The most bytes that the record can have.
    fn record_bound(&self, nodes: &NewNodes) -> usize {
        let made = nodes.runs.iter().flat_map(|node| {
            let head = node.page().unwrap_or(0);
            (head..head + self.run_pages(*node) as u32)
                .map(|page| (page, self.store.pool.table.describe(page).block))
        });
        let written = self.set.runs.iter().flat_map(|(node, run)| {
            let head = node.page().unwrap_or(0);
            run.pages.iter().map(move |(at, page)| (head + at, page.block()))
        });
        let mut next = (0, 0);
        let pages = made.chain(written).map(|(page, block)| {
            let follows = std::mem::replace(&mut next, (page + 1, block + 1)) == (page, block);
            // One in the midst of a new node parts the pages on both sides of it.
            if follows { NEXT_PAGE_BYTES } else { 2 * PAGE_ENTRY_BYTES }
        });
        let runs: usize = pages.sum();
        let updates: usize = self.set.updates.values().map(|update| update.journal_bytes() + 32).sum();
        HEADER_BYTES
            + nodes.filled.len() * PAGE_ENTRY_BYTES
            + runs
            + nodes.open.iter().map(|(_, slots)| PAGE_BYTES + 16 * count_slots(slots)).sum::<usize>()
            + updates
            + (self.set.changes.len() + self.set.nodes_touched()) * EDGE_ENTRY_BYTES
            + (self.set.new_homes.len() + self.set.gone_homes.len()) * SNODE_ENTRY_BYTES
    }

    fn run_pages(&self, node: NodeId) -> usize {
        node.page().map_or(0, |page| self.store.pool.table.describe(page).body[0] as usize)
    }

    /// The most pages that the changes touch: applying them must not fail half-way for want of room in the cache.
    fn pages_touched(&self, new: &NewNodes) -> usize {
        let store = self.store;
        // A new s-node's first edges and counts make their tables.
        let tables = store.numbers.tables.lock().used() + 2 * self.set.new_homes.len() as u64;
        let changes = (self.set.changes.len() + self.set.nodes_touched()) as u64;
        // Each change may touch a page of its own, but no more pages than there are. Now and then one makes a group of pages grow, which
        // changes those beside its own and adds some; what is counted of nodes, which mostly have no page there, makes up for more.
        let updated = self.set.updates.len() as u64;
        // Pages that a checkpoint has written since they were filled keep their frames while they are written, some at a time.
        let is_clean = |page: u32| !store.pool.table.load(page).is_dirty();
        let clean = new.filled.iter().filter(|(page, _)| is_clean(*page)).count().min(pages_at_once(store));
        (changes.min(tables) + self.set.changes.len() as u64 / 16 + updated + 16) as usize
            + clean
            + self.pages_cleared(new)
    }

    /// Whether the commit may change pages that it has filled.
    fn changes_pages(&self) -> bool {
        let erases = |snode: &HomeId| self.store.pool.erasure.is_of(snode.0);
        !self.set.updates.is_empty() || self.held.iter().any(erases)
    }

    /// The most pages in which slots are cleared, or what an update leaves of longer data, for s-nodes whose bytes are erased.
    fn pages_cleared(&self, new: &NewNodes) -> usize {
        let erases = |node: &&NodeId| self.store.pool.erasure.is_of(node.home().0);
        let pages = self.store.numbers.data.lock().used();
        let freed = self.set.nodes().keys().chain(self.set.lost()).chain(&new.garbage);
        let freed = freed.filter(erases).count();
        freed.min(pages as usize) + self.set.updates.keys().filter(erases).count()
    }

    fn apply(&mut self, nodes: &NewNodes, written: &[Vec<Written>], record: &mut RecordWriter) -> Result<()> {
        let store = self.store;
        let snodes = self.held.clone();
        let partitions = snodes.iter().map(|snode| store.partition(*snode)).collect::<Result<Vec<_>>>()?;
        for ((snode, partition), written) in snodes.iter().zip(&partitions).zip(written) {
            let mut partition = partition.write();
            self.apply_nodes(&mut partition, nodes, written, record)?;
            let changes = self.set.changes.iter().map(|change| &**change);
            change_edges(store, &mut partition, changes, |change| record.edge(change))?;
            if let [_] = snodes.as_slice() {
                // One s-node: readers see all of it at once.
                self.apply_counts(&mut partition, *snode, record)?;
            }
        }
        if snodes.len() > 1 {
            for (snode, partition) in snodes.iter().zip(&partitions) {
                self.apply_counts(&mut partition.write(), *snode, record)?;
            }
        }
        self.apply_gone_homes(record)
    }

    fn apply_nodes(
        &mut self,
        partition: &mut Partition,
        nodes: &NewNodes,
        written: &[Written],
        record: &mut RecordWriter,
    ) -> Result<()> {
        let store = self.store;
        let snode = partition.snode;
        for garbage in nodes.garbage.iter().filter(|node| node.home() == snode) {
            take_back(store, partition, *garbage)?;
        }
        let mut touched = Vec::new();
        for at in written {
            let before = store.pool.table.describe(at.page).block;
            store.release_block(before, snode.0);
            store.pool.place(at.page, at.block, at.crc);
            if at.has_arrived {
                store.pool.clean(at.page);
            }
            let desc = commit_slots(store, partition, at.page, &at.slots);
            record.page(at.page, &desc);
            touched.push(at.page);
        }
        let is_kept = |node: &NodeId| node.home() == snode && !nodes.garbage.contains(node);
        for (node, run) in self.set.runs.iter().filter(|(node, _)| is_kept(node)) {
            // Those of a node that is new are recorded with the others that it has.
            let is_new = nodes.runs.contains(node);
            super::runs::apply_run(store, *node, run, |page, desc| {
                if !is_new {
                    record.page(page, desc);
                }
            })?;
        }
        for node in nodes.runs.iter().filter(|node| node.home() == snode) {
            let Some(head) = node.page() else { continue };
            partition.contents.nodes += 1;
            for page in head..head + self.run_pages(*node) as u32 {
                let Some(slot) = store.pool.table.desc(page) else { continue };
                if page == head {
                    store.pool.versions.note_desc(page, slot);
                    slot.lock().body[1] = 1;
                }
                let desc = slot.lock();
                record.page(page, &desc);
                touched.push(page);
            }
        }
        for (page, slots) in &nodes.open {
            let desc = store.pool.table.describe(*page);
            if desc.snode != snode.0 {
                continue;
            }
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
        snode: HomeId,
        record: &mut RecordWriter,
    ) -> Result<()> {
        let store = self.store;
        let is_plain = |touched: &Touched| {
            let keeps =
                if touched.created { touched.ins == 1 } else { touched.ins == 0 && touched.outs >= 0 };
            touched.is_garbage() || keeps
        };
        let others = self.set.nodes().iter().map(|(node, touched)| (*node, *touched));
        let mine = |(node, touched): &(NodeId, Touched)| node.home() == snode && !is_plain(touched);
        let mut others: Vec<_> = others.filter(mine).collect();
        // Not in an order that transactions before this one have a part in: their maps are used again.
        others.sort_unstable_by_key(|(node, _)| *node);
        let lost = self.set.lost();
        if others.is_empty() && lost.iter().all(|node| node.home() != snode) {
            // An s-node of which nothing changes is not taken for one that has.
            return Ok(());
        }
        let nth = |at: usize| match lost.get(at) {
            Some(node) => Some((*node, Touched { created: false, ins: -1, outs: 0 })),
            None => others.get(at - lost.len()).copied(),
        };
        let mut gone = Vec::new();
        let mut bodies = Vec::new();
        let mut next = 0;
        store.write(partition, |pages, contents| {
            while let Some((node, touched)) = nth(next) {
                if node.home() != snode {
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
                    contents.set_count(pages, &store.numbers.tables, node, kept)?;
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

/// Writes the filled pages of one s-node to new blocks that follow each other, or plans to, unless it is to be done now.
fn write_pages(
    store: &Store,
    snode: HomeId,
    filled: &[(u32, Slots)],
    is_now: bool,
    written: &mut Vec<Written>,
    writes: &mut Vec<PageWrite>,
) -> Result<()> {
    let pages: Vec<_> =
        filled.iter().filter(|(page, _)| store.pool.table.describe(*page).snode == snode.0).collect();
    if pages.is_empty() {
        return Ok(());
    }
    // All pages of a write are in the cache at once.
    let most = pages_at_once(store);
    let mut rest = pages.as_slice();
    while !rest.is_empty() {
        let run = store.space.lock().take(rest.len().min(most) as u64, &*store.medium)?;
        let (now, later) = rest.split_at(run.blocks as usize);
        let planned = write_run(store, snode, now, run, is_now);
        let blocks = run.block..run.block + run.blocks;
        let (now, write) =
            planned.inspect_err(|_| blocks.for_each(|block| store.release_block(block, snode.0)))?;
        written.extend(now);
        writes.extend(write);
        rest = later;
    }
    Ok(())
}

/// Writes pages to a run of blocks, or says what is to be written there.
fn write_run(
    store: &Store,
    snode: HomeId,
    filled: &[&(u32, Slots)],
    run: Run,
    is_now: bool,
) -> Result<(Vec<Written>, Option<PageWrite>)> {
    // Those that a checkpoint has written since they were filled: clean, so that nothing would keep their frames.
    let mut clean = Vec::new();
    // Readers go on meanwhile, and no other transaction writes this s-node.
    let (mut written, addresses) = store.read(snode, |reader, _| {
        let mut written: Vec<Written> = Vec::with_capacity(filled.len());
        let (mut addresses, mut missing) = (Vec::with_capacity(filled.len()), Vec::new());
        for ((page, slots), block) in filled.iter().copied().zip(run.block..) {
            match reader.keep(*page) {
                Ok((bytes, was_clean)) => {
                    clean.extend(was_clean.then_some(*page));
                    addresses.push(std::ptr::from_ref(bytes));
                    let (page, crc, slots) = (*page, crc32c(bytes), *slots);
                    written.push(Written { page, block, crc, slots, has_arrived: false });
                }
                Err(StepError::Miss(page)) => missing.push(page),
                Err(halt) => return Err(halt),
            }
        }
        StepError::unless_empty(missing)?;
        Ok((written, addresses))
    })?;
    let (numbers, from) = (written.iter().map(|at| at.page).collect(), PageAddresses(addresses));
    // SAFETY: the frames stay with the pages until these are clean, and mapped as long as the store, which waits for its writes when it
    // is dropped.
    let write = unsafe { PageWrite::new(snode, store.pool.tag_of(snode.0), run.block, numbers, from) };
    if !is_now && clean.is_empty() {
        return Ok((written, Some(write)));
    }
    write.settle(&*store.medium, |_| ())?;
    written.iter_mut().for_each(|at| at.has_arrived = true);
    // There may be more of them than the cache has room for, so it cannot keep them until the commit is over.
    clean.iter().for_each(|page| store.pool.clean(*page));
    Ok((written, None))
}
