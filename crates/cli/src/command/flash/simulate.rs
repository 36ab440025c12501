//! `weft flash simulate`: fills a modelled device, lets it settle, then measures.

use super::drive::{DriveArgs, RESERVE_DEFAULT, up_to_1000};
use super::heat::{HeatMap, PictureFile};
use super::report::{Erases, LevelName, Presentation, Report, SIMULATION_VERSION, Theory};
use super::workload::{self, PatternName, WorkloadArgs};
use crate::args::FlashArgs;
use crate::error::CliError;
use crate::progress;
use crate::say::{json_line, print};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weft_core::BLOCK_BYTES;
use weft_device::Geometry;
use weft_device::gc::{VictimPolicy, waf};
use weft_device::nand::{FlashSetup, Keep};
use weft_device::ssd::Ssd;
use weft_flash::RangeMapping;
use weft_sim::block::Workload;
use weft_sim::flash::{
    FunctionFlash, HostFlash, HostMap, MapChoice, OpenFlash, Phase, Plan, PolicyRange, RangeChoice, RawFlash,
    Run, Target, ZonedFlash,
};

/// Options that describe a device.
const DESCRIPTIONS: [&str; 14] = [
    "presentation",
    "level",
    "mapping",
    "preset",
    "geometry",
    "size",
    "op",
    "gc",
    "shared_relocation",
    "reserve",
    "luns_per_unit",
    "spare_blocks",
    "handles",
    "isolation",
];

/// How the policy level maps.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MappingName {
    /// Each page separately.
    #[default]
    Page,
    /// Each unit (of several erase blocks) as a whole.
    Block,
}

/// `weft flash simulate`
#[derive(Args, Clone, Debug)]
#[command(mut_arg("size", |arg| arg.help(
    "Size of the device's flash [default: the size in the geometry file (1G if the file has none). Without a geometry \
    file: 1G, or 8G with --level]"
)))]
#[command(after_help = "EXAMPLES\n  \
    weft flash simulate --gc fifo --op 12.5 --json\n  \
    weft flash simulate --presentation fdp --handles 2 --workload hot-cold\n  \
    weft flash simulate --level policy --gc fifo --op 12.5 --workload uniform --json\n  \
    weft flash simulate --level function --wear --picture wear.png\n  \
    weft flash simulate --trace hm_0.csv --size 8G\n  \
    weft flash simulate --image drive.img --workload zipf\n\n\
    Time is virtual: results are the same on every machine. The command fills the device, runs the workload for --settle so \
    that the garbage collector reaches a steady state, and then measures. docs/how-to/simulate-flash.md explains \
    the figures.")]
