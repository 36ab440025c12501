//! S3-FIFO (Yang and others, "FIFO Queues are All You Need for Cache Eviction", SOSP 2023): a baseline beside which policies of classes stand.
//!
//! ```text
//!   new page -> | small queue, a tenth | --used again--> | main queue | --used--> to its end again
//!                        '--otherwise: leaves, its number to the ghosts      '--otherwise: leaves
//!   a page among the ghosts comes back -> main queue
//! ```
//!
//! The ghosts need the numbers of pages, which a store does not know when it takes a frame; so this order is the simulator's.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use weft_tags::{CacheFrames, EvictionOrder, EvictionPolicy, PerClass};

/// The small queue has this part of the frames.
const SMALL_PART: usize = 10;
/// Uses of a page that count, at most.
const USES_MAX: u8 = 3;
/// The most times that a sweep passes a frame: each use is one, and then it leaves.
const ROUNDS: usize = 6;

/// A policy of classes, whose pages leave in the order of S3-FIFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct S3Fifo<P>(pub P);

impl<P: EvictionPolicy> EvictionPolicy for S3Fifo<P> {
    fn leave(&self, resident: &PerClass, capacity: u64, wanted: u64) -> PerClass {
        self.0.leave(resident, capacity, wanted)
    }

    fn order(&self, frames: u32) -> Box<dyn EvictionOrder> {
        Box::new(S3FifoOrder::new(frames))
    }
}

/// Frames in two queues, and the pages that left the small one last.
#[derive(Debug)]
pub struct S3FifoOrder {
    /// By frame: the page, and its uses since it came in or was looked at last.
    held: Vec<(u64, u8)>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<u64>,
    /// How often a page is among the ghosts.
    is_ghost: FxHashMap<u64, u32>,
}

impl S3FifoOrder {
    /// An empty order of so many frames.
    pub fn new(frames: u32) -> S3FifoOrder {
        S3FifoOrder {
            held: vec![(0, 0); frames as usize],
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_ghost: FxHashMap::default(),
        }
    }

    fn remember(&mut self, page: u64) {
        self.ghosts.push_back(page);
        *self.is_ghost.entry(page).or_default() += 1;
        if self.ghosts.len() > self.held.len()
            && let Some(oldest) = self.ghosts.pop_front()
            && let Some(count) = self.is_ghost.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.is_ghost.remove(&oldest);
            }
        }
    }
}

impl EvictionOrder for S3FifoOrder {
    fn entered(&mut self, _frame: u32) {}

    fn holds(&mut self, frame: u32, page: u64) {
        self.held[frame as usize] = (page, 0);
        let queue = if self.is_ghost.contains_key(&page) { &mut self.main } else { &mut self.small };
        queue.push_back(frame);
    }

    fn used(&mut self, frame: u32) {
        let (_, uses) = &mut self.held[frame as usize];
        *uses = (*uses + 1).min(USES_MAX);
    }

    fn sweep(&mut self, wanted: u64, leave: &mut PerClass, cache: &mut dyn CacheFrames) {
        let mut wanted = wanted;
        for _ in 0..self.held.len() * ROUNDS {
            if wanted == 0 || leave.sum() == 0 {
                break;
            }
            let is_small = self.small.len() * SMALL_PART >= self.held.len() || self.main.is_empty();
            let queue = if is_small { &mut self.small } else { &mut self.main };
            let Some(frame) = queue.pop_front() else { break };
            let Some(class) = cache.class(frame) else { continue };
            let (page, uses) = self.held[frame as usize];
            if leave[class] == 0 {
                queue.push_back(frame);
            } else if uses > 0 {
                // In the main queue, as many passes as it was used.
                self.held[frame as usize].1 = if is_small { 0 } else { uses - 1 };
                self.main.push_back(frame);
            } else {
                cache.evict(frame);
                leave[class] -= 1;
                wanted -= 1;
                if is_small {
                    self.remember(page);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cache;
    use super::*;
    use std::sync::Arc;
    use weft_tags::{DataClass, PageClass, PagePart, SecondChance};

    const CLASS: PageClass = PageClass { data: DataClass::Small, part: PagePart::Nodes };

    #[test]
    fn pages_that_are_used_once_leave_before_those_that_are_used_again_and_one_that_comes_back_stays() {
        let mut cache = Cache::new(Arc::new(S3Fifo(SecondChance)), 100);
        (0..60).for_each(|page| _ = cache.access(page, CLASS));
        // Used again.
        assert!((0..60).all(|page| cache.access(page, CLASS)));
        // A scan passes by, and leaves them where they are.
        (1000..3000).for_each(|page| _ = cache.access(page, CLASS));
        assert!((0..60).all(|page| cache.access(page, CLASS)));
        // What left last is remembered: it comes back to the main queue, and the next scan leaves it there.
        assert!(!cache.access(2950, CLASS));
        (3000..3200).for_each(|page| _ = cache.access(page, CLASS));
        assert!(cache.access(2950, CLASS) && !cache.access(2951, CLASS));
    }
}
