//! An image that is only looked at: it takes every command and stays as it is.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_device::{DeviceError, Geometry, ZoneState, ZonedDevice, ZonedModel};

const ZONES: [ZoneId; 3] = [ZoneId(0), ZoneId(1), ZoneId(2)];

fn blocks(count: usize, fill: u8) -> Vec<u8> {
    vec![fill; count * BLOCK_BYTES]
}

/// An image with eleven blocks in zone 0 and five in zone 1.
fn image(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("image");
    let geometry = Geometry::tlc().with_size(16 << 20).with_zone_bytes(1 << 20);
    let device = ZonedModel::create(&path, &geometry, false, &mut |_, _| {}).unwrap();
    device.append(ZONES[0], &blocks(11, 1), &Tag::METADATA).unwrap();
    device.append(ZONES[1], &blocks(5, 2), &Tag::METADATA).unwrap();
    path
}

fn read(device: &ZonedModel, zone: ZoneId, at: u32, count: usize) -> Vec<u8> {
    let mut out = blocks(count, 0);
    device.read(zone, at, &mut out).unwrap();
    out
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn commands_work_as_ever_and_not_a_byte_of_the_file_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir);
    let before = bytes(&path);
    let device = ZonedModel::open_to_look(&path).unwrap();
    assert_eq!(read(&device, ZONES[0], 0, 11), blocks(11, 1));
    device.append(ZONES[0], &blocks(3, 3), &Tag::METADATA).unwrap();
    device.flush().unwrap();
    assert_eq!(read(&device, ZONES[0], 10, 4), [blocks(1, 1), blocks(3, 3)].concat());
    device.reset(ZONES[1]).unwrap();
    device.append(ZONES[1], &blocks(2, 4), &Tag::METADATA).unwrap();
    assert_eq!(read(&device, ZONES[1], 0, 2), blocks(2, 4));
    device.finish(ZONES[2]).unwrap();
    assert_eq!(device.report(ZONES[2]).unwrap().state, ZoneState::Full);
    assert!(device.direct_read().is_none(), "who reads the file would not see what was written");
    device.verify_identity().unwrap();
    drop(device);
    assert_eq!(bytes(&path), before);
    let device = ZonedModel::open(&path).unwrap();
    assert_eq!(device.report(ZONES[1]).unwrap().write_pointer, 5);
    assert_eq!(read(&device, ZONES[1], 0, 5), blocks(5, 2));
}

#[test]
fn several_may_look_and_nobody_may_change_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir);
    let (first, second) =
        (ZonedModel::open_to_look(&path).unwrap(), ZonedModel::open_to_look(&path).unwrap());
    assert!(matches!(ZonedModel::open(&path), Err(DeviceError::Busy(_))));
    drop((first, second));
    let _owner = ZonedModel::open(&path).unwrap();
    assert!(matches!(ZonedModel::open_to_look(&path), Err(DeviceError::Busy(_))));
}

#[test]
fn an_image_without_permission_to_write_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir);
    let mut rights = std::fs::metadata(&path).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(&path, rights).unwrap();
    assert_eq!(read(&ZonedModel::open_to_look(&path).unwrap(), ZONES[0], 0, 1), blocks(1, 1));
}
