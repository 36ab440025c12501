//! Ranges of the policy level that are changed, removed, used by threads, and worn evenly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use support::Random;
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{Fault, OpenChannel};
use weft_flash::{
    GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup, RangeMapping,
    RangePolicy, RawLevel,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;

fn level(device: &Arc<OpenChannel>) -> PolicyLevel {
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let bytes = u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes();
    let request = GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 };
    let setup = PolicySetup { stripe: 1, streams: 1, checkpoint_pages: 500 };
    PolicyLevel::create(monitor.allocate(&request).unwrap(), setup).unwrap()
}

fn reopened(device: &Arc<OpenChannel>) -> PolicyLevel {
    let grant = Monitor::open(device.clone()).unwrap().attach("all").unwrap();
    let level = PolicyLevel::open(grant, PolicySetup { streams: 1, ..PolicySetup::default() }).unwrap();
    level.verify().unwrap();
    level
}

fn range(start: u64, pages: u64, mapping: RangeMapping) -> RangePolicy {
    RangePolicy { start, pages, mapping, gc: VictimPolicy::Greedy, over_provisioning_permille: 100 }
}

fn page_of(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(PAGE).collect()
}

fn write(level: &PolicyLevel, page: u64, number: u64) {
    level.ftl_write(T, page, &page_of(number), Tag::default()).unwrap();
}

fn read(level: &PolicyLevel, page: u64) -> Vec<u8> {
    let mut data = vec![1; PAGE];
    level.ftl_read(T, page, &mut data).unwrap();
    data
}

#[test]
fn a_removed_range_gives_its_units_back_and_nothing_of_it_is_seen_again() {
    let device = Arc::new(support::device(2, 1, 60, 8));
    let level = level(&device);
    let free = level.free_units();
    for mapping in [RangeMapping::Page, RangeMapping::Block] {
        level.ftl_ioctl(&range(0, 100, mapping)).unwrap();
        level.ftl_ioctl(&range(1000, 50, RangeMapping::Page)).unwrap();
        (0..100).for_each(|page| write(&level, page, page + 1));
        (1000..1050).for_each(|page| write(&level, page, page));
        assert!(matches!(level.remove(1), Err(LevelError::NoRange { page: 1 })));
        level.remove(0).unwrap();
        let mut data = vec![0; PAGE];
        assert!(matches!(level.ftl_read(T, 0, &mut data), Err(LevelError::NoRange { .. })));
        level.verify().unwrap();
        // The same number, the same units.
        level.ftl_ioctl(&range(0, 100, mapping)).unwrap();
        assert!((0..100).all(|page| read(&level, page) == [0; PAGE]));
        assert!((1000..1050).all(|page| read(&level, page) == page_of(page)));
        level.remove(0).unwrap();
        level.remove(1000).unwrap();
        assert_eq!(level.free_units(), free);
    }
    level.ftl_ioctl(&range(0, 100, RangeMapping::Page)).unwrap();
    level.ftl_ioctl(&range(1000, 50, RangeMapping::Page)).unwrap();
    (1000..1050).for_each(|page| write(&level, page, page));
    level.remove(0).unwrap();
    drop(level);
    let level = reopened(&device);
    assert_eq!(level.ranges().len(), 1);
    assert!((1000..1050).all(|page| read(&level, page) == page_of(page)));
}

