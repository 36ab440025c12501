//! The model tests agree that the oracle is the oracle, and find and shrink what is wrong with a broken core.

// Some faults are for the properties alone.
#[allow(dead_code)]
mod broken;

use broken::{Broken, Fault};
use std::cell::RefCell;
use std::sync::Arc;
use weft_conformance::model::{Effort, Failure, search};
use weft_vfs::{FileSystem, MemFs};

/// Searches a core with a fault for a difference from the oracle.
fn search_with(fault: Fault, effort: Effort) -> Result<u64, Failure> {
    let volume = RefCell::new(Arc::new(MemFs::new()));
    let core = || -> Box<dyn FileSystem> { Box::new(Broken::new(volume.borrow().clone(), fault)) };
    let make = || {
        *volume.borrow_mut() = Arc::new(MemFs::new());
        core()
    };
    // A core in memory that is dropped and opened again is the same core, less what open references alone kept.
    let remount = |old: Box<dyn FileSystem>| {
        drop(old);
        volume.borrow().release_all();
        core()
    };
    search(&make, &remount, effort)
}

#[test]
fn the_oracle_does_what_the_oracle_does() {
    search_with(Fault::None, Effort { cases: 1000, ops_max: 200, seed: 1 }).unwrap();
}

#[test]
fn a_broken_core_is_found_and_the_sequence_shrinks_to_what_matters() {
    // The fault, and the fewest operations that show it.
    let faults = [
        (Fault::WriteThroughShort, 2),
        (Fault::TruncateKeepsTail, 4),
        (Fault::NoReplaceReplaces, 2),
        (Fault::ExchangeReplaces, 2),
        (Fault::OpenIsNotCounted, 3),
        (Fault::NamesAreCut, 1),
        (Fault::XattrCreateReplaces, 1),
        (Fault::SeekSkipsData, 3),
        (Fault::PunchIsTooLong, 3),
        (Fault::Offsets32Bits, 2),
        (Fault::NotEmptyIsExists, 3),
        (Fault::LinksAreNotCounted, 2),
        (Fault::ParentIsStale, 3),
    ];
    for (fault, fewest) in faults {
        let failure = search_with(fault, Effort::default()).expect_err("the core is broken");
        let ops = failure.ops.len();
        // No operation can be left out, but there may be a shorter sequence of other operations.
        assert!((fewest..=fewest + 2).contains(&ops), "{fault:?} shrinks to {ops} operations:\n{failure}");
    }
}
