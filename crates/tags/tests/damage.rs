//! Damaged stores: what opens is what was stored, and what is not is a typed error. `WEFT_CAMPAIGN=1` damages a
//! hundred thousand.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use weft_tags::{
    EdgeType, Error, Info, InfoForm, Kv, MemoryStore, NodeId, NodeType, Options, SnodeId, Store,
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

/// Changes the image by a byte, some bytes, or a page.
fn damage(rng: &mut StdRng, image: &mut [u8]) {
    let pages = image.len() / PAGE;
    // Superblocks are two pages of hundreds, and whatever is not in use is zero: both kinds get their share.
    let page = loop {
        let page = if rng.random_bool(0.1) { rng.random_range(0..2) } else { rng.random_range(0..pages) };
        if rng.random_bool(0.05) || image[page * PAGE..][..PAGE].iter().any(|byte| *byte != 0) {
            break page;
        }
    };
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

fn judge(image: Vec<u8>, closed: &Closed, outcomes: &mut Outcomes, case: &str) {
    let store = match Store::open(Box::new(MemoryStore::from_bytes(image)), &options()) {
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
        Err(Error::Damaged { .. } | Error::Stopped) => whole = false,
        Err(error) => panic!("{case}: {error}"),
    }
    if whole {
        outcomes.whole += 1
    } else {
        outcomes.in_part += 1
    }
    let report = store.check().unwrap();
    assert!(!whole || report.problems.is_empty(), "{case}: {:?}", report.problems);
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
        judge(image, &closed, &mut outcomes, &format!("case {seed}"));
    }
    // The test says nothing unless each outcome is common.
    let least = cases / 50;
    assert!(outcomes.whole > least && outcomes.in_part > least && outcomes.refused > least, "{outcomes:?}");
}
