//! A page map in the host, on a zoned device or on open-channel flash: what a log-structured program does there, as
//! simply as can be. It gives these presentations the same workloads that drives with a map of their own get.
//!
//! On a zoned device a page is a block of 4 KiB and a block of the map is a zone. On open-channel flash they are a flash
//! page and an erase block; several erase blocks are written in turns, so that LUNs work at the same time. A write of a
//! part of a page writes the page.

use super::target::Totals;
use crate::error::CliError;
use weft_core::hist::Summary;
use weft_core::{BLOCK_BYTES, Nanos, Tag, ZoneId};
use weft_device::gc::{GcError, MapperSetup, Media, Outcome, PageMapper, VictimPolicy};
use weft_device::nand::{FlashError, FlashSetup, FlashShape, Keep, OpenChannel, PageAddr};
use weft_device::workload::{Action, Request};
use weft_device::{Geometry, ZonedDevice, ZonedModel};

/// Most erase blocks of open-channel flash that new data is written to in turns.
const FRONTS_MAX: u64 = 64;

/// How a map in the host works.
pub struct MapChoice {
    /// (flash - capacity) / capacity.
    pub over_provisioning: f64,
    /// Which block is cleaned.
    pub victim: VictimPolicy,
    /// Whether moved data shares the open block of new data.
    pub shared: bool,
    /// Free blocks below which the map cleans.
    pub reserve: u32,
    /// What random choices are drawn from.
    pub seed: u64,
}

