//! Making and opening a store.
//!
//! Opening reads the superblock, the list of leaves, the leaves, the catalog; every block is claimed by whoever refers
//! to it, and one that is claimed twice is damage. Then the journal is replayed by the same functions that commits use.

use crate::committed::Committed;
use crate::edges::table::Table;
use crate::edges::{COUNTS, FIRST_BUNDLE, MAIN};
use crate::error::{Error, Result};
use crate::front::first_front;
use crate::hash::Secret;
use crate::ids::{DATA_PAGES_MAX, HomeId, NodeId, PAGE_BYTES};
use crate::journal::log::{
    EPOCHS_APART, FIRST_BLOCKS, Journal, find_records, may_begin_later_record, may_begin_record,
};
use crate::layout::catalog::{Catalog, Guests, HomeEntry};
use crate::layout::leaves::{DESC_BYTES, LEAF_PAGES, LEAVES_MAX, Leaf, Leaves};
use crate::layout::node::{slot_bytes, slots_of};
use crate::layout::superblock::{Blob, COPIES, ERASES, JOURNAL_BYTES_MIN, LEAVES_BYTES, Superblock};
use crate::named::Named;
use crate::options::Options;
use crate::page_store::PageStore;
use crate::pages::desc::{Desc, PageKind, Share, count_slots};
use crate::pages::numbers::PageNumbers;
use crate::pages::table::{Descriptors, PageTable};
use crate::partition::run_numbers;
use crate::reads;
use crate::slab::{Slab, has_room};
use crate::snodes::tags::{Root, SnodeTags};
use crate::space::{Run, Space, is_full};
use crate::store::Store;
use crate::sync::Mutex;
use crate::tx::apply;
use rustc_hash::FxHashMap;
use weft_core::Tag;
use weft_sys::AlignedBuf;

/// Blocks read by one call where many are only looked through: they stay in the processor's cache.
const LOOK_BLOCKS: u64 = 64;

/// The number of the page in which a new store has its first root, with its s-node's id in the high bits.
fn first_root() -> NodeId {
    NodeId::at(HomeId::FIRST, 1, 0)
}

/// Prepares a medium for a new store: its blocks, and the superblock that is written last.
pub(crate) fn prepare(medium: &dyn PageStore, options: &Options) -> Result<(Space, Superblock)> {
    options.check()?;
    let journal_blocks = options.journal_bytes / PAGE_BYTES as u64;
    let head = COPIES + journal_blocks;
    let limit = options.store_bytes_max / PAGE_BYTES as u64;
    let front = head + first_front();
    if limit <= front {
        return Err(Error::Full { what: "blocks; the journal takes them all" });
    }
    // Room for the rest of the journal is taken when it is needed.
    let room = medium.grow(front).and_then(|()| {
        medium.reserve(0, COPIES + FIRST_BLOCKS)?;
        medium.reserve(head, front - head)
    });
    room.map_err(Error::io("make room for the journal", 0))?;
    // What the medium held before must not pass for this store's if power fails now.
    let zeros = AlignedBuf::zeroed(COPIES as usize * PAGE_BYTES);
    medium.put("clear the superblocks", 0, &Tag::METADATA, &zeros)?;
    medium.flush("clear the superblocks")?;
    let mut space = Space::new(medium.blocks(), limit);
    space.claim(Run { block: 0, blocks: head }, "superblocks and journal")?;
    space.set_front(head, head, front);
    let superblock = Superblock {
        // Random, so that records of a store that was here before are never taken for this one's.
        epoch: u64::from(rand::random::<u32>()) * EPOCHS_APART,
        secret: Secret(rand::random(), rand::random()),
        journal_block: COPIES,
        journal_blocks,
        lsn: 0,
        leaves: Blob::default(),
        catalog: Blob::default(),
        flags: 0,
        snapshots: Blob::default(),
    };
    Ok((space, superblock))
}

