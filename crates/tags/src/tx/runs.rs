//! Nodes with pages of their own, made and changed by a transaction.
//!
//! Such a page is never changed in the cache. What a transaction writes of it is kept whole, with the transaction, and goes to a new
//! block: at the commit, or before where there are many. Nobody waits for that write but syncs; who reads the page meanwhile gets it from
//! the write. The record then says where the pages are, so a part of a node of any size is written for the cost of the part.

use super::{Transaction, apply};
use crate::error::{Error, Result};
use crate::ids::{HomeId, NodeId, NodeType, PAGE_BYTES};
use crate::journal::writes::PageWrite;
use crate::layout::node::{NODE_BYTES_MAX, NODE_HEADER, run_pages, write_header};
use crate::pages::desc::{Desc, PageKind};
use crate::pages::numbers::take_numbers;
use crate::partition::{NodePlace, Partition, run_numbers, visit_bytes};
use crate::reserve::Blocks;
use crate::store::Store;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::ops::Range;
use weft_core::checksum::crc32c;
use weft_sys::AlignedBuf;

/// Pages that are written by one call, read by one step, or kept in memory for the commit.
const PAGES_AT_ONCE: usize = 256;

/// A page as a transaction has written it.
#[derive(Clone)]
pub(crate) enum NewPage {
    Memory(Box<[u8; PAGE_BYTES]>),
    Medium { block: u64, crc: u32 },
}

impl NewPage {
    /// The block that it was written to, or 0.
    pub(super) fn block(&self) -> u64 {
        match self {
            NewPage::Memory(_) => 0,
            NewPage::Medium { block, .. } => *block,
        }
    }
}

/// A node or a body, and where it is.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub node: NodeId,
    pub place: NodePlace,
}

/// What a transaction writes of a node's pages.
#[derive(Default)]
pub(crate) struct RunWrite {
    /// By their place in the run.
    pub pages: BTreeMap<u32, NewPage>,
    pub extent: Extent,
}

/// How long a run is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes at the commit, the node's header included; where nothing has changed them, those of whole pages. What a page has behind
    /// them is zero.
    pub bytes: usize,
    /// Of the pages that it had before, the first so many are still of use.
    pub kept: u32,
}

impl Extent {
    pub(crate) fn pages(self) -> u32 {
        self.bytes.div_ceil(PAGE_BYTES) as u32
    }
}

/// Fills a part of a node's data that begins at the byte given.
pub(super) type Fill<'f> = &'f mut dyn FnMut(usize, &mut [u8]) -> Result<()>;

/// What fills data with these bytes.
pub(super) fn copy_of(bytes: &[u8]) -> impl FnMut(usize, &mut [u8]) -> Result<()> + '_ {
    |at, out| {
        out.copy_from_slice(&bytes[at..at + out.len()]);
        Ok(())
    }
}

/// Likewise, of pieces that follow each other.
pub(super) fn copy_of_all(pieces: &[&[u8]]) -> impl FnMut(usize, &mut [u8]) -> Result<()> {
    move |mut from, mut out| {
        for piece in pieces {
            let rest = piece.get(from..).unwrap_or(&[]);
            let len = rest.len().min(out.len());
            out[..len].copy_from_slice(&rest[..len]);
            (from, out) = (from.saturating_sub(piece.len()), &mut out[len..]);
        }
        Ok(())
    }
}

/// Fills the pages of a new node from byte `start` on, of which its header is the first.
fn fill_pages(out: &mut [u8], start: usize, kind: NodeType, len: usize, fill: Fill<'_>) -> Result<()> {
    let end = out.len().min(NODE_HEADER + len - start);
    let header = if start == 0 { NODE_HEADER } else { 0 };
    if header > 0 {
        write_header(out, kind.0, len);
    }
    out[end..].fill(0);
    fill(start + header - NODE_HEADER, &mut out[header..end])
}

