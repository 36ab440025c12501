//! A crashed store with a block that cannot be read, which the last state may not need: a later commit has written the page anew, or has
//! freed its nodes. Opening reads no such page. What opens and checks sound, salvage copies whole, and what it copies always checks sound.
//! `WEFT_CAMPAIGN=1` damages many more blocks; `WEFT_SEED` begins at another store.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_tags::{
    Durability, EdgeType, Info, InfoForm, Kv, MemoryStore, NodeId, NodeType, Options, Permission, Principal,
    SalvageReport, SnodeId, SnodeTags, Store, TagFlags, salvage,
};

const PLAIN: NodeType = NodeType(5);
const PAGE: usize = 4096;

fn options() -> Options {
    Options {
        cache_bytes: 2 << 20,
        journal_bytes: 2 << 20,
        store_bytes_max: 32 << 20,
        huge_pages: false,
        ..Options::default()
    }
}

type Grants = Vec<(Principal, Permission)>;

/// All that a store holds, as programs see it.
#[derive(Default, PartialEq, Eq, Debug)]
struct State {
    nodes: BTreeMap<NodeId, (u32, Vec<u8>)>,
    /// Source, type, number, destination.
    edges: BTreeSet<(NodeId, EdgeType, Option<u64>, NodeId)>,
    snodes: BTreeMap<SnodeId, (NodeId, SnodeTags, Grants)>,
    names: Vec<String>,
    last_commit: u64,
}

fn state(store: &Store) -> State {
    let mut state = State { last_commit: store.last_commit(), ..State::default() };
    let mut ids = Vec::new();
    let all = store.each_node(|node| {
        ids.push(node);
        Ok::<_, ()>(true)
    });
    all.unwrap();
    for node in ids {
        let view = store.view(node, usize::MAX).unwrap();
        state.nodes.insert(node, (view.kind.0, view.data));
        let edges = store.edges(node).unwrap();
        state.edges.extend(edges.into_iter().map(|edge| (node, edge.etype, edge.number, edge.to)));
    }
    for snode in store.snodes().unwrap() {
        let (root, tags) = (store.root(snode).unwrap(), store.snode_tags(snode).unwrap());
        state.snodes.insert(snode, (root, tags, store.grants(snode).unwrap()));
    }
    state.names = store.edge_types().into_iter().map(|known| known.name).collect();
    state
}

/// The state of an image, if it opens and checks sound.
fn sound(image: &[u8]) -> Option<State> {
    let store = Store::open(Box::new(MemoryStore::from_bytes(image.to_vec())), &options()).ok()?;
    store.check().is_ok_and(|report| report.problems.is_empty()).then(|| state(&store))
}

#[derive(Default, Debug)]
struct Outcomes {
    sound: u64,
    refused: u64,
    in_part: u64,
}

/// Salvages an image, and compares the copy with what opening the image gives.
fn judge(image: &[u8], outcomes: &mut Outcomes, case: &str) -> Option<SalvageReport> {
    let wanted = sound(image);
    let target = Arc::new(MemoryStore::new());
    let source = MemoryStore::from_bytes(image.to_vec());
    let report = match salvage(&source, Box::new(target.clone()), &options(), |_, _| ()) {
        Ok(report) => report,
        Err(error) => {
            assert!(wanted.is_none(), "{case}: {error}");
            outcomes.refused += 1;
            return None;
        }
    };
    let copy = Store::open(Box::new(target), &options()).unwrap_or_else(|error| panic!("{case}: {error}"));
    let check = copy.check().unwrap();
    assert_eq!(check.problems, Vec::<String>::new(), "{case}: {report:?}");
    let held = report.held_places;
    assert_eq!((check.nodes, check.edges), (report.nodes + held, report.edges + held), "{case}: {report:?}");
    match wanted {
        Some(wanted) => {
            assert!(state(&copy) == wanted, "{case}: not all is there, {report:?}");
            // Who opens the store does not learn of commits that are lost with the end of the journal.
            let lost = [report.lost_pages, report.lost_table_pages, report.lost_nodes, report.dropped_edges];
            assert!(report.complete || report.commits_lost > 0, "{case}: nothing is missing, {report:?}");
            assert_eq!(lost, [0; 4], "{case}: {report:?}");
            outcomes.sound += 1;
        }
        None => outcomes.in_part += 1,
    }
    Some(report)
}