#[test]
fn the_error_of_a_change_that_needs_too_much_flash_names_the_largest_that_works() {
    for mapping in [RangeMapping::Page, RangeMapping::Block] {
        for over_provisioning_permille in [0, 100, 700] {
            let device = Arc::new(support::device(1, 1, 60, 8));
            let level = level(&device);
            let given = RangePolicy { over_provisioning_permille, ..range(0, 96, mapping) };
            level.ftl_ioctl(&given).unwrap();
            level.ftl_ioctl(&range(1 << 40, 20, RangeMapping::Page)).unwrap();
            (0..96).for_each(|page| write(&level, page, page + 1));
            // Another over-provisioning, too: the range keeps its pages, or has to lose some.
            for permille in [over_provisioning_permille, 0, 400, 2000] {
                let policy =
                    |pages| RangePolicy { pages, over_provisioning_permille: permille, ..given.clone() };
                let most = level.changed_pages_max(&policy(1)).unwrap();
                assert!(permille > over_provisioning_permille || most >= 96, "{most} pages");
                for pages in [most + 1, 1 << 39] {
                    let text = level.change(&policy(pages)).unwrap_err().to_string();
                    assert!(text.contains(&format!("the range can have at most {most} pages")), "{text}");
                }
                level.change(&policy(most)).unwrap();
                level.verify().unwrap();
                level.change(&given).unwrap();
            }
            assert!(matches!(
                level.changed_pages_max(&range(7, 1, mapping)),
                Err(LevelError::NoRange { page: 7 })
            ));
        }
    }
}

#[test]
fn a_range_grows_and_shrinks_changes_its_policy_and_keeps_its_pages() {
    for mapping in [RangeMapping::Page, RangeMapping::Block] {
        let device = Arc::new(support::device(2, 1, 80, 8));
        let level = level(&device);
        level.ftl_ioctl(&range(0, 80, mapping)).unwrap();
        level.ftl_ioctl(&range(500, 16, RangeMapping::Page)).unwrap();
        (0..80).for_each(|page| write(&level, page, page + 1));
        let other = match mapping {
            RangeMapping::Page => RangeMapping::Block,
            RangeMapping::Block => RangeMapping::Page,
        };
        for refused in [range(0, 80, other), range(0, 501, mapping)] {
            assert!(matches!(level.change(&refused), Err(LevelError::BadRequest(_))));
        }
        assert!(matches!(level.change(&range(3, 8, mapping)), Err(LevelError::NoRange { page: 3 })));
        // Smaller: the end is gone. Larger again: it is zeros.
        level.change(&range(0, 40, mapping)).unwrap();
        let mut data = vec![0; PAGE];
        assert!(matches!(level.ftl_read(T, 40, &mut data), Err(LevelError::NoRange { page: 40 })));
        level.verify().unwrap();
        let policy = RangePolicy { gc: VictimPolicy::Fifo, ..range(0, 120, mapping) };
        level.change(&policy).unwrap();
        level.verify().unwrap();
        drop(level);
        let level = reopened(&device);
        assert_eq!(level.ranges()[0].0, policy);
        for page in 0..120 {
            assert_eq!(read(&level, page), if page < 40 { page_of(page + 1) } else { vec![0; PAGE] });
        }
        let mut random = Random(7);
        for turn in 0..2000 {
            let page = random.below(120);
            write(&level, page, turn << 32 | page);
        }
        level.verify().unwrap();
        // What it does not need any more others get.
        let free = level.free_units();
        level.change(&RangePolicy { gc: VictimPolicy::Lru, ..range(0, 8, mapping) }).unwrap();
        for turn in 0..200 {
            write(&level, turn % 8, turn);
        }
        level.change(&range(0, 8, mapping)).unwrap();
        assert!(level.free_units() > free, "{} of {free}", level.free_units());
        (0..8).for_each(|page| assert_eq!(read(&level, page), page_of(192 + page)));
        level.verify().unwrap();
    }
}

