//! Makes a device: new, from an image, or as a copy of another one.

use super::{Zone, ZoneCell, ZoneSnapshot, ZonedModel};
use crate::DeviceError;
use crate::clock::Clock;
use crate::faults::FaultPlan;
use crate::geometry::Geometry;
use crate::image::header::Header;
use crate::image::log::Entry;
use crate::image::record::{COUNTS_MAX, ZoneRecord, ZoneShape};
use crate::image::table::Record;
use crate::in_use::{InUse, Limits};
use crate::store::{Image, Opened, Store};
use crate::totals::Totals;
use crate::zoned::ZoneState;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use weft_core::checksum::crc32c_append;
use weft_core::{BLOCK_BYTES, Origin, ZoneId};

impl ZonedModel {
    /// A device in memory. It cannot be read directly; it can be cloned cheaply, which power-cut tests live on.
    pub fn memory(geometry: &Geometry) -> Result<ZonedModel, DeviceError> {
        geometry.validate()?;
        let records = vec![(ZoneRecord::default(), 0); geometry.zones() as usize];
        Ok(ZonedModel::assemble(
            geometry.clone(),
            Store::memory(geometry.zones() as u32),
            records,
            Totals::default(),
        ))
    }

    /// A device in a memory file: like an image, with direct reads, but gone with the last process that has it open.
    pub fn memfd(geometry: &Geometry) -> Result<ZonedModel, DeviceError> {
        let header = ZonedModel::new_header(geometry)?;
        let image = Image::memory_file(&header)?;
        ZonedModel::format(image, header)
    }

