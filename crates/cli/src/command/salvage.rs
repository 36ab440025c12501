//! `weft salvage`: copies the readable files of a damaged volume to a new one.

use crate::byte_text::escape;
use crate::error::CliError;
use crate::host::{served_or, wait_until_closed};
use crate::kind::Kind;
use crate::progress;
use crate::say;
use crate::sys::file::with_suffix;
use crate::sys::signal::RemovedWhenEnded;
use crate::volume::missing;
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::BLOCK_BYTES;
use weft_core::units::format_size;
use weft_device::{Geometry, ZonedModel};
use weft_lfs::salvage::{SalvageReport, salvage};
use weft_lfs::{FormatOptions, Lfs, MountOptions};
use weft_vfs::FileSystem;
use weft_volume::Device;
use weft_volume::VolumeError;
use weft_volume::device::CACHE_BYTES_DEFAULT;
use weft_volume::spec::Place;

/// What the file is called, behind its name, until it is complete.
const PART_SUFFIX: &str = ".weft-part";
/// Exit status of a command that made no new volume.
const NO_VOLUME: u8 = 2;

/// `weft salvage`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft salvage --dry-run vol.img\n  weft salvage vol.img new.img\n\n\
    'weft salvage' only reads the damaged volume. Undamaged files keep their names, attributes and content. The \
    command copies damaged files to /lost+found on the new volume, with holes for the missing parts. It also copies \
    files without a name to /lost+found. The command writes the new volume to NEW.weft-part, and renames this file to NEW \
    when the volume is complete and durable. An interrupted command removes NEW.weft-part. When a kill or a crash has left \
    an incomplete NEW.weft-part, the next 'weft salvage' to NEW replaces it.\n\n\
    EXIT STATUS\n  0 nothing is missing, 1 something is missing, 2 nothing can be salvaged, or no new volume was made")]
pub struct SalvageArgs {
    /// Read the whole volume and list the missing data, but make no new volume.
    #[arg(short = 'n', long, conflicts_with = "target")]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// The damaged volume: an image file, a zoned block device, or zonefs:DIR.
    pub image: PathBuf,
    /// The image file to make.
    #[arg(value_name = "NEW", required_unless_present = "dry_run")]
    pub target: Option<PathBuf>,
}

/// The error of a command that made no new volume, or could not say what is in it.
fn no_volume(error: CliError) -> CliError {
    error.with_status(NO_VOLUME)
}

/// Salvages a volume.
pub fn run(args: &SalvageArgs) -> Result<(), CliError> {
    let name = args.image.display().to_string();
    if let Some(target) = &args.target {
        CliError::unless_new(target, std::fs::symlink_metadata(target).is_ok()).map_err(no_volume)?;
    }
    wait_until_closed(&args.image);
    let device = Device::look(Place::of(&args.image).whole()?, CACHE_BYTES_DEFAULT)
        .map_err(|e| served_or(&args.image, 2, e, |e| CliError::unsalvageable(&name, Kind::Volume, e)))?;
    let has_all_appends = weft_volume::settle_append_log(&device, &name);
    let options = MountOptions { salvage: true, ..MountOptions::default() };
    let from =
        Lfs::mount(device.zoned(), options).map_err(|e| CliError::unsalvageable(&name, Kind::Volume, e))?;
    let quiet = args.quiet || args.json;
    let report = match &args.target {
        Some(target) => copy_into(&device, &from, target, quiet).map_err(no_volume)?,
        None => {
            work(&from, None, quiet).map_err(|source| no_volume(VolumeError::lfs(&name, source).into()))?
        }
    };
    say::report(args.json, args.quiet, || json_of(args, &report), || words_of(args, &report))
        .map_err(no_volume)?;
    if report.is_complete() && has_all_appends {
        return Ok(());
    }
    Err(CliError::said(
        format!("{name}: not everything could be salvaged"),
        "compare the new volume with a backup, if you have one, before you delete the damaged volume",
    ))
}

