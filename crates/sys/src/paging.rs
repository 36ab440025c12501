//! What a process does with much of its memory: in what order it goes through it, and how fast. Who keeps memory in a file tells the kernel,
//! which then reads ahead, or does not, and holds up whoever touches more than may be there. For others it says nothing.

use std::sync::{Mutex, OnceLock, PoisonError};

/// How many go through memory in the order in which it was taken.
static IN_ORDER: Mutex<usize> = Mutex::new(0);
static TELL: OnceLock<fn(bool)> = OnceLock::new();
static WAIT: OnceLock<fn()> = OnceLock::new();

/// Memory is gone through in the order in which it was taken, as long as this lives.
#[derive(Debug)]
pub struct InOrder(());

/// Says that much memory is gone through in order: when all that is known is loaded, stored or given back.
pub fn in_order() -> InOrder {
    change(|count| count + 1);
    InOrder(())
}

/// Has `tell` hear when that begins and ends, and now what holds; and `wait` called at each step of who goes through all memory. For once.
pub fn on_use(tell: fn(bool), wait: fn()) {
    let _ = TELL.set(tell);
    let _ = WAIT.set(wait);
    change(|count| count);
}

/// A step through all memory: waits while more of it is there than may be.
#[inline]
pub fn step() {
    if let Some(wait) = WAIT.get() {
        wait();
    }
}

impl Drop for InOrder {
    fn drop(&mut self) {
        change(|count| count - 1);
    }
}

/// What is told last is what holds, so both are done under the lock.
fn change(next: impl FnOnce(usize) -> usize) {
    let mut count = IN_ORDER.lock().unwrap_or_else(PoisonError::into_inner);
    *count = next(*count);
    if let Some(tell) = TELL.get() {
        tell(*count > 0);
    }
}
