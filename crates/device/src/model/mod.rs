//! The device: zones over a store, with their state machine, limits, durability and accounting.
//!
//! Locks, in the order in which they are taken: `limits`, then zones (two at once only while `limits` is held), then
//! the leaf locks `dirty` and those of the store and the clock. A write to an open zone takes only its zone's lock, and a read takes none.
//! A zone's lock is held over the write to the store: writes to one zone are in order by definition.
//! State and write pointer of each zone are also published in one atomic word, stored (release) after the data is
//! written, so a reader that sees (acquire) a write pointer can read what is below it.

mod command;
mod erase;
mod flush;
mod start;

use crate::DeviceError;
use crate::clock::{Clock, Latencies};
use crate::faults::{FaultPlan, Operation};
use crate::geometry::Geometry;
use crate::image::record::{ZoneRecord, ZoneShape};
use crate::image::table::Record;
use crate::in_use::{InUse, Limits};
use crate::model::flush::FlushMode;
use crate::store::{Store, ZoneBlocks};
use crate::totals::Totals;
use crate::wear::FlashReport;
use crate::zoned::{DeviceCounters, DirectRead, ZoneReport, ZoneState, ZonedDevice, ZonedInfo};
use parking_lot::Mutex;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use weft_core::{BLOCK_BYTES, Nanos, Tag, ZoneId};

/// What a zone's lock guards.
struct Zone {
    record: ZoneRecord,
    /// The slot of the record that counts in the image.
    slot: u32,
    /// A flush is under way: blocks from `record.middle` on belong to the second checked segment.
    flushing: bool,
    /// The zone is in the list of zones that changed since the last flush began.
    dirty: bool,
    /// Number of the zone's last reset among all resets of the device.
    reset: u64,
}

struct ZoneCell {
    /// State and write pointer ([`ZoneReport::pack`]).
    published: AtomicU64,
    zone: Mutex<Zone>,
}

/// All of a zone: what the device keeps of it, and its blocks.
pub(crate) struct ZoneSnapshot {
    pub record: ZoneRecord,
    pub blocks: ZoneBlocks,
}

/// The modelled device with its zoned presentation.
pub struct ZonedModel {
    geometry: Geometry,
    info: ZonedInfo,
    shape: ZoneShape,
    store: Store,
    zones: Box<[ZoneCell]>,
    limits: Mutex<Limits>,
    in_use: InUse,
    dirty: Mutex<Vec<u32>>,
    /// Flushes are numbered in the order in which they begin; one at a time is under way, and holds this lock.
    flushes_completed: Mutex<u64>,
    flushes_begun: AtomicU64,
    counters_slot: AtomicU32,
    /// Something changed since the last flush began.
    changed: AtomicBool,
    /// The host could not make writes durable; nothing that it says of later ones can be believed.
    sync_failed: AtomicBool,
    /// Resets so far.
    resets: AtomicU64,
    /// Resets that are known to be durable.
    resets_durable: AtomicU64,
    totals: Totals,
    clock: Clock,
    faults: FaultPlan,
    /// Blocks that spares have taken the place of.
    replaced: AtomicU32,
    /// Passes of random bytes of an erasure.
    erase_passes: AtomicU32,
}

/// An [append log](weft_core::append_log) in the file of an image.
pub struct AppendLogPlace<'a> {
    /// The file.
    pub file: &'a File,
    /// The log's bytes in it.
    pub bytes: Range<u64>,
    /// The image's id.
    pub image: [u8; 16],
    /// Whether the file outlives the device, and may be written to.
    pub lasting: bool,
}

impl std::fmt::Debug for ZonedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZonedModel").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl ZoneCell {
    /// State and write pointer as they were published last.
    fn report(&self) -> ZoneReport {
        ZoneReport::unpack(self.published.load(Acquire))
    }
}

impl ZonedModel {
    /// The shape of the device.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What the file of the image lacks at its end, in words, if it does.
    pub fn cut_short(&self) -> Option<String> {
        self.store.image()?.cut_short()
    }

