//! The clock of the device, which its applications share.
//!
//! Device time is virtual: a command says when it is issued and learns when it is over. Applications have no clock between
//! them, so each may be at a time of its own; but none of them takes the device far beyond what it has done, because LUNs
//! that change hands, and the monitor's own log, carry the time of whoever used them last.

use super::Monitor;
use crate::error::LevelError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weft_core::Nanos;

/// How far beyond the device's clock a command may be issued, in device time.
pub const LEAD_MAX: Duration = Duration::from_secs(3600);

/// Device time that has passed for certain: the device was seen there, or its owner said so.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Monitor {
    /// The end of everything issued so far, in device time: when a command that waits for nothing in particular is issued.
    pub fn now(&self) -> Result<Nanos, LevelError> {
        let now = self.backend.now()?.0;
        Ok(Nanos(self.clock.0.fetch_max(now, Relaxed).max(now)))
    }

    /// Lets device time pass with nothing to do. For whoever runs the device: all its applications share the clock.
    pub fn advance(&self, to: Nanos) {
        self.clock.0.fetch_max(to.0, Relaxed);
    }

    /// Refuses a command that is issued too far ahead.
    pub(super) fn check_issued(&self, issued: Nanos) -> Result<(), LevelError> {
        let lead = LEAD_MAX.as_nanos() as u64;
        if issued.0.saturating_sub(self.clock.0.load(Relaxed)) <= lead {
            return Ok(());
        }
        let now = self.now()?;
        if issued.0.saturating_sub(now.0) <= lead {
            return Ok(());
        }
        Err(LevelError::IssuedAhead { issued, now })
    }
}
