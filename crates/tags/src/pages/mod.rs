//! Pages: the page table ([`table`]) and the cache ([`pool`]).
//!
//! A page has a number in the single-level store, which is where node ids point, and a block on the medium, which is a
//! new one each time the page is written. So no page is ever overwritten in place, and a checkpoint of a thousand
//! pages from all over the store is one sequential write.

pub(crate) mod access;
pub(crate) mod classes;
pub(crate) mod desc;
pub(crate) mod erasure;
pub(crate) mod eviction;
mod frames;
pub(crate) mod numbers;
pub(crate) mod pool;
pub(crate) mod table;
pub(crate) mod versions;

use crate::ids::PAGE_BYTES;

/// A page as words.
pub(crate) type Words = [u64; PAGE_BYTES / 8];

#[inline]
pub(crate) fn as_words(bytes: &[u8; PAGE_BYTES]) -> &Words {
    // SAFETY: frames are aligned to a page, copies of them for snapshots to 64 bytes, both types have the size of a
    // page, and every bit pattern is a number.
    unsafe { &*std::ptr::from_ref(bytes).cast::<Words>() }
}
