//! Stores on media that cannot be written are read as others are, whether they were closed or not.

#![allow(clippy::unwrap_used)]

use std::io::{self, IoSlice};
use std::sync::Arc;
use weft_tags::{
    Error, FileStore, InfoForm, Kv, MemoryStore, Options, PageStore, ReadPath, SnodeId, SnodeTags, Store,
    TagFlags,
};

/// A medium that refuses to be changed.
struct Sealed(Arc<MemoryStore>);

fn refused() -> io::Error {
    io::Error::from(io::ErrorKind::ReadOnlyFilesystem)
}

impl PageStore for Sealed {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(block, out)
    }

    fn write(&self, _block: u64, _tag: &weft_core::Tag, _parts: &[IoSlice<'_>]) -> io::Result<()> {
        Err(refused())
    }

    fn sync(&self) -> io::Result<()> {
        Err(refused())
    }

    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn grow(&self, _blocks: u64) -> io::Result<()> {
        Err(refused())
    }
}

fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 4 << 20, huge_pages: false, ..Options::default() }
}

fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// A store of pairs and s-nodes, one of which is erased, with commits that only the journal has.
fn made(medium: &Arc<MemoryStore>) -> Store {
    let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    (0..2_000).for_each(|number| kv.put(&key(number), &[7; 100]).unwrap());
    store.checkpoint().unwrap();
    let mut tx = store.begin();
    for number in 0..40 {
        let flags = if number == 30 { TagFlags::SECURE_DELETE } else { TagFlags::default() };
        tx.create_snode(&SnodeTags { flags, ..SnodeTags::default() }).unwrap();
    }
    tx.commit().unwrap();
    (2_000..3_000).for_each(|number| kv.put(&key(number), &[8; 100]).unwrap());
    (0..500).for_each(|number| assert!(kv.delete(&key(number)).unwrap()));
    store
}

fn look(store: &Store) {
    let kv = Kv::find(store, SnodeId::FIRST, "pairs").unwrap().unwrap();
    assert_eq!((kv.count().unwrap(), kv.scan().unwrap().count()), (2_500, 2_500));
    assert_eq!(kv.get(&key(2_999)).unwrap(), Some(vec![8; 100]));
    assert_eq!(kv.get(&key(3)).unwrap(), None);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    assert_eq!((store.snodes().unwrap().len(), store.report().snodes), (41, 41));
    let copy = Arc::new(MemoryStore::new());
    store.backup(&copy, |_, _| ()).unwrap();
    let copy = Store::open(Box::new(copy), &options()).unwrap();
    let pairs = Kv::find(&copy, SnodeId::FIRST, "pairs").unwrap().unwrap();
    assert_eq!(pairs.count().unwrap(), 2_500);
    assert!(matches!(kv.put(b"new", b""), Err(Error::ReadOnly)));
    assert!(matches!(kv.delete(&key(2_999)), Err(Error::ReadOnly)));
    assert!(matches!(store.shrink(|_, _| ()), Err(Error::ReadOnly)));
    assert!(matches!(store.edge_type("new", InfoForm::Number), Err(Error::ReadOnly)));
    assert_eq!(kv.get(&key(2_999)).unwrap(), Some(vec![8; 100]));
}

#[test]
fn a_store_on_a_medium_that_cannot_be_written_is_read_whether_it_was_closed_or_not() {
    for is_closed in [true, false] {
        let medium = Arc::new(MemoryStore::new());
        let store = made(&medium);
        if is_closed {
            store.close().unwrap();
        } else {
            drop(store);
        }
        let before = medium.to_bytes();
        for _ in 0..2 {
            let store = Store::open_read_only(Box::new(Sealed(medium.clone())), &options()).unwrap();
            assert_eq!(store.report().recovered_commits > 0, !is_closed);
            look(&store);
            store.close().unwrap();
        }
        assert!(medium.to_bytes() == before, "the medium has changed");
        let store = Store::open(Box::new(medium), &options()).unwrap();
        let kv = Kv::find(&store, SnodeId::FIRST, "pairs").unwrap().unwrap();
        kv.put(b"new", b"").unwrap();
    }
}

#[test]
fn a_file_that_is_opened_to_be_read_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let medium = Arc::new(MemoryStore::new());
    drop(made(&medium));
    std::fs::write(&path, medium.to_bytes()).unwrap();
    let file = FileStore::open_read_only(&path).unwrap();
    let store = Store::open_read_only(Box::new(file), &options()).unwrap();
    look(&store);
    assert!(matches!(FileStore::open(&path, ReadPath::Kernel), Err(Error::InUse { .. })));
    drop(store);
    assert!(std::fs::read(&path).unwrap() == medium.to_bytes());
}
