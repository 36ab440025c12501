//! The errors of flash: refused commands and failures.

use super::address::{BlockAddr, PageAddr};
use crate::DeviceError;
use serde::{Deserialize, Serialize};
use weft_core::Nanos;

/// A command that the flash did not carry out, or not well.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// Refused: the device has no such channel, LUN, plane, block or page.
    #[error(
        "{address}: the device has {limit} of the part '{part}' (0 to {}), and {given} was given; address what the \
         geometry has", limit - 1
    )]
    NoSuchAddress {
        /// Page that the command addresses.
        address: PageAddr,
        /// The part of it that is too large.
        part: &'static str,
        /// What it is.
        given: u32,
        /// How many there are.
        limit: u32,
    },
    /// Refused: a buffer that is not as long as it has to be.
    #[error("{address}: {given} bytes of {what}, {wanted} expected; give a buffer of that length")]
    WrongLength {
        /// Page that the command addresses.
        address: PageAddr,
        /// Data or out-of-band bytes.
        what: &'static str,
        /// Bytes given (for a part of a page: where it ends).
        given: usize,
        /// Bytes that it has to have, or the most that it may have.
        wanted: usize,
    },
    /// Refused: the block is bad. One whose program failed can still be read.
    #[error("{block} is bad ({state}): it takes no {command}; use another block and move what can be read")]
    BadBlock {
        /// Block that the command addresses.
        block: BlockAddr,
        /// Why it is bad.
        state: &'static str,
        /// What was asked for.
        command: &'static str,
    },
    /// Refused: an erase of the block was interrupted, and it has to be erased before it is programmed.
    #[error("{block}: its last erase was interrupted; erase it again before it is programmed")]
    EraseIncomplete {
        /// Block that the command addresses.
        block: BlockAddr,
    },
    /// Refused: pages before this one in the block are not programmed.
    #[error("{address}: pages are programmed in order and page {next} is next; program that one")]
    OutOfOrder {
        /// Page that the command addresses.
        address: PageAddr,
        /// The page that may be programmed.
        next: u32,
    },
    /// Refused: the page was programmed since the last erase.
    #[error("{address} was programmed since the last erase of its block; erase the block first")]
    AlreadyProgrammed {
        /// Page that the command addresses.
        address: PageAddr,
    },
    /// Refused: a read of a page that was not programmed since the last erase.
    #[error("{address} is not programmed: the block has {programmed} programmed pages; read only those")]
    NotProgrammed {
        /// Page that the command addresses.
        address: PageAddr,
        /// Pages programmed since the erase.
        programmed: u32,
    },
    /// Refused: addresses that cannot work together in one operation on several planes.
    #[error("{first} and {other} cannot be worked on at once: {why}; issue them one after the other")]
    PlaneMismatch {
        /// The first address.
        first: PageAddr,
        /// The one that does not go with it.
        other: PageAddr,
        /// Rule that the two break together.
        why: &'static str,
    },
    /// Refused: a command with no addresses or with too many.
    #[error("a command with {given} addresses; give 1 to {most}")]
    VectorLength {
        /// Addresses given.
        given: usize,
        /// Most addresses of a command.
        most: usize,
    },
    /// A program failed. The block has become bad: its other pages can be read, this one cannot.
    #[error(
        "{address}: the program failed and the block is bad now; write elsewhere and move the block's pages"
    )]
    ProgramFailed {
        /// Page that the command addresses.
        address: PageAddr,
        /// When the flash reported it.
        done: Nanos,
    },
    /// An erase failed, or the block has had all erases that it stands. The block has become bad.
    #[error("{block}: the erase failed after {erases} erases and the block is bad now; take another one")]
    EraseFailed {
        /// Block that the command addresses.
        block: BlockAddr,
        /// Erases before this one.
        erases: u32,
        /// Whether it was the endurance limit.
        worn_out: bool,
        /// When the flash reported it.
        done: Nanos,
    },
    /// A page that cannot be read: more bits are wrong than the code corrects, or its program or erase was interrupted.
    #[error("{address} cannot be read: {why}; take the data from elsewhere")]
    Uncorrectable {
        /// Page that the command addresses.
        address: PageAddr,
        /// What is the matter with it.
        why: Unreadable,
        /// When the flash reported it.
        done: Nanos,
    },
    /// Power is gone; nothing works until [`power_on`](super::OpenChannel::power_on) or until the image is opened again.
    #[error("the device has lost power; power it on or open it again")]
    PowerLost,
    /// The erase identity does not hold: the model has a defect.
    #[error("erase identity violated in LUN {lun}: {what}: {left} is not {right}; the model has a defect")]
    EraseIdentity {
        /// The number of the LUN.
        lun: u32,
        /// What was compared.
        what: &'static str,
        /// Counted by command.
        left: u64,
        /// Told from the state of the blocks.
        right: u64,
    },
    /// A setup that cannot be, or an image that cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What is the matter with a page that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Unreadable {
    /// Its program was interrupted or failed, or that of the page that shares its cells was.
    #[error("its program failed or was interrupted, or that of the page that shares its cells was")]
    Torn,
    /// The erase of its block was interrupted.
    #[error("the erase of its block was interrupted")]
    HalfErased,
    /// Wear, age, or reads of its neighbours have changed more bits than its code corrects.
    #[error("more bits are wrong than the code corrects")]
    Bits,
    /// The image file has something else in its place.
    #[error("its content in the image does not match its checksum")]
    Image,
    /// A test asked for the failure ([`Fault::Read`](super::Fault::Read)).
    #[error("the failure was asked for")]
    AskedFor,
    /// It could not be read when its block was moved; what it held is gone.
    #[error("it could not be read when it was moved")]
    Moved,
}

