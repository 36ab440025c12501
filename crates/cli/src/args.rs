//! The command line.

use crate::command::btree::BTreeCommand;
use crate::command::flash::FlashCommand;
use crate::command::kv::KvCommand;
use crate::command::lab::LabArgs;
use crate::command::replay::ReplayArgs;
use crate::command::tags::TagsCommand;
use crate::error::CliError;
use crate::intercept::Intercept;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use weft_core::units::{format_size, parse_size};
use weft_device::Geometry;
use weft_device::geometry::PRESETS;
use weft_lfs::{FormatOptions, Lfs};
use weft_placement::Mode;
use weft_volume::MountChoice;
use weft_volume::device::CACHE_BYTES_DEFAULT;

/// Size of a volume in bytes unless the user gives one.
const SIZE_DEFAULT: u64 = 1 << 30;
/// Largest number of zones in the search for the smallest device that holds a volume.
const VOLUME_ZONES_TRIED: u64 = 4096;

/// Run unmodified programs on zoned flash, with less write amplification, and report it.
#[derive(Parser, Debug)]
#[command(
    name = "weft",
    version,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "EXAMPLES\n  \
        weft format --size 4G vol.img\n  \
        weft run --volume vol.img -- db_bench --db=/weft/db --benchmarks=fillrandom\n  \
        weft ls -l vol.img:/db\n\n\
        IMAGE:/path names a file on a volume. The environment variable WEFT_LOG sets how much weft logs to standard \
        error: error, warn, info, debug or trace, for all or by module."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make a volume on an emulated zoned device in an image file, or on a real zoned drive.
    Format(FormatArgs),
    /// Run a program that sees a volume at the path /weft.
    Run(RunArgs),
    /// Serve a volume to programs until a signal stops the server.
    Serve(ServeArgs),
    /// List files on a volume.
    Ls(LsArgs),
    /// Show the attributes of files on a volume.
    Stat(PathsArgs),
    /// Write files of a volume to standard output.
    Cat(PathsArgs),
    /// Copy files in, out, within and between volumes.
    Cp(CpArgs),
    /// Write the files of a volume to a tar archive.
    Export(ExportArgs),
    /// Copy the files of a tar archive to a volume.
    Import(ImportArgs),
    /// Remove files from a volume.
    Rm(RmArgs),
    /// Make directories on a volume.
    Mkdir(MkdirArgs),
    /// Move or rename files within a volume.
    Mv(MvArgs),
    /// Show the space on a volume.
    Df(DfArgs),
    /// Check a volume for damage.
    Fsck(FsckArgs),
    /// Copy all readable files of a damaged volume to a new one.
    Salvage(SalvageArgs),
    /// Show the counters of a volume and its device.
    Stats(StatsArgs),
    /// Show the zones of a volume.
    Zones(ZonesArgs),
    /// Show, check and explain placement policies.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Run a program once per placement mode, each on a fresh volume, and compare.
    Compare(CompareArgs),
    /// Replay recordings in each placement mode, on volumes of a matching size, and compare.
    Replay(ReplayArgs),
    /// Show and simulate modelled flash, without a volume.
    #[command(subcommand)]
    Flash(FlashCommand),
    /// Make, check and inspect tag stores.
    #[command(subcommand)]
    Tags(TagsCommand),
    /// Use a key-value store in a tag store.
    #[command(subcommand)]
    Kv(KvCommand),
    /// Use an ordered map (B+tree) in a tag store.
    #[command(subcommand, name = "btree")]
    BTree(BTreeCommand),
    /// Run a command in a virtual machine with emulated zoned and FDP drives.
    Lab(LabArgs),
    /// Show the version.
    Version,
}

/// The modelled device.
#[derive(Args, Debug, Default)]
pub struct GeometryArgs {
    /// Flash and timing of a known device: zn540, tlc, mlc, slc, qlc or bbssd [default: zn540]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(PRESETS))]
    #[arg(hide_possible_values = true, conflicts_with = "geometry")]
    pub preset: Option<String>,
    /// A TOML file with geometry and timing; docs/how-to/format-a-volume.md describes it.
    #[arg(long, value_name = "FILE")]
    pub geometry: Option<PathBuf>,
    /// Size of a zone [default: 4M]
    #[arg(long, value_name = "BYTES")]
    pub zone_size: Option<String>,
}

