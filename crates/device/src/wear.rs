//! The wear of the flash: erases, bad blocks, and the bytes between host and flash.

use crate::geometry::Geometry;
use crate::image::record::ZoneRecord;
use crate::zoned::ZoneState;
use serde::{Deserialize, Serialize};

/// Erases of the device's blocks.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Wear {
    /// Blocks of the device, in zones.
    pub blocks: u64,
    /// Erases of the least worn block.
    pub erases_min: u32,
    /// Mean erases of a block.
    pub erases_mean: f64,
    /// Erases of the most worn block.
    pub erases_max: u32,
    /// Standard deviation of the erases of a block.
    pub erases_sd: f64,
    /// Blocks that spares have taken the place of.
    pub blocks_replaced: u64,
    /// Zones that can only be read.
    pub zones_read_only: u32,
    /// Zones that are dead.
    pub zones_offline: u32,
}

impl Wear {
    /// The wear of blocks that were erased so often.
    pub fn of(erases: &[u32]) -> Wear {
        let count = erases.len().max(1) as f64;
        let mean = erases.iter().map(|e| f64::from(*e)).sum::<f64>() / count;
        let variance = erases.iter().map(|e| (f64::from(*e) - mean).powi(2)).sum::<f64>() / count;
        Wear {
            blocks: erases.len() as u64,
            erases_min: erases.iter().copied().min().unwrap_or(0),
            erases_mean: mean,
            erases_max: erases.iter().copied().max().unwrap_or(0),
            erases_sd: variance.sqrt(),
            ..Wear::default()
        }
    }
}

/// Wear, and what happened to bytes that were written; in bytes since the format.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FlashReport {
    /// Wear of the whole device.
    pub wear: Wear,
    /// Erases of each block of a zone, by zone: the blocks of a zone are erased together.
    pub erases_by_zone: Vec<u32>,
    /// Padding in units that were programmed before they were full.
    pub padding_bytes: u64,
    /// Written and still in the write buffer.
    pub buffered_bytes: u64,
    /// Written, but gone from the write buffer before they were programmed.
    pub dropped_bytes: u64,
    /// Programmed and not erased since.
    pub standing_bytes: u64,
    /// Erased without having been programmed.
    pub erased_unwritten_bytes: u64,
}

impl FlashReport {
    pub(crate) fn new(records: impl Iterator<Item = ZoneRecord>, geometry: &Geometry) -> FlashReport {
        let mut report = FlashReport::default();
        for record in records {
            report.erases_by_zone.push(record.erases);
            report.padding_bytes += record.padding;
            report.buffered_bytes += record.buffered();
            report.dropped_bytes += record.dropped;
            report.standing_bytes += record.standing;
            report.erased_unwritten_bytes += record.erased_unwritten;
            report.wear.blocks_replaced += u64::from(record.replaced);
            report.wear.zones_read_only += u32::from(record.state == ZoneState::ReadOnly);
            report.wear.zones_offline += u32::from(record.state == ZoneState::Offline);
        }
        report.wear = Wear {
            blocks: report.erases_by_zone.len() as u64 * geometry.blocks_per_zone(),
            blocks_replaced: report.wear.blocks_replaced,
            zones_read_only: report.wear.zones_read_only,
            zones_offline: report.wear.zones_offline,
            ..Wear::of(&report.erases_by_zone)
        };
        report
    }
}
