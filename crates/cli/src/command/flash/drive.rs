//! Conventional and FDP drives: what describes one, and the commands on one in an image.

use crate::error::CliError;
use crate::say::{self, unwritten};
use clap::{Args, FromArgMatches, ValueEnum};
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weft_core::units::parse_size;
use weft_core::{BLOCK_BYTES, Nanos};
use weft_device::gc::VictimPolicy;
use weft_device::nand::FlashSetup;
use weft_device::ssd::{Isolation, Ssd, SsdError, SsdSetup};

/// Number of free blocks below which cleaning starts, unless the user gives one.
pub const RESERVE_DEFAULT: u32 = 2;
/// Bytes of a command to a drive.
const COMMAND_BYTES: usize = 1 << 20;

/// What moved data of FDP handles may share.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IsolationName {
    /// All handles share the reclaim units of moved data.
    #[default]
    Initially,
    /// Each handle has its own reclaim units for moved data.
    Persistently,
}

/// How a drive maps and cleans.
#[derive(Args, Clone, PartialEq, Debug)]
pub struct DriveArgs {
    /// Over-provisioning in percent: (flash - capacity) / capacity.
    #[arg(long, value_name = "PERCENT", default_value_t = 7.0, value_parser = up_to_1000)]
    pub op: f64,
    /// How the cleaner (garbage collector) chooses the next block to clean: greedy, fifo, lru, random or cost-benefit.
    #[arg(long, value_name = "POLICY", default_value = "greedy", value_parser = victim)]
    pub gc: VictimPolicy,
    /// Let the cleaner write moved data to the same open block as new data.
    #[arg(long)]
    pub shared_relocation: bool,
    /// Start to clean when fewer than N units are free. A unit is what the cleaner cleans at once: a reclaim unit of a
    /// drive, a zone, or a group of erase blocks.
    #[arg(long, value_name = "N", default_value_t = RESERVE_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    pub reserve: u32,
    /// Number of LUNs in a reclaim unit of a conventional or FDP drive, or in a unit of the policy level. N must divide
    /// the number of LUNs of the device [default: the largest N that leaves at least 256 units; at the policy level,
    /// the largest N that is at most 8 or leaves at least 64 units]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub luns_per_unit: Option<u32>,
    /// Number of spare erase blocks in each plane. A conventional or FDP drive replaces bad blocks with spare blocks.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub spare_blocks: u32,
    /// Number of placement handles of an FDP drive. weft gives the handles in turn to the streams of the workload (the
    /// hot and the cold part, or the disks or files of a trace). At the policy level: the maximum number of streams
    /// that have an open unit of their own.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub handles: u16,
    /// Whether an FDP drive keeps the data of different handles apart when it moves the data.
    #[arg(long, value_enum, default_value_t)]
    pub isolation: IsolationName,
}

/// A number of percent, or of times, that may be 0 to 1000.
pub fn up_to_1000(text: &str) -> Result<f64, String> {
    within(text, 0.0..=1000.0)
}

/// A number in a range.
pub fn within(text: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|_| "expected a number, such as 12.5".to_string())?;
    let told = || format!("expected {} to {}", range.start(), range.end());
    if range.contains(&number) { Ok(number) } else { Err(told()) }
}

fn victim(name: &str) -> Result<VictimPolicy, String> {
    VictimPolicy::by_name(name)
        .ok_or_else(|| format!("there are {}", VictimPolicy::ALL.map(VictimPolicy::name).join(", ")))
}

impl DriveArgs {
    /// Whether every option has its default.
    pub fn is_standard(&self) -> bool {
        let defaults = DriveArgs::augment_args(clap::Command::new("drive")).try_get_matches_from(["drive"]);
        let standard = defaults.and_then(|found| DriveArgs::from_arg_matches(&found));
        standard.is_ok_and(|standard| standard == *self)
    }

    /// A drive on this flash.
    pub fn setup(&self, flash: FlashSetup, fdp: bool, seed: u64) -> SsdSetup {
        let isolation = match self.isolation {
            IsolationName::Initially => Isolation::Initially,
            IsolationName::Persistently => Isolation::Persistently,
        };
        SsdSetup {
            victim: self.gc,
            own_relocation_unit: !self.shared_relocation,
            reserve_units: self.reserve,
            luns_per_unit: self.luns_per_unit,
            spare_blocks_per_plane: self.spare_blocks,
            handles: if fdp { vec![isolation; usize::from(self.handles)] } else { Vec::new() },
            seed,
            ..SsdSetup::conventional(flash, self.op / 100.0)
        }
    }
}

/// `weft flash write`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft flash write drive.img data\n  \
    tar c dir | weft flash write --at 64M --pad drive.img\n\n\
    When the command succeeds, the data survives a crash of the host. If you kill the command, the image keeps the \
    data that the command has already written.")]
pub struct WriteArgs {
    /// An image that 'weft flash create --presentation conventional' or '--presentation fdp' made.
    image: PathBuf,
    /// The file to write to the drive [default: standard input]
    file: Option<PathBuf>,
    /// Offset on the drive, a multiple of 4K.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    at: u64,
    /// Placement handle of an FDP drive [default: 0]
    #[arg(long, value_name = "N")]
    handle: Option<u16>,
    /// If the data ends within a block of 4 KiB, fill the rest of this block with zeros. Without this option, the
    /// command then fails.
    #[arg(long)]
    pad: bool,
}

/// `weft flash read`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft flash read --bytes 1M drive.img > data\n\n\
    Read permission on the image is enough. Blocks that were never written, or were deallocated, read as zeros.")]
