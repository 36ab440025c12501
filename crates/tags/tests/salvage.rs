//! What can be read of a damaged store comes into a new one, and nothing else does. `WEFT_CAMPAIGN=1` damages many more.

#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::sync::Arc;
use weft_tags::{
    BTree, BTreeForm, Durability, EdgeType, Error, Info, InfoForm, Kv, MemoryStore, NodeId, NodeType,
    Options, PageStore, Permission, Principal, SalvageReport, SnodeId, SnodeTags, Store, TagFlags, salvage,
};

const PLAIN: NodeType = NodeType(5);
const PAGE: usize = 4096;
const MADE: [&str; 2] = ["weft.salvage.found", "weft.salvage.lost"];
/// The type of nodes that stand where lost ones were.
const LOST: u32 = 0x6c6f_7374;

fn options() -> Options {
    Options {
        cache_bytes: 1 << 20,
        journal_bytes: 256 << 10,
        store_bytes_max: 16 << 20,
        ..Options::default()
    }
}

/// A medium that fails the test when somebody changes it.
struct ReadOnly(MemoryStore);

impl PageStore for ReadOnly {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(block, out)
    }
    fn write(&self, _: u64, _: &weft_core::Tag, _: &[IoSlice<'_>]) -> io::Result<()> {
        panic!("the damaged store is written")
    }
    fn sync(&self) -> io::Result<()> {
        panic!("the damaged store is synced")
    }
    fn discard(&self, _: u64, _: u64) {
        panic!("the damaged store is discarded")
    }
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }
    fn grow(&self, _: u64) -> io::Result<()> {
        panic!("the damaged store grows")
    }
}

/// All that a store holds, as programs see it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct State {
    nodes: BTreeMap<NodeId, (u32, Vec<u8>)>,
    /// Source, type, number, destination.
    edges: BTreeSet<(NodeId, EdgeType, Option<u64>, NodeId)>,
    grants: BTreeSet<(SnodeId, Principal, Permission)>,
}

fn state(store: &Store) -> State {
    let mut state = State::default();
    let mut ids = Vec::new();
    store
        .each_node(|node| {
            ids.push(node);
            Ok::<_, ()>(true)
        })
        .unwrap();
    for node in ids {
        let view = store.view(node, usize::MAX).unwrap();
        state.nodes.insert(node, (view.kind.0, view.data));
        for edge in store.edges(node).unwrap() {
            state.edges.insert((node, edge.etype, edge.number, edge.to));
        }
    }
    for snode in store.snodes().unwrap() {
        let grants = store.grants(snode).unwrap();
        state.grants.extend(grants.into_iter().map(|(principal, permission)| (snode, principal, permission)));
    }
    state
}

/// A store, and what it held after each commit.
struct Original {
    image: Vec<u8>,
    states: BTreeMap<u64, State>,
    names: Vec<String>,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    tree: Vec<(Vec<u8>, Vec<u8>)>,
    fixed: Vec<(Vec<u8>, Vec<u8>)>,
}

fn bytes(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes[..]);
    bytes
}

