//! What lies whole in a damaged store comes back: stores of a hundred thousand pairs, cut at any length, or with damaged blocks.
//! `WEFT_CAMPAIGN=1` makes a hundred stores and damages a thousand; run it with `--release`. `WEFT_SEED` begins at another one.

use super::salvage;
use crate::committed::Committed;
use crate::edges::bundle_of;
use crate::ids::{EdgeType, HomeId, NodeId, NodeType, PAGE_BYTES};
use crate::page_store::MemoryStore;
use crate::pages::desc::PageKind;
use crate::{Info, InfoForm, Kv, KvChange, Options, SalvageReport, SnodeId, SnodeTags, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

const TEXT: NodeType = NodeType(9);

fn options() -> Options {
    Options {
        cache_bytes: 6 << 20,
        journal_bytes: 1 << 20,
        store_bytes_max: 512 << 20,
        huge_pages: false,
        ..Options::default()
    }
}

/// Values by their keys.
type Known = FxHashMap<Vec<u8>, Vec<u8>>;

/// A node, and the blocks that it and the edge to it are in.
struct Node {
    id: NodeId,
    data: Vec<u8>,
    /// The blocks of its pages, and of what leads to its body.
    own: Vec<u64>,
    /// The block of the edge that leads to it.
    edge: u64,
    /// Its s-node, and the block that says so where that shares its home.
    snode: SnodeId,
    owner: Option<u64>,
}

/// A key-value store: its s-node, the blocks on the way to it, its pairs by their keys.
struct Pairs {
    snode: SnodeId,
    way: Vec<u64>,
    pairs: FxHashMap<Vec<u8>, Node>,
}

/// A store that was closed.
struct Original {
    image: Vec<u8>,
    stores: Vec<Pairs>,
    /// Nodes of all sizes below the first root.
    nodes: Vec<Node>,
    /// All data by its node.
    data: FxHashMap<NodeId, Vec<u8>>,
    /// What leads to pages: the blocks of both copies of each.
    meta: Vec<[Vec<u64>; 2]>,
    /// Tags and roots of all s-nodes, and the blocks on the way there.
    snodes: Vec<(SnodeId, NodeId, SnodeTags, Vec<u64>)>,
}

fn filled(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes[..]);
    bytes
}

/// Puts `pairs` pairs into the store of an s-node, changes some, and takes some away.
fn load(store: &Store, rng: &mut StdRng, snode: SnodeId, pairs: u32) -> Known {
    let kv = Kv::open(store, snode, "pairs").unwrap();
    let mut all = Known::default();
    for first in (0..pairs).step_by(1_000) {
        let mut new: Vec<(Vec<u8>, Vec<u8>)> = (first..pairs.min(first + 1_000))
            .map(|key| {
                let len = rng.random_range(8..72);
                (format!("key {key:08}").into_bytes(), filled(rng, len))
            })
            .collect();
        // Old versions stay behind in blocks that are free.
        new.extend((0..60).map(|_| {
            let len = rng.random_range(8..72);
            (format!("key {:08}", rng.random_range(0..=first)).into_bytes(), filled(rng, len))
        }));
        let gone: Vec<Vec<u8>> =
            (0..20).map(|_| format!("key {:08}", rng.random_range(0..=first)).into_bytes()).collect();
        let puts = new.iter().map(|(key, value)| KvChange::Put(key, value));
        kv.change(&puts.chain(gone.iter().map(|key| KvChange::Delete(key))).collect::<Vec<_>>()).unwrap();
        all.extend(new);
        gone.iter().for_each(|key| _ = all.remove(key));
    }
    all
}

