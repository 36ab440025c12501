//! Buffers that direct I/O takes: their start is aligned to a page.

use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a page; an alignment that every device and file system accepts.
pub const PAGE_BYTES: usize = 4096;

#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Whole pages at an aligned address.
#[derive(Debug)]
pub struct AlignedBuf(Box<[Page]>);

impl AlignedBuf {
    /// A buffer of at least `bytes` zero bytes, at least one page.
    pub fn zeroed(bytes: usize) -> AlignedBuf {
        AlignedBuf(crate::zeroed(bytes.div_ceil(PAGE_BYTES).max(1)))
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for AlignedBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
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
            let mut buffer = AlignedBuf::zeroed(bytes);
            assert!(is_aligned(&buffer) && buffer.len() >= bytes);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7);
            assert!(!is_aligned(&buffer[1..]));
        }
    }
}
