//! Power cuts: a device in memory that loses power at a chosen command, and restarts in a state that the cut can leave.
//!
//! What was flushed is there. Of what came after the last flush, each zone keeps some first part of its own history:
//! any number of its commands, and of the write after them any number of blocks. Zones are independent, so a later
//! command on one zone may have survived an earlier one on another. A block of 4 KiB is written whole or not at all;
//! a reset has happened or has not. Which part survives is a function of the seed.
//!
//! [`PowerCut::reopen`] does not use the device up and copies no blocks, so one run of a workload can be followed by
//! thousands of looks at what a cut at this moment could leave.
//!
//! ```
//! # use weft_core::{Tag, ZoneId, BLOCK_BYTES};
//! # use weft_device::{DeviceError, Geometry, PowerCut, ZonedDevice};
//! let device = PowerCut::new(&Geometry::zn540().with_size(64 << 20))?;
//! device.append(ZoneId(0), &[1; 2 * BLOCK_BYTES], &Tag::METADATA)?;
//! device.flush()?;
//! device.cut_after(0);
//! let torn = device.append(ZoneId(0), &[2; 5 * BLOCK_BYTES], &Tag::METADATA);
//! assert!(matches!(torn, Err(DeviceError::PowerLost)));
//! let after = device.reopen(7)?;
//! assert!((2..=7).contains(&after.report(ZoneId(0))?.write_pointer));
//! # Ok::<(), DeviceError>(())
//! ```

use crate::image::record::ZoneRecord;
use crate::model::{ZoneSnapshot, ZonedModel};
use crate::store::ZoneBlocks;
use crate::zoned::{DeviceCounters, ZoneReport, ZoneState, ZonedDevice, ZonedInfo};
use crate::{DeviceError, Geometry};
use parking_lot::Mutex;
use weft_core::random::SplitMix;
use weft_core::{BLOCK_BYTES, Origin, Tag, ZoneId};

/// A command on a zone that no flush has followed yet.
enum Event {
    Write {
        blocks: u32,
        origin: Origin,
    },
    Finish,
    /// With the blocks that the reset took away.
    Reset {
        before: ZoneBlocks,
    },
}

/// What a zone was at the last flush, and what happened to it since.
struct History {
    flushed: ZoneRecord,
    events: Vec<Event>,
}

#[derive(Default)]
struct Journal {
    /// Commands that change the device, so far.
    operations: u64,
    /// The number of the command that loses power.
    cut_at: Option<u64>,
    cut: bool,
    /// By zone; `None` when nothing happened to it since the last flush.
    zones: Vec<Option<History>>,
}

impl Journal {
    /// Counts a command; whether power goes with it.
    fn begin(&mut self) -> Result<bool, DeviceError> {
        if self.cut {
            return Err(DeviceError::PowerLost);
        }
        self.cut = self.cut_at == Some(self.operations);
        self.operations += 1;
        Ok(self.cut)
    }
}

/// A device in memory whose power can be cut.
pub struct PowerCut {
    device: ZonedModel,
    journal: Mutex<Journal>,
}

impl PowerCut {
    /// A new device in memory.
    pub fn new(geometry: &Geometry) -> Result<PowerCut, DeviceError> {
        Ok(PowerCut::over(ZonedModel::memory(geometry)?))
    }

    /// A power switch for a device made by [`ZonedModel::memory`]. What is on it counts as flushed.
    fn over(device: ZonedModel) -> PowerCut {
        let zones = (0..device.info().zones).map(|_| None).collect();
        PowerCut { device, journal: Mutex::new(Journal { zones, ..Journal::default() }) }
    }

    /// The device behind the switch.
    pub fn device(&self) -> &ZonedModel {
        &self.device
    }

    /// Commands so far that change the device: write, append, open, close, finish, reset and flush, refused ones too.
    pub fn operations(&self) -> u64 {
        self.journal.lock().operations
    }

    /// Lets `operations` more commands that change the device pass and cuts power during the one after them. That one
    /// reports [`DeviceError::PowerLost`], as does everything after it.
    pub fn cut_after(&self, operations: u64) {
        let mut journal = self.journal.lock();
        journal.cut_at = Some(journal.operations + operations);
    }

    /// Whether power is gone.
    pub fn is_cut(&self) -> bool {
        self.journal.lock().cut
    }

    /// What the device is after power comes back, had it been cut now, or since it was cut. The same seed gives the
    /// same device.
    pub fn reopen(&self, seed: u64) -> Result<PowerCut, DeviceError> {
        let journal = self.journal.lock();
        let device = self.device.fork()?;
        for (zone, history) in journal.zones.iter().enumerate() {
            let zone = ZoneId(zone as u32);
            let now = self.device.snapshot(zone);
            let after = match history {
                // A zone that died stays dead, whatever else was lost.
                Some(history) if !matches!(now.record.state, ZoneState::ReadOnly | ZoneState::Offline) => {
                    self.survivor(history, now, &mut SplitMix::new(seed, &[u64::from(zone.0)]))
                }
                _ => now,
            };
            device.restore(zone, after);
        }
        device.settle();
        Ok(PowerCut::over(device))
    }