impl Store {
    /// Makes an empty store on a medium. What the medium held is gone.
    ///
    /// # Errors
    /// [`Error::BadOption`], [`Error::Io`], [`Error::Full`].
    pub fn create(medium: Box<dyn PageStore>, options: &Options) -> Result<Store> {
        let (space, superblock) = prepare(&*medium, options)?;
        let entry = HomeEntry { id: HomeId::FIRST, root: first_root(), guests: Guests::default() };
        let catalog = Catalog::of(vec![entry]);
        let pool = options.pool(medium.mapping())?;
        let leaves = Leaves::default();
        let store = Store::assemble(medium, pool, space, superblock, catalog, leaves, options);
        let partition = store.partition(HomeId::FIRST)?;
        // Nobody has a permission but those who may do everything: its tags are those of user 0, who has no control.
        let root = Root { tags: SnodeTags::default(), number: 0, is_controlled: false };
        let root = apply::make_root(&store, &mut partition.write(), &root, None)?;
        partition.write().contents.nodes = 1;
        debug_assert_eq!(root, first_root());
        store.checkpoint()?;
        Ok(store)
    }
}

fn read_into(medium: &dyn PageStore, block: u64, out: &mut [u8]) -> Result<()> {
    medium.read(block, out).map_err(Error::io("read the store", block))
}

/// The superblock that counts, which of the copies it is, and the other.
fn read_superblock(medium: &dyn PageStore) -> Result<(Superblock, u64, Result<Superblock>)> {
    let [first, second] = reads::superblocks(medium)?;
    let epoch = |copy: &Result<Superblock>| copy.as_ref().ok().map(|sb| sb.epoch);
    // The first where both are alike.
    let is_second = epoch(&second) > epoch(&first);
    match if is_second { (second, first) } else { (first, second) } {
        // That one is damaged says more than that the other is not there.
        (Err(Error::NotAStore { .. }), Err(error)) | (Err(error), Err(_)) => Err(error),
        (best, other) => Ok((best?, u64::from(is_second), other)),
    }
}

