//! The function level after power cuts, failed reads and grown bad blocks, on random shapes.
//!
//! Each seed makes a device and sessions: open, with power that may go several times on the way; take blocks, write, trim,
//! move worn ones; lose power. A model knows what each block was promised to hold. After each opening every block with an
//! acknowledged page is mapped once, with its id, its label and its pages; a trim that was flushed is not undone, and one that was
//! not gives back the whole block or nothing. At the end every block that is good can be taken and written.
//! `WEFT_CAMPAIGN=1` runs 20,000 seeds, otherwise a slice of them; `WEFT_SEED=n` runs one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use support::Random;
use support::flaky::{Flaky, Met, open_in_storm, random_shape, seeds, until_power_goes};
use weft_core::Nanos;
use weft_flash::function::Mapping;
use weft_flash::{FunctionLevel, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;
/// Stands for a place whose program was interrupted or failed.
const TORN: u64 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Mapped,
    /// Trimmed, and not flushed: it may be found again.
    Trimmed,
}

#[derive(Clone, Debug)]
struct Block {
    at: GrantBlock,
    mapping: Mapping,
    life: Life,
    id: Option<u64>,
    /// By place: the page's number and version.
    places: Vec<(u32, u64)>,
    /// The write that was not answered, or failed.
    under_way: Option<(u32, u64)>,
    /// Its flash failed.
    retired: bool,
}

impl Block {
    /// What a read of a page may get; none when it was not written.
    fn newest(&self, page: u32) -> Option<u64> {
        let written = self.places.iter().filter(|place| place.1 != TORN);
        written.rev().find(|place| place.0 == page).map(|place| place.1)
    }
}

struct Run {
    random: Random,
    flaky: Arc<Flaky>,
    /// By label.
    blocks: BTreeMap<u64, Block>,
    labels: u64,
    version: u64,
    spoiled: u64,
    lost: BTreeSet<u64>,
    /// Versions that were not acknowledged and could not be read once: they may be there all the same.
    doubtful: BTreeSet<u64>,
    wounds: u64,
    wounded: u64,
    met: Met,
}

fn open(flaky: &Arc<Flaky>) -> Result<FunctionLevel, LevelError> {
    FunctionLevel::open(Monitor::open(flaky.clone())?.attach("blocks")?)
}

fn data_of(label: u64, page: u32, version: u64) -> Vec<u8> {
    [label, u64::from(page), version].map(u64::to_le_bytes).concat().into_iter().cycle().take(PAGE).collect()
}

impl Run {
    /// After an opening: the blocks are those that were promised.
    fn verify(&mut self, level: &FunctionLevel) {
        let (mapped, free, retired) = level.census();
        assert_eq!(mapped + free + retired, level.geometry().blocks());
        let found = level.mapped_blocks();
        assert_eq!(found.len() as u32, mapped);
        let ids: BTreeSet<u64> = found.iter().map(|found| found.id).collect();
        assert_eq!(ids.len(), found.len(), "an id is there twice");
        let mut left = std::mem::take(&mut self.blocks);
        for found in found {
            let label = found.label;
            let mut block = left.remove(&label).unwrap_or_else(|| panic!("label {label} is not known"));
            assert!(block.id.is_none_or(|id| id == found.id), "label {label} has another id");
            assert_eq!(block.mapping, found.mapping);
            (block.at, block.id, block.life) = (found.block, Some(found.id), Life::Mapped);
            block.retired = false;
            let under_way = block.under_way.take();
            if found.written as usize == block.places.len() + 1
                && let Some((page, version)) = under_way
            {
                let now = self.read(level, &block, label, page).unwrap();
                let whole = now == Some(version);
                block.places.push((page, if whole { version } else { TORN }));
                self.doubtful.extend(Some(version).filter(|_| !whole));
            }
            assert_eq!(found.written as usize, block.places.len(), "label {label}");
            for page in 0..level.geometry().pages_per_block {
                self.check(level, &block, label, page).unwrap();
            }
            self.blocks.insert(label, block);
        }
        for (label, block) in left {
            let promised = block.life == Life::Mapped && block.places.iter().any(|place| place.1 != TORN);
            assert!(!promised, "label {label} is gone: {block:?}");
        }
    }

    /// The version that a page has, [`TORN`] when it cannot be read.
    fn read(
        &self,
        level: &FunctionLevel,
        block: &Block,
        label: u64,
        page: u32,
    ) -> Result<Option<u64>, LevelError> {
        let mut data = vec![0; PAGE];
        match level.flash_read(T, block.at, page, 0, &mut data) {
            Ok(_) => {
                let version = u64::from_le_bytes(data[16..24].try_into().unwrap());
                assert!(
                    data == data_of(label, page, version),
                    "label {label} page {page} holds something else"
                );
                Ok(Some(version))
            }
            Err(LevelError::NotProgrammed { .. }) => Ok(None),
            // Its first program failed, and there was no spare.
            Err(LevelError::BlockRetired { .. }) if block.places.is_empty() => Ok(None),
            Err(LevelError::Unreadable { .. }) => Ok(Some(TORN)),
            Err(other) => Err(other),
        }
    }

