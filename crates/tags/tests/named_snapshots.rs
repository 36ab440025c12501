//! Named snapshots: a state of before is read as it was, whatever is changed since, across openings and power cuts; what only a snapshot
//! kept is free when it is deleted.

#![allow(clippy::unwrap_used)]

#[path = "support/power_cut.rs"]
mod power_cut;

use power_cut::PowerCutStore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_tags::{
    Error, Info, InfoForm, Kv, MemoryStore, NodeType, Options, PageStore, SnodeId, Store, at_snapshot,
};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, huge_pages: false, ..Options::default() }
}

fn pairs(store: &Store) -> Pairs {
    match Kv::find(store, SnodeId::FIRST, "pairs").unwrap() {
        Some(kv) => kv.scan().unwrap().map(Result::unwrap).collect(),
        None => Pairs::new(),
    }
}

fn then(medium: Box<dyn PageStore>, name: &str) -> Pairs {
    let store = Store::open_read_only(at_snapshot(medium, name).unwrap(), &options()).unwrap();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    assert!(store.named_snapshots().is_empty());
    pairs(&store)
}

/// Changes some pairs, in the store and in what it must have.
fn change(store: &Store, pairs: &mut Pairs, random: &mut StdRng, count: usize) {
    let kv = Kv::open(store, SnodeId::FIRST, "pairs").unwrap();
    for _ in 0..count {
        let key = random.random_range(0..400u32).to_le_bytes().to_vec();
        if random.random_bool(0.3) {
            kv.delete(&key).unwrap();
            pairs.remove(&key);
        } else {
            let value = vec![random.random(); random.random_range(0..3000)];
            kv.put(&key, &value).unwrap();
            pairs.insert(key, value);
        }
    }
}

#[test]
fn snapshots_are_read_as_they_were_after_changes_openings_and_deletions_of_others() {
    let medium = Arc::new(MemoryStore::new());
    let mut random = StdRng::seed_from_u64(4);
    let mut now = Pairs::new();
    let mut kept: BTreeMap<String, Pairs> = BTreeMap::new();
    Store::create(Box::new(medium.clone()), &options()).unwrap().close().unwrap();
    for round in 0..40 {
        let store = Store::open(Box::new(medium.clone()), &options()).unwrap();
        assert_eq!(pairs(&store), now, "round {round}");
        for step in 0..3 {
            change(&store, &mut now, &mut random, 60);
            let name = format!("{round}.{step}");
            if random.random_bool(0.4) {
                store.create_snapshot(&name).unwrap();
                kept.insert(name.clone(), now.clone());
                assert!(matches!(store.create_snapshot(&name), Err(Error::SnapshotExists(_))));
            }
            if kept.len() > 4 {
                let names: Vec<&String> = kept.keys().collect();
                let name = names[random.random_range(0..names.len())].clone();
                store.delete_snapshot(&name).unwrap();
                kept.remove(&name);
                assert!(matches!(store.delete_snapshot(&name), Err(Error::NoSuchSnapshot(_))));
            }
        }
        let named: Vec<String> = store.named_snapshots().into_iter().map(|found| found.name).collect();
        assert_eq!(named.len(), kept.len());
        assert!(named.iter().all(|name| kept.contains_key(name)));
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        match round % 3 {
            0 => store.close().unwrap(),
            // As when the process ends.
            _ => drop(store),
        }
        for (name, wanted) in &kept {
            assert!(then(Box::new(medium.clone()), name) == *wanted, "round {round}, snapshot {name}");
        }
    }
}

#[test]
fn what_only_a_snapshot_kept_is_free_again_and_a_store_without_any_is_of_the_version_before() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let (mut random, mut all) = (StdRng::seed_from_u64(5), Pairs::new());
    let used = |store: &Store| {
        store.checkpoint().unwrap();
        let report = store.report();
        report.medium_bytes - report.free_bytes
    };
    change(&store, &mut all, &mut random, 2000);
    let before = used(&store);
    store.create_snapshot("one").unwrap();
    assert_eq!(medium.to_bytes()[8], 9);
    change(&store, &mut all, &mut random, 2000);
    let with = used(&store);
    assert!(with > before + before / 2, "{before} {with}");
    assert!(matches!(store.shrink(|_, _| ()), Err(Error::HasSnapshots(_))));
    store.delete_snapshot("one").unwrap();
    let after = used(&store);
    assert!(after < before + before / 4, "{before} {with} {after}");
    assert_eq!(medium.to_bytes()[8], 8);
    store.shrink(|_, _| ()).unwrap();
    let copy = Arc::new(MemoryStore::new());
    store.create_snapshot("two").unwrap();
    store.backup(&copy, |_, _| ()).unwrap();
    let copied = Store::open(Box::new(copy), &options()).unwrap();
    assert!(copied.named_snapshots().is_empty() && pairs(&copied) == all, "a copy is of one state");
    assert!(matches!(at_snapshot(Box::new(medium), "three"), Err(Error::NoSuchSnapshot(_))));
}

