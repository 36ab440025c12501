//! Drives and levels under a queue of requests.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and says what it measured"
)]

use std::sync::Arc;
use weft_core::random::SplitMix;
use weft_core::{BLOCK_BYTES, Nanos, Tag};
use weft_device::Geometry;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashSetup, Keep, OpenChannel};
use weft_device::ssd::{Ssd, SsdSetup};
use weft_flash::function::{BlockWrite, Mapping};
use weft_flash::raw::RawWrite;
use weft_flash::{
    FunctionLevel, Grant, GrantBlock, GrantRequest, Monitor, MonitorSetup, PolicyLevel, PolicySetup,
    RangeMapping, RangePolicy, RawLevel,
};
use weft_sim::block::HostQueue;

const REQUESTS_AT_ONCE: usize = 64;
const WRITTEN: u64 = 512 << 20;

fn flash(preset: &Geometry) -> FlashSetup {
    FlashSetup::new(preset.clone().with_size(4 << 30))
}

fn granted(setup: &FlashSetup) -> (Arc<OpenChannel>, Grant) {
    let device = Arc::new(OpenChannel::memory(setup).unwrap());
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let request = GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 };
    let grant = monitor.allocate(&request).unwrap();
    (device, grant)
}

/// Issues requests, so many at once, until all is written; returns when the flash has done it, counted from the first.
fn sequential(
    request_bytes: u64,
    mut write: impl FnMut(Nanos, u64) -> Nanos,
    end: impl Fn() -> Nanos,
) -> u64 {
    let begun = end();
    let mut queue = HostQueue::new(REQUESTS_AT_ONCE, begun);
    for request in 0..WRITTEN / request_bytes {
        let issued = queue.admit();
        queue.issued(write(issued, request));
    }
    end().0 - begun.0
}

fn drive_ns(preset: &Geometry, request_bytes: u64) -> u64 {
    let setup = flash(preset).keeping(Keep::Nothing);
    // As wide as can be, and with so much room that nothing is cleaned.
    let luns_per_unit = Some(setup.shape().luns());
    let drive = Ssd::new(&SsdSetup { luns_per_unit, ..SsdSetup::conventional(setup, 1.0) }).unwrap();
    let blocks = request_bytes / 4096;
    let write = |issued, request| drive.write(issued, request * blocks, blocks, &[], None).unwrap();
    sequential(request_bytes, write, || drive.now())
}

/// The blocks of a request: rows of blocks over all LUNs, planes of a LUN side by side; and the page.
fn places(
    rows: &[Vec<GrantBlock>],
    pages_per_block: u32,
    request: u64,
    count: u64,
) -> Vec<(GrantBlock, u32)> {
    let width = rows[0].len() as u64;
    let place = |at: u64| {
        let (row, column) = (at / width, at % width);
        let per_block = u64::from(pages_per_block);
        (rows[(row / per_block) as usize][column as usize], (row % per_block) as u32)
    };
    (request * count..(request + 1) * count).map(place).collect()
}

