//! Writes that a commit has begun and not waited for: on a medium that does nothing before it is waited for.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use weft_tags::{
    Durability, Error, Info, InfoForm, Kv, KvChange, MemoryStore, NodeType, Options, PAGE_BYTES, PageStore,
    PendingWrite, SnodeId, SnodeTags, Store,
};

#[derive(Default)]
struct Lazy {
    blocks: MemoryStore,
    under_way: AtomicUsize,
    most: AtomicUsize,
    begun: AtomicUsize,
    fails: AtomicBool,
}

/// A write that is done when it is waited for or dropped.
struct Later {
    medium: Arc<Lazy>,
    block: u64,
    tag: weft_core::Tag,
    pages: Vec<*const [u8; PAGE_BYTES]>,
    /// What the pages held when it began.
    wanted: Vec<Vec<u8>>,
    done: bool,
}

// SAFETY: by the promise of `begin_write` the pages can be read, from any thread, until this is dropped.
unsafe impl Send for Later {}

impl Later {
    fn arrive(&mut self) -> io::Result<()> {
        self.done = true;
        self.medium.under_way.fetch_sub(1, SeqCst);
        if self.medium.fails.load(SeqCst) {
            return Err(io::Error::other("the medium is broken"));
        }
        // SAFETY: as above.
        let now: Vec<&[u8]> = self.pages.iter().map(|page| unsafe { &**page }.as_slice()).collect();
        assert!(now == self.wanted, "a page was changed while it was being written");
        self.medium.blocks.write(
            self.block,
            &self.tag,
            &now.into_iter().map(IoSlice::new).collect::<Vec<_>>(),
        )
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        if !self.done {
            self.arrive().unwrap();
        }
    }
}

struct Medium(Arc<Lazy>);

impl PageStore for Medium {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.blocks.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        if block < 2 {
            assert_eq!(self.0.under_way.load(SeqCst), 0, "a checkpoint does not speak of what is under way");
        }
        self.0.blocks.write(block, tag, parts)
    }

    unsafe fn begin_write(
        &self,
        block: u64,
        tag: &weft_core::Tag,
        pages: &[*const [u8; PAGE_BYTES]],
    ) -> io::Result<PendingWrite> {
        // SAFETY: the caller's promise.
        let wanted = pages.iter().map(|page| unsafe { &**page }.to_vec()).collect();
        let most = self.0.under_way.fetch_add(1, SeqCst) + 1;
        self.0.most.fetch_max(most, SeqCst);
        self.0.begun.fetch_add(1, SeqCst);
        let (medium, pages) = (self.0.clone(), pages.to_vec());
        let mut later = Later { medium, block, tag: *tag, pages, wanted, done: false };
        Ok(PendingWrite::until(move || later.arrive()))
    }

    fn sync(&self) -> io::Result<()> {
        assert_eq!(self.0.under_way.load(SeqCst), 0, "a sync makes durable what has arrived");
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.0.blocks.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.0.blocks.grow(blocks)
    }
}

fn options() -> Options {
    Options { cache_bytes: 8 << 20, journal_bytes: 4 << 20, store_bytes_max: 64 << 20, ..Options::default() }
}

fn create() -> (Arc<Lazy>, Store) {
    let medium = Arc::new(Lazy::default());
    let store = Store::create(Box::new(Medium(medium.clone())), &options()).unwrap();
    (medium, store)
}

