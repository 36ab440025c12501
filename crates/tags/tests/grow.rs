//! Nodes that become longer and shorter, and nodes as values of Rust types.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use weft_tags::{
    EdgeType, Error, Info, InfoForm, Kv, MemoryStore, NodeId, NodeType, Options, SnodeId, SnodeTags, Store,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const PLAIN: NodeType = NodeType(5);
const KEYED: NodeType = NodeType(5 | NodeType::KEYED);
/// The type of a key-value store's pairs.
const PAIR: NodeType = NodeType(NodeType::KEYED | 0x6b76_0002);

fn options() -> Options {
    Options { cache_bytes: 4 << 20, journal_bytes: 1 << 20, ..Options::default() }
}

fn created() -> (Arc<MemoryStore>, Store, EdgeType, NodeId) {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    (medium, store, etype, root)
}

fn one(store: &Store, etype: EdgeType, number: u64, kind: NodeType, data: &[u8]) -> NodeId {
    let mut tx = store.begin();
    let node = tx.create_node(SnodeId::FIRST, kind, data).unwrap();
    tx.create_edge(store.root(SnodeId::FIRST).unwrap(), etype, Info::Number(number), node).unwrap();
    tx.commit().unwrap();
    node
}

fn check(store: &Store, moved: u64) {
    let report = store.check().unwrap();
    assert_eq!((report.problems, report.moved), (Vec::<String>::new(), moved));
}

/// Pages and bytes that are in use. Call it of a store that was just opened: before, a page may wait for the next node.
fn used(store: &Store) -> (u64, u64, u64) {
    store.checkpoint().unwrap();
    let report = store.report();
    (report.data_pages, report.table_pages, report.medium_bytes - report.free_bytes)
}

#[test]
fn a_node_of_any_length_keeps_its_id_and_gives_its_room_back() {
    let (medium, mut store, etype, root) = created();
    // A second node keeps the page of the first from coming and going.
    one(&store, etype, 1, PLAIN, b"small");
    let node = one(&store, etype, 0, PLAIN, b"small");
    let start = used(&store);
    let lengths = [100, 90, 101, 2_000, 500, 5_000, 1_000_000, 900_000, 300_000, 10_000, 3, 0, 40, 70_000, 8];
    for (at, len) in lengths.into_iter().enumerate() {
        let data = vec![at as u8; len];
        let mut tx = store.begin();
        tx.update_node(node, PLAIN, &data).unwrap();
        assert!(tx.read_node(node, PLAIN).unwrap() == data);
        assert_ne!(store.read_node(node, PLAIN).unwrap(), data, "not committed");
        tx.commit().unwrap();
        let moved = u64::from(len > 8);
        for _ in 0..2 {
            assert!(store.read_node(node, PLAIN).unwrap() == data, "{len} bytes");
            assert_eq!(store.edges(root).unwrap().len(), 2);
            assert_eq!(store.edges(node).unwrap().len(), 0, "no edge that programs see");
            check(&store, moved);
            if at % 2 == 0 {
                store.close().unwrap();
            } else {
                drop(store);
            }
            store = Store::open(Box::new(medium.clone()), &options()).unwrap();
        }
    }
    assert_eq!(used(&store), start);
    let mut tx = store.begin();
    tx.update_node(node, PLAIN, &[7; 50_000]).unwrap();
    tx.commit().unwrap();
    let mut tx = store.begin();
    tx.delete_edge(root, etype, Info::Number(0)).unwrap();
    tx.commit().unwrap();
    assert!(matches!(store.read_node(node, PLAIN), Err(Error::NoSuchNode(_))));
    check(&store, 0);
    store.close().unwrap();
    let store = Store::open(Box::new(medium), &options()).unwrap();
    assert_eq!(used(&store), start, "the body goes with its node");
}