/// A store with all kinds of things in it; closed, or left with a journal.
fn original(is_closed: bool) -> Original {
    let mut rng = StdRng::seed_from_u64(7);
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let tags = SnodeTags { owner: 3, group: 4, mode: 0o640, ..SnodeTags::default() };
    let second = tx.create_snode(&tags).unwrap();
    let secret = tx.create_snode(&SnodeTags { flags: TagFlags::SECURE_DELETE, ..tags }).unwrap();
    let snodes = [SnodeId::FIRST, second, secret];
    let mut nodes = Vec::new();
    for n in 0..240u64 {
        let snode = snodes[n as usize % 3];
        let len = if n % 40 == 7 { 9_000 } else { rng.random_range(0..700) };
        let node = tx.create_node(snode, PLAIN, &bytes(&mut rng, len)).unwrap();
        let root = tx.root(snode).unwrap();
        // Some are deep, some have several edges that lead to them.
        let from = if n > 30 && n % 4 == 0 { nodes[n as usize / 2] } else { root };
        tx.create_edge(from, etype, Info::Number(n), node).unwrap();
        if n % 10 == 0 {
            tx.create_edge(root, etype, Info::Number(1000 + n), node).unwrap();
        }
        nodes.push(node);
        if n % 30 == 29 {
            tx.commit().unwrap();
            tx = store.begin();
        }
    }
    tx.commit().unwrap();
    for (n, node) in nodes.iter().enumerate().filter(|(n, _)| n % 9 == 5) {
        let len = if n % 2 == 0 { 12_000 } else { 1_500 };
        let mut tx = store.begin();
        tx.update_node(*node, PLAIN, &bytes(&mut rng, len)).unwrap();
        tx.commit().unwrap();
    }
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let mut pairs: Vec<_> = (0..400u32)
        .map(|n| {
            let len = rng.random_range(0..120);
            (n.to_le_bytes().to_vec(), bytes(&mut rng, len))
        })
        .collect();
    for chunk in pairs.chunks(50) {
        let changes: Vec<_> = chunk.iter().map(|(key, value)| weft_tags::KvChange::Put(key, value)).collect();
        kv.change(&changes).unwrap();
    }
    let tree = BTree::open(&store, second, "tree", BTreeForm::Bytes).unwrap();
    let tree_pairs: Vec<_> = (0..300u32)
        .map(|n| {
            let len = if n % 50 == 3 { 3_000 } else { rng.random_range(0..60) };
            (format!("key {n:05}").into_bytes(), bytes(&mut rng, len))
        })
        .collect();
    tree.load(tree_pairs.iter().cloned(), 100).unwrap();
    let fixed_tree = BTree::open(&store, second, "fixed", BTreeForm::Fixed).unwrap();
    let fixed: Vec<_> = (0..1_500u32)
        .map(|n| (n.to_be_bytes().to_vec(), (u64::from(n) * 3).to_le_bytes().to_vec()))
        .collect();
    fixed_tree.load(fixed.iter().cloned(), 100).unwrap();
    store.checkpoint().unwrap();
    let mut states = BTreeMap::from([(store.last_commit(), state(&store))]);
    // What is in the journal, or was.
    for n in 0..24u64 {
        if n % 5 == 0 {
            let key = 1_000 + n as u32;
            let pair = (key.to_le_bytes().to_vec(), bytes(&mut rng, 90));
            kv.put(&pair.0, &pair.1).unwrap();
            pairs.push(pair);
            states.insert(store.last_commit(), state(&store));
            continue;
        }
        let mut tx = store.begin();
        let snode = snodes[n as usize % 3];
        let root = tx.root(snode).unwrap();
        // Nodes of a page and more are written at once, and the journal speaks of their pages.
        let len = if n % 4 == 0 { 20_000 } else { rng.random_range(0..900) };
        for more in 0..3 {
            let node = tx.create_node(snode, PLAIN, &bytes(&mut rng, len)).unwrap();
            tx.create_edge(root, etype, Info::Number(5_000 + n * 10 + more), node).unwrap();
        }
        let changed = nodes[(n as usize * 7) % nodes.len()];
        if tx.read_node(changed, PLAIN).is_ok() {
            let len = rng.random_range(0..3_000);
            tx.update_node(changed, PLAIN, &bytes(&mut rng, len)).unwrap();
        }
        if n % 3 == 0 {
            tx.delete_edge(root, etype, Info::Number(1 + n)).ok();
        }
        if n == 9 {
            tx.create_snode(&tags).unwrap();
        }
        tx.durability(if n % 2 == 0 { Durability::Sync } else { Durability::None });
        tx.commit().unwrap();
        states.insert(store.last_commit(), state(&store));
    }
    store.edge_type("late", InfoForm::Key).unwrap();
    states.insert(store.last_commit(), state(&store));
    let names = store.edge_types().into_iter().map(|known| known.name).collect();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    if is_closed {
        store.close().unwrap();
    } else {
        store.sync().unwrap();
        drop(store);
    }
    Original { image: medium.to_bytes(), states, names, pairs, tree: tree_pairs, fixed }
}

