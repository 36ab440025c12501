//! `weft replay`: what a program did to its files, played in each placement mode on volumes that are just large enough.
//!
//! Each cell of the table is a volume of its own in memory. Cells are played by as many threads as there are
//! processors, as far as memory goes; the result of each does not depend on it.

use crate::error::CliError;
use crate::progress;
use crate::say::{json_line, print, warn};
use crate::sys::memory;
use crate::table::Table;
use clap::Args;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::units::{format_size, parse_size};
use weft_device::Geometry;
use weft_device::geometry::PRESETS;
use weft_placement::Mode;
use weft_placement::recording::{UnreadRecording, Workload};
use weft_sim::files::core::{Played, ReplayError, device_for, replay};
use weft_volume::MountChoice;

/// Version of the JSON.
const REPLAY_VERSION: u32 = 1;
/// Zones below which what open zones hold weighs more than what keeping streams apart gains.
const ZONES_FEW: u64 = 100;

/// `weft replay`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    weft run --volume mem:2G --record db.rec -- db_bench --db=/weft/db --benchmarks=fillrandom,overwrite\n  \
    weft replay db.rec\n  \
    weft replay --zone 4M,8M --full 80,90 --modes off,rules --policy mine.toml --json db.rec\n\n\
    weft chooses the size of each volume so that the program's data, at its peak, fills --full percent of the space \
    that 'weft df' shows. The table shows the write amplification that cleaning (garbage collection) causes: bytes \
    written for the program plus bytes relocated, divided by bytes written for the program. The figures are the same \
    on every machine.")]
pub struct ReplayArgs {
    /// Size of a zone, or a list of sizes separated by commas. The table has a row for each size.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "4M")]
    pub zone: Vec<String>,
    /// Percentage of the volume that the program's data fills at the peak, or a list of percentages separated by
    /// commas. The table has a row for each percentage.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "80")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100))]
    pub full: Vec<u64>,
    /// Placement modes to compare, separated by commas; 'weft run --help' describes the modes.
    #[arg(long, value_delimiter = ',', default_value = "off,random,suffix,rules")]
    pub modes: Vec<Mode>,
    /// Policy for the placement mode rules: a policy file, or the name of a shipped policy [default: the shipped policy
    /// that fits the program]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Seed for the placement mode random [default: 1]
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    pub seed: u64,
    /// Flash geometry of a known device: zn540, tlc, mlc, slc, qlc or bbssd
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(PRESETS))]
    #[arg(hide_possible_values = true, default_value = "zn540")]
    pub preset: String,
    /// Name of the program, for recordings that do not contain the name.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub process: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// Recordings that 'weft run --record' made.
    #[arg(required = true)]
    pub recordings: Vec<PathBuf>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Replayed {
    version: u32,
    recordings: Vec<RecordingRows>,
}

/// One recording, on each volume.
#[derive(Serialize)]
struct RecordingRows {
    recording: String,
    /// Most bytes that were live at once.
    peak_bytes: u64,
    written_bytes: u64,
    rows: Vec<Row>,
}

/// One volume, in each mode.
#[derive(Serialize)]
struct Row {
    zone_bytes: u64,
    full_percent: u64,
    zones: u64,
    modes: Vec<Cell>,
}

/// One replay.
#[derive(Serialize)]
struct Cell {
    mode: Mode,
    /// None when the volume was full before the end.
    waf: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<ReplayCounts>,
}

/// What a replay counted.
#[derive(Serialize)]
struct ReplayCounts {
    host_bytes: u64,
    gc_bytes: u64,
    metadata_bytes: u64,
    media_bytes: u64,
    resets: u64,
    whole_zone_deaths: u64,
    cleaned_zones: u64,
}

impl From<Played> for ReplayCounts {
    fn from(played: Played) -> ReplayCounts {
        let d = played.device;
        ReplayCounts {
            host_bytes: d.host_bytes,
            gc_bytes: d.gc_bytes,
            metadata_bytes: d.metadata_bytes,
            media_bytes: d.media_bytes,
            resets: d.resets,
            whole_zone_deaths: played.whole_zone_deaths,
            cleaned_zones: played.cleaned_zones,
        }
    }
}

/// Plays recordings and prints the table. The status is 1 when a volume was full before the end of its recording.
pub fn run(args: &ReplayArgs) -> Result<u8, CliError> {
    let zones = args.zone.iter().map(|text| parse_size(text)).collect::<Result<Vec<_>, _>>()?;
    let flash = Geometry::preset(&args.preset)?;
    // An error in the policy is reported before the work, not after it.
    choice(args, Mode::Rules).engine()?;
    let recordings =
        args.recordings.iter().map(|path| read(path, &args.process)).collect::<Result<Vec<_>, _>>()?;
    let mut replayed = Vec::new();
    for (path, workload) in args.recordings.iter().zip(recordings) {
        replayed.push(play(args, path, &workload, &zones, &flash)?);
    }
    let full = replayed.iter().flat_map(|r| &r.rows).flat_map(|row| &row.modes).any(|c| c.waf.is_none());
    let text = match args.json {
        true => json_line(&Replayed { version: REPLAY_VERSION, recordings: replayed })?,
        false => replayed.iter().map(|rows| in_words(rows, &args.modes)).collect(),
    };
    print(&text)?;
    Ok(u8::from(full))
}

fn read(path: &Path, process: &str) -> Result<Workload, CliError> {
    let unreadable = |e| CliError::io("read", path, e);
    let from = BufReader::new(File::open(path).map_err(unreadable)?);
    let workload = Workload::read(from, process).map_err(|error| match error {
        UnreadRecording::Io(error) => unreadable(error),
        UnreadRecording::Bad(bad) => CliError::of(
            path,
            bad,
            "'weft run --record FILE' makes a recording; make an edited or truncated recording again",
        ),
    })?;
    if workload.written_bytes() == 0 {
        return Err(CliError::of(
            path,
            "nothing is written in this recording",
            "record again, and check that the program writes below the path of the volume (--at, /weft by default)",
        ));
    }
    Ok(workload)
}

