//! `weft compare`: the same program in each placement mode, each time on a fresh volume.
//!
//! Runs take turns (off, rules, off, rules, ...), so that what changes on the machine meanwhile meets all modes alike.
//! The table shows medians and ratios to the first mode.

use crate::args::GeometryArgs;
use crate::command::run::write_report;
use crate::error::CliError;
use crate::guest::{Guest, Output, find_shim, here};
use crate::host::Hosted;
use crate::intercept::Intercept;
use crate::output;
use crate::report::Report;
use crate::say::{print, say, warn};
use crate::sys::file::Removed;
use crate::sys::signal::Queue;
use crate::table::Table;
use crate::volume;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::units::{format_nanos, format_size, parse_size};
use weft_device::{Geometry, ZonedModel};
use weft_placement::Mode;
use weft_volume::MountChoice;

/// `weft compare`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    weft compare --size 512M --zone-size 8M -- db_bench --db=/weft/db --benchmarks=fillrandom,overwrite\n  \
    weft compare --modes off,rules --repeat 3 --json cmp.json -- ./my-workload /weft\n\n\
    The program's standard output goes to standard error, so that standard output contains only the table.")]
pub struct CompareArgs {
    /// Size of each volume [default: the size in the geometry file, else 1G]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<String>,
    #[command(flatten)]
    pub geometry: GeometryArgs,
    /// Placement modes to compare, separated by commas; 'weft run --help' describes the modes. The table shows ratios
    /// to the first mode.
    #[arg(long, value_delimiter = ',', default_value = "off,random,suffix,rules")]
    pub modes: Vec<Mode>,
    /// Policy for the placement mode rules: a policy file, or the name of a shipped policy [default: the shipped policy
    /// that fits the program]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Seed for the placement mode random [default: 0]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub seed: u64,
    /// Number of runs in each mode. weft alternates the modes; the table shows the median of each mode.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// The path at which the program sees the volume.
    #[arg(long, value_name = "DIR", default_value = crate::access::MOUNT_POINT)]
    pub at: String,
    /// Keep the volumes in image files in this directory during the runs, instead of in memory.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Also write the report of every run to FILE, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Discard the program's output.
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// What `--json` writes.
#[derive(Serialize)]
struct Comparison<'a> {
    version: u32,
    modes: Vec<Compared<'a>>,
}

/// All runs in one mode.
#[derive(Serialize)]
struct Compared<'a> {
    mode: Mode,
    runs: &'a [Report],
}

/// Runs the program in each mode and prints the table. The status is that of the first run that failed.
pub fn run(args: &CompareArgs) -> Result<u8, CliError> {
    let size = args.size.as_deref().map(parse_size).transpose()?;
    let geometry = args.geometry.of_volume(size, "")?;
    let stdout = if args.quiet { Output::Discard } else { Output::ToStderr };
    let guest = Guest { command: &args.command, at: &args.at, stdout, intercept: Intercept::Preload };
    guest.check()?;
    if let Some(path) = &args.json {
        output::check(path, &[])?;
    }
    let shim = find_shim()?;
    let signals = Queue::block()?;
    let mut runs: Vec<(Mode, Vec<Report>)> = args.modes.iter().map(|mode| (*mode, Vec::new())).collect();
    let mut status = 0;
    for round in 1..=args.repeat {
        for (mode, reports) in &mut runs {
            let choice = MountChoice {
                mode: *mode,
                policy: args.policy.clone(),
                seed: args.seed,
                ..MountChoice::default()
            };
            say(format_args!("weft compare: mode {mode}, run {round} of {}", args.repeat));
            let (hosted, image) = empty_volume(args.dir.as_deref(), &geometry, &choice)?;
            let ran = here(hosted, None, &guest, &shim, &signals);
            drop(image);
            let ran = ran?;
            if let Some(error) = ran.failure {
                return Err(error);
            }
            if ran.status != 0 {
                warn(format_args!("mode {mode}: the program ended with status {}", ran.status));
                if status == 0 {
                    status = u8::try_from(ran.status).unwrap_or(1);
                }
            }
            if ran.interrupted {
                return Ok(status.max(1));
            }
            reports.extend(ran.report);
        }
    }
    if let Some(path) = &args.json {
        let modes = runs.iter().map(|(mode, runs)| Compared { mode: *mode, runs }).collect();
        write_report(path, &Comparison { version: crate::report::REPORT_VERSION, modes })?;
    }
    print(&format!("{}{}", describe(&geometry, args.repeat), table(&runs)))?;
    Ok(status)
}

/// An empty volume, in memory or in an image that goes with it.
fn empty_volume(
    dir: Option<&Path>,
    geometry: &Geometry,
    choice: &MountChoice,
) -> Result<(Hosted, Option<Removed>), CliError> {
    let Some(dir) = dir else {
        let mounted = volume::open_memory("mem".into(), Some(geometry), choice)?;
        return Ok((Hosted::unlisted(mounted)?, None));
    };
    let path = dir.join(format!("weft-compare-{}.img", std::process::id()));
    let image = Removed(path.clone());
    let device = Arc::new(ZonedModel::create(&path, geometry, true, &mut |_, _| {})?);
    weft_volume::format(device.clone(), &path.display().to_string(), "")?;
    drop(device);
    let mounted = volume::open(&path, choice)?;
    Ok((Hosted::unlisted(mounted)?, Some(image)))
}

