//! The key-value store: what is put is there, on media of every kind, with a cache smaller than the data.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;
use weft_tags::{
    Durability, FileStore, Info, InfoForm, Kv, KvChange, MemoryStore, NodeId, NodeType, Options, ReadPath,
    SnodeId, Store,
};

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// The node of a key in the key space "pairs".
fn node_of(store: &Store, key: &[u8]) -> NodeId {
    let names = store.edge_type("weft.kv.name", InfoForm::Key).unwrap();
    let pairs = store.edge_type("weft.kv", InfoForm::Key).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let anchor = store.edge(root, names, Info::Key(b"pairs")).unwrap().unwrap();
    store.edge(anchor, pairs, Info::Key(key)).unwrap().unwrap()
}

fn check(store: &Store) {
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn pairs_are_put_replaced_deleted_and_counted() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.put(b"a", b"1").unwrap();
    kv.put(b"a", b"2").unwrap();
    kv.put(b"", b"empty key").unwrap();
    kv.put(b"empty value", b"").unwrap();
    kv.put(&[7; 5000], &[8; 100_000]).unwrap();
    assert_eq!(kv.get(b"a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(kv.get(b"").unwrap().as_deref(), Some(&b"empty key"[..]));
    assert_eq!(kv.get(b"empty value").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(kv.get(&[7; 5000]).unwrap(), Some(vec![8; 100_000]));
    assert_eq!((kv.get(b"b").unwrap(), kv.get(&[7; 4999]).unwrap()), (None, None));
    assert_eq!(kv.count().unwrap(), 4);
    // Within a batch later changes see earlier ones.
    let batch = [
        KvChange::Put(b"x", b"1"),
        KvChange::Delete(b"x"),
        KvChange::Put(b"x", b"3"),
        KvChange::Delete(b"y"),
    ];
    assert_eq!(kv.change(&batch).unwrap(), 1);
    assert_eq!(kv.get(b"x").unwrap().as_deref(), Some(&b"3"[..]));
    assert!(kv.delete(b"a").unwrap() && !kv.delete(b"a").unwrap());
    assert!(kv.put(&[0; 70_000], b"").is_err());
    assert!(kv.compare_and_swap(b"x", Some(b"3"), Some(b"4")).unwrap());
    assert!(!kv.compare_and_swap(b"x", Some(b"3"), None).unwrap());
    assert!(kv.compare_and_swap(b"new", None, Some(b"5")).unwrap());
    assert!(kv.compare_and_swap(b"x", Some(b"4"), None).unwrap());
    assert_eq!((kv.get(b"x").unwrap(), kv.count().unwrap()), (None, 4));
    check(&store);
}

#[test]
fn a_pair_that_changes_often_in_one_transaction_leaves_nothing_behind() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let empty = store.check().unwrap().nodes;
    for round in 0..4 {
        let mut tx = store.begin();
        // Old nodes go, and so do new ones that are replaced at once; with a savepoint in between and without.
        let batch = [
            KvChange::Put(b"a", b"1"),
            KvChange::Put(b"b", b"1"),
            KvChange::Put(b"a", b"2"),
            KvChange::Delete(b"b"),
            KvChange::Put(b"c", b"1"),
        ];
        kv.change_in(&mut tx, &batch).unwrap();
        if round % 2 == 1 {
            let mark = tx.savepoint();
            kv.change_in(&mut tx, &[KvChange::Delete(b"a"), KvChange::Put(b"b", b"lost")]).unwrap();
            tx.undo_to(mark).unwrap();
        }
        kv.change_in(
            &mut tx,
            &[KvChange::Put(b"a", b"3"), KvChange::Put(b"b", b"3"), KvChange::Delete(b"b")],
        )
        .unwrap();
        tx.commit().unwrap();
        assert_eq!(kv.get(b"a").unwrap().as_deref(), Some(&b"3"[..]));
        assert_eq!((kv.get(b"b").unwrap(), kv.count().unwrap()), (None, 2));
        assert_eq!(store.check().unwrap().nodes, empty + 2);
        check(&store);
    }
}

fn fill_and_empty(store: Store, reopen: &dyn Fn() -> Store) {
    let pairs = 30_000u64;
    let value = |n: u64| vec![n as u8; 20 + (n % 90) as usize];
    let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.durability(Durability::None);
    for batch in (0..pairs).step_by(1000) {
        let owned: Vec<_> = (batch..batch + 1000).map(|n| (key(n), value(n))).collect();
        let changes: Vec<_> = owned.iter().map(|(key, value)| KvChange::Put(key, value)).collect();
        assert_eq!(kv.change(&changes).unwrap(), 0);
    }
    store.sync().unwrap();
    drop(store);
    let store = reopen();
    assert!(store.report().recovered_commits > 0);
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let keys: Vec<_> = (0..pairs + 10).map(|n| key((n * 7919) % (pairs + 10))).collect();
    let wanted: HashMap<_, _> = (0..pairs).map(|n| (key(n), value(n))).collect();
    let mut seen = 0;
    kv.get_many(&keys, |at, found| {
        assert_eq!(found, wanted.get(&keys[at]).map(Vec::as_slice));
        seen += 1;
    })
    .unwrap();
    assert_eq!(seen, keys.len());
    assert_eq!(kv.count().unwrap(), pairs);
    check(&store);
    for batch in (0..pairs).step_by(1000) {
        let owned: Vec<_> = (batch..batch + 1000).map(|n| key((n * 7919) % pairs)).collect();
        let changes: Vec<_> = owned.iter().map(|key| KvChange::Delete(key)).collect();
        assert_eq!(kv.change(&changes).unwrap(), 1000);
    }
    assert_eq!(kv.count().unwrap(), 0);
    check(&store);
    store.checkpoint().unwrap();
    let report = store.report();
    assert!(report.data_pages < 10 && report.table_pages < 10, "all space is free again: {report:?}");
    store.close().unwrap();
    check(&reopen());
}

#[test]
fn thousands_of_pairs_come_and_go_in_memory() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &Options::default()).unwrap();
    fill_and_empty(store, &|| Store::open(Box::new(medium.clone()), &Options::default()).unwrap());
}

