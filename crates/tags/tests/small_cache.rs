//! A cache far smaller than what is changed: by a journal that was written with a larger one, and by transactions.

#![allow(clippy::unwrap_used)]

#[path = "support/power_cut.rs"]
mod power_cut;

use power_cut::PowerCutStore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use weft_tags::{
    BTree, BTreeForm, Credentials, Direction, Durability, EdgeType, Error, Info, InfoForm, Kv, KvChange,
    MemoryStore, NodeId, NodeType, Options, PageStore, SessionLimits, SnodeId, SnodeTags, Store, Transaction,
};

const PLAIN: NodeType = NodeType(5);
/// Nodes of a store whose journal is replayed.
const NODES: usize = 2_700;

fn options(cache_bytes: u64) -> Options {
    Options { cache_bytes, journal_bytes: 24 << 20, store_bytes_max: 256 << 20, ..Options::default() }
}

struct Crashed {
    image: Vec<u8>,
    nodes: Vec<(NodeId, Vec<u8>)>,
}

/// A store whose journal changes ten times as many pages as the smallest cache has, most of them several times.
fn crashed() -> Crashed {
    let mut rng = StdRng::seed_from_u64(1);
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options(64 << 20)).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut nodes = Vec::new();
    let mut tx = store.begin();
    for n in 0..NODES as u64 {
        // The last node alone has more pages than the small cache.
        let bytes = match n {
            _ if n + 1 == NODES as u64 => 2 << 20,
            _ if n.is_multiple_of(20) => rng.random_range(4_100..9_000),
            _ => rng.random_range(2_500..4_080),
        };
        let data = vec![n as u8; bytes];
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &data).unwrap();
        tx.create_edge(root, etype, Info::Number(n), node).unwrap();
        nodes.push((node, data));
    }
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    for round in 0..3 {
        let mut tx = store.begin();
        tx.durability(Durability::None);
        for n in 0..nodes.len() {
            if n % 3 == round || n + 1 == nodes.len() && round == 1 {
                continue;
            }
            let (node, data) = &mut nodes[n];
            data.fill(rng.random());
            tx.update_node(*node, PLAIN, data).unwrap();
            // Edges of many sources, so that tables split while the cache is full.
            let to = *node;
            for info in 0..4 {
                let (source, _) = nodes[rng.random_range(0..nodes.len())];
                tx.set_edge(source, etype, Info::Number(1 << 32 | info), to).unwrap();
            }
        }
        tx.commit().unwrap();
        let data = vec![round as u8; 40_000];
        let mut tx = store.begin();
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &data).unwrap();
        tx.create_edge(root, etype, Info::Number(1 << 40 | round as u64), node).unwrap();
        tx.commit().unwrap();
        nodes.push((node, data));
    }
    assert!(store.report().dirty_pages > 2_500, "{}", store.report().dirty_pages);
    drop(store);
    Crashed { image: medium.to_bytes(), nodes }
}

