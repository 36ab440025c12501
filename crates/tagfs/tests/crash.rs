//! Power cuts at every operation of the medium under seeded workloads, on a file and on flash at both levels: what was promised is there,
//! renames are whole, the check finds nothing wrong, the volume takes new writes.
//!
//! By default a slice of the campaign runs: every k-th operation. `WEFT_CAMPAIGN=1` runs more than 2,000 cuts on each medium.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::flash::{LEVELS, Level};
use rig::{Contents, CutRig};
use weft_conformance::crash::{CrashCase, survive_cuts};

fn is_campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

/// Cuts a workload's run at every `every`-th operation of the medium. How many cuts there were, and how many erases of flash.
fn survive(empty: Contents, seed: u64, ops: usize, every: u64) -> (u64, u64) {
    let mut rig = CutRig::new(empty, seed ^ 0xabcd);
    match survive_cuts(&mut rig, CrashCase { seed, ops }, every) {
        Ok(report) => {
            println!("seed {seed}: {report:?}");
            (report.cuts, rig.erases)
        }
        Err(casualty) => panic!("{casualty}"),
    }
}

fn on_blocks(seed: u64, ops: usize, every: u64) {
    survive(Contents::formatted(16 << 20), seed, ops, if is_campaign() { 1 } else { every });
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_on_a_roomy_volume() {
    for seed in 1..=4 {
        on_blocks(seed, 120, 9);
    }
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_between_many_checkpoints() {
    for seed in 21..=22 {
        on_blocks(seed, 250, 23);
    }
}

#[test]
fn what_was_promised_survives_a_cut_where_each_attribute_has_a_node_of_its_own() {
    for seed in 31..=32 {
        let every = if is_campaign() { 1 } else { 13 };
        survive(Contents::formatted_fine(16 << 20), seed, 120, every);
    }
}

fn on_flash(level: Level) {
    let used = Contents::used_on(level);
    let (seeds, every) = if is_campaign() { (1..=8, 1) } else { (1..=2, 31) };
    let (mut cuts, mut erases) = (0, 0);
    for seed in seeds {
        let more = survive(used.clone(), seed, 120, every);
        (cuts, erases) = (cuts + more.0, erases + more.1);
    }
    println!("{level}: {cuts} cuts, {erases} erases in the workloads");
    assert!(cuts >= if is_campaign() { 2000 } else { 20 }, "{level}: {cuts} cuts");
    assert!(erases > 0, "{level}: nothing was erased");
}

#[test]
fn what_was_promised_survives_a_cut_of_the_flash_below_the_policy_level() {
    on_flash(LEVELS[0]);
}

#[test]
fn what_was_promised_survives_a_cut_of_the_flash_below_the_function_level() {
    on_flash(LEVELS[1]);
}
