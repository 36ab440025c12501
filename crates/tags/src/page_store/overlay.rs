//! A medium that is only read: what would be written to it stays in memory, for as long as the store is open.
//!
//! So recovery goes as it does elsewhere, with its checkpoint, and a store that was not closed can be read where nothing can be written.

use super::{PageStore, beyond_end};
use crate::ids::PAGE_BYTES;
use crate::sync::RwLock;
use rustc_hash::FxHashMap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};

/// A medium under blocks in memory.
pub(crate) struct Overlay {
    below: Box<dyn PageStore>,
    written: RwLock<FxHashMap<u64, Box<[u8; PAGE_BYTES]>>>,
    blocks: AtomicU64,
}

impl Overlay {
    pub(crate) fn new(below: Box<dyn PageStore>) -> Overlay {
        let blocks = AtomicU64::new(below.blocks());
        Overlay { below, written: RwLock::default(), blocks }
    }
}

impl PageStore for Overlay {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        let end = block + (out.len() / PAGE_BYTES) as u64;
        let written = self.written.read();
        if written.is_empty() && end <= self.below.blocks() {
            return self.below.read(block, out);
        }
        for (block, page) in (block..).zip(out.chunks_exact_mut(PAGE_BYTES)) {
            match written.get(&block) {
                Some(bytes) => page.copy_from_slice(&bytes[..]),
                None if block < self.below.blocks() => self.below.read(block, page)?,
                None if block < self.blocks() => page.fill(0),
                None => return Err(beyond_end(block)),
            }
        }
        Ok(())
    }

    fn write(&self, block: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut written = self.written.write();
        let pages = parts.iter().flat_map(|part| part.as_chunks::<PAGE_BYTES>().0);
        for (block, page) in (block..).zip(pages) {
            if block >= self.blocks() {
                return Err(beyond_end(block));
            }
            written.insert(block, Box::new(*page));
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
}
