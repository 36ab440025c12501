//! The calls of the function and the policy level: what they do and what they refuse.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use support::{Random, device};
use weft_core::{Nanos, Tag};
use weft_device::FaultPlan;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{Done, OpenChannel};
use weft_flash::function::Mapping;
use weft_flash::raw::{RawRead, RawWrite};
use weft_flash::{
    FunctionLevel, Grant, GrantBlock, GrantRequest, LevelError, LevelName, Monitor, MonitorSetup,
    PolicyLevel, PolicySetup, RangeMapping, RangePolicy, RawLevel,
};

const T: Nanos = Nanos(0);

fn grant(device: OpenChannel, permille: u32, spares: u32) -> (Arc<OpenChannel>, Arc<Monitor>, Grant) {
    let device = Arc::new(device);
    let monitor = Monitor::format(device.clone(), MonitorSetup { spares_per_lun: spares }).unwrap();
    let bytes =
        u64::from(monitor.free_luns().unwrap()) * monitor.lun_bytes() * 1000 / (1000 + u64::from(permille));
    let request = GrantRequest { name: "a".into(), bytes, over_provisioning_permille: permille };
    let grant = monitor.allocate(&request).unwrap();
    (device, monitor, grant)
}

#[test]
fn write_amplification_counts_the_pages_that_were_programmed_with_nothing() {
    let (device, _monitor, grant) = grant(device(2, 1, 23, 4), 0, 2);
    let level = PolicyLevel::create(grant, PolicySetup { stripe: 2, ..PolicySetup::default() }).unwrap();
    let policy = RangePolicy {
        start: 0,
        pages: 64,
        mapping: RangeMapping::Block,
        gc: VictimPolicy::Greedy,
        over_provisioning_permille: 0,
    };
    level.ftl_ioctl(&policy).unwrap();
    let before = device.counters().pages_programmed;
    // The sixth page of a unit: five without data before it.
    level.ftl_write(T, 5, &[1; 4096], Tag::default()).unwrap();
    let (_, counts) = level.ranges().remove(0);
    assert_eq!((counts.written, counts.holes), (1, 5));
    assert_eq!(counts.waf(), (device.counters().pages_programmed - before) as f64);
}

#[test]
fn over_provisioning_is_kept_free_and_cannot_be_set_above_what_is_mapped() {
    let (device, _monitor, grant) = grant(device(2, 1, 23, 4), 250, 2);
    let level = FunctionLevel::open(grant).unwrap();
    let total = level.geometry().blocks();
    let mut taken = Vec::new();
    let refused = loop {
        match level.address_mapper(T, taken.len() as u32 % 2, Mapping::Block, 0) {
            Ok(mapped) => taken.push(mapped.block),
            Err(error) => break error,
        }
    };
    let limit = total * 1000 / 1250;
    assert!(matches!(refused, LevelError::TooManyMapped { mapped, .. } if mapped == limit), "{refused}");
    assert!(matches!(level.set_ops(300), Err(LevelError::TooManyMapped { .. })));
    level.set_ops(100).unwrap();
    taken.push(level.address_mapper(T, 0, Mapping::Block, 0).unwrap().block);
    assert!(matches!(level.set_ops(250), Err(LevelError::TooManyMapped { .. })));
    taken.drain(..2).for_each(|block| level.flash_trim(block).unwrap());
    level.set_ops(250).unwrap();
    device.verify_identity().unwrap();
}

#[test]
fn blocks_of_equal_wear_are_taken_from_the_luns_in_turns_so_that_they_work_side_by_side() {
    let (device, _monitor, grant) = grant(device(1, 4, 12, 4), 0, 2);
    let level = FunctionLevel::open(grant).unwrap();
    let take = || level.address_mapper(T, 0, Mapping::Block, 0).unwrap().block;
    let taken: Vec<GrantBlock> = (0..8).map(|_| take()).collect();
    assert_eq!(taken.iter().map(|block| block.lun).collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1, 2, 3]);
    let times: Vec<_> =
        taken[..4].iter().map(|block| level.flash_write(T, *block, 0, &[1; 4096]).unwrap()).collect();
    // One after the other they would take four programs.
    assert!(times[3].done.0 < 2 * times[0].done.0, "{times:?}");
    // A block that was erased comes last, whatever its LUN.
    level.flash_trim(taken[0]).unwrap();
    level.flush(T).unwrap();
    assert_eq!(take().lun, 0);
    let rest: Vec<GrantBlock> =
        std::iter::from_fn(|| level.address_mapper(T, 0, Mapping::Block, 0).ok().map(|mapped| mapped.block))
            .collect();
    assert_eq!(rest.last(), Some(&taken[0]));
    device.verify_identity().unwrap();
}

