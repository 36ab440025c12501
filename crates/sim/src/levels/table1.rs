//! Table I of the Prism-SSD paper (ICDCS 2019, section VI-A) at small scale: what a slab cache on each level copies and
//! erases.
//!
//! The paper: 30 GB of flash, 140 million sets of normally distributed keys, 50 GB in all, blocks of 8 MiB (inferred from
//! the table itself). Here: the same proportions, the flash and the block about a hundredth. Two numbers are not in the
//! paper and are chosen such that the ratios come out near the paper's: the share of the flash that is live data, and
//! the over-provisioning of the ordinary SSD. Both are the same at every size, as is the share of its flash that the SSD keeps
//! free; and each row has the same flash: what the monitor keeps for itself (its log, spares) the SSD keeps as spare blocks.
//!
//! - **Original**: on a conventional SSD ([`Ssd`]) with greedy cleaning that gets no trims; slabs are an eighth of its
//!   reclaim unit. A quarter of the slabs is kept free.
//! - **Policy**: the same cache on a block-mapped range, a slab a block: the flash copies nothing.
//! - **Function**: slabs are blocks that are taken and trimmed; the cache sees how fast they come back and keeps as many
//!   free as that asks for ([`Reserve::Rates`]).
//! - **Raw**: the cache keeps its own list of blocks and erases them itself; it keeps free by the same rule.

use super::reserve::Reserve;
use super::slabs::{SlabCache, SlabCounts, SlabStore};
use crate::flash::granted;
use serde::Serialize;
use std::sync::Arc;
use weft_core::random::spread;
use weft_core::{Nanos, Tag};
use weft_device::Geometry;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashCounters, FlashSetup, Keep, OpenChannel};
use weft_device::ssd::{Ssd, SsdError, SsdSetup};
use weft_flash::function::Mapping;
use weft_flash::{
    FunctionLevel, Grant, GrantBlock, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup,
    RangeMapping, RangePolicy, RawLevel,
};

/// Bytes of an item: 50 GB over 140 million.
const ITEM_BYTES: u32 = 357;
const PAGE_BYTES: u32 = 4096;
const PAGES_PER_BLOCK: u32 = 32;
const CHANNELS: u32 = 8;
const LUNS: u32 = 4;
/// Live data over the flash that a row has, in thousandths: chosen such that the first row copies what it does in the paper.
const LIVE_PERMILLE: u64 = 290;
/// Over-provisioning inside the ordinary SSD.
const SSD_OVER_PROVISIONING: f64 = 0.313;
/// Erase blocks of a reclaim unit of the SSD: slabs are an eighth of them.
const SSD_UNIT_BLOCKS: u32 = 8;
/// The SSD cleans when fewer than one reclaim unit in so many is free.
const SSD_RESERVE_SHARE: u32 = 122;
/// Slabs that a cache keeps free when it does not see the flash: a quarter.
const STATIC: Reserve = Reserve::Fixed { permille: 250 };

/// A row of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table1Row {
    /// Name of the level, as in the paper.
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
    /// One row for each level.
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
    let luns = u64::from(CHANNELS * LUNS);
    let flash_bytes = luns * u64::from(blocks_per_lun) * block_bytes;
    let mut geometry = Geometry::bbssd();
    (geometry.channels, geometry.luns_per_channel, geometry.planes) = (CHANNELS, LUNS, 1);
    (geometry.pages_per_block, geometry.page_bytes) = (PAGES_PER_BLOCK, PAGE_BYTES);
    let setup = FlashSetup::new(geometry.with_size(flash_bytes)).keeping(Keep::Oob);
    let monitor = Monitor::format(Arc::new(OpenChannel::memory(&setup)?), MonitorSetup::default())?;
    let blocks = (monitor.lun_bytes() / block_bytes) as u32;
    let bytes = luns * monitor.lun_bytes();
    let keys = (bytes * LIVE_PERMILLE / 1000 / u64::from(ITEM_BYTES)) as u32;
    // 50 GB on 30 GB.
    let sets = bytes * 5 / 3 / u64::from(ITEM_BYTES);
    let study = Study { setup, blocks, keys, sets, seed };
    let drive = study.drive()?;
    let slabs = (drive.capacity_blocks() / u64::from(PAGES_PER_BLOCK)) as u32;
    let geometry = &study.setup.geometry;
    let mut rows = vec![study.row("Original", 1.0, STATIC, OrdinarySsd { drive: &drive, slabs }, &drive)?];
    let (device, grant) = granted(geometry)?;
    rows.push(study.row("Policy", 0.892, STATIC, Policy::new(grant, slabs)?, &*device)?);
    let (device, grant) = granted(geometry)?;
    rows.push(study.row("Function", 0.705, Reserve::Rates, Functions::new(grant)?, &*device)?);
    let (device, grant) = granted(geometry)?;
    rows.push(study.row("Raw", 0.702, Reserve::Rates, Blocks::new(grant), &*device)?);
    let first = rows[0].erases as f64;
    rows.iter_mut().for_each(|row| row.ratio = row.erases as f64 / first);
    Ok(Table1 { flash_bytes, block_bytes, sets, keys, rows })
}

