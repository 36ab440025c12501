//! The state word of a slot: how one side passes the slot to the other, and sleeps until it comes back.
//!
//! ```text
//!   passes                                sleeps
//!   state = its turn                      sleeps = 1
//!   ---- fence ----                       ---- fence ----
//!   sleeps != 0 ? wake                    state is my turn ? go on : sleep while it is what I saw
//! ```
//!
//! Each side writes its own word and then reads the other's. The fences let at least one of them see what the other has
//! written: either who passes sees the sleeper, or the sleeper sees that it is its turn. Without one of them, or without the
//! look behind it, a wake-up is lost; `tests/turns.rs` tries all orders.

use crate::sys;
use std::sync::atomic::{AtomicU32, Ordering, Ordering::*, fence};

/// A word of shared memory that threads sleep on.
pub trait Word {
    /// Reads it.
    fn load(&self, ordering: Ordering) -> u32;
    /// Writes it.
    fn store(&self, value: u32, ordering: Ordering);
    /// Sleeps while it is `seen`, for at most so long; may return early.
    fn wait(&self, seen: u32, timeout_ns: u64);
    /// Wakes all who sleep on it.
    fn wake(&self);
    /// Wakes one of them.
    fn wake_one(&self);
    /// Adds to it, and wraps around.
    fn add(&self, value: u32);
    /// Orders what is before and after it among all processors.
    fn fence();
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u32 {
        AtomicU32::load(self, ordering)
    }

    #[inline]
    fn store(&self, value: u32, ordering: Ordering) {
        AtomicU32::store(self, value, ordering);
    }

    fn wait(&self, seen: u32, timeout_ns: u64) {
        sys::futex_wait(self, seen, timeout_ns);
    }

    fn wake(&self) {
        sys::futex_wake(self, u32::MAX >> 1);
    }

    fn wake_one(&self) {
        sys::futex_wake(self, 1);
    }

    fn add(&self, value: u32) {
        self.fetch_add(value, SeqCst);
    }

    #[inline]
    fn fence() {
        fence(SeqCst);
    }
}

/// Passes the slot on: `state` becomes `turn`, and the other side is woken when it sleeps.
#[inline]
pub fn pass<W: Word>(state: &W, turn: u32, other_sleeps: &W) {
    state.store(turn, Release);
    W::fence();
    if other_sleeps.load(Relaxed) != 0 {
        state.wake();
    }
}

/// Sleeps until `state` is `turn`. Each time it was not so after a sleep (of at most `timeout_ns`) and before the first,
/// `give_up` is asked whether to stop; then the result is false.
pub fn sleep_until<W: Word>(
    state: &W,
    turn: u32,
    own_sleeps: &W,
    timeout_ns: u64,
    mut give_up: impl FnMut() -> bool,
) -> bool {
    own_sleeps.store(1, Relaxed);
    loop {
        W::fence();
        let seen = state.load(Acquire);
        if seen == turn {
            own_sleeps.store(0, Relaxed);
            return true;
        }
        if give_up() {
            return false;
        }
        state.wait(seen, timeout_ns);
    }
}
