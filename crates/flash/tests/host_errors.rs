//! Errors of the host that are met one by one, at the policy and the function level. The campaigns with random ones are in
//! `recovery_policy.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use support::flaky::{Flaky, HostCall, Trouble, is_of_the_host};
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_flash::function::{Mapping, WearReport};
use weft_flash::{
    FunctionLevel, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup,
    RangeMapping, RangePolicy,
};

const T: Nanos = Nanos(0);

/// A range of three units' worth of pages, on one LUN.
struct Rig {
    flaky: Arc<Flaky>,
    monitor: Arc<Monitor>,
    level: PolicyLevel,
    range: RangePolicy,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(RangeMapping::Block)
    }

    fn with(mapping: RangeMapping) -> Rig {
        let flaky = Flaky::new(support::device(1, 1, 80, 4), 0, 1);
        let monitor = Monitor::format(flaky.clone(), MonitorSetup::default()).unwrap();
        let request =
            GrantRequest { name: "a".into(), bytes: monitor.lun_bytes(), over_provisioning_permille: 0 };
        let level = PolicyLevel::create(monitor.allocate(&request).unwrap(), PolicySetup::default()).unwrap();
        let range = RangePolicy {
            start: 0,
            pages: 3 * u64::from(level.unit_pages()),
            mapping,
            gc: VictimPolicy::Greedy,
            over_provisioning_permille: 0,
        };
        level.ftl_ioctl(&range).unwrap();
        Rig { flaky, monitor, level, range }
    }

    fn reopen(self) -> Rig {
        let Rig { flaky, monitor, level, range } = self;
        drop(level);
        let level = PolicyLevel::open(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap();
        Rig { flaky, monitor, level, range }
    }

    fn fail_erases(&self, spared: u64, fails: u64) {
        self.flaky.trouble(Trouble { call: Some(HostCall::Erase), spared, fails });
    }

    fn write(&self, page: u64, value: u8) -> Result<(), LevelError> {
        self.level.ftl_write(T, page, &[value; 4096], Tag::default()).map(drop)
    }

    fn read(&self, page: u64) -> u8 {
        let mut data = [1; 4096];
        self.level.ftl_read(T, page, &mut data).unwrap();
        assert!(data.iter().all(|byte| *byte == data[0]), "page {page} holds parts of two writes");
        data[0]
    }
}

#[test]
fn whichever_erase_of_the_host_fails_the_next_calls_work_and_no_acknowledged_page_changes() {
    for fails in [1, 3] {
        let mut met = 0;
        for spared in 0.. {
            let rig = Rig::new();
            rig.fail_erases(spared, fails);
            let mut pages = vec![vec![0]; rig.range.pages as usize];
            let mut errors = 0;
            for turn in 1..100_u8 {
                let page = u64::from(turn) * 5 % rig.range.pages;
                let unit = page / 4 * 4;
                let (named, value) = if turn % 9 == 0 { (unit..unit + 4, 0) } else { (page..page + 1, turn) };
                let done = match value {
                    0 => rig.level.trim(T, unit, 4).map(drop),
                    _ => rig.write(page, value),
                };
                rig.level.verify().unwrap();
                for known in &mut pages[named.start as usize..named.end as usize] {
                    if done.is_ok() {
                        known.clear();
                    }
                    known.push(value);
                }
                if let Err(error) = done {
                    assert!(is_of_the_host(&error), "{error}");
                    errors += 1;
                }
            }
            let check = |rig: &Rig| {
                for (page, known) in (0..).zip(&pages) {
                    let found = rig.read(page);
                    assert!(known.contains(&found), "erase {spared}, page {page}: {found}, not of {known:?}");
                }
            };
            check(&rig);
            rig.flaky.calm();
            check(&rig.reopen());
            if errors == 0 {
                break;
            }
            assert!(errors <= fails, "{errors} calls failed because of {fails} erases");
            met += 1;
        }
        assert!(met > 20, "{met} erases failed");
    }
}

#[test]
fn a_trim_that_is_asked_for_again_and_flushed_stays_trimmed() {
    for flushes_only in [false, true] {
        let rig = Rig::new();
        (0..4).for_each(|page| rig.write(page, 7).unwrap());
        rig.fail_erases(0, 2);
        assert!(is_of_the_host(&rig.level.trim(T, 0, 4).unwrap_err()));
        assert_eq!(rig.read(2), 0);
        if flushes_only {
            assert!(is_of_the_host(&rig.level.flush(T).unwrap_err()), "the trim would not be durable");
        } else {
            assert!(is_of_the_host(&rig.level.trim(T, 0, 4).unwrap_err()), "the erase fails again");
            rig.level.trim(T, 0, 4).unwrap();
        }
        rig.level.flush(T).unwrap();
        let rig = rig.reopen();
        (0..4).for_each(|page| assert_eq!(rig.read(page), 0, "page {page}"));
    }
}

