//! Tests of the guarantees of a real drive, on a strict fake with injected faults.

use super::end_mark::EndMark;
use super::fake::{COMMAND_BLOCKS, Command, FakeDrive, Fault, INFO};
use super::{ZoneAccess, ZonedDrive};
use crate::zoned::{ZoneReport, ZoneState, ZonedDevice};
use crate::{DeviceError, Geometry, ZonedModel};
use proptest::prelude::*;
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, Origin, Tag, ZoneId};

const TAG: Tag = Tag { origin: Origin::Host, ..Tag::METADATA };
const Z: ZoneId = ZoneId(2);

/// Room for two chunks in each part of the cache.
const CACHE_BYTES: u64 = 2 << 20;

fn open(disk: &FakeDrive) -> ZonedDrive {
    ZonedDrive::start(Box::new(disk.clone()), CACHE_BYTES).unwrap()
}

fn open_uncached(disk: &FakeDrive) -> ZonedDrive {
    ZonedDrive::start(Box::new(disk.clone()), 0).unwrap()
}

fn fresh() -> (FakeDrive, ZonedDrive) {
    let disk = FakeDrive::new();
    let drive = open(&disk);
    (disk, drive)
}

fn blocks(count: u32, seed: u8) -> Vec<u8> {
    (0..count as usize * BLOCK_BYTES).map(|i| (i / BLOCK_BYTES) as u8 ^ seed | 1).collect()
}

fn read(drive: &ZonedDrive, zone: ZoneId, at: u32, count: u32) -> Vec<u8> {
    let mut out = vec![0; count as usize * BLOCK_BYTES];
    drive.read(zone, at, &mut out).unwrap();
    out
}

fn full_at(write_pointer: u32) -> ZoneReport {
    ZoneReport { state: ZoneState::Full, write_pointer }
}

#[test]
fn data_at_any_address_of_memory_is_written_and_read_back() {
    let (_, drive) = fresh();
    let data = blocks(11, 3);
    let mut shifted = vec![0; data.len() + BLOCK_BYTES];
    for shift in [0, 1, 8, 4095] {
        shifted[shift..shift + data.len()].copy_from_slice(&data);
        drive.write(Z, 0, &shifted[shift..shift + data.len()], &TAG).unwrap();
        assert_eq!(read(&drive, Z, 0, 11), data);
        let mut out = vec![0; 6 * BLOCK_BYTES + 1];
        drive.read(Z, 5, &mut out[1..]).unwrap();
        assert_eq!(out[1..], data[5 * BLOCK_BYTES..]);
        drive.reset(Z).unwrap();
    }
}

#[test]
fn counters_tell_bytes_by_their_origin() {
    let (_, drive) = fresh();
    drive.append(Z, &blocks(5, 0), &TAG).unwrap();
    drive.append(Z, &blocks(2, 0), &TAG.relocated()).unwrap();
    drive.append(Z, &blocks(1, 0), &Tag::METADATA).unwrap();
    drive.finish(Z).unwrap();
    read(&drive, Z, 0, 3);
    let uncached = open_uncached(&FakeDrive::new());
    uncached.append(Z, &blocks(9, 0), &TAG).unwrap();
    read(&uncached, Z, 1, 7);
    let of = uncached.counters();
    assert_eq!((of.reads, of.read_bytes), (2, 7 * BLOCK_BYTES as u64), "commands, not requests");
    drive.flush().unwrap();
    drive.reset(Z).unwrap();
    assert!(drive.write(Z, 3, &blocks(1, 0), &TAG).is_err());
    let of = drive.counters();
    let block = BLOCK_BYTES as u64;
    assert_eq!((of.host_bytes, of.gc_bytes, of.metadata_bytes), (5 * block, 2 * block, block));
    assert_eq!(of.media_bytes, 9 * block, "the end mark is written, too");
    assert_eq!((of.writes, of.reads), (3, 0), "what was just written is in memory");
    assert_eq!((of.flushes, of.resets, of.refused), (1, 1, 1));
    assert_eq!((of.open_high_water, of.active_high_water), (1, 1));
}

#[test]
fn a_short_write_is_gone_on_with() {
    let (disk, drive) = fresh();
    for count in [1, 3] {
        disk.fail(Command::Write, Fault::Short(count));
    }
    disk.fail(Command::Write, Fault::Fails { errno: libc::EINTR, after: 1 });
    let data = blocks(9, 1);
    drive.write(Z, 0, &data, &TAG).unwrap();
    assert!(disk.is_past_its_faults());
    assert_eq!(disk.zone(Z.0), (ZoneState::ImplicitlyOpen, 9));
    assert_eq!(read(&drive, Z, 0, 9), data);
}