/// Stops without a checkpoint, and returns what is on the medium.
fn crash(store: Store, medium: &MemoryStore) -> Vec<u8> {
    store.sync().unwrap();
    drop(store);
    medium.to_bytes()
}

fn created() -> (Arc<MemoryStore>, Store, EdgeType) {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    (medium, store, etype)
}

fn one(store: &Store, snode: SnodeId, etype: EdgeType, number: u64, data: &[u8]) -> NodeId {
    let mut tx = store.begin();
    let root = tx.root(snode).unwrap();
    let node = tx.create_node(snode, PLAIN, data).unwrap();
    tx.create_edge(root, etype, Info::Number(number), node).unwrap();
    tx.commit().unwrap();
    node
}

/// Fills the blocks behind the journal that have a run of this byte with zeros.
fn zero_blocks_of(image: &mut [u8], byte: u8) -> usize {
    let blocks = image.chunks_exact_mut(PAGE).skip(2 + options().journal_bytes as usize / PAGE);
    let found = blocks.filter(|block| block.windows(400).any(|run| run.iter().all(|at| *at == byte)));
    found.map(|block| block.fill(0)).count()
}

#[test]
fn a_page_of_a_grown_node_that_a_later_commit_has_written_anew_is_not_missed() {
    let (medium, store, etype) = created();
    let node = one(&store, SnodeId::FIRST, etype, 1, b"small");
    let large = one(&store, SnodeId::FIRST, etype, 2, &[1; 9 * PAGE]);
    let change = |node, at: usize, bytes: &[u8]| {
        let mut tx = store.begin();
        tx.write_at(node, PLAIN, at as u64, bytes).unwrap();
        tx.commit().unwrap();
    };
    let mut tx = store.begin();
    tx.update_node(node, PLAIN, &[2; 9 * PAGE]).unwrap();
    tx.commit().unwrap();
    for node in [node, large] {
        change(node, 3 * PAGE, &[100; 2 * PAGE]);
    }
    store.checkpoint().unwrap();
    for (node, at) in [(node, 3 * PAGE), (large, 3 * PAGE), (node, 0), (large, 0)] {
        change(node, at, &[101; 2 * PAGE]);
        change(node, at, &[102; 2 * PAGE]);
    }
    // It becomes longer, so its first page is written anew.
    change(node, 9 * PAGE, &[3; 5 * PAGE]);
    let image = crash(store, &medium);
    // Pages of the checkpoint, and of the journal.
    for byte in [100, 101] {
        let mut image = image.clone();
        assert!(zero_blocks_of(&mut image, byte) > 0, "{byte}");
        let mut outcomes = Outcomes::default();
        let report = judge(&image, &mut outcomes, &format!("byte {byte}")).unwrap();
        assert!(outcomes.sound == 1 && report.complete && report.remarks.is_empty(), "{byte}: {report:?}");
    }
    // These are missed: both nodes go, and nothing else.
    let mut image = image.clone();
    assert!(zero_blocks_of(&mut image, 102) > 0);
    let report = judge(&image, &mut Outcomes::default(), "byte 102").unwrap();
    assert_eq!((report.complete, report.lost_nodes, report.nodes), (false, 2, 1), "{report:?}");
}

