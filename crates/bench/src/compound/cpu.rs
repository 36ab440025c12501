//! Processor time of all processes that work takes.

use std::fs;
use std::io;

/// What an operation took.
#[derive(Clone, Copy)]
pub struct Measured {
    /// Of the caller's time, in microseconds.
    pub micros: f64,
    /// Of the processors, in microseconds.
    pub cpu_micros: f64,
}

/// Has `act` do an operation so often, and says what one took of its own and of the processors' time: that of this process, and of the
/// server's.
pub fn measured(
    server: Option<u32>,
    count: u32,
    act: impl FnOnce() -> io::Result<f64>,
) -> io::Result<Measured> {
    let all = || server.into_iter().chain([std::process::id()]).map(used_ns).sum::<io::Result<u64>>();
    let before = all()?;
    let micros = act()?;
    let used = all()?.saturating_sub(before);
    Ok(Measured { micros, cpu_micros: used as f64 / 1e3 / f64::from(count) })
}

/// Nanoseconds that the threads of a process have had a processor.
fn used_ns(pid: u32) -> io::Result<u64> {
    let mut used = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        used += stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(used)
}
