//! Locks. With `--cfg weft_shuttle` they are those of `shuttle`, which decides at each of them who runs next, so that
//! a test can try thousands of orders in which threads meet (`tests/orders.rs`).

#[cfg(not(weft_shuttle))]
pub(crate) use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
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

/// A value on cache lines of its own: processors that change what lies beside it do not take it from those that read it.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(weft_shuttle)]
pub(crate) use decided::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(weft_shuttle)]
use shuttle::thread;
#[cfg(weft_shuttle)]
pub(crate) use shuttle::thread::JoinHandle;

/// Starts a thread of the store's own.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(body)
}

/// The locks of `shuttle` with the face of those of `parking_lot`. A thread that panics ends the test, so nobody sees
/// what it left locked.
#[cfg(weft_shuttle)]
#[allow(clippy::unwrap_used)]
mod decided {
    use std::ops::{Deref, DerefMut};
    use std::time::Instant;

    #[derive(Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);
    /// Empty only while its thread waits.
    pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>, &'a Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap()), self)
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    #[derive(Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar(shuttle::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(held).unwrap());
        }

        /// Nothing is timed here: the time has come when the scheduler lets this thread go on.
        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> TimedOut {
            guard.0 = None;
            shuttle::thread::yield_now();
            guard.0 = Some(guard.1.0.lock().unwrap());
            TimedOut
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub(crate) struct TimedOut;

    impl TimedOut {
        pub(crate) fn timed_out(&self) -> bool {
            true
        }
    }

    #[derive(Default)]
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);
    pub(crate) use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> RwLock<T> {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap()
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap()
        }

        pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            self.0.try_write().ok()
        }
    }
}
