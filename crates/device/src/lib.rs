//! Flash devices: the NAND model and its zoned presentation.
//!
//! [`ZonedDevice`] is what the file core needs of a device, no more; a zonefs directory or a zoned block device can
//! implement it as well as the model does.

pub mod clock;
pub mod error;
pub mod faults;
mod flushlog;
pub mod geometry;
mod image;
mod model;
pub mod power;
mod random;
pub mod state;
mod store;
mod sys;
pub mod timing;
mod totals;
pub mod wear;
pub mod zoned;

pub use clock::Latencies;
pub use error::DeviceError;
pub use faults::FaultPlan;
pub use geometry::Geometry;
pub use model::ZonedModel;
pub use power::PowerCut;
pub use timing::Timing;
pub use wear::{FlashReport, Wear};
pub use zoned::{DirectRead, ZoneReport, ZoneState, ZonedDevice, ZonedInfo};