#[test]
fn thousands_of_pairs_come_and_go_in_a_file_with_a_cache_smaller_than_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = Options { cache_bytes: 2 << 20, ..Options::default() };
    let store =
        Store::create(Box::new(FileStore::create(&path, ReadPath::Kernel).unwrap()), &options).unwrap();
    fill_and_empty(store, &|| {
        Store::open(Box::new(FileStore::open(&path, ReadPath::Direct).unwrap()), &options).unwrap()
    });
}

#[test]
fn pages_that_are_half_empty_are_filled_again_after_deletions_and_after_an_abort() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let put = |range: std::ops::Range<u64>| {
        let keys: Vec<_> = range.map(key).collect();
        let puts: Vec<_> = keys.iter().map(|key| KvChange::Put(key, &[1; 100])).collect();
        kv.change(&puts).unwrap();
    };
    put(0..20_000);
    let full = store.report().data_pages;
    // Two of three go, of every page some stay.
    for first in [0, 1] {
        let keys: Vec<_> = (first..20_000).step_by(3).map(key).collect();
        let gone: Vec<_> = keys.iter().map(|key| KvChange::Delete(key)).collect();
        assert_eq!(kv.change(&gone).unwrap(), keys.len() as u64);
    }
    assert_eq!(store.report().data_pages, full, "pages with pairs that stay");
    let keys: Vec<_> = (30_000..40_000).map(key).collect();
    let puts: Vec<_> = keys.iter().map(|key| KvChange::Put(key, &[2; 100])).collect();
    let mut tx = store.begin();
    kv.change_in(&mut tx, &puts).unwrap();
    tx.abort();
    put(50_000..63_000);
    let now = store.report().data_pages;
    assert!(now <= full + 2, "{now} pages, {full} when as many pairs filled them");
    assert_eq!(kv.count().unwrap(), 6_666 + 13_000);
    check(&store);
}

#[test]
fn a_pair_with_an_edge_out_of_its_node_stays_a_node_when_its_batch_is_deleted() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let keys: Vec<[u8; 1]> = (0..60).map(|n| [n]).collect();
    let puts: Vec<_> = keys.iter().map(|key| KvChange::Put(key, b"value")).collect();
    kv.change(&puts).unwrap();
    let other = store.edge_type("other", InfoForm::Number).unwrap();
    let from = node_of(&store, &[7]);
    let mut tx = store.begin();
    let to = tx.create_node(SnodeId::FIRST, NodeType(9), b"held by a pair").unwrap();
    tx.create_edge(from, other, Info::Number(0), to).unwrap();
    tx.commit().unwrap();
    let deletes: Vec<_> = keys.iter().map(|key| KvChange::Delete(key)).collect();
    assert_eq!(kv.change(&deletes).unwrap(), 60);
    assert_eq!(kv.count().unwrap(), 0);
    assert_eq!(store.edge(from, other, Info::Number(0)).unwrap(), Some(to));
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    // The root, the anchor, and these two.
    assert_eq!(report.nodes, 4);
}

#[test]
fn of_a_batch_that_is_deleted_a_moved_pair_takes_its_body_along_and_a_pair_with_another_edge_stays() {
    let keys: Vec<[u8; 1]> = (0..60).map(|n| [n]).collect();
    let puts: Vec<_> = keys.iter().map(|key| KvChange::Put(key, b"value")).collect();
    let deletes: Vec<_> = keys.iter().map(|key| KvChange::Delete(key)).collect();
    for (moves, is_held) in [(true, false), (false, true), (true, true)] {
        let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        kv.change(&puts).unwrap();
        let other = store.edge_type("other", InfoForm::Number).unwrap();
        let (root, held) = (store.root(SnodeId::FIRST).unwrap(), node_of(&store, &[9]));
        let mut tx = store.begin();
        if moves {
            // Larger than its slot: what it holds goes to a body.
            let pair = NodeType(NodeType::KEYED | 0x6b76_0002);
            tx.append(node_of(&store, &[8]), pair, &[7; 2000]).unwrap();
        }
        if is_held {
            tx.create_edge(root, other, Info::Number(0), held).unwrap();
        }
        tx.commit().unwrap();
        assert_eq!(kv.change(&deletes).unwrap(), 60);
        let report = store.check().unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!(report.nodes, if is_held { 3 } else { 2 }, "moved {moves}, held {is_held}");
        assert_eq!(store.edge(root, other, Info::Number(0)).unwrap(), is_held.then_some(held));
    }
}
