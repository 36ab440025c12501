//! Fills a store until its medium is full, and takes away again, on any medium.

#![allow(clippy::unwrap_used)]

use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use weft_tags::{Error, Kv, KvChange, Store};

pub fn is_full<T: std::fmt::Debug>(done: Result<T, Error>) -> bool {
    match done {
        Ok(_) => false,
        Err(Error::Full { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

pub fn check(store: &Store) {
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn is_as(kv: &Kv<'_>, pairs: &Pairs) {
    let found: Pairs = kv.scan().unwrap().collect::<Result<_, _>>().unwrap();
    assert!(found == *pairs, "{} pairs, {} wanted", found.len(), pairs.len());
}

/// Puts pairs in until the medium is full.
pub fn fill(kv: &Kv<'_>, pairs: &mut Pairs, rng: &mut StdRng, next: &mut u32) {
    let mut batch = [1, 7, 100][rng.random_range(0..3)];
    let bytes = [3, 100, 1_500, 9_000][rng.random_range(0..4)];
    loop {
        let new: Pairs = (0..batch)
            .map(|_| {
                *next += 1;
                (next.to_le_bytes().to_vec(), vec![*next as u8; rng.random_range(0..=bytes)])
            })
            .collect();
        let changes: Vec<_> = new.iter().map(|(key, value)| KvChange::Put(key, value)).collect();
        let done = kv.change(&changes);
        if batch > 1 && matches!(done, Err(Error::CacheFull { .. })) {
            // The pages that so many pairs may change are more than the cache has: smaller steps go on.
            batch = 1;
            continue;
        }
        if is_full(done) {
            return;
        }
        pairs.extend(new);
    }
}

/// Deletes some pairs, one by one or some together, which a full medium has room for.
pub fn delete(kv: &Kv<'_>, pairs: &mut Pairs, rng: &mut StdRng) {
    let part = [0.05, 0.5, 1.0][rng.random_range(0..3)];
    let keys: Vec<_> = pairs.keys().filter(|_| rng.random_bool(part)).cloned().collect();
    let batch = [1, 20][rng.random_range(0..2)];
    for keys in keys.chunks(batch) {
        let changes: Vec<_> = keys.iter().map(|key| KvChange::Delete(key)).collect();
        assert_eq!(kv.change(&changes).unwrap(), keys.len() as u64);
        keys.iter().for_each(|key| drop(pairs.remove(key)));
    }
}
