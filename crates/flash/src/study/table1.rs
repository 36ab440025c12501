//! Table I of the Prism-SSD paper (ICDCS 2019, section VI-A) at small scale: what a slab cache on each level copies and
//! erases.
//!
//! The paper: 30 GB of flash, 140 million sets of normally distributed keys, 50 GB in all, blocks of 8 MiB (inferred from
//! the table itself). Here: the same proportions, the flash and the block about a hundredth. Two numbers are not in the
//! paper and are chosen such that the first row comes out as it does there: the share of the flash that is live data, and
//! the over-provisioning of the bought SSD. The other rows then follow.
//!
//! - **Original**: on a conventional SSD, that is, a page-mapped FTL with greedy cleaning that gets no trims; slabs are an
//!   eighth of its erase unit. A quarter of the slabs is kept free.
//! - **Policy**: the same cache on a block-mapped range, a slab a block: the flash copies nothing.
//! - **Function**: slabs are blocks that are taken and trimmed; the cache sees how many are free and keeps few.
//! - **Raw**: the cache keeps its own list of blocks, and one block a LUN is all that it holds back.

use super::slabs::{SlabCache, SlabCounts, SlabStore};
use crate::address::GrantBlock;
use crate::error::LevelError;
use crate::function::{FunctionLevel, Mapping};
use crate::grant::Grant;
use crate::monitor::{GrantRequest, Monitor, MonitorSetup};
use crate::policy::{PolicyLevel, PolicySetup, RangeMapping, RangePolicy};
use crate::raw::RawLevel;
use serde::Serialize;
use std::sync::Arc;
use weft_core::{Nanos, Tag};
use weft_device::Geometry;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashSetup, Keep, OpenChannel};

/// Bytes of an item: 50 GB over 140 million.
const ITEM_BYTES: u32 = 357;
const PAGE_BYTES: u32 = 4096;
const PAGES_PER_BLOCK: u32 = 32;
const CHANNELS: u32 = 8;
const LUNS: u32 = 4;
/// Live data over flash, in thousandths: chosen such that the first row copies what it does in the paper.
const LIVE_PERMILLE: u64 = 265;
/// Over-provisioning inside the bought SSD, in thousandths.
const SSD_PERMILLE: u32 = 300;
/// Slabs that a cache keeps free when it does not see the flash, in thousandths: a quarter.
const STATIC_PERMILLE: u32 = 250;
/// The same when it does: what is being erased, and a margin.
const DYNAMIC_PERMILLE: u32 = 40;
const T: Nanos = Nanos(0);

/// A row of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table1Row {
    /// The level.
    pub level: &'static str,
    /// Bytes of items set.
    pub set_bytes: u64,
    /// Bytes of items that the cache copied.
    pub item_copy_bytes: u64,
    /// Bytes that were programmed beyond what the cache wrote.
    pub flash_copy_bytes: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Erases over those of the first row.
    pub ratio: f64,
    /// The same in the paper.
    pub paper_ratio: f64,
    /// Erases x block over bytes programmed: 1 but for what is open at the begin and the end.
    pub identity: f64,
}

/// The table, and what it was made with.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table1 {
    /// Bytes of flash.
    pub flash_bytes: u64,
    /// Bytes of an erase block.
    pub block_bytes: u64,
    /// Items set.
    pub sets: u64,
    /// Different keys.
    pub keys: u32,
    /// The rows.
    pub rows: Vec<Table1Row>,
}

/// Makes the table on devices of so many blocks a LUN (64 is a good number; at least 32), with keys drawn from this seed.
/// Takes a second or two.
pub fn table1(blocks_per_lun: u32, seed: u64) -> Result<Table1, LevelError> {
    if blocks_per_lun < 32 {
        let what =
            format!("{blocks_per_lun} blocks a LUN are too few for the table's proportions; take 32 or more");
        return Err(LevelError::BadRequest(what));
    }
    let block_bytes = u64::from(PAGES_PER_BLOCK * PAGE_BYTES);
    let flash_bytes = u64::from(CHANNELS * LUNS * blocks_per_lun) * block_bytes;
    let keys = (flash_bytes * LIVE_PERMILLE / 1000 / u64::from(ITEM_BYTES)) as u32;
    // 50 GB on 30 GB.
    let sets = flash_bytes * 5 / 3 / u64::from(ITEM_BYTES);
    let study = Study { blocks_per_lun, keys, sets, seed };
    let mut rows = vec![
        study.row("Original", 1.0, STATIC_PERMILLE, |grant| Ssd::new(grant, RangeMapping::Page))?,
        study.row("Policy", 0.892, STATIC_PERMILLE, |grant| Ssd::new(grant, RangeMapping::Block))?,
        study.row("Function", 0.705, DYNAMIC_PERMILLE, Functions::new)?,
        study.row("Raw", 0.702, 0, Blocks::new)?,
    ];
    let first = rows[0].erases as f64;
    rows.iter_mut().for_each(|row| row.ratio = row.erases as f64 / first);
    Ok(Table1 { flash_bytes, block_bytes, sets, keys, rows })
}

