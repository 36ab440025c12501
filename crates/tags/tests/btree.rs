//! The B+tree against a map in memory: random changes, aborts, transactions within transactions, closes and crashes.
//! `WEFT_CAMPAIGN=1` runs five million operations.

#![allow(clippy::unwrap_used)]

#[path = "support/power_cut.rs"]
mod power_cut;

use power_cut::PowerCutStore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use weft_tags::{
    BTree, BTreeForm, Direction, Durability, Error, FileStore, MemoryStore, Options, PageStore, ReadPath,
    SnodeId, Store,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options { cache_bytes: 8 << 20, journal_bytes: 2 << 20, ..Options::default() }
}

fn tree(store: &Store, form: BTreeForm) -> BTree<'_> {
    BTree::open(store, SnodeId::FIRST, "tree", form).unwrap()
}

/// Keys that share long beginnings, some longer than a cell takes.
fn key(rng: &mut StdRng, form: BTreeForm, keys: u32) -> Vec<u8> {
    let number = rng.random_range(0..keys);
    if form == BTreeForm::Fixed {
        return number.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec();
    }
    let mut key = match number % 40 {
        0 => vec![b'k'; 70 + number as usize % 400],
        1 => vec![b'k'; 2000],
        2 => vec![b'k'; 60],
        3 => Vec::new(),
        _ => b"key ".to_vec(),
    };
    key.extend_from_slice(number.to_string().as_bytes());
    key
}

fn value(rng: &mut StdRng, form: BTreeForm) -> Vec<u8> {
    let bytes = match rng.random_range(0..100) {
        _ if form == BTreeForm::Fixed => 8,
        0 => rng.random_range(500..20_000),
        1..=20 => rng.random_range(100..500),
        _ => rng.random_range(0..40),
    };
    vec![rng.random(); bytes]
}

