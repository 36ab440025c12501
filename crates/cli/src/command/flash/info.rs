//! `weft flash info` and `weft flash create`.

use super::drive::DriveArgs;
use crate::args::FlashArgs;
use crate::error::CliError;
use crate::say::{json_line, print};
use crate::table::Table;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::{Path, PathBuf};
use weft_core::units::{format_nanos, format_size};
use weft_core::{BLOCK_BYTES, Nanos};
use weft_device::nand::{BlockState, FlashSetup, FlashShape, OpenChannel};
use weft_device::ssd::Ssd;
use weft_device::{FaultPlan, Wear};
use weft_sim::flash::{FdpReport, Target};

/// `weft flash info`
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// An image that 'weft flash create' made. Without an image, the command shows the device that the options describe
    #[arg(conflicts_with_all = ["preset", "geometry", "size", "zone_size"])]
    image: Option<PathBuf>,
    #[command(flatten)]
    flash: FlashArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How a device in an image presents itself.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ImagePresentation {
    /// Physical addresses; programs map addresses and clean blocks.
    #[default]
    OpenChannel,
    /// Logical blocks; the drive maps addresses and cleans flash.
    Conventional,
    /// Logical blocks with placement handles; the drive maps addresses and cleans flash.
    Fdp,
}

/// `weft flash create`
#[derive(Args, Debug)]
#[command(mut_arg("handles", |arg| arg.help("Number of placement handles of an FDP drive")))]
#[command(mut_arg("luns_per_unit", |arg| arg.help(
    "Number of LUNs in a reclaim unit of a conventional or FDP drive. N must divide the number of LUNs of the device \
    [default: the largest N that leaves at least 256 units]"
)))]
pub struct CreateArgs {
    /// The image file to make; the file is sparse.
    image: PathBuf,
    /// Interface of the device. To clean means to collect garbage (copy the live data, then erase).
    #[arg(long, value_enum, default_value_t)]
    presentation: ImagePresentation,
    #[command(flatten)]
    flash: FlashArgs,
    #[command(flatten)]
    drive: DriveArgs,
    /// Out-of-band bytes in each page [default: 64]
    #[arg(long, value_name = "N")]
    oob_bytes: Option<u32>,
    /// Overwrite an existing file.
    #[arg(long)]
    force: bool,
}

/// Version of the JSON.
const INFO_VERSION: u32 = 1;

/// What `weft flash info --json` prints.
#[derive(Serialize)]
struct Info {
    version: u32,
    shape: FlashShape,
    flash_bytes: u64,
    setup: FlashSetup,
    /// Of a device in an image.
    image: Option<InUse>,
    /// Of a conventional or FDP drive in an image.
    drive: Option<Drive>,
}

/// A drive, and what it has counted since it was made.
#[derive(Serialize)]
struct Drive {
    presentation: &'static str,
    capacity_bytes: u64,
    over_provisioning_percent: f64,
    gc: &'static str,
    units: u32,
    unit_bytes: u64,
    host_bytes: u64,
    media_bytes: u64,
    moved_bytes: u64,
    waf: f64,
    erases: u64,
    /// Of an FDP drive.
    fdp: Option<FdpReport>,
}

impl Drive {
    fn of(drive: &Ssd) -> Drive {
        let (setup, counters, (units, blocks)) = (drive.setup(), drive.counters(), drive.units());
        Drive {
            presentation: if setup.handles.is_empty() { "conventional" } else { "fdp" },
            capacity_bytes: drive.capacity_blocks() * BLOCK_BYTES as u64,
            over_provisioning_percent: setup.over_provisioning * 100.0,
            gc: setup.victim.name(),
            units,
            unit_bytes: u64::from(blocks) * BLOCK_BYTES as u64,
            host_bytes: counters.host_bytes,
            media_bytes: counters.media_bytes,
            moved_bytes: counters.gc_bytes,
            waf: counters.waf(),
            erases: counters.erases,
            fdp: drive.fdp(),
        }
    }
}

/// What became of a device.
#[derive(Serialize)]
struct InUse {
    path: String,
    clock: Nanos,
    free: u64,
    open: u64,
    full: u64,
    erase_incomplete: u64,
    bad: u64,
    erases_min: u32,
    erases_mean: f64,
    erases_max: u32,
    pages_programmed: u64,
}

/// Shows a device.
pub fn run(args: &InfoArgs) -> Result<(), CliError> {
    let mut drive = None;
    let (setup, image) = match &args.image {
        Some(path) => {
            let device = OpenChannel::look(path)?;
            if device.holds_drive() {
                drive = Some(Drive::of(&Ssd::look(path)?));
            }
            (device.setup().clone(), Some(in_use(path, &device)?))
        }
        None => {
            let setup = FlashSetup::new(args.flash.geometry(false)?);
            setup.validate()?;
            (setup, None)
        }
    };
    let shape = setup.shape();
    let flash_bytes = shape.blocks() * shape.block_bytes();
    let info = Info { version: INFO_VERSION, shape, flash_bytes, setup, image, drive };
    print(&if args.json { json_line(&info)? } else { text(&info) })
}