impl Store {
    /// Opens a store, and replays what the last checkpoint does not have. Where the medium has no room to end that, the store is open to be
    /// read only: commits are refused until it was opened again with more room.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::Version`], [`Error::Damaged`], [`Error::Io`].
    pub fn open(medium: Box<dyn PageStore>, options: &Options) -> Result<Store> {
        options.check()?;
        let (sb, copy, other) = read_superblock(&*medium)?;
        if sb.journal_block < COPIES || sb.journal_blocks < JOURNAL_BYTES_MIN / PAGE_BYTES as u64 {
            return Err(Error::damaged(format!("superblock: a journal of {} blocks", sb.journal_blocks)));
        }
        let mut space = Space::new(medium.blocks(), options.store_bytes_max / PAGE_BYTES as u64);
        space.claim(Run { block: 0, blocks: COPIES }, "superblocks")?;
        space.claim(Run { block: sb.journal_block, blocks: sb.journal_blocks }, "journal")?;
        for (blob, what) in [(sb.leaves, "list of leaves"), (sb.catalog, "catalog")] {
            blob.copies().into_iter().try_for_each(|run| space.claim(run, what))?;
        }
        let read = |blob, what: &str| {
            let lost = || Error::damaged(format!("{what}: no copy's checksum holds"));
            reads::blob(&*medium, blob).ok_or_else(lost)
        };
        let catalog = Catalog::decode(&read(sb.catalog, "catalog")?)?;
        let list = read(sb.leaves, "list of leaves")?;
        let pool = options.pool(medium.mapping())?;
        let (leaves, pages) = read_leaves(&*medium, &mut space, &list, &pool.table)?;
        let named = Named::open(&*medium, &sb, &mut space)?;
        let mut store = Store::assemble(medium, pool, space, sb, catalog, leaves, options);
        store.named = Mutex::new(named);
        // The other may be torn: until it is written, this one has to stay.
        store.first_copy = COPIES - 1 - copy;
        store.settle_front(store.leaves.lock().at.len() as u64);
        restore_numbers(&store, &pages);
        restore_tables(&store, &pages)?;
        if let Err(error) = &other {
            // Records of a later checkpoint: then the copy that cannot be read was of that.
            if journal_has(&*store.medium, &sb, |block| may_begin_later_record(block, sb.epoch))? {
                return Err(Error::damaged("the newer copy of the superblock: the journal goes on from it"));
            }
            let copy = COPIES - 1 - copy;
            tracing::warn!(copy, %error, "a copy of the superblock is written anew");
            store.mended = Some(format!(
                "copy {copy} of the superblock was damaged; opening the store to change it writes it anew"
            ));
        }
        let area = read_journal(&*store.medium, &sb)?;
        let records = find_records(&area, sb.epoch, sb.lsn)?;
        let durable = records.iter().map(|record| record.durable).max().unwrap_or(sb.lsn);
        let mut replayed = 0;
        for record in &records {
            let entries = &area[record.entries.clone()];
            if record.lsn > durable && !crate::replay::is_whole(&*store.medium, entries)? {
                tracing::info!(
                    commit = record.lsn,
                    "the journal ends here: pages of this commit did not reach the medium"
                );
                break;
            }
            crate::replay::claim_blocks(&store, entries)?;
            replayed += 1;
        }
        // Only now, with every block known that the journal needs, may the replay write. The other copy comes first: from here on
        // blocks of its checkpoint are given out, so if this copy were damaged it would lead to a state that is gone.
        if !other.is_ok_and(|other| other == sb) {
            store.write_superblock(COPIES - 1 - copy, &sb)?;
        }
        store.free_unused();
        let erases = sb.has(LEAVES_BYTES) && store.medium.keeps_writes();
        let erased = if erases { store.erase_free() } else { Ok(()) };
        for record in &records[..replayed] {
            crate::replay::apply(&store, &area[record.entries.clone()])?;
        }
        // Records of this epoch beyond the end, of commits that did not become durable, must not follow those to come.
        let is_stale = records.len() > replayed || has_record_beyond(&area, sb.epoch, &records);
        drop(area);
        store.recovered = replayed as u64;
        let lsn = sb.lsn + replayed as u64;
        store.journal = Journal::new(sb.journal_block, sb.journal_blocks, sb.epoch, lsn).into();
        list_refill(&store)?;
        check_roots(&store)?;
        if sb.has(ERASES | LEAVES_BYTES) {
            store.learn_classes(!sb.has(LEAVES_BYTES))?;
        }
        match erased.and_then(|()| store.end_recovery(replayed > 0 || is_stale, erases)) {
            // What the journal has is needed until there is room for a checkpoint: all is read, nothing is changed.
            Err(error) if is_full(&error) => {
                tracing::warn!(%error, "the store is open to be read only");
                store.journal.stop(&error);
                store.is_read_only = true;
            }
            done => done?,
        }
        Ok(store)
    }

    /// Tells the medium which blocks are free: before power went, it may not have learnt it, and there are blocks that were written for commits
    /// that did not come. The caller has claimed all blocks that the checkpoint and the journal refer to, and nothing was given out yet.
    fn free_unused(&self) {
        if self.medium.uses_free() {
            let runs = self.space.lock().free_runs();
            self.medium.free(&runs.into_iter().map(|run| (run.block, run.blocks)).collect::<Vec<_>>());
        }
    }

    /// Writes what was replayed, and erases what the journal and slots have of commits that are gone.
    fn end_recovery(&self, is_changed: bool, leaves_bytes: bool) -> Result<()> {
        if leaves_bytes {
            self.clear_free_slots()?;
        }
        if is_changed || leaves_bytes {
            self.checkpoint()?;
        }
        // Records of before, which no checkpoint of this process has counted.
        self.free_journal(self.superblock.lock().journal_blocks);
        self.end_opening()
    }
}

fn has_record_beyond(area: &[u8], epoch: u64, found: &[crate::journal::log::Found]) -> bool {
    let end = found.last().map_or(0, |record| record.entries.end).next_multiple_of(PAGE_BYTES);
    (end..area.len()).step_by(PAGE_BYTES).any(|at| crate::journal::log::record_at(area, at, epoch).is_some())
}

/// The journal's area; nothing of it where no record of the last checkpoint's epoch can be, as after an orderly close.
fn read_journal(medium: &dyn PageStore, sb: &Superblock) -> Result<AlignedBuf> {
    let mut area = AlignedBuf::zeroed(0);
    if journal_has(medium, sb, |block| may_begin_record(block, sb.epoch))? {
        area = AlignedBuf::zeroed(sb.journal_blocks as usize * PAGE_BYTES);
        read_into(medium, sb.journal_block, &mut area)?;
    }
    Ok(area)
}

