//! Power cuts at every device operation of seeded workloads: what was promised is there, the check finds nothing
//! wrong, the volume takes new writes.
//!
//! By default a slice of the campaign runs: every k-th operation. `WEFT_CAMPAIGN=1` runs it whole.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::{CutRig, small};
use rig::{check, fresh, options};
use std::sync::Arc;
use weft_conformance::crash::{CrashCase, Recorder, run_until_error, survive_cuts, takes_new_writes};
use weft_core::Ino;
use weft_lfs::Lfs;
use weft_vfs::{CreateArgs, FileSystem, NewNode};

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

/// Returns the bytes that the cleaner copied.
fn survive(
    seed: u64,
    ops: usize,
    total_bytes: u64,
    zone_bytes: u64,
    leave_free: Option<u64>,
    every: u64,
) -> u64 {
    let mut rig = CutRig::new(small(total_bytes, zone_bytes), seed ^ 0xabcd);
    rig.leave_free = leave_free;
    let every = if campaign() { 1 } else { every };
    match survive_cuts(&mut rig, CrashCase { seed, ops }, every) {
        Ok(report) => println!("seed {seed}: {report:?}"),
        Err(casualty) => panic!("{casualty}"),
    }
    rig.gc_bytes
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_on_a_roomy_volume() {
    for seed in 1..=4 {
        survive(seed, 120, 32 << 20, 1 << 20, None, 9);
    }
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_while_the_cleaner_works() {
    for seed in 11..=14 {
        let copied = survive(seed, 250, 12 << 20, 192 << 10, Some(4000 << 10), 31);
        assert!(copied > 1 << 20, "the cleaner copied {copied} bytes");
    }
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_between_many_checkpoints() {
    for seed in 21..=22 {
        survive(seed, 250, 8 << 20, 192 << 10, None, 23);
    }
}

#[test]
fn what_was_promised_survives_cuts_during_every_operation_of_the_recovery() {
    let case = CrashCase { seed: 31, ops: 200 };
    for (first_cut, zone_bytes) in [(90, 256 << 10), (150, 192 << 10), (260, 256 << 10), (333, 192 << 10)] {
        let (device, fs) = fresh(&small(10 << 20, zone_bytes));
        let mut recorder = Recorder::new(&fs).unwrap();
        device.cut_after(first_cut);
        run_until_error(&fs, case, &mut recorder).unwrap();
        drop(fs);
        // Each recovery is cut one operation later than the one before, on what that one left, until one is through.
        let mut device = Arc::new(device.reopen(first_cut).unwrap());
        for cut in 0.. {
            device.cut_after(cut);
            let mounted = Lfs::mount(device.clone(), options());
            if !device.is_cut() {
                device.cut_after(1 << 60);
                let fs = mounted.unwrap();
                recorder.check(&fs).unwrap();
                takes_new_writes(&fs).unwrap();
                assert!(cut > 3, "the recovery did nothing");
                fs.unmount().unwrap();
                break;
            }
            drop(mounted);
            device = Arc::new(device.reopen(cut).unwrap());
            assert!(check(&device).is_clean(), "cut {cut}: {:?}", check(&device).problems);
        }
        assert!(check(&device).is_clean());
    }
}

#[test]
fn a_cut_at_any_operation_of_a_close_leaves_what_was_promised() {
    for seed in 41..=46 {
        let case = CrashCase { seed, ops: 60 };
        for cut in 0.. {
            let (device, fs) = fresh(&small(10 << 20, 256 << 10));
            let mut recorder = Recorder::new(&fs).unwrap();
            run_until_error(&fs, case, &mut recorder).unwrap();
            device.cut_after(cut);
            let closed = fs.close();
            drop(fs);
            // The same cut can leave many devices.
            for look in 0..if campaign() { 60 } else { 12 } {
                let after = Arc::new(device.reopen(look).unwrap());
                assert!(check(&after).is_clean(), "cut {cut}: {:?}", check(&after).problems);
                recorder.check(&Lfs::mount(after, options()).unwrap()).unwrap();
            }
            if closed.is_ok() {
                assert!(cut > 5, "the close did nothing");
                break;
            }
        }
    }
}

#[test]
fn a_cut_within_the_first_frame_after_a_close_is_no_damage() {
    let (device, fs) = fresh(&small(10 << 20, 256 << 10));
    fs.unmount().unwrap();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    // One frame of several blocks, and no other command before it.
    let args = CreateArgs::new(NewNode::File, 0o644);
    for n in 0..200 {
        fs.create(Ino::ROOT, format!("file {n}").as_bytes(), &args).unwrap();
    }
    device.cut_after(0);
    assert!(fs.sync().is_err());
    drop(fs);
    let mut names = std::collections::BTreeSet::new();
    for look in 0..60 {
        let after = Arc::new(device.reopen(look).unwrap());
        assert!(check(&after).is_clean(), "look {look}: {:?}", check(&after).problems);
        let fs = Lfs::mount(after.clone(), options()).unwrap();
        names.insert(fs.statfs().unwrap().inodes);
        takes_new_writes(&fs).unwrap();
        fs.unmount().unwrap();
        assert!(check(&after).is_clean(), "look {look}: {:?}", check(&after).problems);
    }
    assert_eq!(names.len(), 2, "the frame is there or not: {names:?}");
}
