//! Arguments that several commands share: the modelled device, and where data goes.

use crate::cache_args::CacheArgs;
use crate::error::CliError;
use crate::sys::heap;
use clap::Args;
use std::path::{Path, PathBuf};
use weft_core::DataClass;
use weft_core::units::{format_size, parse_size, size_argument};
use weft_device::Geometry;
use weft_device::geometry::PRESETS;
use weft_lfs::{FormatOptions, Lfs};
use weft_placement::Mode;
use weft_vfs::compound::schedule::{Policy, Processors, UserId, Weight};
use weft_volume::SHARED_MEMORY_DEFAULT;
use weft_volume::device::CACHE_BYTES_DEFAULT;
use weft_volume::{MountChoice, read_settings};

/// Size of a volume in bytes unless the user gives one.
const SIZE_DEFAULT: u64 = 1 << 30;
/// Size of a device under a monitor unless the user gives one.
const MONITORED_SIZE_DEFAULT: u64 = 8 << 30;
/// Largest number of zones in the search for the smallest device that holds a volume.
const VOLUME_ZONES_TRIED: u64 = 4096;

/// The modelled device.
#[derive(Args, Clone, PartialEq, Debug, Default)]
pub struct GeometryArgs {
    /// Flash geometry and timing of a known device: zn540, tlc, mlc, slc, qlc or bbssd; not with --geometry [default:
    /// zn540]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(PRESETS))]
    #[arg(hide_possible_values = true, conflicts_with = "geometry")]
    pub preset: Option<String>,
    /// A TOML file with geometry and timing; docs/how-to/format-a-volume.md describes it.
    #[arg(long, value_name = "FILE")]
    pub geometry: Option<PathBuf>,
    /// Size of a zone, for devices with zones [default: the zone size in the geometry file, else 4M]. If a zone of this size does not hold a
    /// whole number of erase blocks, weft reduces the number of pages in each erase block until it does
    #[arg(long, value_name = "BYTES")]
    pub zone_size: Option<String>,
}

impl GeometryArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        *self != GeometryArgs::default()
    }

    /// The same, large enough for a volume.
    pub fn of_volume(&self, size: Option<u64>, label: &str) -> Result<Geometry, CliError> {
        let geometry = self.unchecked(size, SIZE_DEFAULT)?;
        let fits = |geometry: &Geometry| {
            geometry.validate()?;
            let options = FormatOptions { label: label.to_string(), ..FormatOptions::default() };
            Lfs::check_format(&geometry.zoned_info(), 0, &options)
                .map_err(|source| CliError::said(source.to_string(), "give another geometry"))
        };
        let Err(why) = fits(&geometry) else { return Ok(geometry) };
        let least = (1..=VOLUME_ZONES_TRIED)
            .map(|zones| geometry.zone_bytes.saturating_mul(zones))
            .find(|bytes| fits(&geometry.clone().with_size(*bytes)).is_ok());
        match least {
            // Else it is not the size that is wrong.
            Some(least) if least > geometry.total_bytes => Err(CliError::said(
                format!(
                    "a volume does not fit on {} in zones of {}; {} is the least",
                    format_size(geometry.total_bytes),
                    format_size(geometry.zone_bytes),
                    format_size(least)
                ),
                format!("give --size {} or more, or a smaller --zone-size", size_argument(least)),
            )),
            _ => Err(why),
        }
    }

    fn unchecked(&self, size: Option<u64>, default: u64) -> Result<Geometry, CliError> {
        let mut geometry = match (&self.geometry, &self.preset) {
            (Some(path), _) => {
                let text = read_settings(path).map_err(|e| CliError::io("geometry", path, e))?;
                let geometry = Geometry::from_toml(&text).map_err(|error| {
                    CliError::of(path, error, "docs/how-to/format-a-volume.md describes the file")
                })?;
                size.map_or(geometry.clone(), |bytes| geometry.with_size(bytes))
            }
            (None, preset) => {
                let name = preset.as_deref().unwrap_or("zn540");
                Geometry::preset(name)?.with_size(size.unwrap_or(default))
            }
        };
        if let Some(text) = &self.zone_size {
            geometry = geometry.with_zone_bytes(parse_size(text)?);
        }
        Ok(geometry)
    }
}

/// The flash of a device without zones.
#[derive(Args, Clone, Debug, Default)]
pub struct FlashArgs {
    #[command(flatten)]
    geometry: GeometryArgs,
    /// Size of the device's flash [default: the size in the geometry file, else 1G]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,
}

impl FlashArgs {
    /// The geometry that was said; the size wins over the file's.
    pub fn geometry(&self, has_zones: bool) -> Result<Geometry, CliError> {
        self.sized(SIZE_DEFAULT, has_zones)
    }