impl GeometryArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        self.preset.is_some() || self.geometry.is_some() || self.zone_size.is_some()
    }

    /// The geometry; `size` wins over the file's.
    pub fn geometry(&self, size: Option<u64>) -> Result<Geometry, CliError> {
        self.geometry_or(size, SIZE_DEFAULT)
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
                format!("give --size {least} or more, or a smaller --zone-size"),
            )),
            _ => Err(why),
        }
    }

    /// The same, with another size of presets when nobody says one.
    pub fn geometry_or(&self, size: Option<u64>, default: u64) -> Result<Geometry, CliError> {
        let geometry = self.unchecked(size, default)?;
        geometry.validate()?;
        Ok(geometry)
    }

    fn unchecked(&self, size: Option<u64>, default: u64) -> Result<Geometry, CliError> {
        let mut geometry = match (&self.geometry, &self.preset) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(path).map_err(|e| CliError::io("geometry", path, e))?;
                let geometry = Geometry::from_toml(&text)?;
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

/// Where data goes.
#[derive(Args, Debug, Default)]
pub struct PlacementArgs {
    /// How weft places data: off (one stream), random, suffix (a stream per file suffix) or rules [default: rules]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// A policy file, or the name of a shipped policy [default: the shipped policy that fits the program]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Seed of mode random [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Make each device operation take as long as it takes on flash.
    #[arg(long)]
    pub real_time: bool,
    /// Memory for weft's cache of a real drive [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub drive_cache: Option<u64>,
}

impl PlacementArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        let cache = self.drive_cache.is_some();
        self.mode.is_some() || self.policy.is_some() || self.seed.is_some() || self.real_time || cache
    }

    /// The choice, with defaults for what was not said.
    pub fn choice(&self) -> MountChoice {
        MountChoice {
            mode: self.mode.unwrap_or_default(),
            policy: self.policy.clone(),
            seed: self.seed.unwrap_or(0),
            real_time: self.real_time,
            drive_cache_bytes: self.drive_cache.unwrap_or(CACHE_BYTES_DEFAULT),
            ..MountChoice::default()
        }
    }
}

/// `weft format`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft format --size 4G vol.img\n  \
    weft format --size 512M --zone-size 8M --preset tlc --force vol.img\n  \
    weft format --geometry drive.toml vol.img\n  \
    weft format /dev/nvme0n1\n  \
    weft format --zonefs /dev/nvme0n1\n  \
    mount -t zonefs -o explicit-open,errors=zone-ro /dev/nvme0n1 /mnt/z && weft format zonefs:/mnt/z")]
pub struct FormatArgs {
    /// Size of the device, such as 512M or 4G [default: the size in the geometry file, else 1G]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<String>,
    #[command(flatten)]
    pub geometry: GeometryArgs,
    /// A name for the volume.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub label: String,
    /// Overwrite an existing image, or a drive that holds data. All data on it is lost.
    #[arg(long)]
    pub force: bool,
    /// Make an empty zonefs on a zoned block device instead of a volume.
    #[arg(long)]
    pub zonefs: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// The drive; the same as naming it as IMAGE.
    #[arg(long, value_name = "DEVICE|zonefs:DIR", conflicts_with = "image")]
    pub device: Option<PathBuf>,
    /// The image file to make, a zoned block device, or zonefs:DIR for a mounted zonefs.
    #[arg(required_unless_present = "device")]
    pub image: Option<PathBuf>,
}

/// `weft run`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    weft run --volume vol.img -- ls -l /weft\n  \
    weft run --volume vol.img --mode rules --report run.json -- db_bench --db=/weft/db --benchmarks=fillrandom\n  \
    weft run --volume mem:512M --zone-size 8M -- sh -c 'cp -r /etc /weft && du -sh /weft/etc'\n  \
    weft run --volume mem:2G --record db.rec -- db_bench --db=/weft/db --benchmarks=fillrandom,overwrite\n  \
    weft run --hints -- db_bench --db=/var/tmp/db --benchmarks=fillrandom\n\n\
    EXIT STATUS\n  The program's. When a signal ended the program: 128 plus the number of the signal.\n  \
    125 weft itself failed, 126 the program cannot run under weft, 127 the program was not found")]
