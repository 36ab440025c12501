//! A volume served by this process, or by another one: whoever comes first serves it, the others are its clients.

use crate::error::CliError;
use crate::mounted::{Mounted as Mount, mount_of, mounted_on};
use crate::say::warn;
use crate::sys::signal;
use crate::volume;
use std::fs::{DirEntry, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use weft_core::serve::connect_now;
use weft_device::DeviceError;
use weft_server::{Server, Volume, other_sockets, socket_dir, socket_dirs, socket_path};
use weft_sys::effective_user;
use weft_sys::file::{LockedFile, lock_holder};
use weft_sys::{paging, peer};
use weft_volume::report::Snapshot;
use weft_volume::spec::Place;
use weft_volume::{MountChoice, Mounted};

/// How long to wait for a process that has the image but does not serve it: it is opening or closing it.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
const BUSY_STEP: Duration = Duration::from_millis(20);
/// What `statfs` tells of files of FUSE.
const FUSE_MAGIC: i64 = 0x6573_5546;
/// How long a volume may be served after its last mount has gone: after that, it is served without one.
const UNMOUNTED_PATIENCE: Duration = Duration::from_secs(2);
/// Names of private sockets begin with this; the number of the process follows.
const PRIVATE: &str = "mem";
/// A private socket that does not answer after this long is one of a killed process.
const SOCKET_AGE_MIN: Duration = Duration::from_secs(10);
/// A server that has not answered after this long is worth a word.
const ANSWER_EXPECTED: Duration = Duration::from_secs(3);
/// Clients that leave within this time are not worth a word.
const LEAVE_QUIETLY: Duration = Duration::from_millis(500);

/// A volume that this process serves.
pub struct Hosted {
    mounted: Arc<Mounted>,
    server: Server,
    socket: PathBuf,
    /// Leads to the socket from where other commands look for it.
    link: Option<PathBuf>,
}

/// The process that serves a volume.
pub enum ServerAt {
    /// Another process serves it on this socket.
    Elsewhere(PathBuf),
    /// This process does.
    Here(Box<Hosted>),
}

impl Hosted {
    /// Serves a mounted volume on a socket that nobody else finds.
    pub fn unlisted(mounted: Arc<Mounted>) -> Result<Hosted, CliError> {
        Hosted::start(mounted, private_socket()?)
    }

    /// Serves a mounted volume.
    pub fn start(mounted: Arc<Mounted>, socket: PathBuf) -> Result<Hosted, CliError> {
        let server = Server::start(Volume::new(mounted.clone())?, &socket)?;
        Ok(Hosted { mounted, server, socket, link: None })
    }

    /// Opens a volume and serves it on this socket; other commands of this user find it by the image, too.
    pub fn on_socket(image: &Path, socket: &Path, choice: &MountChoice) -> Result<Hosted, CliError> {
        refuse_nested(image)?;
        let mut hosted = Hosted::start(volume::open(image, choice)?, socket.to_path_buf())?;
        if let Err(error) = hosted.be_found_by(image) {
            warn(format_args!("only --socket leads other commands to this server: {error}"));
        }
        Ok(hosted)
    }

    /// Opens a volume that no other command finds: to them, it is in use.
    pub fn alone(image: &Path, choice: &MountChoice) -> Result<Hosted, CliError> {
        refuse_nested(image)?;
        Hosted::start(volume::open(image, choice)?, private_socket()?)
    }

    /// Lets other commands of this user find the server by the image, when its socket is elsewhere.
    pub fn be_found_by(&mut self, image: &Path) -> io::Result<()> {
        let link = socket_of(&Place::of(image))?;
        let socket = std::path::absolute(&self.socket)?;
        if link == socket {
            return Ok(());
        }
        // The image is this process's: what stands there is left from one that has ended.
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => std::os::unix::fs::symlink(socket, &link)?,
        }
        self.link = Some(link);
        Ok(())
    }

    /// The socket to connect to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What is served.
    pub fn volume(&self) -> &Arc<Volume> {
        self.server.volume()
    }

    /// What the volume has counted so far.
    pub fn snapshot(&self) -> Snapshot {
        self.mounted.snapshot(self.server.volume().program_view())
    }

    /// Waits until no process is connected, after which none can connect, or until the user interrupts. `tell` gets how many there
    /// are, once, when it takes longer than a moment.
    pub fn wait_for_clients(&self, interrupted: impl Fn() -> bool, tell: impl FnOnce(usize)) {
        if self.server.close_when_idle(LEAVE_QUIETLY) {
            return;
        }
        tell(self.server.users());
        while !interrupted() && !self.server.close_when_idle(Duration::from_millis(100)) {}
    }

    /// Stops serving, unmounts, and checks the device's counters.
    pub fn stop(self) -> Result<Snapshot, CliError> {
        // Until all of it is given back.
        let _in_order = paging::in_order();
        let Hosted { mounted, server, link, .. } = self;
        if let Some(link) = &link {
            // Before another server can be there. What is left leads nowhere, and the next one takes its place.
            let _ = std::fs::remove_file(link);
        }
        let volume = server.stop();
        let view = volume.program_view();
        drop(volume);
        mounted.close()?;
        Ok(mounted.snapshot(view))
    }
}

