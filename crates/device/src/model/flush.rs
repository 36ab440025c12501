//! Making writes durable.

use super::ZonedModel;
use crate::DeviceError;
use crate::flushlog::FlushLog;
use crate::image::log::Item;
use crate::image::table::Record;
use crate::store::Image;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Flushes between two updates of the counters record in the image.
const COUNTERS_EVERY: u64 = 64;

/// Where a flush writes dirty blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlushMode {
    /// To their zones.
    InPlace,
    /// To the log, where that costs less.
    Log,
}

impl ZonedModel {
    /// Makes everything written before the call durable. Calls that come while a flush is under way share the next.
    pub(super) fn flush_all(&self, mode: FlushMode) -> Result<(), DeviceError> {
        self.totals.flushes.fetch_add(1, Relaxed);
        self.clock.flush().wait();
        let Some(image) = self.store.image().filter(|image| image.lasting) else {
            return Ok(());
        };
        let begun = self.flushes_begun.load(Acquire);
        let mut completed = self.flushes_completed.lock();
        if *completed > begun {
            // A flush that began after this call has completed meanwhile.
            return Ok(());
        }
        if self.sync_failed.load(Acquire) {
            return Err(DeviceError::Io {
                path: image.path.clone(),
                source: io::Error::other(
                    "an earlier flush failed; what was written since the one before may be lost",
                ),
            });
        }
        let number = self.flushes_begun.fetch_add(1, AcqRel) + 1;
        if self.changed.swap(false, AcqRel) {
            self.flush_image(image, number, mode)?;
        }
        *completed = number;
        Ok(())
    }

    fn flush_image(&self, image: &Image, number: u64, mode: FlushMode) -> Result<(), DeviceError> {
        let resets = self.resets.load(Acquire);
        let mut log = image.log.lock();
        let (dirty, gathered) = self.begin_flush(log.as_deref_mut().filter(|_| mode == FlushMode::Log));
        if number.is_multiple_of(COUNTERS_EVERY) {
            self.store_counters(image);
        }
        if !(gathered && write_entry(&mut log)) {
            if let Err(error) = image.sync() {
                self.sync_failed.store(true, Release);
                tracing::error!(%error, "flush failed");
                return Err(error);
            }
            if let Some(log) = log.as_mut() {
                log.restart();
            }
        }
        self.resets_durable.fetch_max(resets, AcqRel);
        self.end_flush(&dirty);
        Ok(())
    }

    /// Divides the blocks of each zone that changed: those so far, and those that come during the flush. Gathers
    /// records and blocks so far for an entry of the log, and says whether they fit one.
    pub(super) fn begin_flush(&self, mut log: Option<&mut FlushLog>) -> (Vec<u32>, bool) {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        if let Some(log) = &mut log {
            log.begin();
        }
        for id in &dirty {
            let mut zone = self.zones[*id as usize].zone.lock();
            zone.dirty = false;
            zone.flushing = true;
            zone.record.middle = zone.record.write_pointer;
            if let Some(gathering) = &mut log {
                // With the zone's lock held: after a reset other blocks could stand there.
                let (from, to) = (zone.record.durable, zone.record.write_pointer);
                let item = Item { zone: *id, from, to, record: zone.record.encode() };
                let fits = gathering.add(item).is_some_and(|room| self.store.read(*id, from, room).is_ok());
                if !fits {
                    log = None;
                }
            }
        }
        (dirty, log.is_some_and(|log| log.has_room()))
    }

    /// The blocks that there were when the flush began are durable now.
    pub(super) fn end_flush(&self, dirty: &[u32]) {
        for id in dirty {
            let mut zone = self.zones[*id as usize].zone.lock();
            zone.flushing = false;
            // The new bounds reach the image with the zone's next record: until then the old ones, with checksums over
            // blocks that are now durable, prove the same. After a reset in the meantime `middle` is 0, and nothing of
            // the new blocks counts as durable.
            let record = &mut zone.record;
            record.durable = record.middle;
            record.crc_first = std::mem::take(&mut record.crc_second);
            record.middle = record.write_pointer;
        }
    }

    pub(super) fn store_counters(&self, image: &Image) {
        self.totals.now.store(self.clock.now(), Relaxed);
        let slot = self.counters_slot.load(Relaxed);
        let slot = image.frame.table.set(Record::Counters, slot, &self.totals.encode());
        self.counters_slot.store(slot, Relaxed);
    }
}

/// Writes the entry that was gathered; a log that cannot be written is given up, and the image synced instead.
fn write_entry(log: &mut Option<Box<FlushLog>>) -> bool {
    let Some(writing) = log else { return false };
    match writing.write() {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "the flush log cannot be written: each flush syncs the whole image from now on");
            *log = None;
            false
        }
    }
}