#[test]
fn threads_use_their_ranges_while_others_are_made_changed_and_removed() {
    let device = Arc::new(support::device(2, 2, 120, 8));
    let level = level(&device);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let level = &level;
            scope.spawn(move || {
                let start = thread * 10_000;
                level.ftl_ioctl(&range(start, 60, RangeMapping::Page)).unwrap();
                let mut random = Random(thread + 1);
                let mut known = [0; 60];
                for turn in 1..1500 {
                    let page = random.below(60);
                    match random.below(20) {
                        0 => {
                            level.trim(T, start + page, 1).unwrap();
                            known[page as usize] = 0;
                        }
                        1 => assert!(level.flush(T).unwrap() >= T),
                        _ => {
                            write(level, start + page, turn);
                            known[page as usize] = turn;
                        }
                    }
                    let page = random.below(60);
                    assert_eq!(read(level, start + page), page_of(known[page as usize]));
                }
            });
        }
        scope.spawn(|| {
            for turn in 0..60 {
                let mapping = if turn % 2 == 0 { RangeMapping::Page } else { RangeMapping::Block };
                level.ftl_ioctl(&range(90_000, 40, mapping)).unwrap();
                write(&level, 90_007, turn);
                level.change(&range(90_000, 48, mapping)).unwrap();
                assert_eq!(read(&level, 90_007), page_of(turn));
                level.remove(90_000).unwrap();
            }
        });
    });
    level.verify().unwrap();
    drop(level);
    assert_eq!(reopened(&device).ranges().len(), 3);
}

#[test]
fn data_that_stays_does_not_keep_its_flash_young() {
    let device = Arc::new(support::shadow(1, 1, 60, 8));
    let level = level(&device);
    let pages = 240;
    level
        .ftl_ioctl(&RangePolicy { over_provisioning_permille: 250, ..range(0, pages, RangeMapping::Page) })
        .unwrap();
    let zeros = vec![0; PAGE];
    let write = |page| assert!(level.ftl_write(T, page, &zeros, Tag::default()).is_ok());
    (0..pages).for_each(write);
    for turn in 0..40_000 {
        write(turn % 16);
    }
    level.verify().unwrap();
    let infos = device.lun_info(device.shape().lun_at(0)).unwrap();
    let units = level.ranges()[0].1.units_erased;
    let mut erases: Vec<u32> = infos.iter().map(|info| info.erases).collect();
    erases.sort_unstable();
    // The spares, the log and free units aside: those of the range were erased about as often.
    let used: Vec<u32> = erases.into_iter().filter(|erases| *erases > 40).collect();
    assert!(used.len() >= 38, "{units} erases, of few units: {used:?}");
}

#[test]
fn a_trimmed_page_of_a_block_mapped_range_reads_as_zeros_at_once_and_after_a_cut() {
    let device = Arc::new(support::device(2, 1, 60, 8));
    let level = level(&device);
    level.ftl_ioctl(&range(0, 30, RangeMapping::Block)).unwrap();
    let mut expected: Vec<u64> = (1..=30).collect();
    (0..30).for_each(|page| write(&level, page, page + 1));
    // A page, the end of a unit, a unit and parts of two others, the end of the range, and pages that are zeros already.
    for (first, pages) in [(3, 1), (5, 3), (6, 12), (28, 2), (3, 1), (0, 1), (18, 5)] {
        level.trim(T, first, pages).unwrap();
        expected[first as usize..(first + pages) as usize].fill(0);
        if first == 6 {
            write(&level, 7, 70);
            expected[7] = 70;
        }
        let check = |level: &PolicyLevel| {
            for (page, number) in (0..).zip(&expected) {
                assert_eq!(
                    read(level, page)[..8],
                    number.to_le_bytes(),
                    "page {page} after {first} + {pages}"
                );
            }
        };
        check(&level);
        level.flush(T).unwrap();
        // What is there after a cut is on a copy of the device.
        check(&reopened(&Arc::new(device.fork().unwrap())));
        let programmed = device.counters().pages_programmed;
        level.trim(T, first, pages.min(1)).unwrap();
        assert_eq!(device.counters().pages_programmed, programmed, "a trimmed page is trimmed again");
    }
    level.trim(T, 0, 30).unwrap();
    assert!((0..30).all(|page| read(&level, page) == [0; PAGE]));
    level.verify().unwrap();
    assert!(matches!(level.trim(T, 29, 2), Err(LevelError::BadRequest(_))));
}

