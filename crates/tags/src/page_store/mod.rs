//! The medium of a store: a file, a block device, memory, or flash (which is another crate's: it implements [`PageStore`]).
//!
//! The store asks little of it: blocks of 4096 bytes by number, writes that may stay in a volatile cache and may reach
//! the medium in any order until the next [`PageStore::sync`], growth, and to be cut off behind what is in use. It never overwrites a block that the last
//! checkpoint or the journal refers to, so nothing here has to be atomic.

mod file;
mod mapping;
mod memory;

pub use file::{FileStore, ReadPath};
pub use mapping::Mapping;
pub use memory::MemoryStore;

use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use std::io::{self, IoSlice};
use std::sync::Arc;
use weft_core::{DataClass, Tag};

/// Where a page can be read.
pub type PageAddress = *const [u8; PAGE_BYTES];

/// The tag of the journal's blocks: they live until the next checkpoint, and die together.
pub const JOURNAL_TAG: Tag = Tag { class: DataClass::Log, ..Tag::METADATA };

/// Blocks that are read at the same time, and where to.
pub(crate) type Reads<'r> = Vec<(u64, &'r mut [u8])>;

/// A medium of blocks of [`PAGE_BYTES`](crate::PAGE_BYTES).
pub trait PageStore: Send + Sync {
    /// Reads whole blocks from `block` on. `out` is aligned to a page and a multiple of it.
    ///
    /// # Errors
    /// What the medium reports; a read beyond its end is an error.
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes whole pages, one after the other, from `block` on. Each part is aligned to a page and a multiple of it. The tag says what is
    /// known of them all: owner, class and flags of the s-node, [`Origin`](weft_core::Origin); a file has no use for it, flash does.
    ///
    /// # Errors
    /// What the medium reports; a write beyond its end is an error.
    fn write(&self, block: u64, tag: &Tag, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Reads single pages from many blocks, at the same time where the medium can.
    ///
    /// # Errors
    /// As [`PageStore::read`], for any of them.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(block, out)| self.read(*block, out))
    }

    /// Begins a write of whole pages at these addresses, one after the other, from `block` on. It may go on after this
    /// returns, until it is waited for; what it writes of a page that is changed meanwhile is anything.
    ///
    /// # Errors
    /// As [`PageStore::write`].
    ///
    /// # Safety
    /// The pages can be read at their addresses until the returned write was waited for or dropped.
    unsafe fn begin_write(&self, block: u64, tag: &Tag, pages: &[PageAddress]) -> io::Result<PendingWrite> {
        // SAFETY: the caller's promise; what is changed meanwhile is not read by this program.
        let parts: Vec<_> = pages.iter().map(|page| IoSlice::new(unsafe { &**page })).collect();
        self.write(block, tag, &parts)?;
        Ok(PendingWrite::done())
    }

