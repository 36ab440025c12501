//! Flash that fails, and what the device makes of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_device::{DeviceError, FaultPlan, Geometry, ZoneState, ZonedDevice, ZonedModel};

const TAG: Tag = Tag::METADATA;
const ALWAYS: u32 = 1_000_000;

fn geometry() -> Geometry {
    // 32 zones of four blocks of 16 pages.
    Geometry { pages_per_block: 16, ..Geometry::bbssd().with_size(8 << 20).with_zone_bytes(256 << 10) }
}

fn device(plan: FaultPlan) -> ZonedModel {
    ZonedModel::memory(&geometry()).unwrap().with_faults(plan)
}

fn data(blocks: usize) -> Vec<u8> {
    vec![7; blocks * BLOCK_BYTES]
}

fn states(device: &ZonedModel, state: ZoneState) -> usize {
    (0..32).filter(|z| device.report(ZoneId(*z)).unwrap().state == state).count()
}

#[test]
fn a_failed_program_makes_the_zone_read_only_and_keeps_what_was_there() {
    let device = device(FaultPlan { seed: 5, program_failures: 50_000, ..FaultPlan::default() });
    let mut failed = 0;
    for zone in (0..32).map(ZoneId) {
        let written = loop {
            let at = device.report(zone).unwrap().write_pointer;
            if at == 64 {
                break None;
            }
            match device.append(zone, &data(1), &TAG) {
                Ok(_) => {}
                Err(DeviceError::Media { at: failed_at, what: "program", .. }) => {
                    assert_eq!(failed_at, at);
                    break Some(at);
                }
                Err(other) => panic!("{other}"),
            }
        };
        let Some(written) = written else { continue };
        failed += 1;
        let report = device.report(zone).unwrap();
        assert_eq!((report.state, report.write_pointer), (ZoneState::ReadOnly, written));
        if written > 0 {
            let mut out = data(written as usize);
            out.fill(0);
            device.read(zone, 0, &mut out).unwrap();
            assert_eq!(out, data(written as usize));
        }
        assert!(matches!(device.append(zone, &data(1), &TAG), Err(DeviceError::ZoneReadOnly(_))));
        assert!(matches!(device.reset(zone), Err(DeviceError::InvalidTransition { .. })));
    }
    // One unit in twenty fails and a zone has 64, so few zones get through.
    assert!((25..32).contains(&failed), "{failed}");
    assert_eq!(device.flash_report().wear.zones_read_only, failed);
    device.verify_identity().unwrap();
}

#[test]
fn a_failed_erase_takes_a_spare_and_without_one_the_zone() {
    let plan = FaultPlan { erase_failures: ALWAYS, spare_blocks: 6, ..FaultPlan::default() };
    let device = device(plan);
    for zone in 0..3 {
        device.append(ZoneId(zone), &data(64), &TAG).unwrap();
    }
    // All four blocks of the first zone have failed and were replaced; for the second there are two spares left.
    device.reset(ZoneId(0)).unwrap();
    assert!(matches!(device.reset(ZoneId(1)), Err(DeviceError::Media { what: "erase", .. })));
    assert_eq!(device.report(ZoneId(1)).unwrap().state, ZoneState::Offline);
    let mut out = data(1);
    assert!(matches!(device.read(ZoneId(1), 0, &mut out), Err(DeviceError::ZoneOffline(_))));
    assert!(matches!(device.append(ZoneId(1), &data(1), &TAG), Err(DeviceError::ZoneOffline(_))));
    device.append(ZoneId(0), &data(1), &TAG).unwrap();
    let wear = device.flash_report().wear;
    assert_eq!((wear.blocks_replaced, wear.zones_offline, wear.erases_max), (6, 1, 1));
    device.verify_identity().unwrap();
}

#[test]
fn a_zone_at_the_end_of_its_endurance_goes_offline_at_its_next_erase() {
    let device = ZonedModel::memory(&Geometry { endurance: 3, ..geometry() }).unwrap();
    for _ in 0..3 {
        device.append(ZoneId(0), &data(64), &TAG).unwrap();
        device.reset(ZoneId(0)).unwrap();
    }
    device.append(ZoneId(0), &data(64), &TAG).unwrap();
    assert!(matches!(
        device.reset(ZoneId(0)),
        Err(DeviceError::Media { what: "erase of worn-out blocks", .. })
    ));
    assert_eq!(device.report(ZoneId(0)).unwrap().state, ZoneState::Offline);
    device.verify_identity().unwrap();
}

#[test]
fn an_unreadable_page_stays_so_until_the_zone_is_reset_and_spares_its_neighbours() {
    let device = device(FaultPlan { seed: 1, uncorrectable_reads: 100_000, ..FaultPlan::default() });
    let zone = ZoneId(0);
    let unreadable = || -> Vec<u32> {
        let mut out = data(1);
        (0..64).filter(|at| device.read(zone, *at, &mut out).is_err()).collect()
    };
    device.append(zone, &data(64), &TAG).unwrap();
    let first = unreadable();
    assert!((1..20).contains(&first.len()), "{first:?}");
    assert_eq!(unreadable(), first);
    let mut all = data(64);
    assert!(matches!(
        device.read(zone, 0, &mut all),
        Err(DeviceError::Media { at, what: "read", .. }) if at == first[0]
    ));
    device.reset(zone).unwrap();
    device.append(zone, &data(64), &TAG).unwrap();
    assert_ne!(unreadable(), first);
    assert_eq!(device.counters().refused, 0, "failed flash is not the fault of who asked");
}

#[test]
fn factory_bad_blocks_use_up_the_spares_and_then_zones_and_an_image_remembers() {
    let plan = FaultPlan { seed: 3, factory_bad_blocks: 100_000, spare_blocks: 2, ..FaultPlan::default() };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = ZonedModel::create(&path, &geometry(), false, &mut |_, _| ()).unwrap().with_faults(plan);
    let offline = states(&device, ZoneState::Offline);
    assert!((1..20).contains(&offline), "{offline}");
    let report = device.flash_report();
    assert_eq!(report.wear.blocks_replaced, 2);
    drop(device);
    let device = ZonedModel::open(&path).unwrap();
    assert_eq!((states(&device, ZoneState::Offline), device.flash_report()), (offline, report.clone()));
    let again = device.with_faults(plan);
    assert_eq!(again.flash_report(), report, "a block is found bad once");
    again.verify_identity().unwrap();
}

#[test]
fn wear_is_told_by_zone_and_over_all() {
    let device = device(FaultPlan::default());
    for zone in 0..16 {
        for _ in 0..4 {
            device.append(ZoneId(zone), &data(1), &TAG).unwrap();
            device.reset(ZoneId(zone)).unwrap();
        }
    }
    let report = device.flash_report();
    assert_eq!((report.wear.erases_min, report.wear.erases_max, report.wear.blocks), (0, 4, 128));
    assert_eq!((report.wear.erases_mean, report.wear.erases_sd), (2.0, 2.0));
    assert_eq!(device.counters().erases, 16 * 4 * 4);
    assert_eq!(report.erased_unwritten_bytes, 16 * 4 * (63 << 12));
}
