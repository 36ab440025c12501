//! The device: zones over a store, with their state machine, limits, durability and accounting.
//!
//! Locks, in the order in which they are taken: `limits`, then zones (two at once only while `limits` is held), then
//! the leaf locks `dirty` and those of the store. A write to an open zone takes only its zone's lock, and a read takes none.
//! A zone's lock is held over the write to the store: writes to one zone are in order by definition.
//! State and write pointer of each zone are also published in one atomic word, stored (release) after the data is
//! written, so a reader that sees (acquire) a write pointer can read what is below it.

use crate::DeviceError;
use crate::geometry::Geometry;
use crate::image::header::Header;
use crate::image::record::{ZoneRecord, ZoneShape};
use crate::state::{self, Action};
use crate::store::{Image, Store, ZoneBlocks};
use crate::sys;
use crate::totals::Totals;
use crate::zoned::{DeviceCounters, DirectRead, ZoneReport, ZoneState, ZonedDevice, ZonedInfo};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use weft_core::checksum::crc32c_append;
use weft_core::{BLOCK_BYTES, Tag, ZoneId};

/// Flushes between two updates of the counters record in the image.
const COUNTERS_EVERY: u64 = 64;

/// What a zone's lock guards.
struct Zone {
    record: ZoneRecord,
    /// The slot of the record that counts in the image.
    slot: u32,
    /// A flush is under way: blocks from `record.middle` on belong to the second checked segment.
    flushing: bool,
    /// The zone is in the list of zones with blocks to flush.
    dirty: bool,
    /// Number of the zone's last reset among all resets of the device.
    reset: u64,
}

struct ZoneCell {
    /// State in the high half, write pointer in the low half.
    published: AtomicU64,
    zone: Mutex<Zone>,
}

/// All of a zone: what the device keeps of it, and its blocks.
pub(crate) struct ZoneSnapshot {
    pub record: ZoneRecord,
    pub blocks: ZoneBlocks,
}

/// Who may be closed to make room: zones in the order in which writes opened them. Entries may be out of date.
#[derive(Default)]
struct Limits {
    opened_by_write: VecDeque<u32>,
}

/// Flushes, numbered in the order in which they began; one at a time is under way.
#[derive(Default)]
struct FlushGate {
    completed: u64,
}

/// The modelled device with its zoned presentation.
pub struct ZonedModel {
    geometry: Geometry,
    info: ZonedInfo,
    shape: ZoneShape,
    store: Store,
    zones: Box<[ZoneCell]>,
    limits: Mutex<Limits>,
    open: AtomicU32,
    active: AtomicU32,
    dirty: Mutex<Vec<u32>>,
    flush: Mutex<FlushGate>,
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
}

impl std::fmt::Debug for ZonedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZonedModel").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

fn pack(state: ZoneState, write_pointer: u32) -> u64 {
    (state as u64) << 32 | u64::from(write_pointer)
}

fn unpack(published: u64) -> ZoneReport {
    let state = match published >> 32 {
        1 => ZoneState::Empty,
        2 => ZoneState::ImplicitlyOpen,
        3 => ZoneState::ExplicitlyOpen,
        4 => ZoneState::Closed,
        13 => ZoneState::ReadOnly,
        14 => ZoneState::Full,
        _ => ZoneState::Offline,
    };
    ZoneReport { state, write_pointer: published as u32 }
}

