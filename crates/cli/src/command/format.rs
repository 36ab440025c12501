//! `weft format`: a volume on an emulated device in an image file, or on a real drive.

use crate::args::GeometryArgs;
use crate::command::tags::store::OP_PERMILLE;
use crate::error::CliError;
use crate::host;
use crate::progress;
use crate::say::say;
use crate::sys::signal;
use clap::{Args, ValueEnum};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::BLOCK_BYTES;
use weft_core::units::{format_size, parse_size};
use weft_device::{ZonedDevice, ZonedModel, zonefs};
use weft_flash_pages::{CreateRequest, FlashSpec};
use weft_volume::device::open_for_format;
use weft_volume::spec::{Place, is_drive};
use weft_volume::{Layout, VolumeError};

/// `weft format`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft format --size 4G vol.img\n  \
    weft format --size 512M --zone-size 8M --preset tlc --force vol.img\n  \
    weft format --geometry drive.toml vol.img\n  \
    weft format --core tagfs policy:nand.img#files\n  \
    weft format /dev/nvme0n1\n  \
    weft format --zonefs /dev/nvme0n1\n  \
    mount -t zonefs -o explicit-open,errors=zone-ro /dev/nvme0n1 /mnt/z && weft format zonefs:/mnt/z")]
pub struct FormatArgs {
    /// Size of the device, such as 512M or 4G [default: the size in the geometry file, else 1G]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<String>,
    #[command(flatten)]
    pub geometry: GeometryArgs,
    /// The core that stores the files: lfs, a log on zones, or tagfs, on a tag store in an image file or on flash.
    #[arg(long, value_enum, default_value_t, value_name = "CORE")]
    pub core: CoreName,
    /// Where tagfs keeps the attributes of a file: whole, in one node, or fine, each in a node of its own, which is slower, as in the paper "ADAPT"
    #[arg(long, value_enum, default_value_t, value_name = "LAYOUT")]
    pub layout: LayoutName,
    /// A name for the volume.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub label: String,
    /// Overwrite an existing image, or a drive that holds data. All data in the image or on the drive is lost.
    #[arg(long)]
    pub force: bool,
    /// Make an empty zonefs file system, and no volume, on a zoned block device.
    #[arg(long)]
    pub zonefs: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// The drive to format; the same as naming the drive as IMAGE.
    #[arg(long, value_name = "DEVICE|zonefs:DIR", conflicts_with = "image")]
    pub device: Option<PathBuf>,
    /// The image file to make, a zoned block device, zonefs:DIR for a mounted zonefs, or, with --core tagfs,
    /// policy:IMAGE#GRANT or function:IMAGE#GRANT for a volume on modelled flash, at this level of the grant.
    #[arg(required_unless_present = "device")]
    pub image: Option<PathBuf>,
}

/// A file core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum CoreName {
    /// Log-structured, on zones.
    #[default]
    Lfs,
    /// On a tag store.
    Tagfs,
}

/// Where attributes of files lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum LayoutName {
    /// All those of a file in one node.
    #[default]
    Whole,
    /// Each in a node of its own.
    Fine,
}

impl From<LayoutName> for Layout {
    fn from(name: LayoutName) -> Layout {
        match name {
            LayoutName::Whole => Layout::Whole,
            LayoutName::Fine => Layout::Fine,
        }
    }
}

/// Bytes of a volume unless said otherwise.
const TAGFS_BYTES_DEFAULT: u64 = 1 << 30;

/// Makes a volume, or a zonefs for one.
pub fn run(args: &FormatArgs) -> Result<(), CliError> {
    let Some(named) = args.image.as_ref().or(args.device.as_ref()) else {
        return Err(CliError::said(
            "no image file and no drive is given",
            "name the image file or the drive to format",
        ));
    };
    let place = Place::of(named);
    // What looks like a snapshot's name is that of a new file.
    let path = if place.snapshot.is_some() { named.clone() } else { place.path };
    let flash = place.flash;
    if let Some(spec) = &flash {
        return on_flash(args, spec);
    }
    if args.core == CoreName::Tagfs {
        return on_tag_store(args, &path);
    }
    if args.layout != LayoutName::Whole {
        let remedy = "give --core tagfs, or leave out --layout";
        return Err(CliError::of(&path, "--layout is an option of volumes with the core tagfs", remedy));
    }
    if args.zonefs {
        return make_zonefs(args, &path);
    }
    if is_drive(&path) {
        return on_drive(args, &path);
    }
    if args.device.is_some() {
        return Err(CliError::said(
            format!("--device {}: expected a block device or zonefs:DIR", path.display()),
            "to format an image file, name it without --device",
        ));
    }
    in_image(args, &path)
}

/// Makes a volume on a tag store in an image file.
fn on_tag_store(args: &FormatArgs, path: &Path) -> Result<(), CliError> {
    if args.zonefs || is_drive(path) || args.device.is_some() {
        let remedy = "name an image file, or policy:IMAGE#GRANT, or leave out --core";
        return Err(CliError::of(path, "--core tagfs makes a volume in an image file or on flash", remedy));
    }
    refuse_zones(args, path)?;
    let bytes = args.size.as_deref().map(parse_size).transpose()?.unwrap_or(TAGFS_BYTES_DEFAULT);
    check_file(path, args.force)?;
    weft_volume::format_tagfs(path, bytes, &args.label, args.layout.into())?;
    if !args.quiet {
        say(format_args!("{}: {} in a tag store", path.display(), format_size(bytes)));
    }
    Ok(())
}

