//! Replay of the journal: each entry by the same functions that a commit uses.

use crate::edges::RawEdge;
use crate::error::{Error, Result};
use crate::ids::{InfoForm, NodeId, PAGE_BYTES, SnodeId};
use crate::journal::record::{Entry, RecordReader};
use crate::layout::catalog::{SnodeEntry, TypeEntry};
use crate::layout::node::{slot_bytes, slots_of};
use crate::pages::access::PageReader;
use crate::pages::desc::{Desc, PageKind, slot_range};
use crate::partition::{TableNumbers, is_data_page};
use crate::recover::is_run_possible;
use crate::space::Run;
use crate::store::Store;
use crate::sys::aligned::AlignedBuf;
use crate::tx::apply;
use crate::tx::write_set::NONE;
use weft_core::checksum::crc32c;

/// Entries of a record that are looked at before the first of them is applied.
const ENTRIES_AHEAD: usize = 64;
/// Bytes of a node that are changed before the cache is looked at again.
const PIECE_BYTES: usize = 16 * PAGE_BYTES;

/// Whether all pages that a record speaks of are on the medium.
pub(crate) fn is_whole(store: &Store, entries: &[u8]) -> Result<bool> {
    let mut reader = RecordReader::new(entries);
    let mut raw = AlignedBuf::zeroed(PAGE_BYTES);
    while let Some(entry) = reader.next()? {
        let Entry::Page { desc, .. } = entry else { continue };
        if desc.block >= store.medium.blocks() {
            return Ok(false);
        }
        store.medium.read(desc.block, &mut raw).map_err(|source| Error::Io {
            what: "read a page",
            block: desc.block,
            source,
        })?;
        if crc32c(&raw) != desc.crc {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes the blocks that a record's pages are in, before anything is written: none of them may be given out for what
/// the replay writes back before it comes to the record.
pub(crate) fn claim_blocks(store: &Store, entries: &[u8]) -> Result<()> {
    let mut reader = RecordReader::new(entries);
    while let Some(entry) = reader.next()? {
        if let Entry::Page { desc, .. } = entry {
            let run = Run { block: desc.block, blocks: 1 };
            store.space.lock().claim(run, "page in the journal")?;
        }
    }
    Ok(())
}

/// Applies a record.
pub(crate) fn apply(store: &Store, entries: &[u8]) -> Result<()> {
    let mut reader = RecordReader::new(entries);
    let mut group = Vec::with_capacity(ENTRIES_AHEAD);
    loop {
        while group.len() < ENTRIES_AHEAD
            && let Some(entry) = reader.next()?
        {
            group.push(entry);
        }
        if group.is_empty() {
            break;
        }
        ask_for_edges(store, &group);
        for entry in group.drain(..) {
            keep_room(store)?;
            apply_entry(store, entry)?;
        }
    }
    let mut freed = store.freed_numbers.lock();
    let mut numbers = store.data_numbers.lock();
    freed.drain(..).for_each(|(_, page, pages)| numbers.give_back(page, pages));
    Ok(())
}

/// Asks the processor for the cells of edges that are about to change, those of one source and type that follow each other.
fn ask_for_edges(store: &Store, entries: &[Entry<'_>]) {
    let edge = |entry: &Entry<'_>| match entry {
        Entry::Edge { source, etype, key, new, .. } => Some(((*source, *etype), (*key, *new == NONE))),
        _ => None,
    };
    for run in entries.chunk_by(|a, b| edge(a).map(|(of, _)| of) == edge(b).map(|(of, _)| of)) {
        let Some(((source, etype), _)) = run.first().and_then(edge).filter(|_| run.len() > 1) else {
            continue;
        };
        // The s-node may begin in this group.
        let Some(share) = store.snodes.find(source.snode()) else { continue };
        let guard = share.read();
        let pages = PageReader::new(&store.pool, &guard.token);
        let keys = run.iter().filter_map(edge).map(|(_, key)| key);
        if let Ok(Some(id)) = guard.contents.edges.bundle(&pages, source, etype) {
            guard.contents.edges.prefetch_in(&pages, id, keys);
        }
    }
}

/// Keeps half of the cache free of changes: it may be smaller than the one that the journal was written with.
pub(crate) fn keep_room(store: &Store) -> Result<()> {
    if store.pool.dirty() > store.pool.capacity() / 2 { store.write_back() } else { Ok(()) }
}

fn strange(what: &str) -> Error {
    Error::damaged(format!("journal: {what}"))
}

fn apply_entry(store: &Store, entry: Entry<'_>) -> Result<()> {
    match entry {
        Entry::Page { page, desc } => put_page(store, page, desc),
        Entry::Slots { page, snode, class, first, bytes } => {
            put_slots(store, page, snode, class, first, bytes)
        }
        Entry::Bytes { node, bytes } => {
            let partition = store.partition(node.snode())?;
            // A large node may have more pages than the cache.
            for (at, piece) in (0..).step_by(PIECE_BYTES).zip(bytes.chunks(PIECE_BYTES)) {
                keep_room(store)?;
                apply::overwrite(store, &mut partition.write(), node, at, piece)?;
            }
            keep_room(store)?;
            apply::clear_rest(store, &mut partition.write(), node, bytes)
        }
        Entry::Patches { node, patches } => {
            let partition = store.partition(node.snode())?;
            crate::tx::patch::apply_to_node(store, &mut partition.write(), node, patches)
        }
        Entry::Edge { source, etype, keyed, key, old, new } => {
            let partition = store.partition(source.snode())?;
            let mut partition = partition.write();
            let form = if keyed { InfoForm::Key } else { InfoForm::Number };
            let edge = RawEdge { etype, key, to: new };
            apply::set_edge(store, &mut partition, source, form, edge, old)
        }
        Entry::Count { node, count } => {
            let partition = store.partition(node.snode())?;
            let mut numbers = TableNumbers(&store.table_numbers);
            store.write(&mut partition.write(), |pages, contents| {
                contents.set_count(pages, &mut numbers, node, count)
            })
        }
        Entry::Free { node } => {
            let partition = store.partition(node.snode())?;
            apply::free_node(store, &mut partition.write(), node)
        }
        Entry::Type { form, name } => {
            let (Some(form), Ok(name)) = (InfoForm::from_u8(form), std::str::from_utf8(name)) else {
                return Err(strange("an edge type cannot be read"));
            };
            store.catalog.write().types.push(TypeEntry { name: name.to_owned(), form });
            Ok(())
        }
        Entry::Snode { root } => make_snode(store, root),
        Entry::SnodeGone { snode } => {
            let share = store.partition(snode).map_err(|_| strange("an s-node that is not there is gone"))?;
            apply::drop_snode(store, &mut share.write())?;
            store.snodes.remove(snode);
            store.catalog.write().snodes.retain(|entry| entry.id != snode);
            Ok(())
        }
    }
}

fn make_snode(store: &Store, root: NodeId) -> Result<()> {
    let id = root.snode();
    if id.0 == 0 || store.snodes.find(id).is_some() {
        return Err(strange("a new s-node that is there already"));
    }
    store.snodes.insert(id, root, store.secret);
    store.catalog.write().snodes.push(SnodeEntry { id, root });
    Ok(())
}

fn put_page(store: &Store, page: u32, desc: Desc) -> Result<()> {
    let known = match desc.kind {
        PageKind::Slab => slot_bytes(desc.class).is_some(),
        PageKind::RunHead | PageKind::RunTail => true,
        PageKind::Free | PageKind::Table => false,
    };
    if !known || !is_data_page(page) || page == 0 || !is_run_possible(&desc, page) {
        return Err(strange("a page that is none of a node"));
    }
    store.partition(SnodeId(desc.snode)).map_err(|_| strange("a page of an s-node that is not there"))?;
    store.data_numbers.lock().take_exactly(page, 1);
    let before = store.pool.table.describe(page);
    store.release_block(before.block, before.snode);
    store.pool.drop_page(page);
    store.pool.table.set(page, desc);
    store.leaves.lock().touch(page);
    Ok(())
}

pub(crate) fn put_slots(
    store: &Store,
    page: u32,
    snode: SnodeId,
    class: u8,
    first: u8,
    bytes: &[u8],
) -> Result<()> {
    let slot = slot_bytes(class).ok_or_else(|| strange("slots of an unknown class"))?;
    let (first, count) = (usize::from(first), bytes.len() / slot);
    if !bytes.len().is_multiple_of(slot) || first + count > slots_of(slot) || !is_data_page(page) || page == 0
    {
        return Err(strange("slots beyond their page"));
    }
    let partition = store.partition(snode).map_err(|_| strange("slots of an s-node that is not there"))?;
    let before = store.pool.table.describe(page);
    let is_new = before.kind == PageKind::Free;
    if !is_new && (before.kind, before.snode, before.class) != (PageKind::Slab, snode.0, class) {
        return Err(strange("slots in a page of another kind"));
    }
    store.write(&mut partition.write(), |pages, _| {
        if is_new && store.pool.table.describe(page).kind == PageKind::Free {
            store.data_numbers.lock().take_exactly(page, 1);
            pages.place_new(page, Desc::slab(snode, class))?;
        }
        pages.bytes_mut(page)?[first * slot..first * slot + bytes.len()].copy_from_slice(bytes);
        if let Some(desc) = store.pool.table.desc(page) {
            let mut desc = desc.lock();
            desc.commit(&slot_range(first, count));
        }
        Ok(())
    })?;
    store.leaves.lock().touch(page);
    Ok(())
}
