//! Divides the blocks of each LUN between the log, grants and spares, by the shape of the device and the number of spares.
//!
//! The blocks of a LUN are numbered across its planes: block `n` is in plane `n % planes`. What the log takes is spread over
//! the planes, and an application gets as many blocks of each.
//!
//! ```text
//!  LUN:  block 0 .. log_blocks-1: the monitor's log | everything else: granted blocks and spares, wherever they are good
//! ```

use super::GrantRequest;
use crate::backend::Backend;
use crate::error::LevelError;
use crate::log::LogShape;
use crate::oob::MONITOR_OOB_BYTES;
use weft_device::nand::{BlockAddr, BlockInfo, FlashShape};

/// What the log is called in errors.
pub(crate) const LOG_NAME: &str = "the records of the flash monitor";
/// Bytes of a place in a snapshot.
pub(super) const PLACE_BYTES: usize = 8;
/// Fewest spares of a LUN: one to exchange blocks through, one for a block that fails.
const SPARES_MIN: u32 = 2;

#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub shape: FlashShape,
    /// Blocks of each LUN that belong to the log, from block 0 on.
    pub log_blocks_per_lun: u32,
    pub spares_per_lun: u32,
    /// Blocks of each LUN that an application gets.
    pub blocks_granted: u32,
}

/// A physical block: its LUN by number, and its number in the LUN, across the planes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PhysBlock {
    pub lun: u32,
    pub block: u32,
}

/// The block of a place that is nowhere: its flash is bad, what it held was given up, and the LUN has no spare.
const NO_BLOCK: u32 = u32::MAX;

impl PhysBlock {
    /// No block, of this LUN.
    pub fn missing(lun: u32) -> PhysBlock {
        PhysBlock { lun, block: NO_BLOCK }
    }

    pub fn is_missing(self) -> bool {
        self.block == NO_BLOCK
    }
}

impl Layout {
    pub fn new(backend: &dyn Backend, spares: u32) -> Result<Layout, LevelError> {
        let shape = backend.shape();
        let bad = |what: String| Err(LevelError::BadRequest(what));
        if backend.pairs_pages() {
            return bad(
                "the device pairs pages, and an interrupted program could destroy records of the monitor; \
                        make a device without pairing"
                    .into(),
            );
        }
        if shape.oob_bytes < MONITOR_OOB_BYTES {
            return bad(format!(
                "pages have {} out-of-band bytes and the monitor needs {MONITOR_OOB_BYTES}; make a device with more",
                shape.oob_bytes
            ));
        }
        let per_lun = shape.blocks_per_lun();
        let log_blocks_per_lun = Layout::log_blocks(&shape);
        let spares = if spares == 0 { (per_lun / 50).max(SPARES_MIN) } else { spares };
        if spares < SPARES_MIN {
            return bad(format!("{spares} spare blocks a LUN; at least {SPARES_MIN} are needed"));
        }
        let kept = log_blocks_per_lun.saturating_add(spares);
        let left = per_lun.saturating_sub(kept);
        // As many of each plane; what is left over are further spares.
        let blocks_granted = left - left % shape.planes;
        if blocks_granted == 0 {
            let least = log_blocks_per_lun + SPARES_MIN;
            let fewer = if least + shape.planes <= per_lun { " or keep fewer spares" } else { "" };
            return bad(format!(
                "a LUN has {per_lun} blocks in {} planes, of which the monitor keeps {kept}; make a larger device{fewer}",
                shape.planes
            ));
        }
        assert!(blocks_granted.is_multiple_of(shape.planes) && kept + blocks_granted <= per_lun);
        Ok(Layout { shape, log_blocks_per_lun, spares_per_lun: spares, blocks_granted })
    }

