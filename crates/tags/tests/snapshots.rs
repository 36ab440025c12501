//! Key-value stores and B+trees as snapshots see them, while others commit.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_tags::{
    BTree, BTreeForm, BTreeSnapshot, Direction, Durability, Error, Kv, KvChange, KvSnapshot, MemoryStore,
    Options, Result, Snapshot, SnodeId, Store,
};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn store(cache_bytes: u64) -> Store {
    let options = Options { cache_bytes, journal_bytes: 2 << 20, ..Options::default() };
    Store::create(Box::new(MemoryStore::new()), &options).unwrap()
}

fn all_of(snapshot: &KvSnapshot<'_, '_>) -> Result<Pairs> {
    let pairs = snapshot.scan().collect::<Result<Vec<_>>>()?;
    let map: Pairs = pairs.iter().cloned().collect();
    assert_eq!(map.len(), pairs.len(), "each pair comes once");
    Ok(map)
}

fn kv_is(snapshot: &KvSnapshot<'_, '_>, wanted: &Pairs, asked: &[Vec<u8>]) -> Result<()> {
    assert!(all_of(snapshot)? == *wanted);
    assert_eq!(snapshot.count()?, wanted.len() as u64);
    let mut seen = Vec::new();
    snapshot.get_many(asked, |at, value| seen.push((at, value.map(<[u8]>::to_vec))))?;
    for ((at, value), (n, key)) in seen.iter().zip(asked.iter().enumerate()) {
        assert!(*at == n && value.as_ref() == wanted.get(key), "key {key:?}");
    }
    assert_eq!(seen.len(), asked.len());
    if let Some(key) = asked.first() {
        assert!(snapshot.get(key)?.as_ref() == wanted.get(key));
    }
    Ok(())
}

fn tree_is(snapshot: &BTreeSnapshot<'_, '_>, wanted: &Pairs, asked: &[Vec<u8>]) -> Result<()> {
    let up = snapshot.range::<&[u8]>(.., Direction::Up)?.collect::<Result<Vec<_>>>()?;
    assert!(up.iter().map(|(key, value)| (key, value)).eq(wanted.iter()));
    let mut down = snapshot.range::<&[u8]>(.., Direction::Down)?.collect::<Result<Vec<_>>>()?;
    down.reverse();
    assert!(down == up);
    assert_eq!(snapshot.count()?, wanted.len() as u64);
    for key in asked {
        assert!(snapshot.get(key)?.as_ref() == wanted.get(key), "key {key:?}");
    }
    if let [a, b, ..] = asked {
        let (low, high) = (a.min(b), a.max(b));
        let bounds = (Bound::Excluded(low), Bound::Included(high));
        let some = snapshot.range::<Vec<u8>>(bounds, Direction::Up)?.collect::<Result<Vec<_>>>()?;
        assert!(some.iter().map(|(key, value)| (key, value)).eq(wanted.range::<Vec<u8>, _>(bounds)));
    }
    Ok(())
}

fn key(rng: &mut StdRng) -> Vec<u8> {
    let number: u32 = rng.random_range(0..3_000);
    let mut key = number.to_be_bytes().to_vec();
    if number.is_multiple_of(97) {
        key.resize(1_500, number as u8);
    }
    key
}

fn value(rng: &mut StdRng) -> Vec<u8> {
    let len = match rng.random_range(0..40) {
        0 => rng.random_range(4_000..12_000),
        1..=3 => rng.random_range(200..2_000),
        _ => rng.random_range(0..60),
    };
    vec![rng.random(); len]
}

struct Held<'s> {
    snapshot: Snapshot<'s>,
    pairs: Pairs,
    ordered: Pairs,
}

