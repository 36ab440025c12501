//! `weft mount`: serves a volume and mounts it on a directory, until a signal or `umount` ends it.

use crate::args::PlacementArgs;
use crate::error::CliError;
use crate::host::{self, ServerAt};
use crate::report::SnapshotText;
use crate::say;
use crate::sys::signal::Queue;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use weft_fuse::{FuseError, Mount, MountChoice};
use weft_sys::effective_user;

/// Pause between two looks whether somebody has unmounted the directory.
const LOOK: Duration = Duration::from_millis(200);

/// `weft mount`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft mount vol.img /mnt &\n  cp -a photos /mnt\n  weft run --volume vol.img -- ls /weft    # the same files\n  \
    umount /mnt\n\n\
    SIGTERM, SIGINT and SIGHUP unmount the directory and stop the server. docs/how-to/mount-a-volume.md says what a mount promises \
    and what it does not do yet."
)]
pub struct MountArgs {
    /// The volume: an image file, a zoned block device, or zonefs:DIR.
    pub volume: PathBuf,
    /// The directory.
    pub dir: PathBuf,
    /// Let nobody change the volume through the mount.
    #[arg(short, long)]
    pub read_only: bool,
    /// Let other users use the mount [default: when root mounts]
    #[arg(long)]
    pub allow_other: bool,
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Print no report at the end.
    #[arg(short, long)]
    pub quiet: bool,
}

impl From<FuseError> for CliError {
    fn from(error: FuseError) -> CliError {
        let remedy = match &error {
            FuseError::Mount { .. } => {
                "give an existing directory that you may write to; without root, the mount needs fusermount3 (package fuse3)"
            }
            FuseError::Unmount { .. } => "end the programs that use the directory, then 'umount' it",
            FuseError::Stopped => "",
        };
        CliError::said(error.to_string(), remedy)
    }
}

/// Mounts a volume.
pub fn run(args: &MountArgs) -> Result<(), CliError> {
    let signals = Queue::block()?;
    let hosted = match host::reach(&args.volume, &args.placement.choice())? {
        ServerAt::Here(hosted) => *hosted,
        ServerAt::Elsewhere(socket) => {
            return Err(CliError::of(
                &args.volume,
                format_args!("already served on {}", socket.display()),
                "stop that server first, then mount the volume; programs of 'weft run' join a mounted volume",
            ));
        }
    };
    let choice = MountChoice {
        source: args.volume.display().to_string(),
        read_only: args.read_only,
        allow_other: args.allow_other || effective_user().0 == 0,
    };
    let mount = match Mount::new(hosted.volume().clone(), &args.dir, &choice) {
        Ok(mount) => mount,
        Err(error) => {
            hosted.stop()?;
            return Err(error.into());
        }
    };
    say::mounted(&args.volume, &args.dir);
    let before = hosted.snapshot();
    while !signals.ends_within(LOOK)? && !mount.has_ended() {}
    let unmounted = mount.unmount();
    let after = hosted.stop()?;
    if !args.quiet {
        say::say(SnapshotText(&after.since(&before)));
    }
    Ok(unmounted?)
}
