//! What a process does with much of its memory: in what order it goes through it. Who keeps memory in a file tells it to the kernel, which
//! then reads ahead, or does not. For others it says nothing.

use std::sync::{Mutex, OnceLock, PoisonError};

/// How many go through memory in the order in which it was taken.
static IN_ORDER: Mutex<usize> = Mutex::new(0);
static TELL: OnceLock<fn(bool)> = OnceLock::new();

/// Memory is gone through in the order in which it was taken, as long as this lives.
#[derive(Debug)]
pub struct InOrder(());

/// Says that much memory is gone through in order: when all that is known is loaded, stored or given back.
pub fn in_order() -> InOrder {
    change(|count| count + 1);
    InOrder(())
}

/// Has `tell` hear when that begins and ends, and now what holds. For once.
pub fn on_change(tell: fn(bool)) {
    let _ = TELL.set(tell);
    change(|count| count);
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
