//! Where a store's blocks are kept: a file or block device, memory, or a medium that loses power.
//!
//! The store asks little of it: blocks of 4096 bytes by number, writes that may stay in a volatile cache and may reach
//! the medium in any order until the next [`PageStore::sync`], and growth. It never overwrites a block that the last
//! checkpoint or the journal refers to, so nothing here has to be atomic.

mod file;
mod memory;
mod power_cut;

pub use file::{FileStore, ReadPath};
pub use memory::MemoryStore;
pub use power_cut::PowerCutStore;

use std::io::{self, IoSlice};
use std::sync::Arc;

/// A medium of blocks of [`PAGE_BYTES`](crate::PAGE_BYTES).
pub trait PageStore: Send + Sync {
    /// Reads whole blocks from `block` on. `out` is aligned to a page and a multiple of it.
    ///
    /// # Errors
    /// What the medium reports; a read beyond its end is an error.
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes whole pages, one after the other, from `block` on. Each part is aligned to a page and a multiple of it.
    ///
    /// # Errors
    /// What the medium reports; a write beyond its end is an error.
    fn write(&self, block: u64, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// What the medium reports.
    fn sync(&self) -> io::Result<()>;

    /// Blocks there are now.
    fn blocks(&self) -> u64;

    /// Makes the medium at least `blocks` long.
    ///
    /// # Errors
    /// `StorageFull` where it cannot grow so far.
    fn grow(&self, blocks: u64) -> io::Result<()>;
}

impl<S: PageStore + ?Sized> PageStore for Arc<S> {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        (**self).read(block, out)
    }

    fn write(&self, block: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        (**self).write(block, parts)
    }

    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }

    fn blocks(&self) -> u64 {
        (**self).blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        (**self).grow(blocks)
    }
}

/// The error of an access beyond the end.
fn beyond_end(block: u64) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("block {block} is beyond the end of the medium"))
}