    /// The same, with room for what a monitor keeps of each LUN.
    pub fn monitored_geometry(&self) -> Result<Geometry, CliError> {
        self.sized(MONITORED_SIZE_DEFAULT, false)
    }

    fn sized(&self, default: u64, has_zones: bool) -> Result<Geometry, CliError> {
        if self.geometry.zone_size.is_some() && !has_zones {
            return Err(CliError::said(
                "--zone-size: this device has no zones",
                "leave it out; 'weft flash simulate --presentation zoned' and 'weft format' make devices with zones",
            ));
        }
        let geometry = self.geometry.unchecked(self.size, default)?;
        geometry.validate()?;
        Ok(geometry)
    }
}

/// Which stream data goes to.
#[derive(Args, PartialEq, Debug, Default)]
pub struct ModeArgs {
    /// How weft assigns files to streams: off (one stream for all), random (a random stream for each path), suffix (one
    /// stream for each file suffix) or rules (the rules of a policy); docs/placement.md describes streams [default:
    /// rules]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// A policy file, or the name of a shipped policy [default: the shipped policy that fits the program]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Seed for the placement mode random [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl ModeArgs {
    /// The choice, with defaults for what was not said.
    pub fn choice(&self) -> MountChoice {
        MountChoice {
            mode: self.mode.unwrap_or_default(),
            policy: self.policy.clone(),
            seed: self.seed.unwrap_or(0),
            ..MountChoice::default()
        }
    }
}

/// Where data goes, and how the device that it goes to is used.
#[derive(Args, PartialEq, Debug, Default)]
pub struct PlacementArgs {
    #[command(flatten)]
    pub mode: ModeArgs,
    /// Delay each operation of a modelled device by the time that real flash would take.
    #[arg(long)]
    pub real_time: bool,
    /// Memory in which weft caches data of a real drive, or pages of a volume of the core tagfs [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub drive_cache: Option<u64>,
    #[command(flatten)]
    pub cache: CacheArgs,
    /// Maximum size of the memory that weft shares with programs for names, block maps and buffers [default: 1G]
    #[arg(long, value_name = "BYTES", value_parser = parse_shared_memory)]
    pub shared_memory: Option<u64>,
    /// Times that weft overwrites securely deleted data with random bytes before it overwrites it with zeros, at most 32;
    /// docs/how-to/delete-securely.md describes what this helps against [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=32))]
    pub erase_passes: Option<u32>,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub program_cpus: ProgramCpuArgs,
}

/// Device processors for the programs of 'weft compound' and of the client library.
#[derive(Args, PartialEq, Debug, Default)]
pub struct ProgramCpuArgs {
    /// Run compound operations on N modelled device processors, for which they take turns; docs/how-to/simulate-device-cpus.md describes
    /// them [default: each runs at once, on a processor of the host]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub program_cpus: Option<u32>,
    /// Time that a device processor takes for what takes a processor of the host 100, from 100 to 10000 [default: 100]
    #[arg(long, value_name = "PERCENT", requires = "program_cpus", value_parser = clap::value_parser!(u32).range(100..=10_000))]
    pub program_slowdown: Option<u32>,
    /// Which compound operation is next: fifo (the one that came first, to its end), round-robin (users take turns) or fair (the user with
    /// the least processor time for its weight) [default: fair]
    #[arg(long, value_name = "NAME", requires = "program_cpus")]
    pub program_scheduler: Option<Policy>,
    /// Share of a user's compound operations under the scheduler fair: the number of the user, and a weight from 1 to 10000. With twice the
    /// weight a user gets twice the time. The option can be given for several users [default: 100 for each user]
    #[arg(long, value_name = "UID=WEIGHT", requires = "program_cpus", value_parser = parse_program_weight)]
    pub program_weight: Vec<(UserId, Weight)>,
    /// Memory that a user's begun compound operations may hold under the scheduler fair [default: 256M]
    #[arg(long, value_name = "BYTES", requires = "program_cpus", value_parser = parse_size)]
    pub program_memory: Option<u64>,
}

/// Memory of a user's programs that have begun: that of five whose functions take all that they may.
const PROGRAM_MEMORY_DEFAULT: u64 = 256 << 20;

fn parse_program_weight(text: &str) -> Result<(UserId, Weight), String> {
    let (user, weight) =
        text.split_once('=').ok_or("give the number of a user and a weight, such as 1001=200")?;
    let user =
        user.parse().map_err(|_| format!("'{user}' is not the number of a user; 'id -u NAME' tells it"))?;
    let found = weight.parse().ok().and_then(Weight::new);
    let found = found.ok_or_else(|| {
        format!("'{weight}' is no weight; give a number from {} to {}", Weight::MIN, Weight::MAX)
    })?;
    Ok((UserId(user), found))
}

