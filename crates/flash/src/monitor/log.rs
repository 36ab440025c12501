//! The monitor's log on the device.

use super::layout::Layout;
use crate::backend::{Backend, read_again};
use crate::error::LevelError;
use crate::log::{LogBlock, LogMedia, LogRead};
use weft_core::Nanos;
use weft_device::gc::Outcome;
use weft_device::nand::{BlockState, Done, FlashError, FlashShape, PageRead};

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

    /// What became of a program or an erase. The next command is issued at its end.
    fn ended(&mut self, result: Result<Done, FlashError>) -> Result<Outcome, LevelError> {
        let (done, outcome) = match result {
            Ok(done) => (done.done, Outcome::Done),
            Err(FlashError::ProgramFailed { done, .. } | FlashError::EraseFailed { done, .. }) => {
                (done, Outcome::Bad)
            }
            Err(other) => return Err(other.into()),
        };
        self.now = done;
        Ok(outcome)
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
        let page = Layout::log_block(&self.shape, block).page(page);
        match read_again(self.backend, self.now, PageRead { page, offset: 0, data: into, oob: &mut [] }) {
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
        let done = self.backend.program(self.now, address, data, &[]);
        self.ended(done)
    }

    fn erase(&mut self, block: u32) -> Result<Outcome, LevelError> {
        let done = self.backend.erase(self.now, Layout::log_block(&self.shape, block));
        self.ended(done)
    }
}
