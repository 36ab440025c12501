//! Transactions of every kind, of every size, in small caches: each is committed whole or refused whole, and the store goes on. What is
//! refused has changed nothing: "nothing has changed" is compared, not believed. `WEFT_CAMPAIGN=1` tries more sizes.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use weft_tags::{
    BTree, BTreeForm, EdgeType, Error, Info, InfoForm, Kv, KvChange, MemoryStore, NodeId, NodeType, Options,
    SnodeId, SnodeTags, Store, TagFlags, Transaction,
};

const TEXT: NodeType = NodeType(1);

/// What a store holds, as a reader finds it.
#[derive(PartialEq, Eq, Debug)]
struct State {
    snodes: Vec<SnodeId>,
    edges: Vec<(u64, NodeId)>,
    nodes: BTreeMap<NodeId, Vec<u8>>,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    tree: u64,
}

struct Bench {
    store: Store,
    medium: Arc<MemoryStore>,
    options: Options,
    etype: EdgeType,
}

impl Bench {
    /// A store with some of everything, in s-nodes whose bytes are erased or not.
    fn new(cache_bytes: u64, erases: bool) -> Bench {
        let medium = Arc::new(MemoryStore::new());
        let options =
            Options { cache_bytes, journal_bytes: 8 << 20, store_bytes_max: 256 << 20, ..Options::default() };
        let store = Store::create(Box::new(medium.clone()), &options).unwrap();
        let etype = store.edge_type("n", InfoForm::Number).unwrap();
        if erases {
            let mut tx = store.begin();
            let tags = tx.snode_tags(SnodeId::FIRST).unwrap();
            tx.set_snode_tags(SnodeId::FIRST, &SnodeTags { flags: TagFlags::SECURE_DELETE, ..tags }).unwrap();
            tx.commit().unwrap();
        }
        let bench = Bench { store, medium, options, etype };
        let root = bench.root();
        for start in (0..1_000).step_by(50) {
            let mut tx = bench.store.begin();
            for number in start..start + 50 {
                let data = vec![number as u8; [20, 700, 3_900][number as usize % 3]];
                let node = tx.create_node(SnodeId::FIRST, TEXT, &data).unwrap();
                tx.create_edge(root, etype, Info::Number(number), node).unwrap();
            }
            tx.commit().unwrap();
        }
        let kv = bench.kv();
        for start in (0..3_000u32).step_by(100) {
            let keys: Vec<_> = (start..start + 100).map(u32::to_le_bytes).collect();
            let puts: Vec<_> = keys.iter().map(|key| KvChange::Put(key, &[7; 90])).collect();
            kv.change(&puts).unwrap();
        }
        bench
    }

    fn root(&self) -> NodeId {
        self.store.root(SnodeId::FIRST).unwrap()
    }

    fn kv(&self) -> Kv<'_> {
        Kv::open(&self.store, SnodeId::FIRST, "kv").unwrap()
    }

    fn tree(&self) -> BTree<'_> {
        BTree::open(&self.store, SnodeId::FIRST, "tree", BTreeForm::Fixed).unwrap()
    }

    fn state(&self) -> State {
        let edges = self.store.edges(self.root()).unwrap();
        let mut edges: Vec<_> =
            edges.iter().filter_map(|edge| edge.number.map(|number| (number, edge.to))).collect();
        edges.sort_unstable();
        let data = |(_, node): &(u64, NodeId)| (*node, self.store.read_node(*node, TEXT).unwrap());
        let nodes = edges.iter().filter(|(number, _)| *number < 1_000).map(data).collect();
        let pairs = self.kv().scan().unwrap().collect::<Result<_, _>>().unwrap();
        State {
            snodes: self.store.snodes().unwrap(),
            edges,
            nodes,
            pairs,
            tree: self.tree().count().unwrap(),
        }
    }

    /// Opens the store as after a kill.
    fn reopen(self) -> Bench {
        let Bench { store, medium, options, etype } = self;
        drop(store);
        let store = Store::open(Box::new(medium.clone()), &options).unwrap();
        Bench { store, medium, options, etype }
    }
}

