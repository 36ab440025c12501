//! `weft flash serve`: serves the monitor of a device in an image to other processes until a signal stops it.

use super::grants::of_target;
use crate::error::CliError;
use crate::say;
use crate::sys::file::with_suffix;
use crate::sys::signal::Queue;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use weft_device::nand::OpenChannel;
use weft_flash::monitor::LevelPolicy;
use weft_flash::share::MonitorServer;
use weft_flash::{LevelError, Monitor, MonitorSetup};

/// Interval between wear-leveling checks.
const LEVELING_INTERVAL: Duration = Duration::from_secs(1);

/// `weft flash serve`
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// An image that 'weft flash create' made; one process at a time can open it.
    image: PathBuf,
    /// The Unix socket that programs connect to [default: the name of the image plus .sock]. The server closes a
    /// connection when the client takes more than 10 seconds to send its first request, to send the rest of a later
    /// request that it has begun, or to read an answer
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// If the device has no flash monitor, create one. All data on the device is then lost.
    #[arg(long)]
    format: bool,
    /// Do not level wear between grants. Without this option, the server levels wear each time the programs have written
    /// as many pages as the device has.
    #[arg(long)]
    no_leveling: bool,
}

/// Serves a monitor.
pub fn run(args: &ServeArgs) -> Result<(), CliError> {
    // Before any thread is started.
    let signals = Queue::block()?;
    let device = Arc::new(OpenChannel::open(&args.image)?);
    let monitor = match Monitor::open(device.clone()) {
        Err(LevelError::NotFormatted(_)) if args.format => {
            Monitor::format(device.clone(), MonitorSetup::default())
        }
        found => found,
    }
    .map_err(|error| of_target(&args.image, error))?;
    let socket = args.socket.clone().unwrap_or_else(|| with_suffix(&args.image, ".sock"));
    let server = MonitorServer::start(monitor.clone(), &socket)?;
    say::serving(&args.image, &socket);
    let mut leveled_at = device.counters().pages_programmed;
    while !signals.ends_within(LEVELING_INTERVAL)? {
        let programmed = device.counters().pages_programmed;
        if !args.no_leveling && programmed - leveled_at >= device.shape().pages() {
            // Tenants are served on: the device can still do what they ask.
            if let Err(error) = monitor.level_wear(LevelPolicy::default(), device.now()) {
                tracing::warn!(%error, "wear was not leveled");
            }
            leveled_at = device.counters().pages_programmed;
        }
    }
    drop(server);
    Ok(device.sync()?)
}
