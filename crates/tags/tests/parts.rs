//! Parts of nodes: what they cost, by pages counted, and nodes that are larger than the cache.

#![allow(clippy::unwrap_used)]

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_tags::{
    Durability, Error, Info, InfoForm, Kv, MemoryStore, NODE_BYTES_MAX, NodeId, NodeType, Options,
    PAGE_BYTES, PageStore, SnodeId, SnodeTags, Store, TagFlags,
};

const PLAIN: NodeType = NodeType(5);
const KEYED: NodeType = NodeType(5 | NodeType::KEYED);

fn options(cache_bytes: u64) -> Options {
    Options { cache_bytes, journal_bytes: 16 << 20, ..Options::default() }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

fn with_node(store: &Store, kind: NodeType, data: &[u8]) -> NodeId {
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut tx = store.begin();
    let node = tx.create_node(SnodeId::FIRST, kind, data).unwrap();
    let number = store.edges(root).unwrap().len() as u64;
    tx.create_edge(root, etype, Info::Number(number), node).unwrap();
    tx.commit().unwrap();
    node
}

fn check(store: &Store) {
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// A medium that counts the pages that are read and written.
#[derive(Default)]
struct Counting {
    medium: MemoryStore,
    read: AtomicU64,
    written: AtomicU64,
}

impl Counting {
    /// Pages that `work` reads and writes.
    fn count<T>(&self, work: impl FnOnce() -> T) -> (T, u64, u64) {
        let before = (self.read.load(Relaxed), self.written.load(Relaxed));
        let done = work();
        (done, self.read.load(Relaxed) - before.0, self.written.load(Relaxed) - before.1)
    }
}

impl PageStore for Counting {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add((out.len() / PAGE_BYTES) as u64, Relaxed);
        self.medium.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.written.fetch_add(bytes.div_ceil(PAGE_BYTES) as u64, Relaxed);
        self.medium.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.medium.sync()
    }

    fn blocks(&self) -> u64 {
        self.medium.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.medium.grow(blocks)
    }
}

#[test]
fn a_part_of_a_large_node_costs_what_the_part_does() {
    let medium = Arc::new(Counting::default());
    let wanted = pattern(32 << 20);
    let store = Store::create(Box::new(medium.clone()), &options(16 << 20)).unwrap();
    let node = with_node(&store, PLAIN, &wanted);
    store.close().unwrap();
    let store = Store::open(Box::new(medium.clone()), &options(16 << 20)).unwrap();
    let mut out = vec![0; 4096];
    for at in [0, 4 << 20, (32 << 20) - 4096] {
        let (len, read, _) = medium.count(|| store.read_at(node, PLAIN, at as u64, &mut out).unwrap());
        assert!(len == 4096 && out == wanted[at..at + 4096]);
        assert!(read <= 3, "{read} pages");
        let mut tx = store.begin();
        let at = at + (1 << 18).min((32 << 20) - 4096 - at);
        let (len, read, _) = medium.count(|| tx.read_at(node, PLAIN, at as u64, &mut out).unwrap());
        assert!(len == 4096 && out == wanted[at..at + 4096] && read <= 3, "{read} pages");
    }
    let (_, read, written) = medium.count(|| {
        let mut tx = store.begin();
        tx.write_at(node, PLAIN, (9 << 20) + 5, &[7; 4096]).unwrap();
        tx.commit().unwrap();
        store.checkpoint().unwrap();
    });
    // Two pages, the record, and what a checkpoint writes of any change.
    assert!(read <= 3 && written <= 20, "{read} pages read, {written} written");
}

#[test]
fn what_is_appended_in_pieces_costs_what_it_costs_at_once() {
    for (piece, in_one) in [(700, true), (700, false), (4096, true), (4096, false), (100_000, true)] {
        let pages = |pieces: u64| {
            let medium = Arc::new(Counting::default());
            let store = Store::create(Box::new(medium.clone()), &options(2 << 20)).unwrap();
            let node = with_node(&store, PLAIN, b"");
            let bytes = pattern(piece * pieces as usize);
            let (_, read, written) = medium.count(|| {
                for group in bytes.chunks(if in_one { bytes.len() } else { piece }) {
                    let mut tx = store.begin();
                    tx.durability(Durability::None);
                    for bytes in group.chunks(piece) {
                        tx.append(node, PLAIN, bytes).unwrap();
                    }
                    tx.commit().unwrap();
                }
                store.sync().unwrap();
            });
            assert!(store.read_node(node, PLAIN).unwrap() == bytes);
            check(&store);
            let bytes = bytes.len() as u64 / PAGE_BYTES as u64;
            (read + written, bytes)
        };
        let ((few, few_bytes), (many, many_bytes)) = (pages(30), pages(300));
        let new = many_bytes - few_bytes;
        assert!(many <= 15 * few + 100, "{piece} bytes: {few} pages for 30 pieces, {many} for 300");
        // Each commit of a piece writes the first page, the last ones and its record.
        let most = if in_one { 5 * new } else { 5 * new + 8 * 300 };
        assert!(many <= most + 100, "{piece} bytes: {many} pages for {many_bytes} of data");
    }
}

#[test]
fn nodes_larger_than_the_cache_are_read_and_written() {
    let wanted = pattern(9 << 20);
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options(1 << 20)).unwrap();
    let node = with_node(&store, PLAIN, &wanted);
    let kv = Kv::open(&store, SnodeId::FIRST, "kv").unwrap();
    kv.put(b"before", b"1").unwrap();
    kv.put(b"large", &wanted).unwrap();
    kv.put(b"behind", b"2").unwrap();
    let see = |store: &Store| {
        assert!(store.read_node(node, PLAIN).unwrap() == wanted);
        assert!(store.begin().read_node(node, PLAIN).unwrap() == wanted);
        assert!(store.snapshot().read_node(node, PLAIN).unwrap() == wanted);
        let kv = Kv::open(store, SnodeId::FIRST, "kv").unwrap();
        let mut seen = Vec::new();
        kv.get_many(&[&b"before"[..], b"large", b"none", b"behind"], |_, value| {
            seen.push(value.map(<[u8]>::to_vec));
        })
        .unwrap();
        assert!(seen == [Some(b"1".to_vec()), Some(wanted.clone()), None, Some(b"2".to_vec())]);
        assert_eq!(kv.scan().unwrap().map(|pair| pair.unwrap().1.len()).sum::<usize>(), wanted.len() + 2);
        check(store);
    };
    see(&store);
    drop(store);
    see(&Store::open(Box::new(medium), &options(1 << 20)).unwrap());
}