    /// Lets flash fail as planned from now on. The plan is not part of an image, what failed by it is. Blocks that are
    /// bad from the factory are found in zones that were never used.
    pub fn with_faults(mut self, plan: FaultPlan) -> ZonedModel {
        self.faults = plan;
        for (id, cell) in self.zones.iter().enumerate() {
            let id = ZoneId(id as u32);
            let mut zone = cell.zone.lock();
            if zone.record != ZoneRecord::default() {
                continue;
            }
            for block in 0..self.geometry.blocks_per_zone() {
                if plan.fails(Operation::Factory, id.0, 0, block) && !self.replace_block(&mut zone) {
                    zone.record.state = ZoneState::Offline;
                }
            }
            if zone.record != ZoneRecord::default() {
                self.publish(id, cell, &mut zone);
            }
        }
        self
    }

    /// The zone and the block in it whose bytes lie at an offset of the image; `None` of a device in memory, and where no zone lies.
    pub fn image_place(&self, offset: u64) -> Option<(ZoneId, u32)> {
        let block = offset.checked_sub(self.store.image()?.base)? / BLOCK_BYTES as u64;
        (block < self.info.blocks()).then(|| self.info.place(block))
    }

    /// Shows what the device holds, in parts: of an image its file, of zones in memory all their blocks, also those that are not valid.
    pub fn raw(&self, show: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        self.store.raw(show)
    }

    /// Where the append log of the image is; `None` without an image, and of one from before there was such a log. The device
    /// does not use it.
    pub fn append_log(&self) -> Option<AppendLogPlace<'_>> {
        let image = self.store.image()?;
        let bytes = image.append_log.clone()?;
        Some(AppendLogPlace { file: &image.frame.file, bytes, image: image.id, lasting: image.lasting })
    }

    /// Delays each command until its modelled completion, or lets virtual time run free again, which is the default.
    pub fn set_real_time(&mut self, on: bool) {
        self.clock.set_real_time(on);
    }

    /// The device's clock.
    pub fn now(&self) -> Nanos {
        Nanos(self.clock.now())
    }

    /// Latencies in device time since the device was opened.
    pub fn latencies(&self) -> Latencies {
        self.clock.latencies()
    }

    /// Wear, bad blocks, and where the bytes between host and flash went.
    pub fn flash_report(&self) -> FlashReport {
        FlashReport::new(self.records(), &self.geometry)
    }

    /// Sizes that the accounting of a zone needs.
    pub(crate) fn zone_shape(&self) -> ZoneShape {
        self.shape
    }

    fn cell(&self, zone: ZoneId, at: u32, blocks: u32) -> Result<&ZoneCell, DeviceError> {
        self.info.check(zone, at, blocks)?;
        Ok(&self.zones[zone.index()])
    }

    /// What the device keeps of its zones.
    fn records(&self) -> impl Iterator<Item = ZoneRecord> {
        self.zones.iter().map(|cell| cell.zone.lock().record.clone())
    }

    /// Stores the zone's record in the image, if there is one, and shows state and write pointer to readers.
    fn publish(&self, id: ZoneId, cell: &ZoneCell, zone: &mut Zone) {
        debug_assert_eq!(
            ZoneRecord::decode(&zone.record.encode(), self.shape).as_ref(),
            Some(&zone.record),
            "a record of {id} that no start would take"
        );
        if let Some(image) = self.store.image() {
            zone.slot = image.frame.table.set(Record::Zone(id.0), zone.slot, &zone.record.encode());
            if image.lasting && !zone.dirty {
                zone.dirty = true;
                self.dirty.lock().push(id.0);
            }
        }
        cell.published.store(zone.record.report().pack(), Release);
        self.changed.store(true, Release);
    }

    /// Puts a spare in the place of a bad block of the zone; `false` when there is none left.
    fn replace_block(&self, zone: &mut Zone) -> bool {
        let one_more = |used: u32| (used < self.faults.spare_blocks).then_some(used + 1);
        let replaced = self.replaced.fetch_update(Relaxed, Relaxed, one_more).is_ok();
        zone.record.replaced += u32::from(replaced);
        replaced
    }
}

