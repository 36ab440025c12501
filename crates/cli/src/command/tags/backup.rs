//! `weft tags backup`: copies a store and verifies every page.

use super::{StoreArgs, failed, open, write_out};
use crate::command::stats::json_line;
use crate::error::CliError;
use crate::progress;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use weft_core::units::format_size;
use weft_tags::{FileStore, ReadPath};

/// `weft tags backup`
#[derive(Args, Debug)]
#[command(
    after_help = "The command verifies the checksum of every page, and copies only blocks in use. The copy is a complete \
    store. A program that has the store open copies it online with weft_tags::Store::backup."
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
        CliError::Tags { source: weft_tags::Error::InUse { path }, .. } => CliError::said(
            format!(
                "{}: another process has the store open, and only that process can copy it",
                path.display()
            ),
            "copy it from that program (weft_tags::Store::backup), or end the program (SIGTERM ends 'weft tags serve') and \
            try again",
        ),
        error => error,
    }
}

/// Copies a store.
pub fn run(args: &BackupArgs) -> Result<(), CliError> {
    if args.target.exists() && !args.force {
        return Err(CliError::WouldOverwrite { path: args.target.clone() });
    }
    let store = open(&args.store).map_err(in_use)?;
    let target = if args.target.exists() {
        FileStore::open(&args.target, ReadPath::Kernel)
    } else {
        FileStore::create(&args.target, ReadPath::Kernel)
    };
    let target = target.map_err(|e| failed(&args.target, e))?;
    let bar = progress::bytes("backup", 0, args.quiet || args.json);
    let done = store.backup(&target, |copied, total| {
        bar.set_length(total);
        bar.set_position(copied);
    });
    bar.finish_and_clear();
    let report = done.map_err(|e| failed(&args.store.path, e))?;
    if args.json {
        return write_out(&json_line(&json!({ "bytes": report.bytes, "last_commit": report.last_commit }))?);
    }
    let text = format!(
        "{}: {} copied, up to commit {}\n",
        args.target.display(),
        format_size(report.bytes),
        report.last_commit
    );
    if args.quiet { Ok(()) } else { write_out(&text) }
}
