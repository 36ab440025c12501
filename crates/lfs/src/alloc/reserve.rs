//! How a device is divided: the space for programs, and the reserves of the journal, of checkpoints and of the cleaner.
//!
//! ```text
//!  | journal and checkpoint in use (chain) | next checkpoint | cleaner | dead space | what programs can fill |
//! ```
//! Each reserve is as small as its guarantee allows, with a power cut at any time; `docs/formats/lfs.md` ("Space") has
//! the reasoning.

use crate::layout::checkpoint::CRCS_MAX;
use crate::layout::footer::data_end;
use crate::layout::frame::{HEADER_BYTES, TRANSACTION_MAX, frame_blocks};
use crate::layout::record::RUN_BYTES;
use crate::layout::zone_header::HEADER_BLOCKS;
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
/// Free zones that only the cleaner may take: one to copy into, and one for what a power cut leaves of such a copy.
pub const CLEANER_ZONES: u32 = 2;
/// Fewest blocks of journal between two checkpoints.
const JOURNAL_BLOCKS_MIN: u64 = 32;
/// Zones without a footer beside the open ones that a checkpoint has room for: ended by failed writes or power cuts.
const ENDED_ZONES: u32 = 8;

/// Bytes that a checkpoint takes for a run, with its part of the records' heads.
const RUN_BYTES_SAVED: u64 = RUN_BYTES as u64 + 1;
/// Bytes that a checkpoint's record of a block or of CRCs takes beside them.
const RECORD_HEAD_BYTES: u64 = 24;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a checkpoint has to hold, as far as it depends on what is stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CheckpointSize {
    /// Bytes of inodes, names and attributes.
    pub bytes: u64,
    /// Runs of all maps.
    pub runs: u64,
}

/// The division, for a device and (where it depends on it) the amount of metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// Zones that can be used.
    pub zones: u32,
    /// Writable blocks of a zone.
    pub capacity: u32,
    /// Blocks of a data zone before its footer, the header included.
    pub data_end: u32,
    /// Largest payload of a frame, in bytes.
    pub frame_max: usize,
    /// Blocks that the journal may hold for files, to be written to data zones later.
    pub inlined_max: u64,
    /// Zones' worth of dead space that a full volume has, so that the cleaner always gains and does not copy all day.
    pub slack_zones: u32,
    /// Zones without a footer that a checkpoint has room for.
    footerless: u32,
}

impl Reserve {
    /// The division of a device with this shape, `bad` of its zones unusable.
    pub fn new(info: &ZonedInfo, bad: u32) -> Reserve {
        let zones = info.zones.saturating_sub(bad);
        let capacity = info.zone_capacity;
        let frame_blocks = (capacity - HEADER_BLOCKS) * 3 / 4;
        let data_end = data_end(capacity);
        Reserve {
            zones,
            capacity,
            data_end,
            frame_max: (frame_blocks as usize * BLOCK_BYTES - HEADER_BYTES).min(FRAME_BYTES_MAX),
            inlined_max: u64::from((capacity / 8).clamp(4, 512)),
            // A twenty-fifth; and four blocks for each zone, because packing pieces anew may cost some.
            slack_zones: (zones / 25).max((zones * 4).div_ceil(data_end)),
            footerless: (info.open_max.min(info.active_max) + ENDED_ZONES).min(zones),
        }
    }

    /// Blocks of file data that a zone takes.
    pub fn data_blocks(&self) -> u32 {
        self.data_end - HEADER_BLOCKS
    }

    /// Bytes of frames that a metadata zone takes behind its header.
    fn frame_room(&self) -> u64 {
        u64::from(self.capacity - HEADER_BLOCKS) * BLOCK
    }

    /// Bytes of it that are used in any case: a frame that does not fit leaves less unused than the largest transaction
    /// takes, and frames cut short to fit leave parts of blocks.
    fn frame_room_used(&self) -> u64 {
        self.frame_room() - u64::from(frame_blocks(TRANSACTION_MAX) + 1) * BLOCK
    }

