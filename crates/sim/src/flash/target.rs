//! The target of a simulation: one of the presentations of a modelled device, or one of the levels on it.

use super::SimError;
use super::heat::{self, HeatRow};
use super::host_map::HostMap;
use super::policy_range::PolicyRange;
use crate::block::{Action, Request};
use weft_core::hist::Summary;
use weft_core::{BLOCK_BYTES, Nanos};
use weft_device::nand::Keep;
use weft_device::ssd::{FdpStatistics, HandleUsage, Ssd};

/// What a device has counted.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    /// Bytes that the host wrote.
    pub host_bytes: u64,
    /// Bytes that the flash programmed.
    pub media_bytes: u64,
    /// Bytes that cleaning moved.
    pub moved_bytes: u64,
    /// Erases of blocks.
    pub erases: u64,
    /// Reads, programs and erases of the flash.
    pub flash_operations: u64,
}

/// What an FDP drive says in the end.
pub struct FdpReport {
    /// The FDP statistics log page.
    pub statistics: FdpStatistics,
    /// What each placement handle has written.
    pub handles: Vec<HandleUsage>,
    /// Events "media reallocated" so far.
    pub media_reallocated: u64,
}

/// A device under a workload.
pub enum Target {
    /// Conventional and FDP.
    Drive(Box<Ssd>),
    /// Zoned and open-channel, the raw and the function level, with a page map in the host.
    Mapped(Box<HostMap>),
    /// The policy level.
    Policy(Box<PolicyRange>),
}

impl Target {
    /// Blocks of 4 KiB that it has.
    pub fn capacity_blocks(&self) -> u64 {
        match self {
            Target::Drive(drive) => drive.capacity_blocks(),
            Target::Mapped(map) => map.capacity_blocks(),
            Target::Policy(range) => range.capacity_blocks(),
        }
    }

    /// What write amplification depends on; `None` when pages are not mapped one by one.
    pub fn alpha(&self) -> Option<f64> {
        match self {
            Target::Drive(drive) => Some(drive.alpha()),
            Target::Mapped(map) => Some(map.alpha()),
            Target::Policy(range) => range.alpha(),
        }
    }

    /// Blocks of 4 KiB that are mapped as one.
    pub fn blocks_per_page(&self) -> u64 {
        match self {
            Target::Drive(_) => 1,
            Target::Mapped(map) => map.blocks_per_page(),
            Target::Policy(range) => range.blocks_per_page(),
        }
    }

    /// Carries out a request; returns when it is complete.
    pub fn request(&mut self, issued: Nanos, request: &Request) -> Result<Nanos, SimError> {
        let blocks = u64::from(request.blocks);
        match self {
            Target::Drive(drive) => {
                let handles = drive.setup().handles.len() as u16;
                let handle = request.stream.checked_rem(handles);
                // In an image a drive keeps its data: each block has its number.
                let mut data = Vec::new();
                if drive.setup().flash.keep == Keep::All && request.action == Action::Write {
                    data.resize(request.blocks as usize * BLOCK_BYTES, 0);
                    for (block, data) in (request.block..).zip(data.chunks_exact_mut(BLOCK_BYTES)) {
                        data[..8].copy_from_slice(&block.to_le_bytes());
                    }
                }
                Ok(match request.action {
                    Action::Read => drive.read(issued, request.block, blocks, &mut [])?,
                    Action::Write => drive.write(issued, request.block, blocks, &data, handle)?,
                    Action::Deallocate => drive.deallocate(issued, request.block, blocks)?,
                })
            }
            Target::Mapped(map) => map.request(issued, request),
            Target::Policy(range) => range.request(issued, request),
        }
    }

    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        match self {
            Target::Drive(drive) => {
                let (counters, flash) = (drive.counters(), drive.flash_counters());
                Totals {
                    host_bytes: counters.host_bytes,
                    media_bytes: counters.media_bytes,
                    moved_bytes: counters.gc_bytes,
                    erases: counters.erases,
                    flash_operations: flash.pages_read + flash.pages_programmed + flash.blocks_erased,
                }
            }
            Target::Mapped(map) => map.totals(),
            Target::Policy(range) => range.totals(),
        }
    }

    /// Erases of each block, or of each zone.
    pub fn heat(&self) -> Result<Vec<HeatRow>, SimError> {
        match self {
            Target::Drive(drive) => {
                let (shape, erases) = (drive.shape(), drive.erases_by_block()?);
                let luns = erases.chunks(shape.blocks_per_lun() as usize).enumerate();
                let row = |(number, erases): (usize, &[u32])| {
                    let at = shape.lun_at(number as u32);
                    heat::row_of_lun(at.channel, at.lun, None, erases.to_vec(), Vec::new())
                };
                Ok(luns.map(row).collect())
            }
            Target::Mapped(map) => map.heat(),
            Target::Policy(range) => range.heat(),
        }
    }

    /// Latencies that the device has counted itself (reads, writes), when requests do not show theirs.
    pub fn own_latencies(&self) -> Option<(Summary, Summary)> {
        match self {
            Target::Drive(_) | Target::Policy(_) => None,
            Target::Mapped(map) => map.own_latencies(),
        }
    }

    /// What an FDP drive reports.
    pub fn fdp(&self) -> Option<FdpReport> {
        match self {
            Target::Drive(drive) if !drive.setup().handles.is_empty() => Some(FdpReport {
                statistics: drive.fdp_statistics(),
                handles: drive.handle_usage(),
                media_reallocated: drive.media_reallocated_events(),
            }),
            _ => None,
        }
    }

    /// Makes what was written to a drive in an image survive a crash of the host.
    pub fn flush(&self) -> Result<(), SimError> {
        if let Target::Drive(drive) = self {
            drive.flush(drive.now())?;
        }
        Ok(())
    }

    /// Checks the erase identity.
    pub fn verify(&self) -> Result<(), SimError> {
        match self {
            Target::Drive(drive) => Ok(drive.verify_identity()?),
            Target::Mapped(map) => map.verify(),
            Target::Policy(range) => range.verify(),
        }
    }
}