pub struct SimulateArgs {
    /// Interface of the device. To clean means to collect garbage (copy the live data, then erase).
    #[arg(long, value_enum, default_value_t)]
    pub presentation: Presentation,
    /// Run on the conventional or FDP drive in this image, which 'weft flash create' made. The image contains the options
    /// of the drive.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = DESCRIPTIONS)]
    pub image: Option<PathBuf>,
    /// Use open-channel flash through the library weft-flash, at this level; docs/how-to/choose-your-level.md describes
    /// the levels.
    #[arg(long, value_enum, conflicts_with = "presentation")]
    pub level: Option<LevelName>,
    /// How the policy level maps logical pages.
    #[arg(long, value_enum, default_value_t, requires = "level")]
    pub mapping: MappingName,
    #[command(flatten)]
    pub flash: FlashArgs,
    #[command(flatten)]
    pub drive: DriveArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Issue each request no earlier than at its time in the trace. Without this option, weft issues requests as fast
    /// as the queue allows.
    #[arg(long, requires = "trace")]
    pub recorded_times: bool,
    /// Total size of the requests before the measurement, as a multiple of the capacity; no effect on a trace.
    #[arg(long, value_name = "TIMES", default_value_t = 4.0, value_parser = up_to_1000)]
    pub settle: f64,
    /// Total size of the measured requests, as a multiple of the capacity; no effect on a trace, which runs once.
    #[arg(long, value_name = "TIMES", default_value_t = 4.0, value_parser = up_to_1000)]
    pub measure: f64,
    /// Number of requests in flight [default: the queue depth of the device]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub queue_depth: Option<u32>,
    /// Show the erases of each LUN; on a zoned device, of each group of 128 zones.
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

/// Runs a simulation.
pub fn run(args: &SimulateArgs) -> Result<(), CliError> {
    let Some(image) = &args.image else {
        let geometry = match args.level {
            Some(_) => args.flash.monitored_geometry()?,
            None => args.flash.geometry(args.presentation == Presentation::Zoned)?,
        };
        return simulate(args, &geometry, |args| target(args, &geometry));
    };
    let drive = Ssd::open(image)?;
    let (setup, geometry) = (drive.setup(), drive.setup().flash.geometry.clone());
    let fdp = !setup.handles.is_empty();
    let args = SimulateArgs {
        presentation: if fdp { Presentation::Fdp } else { Presentation::Conventional },
        drive: DriveArgs {
            op: setup.over_provisioning * 100.0,
            gc: setup.victim,
            shared_relocation: !setup.own_relocation_unit,
            ..args.drive.clone()
        },
        ..args.clone()
    };
    simulate(&args, &geometry, |_| Ok(Box::new(drive)))
}

fn simulate(
    args: &SimulateArgs,
    geometry: &Geometry,
    target: impl FnOnce(&SimulateArgs) -> Result<Box<dyn Target>, CliError>,
) -> Result<(), CliError> {
    let queue_depth = args.queue_depth.unwrap_or(geometry.timing.queue_depth);
    if let Some(file) = &args.picture {
        file.check(&args.image.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    }
    let mut target = target(args)?;
    let request_bytes = args.workload.request_size.unwrap_or(match args.level {
        Some(_) => u64::from(geometry.page_bytes),
        None => BLOCK_BYTES as u64,
    });
    let mut workload =
        workload::workload(&args.workload, request_bytes, target.capacity_blocks(), args.quiet)?;
    let begun = Instant::now();
    let mut plan = Plan::new(&workload, args.settle, args.measure);
    // A drive in an image keeps what it was filled with before.
    if args.image.is_some() && target.totals().host_bytes > 0 {
        plan = plan.without_filling();
    }
    let bar = progress::bytes("simulate", plan.bytes(), args.quiet || args.json);
    let issued = |bytes| bar.inc(bytes);
    let phase =
        Run::new(target.as_mut(), queue_depth, args.recorded_times, &issued).play(&mut workload, &plan)?;
    bar.finish_and_clear();
    target.verify()?;
    target.flush()?;
    let wall = begun.elapsed();
    let map = HeatMap::new(target.heat()?);
    if let Some(file) = &args.picture {
        file.write(&map)?;
    }
    let report = report(args, geometry, queue_depth, target.as_ref(), &workload, phase, wall, map);
    print(&if args.json { json_line(&report)? } else { report.to_string() })
}

fn target(args: &SimulateArgs, geometry: &Geometry) -> Result<Box<dyn Target>, CliError> {
    if let Some(level) = args.level {
        return level_target(args, level, geometry);
    }
    Ok(match args.presentation {
        Presentation::Conventional | Presentation::Fdp => {
            let flash = FlashSetup::new(geometry.clone()).keeping(Keep::Nothing);
            let setup = args.drive.setup(flash, args.presentation == Presentation::Fdp, args.workload.seed);
            Box::new(Ssd::new(&setup)?)
        }
        Presentation::Zoned => mapped(args, Box::new(ZonedFlash::new(geometry)?))?,
        Presentation::OpenChannel => mapped(args, Box::new(OpenFlash::new(geometry)?))?,
    })
}

/// A page map in the host.
fn mapped(args: &SimulateArgs, flash: Box<dyn HostFlash>) -> Result<Box<dyn Target>, CliError> {
    let choice = MapChoice {
        over_provisioning: args.drive.op / 100.0,
        victim: args.drive.gc,
        shared: args.drive.shared_relocation,
        reserve: args.drive.reserve,
        seed: args.workload.seed,
    };
    Ok(Box::new(HostMap::new(flash, &choice)?))
}

fn level_target(
    args: &SimulateArgs,
    level: LevelName,
    geometry: &Geometry,
) -> Result<Box<dyn Target>, CliError> {
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
            if args.drive.shared_relocation || args.drive.reserve != RESERVE_DEFAULT {
                return Err(CliError::said(
                    "the policy level sets its reserve and its relocation stream itself".to_string(),
                    "leave out --shared-relocation and --reserve, or use --level function",
                ));
            }
            let one_stream = args.workload.trace.is_none() && args.workload.workload != PatternName::HotCold;
            let choice = RangeChoice {
                mapping: match args.mapping {
                    MappingName::Page => RangeMapping::Page,
                    MappingName::Block => RangeMapping::Block,
                },
                gc: args.drive.gc,
                over_provisioning_permille: (args.drive.op * 10.0).round() as u32,
                streams: if one_stream { 1 } else { u32::from(args.drive.handles) },
                stripe: args.drive.luns_per_unit.unwrap_or(0),
            };
            Ok(Box::new(PolicyRange::new(geometry, &choice)?))
        }
    }
}

