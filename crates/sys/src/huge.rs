//! Memory on huge pages: the translation of an address is most of what a reach into large memory waits for.

use crate::map::{Advice, Map};
use parking_lot::Mutex;
use std::io;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a huge page.
pub const HUGE_BYTES: usize = 2 << 20;

/// Memory of this process from a multiple of [`HUGE_BYTES`] on, taken as it is first written.
#[derive(Debug)]
pub struct HugeRegion {
    map: Map,
    skip: usize,
}

impl HugeRegion {
    /// Reserves `bytes`; `huge_pages` says whether the kernel is asked for these.
    pub fn reserve(bytes: usize, huge_pages: bool) -> io::Result<HugeRegion> {
        let map = Map::anonymous(bytes + HUGE_BYTES)?;
        let skip = map.as_ptr::<u8>().align_offset(HUGE_BYTES);
        let region = HugeRegion { map, skip };
        if huge_pages && bytes >= HUGE_BYTES {
            // A refusal costs speed only.
            let _ = region.advise(0..bytes, Advice::HugePages);
        }
        Ok(region)
    }

    /// Its start. It stays mapped as long as `self` lives.
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: `skip` is below HUGE_BYTES, which the mapping has beyond the bytes; no mapping begins at null.
        unsafe { NonNull::new_unchecked(self.map.as_ptr::<u8>().add(self.skip)) }
    }

    /// As [`Map::advise`].
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> io::Result<()> {
        self.map.advise(self.skip + range.start..self.skip + range.end, advice)
    }
}

/// Gives out slices of a region of one huge page after the other. The first slices come from the allocator instead: who takes few does
/// not pay for a huge page.
///
/// On pages of 4 KiB most of what a reach into many values waits for is the translation of its address: in a virtual machine it took
/// 62 ns for one of 23 MB of values, and 14 ns on huge pages.
pub struct HugeArena {
    huge_pages: bool,
    small: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    slices: usize,
    /// The region that slices are taken from, and the bytes of it that are taken.
    region: Option<(Arc<HugeRegion>, usize)>,
}

/// Values side by side, of a [`HugeArena`].
pub struct HugeSlice<T> {
    first: NonNull<T>,
    count: usize,
    /// Where the values are; `None` for those of the allocator.
    region: Option<Arc<HugeRegion>>,
}

// SAFETY: it owns its values, as a `Box<[T]>` does.
unsafe impl<T: Send> Send for HugeSlice<T> {}
// SAFETY: as above; shared references give shared access alone.
unsafe impl<T: Sync> Sync for HugeSlice<T> {}

impl HugeArena {
    /// An arena whose first `small` slices, or all without `huge_pages`, are the allocator's.
    pub fn new(huge_pages: bool, small: usize) -> HugeArena {
        HugeArena { huge_pages, small, open: Mutex::default() }
    }

    /// The values, side by side. The allocator has those that are too many for a region, or for which the system has no region.
    pub fn slice<T>(&self, values: impl ExactSizeIterator<Item = T>) -> HugeSlice<T> {
        let wanted = values.len() * size_of::<T>();
        let Some((region, start)) = self.room(wanted, align_of::<T>()) else {
            let values = Box::leak(values.collect::<Box<[T]>>());
            let count = values.len();
            return HugeSlice { first: NonNull::from(values).cast(), count, region: None };
        };
        // SAFETY: the region has `wanted` bytes from `start` on, which nobody else was given; both are aligned for a value.
        let first = unsafe { region.start().add(start) }.cast::<T>();
        let mut slice = HugeSlice { first, count: 0, region: Some(region) };
        for value in values.take(wanted / size_of::<T>().max(1)) {
            // SAFETY: there is room for so many values, and this one is not there yet.
            unsafe { first.add(slice.count).write(value) };
            slice.count += 1;
        }
        slice
    }

    /// Room for so many bytes in a region, and where it begins.
    fn room(&self, bytes: usize, align: usize) -> Option<(Arc<HugeRegion>, usize)> {
        let mut open = self.open.lock();
        open.slices += 1;
        if !self.huge_pages
            || open.slices <= self.small
            || bytes == 0
            || bytes > HUGE_BYTES
            || align > HUGE_BYTES
        {
            return None;
        }
        let (region, taken) = match open.region.take() {
            Some((region, taken)) if taken.next_multiple_of(align) + bytes <= HUGE_BYTES => {
                (region, taken.next_multiple_of(align))
            }
            _ => (Arc::new(HugeRegion::reserve(HUGE_BYTES, true).ok()?), 0),
        };
        open.region = Some((region.clone(), taken + bytes));
        Some((region, taken))
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
        let values = NonNull::slice_from_raw_parts(self.first, self.count).as_ptr();
        if self.region.is_some() {
            // SAFETY: the values are this slice's own, and gone once; their region lives as long as a slice of it.
            unsafe { values.drop_in_place() };
        } else {
            // SAFETY: they were a box, which is taken back once.
            drop(unsafe { Box::from_raw(values) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_were_given_and_go_with_their_slice() {
        for huge_pages in [false, true] {
            let (arena, kept) = (HugeArena::new(huge_pages, 2), Arc::new(()));
            // Few, as many as fill a region with others, and more than a region has room for.
            let counts = [1, 1000, 40_000, 90_000, 7, 0, 200_000, 3];
            let slices = counts.map(|count| arena.slice((0..count).map(|number| (number, kept.clone()))));
            for (slice, count) in slices.iter().zip(counts) {
                assert!(slice.iter().map(|(number, _)| *number).eq(0..count), "{count}");
            }
            let others = arena.slice((0..9_u8).map(u128::from));
            assert!(others.iter().copied().eq(0..9));
            assert_eq!(Arc::strong_count(&kept), counts.iter().sum::<usize>() + 1);
            drop((arena, slices));
            assert_eq!(Arc::strong_count(&kept), 1);
            assert!(others.iter().copied().eq(0..9));
        }
    }
}