#[test]
fn pages_under_way_stay_as_they_are_and_syncs_and_checkpoints_wait_for_them() {
    let (medium, store) = create();
    let mut tx = store.begin();
    let snodes = [(); 40].map(|()| tx.create_snode(&SnodeTags::default()).unwrap());
    tx.commit().unwrap();
    let mut rng = StdRng::seed_from_u64(5);
    let mut wanted: Vec<BTreeMap<u16, Vec<u8>>> = vec![BTreeMap::new(); snodes.len()];
    for turn in 0..1_500u32 {
        // One of them often, so that its commits follow each other while pages are under way.
        let at = if rng.random_bool(0.4) { 0 } else { rng.random_range(0..snodes.len()) };
        let mut kv = Kv::open(&store, snodes[at], "pairs").unwrap();
        kv.durability(if turn % 200 == 199 { Durability::Sync } else { Durability::None });
        let only_new = rng.random_bool(0.4);
        let mut pairs: Vec<(u16, Option<Vec<u8>>)> = (0..rng.random_range(40..120))
            .map(|_| {
                let is_put = only_new || rng.random_bool(0.5);
                let value = is_put.then(|| vec![turn as u8; rng.random_range(1..400)]);
                (rng.random_range(0..900), value)
            })
            .collect();
        pairs.retain(|(key, _)| !only_new || !wanted[at].contains_key(key));
        let keys: Vec<[u8; 2]> = pairs.iter().map(|(key, _)| key.to_le_bytes()).collect();
        let changes: Vec<_> = pairs
            .iter()
            .zip(&keys)
            .map(|((_, value), key)| match value {
                Some(value) => KvChange::Put(key, value),
                None => KvChange::Delete(key),
            })
            .collect();
        if rng.random_bool(0.1) {
            let mut tx = store.begin();
            kv.change_in(&mut tx, &changes).unwrap();
            tx.abort();
        } else {
            kv.change(&changes).unwrap();
            for (key, value) in pairs {
                match value {
                    Some(value) => wanted[at].insert(key, value),
                    None => wanted[at].remove(&key),
                };
            }
        }
        if turn % 400 == 399 {
            store.checkpoint().unwrap();
        }
    }
    let most = medium.most.load(SeqCst);
    // Eight that are left, four that were gathered apart and begin with a commit's own, and one of the journal.
    assert!((2..=14).contains(&most), "{most} at once: writes are not waited for, and they are not many");
    let holds = |store: &Store| {
        for (snode, wanted) in snodes.iter().zip(&wanted) {
            let kv = Kv::open(store, *snode, "pairs").unwrap();
            assert_eq!(kv.count().unwrap(), wanted.len() as u64);
            for (key, value) in wanted {
                assert_eq!(kv.get(&key.to_le_bytes()).unwrap().as_ref(), Some(value));
            }
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    };
    holds(&store);
    store.sync().unwrap();
    let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
    holds(&Store::open(Box::new(image), &options()).unwrap());
    // What is under way, or is to be written, when the store goes is read from its frames. The cache is not half full of changes
    // before, so that no commit takes a checkpoint, which would wait for it.
    store.checkpoint().unwrap();
    let keys: Vec<[u8; 3]> = (0..200u8).map(|n| [n, 0, 0]).collect();
    for snode in &snodes[..2] {
        let mut kv = Kv::open(&store, *snode, "pairs").unwrap();
        kv.durability(Durability::None);
        kv.change(&keys.iter().map(|key| KvChange::Put(key, &[7; 4000])).collect::<Vec<_>>()).unwrap();
    }
    assert!(medium.under_way.load(SeqCst) > 0);
    drop(store);
    assert_eq!(medium.under_way.load(SeqCst), 0);
}

#[test]
fn pages_that_have_arrived_differ_from_the_medium_no_more_some_commits_later() {
    let (_, store) = create();
    let mut kv = Kv::open(&store, weft_tags::SnodeId::FIRST, "pairs").unwrap();
    kv.durability(Durability::None);
    for turn in 0..60u8 {
        let keys: Vec<[u8; 2]> = (0..200u8).map(|n| [turn, n]).collect();
        kv.change(&keys.iter().map(|key| KvChange::Put(key, &[7; 300])).collect::<Vec<_>>()).unwrap();
    }
    let report = store.report();
    // Pages of edges are written by checkpoints alone.
    let dirty = report.dirty_pages - report.table_pages;
    assert!(report.data_pages > 900 && dirty < 205, "{dirty} of {report:?}");
}

#[test]
fn a_commit_waits_for_writes_of_the_pages_that_it_changes_and_for_no_others() {
    // Room for two large writes under way.
    let medium = Arc::new(Lazy::default());
    let options = Options { cache_bytes: 32 << 20, ..options() };
    let store = Store::create(Box::new(Medium(medium.clone())), &options).unwrap();
    let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.put(b"apart", b"1").unwrap();
    kv.durability(Durability::None);
    let keys: Vec<[u8; 2]> = (0..400u16).map(u16::to_le_bytes).collect();
    for keys in keys.chunks(200) {
        kv.change(&keys.iter().map(|key| KvChange::Put(key, &[7; 4000])).collect::<Vec<_>>()).unwrap();
    }
    let under_way = || medium.under_way.load(SeqCst);
    assert_eq!(under_way(), 2);
    kv.put(b"apart", b"2").unwrap();
    kv.put(b"new", b"1").unwrap();
    assert_eq!(under_way(), 2, "neither page is under way");
    kv.put(&keys[0], &[8; 4000]).unwrap();
    assert_eq!(under_way(), 1, "it changes a page of the first write");
    kv.delete(&keys[399]).unwrap();
    assert_eq!(under_way(), 0, "it takes a page of the second");
    store.sync().unwrap();
    let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
    let store = Store::open(Box::new(image), &options).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    assert_eq!((kv.count().unwrap(), kv.get(&keys[0]).unwrap().unwrap()), (401, vec![8; 4000]));
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn pages_of_nodes_that_are_large_are_read_changed_and_made_durable_while_they_are_under_way() {
    const KIND: NodeType = NodeType(3);
    let (medium, store) = create();
    let (root, of) = (store.root(SnodeId::FIRST).unwrap(), store.edge_type("of", InfoForm::Number).unwrap());
    let mut rng = StdRng::seed_from_u64(9);
    let mut wanted: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let holds = |store: &Store, number: u64, wanted: &[u8]| {
        let node = store.edge(root, of, Info::Number(number)).unwrap().unwrap();
        assert_eq!(store.read_node(node, KIND).unwrap(), wanted, "node {number}");
    };
    for turn in 0..600u32 {
        let number = rng.random_range(0..12);
        let mut tx = store.begin();
        tx.durability(if turn % 50 == 49 { Durability::Sync } else { Durability::None });
        let node = tx.edge(root, of, Info::Number(number)).unwrap();
        let bytes = vec![turn as u8; rng.random_range(1..30_000)];
        let mut data = wanted.get(&number).cloned().unwrap_or_default();
        match node {
            Some(node) if rng.random_bool(0.6) => {
                let at = rng.random_range(0..=data.len());
                data.resize(data.len().max(at + bytes.len()), 0);
                data[at..at + bytes.len()].copy_from_slice(&bytes);
                tx.write_at(node, KIND, at as u64, &bytes).unwrap();
                assert_eq!(tx.read_node(node, KIND).unwrap(), data);
            }
            _ => {
                data = [&[7; 9000], &bytes[..]].concat();
                let node = tx.create_node(SnodeId::FIRST, KIND, &data).unwrap();
                tx.set_edge(root, of, Info::Number(number), node).unwrap();
                assert_eq!(tx.read_node(node, KIND).unwrap(), data);
            }
        }
        if rng.random_bool(0.1) {
            tx.abort();
        } else {
            tx.commit().unwrap();
            wanted.insert(number, data);
        }
        let (number, data) = wanted.iter().nth(rng.random_range(0..wanted.len())).unwrap();
        holds(&store, *number, data);
        if turn % 150 == 149 {
            store.checkpoint().unwrap();
        }
    }
    // They go by writes that nobody has waited for: each sync and each checkpoint begins one, and others are begun when they are large.
    let begun = medium.begun.load(SeqCst);
    assert!((20..200).contains(&begun), "{begun} writes were begun");
    store.sync().unwrap();
    let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
    let again = Store::open(Box::new(image), &options()).unwrap();
    wanted.iter().for_each(|(number, data)| holds(&again, *number, data));
    assert_eq!(again.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn who_reads_or_writes_a_page_of_a_large_node_again_does_not_wait_for_its_write() {
    const KIND: NodeType = NodeType(3);
    let (medium, store) = create();
    let (root, of) = (store.root(SnodeId::FIRST).unwrap(), store.edge_type("of", InfoForm::Number).unwrap());
    let mut data = vec![0; 300 * PAGE_BYTES];
    let mut tx = store.begin();
    let node = tx.create_node(SnodeId::FIRST, KIND, &data).unwrap();
    tx.create_edge(root, of, Info::Number(0), node).unwrap();
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    let change = |turn: u8, data: &mut Vec<u8>| {
        let at = usize::from(turn % 7) * PAGE_BYTES + 100;
        data[at..at + 2000].fill(turn);
        let mut tx = store.begin();
        tx.durability(Durability::None);
        tx.write_at(node, KIND, at as u64, &[turn; 2000]).unwrap();
        tx.commit().unwrap();
    };
    let made = medium.begun.load(SeqCst);
    (1..40).for_each(|turn| change(turn, &mut data));
    let (before, snapshot) = (data.clone(), store.snapshot());
    for turn in 40..90 {
        change(turn, &mut data);
        assert_eq!(store.read_node(node, KIND).unwrap(), data, "turn {turn}");
        assert_eq!(snapshot.read_node(node, KIND).unwrap(), before, "turn {turn}");
    }
    assert_eq!(medium.begun.load(SeqCst), made, "what is gathered is not even begun");
    // More than are gathered: some are begun, and read while they are under way.
    for turn in 90..170 {
        change(turn, &mut data);
        assert_eq!(store.read_node(node, KIND).unwrap(), data, "turn {turn}");
    }
    assert_eq!(snapshot.read_node(node, KIND).unwrap(), before);
    let begun = medium.begun.load(SeqCst) - made;
    assert!(begun > 0 && medium.under_way.load(SeqCst) == begun, "{begun} begun, and none was waited for");
    drop(snapshot);
    store.sync().unwrap();
    let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
    let again = Store::open(Box::new(image), &options()).unwrap();
    assert_eq!(again.read_node(node, KIND).unwrap(), data);
    assert_eq!(again.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_write_that_fails_after_its_commit_has_returned_stops_the_store_and_nothing_after_it_counts() {
    for finds in ["sync", "commit", "checkpoint"] {
        let (medium, store) = create();
        let snode = weft_tags::SnodeId::FIRST;
        let mut kv = Kv::open(&store, snode, "pairs").unwrap();
        kv.put(b"before", b"1").unwrap();
        kv.durability(Durability::None);
        let keys: Vec<[u8; 2]> = (0..500u16).map(u16::to_le_bytes).collect();
        medium.fails.store(true, SeqCst);
        kv.change(&keys.iter().map(|key| KvChange::Put(key, &[7; 300])).collect::<Vec<_>>()).unwrap();
        let found = match finds {
            "sync" => store.sync(),
            "commit" => kv.put(&keys[0], b"2"),
            _ => store.checkpoint(),
        };
        assert!(matches!(found, Err(Error::Io { .. })), "{finds}: {found:?}");
        assert!(matches!(kv.put(b"after", b"1"), Err(Error::Stopped { .. } | Error::Io { .. })), "{finds}");
        assert!(matches!(store.sync(), Err(Error::Stopped { .. })), "{finds}");
        drop(store);
        let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
        let again = Store::open(Box::new(image), &options()).unwrap();
        let kv = Kv::open(&again, snode, "pairs").unwrap();
        assert_eq!((kv.count().unwrap(), kv.get(b"before").unwrap().is_some()), (1, true), "{finds}");
        assert_eq!(again.check().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn pages_that_a_checkpoint_wrote_before_their_commit_did_stay_too_while_they_are_under_way() {
    let options = Options { cache_bytes: 1 << 20, ..options() };
    let medium = Arc::new(Lazy::default());
    let store = Store::create(Box::new(Medium(medium.clone())), &options).unwrap();
    let edge = store.edge_type("of", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let other = tx.create_snode(&SnodeTags::default()).unwrap();
    tx.commit().unwrap();
    let make = |tx: &mut weft_tags::Transaction<'_>, snode: SnodeId, number: u64| {
        let node = tx.create_node(snode, NodeType(1), &[number as u8; 4000]).unwrap();
        tx.create_edge(store.root(snode).unwrap(), edge, Info::Number(number), node).unwrap();
        node
    };
    let mut others = Vec::new();
    for first in (0..1_000).step_by(100) {
        let mut tx = store.begin();
        others.extend((first..first + 100).map(|number| make(&mut tx, other, number)));
        tx.commit().unwrap();
    }
    let mut tx = store.begin();
    tx.durability(Durability::None);
    let nodes: Vec<_> = (0..20).map(|number| make(&mut tx, SnodeId::FIRST, number)).collect();
    store.checkpoint().unwrap();
    tx.commit().unwrap();
    for (number, node) in others.iter().enumerate() {
        assert_eq!(store.read_node(*node, NodeType(1)).unwrap(), [number as u8; 4000]);
    }
    for (number, node) in nodes.iter().enumerate() {
        assert_eq!(store.read_node(*node, NodeType(1)).unwrap(), [number as u8; 4000]);
    }
    store.sync().unwrap();
    let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
    let store = Store::open(Box::new(image), &options).unwrap();
    for (number, node) in nodes.iter().enumerate() {
        assert_eq!(store.read_node(*node, NodeType(1)).unwrap(), [number as u8; 4000]);
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_store_whose_writes_have_failed_waits_for_all_of_them_before_its_frames_go() {
    // Room for two large writes under way.
    let medium = Arc::new(Lazy::default());
    let options = Options { cache_bytes: 32 << 20, ..options() };
    let store = Store::create(Box::new(Medium(medium.clone())), &options).unwrap();
    let mut tx = store.begin();
    let snodes = [(); 4].map(|()| tx.create_snode(&SnodeTags::default()).unwrap());
    tx.commit().unwrap();
    let kvs = snodes.map(|snode| Kv::open(&store, snode, "pairs").unwrap());
    medium.fails.store(true, SeqCst);
    for mut kv in kvs {
        kv.durability(Durability::None);
        let keys: Vec<[u8; 2]> = (0..200u16).map(u16::to_le_bytes).collect();
        kv.change(&keys.iter().map(|key| KvChange::Put(key, &[7; 4000])).collect::<Vec<_>>()).unwrap();
    }
    assert!(medium.under_way.load(SeqCst) > 1);
    // One that is waited for only when it is dropped, behind the frames, panics.
    drop(store);
    assert_eq!(medium.under_way.load(SeqCst), 0);
}

#[test]
fn writes_of_commits_that_nobody_waits_for_go_together() {
    let (medium, store) = create();
    let put = |durability, turn: u8| {
        let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        kv.durability(durability);
        let keys: Vec<[u8; 2]> = (0..200u8).map(|n| [turn, n]).collect();
        kv.change(&keys.iter().map(|key| KvChange::Put(key, &[7; 300])).collect::<Vec<_>>()).unwrap();
    };
    put(Durability::Sync, 0);
    let begun = medium.begun.load(SeqCst);
    (1..=40).for_each(|turn| put(Durability::None, turn));
    let data = 40 * 200 / 11;
    let writes = medium.begun.load(SeqCst) - begun;
    assert!((data / 300..=data / 60).contains(&writes), "{writes} writes of {data} pages and a journal");
    // What is left goes when somebody waits.
    store.sync().unwrap();
    let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
    let store = Store::open(Box::new(image), &options()).unwrap();
    assert_eq!(Kv::open(&store, SnodeId::FIRST, "pairs").unwrap().count().unwrap(), 41 * 200);
}

#[test]
fn few_pages_that_a_commit_fills_before_a_sync_go_to_the_journal_and_many_to_their_place() {
    let (medium, store) = create();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let page = |n: u64| vec![n as u8; PAGE_BYTES - 8];
    let fill = |numbers: std::ops::Range<u64>| {
        let begun = medium.begun.load(SeqCst);
        let pages: Vec<_> = numbers.clone().map(page).collect();
        let mut tx = store.begin();
        tx.durability(Durability::None).for_sync();
        let data: Vec<&[u8]> = pages.iter().map(Vec::as_slice).collect();
        let nodes = tx.create_nodes(SnodeId::FIRST, NodeType(3), &data).unwrap();
        for (n, node) in numbers.zip(nodes) {
            tx.create_edge(root, etype, Info::Number(n), node).unwrap();
        }
        tx.commit().unwrap();
        store.sync().unwrap();
        medium.begun.load(SeqCst) - begun
    };
    assert_eq!(fill(0..8), 0);
    assert!(fill(8..80) > 0);
    let found = |store: &Store| {
        (0..80).all(|n| {
            let node = store.edge(root, etype, Info::Number(n)).unwrap().unwrap();
            store.read_node(node, NodeType(3)).unwrap() == page(n)
        })
    };
    // What the power leaves, and what a checkpoint does.
    let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
    assert!(found(&Store::open(Box::new(image), &options()).unwrap()));
    store.checkpoint().unwrap();
    let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
    assert!(found(&Store::open(Box::new(image), &options()).unwrap()));
}
