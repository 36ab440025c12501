//! Conventional and FDP drives in an image file: what is there when they are opened again, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use weft_core::Nanos;
use weft_device::nand::{Fault, FlashSetup, OpenChannel};
use weft_device::ssd::{FdpEvent, Isolation, Ssd, SsdError, SsdSetup};
use weft_device::{FaultPlan, Geometry};

const BLOCK: usize = 4096;
const T: Nanos = Nanos(0);

fn setup(handles: &[Isolation]) -> SsdSetup {
    let geometry = Geometry {
        channels: 2,
        luns_per_channel: 2,
        planes: 2,
        pages_per_block: 8,
        page_bytes: 2 * BLOCK as u32,
        total_bytes: 2 * 2 * 2 * 24 * 8 * 2 * BLOCK as u64,
        endurance: 0,
        ..Geometry::bbssd()
    };
    let conventional = SsdSetup::conventional(FlashSetup::new(geometry), 0.25);
    SsdSetup { handles: handles.to_vec(), luns_per_unit: Some(2), ..conventional }
}

/// In memory where that is possible: each erase syncs the image.
fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = dir.path().join("drive.img");
    (dir, path)
}

fn content(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![(block ^ version) as u8; BLOCK];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn holds(drive: &Ssd, block: u64, version: u64) -> bool {
    let mut out = vec![1; BLOCK];
    drive.read(T, block, 1, &mut out).unwrap();
    out == if version == 0 { vec![0; BLOCK] } else { content(block, version) }
}

/// Every figure that is to survive.
fn figures(drive: &Ssd) -> String {
    let mut counters = drive.counters();
    counters.now = T;
    format!(
        "{counters:?} {:?} {:?} {:?} {:?} {} {:?}",
        drive.mapper_counts(),
        drive.fdp_statistics(),
        drive.handle_usage(),
        drive.fdp_events(),
        drive.media_reallocated_events(),
        drive.erases_by_block().unwrap()
    )
}

#[test]
fn a_drive_that_is_opened_again_has_its_blocks_its_units_and_its_figures() {
    use Isolation::{Initially, Persistently};
    for handles in [&[][..], &[Initially, Initially, Persistently]] {
        let (_dir, path) = place();
        let setup = setup(handles);
        let mut drive = Ssd::create(&path, &setup, FaultPlan::default(), false).unwrap();
        let capacity = drive.capacity_blocks();
        let mut versions = vec![0u64; capacity as usize];
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for session in 0..6 {
            for step in 0..2 * capacity {
                let block = below(capacity);
                let version = session * 100_000 + step + 1;
                if below(20) == 0 {
                    drive.deallocate(T, block, 1).unwrap();
                    versions[block as usize] = 0;
                    continue;
                }
                let handle = (!handles.is_empty()).then(|| below(handles.len() as u64) as u16);
                drive.write(T, block, 1, &content(block, version), handle).unwrap();
                versions[block as usize] = version;
            }
            if handles.len() > 1 {
                drive.update_handle(T, 1).unwrap();
                assert!(drive.write(T, 0, 1, &content(0, 1), Some(9)).is_err());
            }
            let before = figures(&drive);
            assert!(drive.counters().gc_bytes > 0);
            assert!(matches!(Ssd::open(&path), Err(SsdError::Flash(_))), "somebody has it");
            drop(drive);
            let looked = Ssd::look(&path).unwrap();
            assert_eq!(figures(&looked), before);
            assert!((0..capacity).all(|block| holds(&looked, block, versions[block as usize])));
            assert!(
                looked.write(T, 0, 1, &content(0, 1), None).unwrap_err().to_string().contains("looked at")
            );
            drop(looked);
            drive = Ssd::open(&path).unwrap();
            assert_eq!(figures(&drive), before);
            drive.verify_identity().unwrap();
            assert!((0..capacity).all(|block| holds(&drive, block, versions[block as usize])));
        }
        if !handles.is_empty() {
            assert!(drive.fdp_events().iter().any(|event| matches!(event, FdpEvent::UnitNotFull { .. })));
        }
    }
}

#[test]
fn what_is_not_a_drive_or_is_damaged_is_refused_with_the_value_and_the_remedy() {
    let (dir, path) = place();
    let setup = setup(&[]);
    drop(Ssd::create(&path, &setup, FaultPlan::default(), false).unwrap());
    let told = |error: SsdError| error.to_string();
    let refused = |why: &str| {
        let error = told(Ssd::open(&path).unwrap_err());
        assert!(error.contains(why) && error.contains("drive.img"), "{why}: {error}");
    };
    let again = Ssd::create(&path, &setup, FaultPlan::default(), false).unwrap_err();
    assert!(told(again).contains("exists"));
    let error = OpenChannel::open(&path).unwrap_err().to_string();
    assert!(error.contains("drive.img") && error.contains("conventional or FDP drive"), "{error}");
    let length = std::fs::metadata(&path).unwrap().len();
    let file = OpenOptions::new().write(true).read(true).open(&path).unwrap();
    file.set_len(length - 1).unwrap();
    refused("cut short");
    file.set_len(length).unwrap();
    let change = |at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    for (at, why) in [(170, "checksum of the header"), (8, "version"), (1, "not an open-channel image")] {
        change(at);
        refused(why);
        change(at);
    }
    drop(Ssd::open(&path).unwrap());
    let other = dir.path().join("other-drive.img");
    drop(OpenChannel::create(&other, &setup.flash, false).unwrap());
    let error = told(Ssd::open(&other).unwrap_err());
    assert!(error.contains("other-drive.img") && error.contains("--presentation"), "{error}");
}

#[test]
fn no_flipped_bit_of_a_closed_drive_gives_data_that_is_not_the_last() {
    let (dir, path) = place();
    let drive = Ssd::create(&path, &setup(&[]), FaultPlan::default(), false).unwrap();
    let written: Vec<u64> = (0..40).collect();
    for block in &written {
        drive.write(T, *block, 1, &content(*block, 1), None).unwrap();
    }
    drop(drive);
    let before = std::fs::read(&path).unwrap();
    let drive = Ssd::open(&path).unwrap();
    // The last of them stay in the write buffer.
    for block in &written[..27] {
        drive.write(T, *block, 1, &content(*block, 2), None).unwrap();
    }
    drive.deallocate(T, 30, 5).unwrap();
    drop(drive);
    let version = |block: u64| match block {
        0..27 => 2,
        30..35 => 0,
        _ => 1,
    };
    let image = std::fs::read(&path).unwrap();
    // Not each byte of the blocks, most of which are the one before once more.
    let changed = |at: &usize| before[*at] != image[*at] && image[*at] != image[*at - 1];
    let damaged = dir.path().join("damaged.img");
    std::fs::write(&damaged, &image).unwrap();
    let file = OpenOptions::new().write(true).open(&damaged).unwrap();
    let (mut of_the_map, mut right) = (0, 0);
    for at in (0..image.len()).filter(changed) {
        file.write_all_at(&[image[at] ^ 1 << (at % 8)], at as u64).unwrap();
        match Ssd::look(&damaged) {
            Err(error) => of_the_map += u32::from(error.to_string().contains("another map")),
            Ok(drive) => {
                for block in &written {
                    let mut out = vec![1; BLOCK];
                    let read = drive.read(T, *block, 1, &mut out);
                    assert!(
                        read.is_err() || holds(&drive, *block, version(*block)),
                        "byte {at}, block {block}"
                    );
                }
                right += 1;
            }
        }
        file.write_all_at(&image[at..at + 1], at as u64).unwrap();
    }
    assert!(of_the_map > 30 && right > 50, "{of_the_map} and {right}");
    drop(Ssd::open(&damaged).unwrap());
}

#[test]
fn a_drive_that_the_host_fails_stops_and_is_opened_again_with_all_that_it_acknowledged() {
    let seeds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 1000 } else { 16 };
    let mut errors = 0;
    for seed in 1..=seeds {
        let mut state = seed;
        let mut below = |bound: u64| {
            state =
                u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let (planes, pages) = (1 + below(4) as u32, 2 + below(6) as u32);
        let geometry = Geometry {
            channels: 1,
            luns_per_channel: 2,
            planes,
            pages_per_block: pages,
            page_bytes: BLOCK as u32,
            total_bytes: 2 * 24 * u64::from(planes * pages) * BLOCK as u64,
            endurance: 0,
            ..Geometry::bbssd()
        };
        let (_dir, path) = place();
        let setup = SsdSetup::conventional(FlashSetup::new(geometry), 0.5);
        let mut drive = Ssd::create(&path, &setup, FaultPlan::default(), false).unwrap();
        let capacity = drive.capacity_blocks();
        let mut versions = vec![0u64; capacity as usize];
        let mut version = 0;
        for _ in 0..8 {
            // Some of the pages that are programmed next meet an error of the host.
            drive.with_flash(|flash| {
                let shape = flash.shape();
                for _ in 0..1 + below(12) {
                    let block = shape.block_at(below(shape.blocks()));
                    let next = flash.block_info(block).unwrap().programmed;
                    let kind = if below(2) == 0 { ErrorKind::StorageFull } else { ErrorKind::Other };
                    if next < pages {
                        flash.inject(Fault::Host(block.page(next), kind)).unwrap();
                    }
                }
            });
            let mut failed = 0..0;
            for _ in 0..2 * capacity {
                let first = below(capacity);
                let count = 1 + below((capacity - first).min(9));
                version += 1;
                let data: Vec<u8> =
                    (first..first + count).flat_map(|block| content(block, version)).collect();
                if drive.write(T, first, count, &data, None).is_err() {
                    errors += 1;
                    failed = first..first + count;
                    let refused = drive.read(T, 0, 1, &mut [0; BLOCK]);
                    assert!(matches!(refused, Err(SsdError::Stopped(_))), "seed {seed}: {refused:?}");
                    break;
                }
                versions[first as usize..(first + count) as usize].fill(version);
            }
            drop(drive);
            drive = Ssd::open(&path).unwrap();
            drive.verify_identity().unwrap();
            for block in failed {
                if holds(&drive, block, version) {
                    versions[block as usize] = version;
                }
            }
            // Twice: an opening does not change what there is.
            for _ in 0..2 {
                let lost = (0..capacity).find(|block| !holds(&drive, *block, versions[*block as usize]));
                assert_eq!(lost, None, "seed {seed}: not version {:?}", lost.map(|at| versions[at as usize]));
                drop(drive);
                drive = Ssd::open(&path).unwrap();
            }
        }
    }
    assert!(errors > seeds, "{errors} errors in {seeds} seeds");
}
