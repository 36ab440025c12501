//! Threads on one device.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{BLOCK_BYTES, Origin, Tag, ZoneId};
use weft_device::{DeviceError, Geometry, ZonedDevice, ZonedModel};

fn tag(origin: Origin) -> Tag {
    Tag { origin, ..Tag::default() }
}

fn devices() -> (tempfile::TempDir, Vec<ZonedModel>) {
    let dir = tempfile::tempdir().unwrap();
    let geometry = Geometry {
        open_max: 3,
        active_max: 8,
        ..Geometry::bbssd().with_size(2 << 20).with_zone_bytes(256 << 10)
    };
    let image = ZonedModel::create(&dir.path().join("image"), &geometry, false, &mut |_, _| ()).unwrap();
    (dir, vec![ZonedModel::memory(&geometry).unwrap(), image])
}

#[test]
fn threads_on_their_own_zones_do_not_disturb_each_other_and_readers_see_whole_writes() {
    let (_dir, devices) = devices();
    for device in &devices {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u32)
                .map(|writer| {
                    scope.spawn(move || {
                        // Two zones a thread: more than may be open, so zones are closed under their writers.
                        let mut written = 0;
                        for round in 0..20u32 {
                            let zone = ZoneId(writer * 2 + round % 2);
                            device.reset(zone).unwrap();
                            for at in (0..60).step_by(3) {
                                let value = (round << 16 | at).to_le_bytes();
                                let data = value.repeat(3 * BLOCK_BYTES / 4);
                                device
                                    .write(zone, at, &data, &tag(Origin::ALL[writer as usize % 3]))
                                    .unwrap();
                                written += data.len() as u64;
                                let mut out = vec![0; data.len()];
                                device.read(zone, at, &mut out).unwrap();
                                assert!(out == data);
                                if at % 30 == 0 {
                                    device.flush().unwrap();
                                }
                            }
                            if round % 3 == 0 {
                                device.finish(zone).unwrap();
                            }
                        }
                        written
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                let mut out = vec![0; BLOCK_BYTES];
                while !stop.load(Ordering::Relaxed) {
                    for zone in (0..8).map(ZoneId) {
                        let report = device.report(zone).unwrap();
                        assert!(report.write_pointer <= 64);
                        if report.write_pointer > 0 {
                            match device.read(zone, report.write_pointer - 1, &mut out) {
                                Ok(()) | Err(DeviceError::ReadBeyondWritePointer { .. }) => {}
                                Err(other) => panic!("{other}"),
                            }
                        }
                    }
                }
            });
            let written: u64 = writers.into_iter().map(|w| w.join().unwrap()).sum();
            stop.store(true, Ordering::Relaxed);
            reader.join().unwrap();
            let counters = device.counters();
            assert_eq!(counters.host_bytes + counters.gc_bytes + counters.metadata_bytes, written);
        });
        assert!(device.counters().open_high_water <= 3);
        device.verify_identity().unwrap();
    }
}

#[test]
fn appends_of_many_threads_to_one_zone_each_get_their_own_place() {
    let (_dir, devices) = devices();
    for device in &devices {
        let places: Vec<(u32, u8)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4u8)
                .map(|thread| {
                    scope.spawn(move || {
                        let data = vec![thread; BLOCK_BYTES];
                        (0..16)
                            .map(|_| (device.append(ZoneId(0), &data, &tag(Origin::Host)).unwrap(), thread))
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        let mut sorted: Vec<u32> = places.iter().map(|(at, _)| *at).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..64).collect::<Vec<_>>());
        let mut out = vec![0; BLOCK_BYTES];
        for (at, thread) in places {
            device.read(ZoneId(0), at, &mut out).unwrap();
            assert!(out.iter().all(|b| *b == thread));
        }
        device.verify_identity().unwrap();
    }
}
