//! Device processors in virtual time: the experiments of `weft_sim::cpus`, or a trace, as tables or as JSON.
//!
//! ```text
//! cargo run --release -p weft-sim --example cpus -- [--json] [beside|change|function|offload]...
//! cargo run --release -p weft-sim --example cpus -- [--json] --trace FILE|NAME [--cpus N] [--slowdown PERCENT] [--ms N]
//! ```
//!
//! Without the name of an experiment it runs all. A trace, in a file or one of those that come
//! with weft, runs under each scheduler; `docs/how-to/simulate-device-cpus.md` has its form.

// A table on the terminal is what this program is for.
#![allow(clippy::print_stdout)]

use serde::Serialize;
use std::error::Error;
use weft_core::units::{format_nanos, format_size};
use weft_sim::cpus::experiments::{
    Compound, Offload, Place, cost_changes, long_functions, loses_from, offloads, tenants_beside,
};
use weft_sim::cpus::{MEASURED, Machine, Outcome, Scheduling, Setup, Trace, run};

const EXPERIMENTS: [&str; 4] = ["beside", "change", "function", "offload"];

/// What the command line says.
struct Options {
    json: bool,
    experiments: Vec<String>,
    trace: Option<String>,
    machine: Machine,
    duration_ns: u64,
}

impl Options {
    fn parse() -> Result<Options, Box<dyn Error>> {
        let mut options = Options {
            json: false,
            experiments: Vec::new(),
            trace: None,
            machine: Machine::paper(4, 200),
            duration_ns: 1_000_000_000,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--json" => options.json = true,
                "--trace" => options.trace = Some(value()?),
                "--cpus" => options.machine.device_cpus = value()?.parse()?,
                "--slowdown" => options.machine.slowdown_percent = value()?.parse()?,
                "--ms" => options.duration_ns = value()?.parse::<u64>()?.saturating_mul(1_000_000),
                name if EXPERIMENTS.contains(&name) => options.experiments.push(arg),
                other => return Err(format!("'{other}' is no option and none of {EXPERIMENTS:?}").into()),
            }
        }
        if options.experiments.is_empty() {
            options.experiments = EXPERIMENTS.map(String::from).to_vec();
        }
        Ok(options)
    }
}

/// Text with a bar between cells, as documents have tables.
fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

fn heading(title: &str, columns: &[&str]) {
    println!("\n{title}\n");
    row(&columns.iter().map(ToString::to_string).collect::<Vec<_>>());
    println!("|{}", "---|".repeat(columns.len()));
}

fn print_json(name: &str, rows: &impl Serialize) -> Result<(), Box<dyn Error>> {
    println!(
        "{}",
        serde_json::json!({ "version": 1, "experiment": name, "rows": serde_json::to_value(rows)? })
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    if let Some(path) = &options.trace {
        return trace(path, &options);
    }
    for name in &options.experiments {
        match name.as_str() {
            "beside" => show_beside(options.json)?,
            "change" => show_change(options.json)?,
            "function" => show_function(options.json)?,
            _ => show_offload(options.json)?,
        }
    }
    Ok(())
}

fn show_beside(json: bool) -> Result<(), Box<dyn Error>> {
    let rows = tenants_beside()?;
    if json {
        return print_json("beside", &rows);
    }
    let columns = [
        "scheduler",
        "CPUs",
        "check points",
        "writes under way",
        "Jain",
        "writer's share",
        "p99 alone",
        "p99 beside",
    ];
    heading(
        "Compressions of 1 ms (8 under way) beside writes of 4 KiB (5 us)",
        &[&columns[..], &["ratio", "writes/s", "compressions/s"]].concat(),
    );
    for r in rows {
        row(&[
            r.scheduling.name().into(),
            r.device_cpus.to_string(),
            if r.preemptible { "yes" } else { "no" }.into(),
            r.outstanding.to_string(),
            format!("{:.3}", r.jain),
            format!("{:.3}", r.light_share),
            format_nanos(r.alone_p99_ns),
            format_nanos(r.beside_p99_ns),
            format!("{:.2}", r.p99_ratio),
            format!("{:.0}", r.light_per_second),
            format!("{:.0}", r.heavy_per_second),
        ]);
    }
    Ok(())
}

fn show_change(json: bool) -> Result<(), Box<dyn Error>> {
    let rows = cost_changes()?;
    if json {
        return print_json("change", &rows);
    }
    let columns = ["scheduler", "share before", "share after", "Jain before", "Jain after"];
    heading("Two tenants with operations of 5 us; those of one then take 50 us", &columns);
    for r in rows {
        let figures = [r.share_before, r.share_after, r.jain_before, r.jain_after];
        let cells = figures.iter().map(|figure| format!("{figure:.3}"));
        row(&[r.scheduling.name().to_string()].into_iter().chain(cells).collect::<Vec<_>>());
    }
    Ok(())
}

fn show_function(json: bool) -> Result<(), Box<dyn Error>> {
    let rows = long_functions()?;
    if json {
        return print_json("function", &rows);
    }
    let columns = [
        "scheduler",
        "CPUs",
        "check points",
        "p99 alone",
        "p99 beside",
        "max beside",
        "writes/s",
        "functions/s",
    ];
    heading("Functions of 50 ms (2 under way) beside three writers of 4 KiB (8 under way each)", &columns);
    for r in rows {
        row(&[
            r.scheduling.name().into(),
            r.device_cpus.to_string(),
            if r.preemptible { "yes" } else { "no" }.into(),
            format_nanos(r.alone_p99_ns),
            format_nanos(r.beside_p99_ns),
            format_nanos(r.beside_max_ns),
            format!("{:.0}", r.writes_per_second),
            format!("{:.1}", r.functions_per_second),
        ]);
    }
    Ok(())
}

/// The point at which one compound begins to lose.
#[derive(Serialize)]
struct Loses {
    compound: Compound,
    bytes: u64,
    outstanding: u32,
    over_host_computes_percent: Option<u32>,
    over_host_only_percent: Option<u32>,
}

fn loses() -> Result<Vec<Loses>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for compound in [Compound::Modify, Compound::Compress] {
        for outstanding in [1, 16] {
            for costs in MEASURED {
                rows.push(Loses {
                    compound,
                    bytes: costs.bytes,
                    outstanding,
                    over_host_computes_percent: loses_from(
                        compound,
                        Place::HostComputes,
                        costs,
                        outstanding,
                    )?,
                    over_host_only_percent: loses_from(compound, Place::HostOnly, costs, outstanding)?,
                });
            }
        }
    }
    Ok(rows)
}

