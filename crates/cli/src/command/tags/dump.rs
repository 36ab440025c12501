//! `weft tags dump`: nodes and their edges, from a node on and to a depth, as text or in the DOT language of Graphviz.

use super::store::{StoreArgs, open};
use crate::byte_text::{escape, hex};
use crate::error::CliError;
use crate::say::{self, print};
use clap::Args;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use weft_tags::{Edge, EdgeTypeView, NodeId, NodeType, NodeView, Result, Store};

/// Bytes of a node's data that are looked at.
const DATA_BYTES: usize = 4096;
/// Characters of a key or of data in a picture.
const LABEL_CHARS: usize = 24;

/// `weft tags dump`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft tags dump app.tags\n  weft tags dump --data --from s1:0x2010 app.tags\n  \
    weft tags dump --dot --depth 2 app.tags | dot -Tsvg > app.svg"
)]
pub struct DumpArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The node to start at, such as s1:0x2010 [default: the root of each s-node]
    #[arg(long, value_name = "NODE", value_parser = parse_node)]
    from: Option<NodeId>,
    /// Number of edges to follow from the start node.
    #[arg(long, value_name = "N", default_value_t = 3)]
    depth: u32,
    /// Print at most N nodes.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    nodes: usize,
    /// Print the graph in the DOT language of Graphviz.
    #[arg(long)]
    dot: bool,
    /// Show the beginning of each node's data.
    #[arg(long)]
    data: bool,
}

/// A number in decimal or, with 0x, hex digits.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A node as messages show it: `s1:0x2010`, or its number.
pub fn parse_node(text: &str) -> std::result::Result<NodeId, String> {
    let node = match text.strip_prefix(['s', 'h']).and_then(|rest| rest.split_once(':')) {
        Some((snode, position)) => {
            let (snode, position) = (snode.parse::<u16>().ok(), number(position));
            let fits = position.filter(|position| position >> weft_tags::ADDRESS_BITS == 0);
            snode.zip(fits).map(|(snode, position)| u64::from(snode) << weft_tags::ADDRESS_BITS | position)
        }
        None => number(text),
    };
    node.map(NodeId)
        .ok_or_else(|| "expected a node such as s1:0x2010; 'weft tags scan' lists the nodes".to_string())
}

/// The part of a store that is printed.
struct Picture {
    nodes: BTreeMap<NodeId, (NodeView, Vec<Edge>)>,
    order: Vec<NodeId>,
    /// Whether there is more within the depth.
    is_cut: bool,
}

/// Tells of a part of a store.
pub fn run(args: &DumpArgs) -> std::result::Result<(), CliError> {
    let store = open(&args.store)?;
    let text = collect(args, &store).and_then(|picture| {
        if picture.is_cut {
            say::warn(format_args!("these are only the first {} nodes; --nodes N prints more", args.nodes));
        }
        let types = store.edge_types();
        if args.dot { dot(args, &store, &picture, &types) } else { words(args, &store, &picture, &types) }
    });
    print(&text.map_err(|e| args.store.fail(e))?)
}

/// The nodes from where is said, breadth first.
fn collect(args: &DumpArgs, store: &Store) -> Result<Picture> {
    let mut queue: VecDeque<(NodeId, u32)> = match args.from {
        Some(node) => VecDeque::from([(node, 0)]),
        None => {
            store.snodes()?.into_iter().map(|snode| Ok((store.root(snode)?, 0))).collect::<Result<_>>()?
        }
    };
    let mut picture = Picture { nodes: BTreeMap::new(), order: Vec::new(), is_cut: false };
    while let Some((node, depth)) = queue.pop_front() {
        if picture.nodes.contains_key(&node) {
            continue;
        }
        if picture.nodes.len() == args.nodes {
            picture.is_cut = true;
            break;
        }
        let view = store.view(node, DATA_BYTES)?;
        let mut edges = Vec::new();
        if depth < args.depth {
            edges = store.some_edges(node, args.nodes)?;
            picture.is_cut |= (edges.len() as u64) < view.out_edges;
            edges.sort_by_key(|edge| (edge.etype, edge.number, edge.to));
            queue.extend(edges.iter().map(|edge| (edge.to, depth + 1)));
        }
        picture.nodes.insert(node, (view, edges));
        picture.order.push(node);
    }
    Ok(picture)
}