fn work(from: &Lfs, to: Option<&Lfs>, quiet: bool) -> Result<SalvageReport, weft_lfs::LfsError> {
    progress::shown("salvage", quiet, |tell| salvage(from, to, tell))
}

/// Makes the new volume and copies to it, under another name until it is complete and durable: what was begun would be taken
/// for what could be salvaged.
fn copy_into(device: &Device, from: &Lfs, target: &Path, quiet: bool) -> Result<SalvageReport, CliError> {
    let part = with_suffix(target, PART_SUFFIX);
    let left = part.symlink_metadata().is_ok();
    if left && !may_be_left_by_salvage(&part) {
        let what = "this file is in the way: the command writes the new volume under this name first";
        return Err(CliError::of(&part, what, "move it to another name, or remove it"));
    }
    let mut unfinished = None;
    let report = fill(device, from, target, (&part, left), quiet, &mut unfinished)?;
    let failed = |what, path: &Path| {
        let path = path.to_path_buf();
        move |source| CliError::io(what, &path, source)
    };
    File::open(&part).and_then(|file| file.sync_all()).map_err(failed("sync", &part))?;
    // Somebody may have made a file there meanwhile.
    CliError::unless_new(target, target.symlink_metadata().is_ok())?;
    std::fs::rename(&part, target).map_err(failed("rename to", target))?;
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", folder))?;
    Ok(report)
}

/// Makes and fills the volume at `part`, where an incomplete one may be `left`. From when the file is this command's own,
/// `unfinished` removes it.
fn fill(
    device: &Device,
    from: &Lfs,
    target: &Path,
    (part, left): (&Path, bool),
    quiet: bool,
    unfinished: &mut Option<RemovedWhenEnded>,
) -> Result<SalvageReport, CliError> {
    let name = target.display().to_string();
    let failed = |source| CliError::from(VolumeError::lfs(&name, source));
    let geometry = geometry_for(device, from)?;
    let made = progress::shown("format", quiet, |tell| {
        // A salvage that is under way holds the lock of its file; the first call comes when this one has the lock.
        ZonedModel::create(part, &geometry, left, &mut |done, total| {
            unfinished.get_or_insert_with(|| RemovedWhenEnded::new(part));
            tell(done, total);
        })
    });
    let made = Arc::new(made?);
    let label = from.label();
    Lfs::format(made.clone(), &FormatOptions { label, ..FormatOptions::default() }).map_err(failed)?;
    let to = Lfs::mount(made.clone(), MountOptions::default()).map_err(failed)?;
    let report = work(from, Some(&to), quiet).map_err(failed)?;
    to.unmount().map_err(failed)?;
    Ok(report)
}

/// Whether a file can be what an earlier salvage has left: an image, or one whose first page was not yet written.
fn may_be_left_by_salvage(part: &Path) -> bool {
    // To open a FIFO would wait for who writes to it.
    if !part.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        return false;
    }
    let mut first = [0; 8];
    match File::open(part).and_then(|mut file| file.read(&mut first)) {
        Ok(_) => first == [0; 8] || Kind::of_first(&first) == Some(Kind::Volume),
        Err(_) => false,
    }
}

/// The device for what is on another: the same, and larger when that one is nearly full.
fn geometry_for(device: &Device, from: &Lfs) -> Result<Geometry, CliError> {
    let info = device.info();
    let geometry = match device {
        Device::Model(model) => model.geometry().clone(),
        Device::Drive(_) | Device::Other(_) => {
            let zone_bytes = u64::from(info.zone_capacity) * BLOCK_BYTES as u64;
            Geometry::zn540().with_size(info.capacity_bytes()).with_zone_bytes(zone_bytes)
        }
    };
    let space = from.statfs().map_err(|error| CliError::said(format!("space of the volume: {error}"), ""))?;
    let full = space.free_bytes < space.total_bytes / 10;
    let bytes = if full { geometry.total_bytes + geometry.total_bytes / 8 } else { geometry.total_bytes };
    let geometry = geometry.with_size(bytes.next_multiple_of(info.zone_bytes()));
    geometry.validate()?;
    Ok(geometry)
}

