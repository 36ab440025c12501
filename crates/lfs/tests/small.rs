//! Small volumes: devices of a few zones give most of their room to programs and keep every promise with it.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rig::{assert_sound, check, fresh, options, small};
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, Ino, Tag, ZoneId};
use weft_device::{DeviceError, Geometry, PowerCut, ZoneReport, ZoneState, ZonedDevice};
use weft_lfs::{FormatOptions, Lfs, LfsError};
use weft_vfs::{CreateArgs, FileSystem, FsError, NewNode};

fn create(fs: &Lfs, name: &str) -> Ino {
    let args = CreateArgs::new(NewNode::File, 0o644);
    fs.create(Ino::ROOT, name.as_bytes(), &args).unwrap().ino
}

#[test]
fn a_small_volume_gives_programs_most_of_its_device() {
    for (total, zone, percent) in [(64, 4, 65), (512, 4, 90), (512, 8, 90), (2048, 64, 83)] {
        let geometry = Geometry::zn540().with_size(total << 20).with_zone_bytes(zone << 20);
        let device = Arc::new(weft_device::ZonedModel::memory(&geometry).unwrap());
        Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
        let usable = Lfs::mount(device, options()).unwrap().statfs().unwrap().total_bytes;
        println!("{total} MiB in zones of {zone} MiB: {usable} bytes");
        assert!(usable >= (total << 20) * percent / 100, "{usable} of {total} MiB in zones of {zone} MiB");
    }
}

#[test]
fn a_small_volume_that_is_full_is_overwritten_at_a_bearable_cost() {
    for (total_bytes, zone_bytes) in [(8 << 20, 512 << 10), (20 << 20, 1 << 20), (6 << 20, 192 << 10)] {
        let (device, fs) = fresh(&small(total_bytes, zone_bytes));
        let file = create(&fs, "f");
        let blocks = fs.statfs().unwrap().free_bytes / BLOCK_BYTES as u64;
        for block in 0..blocks {
            fs.write_through(file, block * BLOCK_BYTES as u64, &[0; BLOCK_BYTES]).unwrap();
        }
        assert!(matches!(
            fs.write(file, blocks * BLOCK_BYTES as u64, &[1; BLOCK_BYTES]),
            Err(FsError::NoSpace)
        ));
        let mut rng = StdRng::seed_from_u64(3);
        for i in 0..blocks * 5 {
            let at = rng.random_range(0..blocks) * BLOCK_BYTES as u64;
            fs.write_through(file, at, &[i as u8; BLOCK_BYTES]).unwrap();
        }
        let waf = device.counters().waf();
        assert!(waf < 16.0, "{blocks} blocks in zones of {zone_bytes}: written {waf} times over");
        assert!(fs.stats().core.stalls.max_ns < 1_000_000_000);
        assert_eq!(fs.recount(), [""; 0]);
        fs.unmount().unwrap();
        assert_sound(&device);
    }
}

/// A block that tells where it belongs and which write of it this is.
fn stamped(block: u64, version: u64) -> [u8; BLOCK_BYTES] {
    let mut out = [0; BLOCK_BYTES];
    for (i, bytes) in out.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&(block << 40 ^ version << 8 ^ i as u64).to_le_bytes());
    }
    out
}

/// Which write of a block this is; `None` if it is none.
fn version_of(block: u64, raw: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(raw[..8].try_into().ok()?);
    let version = (first ^ block << 40) >> 8;
    (raw == stamped(block, version)).then_some(version)
}

