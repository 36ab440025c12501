//! The edge table of an s-node: the edges that go out from its nodes.
//!
//! The main table has a cell of four words for an edge, and its position is the hash of the source alone, so that all
//! edges of a node lie together. Where a node has so many edges of one type that they would crowd a page, these move to
//! a table of their own, a *bundle*: two words an edge, by the hash of its info. The main table then has one cell that
//! names the bundle. So a list or a tree node finds its edges in one line of memory, and a key-value store with ten million
//! edges out of one node is a plain hash table.
//!
//! ```text
//! main:    | source | type | info or its hash | destination |       type + 2^32: | source | type | bundle | 1 |
//! bundle:  | info or its hash | destination |
//! ```
//!
//! A hash that is equal proves nothing: for infos that are keys the whole key is compared, in the destination.

pub(crate) mod directory;
pub(crate) mod grow;
pub(crate) mod many;
pub(crate) mod order;
pub(crate) mod table;

use crate::error::{Error, Result, Step};
use crate::hash::Secret;
use crate::ids::{EdgeType, Info, InfoForm, NodeId};
use crate::pages::access::{PageWriter, Pages};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use table::{CellAddr, Full, Table};

/// Marks a cell that names a bundle.
const BUNDLE: u64 = 1 << 32;
/// Marks cells whose infos are keys, by their hashes.
const KEYED: u64 = 1 << 33;
/// Edges of one type out of one node that become a bundle when their page is full.
const BUNDLE_EDGES: usize = 32;
/// Pages of bundles of which the edges are listed in one step, so that it is short.
const TOGETHER: usize = 32;
/// Number of the main table.
pub(crate) const MAIN: u64 = 0;
/// Number of the table of in-edge counts.
pub(crate) const COUNTS: u64 = 1;
/// The first bundle.
pub(crate) const FIRST_BUNDLE: u64 = 2;
/// Edge types out of one node, at most: that many cells fit a page whatever else happens.
pub(crate) const TYPES_PER_NODE_MAX: usize = 48;
const _: () = assert!(TYPES_PER_NODE_MAX < Main::CELLS / 2);

/// A table of all edges: source, type, info or its hash, destination.
pub(crate) type Main = Table<4>;
/// A table of the edges of one type out of one node: info or its hash, destination.
pub(crate) type Bundle = Table<2>;
/// A table of counts: node, in-edges.
pub(crate) type Counts = Table<2>;

/// The out-edges of an s-node's nodes.
#[derive(Clone)]
pub(crate) struct EdgeTable {
    pub(crate) main: Main,
    /// Snapshots share it until a bundle gets or loses a page.
    pub(crate) bundles: Arc<FxHashMap<u64, Bundle>>,
    pub(crate) next_bundle: u64,
}

/// An edge as its cell has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RawEdge {
    pub etype: EdgeType,
    /// The number, or the key's hash.
    pub key: u64,
    pub to: NodeId,
}

/// An edge that comes, goes, or leads elsewhere from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EdgeChange {
    pub source: NodeId,
    pub etype: EdgeType,
    pub form: InfoForm,
    pub key: u64,
    /// Where it led; none where it is new.
    pub old: NodeId,
    /// Where it leads; none where it is gone.
    pub new: NodeId,
}

/// An edge out of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Its type.
    pub etype: EdgeType,
    /// Its number, for types of [`InfoForm::Number`]; for keys, which the destination's data begins with, `None`.
    pub number: Option<u64>,
    /// Node that the edge leads to.
    pub to: NodeId,
}

/// What identifies an edge.
#[derive(Clone, Copy)]
pub(crate) struct EdgeKey<'a> {
    pub source: NodeId,
    pub etype: EdgeType,
    pub key: u64,
    pub info: Info<'a>,
}

impl EdgeKey<'_> {
    /// A hash for a table of a transaction's own.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        // Only the transaction's own table is at stake; keys come hashed with the secret already.
        let mixed = self.key ^ self.source.0.rotate_left(32) ^ u64::from(self.etype.0).rotate_left(17);
        let product = u128::from(mixed ^ 0x9e37_79b9_7f4a_7c15) * 0xbf58_476d_1ce4_e5b9;
        (product >> 64) as u64 ^ product as u64
    }
}

/// What the main table has of a node.
pub(crate) struct Heads {
    pub edges: Vec<RawEdge>,
    /// Bundles, with the types of their edges.
    pub bundles: Vec<(EdgeType, u64)>,
}