struct Study {
    setup: FlashSetup,
    /// Blocks of each LUN that a row has.
    blocks: u32,
    keys: u32,
    sets: u64,
    seed: u64,
}

impl Study {
    /// The ordinary SSD.
    fn drive(&self) -> Result<Ssd, LevelError> {
        let shape = self.setup.shape();
        let units = shape.luns() * self.blocks / SSD_UNIT_BLOCKS;
        let flash = self.setup.clone().keeping(Keep::Nothing);
        let drive = SsdSetup {
            luns_per_unit: Some(SSD_UNIT_BLOCKS),
            reserve_units: (units / SSD_RESERVE_SHARE).max(1),
            spare_blocks_per_plane: shape.blocks_per_plane - self.blocks,
            ..SsdSetup::conventional(flash, SSD_OVER_PROVISIONING)
        };
        Ssd::new(&drive).map_err(refused)
    }

    fn row<S: SlabStore>(
        &self,
        level: &'static str,
        paper_ratio: f64,
        reserve: Reserve,
        store: S,
        device: &impl Counted,
    ) -> Result<Table1Row, LevelError> {
        let items_per_page = PAGE_BYTES / ITEM_BYTES;
        let mut cache = SlabCache::new(store, self.keys, items_per_page, PAGES_PER_BLOCK, reserve);
        (0..self.keys).try_for_each(|key| cache.set(key))?;
        let mut normal = Normal(self.seed);
        // Until every block has been used and the cache has settled.
        for _ in 0..self.sets {
            cache.set(normal.below(self.keys))?;
        }
        let (items, flash) = (cache.counts(), device.flash());
        for _ in 0..self.sets {
            cache.set(normal.below(self.keys))?;
        }
        let done: SlabCounts = cache.counts();
        let after = device.flash();
        device.verify()?;
        let programmed = (after.pages_programmed - flash.pages_programmed) * u64::from(PAGE_BYTES);
        let written = (done.pages - items.pages) * u64::from(PAGE_BYTES);
        let erases = after.blocks_erased - flash.blocks_erased;
        Ok(Table1Row {
            level,
            set_bytes: (done.sets - items.sets) * u64::from(ITEM_BYTES),
            item_copy_bytes: (done.copies - items.copies) * u64::from(ITEM_BYTES),
            flash_copy_bytes: programmed.saturating_sub(written),
            erases,
            ratio: 1.0,
            paper_ratio,
            identity: (erases * self.setup.shape().block_bytes()) as f64 / programmed.max(1) as f64,
        })
    }
}

fn refused(error: SsdError) -> LevelError {
    LevelError::BadRequest(error.to_string())
}

/// Keys about the middle one, with a sixth of all keys as standard deviation: the sum of twelve uniform draws. Each seed has
/// keys of its own.
struct Normal(u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        // SplitMix64: each state is the seed of one sequence only.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (spread(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, keys: u32) -> u32 {
        let sum: f64 = (0..12).map(|_| self.uniform()).sum();
        let at = (0.5 + (sum - 6.0) / 6.0).clamp(0.0, 1.0);
        ((at * f64::from(keys)) as u32).min(keys - 1)
    }
}

/// What is below a cache: its counters.
trait Counted {
    /// What the flash has counted.
    fn flash(&self) -> FlashCounters;
    /// Checks the erase identity.
    fn verify(&self) -> Result<(), LevelError>;
}

impl Counted for Ssd {
    fn flash(&self) -> FlashCounters {
        self.flash_counters()
    }

    fn verify(&self) -> Result<(), LevelError> {
        self.verify_identity().map_err(refused)
    }
}

impl Counted for OpenChannel {
    fn flash(&self) -> FlashCounters {
        self.counters()
    }

    fn verify(&self) -> Result<(), LevelError> {
        Ok(self.verify_identity()?)
    }
}

/// An ordinary SSD: the drive model.
struct OrdinarySsd<'a> {
    drive: &'a Ssd,
    slabs: u32,
}

impl SlabStore for OrdinarySsd<'_> {
    fn slabs(&self) -> u32 {
        self.slabs
    }

    fn write(&mut self, issued: Nanos, slab: u32, page: u32) -> Result<Nanos, LevelError> {
        let block = u64::from(slab * PAGES_PER_BLOCK + page);
        self.drive.write(issued, block, 1, &[], None).map_err(refused)
    }
}