#[derive(Default, Debug)]
struct Outcomes {
    complete: u64,
    in_part: u64,
    refused: u64,
    commits_lost: u64,
    made_up: u64,
    beyond_telling: u64,
}

/// Whether nothing is left of the headers of records that begin blocks of the journal, of all commits after this one.
fn is_beyond_telling(image: &[u8], original: &Original, last_commit: u64) -> bool {
    let (first, blocks) = (2, (options().journal_bytes as usize) / PAGE);
    let epoch = &original.image[first * PAGE + 16..][..8];
    (first..first + blocks).all(|block| {
        let (was, is) = (&original.image[block * PAGE..][..32], image.get(block * PAGE..block * PAGE + 32));
        let lsn = u64::from_le_bytes(was[24..].try_into().unwrap());
        let is_later = was[..4] == *b"WTJ1" && was[16..24] == *epoch && lsn > last_commit;
        let is = is.unwrap_or(&[0; 32]);
        !is_later || is[..4] != was[..4] && is[16..24] != was[16..24]
    })
}

/// Salvages an image and compares what comes out with what was there.
fn judge(image: Vec<u8>, original: &Original, outcomes: &mut Outcomes, case: &str) -> Option<SalvageReport> {
    let before = image.clone();
    let source = ReadOnly(MemoryStore::from_bytes(image));
    let target = Arc::new(MemoryStore::new());
    let report =
        match salvage(&source, Box::new(target.clone()), &options(), |done, total| assert!(done <= total)) {
            Ok(report) => report,
            Err(Error::Damaged { .. } | Error::NotAStore { .. } | Error::Version { .. }) => {
                outcomes.refused += 1;
                return None;
            }
            Err(error) => panic!("{case}: {error}"),
        };
    assert!(source.0.to_bytes()[..before.len()] == before[..], "{case}: the damaged store has changed");
    let copy = Store::open(Box::new(target), &options()).unwrap_or_else(|error| panic!("{case}: {error}"));
    let check = copy.check().unwrap();
    assert_eq!(check.problems, Vec::<String>::new(), "{case}: {report:?}");
    let held = report.held_places;
    assert_eq!((check.nodes, check.edges), (report.nodes + held, report.edges + held), "{case}: {report:?}");
    let names: Vec<_> = copy.edge_types().into_iter().map(|known| known.name).collect();
    let is_made = |etype: EdgeType| MADE.contains(&names[etype.0 as usize].as_str());
    let now = state(&copy);
    let then = original.states.get(&report.last_commit).unwrap_or_else(|| panic!("{case}: {report:?}"));
    for (node, data) in &now.nodes {
        match then.nodes.get(node) {
            Some(wanted) if wanted == data => {}
            _ if report.made_up_snodes > 0 && data.0 == 0 => {}
            _ if held > 0 && *data == (LOST, vec![]) => {}
            other => panic!("{case}: {node} is {data:?}, was {other:?}, {report:?}"),
        }
    }
    let new: Vec<_> = now.edges.difference(&then.edges).collect();
    assert!(new.iter().all(|edge| is_made(edge.1)), "{case}: {new:?}");
    assert_eq!(new.len() as u64, report.found_nodes + held, "{case}");
    assert!(now.grants.is_subset(&then.grants), "{case}");
    if report.made_up_types == 0 {
        assert!(
            names.iter().zip(&original.names).all(|(a, b)| a == b || MADE.contains(&a.as_str())),
            "{case}: {names:?}"
        );
    }
    let is_whole = report.complete && *then == *original.states.last_key_value().unwrap().1;
    let last = *original.states.last_key_value().unwrap().0;
    if report.complete {
        assert!(now == *then, "{case}: it is said to be complete");
        if report.last_commit < last {
            assert!(
                is_beyond_telling(&before, original, report.last_commit),
                "{case}: commits are missing, {report:?}"
            );
            outcomes.beyond_telling += 1;
        }
        outcomes.complete += 1;
    } else {
        outcomes.in_part += 1;
    }
    outcomes.commits_lost += u64::from(report.commits_lost > 0);
    outcomes.made_up += u64::from(report.made_up_types > 0);
    look_up(&copy, original, is_whole, case);
    // What comes next works, and takes no place that a tree still leads to.
    let root = copy.root(SnodeId::FIRST).unwrap();
    let etype = copy.edge_type("after", InfoForm::Number).unwrap();
    let mut tx = copy.begin();
    for n in 0..40 {
        let node = tx.create_node(SnodeId::FIRST, PLAIN, &vec![n; 30 * usize::from(n)]).unwrap();
        tx.create_edge(root, etype, Info::Number(u64::from(n)), node).unwrap();
    }
    tx.commit().unwrap();
    if let Some(second) = copy.snodes().unwrap().get(1).copied() {
        for (name, form) in [("new tree", BTreeForm::Bytes), ("new fixed", BTreeForm::Fixed)] {
            let tree = BTree::open(&copy, second, name, form).unwrap();
            let pairs = (0..1_500u32).map(|n| (n.to_be_bytes().to_vec(), vec![7; 8]));
            tree.load(pairs, 100).unwrap();
        }
        look_up(&copy, original, is_whole, case);
    }
    assert_eq!(copy.check().unwrap().problems, Vec::<String>::new(), "{case}: after a commit");
    Some(report)
}

