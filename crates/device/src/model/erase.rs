//! Secure deletion: overwrites what an image still has of zones that were reset, and the flush log.
//!
//! A reset empties a zone's record and leaves the bytes where they are. They are overwritten only when the record is durable: or else a
//! crash of the host could bring it back over other bytes.

use super::ZonedModel;
use crate::DeviceError;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use weft_core::ZoneId;

impl ZonedModel {
    /// Overwrites with random bytes so often before it overwrites with zeros.
    pub fn set_erase_passes(&self, passes: u32) {
        self.erase_passes.store(passes, Relaxed);
    }

    pub(super) fn erase_zones(&self, zones: &[ZoneId]) -> Result<(), DeviceError> {
        let is_empty = |zone: &ZoneId| self.zones[zone.index()].report().write_pointer == 0;
        let Some(image) = self.store.image().filter(|image| !image.is_only_looked_at()) else {
            zones.iter().filter(|zone| is_empty(zone)).for_each(|zone| self.store.discard(zone.0));
            return Ok(());
        };
        let _alone = self.flushes_completed.lock();
        if self.sync_failed.load(Acquire) {
            let source = io::Error::other("an earlier flush failed");
            return Err(DeviceError::Io { path: image.path.clone(), source });
        }
        let resets = self.resets.load(Acquire);
        image.sync()?;
        self.resets_durable.fetch_max(resets, AcqRel);
        // Held until their bytes are overwritten, so that nobody writes to them meanwhile.
        let empty: Vec<_> = zones
            .iter()
            .map(|zone| (*zone, self.zones[zone.index()].zone.lock()))
            .filter(|(_, zone)| zone.record.write_pointer == 0)
            .collect();
        let zones: Vec<ZoneId> = empty.iter().map(|(zone, _)| *zone).collect();
        image.erase(&zones, self.erase_passes.load(Relaxed))
    }
}
