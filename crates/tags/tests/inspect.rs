//! A store is looked at without knowing what programs keep in it.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use weft_tags::{Error, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, SnodeId, Store};

#[test]
fn what_a_store_holds_is_told_without_knowing_its_types() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let few = store.edge_type("few", InfoForm::Number).unwrap();
    let many = store.edge_type("many", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let mut nodes = vec![root];
    for number in 0..1000u64 {
        let data = vec![7; number as usize * 5];
        let node = tx.create_node(SnodeId::FIRST, NodeType(9), &data).unwrap();
        tx.create_edge(root, many, Info::Number(number), node).unwrap();
        if number < 3 {
            tx.create_edge(root, few, Info::Number(number), node).unwrap();
        }
        nodes.push(node);
    }
    tx.commit().unwrap();
    let view = store.view(root, 10).unwrap();
    assert_eq!((view.in_edges, view.out_edges), (1, 1003));
    let view = store.view(nodes[2], 3).unwrap();
    assert_eq!((view.kind, view.bytes, view.data, view.in_edges), (NodeType(9), 5, vec![7; 3], 2));
    assert_eq!(store.some_edges(root, 500).unwrap().len(), 500);
    let mut edges = store.some_edges(root, 5000).unwrap();
    edges.sort_by_key(|edge| (edge.etype, edge.number));
    let mut all = store.edges(root).unwrap();
    all.sort_by_key(|edge| (edge.etype, edge.number));
    assert_eq!(edges, all);
    let mut found = Vec::new();
    store
        .each_node(|node| {
            Ok::<_, ()>({
                found.push(node);
                true
            })
        })
        .unwrap();
    nodes.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, nodes);
    let names: Vec<_> = store.edge_types().into_iter().map(|view| view.name).collect();
    assert_eq!(
        (names, store.snodes().unwrap()),
        (vec!["few".to_string(), "many".to_string()], vec![SnodeId::FIRST])
    );
    assert!(matches!(store.view(NodeId(nodes[1].0 + 8), 0), Err(Error::NoSuchNode(_))));
}
