//! Random operations against an oracle: transactions with savepoints that are undone, aborts, checkpoints, closes and
//! crashes. `WEFT_CAMPAIGN=1` runs five million operations.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_tags::{
    Durability, EdgeType, Error, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, SnodeId, Store,
    Transaction,
};

const PLAIN: NodeType = NodeType(5);
const KEYED: NodeType = NodeType(5 | NodeType::KEYED);

/// What identifies an edge: source, type, number, key.
type Edge = (NodeId, u32, u64, Vec<u8>);

#[derive(Clone, Default)]
struct Oracle {
    nodes: BTreeMap<NodeId, (NodeType, Vec<u8>)>,
    edges: BTreeMap<Edge, NodeId>,
}

impl Oracle {
    fn has_edges(&self, node: NodeId) -> bool {
        self.edges.iter().any(|((source, ..), to)| *source == node || *to == node)
    }

    /// What a commit does: nodes without edges go.
    fn collect(&mut self, root: NodeId) {
        let mut linked: BTreeSet<NodeId> = self.edges.values().copied().collect();
        linked.extend(self.edges.keys().map(|(source, ..)| *source));
        self.nodes.retain(|node, _| *node == root || linked.contains(node));
    }
}

struct Types {
    number: Vec<EdgeType>,
    key: EdgeType,
}

fn types(store: &Store) -> Types {
    let number = (0..3).map(|n| store.edge_type(&format!("number {n}"), InfoForm::Number).unwrap()).collect();
    Types { number, key: store.edge_type("key", InfoForm::Key).unwrap() }
}

fn info(edge: &Edge, types: &Types) -> (EdgeType, bool) {
    let etype = EdgeType(edge.1);
    (etype, etype == types.key)
}

fn some<'a, T>(rng: &mut StdRng, mut items: impl ExactSizeIterator<Item = &'a T>) -> Option<&'a T> {
    let len = items.len();
    if len == 0 { None } else { items.nth(rng.random_range(0..len)) }
}

