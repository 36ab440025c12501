//! `weft snapshot`: states of a volume that stay as they are.

use crate::error::CliError;
use crate::host::{served, wait_until_closed};
use crate::say::{report, say};
use crate::sys::time::local;
use crate::table::Table;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use weft_volume::{SnapshotChange, VolumeError};

/// `weft snapshot`
#[derive(Subcommand, Debug)]
#[command(after_help = "EXAMPLES\n  weft snapshot create vol.img before\n  weft snapshot list vol.img\n  \
    weft cp vol.img@before:/db/config .\n  weft mount vol.img@before /mnt\n  weft snapshot delete vol.img before\n\n\
    VOLUME@NAME names a snapshot in all commands that read a volume. Snapshots are of volumes of the core tagfs.")]
pub enum SnapshotCommand {
    /// Make a snapshot of all files as they are now.
    Create(ChangeArgs),
    /// List the snapshots, the oldest first.
    List(ListArgs),
    /// Delete a snapshot. What only the snapshot kept becomes free.
    Delete(ChangeArgs),
}

/// `weft snapshot create`, `weft snapshot delete`
#[derive(Args, Debug)]
pub struct ChangeArgs {
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// The volume, which no process serves or has mounted.
    #[arg(value_name = "VOLUME")]
    pub volume: PathBuf,
    /// The name of the snapshot: up to 255 bytes without '/'.
    pub name: String,
}

/// `weft snapshot list`
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume.
    #[arg(value_name = "VOLUME")]
    pub volume: PathBuf,
}

/// Does it.
pub fn run(command: &SnapshotCommand) -> Result<(), CliError> {
    match command {
        SnapshotCommand::Create(args) => {
            if args.name.is_empty() || args.name.contains('/') {
                return Err(CliError::said(
                    format!("'{}' is no name of a snapshot", args.name),
                    "give a name without '/': VOLUME@NAME is what the snapshot is called",
                ));
            }
            change(args, SnapshotChange::Create(&args.name), "made")
        }
        SnapshotCommand::Delete(args) => change(args, SnapshotChange::Delete(&args.name), "deleted"),
        SnapshotCommand::List(args) => list(args),
    }
}

fn failed(volume: &Path) -> impl Fn(VolumeError) -> CliError {
    move |error| served(volume, error.into())
}

fn change(args: &ChangeArgs, change: SnapshotChange<'_>, done: &str) -> Result<(), CliError> {
    wait_until_closed(&args.volume);
    weft_volume::change_snapshots(&args.volume, change).map_err(failed(&args.volume))?;
    if !args.quiet {
        say(format_args!("{}@{}: {done}", args.volume.display(), args.name));
    }
    Ok(())
}

fn list(args: &ListArgs) -> Result<(), CliError> {
    wait_until_closed(&args.volume);
    let all = weft_volume::snapshots(&args.volume).map_err(failed(&args.volume))?;
    let as_json = || {
        let snapshots = all.iter().map(|found| json!({ "name": found.name, "made_ns": found.made_ns }));
        json!({ "volume": args.volume.display().to_string(), "snapshots": snapshots.collect::<Vec<_>>() })
    };
    let in_words = || {
        let mut table = Table::new("snapshot < made <");
        for found in &all {
            table.cells(&[&found.name, &local(found.made_ns as i64)]);
        }
        if table.is_empty() { "no snapshots\n".to_string() } else { table.to_string() }
    };
    report(args.json, false, as_json, in_words)
}