fn choice(args: &ReplayArgs, mode: Mode) -> MountChoice {
    MountChoice { mode, policy: args.policy.clone(), seed: args.seed, ..MountChoice::default() }
}

fn play(
    args: &ReplayArgs,
    path: &Path,
    workload: &Workload,
    zones: &[u64],
    flash: &Geometry,
) -> Result<RecordingRows, CliError> {
    let (peak_bytes, written_bytes) = (workload.live_peak_bytes(), workload.written_bytes());
    let mut rows = Vec::new();
    let mut geometries = Vec::new();
    for &zone_bytes in zones {
        for &full_percent in &args.full {
            let geometry = device_for(flash, zone_bytes, peak_bytes * 100 / full_percent)?;
            rows.push(Row { zone_bytes, full_percent, zones: geometry.zones(), modes: Vec::new() });
            geometries.push(geometry);
        }
    }
    let modes = |row| args.modes.iter().map(move |&mode| (row, mode));
    let jobs: Vec<(usize, Mode)> = (0..rows.len()).flat_map(modes).collect();
    let bar = progress::bytes("replay", written_bytes * jobs.len() as u64, args.quiet);
    let largest = geometries.iter().map(|g| g.zones() * g.zone_bytes).max().unwrap_or(0);
    let cells =
        on_threads(&jobs, largest, |(row, mode)| play_cell(args, workload, *mode, &geometries[*row], &bar));
    bar.finish_and_clear();
    for ((row, _), cell) in jobs.iter().zip(cells) {
        rows[*row].modes.push(cell?);
    }
    let recording = path.display().to_string();
    Ok(RecordingRows { recording, peak_bytes, written_bytes, rows })
}

fn play_cell(
    args: &ReplayArgs,
    workload: &Workload,
    mode: Mode,
    geometry: &Geometry,
    bar: &ProgressBar,
) -> Result<Cell, CliError> {
    let engine = Arc::new(choice(args, mode).engine()?);
    let mut told = 0;
    let played = replay(workload, geometry, engine, &mut |done| {
        bar.inc(done - told);
        told = done;
    });
    match played {
        Ok(played) => Ok(Cell { mode, waf: Some(played.waf()), counted: Some(played.into()) }),
        Err(error) if error.is_full() => {
            warn(format_args!("mode {mode}: {error}"));
            Ok(Cell { mode, waf: None, counted: None })
        }
        Err(error) => Err(error.into()),
    }
}

/// Does each job, several at once, each of which takes up to so many bytes of memory. Results are in the jobs' order.
fn on_threads<'a, J: Sync, R: Send>(
    jobs: &'a [J],
    bytes_each: u64,
    work: impl Fn(&'a J) -> R + Sync,
) -> Vec<R> {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let by_memory = memory::available_bytes().map_or(1, |bytes| bytes / 2 / bytes_each.max(1));
    let threads = processors.min(jobs.len()).min(by_memory as usize).max(1);
    let left = Mutex::new(jobs.iter().enumerate());
    let next = || left.lock().next();
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, job)) = next() {
                    let result = work(job);
                    done.lock().push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn in_words(recording: &RecordingRows, modes: &[Mode]) -> String {
    let columns: String = modes.iter().map(|mode| format!(" {mode}>")).collect();
    let mut table = Table::new(&format!("zone> full> zones>{columns}"));
    for row in &recording.rows {
        let head = [format_size(row.zone_bytes), format!("{} %", row.full_percent), row.zones.to_string()];
        let cells =
            row.modes.iter().map(|cell| cell.waf.map_or("full".to_string(), |waf| format!("{waf:.3}")));
        table.row(head.into_iter().chain(cells));
    }
    let few = recording.rows.iter().any(|row| row.zones < ZONES_FEW);
    let note = if few {
        format!("fewer than {ZONES_FEW} zones: there the zones that are open weigh most, in every mode\n")
    } else {
        String::new()
    };
    format!(
        "{}: {} written, {} at the peak\n\n{table}{note}\n",
        recording.recording,
        format_size(recording.written_bytes),
        format_size(recording.peak_bytes)
    )
}

impl From<ReplayError> for CliError {
    fn from(error: ReplayError) -> CliError {
        match error {
            ReplayError::Device(error) => CliError::Device(error),
            other => CliError::said(other.to_string(), "try a larger --zone or another --full"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..50).collect();
        let wait = |n: &u64| {
            std::thread::sleep(std::time::Duration::from_micros((n * 7919) % 300));
            *n
        };
        assert_eq!(on_threads(&jobs, 1, wait), jobs);
    }

    #[test]
    fn a_row_shows_each_mode_and_a_volume_that_was_full() {
        let cell = |mode, waf| Cell { mode, waf, counted: None };
        let rows = RecordingRows {
            recording: "x.rec".into(),
            peak_bytes: 600 << 20,
            written_bytes: 2 << 30,
            rows: vec![Row {
                zone_bytes: 4 << 20,
                full_percent: 80,
                zones: 99,
                modes: vec![cell(Mode::Off, Some(1.25)), cell(Mode::Rules, None)],
            }],
        };
        let text = in_words(&rows, &[Mode::Off, Mode::Rules]);
        assert!(text.starts_with("x.rec: 2.00 GiB written, 600 MiB at the peak\n"), "{text}");
        assert!(text.contains("\n4.00 MiB  80 %     99  1.250   full\n"), "{text}");
        assert!(text.contains("fewer than 100 zones"), "{text}");
    }
}