fn operate(rng: &mut StdRng, tx: &mut Transaction<'_>, oracle: &mut Oracle, types: &Types, few: bool) {
    let node = *some(rng, oracle.nodes.keys()).unwrap();
    match rng.random_range(0..100) {
        0..=44 => {
            // A new node, and an edge to it.
            let keyed = rng.random_bool(0.4);
            let bytes = match rng.random_range(0..100) {
                0..=79 => rng.random_range(0..150),
                80..=97 => rng.random_range(0..3000),
                _ => rng.random_range(3000..20_000),
            };
            let mut data = vec![0; bytes];
            rng.fill(&mut data[..]);
            let number = rng.random_range(0..if few { 40 } else { 4000 });
            let (kind, edge) = if keyed {
                let key = format!("key {number}").into_bytes();
                let mut with_key = (key.len() as u16).to_le_bytes().to_vec();
                with_key.extend_from_slice(&key);
                with_key.extend_from_slice(&data);
                data = with_key;
                (KEYED, (node, types.key.0, 0, key))
            } else {
                (PLAIN, (node, some(rng, types.number.iter()).unwrap().0, number, Vec::new()))
            };
            let new = tx.create_node(SnodeId::FIRST, kind, &data).unwrap();
            assert!(oracle.nodes.insert(new, (kind, data)).is_none(), "the id is in use");
            let (etype, keyed) = info(&edge, types);
            let known = if keyed { Info::Key(&edge.3) } else { Info::Number(edge.2) };
            if rng.random_bool(0.5) {
                let before = tx.set_edge(node, etype, known, new).unwrap();
                assert_eq!(before, oracle.edges.insert(edge, new));
            } else {
                let made = tx.create_edge(node, etype, known, new);
                if let Some(there) = oracle.edges.get(&edge) {
                    assert!(matches!(made, Err(Error::EdgeExists(_))), "{there}");
                } else {
                    made.unwrap();
                    oracle.edges.insert(edge, new);
                }
            }
        }
        45..=59 => {
            // An edge between two nodes.
            let to = *some(rng, oracle.nodes.keys()).unwrap();
            let etype = *some(rng, types.number.iter()).unwrap();
            let number = rng.random_range(0..50);
            let before = tx.set_edge(node, etype, Info::Number(number), to).unwrap();
            assert_eq!(before, oracle.edges.insert((node, etype.0, number, Vec::new()), to));
        }
        60..=84 => {
            let Some(edge) = some(rng, oracle.edges.keys()).cloned() else { return };
            let (etype, keyed) = info(&edge, types);
            let known = if keyed { Info::Key(&edge.3) } else { Info::Number(edge.2) };
            assert_eq!(tx.edge(edge.0, etype, known).unwrap(), oracle.edges.get(&edge).copied());
            assert_eq!(Some(tx.delete_edge(edge.0, etype, known).unwrap()), oracle.edges.remove(&edge));
            assert!(matches!(tx.delete_edge(edge.0, etype, known), Err(Error::NoSuchEdge(_))));
        }
        85..=92 => {
            let (kind, data) = oracle.nodes[&node].clone();
            assert_eq!(tx.read_node(node, kind).unwrap(), data);
            if data.len() > 40 {
                let len = rng.random_range(20..data.len());
                let mut new = data[..len].to_vec();
                let from = if kind == KEYED { 12 } else { 0 };
                rng.fill(&mut new[from..]);
                tx.update_node(node, kind, &new).unwrap();
                oracle.nodes.insert(node, (kind, new));
            }
        }
        93..=96 => {
            let edges = tx.edges(node).unwrap();
            let wanted = oracle
                .edges
                .range((node, 0, 0, Vec::new())..)
                .take_while(|((source, ..), _)| *source == node);
            let mut found: Vec<_> =
                edges.iter().map(|edge| (edge.etype.0, edge.number.unwrap_or(0), edge.to)).collect();
            let mut wanted: Vec<_> =
                wanted.map(|((_, etype, number, _), to)| (*etype, *number, *to)).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted);
        }
        _ => {
            let deleted = tx.delete_node(node, oracle.nodes[&node].0);
            match deleted {
                Err(Error::HasEdges(_)) => assert!(oracle.has_edges(node) || node.0 & 0xfff == 0),
                Ok(()) => assert!(!oracle.has_edges(node)),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn compare(store: &Store, oracle: &Oracle, types: &Types) {
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.nodes, report.edges), (oracle.nodes.len() as u64, oracle.edges.len() as u64));
    for (node, (kind, data)) in &oracle.nodes {
        assert_eq!(&store.read_node(*node, *kind).unwrap(), data, "node {node}");
    }
    for (edge, to) in &oracle.edges {
        let (etype, keyed) = info(edge, types);
        let known = if keyed { Info::Key(&edge.3) } else { Info::Number(edge.2) };
        assert_eq!(store.edge(edge.0, etype, known).unwrap(), Some(*to));
    }
}

fn run(seed: u64, operations: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let options = Options { cache_bytes: 4 << 20, journal_bytes: 1 << 20, ..Options::default() };
    let medium = Arc::new(MemoryStore::new());
    let mut store = Store::create(Box::new(medium.clone()), &options).unwrap();
    let types = types(&store);
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut oracle = Oracle::default();
    oracle.nodes.insert(root, (NodeType(0), Vec::new()));
    let few = rng.random_bool(0.5);
    let mut done = 0;
    while done < operations {
        let mut now = oracle.clone();
        let mut tx = store.begin();
        if rng.random_bool(0.7) {
            tx.durability(Durability::None);
        }
        let mut savepoints = Vec::new();
        for _ in 0..rng.random_range(1..60) {
            done += 1;
            match rng.random_range(0..20) {
                0 => savepoints.push((tx.savepoint(), now.clone())),
                1 if !savepoints.is_empty() => {
                    let at = rng.random_range(0..savepoints.len());
                    savepoints.truncate(at + 1);
                    let (savepoint, then) = &savepoints[at];
                    tx.undo_to(*savepoint).unwrap();
                    now = then.clone();
                }
                2 if !savepoints.is_empty() => {
                    let at = rng.random_range(0..savepoints.len());
                    let gone: Vec<_> = savepoints.drain(at..).collect();
                    tx.forget(gone[0].0).unwrap();
                    assert!(matches!(tx.undo_to(gone[0].0), Err(Error::NoSuchSavepoint)));
                }
                _ => operate(&mut rng, &mut tx, &mut now, &types, few),
            }
        }
        if rng.random_bool(0.15) {
            tx.abort();
        } else {
            tx.commit().unwrap();
            now.collect(root);
            oracle = now;
        }
        match rng.random_range(0..200) {
            0 => store.checkpoint().unwrap(),
            1 => {
                store.close().unwrap();
                store = Store::open(Box::new(medium.clone()), &options).unwrap();
                assert_eq!(store.report().recovered_commits, 0);
                compare(&store, &oracle, &types);
            }
            2 => {
                store.sync().unwrap();
                drop(store);
                store = Store::open(Box::new(medium.clone()), &options).unwrap();
                compare(&store, &oracle, &types);
            }
            _ => {}
        }
        // The oracle is copied for each transaction, so it is kept small.
        if oracle.nodes.len() > 600 {
            let mut tx = store.begin();
            while oracle.edges.len() > 60 {
                let (edge, _) = oracle.edges.pop_first().unwrap();
                let (etype, keyed) = info(&edge, &types);
                tx.delete_edge(edge.0, etype, if keyed { Info::Key(&edge.3) } else { Info::Number(edge.2) })
                    .unwrap();
            }
            tx.commit().unwrap();
            oracle.collect(root);
        }
    }
    compare(&store, &oracle, &types);
}

#[test]
fn random_transactions_do_what_the_oracle_does() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let (seeds, operations) = if campaign { (50, 100_000) } else { (6, 8_000) };
    (0..seeds).for_each(|seed| run(seed, operations));
}
