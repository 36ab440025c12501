//! Memory taken from the kernel ahead of its use, by a thread of its own.
//!
//! The first touch of a huge page has the kernel clear it: 0.1 ms, and some 4 ms in a virtual machine whose host takes free
//! memory back, a third of the time of an insert. So while a region is being filled, the next part of it is populated meanwhile.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Bytes populated by one call.
const STEP_BYTES: usize = 2 << 20;
/// Bytes kept ready beyond what is used.
const AHEAD_BYTES: usize = 16 << 20;
/// The kernel's number for populating writable pages (Linux 5.14).
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// The thread that populates a region.
pub(super) struct Ahead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    bytes: usize,
    ends: bool,
}

impl Ahead {
    /// Begins to populate `bytes` from the address `start`, as [`Ahead::used`] asks for them. The region has to stay mapped
    /// until this is dropped.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(super) fn of(start: usize, bytes: usize) -> io::Result<Ahead> {
        let shared = Arc::new(Shared { wanted: Mutex::default(), changed: Condvar::new() });
        let theirs = shared.clone();
        let populate = move || populate(&theirs, start, bytes);
        let thread = std::thread::Builder::new().name("weft-tags-memory".into()).spawn(populate)?;
        Ok(Ahead { shared, thread: Some(thread) })
    }

    /// Notes that the first `bytes` are in use.
    #[inline]
    pub(super) fn used(&self, bytes: usize) {
        if bytes.is_multiple_of(STEP_BYTES) {
            self.shared.wanted.lock().bytes = bytes + AHEAD_BYTES;
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.wanted.lock().ends = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It does not panic; what it leaves undone is done by the first touch.
            drop(thread.join());
        }
    }
}

fn populate(shared: &Shared, start: usize, bytes: usize) {
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
        // SAFETY: the range lies in the region, which is mapped while this runs; populating changes no content.
        let refused = unsafe { libc::madvise((start + done) as *mut _, step, MADV_POPULATE_WRITE) } != 0;
        if refused {
            return;
        }
        done += step;
    }
}
