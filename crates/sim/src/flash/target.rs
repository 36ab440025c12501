//! The target of a simulation: one of the presentations of a modelled device, or one of the levels on it.

use super::SimError;
use super::heat::{self, HeatRow};
use crate::block::{Action, Request};
use serde::Serialize;
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
#[derive(Serialize)]
pub struct FdpReport {
    /// The FDP statistics log page.
    #[serde(flatten)]
    pub statistics: FdpStatistics,
    /// Events "media reallocated" so far.
    pub media_reallocated_events: u64,
    /// What each placement handle has written.
    pub handles: Vec<HandleUsage>,
}

/// A device under a workload.
pub trait Target {
    /// Blocks of 4 KiB that it has.
    fn capacity_blocks(&self) -> u64;

    /// What write amplification depends on; `None` when pages are not mapped one by one.
    fn alpha(&self) -> Option<f64>;

    /// Blocks of a page, the unit of its map.
    fn blocks_per_page(&self) -> u64;

    /// Does a request, and says when it is done.
    fn request(&mut self, issued: Nanos, request: &Request) -> Result<Nanos, SimError>;

    /// What it has counted so far.
    fn totals(&self) -> Totals;

    /// The erases of its blocks.
    fn heat(&self) -> Result<Vec<HeatRow>, SimError>;

    /// The latencies of reads and writes, when its own clock has them and not the queue.
    fn own_latencies(&self) -> Option<(Summary, Summary)> {
        None
    }

    /// The log pages of an FDP drive.
    fn fdp(&self) -> Option<FdpReport> {
        None
    }

    /// Makes durable what was written.
    fn flush(&self) -> Result<(), SimError> {
        Ok(())
    }

    /// Checks that the counters agree.
    fn verify(&self) -> Result<(), SimError>;
}

/// Conventional and FDP.
impl Target for Ssd {
    fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks()
    }

    fn alpha(&self) -> Option<f64> {
        Some(self.alpha())
    }

    fn blocks_per_page(&self) -> u64 {
        1
    }

    fn request(&mut self, issued: Nanos, request: &Request) -> Result<Nanos, SimError> {
        let blocks = u64::from(request.blocks);
        let handles = self.setup().handles.len() as u16;
        let handle = request.stream.checked_rem(handles);
        // In an image a self keeps its data: each block has its number.
        let mut data = Vec::new();
        if self.setup().flash.keep == Keep::All && request.action == Action::Write {
            data.resize(request.blocks as usize * BLOCK_BYTES, 0);
            for (block, data) in (request.block..).zip(data.chunks_exact_mut(BLOCK_BYTES)) {
                data[..8].copy_from_slice(&block.to_le_bytes());
            }
        }
        Ok(match request.action {
            Action::Read => self.read(issued, request.block, blocks, &mut [])?,
            Action::Write => self.write(issued, request.block, blocks, &data, handle)?,
            Action::Deallocate => self.deallocate(issued, request.block, blocks)?,
        })
    }

    fn totals(&self) -> Totals {
        let (counters, flash) = (self.counters(), self.flash_counters());
        Totals {
            host_bytes: counters.host_bytes,
            media_bytes: counters.media_bytes,
            moved_bytes: counters.gc_bytes,
            erases: counters.erases,
            flash_operations: flash.pages_read + flash.pages_programmed + flash.blocks_erased,
        }
    }

    fn heat(&self) -> Result<Vec<HeatRow>, SimError> {
        let (shape, erases) = (self.shape(), self.erases_by_block()?);
        let luns = erases.chunks(shape.blocks_per_lun() as usize).enumerate();
        let row = |(number, erases): (usize, &[u32])| {
            let at = shape.lun_at(number as u32);
            heat::row_of_lun(at.channel, at.lun, None, erases.to_vec(), Vec::new())
        };
        Ok(luns.map(row).collect())
    }

    fn fdp(&self) -> Option<FdpReport> {
        (!self.setup().handles.is_empty()).then(|| FdpReport {
            statistics: self.fdp_statistics(),
            media_reallocated_events: self.media_reallocated_events(),
            handles: self.handle_usage(),
        })
    }

    fn flush(&self) -> Result<(), SimError> {
        self.flush(self.now())?;
        Ok(())
    }

    fn verify(&self) -> Result<(), SimError> {
        Ok(self.verify_identity()?)
    }
}