/// Key-value stores and trees give what they gave, or nothing, or an error.
fn look_up(copy: &Store, original: &Original, is_whole: bool, case: &str) {
    if let Some(kv) = Kv::find(copy, SnodeId::FIRST, "pairs").unwrap() {
        for (key, value) in &original.pairs {
            if let Some(found) = kv.get(key).unwrap() {
                assert!(found == *value, "{case}: a pair has changed");
            } else {
                assert!(!is_whole, "{case}: a pair is missing");
            }
        }
        kv.scan().unwrap().for_each(|pair| _ = pair.unwrap());
    } else {
        assert!(!is_whole, "{case}: no pairs");
    }
    let Some(second) = copy.snodes().unwrap().get(1).copied() else {
        assert!(!is_whole);
        return;
    };
    for (name, pairs) in [("tree", &original.tree), ("fixed", &original.fixed)] {
        match BTree::find(copy, second, name) {
            Ok(Some(tree)) => {
                for (key, value) in pairs.iter().step_by(7) {
                    match tree.get(key) {
                        Ok(found) => {
                            assert!(found.as_ref() == Some(value), "{case}: a pair of {name} has changed")
                        }
                        Err(Error::Damaged { .. } | Error::NoSuchNode(_)) => {
                            assert!(!is_whole, "{case}: a pair of {name} cannot be read")
                        }
                        Err(error) => panic!("{case}: {error}"),
                    }
                }
                if is_whole {
                    assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
                }
            }
            Ok(None) | Err(Error::Damaged { .. }) => assert!(!is_whole, "{case}: no {name}"),
            Err(error) => panic!("{case}: {error}"),
        }
    }
}

