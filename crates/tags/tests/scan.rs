//! Scans of a key-value store, at every size and while others commit.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_tags::{Kv, KvChange, MemoryStore, Options, PageStore, Result, SnodeId, Store};

fn pairs(kv: &Kv<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pairs = kv.scan().unwrap().collect::<Result<Vec<_>>>().unwrap();
    let map: BTreeMap<_, _> = pairs.iter().cloned().collect();
    assert_eq!(map.len(), pairs.len(), "each pair comes once");
    map
}

#[test]
fn a_scan_tells_of_every_pair_once_whatever_their_number_and_size() {
    let options = Options { cache_bytes: 4 << 20, ..Options::default() };
    let store = Store::create(Box::new(MemoryStore::new()), &options).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let mut wanted = BTreeMap::new();
    for number in 0..20_000u32 {
        if [0, 1, 10, 100, 1000, 5000].contains(&number) {
            assert_eq!(pairs(&kv), wanted);
        }
        let len = if number % 1000 == 999 { 9000 } else { number as usize % 50 };
        let (key, value) = (number.to_string().into_bytes(), vec![number as u8; len]);
        kv.put(&key, &value).unwrap();
        wanted.insert(key, value);
    }
    assert_eq!(pairs(&kv), wanted);
    assert_eq!(kv.scan().unwrap().take(3).count(), 3);
}

#[test]
fn a_scan_sees_one_commit_and_changes_go_on_beside_it() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    for number in 0..1000u32 {
        kv.put(&number.to_le_bytes(), b"old").unwrap();
    }
    let mut scan = kv.scan().unwrap();
    let first = scan.next().unwrap().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..1000u32).for_each(|n| kv.put(&n.to_le_bytes(), b"new").unwrap()));
        writer.join().unwrap();
        assert_eq!(kv.get(&first.0).unwrap().unwrap(), b"new", "a get sees the last commit");
        let mut seen = 1;
        for pair in scan {
            assert_eq!(pair.unwrap().1, b"old");
            seen += 1;
        }
        assert_eq!(seen, 1000);
    });
    assert!(pairs(&kv).values().all(|value| value == b"new"));
}

#[test]
fn a_store_of_pairs_is_found_by_its_name_and_looking_makes_none() {
    let store = Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap();
    assert!(Kv::find(&store, SnodeId::FIRST, "a").unwrap().is_none());
    assert!(store.edge_types().is_empty());
    Kv::open(&store, SnodeId::FIRST, "b").unwrap().put(b"k", b"v").unwrap();
    Kv::open(&store, SnodeId::FIRST, "a").unwrap();
    assert!(Kv::find(&store, SnodeId::FIRST, "c").unwrap().is_none());
    let found = Kv::find(&store, SnodeId::FIRST, "b").unwrap().unwrap();
    assert_eq!(found.get(b"k").unwrap().unwrap(), b"v");
    assert_eq!(Kv::names(&store, SnodeId::FIRST).unwrap(), ["a", "b"]);
}

/// A medium that counts the reads, of one page or of many.
struct Counting(Arc<MemoryStore>, Arc<AtomicU64>);

impl PageStore for Counting {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(1, Relaxed);
        self.0.read(block, out)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        self.1.fetch_add(1, Relaxed);
        self.0.read_many(reads)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
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

#[test]
fn a_count_reads_the_pages_of_a_table_together_so_that_it_looks_at_each_once() {
    let medium = Arc::new(MemoryStore::new());
    let options = Options { huge_pages: false, ..Options::default() };
    let store = Store::create(Box::new(medium.clone()), &options).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    for batch in 0..60u32 {
        let keys: Vec<_> = (0..1000).map(|key| (1000 * batch + key).to_le_bytes()).collect();
        let changes: Vec<_> = keys.iter().map(|key| KvChange::Put(key, b"")).collect();
        kv.change(&changes).unwrap();
    }
    store.close().unwrap();
    let reads = Arc::new(AtomicU64::new(0));
    let store = Store::open(Box::new(Counting(medium, reads.clone())), &options).unwrap();
    let kv = Kv::find(&store, SnodeId::FIRST, "pairs").unwrap().unwrap();
    let tables = store.report().table_pages;
    reads.store(0, Relaxed);
    assert_eq!(kv.count().unwrap(), 60_000);
    // A step begins anew after each read.
    let reads = reads.load(Relaxed);
    assert!(tables > 200 && reads < tables / 8, "{reads} reads of {tables} pages");
}