impl ZonedModel {
    /// A device in memory. It cannot be read directly; it can be cloned cheaply, which power-cut tests live on.
    pub fn memory(geometry: &Geometry) -> Result<ZonedModel, DeviceError> {
        geometry.validate()?;
        let records = vec![(ZoneRecord::empty(), 0); geometry.zones() as usize];
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

    /// Creates an image file and opens it. Every byte of it is written, which takes a while; `progress` is told the
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
        let opened = Image::open(path)?;
        let geometry = opened.header.geometry;
        let shape = ZoneShape { capacity: geometry.zone_capacity_bytes, unit: geometry.unit_bytes() };
        let trust = Image::trust(opened.host_crashed);
        let mut records = Vec::with_capacity(geometry.zones() as usize);
        for zone in 0..geometry.zones() as u32 {
            let (content, slot) = opened
                .image
                .table
                .zone(zone, trust)
                .ok_or_else(|| opened.image.damaged(format_args!("zone {zone}")))?;
            let record = ZoneRecord::decode(&content, shape)
                .ok_or_else(|| opened.image.damaged(format_args!("zone {zone}")))?;
            records.push((record, slot));
        }
        let (counters, slot) =
            opened.image.table.counters(trust).ok_or_else(|| opened.image.damaged("the counters"))?;
        let totals = Totals::decode(&counters);
        let model = ZonedModel::assemble(geometry, Store::Image(opened.image), records, totals);
        model.counters_slot.store(slot, Relaxed);
        model.power_on(opened.host_crashed)?;
        Ok(model)
    }

    fn new_header(geometry: &Geometry) -> Result<Header, DeviceError> {
        geometry.validate()?;
        let id = sys::file::random_id()
            .map_err(|source| DeviceError::Io { path: PathBuf::from("(random)"), source })?;
        Ok(Header { id, geometry: geometry.clone() })
    }

    fn format(image: Image, header: Header) -> Result<ZonedModel, DeviceError> {
        let empty = ZoneRecord::empty().encode();
        let zones = header.geometry.zones() as usize;
        let mut records = Vec::with_capacity(zones);
        for zone in 0..zones as u32 {
            records.push((ZoneRecord::empty(), image.table.set_zone(zone, 1, &empty)));
        }
        let totals = Totals::default();
        let slot = image.table.set_counters(1, &totals.encode());
        image.commit_header(&header)?;
        let model = ZonedModel::assemble(header.geometry, Store::Image(image), records, totals);
        model.counters_slot.store(slot, Relaxed);
        Ok(model)
    }

    fn assemble(
        geometry: Geometry,
        store: Store,
        records: Vec<(ZoneRecord, u32)>,
        totals: Totals,
    ) -> ZonedModel {
        let info = geometry.zoned_info();
        let shape = ZoneShape { capacity: geometry.zone_capacity_bytes, unit: geometry.unit_bytes() };
        let blocks = geometry.blocks_per_zone();
        let mut active = 0;
        let zones = records
            .into_iter()
            .map(|(record, slot)| {
                totals.add_record(&record, blocks);
                active += u32::from(record.state.is_active());
                ZoneCell {
                    published: AtomicU64::new(pack(record.state, record.write_pointer)),
                    zone: Mutex::new(Zone { record, slot, flushing: false, dirty: false, reset: 0 }),
                }
            })
            .collect();
        ZonedModel {
            geometry,
            info,
            shape,
            store,
            zones,
            limits: Mutex::new(Limits::default()),
            open: AtomicU32::new(0),
            active: AtomicU32::new(active),
            dirty: Mutex::new(Vec::new()),
            flush: Mutex::new(FlushGate::default()),
            flushes_begun: AtomicU64::new(0),
            counters_slot: AtomicU32::new(0),
            changed: AtomicBool::new(false),
            sync_failed: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            resets_durable: AtomicU64::new(0),
            totals,
        }
    }

