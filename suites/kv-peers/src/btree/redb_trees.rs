//! redb: a table a tree, durable at the end. Batches are put in the order of their keys.

use crate::{Result, TREES, Trees, get_sorted};
use redb::{Database, Durability, ReadableDatabase, TableDefinition, WriteTransaction};
use std::path::Path;

const NAMES: [&str; TREES] = ["tree 0", "tree 1", "tree 2", "tree 3", "tree 4"];

pub struct Redb {
    db: Database,
}

fn table(tree: usize) -> TableDefinition<'static, u32, u64> {
    TableDefinition::new(NAMES[tree])
}

pub fn fill<I: Iterator<Item = (u32, u64)>>(dir: &Path, cache: u64, pairs: impl Fn() -> I) -> Result<()> {
    let redb = Redb::open(dir, cache)?;
    for at in 0..TREES {
        let mut pairs = pairs().peekable();
        while pairs.peek().is_some() {
            let tx = redb.begin()?;
            {
                let mut table = tx.open_table(table(at))?;
                for (key, value) in pairs.by_ref().take(1_000_000) {
                    table.insert(key, value)?;
                }
            }
            tx.commit()?;
        }
    }
    Ok(redb.db.begin_write()?.commit()?)
}

impl Redb {
    pub fn open(dir: &Path, cache: u64) -> Result<Redb> {
        let mut builder = Database::builder();
        builder.set_cache_size(cache as usize);
        Ok(Redb { db: builder.create(dir.join("db"))? })
    }

    fn begin(&self) -> Result<WriteTransaction> {
        let mut tx = self.db.begin_write()?;
        tx.set_durability(Durability::None)?;
        Ok(tx)
    }
}

impl Trees for Redb {
    fn get(&mut self, tree: usize, keys: &[u32], each: &mut dyn FnMut(Option<u64>)) -> Result<()> {
        let table = self.db.begin_read()?.open_table(table(tree))?;
        get_sorted(keys, |key| Ok(table.get(key)?.map(|value| value.value())), each)
    }

    fn insert(&mut self, tree: usize, pairs: &[(u32, u64)]) -> Result<()> {
        let mut sorted = pairs.to_vec();
        sorted.sort_unstable();
        let tx = self.begin()?;
        {
            let mut table = tx.open_table(table(tree))?;
            for (key, value) in sorted {
                table.insert(key, value)?;
            }
        }
        Ok(tx.commit()?)
    }

    fn delete(&mut self, tree: usize, keys: &[u32]) -> Result<u64> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let (tx, mut found) = (self.begin()?, 0);
        {
            let mut table = tx.open_table(table(tree))?;
            for key in sorted {
                found += u64::from(table.remove(key)?.is_some());
            }
        }
        tx.commit()?;
        Ok(found)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.db.begin_write()?.commit()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
