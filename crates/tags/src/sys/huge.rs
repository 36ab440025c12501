//! Values that are reached in no order, in memory of their own on huge pages.
//!
//! On pages of 4 KiB most of what such a reach waits for is the translation of its address: in a virtual machine it took 62 ns for a descriptor
//! among 23 MB of them, and 14 on huge pages, although it had been asked for ahead.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

/// Bytes of a huge page.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Values side by side; in a mapping of their own, on huge pages, where they fill one.
pub(crate) struct HugeSlice<T> {
    first: NonNull<T>,
    count: usize,
    /// The mapping and its bytes; `None` for values that the allocator has room for.
    map: Option<(NonNull<u8>, usize)>,
}

// SAFETY: it owns its values, as a `Box<[T]>` does.
unsafe impl<T: Send> Send for HugeSlice<T> {}
// SAFETY: as above; shared references give shared access alone.
unsafe impl<T: Sync> Sync for HugeSlice<T> {}

impl<T> HugeSlice<T> {
    /// `count` values, at least one, that `make` makes. `huge_pages` says whether the kernel is asked for these.
    pub(crate) fn from_fn(count: usize, huge_pages: bool, mut make: impl FnMut() -> T) -> HugeSlice<T> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= HUGE_BYTES) };
        let count = count.max(1);
        let layout = Self::layout(count);
        let (first, map) = if layout.size() < HUGE_BYTES {
            // SAFETY: the layout has a size above zero.
            (unsafe { alloc(layout) }, None)
        } else {
            // Not the allocator's, which may give memory that is on small pages already.
            match reserve(layout.size(), huge_pages) {
                Ok(room) => (room.first.as_ptr(), Some((room.map, room.map_bytes))),
                Err(_) => handle_alloc_error(layout),
            }
        };
        let Some(first) = NonNull::new(first.cast::<T>()) else { handle_alloc_error(layout) };
        for at in 0..count {
            // SAFETY: there is room for `count` values, none of which is there yet. If `make` panics they and their memory are lost.
            unsafe { first.as_ptr().add(at).write(make()) };
        }
        HugeSlice { first, count, map }
    }

    fn layout(count: usize) -> Layout {
        match Layout::array::<T>(count) {
            Ok(layout) => layout,
            // Only sizes beyond the address space fail, which no caller can hold.
            Err(_) => handle_alloc_error(Layout::new::<T>()),
        }
    }
}

/// A private mapping of the caller's, with room for some bytes from a multiple of [`HUGE_BYTES`] on.
pub(super) struct Room {
    pub map: NonNull<u8>,
    pub map_bytes: usize,
    pub first: NonNull<u8>,
}

/// Reserves room for `bytes`; memory is taken as it is first written, on huge pages where these are wanted.
pub(super) fn reserve(bytes: usize, huge_pages: bool) -> io::Result<Room> {
    let map_bytes = bytes + HUGE_BYTES;
    // SAFETY: a new private mapping at a place of the kernel's choice touches nothing that exists.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            map_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let Some(map) = NonNull::new(map.cast::<u8>()) else {
        return Err(io::Error::from(io::ErrorKind::OutOfMemory));
    };
    let skip = map.as_ptr().align_offset(HUGE_BYTES);
    // SAFETY: `skip` is below HUGE_BYTES, which the mapping has beyond the bytes.
    let first = unsafe { map.add(skip) };
    if huge_pages && bytes >= HUGE_BYTES {
        // SAFETY: advice on memory of our own; a refusal costs speed only.
        unsafe { libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    Ok(Room { map, map_bytes, first })
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
        // SAFETY: the values are this slice's own, and gone once.
        unsafe { std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.count).drop_in_place() };
        match self.map {
            // SAFETY: the mapping is this slice's own; nothing leads into it any more.
            Some((map, bytes)) => unsafe {
                libc::munmap(map.as_ptr().cast(), bytes);
            },
            // SAFETY: allocated in `from_fn` with the same layout, freed once.
            None => unsafe { dealloc(self.first.as_ptr().cast(), Self::layout(self.count)) },
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
            let slice = HugeSlice::from_fn(count, true, || {
                made += 1;
                (made, kept.clone())
            });
            assert!(slice.iter().map(|(number, _)| *number).eq(1..=count));
            assert_eq!(Arc::strong_count(&kept), count + 1);
            drop(slice);
            assert_eq!(Arc::strong_count(&kept), 1);
        }
        let large = HugeSlice::from_fn(HUGE_BYTES, false, || 0_u8);
        assert_eq!(large.as_ptr().align_offset(HUGE_BYTES), 0);
    }
}
