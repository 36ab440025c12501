//! Memory on huge pages: the translation of an address is most of what a reach into large memory waits for.

use crate::map::{Advice, Map};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

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
