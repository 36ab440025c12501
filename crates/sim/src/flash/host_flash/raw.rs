//! A grant at the raw level, as a log over all blocks that the application cleans itself. A unit has a block in each plane
//! of neighbouring LUNs.

use super::{Device, HostFlash, MapSize, Slot, ended, granted, granted_room};
use crate::flash::SimError;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use weft_core::{Nanos, Tag};
use weft_device::Geometry;
use weft_device::nand::OpenChannel;
use weft_flash::raw::RawWrite;
use weft_flash::{GrantBlock, GrantPage, RawLevel};

/// The raw level of a device in memory.
pub struct RawFlash {
    device: Arc<OpenChannel>,
    raw: RawLevel,
    luns: Vec<(u32, u32)>,
    room: MapSize,
    /// By unit of the map: the row of blocks that it has, if it has one.
    rows: Vec<Option<u32>>,
    /// By the LUNs that they lie on: rows that no unit has.
    free: Vec<VecDeque<u32>>,
    /// The LUNs that the next unit's row lies on, if they have one.
    turn: usize,
    page: Vec<u8>,
}

impl RawFlash {
    /// A grant of all blocks of a device in memory.
    pub fn new(geometry: &Geometry) -> Result<RawFlash, SimError> {
        let (device, grant) = granted(geometry)?;
        let raw = RawLevel::new(grant);
        let luns = raw.geometry().lun_list();
        let room = granted_room(raw.geometry());
        let units = room.blocks / room.blocks_per_unit();
        let groups = luns.len() as u32 / room.luns_per_unit;
        let free = (0..groups).map(|group| (group..units).step_by(groups as usize).collect()).collect();
        let rows = vec![None; units as usize];
        let page = vec![0; raw.geometry().page_bytes as usize];
        Ok(RawFlash { device, raw, luns, room, rows, free, turn: 0, page })
    }

    /// The block of a block of the map. Its unit takes a row now if it has none, of the next LUNs that have one.
    fn block(&mut self, number: u32) -> GrantBlock {
        let (unit, part) = (number / self.room.blocks_per_unit(), number % self.room.blocks_per_unit());
        while self.rows[unit as usize].is_none() {
            self.rows[unit as usize] = self.free[self.turn].pop_front();
            self.turn = (self.turn + 1) % self.free.len();
        }
        let row = self.rows[unit as usize].unwrap_or_default();
        let (at, block) = self.room.place(row * self.room.blocks_per_unit() + part, self.luns.len() as u32);
        let (channel, lun) = self.luns[at as usize];
        GrantBlock { channel, lun, block }
    }
}

impl HostFlash for RawFlash {
    fn room(&self) -> MapSize {
        self.room
    }

    fn read(&mut self, issued: Nanos, slot: Slot) -> Result<Nanos, SimError> {
        let page = self.block(slot.block).page(slot.page);
        Ok(self.raw.page_read(issued, page, 0, &mut self.page, &mut [])?.done)
    }

    fn program(&mut self, issued: Nanos, slots: &[Slot], _copy: bool) -> Result<Nanos, SimError> {
        if let [slot] = slots {
            let page = self.block(slot.block).page(slot.page);
            return Ok(self.raw.page_write(issued, page, &[], &[])?.done);
        }
        let pages: Vec<GrantPage> = slots.iter().map(|slot| self.block(slot.block).page(slot.page)).collect();
        let writes: Vec<RawWrite> = pages
            .into_iter()
            .map(|page| RawWrite { page, data: &[], oob: &[], tag: Tag::default() })
            .collect();
        ended(self.raw.page_write_vector(issued, &writes)?)
    }

    fn erase(&mut self, issued: Nanos, blocks: Range<u32>) -> Result<(), SimError> {
        let unit = blocks.start / self.room.blocks_per_unit();
        let blocks: Vec<GrantBlock> = blocks.map(|block| self.block(block)).collect();
        ended(self.raw.block_erase_vector(issued, &blocks)?)?;
        if let Some(row) = self.rows[unit as usize].take() {
            let group = row as usize % self.free.len();
            self.free[group].push_back(row);
        }
        Ok(())
    }

    fn device(&self) -> Device<'_> {
        Device::Open(&self.device)
    }
}
