//! Power cuts at every device operation of seeded workloads: what was promised is there, the check finds nothing
//! wrong, the volume takes new writes.
//!
//! By default a slice of the campaign runs: every k-th operation. `WEFT_CAMPAIGN=1` runs it whole.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::{CutRig, small};
use weft_vfs::conformance::crash::{CrashCase, survive_cuts};

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

fn survive(seed: u64, ops: usize, total_bytes: u64, zone_bytes: u64, every: u64) {
    let mut rig = CutRig::new(small(total_bytes, zone_bytes), seed ^ 0xabcd);
    let every = if campaign() { 1 } else { every };
    match survive_cuts(&mut rig, CrashCase { seed, ops }, every) {
        Ok(report) => println!("seed {seed}: {report:?}"),
        Err(casualty) => panic!("{casualty}"),
    }
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_on_a_roomy_volume() {
    for seed in 1..=4 {
        survive(seed, 120, 32 << 20, 1 << 20, 9);
    }
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_while_the_cleaner_works() {
    for seed in 11..=14 {
        survive(seed, 250, 10 << 20, 256 << 10, 31);
    }
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_between_many_checkpoints() {
    for seed in 21..=22 {
        survive(seed, 250, 8 << 20, 192 << 10, 23);
    }
}
