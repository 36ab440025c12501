//! `weft tags owner`: shows the owners of the blocks of a store's file, and the blocks of an s-node.

use super::store::{StoreArgs, open};
use crate::error::CliError;
use crate::say::{self, unwritten};
use clap::Args;
use serde_json::json;
use std::io::Write;
use weft_tags::{BlockUse, Owners, PageUse, SnodeId};

/// `weft tags owner`
#[derive(Args, Debug)]
#[command(
    after_help = "A block is 4096 bytes of the file, at an offset that is a multiple of 4096. When the store no \
    longer needs the content of a block, the use of the block becomes 'given-up'. The next checkpoint makes the block \
    free. This checkpoint also overwrites the given-up blocks of s-nodes that have secure deletion. A free block \
    still holds its old bytes, or zeros when the store has overwritten the block.\n\n\
    EXAMPLES\n  weft tags owner app.tags 20481\n  weft tags owner --snode s7 app.tags\n  weft tags owner --json app.tags | jq -c 'select(.use == \"free\")'"
)]
pub struct OwnerArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Show only the blocks of this s-node, such as s7.
    #[arg(long, value_name = "SNODE", conflicts_with = "blocks", value_parser = super::snode::parse_snode)]
    snode: Option<SnodeId>,
    /// Numbers of the blocks [default: all]
    #[arg(value_name = "BLOCK")]
    blocks: Vec<u64>,
    /// Print a line of JSON for each block.
    #[arg(long)]
    json: bool,
}

/// Says whose blocks are.
pub fn run(args: &OwnerArgs) -> Result<(), CliError> {
    let path = &args.store.path;
    let store = open(&args.store)?;
    let mut owners = store.owners();
    let blocks: Vec<u64> = match args.snode {
        Some(snode) => {
            let mut pages = owners.pages_of(snode).map_err(|e| args.store.fail(e))?;
            pages.sort_unstable_by_key(|(_, block)| *block);
            pages.into_iter().map(|(_, block)| block).filter(|block| *block > 0).collect()
        }
        None if args.blocks.is_empty() => (0..owners.blocks().len() as u64).collect(),
        None => args.blocks.clone(),
    };
    let mut out = say::out();
    if !args.json {
        writeln!(out, "{:>10}  {:>10}  {:<8}  {:<12}  nodes", "block", "page", "use", "s-nodes")
            .map_err(unwritten)?;
    }
    for block in blocks {
        let Some(of) = owners.block(block) else {
            let last = owners.blocks().len().saturating_sub(1);
            let what = format!("{}: there is no block {block}", path.display());
            return Err(CliError::said(what, format!("give numbers from 0 to {last}")));
        };
        let (name, page, snodes, nodes) = tell(&mut owners, of).map_err(|e| args.store.fail(e))?;
        let written = if args.json {
            let snodes: Vec<u64> = snodes.iter().map(|snode| snode.0).collect();
            let line = json!({"block": block, "use": name, "page": page, "snodes": snodes, "nodes": nodes});
            writeln!(out, "{line}")
        } else {
            let page = page.map(|page| page.to_string()).unwrap_or_default();
            let snodes: Vec<String> = snodes.iter().map(SnodeId::to_string).collect();
            let line =
                format!("{block:>10}  {page:>10}  {name:<8}  {:<12}  {}", snodes.join(" "), nodes.join(" "));
            writeln!(out, "{}", line.trim_end())
        };
        written.map_err(unwritten)?;
    }
    out.flush().map_err(unwritten)
}

/// The use of a block, its page, and the s-nodes and nodes that have it.
type BlockOwner = (&'static str, Option<u32>, Vec<SnodeId>, Vec<String>);

fn tell(owners: &mut Owners<'_>, of: BlockUse) -> weft_tags::Result<BlockOwner> {
    Ok(match of {
        BlockUse::Store => ("store", None, vec![], vec![]),
        BlockUse::Free => ("free", None, vec![], vec![]),
        BlockUse::GivenUp(snode) => ("given-up", None, snode.into_iter().collect(), vec![]),
        BlockUse::Page(page) => match owners.page(page)? {
            PageUse::Free => ("free", Some(page), vec![], vec![]),
            PageUse::Edges(snode) => ("edges", Some(page), vec![snode], vec![]),
            PageUse::Nodes(nodes) => {
                let mut snodes: Vec<SnodeId> = nodes.iter().filter_map(|(_, snode)| *snode).collect();
                snodes.sort_unstable();
                snodes.dedup();
                ("nodes", Some(page), snodes, nodes.iter().map(|(node, _)| node.to_string()).collect())
            }
        },
    })
}
