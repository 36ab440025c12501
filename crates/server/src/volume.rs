//! A served volume: a core, what is open on it, and who is connected.

use crate::connection::Connection;
use crate::error::ServerError;
use crate::inodes::Inodes;
use crate::leftovers::Leftovers;
use crate::locks::Locks;
use crate::maps::Maps;
use crate::open_files::OpenFiles;
use crate::programs::{ProgramView, Programs};
use crate::recorder::Recorder;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Instant;
use weft_client::shared::VERSION;
use weft_client::shared::volume::{Control, MAGIC, VolumePage};
use weft_placement::Engine;
use weft_sys::SharedMemory;
use weft_vfs::{BlockMap, FileSystem, FsResult, Protections};

/// Lines kept of what programs asked for and were refused.
const NOTES_MAX: usize = 256;

/// What clients may read by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageKind {
    /// The device: the file is its image.
    Device,
    /// What is cached of the device: the file has this many bytes, laid out as [`weft_core::cached`] says.
    Cache(u64),
    /// Nothing. Their maps stay empty, and the server reads for them; the file may be any. They append by themselves all
    /// the same.
    Nothing,
}

/// What clients need to read the device without the server.
pub struct DirectImage {
    /// The image; opened read-only.
    pub file: OwnedFd,
    /// Offset of zone 0 in the file.
    pub base: u64,
    /// Whether it may be mapped.
    pub mappable: bool,
    /// Of what use the file is to clients.
    pub kind: ImageKind,
    /// Bytes from one zone to the next.
    pub zone_bytes: u64,
    /// Device blocks.
    pub device_blocks: u64,
    /// The CRC32C table that the core keeps: one `u32` per device block.
    pub crc: Arc<SharedMemory>,
    /// Told how many reads and bytes clients read by themselves.
    pub count_reads: Box<dyn Fn(u64, u64) + Send + Sync>,
}

/// What makes a volume.
pub struct VolumeOptions {
    /// The core.
    pub fs: Arc<dyn FileSystem>,
    /// Where data goes.
    pub engine: Arc<Engine>,
    /// How clients may read by themselves; `None` = they may not.
    pub direct: Option<DirectImage>,
    /// Tells the volume from others on this machine, the same whenever it is served: what stands for its files outside it
    /// bears it.
    pub tag: u64,
    /// Bytes that the volume has taken from programs so far: the clock of lifetimes.
    pub volume_bytes: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The core's work beside requests: cleaning, write-back, commits by time. When it fails, what programs wrote may be
    /// lost, and they are told.
    pub tick: Box<dyn Fn() -> FsResult<()> + Send + Sync>,
}

/// A part of what an [`Inspector`] tells.
pub struct Told {
    /// At most [`weft_client::shared::channel::PAYLOAD_BYTES`].
    pub text: Vec<u8>,
    /// Where to go on; 0 = that was all.
    pub next: u64,
}

/// Tells clients about the volume: called with a topic, a place to go on from, and what programs saw. `None` when there is no such topic.
pub type Inspector = Box<dyn Fn(u64, u64, &ProgramView) -> Option<Told> + Send + Sync>;

/// A served volume.
pub struct Volume {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) direct: Option<DirectImage>,
    pub(crate) tag: u64,
    /// Tells this server from others of the same volume; not 0.
    pub(crate) session: u64,
    pub(crate) volume_bytes: Box<dyn Fn() -> u64 + Send + Sync>,
    pub(crate) tick: Box<dyn Fn() -> FsResult<()> + Send + Sync>,
    pub(crate) control: Arc<SharedMemory>,
    pub(crate) maps: Arc<Maps>,
    pub(crate) inodes: Inodes,
    pub(crate) files: OpenFiles,
    pub(crate) locks: Locks,
    pub(crate) leftovers: Leftovers,
    pub(crate) started: Instant,
    pub(crate) protections: Protections,
    /// What permission checks rest on stays as it was found until what they allow is done: exclusive for those who remove
    /// names or change modes and owners, shared for those who add names. Taken before all other locks, and not while waiting
    /// for a client.
    pub(crate) permissions: RwLock<()>,
    pub(crate) connections_made: AtomicU32,
    pub(crate) programs: Programs,
    pub(crate) inspector: Option<Inspector>,
    pub(crate) recorder: Option<Arc<Recorder>>,
    notes: Mutex<BTreeMap<String, u64>>,
}