#[test]
fn every_level_writes_sequentially_as_fast_as_a_drive() {
    for (name, preset) in [("slc", Geometry::slc()), ("mlc", Geometry::mlc()), ("tlc", Geometry::tlc())] {
        let count = 64;
        let request_bytes = count * u64::from(preset.page_bytes);
        let drive = drive_ns(&preset, request_bytes);
        let zeros = vec![0; preset.page_bytes as usize];

        let (device, grant) = granted(&flash(&preset).keeping(Keep::Oob));
        let geometry = grant.geometry().clone();
        let raw = RawLevel::new(grant);
        let row = |first: u32| {
            let planes = |(channel, lun): (u32, u32)| {
                (first..first + geometry.planes).map(move |block| GrantBlock { channel, lun, block })
            };
            geometry.lun_list().into_iter().flat_map(planes).collect::<Vec<_>>()
        };
        let rows: Vec<_> =
            (0..geometry.blocks_per_lun / geometry.planes).map(|r| row(r * geometry.planes)).collect();
        let write = |issued, request| {
            let places = places(&rows, geometry.pages_per_block, request, count);
            let writes: Vec<_> = places
                .iter()
                .map(|(b, page)| RawWrite {
                    page: b.page(*page),
                    data: &zeros,
                    oob: &[],
                    tag: Tag::default(),
                })
                .collect();
            let results = raw.page_write_vector(issued, &writes).unwrap();
            results.into_iter().map(|result| result.unwrap().done).max().unwrap()
        };
        let found = sequential(request_bytes, write, || device.now());
        assert!(found <= drive, "{name}: raw takes {found} ns, the drive {drive}");

        let (device, grant) = granted(&flash(&preset).keeping(Keep::Oob));
        let level = FunctionLevel::open(grant).unwrap();
        level.set_ops(0).unwrap();
        let take = |_| {
            let channels = 0..geometry.channels();
            let blocks = channels.flat_map(|channel| {
                let count = geometry.planes * geometry.luns_by_channel[channel as usize];
                (0..count).map(move |_| channel)
            });
            let mut row: Vec<_> =
                blocks.map(|c| level.address_mapper(Nanos(0), c, Mapping::Block, 0).unwrap().block).collect();
            row.sort_by_key(|block| (block.lun, block.channel, block.block));
            row
        };
        let rows: Vec<_> = (0..geometry.blocks_per_lun / geometry.planes).map(take).collect();
        let write = |issued, request| {
            let places = places(&rows, geometry.pages_per_block, request, count);
            let writes: Vec<_> = places
                .iter()
                .map(|(block, page)| BlockWrite {
                    block: *block,
                    page: *page,
                    data: &zeros,
                    tag: Tag::default(),
                })
                .collect();
            let results = level.flash_write_vector(issued, &writes);
            results.into_iter().map(|result| result.unwrap().done).max().unwrap()
        };
        let found = sequential(request_bytes, write, || device.now());
        assert!(found <= drive, "{name}: function takes {found} ns, the drive {drive}");
        device.verify_identity().unwrap();

        let (device, grant) = granted(&flash(&preset).keeping(Keep::Oob));
        let setup = PolicySetup { stripe: grant.geometry().luns(), streams: 1, checkpoint_pages: 1 << 40 };
        let level = PolicyLevel::create(grant, setup).unwrap();
        let mut policy = RangePolicy {
            start: 0,
            pages: 0,
            mapping: RangeMapping::Page,
            gc: VictimPolicy::Greedy,
            over_provisioning_permille: 0,
        };
        policy.pages = level.pages_max(&policy);
        level.ftl_ioctl(&policy).unwrap();
        let data = vec![0; request_bytes as usize];
        let write = |issued, request: u64| {
            level.ftl_write(issued, request * count, &data, Tag::default()).unwrap().done
        };
        let found = sequential(request_bytes, write, || device.now());
        assert!(found <= drive, "{name}: policy takes {found} ns, the drive {drive}");
        level.verify().unwrap();
        device.verify_identity().unwrap();
    }
}

/// What is to be copied is read before any of it is programmed: read and programmed one by one, each read would wait for a
/// program before it, and LUNs would be at work for a third of the time.
#[test]
fn a_drive_that_cleans_under_a_queue_of_writes_keeps_its_luns_at_work() {
    let geometry = Geometry {
        channels: 8,
        luns_per_channel: 4,
        planes: 1,
        pages_per_block: 64,
        page_bytes: BLOCK_BYTES as u32,
        total_bytes: 8 * 4 * 40 * 64 * BLOCK_BYTES as u64,
        ..Geometry::bbssd()
    };
    let setup = SsdSetup::conventional(FlashSetup::new(geometry).keeping(Keep::Nothing), 0.25);
    let drive = Ssd::new(&SsdSetup { luns_per_unit: Some(32), ..setup }).unwrap();
    let mut queue = HostQueue::new(64, Nanos(0));
    let mut random = SplitMix::new(5, &[]);
    let mut write = |block: u64| {
        let issued = queue.admit();
        queue.issued(drive.write(issued, block, 1, &[], None).unwrap());
    };
    let capacity = drive.capacity_blocks();
    (0..capacity).for_each(&mut write);
    (0..capacity).for_each(|_| write(random.below(capacity)));
    let (busy, began) = (drive.flash_counters().lun_busy_ns, drive.now());
    (0..2 * capacity).for_each(|_| write(random.below(capacity)));
    let (busy, took) = (drive.flash_counters().lun_busy_ns - busy, drive.now().0 - began.0);
    let at_work = busy as f64 / (32.0 * took as f64);
    println!("LUNs are at work for {:.0} % of the time, WAF {:.2}", at_work * 100.0, drive.counters().waf());
    assert!(at_work > 0.8, "{at_work}");
    drive.verify_identity().unwrap();
}