    /// Brings an image that was just opened to the state after a power cycle, and makes all of it durable.
    fn power_on(&self, host_crashed: bool) -> Result<(), DeviceError> {
        let Some(image) = self.store.image() else { return Ok(()) };
        // Before any record says of blocks that they are durable, they have to be: a process that was killed left
        // them to the page cache.
        image.sync()?;
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
            if zone.record != before {
                self.publish(id, cell, &mut zone);
            }
        }
        let active =
            self.zones.iter().filter(|c| unpack(c.published.load(Relaxed)).state.is_active()).count();
        self.active.store(active as u32, Relaxed);
        self.totals.recount(
            self.zones.iter().map(|c| c.zone.lock().record.clone()),
            self.geometry.blocks_per_zone(),
        );
        image.begin_session()
    }

    /// How many of a zone's blocks are certainly what was written, after the host went down.
    fn proven_blocks(&self, id: ZoneId, record: &ZoneRecord) -> Result<u32, DeviceError> {
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

    /// The shape of the device.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Sizes that the accounting of a zone needs.
    pub(crate) fn zone_shape(&self) -> ZoneShape {
        self.shape
    }

    /// The device as it is now, once more; only of one in memory. The two share the blocks until one is written to.
    pub(crate) fn fork(&self) -> Result<ZonedModel, DeviceError> {
        let fork = ZonedModel::memory(&self.geometry)?;
        fork.totals.copy_own(&self.totals);
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
        let mut active = 0;
        for (id, cell) in self.zones.iter().enumerate() {
            let mut zone = cell.zone.lock();
            zone.record.power_cycle();
            active += u32::from(zone.record.state.is_active());
            self.publish(ZoneId(id as u32), cell, &mut zone);
        }
        self.active.store(active, Relaxed);
        self.totals.recount(
            self.zones.iter().map(|c| c.zone.lock().record.clone()),
            self.geometry.blocks_per_zone(),
        );
    }

    fn cell(&self, zone: ZoneId, at: u32, blocks: u32) -> Result<&ZoneCell, DeviceError> {
        let within = u64::from(at) + u64::from(blocks) <= u64::from(self.info.zone_blocks);
        match self.zones.get(zone.index()) {
            Some(cell) if within => Ok(cell),
            _ => Err(DeviceError::OutOfRange {
                zone,
                at,
                zones: self.info.zones,
                zone_blocks: self.info.zone_blocks,
            }),
        }
    }

    /// Stores the zone's record in the image, if there is one, and shows state and write pointer to readers.
    fn publish(&self, id: ZoneId, cell: &ZoneCell, zone: &mut Zone) {
        if let Some(image) = self.store.image() {
            zone.slot = image.table.set_zone(id.0, zone.slot, &zone.record.encode());
        }
        cell.published.store(pack(zone.record.state, zone.record.write_pointer), Release);
        self.changed.store(true, Release);
    }

    /// Moves the zone to another state and keeps the counts of open and active zones. Raising a count takes `limits`.
    fn set_state(&self, zone: &mut Zone, state: ZoneState) {
        let before = zone.record.state;
        zone.record.state = state;
        match (before.is_open(), state.is_open()) {
            (false, true) => {
                let now = self.open.fetch_add(1, AcqRel) + 1;
                self.totals.open_high_water.fetch_max(u64::from(now), Relaxed);
            }
            (true, false) => {
                self.open.fetch_sub(1, AcqRel);
            }
            _ => {}
        }
        match (before.is_active(), state.is_active()) {
            (false, true) => {
                let now = self.active.fetch_add(1, AcqRel) + 1;
                self.totals.active_high_water.fetch_max(u64::from(now), Relaxed);
            }
            (true, false) => {
                self.active.fetch_sub(1, AcqRel);
            }
            _ => {}
        }
    }

    /// Makes room for one more open zone, closing the one that a write opened longest ago when it must.
    fn make_room(&self, limits: &mut Limits, id: ZoneId, state: ZoneState) -> Result<(), DeviceError> {
        if !state.is_active() && self.active.load(Acquire) >= self.info.active_max {
            return Err(DeviceError::TooManyActiveZones { zone: id, limit: self.info.active_max });
        }
        while self.open.load(Acquire) >= self.info.open_max {
            let Some(oldest) = limits.opened_by_write.pop_front() else {
                return Err(DeviceError::TooManyOpenZones { zone: id, limit: self.info.open_max });
            };
            // The zone to be opened is locked and not open: an entry that names it is out of date.
            if oldest == id.0 {
                continue;
            }
            let cell = &self.zones[oldest as usize];
            let mut zone = cell.zone.lock();
            if zone.record.state == ZoneState::ImplicitlyOpen {
                self.set_state(&mut zone, ZoneState::Closed);
                self.publish(ZoneId(oldest), cell, &mut zone);
            }
        }
        Ok(())
    }

    /// Checks a write against the zone; what it would do to the zone's state.
    fn judge_write(
        &self,
        id: ZoneId,
        zone: &Zone,
        at: Option<u32>,
        blocks: u32,
    ) -> Result<Action, DeviceError> {
        let pointer = zone.record.write_pointer;
        let end = u64::from(at.unwrap_or(pointer)) + u64::from(blocks);
        let capacity = self.info.zone_capacity;
        let action = if end == u64::from(capacity) { Action::WriteToEnd } else { Action::Write };
        state::next(id, zone.record.state, action)?;
        if let Some(at) = at
            && at != pointer
        {
            return Err(DeviceError::ZoneInvalidWrite { zone: id, at, write_pointer: pointer });
        }
        if end > u64::from(capacity) {
            return Err(DeviceError::ZoneBoundary { zone: id, at: pointer, blocks, capacity });
        }
        Ok(action)
    }

    fn write_blocks(&self, id: ZoneId, at: Option<u32>, data: &[u8], tag: &Tag) -> Result<u32, DeviceError> {
        if !data.len().is_multiple_of(BLOCK_BYTES) {
            return Err(DeviceError::Unaligned(data.len()));
        }
        let blocks = u32::try_from(data.len() / BLOCK_BYTES).unwrap_or(u32::MAX);
        let cell = self.cell(id, at.unwrap_or(0), if at.is_some() { blocks } else { 0 })?;
        let mut zone = cell.zone.lock();
        if blocks == 0 {
            return Ok(zone.record.write_pointer);
        }
        let mut action = self.judge_write(id, &zone, at, blocks)?;
        if !zone.record.state.is_open() {
            // `limits` comes before the zone in the order of locks, so the zone has to be judged again.
            drop(zone);
            let mut limits = self.limits.lock();
            zone = cell.zone.lock();
            action = self.judge_write(id, &zone, at, blocks)?;
            if !zone.record.state.is_open() {
                self.make_room(&mut limits, id, zone.record.state)?;
                self.set_state(&mut zone, ZoneState::ImplicitlyOpen);
                limits.opened_by_write.push_back(id.0);
                if limits.opened_by_write.len() > 2 * self.info.zones as usize {
                    self.forget_stale(&mut limits, id);
                }
            }
        }
        self.write_open(id, cell, zone, data, tag, action)
    }

    /// Takes entries out of the list that no longer name an implicitly open zone, so that it stays short.
    fn forget_stale(&self, limits: &mut Limits, opening: ZoneId) {
        let mut seen = vec![false; self.zones.len()];
        limits.opened_by_write.retain(|zone| {
            let state = unpack(self.zones[*zone as usize].published.load(Acquire)).state;
            let keep = *zone == opening.0 || state == ZoneState::ImplicitlyOpen;
            keep && !std::mem::replace(&mut seen[*zone as usize], true)
        });
    }

    /// Writes to a zone that is open and was judged.
    fn write_open(
        &self,
        id: ZoneId,
        cell: &ZoneCell,
        mut guard: MutexGuard<'_, Zone>,
        data: &[u8],
        tag: &Tag,
        action: Action,
    ) -> Result<u32, DeviceError> {
        let zone = &mut *guard;
        let at = zone.record.write_pointer;
        let blocks = (data.len() / BLOCK_BYTES) as u32;
        let lasting = self.store.image().filter(|image| image.lasting);
        if let Some(image) = lasting
            && at == 0
            && zone.reset > self.resets_durable.load(Acquire)
        {
            // New blocks overwrite what the old life of the zone left. Were the reset not durable first, a crash of
            // the host could bring the old write pointer back over them.
            let resets = self.resets.load(Acquire);
            image.sync_table()?;
            self.resets_durable.fetch_max(resets, AcqRel);
        }
        self.store.write(id.0, at, data)?;
        if lasting.is_some() {
            if zone.flushing {
                zone.record.crc_second = crc32c_append(zone.record.crc_second, data);
            } else {
                zone.record.crc_first = crc32c_append(zone.record.crc_first, data);
                zone.record.middle = at + blocks;
            }
            if !zone.dirty {
                zone.dirty = true;
                self.dirty.lock().push(id.0);
            }
        }
        let programmed = zone.record.advance(blocks, tag.origin, self.shape);
        if action == Action::WriteToEnd {
            self.set_state(zone, ZoneState::Full);
        }
        self.publish(id, cell, zone);
        self.totals.written[tag.origin as usize].fetch_add(data.len() as u64, Relaxed);
        self.totals.media.fetch_add(programmed, Relaxed);
        self.totals.writes.fetch_add(1, Relaxed);
        Ok(at)
    }

    fn read_blocks(&self, id: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        if !out.len().is_multiple_of(BLOCK_BYTES) {
            return Err(DeviceError::Unaligned(out.len()));
        }
        let blocks = u32::try_from(out.len() / BLOCK_BYTES).unwrap_or(u32::MAX);
        let cell = self.cell(id, at, blocks)?;
        let ZoneReport { state, write_pointer } = unpack(cell.published.load(Acquire));
        if state == ZoneState::Offline {
            return Err(DeviceError::ZoneOffline(id));
        }
        if at + blocks > write_pointer {
            return Err(DeviceError::ReadBeyondWritePointer {
                zone: id,
                at: at.max(write_pointer),
                write_pointer,
            });
        }
        self.store.read(id.0, at, out)?;
        self.totals.reads.fetch_add(1, Relaxed);
        self.totals.read_bytes.fetch_add(out.len() as u64, Relaxed);
        Ok(())
    }

    fn open_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut limits = self.limits.lock();
        let mut zone = cell.zone.lock();
        let state = state::next(id, zone.record.state, Action::Open)?;
        if !zone.record.state.is_open() {
            self.make_room(&mut limits, id, zone.record.state)?;
        }
        self.set_state(&mut zone, state);
        self.publish(id, cell, &mut zone);
        Ok(())
    }

    fn close_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut zone = cell.zone.lock();
        let state = state::next(id, zone.record.state, Action::Close)?;
        self.set_state(&mut zone, state);
        self.publish(id, cell, &mut zone);
        Ok(())
    }

    fn finish_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut zone = cell.zone.lock();
        let state = state::next(id, zone.record.state, Action::Finish)?;
        let programmed = zone.record.pad(self.shape);
        self.set_state(&mut zone, state);
        self.publish(id, cell, &mut zone);
        self.totals.media.fetch_add(programmed, Relaxed);
        Ok(())
    }

    fn reset_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut zone = cell.zone.lock();
        let state = state::next(id, zone.record.state, Action::Reset)?;
        let erased = zone.record.erase(self.shape);
        self.store.discard(id.0);
        // Blocks that a flush under way was to make durable are gone, and so is its hold on the zone.
        zone.flushing = false;
        self.set_state(&mut zone, state);
        self.publish(id, cell, &mut zone);
        // Numbered after it is published: whoever makes this number durable has the record before him.
        zone.reset = self.resets.fetch_add(1, AcqRel) + 1;
        self.totals.resets.fetch_add(1, Relaxed);
        if erased {
            self.totals.erases.fetch_add(self.geometry.blocks_per_zone(), Relaxed);
        }
        Ok(())
    }

    /// Makes everything written before the call durable. Calls that come while a flush is under way share the next.
    fn flush_all(&self) -> Result<(), DeviceError> {
        self.totals.flushes.fetch_add(1, Relaxed);
        let Some(image) = self.store.image().filter(|image| image.lasting) else {
            return Ok(());
        };
        let begun = self.flushes_begun.load(Acquire);
        let mut gate = self.flush.lock();
        if gate.completed > begun {
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
            self.flush_image(image, number)?;
        }
        gate.completed = number;
        Ok(())
    }

    fn flush_image(&self, image: &Image, number: u64) -> Result<(), DeviceError> {
        let resets = self.resets.load(Acquire);
        let dirty = std::mem::take(&mut *self.dirty.lock());
        for id in &dirty {
            let mut zone = self.zones[*id as usize].zone.lock();
            zone.dirty = false;
            zone.flushing = true;
            zone.record.middle = zone.record.write_pointer;
        }
        if number.is_multiple_of(COUNTERS_EVERY) {
            self.store_counters(image);
        }
        if let Err(error) = image.sync() {
            self.sync_failed.store(true, Release);
            tracing::error!(%error, "flush failed");
            return Err(error);
        }
        self.resets_durable.fetch_max(resets, AcqRel);
        for id in &dirty {
            let mut zone = self.zones[*id as usize].zone.lock();
            // A reset in the meantime has started over.
            if !std::mem::replace(&mut zone.flushing, false) {
                continue;
            }
            // The new bounds reach the image with the zone's next record: until then the old ones, with checksums
            // over blocks that are now durable, prove the same.
            let record = &mut zone.record;
            record.durable = record.middle;
            record.crc_first = std::mem::take(&mut record.crc_second);
            record.middle = record.write_pointer;
        }
        Ok(())
    }

    fn store_counters(&self, image: &Image) {
        let slot = self.counters_slot.load(Relaxed);
        let slot = image.table.set_counters(slot, &self.totals.encode());
        self.counters_slot.store(slot, Relaxed);
    }

    /// Counts a refusal.
    fn counted<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Err(error) = &result
            && error.is_refusal()
        {
            self.totals.refused.fetch_add(1, Relaxed);
            tracing::debug!(%error, "refused");
        }
        result
    }
}