fn compare(store: &Store, form: BTreeForm, wanted: &Map) {
    let tree = tree(store, form);
    let report = tree.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.pairs, tree.count().unwrap()), (wanted.len() as u64, wanted.len() as u64));
    let up = tree.range::<&[u8]>(.., Direction::Up).unwrap().map(Result::unwrap);
    assert!(up.eq(wanted.iter().map(|(key, value)| (key.clone(), value.clone()))), "upwards");
    let down = tree.range::<&[u8]>(.., Direction::Down).unwrap().map(Result::unwrap);
    assert!(down.eq(wanted.iter().rev().map(|(key, value)| (key.clone(), value.clone()))), "downwards");
    if form == BTreeForm::Fixed {
        // Keys that are there and keys that are not, by turns.
        let number = |key: &Vec<u8>| u32::from_be_bytes(key[..].try_into().unwrap());
        let keys: Vec<u32> = wanted.keys().rev().map(number).flat_map(|key| [key, key ^ 1]).collect();
        let mut found = Vec::new();
        tree.get_fixed(&keys, |at, value| found.push((at, value))).unwrap();
        let value = |value: &Vec<u8>| u64::from_le_bytes(value[..].try_into().unwrap());
        let single = |key: &u32| wanted.get(&key.to_be_bytes()[..]).map(value);
        assert!(found.into_iter().eq(keys.iter().map(single).enumerate()), "together");
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

fn operate(
    rng: &mut StdRng,
    tree: &BTree<'_>,
    tx: &mut weft_tags::Transaction<'_>,
    map: &mut Map,
    keys: u32,
    grow: f64,
) {
    let form = tree.form();
    if form == BTreeForm::Fixed && rng.random_bool(0.02) {
        return operate_on_many(rng, tree, tx, map, keys, grow);
    }
    let key = key(rng, form, keys);
    match rng.random_range(0..100) {
        0..=69 => {
            if rng.random_bool(grow) {
                let value = value(rng, form);
                let there = tree.insert_in(tx, &key, &value).unwrap();
                assert_eq!(there, map.insert(key, value).is_some());
            } else {
                assert_eq!(tree.delete_in(tx, &key).unwrap(), map.remove(&key).is_some());
            }
        }
        70..=89 => assert_eq!(tree.get_in(tx, &key).unwrap().as_ref(), map.get(&key)),
        90..=94 => {
            let mut range = tree.range(key.clone().., Direction::Up).unwrap();
            let mut wanted = map.range(key..);
            for _ in 0..rng.random_range(1..20) {
                let next = wanted.next().map(|(key, value)| (key.clone(), value.clone()));
                assert_eq!(range.next_in(tx).unwrap(), next);
            }
        }
        _ => {
            let mut range = tree.range(..key.clone(), Direction::Down).unwrap();
            let mut wanted = map.range(..key).rev();
            for _ in 0..rng.random_range(1..20) {
                let next = wanted.next().map(|(key, value)| (key.clone(), value.clone()));
                assert_eq!(range.next_in(tx).unwrap(), next);
            }
        }
    }
}

/// Keys that are near each other and keys that are not, some of them twice.
fn operate_on_many(
    rng: &mut StdRng,
    tree: &BTree<'_>,
    tx: &mut weft_tags::Transaction<'_>,
    map: &mut Map,
    keys: u32,
    grow: f64,
) {
    let (count, spread) = (rng.random_range(0..400), rng.random_range(1..keys));
    let key = |rng: &mut StdRng| rng.random_range(0..spread).wrapping_mul(0x9e37_79b9);
    let mut seen = Vec::new();
    if rng.random_bool(grow) {
        let pairs: Vec<(u32, u64)> = (0..count).map(|_| (key(rng), rng.random())).collect();
        tree.insert_fixed_in(tx, &pairs, |at, found| seen.push((at, found))).unwrap();
        let mut insert = |(key, value): &(u32, u64)| {
            map.insert(key.to_be_bytes().into(), value.to_le_bytes().into()).is_some()
        };
        assert!(seen.into_iter().eq(pairs.iter().map(&mut insert).enumerate()));
    } else {
        let gone: Vec<u32> = (0..count).map(|_| key(rng)).collect();
        tree.delete_fixed_in(tx, &gone, |at, found| seen.push((at, found))).unwrap();
        let mut remove = |key: &u32| map.remove(&key.to_be_bytes()[..]).is_some();
        assert!(seen.into_iter().eq(gone.iter().map(&mut remove).enumerate()));
    }
}

fn run(seed: u64, form: BTreeForm, operations: u32, medium: Arc<dyn PageStore>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let options = Options { cache_bytes: [8, 2, 3, 1][seed as usize % 4] << 20, ..options() };
    let mut store = Store::create(Box::new(medium.clone()), &options).unwrap();
    let keys = *[50, 3000, 100_000].get(rng.random_range(0..3usize)).unwrap();
    let mut map = Map::new();
    let mut done = 0;
    while done < operations {
        // It grows and shrinks by turns, so that nodes are parted and joined.
        let grow = if done / 4000 % 2 == 0 { 0.8 } else { 0.2 };
        let mut now = map.clone();
        {
            let tree = tree(&store, form);
            let mut tx = store.begin();
            if rng.random_bool(0.7) {
                tx.durability(Durability::None);
            }
            let mut savepoints = Vec::new();
            for _ in 0..rng.random_range(1..300) {
                done += 1;
                match rng.random_range(0..60) {
                    0 => savepoints.push((tx.savepoint(), now.clone())),
                    1 if !savepoints.is_empty() => {
                        let at = rng.random_range(0..savepoints.len());
                        savepoints.truncate(at + 1);
                        tx.undo_to(savepoints[at].0).unwrap();
                        now = savepoints[at].1.clone();
                    }
                    2 if !savepoints.is_empty() => {
                        let at = rng.random_range(0..savepoints.len());
                        tx.forget(savepoints[at].0).unwrap();
                        savepoints.truncate(at);
                    }
                    _ => operate(&mut rng, &tree, &mut tx, &mut now, keys, grow),
                }
            }
            if rng.random_bool(0.15) {
                tx.abort();
            } else {
                tx.commit().unwrap();
                map = now;
            }
        }
        match rng.random_range(0..40) {
            0 => store.checkpoint().unwrap(),
            1 => {
                store.close().unwrap();
                store = Store::open(Box::new(medium.clone()), &options).unwrap();
                compare(&store, form, &map);
            }
            2 => {
                store.sync().unwrap();
                drop(store);
                store = Store::open(Box::new(medium.clone()), &options).unwrap();
                compare(&store, form, &map);
            }
            _ => {}
        }
    }
    compare(&store, form, &map);
    // What is taken out leaves nothing behind.
    let tree = tree(&store, form);
    for key in map.keys() {
        assert!(tree.delete(key).unwrap());
    }
    compare(&store, form, &Map::new());
    assert_eq!(store.check().unwrap().nodes, 3, "the root of the s-node, the anchor, the root of the tree");
}

#[test]
fn random_changes_do_what_a_map_does() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let (seeds, operations) = if campaign { (50, 50_000) } else { (4, 12_000) };
    for seed in 0..seeds {
        for form in [BTreeForm::Bytes, BTreeForm::Fixed] {
            run(seed, form, operations, Arc::new(MemoryStore::new()));
            let dir = tempfile::tempdir().unwrap();
            let mapped = FileStore::create(&dir.path().join("store"), ReadPath::Mapped).unwrap();
            run(seed, form, operations / 6, Arc::new(mapped));
        }
    }
}