/// What is counted, in its order: the field of the JSON, what it is, how much.
fn rows(report: &SalvageReport) -> [(&'static str, &'static str, u64); 11] {
    let lost = &report.lost;
    [
        ("files", "files that are whole", report.files),
        ("directories", "directories", report.directories),
        ("others", "symlinks and special files", report.others),
        ("damaged_files", "files that are not whole (in /lost+found)", report.damaged_files),
        ("found", "files and directories without a name (in /lost+found)", report.found.len() as u64),
        ("lost_names", "names of which nothing else is left", report.lost_names.len() as u64),
        ("made_up", "owner, mode and times made up", report.made_up.len() as u64),
        ("lost_frames", "frames of the journal that are lost", lost.frames),
        ("lost_records", "records of the journal that fit nothing", lost.records),
        ("reused_blocks", "blocks whose place holds other data", lost.blocks.values().sum()),
        ("bytes", "bytes of files read", report.bytes),
    ]
}

fn json_of(args: &SalvageArgs, report: &SalvageReport) -> serde_json::Value {
    let paths = |paths: &[Vec<u8>]| paths.iter().map(|path| escape(path)).collect::<Vec<_>>();
    let damaged = report.damaged.iter().map(|file| {
        json!({
            "path": escape(&file.path),
            "now": escape(&file.now),
            "size": file.size,
            "lost_bytes": file.lost_bytes,
            "lost_ranges": file.ranges,
            "may_be_mixed": file.mixed,
            "map_is_partial": file.partial,
        })
    });
    let damaged: Vec<_> = damaged.collect();
    let mut value = json!({
        "version": 1,
        "volume": args.image.display().to_string(),
        "target": args.target.as_ref().map(|target| target.display().to_string()),
        "complete": report.is_complete(),
        "damaged": damaged,
        "found_paths": paths(&report.found),
        "lost_name_paths": paths(&report.lost_names),
        "made_up_paths": paths(&report.made_up),
    });
    for (field, _, count) in rows(report) {
        value[field] = count.into();
    }
    value
}

fn words_of(args: &SalvageArgs, report: &SalvageReport) -> String {
    let mut text = String::new();
    for file in &report.damaged {
        let why = match (file.partial, file.mixed) {
            (true, _) => "parts of its map are lost, ",
            (false, true) => "may have parts of different times, ",
            (false, false) => "",
        };
        let (path, now) = (escape(&file.path), escape(&file.now));
        let _ = writeln!(
            text,
            "  {path}: {why}{} of {} cannot be read; in {now}",
            format_size(file.lost_bytes),
            format_size(file.size)
        );
        for (at, bytes) in &file.ranges {
            let _ = writeln!(text, "    bytes {at} to {}", at + bytes - 1);
        }
    }
    let more = report.damaged_files - report.damaged.len() as u64;
    if more > 0 {
        let _ = writeln!(text, "  and {more} files more that are not whole");
    }
    let lists: [(&str, &[Vec<u8>]); 3] = [
        ("no name led to it", &report.found),
        ("only the name is left", &report.lost_names),
        ("owner, mode and times are made up", &report.made_up),
    ];
    for (what, paths) in lists {
        paths.iter().for_each(|path| _ = writeln!(text, "  {}: {what}", escape(path)));
    }
    let name = match &args.target {
        Some(target) => target.display().to_string(),
        None => format!("{} (only looked at)", args.image.display()),
    };
    let state = match report.is_complete() {
        true => "everything was there".to_string(),
        false => format!("not everything could be salvaged; {}", missing(&report.lost)),
    };
    let _ = writeln!(text, "{name}: {state}");
    for (_, what, count) in
        rows(report).into_iter().filter(|(field, _, count)| *count > 0 || *field == "files")
    {
        let _ = writeln!(text, "  {count:>12}  {what}");
    }
    text
}
