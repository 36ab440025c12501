//! The counters of the whole device, and the check that they agree with those of the zones.

use crate::DeviceError;
use crate::geometry::Geometry;
use crate::image::record::{COUNTS_MAX, ZoneRecord, ZoneShape};
use crate::image::slot::{CONTENT_WORDS, Content};
use crate::zoned::{DeviceCounters, ZoneState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::{BLOCK_BYTES, Nanos, Origin};

/// Running counts. Relaxed atomics: each is a sum of its own, and nothing is concluded from two being in step while
/// commands are under way.
#[derive(Default, Debug)]
pub struct Totals {
    /// Bytes written, by [`Origin`].
    pub written: [AtomicU64; 3],
    /// Bytes programmed.
    pub media: AtomicU64,
    /// Write and append commands.
    pub writes: AtomicU64,
    /// Resets.
    pub resets: AtomicU64,
    /// Erases of blocks.
    pub erases: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Read commands.
    pub reads: AtomicU64,
    /// Flush commands.
    pub flushes: AtomicU64,
    /// Commands refused.
    pub refused: AtomicU64,
    /// Most zones open at once.
    pub open_high_water: AtomicU64,
    /// Most zones active at once.
    pub active_high_water: AtomicU64,
    /// The device's clock when the totals were last stored, in nanoseconds.
    pub now: AtomicU64,
}

impl Totals {
    /// Counts that no zone's record has, as they stand in the counters record.
    pub fn encode(&self) -> Content {
        let mut content = [0; CONTENT_WORDS];
        for (word, counter) in content.iter_mut().zip(self.own()) {
            *word = counter.load(Relaxed);
        }
        content
    }

    /// Reads what [`encode`](Totals::encode) wrote; `None` when a count, or the clock, is beyond what any device gets to.
    pub fn decode(content: &Content) -> Option<Totals> {
        let totals = Totals::default();
        for (counter, word) in totals.own().into_iter().zip(content) {
            counter.store(*word, Relaxed);
        }
        content.iter().all(|word| *word <= COUNTS_MAX).then_some(totals)
    }

    /// Takes over the counts that no zone's record has.
    pub fn copy_own(&self, from: &Totals) {
        for (mine, theirs) in self.own().into_iter().zip(from.own()) {
            mine.store(theirs.load(Relaxed), Relaxed);
        }
    }

    fn own(&self) -> [&AtomicU64; 7] {
        [
            &self.reads,
            &self.read_bytes,
            &self.flushes,
            &self.refused,
            &self.open_high_water,
            &self.active_high_water,
            &self.now,
        ]
    }

    /// Counts a write of so many bytes, some of which may go to the buffer.
    pub fn wrote(&self, bytes: u64, origin: Origin, programmed: u64) {
        self.written[origin as usize].fetch_add(bytes, Relaxed);
        self.media.fetch_add(programmed, Relaxed);
        self.writes.fetch_add(1, Relaxed);
    }

    /// Counts a read.
    pub fn read(&self, bytes: u64) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts a refusal that is passed on.
    pub fn counted<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Err(error) = &result
            && error.is_refusal()
        {
            self.refused.fetch_add(1, Relaxed);
            tracing::debug!(%error, "refused");
        }
        result
    }

    /// So many zones are open and active now.
    pub fn in_use(&self, (open, active): (u32, u32)) {
        self.open_high_water.fetch_max(u64::from(open), Relaxed);
        self.active_high_water.fetch_max(u64::from(active), Relaxed);
    }

    /// Sums up the zones' records anew.
    pub fn recount(&self, records: impl Iterator<Item = ZoneRecord>, blocks_per_zone: u64) {
        for counter in self.written.iter().chain([&self.media, &self.writes, &self.resets, &self.erases]) {
            counter.store(0, Relaxed);
        }
        for record in records {
            for (total, bytes) in self.written.iter().zip(record.written) {
                total.fetch_add(bytes, Relaxed);
            }
            self.media.fetch_add(record.programmed, Relaxed);
            self.writes.fetch_add(record.writes, Relaxed);
            self.resets.fetch_add(record.resets, Relaxed);
            self.erases.fetch_add(u64::from(record.erases) * blocks_per_zone, Relaxed);
        }
    }

    /// The counters as the interface shows them.
    pub fn counters(&self) -> DeviceCounters {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        DeviceCounters {
            host_bytes: get(&self.written[Origin::Host as usize]),
            gc_bytes: get(&self.written[Origin::Gc as usize]),
            metadata_bytes: get(&self.written[Origin::Metadata as usize]),
            media_bytes: get(&self.media),
            read_bytes: get(&self.read_bytes),
            reads: get(&self.reads),
            writes: get(&self.writes),
            flushes: get(&self.flushes),
            resets: get(&self.resets),
            erases: get(&self.erases),
            refused: get(&self.refused),
            open_high_water: get(&self.open_high_water) as u32,
            active_high_water: get(&self.active_high_water) as u32,
            now: Nanos(get(&self.now)),
        }
    }

    /// The erase identity. It is checked while no command is under way.
    ///
    /// The left sides are counted command by command in these totals; the right sides come from the geometry, from
    /// the write pointers, and from each zone's own record.
    ///
    /// ```text
    ///  erases x block_bytes - erased without content == media_bytes - standing in written blocks
    ///  host + gc + metadata + padding                == media_bytes + buffered + dropped from the buffer
    /// ```
    pub fn verify(
        &self,
        records: impl Iterator<Item = ZoneRecord>,
        geometry: &Geometry,
    ) -> Result<(), DeviceError> {
        let shape = ZoneShape { capacity: geometry.zone_capacity_bytes, unit: geometry.unit_bytes() };
        let (mut standing, mut unwritten, mut padding, mut buffered, mut dropped) = (0, 0, 0, 0, 0);
        for record in records {
            standing += standing_by_geometry(&record, shape);
            unwritten += record.erased_unwritten;
            padding += record.padding;
            buffered += record.buffered();
            dropped += record.dropped;
        }
        let now = self.counters();
        let erased = now.erases * geometry.block_bytes();
        let identity = |erased_bytes: u64, written_bytes: u64, open_bytes: u64| {
            if written_bytes.checked_sub(open_bytes) == Some(erased_bytes) {
                return Ok(());
            }
            Err(DeviceError::EraseIdentity { erased_bytes, written_bytes, open_bytes })
        };
        identity(erased.saturating_sub(unwritten), now.media_bytes, standing)?;
        let written = now.host_bytes + now.gc_bytes + now.metadata_bytes + padding;
        identity(now.media_bytes, written, buffered + dropped)
    }
}

/// Bytes programmed in a zone since its last erase, told from its state and write pointer alone where these tell.
fn standing_by_geometry(record: &ZoneRecord, shape: ZoneShape) -> u64 {
    let bytes = u64::from(record.write_pointer) * BLOCK_BYTES as u64;
    match record.state {
        ZoneState::Full => bytes.next_multiple_of(shape.unit),
        ZoneState::ReadOnly | ZoneState::Offline => record.standing,
        _ => bytes / shape.unit * shape.unit,
    }
}