/// Random changes and snapshots; how often snapshots were read and how many were lost.
fn model(cache_bytes: u64, seed: u64, turns: usize, per_turn: usize) -> (usize, usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let store = store(cache_bytes);
    let early = store.snapshot();
    let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let mut tree = BTree::open(&store, SnodeId::FIRST, "ordered", BTreeForm::Bytes).unwrap();
    assert!(matches!(kv.at(&early), Err(Error::NoSuchNode(_))));
    assert!(matches!(tree.at(&early), Err(Error::NoSuchNode(_))));
    drop(early);
    kv.durability(Durability::None);
    tree.durability(Durability::None);
    let (mut pairs, mut ordered) = (Pairs::new(), Pairs::new());
    let mut held: Vec<Held<'_>> = Vec::new();
    let (mut reads, mut lost) = (0, 0);
    for turn in 0..turns {
        let mut tx = store.begin();
        tx.durability(Durability::None);
        // Now and then most of it goes, so that pages are given up.
        let share = if turn % 20 == 19 { 0.05 } else { 0.7 };
        for _ in 0..per_turn {
            let (key, value) = (key(&mut rng), value(&mut rng));
            if rng.random_bool(share) {
                kv.change_in(&mut tx, &[KvChange::Put(&key, &value)]).unwrap();
                pairs.insert(key.clone(), value.clone());
                tree.insert_in(&mut tx, &key, &value).unwrap();
                ordered.insert(key, value);
            } else {
                let from = pairs.range(key.clone()..).next().map_or(key, |(key, _)| key.clone());
                kv.change_in(&mut tx, &[KvChange::Delete(&from)]).unwrap();
                pairs.remove(&from);
                tree.delete_in(&mut tx, &from).unwrap();
                ordered.remove(&from);
            }
        }
        tx.commit().unwrap();
        match rng.random_range(0..10) {
            0..=2 if held.len() < 4 => {
                held.push(Held { snapshot: store.snapshot(), pairs: pairs.clone(), ordered: ordered.clone() })
            }
            3 if !held.is_empty() => drop(held.remove(rng.random_range(0..held.len()))),
            4 => store.checkpoint().unwrap(),
            _ => {}
        }
        let asked: Vec<_> = (0..rng.random_range(0..150)).map(|_| key(&mut rng)).collect();
        held.retain(|held| {
            let Held { snapshot, pairs, ordered } = held;
            let read = kv
                .at(snapshot)
                .and_then(|at| kv_is(&at, pairs, &asked))
                .and_then(|()| tree_is(&tree.at(snapshot)?, ordered, &asked));
            match read {
                Ok(()) => reads += 1,
                Err(Error::SnapshotLost { .. }) => lost += 1,
                Err(error) => panic!("seed {seed}, turn {turn}: {error}"),
            }
            read.is_ok()
        });
    }
    drop(held);
    assert_eq!(store.report().snapshot_bytes, 0);
    assert!(store.check().unwrap().problems.is_empty());
    (reads, lost)
}

#[test]
fn a_snapshot_of_pairs_stays_what_it_was_whatever_is_changed() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    for seed in 0..if campaign { 60 } else { 3 } {
        let (reads, lost) = model(64 << 20, seed, 80, 40);
        assert!(reads > 80 && lost == 0, "seed {seed}: {reads} reads, {lost} lost");
    }
}

#[test]
fn with_a_small_cache_a_snapshot_is_right_or_says_that_it_is_lost() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let (mut reads, mut lost) = (0, 0);
    for seed in 100..if campaign { 160 } else { 104 } {
        let (read, gone) = model(1 << 20, seed, 150, 60);
        (reads, lost) = (reads + read, lost + gone);
    }
    assert!(reads > 200 && lost > 0, "{reads} reads, {lost} lost");
}

#[test]
fn what_was_deleted_is_read_from_the_medium_however_small_the_cache() {
    let store = store(1 << 20);
    let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.durability(Durability::None);
    // Each in a page and a half or so: three times the cache, six times what snapshots may take of it.
    let pairs: Pairs = (0..500u32).map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; 6_000])).collect();
    for (key, value) in &pairs {
        kv.put(key, value).unwrap();
    }
    store.checkpoint().unwrap();
    let snapshot = store.snapshot();
    for key in pairs.keys() {
        kv.delete(key).unwrap();
    }
    assert_eq!(kv.count().unwrap(), 0);
    let then = kv.at(&snapshot).unwrap();
    for _ in 0..2 {
        assert!(all_of(&then).unwrap() == pairs);
    }
    let keys: Vec<_> = pairs.keys().cloned().collect();
    kv_is(&then, &pairs, &keys).unwrap();
}

