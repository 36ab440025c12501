//! Opening, mounting and closing volumes.

use crate::append_log::{AppendLog, Pending, store_pending};
use crate::device::{self, Device};
use crate::direct::{DirectImage, ImageKind};
use crate::error::VolumeError;
use crate::policy::read_policy;
use crate::recorder::{Record, Recorder};
use crate::spec::Place;
use parking_lot::Mutex;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, Ino, refuse};
use weft_device::{DeviceError, Geometry, ZonedDevice, ZonedModel};
use weft_flash_pages::{CreateRequest, FlashSpec};
use weft_lfs::{FormatOptions, Lfs, LfsError, MountOptions};
use weft_placement::{Engine, Mode};
use weft_sys::{SharedMemory, effective_user};
use weft_tagfs::{Layout, TagFs, TagFsError};
use weft_tags::{EvictionPolicy, FileStore, MemoryStore, NamedSnapshot, PageStore, ReadPath, at_snapshot};
use weft_vfs::compound::schedule::Processors;
use weft_vfs::{Core, Death, FileKind, FileSystem, FsError, MemFs};

/// Names shown to the engine at the mount.
const NAMES_MAX: usize = 100_000;

/// How a volume decides where data goes, and how its device keeps time.
#[derive(Clone, Debug)]
pub struct MountChoice {
    /// Placement mode.
    pub mode: Mode,
    /// A policy file, or the name of a shipped policy.
    pub policy: Option<PathBuf>,
    /// Seed of mode `random`.
    pub seed: u64,
    /// Whether the device delays what it does as flash would.
    pub real_time: bool,
    /// Bytes of a real drive that are kept in memory.
    pub drive_cache_bytes: u64,
    /// Buffered file data beyond which writers write back, in bytes. At least 1 MiB. None: what suits the core.
    pub dirty_bytes_max: Option<u64>,
    /// What to write down of what programs do to their files.
    pub record: Option<Record>,
    /// Whether the volume is only looked at: an image then stays as it is, whatever is done to the volume. A damaged one
    /// is read as far as it can be.
    pub look: bool,
    /// Whether every change of the volume is refused.
    pub read_only: bool,
    /// Which pages leave the cache of a tag store first; none: as the store has it. Other cores have no such cache.
    pub eviction: Option<Arc<dyn EvictionPolicy>>,
    /// Passes of random bytes over what is deleted securely, before the one of zeros.
    pub erase_passes: u32,
    /// Whether clients may read the device and append by themselves.
    pub leases: bool,
    /// Memory that is shared with them for it at most, in bytes.
    pub shared_memory_bytes: u64,
    /// Processors that execute the programs of clients; none: each runs on the thread that it came to.
    pub program_cpus: Option<Processors>,
}

/// The part of the memory that waits in the buffers of a core on a tag store, unless something else is said, and the most.
const DIRTY_PART: u64 = 32;
const DIRTY_BYTES_MAX: u64 = 1 << 30;

/// [`MountChoice::shared_memory_bytes`], unless something else is said.
pub const SHARED_MEMORY_DEFAULT: u64 = 1 << 30;

impl Default for MountChoice {
    fn default() -> MountChoice {
        MountChoice {
            mode: Mode::default(),
            policy: None,
            seed: 0,
            real_time: false,
            drive_cache_bytes: device::CACHE_BYTES_DEFAULT,
            dirty_bytes_max: None,
            record: None,
            look: false,
            read_only: false,
            eviction: None,
            erase_passes: 0,
            leases: true,
            shared_memory_bytes: SHARED_MEMORY_DEFAULT,
            program_cpus: None,
        }
    }
}

impl MountChoice {
    /// The engine of this choice.
    pub fn engine(&self) -> Result<Engine, VolumeError> {
        let policy = self.policy.as_deref().map(read_policy).transpose()?;
        Ok(Engine::new(self.mode, policy, self.seed)?)
    }
}

/// What holds a volume's files: a variant for each core.
pub(crate) enum Store {
    /// The log-structured core on a zoned device.
    Lfs { lfs: Arc<Lfs>, device: Device },
    /// The core on a tag store, which lies in the image by itself.
    TagFs(Arc<TagFs>),
    /// Files in memory without a device.
    MemFs(Arc<MemFs>),
}

impl Store {
    fn core(&self) -> Arc<dyn Core> {
        match self {
            Store::Lfs { lfs, .. } => lfs.clone(),
            Store::TagFs(tagfs) => tagfs.clone(),
            Store::MemFs(files) => files.clone(),
        }
    }
}

