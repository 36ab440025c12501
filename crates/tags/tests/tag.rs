//! The tags of an s-node arrive with its pages at the medium, however a page gets there: by a commit, ahead of one, by a checkpoint, by
//! shrinking, after the store was opened again, and in a backup.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use weft_core::{DataClass, Origin, Tag, TagFlags};
use weft_tags::{
    Durability, Info, InfoForm, MemoryStore, NodeType, Options, PAGE_BYTES, PageStore, SnodeId, SnodeTags,
    Store,
};

/// A medium that remembers the tag of each block that was written.
#[derive(Default)]
struct Medium {
    blocks: MemoryStore,
    tags: Mutex<HashMap<u64, Tag>>,
}

impl PageStore for Medium {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.blocks.read(block, out)
    }

    fn write(&self, block: u64, tag: &Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let blocks = block..block + (bytes / PAGE_BYTES) as u64;
        self.tags.lock().unwrap().extend(blocks.map(|block| (block, *tag)));
        self.blocks.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.blocks.sync()
    }

    fn blocks(&self) -> u64 {
        self.blocks.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.blocks.grow(blocks)
    }

    fn cut(&self, blocks: u64) -> io::Result<u64> {
        self.blocks.cut(blocks)
    }
}

/// One for each property, all of them at once, and none.
fn wanted() -> [Tag; 5] {
    let (none, secure) = (Tag::default(), TagFlags::SECURE_DELETE);
    [
        Tag { class: DataClass::Log, ..none },
        Tag { owner: 1000, ..none },
        Tag { flags: secure, ..none },
        Tag { class: DataClass::Temporary, owner: u32::MAX, flags: secure, ..none },
        none,
    ]
}

/// What stands in all data of the s-node with this number.
fn mark(number: usize) -> [u8; 16] {
    let mut mark = *b"tagged s-node .\n";
    mark[14] = b'0' + number as u8;
    mark
}

const EDGE_MARK: u64 = 0x7a9e_d000;

/// Makes nodes of all sizes with edges to them.
fn fill(store: &Store, (snode, number): (SnodeId, usize), round: u64) {
    let list = store.edge_type("list", InfoForm::Number).unwrap();
    let from = store.root(snode).unwrap();
    let mut tx = store.begin();
    for at in 0..400u64 {
        // Some are large, and written ahead of the commit when there are many.
        let bytes = if at % 40 == 0 { 300 << 10 } else { 16 * (1 + at as usize % 40) };
        let data = mark(number).repeat(bytes / 16);
        let node = tx.create_node(snode, NodeType(1), &data).unwrap();
        tx.create_edge(from, list, Info::Number(key(number, round, at)), node).unwrap();
    }
    tx.commit().unwrap();
}

/// Deletes what [`fill`] made in a round.
fn empty(store: &Store, (snode, number): (SnodeId, usize), round: u64) {
    let (list, from) = (store.edge_type("list", InfoForm::Number).unwrap(), store.root(snode).unwrap());
    let mut tx = store.begin();
    for at in 0..400u64 {
        tx.delete_edge(from, list, Info::Number(key(number, round, at))).unwrap();
    }
    tx.commit().unwrap();
}

/// The info of an edge: no other word of a page begins so.
fn key(number: usize, round: u64, at: u64) -> u64 {
    (EDGE_MARK + number as u64) << 32 | round << 16 | at
}

/// Checks the tag of each block that holds data of an s-node. Returns how many blocks with nodes
/// and with edges of each there are, and how many were moved.
fn check(medium: &Medium) -> ([[usize; 2]; 5], usize) {
    let tags = medium.tags.lock().unwrap();
    let (mut found, mut moved) = ([[0; 2]; 5], 0);
    let journal = tags.iter().filter(|(_, tag)| tag.origin == Origin::Metadata).count();
    assert!(journal > 0, "the journal and the checkpoints have the tag of metadata");
    for (block, tag) in tags.iter().filter(|(_, tag)| tag.origin != Origin::Metadata) {
        let mut page = [0; PAGE_BYTES];
        let Ok(()) = read(medium, *block, &mut page) else { continue };
        for (number, wanted) in wanted().into_iter().enumerate() {
            let mut words = page.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let has_edges = words.any(|word| word >> 32 == EDGE_MARK + number as u64);
            if has_edges || page.windows(16).any(|bytes| bytes == mark(number)) {
                assert_eq!(Tag { origin: Origin::Host, ..*tag }, wanted, "block {block}");
                found[number][usize::from(has_edges)] += 1;
                moved += usize::from(tag.origin == Origin::Gc);
            }
        }
    }
    (found, moved)
}

fn read(medium: &Medium, block: u64, page: &mut [u8]) -> io::Result<()> {
    // The medium asks for aligned memory.
    let mut aligned = weft_sys::AlignedBuf::zeroed(PAGE_BYTES);
    medium.read(block, &mut aligned)?;
    page.copy_from_slice(&aligned);
    Ok(())
}

#[test]
fn every_page_of_an_snode_reaches_the_medium_with_its_owner_class_and_flags() {
    let options = Options { cache_bytes: 8 << 20, journal_bytes: 8 << 20, ..Options::default() };
    let medium = Arc::new(Medium::default());
    let store = Store::create(Box::new(medium.clone()), &options).unwrap();
    let mut tx = store.begin();
    let snodes = wanted().map(|Tag { owner, class, flags, .. }| {
        let tags = SnodeTags { owner, class, flags, mode: 0o700, ..SnodeTags::default() };
        tx.create_snode_apart(&tags).unwrap()
    });
    tx.commit().unwrap();
    for round in 0..3 {
        for (number, snode) in snodes.into_iter().enumerate() {
            fill(&store, (snode, number), round);
        }
        let (found, _) = check(&medium);
        assert!(found.iter().all(|[nodes, _]| *nodes > 50), "{found:?}");
    }
    // Pages of many small commits, whose writes are gathered; those that follow each other on the medium have different tags.
    for _ in 0..100 {
        for (number, snode) in snodes.into_iter().enumerate() {
            let mut tx = store.begin();
            let root = tx.root(snode).unwrap();
            let node = tx.create_node(snode, NodeType(1), &mark(number).repeat(250)).unwrap();
            let list = store.edge_type("list", InfoForm::Number).unwrap();
            tx.set_edge(root, list, Info::Number(0), node).unwrap();
            tx.durability(Durability::None);
            tx.commit().unwrap();
        }
    }
    store.checkpoint().unwrap();
    let (found, moved) = check(&medium);
    assert!(found.iter().all(|[_, edges]| *edges > 0), "{found:?}");
    assert!(moved > 50, "pages have left the front of the medium: {moved}");
    store.close().unwrap();

    // Opened again, it knows them as before.
    let store = Store::open(Box::new(medium.clone()), &options).unwrap();
    for (number, snode) in snodes.into_iter().enumerate() {
        fill(&store, (snode, number), 9);
    }
    store.checkpoint().unwrap();
    check(&medium);

    let target = Medium::default();
    store.backup(&target, |_, _| ()).unwrap();
    let (found, _) = check(&target);
    assert!(found.iter().all(|[nodes, _]| *nodes > 50), "{found:?}");

    for round in 0..2 {
        for (number, snode) in snodes.into_iter().enumerate() {
            empty(&store, (snode, number), round);
        }
    }
    store.shrink(|_, _| ()).unwrap();
    let (found, _) = check(&medium);
    assert!(found.iter().all(|[nodes, _]| *nodes > 50), "{found:?}");
}
