//! Replay of the journal: each entry by the same functions that a commit uses.

use crate::edges::EdgeChange;
use crate::error::{Error, Result};
use crate::ids::{DATA_PAGES_MAX, EdgeType, HomeId, InfoForm, NodeId, PAGE_BYTES};
use crate::journal::record::{Entry, RecordReader};
use crate::layout::catalog::{Guests, HomeEntry};
use crate::layout::node::{slot_bytes, slots_of};
use crate::page_store::PageStore;
use crate::pages::desc::{Desc, PageKind};
use crate::partition::run_numbers;
use crate::space::{Run, in_runs};
use crate::store::Store;
use crate::tx::apply;
use crate::tx::write_set::NONE;
use weft_core::checksum::crc32c;
use weft_sys::AlignedBuf;

/// Edges that are changed under one hold of their s-node.
const EDGES_MAX: usize = 64;
/// Pages that are read together to be checked.
const READ_PAGES: usize = 64;

/// The blocks of the pages that a record speaks of, with their checksums.
fn pages_of(entries: &[u8]) -> Result<Vec<(u64, u32)>> {
    let (mut reader, mut pages) = (RecordReader::new(entries), Vec::new());
    while let Some(entry) = reader.next()? {
        if let Entry::Page { desc, .. } = entry {
            pages.push((desc.block, desc.crc));
        }
    }
    Ok(pages)
}