#[test]
fn a_page_of_nodes_that_were_freed_later_is_not_missed() {
    for is_in_journal in [false, true] {
        let (medium, store, etype) = created();
        let mut tx = store.begin();
        let apart = tx.create_snode_apart(&SnodeTags::default()).unwrap();
        let erased = SnodeTags { flags: TagFlags::SECURE_DELETE, ..SnodeTags::default() };
        let erased = tx.create_snode_apart(&erased).unwrap();
        tx.commit().unwrap();
        let mut number = 0;
        for snode in [SnodeId::FIRST, apart, erased] {
            // A page of slots, a page that is filled, several pages; one that has grown, twice.
            for len in [900, 3_000, 4_000, 5 * PAGE, 1_500, 4 * PAGE] {
                number += 1;
                one(&store, snode, etype, number, &vec![if number % 6 < 5 { 100 } else { 7 }; len]);
            }
            let grown = one(&store, snode, etype, 100 + number, b"grown");
            for len in [900, 6 * PAGE] {
                let mut tx = store.begin();
                tx.update_node(grown, PLAIN, &vec![100; len]).unwrap();
                tx.commit().unwrap();
            }
        }
        if !is_in_journal {
            store.checkpoint().unwrap();
        }
        for (at, snode) in [SnodeId::FIRST, apart, erased].into_iter().enumerate() {
            let mut tx = store.begin();
            let root = tx.root(snode).unwrap();
            for edge in tx.edges(root).unwrap().into_iter().rev() {
                if edge.etype == etype {
                    tx.delete_edge(root, etype, Info::Number(edge.number.unwrap())).unwrap();
                }
            }
            tx.commit().unwrap();
            if at == 1 {
                let mut tx = store.begin();
                tx.delete_snode(snode).unwrap();
                tx.commit().unwrap();
            }
        }
        // Their numbers are taken again, but not their slots, which still have the bytes.
        for number in 0..30 {
            let len = if number % 2 == 0 { 200 } else { 3 * PAGE };
            one(&store, SnodeId::FIRST, etype, number, &vec![8; len]);
        }
        let mut image = crash(store, &medium);
        assert!(zero_blocks_of(&mut image, 100) > 0);
        let mut outcomes = Outcomes::default();
        let case = format!("in the journal: {is_in_journal}");
        let report = judge(&image, &mut outcomes, &case).unwrap();
        assert!(outcomes.sound == 1 && report.complete && report.remarks.is_empty(), "{case}: {report:?}");
    }
}

fn bytes(rng: &mut StdRng, max: usize) -> Vec<u8> {
    let mut bytes = vec![0; rng.random_range(0..max)];
    rng.fill(&mut bytes[..]);
    bytes
}

/// A node, its s-node and the number of the edge that leads to it.
type Made = (NodeId, SnodeId, u64);

/// A store that was not closed, with nodes that grow and shrink.
fn crashed(seed: u64) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed);
    let (medium, store, etype) = created();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let mut snodes = vec![SnodeId::FIRST];
    let mut nodes: Vec<Made> = Vec::new();
    let steps = rng.random_range(60..260);
    let checkpoint = rng.random_range(0..steps);
    for step in 0..steps {
        if step == checkpoint {
            store.checkpoint().unwrap();
        }
        let large = [700, 9_000, 70_000][rng.random_range(0..3)];
        let mut tx = store.begin();
        let mut changed = nodes.clone();
        for _ in 0..rng.random_range(1..4) {
            change(&mut rng, &mut tx, (etype, large), &snodes, &mut changed);
        }
        if rng.random_bool(0.1) {
            tx.abort();
            continue;
        }
        tx.durability(if rng.random_bool(0.3) { Durability::Sync } else { Durability::None });
        if rng.random_bool(0.2) {
            tx.for_sync();
        }
        tx.commit().unwrap();
        nodes = changed;
        if rng.random_bool(0.2) {
            kv.put(&[rng.random_range(0..40)], &bytes(&mut rng, 3_000)).unwrap();
        }
        if rng.random_bool(0.06) {
            let flags = if rng.random_bool(0.3) { TagFlags::SECURE_DELETE } else { TagFlags::default() };
            let tags = SnodeTags { flags, ..SnodeTags::default() };
            let mut tx = store.begin();
            let is_apart = rng.random_bool(0.5);
            let snode = if is_apart { tx.create_snode_apart(&tags) } else { tx.create_snode(&tags) }.unwrap();
            tx.grant(snode, Principal::User(7), Permission::Read).unwrap();
            tx.commit().unwrap();
            snodes.push(snode);
        }
        if snodes.len() > 1 && rng.random_bool(0.03) {
            let gone = snodes.swap_remove(rng.random_range(1..snodes.len()));
            let mut tx = store.begin();
            let root = tx.root(gone).unwrap();
            for (_, _, number) in nodes.extract_if(.., |(_, snode, _)| *snode == gone) {
                tx.delete_edge(root, etype, Info::Number(number)).unwrap();
            }
            tx.delete_snode(gone).unwrap();
            tx.commit().unwrap();
        }
    }
    crash(store, &medium)
}

