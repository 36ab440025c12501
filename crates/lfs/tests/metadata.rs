//! Cleanly closed volumes with one flipped bit or one lost block anywhere in their metadata: every file is there.
//!
//! By default a slice of the campaign runs; `WEFT_CAMPAIGN=1` runs it whole: more than 1,000 volumes.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rig::content::{Node, Recipe, Tree, dump, fill};
use rig::damaged::Damaged;
use rig::{fresh, options, small};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::{BLOCK_BYTES, Ino, ZoneId};
use weft_device::{PowerCut, ZonedDevice};
use weft_lfs::salvage::{SalvageReport, salvage};
use weft_lfs::{FormatOptions, Lfs, LfsError, MountOptions, fsck};
use weft_vfs::{CreateArgs, FileKind, FileSystem, FsError, NewNode};

/// A closed volume, what is on it, and where its metadata is.
struct Closed {
    device: Arc<PowerCut>,
    tree: Tree,
    metadata: Vec<(u32, u32)>,
}

fn closed(recipe: &Recipe, total_bytes: u64, zone_bytes: u64) -> Closed {
    let (device, fs) = fresh(&small(total_bytes, zone_bytes));
    fill(&fs, recipe);
    let tree = dump(&fs).unwrap();
    fs.unmount().unwrap();
    let metadata = metadata(&device);
    Closed { device, tree, metadata }
}

/// Every block that is no file's: headers, frames, footers.
fn metadata(device: &PowerCut) -> Vec<(u32, u32)> {
    let info = device.info();
    let mut found = Vec::new();
    for zone in 0..info.zones {
        let end = device.report(ZoneId(zone)).unwrap().write_pointer;
        if end == 0 {
            continue;
        }
        let mut raw = vec![0; BLOCK_BYTES];
        device.read(ZoneId(zone), 0, &mut raw).unwrap();
        let is_meta = raw[12] == 1;
        let data_end = weft_lfs::layout::footer::data_end(info.zone_capacity);
        let headers = weft_lfs::layout::zone_header::HEADER_BLOCKS;
        let blocks = (0..end).filter(|b| is_meta || *b < headers || *b >= data_end);
        found.extend(blocks.map(|block| (zone, block)));
    }
    found
}

/// Mounts the damaged volume and compares what is on it.
fn outcome(device: Arc<Damaged>, tree: &Tree) -> Result<(), String> {
    fsck::check(device.clone()).map_err(|error| format!("check: {error}"))?;
    let fs = Lfs::mount(device.clone(), options()).map_err(|error| format!("mount: {error}"))?;
    let found = dump(&fs).map_err(|error| format!("walk: {error}"))?;
    if found != *tree {
        let wrong = tree.iter().find(|(path, node)| found.get(*path) != Some(node));
        let wrong = wrong.map(|(path, node)| {
            format!("{}: {node:?}, found {:?}", String::from_utf8_lossy(path), found.get(path))
        });
        return Err(format!("{wrong:?}"));
    }
    Ok(())
}

#[test]
fn a_flipped_bit_or_a_lost_block_in_each_block_of_metadata_of_a_closed_volume_costs_nothing() {
    let recipe = Recipe { seed: 1, files: 120, bytes_max: 60_000, depth: 5, overwrites: 40 };
    let base = closed(&recipe, 16 << 20, 256 << 10);
    let mut rng = StdRng::seed_from_u64(5);
    let (mut failed, mut first) = (0, None);
    for (zone, block) in &base.metadata {
        for lost in [false, true] {
            let inner: Arc<dyn ZonedDevice> = Arc::new(base.device.reopen(1).unwrap());
            let byte = if rng.random() { rng.random_range(0..100) } else { rng.random_range(0..BLOCK_BYTES) };
            let damaged = match lost {
                true => Damaged::losing(inner, vec![(*zone, *block)]),
                false => Damaged::flipped(inner, vec![(*zone, *block, byte, 1 << rng.random_range(0..8))]),
            };
            if let Err(why) = outcome(damaged, &base.tree) {
                failed += 1;
                first.get_or_insert(format!("zone {zone}, block {block}, lost {lost}: {why}"));
            }
        }
    }
    let tried = base.metadata.len() * 2;
    assert_eq!(failed, 0, "{failed} of {tried} damaged volumes; the first: {}", first.unwrap_or_default());
}

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

