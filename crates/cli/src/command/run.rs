//! `weft run`: runs a program that sees a volume at a path of its own.

use super::{hints, mount};
use crate::args::{GeometryArgs, PlacementArgs};
use crate::error::CliError;
use crate::guest::{Guest, Joined, Output, elsewhere, exit_status, find_shim, here, not_asked};
use crate::host::{self, Hosted, ServerAt};
use crate::intercept::Intercept;
use crate::output;
use crate::say::{say, warn};
use crate::sys::signal::Queue;
use crate::volume;
use clap::Args;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use weft_core::serve::connect_now;
use weft_fuse::{FuseError, Kept, Mount};
use weft_volume::spec::path_of;
use weft_volume::{MountChoice, Record, Spec, VolumeError};

/// `weft run`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    weft run --volume vol.img -- ls -l /weft\n  \
    weft run --volume vol.img --mode rules --report run.json -- db_bench --db=/weft/db --benchmarks=fillrandom\n  \
    weft run --volume mem:512M --zone-size 8M -- sh -c 'cp -r /etc /weft && du -sh /weft/etc'\n  \
    weft run --volume mem:2G --record db.rec -- db_bench --db=/weft/db --benchmarks=fillrandom,overwrite\n  \
    weft run --hints -- db_bench --db=/var/tmp/db --benchmarks=fillrandom\n\n\
    EXIT STATUS\n  The exit status of the program, or 128 plus the signal number when a signal ended the program.\n  \
    125 weft itself failed, 126 the program cannot run under weft, 127 the program was not found")]
pub struct RunArgs {
    /// The volume: an image file, a zoned block device, zonefs:DIR, policy:IMAGE#GRANT, function:IMAGE#GRANT, or mem:SIZE.
    /// mem:SIZE makes a volume in memory and discards it after the run. mem: without a size keeps files in memory and models
    /// no device.
    #[arg(long, value_name = "IMAGE|DEVICE|zonefs:DIR|mem:[SIZE]")]
    #[arg(required_unless_present_any = ["hints", "socket"])]
    pub volume: Option<String>,
    /// Socket of a running server, such as the server of another user; use this option instead of --volume
    #[arg(long, value_name = "PATH", conflicts_with_all = ["volume", "hints", "preset", "geometry", "zone_size", "record", "real_time", "read_only"])]
    pub socket: Option<PathBuf>,
    /// Use no volume. Files stay where they are, and weft passes the expected lifetime of each file to the kernel as a
    /// write hint. Some programs, such as RocksDB before 9.2, set write hints themselves, with an argument that the
    /// kernel refuses; weft corrects this argument.
    #[arg(long, conflicts_with_all = ["volume", "preset", "geometry", "zone_size", "report", "record", "real_time", "intercept", "program_cpus"])]
    pub hints: bool,
    /// The calls of the program that weft intercepts.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub intercept: Intercept,
    /// The path at which the program sees the volume; this path need not exist.
    #[arg(long, value_name = "DIR", default_value = crate::access::MOUNT_POINT)]
    pub at: String,
    /// Also mount the volume on this directory while the program runs, for programs that weft cannot run; see 'weft mount'.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["hints", "socket"])]
    pub mount: Option<PathBuf>,
    /// Refuse every change to the volume, and do not write to the image. With this option, weft also accepts a damaged
    /// volume: the program can read the data that is still readable.
    #[arg(long, conflicts_with_all = ["record", "hints"])]
    pub read_only: bool,
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Also write the report to FILE, as JSON; docs/formats/report-json.md describes the format.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Record the program's file operations in FILE, for 'weft replay'; docs/formats/recording.md describes the format.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Print no report.
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
    // The last: the heading is that of all options after it.
    #[command(flatten, next_help_heading = "Device of a volume in memory (--volume mem:SIZE)")]
    pub geometry: GeometryArgs,
}

