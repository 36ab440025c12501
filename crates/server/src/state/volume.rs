//! A served volume: its core and all state.

use super::append_log::LogTurns;
use super::grants::GrantBook;
use super::inodes::Inodes;
use super::locks::{Locks, Owner};
use super::maps::Maps;
use super::memory::{SharedLimits, shared_use};
use super::names::{Cached, Published};
use super::open_files::{Name, OpenFile, OpenFiles};
use super::orphans::Orphans;
use super::processes::{Process, Processes};
use super::program_cpus::ProgramCpus;
use super::readahead::Readahead;
use super::shared::ControlMemory;
use super::watch::{Watch, Watched, Watcher};
use crate::error::ServerError;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Instant;
use weft_client::proto::is_writable;
use weft_client::shared::VERSION;
use weft_client::shared::volume::MAGIC;
use weft_core::Ino;
use weft_vfs::{BlockMap, Core, Protections};
use weft_volume::{DirectImage, ImageKind, Mounted, ProgramView};

/// Lines kept of what programs asked for and were refused.
const NOTES_MAX: usize = 256;

/// A served volume.
pub struct Volume {
    pub(crate) mounted: Arc<Mounted>,
    pub(crate) fs: Arc<dyn Core>,
    device: Arc<AtomicU64>,
    pub(super) watch: Arc<Watch>,
    pub(crate) direct: Option<DirectImage>,
    id: u64,
    /// Tells this server from others of the same volume; not 0.
    pub(crate) session: u64,
    pub(crate) control: Arc<ControlMemory>,
    pub(crate) maps: Arc<Maps>,
    pub(crate) inodes: Inodes,
    pub(crate) names: Option<Arc<Published>>,
    /// Of names that are looked up.
    pub(crate) names_ahead: Readahead,
    /// Of directories that are listed.
    pub(crate) lists_ahead: Readahead,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) grants: Arc<GrantBook>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) orphans: Orphans,
    pub(crate) started: Instant,
    pub(crate) protections: Protections,
    /// What permission checks rest on stays as it was found until what they allow is done: exclusive for those who remove
    /// names or change modes and owners, shared for those who add names. Taken before all other locks, and not while waiting
    /// for a client.
    pub(crate) permissions: RwLock<()>,
    pub(crate) processes: Arc<Processes>,
    pub(crate) program_cpus: Option<ProgramCpus>,
    notes: Mutex<BTreeMap<String, u64>>,
}

impl Volume {
    /// A volume that nobody is connected to.
    pub fn new(mounted: Arc<Mounted>) -> Result<Volume, ServerError> {
        let system = |what| move |source| ServerError::System { what, source };
        let direct = mounted.direct()?;
        let program_cpus = mounted.program_cpus().map(ProgramCpus::new);
        let control = Arc::new(ControlMemory::create().map_err(system("control memory"))?);
        let limits = SharedLimits::of(mounted.shared_memory_bytes());
        let maps = Arc::new(Maps::new(control.clone(), limits.map_pages).map_err(system("map memory"))?);
        let device = Arc::new(AtomicU64::new(device(mounted.id())));
        let names = match direct {
            Some(_) => {
                let is_writable = !mounted.core().is_read_only();
                let created = Published::create(limits.name_sets, device.clone(), is_writable, maps.clone());
                Some(Arc::new(created.map_err(system("names memory"))?))
            }
            // Nobody gets any memory but slots.
            None => None,
        };
        let cached: Arc<dyn Core> = match &names {
            Some(names) => Arc::new(Cached::new(mounted.core(), names.clone())),
            None => mounted.core(),
        };
        let watch = Arc::<Watch>::default();
        let fs: Arc<dyn Core> = Arc::new(Watched::new(cached, watch.clone()));
        if let Some(core) = fs.block_map() {
            core.set_observer(maps.clone());
        }
        let grants = Arc::<GrantBook>::default();
        let locks = Arc::new(Locks::new(control.clone()));
        let shared = (control.clone(), maps.clone());
        let session = secret().map_err(system("a random number"))?.max(1);
        let log = match direct {
            Some(_) => {
                mounted.append_log()?.map(|log| Arc::new(LogTurns::new(log, control.clone(), session)))
            }
            None => None,
        };
        let files = Arc::new(OpenFiles::new(control.clone()));
        let processes = Arc::<Processes>::default();
        let inodes = Inodes::new(shared, fs.clone(), names.clone(), grants.clone(), locks.clone())
            .map_err(system("ring memory"))?
            .with_rings(limits.rings)
            .with_log(log)
            .with_users(processes.clone(), files.clone());
        let page = &control.volume;
        if let Some(direct) = &direct {
            page.zone_bytes.store(direct.zone_bytes, Relaxed);
            page.image_base.store(direct.base, Relaxed);
            page.device_blocks.store(direct.device_blocks, Relaxed);
        }
        page.runs_programs.store(program_cpus.is_some().into(), Relaxed);
        page.version.store(VERSION, Relaxed);
        page.magic.store(MAGIC, Release);
        Ok(Volume {
            files,
            grants,
            id: mounted.id(),
            device,
            watch,
            mounted,
            fs,
            direct,
            session,
            control,
            maps,
            inodes,
            names,
            // What is told ahead is to be there when it is asked for.
            names_ahead: Readahead::new(32, (limits.name_sets / 2).min(4096) as u32),
            lists_ahead: Readahead::new(4, (limits.map_pages / 8).min(1024) as u32),
            locks,
            orphans: Orphans::default(),
            started: Instant::now(),
            protections: Protections::of_host(),
            permissions: RwLock::new(()),
            processes,
            program_cpus,
            notes: Mutex::new(BTreeMap::new()),
        })
    }

