//! Transactions of several threads: deadlocks are refused and run again, nothing is lost, and what four threads read and
//! wrote is what they would have in some order one after the other.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use weft_tags::{
    Durability, EdgeType, Error, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, SnodeId, SnodeTags,
    Store, Transaction,
};

const CELL: NodeType = NodeType(9);
const THREADS: u64 = 4;

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some()
}

/// Small, so that checkpoints and evictions happen in the midst.
fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, ..Options::default() }
}

fn created(snodes: usize) -> (Arc<MemoryStore>, Store, Vec<SnodeId>) {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let mut tx = store.begin();
    let ids = (0..snodes).map(|_| tx.create_snode(&SnodeTags::default()).unwrap()).collect();
    tx.commit().unwrap();
    (medium, store, ids)
}

/// Runs a transaction until it is not in a deadlock.
fn retry(store: &Store, mut run: impl FnMut(&mut Transaction<'_>) -> Result<(), Error>) {
    loop {
        let mut tx = store.begin();
        tx.durability(Durability::None);
        match run(&mut tx) {
            Ok(()) => {
                tx.commit().unwrap();
                return;
            }
            Err(Error::Deadlock(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn number(tx: &mut Transaction<'_>, node: NodeId) -> Result<u64, Error> {
    Ok(u64::from_le_bytes(tx.read_node(node, CELL)?.try_into().unwrap()))
}

#[test]
fn of_two_transactions_that_wait_for_each_other_one_is_refused_and_the_other_goes_on() {
    let (_, store, snodes) = created(2);
    let meeting = Barrier::new(2);
    let run = |first: SnodeId, second: SnodeId| {
        let mut tx = store.begin();
        tx.root(first).unwrap();
        meeting.wait();
        let outcome = tx.root(second).map(drop);
        drop(tx);
        outcome
    };
    let (a, b) = (snodes[0], snodes[1]);
    let outcomes = std::thread::scope(|scope| {
        let threads = [scope.spawn(|| run(a, b)), scope.spawn(|| run(b, a))];
        threads.map(|thread| thread.join().unwrap())
    });
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::Deadlock(_)))).count();
    assert_eq!((refused, outcomes.iter().filter(|outcome| outcome.is_ok()).count()), (1, 1));
}

#[test]
fn transfers_between_shared_s_nodes_keep_the_sum_and_each_threads_own_s_node_counts_all() {
    const ACCOUNTS: u64 = 12;
    const START: u64 = 1_000;
    let transfers: u64 = if campaign() { 100_000 } else { 1_500 };
    let (medium, store, snodes) = created(3 + THREADS as usize);
    let etype = store.edge_type("account", InfoForm::Number).unwrap();
    let (shared, own) = snodes.split_at(3);
    let mut tx = store.begin();
    let account = |tx: &mut Transaction<'_>, snode: SnodeId, at: u64, sum: u64| {
        let node = tx.create_node(snode, CELL, &sum.to_le_bytes()).unwrap();
        let root = tx.root(snode).unwrap();
        tx.create_edge(root, etype, Info::Number(at), node).unwrap();
        node
    };
    let accounts: Vec<NodeId> =
        (0..ACCOUNTS).map(|at| account(&mut tx, shared[at as usize % 3], at, START)).collect();
    let counters: Vec<NodeId> = own.iter().map(|snode| account(&mut tx, *snode, 0, 0)).collect();
    tx.commit().unwrap();
    std::thread::scope(|scope| {
        for (thread, counter) in counters.iter().enumerate() {
            let (store, accounts) = (&store, &accounts);
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(thread as u64);
                for turn in 0..transfers {
                    let some = |rng: &mut StdRng| accounts[rng.random_range(0..accounts.len())];
                    let (from, to, sum) = (some(&mut rng), some(&mut rng), rng.random_range(0..20));
                    retry(store, |tx| {
                        if turn % 16 == 0 {
                            let mut all = 0;
                            for account in accounts {
                                all += number(tx, *account)?;
                            }
                            assert_eq!(all, ACCOUNTS * START, "what a transaction sees is one state");
                        }
                        let left = number(tx, from)?;
                        if let Some(left) = left.checked_sub(sum) {
                            tx.update_node(from, CELL, &left.to_le_bytes())?;
                            let more = number(tx, to)? + sum;
                            tx.update_node(to, CELL, &more.to_le_bytes())?;
                        }
                        let count = number(tx, *counter)? + 1;
                        tx.update_node(*counter, CELL, &count.to_le_bytes())
                    });
                }
            });
        }
    });
    let end = |store: &Store| {
        let value =
            |node: &NodeId| u64::from_le_bytes(store.read_node(*node, CELL).unwrap().try_into().unwrap());
        assert_eq!(accounts.iter().map(value).sum::<u64>(), ACCOUNTS * START);
        assert!(counters.iter().all(|node| value(node) == transfers));
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    };
    end(&store);
    store.sync().unwrap();
    drop(store);
    end(&Store::open(Box::new(medium), &options()).unwrap());
}

