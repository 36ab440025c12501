//! The weft command: volumes in image files, programs on them, and what placement made of the programs' data.
//!
//! [`args`] is the command line, [`command`] has a file for each command. A volume is opened in [`volume`], served in
//! [`host`] (unless another process serves it already), and used through [`access`] as any other process would use it.

mod access;
mod archive;
mod args;
mod byte_text;
mod command;
mod error;
mod file_arg;
mod host;
mod intercept;
mod program;
mod progress;
mod report;
mod say;
mod sys;
mod table;
mod tree;
mod volume;

use args::{Cli, Command};
use clap::Parser;
use error::CliError;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    // Before anything that needs much stack, the command line among it.
    if let Err(error) = sys::limit::lift() {
        tell(&error);
        return ExitCode::from(command::run::OWN_FAILURE);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and the version are no errors. After `weft run` a status may be the program's.
            let runs = std::env::args_os().nth(1).is_some_and(|command| command == "run" || command == "lab");
            let status =
                if error.use_stderr() && runs { command::run::OWN_FAILURE } else { error.exit_code() as u8 };
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    start_log();
    let own_failure =
        if matches!(cli.command, Command::Run(_) | Command::Lab(_)) { command::run::OWN_FAILURE } else { 0 };
    match dispatch(&cli.command) {
        // A program's status is its own; what a command says of a part must not look as if it were all.
        Ok(0) if volume::is_incomplete() && !matches!(cli.command, Command::Run(_)) => ExitCode::FAILURE,
        Ok(status) => ExitCode::from(status),
        Err(error) if is_reader_gone(&error) => ExitCode::FAILURE,
        Err(error) => {
            tell(&error);
            ExitCode::from(match error {
                CliError::Program { status, .. } => status,
                _ => error.status().max(own_failure),
            })
        }
    }
}

fn tell(error: &CliError) {
    say::warn(error);
    if let Some(remedy) = error.remedy() {
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

fn dispatch(command: &Command) -> Result<u8, CliError> {
    let done = match command {
        Command::Run(args) => return command::run::run(args),
        Command::Lab(args) => return command::lab::run(args),
        Command::Compare(args) => return command::compare::run(args),
        Command::Replay(args) => return command::replay::run(args),
        Command::Format(args) => command::format::run(args),
        Command::Serve(args) => command::serve::run(args),
        Command::Ls(args) => command::list::ls(args),
        Command::Stat(args) => command::list::stat(args),
        Command::Df(args) => command::list::df(args),
        Command::Cat(args) => command::files::cat(args),
        Command::Rm(args) => command::files::rm(args),
        Command::Mkdir(args) => command::files::mkdir(args),
        Command::Mv(args) => command::files::mv(args),
        Command::Cp(args) => command::copy::run(args),
        Command::Export(args) => command::archive::export::run(args),
        Command::Import(args) => command::archive::import::run(args),
        Command::Fsck(args) => command::fsck::run(args),
        Command::Salvage(args) => command::salvage::run(args),
        Command::Stats(args) => command::stats::run(args),
        Command::Zones(args) => command::zones::run(args),
        Command::Policy(args) => command::policy::run(args),
        Command::Flash(args) => command::flash::run(args),
        Command::Tags(command) => command::tags::run(command),
        Command::Kv(command) => command::kv::run(command),
        Command::BTree(command) => command::btree::run(command),
        Command::Version => version(),
    };
    done.map(|()| 0)
}

fn version() -> Result<(), CliError> {
    use std::io::Write;
    let mut out = say::Out::new();
    let written = writeln!(out, "weft {}", env!("CARGO_PKG_VERSION")).and_then(|()| out.flush());
    written.map_err(|e| CliError::io("write", std::path::Path::new("standard output"), e))
}

/// Whether the reader of standard output went away (`weft ls | head`): nobody is left to be told.
fn is_reader_gone(error: &CliError) -> bool {
    matches!(error, CliError::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}