/// A mounted volume.
pub struct Mounted {
    pub(crate) name: String,
    pub(crate) store: Store,
    pub(crate) engine: Arc<Engine>,
    core: Arc<dyn Core>,
    id: u64,
    leases: bool,
    shared_memory_bytes: u64,
    program_cpus: Option<Processors>,
    real_time: bool,
    look: bool,
    damage: Option<LfsError>,
    recording: Option<(Record, Arc<Recorder>)>,
    /// The append log, once a server has asked for it.
    append_log: Mutex<Option<Arc<AppendLog>>>,
}

/// Makes a volume on a fresh device. It belongs to whoever makes it.
pub fn format(device: Arc<dyn ZonedDevice>, name: &str, label: &str) -> Result<(), VolumeError> {
    let options =
        FormatOptions { label: label.to_string(), owner: effective_user(), ..FormatOptions::default() };
    Lfs::format(device, &options).map_err(|source| VolumeError::lfs(name, source))
}

/// Opens an image or a drive and mounts the volume on it.
pub fn open(image: &Path, choice: &MountChoice) -> Result<Mounted, VolumeError> {
    let place = Place::of(image);
    let engine = choice.engine()?;
    if is_tag_store(&place) {
        return open_tagfs(image, &place, engine, choice);
    }
    let image = place.whole()?;
    let device = match choice.look {
        true => Device::look(image, choice.drive_cache_bytes)?,
        false => Device::open(image, choice.real_time, choice.drive_cache_bytes)?,
    };
    mount_lfs(device, image.display().to_string(), Some(image), engine, choice)
}

/// Makes a volume of the core on a tag store on a grant of flash. It belongs to whoever makes it. The grant's size is the volume's.
///
/// # Errors
/// Those of [`FlashSpec::create`]; the grant is too small.
pub fn format_tagfs_on_flash(
    spec: &FlashSpec,
    request: &CreateRequest,
    label: &str,
    layout: Layout,
) -> Result<u64, VolumeError> {
    let name = spec.to_string();
    let medium = spec.create(request).map_err(|source| VolumeError::flash(&name, source))?;
    let bytes = medium.blocks() * BLOCK_BYTES as u64;
    make_tagfs(medium, bytes, label, layout).map_err(|source| VolumeError::tagfs(&name, source))?;
    Ok(bytes)
}

fn make_tagfs(
    medium: Box<dyn PageStore>,
    capacity_bytes: u64,
    label: &str,
    layout: Layout,
) -> Result<(), TagFsError> {
    let (label, owner) = (label.to_string(), effective_user());
    let options = weft_tagfs::FormatOptions { label, owner, capacity_bytes, layout, ..Default::default() };
    TagFs::format(medium, &options)
}

/// Makes a volume of the core on a tag store in a new image, or in the one that is there. It belongs to whoever makes it.
///
/// # Errors
/// The image cannot be made, or is too small.
pub fn format_tagfs(image: &Path, bytes: u64, label: &str, layout: Layout) -> Result<(), VolumeError> {
    let name = image.display().to_string();
    let failed = |source| VolumeError::tagfs(&name, source);
    let medium = match image.exists() {
        true => FileStore::open(image, ReadPath::Kernel),
        false => FileStore::create(image, ReadPath::Kernel),
    };
    let medium = medium.map_err(|source| failed(source.into()))?;
    // What an earlier volume had there beyond the new one's end is not needed.
    let blocks = bytes / BLOCK_BYTES as u64;
    medium.cut(blocks).map_err(|source| VolumeError::Io { what: "format", path: image.into(), source })?;
    make_tagfs(Box::new(medium), bytes, label, layout).map_err(failed)
}

/// Whether what is at a place is a tag store: on flash nothing else can be.
pub fn is_tag_store(place: &Place) -> bool {
    if place.flash.is_some() {
        return true;
    }
    let (image, mut first) = (&place.path, [0; 8]);
    let is_file = image.metadata().is_ok_and(|meta| meta.is_file() || meta.file_type().is_block_device());
    is_file
        && File::open(image).and_then(|mut file| file.read_exact(&mut first)).is_ok()
        && first == *b"WEFTTAGS"
}

