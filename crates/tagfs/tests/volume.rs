//! What this core does beyond the suite: what files cost, what a mount takes away, what a check finds, what a copy keeps.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use std::sync::Arc;
use weft_core::{DataClass, Ino, Tag};
use weft_flash_pages::{PolicyPages, PolicyPagesSetup};
use weft_tagfs::{CheckReport, FormatOptions, MountOptions, TagFs, TagFsError};
use weft_tags::{Info, InfoForm, MemoryStore, Options, PageStore, SnodeId, Store};
use weft_vfs::{Core, CreateArgs, FileSystem, NewNode};

const MIB: u64 = 1 << 20;

fn fresh(capacity_bytes: u64) -> Arc<MemoryStore> {
    let medium = Arc::new(MemoryStore::new());
    let options = FormatOptions { capacity_bytes, ..FormatOptions::default() };
    TagFs::format(Box::new(medium.clone()), &options).unwrap();
    medium
}

fn mount(medium: &Arc<MemoryStore>) -> TagFs {
    TagFs::mount(Box::new(medium.clone()), MountOptions::default()).unwrap()
}

fn check(medium: &Arc<MemoryStore>) -> CheckReport {
    TagFs::check(Box::new(medium.clone())).unwrap()
}

fn make(fs: &TagFs, name: &str, open: bool) -> Ino {
    let args = CreateArgs { open, ..CreateArgs::new(NewNode::File, 0o644) };
    fs.create(Ino::ROOT, name.as_bytes(), &args).unwrap().ino
}

#[test]
fn a_file_of_up_to_3968_bytes_takes_three_nodes_and_one_of_64_kib_a_node_for_each_page_beside() {
    for (size, pieces) in [(0usize, 0), (1, 0), (3968, 0), (3969, 1), (4096, 2), (64 << 10, 17)] {
        let medium = fresh(64 * MIB);
        let before = check(&medium).nodes;
        let fs = mount(&medium);
        let file = make(&fs, "file", false);
        fs.write(file, 0, &vec![7; size]).unwrap();
        fs.unmount().unwrap();
        let report = check(&medium);
        assert!(report.is_clean(), "{:?}", report.problems);
        // Root, record, entry.
        assert_eq!(report.nodes - before, 3 + pieces, "{size} bytes");
    }
}

#[test]
fn a_mount_takes_away_what_was_open_without_a_name_when_the_power_failed() {
    let medium = fresh(64 * MIB);
    let fs = mount(&medium);
    let before = fs.statfs().unwrap();
    let file = make(&fs, "file", true);
    fs.write(file, 0, &vec![7; 3 << 20]).unwrap();
    fs.unlink(Ino::ROOT, b"file").unwrap();
    fs.create_unnamed(Ino::ROOT, &CreateArgs::new(NewNode::File, 0o600), true).unwrap();
    fs.sync().unwrap();
    drop(fs);
    let report = check(&medium);
    assert!(report.is_clean() && report.nameless == 2, "{report:?}");
    let fs = mount(&medium);
    assert_eq!(fs.statfs().unwrap().inodes, before.inodes);
    assert!(before.free_bytes - fs.statfs().unwrap().free_bytes < MIB / 2);
    fs.unmount().unwrap();
    assert_eq!(check(&medium).nameless, 0);
}

#[test]
fn a_file_of_thousands_of_chunks_goes_in_parts_and_whole() {
    let medium = fresh(256 * MIB);
    let fs = mount(&medium);
    let before = fs.statfs().unwrap();
    let file = make(&fs, "sparse", false);
    for n in 0..9000 {
        fs.write(file, n * MIB + n, b"x").unwrap();
    }
    fs.sync().unwrap();
    assert_eq!(fs.getattr(file).unwrap().blocks, 9000 * 8);
    fs.unlink(Ino::ROOT, b"sparse").unwrap();
    let after = fs.statfs().unwrap();
    assert_eq!(after.inodes, before.inodes);
    assert!(before.free_bytes - after.free_bytes < 4 * MIB, "{before:?} {after:?}");
    fs.unmount().unwrap();
    let report = check(&medium);
    assert!(report.is_clean() && report.files == 0 && report.nameless == 0, "{report:?}");
}

#[test]
fn a_copy_of_the_store_is_a_volume_of_the_same_size() {
    let medium = fresh(256 * MIB);
    let fs = mount(&medium);
    let file = make(&fs, "file", false);
    fs.write(file, 0, &vec![7; 5 << 20]).unwrap();
    fs.unmount().unwrap();
    let copy = Arc::new(MemoryStore::new());
    let store = Store::open(Box::new(medium), &Options::default()).unwrap();
    store.backup(&copy, |_, _| {}).unwrap();
    let bytes = copy.to_bytes().len() as u64;
    assert!(bytes < 64 * MIB, "{bytes}");
    let fs = mount(&copy);
    let stats = fs.statfs().unwrap();
    assert!(stats.total_bytes == 256 * MIB && stats.free_bytes > 200 * MIB, "{stats:?}");
    let file = fs.lookup(Ino::ROOT, b"file").unwrap().ino;
    // More than the copy is long.
    for n in 0..100 {
        fs.write(file, n * MIB, &vec![n as u8; MIB as usize]).unwrap();
    }
    fs.unmount().unwrap();
    assert!(check(&copy).is_clean());
}

