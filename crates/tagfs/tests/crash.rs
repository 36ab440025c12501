//! Power cuts at every operation of the medium under seeded workloads: what was promised is there, the check finds nothing
//! wrong, the volume takes new writes.
//!
//! By default a slice of the campaign runs: every k-th operation. `WEFT_CAMPAIGN=1` runs it whole.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::CutRig;
use weft_conformance::crash::{CrashCase, survive_cuts};

fn survive(seed: u64, ops: usize, capacity_bytes: u64, every: u64) {
    let mut rig = CutRig::new(capacity_bytes, seed ^ 0xabcd);
    let is_campaign = std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0");
    let every = if is_campaign { 1 } else { every };
    match survive_cuts(&mut rig, CrashCase { seed, ops }, every) {
        Ok(report) => println!("seed {seed}: {report:?}"),
        Err(casualty) => panic!("{casualty}"),
    }
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_on_a_roomy_volume() {
    for seed in 1..=4 {
        survive(seed, 120, 16 << 20, 9);
    }
}

#[test]
fn what_was_promised_survives_a_cut_at_any_operation_between_many_checkpoints() {
    for seed in 21..=22 {
        survive(seed, 250, 16 << 20, 23);
    }
}