impl ZonedDevice for ZonedModel {
    fn info(&self) -> ZonedInfo {
        self.info
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.totals.counted(self.cell(zone, 0, 0)).map(ZoneCell::report)
    }

    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        self.totals.counted(self.write_blocks(zone, Some(at), data, tag)).map(|_| ())
    }

    fn append(&self, zone: ZoneId, data: &[u8], tag: &Tag) -> Result<u32, DeviceError> {
        self.totals.counted(self.write_blocks(zone, None, data, tag))
    }

    fn read(&self, zone: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        self.totals.counted(self.read_blocks(zone, at, out))
    }

    fn will_read(&self, places: &[(ZoneId, u32, u32)]) {
        if let Some(image) = self.store.image()
            && places.iter().all(|&(zone, at, blocks)| self.cell(zone, at, blocks).is_ok())
        {
            image.will_read(places);
        }
    }

    fn open(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.totals.counted(self.open_zone(zone))
    }

    fn close(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.totals.counted(self.close_zone(zone))
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.totals.counted(self.finish_zone(zone))
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.totals.counted(self.reset_zone(zone))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flush_all(FlushMode::Log)
    }

    fn erases(&self) -> bool {
        self.store.image().is_none_or(|image| image.overwrites_in_place)
    }

    fn erase(&self, zones: &[ZoneId]) -> Result<(), DeviceError> {
        zones.iter().try_for_each(|zone| self.totals.counted(self.cell(*zone, 0, 0)).map(drop))?;
        self.erase_zones(zones)
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { now: self.now(), ..self.totals.counters() }
    }

    fn direct_read(&self) -> Option<DirectRead> {
        // Who reads by himself would not see what is in memory only.
        let image = self.store.image().filter(|image| !image.is_only_looked_at())?;
        Some(DirectRead { fd: image.frame.file.as_raw_fd(), base: image.base, mappable: true })
    }

    fn count_direct_reads(&self, reads: u64, bytes: u64) {
        self.totals.reads.fetch_add(reads, Relaxed);
        self.totals.read_bytes.fetch_add(bytes, Relaxed);
        self.clock.direct_reads(reads, bytes);
    }

    fn verify_identity(&self) -> Result<(), DeviceError> {
        self.totals.verify(self.records(), &self.geometry)
    }
}

