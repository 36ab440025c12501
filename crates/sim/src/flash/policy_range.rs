//! The policy level under a workload: one logical range over a grant that is the whole device.

use super::SimError;
use super::heat::HeatRow;
use super::host_flash::{Device, granted};
use super::target::{Target, Totals};
use crate::block::{Action, Request};
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, Nanos, StreamId, Tag};
use weft_device::Geometry;
use weft_device::gc::VictimPolicy;
use weft_device::nand::OpenChannel;
use weft_flash::{PolicyLevel, PolicySetup, RangeMapping, RangePolicy};

/// How the range is kept.
pub struct RangeChoice {
    /// How pages are mapped.
    pub mapping: RangeMapping,
    /// Which unit is cleaned.
    pub gc: VictimPolicy,
    /// Flash on top of the pages, in thousandths of them.
    pub over_provisioning_permille: u32,
    /// Kinds of data that are kept apart.
    pub streams: u32,
    /// LUNs of a unit; 0 = the level's choice.
    pub stripe: u32,
}

/// A range of the policy level.
pub struct PolicyRange {
    device: Arc<OpenChannel>,
    level: PolicyLevel,
    pages: u64,
    page_bytes: usize,
    /// What a request reads or writes.
    data: Vec<u8>,
    host_bytes: u64,
}

impl PolicyRange {
    /// A range that takes all units of a device in memory.
    pub fn new(geometry: &Geometry, choice: &RangeChoice) -> Result<PolicyRange, SimError> {
        let (device, grant) = granted(geometry)?;
        let setup = PolicySetup { stripe: choice.stripe, streams: choice.streams, checkpoint_pages: 0 };
        let level = PolicyLevel::create(grant, setup)?;
        let mut policy = RangePolicy {
            start: 0,
            pages: 0,
            mapping: choice.mapping,
            gc: choice.gc,
            over_provisioning_permille: choice.over_provisioning_permille,
        };
        policy.pages = level.pages_max(&policy);
        if policy.pages == 0 {
            return Err(SimError::TooFewUnits(level.free_units()));
        }
        level.ftl_ioctl(&policy)?;
        let page_bytes = level.geometry().page_bytes as usize;
        Ok(PolicyRange { device, level, pages: policy.pages, page_bytes, data: Vec::new(), host_bytes: 0 })
    }
}

/// The policy level.
impl Target for PolicyRange {
    fn blocks_per_page(&self) -> u64 {
        (self.page_bytes / BLOCK_BYTES) as u64
    }

    fn capacity_blocks(&self) -> u64 {
        self.pages * self.blocks_per_page()
    }

    /// `None` of a block-mapped range.
    fn alpha(&self) -> Option<f64> {
        self.level.alpha(0)
    }

    fn request(&mut self, issued: Nanos, request: &Request) -> Result<Nanos, SimError> {
        let pages = request.pages(self.blocks_per_page());
        let mut done = issued;
        match request.action {
            Action::Read | Action::Write => {
                let bytes = (pages.end - pages.start) as usize * self.page_bytes;
                self.data.resize(bytes.max(self.data.len()), 0);
                done = if request.action == Action::Read {
                    self.level.ftl_read(issued, pages.start, &mut self.data[..bytes])?.done
                } else {
                    self.host_bytes += u64::from(request.blocks) * BLOCK_BYTES as u64;
                    let tag = Tag { stream: StreamId(request.stream), ..Tag::default() };
                    self.level.ftl_write(issued, pages.start, &self.data[..bytes], tag)?.done
                };
            }
            Action::Deallocate if pages.is_empty() => {}
            Action::Deallocate => done = self.level.trim(issued, pages.start, pages.end - pages.start)?,
        }
        Ok(done)
    }

    fn totals(&self) -> Totals {
        let copied: u64 = self.level.ranges().iter().map(|(_, counts)| counts.copied).sum();
        Device::Open(&self.device).totals(self.host_bytes, copied * self.page_bytes as u64)
    }

    fn heat(&self) -> Result<Vec<HeatRow>, SimError> {
        Device::Open(&self.device).heat()
    }

    fn verify(&self) -> Result<(), SimError> {
        self.level.verify()?;
        Device::Open(&self.device).verify()
    }
}
