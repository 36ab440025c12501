//! Writes that fail before their commit has changed anything: the store goes on, and nothing of the medium is lost.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use weft_tags::{
    Error, Info, InfoForm, MemoryStore, NodeType, Options, PAGE_BYTES, PageStore, SnodeId, SnodeTags, Store,
    TagFlags,
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

    fn write(&self, block: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let is_behind = block >= 2 + JOURNAL_BYTES / PAGE_BYTES as u64;
        if is_behind && self.0.good.fetch_sub(1, SeqCst) == 0 {
            return Err(io::Error::other("a bad block"));
        }
        self.0.blocks.write(block, parts)
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
