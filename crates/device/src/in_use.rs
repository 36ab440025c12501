//! Zones that are open, and those that are active (open or closed), within the limits of their device.
//!
//! As in NVMe, a write opens its zone by itself, and when no more may be open the device closes one that a write opened: the
//! one opened longest ago. The model and real drives keep their limits by this; what closing a zone takes is theirs.

use crate::DeviceError;
use crate::zoned::{ZoneState, ZonedInfo};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use weft_core::ZoneId;

/// How many zones are open, and how many active. Raised only with the device's [`Limits`] locked.
#[derive(Debug, Default)]
pub struct InUse {
    open: AtomicU32,
    active: AtomicU32,
}

impl InUse {
    /// Counts a zone that has gone from one state to another. Returns how many are open and active now.
    pub fn moved(&self, before: ZoneState, after: ZoneState) -> (u32, u32) {
        let shift = |count: &AtomicU32, was: bool, is: bool| match (was, is) {
            (false, true) => count.fetch_add(1, AcqRel) + 1,
            (true, false) => count.fetch_sub(1, AcqRel) - 1,
            _ => count.load(Acquire),
        };
        let open = shift(&self.open, before.is_open(), after.is_open());
        (open, shift(&self.active, before.is_active(), after.is_active()))
    }

    /// So many are active, after a count of all.
    pub fn set_active(&self, active: u32) {
        self.active.store(active, Relaxed);
    }
}

/// The open zones that may be closed to make room.
#[derive(Debug, Default)]
pub struct Limits {
    /// Opened by a write, oldest first, each once; may name zones that are open no more.
    opened_by_write: VecDeque<u32>,
}

impl Limits {
    /// Makes room for one more open zone, which is in `state`, by `close` when it must: that closes a zone if it is still
    /// open by a write.
    pub fn make_room(
        &mut self,
        in_use: &InUse,
        info: &ZonedInfo,
        id: ZoneId,
        state: ZoneState,
        mut close: impl FnMut(ZoneId) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if !state.is_active() && in_use.active.load(Acquire) >= info.active_max {
            return Err(DeviceError::TooManyActiveZones { zone: id, limit: info.active_max });
        }
        while in_use.open.load(Acquire) >= info.open_max {
            let Some(oldest) = self.opened_by_write.pop_front() else {
                return Err(DeviceError::TooManyOpenZones { zone: id, limit: info.open_max });
            };
            // The zone at hand is locked and not open: an entry that names it is out of date.
            if oldest != id.0 {
                close(ZoneId(oldest))?;
            }
        }
        Ok(())
    }

    /// A write has opened a zone. Others that are not open by a write any more are forgotten.
    pub fn opened(&mut self, id: ZoneId, is_open: impl Fn(ZoneId) -> bool) {
        self.opened_by_write.retain(|zone| *zone != id.0 && is_open(ZoneId(*zone)));
        self.opened_by_write.push_back(id.0);
    }
}
