//! Damaged stores: what opens is what was stored, and what is not is a typed error. `WEFT_CAMPAIGN=1` damages a
//! hundred thousand.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_tags::{
    BTree, BTreeForm, EdgeType, Error, FileStore, Info, InfoForm, Kv, MemoryStore, NodeId, NodeType, Options,
    PageStore, ReadPath, SnodeId, Store,
};

const PLAIN: NodeType = NodeType(5);
const PAGE: usize = 4096;

fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, store_bytes_max: 2 << 20, ..Options::default() }
}

struct Closed {
    image: Vec<u8>,
    etype: EdgeType,
    nodes: Vec<(NodeId, Vec<u8>)>,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

fn closed() -> Closed {
    let mut rng = StdRng::seed_from_u64(2);
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut nodes = Vec::new();
    let mut tx = store.begin();
    for n in 0..150u64 {
        let mut data = vec![0; if n % 30 == 0 { 9_000 } else { rng.random_range(0..1_000) }];
        rng.fill(&mut data[..]);
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &data).unwrap();
        tx.create_edge(root, etype, Info::Number(n), node).unwrap();
        nodes.push((node, data));
    }
    tx.commit().unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let pairs: Vec<_> =
        (0..100u32).map(|n| (n.to_le_bytes().to_vec(), vec![n as u8; rng.random_range(0..200)])).collect();
    for (key, value) in &pairs {
        kv.put(key, value).unwrap();
    }
    store.close().unwrap();
    Closed { image: medium.to_bytes(), etype, nodes, pairs }
}

/// Changes the image by a byte, some bytes, or a page. What a store cannot open without lies twice, so now and then both
/// superblocks are hit.
fn damage(rng: &mut StdRng, image: &mut [u8]) {
    if rng.random_bool(0.03) {
        (0..2).for_each(|page| damage_page(rng, image, page));
        return;
    }
    let pages = image.len() / PAGE;
    // Superblocks are two pages of hundreds, and whatever is not in use is zero: both kinds get their share.
    let page = loop {
        let page = if rng.random_bool(0.1) { rng.random_range(0..2) } else { rng.random_range(0..pages) };
        if rng.random_bool(0.05) || image[page * PAGE..][..PAGE].iter().any(|byte| *byte != 0) {
            break page;
        }
    };
    damage_page(rng, image, page);
}

fn damage_page(rng: &mut StdRng, image: &mut [u8], page: usize) {
    let pages = image.len() / PAGE;
    let other = rng.random_range(0..pages) * PAGE;
    let at = page * PAGE;
    match rng.random_range(0..10) {
        0..=4 => {
            // Near the page's beginning there are counts and lengths.
            let end = if rng.random_bool(0.4) { 128 } else { PAGE };
            let byte = rng.random_range(0..end);
            image[at + byte] ^= 1 << rng.random_range(0..8);
        }
        5 => (0..rng.random_range(2..40)).for_each(|_| image[at + rng.random_range(0..PAGE)] = rng.random()),
        6 => image[at..at + PAGE].fill(0),
        7 => rng.fill(&mut image[at..at + PAGE]),
        8 => image.copy_within(other..other + PAGE, at),
        _ => image[at + rng.random_range(0..8) * 512..at + PAGE].fill(0),
    }
}

#[derive(Default, Debug)]
struct Outcomes {
    whole: u64,
    in_part: u64,
    refused: u64,
}