fn describe(geometry: &Geometry, repeat: u32) -> String {
    let runs = if repeat == 1 { "one run each".to_string() } else { format!("medians of {repeat} runs") };
    format!(
        "\n{} in {} zones of {}, {} open at most; {runs}\n\n",
        format_size(geometry.zones() * geometry.zone_capacity_bytes),
        geometry.zones(),
        format_size(geometry.zone_capacity_bytes),
        geometry.open_max
    )
}

/// The middle of the runs' values; the mean of both when there are two in the middle.
fn median(runs: &[Report], value: impl Fn(&Report) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// How the runs ended; nothing when all did well.
fn ending(runs: &[Report]) -> String {
    let failed = runs.iter().filter(|run| run.status != 0);
    let statuses: BTreeSet<i32> = failed.clone().map(|run| run.status).collect();
    let text = |status| match status {
        signal @ 129.. => format!("signal {}", signal - 128),
        status => format!("status {status}"),
    };
    let texts: Vec<String> = statuses.into_iter().map(text).collect();
    match failed.count() {
        0 => String::new(),
        n if n == runs.len() => format!("FAILED: {}", texts.join(", ")),
        n => format!("FAILED: {} ({n} of {} runs)", texts.join(", "), runs.len()),
    }
}

fn table(runs: &[(Mode, Vec<Report>)]) -> Table {
    let any_failed = runs.iter().flat_map(|(_, reports)| reports).any(|run| run.status != 0);
    let ended = if any_failed { " ended<" } else { "" };
    let columns = "mode< WAF> ratio> data WAF> ratio> host> relocated> erases> ratio> device time> write p99> read p99>";
    let mut table = Table::new(&format!("{columns} full> wall>{ended}"));
    let Some((_, base)) = runs.first() else { return table };
    let ratio = |of: f64, to: f64| if to == 0.0 { "-".to_string() } else { format!("{:.3}", of / to) };
    let full = |r: &Report| {
        let space = r.during.space;
        let used = space.total_bytes - space.free_bytes.min(space.total_bytes);
        used as f64 * 100.0 / space.total_bytes.max(1) as f64
    };
    for (mode, reports) in runs {
        let of = |value: &dyn Fn(&Report) -> f64| median(reports, value);
        let versus = |value: &dyn Fn(&Report) -> f64| ratio(median(reports, value), median(base, value));
        let erases = |r: &Report| r.during.device.erases as f64;
        let mut cells = vec![
            mode.to_string(),
            format!("{:.3}", of(&|r| r.waf)),
            versus(&|r| r.waf),
            format!("{:.3}", of(&|r| r.data_waf)),
            versus(&|r| r.data_waf),
            format_size(of(&|r| r.during.device.host_bytes as f64) as u64),
            format_size(of(&|r| r.during.device.gc_bytes as f64) as u64),
            format!("{:.0}", of(&erases)),
            versus(&erases),
            format_nanos(of(&|r| r.during.device.now.0 as f64) as u64),
            format_nanos(of(&|r| r.during.programs.writes.p99_ns as f64) as u64),
            format_nanos(of(&|r| r.during.programs.reads.p99_ns as f64) as u64),
            format!("{:.0} %", of(&full)),
            format_nanos(of(&|r| r.wall_ns as f64) as u64),
        ];
        if any_failed {
            cells.push(ending(reports));
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_volume::report::Snapshot;

    fn report(host: u64, media: u64) -> Report {
        let mut after = Snapshot::default();
        after.device.host_bytes = host;
        after.device.media_bytes = media;
        Report::new(vec!["x".into()], 0, 1, &Snapshot::default(), &after)
    }

    #[test]
    fn the_median_is_the_middle_run_or_the_mean_of_the_middle_two() {
        let runs = [report(100, 130), report(100, 110), report(100, 120)];
        assert_eq!(median(&runs, |r| r.waf), 1.2);
        assert!((median(&runs[..2], |r| r.waf) - 1.2).abs() < 1e-9);
        assert_eq!(median(&[], |r| r.waf), 0.0);
    }

    #[test]
    fn a_row_whose_program_failed_says_so_and_how() {
        let ended = |status| Report { status, ..report(100, 100) };
        let runs = [
            (Mode::Off, vec![ended(0), ended(0)]),
            (Mode::Rules, vec![ended(3), ended(0)]),
            (Mode::Suffix, vec![ended(139), ended(139)]),
        ];
        let text = table(&runs).to_string();
        let rows: Vec<&str> = text.lines().collect();
        let [head, .., off, rules, suffix] = rows.as_slice() else { panic!("{text}") };
        assert!(head.ends_with("ended") && !off.contains("FAILED"), "{text}");
        assert!(rules.ends_with("FAILED: status 3 (1 of 2 runs)"), "{text}");
        assert!(suffix.ends_with("FAILED: signal 11"), "{text}");
        assert!(!table(&runs[..1]).to_string().contains("ended"));
    }

    #[test]
    fn ratios_are_to_the_first_mode() {
        let runs = [(Mode::Off, vec![report(100, 200)]), (Mode::Rules, vec![report(100, 150)])];
        let text = table(&runs).to_string();
        let rules = text.lines().last().unwrap();
        assert!(rules.starts_with("rules  1.500  0.750"), "{text}");
    }
}
