//! Applies committed changes to the store's pages, for commits and for replays alike.

use crate::edges::EdgeChange;
use crate::edges::many::GROUP;
use crate::error::{Error, Result};
use crate::ids::{NodeId, NodeType, PAGE_BYTES};
use crate::layout::node::{
    MOVED, NODE_HEADER, class_of, read_header, slot_bytes, slots_of, split_key, write_header,
};
use crate::pages::desc::{Desc, PageKind, slot_range};
use crate::partition::{Contents, NodePlace, NodeScope, Partition, find_any, place_in, run_numbers, run_of};
use crate::snodes::tags::Root;
use crate::store::Store;

/// Descriptors that are asked for before the first of them is changed.
const DESCS_AHEAD: usize = 16;

/// Changes edges of an s-node, in their order, and calls `each` with each that was changed; passes over those of other s-nodes.
pub(crate) fn change_edges<'c>(
    store: &Store,
    partition: &mut Partition,
    changes: impl Iterator<Item = &'c EdgeChange>,
    mut each: impl FnMut(&EdgeChange),
) -> Result<()> {
    let (snode, mut freed) = (partition.snode, Vec::new());
    let mut rest = changes.filter(|it| it.source.home() == snode && it.old != it.new).peekable();
    if rest.peek().is_none() {
        return Ok(());
    }
    let (mut group, mut made) = (Vec::with_capacity(GROUP), 0);
    store.write(partition, |pages, contents| {
        loop {
            group.drain(..std::mem::take(&mut made));
            if group.is_empty() {
                // Changes of one source follow each other: its bundle is looked for once.
                let of = |change: &EdgeChange| (change.source, change.etype);
                let Some(first) = rest.next() else { return Ok(()) };
                let alike = std::iter::from_fn(|| rest.next_if(|change| of(change) == of(first)));
                group.extend(std::iter::once(first).chain(alike).take(GROUP));
            }
            contents.edges.change(pages, &group, &mut made, &mut freed, &mut each)?;
        }
    })?;
    drop_table_pages(store, freed);
    Ok(())
}

/// Gives up pages of edge tables. Nobody has access to them.
pub(crate) fn drop_table_pages(store: &Store, freed: Vec<u32>) {
    for page in freed {
        drop_page(store, page);
        store.pool.numbers.tables.lock().give_back(page, 1);
    }
}

/// Gives up a page. Nobody has access to it.
pub(crate) fn drop_page(store: &Store, page: u32) {
    let desc = store.pool.table.describe(page);
    store.leaves.lock().touch(page);
    if !store.pool.drop_page(page) {
        store.release_block(desc.block, desc.snode);
    }
}

/// Puts a page of a node that was written whole in the place of what has its number. Nobody has access to it. Where a node has fewer
/// pages than before, the others go.
pub(crate) fn put_page(store: &Store, page: u32, desc: Desc) {
    let before = store.pool.table.describe(page);
    if (before.kind, desc.kind) == (PageKind::RunHead, PageKind::RunHead) {
        (page + run_of(&desc)..page + run_of(&before)).for_each(|page| drop_page(store, page));
    }
    drop_page(store, page);
    store.pool.table.set(page, desc);
}

/// Gives up the pages of slabs that slots were to be given out from and that have no node. The caller holds the s-node's lock: what
/// has freed their nodes is in the journal, so that a replay gives them up, too, before their numbers are another's.
pub(crate) fn drop_empty_slabs(store: &Store, partition: &mut Partition) {
    for slab in &mut partition.contents.slabs {
        if let Some(page) = slab.close_empty(&store.pool.table) {
            drop_page(store, page);
            store.pool.numbers.data.lock().give_back(page, 1);
        }
    }
}

/// Takes committed nodes and bodies out of their pages, in the order of their places. The caller holds the partition and no access
/// to pages.
pub(crate) fn free_nodes(store: &Store, partition: &mut Partition, nodes: &[NodeId]) -> Result<()> {
    let ask_for =
        |node: &NodeId| node.page().into_iter().for_each(|page| store.pool.table.prefetch_desc(page));
    nodes.iter().take(DESCS_AHEAD).for_each(ask_for);
    for (at, node) in nodes.iter().enumerate() {
        // One at a time: many at once are waited for before anything else is done.
        nodes.get(at + DESCS_AHEAD).into_iter().for_each(ask_for);
        release(store, partition, *node, NodeScope::Committed).map_err(|error| match error {
            Error::NoSuchNode(_) => Error::damaged(format!("node {node} is to be freed and is not there")),
            error => error,
        })?;
    }
    partition.contents.nodes = partition.contents.nodes.saturating_sub(nodes.len() as u64);
    let mut leaves = store.leaves.lock();
    let mut last = None;
    // Nodes of one page follow each other.
    let pages = nodes.iter().filter_map(|node| node.page()).filter(|page| last.replace(*page) != Some(*page));
    pages.for_each(|page| leaves.touch(page));
    Ok(())
}

/// Takes an s-node that is empty but for its root and the edges of it out of the store's pages.
pub(crate) fn drop_snode(store: &Store, partition: &mut Partition) -> Result<()> {
    free_nodes(store, partition, &[partition.root])?;
    clear_snode(store, partition)
}

/// Gives up the pages of an s-node that has no nodes any more: those that slots were to be given out from, and those of
/// its edge tables.
pub(crate) fn clear_snode(store: &Store, partition: &mut Partition) -> Result<()> {
    partition.freeze(&store.pool.versions);
    let contents = std::mem::replace(&mut partition.contents, Contents::new(store.secret));
    if contents.nodes != 0 {
        let (snode, nodes) = (partition.snode, contents.nodes);
        return Err(Error::damaged(format!("s-node {snode} is to go and has {nodes} nodes")));
    }
    for page in contents.slabs.iter().filter_map(|slab| slab.open) {
        drop_page(store, page);
        store.pool.numbers.give_up(partition.snode, page, 1);
    }
    drop_table_pages(store, contents.table_pages());
    Ok(())
}