/// Opens the medium of the tag store at a place: with `look` the store stays as it is, whatever is written. On flash a look
/// is alone with the image, too, and the level below may end its recovery there.
///
/// # Errors
/// The image cannot be opened.
pub fn tag_medium(place: &Place, look: bool) -> Result<Box<dyn PageStore>, VolumeError> {
    let image = &place.path;
    let failed = |source: weft_tags::Error| VolumeError::tagfs(&image.display().to_string(), source.into());
    if let Some(name) = &place.snapshot {
        let volume = place.clone().without_snapshot();
        let medium = tag_medium(&volume, true)?;
        let then = at_snapshot(medium, name).map_err(failed)?;
        return Ok(Box::new(MemoryStore::over(then)));
    }
    if let Some(spec) = &place.flash {
        let medium = spec.open().map_err(|source| VolumeError::flash(&spec.to_string(), source))?;
        return Ok(if look { Box::new(MemoryStore::over(medium)) } else { medium });
    }
    Ok(match look {
        true => Box::new(MemoryStore::over(Box::new(FileStore::open_read_only(image).map_err(failed)?))),
        false => Box::new(FileStore::open(image, ReadPath::Kernel).map_err(failed)?),
    })
}

fn open_tagfs(
    name: &Path,
    place: &Place,
    engine: Engine,
    choice: &MountChoice,
) -> Result<Mounted, VolumeError> {
    if choice.real_time {
        return Err(VolumeError::KeepsItsTime(name.to_path_buf()));
    }
    let name = name.display().to_string();
    // A program that changes a snapshot is told so, rather than that its changes go with the process.
    let read_only = choice.read_only || place.snapshot.is_some();
    let default = weft_tagfs::MountOptions::default().dirty_bytes_max;
    // What is deleted soon never comes to the medium. The kernel lets a fifth of the memory wait.
    let of_memory = (weft_sys::memory_bytes() / DIRTY_PART).clamp(default, DIRTY_BYTES_MAX);
    let dirty_bytes_max = choice.dirty_bytes_max.unwrap_or(of_memory);
    let cache_bytes = choice.drive_cache_bytes.max(weft_tagfs::MountOptions::CACHE_BYTES_MIN);
    let options = weft_tagfs::MountOptions {
        cache_bytes,
        dirty_bytes_max,
        eviction: choice.eviction.clone(),
        erase_passes: choice.erase_passes,
        read_only,
        ..weft_tagfs::MountOptions::default()
    };
    let mounted = TagFs::mount(tag_medium(place, choice.look)?, options);
    let tagfs = mounted.map_err(|source| VolumeError::tagfs(&name, source))?;
    let id = id_of(&tagfs.uuid(), Some(&place.path), &place.part());
    Mounted::new(name, Store::TagFs(Arc::new(tagfs)), id, engine, choice)
}