#[test]
fn a_vector_of_raw_commands_is_issued_at_once_and_a_failure_at_one_address_does_not_touch_the_others() {
    let (device, _monitor, grant) = grant(device(2, 2, 12, 4), 0, 2);
    let raw = RawLevel::new(grant);
    let block = |number: u32| GrantBlock { channel: number % 2, lun: number / 2, block: 0 };
    let data: Vec<[u8; 4096]> = (0..4).map(|number| [number; 4096]).collect();
    let mut writes: Vec<RawWrite> = (0..4)
        .map(|number| RawWrite {
            page: block(number).page(0),
            data: &data[number as usize],
            oob: b"oob",
            tag: Tag::default(),
        })
        .collect();
    writes[2].page.page = 3;
    // The monitor's records are on the flash by then.
    let at = device.now();
    let results = raw.page_write_vector(at, &writes).unwrap();
    let alone: Done = *results[0].as_ref().unwrap();
    assert!(matches!(results[2], Err(LevelError::OutOfOrder { next: 0, .. })), "{results:?}");
    // LUNs of two channels: each takes as long as one program alone; those of one channel wait for a transfer.
    assert_eq!(results[1].as_ref().unwrap(), &alone);
    let third = results[3].as_ref().unwrap();
    assert_eq!(third.done.0 - third.moved.0, alone.done.0 - alone.moved.0);
    assert_eq!(third.moved.0 - alone.moved.0, alone.moved.0 - at.0);

    let mut buffers = [[9; 4096]; 4];
    let mut reads: Vec<RawRead> = buffers
        .iter_mut()
        .enumerate()
        .map(|(number, data)| RawRead { page: block(number as u32).page(0), offset: 0, data, oob: &mut [] })
        .collect();
    let found = raw.page_read_vector(Nanos(1 << 30), &mut reads).unwrap();
    assert!(matches!(found[2], Err(LevelError::NotProgrammed { .. })));
    assert_eq!([buffers[0][0], buffers[1][0], buffers[3][4095]], [0, 1, 3]);
    let erased = raw.block_erase_vector(Nanos(1 << 31), &[block(0), block(1), block(9)]).unwrap();
    assert!(erased[0].is_ok() && erased[0].as_ref().ok() == erased[1].as_ref().ok());
    assert!(matches!(erased[2], Err(LevelError::OutsideGrant { .. })));
    for refused in [raw.block_erase_vector(T, &[]), raw.block_erase_vector(T, &[block(0); 65])] {
        assert!(matches!(refused, Err(LevelError::BadRequest(_))), "{refused:?}");
    }
    device.verify_identity().unwrap();
}

#[test]
fn a_trim_returns_at_once_and_the_block_is_erased_when_its_lun_is_idle_or_it_is_wanted() {
    let (device, _monitor, grant) = grant(device(1, 1, 12, 4), 0, 2);
    let level = FunctionLevel::open(grant).unwrap();
    let block = level.address_mapper(T, 0, Mapping::Block, 0).unwrap().block;
    let done = level.flash_write(T, block, 0, &[1; 4096]).unwrap();
    let erases = device.counters().blocks_erased;
    level.flash_trim(block).unwrap();
    assert_eq!(device.counters().blocks_erased, erases);
    assert_eq!(level.reclaim(Nanos(done.done.0 - 1)).unwrap(), 0, "the LUN is still at work");
    assert_eq!(level.reclaim(done.done).unwrap(), 1);
    assert_eq!(device.counters().blocks_erased, erases + 1);
    let mut all = Vec::new();
    while let Ok(mapped) = level.address_mapper(T, 0, Mapping::Block, 0) {
        level.flash_write(T, mapped.block, 0, &[1; 4096]).unwrap();
        all.push(mapped.block);
    }
    assert_eq!(all.len() as u32, level.geometry().blocks());
    level.flash_trim(all[3]).unwrap();
    assert_eq!(level.address_mapper(T, 0, Mapping::Block, 0).unwrap().block, all[3]);
    assert!(matches!(
        level.flash_trim(GrantBlock { channel: 0, lun: 0, block: 99 }),
        Err(LevelError::OutsideGrant { .. })
    ));
    device.verify_identity().unwrap();
}

