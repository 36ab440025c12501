//! Power cuts of the flash, while a store works on it: what opens is a committed state, none before the last that was said to be durable.
//!
//! The workload and the judge are those of the stores on files (`crates/tags/tests/power_cut.rs`). Here power goes at programs and erases of
//! the flash, those of its cleaner and of the levels' logs included; a page or an erase may be interrupted half-way. `WEFT_CAMPAIGN=1` cuts more than
//! 2,000 times at each level.

#![allow(clippy::unwrap_used)]

#[path = "../../tags/tests/support/committed.rs"]
mod committed;
mod support;

use committed::{Later, created, judge, log, options, work};
use std::sync::Arc;
use support::{LEVELS, Level, campaign, device, geometry, streams};
use weft_device::nand::OpenChannel;
use weft_flash_pages::StreamChoice;
use weft_tags::{Error, Store};

/// Programs and erases so far.
fn operations(device: &OpenChannel) -> u64 {
    let counters = device.counters();
    counters.pages_programmed + counters.blocks_erased
}

fn open_and_judge(
    level: Level,
    device: &Arc<OpenChannel>,
    streams: StreamChoice,
    log: &committed::Log,
    case: &str,
) {
    let medium = level.open_on(device.clone(), streams).unwrap_or_else(|error| panic!("{case}: {error}"));
    judge(medium.boxed(), log, case);
    medium.verify();
}

fn cut_everywhere(level: Level, seeds: u64, step: u64) -> (u64, u64) {
    let (mut cuts, mut moved) = (0, 0);
    for seed in 0..seeds {
        let streams = streams(seed / 2);
        let begin = device(geometry(2, 1, 28, 16));
        let first =
            created(level.create_on(begin.clone(), streams).boxed(), if seed % 2 == 0 { 0 } else { 150 });
        let fork = || Arc::new(begin.fork().unwrap());
        let run = |device: &Arc<OpenChannel>, cut: Option<u64>| {
            let medium = level.open_on(device.clone(), streams).unwrap();
            let mut log = log(&first);
            let before = operations(device);
            if let Some(cut) = cut {
                device.cut_after(cut, seed << 32 | cut);
            }
            let done = work(medium.boxed(), &|| false, seed, Later::WithTheNext, &mut log);
            (done, log, operations(device) - before, medium.written_and_moved().1)
        };
        let whole = fork();
        let (done, log, operations, copied) = run(&whole, None);
        done.unwrap();
        assert!(operations > 300, "{operations}");
        moved += copied;
        open_and_judge(level, &whole, streams, &log, &format!("{level}, seed {seed}, no cut"));
        for cut in (seed % step..operations).step_by(step as usize) {
            let case = format!("{level}, seed {seed}, cut at {cut}");
            let device = fork();
            let (done, log, ..) = run(&device, Some(cut));
            assert!(matches!(done, Err(Error::Io { .. } | Error::Stopped { .. })), "{case}: {done:?}");
            device.power_on();
            cuts += 1;
            if cut % 2 == 0 {
                // Power fails once more, while the level and the store recover.
                device.cut_after(cut / 2 % 24, cut);
                if let Ok(medium) = level.open_on(device.clone(), streams) {
                    drop(Store::open(medium.boxed(), &options()));
                }
                device.power_on();
                cuts += 1;
            }
            open_and_judge(level, &device, streams, &log, &case);
        }
    }
    (cuts, moved)
}

#[test]
fn after_a_power_cut_of_the_flash_there_is_a_committed_state_and_none_before_the_last_durable_one() {
    for level in LEVELS {
        let (seeds, step) = if campaign() { (16, 5) } else { (4, 61) };
        let (cuts, moved) = cut_everywhere(level, seeds, step);
        assert!(cuts > if campaign() { 2000 } else { 20 }, "{level}: {cuts} cuts");
        assert!(moved > 0, "{level}: nothing was cleaned");
        eprintln!("{level}: {cuts} cuts, {moved} pages moved in the runs without");
    }
}
