//! How a device is divided: what programs may fill, what the journal, checkpoints and the cleaner keep for themselves.

use crate::layout::footer::{data_end, footer_blocks};
use weft_core::BLOCK_BYTES;
use weft_device::ZonedInfo;

/// Fewest writable blocks of a zone.
pub const ZONE_BLOCKS_MIN: u32 = 48;
/// Fewest zones of a device.
pub const ZONES_MIN: u32 = 16;
/// Fewest open zones: the journal's, and one for data.
pub const OPEN_ZONES_MIN: u32 = 2;
/// Largest payload of a frame.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;
/// Zones that the cleaner may always take.
pub const CLEANER_ZONES: u32 = 3;

/// The division, for a device and (where it depends on it) the amount of metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// Zones that can be used.
    pub zones: u32,
    /// Writable blocks of a zone.
    pub capacity: u32,
    /// Blocks of a data zone before its footer, the header included.
    pub data_end: u32,
    /// Zones that the journal may fill before a checkpoint is due.
    pub journal_zones: u32,
    /// Largest payload of a frame, in bytes.
    pub frame_max: usize,
    /// Zones kept for the cleaner.
    pub cleaner_zones: u32,
    /// Zones kept for what maps can grow by when files are written in small pieces.
    pub map_zones: u32,
}

impl Reserve {
    /// The division of a device with this shape, `bad` of its zones unusable.
    pub fn new(info: &ZonedInfo, bad: u32) -> Reserve {
        let zones = info.zones.saturating_sub(bad);
        let capacity = info.zone_capacity;
        // A frame leaves room for at least two in a zone's blocks behind the header.
        let frame_blocks = (capacity - 1) * 3 / 4;
        Reserve {
            zones,
            capacity,
            data_end: data_end(capacity),
            journal_zones: (zones / 64).max(2),
            frame_max: (frame_blocks as usize * BLOCK_BYTES - crate::layout::frame::HEADER_BYTES)
                .min(FRAME_BYTES_MAX),
            cleaner_zones: CLEANER_ZONES + 1 + zones / 25,
            map_zones: zones.div_ceil(64),
        }
    }

    /// Zones of a checkpoint with this many bytes of records. Frames are not cut at a zone's end, so a zone may end
    /// in an unused frame's length.
    pub fn checkpoint_zones(&self, saved_bytes: u64) -> u32 {
        let zone_bytes = u64::from(self.capacity - 1) * BLOCK_BYTES as u64;
        let usable =
            (zone_bytes / 4).max(zone_bytes.saturating_sub(self.frame_max as u64 + BLOCK_BYTES as u64));
        // Each frame wastes at most a block, and the CRCs of zones without a footer come on top.
        let crcs = u64::from(footer_blocks(self.data_end)) * 16 * BLOCK_BYTES as u64;
        let bytes = (saved_bytes + crcs) * 33 / 32 + 2 * BLOCK_BYTES as u64;
        u32::try_from(bytes.div_ceil(usable)).unwrap_or(u32::MAX)
    }

    /// Zones that metadata may need at once: the journal, the last checkpoint and the next.
    pub fn meta_zones(&self, saved_bytes: u64) -> u32 {
        let checkpoint = self.checkpoint_zones(saved_bytes);
        (self.journal_zones + 2 + self.map_zones).saturating_add(checkpoint.saturating_mul(2))
    }

    /// Bytes that programs can fill, by what they are charged.
    pub fn usable_bytes(&self, saved_bytes: u64) -> u64 {
        let kept = self.meta_zones(saved_bytes).saturating_add(self.cleaner_zones);
        u64::from(self.zones.saturating_sub(kept)) * u64::from(self.data_end - 1) * BLOCK_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(zones: u32, zone_capacity: u32) -> ZonedInfo {
        ZonedInfo { zones, zone_blocks: zone_capacity, zone_capacity, open_max: 14, active_max: 14 }
    }

    #[test]
    fn a_volume_of_usual_size_gives_programs_nine_tenths_of_the_device() {
        let device = info(1024, 1024);
        let usable = Reserve::new(&device, 0).usable_bytes(1 << 20);
        let part = usable as f64 / device.capacity_bytes() as f64;
        assert!((0.88..0.95).contains(&part), "{part}");
    }

    #[test]
    fn more_metadata_leaves_less_for_data_and_never_underflows() {
        let r = Reserve::new(&info(64, 64), 0);
        let mut last = u64::MAX;
        for saved in [0, 1 << 16, 1 << 20, 1 << 24, 1 << 40, u64::MAX / 64] {
            let usable = r.usable_bytes(saved);
            assert!(usable <= last);
            last = usable;
        }
        assert_eq!(last, 0);
    }
}
