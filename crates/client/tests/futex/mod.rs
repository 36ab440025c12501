//! A futex for `loom`.

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use weft_client::shared::turn::Word;

/// A futex. Whether to sleep is decided under the lock that a wake-up takes, as in the kernel.
pub struct Futex<const FENCED: bool> {
    pub value: AtomicU32,
    pub sleepers: Mutex<()>,
    pub bell: Condvar,
}

impl<const FENCED: bool> Futex<FENCED> {
    pub fn new(value: u32) -> Self {
        Futex { value: AtomicU32::new(value), sleepers: Mutex::new(()), bell: Condvar::new() }
    }
}

impl<const FENCED: bool> Word for Futex<FENCED> {
    fn load(&self, ordering: Ordering) -> u32 {
        self.value.load(ordering)
    }

    fn store(&self, value: u32, ordering: Ordering) {
        self.value.store(value, ordering);
    }

    fn wait(&self, seen: u32, _: u64) {
        let sleepers = self.sleepers.lock().unwrap();
        if self.value.load(Ordering::Relaxed) == seen {
            drop(self.bell.wait(sleepers).unwrap());
        }
    }

    fn wake(&self) {
        let _sleepers = self.sleepers.lock().unwrap();
        self.bell.notify_all();
    }

    fn wake_one(&self) {
        let _sleepers = self.sleepers.lock().unwrap();
        self.bell.notify_one();
    }

    fn add(&self, value: u32) {
        self.value.fetch_add(value, Ordering::SeqCst);
    }

    fn fence() {
        if FENCED {
            fence(Ordering::SeqCst);
        }
    }
}
