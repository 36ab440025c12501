//! Flash at three levels: an application chooses how much of it to manage itself.
//!
//! ```text
//!  policy level      logical pages; mapping and cleaning chosen per range     [policy::PolicyLevel]
//!  function level    blocks; the library allocates, erases and levels wear    [function::FunctionLevel]
//!  raw level         page read, page write, block erase                       [raw::RawLevel]
//!  ------------------------------------------------------------------------
//!  flash monitor     LUNs for each application, isolation, bad blocks, wear   [monitor::Monitor]
//!  device            open channel: physical addresses                         [weft_device::nand]
//! ```
//!
//! The idea and the names of the calls are those of Prism-SSD (Shen, Chen, Wang, Shao: "Prism-SSD: A Flexible Storage
//! Interface for SSDs", ICDCS 2019). `docs/how-to/choose-your-level.md` helps to choose.

mod address;
mod backend;
mod error;
pub mod function;
mod grant;
mod level;
mod log;
pub mod monitor;
mod oob;
pub mod policy;
pub mod raw;
pub mod share;

pub use address::{GrantBlock, GrantGeometry, GrantPage};
pub use backend::Backend;
pub use error::LevelError;
pub use function::FunctionLevel;
pub use grant::Grant;
pub use level::LevelName;
pub use monitor::{GrantRequest, Monitor, MonitorSetup};
pub use oob::{MONITOR_OOB_BYTES, TAG_OOB_BYTES, tag_in};
pub use policy::{PolicyLevel, PolicySetup, RangeMapping, RangePolicy};
pub use raw::RawLevel;
