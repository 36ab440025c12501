//! `weft serve`: serves a volume until a signal stops it.

use crate::args::ServeArgs;
use crate::error::CliError;
use crate::host::{self, Hosted, ServerAt};
use crate::report::SnapshotText;
use crate::say::{Out, say, warn};
use crate::sys::signal::{ENDING, Queue};
use crate::volume;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Serves a volume.
pub fn run(args: &ServeArgs) -> Result<(), CliError> {
    let signals = Queue::block().map_err(|e| CliError::io("signals of", Path::new("this process"), e))?;
    let choice = args.placement.choice();
    let hosted = match &args.socket {
        Some(socket) => {
            let mut hosted = Hosted::start(volume::open(&args.volume, &choice)?, socket.clone())?;
            if let Err(error) = hosted.be_found_by(&args.volume) {
                warn(format_args!("only --socket leads other commands to this server: {error}"));
            }
            hosted
        }
        None => match host::reach(&args.volume, &choice)? {
            ServerAt::Here(hosted) => *hosted,
            ServerAt::Elsewhere(socket) => {
                return Err(CliError::said(
                    format!("{}: already served on {}", args.volume.display(), socket.display()),
                    "programs can join with 'weft run'; to restart the server, stop it first with SIGTERM",
                ));
            }
        },
    };
    let mut out = Out::new();
    let ready = writeln!(out, "weft: serving {} on {}", args.volume.display(), hosted.socket().display());
    // Whoever started the server may have closed its standard output; it serves all the same.
    let _ = ready.and_then(|()| out.flush());
    let before = hosted.snapshot();
    loop {
        let came = signals.next(Duration::from_secs(60));
        let came = came.map_err(|e| CliError::io("signals of", Path::new("this process"), e))?;
        if came.is_some_and(|came| ENDING.contains(&came.signal)) {
            break;
        }
    }
    let after = hosted.stop()?;
    if !args.quiet {
        say(SnapshotText(&after.since(&before)));
    }
    Ok(())
}
