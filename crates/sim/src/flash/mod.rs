//! A modelled device under a workload: a drive that maps by itself, a page map in the host on flash that does not, or a
//! range of the policy level.

mod heat;
mod host_flash;
mod host_map;
mod policy_range;
mod run;
mod target;

pub use heat::{HeatRow, row_of_lun, rows_of_luns, rows_of_zones};
pub(crate) use host_flash::granted;
pub use host_flash::{FunctionFlash, HostFlash, OpenFlash, RawFlash, ZonedFlash};
pub use host_map::{HostMap, MapChoice};
pub use policy_range::{PolicyRange, RangeChoice};
pub use run::{Phase, Plan, Run};
pub use target::{FdpReport, Target, Totals};

use weft_device::DeviceError;
use weft_device::gc::GcError;
use weft_device::nand::FlashError;
use weft_device::ssd::SsdError;
use weft_flash::LevelError;

/// Why a simulation cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The zoned device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Open-channel flash refused.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// The flash monitor or a level on it refused.
    #[error(transparent)]
    Level(#[from] LevelError),
    /// The drive refused or cannot be made.
    #[error(transparent)]
    Drive(#[from] SsdError),
    /// The page map in the host cannot be made, or has no room.
    #[error("{0}")]
    Map(String),
    /// The policy level cannot hold a range in so many units.
    #[error("the policy level has {0} units of flash, too few for a range")]
    TooFewUnits(u32),
    /// The counters of a map do not add up.
    #[error("erase identity violated: {0}")]
    Identity(String),
}

impl From<GcError<SimError>> for SimError {
    fn from(error: GcError<SimError>) -> SimError {
        match error {
            GcError::Media(error) => error,
            other => SimError::Map(other.to_string()),
        }
    }
}