pub struct ReadArgs {
    /// An image that 'weft flash create --presentation conventional' or '--presentation fdp' made.
    image: PathBuf,
    /// Offset on the drive, a multiple of 4K.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    at: u64,
    /// Number of bytes to read [default: to the end of the drive]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    bytes: Option<u64>,
}

/// `weft flash deallocate`
#[derive(Args, Debug)]
pub struct DeallocateArgs {
    /// An image that 'weft flash create --presentation conventional' or '--presentation fdp' made.
    image: PathBuf,
    /// Offset on the drive, a multiple of 4K.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    at: u64,
    /// Number of bytes to deallocate, a multiple of 4K.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    bytes: u64,
}

/// Writes to a drive.
pub fn write(args: &WriteArgs) -> Result<(), CliError> {
    let mut block = blocks_of("--at", args.at)?;
    let name = args.file.as_deref().unwrap_or(Path::new("standard input"));
    let mut input: Box<dyn Read> = match &args.file {
        Some(path) => Box::new(File::open(path).map_err(|e| CliError::io("open", path, e))?),
        None => Box::new(io::stdin().lock()),
    };
    let drive = Ssd::open(&args.image)?;
    if let Some(path) = &args.file {
        check_input(args, path, drive.capacity_blocks().saturating_sub(block))?;
    }
    loop {
        let mut data = Vec::with_capacity(COMMAND_BYTES);
        input
            .by_ref()
            .take(COMMAND_BYTES as u64)
            .read_to_end(&mut data)
            .map_err(|e| CliError::io("read", name, e))?;
        if data.is_empty() {
            break;
        }
        if args.pad {
            data.resize(data.len().next_multiple_of(BLOCK_BYTES), 0);
        }
        if !data.len().is_multiple_of(BLOCK_BYTES) {
            return Err(not_whole(name));
        }
        let blocks = (data.len() / BLOCK_BYTES) as u64;
        drive.write(drive.now(), block, blocks, &data, args.handle).map_err(|e| on(&args.image, e))?;
        block += blocks;
    }
    drive.flush(drive.now())?;
    Ok(())
}

/// Refuses a file before the drive is changed, as far as its size and its name tell.
fn check_input(args: &WriteArgs, path: &Path, room_blocks: u64) -> Result<(), CliError> {
    let of = |path: &Path| std::fs::metadata(path).map_err(|error| CliError::io("open", path, error));
    let (input, image) = (of(path)?, of(&args.image)?);
    if (input.dev(), input.ino()) == (image.dev(), image.ino()) {
        let remedy = "name the file with the data, or give it on standard input";
        return Err(CliError::of(path, "it is the image of the drive itself", remedy));
    }
    if !input.is_file() {
        return Ok(());
    }
    if !args.pad && !input.len().is_multiple_of(BLOCK_BYTES as u64) {
        return Err(not_whole(path));
    }
    let blocks = input.len().div_ceil(BLOCK_BYTES as u64);
    if blocks > room_blocks {
        let (room, at) = (room_blocks * BLOCK_BYTES as u64, args.at);
        let what = format!("its {} bytes are more than the {room} of the drive from {at} on", input.len());
        return Err(CliError::of(
            path,
            what,
            "nothing was written; 'weft flash info IMAGE' shows the capacity",
        ));
    }
    Ok(())
}

fn not_whole(name: &Path) -> CliError {
    let what = "its size is not a multiple of 4K, the block of a drive";
    CliError::of(name, what, "give --pad to fill the last block with zeros")
}

/// Reads from a drive.
pub fn read(args: &ReadArgs) -> Result<(), CliError> {
    let first = blocks_of("--at", args.at)?;
    let drive = Ssd::look(&args.image)?;
    let capacity = drive.capacity_blocks();
    if first > capacity {
        return Err(on(&args.image, SsdError::OutOfRange { block: first, blocks: 1, capacity }));
    }
    let left = capacity - first;
    let mut bytes = args.bytes.unwrap_or(left * BLOCK_BYTES as u64);
    let (mut out, mut block) = (say::out(), first);
    while bytes > 0 {
        let blocks = bytes.min(COMMAND_BYTES as u64).div_ceil(BLOCK_BYTES as u64);
        let mut data = vec![0; blocks as usize * BLOCK_BYTES];
        drive.read(Nanos(0), block, blocks, &mut data).map_err(|e| on(&args.image, e))?;
        data.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        out.write_all(&data).map_err(unwritten)?;
        (block, bytes) = (block + blocks, bytes - data.len() as u64);
    }
    out.flush().map_err(unwritten)
}

/// Deallocates blocks of a drive.
pub fn deallocate(args: &DeallocateArgs) -> Result<(), CliError> {
    let (block, blocks) = (blocks_of("--at", args.at)?, blocks_of("--bytes", args.bytes)?);
    let drive = Ssd::open(&args.image)?;
    drive.deallocate(drive.now(), block, blocks).map_err(|e| on(&args.image, e))?;
    drive.flush(drive.now())?;
    Ok(())
}

fn blocks_of(option: &str, bytes: u64) -> Result<u64, CliError> {
    if bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Ok(bytes / BLOCK_BYTES as u64);
    }
    Err(CliError::said(format!("{option} {bytes}: expected a multiple of 4K"), "give another, such as 64K"))
}

/// The error with the image that it is about.
fn on(image: &Path, error: SsdError) -> CliError {
    match error {
        SsdError::Flash(error) => CliError::Flash(error),
        error => CliError::of(image, error, ""),
    }
}