/// A kind of transaction, of any size.
type Kind = fn(&Bench, &mut Transaction<'_>, usize) -> Result<(), Error>;

const KINDS: [(&str, usize, Kind); 12] = [
    ("s-nodes", 8_000, |_, tx, size| {
        (0..size).try_for_each(|_| tx.create_snode(&SnodeTags::default()).map(drop))
    }),
    ("edges to one node", 100_000, |bench, tx, size| {
        let to = tx.create_node(SnodeId::FIRST, TEXT, b"to")?;
        (0..size as u64)
            .try_for_each(|n| tx.set_edge(bench.root(), bench.etype, Info::Number(10_000 + n), to).map(drop))
    }),
    ("edges out of many nodes", 100_000, |bench, tx, size| {
        for n in 0..size as u64 / 20 {
            let node = tx.create_node(SnodeId::FIRST, TEXT, b"of many")?;
            tx.set_edge(bench.root(), bench.etype, Info::Number(10_000 + n), node).map(drop)?;
            (0..19).try_for_each(|m| tx.create_edge(node, bench.etype, Info::Number(m), bench.root()))?;
        }
        Ok(())
    }),
    ("small nodes", 30_000, |bench, tx, size| {
        (0..size as u64).try_for_each(|n| {
            let node = tx.create_node(SnodeId::FIRST, TEXT, &[1; 60])?;
            tx.set_edge(bench.root(), bench.etype, Info::Number(10_000 + n), node).map(drop)
        })
    }),
    ("nodes of some pages", 3_000, |bench, tx, size| {
        (0..size as u64).try_for_each(|n| {
            let node = tx.create_node(SnodeId::FIRST, TEXT, &[2; 9_000])?;
            tx.set_edge(bench.root(), bench.etype, Info::Number(10_000 + n), node).map(drop)
        })
    }),
    ("updates", 1_000, |bench, tx, size| {
        for edge in tx.edges(bench.root())?.into_iter().filter(|edge| edge.number.is_some()).take(size) {
            let len = tx.read_node(edge.to, TEXT)?.len();
            tx.update_node(edge.to, TEXT, &vec![9; len])?;
        }
        Ok(())
    }),
    ("updates that grow", 1_000, |bench, tx, size| {
        for edge in tx.edges(bench.root())?.into_iter().filter(|edge| edge.number.is_some()).take(size) {
            tx.update_node(edge.to, TEXT, &[8; 6_000])?;
        }
        Ok(())
    }),
    ("edges gone", 1_000, |bench, tx, size| {
        for edge in tx.edges(bench.root())?.into_iter().take(size) {
            if let Some(number) = edge.number {
                tx.delete_edge(bench.root(), bench.etype, Info::Number(number))?;
            }
        }
        Ok(())
    }),
    ("edges led elsewhere", 1_000, |bench, tx, size| {
        let to = tx.create_node(SnodeId::FIRST, TEXT, b"elsewhere")?;
        (0..size as u64)
            .try_for_each(|n| tx.set_edge(bench.root(), bench.etype, Info::Number(n), to).map(drop))
    }),
    ("pairs put", 30_000, |bench, tx, size| {
        let keys: Vec<_> = (0..size as u32).map(|n| (n * 7).to_le_bytes()).collect();
        let puts: Vec<_> = keys.iter().map(|key| KvChange::Put(key, &[3; 100])).collect();
        bench.kv().change_in(tx, &puts).map(drop)
    }),
    ("pairs gone", 3_000, |bench, tx, size| {
        let keys: Vec<_> = (0..size as u32).map(u32::to_le_bytes).collect();
        let gone: Vec<_> = keys.iter().map(|key| KvChange::Delete(key)).collect();
        bench.kv().change_in(tx, &gone).map(drop)
    }),
    ("pairs of a tree", 30_000, |bench, tx, size| {
        let pairs: Vec<_> = (0..size as u32).map(|n| (n.wrapping_mul(0x9e37_79b1), u64::from(n))).collect();
        bench.tree().insert_fixed_in(tx, &pairs, |_, _| ())
    }),
];

/// What a transaction that was too much says.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::CacheFull { .. } | Error::TooLarge { .. } | Error::Full { .. })
}

/// Runs a kind at one size, in a store that all sizes before have left; what came of it.
fn try_one(bench: &Bench, what: &str, kind: Kind, size: usize) -> bool {
    // They are made by transactions of their own.
    bench.kv();
    bench.tree();
    let before = bench.state();
    let mut tx = bench.store.begin();
    let done = kind(bench, &mut tx, size);
    let outcome = match done {
        Ok(()) => tx.commit().map(drop),
        Err(error) => {
            drop(tx);
            Err(error)
        }
    };
    if let Err(error) = &outcome {
        assert!(is_refusal(error), "{size} {what}: {error}");
        assert_eq!(bench.state(), before, "{size} {what} were refused: {error}");
    }
    // It has not stopped, and what is small enough is done.
    let mut tx = bench.store.begin();
    let node = tx.create_node(SnodeId::FIRST, TEXT, b"after").unwrap();
    tx.create_edge(bench.root(), bench.etype, Info::Number(5_000), node).unwrap();
    tx.commit().unwrap_or_else(|error| panic!("after {size} {what}: {error}"));
    let mut tx = bench.store.begin();
    tx.delete_edge(bench.root(), bench.etype, Info::Number(5_000)).unwrap();
    tx.commit().unwrap_or_else(|error| panic!("after {size} {what}: {error}"));
    outcome.is_ok()
}

#[test]
fn transactions_larger_than_the_cache_are_refused_whole_or_done_whole() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let caches: &[u64] = if campaign { &[1 << 20, 3 << 19, 2 << 20, 4 << 20, 16 << 20] } else { &[1 << 20] };
    let steps = if campaign { 12 } else { 3 };
    for cache_bytes in caches {
        for erases in [false, true] {
            for (what, most, kind) in KINDS {
                let mut bench = Bench::new(*cache_bytes, erases);
                let mut done = Vec::new();
                // The largest first: what it leaves behind meets all others. The last is small enough for every cache.
                let sizes = (0..steps).map(|step| most >> step).chain([20]);
                for size in sizes {
                    done.push((size, try_one(&bench, what, kind, size)));
                }
                assert!(done.last().is_some_and(|(_, is_done)| *is_done), "{what}: {done:?}");
                let before = bench.state();
                assert_eq!(bench.store.check().unwrap().problems, Vec::<String>::new(), "{what}: {done:?}");
                bench = bench.reopen();
                assert!(bench.state() == before, "{what}, opened again: {done:?}");
                assert_eq!(bench.store.check().unwrap().problems, Vec::<String>::new(), "{what}: {done:?}");
            }
        }
    }
}
