//! The commands on zones.

use super::{Zone, ZoneCell, ZonedModel};
use crate::DeviceError;
use crate::clock::{Completion, bytes_of, units_filled};
use crate::faults::Operation;
use crate::in_use::Limits;
use crate::state::{self, Action};
use crate::zoned::ZoneState;
use parking_lot::MutexGuard;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use weft_core::checksum::crc32c_append;
use weft_core::{BLOCK_BYTES, Tag, ZoneId};

impl ZonedModel {
    /// Moves the zone to another state and keeps the counts of open and active zones. Raising a count takes `limits`.
    fn set_state(&self, zone: &mut Zone, state: ZoneState) {
        let before = std::mem::replace(&mut zone.record.state, state);
        self.totals.in_use(self.in_use.moved(before, state));
    }

    fn make_room(&self, limits: &mut Limits, id: ZoneId, state: ZoneState) -> Result<(), DeviceError> {
        limits.make_room(&self.in_use, &self.info, id, state, |oldest| {
            let cell = &self.zones[oldest.index()];
            let mut zone = cell.zone.lock();
            if zone.record.state == ZoneState::ImplicitlyOpen {
                self.set_state(&mut zone, ZoneState::Closed);
                self.publish(oldest, cell, &mut zone);
            }
            Ok(())
        })
    }

