//! What readers that hold a file's map are promised: the observer tells of every change, what an entry leads to is the
//! file's content, and its CRC is the table's.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod rig;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rig::{fresh, small};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, Ino, ZoneId};
use weft_device::ZonedDevice;
use weft_lfs::Lfs;
use weft_vfs::{
    BlockMap, Core, CreateArgs, Death, FallocateMode, FileSystem, MapEntry, MapObserver, NewNode, SetAttr,
};

const BLOCKS: usize = 256;

/// The map of each watched file, kept by what the observer tells.
#[derive(Default)]
struct Mirror(Mutex<FxHashMap<u64, Vec<MapEntry>>>);

impl MapObserver for Mirror {
    fn remapped(&self, ino: Ino, first_block: u64, entries: &[MapEntry]) {
        let mut maps = self.0.lock();
        let map = maps.get_mut(&ino.0).expect("the core reports only watched files");
        for (i, entry) in entries.iter().enumerate() {
            if let Some(slot) = map.get_mut(first_block as usize + i) {
                *slot = *entry;
            }
        }
    }
}

fn create(fs: &Lfs, name: &str) -> Ino {
    let args = CreateArgs::new(NewNode::File, 0o644);
    fs.create(Ino::ROOT, name.as_bytes(), &args).unwrap().ino
}

/// Reads a file through a map alone, as a client does; what the core buffers, from the core.
fn read_by_map(fs: &Lfs, device: &dyn ZonedDevice, ino: Ino, map: &[MapEntry], size: usize) -> Vec<u8> {
    let zone_blocks = u64::from(device.info().zone_blocks);
    let mut out = vec![0; BLOCKS * BLOCK_BYTES];
    for (i, entry) in map.iter().enumerate() {
        let place = &mut out[i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES];
        if *entry == MapEntry::ASK_CORE {
            fs.read(ino, (i * BLOCK_BYTES) as u64, place).unwrap();
        } else if let Some((address, len)) = entry.location() {
            let block = address / BLOCK_BYTES as u64;
            let mut raw = vec![0; BLOCK_BYTES];
            device
                .read(ZoneId((block / zone_blocks) as u32), (block % zone_blocks) as u32, &mut raw)
                .unwrap();
            assert_eq!(crc32c(&raw), fs.crc_table()[block as usize].load(Ordering::Relaxed), "block {i}");
            let from = address as usize % BLOCK_BYTES;
            place[..len].copy_from_slice(&raw[from..from + len]);
        }
    }
    out.truncate(size);
    out
}