#[test]
fn a_failed_write_that_moved_the_write_pointer_ends_the_zone_where_the_drive_says() {
    for after in 0..=COMMAND_BLOCKS {
        let (disk, drive) = fresh();
        let data = blocks(3, 1);
        drive.write(Z, 0, &data, &TAG).unwrap();
        disk.fail(Command::Write, Fault::Fails { errno: libc::EIO, after });
        let error = drive.write(Z, 3, &blocks(7, 2), &TAG).unwrap_err();
        assert!(matches!(error, DeviceError::Media { zone: Z, at: 3, what: "write" }), "{error}");
        assert!(!error.is_refusal());
        assert_eq!(drive.report(Z).unwrap(), full_at(3 + after));
        assert_eq!(disk.zone(Z.0).0, ZoneState::Full, "it holds no place among the active zones");
        assert_eq!(read(&drive, Z, 0, 3), data, "what was written before stays");
        drive.verify_identity().unwrap();
        drop(drive);
        assert_eq!(open(&disk).report(Z).unwrap(), full_at(3 + after), "also after another start");
    }
}

#[test]
fn a_zone_that_dies_in_a_write_is_known_as_dead() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        for errno in [libc::EIO, libc::EPERM] {
            let (disk, drive) = fresh();
            drive.write(Z, 0, &blocks(2, 1), &TAG).unwrap();
            disk.fail(Command::Write, Fault::Kills { errno, state });
            let error = drive.write(Z, 2, &blocks(1, 2), &TAG).unwrap_err();
            assert!(matches!(error, DeviceError::Media { .. }), "{error}");
            assert_eq!(drive.report(Z).unwrap(), ZoneReport { state, write_pointer: 2 });
            let again = drive.write(Z, 2, &blocks(1, 2), &TAG).unwrap_err();
            assert!(matches!(again, DeviceError::ZoneReadOnly(Z) | DeviceError::ZoneOffline(Z)), "{again}");
            // Its place is free for others.
            for zone in 3..7 {
                drive.append(ZoneId(zone), &blocks(1, 0), &TAG).unwrap();
            }
        }
    }
}

#[test]
fn a_drive_that_is_gone_is_no_fault_of_the_zone() {
    let (disk, drive) = fresh();
    disk.fail(Command::Write, Fault::Fails { errno: libc::ENODEV, after: 0 });
    let error = drive.append(Z, &blocks(1, 0), &TAG).unwrap_err();
    assert!(matches!(&error, DeviceError::Io { .. }), "{error}");
}

#[test]
fn the_kernels_numbers_for_limits_are_told_as_limits() {
    let (disk, drive) = fresh();
    for (errno, active) in [(libc::ETOOMANYREFS, false), (libc::EOVERFLOW, true), (libc::EBUSY, false)] {
        let of = if errno == libc::EBUSY { Command::Open } else { Command::Write };
        disk.fail(of, Fault::Fails { errno, after: 0 });
        let error = drive.append(Z, &blocks(1, 0), &TAG).unwrap_err();
        assert_eq!(matches!(error, DeviceError::TooManyActiveZones { limit: 4, .. }), active, "{error}");
        assert_eq!(matches!(error, DeviceError::TooManyOpenZones { limit: 3, .. }), !active, "{error}");
        assert_eq!(drive.report(Z).unwrap().state, ZoneState::Empty, "it was not opened");
    }
    drive.append(Z, &blocks(1, 0), &TAG).unwrap();
}

#[test]
fn the_drive_is_never_asked_for_more_open_or_active_zones_than_it_allows() {
    let (disk, drive) = fresh();
    let block = blocks(1, 0);
    for zone in 0..4 {
        drive.append(ZoneId(zone), &block, &TAG).unwrap();
    }
    assert_eq!(disk.zone(0).0, ZoneState::Closed, "the zone that was opened first made room");
    assert!(matches!(
        drive.append(ZoneId(4), &block, &TAG),
        Err(DeviceError::TooManyActiveZones { limit: 4, .. })
    ));
    for zone in 1..4 {
        drive.open(ZoneId(zone)).unwrap();
    }
    assert!(matches!(
        drive.append(ZoneId(0), &block, &TAG),
        Err(DeviceError::TooManyOpenZones { limit: 3, .. })
    ));
    drive.close(ZoneId(3)).unwrap();
    drive.append(ZoneId(0), &block, &TAG).unwrap();
    assert_eq!((drive.counters().open_high_water, drive.counters().active_high_water), (3, 4));
}

