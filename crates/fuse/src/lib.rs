//! A front of a served volume: the kernel mounts it (FUSE), and any program sees its files.
//!
//! ```text
//!  program -- system calls --> kernel -- /dev/fuse --> channel -- requests --> front -- calls --> weft_server::ops
//!                                 |                       ^                      |
//!                                 |                       +------ answers -------+--- locks: those that wait
//!                                 |                                              '--- compound programs: those that wait, and workers
//!                                 +----- io_uring ----> rings, when they are asked for: the same, by a queue of each processor
//! ```
//!
//! The front runs in the server's process. Each request of the kernel becomes one call of a [`weft_server::ops::Session`], so a
//! program under the shim and one that comes through the mount meet in the same inodes, maps, rings and locks.
//!
//! The kernel checks permissions (`default_permissions`) and does what follows from the caller's groups; the session acts
//! with the caller's user and group, and may do everything.
//!
//! The kernel keeps names and attributes while no other process uses the volume. When one begins, the front first has the kernel
//! forget them; from then on it keeps them for no longer than a call, so nothing that another program changes is seen late. Data
//! it keeps only for shared maps (direct I/O), unless the mount has the volume for itself ([`MountChoice::write_back`]).

mod abi;
mod attr;
mod changes;
mod channel;
mod entries;
mod front;
mod handles;
mod kept_locks;
mod locks;
mod mount;
mod nodes;
mod openers;
mod programs;
mod rings;
mod room;

use channel::{Buffers, Channel};
use front::Front;
use handles::Handles;
pub use handles::Kept;
use parking_lot::Mutex;
use rings::Rings;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weft_server::{Volume, acts_for_watcher};

/// Threads that answer requests; and how many come and go when all of them wait for something else.
const THREADS: usize = 4;
const EXTRA_MAX: usize = 64;
/// What has just been closed, or is just being looked at, keeps a mount in use for a moment.
const IN_USE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Why a volume is not mounted, or was not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The kernel or `fusermount3` refuses.
    #[error("{dir}: cannot mount: {source}")]
    Mount {
        /// Where.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel or `fusermount3` refuses.
    #[error("{dir}: cannot unmount: {source}")]
    Unmount {
        /// From where.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Programs use the directory: it is not mounted any more, but what they have open there fails from now on.
    #[error("{dir}: in use by programs: unmounted, but what they have open there fails from now on")]
    InUse {
        /// From where.
        dir: PathBuf,
    },
    /// What programs had written and the kernel kept could not be stored when it passed it on: the volume was full, or failed.
    #[error("{dir}: {writes} writes could not be stored; the files that programs wrote last may lack data")]
    Refused {
        /// Where it was mounted.
        dir: PathBuf,
        /// How many.
        writes: u64,
    },
    /// The system has no thread for the mount.
    #[error("cannot start a thread for a mount: {0}")]
    Thread(io::Error),
    /// The kernel does not give requests by io_uring.
    #[error("{dir}: the kernel does not offer FUSE over io_uring{}", .source.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    NoRings {
        /// Where it was to be mounted.
        dir: PathBuf,
        /// Why, when it is not that the kernel's module has it not, or that it is off there.
        source: Option<io::Error>,
    },
    /// The server stops.
    #[error("the volume is served no more")]
    Stopped,
}

/// How a volume is mounted.
#[derive(Clone, Debug, Default)]
pub struct MountChoice {
    /// What `mount` and `df` show as its source.
    pub source: OsString,
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Users other than the one who mounts see it, too.
    pub allow_other: bool,
    /// Set-id bits of programs count.
    pub suid: bool,
    /// Device nodes lead to devices.
    pub dev: bool,
    /// Programs cannot be executed.
    pub no_exec: bool,
    /// Reads do not change access times.
    pub no_atime: bool,
    /// Each write is durable when it returns.
    pub sync: bool,
    /// Each change of a directory is durable when it returns.
    pub dir_sync: bool,
    /// The kernel keeps data, and what programs write until an `fsync`, or for some seconds: for a volume that nobody else uses.
    pub write_back: bool,
    /// Another server goes on when this one is killed, see [`Mount::resume`].
    pub restart: bool,
    /// Requests come by io_uring, as far as the kernel gives them so (Linux 6.14). A mount like this cannot be resumed.
    pub io_uring: bool,
}

/// What the threads of a mount share.
struct Shared {
    front: Arc<Front>,
    channel: Arc<Channel>,
    rings: Option<Arc<Rings>>,
    /// Threads that came when all others were waiting for something else.
    extra: Mutex<Vec<JoinHandle<()>>>,
}

