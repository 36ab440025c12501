//! Write amplification, exactly: what a program did to its files, played through the core on a device in memory.
//!
//! The order of events is the recording's in every mode, so nothing but placement differs; a run of the program itself
//! differs each time. The core, the engine and the device are the ones that a program gets; what is left out is what
//! stands above the core. In its place, appended bytes are gathered as an append ring gathers them, and the core's
//! background work is done once per so many bytes.

use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;
use weft_core::{BLOCK_BYTES, Ino, Tag};
use weft_device::zoned::DeviceCounters;
use weft_device::{DeviceError, Geometry, ZonedDevice, ZonedModel};
use weft_lfs::{FormatOptions, Lfs, LfsError, MountOptions};
use weft_placement::recording::{Event, FileAction, Opener, Workload};
use weft_placement::{Engine, FileContext, OpenIntent, WriteHint};
use weft_vfs::{Core, CreateArgs, Death, FallocateMode, FileSystem, FsError, NewNode, SetAttr};

/// Appended data goes to the core in pieces of this size, as from an append ring.
const PIECE_BYTES: u64 = 256 << 10;
/// Pieces of at least this size go straight to the device.
const THROUGH_BYTES: u64 = 64 << 10;
/// The core's background work is done once per this many bytes.
const TICK_BYTES: u64 = 4 << 20;
/// Zones that a volume has beyond those that hold what is to be stored, in the first guess.
const ZONES_SPARE: u64 = 8;

/// Why a recording could not be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The device for it cannot be made, or its counters contradict one another.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The volume for it cannot be made.
    #[error(transparent)]
    Volume(#[from] LfsError),
    /// The core refused an event.
    #[error("event {event} of the recording ({line}): {source}")]
    Refused {
        /// Number of the event, from 1.
        event: usize,
        /// The event, as recordings have it.
        line: String,
        /// What the core said.
        source: FsError,
    },
}

impl ReplayError {
    /// Whether the volume was too small for the recording.
    pub fn is_full(&self) -> bool {
        matches!(self, ReplayError::Refused { source: FsError::NoSpace, .. })
    }
}

/// The outcome of a replay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Played {
    /// What the device counted.
    pub device: DeviceCounters,
    /// Zones that died whole: reset without a copy.
    pub whole_zone_deaths: u64,
    /// Zones that the cleaner emptied.
    pub cleaned_zones: u64,
}

impl Played {
    /// Write amplification by cleaning: what was written for the program and relocated, over what was written for it.
    pub fn waf(&self) -> f64 {
        super::waf(self.device.host_bytes, self.device.gc_bytes)
    }
}

/// The smallest device of this flash and zone size on which programs can store so many bytes, as `df` counts them.
pub fn device_for(flash: &Geometry, zone_bytes: u64, bytes: u64) -> Result<Geometry, ReplayError> {
    let of = |zones: u64| flash.clone().with_size(zones * zone_bytes).with_zone_bytes(zone_bytes);
    of(ZONES_SPARE).validate()?;
    let mut zones = bytes / zone_bytes + ZONES_SPARE;
    loop {
        let geometry = of(zones);
        let holds = match Volume::new(&geometry) {
            Ok(volume) => volume.lfs.statfs().map_or(0, |space| space.total_bytes),
            Err(ReplayError::Volume(LfsError::Unfit(_))) => 0,
            Err(error) => return Err(error),
        };
        if holds >= bytes {
            return Ok(geometry);
        }
        zones += ((bytes - holds) / zone_bytes / 2).max(1);
    }
}

/// Plays a recording on a fresh volume on such a device, and checks the device's counters. `progress` gets how many
/// bytes have been played, every few megabytes.
pub fn replay(
    workload: &Workload,
    geometry: &Geometry,
    engine: Arc<Engine>,
    progress: &mut dyn FnMut(u64),
) -> Result<Played, ReplayError> {
    let volume = Volume::new(geometry)?;
    let observer = engine.clone();
    volume.lfs.set_death_observer(Box::new(move |death: &Death| {
        observer.observe_death(&death.tag, b"", death.size, death.born_at_bytes, death.died_at_bytes);
    }));
    let mut player = Player {
        lfs: &volume.lfs,
        engine: &engine,
        data: vec![0xa5; PIECE_BYTES as usize],
        files: FxHashMap::default(),
        since_tick: 0,
    };
    let mut done = 0;
    for (index, event) in workload.events.iter().enumerate() {
        player.play(event).map_err(|source| ReplayError::Refused {
            event: index + 1,
            line: event.to_string(),
            source,
        })?;
        done += event.bytes();
        if player.since_tick >= TICK_BYTES {
            player.since_tick = 0;
            player.lfs.tick().map_err(LfsError::from)?;
            progress(done);
        }
    }
    progress(done);
    volume.device.verify_identity()?;
    let stats = volume.lfs.stats();
    Ok(Played {
        device: volume.device.counters(),
        whole_zone_deaths: stats.core.whole_segment_deaths,
        cleaned_zones: stats.core.cleaned_segments,
    })
}

/// A volume nobody has written to, in memory.
struct Volume {
    device: Arc<ZonedModel>,
    lfs: Lfs,
}

impl Volume {
    fn new(geometry: &Geometry) -> Result<Volume, ReplayError> {
        let device = Arc::new(ZonedModel::memory(geometry)?);
        Lfs::format(device.clone(), &FormatOptions::default())?;
        let lfs = Lfs::mount(device.clone(), MountOptions::default())?;
        Ok(Volume { device, lfs })
    }
}

