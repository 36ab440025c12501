//! A grant at the function level: a unit of the map is a row of blocks that the library hands out when its first page is
//! written and takes back when it is cleaned. The library erases it then.

use super::{Device, HostFlash, MapSize, Slot, ended, granted, granted_room};
use crate::flash::SimError;
use std::ops::Range;
use std::sync::Arc;
use weft_core::{Nanos, Tag};
use weft_device::Geometry;
use weft_device::nand::OpenChannel;
use weft_flash::function::{BlockWrite, Mapping};
use weft_flash::{FunctionLevel, GrantBlock, LevelError};

/// The function level of a device in memory.
pub struct FunctionFlash {
    device: Arc<OpenChannel>,
    level: FunctionLevel,
    room: MapSize,
    /// By unit of the map: the row of blocks that it has, if it has one.
    rows: Vec<Vec<GrantBlock>>,
    page: Vec<u8>,
}

impl FunctionFlash {
    /// A grant of all blocks of a device in memory.
    pub fn new(geometry: &Geometry) -> Result<FunctionFlash, SimError> {
        let (device, grant) = granted(geometry)?;
        let level = FunctionLevel::open(grant)?;
        // How much stays free is the map's business.
        level.set_ops(0)?;
        let room = granted_room(level.geometry());
        let rows = vec![Vec::new(); (room.blocks / room.blocks_per_unit()) as usize];
        let page = vec![0; level.geometry().page_bytes as usize];
        Ok(FunctionFlash { device, level, room, rows, page })
    }

    /// The block of a block of the map. Its unit takes a row now if it has none.
    fn block(&mut self, number: u32, issued: Nanos) -> Result<GrantBlock, LevelError> {
        let (unit, part) = (number / self.room.blocks_per_unit(), number % self.room.blocks_per_unit());
        let row = &mut self.rows[unit as usize];
        if row.is_empty() {
            let luns = self.room.luns_per_unit;
            *row = self.level.address_mapper_row(issued, luns, Mapping::Block, u64::from(unit))?;
        }
        Ok(row[part as usize])
    }
}

impl HostFlash for FunctionFlash {
    fn room(&self) -> MapSize {
        self.room
    }

    fn read(&mut self, issued: Nanos, slot: Slot) -> Result<Nanos, SimError> {
        let block = self.block(slot.block, issued)?;
        Ok(self.level.flash_read(issued, block, slot.page, 0, &mut self.page)?.done)
    }

    fn program(&mut self, issued: Nanos, slots: &[Slot], _copy: bool) -> Result<Nanos, SimError> {
        if let [slot] = slots {
            let block = self.block(slot.block, issued)?;
            return Ok(self.level.flash_write(issued, block, slot.page, &[])?.done);
        }
        let mut writes = Vec::with_capacity(slots.len());
        for slot in slots {
            let block = self.block(slot.block, issued)?;
            writes.push(BlockWrite { block, page: slot.page, data: &[], tag: Tag::default() });
        }
        ended(self.level.flash_write_vector(issued, &writes))
    }

    fn erase(&mut self, issued: Nanos, blocks: Range<u32>) -> Result<(), SimError> {
        let row = std::mem::take(&mut self.rows[(blocks.start / self.room.blocks_per_unit()) as usize]);
        row.into_iter().try_for_each(|block| self.level.flash_trim(block))?;
        // Erased at once: then each LUN has blocks free when its turn comes.
        self.level.flush(issued)?;
        Ok(())
    }

    fn device(&self) -> Device<'_> {
        Device::Open(&self.device)
    }
}