fn any_damage(base: &Closed, rng: &mut StdRng) -> (Arc<Damaged>, String) {
    let (zone, block) = base.metadata[rng.random_range(0..base.metadata.len())];
    let inner: Arc<dyn ZonedDevice> = Arc::new(base.device.reopen(1).unwrap());
    if rng.random() {
        return (Damaged::losing(inner, vec![(zone, block)]), format!("zone {zone}, block {block} lost"));
    }
    let byte = if rng.random() { rng.random_range(0..100) } else { rng.random_range(0..BLOCK_BYTES) };
    let bit = rng.random_range(0..8);
    let what = format!("zone {zone}, block {block}, byte {byte}, bit {bit} flipped");
    (Damaged::flipped(inner, vec![(zone, block, byte, 1 << bit)]), what)
}

/// A fresh volume of the same size, or one larger, with what can be read of the damaged one.
fn salvaged(
    device: Arc<Damaged>,
    total_bytes: u64,
    zone_bytes: u64,
) -> Result<(Lfs, SalvageReport), LfsError> {
    let from = Lfs::mount(device.clone(), MountOptions { salvage: true, ..options() })?;
    let target = Arc::new(PowerCut::new(&small(total_bytes, zone_bytes)).unwrap());
    Lfs::format(target.clone(), &FormatOptions { label: from.label(), ..FormatOptions::default() })?;
    let to = Lfs::mount(target.clone(), options())?;
    let report = salvage(&from, Some(&to), &mut |_, _| {})?;
    drop(from);
    assert_eq!(device.changes.load(Relaxed), 0, "what is salvaged from is only read");
    to.unmount()?;
    let check = fsck::check(target.clone())?;
    assert!(check.is_clean(), "{:?}", check.problems);
    Ok((Lfs::mount(target, options())?, report))
}

/// Files, largest file, depth, overwrites, bytes of the device and of a zone.
type Shape = (u32, u64, u32, u32, u64, u64);

#[test]
fn every_file_of_a_closed_volume_with_damaged_metadata_is_there_or_can_be_salvaged() {
    let shapes = [
        (60, 30_000, 2, 0, 8 << 20, 192 << 10),
        (150, 40_000, 12, 300, 16 << 20, 256 << 10),
        (300, 3_000, 40, 0, 16 << 20, 512 << 10),
        (20, 2_000_000, 3, 200, 48 << 20, 1 << 20),
        (1500, 6_000, 8, 500, 32 << 20, 256 << 10),
    ];
    let (volumes, damages) = if campaign() { (10, 20) } else { (1, 8) };
    every_file_is_there(&shapes, volumes, damages);
}

#[test]
fn every_file_of_a_large_closed_volume_with_damaged_metadata_is_there_or_can_be_salvaged() {
    if campaign() {
        every_file_is_there(&[(15_000, 2_000, 20, 2000, 96 << 20, 512 << 10)], 3, 10);
    }
}

