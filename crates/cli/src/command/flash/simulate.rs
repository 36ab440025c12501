//! `weft flash simulate`: fills a modelled device, lets it settle, then measures.

use super::FlashArgs;
use super::heat::{HeatMap, PictureFile};
use super::host_flash::{FunctionFlash, HostFlash, OpenFlash, RawFlash, ZonedFlash};
use super::host_map::{HostMap, MapChoice};
use super::policy_range::{PolicyRange, RangeChoice};
use super::report::{Phase, Report};
use super::target::Target;
use super::workload::{PatternName, TraceName, Workload};
use crate::command::stats::{json_line, print};
use crate::error::CliError;
use crate::progress;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use weft_core::hist::Histogram;
use weft_core::units::parse_size;
use weft_core::{BLOCK_BYTES, Nanos};
use weft_device::Geometry;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashSetup, Keep};
use weft_device::ssd::{Isolation, Ssd, SsdSetup};
use weft_flash::RangeMapping;
use weft_sim::block::{Action, HostQueue, Request};

/// Requests after which the progress bar moves.
const REQUESTS_BETWEEN_REPORTS: u64 = 4096;
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
    let mut workload = Workload::new(args, request_bytes, target.capacity_blocks())?;
    let begun = Instant::now();
    let mut run = Run::new(&mut target, queue_depth, args.recorded_times);
    let touched = workload.blocks();
    let (settle, measure) = match &workload {
        Workload::Synthetic(_, setup) => {
            let whole = touched as f64 / f64::from(setup.request_blocks);
            ((whole * args.settle) as u64, (whole * args.measure) as u64)
        }
        Workload::Trace(trace) => (0, trace.requests().len() as u64),
    };
    let request_bytes = match &workload {
        Workload::Synthetic(_, setup) => u64::from(setup.request_blocks) * BLOCK_BYTES as u64,
        Workload::Trace(_) => BLOCK_BYTES as u64,
    };
    let total = touched * BLOCK_BYTES as u64 + (settle + measure) * request_bytes;
    let bar = progress::bytes("simulate", total, args.quiet || args.json);
    run.fill(&workload, &bar)?;
    let phase = match &mut workload {
        Workload::Synthetic(synthetic, _) => {
            let mut next = || synthetic.request();
            run.issue(settle, request_bytes, &bar, &mut next)?;
            run.measured(measure, request_bytes, &bar, &mut next)?
        }
        Workload::Trace(trace) => {
            let mut requests = trace.requests().iter().copied();
            let mut next = || requests.next().unwrap_or(trace.requests()[0]);
            run.measured(measure, request_bytes, &bar, &mut next)?
        }
    };
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

/// A simulation under way.
struct Run<'a> {
    target: &'a mut Target,
    queue: HostQueue,
    recorded_times: bool,
    read: Histogram,
    write: Histogram,
}

impl Run<'_> {
    fn new(target: &mut Target, queue_depth: u32, recorded_times: bool) -> Run<'_> {
        let queue = HostQueue::new(queue_depth as usize, Nanos(0));
        Run { target, queue, recorded_times, read: Histogram::default(), write: Histogram::default() }
    }

    /// Writes everything that the workload touches once, from the start to the end.
    fn fill(&mut self, workload: &Workload, bar: &ProgressBar) -> Result<(), CliError> {
        let page = self.target.blocks_per_page().max(1);
        let mut block = 0;
        let stream_of = |block: u64| match workload {
            // Cold data is filled as cold data.
            Workload::Synthetic(_, setup) => match setup.pattern {
                weft_sim::block::Pattern::HotCold { hot_space, .. } => {
                    u16::from(block as f64 >= setup.blocks as f64 * hot_space)
                }
                _ => 0,
            },
            Workload::Trace(_) => 0,
        };
        while block < workload.blocks() {
            let blocks = page.min(workload.blocks() - block) as u32;
            let request =
                Request { action: Action::Write, block, blocks, stream: stream_of(block), at_ns: 0 };
            self.one(&request, self.queue.now())?;
            block += u64::from(blocks);
            if block.is_multiple_of(REQUESTS_BETWEEN_REPORTS) {
                bar.set_position(block * BLOCK_BYTES as u64);
            }
        }
        self.queue.drain();
        Ok(())
    }

    /// Issues so many requests.
    fn issue(
        &mut self,
        requests: u64,
        request_bytes: u64,
        bar: &ProgressBar,
        next: &mut dyn FnMut() -> Request,
    ) -> Result<(), CliError> {
        let base = self.queue.now();
        for number in 1..=requests {
            let request = next();
            self.one(&request, base)?;
            if number.is_multiple_of(REQUESTS_BETWEEN_REPORTS) {
                bar.inc(REQUESTS_BETWEEN_REPORTS * request_bytes);
            }
        }
        Ok(())
    }

    /// Issues so many requests and tells what they did.
    fn measured(
        &mut self,
        requests: u64,
        request_bytes: u64,
        bar: &ProgressBar,
        next: &mut dyn FnMut() -> Request,
    ) -> Result<Phase, CliError> {
        (self.read, self.write) = Default::default();
        let (before, begun_ns) = (self.target.totals(), self.queue.drain());
        let fdp_before = self.target.fdp().map(|fdp| fdp.statistics);
        let begun = Instant::now();
        self.issue(requests, request_bytes, bar, next)?;
        let wall = begun.elapsed();
        let device_ns = self.queue.drain().0 - begun_ns.0;
        let after = self.target.totals();
        let latencies = self.target.own_latencies();
        let (read, write) = latencies.unwrap_or_else(|| (self.read.summary(), self.write.summary()));
        Ok(Phase { requests, before, after, fdp_before, device_ns, read, write, wall })
    }

    fn one(&mut self, request: &Request, base: Nanos) -> Result<(), CliError> {
        if self.recorded_times {
            self.queue.wait_until(Nanos(base.0.saturating_add(request.at_ns)));
        }
        let issued = self.queue.admit();
        let done = self.target.request(issued, request)?;
        self.queue.issued(done);
        match request.action {
            Action::Read => self.read.record(done.0.saturating_sub(issued.0)),
            Action::Write => self.write.record(done.0.saturating_sub(issued.0)),
            Action::Deallocate => {}
        }
        Ok(())
    }
}
