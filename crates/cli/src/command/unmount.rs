//! `weft unmount`: unmounts a directory, and waits until the process of the mount has closed the volume.

use crate::error::CliError;
use crate::host::is_in_use;
use crate::mounted::{Mounted, detach_dead, is_dead, mount_by, mounted_on, mounts};
use crate::say::warn;
use crate::sys::signal;
use clap::Args;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use weft_fuse::unmount;
use weft_sys::file::lock_holder;
use weft_volume::spec::{Place, path_of};

/// Pause between two looks at the server.
const LOOK: Duration = Duration::from_millis(20);
/// What to do where nothing is found.
const LISTS: &str = "'findmnt -t fuse.weft' lists mounted volumes";
/// A server that takes longer to close the volume is worth a word.
const CLOSED_SOON: Duration = Duration::from_secs(3);

/// `weft unmount`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft unmount /mnt\n\n\
    'umount DIR' unmounts, too, but returns while the volume is still being written and closed. Programs that have \
    files of the directory open, or work in it, keep it busy: 'fuser -vm DIR' lists them.")]
pub struct UnmountArgs {
    /// The directory, or the volume that is mounted there.
    pub dir: PathBuf,
    /// Unmount a directory that is in use. What programs have open there fails from then on.
    #[arg(short, long)]
    pub lazy: bool,
}

/// Unmounts.
pub fn run(args: &UnmountArgs) -> Result<(), CliError> {
    signal::notice_interrupts();
    let asked = std::path::absolute(&args.dir).map_err(|error| CliError::io("find", &args.dir, error))?;
    // A server that has gone leaves a mount that cannot be looked at: then the name has to do.
    let seen = Place::of(&args.dir).plain_name().unwrap_or(asked);
    let all = mounts()?;
    let is_source = |mount: &Mounted| mount.source == seen && mount.is_believed();
    let is_asked = |mount: &&Mounted| mount.is_volume() && (mount.dir == seen || is_source(mount));
    let asked_for: Vec<&Mounted> = all.iter().filter(is_asked).collect();
    let lives = |mount: &&&Mounted| mount.dir == seen || !is_dead(&mount.dir);
    let named = match &*asked_for {
        [] | [_] => asked_for.last(),
        several => several.iter().rev().find(lives).or(several.last()),
    };
    // An image that has been renamed since: its server has it by whatever name.
    let by_server = || File::open(path_of(&seen)).ok().and_then(|image| mount_by(lock_holder(&image)?));
    let (found, renamed) = match named {
        Some(&mount) => (Some(mount), None),
        None => (None, by_server()),
    };
    let Some(mount) = found.or(renamed.as_ref()) else {
        return Err(not_mounted(&args.dir, &seen));
    };
    if let Some(above) =
        all.iter().rev().find(|other| other.dir == mount.dir).filter(|top| top.source != mount.source)
    {
        return Err(CliError::of(
            &args.dir,
            format_args!("{} is mounted over it on {}", above.source.display(), above.dir.display()),
            format!("unmount that first: 'umount {}'", above.dir.display()),
        ));
    }
    // Programs may be in what a server left that has ended. Asking first would keep a directory in use whose server is stopped.
    let is_busy = |error: &io::Error| error.raw_os_error() == Some(libc::EBUSY) && is_dead(&mount.dir);
    let unmounted = unmount(&mount.dir, args.lazy)
        .or_else(|error| if is_busy(&error) { unmount(&mount.dir, true) } else { Err(error) });
    let unmounted = unmounted.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => CliError::of(
            &args.dir,
            "in use by programs",
            "end the programs that 'fuser -vm DIR' lists, or give --lazy: what they have open fails from then on",
        ),
        _ => CliError::io("unmount", &args.dir, error),
    });
    // Its server may have been quicker, as when its keeper has ended.
    let is_gone = |error: &CliError| {
        tracing::debug!(%error, "unmounted by somebody else");
        mounts().is_ok_and(|all| all.iter().all(|other| other.dir != mount.dir))
    };
    unmounted.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })?;
    if let Err(error) = take_off_dead(&mount.source) {
        warn(format_args!("{}: another mount whose server has ended stays: {error}", mount.source.display()));
    }
    if let Some(dir) = mounted_on(&mount.source) {
        warn(format_args!("{} is still mounted on {}", mount.source.display(), dir.display()));
        return Ok(());
    }
    wait_for_close(if renamed.is_some() { &seen } else { &mount.source })
}

/// The error of what is no directory of a mount, and no image of one.
fn not_mounted(asked: &Path, seen: &Path) -> CliError {
    let holder = File::open(path_of(seen)).ok().and_then(|image| lock_holder(&image));
    let what = match holder {
        Some(process) => format!("no volume is mounted there; process {process} has the image open"),
        None => "no volume is mounted there".to_string(),
    };
    let remedy =
        "'findmnt -t fuse.weft' lists mounted volumes; give the directory of an image that has been renamed";
    CliError::of(asked, what, if holder.is_some() { remedy } else { LISTS })
}

/// Takes off other mounts of the image whose servers have ended. What is mounted over them stays.
fn take_off_dead(source: &Path) -> Result<(), CliError> {
    let all = mounts()?;
    let mut dirs: Vec<&Path> = Vec::new();
    let is_it = |mount: &&Mounted| mount.is_volume() && mount.source == source && mount.is_believed();
    for mount in all.iter().filter(is_it) {
        if !dirs.contains(&&*mount.dir) {
            dirs.push(&mount.dir);
        }
    }
    for dir in dirs.into_iter().filter(|dir| is_dead(dir)) {
        for dead in detach_dead(dir)? {
            warn(format_args!(
                "{}: detached a mount of {}, whose server had ended",
                dir.display(),
                dead.source.display()
            ));
        }
    }
    Ok(())
}

/// Waits until nobody serves the volume any more, or the user interrupts.
fn wait_for_close(volume: &Path) -> Result<(), CliError> {
    // What is no file is in memory, and gone with its server.
    let Ok(image) = File::open(path_of(volume)) else { return Ok(()) };
    let (begun, mut is_told) = (Instant::now(), false);
    while is_in_use(&image) && !signal::was_interrupted() {
        if begun.elapsed() > CLOSED_SOON && !is_told {
            is_told = true;
            warn(format_args!(
                "{} is unmounted; waiting until its server has closed it (Ctrl-C to stop waiting)",
                volume.display()
            ));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}
