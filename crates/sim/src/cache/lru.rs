//! Exactly least recently used: what a policy of classes is in the papers. Each use moves a page in a list, which a simulator can afford.

use std::collections::BTreeMap;
use weft_tags::{CacheFrames, EvictionOrder, EvictionPolicy, PerClass};

/// A policy of classes, whose pages leave in exact LRU order.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExactLru<P>(pub P);

impl<P: EvictionPolicy> EvictionPolicy for ExactLru<P> {
    fn leave(&self, resident: &PerClass, capacity: u64, wanted: u64) -> PerClass {
        self.0.leave(resident, capacity, wanted)
    }

    fn order(&self, frames: u32) -> Box<dyn EvictionOrder> {
        Box::new(LruOrder::new(frames))
    }
}

/// Frames by their last use.
#[derive(Debug)]
pub struct LruOrder {
    /// By frame: the number of its last use.
    last: Vec<u64>,
    by_use: BTreeMap<u64, u32>,
    uses: u64,
}

impl LruOrder {
    /// An empty order of so many frames.
    pub fn new(frames: u32) -> LruOrder {
        LruOrder { last: vec![0; frames as usize], by_use: BTreeMap::new(), uses: 0 }
    }
}

impl EvictionOrder for LruOrder {
    fn entered(&mut self, frame: u32) {
        self.used(frame);
    }

    fn used(&mut self, frame: u32) {
        self.uses += 1;
        let before = std::mem::replace(&mut self.last[frame as usize], self.uses);
        self.by_use.remove(&before);
        self.by_use.insert(self.uses, frame);
    }

    fn sweep(&mut self, wanted: u64, leave: &mut PerClass, cache: &mut dyn CacheFrames) {
        let mut wanted = wanted;
        let mut gone = Vec::new();
        for (number, frame) in &self.by_use {
            if wanted == 0 || leave.sum() == 0 {
                break;
            }
            let Some(class) = cache.class(*frame).filter(|class| leave[*class] > 0) else { continue };
            cache.evict(*frame);
            leave[class] -= 1;
            wanted -= 1;
            gone.push(*number);
        }
        for number in gone {
            self.by_use.remove(&number);
        }
    }
}
