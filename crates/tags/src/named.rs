//! Named snapshots: states of the store that stay on the medium until somebody deletes them.
//!
//! A checkpoint never changes once it is written; only its blocks are given out again. So a named snapshot is the superblock of a
//! checkpoint with a name, and the blocks that it refers to are [held](Space::hold): pages that the store gives up stay where they are as
//! long as a snapshot has them.
//!
//! ```text
//!  superblock --> leaves, catalog --> pages of now -.
//!            '--> list of snapshots                  >-- some pages are both's
//!                   "daily": superblock of then --> leaves, catalog --> pages of then
//! ```
//!
//! The list is written by the checkpoint that a change of it makes, and stands in the superblock. A snapshot is read as a store of its own, to be read
//! only: [`at_snapshot`] shows the medium with the superblock of then and an empty journal.

use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use crate::layout::superblock::{Blob, COPIES, Superblock};
use crate::page_store::PageStore;
use crate::reads::{self, KnownPages};
use crate::space::{Run, Space};
use std::io::{self, IoSlice};
use weft_core::Tag;
use weft_core::codec::{Reader, WriteFields};
use zerocopy::{FromBytes, IntoBytes};

/// Named snapshots of a store, at most: each is looked through when a block is given up.
pub(crate) const SNAPSHOTS_MAX: usize = 64;
/// A snapshot that stays until it is deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedSnapshot {
    /// Its name.
    pub name: String,
    /// When it was made: nanoseconds since 1970.
    pub made_ns: u64,
    /// The number of the last commit in it.
    pub last_commit: u64,
}

/// A snapshot of the list.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    pub made_ns: u64,
    pub superblock: Superblock,
}

/// The named snapshots of an open store, and what the next checkpoint makes of their list.
#[derive(Default)]
pub(crate) struct Named {
    pub all: Vec<(String, Kept)>,
    pub pending: Option<(Vec<u8>, [Run; 2])>,
}

impl Named {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, kept) in &self.all {
            out.put_string(name.as_bytes());
            out.put_u64(kept.made_ns);
            out.extend_from_slice(kept.superblock.as_bytes());
        }
        out
    }

    fn decode(raw: &[u8]) -> Option<Named> {
        let (mut r, mut all) = (Reader::new(raw), Vec::new());
        while r.remaining() > 0 {
            let name = std::str::from_utf8(r.string().ok()?).ok()?.to_string();
            let made_ns = r.u64().ok()?;
            let superblock = Superblock::read_from_bytes(r.bytes(size_of::<Superblock>()).ok()?).ok()?;
            superblock.check().ok()?;
            all.push((name, Kept { made_ns, superblock }));
        }
        (all.len() <= SNAPSHOTS_MAX).then_some(Named { all, pending: None })
    }

    /// The snapshots that a superblock leads to.
    fn of(medium: &dyn PageStore, blob: Blob) -> Result<Named> {
        if blob.block == 0 {
            return Ok(Named::default());
        }
        let raw = reads::blob(medium, blob);
        let named = raw.and_then(|raw| Named::decode(&raw));
        named.ok_or_else(|| Error::damaged("list of snapshots: no copy can be read"))
    }

    /// Reads the list when a store is opened, and holds what its snapshots refer to. The caller has claimed what the store itself refers to.
    pub(crate) fn open(medium: &dyn PageStore, superblock: &Superblock, space: &mut Space) -> Result<Named> {
        for run in superblock.snapshots.copies() {
            space.claim(run, "list of snapshots")?;
        }
        let named = Named::of(medium, superblock.snapshots)?;
        for (_, kept) in &named.all {
            space.hold(&blocks_of(medium, &kept.superblock)?)?;
        }
        Ok(named)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What the checkpoint under way writes as the list, if that has changed, and where.
    pub(crate) fn take_pending(&mut self) -> Option<(Vec<u8>, [Run; 2])> {
        self.pending.take()
    }
}

/// All blocks that a checkpoint refers to.
pub(crate) fn blocks_of(medium: &dyn PageStore, superblock: &Superblock) -> Result<Vec<u64>> {
    let of_copy = |run: Run| run.block..run.block + run.blocks;
    let lists = [superblock.leaves, superblock.catalog].into_iter().flat_map(|blob| blob.copies());
    let mut blocks: Vec<u64> = lists.flat_map(of_copy).collect();
    let list = reads::blob(medium, superblock.leaves);
    let list = list.ok_or_else(|| Error::damaged("a snapshot's list of leaves: no copy can be read"))?;
    let leaves: Vec<_> = reads::leaves_in(&list).collect();
    blocks.extend(leaves.iter().flat_map(|(_, leaf)| leaf.blocks));
    let mut known = KnownPages::default();
    reads::each_leaf(medium, leaves, |leaf, _, raw| {
        let lost = || Error::damaged(format!("leaf {leaf} of a snapshot's descriptors: no copy can be read"));
        let (_, raw) = raw.ok_or_else(lost)?;
        known.add_leaf(leaf, raw)
    })?;
    blocks.extend(known.into_pages().map(|page| page.block));
    Ok(blocks)
}

/// A medium as it was for a snapshot. It is only read.
struct SnapshotMedium {
    below: Box<dyn PageStore>,
    superblock: Superblock,
}

/// The medium of a store as a named snapshot has it, to be opened by [`Store::open_read_only`](crate::Store::open_read_only). The store is not open otherwise.
///
/// ```
/// use weft_tags::{MemoryStore, Options, Store, at_snapshot};
/// use std::sync::Arc;
///
/// let medium = Arc::new(MemoryStore::new());
/// let store = Store::create(Box::new(medium.clone()), &Options::default())?;
/// store.create_snapshot("before")?;
/// store.edge_type("later", weft_tags::InfoForm::Number)?;
/// store.close()?;
/// let then = Store::open_read_only(at_snapshot(Box::new(medium), "before")?, &Options::default())?;
/// assert!(then.edge_types().is_empty());
/// # Ok::<(), weft_tags::Error>(())
/// ```
///
/// # Errors
/// [`Error::NoSuchSnapshot`], [`Error::NotAStore`], [`Error::Version`], [`Error::Damaged`].
pub fn at_snapshot(medium: Box<dyn PageStore>, name: &str) -> Result<Box<dyn PageStore>> {
    let newest = reads::superblocks(&*medium)?.into_iter().flatten().max_by_key(|copy| copy.epoch);
    let newest = newest.ok_or_else(|| Error::damaged("both copies of the superblock"))?;
    let named = Named::of(&*medium, newest.snapshots)?;
    let found = named.all.into_iter().find(|(known, _)| known == name);
    let (_, kept) = found.ok_or_else(|| Error::NoSuchSnapshot(name.into()))?;
    Ok(Box::new(SnapshotMedium { below: medium, superblock: kept.superblock }))
}

impl PageStore for SnapshotMedium {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        let Superblock { journal_block, journal_blocks, .. } = self.superblock;
        let journal = journal_block..journal_block.saturating_add(journal_blocks);
        let mut seal = None;
        for (block, page) in (block..).zip(out.chunks_exact_mut(PAGE_BYTES)) {
            if block < COPIES {
                page.copy_from_slice(seal.get_or_insert_with(|| self.superblock.encode()));
            } else if journal.contains(&block) {
                // Its records are of later.
                page.fill(0);
            } else {
                self.below.read(block, page)?;
            }
        }
        Ok(())
    }

    fn write(&self, _block: u64, _tag: &Tag, _parts: &[IoSlice<'_>]) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.below.blocks()
    }

    fn grow(&self, _blocks: u64) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem))
    }
}
