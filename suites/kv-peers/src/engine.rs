//! What every store has to do, and which stores there are.

use crate::workload::{Key, Pair};
use std::error::Error;
use std::path::Path;

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// When what was written is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Durability {
    /// When a batch returns.
    Batch,
    /// At the one sync at the end.
    End,
}

/// How a store is opened.
pub struct Config<'a> {
    pub dir: &'a Path,
    pub durability: Durability,
    /// Bytes of the store's own cache.
    pub cache: u64,
    /// Pairs that will be there.
    pub pairs: u64,
    /// Reads go past the kernel's cache where the store can.
    pub direct: bool,
    /// weft reads where the kernel's cache has its pages.
    pub mapped: bool,
}

/// A store under test. Batches are atomic where the store can do that.
pub trait Engine {
    fn put(&mut self, batch: &[Pair]) -> Result<()>;
    /// Calls `each` with every key's place and value.
    fn get(&mut self, keys: &[Key], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;
    fn delete(&mut self, keys: &[Key]) -> Result<()>;
    /// Makes everything durable.
    fn sync(&mut self) -> Result<()>;
    fn close(self: Box<Self>) -> Result<()>;
    /// Puts one pair, by the store's call for one.
    fn put_one(&mut self, _key: &[u8], _value: &[u8]) -> Result<()> {
        Err("this store is not measured one operation at a time".into())
    }
    /// Calls `each` with the value of a key, by the store's call for one; whether there is one.
    fn get_one(&mut self, _key: &[u8], _each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Err("this store is not measured one operation at a time".into())
    }
    /// Calls `each` with all pairs, in the order that is cheapest for the store.
    fn scan(&mut self, _each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        Err("this store is not measured one operation at a time".into())
    }
}

/// The stores that this program was built with.
pub const NAMES: &[&str] = &[
    "weft",
    "bound",
    #[cfg(feature = "leveldb")]
    "leveldb",
    #[cfg(feature = "lmdb")]
    "lmdb",
    #[cfg(feature = "lmdb")]
    "lmdb-map",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    #[cfg(feature = "tkrzw")]
    "tkrzw",
    #[cfg(feature = "redb")]
    "redb",
    #[cfg(feature = "fjall")]
    "fjall",
];

/// Opens a store by name, or makes it.
pub fn open(name: &str, config: &Config<'_>) -> Result<Box<dyn Engine>> {
    use crate::engines::*;
    Ok(match name {
        "weft" => Box::new(weft::Weft::open(config)?),
        "bound" => Box::new(bound::Bound::open(config)?),
        #[cfg(feature = "leveldb")]
        "leveldb" => Box::new(leveldb::LevelDb::open(config)?),
        #[cfg(feature = "lmdb")]
        "lmdb" => Box::new(lmdb::Lmdb::open(config, false)?),
        #[cfg(feature = "lmdb")]
        "lmdb-map" => Box::new(lmdb::Lmdb::open(config, true)?),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(rocksdb::RocksDb::open(config)?),
        #[cfg(feature = "tkrzw")]
        "tkrzw" => Box::new(tkrzw::Tkrzw::open(config)?),
        #[cfg(feature = "redb")]
        "redb" => Box::new(redb::Redb::open(config)?),
        #[cfg(feature = "fjall")]
        "fjall" => Box::new(fjall::Fjall::open(config)?),
        _ => return Err(format!("no store '{name}'; there are: {}", NAMES.join(", ")).into()),
    })
}