#[test]
fn a_map_kept_by_the_observer_always_leads_to_the_content() {
    let (device, fs) = fresh(&small(16 << 20, 256 << 10));
    let mirror = Arc::new(Mirror::default());
    fs.set_observer(mirror.clone());
    let mut rng = StdRng::seed_from_u64(77);
    let files: Vec<Ino> = (0..4).map(|i| create(&fs, &format!("f{i}"))).collect();
    let mut contents = vec![Vec::<u8>::new(); files.len()];
    // Ballast, overwritten all the time, makes the cleaner move the files.
    let ballast = create(&fs, "ballast");
    let free = fs.statfs().unwrap().free_bytes;
    let ballast_blocks = (free / 4096) * 6 / 10;
    for b in 0..ballast_blocks {
        fs.write_through(ballast, b * 4096, &[3; 4096]).unwrap();
    }
    for (ino, _) in files.iter().zip(&contents) {
        let mut map = vec![MapEntry::HOLE; BLOCKS];
        fs.watch(*ino, 0, &mut map).unwrap();
        mirror.0.lock().insert(ino.0, map);
    }
    for step in 0..4000 {
        let which = rng.random_range(0..files.len());
        let (ino, content) = (files[which], &mut contents[which]);
        match rng.random_range(0..20) {
            0..8 => {
                let at = rng.random_range(0..=content.len().min(900_000));
                let len = [rng.random_range(1..300), rng.random_range(1..60_000)][rng.random_range(0..2)];
                let data: Vec<u8> = (0..len).map(|_| rng.random()).collect();
                content.resize(content.len().max(at + len), 0);
                content[at..at + len].copy_from_slice(&data);
                if rng.random() {
                    fs.write(ino, at as u64, &data).unwrap();
                } else {
                    fs.write_through(ino, at as u64, &data).unwrap();
                }
            }
            8 => {
                let size = rng.random_range(0..=content.len().max(1) * 5 / 4).min(1_000_000);
                content.resize(size, 0);
                fs.setattr(ino, &SetAttr { size: Some(size as u64), ..SetAttr::default() }).unwrap();
            }
            9 if !content.is_empty() => {
                let at = rng.random_range(0..content.len());
                let len = rng.random_range(1..100_000);
                let end = (at + len).min(content.len());
                content[at..end].fill(0);
                fs.fallocate(ino, FallocateMode::PunchHole, at as u64, len as u64).unwrap();
            }
            10 if content.len() > 20 * 4096 => {
                let at = rng.random_range(0..10) * 4096;
                content.drain(at..at + 8192);
                fs.fallocate(ino, FallocateMode::CollapseRange, at as u64, 8192).unwrap();
            }
            11 => fs.fsync(ino).unwrap(),
            12 => fs.write_back(ino).unwrap(),
            13 => fs.tick().unwrap(),
            _ => {
                for _ in 0..8 {
                    let b = rng.random_range(0..ballast_blocks);
                    fs.write_through(ballast, b * 4096, &[step as u8; 4096]).unwrap();
                }
            }
        }
        if step % 10 == 0 {
            assert_eq!(fs.recount(), [""; 0], "step {step}");
            for (ino, content) in files.iter().zip(&contents) {
                let map = mirror.0.lock()[&ino.0].clone();
                let got = read_by_map(&fs, &*device, *ino, &map, content.len());
                assert!(got == *content, "step {step}, inode {ino}");
            }
        }
    }
    assert!(fs.stats().core.cleaned_segments > 20, "the cleaner moved little");
    fs.unlink(Ino::ROOT, b"f0").unwrap();
    assert!(mirror.0.lock()[&files[0].0].iter().all(|entry| *entry == MapEntry::HOLE));
}

#[test]
fn readers_and_writers_at_once_see_whole_blocks_of_one_write_or_another() {
    let (device, fs) = fresh(&small(16 << 20, 256 << 10));
    let fs = Arc::new(fs);
    let file = create(&fs, "f");
    let blocks = 1500u64;
    for b in 0..blocks {
        fs.write_through(file, b * 4096, &[1; 4096]).unwrap();
    }
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|seed| {
            let (fs, done) = (fs.clone(), done.clone());
            std::thread::spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                let mut out = vec![0; 8 * 4096];
                while !done.load(Ordering::Relaxed) {
                    let b = rng.random_range(0..blocks - 8);
                    fs.read(file, b * 4096, &mut out).unwrap();
                    for block in out.chunks_exact(4096) {
                        assert!(block.iter().all(|byte| *byte == block[0]) && block[0] > 0);
                    }
                }
            })
        })
        .collect();
    let syncer = {
        let (fs, done) = (fs.clone(), done.clone());
        let log = create(&fs, "log");
        std::thread::spawn(move || {
            let mut at = 0;
            while !done.load(Ordering::Relaxed) {
                fs.write(log, at % 100_000, &[9; 150]).unwrap();
                fs.fsync(log).unwrap();
                fs.tick().unwrap();
                at += 150;
            }
        })
    };
    let mut rng = StdRng::seed_from_u64(5);
    for i in 0..20_000u64 {
        let b = rng.random_range(0..blocks);
        fs.write_through(file, b * 4096, &[(i % 255) as u8 + 1; 4096]).unwrap();
    }
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().unwrap();
    }
    syncer.join().unwrap();
    assert!(fs.stats().resets > 50);
    fs.close().unwrap();
    rig::assert_sound(&device);
}