#[test]
fn a_snapshot_keeps_the_parts_that_it_began_with() {
    let store = Store::create(Box::new(MemoryStore::new()), &options(8 << 20)).unwrap();
    let wanted = pattern(300_000);
    let node = with_node(&store, PLAIN, &wanted);
    let snapshot = store.snapshot();
    for turn in 0..4u64 {
        let mut tx = store.begin();
        tx.write_at(node, PLAIN, turn * 70_000, &[turn as u8; 5_000]).unwrap();
        tx.append(node, PLAIN, &pattern(200_000)).unwrap();
        if turn == 3 {
            tx.resize_node(node, PLAIN, 9_000).unwrap();
        }
        tx.commit().unwrap();
        store.checkpoint().unwrap();
        assert!(snapshot.read_node(node, PLAIN).unwrap() == wanted);
    }
    assert_eq!(store.node_len(node, PLAIN).unwrap(), 9_000);
    drop(snapshot);
    assert_eq!(store.report().snapshot_bytes, 0);
    check(&store);
}

#[test]
fn pages_that_a_node_loses_are_free_and_those_it_is_promised_take_none() {
    let store = Store::create(Box::new(MemoryStore::new()), &options(8 << 20)).unwrap();
    let used = || {
        store.checkpoint().unwrap();
        store.checkpoint().unwrap();
        store.report().medium_bytes - store.report().free_bytes
    };
    let node = with_node(&store, PLAIN, b"");
    let before = used();
    for len in [3 << 20, 12 << 20] {
        let mut tx = store.begin();
        while tx.node_len(node, PLAIN).unwrap() < len {
            tx.append(node, PLAIN, &[3; 50_000]).unwrap();
        }
        tx.commit().unwrap();
        let taken = used() - before;
        assert!(taken < len + len / 16 + 200_000, "{taken} bytes for {len}");
        let mut tx = store.begin();
        tx.resize_node(node, PLAIN, 10_000).unwrap();
        tx.commit().unwrap();
        assert!(used() - before < 100_000, "{} bytes", used() - before);
    }
    check(&store);
}

