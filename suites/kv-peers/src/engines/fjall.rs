//! fjall, with `SyncData` at the end of a batch, no compression.

use crate::engine::{Config, Durability, Engine, Result};
use crate::workload::{Key, Pair};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

pub struct Fjall {
    db: Database,
    pairs: Keyspace,
    durability: Durability,
}

impl Fjall {
    pub fn open(config: &Config<'_>) -> Result<Fjall> {
        let db = Database::builder(config.dir.join("db")).cache_size(config.cache).open()?;
        let pairs = db.keyspace("pairs", || {
            KeyspaceCreateOptions::default()
                .data_block_compression_policy(fjall::config::CompressionPolicy::disabled())
        })?;
        Ok(Fjall { db, pairs, durability: config.durability })
    }

    fn batch(&self) -> fjall::OwnedWriteBatch {
        let batch = self.db.batch();
        batch.durability((self.durability == Durability::Batch).then_some(PersistMode::SyncData))
    }
}

impl Engine for Fjall {
    fn put(&mut self, pairs: &[Pair]) -> Result<()> {
        let mut batch = self.batch();
        for (key, value) in pairs {
            batch.insert(&self.pairs, key.as_slice(), value.as_slice());
        }
        Ok(batch.commit()?)
    }

    fn get(&mut self, keys: &[Key], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            each(at, self.pairs.get(key)?.as_deref());
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        let mut batch = self.batch();
        for key in keys {
            batch.remove(&self.pairs, key.as_slice());
        }
        Ok(batch.commit()?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}
