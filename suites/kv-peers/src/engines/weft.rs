//! weft's key-value store.

use crate::engine::{Config, Durability, Engine, Result};
use crate::workload::{Key, Pair};
use weft_tags::{FileStore, Kv, KvChange, Options, ReadPath, SnodeId, Store};

pub struct Weft {
    kv: Kv<'static>,
    store: *mut Store,
}

impl Weft {
    pub fn open(config: &Config<'_>) -> Result<Weft> {
        let path = config.dir.join("store");
        let reads = match (config.direct, config.mapped) {
            (true, _) => ReadPath::Direct,
            (_, true) => ReadPath::Mapped,
            _ => ReadPath::Kernel,
        };
        let options = Options { cache_bytes: config.cache, ..Options::default() };
        let store = if path.exists() {
            Store::open(Box::new(FileStore::open(&path, reads)?), &options)?
        } else {
            Store::create(Box::new(FileStore::create(&path, reads)?), &options)?
        };
        let store = Box::into_raw(Box::new(store));
        // SAFETY: the store is freed in `close` alone, after `kv` is gone.
        let mut kv = Kv::open(unsafe { &*store }, SnodeId::FIRST, "pairs")?;
        if config.durability == Durability::End {
            kv.durability(weft_tags::Durability::None);
        }
        Ok(Weft { kv, store })
    }
}

impl Engine for Weft {
    fn put(&mut self, batch: &[Pair]) -> Result<()> {
        let changes: Vec<_> = batch.iter().map(|(key, value)| KvChange::Put(key, value)).collect();
        self.kv.change(&changes)?;
        Ok(())
    }

    fn get(&mut self, keys: &[Key], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        Ok(self.kv.get_many(keys, each)?)
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        let changes: Vec<_> = keys.iter().map(|key| KvChange::Delete(key)).collect();
        self.kv.change(&changes)?;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        // SAFETY: as in `open`.
        Ok(unsafe { &*self.store }.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: it came from a box in `open`; `kv`, which borrows it, is not used any more and does nothing when it is dropped.
        Ok(unsafe { Box::from_raw(self.store) }.close()?)
    }

    fn put_one(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.kv.put(key, value)?)
    }

    fn get_one(&mut self, key: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.kv.get(key)?;
        Ok(value.is_some_and(|value| {
            each(&value);
            true
        }))
    }

    fn scan(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for pair in self.kv.scan()? {
            let (key, value) = pair?;
            each(&key, &value);
        }
        Ok(())
    }
}
