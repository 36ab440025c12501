//! Who waits for whom: for a limited time, never for itself, and readers for nobody.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weft_tags::{
    EdgeType, Error, Info, InfoForm, Kv, MemoryStore, NodeId, NodeType, Options, SnodeId, SnodeTags, Store,
    Transaction,
};

const TEXT: NodeType = NodeType(1);

fn store(lock_wait: Duration) -> Store {
    let options = Options { cache_bytes: 4 << 20, journal_bytes: 256 << 10, lock_wait, ..Options::default() };
    Store::create(Box::new(MemoryStore::new()), &options).unwrap()
}

/// A node in an s-node of its own.
fn node(store: &Store) -> NodeId {
    let etype = store.edge_type("of", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let snode = tx.create_snode(&SnodeTags::default()).unwrap();
    let (root, node) = (tx.root(snode).unwrap(), tx.create_node(snode, TEXT, b"text").unwrap());
    tx.create_edge(root, etype, Info::Number(0), node).unwrap();
    tx.commit().unwrap();
    node
}

fn held_by_nobody(store: &Store, node: NodeId) {
    let mut tx = store.begin();
    tx.update_node(node, TEXT, b"free").unwrap();
    tx.commit().unwrap();
}

#[test]
fn a_put_beside_a_transaction_of_the_same_thread_is_refused_at_once() {
    let store = store(Duration::MAX);
    let kv = Kv::open(&store, SnodeId::FIRST, "kv").unwrap();
    kv.put(b"key", b"before").unwrap();
    let mut tx = store.begin();
    tx.root(SnodeId::FIRST).unwrap();
    let refused = kv.put(b"key", b"never").unwrap_err();
    assert!(matches!(refused, Error::WaitsForItself(SnodeId::FIRST)), "{refused}");
    assert!(refused.to_string().contains("this thread"), "{refused}");
    assert_eq!(kv.get(b"key").unwrap().unwrap(), b"before");
    tx.abort();
    kv.put(b"key", b"after").unwrap();
}

#[test]
fn a_wait_ends_at_its_limit_and_says_what_it_was_for() {
    let store = store(Duration::from_millis(50));
    let node = node(&store);
    let mut tx = store.begin();
    tx.read_node(node, TEXT).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let before = Instant::now();
            let refused = store.begin().update_node(node, TEXT, b"never").unwrap_err();
            assert!(before.elapsed() >= Duration::from_millis(50));
            let Error::LockTimeout { snode, .. } = refused else { panic!("{refused}") };
            assert_eq!(snode, SnodeId::from(node.home()));
            assert!(refused.to_string().contains(&snode.to_string()), "{refused}");
            // Who waits for nothing reads on.
            assert_eq!(store.read_node(node, TEXT).unwrap(), b"text");
        });
    });
    drop(tx);
    held_by_nobody(&store, node);
}

#[test]
fn a_transaction_goes_with_the_thread_that_uses_it() {
    let store = store(Duration::MAX);
    let node = node(&store);
    let mut tx = store.begin();
    tx.read_node(node, TEXT).unwrap();
    std::thread::scope(|scope| {
        let (used, is_used) = std::sync::mpsc::channel();
        scope.spawn(move || {
            tx.update_node(node, TEXT, b"moved").unwrap();
            used.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            tx.commit().unwrap();
        });
        is_used.recv().unwrap();
        // It is another thread's now, so this one waits for it.
        let mut tx = store.begin();
        assert_eq!(tx.read_node(node, TEXT).unwrap(), b"moved");
    });
}

#[test]
fn a_circle_through_two_transactions_of_one_thread_is_found() {
    let store = store(Duration::MAX);
    let (a, b) = (node(&store), node(&store));
    let touch = |tx: &mut Transaction<'_>, node| tx.read_node(node, TEXT).map(drop);
    let mut first = store.begin();
    touch(&mut first, a).unwrap();
    std::thread::scope(|scope| {
        let (held, is_held) = std::sync::mpsc::channel();
        let other = scope.spawn({
            let store = &store;
            move || {
                let mut tx = store.begin();
                touch(&mut tx, b).unwrap();
                held.send(()).unwrap();
                touch(&mut tx, a)
            }
        });
        is_held.recv().unwrap();
        // A second transaction waits for the other thread, which waits for the first one.
        let outcome = touch(&mut store.begin(), b);
        drop(first);
        let other = other.join().unwrap();
        assert!(
            matches!(
                (&outcome, &other),
                (Err(Error::Deadlock(_)), Ok(())) | (Ok(()), Err(Error::Deadlock(_)))
            ),
            "{outcome:?}, {other:?}"
        );
    });
}

#[test]
fn who_has_waited_for_long_is_not_passed_over_by_who_comes_again_and_again() {
    let store = store(Duration::MAX);
    let node = node(&store);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Each takes the lock again as soon as it has given it back.
                while !ended.load(Relaxed) {
                    let mut tx = store.begin();
                    tx.read_node(node, TEXT).unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        for _ in 0..20 {
            store.begin().read_node(node, TEXT).unwrap();
        }
        ended.store(true, Relaxed);
    });
}

#[test]
fn pairs_are_put_in_the_thread_that_scans() {
    let store = store(Duration::MAX);
    let kv = Kv::open(&store, SnodeId::FIRST, "kv").unwrap();
    (0..500u32).for_each(|n| kv.put(&n.to_le_bytes(), b"before").unwrap());
    let mut seen = 0;
    for pair in kv.scan().unwrap() {
        let (key, value) = pair.unwrap();
        assert_eq!(value, b"before");
        kv.put(&key, b"after").unwrap();
        seen += 1;
    }
    assert_eq!(seen, 500);
    assert!(kv.scan().unwrap().all(|pair| pair.unwrap().1 == b"after"));
}

#[test]
fn a_type_that_was_made_by_hand_under_the_stores_own_names_is_refused() {
    let store = store(Duration::MAX);
    for name in ["weft.kv", "weft.kv.name", "weft.btree.child", "weft.", "weft.anything"] {
        for form in [InfoForm::Number, InfoForm::Key] {
            let refused: Result<EdgeType, Error> = store.edge_type(name, form);
            assert!(matches!(refused, Err(Error::ReservedName(_))), "{name}: {refused:?}");
        }
    }
    store.edge_type("weftage", InfoForm::Number).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "kv").unwrap();
    kv.put(b"key", b"value").unwrap();
    // An entry that is there already is reported.
    store.edge_type("weft.kv", InfoForm::Key).unwrap();
}
