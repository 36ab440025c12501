//! What the store frees, the cleaner below does not move; and tags reach the out-of-band bytes.

#![allow(clippy::unwrap_used)]

mod support;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use support::{LEVELS, Level, Medium, allocate, device, geometry, options};
use weft_core::{DataClass, Origin, Tag, TagFlags};
use weft_flash_pages::StreamChoice;
use weft_tags::{Info, InfoForm, NodeType, Options, PAGE_BYTES, PageStore, SnodeTags, Store};

const FILE: NodeType = NodeType(1);

/// A medium that keeps what is free to itself.
struct Deaf(Medium);

impl PageStore for Deaf {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.shared().read(block, out)
    }

    fn write(&self, block: u64, tag: &Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.shared().write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.shared().sync()
    }

    fn blocks(&self) -> u64 {
        self.0.shared().blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.0.shared().grow(blocks)
    }
}

/// Updates files of many sizes at random, with checkpoints in between; pages written and moved.
fn update(medium: &Medium, hears: bool, turns: u64) -> (u64, u64) {
    let pages: Box<dyn PageStore> = if hears { medium.boxed() } else { Box::new(Deaf(medium.clone())) };
    let store = Store::create(pages, &options()).unwrap();
    let holds = store.edge_type("holds", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let snode = tx.create_snode_apart(&SnodeTags::default()).unwrap();
    let root = tx.root(snode).unwrap();
    tx.commit().unwrap();
    let mut rng = StdRng::seed_from_u64(5);
    for turn in 0..turns {
        let mut tx = store.begin();
        for _ in 0..4 {
            // Some files are written again and again, others seldom.
            let most = rng.random_range(0..120u64);
            let number = rng.random_range(0..=most);
            let bytes = PAGE_BYTES * rng.random_range(1..4) - 8;
            let node = tx.create_node(snode, FILE, &vec![turn as u8; bytes]).unwrap();
            tx.set_edge(root, holds, Info::Number(number), node).unwrap();
        }
        tx.commit().unwrap();
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    store.close().unwrap();
    medium.verify();
    medium.written_and_moved()
}

#[test]
fn blocks_that_the_store_frees_are_not_moved_by_the_cleaner() {
    for level in LEVELS {
        let of = |hears| {
            let medium =
                level.create(allocate(device(geometry(2, 1, 36, 32)), 100), StreamChoice::One).unwrap();
            update(&medium, hears, 1_500)
        };
        let ((written, moved), (_, moved_deaf)) = (of(true), of(false));
        eprintln!("{level}: {written} pages written, {moved} moved, {moved_deaf} without free");
        assert!(moved * 2 < moved_deaf, "{level}: {moved} moved, {moved_deaf} without free");
    }
}

/// Blocks that have something on the flash, those of the journal alone, and those that the store uses.
fn in_use(medium: &Medium, store: &Store) -> (u64, u64, u64) {
    let tags = tags_of(medium);
    let all = tags.values().filter(|(tag, _)| *tag != Tag::default()).map(|(_, blocks)| blocks).sum();
    let of_journal = |tag: &Tag| (tag.origin, tag.class) == (Origin::Metadata, DataClass::Log);
    let journal = tags.values().filter(|(tag, _)| of_journal(tag)).map(|(_, blocks)| blocks).sum();
    let report = store.report();
    (all, journal, (report.medium_bytes - report.free_bytes) / PAGE_BYTES as u64)
}

#[test]
fn an_opening_frees_what_the_flash_has_not_learnt_and_a_checkpoint_the_journal() {
    for level in LEVELS {
        let device = device(geometry(2, 1, 60, 32));
        let medium = level.create_on(device.clone(), StreamChoice::ByTag);
        update(&medium, false, 200);
        let options = options();
        let journal_blocks = options.journal_bytes / PAGE_BYTES as u64;
        let commits = |store: &Store| {
            for _ in 0..20 {
                let mut tx = store.begin();
                tx.create_snode(&SnodeTags { class: DataClass::Small, ..SnodeTags::default() }).unwrap();
                tx.commit().unwrap();
            }
        };
        // Of what is in the flash most is free, and nobody has said so: neither before nor in commits whose records are in the journal.
        let store = Store::open(Box::new(Deaf(medium.clone())), &options).unwrap();
        commits(&store);
        let (before, journal, used) = in_use(&medium, &store);
        assert!(
            before > used + 50 && journal >= 20,
            "{level}: {before} in the flash, {used} used, {journal} of the journal"
        );
        drop(store);
        let store = Store::open(medium.boxed(), &options).unwrap();
        let (after, journal, used) = in_use(&medium, &store);
        assert!(
            after <= used - journal_blocks && journal == 0,
            "{level}: {after} in the flash, {used} used, {journal} of the journal"
        );
        commits(&store);
        assert!(in_use(&medium, &store).1 >= 20, "{level}");
        store.checkpoint().unwrap();
        let (after, journal, used) = in_use(&medium, &store);
        assert!(
            after <= used - journal_blocks && journal == 0,
            "{level}: {after} in the flash, {used} used, {journal} of the journal"
        );
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// A tag and how many of the store's blocks have it.
fn tags_of(medium: &Medium) -> BTreeMap<String, (Tag, u64)> {
    let mut found: BTreeMap<String, (Tag, u64)> = BTreeMap::new();
    for block in 0..medium.shared().blocks() {
        let tag = match medium {
            Medium::Policy(pages) => pages.tag_of(block).unwrap(),
            Medium::Function(pages) => pages.tag_of(block).unwrap(),
        };
        found.entry(format!("{tag:?}")).or_insert((tag, 0)).1 += 1;
    }
    found
}

fn fill_with_all_kinds(level: Level) -> (Medium, [Tag; 3]) {
    let wanted = [
        Tag { class: DataClass::Small, owner: 1000, ..Tag::default() },
        Tag { class: DataClass::Immutable, owner: 1001, ..Tag::default() },
        Tag { flags: TagFlags::SECURE_DELETE, owner: 1002, ..Tag::default() },
    ];
    let medium = level.create_on(device(geometry(2, 1, 60, 32)), StreamChoice::ByTag);
    let store = Store::create(medium.boxed(), &Options { journal_bytes: 1 << 20, ..options() }).unwrap();
    let holds = store.edge_type("holds", InfoForm::Number).unwrap();
    for tag in &wanted {
        let mut tx = store.begin();
        let tags = SnodeTags {
            owner: tag.owner,
            class: tag.class,
            flags: tag.flags,
            mode: 0o700,
            ..SnodeTags::default()
        };
        let snode = tx.create_snode_apart(&tags).unwrap();
        let root = tx.root(snode).unwrap();
        for number in 0..40 {
            let node = tx.create_node(snode, FILE, &[3; 9_000]).unwrap();
            tx.create_edge(root, holds, Info::Number(number), node).unwrap();
        }
        tx.commit().unwrap();
    }
    // The journal has records of after the last checkpoint.
    store.checkpoint().unwrap();
    let mut tx = store.begin();
    tx.create_snode(&SnodeTags::default()).unwrap();
    tx.commit().unwrap();
    (medium, wanted)
}

#[test]
fn owner_class_and_flags_of_an_snode_are_in_the_out_of_band_bytes_of_its_pages_and_kinds_have_streams() {
    for level in LEVELS {
        let (medium, wanted) = fill_with_all_kinds(level);
        let found = tags_of(&medium);
        let mut streams = Vec::new();
        for wanted in wanted {
            let known = |tag: &Tag| Tag { stream: wanted.stream, origin: Origin::Host, ..*tag } == wanted;
            let of: Vec<&(Tag, u64)> = found.values().filter(|(tag, _)| known(tag)).collect();
            let pages: u64 = of.iter().map(|(_, pages)| pages).sum();
            assert!(pages >= 40, "{level}: {wanted:?} is on {pages} pages of {found:?}");
            streams.extend(of.iter().map(|(tag, _)| tag.stream).take(1));
        }
        let of_store = |class| {
            let is = |(tag, _): &&(Tag, u64)| tag.origin == Origin::Metadata && tag.class == class;
            found.values().find(is).map(|(tag, _)| tag.stream)
        };
        streams.push(of_store(DataClass::Metadata).unwrap());
        streams.push(of_store(DataClass::Log).unwrap());
        streams.sort_unstable_by_key(|stream| stream.0);
        streams.dedup();
        assert_eq!(streams.len(), 5, "{level}: {found:?}");
    }
}
