//! Flash below a page map in the host: a zoned device, open-channel flash, and a grant at the raw or the function level.

mod function;
mod open_channel;
mod raw;
mod zoned;

pub use function::FunctionFlash;
pub use open_channel::OpenFlash;
pub use raw::RawFlash;
pub use zoned::ZonedFlash;

use super::SimError;
use super::heat::{self, HeatRow};
use super::target::Totals;
use std::ops::Range;
use std::sync::Arc;
use weft_core::Nanos;
use weft_core::hist::Summary;
use weft_device::nand::{Done, FlashSetup, Keep, OpenChannel};
use weft_device::{Geometry, ZonedDevice, ZonedModel};
use weft_flash::{Grant, GrantGeometry, GrantRequest, LevelError, Monitor, MonitorSetup};

/// Units that a map has at least, as long as there are blocks: wider units keep more LUNs at work, and fewer leave less room
/// beside those that are open or in reserve.
const UNITS_WANTED: u32 = 64;

/// A page of the map: its block, as the map numbers them, and its place there.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub block: u32,
    pub page: u32,
}

/// The size of the flash that the map gets, and its shape.
#[derive(Clone, Copy, Debug)]
pub struct MapSize {
    pub blocks: u32,
    pub pages_per_block: u32,
    pub page_bytes: u64,
    /// LUNs of a unit.
    pub luns_per_unit: u32,
    /// Blocks of a unit on each of its LUNs: their pages of one number are programmed together.
    pub planes: u32,
}

impl MapSize {
    /// Blocks of flash on so many LUNs.
    fn on_luns(blocks: u64, luns: u32, planes: u32, pages_per_block: u32, page_bytes: u32) -> MapSize {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        // As many LUNs for each unit: units of neighbouring numbers lie side by side.
        let fits = |width: &u32| luns.is_multiple_of(*width) && blocks / (width * planes) >= UNITS_WANTED;
        let luns_per_unit = (1..=luns).rev().find(fits).unwrap_or(1);
        MapSize { blocks, pages_per_block, page_bytes: u64::from(page_bytes), luns_per_unit, planes }
    }

    /// Blocks that are filled and cleaned as one, page by page in turns: new data and copies alike go round their LUNs.
    pub fn blocks_per_unit(&self) -> u32 {
        self.luns_per_unit * self.planes
    }

    /// Where a block lies when units go round so many LUNs: the number of its LUN, and its number there, across the planes.
    fn place(&self, block: u32, luns: u32) -> (u32, u32) {
        let (unit, part) = (block / self.blocks_per_unit(), block % self.blocks_per_unit());
        let rows = luns / self.luns_per_unit;
        let lun = unit % rows * self.luns_per_unit + part / self.planes;
        (lun, unit / rows * self.planes + part % self.planes)
    }
}

/// The device below a map, or below a level.
pub enum Device<'a> {
    Open(&'a OpenChannel),
    Zoned(&'a ZonedModel),
}

impl Device<'_> {
    /// What it has counted, with what its user has.
    pub fn totals(&self, host_bytes: u64, moved_bytes: u64) -> Totals {
        let (media_bytes, erases, flash_operations) = match self {
            Device::Open(device) => {
                let flash = device.counters();
                let bytes = flash.pages_programmed * u64::from(device.shape().page_bytes);
                (bytes, flash.blocks_erased, flash.pages_programmed + flash.pages_read + flash.blocks_erased)
            }
            Device::Zoned(device) => {
                let counters = device.counters();
                let pages = counters.media_bytes / u64::from(device.geometry().page_bytes);
                (counters.media_bytes, counters.erases, pages + counters.reads + counters.erases)
            }
        };
        Totals { host_bytes, media_bytes, moved_bytes, erases, flash_operations }
    }

    /// Erases of each block, or of each zone.
    pub fn heat(&self) -> Result<Vec<HeatRow>, SimError> {
        match self {
            Device::Open(device) => Ok(heat::rows_of_luns(device, |_| None)?),
            Device::Zoned(device) => Ok(heat::rows_of_zones(&device.flash_report().erases_by_zone)),
        }
    }

    /// Latencies (reads, writes) of a device with a clock and a queue of its own: requests do not show them.
    pub fn own_latencies(&self) -> Option<(Summary, Summary)> {
        match self {
            Device::Open(_) => None,
            Device::Zoned(device) => Some((device.latencies().read, device.latencies().write)),
        }
    }

    /// Checks the erase identity.
    pub fn verify(&self) -> Result<(), SimError> {
        match self {
            Device::Open(device) => Ok(device.verify_identity()?),
            Device::Zoned(device) => Ok(device.verify_identity()?),
        }
    }
}

/// Flash that a page map can stand on.
pub trait HostFlash {
    /// How much of everything there is.
    fn room(&self) -> MapSize;

    /// Reads a page; returns when it is in the host.
    fn read(&mut self, issued: Nanos, slot: Slot) -> Result<Nanos, SimError>;

    /// Whether several pages may be read before the first is programmed elsewhere.
    fn reads_ahead(&self) -> bool {
        true
    }

    /// Programs pages of one number in neighbouring blocks, one of each plane of a LUN, with new data or, of flash that does
    /// not read ahead, with what was read last; returns when that is over.
    fn program(&mut self, issued: Nanos, slots: &[Slot], copy: bool) -> Result<Nanos, SimError>;

    /// Erases the blocks of a unit.
    fn erase(&mut self, issued: Nanos, blocks: Range<u32>) -> Result<(), SimError>;

    /// The device below.
    fn device(&self) -> Device<'_>;
}

/// A device under a monitor, all of it granted to one application. Data is not kept, out-of-band bytes are.
pub fn granted(geometry: &Geometry) -> Result<(Arc<OpenChannel>, Grant), LevelError> {
    let setup = FlashSetup::new(geometry.clone()).keeping(Keep::Oob);
    let device = Arc::new(OpenChannel::memory(&setup)?);
    let monitor = Monitor::format(device.clone(), MonitorSetup::default())?;
    let bytes = u64::from(monitor.free_luns()?) * monitor.lun_bytes();
    let request = GrantRequest { name: "simulated".into(), bytes, over_provisioning_permille: 0 };
    Ok((device, monitor.allocate(&request)?))
}

/// What a map gets of a grant.
fn granted_room(geometry: &GrantGeometry) -> MapSize {
    let (blocks, luns) = (u64::from(geometry.blocks()), geometry.luns());
    MapSize::on_luns(blocks, luns, geometry.planes, geometry.pages_per_block, geometry.page_bytes)
}

/// When all of a vectored command is over.
fn ended(results: Vec<Result<Done, LevelError>>) -> Result<Nanos, SimError> {
    let mut ends = results.into_iter().map(|result| Ok(result?.done));
    ends.try_fold(Nanos(0), |latest, end: Result<Nanos, LevelError>| Ok(latest.max(end?)))
}