/// What is done with the snapshots of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotChange<'a> {
    /// Makes one of what is there now.
    Create(&'a str),
    /// Deletes one.
    Delete(&'a str),
}

/// The snapshots of a volume that nobody serves, the oldest first.
///
/// # Errors
/// [`VolumeError::NoSnapshots`], and those of an opening.
pub fn snapshots(name: &Path) -> Result<Vec<NamedSnapshot>, VolumeError> {
    with_tagfs(name, true, |tagfs| Ok(tagfs.store().named_snapshots()))
}

/// Makes or deletes a snapshot of a volume that nobody serves.
///
/// # Errors
/// As [`snapshots`], and those of the store.
pub fn change_snapshots(name: &Path, change: SnapshotChange<'_>) -> Result<(), VolumeError> {
    with_tagfs(name, false, |tagfs| match change {
        SnapshotChange::Create(snapshot) => tagfs.store().create_snapshot(snapshot),
        SnapshotChange::Delete(snapshot) => tagfs.store().delete_snapshot(snapshot),
    })
}

fn with_tagfs<T>(
    name: &Path,
    look: bool,
    act: impl FnOnce(&TagFs) -> Result<T, weft_tags::Error>,
) -> Result<T, VolumeError> {
    let place = Place::of(name);
    if !is_tag_store(&place) {
        std::fs::metadata(&place.path)
            .map_err(|source| DeviceError::Io { path: place.path.clone(), source })?;
        return Err(VolumeError::NoSnapshots(place.path));
    }
    let failed = |source| VolumeError::tagfs(&name.display().to_string(), source);
    let options = weft_tagfs::MountOptions { read_only: look, ..weft_tagfs::MountOptions::default() };
    let tagfs = TagFs::mount(tag_medium(&place, look)?, options).map_err(failed)?;
    let done = act(&tagfs).map_err(|error| failed(error.into()))?;
    tagfs.unmount().map_err(failed)?;
    Ok(done)
}

/// Makes a volume on a modelled device in memory and mounts it.
pub fn open_memory(name: String, geometry: &Geometry, choice: &MountChoice) -> Result<Mounted, VolumeError> {
    let mut device = ZonedModel::memfd(geometry)?;
    device.set_real_time(choice.real_time);
    let device = Arc::new(device);
    format(device.clone(), &name, "")?;
    mount(Device::Model(device), name, choice)
}

/// Mounts the volume on a device that has no place in the file system.
pub fn mount(device: Device, name: String, choice: &MountChoice) -> Result<Mounted, VolumeError> {
    mount_lfs(device, name, None, choice.engine()?, choice)
}

fn mount_lfs(
    device: Device,
    name: String,
    place: Option<&Path>,
    engine: Engine,
    choice: &MountChoice,
) -> Result<Mounted, VolumeError> {
    refuse(choice.eviction.is_some(), VolumeError::NoPageClasses(name.clone().into()))?;
    if let Some(model) = device.model() {
        model.set_erase_passes(choice.erase_passes);
    }
    let mount = |salvage| {
        let default = MountOptions::default();
        let dirty_bytes_max = choice.dirty_bytes_max.unwrap_or(default.dirty_bytes_max);
        let options = MountOptions { dirty_bytes_max, read_only: choice.read_only, salvage, ..default };
        Lfs::mount(device.zoned(), options)
    };
    let failed = |source| VolumeError::lfs(&name, source);
    let log_failed = |source| VolumeError::Io { what: "the append log of", path: (&name).into(), source };
    let pending = device.model().and_then(Pending::of);
    if choice.read_only && pending.is_some() {
        // What the log holds belongs to the volume: it is stored before nothing may change any more.
        settle_append_log(&device, &name);
    }
    let (lfs, damage) = match mount(false) {
        Err(damage) if choice.look && damage.is_damage() => (mount(true).map_err(failed)?, Some(damage)),
        mounted => (mounted.map_err(failed)?, None),
    };
    if let (Some(pending), None, false) = (&pending, &damage, lfs.is_read_only()) {
        match store_pending(pending, &lfs, &name) {
            // The rest can be seen.
            Err(error) if choice.look => tracing::warn!(%error, "the append log is not read"),
            stored => stored?,
        }
        if !choice.look {
            close_log(&device).map_err(log_failed)?;
        }
    }
    let id = id_of(&lfs.uuid(), place, "");
    let mounted = Mounted::new(name, Store::Lfs { lfs: Arc::new(lfs), device }, id, engine, choice)?;
    Ok(Mounted { damage, ..mounted })
}

/// Stores what the append log of a device holds, before the device is read without changes: one that is only looked at keeps it in
/// memory. Whether all of it is stored; otherwise it stays in the log.
pub fn settle_append_log(device: &Device, name: &str) -> bool {
    let Some(pending) = device.model().and_then(Pending::of).filter(Pending::has_any) else { return true };
    let settled = settle(device, &pending, name);
    if let Err(error) = &settled {
        tracing::warn!(%error, "bytes that programs had made durable in the append log are not read");
    }
    settled.is_ok()
}

fn settle(device: &Device, pending: &Pending, name: &str) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::lfs(name, source);
    let lfs = Lfs::mount(device.zoned(), MountOptions::default()).map_err(failed)?;
    if lfs.is_read_only() {
        return Err(VolumeError::AppendLog {
            volume: name.to_string(),
            source: FsError::ReadOnly("it takes no changes".into()),
        });
    }
    store_pending(pending, &lfs, name)?;
    lfs.unmount().map_err(failed)?;
    close_log(device).map_err(|source| VolumeError::Io {
        what: "the append log of",
        path: name.into(),
        source,
    })
}

/// No entry of the append log of a device counts any more.
fn close_log(device: &Device) -> std::io::Result<()> {
    device.model().map_or(Ok(()), AppendLog::close_of)
}

