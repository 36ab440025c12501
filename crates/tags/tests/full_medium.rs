//! Media that are full: fill, delete, fill again, at every size, with the process killed at any time. What is new is refused, nothing stops, and
//! there is always room to open and to delete. `WEFT_FULL_SIZES=N` tries N sizes.

#![cfg(not(weft_shuttle))]
#![allow(clippy::unwrap_used)]

#[path = "support/filling.rs"]
mod filling;

use filling::{Pairs, check, delete, fill, is_as, is_full};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use weft_sys::file::seek;
use weft_tags::{
    Durability, Error, FileStore, Info, InfoForm, Kv, KvChange, MemoryStore, NodeId, NodeType, Options,
    PAGE_BYTES, PageStore, ReadPath, SnodeId, SnodeTags, Store, TagFlags,
};

const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

/// A medium that cannot grow beyond a number of blocks.
#[derive(Clone)]
struct Small {
    inner: Arc<MemoryStore>,
    most: Arc<AtomicU64>,
    errno: i32,
}

impl PageStore for Small {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.inner.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        if blocks > self.most.load(Relaxed) {
            return Err(io::Error::from_raw_os_error(self.errno));
        }
        self.inner.grow(blocks)
    }

    fn cut(&self, blocks: u64) -> io::Result<u64> {
        self.inner.cut(blocks)
    }
}

fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, ..Options::default() }
}

fn small(blocks: u64, errno: i32) -> Small {
    Small { inner: Arc::new(MemoryStore::new()), most: Arc::new(AtomicU64::new(blocks)), errno }
}

#[test]
fn a_full_medium_is_opened_read_and_emptied_and_filled_again_at_every_size() {
    let sizes = std::env::var("WEFT_FULL_SIZES").ok().and_then(|sizes| sizes.parse().ok()).unwrap_or(20);
    for at in 0..sizes {
        let mut rng = StdRng::seed_from_u64(at);
        let medium = small(420 + at * 7 % 1_500, if at.is_multiple_of(2) { ENOSPC } else { EDQUOT });
        let mut store = match Store::create(Box::new(medium.clone()), &options()) {
            Ok(store) => store,
            Err(error) => panic!("{error}"),
        };
        let (mut pairs, mut next) = (Pairs::new(), 0);
        for round in 0..6 {
            let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
            kv.durability(if rng.random() { Durability::None } else { Durability::Sync });
            fill(&kv, &mut pairs, &mut rng, &mut next);
            is_as(&kv, &pairs);
            if round % 3 == 1 {
                delete(&kv, &mut pairs, &mut rng);
                is_as(&kv, &pairs);
            }
            if rng.random_ratio(1, 4) {
                store.shrink(|_, _| ()).unwrap();
            }
            // Closed, or killed with all that was synced.
            if rng.random() {
                store.close().unwrap();
            } else {
                store.sync().unwrap();
                drop(store);
            }
            store = Store::open(Box::new(medium.clone()), &options()).unwrap();
            let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
            is_as(&kv, &pairs);
            check(&store);
            delete(&kv, &mut pairs, &mut rng);
            is_as(&kv, &pairs);
        }
        check(&store);
        // All of it can go, and then there is room as before.
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        let keys: Vec<_> = std::mem::take(&mut pairs).into_keys().collect();
        keys.iter().for_each(|key| assert!(kv.delete(key).unwrap()));
        fill(&kv, &mut pairs, &mut rng, &mut next);
        is_as(&kv, &pairs);
        store.close().unwrap();
    }
}

/// Tables that deletions have thinned out are merged in a store that is full since: each merged page is written elsewhere.
#[test]
fn a_full_store_whose_tables_could_be_merged_is_made_as_small_as_it_has_room_to() {
    for blocks in [6_000, 9_000] {
        let options = Options { cache_bytes: 16 << 20, journal_bytes: 256 << 10, ..Options::default() };
        let medium = small(blocks, ENOSPC);
        let store = Store::create(Box::new(medium.clone()), &options).unwrap();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        let (mut pairs, mut next) = (BTreeMap::new(), 0u32);
        for bytes in [8usize, 2000] {
            loop {
                let keys: Vec<_> =
                    (next..next + 100 / (bytes as u32 / 100 + 1)).map(u32::to_be_bytes).collect();
                let value = vec![7; bytes];
                let puts: Vec<_> = keys.iter().map(|key| KvChange::Put(key, &value)).collect();
                if is_full(kv.change(&puts)) {
                    break;
                }
                next += keys.len() as u32;
                pairs.extend(keys.into_iter().map(|key| (key, bytes)));
            }
            if bytes == 8 {
                let gone: Vec<_> = pairs.keys().copied().filter(|key| key[3] % 4 > 0).collect();
                for gone in gone.chunks(100) {
                    let deletes: Vec<_> = gone.iter().map(|key| KvChange::Delete(key)).collect();
                    assert_eq!(kv.change(&deletes).unwrap(), gone.len() as u64);
                }
                pairs.retain(|key, _| key[3] % 4 == 0);
            }
        }
        store.shrink(|_, _| ()).unwrap();
        check(&store);
        drop(store);
        let store = Store::open(Box::new(medium), &options).unwrap();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        assert_eq!(kv.count().unwrap(), pairs.len() as u64);
        store.shrink(|_, _| ()).unwrap();
        for (key, bytes) in &pairs {
            assert_eq!(kv.get(key).unwrap().unwrap().len(), *bytes);
        }
    }
}

