//! Weft's B+trees in a tag store, durable at the end.

use crate::{Result, TREES, Trees};
use std::path::Path;
use weft_tags::{BTree, BTreeForm, Durability, FileStore, Options, ReadPath, SnodeId, Store};

pub struct Weft {
    store: Box<Store>,
}

fn options(cache: u64) -> Options {
    Options { cache_bytes: cache, journal_bytes: 64 << 20, huge_pages: false, ..Options::default() }
}

fn tree(store: &Store, at: usize) -> Result<BTree<'_>> {
    let mut tree = BTree::open(store, SnodeId::FIRST, &format!("tree {at}"), BTreeForm::Fixed)?;
    tree.durability(Durability::None);
    Ok(tree)
}

pub fn fill<I: Iterator<Item = (u32, u64)>>(
    dir: &Path,
    cache: u64,
    percent: u8,
    pairs: impl Fn() -> I,
) -> Result<()> {
    let medium = FileStore::create(&dir.join("store"), ReadPath::Kernel)?;
    let store = Store::create(Box::new(medium), &options(cache))?;
    for at in 0..TREES {
        let pairs = pairs().map(|(key, value)| (key.to_be_bytes().to_vec(), value.to_le_bytes().to_vec()));
        tree(&store, at)?.load(pairs, percent)?;
    }
    store.close()?;
    Ok(())
}

impl Weft {
    pub fn open(dir: &Path, cache: u64) -> Result<Weft> {
        let medium = FileStore::open(&dir.join("store"), ReadPath::Mapped)?;
        Ok(Weft { store: Box::new(Store::open(Box::new(medium), &options(cache))?) })
    }
}

impl Trees for Weft {
    fn get(&mut self, at: usize, keys: &[u32], each: &mut dyn FnMut(Option<u64>)) -> Result<()> {
        let mut sorted: Vec<(u32, usize)> = keys.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        let mut values = vec![None; keys.len()];
        let wanted: Vec<u32> = sorted.iter().map(|(key, _)| *key).collect();
        tree(&self.store, at)?.get_fixed(&wanted, |at, found| values[sorted[at].1] = found)?;
        values.into_iter().for_each(each);
        Ok(())
    }

    fn insert(&mut self, at: usize, pairs: &[(u32, u64)]) -> Result<()> {
        let tree = tree(&self.store, at)?;
        let mut tx = self.store.begin();
        tx.durability(Durability::None);
        tree.insert_fixed_in(&mut tx, pairs, |_, _| ())?;
        tx.commit()?;
        Ok(())
    }

    fn delete(&mut self, at: usize, keys: &[u32]) -> Result<u64> {
        let tree = tree(&self.store, at)?;
        let mut tx = self.store.begin();
        tx.durability(Durability::None);
        let mut found = 0;
        tree.delete_fixed_in(&mut tx, keys, |_, was_there| found += u64::from(was_there))?;
        tx.commit()?;
        Ok(found)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.store.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.store.close()?)
    }
}