/// The report of a simulation that is over.
#[allow(clippy::too_many_arguments, reason = "each is a part of the simulation, and this is called once")]
fn report(
    args: &SimulateArgs,
    geometry: &Geometry,
    queue_depth: u32,
    target: &dyn Target,
    workload: &Workload,
    phase: Phase,
    wall: Duration,
    map: HeatMap,
) -> Report {
    let Phase { before, after, .. } = phase;
    let host_bytes = after.host_bytes - before.host_bytes;
    let media_bytes = after.media_bytes - before.media_bytes;
    let per_second = |amount: u64, seconds: f64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
    let alpha = target.alpha();
    let uniform =
        args.workload.reads < 100 && workload.is_uniform(target.blocks_per_page(), target.capacity_blocks());
    let known = alpha.filter(|alpha| uniform && *alpha > 1.0);
    let theory = known.map(|alpha| Theory { fifo: waf::fifo(alpha), random: waf::random(alpha) });
    let fdp = target.fdp().map(|mut fdp| {
        let (now, before) = (&mut fdp.statistics, phase.fdp_before.unwrap_or_default());
        (now.hbmw, now.mbmw, now.mbe) =
            (now.hbmw - before.hbmw, now.mbmw - before.mbmw, now.mbe - before.mbe);
        fdp
    });
    Report {
        version: SIMULATION_VERSION,
        presentation: match args.level {
            Some(_) => Presentation::OpenChannel,
            None => args.presentation,
        },
        level: args.level,
        capacity_bytes: target.capacity_blocks() * BLOCK_BYTES as u64,
        flash_bytes: geometry.total_bytes,
        over_provisioning_percent: args.drive.op,
        alpha,
        gc: VictimPolicy::name(args.drive.gc),
        shared_relocation: args.drive.shared_relocation,
        workload: workload::name(workload, args.workload.trace.as_deref()),
        queue_depth,
        requests: phase.requests,
        host_bytes,
        media_bytes,
        moved_bytes: after.moved_bytes - before.moved_bytes,
        waf: if host_bytes == 0 { 1.0 } else { media_bytes as f64 / host_bytes as f64 },
        theory,
        erases: after.erases - before.erases,
        erases_by_block: Erases::of(map.rows()),
        read: phase.read,
        write: phase.write,
        device_ns: phase.device_ns,
        host_bytes_per_s: per_second(host_bytes, phase.device_ns as f64 / 1e9),
        fdp,
        wear: args.wear.then_some(map),
        flash_operations_per_s: per_second(
            after.flash_operations - before.flash_operations,
            phase.wall.as_secs_f64(),
        ),
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
    }
}