    /// Creates an image file and opens it. Every byte of it is written, which takes a while; `progress` gets the
    /// bytes done and the bytes in all. An existing file is refused unless `overwrite` is set.
    pub fn create(
        path: &Path,
        geometry: &Geometry,
        overwrite: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ZonedModel, DeviceError> {
        let header = ZonedModel::new_header(geometry)?;
        let image = Image::create(path, &header, overwrite, progress)?;
        ZonedModel::format(image, header)
    }

    /// Opens an image file. [`DeviceError::Busy`] when another process has it, [`DeviceError::BadImage`] when it is
    /// not one that can be read.
    ///
    /// Like a power cycle, opening leaves no zone open. After a crash of the host, each zone is cut back to what was
    /// flushed, or further only as far as its checksums prove the blocks to be there.
    pub fn open(path: &Path) -> Result<ZonedModel, DeviceError> {
        ZonedModel::open_for(path, false)
    }

    /// Opens an image file without changing it; others may do so at the same time, and nobody may open it otherwise
    /// meanwhile. The device takes commands as ever, but what they change is in memory and gone when it is closed.
    pub fn open_to_look(path: &Path) -> Result<ZonedModel, DeviceError> {
        ZonedModel::open_for(path, true)
    }

    fn open_for(path: &Path, look: bool) -> Result<ZonedModel, DeviceError> {
        let opened = Image::open(path, look)?;
        let geometry = opened.header.geometry.clone();
        let shape = ZoneShape { capacity: geometry.zone_capacity_bytes, unit: geometry.unit_bytes() };
        let table = &opened.image.frame.table;
        let mut records = Vec::with_capacity(geometry.zones() as usize);
        let mut repaired = vec![false; geometry.zones() as usize];
        for zone in 0..geometry.zones() as u32 {
            let stored = table.read(Record::Zone(zone), opened.torn);
            let slot = stored.map_or(0, |(_, slot)| slot);
            let stored = stored.and_then(|(content, _)| ZoneRecord::decode(&content, shape));
            let record = match newest(stored, zone, &opened.flushed, shape) {
                Some(record) => record,
                None => {
                    repaired[zone as usize] = true;
                    spare_record(&opened.image, zone, shape)?
                }
            };
            records.push((record, slot));
        }
        if records.iter().map(|(record, _)| record.counts()).sum::<u128>() > u128::from(COUNTS_MAX) {
            return Err(opened.image.damaged("some zone (their counts are beyond what any device gets to)"));
        }
        play_back(&opened, &records)?;
        let counters = table.read(Record::Counters, opened.torn);
        // They are as old as the last time that they were stored in any case.
        let (totals, slot) = counters
            .and_then(|(content, slot)| Some((Totals::decode(&content)?, slot)))
            .or_else(|| Some((Totals::decode(&opened.image.frame.spare_record(Record::Counters)?)?, 0)))
            .ok_or_else(|| opened.image.damaged("the counters"))?;
        if opened.header_damaged && !look {
            opened.image.commit_header(&opened.header)?;
        }
        let model = ZonedModel::assemble(geometry, Store::Image(Box::new(opened.image)), records, totals);
        model.counters_slot.store(slot, Relaxed);
        model.power_on(opened.host_crashed, &repaired)?;
        Ok(model)
    }

    fn new_header(geometry: &Geometry) -> Result<Header, DeviceError> {
        geometry.validate()?;
        let id = weft_sys::file::random()
            .map_err(|source| DeviceError::Io { path: PathBuf::from("(random)"), source })?;
        Ok(Header { id, geometry: geometry.clone(), has_append_log: true })
    }

    fn format(image: Image, header: Header) -> Result<ZonedModel, DeviceError> {
        let empty = ZoneRecord::default().encode();
        let fresh = |zone| (ZoneRecord::default(), image.frame.table.set(Record::Zone(zone), 1, &empty));
        let records = (0..header.geometry.zones() as u32).map(fresh).collect();
        let totals = Totals::default();
        let slot = image.frame.table.set(Record::Counters, 1, &totals.encode());
        image.commit_header(&header)?;
        let model = ZonedModel::assemble(header.geometry, Store::Image(Box::new(image)), records, totals);
        model.counters_slot.store(slot, Relaxed);
        Ok(model)
    }

    /// A device whose zones have these records. Unless all are new, [`recount`](ZonedModel::recount) has to follow.
    fn assemble(
        geometry: Geometry,
        store: Store,
        records: Vec<(ZoneRecord, u32)>,
        totals: Totals,
    ) -> ZonedModel {
        let info = geometry.zoned_info();
        let shape = ZoneShape { capacity: geometry.zone_capacity_bytes, unit: geometry.unit_bytes() };
        let mut replaced = 0;
        let zones = records
            .into_iter()
            .map(|(record, slot)| {
                replaced = u32::saturating_add(replaced, record.replaced);
                ZoneCell {
                    published: AtomicU64::new(record.report().pack()),
                    zone: Mutex::new(Zone { record, slot, flushing: false, dirty: false, reset: 0 }),
                }
            })
            .collect();
        let clock = Clock::new(&geometry, totals.now.load(Relaxed));
        ZonedModel {
            geometry,
            info,
            shape,
            store,
            zones,
            limits: Mutex::new(Limits::default()),
            in_use: InUse::default(),
            dirty: Mutex::new(Vec::new()),
            flushes_completed: Mutex::new(0),
            flushes_begun: AtomicU64::new(0),
            counters_slot: AtomicU32::new(0),
            changed: AtomicBool::new(false),
            sync_failed: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            resets_durable: AtomicU64::new(0),
            totals,
            clock,
            faults: FaultPlan::default(),
            replaced: AtomicU32::new(replaced),
            erase_passes: AtomicU32::new(0),
        }
    }

    /// Brings an image that was just opened to the state after a power cycle, and makes all of it durable.
    fn power_on(&self, host_crashed: bool, repaired: &[bool]) -> Result<(), DeviceError> {
        let Some(image) = self.store.image() else { return Ok(()) };
        // Before any record says of blocks that they are durable, they have to be: a process that was killed left
        // them to the page cache.
        if !image.is_only_looked_at() {
            image.sync()?;
        }
        for (id, cell) in self.zones.iter().enumerate() {
            let id = ZoneId(id as u32);
            let mut zone = cell.zone.lock();
            let before = zone.record.clone();
            if host_crashed {
                let proven = self.proven_blocks(id, &zone.record)?;
                if proven < zone.record.write_pointer {
                    tracing::warn!(
                        zone = id.0,
                        lost = zone.record.write_pointer - proven,
                        "cut back unflushed blocks"
                    );
                }
                zone.record.cut(proven, self.shape);
            } else {
                zone.record.power_cycle();
            }
            // After a crash of the host the record may be one of the log and not yet in the table.
            if host_crashed || zone.record != before || repaired[id.index()] {
                self.publish(id, cell, &mut zone);
            }
        }
        self.recount();
        image.begin_session()
    }

    /// How many of a zone's blocks are certainly what was written, after the host went down.
    pub(super) fn proven_blocks(&self, id: ZoneId, record: &ZoneRecord) -> Result<u32, DeviceError> {
        let segments = [
            (record.durable, record.middle, record.crc_first),
            (record.middle, record.write_pointer, record.crc_second),
        ];
        let mut proven = record.durable;
        let mut block = vec![0u8; BLOCK_BYTES];
        for (from, to, expected) in segments {
            let mut crc = 0;
            for at in from..to {
                self.store.read(id.0, at, &mut block)?;
                crc = crc32c_append(crc, &block);
            }
            if crc != expected {
                break;
            }
            proven = to;
        }
        Ok(proven)
    }

    /// The device as it is now, once more; only of one in memory. The two share the blocks until one is written to.
    pub(crate) fn fork(&self) -> Result<ZonedModel, DeviceError> {
        let mut fork = ZonedModel::memory(&self.geometry)?;
        fork.totals.copy_own(&self.totals);
        fork.clock = Clock::new(&self.geometry, self.clock.now());
        fork.faults = self.faults;
        fork.replaced.store(self.replaced.load(Relaxed), Relaxed);
        Ok(fork)
    }

    /// A zone as it is now; without blocks when they lie in an image.
    pub(crate) fn snapshot(&self, zone: ZoneId) -> ZoneSnapshot {
        let guard = self.zones[zone.index()].zone.lock();
        ZoneSnapshot { record: guard.record.clone(), blocks: self.store.snapshot(zone.0) }
    }

    /// What the device keeps of a zone.
    pub(crate) fn record(&self, zone: ZoneId) -> ZoneRecord {
        self.zones[zone.index()].zone.lock().record.clone()
    }

    /// Makes a zone of a device in memory what the snapshot says; [`settle`](ZonedModel::settle) has to follow.
    pub(crate) fn restore(&self, zone: ZoneId, snapshot: ZoneSnapshot) {
        self.zones[zone.index()].zone.lock().record = snapshot.record;
        self.store.restore(zone.0, snapshot.blocks);
    }

    /// Brings counts in line with the zones' records after a power cycle.
    pub(crate) fn settle(&self) {
        for (id, cell) in self.zones.iter().enumerate() {
            let mut zone = cell.zone.lock();
            zone.record.power_cycle();
            self.publish(ZoneId(id as u32), cell, &mut zone);
        }
        self.recount();
    }

    /// Brings the counts in line with the zones' records.
    fn recount(&self) {
        let active = self.zones.iter().filter(|cell| cell.report().state.is_active()).count();
        self.in_use.set_active(active as u32);
        self.totals.recount(self.records(), self.geometry.blocks_per_zone());
    }
}

/// The record of a zone whose own is damaged: its copy, if the image was closed. Of an image that is only looked at,
/// else, one that says of every block that it was written: whoever reads has to check what stands there.
fn spare_record(image: &Image, zone: u32, shape: ZoneShape) -> Result<ZoneRecord, DeviceError> {
    let copy = image.frame.spare_record(Record::Zone(zone));
    if let Some(record) = copy.and_then(|content| ZoneRecord::decode(&content, shape)) {
        tracing::warn!(zone, "the record of the zone is damaged; its copy is used");
        return Ok(record);
    }
    if !image.is_only_looked_at() {
        return Err(image.damaged(format_args!("zone {zone}")));
    }
    tracing::warn!(zone, "the record of the zone is lost: how much of it is written is not known");
    let mut record = ZoneRecord::default();
    record.advance((shape.capacity / BLOCK_BYTES as u64) as u32, Origin::Host, shape);
    record.pad(shape);
    record.state = ZoneState::Full;
    record.forget_checks();
    Ok(record)
}

/// The newest record of a zone: what the table has, or what a later flush put into the log.
fn newest(stored: Option<ZoneRecord>, zone: u32, flushed: &[Entry], shape: ZoneShape) -> Option<ZoneRecord> {
    let items = flushed.iter().flat_map(|entry| &entry.items).filter(|item| item.zone == zone);
    let logged = items.filter_map(|item| ZoneRecord::decode(&item.record, shape));
    stored.into_iter().chain(logged).reduce(|a, b| if b.age() > a.age() { b } else { a })
}

/// Writes the blocks of the log's flushes to where they belong, but for those of zones that were reset later.
fn play_back(opened: &Opened, records: &[(ZoneRecord, u32)]) -> Result<(), DeviceError> {
    for entry in &opened.flushed {
        let mut data = entry.data.as_slice();
        for item in &entry.items {
            let (blocks, rest) = data.split_at((item.to - item.from) as usize * BLOCK_BYTES);
            data = rest;
            let Some((record, _)) = records.get(item.zone as usize) else { continue };
            let same_life = ZoneRecord::resets_in(&item.record) == record.resets;
            if same_life && item.to <= record.write_pointer {
                opened.image.write(item.zone, item.from, blocks)?;
            }
        }
    }
    Ok(())
}
