//! By which call a durable write of an image is made. Policy only: no clock, no system call.
//!
//! By io_uring, others who write to the file do not wait for the medium. But the kernel ends such a write on the processor that took the
//! interrupt, in a thread of its own, and when a program computes there, this thread waits for the end of the program's time slice: 4 ms
//! where the medium takes 0.1. A plain call is woken on any processor. So plain calls are made for a while after a ring was slow, twice as
//! long each time, unless they are as slow.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A write that takes longer waited for more than a medium of flash.
const SLOW_NS: u64 = 2_000_000;
/// Plain calls after the first slow write by a ring, and at most.
const PLAIN_MIN: u32 = 64;
const PLAIN_MAX: u32 = 4096;
/// So many writes by a ring in a row that are not slow, and the next slow one is the first again.
const FORGIVEN: u32 = 64;

/// By which call a write is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// io_uring.
    Ring,
    /// `pwritev2`.
    Call,
}

/// What is known of the writes so far. Threads share it; what one of them loses to another costs a slow write.
#[derive(Debug)]
pub struct DurableWrites {
    /// Plain calls to come.
    calls: AtomicU32,
    /// How many come after the next slow write.
    next: AtomicU32,
    /// Writes by a ring since the last slow one.
    well: AtomicU32,
}

impl DurableWrites {
    /// Nothing known.
    pub const fn new() -> DurableWrites {
        DurableWrites { calls: AtomicU32::new(0), next: AtomicU32::new(PLAIN_MIN), well: AtomicU32::new(0) }
    }

    /// By which call the next write is made.
    pub fn next(&self) -> By {
        if self.calls.load(Relaxed) == 0 { By::Ring } else { By::Call }
    }

    /// A write has been made, and has taken so long.
    pub fn done(&self, by: By, took_ns: u64) {
        match (by, took_ns > SLOW_NS) {
            (By::Ring, true) => {
                let calls = self.next.load(Relaxed);
                self.calls.store(calls, Relaxed);
                self.next.store((calls * 2).min(PLAIN_MAX), Relaxed);
                self.well.store(0, Relaxed);
            }
            (By::Ring, false) => {
                if self.well.fetch_add(1, Relaxed) + 1 == FORGIVEN {
                    self.next.store(PLAIN_MIN, Relaxed);
                }
            }
            // The medium is slow, and not the ring.
            (By::Call, true) => self.calls.store(0, Relaxed),
            (By::Call, false) => {
                let _ = self.calls.fetch_update(Relaxed, Relaxed, |calls| calls.checked_sub(1));
            }
        }
    }
}

impl Default for DurableWrites {
    fn default() -> DurableWrites {
        DurableWrites::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: u64 = 100_000;
    const SLOW: u64 = 4_000_000;

    /// Makes writes, of which those by a ring and plain calls take so long; how many were made by a ring.
    fn make(writes: &DurableWrites, count: u32, ring: u64, call: u64) -> u32 {
        let mut by_ring = 0;
        for _ in 0..count {
            let by = writes.next();
            by_ring += u32::from(by == By::Ring);
            writes.done(by, if by == By::Ring { ring } else { call });
        }
        by_ring
    }

    #[test]
    fn where_a_ring_is_slow_plain_calls_are_made_and_rings_are_tried_ever_more_rarely() {
        let writes = DurableWrites::new();
        assert_eq!(make(&writes, 1000, FAST, FAST), 1000);
        assert_eq!(make(&writes, 10_000, SLOW, FAST), 8, "64 + 128 + .. + 4096 calls between them");
        // As soon as a ring is tried again, and well.
        make(&writes, PLAIN_MAX, FAST, FAST);
        assert_eq!(make(&writes, 1000, FAST, FAST), 1000);
        assert_eq!(make(&writes, PLAIN_MIN + 2, SLOW, FAST), 2, "the next slow one is the first again");
    }

    #[test]
    fn a_slow_medium_is_not_the_rings_fault() {
        let writes = DurableWrites::new();
        assert_eq!(make(&writes, 1000, SLOW, SLOW), 500);
    }
}