fn every_file_is_there(shapes: &[Shape], volumes: u64, damages: u32) {
    let mut tried = 0;
    for (n, (files, bytes_max, depth, overwrites, total_bytes, zone_bytes)) in
        shapes.iter().copied().enumerate()
    {
        for seed in 0..volumes {
            let seed = seed * 100 + n as u64;
            let recipe = Recipe { seed, files, bytes_max, depth, overwrites };
            let base = closed(&recipe, total_bytes, zone_bytes);
            let mut rng = StdRng::seed_from_u64(seed);
            for _ in 0..damages {
                let (device, what) = any_damage(&base, &mut rng);
                tried += 1;
                if let Err(why) = outcome(device, &base.tree) {
                    panic!("{recipe:?}: {what}: {why}");
                }
            }
            let (device, what) = any_damage(&base, &mut rng);
            let (copy, report) = salvaged(device, total_bytes * 5 / 4, zone_bytes).unwrap();
            assert!(report.is_complete(), "{what}: {report:?}");
            let found = dump(&copy).unwrap();
            for (path, node) in &base.tree {
                assert_eq!(found.get(path), Some(node), "{what}: {}", String::from_utf8_lossy(path));
            }
            assert_eq!(found.len(), base.tree.len(), "{what}");
        }
    }
    println!("{tried} damaged volumes");
}

#[test]
fn a_volume_that_is_mounted_read_only_is_as_it_was_afterwards_and_refuses_every_change() {
    let recipe = Recipe { seed: 3, files: 80, bytes_max: 20_000, depth: 4, overwrites: 0 };
    for is_closed in [true, false] {
        let (device, fs) = fresh(&small(16 << 20, 256 << 10));
        fill(&fs, &recipe);
        let tree = dump(&fs).unwrap();
        if is_closed {
            fs.unmount().unwrap();
        }
        let device = Arc::new(Damaged::new(Arc::new(device.reopen(3).unwrap())));
        let fs = Lfs::mount(device.clone(), MountOptions { read_only: true, ..options() }).unwrap();
        assert!(fs.is_read_only());
        assert_eq!(dump(&fs).unwrap(), tree);
        let args = CreateArgs::new(NewNode::File, 0o600);
        assert!(matches!(fs.create(Ino::ROOT, b"new", &args), Err(FsError::ReadOnly(_))));
        let mut file = None;
        fs.readdir(Ino::ROOT, 0, &mut |entry| {
            if entry.kind == FileKind::File {
                file = Some((entry.ino, entry.name.to_vec()));
            }
            file.is_none()
        })
        .unwrap();
        let (ino, name) = file.unwrap();
        assert!(matches!(fs.write(ino, 0, b"x"), Err(FsError::ReadOnly(_))));
        assert!(matches!(fs.unlink(Ino::ROOT, &name), Err(FsError::ReadOnly(_))));
        fs.fsync(ino).unwrap();
        fs.tick().unwrap();
        fs.sync().unwrap();
        fs.unmount().unwrap();
        assert_eq!(device.changes.load(Relaxed), 0, "closed {is_closed}");
    }
}

#[test]
fn a_file_with_a_lost_block_is_put_aside_and_told_and_all_others_are_salvaged() {
    let recipe = Recipe { seed: 8, files: 100, bytes_max: 50_000, depth: 4, overwrites: 50 };
    let base = closed(&recipe, 16 << 20, 256 << 10);
    let mut rng = StdRng::seed_from_u64(2);
    let info = base.device.info();
    let mut seen = 0;
    for _ in 0..40 {
        let zone = rng.random_range(0..info.zones);
        let end = base.device.report(ZoneId(zone)).unwrap().write_pointer;
        let block = if end > 0 { rng.random_range(0..end) } else { continue };
        if base.metadata.contains(&(zone, block)) {
            continue;
        }
        let inner: Arc<dyn ZonedDevice> = Arc::new(base.device.reopen(1).unwrap());
        let device = Damaged::flipped(inner, vec![(zone, block, 9, 1)]);
        let (copy, report) = salvaged(device, 20 << 20, 256 << 10).unwrap();
        let mut found = dump(&copy).unwrap();
        assert_eq!(report.damaged.len() as u64, report.damaged_files);
        seen += report.damaged_files;
        for file in &report.damaged {
            let now = found.remove(&file.now).unwrap().unwrap();
            assert_eq!(now.size, file.size);
            assert!(file.lost_bytes > 0 && file.lost_bytes <= file.size);
            assert_eq!(file.ranges.iter().map(|(_, len)| len).sum::<u64>(), file.lost_bytes);
            assert!(!found.contains_key(&file.path));
        }
        let damaged: Vec<_> = report.damaged.iter().map(|file| file.path.clone()).collect();
        for (path, node) in &base.tree {
            let node = node.as_ref().unwrap();
            if path.is_empty() || damaged.contains(path) || damaged.contains(&node.first) {
                continue;
            }
            let now = found.get(path).and_then(|now| now.as_ref().ok());
            // A directory that had a damaged file is a directory with one name less; links are as they were.
            assert_eq!(
                now.map(|now| (&now.content, now.perm, now.owner, &now.xattrs)),
                Some((&node.content, node.perm, node.owner, &node.xattrs)),
                "{}",
                String::from_utf8_lossy(path)
            );
        }
    }
    assert!(seen > 3, "{seen} damaged files");
}

