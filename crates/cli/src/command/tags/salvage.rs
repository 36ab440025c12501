//! `weft tags salvage`: copies the readable data of a damaged store to a new one.

use super::store::{StoreArgs, failed, make_file, make_whole, need_file, open_medium};
use crate::error::CliError;
use crate::kind::Kind;
use crate::progress;
use crate::say;
use crate::sys::limit;
use crate::table::Table;
use clap::Args;
use serde_json::json;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use weft_core::units::format_size;
use weft_tags::{SalvageReport, salvage};

/// Exit status of a command that made no new store, or could not say what is in it.
const NO_STORE: u8 = 2;

/// `weft tags salvage`
#[derive(Args, Debug)]
#[command(
    after_help = "The command only reads the damaged store. Nodes keep their ids. The command copies only data with \
    a valid checksum. When no edge leads to a node any more, the command makes an edge of type 'weft.salvage.found', \
    from the root of the node's s-node to the node. The command writes the new store to NEW.weft-part, and renames \
    this file to NEW when the store is complete and durable. When NEW.weft-part already is a complete store, the \
    command refuses to start. The journal of the new store is 256 MiB large; the file system allocates only the used \
    part of the journal.\n\n\
    EXIT STATUS\n  0 nothing is missing, 1 something is missing, 2 nothing can be salvaged, or no new store was made"
)]
pub struct SalvageArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print errors only.
    #[arg(short, long)]
    quiet: bool,
    /// The file to make.
    #[arg(value_name = "NEW")]
    target: PathBuf,
}

/// Salvages a store.
pub fn run(args: &SalvageArgs) -> Result<(), CliError> {
    let no_store = |error: CliError| match error.system().and_then(limit::cause) {
        Some(limit) if error.remedy().is_none() => CliError::ended(NO_STORE, error.to_string(), limit),
        _ => error.with_status(NO_STORE),
    };
    let report = copy(args).map_err(no_store)?;
    say::report(args.json, args.quiet, || json_of(args, &report), || words_of(args, &report))
        .map_err(no_store)?;
    if report.complete {
        return Ok(());
    }
    Err(CliError::said(
        format!("{}: not everything could be salvaged", args.store.path.display()),
        "compare the new store with a backup, if you have one, before you delete the damaged store",
    ))
}

/// Makes the new store.
fn copy(args: &SalvageArgs) -> Result<SalvageReport, CliError> {
    let name = args.store.path.display().to_string();
    let unsalvageable = |why: weft_tags::Error| CliError::unsalvageable(&name, Kind::TagStore, why);
    need_file(&args.target, "the new store")?;
    CliError::unless_new(&args.target, args.target.symlink_metadata().is_ok())?;
    let source = open_medium(&args.store.path, unsalvageable)?;
    make_whole(&args.target, |part| {
        let target = make_file(part)?;
        let done = progress::shown("salvage", args.quiet || args.json, |tell| {
            salvage(&*source, Box::new(target), &args.store.options(), tell)
        });
        done.map_err(|error| match error {
            weft_tags::Error::Damaged { .. }
            | weft_tags::Error::NotAStore { .. }
            | weft_tags::Error::Version { .. } => unsalvageable(error),
            // What cannot be read of the damaged store is no error.
            weft_tags::Error::Full { what } => CliError::no_room(&args.target, what, NO_STORE),
            weft_tags::Error::Io { ref source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                CliError::no_room(&args.target, source, NO_STORE)
            }
            error => {
                let error = failed(&args.target, error);
                let remedy = error.system().and_then(limit::cause).unwrap_or_default();
                CliError::said(format!("{name}: nothing can be salvaged: {error}"), remedy)
            }
        })
    })
}

/// The lines of the report in their order: field of the JSON, description, count.
fn rows(report: &SalvageReport) -> [(&'static str, &'static str, u64); 15] {
    [
        ("nodes", "nodes copied", report.nodes),
        ("edges", "edges copied", report.edges),
        ("commits_applied", "commits of the journal copied", report.commits_applied),
        ("lost_nodes", "nodes known to be lost", report.lost_nodes),
        ("dropped_edges", "edges dropped, an end of which is lost", report.dropped_edges),
        ("commits_lost", "commits known to be lost", report.commits_lost),
        ("found_edges", "edges found again by keys", report.found_edges),
        ("held_places", "places of lost nodes held (weft.salvage.lost)", report.held_places),
        ("found_nodes", "nodes hung under their root (weft.salvage.found)", report.found_nodes),
        ("made_up_snodes", "roots of s-nodes made up", report.made_up_snodes),
        ("made_up_types", "names of edge types made up", report.made_up_types),
        ("lost_pages", "pages of nodes that cannot be read", report.lost_pages),
        ("lost_table_pages", "pages of edges that cannot be read", report.lost_table_pages),
        ("lost_leaves", "leaves of descriptors that cannot be read", report.lost_leaves),
        ("bytes", "bytes of pages read", report.bytes),
    ]
}

fn json_of(args: &SalvageArgs, report: &SalvageReport) -> serde_json::Value {
    let mut value = json!({
        "version": 1,
        "store": args.store.path.display().to_string(),
        "target": args.target.display().to_string(),
        "complete": report.complete,
        "last_commit": report.last_commit,
        "remarks": report.remarks,
    });
    for (field, _, count) in rows(report) {
        value[field] = count.into();
    }
    value
}

fn words_of(args: &SalvageArgs, report: &SalvageReport) -> String {
    let mut text = String::new();
    for remark in &report.remarks {
        let _ = writeln!(text, "  {remark}");
    }
    let state = if report.complete { "everything was there" } else { "not everything could be salvaged" };
    let _ = writeln!(
        text,
        "{}: {}, up to commit {}; {state}\n",
        args.target.display(),
        format_size(report.bytes),
        report.last_commit
    );
    let mut table = Table::new("what< count>");
    for (field, what, count) in rows(report) {
        // Of what was lost only what was.
        if count > 0 && field != "bytes" || matches!(field, "nodes" | "edges") {
            table.row([what.to_string(), count.to_string()]);
        }
    }
    let _ = write!(text, "{table}");
    text
}
