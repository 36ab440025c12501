//! Group commit: threads that wait for durability share the device's flushes.
//!
//! The first thread flushes, without the state's lock. A thread that arrives during the flush waits. It returns after
//! that flush when its frame was written before the flush began; otherwise it flushes next, for itself and for all that
//! arrived meanwhile.

use crate::core::Shared;
use crate::error::device_failed;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering::{Acquire, Release};
use weft_vfs::FsResult;

/// Shares flushes. Its mutex guards whether one is running, nothing else.
#[derive(Default)]
pub(crate) struct GroupCommit {
    running: Mutex<bool>,
    done: Condvar,
}

impl GroupCommit {
    /// Returns when frame `seq` is durable.
    pub fn wait_durable(&self, shared: &Shared, seq: u64) -> FsResult<()> {
        let mut running = self.running.lock();
        loop {
            if shared.durable_seq.load(Acquire) >= seq {
                return Ok(());
            }
            if !*running {
                break;
            }
            self.done.wait(&mut running);
        }
        *running = true;
        drop(running);
        // Frames up to here are with the device, so the flush covers them.
        let covered = shared.written_seq.load(Acquire);
        let flushed = shared.dev.flush();
        if flushed.is_ok() {
            shared.durable_seq.fetch_max(covered, Release);
        }
        *self.running.lock() = false;
        self.done.notify_all();
        flushed.map_err(device_failed)
    }
}
