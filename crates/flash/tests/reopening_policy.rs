//! A grant of the policy level is opened with other options than it was made with: the stripe is the grant's, the number of
//! streams is a wish, and no page is another one for it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use parking_lot::Mutex;
use std::sync::Arc;
use support::Random;
use weft_core::{Nanos, StreamId, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{BlockAddr, Done, FlashError, OpenChannel, PageAddr, PageRead, Unreadable};
use weft_flash::{
    Backend, Grant, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup, RangeMapping,
    RangePolicy,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;
const STREAMS: [u32; 4] = [1, 2, 4, 32];

fn whole_device(device: &Arc<OpenChannel>) -> Grant {
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let request = GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 };
    monitor.allocate(&request).unwrap()
}

fn attached(device: &Arc<OpenChannel>) -> Grant {
    Monitor::open(device.clone()).unwrap().attach("all").unwrap()
}

fn range(pages: u64, mapping: RangeMapping) -> RangePolicy {
    RangePolicy { start: 0, pages, mapping, gc: VictimPolicy::Greedy, over_provisioning_permille: 70 }
}

fn page_of(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(PAGE).collect()
}

fn holds(level: &PolicyLevel, pages: &[u64]) {
    level.verify().unwrap();
    let mut data = vec![1; PAGE];
    for (page, number) in pages.iter().enumerate() {
        level.ftl_read(T, page as u64, &mut data).unwrap();
        let found = u64::from_le_bytes(data[..8].try_into().unwrap());
        assert!(data == page_of(*number), "page {page}: {found}, not {number}");
    }
}

/// Writes pages in order.
fn fill(level: &PolicyLevel, pages: u64, first: u64) -> Vec<u64> {
    let write = |page| {
        level.ftl_write(T, page, &page_of(first + page), Tag::default()).unwrap();
        first + page
    };
    (0..pages).map(write).collect()
}

#[test]
fn a_grant_opens_with_whatever_stripe_it_is_asked_for_and_keeps_its_own() {
    for created in [1, 2, 4] {
        for asked in [0, 1, 2, 3, 4, 5, 8, u32::MAX] {
            let device = Arc::new(support::device(2, 2, 60, 8));
            let setup = PolicySetup { stripe: created, ..PolicySetup::default() };
            let level = PolicyLevel::create(whole_device(&device), setup).unwrap();
            let unit_pages = level.unit_pages();
            level.ftl_ioctl(&range(64, RangeMapping::Page)).unwrap();
            let pages = fill(&level, 64, 1);
            drop(level);
            let setup = PolicySetup { stripe: asked, ..PolicySetup::default() };
            let level = PolicyLevel::open(attached(&device), setup)
                .unwrap_or_else(|error| panic!("made with {created}, opened with {asked}: {error}"));
            assert_eq!(level.unit_pages(), unit_pages, "made with {created}, opened with {asked}");
            holds(&level, &pages);
            // And again, with what the opening has written.
            let level = PolicyLevel::open(level.close(T).unwrap(), PolicySetup::default()).unwrap();
            holds(&level, &pages);
        }
    }
}

/// The first use had its log in other blocks, and records of it may still be there.
#[test]
fn a_grant_that_was_begun_anew_with_another_stripe_never_opens_as_the_first_use() {
    for (first, second) in [(1, 2), (1, 4), (2, 1), (2, 4), (4, 1), (4, 2)] {
        for asked in [0, first, second] {
            let device = Arc::new(support::device(2, 2, 60, 8));
            let with = |stripe| PolicySetup { stripe, ..PolicySetup::default() };
            let level = PolicyLevel::create(whole_device(&device), with(first)).unwrap();
            level.ftl_ioctl(&range(64, RangeMapping::Page)).unwrap();
            fill(&level, 64, 1);
            // Records of the first use get large numbers.
            (0..9).for_each(|_| assert!(level.checkpoint(T).is_ok()));
            let level = PolicyLevel::create(level.close(T).unwrap(), with(second)).unwrap();
            level.ftl_ioctl(&range(32, RangeMapping::Block)).unwrap();
            let pages = fill(&level, 32, 1000);
            let unit_pages = level.unit_pages();
            drop(level);
            let level = PolicyLevel::open(attached(&device), with(asked)).unwrap();
            assert_eq!(level.unit_pages(), unit_pages, "first {first}, then {second}, opened with {asked}");
            assert_eq!(level.ranges()[0].0, range(32, RangeMapping::Block));
            holds(&level, &pages);
        }
    }
}

#[test]
fn a_stripe_that_does_not_fit_is_refused_for_a_grant_that_is_begun_and_only_there() {
    let device = Arc::new(support::device(2, 2, 60, 8));
    let setup = PolicySetup { stripe: 3, ..PolicySetup::default() };
    let refused = PolicyLevel::create(whole_device(&device), setup);
    assert!(matches!(refused, Err(LevelError::BadRequest(_))));
    let opened = PolicyLevel::open(attached(&device), setup);
    assert!(matches!(opened, Err(LevelError::NotUsed { .. })));
}

/// A device with a page that cannot be read.
#[derive(Debug)]
struct Spotted {
    device: OpenChannel,
    spot: Mutex<Option<PageAddr>>,
}

impl Backend for Spotted {
    as_the_device!();

    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError> {
        let done = self.device.read_planes(issued, std::slice::from_mut(read))?;
        if *self.spot.lock() == Some(read.page) {
            let (address, why, done) = (read.page, Unreadable::Bits, done.done);
            return Err(FlashError::Uncorrectable { address, why, done });
        }
        Ok(done)
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        self.device.program(issued, page, data, oob)
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        self.device.erase(issued, block)
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.device.sync()
    }
}

/// With another stripe, a page of data would lie in the log, and could be the newest record of it.
#[test]
fn a_page_of_data_that_cannot_be_read_where_another_stripe_has_its_log_does_not_refuse_the_grant() {
    let device = support::device(2, 2, 60, 8);
    let spotted = Arc::new(Spotted { device, spot: Mutex::new(None) });
    let monitor = Monitor::format(spotted.clone(), MonitorSetup::default()).unwrap();
    let bytes = 4 * monitor.lun_bytes();
    let request = GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 };
    let setup = PolicySetup { stripe: 1, ..PolicySetup::default() };
    let level = PolicyLevel::create(monitor.allocate(&request).unwrap(), setup).unwrap();
    let policy = range(0, RangeMapping::Page);
    let policy = RangePolicy { pages: level.pages_max(&policy), ..policy };
    level.ftl_ioctl(&policy).unwrap();
    let pages = fill(&level, policy.pages, 1);
    let mut grant = level.close(T).unwrap();
    let shape = spotted.device.shape();
    let mut spots = 0;
    for at in (0..shape.luns()).flat_map(|lun| (0..12).map(move |block| (lun, block))) {
        let page = shape.lun_at(at.0).block(0, at.1).page(0);
        let mut data = [0; 8];
        let read = &mut [PageRead { page, offset: 0, data: &mut data, oob: &mut [] }];
        if spotted.device.read_planes(T, read).is_err() || data == *b"WEFTFLOG" {
            continue;
        }
        *spotted.spot.lock() = Some(page);
        for asked in [0, 1, 2, 4] {
            let setup = PolicySetup { stripe: asked, ..PolicySetup::default() };
            let level =
                PolicyLevel::open(grant, setup).unwrap_or_else(|error| panic!("{page}, {asked}: {error}"));
            let mut data = vec![0; PAGE];
            let mut lost = 0;
            for (at, number) in (0..).zip(&pages) {
                match level.ftl_read(T, at, &mut data) {
                    Ok(_) => assert!(data == page_of(*number)),
                    Err(LevelError::Unreadable { .. }) => lost += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            assert!(lost <= 1, "{page}: {lost} pages are lost");
            grant = level.close(T).unwrap();
        }
        spots += 1;
    }
    assert!(spots > 20, "{spots} pages of data lie where a log may be");
}

/// Overwrites at random, with more tags than there are streams.
fn overwrite(level: &PolicyLevel, pages: &mut [u64], random: &mut Random, writes: u64) {
    for write in 0..writes {
        let page = random.below(pages.len() as u64);
        let stream = StreamId(random.below(40) as u16);
        let number = 1_000_000 + write;
        level.ftl_write(T, page, &page_of(number), Tag { stream, ..Tag::default() }).unwrap();
        pages[page as usize] = number;
    }
}

fn with_streams(made: u32, then: u32, mapping: RangeMapping) {
    let what = format!("{mapping:?}, made with {made} streams, opened with {then}");
    let with = |streams| PolicySetup { stripe: 1, streams, ..PolicySetup::default() };
    let device = Arc::new(support::device(2, 2, 40, 8));
    let level = PolicyLevel::create(whole_device(&device), with(made)).unwrap();
    let mut policy = range(0, mapping);
    policy.pages = level.pages_max(&policy);
    assert!(policy.pages > 100, "{what}: the test has too little flash");
    level.ftl_ioctl(&policy).unwrap();
    let mut pages = fill(&level, policy.pages, 1);
    drop(level);
    let reopened = |streams, pages: &[u64], what: &str| {
        let level = PolicyLevel::open(attached(&device), with(streams))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        holds(&level, pages);
        level
    };
    let mut random = Random(u64::from(made * 64 + then) | 1);
    let level = reopened(then, &pages, &what);
    overwrite(&level, &mut pages, &mut random, 5_000);
    holds(&level, &pages);
    // What fewer streams leave is not needed to shrink and to grow.
    let full = policy.pages;
    let unit_pages = u64::from(level.unit_pages());
    for pages_then in [(full - 60) / unit_pages * unit_pages, full] {
        policy.pages = pages_then;
        level.change(&policy).unwrap_or_else(|error| panic!("{what}: to {pages_then} of {full}: {error}"));
        pages.resize(pages_then as usize, 0);
        overwrite(&level, &mut pages, &mut random, 1_000);
        holds(&level, &pages);
    }
    drop(level);
    for streams in [made, then] {
        let level = reopened(streams, &pages, &what);
        overwrite(&level, &mut pages, &mut random, 500);
        holds(&level, &pages);
    }
}

#[test]
fn a_page_mapped_range_of_the_largest_size_opens_with_any_number_of_streams_and_goes_on() {
    for (made, then) in STREAMS.into_iter().flat_map(|made| STREAMS.map(|then| (made, then))) {
        with_streams(made, then, RangeMapping::Page);
    }
}

#[test]
fn a_block_mapped_range_of_the_largest_size_opens_with_any_number_of_streams_and_goes_on() {
    for (made, then) in STREAMS.into_iter().flat_map(|made| STREAMS.map(|then| (made, then))) {
        with_streams(made, then, RangeMapping::Block);
    }
}
