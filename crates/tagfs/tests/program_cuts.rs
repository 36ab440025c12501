//! Power cuts under programs of file operations, among plain calls that leave blocks buffered: what is there afterwards was there in memory
//! at one moment, with every program of the policy `all` whole or absent; the check finds nothing wrong, the volume takes new writes.
//!
//! By default a slice of the campaign runs: every k-th operation of the medium. `WEFT_CAMPAIGN=1` cuts at all operations.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::{Contents, CutRig};
use weft_conformance::crash::programs::{Judge, Script};
use weft_conformance::crash::{Rig, takes_new_writes};
use weft_tagfs::TagFs;
use weft_vfs::change::{Made, Refused};
use weft_vfs::{Change, FileSystem};

/// Programs of a script.
const PROGRAMS: usize = 40;

fn whole(fs: &dyn FileSystem, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
    fs.commit(changes, durable)
}

/// Cuts a script's run at every `every`-th operation. How many cuts there were, and how much that had happened was lost over all of them.
fn cut(rig: &mut CutRig, seed: u64, every: u64) -> (u64, usize) {
    let script = Script::new(seed, PROGRAMS);
    let run = |fs: &TagFs| {
        let ran = script.run(0, fs, &whole, &mut |_| Ok(()));
        ran.unwrap_or_else(|differs| panic!("seed {seed}: {differs}"))
    };
    let fs = rig.start_volume(u64::MAX);
    let judge = Judge::new(&script, &fs).unwrap();
    let progress = run(&fs);
    assert_eq!(progress.acts, script.acts.len(), "seed {seed}: the script ends early");
    judge.check_open(&fs, progress).unwrap();
    let operations = rig.operations();
    drop(fs);
    let (mut at, mut cuts, mut lost) = (seed % every, 0, 0);
    while at < operations {
        let fs = rig.start_volume(at);
        let progress = run(&fs);
        drop(fs);
        let medium = rig.lost();
        assert!(medium.is_cut(), "seed {seed}, cut {at} of {operations}: the script ends before it");
        for look in 0..2 {
            let told = |what: &dyn std::fmt::Display| {
                format!("seed {seed}, cut {at} of {operations}, look {look}, act {}: {what}", progress.acts)
            };
            let fs =
                rig.look(&medium, seed << 32 | at << 4 | look).unwrap_or_else(|e| panic!("{}", told(&e)));
            let found = judge.check(&fs, progress).unwrap_or_else(|e| panic!("{}", told(&e)));
            takes_new_writes(&fs).unwrap_or_else(|e| panic!("{}", told(&e)));
            lost += found.happened.saturating_sub(found.last);
        }
        (at, cuts) = (at + every, cuts + 1);
    }
    (cuts, lost)
}

#[test]
fn a_program_is_there_whole_or_not_at_all_after_a_cut() {
    let is_campaign = std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0");
    let (seeds, every) = if is_campaign { (1..=40, 1) } else { (1..=4, 3) };
    let mut rig = CutRig::new(Contents::formatted(16 << 20), 7);
    let (mut cuts, mut lost) = (0, 0);
    for seed in seeds {
        let more = cut(&mut rig, seed, every);
        (cuts, lost) = (cuts + more.0, lost + more.1);
    }
    println!("{cuts} cuts, {lost} events lost that had happened");
    assert!(lost > 0, "the cuts cost nothing");
}
