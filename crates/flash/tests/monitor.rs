//! Grants: allotment, isolation, persistence, bad blocks, several tenants at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use support::{Random, device, geometry};
use weft_core::Nanos;
use weft_device::FaultPlan;
use weft_device::nand::{Fault, FlashSetup, OpenChannel};
use weft_flash::monitor::LevelPolicy;
use weft_flash::{GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, RawLevel};

const T: Nanos = Nanos(0);

fn request(name: &str, bytes: u64, permille: u32) -> GrantRequest {
    GrantRequest { name: name.into(), bytes, over_provisioning_permille: permille }
}

fn block(channel: u32, lun: u32, block: u32) -> GrantBlock {
    GrantBlock { channel, lun, block }
}

fn format(device: OpenChannel) -> (Arc<OpenChannel>, Arc<Monitor>) {
    let device = Arc::new(device);
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    (device, monitor)
}

#[test]
fn luns_are_allotted_round_the_channels_and_over_provisioning_counts() {
    let (device, monitor) = format(device(4, 2, 16, 8));
    let lun = monitor.lun_bytes();
    let a = monitor.allocate(&request("a", 3 * lun, 0)).unwrap();
    assert_eq!(a.geometry().luns_by_channel, [1, 1, 1]);
    let b = monitor.allocate(&request("b", 3 * lun, 250)).unwrap();
    assert_eq!(b.geometry().luns(), 4);
    let channels: Vec<u32> = monitor.grants().iter().flat_map(|g| &g.luns).map(|lun| lun % 4).collect();
    assert_eq!(channels[..3].iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    assert_eq!(monitor.free_luns().unwrap(), 1);
    let refused = monitor.allocate(&request("c", 2 * lun, 0));
    assert!(matches!(refused, Err(LevelError::NoFreeLuns { wanted: 2, free: 1 })), "{refused:?}");
    assert!(matches!(monitor.allocate(&request("a", 1, 0)), Err(LevelError::GrantExists(_))));
    assert!(matches!(monitor.attach("a"), Err(LevelError::GrantInUse(_))));
    assert!(matches!(monitor.attach("x"), Err(LevelError::NoSuchGrant(_))));
    drop(a);
    monitor.release("a").unwrap();
    assert_eq!(monitor.free_luns().unwrap(), 4);
    device.verify_identity().unwrap();
}

#[test]
fn an_address_outside_the_grant_is_an_error_of_its_own_and_touches_nothing() {
    let (device, monitor) = format(device(2, 2, 16, 8));
    let raw = RawLevel::new(monitor.allocate(&request("a", 1, 0)).unwrap());
    let blocks = raw.geometry().blocks_per_lun;
    let before = device.counters();
    for outside in [block(1, 0, 0), block(0, 1, 0), block(0, 0, blocks)] {
        let refused = raw.page_write(T, outside.page(0), &[0; 4096], &[]);
        assert!(matches!(refused, Err(LevelError::OutsideGrant { .. })), "{refused:?}");
        assert!(matches!(raw.block_erase(T, outside), Err(LevelError::OutsideGrant { .. })));
        let refused = raw.page_read(T, outside.page(0), 0, &mut [0; 16], &mut []);
        assert!(matches!(refused, Err(LevelError::OutsideGrant { .. })));
    }
    assert_eq!(device.counters(), before);
}

#[test]
fn grants_and_data_are_there_after_reopening_and_a_new_tenant_sees_nothing_of_the_last() {
    let (device, monitor) = format(device(2, 2, 16, 8));
    let lun = monitor.lun_bytes();
    {
        let raw = RawLevel::new(monitor.allocate(&request("a", 2 * lun, 0)).unwrap());
        raw.page_write(T, block(1, 0, 3).page(0), &[7; 4096], b"mine").unwrap();
    }
    drop(monitor);
    let monitor = Monitor::open(device.clone()).unwrap();
    assert_eq!(monitor.grants().len(), 1);
    {
        let raw = RawLevel::new(monitor.attach("a").unwrap());
        let (mut data, mut oob) = ([0; 4096], [0; 4]);
        raw.page_read(T, block(1, 0, 3).page(0), 0, &mut data, &mut oob).unwrap();
        assert_eq!((data[4095], &oob), (7, b"mine"));
    }
    monitor.release("a").unwrap();
    let raw = RawLevel::new(monitor.allocate(&request("b", 4 * lun, 0)).unwrap());
    for (channel, lun) in raw.geometry().lun_list() {
        for number in 0..raw.geometry().blocks_per_lun {
            assert_eq!(raw.look(block(channel, lun, number)).unwrap().programmed, 0);
        }
    }
    device.verify_identity().unwrap();
}

#[test]
fn a_device_without_a_monitor_and_one_that_pairs_pages_are_refused() {
    let plain = Arc::new(device(2, 1, 16, 8));
    assert!(matches!(Monitor::open(plain), Err(LevelError::NotFormatted(_))));
    let mut setup = FlashSetup::new(geometry(2, 1, 16, 8));
    setup.pairing = Some(weft_device::nand::Pairing::mlc());
    let paired = Arc::new(OpenChannel::memory(&setup).unwrap());
    assert!(matches!(Monitor::format(paired, MonitorSetup::default()), Err(LevelError::BadRequest(_))));
}

#[test]
fn bad_blocks_are_replaced_with_what_they_held_until_spares_run_out() {
    let plan = FaultPlan { seed: 1, factory_bad_blocks: 60_000, ..FaultPlan::default() };
    let device = Arc::new(device(2, 1, 64, 8).with_faults(plan));
    assert!(!device.bad_blocks().is_empty());
    let monitor = Monitor::format(device.clone(), MonitorSetup { spares_per_lun: 8 }).unwrap();
    let raw = RawLevel::new(monitor.allocate(&request("a", 2 * monitor.lun_bytes(), 0)).unwrap());
    let at = block(0, 0, 5);
    for n in 0..4 {
        raw.page_write(T, at.page(n), &[n as u8 + 1; 4096], &[n as u8]).unwrap();
    }
    let fail_program = |page| {
        let physical = device.shape().all_blocks().find(|b| {
            let mut data = [0; 1];
            device.block_info(*b).unwrap().programmed == 4
                && device.read(T, b.page(3), 0, &mut data, &mut []).is_ok()
                && data[0] == 4
        });
        device.inject(Fault::Program(physical.unwrap().page(page))).unwrap();
    };
    fail_program(4);
    raw.page_write(T, at.page(4), &[5; 4096], &[4]).unwrap();
    for n in 0..5 {
        let (mut data, mut oob) = ([0; 4096], [0; 1]);
        raw.page_read(T, at.page(n), 0, &mut data, &mut oob).unwrap();
        assert_eq!((data[100], oob[0]), (n as u8 + 1, n as u8));
    }
    assert_eq!(raw.look(at).unwrap().programmed, 5);
    device.verify_identity().unwrap();
    let grown = device.counters().program_failures;
    assert_eq!(grown, 1);
}

#[test]
fn with_flash_that_fails_often_tenants_see_no_failure_while_there_are_spares_and_a_clear_one_after() {
    let plan = FaultPlan { seed: 9, program_failures: 300, erase_failures: 1_000, ..FaultPlan::default() };
    let device = Arc::new(device(2, 1, 64, 8).with_faults(plan));
    let monitor = Monitor::format(device.clone(), MonitorSetup { spares_per_lun: 10 }).unwrap();
    let raw = RawLevel::new(monitor.allocate(&request("a", 2 * monitor.lun_bytes(), 0)).unwrap());
    let blocks = raw.geometry().blocks_per_lun;
    let mut random = Random(3);
    let mut written: Vec<Vec<u8>> = vec![Vec::new(); 2 * blocks as usize];
    let mut retired = false;
    for step in 0..60_000u32 {
        let number = random.below(u64::from(2 * blocks)) as u32;
        let at = block(number % 2, 0, number / 2);
        let held = &mut written[number as usize];
        let result = if held.len() == 8 {
            raw.block_erase(T, at).map(|_| held.clear())
        } else {
            let value = step as u8;
            raw.page_write(T, at.page(held.len() as u32), &[value; 4096], &[]).map(|_| held.push(value))
        };
        match result {
            Ok(()) => {}
            Err(LevelError::BlockRetired { .. }) => {
                retired = true;
                break;
            }
            Err(other) => panic!("{other}"),
        }
        for (page, value) in held.iter().enumerate() {
            let mut data = [0; 1];
            raw.page_read(T, at.page(page as u32), 7, &mut data, &mut []).unwrap();
            assert_eq!(data[0], *value);
        }
    }
    assert!(retired && device.bad_blocks().len() >= 10, "{}", device.bad_blocks().len());
    device.verify_identity().unwrap();
}

#[test]
fn tenants_on_threads_keep_their_data_while_luns_are_exchanged_under_them() {
    let (device, monitor) = format(device(2, 2, 16, 8));
    let lun = monitor.lun_bytes();
    let tenants = ["a", "b", "c"].map(|name| monitor.allocate(&request(name, lun, 0)).unwrap());
    // The busy tenant writes until LUNs have been exchanged under it, however the threads are scheduled.
    let exchanged = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let exchanged = &exchanged;
        let writers: Vec<_> = tenants
            .into_iter()
            .enumerate()
            .map(|(number, grant)| {
                scope.spawn(move || {
                    let raw = RawLevel::new(grant);
                    let busy = number == 0;
                    let mut round = 0;
                    while round < 20 || busy && exchanged.load(Relaxed) < 3 && round < 100_000 {
                        let at = block(0, 0, round % raw.geometry().blocks_per_lun);
                        raw.block_erase(T, at).unwrap();
                        for page in 0..8 {
                            let value = (number as u32 * 100 + round + page) as u8;
                            raw.page_write(T, at.page(page), &[value; 4096], &[]).unwrap();
                            let mut data = [0; 1];
                            raw.page_read(T, at.page(page), 4095, &mut data, &mut []).unwrap();
                            assert_eq!(data[0], value);
                        }
                        round += 1;
                    }
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            let policy = LevelPolicy { gap_erases_min: 1, ..LevelPolicy::default() };
            exchanged.fetch_add(monitor.level_wear(policy, T).unwrap().swaps, Relaxed);
            std::thread::yield_now();
        }
    });
    assert!(exchanged.into_inner() >= 3);
    device.verify_identity().unwrap();
}

/// Lets blocks of a physical LUN go bad until so many good ones are left, of those that no table names first.
fn wear_out(device: &OpenChannel, lun: u32, good: usize) {
    let at = device.shape().lun_at(lun);
    for number in (0..device.shape().blocks_per_lun()).rev() {
        let bad = device.lun_info(at).unwrap().iter().filter(|info| info.state.is_bad()).count();
        if device.shape().blocks_per_lun() as usize - bad == good {
            return;
        }
        let block = at.block(0, number);
        if device.block_info(block).unwrap().programmed == 0 {
            device.inject(Fault::Erase(block)).unwrap();
            device.erase(T, block).unwrap_err();
        }
    }
    panic!("LUN {lun} has more blocks in use");
}

/// Two tenants of one LUN each, on LUNs 0 and 1: the first writes much, the second once.
fn busy_and_quiet() -> (Arc<OpenChannel>, Arc<Monitor>, [RawLevel; 2]) {
    let (device, monitor) = format(device(2, 1, 16, 8));
    let lun = monitor.lun_bytes();
    let levels =
        ["busy", "quiet"].map(|name| RawLevel::new(monitor.allocate(&request(name, lun, 0)).unwrap()));
    let blocks = levels[0].geometry().blocks_per_lun;
    for (level, rounds) in levels.iter().zip([40, 1]) {
        for at in (0..rounds).flat_map(|_| (0..blocks).map(|number| block(0, 0, number))) {
            level.block_erase(T, at).unwrap();
            level.page_write(T, at.page(0), &[at.block as u8 + rounds as u8; 4096], &[]).unwrap();
        }
    }
    (device, monitor, levels)
}

fn check_tenant(level: &RawLevel, rounds: u8) {
    for number in 0..level.geometry().blocks_per_lun {
        let mut data = [0; 1];
        level.page_read(T, block(0, 0, number).page(0), 9, &mut data, &mut []).unwrap();
        assert_eq!(data[0], number as u8 + rounds, "block {number}");
    }
}

#[test]
fn luns_without_a_block_for_scratch_are_not_exchanged() {
    let policy = LevelPolicy { gap_erases_min: 1, ..LevelPolicy::default() };
    for worn_out in [0, 1] {
        let (device, monitor, [busy, quiet]) = busy_and_quiet();
        let kept = device.shape().blocks_per_lun() - busy.geometry().blocks_per_lun;
        assert!(kept > 2);
        // The log's blocks are part of what is kept.
        wear_out(&device, worn_out, busy.geometry().blocks_per_lun as usize + kept as usize - 2);
        let report = monitor.level_wear(policy, T).unwrap();
        assert_eq!((report.swaps, report.pages_copied, report.waits), (0, 0, false));
        check_tenant(&busy, 40);
        check_tenant(&quiet, 1);
        device.verify_identity().unwrap();
    }
}

/// The same, in the middle of an exchange that has come to a stop for want of good blocks.
fn stopped_exchange() -> (Arc<OpenChannel>, Arc<Monitor>, [RawLevel; 2]) {
    let (device, monitor, levels) = busy_and_quiet();
    // Both spares of a LUN fail while the exchange runs: the third copy to it finds none.
    let at = device.shape().lun_at(1);
    let free: Vec<_> = (0..device.shape().blocks_per_lun())
        .map(|number| at.block(0, number))
        .filter(|block| device.block_info(*block).unwrap().programmed == 0)
        .collect();
    for block in free {
        device.inject(Fault::Program(block.page(0))).unwrap();
    }
    let report = monitor.level_wear(LevelPolicy { gap_erases_min: 1, ..LevelPolicy::default() }, T).unwrap();
    assert!(report.waits && report.swaps == 0, "{report:?}");
    (device, monitor, levels)
}

#[test]
fn an_exchange_that_finds_no_good_block_waits_and_nobody_loses_anything() {
    let (device, monitor, [busy, quiet]) = stopped_exchange();
    check_tenant(&busy, 40);
    check_tenant(&quiet, 1);
    // Another run does not begin another exchange over it.
    assert!(
        monitor.level_wear(LevelPolicy { gap_erases_min: 1, ..LevelPolicy::default() }, T).unwrap().waits
    );
    drop((busy, quiet, monitor));
    let monitor = Monitor::open(device.clone()).unwrap();
    let [busy, quiet] = ["busy", "quiet"].map(|name| RawLevel::new(monitor.attach(name).unwrap()));
    check_tenant(&busy, 40);
    check_tenant(&quiet, 1);
    device.verify_identity().unwrap();
}

#[test]
fn releasing_a_tenant_of_an_exchange_that_waits_lets_it_go_on_for_the_other() {
    for (released, stays, rounds) in [("busy", "quiet", 1), ("quiet", "busy", 40)] {
        let (device, monitor, levels) = stopped_exchange();
        drop(levels);
        monitor.release(released).unwrap();
        drop(monitor);
        let monitor = Monitor::open(device.clone()).unwrap();
        let level = RawLevel::new(monitor.attach(stays).unwrap());
        check_tenant(&level, rounds);
        assert!(!monitor.level_wear(LevelPolicy::default(), T).unwrap().waits);
        let luns = &monitor.grants()[0].luns;
        drop(level);
        monitor.release(stays).unwrap();
        assert_eq!(luns.len(), 1);
        // LUN 1 has lost its spares, and still has what a grant needs.
        assert_eq!(monitor.free_luns().unwrap(), 2, "{released} released");
        device.verify_identity().unwrap();
    }
}

#[test]
fn power_cut_at_every_operation_of_allocating_and_releasing_leaks_no_lun() {
    let mut cuts = 0;
    for operations in 0.. {
        let (device, monitor) = format(device(2, 2, 12, 4));
        let lun = monitor.lun_bytes();
        let grant = monitor.allocate(&request("a", lun, 0)).unwrap();
        // Something to erase when the LUNs are given to somebody else.
        let raw = RawLevel::new(grant);
        (0..5).for_each(|n| assert!(raw.page_write(T, block(0, 0, n).page(0), &[1; 4096], &[]).is_ok()));
        drop(raw);
        device.cut_after(operations, operations);
        let run = || {
            monitor.release("a")?;
            monitor.allocate(&request("b", 4 * lun, 0)).map(|_| ())
        };
        let done = run().is_ok();
        device.power_on();
        drop(monitor);
        let monitor = Monitor::open(device.clone()).unwrap();
        let grants = monitor.grants();
        let luns: usize = grants.iter().map(|grant| grant.luns.len()).sum();
        assert_eq!(monitor.free_luns().unwrap() as usize + luns, 4, "cut after {operations}");
        assert!(grants.len() <= 1 && (!done || grants[0].name == "b"), "cut after {operations}: {grants:?}");
        for grant in &grants {
            monitor.attach(&grant.name).unwrap();
        }
        if grants.is_empty() {
            monitor.allocate(&request("c", 4 * lun, 0)).unwrap();
        }
        device.verify_identity().unwrap();
        if done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts >= 6, "{cuts}");
}
