//! Side by side with peers: the same program on the same disk with the same durability, once on the disk's own file
//! system and once on a weft volume whose image lies on it; and what a call costs that is not weft's.
//!
//! Runs come in pairs, in turns, and every other pair the other way round, so that what changes on the machine meets
//! both sides alike. Ratios are taken within pairs; the median and the range of them are what is reported. Nothing here
//! is a test: a benchmark fails only when a program does.
//!
//! - [`pairs`]: taking turns, medians, ratios;
//! - [`db_bench`]: RocksDB's benchmark as a workload;
//! - [`disk`]: `weft-bench disk`, volume against file system, and `weft-bench non-weft`, hooked against not hooked;
//! - [`hook_cost`]: `weft-bench hook-cost`, single calls on files that are not weft's;
//! - [`calls`]: `weft-bench calls`, single calls on a volume's files; [`programs`]: `weft-bench programs`, programs there;
//! - [`compound`]: `weft-bench compound`, programs of several operations;
//! - [`fairness`]: `weft-bench fairness`, tenants on a device processor of a server;
//! - [`loads`]: what else the machine does meanwhile; [`rounds`]: runs of which each has many figures.

mod calls;
mod compound;
mod db_bench;
mod disk;
mod error;
mod fairness;
mod hook_cost;
mod loads;
mod pairs;
mod programs;
mod rounds;