/// What a committed transaction did: the version of each key that it read, and those that it wrote over the one before.
#[derive(Clone, Default, Debug)]
struct Done {
    thread: u64,
    reads: Vec<(u64, u64)>,
    /// Keys, and the version that each became.
    writes: Vec<(u64, u64)>,
}

/// Whether some order of the transactions, in which those of a thread keep theirs, explains all that they read and wrote.
fn is_serialisable(history: &[Done]) -> bool {
    let mut writer: HashMap<(u64, u64), usize> = HashMap::new();
    for (at, done) in history.iter().enumerate() {
        for write in &done.writes {
            // Two that wrote the same version of a key have lost one of the writes.
            if writer.insert(*write, at).is_some() {
                return false;
            }
        }
    }
    let mut before: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut last: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, done) in history.iter().enumerate() {
        before.extend(last.insert(done.thread, at).map(|earlier| (earlier, at)));
        for (key, version) in &done.reads {
            // Version 0 is from before the history.
            match writer.get(&(*key, *version)) {
                Some(from) => before.extend((*from != at).then_some((*from, at))),
                None if *version > 0 => return false,
                None => {}
            }
            before.extend(writer.get(&(*key, version + 1)).filter(|to| **to != at).map(|to| (at, *to)));
        }
        for (key, version) in &done.writes {
            before.extend(writer.get(&(*key, version + 1)).filter(|to| **to != at).map(|to| (at, *to)));
        }
    }
    let mut waits = vec![0; history.len()];
    before.iter().for_each(|(_, to)| waits[*to] += 1);
    let mut ready: Vec<usize> = (0..history.len()).filter(|at| waits[*at] == 0).collect();
    let mut ordered = 0;
    while let Some(at) = ready.pop() {
        ordered += 1;
        for (_, to) in before.range((at, 0)..(at + 1, 0)) {
            waits[*to] -= 1;
            if waits[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    ordered == history.len()
}

#[test]
fn the_checker_knows_write_skew_a_lost_update_a_dirty_read_and_a_stale_one() {
    let done = |thread, reads: &[(u64, u64)], writes: &[(u64, u64)]| Done {
        thread,
        reads: reads.to_vec(),
        writes: writes.to_vec(),
    };
    assert!(is_serialisable(&[done(0, &[(1, 0)], &[(1, 1)]), done(1, &[(1, 1)], &[(1, 2)])]));
    assert!(!is_serialisable(&[
        done(0, &[(1, 0), (2, 0)], &[(1, 1)]),
        done(1, &[(1, 0), (2, 0)], &[(2, 1)])
    ]));
    assert!(!is_serialisable(&[done(0, &[(1, 0)], &[(1, 1)]), done(1, &[(1, 0)], &[(1, 1)])]));
    assert!(!is_serialisable(&[done(0, &[(1, 7)], &[])]));
    let stale = [done(0, &[(1, 0)], &[(1, 1)]), done(0, &[(1, 0)], &[])];
    assert!(!is_serialisable(&stale), "a thread sees what it has written before");
    let halves = [done(0, &[(1, 0), (2, 0)], &[(1, 1), (2, 1)]), done(1, &[(1, 1), (2, 0)], &[])];
    assert!(!is_serialisable(&halves), "half of a transaction");
}

struct Keys {
    etype: EdgeType,
    /// Where each key is an edge of, by its number.
    roots: Vec<NodeId>,
}

impl Keys {
    const COUNT: u64 = 24;

    fn source(&self, key: u64) -> NodeId {
        self.roots[key as usize % self.roots.len()]
    }

    fn read(&self, tx: &mut Transaction<'_>, key: u64) -> Result<u64, Error> {
        match tx.edge(self.source(key), self.etype, Info::Number(key))? {
            Some(node) => number(tx, node),
            None => Ok(0),
        }
    }

    /// By a new node or in place, in the key's s-node or another.
    fn write(&self, tx: &mut Transaction<'_>, key: u64, version: u64, rng: &mut StdRng) -> Result<(), Error> {
        let (source, info) = (self.source(key), Info::Number(key));
        let there = tx.edge(source, self.etype, info)?;
        if let Some(node) = there.filter(|_| rng.random_bool(0.5)) {
            return tx.update_node(node, CELL, &version.to_le_bytes());
        }
        let snode = SnodeId::from(self.roots[rng.random_range(0..self.roots.len())].home());
        let node = tx.create_node(snode, CELL, &version.to_le_bytes())?;
        tx.set_edge(source, self.etype, info, node).map(drop)
    }
}

#[test]
fn what_four_threads_read_and_wrote_has_an_order() {
    let turns = if campaign() { 50_000 } else { 1_000 };
    let (medium, store, snodes) = created(4);
    let etype = store.edge_type("key", InfoForm::Number).unwrap();
    let roots = snodes.iter().map(|snode| store.root(*snode).unwrap()).collect();
    let keys = Keys { etype, roots };
    let history = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, keys, history) = (&store, &keys, &history);
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(100 + thread);
                let mut own = Vec::new();
                for turn in 0..turns {
                    let mut tx = store.begin();
                    tx.durability(if turn % 50 == 0 { Durability::Sync } else { Durability::None });
                    let mut done = Done { thread, ..Done::default() };
                    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
                    let mut attempt = || -> Result<(), Error> {
                        for _ in 0..rng.random_range(1..5) {
                            let key = rng.random_range(0..Keys::COUNT);
                            let version = keys.read(&mut tx, key)?;
                            let known = seen.insert(key, version);
                            assert!(known.is_none_or(|known| known == version), "a read is repeatable");
                            done.reads.extend(known.is_none().then_some((key, version)));
                            let is_first = !done.writes.iter().any(|(written, _)| *written == key);
                            if is_first && rng.random_bool(0.5) {
                                keys.write(&mut tx, key, version + 1, &mut rng)?;
                                seen.insert(key, version + 1);
                                done.writes.push((key, version + 1));
                            }
                        }
                        Ok(())
                    };
                    match attempt() {
                        Ok(()) if rng.random_bool(0.9) => {
                            tx.commit().unwrap();
                            own.push(done);
                        }
                        Ok(()) | Err(Error::Deadlock(_)) => tx.abort(),
                        Err(error) => panic!("{error}"),
                    }
                }
                history.lock().unwrap().extend(own);
            });
        }
    });
    let history = history.into_inner().unwrap();
    assert!(history.len() as u64 > turns, "{} of {} transactions committed", history.len(), THREADS * turns);
    assert!(is_serialisable(&history));
    let end = |store: &Store| {
        for key in 0..Keys::COUNT {
            let written = history.iter().flat_map(|done| &done.writes).filter(|(at, _)| *at == key);
            let last = written.map(|(_, version)| *version).max().unwrap_or(0);
            assert_eq!(keys.read(&mut store.begin(), key).unwrap(), last, "the last version of key {key}");
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    };
    end(&store);
    store.close().unwrap();
    end(&Store::open(Box::new(medium), &options()).unwrap());
}

