//! Counters of the commands that a drive has received since it was opened.

use crate::clock::Latencies;
use crate::zoned::DeviceCounters;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weft_core::hist::Histogram;
use weft_core::{Nanos, Origin};

/// Running counts. Relaxed atomics: each is a sum of its own.
#[derive(Debug, Default)]
pub struct Counts {
    written: [AtomicU64; 3],
    padding: AtomicU64,
    read_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    resets: AtomicU64,
    refused: AtomicU64,
    open_high_water: AtomicU64,
    active_high_water: AtomicU64,
    read: Histogram,
    write: Histogram,
    flush: Histogram,
    reset: Histogram,
}

impl Counts {
    /// A write of so many bytes that began then.
    pub fn wrote(&self, bytes: u64, origin: Origin, begun: Instant) {
        self.written[origin as usize].fetch_add(bytes, Relaxed);
        self.writes.fetch_add(1, Relaxed);
        self.write.record(nanos(begun.elapsed()));
    }

    /// Bytes that a failed write left on the drive, or that mark an end: nobody's.
    pub fn padded(&self, bytes: u64) {
        self.padding.fetch_add(bytes, Relaxed);
    }

    /// A read.
    pub fn read(&self, bytes: u64, begun: Instant) {
        self.read_bytes.fetch_add(bytes, Relaxed);
        self.reads.fetch_add(1, Relaxed);
        self.read.record(nanos(begun.elapsed()));
    }

    /// A flush.
    pub fn flushed(&self, begun: Instant) {
        self.flushes.fetch_add(1, Relaxed);
        self.flush.record(nanos(begun.elapsed()));
    }

    /// A reset.
    pub fn reset(&self, begun: Instant) {
        self.resets.fetch_add(1, Relaxed);
        self.reset.record(nanos(begun.elapsed()));
    }

    /// A command that was refused.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// How many zones are open and active now.
    pub fn in_use(&self, open: u32, active: u32) {
        self.open_high_water.fetch_max(u64::from(open), Relaxed);
        self.active_high_water.fetch_max(u64::from(active), Relaxed);
    }

    /// What commands took.
    pub fn latencies(&self) -> Latencies {
        Latencies {
            read: self.read.summary(),
            write: self.write.summary(),
            flush: self.flush.summary(),
            reset: self.reset.summary(),
        }
    }

    /// The counters as the interface shows them.
    pub fn counters(&self, age: Duration) -> DeviceCounters {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let written = [Origin::Host, Origin::Gc, Origin::Metadata].map(|of| get(&self.written[of as usize]));
        let resets = get(&self.resets);
        DeviceCounters {
            host_bytes: written[0],
            gc_bytes: written[1],
            metadata_bytes: written[2],
            media_bytes: written.iter().sum::<u64>() + get(&self.padding),
            read_bytes: get(&self.read_bytes),
            reads: get(&self.reads),
            writes: get(&self.writes),
            flushes: get(&self.flushes),
            resets,
            // What a drive erases it does not tell; a zone is erased at its reset.
            erases: resets,
            refused: get(&self.refused),
            open_high_water: get(&self.open_high_water) as u32,
            active_high_water: get(&self.active_high_water) as u32,
            now: Nanos(nanos(age)),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