/// The blocks of the grant that hold pages of a range.
fn blocks_of_ranges(raw: &RawLevel) -> Vec<GrantBlock> {
    let geometry = raw.geometry();
    let blocks = geometry.lun_list().into_iter().flat_map(|(channel, lun)| {
        (0..geometry.blocks_per_lun).map(move |block| GrantBlock { channel, lun, block })
    });
    let is_of_range = |block: &GrantBlock| {
        let mut magic = [0; 4];
        let programmed = raw.look(*block).unwrap().programmed > 0;
        programmed && raw.page_read(T, block.page(0), 0, &mut [], &mut magic).is_ok() && &magic == b"WFPL"
    };
    blocks.filter(is_of_range).collect()
}

#[test]
fn a_page_of_the_checkpoint_that_the_flash_has_lost_is_an_error_and_never_zeros() {
    for stripe in [1, 2] {
        let device = Arc::new(support::device(2, 1, 60, 8));
        let monitor = Monitor::format(device, MonitorSetup::default()).unwrap();
        let bytes = 2 * monitor.lun_bytes();
        let request = GrantRequest { name: "all".into(), bytes, over_provisioning_permille: 0 };
        let setup = PolicySetup { stripe, streams: 1, ..PolicySetup::default() };
        let level = PolicyLevel::create(monitor.allocate(&request).unwrap(), setup).unwrap();
        level.ftl_ioctl(&range(100, 60, RangeMapping::Page)).unwrap();
        (100..160).for_each(|page| write(&level, page, page));
        drop(level.close(T).unwrap());
        let raw = RawLevel::new(monitor.attach("all").unwrap());
        let lost = blocks_of_ranges(&raw)[1];
        raw.block_erase(T, lost).unwrap();
        drop(raw);
        // Nothing is changed: the second time it is the same.
        for _ in 0..2 {
            let error = PolicyLevel::open(monitor.attach("all").unwrap(), setup).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, LevelError::Damaged(_)), "{text}");
            assert!(text.contains("logical page 1") && text.contains(&format!("{lost}")), "{text}");
        }
        let raw = RawLevel::new(monitor.attach("all").unwrap());
        assert!(blocks_of_ranges(&raw).len() > 3, "what was left of the range is there");
    }
}

#[test]
fn a_range_whose_units_become_bad_goes_on_in_free_units_of_the_grant_until_there_is_none() {
    for mapping in [RangeMapping::Page, RangeMapping::Block] {
        let device = Arc::new(support::device(2, 1, 60, 8));
        let level = level(&device);
        level.ftl_ioctl(&range(0, 40, mapping)).unwrap();
        let free = level.free_units();
        let (mut random, mut known) = (Random(5), [0; 40]);
        let mut turn = 0;
        let refused = loop {
            turn += 1;
            assert!(turn < 100_000, "{} units are free", level.free_units());
            let page = random.below(40);
            if turn % 50 == 0 {
                // The next erase of a block with pages of the range fails.
                let lun = device.shape().lun_at(random.below(2) as u32);
                let used = device.lun_info(lun).unwrap();
                let at = (6..used.len()).filter(|at| used[*at].programmed > 0 && !used[*at].state.is_bad());
                let at: Vec<usize> = at.collect();
                if !at.is_empty() {
                    let block = lun.block(0, at[random.below(at.len() as u64) as usize] as u32);
                    device.inject(Fault::Erase(block)).unwrap();
                }
            }
            match level.ftl_write(T, page, &page_of(turn), Tag::default()) {
                Ok(_) => known[page as usize] = turn,
                Err(error) => break error,
            }
        };
        let text = refused.to_string();
        assert!(matches!(refused, LevelError::NoRoom { start: 0, .. }), "{text}");
        assert_eq!(level.free_units(), 0, "of {free}: {text}");
        assert!(
            text.contains("blocks are bad") && text.contains("0 free units") && text.contains("trim"),
            "{text}"
        );
        level.verify().unwrap();
        (0..40).for_each(|page| assert_eq!(read(&level, page), page_of(known[page as usize])));
        drop(level);
        let level = reopened(&device);
        (0..40).for_each(|page| assert_eq!(read(&level, page), page_of(known[page as usize])));
    }
}
