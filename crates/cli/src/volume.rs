//! A volume in this process: the image opened, the core mounted with placement, and what a server needs of both.

use crate::device::{self, Device};
use crate::error::CliError;
use crate::recording::{Record, Recording};
use crate::say::{say, warn};
use crate::snapshot::{Core, Snapshot, Space, Stream, VolumeFacts, Zone, Zones};
use crate::sys::limit;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use weft_client::shared::volume::{RING_BYTES, RINGS_MAX};
use weft_core::units::{format_size, parse_size};
use weft_core::{BLOCK_BYTES, Ino, StreamId};
use weft_device::{Geometry, ZonedDevice, ZonedModel};
use weft_lfs::{CrcTable, Death, FormatOptions, Lfs, LfsError, Lost, MountOptions};
use weft_placement::{Engine, Mode, Policy, ZoneResolver};
use weft_server::{DirectImage, ImageKind, Inspector, ProgramView, Told, Volume, VolumeOptions};
use weft_sys::{SharedMemory, effective_user};
use weft_vfs::{FileKind, FileSystem};

/// Topic of [`weft_client::Client::inspect`]: a [`Snapshot`].
pub const TOPIC_SNAPSHOT: u64 = 0;
/// Topic of [`weft_client::Client::inspect`]: [`Zone`]s, in parts.
pub const TOPIC_ZONES: u64 = 1;
/// Zones told in one part.
const ZONES_PER_PART: usize = 512;
/// Bytes of the largest memory that a server shares whatever the volume is.
const SHARED_BYTES: u64 = (RINGS_MAX * RING_BYTES) as u64;
/// Names shown to the engine at the mount.
const NAMES_MAX: usize = 100_000;

/// What the user calls a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spec {
    /// An image file, or a real drive.
    Image(PathBuf),
    /// A volume in memory of this many bytes, made for one run.
    Memory(u64),
}

impl Spec {
    /// Reads `IMAGE`, `DEVICE`, `zonefs:DIR` or `mem:SIZE`.
    pub fn parse(text: &str) -> Result<Spec, CliError> {
        match text.strip_prefix("mem:") {
            Some(size) => Ok(Spec::Memory(parse_size(size)?)),
            None => Ok(Spec::Image(device::path_of(Path::new(text)))),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Image(path) => write!(f, "{}", path.display()),
            Spec::Memory(bytes) => write!(f, "mem:{}", format_size(*bytes).replace(' ', "")),
        }
    }
}

/// How a volume decides where data goes, and how its device keeps time.
#[derive(Clone, Debug)]
pub struct MountChoice {
    /// Placement mode.
    pub mode: Mode,
    /// A policy file's content, when one was given.
    pub policy: Option<PathBuf>,
    /// Seed of mode `random`.
    pub seed: u64,
    /// Whether the device delays what it does as flash would.
    pub real_time: bool,
    /// Bytes of a real drive that are kept in memory.
    pub drive_cache_bytes: u64,
    /// What to write down of what programs do to their files.
    pub record: Option<Record>,
    /// Whether the volume is only looked at: an image then stays as it is, whatever is done to the volume. A damaged one
    /// is read as far as it can be.
    pub look: bool,
    /// Whether every change of the volume is refused.
    pub read_only: bool,
}

impl Default for MountChoice {
    fn default() -> MountChoice {
        MountChoice {
            mode: Mode::default(),
            policy: None,
            seed: 0,
            real_time: false,
            drive_cache_bytes: device::CACHE_BYTES_DEFAULT,
            record: None,
            look: false,
            read_only: false,
        }
    }
}

impl MountChoice {
    /// The engine of this choice.
    pub fn engine(&self) -> Result<Engine, CliError> {
        let policy = self.policy.as_deref().map(read_policy).transpose()?;
        Ok(Engine::new(self.mode, policy, self.seed)?)
    }
}

/// Reads a policy: a file, or the name of a shipped one when no file has that name.
pub fn read_policy(path: &Path) -> Result<Policy, CliError> {
    let name = path.to_string_lossy();
    if !path.exists()
        && let Some(shipped) = Policy::shipped_by_name(&name)
    {
        return Ok(shipped?);
    }
    let text = std::fs::read_to_string(path).map_err(|e| CliError::io("policy", path, e))?;
    Policy::parse(&text, &name).map_err(|source| {
        let excerpt = excerpt(&text, source.line, source.column);
        CliError::PolicyText { source: Box::new(source), excerpt }
    })
}