#[test]
fn a_node_as_large_as_a_step_may_read_is_read_from_what_is_kept_of_it() {
    let store = store(1 << 20);
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    // Nearly half of the cache, which is all that snapshots may take.
    let value: Vec<u8> = (0..110 * 4096u32).map(|n| (n / 7) as u8).collect();
    kv.put(b"large", &value).unwrap();
    kv.put(b"other", &vec![7; 100_000]).unwrap();
    store.checkpoint().unwrap();
    let snapshot = store.snapshot();
    assert!(kv.delete(b"large").unwrap() && kv.delete(b"other").unwrap());
    let then = kv.at(&snapshot).unwrap();
    for _ in 0..2 {
        assert!(then.get(b"large").unwrap().unwrap() == value);
        assert!(then.get(b"other").unwrap().unwrap() == vec![7; 100_000]);
    }
}

#[test]
fn keys_are_counted_in_a_cache_that_has_no_room_for_their_table() {
    let store = store(1 << 20);
    let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.durability(Durability::None);
    let keys: Vec<[u8; 4]> = (0..80_000u32).map(u32::to_be_bytes).collect();
    for batch in keys.chunks(100) {
        let changes: Vec<_> = batch.iter().map(|key| KvChange::Put(key, b"")).collect();
        kv.change(&changes).unwrap();
    }
    assert!(store.report().table_pages > store.report().cache_pages, "{:?}", store.report());
    assert_eq!(kv.count().unwrap(), 80_000);
    let snapshot = store.snapshot();
    kv.delete(&keys[5]).unwrap();
    assert_eq!(kv.at(&snapshot).unwrap().count().unwrap(), 80_000);
    assert_eq!(kv.count().unwrap(), 79_999);
}

#[test]
fn fixed_pairs_are_read_many_at_once_from_a_snapshot() {
    let store = store(1 << 20);
    let mut tree = BTree::open(&store, SnodeId::FIRST, "numbers", BTreeForm::Fixed).unwrap();
    tree.durability(Durability::None);
    let value = |n: u32| (u64::from(n) * 3).to_le_bytes().to_vec();
    tree.load((0..60_000u32).map(|n| (n.to_be_bytes().to_vec(), value(n))), 90).unwrap();
    let snapshot = store.snapshot();
    for n in (0..60_000u32).step_by(600) {
        tree.delete(&n.to_be_bytes()).unwrap();
    }
    let then = tree.at(&snapshot).unwrap();
    let keys: Vec<u32> = (0..60_000).step_by(7).chain(60_000..60_100).collect();
    let mut next = 0;
    then.get_fixed(&keys, |at, value| {
        assert_eq!(at, next);
        assert_eq!(value, (keys[at] < 60_000).then(|| u64::from(keys[at]) * 3));
        next += 1;
    })
    .unwrap();
    assert_eq!(next, keys.len());
    assert_eq!((then.count().unwrap(), tree.count().unwrap()), (60_000, 59_900));
}

#[test]
fn threads_that_scan_snapshots_see_one_commit_each_while_a_writer_goes_on() {
    let store = store(16 << 20);
    let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let tree = BTree::open(&store, SnodeId::FIRST, "ordered", BTreeForm::Bytes).unwrap();
    kv.durability(Durability::None);
    let keys: Vec<[u8; 4]> = (0..400u32).map(u32::to_be_bytes).collect();
    let write = |round: u32| {
        let round = round.to_be_bytes();
        let mut tx = store.begin();
        tx.durability(Durability::None);
        let changes: Vec<_> = keys.iter().map(|key| KvChange::Put(key, &round)).collect();
        kv.change_in(&mut tx, &changes).unwrap();
        for key in &keys {
            tree.insert_in(&mut tx, key, &round).unwrap();
        }
        tx.commit().unwrap();
    };
    write(0);
    let over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (over, store, kv, tree) = (over.clone(), &store, &kv, &tree);
                scope.spawn(move || {
                    let mut rounds = Vec::new();
                    while !over.load(Ordering::Relaxed) || rounds.len() < 3 {
                        let snapshot = store.snapshot();
                        let pairs = all_of(&kv.at(&snapshot).unwrap()).unwrap();
                        let then = tree.at(&snapshot).unwrap();
                        let ordered: Pairs =
                            then.range::<&[u8]>(.., Direction::Down).unwrap().map(Result::unwrap).collect();
                        let first = pairs.values().next().unwrap();
                        assert!(pairs.values().all(|value| value == first), "parts of two commits");
                        assert!(ordered == pairs && pairs.len() == 400);
                        rounds.push(first.clone());
                    }
                    assert!(rounds.is_sorted());
                })
            })
            .collect();
        (1..150).for_each(write);
        over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}