struct Study {
    blocks_per_lun: u32,
    keys: u32,
    sets: u64,
    seed: u64,
}

impl Study {
    fn row<S: SlabStore>(
        &self,
        level: &'static str,
        paper_ratio: f64,
        reserve_permille: u32,
        store: impl FnOnce(Grant) -> Result<S, LevelError>,
    ) -> Result<Table1Row, LevelError> {
        let mut geometry = Geometry::bbssd();
        (geometry.channels, geometry.luns_per_channel, geometry.planes) = (CHANNELS, LUNS, 1);
        (geometry.pages_per_block, geometry.page_bytes) = (PAGES_PER_BLOCK, PAGE_BYTES);
        let block_bytes = u64::from(PAGES_PER_BLOCK * PAGE_BYTES);
        let luns = u64::from(CHANNELS * LUNS);
        let geometry = geometry.with_size(luns * u64::from(self.blocks_per_lun) * block_bytes);
        let device = Arc::new(OpenChannel::memory(&FlashSetup::new(geometry).keeping(Keep::Oob))?);
        let monitor = Monitor::format(device.clone(), MonitorSetup::default())?;
        let bytes = luns * monitor.lun_bytes();
        let request = GrantRequest { name: "cache".into(), bytes, over_provisioning_permille: 0 };
        let store = store(monitor.allocate(&request)?)?;
        let items_per_page = PAGE_BYTES / ITEM_BYTES;
        let mut cache = SlabCache::new(store, self.keys, items_per_page, PAGES_PER_BLOCK, reserve_permille);
        (0..self.keys).try_for_each(|key| cache.set(key))?;
        let mut normal = Normal(self.seed | 1);
        // Until every block has been used and the cache has settled.
        for _ in 0..self.sets {
            cache.set(normal.below(self.keys))?;
        }
        let (items, flash) = (cache.counts(), device.counters());
        for _ in 0..self.sets {
            cache.set(normal.below(self.keys))?;
        }
        let done: SlabCounts = cache.counts();
        let after = device.counters();
        device.verify_identity()?;
        let programmed = (after.pages_programmed - flash.pages_programmed) * u64::from(PAGE_BYTES);
        let erases = after.blocks_erased - flash.blocks_erased;
        Ok(Table1Row {
            level,
            set_bytes: (done.sets - items.sets) * u64::from(ITEM_BYTES),
            item_copy_bytes: (done.copies - items.copies) * u64::from(ITEM_BYTES),
            flash_copy_bytes: programmed - (done.pages - items.pages) * u64::from(PAGE_BYTES),
            erases,
            ratio: 1.0,
            paper_ratio,
            identity: (erases * block_bytes) as f64 / programmed.max(1) as f64,
        })
    }
}

/// Keys about the middle one, with a sixth of all keys as standard deviation: the sum of twelve uniform draws.
struct Normal(u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        // Vigna's xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, keys: u32) -> u32 {
        let sum: f64 = (0..12).map(|_| self.uniform()).sum();
        let at = (0.5 + (sum - 6.0) / 6.0).clamp(0.0, 1.0);
        ((at * f64::from(keys)) as u32).min(keys - 1)
    }
}

/// An FTL with one range: page-mapped it stands for a bought SSD, block-mapped it is the policy level's row.
struct Ssd {
    level: PolicyLevel,
    slabs: u32,
}

