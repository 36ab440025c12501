//! Scans of a key-value store, at every size and while others commit.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use weft_tags::{Kv, MemoryStore, Options, Result, SnodeId, Store};

fn pairs(kv: &Kv<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pairs = kv.scan().unwrap().collect::<Result<Vec<_>>>().unwrap();
    let map: BTreeMap<_, _> = pairs.iter().cloned().collect();
    assert_eq!(map.len(), pairs.len(), "each pair comes once");
    map
}

#[test]
fn a_scan_tells_of_every_pair_once_whatever_their_number_and_size() {
    let options = Options { cache_bytes: 4 << 20, ..Options::default() };
    let store = Store::create(Box::new(MemoryStore::new()), &options).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let mut wanted = BTreeMap::new();
    for number in 0..20_000u32 {
        if [0, 1, 10, 100, 1000, 5000].contains(&number) {
            assert_eq!(pairs(&kv), wanted);
        }
        let len = if number % 1000 == 999 { 9000 } else { number as usize % 50 };
        let (key, value) = (number.to_string().into_bytes(), vec![number as u8; len]);
        kv.put(&key, &value).unwrap();
        wanted.insert(key, value);
    }
    assert_eq!(pairs(&kv), wanted);
    assert_eq!(kv.scan().unwrap().take(3).count(), 3);
}

#[test]
fn a_scan_sees_one_commit_and_changes_go_on_beside_it() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    for number in 0..1000u32 {
        kv.put(&number.to_le_bytes(), b"old").unwrap();
    }
    let mut scan = kv.scan().unwrap();
    let first = scan.next().unwrap().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..1000u32).for_each(|n| kv.put(&n.to_le_bytes(), b"new").unwrap()));
        writer.join().unwrap();
        assert_eq!(kv.get(&first.0).unwrap().unwrap(), b"new", "a get sees the last commit");
        let mut seen = 1;
        for pair in scan {
            assert_eq!(pair.unwrap().1, b"old");
            seen += 1;
        }
        assert_eq!(seen, 1000);
    });
    assert!(pairs(&kv).values().all(|value| value == b"new"));
}

#[test]
fn a_store_of_pairs_is_found_by_its_name_and_looking_makes_none() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    assert!(Kv::find(&store, SnodeId::FIRST, "a").unwrap().is_none());
    assert!(store.edge_types().is_empty());
    Kv::open(&store, SnodeId::FIRST, "b").unwrap().put(b"k", b"v").unwrap();
    Kv::open(&store, SnodeId::FIRST, "a").unwrap();
    assert!(Kv::find(&store, SnodeId::FIRST, "c").unwrap().is_none());
    let found = Kv::find(&store, SnodeId::FIRST, "b").unwrap().unwrap();
    assert_eq!(found.get(b"k").unwrap().unwrap(), b"v");
    assert_eq!(Kv::names(&store, SnodeId::FIRST).unwrap(), ["a", "b"]);
}