    /// Tells it from others on this machine, the same whenever it is served: what stands for its files outside it bears it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The processors that execute programs, where a device has some.
    pub fn program_cpus(&self) -> Option<&ProgramCpus> {
        self.program_cpus.as_ref()
    }

    /// `st_dev` of its files.
    pub fn device(&self) -> u64 {
        self.device.load(Relaxed)
    }

    /// Its files have this `st_dev` from now on, before any program has asked for it: the one that they have for others, who
    /// see them through a mount. So programs that see both can tell that two names are one file.
    pub fn set_device(&self, device: u64) {
        self.device.store(device, Relaxed);
    }

    /// The front of this process may keep names, attributes and inodes, as long as the process lives.
    pub fn set_watcher(&self, process: &Process, watcher: Weak<dyn Watcher>) {
        self.watch.set(process.id, watcher);
    }

    /// Which time it is that nobody but the watcher's process uses the volume; 0: others do. What the watcher looks up, it may keep
    /// when this is the same afterwards.
    pub fn watcher_alone(&self) -> u64 {
        self.watch.alone()
    }

    /// The watcher may keep nothing new until [`release_watcher`](Volume::release_watcher), as if others used the volume.
    pub fn hold_watcher(&self) {
        self.watch.hold();
    }

    /// The end of a [`hold_watcher`](Volume::hold_watcher).
    pub fn release_watcher(&self) {
        self.watch.release();
    }

    /// Gives back an inode that the watcher has kept.
    pub fn release_kept(&self, ino: Ino) {
        self.fs.release(ino);
    }

    pub(crate) fn block_map(&self) -> Option<&dyn BlockMap> {
        self.direct
            .as_ref()
            .filter(|direct| direct.kind != ImageKind::Nothing)
            .and_then(|_| self.fs.block_map())
    }

    /// Descriptors that a client with leases gets, in the order of the protocol. Owned ones are opened for it.
    pub(crate) fn lease_fds(&self) -> std::io::Result<Option<(Vec<i32>, Vec<OwnedFd>)>> {
        let (Some(direct), Some(names)) = (&self.direct, &self.names) else { return Ok(None) };
        let owned =
            vec![self.maps.memory().read_only_fd()?, direct.crc.read_only_fd()?, names.read_only_fd()?];
        let mut fds = vec![
            self.control.memory().fd(),
            owned[0].as_raw_fd(),
            owned[1].as_raw_fd(),
            self.inodes.ring_memory().memory().fd(),
            direct.file.as_raw_fd(),
            owned[2].as_raw_fd(),
        ];
        fds.extend(self.inodes.log().map(|log| log.log().fd().as_raw_fd()));
        Ok(Some((fds, owned)))
    }

    /// Keeps a line for the report.
    pub fn note(&self, line: &str) {
        let mut notes = self.notes.lock();
        if notes.len() < NOTES_MAX || notes.contains_key(line) {
            *notes.entry(line.to_string()).or_insert(0) += 1;
        }
    }

    /// What the programs have seen, those that run and those that have ended.
    pub fn program_view(&self) -> ProgramView {
        let notes = self.notes.lock().iter().map(|(line, n)| (line.clone(), *n)).collect();
        let shared = self.direct.as_ref().map(|_| {
            let limit = self.mounted.shared_memory_bytes();
            let (rings, names) = (self.inodes.ring_memory(), self.names.as_deref());
            shared_use(limit, &self.control, &self.maps, rings, names)
        });
        let count = |reads, bytes| self.mounted.count_direct_reads(reads, bytes);
        self.processes.view(notes, shared.unwrap_or_default(), &count)
    }

    /// Hands everything that clients have written to the core.
    pub fn drain_all(&self) {
        for open in self.inodes.all() {
            if let Err(error) = self.inodes.drain(&open, true) {
                tracing::error!(ino = open.ino.0, %error, "accepted data could not be stored");
            }
            self.inodes.pass_times(&open);
        }
    }

    /// A file that is open somewhere, perhaps, has got another name.
    pub(crate) fn renamed(&self, ino: Ino, from: &Name, to: &Name) {
        self.inodes.must_ask_for_sync(ino);
        if let Some(open) = self.inodes.find(ino) {
            self.bind_inode(open.slot);
            self.files.renamed(ino, from, to);
        }
    }

    /// The last reference to an open file is gone. Returns the write-back error that it has not reported, if it could
    /// write and `reports`.
    pub(crate) fn close(&self, open: &OpenFile, reports: bool) -> Option<i32> {
        self.locks.drop_owner(Owner::File(open.file.0));
        let may_have_written = is_writable(open.flags);
        if may_have_written {
            self.inodes.store_replaced(&open.inode);
        }
        // Whoever only read did not lose anything.
        let reports = reports && may_have_written;
        self.inodes.release(&open.inode, reports.then_some(&open.errors_seen))
    }
}

fn device(id: u64) -> u64 {
    id & 0xffff_ffff | 1 << 40
}

/// A number that nobody can guess.
pub(crate) fn secret() -> std::io::Result<u64> {
    weft_sys::file::random().map(u64::from_le_bytes)
}
