//! Lists nodes and edges of a store without knowledge of the program's types: for tools.
//!
//! Everything here reads the last committed state and takes bounded memory: what can be long is given in parts.

use crate::committed::Committed;
use crate::edges::order::{Direction, EdgePlace};
use crate::edges::table::is_hashed;
use crate::edges::{Bundle, COUNTS, Edge, MAIN, Main, RawEdge, bundle_of, form_of_cell};
use crate::error::{Error, Result};
use crate::ids::{EdgeType, HomeId, InfoForm, NodeId, NodeType, SnodeId};
use crate::layout::node::{is_body_class, slot_bytes, slots_of, split_key};
use crate::pages::Words;
use crate::pages::access::Pages;
use crate::pages::desc::{Desc, PageKind, slot_is_set};
use crate::partition::data_in;
use crate::store::Store;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// What is known of a node without knowing its type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeView {
    /// Its type.
    pub kind: NodeType,
    /// Bytes of its data.
    pub bytes: u64,
    /// The beginning of its data, as long as was asked for.
    pub data: Vec<u8>,
    /// Edges that lead to it; the root of an s-node is held once more.
    pub in_edges: u64,
    /// Edges that go out from it.
    pub out_edges: u64,
}

/// A registered edge type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgeTypeView {
    /// Number of the edge type.
    pub etype: EdgeType,
    /// The name it is registered by.
    pub name: String,
    /// What its edges carry.
    pub form: InfoForm,
}

/// What the edges of a bundle go out from.
#[derive(Clone, Copy)]
pub(crate) struct Bundled {
    pub source: NodeId,
    pub etype: EdgeType,
    pub form: InfoForm,
}

/// What bundles' edges go out from, by s-node and table.
pub(crate) type Bundles = FxHashMap<(u16, u64), Bundled>;
/// An edge with all that it is found by.
pub(crate) type FoundEdge = (NodeId, InfoForm, RawEdge);

impl Store {
    /// The number of the last commit.
    pub fn last_commit(&self) -> u64 {
        self.journal.last()
    }

    /// The registered edge types, in the order of their numbers.
    pub fn edge_types(&self) -> Vec<EdgeTypeView> {
        let catalog = self.catalog.read();
        let types = catalog.types.iter().zip(0..).filter(|(entry, _)| !entry.name.is_empty());
        types
            .map(|(entry, at)| EdgeTypeView {
                etype: EdgeType(at),
                name: entry.name.to_string(),
                form: entry.form,
            })
            .collect()
    }