impl Transaction<'_> {
    /// Makes a node with pages of its own, and numbers for as many as `capacity` bytes of data take.
    pub(super) fn create_large(
        &self,
        snode: HomeId,
        kind: NodeType,
        (len, capacity): (usize, usize),
        is_body: bool,
        fill: Fill<'_>,
    ) -> Result<NodeId> {
        if len > NODE_BYTES_MAX {
            return Err(Error::too_large("a node", len, NODE_BYTES_MAX));
        }
        let store = self.store;
        let partition = store.partition(snode)?;
        let (pages, numbers) = (run_pages(len), run_pages(capacity.clamp(len, NODE_BYTES_MAX)));
        let head = take_numbers(&store.pool.numbers.data, numbers)?;
        let body = [u64::from(pages), 0, u64::from(is_body), u64::from(numbers)];
        let mut out = AlignedBuf::zeroed(PAGES_AT_ONCE.min(pages as usize) * PAGE_BYTES);
        for first in (0..pages).step_by(PAGES_AT_ONCE) {
            let bytes = &mut out[..PAGES_AT_ONCE.min((pages - first) as usize) * PAGE_BYTES];
            let filled = fill_pages(bytes, first as usize * PAGE_BYTES, kind, len, fill);
            let written = filled.and_then(|()| {
                let pages: Vec<u32> = (head + first..).take(bytes.len() / PAGE_BYTES).collect();
                self.write_blocks(snode, &pages, bytes, |at, block, crc| {
                    let page = head + first + at;
                    let (kind, body) = match page - head {
                        0 => (PageKind::RunHead, body),
                        at => (PageKind::RunTail, [u64::from(at), 0, 0, 0]),
                    };
                    let desc = Desc { kind, snode: snode.0, crc, block, body, ..Desc::default() };
                    store.pool.table.set(page, desc);
                    store.leaves.lock().touch(page);
                })
            });
            if let Err(error) = written {
                self.give_up_run(&mut partition.write(), (head, pages), numbers);
                return Err(error);
            }
        }
        Ok(NodeId::at(snode, head, 0))
    }

    /// Writes pages to new blocks, and says which and with which checksum each. They may still be under way when it returns.
    fn write_blocks(
        &self,
        snode: HomeId,
        pages: &[u32],
        bytes: &[u8],
        mut each: impl FnMut(u32, u64, u32),
    ) -> Result<()> {
        let (store, tag) = (self.store, self.store.pool.tag_of(snode.0));
        // What is read where the medium has it is there, and so is what is to be erased there.
        let is_now = store.medium.mapping().is_some() || store.pool.erasure.is_of(snode.0);
        let mut done = 0;
        while done < bytes.len() {
            let left = ((bytes.len() - done) / PAGE_BYTES) as u64;
            // It keeps checkpoints away until it is known what the blocks are for.
            let blocks = Blocks { taken: left, rewritten: left, freed: left, only_takes: false };
            let _room = store.admit(0, || 0, Some(blocks))?;
            let run = store.space.lock().take(left, &*store.medium)?;
            let bytes = &bytes[done..][..run.blocks as usize * PAGE_BYTES];
            let written = if is_now {
                store.medium.put("write a node", run.block, &tag, bytes)
            } else {
                let mut copy = AlignedBuf::zeroed(bytes.len());
                copy.copy_from_slice(bytes);
                let pages = pages[done / PAGE_BYTES..][..run.blocks as usize].to_vec();
                store.put_later(PageWrite::of_copy(snode, tag, run.block, pages, copy))
            };
            written.inspect_err(|_| {
                (run.block..run.block + run.blocks).for_each(|block| store.release_block(block, snode.0));
                store.pool.erasure.note_left_over();
            })?;
            for (at, (block, page)) in (run.block..).zip(bytes.chunks_exact(PAGE_BYTES)).enumerate() {
                each((done / PAGE_BYTES + at) as u32, block, crc32c(page));
            }
            done += bytes.len();
        }
        Ok(())
    }

    /// Gives up what was written of a node. The partition is held, since pages may be moved in it meanwhile.
    fn give_up_run(&self, _alone: &mut Partition, (head, pages): (u32, u32), numbers: u32) {
        (head..head + pages).for_each(|page| apply::drop_page(self.store, page));
        self.store.pool.erasure.note_left_over();
        self.store.pool.numbers.data.lock().give_back(head, numbers);
    }

    /// Bytes that a node has room for where it is, its header included.
    pub(super) fn capacity_of(&self, place: NodePlace) -> usize {
        match place.slot {
            Some(_) => place.room,
            None => run_numbers(&self.store.pool.table.describe(place.page)) as usize * PAGE_BYTES,
        }
    }

    /// The extent of a node's pages as the transaction sees it.
    fn extent_of(&self, Placed { node, place }: Placed) -> Extent {
        let whole = Extent { bytes: place.room, kept: (place.room / PAGE_BYTES) as u32 };
        self.set.runs.get(&node).map_or(whole, |run| run.extent)
    }

    /// Reads a node's bytes from byte `at` on, of which its header is the first.
    pub(super) fn read_bytes(&self, of: Placed, mut at: usize, mut out: &mut [u8]) -> Result<()> {
        let (store, Placed { node, place }) = (self.store, of);
        let written = self.set.runs.get(&node).map(|run| &run.pages);
        let step = PAGES_AT_ONCE.min(store.pool.capacity() / 4).max(1) * PAGE_BYTES;
        at += place.offset;
        while !out.is_empty() {
            let (index, inner) = ((at / PAGE_BYTES) as u32, at % PAGE_BYTES);
            let len = match written.and_then(|pages| pages.range(index..).next()) {
                Some((first, page)) if *first == index => {
                    let len = out.len().min(PAGE_BYTES - inner);
                    out[..len].copy_from_slice(&self.load(page)?[inner..inner + len]);
                    len
                }
                next => {
                    let end = next.map_or(usize::MAX, |(first, _)| *first as usize * PAGE_BYTES - at);
                    let len = out.len().min(step).min(end);
                    store.read(node.home(), |pages, _| {
                        let mut done = 0;
                        visit_bytes(pages, place.page, at..at + len, |piece| {
                            out[done..done + piece.len()].copy_from_slice(piece);
                            done += piece.len();
                        })
                    })?;
                    len
                }
            };
            at += len;
            out = &mut out[len..];
        }
        Ok(())
    }

    fn load(&self, page: &NewPage) -> Result<Box<[u8; PAGE_BYTES]>> {
        let (block, crc) = match page {
            NewPage::Memory(bytes) => return Ok(bytes.clone()),
            NewPage::Medium { block, crc } => (*block, *crc),
        };
        let mut raw = AlignedBuf::zeroed(PAGE_BYTES);
        let read = self.store.journal.writes.read(&mut vec![(block, &mut raw)], &*self.store.medium);
        read.map_err(Error::io("read a page", block))?;
        if crc32c(&raw) != crc {
            return Err(Error::damaged(format!("block {block}, which a transaction has written")));
        }
        let mut page = Box::new([0; PAGE_BYTES]);
        page.copy_from_slice(&raw);
        Ok(page)
    }

    /// Writes bytes of a node with pages of its own, of which its header is the first.
    pub(super) fn write_bytes(&mut self, of: Placed, range: Range<usize>, fill: Fill<'_>) -> Result<()> {
        self.write_pages(of, range, fill).inspect_err(|_| self.set.note_torn())
    }

    fn write_pages(&mut self, of: Placed, range: Range<usize>, fill: Fill<'_>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let (index, inner) = ((at / PAGE_BYTES) as u32, at % PAGE_BYTES);
            let part = inner..PAGE_BYTES.min(inner + range.end - at);
            let extent = self.extent_of(of);
            let known = self.set.runs.get(&of.node).and_then(|run| run.pages.get(&index));
            let mut page = match known {
                _ if part.len() == PAGE_BYTES => Box::new([0; PAGE_BYTES]),
                Some(page) => self.load(page)?,
                None if index < extent.kept => {
                    let mut page = Box::new([0; PAGE_BYTES]);
                    self.read_bytes(of, index as usize * PAGE_BYTES, &mut page[..])?;
                    page
                }
                None => Box::new([0; PAGE_BYTES]),
            };
            fill(at - range.start, &mut page[part.clone()])?;
            at += part.len();
            // The page may be one that the transaction has written when the node was longer.
            let end = extent.bytes.saturating_sub(index as usize * PAGE_BYTES).min(PAGE_BYTES);
            page[end..].fill(0);
            self.set.put_page(of.node, extent, index, NewPage::Memory(page));
            if self.set.pages_in_memory >= PAGES_AT_ONCE {
                self.spill()?;
            }
        }
        Ok(())
    }

    /// Gives a node with pages of its own a header, and as many pages as its data takes, of which the first `kept` bytes are those
    /// that it had.
    pub(super) fn set_extent(
        &mut self,
        of: Placed,
        (bytes, kept): (usize, usize),
        header: [u8; NODE_HEADER],
    ) -> Result<()> {
        let before = self.extent_of(of);
        let kept = before.kept.min(kept.min(bytes).div_ceil(PAGE_BYTES) as u32);
        self.set.set_extent(of.node, before, Extent { bytes, kept });
        self.write_bytes(of, 0..NODE_HEADER, &mut copy_of(&header))
    }

    /// Writes the pages that are kept in memory to new blocks.
    pub(super) fn spill(&mut self) -> Result<()> {
        if self.set.pages_in_memory == 0 {
            return Ok(());
        }
        let mut group: Vec<(NodeId, u32)> = Vec::new();
        let mut out = AlignedBuf::zeroed(self.set.pages_in_memory * PAGE_BYTES);
        for (node, run) in &self.set.runs {
            for (at, page) in &run.pages {
                let NewPage::Memory(bytes) = page else { continue };
                out[group.len() * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(&bytes[..]);
                group.push((*node, *at));
            }
        }
        let mut rest = &out[..];
        // Blocks are one s-node's at a time: some s-nodes' are erased.
        for now in group.chunk_by(|(one, _), (next, _)| one.home() == next.home()) {
            let (bytes, later) = rest.split_at(now.len() * PAGE_BYTES);
            let snode = now[0].0.home();
            let mut written = Vec::with_capacity(now.len());
            let pages: Vec<u32> = now.iter().map(|(node, at)| node.page().unwrap_or(0) + at).collect();
            let done = self.write_blocks(snode, &pages, bytes, |at, block, crc| {
                written.push((now[at as usize], NewPage::Medium { block, crc }, block));
            });
            for ((node, at), page, block) in written {
                self.set.spilled(node, at, page, (block, snode));
            }
            done?;
            rest = later;
        }
        Ok(())
    }

    /// Gives up the blocks that pages were written to and that none is in after the commit, which nodes that are `garbage` are no part
    /// of.
    pub(super) fn give_up_blocks_but(&mut self, garbage: &[NodeId]) {
        let mut blocks = std::mem::take(&mut self.set.blocks);
        if blocks.is_empty() {
            return;
        }
        let runs = self.set.runs.iter().filter(|(node, _)| !garbage.contains(node));
        let used: FxHashSet<u64> = runs.flat_map(|(_, run)| run.pages.values()).map(NewPage::block).collect();
        blocks.retain(|(block, _)| !used.contains(block));
        self.give_up_blocks(blocks);
    }

    /// Gives up blocks that nothing leads to.
    pub(super) fn give_up_blocks(&self, blocks: Vec<(u64, HomeId)>) {
        blocks.into_iter().for_each(|(block, snode)| self.store.release_block(block, snode.0));
    }
}

/// What a commit does to a node's pages.
pub(super) fn apply_run(store: &Store, node: NodeId, run: &RunWrite) -> Result<()> {
    let Some(head) = node.page() else { return Err(Error::NoSuchNode(node)) };
    for (at, page) in &run.pages {
        let NewPage::Medium { block, crc } = *page else {
            return Err(Error::damaged(format!("node {node}: a page that was not written")));
        };
        let mut desc = store.pool.table.describe(head + at);
        (desc.block, desc.crc) = (block, crc);
        if *at == 0 {
            desc.body[0] = run.extent.pages().into();
        } else {
            (desc.kind, desc.snode, desc.body) =
                (PageKind::RunTail, node.home().0, [u64::from(*at), 0, 0, 0]);
        }
        apply::put_page(store, head + at, desc);
    }
    Ok(())
}
