//! `weft flash`: shows modelled flash devices without a volume, and runs workloads on them.

mod bench;
mod drive;
mod grants;
mod heat;
mod info;
mod report;
mod serve;
mod simulate;
mod wear;
mod workload;

use crate::error::CliError;
use clap::Subcommand;

/// `weft flash`
#[derive(Subcommand, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft flash info --preset tlc\n  weft flash create --size 1G nand.img\n  \
    weft flash create --presentation fdp --handles 4 drive.img\n  weft flash write drive.img data\n  \
    weft flash simulate --image drive.img\n  \
    weft flash simulate --preset tlc --workload hot-cold --op 12.5 --json\n  \
    weft flash simulate --level policy --gc fifo --op 12.5\n  weft flash bench --table1\n  \
    weft flash wear nand.img\n  weft flash serve --format nand.img\n  \
    weft flash grants nand.img.sock\n  weft flash release nand.img.sock cache\n\nA LUN is a flash die. The flash \
    monitor assigns LUNs to programs, replaces bad blocks and levels wear between LUNs. \
    docs/how-to/choose-your-level.md describes the monitor and its levels."
)]
pub enum FlashCommand {
    /// Show the geometry and timing of a modelled flash device, and the state of a device in an image file.
    Info(info::InfoArgs),
    /// Make a device in an image file: open-channel flash, or a conventional or FDP drive.
    Create(info::CreateArgs),
    /// Write to a conventional or FDP drive in an image file.
    Write(drive::WriteArgs),
    /// Read from a conventional or FDP drive in an image file.
    Read(drive::ReadArgs),
    /// Deallocate (trim) blocks of a conventional or FDP drive in an image file.
    Deallocate(drive::DeallocateArgs),
    /// Run a workload or a block trace against a modelled device, in virtual time.
    Simulate(Box<simulate::SimulateArgs>),
    /// Run the same application at each level of the flash monitor, and compare copies and erases.
    Bench(bench::BenchArgs),
    /// Show the wear of each LUN of a device in an image file.
    Wear(wear::WearArgs),
    /// List the grants of a flash monitor. A grant is the flash that a program owns.
    Grants(grants::GrantsArgs),
    /// Return the flash of a grant to the monitor. The data of the grant is lost.
    Release(grants::ReleaseArgs),
    /// Serve the flash monitor of a device in an image file, so that several programs can share the device.
    Serve(serve::ServeArgs),
}

/// Runs a command on modelled flash.
pub fn run(command: &FlashCommand) -> Result<(), CliError> {
    match command {
        FlashCommand::Info(args) => info::run(args),
        FlashCommand::Create(args) => info::create(args),
        FlashCommand::Write(args) => drive::write(args),
        FlashCommand::Read(args) => drive::read(args),
        FlashCommand::Deallocate(args) => drive::deallocate(args),
        FlashCommand::Simulate(args) => simulate::run(args),
        FlashCommand::Bench(args) => bench::run(args),
        FlashCommand::Wear(args) => wear::run(args),
        FlashCommand::Grants(args) => grants::list(args),
        FlashCommand::Release(args) => grants::release(args),
        FlashCommand::Serve(args) => serve::run(args),
    }
}
