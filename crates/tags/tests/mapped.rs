//! Pages that are read where the medium is mapped, in a cache that has few frames for those that change.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use weft_tags::{
    FileStore, Info, InfoForm, NodeType, Options, ReadPath, SnodeId, SnodeTags, Store, Transaction,
};

#[test]
fn pages_read_where_they_are_mapped_are_found_where_their_commit_puts_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = FileStore::create(&dir.path().join("store"), ReadPath::Mapped).unwrap();
    // So small that its blocks are soon used again.
    let options = Options {
        cache_bytes: 1 << 20,
        journal_bytes: 1 << 20,
        store_bytes_max: 22 << 20,
        ..Options::default()
    };
    let store = Store::create(Box::new(file), &options).unwrap();
    let edge = store.edge_type("of", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let other = tx.create_snode(&SnodeTags::default()).unwrap();
    tx.commit().unwrap();
    let kind = NodeType(1);
    let make = |tx: &mut Transaction<'_>, snode: SnodeId, number: u64| {
        let node = tx.create_node(snode, kind, &[number as u8; 4000]).unwrap();
        tx.create_edge(store.root(snode).unwrap(), edge, Info::Number(number), node).unwrap();
        node
    };
    let mut tx = store.begin();
    let nodes: Vec<_> = (0..20).map(|number| make(&mut tx, SnodeId::FIRST, number)).collect();
    store.checkpoint().unwrap();
    // Takes their frames: nothing of them is committed, so they are read by nobody else.
    let mut number = 0;
    let mut fill = |turns: u32| {
        for _ in 0..turns {
            let mut tx = store.begin();
            let made: Vec<_> = (0..50).map(|at| make(&mut tx, other, number + at)).collect();
            number += 50;
            tx.commit().unwrap();
            made.iter().for_each(|node| drop(store.read_node(*node, kind).unwrap()));
            store.checkpoint().unwrap();
        }
    };
    fill(10);
    for (number, node) in nodes.iter().enumerate() {
        assert_eq!(tx.read_node(*node, kind).unwrap(), [number as u8; 4000]);
    }
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    fill(74);
    for (number, node) in nodes.iter().enumerate() {
        assert_eq!(store.read_node(*node, kind).unwrap(), [number as u8; 4000]);
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn edges_come_and_go_where_every_page_is_mapped_again_after_each_commit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = Options { cache_bytes: 4 << 20, journal_bytes: 1 << 20, ..Options::default() };
    let store =
        Store::create(Box::new(FileStore::create(&path, ReadPath::Mapped).unwrap()), &options).unwrap();
    let link = store.edge_type("link", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut hubs = Vec::new();
    for first in (0..3_000u64).step_by(100) {
        let mut tx = store.begin();
        for number in first..first + 100 {
            let hub = tx.create_node(SnodeId::FIRST, NodeType(1), &number.to_le_bytes()).unwrap();
            tx.create_edge(root, link, Info::Number(number), hub).unwrap();
            hubs.push(hub);
        }
        tx.commit().unwrap();
    }
    // Edges enough to split pages of the main table all the time, and to make bundles of some nodes' and take them back.
    let mut numbers = vec![0u64; hubs.len()];
    let mut seed = 1u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for turn in 0..900 {
        let mut tx = store.begin();
        for _ in 0..40 {
            let hub = if turn % 3 == 0 { next(20) } else { next(hubs.len()) };
            tx.create_edge(hubs[hub], link, Info::Number(numbers[hub]), root).unwrap();
            numbers[hub] += 1;
        }
        tx.commit().unwrap();
        if turn % 30 == 29 {
            // With the last edge of a node goes its bundle.
            let mut tx = store.begin();
            let hub = next(20);
            for number in 0..numbers[hub] {
                tx.delete_edge(hubs[hub], link, Info::Number(number)).unwrap();
            }
            numbers[hub] = 0;
            tx.commit().unwrap();
        }
        // From here on every page is read where it is.
        store.checkpoint().unwrap();
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    store.close().unwrap();
    let file = FileStore::open(&path, ReadPath::Mapped).unwrap();
    let store = Store::open(Box::new(file), &options).unwrap();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    for (hub, edges) in hubs.iter().zip(numbers) {
        assert_eq!(store.edges(*hub).unwrap().len() as u64, edges);
    }
}
