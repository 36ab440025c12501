//! A program that runs under weft: its start with the library preloaded, its end, and what became of its volume.

use crate::access::inspect;
use crate::error::CliError;
use crate::host::{Hosted, tells_of_waiting};
use crate::intercept::Intercept;
use crate::program;
use crate::report::Report;
use crate::say::warn;
use crate::sys::limit;
use crate::sys::signal::{self, Queue};
use crate::tree::volume::system;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use weft_client::proto::INSPECT_SNAPSHOT;
use weft_client::{Client, ConnectOptions};
use weft_fuse::Mount;
use weft_volume::report::Snapshot;

/// Exit status of weft's own failures, as `env` and its kin have it.
pub const OWN_FAILURE: u8 = 125;
const SHIM: &str = "libweft_shim.so";

/// A program to run and where its volume appears to it.
pub struct Guest<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Where the volume appears.
    pub at: &'a str,
    /// Where its standard output goes.
    pub stdout: Output,
    /// How its calls reach weft.
    pub intercept: Intercept,
}

/// Where a program's standard output goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Where this process's goes.
    Inherit,
    /// To this process's standard error.
    ToStderr,
    /// Nowhere, its standard error neither.
    Discard,
}

/// How a program ended.
pub struct ProgramExit {
    /// Its exit status; 128 and the signal's number when a signal ended it.
    pub status: i32,
    wall: Duration,
    /// Whether the user or a supervisor wanted this process to end meanwhile.
    interrupted: bool,
}

/// A program that has run, and what became of its volume.
pub struct FinishedRun {
    /// Its exit status; 128 and the signal's number when a signal ended it.
    pub status: i32,
    /// What was counted; none when the server that another process was is gone.
    pub report: Option<Report>,
    /// What went wrong after the program had ended.
    pub failure: Option<CliError>,
    /// Whether the user or a supervisor wanted this process to end meanwhile.
    pub interrupted: bool,
}

fn ask(client: &Client) -> Result<Snapshot, i32> {
    inspect::<Snapshot>(client, INSPECT_SNAPSHOT, 0).map(|told| told.0)
}

/// Another process that serves a volume, and that goes on as long as this stands.
pub struct Joined<'a> {
    socket: PathBuf,
    /// What the user calls the volume.
    volume: &'a str,
    client: Client,
    before: Snapshot,
}

impl Joined<'_> {
    /// Connects to the server on a socket. Fails with an errno.
    pub fn new<'a>(
        guest: &Guest<'_>,
        socket: &Path,
        volume: &'a str,
        signals: &Queue,
    ) -> Result<Joined<'a>, i32> {
        let options =
            ConnectOptions { socket_path: socket.as_os_str().as_bytes(), mount_point: guest.at.as_bytes() };
        let (client, before) = answered(volume, socket, signals, || {
            let client = Client::connect(&options)?;
            ask(&client).map(|before| (client, before))
        })?;
        Ok(Joined { socket: socket.to_path_buf(), volume, client, before })
    }
}

/// The error of a server that cannot be asked.
pub fn not_asked(socket: &Path, errno: i32) -> CliError {
    CliError::io("ask the server at", socket, system(errno))
}

/// The program on a volume that another process serves.
pub fn elsewhere(
    guest: &Guest<'_>,
    shim: &Path,
    joined: Joined<'_>,
    signals: &Queue,
) -> Result<FinishedRun, CliError> {
    let Joined { socket, volume, client, before } = joined;
    let socket = &*socket;
    let failed = |errno| not_asked(socket, errno);
    let ended = guest.run(shim, socket, signals)?;
    // What came with the end of the program was meant for the program.
    while let Ok(Some(_)) = signals.next(Duration::ZERO) {}
    let (report, failure) = match answered(volume, socket, signals, || ask(&client).map_err(failed)) {
        Ok(after) => (Some(Report { shared: true, ..guest.report(&ended, &before, &after) }), None),
        Err(error) if client.is_alive() => (None, Some(error)),
        Err(_) => {
            let what = format!("{volume}: the server on {} has ended before the program", socket.display());
            let remedy = "start it again ('weft serve'); what was synced is on the volume";
            (None, Some(CliError::said(what, remedy)))
        }
    };
    Ok(FinishedRun { status: ended.status, report, failure, interrupted: ended.interrupted })
}

/// Asks another process's server, which may be stopped, or hang: signals end this process meanwhile.
fn answered<T>(volume: &str, socket: &Path, signals: &Queue, ask: impl FnOnce() -> T) -> T {
    // The thread that waits for the answer begins while signals are blocked, so that it takes none of them.
    tells_of_waiting(volume, socket, || signals.unblocked(ask))
}

/// The program on a volume that this process serves.
pub fn here(
    hosted: Hosted,
    mount: Option<Mount>,
    guest: &Guest<'_>,
    shim: &Path,
    signals: &Queue,
) -> Result<FinishedRun, CliError> {
    let before = hosted.snapshot();
    let ended = match guest.run(shim, hosted.socket(), signals) {
        Ok(ended) => ended,
        Err(error) => {
            hosted.stop()?;
            return Err(error);
        }
    };
    if let Some(Err(error)) = mount.map(Mount::unmount) {
        warn(error);
    }
    let interrupted =
        || matches!(signals.next(Duration::ZERO), Ok(Some(came)) if came.signal != libc::SIGCHLD);
    hosted.wait_for_clients(interrupted, |clients| {
        let (others, them) = match clients {
            1 => ("1 other process still uses".to_string(), "it"),
            _ => (format!("{clients} other processes still use"), "them"),
        };
        warn(format_args!(
            "the program has ended, but {others} the volume; waiting for {them} (Ctrl-C to stop serving)"
        ));
    });
    let last = hosted.snapshot();
    let (after, failure) = match hosted.stop() {
        Ok(after) => (after, None),
        Err(error) => (last, Some(error)),
    };
    let report = Some(guest.report(&ended, &before, &after));
    Ok(FinishedRun { status: ended.status, report, failure, interrupted: ended.interrupted })
}

