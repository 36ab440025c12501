//! Recovery with a cache far smaller than the one that the journal was written with.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use weft_tags::{
    Durability, Error, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, PowerCutStore, SnodeId, Store,
};

const PLAIN: NodeType = NodeType(5);

fn options(cache_bytes: u64) -> Options {
    Options { cache_bytes, journal_bytes: 24 << 20, store_bytes_max: 256 << 20, ..Options::default() }
}

struct Crashed {
    image: Vec<u8>,
    nodes: Vec<(NodeId, Vec<u8>)>,
}

/// A store whose journal changes ten times as many pages as the smallest cache has, most of them several times.
fn crashed() -> Crashed {
    let mut rng = StdRng::seed_from_u64(1);
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options(64 << 20)).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut nodes = Vec::new();
    let mut tx = store.begin();
    for n in 0..2_000u64 {
        // The last node alone has more pages than the small cache.
        let bytes = if n == 1_999 { 2 << 20 } else { rng.random_range(500..6_000) };
        let data = vec![n as u8; bytes];
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &data).unwrap();
        tx.create_edge(root, etype, Info::Number(n), node).unwrap();
        nodes.push((node, data));
    }
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    for round in 0..3 {
        let mut tx = store.begin();
        tx.durability(Durability::None);
        for n in 0..nodes.len() {
            if n % 3 == round || n + 1 == nodes.len() && round == 1 {
                continue;
            }
            let (node, data) = &mut nodes[n];
            data.fill(rng.random());
            tx.update_node(*node, PLAIN, data).unwrap();
            // Edges of many sources, so that tables split while the cache is full.
            let to = *node;
            for info in 0..4 {
                let (source, _) = nodes[rng.random_range(0..nodes.len())];
                tx.set_edge(source, etype, Info::Number(1 << 32 | info), to).unwrap();
            }
        }
        tx.commit().unwrap();
        let data = vec![round as u8; 40_000];
        let mut tx = store.begin();
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &data).unwrap();
        tx.create_edge(root, etype, Info::Number(1 << 40 | round as u64), node).unwrap();
        tx.commit().unwrap();
        nodes.push((node, data));
    }
    assert!(store.report().dirty_pages > 2_500, "{}", store.report().dirty_pages);
    drop(store);
    Crashed { image: medium.to_bytes(), nodes }
}

fn compare(store: &Store, crashed: &Crashed) {
    for (node, data) in &crashed.nodes {
        assert!(&store.read_node(*node, PLAIN).unwrap() == data, "node {node}");
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_journal_is_replayed_with_the_smallest_cache() {
    let crashed = crashed();
    let medium = Arc::new(MemoryStore::from_bytes(crashed.image.clone()));
    let small = Store::open(Box::new(medium.clone()), &options(1 << 20)).unwrap();
    assert_eq!(small.report().recovered_commits, 6);
    let (large_node, _) = crashed.nodes[1_999];
    assert!(matches!(small.read_node(large_node, PLAIN), Err(Error::TooLarge { .. })));
    // A page that is written back several times takes one block, not one each time.
    assert!(small.report().medium_bytes <= 96 << 20, "{}", small.report().medium_bytes);
    small.close().unwrap();
    let again = Store::open(Box::new(medium), &options(64 << 20)).unwrap();
    assert_eq!(again.report().recovered_commits, 0);
    compare(&again, &crashed);
}

#[test]
fn power_may_fail_during_a_replay_that_writes_back() {
    let crashed = crashed();
    let medium = Arc::new(PowerCutStore::new(crashed.image.clone(), u64::MAX));
    Store::open(Box::new(medium.clone()), &options(1 << 20)).unwrap();
    let operations = medium.operations();
    assert!(operations > 20, "{operations} writes: the replay has not written back");
    // Some in the midst of it, and each of the checkpoint that ends it.
    let middle = (0..operations - 6).step_by((operations as usize / 3).max(1));
    for cut_at in middle.chain(operations - 6..operations) {
        let medium = Arc::new(PowerCutStore::new(crashed.image.clone(), cut_at));
        let opened = Store::open(Box::new(medium.clone()), &options(1 << 20));
        assert!(matches!(opened, Err(Error::Io { .. })), "cut at {cut_at}");
        let left = medium.after_power_cut(cut_at);
        let left = Arc::new(left);
        Store::open(Box::new(left.clone()), &options(1 << 20)).unwrap().close().unwrap();
        compare(&Store::open(Box::new(left), &options(64 << 20)).unwrap(), &crashed);
    }
}

#[test]
fn a_transaction_of_about_the_journals_size_commits_or_is_refused() {
    let options = Options { journal_bytes: 256 << 10, ..options(4 << 20) };
    let store = Store::create(Box::new(MemoryStore::new()), &options).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut tx = store.begin();
    // A node alone that were too much for the journal would be written elsewhere, past it.
    let nodes = [0, 1, 2, 3, 4].map(|number| {
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &vec![0; 60_000]).unwrap();
        tx.create_edge(root, etype, Info::Number(number), node).unwrap();
        node
    });
    tx.commit().unwrap();
    let (mut committed, mut refused) = (0, 0);
    for len in (245_000..262_000).step_by(500) {
        let mut tx = store.begin();
        for node in nodes {
            tx.update_node(node, PLAIN, &vec![len as u8; len / nodes.len()]).unwrap();
        }
        match tx.commit() {
            Ok(_) => committed += 1,
            Err(Error::TooLarge { .. }) => refused += 1,
            Err(error) => panic!("{len} bytes: {error}"),
        }
    }
    assert!(committed > 0 && refused > 0, "{committed} committed, {refused} refused");
}