fn compare(store: &Store, crashed: &Crashed) {
    for (node, data) in &crashed.nodes {
        assert!(&store.read_node(*node, PLAIN).unwrap() == data, "node {node}");
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_journal_is_replayed_with_the_smallest_cache() {
    let crashed = crashed();
    let medium = Arc::new(MemoryStore::from_bytes(crashed.image.clone()));
    let small = Store::open(Box::new(medium.clone()), &options(1 << 20)).unwrap();
    assert_eq!(small.report().recovered_commits, 6);
    let (large_node, data) = &crashed.nodes[NODES - 1];
    assert!(small.read_node(*large_node, PLAIN).unwrap() == *data);
    // A page that is written back several times takes one block, not one each time.
    assert!(small.report().medium_bytes <= 96 << 20, "{}", small.report().medium_bytes);
    small.close().unwrap();
    let again = Store::open(Box::new(medium), &options(64 << 20)).unwrap();
    assert_eq!(again.report().recovered_commits, 0);
    compare(&again, &crashed);
}

#[test]
fn power_may_fail_during_a_replay_that_writes_back() {
    let crashed = crashed();
    let medium = Arc::new(PowerCutStore::new(crashed.image.clone(), u64::MAX));
    Store::open(Box::new(medium.clone()), &options(1 << 20)).unwrap();
    let operations = medium.operations();
    assert!(operations > 20, "{operations} writes: the replay has not written back");
    // Some in the midst of it, and each of the checkpoint that ends it.
    let middle = (0..operations - 6).step_by((operations as usize / 3).max(1));
    for cut_at in middle.chain(operations - 6..operations) {
        let medium = Arc::new(PowerCutStore::new(crashed.image.clone(), cut_at));
        let opened = Store::open(Box::new(medium.clone()), &options(1 << 20));
        assert!(matches!(opened, Err(Error::Io { .. })), "cut at {cut_at}");
        let left = medium.after_power_cut(cut_at);
        let left = Arc::new(left);
        Store::open(Box::new(left.clone()), &options(1 << 20)).unwrap().close().unwrap();
        compare(&Store::open(Box::new(left), &options(64 << 20)).unwrap(), &crashed);
    }
}

#[test]
fn a_transaction_of_about_the_journals_size_commits_or_is_refused() {
    let options = Options { journal_bytes: 256 << 10, ..options(4 << 20) };
    let store = Store::create(Box::new(MemoryStore::new()), &options).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut tx = store.begin();
    // Larger nodes have pages of their own, which are written past the journal.
    let make = |number| {
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &[0; 4_050]).unwrap();
        tx.create_edge(root, etype, Info::Number(number), node).unwrap();
        node
    };
    let nodes: Vec<NodeId> = (0..65).map(make).collect();
    tx.commit().unwrap();
    let (mut committed, mut refused) = (0, 0);
    for len in (245_000..262_000).step_by(500) {
        let mut tx = store.begin();
        for node in &nodes {
            tx.update_node(*node, PLAIN, &vec![len as u8; len / nodes.len()]).unwrap();
        }
        match tx.commit() {
            Ok(_) => committed += 1,
            Err(Error::TooLarge { .. }) => refused += 1,
            Err(error) => panic!("{len} bytes: {error}"),
        }
    }
    assert!(committed > 0 && refused > 0, "{committed} committed, {refused} refused");
}

/// A store with the smallest cache and committed nodes of 3,900 bytes, each in a page of its own.
fn small_with(nodes: usize) -> (Store, Vec<(NodeId, Vec<u8>)>) {
    let store = Store::create(Box::new(MemoryStore::new()), &options(1 << 20)).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut tx = store.begin();
    let make = |n: usize| {
        let data = vec![n as u8; 3_900];
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &data).unwrap();
        tx.create_edge(root, etype, Info::Number(n as u64), node).unwrap();
        (node, data)
    };
    let nodes = (0..nodes).map(make).collect();
    tx.commit().unwrap();
    (store, nodes)
}

fn read_all(store: &Store, nodes: &[(NodeId, Vec<u8>)]) {
    for (node, data) in nodes {
        assert!(store.read_node(*node, PLAIN).unwrap() == *data, "node {node}");
    }
}

