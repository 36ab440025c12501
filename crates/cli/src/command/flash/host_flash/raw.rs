//! A grant at the raw level, as a log over all blocks that the application cleans itself. Blocks of neighbouring numbers
//! are on different LUNs.

use super::{Below, HostFlash, Room, Slot, Work, device_heat, granted};
use crate::command::flash::heat::HeatRow;
use crate::error::CliError;
use std::sync::Arc;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::OpenChannel;
use weft_flash::{GrantBlock, RawLevel};

/// The raw level of a device in memory.
pub struct RawFlash {
    device: Arc<OpenChannel>,
    raw: RawLevel,
    luns: Vec<(u32, u32)>,
    page: Vec<u8>,
}

impl RawFlash {
    pub fn new(geometry: &Geometry) -> Result<RawFlash, CliError> {
        let (device, grant) = granted(geometry)?;
        let raw = RawLevel::new(grant);
        let luns = raw.geometry().lun_list();
        let page = vec![0; raw.geometry().page_bytes as usize];
        Ok(RawFlash { device, raw, luns, page })
    }

    fn block(&self, number: u32) -> GrantBlock {
        let luns = self.luns.len() as u32;
        let (channel, lun) = self.luns[(number % luns) as usize];
        GrantBlock { channel, lun, block: number / luns }
    }
}

impl HostFlash for RawFlash {
    fn room(&self) -> Room {
        let geometry = self.raw.geometry();
        let blocks = u64::from(geometry.blocks());
        Room::on_luns(blocks, geometry.luns(), geometry.pages_per_block, geometry.page_bytes)
    }

    fn read(&mut self, issued: Nanos, slot: Slot) -> Result<Nanos, Below> {
        let page = self.block(slot.block).page(slot.page);
        Ok(self.raw.page_read(issued, page, 0, &mut self.page, &mut [])?.done)
    }

    fn program(&mut self, issued: Nanos, slot: Slot, _copy: bool) -> Result<Nanos, Below> {
        let page = self.block(slot.block).page(slot.page);
        Ok(self.raw.page_write(issued, page, &[], &[])?.done)
    }

    fn erase(&mut self, issued: Nanos, block: u32) -> Result<(), Below> {
        self.raw.block_erase(issued, self.block(block))?;
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
