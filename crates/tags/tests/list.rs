//! A linked list, as in ADAPT's figure 3.1.4: made, changed, and found again by its root after every kind of end.

#![allow(clippy::unwrap_used)]

#[path = "support/power_cut.rs"]
mod power_cut;

use power_cut::PowerCutStore;
use std::sync::Arc;
use weft_tags::{Error, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, SnodeId, Store};

const ITEM: NodeType = NodeType(7);

fn small() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, ..Options::default() }
}

fn items(store: &Store) -> Vec<u64> {
    let next = store.edge_type("next", InfoForm::Number).unwrap();
    let mut at = store.root(SnodeId::FIRST).unwrap();
    let mut items = Vec::new();
    while let Some(node) = store.edge(at, next, Info::Number(0)).unwrap() {
        let data = store.read_node(node, ITEM).unwrap();
        items.push(u64::from_le_bytes(data.try_into().unwrap()));
        at = node;
    }
    items
}

/// Puts an item at the head of the list.
fn push(store: &Store, item: u64) -> Result<NodeId, Error> {
    let next = store.edge_type("next", InfoForm::Number)?;
    let root = store.root(SnodeId::FIRST)?;
    let mut tx = store.begin();
    let node = tx.create_node(SnodeId::FIRST, ITEM, &item.to_le_bytes())?;
    if let Some(first) = tx.set_edge(root, next, Info::Number(0), node)? {
        tx.create_edge(node, next, Info::Number(0), first)?;
    }
    tx.commit()?;
    Ok(node)
}

/// Takes the head of the list away.
fn pop(store: &Store) -> Result<(), Error> {
    let next = store.edge_type("next", InfoForm::Number)?;
    let root = store.root(SnodeId::FIRST)?;
    let mut tx = store.begin();
    let first = tx.delete_edge(root, next, Info::Number(0))?;
    if tx.edge(first, next, Info::Number(0))?.is_some() {
        let second = tx.delete_edge(first, next, Info::Number(0))?;
        tx.create_edge(root, next, Info::Number(0), second)?;
    }
    tx.delete_node(first, ITEM)?;
    tx.commit()?;
    Ok(())
}

#[test]
fn a_list_is_found_again_after_a_close_and_after_a_crash() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &small()).unwrap();
    (0..1000).for_each(|item| _ = push(&store, item).unwrap());
    (0..10).for_each(|_| pop(&store).unwrap());
    let wanted: Vec<u64> = (0..990).rev().collect();
    assert_eq!(items(&store), wanted);
    drop(store);
    let store = Store::open(Box::new(medium.clone()), &small()).unwrap();
    assert!(store.report().recovered_commits > 0, "there was no close");
    assert_eq!(items(&store), wanted);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    push(&store, 4711).unwrap();
    store.close().unwrap();
    let store = Store::open(Box::new(medium), &small()).unwrap();
    assert_eq!(store.report().recovered_commits, 0, "a closed store has nothing to replay");
    assert_eq!(items(&store).len(), 991);
    let report = store.check().unwrap();
    assert_eq!((report.nodes, report.edges, report.problems.len()), (992, 991, 0));
}

#[test]
fn the_space_of_a_list_that_is_taken_down_is_used_again() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium), &small()).unwrap();
    let mut pages = 0;
    for round in 0..5 {
        (0..2000).for_each(|item| _ = push(&store, item).unwrap());
        (0..2000).for_each(|_| pop(&store).unwrap());
        if round == 0 {
            pages = store.report().data_pages;
        }
    }
    assert!(
        store.report().data_pages <= pages + 1,
        "{} pages, {pages} after one round",
        store.report().data_pages
    );
    assert_eq!(store.check().unwrap().nodes, 1);
}

