//! Room when cleaning has none left.
//!
//! Cleaning copies into flash, so it needs a free place there. Power that goes in the middle of cleaning, again and again, leaves
//! units with programs that were interrupted, until none is free and no open one has room. Then the valid blocks of the emptiest
//! unit go into cells of the protected memory, the unit is erased, and cleaning goes on in it. The blocks are written back
//! when there is room.
//!
//! ```text
//!  emptiest unit: [v . . v . .] --copy--> cells: [v v] --write back--> open unit
//!                 erased: free            the map has no slot for them meanwhile
//! ```
//!
//! Power may go at any step: a cell has a larger number than the slot that it was copied from. Until the unit is erased, an opening finds
//! the block in its slot and reads it from the cell; after that it finds it in the cell alone.

use super::commands::State;
use super::error::SsdError;
use crate::gc::GcError;
use crate::nand::FlashError;

impl State {
    /// Writes a logical block, whose data is the media's incoming block. Makes room the last way when there is no other.
    pub fn write_block(&mut self, logical: u32, front: usize) -> Result<(), SsdError> {
        for _ in 0..self.mapper.setup().blocks {
            match self.mapper.write(&mut self.media, logical, front) {
                Ok(_) => return Ok(()),
                Err(GcError::OutOfSpace { .. }) if self.evacuate()? => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.mapper.write(&mut self.media, logical, front).map(drop)?)
    }

    /// Empties the emptiest unit into protected memory and erases it; false when that would gain nothing, or there are not enough
    /// cells.
    pub fn evacuate(&mut self) -> Result<bool, SsdError> {
        let per_unit = self.mapper.setup().slots_per_block;
        let Some((unit, valid)) = self.mapper.emptiest().filter(|(_, valid)| *valid < per_unit) else {
            return Ok(false);
        };
        if valid > self.media.cells_to_spare() {
            return Ok(false);
        }
        let front = self.mapper.front_of(unit);
        for slot in unit * per_unit..(unit + 1) * per_unit {
            if let Some(logical) = self.mapper.page_in(slot) {
                self.media.take_into_memory(slot, logical, front)?;
                self.mapper.take_out(logical);
            }
        }
        self.mapper.collect_this(&mut self.media, unit)?;
        Ok(true)
    }

    /// Writes blocks that are in memory alone to flash, as far as there is room.
    pub fn write_back(&mut self) -> Result<(), SsdError> {
        self.media.rewriting = true;
        let written = self.write_back_some();
        self.media.rewriting = false;
        Ok(written?)
    }

    fn write_back_some(&mut self) -> Result<(), GcError<FlashError>> {
        while let Some((logical, front, data)) = self.media.first_alone() {
            self.media.incoming = data;
            match self.mapper.write(&mut self.media, logical, front) {
                Ok(_) => {}
                Err(GcError::OutOfSpace { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.before.rewritten += 1;
            self.media.forget_alone(logical);
        }
        Ok(())
    }
}
