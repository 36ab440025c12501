//! A grant at the function level: a block of the map is one that the library hands out when its first page is written
//! and takes back when it is cleaned. The library erases it then.

use super::{Below, HostFlash, Room, Slot, Work, device_heat, granted};
use crate::command::flash::heat::HeatRow;
use crate::error::CliError;
use std::sync::Arc;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::OpenChannel;
use weft_flash::function::Mapping;
use weft_flash::{FunctionLevel, GrantBlock, LevelError};

/// The function level of a device in memory.
pub struct FunctionFlash {
    device: Arc<OpenChannel>,
    level: FunctionLevel,
    /// By block of the map: the block that it has.
    taken: Vec<Option<GrantBlock>>,
    /// The channel that a block was taken from last.
    channel: u32,
    page: Vec<u8>,
}

impl FunctionFlash {
    pub fn new(geometry: &Geometry) -> Result<FunctionFlash, CliError> {
        let (device, grant) = granted(geometry)?;
        let level = FunctionLevel::open(grant)?;
        // How much stays free is the map's business.
        level.set_ops(0)?;
        let taken = vec![None; level.geometry().blocks() as usize];
        let page = vec![0; level.geometry().page_bytes as usize];
        Ok(FunctionFlash { device, level, taken, channel: 0, page })
    }

    /// The block of a block of the map, which is taken now if it has none: round the channels.
    fn block(&mut self, number: u32, issued: Nanos) -> Result<GrantBlock, LevelError> {
        if let Some(block) = self.taken[number as usize] {
            return Ok(block);
        }
        let channels = self.level.geometry().channels();
        for _ in 0..channels {
            self.channel = (self.channel + 1) % channels;
            match self.level.address_mapper(issued, self.channel, Mapping::Block, u64::from(number)) {
                Ok(mapped) => {
                    self.taken[number as usize] = Some(mapped.block);
                    return Ok(mapped.block);
                }
                Err(LevelError::NoFreeBlock { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Err(LevelError::NoFreeBlock { channel: self.channel })
    }
}

impl HostFlash for FunctionFlash {
    fn room(&self) -> Room {
        let geometry = self.level.geometry();
        let blocks = u64::from(geometry.blocks());
        Room::on_luns(blocks, geometry.luns(), geometry.pages_per_block, geometry.page_bytes)
    }

    fn read(&mut self, issued: Nanos, slot: Slot) -> Result<Nanos, Below> {
        let block = self.block(slot.block, issued)?;
        Ok(self.level.flash_read(issued, block, slot.page, 0, &mut self.page)?.done)
    }

    fn program(&mut self, issued: Nanos, slot: Slot, _copy: bool) -> Result<Nanos, Below> {
        let block = self.block(slot.block, issued)?;
        Ok(self.level.flash_write(issued, block, slot.page, &[])?.done)
    }

    fn erase(&mut self, issued: Nanos, block: u32) -> Result<(), Below> {
        if let Some(block) = self.taken[block as usize].take() {
            self.level.flash_trim(block)?;
            // Erased at once: then each LUN has blocks free when its turn comes.
            self.level.flush(issued)?;
        }
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
