//! `weft tags backup`: copies a store and verifies every page.

use super::store::{StoreArgs, failed, make_file, make_whole, need_file, open_file, open_to_copy};
use crate::error::CliError;
use crate::progress;
use crate::say;
use clap::Args;
use serde_json::json;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use weft_core::units::format_size;
use weft_tags::{BackupReport, Error, FileStore, Store};

/// `weft tags backup`
#[derive(Args, Debug)]
#[command(
    after_help = "The command verifies the checksum of every page, and copies only blocks in use. The copy is a complete \
    store. The command writes the copy to TARGET.weft-part, and renames this file to TARGET when the copy is complete \
    and durable. Until then, an \
    older TARGET stays unchanged. When TARGET.weft-part already is a complete store, the command refuses to start. \
    While a program has the store open, only that program can copy the store, with weft_tags::Store::backup."
)]
pub struct BackupArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Overwrite an existing target.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print errors only.
    #[arg(short, long)]
    quiet: bool,
    /// The file to make.
    target: PathBuf,
}

/// The error for a store that another process has open: this process cannot see data that is not on the medium yet.
fn in_use(error: CliError) -> CliError {
    match error {
        CliError::Tags { source: Error::InUse { path, .. }, .. } => CliError::of(
            &path,
            "another process has the store open, and only that process can copy it",
            "copy it from that program (weft_tags::Store::backup), or end the program (SIGTERM ends 'weft tags serve') and \
            try again",
        ),
        error => error,
    }
}

/// Copies a store to a medium of this name.
fn copy(
    args: &BackupArgs,
    store: &Store,
    path: &Path,
    medium: impl FnOnce(&Path) -> Result<FileStore, CliError>,
) -> Result<BackupReport, CliError> {
    let medium = medium(path)?;
    let done = progress::shown("backup", args.quiet || args.json, |tell| store.backup(&medium, tell));
    done.map_err(|error| match error {
        Error::Target(error) => match *error {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                CliError::no_room(&args.target, source, 1)
            }
            error => failed(&args.target, error),
        },
        error => args.store.fail(error),
    })
}

/// Copies a store to a file beside the target, which takes the target's name when it is whole.
fn replace(
    args: &BackupArgs,
    store: &Store,
    permissions: Option<fs::Permissions>,
) -> Result<BackupReport, CliError> {
    // What a link leads to is replaced, not the link; nobody has it open meanwhile.
    let (target, _old) = if permissions.is_some() {
        let target = fs::canonicalize(&args.target).map_err(|e| CliError::io("find", &args.target, e))?;
        let old = open_file(&target)?;
        (target, Some(old))
    } else {
        (args.target.clone(), None)
    };
    make_whole(&target, |part| {
        let report = copy(args, store, part, make_file)?;
        if let Some(permissions) = permissions {
            fs::set_permissions(part, permissions).map_err(|e| CliError::io("set the mode of", part, e))?;
        }
        Ok(report)
    })
}

/// Copies a store.
pub fn run(args: &BackupArgs) -> Result<(), CliError> {
    need_file(&args.target, "the copy")?;
    let there = fs::metadata(&args.target).ok();
    CliError::unless_forced(&args.target, there.is_some(), args.force)?;
    // A device may have several nodes.
    let file_of = |meta: &fs::Metadata| match meta.rdev() {
        device if meta.file_type().is_block_device() => (0, device),
        _ => (meta.dev(), meta.ino()),
    };
    if there.is_some()
        && there.as_ref().map(file_of) == fs::metadata(&args.store.path).ok().as_ref().map(file_of)
    {
        return Err(CliError::said(
            format!("{} and {} are the same file", args.store.path.display(), args.target.display()),
            "name another file for the copy",
        ));
    }
    let store = open_to_copy(&args.store).map_err(in_use)?;
    let report = match there {
        // A device cannot be replaced.
        Some(meta) if !meta.is_file() => copy(args, &store, &args.target, open_file)?,
        there => replace(args, &store, there.map(|meta| meta.permissions()))?,
    };
    let BackupReport { bytes, last_commit } = report;
    let as_json = || json!({ "bytes": bytes, "last_commit": last_commit });
    let target = args.target.display();
    let words = || format!("{target}: {} copied, up to commit {last_commit}\n", format_size(bytes));
    say::report(args.json, args.quiet, as_json, words)
}