#[test]
fn reads_go_on_while_a_transaction_makes_more_than_the_cache_holds() {
    let (store, nodes) = small_with(600);
    let mut tx = store.begin();
    let mut new = Vec::new();
    for n in 0..600 {
        // New nodes of a page each, which stay in the cache; now and then data that has outgrown its place.
        let grows = n % 5 == 0;
        let data = vec![!n as u8; if grows { 8_000 } else { 3_900 }];
        let at = if grows { nodes[n].0 } else { tx.create_node(SnodeId::FIRST, PLAIN, &data).unwrap() };
        if grows {
            tx.update_node(at, PLAIN, &data).unwrap();
        }
        assert!(tx.read_node(at, PLAIN).unwrap() == data, "the transaction's own");
        new.push((at, data));
        // Committed nodes, most of which are not in the cache; the s-node's lock is the transaction's.
        let (node, before) = &nodes[(n * 7) % 600];
        assert!(store.read_node(*node, PLAIN).unwrap() == *before, "after {n} changes");
    }
    read_all(&store, &nodes);
    for (node, data) in &new {
        assert!(tx.read_node(*node, PLAIN).unwrap() == *data, "node {node}");
    }
    drop(tx);
    read_all(&store, &nodes);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_commit_that_changes_more_than_the_cache_holds_is_refused_and_reads_go_on() {
    let (store, mut nodes) = small_with(600);
    let root = store.root(SnodeId::FIRST).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    // Other commits have left as many changed pages as they may.
    let change = |tx: &mut Transaction<'_>, range: std::ops::Range<usize>, value: u8| {
        range.for_each(|n| tx.update_node(nodes[n].0, PLAIN, &[value; 3_900]).unwrap());
    };
    let mut tx = store.begin();
    change(&mut tx, 0..180, 1);
    tx.commit().unwrap();
    let mut tx = store.begin();
    change(&mut tx, 180..430, 2);
    // New nodes, too, which take frames at once.
    for n in 0..250 {
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &[3; 3_900]).unwrap();
        tx.create_edge(root, etype, Info::Number(1_000 + n), node).unwrap();
    }
    assert_eq!(tx.read_node(nodes[200].0, PLAIN).unwrap(), [2; 3_900]);
    assert_eq!(tx.read_node(nodes[599].0, PLAIN).unwrap(), nodes[599].1);
    let refused = tx.commit().unwrap_err();
    assert!(matches!(refused, Error::CacheFull { .. }), "{refused}");
    assert!(refused.to_string().contains("smaller steps"), "{refused}");
    nodes[..180].iter_mut().for_each(|(_, data)| data.fill(1));
    read_all(&store, &nodes);
    let mut tx = store.begin();
    nodes[180..340].iter().for_each(|(node, _)| tx.update_node(*node, PLAIN, &[4; 3_900]).unwrap());
    tx.commit().unwrap();
    nodes[180..340].iter_mut().for_each(|(_, data)| data.fill(4));
    read_all(&store, &nodes);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn many_threads_read_many_pages_each_while_the_cache_is_full_of_changes() {
    let options = Options { journal_bytes: 2 << 20, ..options(1 << 20) };
    let store = Store::create(Box::new(MemoryStore::new()), &options).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "kv").unwrap();
    let keys: Vec<[u8; 8]> = (0..2_000u64).map(u64::to_le_bytes).collect();
    for group in keys.chunks(100) {
        let changes: Vec<_> = group.iter().map(|key| KvChange::Put(key, &[7; 1_900])).collect();
        kv.change(&changes).unwrap();
    }
    let mut tx = store.begin();
    std::thread::scope(|threads| {
        let readers: Vec<_> = (0..6usize)
            .map(|at| {
                let (kv, keys) = (&kv, &keys);
                threads.spawn(move || {
                    for turn in 0..20 {
                        let wanted: Vec<_> =
                            (0..200).map(|n| keys[(n * 331 + turn * 17 + at * 101) % keys.len()]).collect();
                        let mut found = 0;
                        kv.get_many(&wanted, |_, value| found += usize::from(value == Some(&[7; 1_900])))
                            .unwrap();
                        assert_eq!(found, wanted.len());
                    }
                })
            })
            .collect();
        let is_over = || readers.iter().all(|reader| reader.is_finished());
        for _ in (0..3_000).take_while(|_| !is_over()) {
            tx.create_node(SnodeId::FIRST, PLAIN, &[9; 3_900]).unwrap();
        }
    });
    drop(tx);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_node_of_many_pages_is_read_while_the_cache_is_nearly_full_of_changes() {
    let (store, mut nodes) = small_with(180);
    let etype = store.edge_type("large", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut tx = store.begin();
    let large = vec![5; 100 * 4096];
    let node = tx.create_node(SnodeId::FIRST, PLAIN, &large).unwrap();
    tx.create_edge(root, etype, Info::Number(0), node).unwrap();
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    for in_snapshot in [false, true] {
        let mut tx = store.begin();
        nodes.iter_mut().for_each(|(node, data)| {
            let value = !data[0];
            data.fill(value);
            tx.update_node(*node, PLAIN, data).unwrap();
        });
        tx.commit().unwrap();
        assert!(store.report().dirty_pages > 156, "fewer frames are left than the node has pages");
        let snapshot = in_snapshot.then(|| store.snapshot());
        let found = match &snapshot {
            Some(snapshot) => snapshot.read_node(node, PLAIN).unwrap(),
            None => store.read_node(node, PLAIN).unwrap(),
        };
        assert!(found == large);
        read_all(&store, &nodes);
    }
}

/// A store with the smallest cache, of 256 pages, whose check must end.
#[test]
fn a_check_ends_however_few_pages_of_what_it_looks_at_fit_the_cache() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options(64 << 20)).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut tx = store.begin();
    let node = tx.create_node(SnodeId::FIRST, PLAIN, &vec![1; 400 << 10]).unwrap();
    // One bundle of some four hundred pages; main pages for the sources; a node larger than the cache.
    for number in 0..70_000 {
        tx.create_edge(root, etype, Info::Number(number), node).unwrap();
    }
    let large = tx.create_node(SnodeId::FIRST, PLAIN, &vec![2; 2 << 20]).unwrap();
    tx.create_edge(root, etype, Info::Number(1 << 40), large).unwrap();
    for number in 0..2_000 {
        let small = tx.create_node(SnodeId::FIRST, PLAIN, &[3; 20]).unwrap();
        tx.create_edge(small, etype, Info::Number(number), node).unwrap();
    }
    tx.commit().unwrap();
    assert!(store.report().table_pages > 300, "{:?}", store.report());
    store.close().unwrap();
    let store = Store::open(Box::new(medium), &options(1 << 20)).unwrap();
    let clean = store.check().unwrap();
    assert_eq!((clean.problems.clone(), clean.edges), (Vec::new(), 72_001));
    // The same while most of the cache differs from the medium: a transaction under way has filled it.
    let mut tx = store.begin();
    while store.report().dirty_pages < 200 {
        tx.create_node(SnodeId::FIRST, PLAIN, &[4; 3_500]).unwrap();
    }
    assert_eq!(store.check().unwrap(), clean);
    drop(tx);
    assert_eq!(store.check().unwrap(), clean);
}

