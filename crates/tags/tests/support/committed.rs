//! A mixed workload that keeps a log of its states, and the judge of what is there after a power cut: a committed state, none before the last
//! that was said to be durable. For any medium.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use weft_tags::{
    Durability, EdgeType, Error, Info, InfoForm, Kv, KvChange, NodeId, NodeType, Options, PageStore, SnodeId,
    SnodeTags, Store, TagFlags,
};

const PLAIN: NodeType = NodeType(5);
/// The pair that says which state this is.
const MARK: &[u8] = b"state";

pub fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, store_bytes_max: 4 << 20, ..Options::default() }
}

/// The most s-nodes at a time.
const SNODES: usize = 22;
/// S-nodes that the first transaction makes: more than have pages of their own.
const SNODES_FIRST: usize = 18;
const MODE: u16 = 0o4664;

#[derive(Clone, Default)]
pub struct State {
    /// The roots of s-nodes beside the first.
    snodes: BTreeMap<SnodeId, NodeId>,
    nodes: BTreeMap<NodeId, Vec<u8>>,
    /// By source and number.
    edges: BTreeMap<(NodeId, u64), NodeId>,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl State {
    /// What a commit does: nodes without edges go.
    fn collect(&mut self) {
        let linked: BTreeSet<NodeId> =
            self.edges.iter().flat_map(|((source, _), to)| [*source, *to]).collect();
        self.nodes.retain(|node, _| linked.contains(node));
    }
}

pub struct Log {
    /// State n is the one with mark n.
    pub states: Vec<State>,
    /// The last one that was said to be durable.
    pub durable: usize,
}

fn data(rng: &mut StdRng) -> Vec<u8> {
    let bytes = match rng.random_range(0..20) {
        0 => rng.random_range(4_000..20_000),
        1..=4 => rng.random_range(500..3_000),
        _ => rng.random_range(0..200),
    };
    vec![rng.random(); bytes]
}

/// Makes a store with a state 0 of so many pairs beside the mark: with many, the edges to them are a table of their own.
pub fn created(medium: Box<dyn PageStore>, pairs: u8) -> State {
    let store = Store::create(medium, &options()).unwrap();
    store.edge_type("n", InfoForm::Number).unwrap();
    let mut state = State::default();
    state.pairs.insert(MARK.to_vec(), 0u64.to_le_bytes().to_vec());
    state.pairs.extend((0..pairs).map(|n| (vec![n, n], vec![n; usize::from(n % 40)])));
    let puts: Vec<_> = state.pairs.iter().map(|(key, value)| KvChange::Put(key, value)).collect();
    Kv::open(&store, SnodeId::FIRST, "pairs").unwrap().change(&puts).unwrap();
    store.close().unwrap();
    state
}

/// When commits are durable that need not be so at once.
#[derive(Clone, Copy, PartialEq)]
pub enum Later {
    WithTheNext,
    Soon,
}

/// Runs transactions until the power fails, which `is_cut` tells.
pub fn work(
    medium: Box<dyn PageStore>,
    is_cut: &dyn Fn() -> bool,
    seed: u64,
    later: Later,
    log: &mut Log,
) -> Result<(), Error> {
    let mut rng = StdRng::seed_from_u64(seed);
    let store = Store::open(medium, &options())?;
    let etype = store.edge_type("n", InfoForm::Number)?;
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs")?;
    let root = store.root(SnodeId::FIRST)?;
    for _ in 0..60 {
        let mut now = log.states.last().unwrap().clone();
        let mut tx = store.begin();
        let lazy = rng.random_bool(0.5);
        if lazy {
            tx.durability(match later {
                Later::WithTheNext => Durability::None,
                Later::Soon => Durability::Periodic(rng.random_range(0..4)),
            });
        }
        let mark = log.states.len() as u64;
        if mark.is_multiple_of(2) {
            tx.for_sync();
        }
        kv.change_in(&mut tx, &[KvChange::Put(MARK, &mark.to_le_bytes())])?;
        now.pairs.insert(MARK.to_vec(), mark.to_le_bytes().to_vec());
        let mut saved = None;
        while mark == 1 && now.snodes.len() < SNODES_FIRST {
            let id = tx.create_snode(&SnodeTags { mode: MODE, ..SnodeTags::default() })?;
            now.snodes.insert(id, tx.root(id)?);
        }
        for _ in 0..rng.random_range(1..25) {
            let any = now.nodes.keys().copied().nth(rng.random_range(0..now.nodes.len().max(1)));
            match rng.random_range(0..22) {
                20 if now.snodes.len() < SNODES => {
                    let flags = TagFlags::from_bits(rng.random_range(0..2)).unwrap();
                    let tags = SnodeTags { mode: MODE, flags, ..SnodeTags::default() };
                    let id = tx.create_snode(&tags)?;
                    now.snodes.insert(id, tx.root(id)?);
                }
                20 | 21 => {
                    let id = now.snodes.keys().copied().nth(rng.random_range(0..now.snodes.len().max(1)));
                    let Some(id) = id else { continue };
                    let mut is_of = |node: &NodeId| tx.snode_of(*node).is_ok_and(|snode| snode == id);
                    let mut edges = now.edges.clone();
                    edges.retain(|(source, _), to| is_of(source) || is_of(to));
                    let mut nodes = now.nodes.clone();
                    nodes.retain(|node, _| is_of(node));
                    let edges: Vec<_> = edges.into_keys().collect();
                    for edge in edges {
                        tx.delete_edge(edge.0, etype, Info::Number(edge.1))?;
                        now.edges.remove(&edge);
                    }
                    tx.delete_snode(id)?;
                    now.snodes.remove(&id);
                    now.nodes.retain(|node, _| !nodes.contains_key(node));
                }
                0..=6 => {
                    let data = data(&mut rng);
                    let some =
                        now.snodes.iter().nth(rng.random_range(0..SNODES + 2)).map(|(id, root)| (*id, *root));
                    let (snode, root) = some.unwrap_or((SnodeId::FIRST, root));
                    let node = tx.create_node(snode, PLAIN, &data)?;
                    now.nodes.insert(node, data);
                    // Some get no edge, and are gone with the commit.
                    if rng.random_bool(0.9) {
                        let source = any.filter(|_| rng.random_bool(0.5)).unwrap_or(root);
                        let number = rng.random_range(0..60);
                        tx.set_edge(source, etype, Info::Number(number), node)?;
                        now.edges.insert((source, number), node);
                    }
                }
                7..=9 => {
                    if let Some(node) = any.filter(|_| rng.random_bool(0.5)) {
                        // A part, which may begin behind the end.
                        let (part, len) = (data(&mut rng), now.nodes[&node].len());
                        let at = if rng.random_bool(0.4) { len } else { rng.random_range(0..len + 3_000) };
                        if at == len {
                            tx.append(node, PLAIN, &part)?;
                        } else {
                            tx.write_at(node, PLAIN, at as u64, &part)?;
                        }
                        let whole = now.nodes.entry(node).or_default();
                        if !part.is_empty() {
                            whole.resize(len.max(at + part.len()), 0);
                            whole[at..at + part.len()].copy_from_slice(&part);
                        }
                    } else if let Some(node) = any {
                        // Shorter, or of any length.
                        let len = rng.random_range(0..=now.nodes[&node].len());
                        let data =
                            if rng.random_bool(0.5) { vec![rng.random(); len] } else { data(&mut rng) };
                        tx.update_node(node, PLAIN, &data)?;
                        now.nodes.insert(node, data);
                    }
                }
                10..=13 => {
                    let at = rng.random_range(0..now.edges.len().max(1));
                    if let Some((edge, _)) = now.edges.clone().into_iter().nth(at) {
                        tx.delete_edge(edge.0, etype, Info::Number(edge.1))?;
                        now.edges.remove(&edge);
                    }
                }
                14..=16 => {
                    for _ in 0..rng.random_range(1..12) {
                        let key = vec![rng.random_range(0..40u8)];
                        if rng.random_bool(0.7) {
                            let value = data(&mut rng);
                            kv.change_in(&mut tx, &[KvChange::Put(&key, &value)])?;
                            now.pairs.insert(key, value);
                        } else {
                            kv.change_in(&mut tx, &[KvChange::Delete(&key)])?;
                            now.pairs.remove(&key);
                        }
                    }
                }
                17 => {
                    let key = |n: u8| vec![n, n];
                    let from = rng.random_range(0..150u8);
                    let keys: Vec<_> =
                        (from..from.saturating_add(rng.random_range(1..60))).map(key).collect();
                    let goes: Vec<bool> = keys.iter().map(|_| rng.random_bool(0.5)).collect();
                    let value = vec![rng.random(); rng.random_range(0..60)];
                    let changes: Vec<_> = keys
                        .iter()
                        .zip(&goes)
                        .map(
                            |(key, goes)| {
                                if *goes { KvChange::Delete(key) } else { KvChange::Put(key, &value) }
                            },
                        )
                        .collect();
                    kv.change_in(&mut tx, &changes)?;
                    for (key, goes) in keys.into_iter().zip(goes) {
                        now.pairs.remove(&key);
                        now.pairs.extend((!goes).then(|| (key, value.clone())));
                    }
                }
                18 => saved = Some((tx.savepoint(), now.clone())),
                _ => {
                    if let Some((savepoint, then)) = &saved {
                        tx.undo_to(*savepoint)?;
                        now = then.clone();
                    }
                }
            }
        }
        if rng.random_bool(0.1) {
            tx.abort();
            continue;
        }
        now.collect();
        // In the log before the commit: a cut in its midst may leave it or not.
        log.states.push(now);
        let commit = tx.commit()?;
        if lazy && later == Later::Soon && rng.random_bool(0.4) {
            is_durable_soon(&store, is_cut, commit)?;
            log.durable = log.states.len() - 1;
        }
        if !lazy {
            log.durable = log.states.len() - 1;
        }
        match rng.random_range(0..12) {
            0 => {
                store.checkpoint()?;
                log.durable = log.states.len() - 1;
            }
            1 => {
                store.sync()?;
                log.durable = log.states.len() - 1;
            }
            _ => {}
        }
    }
    store.close()?;
    log.durable = log.states.len() - 1;
    Ok(())
}

/// Returns when a commit is durable without another call than to look whether it is.
fn is_durable_soon(store: &Store, is_cut: &dyn Fn() -> bool, commit: u64) -> Result<(), Error> {
    while store.report().durable_commit < commit {
        if is_cut() {
            return Err(Error::Stopped { reason: "the power is cut".into() });
        }
        std::thread::yield_now();
    }
    Ok(())
}

pub fn judge(medium: Box<dyn PageStore>, log: &Log, case: &str) {
    let store = Store::open(medium, &options()).unwrap_or_else(|error| panic!("{case}: {error}"));
    let etype: EdgeType = store.edge_type("n", InfoForm::Number).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let mark = kv.get(MARK).unwrap().unwrap();
    let mark = u64::from_le_bytes(mark.try_into().unwrap()) as usize;
    assert!(mark >= log.durable, "{case}: state {mark} is there, {} was durable", log.durable);
    let state = &log.states[mark];
    for (node, data) in &state.nodes {
        assert!(store.read_node(*node, PLAIN).unwrap() == *data, "{case}: node {node}");
    }
    for ((source, number), to) in &state.edges {
        let found = store.edge(*source, etype, Info::Number(*number)).unwrap();
        assert_eq!(found, Some(*to), "{case}");
    }
    for (key, value) in &state.pairs {
        assert!(kv.get(key).unwrap().as_ref() == Some(value), "{case}: key {key:?}");
    }
    for (id, root) in &state.snodes {
        assert_eq!(store.root(*id).unwrap(), *root, "{case}");
        assert_eq!(store.snode_tags(*id).unwrap().mode, MODE, "{case}");
    }
    assert_eq!(store.snodes().unwrap().len(), state.snodes.len() + 1, "{case}: s-nodes");
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "{case}");
    // Beside the state there are the root, the anchor and the edge between them.
    let (pairs, snodes) = (state.pairs.len(), state.snodes.len());
    let wanted = (state.nodes.len() + pairs + 2 + snodes, state.edges.len() + pairs + 1);
    assert_eq!((report.nodes as usize, report.edges as usize), wanted, "{case}: more than was committed");
}

pub fn log(first: &State) -> Log {
    Log { states: vec![first.clone()], durable: 0 }
}
