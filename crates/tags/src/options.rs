//! How a store is made and opened.

use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use crate::layout::superblock::{JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN};
use crate::page_store::Mapping;
use crate::pages::eviction::{EvictionPolicy, SecondChance};
use crate::pages::pool::Pool;
use std::sync::Arc;
use std::time::Duration;

/// Options of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory for pages. At least 1 MiB.
    pub cache_bytes: u64,
    /// Bytes of the journal of a store that is created. When it is full there is a checkpoint, so it bounds the time
    /// of recovery, and the memory that it takes. 256 KiB to 4 GiB.
    pub journal_bytes: u64,
    /// The most bytes that the medium may grow to.
    pub store_bytes_max: u64,
    /// Whether memory for pages is asked for in huge pages. They make what stays in memory faster (a random read 224 ns
    /// instead of 300), but a virtual machine may take milliseconds to find one: where most pages are touched once,
    /// ordinary pages are the better choice.
    pub huge_pages: bool,
    /// How long a transaction waits for an s-node that another one holds, before it is refused with
    /// [`Error::LockTimeout`]. [`Duration::MAX`] is without a limit.
    pub lock_wait: Duration,
    /// Which edges callers with credentials may make.
    pub edge_rule: EdgeRule,
    /// Which pages leave the cache when it needs room.
    pub eviction: Arc<dyn EvictionPolicy>,
    /// What is written over the blocks that s-nodes with secure deletion give up, before the zeros that are always the last pass. The
    /// three passes of random bytes of ADAPT are `vec![ErasePass::Random; 3]`.
    pub erase_passes: Vec<ErasePass>,
}

/// A pass of an erasure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErasePass {
    /// The same byte everywhere.
    Byte(u8),
    /// Random bytes.
    Random,
}

/// Which edges callers with credentials may make, of those whose source they may write. The store's own process may make all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EdgeRule {
    /// Table 3.5.1 of "ADAPT": within an s-node, and to the root of any other, whatever the caller may do there.
    #[default]
    Adapt,
    /// To any node that the caller may write.
    Writable,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cache_bytes: 256 << 20,
            journal_bytes: 256 << 20,
            store_bytes_max: 8 << 40,
            huge_pages: true,
            lock_wait: Duration::from_secs(10),
            edge_rule: EdgeRule::Adapt,
            eviction: Arc::new(SecondChance),
            erase_passes: Vec::new(),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        for (what, value, bounds, range) in [
            ("cache_bytes", self.cache_bytes, 1 << 20..=u64::MAX, "at least 1 MiB"),
            ("journal_bytes", self.journal_bytes, JOURNAL_BYTES_MIN..=u64::MAX, "at least 256 KiB"),
            ("journal_bytes", self.journal_bytes, 0..=JOURNAL_BYTES_MAX, "at most 4 GiB"),
            ("store_bytes_max", self.store_bytes_max, 1 << 20..=u64::MAX, "at least 1 MiB"),
        ] {
            if !bounds.contains(&value) {
                return Err(Error::BadOption { what, value, range });
            }
        }
        Ok(())
    }

    /// The cache of a medium.
    pub(crate) fn pool(&self, mapped: Option<Arc<Mapping>>) -> Result<Pool> {
        let pages = (self.cache_bytes as usize / PAGE_BYTES).min(u32::MAX as usize - 1);
        Pool::new(pages, self.huge_pages, self.eviction.clone(), mapped)
    }
}

/// When a commit is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When [`crate::Transaction::commit`] returns.
    #[default]
    Sync,
    /// So many milliseconds after the commit has returned, or earlier: then at the latest a thread of the store's own begins
    /// a sync, one for all commits that wait, and the commit is durable when that has ended. A commit, checkpoint or close
    /// after a sync that failed reports its error. Until then as with `None`.
    Periodic(u32),
    /// At the next commit with `Sync`, the next [`crate::Store::sync`] or the next checkpoint. What a power cut takes
    /// is the last commits, never one from before another that stays.
    None,
}