#[test]
fn readers_of_snapshots_see_whole_commits_while_writers_go_on() {
    const CELLS: u64 = 40;
    const SUM: u64 = CELLS * 100;
    let turns = if campaign() { 20_000 } else { 400 };
    let (_, store, snodes) = created(3);
    let etype = store.edge_type("cell", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    for at in 0..CELLS {
        let snode = snodes[at as usize % snodes.len()];
        let node = tx.create_node(snode, CELL, &100u64.to_le_bytes()).unwrap();
        let root = tx.root(snode).unwrap();
        tx.create_edge(root, etype, Info::Number(at), node).unwrap();
    }
    tx.commit().unwrap();
    let roots: Vec<NodeId> = snodes.iter().map(|snode| store.root(*snode).unwrap()).collect();
    let writing = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        let (store, roots, writing) = (&store, &roots, &writing);
        for thread in 0..2 {
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(thread);
                for turn in 0..turns {
                    let (from, to) = (rng.random_range(0..CELLS), rng.random_range(0..CELLS));
                    retry(store, |tx| {
                        let mut change = |at: u64, sum: i64| {
                            let root = roots[at as usize % roots.len()];
                            let Some(node) = tx.edge(root, etype, Info::Number(at))? else { panic!("{at}") };
                            let value = number(tx, node)?.wrapping_add_signed(sum).to_le_bytes();
                            if turn % 2 == 0 {
                                return tx.update_node(node, CELL, &value);
                            }
                            let new = tx.create_node(SnodeId::from(root.home()), CELL, &value)?;
                            tx.set_edge(root, etype, Info::Number(at), new).map(drop)
                        };
                        change(from, -1)?;
                        change(to, 1)
                    });
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                let mut looked = 0;
                while looked < 3 || writing.load(Ordering::SeqCst) > 0 {
                    let snapshot = store.snapshot();
                    for _ in 0..2 {
                        let mut sum = 0u64;
                        for at in 0..CELLS {
                            let root = roots[at as usize % roots.len()];
                            let node = snapshot.edge(root, etype, Info::Number(at)).unwrap().unwrap();
                            let data = snapshot.read_node(node, CELL).unwrap();
                            sum = sum.wrapping_add(u64::from_le_bytes(data.try_into().unwrap()));
                        }
                        assert_eq!(sum, SUM);
                    }
                    looked += 1;
                }
            });
        }
    });
    assert_eq!(store.report().snapshot_bytes, 0);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}