#[test]
fn a_range_that_was_made_smaller_ends_there_though_an_erase_failed_and_new_pages_are_zeros() {
    let rig = Rig::new();
    (0..12).for_each(|page| rig.write(page, 7).unwrap());
    rig.fail_erases(0, 2);
    let smaller = RangePolicy { pages: 4, ..rig.range.clone() };
    rig.level.change(&smaller).unwrap();
    rig.level.verify().unwrap();
    let read = rig.level.ftl_read(T, 4, &mut [0; 4096]);
    assert!(matches!(read, Err(LevelError::NoRange { page: 4 })), "{read:?}");
    // While they are not erased, old pages would be there again.
    assert!(is_of_the_host(&rig.level.change(&rig.range).unwrap_err()));
    let rig = rig.reopen();
    rig.level.change(&rig.range).unwrap();
    (0..12).for_each(|page| assert_eq!(rig.read(page), if page < 4 { 7 } else { 0 }, "page {page}"));
}

#[test]
fn removing_or_changing_a_range_fails_only_where_nothing_has_changed_and_what_is_left_to_clean_is_cleaned_later()
 {
    for (mapping, removes) in [
        (RangeMapping::Page, false),
        (RangeMapping::Page, true),
        (RangeMapping::Block, false),
        (RangeMapping::Block, true),
    ] {
        let smaller = |rig: &Rig| RangePolicy { pages: 4, ..rig.range.clone() };
        let call = |rig: &Rig| if removes { rig.level.remove(0) } else { rig.level.change(&smaller(rig)) };
        let written = || {
            let rig = Rig::with(mapping);
            (0..5).for_each(|_| (0..12).for_each(|page| rig.write(page, 7).unwrap()));
            rig
        };
        let calm = written();
        call(&calm).unwrap();
        let free = calm.level.free_units();
        let (mut errors, mut cleaned_later) = (0, 0);
        for spared in 0..60 {
            let rig = written();
            rig.flaky.trouble(Trouble { call: None, spared, fails: u64::MAX });
            let done = call(&rig);
            rig.flaky.calm();
            rig.level.verify().unwrap();
            let what = format!("{mapping:?}, call {spared} of the host fails: {done:?}");
            let wanted = match &done {
                Ok(()) if removes => vec![],
                Ok(()) => vec![smaller(&rig)],
                Err(error) => {
                    assert!(is_of_the_host(error), "{what}");
                    errors += 1;
                    vec![rig.range.clone()]
                }
            };
            let ranges =
                |rig: &Rig| rig.level.ranges().into_iter().map(|(range, _)| range).collect::<Vec<_>>();
            assert_eq!(ranges(&rig), wanted, "{what}");
            if done.is_ok() && !removes {
                cleaned_later += u32::from(rig.level.free_units() != free);
                call(&rig).unwrap();
            }
            if done.is_ok() {
                assert_eq!(rig.level.free_units(), free, "{what}");
            }
            let rig = rig.reopen();
            assert_eq!(ranges(&rig), wanted, "{what}");
            if removes && done.is_ok() {
                rig.level.ftl_ioctl(&rig.range).unwrap();
            } else {
                rig.level.change(&rig.range).unwrap();
            }
            let kept = if done.is_err() {
                12
            } else if removes {
                0
            } else {
                4
            };
            (0..12).for_each(|page| assert_eq!(rig.read(page), if page < kept { 7 } else { 0 }, "{what}"));
        }
        assert!(errors > 0 && errors < 60, "{mapping:?}: {errors} errors");
        assert_eq!(cleaned_later > 0, !removes, "{mapping:?}: {cleaned_later} were cleaned later");
    }
}

/// A block of two pages is moved by wear leveling to another LUN, which is `worn`, and the host fails the erase of the old one; then it gets a third
/// page and is trimmed, and the host fails the second erase of those that follow. How many pages the block has when the level is
/// opened again, if it is there: until a flush it may be. Also the LUN of the new block in the grant.
fn pages_after_a_move_and_a_trim(worn: u32) -> (Option<u32>, u32) {
    let flaky = Flaky::new(support::device(1, 2, 20, 4), 0, 1);
    let monitor = Monitor::format(flaky.clone(), MonitorSetup::default()).unwrap();
    let bytes = 2 * monitor.lun_bytes();
    let request = GrantRequest { name: "a".into(), bytes, over_provisioning_permille: 0 };
    let grant = monitor.allocate(&request).unwrap();
    let lun = flaky.device.shape().lun_at(worn);
    for block in (3..20).flat_map(|block| [block; 20]) {
        flaky.device.erase(T, lun.block(0, block)).unwrap();
    }
    let level = FunctionLevel::open(grant).unwrap();
    let old = level.address_mapper(T, 0, Mapping::Block, 7).unwrap().block;
    (0..2).for_each(|page| assert!(level.flash_write(T, old, page, &[7; 4096]).is_ok()));
    flaky.trouble(Trouble { call: Some(HostCall::Erase), spared: 0, fails: 1 });
    let report = level.wear_leveler(T, 4, 1).unwrap();
    assert!(report.stopped.iter().all(is_of_the_host) && report.stopped.is_some());
    let labelled = |level: &FunctionLevel| level.mapped_blocks().into_iter().find(|found| found.label == 7);
    let new = labelled(&level).unwrap().block;
    assert_eq!((report.shuffled[0].from, report.shuffled[0].to), (old, new));
    assert_ne!(old.lun, new.lun);
    level.flash_write(T, new, 2, &[8; 4096]).unwrap();
    level.flash_trim(new).unwrap();
    flaky.trouble(Trouble { call: Some(HostCall::Erase), spared: 1, fails: 1 });
    assert!(is_of_the_host(&level.flush(T).unwrap_err()));
    drop(level);
    let level = FunctionLevel::open(monitor.attach("a").unwrap()).unwrap();
    let left = labelled(&level).map(|found| found.written);
    level.flush(T).unwrap();
    (left, new.lun)
}

