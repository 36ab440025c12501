//! Group commit: those who wait for durability share the device's flushes.
//!
//! Whoever comes first flushes, without the state's lock; who comes while it runs waits, and is done when its frame
//! was written before that flush began, else the next flush is for it and all who came meanwhile.

use crate::core::Ground;
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
    pub fn wait_durable(&self, ground: &Ground, seq: u64) -> FsResult<()> {
        let mut running = self.running.lock();
        loop {
            if ground.durable_seq.load(Acquire) >= seq {
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
        let covered = ground.written_seq.load(Acquire);
        let flushed = ground.dev.flush();
        if flushed.is_ok() {
            ground.durable_seq.fetch_max(covered, Release);
        }
        *self.running.lock() = false;
        self.done.notify_all();
        flushed.map_err(device_failed)
    }
}