pub struct RunArgs {
    /// The volume: an image file, a zoned block device, zonefs:DIR, or mem:SIZE for a volume in memory that ends with
    /// the run; mem: alone keeps files in memory without a device.
    #[arg(long, value_name = "IMAGE|DEVICE|zonefs:DIR|mem:[SIZE]")]
    #[arg(required_unless_present_any = ["hints", "socket"])]
    pub volume: Option<String>,
    /// The socket of a running server, in place of --volume; for example the server of another user
    #[arg(long, value_name = "PATH", conflicts_with_all = ["volume", "hints", "preset", "geometry", "zone_size", "record", "real_time", "read_only"])]
    pub socket: Option<PathBuf>,
    /// Use no volume. Files stay where they are, and weft gives the kernel the lifetime of each file's stream as a
    /// write hint. weft repairs hints that the program passes wrongly.
    #[arg(long, conflicts_with_all = ["volume", "preset", "geometry", "zone_size", "report", "record", "real_time", "intercept"])]
    pub hints: bool,
    /// Which calls of the program weft intercepts
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub intercept: Intercept,
    /// The path at which the program sees the volume; this path need not exist.
    #[arg(long, value_name = "DIR", default_value = crate::access::MOUNT_POINT)]
    pub at: String,
    /// Refuse every change to the volume and leave the image as it is. weft reads a damaged volume as far as possible.
    #[arg(long, conflicts_with_all = ["record", "hints"])]
    pub read_only: bool,
    #[command(flatten)]
    pub placement: PlacementArgs,
    #[command(flatten)]
    pub geometry: GeometryArgs,
    /// Write the report to FILE as JSON as well; docs/formats/report-json.md describes it.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Record what the program does to its files, for 'weft replay'; docs/formats/recording.md describes the file.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Print no report.
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `weft serve`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft serve --volume vol.img &\n  weft run --volume vol.img -- ls /weft\n  kill %1\n\n\
    SIGTERM, SIGINT and SIGHUP shut the server down cleanly. Programs join with 'weft run', or with LD_PRELOAD, \
    WEFT_SOCKET and WEFT_AT set by hand."
)]
pub struct ServeArgs {
    /// The image file.
    #[arg(long, value_name = "IMAGE")]
    pub volume: PathBuf,
    /// The socket to listen on [default: a socket in a directory of this user]. Other commands of this user find the
    /// server by the image
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Print no report at the end.
    #[arg(short, long)]
    pub quiet: bool,
}

/// `weft ls`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft ls vol.img:\n  weft ls -lR vol.img:/db")]
pub struct LsArgs {
    /// Show mode, links, owner, group, size and time.
    #[arg(short)]
    pub long: bool,
    /// List directories and everything below them.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// IMAGE:/path
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `weft stat`, `weft cat`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft stat vol.img:/db/CURRENT\n  weft cat vol.img:/db/LOG | grep stall")]
pub struct PathsArgs {
    /// IMAGE:/path
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `weft cp`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft cp -r /var/lib/data vol.img:/\n  weft cp vol.img:/db/LOG .\n  \
    weft cp -r vol.img:/db other.img:/db\n\n\
    'weft cp' keeps modes, times, holes, extended attributes, and hard links between the copied files. It keeps owners \
    and the superuser's extended attributes only when the superuser runs it.")]
pub struct CpArgs {
    /// Copy directories and everything below them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// Files on the host or as IMAGE:/path; the last one is the target.
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... TARGET")]
    pub paths: Vec<OsString>,
}

/// `weft export`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft export vol.img vol.tar\n  weft export vol.img:/db | zstd > db.tar.zst\n\n\
    The archive keeps names, modes, owners, times, links, extended attributes and holes. GNU tar, bsdtar and Python \
    read it. When a program changes the volume during the export, the archive mixes several moments: stop the program \
    for a consistent copy."
)]
pub struct ExportArgs {
    /// Replace an existing archive.
    #[arg(short, long)]
    pub force: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// The volume, or a directory or file on it.
    #[arg(value_name = "IMAGE[:/path]")]
    pub from: OsString,
    /// The archive; - means standard output.
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
}

/// `weft import`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft import vol.img vol.tar\n  zstd -dc db.tar.zst | weft import vol.img:/db\n\n\
    'weft import' replaces existing files and adds to existing directories. It refuses each member whose path contains \
    .. or leads through a symlink, and imports the others."
)]
pub struct ImportArgs {
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// The volume, or a directory on it; the command makes a missing directory.
    #[arg(value_name = "IMAGE[:/path]")]
    pub to: OsString,
    /// The archive; - means standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
}

/// `weft rm`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft rm vol.img:/db/LOG.old\n  weft rm -r vol.img:/db")]
pub struct RmArgs {
    /// Remove directories and everything below them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Ignore files that do not exist.
    #[arg(short, long)]
    pub force: bool,
    /// IMAGE:/path
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `weft mkdir`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft mkdir -p vol.img:/a/b/c")]
pub struct MkdirArgs {
    /// Make missing parents as well, and accept directories that exist.
    #[arg(short, long)]
    pub parents: bool,
    /// IMAGE:/path
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `weft mv`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft mv vol.img:/a vol.img:/b\n  weft mv vol.img:/a vol.img:/b vol.img:/dir"
)]
pub struct MvArgs {
    /// IMAGE:/path, all on one volume; the last one is the target.
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... TARGET")]
    pub paths: Vec<OsString>,
}

/// `weft df`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft df vol.img\n  weft df --json vol.img:/")]
pub struct DfArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Image files, or IMAGE:/path of an existing file; all paths on a volume share its space.
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<OsString>,
}

/// `weft fsck`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft fsck vol.img && echo sound\n\n\
    'weft fsck' changes nothing.\n\n\
    EXIT STATUS\n  0 the volume is sound, 1 it has problems, 2 it cannot be checked")]
