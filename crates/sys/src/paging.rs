//! What a process does with much of its memory: in what order it goes through it. Who keeps memory in a file tells it to the kernel, which
//! then reads ahead, or does not. For others it says nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// How many go through memory in the order in which it was taken.
static IN_ORDER: AtomicUsize = AtomicUsize::new(0);
static TELL: OnceLock<fn(bool)> = OnceLock::new();

/// Memory is gone through in the order in which it was taken, as long as this lives.
#[derive(Debug)]
pub struct InOrder(());

/// Says that much memory is gone through in order: when all that is known is loaded, stored or given back.
pub fn in_order() -> InOrder {
    if IN_ORDER.fetch_add(1, SeqCst) == 0 {
        tell(true);
    }
    InOrder(())
}

/// Whether somebody does so now.
pub fn is_in_order() -> bool {
    IN_ORDER.load(SeqCst) > 0
}

/// Has `tell` hear when that begins and ends. For once.
pub fn on_change(tell: fn(bool)) {
    let _ = TELL.set(tell);
}

impl Drop for InOrder {
    fn drop(&mut self) {
        if IN_ORDER.fetch_sub(1, SeqCst) == 1 {
            tell(false);
        }
    }
}

fn tell(in_order: bool) {
    if let Some(tell) = TELL.get() {
        tell(in_order);
    }
}
