//! `weft quota`: limits of what directory trees take, where a volume is mounted or a program sees it.

use crate::error::CliError;
use crate::say::{report, say};
use crate::sys::xattr;
use crate::table::Table;
use clap::{Args, Subcommand};
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use weft_core::units::{format_size, parse_size};
use weft_vfs::quota::{Limits, QUOTA_XATTR, USAGE_XATTR, Usage};

/// `weft quota`
#[derive(Subcommand, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft quota set /mnt/alice --bytes 10G --files 100000\n  weft quota show /mnt/*\n  \
    weft run --volume vol.img -- weft quota show /weft/alice\n  weft quota lift /mnt/alice\n\n\
    Quotas are of volumes of the core tagfs. PATH is below a directory on which the volume is mounted, or below /weft \
    in a program that 'weft run' has started."
)]
pub enum QuotaCommand {
    /// Show what directory trees take, and their limits.
    Show(ShowArgs),
    /// Limit what a directory tree may take. The first time, the directory must be empty.
    Set(SetArgs),
    /// Lift the limits of a directory tree.
    Lift(LiftArgs),
}

/// `weft quota show`
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Directories with a quota, or what is below them.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

/// `weft quota set`
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("limits").required(true).multiple(true).args(["bytes", "files"]))]
#[command(after_help = "EXAMPLES\n  weft quota set /mnt/alice --bytes 10G\n\n\
    A limit that is not given is lifted. Limits may be lower than what the tree takes: then nothing can be added.")]
pub struct SetArgs {
    /// The most space of file data, such as 10G; rounded down to blocks of 4 KiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub bytes: Option<u64>,
    /// The most files, directories and other inodes below the directory.
    #[arg(long, value_name = "NUMBER")]
    pub files: Option<u64>,
    /// The directory.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}

/// `weft quota lift`
#[derive(Args, Debug)]
pub struct LiftArgs {
    /// The directory.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}

/// Does it.
pub fn run(command: &QuotaCommand) -> Result<(), CliError> {
    match command {
        QuotaCommand::Show(args) => show(args),
        QuotaCommand::Set(args) => {
            let limits = Limits { bytes: args.bytes, files: args.files };
            set(&args.path, limits)
        }
        QuotaCommand::Lift(args) => lift(&args.path),
    }
}

fn show(args: &ShowArgs) -> Result<(), CliError> {
    let found: Vec<(&Path, Usage)> =
        args.paths.iter().map(|path| Ok((path.as_path(), usage(path)?))).collect::<Result<_, CliError>>()?;
    let as_json = || {
        let quotas = found.iter().map(|(path, usage)| {
            json!({
                "path": path.display().to_string(),
                "bytes": usage.bytes,
                "files": usage.files,
                "bytes_max": usage.limits.bytes,
                "files_max": usage.limits.files,
            })
        });
        quotas.collect::<Vec<_>>()
    };
    let in_words = || {
        let mut table = Table::new("path< space> limit> files> limit>");
        for (path, usage) in &found {
            let bytes_max = usage.limits.bytes.map_or_else(|| "-".to_string(), format_size);
            let files_max = usage.limits.files.map_or_else(|| "-".to_string(), |files| files.to_string());
            table.cells(&[&path.display(), &format_size(usage.bytes), &bytes_max, &usage.files, &files_max]);
        }
        table.to_string()
    };
    report(args.json, false, as_json, in_words)
}

/// What the tree takes that a path is in.
fn usage(path: &Path) -> Result<Usage, CliError> {
    let text = xattr::get(path, USAGE_XATTR).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODATA | libc::EOPNOTSUPP) => CliError::of(
            path,
            "is in no directory tree with a quota",
            "'weft quota set' limits what a directory of a volume of the core tagfs takes",
        ),
        _ => CliError::io("look for the quota of", path, error),
    })?;
    Usage::parse(&text).ok_or_else(|| {
        let text = String::from_utf8_lossy(&text).into_owned();
        CliError::of(
            path,
            format_args!("its use is told as '{text}', which this program does not know"),
            "use a program of the version that has mounted the volume",
        )
    })
}

fn set(path: &Path, limits: Limits) -> Result<(), CliError> {
    xattr::set_of_target(path, QUOTA_XATTR, limits.to_string().as_bytes()).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOTEMPTY) => CliError::of(
                path,
                "the directory is not empty, and a quota counts only what is made after it was set",
                "make a new directory, set its quota, and move the files there with 'mv', which copies them",
            ),
            Some(libc::EINVAL) => CliError::of(
                path,
                "the directory is in the tree of another quota",
                "quotas do not lie within each other: change the limits of the directory that has one, or set the quota elsewhere",
            ),
            Some(libc::ENOTDIR) => {
                CliError::of(path, "is no directory", "a quota belongs to a directory: name one")
            }
            _ => refused("limit", path, error),
        }
    })?;
    // A file system that is not weft's keeps the attribute, and counts nothing.
    if xattr::get(path, USAGE_XATTR).is_err() {
        let _ = xattr::remove(path, QUOTA_XATTR);
        return Err(without_quotas(path));
    }
    say(format_args!("{}: limited to {}", path.display(), in_words(limits)));
    Ok(())
}

fn lift(path: &Path) -> Result<(), CliError> {
    xattr::remove(path, QUOTA_XATTR).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODATA) => {
            CliError::of(path, "has no limits", "'weft quota show' shows those of the tree that a path is in")
        }
        _ => refused("lift the limits of", path, error),
    })?;
    say(format_args!("{}: not limited any more", path.display()));
    Ok(())
}

/// Why limits cannot be changed at all.
fn refused(what: &'static str, path: &Path, error: io::Error) -> CliError {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => without_quotas(path),
        Some(libc::EPERM | libc::EACCES) => {
            CliError::of(path, "only the superuser changes limits", "give the command as root")
        }
        _ => CliError::io(what, path, error),
    }
}

fn without_quotas(path: &Path) -> CliError {
    CliError::of(
        path,
        "is not on a volume that keeps quotas",
        "name a directory of a volume of the core tagfs, where it is mounted ('weft mount') or below /weft in 'weft run'",
    )
}

fn in_words(limits: Limits) -> String {
    let bytes = limits.bytes.map(format_size);
    let files = limits.files.map(|files| format!("{files} files"));
    bytes.into_iter().chain(files).collect::<Vec<_>>().join(" and ")
}
