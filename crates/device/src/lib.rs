//! Flash devices: the NAND model, its zoned, open-channel, conventional and FDP presentations, and real zoned drives.
//!
//! [`ZonedDevice`] is what the file core needs of a device, no more. [`ZonedModel`] is the model; [`ZonedDrive`] is a
//! real drive behind a zonefs directory or a zoned block device. [`nand::OpenChannel`] is flash with physical addresses,
//! [`ssd::Ssd`] a conventional or FDP drive on top of it.

pub mod clock;
mod drive;
pub mod error;
pub mod faults;
mod flushlog;
pub mod gc;
pub mod geometry;
mod host_queue;
mod image;
mod in_use;
mod model;
pub mod nand;
mod path;
pub mod power;
pub mod ssd;
pub mod state;
mod store;
mod sys;
pub mod timing;
mod totals;
pub mod wear;
mod zbd;
pub mod zoned;
pub mod zonefs;

pub use clock::Latencies;
pub use drive::{SharedCache, ZonedDrive};
pub use error::DeviceError;
pub use faults::FaultPlan;
pub use geometry::Geometry;
pub use host_queue::HostQueue;
pub use model::{AppendLogPlace, ZonedModel};
pub use power::PowerCut;
pub use timing::Timing;
pub use wear::{FlashReport, Wear};
pub use zoned::{DirectRead, ZoneReport, ZoneState, ZonedDevice, ZonedInfo};