/// A line of a text with a mark below one of its columns.
fn excerpt(text: &str, line: usize, column: usize) -> String {
    let Some(content) = line.checked_sub(1).and_then(|index| text.lines().nth(index)) else {
        return String::new();
    };
    let number = line.to_string();
    let blank = " ".repeat(number.len());
    // Tabs stay, so that the mark stands below its place whatever they are worth.
    let before: String =
        content.chars().take(column.saturating_sub(1)).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let mark = if column == 0 { "" } else { "^" };
    format!(
        "\n      {number} | {}\n      {blank} | {before}{mark}",
        content.replace(|c: char| c.is_control() && c != '\t', "?")
    )
}

/// CRCs in memory that clients read.
struct SharedCrc(Arc<SharedMemory>);

impl CrcTable for SharedCrc {
    fn slots(&self) -> &[AtomicU32] {
        self.0.atomics()
    }
}

/// A mounted volume.
pub struct Mounted {
    name: String,
    device: Device,
    lfs: Arc<Lfs>,
    engine: Arc<Engine>,
    crc: Arc<SharedMemory>,
    recording: Option<Recording>,
}

/// Makes a volume on a fresh device. It belongs to whoever makes it.
pub fn format(device: Arc<dyn ZonedDevice>, name: &str, label: &str) -> Result<(), CliError> {
    let options =
        FormatOptions { label: label.to_string(), owner: effective_user(), ..FormatOptions::default() };
    Lfs::format(device, &options).map_err(|source| volume_error(name, source))
}

pub fn volume_error(name: &str, source: LfsError) -> CliError {
    match source {
        LfsError::Device(error) => CliError::Device(error),
        source => CliError::Volume { image: name.to_string(), source },
    }
}

/// Opens an image or a drive and mounts the volume on it.
pub fn open(image: &Path, choice: &MountChoice) -> Result<Mounted, CliError> {
    let image = device::path_of(image);
    let engine = choice.engine()?;
    // The last write may end where the image does; memory that is shared is a file to the system.
    let image_bytes = if choice.look { 0 } else { std::fs::metadata(&image).map_or(0, |meta| meta.len()) };
    limit::require_file_size(image_bytes.max(SHARED_BYTES))?;
    let device = match choice.look {
        true => Device::look(&image, choice.drive_cache_bytes)?,
        false => Device::open(&image, choice.real_time, choice.drive_cache_bytes)?,
    };
    mount(device, image.display().to_string(), engine, choice)
}

/// Makes a volume in memory and mounts it.
pub fn open_memory(name: String, geometry: &Geometry, choice: &MountChoice) -> Result<Mounted, CliError> {
    let engine = choice.engine()?;
    limit::require_file_size(SHARED_BYTES)?;
    let device = Arc::new(ZonedModel::memfd(geometry)?);
    format(device.clone(), &name, "")?;
    let Some(mut device) = Arc::into_inner(device) else {
        return Err(CliError::said("the device is still in use after its format", ""));
    };
    device.set_real_time(choice.real_time);
    mount(Device::Model(Arc::new(device)), name, engine, choice)
}

fn mount(device: Device, name: String, engine: Engine, choice: &MountChoice) -> Result<Mounted, CliError> {
    let engine = Arc::new(engine);
    let info = device.info();
    let blocks = u64::from(info.zones) * u64::from(info.zone_blocks);
    let crc = SharedMemory::create("weft-crc", blocks as usize * size_of::<u32>())
        .map_err(|e| CliError::io("memory for", Path::new("checksums"), e))?;
    let crc = Arc::new(crc);
    let options = |salvage| MountOptions {
        resolver: Box::new(ZoneResolver::new()),
        crc_table: Some(Arc::new(SharedCrc(crc.clone()))),
        read_only: choice.read_only,
        salvage,
        ..MountOptions::default()
    };
    let lfs = match Lfs::mount(device.zoned(), options(false)) {
        Err(damage) if choice.look && damage.is_damage() => {
            let lfs =
                Lfs::mount(device.zoned(), options(true)).map_err(|source| volume_error(&name, source))?;
            warn_of_damage(&name, &damage, lfs.lost());
            lfs
        }
        mounted => mounted.map_err(|source| volume_error(&name, source))?,
    };
    let lfs = Arc::new(lfs);
    if !choice.look {
        show_names(lfs.as_ref(), &engine);
    }
    let observer = engine.clone();
    lfs.set_death_observer(Box::new(move |death: &Death| {
        observer.observe_death(&death.tag, b"", death.size, death.born_at_bytes, death.died_at_bytes);
    }));
    let recording =
        choice.record.as_ref().map(|record| Recording::begin(record, lfs.as_ref())).transpose()?;
    Ok(Mounted { name, device, lfs, engine, crc, recording })
}

/// Whether this command has read a volume that is not all there.
static INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Whether this command has read a volume of which something is lost: what it lists or copies is then not all that was there.
pub fn is_incomplete() -> bool {
    INCOMPLETE.load(Relaxed)
}