/// Mounts files in memory without a device: nothing of them outlives the process, and nothing is placed.
pub fn mount_memfs(files: Arc<MemFs>, choice: &MountChoice) -> Result<Mounted, VolumeError> {
    let name = crate::Spec::MemFs.to_string();
    if choice.read_only {
        return Err(VolumeError::AlwaysNew(name));
    }
    let random = weft_sys::file::random();
    let id =
        random.map_err(|source| VolumeError::Io { what: "a number for", path: (&name).into(), source })?;
    Mounted::new(name, Store::MemFs(files), u64::from_le_bytes(id), choice.engine()?, choice)
}

/// Tells a volume from others on this machine, whenever it is served: a copy of an image has the same UUID and is
/// another file, and a snapshot is another part of the file. A volume in memory is nowhere, and no other has its UUID.
fn id_of(uuid: &[u8; 16], place: Option<&Path>, part: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(uuid);
    hasher.write(part.as_bytes());
    if let Some(place) = place.and_then(|place| std::fs::metadata(place).ok()) {
        for number in [place.dev(), place.ino(), place.rdev()] {
            hasher.write_u64(number);
        }
    }
    hasher.finish()
}

impl Mounted {
    fn new(
        name: String,
        store: Store,
        id: u64,
        engine: Engine,
        choice: &MountChoice,
    ) -> Result<Mounted, VolumeError> {
        let (core, engine) = (store.core(), Arc::new(engine));
        if !choice.look {
            show_names(&*core, &engine);
        }
        let observer = engine.clone();
        core.set_death_observer(Box::new(move |death: &Death| {
            observer.observe_death(&death.tag, b"", death.size, death.born_at_bytes, death.died_at_bytes);
        }));
        let begin = |record: &Record| Ok::<_, VolumeError>((record.clone(), record.begin(&*core)?));
        let recording = choice.record.as_ref().map(begin).transpose()?;
        let core = match &recording {
            Some((_, recorder)) => recorder.before(core),
            None => core,
        };
        let MountChoice { leases, shared_memory_bytes, real_time, look, .. } = *choice;
        Ok(Mounted {
            name,
            store,
            engine,
            core,
            id,
            leases,
            shared_memory_bytes,
            program_cpus: choice.program_cpus.clone(),
            real_time,
            look,
            damage: None,
            recording,
            append_log: Mutex::default(),
        })
    }

    /// Whether what is done to the volume is gone when it is closed.
    pub fn is_looked_at(&self) -> bool {
        self.look
    }

    /// Memory that a server may share with its clients, in bytes.
    pub fn shared_memory_bytes(&self) -> u64 {
        self.shared_memory_bytes
    }

    /// Processors that execute the programs of clients.
    pub fn program_cpus(&self) -> Option<&Processors> {
        self.program_cpus.as_ref()
    }

    /// The core, with the recorder before it when there is one.
    pub fn core(&self) -> Arc<dyn Core> {
        self.core.clone()
    }

