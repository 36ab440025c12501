//! Memory from the kernel and hints to the processor, with a safe face.

pub(crate) mod frames;
pub(crate) mod mapping;
mod prefault;
pub(crate) mod uring;

pub(crate) use weft_sys::aligned;

use crate::ids::PAGE_BYTES;
use std::sync::atomic::AtomicU64;

/// Asks the processor for the line of an address. Any address will do.
#[inline]
pub(crate) fn prefetch(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// A page as words.
pub(crate) type Words = [u64; PAGE_BYTES / 8];

#[inline]
pub(crate) fn as_words(bytes: &[u8; PAGE_BYTES]) -> &Words {
    // SAFETY: frames are aligned to a page, copies of them for snapshots to 64 bytes, both types have the size of a
    // page, and every bit pattern is a number.
    unsafe { &*std::ptr::from_ref(bytes).cast::<Words>() }
}

/// So many words of zero. The kernel gives memory for them as they are used.
pub(crate) fn zeroed_words(count: usize) -> Box<[AtomicU64]> {
    let words = Box::into_raw(vec![0_u64; count].into_boxed_slice());
    // SAFETY: an `AtomicU64` has the size, the alignment and the values of a `u64`, on targets of 64 bits, and the words are given away.
    unsafe { Box::from_raw(words as *mut [AtomicU64]) }
}
