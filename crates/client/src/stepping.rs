//! Points between two accesses to shared memory at which a test can hold a thread.
//!
//! Kills between calls do not stop a thread between two loads. A test that sets a hook here decides there who goes on. Without
//! the feature `stepping`, which only tests enable, there is nothing here.

#[cfg(feature = "stepping")]
use std::sync::OnceLock;

#[cfg(feature = "stepping")]
static HOOK: OnceLock<fn(Point)> = OnceLock::new();

/// Calls `hook` at each point from now on. The first one stays.
#[cfg(feature = "stepping")]
pub fn set_hook(hook: fn(Point)) {
    let _ = HOOK.set(hook);
}

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// Before the next access to shared memory.
    Before,
    /// An entry of the append log has just been written.
    EntryWritten,
    /// A piece of a long write has just been written.
    PieceWritten,
}

/// A thread comes to a point.
#[inline]
pub(crate) fn step(_point: Point) {
    #[cfg(feature = "stepping")]
    if let Some(hook) = HOOK.get() {
        hook(_point);
    }
}
