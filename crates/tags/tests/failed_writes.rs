//! Writes that fail. Before their commit has changed anything the store goes on, and nothing of the medium is lost; afterwards it stops.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use weft_tags::{
    Durability, Error, Info, InfoForm, Kv, KvChange, MemoryStore, NodeType, Options, PAGE_BYTES, PageStore,
    PendingWrite, SnodeId, SnodeTags, Store, TagFlags,
};

/// A medium on which, after so many writes behind the journal, one fails.
struct Failing {
    blocks: MemoryStore,
    good: AtomicI64,
}

struct Medium(Arc<Failing>);

const JOURNAL_BYTES: u64 = 1 << 20;

impl PageStore for Medium {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.blocks.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let is_behind = block >= 2 + JOURNAL_BYTES / PAGE_BYTES as u64;
        if is_behind && self.0.good.fetch_sub(1, SeqCst) == 0 {
            return Err(io::Error::other("a bad block"));
        }
        self.0.blocks.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.0.blocks.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.0.blocks.grow(blocks)
    }
}

#[test]
fn a_commit_whose_pages_cannot_be_written_changes_nothing_and_gives_their_blocks_back() {
    let medium = Arc::new(Failing { blocks: MemoryStore::new(), good: AtomicI64::new(i64::MAX) });
    let options = Options {
        cache_bytes: 4 << 20,
        journal_bytes: JOURNAL_BYTES,
        store_bytes_max: 32 << 20,
        ..Options::default()
    };
    let store = Store::create(Box::new(Medium(medium.clone())), &options).unwrap();
    let edge = store.edge_type("of", InfoForm::Number).unwrap();
    let kind = NodeType(1);
    let mut tx = store.begin();
    let other =
        tx.create_snode(&SnodeTags { flags: TagFlags::SECURE_DELETE, ..SnodeTags::default() }).unwrap();
    tx.commit().unwrap();
    let snodes = [SnodeId::FIRST, other];
    let change = |large: usize| -> Result<(), Error> {
        let mut tx = store.begin();
        for snode in snodes {
            let root = store.root(snode)?;
            for number in 0..200u64 {
                let len = if number < 199 { 1_300 } else { large };
                let node = tx.create_node(snode, kind, &vec![number as u8; len])?;
                tx.set_edge(root, edge, Info::Number(number), node)?;
            }
        }
        tx.commit().map(drop)
    };
    change(10).unwrap();
    let mut first = [None; 4];
    for (turn, large) in (0..24).zip([10, 100_000].into_iter().cycle()) {
        medium.good.store(turn % 4, SeqCst);
        let done = change(large);
        medium.good.store(i64::MAX, SeqCst);
        assert!(matches!(done, Err(Error::Io { .. })), "{done:?}");
        store.checkpoint().unwrap();
        let now = store.report();
        let used = (now.data_pages, now.medium_bytes - now.free_bytes);
        // The first leave pages open that slots are to be given out from.
        if turn >= 4 {
            assert_eq!(used, *first[turn as usize % 4].get_or_insert(used), "turn {turn}");
        }
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    change(100_000).unwrap();
    store.close().unwrap();
    let image = MemoryStore::from_bytes(medium.blocks.to_bytes());
    let store = Store::open(Box::new(image), &options).unwrap();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    assert_eq!(store.edges(store.root(other).unwrap()).unwrap().len(), 200);
}

/// A medium whose asynchronous writes end only when they are waited for, one of them with an error.
#[derive(Default)]
struct Lazy {
    blocks: MemoryStore,
    fails: AtomicBool,
    /// Pages that were changed between the begin and the end of their write.
    changed: AtomicUsize,
}

struct LazyMedium(Arc<Lazy>);

impl PageStore for LazyMedium {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.blocks.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.blocks.write(block, tag, parts)
    }

    unsafe fn begin_write(
        &self,
        block: u64,
        tag: &weft_core::Tag,
        pages: &[*const [u8; PAGE_BYTES]],
    ) -> io::Result<PendingWrite> {
        let copies = |pages: &[usize]| -> Vec<[u8; PAGE_BYTES]> {
            // SAFETY: the caller promises that the pages can be read until the write was waited for.
            pages.iter().map(|page| unsafe { *(*page as *const [u8; PAGE_BYTES]) }).collect()
        };
        let pages: Vec<usize> = pages.iter().map(|page| *page as usize).collect();
        let begun = copies(&pages);
        let (medium, tag) = (self.0.clone(), *tag);
        Ok(PendingWrite::until(move || {
            let now = copies(&pages);
            let changed = now.iter().zip(&begun).filter(|(now, begun)| now != begun).count();
            medium.changed.fetch_add(changed, SeqCst);
            if medium.fails.swap(false, SeqCst) {
                return Err(io::Error::other("a bad block"));
            }
            let parts: Vec<_> = now.iter().map(|page| IoSlice::new(page)).collect();
            medium.blocks.write(block, &tag, &parts)
        }))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.0.blocks.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.0.blocks.grow(blocks)
    }
}

fn lazy() -> (Arc<Lazy>, Store) {
    let medium = Arc::new(Lazy::default());
    let options = Options {
        cache_bytes: 8 << 20,
        journal_bytes: 4 << 20,
        store_bytes_max: 64 << 20,
        ..Options::default()
    };
    let store = Store::create(Box::new(LazyMedium(medium.clone())), &options).unwrap();
    (medium, store)
}

/// Puts of 140 pairs of a page each.
fn put_many(kv: &Kv<'_>, turn: u8) -> Result<u64, Error> {
    let keys: Vec<[u8; 2]> = (0..140).map(|n| [turn, n]).collect();
    kv.change(&keys.iter().map(|key| KvChange::Put(key, &[7; 4_000])).collect::<Vec<_>>())
}

#[test]
fn a_commit_that_fails_leaves_the_pages_alone_that_are_being_written() {
    let (medium, store) = lazy();
    let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.durability(Durability::None);
    medium.fails.store(true, SeqCst);
    assert!((0..20).any(|turn| put_many(&kv, turn).is_err()));
    // The store has stopped, and whoever goes on making nodes is told so at the commit.
    let mut tx = store.begin();
    for _ in 0..600 {
        if tx.create_node(SnodeId::FIRST, NodeType(1), &[9; 4_000]).is_err() {
            break;
        }
    }
    drop(tx);
    drop(store);
    assert_eq!(medium.changed.load(SeqCst), 0);
}

#[test]
fn a_store_that_has_stopped_applies_no_commit() {
    let (medium, store) = lazy();
    let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.put(b"there", &[1; 4_000]).unwrap();
    kv.durability(Durability::None);
    medium.fails.store(true, SeqCst);
    put_many(&kv, 1).unwrap();
    assert!(matches!(store.sync(), Err(Error::Io { .. })));
    for key in [&b"there"[..], b"new"] {
        assert!(matches!(kv.put(key, &[2; 4_000]), Err(Error::Stopped { .. })));
    }
    assert_eq!(kv.get(b"there").unwrap().as_deref(), Some(&[1; 4_000][..]));
    assert_eq!(kv.get(b"new").unwrap(), None);
    assert!(kv.scan().unwrap().all(|pair| pair.is_ok()));
}
