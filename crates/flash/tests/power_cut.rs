//! Power cut at every program and erase of a workload, on each level and in the monitor's swap.
//!
//! The workload runs once. Before each operation the device is copied, power goes in that operation in the copy (it is
//! undone, torn, or done and not reported), and the copy is opened again: what had been acknowledged is there; what was
//! under way is there whole or not at all; no LUN and no block is missing; the copy takes new writes, and its erase
//! identity holds. `WEFT_CAMPAIGN=1` runs 20,000 operations a level, otherwise it is a slice of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use support::{CutEverywhere, Random, campaign, device};
use weft_core::{Nanos, StreamId, Tag};
use weft_device::FaultPlan;
use weft_device::gc::VictimPolicy;
use weft_device::nand::OpenChannel;
use weft_flash::function::Mapping;
use weft_flash::monitor::LevelPolicy;
use weft_flash::{
    FunctionLevel, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup,
    RangeMapping, RangePolicy, RawLevel,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;

fn operations(slice: u64) -> u64 {
    if campaign() { 20_000 } else { slice }
}

/// A page that says whose it is and how new, at both ends.
fn page_of(key: u64, version: u64) -> Vec<u8> {
    let mut data = vec![version as u8; PAGE];
    data[..8].copy_from_slice(&key.to_le_bytes());
    data[8..16].copy_from_slice(&version.to_le_bytes());
    data[PAGE - 8..].copy_from_slice(&version.to_le_bytes());
    data
}

/// The version that a page says; 0 of a page of zeros. Panics when it is neither.
fn version_of(key: u64, data: &[u8]) -> u64 {
    if data.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let number = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
    assert_eq!(data, page_of(key, number(8)), "key {key} holds something else");
    number(8)
}

/// What the application was promised, and what it is about to change.
#[derive(Default, Clone)]
struct Promises {
    acknowledged: BTreeMap<u64, u64>,
    /// Keys with what they may be instead.
    under_way: BTreeMap<u64, u64>,
}

impl Promises {
    fn check(&self, key: u64, found: u64, at: u64) {
        let promised = self.acknowledged.get(&key).copied().unwrap_or(0);
        let other = self.under_way.get(&key).copied().unwrap_or(promised);
        assert!(
            found == promised || found == other,
            "cut {at}, key {key}: {found}, not {promised} or {other}"
        );
    }
}

type Shared = Arc<Mutex<Promises>>;

fn request(name: &str, luns: u64, monitor: &Monitor) -> GrantRequest {
    GrantRequest {
        name: name.into(),
        bytes: luns * monitor.lun_bytes() * 4 / 5,
        over_provisioning_permille: 250,
    }
}

struct Rig {
    cut: Arc<CutEverywhere>,
    monitor: Arc<Monitor>,
    checks: Arc<AtomicU64>,
}

fn rig(channels: u32, luns: u32, blocks: u32, pages: u32) -> Rig {
    rig_on(device(channels, luns, blocks, pages), MonitorSetup::default())
}

fn rig_on(device: OpenChannel, setup: MonitorSetup) -> Rig {
    let cut = CutEverywhere::new(device);
    let monitor = Monitor::format(cut.clone(), setup).unwrap();
    Rig { cut, monitor, checks: Arc::default() }
}

impl Rig {
    /// From now on power is cut at every operation; the check gets the monitor as it was opened again.
    fn arm(&self, mut check: impl FnMut(&Arc<Monitor>, u64) + Send + 'static) {
        let free = self.monitor.free_luns().unwrap();
        let names = |monitor: &Monitor| -> Vec<(String, usize)> {
            monitor.grants().into_iter().map(|grant| (grant.name, grant.luns.len())).collect()
        };
        let grants = names(&self.monitor);
        let checks = self.checks.clone();
        self.cut.arm(1, move |device: OpenChannel, at| {
            let device = Arc::new(device);
            let monitor = Monitor::open(device.clone()).unwrap();
            assert_eq!(monitor.free_luns().unwrap(), free, "cut {at}: a LUN was leaked");
            assert_eq!(names(&monitor), grants, "cut {at}");
            check(&monitor, at);
            device.verify_identity().unwrap();
            checks.fetch_add(1, Relaxed);
        });
    }

    fn run(&self, operations: u64, mut step: impl FnMut()) {
        let end = self.cut.operations() + operations;
        while self.cut.operations() < end {
            step();
        }
        self.cut.disarm();
        self.cut.device.verify_identity().unwrap();
        assert!(self.checks.load(Relaxed) >= operations, "{}", self.checks.load(Relaxed));
    }
}

/// The application's log of the raw level: pages with key and number beside them, appended block after block; a block
/// that is used again first gives its live pages to the log.
struct RawLog {
    raw: RawLevel,
    blocks: Vec<GrantBlock>,
    /// By key: place and number.
    live: BTreeMap<u64, (usize, u32, u64)>,
    at: usize,
    next: u32,
    number: u64,
}

impl RawLog {
    fn open(raw: RawLevel) -> RawLog {
        let geometry = raw.geometry().clone();
        let blocks: Vec<GrantBlock> = (0..geometry.blocks_per_lun)
            .flat_map(|block| {
                geometry.lun_list().into_iter().map(move |(channel, lun)| GrantBlock { channel, lun, block })
            })
            .collect();
        let mut log = RawLog { raw, blocks, live: BTreeMap::new(), at: 0, next: 0, number: 0 };
        let mut newest_block = (0, 0);
        for at in 0..log.blocks.len() {
            let look = log.raw.look(log.blocks[at]).unwrap();
            for page in 0..look.programmed {
                let mut oob = [0; 16];
                if log.raw.page_read(T, log.blocks[at].page(page), 0, &mut [], &mut oob).is_err() {
                    continue;
                }
                let number = |at: usize| u64::from_le_bytes(oob[at..at + 8].try_into().unwrap());
                let (key, number) = (number(0), number(8));
                let entry = log.live.entry(key).or_insert((at, page, number));
                if entry.2 < number {
                    *entry = (at, page, number);
                }
                newest_block = newest_block.max((number, at));
            }
        }
        log.number = newest_block.0;
        log.at = newest_block.1;
        let look = log.raw.look(log.blocks[log.at]).unwrap();
        log.next = look.programmed;
        log
    }

    fn append(&mut self, key: u64, data: &[u8]) {
        while self.next == self.raw.geometry().pages_per_block {
            self.advance();
        }
        self.put(key, data);
    }

    /// Goes on in the next block, where nothing is live, and moves what is live out of the one after it.
    fn advance(&mut self) {
        self.at = (self.at + 1) % self.blocks.len();
        self.next = 0;
        assert!(self.live.values().all(|(at, ..)| *at != self.at));
        if self.raw.look(self.blocks[self.at]).unwrap().programmed > 0 {
            self.raw.block_erase(T, self.blocks[self.at]).unwrap();
        }
        let following = (self.at + 1) % self.blocks.len();
        let standing: Vec<(u64, u32)> = self
            .live
            .iter()
            .filter(|(_, (at, ..))| *at == following)
            .map(|(key, (_, page, _))| (*key, *page))
            .collect();
        for (key, page) in standing {
            let mut data = vec![0; PAGE];
            self.raw.page_read(T, self.blocks[following].page(page), 0, &mut data, &mut []).unwrap();
            self.put(key, &data);
        }
    }

    fn put(&mut self, key: u64, data: &[u8]) {
        self.number += 1;
        let mut oob = key.to_le_bytes().to_vec();
        oob.extend_from_slice(&self.number.to_le_bytes());
        self.raw.page_write(T, self.blocks[self.at].page(self.next), data, &oob).unwrap();
        self.live.insert(key, (self.at, self.next, self.number));
        self.next += 1;
    }

    fn get(&self, key: u64) -> u64 {
        let Some((at, page, _)) = self.live.get(&key) else { return 0 };
        let mut data = vec![0; PAGE];
        self.raw.page_read(T, self.blocks[*at].page(*page), 0, &mut data, &mut []).unwrap();
        version_of(key, &data)
    }
}

#[test]
fn a_log_on_the_raw_level_keeps_what_it_acknowledged() {
    const KEYS: u64 = 12;
    let rig = rig(2, 1, 12, 8);
    let grant = rig.monitor.allocate(&request("log", 2, &rig.monitor)).unwrap();
    let mut log = RawLog::open(RawLevel::new(grant));
    let promises: Shared = Arc::default();
    let seen = promises.clone();
    rig.arm(move |monitor, at| {
        let log = RawLog::open(RawLevel::new(monitor.attach("log").unwrap()));
        let promises = seen.lock().clone();
        (0..KEYS).for_each(|key| promises.check(key, log.get(key), at));
    });
    let mut random = Random(11);
    let mut version = 0;
    rig.run(operations(1_500), || {
        // Now and then a key that is hardly ever written, so that the log has something to keep.
        let key = if random.below(50) == 0 { random.below(KEYS) } else { random.below(KEYS / 2) };
        version += 1;
        promises.lock().under_way.insert(key, version);
        log.append(key, &page_of(key, version));
        let mut promises = promises.lock();
        promises.under_way.clear();
        promises.acknowledged.insert(key, version);
    });
}

/// The application of the function level: a key is a block, written anew each time.
fn function_get(level: &FunctionLevel, key: u64) -> u64 {
    let mut blocks: Vec<_> = level.mapped_blocks().into_iter().filter(|found| found.label == key).collect();
    blocks.sort_by_key(|found| std::cmp::Reverse(found.id));
    let pages = level.geometry().pages_per_block;
    for found in blocks {
        let mut versions = Vec::new();
        for page in 0..pages {
            let mut data = vec![0; PAGE];
            match level.flash_read(T, found.block, page, 0, &mut data) {
                Ok(_) => versions.push(version_of(key, &data)),
                Err(LevelError::NotProgrammed { .. } | LevelError::Unreadable { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        if versions.len() == pages as usize && versions.iter().all(|version| *version == versions[0]) {
            return versions[0];
        }
    }
    0
}

#[test]
fn blocks_of_the_function_level_are_each_mapped_or_free_and_none_is_lost() {
    const KEYS: u64 = 10;
    let rig = rig(2, 1, 14, 4);
    let grant = rig.monitor.allocate(&request("blocks", 2, &rig.monitor)).unwrap();
    let level = FunctionLevel::open(grant).unwrap();
    let total = level.geometry().blocks();
    let promises: Shared = Arc::default();
    let seen = promises.clone();
    rig.arm(move |monitor, at| {
        let level = FunctionLevel::open(monitor.attach("blocks").unwrap()).unwrap();
        let promises = seen.lock().clone();
        (0..KEYS).for_each(|key| promises.check(key, function_get(&level, key), at));
        let (mapped, free, retired) = level.census();
        assert_eq!((mapped + free + retired, retired), (total, 0), "cut {at}");
        assert_eq!(level.mapped_blocks().len() as u32, mapped);
        if at % 16 == 0 {
            // Every block can be had: what is mapped and what can be taken is the whole grant.
            level.set_ops(0).unwrap();
            let mut taken = 0;
            for channel in 0..2 {
                while let Ok(found) = level.address_mapper(T, channel, Mapping::Block, 99) {
                    level.flash_write(T, found.block, 0, &page_of(99, 1)).unwrap();
                    taken += 1;
                }
            }
            assert_eq!(taken, free, "cut {at}");
        }
    });
    let mut random = Random(12);
    let mut version = 0;
    let mut held: BTreeMap<u64, GrantBlock> = BTreeMap::new();
    rig.run(operations(1_200), || {
        // Half of the keys are cold, so that wear leveling has something to move.
        let key = if random.below(20) == 0 { random.below(KEYS) } else { random.below(KEYS / 2) };
        version += 1;
        promises.lock().under_way.insert(key, version);
        let mapping = if version % 3 == 0 { Mapping::Page } else { Mapping::Block };
        let channel = random.below(2) as u32;
        let taken = level.address_mapper(T, channel, mapping, key);
        let block = taken.or_else(|_| level.address_mapper(T, 1 - channel, mapping, key)).unwrap().block;
        for page in 0..4 {
            let page = if mapping == Mapping::Page { 3 - page } else { page };
            level.flash_write(T, block, page, &page_of(key, version)).unwrap();
        }
        {
            let mut promises = promises.lock();
            promises.under_way.clear();
            promises.acknowledged.insert(key, version);
        }
        if let Some(old) = held.insert(key, block) {
            level.flash_trim(old).unwrap();
        }
        if version % 40 == 0 {
            for shuffled in level.wear_leveler(T, 1, 2).unwrap().shuffled {
                held.values_mut()
                    .filter(|block| **block == shuffled.from)
                    .for_each(|block| *block = shuffled.to);
            }
        }
        if version % 25 == 0 {
            level.flush(T).unwrap();
        }
    });
}

/// Pages of the policy level's test: a page-mapped range from 0 and a block-mapped one from 1000.
const FIRST_PAGES: u64 = 60;
const SECOND: u64 = 1000;

fn policy_setup() -> PolicySetup {
    PolicySetup { stripe: 2, streams: 2, checkpoint_pages: 70 }
}

fn second_pages(level: &PolicyLevel) -> u64 {
    3 * u64::from(level.unit_pages())
}

fn policy_get(level: &PolicyLevel, page: u64) -> u64 {
    let mut data = vec![0; PAGE];
    level.ftl_read(T, page, &mut data).unwrap();
    version_of(page, &data)
}

fn policy_run(rig: Rig, gc: VictimPolicy, seed: u64, operations: u64) {
    let grant = rig.monitor.allocate(&request("ftl", 2, &rig.monitor)).unwrap();
    let level = PolicyLevel::create(grant, policy_setup()).unwrap();
    let range =
        |start, pages, mapping| RangePolicy { start, pages, mapping, gc, over_provisioning_permille: 70 };
    level.ftl_ioctl(&range(0, FIRST_PAGES, RangeMapping::Page)).unwrap();
    level.ftl_ioctl(&range(SECOND, second_pages(&level), RangeMapping::Block)).unwrap();
    let pages: Vec<u64> = (0..FIRST_PAGES).chain(SECOND..SECOND + second_pages(&level)).collect();
    let promises: Shared = Arc::default();
    let (seen, all) = (promises.clone(), pages.clone());
    let free_units = level.free_units();
    rig.arm(move |monitor, at| {
        let promises = seen.lock().clone();
        let open = || PolicyLevel::open(monitor.attach("ftl").unwrap(), policy_setup()).unwrap();
        let level = open();
        level.verify().unwrap();
        assert_eq!(level.free_units(), free_units, "cut {at}");
        all.iter().for_each(|page| promises.check(*page, policy_get(&level, *page), at));
        if at % 8 != 0 {
            return;
        }
        // It goes on: new writes, and they are there when it is opened once more.
        let mut random = Random(at + 1);
        let mut rewritten = BTreeMap::new();
        for _ in 0..80 {
            let page = all[random.below(all.len() as u64) as usize];
            level.ftl_write(T, page, &page_of(page, 1 << 40), Tag::default()).unwrap();
            rewritten.insert(page, 1 << 40);
        }
        drop(level);
        let level = open();
        level.verify().unwrap();
        rewritten
            .iter()
            .for_each(|(page, version)| assert_eq!(policy_get(&level, *page), *version, "cut {at}"));
    });
    let mut random = Random(seed);
    let mut version = 0;
    let mut cursor = 0;
    rig.run(operations, || {
        version += 1;
        let choice = random.below(100);
        let second = second_pages(&level);
        // Random pages, runs of pages, and a range that is rewritten in order.
        let (first, count) = match choice {
            0..50 => (random.below(FIRST_PAGES), 1),
            50..60 => (random.below(FIRST_PAGES - 4), 1 + random.below(4)),
            60..85 => {
                cursor = (cursor + 1) % second;
                (SECOND + cursor, 1)
            }
            _ => (SECOND + random.below(second), 1),
        };
        if choice % 25 == 24 {
            let (start, pages) =
                if choice < 50 { (first, 1) } else { (SECOND, u64::from(level.unit_pages())) };
            promises.lock().under_way.extend((start..start + pages).map(|page| (page, 0)));
            level.trim(T, start, pages).unwrap();
            level.flush(T).unwrap();
            let mut promises = promises.lock();
            promises.under_way.clear();
            promises.acknowledged.extend((start..start + pages).map(|page| (page, 0)));
            return;
        }
        let data: Vec<u8> = (first..first + count).flat_map(|page| page_of(page, version)).collect();
        promises.lock().under_way.extend((first..first + count).map(|page| (page, version)));
        let tag = Tag { stream: StreamId((version % 3) as u16), ..Tag::default() };
        level.ftl_write(T, first, &data, tag).unwrap();
        let mut promises = promises.lock();
        promises.under_way.clear();
        promises.acknowledged.extend((first..first + count).map(|page| (page, version)));
    });
    level.verify().unwrap();
    let copied: u64 = level.ranges().iter().map(|(_, counts)| counts.copied).sum();
    assert!(copied > 0);
}

#[test]
fn the_policy_level_finds_every_page_that_was_acknowledged_with_greedy_cleaning() {
    policy_run(rig(2, 1, 34, 4), VictimPolicy::Greedy, 13, operations(900));
}

#[test]
fn the_policy_level_finds_every_page_that_was_acknowledged_with_first_in_first_out_cleaning() {
    policy_run(rig(2, 1, 34, 4), VictimPolicy::Fifo, 14, operations(600));
}

/// A command that was under way: its tenant, its block, and what the block may hold instead.
type UnderWay = (usize, u32, Vec<u64>);

#[test]
fn the_policy_level_finds_every_page_on_flash_that_fails_too() {
    let plan = FaultPlan { seed: 5, program_failures: 4_000, erase_failures: 4_000, ..FaultPlan::default() };
    let operations = operations(1_500).min(6_000);
    let rig = rig_on(device(2, 1, 64, 4).with_faults(plan), MonitorSetup { spares_per_lun: 30 });
    let device = rig.cut.clone();
    policy_run(rig, VictimPolicy::CostBenefit, 16, operations);
    assert!(!device.device.bad_blocks().is_empty());
}

#[test]
fn exchanging_luns_loses_nothing_of_either_tenant() {
    let rig = rig(2, 2, 12, 4);
    let names = ["hot", "cold"];
    let tenants =
        names.map(|name| RawLevel::new(rig.monitor.allocate(&request(name, 1, &rig.monitor)).unwrap()));
    let blocks = tenants[0].geometry().blocks_per_lun;
    let at = |block| GrantBlock { channel: 0, lun: 0, block };
    // By tenant and block: pages and their versions.
    let contents: Arc<Mutex<[Vec<Vec<u64>>; 2]>> = Arc::new(Mutex::new([vec![], vec![]]));
    let other: Arc<Mutex<Option<UnderWay>>> = Arc::default();
    for (number, tenant) in tenants.iter().enumerate() {
        for block in 0..blocks {
            let pages: Vec<u64> = (0..u64::from(block) % 5).map(|page| page + 1).collect();
            for (page, version) in pages.iter().enumerate() {
                let data = page_of(number as u64, *version);
                tenant.page_write(T, at(block).page(page as u32), &data, &version.to_le_bytes()).unwrap();
            }
            contents.lock()[number].push(pages);
        }
    }
    let (seen, seen_other) = (contents.clone(), other.clone());
    rig.arm(move |monitor, cut| {
        let contents = seen.lock().clone();
        let other = seen_other.lock().clone();
        for (number, name) in names.into_iter().enumerate() {
            let raw = RawLevel::new(monitor.attach(name).unwrap());
            for block in 0..blocks {
                let programmed = raw.look(at(block)).unwrap().programmed;
                let read = |page| {
                    let (mut data, mut oob) = (vec![0; PAGE], [0; 8]);
                    let found = raw.page_read(T, at(block).page(page), 0, &mut data, &mut oob);
                    found.ok().map(|_| {
                        assert_eq!(version_of(number as u64, &data), u64::from_le_bytes(oob));
                        u64::from_le_bytes(oob)
                    })
                };
                let found: Vec<Option<u64>> = (0..programmed).map(read).collect();
                let wanted: Vec<Option<u64>> =
                    contents[number][block as usize].iter().copied().map(Some).collect();
                if found == wanted {
                    continue;
                }
                let Some((_, _, pages)) = other.as_ref().filter(|o| (o.0, o.1) == (number, block)) else {
                    panic!("cut {cut}: {name} block {block}: {found:?}, not {wanted:?}");
                };
                // The operation that was under way: done, or its page is torn, or the block is half erased.
                let done: Vec<Option<u64>> = pages.iter().copied().map(Some).collect();
                let mut torn = wanted.clone();
                torn.push(None);
                let half_erased = pages.is_empty() && found.iter().all(Option::is_none);
                assert!(found == done || found == torn || half_erased, "cut {cut}: {found:?} of {wanted:?}");
            }
        }
    });
    let mut random = Random(15);
    let mut swaps = 0;
    rig.run(operations(1_200), || {
        for _ in 0..30 {
            // The hot tenant mostly; the first one is hot for a while, then the other.
            let hot = (swaps / 5 % 2) as usize;
            let number = if random.below(10) == 0 { 1 - hot } else { hot };
            let block = random.below(u64::from(blocks)) as u32;
            let held = contents.lock()[number][block as usize].clone();
            let mut after = held.clone();
            if held.len() == 4 {
                after.clear();
                *other.lock() = Some((number, block, after.clone()));
                tenants[number].block_erase(T, at(block)).unwrap();
            } else {
                let version = random.next() >> 8;
                after.push(version);
                *other.lock() = Some((number, block, after.clone()));
                let data = page_of(number as u64, version);
                let page = at(block).page(held.len() as u32);
                tenants[number].page_write(T, page, &data, &version.to_le_bytes()).unwrap();
            }
            contents.lock()[number][block as usize] = after;
            *other.lock() = None;
        }
        let policy = LevelPolicy { max_over_mean: 1.001, gap_erases_min: 0, swaps_max: 1 };
        swaps += rig.monitor.level_wear(policy, T).unwrap().swaps;
    });
    assert!(swaps > 3, "{swaps}");
}
