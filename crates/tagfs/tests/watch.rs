//! What a front that keeps copies of a file's blocks is promised: until the core tells of a change, the copy is the content.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, Ino};
use weft_tagfs::{FormatOptions, MountOptions, TagFs};
use weft_tags::MemoryStore;
use weft_vfs::{
    BlockMap, Change, Core, CreateArgs, FallocateMode, FileSystem, MapEntry, MapObserver, NewNode, Node,
    SetAttr,
};

/// Blocks of a file that are watched.
const BLOCKS: usize = 600;
const BYTES: usize = BLOCKS * BLOCK_BYTES;

/// Entries and copies of the blocks of a file.
struct Watched {
    map: Vec<MapEntry>,
    copies: BTreeMap<usize, Vec<u8>>,
}

/// The watched files, as a front keeps them.
#[derive(Default)]
struct Front(Mutex<BTreeMap<Ino, Watched>>);

impl MapObserver for Front {
    fn remapped(&self, ino: Ino, first_block: u64, entries: &[MapEntry]) {
        let mut files = self.0.lock();
        let Watched { map, copies } = files.get_mut(&ino).unwrap();
        for (block, entry) in (first_block as usize..).zip(entries) {
            map[block] = *entry;
            copies.remove(&block);
        }
    }
}

impl Front {
    /// The first bytes of a file by its entries and copies; what is not copied is asked for.
    fn read(&self, fs: &TagFs, ino: Ino, size: usize) -> Vec<u8> {
        let mut files = self.0.lock();
        let Watched { map, copies } = files.get_mut(&ino).unwrap();
        let mut out = vec![0; BYTES];
        for ((block, entry), place) in map.iter().enumerate().zip(out.chunks_mut(BLOCK_BYTES)) {
            if *entry == MapEntry::HOLE {
                continue;
            }
            let copy = copies.entry(block).or_insert_with(|| {
                let mut bytes = vec![0; BLOCK_BYTES];
                fs.read(ino, (block * BLOCK_BYTES) as u64, &mut bytes).unwrap();
                bytes
            });
            place.copy_from_slice(copy);
        }
        out.truncate(size);
        out
    }
}

fn mounted() -> TagFs {
    let medium = Arc::new(MemoryStore::new());
    let options = FormatOptions { capacity_bytes: 128 << 20, ..FormatOptions::default() };
    TagFs::format(Box::new(medium.clone()), &options).unwrap();
    TagFs::mount(Box::new(medium), MountOptions::default()).unwrap()
}

#[test]
fn a_copy_of_a_block_is_the_content_until_the_core_tells_of_a_change() {
    let (fs, front) = (mounted(), Arc::new(Front::default()));
    fs.set_observer(front.clone());
    let mut rng = StdRng::seed_from_u64(27);
    let args = CreateArgs::new(NewNode::File, 0o644);
    let mut files: Vec<(Ino, Vec<u8>)> = Vec::new();
    for name in 0..3 {
        let ino = fs.create(Ino::ROOT, format!("file{name}").as_bytes(), &args).unwrap().ino;
        let mut map = vec![MapEntry::ASK_CORE; BLOCKS];
        fs.watch(ino, 0, &mut map).unwrap();
        assert!(map.iter().all(|entry| *entry == MapEntry::HOLE));
        front.0.lock().insert(ino, Watched { map, copies: BTreeMap::new() });
        files.push((ino, Vec::new()));
    }
    for step in 0..3000 {
        let which = rng.random_range(0..files.len());
        let (ino, content) = &mut files[which];
        let ino = *ino;
        let block = |at: usize| at / BLOCK_BYTES * BLOCK_BYTES;
        match rng.random_range(0..16) {
            what @ 0..8 => {
                let at = rng.random_range(0..=(content.len() + 5000).min(BYTES - 50_000));
                let len = [rng.random_range(1..300), rng.random_range(1..50_000)][rng.random_range(0..2)];
                let data: Vec<u8> = (0..len).map(|_| rng.random()).collect();
                content.resize(content.len().max(at + len), 0);
                content[at..at + len].copy_from_slice(&data);
                let offset = at as u64;
                match what {
                    0 => {
                        let write = Change::Write { node: Node::Ino(ino), offset, data: &data };
                        fs.commit(&[write], false).unwrap();
                    }
                    1..3 => fs.write_through(ino, offset, &data).unwrap(),
                    _ => fs.write(ino, offset, &data).unwrap(),
                }
            }
            8 => {
                let size = rng.random_range(0..=content.len() * 5 / 4).min(BYTES);
                content.resize(size, 0);
                fs.setattr(ino, &SetAttr { size: Some(size as u64), ..SetAttr::default() }).unwrap();
            }
            9 if !content.is_empty() => {
                let at = rng.random_range(0..content.len());
                let len = rng.random_range(1..100_000);
                let end = (at + len).min(content.len());
                content[at..end].fill(0);
                let modes = [FallocateMode::PunchHole, FallocateMode::ZeroRange { keep_size: true }];
                fs.fallocate(ino, modes[rng.random_range(0..2)], at as u64, len as u64).unwrap();
            }
            10 if content.len() > 30 * BLOCK_BYTES => {
                let at = block(rng.random_range(0..10 * BLOCK_BYTES));
                content.drain(at..at + 2 * BLOCK_BYTES);
                fs.fallocate(ino, FallocateMode::CollapseRange, at as u64, 2 * BLOCK_BYTES as u64).unwrap();
            }
            11 if (1..BYTES - 2 * BLOCK_BYTES).contains(&content.len()) => {
                let at = block(rng.random_range(0..content.len()));
                content.splice(at..at, [0; BLOCK_BYTES]);
                fs.fallocate(ino, FallocateMode::InsertRange, at as u64, BLOCK_BYTES as u64).unwrap();
            }
            12 => fs.fsync(ino).unwrap(),
            13 => fs.write_in_order(ino).unwrap(),
            _ => fs.tick().unwrap(),
        }
        let (ino, content) = &files[rng.random_range(0..files.len())];
        assert!(front.read(&fs, *ino, content.len()) == *content, "step {step}, inode {ino}");
    }
    // Whoever watches no more is told nothing: this would meet no entry.
    let (ino, content) = &files[0];
    fs.unwatch(*ino);
    front.0.lock().remove(ino);
    fs.write(*ino, 0, b"unseen").unwrap();
    assert!(content.len() < BYTES);
}

#[test]
fn a_watched_sparse_file_of_the_largest_size_shrinks_at_once() {
    let (fs, front) = (mounted(), Arc::new(Front::default()));
    fs.set_observer(front.clone());
    let ino = fs.create(Ino::ROOT, b"sparse", &CreateArgs::new(NewNode::File, 0o644)).unwrap().ino;
    let resize = |size| fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
    resize(i64::MAX as u64);
    let mut map = vec![MapEntry::HOLE; BLOCKS];
    fs.watch(ino, 0, &mut map).unwrap();
    assert!(map.iter().all(|entry| *entry == MapEntry::ASK_CORE));
    front.0.lock().insert(ino, Watched { map, copies: BTreeMap::new() });
    resize(BLOCK_BYTES as u64 + 1);
    let map = &front.0.lock()[&ino].map;
    assert_eq!(map[..3], [MapEntry::ASK_CORE, MapEntry::ASK_CORE, MapEntry::HOLE]);
    assert!(map[3..].iter().all(|entry| *entry == MapEntry::HOLE));
}