#[test]
fn the_error_of_a_full_medium_says_what_the_system_said() {
    for (errno, name) in [(ENOSPC, "ENOSPC"), (EDQUOT, "EDQUOT")] {
        let store = Store::create(Box::new(small(400, errno)), &options()).unwrap();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        let refused = (0..100_000u32).find_map(|key| kv.put(&key.to_le_bytes(), &[1; 900]).err()).unwrap();
        assert!(refused.to_string().contains(name), "{refused}");
        // A store that was refused goes on, and so does one that may grow again.
        assert!(kv.delete(&0u32.to_le_bytes()).unwrap());
    }
}

#[test]
fn a_store_goes_on_when_the_medium_has_room_again() {
    let medium = small(400, ENOSPC);
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    let mut keys = (0u32..).map(u32::to_le_bytes);
    while !is_full(kv.put(&keys.next().unwrap(), &[1; 900])) {}
    medium.most.store(800, Relaxed);
    (0..200).for_each(|_| kv.put(&keys.next().unwrap(), &[1; 900]).unwrap());
    check(&store);
}

#[test]
fn a_recovery_without_room_for_its_checkpoint_leaves_a_store_that_is_read() {
    let medium = small(3_000, ENOSPC);
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    (0..300u32).for_each(|key| kv.put(&key.to_le_bytes(), &[1; 100]).unwrap());
    let blocks = store.report().medium_bytes / 4096 - store.report().free_bytes / 4096;
    drop(store);
    // Somebody has cut off what was free.
    let image = medium.inner.to_bytes();
    let cut = |blocks: u64| {
        let medium = small(0, ENOSPC);
        let image = image[..(blocks as usize * 4096).min(image.len())].to_vec();
        Small { inner: Arc::new(MemoryStore::from_bytes(image)), ..medium }
    };
    let mut read_only = 0;
    for blocks in blocks.saturating_sub(20)..blocks + 40 {
        let Ok(store) = Store::open(Box::new(cut(blocks)), &options()) else { continue };
        let kv = Kv::find(&store, SnodeId::FIRST, "pairs").unwrap().unwrap();
        assert_eq!(kv.scan().unwrap().count(), 300);
        check(&store);
        if let Err(error) = kv.put(b"new", b"pair") {
            assert!(error.to_string().contains("full"), "{error}");
            read_only += 1;
        }
        store.close().unwrap();
    }
    assert!(read_only > 0);
}

