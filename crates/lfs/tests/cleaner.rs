//! The cleaner on volumes that are nearly full: no refusal before it is due, no long stall, nothing lost, no command
//! that the device refuses.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rig::{assert_sound, fresh, options, small};
use std::sync::Arc;
use weft_core::{Ino, LifetimeGroup, StreamId, Tag};
use weft_device::{Geometry, PowerCut, ZonedDevice};
use weft_lfs::{Lfs, ZoneCondition};
use weft_vfs::{CreateArgs, FileSystem, FsError, NewNode};

const BLOCK: usize = 4096;

fn create(fs: &Lfs, name: &str, tag: Tag) -> Ino {
    let args = CreateArgs { tag, ..CreateArgs::new(NewNode::File, 0o644) };
    fs.create(Ino::ROOT, name.as_bytes(), &args).unwrap().ino
}

fn stream(stream: u16) -> Tag {
    Tag { stream: StreamId(stream), group: LifetimeGroup(0), ..Tag::default() }
}

fn block(seed: u64) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    StdRng::seed_from_u64(seed).fill(&mut out[..]);
    out
}

/// Fills a volume to `percent` of what it says is free, then overwrites blocks at random for `volumes` volumes' worth.
fn overwrite_at_random(
    geometry: &Geometry,
    percent: u64,
    volumes: u64,
    through: bool,
) -> (Arc<PowerCut>, Lfs) {
    let (device, fs) = fresh(geometry);
    let capacity = fs.statfs().unwrap().total_bytes;
    let file = create(&fs, "table", stream(1));
    let log = create(&fs, "log", stream(2));
    fs.write(log, 0, &[1; 8]).unwrap();
    let blocks = fs.statfs().unwrap().free_bytes * percent / 100 / BLOCK as u64;
    let mut versions = vec![0u64; blocks as usize];
    for b in 0..blocks {
        versions[b as usize] = b + 1;
        fs.write(file, b * BLOCK as u64, &block(b + 1)).unwrap();
    }
    let mut rng = StdRng::seed_from_u64(5);
    let writes = capacity / BLOCK as u64 * volumes;
    for i in 0..writes {
        let b = rng.random_range(0..blocks);
        let version = blocks + i + 1;
        versions[b as usize] = version;
        if through {
            fs.write_through(file, b * BLOCK as u64, &block(version)).unwrap();
        } else {
            fs.write(file, b * BLOCK as u64, &block(version)).unwrap();
        }
        if i % 1000 == 0 {
            fs.write(log, 0, &i.to_le_bytes()).unwrap();
            fs.fsync(log).unwrap();
            fs.tick().unwrap();
        }
    }
    let stats = fs.stats();
    assert!(stats.gc_bytes > 0, "the cleaner had nothing to do");
    assert!(stats.core.stalls.max_ns < 1_000_000_000, "a write took {:?}", stats.core.stalls);
    println!("{} blocks, {writes} writes: waf {:.2}, {:?}", blocks, device.counters().waf(), stats);
    assert_eq!(fs.recount(), [""; 0]);
    let mut out = [0; BLOCK];
    for (b, version) in versions.iter().enumerate() {
        fs.read(file, (b * BLOCK) as u64, &mut out).unwrap();
        assert_eq!(out, block(*version), "block {b}");
    }
    (device, fs)
}

#[test]
fn a_volume_nine_tenths_live_takes_ten_volumes_of_random_overwrites() {
    let (device, fs) = overwrite_at_random(&small(48 << 20, 512 << 10), 90, 10, false);
    fs.unmount().unwrap();
    assert_sound(&device);
}

#[test]
fn a_volume_filled_to_the_last_block_takes_random_overwrites_written_through() {
    let (device, fs) = overwrite_at_random(&small(24 << 20, 512 << 10), 100, 3, true);
    fs.unmount().unwrap();
    assert_sound(&device);
}

#[test]
fn the_smallest_number_of_open_zones_is_enough() {
    let geometry = Geometry { open_max: 2, active_max: 2, ..small(24 << 20, 512 << 10) };
    let (device, fs) = overwrite_at_random(&geometry, 90, 3, false);
    fs.unmount().unwrap();
    assert_sound(&device);
    assert!(device.counters().active_high_water <= 2);
}

