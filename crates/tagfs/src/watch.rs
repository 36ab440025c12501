//! Which content of files the front keeps copies of, and is told when it changes.
//!
//! No block of a file is where clients could read it by themselves: each that the file has is one to ask the core for. The front copies
//! what was asked for to where clients find it, until the core tells of a change.

use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, Ino};
use weft_vfs::{MapEntry, MapObserver};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks that the observer is told of at once.
const BLOCKS_AT_ONCE: usize = 512;

/// The files that are watched.
#[derive(Default)]
pub(crate) struct Watch {
    observer: Option<Arc<dyn MapObserver>>,
    /// Of each file, the end of the blocks that were asked for.
    ends: FxHashMap<Ino, u64>,
}

/// What the blocks from `first` on are in a file of so many bytes.
fn fill(first: u64, size: u64, out: &mut [MapEntry]) {
    let held = size.div_ceil(BLOCK).saturating_sub(first).min(out.len() as u64);
    let (below, beyond) = out.split_at_mut(held as usize);
    below.fill(MapEntry::ASK_CORE);
    beyond.fill(MapEntry::HOLE);
}

impl Watch {
    /// The bytes in a range have changed, and the file has so many.
    pub(crate) fn tell(&self, ino: Ino, changed: Range<u64>, size: u64) {
        let (Some(observer), Some(watched)) = (&self.observer, self.ends.get(&ino)) else { return };
        let end = changed.end.div_ceil(BLOCK).min(*watched);
        let mut entries = [MapEntry::HOLE; BLOCKS_AT_ONCE];
        let mut first = changed.start / BLOCK;
        while first < end {
            let entries = &mut entries[..(end - first).min(BLOCKS_AT_ONCE as u64) as usize];
            fill(first, size, entries);
            observer.remapped(ino, first, entries);
            first += entries.len() as u64;
        }
    }

    /// From now on the observer is told of these blocks of a file of so many bytes; what they are now.
    pub(crate) fn begin(&mut self, ino: Ino, first_block: u64, size: u64, out: &mut [MapEntry]) {
        let end = self.ends.entry(ino).or_default();
        *end = (*end).max(first_block.saturating_add(out.len() as u64));
        fill(first_block, size, out);
    }

    /// The front keeps nothing of a file any more.
    pub(crate) fn end(&mut self, ino: Ino) {
        self.ends.remove(&ino);
    }

    pub(crate) fn set_observer(&mut self, observer: Arc<dyn MapObserver>) {
        self.observer = Some(observer);
    }
}