/// Where a part of a node's edges begins: in which of its bundles, and at which position. It holds in one state.
pub(crate) type BundlePlace = (usize, u32);

/// What is done with a part of the edges out of a node; its error ends the walk.
pub(crate) type EachPart<'a, E> = dyn FnMut(Vec<RawEdge>) -> Result<(), E> + 'a;

/// Where an edge goes out from, and where to.
pub(crate) type Ends = (NodeId, NodeId);

impl EdgeTable {
    pub(crate) fn new(secret: Secret) -> EdgeTable {
        EdgeTable {
            main: Table::new(MAIN, false, secret),
            bundles: Arc::default(),
            next_bundle: FIRST_BUNDLE,
        }
    }

    /// The bundle of a source's edges of a type.
    #[inline]
    pub(crate) fn bundle(&self, pages: &impl Pages, source: NodeId, etype: EdgeType) -> Step<Option<u64>> {
        self.main
            .find(pages, source.0, |_, cell| Ok((cell[1] & !KEYED == bundle_word(etype)).then_some(cell[2])))
    }

    /// The bundles, where one gets or loses a page.
    pub(crate) fn bundles_mut(&mut self) -> &mut FxHashMap<u64, Bundle> {
        Arc::make_mut(&mut self.bundles)
    }

    /// Edges out of a node of some types; it is enough to know that they are more than `most`, since there may be millions.
    pub(crate) fn count_out(
        &self,
        pages: &impl Pages,
        source: NodeId,
        is_counted: impl Fn(EdgeType) -> bool,
        most: u64,
    ) -> Step<u64> {
        let Heads { edges, bundles } = self.heads_of(pages, source)?;
        let mut count = edges.iter().filter(|edge| is_counted(edge.etype)).count() as u64;
        let bundles = bundles.iter().filter(|(etype, _)| is_counted(*etype));
        let in_bundles = bundles.filter_map(|(_, id)| self.bundles.get(id)).flat_map(Bundle::walk);
        let together = pages.step_pages().min(usize::try_from(most).unwrap_or(usize::MAX));
        pages.ask_for_all(in_bundles.clone().take(together))?;
        for page in in_bundles {
            if count > most {
                break;
            }
            count += Bundle::count(pages.words(page)?) as u64;
        }
        Ok(count)
    }

    /// Finds an edge: its cell, in the main table or in a bundle, and where it leads. `is_it` decides among destinations whose cells are
    /// equal otherwise.
    #[inline]
    pub(crate) fn find(
        &self,
        pages: &impl Pages,
        source: NodeId,
        etype: EdgeType,
        key: u64,
        mut is_it: impl FnMut(NodeId) -> Step<bool>,
    ) -> Step<Option<(CellAddr, NodeId)>> {
        let (light, heavy) = (u64::from(etype.0), bundle_word(etype));
        let mut bundle = None;
        let found = self.main.find(pages, source.0, |place, cell| {
            let word = cell[1] & !KEYED;
            if word == heavy {
                bundle = Some(cell[2]);
                return Ok(Some(None));
            }
            let to = NodeId(cell[3]);
            Ok((word == light && cell[2] == key && is_it(to)?).then_some(Some((place, to))))
        })?;
        let Some(bundle) = bundle.and_then(|id| self.bundles.get(&id)) else { return Ok(found.flatten()) };
        bundle.find(pages, key, |place, cell| {
            let to = NodeId(cell[1]);
            Ok(is_it(to)?.then_some((place, to)))
        })
    }

    /// The types of the edges out of a node, without those of the store's own.
    pub(crate) fn types_of(&self, pages: &impl Pages, source: NodeId) -> Step<Vec<EdgeType>> {
        let mut types = Vec::new();
        self.main.find(pages, source.0, |_, cell| {
            let etype = EdgeType(cell[1] as u32);
            if !etype.is_reserved() && !types.contains(&etype) {
                types.push(etype);
            }
            Ok(None::<()>)
        })?;
        Ok(types)
    }

