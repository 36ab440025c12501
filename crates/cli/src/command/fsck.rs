//! `weft fsck`: the offline check, with its progress, its findings and its exit status.

use crate::args::MemoryArgs;
use crate::error::CliError;
use crate::host::{served_or, wait_until_closed};
use crate::kind::Kind;
use crate::progress;
use crate::say::{json_line, print};
use clap::Args;
use serde_json::json;
use std::fmt::Display;
use std::path::PathBuf;
use weft_core::units::format_size;
use weft_core::{BLOCK_BYTES, ZoneId};
use weft_lfs::fsck::{FsckReport, Problem, check};
use weft_tagfs::{CheckReport, TagFs};
use weft_volume::Device;
use weft_volume::device::CACHE_BYTES_DEFAULT;
use weft_volume::spec::Place;

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
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// The volume: an image file, a zoned block device, zonefs:DIR, or policy:IMAGE#GRANT or function:IMAGE#GRANT.
    pub image: PathBuf,
}

/// Checks a volume.
pub fn run(args: &FsckArgs) -> Result<(), CliError> {
    let image = args.image.display().to_string();
    wait_until_closed(&args.image);
    let place = Place::of(&args.image);
    args.memory.apply(&place.path)?;
    if weft_volume::is_tag_store(&place) {
        return check_tag_store(args, &place, &image);
    }
    let device = Device::look(place.whole()?, CACHE_BYTES_DEFAULT)
        .map_err(|e| served_or(&args.image, 2, e, |e| CliError::uncheckable(&image, Kind::Volume, e)))?;
    let written =
        |zone| device.report(ZoneId(zone)).map_or(0, |r| u64::from(r.write_pointer) * BLOCK_BYTES as u64);
    let bar = progress::bytes("check", (0..device.info().zones).map(written).sum(), args.quiet || args.json);
    let begun = device.counters().read_bytes;
    let asked = || device.counters().read_bytes - begun;
    let report = progress::watched(&bar, asked, || check(device.zoned()));
    let mut report = report.map_err(|e| CliError::uncheckable(&image, Kind::Volume, e))?;
    if let Some(what) = device.cut_short() {
        report.problems.push(Problem { zone: None, block: None, ino: None, what });
    }
    let text = if args.json { json_line(&as_json(&image, &report))? } else { in_words(&image, &report) };
    print(&text).map_err(|error| error.with_status(2))?;
    let Some(problems) = problems(report.problems.len() as u64 + report.more_problems) else { return Ok(()) };
    Err(CliError::said(
        format!("{image}: {problems} found"),
        format!(
            "'weft salvage {image} NEW' copies all readable files to a new volume and lists the rest; reads of \
             damaged blocks fail with EIO"
        ),
    ))
}

/// Checks a volume on a tag store.
fn check_tag_store(args: &FsckArgs, place: &Place, image: &str) -> Result<(), CliError> {
    let uncheckable = |error: &dyn Display| CliError::uncheckable(image, Kind::Volume, error);
    let medium = weft_volume::tag_medium(place, true)
        .map_err(|error| served_or(&args.image, 2, error, |error| uncheckable(&error)))?;
    let report = TagFs::check(medium).map_err(|error| uncheckable(&error))?;
    let text = match args.json {
        true => json_line(&json!({
            "volume": image,
            "clean": report.is_clean(),
            "commits_replayed": report.replayed,
            "files": report.files,
            "directories": report.directories,
            "others": report.others,
            "nameless": report.nameless,
            "data_bytes": report.blocks * BLOCK_BYTES as u64,
            "nodes": report.nodes,
            "edges": report.edges,
            "problems": report.problems,
            "problems_not_listed": report.more_problems,
        }))?,
        false => tag_store_in_words(image, &report),
    };
    print(&text).map_err(|error| error.with_status(2))?;
    let Some(problems) = problems(report.problems.len() as u64 + report.more_problems) else { return Ok(()) };
    Err(CliError::said(
        format!("{image}: {problems} found"),
        format!(
            "'weft tags salvage {image} NEW' copies all readable nodes to a new store; restore files from a backup"
        ),
    ))
}

fn tag_store_in_words(image: &str, report: &CheckReport) -> String {
    let closed = match report.replayed {
        0 => "closed cleanly".to_string(),
        commits => format!("not closed: {commits} commits of the journal replayed"),
    };
    let mut text = format!(
        "{image}: {closed}\n{} files, {} directories, {} others, {} without a name; {} of data; {} nodes and {} edges checked\n",
        report.files,
        report.directories,
        report.others,
        report.nameless,
        format_size(report.blocks * BLOCK_BYTES as u64),
        report.nodes,
        report.edges
    );
    for problem in &report.problems {
        text.push_str(&format!("  {problem}\n"));
    }
    if report.more_problems > 0 {
        text.push_str(&format!("  and {} more\n", report.more_problems));
    }
    if report.is_clean() {
        text.push_str("no problems\n");
    }
    text
}

/// How many problems were found, when some were.
pub fn problems(count: u64) -> Option<String> {
    (count > 0).then(|| format!("{count} problem{}", if count == 1 { "" } else { "s" }))
}

fn as_json(image: &str, report: &FsckReport) -> serde_json::Value {
    let problems = report.problems.iter().map(|p| {
        json!({
            "zone": p.zone,
            "block": p.block,
            "inode": p.ino,
            "what": p.what,
        })
    });
    json!({
        "volume": image,
        "clean": report.is_clean(),
        "closed": report.closed,
        "files": report.files,
        "directories": report.directories,
        "others": report.others,
        "data_zones": report.data_zones,
        "metadata_zones": report.meta_zones,
        "bytes_checked": report.blocks_checked * BLOCK_BYTES as u64,
        "journal_entries": report.entries,
        "journal_entries_dropped": report.entries_dropped,
        "problems": problems.collect::<Vec<_>>(),
        "problems_not_listed": report.more_problems,
    })
}

fn in_words(image: &str, report: &FsckReport) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let closed = if report.closed {
        "closed cleanly".to_string()
    } else {
        let (all, dropped) = (report.entries, report.entries_dropped);
        format!("not closed: {all} journal entries replayed, {dropped} left unfinished by the end of power")
    };
    let _ = writeln!(text, "{image}: {closed}");
    let _ = writeln!(
        text,
        "{} files, {} directories, {} others; {} of data in {} zones checked, {} zones of metadata",
        report.files,
        report.directories,
        report.others,
        format_size(report.blocks_checked * BLOCK_BYTES as u64),
        report.data_zones,
        report.meta_zones
    );
    for problem in &report.problems {
        let _ = writeln!(text, "  {problem}");
    }
    if report.more_problems > 0 {
        let _ = writeln!(text, "  and {} more", report.more_problems);
    }
    if report.is_clean() {
        text.push_str("no problems\n");
    }
    text
}
