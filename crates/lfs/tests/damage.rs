//! Images that are damaged anywhere: an error that names the place, or the right content; never a panic, never wrong
//! bytes.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rig::damaged::Damaged;
use rig::{check, fresh, options, small};
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, Ino, Nanos, Tag, ZoneId};
use weft_device::{PowerCut, ZonedDevice};
use weft_lfs::{Lfs, LfsError, fsck};
use weft_vfs::{CreateArgs, FileSystem, FsError, NewNode};

const FILES: u64 = 24;

fn args() -> CreateArgs<'static> {
    CreateArgs::new(NewNode::File, 0o644)
}

fn content(file: u64) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(file);
    let len = [100, 4096, 5000, 60_000, 300_000][file as usize % 5];
    (0..len).map(|_| rng.random()).collect()
}

/// A volume with some files, closed or not.
fn volume(closed: bool) -> Arc<PowerCut> {
    let (device, fs) = fresh(&small(16 << 20, 256 << 10));
    for file in 0..FILES {
        let ino = fs.create(Ino::ROOT, format!("f{file}").as_bytes(), &args()).unwrap().ino;
        fs.write(ino, 0, &content(file)).unwrap();
        fs.fsync(ino).unwrap();
    }
    if closed {
        fs.unmount().unwrap();
    }
    device
}

