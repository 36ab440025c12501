//! Images whose own pages are damaged: what was closed is there twice, and what cannot be made good is said.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_device::{DeviceError, Geometry, ZoneReport, ZoneState, ZonedDevice, ZonedModel};

const PAGE: u64 = 4096;
/// Pages before the data: header, session, counters, and 16 zones' records.
const PAGES: u64 = 4;

fn geometry() -> Geometry {
    Geometry::tlc().with_size(16 << 20).with_zone_bytes(1 << 20)
}

fn image(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("image");
    let device = ZonedModel::create(&path, &geometry(), false, &mut |_, _| {}).unwrap();
    for (zone, blocks) in [(0, 11), (1, 5), (15, 200)] {
        device.append(ZoneId(zone), &vec![zone as u8 + 1; blocks * BLOCK_BYTES], &Tag::METADATA).unwrap();
    }
    device.finish(ZoneId(15)).unwrap();
    device.reset(ZoneId(1)).unwrap();
    path
}

fn reports(device: &ZonedModel) -> Vec<ZoneReport> {
    (0..16).map(|zone| device.report(ZoneId(zone)).unwrap()).collect()
}

fn content(device: &ZonedModel) -> Vec<u8> {
    let mut out = vec![0; 11 * BLOCK_BYTES];
    device.read(ZoneId(0), 0, &mut out).unwrap();
    out
}

/// Changes bytes of a file.
fn put(path: &Path, offset: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

fn flip(path: &Path, offset: u64, bit: u8) {
    let mut byte = [0];
    let file = File::options().read(true).write(true).open(path).unwrap();
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], offset).unwrap();
}

/// The offsets of both copies of the pages before the data.
fn pages(path: &Path) -> Vec<u64> {
    let bytes = std::fs::metadata(path).unwrap().len();
    (0..PAGES).chain(bytes / PAGE - PAGES..bytes / PAGE).map(|page| page * PAGE).collect()
}

#[test]
fn a_flipped_bit_or_a_lost_page_of_a_closed_image_costs_nothing_and_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir);
    let (before, length) = {
        let device = ZonedModel::open(&path).unwrap();
        (reports(&device), std::fs::metadata(&path).unwrap().len())
    };
    let whole = std::fs::read(&path).unwrap();
    for page in pages(&path) {
        for step in 0..24 {
            std::fs::write(&path, &whole).unwrap();
            match step {
                0 => put(&path, page, &[0; PAGE as usize]),
                1 => put(&path, page, &[0xd7; PAGE as usize]),
                // Where something stands, mostly.
                _ => flip(&path, page + step * 37 % if step % 2 == 0 { 300 } else { 4096 }, step as u8 % 8),
            }
            let looked = ZonedModel::open_to_look(&path).unwrap();
            assert_eq!((reports(&looked), content(&looked)), (before.clone(), vec![1; 11 * BLOCK_BYTES]));
            looked.verify_identity().unwrap();
            drop(looked);
            let device = ZonedModel::open(&path).unwrap();
            assert_eq!(reports(&device), before, "page {page}, step {step}");
            device.append(ZoneId(0), &[9; BLOCK_BYTES], &Tag::METADATA).unwrap();
            device.verify_identity().unwrap();
            drop(device);
            // Now the other copy goes, and the mended one does.
            let first = page < PAGES * PAGE;
            let range = if first { length - PAGES * PAGE..length } else { 0..PAGES * PAGE };
            for offset in range.step_by(PAGE as usize) {
                put(&path, offset, &[0; PAGE as usize]);
            }
            let device = ZonedModel::open(&path).unwrap();
            assert_eq!(device.report(ZoneId(0)).unwrap().write_pointer, 12, "page {page}, step {step}");
            assert_eq!(reports(&device)[1..], before[1..]);
        }
    }
}

#[test]
fn a_damaged_record_of_an_image_that_was_not_closed_is_refused_and_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir);
    let device = ZonedModel::open(&path).unwrap();
    device.append(ZoneId(0), &[9; BLOCK_BYTES], &Tag::METADATA).unwrap();
    device.flush().unwrap();
    // As if the process had been killed.
    let copy = dir.path().join("killed");
    std::fs::copy(&path, &copy).unwrap();
    drop(device);
    put(&copy, 3 * PAGE + 8, &[0x55; 112]);
    put(&copy, 3 * PAGE + 128, &[0x55; 112]);
    let Err(error) = ZonedModel::open(&copy) else { panic!("it has no record of zone 0") };
    assert!(matches!(error, DeviceError::BadImage { .. }));
    assert!(error.to_string().contains("zone 0") && error.to_string().contains("weft salvage"), "{error}");
    let looked = ZonedModel::open_to_look(&copy).unwrap();
    let report = looked.report(ZoneId(0)).unwrap();
    assert_eq!((report.state, report.write_pointer), (ZoneState::Full, looked.info().zone_capacity));
    assert_eq!(content(&looked), vec![1; 11 * BLOCK_BYTES]);
    looked.verify_identity().unwrap();
}

#[test]
fn an_image_that_was_cut_short_is_refused_and_can_be_looked_at_up_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir);
    let whole = std::fs::metadata(&path).unwrap().len();
    let base = PAGES * PAGE;
    for length in [whole - 1, whole - PAGES * PAGE, base + (3 << 20), base + 20 * PAGE, base] {
        File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        let Err(error) = ZonedModel::open(&path) else { panic!("{length} of {whole} bytes") };
        assert!(error.to_string().contains("cut short"), "{error}");
        let looked = ZonedModel::open_to_look(&path).unwrap();
        assert_eq!(looked.report(ZoneId(15)).unwrap().write_pointer, 200);
        let mut out = vec![0; BLOCK_BYTES];
        assert_eq!(looked.read(ZoneId(0), 10, &mut out).is_ok(), length > base);
        assert_eq!(looked.read(ZoneId(15), 199, &mut out).is_ok(), length > base + (15 << 20));
    }
    for length in [base - 1, 5000, 4096, 100, 0] {
        File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        assert!(ZonedModel::open(&path).is_err() && ZonedModel::open_to_look(&path).is_err(), "{length}");
    }
}
