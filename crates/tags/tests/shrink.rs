//! A store that is made smaller: all that it held is there, the medium is shorter, whoever reads or commits meanwhile.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

#[path = "support/power_cut.rs"]
mod power_cut;

use power_cut::PowerCutStore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weft_tags::{
    EdgeType, Error, FileStore, Info, InfoForm, Kv, KvChange, MemoryStore, NodeId, NodeType, Options,
    PageStore, ReadPath, SnodeId, SnodeTags, Store, TagFlags,
};

const PLAIN: NodeType = NodeType(5);

fn options(cache_bytes: u64) -> Options {
    Options { cache_bytes, journal_bytes: 1 << 20, store_bytes_max: 256 << 20, ..Options::default() }
}

/// What a store holds: nodes by their number under the root, and pairs.
struct World {
    snode: SnodeId,
    edge: EdgeType,
    nodes: BTreeMap<u64, (NodeId, Vec<u8>)>,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn begin(store: &Store, flags: TagFlags) -> World {
    let edge = store.edge_type("n", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let snode = tx.create_snode(&SnodeTags { flags, ..SnodeTags::default() }).unwrap();
    tx.commit().unwrap();
    World { snode, edge, nodes: BTreeMap::new(), pairs: BTreeMap::new() }
}

impl World {
    fn fill(&mut self, store: &Store, rng: &mut StdRng, nodes: u64, pairs: u32) {
        let root = store.root(self.snode).unwrap();
        let first = self.nodes.keys().next_back().map_or(0, |last| last + 1);
        for from in (first..first + nodes).step_by(50) {
            let mut tx = store.begin();
            for number in from..(from + 50).min(first + nodes) {
                let len = match number % 10 {
                    0 => rng.random_range(4_500..20_000),
                    1..=3 => rng.random_range(0..900),
                    _ => rng.random_range(2_500..4_000),
                };
                let data = vec![number as u8; len];
                let node = tx.create_node(self.snode, PLAIN, &data).unwrap();
                tx.create_edge(root, self.edge, Info::Number(number), node).unwrap();
                self.nodes.insert(number, (node, data));
            }
            tx.commit().unwrap();
        }
        let kv = Kv::open(store, self.snode, "pairs").unwrap();
        for from in (0..pairs).step_by(200) {
            let new: Vec<_> = (from..(from + 200).min(pairs))
                .map(|key| (key.to_be_bytes().to_vec(), vec![key as u8; rng.random_range(0..60)]))
                .collect();
            let changes: Vec<_> = new.iter().map(|(key, value)| KvChange::Put(key, value)).collect();
            kv.change(&changes).unwrap();
            self.pairs.extend(new);
        }
    }

    fn delete(&mut self, store: &Store, mut goes: impl FnMut(u64) -> bool) {
        let root = store.root(self.snode).unwrap();
        let gone: Vec<u64> = self.nodes.keys().copied().filter(|number| goes(*number)).collect();
        for numbers in gone.chunks(100) {
            let mut tx = store.begin();
            for number in numbers {
                tx.delete_edge(root, self.edge, Info::Number(*number)).unwrap();
                self.nodes.remove(number);
            }
            tx.commit().unwrap();
        }
        let kv = Kv::open(store, self.snode, "pairs").unwrap();
        let gone: Vec<_> = self.pairs.keys().filter(|key| goes(number_of(key))).cloned().collect();
        for keys in gone.chunks(200) {
            kv.change(&keys.iter().map(|key| KvChange::Delete(key)).collect::<Vec<_>>()).unwrap();
            keys.iter().for_each(|key| drop(self.pairs.remove(key)));
        }
    }

    fn judge(&self, store: &Store, case: &str) {
        let root = store.root(self.snode).unwrap();
        for (number, (node, data)) in &self.nodes {
            assert_eq!(store.edge(root, self.edge, Info::Number(*number)).unwrap(), Some(*node), "{case}");
            assert!(store.read_node(*node, PLAIN).unwrap() == *data, "{case}: node {number}");
        }
        let kv = Kv::open(store, self.snode, "pairs").unwrap();
        let pairs: BTreeMap<_, _> = kv.scan().unwrap().map(Result::unwrap).collect();
        assert!(pairs == self.pairs, "{case}: {} pairs of {}", pairs.len(), self.pairs.len());
        for (key, value) in self.pairs.iter().step_by(7) {
            assert_eq!(kv.get(key).unwrap().as_ref(), Some(value), "{case}");
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "{case}");
    }
}

fn number_of(key: &[u8]) -> u64 {
    u64::from(u32::from_be_bytes(key.try_into().unwrap()))
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

/// What a store takes that holds the same and never held more, cut behind its last block.
fn fresh_bytes(dir: &Path, world: &World, options: &Options) -> u64 {
    let path = dir.join("fresh");
    let file = FileStore::create(&path, ReadPath::Kernel).unwrap();
    let store = Store::create(Box::new(file), options).unwrap();
    let mut fresh = begin(&store, TagFlags::empty());
    let root = store.root(fresh.snode).unwrap();
    for (number, (_, data)) in &world.nodes {
        let mut tx = store.begin();
        let node = tx.create_node(fresh.snode, PLAIN, data).unwrap();
        tx.create_edge(root, fresh.edge, Info::Number(*number), node).unwrap();
        fresh.nodes.insert(*number, (node, data.clone()));
        tx.commit().unwrap();
    }
    let kv = Kv::open(&store, fresh.snode, "pairs").unwrap();
    for (key, value) in &world.pairs {
        kv.put(key, value).unwrap();
    }
    store.shrink(|_, _| ()).unwrap();
    store.close().unwrap();
    file_bytes(&path)
}

#[test]
fn a_store_that_has_lost_most_of_its_data_takes_no_more_than_twice_what_the_rest_needs() {
    for reads in [ReadPath::Kernel, ReadPath::Mapped] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = options(8 << 20);
        let mut rng = StdRng::seed_from_u64(11);
        let store = Store::create(Box::new(FileStore::create(&path, reads).unwrap()), &options).unwrap();
        let mut world = begin(&store, TagFlags::empty());
        world.fill(&store, &mut rng, 12_000, 40_000);
        // In stretches, as whole directories are deleted: of pages with many small nodes nearly none has one left.
        world.delete(&store, |number| number % 2_000 >= 100);
        store.checkpoint().unwrap();
        let before = file_bytes(&path);
        assert!(before > 50 << 20, "{before}");
        let mut last = (0, 0);
        let report = store
            .shrink(|moved, all| {
                assert!(moved <= all);
                last = (moved, all);
            })
            .unwrap();
        let after = file_bytes(&path);
        assert_eq!((report.bytes_before, report.bytes_after), (before, after));
        assert_eq!((store.report().medium_bytes, store.report().free_bytes), (after, report.free_bytes));
        assert!(report.pages_moved > 100 && report.tables_merged > 100, "{report:?}");
        assert_eq!((last.0, report.snodes_skipped), (last.1, 0));
        let fresh = fresh_bytes(dir.path(), &world, &options);
        assert!(after < 2 * fresh, "{after} bytes, {fresh} if it were new, {report:?}");
        world.judge(&store, "after it");
        // Nothing is left to be done.
        let again = store.shrink(|_, _| ()).unwrap();
        assert_eq!((again.pages_moved, again.tables_merged), (0, 0));
        assert_eq!((again.bytes_before, again.bytes_after), (after, after));
        store.close().unwrap();
        assert_eq!(file_bytes(&path), after, "the close finds room");
        let store = Store::open(Box::new(FileStore::open(&path, reads).unwrap()), &options).unwrap();
        world.judge(&store, "opened again");
        let again = store.shrink(|_, _| ()).unwrap();
        assert_eq!((again.pages_moved, again.tables_merged, again.bytes_after), (0, 0, after));
        // It can hold as much again.
        world.fill(&store, &mut rng, 1_000, 5_000);
        world.judge(&store, "filled again");
    }
}

/// An image of a store that has lost most of its data, and what is left.
fn emptied(options: &Options, flags: TagFlags, nodes: u64, pairs: u32) -> (Vec<u8>, World) {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), options).unwrap();
    let mut rng = StdRng::seed_from_u64(3);
    let mut world = begin(&store, flags);
    world.fill(&store, &mut rng, nodes, pairs);
    world.delete(&store, |number| number % 100 >= 9);
    store.close().unwrap();
    (medium.to_bytes(), world)
}

