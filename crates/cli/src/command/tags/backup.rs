//! `weft tags backup`: a copy of a store, checked on the way.

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
    after_help = "Every page is compared with its checksum. What is copied is a store that can be opened; only blocks in \
    use are copied. A program copies the store that it has open, while it goes on, by weft_tags::Store::backup."
)]
pub struct BackupArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Overwrite the target when it exists.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Say nothing but errors.
    #[arg(short, long)]
    quiet: bool,
    /// The file to make.
    target: PathBuf,
}

/// What to do about a store that is open elsewhere: this process cannot see what is not on the medium yet.
fn in_use(error: CliError) -> CliError {
    match error {
        CliError::Tags { source: weft_tags::Error::InUse { path }, .. } => CliError::said(
            format!("{}: open in another process, which alone can copy it now", path.display()),
            "let that program copy it while it goes on (weft_tags::Store::backup), or end it ('weft tags serve' ends with SIGTERM) \
            and try again",
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