    /// Nodes that edges of a type go out from, and where to, by the page of the main table that answers for a position, and the position
    /// behind that page. A bundle has a cell there, too.
    pub(crate) fn edges_near(
        &self,
        pages: &impl Pages,
        etype: EdgeType,
        position: u32,
    ) -> Step<(Vec<Ends>, Option<u32>)> {
        let mut edges = Vec::new();
        let Some((last, page)) = self.main.directory.until(position) else { return Ok((edges, None)) };
        for page in self.main.directory.chain(page) {
            let cells = Table::<4>::cells(pages.words(page)?).filter(|cell| cell[1] as u32 == etype.0);
            edges.extend(cells.map(|cell| (NodeId(cell[0]), NodeId(cell[3]))));
        }
        Ok((edges, last.checked_add(1)))
    }

    /// A part of the edges out of a node, in no order, and where the next one begins: first those in the main table, and with each part
    /// those in some pages of bundles.
    pub(crate) fn part_of_all(
        &self,
        pages: &impl Pages,
        source: NodeId,
        from: Option<BundlePlace>,
    ) -> Step<(Vec<RawEdge>, Option<BundlePlace>)> {
        let Heads { mut edges, bundles } = self.heads_of(pages, source)?;
        edges.retain(|_| from.is_none());
        let (first, position) = from.unwrap_or_default();
        let left = (0..).zip(&bundles).skip(first);
        let left = left.filter_map(|(at, (etype, id))| Some((at, *etype, &self.bundles.get(id)?.directory)));
        let mut left = left.flat_map(|(at, etype, directory)| {
            let ends = directory.from(if at == first { position } else { 0 });
            ends.map(move |(last, page)| ((at, last), etype, directory.chain(page)))
        });
        let part: Vec<_> = left.by_ref().take(pages.step_pages().clamp(1, TOGETHER)).collect();
        pages.ask_for_all(part.iter().flat_map(|(_, _, chain)| chain.clone()))?;
        for (_, etype, chain) in part {
            for page in chain {
                edges.extend(Self::edges_in(pages, etype, page)?);
            }
        }
        Ok((edges, left.next().map(|(place, ..)| place)))
    }

    /// What the main table has of a node.
    pub(crate) fn heads_of(&self, pages: &impl Pages, source: NodeId) -> Step<Heads> {
        let mut edges = Vec::new();
        let mut bundles = Vec::new();
        self.main.find(pages, source.0, |_, cell| {
            let etype = EdgeType(cell[1] as u32);
            if cell[1] & BUNDLE != 0 {
                bundles.push((etype, cell[2]));
            } else {
                edges.push(RawEdge { etype, key: cell[2], to: NodeId(cell[3]) });
            }
            Ok(None::<()>)
        })?;
        Ok(Heads { edges, bundles })
    }

    /// The edges in a page of a bundle of this type.
    pub(crate) fn edges_in(pages: &impl Pages, etype: EdgeType, page: u32) -> Step<Vec<RawEdge>> {
        let cells = Bundle::cells(pages.words(page)?);
        Ok(cells.map(|[key, to]| RawEdge { etype, key, to: NodeId(to) }).collect())
    }

    /// Puts an edge in that is not there.
    pub(crate) fn insert(
        &mut self,
        pages: &mut PageWriter<'_>,
        source: NodeId,
        form: InfoForm,
        edge: RawEdge,
    ) -> Step<()> {
        loop {
            if let Some(id) = self.bundle(pages, source, edge.etype)? {
                let absent = || Error::damaged(format!("bundle {id} is not there"));
                let bundle = self.bundles_mut().get_mut(&id).ok_or_else(absent)?;
                return bundle.insert(pages, [edge.key, edge.to.0]);
            }
            let cell = main_cell(source, form, edge);
            match self.main.try_insert(pages, cell)? {
                None => return Ok(()),
                Some(Full::Page(page)) if self.relieve(pages, page)? => {}
                Some(_) => return self.main.insert(pages, cell),
            }
        }
    }

