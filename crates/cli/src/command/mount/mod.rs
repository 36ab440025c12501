//! `weft mount`: serves a volume and mounts it on a directory, until a signal or `umount` ends it.

mod daemon;
pub mod helper;
mod keeper;
mod options;

use crate::args::{MemoryArgs, PlacementArgs};
use crate::error::CliError;
use crate::host::{self, Hosted, ServerAt};
use crate::mounted::{Mounted, detach_dead, mount_of, mounted_on, mounts};
use crate::report::SnapshotText;
use crate::say;
use crate::sys::signal::Queue;
use clap::Args;
use keeper::{Charge, Role};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weft_core::Ino;
use weft_fuse::{FuseError, Mount, MountChoice, mount_too, remount, unmount};
use weft_sys::effective_user;
use weft_volume::MountChoice as VolumeChoice;
use weft_volume::spec::{Place, path_of};

/// Pause between two looks whether somebody has unmounted the directory.
const LOOK: Duration = Duration::from_millis(200);

/// `weft mount`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft mount vol.img /mnt &\n  cp -a photos /mnt\n  weft run --volume vol.img -- ls /weft    # the same files\n  \
    weft unmount /mnt\n  \
    mount -t weft /srv/vol.img /mnt -o noexec    # when /sbin/mount.weft leads to weft\n\n\
    SIGTERM, SIGINT and SIGHUP unmount the directory and stop the server. docs/how-to/mount-a-volume.md says what a mount promises \
    and what it does not do yet."
)]
pub struct MountArgs {
    /// The volume: an image file, a zoned block device, zonefs:DIR, or policy:IMAGE#GRANT or function:IMAGE#GRANT.
    pub volume: PathBuf,
    /// The directory.
    pub dir: PathBuf,
    /// Let nobody change the volume through the mount. weft must still be able to write to the image.
    #[arg(short, long)]
    pub read_only: bool,
    /// Let other users use the mount [default: when root mounts]
    #[arg(long)]
    pub allow_other: bool,
    /// Options as mount(8) has them: ro, suid, dev, noexec, noatime, sync, dirsync, allow_other. Those of fstab that
    /// say nothing to weft are ignored. With remount, what is mounted on the directory changes ro, suid, dev and noexec.
    /// With writeback, the kernel caches data, and what programs write; no other program can use the volume meanwhile.
    /// With restart, another server goes on when this one is killed. With io_uring, the kernel sends requests by io_uring,
    /// when /sys/module/fuse/parameters/enable_uring is Y
    #[arg(short = 'o', long = "options", value_name = "OPTION,...", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Return when the volume is mounted, and leave a process that serves it without a terminal.
    #[arg(long)]
    pub daemon: bool,
    /// Append what the process of --daemon reports to FILE [default: nobody sees it]
    #[arg(long, value_name = "FILE", requires = "daemon")]
    pub log: Option<PathBuf>,
    /// Check the arguments, and mount nothing, as 'mount -f' does.
    #[arg(long, hide = true)]
    pub fake: bool,
    /// The socket to listen on, for programs of other users [default: a socket in a private directory of this user]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Print no report at the end.
    #[arg(short, long)]
    pub quiet: bool,
}

impl From<FuseError> for CliError {
    fn from(error: FuseError) -> CliError {
        let remedy = match &error {
            FuseError::Mount { source, .. } if source.raw_os_error() == Some(libc::ENOTCONN) => {
                "the server of what is mounted there has ended: 'umount -l DIR' takes it off"
            }
            FuseError::Mount { .. } => {
                "give an existing directory that you may write to; without root, the mount needs fusermount3 (package fuse3)"
            }
            FuseError::Unmount { .. } => "end the programs that use the directory, then 'umount' it",
            FuseError::InUse { .. } => "end these programs",
            FuseError::Refused { .. } => {
                "make room on the volume, and write these files again; programs that call fsync hear of it"
            }
            FuseError::NoRings { source: None, .. } => {
                "as root, before the mount: 'echo Y >/sys/module/fuse/parameters/enable_uring' (Linux 6.14 with CONFIG_FUSE_IO_URING); or \
                 leave out -o io_uring"
            }
            FuseError::NoRings { .. } => {
                "'sysctl kernel.io_uring_disabled' shows whether the system refuses io_uring; or leave out -o io_uring"
            }
            FuseError::Thread(_) => "end other programs, or raise the limit of threads (ulimit -u)",
            FuseError::Stopped => "",
        };
        CliError::said(error.to_string(), remedy)
    }
}