#[test]
fn an_empty_zone_that_was_open_is_empty_when_closed() {
    let (disk, drive) = fresh();
    drive.open(Z).unwrap();
    drive.close(Z).unwrap();
    assert_eq!((disk.zone(Z.0).0, drive.report(Z).unwrap().state), (ZoneState::Empty, ZoneState::Empty));
}

#[test]
fn where_data_ends_in_a_finished_zone_is_known_after_another_start() {
    for end in 0..=INFO.zone_capacity {
        let (disk, drive) = fresh();
        let data = blocks(end, 9);
        drive.append(Z, &data, &TAG).unwrap();
        drive.finish(Z).unwrap();
        assert_eq!(drive.report(Z).unwrap(), full_at(end));
        assert_eq!(disk.zone(Z.0).0, ZoneState::Full);
        drop(drive);
        let drive = open(&disk);
        assert_eq!(drive.report(Z).unwrap(), full_at(end));
        assert_eq!(read(&drive, Z, 0, end), data);
        let mut block = vec![0; BLOCK_BYTES];
        let beyond = drive.read(Z, end, &mut block);
        assert!(matches!(
            beyond,
            Err(DeviceError::ReadBeyondWritePointer { .. } | DeviceError::OutOfRange { .. })
        ));
    }
}

#[test]
fn data_of_zeros_before_the_end_is_data() {
    let (disk, drive) = fresh();
    drive.append(Z, &blocks(1, 9), &TAG).unwrap();
    drive.append(Z, &vec![0; 7 * BLOCK_BYTES], &TAG).unwrap();
    drive.finish(Z).unwrap();
    drop(drive);
    assert_eq!(open(&disk).report(Z).unwrap(), full_at(8));
}

#[test]
fn a_finish_that_was_cut_off_behind_its_mark_is_done_at_the_next_start() {
    let (disk, drive) = fresh();
    drive.append(Z, &blocks(6, 9), &TAG).unwrap();
    disk.fail(Command::Finish, Fault::Fails { errno: libc::ENODEV, after: 0 });
    drive.finish(Z).unwrap_err();
    drop(drive);
    assert_eq!(disk.zone(Z.0), (ZoneState::ImplicitlyOpen, 7));
    assert_eq!(open(&disk).report(Z).unwrap(), full_at(6));
    assert_eq!(disk.zone(Z.0).0, ZoneState::Full);
}

#[test]
fn zones_that_were_left_open_are_closed_at_the_start() {
    let (disk, drive) = fresh();
    drive.append(ZoneId(0), &blocks(6, 9), &TAG).unwrap();
    drive.open(ZoneId(1)).unwrap();
    drop(drive);
    let drive = open(&disk);
    let closed = ZoneReport { state: ZoneState::Closed, write_pointer: 6 };
    assert_eq!(drive.report(ZoneId(0)).unwrap(), closed);
    assert_eq!((disk.zone(0), disk.zone(1)), ((ZoneState::Closed, 6), (ZoneState::Empty, 0)));
    drive.write(ZoneId(0), 6, &blocks(1, 1), &TAG).unwrap();
}

#[test]
fn data_that_looks_like_a_mark_is_none() {
    let first = blocks(1, 9);
    let own = crc32c(&first);
    let forged = [
        EndMark { zone: Z.0, end: 1, first_block_crc: own ^ 1 },
        EndMark { zone: Z.0, end: 2, first_block_crc: own },
        EndMark { zone: Z.0 + 1, end: 1, first_block_crc: own },
    ];
    for mark in forged {
        let mut data = first.clone();
        data.resize(2 * BLOCK_BYTES, 0);
        mark.encode(&mut data[BLOCK_BYTES..]);
        let disk = FakeDrive::new();
        disk.plant(Z.0, ZoneState::Closed, &data);
        let left = ZoneReport { state: ZoneState::Closed, write_pointer: 2 };
        assert_eq!(open(&disk).report(Z).unwrap(), left, "{mark:?}");
        disk.plant(Z.0, ZoneState::Full, &data);
        let capacity = INFO.zone_capacity;
        // A zone that somebody else finished is taken as it is: all of it can be read.
        let found = open(&disk).report(Z).unwrap();
        assert!(found == full_at(capacity), "{mark:?} {found:?}");
    }
}

