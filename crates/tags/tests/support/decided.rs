//! The locks of `shuttle` with the face of those of `parking_lot`. A thread that panics ends the test, so nobody sees
//! what it left locked.
//!
//! Part of the library where it is built for [`orders`](../orders.rs), which alone does so.

#![allow(clippy::unwrap_used)]

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