/// Makes a volume on a tag store on flash.
fn on_flash(args: &FormatArgs, spec: &FlashSpec) -> Result<(), CliError> {
    let name = PathBuf::from(spec.to_string());
    if args.core != CoreName::Tagfs || args.zonefs || args.device.is_some() {
        let what = "a volume on a grant of flash has the core tagfs";
        return Err(CliError::of(&name, what, "give --core tagfs, and leave out --zonefs and --device"));
    }
    refuse_zones(args, &name)?;
    let bytes = args.size.as_deref().map(parse_size).transpose()?.unwrap_or(0);
    let request = CreateRequest { bytes, over_provisioning_permille: OP_PERMILLE, force: args.force };
    let made = weft_volume::format_tagfs_on_flash(spec, &request, &args.label, args.layout.into());
    let bytes = made.map_err(|error| host::served(&name, error.into()))?;
    if !args.quiet {
        say(format_args!("{spec}: {} in a tag store", format_size(bytes)));
    }
    Ok(())
}

fn refuse_zones(args: &FormatArgs, path: &Path) -> Result<(), CliError> {
    if args.geometry.is_given() {
        let what = "--preset, --geometry and --zone-size are options of volumes with zones";
        return Err(CliError::of(path, what, "leave them out: a tag store has no zones"));
    }
    Ok(())
}

/// Refuses what is no file, and a file that holds something unless that is forced.
fn check_file(path: &Path, force: bool) -> Result<(), CliError> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            let remedy = "give the name of a file, or of a zoned block device";
            Err(CliError::of(path, "neither a file nor a block device", remedy))
        }
        Ok(_) => CliError::unless_forced(path, true, force),
        Err(error) if error.kind() == io::ErrorKind::NotFound && std::fs::symlink_metadata(path).is_ok() => {
            Err(CliError::of(path, "a symbolic link that leads nowhere", "remove it, or give another name"))
        }
        Err(_) => Ok(()),
    }
}

fn in_image(args: &FormatArgs, path: &Path) -> Result<(), CliError> {
    let size = args.size.as_deref().map(parse_size).transpose()?;
    let geometry = args.geometry.of_volume(size, &args.label)?;
    check_file(path, args.force)?;
    let bar = progress::bytes("format", geometry.total_bytes, args.quiet);
    signal::notice_interrupts();
    let made = ZonedModel::create(path, &geometry, args.force, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        if signal::was_interrupted() {
            bar.finish_and_clear();
            // Half an image is of no use to anybody. What it cannot be removed for, the next format will say.
            let _ = std::fs::remove_file(path);
            std::process::exit(signal::status_of_interrupt().into());
        }
    });
    bar.finish_and_clear();
    let made = made.map_err(|error| host::served(path, error.into()))?;
    made_volume(args, path, Arc::new(made))
}

fn on_drive(args: &FormatArgs, path: &Path) -> Result<(), CliError> {
    refuse_geometry(args, path)?;
    let drive = open_for_format(path, args.force).map_err(|error| host::served(path, error.into()))?;
    made_volume(args, path, drive)
}

fn made_volume(args: &FormatArgs, path: &Path, device: Arc<dyn ZonedDevice>) -> Result<(), CliError> {
    let info = device.info();
    weft_volume::format(device, &path.display().to_string(), &args.label)?;
    if !args.quiet {
        say(format_args!(
            "{}: {} in {} zones of {}, {} open at most",
            path.display(),
            format_size(info.capacity_bytes()),
            info.zones,
            format_size(u64::from(info.zone_capacity) * BLOCK_BYTES as u64),
            info.open_max
        ));
    }
    Ok(())
}

fn make_zonefs(args: &FormatArgs, path: &Path) -> Result<(), CliError> {
    refuse_geometry(args, path)?;
    let (user, group) = weft_sys::effective_user();
    match zonefs::format(path, &args.label, user, group, args.force) {
        Ok(()) => {}
        Err(zonefs::FormatError::Device(error)) => return Err(CliError::Device(error)),
        Err(zonefs::FormatError::Written { written: zones }) => {
            return Err(VolumeError::Written { path: path.to_path_buf(), zones }.into());
        }
        Err(error @ zonefs::FormatError::Label(_)) => {
            return Err(CliError::said(format!("--label: {error}"), "give a shorter one"));
        }
    }
    if !args.quiet {
        let path = path.display();
        say(format_args!(
            "{path}: a zonefs; mount it with 'mount -t zonefs -o explicit-open,errors=zone-ro {path} DIR', then \
             'weft format zonefs:DIR'"
        ));
    }
    Ok(())
}

fn refuse_geometry(args: &FormatArgs, path: &Path) -> Result<(), CliError> {
    if args.size.is_none() && !args.geometry.is_given() {
        return Ok(());
    }
    Err(CliError::of(
        path,
        "--size, --preset, --geometry and --zone-size are options of image files",
        "leave them out: a drive has a fixed geometry",
    ))
}