#[test]
fn a_reset_zone_takes_new_data_and_forgets_its_mark() {
    let (disk, drive) = fresh();
    drive.append(Z, &blocks(6, 9), &TAG).unwrap();
    drive.finish(Z).unwrap();
    drive.reset(Z).unwrap();
    assert_eq!(drive.report(Z).unwrap(), ZoneReport { state: ZoneState::Empty, write_pointer: 0 });
    drive.append(Z, &blocks(INFO.zone_capacity, 4), &TAG).unwrap();
    drop(drive);
    assert_eq!(open(&disk).report(Z).unwrap(), full_at(INFO.zone_capacity));
}

#[test]
fn a_failed_reset_leaves_the_zone_as_the_drive_has_it() {
    let (disk, drive) = fresh();
    drive.append(Z, &blocks(6, 9), &TAG).unwrap();
    disk.fail(Command::Reset, Fault::Fails { errno: libc::EIO, after: 0 });
    assert!(matches!(drive.reset(Z), Err(DeviceError::Media { what: "reset", .. })));
    assert_eq!(drive.report(Z).unwrap().write_pointer, 6);
    disk.fail(Command::Reset, Fault::Kills { errno: libc::EIO, state: ZoneState::Offline });
    assert!(drive.reset(Z).is_err());
    assert_eq!(drive.report(Z).unwrap().state, ZoneState::Offline);
    let mut block = vec![0; BLOCK_BYTES];
    assert!(matches!(drive.read(Z, 0, &mut block), Err(DeviceError::ZoneOffline(Z))));
}

#[test]
fn after_a_failed_flush_none_succeeds() {
    let (disk, drive) = fresh();
    drive.flush().unwrap();
    disk.fail(Command::Flush, Fault::Fails { errno: libc::EIO, after: 0 });
    drive.flush().unwrap_err();
    assert!(drive.flush().unwrap_err().to_string().contains("earlier flush failed"));
}

#[test]
fn an_unreadable_block_is_a_fault_of_the_flash() {
    let disk = FakeDrive::new();
    let drive = open_uncached(&disk);
    drive.append(Z, &blocks(2, 9), &TAG).unwrap();
    disk.fail(Command::Read, Fault::Fails { errno: libc::ENODATA, after: 0 });
    let mut out = vec![0; BLOCK_BYTES];
    assert!(matches!(drive.read(Z, 1, &mut out), Err(DeviceError::Media { at: 1, what: "read", .. })));
    disk.fail(Command::Read, Fault::Fails { errno: libc::EINTR, after: 0 });
    drive.read(Z, 1, &mut out).unwrap();
}

#[test]
fn what_was_read_once_is_read_from_memory_and_in_whole_chunks() {
    let (disk, drive) = fresh();
    let data = blocks(20, 9);
    drive.append(Z, &data, &TAG).unwrap();
    drop(drive);
    let drive = open(&disk);
    let before = drive.counters().read_bytes;
    assert_eq!(read(&drive, Z, 3, 2), data[3 * BLOCK_BYTES..5 * BLOCK_BYTES]);
    let chunk = 16 * BLOCK_BYTES as u64;
    assert_eq!(drive.counters().read_bytes - before, chunk);
    disk.fail(Command::Read, Fault::Fails { errno: libc::EIO, after: 0 });
    assert_eq!(read(&drive, Z, 0, 16), data[..chunk as usize]);
    let mut out = vec![0; BLOCK_BYTES];
    assert!(matches!(drive.read(Z, 16, &mut out), Err(DeviceError::Media { .. })), "that is another chunk");
    assert_eq!(read(&drive, Z, 14, 6), data[14 * BLOCK_BYTES..]);
    drive.reset(Z).unwrap();
    drive.append(Z, &blocks(20, 1), &TAG).unwrap();
    assert_eq!(read(&drive, Z, 0, 20), blocks(20, 1));
}

#[test]
fn a_zone_that_somebody_else_wrote_is_noticed_at_the_end() {
    let (disk, drive) = fresh();
    drive.append(Z, &blocks(2, 9), &TAG).unwrap();
    drive.verify_identity().unwrap();
    disk.plant(Z.0, ZoneState::Closed, &blocks(5, 1));
    assert!(matches!(
        drive.verify_identity(),
        Err(DeviceError::WritePointerMoved { zone: Z, expected: 2, found: 5 })
    ));
}

