//! Random operations against an oracle, on any medium: nodes, edges and s-nodes, transactions with savepoints that are undone, aborts,
//! checkpoints, closes and crashes.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_tags::{
    DataClass, Durability, EdgeType, Error, Info, InfoForm, NodeId, NodeType, Options, PageStore, Permission,
    Principal, Snapshot, SnodeId, SnodeTags, Store, TagFlags, Transaction,
};

const PLAIN: NodeType = NodeType(5);
const KEYED: NodeType = NodeType(5 | NodeType::KEYED);

/// What identifies an edge: source, type, number, key.
type Edge = (NodeId, u32, u64, Vec<u8>);

/// The most s-nodes at a time: more than have pages of their own.
const SNODES: usize = 40;

#[derive(Clone)]
struct Snode {
    root: NodeId,
    tags: SnodeTags,
    is_controlled: bool,
    /// Beside those of the mode.
    granted: BTreeSet<(Principal, Permission)>,
}

impl Snode {
    /// The permissions that owner, group and mode stand for, with the bits of the mode.
    fn of_mode(&self) -> BTreeMap<(Principal, Permission), u16> {
        let (owner, group) = (Principal::User(self.tags.owner), Principal::Group(self.tags.group));
        let mut grants = BTreeMap::new();
        if self.is_controlled {
            grants.insert((owner, Permission::Control), 0);
        }
        for (at, permission) in [(0o4, Permission::Read), (0o2, Permission::Write)] {
            for (shift, principal) in [(6, owner), (3, group), (0, Principal::Everyone)] {
                if self.tags.mode >> shift & at != 0 {
                    grants.insert((principal, permission), at << shift);
                }
            }
        }
        grants
    }

    fn grants(&self) -> Vec<(Principal, Permission)> {
        let all: BTreeSet<_> = self.of_mode().into_keys().chain(self.granted.iter().copied()).collect();
        all.into_iter().collect()
    }
}

#[derive(Clone, Default)]
struct Oracle {
    snodes: BTreeMap<SnodeId, Snode>,
    /// Roots have no data here: it is that of the s-node.
    nodes: BTreeMap<NodeId, (NodeType, Vec<u8>)>,
    edges: BTreeMap<Edge, NodeId>,
    /// The s-nodes of all nodes that ever were.
    owners: BTreeMap<NodeId, SnodeId>,
}

impl Oracle {
    /// An oracle of a new store.
    fn new(root: NodeId) -> Oracle {
        let mut oracle = Oracle::default();
        oracle.nodes.insert(root, (NodeType::ROOT, Vec::new()));
        oracle.owners.insert(root, SnodeId::FIRST);
        let (tags, granted) = (SnodeTags::default(), BTreeSet::new());
        oracle.snodes.insert(SnodeId::FIRST, Snode { root, tags, is_controlled: false, granted });
        oracle
    }

    fn has_edges(&self, node: NodeId) -> bool {
        self.edges.iter().any(|((source, ..), to)| *source == node || *to == node)
    }

    fn linked(&self) -> BTreeSet<NodeId> {
        let mut linked: BTreeSet<NodeId> = self.edges.values().copied().collect();
        linked.extend(self.edges.keys().map(|(source, ..)| *source));
        linked
    }

    /// What a commit does: nodes without edges go.
    fn collect(&mut self) {
        let linked = self.linked();
        self.nodes.retain(|node, (kind, _)| *kind == NodeType::ROOT || linked.contains(node));
    }

