//! Makes room: asks the policy which classes may leave, and the order for pages of these, until enough have left.

use super::super::classes::{PageClass, PerClass};
use super::EvictionPolicy;
use super::order::{CacheFrames, EvictionOrder};
use std::sync::Arc;

/// A policy and its order, for one cache.
#[derive(Debug)]
pub struct Evictor {
    policy: Arc<dyn EvictionPolicy>,
    order: Box<dyn EvictionOrder>,
    frames: u32,
}

impl Evictor {
    /// For a cache of so many frames.
    pub fn new(policy: Arc<dyn EvictionPolicy>, frames: u32) -> Evictor {
        let order = policy.order(frames);
        Evictor { policy, order, frames }
    }

    /// A page is about to come into a frame, which was free.
    pub fn entered(&mut self, frame: u32) {
        self.order.entered(frame);
    }

    /// The page in a frame was used: for [exact orders](EvictionOrder::used).
    pub fn used(&mut self, frame: u32) {
        self.order.used(frame);
    }

    /// The page in a frame that was entered: for [orders that remember pages](EvictionOrder::holds).
    pub fn holds(&mut self, frame: u32, page: u64) {
        self.order.holds(frame, page);
    }

    /// Evicts up to `wanted` pages; `resident` says how many of each class are in the cache. Fewer leave where the others cannot, or the policy
    /// lets none of them.
    pub fn evict(&mut self, mut resident: PerClass, wanted: u64, cache: &mut dyn CacheFrames) {
        let mut wanted = wanted;
        while wanted > 0 {
            let mut leave = self.policy.leave(&resident, u64::from(self.frames), wanted);
            PageClass::all().for_each(|class| leave[class] = leave[class].min(resident[class]));
            if leave.sum() == 0 {
                break;
            }
            let mut left = leave;
            self.order.sweep(wanted, &mut left, cache);
            wanted = wanted.saturating_sub(leave.sum() - left.sum());
            for class in PageClass::all().filter(|class| leave[*class] > 0) {
                // Of a class that has not given all that it may, none can leave now.
                let given = leave[class] - left[class];
                resident[class] = if left[class] > 0 { 0 } else { resident[class].saturating_sub(given) };
            }
        }
    }
}