    fn check(
        &mut self,
        level: &FunctionLevel,
        block: &Block,
        label: u64,
        page: u32,
    ) -> Result<(), LevelError> {
        let found = self.read(level, block, label, page)?;
        let wanted = block.newest(page);
        if found == wanted || wanted.is_none() && found == Some(TORN) && self.may_be_torn(block, page) {
            return Ok(());
        }
        if found.is_some_and(|version| version > wanted.unwrap_or(0) && self.doubtful.contains(&version)) {
            return Ok(());
        }
        assert_eq!(found, Some(TORN), "label {label} page {page}: not {wanted:?} of {block:?}");
        // In a block that is mapped by pages, one that cannot be read casts doubt on all older ones.
        self.lost.insert(if block.mapping == Mapping::Block { wanted.unwrap_or(label) } else { 0 });
        assert!(self.lost.len() as u64 <= self.spoiled, "label {label} page {page}: {wanted:?} is lost");
        Ok(())
    }

    fn may_be_torn(&self, block: &Block, page: u32) -> bool {
        let torn = |place: &(u32, u64)| *place == (page, TORN);
        block.mapping == Mapping::Block && (block.places.iter().any(torn) || block.under_way.is_some())
    }

    fn take(&mut self, level: &FunctionLevel) -> Result<(), LevelError> {
        let channel = self.random.below(u64::from(level.geometry().channels())) as u32;
        let mapping = if self.random.below(2) == 0 { Mapping::Block } else { Mapping::Page };
        self.labels += 1;
        match level.address_mapper(T, channel, mapping, self.labels) {
            Ok(taken) => {
                let (life, places) = (Life::Mapped, Vec::new());
                let block = Block {
                    at: taken.block,
                    mapping,
                    life,
                    id: None,
                    places,
                    under_way: None,
                    retired: false,
                };
                assert!(!self.mapped().any(|(_, other)| other.at == taken.block));
                self.blocks.insert(self.labels, block);
                Ok(())
            }
            Err(LevelError::NoFreeBlock { .. } | LevelError::TooManyMapped { .. }) => self.trim(level),
            Err(other) => Err(other),
        }
    }

    fn mapped(&self) -> impl Iterator<Item = (&u64, &Block)> {
        self.blocks.iter().filter(|(_, block)| block.life == Life::Mapped)
    }

    fn any(&mut self) -> Option<u64> {
        let count = self.mapped().count() as u64;
        let at = self.random.below(count.max(1)) as usize;
        self.mapped().nth(at).map(|(label, _)| *label)
    }

    fn trim(&mut self, level: &FunctionLevel) -> Result<(), LevelError> {
        let Some(label) = self.any() else { return Ok(()) };
        if let Some(block) = self.blocks.get_mut(&label) {
            level.flash_trim(block.at)?;
            block.life = Life::Trimmed;
        }
        Ok(())
    }

