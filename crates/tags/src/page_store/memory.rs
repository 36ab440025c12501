//! A store in memory: gone with the process.

use super::{PageStore, beyond_end};
use crate::ids::PAGE_BYTES;
use crate::sync::RwLock;
use std::io::{self, IoSlice};

/// Blocks in memory.
#[derive(Default)]
pub struct MemoryStore {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryStore {
    /// An empty medium.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// A medium that holds these bytes, for instance a damaged image.
    pub fn from_bytes(mut bytes: Vec<u8>) -> MemoryStore {
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        MemoryStore { bytes: RwLock::new(bytes) }
    }

    /// A copy of all bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl PageStore for MemoryStore {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.read();
        let at = block as usize * PAGE_BYTES;
        out.copy_from_slice(bytes.get(at..at + out.len()).ok_or_else(|| beyond_end(block))?);
        Ok(())
    }

    fn write(&self, block: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        let mut at = block as usize * PAGE_BYTES;
        for part in parts {
            bytes.get_mut(at..at + part.len()).ok_or_else(|| beyond_end(block))?.copy_from_slice(part);
            at += part.len();
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> u64 {
        (self.bytes.read().len() / PAGE_BYTES) as u64
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        if bytes.len() < blocks as usize * PAGE_BYTES {
            bytes.resize(blocks as usize * PAGE_BYTES, 0);
        }
        Ok(())
    }

    fn cut(&self, blocks: u64) -> io::Result<u64> {
        let mut bytes = self.bytes.write();
        bytes.truncate(blocks as usize * PAGE_BYTES);
        bytes.shrink_to_fit();
        Ok((bytes.len() / PAGE_BYTES) as u64)
    }
}