/// Says what a damaged volume that is read nonetheless is missing, and what can be done.
fn warn_of_damage(name: &str, damage: &LfsError, lost: &Lost) {
    if !lost.is_nothing() {
        INCOMPLETE.store(true, Relaxed);
    }
    warn(format_args!("{name}: {damage}"));
    say(format_args!("      it is read as far as it can be: {}", missing(lost)));
    say(format_args!(
        "      'weft fsck {name}' lists the damage, 'weft salvage {name} NEW' copies what can be read"
    ));
}

/// What the metadata of a volume lost, in words.
pub fn missing(lost: &Lost) -> String {
    let blocks: u64 = lost.blocks.values().sum();
    let counts = [
        (u64::from(lost.checkpoint), "parts of both checkpoints"),
        (lost.frames, "frames of the journal"),
        (lost.records, "records that fit nothing"),
        (lost.names.len() as u64, "files whose names are left"),
        (lost.made_up.len() as u64, "files' attributes"),
        (lost.partial.len() as u64, "files' maps, in part"),
        (blocks, "blocks whose place holds other data"),
        (lost.mixed.len() as u64, "files' changes, perhaps"),
        (lost.orphans.len() as u64, "names of files in lost+found"),
    ];
    let told: Vec<String> =
        counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| {
                if *what == "parts of both checkpoints" {
                    what.to_string()
                } else {
                    format!("{count} {what}")
                }
            })
            .collect();
    if told.is_empty() {
        "nothing is known to be missing".into()
    } else {
        format!("missing are {}", told.join(", "))
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

impl Mounted {
    /// What a server serves.
    pub fn served(&self) -> Result<Volume, CliError> {
        let info = self.device.info();
        // A drive that clients cannot read by themselves still lets them append by themselves, and read what is cached.
        let image = self.device.direct_read();
        let cache = self.device.shared_cache();
        let (path, kind) = match (image, cache) {
            (Some(image), _) => (PathBuf::from(format!("/proc/self/fd/{}", image.fd)), ImageKind::Device),
            (None, Some(cache)) => {
                (PathBuf::from(format!("/proc/self/fd/{}", cache.fd)), ImageKind::Cache(cache.bytes))
            }
            (None, None) => (PathBuf::from("/dev/null"), ImageKind::Nothing),
        };
        let file = File::open(&path).map_err(|e| CliError::io("open", &path, e))?;
        let device = self.device.clone();
        let direct = Some(DirectImage {
            file: OwnedFd::from(file),
            base: image.map_or(0, |image| image.base),
            mappable: image.is_some_and(|image| image.mappable),
            kind,
            zone_bytes: info.zone_bytes(),
            device_blocks: u64::from(info.zones) * u64::from(info.zone_blocks),
            crc: self.crc.clone(),
            count_reads: Box::new(move |reads, bytes| device.count_direct_reads(reads, bytes)),
        });
        let (clock, ticked) = (self.lfs.clone(), self.lfs.clone());
        let fs: Arc<dyn FileSystem> = match &self.recording {
            Some(recording) => recording.recorder().before(self.lfs.clone()),
            None => self.lfs.clone(),
        };
        let volume = Volume::new(VolumeOptions {
            fs,
            engine: self.engine.clone(),
            direct,
            tag: self.tag(),
            volume_bytes: Box::new(move || clock.volume_bytes()),
            tick: Box::new(move || ticked.tick()),
        })?;
        let volume = volume.with_inspector(self.inspector());
        Ok(match &self.recording {
            Some(recording) => volume.with_recorder(recording.recorder().clone()),
            None => volume,
        })
    }

    /// Tells the volume from others on this machine, whenever it is served: a copy of an image has the same UUID and is
    /// another file.
    fn tag(&self) -> u64 {
        use std::hash::{DefaultHasher, Hasher};
        use std::os::unix::fs::MetadataExt;
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.lfs.uuid());
        // A volume in memory is nowhere, and no other has its UUID.
        if let Ok(place) = std::fs::metadata(&self.name) {
            for number in [place.dev(), place.ino(), place.rdev()] {
                hasher.write_u64(number);
            }
        }
        hasher.finish()
    }

    fn view(&self) -> View {
        View {
            name: self.name.clone(),
            device: self.device.clone(),
            lfs: self.lfs.clone(),
            engine: self.engine.clone(),
        }
    }

    /// What the volume has counted so far.
    pub fn snapshot(&self, programs: ProgramView) -> Snapshot {
        self.view().snapshot(programs)
    }

    fn inspector(&self) -> Inspector {
        let view = self.view();
        Box::new(move |topic, from, programs| {
            let (json, next) = match topic {
                TOPIC_SNAPSHOT => (serde_json::to_vec(&view.snapshot(programs.clone())), 0),
                TOPIC_ZONES => {
                    let (zones, next) = view.zones(from);
                    (serde_json::to_vec(&zones), next)
                }
                _ => return None,
            };
            Some(Told { text: json.ok()?, next })
        })
    }

    /// Unmounts, checks that the device's counters agree with one another, and tells what was counted.
    pub fn close(self, programs: ProgramView) -> Result<Snapshot, CliError> {
        self.lfs.close().map_err(|source| volume_error(&self.name, source.into()))?;
        self.device.verify_identity()?;
        if let Some(recording) = &self.recording {
            recording.end()?;
        }
        Ok(self.snapshot(programs))
    }
}

