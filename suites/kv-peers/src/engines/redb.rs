//! redb, with `Immediate` against `None`. Batches are put in the order of their keys.

use crate::engine::{Config, Durability, Engine, Result};
use crate::workload::{KEY, Key, Pair};
use redb::{Database, ReadableDatabase, TableDefinition};

const PAIRS: TableDefinition<'_, &[u8; KEY], &[u8]> = TableDefinition::new("pairs");

pub struct Redb {
    db: Database,
    durability: Durability,
}

impl Redb {
    pub fn open(config: &Config<'_>) -> Result<Redb> {
        let mut builder = Database::builder();
        builder.set_cache_size(config.cache as usize);
        let db = builder.create(config.dir.join("db"))?;
        let tx = db.begin_write()?;
        tx.open_table(PAIRS)?;
        tx.commit()?;
        Ok(Redb { db, durability: config.durability })
    }

    fn begin(&self) -> Result<redb::WriteTransaction> {
        let mut tx = self.db.begin_write()?;
        if self.durability == Durability::End {
            tx.set_durability(redb::Durability::None)?;
        }
        Ok(tx)
    }
}

impl Engine for Redb {
    fn put(&mut self, batch: &[Pair]) -> Result<()> {
        let mut sorted: Vec<_> = batch.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        let tx = self.begin()?;
        {
            let mut table = tx.open_table(PAIRS)?;
            for (key, value) in sorted {
                table.insert(key, value.as_slice())?;
            }
        }
        Ok(tx.commit()?)
    }

    fn get(&mut self, keys: &[Key], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let table = self.db.begin_read()?.open_table(PAIRS)?;
        for (at, key) in keys.iter().enumerate() {
            let found = table.get(key)?;
            each(at, found.as_ref().map(|value| value.value()));
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        let mut sorted: Vec<_> = keys.iter().collect();
        sorted.sort_unstable();
        let tx = self.begin()?;
        {
            let mut table = tx.open_table(PAIRS)?;
            for key in sorted {
                table.remove(key)?;
            }
        }
        Ok(tx.commit()?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.db.begin_write()?.commit()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
