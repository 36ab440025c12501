//! Flash that fails under the volume: programs that fail take their zone, pages that cannot be read are errors to who
//! reads them, and everything else goes on.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rig::failing::{Failing, Kind};
use rig::{options, small};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::Ino;
use weft_device::{FaultPlan, ZonedDevice, ZonedModel};
use weft_lfs::{FormatOptions, Lfs, ZoneCondition, fsck};
use weft_vfs::{CreateArgs, FileSystem, FsError, NewNode};

fn args() -> CreateArgs<'static> {
    CreateArgs::new(NewNode::File, 0o644)
}

fn faulty(plan: FaultPlan) -> Arc<ZonedModel> {
    let device = ZonedModel::memory(&small(64 << 20, 512 << 10)).unwrap().with_faults(plan);
    let device = Arc::new(device);
    Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
    device
}

/// Writes, overwrites and deletes files for some volumes' worth, remembering what each must read as.
fn churn(fs: &Lfs, rng: &mut StdRng, files: &mut Vec<Option<Vec<u8>>>, writes: usize) {
    for _ in 0..writes {
        let slot = rng.random_range(0..40);
        files.resize(files.len().max(slot + 1), None);
        let name = format!("f{slot}");
        if files[slot].is_some() && rng.random_range(0..4) == 0 {
            fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
            files[slot] = None;
            continue;
        }
        let ino = match fs.lookup(Ino::ROOT, name.as_bytes()) {
            Ok(attr) => attr.ino,
            Err(_) => fs.create(Ino::ROOT, name.as_bytes(), &args()).unwrap().ino,
        };
        let content = files[slot].get_or_insert_default();
        let at = rng.random_range(0..=content.len().min(600_000));
        let data: Vec<u8> = (0..rng.random_range(1..200_000)).map(|_| rng.random()).collect();
        content.resize(content.len().max(at + data.len()), 0);
        content[at..at + data.len()].copy_from_slice(&data);
        fs.write_through(ino, at as u64, &data).unwrap();
        if rng.random_range(0..3) == 0 {
            fs.fsync(ino).unwrap();
        }
    }
}

fn compare(fs: &Lfs, files: &[Option<Vec<u8>>]) -> usize {
    assert_eq!(fs.recount(), [""; 0]);
    let mut unreadable = 0;
    for (slot, content) in files.iter().enumerate() {
        let found = fs.lookup(Ino::ROOT, format!("f{slot}").as_bytes());
        let Some(content) = content else {
            assert!(matches!(found, Err(FsError::NotFound)));
            continue;
        };
        let mut out = vec![0; content.len()];
        match fs.read(found.unwrap().ino, 0, &mut out) {
            Ok(len) => assert!(len == content.len() && out == *content, "f{slot}"),
            Err(FsError::Device(_)) => unreadable += 1,
            Err(error) => panic!("{error}"),
        }
    }
    unreadable
}

#[test]
fn programs_that_fail_take_their_zone_and_nothing_else() {
    let mut failures = 0;
    for seed in 0..6 {
        let device = faulty(FaultPlan { seed, program_failures: 1500, ..FaultPlan::default() });
        let mut rng = StdRng::seed_from_u64(seed);
        let mut files = Vec::new();
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        churn(&fs, &mut rng, &mut files, 400);
        assert_eq!(compare(&fs, &files), 0);
        fs.unmount().unwrap();
        let report = fsck::check(device.clone()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        failures += fs.zones().iter().filter(|z| z.state == ZoneCondition::Bad).count();
        churn(&fs, &mut rng, &mut files, 50);
        assert_eq!(compare(&fs, &files), 0);
        fs.unmount().unwrap();
    }
    assert!(failures > 3, "only {failures} zones failed");
}

#[test]
fn a_zone_whose_end_cannot_be_programmed_stops_nothing() {
    let model = faulty(FaultPlan::default());
    let device = Failing::new(model.clone(), Kind::Finishes, 0..u64::MAX);
    let mut files = Vec::new();
    for round in 0..16 {
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        let mut rng = StdRng::seed_from_u64(round);
        churn(&fs, &mut rng, &mut files, 40);
        assert_eq!(compare(&fs, &files), 0);
        if round % 2 == 0 {
            fs.unmount().unwrap();
            assert!(fsck::check(device.clone()).unwrap().is_clean());
        } else {
            fs.sync().unwrap();
        }
    }
    let ends = device.commands.load(Relaxed);
    assert!(ends >= 8, "{ends} zones were ended before they were full");
}

#[test]
fn erases_that_fail_take_their_zone_and_nothing_else() {
    let device = faulty(FaultPlan { seed: 3, erase_failures: 10_000, ..FaultPlan::default() });
    let mut rng = StdRng::seed_from_u64(3);
    let mut files = Vec::new();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    let before = fs.statfs().unwrap().total_bytes;
    churn(&fs, &mut rng, &mut files, 1500);
    assert_eq!(compare(&fs, &files), 0);
    let bad = fs.zones().iter().filter(|z| z.state == ZoneCondition::Bad).count() as u64;
    assert!(bad > 0);
    assert!(fs.statfs().unwrap().total_bytes < before, "a smaller device holds less");
    fs.unmount().unwrap();
    assert!(fsck::check(device).unwrap().is_clean());
}

#[test]
fn pages_that_cannot_be_read_are_errors_to_their_readers_and_do_not_stop_the_cleaner() {
    let mut unreadable = 0;
    for seed in 0..3 {
        let device = faulty(FaultPlan { seed, uncorrectable_reads: 1500, ..FaultPlan::default() });
        let Ok(fs) = Lfs::mount(device.clone(), options()) else { continue };
        let ballast = fs.create(Ino::ROOT, b"ballast", &args()).unwrap().ino;
        let free = fs.statfs().unwrap().free_bytes as usize;
        fs.write_through(ballast, 0, &vec![1; free / 2]).unwrap();
        let mut rng = StdRng::seed_from_u64(seed);
        let table: Vec<u64> = (0..2000).map(|_| rng.random_range(0..free as u64 / 8192)).collect();
        for block in table {
            fs.write_through(ballast, block * 4096, &[2; 4096]).unwrap();
        }
        let mut out = vec![0; 4096];
        for block in 0..free as u64 / 8192 {
            match fs.read(ballast, block * 4096, &mut out) {
                Ok(_) => assert!(out == [1; 4096] || out == [2; 4096]),
                Err(FsError::Device(_)) => unreadable += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(device.counters().refused, 0);
    }
    assert!(unreadable > 0);
}
