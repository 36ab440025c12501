//! `weft tags shrink`: returns the free space of a store to the file system.

use super::store::{StoreArgs, open};
use crate::error::CliError;
use crate::progress;
use crate::say;
use clap::Args;
use serde_json::json;
use std::path::Path;
use weft_core::units::format_size;
use weft_tags::{PAGE_BYTES, ShrinkReport};

/// `weft tags shrink`
#[derive(Args, Debug)]
#[command(
    after_help = "The command merges sparse pages of edge tables, moves pages from the end of the file to free blocks before \
    them, and makes the file shorter. On a block device, the command discards the free blocks at the end instead. Ids \
    do not change. The command does not free a page that holds a few small nodes; new nodes fill such a page. You can \
    interrupt the command at any time without loss of data. While a program has the store open, that program can \
    shrink the store with weft_tags::Store::shrink.\n\n\
    EXAMPLES\n  weft tags shrink app.tags\n  weft tags shrink --json app.tags | jq .bytes_after"
)]
pub struct ShrinkArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print errors only.
    #[arg(short, long)]
    quiet: bool,
}

/// Makes a store smaller.
pub fn run(args: &ShrinkArgs) -> Result<(), CliError> {
    let path = &args.store.path;
    let store = open(&args.store)?;
    let done = progress::shown("shrink", args.quiet || args.json, |tell| store.shrink(tell));
    let report = done.map_err(|e| args.store.fail(e))?;
    store.close().map_err(|e| args.store.fail(e))?;
    let as_json = || {
        json!({
            "version": 1,
            "store": path.display().to_string(),
            "bytes_before": report.bytes_before,
            "bytes_after": report.bytes_after,
            "free_bytes": report.free_bytes,
            "pages_moved": report.pages_moved,
            "tables_merged": report.tables_merged,
            "slab_free_bytes": report.slab_free_bytes,
        })
    };
    say::report(args.json, args.quiet, as_json, || words(path, &report))
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