/// What is needed to tell about a volume.
struct View {
    name: String,
    device: Device,
    lfs: Arc<Lfs>,
    engine: Arc<Engine>,
}

impl View {
    fn snapshot(&self, programs: ProgramView) -> Snapshot {
        let info = self.device.info();
        let stats = self.lfs.stats();
        let room = self.lfs.statfs().unwrap_or_default();
        let block = BLOCK_BYTES as u64;
        let mut streams: BTreeMap<u16, Stream> = BTreeMap::new();
        for ((stream, _), group) in &stats.groups {
            let of = streams.entry(*stream).or_insert_with(|| Stream {
                id: *stream,
                name: self.stream_name(StreamId(*stream)),
                ..Stream::default()
            });
            of.files += group.files;
            of.bytes += group.bytes_written;
            of.gc_bytes += group.gc_bytes;
            of.zones += group.zones_held;
            of.live_bytes += group.live_bytes;
            of.groups += 1;
        }
        for told in self.engine.streams() {
            let of =
                streams.entry(told.id.0).or_insert_with(|| Stream { id: told.id.0, ..Stream::default() });
            of.name = told.name;
            of.deleted = told.lifetime.deaths;
            of.lifetime = told.lifetime;
        }
        Snapshot {
            volume: VolumeFacts {
                name: self.name.clone(),
                mode: self.engine.mode().to_string(),
                policy: self.engine.policy_name().to_string(),
                zones: info.zones,
                zone_bytes: u64::from(info.zone_capacity) * block,
                open_zones_max: info.open_max,
                device_bytes: info.capacity_bytes(),
            },
            space: Space { total_bytes: room.total_bytes, free_bytes: room.free_bytes, inodes: room.inodes },
            device: self.device.counters(),
            buffered_bytes: self.device.buffered_bytes(),
            device_latency: self.device.latencies(),
            zones: self.zone_counts(),
            core: Core {
                user_bytes: stats.volume_bytes,
                cleaned_zones: stats.gc_zones,
                whole_zone_deaths: stats.whole_zone_deaths,
                checksum_errors: stats.checksum_errors,
                stalls: stats.stalls,
            },
            streams: streams.into_values().collect(),
            programs,
        }
    }

    /// A stream's name; those of earlier mounts are known by their number only when a directory's or suffix's stream has
    /// not come up again.
    fn stream_name(&self, id: StreamId) -> String {
        match self.engine.stream_name(id) {
            Some(name) => name.to_string(),
            None if id == StreamId(0) => "(directories)".to_string(),
            None => format!("(stream {id}, earlier)"),
        }
    }

    fn zone_counts(&self) -> Zones {
        let mut counts = Zones::default();
        for zone in self.lfs.zones() {
            *match (zone.state, zone.kind) {
                ("free", _) => &mut counts.free,
                ("dying", _) => &mut counts.dying,
                ("bad", _) => &mut counts.bad,
                (_, "meta") => &mut counts.metadata,
                ("open", _) => &mut counts.open,
                ("parked", _) => &mut counts.parked,
                _ => &mut counts.full,
            } += 1;
        }
        counts
    }

    /// Zones from a number on, and where to go on (0 = that was all).
    fn zones(&self, from: u64) -> (Vec<Zone>, u64) {
        let all = self.lfs.zones();
        let part = all.iter().skip(from as usize).take(ZONES_PER_PART);
        let part: Vec<Zone> = part
            .map(|z| Zone {
                zone: z.zone.0,
                state: z.state.to_string(),
                kind: z.kind.to_string(),
                stream: match z.kind {
                    "data" => self.stream_name(z.tag.stream),
                    _ => String::new(),
                },
                stream_id: z.tag.stream.0,
                group: z.tag.group.0,
                written_bytes: u64::from(z.write_pointer) * BLOCK_BYTES as u64,
                live_bytes: z.live_bytes,
            })
            .collect();
        let next = from + part.len() as u64;
        (part, if next < all.len() as u64 { next } else { 0 })
    }
}