#[test]
fn after_a_power_cut_at_any_write_of_a_shrink_all_is_there() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    for flags in [TagFlags::empty(), TagFlags::SECURE_DELETE] {
        let options = Options { journal_bytes: 256 << 10, ..options(1 << 20) };
        let (image, mut world) = emptied(&options, flags, 500, 3_000);
        let mut cut_at = 0;
        loop {
            let medium = Arc::new(PowerCutStore::new(image.clone(), cut_at));
            let case = format!("{flags:?}, cut at {cut_at}");
            let mut put = None;
            let done = Store::open(Box::new(medium.clone()), &options).and_then(|store| {
                let kv = Kv::open(&store, world.snode, "pairs")?;
                let mut steps = 0u32;
                store.shrink(|_, _| {
                    // A commit in the midst of it.
                    steps += 1;
                    if kv.put(&u32::MAX.to_be_bytes(), &steps.to_le_bytes()).is_ok() {
                        put = Some(steps);
                    }
                })?;
                store.close()
            });
            let value = |steps: u32| steps.to_le_bytes().to_vec();
            let left = medium.after_power_cut(cut_at);
            let store =
                Store::open(Box::new(left), &options).unwrap_or_else(|error| panic!("{case}: {error}"));
            let kv = Kv::open(&store, world.snode, "pairs").unwrap();
            let found = kv.get(&u32::MAX.to_be_bytes()).unwrap();
            assert!(found >= put.map(value), "{case}: {put:?} was durable, {found:?} is there");
            world.pairs.remove(&u32::MAX.to_be_bytes()[..]);
            world.pairs.extend(found.map(|found| (u32::MAX.to_be_bytes().to_vec(), found)));
            world.judge(&store, &case);
            if done.is_ok() {
                assert!(cut_at > 40, "{cut_at} writes");
                assert!((store.report().medium_bytes as usize) < image.len() / 2, "{case}");
                break;
            }
            assert!(matches!(done, Err(Error::Io { .. } | Error::Stopped { .. })), "{case}: {done:?}");
            // What is left can be made smaller all the same.
            store.shrink(|_, _| ()).unwrap();
            world.judge(&store, &case);
            cut_at += if campaign || cut_at < 30 { 1 } else { 7 };
        }
    }
}

