//! Secure deletion: what is given up of an s-node of that class is nowhere on the medium after the next checkpoint.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "support/power_cut.rs"]
mod power_cut;
#[path = "support/secrets.rs"]
mod secrets;

use power_cut::PowerCutStore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use secrets::{
    KEYED, Marker, PLAIN, World, begin, found, give_up, is_whole, keyed, marked, options, run, secret, write,
};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weft_tags::{
    BTree, BTreeForm, ErasePass, FileStore, Info, MemoryStore, NodeId, NodeType, Options, PAGE_BYTES,
    PageStore, ReadPath, SnodeTags, Store, Transaction,
};

/// Writes and gives up, and tells how often the marker is there before and after the checkpoint.
fn left_by(tags: &SnodeTags) -> (usize, usize) {
    let marker: Marker = StdRng::seed_from_u64(7).random();
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let world = begin(&store, tags);
    write(&store, &world, &marker).unwrap();
    give_up(&store, &world, &marker).unwrap();
    let before = found(&medium.to_bytes(), &marker);
    store.checkpoint().unwrap();
    let after = found(&medium.to_bytes(), &marker);
    is_whole(&store, &world);
    store.close().unwrap();
    if after == 0 {
        assert_eq!(found(&medium.to_bytes(), &marker), 0);
    }
    let store = Store::open(Box::new(medium), &options()).unwrap();
    is_whole(&store, &world);
    (before, after)
}

#[test]
fn after_a_checkpoint_nothing_is_left_of_what_was_given_up() {
    let (before, after) = left_by(&secret());
    assert!(before > 100, "the test writes it: {before}");
    assert_eq!(after, 0);
}

#[test]
fn a_snapshot_that_is_deleted_leaves_nothing_whenever_the_power_fails() {
    let marker: Marker = StdRng::seed_from_u64(21).random();
    let first = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(first.clone()), &options()).unwrap();
    let world = begin(&store, &secret());
    write(&store, &world, &marker).unwrap();
    store.create_snapshot("kept").unwrap();
    give_up(&store, &world, &marker).unwrap();
    // Nothing but the snapshot tells of the class any more.
    let mut tx = store.begin();
    tx.set_snode_tags(world.snode, &SnodeTags::default()).unwrap();
    tx.commit().unwrap();
    store.close().unwrap();
    assert!(found(&first.to_bytes(), &marker) > 100, "the snapshot keeps it");
    let delete = |medium: &Arc<PowerCutStore>| {
        let store = Store::open(Box::new(medium.clone()), &options())?;
        store.delete_snapshot("kept")?;
        Ok::<_, weft_tags::Error>(store)
    };
    let whole = Arc::new(PowerCutStore::new(first.to_bytes(), u64::MAX));
    delete(&whole).unwrap();
    let (mut gone, operations) = (0, whole.operations());
    for cut in 0..=operations {
        let medium = Arc::new(PowerCutStore::new(first.to_bytes(), cut));
        drop(delete(&medium));
        let after = Arc::new(medium.after_power_cut(cut));
        let store = Store::open(Box::new(after.clone()), &options()).unwrap();
        if store.named_snapshots().is_empty() {
            gone += 1;
            assert_eq!(found(&after.to_bytes(), &marker), 0, "cut {cut} of {operations}");
        }
        is_whole(&store, &world);
    }
    assert!(gone > 5, "the snapshot is gone after {gone} cuts of {operations}");
}

/// Gives an s-node the class after it was written, and then its data up. How often the marker is there at the end, when all snapshots of before
/// are deleted.
fn left_after_a_late_class(snapshots: &[&str]) -> usize {
    let marker: Marker = StdRng::seed_from_u64(22).random();
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let world = begin(&store, &SnodeTags::default());
    write(&store, &world, &marker).unwrap();
    store.checkpoint().unwrap();
    snapshots.iter().for_each(|name| store.create_snapshot(name).unwrap());
    let give = |tags: &SnodeTags| {
        let mut tx = store.begin();
        tx.set_snode_tags(world.snode, tags).unwrap();
        tx.commit().unwrap();
    };
    give(&secret());
    give_up(&store, &world, &marker).unwrap();
    store.checkpoint().unwrap();
    give(&SnodeTags::default());
    store.close().unwrap();
    let store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    for name in snapshots.iter().rev() {
        store.delete_snapshot(name).unwrap();
    }
    is_whole(&store, &world);
    found(&medium.to_bytes(), &marker)
}

