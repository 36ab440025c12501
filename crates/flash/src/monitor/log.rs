//! The monitor's log on the device.

use super::layout::Layout;
use crate::backend::{Backend, read_again};
use crate::error::LevelError;
use crate::log::{LogBlock, LogMedia, LogRead};
use weft_core::Nanos;
use weft_device::gc::Outcome;
use weft_device::nand::{BlockState, FlashError, FlashShape};

/// The blocks of the log.
pub(super) struct DeviceLog<'a> {
    backend: &'a dyn Backend,
    shape: FlashShape,
    /// When what was asked for is over.
    pub now: Nanos,
}

impl<'a> DeviceLog<'a> {
    pub fn new(backend: &'a dyn Backend, now: Nanos) -> DeviceLog<'a> {
        DeviceLog { backend, shape: backend.shape(), now }
    }
}

impl LogMedia for DeviceLog<'_> {
    fn look(&mut self, block: u32) -> Result<LogBlock, LevelError> {
        let info = self.backend.block_info(Layout::log_block(&self.shape, block))?;
        let readable = !matches!(info.state, BlockState::Dead | BlockState::FactoryBad);
        Ok(LogBlock {
            programmed: if readable { info.programmed } else { 0 },
            clean: info.state == BlockState::Free,
            good: !info.state.is_bad(),
        })
    }

    fn read(&mut self, block: u32, page: u32, into: &mut [u8]) -> Result<LogRead, LevelError> {
        let address = Layout::log_block(&self.shape, block).page(page);
        match read_again(self.backend, self.now, address, 0, into, &mut []) {
            Ok(done) => self.now = done.done,
            Err(FlashError::Uncorrectable { why, done, .. }) => {
                self.now = done;
                return Ok(if why.is_interrupted() { LogRead::Torn } else { LogRead::Failed });
            }
            Err(other) => return Err(other.into()),
        }
        Ok(LogRead::Whole)
    }

    fn name(&self, block: u32, page: u32) -> String {
        Layout::log_block(&self.shape, block).page(page).to_string()
    }

    fn program(&mut self, block: u32, page: u32, data: &[u8]) -> Result<Outcome, LevelError> {
        let address = Layout::log_block(&self.shape, block).page(page);
        match self.backend.program(self.now, address, data, &[]) {
            Ok(done) => self.now = done.done,
            Err(FlashError::ProgramFailed { done, .. }) => {
                self.now = done;
                return Ok(Outcome::Bad);
            }
            Err(other) => return Err(other.into()),
        }
        Ok(Outcome::Done)
    }

    fn erase(&mut self, block: u32) -> Result<Outcome, LevelError> {
        match self.backend.erase(self.now, Layout::log_block(&self.shape, block)) {
            Ok(done) => self.now = done.done,
            Err(FlashError::EraseFailed { done, .. }) => {
                self.now = done;
                return Ok(Outcome::Bad);
            }
            Err(other) => return Err(other.into()),
        }
        Ok(Outcome::Done)
    }
}