/// The library that is preloaded into programs.
pub fn find_shim() -> Result<PathBuf, CliError> {
    if let Some(path) = std::env::var_os("WEFT_SHIM") {
        let path = PathBuf::from(path);
        return if path.is_file() {
            std::path::absolute(&path).map_err(|e| CliError::io("find", &path, e))
        } else {
            Err(CliError::said(
                format!("WEFT_SHIM names {}, which is not a file", path.display()),
                format!("set WEFT_SHIM to the path of {SHIM}, or unset it"),
            ))
        };
    }
    let own = std::env::current_exe().map_err(|e| CliError::io("find", Path::new("/proc/self/exe"), e))?;
    let dir = own.parent().unwrap_or(Path::new("/"));
    let places = [dir.join(SHIM), dir.join("../lib/weft").join(SHIM)];
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        CliError::said(
            format!("{SHIM} exists neither at {} nor at {}", places[0].display(), places[1].display()),
            "build it ('make build'), or set the environment variable WEFT_SHIM to its path",
        )
    })
}

impl Guest<'_> {
    /// Refuses what cannot run.
    pub fn check(&self) -> Result<(), CliError> {
        let at = self.at.as_bytes();
        // The library compares it with paths that it has made plain before.
        let names = self.at.strip_prefix('/').map(|names| names.trim_end_matches('/'));
        let is_plain =
            names.is_some_and(|names| names.split('/').all(|name| !matches!(name, "" | "." | "..")));
        if !is_plain || at.len() >= 256 {
            return Err(CliError::said(
                format!(
                    "--at {}: expected an absolute path below / of at most 255 bytes without '.' and '..'",
                    self.at
                ),
                "give a path such as /weft; the path need not exist",
            ));
        }
        let Some(name) = self.command.first() else {
            return Err(CliError::said("no program is given", "name the program after --"));
        };
        let below = name.as_bytes().strip_prefix(at).is_some_and(|rest| rest.first() == Some(&b'/'));
        if below {
            return Err(program::refused(
                Path::new(name),
                "the program lies on the volume, and weft cannot start a program from a volume",
                "start it from a shell: weft run ... -- sh -c '/weft/PROGRAM ARGS'",
                126,
            ));
        }
        program::find(name).map(drop)
    }

    /// Runs the program to its end.
    fn run(&self, shim: &Path, socket: &Path, signals: &Queue) -> Result<ProgramExit, CliError> {
        let variables = [("WEFT_SOCKET", socket.as_os_str()), ("WEFT_AT", OsStr::new(self.at))];
        self.run_with(shim, &variables, signals)
    }

    pub fn run_with(
        &self,
        shim: &Path,
        variables: &[(&str, &OsStr)],
        signals: &Queue,
    ) -> Result<ProgramExit, CliError> {
        let program = program::find(&self.command[0])?;
        let mut command = Command::new(&program);
        command.arg0(&self.command[0]).args(&self.command[1..]);
        command
            .env("LD_PRELOAD", preload(shim))
            .envs(variables.iter().copied())
            .envs(self.intercept.variable());
        let failed = |e| CliError::io("start", &program, e);
        match self.stdout {
            Output::Inherit => {}
            Output::ToStderr => {
                let stderr =
                    std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned().map_err(failed)?;
                command.stdout(Stdio::from(stderr));
            }
            Output::Discard => {
                command.stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        // SAFETY: the closures only make system calls that are safe after fork.
        unsafe { command.pre_exec(signals.unblock_in_child()).pre_exec(limit::restore_in_child()) };
        let begun = Instant::now();
        let child = command.spawn().map_err(failed)?;
        let (status, interrupted) =
            wait(child, signals).map_err(|e| CliError::io("wait for", &program, e))?;
        let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(ProgramExit { status, wall: begun.elapsed(), interrupted })
    }

    fn report(&self, ended: &ProgramExit, before: &Snapshot, after: &Snapshot) -> Report {
        let command = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Report::new(command, ended.status, ended.wall.as_nanos() as u64, before, after)
    }
}

/// Our library in front of what the user preloads.
fn preload(shim: &Path) -> OsString {
    let mut list = shim.as_os_str().to_os_string();
    if let Some(more) = std::env::var_os("LD_PRELOAD").filter(|more| !more.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(more);
    }
    list
}

/// Waits for the program, and passes on what is sent to this process; what the terminal sends, it sends to both. Tells
/// also whether something came that is meant to end this process.
fn wait(mut child: Child, signals: &Queue) -> std::io::Result<(ExitStatus, bool)> {
    let mut interrupted = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, interrupted));
        }
        let Some(came) = signals.next(Duration::from_secs(1))? else { continue };
        interrupted |= signal::ENDING.contains(&came.signal);
        if came.signal != libc::SIGCHLD && came.sent {
            signal::send(child.id(), came.signal);
        }
    }
}

pub fn exit_status(status: i32) -> u8 {
    u8::try_from(status).unwrap_or(OWN_FAILURE)
}