#[test]
fn never_more_zones_are_open_than_the_device_or_the_mount_allows() {
    let geometry = Geometry { open_max: 6, active_max: 6, ..small(64 << 20, 512 << 10) };
    let device = Arc::new(PowerCut::new(&geometry).unwrap());
    Lfs::format(device.clone(), &Default::default()).unwrap();
    let mut device = device;
    let mut rng = StdRng::seed_from_u64(9);
    for open_zones_max in [100, 5, 3, 6] {
        let fs = Lfs::mount(device.clone(), weft_lfs::MountOptions { open_zones_max, ..options() }).unwrap();
        let files: Vec<Ino> =
            (0..12).map(|s| create(&fs, &format!("{open_zones_max}-{s}"), stream(s))).collect();
        for i in 0..2000u64 {
            let file = files[rng.random_range(0..files.len())];
            fs.write_through(file, (i % 50) * 16384, &vec![i as u8; 16384]).unwrap();
        }
        assert!(device.counters().active_high_water <= 6);
        fs.sync().unwrap();
        drop(fs);
        // Zones that a crash leaves open count after the next mount.
        device = Arc::new(device.reopen(3).unwrap());
        assert_sound(&device);
        let after =
            Lfs::mount(device.clone(), weft_lfs::MountOptions { open_zones_max, ..options() }).unwrap();
        assert!(device.counters().active_high_water <= 6);
        let open = after
            .zones()
            .iter()
            .filter(|z| matches!(z.state, ZoneCondition::Open | ZoneCondition::Parked))
            .count();
        assert!(open <= open_zones_max as usize, "{open} of {open_zones_max}");
        for file in files {
            after.setattr(file, &weft_vfs::SetAttr { size: Some(0), ..Default::default() }).unwrap();
        }
        after.unmount().unwrap();
    }
}

#[test]
fn a_full_volume_refuses_data_and_goes_on_after_a_delete() {
    let (device, fs) = fresh(&small(24 << 20, 512 << 10));
    let mut rng = StdRng::seed_from_u64(1);
    let mut names: Vec<String> = Vec::new();
    let mut serial = 0;
    for round in 0..6 {
        // Files of all sizes, small ones among them, until nothing goes in any more.
        let mut refused = 0;
        while refused < 20 {
            serial += 1;
            let name = format!("f{serial}");
            let args = CreateArgs { tag: stream(serial % 3), ..CreateArgs::new(NewNode::File, 0o644) };
            let Ok(attr) = fs.create(Ino::ROOT, name.as_bytes(), &args) else {
                refused += 1;
                continue;
            };
            let len = match rng.random_range(0..4) {
                0 => rng.random_range(1..600),
                1 => rng.random_range(600..6000),
                2 => rng.random_range(6000..60_000),
                _ => rng.random_range(60_000..400_000),
            };
            match fs.write(attr.ino, 0, &vec![serial as u8; len]) {
                Ok(()) => names.push(name),
                Err(FsError::NoSpace) => {
                    refused += 1;
                    fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
                }
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        let stats = fs.statfs().unwrap();
        assert!(stats.free_bytes < 500_000, "refused with {} bytes free", stats.free_bytes);
        // What was accepted can be stored.
        fs.sync().unwrap();
        // An overwrite in place takes no more space.
        let (ino, size) = names
            .iter()
            .map(|name| fs.lookup(Ino::ROOT, name.as_bytes()).unwrap())
            .map(|attr| (attr.ino, attr.size))
            .max_by_key(|(_, size)| *size)
            .unwrap();
        let aligned = size as usize / BLOCK * BLOCK;
        fs.write(ino, 0, &vec![0xee; aligned]).unwrap();
        fs.fsync(ino).unwrap();
        assert_eq!(fs.recount(), [""; 0], "round {round}");
        names.shuffle(&mut rng);
        for name in names.drain(..names.len() / 2) {
            fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
        }
    }
    fs.unmount().unwrap();
    assert_sound(&device);
}
