//! The last step of a salvage: repairs roots, bodies, dangling edges, orphaned nodes and counts of in-edges.

use super::FOUND;
use super::copy::Copy;
use super::known::{KnownNode, Nodes, class_in, count};
use crate::committed::Committed;
use crate::edges::RawEdge;
use crate::error::Result;
use crate::ids::{DATA_PAGES_MAX, EdgeType, HomeId, InfoForm, NodeId, NodeType, PAGE_BYTES};
use crate::inspect::{held_in, nodes_in};
use crate::layout::catalog::TypeEntry;
use crate::layout::node::{MOVED, NODE_HEADER, class_of, slot_bytes};
use crate::pages::access::Pages;
use crate::pages::desc::PageKind;
use crate::partition::{NodeScope, find_any, header_at};
use crate::snodes::access::grant_of;
use crate::snodes::tags::{ROOT_BYTES, Root, SnodeTags};
use crate::tx::apply::{free_nodes, make_root};
use rustc_hash::FxHashMap;
use weft_core::TagFlags;

/// The beginning of the name of an edge type whose name is lost.
const NAMELESS: &str = "weft.salvage.type.";
/// The most edge types whose names are made up.
const MADE_UP_MAX: u32 = 1 << 16;

impl Copy<'_> {
    /// Makes a sound store of what was copied.
    pub(super) fn mend(&mut self) -> Result<()> {
        for snode in self.store.snodes.ids() {
            self.mend_root(snode)?;
        }
        let mut nodes = self.list_nodes()?;
        if !self.has_catalog {
            self.make_up_types(&nodes)?;
        }
        while self.judge_edges(&mut nodes)? | self.part_bodies(&mut nodes)? {}
        self.find_edges(&mut nodes)?;
        self.mend_guests(&mut nodes)?;
        let found = self.hang_up(&mut nodes)?;
        self.lost.retain(|node, _| !nodes.contains_key(node));
        self.report.lost_nodes = self.lost.len() as u64;
        self.hold_places(&mut nodes)?;
        for (node, seen) in &nodes {
            let is_root = self.store.root_of_home(node.home()).is_ok_and(|root| root == *node);
            self.keep_count(*node, u64::from(seen.ins) + u64::from(is_root))?;
        }
        let bodies = nodes.values().filter(|seen| seen.is_body).count() as u64;
        let made = bodies + self.report.held_places;
        let homes = self.store.snodes.guests();
        let guests: u64 = homes.iter().map(|(_, guests)| u64::from(guests.count)).sum();
        self.report.nodes = nodes.len() as u64 - made - homes.len() as u64;
        self.report.edges = nodes.values().map(|seen| u64::from(seen.outs)).sum::<u64>() - made - guests;
        self.report.found_nodes = found;
        self.count_numbers();
        self.store.learn_classes(false)?;
        crate::recover::list_refill(&self.store)?;
        self.store.checkpoint()?;
        self.store.end_opening()
    }

    /// Sees to it that an s-node has a root with tags, where the root was.
    fn mend_root(&mut self, snode: HomeId) -> Result<()> {
        let root = self.store.root_of_home(snode)?;
        let is_sound = root.home() == snode
            && find_any(&self.store.pool.table, root, NodeScope::Committed)
                .is_ok_and(|(_, is_body)| !is_body)
            && self.store.read_root(root).is_ok_and(|root| root.number == 0);
        if is_sound {
            return Ok(());
        }
        // Whether this s-node had the flag is not known. What was to be overwritten is, though it may not have had to be.
        let flags = if self.may_erase { TagFlags::SECURE_DELETE } else { TagFlags::default() };
        let tags = SnodeTags { flags, ..SnodeTags::default() };
        let class = class_of(ROOT_BYTES).unwrap_or(0);
        let bytes = slot_bytes(class).unwrap_or(PAGE_BYTES);
        let page = root.page().filter(|page| *page > 0 && root.home() == snode).unwrap_or(0);
        let desc = self.store.pool.table.describe(page);
        let slot = root.offset() / bytes;
        let fits = page > 0 && root.offset().is_multiple_of(bytes) && (slot + 1) * bytes <= PAGE_BYTES;
        let is_free = desc.kind == PageKind::Free
            || (desc.kind, desc.snode, desc.class) == (PageKind::Slab, snode.0, class);
        let place = (fits && is_free).then_some((page, slot));
        let root = Root { tags, number: 0, is_controlled: false };
        let root = self.change(snode, |store, partition| make_root(store, partition, &root, place))?;
        self.count_numbers();
        self.set_root(snode, root)?;
        self.report.made_up_snodes += 1;
        let erases = if self.may_erase { ", with secure deletion, which some s-node had" } else { "" };
        self.report.remark(format!(
            "the root of {snode} is lost: {root} is made up, with user 0 as owner{erases}; it has the permissions of which the \
             edges can be read"
        ));
        Ok(())
    }

    /// All nodes and bodies whose headers can be; the others go.
    fn list_nodes(&mut self) -> Result<Nodes> {
        let mut nodes = Nodes::default();
        let (mut wrong, mut strays) = (Vec::new(), Vec::new());
        for page in self.store.pool.table.known(DATA_PAGES_MAX) {
            let desc = self.store.pool.table.describe(page);
            let (ids, is_body) = held_in(page, &desc);
            if ids.is_empty() {
                continue;
            }
            let snode = HomeId(desc.snode);
            if self.store.snodes.find(snode).is_none() {
                // What was left of an s-node when the journal said that it went.
                strays.push(page);
                continue;
            }
            let headers = self.store.read(snode, |pages, _| {
                ids.iter()
                    .map(|id| {
                        let (place, _) = find_any(&self.store.pool.table, *id, NodeScope::Committed)?;
                        let (kind, len) = header_at(pages, place)?;
                        let data = &pages.bytes(place.page)?[place.offset..];
                        let data = data.get(NODE_HEADER..NODE_HEADER + len).unwrap_or(&[]);
                        let is_guest = kind == NodeType::ROOT.0
                            && snode.is_shared()
                            && Root::decode(data).is_ok_and(|root| root.number > 0);
                        Ok((kind, len, place.room, is_guest))
                    })
                    .collect::<crate::error::Step<Vec<_>>>()
            })?;
            let root = self.store.root_of_home(snode)?;
            for (id, (kind, len, room, is_guest)) in ids.into_iter().zip(headers) {
                let is_moved = len == MOVED && !is_body;
                let is_sound = is_moved || len + NODE_HEADER <= room;
                if is_sound && (kind == NodeType::ROOT.0) == (id == root || is_guest) {
                    nodes.insert(id, KnownNode { kind, is_body, is_moved, ..KnownNode::default() });
                } else {
                    wrong.push(id);
                }
            }
        }
        strays.into_iter().try_for_each(|page| self.forget_page(page))?;
        for node in wrong {
            self.report.remark(format!("node {node}: its header cannot be"));
            self.lose(node)?;
        }
        Ok(nodes)
    }

    /// Gives up a node or body.
    fn lose(&mut self, node: NodeId) -> Result<()> {
        let page = node.page().unwrap_or(0);
        let desc = self.store.pool.table.describe(page);
        if nodes_in(page, &desc).contains(&node) {
            self.lost.insert(node, class_in(&desc));
        } else {
            self.report.complete = false;
        }
        self.change(node.home(), |store, partition| free_nodes(store, partition, &[node]))
    }

    /// Counts the edges of all nodes, and takes those out that lack an end; whether there were some.
    fn judge_edges(&mut self, nodes: &mut Nodes) -> Result<bool> {
        nodes
            .values_mut()
            .for_each(|seen| (seen.ins, seen.outs, seen.is_joined, seen.owner) = (0, 0, false, None));
        let mut dropped = 0;
        for snode in self.store.snodes.ids() {
            let mut wrong: Vec<(NodeId, RawEdge)> = Vec::new();
            self.store.each_edge(snode, |source, form, edge| {
                if self.is_sound(nodes, source, form, &edge) {
                    count(nodes, source, &edge);
                } else {
                    wrong.push((source, edge));
                }
            })?;
            for (source, edge) in wrong {
                self.cut_off.insert(edge.to);
                let is_out = self.take_out(source, edge)?;
                dropped += u64::from(is_out && !edge.etype.keeps_nothing());
                self.report.complete = false;
            }
        }
        self.report.dropped_edges += dropped;
        Ok(dropped > 0)
    }

    fn is_sound(&self, nodes: &Nodes, source: NodeId, form: InfoForm, edge: &RawEdge) -> bool {
        let (Some(from), Some(to)) = (nodes.get(&source), nodes.get(&edge.to)) else { return false };
        if edge.etype == EdgeType::BODY {
            return from.is_moved
                && !from.is_joined
                && to.is_body
                && !to.is_joined
                && from.kind == to.kind
                && edge.key == 0;
        }
        if from.is_body || to.is_body {
            return false;
        }
        let leads_to_guest = |home_root| {
            source.home().is_shared()
                && edge.to.home() == source.home()
                && to.kind == NodeType::ROOT.0
                && edge.to != home_root
        };
        let home_root = self.store.root_of_home(source.home()).unwrap_or(NodeId(0));
        if edge.etype == EdgeType::OWNER {
            let is_known = from.kind == NodeType::ROOT.0 || from.owner.is_some();
            return leads_to_guest(home_root) && !is_known && edge.key == 0;
        }
        if edge.etype == EdgeType::GUEST {
            let is_of = || self.store.read_root(edge.to).is_ok_and(|root| u64::from(root.number) == edge.key);
            return leads_to_guest(home_root) && source == home_root && !to.is_joined && is_of();
        }
        if edge.etype == EdgeType::PERMISSION {
            return source == edge.to && from.kind == NodeType::ROOT.0 && grant_of(edge.key).is_some();
        }
        let is_keyed = form == InfoForm::Key;
        let fits = !is_keyed || (edge.to.home() == source.home() && NodeType(to.kind).is_keyed());
        fits && !edge.etype.is_reserved() && self.store.form_of(edge.etype).is_ok_and(|wanted| wanted == form)
    }

    /// Takes nodes away that have moved and lost their body, and bodies that are nobody's; whether there were some.
    fn part_bodies(&mut self, nodes: &mut Nodes) -> Result<bool> {
        let is_parted = |seen: &KnownNode| (seen.is_moved || seen.is_body) && !seen.is_joined;
        let parted: Vec<NodeId> =
            nodes.iter().filter(|(_, seen)| is_parted(seen)).map(|(id, _)| *id).collect();
        for node in &parted {
            nodes.remove(node);
            self.lose(*node)?;
        }
        Ok(!parted.is_empty())
    }

    /// Hangs nodes that nothing leads to under the root of their s-node, where edges were lost; how many.
    fn hang_up(&mut self, nodes: &mut Nodes) -> Result<u64> {
        let may_have_lost = self.report.has_losses() || !self.report.complete || !self.lost.is_empty();
        let mut alone: Vec<NodeId> = Vec::new();
        for (node, seen) in nodes.iter().filter(|(_, seen)| seen.ins == 0 && !seen.is_body) {
            // Without any edge it was not there.
            if seen.kind != NodeType::ROOT.0 && (may_have_lost || seen.outs == 0) {
                alone.push(*node);
            }
        }
        if alone.is_empty() {
            return Ok(0);
        }
        alone.sort_unstable();
        let etype = self.etype(FOUND);
        for node in &alone {
            let root = self.root_for(*node, nodes)?;
            let edge = RawEdge { etype, key: node.0, to: *node };
            self.lead(nodes, root, edge)?;
        }
        Ok(alone.len() as u64)
    }

    /// The edge type of this name; made if there is none.
    pub(super) fn etype(&self, name: &str) -> EdgeType {
        let mut catalog = self.store.catalog.write();
        let is_it = |entry: &TypeEntry| *entry.name == *name && entry.form == InfoForm::Number;
        match catalog.types.iter().position(is_it) {
            Some(at) => EdgeType(at as u32),
            None => catalog.add_type(name, InfoForm::Number),
        }
    }

    /// Makes up edge types: forms by the edges there are, names where it is known what kinds of nodes they join.
    fn make_up_types(&mut self, nodes: &Nodes) -> Result<()> {
        let mut known: FxHashMap<u32, (InfoForm, Option<&'static str>)> = FxHashMap::default();
        for snode in self.store.snodes.ids() {
            self.store.each_edge(snode, |source, form, edge| {
                if edge.etype.0 >= MADE_UP_MAX {
                    return;
                }
                let entry = known.entry(edge.etype.0).or_insert((form, None));
                if let (None, Some(from), Some(to)) = (entry.1, nodes.get(&source), nodes.get(&edge.to)) {
                    let kinds = (NodeType(from.kind), NodeType(to.kind));
                    entry.1 = crate::kv::edge_type_between(kinds)
                        .or_else(|| crate::btree::edge_type_between(kinds))
                        .filter(|(_, wanted)| *wanted == form)
                        .map(|(name, _)| name);
                }
            })?;
        }
        let end = known.keys().max().map_or(0, |last| last + 1);
        let mut catalog = self.store.catalog.write();
        for at in catalog.types.len() as u32..end {
            let (form, name) = known.get(&at).copied().unwrap_or((InfoForm::Number, None));
            let name = name.filter(|name| catalog.find_type(name).is_none());
            let name = name.map_or_else(|| format!("{NAMELESS}{at}"), str::to_owned);
            catalog.add_type(&name, form);
            self.report.made_up_types += 1;
        }
        drop(catalog);
        self.report.complete = false;
        Ok(())
    }

    /// Keeps how many edges lead to a node, where that is not one.
    fn keep_count(&self, node: NodeId, ins: u64) -> Result<()> {
        if ins == 1 {
            return Ok(());
        }
        self.change(node.home(), |store, partition| {
            store.write(partition, |pages, contents| contents.set_count(pages, node, ins))
        })
    }
}
