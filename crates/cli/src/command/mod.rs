//! The commands, one file or folder each: the arguments of a command stand beside what it does.

mod archive;
mod btree;
mod class;
mod compare;
mod compound;
mod copy;
mod files;
mod flash;
mod format;
mod fsck;
mod hints;
mod kv;
mod lab;
mod list;
pub mod mount;
mod policy;
mod quota;
mod replay;
mod run;
mod salvage;
mod secure;
mod serve;
mod snapshot;
mod stats;
mod tags;
mod unmount;
mod zones;

use crate::error::CliError;
use crate::say::print;
use clap::Parser;

/// Run unmodified programs on zoned flash, and reduce and measure write amplification.
#[derive(Parser, Debug)]
#[command(
    name = "weft",
    version,
    max_term_width = 100,
    after_help = "EXAMPLES\n  \
        weft format --size 4G vol.img\n  \
        weft run --volume vol.img -- db_bench --db=/weft/db --benchmarks=fillrandom\n  \
        weft ls -l vol.img:/db\n\n\
        IMAGE:/path names a file on a volume. The environment variable WEFT_LOG sets the level of the messages that \
        weft logs to standard error: error, warn (the default), info, debug or trace. The variable can also set a level \
        for each module, such as warn,weft_lfs=debug."
)]
pub enum Command {
    /// Make a volume on an emulated zoned device in an image file, or on a real zoned drive.
    Format(format::FormatArgs),
    /// Run a program that sees a volume at the path /weft.
    Run(run::RunArgs),
    /// Mount a volume on a directory (FUSE).
    Mount(mount::MountArgs),
    /// Unmount a volume, and wait until its image is closed.
    Unmount(unmount::UnmountArgs),
    /// Serve a volume to programs until a signal stops the server.
    Serve(serve::ServeArgs),
    /// List files on a volume.
    Ls(list::LsArgs),
    /// Show the attributes of files on a volume.
    Stat(list::PathsArgs),
    /// Write files of a volume to standard output.
    Cat(list::PathsArgs),
    /// Copy files in, out, within and between volumes.
    Cp(copy::CpArgs),
    /// Write the files of a volume to a tar archive.
    Export(archive::export::ExportArgs),
    /// Copy the files of a tar archive to a volume.
    Import(archive::import::ImportArgs),
    /// Remove files from a volume.
    Rm(files::RmArgs),
    /// Make directories on a volume.
    Mkdir(files::MkdirArgs),
    /// Move or rename files within a volume.
    Mv(files::MvArgs),
    /// Show and set the classes of files and directories, by which the cache keeps their pages.
    #[command(subcommand)]
    Class(class::ClassCommand),
    /// Run a compound operation, a program of file operations, on a volume.
    Do(compound::DoArgs),
    /// Show the used and free space on a volume.
    Df(list::DfArgs),
    /// Check a volume for damage.
    Fsck(fsck::FsckArgs),
    /// Show, set and lift limits of what directory trees take.
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    /// Make, list and delete snapshots of a volume.
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Copy all readable files of a damaged volume to a new one.
    Salvage(salvage::SalvageArgs),
    /// Look for bytes that secure deletion must not leave on a medium.
    #[command(subcommand)]
    Secure(secure::SecureCommand),
    /// Show the counters of a volume and its device.
    Stats(stats::StatsArgs),
    /// Show the zones of a volume.
    Zones(zones::ZonesArgs),
    /// Show, check and explain placement policies.
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Run a program in each placement mode on a new volume, and compare write amplification.
    Compare(compare::CompareArgs),
    /// Replay recordings of programs in each placement mode, and compare write amplification.
    Replay(replay::ReplayArgs),
    /// Make, simulate and share modelled flash devices, without a volume.
    #[command(subcommand)]
    Flash(flash::FlashCommand),
    /// Make, check and inspect tag stores (crash-safe graphs of records).
    #[command(subcommand)]
    Tags(tags::TagsCommand),
    /// Use a key-value store in a tag store.
    #[command(subcommand)]
    Kv(kv::KvCommand),
    /// Use an ordered map (B+tree) in a tag store.
    #[command(subcommand, name = "btree")]
    BTree(btree::BTreeCommand),
    /// Run a command in a virtual machine with emulated zoned and FDP drives.
    Lab(lab::LabArgs),
    /// Show the version.
    Version,
}

/// Does it; returns the exit status.
pub fn dispatch(command: &Command) -> Result<u8, CliError> {
    let done = match command {
        Command::Run(args) => return run::run(args),
        Command::Lab(args) => return lab::run(args),
        Command::Mount(args) => return mount::run(args),
        Command::Compare(args) => return compare::run(args),
        Command::Replay(args) => return replay::run(args),
        Command::Format(args) => format::run(args),
        Command::Unmount(args) => unmount::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Ls(args) => list::ls(args),
        Command::Stat(args) => list::stat(args),
        Command::Df(args) => list::df(args),
        Command::Cat(args) => files::cat(args),
        Command::Rm(args) => files::rm(args),
        Command::Mkdir(args) => files::mkdir(args),
        Command::Mv(args) => files::mv(args),
        Command::Cp(args) => copy::run(args),
        Command::Class(command) => class::run(command),
        Command::Do(args) => compound::run(args),
        Command::Export(args) => archive::export::run(args),
        Command::Import(args) => archive::import::run(args),
        Command::Fsck(args) => fsck::run(args),
        Command::Quota(command) => quota::run(command),
        Command::Snapshot(command) => snapshot::run(command),
        Command::Salvage(args) => salvage::run(args),
        Command::Secure(command) => secure::run(command),
        Command::Stats(args) => stats::run(args),
        Command::Zones(args) => zones::run(args),
        Command::Policy(args) => policy::run(args),
        Command::Flash(args) => flash::run(args),
        Command::Tags(command) => tags::run(command),
        Command::Kv(command) => kv::run(command),
        Command::BTree(command) => btree::run(command),
        Command::Version => print(concat!("weft ", env!("CARGO_PKG_VERSION"), "\n")),
    };
    done.map(|()| 0)
}
