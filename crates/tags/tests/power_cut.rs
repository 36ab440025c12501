//! Power cuts at every few writes of a mixed workload: what opens is a committed state, none before the last that was
//! said to be durable.

#![allow(clippy::unwrap_used)]

#[path = "support/committed.rs"]
mod committed;
#[path = "support/power_cut.rs"]
mod power_cut;

use committed::{Later, Log, State, created, judge, log, options, work};
use power_cut::PowerCutStore;
use std::sync::Arc;
use weft_tags::{Error, MemoryStore, Store};

/// Few pairs and many, in turns.
fn images() -> [(Vec<u8>, State); 2] {
    [0, 150].map(|pairs| {
        let medium = Arc::new(MemoryStore::new());
        let state = created(Box::new(medium.clone()), pairs);
        (medium.to_bytes(), state)
    })
}

fn run(medium: &Arc<PowerCutStore>, seed: u64, later: Later, log: &mut Log) -> Result<(), Error> {
    work(Box::new(medium.clone()), &|| medium.is_cut(), seed, later, log)
}

#[test]
fn after_a_power_cut_there_is_a_committed_state_and_none_before_the_last_durable_one() {
    let images = images();
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let (seeds, step) = if campaign { (200, 1) } else { (6, 3) };
    for seed in 0..seeds {
        let (image, first) = &images[seed as usize % 2];
        let medium = Arc::new(PowerCutStore::new(image.clone(), u64::MAX));
        let mut all = log(first);
        run(&medium, seed, Later::WithTheNext, &mut all).unwrap();
        let operations = medium.operations();
        assert!(operations > 60, "{operations}");
        judge(Box::new(medium), &all, "no cut");
        for cut_at in (seed % step..operations).step_by(step as usize) {
            let case = format!("seed {seed}, cut at {cut_at}");
            let medium = Arc::new(PowerCutStore::new(image.clone(), cut_at));
            let mut log = log(first);
            let failed = run(&medium, seed, Later::WithTheNext, &mut log);
            assert!(matches!(failed, Err(Error::Io { .. } | Error::Stopped { .. })), "{case}: {failed:?}");
            let left = medium.after_power_cut(seed << 32 | cut_at);
            if cut_at % 2 == 0 {
                judge(Box::new(left), &log, &case);
                continue;
            }
            // Power fails once more, during the recovery.
            let again = Arc::new(PowerCutStore::new(left.to_bytes(), cut_at / 2 % 8));
            drop(Store::open(Box::new(again.clone()), &options()));
            judge(Box::new(again.after_power_cut(cut_at)), &log, &format!("{case}, and in the recovery"));
        }
    }
}

#[test]
fn after_a_power_cut_no_commit_is_missing_that_became_durable_by_the_time_it_gave_itself() {
    let images = images();
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let (seeds, step) = if campaign { (200, 1) } else { (6, 5) };
    for seed in 100..100 + seeds {
        let (image, first) = &images[seed as usize % 2];
        let medium = Arc::new(PowerCutStore::new(image.clone(), u64::MAX));
        let mut all = log(first);
        run(&medium, seed, Later::Soon, &mut all).unwrap();
        let operations = medium.operations();
        judge(Box::new(medium), &all, "no cut");
        for cut_at in (seed % step..operations).step_by(step as usize) {
            let case = format!("seed {seed}, cut at {cut_at}");
            let medium = Arc::new(PowerCutStore::new(image.clone(), cut_at));
            let mut log = log(first);
            // The thread that syncs may have taken fewer operations this time, so that nothing failed.
            let done = run(&medium, seed, Later::Soon, &mut log);
            assert!(
                matches!(done, Ok(()) | Err(Error::Io { .. } | Error::Stopped { .. })),
                "{case}: {done:?}"
            );
            judge(Box::new(medium.after_power_cut(seed << 32 | cut_at)), &log, &case);
        }
    }
}
