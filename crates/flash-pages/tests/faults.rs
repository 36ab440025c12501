//! Flash and hosts that fail under a store: what was said to be durable is there when the store is opened again, and flash that becomes bad is
//! replaced without the store's knowing.

#![allow(clippy::unwrap_used)]

#[path = "../../tags/tests/support/committed.rs"]
mod committed;
#[path = "../../flash/tests/support/mod.rs"]
mod flash;
mod support;

use committed::{Later, created, judge, log, work};
use flash::Random;
use flash::flaky::{Flaky, HostCall, Trouble};
use std::sync::Arc;
use support::{LEVELS, campaign, device, geometry, streams};
use weft_tags::{Error, Store};

/// Blocks of a LUN that the monitor's log may lie on: those are not wounded.
const SPARED: u32 = 6;

#[test]
fn whatever_call_of_the_host_fails_the_store_that_is_opened_again_has_all_that_was_durable() {
    let step = if campaign() { 7 } else { 97 };
    for level in LEVELS {
        let mut stopped = 0;
        for (number, call) in
            [HostCall::Read, HostCall::Program, HostCall::Erase, HostCall::Sync].into_iter().enumerate()
        {
            let seed = number as u64;
            let begun = device(geometry(2, 1, 28, 16));
            let first = created(level.create_on(begun.clone(), streams(seed)).boxed(), 150);
            for spared in (0..2_000).step_by(step) {
                let flaky = Flaky::new(begun.fork().unwrap(), 0, seed);
                let medium = level.open_on(flaky.clone(), streams(seed)).unwrap();
                flaky.trouble(Trouble { call: Some(call), spared, fails: 1 });
                let mut log = log(&first);
                let case = format!("{level}, {call:?} {spared}");
                match work(medium.boxed(), &|| false, seed, Later::WithTheNext, &mut log) {
                    Ok(()) => {}
                    Err(Error::Io { .. } | Error::Stopped { .. }) => stopped += 1,
                    Err(other) => panic!("{case}: {other}"),
                }
                flaky.calm();
                // The medium goes on after an error of the host; whoever opens the store again gets a committed state.
                judge(medium.boxed(), &log, &case);
                medium.verify();
                drop(medium);
                let medium = level.open_on(flaky.clone(), streams(seed)).unwrap();
                judge(medium.boxed(), &log, &format!("{case}, opened"));
            }
        }
        assert!(stopped > 10, "{level}: {stopped}");
    }
}

#[test]
fn blocks_that_fail_are_replaced_and_the_store_goes_on() {
    let seeds = if campaign() { 100 } else { 6 };
    for level in LEVELS {
        let (mut failed, mut full) = (0, 0);
        for seed in 0..seeds {
            let mut random = Random(seed + 1);
            let flaky = Flaky::new(Arc::into_inner(device(geometry(2, 1, 44, 16))).unwrap(), 20, seed);
            let first = created(level.create_on(flaky.clone(), streams(seed)).boxed(), 0);
            // The LUNs have few spares, so later ones cost room.
            (0..random.below(30)).for_each(|_| flaky.wound(&mut random, SPARED));
            let mut log = log(&first);
            let medium = level.open_on(flaky.clone(), streams(seed)).unwrap();
            let case = format!("{level}, seed {seed}");
            match work(medium.boxed(), &|| false, seed, Later::WithTheNext, &mut log) {
                Ok(()) => {}
                Err(Error::Full { .. }) => full += 1,
                // No room below for what the store has room for: too many blocks are bad.
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::StorageFull => {
                    full += 1
                }
                Err(other) => panic!("{case}: {other}"),
            }
            medium.verify();
            drop(medium);
            let counters = flaky.device.counters();
            failed += counters.program_failures + counters.erase_failures;
            let medium = level.open_on(flaky.clone(), streams(seed)).unwrap();
            if Store::open(medium.boxed(), &committed::options()).is_ok() {
                judge(medium.boxed(), &log, &case);
            }
        }
        assert!(failed > 3 * seeds && full < seeds / 2, "{level}: {failed} failures, {full} of {seeds} full");
    }
}