impl Volume {
    /// A volume that nobody is connected to.
    pub fn new(options: VolumeOptions) -> Result<Volume, ServerError> {
        let system = |what| move |source| ServerError::System { what, source };
        let control =
            SharedMemory::create("weft-control", size_of::<Control>()).map_err(system("control memory"))?;
        let control = Arc::new(control);
        let maps = Arc::new(Maps::new(control.clone()).map_err(system("map memory"))?);
        if let Some(core) = options.fs.block_map() {
            core.set_observer(maps.clone());
        }
        let inodes =
            Inodes::new(control.clone(), maps.clone(), options.fs.clone()).map_err(system("ring memory"))?;
        // SAFETY: the control memory holds a `Control` made of atomics.
        let page: &VolumePage = unsafe { &control.view::<Control>().volume };
        if let Some(direct) = &options.direct {
            page.zone_bytes.store(direct.zone_bytes, Relaxed);
            page.image_base.store(direct.base, Relaxed);
            page.device_blocks.store(direct.device_blocks, Relaxed);
        }
        page.version.store(VERSION, Relaxed);
        page.magic.store(MAGIC, Release);
        Ok(Volume {
            files: OpenFiles::new(control.clone()),
            fs: options.fs,
            engine: options.engine,
            direct: options.direct,
            tag: options.tag,
            session: crate::connection::secret().map_err(system("a random number"))?.max(1),
            volume_bytes: options.volume_bytes,
            tick: options.tick,
            control,
            maps,
            inodes,
            locks: Locks::default(),
            leftovers: Leftovers::default(),
            started: Instant::now(),
            protections: Protections::of_host(),
            permissions: RwLock::new(()),
            connections_made: AtomicU32::new(0),
            programs: Programs::default(),
            inspector: None,
            recorder: None,
            notes: Mutex::new(BTreeMap::new()),
        })
    }

    /// The same volume, which tells clients about itself.
    pub fn with_inspector(self, inspector: Inspector) -> Volume {
        Volume { inspector: Some(inspector), ..self }
    }

    /// The same volume, of which a recording is made. Its core is the one that [`Recorder::before`] gave.
    pub fn with_recorder(self, recorder: Arc<Recorder>) -> Volume {
        Volume { recorder: Some(recorder), ..self }
    }

    pub(crate) fn page(&self) -> &VolumePage {
        // SAFETY: the control memory holds a `Control` made of atomics.
        unsafe { &self.control.view::<Control>().volume }
    }

    pub(crate) fn control(&self) -> &Control {
        // SAFETY: the control memory holds a `Control` made of atomics.
        unsafe { self.control.view() }
    }

    pub(crate) fn block_map(&self) -> Option<&dyn BlockMap> {
        self.direct
            .as_ref()
            .filter(|direct| direct.kind != ImageKind::Nothing)
            .and_then(|_| self.fs.block_map())
    }

    /// Descriptors that a client with leases gets, in the order of the protocol. Owned ones are opened for it.
    pub(crate) fn lease_fds(&self) -> std::io::Result<Option<(Vec<i32>, Vec<OwnedFd>)>> {
        let Some(direct) = &self.direct else { return Ok(None) };
        let owned = vec![self.maps.memory().read_only_fd()?, direct.crc.read_only_fd()?];
        let fds = vec![
            self.control.fd(),
            owned[0].as_raw_fd(),
            owned[1].as_raw_fd(),
            self.inodes.ring_memory().fd(),
            direct.file.as_raw_fd(),
        ];
        Ok(Some((fds, owned)))
    }

    /// Keeps a line for the report.
    pub fn note(&self, line: &str) {
        let mut notes = self.notes.lock();
        if notes.len() < NOTES_MAX || notes.contains_key(line) {
            *notes.entry(line.to_string()).or_insert(0) += 1;
        }
    }

    /// A program is connected from now on.
    pub(crate) fn program_begins(&self, connection: &Arc<Connection>) {
        self.programs.begin(connection);
    }

    /// A program is gone.
    pub(crate) fn program_ends(&self, connection: &Connection) {
        self.programs.end(connection, &|reads, bytes| self.count_direct(reads, bytes));
    }

    /// What the programs have seen, those that run and those that have ended.
    pub fn program_view(&self) -> ProgramView {
        let notes = self.notes.lock().iter().map(|(line, n)| (line.clone(), *n)).collect();
        self.programs.view(notes, &|reads, bytes| self.count_direct(reads, bytes))
    }

    fn count_direct(&self, reads: u64, bytes: u64) {
        if let Some(direct) = &self.direct {
            (direct.count_reads)(reads, bytes);
        }
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
}
