//! What programs measured of their own calls: those that have ended, summed, and those that run, each in memory that it
//! shares with the server.

use crate::connection::Connection;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_client::shared::channel::Measured;
use weft_core::BLOCK_BYTES;
use weft_core::hist::Histogram;
use weft_volume::ProgramView;

/// What the programs of a volume measured.
#[derive(Default)]
pub(crate) struct Programs {
    /// Summed over those that have ended.
    ended: Totals,
    /// Those that run. A program goes from here to the sum under this lock, so that it counts once at any moment.
    running: Mutex<FxHashMap<u32, Running>>,
}

/// A program that runs.
struct Running {
    connection: Arc<Connection>,
    told: DirectReads,
}

/// Reads without the server, and the blocks they read.
#[derive(Clone, Copy, Default)]
struct DirectReads {
    reads: u64,
    blocks: u64,
}

impl DirectReads {
    fn of(measured: &Measured) -> DirectReads {
        let (reads, blocks) = (&measured.direct_reads, &measured.direct_blocks);
        DirectReads { reads: reads.load(Relaxed), blocks: blocks.load(Relaxed) }
    }

    /// Tells of what came since the last time.
    fn tell(&mut self, now: DirectReads, tell: &dyn Fn(u64, u64)) {
        // The figures are the program's own word, which may go backwards.
        let (reads, blocks) = (now.reads.saturating_sub(self.reads), now.blocks.saturating_sub(self.blocks));
        if reads > 0 || blocks > 0 {
            tell(reads, blocks.saturating_mul(BLOCK_BYTES as u64));
        }
        *self = now;
    }
}

/// Sums of what was measured.
#[derive(Default)]
struct Totals {
    reads: Histogram,
    writes: Histogram,
    syncs: Histogram,
    direct_reads: AtomicU64,
    direct_blocks: AtomicU64,
    ring_bytes: AtomicU64,
    calls: AtomicU64,
}

impl Totals {
    fn add(&self, measured: &Measured) {
        self.reads.add(&measured.reads);
        self.writes.add(&measured.writes);
        self.syncs.add(&measured.syncs);
        for (sum, more) in [
            (&self.direct_reads, &measured.direct_reads),
            (&self.direct_blocks, &measured.direct_blocks),
            (&self.ring_bytes, &measured.ring_bytes),
            (&self.calls, &measured.calls),
        ] {
            sum.fetch_add(more.load(Relaxed), Relaxed);
        }
    }

    fn add_totals(&self, other: &Totals) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.syncs.add(&other.syncs);
        for (sum, more) in [
            (&self.direct_reads, &other.direct_reads),
            (&self.direct_blocks, &other.direct_blocks),
            (&self.ring_bytes, &other.ring_bytes),
            (&self.calls, &other.calls),
        ] {
            sum.fetch_add(more.load(Relaxed), Relaxed);
        }
    }
}

impl Programs {
    /// A program runs.
    pub fn begin(&self, connection: &Arc<Connection>) {
        let running = Running { connection: connection.clone(), told: DirectReads::default() };
        self.running.lock().insert(connection.id, running);
    }

    /// It has ended. `direct` is told of the reads that it made without the server.
    pub fn end(&self, connection: &Connection, direct: &dyn Fn(u64, u64)) {
        let mut running = self.running.lock();
        let measured = connection.measured();
        let mut told = running.remove(&connection.id).map(|r| r.told).unwrap_or_default();
        told.tell(DirectReads::of(measured), direct);
        self.ended.add(measured);
    }

    /// What all programs saw so far. `direct` is told of reads without the server that it has not been told of.
    pub fn view(&self, notes: Vec<(String, u64)>, direct: &dyn Fn(u64, u64)) -> ProgramView {
        let mut running = self.running.lock();
        let sum = Totals::default();
        sum.add_totals(&self.ended);
        let mut names = Vec::with_capacity(running.len());
        for program in running.values_mut() {
            let measured = program.connection.measured();
            program.told.tell(DirectReads::of(measured), direct);
            sum.add(measured);
            names.push(program.connection.comm.lock().clone());
        }
        names.sort_unstable();
        ProgramView {
            reads: sum.reads.summary(),
            writes: sum.writes.summary(),
            syncs: sum.syncs.summary(),
            direct_reads: sum.direct_reads.load(Relaxed),
            direct_bytes: sum.direct_blocks.load(Relaxed).saturating_mul(BLOCK_BYTES as u64),
            ring_bytes: sum.ring_bytes.load(Relaxed),
            calls: sum.calls.load(Relaxed),
            notes,
            running: names,
        }
    }
}