fn original(seed: u64, pairs: u32) -> Original {
    let mut rng = StdRng::seed_from_u64(seed);
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let mut snodes = vec![SnodeId::FIRST];
    let mut tx = store.begin();
    let tags = SnodeTags { owner: 7, mode: 0o640, ..SnodeTags::default() };
    // The first ones have homes of their own.
    (0..60).for_each(|_| snodes.push(tx.create_snode(&tags).unwrap()));
    (0..2).for_each(|_| snodes.push(tx.create_snode_apart(&tags).unwrap()));
    tx.commit().unwrap();
    let apart = snodes.len() - 2;
    let mut contents = Vec::new();
    for (at, snode) in snodes.iter().enumerate() {
        let count = if at == 0 || at >= apart { pairs / 5 } else { pairs / 150 };
        contents.push((*snode, load(&store, &mut rng, *snode, count)));
    }
    let etype = store.edge_type("text", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut texts: Vec<(NodeId, Vec<u8>)> = Vec::new();
    for n in 0..300u64 {
        let len = rng.random_range(0..if n % 10 == 0 { 40_000 } else { 3_000 });
        let data = filled(&mut rng, len);
        let mut tx = store.begin();
        let node = tx.create_node(SnodeId::FIRST, TEXT, &data).unwrap();
        tx.create_edge(root, etype, Info::Number(n), node).unwrap();
        tx.commit().unwrap();
        texts.push((node, data));
        // Some move to a body.
        if n % 7 == 3 {
            let at = rng.random_range(0..texts.len());
            let len = rng.random_range(0..9_000);
            let data = filled(&mut rng, len);
            let mut tx = store.begin();
            tx.update_node(texts[at].0, TEXT, &data).unwrap();
            tx.commit().unwrap();
            texts[at].1 = data;
        }
    }
    store.close().unwrap();
    describe(medium, contents, texts)
}

/// Where all of a store is.
fn describe(
    medium: Arc<MemoryStore>,
    contents: Vec<(SnodeId, Known)>,
    texts: Vec<(NodeId, Vec<u8>)>,
) -> Original {
    let image = medium.to_bytes();
    let store = Store::open(Box::new(medium), &options()).unwrap();
    let names = store.own_edge_type("weft.kv.name", InfoForm::Key).unwrap();
    let etype = store.own_edge_type("weft.kv", InfoForm::Key).unwrap();
    let mut data: FxHashMap<NodeId, Vec<u8>> = FxHashMap::default();
    let mut stores = Vec::new();
    for (snode, known) in contents {
        let root = store.root(snode).unwrap();
        let anchor = store.edge(root, names, Info::Key(b"pairs")).unwrap().unwrap();
        let mut way = way_to(&store, snode);
        way.extend(blocks_of_node(&store, anchor));
        way.push(block_of_edge(&store, root, names, store.secret.bytes(b"pairs"), anchor));
        way.extend(block_of_bundle(&store, anchor));
        let mut pairs = FxHashMap::default();
        for (key, value) in known {
            let id = store.edge(anchor, etype, Info::Key(&key)).unwrap().unwrap();
            let bytes = [&(key.len() as u16).to_le_bytes()[..], &key, &value].concat();
            let own = blocks_of_node(&store, id);
            let edge = block_of_edge(&store, anchor, etype, store.secret.bytes(&key), id);
            data.insert(id, bytes);
            let owner = owner_of(&store, snode, id);
            pairs.insert(key, Node { id, data: value, own, edge, snode, owner });
        }
        way.sort_unstable();
        way.dedup();
        stores.push(Pairs { snode, way, pairs });
    }
    let etype = store.edge_type("text", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut nodes = Vec::new();
    for (number, (id, text)) in texts.into_iter().enumerate() {
        let own = blocks_of_node(&store, id);
        let edge = block_of_edge(&store, root, etype, number as u64, id);
        data.insert(id, text.clone());
        nodes.push(Node { id, data: text, own, edge, snode: SnodeId::FIRST, owner: None });
    }
    let meta = blocks_of_meta(&store);
    let of_snode =
        |snode| (snode, store.root(snode).unwrap(), store.snode_tags(snode).unwrap(), way_to(&store, snode));
    let snodes = store.snodes().unwrap().into_iter().map(of_snode).collect();
    Original { image, stores, nodes, data, meta, snodes }
}

fn block_of_page(store: &Store, page: u32) -> u64 {
    store.pool.table.describe(page).block
}

/// The blocks of a node, of its body and of what leads there.
fn blocks_of_node(store: &Store, node: NodeId) -> Vec<u64> {
    let page = node.page().unwrap();
    let desc = store.pool.table.describe(page);
    let pages = if desc.kind == PageKind::RunHead { desc.body[0] as u32 } else { 1 };
    let mut blocks: Vec<u64> = (page..page + pages).map(|page| block_of_page(store, page)).collect();
    let find = |pages: &crate::pages::access::PageReader<'_>, contents: &crate::partition::Contents| {
        contents.edges.find(pages, node, EdgeType::BODY, 0, |_| Ok(true))
    };
    if let Some((spot, body)) = store.read(node.home(), find).unwrap() {
        blocks.push(block_of_page(store, spot.page));
        blocks.extend(blocks_of_node(store, body));
    }
    blocks
}

fn block_of_edge(store: &Store, source: NodeId, etype: EdgeType, key: u64, to: NodeId) -> u64 {
    let found = store
        .read(source.home(), |pages, contents| {
            contents.edges.find(pages, source, etype, key, |it| Ok(it == to))
        })
        .unwrap();
    block_of_page(store, found.unwrap().0.page)
}

/// The block of the cell that says what a bundle's edges go out from.
fn block_of_bundle(store: &Store, source: NodeId) -> Option<u64> {
    let page = store
        .read(source.home(), |pages, contents| {
            contents.edges.main.find(pages, source.0, |place, cell| Ok(bundle_of(cell).map(|_| place.page)))
        })
        .unwrap();
    page.map(|page| block_of_page(store, page))
}

/// The blocks on the way to an s-node's root.
fn way_to(store: &Store, snode: SnodeId) -> Vec<u64> {
    let home: HomeId = snode.home().unwrap();
    let (home_root, root) = (store.root_of_home(home).unwrap(), store.root(snode).unwrap());
    let mut way = blocks_of_node(store, home_root);
    if root != home_root {
        way.extend(blocks_of_node(store, root));
        way.push(block_of_edge(store, home_root, EdgeType::GUEST, u64::from(snode.number()), root));
    }
    way
}

/// The block of the edge that says whose a node of a shared home is.
fn owner_of(store: &Store, snode: SnodeId, node: NodeId) -> Option<u64> {
    let root = store.root(snode).unwrap();
    (snode.number() > 0).then(|| block_of_edge(store, node, EdgeType::OWNER, 0, root))
}

fn blocks_of_meta(store: &Store) -> Vec<[Vec<u64>; 2]> {
    let superblock = store.superblock.lock();
    let mut meta = vec![[vec![0], vec![1]]];
    for blob in [superblock.leaves, superblock.catalog] {
        meta.push(blob.copies().map(|run| (run.block..run.block + run.blocks).collect()));
    }
    meta.extend(store.leaves.lock().at.values().map(|leaf| leaf.blocks.map(|block| vec![block])));
    meta
}

/// What a salvage has lost of what lies whole.
#[derive(Default, Debug, Clone, Copy)]
struct Tally {
    whole_nodes: usize,
    lost_nodes: usize,
    whole_pairs: usize,
    lost_pairs: usize,
    found_pairs: usize,
    whole_snodes: usize,
    lost_snodes: usize,
    /// All that leads to pages has a copy that is whole.
    leads: bool,
}

/// Salvages an image, and compares it with what lies whole; nothing else may be in the copy.
fn judge(image: Vec<u8>, original: &Original, case: &str) -> (Tally, Option<SalvageReport>) {
    let blocks = image.len() / PAGE_BYTES;
    let is_whole: Vec<bool> = (0..blocks)
        .map(|block| {
            let range = block * PAGE_BYTES..(block + 1) * PAGE_BYTES;
            image[range.clone()] == original.image[range]
        })
        .collect();
    let is_whole = |block: &u64| is_whole.get(*block as usize) == Some(&true);
    let target = Arc::new(MemoryStore::new());
    let done =
        salvage(&MemoryStore::from_bytes(image.clone()), Box::new(target.clone()), &options(), |_, _| ());
    let leads = original.meta.iter().all(|copies| copies.iter().any(|blocks| blocks.iter().all(is_whole)));
    let mut tally = Tally { leads, ..Tally::default() };
    let copy = match &done {
        Ok(_) => {
            Some(Store::open(Box::new(target), &options()).unwrap_or_else(|error| panic!("{case}: {error}")))
        }
        Err(crate::Error::Damaged { .. } | crate::Error::NotAStore { .. }) => None,
        Err(error) => panic!("{case}: {error}"),
    };
    if let Some(copy) = &copy {
        let check = copy.check().unwrap();
        assert_eq!(check.problems, Vec::<String>::new(), "{case}: {done:?}");
    }
    let mut there: FxHashSet<NodeId> = FxHashSet::default();
    if let Some(copy) = &copy {
        let mut ids = Vec::new();
        copy.each_node(|node| {
            Ok::<_, ()>({
                ids.push(node);
                true
            })
        })
        .unwrap();
        for id in ids {
            let view = copy.view(id, usize::MAX).unwrap();
            match original.data.get(&id) {
                Some(data) if view.kind != super::LOST => {
                    assert!(*data == view.data, "{case}: {id} has changed");
                    there.insert(id);
                }
                _ => assert!(
                    view.kind != TEXT && view.kind.0 != NodeType::KEYED | 0x6b76_0002,
                    "{case}: {id} was not there"
                ),
            }
        }
    }
    let roots: FxHashSet<NodeId> = original.snodes.iter().map(|(_, root, ..)| *root).collect();
    for (snode, root, tags, way) in &original.snodes {
        let now =
            copy.as_ref().and_then(|copy| Some((copy.root(*snode).ok()?, copy.snode_tags(*snode).unwrap())));
        // One with a home of its own gets a new root where that was; one that shares a home is not made up again.
        let is_made_up = |now: &(NodeId, SnodeTags)| snode.number() == 0 && now.1 == SnodeTags::default();
        assert!(
            now.as_ref().is_none_or(|now| *now == (*root, *tags) || is_made_up(now)),
            "{case}: {snode} is {now:?}, {done:?}"
        );
        if way.iter().all(is_whole) {
            tally.whole_snodes += 1;
            tally.lost_snodes += usize::from(now.is_none_or(|now| now != (*root, *tags)));
        }
    }
    let mut count = |node: &Node| {
        if node.own.iter().all(is_whole) {
            tally.whole_nodes += 1;
            tally.lost_nodes += usize::from(!there.contains(&node.id));
        }
        if let Some(copy) = copy.as_ref().filter(|_| there.contains(&node.id)) {
            let now = copy.snode_of(node.id).unwrap();
            let is_made_up = now != node.snode && !roots.contains(&copy.root(now).unwrap());
            assert!(
                now == node.snode || is_made_up,
                "{case}: {} is of {now}, not of {}",
                node.id,
                node.snode
            );
            let is_known = node.owner.is_none_or(|block| is_whole(&block))
                && original
                    .snodes
                    .iter()
                    .any(|(snode, _, _, way)| *snode == node.snode && way.iter().all(is_whole));
            assert!(!leads || !is_known || now == node.snode, "{case}: {} has lost its s-node", node.id);
        }
    };
    original.nodes.iter().for_each(&mut count);
    original.stores.iter().flat_map(|kv| kv.pairs.values()).for_each(&mut count);
    for Pairs { snode, way, pairs } in &original.stores {
        let kv = copy.as_ref().and_then(|copy| Kv::find(copy, *snode, "pairs").ok().flatten());
        let leads = way.iter().all(is_whole);
        for (key, node) in pairs {
            let found = kv.as_ref().and_then(|kv| kv.get(key).unwrap());
            assert!(found.as_ref().is_none_or(|value| *value == node.data), "{case}: a pair has changed");
            tally.found_pairs += usize::from(found.is_some());
            if leads && node.own.iter().all(is_whole) && is_whole(&node.edge) {
                tally.whole_pairs += 1;
                tally.lost_pairs += usize::from(found.is_none());
            }
        }
    }
    (tally, done.ok())
}

/// Damages some blocks, and cuts the image at a block.
fn damage(rng: &mut StdRng, image: &mut Vec<u8>) {
    let blocks = image.len() / PAGE_BYTES;
    let first = 2 + (options().journal_bytes as usize) / PAGE_BYTES;
    let count = match rng.random_range(0..4) {
        0 => 0,
        1 => 1,
        2 => rng.random_range(2..20),
        _ => rng.random_range(20..blocks / 4),
    };
    for _ in 0..count {
        // Few blocks are before the pages, and they count most.
        let block = if rng.random_bool(0.1) {
            rng.random_range(0..first + 90)
        } else {
            rng.random_range(first..blocks)
        };
        let at = block * PAGE_BYTES;
        match rng.random_range(0..4) {
            0 => image[at + rng.random_range(0..PAGE_BYTES)] ^= 1 << rng.random_range(0..8),
            1 => image[at..at + PAGE_BYTES].fill(0),
            2 => rng.fill(&mut image[at..at + PAGE_BYTES]),
            _ => {
                let other = rng.random_range(0..blocks) * PAGE_BYTES;
                image.copy_within(other..other + PAGE_BYTES, at);
            }
        }
    }
    if count == 0 || rng.random_bool(0.4) {
        image.truncate(rng.random_range(0..=blocks) * PAGE_BYTES);
    }
}

/// Judges a store as it is and damaged in `cases` ways.
fn judge_all(seed: u64, pairs: u32, cases: u64) -> (u64, u64) {
    let original = original(seed, pairs);
    let (tally, report) = judge(original.image.clone(), &original, &format!("store {seed}"));
    let count: usize = original.stores.iter().map(|kv| kv.pairs.len()).sum();
    assert_eq!(
        (tally.found_pairs, tally.lost_nodes, tally.lost_snodes),
        (count, 0, 0),
        "store {seed}: {report:?}"
    );
    assert!(report.is_some_and(|report| report.complete && report.remarks.is_empty()), "store {seed}");
    let (mut cut, mut refused) = (0, 0);
    for case in 0..cases {
        let mut image = original.image.clone();
        let mut rng = StdRng::seed_from_u64(seed << 32 | case);
        damage(&mut rng, &mut image);
        cut += u64::from(image.len() < original.image.len());
        let case = format!("store {seed}, case {case}");
        let (tally, report) = judge(image, &original, &case);
        refused += u64::from(report.is_none());
        assert!(
            !tally.leads || tally.lost_nodes + tally.lost_pairs + tally.lost_snodes == 0,
            "{case}: {tally:?} {report:?}"
        );
    }
    (cut, refused)
}

#[test]
fn what_lies_whole_in_a_cut_or_damaged_store_comes_back() {
    let is_campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let from = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let (stores, pairs, cases) = if is_campaign { (100, 104_000, 10) } else { (1, 15_000, 12) };
    let mut all = (0, 0);
    for seed in from..from + stores {
        let (cut, refused) = judge_all(seed, pairs, cases);
        all = (all.0 + cut, all.1 + refused);
    }
    // The test says nothing if most are refused.
    assert!(all.0 > 0 && all.1 <= stores * cases / 4, "{all:?}");
}

#[test]
fn any_block_that_leads_to_pages_may_be_damaged_and_the_store_may_be_cut_at_any_twentieth() {
    let original = original(1, 15_000);
    let blocks = original.image.len() / PAGE_BYTES;
    for cut in 0..20 {
        let mut image = original.image.clone();
        image.truncate(blocks * cut / 20 * PAGE_BYTES);
        let (tally, report) = judge(image, &original, &format!("cut at {cut}/20"));
        assert_eq!(
            (tally.lost_nodes, tally.lost_pairs, tally.lost_snodes),
            (0, 0, 0),
            "cut at {cut}/20: {report:?}"
        );
    }
    for block in original.meta.iter().flatten().flatten() {
        let mut image = original.image.clone();
        image[*block as usize * PAGE_BYTES + 5] ^= 1;
        let medium = MemoryStore::from_bytes(image.clone());
        assert!(Store::open(Box::new(medium), &options()).is_ok(), "block {block}");
        let (tally, report) = judge(image, &original, &format!("block {block}"));
        assert_eq!(
            (tally.lost_nodes, tally.lost_pairs, tally.lost_snodes),
            (0, 0, 0),
            "block {block}: {report:?}"
        );
        assert!(report.is_some_and(|report| report.complete), "block {block}");
    }
}
