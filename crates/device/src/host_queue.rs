//! A host that keeps a bounded number of requests under way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weft_core::Nanos;

/// A closed loop in virtual time: when the queue is full, the next request is issued at the oldest completion.
///
/// ```
/// # use weft_core::Nanos;
/// # use weft_device::HostQueue;
/// let mut queue = HostQueue::new(2, Nanos(0));
/// for completes in [100, 50] {
///     assert_eq!(queue.admit(), Nanos(0));
///     queue.issued(Nanos(completes));
/// }
/// assert_eq!(queue.admit(), Nanos(50));
/// queue.issued(Nanos(70));
/// assert_eq!(queue.drain(), Nanos(100));
/// ```
#[derive(Clone, Debug)]
pub struct HostQueue {
    depth: usize,
    now: Nanos,
    under_way: BinaryHeap<Reverse<Nanos>>,
}

impl HostQueue {
    /// A host whose clock stands at `now`, with room for `depth` requests, at least one.
    pub fn new(depth: usize, now: Nanos) -> HostQueue {
        HostQueue { depth: depth.max(1), now, under_way: BinaryHeap::new() }
    }

    /// The host's clock.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Moves the clock on to a moment, if that is later.
    pub fn wait_until(&mut self, moment: Nanos) {
        self.now = self.now.max(moment);
    }

    /// Makes room for a request; returns when it is issued.
    pub fn admit(&mut self) -> Nanos {
        while self.under_way.len() >= self.depth {
            if let Some(Reverse(oldest)) = self.under_way.pop() {
                self.now = self.now.max(oldest);
            }
        }
        self.now
    }

    /// The request that was admitted last completes then.
    pub fn issued(&mut self, completes: Nanos) {
        self.under_way.push(Reverse(completes));
    }

    /// Waits for everything under way; returns the clock.
    pub fn drain(&mut self) -> Nanos {
        let last = self.under_way.drain().map(|Reverse(completes)| completes).max();
        self.now = self.now.max(last.unwrap_or(self.now));
        self.now
    }
}
