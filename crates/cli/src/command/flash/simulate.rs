//! `weft flash simulate`: fills a modelled device, lets it settle, then measures.

use super::FlashArgs;
use super::heat::{HeatMap, PictureFile};
use super::report::Report;
use super::workload::{self, PatternName, TraceName};
use crate::command::stats::{json_line, print};
use crate::error::CliError;
use crate::progress;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use weft_core::BLOCK_BYTES;
use weft_core::units::parse_size;
use weft_device::Geometry;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashSetup, Keep};
use weft_device::ssd::{Isolation, Ssd, SsdSetup};
use weft_flash::RangeMapping;
use weft_sim::flash::{
    FunctionFlash, HostFlash, HostMap, MapChoice, OpenFlash, Plan, PolicyRange, RangeChoice, RawFlash, Run,
    Target, ZonedFlash,
};

/// Number of free blocks below which cleaning starts, unless the user gives one.
const RESERVE_DEFAULT: u32 = 2;

/// How a device presents itself.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presentation {
    /// Logical blocks; the drive maps and cleans.
    #[default]
    Conventional,
    /// Logical blocks with placement handles; the drive maps and cleans.
    Fdp,
    /// Zones; the host maps and cleans.
    Zoned,
    /// Physical addresses; the host maps and cleans.
    OpenChannel,
}

/// How an application uses open-channel flash.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LevelName {
    /// Blocks and pages; the application keeps a log, maps, cleans and erases.
    Raw,
    /// Blocks that the library allocates and erases; the application maps pages to them and cleans.
    Function,
    /// Logical pages; the library maps and cleans.
    Policy,
}

/// How the policy level maps.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MappingName {
    /// Page by page.
    #[default]
    Page,
    /// Unit by unit.
    Block,
}

/// What moved data of FDP handles may share.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IsolationName {
    /// Moved data of all handles shares reclaim units.
    #[default]
    Initially,
    /// Moved data of each handle has reclaim units of its own.
    Persistently,
}

/// `weft flash simulate`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    weft flash simulate --gc fifo --op 12.5 --json\n  \
    weft flash simulate --presentation fdp --handles 2 --workload hot-cold\n  \
    weft flash simulate --level policy --gc fifo --op 12.5 --workload uniform --json\n  \
    weft flash simulate --level function --wear --picture wear.png\n  \
    weft flash simulate --trace hm_0.csv --size 8G\n\n\
    Time is virtual: results are the same on every machine. The command fills the device, lets it settle, then \
    measures. docs/how-to/simulate-flash.md explains the figures.")]
pub struct SimulateArgs {
    /// Interface of the device.
    #[arg(long, value_enum, default_value_t)]
    pub presentation: Presentation,
    /// Use open-channel flash through the flash monitor, at this level.
    #[arg(long, value_enum, conflicts_with = "presentation")]
    pub level: Option<LevelName>,
    /// Mapping of the policy level.
    #[arg(long, value_enum, default_value_t, requires = "level")]
    pub mapping: MappingName,
    #[command(flatten)]
    pub flash: FlashArgs,
    /// Over-provisioning in percent: (flash - capacity) / capacity.
    #[arg(long, value_name = "PERCENT", default_value_t = 7.0)]
    pub op: f64,
    /// Choice of the next block to clean: greedy, fifo, lru, random or cost-benefit.
    #[arg(long, value_name = "POLICY", default_value = "greedy", value_parser = victim)]
    pub gc: VictimPolicy,
    /// Write moved data into the same open block as new data.
    #[arg(long)]
    pub shared_relocation: bool,
    /// Cleaning starts below this number of free blocks (reclaim units, zones).
    #[arg(long, value_name = "N", default_value_t = RESERVE_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    pub reserve: u32,
    /// LUNs in a reclaim unit of a conventional or FDP drive [default: the number that gives 256 units], or in a unit of
    /// the policy level [default: up to 8, or more that leave 64 units]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub luns_per_unit: Option<u32>,
    /// Number of placement handles of an FDP drive; the streams of the workload take them in turn. At the policy level:
    /// number of streams that have open units of their own.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub handles: u16,
    /// Isolation of the data that an FDP drive moves.
    #[arg(long, value_enum, default_value_t)]
    pub isolation: IsolationName,
    /// Distribution of the requests.
    #[arg(long, value_enum, default_value_t, conflicts_with = "trace")]
    pub workload: PatternName,
    /// Exponent of workload zipf, below 1.
    #[arg(long, value_name = "X", default_value_t = 0.99)]
    pub theta: f64,
    /// Workload hot-cold: hot part of the device in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub hot_space: f64,
    /// Workload hot-cold: requests to the hot part in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    pub hot_requests: f64,
    /// Size of a request [default: 4K; a flash page with --level]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub request_size: Option<u64>,
    /// Reads in percent of the requests.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub reads: u32,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Play a block trace instead: an fio iolog or an MSR-Cambridge CSV.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Format of the trace [default: recognised by its first line]
    #[arg(long, value_enum, requires = "trace")]
    pub trace_format: Option<TraceName>,
    /// Issue requests no earlier than the trace did, instead of as fast as the queue allows.
    #[arg(long, requires = "trace")]
    pub recorded_times: bool,
    /// Passes of the workload over the device before the measurement; a trace is not repeated.
    #[arg(long, value_name = "TIMES", default_value_t = 4.0)]
    pub settle: f64,
    /// Passes of the workload over the device during the measurement.
    #[arg(long, value_name = "TIMES", default_value_t = 4.0)]
    pub measure: f64,
    /// Requests in flight [default: the queue depth of the device]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub queue_depth: Option<u32>,
    /// Show the wear of each part of the device.
    #[arg(long)]
    pub wear: bool,
    /// Write a picture of the wear to a .svg or .png file.
    #[arg(long, value_name = "FILE", value_parser = PictureFile::parse)]
    pub picture: Option<PictureFile>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
}