#[test]
fn a_snapshot_of_before_the_class_leaves_no_more_than_there_would_be_without_it() {
    // The journal, and places that pages have left before.
    let without = left_after_a_late_class(&[]);
    for snapshots in [&["one"][..], &["one", "two"]] {
        let with = left_after_a_late_class(snapshots);
        println!("{without} without, {with} with {snapshots:?}");
        assert!(with <= without + without / 10 + 100, "{without} without, {with} with {snapshots:?}");
    }
}

/// A medium that counts the blocks that are read, and is only read.
struct Counting {
    below: Arc<MemoryStore>,
    read: Arc<AtomicU64>,
}

impl PageStore for Counting {
    fn read(&self, block: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.read.fetch_add((out.len() / PAGE_BYTES) as u64, Ordering::Relaxed);
        self.below.read(block, out)
    }

    fn write(&self, _: u64, _: &weft_core::Tag, _: &[IoSlice<'_>]) -> std::io::Result<()> {
        panic!("it is only read")
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.below.blocks()
    }

    fn grow(&self, _: u64) -> std::io::Result<()> {
        panic!("it is only read")
    }
}

#[test]
fn an_opening_to_read_leaves_what_is_to_be_erased_to_the_next_one() {
    let marker: Marker = StdRng::seed_from_u64(23).random();
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let world = begin(&store, &secret());
    write(&store, &world, &marker).unwrap();
    give_up(&store, &world, &marker).unwrap();
    store.sync().unwrap();
    // As when the process ends.
    drop(store);
    let before = medium.to_bytes();
    assert!(found(&before, &marker) > 100);
    let read = Arc::new(AtomicU64::new(0));
    let counting = Counting { below: medium.clone(), read: read.clone() };
    let store = Store::open_read_only(Box::new(counting), &options()).unwrap();
    let of_opening = read.load(Ordering::Relaxed);
    is_whole(&store, &world);
    drop(store);
    assert!(medium.to_bytes() == before);
    // The journal, and what is in use.
    println!("{of_opening} of {} blocks", medium.blocks());
    assert!(of_opening < medium.blocks() / 2, "{of_opening} of {} blocks", medium.blocks());
    drop(Store::open(Box::new(medium.clone()), &options()).unwrap());
    assert_eq!(found(&medium.to_bytes(), &marker), 0);
}

#[test]
fn without_the_class_it_is_left() {
    let (_, after) = left_by(&SnodeTags::default());
    assert!(after > 100, "{after}");
}

#[test]
fn the_class_counts_from_when_it_is_given() {
    let marker: Marker = StdRng::seed_from_u64(8).random();
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let world = begin(&store, &SnodeTags::default());
    let mut tx = store.begin();
    tx.set_snode_tags(world.snode, &secret()).unwrap();
    tx.commit().unwrap();
    write(&store, &world, &marker).unwrap();
    store.close().unwrap();
    // It is known after an opening.
    let store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    give_up(&store, &world, &marker).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(found(&medium.to_bytes(), &marker), 0);
    is_whole(&store, &world);
}

#[test]
fn pairs_of_a_tree_leave_nothing() {
    let marker: Marker = StdRng::seed_from_u64(12).random();
    let left = |tags: &SnodeTags| {
        let medium = Arc::new(MemoryStore::new());
        let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
        let World { snode, .. } = begin(&store, tags);
        let tree = BTree::open(&store, snode, "values", BTreeForm::Bytes).unwrap();
        let fixed = BTree::open(&store, snode, "numbers", BTreeForm::Fixed).unwrap();
        let value = |n: u32| u64::from_le_bytes(*marker.first_chunk().unwrap()) ^ u64::from(n);
        for n in 0..400u32 {
            tree.insert(&n.to_be_bytes(), &marked(&marker, 32 + n as usize * 7)).unwrap();
            fixed.insert(&n.to_be_bytes(), &value(n).to_le_bytes()).unwrap();
        }
        store.checkpoint().unwrap();
        // Some of each leaf stay.
        for n in (0..400u32).filter(|n| n % 5 != 0) {
            assert!(tree.delete(&n.to_be_bytes()).unwrap() && fixed.delete(&n.to_be_bytes()).unwrap());
        }
        for n in (0..400u32).step_by(5) {
            tree.insert(&n.to_be_bytes(), &[7; 100][..n as usize % 100]).unwrap();
        }
        store.checkpoint().unwrap();
        assert!(tree.check().unwrap().problems.is_empty() && fixed.check().unwrap().problems.is_empty());
        assert_eq!((tree.count().unwrap(), fixed.count().unwrap()), (80, 80));
        let bytes = medium.to_bytes();
        let gone = (0..400u32).filter(|n| n % 5 != 0).filter(|n| {
            let wanted = value(*n).to_le_bytes();
            bytes.windows(8).any(|window| window == wanted)
        });
        (found(&bytes, &marker), gone.count())
    };
    let (values, numbers) = left(&SnodeTags::default());
    assert!(values > 100 && numbers > 100, "{values} {numbers}");
    assert_eq!(left(&secret()), (0, 0));
}

/// A file that remembers what was written to each block in which a marker was, and every sync and erasure.
struct Watched {
    file: FileStore,
    marker: Marker,
    marked: Mutex<BTreeMap<u64, Vec<Said>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Marked,
    Bytes(u8),
    Random,
    Synced,
    Erased,
}

impl Watched {
    fn note(&self, block: u64, said: Said) {
        if let Some(told) = self.marked.lock().unwrap().get_mut(&block) {
            told.push(said);
        }
    }
}

impl PageStore for Watched {
    fn read(&self, block: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.file.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> std::io::Result<()> {
        let pages = parts.iter().flat_map(|part| part.chunks_exact(PAGE_BYTES));
        for (block, page) in (block..).zip(pages) {
            let is_even = page.iter().all(|byte| *byte == page[0]);
            if found(page, &self.marker) > 0 {
                self.marked.lock().unwrap().insert(block, vec![Said::Marked]);
            } else {
                self.note(block, if is_even { Said::Bytes(page[0]) } else { Said::Random });
            }
        }
        self.file.write(block, tag, parts)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.marked.lock().unwrap().values_mut().for_each(|told| told.push(Said::Synced));
        self.file.sync()
    }

    fn erase(&self, runs: &[(u64, u64)]) -> std::io::Result<()> {
        let blocks = runs.iter().flat_map(|(block, blocks)| *block..*block + *blocks);
        blocks.for_each(|block| self.note(block, Said::Erased));
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.file.blocks()
    }

    fn grow(&self, blocks: u64) -> std::io::Result<()> {
        self.file.grow(blocks)
    }
}

#[test]
fn each_block_is_overwritten_in_all_passes_with_a_sync_after_each_before_the_medium_erases_it() {
    let marker: Marker = StdRng::seed_from_u64(15).random();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let file = FileStore::create(&path, ReadPath::Kernel).unwrap();
    let medium = Arc::new(Watched { file, marker, marked: Mutex::default() });
    let erase_passes = vec![ErasePass::Random, ErasePass::Byte(0xff), ErasePass::Random];
    let options = Options { erase_passes, ..options() };
    let store = Store::create(Box::new(medium.clone()), &options).unwrap();
    let world = begin(&store, &secret());
    write(&store, &world, &marker).unwrap();
    give_up(&store, &world, &marker).unwrap();
    assert!(found(&std::fs::read(&path).unwrap(), &marker) > 100, "the test writes it");
    medium.sync().unwrap();
    store.checkpoint().unwrap();
    assert_eq!(found(&std::fs::read(&path).unwrap(), &marker), 0);
    is_whole(&store, &world);
    let told = std::mem::take(&mut *medium.marked.lock().unwrap());
    assert!(told.len() > 50, "{}", told.len());
    for (block, told) in told {
        let mut told = told;
        told.dedup_by(|a, b| (*a, *b) == (Said::Synced, Said::Synced));
        let erased = told.iter().position(|said| *said == Said::Erased).unwrap();
        let passes = [Said::Random, Said::Bytes(0xff), Said::Random, Said::Bytes(0)];
        let wanted: Vec<_> = passes.into_iter().flat_map(|pass| [pass, Said::Synced]).collect();
        assert!(told[..erased].ends_with(&wanted), "block {block}: {told:?}");
    }
}

#[test]
fn a_whole_s_node_leaves_nothing() {
    let marker: Marker = StdRng::seed_from_u64(9).random();
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let World { snode, root, number, .. } = begin(&store, &secret());
    let mut tx = store.begin();
    for at in 0..50u64 {
        let node = tx.create_node(snode, PLAIN, &marked(&marker, 32 + at as usize * 90)).unwrap();
        tx.create_edge(root, number, Info::Number(at), node).unwrap();
    }
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    let mut tx = store.begin();
    (0..50).for_each(|at| tx.delete_edge(root, number, Info::Number(at)).map(|_| ()).unwrap());
    tx.delete_snode(snode).unwrap();
    tx.commit().unwrap();
    assert!(found(&medium.to_bytes(), &marker) > 50);
    store.close().unwrap();
    assert_eq!(found(&medium.to_bytes(), &marker), 0);
}

/// A node, and what its data is.
#[derive(Clone)]
struct Changed {
    node: NodeId,
    kind: NodeType,
    /// Bytes of its key, which stay.
    key: usize,
    data: Vec<u8>,
}

impl Changed {
    fn update(&mut self, tx: &mut Transaction<'_>, rest: &[u8]) {
        self.data.truncate(self.key);
        self.data.extend(rest);
        tx.update_node(self.node, self.kind, &self.data).unwrap();
    }