#[test]
fn a_block_that_was_moved_and_trimmed_does_not_come_back_as_it_was_before_the_move() {
    let luns = [0, 1].map(|worn| {
        let (left, lun) = pages_after_a_move_and_a_trim(worn);
        assert!(left.is_none_or(|pages| pages == 3), "moved to LUN {lun}: it has {left:?} pages");
        lun
    });
    assert_ne!(luns[0], luns[1], "the new block is erased before the old one and after it");
}

/// Four blocks whose data stays, on flash that is younger than all that is free. Their addresses by label.
fn young_blocks(flaky: &Arc<Flaky>) -> (FunctionLevel, Vec<GrantBlock>) {
    let monitor = Monitor::format(flaky.clone(), MonitorSetup::default()).unwrap();
    let request = GrantRequest { name: "a".into(), bytes: 1, over_provisioning_permille: 0 };
    let level = FunctionLevel::open(monitor.allocate(&request).unwrap()).unwrap();
    let take = |label| level.address_mapper(T, 0, Mapping::Block, label).unwrap().block;
    let young: Vec<GrantBlock> = (0..4).map(take).collect();
    for (block, label) in young.iter().zip(1..) {
        (0..3).for_each(|page| assert!(level.flash_write(T, *block, page, &[label; 4096]).is_ok()));
    }
    for _ in 0..8 {
        let (_, free, _) = level.census();
        let taken: Vec<GrantBlock> = (0..free).map(|_| take(99)).collect();
        taken.into_iter().for_each(|block| level.flash_trim(block).unwrap());
        level.flush(T).unwrap();
    }
    (level, young)
}

/// An application knows its blocks by what the calls have told it, and by nothing else.
#[test]
fn whichever_call_of_the_host_fails_in_wear_leveling_the_application_learns_where_its_blocks_are() {
    for call in [HostCall::Read, HostCall::Program, HostCall::Erase] {
        let mut moved_before_errors = 0;
        for (spared, fails) in (0..).flat_map(|spared| [(spared, 1), (spared, 4)]) {
            let flaky = Flaky::new(support::device(1, 1, 30, 4), 0, 1);
            let (level, mut known) = young_blocks(&flaky);
            flaky.trouble(Trouble { call: Some(call), spared, fails });
            let report = level.wear_leveler(T, 2, 4);
            flaky.calm();
            let (moves, error) = match report {
                Ok(WearReport { shuffled, stopped, .. }) => (shuffled, stopped),
                Err(error) => (Vec::new(), Some(error)),
            };
            assert!(error.iter().all(is_of_the_host), "{error:?}");
            if error.is_some() {
                moved_before_errors += moves.len();
            }
            for moved in &moves {
                let at = known.iter().position(|block| *block == moved.from).unwrap();
                assert_eq!(moved.label, at as u64);
                known[at] = moved.to;
            }
            let check = |level: &FunctionLevel| {
                let found = level.mapped_blocks();
                for (label, block) in known.iter().enumerate() {
                    let what = format!("{call:?} {spared}: label {label} at {block}");
                    let found = found.iter().find(|found| found.label == label as u64);
                    assert_eq!(found.map(|found| (found.block, found.written)), Some((*block, 3)), "{what}");
                    let mut data = [0; 4096];
                    for page in 0..3 {
                        level.flash_read(T, *block, page, 0, &mut data).unwrap();
                        assert_eq!(data, [label as u8 + 1; 4096], "{what} page {page}");
                    }
                }
            };
            check(&level);
            // Whatever is free is written by somebody else.
            while let Ok(other) = level.address_mapper(T, 0, Mapping::Block, 77) {
                level.flash_write(T, other.block, 0, &[0xee; 4096]).unwrap();
            }
            check(&level);
            check(&FunctionLevel::open(level.into_grant()).unwrap());
            if error.is_none() {
                assert_eq!(moves.len(), 4);
                break;
            }
        }
        assert!(
            moved_before_errors > 3,
            "{call:?}: {moved_before_errors} blocks had moved when an error came"
        );
    }
}