#[test]
fn others_read_and_commit_while_a_store_shrinks() {
    for reads in [ReadPath::Kernel, ReadPath::Direct, ReadPath::Mapped] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = options(4 << 20);
        let store = Store::create(Box::new(FileStore::create(&path, reads).unwrap()), &options).unwrap();
        let mut rng = StdRng::seed_from_u64(21);
        // One that nobody changes, in which nodes are looked at where pages move, and one that changes all the time.
        let (mut still, mut busy) = (begin(&store, TagFlags::empty()), begin(&store, TagFlags::empty()));
        let ended = AtomicBool::new(false);
        for round in 0..3 {
            still.fill(&store, &mut rng, 2_000, 8_000);
            still.delete(&store, |number| number % 64 >= 5);
            store.checkpoint().unwrap();
            let before = file_bytes(&path);
            let looks = AtomicU64::new(0);
            ended.store(false, Relaxed);
            std::thread::scope(|scope| {
                for reader in 0..2u64 {
                    let (store, still, ended, looks) = (&store, &still, &ended, &looks);
                    scope.spawn(move || {
                        let mut rng = StdRng::seed_from_u64(reader);
                        let nodes: Vec<_> = still.nodes.values().collect();
                        let pairs: Vec<_> = still.pairs.iter().collect();
                        let kv = Kv::open(store, still.snode, "pairs").unwrap();
                        while !ended.load(Relaxed) {
                            let (node, data) = nodes[rng.random_range(0..nodes.len())];
                            assert!(store.read_node(*node, PLAIN).unwrap() == *data);
                            let (key, value) = pairs[rng.random_range(0..pairs.len())];
                            assert_eq!(kv.get(key).unwrap().as_ref(), Some(value));
                            looks.fetch_add(1, Relaxed);
                        }
                    });
                }
                let writer = scope.spawn(|| {
                    let mut rng = StdRng::seed_from_u64(round);
                    while !ended.load(Relaxed) {
                        busy.fill(&store, &mut rng, 20, 0);
                        busy.delete(&store, |number| number % 7 != 1);
                    }
                });
                // Ends them, also when this fails: else the scope would wait for ever.
                struct Ending<'a>(&'a AtomicBool);
                impl Drop for Ending<'_> {
                    fn drop(&mut self) {
                        self.0.store(true, Relaxed);
                    }
                }
                let ending = Ending(&ended);
                let report = store.shrink(|_, _| ()).unwrap();
                let seen = looks.load(Relaxed);
                while looks.load(Relaxed) < seen + 100 {
                    std::thread::yield_now();
                }
                drop(ending);
                writer.join().unwrap();
                assert!(report.pages_moved > 0 && report.bytes_after < before, "{report:?}");
            });
            still.judge(&store, "still");
            busy.judge(&store, "busy");
        }
        store.close().unwrap();
        let store = Store::open(Box::new(FileStore::open(&path, reads).unwrap()), &options).unwrap();
        still.judge(&store, "still, opened again");
        busy.judge(&store, "busy, opened again");
    }
}