/// What leads to the volume.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// A server's socket.
    Socket(&'a Path),
    /// The volume itself.
    Volume(&'a Spec),
}

/// Who serves it.
enum Reached<'a> {
    Here(Box<Hosted>),
    There(Box<Joined<'a>>),
}

/// Runs a program and returns its exit status.
pub fn run(args: &RunArgs) -> Result<u8, CliError> {
    let guest =
        Guest { command: &args.command, at: &args.at, stdout: Output::Inherit, intercept: args.intercept };
    guest.check()?;
    args.intercept.check()?;
    args.placement.program_cpus.check()?;
    let spec = args.volume.as_deref().map(Spec::parse).transpose()?;
    let image = match &spec {
        Some(Spec::Image(name)) => Some(path_of(name)),
        _ => None,
    };
    let volume: Vec<&Path> = image.as_deref().into_iter().collect();
    for file in args.report.iter().chain(&args.record) {
        output::check(file, &volume)?;
    }
    let signals = Queue::block()?;
    let source = match (&args.socket, &spec) {
        (Some(socket), _) => Source::Socket(socket),
        (None, Some(spec)) => Source::Volume(spec),
        (None, None) => return hints::run(&args.placement, args.quiet, &guest, &signals),
    };
    let name = match (&args.volume, source) {
        (Some(volume), _) => volume.clone(),
        (None, Source::Socket(socket)) => socket.display().to_string(),
        (None, Source::Volume(spec)) => spec.to_string(),
    };
    let found = || match source {
        Source::Socket(socket) => join(socket, &args.placement),
        Source::Volume(spec) => {
            let choice = MountChoice {
                record: record(args),
                look: args.read_only,
                read_only: args.read_only,
                ..args.placement.choice()
            };
            reach(spec, &args.geometry, &args.placement, &choice)
        }
    };
    let attempt = || match found().map_err(|error| (0, error))? {
        ServerAt::Here(hosted) => Ok(Reached::Here(hosted)),
        ServerAt::Elsewhere(socket) => Joined::new(&guest, &socket, &name, &signals)
            .map(|joined| Reached::There(Box::new(joined)))
            .map_err(|errno| (errno, not_asked(&socket, errno))),
    };
    let reached =
        host::until_open(attempt, |(errno, _)| host::is_closing(*errno)).map_err(|(_, error)| error)?;
    let shim = find_shim()?;
    let ran = match reached {
        Reached::There(_) if args.mount.is_some() => {
            return Err(CliError::said(
                format!("{name}: another process serves the volume, and only the server can mount it"),
                "leave out --mount, or stop that server first",
            ));
        }
        Reached::There(joined) => elsewhere(&guest, &shim, *joined, &signals)?,
        Reached::Here(hosted) => {
            let mount = match mounted(args, &name, &hosted) {
                Ok(mount) => mount,
                Err(error) => {
                    hosted.stop()?;
                    return Err(error);
                }
            };
            here(*hosted, mount, &guest, &shim, &signals)?
        }
    };
    let mut failure = ran.failure;
    if let Some(report) = &ran.report {
        if !args.quiet {
            say(format_args!("\n{report}"));
        }
        let written = args.report.as_ref().map_or(Ok(()), |path| write_report(path, report));
        failure = failure.or(written.err());
    }
    match failure {
        // The program's own failure is what its caller has to know first.
        Some(error) if ran.status == 0 => Err(error),
        Some(error) => {
            warn(&error);
            Ok(exit_status(ran.status))
        }
        None => Ok(exit_status(ran.status)),
    }
}

/// The mount beside the program.
fn mounted(args: &RunArgs, name: &str, hosted: &Hosted) -> Result<Option<Mount>, CliError> {
    let Some(dir) = &args.mount else { return Ok(None) };
    mount::make_way(dir)?;
    let choice = weft_fuse::MountChoice { read_only: args.read_only, ..mount::choice(Path::new(name)) };
    // The program ends with its server, and so does the mount.
    let kept = Kept::new().map_err(|source| FuseError::Mount { dir: dir.clone(), source })?;
    Ok(Some(Mount::new(hosted.volume().clone(), dir, &choice, kept)?))
}

/// The recording to make, called by the program's own name.
fn record(args: &RunArgs) -> Option<Record> {
    let name = |word: &OsString| Path::new(word).file_name().map(|name| name.to_string_lossy().into_owned());
    let program = args.command.first().and_then(name).unwrap_or_default();
    args.record.clone().map(|path| Record { path, program })
}

fn reach(
    spec: &Spec,
    geometry: &GeometryArgs,
    placement: &PlacementArgs,
    choice: &MountChoice,
) -> Result<ServerAt, CliError> {
    let memory = |mounted| Hosted::unlisted(mounted).map(|hosted| ServerAt::Here(Box::new(hosted)));
    let reached = match spec {
        Spec::MemFs if choice.eviction.is_some() => {
            return Err(VolumeError::NoPageClasses("mem:".into()).into());
        }
        Spec::MemFs if geometry.is_given() || choice.real_time => {
            return Err(CliError::said(
                "mem: has no device, and so neither a geometry nor a time of its own",
                "mem:SIZE is a volume on a modelled device",
            ));
        }
        Spec::Image(_) if geometry.is_given() => {
            return Err(CliError::said(
                "--preset, --geometry and --zone-size are options of volumes in memory (mem:SIZE)",
                "leave them out: 'weft format' has set the geometry of the volume",
            ));
        }
        Spec::Memory(_) | Spec::MemFs if placement.memory.is_given() => {
            return Err(CliError::said(
                format!("{spec}: --memory is an option of volumes on a disk"),
                "leave it out: all of this volume is in memory",
            ));
        }
        Spec::Image(path) => {
            placement.memory.apply(&path_of(path))?;
            host::reach(path, choice)?
        }
        Spec::Memory(bytes) => {
            let geometry = geometry.of_volume(Some(*bytes), "")?;
            memory(volume::open_memory(spec.to_string(), Some(&geometry), choice)?)?
        }
        Spec::MemFs => memory(volume::open_memory(spec.to_string(), None, choice)?)?,
    };
    if matches!(reached, ServerAt::Here(_)) {
        return Ok(reached);
    }
    let (why, remedy) = match choice {
        _ if placement.is_given() => return Err(decided_elsewhere(spec)),
        MountChoice { read_only: true, .. } => (
            "serves the volume for reading and writing",
            "stop that server (SIGTERM), or run the program without --read-only",
        ),
        MountChoice { record: Some(_), .. } => (
            "serves the volume, and only the server can record",
            "stop that server (SIGTERM), and run the program again",
        ),
        _ => return Ok(reached),
    };
    Err(CliError::said(format!("{spec}: another process {why}"), remedy))
}

fn decided_elsewhere(volume: impl Display) -> CliError {
    CliError::said(
        format!("{volume}: another process serves the volume, and placement is decided there"),
        "leave out --mode, --policy, --seed, --real-time, --drive-cache, --shared-memory, --memory and --program-cpus, or give them to \
         'weft serve'",
    )
}

/// The server that listens on a socket.
fn join(socket: &Path, placement: &PlacementArgs) -> Result<ServerAt, CliError> {
    // Programs change their directory.
    let path = std::path::absolute(socket).map_err(|e| CliError::io("find", socket, e))?;
    if placement.is_given() {
        return Err(decided_elsewhere(path.display()));
    }
    let why = |error: std::io::Error| match error.kind() {
        ErrorKind::PermissionDenied => "this user has no permission to connect to the socket",
        _ => "no server listens there",
    };
    match connect_now(&path) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(CliError::of(
            &path,
            why(error),
            "'weft serve --volume IMAGE --socket PATH' starts a server; 'chmod 666 PATH' lets other users connect",
        )),
        _ => Ok(ServerAt::Elsewhere(path)),
    }
}

/// Writes a report as JSON.
pub fn write_report(path: &Path, report: &impl serde::Serialize) -> Result<(), CliError> {
    // Again: the program may have made an image there.
    output::check(path, &[])?;
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        serde_json::to_writer_pretty(&mut file, report)?;
        file.write_all(b"\n")
    };
    write().map_err(|e| CliError::io("write", path, e))
}