impl Unreadable {
    /// Whether the page never became whole: nobody was told that its program is done. Otherwise it held something.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Unreadable::Torn | Unreadable::HalfErased)
    }
}

/// The rules of flash, by which refusals are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// [`FlashError::NoSuchAddress`].
    NoSuchAddress,
    /// [`FlashError::WrongLength`].
    WrongLength,
    /// [`FlashError::BadBlock`].
    BadBlock,
    /// [`FlashError::EraseIncomplete`].
    EraseIncomplete,
    /// [`FlashError::OutOfOrder`].
    OutOfOrder,
    /// [`FlashError::AlreadyProgrammed`].
    AlreadyProgrammed,
    /// [`FlashError::NotProgrammed`].
    NotProgrammed,
    /// [`FlashError::PlaneMismatch`].
    PlaneMismatch,
    /// [`FlashError::VectorLength`].
    VectorLength,
}

impl FlashError {
    /// The same error, if it is one of the host, for another address of the command that it ended; `None` when flash or power
    /// failed, or the command was refused.
    pub fn of_host(&self) -> Option<FlashError> {
        match self {
            FlashError::Device(error) => error.of_host().map(FlashError::Device),
            _ => None,
        }
    }

    /// Which rule the command broke; `None` when flash, power or the host failed.
    pub fn refusal(&self) -> Option<Refusal> {
        Some(match self {
            FlashError::NoSuchAddress { .. } => Refusal::NoSuchAddress,
            FlashError::WrongLength { .. } => Refusal::WrongLength,
            FlashError::BadBlock { .. } => Refusal::BadBlock,
            FlashError::EraseIncomplete { .. } => Refusal::EraseIncomplete,
            FlashError::OutOfOrder { .. } => Refusal::OutOfOrder,
            FlashError::AlreadyProgrammed { .. } => Refusal::AlreadyProgrammed,
            FlashError::NotProgrammed { .. } => Refusal::NotProgrammed,
            FlashError::PlaneMismatch { .. } => Refusal::PlaneMismatch,
            FlashError::VectorLength { .. } => Refusal::VectorLength,
            FlashError::ProgramFailed { .. }
            | FlashError::EraseFailed { .. }
            | FlashError::Uncorrectable { .. }
            | FlashError::PowerLost
            | FlashError::EraseIdentity { .. }
            | FlashError::Device(_) => return None,
        })
    }
}
