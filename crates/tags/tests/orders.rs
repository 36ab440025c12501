//! The store with threads that meet in orders that a scheduler chooses: thousands of them, each one to be had again from its
//! seed. `RUSTFLAGS="--cfg weft_shuttle" cargo test -p weft-tags --test orders`; `WEFT_ORDERS=N` tries N of each.

#![cfg(weft_shuttle)]
#![allow(clippy::unwrap_used)]

mod support;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Runner, thread};
use std::sync::Arc;
use support::power_cut::PowerCutStore;
use weft_tags::{
    Durability, EdgeType, Error, Info, InfoForm, Kv, KvChange, MemoryStore, NodeId, NodeType, Options,
    SnodeId, SnodeTags, Store,
};

const SUM: NodeType = NodeType(3);

fn orders() -> usize {
    std::env::var("WEFT_ORDERS").ok().and_then(|orders| orders.parse().ok()).unwrap_or(300)
}

fn options() -> Options {
    let (cache_bytes, journal_bytes, store_bytes_max) = (1 << 20, 256 << 10, 4 << 20);
    // Nothing is timed here.
    let lock_wait = std::time::Duration::MAX;
    Options { cache_bytes, journal_bytes, store_bytes_max, lock_wait, ..Options::default() }
}

/// Half of the orders are random, half change the running thread seldom and at the worst places (PCT).
fn in_all_orders(body: impl Fn() + Send + Sync + Clone + 'static) {
    // A store is made on the stack of a thread, for which 32 KiB, as many as there are unless said, are not always enough.
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    Runner::new(RandomScheduler::new(orders()), config.clone()).run(body.clone());
    Runner::new(PctScheduler::new(3, orders()), config).run(body);
}

struct Bank {
    medium: Arc<MemoryStore>,
    store: Arc<Store>,
    etype: EdgeType,
    accounts: Vec<NodeId>,
}