impl ZonedDevice for ZonedModel {
    fn info(&self) -> ZonedInfo {
        self.info
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.counted(self.cell(zone, 0, 0)).map(|cell| unpack(cell.published.load(Acquire)))
    }

    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        self.counted(self.write_blocks(zone, Some(at), data, tag)).map(|_| ())
    }

    fn append(&self, zone: ZoneId, data: &[u8], tag: &Tag) -> Result<u32, DeviceError> {
        self.counted(self.write_blocks(zone, None, data, tag))
    }

    fn read(&self, zone: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        self.counted(self.read_blocks(zone, at, out))
    }

    fn open(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.counted(self.open_zone(zone))
    }

    fn close(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.counted(self.close_zone(zone))
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.counted(self.finish_zone(zone))
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.counted(self.reset_zone(zone))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flush_all()
    }

    fn counters(&self) -> DeviceCounters {
        self.totals.counters()
    }

    fn direct_read(&self) -> Option<DirectRead> {
        let image = self.store.image()?;
        Some(DirectRead { fd: image.file.as_raw_fd(), base: image.base, mappable: true })
    }

    fn count_direct_reads(&self, reads: u64, bytes: u64) {
        self.totals.reads.fetch_add(reads, Relaxed);
        self.totals.read_bytes.fetch_add(bytes, Relaxed);
    }

    fn verify_identity(&self) -> Result<(), DeviceError> {
        let records = self.zones.iter().map(|cell| cell.zone.lock().record.clone());
        self.totals.verify(records, &self.geometry)
    }
}

impl Drop for ZonedModel {
    fn drop(&mut self) {
        let Some(image) = self.store.image() else { return };
        self.store_counters(image);
        self.changed.store(true, Release);
        if let Err(error) = self.flush_all().and_then(|()| image.end_session()) {
            tracing::error!(%error, "the image was not closed cleanly");
        }
    }
}