#[test]
fn the_death_of_a_files_content_is_told_with_its_size_and_age_in_bytes() {
    let (_device, fs) = fresh(&small(16 << 20, 256 << 10));
    let deaths: Arc<Mutex<Vec<Death>>> = Arc::default();
    let told = deaths.clone();
    fs.set_death_observer(Box::new(move |death| told.lock().push(*death)));
    let a = create(&fs, "a");
    fs.write(a, 0, &[1; 1000]).unwrap();
    let b = create(&fs, "b");
    fs.write(b, 0, &[1; 500]).unwrap();
    fs.setattr(a, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    fs.write(a, 0, &[2; 70]).unwrap();
    fs.rename(Ino::ROOT, b"b", Ino::ROOT, b"a", Default::default()).unwrap();
    fs.unlink(Ino::ROOT, b"a").unwrap();
    let told: Vec<_> =
        deaths.lock().iter().map(|d| (d.ino, d.size, d.born_at_bytes, d.died_at_bytes)).collect();
    assert_eq!(told, [(a, 1000, 0, 1500), (a, 70, 1500, 1570), (b, 500, 1000, 1570)]);
}

#[test]
fn an_fsync_of_a_small_append_is_one_block_and_one_flush() {
    let (device, fs) = fresh(&small(16 << 20, 256 << 10));
    let log = create(&fs, "log");
    fs.fsync(log).unwrap();
    let before = device.counters();
    for i in 0..20 {
        fs.write(log, i * 200, &[i as u8; 200]).unwrap();
        fs.fsync(log).unwrap();
    }
    let after = device.counters();
    assert_eq!(after.writes - before.writes, 20);
    assert_eq!(after.metadata_bytes - before.metadata_bytes, 20 * 4096);
    assert_eq!(after.host_bytes, before.host_bytes);
    assert_eq!(after.flushes - before.flushes, 20);
    // With nothing new there is nothing to do.
    fs.fsync(log).unwrap();
    assert_eq!(device.counters().flushes, after.flushes);
}

#[test]
fn a_watched_sparse_file_of_the_largest_size_shrinks_and_goes_at_once() {
    let (_device, fs) = fresh(&small(16 << 20, 256 << 10));
    let mirror = Arc::new(Mirror::default());
    fs.set_observer(mirror.clone());
    for name in ["a", "b"] {
        let ino = create(&fs, name);
        let mut map = vec![MapEntry::HOLE; BLOCKS];
        fs.watch(ino, 0, &mut map).unwrap();
        mirror.0.lock().insert(ino.0, map);
        fs.write(ino, 0, &[1; 10_000]).unwrap();
        fs.write(ino, weft_lfs::FILE_BYTES_MAX - 5, &[2; 5]).unwrap();
        fs.fsync(ino).unwrap();
        assert_eq!(
            fs.seek(ino, 12_288, weft_vfs::SeekTarget::Data).unwrap() / 4096,
            (weft_lfs::FILE_BYTES_MAX - 5) / 4096
        );
        // Blocks of the middle are holes and stay so.
        fs.fallocate(ino, FallocateMode::PunchHole, 1 << 40, 1 << 60).unwrap();
    }
    let a = fs.lookup(Ino::ROOT, b"a").unwrap().ino;
    fs.setattr(a, &SetAttr { size: Some(1 << 61), ..SetAttr::default() }).unwrap();
    fs.fallocate(a, FallocateMode::CollapseRange, 1 << 20, 1 << 60).unwrap();
    fs.setattr(a, &SetAttr { size: Some(100), ..SetAttr::default() }).unwrap();
    assert_eq!(mirror.0.lock()[&a.0][1], MapEntry::HOLE);
    assert!(matches!(fs.write(a, weft_lfs::FILE_BYTES_MAX, &[1]), Err(weft_vfs::FsError::TooLarge)));
    fs.unlink(Ino::ROOT, b"b").unwrap();
}
