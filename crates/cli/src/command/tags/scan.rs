//! `weft tags scan`: every node of a store, in the order of their places.

use super::store::{StoreArgs, open};
use crate::error::CliError;
use crate::say::{self, unwritten};
use clap::Args;
use serde_json::json;
use std::io::Write;

/// `weft tags scan`
#[derive(Args, Debug)]
pub struct ScanArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// List only nodes of this type, such as 7 or 0x6b760001
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    kind: Option<u32>,
    /// List at most N nodes.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print a line of JSON for each node.
    #[arg(long)]
    json: bool,
}

fn parse_type(text: &str) -> Result<u32, String> {
    let number = super::dump::number(text).and_then(|number| number.try_into().ok());
    number.ok_or_else(|| "write a type as a number, such as 7 or 0x6b760001".to_string())
}

/// Lists nodes.
pub fn run(args: &ScanArgs) -> Result<(), CliError> {
    let store = open(&args.store)?;
    let mut out = say::out();
    if !args.json {
        writeln!(out, "{:<20} {:>10} {:>10} {:>8} {:>8}", "node", "type", "bytes", "in", "out")
            .map_err(unwritten)?;
    }
    let mut left = args.limit.unwrap_or(u64::MAX);
    store.each_node(|node| {
        if left == 0 {
            return Ok(false);
        }
        let view = store.view(node, 0).map_err(|e| args.store.fail(e))?;
        if args.kind.is_some_and(|kind| kind != view.kind.0) {
            return Ok(true);
        }
        left -= 1;
        let written = if args.json {
            let line = json!({
                "node": node.to_string(), "type": view.kind.0, "bytes": view.bytes,
                "in_edges": view.in_edges, "out_edges": view.out_edges,
            });
            writeln!(out, "{line}")
        } else {
            let kind = format!("{:#x}", view.kind.0);
            let (node, bytes) = (node.to_string(), view.bytes);
            writeln!(out, "{node:<20} {kind:>10} {bytes:>10} {:>8} {:>8}", view.in_edges, view.out_edges)
        };
        written.map_err(unwritten)?;
        Ok::<_, CliError>(true)
    })?;
    out.flush().map_err(unwritten)
}
