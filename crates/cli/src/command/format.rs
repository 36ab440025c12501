//! `weft format`: a volume on an emulated device in an image file.

use crate::args::FormatArgs;
use crate::error::CliError;
use crate::progress;
use crate::say::say;
use crate::sys::signal;
use crate::volume;
use std::sync::Arc;
use weft_core::units::{format_size, parse_size};
use weft_device::ZonedModel;

/// Exit status after an interrupt, as shells have it.
const INTERRUPTED: i32 = 128 + libc::SIGINT;

/// Makes a volume.
pub fn run(args: &FormatArgs) -> Result<(), CliError> {
    let size = args.size.as_deref().map(parse_size).transpose()?;
    let geometry = args.geometry.geometry(size)?;
    let exists = std::fs::symlink_metadata(&args.image).is_ok();
    if exists && !args.force {
        return Err(CliError::WouldOverwrite { path: args.image.clone() });
    }
    let bar = progress::bytes("format", geometry.total_bytes, args.quiet);
    signal::notice_interrupts();
    let made = ZonedModel::create(&args.image, &geometry, args.force, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        if signal::was_interrupted() {
            bar.finish_and_clear();
            // Half an image is of no use to anybody. What it cannot be removed for, the next format will say.
            let _ = std::fs::remove_file(&args.image);
            std::process::exit(INTERRUPTED);
        }
    });
    bar.finish_and_clear();
    let device = Arc::new(made?);
    volume::format(&device, &args.image.display().to_string(), &args.label)?;
    if !args.quiet {
        say(format_args!(
            "{}: {} in {} zones of {}, {} open at most",
            args.image.display(),
            format_size(geometry.zones() * geometry.zone_capacity_bytes),
            geometry.zones(),
            format_size(geometry.zone_capacity_bytes),
            geometry.open_max
        ));
    }
    Ok(())
}