/// Whether a device could not be opened because somebody has it.
fn is_busy(error: &CliError) -> bool {
    matches!(error, CliError::Device(DeviceError::Busy(_)))
}

/// The error of what nobody else may have in use: says who serves it, when somebody does.
pub fn served(image: &Path, error: CliError) -> CliError {
    if !is_busy(&error) {
        return error;
    }
    let place = Place::of(image);
    let own = socket_of(&place).into_iter();
    let mut sockets = own.chain(others_of(&place));
    let Some((socket, server)) = sockets.find_map(|at| served_by(&at).map(|server| (at, server))) else {
        return match mounted_on(image) {
            Some(dir) => {
                let (how, why) = match serves_nobody(&place.path) {
                    true => (" with -o writeback", "; such a volume is for its mount alone"),
                    false => ("", ""),
                };
                let dir = dir.display();
                CliError::of(
                    image,
                    format_args!("in use, mounted{how} on {dir}"),
                    format!("'weft unmount {dir}' first{why}"),
                )
            }
            None => error,
        };
    };
    let socket = std::fs::canonicalize(&socket).unwrap_or(socket);
    let (what, remedy) = match server.pid {
        Some(pid) => (
            format!("by process {pid} "),
            format!("stop it with 'kill {pid}', or end the program that it runs"),
        ),
        None => (String::new(), "stop its server, or end the program that it runs".to_string()),
    };
    CliError::of(image, format_args!("in use, served {what}on {}", socket.display()), remedy)
}

/// The socket of the volume at a place.
fn socket_of(place: &Place) -> io::Result<PathBuf> {
    socket_path(&place.path, &place.part())
}

/// Where else its server may listen.
fn others_of(place: &Place) -> Vec<PathBuf> {
    other_sockets(&place.path, &place.part())
}

/// Whether a mount has an image, and its server will answer no other command of this user.
fn is_of_mount_alone(image: &Path) -> bool {
    let is_of_other = |mount: &Mount| mount.is_of_root() && effective_user().0 != 0;
    mount_of(image).is_some_and(|mount| is_of_other(&mount) || serves_nobody(&Place::of(image).path))
}

/// Whether the process that has an image serves it on a private socket.
fn serves_nobody(image: &Path) -> bool {
    let Some(holder) = File::open(image).ok().and_then(|image| lock_holder(&image)) else { return false };
    let beginning = format!("{PRIVATE}-{holder}-");
    let entries = socket_dirs().into_iter().flat_map(std::fs::read_dir).flatten().flatten();
    let mut own = entries.filter(|entry| entry.file_name().as_bytes().starts_with(beginning.as_bytes()));
    own.any(|entry| served_by(&entry.path()).is_some())
}

/// The error of an image that could not be opened: who serves it, with this exit status, or what `otherwise` makes of it.
pub fn served_or<E: Into<CliError>>(
    image: &Path,
    status: u8,
    error: E,
    otherwise: impl FnOnce(CliError) -> CliError,
) -> CliError {
    let error = error.into();
    if is_busy(&error) { served(image, error).with_status(status) } else { otherwise(error) }
}

/// The server of a socket.
pub struct Found {
    /// Its process; none when it is stopped and too many wait for it.
    pub pid: Option<u32>,
}

/// Who serves on a socket; none when nobody does. A server that does not answer is not waited for.
pub fn served_by(socket: &Path) -> Option<Found> {
    match connect_now(socket) {
        Ok(server) => Some(Found { pid: peer::credentials(&server).ok().map(|peer| peer.pid) }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(Found { pid: None }),
        Err(_) => None,
    }
}

/// Asks another process's server, and tells the user whom it waits for when there is no answer.
pub fn tells_of_waiting<T>(volume: &str, socket: &Path, ask: impl FnOnce() -> T) -> T {
    let (answered, waits) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Without it, only the message is missing.
        let told = std::thread::Builder::new().spawn_scoped(scope, move || {
            if waits.recv_timeout(ANSWER_EXPECTED) == Err(RecvTimeoutError::Timeout) {
                let pid = served_by(socket).and_then(|server| server.pid);
                let process = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
                warn(format_args!(
                    "the server of {volume}{process} does not answer; waiting for it (Ctrl-C to stop)"
                ));
            }
        });
        drop(told);
        let answer = ask();
        drop(answered);
        answer
    })
}

/// Tries again what connects to a server, as long as that is about to close: `attempt` finds a server, or becomes it, each time.
pub fn until_open<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    closes: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if closes(&error) && begun.elapsed() < BUSY_PATIENCE && !signal::was_interrupted() => {
                std::thread::sleep(BUSY_STEP);
            }
            outcome => return outcome,
        }
    }
}

