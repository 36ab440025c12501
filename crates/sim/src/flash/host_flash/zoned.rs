//! A zoned device: a block of the map is a zone, a page 4 KiB.

use super::{Device, HostFlash, MapSize, Slot};
use crate::flash::SimError;
use std::ops::Range;
use weft_core::{BLOCK_BYTES, Nanos, Tag, ZoneId};
use weft_device::{Geometry, ZonedDevice, ZonedModel};

/// A zoned device in memory.
pub struct ZonedFlash {
    device: ZonedModel,
    buffer: Vec<u8>,
}

impl ZonedFlash {
    /// A device with this geometry.
    pub fn new(geometry: &Geometry) -> Result<ZonedFlash, SimError> {
        Ok(ZonedFlash { device: ZonedModel::memory(geometry)?, buffer: vec![0; BLOCK_BYTES] })
    }
}

impl HostFlash for ZonedFlash {
    fn room(&self) -> MapSize {
        let info = self.device.info();
        MapSize {
            blocks: info.zones,
            pages_per_block: info.zone_capacity,
            page_bytes: BLOCK_BYTES as u64,
            luns_per_unit: 1,
            planes: 1,
        }
    }

    fn read(&mut self, _issued: Nanos, slot: Slot) -> Result<Nanos, SimError> {
        self.device.read(ZoneId(slot.block), slot.page, &mut self.buffer)?;
        Ok(self.device.now())
    }

    /// The device keeps data, of which there is one buffer.
    fn reads_ahead(&self) -> bool {
        false
    }

    fn program(&mut self, _issued: Nanos, slots: &[Slot], copy: bool) -> Result<Nanos, SimError> {
        let tag = if copy { Tag::default().relocated() } else { Tag::default() };
        for slot in slots {
            self.device.write(ZoneId(slot.block), slot.page, &self.buffer, &tag)?;
        }
        Ok(self.device.now())
    }

    fn erase(&mut self, _issued: Nanos, blocks: Range<u32>) -> Result<(), SimError> {
        Ok(blocks.map(ZoneId).try_for_each(|zone| self.device.reset(zone))?)
    }

    fn device(&self) -> Device<'_> {
        Device::Zoned(&self.device)
    }
}