#[test]
fn tables_that_need_several_pages_at_once_get_them_in_a_full_cache() {
    let options = Options { cache_bytes: 1 << 20, journal_bytes: 1 << 20, ..Options::default() };
    let store = Store::create(Box::new(MemoryStore::new()), &options).unwrap();
    let under = store.edge_type("under", InfoForm::Number).unwrap();
    let of = store.edge_type("of", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    for n in 0..3_000 {
        let mut tx = store.begin();
        let node = tx.create_node(SnodeId::FIRST, NodeType(1), &[7; 40]).unwrap();
        tx.create_edge(root, under, Info::Number(n), node).unwrap();
        // So many that the cells of a page lie unevenly.
        for at in 0..25 {
            tx.create_edge(node, of, Info::Number(at), root).unwrap();
        }
        tx.commit().unwrap();
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn s_nodes_that_a_commit_has_no_room_for_are_refused_whole_and_the_store_goes_on() {
    let store = Store::create(Box::new(MemoryStore::new()), &options(1 << 20)).unwrap();
    let make = |snodes: usize| {
        let mut tx = store.begin();
        for _ in 0..snodes {
            tx.create_snode_apart(&SnodeTags::default())?;
        }
        tx.commit()
    };
    let refused = make(2_000).unwrap_err();
    assert!(matches!(refused, Error::CacheFull { .. }), "{refused}");
    assert_eq!(store.snodes().unwrap().len(), 1);
    (0..20).for_each(|_| assert!(make(20).is_ok()));
    assert_eq!(store.snodes().unwrap().len(), 401);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// A medium that counts calls that read.
struct Counting(Arc<MemoryStore>, Arc<AtomicUsize>);

impl PageStore for Counting {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(1, Relaxed);
        self.0.read(block, out)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        self.1.fetch_add(1, Relaxed);
        self.0.read_many(reads)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.0.grow(blocks)
    }
}

#[test]
fn the_pages_of_a_large_node_are_asked_for_together() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options(32 << 20)).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "kv").unwrap();
    let value: Vec<u8> = (0..8 << 20).map(|at: u32| (at >> 3) as u8).collect();
    kv.put(b"large", &value).unwrap();
    store.close().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let store = Store::open(Box::new(Counting(medium, calls.clone())), &options(32 << 20)).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "kv").unwrap();
    let before = calls.load(Relaxed);
    assert!(kv.get(b"large").unwrap().unwrap() == value);
    let calls = calls.load(Relaxed) - before;
    assert!(calls < 100, "{calls} calls for 2048 pages");
}

