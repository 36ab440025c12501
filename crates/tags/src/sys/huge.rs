//! Values that are reached in no order, in memory of their own on huge pages.
//!
//! On pages of 4 KiB most of what such a reach waits for is the translation of its address: in a virtual machine it took 62 ns for a descriptor
//! among 23 MB of them, and 14 on huge pages, although it had been asked for ahead.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// Bytes of a huge page.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Values side by side, on huge pages as far as they fill them.
pub(crate) struct HugeSlice<T> {
    first: NonNull<T>,
    count: usize,
}

// SAFETY: it owns its values, as a `Box<[T]>` does.
unsafe impl<T: Send> Send for HugeSlice<T> {}
// SAFETY: as above; shared references give shared access alone.
unsafe impl<T: Sync> Sync for HugeSlice<T> {}

impl<T> HugeSlice<T> {
    /// `count` values, at least one, that `make` makes.
    pub(crate) fn from_fn(count: usize, mut make: impl FnMut() -> T) -> HugeSlice<T> {
        const { assert!(size_of::<T>() > 0) };
        let count = count.max(1);
        let layout = Self::layout(count);
        // SAFETY: the layout has a size above zero.
        let Some(first) = NonNull::new(unsafe { alloc(layout) }.cast::<T>()) else {
            handle_alloc_error(layout)
        };
        if layout.align() == HUGE_BYTES {
            // SAFETY: advice on memory of our own, whole huge pages of it; a refusal costs speed only.
            unsafe {
                libc::madvise(
                    first.as_ptr().cast(),
                    layout.size() / HUGE_BYTES * HUGE_BYTES,
                    libc::MADV_HUGEPAGE,
                )
            };
        }
        for at in 0..count {
            // SAFETY: the layout has room for `count` values, none of which is there yet. If `make` panics, memory is lost and nothing else.
            unsafe { first.as_ptr().add(at).write(make()) };
        }
        HugeSlice { first, count }
    }

    fn layout(count: usize) -> Layout {
        let fits = Layout::array::<T>(count);
        let aligned =
            fits.and_then(|fits| fits.align_to(if fits.size() < HUGE_BYTES { 1 } else { HUGE_BYTES }));
        match aligned {
            Ok(layout) => layout,
            // Only sizes beyond the address space fail, which no caller can hold.
            Err(_) => handle_alloc_error(Layout::new::<T>()),
        }
    }
}

impl<T> Deref for HugeSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `count` values were written; the borrow of `self` keeps them.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T> Drop for HugeSlice<T> {
    fn drop(&mut self) {
        // SAFETY: the values and their memory are this slice's own, and gone once.
        unsafe {
            std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.count).drop_in_place();
            dealloc(self.first.as_ptr().cast(), Self::layout(self.count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn values_lie_side_by_side_and_go_with_the_slice() {
        for count in [1, 1000, HUGE_BYTES / 8 + 1] {
            let kept = Arc::new(());
            let mut made = 0;
            let slice = HugeSlice::from_fn(count, || {
                made += 1;
                (made, kept.clone())
            });
            assert!(slice.iter().map(|(number, _)| *number).eq(1..=count));
            assert_eq!(Arc::strong_count(&kept), count + 1);
            drop(slice);
            assert_eq!(Arc::strong_count(&kept), 1);
        }
        let large = HugeSlice::from_fn(HUGE_BYTES, || 0_u8);
        assert_eq!(large.as_ptr().align_offset(HUGE_BYTES), 0);
    }
}