/// Whether a connection failed because the server closes, or has just closed.
pub fn is_closing(errno: i32) -> bool {
    matches!(errno, libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE | libc::ENOENT)
}

/// Refuses an image that lies on a volume itself, when this command runs under 'weft run': clients could not map it.
fn refuse_nested(image: &Path) -> Result<(), CliError> {
    let (Some(at), Some(_)) = (std::env::var_os("WEFT_AT"), std::env::var_os("WEFT_SOCKET")) else {
        return Ok(());
    };
    let path = Place::of(image).path;
    let plain = path.canonicalize().or_else(|_| std::path::absolute(path));
    if plain.is_ok_and(|plain| plain.starts_with(&at)) {
        return Err(CliError::of(
            image,
            "the image lies on a volume, where weft cannot serve it",
            "copy it to the host with 'weft cp'; 'weft fsck' and 'weft format' work where it is",
        ));
    }
    Ok(())
}

/// Finds the server of an image, or becomes it.
pub fn reach(image: &Path, choice: &MountChoice) -> Result<ServerAt, CliError> {
    let place = Place::of(image);
    refuse_nested(image)?;
    let missing =
        |source: io::Error| match (DeviceError::Io { path: place.path.clone(), source }, &place.flash) {
            (error, Some(_)) => CliError::Flash(error.into()),
            (error, None) => CliError::Device(error),
        };
    std::fs::metadata(&place.path).map_err(missing)?;
    let socket = socket_of(&place).map_err(no_directory)?;
    let begun = Instant::now();
    loop {
        if served_by(&socket).is_some() {
            return Ok(ServerAt::Elsewhere(socket));
        }
        match volume::open(image, choice) {
            Ok(mounted) => {
                // Others may look at the same time; each is on its own.
                let socket = if choice.look { private_socket()? } else { socket };
                return Ok(ServerAt::Here(Box::new(Hosted::start(mounted, socket)?)));
            }
            Err(error) if is_busy(&error) => {
                // This user's, perhaps, in another environment.
                if let Some(other) = others_of(&place).into_iter().find(|at| served_by(at).is_some()) {
                    return Ok(ServerAt::Elsewhere(other));
                }
                if begun.elapsed() > BUSY_PATIENCE || signal::was_interrupted() || is_of_mount_alone(image) {
                    return Err(served(image, error));
                }
                std::thread::sleep(BUSY_STEP);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether another process has an image open.
pub fn is_in_use(image: &File) -> bool {
    // The locks of files of a mount are with its server, and the kernel does not show them.
    let is_on_fuse = || rustix::fs::fstatfs(image).is_ok_and(|found| found.f_type == FUSE_MAGIC);
    let is_locked = || image.try_clone().is_ok_and(|image| matches!(LockedFile::share(image), Ok(None)));
    lock_holder(image).is_some() || is_on_fuse() && is_locked()
}

/// Waits while a process closes a volume that has been unmounted: 'umount' returns before.
pub fn wait_until_closed(image: &Path) {
    let place = Place::of(image);
    let Ok(file) = File::open(&place.path) else { return };
    let is_served = || socket_of(&place).is_ok_and(|socket| served_by(&socket).is_some());
    let begun = Instant::now();
    while is_in_use(&file) && mounted_on(image).is_none() && !signal::was_interrupted() {
        let patience = if is_served() { UNMOUNTED_PATIENCE } else { BUSY_PATIENCE };
        if begun.elapsed() > patience {
            break;
        }
        std::thread::sleep(BUSY_STEP);
    }
}

/// A socket for a volume in memory, which nobody else can name.
pub fn private_socket() -> Result<PathBuf, CliError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let dir = socket_dir().map_err(no_directory)?;
    let count = COUNT.fetch_add(1, Relaxed);
    if count == 0 {
        remove_left_sockets(&dir);
    }
    Ok(dir.join(format!("{PRIVATE}-{}-{count}.sock", std::process::id())))
}

/// The error of a user for whom no directory of sockets can be made.
fn no_directory(error: io::Error) -> CliError {
    CliError::said(
        format!("no directory for the server's socket: {error}"),
        "set XDG_RUNTIME_DIR or TMPDIR to a directory of yours that you may write to; 'weft serve' and 'weft mount' also take --socket \
         PATH",
    )
}

/// Removes private sockets of processes that were killed.
fn remove_left_sockets(dir: &Path) {
    let is_socket = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().filter(is_socket);
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock"));
        let process = name
            .and_then(|name| name.strip_prefix(PRIVATE)?.strip_prefix('-')?.split_once('-'))
            .map(|(pid, _)| pid);
        // Processes of another container have other numbers, but they answer, or have only begun.
        let is_old = |path: &Path| path.metadata()?.modified()?.elapsed().map_err(io::Error::other);
        if process.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
            && is_old(&path).is_ok_and(|age| age > SOCKET_AGE_MIN)
            && connect_now(&path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
        {
            // Another command may have come first.
            let _ = std::fs::remove_file(&path);
        }
    }
}
