//! Buffers that direct I/O takes: aligned to a page.

use std::ops::{Deref, DerefMut};

/// Bytes of a page; an alignment that every device and file system accepts.
const PAGE_BYTES: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone, Copy, Debug)]
struct Page([u8; PAGE_BYTES]);

/// Whole pages at an aligned address.
#[derive(Debug)]
pub struct AlignedBuffer(Vec<Page>);

impl AlignedBuffer {
    /// At least so many bytes, zero at first.
    pub fn new(bytes: usize) -> AlignedBuffer {
        AlignedBuffer(vec![Page([0; PAGE_BYTES]); bytes.div_ceil(PAGE_BYTES)])
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a page is its bytes without padding, and the bytes are borrowed as long as the pages.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * PAGE_BYTES) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * PAGE_BYTES) }
    }
}

/// Whether direct I/O takes the bytes where they lie.
pub fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_as_large_as_was_asked_for() {
        for bytes in [1, 4096, 4097, 1 << 20] {
            let mut buffer = AlignedBuffer::new(bytes);
            assert!(is_aligned(&buffer) && buffer.len() >= bytes);
            buffer.fill(7);
            assert!(!is_aligned(&buffer[1..]));
        }
    }
}
