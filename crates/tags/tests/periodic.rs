//! Commits that are durable some time after they have returned.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

#[path = "support/power_cut.rs"]
mod power_cut;

use power_cut::PowerCutStore;
use std::sync::Arc;
use std::time::Duration;
use weft_tags::{
    Credentials, Durability, Error, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, SessionLimits,
    SnodeId, Store,
};

const NUMBER: NodeType = NodeType(3);
/// So late that no test sees it.
const HOUR: Durability = Durability::Periodic(3_600_000);

fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, store_bytes_max: 4 << 20, ..Options::default() }
}

/// A closed store with a number in it, which is 0.
fn begin() -> (Vec<u8>, NodeId) {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let etype = store.edge_type("e", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let node = tx.create_node(SnodeId::FIRST, NUMBER, &0u64.to_le_bytes()).unwrap();
    tx.create_edge(store.root(SnodeId::FIRST).unwrap(), etype, Info::Number(0), node).unwrap();
    tx.commit().unwrap();
    store.close().unwrap();
    (medium.to_bytes(), node)
}

fn open(image: &[u8], cut_at: u64) -> (Arc<PowerCutStore>, Store) {
    let medium = Arc::new(PowerCutStore::new(image.to_vec(), cut_at));
    let store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    (medium, store)
}

fn set(store: &Store, node: NodeId, value: u64, durability: Durability) -> Result<u64, Error> {
    let mut tx = store.begin();
    tx.durability(durability);
    tx.update_node(node, NUMBER, &value.to_le_bytes())?;
    tx.commit()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never: {what}");
}

/// The number that the worst of some power cuts leaves.
fn least_left(medium: &PowerCutStore, node: NodeId) -> u64 {
    let left = (0..20).map(|seed| {
        let store = Store::open(Box::new(medium.after_power_cut(seed)), &options()).unwrap();
        let raw = store.read_node(node, NUMBER).unwrap();
        u64::from_le_bytes(raw.try_into().unwrap())
    });
    left.min().unwrap()
}

#[test]
fn a_commit_becomes_durable_with_nobody_calling_the_store() {
    let (image, node) = begin();
    let (medium, store) = open(&image, u64::MAX);
    let commit = set(&store, node, 7, Durability::Periodic(2)).unwrap();
    wait_until("the commit is durable", || store.report().durable_commit >= commit);
    assert_eq!(least_left(&medium, node), 7);
}

#[test]
fn the_commit_returns_before_anything_is_written() {
    let (image, node) = begin();
    let (medium, store) = open(&image, u64::MAX);
    let before = medium.operations();
    set(&store, node, 7, HOUR).unwrap();
    assert_eq!(medium.operations(), before);
    assert_eq!(least_left(&medium, node), 0);
}

#[test]
fn one_sync_makes_all_durable_that_wait() {
    let (image, node) = begin();
    let (medium, store) = open(&image, u64::MAX);
    let before = medium.operations();
    for n in 1..100 {
        set(&store, node, n, HOUR).unwrap();
    }
    let last = set(&store, node, 100, Durability::Periodic(0)).unwrap();
    wait_until("the last commit is durable", || store.report().durable_commit >= last);
    // Zeros ahead of the journal, a write of all records and a sync.
    assert_eq!(medium.operations(), before + 3);
    assert_eq!(least_left(&medium, node), 100);
}

#[test]
fn a_store_that_is_dropped_syncs_what_waits_and_its_thread_is_gone() {
    let (image, node) = begin();
    let (medium, store) = open(&image, u64::MAX);
    set(&store, node, 7, HOUR).unwrap();
    drop(store);
    assert_eq!(Arc::strong_count(&medium), 1, "somebody still has the medium");
    assert_eq!(least_left(&medium, node), 7);
    let (medium, store) = open(&image, u64::MAX);
    set(&store, node, 8, HOUR).unwrap();
    store.close().unwrap();
    assert_eq!((Arc::strong_count(&medium), least_left(&medium, node)), (1, 8));
}

#[test]
fn the_commits_of_a_session_are_durable_as_it_was_said() {
    let (image, _) = begin();
    let (medium, store) = open(&image, u64::MAX);
    let everything = Credentials::superuser(0);
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut session = store.open_session(root, everything, SessionLimits::default()).unwrap();
    let (root, etype) = (session.root(), session.edge_type("e", InfoForm::Number).unwrap());
    let mut changed = |durability| {
        session.durability(durability);
        session.begin().unwrap();
        let node = session.create_node(root, NUMBER, b"8 bytes.").unwrap();
        session.set_edge(root, etype, Info::Number(1), node).unwrap();
        let before = medium.operations();
        session.commit().unwrap();
        medium.operations() - before
    };
    assert_eq!(changed(HOUR), 0);
    assert_eq!(changed(Durability::Sync), 3, "zeros ahead of the journal, a write and a sync");
}

#[test]
fn the_error_of_the_sync_comes_with_the_next_commit_or_the_close() {
    let (image, node) = begin();
    let failed = || {
        let (medium, store) = open(&image, 0);
        set(&store, node, 7, Durability::Periodic(1)).unwrap();
        wait_until("the power fails", || medium.is_cut());
        store
    };
    let store = failed();
    let told = set(&store, node, 8, Durability::Periodic(1));
    assert!(matches!(told, Err(Error::Io { .. })), "{told:?}");
    let again = set(&store, node, 8, Durability::None);
    assert!(matches!(again, Err(Error::Stopped { .. })), "{again:?}");
    let told = failed().close();
    assert!(matches!(told, Err(Error::Io { .. })), "{told:?}");
    let told = failed().sync();
    assert!(matches!(told, Err(Error::Io { .. })), "{told:?}");
}

#[test]
fn every_call_after_a_failed_write_says_why_it_failed() {
    let (image, node) = begin();
    let (_, store) = open(&image, 0);
    let first = set(&store, node, 7, Durability::Sync).unwrap_err();
    let Error::Io { source, .. } = &first else { panic!("{first}") };
    let refused = [
        store.edge_type("another", InfoForm::Key).unwrap_err(),
        store.sync().unwrap_err(),
        store.checkpoint().unwrap_err(),
        set(&store, node, 8, Durability::None).unwrap_err(),
        set(&store, node, 8, Durability::Periodic(1)).unwrap_err(),
        store.close().unwrap_err(),
    ];
    for (at, error) in refused.iter().enumerate() {
        assert!(matches!(error, Error::Stopped { .. }), "{at}: {error}");
        let text = error.to_string();
        assert!(text.contains(&first.to_string()) && text.contains(&source.to_string()), "{at}: {text}");
    }
}