#[test]
fn one_transaction_moves_a_node_often_and_savepoints_and_aborts_take_it_back() {
    let (medium, store, etype, root) = created();
    one(&store, etype, 1, PLAIN, b"small");
    let node = one(&store, etype, 0, PLAIN, b"small");
    let start = used(&store);
    let mut tx = store.begin();
    tx.update_node(node, PLAIN, &[1; 100]).unwrap();
    let savepoint = tx.savepoint();
    tx.resize_node(node, PLAIN, 9_000).unwrap();
    let mut wanted = vec![1; 100];
    wanted.resize(9_000, 0);
    assert_eq!(tx.read_node(node, PLAIN).unwrap(), wanted);
    tx.update_node(node, PLAIN, b"in place").unwrap();
    tx.update_node(node, PLAIN, &[2; 3_000]).unwrap();
    tx.undo_to(savepoint).unwrap();
    assert_eq!(tx.read_node(node, PLAIN).unwrap(), [1; 100]);
    // A new node that grows, one that nothing leads to, and one that goes with its new body.
    let new = tx.create_node(SnodeId::FIRST, PLAIN, b"new").unwrap();
    tx.create_edge(root, etype, Info::Number(2), new).unwrap();
    tx.update_node(new, PLAIN, &[3; 5_000]).unwrap();
    let garbage = tx.create_node(SnodeId::FIRST, PLAIN, b"garbage").unwrap();
    tx.update_node(garbage, PLAIN, &[4; 5_000]).unwrap();
    tx.commit().unwrap();
    assert_eq!(store.read_node(node, PLAIN).unwrap(), [1; 100]);
    assert_eq!(store.read_node(new, PLAIN).unwrap(), [3; 5_000]);
    check(&store, 2);
    let mut tx = store.begin();
    tx.update_node(node, PLAIN, &[5; 20_000]).unwrap();
    tx.abort();
    assert_eq!(store.read_node(node, PLAIN).unwrap(), [1; 100]);
    let mut tx = store.begin();
    tx.update_node(node, PLAIN, b"back").unwrap();
    tx.update_node(new, PLAIN, &[6; 20_000]).unwrap();
    tx.delete_edge(root, etype, Info::Number(2)).unwrap();
    tx.commit().unwrap();
    check(&store, 0);
    store.close().unwrap();
    assert_eq!(used(&Store::open(Box::new(medium), &options()).unwrap()), start);
}

#[test]
fn a_small_node_that_was_changed_takes_on_megabytes_in_the_same_transaction() {
    let (_, store, etype, _) = created();
    let node = one(&store, etype, 0, PLAIN, b"small");
    let more = vec![7; 3 << 20];
    let wanted = [b"Small", &more[..]].concat();
    let mut tx = store.begin();
    tx.write_at(node, PLAIN, 0, b"S").unwrap();
    tx.append(node, PLAIN, &more).unwrap();
    assert!(tx.read_node(node, PLAIN).unwrap() == wanted);
    tx.commit().unwrap();
    assert!(store.read_node(node, PLAIN).unwrap() == wanted);
    check(&store, 1);
}

#[test]
fn no_id_of_a_body_passes_for_that_of_a_node() {
    let (_, store, etype, root) = created();
    let nodes: Vec<_> = (0..20).map(|number| one(&store, etype, number, PLAIN, b"x")).collect();
    let mut tx = store.begin();
    for (at, node) in nodes.iter().enumerate() {
        tx.update_node(*node, PLAIN, &vec![1; 300 * at]).unwrap();
    }
    tx.commit().unwrap();
    check(&store, 19);
    let pages = store.report().data_pages + 40;
    let mut found = Vec::new();
    let mut tx = store.begin();
    for place in (0..pages * 4096).step_by(8) {
        let id = NodeId(SnodeId::FIRST.0 << 48 | place);
        if store.read_node(id, PLAIN).is_ok() {
            found.push(id);
        } else if id != root {
            assert!(matches!(tx.set_edge(root, etype, Info::Number(99), id), Err(Error::NoSuchNode(_))));
        }
    }
    found.sort_unstable();
    let mut wanted = nodes;
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

#[test]
fn a_node_that_has_moved_is_found_by_its_key_which_it_keeps() {
    let (medium, store, etype, root) = created();
    let by_key = store.edge_type("key", InfoForm::Key).unwrap();
    // A key in a slot, and one that is longer than a page.
    let keys = [b"short".to_vec(), vec![b'k'; 6_000]];
    let with_key = |key: &[u8], more: usize| {
        let mut data = (key.len() as u16).to_le_bytes().to_vec();
        data.extend_from_slice(key);
        data.resize(data.len() + more, 1);
        data
    };
    let mut tx = store.begin();
    let nodes = keys.each_ref().map(|key| {
        let node = tx.create_node(SnodeId::FIRST, KEYED, &with_key(key, 0)).unwrap();
        tx.create_edge(root, by_key, Info::Key(key), node).unwrap();
        node
    });
    tx.commit().unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.put(b"pair", b"value").unwrap();
    let anchor = store.edges(root).unwrap().into_iter().find(|edge| !nodes.contains(&edge.to)).unwrap().to;
    let pair = store.edges(anchor).unwrap()[0].to;
    let mut tx = store.begin();
    for (key, node) in keys.iter().zip(nodes) {
        tx.update_node(node, KEYED, &with_key(key, 70_000)).unwrap();
        assert!(matches!(
            tx.update_node(node, KEYED, &with_key(b"other", 70_000)),
            Err(Error::KeyNotInNode(_))
        ));
        assert!(matches!(tx.resize_node(node, KEYED, 3), Err(Error::KeyNotInNode(_))));
        assert!(matches!(
            tx.create_edge(root, by_key, Info::Key(b"other"), node),
            Err(Error::KeyNotInNode(_))
        ));
        tx.create_edge(node, by_key, Info::Key(key), node).unwrap();
    }
    tx.update_node(pair, PAIR, &with_key(b"pair", 500)).unwrap();
    tx.commit().unwrap();
    assert_eq!(kv.get(b"pair").unwrap().unwrap(), [1; 500]);
    assert_eq!(kv.get(b"pain").unwrap(), None);
    let find = |store: &Store| {
        for (key, node) in keys.iter().zip(nodes) {
            assert_eq!(store.edge(root, by_key, Info::Key(key)).unwrap(), Some(node));
            assert_eq!(store.edge(node, by_key, Info::Key(key)).unwrap(), Some(node));
            assert_eq!(store.read_node(node, KEYED).unwrap(), with_key(key, 70_000));
        }
        assert_eq!(store.edge(root, by_key, Info::Key(&keys[1][1..])).unwrap(), None);
        check(store, 3);
    };
    find(&store);
    let mut tx = store.begin();
    let more = tx.create_node(SnodeId::FIRST, PLAIN, b"x").unwrap();
    tx.create_edge(root, etype, Info::Number(0), more).unwrap();
    tx.commit().unwrap();
    drop(store);
    find(&Store::open(Box::new(medium), &options()).unwrap());
}

#[test]
fn an_s_node_goes_with_nodes_that_had_moved() {
    let (_, store, etype, _) = created();
    let start = used(&store);
    let mut tx = store.begin();
    let snode = tx.create_snode(&SnodeTags::default()).unwrap();
    let root = tx.root(snode).unwrap();
    let nodes = [0, 1].map(|number| {
        let node = tx.create_node(snode, PLAIN, b"x").unwrap();
        tx.create_edge(root, etype, Info::Number(number), node).unwrap();
        tx.update_node(node, PLAIN, &[1; 3_000]).unwrap();
        node
    });
    tx.commit().unwrap();
    let mut tx = store.begin();
    tx.update_node(nodes[0], PLAIN, &[2; 40_000]).unwrap();
    let garbage = tx.create_node(snode, PLAIN, b"x").unwrap();
    tx.update_node(garbage, PLAIN, &[1; 3_000]).unwrap();
    tx.delete_edge(root, etype, Info::Number(0)).unwrap();
    assert!(matches!(tx.delete_snode(snode), Err(Error::SnodeNotEmpty(_))));
    tx.delete_edge(root, etype, Info::Number(1)).unwrap();
    tx.delete_snode(snode).unwrap();
    tx.commit().unwrap();
    check(&store, 0);
    assert_eq!(used(&store), start);
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Debug, Clone, Copy)]
#[repr(C)]
struct Point {
    x: f64,
    y: f64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Debug)]
