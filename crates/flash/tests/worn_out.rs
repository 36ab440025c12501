//! Flash that takes no program and no erase any more, and a disk of the host that is full: whatever was under way when power went,
//! the monitor and the levels open, and all that was acknowledged can be read and moved elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use support::Random;
use support::flaky::{Met, seeds};
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{BlockAddr, Done, FlashError, OpenChannel, PageAddr, PageRead};
use weft_device::{DeviceError, FaultPlan};
use weft_flash::function::Mapping;
use weft_flash::monitor::LevelPolicy;
use weft_flash::share::{self, MonitorServer};
use weft_flash::{
    Backend, FunctionLevel, Grant, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel,
    PolicySetup, RangeMapping, RangePolicy,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;
const PAGES: u32 = 8;

/// Why nothing can be written.
#[derive(Clone, Copy, Debug)]
enum Spent {
    /// Each program and erase fails, and leaves a bad block.
    Worn,
    /// The host has no room for a page.
    DiskFull,
}

#[derive(Debug)]
struct OnSpent {
    device: OpenChannel,
    why: Spent,
}

impl Backend for OnSpent {
    as_the_device!();

    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError> {
        self.device.read_planes(issued, std::slice::from_mut(read))
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        match self.why {
            Spent::Worn => self.device.program(issued, page, data, oob),
            Spent::DiskFull => {
                let (path, source) = ("/disk/nand.img".into(), std::io::ErrorKind::StorageFull.into());
                Err(DeviceError::HostFull { path, source }.into())
            }
        }
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        self.device.erase(issued, block)
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.device.sync()
    }
}

/// What was acknowledged.
#[derive(Clone, Debug, Default)]
struct Known {
    pages: BTreeMap<u64, u64>,
    /// By label: where the block is, and its pages. Those that nothing was written to are free after a cut.
    blocks: BTreeMap<u64, (GrantBlock, Vec<u64>)>,
    /// A write that was not answered.
    under_way: Option<(u64, u64)>,
    version: u64,
}

struct Opened {
    monitor: Arc<Monitor>,
    policy: PolicyLevel,
    function: FunctionLevel,
}

fn open(monitor: Arc<Monitor>) -> Result<Opened, LevelError> {
    let policy = PolicyLevel::open(monitor.attach("ftl")?, PolicySetup::default())?;
    let function = FunctionLevel::open(monitor.attach("blocks")?)?;
    Ok(Opened { monitor, policy, function })
}

fn page_of(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(PAGE / 8)
}

fn version_of(data: &[u8]) -> u64 {
    let version = u64::from_le_bytes(data[..8].try_into().unwrap());
    assert!(data == page_of(version));
    version
}

impl Known {
    /// Work until power goes.
    fn work(&mut self, opened: &Opened, random: &mut Random) -> Result<(), LevelError> {
        loop {
            self.version += 1;
            let version = self.version;
            let labels: Vec<u64> = self.blocks.keys().copied().collect();
            let label = labels.get(random.below(labels.len().max(1) as u64) as usize).copied();
            match (random.below(100), label) {
                (0..60, _) => {
                    let page = random.below(100) + 1000 * random.below(2);
                    self.under_way = Some((page, version));
                    opened.policy.ftl_write(T, page, &page_of(version), Tag::default())?;
                    self.under_way = None;
                    self.pages.insert(page, version);
                }
                (60..64, _) if labels.len() < 12 => {
                    let block = opened.function.address_mapper(T, 0, Mapping::Block, version)?.block;
                    self.blocks.insert(version, (block, Vec::new()));
                }
                (64..85, Some(label)) => {
                    let (block, pages) = self.blocks.get_mut(&label).unwrap();
                    if pages.len() < PAGES as usize {
                        opened.function.flash_write(T, *block, pages.len() as u32, &page_of(version))?;
                        pages.push(version);
                    }
                }
                (85..88, Some(label)) => {
                    let (block, _) = self.blocks.remove(&label).unwrap();
                    opened.function.flash_trim(block)?;
                }
                (88..92, _) => {
                    let report = opened.function.wear_leveler(T, 0, 2)?;
                    for moved in report.shuffled {
                        self.blocks.get_mut(&moved.label).unwrap().0 = moved.to;
                    }
                    report.stopped.map_or(Ok(()), Err)?;
                }
                (92..95, _) => drop(opened.function.flush(T)?),
                (95..98, _) => {
                    let policy = LevelPolicy { max_over_mean: 1.0001, gap_erases_min: 0, swaps_max: 1 };
                    opened.monitor.level_wear(policy, T)?;
                }
                (98, _) => drop(opened.policy.checkpoint(T)?),
                _ => drop(opened.policy.flush(T)?),
            }
        }
    }

    /// All that was acknowledged is there.
    fn check(&self, policy: &PolicyLevel, function: &FunctionLevel, what: &str) {
        let mut data = vec![0; PAGE];
        for (page, version) in &self.pages {
            policy.ftl_read(T, *page, &mut data).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = version_of(&data);
            let is_known = found == *version || self.under_way == Some((*page, found));
            assert!(is_known, "{what}: page {page} has {found}, not {version}");
        }
        let found: BTreeMap<u64, GrantBlock> =
            function.mapped_blocks().into_iter().map(|found| (found.label, found.block)).collect();
        for (label, (_, pages)) in &self.blocks {
            for (page, version) in (0..).zip(pages) {
                function
                    .flash_read(T, found[label], page, 0, &mut data)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(version_of(&data), *version, "{what}: label {label} page {page}");
            }
        }
    }

    /// After a cut.
    fn reopened(&mut self, opened: &Opened) {
        if let Some((page, version)) = self.under_way.take() {
            let mut data = vec![0; PAGE];
            opened.policy.ftl_read(T, page, &mut data).unwrap();
            if version_of(&data) == version {
                self.pages.insert(page, version);
            }
        }
        let found = opened.function.mapped_blocks();
        self.blocks.retain(|label, (block, pages)| {
            let Some(found) = found.iter().find(|found| found.label == *label) else { return false };
            // A page that was not answered cannot be written again.
            while pages.len() < found.written as usize {
                let mut data = vec![0; PAGE];
                match opened.function.flash_read(T, found.block, pages.len() as u32, 0, &mut data) {
                    Ok(_) => pages.push(version_of(&data)),
                    Err(_) => return false,
                }
            }
            *block = found.block;
            true
        });
        let unknown = found.iter().filter(|found| !self.blocks.contains_key(&found.label));
        unknown.for_each(|found| opened.function.flash_trim(found.block).unwrap());
    }
}

/// Opens all that is on spent flash, twice, with tries to write in between.
fn opens_to_read(device: &OpenChannel, why: Spent, known: &Known, remote: bool, seed: u64) {
    let plan = match why {
        Spent::Worn => {
            FaultPlan { program_failures: 1_000_000, erase_failures: 1_000_000, ..FaultPlan::default() }
        }
        Spent::DiskFull => FaultPlan::default(),
    };
    let spent = Arc::new(OnSpent { device: device.fork().unwrap().with_faults(plan), why });
    for round in 0..3 {
        let what = format!("seed {seed}, {why:?}, remote {remote}, opening {round}");
        let refused = |error: LevelError| -> ! { panic!("{what}: {error}") };
        let monitor = Monitor::open(spent.clone()).unwrap_or_else(|error| refused(error));
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _server = remote.then(|| MonitorServer::start(monitor.clone(), &socket).unwrap());
        let attach = |name: &str| -> Grant {
            let attached = if remote { share::attach(&socket, name) } else { monitor.attach(name) };
            attached.unwrap_or_else(|error| refused(error))
        };
        let policy = PolicyLevel::open(attach("ftl"), PolicySetup::default());
        let policy = policy.unwrap_or_else(|error| refused(error));
        let function = FunctionLevel::open(attach("blocks")).unwrap_or_else(|error| refused(error));
        known.check(&policy, &function, &what);
        // Nothing of this works, and none of it costs what is there. The flash does not say what a refused page holds.
        for page in [300, 1300] {
            let _ = policy.ftl_write(T, page, &page_of(1), Tag::default());
        }
        let _ = policy.flush(T);
        let _ = policy.checkpoint(T);
        let _ = function.flush(T);
        if let Ok(mapped) = function.address_mapper(T, 0, Mapping::Block, u64::MAX) {
            let _ = function.flash_write(T, mapped.block, 0, &page_of(1));
        }
        known.check(&policy, &function, &what);
    }
}

fn run(seed: u64) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        random.next();
    }
    let device = Arc::new(support::device(2, 2, 70, PAGES));
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let allocate = |name: &str, luns: u64| {
        let bytes = luns * monitor.lun_bytes();
        let request = GrantRequest { name: name.into(), bytes, over_provisioning_permille: 0 };
        monitor.allocate(&request).unwrap()
    };
    let setup =
        PolicySetup { checkpoint_pages: [30, 300, 0][random.below(3) as usize], ..PolicySetup::default() };
    let policy = PolicyLevel::create(allocate("ftl", 2), setup).unwrap();
    for (start, mapping) in [(0, RangeMapping::Page), (1000, RangeMapping::Block)] {
        let gc = VictimPolicy::Greedy;
        let range = RangePolicy { start, pages: 400, mapping, gc, over_provisioning_permille: 0 };
        policy.ftl_ioctl(&range).unwrap();
    }
    drop((policy, allocate("blocks", 1), monitor));
    let mut known = Known::default();
    for _ in 0..4 {
        let opened = open(Monitor::open(device.clone()).unwrap()).unwrap();
        known.reopened(&opened);
        let after = random.below(200);
        device.cut_after(after, random.next());
        let cut = known.work(&opened, &mut random).unwrap_err();
        assert!(matches!(cut, LevelError::PowerLost), "seed {seed}: {cut}");
        drop(opened);
        device.power_on();
        for why in [Spent::Worn, Spent::DiskFull] {
            let remote = random.below(3) == 0;
            opens_to_read(&device, why, &known, remote, seed);
        }
    }
    Met { cuts: 4, ..Met::default() }
}

#[test]
fn flash_that_takes_no_writes_any_more_opens_and_everything_on_it_can_be_read() {
    seeds(60, 2_000, run);
}
