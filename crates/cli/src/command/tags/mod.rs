//! `weft tags`: makes, measures, checks, lists and draws tag stores in files.

mod backup;
mod dump;
mod owner;
mod salvage;
mod scan;
mod serve;
mod shrink;
mod snode;
pub mod store;

pub use store::{StoreArgs, failed, open};

use crate::byte_text::escape;
use crate::command::fsck::problems;
use crate::error::CliError;
use crate::kind::Kind;
use crate::progress;
use crate::say::{self, json_line, print};
use crate::table::Table;
use clap::{Args, Subcommand};
use serde_json::json;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use weft_core::units::{format_size, parse_size};
use weft_flash_pages::CreateRequest;
use weft_tags::{CheckReport, ClassReport, Error, InfoForm, Kv, NodeId, Options, PAGE_BYTES, SnodeId, Store};

/// `weft tags`
#[derive(Subcommand, Debug)]
#[command(after_help = "EXAMPLES\n  weft tags create app.tags\n  weft tags stat app.tags\n  \
    weft tags check app.tags\n  weft tags dump --from s1:0x2010 --depth 2 --dot app.tags | dot -Tsvg > app.svg\n\nA \
    tag store keeps a graph of records in a file or on a block device, and survives crashes. Nodes contain the data. \
    Edges lead from node to node; each edge has a type. S-nodes are groups of nodes with an owner, permissions and a \
    data class. docs/tags.md describes tag stores.")]
pub enum TagsCommand {
    /// Make an empty tag store.
    Create(CreateArgs),
    /// Show the size and the content of a store.
    Stat(StatArgs),
    /// Check every page and edge of a store, and its counts of edges.
    Check(CheckArgs),
    /// Copy a store, and verify every page.
    Backup(backup::BackupArgs),
    /// Copy all readable data of a damaged store to a new one.
    Salvage(salvage::SalvageArgs),
    /// Return free space of a store to the file system.
    Shrink(shrink::ShrinkArgs),
    /// Print nodes and the edges between them, as text or as a graph.
    Dump(dump::DumpArgs),
    /// List all nodes.
    Scan(scan::ScanArgs),
    /// List s-nodes (groups of nodes), make an s-node, or change the owner, mode or flags of an s-node.
    Snode(snode::SnodeArgs),
    /// Show which nodes and s-nodes own the blocks of a store's file.
    Owner(owner::OwnerArgs),
    /// Serve a store to other processes on a Unix socket.
    Serve(serve::ServeArgs),
}

/// `weft tags create`
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Size of the journal. A larger journal means fewer checkpoints, and a longer recovery after a crash.
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "64M")]
    journal: u64,
    /// Overwrite an existing file or a block device. All data in the file or on the device is lost.
    #[arg(long)]
    force: bool,
    /// On flash: the size of the store's grant [default: all flash that no grant has].
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,
    /// On flash: over-provisioning in percent, flash on top of the size of the grant [default: 7].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=1000))]
    op: Option<u32>,
    /// The file to make; or policy:IMAGE#GRANT or function:IMAGE#GRANT to make a store on modelled flash, at this level of
    /// the grant (without #GRANT, the grant 'tags'). 'weft flash create --preset bbssd IMAGE' makes the device.
    store: PathBuf,
}

/// `weft tags stat`
#[derive(Args, Debug)]
pub struct StatArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `weft tags check`
#[derive(Args, Debug)]
#[command(after_help = "EXIT STATUS\n  0 the store is sound, 1 it has problems, 2 it cannot be checked")]
pub struct CheckArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print errors only.
    #[arg(short, long)]
    quiet: bool,
}

