//! Keys in orders that are hardest for a hash table: those of its own listing, the reverse, all that lie in one part of it. Orders that a
//! program comes by when it copies a store, empties one as it lists it, or means harm. `WEFT_KEY_ORDER_OPS=N` makes the model take N operations.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;
use weft_tags::{Kv, KvChange, MemoryStore, Options, SnodeId, Store, salvage};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn options() -> Options {
    Options { cache_bytes: 8 << 20, journal_bytes: 1 << 20, ..Options::default() }
}

fn new_store() -> Store {
    Store::create(Box::new(MemoryStore::new()), &options()).unwrap()
}

fn check(store: &Store) {
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

fn pairs(count: u32) -> Pairs {
    (0..count).map(|n| (format!("key{n:08}").into_bytes(), n.to_le_bytes().to_vec())).collect()
}

fn put(kv: &Kv<'_>, pairs: &[(Vec<u8>, Vec<u8>)]) {
    for batch in pairs.chunks(1000) {
        let changes: Vec<_> = batch.iter().map(|(key, value)| KvChange::Put(key, value)).collect();
        kv.change(&changes).unwrap();
    }
}

fn listed(kv: &Kv<'_>) -> Pairs {
    kv.scan().unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_store_is_copied_in_the_order_of_its_own_listing_and_in_the_reverse() {
    let store = new_store();
    let kv = Kv::open(&store, SnodeId::FIRST, "first").unwrap();
    put(&kv, &pairs(50_000));
    let mut list = listed(&kv);
    assert_eq!(list.len(), 50_000);
    for name in ["forwards", "backwards"] {
        let copy = Kv::open(&store, SnodeId::FIRST, name).unwrap();
        put(&copy, &list);
        let mut found = listed(&copy);
        found.sort();
        assert_eq!(found, pairs(50_000));
        list.reverse();
    }
    check(&store);
}

#[test]
fn a_store_is_emptied_and_filled_again_in_the_order_of_its_listing() {
    let store = new_store();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    put(&kv, &pairs(20_000));
    let list = listed(&kv);
    for round in 0..3 {
        for batch in list.chunks(1000) {
            kv.change(&batch.iter().map(|(key, _)| KvChange::Delete(key)).collect::<Vec<_>>()).unwrap();
        }
        assert_eq!(kv.count().unwrap(), 0);
        if round == 1 {
            store.shrink(|_, _| ()).unwrap();
        }
        put(&kv, &list);
        assert_eq!(kv.count().unwrap(), 20_000);
    }
    check(&store);
}

#[test]
fn a_salvage_of_a_sound_store_copies_all_of_it() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    put(&kv, &pairs(50_000));
    store.close().unwrap();
    let target = Arc::new(MemoryStore::new());
    let report = salvage(&*medium, Box::new(target.clone()), &options(), |_, _| ()).unwrap();
    assert!(report.complete, "{report:?}");
    let copy = Store::open(Box::new(target), &options()).unwrap();
    let kv = Kv::find(&copy, SnodeId::FIRST, "pairs").unwrap().unwrap();
    let mut found = listed(&kv);
    found.sort();
    assert_eq!(found, pairs(50_000));
    check(&copy);
}

/// Pairs that lie in one of `parts` parts of the listing.
fn crowded(kv: &Kv<'_>, parts: usize) -> Pairs {
    let list = listed(kv);
    let part = list.len() / parts;
    list[part * (parts / 2)..][..part].to_vec()
}

#[test]
fn operations_in_hard_orders_do_what_a_map_does() {
    let operations =
        std::env::var("WEFT_KEY_ORDER_OPS").ok().and_then(|ops| ops.parse().ok()).unwrap_or(60_000);
    let mut rng = StdRng::seed_from_u64(3);
    let medium = Arc::new(MemoryStore::new());
    let mut store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let (mut done, mut next) = (0, 0u32);
    while done < operations {
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        let turn = rng.random_range(0..6);
        let mut list = match turn {
            // New ones.
            0 | 1 => {
                next += 4000;
                pairs(next).split_off(next as usize - 4000)
            }
            2 => crowded(&kv, 8),
            _ => listed(&kv),
        };
        match rng.random_range(0..4) {
            0 => list.reverse(),
            1 => list.sort(),
            2 => list.shuffle(&mut rng),
            _ => {}
        }
        list.truncate(rng.random_range(1..=12_000));
        let deletes = turn > 1 && rng.random_ratio(3, 4);
        for batch in list.chunks(rng.random_range(1..2000)) {
            let mut changes = Vec::new();
            for (key, value) in batch {
                changes.push(if deletes { KvChange::Delete(key) } else { KvChange::Put(key, value) });
                if deletes {
                    model.remove(key);
                } else {
                    model.insert(key.clone(), value.clone());
                }
            }
            kv.change(&changes).unwrap();
            done += changes.len();
        }
        if deletes && rng.random() {
            // And in again, as they were listed.
            put(&kv, &list);
            done += list.len();
            model.extend(list);
        }
        assert_eq!(kv.count().unwrap(), model.len() as u64);
        match rng.random_range(0..6) {
            // Reopened: after a close, or as a killed process leaves it.
            0 => {
                store.close().unwrap();
                store = Store::open(Box::new(medium.clone()), &options()).unwrap();
            }
            1 => {
                store.sync().unwrap();
                drop(store);
                store = Store::open(Box::new(medium.clone()), &options()).unwrap();
            }
            2 => drop(store.shrink(|_, _| ()).unwrap()),
            _ => {}
        }
    }
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let found: HashMap<_, _> = listed(&kv).into_iter().collect();
    assert!(found == model);
    check(&store);
}