#[test]
fn a_page_mapped_block_takes_pages_in_any_order_until_it_is_full() {
    let (device, monitor, grant) = grant(device(1, 1, 12, 4), 0, 2);
    let level = FunctionLevel::open(grant).unwrap();
    let block = level.address_mapper(T, 0, Mapping::Page, 5).unwrap().block;
    for (page, value) in [(3, 1), (0, 2), (3, 3), (1, 4)] {
        level.flash_write(T, block, page, &[value; 4096]).unwrap();
    }
    assert!(matches!(level.flash_write(T, block, 2, &[0; 4096]), Err(LevelError::BlockFull(_))));
    let read = |level: &FunctionLevel, page| {
        let mut data = [0; 1];
        level.flash_read(T, block, page, 9, &mut data).map(|_| data[0])
    };
    let check = |level: &FunctionLevel| {
        assert_eq!([0, 1, 3].map(|page| read(level, page).unwrap()), [2, 4, 3]);
        assert!(matches!(read(level, 2), Err(LevelError::NotProgrammed { .. })));
    };
    check(&level);
    drop(level);
    let level = FunctionLevel::open(monitor.attach("a").unwrap()).unwrap();
    check(&level);
    assert_eq!(level.mapped_blocks()[0].label, 5);
    device.verify_identity().unwrap();
}

#[test]
fn wear_leveling_within_a_grant_narrows_the_spread_and_says_what_it_moved() {
    let spread = |leveled: bool| {
        let (device, _monitor, grant) = grant(device(1, 1, 20, 4), 0, 2);
        let level = FunctionLevel::open(grant).unwrap();
        let take = || level.address_mapper(T, 0, Mapping::Block, 1).unwrap().block;
        // Most blocks hold data that never changes.
        let mut cold: Vec<GrantBlock> = (0..12).map(|_| take()).collect();
        for (number, block) in cold.iter().enumerate() {
            (0..3)
                .for_each(|page| assert!(level.flash_write(T, *block, page, &[number as u8; 4096]).is_ok()));
        }
        for _ in 0..200 {
            let block = take();
            level.flash_write(T, block, 0, &[9; 4096]).unwrap();
            level.flash_trim(block).unwrap();
            level.flush(T).unwrap();
            if leveled {
                for shuffled in level.wear_leveler(T, 4, 2).unwrap().shuffled {
                    let moved = cold.iter_mut().find(|block| **block == shuffled.from).unwrap();
                    *moved = shuffled.to;
                }
            }
        }
        for (number, block) in cold.iter().enumerate() {
            let mut data = [0; 4096];
            (0..3).for_each(|page| assert!(level.flash_read(T, *block, page, 0, &mut data).is_ok()));
            assert_eq!(data, [number as u8; 4096]);
        }
        let report = level.wear_leveler(T, u32::MAX, 0).unwrap();
        device.verify_identity().unwrap();
        report.max - report.min
    };
    let (without, with) = (spread(false), spread(true));
    assert!(with <= 8 && without >= 20, "{without} without, {with} with");
}

fn range(start: u64, pages: u64, mapping: RangeMapping) -> RangePolicy {
    RangePolicy { start, pages, mapping, gc: VictimPolicy::Greedy, over_provisioning_permille: 100 }
}