impl ProgramCpuArgs {
    /// Refuses what the scheduler does not know.
    pub fn check(&self) -> Result<(), CliError> {
        let policy = self.program_scheduler.unwrap_or_default();
        let option = match (self.program_weight.first(), self.program_memory) {
            _ if policy == Policy::Fair => return Ok(()),
            (Some((user, weight)), _) => format!("--program-weight {}={}", user.0, weight.get()),
            (None, Some(bytes)) => format!("--program-memory {}", size_argument(bytes)),
            (None, None) => return Ok(()),
        };
        Err(CliError::said(
            format!("{option}: the scheduler {policy} has no weights and no budgets"),
            "leave it out, or give --program-scheduler fair",
        ))
    }

    /// The processors that were asked for.
    fn choice(&self) -> Option<Processors> {
        let mut processors = Processors::new(self.program_cpus?);
        processors.slowdown_percent = self.program_slowdown.unwrap_or(processors.slowdown_percent);
        processors.policy = self.program_scheduler.unwrap_or_default();
        processors.weights = self.program_weight.clone();
        processors.fair.memory_max_bytes = self.program_memory.unwrap_or(PROGRAM_MEMORY_DEFAULT);
        Some(processors)
    }
}

/// A bound on the memory of this process.
#[derive(Args, PartialEq, Debug, Default)]
pub struct MemoryArgs {
    /// Most memory that this process takes for metadata and buffers, without what it shares with programs; what is not in
    /// use is in a file on the disk [default: as much as the metadata needs]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    pub memory: Option<u64>,
    /// Directory for that file, which has no name [default: the directory of the image; /var/tmp for a device]
    #[arg(long, value_name = "DIR", requires = "memory")]
    pub memory_dir: Option<PathBuf>,
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < heap::BOUND_MIN {
        return Err(format!(
            "{} is too little; give {} or more",
            format_size(bytes),
            format_size(heap::BOUND_MIN)
        ));
    }
    Ok(bytes)
}

impl MemoryArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        *self != MemoryArgs::default()
    }

    /// The same, wherever the process will be: the directory for the file is said.
    pub fn of_volume(&self, volume: &Path) -> Result<MemoryArgs, CliError> {
        if self.memory.is_none() {
            return Ok(MemoryArgs::default());
        }
        let volume = volume.canonicalize().unwrap_or_else(|_| volume.to_path_buf());
        let is_image = std::fs::metadata(&volume).is_ok_and(|meta| meta.is_file());
        let beside = volume.parent().filter(|_| is_image).unwrap_or_else(|| Path::new("/var/tmp"));
        let dir = self.memory_dir.as_deref().unwrap_or(beside);
        let dir = std::path::absolute(dir).map_err(|error| CliError::io("find", dir, error))?;
        Ok(MemoryArgs { memory_dir: Some(dir), ..*self })
    }

    /// Bounds the memory of this process, which is about to open a volume, if that was asked for.
    pub fn apply(&self, volume: &Path) -> Result<(), CliError> {
        let MemoryArgs { memory: Some(bytes), memory_dir: Some(dir) } = self.of_volume(volume)? else {
            return Ok(());
        };
        heap::bound(bytes, &dir).map_err(|error| {
            CliError::of(
                &dir,
                format_args!("memory cannot be bounded (--memory) by a file there: {error}"),
                "give a directory on ext4 or XFS that you may write to by --memory-dir; the limits on address space and processes \
                 (ulimit -v, -u) must leave room, too",
            )
        })
    }
}

/// A class of data, by its name.
pub fn parse_class(text: &str) -> Result<DataClass, String> {
    DataClass::named(text).ok_or_else(|| {
        let names: Vec<&str> = DataClass::all().map(DataClass::name).collect();
        format!("there is no class '{text}'; the classes are {}", names.join(", "))
    })
}

/// Least memory that is shared.
const SHARED_MEMORY_MIN: u64 = 16 << 20;

fn parse_shared_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < SHARED_MEMORY_MIN {
        return Err(format!(
            "{} is too little; give {} or more",
            format_size(bytes),
            format_size(SHARED_MEMORY_MIN)
        ));
    }
    Ok(bytes)
}

impl PlacementArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        *self != PlacementArgs::default()
    }

    /// The choice, with defaults for what was not said.
    pub fn choice(&self) -> MountChoice {
        MountChoice {
            real_time: self.real_time,
            drive_cache_bytes: self.drive_cache.unwrap_or(CACHE_BYTES_DEFAULT),
            eviction: self.cache.eviction(),
            erase_passes: self.erase_passes.unwrap_or(0),
            shared_memory_bytes: self.shared_memory.unwrap_or(SHARED_MEMORY_DEFAULT),
            program_cpus: self.program_cpus.choice(),
            ..self.mode.choice()
        }
    }
}