/// Does what is said.
pub fn run(command: &TagsCommand) -> Result<(), CliError> {
    match command {
        TagsCommand::Create(args) => create(args),
        TagsCommand::Stat(args) => stat(args),
        TagsCommand::Check(args) => check(args),
        TagsCommand::Backup(args) => backup::run(args),
        TagsCommand::Salvage(args) => salvage::run(args),
        TagsCommand::Shrink(args) => shrink::run(args),
        TagsCommand::Dump(args) => dump::run(args),
        TagsCommand::Scan(args) => scan::run(args),
        TagsCommand::Snode(args) => snode::run(args),
        TagsCommand::Owner(args) => owner::run(args),
        TagsCommand::Serve(args) => serve::run(args),
    }
}

fn create(args: &CreateArgs) -> Result<(), CliError> {
    let options = Options { journal_bytes: args.journal, ..Options::default() };
    let made = match store::on_flash(&args.store) {
        Some(spec) => {
            let request = CreateRequest {
                bytes: args.size.unwrap_or(0),
                over_provisioning_permille: args.op.map_or(store::OP_PERMILLE, |percent| percent * 10),
                force: args.force,
            };
            store::create_on_flash(&spec, &args.store, &options, &request)
        }
        None if args.size.is_some() || args.op.is_some() => {
            let what = "--size and --op are for a store on flash";
            return Err(CliError::of(
                &args.store,
                what,
                "leave them out, or name policy:IMAGE or function:IMAGE",
            ));
        }
        None => {
            CliError::unless_forced(&args.store, args.store.exists(), args.force)?;
            store::create(&args.store, &options, args.force)
        }
    };
    let made = made.map_err(|error| match error {
        CliError::Tags { source: Error::Io { ref source, .. }, .. }
            if source.kind() == io::ErrorKind::StorageFull =>
        {
            let size = format_size(args.journal);
            let remedy = format!("give a --journal smaller than {size}, or use a place with more room");
            CliError::said(error.to_string(), remedy)
        }
        error => error,
    });
    made?.close().map_err(|e| failed(&args.store, e))
}

fn stat(args: &StatArgs) -> Result<(), CliError> {
    let store = open(&args.store)?;
    let described = |snode| Ok((snode, store.root(snode)?, Kv::names(&store, snode)?));
    let snodes = store.snodes().and_then(|snodes| snodes.into_iter().map(described).collect());
    let text = stat_text(args, &store, snodes.map_err(|e| args.store.fail(e))?)?;
    store.close().map_err(|e| args.store.fail(e))?;
    print(&text)
}

fn form_name(form: InfoForm) -> &'static str {
    match form {
        InfoForm::Number => "number",
        InfoForm::Key => "key",
    }
}

fn cache_table(cache: &[ClassReport]) -> Table {
    let mut table = Table::new("cached class< pages> hits> misses> hit ratio> evictions>");
    for of in cache {
        let ratio = of.hit_ratio().map_or("-".into(), |ratio| format!("{:.1} %", ratio * 100.0));
        let ClassReport { class, resident, hits, misses, evictions } = of;
        table.cells(&[class, resident, hits, misses, &ratio, evictions]);
    }
    table
}

/// An s-node, its root and the names of its key-value stores.
type Snode = (SnodeId, NodeId, Vec<String>);