#[test]
fn nodes_with_pages_of_their_own_are_refused_whole() {
    let store = Store::create(Box::new(small(1_000, ENOSPC)), &options()).unwrap();
    let etype = store.edge_type("large", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let mut made = 0;
    for number in 0.. {
        let mut tx = store.begin();
        let node = tx.create_node(SnodeId::FIRST, NodeType(1), &[3; 200_000]);
        if is_full(node.as_ref().map(drop).map_err(|error| match error {
            Error::Full { what } => Error::Full { what },
            other => panic!("{other}"),
        })) {
            break;
        }
        tx.create_edge(root, etype, Info::Number(number), node.unwrap()).unwrap();
        if is_full(tx.commit()) {
            break;
        }
        made = number + 1;
    }
    assert!(made > 5, "{made}");
    for number in 0..made {
        let mut tx = store.begin();
        tx.delete_edge(root, etype, Info::Number(number)).unwrap();
        tx.commit().unwrap();
    }
    check(&store);
}

#[test]
fn a_store_of_one_pair_takes_less_than_a_mebibyte_and_the_journal_its_room_when_it_is_needed() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let taken = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let open = |path| Box::new(FileStore::open(path, ReadPath::Kernel).unwrap());
    let medium = FileStore::create(&path, ReadPath::Kernel).unwrap();
    let store = Store::create(Box::new(medium), &Options::default()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    kv.put(b"key", b"value").unwrap();
    store.close().unwrap();
    assert!(taken() < 1 << 20, "{} bytes", taken());
    let store = Store::open(open(&path), &Options::default()).unwrap();
    let kv = Kv::find(&store, SnodeId::FIRST, "pairs").unwrap().unwrap();
    // Records of more than the journal has room for at first.
    let keys: Vec<[u8; 4]> = (0..60_000u32).map(u32::to_le_bytes).collect();
    for keys in keys.chunks(30_000) {
        kv.change(&keys.iter().map(|key| weft_tags::KvChange::Put(key, b"v")).collect::<Vec<_>>()).unwrap();
    }
    let copy = dir.path().join("copy");
    store.backup(&FileStore::create(&copy, ReadPath::Kernel).unwrap(), |_, _| ()).unwrap();
    drop(store);
    for path in [&path, &copy] {
        let store = Store::open(open(path), &Options::default()).unwrap();
        let kv = Kv::find(&store, SnodeId::FIRST, "pairs").unwrap().unwrap();
        assert_eq!((kv.count().unwrap(), kv.get(b"key").unwrap()), (60_001, Some(b"value".to_vec())));
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Deletes nodes of an s-node with secure deletion and makes others, again and again.
fn secret_nodes(store: &Store, rounds: u64) -> (NodeId, NodeId) {
    let etype = store.edge_type("number", InfoForm::Number).unwrap();
    let mut tx = store.begin();
    let tags = SnodeTags { flags: TagFlags::SECURE_DELETE, ..SnodeTags::default() };
    let snode = tx.create_snode(&tags).unwrap();
    let root = tx.root(snode).unwrap();
    let mut node = tx.create_node(snode, NodeType(1), &[7; 600_000]).unwrap();
    tx.create_edge(root, etype, Info::Number(0), node).unwrap();
    tx.commit().unwrap();
    for _ in 0..rounds {
        store.checkpoint().unwrap();
        let mut tx = store.begin();
        node = tx.create_node(snode, NodeType(1), &[7; 600_000]).unwrap();
        tx.set_edge(root, etype, Info::Number(0), node).unwrap();
        tx.commit().unwrap();
    }
    (root, node)
}

/// A file on a file system that is full as soon as it gives room back: others take that.
struct Crowded {
    file: FileStore,
    path: PathBuf,
    discards: AtomicU64,
    lost: Mutex<BTreeSet<u64>>,
}

impl PageStore for Crowded {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let blocks = parts.iter().map(|part| part.len()).sum::<usize>() / PAGE_BYTES;
        if self.lost.lock().unwrap().range(block..block + blocks as u64).next().is_some() {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        self.file.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn discard(&self, block: u64, blocks: u64) {
        self.discards.fetch_add(1, Relaxed);
        self.file.discard(block, blocks);
        let file = File::open(&self.path).unwrap();
        self.lost.lock().unwrap().extend((block..block + blocks).filter(|block| {
            let at = block * PAGE_BYTES as u64;
            !seek(&file, at, libc::SEEK_DATA).is_ok_and(|data| data == at)
        }));
    }

    fn blocks(&self) -> u64 {
        self.file.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.file.grow(blocks)
    }

    fn reserve(&self, block: u64, blocks: u64) -> io::Result<()> {
        self.file.reserve(block, blocks)
    }
}

#[test]
fn a_store_that_erases_keeps_its_room_where_others_take_all_that_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let file = FileStore::create(&path, ReadPath::Kernel).unwrap();
    let medium =
        Arc::new(Crowded { file, path, discards: AtomicU64::new(0), lost: Mutex::new(BTreeSet::new()) });
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let (_, node) = secret_nodes(&store, 5);
    assert!(store.read_node(node, NodeType(1)).unwrap() == [7; 600_000]);
    check(&store);
    store.close().unwrap();
    assert!(medium.discards.load(Relaxed) > 3);
}

/// A medium on which blocks have room when they are written or reserved. When it is full, others get none; one that never
/// overwrites in place takes no write at all then.
#[derive(Default)]
struct Sparse {
    inner: MemoryStore,
    roomy: Mutex<BTreeSet<u64>>,
    is_full: AtomicBool,
    overwrites: bool,
}

impl Sparse {
    fn take(&self, block: u64, blocks: u64, has_room: bool) -> io::Result<()> {
        let mut roomy = self.roomy.lock().unwrap();
        let has_room = has_room && (block..block + blocks).all(|block| roomy.contains(&block));
        if self.is_full.load(Relaxed) && !has_room {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        roomy.extend(block..block + blocks);
        Ok(())
    }
}

impl PageStore for Sparse {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(block, out)
    }

    fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let blocks = parts.iter().map(|part| part.len()).sum::<usize>() / PAGE_BYTES;
        self.take(block, blocks as u64, self.overwrites)?;
        self.inner.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.inner.grow(blocks)
    }

    fn reserve(&self, block: u64, blocks: u64) -> io::Result<()> {
        self.take(block, blocks, true)
    }
}

#[test]
fn a_store_that_has_to_erase_is_opened_on_a_full_medium() {
    for overwrites in [true, false] {
        let medium = Arc::new(Sparse { overwrites, ..Sparse::default() });
        // Most of its journal has no room on the medium.
        let options = Options { journal_bytes: 2 << 20, ..options() };
        let store = Store::create(Box::new(medium.clone()), &options).unwrap();
        let (root, node) = secret_nodes(&store, 1);
        let etype = store.edge_type("number", InfoForm::Number).unwrap();
        store.sync().unwrap();
        // As if it were killed.
        drop(store);
        let delete = |store: &Store| {
            let mut tx = store.begin();
            tx.delete_edge(root, etype, Info::Number(0)).unwrap();
            tx.commit().map(drop)
        };
        medium.is_full.store(true, Relaxed);
        for _ in 0..2 {
            let store = Store::open(Box::new(medium.clone()), &options).unwrap();
            assert!(store.read_node(node, NodeType(1)).unwrap() == [7; 600_000]);
            check(&store);
            let to_memory = |store: &Store| {
                let copy = Arc::new(MemoryStore::new());
                store.backup(&copy, |_, _| ()).map(|_| copy)
            };
            if !overwrites {
                let refused =
                    [delete(&store), store.shrink(|_, _| ()).map(drop), to_memory(&store).map(drop)];
                for refused in refused {
                    let told = refused.unwrap_err();
                    assert!(matches!(told, Error::NotRecovered { .. }), "{told}");
                    assert!(told.to_string().contains("No space"), "{told}");
                }
            }
            drop(store);
            // What the medium has no room for happens in memory, for a copy.
            let read = Store::open_read_only(Box::new(medium.clone()), &options).unwrap();
            let copy = Store::open(Box::new(to_memory(&read).unwrap()), &options).unwrap();
            assert!(copy.read_node(node, NodeType(1)).unwrap() == [7; 600_000]);
            check(&copy);
        }
        medium.is_full.store(overwrites, Relaxed);
        let store = Store::open(Box::new(medium.clone()), &options).unwrap();
        delete(&store).unwrap();
        store.checkpoint().unwrap();
        check(&store);
        store.close().unwrap();
        assert!(!medium.inner.to_bytes().windows(16).any(|bytes| bytes == [7; 16]), "{overwrites}");
    }
}

#[test]
fn a_store_says_how_much_new_data_it_can_take_and_takes_more_when_it_may_grow_further() {
    const MIB: u64 = 1 << 20;
    let options = Options { store_bytes_max: 16 * MIB, journal_bytes: MIB, ..options() };
    let store = Store::create(Box::new(MemoryStore::new()), &options).unwrap();
    let (root, item) =
        (store.root(SnodeId::FIRST).unwrap(), store.edge_type("item", InfoForm::Number).unwrap());
    let mut number = 0;
    let mut add = || {
        number += 1;
        let mut tx = store.begin();
        let node = tx.create_node(SnodeId::FIRST, NodeType(1), &vec![7; 256 << 10])?;
        tx.create_edge(root, item, Info::Number(number), node)?;
        tx.commit()
    };
    let empty = store.room_bytes();
    assert!((12 * MIB..15 * MIB).contains(&empty), "{empty} bytes of 16 MiB");
    // A node needs its bytes, as many again until a checkpoint, and what leads to them.
    while store.room_bytes() > 3 * (256 << 10) {
        add().unwrap();
    }
    let refused = loop {
        if let Err(error) = add() {
            break error;
        }
    };
    assert!(is_full::<()>(Err(refused)));
    let full = store.room_bytes();
    store.set_bytes_max(32 * MIB);
    assert!(store.room_bytes() > full + 15 * MIB, "{} bytes", store.room_bytes());
    add().unwrap();
    // What it has stays.
    let bytes = store.report().medium_bytes;
    store.set_bytes_max(0);
    assert_eq!(store.report().medium_bytes, bytes);
    assert_eq!(store.check().unwrap().problems, [""; 0]);
}