#[test]
fn a_snapshot_sees_what_it_saw_and_what_it_keeps_is_given_back_after_its_end() {
    for reads in [ReadPath::Kernel, ReadPath::Mapped] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = options(8 << 20);
        let store = Store::create(Box::new(FileStore::create(&path, reads).unwrap()), &options).unwrap();
        let mut rng = StdRng::seed_from_u64(8);
        let mut world = begin(&store, TagFlags::empty());
        world.fill(&store, &mut rng, 2_000, 5_000);
        store.checkpoint().unwrap();
        let (nodes, pairs) = (world.nodes.clone(), world.pairs.clone());
        let snapshot = store.snapshot();
        world.delete(&store, |number| number % 200 >= 11);
        let held = store.shrink(|_, _| ()).unwrap();
        assert_eq!((held.tables_merged, held.snodes_skipped), (0, 2));
        for (node, data) in nodes.values().step_by(3) {
            assert!(snapshot.read_node(*node, PLAIN).unwrap() == *data);
        }
        let kv = Kv::open(&store, world.snode, "pairs").unwrap();
        let seen: BTreeMap<_, _> = kv.at(&snapshot).unwrap().scan().map(Result::unwrap).collect();
        assert!(seen == pairs);
        world.judge(&store, "beside the snapshot");
        drop(snapshot);
        let report = store.shrink(|_, _| ()).unwrap();
        assert!(
            report.tables_merged > 0 && report.bytes_after < held.bytes_after / 2,
            "{held:?}, {report:?}"
        );
        world.judge(&store, "after the snapshot");
    }
}

#[test]
fn an_s_node_that_a_transaction_holds_is_passed_over_and_its_transaction_goes_on() {
    let options = options(4 << 20);
    let (image, world) = emptied(&options, TagFlags::empty(), 300, 5_000);
    let store = Store::open(Box::new(MemoryStore::from_bytes(image)), &options).unwrap();
    let mut tx = store.begin();
    let root = tx.root(world.snode).unwrap();
    let made: Vec<_> = [40, 3_000, 30_000]
        .map(|len| (tx.create_node(world.snode, PLAIN, &vec![9; len]).unwrap(), len))
        .into();
    for (at, (node, _)) in (1_000_000..).zip(&made) {
        tx.create_edge(root, world.edge, Info::Number(at), *node).unwrap();
    }
    let report = store.shrink(|_, _| ()).unwrap();
    assert_eq!((report.snodes_skipped, report.tables_merged), (1, 0));
    assert!(report.bytes_after < report.bytes_before, "its pages move all the same: {report:?}");
    tx.commit().unwrap();
    made.iter().for_each(|(node, len)| assert_eq!(store.read_node(*node, PLAIN).unwrap(), vec![9; *len]));
    world.judge(&store, "after the commit");
    assert!(store.shrink(|_, _| ()).unwrap().tables_merged > 0);
    world.judge(&store, "after the next");
}

#[test]
fn what_is_not_to_be_found_any_more_is_not_in_the_blocks_that_were_left() {
    let options = options(4 << 20);
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(Shared(medium.clone())), &options).unwrap();
    let mut world = begin(&store, TagFlags::SECURE_DELETE);
    let mut rng = StdRng::seed_from_u64(4);
    world.fill(&store, &mut rng, 500, 0);
    let root = store.root(world.snode).unwrap();
    let mut tx = store.begin();
    let secret: Vec<u8> = (0..32).map(|_| rng.random()).collect();
    for number in 10_000..10_020 {
        let node = tx.create_node(world.snode, PLAIN, &secret.repeat(100)).unwrap();
        tx.create_edge(root, world.edge, Info::Number(number), node).unwrap();
        world.nodes.insert(number, (node, secret.repeat(100)));
    }
    tx.commit().unwrap();
    world.delete(&store, |number| number < 480);
    store.shrink(|_, _| ()).unwrap();
    let found = |bytes: &[u8]| bytes.windows(32).filter(|window| *window == &secret[..]).count();
    // Each of them once: they have moved, and where they were there is nothing.
    assert_eq!(found(&medium.to_bytes()), 20 * 100);
    world.judge(&store, "moved");
    world.delete(&store, |_| true);
    store.shrink(|_, _| ()).unwrap();
    assert_eq!(found(&medium.to_bytes()), 0);
    store.close().unwrap();
}