/// How a mount is made that shows this as its source; root's is for all users.
pub fn choice(source: &Path) -> MountChoice {
    MountChoice {
        source: source.as_os_str().to_owned(),
        allow_other: effective_user().0 == 0,
        ..MountChoice::default()
    }
}

/// Mounts a volume; the exit status.
pub fn run(args: &MountArgs) -> Result<u8, CliError> {
    if args.volume.as_os_str().as_encoded_bytes().starts_with(b"mem:") {
        return Err(CliError::of(
            &args.volume,
            "only 'weft run' makes a volume in memory",
            "'weft run --volume mem:SIZE --mount DIR -- PROGRAM' mounts one while the program runs",
        ));
    }
    args.placement.program_cpus.check()?;
    // 'weft unmount' and others find the image by what the mount shows.
    let source = Place::of(&args.volume).plain_name().unwrap_or_else(|_| args.volume.clone());
    let mut choice = choice(&source);
    let (remounts, named): (Vec<_>, Vec<_>) = args.options.iter().partition(|option| *option == "remount");
    let is_new = |option: &&String| remounts.is_empty() || !options::is_shown(option);
    named.into_iter().filter(is_new).try_for_each(|option| options::apply(&mut choice, option))?;
    choice.read_only |= args.read_only;
    choice.allow_other |= args.allow_other;
    if choice.io_uring && choice.restart {
        return Err(CliError::said(
            "-o restart,io_uring: the kernel cannot give another server what it has sent by io_uring",
            "leave out one of the two",
        ));
    }
    if !remounts.is_empty() {
        return change(args, &choice).map(|()| 0);
    }
    if args.fake {
        return Ok(0);
    }
    make_way(&args.dir)?;
    let is_dir = std::fs::metadata(&args.dir).and_then(|meta| match meta.is_dir() {
        true => Ok(()),
        false => Err(std::io::Error::from_raw_os_error(libc::ENOTDIR)),
    });
    is_dir.map_err(|source| FuseError::Mount { dir: args.dir.clone(), source })?;
    host::wait_until_closed(&args.volume);
    if shows_too(args, &choice)? {
        return Ok(0);
    }
    if args.daemon && !daemon::stays() {
        return daemon::start(args.quiet);
    }
    let signals = Queue::block()?;
    let log = args.daemon.then(|| daemon::open_log(args.log.as_deref())).transpose()?;
    // As long as nothing is mounted there: a later look would wait for an answer.
    let dir = args.dir.canonicalize().map_err(|source| FuseError::Mount { dir: args.dir.clone(), source })?;
    let served = Served::of(args, &source)?;
    let role = match choice.restart {
        true => keeper::split(&signals, &dir, log.as_ref())?,
        false => Role::Server(Charge::of_none(&dir)?),
    };
    let charge = match role {
        Role::Server(charge) => charge,
        Role::Done(status) => return Ok(status),
    };
    match served.memory.apply(&path_of(&served.volume)) {
        // A mount goes on as it can.
        Err(error) if charge.device.is_some() => say::warn(error),
        applied => applied?,
    }
    let hosted = match charge.device {
        None => served.begin(&args.volume, choice.write_back)?,
        // Of a server that left its directory.
        Some(_) => served.begin(&served.volume, choice.write_back)?,
    };
    let mount = match mount(&hosted, args, &dir, &choice, charge) {
        Ok(mount) => mount,
        Err(error) => {
            hosted.stop()?;
            return Err(error.into());
        }
    };
    if let Some(log) = &log {
        daemon::leave_terminal(log);
    }
    let before = hosted.snapshot();
    while !signals.ends_within(LOOK)? && !mount.has_ended() {}
    let unmounted = mount.unmount();
    let after = hosted.stop()?;
    if !args.quiet {
        say::say(SnapshotText(&after.since(&before)));
    }
    Ok(unmounted.map(|()| 0)?)
}

/// Takes off what servers that have ended left on a directory.
///
/// # Errors
/// The kernel or `fusermount3` refuses.
pub fn make_way(dir: &Path) -> Result<(), CliError> {
    for dead in detach_dead(dir)? {
        say::warn(format_args!(
            "{}: detached a mount of {}, whose server had ended",
            dir.display(),
            dead.source.display()
        ));
    }
    Ok(())
}