/// Mounts and reads everything. Wrong bytes panic; errors are counted.
fn use_it(device: Arc<dyn ZonedDevice>) -> (bool, usize) {
    let _ = fsck::check(device.clone());
    let fs = match Lfs::mount(device, options()) {
        Ok(fs) => fs,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return (false, 0);
        }
    };
    let mut errors = 0;
    for file in 0..FILES {
        let Ok(attr) = fs.lookup(Ino::ROOT, format!("f{file}").as_bytes()) else {
            assert!(fs.stats().entries_dropped > 0, "file {file} is gone without a word");
            continue;
        };
        let mut out = vec![0; content(file).len()];
        match fs.read(attr.ino, 0, &mut out) {
            Ok(len) => assert!(len == out.len() && out == content(file), "file {file} reads wrong"),
            Err(FsError::Checksum(_) | FsError::Device(_)) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let _ = fs.create(Ino::ROOT, b"new", &args()).and_then(|attr| fs.fsync(attr.ino));
    (true, errors)
}

/// Every written block of the device.
fn written(device: &PowerCut) -> Vec<(u32, u32)> {
    let zones = device.info().zones;
    (0..zones)
        .flat_map(|z| {
            let report = device.report(ZoneId(z)).unwrap();
            (0..report.write_pointer).map(move |b| (z, b))
        })
        .collect()
}

fn flip_everywhere(closed: bool) {
    let base = volume(closed);
    let mut rng = StdRng::seed_from_u64(4);
    let (mut refused, mut seen) = (0, 0);
    for (zone, block) in written(&base) {
        let byte = if rng.random() { rng.random_range(0..100) } else { rng.random_range(0..BLOCK_BYTES) };
        let inner = Arc::new(base.reopen(1).unwrap());
        let flips = vec![(zone, block, byte, 1 << rng.random_range(0..8))];
        match use_it(Damaged::flipped(inner, flips)) {
            (false, _) => refused += 1,
            (true, errors) => seen += usize::from(errors > 0),
        }
    }
    assert!(seen > 0, "{seen} with errors when read");
    // What a mount of a closed volume needs is there twice.
    assert_eq!(refused == 0, closed, "{refused} mounts refused");
}

#[test]
fn a_flipped_bit_in_any_block_of_a_closed_volume_gives_an_error_or_nothing() {
    flip_everywhere(true);
}

#[test]
fn a_flipped_bit_in_any_block_of_a_volume_that_was_not_closed_gives_an_error_or_nothing() {
    flip_everywhere(false);
}

#[test]
fn a_damaged_data_block_is_an_error_that_names_its_place_is_counted_and_is_found_by_the_check() {
    let base = volume(true);
    let fs = Lfs::mount(base.clone(), options()).unwrap();
    let ino = fs.lookup(Ino::ROOT, b"f4").unwrap().ino;
    let mut entry = [weft_vfs::MapEntry::HOLE];
    fs.block_map().unwrap().watch(ino, 3, &mut entry).unwrap();
    drop(fs);
    let (address, _) = entry[0].location().unwrap();
    let block = address as usize / BLOCK_BYTES;
    let zone_blocks = base.info().zone_blocks as usize;
    let (zone, block) = ((block / zone_blocks) as u32, (block % zone_blocks) as u32);
    let damaged: Arc<dyn ZonedDevice> = Damaged::flipped(base, vec![(zone, block, 17, 4)]);
    let report = fsck::check(damaged.clone()).unwrap();
    let problem = report.problems.first().unwrap();
    assert_eq!((problem.zone, problem.block, problem.ino), (Some(ZoneId(zone)), Some(block), Some(ino)));
    let fs = Lfs::mount(damaged, options()).unwrap();
    let mut out = [0; BLOCK_BYTES];
    let error = fs.read(ino, 3 * BLOCK_BYTES as u64, &mut out).unwrap_err();
    let place = format!("zone {zone}, block {block}");
    assert!(matches!(&error, FsError::Checksum(told) if *told == place), "{error}");
    assert_eq!(fs.stats().core.checksum_errors, 1);
    // An overwrite of the whole block needs nothing of it.
    fs.write(ino, 3 * BLOCK_BYTES as u64, &[9; BLOCK_BYTES]).unwrap();
    fs.read(ino, 3 * BLOCK_BYTES as u64, &mut out).unwrap();
    assert_eq!(out, [9; BLOCK_BYTES]);
}

#[test]
fn what_is_no_volume_is_refused_in_words() {
    let blank: Arc<dyn ZonedDevice> = Arc::new(PowerCut::new(&small(16 << 20, 256 << 10)).unwrap());
    assert!(matches!(Lfs::mount(blank.clone(), options()), Err(LfsError::NotAVolume { .. })));
    let mut noise = vec![0; 8 * BLOCK_BYTES];
    StdRng::seed_from_u64(1).fill(&mut noise[..]);
    for zone in 0..5 {
        blank.write(ZoneId(zone), 0, &noise, &Tag::default()).unwrap();
    }
    // It may have been a volume: the error does not suggest to format it.
    assert!(matches!(Lfs::mount(blank.clone(), options()), Err(LfsError::NoCheckpoint { written: 5, .. })));
    assert!(matches!(fsck::check(blank), Err(LfsError::NoCheckpoint { .. })));
}

#[test]
fn zones_of_two_volumes_are_told_apart() {
    let device = volume(true);
    let other = PowerCut::new(&small(16 << 20, 256 << 10)).unwrap();
    let other = Arc::new(other);
    Lfs::format(
        other.clone(),
        &weft_lfs::FormatOptions { label: String::new(), uuid: [9; 16], owner: (0, 0) },
    )
    .unwrap();
    let foreign = (0..64).find(|z| other.report(ZoneId(*z)).unwrap().write_pointer > 0).unwrap();
    let mut block = vec![0; BLOCK_BYTES];
    other.read(ZoneId(foreign), 0, &mut block).unwrap();
    let empty = (0..64).find(|z| device.report(ZoneId(*z)).unwrap().write_pointer == 0).unwrap();
    device.write(ZoneId(empty), 0, &block, &Tag::default()).unwrap();
    assert!(matches!(Lfs::mount(device.clone(), options()), Err(LfsError::WrongVolume { .. })));
    assert!(!check(&device).is_clean());
}

#[test]
fn a_truncated_journal_loses_at_most_its_end() {
    // A zone's last blocks that never reached the flash are what a power cut leaves; here also of what was flushed.
    let base = volume(false);
    let metas: Vec<(u32, u32)> = written(&base)
        .into_iter()
        .filter(|(zone, block)| {
            let mut raw = vec![0; BLOCK_BYTES];
            base.read(ZoneId(*zone), 0, &mut raw).unwrap();
            *block > 0 && raw[12] == 1
        })
        .collect();
    assert!(metas.len() > 10);
    for (zone, block) in metas {
        let device = base.reopen(1).unwrap();
        let end = device.report(ZoneId(zone)).unwrap().write_pointer;
        let flips = (block..end).map(|b| (zone, b, 5, 0xff)).collect();
        let damaged: Arc<dyn ZonedDevice> = Damaged::flipped(Arc::new(device), flips);
        // Mounted or refused; what is there is right.
        if let Ok(fs) = Lfs::mount(damaged, options()) {
            for file in 0..FILES {
                let Ok(attr) = fs.lookup(Ino::ROOT, format!("f{file}").as_bytes()) else { continue };
                let mut out = vec![0; attr.size as usize];
                if let Ok(len) = fs.read(attr.ino, 0, &mut out) {
                    assert_eq!(out[..len], content(file)[..len]);
                }
            }
        }
    }
}

#[test]
fn device_time_goes_on() {
    // The rig's device has a clock; stalls are in its time.
    let (device, fs) = fresh(&small(16 << 20, 256 << 10));
    let before = device.counters().now;
    let ino = fs.create(Ino::ROOT, b"f", &args()).unwrap().ino;
    fs.write_through(ino, 0, &vec![1; 1 << 20]).unwrap();
    fs.fsync(ino).unwrap();
    assert!(device.counters().now > before);
    assert_eq!(fs.stats().core.stalls.max_ns, Nanos(0).0);
}