fn called(compound: Compound) -> &'static str {
    match compound {
        Compound::Modify => "read, patch, CRC32C, write",
        Compound::Compress => "open, lz4, CRC32C, write",
    }
}

fn show_offload(json: bool) -> Result<(), Box<dyn Error>> {
    let (rows, loses) = (offloads()?, loses()?);
    if json {
        print_json("offload", &rows)?;
        return print_json("offload-loses-from", &loses);
    }
    let columns = ["four operations", "under way", "size", "slowdown 1", "2", "2.5", "4"];
    heading(
        "One compound on 4 device CPUs over: four requests / host computes / host only (2 CPUs)",
        &columns,
    );
    for rows in rows.chunks(4) {
        let Some(first) = rows.first() else { continue };
        let cell = |r: &Offload| {
            format!("{:.2} / {:.2} / {:.2}", r.over_separate, r.over_host_computes, r.over_host_only)
        };
        let head =
            [called(first.compound).to_string(), first.outstanding.to_string(), format_size(first.bytes)];
        row(&head.into_iter().chain(rows.iter().map(cell)).collect::<Vec<_>>());
    }
    heading(
        "Slowdown from which one compound loses",
        &["four operations", "under way", "size", "to host computes", "to host only"],
    );
    let at =
        |percent: Option<u32>| percent.map_or("over 20".into(), |p| format!("{:.1}", f64::from(p) / 100.0));
    for r in loses {
        let (computes, only) = (at(r.over_host_computes_percent), at(r.over_host_only_percent));
        row(&[called(r.compound).into(), r.outstanding.to_string(), format_size(r.bytes), computes, only]);
    }
    Ok(())
}

fn trace(path: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let text = match Trace::built_in(path) {
        Some(text) => text.to_string(),
        None => std::fs::read_to_string(path).map_err(|error| {
            let names: Vec<&str> = Trace::built_in_names().collect();
            format!(
                "{path}: {error}; give a file, or the name of a trace that comes with weft: {}",
                names.join(", ")
            )
        })?,
    };
    let trace = Trace::read(text.as_bytes()).map_err(|error| format!("{path}: {error}"))?;
    let setup =
        Setup { machine: options.machine, tenants: trace.tenants, duration_ns: options.duration_ns, seed: 1 };
    let mut outcomes: Vec<(Scheduling, Outcome)> = Vec::new();
    for scheduling in Scheduling::ALL {
        let mut scheduler = scheduling.scheduler(&setup.tenants);
        outcomes.push((scheduling, run(&setup, scheduler.as_mut())?));
    }
    if options.json {
        for (scheduling, outcome) in &outcomes {
            println!(
                "{}",
                serde_json::json!({ "version": 1, "scheduling": scheduling, "machine": setup.machine, "outcome": outcome })
            );
        }
        return Ok(());
    }
    let columns = [
        "scheduler",
        "Jain",
        "busy",
        "user",
        "weight",
        "done",
        "refused",
        "CPU time",
        "per second",
        "p50",
        "p99",
        "max",
    ];
    heading(path, &columns);
    for (scheduling, outcome) in outcomes {
        for user in &outcome.tenants {
            row(&[
                scheduling.name().into(),
                format!("{:.3}", outcome.jain),
                format!("{:.2}", outcome.busy),
                user.name.clone(),
                user.weight.to_string(),
                user.completed.to_string(),
                user.refused.to_string(),
                format_nanos(user.device_ns),
                format!("{:.0}", user.per_second),
                format_nanos(user.latency.p50_ns),
                format_nanos(user.latency.p99_ns),
                format_nanos(user.latency.max_ns),
            ]);
        }
    }
    Ok(())
}