/// Whether a volume is mounted already on another directory, and now on this one, too: one server serves both.
fn shows_too(args: &MountArgs, choice: &MountChoice) -> Result<bool, CliError> {
    let dir = args.dir.canonicalize().map_err(|error| CliError::io("find", &args.dir, error))?;
    let found = mount_of(&args.volume).filter(|mount| effective_user().0 == 0 && mount.is_of_root());
    let Some(Mounted { dir: mounted, .. }) = found.filter(|mount| mount.dir != dir) else {
        return Ok(false);
    };
    mount_too(&mounted, &dir, choice).map_err(|source| FuseError::Mount { dir: dir.clone(), source })?;
    // It may be that only a part of it is mounted, or that something else is mounted over it.
    let is_root = std::fs::metadata(&dir).is_ok_and(|meta| meta.ino() == Ino::ROOT.0);
    if !is_root || mounted_on(&args.volume).is_none_or(|last| last != dir) {
        unmount(&dir, true).map_err(|source| FuseError::Unmount { dir, source })?;
        return Ok(false);
    }
    if !args.daemon || !args.quiet {
        say::mounted(&args.volume, &args.dir);
    }
    Ok(true)
}

/// `-o remount`: changes how the kernel shows what is mounted.
fn change(args: &MountArgs, choice: &MountChoice) -> Result<(), CliError> {
    let dir = args.dir.canonicalize().map_err(|error| CliError::io("find", &args.dir, error))?;
    if !mounts()?.iter().rev().find(|mount| mount.dir == dir).is_some_and(Mounted::is_volume) {
        return Err(CliError::of(
            &args.dir,
            "no volume is mounted there",
            "leave out 'remount' to mount one",
        ));
    }
    if args.fake {
        return Ok(());
    }
    remount(&dir, choice).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => CliError::of(
            &args.dir,
            "programs have files open to write there",
            "end these programs, which 'fuser -vm DIR' lists; then it can be mounted read-only",
        ),
        _ => CliError::io("mount again", &args.dir, error),
    })
}

/// Mounts a served volume, or goes on with a mount.
fn mount(
    hosted: &Hosted,
    args: &MountArgs,
    dir: &Path,
    choice: &MountChoice,
    charge: Charge,
) -> Result<Mount, FuseError> {
    let volume = hosted.volume().clone();
    let Charge { kept, device, keeper } = charge;
    if let Some(device) = device {
        return Mount::resume(volume, dir, choice, kept, device);
    }
    let mount = Mount::new(volume, dir, choice, kept)?;
    if let Some(keeper) = &keeper {
        match mount.device().map(|device| keeper::hand_over(keeper, device)) {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::warn!(%error, "the mount ends with this process"),
            None => tracing::warn!("-o restart needs Linux 6.16: the mount ends with this process"),
        }
    }
    say::mounted(&args.volume, &args.dir);
    Ok(mount)
}

/// What is served, wherever the process is.
struct Served {
    volume: PathBuf,
    socket: Option<PathBuf>,
    choice: VolumeChoice,
    memory: MemoryArgs,
}

impl Served {
    fn of(args: &MountArgs, source: &Path) -> Result<Served, CliError> {
        let whole =
            |path: &Path| std::path::absolute(path).map_err(|error| CliError::io("find", path, error));
        let mut choice = args.placement.choice();
        choice.policy = choice.policy.as_deref().map(whole).transpose()?;
        let socket = args.socket.as_deref().map(whole).transpose()?;
        let memory = args.placement.memory.of_volume(&path_of(source))?;
        Ok(Served { volume: source.to_path_buf(), socket, choice, memory })
    }

    /// Serves the volume in this process, for nobody else if it is alone.
    fn begin(&self, volume: &Path, is_alone: bool) -> Result<Hosted, CliError> {
        if is_alone {
            if let Some(socket) = &self.socket {
                return Err(CliError::said(
                    format!(
                        "--socket {}: nobody can use a volume that is mounted with -o writeback",
                        socket.display()
                    ),
                    "leave out one of the two",
                ));
            }
            return Hosted::alone(volume, &self.choice);
        }
        if let Some(socket) = &self.socket {
            return Hosted::on_socket(volume, socket, &self.choice);
        }
        match host::reach(volume, &self.choice)? {
            ServerAt::Here(hosted) => Ok(*hosted),
            ServerAt::Elsewhere(socket) => Err(CliError::of(
                volume,
                format_args!("already served on {}", socket.display()),
                "stop that server first, then mount the volume; one whose mount 'umount -l' has detached ends with the programs that \
                 have files open there",
            )),
        }
    }
}