#[test]
fn a_shrink_ends_when_a_writer_fills_what_was_free_before_its_bound() {
    let options = options(4 << 20);
    let (image, mut world) = emptied(&options, TagFlags::empty(), 3_000, 20_000);
    let store = Store::open(Box::new(MemoryStore::from_bytes(image)), &options).unwrap();
    let mut rng = StdRng::seed_from_u64(9);
    let mut rounds = 0;
    let report = store
        .shrink(|_, _| {
            rounds += 1;
            assert!(rounds < 500, "it goes on for ever");
            // More than is left free for the next checkpoints.
            if rounds <= 6 {
                world.fill(&store, &mut rng, 300, 0);
            }
        })
        .unwrap();
    assert!(rounds > 2 && report.pages_moved > 0, "{rounds} rounds, {report:?}");
    world.judge(&store, "after it");
    // What the writer left behind the bound is for the next.
    let again = store.shrink(|_, _| ()).unwrap();
    assert!(again.bytes_after < report.bytes_before, "{report:?}, {again:?}");
    world.judge(&store, "after the next");
}

/// A medium for a backup, which asks what happens while it is written.
struct Target<'a> {
    inner: MemoryStore,
    at_first: std::sync::Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl PageStore for Target<'_> {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let at_first = self.at_first.lock().unwrap().take();
        at_first.into_iter().for_each(|call| call());
        self.inner.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.inner.grow(blocks)
    }
}

#[test]
fn a_shrink_beside_a_backup_moves_nothing_and_says_so() {
    let options = options(4 << 20);
    let (image, world) = emptied(&options, TagFlags::empty(), 1_000, 10_000);
    let store = Store::open(Box::new(MemoryStore::from_bytes(image)), &options).unwrap();
    let mut beside = None;
    let at_first = || beside = Some(store.shrink(|_, _| panic!("a checkpoint frees nothing now")).unwrap());
    let target =
        Target { inner: MemoryStore::new(), at_first: std::sync::Mutex::new(Some(Box::new(at_first))) };
    store.backup(&target, |_, _| ()).unwrap();
    let copy = Store::open(Box::new(MemoryStore::from_bytes(target.inner.to_bytes())), &options).unwrap();
    drop(target);
    world.judge(&copy, "the backup");
    let beside = beside.unwrap();
    assert!(beside.backup_under_way && beside.tables_merged > 0, "{beside:?}");
    assert_eq!(beside.pages_moved, 0);
    let report = store.shrink(|_, _| ()).unwrap();
    assert!(
        !report.backup_under_way && report.bytes_after < beside.bytes_after / 2,
        "{beside:?}, {report:?}"
    );
    world.judge(&store, "after the backup");
}

#[test]
fn a_shrink_of_a_store_that_cannot_grow_and_has_little_room_does_not_stop_it() {
    let all = options(4 << 20);
    let (image, mut world) = emptied(&all, TagFlags::empty(), 500, 5_000);
    let end = image.len() as u64;
    let options = Options { store_bytes_max: end, ..all };
    let medium = Arc::new(MemoryStore::from_bytes(image));
    let store = Store::open(Box::new(Shared(medium)), &options).unwrap();
    let mut rng = StdRng::seed_from_u64(2);
    // From much room to next to none.
    loop {
        store.checkpoint().unwrap();
        let free = store.report().free_bytes;
        let report = store.shrink(|_, _| ()).unwrap();
        store.checkpoint().unwrap();
        world.judge(&store, &format!("{free} bytes free, {report:?}"));
        // What is kept for deletions is not to be had.
        let kept = (end - free) / 64 + (256 * 4096).min(end / 32);
        if free < kept + 400 * 4096 {
            break;
        }
        world.fill(&store, &mut rng, ((free - kept) / 4096 / 8).clamp(10, 500), 0);
    }
}

/// A medium that stays as long as it is.
struct Shared(Arc<MemoryStore>);

impl PageStore for Shared {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.0.grow(blocks)
    }
}