    /// Makes room in a page of the main table that one node fills, by a bundle; whether there is one more. A page that many fill is split
    /// when a cell is put into it.
    fn relieve(&mut self, pages: &mut PageWriter<'_>, page: u32) -> Step<bool> {
        let mut groups: FxHashMap<(u64, u64), usize> = FxHashMap::default();
        let mut positions = [u64::MAX, 0];
        for page in self.main.directory.chain(page) {
            for cell in Main::cells(pages.words(page)?) {
                if cell[1] & BUNDLE == 0 {
                    *groups.entry((cell[0], cell[1])).or_default() += 1;
                }
                let position = self.main.position_of(cell[0]);
                positions = [positions[0].min(position), positions[1].max(position)];
            }
        }
        let splits = positions[0] >> 32 != positions[1] >> 32;
        match groups.into_iter().map(|(group, edges)| (edges, group)).max() {
            // A bundle of one edge would make no room.
            Some((edges, (source, word))) if edges >= BUNDLE_EDGES || !splits && edges > 1 => {
                self.make_bundle(pages, source, word)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn make_bundle(&mut self, pages: &mut PageWriter<'_>, source: u64, word: u64) -> Step<()> {
        let id = self.next_bundle;
        let mut bundle = Bundle::new(id, form_of_cell(word) == InfoForm::Key, self.main.secret);
        let mut cells = Vec::new();
        let mut of = Vec::new();
        self.main.find(pages, source, |place, cell| {
            if cell[1] == word {
                cells.push([cell[2], cell[3]]);
                of.push(place.page);
            }
            Ok(None::<()>)
        })?;
        // To be changed: what halts for want of a frame does so here.
        of.iter().try_for_each(|page| pages.words_mut(*page).map(drop))?;
        // A page of the bundle holds twice what a page of the main table does, so only the first insert can halt,
        // and then nothing has changed.
        for cell in &cells {
            bundle.insert(pages, *cell)?;
        }
        self.next_bundle += 1;
        self.bundles_mut().insert(id, bundle);
        for _ in &cells {
            let place =
                self.main.find(pages, source, |place, cell| Ok((cell[1] == word).then_some(place)))?;
            if let Some(place) = place {
                self.main.remove(pages, place)?;
            }
        }
        self.main.insert(pages, [source, word | BUNDLE, id, 1])
    }

    /// Takes an edge out; `false` when it is not there. With the last edge of a bundle go the bundle's pages, which are appended to `freed`.
    pub(crate) fn remove(
        &mut self,
        pages: &mut PageWriter<'_>,
        source: NodeId,
        edge: RawEdge,
        freed: &mut Vec<u32>,
    ) -> Step<bool> {
        let head = self.main.find(pages, source.0, |place, cell| {
            Ok((cell[1] & !KEYED == bundle_word(edge.etype)).then_some((place, cell[2])))
        })?;
        let bundle = head.and_then(|(head, id)| Some((head, self.bundles.get(&id)?)));
        let Some((head, bundle)) = bundle else {
            let Some(place) = self.find_in_main(pages, source, edge)? else { return Ok(false) };
            return self.main.remove(pages, place).map(|()| true);
        };
        // Looked for in the bundle alone: a damaged page may have a cell of the same edge in the main table, too.
        let it = [edge.key, edge.to.0];
        let place = bundle.find(pages, edge.key, |place, cell| Ok((cell == it).then_some(place)))?;
        let Some(place) = place else { return Ok(false) };
        if !bundle.is_last(pages, place)? {
            return bundle.remove(pages, place).map(|()| true);
        }
        // Both pages are there to be changed before one of them is.
        pages.words_mut(head.page)?;
        bundle.remove(pages, place)?;
        self.main.remove(pages, head)?;
        let id = bundle.id;
        freed.extend(self.bundles_mut().remove(&id).iter().flat_map(Bundle::walk));
        Ok(true)
    }

    /// The cell of an edge in the main table.
    fn find_in_main(&self, pages: &impl Pages, source: NodeId, edge: RawEdge) -> Step<Option<CellAddr>> {
        let it = [u64::from(edge.etype.0), edge.key, edge.to.0];
        self.main.find(pages, source.0, |place, [_, word, key, to]| {
            Ok(([word & !KEYED, key, to] == it).then_some(place))
        })
    }

    /// Makes a change, whatever it takes.
    fn change_one(
        &mut self,
        pages: &mut PageWriter<'_>,
        change: &EdgeChange,
        freed: &mut Vec<u32>,
    ) -> Step<()> {
        let EdgeChange { source, etype, form, key, old, new: to } = *change;
        let edge = |to| RawEdge { etype, key, to };
        let is_made = match (old.0, to.0) {
            (0, _) => self.insert(pages, source, form, edge(to)).map(|()| true)?,
            (_, 0) => self.remove(pages, source, edge(old), freed)?,
            _ => match self.find_in_main(pages, source, edge(old))? {
                Some(place) => {
                    let cell = main_cell(source, form, edge(to));
                    self.main.replace(pages, place, cell).map(|()| true)?
                }
                None => false,
            },
        };
        if is_made {
            return Ok(());
        }
        Err(Error::damaged(format!("an edge of node {source} to {old} is not in its table")).into())
    }
}

/// The cell of an edge in the main table.
fn main_cell(source: NodeId, form: InfoForm, edge: RawEdge) -> [u64; 4] {
    let keyed = if form == InfoForm::Key { KEYED } else { 0 };
    [source.0, u64::from(edge.etype.0) | keyed, edge.key, edge.to.0]
}

/// The bundle that a cell of the main table names, if it names one.
pub(crate) fn bundle_of(cell: [u64; 4]) -> Option<u64> {
    (cell[1] & BUNDLE != 0).then_some(cell[2])
}

/// The form of the infos of a cell's edges, by its second word.
pub(crate) fn form_of_cell(word: u64) -> InfoForm {
    if word & KEYED != 0 { InfoForm::Key } else { InfoForm::Number }
}

/// The second word of a cell that names a bundle, without the mark of keys.
fn bundle_word(etype: EdgeType) -> u64 {
    u64::from(etype.0) | BUNDLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::HomeId;
    use crate::{MemoryStore, Options, Store};

    fn store() -> Store {
        Store::create(Box::new(MemoryStore::new()), &Options::default()).unwrap()
    }

    #[test]
    fn edges_of_nodes_of_one_position_become_bundles() {
        let store = store();
        let partition = store.partition(HomeId::FIRST).unwrap();
        // Two nodes of one position.
        let mut seen = FxHashMap::default();
        let found = (1u64..).find_map(|n| {
            let node = n * 8;
            seen.insert(store.secret.number(node) >> 32, node).map(|other| [NodeId(node), NodeId(other)])
        });
        let [one, other] = found.unwrap();
        let mut edges = EdgeTable::new(store.secret);
        for n in 0..120u64 {
            // Fewer of each type than become a bundle otherwise.
            let source = if n % 2 == 0 { one } else { other };
            let edge = RawEdge { etype: EdgeType((n / 2 % 20) as u32), key: n, to: NodeId(8 * (n + 1)) };
            store
                .write(&mut partition.write(), |pages, _| edges.insert(pages, source, InfoForm::Number, edge))
                .unwrap();
        }
        assert_eq!((edges.main.walk().count(), edges.bundles.is_empty()), (1, false));
        let all =
            store.write(&mut partition.write(), |pages, _| edges.part_of_all(pages, one, None)).unwrap();
        assert_eq!((all.0.len(), all.1), (60, None));
    }

    #[test]
    fn a_cell_beside_the_bundle_of_its_type_is_no_edge() {
        let store = store();
        let partition = store.partition(HomeId::FIRST).unwrap();
        let mut edges = EdgeTable::new(store.secret);
        let (source, etype) = (NodeId(8), EdgeType(3));
        let edge = |key: u64| RawEdge { etype, key, to: NodeId(8 * (key + 1)) };
        for key in 0..200 {
            let step = |pages: &mut PageWriter<'_>, _: &mut _| {
                edges.insert(pages, source, InfoForm::Number, edge(key))
            };
            store.write(&mut partition.write(), step).unwrap();
        }
        assert_eq!(edges.bundles.len(), 1);
        // As a damaged page may have it: before the cell that names the bundle, and of an edge that is not in it.
        let cell = main_cell(source, InfoForm::Number, edge(1000));
        let head = [source.0, bundle_word(etype), FIRST_BUNDLE, 1];
        let mut freed = Vec::new();
        let was_there = store.write(&mut partition.write(), |pages, _| {
            let place = edges.main.find(pages, source.0, |place, _| Ok(Some(place)))?;
            edges.main.remove(pages, place.unwrap())?;
            assert_eq!(edges.main.try_insert(pages, cell)?, None);
            assert_eq!(edges.main.try_insert(pages, head)?, None);
            edges.remove(pages, source, edge(1000), &mut freed)
        });
        assert!(!was_there.unwrap());
        let went =
            store.write(&mut partition.write(), |pages, _| edges.remove(pages, source, edge(1), &mut freed));
        assert!(went.unwrap() && freed.is_empty());
        let left = edges.bundles[&FIRST_BUNDLE].walk().next().unwrap();
        let left = store.write(&mut partition.write(), |pages, _| Ok(Bundle::count(pages.words(left)?)));
        assert!(left.unwrap() < 200);
    }
}