#[repr(C, align(32))]
struct Aligned([u64; 4]);

#[test]
fn a_node_is_a_value_of_a_type_without_serialisation() {
    let (_, store, etype, root) = created();
    let point = Point { x: 1.5, y: -2.0 };
    let mut tx = store.begin();
    let node = tx.create_as(SnodeId::FIRST, PLAIN, &point).unwrap();
    let large = tx.create_as(SnodeId::FIRST, PLAIN, &[point; 1_000]).unwrap();
    let aligned = tx.create_as(SnodeId::FIRST, PLAIN, &Aligned([1, 2, 3, 4])).unwrap();
    for (number, to) in [node, large, aligned].into_iter().enumerate() {
        tx.create_edge(root, etype, Info::Number(number as u64), to).unwrap();
    }
    assert_eq!(tx.read_as::<Point>(node, PLAIN).unwrap(), point);
    tx.commit().unwrap();
    assert_eq!(store.view_as(node, PLAIN, |found: &Point| *found).unwrap(), point);
    assert_eq!(store.view_as(aligned, PLAIN, |found: &Aligned| found.0).unwrap(), [1, 2, 3, 4]);
    let sum = |points: &[Point; 1_000]| points.iter().map(|point| point.x).sum::<f64>();
    assert_eq!(store.view_as(large, PLAIN, sum).unwrap(), 1_500.0);
    assert!(matches!(
        store.read_as::<u64>(node, PLAIN),
        Err(Error::WrongLength { found: 16, wanted: 8, .. })
    ));
    assert!(matches!(store.view_as(node, PLAIN, |_: &u64| ()), Err(Error::WrongLength { .. })));
    assert!(matches!(store.view_as(node, NodeType(6), |_: &Point| ()), Err(Error::WrongType { .. })));
    let nowhere = NodeId(77 << 48 | 4096);
    assert!(matches!(store.view_as(nowhere, PLAIN, |_: &Point| ()), Err(Error::NoSuchNode(_))));
    // A value of another type, which does not fit the room.
    let mut tx = store.begin();
    tx.update_as(node, PLAIN, &[point; 7]).unwrap();
    assert_eq!(tx.read_as::<[Point; 7]>(node, PLAIN).unwrap(), [point; 7]);
    tx.commit().unwrap();
    assert_eq!(store.view_as(node, PLAIN, |found: &[Point; 7]| found[6]).unwrap(), point);
    check(&store, 1);
}
