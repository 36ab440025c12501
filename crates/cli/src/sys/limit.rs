//! Limits on this process (`ulimit`). They are meant for programs; a server that they stop takes the volume from all its
//! programs. So the command lifts those that it may lift, gives them back to the programs that it runs, and says which
//! limit is too low before it begins what that limit would break.

use crate::error::CliError;
use std::io;
use std::sync::OnceLock;

/// Bytes of stack that the command needs.
const STACK_BYTES_MIN: u64 = 1 << 20;
/// Descriptors that the command needs.
const DESCRIPTORS_MIN: u64 = 64;
/// Descriptors that it takes when it may.
const DESCRIPTORS_LIFTED: u64 = 4096;

/// The limits that are lifted, and what shells call them.
const LIFTED: [(u32, &str, &str); 4] = [
    (libc::RLIMIT_FSIZE, "file size", "-f"),
    (libc::RLIMIT_AS, "address space", "-v"),
    (libc::RLIMIT_STACK, "stack", "-s"),
    (libc::RLIMIT_NOFILE, "open files", "-n"),
];
/// Bytes of a unit of a limit, as shells count.
const UNIT_BYTES: u64 = 1024;

/// The limits before this command raised its own; a program that it runs gets these.
struct SavedLimits {
    limits: [libc::rlimit; LIFTED.len()],
    file_size_signal: libc::sighandler_t,
}

static SAVED: OnceLock<SavedLimits> = OnceLock::new();

fn get(resource: u32) -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is a valid rlimit; what cannot be asked for is no limit.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit
}

fn set(resource: u32, limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: `limit` is a valid rlimit.
    match unsafe { libc::setrlimit(resource, limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_signal(handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: only the default and to ignore are set, which run no code.
    unsafe { libc::signal(libc::SIGXFSZ, handler) }
}

/// Lifts the limits as far as this user may, and says so when what is left is too little for any command.
pub fn lift() -> Result<(), CliError> {
    let limits = LIFTED.map(|(resource, ..)| get(resource));
    for ((resource, ..), limit) in LIFTED.iter().zip(&limits) {
        // The hard limit is the superuser's to raise. Without a limit on open files there is no process.
        let all = if *resource == libc::RLIMIT_NOFILE {
            limit.rlim_max.max(DESCRIPTORS_LIFTED)
        } else {
            libc::RLIM_INFINITY
        };
        let both = |value| libc::rlimit { rlim_cur: value, rlim_max: value };
        // What could not be lifted is found below, or where it is in the way.
        let _ = set(*resource, &both(all)).or_else(|_| set(*resource, &both(limit.rlim_max)));
    }
    // A write beyond the limit is an error, not the end of all programs on the volume.
    let file_size_signal = set_signal(libc::SIG_IGN);
    let _ = SAVED.set(SavedLimits { limits, file_size_signal });
    require(libc::RLIMIT_STACK, STACK_BYTES_MIN)?;
    require(libc::RLIMIT_NOFILE, DESCRIPTORS_MIN)
}

/// The limit that is set now, with its name and flag, and the unit in which a shell counts it.
fn known(resource: u32) -> Option<(u64, &'static str, &'static str, u64)> {
    let (_, name, flag) = LIFTED.iter().find(|(known, ..)| *known == resource)?;
    let unit = if resource == libc::RLIMIT_NOFILE { 1 } else { UNIT_BYTES };
    Some((get(resource).rlim_cur, name, flag, unit))
}

/// Says which limit is below `least`, if it is.
fn require(resource: u32, least: u64) -> Result<(), CliError> {
    let Some((now, name, flag, unit)) = known(resource).filter(|known| known.0 < least) else {
        return Ok(());
    };
    let (now, least, in_unit) = (now / unit, least.div_ceil(unit), if unit == 1 { "" } else { " KiB" });
    Err(CliError::said(
        format!("the limit on {name} (ulimit {flag}) is {now}{in_unit}; weft needs {least}{in_unit}"),
        format!("raise it with 'ulimit {flag} NUMBER' in the shell that starts the command"),
    ))
}

/// Says so when files of `bytes` bytes cannot be written.
pub fn require_file_size(bytes: u64) -> Result<(), CliError> {
    require(libc::RLIMIT_FSIZE, bytes)
}

/// Which limit an error of the system is likely to come from.
pub fn cause(error: &io::Error) -> Option<String> {
    let resource = match error.raw_os_error()? {
        libc::EFBIG => libc::RLIMIT_FSIZE,
        libc::ENOMEM => libc::RLIMIT_AS,
        libc::EMFILE => libc::RLIMIT_NOFILE,
        _ => return None,
    };
    let (now, name, flag, unit) = known(resource)?;
    (now != libc::RLIM_INFINITY).then(|| {
        let now = now / unit;
        format!("the limit on {name} (ulimit {flag}) is {now}; raise it in the shell that starts the command")
    })
}

/// What a child must call between fork and exec to have the limits that this process was started with.
pub fn restore_in_child() -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
    || {
        let Some(before) = SAVED.get() else { return Ok(()) };
        if before.file_size_signal != libc::SIG_ERR {
            set_signal(before.file_size_signal);
        }
        LIFTED.iter().zip(&before.limits).try_for_each(|((resource, ..), limit)| set(*resource, limit))
    }
}
