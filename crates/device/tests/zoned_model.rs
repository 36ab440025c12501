//! What the zoned presentation promises, on every kind of store.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::FileExt;
use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_device::{DeviceError, Geometry, ZoneState, ZonedDevice, ZonedModel};

const TAG: Tag = Tag::METADATA;

fn geometry() -> Geometry {
    Geometry { open_max: 3, active_max: 4, ..Geometry::tlc().with_size(16 << 20).with_zone_bytes(1 << 20) }
}

fn blocks(n: usize, seed: u8) -> Vec<u8> {
    (0..n * BLOCK_BYTES).map(|i| (i / 7) as u8 ^ (i / BLOCK_BYTES) as u8 ^ seed).collect()
}

/// The same test on memory, on a memory file and on an image.
fn on_every_store(test: impl Fn(ZonedModel)) {
    test(ZonedModel::memory(&geometry()).unwrap());
    test(ZonedModel::memfd(&geometry()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    test(ZonedModel::create(&dir.path().join("image"), &geometry(), false, &mut |_, _| ()).unwrap());
}

#[test]
fn what_is_written_is_read_back_and_what_is_not_is_refused() {
    on_every_store(|device| {
        let zone = ZoneId(3);
        let data = blocks(5, 1);
        device.write(zone, 0, &data, &TAG).unwrap();
        assert_eq!(device.append(zone, &data[..BLOCK_BYTES], &TAG).unwrap(), 5);
        let mut out = vec![0; 5 * BLOCK_BYTES];
        device.read(zone, 0, &mut out).unwrap();
        assert_eq!(out, data);
        assert!(matches!(
            device.read(zone, 2, &mut out),
            Err(DeviceError::ReadBeyondWritePointer { at: 6, write_pointer: 6, .. })
        ));
        assert!(matches!(
            device.write(zone, 5, &data, &TAG),
            Err(DeviceError::ZoneInvalidWrite { at: 5, write_pointer: 6, .. })
        ));
        assert!(matches!(device.write(zone, 6, &data[1..], &TAG), Err(DeviceError::Unaligned(_))));
        assert!(matches!(device.write(ZoneId(16), 0, &data, &TAG), Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(device.append(zone, &blocks(256, 0), &TAG), Err(DeviceError::ZoneBoundary { .. })));
        assert_eq!(device.counters().refused, 5);
        device.reset(zone).unwrap();
        assert!(device.read(zone, 0, &mut out).is_err());
        device.verify_identity().unwrap();
    });
}

#[test]
fn the_limits_close_zones_that_writes_opened_and_refuse_when_there_are_none() {
    on_every_store(|device| {
        let state = |zone| device.report(ZoneId(zone)).unwrap().state;
        let block = blocks(1, 0);
        for zone in 0..3 {
            device.append(ZoneId(zone), &block, &TAG).unwrap();
        }
        device.append(ZoneId(3), &block, &TAG).unwrap();
        assert_eq!(state(0), ZoneState::Closed, "the zone that was opened first makes room");
        assert!(matches!(
            device.append(ZoneId(4), &block, &TAG),
            Err(DeviceError::TooManyActiveZones { limit: 4, .. })
        ));
        for zone in 1..4 {
            device.open(ZoneId(zone)).unwrap();
        }
        assert!(matches!(
            device.append(ZoneId(0), &block, &TAG),
            Err(DeviceError::TooManyOpenZones { limit: 3, .. })
        ));
        assert!(matches!(device.open(ZoneId(0)), Err(DeviceError::TooManyOpenZones { limit: 3, .. })));
        device.finish(ZoneId(1)).unwrap();
        device.append(ZoneId(0), &block, &TAG).unwrap();
        device.close(ZoneId(2)).unwrap();
        device.append(ZoneId(4), &block, &TAG).unwrap();
        assert_eq!(
            (state(0), state(2), state(4)),
            (ZoneState::ImplicitlyOpen, ZoneState::Closed, ZoneState::ImplicitlyOpen)
        );
        let counters = device.counters();
        assert_eq!((counters.open_high_water, counters.active_high_water, counters.refused), (3, 4, 3));
        device.verify_identity().unwrap();
    });
}

#[test]
fn a_partial_page_is_programmed_only_when_it_is_full_or_its_zone_is_finished() {
    on_every_store(|device| {
        // Two planes of 16 KiB make a program unit of 8 blocks.
        let media = || device.counters().media_bytes;
        device.append(ZoneId(0), &blocks(7, 0), &TAG).unwrap();
        device.flush().unwrap();
        assert_eq!(media(), 0);
        device.append(ZoneId(0), &blocks(2, 0), &TAG).unwrap();
        assert_eq!(media(), 32 << 10);
        device.finish(ZoneId(0)).unwrap();
        assert_eq!(media(), 64 << 10);
        device.append(ZoneId(1), &blocks(1, 0), &TAG).unwrap();
        device.reset(ZoneId(1)).unwrap();
        device.reset(ZoneId(0)).unwrap();
        let counters = device.counters();
        assert_eq!((media(), counters.resets), (64 << 10, 2));
        assert_eq!(counters.erases, geometry().blocks_per_zone(), "blocks that hold nothing need no erase");
        device.verify_identity().unwrap();
    });
}

#[test]
fn an_image_is_found_as_it_was_left_with_no_zone_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let mut told = Vec::new();
    let device =
        ZonedModel::create(&path, &geometry(), false, &mut |done, total| told.push((done, total))).unwrap();
    assert_eq!(told.first().unwrap().0, 0);
    assert_eq!(told.last().unwrap().0, told.last().unwrap().1);
    let data = blocks(256, 9);
    device.write(ZoneId(0), 0, &data, &TAG).unwrap();
    device.write(ZoneId(1), 0, &data[..12 * BLOCK_BYTES], &TAG).unwrap();
    device.open(ZoneId(2)).unwrap();
    device.append(ZoneId(5), &data[..BLOCK_BYTES], &TAG).unwrap();
    device.reset(ZoneId(5)).unwrap();
    let counters = device.counters();
    assert!(matches!(ZonedModel::open(&path), Err(DeviceError::Busy(_))));
    drop(device);
    assert!(matches!(
        ZonedModel::create(&path, &geometry(), false, &mut |_, _| ()),
        Err(DeviceError::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists
    ));

    let device = ZonedModel::open(&path).unwrap();
    assert_eq!(device.geometry(), &geometry());
    let reports: Vec<_> =
        (0..6).map(|z| device.report(ZoneId(z)).unwrap()).map(|r| (r.state, r.write_pointer)).collect();
    assert_eq!(reports[..3], [(ZoneState::Full, 256), (ZoneState::Closed, 12), (ZoneState::Empty, 0)]);
    assert_eq!(reports[5], (ZoneState::Empty, 0));
    let mut out = vec![0; 12 * BLOCK_BYTES];
    device.read(ZoneId(1), 0, &mut out).unwrap();
    assert_eq!(out, data[..out.len()]);
    let now = device.counters();
    assert_eq!(
        (now.metadata_bytes, now.media_bytes, now.resets),
        (counters.metadata_bytes, counters.media_bytes, 1)
    );
    device.verify_identity().unwrap();
}

#[test]
fn others_read_written_blocks_where_direct_read_says() {
    let device = ZonedModel::memfd(&geometry()).unwrap();
    let data = blocks(3, 5);
    device.write(ZoneId(7), 0, &data, &TAG).unwrap();
    let direct = device.direct_read().unwrap();
    assert!(direct.mappable && direct.base.is_multiple_of(4096));
    let file = std::fs::File::open(format!("/proc/self/fd/{}", direct.fd)).unwrap();
    let mut out = vec![0; data.len()];
    file.read_exact_at(&mut out, direct.base + 7 * device.info().zone_bytes()).unwrap();
    assert_eq!(out, data);
    device.count_direct_reads(3, data.len() as u64);
    assert_eq!((device.counters().reads, device.counters().read_bytes), (3, data.len() as u64));
    assert!(ZonedModel::memory(&geometry()).unwrap().direct_read().is_none());
}
