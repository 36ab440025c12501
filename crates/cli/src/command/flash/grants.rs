//! `weft flash grants` and `weft flash release`: list the grants of a monitor, and return one.

use crate::error::CliError;
use crate::say::{json_line, print, printable};
use crate::sys::file::with_suffix;
use crate::table::Table;
use clap::Args;
use serde::Serialize;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::units::format_size;
use weft_device::DeviceError;
use weft_device::nand::{FlashError, OpenChannel};
use weft_flash::monitor::GrantInfo;
use weft_flash::{LevelError, Monitor, share};

/// Version of the JSON.
const GRANTS_VERSION: u32 = 1;

/// `weft flash grants`
#[derive(Args, Debug)]
pub struct GrantsArgs {
    /// The image, or the socket of 'weft flash serve' while it serves the image.
    target: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `weft flash release`
#[derive(Args, Debug)]
pub struct ReleaseArgs {
    /// The image, or the socket of 'weft flash serve' while it serves the image.
    target: PathBuf,
    /// The name of the grant. The command fails while a program uses the grant.
    name: String,
}

/// What `weft flash grants --json` prints.
#[derive(Serialize)]
struct Grants {
    version: u32,
    grants: Vec<GrantInfo>,
}

/// Lists the grants of a monitor.
pub fn list(args: &GrantsArgs) -> Result<(), CliError> {
    let found = match is_socket(&args.target) {
        true => share::grants(&args.target).map_err(|error| of_target(&args.target, error))?,
        false => in_image(&args.target).map_err(|error| served(&args.target, error))?,
    };
    let grants = Grants { version: GRANTS_VERSION, grants: found };
    print(&if args.json { json_line(&grants)? } else { text(&grants.grants) })
}

/// The grants of a monitor in an image, which is not changed; read permission is enough.
fn in_image(image: &Path) -> Result<Vec<GrantInfo>, CliError> {
    let device = OpenChannel::look(image)?;
    if device.holds_drive() {
        return Err(CliError::of(
            image,
            "a conventional or FDP drive has all of the flash; there are no grants",
            "'weft flash info IMAGE' shows the drive",
        ));
    }
    Monitor::look(&device).map_err(|error| of_target(image, error))
}

/// The error of an image that could not be opened; of one that is served, and of a socket that is not there, what to do.
fn served(target: &Path, error: CliError) -> CliError {
    let socket = with_suffix(target, ".sock");
    match error {
        CliError::Flash(FlashError::Device(DeviceError::Busy(_))) if is_socket(&socket) => {
            let remedy = format!("while it is served, name the socket: {}", socket.display());
            CliError::of(target, "in use by another process", remedy)
        }
        _ if target.extension().is_some_and(|end| end == "sock") && !target.exists() => CliError::of(
            target,
            "no such socket",
            "'weft flash serve IMAGE' makes one, and serves the image on it",
        ),
        error => error,
    }
}

/// The error with the image or socket that it is about.
pub(super) fn of_target(target: &Path, error: LevelError) -> CliError {
    match error {
        LevelError::NotFormatted(what) => CliError::of(
            target,
            format_args!("no flash monitor: {what}"),
            format!(
                "'weft flash serve --format {}' puts one on the device; the data on the device is lost",
                target.display()
            ),
        ),
        LevelError::GrantInUse(name) => CliError::of(
            target,
            format_args!("the grant '{name}' is in use"),
            "end the program that uses it, then give the command again",
        ),
        // These name it.
        error @ (LevelError::Connection(_) | LevelError::Serve(_) | LevelError::HostFull(_)) => error.into(),
        LevelError::Device(error) => error.into(),
        error => CliError::of(target, error, ""),
    }
}

fn text(grants: &[GrantInfo]) -> String {
    if grants.is_empty() {
        return "no grants\n".into();
    }
    let mut table = Table::new("grant< size> over-provisioning> LUNs> attached<");
    for grant in grants {
        let (name, size) = (printable(grant.name.as_bytes()), format_size(grant.bytes));
        let spare = f64::from(grant.over_provisioning_permille) / 10.0;
        let attached = if grant.in_use { "yes" } else { "no" };
        table.cells(&[&name, &size, &format_args!("{spare:.1} %"), &grant.luns.len(), &attached]);
    }
    table.to_string()
}

/// Gives a grant's flash back.
pub fn release(args: &ReleaseArgs) -> Result<(), CliError> {
    let on_target = |error| of_target(&args.target, error);
    if is_socket(&args.target) {
        return share::release(&args.target, &args.name).map_err(on_target);
    }
    let opened = OpenChannel::open(&args.target).map_err(CliError::from);
    let device = Arc::new(opened.map_err(|error| served(&args.target, error))?);
    let released = Monitor::open(device.clone()).and_then(|monitor| monitor.release(&args.name));
    released.map_err(on_target)?;
    Ok(device.sync()?)
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}