#[test]
fn what_is_given_up_of_parts_is_erased_and_aborts_leave_nothing() {
    let medium = Arc::new(MemoryStore::new());
    let store = Store::create(Box::new(medium.clone()), &options(4 << 20)).unwrap();
    let etype = store.edge_type("n", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let tags = SnodeTags { flags: TagFlags::SECURE_DELETE, ..SnodeTags::default() };
    let snode = tx.create_snode(&tags).unwrap();
    let root = tx.root(snode).unwrap();
    let node = tx.create_node(snode, PLAIN, &[0; 100]).unwrap();
    tx.create_edge(root, etype, Info::Number(0), node).unwrap();
    tx.commit().unwrap();
    let secret = b"this must not stay anywhere".repeat(1_000);
    let mut tx = store.begin();
    // More than is kept in memory.
    (0..60).for_each(|_| assert!(tx.append(node, PLAIN, &secret).unwrap() >= 100));
    tx.abort();
    let mut tx = store.begin();
    tx.append(node, PLAIN, &secret).unwrap();
    tx.commit().unwrap();
    let mut tx = store.begin();
    tx.write_at(node, PLAIN, 100, &vec![1; secret.len() - 5_000]).unwrap();
    tx.resize_node(node, PLAIN, 100 + secret.len() - 5_000).unwrap();
    tx.commit().unwrap();
    store.close().unwrap();
    let image = medium.to_bytes();
    assert!(!image.windows(27).any(|bytes| bytes == b"this must not stay anywhere"));
    check(&Store::open(Box::new(medium), &options(4 << 20)).unwrap());
}

#[test]
fn limits_of_parts_are_said_and_a_write_that_failed_half_way_is_not_committed() {
    let medium = MemoryStore::new();
    let limit = Options { store_bytes_max: 24 << 20, ..options(2 << 20) };
    let store = Store::create(Box::new(medium), &limit).unwrap();
    let node = with_node(&store, PLAIN, b"short");
    let keyed = with_node(&store, KEYED, b"\x03\0keyvalue");
    let mut tx = store.begin();
    for at in [NODE_BYTES_MAX as u64, u64::MAX] {
        let refused = tx.write_at(node, PLAIN, at, b"x");
        assert!(matches!(refused, Err(Error::TooLarge { what: "a node", .. })), "{refused:?}");
    }
    assert!(matches!(tx.write_at(keyed, KEYED, 4, b"x"), Err(Error::KeyNotInNode(_))));
    assert!(matches!(tx.resize_node(keyed, KEYED, 4), Err(Error::KeyNotInNode(_))));
    tx.write_at(keyed, KEYED, 5, b"other").unwrap();
    assert!(matches!(tx.append(node, KEYED, b"x"), Err(Error::WrongType { .. })));
    let savepoint = tx.savepoint();
    let refused = loop {
        if let Err(error) = tx.append(node, PLAIN, &[1; 600_000]) {
            break error;
        }
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    tx.undo_to(savepoint).unwrap();
    tx.commit().unwrap();
    assert_eq!(store.read_node(keyed, KEYED).unwrap(), b"\x03\0keyother");
    assert_eq!(store.read_node(node, PLAIN).unwrap(), b"short");
    let mut tx = store.begin();
    let mut whole = 0;
    while tx.append(node, PLAIN, &[1; 600_000]).is_ok() {
        whole += 1;
    }
    let committed = match tx.commit() {
        Ok(_) => whole,
        Err(error) => {
            assert!(matches!(error, Error::Torn | Error::Full { .. }), "{error}");
            0
        }
    };
    assert_eq!(store.node_len(node, PLAIN).unwrap(), 5 + committed * 600_000);
    check(&store);
}

/// The longest value of a key of three bytes.
const BYTES_MAX: u64 = NODE_BYTES_MAX as u64 - 5;

#[test]
fn data_that_room_is_kept_for_is_written_once_and_refused_before_it_is_written() {
    let medium = Arc::new(Counting::default());
    let limit = Options { store_bytes_max: 96 << 20, ..options(4 << 20) };
    let store = Store::create(Box::new(medium.clone()), &limit).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.put(b"key", b"before").unwrap();
    let value = pattern(24 << 20);
    let refused = |bytes: u64| {
        let mut tx = store.begin();
        let ((), _, written) = medium.count(|| {
            let refused = kv.reserve_in(&mut tx, b"key", bytes).unwrap_err();
            let is_so = match bytes > BYTES_MAX {
                true => matches!(refused, Error::TooLarge { what: "a node", .. }),
                false => matches!(refused, Error::Full { .. }),
            };
            assert!(is_so, "{bytes} bytes: {refused}");
        });
        assert!(written < 64, "{written} pages");
        tx.commit().unwrap();
        assert_eq!(kv.get(b"key").unwrap().as_deref(), Some(&b"before"[..]));
    };
    for bytes in [u64::MAX, 3 << 30, BYTES_MAX + 1, BYTES_MAX, 96 << 20, 80 << 20] {
        refused(bytes);
    }
    let mut tx = store.begin();
    let (room, _, written) = medium.count(|| {
        kv.reserve_in(&mut tx, b"other", value.len() as u64).unwrap();
        for piece in value.chunks(100_000) {
            kv.append_in(&mut tx, b"other", piece).unwrap();
        }
        tx.commit().unwrap();
        store.report().free_bytes
    });
    let pages = (value.len() / PAGE_BYTES) as u64;
    assert!(written < pages + pages / 8, "{written} pages for {pages}");
    assert!(kv.get(b"other").unwrap().as_deref() == Some(&value[..]));
    check(&store);
    // A room that is not filled is nothing but numbers of pages.
    let mut tx = store.begin();
    kv.reserve_in(&mut tx, b"third", 20 << 20).unwrap();
    kv.append_in(&mut tx, b"third", b"short").unwrap();
    tx.commit().unwrap();
    assert!(store.report().free_bytes + (1 << 20) > room);
    assert_eq!(kv.get(b"third").unwrap().as_deref(), Some(&b"short"[..]));
    check(&store);
    // What comes in one piece is refused as well.
    let mut tx = store.begin();
    let refused = tx.create_node(SnodeId::FIRST, PLAIN, &vec![0; NODE_BYTES_MAX + 1]);
    assert!(matches!(refused, Err(Error::TooLarge { what: "a node", .. })), "{refused:?}");
}