use clap::{Args, Parser};
use error::BenchError;
use pairs::Comparison;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare weft with the file system of the same disk.
#[derive(Parser, Debug)]
#[command(name = "weft-bench", version, max_term_width = 100)]
enum Command {
    /// db_bench on a volume whose image lies in a directory, against db_bench in that directory.
    Disk {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        load: Load,
    },
    /// db_bench in a directory under the preloaded library, against db_bench there without it.
    NonWeft {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        load: Load,
    },
    /// Calls on files that are not weft's under the preloaded library, against the same calls without it.
    HookCost {
        #[command(flatten)]
        common: Common,
    },
    /// Calls on the files of a volume whose image lies in a directory, against calls on files in that directory.
    Calls {
        #[command(flatten)]
        common: Common,
        /// What else the machine does meanwhile.
        #[arg(long, value_delimiter = ',', default_value = "idle,busy,one-cpu,other-cpu")]
        loads: Vec<loads::Load>,
        /// Threads that call at once.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
        threads: u32,
        /// Operations of each kind in a run.
        #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
    },
    /// Programs on a volume whose image lies in a directory, against the same programs in that directory.
    Programs {
        #[command(flatten)]
        common: Common,
        /// Size of the volume.
        #[arg(long, value_name = "BYTES", default_value = "1G")]
        size: String,
    },
    /// disk, non-weft and hook-cost.
    All {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        load: Load,
    },
    /// Programs of several operations on a volume whose image lies in a directory, against the same operations as plain calls there and in
    /// that directory.
    Compound {
        #[command(flatten)]
        common: Common,
        /// How often each kind of work is done in a run.
        #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
        /// Only the work whose name begins like this.
        #[arg(long, value_name = "NAME", default_value = "")]
        only: String,
        /// What else the machine does meanwhile.
        #[arg(long, value_delimiter = ',', default_value = "idle")]
        loads: Vec<loads::Load>,
    },
    /// A tenant with cheap programs beside one with expensive ones, on one modelled device processor, under each scheduler. The tenants are
    /// other users, so only the superuser can run it.
    Fairness {
        #[command(flatten)]
        settings: fairness::Settings,
    },
    /// Runs one kind of program over and over and prints what was done; what fairness starts.
    #[command(hide = true)]
    FairnessTenant {
        #[command(flatten)]
        args: fairness::TenantArgs,
    },
    /// Does each kind of work over and over and prints its microseconds; what compound starts.
    #[command(hide = true)]
    CompoundLoop {
        /// Where.
        dir: PathBuf,
        #[command(flatten)]
        work: compound::Choice,
    },
    /// Does each kind of work as programs in this process, on an image, and then what follows as a command.
    #[command(hide = true)]
    CompoundInProcess {
        /// The image.
        image: PathBuf,
        #[command(flatten)]
        work: compound::Choice,
        /// The command.
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Makes operations over and over and prints their microseconds; what calls starts.
    #[command(hide = true)]
    OperationLoop {
        /// Where.
        dir: PathBuf,
        /// Threads.
        threads: u32,
        /// Operations of each kind.
        count: u32,
    },
    /// Makes one kind of call over and over and prints its nanoseconds; what hook-cost starts.
    #[command(hide = true)]
    CallLoop {
        call: String,
        /// A file to call it on.
        file: PathBuf,
    },
}

/// What all comparisons take.
#[derive(Args, Debug, Clone)]
pub struct Common {
    /// Pairs of runs; at least 5 for figures that are to be shown.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// A directory on the disk that is measured.
    #[arg(long, value_name = "DIR", default_value = "target/weft-bench")]
    pub dir: PathBuf,
    /// Write every run as JSON, too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The weft command [default: WEFT, or the one beside this program]
    #[arg(long, value_name = "FILE", env = "WEFT")]
    pub weft: Option<PathBuf>,
}

/// How large the database is.
#[derive(Args, Debug, Clone)]
pub struct Load {
    /// Keys of 16 bytes with values of 400.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub keys: u64,
    /// Synced writes of fillsync.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub syncs: u64,
    /// Size of the volume.
    #[arg(long, value_name = "BYTES", default_value = "2G")]
    pub size: String,
    /// Workloads, of fillrandom, fillsync, readrandom and readwhilewriting.
    #[arg(long, value_delimiter = ',', default_value = "fillrandom,fillsync,readrandom,readwhilewriting")]
    pub workloads: Vec<db_bench::Workload>,
}

impl Common {
    /// The weft command.
    pub fn weft(&self) -> Result<PathBuf, BenchError> {
        weft_at(self.weft.as_ref())
    }
}

/// The weft command: the one that was said, or the one beside this program.
fn weft_at(said: Option<&PathBuf>) -> Result<PathBuf, BenchError> {
    let beside = || std::env::current_exe().map(|own| own.with_file_name("weft"));
    let path = said.cloned().map_or_else(beside, Ok).map_err(|e| BenchError::io("own path", e))?;
    if path.is_file() { Ok(path) } else { Err(BenchError::NoWeft(path)) }
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "weft-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), BenchError> {
    let (common, comparisons) = match &command {
        Command::CallLoop { call, file } => return hook_cost::call_loop(call, file),
        Command::OperationLoop { dir, threads, count } => {
            return calls::operation_loop(dir, *threads, *count);
        }
        Command::CompoundLoop { dir, work } => return compound::compound_loop(dir, work),
        Command::CompoundInProcess { image, work, command } => {
            return compound::in_process(image, work, command);
        }
        Command::Fairness { settings } => {
            return fairness::compare(settings, &weft_at(settings.weft.as_ref())?);
        }
        Command::FairnessTenant { args } => {
            let done = fairness::run_tenant(&args.socket, args.load, args.window)?;
            let json = serde_json::to_string(&done).map_err(io::Error::other);
            let written = json.and_then(|json| writeln!(io::stdout(), "{json}"));
            return written.map_err(|e| BenchError::io("standard output", e));
        }
        Command::Compound { common, count, only, loads } => {
            let work = compound::Choice { count: *count, only: only.clone() };
            (common, compound::compare(common, loads, &work))
        }
        Command::Calls { common, loads, threads, count } => {
            (common, calls::compare(common, loads, *threads, *count))
        }
        Command::Programs { common, size } => (common, programs::compare(common, size)),
        Command::Disk { common, load } => (common, disk::disk(common, load)),
        Command::NonWeft { common, load } => (common, disk::non_weft(common, load)),
        Command::HookCost { common } => (common, hook_cost::compare(common)),
        Command::All { common, load } => {
            let all = [disk::disk(common, load)?, disk::non_weft(common, load)?, hook_cost::compare(common)?];
            (common, Ok(all.concat()))
        }
    };
    let comparisons = comparisons?;
    if let Some(path) = &common.json {
        write_json(path, &comparisons).map_err(|e| BenchError::io(path.display(), e))?;
    }
    let written = write!(io::stdout(), "{}", pairs::table(&comparisons));
    written.map_err(|e| BenchError::io("standard output", e))
}

fn write_json(path: &std::path::Path, comparisons: &[Comparison]) -> io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    serde_json::to_writer_pretty(&mut file, comparisons)?;
    file.write_all(b"\n")
}
