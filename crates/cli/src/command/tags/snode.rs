//! `weft tags snode`: lists the s-nodes of a store and their tags, and changes them.

use super::store::{StoreArgs, open};
use crate::args::parse_class;
use crate::error::CliError;
use crate::say::{json_line, print};
use crate::table::Table;
use clap::Args;
use serde_json::json;
use weft_core::{DataClass, TagFlags};
use weft_tags::{SnodeId, SnodeTags, Store};

/// `weft tags snode`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft tags snode app.tags\n  weft tags snode --secure-delete on app.tags s1\n  \
    weft tags snode --new --owner 1000 --mode 0640 app.tags"
)]
pub struct SnodeArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The s-node, such as s1 [default: list all s-nodes]
    #[arg(value_name = "SNODE", value_parser = parse_snode, conflicts_with = "new")]
    snode: Option<SnodeId>,
    /// Make a new s-node.
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    change: Change,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The tags that are to be others.
#[derive(Args, Debug)]
struct Change {
    /// User id of the owner.
    #[arg(long, value_name = "UID")]
    owner: Option<u32>,
    /// Group id of the s-node.
    #[arg(long, value_name = "GID")]
    group: Option<u32>,
    /// Permission bits, like those of a file, such as 0640.
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u16>,
    /// Data class: unknown, metadata, log, immutable, in-place, small or temporary.
    #[arg(long, value_name = "CLASS", value_parser = parse_class)]
    class: Option<DataClass>,
    /// Secure deletion, on or off. With on, the store overwrites deleted data of the s-node.
    #[arg(long, value_name = "ON", value_parser = parse_switch, action = clap::ArgAction::Set)]
    secure_delete: Option<bool>,
}

pub fn parse_snode(text: &str) -> Result<SnodeId, String> {
    let number = text.strip_prefix('s').unwrap_or(text).parse();
    number
        .map(SnodeId)
        .map_err(|_| "expected an s-node such as s1; 'weft tags snode STORE' lists the s-nodes".to_string())
}

fn parse_mode(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text, 8).map_err(|_| "expected a mode in octal digits, such as 0640".to_string())
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".to_string()),
    }
}

impl Change {
    fn is_empty(&self) -> bool {
        let Change { owner, group, mode, class, secure_delete } = self;
        owner.is_none() && group.is_none() && mode.is_none() && class.is_none() && secure_delete.is_none()
    }

    fn apply(&self, tags: &mut SnodeTags) {
        tags.owner = self.owner.unwrap_or(tags.owner);
        tags.group = self.group.unwrap_or(tags.group);
        tags.mode = self.mode.unwrap_or(tags.mode);
        tags.class = self.class.unwrap_or(tags.class);
        if let Some(on) = self.secure_delete {
            tags.flags.set(TagFlags::SECURE_DELETE, on);
        }
    }
}

/// Shows s-nodes, after what is to be changed of one.
pub fn run(args: &SnodeArgs) -> Result<(), CliError> {
    let path = &args.store.path;
    if args.snode.is_none() && !args.new && !args.change.is_empty() {
        let text = format!("{}: the command does not say which s-node to change", path.display());
        return Err(CliError::said(
            text,
            "name the s-node after the store, such as s1, or make one with --new",
        ));
    }
    let store = open(&args.store)?;
    let shown = change(args, &store).and_then(|snode| show(&store, snode));
    let shown = shown.map_err(|e| args.store.fail(e))?;
    store.close().map_err(|e| args.store.fail(e))?;
    print(&if args.json { json_lines(args, &shown)? } else { words(&shown) })
}

/// Makes or changes the s-node, if one is named; which.
fn change(args: &SnodeArgs, store: &Store) -> weft_tags::Result<Option<SnodeId>> {
    if args.snode.is_some() && args.change.is_empty() {
        return Ok(args.snode);
    }
    let mut tx = store.begin();
    let snode = match args.snode {
        Some(snode) => {
            let mut tags = tx.snode_tags(snode)?;
            args.change.apply(&mut tags);
            tx.set_snode_tags(snode, &tags)?;
            snode
        }
        None if args.new => {
            let mut tags = SnodeTags::default();
            args.change.apply(&mut tags);
            tx.create_snode(&tags)?
        }
        None => return Ok(None),
    };
    tx.commit()?;
    Ok(Some(snode))
}

fn show(store: &Store, snode: Option<SnodeId>) -> weft_tags::Result<Vec<(SnodeId, SnodeTags)>> {
    let snodes = snode.map_or_else(|| store.snodes(), |snode| Ok(vec![snode]))?;
    snodes.into_iter().map(|snode| Ok((snode, store.snode_tags(snode)?))).collect()
}

fn json_lines(args: &SnodeArgs, shown: &[(SnodeId, SnodeTags)]) -> Result<String, CliError> {
    let of = |(snode, tags): &(SnodeId, SnodeTags)| {
        json!({
            "snode": snode.0, "owner": tags.owner, "group": tags.group, "mode": format!("{:04o}", tags.mode),
            "class": tags.class, "secure_delete": tags.flags.contains(TagFlags::SECURE_DELETE),
        })
    };
    let store = args.store.path.display().to_string();
    json_line(&json!({ "version": 1, "store": store, "snodes": shown.iter().map(of).collect::<Vec<_>>() }))
}

fn words(shown: &[(SnodeId, SnodeTags)]) -> String {
    let mut table = Table::new("s-node< owner> group> mode< class< secure deletion<");
    for (snode, tags) in shown {
        let erases = if tags.flags.contains(TagFlags::SECURE_DELETE) { "on" } else { "off" };
        let mode = format!("{:04o}", tags.mode);
        table.cells(&[snode, &tags.owner, &tags.group, &mode, &tags.class.name(), &erases]);
    }
    table.to_string()
}