#[test]
fn pairs_of_just_more_than_a_leaf_has_room_for_are_loaded_into_two() {
    let store = Store::create(Box::new(MemoryStore::new()), &options()).unwrap();
    let tree = tree(&store, BTreeForm::Bytes);
    // With their lengths and slots, five of them take the 4,088 bytes of a node's data, and leave none for its header.
    let pair = |n: u8| (vec![n; 400], vec![n; if n % 5 == 4 { 410 } else { 412 }]);
    assert_eq!(tree.load((0..20).map(pair), 100).unwrap(), 20);
    for n in 0..20 {
        assert_eq!(tree.get(&pair(n).0).unwrap(), Some(pair(n).1));
    }
    assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_loaded_tree_has_every_pair_and_leaves_as_full_as_was_said() {
    for (form, pairs) in [(BTreeForm::Fixed, 300_000u32), (BTreeForm::Bytes, 30_000)] {
        let options = Options { cache_bytes: 32 << 20, ..Options::default() };
        let store = Store::create(Box::new(MemoryStore::new()), &options).unwrap();
        let tree = tree(&store, form);
        let pair = |n: u32| ((n * 3).to_be_bytes().to_vec(), u64::from(n).to_le_bytes().to_vec());
        assert_eq!(tree.load((0..pairs).map(pair), 80).unwrap(), u64::from(pairs));
        let report = tree.check().unwrap();
        assert_eq!((report.pairs, report.problems.len()), (u64::from(pairs), 0));
        assert!((78..=80).contains(&report.fill_percent), "{report:?}");
        for n in [0, 1, 339, 340, pairs / 2, pairs - 1] {
            assert_eq!(tree.get(&pair(n).0).unwrap(), Some(pair(n).1));
            assert_eq!(tree.get(&(n * 3 + 1).to_be_bytes()).unwrap(), None);
        }
        assert!(matches!(tree.load([pair(5)], 80), Err(Error::Unordered)));
        assert!(matches!(tree.load([pair(pairs + 2), pair(pairs + 1)], 80), Err(Error::Unordered)));
        assert!(matches!(tree.load([], 5), Err(Error::BadOption { .. })));
        assert_eq!(tree.load((pairs..pairs + 1000).map(pair), 80).unwrap(), 1000);
        assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
        if form == BTreeForm::Fixed {
            let keys: Vec<u32> = (0..1000).map(|n| n * 299).collect();
            let mut seen = 0;
            tree.get_fixed(&keys, |at, value| {
                assert_eq!(at, seen);
                assert_eq!(value, keys[at].is_multiple_of(3).then_some(u64::from(keys[at] / 3)));
                seen += 1;
            })
            .unwrap();
            assert_eq!(seen, keys.len());
        }
    }
}

#[test]
fn a_range_stays_valid_while_others_change_the_tree() {
    let store = Store::create(Box::new(MemoryStore::new()), &options()).unwrap();
    let tree = tree(&store, BTreeForm::Bytes);
    let key = |n: u32| n.to_be_bytes();
    for n in (0..2000).step_by(2) {
        tree.insert(&key(n), b"old").unwrap();
    }
    for direction in [Direction::Up, Direction::Down] {
        let mut seen = Vec::new();
        let mut round = 0;
        for pair in tree.range::<&[u8]>(.., direction).unwrap() {
            let n = u32::from_be_bytes(pair.unwrap().0.try_into().unwrap());
            seen.push(n);
            round += 1;
            if round % 50 == 0 {
                // The pair it stands on goes; one behind it and one before it come.
                tree.delete(&key(n)).unwrap();
                tree.insert(&key(n + 1), b"new").unwrap();
                tree.insert(&key(n.wrapping_sub(1)), b"new").unwrap();
            }
        }
        let sorted =
            if direction == Direction::Up { seen.is_sorted() } else { seen.is_sorted_by(|a, b| a > b) };
        assert!(sorted);
        assert!(seen.len() >= 1000, "{}", seen.len());
    }
    let some = |from: u32, to: u32, direction| {
        let pairs = tree.range(key(from)..key(to), direction).unwrap();
        pairs.map(|pair| u32::from_be_bytes(pair.unwrap().0.try_into().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(some(300, 308, Direction::Up), [300, 302, 304, 306]);
    assert_eq!(some(300, 308, Direction::Down), [306, 304, 302, 300]);
    assert!(some(308, 300, Direction::Up).is_empty());
}

#[test]
fn a_tree_is_opened_with_its_own_form_and_sizes_alone() {
    let store = Store::create(Box::new(MemoryStore::new()), &options()).unwrap();
    assert!(BTree::find(&store, SnodeId::FIRST, "tree").unwrap().is_none());
    let fixed = tree(&store, BTreeForm::Fixed);
    assert!(matches!(
        BTree::open(&store, SnodeId::FIRST, "tree", BTreeForm::Bytes),
        Err(Error::OtherForm(_))
    ));
    assert!(matches!(fixed.insert(b"12345", &[0; 8]), Err(Error::WrongSize { .. })));
    assert!(matches!(fixed.insert(b"1234", &[0; 7]), Err(Error::WrongSize { .. })));
    assert!(matches!(fixed.range(b"1".to_vec().., Direction::Up), Err(Error::WrongSize { .. })));
    let other = BTree::open(&store, SnodeId::FIRST, "other", BTreeForm::Bytes).unwrap();
    assert!(matches!(other.get_fixed(&[1], |_, _| ()), Err(Error::OtherForm(_))));
    let mut tx = store.begin();
    assert!(matches!(other.insert_fixed_in(&mut tx, &[(1, 1)], |_, _| ()), Err(Error::OtherForm(_))));
    assert!(matches!(other.delete_fixed_in(&mut tx, &[1], |_, _| ()), Err(Error::OtherForm(_))));
    drop(tx);
    assert_eq!(BTree::names(&store, SnodeId::FIRST).unwrap(), ["other", "tree"]);
}

#[test]
fn after_a_power_cut_at_any_write_the_tree_is_that_of_some_commit_from_the_last_durable_one_on() {
    let fresh = Arc::new(MemoryStore::new());
    let small = Options { cache_bytes: 2 << 20, journal_bytes: 512 << 10, ..Options::default() };
    let store = Store::create(Box::new(fresh.clone()), &small).unwrap();
    tree(&store, BTreeForm::Bytes);
    store.close().unwrap();
    let image = fresh.to_bytes();
    // Each transaction changes the whole middle of the tree, so nodes are parted and joined.
    let work = |medium: Arc<PowerCutStore>, seed: u64, states: &mut Vec<Map>| -> Result<(), Error> {
        let mut rng = StdRng::seed_from_u64(seed);
        let store = Store::open(Box::new(medium), &small)?;
        for step in 0..25 {
            let tree = tree(&store, BTreeForm::Bytes);
            let mut now = states.last().unwrap().clone();
            let mut tx = store.begin();
            for _ in 0..60 {
                operate(&mut rng, &tree, &mut tx, &mut now, 800, if step < 14 { 0.9 } else { 0.1 });
            }
            states.push(now);
            tx.commit()?;
            if step % 8 == 7 {
                store.checkpoint()?;
            }
        }
        Ok(())
    };
    let seeds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 30 } else { 2 };
    for seed in 0..seeds {
        let whole = Arc::new(PowerCutStore::new(image.clone(), u64::MAX));
        work(whole.clone(), seed, &mut vec![Map::new()]).unwrap();
        for cut_at in 0..whole.operations() {
            let medium = Arc::new(PowerCutStore::new(image.clone(), cut_at));
            let mut states = vec![Map::new()];
            let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                work(medium.clone(), seed, &mut states)
            }));
            assert!(!matches!(failed, Ok(Ok(()))));
            let store = Store::open(Box::new(medium.after_power_cut(cut_at)), &small)
                .unwrap_or_else(|error| panic!("cut at {cut_at}: {error}"));
            let found: Map = tree(&store, BTreeForm::Bytes)
                .range::<&[u8]>(.., Direction::Up)
                .unwrap()
                .map(Result::unwrap)
                .collect();
            // The last state may be that of the commit during which power failed.
            let durable = states.len().saturating_sub(2);
            assert!(states[durable..].contains(&found), "cut at {cut_at}: another state");
            compare(&store, BTreeForm::Bytes, &found);
        }
    }
}