    /// Bytes of the frames of a checkpoint with so many bytes of records and, besides, `inlined` blocks of files.
    fn frame_bytes(&self, record_bytes: u64, inlined: u64) -> u64 {
        let blocks = u64::from(self.data_end);
        let crcs = blocks * 4 + (blocks / CRCS_MAX as u64 + 1) * RECORD_HEAD_BYTES;
        let bytes = record_bytes + u64::from(self.footerless) * crcs + inlined * (BLOCK + RECORD_HEAD_BYTES);
        // A frame is written when another transaction might not fit, and may leave a block nearly empty; so may the
        // last one, the one at the zone's end, and the checkpoint's end. A frame that is begun counts as far as it is filled,
        // so that what programs can fill does not fall by a frame's block at once.
        let frame = (self.frame_max - TRANSACTION_MAX) as u64;
        let of_frames = bytes / frame * BLOCK + bytes % frame * BLOCK / frame;
        bytes + of_frames + 3 * BLOCK
    }

    /// Blocks of a checkpoint of what there is now.
    pub fn checkpoint_blocks_now(&self, saved: CheckpointSize, inlined: u64) -> u64 {
        self.frame_bytes(saved.bytes + saved.runs * RUN_BYTES_SAVED, inlined).div_ceil(BLOCK)
    }

    /// Bytes of the largest checkpoint that these inodes may come to need: the data of a full volume in as many runs
    /// as it has blocks, because overwriting in place may cut maps to pieces and is never refused.
    fn checkpoint_bytes_max(&self, saved: CheckpointSize) -> u64 {
        let blocks = u64::from(self.zones) * u64::from(self.data_blocks());
        self.frame_bytes(saved.bytes + saved.runs.max(blocks) * RUN_BYTES_SAVED, self.inlined_max)
    }

    /// Bytes of journal between a checkpoint of the largest size and the next.
    fn journal_bytes_min(&self) -> u64 {
        (JOURNAL_BLOCKS_MIN * BLOCK).max(self.frame_room() / 16)
    }

    /// Zones that a checkpoint of so many bytes and the journal after it may fill before the next checkpoint is due.
    fn chain_zones_of(&self, checkpoint_bytes: u64) -> u64 {
        let bytes = checkpoint_bytes.saturating_add(self.journal_bytes_min());
        bytes.div_ceil(self.frame_room_used()) + u64::from(self.zones / 256)
    }

    /// Zones of a checkpoint of so many bytes, from a fresh zone on.
    fn checkpoint_zones_of(&self, checkpoint_bytes: u64) -> u64 {
        if checkpoint_bytes <= self.frame_room() {
            1
        } else {
            checkpoint_bytes.div_ceil(self.frame_room_used())
        }
    }

    /// Fresh zones that a checkpoint of so many blocks takes.
    pub fn zones_of_blocks(&self, blocks: u64) -> u32 {
        u32::try_from(self.checkpoint_zones_of(blocks.saturating_mul(BLOCK))).unwrap_or(u32::MAX)
    }

    fn meta_zones_of(&self, checkpoint_bytes: u64) -> u64 {
        self.chain_zones_of(checkpoint_bytes) + self.checkpoint_zones_of(checkpoint_bytes)
    }

    /// Zones that a checkpoint and the journal after it may fill before the next checkpoint is due.
    pub fn chain_zones(&self, saved: CheckpointSize) -> u32 {
        u32::try_from(self.chain_zones_of(self.checkpoint_bytes_max(saved))).unwrap_or(u32::MAX)
    }

    /// Zones that metadata may need at once: the chain, and the checkpoint that is to replace it.
    pub fn meta_zones(&self, saved: CheckpointSize) -> u32 {
        u32::try_from(self.meta_zones_of(self.checkpoint_bytes_max(saved))).unwrap_or(u32::MAX)
    }

    /// Blocks of room in the chain below which a checkpoint is due: what is written before it begins needs them.
    pub fn checkpoint_mark(&self) -> u64 {
        u64::from(frame_blocks(TRANSACTION_MAX)) + 8 + u64::from(self.capacity) / 256
    }

