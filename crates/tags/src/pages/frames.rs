//! The frames: one region of anonymous memory on huge pages, cut into pages of the store, and beyond it the blocks of a medium
//! that is mapped, which are read where they are.
//!
//! A frame is recycled, never given back to the kernel while the store is open: an anonymous page fault costs more than
//! the read of a page that the kernel has cached.

use crate::ids::PAGE_BYTES;
use crate::page_store::Mapping;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use weft_sys::huge::HugeRegion;
use weft_sys::prefault::Prefault;

/// Regions of so many bytes are populated ahead.
const AHEAD_MIN_BYTES: usize = 64 << 20;

/// A region of frames.
pub(crate) struct Frames {
    /// Keeps the frames mapped.
    _region: Arc<HugeRegion>,
    first: NonNull<u8>,
    count: usize,
    prefault: Option<Prefault>,
    mapped: Option<Arc<Mapping>>,
}

// SAFETY: the region is plain memory; who may touch which frame when is the caller's promise at `frame`.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Frames {
    /// Reserves `count` frames; memory is taken as they are first written. The blocks of `mapped` are the frames behind them.
    pub(crate) fn reserve(
        count: usize,
        huge_pages: bool,
        mapped: Option<Arc<Mapping>>,
    ) -> io::Result<Frames> {
        let bytes = count * PAGE_BYTES;
        let region = Arc::new(HugeRegion::reserve(bytes, huge_pages)?);
        // Small caches are filled before a thread would have begun.
        let prefault = (bytes >= AHEAD_MIN_BYTES)
            .then(|| Prefault::of(region.clone(), bytes, "weft-tags-memory").ok())
            .flatten();
        Ok(Frames { first: region.start(), _region: region, count, prefault, mapped })
    }

    /// Notes that a frame is used for the first time, all before it having been.
    #[inline]
    pub(crate) fn first_use(&self, index: u32) {
        if let Some(prefault) = &self.prefault {
            prefault.used(index as usize * PAGE_BYTES);
        }
    }

    /// Number of frames in memory.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The start of a frame, aligned to a page. Reading and writing through it is for the caller to order; one that
    /// [is mapped](Frames::is_mapped) is never written.
    #[inline]
    pub(crate) fn frame(&self, index: u32) -> *mut [u8; PAGE_BYTES] {
        match (index as usize).checked_sub(self.count) {
            // SAFETY: the index is below the count, so the frame lies in the mapping.
            None => unsafe { self.first.as_ptr().add(index as usize * PAGE_BYTES).cast() },
            Some(block) => match &self.mapped {
                Some(mapped) => mapped.block(block as u64).cast_mut(),
                None => panic!("frame {index} of {}", self.count),
            },
        }
    }

    /// Whether the medium is mapped.
    #[inline]
    pub(crate) fn maps(&self) -> bool {
        self.mapped.is_some()
    }

    /// The frame that is a block of the medium where it is mapped.
    pub(crate) fn frame_of(&self, block: u64) -> Option<(u32, &Mapping)> {
        let mapped = self.mapped.as_deref().filter(|mapped| block < mapped.blocks())?;
        // One number is left for "none" in the page table.
        let frame = block.checked_add(self.count as u64).filter(|frame| *frame < u64::from(u32::MAX))?;
        Some((frame as u32, mapped))
    }

    /// Whether a frame is a block of the medium, where it must not be written.
    #[inline]
    pub(crate) fn is_mapped(&self, index: u32) -> bool {
        index as usize >= self.count
    }
}
