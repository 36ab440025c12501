//! A key-value cache in slabs, reduced to what it writes: an index, slabs of items, and cleaning.
//!
//! Fatcache in the variant that Prism-SSD's paper measures (ICDCS 2019, section VI): slabs are filled in memory, written
//! whole, and cleaned greedily: the slab with the fewest valid items gives them to the slab that is being filled.
//! How many slabs are kept free is the cache's **over-provisioning** ([`Reserve`]): a fixed share, or as few as it gets by
//! with when it sees the flash below.
//!
//! Time is the device's. Sets arrive at even intervals; the cache does one thing after the other, so a set that meets
//! cleaning waits for it.

use super::reserve::{RateMonitor, Reserve};
use std::collections::VecDeque;
use weft_core::Nanos;
use weft_device::gc::{VictimPolicy, Victims};
use weft_flash::LevelError;

const NONE: u32 = u32::MAX;

/// From one set to the next, in nanoseconds, when nothing has to be cleaned.
const SET_NS: u64 = 25_000;

/// Where slabs are written.
pub trait SlabStore {
    /// Slabs that there is room for.
    fn slabs(&self) -> u32;
    /// Writes a page of a slab, those of a slab in order; when that is over.
    fn write(&mut self, issued: Nanos, slab: u32, page: u32) -> Result<Nanos, LevelError>;
    /// What is in the slab is not needed any more; when it can be written again.
    fn free(&mut self, issued: Nanos, _slab: u32) -> Result<Nanos, LevelError> {
        Ok(issued)
    }
}

/// What a slab cache counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlabCounts {
    /// Items set.
    pub sets: u64,
    /// Items copied by cleaning.
    pub copies: u64,
    /// Pages written.
    pub pages: u64,
    /// Slabs cleaned.
    pub cleaned: u64,
}

/// A slab cache. Keys are numbers.
#[derive(Debug)]
pub struct SlabCache<S> {
    store: S,
    items_per_page: u32,
    items_per_slab: u32,
    /// By key: the slab with its newest item.
    index: Vec<u32>,
    /// By slab: its items' keys.
    items: Vec<Vec<u32>>,
    valid: Vec<u32>,
    free: VecDeque<u32>,
    watch: RateMonitor,
    open: u32,
    victims: Victims,
    counts: SlabCounts,
    /// When everything is done that was begun.
    now: Nanos,
}

impl<S: SlabStore> SlabCache<S> {
    /// An empty cache of keys below `keys`.
    pub fn new(
        store: S,
        keys: u32,
        items_per_page: u32,
        pages_per_slab: u32,
        reserve: Reserve,
    ) -> SlabCache<S> {
        let slabs = store.slabs();
        let items_per_slab = items_per_page * pages_per_slab;
        SlabCache {
            store,
            items_per_page,
            items_per_slab,
            index: vec![NONE; keys as usize],
            items: vec![Vec::new(); slabs as usize],
            valid: vec![0; slabs as usize],
            free: (0..slabs).collect(),
            watch: RateMonitor::new(reserve, slabs),
            open: NONE,
            victims: Victims::new(VictimPolicy::Greedy, slabs, items_per_slab, 0),
            counts: SlabCounts::default(),
            now: Nanos(0),
        }
    }

    /// Sets a key.
    pub fn set(&mut self, key: u32) -> Result<(), LevelError> {
        self.counts.sets += 1;
        self.now = self.now.max(Nanos(self.counts.sets * SET_NS));
        let before = std::mem::replace(&mut self.index[key as usize], NONE);
        if before != NONE {
            self.valid[before as usize] -= 1;
            self.victims.invalidate(before);
        }
        if self.open == NONE {
            while self.free.len() <= self.watch.reserve() {
                self.clean()?;
            }
            self.watch.opened(self.now);
        }
        self.append(key)
    }

    /// What was counted.
    pub fn counts(&self) -> SlabCounts {
        self.counts
    }

    /// Puts an item into the open slab; opens one when there is none.
    fn append(&mut self, key: u32) -> Result<(), LevelError> {
        if self.open == NONE {
            let none = || LevelError::NoRoom { start: 0, why: "no slab is free".into() };
            self.open = self.free.pop_front().ok_or_else(none)?;
        }
        let slab = self.open as usize;
        self.index[key as usize] = self.open;
        self.valid[slab] += 1;
        self.items[slab].push(key);
        let count = self.items[slab].len() as u32;
        if count.is_multiple_of(self.items_per_page) {
            self.now = self.store.write(self.now, self.open, count / self.items_per_page - 1)?;
            self.counts.pages += 1;
        }
        if count == self.items_per_slab {
            self.victims.close(self.open, self.valid[slab]);
            self.open = NONE;
        }
        Ok(())
    }

    fn clean(&mut self) -> Result<(), LevelError> {
        let full = || LevelError::NoRoom { start: 0, why: "every slab is full of valid items".into() };
        let victim = self.victims.pick().ok_or_else(full)?;
        self.victims.remove(victim);
        self.counts.cleaned += 1;
        let (begun, copies) = (self.now, self.counts.copies);
        for key in std::mem::take(&mut self.items[victim as usize]) {
            if self.index[key as usize] == victim {
                self.valid[victim as usize] -= 1;
                self.counts.copies += 1;
                self.append(key)?;
            }
        }
        self.now = self.store.free(self.now, victim)?;
        self.free.push_back(victim);
        let copied = (self.counts.copies - copies) as f64 / f64::from(self.items_per_slab);
        self.watch.cleaned(1.0 - copied, self.now.0 - begun.0);
        Ok(())
    }
}