/// Whether the value is there; `false` for damage that was found. Anything else is a failure.
fn is_there<T: PartialEq>(read: Result<T, Error>, wanted: &T, what: &str) -> bool {
    match read {
        Ok(found) => {
            assert!(found == *wanted, "{what}: wrong data");
            true
        }
        Err(Error::Damaged { .. }) => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

fn judge(medium: Box<dyn PageStore>, closed: &Closed, outcomes: &mut Outcomes, case: &str) {
    let store = match Store::open(medium, &options()) {
        Ok(store) => store,
        Err(Error::Damaged { .. } | Error::NotAStore { .. } | Error::Version { .. }) => {
            outcomes.refused += 1;
            return;
        }
        Err(error) => panic!("{case}: {error}"),
    };
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut whole = true;
    for (n, (node, data)) in (0..).zip(&closed.nodes) {
        whole &= is_there(store.read_node(*node, PLAIN), data, case);
        whole &= is_there(store.edge(root, closed.etype, Info::Number(n)), &Some(*node), case);
    }
    match Kv::open(&store, SnodeId::FIRST, "pairs") {
        Ok(kv) => {
            for (key, value) in &closed.pairs {
                whole &= is_there(kv.get(key), &Some(value.clone()), case);
            }
            // A change either works or says what is damaged; what it does on the way must not panic.
            match kv.put(b"new", b"value") {
                Ok(()) => assert!(is_there(kv.get(b"new"), &Some(b"value".to_vec()), case)),
                Err(Error::Damaged { .. }) => whole = false,
                Err(error) => panic!("{case}: {error}"),
            }
        }
        Err(Error::Damaged { .. } | Error::Stopped { .. }) => whole = false,
        Err(error) => panic!("{case}: {error}"),
    }
    if whole {
        outcomes.whole += 1
    } else {
        outcomes.in_part += 1
    }
    let report = store.check().unwrap();
    // What is kept twice may have one copy left.
    let is_of_a_copy = |problem: &String| problem.starts_with("copy ");
    assert!(!whole || report.problems.iter().all(is_of_a_copy), "{case}: {:?}", report.problems);
}

#[test]
fn a_damaged_store_gives_what_checks_or_says_that_it_is_damaged() {
    let closed = closed();
    let cases = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 100_000 } else { 3_000 };
    let mut outcomes = Outcomes::default();
    for seed in 0..cases {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut image = closed.image.clone();
        (0..rng.random_range(1..4)).for_each(|_| damage(&mut rng, &mut image));
        let case = format!("case {seed}");
        if seed % 12 == 0 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store");
            std::fs::write(&path, &image).unwrap();
            let mapped = FileStore::open(&path, ReadPath::Mapped).unwrap();
            judge(Box::new(mapped), &closed, &mut outcomes, &case);
        } else {
            judge(Box::new(MemoryStore::from_bytes(image)), &closed, &mut outcomes, &case);
        }
    }
    // The test says nothing unless each outcome is common.
    let least = cases / 50;
    assert!(outcomes.whole > least && outcomes.in_part > least && outcomes.refused > least, "{outcomes:?}");
}

#[test]
fn a_damaged_page_that_came_with_its_neighbours_fails_those_look_ups_alone_that_need_it() {
    let pairs = 60_000u32;
    let value = |key: u32| (u64::from(key) * 7).to_le_bytes().to_vec();
    let options = Options { cache_bytes: 4 << 20, ..options() };
    let large = Options { store_bytes_max: 64 << 20, ..options.clone() };
    for reads in [ReadPath::Kernel, ReadPath::Direct, ReadPath::Mapped] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let medium = FileStore::create(&path, ReadPath::Kernel).unwrap();
        let store = Store::create(Box::new(medium), &large).unwrap();
        let tree = BTree::open(&store, SnodeId::FIRST, "tree", BTreeForm::Fixed).unwrap();
        tree.load((0..pairs).map(|key| (key.to_be_bytes().to_vec(), value(key))), 100).unwrap();
        store.close().unwrap();
        // Leaves of 340 pairs: a byte in the middle of the values of some of them.
        let mut image = std::fs::read(&path).unwrap();
        let damaged: Vec<u32> = (0..pairs / 340).filter(|leaf| leaf % 29 == 3).collect();
        for leaf in &damaged {
            let middle = value(leaf * 340 + 170);
            // Blocks that pages have left have it, too.
            let places = image.chunks_exact(8).enumerate().filter(|(_, bytes)| **bytes == middle);
            let places: Vec<usize> = places.map(|(at, _)| at).collect();
            assert!(!places.is_empty());
            places.into_iter().for_each(|at| image[at * 8 + 1] ^= 4);
        }
        std::fs::write(&path, &image).unwrap();
        let medium = FileStore::open(&path, reads).unwrap();
        let store = Store::open(Box::new(medium), &large).unwrap();
        let tree = BTree::find(&store, SnodeId::FIRST, "tree").unwrap().unwrap();
        let is_damaged = |key: u32| damaged.contains(&(key / 340));
        for round in 0..2 {
            for key in (0..pairs).step_by(31) {
                match tree.get(&key.to_be_bytes()) {
                    Ok(found) => assert_eq!((found, is_damaged(key)), (Some(value(key)), false), "{key}"),
                    Err(Error::Damaged { .. }) => assert!(is_damaged(key), "{key} in round {round}"),
                    Err(error) => panic!("{key}: {error}"),
                }
            }
            for first in (0..pairs - 340).step_by(340) {
                let keys: Vec<u32> = (first..first + 340).step_by(3).collect();
                let mut seen = 0;
                let read = tree.get_fixed(&keys, |at, found| {
                    assert_eq!(found, Some(u64::from(keys[at]) * 7));
                    seen += 1;
                });
                assert_eq!(read.is_ok(), !is_damaged(first), "from {first}");
                assert_eq!(seen == keys.len(), read.is_ok());
            }
        }
    }
}