pub struct FsckArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// The image file.
    pub image: PathBuf,
}

/// `weft salvage`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft salvage --dry-run vol.img\n  weft salvage vol.img new.img\n\n\
    'weft salvage' only reads the damaged volume. Undamaged files keep their names, attributes and content. A damaged \
    file goes to /lost+found of the new volume, with holes for the missing parts; so does a file that has lost its \
    name.\n\n\
    EXIT STATUS\n  0 nothing is missing, 1 something is missing, 2 nothing can be salvaged")]
pub struct SalvageArgs {
    /// Read everything and list what is missing, but make no new volume.
    #[arg(short = 'n', long, conflicts_with = "target")]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// The damaged volume.
    pub image: PathBuf,
    /// The image file to make.
    #[arg(value_name = "NEW", required_unless_present = "dry_run")]
    pub target: Option<PathBuf>,
}

/// `weft stats`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft stats vol.img\n  weft stats --watch vol.img\n  \
    weft stats --json --watch=10 --count 6 vol.img | jq .device.media_bytes\n\n\
    The counters of the device start at the format of the volume. Those of streams and latencies start at the mount, so \
    they say something only while a server runs. They include programs that still run.")]
pub struct StatsArgs {
    /// Repeat every SECONDS seconds, with rates, while a server runs [default: 1]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub watch: Option<f64>,
    /// Stop after N repetitions.
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
    /// Print JSON; docs/formats/report-json.md describes it.
    #[arg(long)]
    pub json: bool,
    /// The image file.
    pub image: PathBuf,
}

/// `weft zones`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft zones vol.img\n  weft zones --table vol.img | grep wal\n\n\
    One cell is one zone. Its colour shows the stream of the zone's first data, its fill the share of live data. When \
    standard output is not a terminal, or NO_COLOR is set, a letter shows the stream and a digit the live tenths. \
    CLICOLOR_FORCE=1 forces colours. When a server runs, the command asks it for the present state; otherwise it reads \
    the image without changing it.")]
pub struct ZonesArgs {
    /// Print a line for each zone instead of a picture.
    #[arg(long)]
    pub table: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "table")]
    pub json: bool,
    /// The image file.
    pub image: PathBuf,
}

/// `weft policy`
#[derive(Subcommand, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft policy list\n  weft policy show rocksdb > my.toml\n  weft policy check my.toml\n  \
    weft policy explain --program db_bench --thread rocksdb:low0 /db/000012.sst\n  \
    weft policy explain --policy my.toml --size 3M /data/x.bin"
)]
pub enum PolicyCommand {
    /// List the policies that come with weft.
    List,
    /// Print a shipped policy's file.
    Show {
        /// Its name.
        name: String,
    },
    /// Check a policy file, and describe in words what it does.
    Check {
        /// The file, or the name of a shipped policy.
        file: PathBuf,
    },
    /// Show where the data of a file would go, and why.
    Explain {
        /// Name of the program that creates the file, as `ps -o comm` shows it.
        #[arg(long, visible_alias = "program", value_name = "NAME")]
        #[arg(default_value = "", hide_default_value = true)]
        process: String,
        /// Name of the thread that creates the file.
        #[arg(long)]
        thread: Option<String>,
        /// Size of the file.
        #[arg(long, value_name = "BYTES")]
        size: Option<String>,
        /// The program's write-lifetime hint: not-set, none, short, medium, long or extreme.
        #[arg(long, value_name = "HINT")]
        hint: Option<String>,
        #[command(flatten)]
        placement: PlacementArgs,
        /// Path on the volume, such as /db/000012.sst.
        path: OsString,
    },
}

/// `weft compare`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    weft compare --size 512M --zone-size 8M -- db_bench --db=/weft/db --benchmarks=fillrandom,overwrite\n  \
    weft compare --modes off,rules --repeat 3 --json cmp.json -- ./my-workload /weft\n\n\
    The program's standard output goes to standard error, so that standard output contains only the table.")]
pub struct CompareArgs {
    /// Size of each volume [default: the size in the geometry file, else 1G]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<String>,
    #[command(flatten)]
    pub geometry: GeometryArgs,
    /// Modes to compare; the table shows ratios to the first one.
    #[arg(long, value_delimiter = ',', default_value = "off,random,suffix,rules")]
    pub modes: Vec<Mode>,
    /// Policy of mode rules.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Seed of mode random [default: 0]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub seed: u64,
    /// Number of runs in each mode; weft alternates the modes, and the table shows medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// The path at which the program sees the volume.
    #[arg(long, value_name = "DIR", default_value = crate::access::MOUNT_POINT)]
    pub at: String,
    /// Keep the volumes in image files in this directory during the runs, instead of in memory.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Write the report of every run to FILE as JSON as well.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Discard the program's output.
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}