/// Changes the image by a byte, some bytes, a page, or a cut.
fn damage(rng: &mut StdRng, image: &mut Vec<u8>) {
    let pages = image.len() / PAGE;
    if rng.random_bool(0.05) {
        let end = rng.random_range(pages / 2..pages) * PAGE + rng.random_range(0..2) * 777;
        image.truncate(end);
        return;
    }
    let page = loop {
        let page = if rng.random_bool(0.04) { rng.random_range(0..2) } else { rng.random_range(0..pages) };
        if rng.random_bool(0.02) || image[page * PAGE..][..PAGE].iter().any(|byte| *byte != 0) {
            break page;
        }
    };
    let other = rng.random_range(0..pages) * PAGE;
    let at = page * PAGE;
    match rng.random_range(0..10) {
        0..=3 => {
            let end = if rng.random_bool(0.4) { 128 } else { PAGE };
            image[at + rng.random_range(0..end)] ^= 1 << rng.random_range(0..8);
        }
        4 => (0..rng.random_range(2..40)).for_each(|_| image[at + rng.random_range(0..PAGE)] = rng.random()),
        5 => image[at..at + PAGE].fill(0),
        6 => rng.fill(&mut image[at..at + PAGE]),
        7 => image.copy_within(other..other + PAGE, at),
        8 => {
            let end = (at + rng.random_range(1..20) * PAGE).min(pages * PAGE);
            rng.fill(&mut image[at..end]);
        }
        _ => image[at + rng.random_range(0..8) * 512..at + PAGE].fill(0),
    }
}

#[test]
fn an_undamaged_store_is_copied_completely() {
    for is_closed in [true, false] {
        let original = original(is_closed);
        let report = judge(original.image.clone(), &original, &mut Outcomes::default(), "whole").unwrap();
        assert!(report.complete && report.remarks.is_empty(), "{report:?}");
        assert_eq!(report.commits_applied > 0, !is_closed);
        assert_eq!(report.lost_nodes + report.dropped_edges + report.found_nodes, 0);
    }
}

#[test]
fn what_can_be_read_of_a_damaged_store_comes_back_and_nothing_else_does() {
    let originals = [original(true), original(false)];
    let cases = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 10_000 } else { 200 };
    let from = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let mut outcomes = Outcomes::default();
    for seed in from..from + cases {
        let mut rng = StdRng::seed_from_u64(seed);
        let original = &originals[seed as usize % 2];
        let mut image = original.image.clone();
        (0..rng.random_range(1..5)).for_each(|_| damage(&mut rng, &mut image));
        judge(image, original, &mut outcomes, &format!("case {seed}"));
    }
    // The test says nothing unless each outcome is common.
    let least = cases / 50;
    assert!(outcomes.complete > least && outcomes.in_part > cases / 3, "{outcomes:?}");
    assert!(outcomes.beyond_telling * 50 <= cases, "{outcomes:?}");
    assert!(outcomes.refused > 0 && outcomes.commits_lost > 0, "{outcomes:?}");
}

/// A closed store with nothing but a key-value store of so many pairs.
fn with_pairs(pairs: u32) -> (Vec<u8>, Options) {
    let options = Options { cache_bytes: 4 << 20, store_bytes_max: 32 << 20, ..options() };
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    for first in (0..pairs).step_by(500) {
        let keys: Vec<_> = (first..pairs.min(first + 500)).map(u32::to_le_bytes).collect();
        kv.change(&keys.iter().map(|key| weft_tags::KvChange::Put(key, key)).collect::<Vec<_>>()).unwrap();
    }
    store.close().unwrap();
    (medium.to_bytes(), options)
}

fn salvaged(image: Vec<u8>, options: &Options) -> (Store, SalvageReport) {
    let target = Arc::new(MemoryStore::new());
    let source = MemoryStore::from_bytes(image);
    let report = salvage(&source, Box::new(target.clone()), options, |_, _| ()).unwrap();
    let copy = Store::open(Box::new(target), options).unwrap();
    assert_eq!(copy.check().unwrap().problems, Vec::<String>::new());
    (copy, report)
}

fn word(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at * 8..][..8].try_into().unwrap())
}

