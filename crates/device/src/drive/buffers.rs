//! Aligned buffers, kept for the next command.

use parking_lot::Mutex;
use weft_core::BLOCK_BYTES;
use weft_sys::AlignedBuf;

/// Buffers kept; more are made when more threads need one at once, and go afterwards.
const KEPT_MAX: usize = 16;

/// Buffers of one size.
#[derive(Debug)]
pub struct Buffers {
    bytes: usize,
    kept: Mutex<Vec<AlignedBuf>>,
}

impl Buffers {
    /// Buffers of so many blocks.
    pub fn new(blocks: u32) -> Buffers {
        Buffers { bytes: blocks as usize * BLOCK_BYTES, kept: Mutex::new(Vec::new()) }
    }

    /// Lends a buffer; its content is whatever it held last.
    pub fn with<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let kept = self.kept.lock().pop();
        let mut buffer = kept.unwrap_or_else(|| AlignedBuf::zeroed(self.bytes));
        let result = work(&mut buffer);
        let mut kept = self.kept.lock();
        if kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
        result
    }
}
