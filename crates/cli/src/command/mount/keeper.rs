//! The process that keeps a mount when its server ends without a word: a signal that nobody can handle, a defect.
//!
//! ```text
//!  keeper --- fork ---> server: serves the volume, mounts it
//!     ^                    |
//!     +--- /dev/fuse ------+
//! ```
//!
//! The server hands the keeper its connection with the kernel. As long as a process holds it, programs that use the mount wait.
//! When the server has ended, the keeper makes another one, which finds in memory of both what was open ([`Kept`]).

use super::daemon;
use crate::error::CliError;
use crate::say::warn;
use crate::sys::process::{self, Ended};
use crate::sys::signal::{self, ENDING, Queue};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use weft_fuse::Kept;
use weft_sys::message;

/// Pause between two looks for the server's connection.
const LOOK: Duration = Duration::from_millis(100);
/// Pause when only signals are waited for.
const LONG: Duration = Duration::from_secs(3600);
/// A server that ends again so soon ...
const SOON: Duration = Duration::from_secs(1);
/// ... so many times in turn is not made again: what programs ask of it may end it.
const TRIES: u32 = 20;

/// What a server gets from its keeper.
pub struct Charge {
    /// What outlives the server.
    pub kept: Kept,
    /// The connection of a server that has ended.
    pub device: Option<OwnedFd>,
    /// Leads to the keeper, if there is one.
    pub keeper: Option<UnixStream>,
}

impl Charge {
    /// Of a server whose mount ends with it.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn of_none(dir: &Path) -> Result<Charge, CliError> {
        let kept = Kept::new().map_err(|error| CliError::io("start a server for", dir, error))?;
        Ok(Charge { kept, device: None, keeper: None })
    }
}

/// Lets the keeper hold the connection with the kernel, too.
///
/// # Errors
/// The keeper has ended.
pub fn hand_over(keeper: &UnixStream, device: BorrowedFd<'_>) -> io::Result<()> {
    message::send(keeper, &[0], &[device.as_raw_fd()])
}

/// What this process is from now on.
pub enum Role {
    /// The server.
    Server(Charge),
    /// The keeper, which has done its work; the exit status.
    Done(u8),
}

/// Becomes the keeper of a mount on `dir`, and its server.
///
/// # Errors
/// The system has no memory or no process for it.
pub fn split(signals: &Queue, dir: &Path, log: Option<&File>) -> Result<Role, CliError> {
    let failed = |error| CliError::io("start a server for", dir, error);
    let kept = Kept::new().map_err(failed)?;
    let mut device: Option<OwnedFd> = None;
    let mut tries = 0;
    loop {
        let (own, theirs) = UnixStream::pair().map_err(failed)?;
        let Some(server) = process::fork().map_err(failed)? else {
            drop(own);
            // Nobody would go on with the mount: it is taken down.
            process::end_with_parent(libc::SIGTERM);
            return Ok(Role::Server(Charge { kept, device, keeper: Some(theirs) }));
        };
        drop(theirs);
        let (begun, begun_again) = (Instant::now(), device.is_some());
        let ended = tend(signals, server, &own, &mut device, log).map_err(failed)?;
        let signal = match ended {
            Ended::Status(status) => {
                if status != 0 && begun_again {
                    given_up(dir, format_args!("could not go on (status {status})"));
                }
                return Ok(Role::Done(status));
            }
            Ended::Signal(signal) => signal,
        };
        tries = if begun.elapsed() < SOON { tries + 1 } else { 1 };
        if device.is_none() || tries > TRIES {
            given_up(dir, format_args!("was ended by signal {signal}"));
            return Ok(Role::Done(128u8.saturating_add(signal as u8)));
        }
        warn(format_args!(
            "{}: the server of the mount was ended by signal {signal}; another one goes on",
            dir.display()
        ));
    }
}

/// Says that nobody goes on. The directory stays as it is: what programs write there must not come to the one below.
fn given_up(dir: &Path, how: std::fmt::Arguments<'_>) {
    let dir = dir.display();
    warn(format_args!(
        "{dir}: the server of the mount {how}, and no other one follows: programs get ENOTCONN there; 'weft unmount {dir}', then mount \
         it again"
    ));
}

/// Passes signals on to a server until it has ended.
fn tend(
    signals: &Queue,
    server: u32,
    link: &UnixStream,
    device: &mut Option<OwnedFd>,
    log: Option<&File>,
) -> io::Result<Ended> {
    link.set_nonblocking(true)?;
    let mut has_come = false;
    loop {
        if !has_come && let Ok(received) = message::receive(link, &mut [0]) {
            // Without a descriptor it is the end: the server has mounted the volume, and goes on alone.
            has_come = true;
            *device = received.fd.or(device.take());
            if let Some(log) = log {
                daemon::leave_terminal(log);
            }
        }
        // The connection may have come with the end.
        if let Some(ended) = process::ended(server)? {
            if !has_come && let Ok(received) = message::receive(link, &mut [0]) {
                *device = received.fd.or(device.take());
            }
            return Ok(ended);
        }
        if let Some(came) = signals.next(if has_come { LONG } else { LOOK })?
            && ENDING.contains(&came.signal)
        {
            signal::send(server, came.signal);
        }
    }
}