#[test]
fn a_full_volume_that_loses_power_again_and_again_never_runs_out_of_zones() {
    for (total_bytes, zone_bytes, seed) in
        [(8 << 20, 512 << 10, 1), (16 << 20, 1 << 20, 2), (6 << 20, 192 << 10, 3), (24 << 20, 1 << 20, 4)]
    {
        let (mut device, fs) = fresh(&small(total_bytes, zone_bytes));
        let file = create(&fs, "f");
        let blocks = fs.statfs().unwrap().free_bytes / BLOCK_BYTES as u64;
        // The version that is durable and the latest, of each block.
        let mut versions = vec![(0, 0); blocks as usize];
        for block in 0..blocks {
            fs.write_through(file, block * BLOCK_BYTES as u64, &stamped(block, 0)).unwrap();
        }
        fs.sync().unwrap();
        let mut fs = Some(fs);
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut next, mut gc_bytes) = (1, 0);
        for round in 0..120 {
            let volume = fs.take().unwrap();
            device.cut_after(rng.random_range(0..400));
            loop {
                let block = rng.random_range(0..blocks);
                versions[block as usize].1 = next;
                let data = stamped(block, next);
                next += 1;
                if volume.write_through(file, block * BLOCK_BYTES as u64, &data).is_err() {
                    break;
                }
                if next % 64 == 0 && volume.sync().is_ok() {
                    versions.iter_mut().for_each(|(durable, latest)| *durable = *latest);
                }
            }
            assert!(device.is_cut(), "round {round}: a write failed with the power on");
            assert_eq!(device.device().counters().refused, 0);
            gc_bytes += volume.stats().gc_bytes;
            drop(volume);
            device = Arc::new(device.reopen(round).unwrap());
            let problems = check(&device).problems;
            assert!(problems.is_empty(), "round {round}: {problems:?}");
            let volume = Lfs::mount(device.clone(), options()).unwrap();
            let mut raw = [0; BLOCK_BYTES];
            for (block, (durable, latest)) in versions.iter_mut().enumerate() {
                volume.read(file, (block * BLOCK_BYTES) as u64, &mut raw).unwrap();
                let found = version_of(block as u64, &raw).unwrap();
                assert!((*durable..=*latest).contains(&found), "round {round}, block {block}");
                (*durable, *latest) = (found, found);
            }
            assert_eq!(volume.recount(), [""; 0]);
            fs = Some(volume);
        }
        assert!(gc_bytes > total_bytes, "the cleaner copied only {gc_bytes} bytes");
    }
}

/// A device some of whose zones were offline from the start.
struct Worn {
    inner: Arc<PowerCut>,
    offline: u32,
}

impl Worn {
    fn inner(&self) -> Result<&dyn ZonedDevice, DeviceError> {
        Ok(&*self.inner)
    }
}

impl ZonedDevice for Worn {
    crate::pass_on! {
        inner => shape append read open close finish reset flush;
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let report = self.inner.report(zone)?;
        Ok(if zone.0 < self.offline { ZoneReport { state: ZoneState::Offline, ..report } } else { report })
    }
    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        assert!(zone.0 >= self.offline);
        self.inner.write(zone, at, data, tag)
    }
}

#[test]
fn a_device_that_would_leave_files_less_than_a_zone_is_refused_and_any_other_is_not() {
    let zone_bytes = 512 << 10;
    let mut refused_from = None;
    for offline in 0..=14 {
        let inner = Arc::new(PowerCut::new(&small(16 * zone_bytes, zone_bytes)).unwrap());
        let device = Arc::new(Worn { inner, offline });
        match Lfs::format(device.clone(), &FormatOptions::default()) {
            Ok(()) => {
                assert_eq!(refused_from, None, "{offline} zones are offline");
                let fs = Lfs::mount(device, options()).unwrap();
                assert!(fs.statfs().unwrap().total_bytes >= zone_bytes, "{offline} zones are offline");
                fs.write_through(create(&fs, "f"), 0, &vec![1; zone_bytes as usize]).unwrap();
                fs.unmount().unwrap();
            }
            Err(LfsError::Unfit(_)) => _ = refused_from.get_or_insert(offline),
            Err(error) => panic!("{error}"),
        }
    }
    // With one zone fewer the largest that is taken would still hold something, but less than a zone.
    assert!((6..=11).contains(&refused_from.unwrap()), "refused from {refused_from:?} offline zones on");
}