impl Drop for ZonedModel {
    fn drop(&mut self) {
        let Some(image) = self.store.image() else { return };
        self.store_counters(image);
        self.changed.store(true, Release);
        if let Err(error) = self.flush_all(FlushMode::InPlace).and_then(|()| image.end_session()) {
            tracing::error!(%error, "the image was not closed cleanly");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::slot::TornSlots;

    fn used_device() -> ZonedModel {
        let geometry = Geometry::tlc().with_size(16 << 20).with_zone_bytes(1 << 20);
        let device = ZonedModel::memory(&geometry).unwrap();
        let data = vec![1; 11 * BLOCK_BYTES];
        for zone in 0..4 {
            for _ in 0..3 {
                device.append(ZoneId(zone), &data, &Tag::METADATA).unwrap();
            }
        }
        device.finish(ZoneId(0)).unwrap();
        device.finish(ZoneId(1)).unwrap();
        device.reset(ZoneId(1)).unwrap();
        device.reset(ZoneId(2)).unwrap();
        device
    }

    #[test]
    fn the_identity_holds_and_breaks_with_any_count_in_it() {
        used_device().verify_identity().unwrap();
        let totals: [fn(&Totals) -> &AtomicU64; 5] =
            [|t| &t.media, |t| &t.erases, |t| &t.written[0], |t| &t.written[1], |t| &t.written[2]];
        for total in totals {
            let device = used_device();
            total(&device.totals).fetch_add(1, Relaxed);
            assert!(matches!(device.verify_identity(), Err(DeviceError::EraseIdentity { .. })));
        }
        let records: [fn(&mut ZoneRecord); 5] = [
            |r| r.write_pointer += 8,
            |r| r.padding += 1,
            |r| r.dropped += 1,
            |r| r.erased_unwritten += 1,
            |r| r.state = ZoneState::Full,
        ];
        for change in records {
            let device = used_device();
            change(&mut device.zones[3].zone.lock().record);
            assert!(matches!(device.verify_identity(), Err(DeviceError::EraseIdentity { .. })));
        }
    }

    #[test]
    fn a_reset_is_durable_before_new_blocks_overwrite_the_old_ones() {
        let dir = tempfile::tempdir().unwrap();
        let geometry = Geometry::bbssd().with_size(1 << 20).with_zone_bytes(64 << 10);
        let device = ZonedModel::create(&dir.path().join("image"), &geometry, false, &mut |_, _| ()).unwrap();
        let block = [1; BLOCK_BYTES];
        let durable = || device.resets_durable.load(Relaxed);
        device.append(ZoneId(0), &block, &Tag::METADATA).unwrap();
        device.reset(ZoneId(0)).unwrap();
        device.reset(ZoneId(1)).unwrap();
        device.append(ZoneId(2), &block, &Tag::METADATA).unwrap();
        assert_eq!(durable(), 0, "a zone that was not reset needs no reset to be durable");
        device.append(ZoneId(0), &block, &Tag::METADATA).unwrap();
        assert_eq!(durable(), 2);
        device.reset(ZoneId(0)).unwrap();
        device.flush().unwrap();
        assert_eq!(durable(), 3);
    }

    #[test]
    fn a_flush_with_nothing_new_syncs_nothing_and_a_failed_sync_is_never_believed_again() {
        let dir = tempfile::tempdir().unwrap();
        let geometry = Geometry::bbssd().with_size(1 << 20).with_zone_bytes(64 << 10);
        let device = ZonedModel::create(&dir.path().join("image"), &geometry, false, &mut |_, _| ()).unwrap();
        device.append(ZoneId(0), &[1; BLOCK_BYTES], &Tag::METADATA).unwrap();
        assert!(device.changed.load(Relaxed));
        device.flush().unwrap();
        assert!(!device.changed.load(Relaxed));
        // A host that could not write is not asked again, nor believed.
        device.append(ZoneId(0), &[1; BLOCK_BYTES], &Tag::METADATA).unwrap();
        device.sync_failed.store(true, Relaxed);
        assert!(matches!(device.flush(), Err(DeviceError::Io { .. })));
        device.sync_failed.store(false, Relaxed);
    }

    #[test]
    fn blocks_written_during_a_flush_are_proven_apart_from_those_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let geometry = Geometry::bbssd().with_size(1 << 20).with_zone_bytes(64 << 10);
        let device = ZonedModel::create(&dir.path().join("image"), &geometry, false, &mut |_, _| ()).unwrap();
        let zone = ZoneId(3);
        let write = |blocks: usize| {
            device.append(zone, &vec![1; blocks * BLOCK_BYTES], &Tag::METADATA).unwrap();
        };
        let image = device.store.image().unwrap();
        // What a crash of the host would find in the table, without and with the loss of a block.
        let proven = |lost: Option<u32>| {
            let (content, _) = image.frame.table.read(Record::Zone(zone.0), TornSlots::Refuse).unwrap();
            let record = ZoneRecord::decode(&content, device.shape).unwrap();
            if let Some(at) = lost {
                device.store.write(zone.0, at, &[0; BLOCK_BYTES]).unwrap();
            }
            let proven = device.proven_blocks(zone, &record).unwrap();
            if let Some(at) = lost {
                device.store.write(zone.0, at, &[1; BLOCK_BYTES]).unwrap();
            }
            proven
        };
        write(3);
        let dirty = device.begin_flush(None).0;
        assert_eq!(proven(None), 3);
        write(2);
        assert_eq!((proven(None), proven(Some(2)), proven(Some(3))), (5, 0, 3));
        image.sync().unwrap();
        device.end_flush(&dirty);
        assert_eq!(
            (proven(None), proven(Some(4))),
            (5, 3),
            "until the next record the old one proves the same"
        );
        write(1);
        assert_eq!((proven(None), proven(Some(4)), proven(Some(5))), (6, 3, 3));
        let dirty = device.begin_flush(None).0;
        device.reset(zone).unwrap();
        write(2);
        device.end_flush(&dirty);
        write(1);
        assert_eq!(
            (proven(None), proven(Some(1))),
            (3, 0),
            "a flush has no say over a zone that was reset meanwhile"
        );
    }
}