#[test]
fn no_pair_is_lost_with_a_page_of_edges_by_key() {
    let (mut image, options) = with_pairs(3_000);
    // Pages of bundles, of which there is one: the number of the table, a share from the first position on, but not up to the
    // last, and no link, by hashes. Where the share ends depends on the store's secret.
    let is_first = |page: &[u8]| {
        [word(page, 0), word(page, 1), word(page, 3)] == [0, 2, 1 << 32]
            && word(page, 2) as u32 == 0
            && (1..u64::from(u32::MAX)).contains(&(word(page, 2) >> 32))
    };
    let pages: Vec<usize> =
        (66..image.len() / PAGE).filter(|page| is_first(&image[page * PAGE..][..PAGE])).collect();
    assert!(!pages.is_empty());
    pages.iter().for_each(|page| image[page * PAGE + 1_000] ^= 1);
    let (copy, report) = salvaged(image, &options);
    assert_eq!((report.lost_table_pages, report.complete), (1, false), "{report:?}");
    assert!(report.found_edges > 50 && report.found_nodes + report.lost_nodes == 0, "{report:?}");
    let kv = Kv::find(&copy, SnodeId::FIRST, "pairs").unwrap().unwrap();
    (0..3_000u32)
        .for_each(|key| assert_eq!(kv.get(&key.to_le_bytes()).unwrap(), Some(key.to_le_bytes().to_vec())));
}

#[test]
fn stores_of_pairs_are_known_without_the_catalog_too() {
    let (mut image, options) = with_pairs(500);
    let name = b"weft.kv.name";
    while let Some(at) = image.windows(name.len()).position(|window| window == name) {
        image[at] ^= 1;
    }
    let (copy, report) = salvaged(image, &options);
    assert_eq!((report.made_up_types, report.made_up_snodes, report.nodes), (2, 0, 502), "{report:?}");
    assert!(!report.complete);
    let kv = Kv::find(&copy, SnodeId::FIRST, "pairs").unwrap().unwrap();
    (0..500u32)
        .for_each(|key| assert_eq!(kv.get(&key.to_le_bytes()).unwrap(), Some(key.to_le_bytes().to_vec())));
}

#[test]
fn one_superblock_is_enough_and_none_is_not() {
    let (mut image, options) = with_pairs(50);
    image[24] ^= 1;
    let (_, report) = salvaged(image.clone(), &options);
    assert!(report.complete && report.remarks.len() == 1, "{report:?}");
    image[PAGE + 24] ^= 1;
    let target = MemoryStore::new();
    let error = salvage(&MemoryStore::from_bytes(image), Box::new(target), &options, |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("both copies of the superblock"), "{error}");
}

#[test]
fn commits_behind_a_damaged_one_are_said_to_be_lost() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    store.checkpoint().unwrap();
    let first = store.last_commit() + 1;
    (0..10u8).for_each(|key| kv.put(&[key], b"value").unwrap());
    drop(store);
    let image = medium.to_bytes();
    // Each commit has a block of its own.
    for (lost, keeps) in [(4, 4), (9, 9)] {
        for byte in [0, 17, 30, 60] {
            let mut image = image.clone();
            image[(2 + lost) * PAGE + byte] ^= 1;
            let (copy, report) = salvaged(image, &options());
            assert_eq!((report.commits_applied, report.commits_lost), (keeps, 10 - keeps), "{report:?}");
            assert_eq!((report.complete, report.last_commit), (false, first + keeps - 1), "byte {byte}");
            let kv = Kv::find(&copy, SnodeId::FIRST, "pairs").unwrap().unwrap();
            assert_eq!(kv.count().unwrap(), keeps);
        }
    }
    let (_, report) = salvaged(image, &options());
    assert_eq!((report.complete, report.commits_applied, report.commits_lost), (true, 10, 0));
}

