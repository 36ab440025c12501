//! `weft lab`: a command in a virtual machine with emulated zoned and FDP drives, for everybody who has none.
//!
//! QEMU boots a Debian kernel ([`kernel`]) with a small first file system ([`initramfs`]) whose first process is
//! `init.sh`. The guest sees the host's files read-only, so that every program of the host runs inside, and nothing has
//! to be installed there ([`machine`]).

mod args;
mod initramfs;
mod kernel;
mod machine;

pub use args::LabArgs;

use crate::error::CliError;
use crate::output;
use crate::say::warn;
use crate::sys::signal::Queue;
use kernel::Cache;
use machine::{Machine, Qemu};

/// Runs a command in the lab; returns its exit status.
pub fn run(args: &LabArgs) -> Result<u8, CliError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(CliError::said(
            format!("the lab boots an amd64 kernel, and this is {}", std::env::consts::ARCH),
            "run the lab on an x86-64 machine",
        ));
    }
    if let Some(log) = &args.log {
        output::check(log, &[])?;
    }
    let signals = Queue::block()?;
    let qemu = Qemu::find()?;
    if !qemu.has_fdp() && !args.quiet {
        warn(format_args!(
            "QEMU {} has no FDP drive (QEMU 8.0 or newer has); the lab continues without one",
            qemu.version()
        ));
    }
    let cache = Cache::find()?;
    let kernel = cache.kernel(args.kernel.as_deref(), args.quiet)?;
    let initramfs = initramfs::build(&cache, &kernel)?;
    Machine::new(args, &qemu, &cache, &kernel, &initramfs)?.run(args, &signals)
}