    fn resize(&mut self, tx: &mut Transaction<'_>, len: usize) {
        self.data.resize(self.key.max(len), 0);
        tx.resize_node(self.node, self.kind, self.data.len()).unwrap();
    }

    fn write_at(&mut self, tx: &mut Transaction<'_>, at: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.data.resize(self.data.len().max(at + bytes.len()), 0);
        }
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
        tx.write_at(self.node, self.kind, at as u64, bytes).unwrap();
    }

    /// Changes it in some way, to data that has the marker.
    fn mark(&mut self, tx: &mut Transaction<'_>, rng: &mut StdRng, marker: &Marker) {
        let bytes = marked(marker, any_len(rng));
        match rng.random_range(0..5) {
            0 => self.update(tx, &bytes),
            1 => {
                let at = rng.random_range(self.key..=self.data.len());
                self.write_at(tx, at, &bytes);
            }
            2 => {
                self.data.extend(&bytes);
                tx.append(self.node, self.kind, &bytes).unwrap();
            }
            3 => self.resize(tx, bytes.len()),
            _ => tx.reserve_node(self.node, self.kind, bytes.len() as u64).unwrap(),
        }
    }

    /// Gives it data that has not.
    fn clear(&mut self, tx: &mut Transaction<'_>, rng: &mut StdRng) {
        let harmless = vec![7; any_len(rng)];
        match rng.random_range(0..3) {
            0 => self.update(tx, &harmless),
            1 => self.resize(tx, self.key),
            _ => {
                let len = self.data.len().min(self.key + harmless.len());
                self.resize(tx, len);
                self.write_at(tx, self.key, &vec![9; len - self.key]);
            }
        }
    }
}

/// A length, often one at which a slot or a page ends.
fn any_len(rng: &mut StdRng) -> usize {
    let len = [0, 10, 80, 700, 2_000, 4_080, 4_088, 6_000, 8_184, 20_000, 70_000][rng.random_range(0..11)];
    (len + rng.random_range(0..20usize)).saturating_sub(10)
}

#[test]
fn whatever_one_transaction_does_to_a_node_nothing_is_left_behind_its_end() {
    let seeds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 1_000 } else { 30 };
    for seed in 0..seeds {
        let rng = &mut StdRng::seed_from_u64(seed);
        let marker: Marker = rng.random();
        let medium = Arc::new(MemoryStore::new());
        let options = Options { journal_bytes: 256 << 10, ..options() };
        let store = Store::create(Box::new(medium.clone()), &options).unwrap();
        let World { snode, root, number, key } = begin(&store, &secret());
        let mut nodes = Vec::new();
        let mut tx = store.begin();
        for at in 0..6u8 {
            let (kind, info, data) = match at % 2 {
                0 => (PLAIN, Info::Number(at.into()), Vec::new()),
                _ => (KEYED, Info::Key(&[at; 5_000][..any_len(rng).clamp(1, 5_000)]), Vec::new()),
            };
            let data = if let Info::Key(name) = info { keyed(name, b"") } else { data };
            let key_len = data.len();
            let data = [data, vec![at; any_len(rng)]].concat();
            let node = tx.create_node(snode, kind, &data).unwrap();
            tx.create_edge(root, if kind == PLAIN { number } else { key }, info, node).unwrap();
            nodes.push(Changed { node, kind, key: key_len, data });
        }
        tx.commit().unwrap();
        let mut writes = 0;
        for _ in 0..3 {
            for _ in 0..3 {
                let mut tx = store.begin();
                for _ in 0..4 {
                    let (savepoint, before) = (rng.random::<bool>().then(|| tx.savepoint()), nodes.clone());
                    for _ in 0..rng.random_range(0..4) {
                        let node = &mut nodes[rng.random_range(0..6)];
                        if rng.random_ratio(1, 4) {
                            node.clear(&mut tx, rng);
                        } else {
                            node.mark(&mut tx, rng, &marker);
                        }
                        writes += 1;
                    }
                    if let Some(savepoint) = savepoint.filter(|_| rng.random()) {
                        tx.undo_to(savepoint).unwrap();
                        nodes = before;
                    }
                }
                if rng.random() {
                    nodes.iter_mut().for_each(|node| node.clear(&mut tx, rng));
                }
                tx.commit().unwrap();
            }
            let mut tx = store.begin();
            nodes.iter_mut().for_each(|node| {
                node.mark(&mut tx, rng, &marker);
                node.clear(&mut tx, rng);
            });
            tx.commit().unwrap();
            store.checkpoint().unwrap();
            assert_eq!(found(&medium.to_bytes(), &marker), 0, "seed {seed}");
            for Changed { node, kind, data, .. } in &nodes {
                assert!(store.read_node(*node, *kind).unwrap() == *data, "seed {seed}, node {node}");
            }
        }
        assert!(writes > 10);
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn what_a_snapshot_keeps_goes_with_the_first_checkpoint_after_it() {
    let marker: Marker = StdRng::seed_from_u64(10).random();
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let World { snode, root, number, .. } = begin(&store, &secret());
    let mut tx = store.begin();
    let node = tx.create_node(snode, PLAIN, &marked(&marker, 50_000)).unwrap();
    tx.create_edge(root, number, Info::Number(1), node).unwrap();
    tx.commit().unwrap();
    let snapshot = store.snapshot();
    let mut tx = store.begin();
    tx.delete_edge(root, number, Info::Number(1)).unwrap();
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    assert!(snapshot.read_node(node, PLAIN).unwrap() == marked(&marker, 50_000));
    drop(snapshot);
    store.checkpoint().unwrap();
    assert_eq!(found(&medium.to_bytes(), &marker), 0);
}

#[test]
fn what_a_transaction_wrote_that_never_committed_is_gone_after_the_next_opening() {
    let marker: Marker = StdRng::seed_from_u64(13).random();
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let World { snode, root, number, .. } = begin(&store, &secret());
    let mut tx = store.begin();
    let node = tx.create_node(snode, PLAIN, &[7; 100]).unwrap();
    tx.create_edge(root, number, Info::Number(0), node).unwrap();
    tx.commit().unwrap();
    // In the same page as a node that is committed, and in pages of its own.
    let mut open = store.begin();
    for len in [100, 20_000] {
        let node = open.create_node(snode, PLAIN, &marked(&marker, len)).unwrap();
        open.create_edge(root, number, Info::Number(len as u64), node).unwrap();
    }
    store.checkpoint().unwrap();
    // As if the process were killed now.
    let killed = Arc::new(MemoryStore::from_bytes(medium.to_bytes()));
    assert!(found(&killed.to_bytes(), &marker) > 6);
    let again = Store::open(Box::new(killed.clone()), &options()).unwrap();
    assert_eq!(found(&killed.to_bytes(), &marker), 0);
    assert!(again.read_node(node, PLAIN).unwrap() == [7; 100]);
    drop(open);
    store.close().unwrap();
    assert_eq!(found(&medium.to_bytes(), &marker), 0);
}

#[test]
fn a_slot_is_cleared_after_its_page_was_written_not_meanwhile() {
    let begun = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(begun.clone()), &options()).unwrap();
    let World { snode, root, number, .. } = begin(&store, &secret());
    store.close().unwrap();
    let medium = Arc::new(PowerCutStore::new(begun.to_bytes(), u64::MAX));
    let store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    let make = |numbers: std::ops::Range<u64>, gone: Option<u64>| {
        let mut tx = store.begin();
        for n in numbers {
            // Three in a page.
            let node = tx.create_node(snode, PLAIN, &[n as u8 + 1; 1_300]).unwrap();
            tx.create_edge(root, number, Info::Number(n), node).unwrap();
        }
        if let Some(gone) = gone {
            tx.delete_edge(root, number, Info::Number(gone)).unwrap();
        }
        tx.commit().unwrap();
    };
    make(0..1, None);
    // Fills the page that it takes a node out of.
    make(1..3, Some(0));
    for seed in 0..10 {
        let after = Store::open(Box::new(medium.after_power_cut(seed)), &options()).unwrap();
        for n in 0..3u64 {
            let node = after.edge(root, number, Info::Number(n)).unwrap();
            let data = node.map(|node| after.read_node(node, PLAIN).unwrap());
            assert!(data == (n > 0).then(|| vec![n as u8 + 1; 1_300]), "node {n} of seed {seed}");
        }
        assert!(after.check().unwrap().problems.is_empty());
    }
}

#[test]
fn a_power_cut_at_any_point_leaves_no_more_than_an_opening_finds() {
    let marker: Marker = StdRng::seed_from_u64(11).random();
    let begun = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(begun.clone()), &options()).unwrap();
    let world = begin(&store, &secret());
    store.close().unwrap();
    let image = begun.to_bytes();
    let medium = Arc::new(PowerCutStore::new(image.clone(), u64::MAX));
    run(Box::new(medium.clone()), &world, &marker).unwrap();
    assert_eq!(found(&medium.after_power_cut(0).to_bytes(), &marker), 0);
    let operations = medium.operations();
    let (mut left, mut opened_clean) = (0, 0);
    for cut_at in 0..operations {
        let medium = Arc::new(PowerCutStore::new(image.clone(), cut_at));
        run(Box::new(medium.clone()), &world, &marker).unwrap_err();
        let after = medium.after_power_cut(cut_at);
        left += usize::from(found(&after.to_bytes(), &marker) > 0);
        // Power fails once more, while the opening erases.
        let again = Arc::new(PowerCutStore::new(after.to_bytes(), cut_at % 11));
        drop(Store::open(Box::new(again.clone()), &options()));
        let after = Arc::new(again.after_power_cut(cut_at));
        let store = Store::open(Box::new(after.clone()), &options()).unwrap();
        let edges = store.edges(world.root).unwrap();
        if edges.is_empty() {
            // All that there was is given up: the opening has erased it.
            assert_eq!(found(&after.to_bytes(), &marker), 0, "cut at {cut_at}: opened");
            opened_clean += 1;
        }
        let mut tx = store.begin();
        for edge in edges {
            tx.delete_edge(world.root, edge.etype, Info::Number(edge.number.unwrap())).unwrap();
        }
        tx.commit().unwrap();
        store.checkpoint().unwrap();
        assert_eq!(found(&after.to_bytes(), &marker), 0, "cut at {cut_at}");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
    assert!(left > 20 && opened_clean > 5, "{operations} cuts: {left} left something, {opened_clean} opened");
    assert!(medium.blocks() > 0);
}