/// Puts a superblock's or a record's checksum right again.
fn seal(image: &mut [u8], copy: usize) {
    let page = &mut image[copy * PAGE..][..PAGE];
    let crc = weft_core::checksum::crc32c(&page[..PAGE - 4]);
    page[PAGE - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// A store on which power failed between the two superblocks, and which copy is the newer one.
fn between_superblocks() -> (Vec<u8>, usize) {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.put(b"first", b"value").unwrap();
    store.checkpoint().unwrap();
    let before = medium.to_bytes();
    kv.put(b"second", b"value").unwrap();
    store.checkpoint().unwrap();
    let mut image = medium.to_bytes();
    image[PAGE..2 * PAGE].copy_from_slice(&before[PAGE..2 * PAGE]);
    assert_ne!(image[..PAGE], image[PAGE..2 * PAGE]);
    (image, 0)
}

#[test]
fn after_a_power_cut_between_the_superblocks_one_damaged_copy_loses_nothing() {
    let (image, newer) = between_superblocks();
    let medium = Arc::new(MemoryStore::from_bytes(image));
    let store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    let kv = Kv::find(&store, SnodeId::FIRST, "pairs").unwrap().unwrap();
    kv.put(b"third", b"value").unwrap();
    drop(store);
    for copy in [newer, 1 - newer] {
        let mut image = medium.to_bytes();
        image[copy * PAGE + 30] ^= 1;
        let store = Store::open(Box::new(MemoryStore::from_bytes(image.clone())), &options()).unwrap();
        let (salvaged, report) = salvaged(image, &options());
        assert!(report.complete, "{report:?}");
        for store in [store, salvaged] {
            let kv = Kv::find(&store, SnodeId::FIRST, "pairs").unwrap().unwrap();
            assert_eq!(kv.get(b"third").unwrap(), Some(b"value".to_vec()), "copy {copy}");
        }
    }
}

#[test]
fn an_older_superblock_does_not_pass_for_the_newest() {
    let (before, newer) = between_superblocks();
    let medium = Arc::new(MemoryStore::from_bytes(before.clone()));
    let store = Store::open(Box::new(medium.clone()), &options()).unwrap();
    let kv = Kv::find(&store, SnodeId::FIRST, "pairs").unwrap().unwrap();
    kv.put(b"third", b"value").unwrap();
    drop(store);
    // As if the opening had left the older copy.
    let mut image = medium.to_bytes();
    image[(1 - newer) * PAGE..][..PAGE].copy_from_slice(&before[(1 - newer) * PAGE..][..PAGE]);
    let lists = [8, 9].map(|at| word(&image[newer * PAGE..][..PAGE], at) as usize * PAGE);
    for at in [&[newer * PAGE + 30][..], &[newer * PAGE], &lists] {
        let mut image = image.clone();
        at.iter().for_each(|at| image[*at] ^= 1);
        let opened = Store::open(Box::new(MemoryStore::from_bytes(image.clone())), &options());
        assert!(matches!(opened, Err(Error::Damaged { .. })), "bytes {at:?}");
        let source = MemoryStore::from_bytes(image);
        let report = salvage(&source, Box::new(MemoryStore::new()), &options(), |_, _| ()).unwrap();
        assert!(!report.complete, "bytes {at:?}: {report:?}");
    }
}

#[test]
fn a_check_finds_each_damaged_copy_and_a_backup_writes_it_anew() {
    let medium = Arc::new(MemoryStore::from_bytes(between_superblocks().0));
    drop(Store::open(Box::new(medium.clone()), &options()).unwrap());
    let image = medium.to_bytes();
    let copies = [8, 9, 12, 13].map(|at| word(&image, at));
    let leaf = &image[copies[0] as usize * PAGE..];
    let leaf_copies = [1, 2].map(|at| word(leaf, at));
    for block in copies.into_iter().chain(leaf_copies).chain([0, 1]) {
        for at in [0, 30] {
            let mut image = image.clone();
            image[block as usize * PAGE + at] ^= 1;
            let medium = Arc::new(MemoryStore::from_bytes(image));
            let store = Store::open(Box::new(medium.clone()), &options()).unwrap();
            let report = store.check().unwrap();
            // The superblock is needed whole before the store may change.
            let was_mended = block < 2;
            assert_eq!(report.mended.is_some(), was_mended, "block {block}");
            assert_eq!(report.problems.len(), usize::from(!was_mended), "block {block}: {report:?}");
            let backup = Arc::new(MemoryStore::new());
            store.backup(&backup, |_, _| ()).unwrap();
            drop(store);
            for medium in [medium, backup] {
                let store = Store::open(Box::new(medium), &options()).unwrap();
                let report = store.check().unwrap();
                assert_eq!((report.mended, report.problems), (None, Vec::new()), "block {block}");
            }
        }
    }
}

#[test]
fn numbers_that_cannot_be_are_damage_though_their_checksum_holds() {
    let original = original(false);
    // Epoch, blocks of the journal, the last commit, bytes of the list and of the catalog.
    for (at, value) in [(16, u64::MAX), (48, 1 << 40), (56, u64::MAX), (80, 1 << 42), (112, 1 << 42)] {
        let mut image = original.image.clone();
        for copy in 0..2 {
            image[copy * PAGE + at..][..8].copy_from_slice(&value.to_le_bytes());
            seal(&mut image, copy);
        }
        let opened = Store::open(Box::new(MemoryStore::from_bytes(image.clone())), &options());
        assert!(matches!(opened, Err(Error::Damaged { .. })), "at {at}");
        assert!(judge(image, &original, &mut Outcomes::default(), &format!("at {at}")).is_none());
    }
    // A record far ahead, behind the last.
    let mut image = original.image.clone();
    let first = image[2 * PAGE..][..PAGE].to_vec();
    let mut record = first[..40].to_vec();
    record[8..12].fill(0);
    record[24..40].fill(0xff);
    let crc = weft_core::checksum::crc32c(&record[8..]);
    record[4..8].copy_from_slice(&crc.to_le_bytes());
    let last = 2 + (options().journal_bytes as usize) / PAGE - 1;
    image[last * PAGE..][..40].copy_from_slice(&record);
    let report = judge(image, &original, &mut Outcomes::default(), "record").unwrap();
    assert_eq!((report.commits_lost, report.complete), (1, false), "{report:?}");
    // A leaf of pages whose numbers go beyond 32 bits.
    let mut image = original.image.clone();
    let (list, len) = (word(&image, 8) as usize, word(&image, 10) as usize);
    image[list * PAGE..][..4].copy_from_slice(&67_108_863u32.to_le_bytes());
    let crc = weft_core::checksum::crc32c(&image[list * PAGE..][..len]);
    for copy in 0..2 {
        image[copy * PAGE + 88..][..4].copy_from_slice(&crc.to_le_bytes());
        seal(&mut image, copy);
    }
    let opened = Store::open(Box::new(MemoryStore::from_bytes(image.clone())), &options());
    assert!(matches!(opened, Err(Error::Damaged { .. })));
    let report = judge(image, &original, &mut Outcomes::default(), "leaf").unwrap();
    assert!(!report.complete, "{report:?}");
}

#[test]
fn a_root_that_is_made_up_erases_where_some_s_node_did() {
    for erases in [false, true] {
        let medium = Arc::new(MemoryStore::new());
        let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
        let flags = if erases { TagFlags::SECURE_DELETE } else { TagFlags::default() };
        let mut tx = store.begin();
        let snode = tx.create_snode(&SnodeTags { owner: 3, flags, ..SnodeTags::default() }).unwrap();
        tx.commit().unwrap();
        let tags = store.snode_tags(snode).unwrap();
        let root = store.root(snode).unwrap();
        store.close().unwrap();
        let mut image = medium.to_bytes();
        let mut data = [0; 40];
        data[4..8].copy_from_slice(&32u32.to_le_bytes());
        data[8..12].copy_from_slice(&tags.owner.to_le_bytes());
        data[17] = flags.bits();
        let at = (2..image.len() / PAGE)
            .map(|page| page * PAGE)
            .filter(|at| (0..PAGE - 40).step_by(8).any(|slot| image[at + slot..][..40] == data));
        at.collect::<Vec<_>>().into_iter().for_each(|at| image[at + 4095] ^= 1);
        let (copy, report) = salvaged(image, &options());
        assert!(report.made_up_snodes >= 1 && !report.complete, "{report:?}");
        let now = copy.snode_tags(snode).unwrap();
        assert_eq!((now.flags, copy.root(snode).unwrap()), (flags, root), "{report:?}");
    }
}
