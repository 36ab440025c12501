//! What a call in a transaction costs does not grow with the rest of the transaction: measured by the memory it asks for, which
//! is that of all it looks at together.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use weft_tags::{
    Credentials, Direction, EdgePlace, EdgeType, Info, InfoForm, Kv, KvChange, MemoryStore, NodeId, NodeType,
    Options, SessionLimits, SnodeId, SnodeTags, Store, Transaction,
};

const TEXT: NodeType = NodeType(3);

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: All is left to the system's allocator; the count is a plain cell, which asks for no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + layout.size() as u64));
        // SAFETY: As this function's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: As this function's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The bytes that this thread asks for in `work`.
fn asked<T>(work: impl FnOnce() -> T) -> u64 {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

fn store() -> Store {
    Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap()
}

/// Asserts that ten times as much in the transaction costs a call no more than half as much again.
fn assert_does_not_grow(name: &str, cost: impl Fn(u64) -> u64) {
    let (little, much) = (cost(1000), cost(10_000));
    assert!(much <= little + little / 2, "{name}: {little} bytes with 1000, {much} with 10000");
}

#[test]
fn a_part_of_a_list_costs_what_it_returns() {
    for direction in [Direction::Up, Direction::Down] {
        assert_does_not_grow("a list by parts", |n| {
            let store = store();
            let etype = store.edge_type("of", InfoForm::Number).unwrap();
            let root = store.root(SnodeId::FIRST).unwrap();
            let mut tx = store.begin();
            for number in 0..n {
                let node = tx.create_node(SnodeId::FIRST, TEXT, b"some").unwrap();
                tx.create_edge(root, etype, Info::Number(number), node).unwrap();
            }
            let place = if direction == Direction::Up { EdgePlace::FIRST } else { EdgePlace::LAST };
            let part = |tx: &mut Transaction<'_>| tx.edges_from(root, etype, place, direction, 10).unwrap();
            // The first call puts in order what the transaction has done.
            assert_eq!(part(&mut tx).len(), 10);
            asked(|| part(&mut tx))
        });
    }
}

/// What the last deletions of n s-nodes with a node each in one transaction cost at least, each after `before`.
fn cost_of_deletions(n: u64, before: impl Fn(&mut Transaction<'_>, NodeId, EdgeType)) -> u64 {
    let store = store();
    let etype = store.edge_type("of", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let made: Vec<_> = (0..n)
        .map(|_| {
            let snode = tx.create_snode(&SnodeTags::default()).unwrap();
            let node = tx.create_node(snode, TEXT, b"some").unwrap();
            let root = tx.root(snode).unwrap();
            tx.create_edge(root, etype, Info::Number(1), node).unwrap();
            (snode, root)
        })
        .collect();
    tx.commit().unwrap();
    let mut tx = store.begin();
    let costs = made.iter().map(|(snode, root)| {
        asked(|| {
            before(&mut tx, *root, etype);
            tx.delete_edge(*root, etype, Info::Number(1)).unwrap();
            tx.delete_snode(*snode).unwrap();
        })
    });
    // Now and then what the transaction keeps outgrows its room.
    let least = costs.collect::<Vec<_>>().into_iter().rev().take(20).min().unwrap();
    tx.commit().unwrap();
    assert_eq!(store.check().unwrap().problems.len(), 0);
    assert_eq!(store.report().snodes, 1);
    least
}

#[test]
fn an_edge_type_is_looked_up_and_made_at_the_same_cost_however_many_there_are() {
    for is_new in [false, true] {
        assert_does_not_grow("an edge type", |n| {
            let store = store();
            for number in 0..n {
                store.edge_type(&format!("type-{number:08}"), InfoForm::Number).unwrap();
            }
            let root = store.root(SnodeId::FIRST).unwrap();
            let limits = SessionLimits::default();
            let mut session = store.open_session(root, Credentials::superuser(0), limits).unwrap();
            let name = if is_new { "another" } else { "type-00000500" };
            asked(|| session.edge_type(name, InfoForm::Number).unwrap())
        });
    }
}

#[test]
fn to_delete_an_snode_costs_what_is_in_it() {
    assert_does_not_grow("a deletion of an s-node", |n| cost_of_deletions(n, |_, _, _| ()));
}

#[test]
fn to_delete_an_snode_after_something_was_undone_costs_what_is_in_it() {
    assert_does_not_grow("an undone deletion, and a deletion of an s-node", |n| {
        cost_of_deletions(n, |tx, root, etype| {
            let savepoint = tx.savepoint();
            tx.delete_edge(root, etype, Info::Number(1)).unwrap();
            let snode = tx.create_snode(&SnodeTags::default()).unwrap();
            let new = tx.root(snode).unwrap();
            tx.create_edge(new, etype, Info::Number(2), root).unwrap();
            tx.undo_to(savepoint).unwrap();
            tx.forget(savepoint).unwrap();
        })
    });
}

/// What was undone is as if it had never been, also for who looks for the nodes of an s-node.
#[test]
fn an_snode_of_which_a_deletion_was_undone_takes_its_nodes_with_it() {
    let store = store();
    let etype = store.edge_type("of", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let made: Vec<_> = (0..4)
        .map(|_| {
            let snode = tx.create_snode(&SnodeTags::default()).unwrap();
            let node = tx.create_node(snode, TEXT, b"some").unwrap();
            let root = tx.root(snode).unwrap();
            tx.create_edge(root, etype, Info::Number(1), node).unwrap();
            (snode, root)
        })
        .collect();
    tx.commit().unwrap();
    let mut tx = store.begin();
    for (snode, root) in &made {
        for _ in 0..2 {
            let savepoint = tx.savepoint();
            tx.delete_edge(*root, etype, Info::Number(1)).unwrap();
            tx.delete_snode(*snode).unwrap();
            tx.undo_to(savepoint).unwrap();
            tx.forget(savepoint).unwrap();
        }
        tx.delete_edge(*root, etype, Info::Number(1)).unwrap();
        tx.delete_snode(*snode).unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    assert_eq!((store.report().snodes, store.report().data_pages), (1, store_pages()));
}

/// Pages of nodes of an empty store that has had an s-node in a shared home.
fn store_pages() -> u64 {
    let store = store();
    let mut tx = store.begin();
    let snode = tx.create_snode(&SnodeTags::default()).unwrap();
    tx.commit().unwrap();
    let mut tx = store.begin();
    tx.delete_snode(snode).unwrap();
    tx.commit().unwrap();
    store.report().data_pages
}

#[test]
fn the_end_of_a_snapshot_costs_what_has_changed_under_it() {
    assert_does_not_grow("the end of a snapshot", |n| {
        let store = store();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        let keys: Vec<_> = (0..n as u32).map(u32::to_le_bytes).collect();
        let puts: Vec<_> = keys.iter().map(|key| KvChange::Put(key, &[7; 1000])).collect();
        kv.change(&puts).unwrap();
        let _old = store.snapshot();
        kv.change(&puts).unwrap();
        let ends = (0..20).map(|_| {
            let short = store.snapshot();
            kv.put(&keys[7], b"other").unwrap();
            asked(|| drop(short))
        });
        ends.min().unwrap()
    });
}

#[test]
fn a_commit_under_a_new_snapshot_costs_what_it_changes() {
    assert_does_not_grow("a put under a new snapshot", |n| {
        let store = store();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        let keys: Vec<_> = (0..10 * n as u32).map(u32::to_le_bytes).collect();
        for keys in keys.chunks(1000) {
            let puts: Vec<_> = keys.iter().map(|key| KvChange::Put(key, b"before")).collect();
            kv.change(&puts).unwrap();
        }
        let puts = (0..20).map(|_| {
            let snapshot = store.snapshot();
            let cost = asked(|| kv.put(&keys[7], b"behind").unwrap());
            assert_eq!(kv.at(&snapshot).unwrap().count().unwrap(), keys.len() as u64);
            cost
        });
        puts.min().unwrap()
    });
}
