//! `weft tags shrink`: a store that has held more is made smaller.

use super::{StoreArgs, failed, open, write_out};
use crate::command::stats::json_line;
use crate::error::CliError;
use crate::progress;
use clap::Args;
use serde_json::json;
use std::path::Path;
use weft_core::units::format_size;
use weft_tags::{PAGE_BYTES, ShrinkReport};

/// `weft tags shrink`
#[derive(Args, Debug)]
#[command(
    after_help = "Pages of edge tables that deletions have emptied are merged, pages at the end of the file go to free blocks \
    before, and the end is given back. Ids do not change; a page with few small nodes in it stays, and is filled with new ones. A \
    block device stays as long as it is, and is told what is not needed any more. If the command is ended in its midst, all \
    that the store held is there. A program shrinks the store that it has open, while it goes on, by weft_tags::Store::shrink.\n\n\
    EXAMPLES\n  weft tags shrink app.tags\n  weft tags shrink --json app.tags | jq .bytes_after"
)]
pub struct ShrinkArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Say nothing but errors.
    #[arg(short, long)]
    quiet: bool,
}

/// Makes a store smaller.
pub fn run(args: &ShrinkArgs) -> Result<(), CliError> {
    let path = &args.store.path;
    let store = open(&args.store)?;
    let bar = progress::bytes("shrink", 0, args.quiet || args.json);
    let done = store.shrink(|moved, all| {
        bar.set_length(all);
        bar.set_position(moved);
    });
    bar.finish_and_clear();
    let report = done.map_err(|e| failed(path, e))?;
    store.close().map_err(|e| failed(path, e))?;
    if args.json {
        return write_out(&json_line(&json!({
            "version": 1,
            "store": path.display().to_string(),
            "bytes_before": report.bytes_before,
            "bytes_after": report.bytes_after,
            "free_bytes": report.free_bytes,
            "pages_moved": report.pages_moved,
            "tables_merged": report.tables_merged,
            "slab_free_bytes": report.slab_free_bytes,
        }))?);
    }
    if args.quiet { Ok(()) } else { write_out(&words(path, &report)) }
}

fn words(path: &Path, report: &ShrinkReport) -> String {
    let [before, after, moved, free] = [
        report.bytes_before,
        report.bytes_after,
        report.pages_moved * PAGE_BYTES as u64,
        report.slab_free_bytes,
    ]
    .map(format_size);
    format!(
        "{}: {before} before, {after} now; {moved} moved, {} pages of edges merged\n\
         {free} without nodes in pages that have some\n",
        path.display(),
        report.tables_merged
    )
}