#[test]
fn what_two_damaged_checkpoints_and_a_damaged_journal_still_tell_is_never_wrong() {
    let recipe = Recipe { seed: 9, files: 400, bytes_max: 9_000, depth: 6, overwrites: 100 };
    let mut rng = StdRng::seed_from_u64(6);
    for is_closed in [true, false] {
        let (device, fs) = fresh(&small(24 << 20, 256 << 10));
        fill(&fs, &recipe);
        let tree = dump(&fs).unwrap();
        if is_closed {
            fs.unmount().unwrap();
        }
        let meta = metadata(&device);
        let file = |node: &Node| (node.kind == FileKind::File).then_some((node.content.0, node.content.1));
        let written: BTreeSet<_> = tree.values().filter_map(|node| file(node.as_ref().unwrap())).collect();
        let (mut whole, mut mounted) = (0, 0);
        let rounds = if campaign() { 300 } else { 30 };
        for round in 0..rounds {
            let count = 1 + round % 6;
            let lost = (0..count).map(|_| meta[rng.random_range(0..meta.len())]).collect();
            let damaged = Damaged::losing(Arc::new(device.reopen(1).unwrap()), lost);
            let _ = fsck::check(damaged.clone());
            let (copy, report) = match salvaged(damaged, 40 << 20, 256 << 10) {
                Ok(done) => done,
                Err(LfsError::Corrupt { .. } | LfsError::NoCheckpoint { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            mounted += 1;
            for (path, node) in dump(&copy).unwrap() {
                // Some have lost their names only.
                let node = node.unwrap();
                whole += u64::from(file(&node).is_some_and(|content| written.contains(&content)));
                let Some(Ok(was)) = tree.get(&path) else { continue };
                // Of what was not closed the last changes may be missing; it is then as it was before.
                if node.kind == FileKind::File && node.content != was.content {
                    let told = !report.is_complete();
                    assert!(told && !is_closed, "{}: {node:?}, was {was:?}", String::from_utf8_lossy(&path));
                }
            }
        }
        println!("closed {is_closed}: {mounted} of {rounds} salvaged, {whole} files whole");
        assert!(mounted > rounds / 2 && whole > 100 * mounted, "{mounted} salvaged, {whole} files");
    }
}

#[test]
fn power_cuts_while_a_damaged_volume_is_mounted_and_mended_lose_nothing() {
    let recipe = Recipe { seed: 12, files: 60, bytes_max: 20_000, depth: 3, overwrites: 0 };
    let base = closed(&recipe, 10 << 20, 256 << 10);
    let mut rng = StdRng::seed_from_u64(2);
    for _ in 0..if campaign() { 60 } else { 6 } {
        let (zone, block) = base.metadata[rng.random_range(0..base.metadata.len())];
        for cut in 0.. {
            let device = Arc::new(base.device.reopen(1).unwrap());
            device.cut_after(cut);
            let mounted = Lfs::mount(Damaged::losing(device.clone(), vec![(zone, block)]), options());
            let closed = mounted.map_err(|_| ()).and_then(|fs| fs.unmount().map_err(|_| ()));
            let after = Arc::new(device.reopen(cut).unwrap());
            // The flash below a block stays as it is: what is written there again can be read.
            let still = after.report(ZoneId(zone)).unwrap() == base.device.report(ZoneId(zone)).unwrap();
            let lost = if still { vec![(zone, block)] } else { Vec::new() };
            let fs = Lfs::mount(Damaged::losing(after, lost), options());
            let fs = fs.unwrap_or_else(|error| panic!("zone {zone}, block {block}, cut {cut}: {error}"));
            assert_eq!(dump(&fs).unwrap(), base.tree, "zone {zone}, block {block}, cut {cut}");
            if closed.is_ok() {
                break;
            }
        }
    }
}

#[test]
fn a_salvage_whose_new_volume_fails_or_is_full_is_an_error_and_leaves_the_old_one_alone() {
    let recipe = Recipe { seed: 13, files: 60, bytes_max: 60_000, depth: 3, overwrites: 0 };
    let base = closed(&recipe, 10 << 20, 256 << 10);
    for cut in (0..200).step_by(if campaign() { 1 } else { 17 }) {
        let device = Arc::new(Damaged::new(Arc::new(base.device.reopen(1).unwrap())));
        let from = Lfs::mount(device.clone(), MountOptions { salvage: true, ..options() }).unwrap();
        let target = Arc::new(PowerCut::new(&small(10 << 20, 256 << 10)).unwrap());
        Lfs::format(target.clone(), &FormatOptions::default()).unwrap();
        let to = Lfs::mount(target.clone(), options()).unwrap();
        target.cut_after(cut);
        let done = salvage(&from, Some(&to), &mut |_, _| {});
        assert!(done.is_err() || !target.is_cut(), "cut {cut}");
        assert_eq!(device.changes.load(Relaxed), 0);
    }
    let base = closed(&Recipe { bytes_max: 400_000, ..recipe }, 32 << 20, 256 << 10);
    let from = Lfs::mount(base.device.clone(), MountOptions { salvage: true, ..options() }).unwrap();
    let target = Arc::new(PowerCut::new(&small(4 << 20, 192 << 10)).unwrap());
    Lfs::format(target.clone(), &FormatOptions::default()).unwrap();
    let to = Lfs::mount(target, options()).unwrap();
    assert!(matches!(salvage(&from, Some(&to), &mut |_, _| {}), Err(LfsError::Fs(FsError::NoSpace))));
}

#[test]
fn the_blocks_that_a_mount_a_check_and_a_salvage_read_grow_as_what_is_stored() {
    let mut counted: Vec<[u64; 3]> = Vec::new();
    for files in [200, 2000] {
        let recipe = Recipe { seed: 20, files, bytes_max: 9_000, depth: 8, overwrites: 0 };
        let base = closed(&recipe, 64 << 20, 512 << 10);
        let device = Arc::new(Damaged::new(base.device.clone()));
        let count = |work: &dyn Fn()| {
            let before = device.blocks_read.load(Relaxed);
            work();
            device.blocks_read.load(Relaxed) - before
        };
        let mount = |salvage| {
            Lfs::mount(device.clone(), MountOptions { salvage, read_only: true, ..options() }).unwrap()
        };
        let blocks = [
            count(&|| drop(mount(false))),
            count(&|| drop(fsck::check(device.clone()).unwrap())),
            count(&|| drop(salvage(&mount(true), None, &mut |_, _| {}).unwrap())),
        ];
        counted.push(blocks);
    }
    println!("{counted:?}");
    for (few, many) in counted[0].iter().zip(&counted[1]) {
        assert!(*many <= 12 * few, "{counted:?}");
    }
}