impl Ssd {
    fn new(grant: Grant, mapping: RangeMapping) -> Result<Ssd, LevelError> {
        let bought = mapping == RangeMapping::Page;
        // Superblocks of 8 in the SSD, whose slabs are an eighth of them.
        let stripe = if bought { 8 } else { 1 };
        let setup = PolicySetup { stripe, streams: 1, checkpoint_pages: u64::MAX };
        let level = PolicyLevel::create(grant, setup)?;
        let unit = u64::from(level.unit_pages());
        let units = u64::from(level.free_units());
        let op = if bought { SSD_PERMILLE } else { 0 };
        // Of the rest, what is open or held in reserve is not for slabs. Both caches have the same size.
        let in_flight = 5 * 8 * u64::from(PAGES_PER_BLOCK);
        let pages = (units * unit - in_flight) * 1000 / (1000 + u64::from(SSD_PERMILLE));
        let slabs = (pages / u64::from(PAGES_PER_BLOCK)) as u32;
        level.ftl_ioctl(&RangePolicy {
            start: 0,
            pages: u64::from(slabs * PAGES_PER_BLOCK),
            mapping,
            gc: VictimPolicy::Greedy,
            over_provisioning_permille: op,
        })?;
        Ok(Ssd { level, slabs })
    }
}

impl SlabStore for Ssd {
    fn slabs(&self) -> u32 {
        self.slabs
    }

    fn write(&mut self, slab: u32, page: u32) -> Result<(), LevelError> {
        let page = u64::from(slab * PAGES_PER_BLOCK + page);
        self.level.ftl_write(T, page, &[0; PAGE_BYTES as usize], Tag::default()).map(|_| ())
    }

    fn free(&mut self, _: u32) -> Result<(), LevelError> {
        Ok(())
    }
}

/// Slabs are blocks of the function level.
struct Functions {
    level: FunctionLevel,
    blocks: Vec<Option<GrantBlock>>,
    channel: u32,
}

impl Functions {
    fn new(grant: Grant) -> Result<Functions, LevelError> {
        let level = FunctionLevel::open(grant)?;
        level.set_ops(0)?;
        let blocks = vec![None; level.geometry().blocks() as usize];
        Ok(Functions { level, blocks, channel: 0 })
    }
}

impl SlabStore for Functions {
    fn slabs(&self) -> u32 {
        self.blocks.len() as u32
    }

    fn write(&mut self, slab: u32, page: u32) -> Result<(), LevelError> {
        let block = match self.blocks[slab as usize] {
            Some(block) => block,
            None => {
                let channels = self.level.geometry().channels();
                let mut taken = Err(LevelError::NoFreeBlock { channel: self.channel });
                for _ in 0..channels {
                    self.channel = (self.channel + 1) % channels;
                    taken = self.level.address_mapper(T, self.channel, Mapping::Block, u64::from(slab));
                    if taken.is_ok() {
                        break;
                    }
                }
                let block = taken?.block;
                self.blocks[slab as usize] = Some(block);
                block
            }
        };
        self.level.flash_write(T, block, page, &[0; PAGE_BYTES as usize]).map(|_| ())
    }

    fn free(&mut self, slab: u32) -> Result<(), LevelError> {
        match self.blocks[slab as usize].take() {
            Some(block) => self.level.flash_trim(block),
            None => Ok(()),
        }
    }
}

/// Slabs are blocks, one to one.
struct Blocks {
    raw: RawLevel,
    blocks: Vec<GrantBlock>,
}

impl Blocks {
    fn new(grant: Grant) -> Result<Blocks, LevelError> {
        let raw = RawLevel::new(grant);
        let luns = raw.geometry().lun_list();
        let on_luns =
            |block| luns.iter().map(move |(channel, lun)| GrantBlock { channel: *channel, lun: *lun, block });
        let blocks = (0..raw.geometry().blocks_per_lun).flat_map(on_luns).collect();
        Ok(Blocks { raw, blocks })
    }
}

impl SlabStore for Blocks {
    fn slabs(&self) -> u32 {
        self.blocks.len() as u32
    }

    fn write(&mut self, slab: u32, page: u32) -> Result<(), LevelError> {
        let page = self.blocks[slab as usize].page(page);
        self.raw.page_write(T, page, &[0; PAGE_BYTES as usize], &[]).map(|_| ())
    }

    fn free(&mut self, slab: u32) -> Result<(), LevelError> {
        self.raw.block_erase(T, self.blocks[slab as usize]).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_erase_in_the_proportions_of_the_papers_table() {
        let table = table1(32, 1).unwrap();
        let ratio = |at: usize| table.rows[at].ratio;
        assert!(ratio(1) <= 0.92 && ratio(2) <= 0.75 && ratio(3) <= 0.74, "{:#?}", table.rows);
        assert!(table.rows.iter().all(|row| (row.identity - 1.0).abs() < 0.05), "{:#?}", table.rows);
        assert_eq!(table.rows[3].flash_copy_bytes, 0);
    }
}
