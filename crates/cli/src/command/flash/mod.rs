//! `weft flash`: shows modelled flash devices without a volume, and runs workloads on them.

mod bench;
mod grants;
mod heat;
mod info;
mod report;
mod serve;
mod simulate;
mod wear;
mod workload;

use crate::args::GeometryArgs;
use crate::error::CliError;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use weft_core::units::parse_size;
use weft_device::Geometry;
use weft_device::nand::FlashSetup;

/// Size of a device under a monitor unless the user gives one.
const MONITORED_SIZE_DEFAULT: u64 = 8 << 30;

/// `weft flash`
#[derive(Subcommand, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft flash info --preset tlc\n  weft flash create --size 1G nand.img\n  \
    weft flash simulate --preset tlc --workload hot-cold --op 12.5 --json\n  \
    weft flash simulate --level policy --gc fifo --op 12.5\n  weft flash bench --table1\n  \
    weft flash wear nand.img\n  weft flash serve --format nand.img\n  \
    weft flash grants nand.img.sock\n  weft flash release nand.img.sock cache"
)]
pub enum FlashCommand {
    /// Show the geometry and timing of a modelled flash device, and the state of a device in an image file.
    Info(InfoArgs),
    /// Make an open-channel device in an image file.
    Create(CreateArgs),
    /// Run a workload or a block trace against a modelled device, in virtual time.
    Simulate(Box<simulate::SimulateArgs>),
    /// Compare one application at each level of flash.
    Bench(bench::BenchArgs),
    /// Show the wear of each part of a device in an image file.
    Wear(wear::WearArgs),
    /// List the grants of a flash monitor: the flash that it has allotted to programs.
    Grants(grants::GrantsArgs),
    /// Return the flash of a grant to the monitor; the data on it is lost.
    Release(grants::ReleaseArgs),
    /// Serve the flash monitor of a device in an image file, so that several programs can share the device.
    Serve(serve::ServeArgs),
}

/// The flash of a device without zones.
#[derive(Args, Debug, Default)]
pub struct FlashArgs {
    #[command(flatten)]
    geometry: GeometryArgs,
    /// Size of the device's flash [default: 1G; 8G to simulate a level]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,
}

impl FlashArgs {
    fn geometry(&self) -> Result<Geometry, CliError> {
        self.geometry.geometry(self.size)
    }

    /// The same, with room for what a monitor keeps of each LUN.
    fn monitored_geometry(&self) -> Result<Geometry, CliError> {
        self.geometry.geometry_or(self.size, MONITORED_SIZE_DEFAULT)
    }
}

/// `weft flash info`
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// An image that 'weft flash create' made; without it, the device that the options describe.
    #[arg(conflicts_with_all = ["preset", "geometry", "size", "zone_size"])]
    image: Option<PathBuf>,
    #[command(flatten)]
    flash: FlashArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `weft flash create`
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// The image file; the command makes it sparse.
    image: PathBuf,
    #[command(flatten)]
    flash: FlashArgs,
    /// Out-of-band bytes in each page [default: 64]
    #[arg(long, value_name = "N")]
    oob_bytes: Option<u32>,
    /// Overwrite an existing file.
    #[arg(long)]
    force: bool,
}

impl CreateArgs {
    fn setup(&self) -> Result<FlashSetup, CliError> {
        let setup = FlashSetup::new(self.flash.geometry()?);
        Ok(FlashSetup { oob_bytes: self.oob_bytes.unwrap_or(setup.oob_bytes), ..setup })
    }
}

/// Runs a command on modelled flash.
pub fn run(command: &FlashCommand) -> Result<(), CliError> {
    match command {
        FlashCommand::Info(args) => info::run(args),
        FlashCommand::Create(args) => info::create(args),
        FlashCommand::Simulate(args) => simulate::run(args),
        FlashCommand::Bench(args) => bench::run(args),
        FlashCommand::Wear(args) => wear::run(args),
        FlashCommand::Grants(args) => grants::list(args),
        FlashCommand::Release(args) => grants::release(args),
        FlashCommand::Serve(args) => serve::run(args),
    }
}