    /// Bytes that programs can fill, by what they are charged. Never more than the zones that metadata leaves; and as
    /// metadata grows towards needing another zone it falls little by little, not by a zone at once.
    pub fn usable_bytes(&self, saved: CheckpointSize) -> u64 {
        let checkpoint = self.checkpoint_bytes_max(saved);
        let meta = self.meta_zones_of(checkpoint);
        let kept = meta.saturating_add(u64::from(CLEANER_ZONES + self.slack_zones));
        let zone_bytes = u64::from(self.data_blocks()) * BLOCK;
        let whole = u64::from(self.zones).saturating_sub(kept) * zone_bytes;
        // Where the zones that metadata needs were last and will next be more.
        let room = self.frame_room_used();
        let (chain, own) = (self.chain_zones_of(checkpoint), self.checkpoint_zones_of(checkpoint));
        let chain_end = |zones: u64| {
            ((zones - u64::from(self.zones / 256)) * room).saturating_sub(self.journal_bytes_min())
        };
        let own_end = |zones: u64| match zones {
            0 => 0,
            1 => self.frame_room(),
            _ => (zones * room).max(self.frame_room()),
        };
        let next = chain_end(chain).min(own_end(own));
        let none = self.checkpoint_bytes_max(CheckpointSize { bytes: 0, ..saved });
        let last = chain_end(chain - 1).max(own_end(own - 1)).max(none);
        let more = self.meta_zones_of(next + 1).saturating_sub(meta) * zone_bytes;
        let way = next.saturating_sub(last).max(1);
        let gone = u128::from(more) * u128::from(checkpoint.saturating_sub(last)) / u128::from(way);
        whole.saturating_sub(gone as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(zones: u32, zone_capacity: u32) -> ZonedInfo {
        ZonedInfo { zones, zone_blocks: zone_capacity, zone_capacity, open_max: 14, active_max: 14 }
    }

    fn usable_part(zones: u32, zone_capacity: u32) -> f64 {
        let device = info(zones, zone_capacity);
        let usable = Reserve::new(&device, 0).usable_bytes(CheckpointSize { bytes: 1 << 16, runs: 100 });
        usable as f64 / device.capacity_bytes() as f64
    }

    #[test]
    fn a_volume_gives_programs_nine_tenths_of_the_device_and_a_small_one_two_thirds() {
        for (zones, capacity, least) in
            [(1024, 1024, 0.93), (128, 1024, 0.90), (64, 2048, 0.89), (32, 16384, 0.83), (16, 1024, 0.67)]
        {
            let part = usable_part(zones, capacity);
            assert!((least..0.96).contains(&part), "{zones} zones of {capacity} blocks: {part}");
        }
    }

    #[test]
    fn more_metadata_leaves_less_for_data_and_never_underflows() {
        let r = Reserve::new(&info(64, 64), 0);
        let mut last = u64::MAX;
        for bytes in [0, 1 << 16, 1 << 20, 1 << 24, 1 << 40, u64::MAX / 64] {
            let usable = r.usable_bytes(CheckpointSize { bytes, runs: 0 });
            assert!(usable <= last);
            last = usable;
        }
        assert_eq!(last, 0);
        assert_eq!(r.usable_bytes(CheckpointSize { bytes: 0, runs: 1 << 40 }), 0);
    }

    #[test]
    fn what_programs_can_fill_falls_with_each_inode_and_never_by_a_zone_at_once() {
        for (zones, capacity) in [(16, 1024), (128, 1024), (32, 16384), (64, 128), (42, 48)] {
            let r = Reserve::new(&info(zones, capacity), 0);
            let zone_bytes = u64::from(r.data_blocks()) * BLOCK;
            let at = |bytes| r.usable_bytes(CheckpointSize { bytes, runs: 0 });
            let mut last = at(0);
            for bytes in (0..u64::from(zones / 4) * zone_bytes).step_by(256) {
                let now = at(bytes);
                assert!(
                    now <= last && last - now < zone_bytes / 16,
                    "{zones} of {capacity}: {last}, then {now}"
                );
                let exact = u64::from(
                    r.meta_zones(CheckpointSize { bytes, runs: 0 }) + CLEANER_ZONES + r.slack_zones,
                );
                assert!(now <= u64::from(zones).saturating_sub(exact) * zone_bytes);
                last = now;
            }
        }
    }

    #[test]
    fn a_checkpoint_is_never_due_right_after_one() {
        for capacity in [48, 64, 100, 128, 256, 500, 1024, 2048, 4096, 16384, 275_712] {
            for zones in [16, 17, 40, 64, 128, 500, 1024, 5000] {
                let r = Reserve::new(&info(zones, capacity), 0);
                for bytes in [0, 1 << 16, 1 << 20, 1 << 24] {
                    let saved = CheckpointSize { bytes, runs: 0 };
                    let chain = u64::from(r.chain_zones(saved)) * r.frame_room_used();
                    let room = chain.checked_sub(r.checkpoint_bytes_max(saved));
                    assert!(
                        room.is_some_and(|room| room / BLOCK > r.checkpoint_mark()),
                        "{zones} zones of {capacity}, {bytes} bytes: {room:?}"
                    );
                }
            }
        }
    }
}