#[test]
fn ranges_that_overlap_or_do_not_fit_and_calls_outside_them_are_refused() {
    let (device, _monitor, grant) = grant(device(2, 1, 64, 4), 0, 2);
    let level = PolicyLevel::create(grant, PolicySetup::default()).unwrap();
    level.ftl_ioctl(&range(10, 50, RangeMapping::Page)).unwrap();
    let free = level.free_units();
    for (start, pages) in [(0, 11), (59, 5), (20, 1), (0, 100), (u64::MAX, 2), (5, 0)] {
        let refused = level.ftl_ioctl(&range(start, pages, RangeMapping::Block));
        assert!(matches!(refused, Err(LevelError::BadRequest(_))), "{start} {pages}: {refused:?}");
    }
    let refused = level.ftl_ioctl(&range(1 << 40, 1 << 39, RangeMapping::Page));
    assert!(matches!(refused, Err(LevelError::NoRoom { .. })), "{refused:?}");
    assert_eq!(level.free_units(), free);
    let write = |page, bytes| level.ftl_write(T, page, &vec![0; bytes], Tag::default());
    assert!(matches!(write(9, 4096), Err(LevelError::NoRange { page: 9 })));
    assert!(matches!(write(59, 8192), Err(LevelError::BadRequest(_))));
    assert!(matches!(write(10, 100), Err(LevelError::BadRequest(_))));
    assert!(matches!(write(10, 0), Err(LevelError::BadRequest(_))));
    write(59, 4096).unwrap();
    device.verify_identity().unwrap();
}

#[test]
fn each_victim_policy_and_both_mappings_keep_data_on_flash_that_fails() {
    for (number, gc) in VictimPolicy::ALL.into_iter().enumerate() {
        let plan = FaultPlan {
            seed: number as u64,
            program_failures: 100,
            erase_failures: 250,
            ..FaultPlan::default()
        };
        // Few spares, so that blocks are retired from the monitor's point of view too.
        let (device, monitor, grant) = grant(device(2, 1, 100, 8).with_faults(plan), 0, 2);
        let setup = PolicySetup { stripe: 1, streams: 2, checkpoint_pages: 0 };
        let level = PolicyLevel::create(grant, setup).unwrap();
        let policy = |start, pages, mapping| RangePolicy {
            gc,
            over_provisioning_permille: 500,
            ..range(start, pages, mapping)
        };
        level.ftl_ioctl(&policy(0, 300, RangeMapping::Page)).unwrap();
        level.ftl_ioctl(&policy(300, 160, RangeMapping::Block)).unwrap();
        let mut random = Random(number as u64 + 1);
        let mut wanted = [0u8; 460];
        for step in 0..12_000u32 {
            let page = random.below(460);
            wanted[page as usize] = step as u8 | 1;
            level.ftl_write(T, page, &[step as u8 | 1; 4096], Tag::default()).unwrap();
        }
        let check = |level: &PolicyLevel| {
            level.verify().unwrap();
            for (page, value) in wanted.iter().enumerate() {
                let mut data = [0; 4096];
                level.ftl_read(T, page as u64, &mut data).unwrap();
                assert_eq!(data, [*value; 4096], "{gc:?} page {page}");
            }
        };
        check(&level);
        assert!(!device.bad_blocks().is_empty());
        drop(level);
        check(&PolicyLevel::open(monitor.attach("a").unwrap(), PolicySetup { stripe: 0, ..setup }).unwrap());
        device.verify_identity().unwrap();
    }
}

