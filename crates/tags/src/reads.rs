//! Reads the metadata of a checkpoint from whichever copy is readable: for opening, backup and salvage.
//!
//! What leads to pages lies twice. A copy whose checksum does not hold, or that the medium cannot read, is as good as none, and the other
//! is used.

use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use crate::layout::leaves::{DESC_BYTES, LEAF_ENTRY_BYTES, LEAF_PAGES, Leaf};
use crate::layout::superblock::{Blob, COPIES, Superblock};
use crate::page_store::PageStore;
use crate::pages::desc::{Desc, PageKind};
use crate::space::{Run, in_runs};
use rustc_hash::FxHashMap;
use std::convert::Infallible;
use weft_core::checksum::crc32c;
use weft_core::codec::Reader;
use weft_sys::AlignedBuf;

/// Blocks read by one call: they stay in the processor's cache.
const READ_BLOCKS: usize = 64;

/// Calls `each` for these blocks, in their order, with the block's bytes, or `None` where they cannot be read.
pub(crate) fn read_each<E>(
    medium: &dyn PageStore,
    blocks: &[u64],
    mut each: impl FnMut(usize, Option<&[u8; PAGE_BYTES]>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut raw = AlignedBuf::zeroed(READ_BLOCKS * PAGE_BYTES);
    let mut at = 0;
    for run in in_runs(blocks, READ_BLOCKS, |block| *block) {
        let is_read = medium.read(run[0], &mut raw[..run.len() * PAGE_BYTES]).is_ok();
        for (block, bytes) in run.iter().zip(raw.chunks_exact_mut(PAGE_BYTES)) {
            let is_there = is_read || *block < medium.blocks() && medium.read(*block, bytes).is_ok();
            each(at, bytes.first_chunk().filter(|_| is_there))?;
            at += 1;
        }
    }
    Ok(())
}

/// The block's bytes, if its checksum holds.
pub(crate) fn page(medium: &dyn PageStore, block: u64, crc: u32) -> Option<AlignedBuf> {
    let mut raw = AlignedBuf::zeroed(PAGE_BYTES);
    (block < medium.blocks()).then_some(())?;
    medium.read(block, &mut raw).ok()?;
    (crc32c(&raw) == crc).then_some(raw)
}

/// Blocks of the medium, and how many of them cannot be read and are zero here.
pub(crate) fn area(medium: &dyn PageStore, block: u64, blocks: u64) -> (AlignedBuf, u64) {
    let mut out = AlignedBuf::zeroed(blocks as usize * PAGE_BYTES);
    let mut unread = 0;
    let wanted: Vec<u64> = (block..block + blocks).collect();
    let Ok(()) = read_each(medium, &wanted, |at, raw| -> std::result::Result<(), Infallible> {
        match raw {
            Some(raw) => out[at * PAGE_BYTES..(at + 1) * PAGE_BYTES].copy_from_slice(raw),
            None => unread += 1,
        }
        Ok(())
    });
    (out, unread)
}

/// Bytes from a block on, if they lie on the medium; what cannot be read of them is zero.
pub(crate) fn bytes(medium: &dyn PageStore, block: u64, bytes: u64) -> Option<AlignedBuf> {
    let blocks = bytes.div_ceil(PAGE_BYTES as u64).max(1);
    (block.checked_add(blocks)? <= medium.blocks()).then(|| area(medium, block, blocks).0)
}

/// A list, from the copy that can be read.
pub(crate) fn blob(medium: &dyn PageStore, blob: Blob) -> Option<Vec<u8>> {
    blob.copies().into_iter().find_map(|run| blob_at(medium, blob, run))
}

/// A list, from one of its copies.
pub(crate) fn blob_at(medium: &dyn PageStore, blob: Blob, run: Run) -> Option<Vec<u8>> {
    let raw = bytes(medium, run.block, blob.bytes)?;
    let found = raw.get(..blob.bytes as usize).filter(|found| crc32c(found) == blob.crc);
    if found.is_none() {
        tracing::warn!(block = run.block, "a copy of a list cannot be read");
    }
    found.map(<[u8]>::to_vec)
}

/// Both copies of the superblock, as far as they can be read.
///
/// # Errors
/// [`Error::NotAStore`]; [`Error::Version`]: a copy of another version is not this one's to write over.
pub(crate) fn superblocks(medium: &dyn PageStore) -> Result<[Result<Superblock>; COPIES as usize]> {
    if medium.blocks() < COPIES {
        return Err(Error::NotAStore { what: "it is shorter than two blocks".into() });
    }
    let [first, second] = [0, 1].map(|copy| {
        let unread = |_| Error::damaged(format!("copy {copy} of the superblock: the medium cannot read it"));
        let mut raw = AlignedBuf::zeroed(PAGE_BYTES);
        medium.read(copy, &mut raw).map_err(unread).and_then(|()| Superblock::decode(&raw))
    });
    match (first, second) {
        (Err(error @ Error::Version { .. }), _) | (_, Err(error @ Error::Version { .. })) => Err(error),
        copies => Ok(copies.into()),
    }
}

/// The leaves that a list names.
pub(crate) fn leaves_in(list: &[u8]) -> impl Iterator<Item = (u32, Leaf)> {
    list.chunks_exact(LEAF_ENTRY_BYTES).filter_map(|raw| {
        let mut r = Reader::new(raw);
        let (number, crc) = (r.u32().ok()?, r.u32().ok()?);
        Some((number, Leaf { blocks: [r.u64().ok()?, r.u64().ok()?], crc }))
    })
}

/// Calls `each` with leaves, in the order of their first copies, and with the copy that can be read and its bytes.
pub(crate) fn each_leaf<E>(
    medium: &dyn PageStore,
    mut leaves: Vec<(u32, Leaf)>,
    mut each: impl FnMut(u32, Leaf, Option<(usize, &[u8])>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    // Those that were written together lie together.
    leaves.sort_unstable_by_key(|(_, leaf)| leaf.blocks[0]);
    let blocks: Vec<u64> = leaves.iter().map(|(_, leaf)| leaf.blocks[0]).collect();
    read_each(medium, &blocks, |at, raw| {
        let (number, leaf) = leaves[at];
        let first = raw.filter(|raw| crc32c(*raw) == leaf.crc).map(|raw| (0, &raw[..]));
        let second = if first.is_none() { page(medium, leaf.blocks[1], leaf.crc) } else { None };
        each(number, leaf, first.or(second.as_deref().map(|raw| (1, raw))))
    })
}

/// Where a page is on the medium.
pub(crate) struct PageAt {
    pub block: u64,
    pub crc: u32,
    pub snode: u16,
}

/// Chooses, of the pages that the descriptors of a checkpoint tell of, those that belong to it: what transactions had made and not committed
/// may lie elsewhere by now. Of a node with pages of its own, only the first one says so.
#[derive(Default)]
pub(crate) struct KnownPages {
    pages: Vec<PageAt>,
    /// First pages of such nodes, and how many they have.
    heads: FxHashMap<u32, u64>,
    /// Further pages: the number of the first one, their place behind it, and where they are.
    tails: Vec<(u32, u64, PageAt)>,
}

impl KnownPages {
    /// Looks at the descriptors of a leaf.
    ///
    /// # Errors
    /// [`Error::Damaged`] for one that cannot be.
    pub(crate) fn add_leaf(&mut self, leaf: u32, raw: &[u8]) -> Result<()> {
        for (page, raw) in (leaf.saturating_mul(LEAF_PAGES)..).zip(raw.chunks_exact(DESC_BYTES)) {
            let desc = Desc::decode(raw, page)?;
            let Desc { kind, block, crc, snode, body, .. } = &desc;
            let at = PageAt { block: *block, crc: *crc, snode: *snode };
            match kind {
                PageKind::Free => {}
                _ if desc.is_left_over() => {}
                PageKind::RunTail => {
                    let head = u64::from(page).checked_sub(body[0]);
                    self.tails.extend(head.map(|head| (head as u32, body[0], at)));
                }
                PageKind::RunHead => {
                    self.heads.insert(page, body[0]);
                    self.pages.push(at);
                }
                _ => self.pages.push(at),
            }
        }
        Ok(())
    }

    /// The pages, once all leaves were looked at.
    pub(crate) fn into_pages(self) -> impl Iterator<Item = PageAt> {
        let KnownPages { pages, heads, tails } = self;
        let is_known =
            move |(head, at, _): &(u32, u64, PageAt)| heads.get(head).is_some_and(|pages| at < pages);
        pages.into_iter().chain(tails.into_iter().filter(is_known).map(|(.., at)| at))
    }
}