/// A block-mapped range.
struct Policy {
    level: PolicyLevel,
    slabs: u32,
}

impl Policy {
    fn new(grant: Grant, slabs: u32) -> Result<Policy, LevelError> {
        let setup = PolicySetup { stripe: 1, streams: 1, checkpoint_pages: u64::MAX };
        let level = PolicyLevel::create(grant, setup)?;
        level.ftl_ioctl(&RangePolicy {
            start: 0,
            pages: u64::from(slabs * PAGES_PER_BLOCK),
            mapping: RangeMapping::Block,
            gc: VictimPolicy::Greedy,
            over_provisioning_permille: 0,
        })?;
        Ok(Policy { level, slabs })
    }
}

impl SlabStore for Policy {
    fn slabs(&self) -> u32 {
        self.slabs
    }

    fn write(&mut self, issued: Nanos, slab: u32, page: u32) -> Result<Nanos, LevelError> {
        let page = u64::from(slab * PAGES_PER_BLOCK + page);
        Ok(self.level.ftl_write(issued, page, &[0; PAGE_BYTES as usize], Tag::default())?.done)
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

    fn write(&mut self, issued: Nanos, slab: u32, page: u32) -> Result<Nanos, LevelError> {
        let block = match self.blocks[slab as usize] {
            Some(block) => block,
            None => {
                let channels = self.level.geometry().channels();
                let mut taken = Err(LevelError::NoFreeBlock { channel: self.channel });
                for _ in 0..channels {
                    self.channel = (self.channel + 1) % channels;
                    taken = self.level.address_mapper(issued, self.channel, Mapping::Block, u64::from(slab));
                    if taken.is_ok() {
                        break;
                    }
                }
                let block = taken?.block;
                self.blocks[slab as usize] = Some(block);
                block
            }
        };
        Ok(self.level.flash_write(issued, block, page, &[0; PAGE_BYTES as usize])?.done)
    }

    fn free(&mut self, issued: Nanos, slab: u32) -> Result<Nanos, LevelError> {
        let Some(block) = self.blocks[slab as usize].take() else { return Ok(issued) };
        self.level.flash_trim(block)?;
        self.level.reclaim(issued)?;
        Ok(self.level.free_at(block)?.max(issued))
    }
}

/// Slabs are blocks, one to one.
struct Blocks {
    raw: RawLevel,
    blocks: Vec<GrantBlock>,
}

impl Blocks {
    fn new(grant: Grant) -> Blocks {
        let raw = RawLevel::new(grant);
        let luns = raw.geometry().lun_list();
        let on_luns =
            |block| luns.iter().map(move |(channel, lun)| GrantBlock { channel: *channel, lun: *lun, block });
        let blocks = (0..raw.geometry().blocks_per_lun).flat_map(on_luns).collect();
        Blocks { raw, blocks }
    }
}

impl SlabStore for Blocks {
    fn slabs(&self) -> u32 {
        self.blocks.len() as u32
    }

    fn write(&mut self, issued: Nanos, slab: u32, page: u32) -> Result<Nanos, LevelError> {
        let page = self.blocks[slab as usize].page(page);
        Ok(self.raw.page_write(issued, page, &[0; PAGE_BYTES as usize], &[])?.done)
    }

    fn free(&mut self, issued: Nanos, slab: u32) -> Result<Nanos, LevelError> {
        Ok(self.raw.block_erase(issued, self.blocks[slab as usize])?.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_erase_in_the_proportions_of_the_papers_table_at_each_scale() {
        let long = std::env::var("WEFT_CAMPAIGN").is_ok_and(|value| value == "1");
        let scales: &[u32] = if long { &[64, 256, 1024] } else { &[64, 128] };
        let tables: Vec<_> =
            scales.iter().zip(1..).map(|(blocks, seed)| table1(*blocks, seed).unwrap()).collect();
        for table in &tables {
            for (row, first) in table.rows.iter().zip(&tables[0].rows) {
                assert!((row.ratio - row.paper_ratio).abs() < 0.02, "{table:#?}");
                assert!((row.ratio - first.ratio).abs() < 0.02, "{table:#?}");
                assert!((row.identity - 1.0).abs() < 0.05, "{table:#?}");
            }
            assert_eq!((table.rows[1].flash_copy_bytes, table.rows[3].flash_copy_bytes), (0, 0));
        }
    }

    #[test]
    fn each_seed_has_keys_of_its_own() {
        let keys = |seed| {
            let mut normal = Normal(seed);
            std::array::from_fn::<u32, 8, _>(|_| normal.below(1 << 20))
        };
        let mut all: Vec<_> = (0..64).map(keys).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 64);
    }
}
