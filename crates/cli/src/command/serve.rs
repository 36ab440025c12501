//! `weft serve`: serves a volume until a signal stops it.

use crate::args::PlacementArgs;
use crate::error::CliError;
use crate::host::{self, Hosted, ServerAt};
use crate::report::SnapshotText;
use crate::say;
use crate::sys::signal::Queue;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// `weft serve`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft serve --volume vol.img &\n  weft run --volume vol.img -- ls /weft\n  kill %1\n\n\
    SIGTERM, SIGINT and SIGHUP shut the server down cleanly; one that is ignored at the start, as under nohup, stays \
    ignored. 'weft run' connects a program to the server. Without \
    'weft run', set LD_PRELOAD, WEFT_SOCKET and WEFT_AT in the environment of the program; docs/shim.md describes them."
)]
pub struct ServeArgs {
    /// The volume: an image file, a zoned block device, zonefs:DIR, or policy:IMAGE#GRANT or function:IMAGE#GRANT.
    #[arg(long, value_name = "IMAGE")]
    pub volume: PathBuf,
    /// The socket to listen on [default: a socket in a private directory of this user]. Other commands of this user find
    /// the server by the name of the volume
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Print no report at the end.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Serves a volume.
pub fn run(args: &ServeArgs) -> Result<(), CliError> {
    if args.volume.as_os_str().as_encoded_bytes().starts_with(b"mem:") {
        return Err(CliError::of(
            &args.volume,
            "only 'weft run' makes a volume in memory",
            "'weft format --size 4G IMAGE' makes a volume that can be served",
        ));
    }
    args.placement.program_cpus.check()?;
    let signals = Queue::block()?;
    let choice = args.placement.choice();
    args.placement.memory.apply(&args.volume)?;
    let hosted = match &args.socket {
        Some(socket) => Hosted::on_socket(&args.volume, socket, &choice)?,
        None => match host::reach(&args.volume, &choice)? {
            ServerAt::Here(hosted) => *hosted,
            ServerAt::Elsewhere(socket) => {
                return Err(CliError::of(
                    &args.volume,
                    format_args!("already served on {}", socket.display()),
                    "programs can join with 'weft run'; to restart the server, stop it first with SIGTERM",
                ));
            }
        },
    };
    say::serving(&args.volume, hosted.socket());
    if let (Some(processors), false) = (&choice.program_cpus, args.quiet) {
        say::say(format_args!("weft: compound operations run on {processors}"));
    }
    let before = hosted.snapshot();
    while !signals.ends_within(Duration::from_secs(60))? {}
    let after = hosted.stop()?;
    if !args.quiet {
        say::say(SnapshotText(&after.since(&before)));
    }
    Ok(())
}