    fn survivor(&self, history: &History, now: ZoneSnapshot, random: &mut SplitMix) -> ZoneSnapshot {
        let steps = |event: &Event| match event {
            Event::Write { blocks, .. } => u64::from(*blocks),
            Event::Finish | Event::Reset { .. } => 1,
        };
        let total: u64 = history.events.iter().map(steps).sum();
        // Losing nothing and losing everything are what a defect most likely depends on.
        let mut left = match random.below(4) {
            0 => 0,
            1 => total,
            _ => random.below(total + 1),
        };
        let shape = self.device.zone_shape();
        let mut record = history.flushed.clone();
        let mut blocks = None;
        for event in &history.events {
            let happens = steps(event).min(left);
            left -= happens;
            match event {
                Event::Write { origin, .. } if happens > 0 => {
                    record.advance(happens as u32, *origin, shape);
                    record.state = if u64::from(record.write_pointer) * BLOCK_BYTES as u64 == shape.capacity {
                        ZoneState::Full
                    } else {
                        ZoneState::ImplicitlyOpen
                    };
                }
                Event::Finish if happens > 0 => {
                    record.pad(shape);
                    record.state = ZoneState::Full;
                }
                Event::Reset { .. } if happens > 0 => {
                    record.erase(shape);
                    record.state = ZoneState::Empty;
                }
                // The first reset that did not happen took away the blocks that are still there.
                Event::Reset { before } if blocks.is_none() => blocks = Some(before.clone()),
                _ => {}
            }
        }
        ZoneSnapshot { record, blocks: blocks.unwrap_or(now.blocks) }
    }

    /// Carries a command on a zone out, unless power is gone or goes with it.
    fn change<T>(
        &self,
        zone: ZoneId,
        command: impl FnOnce() -> Result<T, DeviceError>,
        event: Option<Event>,
    ) -> Result<T, DeviceError> {
        let mut journal = self.journal.lock();
        let torn = journal.begin()?;
        // When there is no such zone, the command itself refuses it.
        let Some(history) = journal.zones.get_mut(zone.index()) else { return command() };
        let flushed = if history.is_none() { Some(self.device.record(zone)) } else { None };
        // Blocks are only held on to when they go away: whoever shares them makes the next write copy them.
        let event = match event {
            Some(Event::Reset { .. }) => Some(Event::Reset { before: self.device.snapshot(zone).blocks }),
            other => other,
        };
        let result = command();
        if let Some(flushed) = flushed {
            *history = Some(History { flushed, events: Vec::new() });
        }
        if let (Ok(_), Some(history), Some(event)) = (&result, history, event) {
            history.events.push(event);
        }
        if torn { Err(DeviceError::PowerLost) } else { result }
    }

    fn look<T>(&self, command: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        if self.is_cut() { Err(DeviceError::PowerLost) } else { command() }
    }
}

fn write_event(data: &[u8], tag: &Tag) -> Option<Event> {
    let blocks = (data.len() / BLOCK_BYTES) as u32;
    (blocks > 0).then_some(Event::Write { blocks, origin: tag.origin })
}

impl ZonedDevice for PowerCut {
    fn info(&self) -> ZonedInfo {
        self.device.info()
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.look(|| self.device.report(zone))
    }

    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        self.change(zone, || self.device.write(zone, at, data, tag), write_event(data, tag))
    }

    fn append(&self, zone: ZoneId, data: &[u8], tag: &Tag) -> Result<u32, DeviceError> {
        self.change(zone, || self.device.append(zone, data, tag), write_event(data, tag))
    }

    fn read(&self, zone: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        self.look(|| self.device.read(zone, at, out))
    }

    fn will_read(&self, places: &[(ZoneId, u32, u32)]) {
        self.device.will_read(places);
    }

    fn open(&self, zone: ZoneId) -> Result<(), DeviceError> {
        // No open zone outlives a loss of power, so there is nothing to remember of it, or of its closing.
        self.change(zone, || self.device.open(zone), None)
    }

    fn close(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.change(zone, || self.device.close(zone), None)
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.change(zone, || self.device.finish(zone), Some(Event::Finish))
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.change(zone, || self.device.reset(zone), Some(Event::Reset { before: ZoneBlocks::default() }))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut journal = self.journal.lock();
        if journal.begin()? {
            // A flush that power is lost in has made nothing certain.
            return Err(DeviceError::PowerLost);
        }
        self.device.flush()?;
        journal.zones.fill_with(|| None);
        Ok(())
    }

    fn erases(&self) -> bool {
        self.device.erases()
    }

    fn erase(&self, zones: &[ZoneId]) -> Result<(), DeviceError> {
        self.flush()?;
        self.look(|| self.device.erase(zones))
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }

    fn verify_identity(&self) -> Result<(), DeviceError> {
        self.device.verify_identity()
    }
}
