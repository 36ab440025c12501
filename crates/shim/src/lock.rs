//! A lock for the short critical sections of the shim's own tables.
//!
//! It neither allocates nor leaves anything to a destructor, and it can be forced open in a forked child, where the thread
//! that held it does not exist. Signal handlers wait until it is given back.

use crate::sys;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering::*};
use weft_client::busy::Busy;

/// Looks at the word this often before it lets another thread run.
const SPINS: u32 = 64;

/// A value behind a lock.
pub struct Locked<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through `with`, by one thread at a time.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Locked { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Runs `act` with the value. `act` must not come back here.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        let _busy = Busy::new();
        let mut spins = 0;
        while self.word.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                sys::yield_now();
            }
        }
        // SAFETY: the word excludes every other thread until it is stored below.
        let result = act(unsafe { &mut *self.value.get() });
        debug_assert_eq!(self.word.load(Relaxed), 1, "held until here");
        self.word.store(0, Release);
        result
    }

    /// In a forked child: whoever held the lock is in the parent. What it was about to do to the copy is lost, so `act` of
    /// [`with`](Self::with) must leave the value usable at every step.
    pub fn force_open(&self) {
        // What is not stored needs no copy of the page.
        if self.word.load(Relaxed) != 0 {
            self.word.store(0, Release);
        }
    }

    /// In a forked child: as [`force_open`](Self::force_open), with another value. The one before may be half changed, or lie in memory
    /// that the child does not have; it is not dropped.
    pub fn reset(&self, value: T) {
        // SAFETY: the child has one thread, which is in no `with` of this lock.
        unsafe { self.value.get().write(value) };
        self.force_open();
    }
}
