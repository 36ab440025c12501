//! Whose each block and page is, against what the test knows of its s-nodes; and what is left of those that are gone.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_tags::{
    BlockUse, Info, InfoForm, MemoryStore, NodeId, NodeType, Options, PAGE_BYTES, PageUse, SnodeId,
    SnodeTags, Store, TagFlags,
};

const FILE: NodeType = NodeType(1);

fn options() -> Options {
    Options { cache_bytes: 4 << 20, journal_bytes: 1 << 20, ..Options::default() }
}

/// What data of each node is made of: no two nodes have the same.
fn pattern(node: u64, len: usize) -> Vec<u8> {
    let bytes = (node + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    bytes.into_iter().cycle().take(len).collect()
}

fn has(page: &[u8], node: u64) -> bool {
    let wanted = pattern(node, 16);
    page.windows(16).any(|window| window == wanted)
}

/// S-nodes of both kinds with nodes of all sizes, of which some have moved to bodies and some are gone.
fn fill(store: &Store) -> BTreeMap<NodeId, (SnodeId, u64)> {
    let mut rng = StdRng::seed_from_u64(5);
    let holds = store.edge_type("holds", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    // The first have homes of their own, the others share some.
    let snodes: Vec<SnodeId> = (0..24u32)
        .map(|n| {
            let flags = if n % 3 == 0 { TagFlags::SECURE_DELETE } else { TagFlags::empty() };
            tx.create_snode(&SnodeTags { flags, ..SnodeTags::default() }).unwrap()
        })
        .collect();
    tx.commit().unwrap();
    let mut all = BTreeMap::new();
    for turn in 0..3u64 {
        for (at, snode) in (0u64..).zip(&snodes) {
            let mut tx = store.begin();
            let root = tx.root(*snode).unwrap();
            for n in 0..4 {
                let number = turn * 1000 + at * 10 + n;
                let len = [40, 700, 5_000, 30_000][rng.random_range(0..4)];
                let node = tx.create_node(*snode, FILE, &pattern(number, len)).unwrap();
                tx.create_edge(root, holds, Info::Number(number), node).unwrap();
                all.insert(node, (*snode, number));
            }
            tx.commit().unwrap();
        }
        // Some outgrow their places.
        for (node, (_, number)) in &all {
            if rng.random_bool(0.8) {
                continue;
            }
            let mut tx = store.begin();
            tx.update_node(*node, FILE, &pattern(*number, rng.random_range(2_000..50_000))).unwrap();
            tx.commit().unwrap();
        }
    }
    all
}

#[test]
fn each_block_with_a_nodes_data_is_told_as_that_nodes_and_as_nobodys_after_it_is_gone() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let all = fill(&store);
    store.checkpoint().unwrap();
    let image = medium.to_bytes();
    let mut owners = store.owners();
    let (mut pages, mut told) = (0, BTreeMap::<NodeId, BTreeSet<u32>>::new());
    for block in 0..image.len() / PAGE_BYTES {
        let bytes = &image[block * PAGE_BYTES..(block + 1) * PAGE_BYTES];
        let Some(BlockUse::Page(page)) = owners.block(block as u64) else { continue };
        pages += 1;
        let PageUse::Nodes(nodes) = owners.page(page).unwrap() else { continue };
        for (node, snode) in nodes {
            let Some((wanted, number)) = all.get(&node) else { continue };
            assert_eq!(snode, Some(*wanted), "node {node}");
            // A node that has moved is told of where it is, and where its data is.
            if has(bytes, *number) {
                told.entry(node).or_default().insert(page);
            }
        }
        // No other node's data is in it.
        let PageUse::Nodes(nodes) = owners.page(page).unwrap() else { continue };
        for (node, (_, number)) in &all {
            if nodes.iter().all(|(told, _)| told != node) && has(bytes, *number) {
                let view = store.view(*node, 0).unwrap();
                panic!("block {block} has data of {node}, {} bytes, and is told as {nodes:?}'s", view.bytes);
            }
        }
    }
    assert_eq!(told.len(), all.len(), "each node's data is told of");
    assert!(pages > 300, "{pages}");
    assert!(owners.block(owners.blocks().len() as u64).is_none());
    // The other way: the pages of an s-node are those that are told as its own.
    let snodes: BTreeSet<SnodeId> = all.values().map(|(snode, _)| *snode).collect();
    for snode in snodes {
        let of = owners.pages_of(snode).unwrap();
        let nodes = all.iter().filter(|(_, (owner, _))| *owner == snode);
        let wanted: BTreeSet<u32> = nodes.flat_map(|(node, _)| told[node].iter().copied()).collect();
        let of: BTreeSet<u32> = of.into_iter().map(|(page, _)| page).collect();
        assert!(wanted.is_subset(&of), "{snode}");
    }
}

#[test]
fn what_a_deleted_s_node_leaves_is_told_until_it_is_overwritten() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let holds = store.edge_type("holds", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let tags = SnodeTags { flags: TagFlags::SECURE_DELETE, ..SnodeTags::default() };
    let snode = tx.create_snode_apart(&tags).unwrap();
    let root = tx.root(snode).unwrap();
    let node = tx.create_node(snode, FILE, &pattern(7, 50_000)).unwrap();
    tx.create_edge(root, holds, Info::Number(0), node).unwrap();
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    let blocks: Vec<u64> =
        store.owners().pages_of(snode).unwrap().into_iter().map(|(_, block)| block).collect();
    assert!(blocks.len() >= 13);
    let snapshot = store.snapshot();
    let mut tx = store.begin();
    tx.delete_edge(root, holds, Info::Number(0)).unwrap();
    tx.delete_snode(snode).unwrap();
    tx.commit().unwrap();
    let left = |store: &Store| {
        let owners = store.owners();
        blocks.iter().filter(|block| owners.block(**block) == Some(BlockUse::GivenUp(Some(snode)))).count()
    };
    assert_eq!(left(&store), blocks.len());
    assert!(store.owners().pages_of(snode).is_err());
    // A snapshot keeps them, but for those of which it has a copy in memory.
    store.checkpoint().unwrap();
    let kept = left(&store);
    assert!(kept >= 13, "{kept} of {}", blocks.len());
    assert!(medium.to_bytes().chunks(PAGE_BYTES).any(|page| has(page, 7)));
    drop(snapshot);
    assert_eq!(left(&store), kept);
    store.checkpoint().unwrap();
    assert_eq!(left(&store), 0);
    assert!(!medium.to_bytes().chunks(PAGE_BYTES).any(|page| has(page, 7)));
}
