//! Commands with many addresses, as open-channel drives take them. All of it is issued at once: what lies on different
//! LUNs is worked on at the same time, what lies on one LUN in the order of the addresses.

use super::address::{BlockAddr, LunAddr};
use super::command::{Done, PageProgram, PageRead};
use super::device::OpenChannel;
use super::error::FlashError;
use super::power::{Execution, Power};
use weft_core::Nanos;

/// Most addresses of a command.
pub const VECTOR_MAX: usize = 64;

/// What became of each address of a command, in their order.
type Results = Vec<Result<Done, FlashError>>;

impl OpenChannel {
    /// Reads pages. A failure at one address does not touch the others.
    ///
    /// Refused as a whole with [`FlashError::VectorLength`] with no or more than [`VECTOR_MAX`] addresses.
    pub fn read_vector(&self, issued: Nanos, pages: &mut [PageRead]) -> Result<Results, FlashError> {
        self.check_length(pages.len())?;
        Ok(pages.iter_mut().map(|read| self.read_planes(issued, std::slice::from_mut(read))).collect())
    }

    /// Programs pages. A failure at one address does not touch the others, but for later pages of the same block.
    ///
    /// Refused as a whole with [`FlashError::VectorLength`] with no or more than [`VECTOR_MAX`] addresses.
    pub fn program_vector(&self, issued: Nanos, pages: &[PageProgram]) -> Result<Results, FlashError> {
        self.check_length(pages.len())?;
        let mut cut = CutVector::default();
        let one = |(number, program): (usize, &PageProgram)| {
            let lun = program.page.block.lun_addr();
            let execution = |power: &Power| cut.execution(power, lun, number);
            self.counted(self.program_on_lun(issued, std::slice::from_ref(program), execution))
        };
        Ok(pages.iter().enumerate().map(one).collect())
    }

    /// Erases blocks. A failure at one address does not touch the others.
    ///
    /// Refused as a whole with [`FlashError::VectorLength`] with no or more than [`VECTOR_MAX`] addresses.
    pub fn erase_vector(&self, issued: Nanos, blocks: &[BlockAddr]) -> Result<Results, FlashError> {
        self.check_length(blocks.len())?;
        let mut cut = CutVector::default();
        let one = |(number, block): (usize, &BlockAddr)| {
            let execution = |power: &Power| cut.execution(power, block.lun_addr(), number);
            self.counted(self.erase_on_lun(issued, std::slice::from_ref(block), execution))
        };
        Ok(self.erasing(blocks, || blocks.iter().enumerate().map(one).collect()))
    }

    fn check_length(&self, given: usize) -> Result<(), FlashError> {
        self.power.check()?;
        if (1..=VECTOR_MAX).contains(&given) {
            return Ok(());
        }
        self.counted(Err(FlashError::VectorLength { given, most: VECTOR_MAX }))
    }
}

/// A power cut within a vector: each LUN had come a way of its own when power went.
#[derive(Default)]
struct CutVector {
    /// Power went in this vector.
    cut: bool,
    /// LUNs that had not come further.
    stopped: Vec<LunAddr>,
}

impl CutVector {
    fn execution(&mut self, power: &Power, lun: LunAddr, number: usize) -> Result<Execution, FlashError> {
        if self.stopped.contains(&lun) {
            return Err(FlashError::PowerLost);
        }
        let execution = if self.cut { power.sibling(number as u64) } else { power.begin()? };
        self.cut |= execution != Execution::Reported;
        if matches!(execution, Execution::Torn | Execution::Nothing) {
            self.stopped.push(lun);
        }
        Ok(execution)
    }
}