#[test]
fn an_aborted_transaction_leaves_nothing() {
    let store = Store::create(Box::new(MemoryStore::new()), &small()).unwrap();
    let kept = push(&store, 1).unwrap();
    let next = store.edge_type("next", InfoForm::Number).unwrap();
    let before = store.report();
    let mut tx = store.begin();
    let node = tx.create_node(SnodeId::FIRST, ITEM, &[1; 8]).unwrap();
    tx.create_edge(kept, next, Info::Number(0), node).unwrap();
    assert!(matches!(store.read_node(node, ITEM), Err(Error::NoSuchNode(_))), "not visible yet");
    tx.abort();
    assert_eq!(store.report().data_pages, before.data_pages);
    assert_eq!(items(&store), [1]);
    assert!(matches!(store.read_node(node, ITEM), Err(Error::NoSuchNode(_))));
}

#[test]
fn the_rules_of_the_graph_are_kept() {
    let store = Store::create(Box::new(MemoryStore::new()), &small()).unwrap();
    let next = store.edge_type("next", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let kept = push(&store, 1).unwrap();
    let mut tx = store.begin();
    assert!(matches!(
        tx.create_edge(kept, next, Info::Number(0), NodeId(0xffff_0000)),
        Err(Error::NoSuchNode(_))
    ));
    assert!(matches!(
        tx.create_edge(NodeId(u64::MAX), next, Info::Number(0), kept),
        Err(Error::NoSuchNode(_))
    ));
    assert!(matches!(
        tx.create_edge(NodeId(kept.0 + 8), next, Info::Number(0), kept),
        Err(Error::NoSuchNode(_))
    ));
    assert!(matches!(tx.create_edge(root, next, Info::Number(0), kept), Err(Error::EdgeExists(_))));
    assert!(matches!(tx.create_edge(root, next, Info::Key(b"x"), kept), Err(Error::WrongInfo { .. })));
    assert!(matches!(tx.delete_edge(root, next, Info::Number(9)), Err(Error::NoSuchEdge(_))));
    assert!(matches!(tx.delete_node(kept, ITEM), Err(Error::HasEdges(_))));
    assert!(matches!(tx.read_node(kept, NodeType(8)), Err(Error::WrongType { .. })));
    assert!(matches!(store.edge_type("next", InfoForm::Key), Err(Error::TypeTaken(_))));
    // A node without an edge is never visible.
    let lonely = tx.create_node(SnodeId::FIRST, ITEM, &[0; 100]).unwrap();
    tx.commit().unwrap();
    assert!(store.read_node(lonely, ITEM).is_err());
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn after_a_power_cut_at_any_write_it_is_the_list_of_some_commit_from_the_last_durable_one_on() {
    let fresh = Arc::new(MemoryStore::new());
    Store::create(Box::new(fresh.clone()), &small()).unwrap().close().unwrap();
    let image = fresh.to_bytes();
    let steps = 40;
    let run = |medium: Arc<PowerCutStore>| -> u64 {
        let Ok(store) = Store::open(Box::new(medium), &small()) else { return 0 };
        let mut done = 0;
        for item in 0..steps {
            if push(&store, item).is_err() {
                break;
            }
            done = item + 1;
            if item % 10 == 9 && store.checkpoint().is_err() {
                break;
            }
        }
        done
    };
    let whole = Arc::new(PowerCutStore::new(image.clone(), u64::MAX));
    assert_eq!(run(whole.clone()), steps);
    for cut_at in 0..whole.operations() {
        let medium = Arc::new(PowerCutStore::new(image.clone(), cut_at));
        let done = run(medium.clone());
        for seed in 0..3 {
            let after = Arc::new(medium.after_power_cut(cut_at * 3 + seed));
            let store = Store::open(Box::new(after), &small())
                .unwrap_or_else(|error| panic!("cut at {cut_at}: {error}"));
            let found = items(&store);
            let wanted: Vec<u64> = (0..found.len() as u64).rev().collect();
            assert_eq!(found, wanted, "cut at {cut_at}");
            assert!(
                found.len() as u64 >= done && found.len() as u64 <= done + 1,
                "cut at {cut_at}: {} of {done}",
                found.len()
            );
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "cut at {cut_at}");
            push(&store, 99).unwrap();
        }
    }
}
