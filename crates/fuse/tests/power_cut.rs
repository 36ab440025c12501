//! Power cuts at every k-th command of the device below a mount, while processes write, sync, rename, cut, remove and map files there:
//! what a call had promised is there, a rename is whole, and no file holds what nobody wrote there.
//!
//! By default a slice runs. `WEFT_CUTS=2000` runs on until there were so many cuts of each kind of mount (`suites/cut-mount.sh`);
//! `WEFT_SEED` begins elsewhere.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod cut;

use cut::device::Lie;
use cut::{Case, Tally, can_mount, load, run};
use parking_lot::Mutex;
use std::time::Instant;

/// Cuts of a slice.
const SLICE: u64 = 250;

/// One mount at a time: they share two processors with their judges.
static ALONE: Mutex<()> = Mutex::new(());

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn case(seed: u64, write_back: bool) -> Case {
    // Now and then so full a volume that the cleaner works.
    let is_full = seed % 4 == 2;
    let operations = if is_full { 400 } else { 120 };
    Case { seed, write_back, every: 2 + seed % 4, processes: 3, operations, is_full, lie: Lie::None }
}

fn survive(write_back: bool) {
    if !can_mount() {
        return;
    }
    let _alone = ALONE.lock();
    let (wanted, first) = (number("WEFT_CUTS").unwrap_or(SLICE), number("WEFT_SEED").unwrap_or(1));
    let begun = Instant::now();
    let mut all = Tally::default();
    for seed in first.. {
        let tally = run(&case(seed, write_back)).unwrap_or_else(|told| panic!("{told}"));
        assert!(tally.cuts > 0 && tally.promises > 0, "{tally:?}");
        all.cuts += tally.cuts;
        all.promises += tally.promises;
        all.commands += tally.commands;
        all.copied_bytes += tally.copied_bytes;
        if all.cuts >= wanted {
            break;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("writeback {write_back}: {all:?} in {seconds:.0} s");
}

#[test]
fn what_was_promised_through_a_mount_survives_a_cut() {
    survive(false);
}

#[test]
fn what_was_promised_through_a_mount_with_write_back_survives_a_cut() {
    survive(true);
}

#[test]
fn a_device_that_skips_flushes_is_noticed() {
    if !can_mount() {
        return;
    }
    let _alone = ALONE.lock();
    for lie in [Lie::SkipsFlushes, Lie::SkipsSomeFlushes] {
        for write_back in [false, true] {
            let found = (1..=4).find_map(|seed| run(&Case { lie, ..case(seed, write_back) }).err());
            assert!(found.is_some(), "{lie:?}, writeback {write_back}: nobody notices");
        }
    }
}

/// No test: a process of the others'.
#[test]
#[ignore = "a part of the other tests"]
fn load_of_a_cut() {
    if let Ok(what) = std::env::var(load::WHAT) {
        load::work(&what);
    }
}
