//! Stores of many s-nodes: how much they take, and that the work of everything grows as their number does.
//! `WEFT_CAMPAIGN=1` makes three million; run it with `--release`.

// A campaign tells how long each step took.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use weft_tags::{
    Durability, Info, InfoForm, MemoryStore, NodeType, Options, PAGE_BYTES, PageStore, SnodeId, SnodeTags,
    Store,
};

const TEXT: NodeType = NodeType(3);
/// S-nodes made or deleted by one transaction.
const BATCH: usize = 100;
/// A quarter of what the edge tables of the smaller campaign take: what fits the cache says nothing of what grows beyond it.
const CACHE_BYTES: u64 = 2 << 20;

/// A medium that counts the blocks that are read and written.
struct Counting(Arc<MemoryStore>, Arc<AtomicU64>);

impl PageStore for Counting {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add((out.len() / PAGE_BYTES) as u64, Relaxed);
        self.0.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.1.fetch_add(parts.iter().map(|part| part.len() / PAGE_BYTES).sum::<usize>() as u64, Relaxed);
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

fn tags(number: usize) -> SnodeTags {
    SnodeTags { owner: number as u32, group: 7, mode: 0o4640, ..SnodeTags::default() }
}

/// What was done, with the blocks read and written for it.
type Work = Vec<(&'static str, u64)>;

/// Makes `count` s-nodes, the last of them with two nodes, does all that can be done with them, and deletes them.
fn live(count: usize) -> Work {
    let options = Options {
        cache_bytes: CACHE_BYTES,
        journal_bytes: 4 << 20,
        huge_pages: false,
        store_bytes_max: 64 << 30,
        ..Options::default()
    };
    let (medium, blocks) = (Arc::new(MemoryStore::new()), Arc::new(AtomicU64::new(0)));
    let counting = || Box::new(Counting(medium.clone(), blocks.clone()));
    let mut work = Work::new();
    let mut since = Instant::now();
    let mut done = |what: &'static str| {
        work.push((what, blocks.swap(0, Relaxed)));
        println!("{count} s-nodes: {what} {:.1?}, {} blocks", since.elapsed(), work[work.len() - 1].1);
        since = Instant::now();
    };
    let store = Store::create(counting(), &options).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let used = |store: &Store| store.report().medium_bytes - store.report().free_bytes;
    let before = used(&store);
    let mut made = Vec::with_capacity(count);
    while made.len() < count {
        let mut tx = store.begin();
        tx.durability(Durability::None);
        for _ in 0..BATCH.min(count - made.len()) {
            made.push(tx.create_snode(&tags(made.len())).unwrap());
        }
        tx.commit().unwrap();
    }
    store.close().unwrap();
    done("create");
    let store = Store::open(counting(), &options).unwrap();
    done("open");
    let each = (used(&store) - before) / count as u64;
    assert!(each < 1024, "{each} bytes for each of {count} s-nodes");
    println!("{count} s-nodes: {each} bytes each");
    assert_eq!(store.report().snodes, count as u64 + 1);
    done("stat");
    let mut listed = store.snodes().unwrap();
    done("list");
    assert_eq!(listed[0], SnodeId::FIRST);
    listed.remove(0);
    let (mut sorted, mut wanted) = (listed.clone(), made.clone());
    sorted.sort_unstable();
    wanted.sort_unstable();
    assert!(sorted == wanted, "{} s-nodes are listed, {} were made", sorted.len(), wanted.len());
    let report = store.check().unwrap();
    assert_eq!((report.problems, report.nodes, report.edges), (Vec::new(), count as u64 + 1, 0));
    done("check");
    let copy = Arc::new(MemoryStore::new());
    store.backup(&copy, |_, _| ()).unwrap();
    done("backup");
    drop(copy);
    let saved = Arc::new(MemoryStore::new());
    let report = weft_tags::salvage(&*counting(), Box::new(saved.clone()), &options, |_, _| ()).unwrap();
    assert!(report.complete, "{report:?}");
    done("salvage");
    let copy = Store::open(Box::new(saved), &options).unwrap();
    assert_eq!(copy.report().snodes, count as u64 + 1);
    drop(copy);
    use_some(&store, &made, etype);
    done("use");
    let listed = listed.split_off(count - count / 3);
    let gone: HashSet<_> = listed.iter().copied().collect();
    let mut left: Vec<_> = made.iter().copied().filter(|snode| !gone.contains(snode)).collect();
    let mut scattered = left.split_off(left.len() / 2);
    scattered.shuffle(&mut StdRng::seed_from_u64(1));
    for (what, part) in
        [("delete as listed", listed), ("delete as made", left), ("delete in no order", scattered)]
    {
        for batch in part.chunks(BATCH) {
            let mut tx = store.begin();
            tx.durability(Durability::None);
            batch.iter().for_each(|snode| tx.delete_snode(*snode).unwrap());
            tx.commit().unwrap();
        }
        store.checkpoint().unwrap();
        done(what);
    }
    assert_eq!(store.snodes().unwrap(), [SnodeId::FIRST]);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    // An id is not given out twice.
    let mut tx = store.begin();
    let new = tx.create_snode(&tags(0)).unwrap();
    tx.commit().unwrap();
    assert!(count < 20 || new.0 < 1 << 16 || !made.contains(&new));
    work
}

/// Some s-nodes get nodes, which are theirs alone, and lose them.
fn use_some(store: &Store, made: &[SnodeId], etype: weft_tags::EdgeType) {
    for (at, snode) in made.iter().enumerate().step_by(made.len().div_ceil(100)) {
        assert_eq!(store.snode_tags(*snode).unwrap(), tags(at));
        let mut tx = store.begin();
        let root = tx.root(*snode).unwrap();
        let node = tx.create_node(*snode, TEXT, b"of one s-node").unwrap();
        tx.create_edge(root, etype, Info::Number(0), node).unwrap();
        tx.commit().unwrap();
        assert_eq!(store.snode_of(node).unwrap(), *snode);
        assert_eq!(store.snode_of(root).unwrap(), *snode);
        assert!(store.begin().delete_snode(*snode).is_err());
        let mut tx = store.begin();
        tx.delete_edge(root, etype, Info::Number(0)).unwrap();
        tx.commit().unwrap();
    }
}

#[test]
fn s_nodes_take_less_than_a_kibibyte_each_and_work_that_grows_as_their_number_does() {
    let count = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 300_000 } else { 2_000 };
    let (few, many) = (live(count), live(10 * count));
    for ((what, few), (_, many)) in few.into_iter().zip(many) {
        // Some blocks are read and written whatever there is. The larger a home, the fewer of its s-nodes that are deleted together share a
        // page, down to one.
        let least = match what {
            "delete as made" => count / 50,
            "delete in no order" => count / 3,
            _ => 64,
        } as u64;
        assert!(many <= 20 * (few + least), "{what}: {few} blocks, and {many} for ten times as many s-nodes");
    }
}

