//! The errors of a drive: refused commands and failures.

use crate::DeviceError;
use crate::gc::GcError;
use crate::nand::FlashError;

/// A command that the drive did not carry out.
#[derive(Debug, thiserror::Error)]
pub enum SsdError {
    /// Refused: blocks that the drive does not have.
    #[error("blocks {block} to {}: the drive has {capacity}; address blocks below that", block + blocks)]
    OutOfRange {
        /// First block.
        block: u64,
        /// Blocks.
        blocks: u64,
        /// Blocks of the drive.
        capacity: u64,
    },
    /// Refused: data that is not as long as the blocks are.
    #[error("{given} bytes for {blocks} blocks of 4096 bytes; give whole blocks")]
    WrongLength {
        /// Bytes given.
        given: usize,
        /// Blocks of the command.
        blocks: u64,
    },
    /// Refused: a placement handle that the drive does not have.
    #[error("placement handle {handle}: the drive has {handles}; name one below that")]
    NoSuchHandle {
        /// Handle that the command names.
        handle: u16,
        /// Handles of the drive.
        handles: u16,
    },
    /// A block whose flash could not be read, now or when the drive moved it. It can be written again.
    #[error("block {block} cannot be read: its flash page is lost; write it again from elsewhere")]
    Unreadable {
        /// Logical block that cannot be read.
        block: u64,
    },
    /// So many blocks of the flash are bad that nothing can be written any more. What is there can be read.
    #[error("the drive is worn out and read-only: {0}")]
    WornOut(String),
    /// A command failed in the middle; what was acknowledged before it is kept.
    #[error("the drive has stopped: {0}; open it again")]
    Stopped(String),
    /// A setup that cannot be.
    #[error("bad drive: {0}")]
    BadSetup(String),
    /// The erase identity does not hold: the model has a defect.
    #[error("erase identity violated: {0}; the model has a defect")]
    EraseIdentity(String),
    /// The flash inside.
    #[error(transparent)]
    Flash(#[from] FlashError),
}

impl SsdError {
    /// Whether the drive refused the command for what it is, so that its sender has a defect.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            SsdError::OutOfRange { .. } | SsdError::WrongLength { .. } | SsdError::NoSuchHandle { .. }
        )
    }
}

impl From<DeviceError> for SsdError {
    fn from(error: DeviceError) -> SsdError {
        SsdError::Flash(error.into())
    }
}

impl From<GcError<FlashError>> for SsdError {
    fn from(error: GcError<FlashError>) -> SsdError {
        match error {
            GcError::Media(error) => SsdError::Flash(error),
            GcError::OutOfSpace { .. } => SsdError::WornOut(error.to_string()),
            other => SsdError::BadSetup(other.to_string()),
        }
    }
}
