//! The crash oracle accepts what a power cut may leave, and nothing else.

mod cut;

use cut::{CutRig, Lie};
use weft_conformance::crash::{Casualty, CrashCase, Recorder, Violation, run_until_error, survive_cuts};
use weft_vfs::{FileSystem, MemFs};

/// Workloads that an honest core is run through.
const SEEDS: u64 = 16;

fn survive(seed: u64, lie: Lie) -> Result<u64, Box<Casualty>> {
    survive_cuts(&mut CutRig::new(seed, lie), CrashCase { seed, ops: 40 }, 1).map(|report| report.cuts)
}

#[test]
fn an_honest_core_survives_a_cut_at_every_operation() {
    let mut cuts = 0;
    for seed in 0..SEEDS {
        cuts += survive(seed, Lie::None).unwrap_or_else(|casualty| panic!("{casualty}"));
    }
    assert!(cuts >= 1000, "{cuts} cuts");
}

/// The first violation that a cheating core is found by.
fn found(lie: Lie) -> Violation {
    let caught = (0..20).find_map(|seed| survive(seed, lie).err());
    caught.unwrap_or_else(|| panic!("{lie:?} is not noticed")).violation
}

#[test]
fn a_core_that_loses_promised_data_is_noticed() {
    assert!(matches!(found(Lie::LosesPromisedData), Violation::Content { .. }));
}

#[test]
fn a_core_that_loses_promised_names_is_noticed() {
    assert!(matches!(found(Lie::LosesPromisedNames), Violation::Names { .. }));
}

#[test]
fn a_core_that_reorders_metadata_is_noticed() {
    // When the names happen to be those of an earlier moment, the contents are not.
    assert!(matches!(found(Lie::ReordersNames), Violation::Names { .. } | Violation::Content { .. }));
}

#[test]
fn a_core_that_shows_zeros_for_an_append_is_noticed() {
    assert!(matches!(found(Lie::ZerosInAppend), Violation::Content { .. }));
}

#[test]
fn a_core_that_tears_a_block_is_noticed() {
    assert!(matches!(found(Lie::TearsABlock), Violation::Content { .. }));
}

#[test]
fn a_core_that_shows_foreign_bytes_is_noticed() {
    assert!(matches!(found(Lie::ForeignBytes), Violation::Content { .. }));
}

#[test]
fn a_core_that_undoes_a_truncate_is_noticed() {
    assert!(matches!(found(Lie::UndoesATruncate), Violation::Content { .. }));
}

#[test]
fn a_core_that_leaks_inodes_is_noticed() {
    assert!(matches!(found(Lie::LeaksInodes), Violation::Unsound(_)));
}

#[test]
fn equal_seeds_do_equal_things() {
    let trace = |seed| {
        let fs = MemFs::new();
        let mut recorder = Recorder::new(&fs).unwrap();
        run_until_error(&fs, CrashCase { seed, ops: 100 }, &mut recorder).unwrap();
        recorder.check(&fs).unwrap();
        (recorder.len(), recorder.promises(), fs.statfs().unwrap())
    };
    assert_eq!(trace(3), trace(3));
    assert_ne!(trace(3), trace(4));
}