impl Shared {
    /// Begins a thread that answers requests, unless there are many.
    fn add_thread(self: &Arc<Shared>) {
        let mut extra = self.extra.lock();
        extra.retain(|thread| !thread.is_finished());
        if extra.len() < EXTRA_MAX {
            let shared = self.clone();
            let thread = thread::Builder::new().name("weft-mount-more".into());
            // Without it, requests wait for one of the others.
            extra.extend(thread.spawn(move || serve(&shared, true)));
        }
    }

    /// The mount has ended.
    fn stop(&self) {
        self.front.stop();
        self.channel.end();
        if let Some(rings) = &self.rings {
            rings.end();
        }
    }

    /// When the kernel has said whether it agrees to use rings.
    fn begin_rings(&self, has_agreed: Option<bool>) {
        if let (Some(rings), Some(has_agreed)) = (&self.rings, has_agreed) {
            if has_agreed {
                self.channel.set_has_rings();
            }
            rings.begin(has_agreed);
        }
    }
}

/// A mounted volume. It is unmounted with this.
pub struct Mount {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    dir: PathBuf,
    is_mounted: bool,
}

impl Mount {
    /// Mounts a served volume on a directory. What `kept` holds then is enough for [`Mount::resume`].
    ///
    /// # Errors
    /// [`FuseError::Mount`] when the directory does not exist, or the user may not mount there.
    pub fn new(
        volume: Arc<Volume>,
        dir: &Path,
        choice: &MountChoice,
        kept: Kept,
    ) -> Result<Mount, FuseError> {
        let refused = |source| FuseError::Mount { dir: dir.to_path_buf(), source };
        let dir_seen = dir.canonicalize().map_err(refused)?;
        if !dir_seen.is_dir() {
            return Err(refused(io::Error::from_raw_os_error(libc::ENOTDIR)));
        }
        let no_rings = |source| FuseError::NoRings { dir: dir.to_path_buf(), source };
        if choice.io_uring && !rings::are_offered() {
            return Err(no_rings(None));
        }
        let front = Front::new(volume, &dir_seen, choice, Handles::new(kept, choice.restart))
            .ok_or(FuseError::Stopped)?;
        let device = match mount::mount(&dir_seen, choice) {
            Ok(device) => device,
            Err(error) => {
                front.stop();
                return Err(refused(error));
            }
        };
        let mount = Mount::begin(front, device, dir_seen, choice.io_uring)?;
        // The first request, which the threads answer.
        let root = mount.dir.metadata().map_err(refused)?;
        mount.shared.front.set_device(root.dev());
        if choice.io_uring && mount.shared.front.agrees_on_rings() == Some(false) {
            tracing::warn!("the kernel does not offer FUSE over io_uring: requests come from /dev/fuse");
        }
        Ok(mount)
    }

    /// Goes on with a mount whose server has ended: with its connection, and what it kept, on the directory that the first server
    /// mounted. Programs go on, too: their requests wait in the kernel. What cannot be had back, they are told by `EIO`:
    /// writes without a later `fsync`, open files that had no name, files with locks.
    ///
    /// # Errors
    /// As [`Mount::new`].
    pub fn resume(
        volume: Arc<Volume>,
        dir: &Path,
        choice: &MountChoice,
        kept: Kept,
        device: OwnedFd,
    ) -> Result<Mount, FuseError> {
        let front =
            Front::new(volume, dir, choice, Handles::new(kept, choice.restart)).ok_or(FuseError::Stopped)?;
        Mount::begin(front, File::from(device), dir.to_path_buf(), false)
    }

