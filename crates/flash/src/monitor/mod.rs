//! The flash monitor: one device, several applications, each with LUNs of its own.
//!
//! ```text
//!  grant "cache"   channel 0 LUN 0 | channel 1 LUN 0 | channel 2 LUN 0 ...     what the application addresses
//!                         |  table of places, block by block
//!  device          LUN 5: [log][ mapped blocks ........... ][spares]           what is there
//! ```
//!
//! - **Allotment**: an application asks for bytes and over-provisioning and gets whole LUNs, round the channels.
//! - **Isolation**: an address outside the grant is [`LevelError::OutsideGrant`]; nothing of another grant can be named.
//! - **Bad blocks** are hidden: each LUN keeps spares, and a block that fails is replaced by one, with what it held.
//! - **Global wear leveling** exchanges the contents of a worn, busy LUN and a fresh, quiet one, block by block
//!   ([`Monitor::level_wear`]). FlashBlox (Huang et al., FAST 2017) proposes the policy; the Prism-SSD paper (ICDCS 2019)
//!   plans such a shuffle and leaves it out.
//! - **Durable**: grants, places and swaps under way are in a log on the device itself
//!   ([format](../../../docs/formats/flash-levels.md)); after a power cut [`Monitor::open`] finishes what was begun.
//!
//! **Locks.** Each granted LUN has its table of places under a lock of its own, held shared by the commands of the
//! application and exclusively while a block of it is replaced or exchanged. The log and the master copy of all tables
//! are under one lock, that of control. Order: tables, by grant and position; then control. A wear leveling run holds a
//! third lock from before these.

mod attach;
mod clock;
mod control;
mod copy;
mod grant;
mod layout;
mod level;
mod log;
mod records;
mod swap;

pub use clock::LEAD_MAX;
pub use grant::BlockLook;
pub(crate) use grant::LocalGrant;
pub(crate) use layout::LOG_NAME;
pub use level::{LevelPolicy, LevelReport, LunWear, Spread};

use crate::backend::Backend;
use crate::error::LevelError;
use clock::Clock;
use control::Control;
use copy::Moved;
use layout::Layout;
use level::LevelMemory;
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::Arc;
use weft_core::Nanos;

/// How a device is prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MonitorSetup {
    /// Blocks of each LUN that take the place of bad ones, factory bad blocks included. At least 2: one is needed to
    /// exchange blocks. 0 stands for the default, a fiftieth of the LUN's blocks and at least 2.
    pub spares_per_lun: u32,
}

/// What an application asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantRequest {
    /// The name that it attaches by.
    pub name: String,
    /// Bytes of data.
    pub bytes: u64,
    /// Flash on top of that, in thousandths of the bytes.
    pub over_provisioning_permille: u32,
}

/// A grant as the monitor lists it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct GrantInfo {
    /// Its name.
    pub name: String,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Over-provisioning that was asked for, in thousandths.
    pub over_provisioning_permille: u32,
    /// The physical numbers of its LUNs.
    pub luns: Vec<u32>,
    /// Whether somebody is attached.
    pub in_use: bool,
}

/// The monitor of a device.
#[derive(Debug)]
pub struct Monitor {
    backend: Arc<dyn Backend>,
    layout: Layout,
    control: Mutex<Control>,
    leveling: Mutex<LevelMemory>,
    clock: Clock,
}

impl Monitor {
    /// Prepares a device. What is on it is lost as blocks are taken into use; what a monitor kept on it before is
    /// forgotten at once.
    ///
    /// Refused with [`LevelError::BadRequest`] when the device is too small, pairs pages (an interrupted program could
    /// then destroy records written long before), or has too few out-of-band bytes.
    pub fn format(backend: Arc<dyn Backend>, setup: MonitorSetup) -> Result<Arc<Monitor>, LevelError> {
        let layout = Layout::new(&*backend, setup.spares_per_lun)?;
        let control = Control::create(&*backend, &layout)?;
        Monitor::start(backend, layout, control)
    }

    /// Opens the monitor that is on a device, and finishes a swap that was under way, if there is room for it. It opens also when nothing
    /// can be written any more, for want of good blocks or of room on the host: what is there can be read, and moved elsewhere.
    ///
    /// [`LevelError::NotFormatted`] when there is none.
    pub fn open(backend: Arc<dyn Backend>) -> Result<Arc<Monitor>, LevelError> {
        let (layout, control) = Control::recover(&*backend)?;
        let monitor = Monitor::start(backend, layout, control)?;
        match monitor.finish_swap(&mut Nanos(0), &mut Moved::default()) {
            // Each block has its place, on one LUN or the other: the tenants get what they have.
            Err(error) if error.leaves_reads() => tracing::warn!("a swap of LUNs waits: {error}"),
            other => drop(other?),
        }
        Ok(monitor)
    }

    fn start(
        backend: Arc<dyn Backend>,
        layout: Layout,
        control: Control,
    ) -> Result<Arc<Monitor>, LevelError> {
        let memory = LevelMemory::new(&*backend, &layout)?;
        let (control, leveling) = (Mutex::new(control), Mutex::new(memory));
        Ok(Arc::new(Monitor { backend, layout, control, leveling, clock: Clock::default() }))
    }

    /// The grants on a device, without opening its monitor: nothing is written.
    ///
    /// [`LevelError::NotFormatted`] when there is no monitor.
    pub fn look(backend: &dyn Backend) -> Result<Vec<GrantInfo>, LevelError> {
        Ok(Control::recover(backend)?.1.list())
    }

    /// LUNs that are free, and good enough for a grant.
    pub fn free_luns(&self) -> Result<u32, LevelError> {
        Ok(self.control.lock().free_luns(&*self.backend, &self.layout)?.len() as u32)
    }

    /// Bytes that a LUN gives to a grant.
    pub fn lun_bytes(&self) -> u64 {
        u64::from(self.layout.blocks_granted) * self.layout.shape.block_bytes()
    }

    /// Every grant, in the order of allocation.
    pub fn grants(&self) -> Vec<GrantInfo> {
        self.control.lock().list()
    }
}