    /// The keys of the nodes of a type to which edges of this name lead from an s-node's root, sorted.
    pub(crate) fn anchor_names(&self, snode: SnodeId, name: &str, kind: NodeType) -> Result<Vec<String>> {
        let Some(names) = self.find_edge_type(name, InfoForm::Key)? else { return Ok(Vec::new()) };
        let edges = self.edges(self.root(snode)?)?;
        let name = |node| {
            let data = self.read_node(node, kind)?;
            Ok(split_key(&data)
                .map_or_else(String::new, |(key, _)| String::from_utf8_lossy(key).into_owned()))
        };
        let anchors = edges.iter().filter(|edge| edge.etype == names);
        let mut names = anchors.map(|edge| name(edge.to)).collect::<Result<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    /// A node of any type, with the first `data_max` bytes of its data.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`](crate::Error::NoSuchNode), and what reading the medium gives.
    pub fn view(&self, node: NodeId, data_max: usize) -> Result<NodeView> {
        let in_edges = self.in_edges(node)?;
        let mut out_edges = 0;
        self.each_out::<Error>(node, &mut |edges| {
            out_edges += edges.iter().filter(|edge| !edge.etype.is_reserved()).count() as u64;
            Ok(())
        })?;
        self.read(node.home(), |pages, contents| {
            let (kind, len, place) = contents.open_node(pages, node)?;
            let data = data_in(pages, place, 0..len.min(data_max))?;
            Ok(NodeView { kind: NodeType(kind), bytes: len as u64, data, in_edges, out_edges })
        })
    }

    /// Up to `max` of the edges out of a node, in no order.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`](crate::Error::NoSuchNode), and what reading the medium gives.
    pub fn some_edges(&self, source: NodeId, max: usize) -> Result<Vec<Edge>> {
        self.look_for(source)?;
        let types = self.read(source.home(), |pages, contents| contents.edges.types_of(pages, source))?;
        let mut found: Vec<Edge> = Vec::new();
        for etype in types {
            let more = max.saturating_sub(found.len());
            let edges = self.edges_from(source, etype, EdgePlace::FIRST, Direction::Up, more)?;
            found.extend(edges.into_iter().map(|placed| placed.edge));
        }
        Ok(found)
    }

    /// Calls `each` with every node, in the order of their positions in the store, until it returns `false`. Nodes
    /// that come or go meanwhile may be listed or not.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn each_node<E>(
        &self,
        mut each: impl FnMut(NodeId) -> std::result::Result<bool, E>,
    ) -> std::result::Result<(), E> {
        for page in self.data_pages() {
            for node in nodes_in(page, &self.pool.table.describe(page)) {
                if !each(node)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// [`edges_in`] a page of an edge table of a home; none where it is not one any more.
    pub(crate) fn edges_of_page(
        &self,
        home: HomeId,
        page: u32,
        bundles: &mut Bundles,
    ) -> Result<Option<Vec<FoundEdge>>> {
        let desc = self.pool.table.describe(page);
        if (desc.kind, desc.snode) != (PageKind::Table, home.0) {
            return Ok(Some(Vec::new()));
        }
        self.read(home, |pages, _| Ok(edges_in(&desc, pages.words(page)?, bundles)))
    }

    /// Calls `each` with every edge in the tables of a home, but those of which nothing says what they go out from. The pages of the
    /// main table, which names the others, come first.
    pub(crate) fn each_edge(
        &self,
        home: HomeId,
        mut each: impl FnMut(NodeId, InfoForm, RawEdge),
    ) -> Result<()> {
        let mut bundles = Bundles::default();
        let pages = self.partition(home)?.read().contents.edge_pages();
        for page in pages {
            let edges = self.edges_of_page(home, page, &mut bundles)?.unwrap_or_default();
            edges.into_iter().for_each(|(source, form, edge)| each(source, form, edge));
        }
        Ok(())
    }
}

/// The edges of a page of an edge table; what else a page of the main table names is noted. `None` where nothing says what the page's
/// edges go out from, or it is not as that says.
pub(crate) fn edges_in(desc: &Desc, words: &Words, bundles: &mut Bundles) -> Option<Vec<FoundEdge>> {
    if desc.body[0] == COUNTS {
        return Some(Vec::new());
    }
    if desc.body[0] != MAIN {
        let Bundled { source, etype, form } = bundles.get(&(desc.snode, desc.body[0])).copied()?;
        let edge = |[key, to]: [u64; 2]| (source, form, RawEdge { etype, key, to: NodeId(to) });
        return (is_hashed(words) == (form == InfoForm::Key))
            .then(|| Bundle::cells(words).map(edge).collect());
    }
    let mut edges = Vec::new();
    for cell in Main::cells(words) {
        let (source, etype, form) = (NodeId(cell[0]), EdgeType(cell[1] as u32), form_of_cell(cell[1]));
        match bundle_of(cell) {
            Some(id) => _ = bundles.entry((desc.snode, id)).or_insert(Bundled { source, etype, form }),
            None => edges.push((source, form, RawEdge { etype, key: cell[2], to: NodeId(cell[3]) })),
        }
    }
    Some(edges)
}

/// The committed nodes of a page, without bodies.
pub(crate) fn nodes_in(page: u32, desc: &Desc) -> Vec<NodeId> {
    let (held, are_bodies) = held_in(page, desc);
    if are_bodies { Vec::new() } else { held }
}

/// The committed nodes of a page, or the bodies, and whether they are these.
pub(crate) fn held_in(page: u32, desc: &Desc) -> (Vec<NodeId>, bool) {
    let home = HomeId(desc.snode);
    match desc.kind {
        PageKind::Slab => {
            let bytes = slot_bytes(desc.class).unwrap_or(crate::PAGE_BYTES);
            let slots = (0..slots_of(bytes)).filter(|slot| slot_is_set(&desc.body, *slot));
            (slots.map(|slot| NodeId::at(home, page, slot * bytes)).collect(), is_body_class(desc.class))
        }
        PageKind::RunHead if desc.body[1] == 1 => (vec![NodeId::at(home, page, 0)], desc.body[2] == 1),
        _ => (Vec::new(), false),
    }
}

/// Where the slots of a page are that no committed node or body is in.
pub(crate) fn free_slots(desc: &Desc) -> impl Iterator<Item = Range<usize>> {
    let bytes = slot_bytes(desc.class).filter(|_| desc.kind == PageKind::Slab);
    bytes.into_iter().flat_map(|bytes| {
        let free = (0..slots_of(bytes)).filter(|slot| !slot_is_set(&desc.body, *slot));
        free.map(move |slot| slot * bytes..(slot + 1) * bytes)
    })
}