/// A grant with a page of each of these levels is refused by the other one, and opens at its own as before.
#[test]
fn a_level_refuses_a_grant_with_data_of_another_level_and_the_data_stays() {
    let refused = |error: LevelError, found: LevelName, wanted: LevelName| {
        let text = error.to_string();
        assert!(
            matches!(&error, LevelError::OtherLevel { grant, found: f, wanted: w } if grant == "a" && *f == found && *w == wanted),
            "{text}"
        );
        assert!(
            text.contains("'a'") && text.contains(&found.to_string()) && text.contains("release"),
            "{text}"
        );
    };
    let data = vec![7; 4096];
    let mut back = vec![0; 4096];

    let (_device, monitor, pages) = grant(device(2, 1, 23, 4), 0, 2);
    let level = PolicyLevel::create(pages, PolicySetup::default()).unwrap();
    let policy = RangePolicy {
        start: 0,
        pages: 16,
        mapping: RangeMapping::Page,
        gc: VictimPolicy::Greedy,
        over_provisioning_permille: 0,
    };
    let wrote = level.ftl_ioctl(&policy).and_then(|()| level.ftl_write(T, 5, &data, Tag::default()));
    wrote.unwrap();
    drop(level);
    let error = FunctionLevel::open(monitor.attach("a").unwrap()).unwrap_err();
    refused(error, LevelName::Policy, LevelName::Function);
    let level = PolicyLevel::open(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap();
    level.ftl_read(T, 5, &mut back).unwrap();
    assert_eq!(back, data);
    // Checkpoints alone are data too.
    level.remove(0).unwrap();
    drop(level);
    let error = FunctionLevel::open(monitor.attach("a").unwrap()).unwrap_err();
    refused(error, LevelName::Policy, LevelName::Function);

    let (_device, monitor, blocks) = grant(device(2, 1, 23, 4), 0, 2);
    let level = FunctionLevel::open(blocks).unwrap();
    let block = level.address_mapper(T, 0, Mapping::Block, 0).unwrap().block;
    level.flash_write(T, block, 0, &data).unwrap();
    drop(level);
    let error = PolicyLevel::create(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap_err();
    refused(error, LevelName::Function, LevelName::Policy);
    let error = PolicyLevel::open(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap_err();
    refused(error, LevelName::Function, LevelName::Policy);
    let level = FunctionLevel::open(monitor.attach("a").unwrap()).unwrap();
    back.fill(0);
    level.flash_read(T, block, 0, 0, &mut back).unwrap();
    assert_eq!(back, data);
    // The remedy.
    drop(level);
    monitor.release("a").unwrap();
    let request = GrantRequest { name: "a".into(), bytes: 1, over_provisioning_permille: 0 };
    let fresh = monitor.allocate(&request).unwrap();
    drop(PolicyLevel::create(fresh, PolicySetup { stripe: 1, ..PolicySetup::default() }).unwrap());
}

#[test]
fn what_is_wrong_with_a_grant_a_range_or_a_device_is_said_with_what_helps() {
    let (_device, monitor, fresh) = grant(device(2, 1, 23, 4), 0, 2);
    let text = PolicyLevel::open(fresh, PolicySetup::default()).unwrap_err().to_string();
    assert!(text.contains("'a'") && text.contains("policy level") && !text.contains("format"), "{text}");

    let level = PolicyLevel::create(monitor.attach("a").unwrap(), PolicySetup::default()).unwrap();
    let refused = |start, pages, mapping, over_provisioning_permille| {
        let gc = VictimPolicy::Greedy;
        let policy = RangePolicy { start, pages, mapping, gc, over_provisioning_permille };
        level.ftl_ioctl(&policy).unwrap_err().to_string()
    };
    for mapping in [RangeMapping::Page, RangeMapping::Block] {
        let text = refused(5, u64::MAX - 2, mapping, 0);
        assert!(text.contains("beyond the last page number") && !text.contains("give it some"), "{text}");
        assert!(refused(5, 0, mapping, 0).contains("give it some"));
        let most = level.pages_max(&RangePolicy {
            start: 0,
            pages: 0,
            mapping,
            gc: VictimPolicy::Greedy,
            over_provisioning_permille: 0,
        });
        for pages in [most + 1, 1 << 40, u64::MAX] {
            let text = refused(0, pages, mapping, 0);
            assert!(text.contains(&format!("the range can have at most {most} pages")), "{text}");
        }
        // So many units that their number has no room.
        assert!(refused(0, u64::MAX, mapping, u32::MAX).contains("no room"));
    }

    let small = |spares_per_lun| {
        let device = Arc::new(device(1, 1, 7, 4));
        Monitor::format(device, MonitorSetup { spares_per_lun }).unwrap_err().to_string()
    };
    assert!(small(2).contains("make a larger device") && !small(2).contains("spares"), "{}", small(2));
}
