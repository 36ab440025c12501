//! Eviction policies of a tag store's cache under the requests of a web server, on modelled devices: hit ratios by class, and modelled times.
//!
//! `cargo run --release -p weft-sim --example cache [REQUESTS [SEED [PICTURE.svg]]]`; the picture has the distribution of request times on the
//! modelled disk.

// A table on the terminal is what this program is for.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::Arc;
use weft_core::Nanos;
use weft_sim::cache::{Cache, DeviceModel, ExactLru, Replay, S3Fifo, WebSetup, WebTrace, replay};
use weft_tags::{
    ClassPriorities, ClassShare, DataClass, EvictionPolicy, PAGE_BYTES, PageClass, PagePart, SecondChance,
    Sieve,
};

const CACHE_BYTES: u64 = 256 << 20;

fn nodes(data: DataClass) -> PageClass {
    PageClass { data, part: PagePart::Nodes }
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

/// What the picture shows, with colours that differ for all eyes.
const SHOWN: [(&str, &str); 4] = [
    ("LRU, exact", "#999999"),
    ("S3-FIFO", "#0072b2"),
    ("priority LRU, exact", "#e69f00"),
    ("SIEVE, they weigh 16", "#009e73"),
];
/// The picture: width, height, and room for the axes.
const PICTURE: (f64, f64) = (720.0, 400.0);
const ROOM: (f64, f64) = (60.0, 50.0);
/// Times that the picture has, in decades of nanoseconds: from 1 us to 1 s.
const DECADES: (f64, f64) = (3.0, 9.0);

/// The part of requests that were over within a time, for times on a logarithmic axis.
fn picture(replays: &[(&str, Replay)]) -> String {
    let (width, height) = (PICTURE.0 - 2.0 * ROOM.0, PICTURE.1 - 2.0 * ROOM.1);
    let x = |decade: f64| ROOM.0 + (decade - DECADES.0) / (DECADES.1 - DECADES.0) * width;
    let y = |part: f64| ROOM.1 + (1.0 - part) * height;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        PICTURE.0, PICTURE.1
    );
    for (decade, label) in [
        (3.0, "1 us"),
        (4.0, "10 us"),
        (5.0, "0.1 ms"),
        (6.0, "1 ms"),
        (7.0, "10 ms"),
        (8.0, "0.1 s"),
        (9.0, "1 s"),
    ] {
        let (at, foot) = (x(decade), PICTURE.1 - ROOM.1);
        svg += &format!(
            "<path d=\"M{at:.1} {}V{foot}\" stroke=\"#dddddd\"/><text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\n",
            ROOM.1,
            foot + 18.0
        );
    }
    for percent in [0, 20, 40, 60, 80, 100] {
        let at = y(f64::from(percent) / 100.0);
        svg += &format!(
            "<path d=\"M{} {at:.1}H{}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>\n",
            ROOM.0,
            PICTURE.0 - ROOM.0,
            ROOM.0 - 6.0,
            at + 4.0
        );
    }
    for (at, (name, color)) in SHOWN.iter().enumerate() {
        let Some((_, found)) = replays.iter().find(|(known, _)| known == name) else { continue };
        let points = (0..=200).map(|step| DECADES.0 + (DECADES.1 - DECADES.0) * f64::from(step) / 200.0);
        let path: Vec<String> = points
            .map(|decade| {
                format!("{:.1} {:.1}", x(decade), y(found.within(Nanos(10f64.powf(decade) as u64))))
            })
            .collect();
        let line = ROOM.1 + 20.0 * (at as f64 + 1.0);
        svg += &format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>\n\
             <path d=\"M{} {line}h24\" stroke=\"{color}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\">{name}: {:.0} s</text>\n",
            path.join("L"),
            ROOM.0 + 12.0,
            ROOM.0 + 42.0,
            line + 4.0,
            found.elapsed.0 as f64 / 1e9
        );
    }
    svg += &format!(
        "<text x=\"{}\" y=\"24\" text-anchor=\"middle\">part of requests that are over within a time: modelled disk</text>\n</svg>\n",
        PICTURE.0 / 2.0
    );
    svg
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let requests = args.next().map_or(Ok(600_000), |requests| requests.parse())?;
    let seed = args.next().map_or(Ok(1), |seed| seed.parse())?;
    let file = args.next();
    let policies: [(&str, Arc<dyn EvictionPolicy>); 11] = [
        ("LRU, exact", Arc::new(ExactLru(SecondChance))),
        ("clock (the store's default)", Arc::new(SecondChance)),
        ("S3-FIFO", Arc::new(S3Fifo(SecondChance))),
        ("priority LRU, exact", Arc::new(ExactLru(priorities(0)))),
        ("priority clock", Arc::new(priorities(0))),
        ("priority clock, 20 % for large files", Arc::new(priorities(20))),
        ("SIEVE", Arc::new(sieve(1))),
        ("SIEVE, small files and metadata weigh 2", Arc::new(sieve(2))),
        ("SIEVE, they weigh 4", Arc::new(sieve(4))),
        ("SIEVE, they weigh 16", Arc::new(sieve(16))),
        ("SIEVE, they weigh 64", Arc::new(sieve(64))),
    ];
    println!(
        "| policy | metadata | small | large | all | of the cache | disk, s | SSD, s | SSD within 0.1 ms | SSD p99, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut disks = Vec::new();
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
        disks.push((name, disk));
    }
    if let Some(file) = file {
        std::fs::write(file, picture(&disks))?;
    }
    Ok(())
}