/// Accounts of 100 in as many s-nodes.
fn bank(accounts: usize) -> Bank {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let etype = store.edge_type("account", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let accounts = (0..accounts).map(|_| {
        let snode = tx.create_snode(&SnodeTags::default()).unwrap();
        let root = tx.root(snode).unwrap();
        let account = tx.create_node(snode, SUM, &100u64.to_le_bytes()).unwrap();
        tx.create_edge(root, etype, Info::Number(0), account).unwrap();
        account
    });
    let accounts = accounts.collect();
    tx.commit().unwrap();
    Bank { medium, store: Arc::new(store), etype, accounts }
}

fn sum(raw: &[u8]) -> u64 {
    u64::from_le_bytes(raw.try_into().unwrap())
}

fn move_one(store: &Store, from: NodeId, to: NodeId, durability: Durability) -> Result<(), Error> {
    let mut tx = store.begin();
    tx.durability(durability);
    let held = sum(&tx.read_node(from, SUM)?);
    let other = sum(&tx.read_node(to, SUM)?);
    tx.update_node(from, SUM, &(held - 1).to_le_bytes())?;
    tx.update_node(to, SUM, &(other + 1).to_le_bytes())?;
    tx.commit().map(drop)
}

fn moved(store: &Store, from: NodeId, to: NodeId, durability: Durability) {
    loop {
        match move_one(store, from, to, durability) {
            Ok(()) => return,
            Err(Error::Deadlock(_)) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn is_sound(bank: Bank) {
    let Bank { medium, store, accounts, .. } = bank;
    let total = |store: &Store| accounts.iter().map(|a| sum(&store.read_node(*a, SUM).unwrap())).sum::<u64>();
    assert_eq!(total(&store), 100 * accounts.len() as u64);
    assert!(store.check().unwrap().problems.is_empty());
    // What is on the medium now is what a reader of it finds, without a close.
    store.sync().unwrap();
    drop(store);
    let again = Store::open(Box::new(medium), &options()).unwrap();
    assert_eq!(total(&again), 100 * accounts.len() as u64);
    assert!(again.check().unwrap().problems.is_empty());
}

#[test]
fn transfers_between_s_nodes_lose_nothing_and_circles_are_broken() {
    in_all_orders(|| {
        let bank = bank(3);
        let pairs = [(0, 1), (1, 2), (2, 0)];
        let threads: Vec<_> = pairs
            .into_iter()
            .map(|(from, to)| {
                let (store, from, to) = (bank.store.clone(), bank.accounts[from], bank.accounts[to]);
                thread::spawn(move || {
                    for durability in [Durability::Sync, Durability::None] {
                        moved(&store, from, to, durability);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        is_sound(bank);
    });
}

#[test]
fn commits_that_wait_together_are_all_durable_when_they_return() {
    in_all_orders(|| {
        let bank = bank(3);
        let threads: Vec<_> = (0..3usize)
            .map(|n| {
                let (store, medium) = (bank.store.clone(), bank.medium.clone());
                let (account, etype) = (bank.accounts[n], bank.etype);
                thread::spawn(move || {
                    let mut tx = store.begin();
                    let node =
                        tx.create_node(SnodeId::from(account.home()), SUM, &7u64.to_le_bytes()).unwrap();
                    tx.create_edge(account, etype, Info::Number(7), node).unwrap();
                    tx.commit().unwrap();
                    // As if the process were killed now.
                    let left = MemoryStore::from_bytes(medium.to_bytes());
                    let found = Store::open(Box::new(left), &options()).unwrap();
                    assert_eq!(found.edge(account, etype, Info::Number(7)).unwrap(), Some(node));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        is_sound(bank);
    });
}

#[test]
fn commits_that_give_themselves_time_are_durable_when_that_is_said_and_after_the_store_is_gone() {
    in_all_orders(|| {
        let bank = bank(2);
        let threads = [(0, 1), (1, 0)].map(|(from, to)| {
            let (store, medium) = (bank.store.clone(), bank.medium.clone());
            let (from, to, etype) = (bank.accounts[from], bank.accounts[to], bank.etype);
            thread::spawn(move || {
                moved(&store, from, to, Durability::Periodic(5));
                let mut tx = store.begin();
                tx.durability(Durability::Periodic(1));
                let node = tx.create_node(SnodeId::from(from.home()), SUM, &7u64.to_le_bytes()).unwrap();
                tx.create_edge(from, etype, Info::Number(7), node).unwrap();
                let commit = tx.commit().unwrap();
                while store.report().durable_commit < commit {
                    thread::yield_now();
                }
                let left = MemoryStore::from_bytes(medium.to_bytes());
                let found = Store::open(Box::new(left), &options()).unwrap();
                assert_eq!(found.edge(from, etype, Info::Number(7)).unwrap(), Some(node));
                moved(&store, from, to, Durability::Periodic(9));
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let Bank { medium, store, accounts, .. } = bank;
        let commit = store.report().last_commit;
        drop(store);
        let again = Store::open(Box::new(medium), &options()).unwrap();
        assert_eq!(again.report().last_commit, commit);
        let total: u64 = accounts.iter().map(|a| sum(&again.read_node(*a, SUM).unwrap())).sum();
        assert_eq!(total, 200);
        assert!(again.check().unwrap().problems.is_empty());
    });
}

#[test]
fn readers_see_whole_commits_while_others_write() {
    in_all_orders(|| {
        let medium = Arc::new(MemoryStore::new());
        let store = Arc::new(Store::create(Box::new(medium), &options()).unwrap());
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        kv.put(b"a", b"0").unwrap();
        kv.put(b"b", b"0").unwrap();
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
                for value in [b"1", b"2"] {
                    kv.put(b"a", value).unwrap();
                    kv.put(b"b", value).unwrap();
                    assert!(kv.delete(b"c").is_ok() && kv.put(b"c", &[9; 3000]).is_ok());
                }
            })
        };
        let reader = {
            let store = store.clone();
            thread::spawn(move || {
                let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
                for _ in 0..3 {
                    // Read in the other order than written: what is read first is not newer.
                    let b = kv.get(b"b").unwrap().unwrap();
                    let a = kv.get(b"a").unwrap().unwrap();
                    assert!(a >= b, "{a:?} {b:?}");
                    let c = kv.get(b"c").unwrap();
                    assert!(c.is_none_or(|c| c == [9; 3000]));
                }
            })
        };
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn a_snapshot_has_one_state_of_all_s_nodes_whatever_is_committed_meanwhile() {
    in_all_orders(|| {
        let bank = bank(3);
        let writer = |from: usize, to: usize| {
            let (store, from, to) = (bank.store.clone(), bank.accounts[from], bank.accounts[to]);
            thread::spawn(move || (0..2).for_each(|_| moved(&store, from, to, Durability::None)))
        };
        let threads = [writer(0, 1), writer(1, 2)];
        let reader = {
            let (store, accounts) = (bank.store.clone(), bank.accounts.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let snapshot = store.snapshot();
                    let read =
                        || accounts.iter().map(|a| sum(&snapshot.read_node(*a, SUM).unwrap())).collect();
                    let first: Vec<u64> = read();
                    assert_eq!(first.iter().sum::<u64>(), 300, "{first:?}");
                    let again: Vec<u64> = read();
                    assert_eq!(first, again);
                }
            })
        };
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        reader.join().unwrap();
        is_sound(bank);
    });
}

#[test]
fn a_snapshot_of_pairs_is_of_one_commit_while_others_commit() {
    in_all_orders(|| {
        let store = Arc::new(Store::create(Box::new(MemoryStore::new()), &options()).unwrap());
        let put = |store: &Store, value: u8| {
            let mut kv = Kv::open(store, SnodeId::FIRST, "pairs").unwrap();
            kv.durability(Durability::None);
            let value = [value; 20];
            let put = |key| KvChange::Put(key, &value);
            kv.change(&[put(b"a"), put(b"b"), put(b"c")]).unwrap();
        };
        put(&store, 0);
        let writer = {
            let store = store.clone();
            thread::spawn(move || (1..4).for_each(|value| put(&store, value)))
        };
        let reader = {
            let store = store.clone();
            thread::spawn(move || {
                let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
                for _ in 0..2 {
                    let snapshot = store.snapshot();
                    let then = kv.at(&snapshot).unwrap();
                    let values: Vec<_> = then.scan().map(|pair| pair.unwrap().1).collect();
                    assert!(
                        values.len() == 3 && values.iter().all(|value| *value == values[0]),
                        "{values:?}"
                    );
                    assert_eq!(
                        (then.count().unwrap(), then.get(b"b").unwrap().unwrap()),
                        (3, values[0].clone())
                    );
                }
            })
        };
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn power_that_fails_while_threads_commit_takes_nothing_durable_and_leaves_nothing_in_part() {
    in_all_orders(|| {
        use shuttle::rand::Rng;
        // Where power fails before the store is open there is one thread, which the scheduler takes for a mistake.
        let rest = || (0..3).for_each(|_| thread::yield_now());
        let other = thread::spawn(rest);
        rest();
        other.join().unwrap();
        let begin = Arc::new(support::begin());
        let cut = shuttle::rand::thread_rng().gen_range(0..40u64);
        support::cut_at(
            &begin,
            cut,
            9,
            |work| {
                let thread = thread::spawn(work);
                Box::new(move || thread.join().unwrap())
            },
            thread::yield_now,
        );
    });
}

#[test]
fn a_sync_takes_all_pages_along_that_commits_before_it_are_still_writing() {
    in_all_orders(|| {
        use shuttle::rand::Rng;
        use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
        let medium = Arc::new(PowerCutStore::new(Vec::new(), u64::MAX));
        let store = Arc::new(Store::create(Box::new(medium.clone()), &options()).unwrap());
        let mut tx = store.begin();
        let [other, another] = [(); 2].map(|()| tx.create_snode(&SnodeTags::default()).unwrap());
        tx.commit().unwrap();
        let put = |store: &Store, snode: SnodeId, turn: u64, durability: Durability| {
            let mut kv = Kv::open(store, snode, "pairs").unwrap();
            kv.durability(durability);
            // Pages that are filled, and from the second turn on nodes that are freed in them.
            let value = [turn as u8; 900];
            let keys: Vec<[u8; 1]> = (0..9u8).map(|key| [key]).collect();
            kv.change(&keys.iter().map(|key| KvChange::Put(key, &value)).collect::<Vec<_>>()).unwrap();
        };
        let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let snodes = [other, another];
        let writers = [0, 1].map(|at| {
            let (store, done) = (store.clone(), done.clone());
            thread::spawn(move || {
                for turn in 1..4 {
                    put(&store, snodes[at], turn, Durability::None);
                    done[at].store(turn, SeqCst);
                }
            })
        });
        let syncs = thread::spawn({
            let store = store.clone();
            move || {
                for turn in 1..3 {
                    let before = [0, 1].map(|at| done[at].load(SeqCst));
                    if turn == 1 {
                        put(&store, SnodeId::FIRST, turn, Durability::Sync);
                    } else {
                        store.sync().unwrap();
                    }
                    let left = medium.after_power_cut(shuttle::rand::thread_rng().gen_range(0..100u64));
                    let found = Store::open(Box::new(left), &options()).unwrap();
                    for (snode, before) in snodes.into_iter().zip(before) {
                        let kv = Kv::open(&found, snode, "pairs").unwrap();
                        let values: Vec<_> = (0..9u8).map(|key| kv.get(&[key]).unwrap()).collect();
                        let turn = values[0].as_ref().map_or(0, |value| u64::from(value[0]));
                        assert!(turn >= before, "{turn} of {before}");
                        assert!(values.iter().all(|value| *value == values[0]), "a commit in part");
                    }
                    let kv = Kv::open(&found, SnodeId::FIRST, "pairs").unwrap();
                    assert!(kv.get(&[0]).unwrap().is_some(), "its own commit is lost");
                    assert!(found.check().unwrap().problems.is_empty());
                }
            }
        });
        writers.into_iter().for_each(|thread| thread.join().unwrap());
        syncs.join().unwrap();
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn commits_that_fill_the_cache_together_each_have_room() {
    let options = || Options { journal_bytes: 2 << 20, store_bytes_max: 32 << 20, ..options() };
    in_all_orders(move || {
        let medium = Arc::new(MemoryStore::new());
        let store = Arc::new(Store::create(Box::new(medium.clone()), &options()).unwrap());
        let etype = store.edge_type("large", InfoForm::Number).unwrap();
        let mut tx = store.begin();
        let large = [(); 3].map(|()| {
            let snode = tx.create_snode(&SnodeTags::default()).unwrap();
            let root = tx.root(snode).unwrap();
            [0, 1, 2, 3u64].map(|at| {
                let node = tx.create_node(snode, SUM, &vec![0; 100_000]).unwrap();
                tx.create_edge(root, etype, Info::Number(at), node).unwrap();
                node
            })
        });
        tx.commit().unwrap();
        // A hundred pages of a cache of 256 each.
        let threads = large.map(|mine| {
            let store = store.clone();
            thread::spawn(move || {
                for round in 1..3u8 {
                    let mut tx = store.begin();
                    tx.durability(Durability::None);
                    mine.iter().for_each(|node| tx.update_node(*node, SUM, &vec![round; 100_000]).unwrap());
                    tx.commit().unwrap();
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(store.check().unwrap().problems.is_empty());
        for node in large.iter().flatten() {
            assert!(store.read_node(*node, SUM).unwrap() == vec![2; 100_000]);
        }
    });
}

#[test]
fn commits_that_fill_the_journal_together_each_have_room() {
    in_all_orders(|| {
        let bank = bank(3);
        let threads: Vec<_> = (0..3usize)
            .map(|n| {
                let (store, account, etype) = (bank.store.clone(), bank.accounts[n], bank.etype);
                thread::spawn(move || {
                    let mut tx = store.begin();
                    let large: Vec<NodeId> = (0..3u64)
                        .map(|at| {
                            let node =
                                tx.create_node(SnodeId::from(account.home()), SUM, &vec![0; 30_000]).unwrap();
                            tx.create_edge(account, etype, Info::Number(at), node).unwrap();
                            node
                        })
                        .collect();
                    tx.durability(Durability::None);
                    tx.commit().unwrap();
                    // 90 KB of a journal of 256.
                    for round in 1..4u8 {
                        let mut tx = store.begin();
                        tx.durability(Durability::None);
                        large
                            .iter()
                            .for_each(|node| tx.update_node(*node, SUM, &vec![round; 30_000]).unwrap());
                        tx.commit().unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        is_sound(bank);
    });
}