    /// Where data goes.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What writes down what programs do, when that is wanted.
    pub fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.recording.as_ref().map(|(_, recorder)| recorder)
    }

    /// Tells the volume from others on this machine, the same whenever it is served.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The log-structured core, when that is the volume's.
    pub fn lfs(&self) -> Option<&Arc<Lfs>> {
        match &self.store {
            Store::Lfs { lfs, .. } => Some(lfs),
            Store::TagFs(_) | Store::MemFs(_) => None,
        }
    }

    /// The device below the volume.
    pub fn device(&self) -> Option<&Device> {
        match &self.store {
            Store::Lfs { device, .. } => Some(device),
            Store::TagFs(_) | Store::MemFs(_) => None,
        }
    }

    /// The damage of a volume that was opened for reading in spite of it.
    pub fn damage(&self) -> Option<&LfsError> {
        self.damage.as_ref()
    }

    /// What clients may read by themselves; `None` = nothing, and they append by the server, too.
    pub fn direct(&self) -> Result<Option<DirectImage>, VolumeError> {
        if !self.leases {
            return Ok(None);
        }
        let (lfs, device) = match &self.store {
            Store::Lfs { lfs, device } => (lfs, device),
            Store::TagFs(_) => return self.without_image().map(Some),
            Store::MemFs(_) => return Ok(None),
        };
        let info = device.info();
        // A drive that clients cannot read by themselves still lets them append by themselves, and read what is cached.
        let image = device.direct_read();
        let of_fd = |fd| PathBuf::from(format!("/proc/self/fd/{fd}"));
        let (path, kind) = match (image, device.shared_cache()) {
            (Some(image), _) => (of_fd(image.fd), ImageKind::Device),
            (None, Some(cache)) => (of_fd(cache.fd), ImageKind::Cache(cache.bytes)),
            (None, None) => (PathBuf::from("/dev/null"), ImageKind::Nothing),
        };
        let file = File::open(&path).map_err(|source| VolumeError::Io { what: "open", path, source })?;
        Ok(Some(DirectImage {
            file: OwnedFd::from(file),
            base: image.map_or(0, |image| image.base),
            mappable: image.is_some_and(|image| image.mappable),
            kind,
            zone_bytes: info.zone_bytes(),
            device_blocks: u64::from(info.zones) * u64::from(info.zone_blocks),
            crc: lfs.crc_memory().clone(),
        }))
    }

    /// Of a core whose blocks are nowhere where clients could read them.
    fn without_image(&self) -> Result<DirectImage, VolumeError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| VolumeError::Io { what: "open", path, source }
        };
        let (nothing, name) = (Path::new("/dev/null"), Path::new(&self.name));
        let crc = SharedMemory::create("weft-crc", BLOCK_BYTES).map_err(failed(name))?;
        Ok(DirectImage {
            file: File::open(nothing).map_err(failed(nothing))?.into(),
            base: 0,
            mappable: false,
            kind: ImageKind::Copies,
            zone_bytes: 0,
            // Clients map a table with an entry for each.
            device_blocks: 1,
            crc: Arc::new(crc),
        })
    }

    /// The append log of the image, for clients that make appended bytes durable by themselves; `None` where there is none, the
    /// device keeps time as flash would, or clients of an earlier server still have the log.
    pub fn append_log(&self) -> Result<Option<Arc<AppendLog>>, VolumeError> {
        let failed =
            |source| VolumeError::Io { what: "the append log of", path: (&self.name).into(), source };
        let Some(device) = self.device().and_then(Device::model) else { return Ok(None) };
        if self.core.is_read_only() || self.real_time || self.recording.is_some() {
            return Ok(None);
        }
        let room = self.lfs().map_or(0, |lfs| lfs.room_beyond_full());
        let Some(log) = AppendLog::of(device).and_then(|log| log.within(room)) else { return Ok(None) };
        if !log.claim().map_err(failed)? {
            tracing::warn!("programs of an earlier server still run: each fsync of others asks the server");
            return Ok(None);
        }
        let log = Arc::new(log);
        *self.append_log.lock() = Some(log.clone());
        Ok(Some(log))
    }

    /// Notes how many reads and bytes clients read of the device by themselves.
    pub fn count_direct_reads(&self, reads: u64, bytes: u64) {
        if let Some(device) = self.device() {
            device.count_direct_reads(reads, bytes);
        }
    }

    /// Unmounts, checks that the device's counters agree with one another, and ends the recording.
    pub fn close(&self) -> Result<(), VolumeError> {
        self.core.close().map_err(|source| VolumeError::Close { volume: self.name.clone(), source })?;
        let log = self.append_log.lock().take();
        if let Some(log) = log.filter(|log| log.is_begun() && !log.holds_the_only_copy()) {
            let failed =
                |source| VolumeError::Io { what: "the append log of", path: (&self.name).into(), source };
            log.close().map_err(failed)?;
        }
        if let Some(device) = self.device() {
            device.verify_identity()?;
        }
        if let Some((record, recorder)) = &self.recording {
            recorder.finish().map_err(|error| record.failed(error))?;
        }
        Ok(())
    }
}

/// Shows the engine the names that are on the volume, so that it knows whose directories they are before a program
/// creates the next file.
fn show_names(fs: &dyn FileSystem, engine: &Engine) {
    let mut left = NAMES_MAX;
    let mut dirs = vec![(Ino::ROOT, b"/".to_vec())];
    while let Some((dir, path)) = dirs.pop() {
        let mut below = Vec::new();
        let read = fs.readdir(dir, 0, &mut |entry| {
            let mut name = path.clone();
            name.extend_from_slice(entry.name);
            engine.learn_name(&name);
            if entry.kind == FileKind::Directory {
                name.push(b'/');
                below.push((entry.ino, name));
            }
            left = left.saturating_sub(1);
            left > 0
        });
        if let Err(error) = read {
            tracing::warn!(%error, directory = %String::from_utf8_lossy(&path), "cannot be listed");
        }
        if left == 0 {
            return;
        }
        dirs.append(&mut below);
    }
}
