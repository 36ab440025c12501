//! Counters of the commands that a drive has received since it was opened.

use crate::clock::{Latencies, Latency};
use crate::totals::Totals;
use crate::zoned::DeviceCounters;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weft_core::{Nanos, Origin};

/// Running counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Those that do not measure time. What a drive erases it does not tell; a zone is erased at its reset.
    pub totals: Totals,
    latency: Latency,
}

impl Counts {
    /// A write of so many bytes that began then.
    pub fn wrote(&self, bytes: u64, origin: Origin, begun: Instant) {
        self.totals.wrote(bytes, origin, bytes);
        self.latency.write.record(nanos(begun.elapsed()));
    }

    /// Bytes that a failed write left on the drive, or that mark an end: nobody's.
    pub fn padded(&self, bytes: u64) {
        self.totals.media.fetch_add(bytes, Relaxed);
    }

    /// A read.
    pub fn read(&self, bytes: u64, begun: Instant) {
        self.totals.read(bytes);
        self.latency.read.record(nanos(begun.elapsed()));
    }

    /// A flush.
    pub fn flushed(&self, begun: Instant) {
        self.totals.flushes.fetch_add(1, Relaxed);
        self.latency.flush.record(nanos(begun.elapsed()));
    }

    /// A reset.
    pub fn reset(&self, begun: Instant) {
        self.totals.resets.fetch_add(1, Relaxed);
        self.totals.erases.fetch_add(1, Relaxed);
        self.latency.reset.record(nanos(begun.elapsed()));
    }

    /// What commands took.
    pub fn latencies(&self) -> Latencies {
        self.latency.summary()
    }

    /// The counters as the interface shows them.
    pub fn counters(&self, age: Duration) -> DeviceCounters {
        DeviceCounters { now: Nanos(nanos(age)), ..self.totals.counters() }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