    /// Blocks of each LUN that the log takes: enough for two snapshots of the largest state with names of usual lengths. The format
    /// says where the log lies, so this never changes; a grant whose records would not fit is refused.
    fn log_blocks(shape: &FlashShape) -> u32 {
        let state = shape.blocks() as usize * PLACE_BYTES + shape.luns() as usize * 64 + 4096;
        let wanted = LogShape::blocks_for(shape.pages_per_block, shape.page_bytes as usize, state);
        wanted.div_ceil(shape.luns())
    }

    pub fn log_shape(shape: &FlashShape) -> LogShape {
        LogShape {
            blocks: Layout::log_blocks(shape) * shape.luns(),
            pages_per_block: shape.pages_per_block,
            page_bytes: shape.page_bytes as usize,
            of: LOG_NAME,
        }
    }

    /// The block of the log with this number: the log goes round the LUNs.
    pub fn log_block(shape: &FlashShape, number: u32) -> BlockAddr {
        block_in(shape, PhysBlock { lun: number % shape.luns(), block: number / shape.luns() })
    }

    pub fn address(&self, place: PhysBlock) -> BlockAddr {
        debug_assert!(!place.is_missing() && place.lun < self.shape.luns());
        debug_assert!(
            (self.log_blocks_per_lun..self.shape.blocks_per_lun()).contains(&place.block),
            "a grant reaches the blocks of the log"
        );
        block_in(&self.shape, place)
    }

    /// The plane of a place.
    pub fn plane(&self, place: PhysBlock) -> u32 {
        place.block % self.shape.planes
    }

    /// The blocks of a LUN, without those of the log, that are not bad.
    pub fn good_blocks(
        &self,
        backend: &dyn Backend,
        lun: u32,
    ) -> Result<Vec<(PhysBlock, BlockInfo)>, LevelError> {
        let infos = backend.lun_info(self.shape.lun_at(lun))?;
        let mut good = Vec::with_capacity(infos.len());
        self.each_good(&infos, |block, info| good.push((PhysBlock { lun, block }, *info)));
        Ok(good)
    }

    /// How many blocks of a LUN, without those of the log, are not bad, and the erases of all its blocks.
    pub fn use_of(&self, backend: &dyn Backend, lun: u32) -> Result<LunUse, LevelError> {
        let infos = backend.lun_info(self.shape.lun_at(lun))?;
        let mut found = LunUse { lun, good: 0, erases: 0 };
        found.erases = infos.iter().map(|info| u64::from(info.erases)).sum();
        self.each_good(&infos, |_, _| found.good += 1);
        Ok(found)
    }

    /// Goes over the good blocks of a LUN by number, without those of the log. A number counts the blocks of all planes in turn.
    fn each_good(&self, infos: &[BlockInfo], mut act: impl FnMut(u32, &BlockInfo)) {
        let FlashShape { planes, blocks_per_plane, .. } = self.shape;
        let mut block = 0;
        for row in 0..blocks_per_plane {
            for plane in 0..planes {
                let info = &infos[(plane * blocks_per_plane + row) as usize];
                if block >= self.log_blocks_per_lun && !info.state.is_bad() {
                    act(block, info);
                }
                block += 1;
            }
        }
    }

    /// LUNs that a request takes.
    pub fn luns_for(&self, request: &GrantRequest) -> u64 {
        let more = u128::from(request.bytes) * u128::from(request.over_provisioning_permille) / 1000;
        let lun_bytes = u128::from(self.blocks_granted) * u128::from(self.shape.block_bytes());
        (u128::from(request.bytes) + more).div_ceil(lun_bytes).max(1) as u64
    }
}

/// What a LUN has for grants.
#[derive(Clone, Copy, Debug)]
pub(super) struct LunUse {
    pub lun: u32,
    /// Blocks, without those of the log, that are not bad.
    pub good: u32,
    /// Of all blocks.
    pub erases: u64,
}

fn block_in(shape: &FlashShape, place: PhysBlock) -> BlockAddr {
    shape.lun_at(place.lun).block(place.block % shape.planes, place.block / shape.planes)
}