fn stat_text(args: &StatArgs, store: &Store, snodes: Vec<Snode>) -> Result<String, CliError> {
    let (report, types) = (store.report(), store.edge_types());
    let page_bytes = PAGE_BYTES as u64;
    let cache = store.cache_report();
    if args.json {
        return json_line(&json!({
            "version": 1,
            "store": args.store.path.display().to_string(),
            "file_bytes": report.medium_bytes,
            "free_bytes": report.free_bytes,
            "node_bytes": report.data_pages * page_bytes,
            "edge_bytes": report.table_pages * page_bytes,
            "journal_bytes": report.journal_bytes,
            "last_commit": report.last_commit,
            "replayed_commits": report.recovered_commits,
            "cache": cache.iter().map(|of| json!({
                "class": of.class.to_string(), "pages": of.resident, "hits": of.hits, "misses": of.misses,
                "hit_ratio": of.hit_ratio(), "evictions": of.evictions,
            })).collect::<Vec<_>>(),
            "edge_types": types.iter().map(|t| json!({"name": t.name, "info": form_name(t.form)})).collect::<Vec<_>>(),
            "snodes": snodes.iter().map(|(snode, root, kv)| json!({
                "snode": snode.0, "root": root.to_string(), "kv": kv,
            })).collect::<Vec<_>>(),
        }));
    }
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: {}, {} free; {} of nodes, {} of edges",
        args.store.path.display(),
        format_size(report.medium_bytes),
        format_size(report.free_bytes),
        format_size(report.data_pages * page_bytes),
        format_size(report.table_pages * page_bytes),
    );
    let replayed = match report.recovered_commits {
        0 => "closed cleanly".to_string(),
        n => format!("was not closed cleanly: {n} commits replayed"),
    };
    let _ = writeln!(text, "commit {}, {replayed}\n", report.last_commit);
    let mut table = Table::new("s-node< root< key-value stores<");
    for (snode, root, kv) in snodes {
        table.cells(&[&snode, &root, &escape(kv.join(", ").as_bytes())]);
    }
    let _ = write!(text, "{table}");
    if !types.is_empty() {
        let mut table = Table::new("edge type< carries<");
        for known in types {
            table.cells(&[&escape(known.name.as_bytes()), &form_name(known.form)]);
        }
        let _ = write!(text, "\n{table}");
    }
    let _ = write!(text, "\n{}", cache_table(&cache));
    Ok(text)
}

fn check(args: &CheckArgs) -> Result<(), CliError> {
    let path = &args.store.path;
    let name = path.display().to_string();
    let store = open(&args.store).map_err(|e| CliError::uncheckable(&name, Kind::TagStore, e))?;
    let begun = store.report();
    let total = (begun.data_pages + begun.table_pages) * PAGE_BYTES as u64;
    let bar = progress::bytes("check", total, args.quiet || args.json);
    let asked = || (store.report().page_reads - begun.page_reads) * PAGE_BYTES as u64;
    let report = progress::watched(&bar, asked, || store.check());
    let report = report.map_err(|e| CliError::uncheckable(&name, Kind::TagStore, e))?;
    let as_json = || {
        json!({
            "version": 1,
            "store": name,
            "clean": report.problems.is_empty() && report.mended.is_none(),
            "nodes": report.nodes,
            "edges": report.edges,
            "replayed_commits": store.report().recovered_commits,
            "mended": report.mended,
            "problems": report.problems,
        })
    };
    say::report(args.json, args.quiet, as_json, || check_words(&name, &report))?;
    let Some(problems) = problems(report.problems.len() as u64) else {
        return report.mended.map_or(Ok(()), |mended| {
            Err(CliError::said(
                format!("{name}: {mended}"),
                "a power cut can leave that; without one, look for errors of the disk, and make a backup",
            ))
        });
    };
    // One copy of what is kept twice.
    let is_whole = report.problems.iter().all(|problem| problem.starts_with("copy "));
    Err(CliError::said(
        format!("{name}: {problems} found"),
        if is_whole {
            "nothing is lost yet; make a backup ('weft tags backup STORE TARGET'), and look for errors of the disk"
        } else {
            "restore the store from a backup, or copy its readable data to a new one ('weft tags salvage STORE NEW')"
        },
    ))
}

fn check_words(name: &str, report: &CheckReport) -> String {
    let mut text = format!("{name}: {} nodes and {} edges checked\n", report.nodes, report.edges);
    if let Some(mended) = &report.mended {
        let _ = writeln!(text, "  {mended}");
    }
    for problem in &report.problems {
        let _ = writeln!(text, "  {problem}");
    }
    if report.problems.is_empty() {
        text.push_str(if report.mended.is_some() { "no other problems\n" } else { "no problems\n" });
    }
    text
}
