//! The errors of the levels. Addresses are those of the grant, never physical ones.

use crate::address::{GrantBlock, GrantPage};
use crate::level::LevelName;
use weft_core::Nanos;
use weft_core::serve::{ServeError, TooMany};
use weft_device::DeviceError;
use weft_device::nand::{FlashError, Unreadable};

/// A call that was not carried out, or not well.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    /// Refused: the address is not part of the grant.
    #[error(
        "{address} is outside the grant, which has {limit} of the part '{part}', and {given} was given; address what \
         the grant's geometry has"
    )]
    OutsideGrant {
        /// Page that the command addresses.
        address: GrantPage,
        /// The part of it that is too large.
        part: &'static str,
        /// What it is.
        given: u32,
        /// How many there are.
        limit: u32,
    },
    /// Refused: the command is issued more than [`LEAD_MAX`](crate::monitor::LEAD_MAX) after the device's clock.
    #[error(
        "a command issued at {} ns, and the device's clock, which is virtual and not the time of day, stands at {} ns; \
         issue it at most {} s after that (Grant::now)", issued.0, now.0, crate::monitor::LEAD_MAX.as_secs()
    )]
    IssuedAhead {
        /// When it was to be issued.
        issued: Nanos,
        /// The device's clock.
        now: Nanos,
    },
    /// Refused: a buffer that is not as long as it has to be.
    #[error("{address}: {given} bytes of {what}, {wanted} expected; give a buffer of that length")]
    WrongLength {
        /// Page that the command addresses.
        address: GrantPage,
        /// Data or out-of-band bytes.
        what: &'static str,
        /// Bytes given (for a part of a page: where it ends).
        given: usize,
        /// Bytes that it has to have, or the most that it may have.
        wanted: usize,
    },
    /// Refused: pages before this one in the block are not programmed.
    #[error("{address}: pages are programmed in order and page {next} is next; program that one")]
    OutOfOrder {
        /// Page that the command addresses.
        address: GrantPage,
        /// The page that may be programmed.
        next: u32,
    },
    /// Refused: the page was programmed since the last erase.
    #[error("{address} was programmed since the last erase of its block; erase the block first")]
    AlreadyProgrammed {
        /// Page that the command addresses.
        address: GrantPage,
    },
    /// Refused: a read of a page that was not programmed since the last erase.
    #[error("{address} is not programmed: the block has {programmed} programmed pages; read only those")]
    NotProgrammed {
        /// Page that the command addresses.
        address: GrantPage,
        /// Pages programmed since the erase.
        programmed: u32,
    },
    /// Refused: an erase of the block was interrupted, and it has to be erased before it is programmed.
    #[error("{block}: its last erase was interrupted; erase it again before it is programmed")]
    EraseIncomplete {
        /// Block that the command addresses.
        block: GrantBlock,
    },
    /// The block has become bad and its LUN has no spare block left. What was programmed before may still be read.
    #[error(
        "{block} is bad and its LUN has no spare block left; use another block and move what can be read"
    )]
    BlockRetired {
        /// Block that the command addresses.
        block: GrantBlock,
    },
    /// A page that cannot be read: its program was interrupted, or more bits are wrong than the code corrects.
    #[error("{address} cannot be read: {why}; take the data from elsewhere")]
    Unreadable {
        /// Page that the command addresses.
        address: GrantPage,
        /// What is the matter with it.
        why: Unreadable,
        /// When the flash reported it.
        done: Nanos,
    },
    /// Power is gone; open the device and the monitor again.
    #[error("the device has lost power; power it on and open the monitor again")]
    PowerLost,
    /// There is no such grant.
    #[error("no grant is named '{0}'; allocate it, or look at the list of grants")]
    NoSuchGrant(String),
    /// A grant of this name exists already.
    #[error("a grant named '{0}' exists; attach to it, or take another name")]
    GrantExists(String),
    /// The grant is in use.
    #[error("the grant '{0}' is in use; a grant has one user at a time, whose handle threads may share")]
    GrantInUse(String),
    /// More flash was asked for than is free.
    #[error("{wanted} LUNs asked for and {free} are free; ask for less, or release a grant")]
    NoFreeLuns {
        /// LUNs that the request takes.
        wanted: u64,
        /// LUNs that are free.
        free: u32,
    },
    /// Opening: a page cannot be read, and what it held may be newer than all that can be.
    #[error(
        "{page} cannot be read, and it may hold the newest of {of}; nothing was changed: open again, or give up what is there and \
         begin anew"
    )]
    CannotTell {
        /// The address of the page.
        page: String,
        /// What it may hold.
        of: &'static str,
    },
    /// The device holds no monitor.
    #[error("no monitor is on this device: {0}; format it (all data on it is lost)")]
    NotFormatted(String),
    /// Opening: the grant was never used at the level.
    #[error(
        "the grant '{grant}' has no checkpoint of the {wanted}; begin anew at this level, or open it at the level that wrote it"
    )]
    NotUsed {
        /// Name of the grant.
        grant: String,
        /// The level that was to be opened.
        wanted: LevelName,
    },
    /// Opening: what is there has a version that this program does not read. Nothing was changed.
    #[error(
        "{of} has version {found}, and this program reads versions {oldest} to {newest}; use the program that wrote it"
    )]
    UnknownVersion {
        /// What has the version.
        of: &'static str,
        /// The version.
        found: u32,
        /// The oldest one that is read.
        oldest: u32,
        /// The newest one.
        newest: u32,
    },
    /// Opening: the grant holds data of another level, which this one would erase. Nothing was changed.
    #[error(
        "the grant '{grant}' holds data of the {found}, and the {wanted} would erase it; open it at the {found}, or release the \
         grant, which gives its data up, and allocate it anew"
    )]
    OtherLevel {
        /// Name of the grant.
        grant: String,
        /// The level whose data it holds.
        found: LevelName,
        /// The level that was to be opened.
        wanted: LevelName,
    },
    /// The records of a monitor or of a level cannot be written any more: too many of their blocks are bad.
    #[error("no block is left for {0}: too many are bad; move the data to another device")]
    LogFull(&'static str),
    /// The LUN has no free block for a swap.
    #[error("LUN {lun} has no spare block left, and a swap needs one; exclude the LUN from leveling")]
    NoSpare {
        /// The physical number of the LUN.
        lun: u32,
    },
    /// Function level: the block is not mapped.
    #[error("{0} is not mapped; take a block with address_mapper first")]
    NotMapped(GrantBlock),
    /// Function level: so many blocks are mapped that over-provisioning would not be kept.
    #[error(
        "{mapped} blocks are mapped, the most with this over-provisioning is {limit}; trim blocks or lower the over-provisioning"
    )]
    TooManyMapped {
        /// Blocks mapped.
        mapped: u32,
        /// Most blocks that may be mapped.
        limit: u32,
    },
    /// Function level: a channel without a free block.
    #[error("channel {channel} has no free block; trim a block of it or take one of another channel")]
    NoFreeBlock {
        /// The channel of the grant.
        channel: u32,
    },
    /// Function level: no row of blocks is free.
    #[error("no {luns} neighbouring LUNs have a free block in each plane; trim rows, or take a narrower one")]
    NoFreeRow {
        /// LUNs of the row.
        luns: u32,
    },
    /// Function level: a block has no page left to be written.
    #[error("{0} is full; take another block, and trim this one when its data has moved")]
    BlockFull(GrantBlock),
    /// Policy level: a logical page in no range.
    #[error("logical page {page} is in no range; set one up with ftl_ioctl")]
    NoRange {
        /// The logical page.
        page: u64,
    },
    /// Policy level: no room for what is to be written.
    #[error(
        "no room in the range at logical page {start}: {why}; trim data, make the range smaller, or take a larger grant"
    )]
    NoRoom {
        /// First logical page of the range.
        start: u64,
        /// What is the matter.
        why: String,
    },
    /// The server of a monitor cannot be reached, or does not answer.
    #[error("the flash monitor's server: {0}; see that it runs, and connect again")]
    Connection(String),
    /// The socket of a server cannot be made.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A server has as many connections as it takes, of all users or of this one.
    #[error("the flash monitor's server: {0}")]
    TooManyConnections(#[from] TooMany),
    /// Something else that the server of a monitor met; the text is its error.
    #[error("{0}")]
    Remote(String),
    /// An argument that cannot be; the text says what and what would be right.
    #[error("{0}")]
    BadRequest(String),
    /// What the flash holds contradicts itself.
    #[error("damaged: {0}; restore the data from elsewhere")]
    Damaged(String),
    /// The file system of the device's image has no room for what is to be written. Nothing was lost.
    #[error("{0}")]
    HostFull(String),
    /// The device below.
    #[error(transparent)]
    Device(FlashError),
}

impl LevelError {
    /// Whether nothing can be written for want of good blocks, or of room on the host, while everything can be read: no reason to refuse
    /// an opening, because what is there has to be moved elsewhere.
    pub(crate) fn leaves_reads(&self) -> bool {
        matches!(self, LevelError::LogFull(_) | LevelError::HostFull(_))
    }
}

impl From<FlashError> for LevelError {
    fn from(error: FlashError) -> LevelError {
        match error {
            FlashError::PowerLost => LevelError::PowerLost,
            FlashError::Device(full @ DeviceError::HostFull { .. }) => LevelError::HostFull(full.to_string()),
            other => LevelError::Device(other),
        }
    }
}
