//! Commands of the device that fail while a volume is mounted, recovered, checked or salvaged: an error that says so, or a
//! volume on which everything is as it was; and nothing is lost when the device works again.
//!
//! By default a slice of the campaign runs; `WEFT_CAMPAIGN=1` runs it whole: every command, on several volumes.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::content::{Recipe, Tree, dump, fill};
use rig::failing::{Failing, Kind};
use rig::{fresh, options, small};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::Ino;
use weft_device::PowerCut;
use weft_lfs::salvage::salvage;
use weft_lfs::{FormatOptions, Lfs, LfsError, MountOptions, fsck};
use weft_vfs::{CreateArgs, FileKind, FileSystem, NewNode};

/// Commands of each kind of which one fails, on each volume, when only a slice runs.
const SLICE: u64 = 40;

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

/// A volume that was closed or not, and what is durable on it.
fn volume(seed: u64, is_closed: bool) -> (Arc<PowerCut>, Tree) {
    let (device, fs) = fresh(&small(16 << 20, 256 << 10));
    let recipe = Recipe { seed, files: 100, bytes_max: 30_000, depth: 4, overwrites: 60 };
    fill(&fs, &recipe);
    let late = CreateArgs::new(NewNode::File, 0o600);
    for n in 0..8 {
        let ino = fs.create(Ino::ROOT, format!("late {n}").as_bytes(), &late).unwrap().ino;
        fs.write(ino, 0, &vec![n; 3000 * n as usize]).unwrap();
        fs.fsync(ino).unwrap();
    }
    let tree = dump(&fs).unwrap();
    if is_closed {
        fs.unmount().unwrap();
    }
    (device, tree)
}

/// What is done with a device, the one below it and what is durable there, when a failure stays or does not.
type Work<'a> = &'a mut dyn FnMut(Arc<Failing>, &Arc<PowerCut>, &Tree, bool);

/// Runs `work` on a copy of each volume with each command of it failing, once or from then on; `work` gets the device, the copy
/// below it, and whether the failure stays.
fn each_failure(kinds: &[Kind], work: Work<'_>, count: &dyn Fn(Arc<Failing>)) {
    for seed in 0..if campaign() { 4 } else { 1 } {
        for is_closed in [true, false] {
            let (base, tree) = volume(seed, is_closed);
            for kind in kinds {
                let copy = || Arc::new(base.reopen(1).unwrap());
                let whole = Failing::new(copy(), *kind, 0..0);
                count(whole.clone());
                let commands = whole.commands.load(Relaxed);
                assert!(commands > 0 || is_closed);
                let step = if campaign() { 1 } else { (commands / SLICE).max(1) as usize };
                for stays in [false, true] {
                    for first in (0..commands).step_by(step) {
                        let fail = first..if stays { u64::MAX } else { first + 1 };
                        let below = copy();
                        println!("seed {seed}, closed {is_closed}, {kind:?} {fail:?} of {commands}");
                        work(Failing::new(below.clone(), *kind, fail), &below, &tree, stays);
                    }
                }
            }
        }
    }
}

/// An error tells what failed, and where.
fn assert_told(error: &LfsError) {
    let text = error.to_string();
    assert!(text.contains("Input/output error") || text.contains("zone "), "{text}");
    assert!(!text.contains("format"), "{text}: somebody might do it");
}

/// What can be read is what was written, and no name is missing.
fn assert_same(found: &Tree, tree: &Tree) {
    for (path, node) in tree {
        match found.get(path) {
            Some(Err(_)) => {}
            now => assert!(now == Some(node), "{}: {now:?}, was {node:?}", String::from_utf8_lossy(path)),
        }
    }
    assert!(found.keys().all(|path| tree.contains_key(path)));
}

fn mount_use_and_close(device: Arc<Failing>) -> Result<Option<Tree>, LfsError> {
    let fs = Lfs::mount(device, options())?;
    let found = dump(&fs).ok();
    let _ = fs.sync();
    fs.unmount()?;
    Ok(found)
}