    /// Edges of the nodes of an s-node, from and to wherever.
    fn edges_of(&self, snode: SnodeId) -> Vec<Edge> {
        let touching = self
            .edges
            .iter()
            .filter(|((source, ..), to)| self.owners[source] == snode || self.owners[*to] == snode);
        touching.map(|(edge, _)| edge.clone()).collect()
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

/// Whether a transaction lists the edges out of a node that there are.
fn compare_edges(tx: &mut Transaction<'_>, oracle: &Oracle, node: NodeId) {
    let edges = tx.edges(node).unwrap();
    let of_node =
        oracle.edges.range((node, 0, 0, Vec::new())..).take_while(|((source, ..), _)| *source == node);
    let mut found: Vec<_> =
        edges.iter().map(|edge| (edge.etype.0, edge.number.unwrap_or(0), edge.to)).collect();
    let mut wanted: Vec<_> = of_node.map(|((_, etype, number, _), to)| (*etype, *number, *to)).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

fn operate(rng: &mut StdRng, tx: &mut Transaction<'_>, oracle: &mut Oracle, types: &Types, few: bool) {
    let node = *some(rng, oracle.nodes.keys()).unwrap();
    match rng.random_range(0..104) {
        100.. => operate_on_snodes(rng, tx, oracle, types),
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
            // Edges by key stay in one s-node.
            let snode = if keyed { oracle.owners[&node] } else { *some(rng, oracle.snodes.keys()).unwrap() };
            let new = tx.create_node(snode, kind, &data).unwrap();
            oracle.owners.insert(new, snode);
            assert_eq!(tx.snode_of(new).unwrap(), snode);
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
            compare_edges(tx, oracle, node);
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
            if kind == NodeType::ROOT {
                assert!(matches!(tx.update_node(node, kind, &data), Err(Error::RootType)));
                return;
            }
            assert_eq!(tx.read_node(node, kind).unwrap(), data);
            let from = if kind == KEYED { 2 + usize::from(data[0]) } else { 0 };
            if rng.random_bool(0.6) {
                let new = write_part(rng, tx, (node, kind), data, from);
                assert_eq!(tx.node_len(node, kind).unwrap(), new.len() as u64);
                assert_eq!(tx.read_node(node, kind).unwrap(), new);
                oracle.nodes.insert(node, (kind, new));
                return;
            }
            let len = from
                + match rng.random_range(0..10) {
                    0..=3 => rng.random_range(0..=data.len() - from),
                    4..=6 => rng.random_range(0..300),
                    7..=8 => rng.random_range(0..3_000),
                    _ => rng.random_range(3_000..30_000),
                };
            let mut new = data.clone();
            new.resize(len, 0);
            if rng.random_bool(0.2) {
                tx.resize_node(node, kind, len).unwrap();
            } else {
                rng.fill(&mut new[from..]);
                tx.update_node(node, kind, &new).unwrap();
            }
            assert_eq!(tx.read_node(node, kind).unwrap(), new);
            oracle.nodes.insert(node, (kind, new));
        }
        93..=96 => compare_edges(tx, oracle, node),
        _ => {
            let deleted = tx.delete_node(node, oracle.nodes[&node].0);
            match deleted {
                Err(Error::HasEdges(_)) => {
                    assert!(oracle.has_edges(node) || oracle.nodes[&node].0 == NodeType::ROOT);
                }
                Ok(()) => {
                    assert!(!oracle.has_edges(node));
                    assert!(matches!(tx.snode_of(node), Err(Error::NoSuchNode(_))));
                    oracle.nodes.remove(&node);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Writes a part of a node's data behind its key, which ends at `from`, and reads another; all of it as it is then.
fn write_part(
    rng: &mut StdRng,
    tx: &mut Transaction<'_>,
    (node, kind): (NodeId, NodeType),
    mut data: Vec<u8>,
    from: usize,
) -> Vec<u8> {
    let mut bytes = vec![0; [0, 1, 300, 5_000, 12_000][rng.random_range(0..5)]];
    rng.fill(&mut bytes[..]);
    let at = match rng.random_range(0..4) {
        0 => {
            assert_eq!(tx.append(node, kind, &bytes).unwrap(), data.len() as u64);
            data.len()
        }
        n => {
            let at = from + rng.random_range(0..=data.len() - from) + if n == 1 { 6_000 } else { 0 };
            tx.write_at(node, kind, at as u64, &bytes).unwrap();
            at
        }
    };
    if !bytes.is_empty() {
        data.resize(data.len().max(at + bytes.len()), 0);
        data[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    if from > 0 {
        let refused = tx.write_at(node, kind, rng.random_range(0..from as u64), b"x");
        assert!(matches!(refused, Err(Error::KeyNotInNode(_))));
    }
    let at = rng.random_range(0..=data.len() + 10);
    let mut out = vec![1; rng.random_range(0..9_000)];
    let len = tx.read_at(node, kind, at as u64, &mut out).unwrap();
    assert_eq!(out[..len], *data.get(at..(at + out.len()).min(data.len())).unwrap_or(&[]));
    data
}

fn tags(rng: &mut StdRng) -> SnodeTags {
    SnodeTags {
        owner: rng.random_range(0..3),
        group: rng.random_range(0..3),
        mode: rng.random_range(0..0o10000),
        class: DataClass::from_u8(rng.random_range(0..7)).unwrap(),
        flags: TagFlags::from_bits(rng.random_range(0..2)).unwrap(),
    }
}

fn operate_on_snodes(rng: &mut StdRng, tx: &mut Transaction<'_>, oracle: &mut Oracle, types: &Types) {
    let id = *some(rng, oracle.snodes.keys()).unwrap();
    match rng.random_range(0..10) {
        0..=2 if oracle.snodes.len() < SNODES => {
            let tags = tags(rng);
            let id = tx.create_snode(&tags).unwrap();
            let root = tx.root(id).unwrap();
            assert_eq!(tx.snode_of(root).unwrap(), id);
            oracle.nodes.insert(root, (NodeType::ROOT, Vec::new()));
            oracle.owners.insert(root, id);
            let snode = Snode { root, tags, is_controlled: true, granted: BTreeSet::new() };
            assert!(oracle.snodes.insert(id, snode).is_none(), "the id is in use");
        }
        3..=5 => {
            if rng.random_bool(0.7) && id != SnodeId::FIRST {
                for edge in oracle.edges_of(id) {
                    let (etype, keyed) = info(&edge, types);
                    let known = if keyed { Info::Key(&edge.3) } else { Info::Number(edge.2) };
                    tx.delete_edge(edge.0, etype, known).unwrap();
                    oracle.edges.remove(&edge);
                }
            }
            match tx.delete_snode(id) {
                Err(Error::FirstSnode) => assert_eq!(id, SnodeId::FIRST),
                Err(Error::SnodeNotEmpty(_)) => assert!(!oracle.edges_of(id).is_empty()),
                Err(error) => panic!("{error}"),
                Ok(()) => {
                    assert!(oracle.edges_of(id).is_empty());
                    assert!(matches!(tx.root(id), Err(Error::NoSuchSnode(_))));
                    oracle.snodes.remove(&id);
                    oracle.nodes.retain(|node, _| oracle.owners[node] != id);
                }
            }
        }
        6..=7 => {
            let snode = oracle.snodes.get_mut(&id).unwrap();
            assert_eq!(tx.snode_tags(id).unwrap(), snode.tags);
            let tags = tags(rng);
            tx.set_snode_tags(id, &tags).unwrap();
            snode.is_controlled |= tags.owner != snode.tags.owner;
            snode.tags = tags;
        }
        _ => {
            let snode = oracle.snodes.get_mut(&id).unwrap();
            let who = rng.random_range(0..3);
            let principal =
                [Principal::User(who), Principal::Group(who), Principal::Everyone][rng.random_range(0..3)];
            let permission = Permission::ALL[rng.random_range(0..3)];
            if rng.random_bool(0.5) {
                tx.grant(id, principal, permission).unwrap();
                snode.granted.insert((principal, permission));
            } else {
                let was_there = tx.revoke(id, principal, permission).unwrap();
                let bit = snode.of_mode().get(&(principal, permission)).copied();
                assert_eq!(was_there, snode.granted.remove(&(principal, permission)) | bit.is_some());
                snode.tags.mode &= !bit.unwrap_or(0);
                snode.is_controlled &=
                    (principal, permission) != (Principal::User(snode.tags.owner), Permission::Control);
            }
        }
    }
}

fn compare(store: &Store, oracle: &Oracle, types: &Types) {
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    let permissions: usize = oracle.snodes.values().map(|snode| snode.granted.len()).sum();
    let edges = (oracle.edges.len() + permissions) as u64;
    assert_eq!((report.nodes, report.edges), (oracle.nodes.len() as u64, edges));
    assert_eq!(in_order(store.snodes()), oracle.snodes.keys().copied().collect::<Vec<_>>());
    for (id, snode) in &oracle.snodes {
        assert_eq!(store.root(*id).unwrap(), snode.root);
        assert_eq!(store.grants(*id).unwrap(), snode.grants());
        assert_eq!(store.snode_tags(*id).unwrap(), snode.tags);
    }
    assert_eq!(store.report().snodes, oracle.snodes.len() as u64);
    for node in oracle.nodes.keys() {
        assert_eq!(store.snode_of(*node).unwrap(), oracle.owners[node], "node {node}");
    }
    for (node, (kind, data)) in oracle.nodes.iter().filter(|(_, (kind, _))| *kind != NodeType::ROOT) {
        assert_eq!(&store.read_node(*node, *kind).unwrap(), data, "node {node}");
    }
    for (edge, to) in &oracle.edges {
        let (etype, keyed) = info(edge, types);
        let known = if keyed { Info::Key(&edge.3) } else { Info::Number(edge.2) };
        assert_eq!(store.edge(edge.0, etype, known).unwrap(), Some(*to));
    }
}

pub fn run(seed: u64, operations: u64, medium: Arc<dyn PageStore>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let options = Options { cache_bytes: 4 << 20, journal_bytes: 1 << 20, ..Options::default() };
    let mut store = Store::create(Box::new(medium.clone()), &options).unwrap();
    let types = types(&store);
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut oracle = Oracle::new(root);
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
            now.collect();
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
            oracle.collect();
        }
    }
    compare(&store, &oracle, &types);
}

fn in_order(snodes: weft_tags::Result<Vec<SnodeId>>) -> Vec<SnodeId> {
    let mut snodes = snodes.unwrap();
    snodes.sort_unstable();
    snodes
}

fn compare_snapshot(snapshot: &Snapshot<'_>, oracle: &Oracle, others: &BTreeSet<NodeId>, types: &Types) {
    assert_eq!(in_order(snapshot.snodes()), oracle.snodes.keys().copied().collect::<Vec<_>>());
    for (id, snode) in &oracle.snodes {
        assert_eq!(snapshot.root(*id).unwrap(), snode.root);
        assert_eq!(snapshot.grants(*id).unwrap(), snode.grants());
        assert_eq!(snapshot.snode_tags(*id).unwrap(), snode.tags);
    }
    for node in oracle.nodes.keys() {
        assert_eq!(snapshot.snode_of(*node).unwrap(), oracle.owners[node], "node {node}");
    }
    for (node, (kind, data)) in oracle.nodes.iter().filter(|(_, (kind, _))| *kind != NodeType::ROOT) {
        assert_eq!(&snapshot.read_node(*node, *kind).unwrap(), data, "node {node}");
    }
    for node in oracle.nodes.keys() {
        let of =
            oracle.edges.range((*node, 0, 0, Vec::new())..).take_while(|((source, ..), _)| source == node);
        let mut wanted: Vec<_> = of.map(|((_, etype, number, _), to)| (*etype, *number, *to)).collect();
        let edges = snapshot.edges(*node).unwrap();
        let mut found: Vec<_> =
            edges.iter().map(|edge| (edge.etype.0, edge.number.unwrap_or(0), edge.to)).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "edges of {node}");
    }
    for (edge, to) in &oracle.edges {
        let (etype, keyed) = info(edge, types);
        let known = if keyed { Info::Key(&edge.3) } else { Info::Number(edge.2) };
        assert_eq!(snapshot.edge(edge.0, etype, known).unwrap(), Some(*to));
    }
    for node in others.iter().filter(|node| !oracle.nodes.contains_key(node)) {
        for kind in [PLAIN, KEYED] {
            let read = snapshot.read_node(*node, kind);
            assert!(matches!(read, Err(Error::NoSuchNode(_))), "{node} is from before or after: {read:?}");
        }
    }
}

pub fn run_with_snapshots(seed: u64, operations: u64, medium: Arc<dyn PageStore>) {
    let mut rng = StdRng::seed_from_u64(1000 + seed);
    // So much that no snapshot is lost.
    let options = Options { cache_bytes: 128 << 20, journal_bytes: 1 << 20, ..Options::default() };
    let store = Store::create(Box::new(medium.clone()), &options).unwrap();
    let types = types(&store);
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut oracle = Oracle::new(root);
    // The first snapshots see pages that were not in memory when they began.
    for _ in 0..20 {
        let mut tx = store.begin();
        (0..10).for_each(|_| operate(&mut rng, &mut tx, &mut oracle, &types, true));
        tx.commit().unwrap();
        oracle.collect();
    }
    store.close().unwrap();
    let store = Store::open(Box::new(medium), &options).unwrap();
    let mut ever: BTreeSet<NodeId> = BTreeSet::new();
    let mut snapshots: Vec<(Snapshot<'_>, Oracle)> = Vec::new();
    let mut done = 0;
    while done < operations {
        let mut now = oracle.clone();
        let mut tx = store.begin();
        tx.durability(Durability::None);
        // Some begin while a transaction is under way that they do not see.
        let early = snapshots.len() < 6 && rng.random_bool(0.05);
        for step in 0..rng.random_range(1..40) {
            done += 1;
            operate(&mut rng, &mut tx, &mut now, &types, true);
            if early && step == 3 {
                snapshots.push((store.snapshot(), oracle.clone()));
            }
        }
        if rng.random_bool(0.15) {
            tx.abort();
        } else {
            tx.commit().unwrap();
            now.collect();
            oracle = now;
            ever.extend(oracle.nodes.keys());
        }
        if snapshots.len() < 6 && rng.random_bool(0.05) {
            snapshots.push((store.snapshot(), oracle.clone()));
        }
        if rng.random_bool(0.03) {
            store.checkpoint().unwrap();
        }
        if !snapshots.is_empty() && rng.random_bool(0.1) {
            let (snapshot, then) = snapshots.swap_remove(rng.random_range(0..snapshots.len()));
            compare_snapshot(&snapshot, &then, &ever, &types);
            drop(snapshot);
            for (snapshot, then) in &snapshots {
                compare_snapshot(snapshot, then, &ever, &types);
            }
        }
        if oracle.nodes.len() > 300 {
            let mut tx = store.begin();
            while oracle.edges.len() > 60 {
                let (edge, _) = oracle.edges.pop_first().unwrap();
                let (etype, keyed) = info(&edge, &types);
                let known = if keyed { Info::Key(&edge.3) } else { Info::Number(edge.2) };
                tx.delete_edge(edge.0, etype, known).unwrap();
            }
            tx.commit().unwrap();
            oracle.collect();
        }
        if snapshots.is_empty() {
            assert_eq!(store.report().snapshot_bytes, 0);
        }
    }
    drop(snapshots);
    assert_eq!(store.report().snapshot_bytes, 0);
    compare(&store, &oracle, &types);
}