/// A medium with a block that cannot be read until it is written.
struct Unreadable {
    blocks: MemoryStore,
    block: AtomicU64,
}

impl Unreadable {
    fn is_in(&self, block: u64, bytes: usize) -> bool {
        (block..block + (bytes / PAGE) as u64).contains(&self.block.load(Ordering::Relaxed))
    }
}

impl PageStore for Unreadable {
    fn read(&self, block: u64, out: &mut [u8]) -> std::io::Result<()> {
        if self.is_in(block, out.len()) {
            return Err(std::io::Error::other("a bad block"));
        }
        self.blocks.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[std::io::IoSlice<'_>]) -> std::io::Result<()> {
        if self.is_in(block, parts.iter().map(|part| part.len()).sum()) {
            self.block.store(u64::MAX, Ordering::Relaxed);
        }
        self.blocks.write(block, tag, parts)
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.blocks.blocks()
    }

    fn grow(&self, blocks: u64) -> std::io::Result<()> {
        self.blocks.grow(blocks)
    }
}

/// What leads to pages lies twice: superblock, list of leaves, leaves, catalog.
#[test]
fn a_block_that_cannot_be_read_costs_what_is_in_it_and_no_more() {
    let closed = closed();
    let all = closed.nodes.len() + closed.pairs.len();
    let journal = 2..2 + options().journal_bytes / PAGE as u64;
    let mut whole = 0;
    for block in (0..(closed.image.len() / PAGE) as u64).filter(|block| !journal.contains(block)) {
        let blocks = MemoryStore::from_bytes(closed.image.clone());
        let store = Store::open(Box::new(Unreadable { blocks, block: block.into() }), &options());
        let store = store.unwrap_or_else(|error| panic!("block {block}: {error}"));
        let nodes = closed
            .nodes
            .iter()
            .filter(|(node, data)| store.read_node(*node, PLAIN).is_ok_and(|found| found == *data));
        let mut found = nodes.count();
        if let Ok(kv) = Kv::open(&store, SnodeId::FIRST, "pairs") {
            found += closed
                .pairs
                .iter()
                .filter(|(k, v)| kv.get(k).is_ok_and(|found| found.as_ref() == Some(v)))
                .count();
        }
        if found == all && store.check().is_ok_and(|report| report.problems.is_empty()) {
            whole += 1;
            let backup = store.backup(&MemoryStore::new(), |_, _| ());
            backup.unwrap_or_else(|error| panic!("backup, block {block}: {error}"));
        }
    }
    assert!(whole > 10, "{whole} blocks hold what lies twice");
}