    fn write(&mut self, level: &FunctionLevel, label: u64) -> Result<(), LevelError> {
        let pages = level.geometry().pages_per_block;
        let number = self.random.below(u64::from(pages.min(8))) as u32;
        self.version += 1;
        let version = self.version;
        let Some(block) = self.blocks.get_mut(&label) else { return Ok(()) };
        if block.retired || block.places.len() as u32 == pages {
            return Ok(());
        }
        let page = if block.mapping == Mapping::Block { block.places.len() as u32 } else { number };
        block.under_way = Some((page, version));
        match level.flash_write(T, block.at, page, &data_of(label, page, version)) {
            Ok(_) => {
                block.places.push((page, version));
                block.under_way = None;
                Ok(())
            }
            Err(LevelError::BlockRetired { .. }) => {
                block.retired = true;
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    fn level_wear(&mut self, level: &FunctionLevel) -> Result<(), LevelError> {
        let (threshold, most) = (self.random.below(2) as u32, 1 + self.random.below(3) as u32);
        let report = level.wear_leveler(T, threshold, most)?;
        for moved in report.shuffled {
            let block = self.blocks.get_mut(&moved.label).unwrap();
            assert_eq!((block.at, block.life), (moved.from, Life::Mapped));
            // What could not be written any more has moved to flash that can.
            (block.at, block.retired, block.under_way) = (moved.to, false, None);
        }
        report.stopped.map_or(Ok(()), Err)
    }

    fn step(&mut self, level: &FunctionLevel) -> Result<(), LevelError> {
        match (self.random.below(100), self.any()) {
            (0..10, _) | (_, None) => self.take(level),
            (10..16, _) => self.trim(level),
            (16..18, _) => {
                level.flush(T)?;
                self.blocks.retain(|_, block| block.life == Life::Mapped);
                Ok(())
            }
            (18..20, _) => level.reclaim(T).map(|_| ()),
            (20..28, _) => self.level_wear(level),
            (28..40, Some(label)) => {
                let page = self.random.below(u64::from(level.geometry().pages_per_block)) as u32;
                let block = self.blocks[&label].clone();
                self.check(level, &block, label, page)
            }
            (40, _) if self.wounds > 0 => {
                self.wounds -= 1;
                self.wounded += 1;
                let log = 12u32.div_ceil(self.flaky.device.shape().luns());
                self.flaky.wound(&mut self.random, log);
                Ok(())
            }
            (_, Some(label)) => self.write(level, label),
        }
    }
}

fn run(seed: u64) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        random.next();
    }
    let spares = if random.below(3) == 0 { 2 } else { 5 };
    let few = random.below(6) as u32;
    let device = random_shape(&mut random, |_, luns, _| 12u32.div_ceil(luns) + 1 + spares + 3 + few);
    let transient = [0, 5, 50, 300][random.below(4) as usize];
    let flaky = Flaky::new(device, transient, random.next());
    let monitor = Monitor::format(flaky.clone(), MonitorSetup { spares_per_lun: spares }).unwrap();
    let bytes = u64::from(flaky.device.shape().luns()) * monitor.lun_bytes();
    let over_provisioning_permille = [0, 100][random.below(2) as usize];
    monitor.allocate(&GrantRequest { name: "blocks".into(), bytes, over_provisioning_permille: 0 }).unwrap();
    drop(monitor);
    let wounds = if random.below(2) == 0 { 6 } else { 0 };
    let spoils = random.below(4) == 0;
    let (blocks, lost, met) = (BTreeMap::new(), BTreeSet::new(), Met::default());
    let (labels, version, spoiled, wounded, doubtful) = (0, 0, 0, 0, BTreeSet::new());
    let mut run =
        Run { random, flaky, blocks, labels, version, spoiled, lost, doubtful, wounds, wounded, met };
    let short = run.random.below(3) == 0;
    let sessions = if short { 30 } else { 4 + run.random.below(12) };
    for session in 0..sessions {
        let cuts = run.random.below(4);
        if spoils && session > 0 && run.random.below(2) == 0 {
            run.spoiled += u64::from(run.flaky.spoil(&mut run.random));
        }
        let (flaky, mut random, mut met) = (run.flaky.clone(), run.random.clone(), run.met);
        let level = open_in_storm(&flaky, &mut random, cuts, &mut met, || open(&flaky));
        (run.random, run.met) = (random, met);
        run.verify(&level);
        let _ = level.set_ops(over_provisioning_permille);
        let most = if short { 8 } else { 4 << run.random.below(7) };
        let after = run.random.below(most);
        flaky.device.cut_after(after, run.random.next());
        run.met.cuts += u64::from(until_power_goes(400, || run.step(&level)));
        drop(level);
        flaky.device.power_on();
    }
    run.flaky.heal();
    let level = open(&run.flaky).unwrap_or_else(|error| panic!("not opened at the end: {error}"));
    run.verify(&level);
    finish(&run, &level);
    run.flaky.device.verify_identity().unwrap();
    run.met.failed_blocks = run.flaky.device.bad_blocks().len() as u64;
    run.met
}

/// Every block can be trimmed, and every block that is good can be taken and written.
fn finish(run: &Run, level: &FunctionLevel) {
    run.mapped().for_each(|(_, block)| level.flash_trim(block.at).unwrap());
    level.flush(T).unwrap();
    level.set_ops(0).unwrap();
    let (mapped, free, _) = level.census();
    assert_eq!(mapped, 0);
    let mut written = 0;
    for channel in 0..level.geometry().channels() {
        while let Ok(taken) = level.address_mapper(T, channel, Mapping::Block, 1) {
            match level.flash_write(T, taken.block, 0, &data_of(1, 0, 1)) {
                Ok(_) => written += 1,
                Err(LevelError::BlockRetired { .. }) => {}
                Err(other) => panic!("refused at the end: {other}"),
            }
        }
    }
    assert!(u64::from(free - written) <= run.wounded, "{written} of {free} free blocks can be written");
}

#[test]
fn blocks_keep_what_they_were_promised_and_can_all_be_taken_again() {
    seeds(600, 20_000, run);
}