#[test]
fn commands_that_fail_while_a_volume_is_mounted_and_used_lose_nothing() {
    let (mut mounted, mut refused) = (0, 0);
    each_failure(
        &[Kind::Reads, Kind::Changes],
        &mut |device, below, tree, _| {
            match Lfs::mount(device.clone(), options()) {
                Err(error) => {
                    refused += 1;
                    assert_told(&error);
                }
                Ok(fs) => {
                    mounted += 1;
                    if let Ok(found) = dump(&fs) {
                        assert_same(&found, tree);
                    }
                    let _ = fs.sync();
                    let _ = fs.unmount();
                }
            }
            // The device works again, after a cut of its power.
            let after = Arc::new(below.reopen(2).unwrap());
            let report = fsck::check(after.clone()).unwrap();
            assert!(report.is_clean(), "{:?}", report.problems);
            let fs = Lfs::mount(after, options()).unwrap();
            assert_eq!(&dump(&fs).unwrap(), tree);
            fs.unmount().unwrap();
        },
        &|device| drop(mount_use_and_close(device).unwrap()),
    );
    assert!(mounted > 20 && refused > 20, "{mounted} mounted, {refused} refused");
}

#[test]
fn a_read_that_fails_while_a_volume_is_looked_at_or_checked_is_told() {
    let look = || MountOptions { read_only: true, ..options() };
    each_failure(
        &[Kind::Reads],
        &mut |device, _, tree, stays| {
            match fsck::check(device.clone()) {
                Err(error) => assert_told(&error),
                Ok(report) => assert!(!stays || !report.is_clean(), "nothing is said of what cannot be read"),
            }
            device.commands.store(0, Relaxed);
            match Lfs::mount(device, look()) {
                Err(error) => assert_told(&error),
                Ok(fs) => drop(dump(&fs).map(|found| assert_same(&found, tree))),
            }
        },
        &|device| assert!(fsck::check(device).unwrap().is_clean()),
    );
}

#[test]
fn a_read_that_fails_while_a_volume_is_salvaged_is_told_and_what_is_copied_is_right() {
    let open = |device| Lfs::mount(device, MountOptions { salvage: true, ..options() });
    each_failure(
        &[Kind::Reads],
        &mut |device, _, tree, stays| {
            let from = match open(device) {
                Err(error) => return assert_told(&error),
                Ok(from) => from,
            };
            let target = Arc::new(PowerCut::new(&small(20 << 20, 256 << 10)).unwrap());
            Lfs::format(target.clone(), &FormatOptions::default()).unwrap();
            let to = Lfs::mount(target, options()).unwrap();
            let report = salvage(&from, Some(&to), &mut |_, _| {}).unwrap();
            assert!(!stays || !report.is_complete(), "nothing is said of what could not be read");
            let found = dump(&to).unwrap();
            for (path, node) in tree {
                let node = node.as_ref().unwrap();
                let now = found.get(path).map(|now| now.as_ref().unwrap());
                let same =
                    now.is_some_and(|now| now.kind == FileKind::Directory || now.content == node.content);
                assert!(same || !report.is_complete(), "{}: {now:?}", String::from_utf8_lossy(path));
            }
        },
        &|device| {
            let from = open(device).unwrap();
            assert!(salvage(&from, None, &mut |_, _| {}).unwrap().is_complete());
        },
    );
}

#[test]
fn a_write_that_cannot_read_its_last_block_changes_nothing() {
    let (device, fs) = fresh(&small(16 << 20, 256 << 10));
    let args = CreateArgs::new(NewNode::File, 0o600);
    let ino = fs.create(Ino::ROOT, b"file", &args).unwrap().ino;
    let content = vec![1; 4 * 4096];
    fs.write(ino, 0, &content).unwrap();
    fs.unmount().unwrap();
    let count = Failing::new(Arc::new(device.reopen(1).unwrap()), Kind::Reads, 0..0);
    drop(Lfs::mount(count.clone(), options()).unwrap());
    let reads = count.commands.load(Relaxed);

    let below = Arc::new(device.reopen(1).unwrap());
    let failing = Failing::new(below.clone(), Kind::Reads, reads..u64::MAX);
    let fs = Lfs::mount(failing.clone(), options()).unwrap();
    // Two whole blocks, and the beginning of a third one.
    assert!(fs.write(ino, 0, &[2; 2 * 4096 + 100]).is_err());
    // The device works again.
    failing.commands.store(0, Relaxed);
    let mut found = vec![0; content.len()];
    assert_eq!(fs.read(ino, 0, &mut found).unwrap(), content.len());
    assert!(found == content, "what the write did not do shows");
    fs.unmount().unwrap();
    let fs = Lfs::mount(Arc::new(below.reopen(2).unwrap()), options()).unwrap();
    assert_eq!(fs.read(ino, 0, &mut found).unwrap(), content.len());
    assert!(found == content, "what the write did not do is on the device");
}