/// A file of the recording.
struct File {
    ino: Ino,
    path: Vec<u8>,
    opener: Opener,
    /// Bytes that the core has.
    size: u64,
    /// Bytes appended since.
    pending: u64,
}

struct Player<'a> {
    lfs: &'a Lfs,
    engine: &'a Engine,
    data: Vec<u8>,
    files: FxHashMap<u32, File>,
    since_tick: u64,
}

impl Player<'_> {
    fn play(&mut self, event: &Event) -> Result<(), FsError> {
        let file = match (&event.action, self.files.remove(&event.file)) {
            (FileAction::Create { path, opener }, _) => self.create(event.file, path, opener)?,
            (FileAction::Delete, Some(file)) => return self.delete(event.file, &file),
            (action, Some(file)) => self.act(file, action)?,
            // What a deleted file's last descriptors do to it reaches no device that this is about.
            (_, None) => return Ok(()),
        };
        self.files.insert(event.file, file);
        Ok(())
    }

    fn create(&self, number: u32, path: &[u8], opener: &Opener) -> Result<File, FsError> {
        let tag = self.tag(path, opener, 0, WriteHint::NotSet);
        let args = CreateArgs { tag, open: true, ..CreateArgs::new(NewNode::File, 0o644) };
        // A file is called by its number: recordings tell neither directories nor what else is in the way of a name.
        let ino = self.lfs.create(Ino::ROOT, number.to_string().as_bytes(), &args)?.ino;
        Ok(File { ino, path: path.to_vec(), opener: opener.clone(), size: 0, pending: 0 })
    }

    fn delete(&self, number: u32, file: &File) -> Result<(), FsError> {
        self.lfs.unlink(Ino::ROOT, number.to_string().as_bytes())?;
        self.lfs.release(file.ino);
        Ok(())
    }

    /// The file after what is done to it.
    fn act(&mut self, mut file: File, action: &FileAction) -> Result<File, FsError> {
        let adds =
            matches!(action, FileAction::Reopen { .. } | FileAction::Hint(_) | FileAction::Write { .. });
        if !adds {
            self.flush(&mut file)?;
        }
        match action {
            FileAction::Create { .. } | FileAction::Delete | FileAction::Close => {}
            FileAction::Reopen { path, opener } => {
                (file.path, file.opener) = (path.clone(), opener.clone());
                self.place_again(&file)?;
            }
            FileAction::Rename { path } => {
                file.path = path.clone();
                file.opener.flags = OpenIntent::empty();
                self.place_again(&file)?;
            }
            FileAction::Hint(hint) => {
                let opener = Opener { flags: OpenIntent::CREATE | OpenIntent::WRITE, ..file.opener.clone() };
                let tag = self.tag(&file.path, &opener, file.size + file.pending, *hint);
                self.lfs.set_tag(file.ino, tag)?;
            }
            FileAction::Write { bytes } => self.append(&mut file, *bytes)?,
            FileAction::Overwrite { offset, bytes } => self.write_at(&mut file, *offset, *bytes)?,
            FileAction::Resize { size } => {
                self.lfs.setattr(file.ino, &SetAttr { size: Some(*size), ..SetAttr::default() })?;
                file.size = *size;
            }
            FileAction::Punch { offset, bytes } => {
                self.lfs.fallocate(file.ino, FallocateMode::PunchHole, *offset, *bytes)?;
            }
            FileAction::Sync => self.lfs.fsync(file.ino)?,
        }
        Ok(file)
    }

    /// A file whose name or use has changed: only another stream matters.
    fn place_again(&self, file: &File) -> Result<(), FsError> {
        let tag = self.tag(&file.path, &file.opener, file.size + file.pending, WriteHint::NotSet);
        let old = self.lfs.tag(file.ino)?;
        if old.stream != tag.stream && tag.stream.0 != 0 { self.lfs.set_tag(file.ino, tag) } else { Ok(()) }
    }

    fn append(&mut self, file: &mut File, bytes: u64) -> Result<(), FsError> {
        file.pending += bytes;
        while file.pending >= PIECE_BYTES {
            // Pieces end where a block does.
            let piece = PIECE_BYTES - file.size % BLOCK_BYTES as u64;
            self.lfs.write_through(file.ino, file.size, &self.data[..piece as usize])?;
            file.size += piece;
            file.pending -= piece;
            self.since_tick += piece;
        }
        Ok(())
    }

    /// Hands what was appended to the core.
    fn flush(&mut self, file: &mut File) -> Result<(), FsError> {
        let bytes = std::mem::take(&mut file.pending);
        if bytes == 0 { Ok(()) } else { self.write_at(file, file.size, bytes) }
    }

    fn write_at(&mut self, file: &mut File, mut offset: u64, mut bytes: u64) -> Result<(), FsError> {
        while bytes > 0 {
            let piece = bytes.min(PIECE_BYTES);
            let data = &self.data[..piece as usize];
            if piece >= THROUGH_BYTES {
                self.lfs.write_through(file.ino, offset, data)?;
            } else {
                self.lfs.write(file.ino, offset, data)?;
            }
            (offset, bytes) = (offset + piece, bytes - piece);
            self.since_tick += piece;
        }
        file.size = file.size.max(offset);
        Ok(())
    }

    fn tag(&self, path: &[u8], opener: &Opener, size: u64, hint: WriteHint) -> Tag {
        self.engine.place(&FileContext {
            process: &opener.process,
            thread: if opener.thread.is_empty() { &opener.process } else { &opener.thread },
            thread_id: opener.thread_id,
            flags: opener.flags,
            hint,
            size,
            volume_bytes: self.lfs.volume_bytes(),
            now: Duration::ZERO,
            ..FileContext::new(path)
        })
    }
}