#[test]
fn a_commit_in_a_shared_home_does_not_read_all_edges_of_the_nodes_that_it_changes() {
    let options = Options { cache_bytes: 1 << 20, huge_pages: false, ..Options::default() };
    let blocks = Arc::new(AtomicU64::new(0));
    let medium = Box::new(Counting(Arc::new(MemoryStore::new()), blocks.clone()));
    let store = Store::create(medium, &options).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let snode = (0..17).map(|_| tx.create_snode(&tags(0)).unwrap()).last().unwrap();
    let root = tx.root(snode).unwrap();
    let (source, to) = (tx.create_node(snode, TEXT, b"").unwrap(), tx.create_node(snode, TEXT, b"").unwrap());
    tx.create_edge(source, etype, Info::Number(0), root).unwrap();
    tx.create_edge(root, etype, Info::Number(0), to).unwrap();
    tx.commit().unwrap();
    let lead = |numbers: std::ops::Range<u64>| {
        let mut tx = store.begin();
        tx.durability(Durability::None);
        numbers.for_each(|number| tx.create_edge(source, etype, Info::Number(number), to).unwrap());
        tx.commit().unwrap();
    };
    (1..500).for_each(|batch| lead(batch * 100..batch * 100 + 100));
    store.checkpoint().unwrap();
    blocks.store(0, Relaxed);
    (0..20).for_each(|number| lead(50_000 + number..50_001 + number));
    // The table of the edges has some 250 pages.
    assert!(blocks.load(Relaxed) <= 20 * 8, "{} blocks for 20 commits", blocks.load(Relaxed));
}