    /// Begins to answer requests.
    fn begin(front: Arc<Front>, device: File, dir: PathBuf, by_rings: bool) -> Result<Mount, FuseError> {
        let gives_up = || {
            front.stop();
            let _ = mount::unmount(&dir, true);
        };
        let channel = Channel::new(device).map_err(|source| {
            gives_up();
            FuseError::Mount { dir: dir.clone(), source }
        })?;
        let channel = Arc::new(channel);
        front.connect(channel.clone());
        // Before the kernel is answered that there are rings: it waits for them then.
        let rings = by_rings.then(|| Rings::new(front.clone(), channel.clone())).transpose();
        let rings = rings.map_err(|source| {
            gives_up();
            FuseError::NoRings { dir: dir.clone(), source: Some(source) }
        })?;
        let mut stale = Vec::new();
        if front.is_resumed() {
            // Before the first request is read: none is to be given twice to this server.
            stale = front.resume(&channel);
        }
        let shared = Arc::new(Shared { front, channel, rings, extra: Mutex::default() });
        let mut mount = Mount { shared, threads: Vec::new(), dir, is_mounted: true };
        for number in 0..THREADS {
            mount.start(format!("weft-mount-{number}"), |shared| serve(shared, false))?;
        }
        mount.start("weft-mount-lock".into(), |shared| shared.front.serve_locks(&shared.channel))?;
        for number in 0..programs::WORKERS {
            mount.start(format!("weft-mount-do-{number}"), |shared| {
                shared.front.serve_programs(&shared.channel);
            })?;
        }
        if by_rings {
            let dir = mount.dir.clone();
            mount.start("weft-ring-stir".into(), move |shared| {
                if let Some(rings) = &shared.rings {
                    rings.stir_all(&dir);
                }
            })?;
        }
        if mount.shared.front.outlives() {
            mount.start("weft-mount-settle".into(), |shared| shared.front.settle())?;
        }
        if !stale.is_empty() {
            mount.start("weft-mount-stale".into(), move |shared| shared.front.forget_data(&stale))?;
        }
        Ok(mount)
    }

    /// The connection with the kernel, when it can outlive the server (Linux 6.16).
    pub fn device(&self) -> Option<BorrowedFd<'_>> {
        self.shared.front.can_resume().then(|| self.shared.channel.as_fd())
    }

    fn start(
        &mut self,
        name: String,
        run: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> Result<(), FuseError> {
        let shared = self.shared.clone();
        let thread = thread::Builder::new().name(name).spawn(move || run(&shared));
        self.threads.push(thread.map_err(FuseError::Thread)?);
        Ok(())
    }

    /// Whether somebody else has unmounted it (`umount`).
    pub fn has_ended(&self) -> bool {
        self.threads.iter().take(THREADS).all(JoinHandle::is_finished)
    }

    /// Unmounts it, and waits for the requests that are under way.
    ///
    /// # Errors
    /// [`FuseError::InUse`] when programs use it, [`FuseError::Unmount`] when the kernel refuses.
    pub fn unmount(mut self) -> Result<(), FuseError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), FuseError> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        let unmounted = if self.has_ended() { Ok(()) } else { self.take_down() };
        self.shared.stop();
        if unmounted.is_ok() {
            for thread in self.threads.drain(..) {
                // One that has panicked is at its end, too.
                let _ = thread.join();
            }
            loop {
                // They may begin others.
                let Some(thread) = self.shared.extra.lock().pop() else { break };
                let _ = thread.join();
            }
            if let Some(rings) = &self.shared.rings {
                rings.join();
            }
        }
        match self.shared.front.refused_writes() {
            0 => unmounted,
            writes => unmounted.and(Err(FuseError::Refused { dir: self.dir.clone(), writes })),
        }
    }

    fn take_down(&self) -> Result<(), FuseError> {
        let dir = || self.dir.clone();
        unmount(&self.dir, false).map_err(|first| {
            if let Err(error) = self.shared.front.store_kept(&self.dir) {
                tracing::warn!(%error, "what programs have written may not be stored");
            }
            match unmount(&self.dir, true) {
                Ok(()) => FuseError::InUse { dir: dir() },
                Err(_) => FuseError::Unmount { dir: dir(), source: first },
            }
        })
    }
}

/// Unmounts a directory of any process; with `detaches` also one that is in use: what programs have open there fails when its
/// server ends.
///
/// # Errors
/// What the kernel or `fusermount3` says: `EBUSY` when programs use it.
pub fn unmount(dir: &Path, detaches: bool) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match mount::unmount(dir, detaches) {
            Err(_) if !detaches && begun.elapsed() < IN_USE => thread::sleep(PAUSE),
            unmounted => return unmounted,
        }
    }
}

pub use mount::{mount_too, remount};

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "a mount that was given up");
        }
    }
}

/// Answers requests until the mount ends, or enough others wait for them.
fn serve(shared: &Arc<Shared>, is_extra: bool) {
    acts_for_watcher();
    let mut buffers = Buffers::default();
    while !(is_extra && shared.channel.ready() >= THREADS) {
        let served = shared.channel.serve(
            &mut buffers,
            |request| shared.front.is_short(request),
            |request, answer, may_wait| shared.front.handle(request, answer, &shared.channel, may_wait),
            &|| shared.add_thread(),
        );
        match served {
            Ok(true) => shared.begin_rings(shared.front.agrees_on_rings()),
            Ok(false) => return shared.stop(),
            Err(error) => tracing::error!(%error, "a request of the kernel is not answered"),
        }
    }
}