/// Changes a node, makes one or takes one away.
fn change(
    rng: &mut StdRng,
    tx: &mut weft_tags::Transaction<'_>,
    (etype, large): (EdgeType, usize),
    snodes: &[SnodeId],
    nodes: &mut Vec<Made>,
) {
    if nodes.len() < 5 || rng.random_bool(0.2) {
        let snode = snodes[rng.random_range(0..snodes.len())];
        let root = tx.root(snode).unwrap();
        let node = tx.create_node(snode, PLAIN, &bytes(rng, large)).unwrap();
        let number = rng.random();
        tx.create_edge(root, etype, Info::Number(number), node).unwrap();
        nodes.push((node, snode, number));
        return;
    }
    let at = rng.random_range(0..nodes.len());
    let (node, snode, number) = nodes[at];
    let len = tx.node_len(node, PLAIN).unwrap();
    match rng.random_range(0..10) {
        0 => {
            let root = tx.root(snode).unwrap();
            tx.delete_edge(root, etype, Info::Number(number)).unwrap();
            nodes.swap_remove(at);
        }
        1 | 2 => tx.update_node(node, PLAIN, &bytes(rng, large)).unwrap(),
        3 => _ = tx.append(node, PLAIN, &bytes(rng, large)).unwrap(),
        4 => tx.resize_node(node, PLAIN, rng.random_range(0..=len as usize)).unwrap(),
        _ => {
            let at = rng.random_range(0..=len);
            let max = ((len - at) as usize).clamp(1, 9_000);
            tx.write_at(node, PLAIN, at, &bytes(rng, max)).unwrap();
        }
    }
}

#[test]
fn a_crashed_store_with_a_damaged_block_that_opens_sound_is_copied_whole() {
    let is_campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let from = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let (stores, cases) = if is_campaign { (100, 120) } else { (8, 40) };
    let mut outcomes = Outcomes::default();
    for seed in from..from + stores {
        let image = crashed(seed);
        let report = judge(&image, &mut Outcomes::default(), &format!("store {seed}")).unwrap();
        assert!(report.complete && report.remarks.is_empty(), "store {seed}: {report:?}");
        let mut rng = StdRng::seed_from_u64(seed << 32);
        let mut used: Vec<usize> = (2..image.len() / PAGE).collect();
        used.retain(|block| image[block * PAGE..][..PAGE].iter().any(|byte| *byte != 0));
        for _ in 0..cases {
            let mut image = image.clone();
            let block = used[rng.random_range(0..used.len())];
            let page = &mut image[block * PAGE..][..PAGE];
            match rng.random_range(0..4) {
                0 => page[rng.random_range(0..PAGE)] ^= 1 << rng.random_range(0..8),
                1 => rng.fill(page),
                _ => page.fill(0),
            }
            judge(&image, &mut outcomes, &format!("store {seed}, block {block}"));
        }
    }
    // The test says nothing unless most outcomes are common.
    assert!(outcomes.sound * 5 > stores * cases && outcomes.in_part * 10 > stores * cases, "{outcomes:?}");
}