    pub(super) fn write_blocks(
        &self,
        id: ZoneId,
        at: Option<u32>,
        data: &[u8],
        tag: &Tag,
    ) -> Result<u32, DeviceError> {
        let blocks = state::whole_blocks(data.len())?;
        let cell = self.cell(id, at.unwrap_or(0), if at.is_some() { blocks } else { 0 })?;
        let mut zone = cell.zone.lock();
        if blocks == 0 {
            return Ok(zone.record.write_pointer);
        }
        let capacity = self.info.zone_capacity;
        let judge = |zone: &Zone| state::judge_write(id, zone.record.report(), capacity, at, blocks);
        let mut action = judge(&zone)?;
        if !zone.record.state.is_open() {
            // `limits` comes before the zone in the order of locks, so the zone has to be judged again.
            drop(zone);
            let mut limits = self.limits.lock();
            zone = cell.zone.lock();
            action = judge(&zone)?;
            if !zone.record.state.is_open() {
                self.make_room(&mut limits, id, zone.record.state)?;
                self.set_state(&mut zone, ZoneState::ImplicitlyOpen);
                // Published before `limits` is let go: the list keeps only zones that show this state.
                self.publish(id, cell, &mut zone);
                limits
                    .opened(id, |zone| self.zones[zone.index()].report().state == ZoneState::ImplicitlyOpen);
            }
        }
        let (at, completion) = self.write_open(id, cell, zone, data, tag, action)?;
        completion.wait();
        Ok(at)
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
    ) -> Result<(u32, Completion), DeviceError> {
        let zone = &mut *guard;
        let at = zone.record.write_pointer;
        let blocks = (data.len() / BLOCK_BYTES) as u32;
        let units = units_filled(bytes_of(at), bytes_of(at + blocks), self.shape.unit);
        self.try_program(id, cell, zone, units.clone())?;
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
        }
        let programmed = zone.record.advance(blocks, tag.origin, self.shape);
        if action == Action::WriteToEnd {
            self.set_state(zone, ZoneState::Full);
        }
        self.publish(id, cell, zone);
        self.totals.wrote(data.len() as u64, tag.origin, programmed);
        Ok((at, self.clock.write(id.0, data.len() as u64, units)))
    }

    /// Whether flash takes these program units; if not, the zone becomes read-only.
    fn try_program(
        &self,
        id: ZoneId,
        cell: &ZoneCell,
        zone: &mut Zone,
        mut units: Range<u64>,
    ) -> Result<(), DeviceError> {
        let age = zone.record.erases;
        let Some(unit) = units.find(|unit| self.faults.fails(Operation::Program, id.0, age, *unit)) else {
            return Ok(());
        };
        self.set_state(zone, ZoneState::ReadOnly);
        self.publish(id, cell, zone);
        let at = (unit * self.shape.unit / BLOCK_BYTES as u64) as u32;
        tracing::warn!(zone = id.0, at, "program failed, the zone is read-only");
        Err(DeviceError::Media { zone: id, at, what: "program" })
    }

    pub(super) fn read_blocks(&self, id: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        let blocks = state::whole_blocks(out.len())?;
        let cell = self.cell(id, at, blocks)?;
        let found = cell.report();
        found.judge_read(id, at, blocks)?;
        let bytes = bytes_of(at)..bytes_of(at + blocks);
        let programmed = match found.state {
            ZoneState::Full => bytes_of(found.write_pointer),
            _ => bytes_of(found.write_pointer) / self.shape.unit * self.shape.unit,
        };
        self.try_read(id, cell, bytes.start..bytes.end.min(programmed))?;
        self.store.read(id.0, at, out)?;
        self.totals.read(out.len() as u64);
        self.clock.read(id.0, bytes, programmed).wait();
        Ok(())
    }

    /// Whether these bytes can be read from flash.
    fn try_read(&self, id: ZoneId, cell: &ZoneCell, bytes: Range<u64>) -> Result<(), DeviceError> {
        if self.faults.uncorrectable_reads == 0 {
            return Ok(());
        }
        let age = cell.zone.lock().record.erases;
        let page_bytes = u64::from(self.geometry.page_bytes);
        let mut pages = bytes.start / page_bytes..bytes.end.div_ceil(page_bytes);
        match pages.find(|page| self.faults.fails(Operation::Read, id.0, age, *page)) {
            None => Ok(()),
            Some(page) => {
                let at = (page * page_bytes / BLOCK_BYTES as u64) as u32;
                Err(DeviceError::Media { zone: id, at, what: "read" })
            }
        }
    }

    pub(super) fn open_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
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

    pub(super) fn close_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut zone = cell.zone.lock();
        let state = state::next(id, zone.record.state, Action::Close)?;
        self.set_state(&mut zone, state);
        self.publish(id, cell, &mut zone);
        Ok(())
    }

    pub(super) fn finish_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut zone = cell.zone.lock();
        let state = state::next(id, zone.record.state, Action::Finish)?;
        let first = zone.record.standing / self.shape.unit;
        let padded = u64::from(zone.record.buffered() > 0);
        self.try_program(id, cell, &mut zone, first..first + padded)?;
        let programmed = zone.record.pad(self.shape);
        self.set_state(&mut zone, state);
        self.publish(id, cell, &mut zone);
        self.totals.media.fetch_add(programmed, Relaxed);
        let completion = self.clock.write(id.0, 0, first..first + padded);
        drop(zone);
        completion.wait();
        Ok(())
    }

    pub(super) fn reset_zone(&self, id: ZoneId) -> Result<(), DeviceError> {
        let cell = self.cell(id, 0, 0)?;
        let mut zone = cell.zone.lock();
        let state = state::next(id, zone.record.state, Action::Reset)?;
        self.try_erase(id, cell, &mut zone)?;
        let erased = zone.record.erase(self.shape);
        self.store.discard(id.0);
        self.set_state(&mut zone, state);
        self.publish(id, cell, &mut zone);
        // Numbered after it is published: whoever makes this number durable has the record before him.
        zone.reset = self.resets.fetch_add(1, AcqRel) + 1;
        self.totals.resets.fetch_add(1, Relaxed);
        if erased {
            self.totals.erases.fetch_add(self.geometry.blocks_per_zone(), Relaxed);
        }
        let completion = self.clock.reset(id.0, erased);
        drop(zone);
        completion.wait();
        Ok(())
    }

    /// Whether the zone's blocks can be erased, some of them by a spare taking their place; if not, the zone goes
    /// offline.
    fn try_erase(&self, id: ZoneId, cell: &ZoneCell, zone: &mut Zone) -> Result<(), DeviceError> {
        if zone.record.standing == 0 {
            return Ok(());
        }
        let age = zone.record.erases;
        let worn_out = self.geometry.endurance > 0 && age >= self.geometry.endurance;
        let alive = !worn_out
            && (0..self.geometry.blocks_per_zone()).all(|block| {
                !self.faults.fails(Operation::Erase, id.0, age, block) || self.replace_block(zone)
            });
        if alive {
            return Ok(());
        }
        self.set_state(zone, ZoneState::Offline);
        self.publish(id, cell, zone);
        tracing::warn!(zone = id.0, erases = age, worn_out, "erase failed, the zone is offline");
        Err(DeviceError::Media {
            zone: id,
            at: 0,
            what: if worn_out { "erase of worn-out blocks" } else { "erase" },
        })
    }
}
