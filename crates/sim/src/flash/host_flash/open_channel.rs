//! Open-channel flash by its physical addresses. A unit has a block in each plane of
//! neighbouring LUNs.

use super::{Device, HostFlash, MapSize, Slot};
use crate::flash::SimError;
use std::ops::Range;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{BlockAddr, FlashSetup, FlashShape, Keep, OpenChannel, PageProgram};

/// Open-channel flash in memory.
pub struct OpenFlash {
    device: OpenChannel,
    shape: FlashShape,
    room: MapSize,
}

impl OpenFlash {
    /// A device in memory that keeps no data.
    pub fn new(geometry: &Geometry) -> Result<OpenFlash, SimError> {
        let device = OpenChannel::memory(&FlashSetup::new(geometry.clone()).keeping(Keep::Nothing))?;
        let shape = device.shape();
        let FlashShape { planes, pages_per_block, page_bytes, .. } = shape;
        let room = MapSize::on_luns(shape.blocks(), shape.luns(), planes, pages_per_block, page_bytes);
        Ok(OpenFlash { device, shape, room })
    }

    fn block(&self, number: u32) -> BlockAddr {
        let (lun, block) = self.room.place(number, self.shape.luns());
        self.shape.lun_at(lun).block(block % self.shape.planes, block / self.shape.planes)
    }
}

impl HostFlash for OpenFlash {
    fn room(&self) -> MapSize {
        self.room
    }

    fn read(&mut self, issued: Nanos, slot: Slot) -> Result<Nanos, SimError> {
        let page = self.block(slot.block).page(slot.page);
        Ok(self.device.touch(issued, page, self.shape.page_bytes)?.done)
    }

    fn program(&mut self, issued: Nanos, slots: &[Slot], _copy: bool) -> Result<Nanos, SimError> {
        let program =
            |slot: &Slot| PageProgram { page: self.block(slot.block).page(slot.page), data: &[], oob: &[] };
        let programs: Vec<PageProgram> = slots.iter().map(program).collect();
        Ok(self.device.program_planes(issued, &programs)?.done)
    }

    fn erase(&mut self, issued: Nanos, blocks: Range<u32>) -> Result<(), SimError> {
        let blocks: Vec<BlockAddr> = blocks.map(|block| self.block(block)).collect();
        for on_lun in blocks.chunks(self.shape.planes as usize) {
            self.device.erase_planes(issued, on_lun)?;
        }
        Ok(())
    }

    fn device(&self) -> Device<'_> {
        Device::Open(&self.device)
    }
}