    /// The blocks where they can be read without a copy, for a medium that has them there.
    fn mapping(&self) -> Option<Arc<Mapping>> {
        None
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// What the medium reports.
    fn sync(&self) -> io::Result<()>;

    /// Tells the medium that what is in these blocks, which are overwritten, is not needed, for one that can make use of that.
    /// They may be read as anything afterwards, and have their room still: a write of them does not find the medium full.
    fn discard(&self, _block: u64, _blocks: u64) {}

    /// Whether the medium makes use of [`PageStore::free`]. To list free blocks takes time that is spent only then.
    fn uses_free(&self) -> bool {
        false
    }

    /// Tells the medium that nothing refers to these runs of blocks any more, each its first block and their number: no durable checkpoint,
    /// and no record of the journal. They may be read as anything until they are written again, and have their room still. Flash need not move
    /// them any more; a file keeps them as they are.
    fn free(&self, _runs: &[(u64, u64)]) {}

    /// Whether an overwrite replaces what was in a block, so that it helps to erase it. On flash it does not: blocks are [freed](PageStore::free)
    /// there and [erased](PageStore::erase).
    fn overwrites(&self) -> bool {
        true
    }

    /// Makes what these runs of blocks, each its first block and their number, ever held unreadable below the medium too, for one that can:
    /// flash writes elsewhere what is overwritten, and has an erasure of its own for the copies. Called after the blocks were overwritten,
    /// where that [helps](PageStore::overwrites), and before they count as erased. They may be read as anything afterwards.
    /// By default nothing: then no more is promised than that they are overwritten.
    ///
    /// # Errors
    /// What the medium reports; the store stops then.
    fn erase(&self, _runs: &[(u64, u64)]) -> io::Result<()> {
        Ok(())
    }

    /// Whether nothing of what was overwritten and [erased](PageStore::erase) can be read any more, as far as the medium can tell.
    fn erases(&self) -> bool {
        true
    }

    /// Whether what is written is kept. Otherwise it is of this opening alone, and nothing below is erased by it.
    fn keeps_writes(&self) -> bool {
        true
    }

    /// Blocks there are now.
    fn blocks(&self) -> u64;

    /// Makes the medium at least `blocks` long, where it can without taking room for them: [`PageStore::reserve`] takes that.
    ///
    /// # Errors
    /// `StorageFull` where it cannot grow so far.
    fn grow(&self, blocks: u64) -> io::Result<()>;

    /// Takes room for blocks, so that no write of them finds the medium full. They may lie behind its end, where it grows to next.
    ///
    /// # Errors
    /// `StorageFull` where there is none.
    fn reserve(&self, _block: u64, _blocks: u64) -> io::Result<()> {
        Ok(())
    }

    /// Writes zeros to blocks for which room was taken, where that makes a later write and its sync cheaper, as it does in a file.
    ///
    /// # Errors
    /// As [`PageStore::write`].
    fn touch(&self, _block: u64, _blocks: u64) -> io::Result<()> {
        Ok(())
    }

    /// Gives back what lies from block `blocks` on, of which nothing is needed, written or read meanwhile. Returns how many
    /// blocks there are afterwards: a medium of fixed size keeps its size and gets a discard of them. A power
    /// cut before the next [`PageStore::sync`] may leave the medium as long as it was.
    ///
    /// # Errors
    /// What the medium reports; it is as long as before then.
    fn cut(&self, blocks: u64) -> io::Result<u64> {
        let now = self.blocks();
        if blocks < now {
            self.discard(blocks, now - blocks);
        }
        Ok(now)
    }
}

impl dyn PageStore + '_ {
    /// Writes pages that lie one after the other, from `block` on.
    ///
    /// # Errors
    /// [`Error::Io`], which says `what` was to be done.
    pub(crate) fn put(&self, what: &'static str, block: u64, tag: &Tag, pages: &[u8]) -> Result<()> {
        self.write(block, tag, &[IoSlice::new(pages)]).map_err(Error::io(what, block))
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// As [`PageStore::put`].
    pub(crate) fn flush(&self, what: &'static str) -> Result<()> {
        self.sync().map_err(Error::io(what, 0))
    }
}

/// Where pages can be read, in any thread: who makes the list says until when.
pub(crate) struct PageAddresses(pub Vec<PageAddress>);

// SAFETY: addresses alone; they are read by promise of `PageStore::begin_write`, which does not ask for a thread.
unsafe impl Send for PageAddresses {}

/// A write that may be under way. Dropping it waits, too.
pub struct PendingWrite(Option<Box<dyn FnOnce() -> io::Result<()> + Send>>);

impl PendingWrite {
    /// A write that has ended.
    pub fn done() -> PendingWrite {
        PendingWrite(None)
    }

    /// A write that has ended when `wait` returns, which is called once.
    pub fn until(wait: impl FnOnce() -> io::Result<()> + Send + 'static) -> PendingWrite {
        PendingWrite(Some(Box::new(wait)))
    }

    /// Waits for the end of the write.
    ///
    /// # Errors
    /// What the medium reports.
    pub fn wait(mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), |wait| wait())
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        // Whoever drops it does not want to know.
        let _ = self.0.take().map(|wait| wait());
    }
}

/// Makes calls that go to what is shared.
macro_rules! forward {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $answer:ty;)*) => {$(
        fn $name(&self $(, $arg: $type)*) -> $answer {
            (**self).$name($($arg),*)
        }
    )*};
}

impl<S: PageStore + ?Sized> PageStore for Arc<S> {
    forward! {
        fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()>;
        fn write(&self, block: u64, tag: &Tag, parts: &[IoSlice<'_>]) -> io::Result<()>;
        fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()>;
        fn mapping(&self) -> Option<Arc<Mapping>>;
        fn sync(&self) -> io::Result<()>;
        fn discard(&self, block: u64, blocks: u64) -> ();
        fn uses_free(&self) -> bool;
        fn free(&self, runs: &[(u64, u64)]) -> ();
        fn overwrites(&self) -> bool;
        fn erase(&self, runs: &[(u64, u64)]) -> io::Result<()>;
        fn erases(&self) -> bool;
        fn keeps_writes(&self) -> bool;
        fn blocks(&self) -> u64;
        fn grow(&self, blocks: u64) -> io::Result<()>;
        fn reserve(&self, block: u64, blocks: u64) -> io::Result<()>;
        fn touch(&self, block: u64, blocks: u64) -> io::Result<()>;
        fn cut(&self, blocks: u64) -> io::Result<u64>;
    }

    unsafe fn begin_write(&self, block: u64, tag: &Tag, pages: &[PageAddress]) -> io::Result<PendingWrite> {
        // SAFETY: the caller's promise is the same.
        unsafe { (**self).begin_write(block, tag, pages) }
    }
}

/// The error of an access beyond the end.
fn beyond_end(block: u64) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("block {block} is beyond the end of the medium"))
}
