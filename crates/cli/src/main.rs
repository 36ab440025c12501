//! The weft command: volumes in image files, programs on them, and what placement made of the programs' data.
//!
//! [`command`] is the command line, with a file for each command. A volume is opened in [`volume`], served in
//! [`host`] (unless another process serves it already), and used through [`access`] as any other process would use it.

mod access;
mod archive;
mod args;
mod byte_text;
mod cache_args;
mod command;
mod error;
mod file_arg;
mod guest;
mod host;
mod intercept;
mod kind;
mod mounted;
mod output;
mod program;
mod progress;
mod report;
mod say;
mod sys;
mod table;
mod tree;
mod volume;

use clap::Parser;
use command::{Command, dispatch};
use error::CliError;
use guest::OWN_FAILURE;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static HEAP: sys::heap::Heap = sys::heap::Heap;

fn main() -> ExitCode {
    // Before anything that needs much stack, the command line among it.
    if let Err(error) = sys::limit::lift() {
        tell(&error);
        return ExitCode::from(OWN_FAILURE);
    }
    let arguments = command::mount::helper::command_line(std::env::args_os().collect());
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => {
            // Help and the version are no errors. After `weft run` a status may be the program's.
            let runs = std::env::args_os().nth(1).is_some_and(|name| name == "run" || name == "lab");
            let status = if error.use_stderr() && runs { OWN_FAILURE } else { error.exit_code() as u8 };
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    start_log();
    let own_failure = if matches!(command, Command::Run(_) | Command::Lab(_)) { OWN_FAILURE } else { 0 };
    match dispatch(&command) {
        // A program's status is its own; what a command says of a part must not look as if it were all.
        Ok(0) if volume::is_incomplete() && !matches!(command, Command::Run(_)) => ExitCode::FAILURE,
        Ok(status) => ExitCode::from(status),
        Err(error) if is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&error);
            // Whatever it was doing then, it ended for the signal. Statuses of programs are their own.
            let ended_by_signal = own_failure == 0 && sys::signal::was_interrupted();
            let status = if ended_by_signal { sys::signal::status_of_interrupt() } else { error.status() };
            ExitCode::from(status.max(own_failure))
        }
    }
}

fn tell(error: &CliError) {
    say::warn(error);
    let limit = || error.system().and_then(sys::limit::cause);
    if let Some(remedy) = error.remedy().or_else(limit) {
        say::say(format_args!("      {remedy}"));
    }
}

fn start_log() {
    let asked = std::env::var("WEFT_LOG").unwrap_or_else(|_| "warn".to_string());
    // The glob compiler tells of every pattern of every policy.
    let filter = EnvFilter::builder().parse_lossy(format!("globset=warn,{asked}"));
    // A standard error that takes no more (a full disk, a reader that has gone) must not stop the thread that logs.
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    log.with_target(false).with_ansi(io::stderr().is_terminal()).init();
}

/// Whether the reader of standard output went away (`weft ls | head`): it has what it wanted.
fn is_reader_gone(error: &CliError) -> bool {
    matches!(error, CliError::Io { path, source, .. } if source.kind() == io::ErrorKind::BrokenPipe && path == Path::new(say::OUTPUT))
}