/// The key that data of a type with keys begins with, and what follows.
fn split_key(kind: NodeType, data: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let len = data.first_chunk::<2>().filter(|_| kind.is_keyed()).map(|len| u16::from_le_bytes(*len));
    match len.and_then(|len| data.get(2..2 + usize::from(len))) {
        Some(key) => (Some(key), &data[2 + key.len()..]),
        None => (None, data),
    }
}

/// What tells an edge from others, to be read by people.
fn info(store: &Store, picture: &Picture, edge: &Edge) -> Result<String> {
    if let Some(number) = edge.number {
        return Ok(number.to_string());
    }
    let view = match picture.nodes.get(&edge.to) {
        Some((view, _)) => view.clone(),
        None => store.view(edge.to, DATA_BYTES)?,
    };
    Ok(match split_key(view.kind, &view.data).0 {
        Some(key) => format!("\"{}\"", escape(key)),
        None => "a long key".to_string(),
    })
}

fn type_name(types: &[EdgeTypeView], edge: &Edge) -> String {
    types
        .get(edge.etype.0 as usize)
        .map_or_else(|| edge.etype.0.to_string(), |known| escape(known.name.as_bytes()))
}

fn words(args: &DumpArgs, store: &Store, picture: &Picture, types: &[EdgeTypeView]) -> Result<String> {
    let mut text = String::new();
    for node in &picture.order {
        let Some((view, edges)) = picture.nodes.get(node) else { continue };
        let _ = writeln!(
            text,
            "{node}  type {:#x}, {} bytes, {} edges in, {} out",
            view.kind.0, view.bytes, view.in_edges, view.out_edges
        );
        if args.data {
            let (key, rest) = split_key(view.kind, &view.data);
            if let Some(key) = key {
                let _ = writeln!(text, "  key   {}", escape(key));
            }
            let cut = if view.bytes > view.data.len() as u64 { " ..." } else { "" };
            let is_text =
                std::str::from_utf8(rest).is_ok_and(|text| !text.contains(|c: char| c.is_control()));
            let shown = if is_text { escape(rest) } else { hex(rest) };
            let _ = writeln!(text, "  data  {shown}{cut}");
        }
        for edge in edges {
            let _ =
                writeln!(text, "  {} {} -> {}", type_name(types, edge), info(store, picture, edge)?, edge.to);
        }
    }
    Ok(text)
}

/// A text within the quotes of Graphviz, not longer than can be looked at.
fn label(text: &str) -> String {
    let mut short: String = text.chars().take(LABEL_CHARS).collect();
    if short.len() < text.len() {
        short.push('\u{2026}');
    }
    short.replace('\\', "\\\\").replace('"', "\\\"")
}

fn dot(args: &DumpArgs, store: &Store, picture: &Picture, types: &[EdgeTypeView]) -> Result<String> {
    let mut text = String::from(
        "digraph store {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n  \
        edge [fontname=\"sans-serif\", fontsize=9];\n",
    );
    for node in &picture.order {
        let Some((view, _)) = picture.nodes.get(node) else { continue };
        let (key, rest) = split_key(view.kind, &view.data);
        let mut lines = format!("{node}\\ntype {:#x}, {} bytes", view.kind.0, view.bytes);
        if let Some(key) = key {
            let _ = write!(lines, "\\n{}", label(&escape(key)));
        }
        if args.data && !rest.is_empty() {
            let _ = write!(lines, "\\n{}", label(&escape(rest)));
        }
        let _ = writeln!(text, "  \"{node}\" [label=\"{lines}\"];");
    }
    for (node, (_, edges)) in &picture.nodes {
        for edge in edges {
            let words = label(&format!("{} {}", type_name(types, edge), info(store, picture, edge)?));
            let _ = writeln!(text, "  \"{node}\" -> \"{}\" [label=\"{words}\"];", edge.to);
        }
    }
    text.push_str("}\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_written_as_messages_show_it_or_as_its_number() {
        for node in [NodeId(1 << 48 | 0x2010), NodeId(7 << 48), NodeId(0xffff_ffff_ffff)] {
            assert_eq!(parse_node(&node.to_string()), Ok(node));
            assert_eq!(parse_node(&node.0.to_string()), Ok(node));
        }
        for wrong in ["", "s1", "s1:", "sx:0x10", "s1:0x1000000000000", "s70000:1", "node"] {
            assert!(parse_node(wrong).is_err(), "{wrong}");
        }
    }
}
