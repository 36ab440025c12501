//! Locks. With `--cfg weft_shuttle` they are those of `shuttle`, which decides at each of them who runs next, so that
//! a test can try thousands of orders in which threads meet (`tests/orders.rs`).

#[cfg(not(weft_shuttle))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(weft_shuttle))]
use std::thread;
#[cfg(not(weft_shuttle))]
pub(crate) use std::thread::JoinHandle;

/// A thread. The number of one that has ended may be another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ThreadId(usize);

impl ThreadId {
    /// The calling thread.
    #[cfg(not(weft_shuttle))]
    #[inline]
    pub(crate) fn here() -> ThreadId {
        thread_local!(static HERE: u8 = const { 0 });
        // Its address, which no other thread has meanwhile: less work than to ask for the thread's own number.
        ThreadId(HERE.with(|here| std::ptr::from_ref(here) as usize))
    }

    #[cfg(weft_shuttle)]
    pub(crate) fn here() -> ThreadId {
        ThreadId(thread::current().id().into())
    }

    /// A small number, mostly another one than those of other threads.
    #[inline]
    pub(crate) fn stripe(self) -> usize {
        // What threads have lies apart by their stacks.
        (self.0 >> 12).wrapping_mul(0x9e37_79b9) >> 16 & 0xff
    }
}

/// Gives a lock to who waits for it, if anybody does.
pub(crate) fn unlock_fair<T>(guard: RwLockWriteGuard<'_, T>) {
    #[cfg(not(weft_shuttle))]
    RwLockWriteGuard::unlock_fair(guard);
    #[cfg(weft_shuttle)]
    drop(guard);
}

#[cfg(weft_shuttle)]
pub(crate) use decided::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(weft_shuttle)]
use shuttle::thread;
#[cfg(weft_shuttle)]
pub(crate) use shuttle::thread::JoinHandle;

/// Starts a thread of the store's own.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(body)
}

#[cfg(weft_shuttle)]
#[path = "../tests/support/decided.rs"]
mod decided;