/// Whether all pages that a record speaks of are on the medium.
pub(crate) fn is_whole(medium: &dyn PageStore, entries: &[u8]) -> Result<bool> {
    let pages = pages_of(entries)?;
    if pages.iter().any(|(block, _)| *block >= medium.blocks()) {
        return Ok(false);
    }
    let mut raw = AlignedBuf::zeroed(PAGE_BYTES * pages.len().min(READ_PAGES));
    // A commit has written its pages one behind the other.
    for group in in_runs(&pages, READ_PAGES, |(block, _)| *block) {
        let block = group[0].0;
        let raw = &mut raw[..group.len() * PAGE_BYTES];
        medium.read(block, raw).map_err(Error::io("read pages", block))?;
        let mut found = raw.chunks_exact(PAGE_BYTES).zip(group);
        if !found.all(|(page, (_, crc))| crc32c(page) == *crc) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes the blocks that a record's pages are in, before anything is written: none of them may be given out for what
/// the replay writes back before it comes to the record.
pub(crate) fn claim_blocks(store: &Store, entries: &[u8]) -> Result<()> {
    let mut space = store.space.lock();
    let mut pages = pages_of(entries)?.into_iter();
    pages.try_for_each(|(block, _)| space.claim(Run { block, blocks: 1 }, "page in the journal"))
}

/// Applies a record; edges of an s-node that follow each other together.
pub(crate) fn apply(store: &Store, entries: &[u8]) -> Result<()> {
    // Fewer than what the cache is kept free for.
    let most = EDGES_MAX.min(store.pool.capacity() / 16).max(1);
    let (mut reader, mut edges) = (RecordReader::new(entries), Vec::<EdgeChange>::new());
    loop {
        let entry = reader.next()?;
        if let Some(Entry::Edge(edge)) = entry
            && edges.len() < most
            && edges.first().is_none_or(|first| first.source.home() == edge.source.home())
        {
            edges.push(edge);
            continue;
        }
        apply_edges(store, &edges)?;
        edges.clear();
        match entry {
            Some(Entry::Edge(edge)) => edges.push(edge),
            Some(entry) => {
                keep_room(store)?;
                apply_entry(store, &entry)?;
            }
            None => break,
        }
    }
    store.pool.numbers.settle(|_| true);
    Ok(())
}

/// Changes edges of one s-node.
fn apply_edges(store: &Store, edges: &[EdgeChange]) -> Result<()> {
    let Some(home) = edges.first().map(|edge| edge.source.home()) else { return Ok(()) };
    keep_room(store)?;
    let partition = store.partition(home)?;
    apply::change_edges(store, &mut partition.write(), edges.iter(), |_| {})?;
    // An s-node has come to a shared home, or has gone, with the edge that leads to it.
    let guests = edges.iter().filter(|edge| edge.etype == EdgeType::GUEST);
    for EdgeChange { key, new, .. } in guests.filter(|edge| (edge.old == NONE) != (edge.new == NONE)) {
        store.snodes.note_guest(home, *key, *new != NONE);
    }
    Ok(())
}

/// Keeps half of the cache free of changes: it may be smaller than the one that the journal was written with.
pub(crate) fn keep_room(store: &Store) -> Result<()> {
    if store.pool.dirty() > store.pool.capacity() / 2 { store.write_back() } else { Ok(()) }
}

fn strange(what: &str) -> Error {
    Error::damaged(format!("journal: {what}"))
}

/// Applies an entry to what is there.
pub(crate) fn apply_entry(store: &Store, entry: &Entry<'_>) -> Result<()> {
    match *entry {
        Entry::Page { page, ref desc } => put_page(store, page, desc.clone()),
        Entry::Slots { page, snode, class, first, bytes } => {
            put_slots(store, page, snode, class, first, bytes)
        }
        Entry::Bytes { node, bytes } => {
            apply::overwrite(store, &mut store.partition(node.home())?.write(), node, bytes)
        }
        Entry::Patches { node, patches } => {
            crate::tx::patch::apply_to_node(store, &mut store.partition(node.home())?.write(), node, patches)
        }
        Entry::Edge(edge) => apply_edges(store, &[edge]),
        Entry::Count { node, count } => {
            let partition = store.partition(node.home())?;
            store.write(&mut partition.write(), |pages, contents| contents.set_count(pages, node, count))
        }
        Entry::Free { node } => apply::free_nodes(store, &mut store.partition(node.home())?.write(), &[node]),
        Entry::Type { form, name } => {
            let (Some(form), Ok(name)) = (InfoForm::from_u8(form), std::str::from_utf8(name)) else {
                return Err(strange("an edge type cannot be read"));
            };
            store.catalog.write().add_type(name, form);
            Ok(())
        }
        Entry::TypeGone { etype } => {
            let ended = store.catalog.write().end_type(etype);
            ended.ok_or_else(|| strange("an edge type that is not there is gone"))
        }
        Entry::Snode { root } => make_snode(store, root),
        Entry::SnodeGone { snode } => {
            let share = store.partition(snode).map_err(|_| strange("an s-node that is not there is gone"))?;
            apply::drop_snode(store, &mut share.write())?;
            store.snodes.remove(snode);
            store.catalog.write().homes.retain(|entry| entry.id != snode);
            Ok(())
        }
    }
}

fn make_snode(store: &Store, root: NodeId) -> Result<()> {
    let id = root.home();
    if id.0 == 0 || store.snodes.find(id).is_some() {
        return Err(strange("a new s-node that is there already"));
    }
    let entry = HomeEntry { id, root, guests: Guests::default() };
    store.snodes.insert(entry, store.secret);
    store.catalog.write().homes.push(entry);
    Ok(())
}

/// Whether a page of this number can be one of nodes, as its descriptor says.
pub(crate) fn is_of_nodes(page: u32, desc: &Desc) -> bool {
    desc.kind != PageKind::Table && desc.is_possible(page)
}

fn put_page(store: &Store, page: u32, desc: Desc) -> Result<()> {
    if !is_of_nodes(page, &desc) {
        return Err(strange("a page that is none of a node"));
    }
    store.partition(HomeId(desc.snode)).map_err(|_| strange("a page of an s-node that is not there"))?;
    let numbers = if desc.kind == PageKind::RunHead { run_numbers(&desc) } else { 1 };
    store.pool.numbers.data.lock().take_exactly(page, numbers);
    apply::put_page(store, page, desc);
    Ok(())
}

fn put_slots(store: &Store, page: u32, snode: HomeId, class: u8, first: u8, bytes: &[u8]) -> Result<()> {
    let slot = slot_bytes(class).ok_or_else(|| strange("slots of an unknown class"))?;
    let (first, count) = (usize::from(first), bytes.len() / slot);
    let is_data = (1..DATA_PAGES_MAX).contains(&page);
    if !bytes.len().is_multiple_of(slot) || first + count > slots_of(slot) || !is_data {
        return Err(strange("slots beyond their page"));
    }
    let partition = store.partition(snode).map_err(|_| strange("slots of an s-node that is not there"))?;
    let before = store.pool.table.describe(page);
    let is_new = before.kind == PageKind::Free;
    if !is_new && (before.kind, before.snode, before.class) != (PageKind::Slab, snode.0, class) {
        return Err(strange("slots in a page of another kind"));
    }
    store.pool.numbers.data.lock().take_exactly(page, u32::from(is_new));
    store.leaves.lock().touch(page);
    apply::put_slots(store, &mut partition.write(), page, class, first, bytes)
}
