//! The store's moment in the device's virtual time.
//!
//! A store has no clock of its own: a read is issued when the last call that it waited for was over, and so are all writes between two
//! syncs, which run side by side as far as they meet different LUNs. A sync waits for all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::Nanos;

#[derive(Debug, Default)]
pub(crate) struct Clock {
    now: AtomicU64,
    /// When the last write that was begun is over.
    written: AtomicU64,
}

impl Clock {
    /// A clock that begins at this moment.
    pub(crate) fn at(now: Nanos) -> Clock {
        Clock { now: AtomicU64::new(now.0), written: AtomicU64::new(now.0) }
    }

    // Relaxed: a moment guards nothing.
    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }

    /// A write ends at this moment, and nobody waits for it yet.
    pub(crate) fn will_have_written(&self, end: Nanos) {
        self.written.fetch_max(end.0, Ordering::Relaxed);
    }

    /// The caller has waited until this moment.
    pub(crate) fn waited(&self, end: Nanos) {
        self.now.fetch_max(end.0, Ordering::Relaxed);
    }

    /// When all writes are over.
    pub(crate) fn written(&self) -> Nanos {
        Nanos(self.written.load(Ordering::Relaxed)).max(self.now())
    }
}
