//! A store in memory: gone with the process.
//!
//! It may lie over a medium that is only read: what would be written to that stays in memory, for as long as the store is open. So recovery
//! goes as it does elsewhere, with its checkpoint, and a store that was not closed can be read where nothing can be written.

use super::{PageStore, beyond_end};
use crate::ids::PAGE_BYTES;
use crate::sync::RwLock;
use rustc_hash::FxHashMap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::Tag;

/// Blocks in memory; those that were never written are zero.
#[derive(Default)]
pub struct MemoryStore {
    below: Option<Box<dyn PageStore>>,
    written: RwLock<FxHashMap<u64, Box<[u8; PAGE_BYTES]>>>,
    blocks: AtomicU64,
}

impl MemoryStore {
    /// An empty medium.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// A medium that holds these bytes, for instance a damaged image.
    pub fn from_bytes(mut bytes: Vec<u8>) -> MemoryStore {
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        let pages = bytes.as_chunks::<PAGE_BYTES>().0;
        let written = (0..).zip(pages).filter(|(_, page)| **page != [0; PAGE_BYTES]);
        let written = written.map(|(block, page)| (block, Box::new(*page))).collect();
        MemoryStore { below: None, blocks: AtomicU64::new(pages.len() as u64), written: RwLock::new(written) }
    }

    /// What is written over `below`, which is only read.
    pub fn over(below: Box<dyn PageStore>) -> MemoryStore {
        let blocks = AtomicU64::new(below.blocks());
        MemoryStore { below: Some(below), written: RwLock::default(), blocks }
    }

    /// A copy of all bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.blocks() as usize * PAGE_BYTES];
        for (block, page) in self.written.read().iter() {
            bytes[*block as usize * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(&page[..]);
        }
        bytes
    }
}

impl PageStore for MemoryStore {
    fn keeps_writes(&self) -> bool {
        self.below.is_none()
    }

    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written.read();
        let below = self.below.as_ref().map(|below| (below, below.blocks()));
        if let Some((below, blocks)) = below
            && written.is_empty()
            && block + (out.len() / PAGE_BYTES) as u64 <= blocks
        {
            return below.read(block, out);
        }
        for (block, page) in (block..).zip(out.chunks_exact_mut(PAGE_BYTES)) {
            match (written.get(&block), below) {
                (Some(bytes), _) => page.copy_from_slice(&bytes[..]),
                (None, Some((below, blocks))) if block < blocks => below.read(block, page)?,
                _ if block < self.blocks() => page.fill(0),
                _ => return Err(beyond_end(block)),
            }
        }
        Ok(())
    }

    fn write(&self, block: u64, _tag: &Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut written = self.written.write();
        let pages = parts.iter().flat_map(|part| part.as_chunks::<PAGE_BYTES>().0);
        for (block, page) in (block..).zip(pages) {
            if block >= self.blocks() {
                return Err(beyond_end(block));
            }
            **written.entry(block).or_insert_with(|| Box::new([0; PAGE_BYTES])) = *page;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.blocks.fetch_max(blocks, Ordering::AcqRel);
        Ok(())
    }

    fn cut(&self, blocks: u64) -> io::Result<u64> {
        let mut written = self.written.write();
        let left = self.blocks.fetch_min(blocks, Ordering::AcqRel).min(blocks);
        written.retain(|block, _| *block < left);
        Ok(left)
    }
}
