//! A lock in shared memory that survives the death of its holder.
//!
//! The word holds the connection of the holder, so the server can free the locks of a process that died. What a lock
//! guards must be consistent at every instruction (publish with one store at the end), as a holder may vanish anywhere.

use crate::sys;
use std::sync::atomic::{AtomicU32, Ordering::*};

const WAITERS: u32 = 1 << 31;
/// The holder's number when the server holds a lock.
pub const SERVER: u32 = 0x7fff_ffff;
const SPINS: u32 = 100;
/// After this long in the queue, look whether the server still lives.
const WAIT_NS: u64 = 20_000_000;

/// A lock word; zero is free.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Takes the lock for `holder` (a connection number plus 1, or [`SERVER`]). `give_up` is asked now and then whether to
    /// stop waiting; then the lock is not held and the result is false.
    pub fn lock(&self, holder: u32, mut give_up: impl FnMut() -> bool) -> bool {
        debug_assert!(holder != 0 && holder & WAITERS == 0, "{holder:#x} cannot hold a lock");
        if self.0.compare_exchange(0, holder, Acquire, Relaxed).is_ok() {
            return true;
        }
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.0.load(Relaxed) == 0 && self.0.compare_exchange(0, holder, Acquire, Relaxed).is_ok() {
                return true;
            }
        }
        loop {
            // Taking it with the waiters bit set costs at most one wake too many.
            let seen = self.0.load(Relaxed);
            if seen == 0 {
                if self.0.compare_exchange(0, holder | WAITERS, Acquire, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            if seen & WAITERS == 0 && self.0.compare_exchange(seen, seen | WAITERS, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            sys::futex_wait(&self.0, seen | WAITERS, WAIT_NS);
            if give_up() {
                return false;
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self, holder: u32) -> bool {
        debug_assert!(holder != 0 && holder & WAITERS == 0, "{holder:#x} cannot hold a lock");
        self.0.compare_exchange(0, holder, Acquire, Relaxed).is_ok()
    }

    /// Gives the lock back; false if it was taken from `holder` meanwhile.
    pub fn unlock(&self, holder: u32) -> bool {
        if self.0.compare_exchange(holder, 0, Release, Relaxed).is_ok() {
            return true;
        }
        if self.0.compare_exchange(holder | WAITERS, 0, Release, Relaxed).is_ok() {
            sys::futex_wake(&self.0, 1);
            return true;
        }
        // Somebody may have come to wait between the two looks.
        self.holder() == holder && self.unlock(holder)
    }

    /// Who holds the lock; 0 = nobody.
    pub fn holder(&self) -> u32 {
        self.0.load(Relaxed) & !WAITERS
    }

    /// Frees the lock if `holder` has it; for the server, when that process is dead.
    pub fn free_if_held_by(&self, holder: u32) {
        let seen = self.0.load(Relaxed);
        if seen & !WAITERS == holder && self.0.compare_exchange(seen, 0, AcqRel, Relaxed).is_ok() {
            sys::futex_wake(&self.0, u32::MAX >> 1);
        }
    }

    /// Makes the word free, whatever it holds; for the server, when it hands out the memory anew.
    pub fn clear(&self) {
        self.0.store(0, Release);
    }
}