fn victim(name: &str) -> Result<VictimPolicy, String> {
    VictimPolicy::by_name(name)
        .ok_or_else(|| format!("there are {}", VictimPolicy::ALL.map(VictimPolicy::name).join(", ")))
}

/// Runs a simulation.
pub fn run(args: &SimulateArgs) -> Result<(), CliError> {
    for (name, value) in [("--op", args.op), ("--settle", args.settle), ("--measure", args.measure)] {
        if !(0.0..=1000.0).contains(&value) {
            return Err(CliError::said(format!("{name} {value}: expected 0 to 1000"), ""));
        }
    }
    let geometry = match args.level {
        Some(_) => args.flash.monitored_geometry()?,
        None => args.flash.geometry()?,
    };
    let queue_depth = args.queue_depth.unwrap_or(geometry.timing.queue_depth);
    let mut target = target(args, &geometry)?;
    let request_bytes = args.request_size.unwrap_or(match args.level {
        Some(_) => u64::from(geometry.page_bytes),
        None => BLOCK_BYTES as u64,
    });
    let mut workload = workload::workload(args, request_bytes, target.capacity_blocks())?;
    let begun = Instant::now();
    let plan = Plan::new(&workload, args.settle, args.measure);
    let bar = progress::bytes("simulate", plan.bytes(), args.quiet || args.json);
    let issued = |bytes| bar.inc(bytes);
    let phase =
        Run::new(&mut target, queue_depth, args.recorded_times, &issued).play(&mut workload, &plan)?;
    bar.finish_and_clear();
    target.verify()?;
    let wall = begun.elapsed();
    let map = HeatMap::new(target.heat()?);
    if let Some(file) = &args.picture {
        file.write(&map)?;
    }
    let report = Report::new(args, &geometry, queue_depth, &target, &workload, phase, wall, map);
    print(&if args.json { json_line(&report)? } else { report.to_string() })
}

fn target(args: &SimulateArgs, geometry: &Geometry) -> Result<Target, CliError> {
    if let Some(level) = args.level {
        return level_target(args, level, geometry);
    }
    let handles = match (args.presentation, args.isolation) {
        (Presentation::Fdp, IsolationName::Initially) => {
            vec![Isolation::Initially; usize::from(args.handles)]
        }
        (Presentation::Fdp, IsolationName::Persistently) => {
            vec![Isolation::Persistently; usize::from(args.handles)]
        }
        _ => Vec::new(),
    };
    Ok(match args.presentation {
        Presentation::Conventional | Presentation::Fdp => {
            let flash = FlashSetup::new(geometry.clone()).keeping(Keep::Nothing);
            Target::Drive(Box::new(Ssd::new(&SsdSetup {
                victim: args.gc,
                own_relocation_unit: !args.shared_relocation,
                reserve_units: args.reserve,
                luns_per_unit: args.luns_per_unit,
                handles,
                seed: args.seed,
                ..SsdSetup::conventional(flash, args.op / 100.0)
            })?))
        }
        Presentation::Zoned => mapped(args, Box::new(ZonedFlash::new(geometry)?))?,
        Presentation::OpenChannel => mapped(args, Box::new(OpenFlash::new(geometry)?))?,
    })
}

/// A page map in the host.
fn mapped(args: &SimulateArgs, flash: Box<dyn HostFlash>) -> Result<Target, CliError> {
    let choice = MapChoice {
        over_provisioning: args.op / 100.0,
        victim: args.gc,
        shared: args.shared_relocation,
        reserve: args.reserve,
        seed: args.seed,
    };
    Ok(Target::Mapped(Box::new(HostMap::new(flash, &choice)?)))
}

fn level_target(args: &SimulateArgs, level: LevelName, geometry: &Geometry) -> Result<Target, CliError> {
    if level != LevelName::Policy && args.mapping != MappingName::Page {
        return Err(CliError::said(
            "--mapping is an option of the policy level; at this level the application maps".to_string(),
            "leave out --mapping, or use --level policy",
        ));
    }
    match level {
        LevelName::Raw => mapped(args, Box::new(RawFlash::new(geometry)?)),
        LevelName::Function => mapped(args, Box::new(FunctionFlash::new(geometry)?)),
        LevelName::Policy => {
            if args.shared_relocation || args.reserve != RESERVE_DEFAULT {
                return Err(CliError::said(
                    "the policy level sets its reserve and its relocation stream itself".to_string(),
                    "leave out --shared-relocation and --reserve, or use --level function",
                ));
            }
            let one_stream = args.trace.is_none() && args.workload != PatternName::HotCold;
            let choice = RangeChoice {
                mapping: match args.mapping {
                    MappingName::Page => RangeMapping::Page,
                    MappingName::Block => RangeMapping::Block,
                },
                gc: args.gc,
                over_provisioning_permille: (args.op * 10.0).round() as u32,
                streams: if one_stream { 1 } else { u32::from(args.handles) },
                stripe: args.luns_per_unit.unwrap_or(0),
            };
            Ok(Target::Policy(Box::new(PolicyRange::new(geometry, &choice)?)))
        }
    }
}