/// A store with `edges` edges out of its root, opened anew.
fn cold_with_edges(edges: u64, cache_bytes: u64) -> (Store, EdgeType, NodeId) {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options(64 << 20)).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let node = tx.create_node(SnodeId::FIRST, PLAIN, &[1; 20]).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    (0..edges).for_each(|number| tx.create_edge(root, etype, Info::Number(number), node).unwrap());
    tx.commit().unwrap();
    store.close().unwrap();
    (Store::open(Box::new(medium), &options(cache_bytes)).unwrap(), etype, root)
}

#[test]
fn all_edges_of_a_node_are_listed_by_one_read_of_each_page_however_many_fit_the_cache() {
    // In some thirty pages, which fit the cache, and in three hundred, which do not.
    for edges in [7_000, 70_000] {
        for way in 0..6 {
            let (store, etype, root) = cold_with_edges(edges, 1 << 20);
            let work = || {
                let hits: u64 = store.cache_report().iter().map(|class| class.hits).sum();
                store.report().page_reads + hits
            };
            let before = work();
            let found = match way {
                0 => store.edges(root).unwrap().len() as u64,
                1 => store.snapshot().edges(root).unwrap().len() as u64,
                2 => {
                    let mut tx = store.begin();
                    tx.delete_edge(root, etype, Info::Number(3)).unwrap();
                    let to = tx.create_node(SnodeId::FIRST, PLAIN, b"to").unwrap();
                    tx.set_edge(root, etype, Info::Number(4), to).unwrap();
                    tx.create_edge(root, etype, Info::Number(1 << 40), to).unwrap();
                    let found = tx.edges(root).unwrap();
                    let new: Vec<_> = found.iter().filter(|edge| edge.to == to).collect();
                    assert!(new.len() == 2 && found.iter().all(|edge| edge.number != Some(3)));
                    found.len() as u64
                }
                3 => {
                    let limits = SessionLimits::default();
                    let mut session = store.open_session(root, Credentials::superuser(0), limits).unwrap();
                    session.edges(session.root()).unwrap().len() as u64
                }
                4 => store.view(root, 10).unwrap().out_edges,
                _ => store.some_edges(root, usize::MAX).unwrap().len() as u64,
            };
            assert_eq!(found, edges);
            let (work, pages) = (work() - before, store.report().table_pages);
            assert!(work <= 6 * pages + 60, "{work} accesses to {pages} pages of {edges} edges, way {way}");
        }
    }
}

#[test]
fn all_edges_of_a_node_are_those_of_one_state_while_others_commit() {
    let (store, etype, root) = cold_with_edges(20_000, 64 << 20);
    let is_over = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each commit takes some away and makes as many.
            let mut first = 0;
            while is_over.load(Relaxed) == 0 {
                let mut tx = store.begin();
                tx.durability(Durability::None);
                for number in first..first + 50 {
                    let to = tx.delete_edge(root, etype, Info::Number(number)).unwrap();
                    tx.create_edge(root, etype, Info::Number(number + 20_000), to).unwrap();
                }
                tx.commit().unwrap();
                first += 50;
            }
        });
        for _ in 0..20 {
            let found: BTreeSet<_> = store.edges(root).unwrap().iter().map(|edge| edge.number).collect();
            assert_eq!(found.len(), 20_000);
        }
        is_over.store(1, Relaxed);
    });
}