/// Takes back the room of a node or body: of one that is committed, or of one that was made and never was.
#[inline]
pub(super) fn release(store: &Store, partition: &mut Partition, node: NodeId, of: NodeScope) -> Result<()> {
    let cell = node.page().and_then(|page| Some((page, store.pool.table.desc(page)?)));
    let Some((page, slot_cell)) = cell else { return Err(Error::NoSuchNode(node)) };
    store.pool.versions.note_freed(page, slot_cell, node.offset());
    store.watchers.forget(node);
    let mut desc = slot_cell.lock();
    let (NodePlace { slot, .. }, _) = place_in(&desc, page, node, of)?;
    if desc.kind != PageKind::Slab {
        let (pages, numbers) = (run_of(&desc), run_numbers(&desc));
        drop(desc);
        for page in page..page + pages {
            drop_page(store, page);
        }
        store.pool.numbers.give_up(partition.snode, page, numbers);
        return Ok(());
    }
    let bytes = slot_bytes(desc.class).unwrap_or(PAGE_BYTES);
    let slots = slots_of(bytes);
    let slab = &mut partition.contents.slabs[usize::from(desc.class)];
    let slot = slot.unwrap_or(0);
    let is_empty = slab.release(&mut desc, page, slot, slots);
    drop(desc);
    if is_empty {
        drop_page(store, page);
        store.pool.numbers.give_up(partition.snode, page, 1);
    } else if store.pool.erasure.is_of(partition.snode.0) {
        let cleared = store.write(partition, |pages, _| {
            pages.bytes_mut(page)?[slot * bytes..(slot + 1) * bytes].fill(0);
            Ok(())
        });
        return cleared.inspect_err(|_| store.pool.erasure.note_left_over());
    }
    Ok(())
}

/// Writes `bytes` over a committed node or body in a slab, from the beginning of its header on. In an s-node whose bytes are erased this
/// clears what is left of longer data; one that has moved keeps its key, which is compared there.
pub(crate) fn overwrite(store: &Store, partition: &mut Partition, node: NodeId, bytes: &[u8]) -> Result<()> {
    let found = find_any(&store.pool.table, node, NodeScope::Committed).ok();
    // Pages that a node has of its own are not changed in their place.
    let place = found.map(|(place, _)| place).filter(|place| place.slot.is_some());
    let strange = || Error::damaged(format!("node {node} is to be changed and is in no slab"));
    let place = place.ok_or_else(strange)?;
    if bytes.len() > place.room {
        return Err(Error::damaged(format!("node {node}: {} bytes do not fit", bytes.len())));
    }
    store.write(partition, |pages, _| {
        let out = &mut pages.bytes_mut(place.page)?[place.offset..place.offset + place.room];
        out[..bytes.len()].copy_from_slice(bytes);
        if store.pool.erasure.is_of(node.home().0) {
            let (kind, len) = read_header(out);
            let has_key = len == MOVED && NodeType(kind).is_keyed();
            let key = split_key(&out[NODE_HEADER..]).filter(|_| has_key).map_or(0, |(key, _)| 2 + key.len());
            out[(bytes.len() + key).min(place.room)..].fill(0);
        }
        Ok(())
    })
}

/// Makes a root, in a slot of a page or where there is room.
pub(crate) fn make_root(
    store: &Store,
    partition: &mut Partition,
    root: &Root,
    place: Option<(u32, usize)>,
) -> Result<NodeId> {
    let tags = root.encode();
    let class = class_of(tags.len()).unwrap_or(0);
    let place = match place {
        Some(place) => place,
        None => store.write(partition, |pages, contents| {
            let (page, slots) = contents.slabs[usize::from(class)].reserve(pages, class, 1)?;
            Ok((page, slots.start))
        })?,
    };
    put_in_slot(store, partition, place, class, NodeType::ROOT, &tags)
}

/// Puts a node into a slot of a page that is free, or of the s-node's of this class. It is committed.
pub(crate) fn put_in_slot(
    store: &Store,
    partition: &mut Partition,
    (page, slot): (u32, usize),
    class: u8,
    kind: NodeType,
    data: &[u8],
) -> Result<NodeId> {
    let mut raw = vec![0; slot_bytes(class).unwrap_or(PAGE_BYTES)];
    write_header(&mut raw, kind.0, data.len());
    raw[NODE_HEADER..NODE_HEADER + data.len()].copy_from_slice(data);
    put_slots(store, partition, page, class, slot, &raw)?;
    Ok(NodeId::at(partition.snode, page, slot * raw.len()))
}

/// Puts what slots hold, from the `first` on, into a page that is free, or of the s-node's of this class. It is committed.
pub(crate) fn put_slots(
    store: &Store,
    partition: &mut Partition,
    page: u32,
    class: u8,
    first: usize,
    bytes: &[u8],
) -> Result<()> {
    let (snode, size) = (partition.snode, slot_bytes(class).unwrap_or(PAGE_BYTES));
    store.write(partition, |pages, _| {
        if store.pool.table.describe(page).kind == PageKind::Free {
            pages.place_all_new(vec![(page, Desc::slab(snode, class))])?;
        }
        pages.bytes_mut(page)?[first * size..][..bytes.len()].copy_from_slice(bytes);
        if let Some(desc) = store.pool.table.desc(page) {
            desc.lock().commit(&slot_range(first, bytes.len() / size));
        }
        Ok(())
    })
}
