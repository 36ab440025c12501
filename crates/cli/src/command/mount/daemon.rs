//! `--daemon`: the mount is that of a process of its own, which has no terminal and stays when the command ends.

use super::helper;
use crate::error::CliError;
use crate::say;
use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdout};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for the process that stays.
const STAYS: &str = "WEFT_MOUNT_STAYS";

/// Whether this is the process that stays.
pub fn stays() -> bool {
    std::env::var_os(STAYS).is_some()
}

/// Starts the process that stays, and waits until it has mounted the volume, or has said why not; the exit status.
pub fn start(quiet: bool) -> Result<u8, CliError> {
    let own = Path::new("/proc/self/exe");
    let failed = |error| CliError::io("start", own, error);
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    let line = helper::command_line(std::env::args_os().collect());
    command.args(line.into_iter().skip(1)).env(STAYS, "1");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        // A child that says nothing ends with a status.
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.is_empty() {
        let status = child.wait().map_err(failed)?;
        return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
    }
    if !quiet {
        say::print(&line)?;
    }
    Ok(0)
}

/// Opens what the process that stays writes to.
pub fn open_log(log: Option<&Path>) -> Result<File, CliError> {
    let path = log.unwrap_or(Path::new("/dev/null"));
    let opened = File::options().append(true).create(log.is_some()).open(path);
    opened.map_err(|error| CliError::io("write", path, error))
}

/// Leaves the terminal of whoever started it. What it says from now on goes to `log`.
pub fn leave_terminal(log: &File) {
    // None of this can fail with an open file, and whoever started the process has been told that the volume is mounted.
    // It leads no group yet, as its parent's child.
    let _ = setsid();
    let _ = dup2_stdout(log).and_then(|()| dup2_stderr(log));
    // It keeps no file system in use but the volume's own.
    let _ = std::env::set_current_dir("/");
}
