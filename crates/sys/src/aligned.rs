//! Buffers that direct I/O takes: their start is aligned to a page.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of a page; an alignment that every device and file system accepts.
pub const PAGE_BYTES: usize = 4096;

/// Whole pages at an aligned address.
#[derive(Debug)]
pub struct AlignedBuf {
    start: NonNull<u8>,
    pages: usize,
}

// SAFETY: the buffer owns its memory and hands it out only by its own borrow.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references give read access alone.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of at least `bytes` zero bytes, at least one page.
    pub fn zeroed(bytes: usize) -> AlignedBuf {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let layout = Self::layout(pages);
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => AlignedBuf { start, pages },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(pages: usize) -> Layout {
        match Layout::from_size_align(pages * PAGE_BYTES, PAGE_BYTES) {
            Ok(layout) => layout,
            // Only sizes beyond the address space fail, which no caller can hold.
            Err(_) => handle_alloc_error(Layout::new::<u8>()),
        }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.pages)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `pages` pages were allocated and zeroed; the borrow of `self` keeps them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.pages * PAGE_BYTES) }
    }
}

impl DerefMut for AlignedBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.pages * PAGE_BYTES) }
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
