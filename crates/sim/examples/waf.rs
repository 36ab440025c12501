//! Write amplification of each mode on the zone model, as a table.
//!
//! ```text
//! cargo run --release -p weft-sim --example waf -- [--policy FILE] [--process NAME] [RECORDING...]
//! ```
//!
//! Without recordings it generates leveled-RocksDB workloads. A recording is what `Workload::parse` reads; `--process`
//! is the program that it was made of (`db_bench` unless told). `--policy` stands in for the shipped policies in mode
//! `rules`.

// A table on the terminal is what this program is for.
#![allow(clippy::print_stdout)]

use std::error::Error;
use weft_core::units::format_size;
use weft_placement::recording::Workload;
use weft_placement::{Engine, Mode, Policy, ZoneResolver};
use weft_sim::files::lsm::{LsmShape, leveled};
use weft_sim::files::model::{Volume, simulate};

fn main() -> Result<(), Box<dyn Error>> {
    let mut policy_file = None;
    let mut process = "db_bench".to_string();
    let mut recordings = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--policy" => policy_file = Some(args.next().ok_or("--policy needs a file")?),
            "--process" => process = args.next().ok_or("--process needs a name")?,
            _ => recordings.push(arg),
        }
    }
    let policy_text = policy_file.as_ref().map(std::fs::read_to_string).transpose()?;
    let policy = || -> Result<Option<Policy>, Box<dyn Error>> {
        let Some(text) = &policy_text else { return Ok(None) };
        Ok(Some(Policy::parse(text, policy_file.as_deref().unwrap_or(""))?))
    };

    println!(
        "| workload | live peak | written | zone | utilisation | zones | off | random | suffix | rules |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let table = |name: &str, workload: &Workload| -> Result<(), Box<dyn Error>> {
        for zone_bytes in [4u64 << 20, 8 << 20] {
            for utilisation in [0.8, 0.9] {
                let volume = Volume::for_utilisation(workload, zone_bytes, utilisation);
                let mut cells = Vec::new();
                for mode in Mode::ALL {
                    let engine = Engine::new(mode, policy()?, 1)?;
                    let outcome = simulate(workload, volume, &engine, &mut ZoneResolver::new());
                    cells.push(if outcome.full { "full".into() } else { format!("{:.3}", outcome.waf()) });
                }
                println!(
                    "| {name} | {} | {} | {} | {:.0} % | {} | {} |",
                    format_size(workload.live_peak_bytes()),
                    format_size(workload.written_bytes()),
                    format_size(zone_bytes),
                    utilisation * 100.0,
                    volume.zones,
                    cells.join(" | ")
                );
            }
        }
        Ok(())
    };
    for file in &recordings {
        table(file, &Workload::parse(&std::fs::read_to_string(file)?, &process)?)?;
    }
    if recordings.is_empty() {
        for compactions in [1, 3] {
            let name = format!("generated, {compactions} compacting");
            table(&name, &leveled(LsmShape { compactions, ..LsmShape::default() }))?;
        }
    }
    Ok(())
}