/// A node is being made, smaller and larger than a page, while a snapshot is taken; then it is committed, or not.
#[test]
fn a_snapshot_holds_nothing_of_a_transaction_that_commits_later() {
    const KIND: NodeType = NodeType(7);
    for (bytes, commits) in
        [3_000, 5_000, 20_000, 2_000_000].into_iter().flat_map(|bytes| [(bytes, true), (bytes, false)])
    {
        let medium = Arc::new(MemoryStore::new());
        let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
        let (root, of) =
            (store.root(SnodeId::FIRST).unwrap(), store.edge_type("of", InfoForm::Number).unwrap());
        let mut kept = store.begin();
        let node = kept.create_node(SnodeId::FIRST, KIND, &vec![1; bytes]).unwrap();
        kept.create_edge(root, of, Info::Number(0), node).unwrap();
        kept.commit().unwrap();
        let mut tx = store.begin();
        let node = tx.create_node(SnodeId::FIRST, KIND, &vec![2; bytes]).unwrap();
        tx.create_edge(root, of, Info::Number(1), node).unwrap();
        std::thread::scope(|scope| scope.spawn(|| store.create_snapshot("then").unwrap()).join().unwrap());
        if commits {
            _ = tx.commit().unwrap()
        } else {
            tx.abort()
        }
        let copy = Arc::new(MemoryStore::from_bytes(medium.to_bytes()));
        drop(store);
        let store = Store::open(Box::new(copy.clone()), &options()).unwrap();
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "{bytes} bytes");
        let data = |store: &Store, number| {
            let node = store.edge(root, of, Info::Number(number)).unwrap();
            node.map(|node| store.read_node(node, KIND).unwrap())
        };
        assert!(data(&store, 0) == Some(vec![1; bytes]));
        assert!(data(&store, 1) == commits.then(|| vec![2; bytes]), "{bytes} bytes");
        store.close().unwrap();
        let then = Store::open_read_only(at_snapshot(Box::new(copy), "then").unwrap(), &options()).unwrap();
        assert_eq!(then.check().unwrap().problems, Vec::<String>::new(), "{bytes} bytes");
        assert!(data(&then, 0) == Some(vec![1; bytes]) && data(&then, 1).is_none());
    }
}

#[test]
fn after_a_power_cut_a_snapshot_is_there_whole_or_not_at_all_and_those_before_are_as_they_were() {
    let work = |store: &Store, told: &mut Vec<(String, Option<Pairs>)>| -> weft_tags::Result<()> {
        let kv = Kv::open(store, SnodeId::FIRST, "pairs")?;
        let (root, of) = (store.root(SnodeId::FIRST)?, store.edge_type("of", InfoForm::Number)?);
        let mut now = pairs(store);
        for round in 0..6u32 {
            for key in 0..40u32 {
                let (key, value) = ((key * 7 % 60).to_le_bytes(), vec![round as u8; 700]);
                now.insert(key.to_vec(), value.clone());
                kv.put(&key, &value)?;
            }
            let name = format!("s{round}");
            // Told of before it is begun, and again when it is done.
            told.push((name.clone(), None));
            // A node of one page or more is being made meanwhile, and is committed afterwards.
            let mut tx = store.begin();
            let node = tx.create_node(
                SnodeId::FIRST,
                NodeType(7),
                &vec![round as u8; 3_000 + 4_000 * round as usize],
            )?;
            tx.create_edge(root, of, Info::Number(round.into()), node)?;
            let taken = std::thread::scope(|scope| scope.spawn(|| store.create_snapshot(&name)).join());
            taken.unwrap()?;
            tx.commit()?;
            if let Some(last) = told.last_mut() {
                last.1 = Some(now.clone());
            }
            if round >= 2 {
                let gone = format!("s{}", round - 2);
                told.retain(|(name, _)| *name != gone);
                store.delete_snapshot(&gone)?;
            }
        }
        Ok(())
    };
    let first = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(first.clone()), &options()).unwrap();
    store.edge_type("of", InfoForm::Number).unwrap();
    store.close().unwrap();
    let whole = Arc::new(PowerCutStore::new(first.to_bytes(), u64::MAX));
    work(&Store::open(Box::new(whole.clone()), &options()).unwrap(), &mut Vec::new()).unwrap();
    let operations = whole.operations();
    let step = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 1 } else { 7 };
    let mut cuts = 0;
    for cut in (0..operations).step_by(step) {
        let medium = Arc::new(PowerCutStore::new(first.to_bytes(), cut));
        let mut told = Vec::new();
        if let Ok(store) = Store::open(Box::new(medium.clone()), &options()) {
            let _ = work(&store, &mut told);
        }
        assert!(medium.is_cut());
        cuts += 1;
        let after = Arc::new(medium.after_power_cut(cut));
        let store =
            Store::open(Box::new(after.clone()), &options()).unwrap_or_else(|e| panic!("cut {cut}: {e}"));
        let named: Vec<String> = store.named_snapshots().into_iter().map(|found| found.name).collect();
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "cut {cut}");
        drop(store);
        for (name, wanted) in &told {
            match wanted {
                Some(wanted) => assert!(then(Box::new(after.clone()), name) == *wanted, "cut {cut}, {name}"),
                None if named.contains(name) => _ = then(Box::new(after.clone()), name),
                None => {}
            }
        }
    }
    assert!(cuts > 100, "{cuts} cuts");
}
