//! Prefaults memory: a thread touches pages of a region before they are used.
//!
//! The first touch of a huge page has the kernel clear it: 0.1 ms, and some 4 ms in a virtual machine whose host takes free
//! memory back, a third of the time of an insert into the tag store. So while a region is being filled, the next part of it is
//! populated meanwhile.

use crate::fork::Process;
use crate::huge::HugeRegion;
use crate::map::Advice;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Bytes populated by one call.
const STEP_BYTES: usize = 2 << 20;
/// Bytes kept ready beyond what is used.
const AHEAD_BYTES: usize = 16 << 20;

/// The thread that populates a region.
pub struct Prefault {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// A forked child has no such thread.
    process: Process,
}

struct Shared {
    wanted: Mutex<PrefaultRequest>,
    changed: Condvar,
}

#[derive(Default)]
struct PrefaultRequest {
    bytes: usize,
    ends: bool,
}

impl Prefault {
    /// Begins to populate the first `bytes` of a region, as [`Prefault::used`] asks for them, by a thread of this name.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn of(region: Arc<HugeRegion>, bytes: usize, name: &str) -> io::Result<Prefault> {
        let shared = Arc::new(Shared { wanted: Mutex::default(), changed: Condvar::new() });
        let theirs = shared.clone();
        let populate = move || populate(&theirs, &region, bytes);
        let thread = std::thread::Builder::new().name(name.into()).spawn(populate)?;
        Ok(Prefault { shared, thread: Some(thread), process: Process::current() })
    }

    /// Notes that the first `bytes` are in use.
    #[inline]
    pub fn used(&self, bytes: usize) {
        if bytes.is_multiple_of(STEP_BYTES) {
            self.shared.wanted.lock().bytes = bytes + AHEAD_BYTES;
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        self.shared.wanted.lock().ends = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It does not panic; what it leaves undone is done by the first touch.
            drop(thread.join());
        }
    }
}

fn populate(shared: &Shared, region: &HugeRegion, bytes: usize) {
    let mut done = 0;
    while done < bytes {
        let mut wanted = shared.wanted.lock();
        while !wanted.ends && wanted.bytes <= done {
            shared.changed.wait(&mut wanted);
        }
        if wanted.ends {
            return;
        }
        // What is in use by now needs no help.
        done = done.max(wanted.bytes.saturating_sub(AHEAD_BYTES));
        drop(wanted);
        let step = STEP_BYTES.min(bytes.saturating_sub(done));
        if region.advise(done..done + step, Advice::PopulateWrite).is_err() {
            return;
        }
        done += step;
    }
}
