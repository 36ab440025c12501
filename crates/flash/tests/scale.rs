//! What calls cost as devices grow: work is counted, not timed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it measured"
)]

mod support;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{
    BlockAddr, BlockInfo, Done, FlashError, FlashShape, LunAddr, OpenChannel, PageAddr, PageRead,
};
use weft_flash::function::Mapping;
use weft_flash::{
    Backend, FunctionLevel, GrantRequest, Monitor, MonitorSetup, PolicyLevel, PolicySetup, RangeMapping,
    RangePolicy,
};

const T: Nanos = Nanos(0);

/// A device that counts what is asked of it: pages, and blocks looked at.
struct Counted {
    device: OpenChannel,
    work: AtomicU64,
}

impl Counted {
    fn new(channels: u32, luns: u32, blocks: u32) -> Arc<Counted> {
        Arc::new(Counted { device: support::device(channels, luns, blocks, 8), work: AtomicU64::new(0) })
    }

    /// What this asks of the device.
    fn work_of<T>(&self, call: impl FnOnce() -> T) -> (T, u64) {
        let before = self.work.load(Relaxed);
        let result = call();
        (result, self.work.load(Relaxed) - before)
    }

    fn add(&self, work: u64) {
        self.work.fetch_add(work, Relaxed);
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

impl Backend for Counted {
    fn shape(&self) -> FlashShape {
        self.device.shape()
    }

    fn pairs_pages(&self) -> bool {
        false
    }

    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError> {
        self.add(1);
        self.device.read_planes(issued, std::slice::from_mut(read))
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        self.add(1);
        self.device.program(issued, page, data, oob)
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        self.add(1);
        self.device.erase(issued, block)
    }

    fn block_info(&self, block: BlockAddr) -> Result<BlockInfo, FlashError> {
        self.add(1);
        self.device.block_info(block)
    }

    fn lun_info(&self, lun: LunAddr) -> Result<Vec<BlockInfo>, FlashError> {
        let infos = self.device.lun_info(lun)?;
        self.add(infos.len() as u64);
        Ok(infos)
    }

    fn lun_free_at(&self, lun: LunAddr) -> Result<Nanos, FlashError> {
        self.add(1);
        self.device.lun_free_at(lun)
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.device.sync()
    }
}

/// The work of each call, by its name, on LUNs of so many blocks.
fn works(blocks: u32) -> Vec<(&'static str, u64)> {
    let mut works = Vec::new();
    let device = Counted::new(2, 2, blocks);
    let (monitor, work) =
        device.work_of(|| Monitor::format(device.clone(), MonitorSetup::default()).unwrap());
    works.push(("format", work));
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let request = GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 };
    let (grant, work) = device.work_of(|| monitor.allocate(&request).unwrap());
    works.push(("allocate", work));
    let (level, work) = device.work_of(|| FunctionLevel::open(grant).unwrap());
    works.push(("open the function level", work));
    level.set_ops(0).unwrap();
    let data = vec![1; 4096];
    let fill = |level: &FunctionLevel| {
        let mut taken = Vec::new();
        for channel in 0..2 {
            while let Ok(mapped) = level.address_mapper(T, channel, Mapping::Block, 0) {
                level.flash_write(T, mapped.block, 0, &data).unwrap();
                taken.push(mapped.block);
            }
        }
        taken
    };
    let (taken, work) = device.work_of(|| fill(&level));
    works.push(("take and write each block", work));
    let trim = || {
        taken.iter().for_each(|block| level.flash_trim(*block).unwrap());
        level.flush(T).unwrap();
    };
    works.push(("trim and erase each block", device.work_of(trim).1));
    let (level, work) = device.work_of(|| FunctionLevel::open(level.into_grant()).unwrap());
    works.push(("open it again", work));
    let setup = PolicySetup { stripe: 4, streams: 1, checkpoint_pages: 1 << 40 };
    let create = || PolicyLevel::create(level.into_grant(), setup).unwrap();
    let (level, work) = device.work_of(create);
    works.push(("create the policy level", work));
    let range = |start, pages| RangePolicy {
        start,
        pages,
        mapping: RangeMapping::Page,
        gc: VictimPolicy::Greedy,
        over_provisioning_permille: 100,
    };
    let pages = level.pages_max(&range(0, 0)) / 2;
    works.push(("make a range", device.work_of(|| level.ftl_ioctl(&range(0, pages)).unwrap()).1));
    let write =
        || (0..pages).for_each(|page| assert!(level.ftl_write(T, page, &data, Tag::default()).is_ok()));
    works.push(("write its pages", device.work_of(write).1));
    let smaller = range(0, pages / 2);
    works.push(("change a range", device.work_of(|| level.change(&smaller).unwrap()).1));
    let (grant, work) = device.work_of(|| level.close(T).unwrap());
    works.push(("close the policy level", work));
    drop(grant);
    let (grant, work) = device.work_of(|| monitor.attach("all").unwrap());
    works.push(("attach", work));
    let (level, work) = device.work_of(|| PolicyLevel::open(grant, setup).unwrap());
    works.push(("open the policy level", work));
    works.push(("remove a range", device.work_of(|| level.remove(0).unwrap()).1));
    drop(level);
    works.push(("release", device.work_of(|| monitor.release("all").unwrap()).1));
    works
}

#[test]
fn on_ten_times_the_blocks_each_call_asks_ten_times_as_much_of_the_device() {
    let (small, large) = (works(100), works(1000));
    for ((name, small), (_, large)) in small.into_iter().zip(large) {
        println!("{name}: {small} and {large}");
        assert!(
            // What is not granted is a larger part of the small one.
            large <= 15 * small.max(10),
            "{name} asks {small} of the device, and {large} on ten times the blocks"
        );
    }
}

#[test]
fn a_grant_of_many_luns_looks_at_each_block_a_few_times() {
    let device = Counted::new(12, 16, 1024);
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let blocks = u64::from(device.shape().blocks() as u32);
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let request = GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 };
    let begun = Instant::now();
    let (_grant, work) = device.work_of(|| monitor.allocate(&request).unwrap());
    println!("192 LUNs of 1024 blocks are allocated in {:?}", begun.elapsed());
    assert!(work <= 4 * blocks, "{work} for {blocks} blocks");
}
