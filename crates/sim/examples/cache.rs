//! Eviction policies of a tag store's cache under the requests of a web server, on modelled devices: hit ratios by class, and modelled times.
//!
//! `cargo run --release -p weft-sim --example cache [REQUESTS [SEED]]`

// A table on the terminal is what this program is for.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::Arc;
use weft_core::Nanos;
use weft_sim::cache::{Cache, DeviceModel, ExactLru, WebSetup, WebTrace, replay};
use weft_tags::{
    ClassPriorities, ClassShare, DataClass, EvictionPolicy, PAGE_BYTES, PageClass, SecondChance, Sieve,
};

const CACHE_BYTES: u64 = 256 << 20;

fn nodes(data: DataClass) -> PageClass {
    PageClass { data, edges: false }
}

/// Metadata before small files before large ones, as in the papers.
fn priorities(least_percent: u8) -> ClassPriorities {
    let mut classes = ClassPriorities::default();
    let share = |priority| ClassShare { priority, ..ClassShare::default() };
    classes.set(nodes(DataClass::Metadata), share(2));
    classes.set(nodes(DataClass::Small), share(1));
    classes.set(nodes(DataClass::Immutable), ClassShare { least_percent, ..share(0) });
    classes
}

fn sieve(weight: u8) -> Sieve {
    let mut sieve = Sieve::default();
    sieve.set(nodes(DataClass::Metadata), weight);
    sieve.set(nodes(DataClass::Small), weight);
    sieve
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let requests = args.next().map_or(Ok(600_000), |requests| requests.parse())?;
    let seed = args.next().map_or(Ok(1), |seed| seed.parse())?;
    let policies: [(&str, Arc<dyn EvictionPolicy>); 9] = [
        ("LRU, exact", Arc::new(ExactLru(SecondChance))),
        ("clock (the store's default)", Arc::new(SecondChance)),
        ("priority LRU, exact", Arc::new(ExactLru(priorities(0)))),
        ("priority clock", Arc::new(priorities(0))),
        ("priority clock, 20 % for large files", Arc::new(priorities(20))),
        ("SIEVE", Arc::new(sieve(1))),
        ("SIEVE, small files and metadata weigh 2", Arc::new(sieve(2))),
        ("SIEVE, they weigh 4", Arc::new(sieve(4))),
        ("SIEVE, they weigh 16", Arc::new(sieve(16))),
    ];
    println!(
        "| policy | metadata | small | large | all | of the cache | disk, s | SSD, s | SSD within 0.1 ms | SSD p99, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, policy) in policies {
        let run = |device| {
            let setup = WebSetup { unique_bytes: 4 * CACHE_BYTES, theta: 0.9, seed };
            let mut cache = Cache::new(policy.clone(), (CACHE_BYTES / PAGE_BYTES as u64) as u32);
            replay(&mut WebTrace::new(setup), requests, &mut cache, device)
        };
        let (disk, ssd) = (run(DeviceModel::DISK), run(DeviceModel::SSD));
        let percent = |part: Option<f64>| part.map_or("-".into(), |part| format!("{:.1} %", part * 100.0));
        let seconds = |time: Nanos| format!("{:.0}", time.0 as f64 / 1e9);
        println!(
            "| {name} | {} | {} | {} | {} | {:.0} % | {} | {} | {:.1} % | {:.2} |",
            percent(ssd.metadata),
            percent(ssd.small),
            percent(ssd.large),
            percent(ssd.all),
            ssd.preferred * 100.0,
            seconds(disk.elapsed),
            seconds(ssd.elapsed),
            ssd.within(Nanos(100_000)) * 100.0,
            ssd.quantile(0.99).0 as f64 / 1e6,
        );
    }
    Ok(())
}