/// Makes a device in an image file.
pub fn create(args: &CreateArgs) -> Result<(), CliError> {
    CliError::unless_forced(&args.image, args.image.exists(), args.force)?;
    let setup = FlashSetup::new(args.flash.geometry(false)?);
    let setup = FlashSetup { oob_bytes: args.oob_bytes.unwrap_or(setup.oob_bytes), ..setup };
    let fdp = args.presentation == ImagePresentation::Fdp;
    if args.presentation == ImagePresentation::OpenChannel {
        if !args.drive.is_standard() {
            return Err(CliError::said(
                "only a drive maps and cleans: --op, --gc, --handles and the like describe one",
                "give --presentation conventional or --presentation fdp",
            ));
        }
        drop(OpenChannel::create(&args.image, &setup, args.force)?);
        return Ok(());
    }
    drop(Ssd::create(&args.image, &args.drive.setup(setup, fdp, 1), FaultPlan::default(), args.force)?);
    Ok(())
}

fn in_use(path: &Path, device: &OpenChannel) -> Result<InUse, CliError> {
    let mut blocks = Vec::new();
    for lun in 0..device.shape().luns() {
        blocks.extend(device.lun_info(device.shape().lun_at(lun))?);
    }
    let count = |is: fn(BlockState) -> bool| blocks.iter().filter(|block| is(block.state)).count() as u64;
    let erases: Vec<u32> = blocks.iter().map(|block| block.erases).collect();
    let Wear { erases_min, erases_mean, erases_max, .. } = Wear::of(&erases);
    Ok(InUse {
        path: path.display().to_string(),
        clock: device.now(),
        free: count(|state| state == BlockState::Free),
        open: count(|state| state == BlockState::Open),
        full: count(|state| state == BlockState::Full),
        erase_incomplete: count(|state| state == BlockState::EraseIncomplete),
        bad: count(BlockState::is_bad),
        erases_min,
        erases_mean,
        erases_max,
        pages_programmed: device.counters().pages_programmed,
    })
}

fn text(info: &Info) -> String {
    let (shape, timing) = (&info.shape, &info.setup.geometry.timing);
    let mut table = Table::new("flash< <");
    let mut row = |name: &str, value: String| table.row([name.to_string(), value]);
    row("bytes", format_size(info.flash_bytes));
    row(
        "channels x LUNs x planes",
        format!("{} x {} x {}", shape.channels, shape.luns_per_channel, shape.planes),
    );
    row(
        "erase blocks of a plane",
        format!("{} of {}", shape.blocks_per_plane, format_size(shape.block_bytes())),
    );
    row(
        "pages of a block",
        format!(
            "{} of {} and {} out-of-band bytes",
            shape.pages_per_block,
            format_size(u64::from(shape.page_bytes)),
            shape.oob_bytes
        ),
    );
    row(
        "erases that a block stands",
        match info.setup.geometry.endurance {
            0 => "no limit".to_string(),
            erases => erases.to_string(),
        },
    );
    row(
        "read, program, erase",
        [timing.page_read_ns, timing.program_ns, timing.erase_ns].map(format_nanos).join(", "),
    );
    row("rate of a channel", format!("{} MB/s", timing.channel_bytes_per_s / 1_000_000));
    if let Some(used) = &info.image {
        row("image", used.path.clone());
        row("clock", format_nanos(used.clock.0));
        row(
            "blocks",
            format!("{} free, {} open, {} full, {} bad", used.free, used.open, used.full, used.bad),
        );
        if used.erase_incomplete > 0 {
            row("interrupted erases", used.erase_incomplete.to_string());
        }
        row(
            "erases of a block",
            format!("{} least, {:.1} mean, {} most", used.erases_min, used.erases_mean, used.erases_max),
        );
        row("pages programmed", used.pages_programmed.to_string());
    }
    if let Some(drive) = &info.drive {
        row(
            "drive",
            format!(
                "{}: {} of capacity, {:.1} % over-provisioning, {} cleaning",
                drive.presentation,
                format_size(drive.capacity_bytes),
                drive.over_provisioning_percent,
                drive.gc
            ),
        );
        row("reclaim units", format!("{} of {}", drive.units, format_size(drive.unit_bytes)));
        row(
            "written by the host, programmed, moved",
            [drive.host_bytes, drive.media_bytes, drive.moved_bytes].map(format_size).join(", "),
        );
        row("write amplification", format!("{:.3}", drive.waf));
        for usage in drive.fdp.iter().flat_map(|fdp| &fdp.handles) {
            row(
                &format!("placement handle {}", usage.handle),
                format!(
                    "{} written, {} moved since, {} left in its unit",
                    format_size(usage.host_bytes),
                    format_size(usage.moved_bytes),
                    format_size(usage.available_bytes)
                ),
            );
        }
    }
    table.to_string()
}
