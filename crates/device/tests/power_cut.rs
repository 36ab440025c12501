//! What a power cut may leave, checked against a plain list of what was written.
//!
//! The oracle keeps, for each zone, every state that the zone was in since the last flush, block by block. After a
//! cut, each zone has to be in one of them. The seeds vary what survives.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use std::collections::HashSet;
use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_device::{DeviceError, Geometry, PowerCut, ZoneState, ZonedDevice};

const TAG: Tag = Tag::METADATA;
const ZONES: u32 = 8;

fn geometry() -> Geometry {
    // Pages of two blocks, so that there is something to pad.
    let pages = Geometry { page_bytes: 8 << 10, open_max: 4, active_max: 8, ..Geometry::bbssd() };
    pages.with_size(512 << 10).with_zone_bytes(64 << 10)
}

#[derive(Clone, Debug)]
enum Step {
    Append(u32, u32),
    Reset(u32),
    Finish(u32),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..ZONES, 1..7u32).prop_map(|(z, n)| Step::Append(z, n)),
        2 => (0..ZONES).prop_map(Step::Reset),
        1 => (0..ZONES).prop_map(Step::Finish),
        1 => Just(Step::Flush),
    ]
}

/// A zone as the oracle sees it: the stamps of its blocks, and whether it is full.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct ZoneView {
    stamps: Vec<u64>,
    full: bool,
}

fn block(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

fn view(device: &PowerCut, zone: ZoneId) -> ZoneView {
    let report = device.report(zone).unwrap();
    assert!(!report.state.is_open(), "no zone is open after power comes back");
    let mut out = vec![0; BLOCK_BYTES];
    let stamps = (0..report.write_pointer)
        .map(|at| {
            device.read(zone, at, &mut out).unwrap();
            let stamp = u64::from_le_bytes(out[..8].try_into().unwrap());
            assert!(out == block(stamp), "a block is whole");
            stamp
        })
        .collect();
    ZoneView { stamps, full: report.state == ZoneState::Full }
}

/// Runs the steps on the device and the oracle. Returns, per zone, the states that it may be in after a cut.
fn run(device: &PowerCut, steps: &[Step]) -> Vec<Vec<ZoneView>> {
    let capacity = device.info().zone_capacity as usize;
    let mut allowed = vec![vec![ZoneView::default()]; ZONES as usize];
    let mut stamp = 0;
    for step in steps {
        let lost = match *step {
            Step::Append(zone, n) => {
                let states = &mut allowed[zone as usize];
                let mut now = states.last().unwrap().clone();
                let n = (n as usize).min(capacity - now.stamps.len());
                if now.full || n == 0 {
                    continue;
                }
                let mut data = Vec::new();
                for _ in 0..n {
                    stamp += 1;
                    data.extend(block(stamp));
                    now.stamps.push(stamp);
                    now.full = now.stamps.len() == capacity;
                    states.push(now.clone());
                }
                device.append(ZoneId(zone), &data, &TAG).map(|_| ())
            }
            Step::Reset(zone) => {
                allowed[zone as usize].push(ZoneView::default());
                device.reset(ZoneId(zone))
            }
            Step::Finish(zone) => {
                let states = &mut allowed[zone as usize];
                let now = ZoneView { full: true, ..states.last().unwrap().clone() };
                states.push(now);
                device.finish(ZoneId(zone))
            }
            Step::Flush => match device.flush() {
                Ok(()) => {
                    for states in &mut allowed {
                        states.drain(..states.len() - 1);
                    }
                    Ok(())
                }
                lost => lost,
            },
        };
        match lost {
            Ok(()) => {}
            Err(DeviceError::PowerLost) => break,
            Err(other) => panic!("{other}"),
        }
    }
    allowed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn each_zone_comes_back_as_it_was_at_some_moment_since_the_last_flush(
        steps in prop::collection::vec(step(), 1..60),
        cut in 0u64..60,
        seeds in prop::collection::vec(any::<u64>(), 8)
    ) {
        let device = PowerCut::new(&geometry()).unwrap();
        device.cut_after(cut);
        let allowed = run(&device, &steps);
        for seed in seeds {
            let after = device.reopen(seed).unwrap();
            let again = device.reopen(seed).unwrap();
            for zone in 0..ZONES {
                let found = view(&after, ZoneId(zone));
                prop_assert!(allowed[zone as usize].contains(&found), "zone {}: {:?}", zone, found);
                prop_assert_eq!(&found, &view(&again, ZoneId(zone)), "the same seed gives the same device");
            }
            after.verify_identity().unwrap();
            // The device is whole: what follows is carried out and counted as on any other.
            for zone in 0..ZONES {
                after.reset(ZoneId(zone)).unwrap();
                after.append(ZoneId(zone), &block(1), &TAG).unwrap();
            }
            after.verify_identity().unwrap();
        }
    }
}

#[test]
fn every_moment_since_the_last_flush_can_be_what_is_left() {
    let device = PowerCut::new(&geometry()).unwrap();
    device.append(ZoneId(0), &block(1).repeat(2), &TAG).unwrap();
    device.flush().unwrap();
    device.append(ZoneId(0), &block(2).repeat(3), &TAG).unwrap();
    device.reset(ZoneId(0)).unwrap();
    device.append(ZoneId(0), &block(3).repeat(2), &TAG).unwrap();
    let left: HashSet<Vec<u64>> =
        (0..200).map(|seed| view(&device.reopen(seed).unwrap(), ZoneId(0)).stamps).collect();
    let expected: [&[u64]; 7] = [&[1, 1], &[1, 1, 2], &[1, 1, 2, 2], &[1, 1, 2, 2, 2], &[], &[3], &[3, 3]];
    assert_eq!(left, expected.into_iter().map(<[u64]>::to_vec).collect());
}

#[test]
fn after_the_cut_nothing_works_until_the_device_is_reopened() {
    let device = PowerCut::new(&geometry()).unwrap();
    device.append(ZoneId(0), &block(1), &TAG).unwrap();
    assert_eq!(device.operations(), 1);
    device.cut_after(1);
    device.append(ZoneId(0), &block(2), &TAG).unwrap();
    assert!(matches!(device.flush(), Err(DeviceError::PowerLost)));
    assert!(device.is_cut());
    let mut out = block(0);
    for result in [
        device.read(ZoneId(0), 0, &mut out),
        device.report(ZoneId(0)).map(|_| ()),
        device.append(ZoneId(0), &block(3), &TAG).map(|_| ()),
        device.reset(ZoneId(0)),
        device.flush(),
    ] {
        assert!(matches!(result, Err(DeviceError::PowerLost)));
    }
    assert!(!device.reopen(0).unwrap().is_cut());
}

#[test]
fn a_device_of_64_mebibytes_is_reopened_a_thousand_times_without_copying_it() {
    let device = PowerCut::new(&Geometry::zn540().with_size(64 << 20).with_zone_bytes(1 << 20)).unwrap();
    let data = block(9).repeat(256);
    for zone in 0..64 {
        device.append(ZoneId(zone), &data, &TAG).unwrap();
    }
    device.flush().unwrap();
    let clones: Vec<PowerCut> = (0..1000).map(|seed| device.reopen(seed).unwrap()).collect();
    // 64 GB were they copies.
    for (zone, clone) in clones.iter().enumerate() {
        clone.reset(ZoneId(zone as u32 % 64)).unwrap();
        clone.append(ZoneId(zone as u32 % 64), &block(zone as u64), &TAG).unwrap();
    }
    assert_eq!(device.report(ZoneId(0)).unwrap().write_pointer, 256);
}