/// A command as the model and the drive both understand it.
#[derive(Clone, Debug)]
enum Step {
    Write(u32, u32, u32),
    Append(u32, u32),
    Read(u32, u32, u32),
    Open(u32),
    Close(u32),
    Finish(u32),
    Reset(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let zone = 0..INFO.zones + 1;
    let at = 0..INFO.zone_capacity + 2;
    prop_oneof![
        1 => (zone.clone(), at.clone(), 0..9u32).prop_map(|(z, at, n)| Step::Write(z, at, n)),
        4 => (zone.clone(), 0..12u32).prop_map(|(z, n)| Step::Append(z, n)),
        2 => (zone.clone(), at, 1..6u32).prop_map(|(z, at, n)| Step::Read(z, at, n)),
        1 => zone.clone().prop_map(Step::Open),
        1 => zone.clone().prop_map(Step::Close),
        1 => zone.clone().prop_map(Step::Finish),
        1 => zone.prop_map(Step::Reset),
    ]
}

fn do_step(device: &dyn ZonedDevice, step: &Step, seed: u8) -> String {
    let zone = |z: &u32| ZoneId(*z);
    match step {
        Step::Write(z, at, n) => format!("{:?}", device.write(zone(z), *at, &blocks(*n, seed), &TAG)),
        Step::Append(z, n) => format!("{:?}", device.append(zone(z), &blocks(*n, seed), &TAG)),
        Step::Read(z, at, n) => {
            let mut out = vec![0; *n as usize * BLOCK_BYTES];
            let result = device.read(zone(z), *at, &mut out);
            format!("{result:?} {}", crc32c(&out))
        }
        Step::Open(z) => format!("{:?}", device.open(zone(z))),
        Step::Close(z) => format!("{:?}", device.close(zone(z))),
        Step::Finish(z) => format!("{:?}", device.finish(zone(z))),
        Step::Reset(z) => format!("{:?}", device.reset(zone(z))),
    }
}

fn model() -> ZonedModel {
    let block = BLOCK_BYTES as u64;
    let geometry = Geometry {
        total_bytes: u64::from(INFO.zones * INFO.zone_blocks) * block,
        zone_bytes: u64::from(INFO.zone_blocks) * block,
        zone_capacity_bytes: u64::from(INFO.zone_capacity) * block,
        channels: 1,
        luns_per_channel: 1,
        planes: 1,
        pages_per_block: 8,
        page_bytes: BLOCK_BYTES as u32,
        open_max: INFO.open_max,
        active_max: INFO.active_max,
        ..Geometry::tlc()
    };
    ZonedModel::memory(&geometry).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_drive_answers_as_the_model_does(
        steps in prop::collection::vec(step(), 1..80),
        cached in any::<bool>(),
    ) {
        let disk = FakeDrive::new();
        let drive = if cached { open(&disk) } else { open_uncached(&disk) };
        let model = model();
        for (i, step) in steps.iter().enumerate() {
            // An empty zone that is open: the model keeps it active when it is closed, a drive gives it back. And a
            // finish writes its mark, for which an empty or closed zone has to be opened first.
            let zone = match step { Step::Close(z) | Step::Finish(z) => Some(ZoneId(*z)), _ => None };
            if let Some(Ok(report)) = zone.map(|zone| model.report(zone)) {
                let empty = report.write_pointer == 0;
                let opens = !report.state.is_open();
                if empty || (matches!(step, Step::Finish(_)) && opens) {
                    continue;
                }
            }
            prop_assert_eq!(do_step(&drive, step, i as u8), do_step(&model, step, i as u8), "step {} {:?}", i, step);
            for zone in (0..INFO.zones).map(ZoneId) {
                prop_assert_eq!(drive.report(zone).unwrap(), model.report(zone).unwrap(), "zone {} after {:?}", zone, step);
            }
        }
        drive.verify_identity().unwrap();
        let last: Vec<ZoneReport> = (0..INFO.zones).map(|z| drive.report(ZoneId(z)).unwrap()).collect();
        drop(drive);
        let drive = open(&disk);
        for (zone, before) in last.into_iter().enumerate() {
            let now = drive.report(ZoneId(zone as u32)).unwrap();
            prop_assert_eq!(now.write_pointer, before.write_pointer);
            prop_assert_eq!(now.state == ZoneState::Full, before.state == ZoneState::Full);
            prop_assert!(!now.state.is_open());
        }
        prop_assert_eq!(disk.report(0).unwrap().state.is_open(), false);
    }
}
