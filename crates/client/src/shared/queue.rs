//! Threads that wait until one of several things that others have is free: more threads that call at once than there are slots.
//!
//! ```text
//!   gives back                            waits
//!   the thing is free                     waiting += 1
//!   ---- fence ----                       seen = freed
//!   waiting != 0 ? freed += 1, wake one   ---- fence ----
//!                                         takes a thing ? go on : sleep while freed is what I saw
//! ```
//!
//! Either who gives back sees the waiter, or the waiter sees the thing. When both do, `freed` is another one than the waiter saw, and it
//! looks again. `tests/queue.rs` tries all orders.

use super::turn::Word;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Threads of one process that wait. Nobody else looks here.
#[repr(C, align(4096))]
pub struct Queue<W = AtomicU32> {
    /// How many.
    pub waiting: W,
    /// Counts what became free while somebody waited; they sleep on it.
    pub freed: W,
}

impl<W: Word> Queue<W> {
    /// Something is free.
    #[inline]
    pub fn gave_back(&self) {
        W::fence();
        if self.waiting.load(Relaxed) != 0 {
            self.freed.add(1);
            self.freed.wake_one();
        }
    }

    /// Waits until `take` gets something; each time it got nothing, `give_up` is asked whether to stop. It sleeps for at most
    /// `timeout_ns` between two looks.
    pub fn wait<T>(
        &self,
        timeout_ns: u64,
        mut take: impl FnMut() -> Option<T>,
        mut give_up: impl FnMut() -> bool,
    ) -> Option<T> {
        self.waiting.add(1);
        let taken = loop {
            let seen = self.freed.load(Acquire);
            W::fence();
            let taken = take();
            if taken.is_some() || give_up() {
                break taken;
            }
            self.freed.wait(seen, timeout_ns);
        };
        self.waiting.add(u32::MAX);
        taken
    }
}
