//! A cache of pages that holds no bytes.

use rustc_hash::FxHashMap;
use std::sync::Arc;
use weft_tags::{CacheFrames, EvictionPolicy, Evictor, PageClass, PerClass};

/// The page in a frame.
#[derive(Clone, Copy)]
struct Held {
    page: u64,
    class: PageClass,
    is_used: bool,
}

#[derive(Default)]
struct Frames {
    held: Vec<Option<Held>>,
    at: FxHashMap<u64, u32>,
    free: Vec<u32>,
    resident: PerClass,
}

impl CacheFrames for Frames {
    fn class(&self, frame: u32) -> Option<PageClass> {
        self.held[frame as usize].map(|held| held.class)
    }

    fn take_use(&mut self, frame: u32) -> bool {
        self.held[frame as usize].as_mut().is_some_and(|held| std::mem::take(&mut held.is_used))
    }

    fn evict(&mut self, frame: u32) {
        if let Some(held) = self.held[frame as usize].take() {
            self.at.remove(&held.page);
            self.resident[held.class] -= 1;
            self.free.push(frame);
        }
    }
}

/// A cache under a policy, which counts as that of a store does.
pub struct Cache {
    evictor: Evictor,
    frames: Frames,
    hits: PerClass,
    misses: PerClass,
}

impl Cache {
    /// An empty cache of so many pages.
    pub fn new(policy: Arc<dyn EvictionPolicy>, pages: u32) -> Cache {
        let frames = Frames {
            held: vec![None; pages as usize],
            free: (0..pages).rev().collect(),
            ..Frames::default()
        };
        let (hits, misses) = (PerClass::default(), PerClass::default());
        Cache { evictor: Evictor::new(policy, pages), frames, hits, misses }
    }

    /// A page is wanted; whether it was there. It is afterwards, if the policy lets another one leave for it.
    pub fn access(&mut self, page: u64, class: PageClass) -> bool {
        if let Some(frame) = self.frames.at.get(&page).copied() {
            if let Some(held) = &mut self.frames.held[frame as usize] {
                held.is_used = true;
            }
            self.evictor.used(frame);
            self.hits[class] += 1;
            return true;
        }
        self.misses[class] += 1;
        if self.frames.free.is_empty() {
            // As many at once as the store takes.
            let wanted = (self.frames.held.len() as u64 / 64).clamp(1, 1024);
            self.evictor.evict(self.frames.resident, wanted, &mut self.frames);
        }
        if let Some(frame) = self.frames.free.pop() {
            self.evictor.entered(frame);
            self.evictor.holds(frame, page);
            // The access that brings a page in leaves a use beside it, in the store too.
            self.frames.held[frame as usize] = Some(Held { page, class, is_used: true });
            self.frames.at.insert(page, frame);
            self.frames.resident[class] += 1;
        }
        false
    }

    /// Pages of each class that are there.
    pub fn resident(&self) -> PerClass {
        self.frames.resident
    }

    /// The part of accesses to a class that found their page; `None` where there were none.
    pub fn hit_ratio(&self, class: PageClass) -> Option<f64> {
        ratio(self.hits[class], self.misses[class])
    }

    /// The same of all classes.
    pub fn hit_ratio_of_all(&self) -> Option<f64> {
        ratio(self.hits.sum(), self.misses.sum())
    }
}

fn ratio(hits: u64, misses: u64) -> Option<f64> {
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}