/// Long keys that differ at their ends, with values, all larger than the cache.
#[test]
fn keys_and_values_of_a_tree_that_are_larger_than_the_cache_are_found_listed_and_checked() {
    let medium = Arc::new(MemoryStore::new());
    let large = options(64 << 20);
    let store = Store::create(Box::new(medium.clone()), &large).unwrap();
    let tree = BTree::open(&store, SnodeId::FIRST, "tree", BTreeForm::Bytes).unwrap();
    let key = |end: u8| [&vec![b'k'; 2 << 20][..], &[end]].concat();
    let value = |end: u8| vec![end; 3 << 20];
    for end in [b'a', b'c', b'e'] {
        tree.insert(&key(end), &value(end)).unwrap();
    }
    for n in 0..200u32 {
        tree.insert(&n.to_be_bytes(), &[7; 30]).unwrap();
    }
    store.close().unwrap();
    let store = Store::open(Box::new(medium), &options(1 << 20)).unwrap();
    let tree = BTree::open(&store, SnodeId::FIRST, "tree", BTreeForm::Bytes).unwrap();
    let before = store.report().page_reads;
    assert!(tree.get(&key(b'c')).unwrap() == Some(value(b'c')));
    // Two keys are compared at most, and one value is read: less than 2,000 pages.
    let reads = store.report().page_reads - before;
    assert!((1_200..2_500).contains(&reads), "{reads} pages were read");
    assert!(tree.get(&key(b'b')).unwrap().is_none() && tree.get(&key(b'f')).unwrap().is_none());
    let mut tx = store.begin();
    assert!(tree.get_in(&mut tx, &key(b'e')).unwrap() == Some(value(b'e')));
    assert!(tree.get_in(&mut tx, &key(b'd')).unwrap().is_none());
    tx.abort();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Who changes the s-node all the time does not keep others from reading it.
        scope.spawn(|| {
            let mut tree = BTree::open(&store, SnodeId::FIRST, "tree", BTreeForm::Bytes).unwrap();
            tree.durability(Durability::None);
            for n in (0..200u32).cycle() {
                tree.insert(&n.to_be_bytes(), &[8; 30]).unwrap();
                if ended.load(Relaxed) {
                    break;
                }
            }
        });
        let _ended = Ended(&ended);
        assert!(tree.get(&key(b'a')).unwrap() == Some(value(b'a')));
        assert!(tree.get(&key(b'b')).unwrap().is_none());
        let found: Vec<_> =
            tree.range(key(b'a')..=key(b'c'), Direction::Down).unwrap().map(|pair| pair.unwrap()).collect();
        assert!(found == [b'c', b'a'].map(|end| (key(end), value(end))));
    });
    let snapshot = store.snapshot();
    tree.insert(b"later", b"7").unwrap();
    let then = tree.at(&snapshot).unwrap();
    assert!(then.get(&key(b'a')).unwrap() == Some(value(b'a')) && then.get(b"later").unwrap().is_none());
    drop(snapshot);
    tree.delete(&key(b'a')).unwrap();
    tree.insert(&key(b'b'), &value(b'b')).unwrap();
    let all: Vec<_> = tree.range::<&[u8]>(.., Direction::Up).unwrap().map(|pair| pair.unwrap()).collect();
    assert!(all.len() == 204 && all[200..203] == [b'b', b'c', b'e'].map(|end| (key(end), value(end))));
    let report = tree.check().unwrap();
    assert_eq!((report.problems.len(), report.pairs, report.long), (0, 204, 6));
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// Says so when it goes, also by a panic.
struct Ended<'e>(&'e AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