#[test]
fn the_check_finds_a_name_that_is_listed_and_not_found_and_an_inode_that_is_not_there() {
    let medium = fresh(64 * MIB);
    let fs = mount(&medium);
    let file = make(&fs, "file", false);
    fs.unmount().unwrap();
    let open = || Store::open(Box::new(medium.clone()), &Options::default()).unwrap();
    let store = open();
    let entry = store.edge_type("tagfs.entry", InfoForm::Key).unwrap();
    let first = store.root(SnodeId::FIRST).unwrap();
    let mut tx = store.begin();
    let node = tx.delete_edge(first, entry, Info::Key(b"file")).unwrap();
    tx.commit().unwrap();
    store.close().unwrap();
    // The node has gone with its last edge.
    let report = check(&medium);
    assert!(!report.is_clean(), "{report:?} {node} {file}");
    println!("{:#?}", report.problems);

    let store = open();
    let record = store.edge_type("tagfs.record", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let root = tx.root(SnodeId(file.0)).unwrap();
    tx.delete_edge(root, record, Info::Number(0)).unwrap();
    tx.commit().unwrap();
    store.close().unwrap();
    let report = check(&medium);
    let is_told = report.problems.iter().any(|problem| problem.starts_with(&format!("inode {file}:")));
    assert!(is_told, "{:#?}", report.problems);
}

#[test]
fn a_store_without_files_is_refused_by_name_and_a_read_only_mount_changes_nothing() {
    let medium = Arc::new(MemoryStore::new());
    Store::create(Box::new(medium.clone()), &Options::default()).unwrap().close().unwrap();
    let refused = TagFs::mount(Box::new(medium.clone()), MountOptions::default());
    assert!(matches!(refused, Err(TagFsError::NoFileSystem)));
    let medium = fresh(64 * MIB);
    let fs = mount(&medium);
    make(&fs, "file", false);
    fs.sync().unwrap();
    drop(fs);
    let before = medium.to_bytes();
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let fs = TagFs::mount(Box::new(medium.clone()), options).unwrap();
    assert!(fs.lookup(Ino::ROOT, b"file").is_ok() && fs.is_read_only());
    assert!(fs.unlink(Ino::ROOT, b"file").is_err());
    fs.tick().unwrap();
    Core::close(&fs).unwrap();
    drop(fs);
    assert!(medium.to_bytes() == before);
}

#[test]
fn a_small_file_that_was_written_behind_its_end_shows_zeros_between() {
    let medium = fresh(64 * MIB);
    let fs = mount(&medium);
    let file = make(&fs, "file", false);
    fs.write(file, 0, &[7; 5000]).unwrap();
    fs.sync().unwrap();
    // Stored are 5000 bytes in pieces; this is in the buffer.
    fs.write(file, 9000, &[8; 100]).unwrap();
    for from in [0, 4096, 5000, 6000, 8192, 9000] {
        let mut out = vec![1; 9100];
        assert_eq!(fs.read(file, from, &mut out).unwrap() as u64, 9100 - from);
        let wanted = (from..9100).map(|at| match at {
            0..5000 => 7,
            9000.. => 8,
            _ => 0,
        });
        assert!(wanted.eq(out[..(9100 - from) as usize].iter().copied()), "from {from}");
    }
}

#[test]
fn class_owner_and_flags_of_a_file_are_on_the_pages_of_the_flash_that_hold_its_data_and_choose_their_stream()
{
    use rig::flash::{device, geometry};
    let device = device(geometry(2, 1, 160, 16));
    let grant = || rig::flash::attach(device.clone()).unwrap();
    let setup = PolicyPagesSetup::default();
    let medium = Arc::new(PolicyPages::create(rig::flash::allocate(device.clone(), 100), setup).unwrap());
    TagFs::format(Box::new(medium.clone()), &FormatOptions { capacity_bytes: 0, ..FormatOptions::default() })
        .unwrap();
    let fs = TagFs::mount(Box::new(medium.clone()), MountOptions::default()).unwrap();
    let tags = [(7, DataClass::Temporary), (8, DataClass::Immutable)];
    for (owner, class) in tags {
        let tag = Tag { class, ..Tag::default() };
        let args = CreateArgs { uid: owner, tag, ..CreateArgs::new(NewNode::File, 0o644) };
        let ino = fs.create(Ino::ROOT, format!("of {owner}").as_bytes(), &args).unwrap().ino;
        fs.write(ino, 0, &vec![owner as u8; 1 << 20]).unwrap();
        fs.fsync(ino).unwrap();
    }
    fs.unmount().unwrap();
    drop(medium);
    let medium = PolicyPages::open(grant(), setup).unwrap();
    let mut streams = std::collections::BTreeSet::new();
    for (owner, class) in tags {
        let all = (0..medium.blocks()).map(|block| medium.tag_of(block).unwrap());
        let own: Vec<Tag> = all.filter(|tag| tag.owner == owner).collect();
        assert!(own.len() >= 256 && own.iter().all(|tag| tag.class == class), "{owner}: {own:?}");
        streams.extend(own.iter().map(|tag| tag.stream));
    }
    assert_eq!(streams.len(), tags.len());
}
