//! Open-channel flash by its physical addresses. Blocks of neighbouring numbers are on different LUNs.

use super::{Below, HostFlash, Room, Slot, Work, device_heat};
use crate::command::flash::heat::HeatRow;
use crate::error::CliError;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, FlashShape, Keep, OpenChannel, PageAddr};

/// Open-channel flash in memory.
pub struct OpenFlash {
    device: OpenChannel,
    shape: FlashShape,
}

impl OpenFlash {
    pub fn new(geometry: &Geometry) -> Result<OpenFlash, CliError> {
        let device = OpenChannel::memory(&FlashSetup::new(geometry.clone()).keeping(Keep::Nothing))?;
        let shape = device.shape();
        Ok(OpenFlash { device, shape })
    }

    fn page(&self, slot: Slot) -> PageAddr {
        let shape = self.shape;
        let (lun, within) = (slot.block % shape.luns(), slot.block / shape.luns());
        shape.lun_at(lun).block(within % shape.planes, within / shape.planes).page(slot.page)
    }
}

impl HostFlash for OpenFlash {
    fn room(&self) -> Room {
        let shape = self.shape;
        Room::on_luns(shape.blocks(), shape.luns(), shape.pages_per_block, shape.page_bytes)
    }

    fn read(&mut self, issued: Nanos, slot: Slot) -> Result<Nanos, Below> {
        Ok(self.device.touch(issued, self.page(slot), self.shape.page_bytes)?.done)
    }

    fn program(&mut self, issued: Nanos, slot: Slot, _copy: bool) -> Result<Nanos, Below> {
        Ok(self.device.program(issued, self.page(slot), &[], &[])?.done)
    }

    fn erase(&mut self, issued: Nanos, block: u32) -> Result<(), Below> {
        self.device.erase(issued, self.page(Slot { block, page: 0 }).block)?;
        Ok(())
    }

    fn work(&self) -> Work {
        Work::of(&self.device)
    }

    fn heat(&self) -> Result<Vec<HeatRow>, CliError> {
        device_heat(&self.device)
    }

    fn verify(&self) -> Result<(), CliError> {
        Ok(self.device.verify_identity()?)
    }
}