/// Whether any block of the journal's area is such a one. The area is read in pieces, up to the first.
fn journal_has(medium: &dyn PageStore, sb: &Superblock, is_such: impl Fn(&[u8]) -> bool) -> Result<bool> {
    let mut piece = AlignedBuf::zeroed(LOOK_BLOCKS as usize * PAGE_BYTES);
    for at in (0..sb.journal_blocks).step_by(LOOK_BLOCKS as usize) {
        let blocks = LOOK_BLOCKS.min(sb.journal_blocks - at);
        let raw = &mut piece[..blocks as usize * PAGE_BYTES];
        read_into(medium, sb.journal_block + at, raw)?;
        if raw.chunks_exact(PAGE_BYTES).any(&is_such) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the descriptors into the page table; the leaves, and the numbers of the pages in their order.
fn read_leaves(
    medium: &dyn PageStore,
    space: &mut Space,
    list: &[u8],
    table: &PageTable,
) -> Result<(Leaves, Vec<u32>)> {
    let mut leaves = Leaves::default();
    for (number, leaf) in reads::leaves_in(list) {
        if number >= LEAVES_MAX || leaves.at.insert(number, leaf).is_some() {
            return Err(Error::damaged(format!("list of leaves: leaf {number} cannot be")));
        }
        for block in leaf.blocks {
            space.claim(Run { block, blocks: 1 }, "leaf of descriptors")?;
        }
    }
    let all: Vec<(u32, Leaf)> = leaves.at.iter().map(|(number, leaf)| (*number, *leaf)).collect();
    let (mut pages, mut tails) = (Vec::with_capacity(all.len() * LEAF_PAGES as usize), Vec::new());
    reads::each_leaf(medium, all, |leaf, _, raw| {
        let lost = || Error::damaged(format!("leaf {leaf} of descriptors: no copy's checksum holds"));
        let (copy, raw) = raw.ok_or_else(lost)?;
        if copy > 0 {
            tracing::warn!(leaf, "a copy of a leaf of descriptors is damaged");
            // The next checkpoint writes both copies anew.
            leaves.stale.insert(leaf);
        }
        for (page, raw) in (leaf * LEAF_PAGES..).zip(raw.chunks_exact(DESC_BYTES)) {
            let desc = Desc::decode(raw, page)?;
            match desc.kind {
                PageKind::Free => {}
                _ if desc.is_left_over() => leaves.touch(page),
                PageKind::RunTail => tails.push((page, desc)),
                _ => {
                    restore_page(page, desc, space, table)?;
                    pages.push(page);
                }
            }
        }
        Ok::<(), Error>(())
    })?;
    for (page, desc) in tails {
        let head = u64::from(page).checked_sub(desc.body[0]).map(|head| table.describe(head as u32));
        if head.is_some_and(|head| head.kind == PageKind::RunHead && desc.body[0] < head.body[0]) {
            restore_page(page, desc, space, table)?;
            pages.push(page);
        } else {
            leaves.touch(page);
        }
    }
    pages.sort_unstable();
    Ok((leaves, pages))
}

fn restore_page(page: u32, desc: Desc, space: &mut Space, table: &PageTable) -> Result<()> {
    if !desc.is_possible(page) || desc.block == 0 {
        return Err(Error::damaged(format!("page {page}: its descriptor does not make sense")));
    }
    space.claim(Run { block: desc.block, blocks: 1 }, "page")?;
    table.set(page, desc);
    Ok(())
}

pub(crate) fn restore_numbers(store: &Store, pages: &[u32]) {
    let restore = |numbers: &Mutex<PageNumbers>, first: u32, pages: &[u32]| {
        let mut numbers = numbers.lock();
        let mut next = first;
        for page in pages {
            let is_head = store.pool.table.look_up(*page, |desc| desc.kind == PageKind::RunHead);
            let count =
                if is_head == Some(true) { run_numbers(&store.pool.table.describe(*page)) } else { 1 };
            numbers.restore_end(page + count);
            // Those of a run that has room to grow are kept for it.
            numbers.give_back(next, page.saturating_sub(next));
            next = next.max(page + count);
        }
    };
    let (data, tables) = pages.split_at(pages.partition_point(|page| *page < DATA_PAGES_MAX));
    restore(&store.pool.numbers.data, 1, data);
    restore(&store.pool.numbers.tables, DATA_PAGES_MAX, tables);
}

/// Pages of a table, what each answers for, and whether first words of cells are hashes.
type TablePages = (Vec<(u32, Share)>, bool);

/// The pages of each table of each s-node.
fn restore_tables(store: &Store, pages: &[u32]) -> Result<()> {
    let mut tables: FxHashMap<(HomeId, u64), TablePages> = FxHashMap::default();
    for page in &pages[pages.partition_point(|page| *page < DATA_PAGES_MAX)..] {
        let desc = store.pool.table.describe(*page);
        let id = desc.body[0];
        let (pages, is_hashed) =
            tables.entry((HomeId(desc.snode), id)).or_insert_with(|| (Vec::new(), desc.is_hashed()));
        if *is_hashed != desc.is_hashed() || *is_hashed && id < FIRST_BUNDLE {
            return Err(Error::damaged(format!("edge table {id}: page {page} is not of its form")));
        }
        pages.push((*page, desc.share()?));
    }
    for ((snode, id), (pages, is_hashed)) in tables {
        let partition = store
            .partition(snode)
            .map_err(|_| Error::damaged(format!("pages of {snode}, which is not there")))?;
        let contents = &mut partition.write().contents;
        match id {
            MAIN => contents.edges.main = Table::new(id, false, store.secret).restore(&pages)?,
            COUNTS => contents.counts = Table::new(id, false, store.secret).restore(&pages)?,
            _ => {
                let bundle = Table::new(id, is_hashed, store.secret).restore(&pages)?;
                contents.edges.bundles_mut().insert(id, bundle);
                contents.edges.next_bundle = contents.edges.next_bundle.max(id + 1).max(FIRST_BUNDLE);
            }
        }
    }
    Ok(())
}

/// Whether each home has its root: ids are looked up from there. It says of what data class the home is; of one that cannot be read that is
/// not known.
fn check_roots(store: &Store) -> Result<()> {
    for home in store.snodes.ids() {
        let root = store.root_of_home(home)?;
        if root.home() != home || store.look_for(root).is_err() {
            return Err(Error::damaged(format!("the root {root} of {home} is not there")));
        }
        let (owner, class) = store
            .read_root(root)
            .map_or_else(|_| Default::default(), |root| (root.tags.owner, root.tags.class));
        store.pool.classes.set(home, owner, class);
    }
    store.pool.reclass();
    Ok(())
}

/// Counts the nodes of each s-node, lists the pages of slabs that have room, and no others, and looks whether each node with pages of its own
/// has all of them: they are read, and given up, without another look.
pub(crate) fn list_refill(store: &Store) -> Result<()> {
    // A replay frees nodes and fills slots again, so pages that it has listed may be full, or listed twice.
    for partition in store.snodes.all() {
        partition.write().contents.slabs.iter_mut().for_each(Slab::forget_refill);
    }
    let table = &store.pool.table;
    for page in store.data_pages() {
        let desc = table.describe(page);
        let (nodes, is_listed) = match desc.kind {
            PageKind::Slab => {
                let slots = slot_bytes(desc.class).map(slots_of);
                (
                    count_slots(&desc.body) as u64,
                    slots.is_some_and(|slots| has_room(count_slots(&desc.taken()), slots)),
                )
            }
            PageKind::RunHead if table.has_run(page, &desc) => (desc.body[1], false),
            PageKind::RunHead => {
                return Err(Error::damaged(format!("page {page}: a node begins there that lacks pages")));
            }
            _ => continue,
        };
        let Ok(partition) = store.partition(HomeId(desc.snode)) else { continue };
        let contents = &mut partition.write().contents;
        contents.nodes += nodes;
        if is_listed {
            contents.slabs[usize::from(desc.class)].list(page);
        }
    }
    Ok(())
}