/// Why flash below the map failed.
#[derive(Debug, thiserror::Error)]
enum Below {
    #[error(transparent)]
    Zoned(#[from] weft_device::DeviceError),
    #[error(transparent)]
    Open(#[from] FlashError),
}

impl From<GcError<Below>> for CliError {
    fn from(error: GcError<Below>) -> CliError {
        match error {
            GcError::Media(Below::Zoned(error)) => error.into(),
            GcError::Media(Below::Open(error)) => error.into(),
            other => CliError::said(
                other.to_string(),
                "give a larger --size, a larger --op or a smaller --reserve",
            ),
        }
    }
}

/// What lies below the map.
enum Flash {
    Zoned { device: Box<ZonedModel>, buffer: Vec<u8> },
    Open(Box<OpenChannel>),
}

struct Host {
    flash: Flash,
    slots_per_block: u32,
    /// When the request under way was issued, and when it is complete.
    now: Nanos,
    done: Nanos,
}

/// A mapped device.
pub struct HostMap {
    map: PageMapper,
    host: Host,
    /// Blocks of 4 KiB of a page.
    page_blocks: u64,
    fronts: usize,
    next_front: usize,
    host_bytes: u64,
}

impl HostMap {
    /// A map on a zoned device in memory.
    pub fn zoned(geometry: &Geometry, choice: &MapChoice) -> Result<HostMap, CliError> {
        let device = ZonedModel::memory(geometry)?;
        let info = device.info();
        let flash = Flash::Zoned { device: Box::new(device), buffer: vec![0; BLOCK_BYTES] };
        HostMap::new(flash, info.zones, info.zone_capacity, 1, 1, choice)
    }

    /// A map on open-channel flash in memory.
    pub fn open_channel(geometry: &Geometry, choice: &MapChoice) -> Result<HostMap, CliError> {
        let device = OpenChannel::memory(&FlashSetup::new(geometry.clone()).keeping(Keep::Nothing))?;
        let shape = device.shape();
        let blocks = u32::try_from(shape.blocks()).unwrap_or(u32::MAX);
        // Open blocks are not room for data, so they are kept few.
        let fronts = u64::from(shape.luns()).min(shape.blocks() / 64).clamp(1, FRONTS_MAX) as usize;
        let page_blocks = u64::from(shape.page_bytes) / BLOCK_BYTES as u64;
        let flash = Flash::Open(Box::new(device));
        HostMap::new(flash, blocks, shape.pages_per_block, fronts, page_blocks, choice)
    }

    fn new(
        flash: Flash,
        blocks: u32,
        slots_per_block: u32,
        fronts: usize,
        page_blocks: u64,
        choice: &MapChoice,
    ) -> Result<HostMap, CliError> {
        let slots = u64::from(blocks) * u64::from(slots_per_block);
        let setup = MapperSetup {
            blocks,
            slots_per_block,
            pages: (slots as f64 / (1.0 + choice.over_provisioning)) as u32,
            reserve_blocks: choice.reserve,
            victim: choice.victim,
            relocation: match choice.shared {
                true => (0..fronts).collect(),
                false => vec![fronts; fronts + 1],
            },
            seed: choice.seed,
        };
        let map = PageMapper::new::<Below>(setup)?;
        let host = Host { flash, slots_per_block, now: Nanos(0), done: Nanos(0) };
        Ok(HostMap { map, host, page_blocks, fronts, next_front: 0, host_bytes: 0 })
    }

    pub fn capacity_blocks(&self) -> u64 {
        u64::from(self.map.setup().pages) * self.page_blocks
    }

    pub fn alpha(&self) -> f64 {
        self.map.setup().alpha()
    }

    pub fn blocks_per_page(&self) -> u64 {
        self.page_blocks
    }

    pub fn request(&mut self, issued: Nanos, request: &Request) -> Result<Nanos, CliError> {
        let end = request.block + u64::from(request.blocks);
        (self.host.now, self.host.done) = (issued, issued);
        let pages = match request.action {
            // A page is let go only as a whole.
            Action::Deallocate => request.block.div_ceil(self.page_blocks)..end / self.page_blocks,
            _ => request.block / self.page_blocks..end.div_ceil(self.page_blocks),
        };
        if request.action == Action::Write {
            self.host_bytes += u64::from(request.blocks) * BLOCK_BYTES as u64;
        }
        for page in pages {
            let page = page as u32;
            match request.action {
                Action::Read => {
                    if let Some(slot) = self.map.slot_of(page) {
                        self.host.read(slot, &mut [0; BLOCK_BYTES]).map_err(GcError::Media)?;
                    }
                }
                Action::Write => {
                    self.map.write(&mut self.host, page, self.next_front)?;
                    self.next_front = (self.next_front + 1) % self.fronts;
                }
                Action::Deallocate => drop(self.map.trim::<Below>(page)?),
            }
        }
        Ok(self.host.done)
    }

    pub fn totals(&self) -> Totals {
        let page_bytes = self.page_blocks * BLOCK_BYTES as u64;
        let moved_bytes = self.map.counts().relocated * page_bytes;
        match &self.host.flash {
            Flash::Zoned { device, .. } => {
                let counters = device.counters();
                Totals {
                    host_bytes: self.host_bytes,
                    media_bytes: counters.media_bytes,
                    moved_bytes,
                    erases: counters.erases,
                    flash_operations: counters.media_bytes / u64::from(device.geometry().page_bytes)
                        + counters.reads
                        + counters.erases,
                }
            }
            Flash::Open(device) => {
                let counters = device.counters();
                Totals {
                    host_bytes: self.host_bytes,
                    media_bytes: counters.pages_programmed * page_bytes,
                    moved_bytes,
                    erases: counters.blocks_erased,
                    flash_operations: counters.pages_programmed
                        + counters.pages_read
                        + counters.blocks_erased,
                }
            }
        }
    }

    pub fn erases(&self) -> Result<Vec<u32>, CliError> {
        match &self.host.flash {
            Flash::Zoned { device, .. } => Ok(device.flash_report().erases_by_zone),
            Flash::Open(device) => {
                let mut erases = Vec::new();
                for lun in 0..device.shape().luns() {
                    erases.extend(
                        device.lun_info(device.shape().lun_at(lun))?.iter().map(|block| block.erases),
                    );
                }
                Ok(erases)
            }
        }
    }

    /// The zoned device has a clock and a queue of its own.
    pub fn own_latencies(&self) -> Option<(Summary, Summary)> {
        match &self.host.flash {
            Flash::Zoned { device, .. } => Some((device.latencies().read, device.latencies().write)),
            Flash::Open(_) => None,
        }
    }

    pub fn verify(&self) -> Result<(), CliError> {
        self.map.verify().map_err(|what| CliError::said(format!("erase identity violated: {what}"), ""))?;
        match &self.host.flash {
            Flash::Zoned { device, .. } => Ok(device.verify_identity()?),
            Flash::Open(device) => Ok(device.verify_identity()?),
        }
    }
}

impl Host {
    fn zone(&self, slot: u32) -> (ZoneId, u32) {
        (ZoneId(slot / self.slots_per_block), slot % self.slots_per_block)
    }

    fn page(&self, shape: FlashShape, slot: u32) -> PageAddr {
        page_of(shape, self.slots_per_block, slot)
    }

    /// Reads a page; the request under way waits for it.
    fn read(&mut self, slot: u32, out: &mut [u8]) -> Result<Nanos, Below> {
        let (zone, at) = self.zone(slot);
        let done = match &self.flash {
            Flash::Zoned { device, .. } => {
                device.read(zone, at, out)?;
                device.now()
            }
            Flash::Open(device) => {
                device.touch(self.now, self.page(device.shape(), slot), device.shape().page_bytes)?.done
            }
        };
        self.done = self.done.max(done);
        Ok(done)
    }
}

/// Where a slot of open-channel flash lies. Blocks of neighbouring numbers are on different LUNs.
fn page_of(shape: FlashShape, slots_per_block: u32, slot: u32) -> PageAddr {
    let (block, page) = (slot / slots_per_block, slot % slots_per_block);
    let (lun, within) = (block % shape.luns(), block / shape.luns());
    shape.lun_at(lun).block(within % shape.planes, within / shape.planes).page(page)
}

impl Media for Host {
    type Error = Below;

    fn program(&mut self, to: u32, _page: u32, from: Option<u32>, _front: usize) -> Result<Outcome, Below> {
        let (zone, at) = self.zone(to);
        let source = from.map(|slot| self.zone(slot));
        let (now, slots_per_block) = (self.now, self.slots_per_block);
        match &mut self.flash {
            Flash::Zoned { device, buffer } => {
                let tag = match source {
                    Some((zone, at)) => {
                        device.read(zone, at, buffer)?;
                        Tag::default().relocated()
                    }
                    None => Tag::default(),
                };
                device.write(zone, at, buffer, &tag)?;
                self.done = self.done.max(device.now());
            }
            Flash::Open(device) => {
                let shape = device.shape();
                let issued = match from {
                    Some(slot) => {
                        device.touch(now, page_of(shape, slots_per_block, slot), shape.page_bytes)?.done
                    }
                    None => now,
                };
                let done = device.program(issued, page_of(shape, slots_per_block, to), &[], &[])?;
                if from.is_none() {
                    self.done = self.done.max(done.done);
                }
            }
        }
        Ok(Outcome::Done)
    }

    fn erase(&mut self, block: u32) -> Result<Outcome, Below> {
        match &self.flash {
            Flash::Zoned { device, .. } => device.reset(ZoneId(block))?,
            Flash::Open(device) => {
                let page = self.page(device.shape(), block * self.slots_per_block);
                device.erase(self.now, page.block)?;
            }
        }
        Ok(Outcome::Done)
    }
}