/// A medium that says when it is read, and waits then.
struct Watched {
    inner: MemoryStore,
    watch: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl PageStore for Watched {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.inner.write(block, tag, parts)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        let watch = self.watch.lock().unwrap().take_if(|_| reads.len() > 1);
        if let Some((begun, go_on)) = watch {
            begun.send(()).unwrap();
            go_on.recv().unwrap();
        }
        self.inner.read_many(reads)
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
fn many_keys_are_found_where_they_are_after_leaves_were_parted_while_these_were_read() {
    let medium = Arc::new(Watched { inner: MemoryStore::new(), watch: Mutex::default() });
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let pair = |key: u32| (key.to_be_bytes().to_vec(), u64::from(key).to_le_bytes().to_vec());
    tree(&store, BTreeForm::Fixed).load((0..20_000).map(|n| pair(n * 10)), 100).unwrap();
    store.close().unwrap();
    let store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    let tree = tree(&store, BTreeForm::Fixed);
    // Full leaves: each of the last pairs of some goes into a new leaf.
    let keys: Vec<u32> = (1..30).map(|leaf| (leaf * 340 - 1) * 10).collect();
    let ((begun, is_begun), (go_on, goes_on)) = (channel(), channel());
    *medium.watch.lock().unwrap() = Some((begun, goes_on));
    std::thread::scope(|scope| {
        let (tree, keys) = (&tree, &keys);
        let meddler = scope.spawn(move || {
            is_begun.recv().unwrap();
            for key in keys {
                assert!(!tree.insert(&(key - 505).to_be_bytes(), &[0; 8]).unwrap());
            }
            go_on.send(()).unwrap();
        });
        let mut found = Vec::new();
        tree.get_fixed(keys, |_, value| found.push(value)).unwrap();
        assert_eq!(found, keys.iter().map(|key| Some(u64::from(*key))).collect::<Vec<_>>());
        meddler.join().unwrap();
    });
}

#[test]
fn a_tree_is_found_again_by_its_place_whatever_has_become_of_it() {
    let store = Store::create(Box::new(MemoryStore::new()), &options()).unwrap();
    let place = tree(&store, BTreeForm::Bytes).place();
    for number in 0..5_000u32 {
        place.of(&store).insert(&number.to_be_bytes(), b"value").unwrap();
    }
    // Its root has been split twice by now.
    let found = tree(&store, BTreeForm::Bytes);
    assert_eq!((found.count().unwrap(), place.of(&store).count().unwrap()), (5_000, 5_000));
    assert!(place.of(&store).delete(&7u32.to_be_bytes()).unwrap());
    assert_eq!(found.get(&7u32.to_be_bytes()).unwrap(), None);
    assert_eq!(found.check().unwrap().problems, [""; 0]);
}
